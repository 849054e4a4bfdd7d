#include "tests/support/updates.h"

#include "tests/support/test.h"

static bson_t *array_of(const char *json)
{
    char *wrapped;
    bson_t *document, *array;
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t size;

    wrapped = bson_strdup_printf("{\"v\": %s}", json);
    document = test_bson(wrapped);
    bson_iter_init_find(&iter, document, "v");
    bson_iter_array(&iter, &size, &bytes);
    array = bson_new_from_data(bytes, size);
    bson_destroy(document);
    bson_free(wrapped);
    return array;
}

struct parts {
    /* The parsed members of struct updated. Only `update` is never NULL. */
    bson_t *update, *before, *query, *filters;
    /* The compiled `query`, or NULL. */
    struct match *match;
    struct update *compiled;
};

/* Parses the parts of the update and compiles it. The caller releases the parts, also after a
 * failure. */
static truce_status compile(const struct updated *updated, struct parts *parts, bson_error_t *error)
{
    struct update_options options = {.pipeline = updated->pipeline, .multi = updated->multi};
    truce_status status = TRUCE_OK;

    if (updated->update_document)
        parts->update = bson_copy(updated->update_document);
    else
        parts->update = updated->pipeline ? array_of(updated->update) : test_bson(updated->update);
    if (updated->before_document)
        parts->before = bson_copy(updated->before_document);
    else
        parts->before = updated->before ? test_bson(updated->before) : NULL;
    parts->query = updated->query ? test_bson(updated->query) : NULL;
    parts->filters = updated->filters ? array_of(updated->filters) : NULL;
    options.array_filters = parts->filters;
    if (parts->query)
        status = truce__match_new(parts->query, &parts->match, error);
    if (!status)
        status = truce__update_new(parts->update, &options, &parts->compiled, error);
    return status;
}

/* Applies the compiled update, or builds the inserted document of an upsert. Initializes `after` in
 * any case. */
static truce_status apply(struct updated *updated, const struct parts *parts, bson_t *after,
                          bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = 1600000000123, .arena = &arena};
    struct match_result found = {.matched = true, .array_index = -1};
    truce_status status = TRUCE_OK;

    if (!parts->before) {
        status = truce__update_insert(parts->compiled, parts->match, &context, after, error);
    } else {
        bson_init(after);
        if (parts->match)
            status = truce__match_test(parts->match, truce__value_document(parts->before), &context,
                                       &found, error);
        if (!status) {
            bson_destroy(after);
            status = truce__update_apply(parts->compiled, parts->before, &found, &context, after,
                                         &updated->result, error);
        }
    }
    truce__arena_release(&arena);
    return status;
}

static void release(struct parts *parts)
{
    truce__update_free(parts->compiled);
    if (parts->match)
        truce__match_free(parts->match);
    bson_destroy(parts->update);
    if (parts->before)
        bson_destroy(parts->before);
    if (parts->query)
        bson_destroy(parts->query);
    if (parts->filters)
        bson_destroy(parts->filters);
}

bson_t *updated_run(struct updated *updated)
{
    struct parts parts = {0};
    bson_t after = BSON_INITIALIZER, again = BSON_INITIALIZER;
    bson_t *result = NULL;
    bson_error_t error = {0};
    truce_status status = compile(updated, &parts, &error);

    updated->code = 0;
    if (!status)
        status = apply(updated, &parts, &after, &error);
    if (!status)
        status = apply(updated, &parts, &again, &error);
    if (status) {
        updated->code = error.code;
        bson_strncpy(updated->message, error.message, sizeof updated->message);
    } else {
        if (parts.before)
            CHECK_BSON(&after, &again);
        CHECK(truce__document_check(&after, "result", &error) == TRUCE_OK);
        result = bson_copy(&after);
    }
    bson_destroy(&after);
    bson_destroy(&again);
    release(&parts);
    return result;
}

static const char *update_text(const struct updated *updated)
{
    return updated->update ? updated->update : "an update";
}

static const char *before_text(const struct updated *updated)
{
    return updated->before ? updated->before : "a document";
}

bool updated_check(const char *expected, struct updated *updated, const char *file, int line)
{
    bson_t *after = updated_run(updated), *wanted;
    bool same;

    if (!after)
        return test_fail(file, line, "%s of %s: error %u: %s", update_text(updated),
                         before_text(updated), updated->code, updated->message);
    wanted = test_bson(expected);
    same = test_bson_equal(wanted, after, file, line);
    bson_destroy(wanted);
    bson_destroy(after);
    return same;
}

bool updated_check_code(uint32_t expected, struct updated *updated, const char *file, int line)
{
    bson_t *after = updated_run(updated);

    if (after) {
        char *json = bson_as_relaxed_extended_json(after, NULL);

        test_fail(file, line, "%s of %s: expected error %u, got %s", update_text(updated),
                  before_text(updated), expected, json);
        bson_free(json);
        bson_destroy(after);
        return false;
    }
    if (updated->code != expected)
        return test_fail(file, line, "%s: expected error %u, got %u: %s", update_text(updated),
                         expected, updated->code, updated->message);
    return true;
}

bson_t *nested_document(const char *key, int depth)
{
    bson_t *inner = bson_new();

    for (int i = 0; i < depth; i++) {
        bson_t *outer = bson_new();

        bson_append_document(outer, i + 1 < depth ? "a" : key, -1, inner);
        bson_destroy(inner);
        inner = outer;
    }
    return inner;
}
