/*
 * Parts of indexes, keys and records: a file, a transaction over a file and a memory: store answer
 * the same.
 *
 *     TRUCE_TEST_SEED=N            the same documents and questions again
 *     TRUCE_SPAN_QUESTIONS=N       how many questions (1500)
 */
#include "base/limits.h"
#include "base/random.h"
#include "bson/value.h"
#include "store/overlay/transaction_overlay.h"
#include "tests/support/test.h"

#define BELOW(n)                truce__random_below(&dice, n)
#define PICK(pool)              ((pool)[BELOW(sizeof(pool) / sizeof((pool)[0]))])

#define REQUIRE_DONE(call, why) REQUIRE(CHECK_OK(call, why))

static truce_store *memory, *file, *overlay, *whole;
static struct random dice;
static bson_error_t error;

static const struct {
    const char *definition;
    uint32_t count;
    const char *fields[2];
} indexes[] = {{"{'key': {'a': 1}}", 1, {"a"}},
               {"{'key': {'a': -1, 'b.c': 1}}", 2, {"a", "b.c"}},
               {"{'key': {'b.c': 1, 'a': -1}, 'sparse': true}", 2, {"b.c", "a"}},
               {"{'key': {'b.c': -1}, 'partialFilterExpression': {'b.c': {'$gt': 1}}}", 1, {"b.c"}},
               {"{'key': {'_id': 1}}", 1, {"_id"}}};

static truce_store *open_store(const char *name)
{
    static char directory[400];
    char path[600];
    truce_store *store = NULL;

    if (!strcmp(name, "file")) /* it empties the directory */
        snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/%s.truce", directory, name);
    CHECK_OK(truce_store_open(*name ? path : "memory:", &(truce_store_options){.relaxed = *name},
                              &store, &error),
             error);
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        bson_t *index = test_bson(indexes[i].definition);

        CHECK_OK(truce_index_create(store, "c", index, &error), error);
        bson_destroy(index);
    }
    return store;
}

/* One of few, of which equal ones have equal bytes. */
static void append_scalar(bson_t *to, const char *key)
{
    static const char *const texts[] = {"", "a", "b"};

    if (BELOW(8) == 0)
        bson_append_utf8(to, key, -1, PICK(texts), -1);
    else if (BELOW(12) == 0)
        BSON_APPEND_NULL(to, key);
    else if (BELOW(20) == 0)
        BSON_APPEND_MAXKEY(to, key);
    else
        BSON_APPEND_INT32(to, key, (int32_t)BELOW(9));
}

static void append_any(bson_t *to, const char *key)
{
    bson_t array;

    if (BELOW(4)) {
        append_scalar(to, key);
        return;
    }
    BSON_APPEND_ARRAY_BEGIN(to, key, &array);
    for (int i = (int)BELOW(4); i > 0; i--)
        append_scalar(&array, "0");
    bson_append_array_end(to, &array);
}

/* At most one of a and b.c is an array, as the indexes of both want it. */
static void make_document(int32_t id, bson_t *document)
{
    bool arrays = BELOW(2);
    bson_t inner;

    bson_init(document);
    BSON_APPEND_INT32(document, "_id", id);
    if (BELOW(8))
        (arrays ? append_any : append_scalar)(document, "a");
    if (BELOW(8) == 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(document, "b", &inner);
    if (BELOW(8))
        (arrays ? append_scalar : append_any)(&inner, "c");
    bson_append_document_end(document, &inner);
}

static void put(truce_store *store, const bson_t *document)
{
    const truce_write_options options = {.upsert = true};
    bson_iter_t id;
    bson_t filter = BSON_INITIALIZER;

    CHECK(bson_iter_init_find(&id, document, "_id"));
    BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&id));
    CHECK_OK(truce_update(store, "c", &filter, document, &options, NULL, &error), error);
    bson_destroy(&filter);
}

static void take(truce_store *store, int32_t id)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id));

    CHECK_OK(truce_remove(store, "c", filter, NULL, NULL, &error), error);
    bson_destroy(filter);
}

/* Stores the same documents everywhere; the file below the transaction has other versions of
 * some. */
static void fill(int count)
{
    for (int32_t id = 0; id < count; id++) {
        bson_t document, before;

        make_document(id, &before);
        make_document(id, &document);
        put(memory, &document);
        put(file, &document);
        if (BELOW(3))
            put(whole, BELOW(2) ? &before : &document);
        if (id % 7 == 0)
            put(whole, &document);
        bson_destroy(&before);
        bson_destroy(&document);
    }
}

/* Writes the differing documents in the transaction. */
static void settle(int count)
{
    for (int32_t id = 0; id < count; id++) {
        bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), wanted, there;
        truce_status status;

        CHECK_OK(truce_find_one(memory, "c", filter, NULL, &wanted, &error), error);
        status = truce_find_one(overlay, "c", filter, NULL, &there, &error);
        if (status || !bson_equal(&wanted, &there))
            put(overlay, &wanted);
        bson_destroy(&wanted);
        bson_destroy(&there);
        bson_destroy(filter);
    }
}

static void begin(int count)
{
    const struct overlay_options options = {0};

    truce__random_seed(&dice, test_seed());
    file = open_store("file");
    memory = open_store("");
    whole = open_store("under");
    fill(count);
    for (int32_t id = count; id < count + 5; id++) {
        bson_t document;

        make_document(id, &document);
        put(whole, &document);
        bson_destroy(&document);
    }
    REQUIRE_DONE(truce__overlay_open(whole, &options, &overlay, &error), error);
    settle(count);
    for (int32_t id = count; id < count + 5; id++)
        take(overlay, id);
}

static void end(void)
{
    truce_store_close(overlay);
    truce_store_close(whole);
    truce_store_close(file);
    truce_store_close(memory);
}

/* ---- questions ------------------------------------------------------------------------------ */

struct question {
    bson_t filter, hint, min, max, sort;
    truce_find_options options;
};

static void make_bound(size_t index, bson_t *bound)
{
    bson_init(bound);
    for (uint32_t i = 0; i < indexes[index].count; i++)
        append_scalar(bound, indexes[index].fields[i]);
}

static void make_question(struct question *question)
{
    static const char *const filters[] = {"{}", "{}", "{'a': {'$gt': 2}}", "{'b.c': {'$lt': 5}}",
                                          "{'a': 'a'}"};
    static const char *const sorts[] = {"{'_id': 1}", "{'a': 1, '_id': -1}", "{'b.c': -1}",
                                        "{'b.c': 1}"};
    size_t index = BELOW(sizeof indexes / sizeof indexes[0]);
    bson_t *filter = test_bson(PICK(filters)), *sort = test_bson(PICK(sorts)), *definition,
           *key_pattern;
    bson_iter_t key;

    *question = (struct question){0};
    definition = test_bson(indexes[index].definition);
    CHECK(bson_iter_init_find(&key, definition, "key"));
    bson_copy_to(filter, &question->filter);
    bson_copy_to(sort, &question->sort);
    bson_init_static(&question->hint, bson_iter_value(&key)->value.v_doc.data,
                     bson_iter_value(&key)->value.v_doc.data_len);
    key_pattern = bson_copy(&question->hint);
    question->hint = (bson_t)BSON_INITIALIZER;
    bson_concat(&question->hint, key_pattern);
    bson_destroy(key_pattern);
    make_bound(index, &question->min);
    make_bound(index, &question->max);
    question->options.hint = &question->hint;
    question->options.min = BELOW(4) ? &question->min : NULL;
    question->options.max = BELOW(4) ? &question->max : NULL;
    question->options.sort = BELOW(3) ? NULL : &question->sort;
    /* the order of equal documents in a sort is defined between min and max only */
    if (!question->options.min && !question->options.max && !bson_has_field(&question->sort, "_id"))
        question->options.sort = NULL;
    question->options.return_key = BELOW(3) == 0;
    question->options.skip = BELOW(3) ? 0 : (int64_t)BELOW(4);
    question->options.limit = BELOW(3) ? 0 : (int64_t)BELOW(8);
    bson_destroy(definition);
    bson_destroy(filter);
    bson_destroy(sort);
}

static void free_question(struct question *question)
{
    bson_destroy(&question->filter);
    bson_destroy(&question->hint);
    bson_destroy(&question->min);
    bson_destroy(&question->max);
    bson_destroy(&question->sort);
}

static void show_question(const struct question *question)
{
    bson_t *shown = BCON_NEW(
        "filter", BCON_DOCUMENT(&question->filter), "hint", BCON_DOCUMENT(&question->hint), "min",
        BCON_DOCUMENT(&question->min), "max", BCON_DOCUMENT(&question->max), "sort",
        BCON_DOCUMENT(&question->sort), "has",
        BCON_INT32(!!question->options.min + 2 * !!question->options.max +
                   4 * !!question->options.sort + 8 * question->options.return_key),
        "skip", BCON_INT64(question->options.skip), "limit", BCON_INT64(question->options.limit));
    char *json = bson_as_relaxed_extended_json(shown, NULL);

    printf("    %s\n", json);
    bson_free(json);
    bson_destroy(shown);
}

/* {code} or {documents: [...]} */
static void answer_of(truce_store *store, const struct question *question, bson_t *answer)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status =
        truce_find(store, "c", &question->filter, &question->options, &cursor, &error);
    bson_t array;

    bson_init(answer);
    if (status) {
        BSON_APPEND_INT32(answer, "code", (int32_t)error.code);
        return;
    }
    BSON_APPEND_ARRAY_BEGIN(answer, "documents", &array);
    do {
        CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
        if (document)
            BSON_APPEND_DOCUMENT(&array, "", document);
    } while (document);
    bson_append_array_end(answer, &array);
    truce_cursor_close(cursor);
}

static int compare_documents(const void *one, const void *other)
{
    const bson_t *a = *(bson_t *const *)one, *b = *(bson_t *const *)other;

    return bson_compare(a, b);
}

/* The documents of an answer in an order of their own, so that answers compare as sets. */
static void order_answer(bson_t *answer)
{
    bson_t *documents[200], ordered = BSON_INITIALIZER, array;
    size_t count = 0;
    bson_iter_t iter, inner;

    if (!bson_iter_init_find(&iter, answer, "documents") || !bson_iter_recurse(&iter, &inner))
        return;
    while (bson_iter_next(&inner) && count < sizeof documents / sizeof *documents) {
        const uint8_t *data;
        uint32_t size;

        bson_iter_document(&inner, &size, &data);
        documents[count++] = bson_new_from_data(data, size);
    }
    qsort(documents, count, sizeof *documents, compare_documents);
    BSON_APPEND_ARRAY_BEGIN(&ordered, "documents", &array);
    for (size_t i = 0; i < count; i++) {
        BSON_APPEND_DOCUMENT(&array, "", documents[i]);
        bson_destroy(documents[i]);
    }
    bson_append_array_end(&ordered, &array);
    bson_destroy(answer);
    bson_steal(answer, &ordered);
}

static bool check_same(truce_store *store, const struct question *question, bool in_order)
{
    bson_t wanted, given;
    bool same;

    answer_of(memory, question, &wanted);
    answer_of(store, question, &given);
    if (!in_order) {
        order_answer(&wanted);
        order_answer(&given);
    }
    same = CHECK_BSON(&wanted, &given);
    if (!same)
        show_question(question);
    bson_destroy(&wanted);
    bson_destroy(&given);
    return same;
}

/* Documents that are equal by the sort may come in any order. */
static bool has_one_order(const struct question *question)
{
    if (question->options.sort)
        return bson_has_field(&question->sort, "_id");
    return question->options.min || question->options.max;
}

TEST(a_file_and_a_transaction_return_the_results_of_memory)
{
    long left = test_scale("TRUCE_SPAN_QUESTIONS", 1500);
    bool same = true;

    begin(120);
    while (same && left--) {
        struct question question;
        bool in_order;

        make_question(&question);
        in_order = has_one_order(&question);
        /* a part of an answer without one order may be any part */
        if (in_order || (!question.options.skip && !question.options.limit)) {
            same = check_same(file, &question, in_order);
            question.options.show_record_id = true;
            same = check_same(file, &question, in_order) && same;
            question.options.show_record_id = false;
        }
        question.options.return_key = !question.options.sort;
        if (in_order)
            same = check_same(overlay, &question, true) && same;
        free_question(&question);
    }
    end();
}

/* Without arrays, so that the index could give the order, walked backward. */
TEST(returns_equal_documents_of_a_sort_in_index_order)
{
    bson_t *hint = test_bson("{'a': 1}"), *min = test_bson("{'a': 0}"),
           *sort = test_bson("{'a': -1}");
    const truce_find_options options = {.hint = hint, .min = min, .sort = sort};
    const bson_t *document = NULL;
    truce_cursor *cursor;
    bson_iter_t id;

    file = open_store("file");
    memory = open_store("");
    for (int i = 0; i < 2; i++) {
        int32_t order = 0;

        for (int32_t number = 1; number <= 4; number++) {
            bson_t *made = BCON_NEW("_id", BCON_INT32(number), "a", BCON_INT32(number % 2));

            put(i ? file : memory, made);
            bson_destroy(made);
        }
        REQUIRE_DONE(truce_find(i ? file : memory, "c", NULL, &options, &cursor, &error), error);
        do {
            CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
            if (document && bson_iter_init_find(&id, document, "_id"))
                order = order * 10 + bson_iter_int32(&id);
        } while (document);
        CHECK_INT(order, ==, 1324);
        truce_cursor_close(cursor);
    }
    truce_store_close(file);
    truce_store_close(memory);
    bson_destroy(hint);
    bson_destroy(min);
    bson_destroy(sort);
}

/* More entries than one part of a read. */
TEST(a_part_of_many_keys_has_each_document_once)
{
    enum { MANY = 5000 };
    bson_t *hint = test_bson("{'a': 1}"), *min = test_bson("{'a': 10}");
    const truce_find_options options = {.hint = hint, .min = min};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    int32_t found = 0;

    file = open_store("file");
    for (int32_t id = 0; id < MANY; id++) {
        bson_t *made = BCON_NEW("_id", BCON_INT32(-id), "a", "[", BCON_INT32(id),
                                BCON_INT32(id + 2500), BCON_INT32(id + 1), "]");

        CHECK_OK(truce_insert(file, "c", made, &(truce_write_options){.relaxed = true}, &error),
                 error);
        bson_destroy(made);
    }
    REQUIRE_DONE(truce_find(file, "c", NULL, &options, &cursor, &error), error);
    do {
        CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
        found += document != NULL;
    } while (document);
    CHECK_INT(found, ==, MANY); /* the first ten have greater keys, too */
    truce_cursor_close(cursor);
    truce_store_close(file);
    bson_destroy(hint);
    bson_destroy(min);
}

static truce_status find_span(truce_store *store)
{
    bson_t *hint = test_bson("{'a': 1}"), *min = test_bson("{'a': 2}"), found;
    const truce_find_options options = {.hint = hint, .min = min};
    truce_status status = truce_find_one(store, "c", NULL, &options, &found, &error);

    bson_destroy(&found);
    bson_destroy(hint);
    bson_destroy(min);
    return status;
}

TEST(conflicts_with_a_change_in_a_range_that_was_read)
{
    const struct overlay_options checked = {0}, snapshot = {.snapshot = true};
    bson_t *one = test_bson("{'_id': 1, 'a': 5}"), *two = test_bson("{'_id': 2, 'a': 1}"),
           *three = test_bson("{'_id': 3, 'a': 1}");

    file = open_store("file");
    put(file, one);
    for (int i = 0; i < 2; i++) {
        REQUIRE_DONE(truce__overlay_open(file, i ? &snapshot : &checked, &overlay, &error), error);
        CHECK_OK(find_span(overlay), error);
        put(overlay, two);
        put(file, three);
        take(file, 3);
        CHECK_STATUS(i ? TRUCE_OK : TRUCE_CONFLICT,
                     truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
        truce_store_close(overlay);
    }
    truce_store_close(file);
    bson_destroy(one);
    bson_destroy(two);
    bson_destroy(three);
}

TEST(records_are_not_shown_in_a_transaction)
{
    const struct overlay_options options = {0};
    truce_cursor *cursor = NULL;

    file = open_store("file");
    REQUIRE_DONE(truce__overlay_open(file, &options, &overlay, &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_find(overlay, "c", NULL, &(truce_find_options){.show_record_id = true},
                            &cursor, &error),
                 error);
    CHECK_INT(error.code, ==, CODE_NOT_IN_TRANSACTION);
    truce_store_close(overlay);
    truce_store_close(file);
}
