/* libmongoc, as the system has it: what programs do with it, against the servers of
 * tests/clients/run. */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;

static void check(const char *what, bool holds, const bson_error_t *error)
{
    if (holds) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED: %s: %s\n", what, error ? error->message : "");
}

static int64_t number(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) ? bson_iter_as_int64(&iter) : -1;
}

static bson_t *json(const char *text)
{
    bson_error_t error;
    bson_t *document = bson_new_from_json((const uint8_t *)text, -1, &error);

    if (!document) {
        printf("FAILED: %s: %s\n", text, error.message);
        exit(1);
    }
    return document;
}

static int64_t count(mongoc_collection_t *c, const char *filter)
{
    bson_t *f = json(filter);
    bson_error_t error;
    int64_t n = mongoc_collection_count_documents(c, f, NULL, NULL, NULL, &error);

    bson_destroy(f);
    return n;
}

static void crud(mongoc_collection_t *c)
{
    bson_t *one = json("{\"_id\": 1, \"n\": 1}"), *id = json("{\"_id\": 1}"),
           *by = json("{\"$inc\": {\"n\": 10}}"), *two = json("{\"_id\": 2}"), reply;
    mongoc_bulk_operation_t *bulk;
    bson_error_t error;

    (void)mongoc_collection_drop(c, NULL);
    check("insert_one", mongoc_collection_insert_one(c, one, NULL, NULL, &error), &error);
    check("a key that is taken",
          !mongoc_collection_insert_one(c, one, NULL, &reply, &error) && error.code == 11000 &&
              strstr(error.message, "E11000 duplicate key error collection: mongoc.crud"),
          &error);
    bson_destroy(&reply);
    check("update_one",
          mongoc_collection_update_one(c, id, by, NULL, &reply, &error) &&
              number(&reply, "modifiedCount") == 1,
          &error);
    bson_destroy(&reply);
    bulk = mongoc_collection_create_bulk_operation_with_opts(c, NULL);
    mongoc_bulk_operation_insert_with_opts(bulk, two, NULL, &error);
    mongoc_bulk_operation_update_many_with_opts(bulk, id, by, NULL, &error);
    mongoc_bulk_operation_remove_one_with_opts(bulk, two, NULL, &error);
    check("bulk",
          mongoc_bulk_operation_execute(bulk, &reply, &error) && number(&reply, "nInserted") == 1 &&
              number(&reply, "nModified") == 1 && number(&reply, "nRemoved") == 1,
          &error);
    mongoc_bulk_operation_destroy(bulk);
    bson_destroy(&reply);
    check("count", count(c, "{\"n\": 21}") == 1, NULL);
    bson_destroy(one);
    bson_destroy(id);
    bson_destroy(by);
    bson_destroy(two);
}

static void cursors(mongoc_collection_t *c)
{
    bson_t all = BSON_INITIALIZER, *options = json("{\"batchSize\": 7, \"sort\": {\"_id\": 1}}"),
           **documents = bson_malloc(1000 * sizeof *documents);
    mongoc_cursor_t *cursor;
    const bson_t *document;
    bson_error_t error;
    int64_t n = 0;

    (void)mongoc_collection_drop(c, NULL);
    for (int i = 0; i < 1000; i++)
        documents[i] = BCON_NEW("_id", BCON_INT32(i));
    check("insert_many",
          mongoc_collection_insert_many(c, (const bson_t **)documents, 1000, NULL, NULL, &error),
          &error);
    cursor = mongoc_collection_find_with_opts(c, &all, options, NULL);
    while (mongoc_cursor_next(cursor, &document))
        n += number(document, "_id") == n;
    check("getMore", n == 1000 && !mongoc_cursor_error(cursor, &error), &error);
    mongoc_cursor_destroy(cursor);
    for (int i = 0; i < 1000; i++)
        bson_destroy(documents[i]);
    bson_free(documents);
    bson_destroy(options);
}

/* A part of an index, in its order. */
static void parts(mongoc_collection_t *c)
{
    bson_t all = BSON_INITIALIZER,
           *options = json("{\"hint\": {\"_id\": 1}, \"min\": {\"_id\": 990}, \"max\": {\"_id\": "
                           "995}, \"returnKey\": true}");
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &all, options, NULL);
    const bson_t *document;
    bson_error_t error;
    int64_t next = 990;

    while (mongoc_cursor_next(cursor, &document))
        next += number(document, "_id") == next && bson_count_keys(document) == 1;
    check("min and max", next == 995 && !mongoc_cursor_error(cursor, &error), &error);
    mongoc_cursor_destroy(cursor);
    bson_destroy(options);
}

static bool move(mongoc_client_session_t *session, void *arg, bson_t **reply, bson_error_t *error)
{
    mongoc_collection_t *c = arg;
    bson_t options = BSON_INITIALIZER, *id = json("{\"_id\": 5}"),
           *by = json("{\"$set\": {\"moved\": true}}");
    bool done = mongoc_client_session_append(session, &options, error) &&
                mongoc_collection_update_one(c, id, by, &options, NULL, error) &&
                count(c, "{\"moved\": true}") == 0;

    *reply = bson_new();
    bson_destroy(&options);
    bson_destroy(id);
    bson_destroy(by);
    return done;
}

static void transactions(mongoc_client_t *client, mongoc_collection_t *c)
{
    bson_error_t error;
    mongoc_client_session_t *session = mongoc_client_start_session(client, NULL, &error);

    check("with_transaction",
          session && mongoc_client_session_with_transaction(session, move, NULL, c, NULL, &error),
          &error);
    check("committed", count(c, "{\"moved\": true}") == 1, NULL);
    mongoc_client_session_destroy(session);
}

static void files(mongoc_database_t *db)
{
    mongoc_gridfs_bucket_t *bucket = mongoc_gridfs_bucket_new(db, NULL, NULL, NULL);
    mongoc_stream_t *stream;
    bson_value_t id;
    bson_error_t error;
    static char text[600000], back[sizeof text];

    memset(text, 't', sizeof text);
    stream = mongoc_gridfs_bucket_open_upload_stream(bucket, "a.bin", NULL, &id, &error);
    check("upload",
          stream && mongoc_stream_write(stream, text, sizeof text, 0) == sizeof text &&
              !mongoc_stream_close(stream),
          &error);
    mongoc_stream_destroy(stream);
    stream = mongoc_gridfs_bucket_open_download_stream(bucket, &id, &error);
    check("download",
          stream && mongoc_stream_read(stream, back, sizeof back, sizeof back, 0) == sizeof back &&
              !memcmp(text, back, sizeof back),
          &error);
    mongoc_stream_destroy(stream);
    check("delete a file", mongoc_gridfs_bucket_delete_by_id(bucket, &id, &error), &error);
    bson_value_destroy(&id);
    mongoc_gridfs_bucket_destroy(bucket);
}

/* By whatever this libmongoc was built with. */
static void compressed(void)
{
    static const char *const names[] = {"zlib", "snappy", "zstd"};

    for (int i = 0; i < 3; i++) {
        mongoc_uri_t *parsed = mongoc_uri_new(getenv("TRUCE_TEST_CLIENT_URI"));
        mongoc_collection_t *c;
        mongoc_client_t *client;

        if (!mongoc_uri_set_compressors(parsed, names[i]) ||
            !bson_has_field(mongoc_uri_get_compressors(parsed), names[i])) {
            mongoc_uri_destroy(parsed);
            continue;
        }
        client = mongoc_client_new_from_uri(parsed);
        c = mongoc_client_get_collection(client, "mongoc", "compressed");
        cursors(c);
        mongoc_collection_destroy(c);
        mongoc_client_destroy(client);
        mongoc_uri_destroy(parsed);
    }
}

static void access_by_tls(void)
{
    mongoc_client_t *client = mongoc_client_new(getenv("TRUCE_TEST_CLIENT_AUTH_URI"));
    bson_t *ping = json("{\"ping\": 1}");
    bson_error_t error;

    check("logged in by TLS",
          client && mongoc_client_command_simple(client, "admin", ping, NULL, NULL, &error),
          &error);
    bson_destroy(ping);
    mongoc_client_destroy(client);
}

int main(void)
{
    mongoc_client_t *client;
    mongoc_database_t *db;
    mongoc_collection_t *crud_of, *cursors_of;

    mongoc_init();
    client = mongoc_client_new(getenv("TRUCE_TEST_CLIENT_URI"));
    if (!client)
        return 1;
    db = mongoc_client_get_database(client, "mongoc");
    crud_of = mongoc_client_get_collection(client, "mongoc", "crud");
    cursors_of = mongoc_client_get_collection(client, "mongoc", "cursors");
    crud(crud_of);
    cursors(cursors_of);
    parts(cursors_of);
    transactions(client, cursors_of);
    files(db);
    mongoc_collection_destroy(crud_of);
    mongoc_collection_destroy(cursors_of);
    mongoc_database_destroy(db);
    mongoc_client_destroy(client);
    compressed();
    access_by_tls();
    printf("libmongoc %s: %d passed, %d failed\n", mongoc_get_version(), passed, failed);
    mongoc_cleanup();
    return failed ? 1 : 0;
}
