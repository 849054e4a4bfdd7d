/* A name belongs to a collection or to a view, even if clients create both at the same time. Two
 * concurrent changes never create a cycle of views. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/hooked.h"
#include "tests/support/see.h"

/* ---- a crowd, on two servers of one file ---------------------------------------------------- */

#define MAKERS 4

struct maker {
    pthread_t thread;
    pthread_barrier_t *start, *end;
    const char *const *commands; /* in turn; %d is the number of the round */
    int port, first, rounds;
};

static void *make_in_turn(void *arg)
{
    const struct maker *maker = arg;
    int connection = dial_port(maker->port), count = 0;
    char text[400];

    while (maker->commands[count])
        count++;
    for (int round = 0; round < maker->rounds; round++) {
        bson_t *reply;

        snprintf(text, sizeof text, maker->commands[(maker->first + round) % count], round, round);
        pthread_barrier_wait(maker->start);
        reply = ask_on(connection, text, 0);
        CHECK(reply != NULL);
        /* 48, or 5 for a cycle; not a conflict, nor the error of a statement */
        CHECK(!reply || !strstr(text, "'create'") ||
              (reply_number(reply, "code") != 166 && reply_number(reply, "code") != 112));
        if (reply)
            bson_destroy(reply);
        pthread_barrier_wait(maker->end);
    }
    close(connection);
    return NULL;
}

static int64_t count_of(int connection, const char *command, int round, const char *path)
{
    char text[400];
    bson_t *reply;
    int64_t number;

    snprintf(text, sizeof text, command, round);
    reply = ask_on(connection, text, 0);
    if (!CHECK(reply != NULL))
        return -1;
    number = reply_number(reply, path);
    bson_destroy(reply);
    return number;
}

/* Runs the makers, and calls `look` after each round. */
static void crowd(const char *const *const commands[MAKERS], const char *name,
                  void (*look)(int connection, int round))
{
    struct maker makers[MAKERS];
    pthread_barrier_t start, end;
    int rounds = (int)test_scale("TRUCE_NAME_RACES", 60), ports[2] = {-1, -1}, connection;
    pid_t children[2];
    char path[600];

    snprintf(path, sizeof path, "%s", file(name));
    for (int i = 0; i < 2; i++)
        children[i] = serve_child(path, &ports[i]);
    REQUIRE(ports[0] > 0 && ports[1] > 0);
    pthread_barrier_init(&start, NULL, MAKERS + 1);
    pthread_barrier_init(&end, NULL, MAKERS + 1);
    connection = dial_port(ports[0]);
    for (int i = 0; i < MAKERS; i++) {
        makers[i] = (struct maker){.start = &start,
                                   .end = &end,
                                   .commands = commands[i],
                                   .port = ports[i % 2],
                                   .first = i,
                                   .rounds = rounds};
        pthread_create(&makers[i].thread, NULL, make_in_turn, &makers[i]);
    }
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        look(connection, round);
    }
    for (int i = 0; i < MAKERS; i++)
        pthread_join(makers[i].thread, NULL);
    close(connection);
    for (int i = 0; i < 2; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    pthread_barrier_destroy(&start);
    pthread_barrier_destroy(&end);
}

static const char *const makes_views[] = {"{'create': 'x%d', 'viewOn': 'people', " SCHOOL, NULL};
static const char *const makes_collections[] = {
    "{'create': 'x%d', " SCHOOL,
    "{'insert': 'x%d', 'documents': [{'_id': 1}], " SCHOOL,
    "{'createIndexes': 'x%d', 'indexes': [{'key': {'a': 1}, 'name': 'a'}], " SCHOOL,
    "{'aggregate': 'people', 'pipeline': [{'$out': 'x%d'}], 'cursor': {}, " SCHOOL,
    "{'update': 'x%d', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'a': 1}}, 'upsert': true}], " SCHOOL,
    NULL};

static int views_left, collections_left;

/* The name is a collection or a view; a view shows its source. */
static void look_at_name(int connection, int round)
{
    char text[300];
    bson_t *reply;
    bson_iter_t iter, found;
    bool is_view;

    snprintf(text, sizeof text,
             "{'listCollections': 1, 'nameOnly': true, 'filter': {'name': 'x%d'}, " SCHOOL, round);
    reply = ask_on(connection, text, 0);
    REQUIRE(reply && bson_iter_init(&iter, reply));
    CHECK(bson_iter_find_descendant(&iter, "cursor.firstBatch.0.type", &found));
    is_view = BSON_ITER_HOLDS_UTF8(&found) && !strcmp(bson_iter_utf8(&found, NULL), "view");
    views_left += is_view;
    collections_left += !is_view;
    CHECK(bson_iter_init(&iter, reply) &&
          !bson_iter_find_descendant(&iter, "cursor.firstBatch.1", &found));
    bson_destroy(reply);
}

/* First, before this process has threads. */
TEST(gives_a_name_to_a_collection_or_a_view_across_two_servers)
{
    static const char *const *const commands[MAKERS] = {makes_views, makes_views, makes_collections,
                                                        makes_collections};

    crowd(commands, "race", look_at_name);
    CHECK_INT(views_left, >, 0);
    CHECK_INT(collections_left, >, 0);
}

static int circles_refused;

static void look_at_circle(int connection, int round)
{
    int64_t first = count_of(connection, "{'count': 'a%d', " SCHOOL, round, "ok"),
            second = count_of(connection, "{'count': 'b%d', " SCHOOL, round, "ok"),
            views = count_of(connection, "{'dbStats': 1, " SCHOOL, round, "views");

    CHECK_INT(first, ==, 1); /* a circle could not be read */
    CHECK_INT(second, ==, 1);
    circles_refused += views == round + 1;
}

TEST(refuses_one_of_two_concurrent_views_on_each_other)
{
    static const char *const first[] = {"{'create': 'a%d', 'viewOn': 'b%d', " SCHOOL, NULL},
                             *const second[] = {"{'create': 'b%d', 'viewOn': 'a%d', " SCHOOL, NULL};
    static const char *const *const commands[MAKERS] = {first, second, first, second};

    crowd(commands, "circle", look_at_circle);
    CHECK_INT(circles_refused, >, 0);
}

/* ---- in one process ------------------------------------------------------------------------- */

/* Checks an error of the store, not of the server. */
static void check_taken(truce_status status, const bson_error_t *error, int line)
{
    if (status != TRUCE_INVALID || error->code != CODE_COMMAND_NOT_SUPPORTED_ON_VIEW)
        test_fail(__FILE__, line, "%d, code %u: %s", status, error->code, error->message);
}

#define TAKEN(call) check_taken(call, &error, __LINE__)

TEST(refuses_a_collection_with_the_name_of_a_view)
{
    bson_t *document = test_bson("{'_id': 1}"), *index = test_bson("{'key': {'a': 1}}"),
           *update = test_bson("{'$set': {'a': 1}}");
    const truce_write_options upsert = {.upsert = true};
    truce_write_result result;
    bson_error_t error;

    begin_at(file("taken"));
    TAKEN(truce_insert(store, "@school.adults", document, NULL, &error));
    TAKEN(truce_update(store, "@school.adults", document, update, &upsert, &result, &error));
    TAKEN(truce_collection_create(store, "@school.adults", &error));
    TAKEN(truce_index_create(store, "@school.adults", index, &error));
    TAKEN(truce_collection_rename(store, "@school.groups", "@school.adults", true, &error));
    SEE("{'count': 'groups', " SCHOOL, "n", "3");
    OK("{'create': 'v', 'viewOn': 'c', '$db': 'test'}"); /* of the server's own database */
    TAKEN(truce_collection_create(store, "v", &error));
    CHECK_OK(truce_collection_create(store, "@test.v", &error), error); /* is of no database */
    CHECK_OK(truce_collection_create(store, "@school.names.x", &error), error);
    OK("{'drop': 'adults', " SCHOOL);
    CHECK_OK(truce_insert(store, "@school.adults", document, NULL, &error), error);
    end();
    bson_destroy(document);
    bson_destroy(index);
    bson_destroy(update);
}

#define TRANSACTION                                                                                \
    "'lsid': {'id': {'$binary': {'base64': 'AAECAwQFBgcICQoLDA0ODw==', 'subType': '04'}}}, "       \
    "'txnNumber': {'$numberLong': '%d'}, 'autocommit': false, '$db': '%s'}"

static void see_within(const char *command, int number, const char *database, const char *path,
                       const char *wanted, int line)
{
    char text[500];

    snprintf(text, sizeof text, command, number, database);
    see_on(-1, text, path, wanted, line);
}

TEST(repeats_a_transaction_whose_collection_became_a_view)
{
    begin_at(file("within"));
    see_within("{'create': 'late', 'startTransaction': true, " TRANSACTION, 1, "school", "ok",
               "1.0", __LINE__);
    OK("{'create': 'late', 'viewOn': 'people', " SCHOOL);
    see_within("{'commitTransaction': 1, " TRANSACTION, 1, "admin", "code", "112", __LINE__);
    see_within("{'insert': 'later', 'documents': [{'_id': 1}], 'startTransaction': "
               "true, " TRANSACTION,
               2, "school", "ok", "1.0", __LINE__);
    OK("{'create': 'later', 'viewOn': 'people', " SCHOOL);
    see_within("{'commitTransaction': 1, " TRANSACTION, 2, "admin", "code", "112", __LINE__);
    SEE("{'count': 'later', " SCHOOL, "n", "3");
    end();
}

/* ---- in the midst --------------------------------------------------------------------------- */

static bool in_the_midst;

/* Before the definition is written. */
static void make_collection(truce_store *hooked)
{
    bson_error_t error;

    if (in_the_midst)
        return;
    in_the_midst = true;
    CHECK_OK(truce_collection_create(hooked, "@school.twin", &error), error);
}

TEST(refuses_a_view_whose_name_a_collection_got_concurrently)
{
    bson_error_t error;

    begin_at(file("midst"));
    hooked_make(store, make_collection);
    hooked_ops.find = plain_ops->find; /* before the bulk alone */
    store->ops = &hooked_ops;
    REFUSED("{'create': 'twin', 'viewOn': 'people', " SCHOOL, 48);
    store->ops = plain_ops;
    CHECK(in_the_midst);
    CHECK_OK(truce_collection_drop(store, "@school.twin", &error), error);
    BATCH("{'find': 'twin', " SCHOOL, "[]");
    end();
}

static void make_view(void)
{
    const truce_store_ops *hooked = store->ops;

    store->ops = plain_ops;
    OK("{'create': 'twin', 'viewOn': 'people', " SCHOOL);
    store->ops = hooked;
}

static truce_status create_late(truce_store *to, const char *collection, bson_error_t *error)
{
    make_view();
    return plain_ops->collection_create(to, collection, error);
}

static truce_status rename_late(truce_store *to, const char *from, const char *name, bool drop,
                                bson_error_t *error)
{
    make_view();
    return plain_ops->collection_rename(to, from, name, drop, error);
}

TEST(refuses_a_collection_whose_name_a_view_got_concurrently)
{
    static truce_store_ops late;

    begin_at(file("late"));
    plain_ops = store->ops;
    late = *plain_ops;
    late.collection_create = create_late;
    late.collection_rename = rename_late;
    store->ops = &late;
    REFUSED("{'create': 'twin', " SCHOOL, 48);
    store->ops = plain_ops;
    OK("{'drop': 'twin', " SCHOOL);
    store->ops = &late;
    REFUSED("{'renameCollection': 'school.groups', 'to': 'school.twin', '$db': 'admin'}", 48);
    store->ops = plain_ops;
    SEE("{'count': 'groups', " SCHOOL, "n", "3");
    end();
}
