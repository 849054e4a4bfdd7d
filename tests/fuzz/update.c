/*
 * Updates. Whatever the update, the document, and the query are, compiling and applying end in a
 * document or an error. The document is valid, within the limits, and has its old `_id`. If nothing
 * was modified, it is the old one byte by byte. Operators that only say how the document shall be
 * change it once. $update does to the items it finds what an array filter does.
 *
 * The first byte chooses between raw BSON and an update made from decisions.
 */
#include "query/update/update.h"

#include "base/assert.h"
#include "base/limits.h"
#include "tests/support/fuzz_input.h"

static const char *const paths[] = {"a",      "b",      "c",        "a.b",    "a.0",   "a.1.b",
                                    "a.b.c",  "b.0.a",  "a.$",      "a.$.b",  "a.$[]", "a.$[].b",
                                    "a.$[x]", "b.$[x]", "a.$[x].b", "_id",    "_id.a", "x.y",
                                    "a.12",   "a.",     "$a",       "a.00.b", "b.c.0", "x"};
/* these set the final value of a field, so doing them twice equals doing them once */
static const char *const settled[] = {"$set",  "$unset",    "$min",        "$max",
                                      "$pull", "$addToSet", "$setOnInsert"};
static const char *const others[] = {"$inc",    "$mul",         "$push", "$pop",    "$pullAll",
                                     "$rename", "$currentDate", "$bit",  "$update", "$nope"};

static void append_operators(struct fuzz_input *input, bson_t *update, bool calm, unsigned depth);

static void append_push(struct fuzz_input *input, bson_t *fields, const char *path)
{
    bson_t push, each;

    bson_append_document_begin(fields, path, -1, &push);
    bson_append_array_begin(&push, "$each", -1, &each);
    for (uint32_t i = fuzz_below(input, 4); i-- > 0;)
        fuzz_append(input, &each, "0", 2);
    bson_append_array_end(&push, &each);
    if (fuzz_below(input, 2))
        bson_append_int32(&push, "$slice", -1, (int32_t)fuzz_below(input, 7) - 3);
    if (fuzz_below(input, 2))
        bson_append_int32(&push, "$position", -1, (int32_t)fuzz_below(input, 7) - 3);
    switch (fuzz_below(input, 3)) {
    case 0:
        bson_append_int32(&push, "$sort", -1, fuzz_below(input, 2) ? 1 : -1);
        break;
    case 1:
        BCON_APPEND(&push, "$sort", "{", "a.b", BCON_INT32(1), "b", BCON_INT32(-1), "}");
        break;
    default:
        break;
    }
    bson_append_document_end(fields, &push);
}

static void append_items(struct fuzz_input *input, bson_t *fields, const char *path, unsigned depth)
{
    bson_t *query = fuzz_filter(input, 2);
    bson_t items;

    bson_append_document_begin(fields, path, -1, &items);
    bson_append_document(&items, "$query", -1, query);
    if (depth)
        append_operators(input, &items, false, depth - 1);
    bson_append_document_end(fields, &items);
    bson_destroy(query);
}

static void append_operand(struct fuzz_input *input, bson_t *fields, const char *operator,
                           const char * path, unsigned depth)
{
    bool odd = fuzz_below(input, 16) == 0;
    bson_t *filter;

    if (odd) {
        fuzz_append(input, fields, path, 3);
    } else if (!strcmp(operator, "$push") && fuzz_below(input, 2)) {
        append_push(input, fields, path);
    } else if (!strcmp(operator, "$rename")) {
        bson_append_utf8(fields, path, -1, FUZZ_PICK(input, paths), -1);
    } else if (!strcmp(operator, "$pop")) {
        bson_append_int32(fields, path, -1, fuzz_below(input, 2) ? 1 : -1);
    } else if (!strcmp(operator, "$inc") || !strcmp(operator, "$mul")) {
        bson_append_int64(fields, path, -1, (int64_t)fuzz_below(input, 9) - 4);
    } else if (!strcmp(operator, "$bit")) {
        BCON_APPEND(fields, path, "{", "xor", BCON_INT32(fuzz_byte(input)), "}");
    } else if (!strcmp(operator, "$currentDate")) {
        bson_append_bool(fields, path, -1, true);
    } else if (!strcmp(operator, "$update")) {
        append_items(input, fields, path, depth);
    } else if (!strcmp(operator, "$pull") && fuzz_below(input, 2)) {
        filter = fuzz_filter(input, 2);
        bson_append_document(fields, path, -1, filter);
        bson_destroy(filter);
    } else {
        fuzz_append(input, fields, path, 3);
    }
}

static void append_operators(struct fuzz_input *input, bson_t *update, bool calm, unsigned depth)
{
    for (uint32_t i = 1 + fuzz_below(input, 3); i-- > 0;) {
        const char *operator= calm || fuzz_below(input, 2) ? FUZZ_PICK(input, settled)
                                                           : FUZZ_PICK(input, others);
        bson_t fields;

        bson_append_document_begin(update, operator, - 1, &fields);
        for (uint32_t j = fuzz_below(input, 3) + (depth > 0); j-- > 0;)
            append_operand(input, &fields, operator, FUZZ_PICK(input, paths), depth);
        bson_append_document_end(update, &fields);
    }
}

/* a stored document has a valid `_id`, which is first */
static bson_t *stored_document(struct fuzz_input *input)
{
    bson_t *fields = fuzz_document(input, 4), *document = bson_new();

    if (fuzz_below(input, 4))
        bson_append_int32(document, "_id", -1, fuzz_below(input, 3));
    else
        BCON_APPEND(document, "_id", "{", "a", BCON_INT32(1), "}");
    bson_concat(document, fields);
    bson_destroy(fields);
    return document;
}

static bool same_bytes(const bson_t *a, const bson_t *b)
{
    return a->len == b->len && !memcmp(bson_get_data(a), bson_get_data(b), a->len);
}

static void check_valid(const bson_t *document)
{
    bson_error_t error;

    truce_assert(truce__document_check(document, "result", &error) == TRUCE_OK);
    truce_assert(document->len <= TRUCE_DOCUMENT_BYTES_MAX);
    truce_assert(truce__value_field(truce__value_document(document), "_id", 3).type !=
                 VALUE_MISSING);
}

static truce_status apply(const struct update *update, const struct match_result *found,
                          const bson_t *before, bson_t *after, struct update_result *result,
                          bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = 1, .arena = &arena};
    struct value id = truce__value_field(truce__value_document(before), "_id", 3);
    truce_status status =
        truce__update_apply(update, before, found, &context, after, result, error);

    if (status == TRUCE_OK) {
        check_valid(after);
        truce_assert(
            truce__value_equal(id, truce__value_field(truce__value_document(after), "_id", 3)));
        truce_assert(result->modified || same_bytes(before, after));
        truce_assert(result->items_modified <= result->items_matched);
    }
    truce__arena_release(&arena);
    return status;
}

static void insert(const struct update *update, const struct match *match)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = 1, .arena = &arena};
    bson_error_t error;
    bson_t made;

    if (truce__update_insert(update, match, &context, &made, &error) == TRUCE_OK)
        check_valid(&made);
    bson_destroy(&made);
    truce__arena_release(&arena);
}

/* of two fields with one name, an update goes to the first */
static bool has_repeats(struct value container)
{
    struct fields fields = truce__fields(container);

    while (truce__fields_next(&fields)) {
        struct value first = truce__value_field(container, fields.key, fields.key_length);

        if (first.data != fields.value.data ||
            (truce__value_is_container(fields.value) && has_repeats(fields.value)))
            return true;
    }
    return false;
}

static void check(const bson_t *update, const bson_t *filters, const bson_t *query,
                  const bson_t *document, bool calm)
{
    struct update_options options = {.array_filters = filters};
    struct match_result found = {.matched = true, .array_index = -1};
    struct update *compiled = NULL;
    struct update_result result;
    struct match *match = NULL;
    bson_error_t error;
    bson_t once, twice;

    calm = calm && !has_repeats(truce__value_document(document));
    if (query && !truce__match_new(query, &match, &error) &&
        truce__match_test(match, truce__value_document(document), NULL, &found, &error))
        found = (struct match_result){.matched = true, .array_index = 0};
    if (truce__update_new(update, &options, &compiled, &error) == TRUCE_OK) {
        if (apply(compiled, &found, document, &once, &result, &error) == TRUCE_OK && calm) {
            truce_status status = apply(compiled, &found, &once, &twice, &result, &error);

            /* the nulls that an array was filled up with may be in the way of another operator */
            truce_assert(status == TRUCE_OK || error.code == CODE_PATH_NOT_VIABLE);
            truce_assert(status || same_bytes(&once, &twice));
            bson_destroy(&twice);
        }
        bson_destroy(&once);
        insert(compiled, match);
        truce__update_free(compiled);
    }
    if (match)
        truce__match_free(match);
}

/* {$update: {a: {$query: {b: V}, $set: {c: W}}}} against {$set: {"a.$[x].c": W}} where x.b is V */
static void check_items(struct fuzz_input *input, const bson_t *document)
{
    bson_t operand = BSON_INITIALIZER, update = BSON_INITIALIZER, set = BSON_INITIALIZER;
    bson_t filters = BSON_INITIALIZER, one, two, items, query, fields, filter;
    struct update_options options = {.array_filters = &filters};
    struct update *by_query = NULL, *by_filter = NULL;
    struct update_result result;
    bson_error_t error;
    bson_iter_t value;
    truce_status status;

    fuzz_append(input, &operand, "v", 0);
    bson_iter_init_find(&value, &operand, "v");
    bson_append_document_begin(&update, "$update", -1, &items);
    bson_append_document_begin(&items, "a", -1, &one);
    bson_append_document_begin(&one, "$query", -1, &query);
    bson_append_iter(&query, "b", -1, &value);
    bson_append_document_end(&one, &query);
    BCON_APPEND(&one, "$set", "{", "c.d", BCON_INT32(7), "}");
    bson_append_document_end(&items, &one);
    bson_append_document_end(&update, &items);
    bson_append_document_begin(&set, "$set", -1, &fields);
    bson_append_int32(&fields, "a.$[x].c.d", -1, 7);
    bson_append_document_end(&set, &fields);
    bson_append_document_begin(&filters, "0", -1, &filter);
    bson_append_iter(&filter, "x.b", -1, &value);
    bson_append_document_end(&filters, &filter);
    status = truce__update_new(&update, NULL, &by_query, &error);
    truce_assert(status == truce__update_new(&set, &options, &by_filter, &error));
    if (status == TRUCE_OK) {
        status = apply(by_query, NULL, document, &one, &result, &error);
        truce_assert(status == apply(by_filter, NULL, document, &two, &result, &error));
        truce_assert(status || same_bytes(&one, &two));
        bson_destroy(&one);
        bson_destroy(&two);
    }
    truce__update_free(by_query);
    truce__update_free(by_filter);
    bson_destroy(&operand);
    bson_destroy(&update);
    bson_destroy(&set);
    bson_destroy(&filters);
}

static bool only_documents(const bson_t *document)
{
    struct value array = truce__value_field(truce__value_document(document), "a", 1);
    struct fields fields;

    if (array.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(array);
    while (truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_DOCUMENT)
            return false;
    }
    return true;
}

static bool take_raw(struct fuzz_input *input, bson_t *document)
{
    size_t size = input->left < 2 ? 0 : fuzz_byte(input) + 256u * fuzz_byte(input);

    if (size > input->left || !bson_init_static(document, input->at, size))
        return false;
    input->at += size;
    input->left -= size;
    return truce__document_check(document, "input", NULL) == TRUCE_OK;
}

static void check_raw(struct fuzz_input *input)
{
    bson_t update, query, document, *stored;

    if (!take_raw(input, &update) || !take_raw(input, &query) || !take_raw(input, &document))
        return;
    stored = BCON_NEW("_id", BCON_INT32(1));
    bson_copy_to_excluding_noinit(&document, stored, "_id", NULL);
    check(&update, NULL, &query, stored, false);
    bson_destroy(stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t kind = fuzz_byte(&input) % 8;
    bson_t *document, *query, update = BSON_INITIALIZER;
    bson_t *filters = NULL;

    if (kind == 7) {
        check_raw(&input);
        return 0;
    }
    document = stored_document(&input);
    if (kind == 6) {
        if (only_documents(document))
            check_items(&input, document);
        bson_destroy(document);
        return 0;
    }
    query = fuzz_filter(&input, 2);
    if (kind == 5)
        fuzz_append(&input, &update, "a", 3);
    else
        append_operators(&input, &update, kind < 2, 2);
    if (kind >= 2)
        filters = BCON_NEW("0", "{", "x", "{", "$gte", BCON_INT32(1), "}", "}");
    check(&update, filters, query, document, kind < 2);
    if (filters)
        bson_destroy(filters);
    bson_destroy(&update);
    bson_destroy(document);
    bson_destroy(query);
    return 0;
}
