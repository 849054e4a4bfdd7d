/* Random operations: this file makes them, run_operations.c runs them. */
#include "tests/support/random_operations.h"

#include <stdio.h>
#include <string.h>

#define BELOW(n)   truce__random_below(random, n)
#define PICK(pool) ((pool)[BELOW(sizeof(pool) / sizeof((pool)[0]))])

/* The collection "s" has no arrays, so that some indexes have one key for each document. */
static const char *const collections[] = {"x", "x", "x", "y", "s"};
static bool without_arrays;
static const char *const fields[] = {"a", "b", "c", "d"};
static const char *const paths[] = {"a",   "b",   "c",   "d",     "a.b", "a.c", "b.a",
                                    "b.c", "c.a", "a.0", "a.b.c", "_id", "d"};

/* The macros of libbson evaluate their arguments twice; these functions evaluate them once. */
static void put_text(bson_t *document, const char *key, const char *text)
{
    bson_append_utf8(document, key, -1, text, -1);
}

static void put_number(bson_t *document, const char *key, int32_t number)
{
    bson_append_int32(document, key, -1, number);
}

static void begin(bson_t *document, const char *key, bson_t *child)
{
    bson_append_document_begin(document, key, -1, child);
}

static void pick_collection(struct random *random, bson_t *operation)
{
    const char *collection = PICK(collections);

    put_text(operation, "collection", collection);
    without_arrays = !strcmp(collection, "s");
}

/* ---- values --------------------------------------------------------------------------------- */

/* Returns a scalar from a small pool, so that equal values occur, also across types. */
static void append_scalar(struct random *random, bson_t *document, const char *key)
{
    static const char *const texts[] = {"", "a", "ab", "b", "B"};
    static const double doubles[] = {0.0, -0.0, 1.0, 1.5, 2.0, -1.0};
    bson_decimal128_t decimal;
    bson_oid_t oid;

    switch (BELOW(18)) {
    case 0:
        BSON_APPEND_NULL(document, key);
        break;
    case 1:
    case 2:
        put_text(document, key, PICK(texts));
        break;
    case 3:
    case 4:
        BSON_APPEND_DOUBLE(document, key, PICK(doubles));
        break;
    case 5:
        BSON_APPEND_DOUBLE(document, key, BELOW(2) ? __builtin_nan("") : __builtin_inf());
        break;
    case 6:
        BSON_APPEND_INT64(document, key, (int64_t)BELOW(4));
        break;
    case 7:
        bson_decimal128_from_string(BELOW(2) ? "1.0" : "2.5", &decimal);
        BSON_APPEND_DECIMAL128(document, key, &decimal);
        break;
    case 8:
        BSON_APPEND_BOOL(document, key, BELOW(2));
        break;
    case 9:
        BSON_APPEND_DATE_TIME(document, key, (int64_t)BELOW(3) * 1000);
        break;
    case 10:
        bson_oid_init_from_string(&oid, BELOW(2) ? "000000000000000000000001"
                                                 : "000000000000000000000002");
        BSON_APPEND_OID(document, key, &oid);
        break;
    case 11:
        if (BELOW(2))
            BSON_APPEND_MINKEY(document, key);
        else
            BSON_APPEND_MAXKEY(document, key);
        break;
    default:
        BSON_APPEND_INT32(document, key, (int32_t)BELOW(6));
    }
}

static void append_value(struct random *random, bson_t *document, const char *key, int depth);

static void append_array(struct random *random, bson_t *document, const char *key, int depth)
{
    int count = (int)BELOW(4);
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(document, key, &array);
    for (int i = 0; i < count; i++) {
        char index[24];

        snprintf(index, sizeof(index), "%d", i);
        append_value(random, &array, index, depth - 1);
    }
    bson_append_array_end(document, &array);
}

static void append_fields(struct random *random, bson_t *document, int depth)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (BELOW(5) < 3)
            append_value(random, document, fields[i], depth);
}

static void append_value(struct random *random, bson_t *document, const char *key, int depth)
{
    uint64_t kind = BELOW(10);
    bson_t child;

    if (depth > 0 && kind < 2 && !without_arrays) {
        append_array(random, document, key, depth);
    } else if (depth > 0 && kind < 4) {
        BSON_APPEND_DOCUMENT_BEGIN(document, key, &child);
        append_fields(random, &child, depth - 1);
        bson_append_document_end(document, &child);
    } else {
        append_scalar(random, document, key);
    }
}

static void append_id(struct random *random, bson_t *document)
{
    if (BELOW(12) == 0)
        append_scalar(random, document, "_id");
    else
        BSON_APPEND_INT32(document, "_id", (int32_t)BELOW(60));
}

/* ---- filters -------------------------------------------------------------------------------- */

static void append_list(struct random *random, bson_t *document, const char *key, int depth)
{
    int count = 1 + (int)BELOW(3);
    bson_t list;

    BSON_APPEND_ARRAY_BEGIN(document, key, &list);
    for (int i = 0; i < count; i++) {
        char index[24];

        snprintf(index, sizeof(index), "%d", i);
        append_value(random, &list, index, depth);
    }
    bson_append_array_end(document, &list);
}

static void append_filter(struct random *random, bson_t *filter, int depth);

/* Appends the conditions on one path: {$gt: value, $lte: value}, {$in: [...]}, and others. */
static void append_condition(struct random *random, bson_t *condition, int depth)
{
    static const char *const comparisons[] = {"$gt", "$gte", "$lt", "$lte", "$eq"};
    static const char *const types[] = {"int", "number", "string", "array", "object", "null"};
    bson_t child;

    switch (BELOW(14)) {
    case 0:
        append_list(random, condition, "$in", 1);
        break;
    case 1:
        append_list(random, condition, "$nin", 0);
        break;
    case 2:
        append_value(random, condition, "$ne", 1);
        break;
    case 3:
        BSON_APPEND_BOOL(condition, "$exists", BELOW(3) > 0);
        break;
    case 4:
        put_text(condition, "$type", PICK(types));
        break;
    case 5:
        BSON_APPEND_INT32(condition, "$size", (int32_t)BELOW(3));
        break;
    case 6:
        append_list(random, condition, "$all", 0);
        break;
    case 7:
        put_text(condition, "$regex", BELOW(2) ? "^a" : "b");
        break;
    case 8:
        BSON_APPEND_DOCUMENT_BEGIN(condition, "$elemMatch", &child);
        if (depth > 0 && BELOW(2))
            append_filter(random, &child, 0);
        else
            append_condition(random, &child, 0);
        bson_append_document_end(condition, &child);
        break;
    case 9:
        BSON_APPEND_DOCUMENT_BEGIN(condition, "$not", &child);
        append_value(random, &child, PICK(comparisons), 0);
        bson_append_document_end(condition, &child);
        break;
    case 10:
        append_scalar(random, condition, "$gte");
        append_scalar(random, condition, "$lt");
        break;
    default:
        append_value(random, condition, PICK(comparisons), 1);
    }
}

static void append_branches(struct random *random, bson_t *filter, const char *name, int depth)
{
    int count = 1 + (int)BELOW(3);
    bson_t list, branch;

    BSON_APPEND_ARRAY_BEGIN(filter, name, &list);
    for (int i = 0; i < count; i++) {
        char index[24];

        snprintf(index, sizeof(index), "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&list, index, &branch);
        append_filter(random, &branch, depth - 1);
        bson_append_document_end(&list, &branch);
    }
    bson_append_array_end(filter, &list);
}

/* Appends up to three conditions, and sometimes a combination of filters. Each path occurs once. */
static void append_filter(struct random *random, bson_t *filter, int depth)
{
    int count = (int)BELOW(4) ? 1 + (int)BELOW(3) : 0;
    bson_t condition;

    for (int i = 0; i < count; i++) {
        const char *path = PICK(paths);

        if (bson_has_field(filter, path))
            continue;
        if (BELOW(3) == 0) {
            append_value(random, filter, path, 1);
            continue;
        }
        BSON_APPEND_DOCUMENT_BEGIN(filter, path, &condition);
        append_condition(random, &condition, depth);
        bson_append_document_end(filter, &condition);
    }
    if (depth > 0 && BELOW(4) == 0)
        append_branches(random, filter, BELOW(3) ? "$or" : BELOW(2) ? "$and" : "$nor", depth);
}

static void add_filter(struct random *random, bson_t *operation)
{
    bson_t filter;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "filter", &filter);
    append_filter(random, &filter, 2);
    bson_append_document_end(operation, &filter);
}

/* Adds a filter that selects at most one document. */
static void add_id_filter(struct random *random, bson_t *operation)
{
    bson_t filter;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "filter", &filter);
    append_id(random, &filter);
    if (BELOW(4) == 0) {
        bson_t condition;

        begin(&filter, PICK(fields), &condition);
        append_condition(random, &condition, 1);
        bson_append_document_end(&filter, &condition);
    }
    bson_append_document_end(operation, &filter);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void make_insert(struct random *random, bson_t *operation)
{
    bson_t document;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "document", &document);
    append_id(random, &document);
    append_fields(random, &document, 2);
    bson_append_document_end(operation, &document);
}

/* Appends a replacement or one operator. For the collection without arrays, only operators that
 * make none. */
static void append_update(struct random *random, bson_t *operation)
{
    static const char *const targets[] = {"a", "b", "c", "d", "a.b", "b.c", "a.1"};
    const char *path = PICK(targets);
    bson_t update, inner, each;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "update", &update);
    switch (without_arrays ? 7 + BELOW(5) : BELOW(12)) {
    case 0:
        /* A replacement. */
        append_fields(random, &update, 2);
        break;
    case 1:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$unset", &inner);
        BSON_APPEND_INT32(&inner, path, 1);
        bson_append_document_end(&update, &inner);
        break;
    case 2:
    case 3:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inner);
        BSON_APPEND_INT32(&inner, path, (int32_t)BELOW(5) - 2);
        bson_append_document_end(&update, &inner);
        break;
    case 4:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$push", &inner);
        append_value(random, &inner, path, 1);
        bson_append_document_end(&update, &inner);
        break;
    case 5:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$addToSet", &inner);
        BSON_APPEND_DOCUMENT_BEGIN(&inner, path, &each);
        append_list(random, &each, "$each", 1);
        bson_append_document_end(&inner, &each);
        bson_append_document_end(&update, &inner);
        break;
    case 6:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$pull", &inner);
        append_value(random, &inner, path, 1);
        bson_append_document_end(&update, &inner);
        break;
    case 7:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$rename", &inner);
        BSON_APPEND_UTF8(&inner, path, "d2");
        bson_append_document_end(&update, &inner);
        break;
    case 8:
        begin(&update, BELOW(2) ? "$min" : "$max", &inner);
        append_scalar(random, &inner, path);
        bson_append_document_end(&update, &inner);
        break;
    default:
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &inner);
        append_value(random, &inner, path, 2);
        bson_append_document_end(&update, &inner);
    }
    bson_append_document_end(operation, &update);
}

static void make_update(struct random *random, bson_t *operation)
{
    bool multi = BELOW(6) == 0;

    if (multi)
        add_filter(random, operation);
    else
        add_id_filter(random, operation);
    append_update(random, operation);
    BSON_APPEND_BOOL(operation, "multi", multi);
    BSON_APPEND_BOOL(operation, "upsert", !multi && BELOW(3) == 0);
}

static void make_remove(struct random *random, bson_t *operation)
{
    bool multi = BELOW(8) == 0;

    if (multi)
        add_filter(random, operation);
    else
        add_id_filter(random, operation);
    BSON_APPEND_BOOL(operation, "multi", multi);
}

static void add_sort(struct random *random, bson_t *operation)
{
    static const char *const orders[] = {"a", "b", "c", "a.b", "b.c", "d"};
    int count = (int)BELOW(3), direction = BELOW(2) ? 1 : -1;
    bool mixed = BELOW(2);
    bson_t sort;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "sort", &sort);
    for (int i = 0; i < count; i++) {
        const char *path = PICK(orders);

        if (!bson_has_field(&sort, path))
            BSON_APPEND_INT32(&sort, path, mixed && BELOW(2) ? -direction : direction);
    }
    BSON_APPEND_INT32(&sort, "_id", mixed && BELOW(2) ? -direction : direction);
    bson_append_document_end(operation, &sort);
}

static const char *const index_names[] = {"i0", "i1", "i2", "i3", "i4", "i5"};

static void add_hint(struct random *random, bson_t *operation)
{
    bson_t hint;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "hint", &hint);
    put_text(&hint, "", PICK(index_names));
    bson_append_document_end(operation, &hint);
}

/* Makes a find. Skip and limit depend on the order, so most of them come with a sort. */
static void make_find(struct random *random, bson_t *operation)
{
    add_filter(random, operation);
    if (BELOW(8) == 0)
        add_hint(random, operation);
    if (BELOW(2)) {
        add_sort(random, operation);
        if (BELOW(2))
            BSON_APPEND_INT32(operation, "skip", (int32_t)BELOW(5));
        if (BELOW(2))
            BSON_APPEND_INT32(operation, "limit", (int32_t)BELOW(8));
    } else if (BELOW(3) == 0) {
        BSON_APPEND_INT32(operation, "limit", 1 + (int32_t)BELOW(6));
    }
    if (BELOW(4) == 0) {
        bson_t projection;

        BSON_APPEND_DOCUMENT_BEGIN(operation, "projection", &projection);
        put_number(&projection, PICK(fields), 1);
        bson_append_document_end(operation, &projection);
    }
}

static void make_count(struct random *random, bson_t *operation)
{
    add_filter(random, operation);
    if (BELOW(8) == 0)
        add_hint(random, operation);
    if (BELOW(3) == 0)
        BSON_APPEND_INT32(operation, "skip", (int32_t)BELOW(5));
    if (BELOW(3) == 0)
        BSON_APPEND_INT32(operation, "limit", (int32_t)BELOW(8));
}

static void make_distinct(struct random *random, bson_t *operation)
{
    add_filter(random, operation);
    put_text(operation, "path", PICK(paths));
}

static void make_modify(struct random *random, bson_t *operation)
{
    bool remove = BELOW(4) == 0;

    if (BELOW(3))
        add_id_filter(random, operation);
    else
        add_filter(random, operation);
    add_sort(random, operation);
    BSON_APPEND_BOOL(operation, "remove", remove);
    if (remove)
        return;
    append_update(random, operation);
    BSON_APPEND_BOOL(operation, "new", BELOW(2));
}

/* Makes an aggregate: [{$match}, {$sort}, {$limit}, another stage, {$sort}], in which $limit and
 * the last $sort may be missing. */
static void make_aggregate(struct random *random, bson_t *operation)
{
    put_text(operation, "path", PICK(fields));
    put_text(operation, "foreign", PICK(paths));
    BSON_APPEND_INT32(operation, "stage", (int32_t)BELOW(4));
    add_filter(random, operation);
    add_sort(random, operation);
    if (BELOW(2))
        BSON_APPEND_INT32(operation, "limit", 1 + (int32_t)BELOW(6));
}

static void append_partial(struct random *random, bson_t *index)
{
    bson_t partial, condition;

    BSON_APPEND_DOCUMENT_BEGIN(index, "partialFilterExpression", &partial);
    if (BELOW(2)) {
        begin(&partial, PICK(fields), &condition);
        if (BELOW(2))
            BSON_APPEND_BOOL(&condition, "$exists", true);
        else
            put_number(&condition, BELOW(2) ? "$gt" : "$lte", (int32_t)BELOW(4));
        bson_append_document_end(&partial, &condition);
    } else {
        put_number(&partial, PICK(fields), (int32_t)BELOW(3));
    }
    bson_append_document_end(index, &partial);
}

static const char *first_key(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, document) && bson_iter_next(&iter) ? bson_iter_key(&iter) : "";
}

/* Makes an index of up to three fields, or a wildcard index. Some indexes end with _id, so they can
 * serve the sorts. */
static void make_index_create(struct random *random, bson_t *operation)
{
    int count = 1 + (int)BELOW(3);
    bson_t index, key;

    BSON_APPEND_DOCUMENT_BEGIN(operation, "index", &index);
    BSON_APPEND_DOCUMENT_BEGIN(&index, "key", &key);
    if (BELOW(8) == 0)
        put_number(&key, BELOW(2) ? "$**" : "a.$**", 1);
    for (int i = 0;
         i < count && !bson_has_field(&key, "$**") && bson_count_keys(&key) <= (uint32_t)i; i++) {
        const char *path = PICK(paths);

        if (!bson_has_field(&key, path) && (i > 0 || strcmp(path, "_id")))
            BSON_APPEND_INT32(&key, path, BELOW(3) ? 1 : -1);
    }
    if (bson_empty(&key))
        BSON_APPEND_INT32(&key, "a", 1);
    if (!bson_has_field(&key, "_id") && !strstr(first_key(&key), "$**") && BELOW(3) == 0)
        BSON_APPEND_INT32(&key, "_id", BELOW(2) ? 1 : -1);
    bson_append_document_end(&index, &key);
    put_text(&index, "name", PICK(index_names));
    if (BELOW(6) == 0)
        BSON_APPEND_BOOL(&index, "unique", true);
    if (BELOW(4) == 0)
        BSON_APPEND_BOOL(&index, "sparse", true);
    else if (BELOW(4) == 0)
        append_partial(random, &index);
    bson_append_document_end(operation, &index);
}

static void make_index_drop(struct random *random, bson_t *operation)
{
    put_text(operation, "name", PICK(index_names));
}

static void make_collection(struct random *random, bson_t *operation)
{
    static const char *const verbs[] = {"create", "drop", "rename", "list"};

    put_text(operation, "verb", PICK(verbs));
}

/* Makes a bulk: ordered, unordered, or atomic. */
static void make_bulk(struct random *random, bson_t *operation)
{
    int count = 1 + (int)BELOW(5);
    uint64_t mode = BELOW(3);
    bson_t writes, write;

    BSON_APPEND_BOOL(operation, "unordered", mode == 1);
    BSON_APPEND_BOOL(operation, "atomic", mode == 2);
    BSON_APPEND_ARRAY_BEGIN(operation, "writes", &writes);
    for (int i = 0; i < count; i++) {
        uint64_t kind = BELOW(mode == 2 ? 5 : 3);
        char index[24];

        snprintf(index, sizeof(index), "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&writes, index, &write);
        BSON_APPEND_INT32(&write, "kind", (int32_t)kind + 1);
        pick_collection(random, &write);
        if (kind + 1 == TRUCE_WRITE_INSERT)
            make_insert(random, &write);
        else
            add_id_filter(random, &write);
        if (kind + 1 == TRUCE_WRITE_UPDATE) {
            append_update(random, &write);
            BSON_APPEND_BOOL(&write, "upsert", BELOW(3) == 0);
        }
        bson_append_document_end(&writes, &write);
    }
    bson_append_array_end(operation, &writes);
}

static const struct maker {
    const char *name;
    uint32_t weight;
    void (*make)(struct random *random, bson_t *operation);
} makers[] = {
    {"insert", 22, make_insert},     {"update", 20, make_update},
    {"remove", 6, make_remove},      {"find", 24, make_find},
    {"count", 9, make_count},        {"distinct", 3, make_distinct},
    {"modify", 6, make_modify},      {"aggregate", 5, make_aggregate},
    {"index", 4, make_index_create}, {"unindex", 2, make_index_drop},
    {"bulk", 5, make_bulk},          {"collection", 1, make_collection},
};

bson_t *random_operation(uint64_t seed, uint64_t number)
{
    bson_t *operation = bson_new();
    struct random state, *random = &state;
    uint64_t total = 0, chosen;
    size_t i;

    truce__random_seed(random, seed * 0x9e3779b97f4a7c15u + number);
    for (i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
        total += makers[i].weight;
    chosen = BELOW(total);
    for (i = 0; chosen >= makers[i].weight; i++)
        chosen -= makers[i].weight;
    BSON_APPEND_UTF8(operation, "op", makers[i].name);
    pick_collection(random, operation);
    makers[i].make(random, operation);
    return operation;
}
