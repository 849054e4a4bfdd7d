/*
 * truce from C++17: a store, documents, and a commit that enrols a student.
 *
 * The commit takes effect completely or not at all.
 *
 *     c++ -std=c++17 enrol.cpp $(pkg-config --cflags --libs truce) -o enrol && ./enrol school.truce
 */
#include <cstdio>

#include <truce/truce.hpp>

/* Takes a seat and records the enrolment, in one commit. */
static void enrol(truce::store &store, const char *student)
{
    store.transact([&](truce::commit &commit) {
        auto room = commit.read("rooms", truce_id_utf8("CS 101"));

        if (!room)
            throw truce::refused("room \"CS 101\" does not exist");
        commit.update("rooms", truce_id_utf8("CS 101"), truce::json(R"({"seats": {"$gt": 0}})"),
                      truce::json(R"({"$inc": {"seats": -1}})"));
        commit.insert("enrolments", truce::json(std::string(R"({"_id": ")") + student + R"("})"));
    });
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: enrol STORE\n");
        return 2;
    }
    try {
        truce::store store(argv[1]);
        truce::document all;
        int refused = 0;

        try {
            enrol(store, "Bob");
        } catch (const truce::refused &why) {
            std::printf("refused: %s\n", why.what());
            refused++;
        }
        store.insert("rooms", truce::json(R"({"_id": "CS 101", "seats": 1})"));
        enrol(store, "Ada");
        try {
            /* Ada is enrolled already, so the seat is not taken either. */
            enrol(store, "Ada");
        } catch (const truce::error &why) {
            std::printf("%s: %s\n", truce_status_name(why.status()), why.what());
            refused++;
        }
        for (const bson_t &room : store.find("rooms", all))
            std::puts(truce::text(room).c_str());
        return store.count("enrolments", all) == 1 && refused == 2 ? 0 : 1;
    } catch (const truce::error &why) {
        std::fprintf(stderr, "%s: %s\n", truce_status_name(why.status()), why.what());
        return 1;
    }
}
