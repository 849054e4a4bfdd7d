#include "tests/support/mongos.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"
#include "tests/support/test.h"

#define WIRE 9 /* 4.4, the last version that needs the shard key everywhere */

struct mongos {
    /* The shard keys of the collections of `database`, borrowed from the test. While mongos_uri
     * changes the two, no client is connected. */
    const struct mongos_layout *layouts;
    /* The current database, and the URI that mongos_uri returned last. */
    char database[20], uri[100];
    /* The number of databases so far, which makes the name of the next one. */
    int databases;
    /* The upstream server, and its store. */
    truce_store *store;
    struct server *server;
    /* The router: it refuses requests, and passes the others to `server`. */
    struct fake *fake;
    /* The number of refused requests. The threads of the router count them. */
    atomic_int refused;
};

static const char *text_of(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

static bool view_of(const bson_iter_t *iter, bson_t *view)
{
    const uint8_t *bytes;
    uint32_t size;

    if (BSON_ITER_HOLDS_DOCUMENT(iter))
        bson_iter_document(iter, &size, &bytes);
    else if (BSON_ITER_HOLDS_ARRAY(iter))
        bson_iter_array(iter, &size, &bytes);
    else
        return false;
    return bson_init_static(view, bytes, size);
}

static bool document_of(const bson_t *document, const char *field, bson_t *view)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && view_of(&iter, view);
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Returns whether the condition is a value, or {$eq: a value}. */
static bool is_equality(const bson_iter_t *iter)
{
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_REGEX(iter))
        return false;
    if (!BSON_ITER_HOLDS_DOCUMENT(iter) || !bson_iter_recurse(iter, &inner) ||
        !bson_iter_next(&inner))
        return true;
    return bson_iter_key(&inner)[0] != '$' || !strcmp(bson_iter_key(&inner), "$eq");
}

/* Returns whether a query requires one value for the field, also inside $and. */
static bool says_field(const bson_t *query, const char *field)
{
    bson_iter_t iter, inner;
    bson_t part;

    bson_iter_init(&iter, query);
    while (bson_iter_next(&iter)) {
        if (!strcmp(bson_iter_key(&iter), field) && is_equality(&iter))
            return true;
        if (strcmp(bson_iter_key(&iter), "$and") != 0 || !bson_iter_recurse(&iter, &inner))
            continue;
        while (bson_iter_next(&inner)) {
            if (view_of(&inner, &part) && says_field(&part, field))
                return true;
        }
    }
    return false;
}

static bool says_key(const bson_t *query, const bson_t *key)
{
    bson_iter_t iter;

    bson_iter_init(&iter, key);
    while (bson_iter_next(&iter)) {
        if (!says_field(query, bson_iter_key(&iter)))
            return false;
    }
    return true;
}

/* ---- refusals -------------------------------------------------------------------------------- */

static bool flag(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && bson_iter_as_bool(&iter);
}

/* Returns whether a mongos would execute a statement of an update or a removal. */
static bool may_run(const bson_t *statement, const bson_t *key)
{
    bool many =
        bson_has_field(statement, "limit") ? !flag(statement, "limit") : flag(statement, "multi");
    bson_t query;

    if (!document_of(statement, "q", &query))
        return true;
    if (flag(statement, "upsert"))
        return says_key(&query, key);
    return many || says_field(&query, "_id") || says_key(&query, key);
}

/* Returns whether the index is allowed: it is not unique, or begins with the shard key's fields or
 * with _id. */
static bool may_index(const bson_t *index, const bson_t *key)
{
    bson_iter_t shard, own;
    bson_t fields;

    if (!flag(index, "unique") || !document_of(index, "key", &fields))
        return true;
    bson_iter_init(&shard, key);
    bson_iter_init(&own, &fields);
    while (bson_iter_next(&shard)) {
        if (!bson_iter_next(&own))
            return false;
        if (!strcmp(bson_iter_key(&own), "_id"))
            return true;
        if (strcmp(bson_iter_key(&own), bson_iter_key(&shard)) != 0)
            return false;
    }
    return true;
}

static bool all_may(const bson_t *command, const char *list, const bson_t *key,
                    bool (*may)(const bson_t *one, const bson_t *key))
{
    bson_t statements, one;
    bson_iter_t iter;

    if (!document_of(command, list, &statements))
        return true;
    bson_iter_init(&iter, &statements);
    while (bson_iter_next(&iter)) {
        if (view_of(&iter, &one) && !may(&one, key))
            return false;
    }
    return true;
}

static int refusal_of(const bson_t *command, const bson_t *key)
{
    bson_t query;

    if (bson_has_field(command, "findAndModify") && document_of(command, "query", &query) &&
        !says_key(&query, key))
        return 61;
    if (!all_may(command, "updates", key, may_run) || !all_may(command, "deletes", key, may_run))
        return 61;
    return all_may(command, "indexes", key, may_index) ? 0 : 67;
}

/* ---- answers -------------------------------------------------------------------------------- */

static const struct mongos_layout *layout_of(const struct mongos *mongos, const char *collection)
{
    for (const struct mongos_layout *one = mongos->layouts; one->collection; one++) {
        if (!strcmp(one->collection, collection))
            return one;
    }
    return NULL;
}

/* Replies to a find in config.collections with the shard keys of the database, or with that of one
 * collection. */
static void report_layouts(const struct mongos *mongos, const bson_t *command, bson_t *reply)
{
    bson_t filter, cursor, batch;
    const char *only = "";
    int count = 0;

    if (document_of(command, "filter", &filter))
        only = text_of(&filter, "_id");
    BSON_APPEND_DOCUMENT_BEGIN(reply, "cursor", &cursor);
    BSON_APPEND_INT64(&cursor, "id", 0);
    BSON_APPEND_UTF8(&cursor, "ns", "config.collections");
    BSON_APPEND_ARRAY_BEGIN(&cursor, "firstBatch", &batch);
    for (const struct mongos_layout *one = mongos->layouts; one->collection; one++) {
        char name[100], index[12];
        bson_t *entry, *key;

        snprintf(name, sizeof name, "%s.%s", mongos->database, one->collection);
        if (only[0] && strcmp(only, name) != 0)
            continue;
        snprintf(index, sizeof index, "%d", count++);
        key = test_bson(one->key);
        entry = BCON_NEW("_id", BCON_UTF8(name), "key", BCON_DOCUMENT(key));
        bson_append_document(&batch, index, -1, entry);
        bson_destroy(entry);
        bson_destroy(key);
    }
    bson_append_array_end(&cursor, &batch);
    bson_append_document_end(reply, &cursor);
}

/* Refuses a request that a mongos would refuse, and passes on all others. Requests on collections
 * without a layout are never refused. */
static enum fake_act be_mongos(const bson_t *command, bson_t *reply, void *arg)
{
    struct mongos *mongos = arg;
    const struct mongos_layout *layout;
    const char *collection = "";
    bson_iter_t iter;
    bson_t *key;
    int code;

    if (bson_iter_init(&iter, command) && bson_iter_next(&iter) && BSON_ITER_HOLDS_UTF8(&iter))
        collection = bson_iter_utf8(&iter, NULL);
    if (!strcmp(text_of(command, "$db"), "config") && !strcmp(collection, "collections")) {
        report_layouts(mongos, command, reply);
        return FAKE_ANSWER;
    }
    layout = layout_of(mongos, collection);
    if (!layout)
        return FAKE_UPSTREAM;
    key = test_bson(layout->key);
    code = refusal_of(command, key);
    bson_destroy(key);
    if (!code)
        return FAKE_UPSTREAM;
    atomic_fetch_add(&mongos->refused, 1);
    BSON_APPEND_DOUBLE(reply, "ok", 0);
    BSON_APPEND_INT32(reply, "code", code);
    BSON_APPEND_UTF8(reply, "errmsg",
                     code == 67
                         ? "cannot create a unique index that does not begin with the shard key"
                         : "the request must contain the shard key");
    return FAKE_ANSWER;
}

struct mongos *mongos_start(void)
{
    struct server_options options = {.database = "db", .replica_set = "rs"};
    struct mongos *mongos = bson_malloc0(sizeof *mongos);
    bson_error_t error;
    char uri[400];

    snprintf(uri, sizeof uri, "file:%s/mongos.truce", test_directory());
    if (truce_store_open(uri, NULL, &mongos->store, &error) ||
        server_start(mongos->store, &options, &mongos->server, &error))
        abort();
    mongos->fake = fake_start(FAKE_SHARDED, WIRE, be_mongos, mongos);
    fake_upstream(mongos->fake, server_port(mongos->server));
    return mongos;
}

const char *mongos_uri(struct mongos *mongos, const struct mongos_layout *layouts)
{
    char uri[60];

    mongos->layouts = layouts;
    snprintf(mongos->database, sizeof mongos->database, "db%d", ++mongos->databases);
    snprintf(uri, sizeof uri, "%s", fake_uri(mongos->fake, ""));
    uri[strlen(uri) - strlen("/db?")] = 0;
    snprintf(mongos->uri, sizeof mongos->uri, "%s/%s?retryWrites=false", uri,
             mongos->database); /* The upstream server has no retryable writes. */
    return mongos->uri;
}

int mongos_refused(const struct mongos *mongos)
{
    return atomic_load(&mongos->refused);
}

void mongos_stop(struct mongos *mongos)
{
    fake_stop(mongos->fake);
    server_stop(mongos->server, 1000);
    truce_store_close(mongos->store);
    bson_free(mongos);
}
