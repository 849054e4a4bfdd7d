#include "tests/support/copy_stores.h"

#include <stdlib.h>

#include "base/random.h"
#include "bson/value.h"
#include "tests/support/random_bson.h"

truce_store *copy_store(const char *uri)
{
    truce_store_options options = {.relaxed = true};
    truce_store *store;
    bson_error_t error;

    if (truce_store_open(uri, &options, &store, &error)) {
        fprintf(stderr, "%s: %s\n", uri, error.message);
        abort();
    }
    return store;
}

truce_store *copy_file(const char *directory, const char *name)
{
    char uri[400];

    snprintf(uri, sizeof uri, "file:%s/%s", directory, name);
    return copy_store(uri);
}

void copy_put(truce_store *store, const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

void copy_index(truce_store *store, const char *collection, const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_index_create(store, collection, index, &error), error);
    bson_destroy(index);
}

void copy_change(truce_store *store, const char *collection, const char *filter, const char *update)
{
    bson_t *which = test_bson(filter), *what = test_bson(update);
    truce_write_result result;
    bson_error_t error;

    CHECK_OK(truce_update(store, collection, which, what, NULL, &result, &error), error);
    CHECK_INT(result.matched, ==, 1);
    truce_write_result_release(&result);
    bson_destroy(which);
    bson_destroy(what);
}

int64_t copy_count(truce_store *store, const char *collection, const char *filter)
{
    bson_t *which = test_bson(filter);
    bson_error_t error;
    int64_t count = -1;

    CHECK_OK(truce_count(store, collection, which, NULL, &count, &error), error);
    bson_destroy(which);
    return count;
}

/* ---- filling --------------------------------------------------------------------------------- */

static bool can_be_id(struct value id)
{
    if (id.type == BSON_TYPE_ARRAY || id.type == BSON_TYPE_REGEX || id.type == BSON_TYPE_UNDEFINED)
        return false;
    return true;
}

/* Inserts a random document. If another one has the same _id, the insert fails, which is
 * ignored. */
static void put_random(truce_store *store, struct random *random)
{
    bson_t *fields = random_document(random, 3), document = BSON_INITIALIZER;
    truce_status ignored;

    random_append(random, &document, "_id", 2);
    if (can_be_id(truce__value_field(truce__value_document(&document), "_id", 3))) {
        bson_concat(&document, fields);
        ignored = truce_insert(store, "things", &document, NULL, NULL);
        (void)ignored;
    }
    bson_destroy(&document);
    bson_destroy(fields);
}

void copy_fill_random(truce_store *store, uint64_t seed, int count)
{
    struct random random;

    truce__random_seed(&random, seed);
    for (int i = 0; i < count; i++)
        put_random(store, &random);
}

static void put_types(truce_store *store)
{
    static const char *const values[] = {
        "{'$minKey': 1}",
        "{'$maxKey': 1}",
        "null",
        "true",
        "{'$date': {'$numberLong': '-5'}}",
        "{'$timestamp': {'t': 1, 'i': 2}}",
        "{'$oid': '0123456789abcdef01234567'}",
        "{'$binary': {'base64': 'AAEC', 'subType': '00'}}",
        "'text'",
        "7",
        "{'$numberLong': '8'}",
        "1.0",
        "{'$numberDouble': 'NaN'}",
        "{'$numberDouble': '-0.0'}",
        "{'$numberDecimal': '1.10'}",
        "{'b': 1, 'a': {'$numberLong': '1'}}",
    };
    char json[300];

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(json, sizeof json,
                 "{'_id': %s, 'z': %s, 'a': [%s, {'$regularExpression': "
                 "{'pattern': 'a', 'options': 'i'}}]}",
                 values[i], values[i], values[i]);
        copy_put(store, "things", json);
    }
}

void copy_fill_old(truce_store *store)
{
    copy_put(store, "old", "{'_id': 1, 'v': {'$undefined': true}}");
    copy_put(store, "old", "{'_id': 2, 'v': {'$symbol': 'x'}}");
    copy_put(store, "old", "{'_id': 3, 'v': {'$code': 'f', '$scope': {'a': 1}}}");
    copy_put(store, "old",
             "{'_id': 4, 'v': {'$dbPointer': {'$ref': 'a.b', '$id': {'$oid': "
             "'0123456789abcdef01234567'}}}}");
    copy_put(store, "old", "{'_id': 5, 'v': {'$binary': {'base64': 'AAEC', 'subType': '05'}}}");
}

void copy_fill(truce_store *store, int count)
{
    bson_error_t error;
    char json[200];

    put_types(store);
    for (int i = 0; i < count; i++) {
        snprintf(json, sizeof json,
                 "{'_id': %d, 'mail': 'm%d', 'at': {'$date': 0}, 'tags': [%d, 7]}", i, i, i % 5);
        copy_put(store, "people", json);
    }
    copy_put(store, "zero", "{'_id': 1, 'a': 1, 'zero': 1, 'b': 2}");
    copy_change(
        store, "zero", "{'_id': 1}",
        "{'$set': {'zero': {'$timestamp': {'t': 0, 'i': 0}}, 'z.z': {'$timestamp': {'t': 0, "
        "'i': 0}}}}");
    copy_index(store, "people", "{'key': {'mail': 1}, 'name': 'mail', 'unique': true}");
    copy_index(store, "people", "{'key': {'tags': 1, 'mail': -1}}");
    copy_index(store, "empty", "{'key': {'a': 1}}");
    CHECK_OK(truce_collection_create(store, "bare", &error), error);
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct list {
    bson_t **documents;
    size_t count;
};

static int by_id(const void *a, const void *b)
{
    const bson_t *x = *(bson_t *const *)a, *y = *(bson_t *const *)b;

    return truce__value_compare(truce__value_field(truce__value_document(x), "_id", 3),
                                truce__value_field(truce__value_document(y), "_id", 3));
}

/* Reads all documents of a collection, sorted by _id. The caller frees the list. */
static struct list read_all(truce_store *store, const char *collection)
{
    struct list list = {0};
    truce_cursor *cursor;
    const bson_t *document;
    bson_error_t error;

    if (!CHECK_OK(truce_find(store, collection, NULL, NULL, &cursor, &error), error))
        return list;
    while (CHECK_OK(truce_cursor_next(cursor, &document, &error), error) && document) {
        list.documents = realloc(list.documents, (list.count + 1) * sizeof *list.documents);
        if (!list.documents)
            abort();
        list.documents[list.count++] = bson_copy(document);
    }
    truce_cursor_close(cursor);
    if (list.count)
        qsort(list.documents, list.count, sizeof *list.documents, by_id);
    return list;
}

static void release(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        bson_destroy(list->documents[i]);
    free(list->documents);
}

static bool same_collection(truce_store *from, truce_store *to, const char *collection, int line)
{
    struct list a = read_all(from, collection), b = read_all(to, collection);
    bool same = a.count == b.count;

    if (!same)
        test_fail(__FILE__, line, "%s has %zu documents in one store and %zu in the other",
                  collection, a.count, b.count);
    for (size_t i = 0; same && i < a.count; i++)
        same = test_bson_equal(a.documents[i], b.documents[i], collection, line);
    release(&a);
    release(&b);
    return same;
}

static bool each_collection(truce_store *names, truce_store *from, truce_store *to, int line)
{
    bson_t collections;
    bson_error_t error;
    bson_iter_t iter, name;
    bool same = CHECK_OK(truce_collection_list(names, NULL, &collections, &error), error);

    for (bson_iter_init(&iter, &collections); same && bson_iter_next(&iter);) {
        if (bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name") &&
            strcmp(bson_iter_utf8(&name, NULL), "truce_copies") != 0)
            same = same_collection(from, to, bson_iter_utf8(&name, NULL), line);
    }
    bson_destroy(&collections);
    return same;
}

bool copy_same(truce_store *from, truce_store *to, int line)
{
    return each_collection(from, from, to, line) && each_collection(to, from, to, line);
}
