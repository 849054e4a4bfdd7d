/*
 * Ordered sets: adds and removes arrive in any order, any number of times.
 *
 * The set ends as if each operation had arrived once and in order.
 *
 *     cc sets.c $(pkg-config --cflags --libs truce) -o sets && ./sets school.truce
 */
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

struct message {
    bool enrols;
    const char *class;
    /* Assigned when the student clicked. */
    int64_t number;
};

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

/* Applies one message to the student's classes. */
static void deliver(truce_set *classes, const struct message *message)
{
    truce_set_outcome outcome;
    bson_t student = BSON_INITIALIZER, element = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_INT32(&student, "student_id", 1);
    BSON_APPEND_UTF8(&element, "name", message->class);
    if (message->enrols)
        status =
            truce_set_add(classes, NULL, &student, &element, message->number, &outcome, &error);
    else
        status =
            truce_set_remove(classes, NULL, &student, &element, message->number, &outcome, &error);
    must(status, &error);
    printf("%d %s %s: %s\n", (int)message->number, message->enrols ? "enrol" : "leave",
           message->class, truce_set_outcome_name(outcome));
    bson_destroy(&student);
    bson_destroy(&element);
}

int main(int argc, char **argv)
{
    /* The removal from CS 101 overtakes the enrolment, and one message arrives twice. */
    static const struct message messages[] = {
        {false, "CS 101", 1001}, {true, "CS 102", 1002}, {true, "CS 101", 1000},
        {true, "CS 102", 1002},  {true, "CS 103", 1003},
    };
    truce_store *store = NULL;
    truce_set *classes;
    bson_t student = BSON_INITIALIZER, members;
    bson_error_t error;
    int count;

    if (argc != 2) {
        fprintf(stderr, "usage: sets STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    classes = truce_set_new(store, &(truce_set_options){.collection = "students",
                                                        .key = "student_id",
                                                        .field = "classes",
                                                        .name = "name"});
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++)
        deliver(classes, &messages[i]);

    BSON_APPEND_INT32(&student, "student_id", 1);
    must(truce_set_members(classes, &student, &members, &error), &error);
    char *text = bson_array_as_json(&members, NULL);
    puts(text);
    count = bson_count_keys(&members);

    bson_free(text);
    bson_destroy(&members);
    bson_destroy(&student);
    truce_set_free(classes);
    truce_store_close(store);
    return count == 2 ? 0 : 1;
}
