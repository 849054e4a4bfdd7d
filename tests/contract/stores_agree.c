/*
 * The file: store answers as the memory: store does, which looks at every document: random
 * operations on evolving collections with random indexes, each done on both.
 *
 * TRUCE_AGREE_MS: how long; TRUCE_TEST_SEED repeats a run.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"
#include "engine/engine.h"
#include "tests/support/random_bson.h"
#include "tests/support/test.h"

#define STORES     2
#define ROUND      400 /* operations on one collection before the next one */
#define PICK(pool) ((pool)[truce__random_below(&dice, sizeof(pool) / sizeof *(pool))])

static struct random dice;
static truce_store *stores[STORES]; /* memory:, file: */
static char path[400];

static uint64_t below(uint64_t bound)
{
    return truce__random_below(&dice, bound);
}

/* ---- random documents, filters, updates, indexes --------------------------------------------- */

static const char *const paths[] = {"a", "b", "c", "a.b", "a.c", "b.c", "a.0", "c.b.a"};
static const char *const names[] = {"a", "b", "c"};
static const char *const texts[] = {"", "a", "ab", "abc", "b", "ba"};

static void append_small(bson_t *document, const char *key, unsigned depth);

static void append_container(bson_t *document, const char *key, unsigned depth)
{
    bool array = below(2);
    uint64_t count = below(4);
    bson_t child;

    if (array)
        bson_append_array_begin(document, key, -1, &child);
    else
        bson_append_document_begin(document, key, -1, &child);
    for (uint64_t i = 0; i < count; i++) {
        char number[16];

        snprintf(number, sizeof number, "%d", (int)i);
        append_small(&child, array ? number : names[i % 3], depth - 1);
    }
    if (array)
        bson_append_array_end(document, &child);
    else
        bson_append_document_end(document, &child);
}

/* Few different values, so that they meet. */
static void append_small(bson_t *document, const char *key, unsigned depth)
{
    switch (below(depth ? 12 : 8)) {
    case 0:
        bson_append_null(document, key, -1);
        break;
    case 1:
        bson_append_utf8(document, key, -1, PICK(texts), -1);
        break;
    case 2:
        bson_append_double(document, key, -1, (double)below(6) / 2);
        break;
    case 3:
        bson_append_int64(document, key, -1, (int64_t)below(5) - 1);
        break;
    case 4:
        random_append(&dice, document, key, depth ? 1 : 0);
        break;
    case 5:
    case 6:
    case 7:
        bson_append_int32(document, key, -1, (int32_t)below(6));
        break;
    default:
        append_container(document, key, depth);
        break;
    }
}

static bson_t *small_document(void)
{
    bson_t *document = bson_new();

    for (int i = 0; i < 3; i++) {
        if (below(4))
            append_small(document, names[i], 2);
    }
    return document;
}

static void append_condition(bson_t *filter, const char *key, unsigned depth);

static void append_list(bson_t *condition, const char *operator)
{
    bson_t list;

    bson_append_array_begin(condition, operator, - 1, &list);
    for (int i = 0; i < 3; i++) {
        char number[16];

        snprintf(number, sizeof number, "%d", i);
        append_small(&list, number, 1);
    }
    bson_append_array_end(condition, &list);
}

static void append_operator(bson_t *condition, unsigned depth)
{
    static const char *const comparisons[] = {"$eq", "$gt", "$gte", "$lt", "$lte", "$ne"};
    bson_t child;

    switch (below(depth ? 10 : 7)) {
    case 0:
        append_list(condition, below(3) ? "$in" : "$nin");
        break;
    case 1:
        bson_append_bool(condition, "$exists", -1, below(2));
        break;
    case 2:
        bson_append_regex(condition, "$regex", -1, below(2) ? "^a" : "b", "");
        break;
    case 8:
        bson_append_document_begin(condition, "$elemMatch", -1, &child);
        if (below(2))
            append_operator(&child, depth - 1);
        else
            append_condition(&child, PICK(names), depth - 1);
        bson_append_document_end(condition, &child);
        break;
    case 9:
        bson_append_document_begin(condition, "$not", -1, &child);
        append_operator(&child, depth - 1);
        bson_append_document_end(condition, &child);
        break;
    default:
        append_small(condition, PICK(comparisons), 1);
        break;
    }
}

static void append_condition(bson_t *filter, const char *key, unsigned depth)
{
    bson_t condition;

    if (!below(3)) {
        append_small(filter, key, 1);
        return;
    }
    bson_append_document_begin(filter, key, -1, &condition);
    append_operator(&condition, depth);
    if (!below(3))
        append_operator(&condition, 0);
    bson_append_document_end(filter, &condition);
}

static void append_filter(bson_t *filter, unsigned depth)
{
    uint64_t count = 1 + below(2);
    bson_t list, branch;

    if (depth && !below(4)) {
        bson_append_array_begin(filter, below(4) ? "$or" : "$nor", -1, &list);
        for (int i = 0; i < 2; i++) {
            bson_append_document_begin(&list, i ? "1" : "0", -1, &branch);
            append_filter(&branch, depth - 1);
            bson_append_document_end(&list, &branch);
        }
        bson_append_array_end(filter, &list);
    }
    for (uint64_t i = 0; i < count; i++)
        append_condition(filter, PICK(paths), 2);
}

static bson_t *small_filter(void)
{
    bson_t *filter = bson_new();

    if (below(12))
        append_filter(filter, 1);
    return filter;
}

static bson_t *small_update(void)
{
    static const char *const operators[] = {"$set",      "$unset", "$inc", "$push",
                                            "$addToSet", "$min",   "$set", "$pull"};
    const char *operator= PICK(operators);
    bson_t *update = bson_new(), child;

    bson_append_document_begin(update, operator, - 1, &child);
    if (!strcmp(operator, "$inc"))
        bson_append_int32(&child, PICK(paths), -1, 1);
    else
        append_small(&child, PICK(paths), 1);
    bson_append_document_end(update, &child);
    return update;
}

static bson_t *small_sort(void)
{
    bson_t *sort = bson_new();
    uint64_t count = below(3);

    for (uint64_t i = 0; i < count; i++) {
        const char *key = PICK(paths);

        if (!bson_has_field(sort, key))
            bson_append_int32(sort, key, -1, below(2) ? 1 : -1);
    }
    bson_append_int32(sort, "_id", -1, 1);
    return sort;
}

static bson_t *small_index(void)
{
    static const char *const wildcards[] = {"$**", "a.$**"};
    bson_t *index = bson_new(), key, partial;
    uint64_t count = 1 + below(3);
    bool wildcard = !below(8);

    bson_append_document_begin(index, "key", -1, &key);
    for (uint64_t i = 0; i < count && !wildcard; i++)
        bson_append_int32(&key, paths[(below(3) * 3 + i * 2) % 8], -1, below(2) ? 1 : -1);
    if (wildcard)
        bson_append_int32(&key, PICK(wildcards), -1, 1);
    bson_append_document_end(index, &key);
    if (!below(5) && !wildcard)
        BSON_APPEND_BOOL(index, "unique", true);
    if (!below(4) && !wildcard) {
        BSON_APPEND_BOOL(index, "sparse", true);
    } else if (!below(4) && !wildcard) {
        BSON_APPEND_DOCUMENT_BEGIN(index, "partialFilterExpression", &partial);
        if (below(2)) {
            BSON_APPEND_DOCUMENT_BEGIN(&partial, PICK(names), &key);
            BSON_APPEND_INT32(&key, "$gt", 1);
        } else {
            BSON_APPEND_DOCUMENT_BEGIN(&partial, PICK(names), &key);
            BSON_APPEND_BOOL(&key, "$exists", true);
        }
        bson_append_document_end(&partial, &key);
        bson_append_document_end(index, &partial);
    }
    return index;
}

/* ---- both stores ---------------------------------------------------------------------------- */

/* What an operation answered, as a document that can be compared. */
static void note_status(bson_t *answer, truce_status status, const bson_error_t *error)
{
    BSON_APPEND_INT32(answer, "status", (int32_t)status);
    if (status && error->domain == TRUCE_ERROR_SERVER)
        BSON_APPEND_INT32(answer, "code", (int32_t)error->code);
}

static void note_result(bson_t *answer, const truce_write_result *result)
{
    BSON_APPEND_INT64(answer, "matched", result->matched);
    BSON_APPEND_INT64(answer, "modified", result->modified);
    BSON_APPEND_INT64(answer, "removed", result->removed);
    BSON_APPEND_BOOL(answer, "upserted", result->upserted);
}

static void note_documents(bson_t *answer, truce_store *store, const bson_t *filter,
                           const truce_find_options *options)
{
    truce_cursor *cursor;
    const bson_t *found = NULL;
    bson_error_t error;
    truce_status status = truce_find(store, "c", filter, options, &cursor, &error);
    int count = 0;

    while (!status && !(status = truce_cursor_next(cursor, &found, &error)) && found) {
        char key[16];

        snprintf(key, sizeof key, "%d", count++);
        bson_append_document(answer, key, -1, found);
    }
    note_status(answer, status, &error);
    truce_cursor_close(cursor);
}

struct operation {
    int kind;
    bson_t *document, *filter, *update, *sort, *index;
    bool flag, sorted;
    int64_t limit, skip;
};

static void find(truce_store *store, const struct operation *operation, bson_t *answer)
{
    truce_find_options options = {.sort = operation->sorted ? operation->sort : NULL,
                                  .limit = operation->limit,
                                  .skip = operation->skip};

    note_documents(answer, store, operation->filter, &options);
}

static void count(truce_store *store, const struct operation *operation, bson_t *answer)
{
    bson_error_t error;
    int64_t number;
    truce_status status = truce_count(store, "c", operation->filter, NULL, &number, &error);

    note_status(answer, status, &error);
    BSON_APPEND_INT64(answer, "count", number);
}

static void insert(truce_store *store, const struct operation *operation, bson_t *answer)
{
    truce_write_options options = {0};
    bson_error_t error;

    note_status(answer, truce_insert(store, "c", operation->document, &options, &error), &error);
}

static void update(truce_store *store, const struct operation *operation, bson_t *answer)
{
    truce_write_options options = {.multi = operation->flag};
    truce_write_result result;
    bson_error_t error;
    truce_status status =
        truce_update(store, "c", operation->filter, operation->update, &options, &result, &error);

    note_status(answer, status, &error);
    note_result(answer, &result);
}

static void remove_some(truce_store *store, const struct operation *operation, bson_t *answer)
{
    truce_write_options options = {.multi = operation->flag};
    truce_write_result result;
    bson_error_t error;
    truce_status status = truce_remove(store, "c", operation->filter, &options, &result, &error);

    note_status(answer, status, &error);
    note_result(answer, &result);
}

static void modify(truce_store *store, const struct operation *operation, bson_t *answer)
{
    truce_modify_options options = {.return_new = operation->flag,
                                    .sort = operation->sorted ? operation->sort : NULL};
    bson_error_t error;
    bson_t document;
    truce_status status = truce_find_and_modify(store, "c", operation->filter, operation->update,
                                                &options, &document, NULL, &error);

    note_status(answer, status, &error);
    BSON_APPEND_DOCUMENT(answer, "document", &document);
    bson_destroy(&document);
}

static void distinct(truce_store *store, const struct operation *operation, bson_t *answer)
{
    bson_error_t error;
    bson_t values;
    truce_status status = truce_distinct(store, "c", "a.b", operation->filter, &values, &error);

    note_status(answer, status, &error);
    BSON_APPEND_ARRAY(answer, "values", &values);
    bson_destroy(&values);
}

static void create_index(truce_store *store, const struct operation *operation, bson_t *answer)
{
    bson_error_t error;

    /* of several reasons to refuse, either may be told */
    BSON_APPEND_BOOL(answer, "created", !truce_index_create(store, "c", operation->index, &error));
}

static void drop_index(truce_store *store, const struct operation *operation, bson_t *answer)
{
    bson_error_t error;
    bson_iter_t iter, name;
    bson_t list;
    char path_of_name[32];

    snprintf(path_of_name, sizeof path_of_name, "%d.name", (int)operation->limit);
    if (truce_index_list(store, "c", &list, &error) == TRUCE_OK && bson_iter_init(&iter, &list) &&
        bson_iter_find_descendant(&iter, path_of_name, &name))
        note_status(answer, truce_index_drop(store, "c", bson_iter_utf8(&name, NULL), &error),
                    &error);
    bson_destroy(&list);
}

static void (*const kinds[])(truce_store *store, const struct operation *operation,
                             bson_t *answer) = {
    insert, insert, insert, insert, find,        find,         find,       find,    find,
    count,  update, update, modify, remove_some, create_index, drop_index, distinct};

static void explain_difference(const struct operation *operation)
{
    truce_find_options options = {.sort = operation->sorted ? operation->sort : NULL};
    bson_error_t error;
    char *text;
    bson_t plan;

    text = bson_as_canonical_extended_json(operation->filter, NULL);
    fprintf(stderr, "kind %d flag %d filter %s", operation->kind, operation->flag, text);
    bson_free(text);
    text = bson_as_canonical_extended_json(operation->update, NULL);
    fprintf(stderr, " update %s", text);
    bson_free(text);
    text = bson_as_canonical_extended_json(operation->index, NULL);
    fprintf(stderr, " index %s\n", text);
    bson_free(text);
    if (!truce_explain(stores[1], "c", operation->filter, &options, &plan, &error)) {
        text = bson_as_relaxed_extended_json(&plan, NULL);
        fprintf(stderr, "%s\n", text);
        bson_free(text);
    }
    bson_destroy(&plan);
}

/* Does it on both; false where they differ. */
static bool do_both(const struct operation *operation)
{
    bson_t answers[STORES];
    bool same;

    for (int i = 0; i < STORES; i++) {
        bson_init(&answers[i]);
        kinds[operation->kind](stores[i], operation, &answers[i]);
    }
    same = CHECK_BSON(&answers[0], &answers[1]);
    if (!same)
        explain_difference(operation);
    for (int i = 0; i < STORES; i++)
        bson_destroy(&answers[i]);
    return same;
}

static bool do_random_operation(int number)
{
    struct operation operation = {.kind = (int)below(sizeof kinds / sizeof *kinds),
                                  .document = small_document(),
                                  .filter = small_filter(),
                                  .update = small_update(),
                                  .sort = small_sort(),
                                  .index = small_index(),
                                  .flag = below(2),
                                  .sorted = below(2),
                                  .limit = (int64_t)below(4),
                                  .skip = !below(4)};
    bool same;

    BSON_APPEND_INT32(operation.document, "_id", number - (!below(20) ? 1 : 0));
    same = do_both(&operation);
    bson_destroy(operation.document);
    bson_destroy(operation.filter);
    bson_destroy(operation.update);
    bson_destroy(operation.sort);
    bson_destroy(operation.index);
    return same;
}

static void check_whole(void)
{
    truce_store_options options = {0};
    struct engine *engine;
    bson_error_t error;

    if (!CHECK_OK(truce__engine_open(path, &options, &engine, &error), error))
        return;
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    truce__engine_close(engine);
}

TEST(the_file_store_answers_as_the_memory_store)
{
    truce_store_options relaxed = {.relaxed = true};
    int64_t until, done = 0;
    bson_error_t error;

    truce__random_seed(&dice, test_seed());
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    CHECK_OK(truce_store_open("memory:", NULL, &stores[0], &error), error);
    CHECK_OK(truce_store_open(path, &relaxed, &stores[1], &error), error);
    until = truce__clock_monotonic_ns() + test_scale("TRUCE_AGREE_MS", 10000) * INT64_C(1000000);
    while (truce__clock_monotonic_ns() < until && !test_failures()) {
        for (int i = 0; i < ROUND && do_random_operation(i); i++)
            done++;
        check_whole();
        for (int i = 0; i < STORES; i++)
            CHECK(truce_collection_drop(stores[i], "c", &error) != TRUCE_IO);
    }
    printf("%" PRId64 " operations\n", done);
    for (int i = 0; i < STORES; i++)
        truce_store_close(stores[i]);
}
