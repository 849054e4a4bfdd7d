#include "bench/mongo.h"

#include <string.h>

#include "bench/harness.h"

#define COLLECTIONS_MAX 8

struct mongo {
    mongoc_client_t *client;
    char *database;
    char *names[COLLECTIONS_MAX];
    mongoc_collection_t *collections[COLLECTIONS_MAX];
    mongoc_client_session_t *session;
    /* The options that name the session, or empty outside of a transaction. */
    bson_t in_session;
    bool lost; /* The transaction has failed and must begin again. */
};

static _Noreturn void mongo_fail(const char *what, const bson_error_t *error)
{
    bench_fail(__FILE__, __LINE__, what, error->message);
}

/* Checks the result of a call. A conflict within a transaction is accepted; any other error is a
 * failure. */
static void mongo_must(struct mongo *mongo, bool done, const char *what, const bson_t *reply,
                       const bson_error_t *error)
{
    if (done)
        return;
    if (!bson_empty(&mongo->in_session) && reply &&
        mongoc_error_has_label(reply, "TransientTransactionError"))
        mongo->lost = true;
    else
        mongo_fail(what, error);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void be_silent(mongoc_log_level_t level, const char *domain, const char *message, void *arg)
{
    (void)level;
    (void)domain;
    (void)message;
    (void)arg;
}

char *mongo_address(const char *address, const char *database)
{
    const char *hosts = strstr(address, "://"), *rest;
    size_t kept;

    BENCH_CHECK(hosts);
    kept = strcspn(hosts + 3, "/?");
    rest = strchr(hosts + 3 + kept, '?');
    return bson_strdup_printf("%.*s/%s%s", (int)(hosts + 3 + kept - address), address, database,
                              rest ? rest : "");
}

struct mongo *mongo_connect(const char *address, const char *database)
{
    struct mongo *mongo = bson_malloc0(sizeof *mongo);
    mongoc_write_concern_t *write = mongoc_write_concern_new();
    mongoc_read_concern_t *read = mongoc_read_concern_new();

    mongoc_init();
    mongoc_log_set_handler(be_silent, NULL);
    bson_init(&mongo->in_session);
    mongo->database = bson_strdup(database);
    mongo->client = mongoc_client_new(address);
    BENCH_CHECK(mongo->client);
    mongoc_client_set_error_api(mongo->client, MONGOC_ERROR_API_VERSION_2);
    mongoc_write_concern_set_wmajority(write, 0);
    mongoc_write_concern_set_journal(write, true);
    mongoc_client_set_write_concern(mongo->client, write);
    mongoc_read_concern_set_level(read, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_client_set_read_concern(mongo->client, read);
    mongoc_write_concern_destroy(write);
    mongoc_read_concern_destroy(read);
    return mongo;
}

void mongo_close(struct mongo *mongo)
{
    if (mongo->session)
        mongoc_client_session_destroy(mongo->session);
    for (int i = 0; i < COLLECTIONS_MAX && mongo->names[i]; i++) {
        mongoc_collection_destroy(mongo->collections[i]);
        bson_free(mongo->names[i]);
    }
    mongoc_client_destroy(mongo->client);
    bson_destroy(&mongo->in_session);
    bson_free(mongo->database);
    bson_free(mongo);
}

void mongo_drop(struct mongo *mongo)
{
    mongoc_database_t *database = mongoc_client_get_database(mongo->client, mongo->database);
    bson_error_t error;

    if (!mongoc_database_drop(database, &error))
        mongo_fail("dropDatabase", &error);
    mongoc_database_destroy(database);
}

static mongoc_collection_t *in(struct mongo *mongo, const char *collection)
{
    int i = 0;

    while (i < COLLECTIONS_MAX && mongo->names[i] && strcmp(mongo->names[i], collection) != 0)
        i++;
    BENCH_CHECK(i < COLLECTIONS_MAX);
    if (!mongo->names[i]) {
        mongo->names[i] = bson_strdup(collection);
        mongo->collections[i] =
            mongoc_client_get_collection(mongo->client, mongo->database, collection);
    }
    return mongo->collections[i];
}

/* ---- reading --------------------------------------------------------------------------------- */

mongoc_cursor_t *mongo_find(struct mongo *mongo, const char *collection, const bson_t *filter)
{
    return mongoc_collection_find_with_opts(in(mongo, collection), filter, &mongo->in_session,
                                            NULL);
}

mongoc_cursor_t *mongo_aggregate(struct mongo *mongo, const char *collection,
                                 const bson_t *pipeline)
{
    return mongoc_collection_aggregate(in(mongo, collection), MONGOC_QUERY_NONE, pipeline, NULL,
                                       NULL);
}

const bson_t *mongo_next(mongoc_cursor_t *cursor)
{
    const bson_t *document;
    bson_error_t error;

    if (mongoc_cursor_next(cursor, &document))
        return document;
    if (mongoc_cursor_error(cursor, &error))
        mongo_fail("cursor", &error);
    return NULL;
}

bool mongo_find_one(struct mongo *mongo, const char *collection, const bson_t *filter,
                    bson_t *document)
{
    mongoc_cursor_t *cursor;
    const bson_t *found, *reply;
    bson_t options;
    bson_error_t error;
    bool any;

    bson_copy_to(&mongo->in_session, &options);
    BSON_APPEND_INT64(&options, "limit", 1);
    BSON_APPEND_BOOL(&options, "singleBatch", true);
    cursor = mongoc_collection_find_with_opts(in(mongo, collection), filter, &options, NULL);
    any = mongoc_cursor_next(cursor, &found);
    if (any)
        bson_copy_to(found, document);
    else
        bson_init(document);
    mongo_must(mongo, !mongoc_cursor_error_document(cursor, &error, &reply), "find", reply, &error);
    mongoc_cursor_destroy(cursor);
    bson_destroy(&options);
    return any;
}

int64_t mongo_count(struct mongo *mongo, const char *collection)
{
    bson_t all = BSON_INITIALIZER;
    bson_error_t error;
    int64_t count =
        mongoc_collection_count_documents(in(mongo, collection), &all, NULL, NULL, NULL, &error);

    if (count < 0)
        mongo_fail("count", &error);
    bson_destroy(&all);
    return count;
}

/* ---- writing --------------------------------------------------------------------------------- */

void mongo_insert(struct mongo *mongo, const char *collection, const bson_t *document)
{
    bson_error_t error;

    if (!mongoc_collection_insert_one(in(mongo, collection), document, NULL, NULL, &error))
        mongo_fail("insert", &error);
}

void mongo_insert_many(struct mongo *mongo, const char *collection, const bson_t *const *documents,
                       size_t count)
{
    bson_error_t error;

    if (!mongoc_collection_insert_many(in(mongo, collection), (const bson_t **)documents, count,
                                       NULL, NULL, &error))
        mongo_fail("insert", &error);
}

static int64_t matched(const bson_t *reply)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, reply, "matchedCount") ? bson_iter_as_int64(&iter) : 0;
}

int64_t mongo_update(struct mongo *mongo, const char *collection, const bson_t *filter,
                     const bson_t *update, const bson_t *options)
{
    bson_error_t error;
    bson_t reply;
    int64_t count;

    mongo_must(mongo,
               mongoc_collection_update_one(in(mongo, collection), filter, update,
                                            options ? options : &mongo->in_session, &reply, &error),
               "update", &reply, &error);
    count = matched(&reply);
    bson_destroy(&reply);
    return count;
}

int64_t mongo_replace(struct mongo *mongo, const char *collection, const bson_t *filter,
                      const bson_t *document)
{
    bson_error_t error;
    bson_t reply;
    int64_t count;

    mongo_must(mongo,
               mongoc_collection_replace_one(in(mongo, collection), filter, document, NULL, &reply,
                                             &error),
               "replace", &reply, &error);
    count = matched(&reply);
    bson_destroy(&reply);
    return count;
}

void mongo_update_many(struct mongo *mongo, const char *collection, const bson_t *updates)
{
    bson_t command = BSON_INITIALIZER, concern, reply;
    bson_error_t error;
    bson_iter_t iter;

    BSON_APPEND_UTF8(&command, "update", collection);
    BSON_APPEND_ARRAY(&command, "updates", updates);
    BSON_APPEND_BOOL(&command, "ordered", false);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "writeConcern", &concern);
    BSON_APPEND_UTF8(&concern, "w", "majority");
    BSON_APPEND_BOOL(&concern, "j", true);
    bson_append_document_end(&command, &concern);
    if (!mongoc_client_command_simple(mongo->client, mongo->database, &command, NULL, &reply,
                                      &error))
        mongo_fail("update", &error);
    BENCH_CHECK(!bson_iter_init_find(&iter, &reply, "writeErrors"));
    bson_destroy(&reply);
    bson_destroy(&command);
}

void mongo_command(struct mongo *mongo, const bson_t *command, bson_t *reply)
{
    bson_error_t error;

    if (!mongoc_client_command_simple(mongo->client, mongo->database, command, NULL, reply, &error))
        mongo_fail("command", &error);
}

void mongo_remove_any(struct mongo *mongo)
{
    mongoc_database_t *database = mongoc_client_get_database(mongo->client, mongo->database);
    bson_error_t error;
    char **names = mongoc_database_get_collection_names_with_opts(database, NULL, &error);
    bson_t any = BSON_INITIALIZER;

    if (!names)
        mongo_fail("listCollections", &error);
    for (int i = 0; names[i]; i++) {
        if (!mongoc_collection_delete_one(in(mongo, names[i]), &any, NULL, NULL, &error))
            mongo_fail("delete", &error);
    }
    bson_strfreev(names);
    mongoc_database_destroy(database);
}

void mongo_index(struct mongo *mongo, const char *collection, const char *field)
{
    bson_t *command = BCON_NEW("createIndexes", BCON_UTF8(collection), "indexes", "[", "{", "key",
                               "{", field, BCON_INT32(1), "}", "name", BCON_UTF8(field), "}", "]");
    bson_error_t error;

    if (!mongoc_client_command_simple(mongo->client, mongo->database, command, NULL, NULL, &error))
        mongo_fail("createIndexes", &error);
    bson_destroy(command);
}

/* ---- transactions ---------------------------------------------------------------------------- */

bool mongo_is_lost(const struct mongo *mongo)
{
    return mongo->lost;
}

static void start_session(struct mongo *mongo)
{
    bson_error_t error;

    mongo->session = mongoc_client_start_session(mongo->client, NULL, &error);
    if (!mongo->session)
        side_cannot("this server has no transactions");
}

/* Runs the transaction once. Returns false after a conflict. */
static bool try_transaction(struct mongo *mongo, void (*change)(struct mongo *mongo, void *arg),
                            void *arg)
{
    bson_error_t error;
    bson_t reply;
    bool done;

    if (!mongoc_client_session_start_transaction(mongo->session, NULL, &error))
        side_cannot("this server has no transactions");
    bson_reinit(&mongo->in_session);
    BENCH_CHECK(mongoc_client_session_append(mongo->session, &mongo->in_session, &error));
    mongo->lost = false;
    change(mongo, arg);
    bson_reinit(&mongo->in_session);
    if (mongo->lost) {
        (void)mongoc_client_session_abort_transaction(mongo->session, &error);
        return false;
    }
    done = mongoc_client_session_commit_transaction(mongo->session, &reply, &error);
    if (!done && !mongoc_error_has_label(&reply, "TransientTransactionError"))
        mongo_fail("commitTransaction", &error);
    bson_destroy(&reply);
    return done;
}

void mongo_transact(struct mongo *mongo, void (*change)(struct mongo *mongo, void *arg), void *arg)
{
    if (!mongo->session)
        start_session(mongo);
    while (!try_transaction(mongo, change, arg))
        ;
}
