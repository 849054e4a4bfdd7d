/*
 * Every delivery order of up to six operations, with any number of repeats, for every form and
 * layout, against the in-order run.
 *
 * The action of an application depends on the document alone. So all orders are covered by walking
 * the graph of (which operations were delivered, what the document is): from every state that can
 * be reached, every operation is delivered, also those that were before.
 */
#include "tests/support/set_model.h"
#include "tests/support/tutorial.h"

#define OPERATIONS_MAX 6
#define STATES_MAX     20000

enum form { PIPELINE, CLASSIC, BATCH, BATCH_PAIRS, ELEMENT, ELEMENT_BATCH, FORMS };
static const char *const form_names[] = {"pipeline",       "classic", "batch",
                                         "batches of two", "element", "element batch"};

struct state {
    unsigned delivered;
    bson_t *documents; /* array, without _id */
};

struct walk {
    truce_store *store;
    truce_set *set;
    enum form form;
    const struct model_operation *operations;
    int count, names;
    struct state *states;
    int states_count;
};

static const char *collection_of(const struct walk *walk)
{
    return walk->form >= ELEMENT ? "students.classes" : "students";
}

/* All documents of the set's collection, without their _ids. */
static bson_t *save(const struct walk *walk)
{
    bson_t *array = bson_new();
    bson_t projection = BSON_INITIALIZER, sort = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection, .sort = &sort};
    truce_cursor *cursor;
    const bson_t *document;
    bson_error_t error;
    char key[16];
    int n = 0;

    bson_append_int32(&projection, "_id", -1, 0);
    bson_append_int32(&sort, "name", -1, 1);
    if (CHECK_OK(truce_find(walk->store, collection_of(walk), NULL, &options, &cursor, &error),
                 error)) {
        while (!truce_cursor_next(cursor, &document, &error) && document) {
            snprintf(key, sizeof key, "%d", n++);
            bson_append_document(array, key, -1, document);
        }
        truce_cursor_close(cursor);
    }
    bson_destroy(&projection);
    bson_destroy(&sort);
    return array;
}

static void restore(const struct walk *walk, const bson_t *documents)
{
    truce_write_options options = {.multi = true};
    bson_t none = BSON_INITIALIZER;
    bson_iter_t iter;
    bson_error_t error;

    CHECK_OK(truce_remove(walk->store, collection_of(walk), &none, &options, NULL, &error), error);
    bson_iter_init(&iter, documents);
    while (bson_iter_next(&iter)) {
        const uint8_t *data;
        uint32_t length;
        bson_t document;

        bson_iter_document(&iter, &length, &data);
        bson_init_static(&document, data, length);
        CHECK_OK(truce_insert(walk->store, collection_of(walk), &document, NULL, &error), error);
    }
}

static void add_state(struct walk *walk, unsigned delivered)
{
    bson_t *documents = save(walk);

    for (int i = 0; i < walk->states_count; i++) {
        if (walk->states[i].delivered == delivered &&
            bson_equal(walk->states[i].documents, documents)) {
            bson_destroy(documents);
            return;
        }
    }
    if (walk->states_count == STATES_MAX)
        abort();
    walk->states[walk->states_count++] = (struct state){delivered, documents};
}

static truce_set_outcome expected(const struct walk *walk, unsigned before, int i)
{
    const struct model_operation *operation = &walk->operations[i];
    const struct model_operation *standing, *after;
    bool given[OPERATIONS_MAX];

    for (int k = 0; k < walk->count; k++)
        given[k] = before >> k & 1;
    standing =
        model_winner(walk->operations, (size_t)walk->count, given, operation->key, operation->name);
    given[i] = true;
    after =
        model_winner(walk->operations, (size_t)walk->count, given, operation->key, operation->name);
    if (standing == operation)
        return TRUCE_SET_DUPLICATE;
    return after == operation ? TRUCE_SET_APPLIED : TRUCE_SET_STALE;
}

static void check_state(struct walk *walk, unsigned delivered)
{
    bool given[OPERATIONS_MAX];
    bson_t none = BSON_INITIALIZER;
    bson_error_t error;
    int64_t documents = 0;

    for (int k = 0; k < walk->count; k++)
        given[k] = delivered >> k & 1;
    model_check(walk->set, walk->operations, (size_t)walk->count, given, 1, walk->names, true,
                form_names[walk->form]);
    CHECK_OK(truce_count(walk->store, collection_of(walk), &none, NULL, &documents, &error), error);
    CHECK_INT(documents, <=, walk->form >= ELEMENT ? walk->names : 1);
}

static void deliver_one(struct walk *walk, const struct state *from, int i)
{
    truce_set_result results[2] = {{0}};
    int chosen[2] = {i, i};
    bson_error_t error;
    char shown[200];

    restore(walk, from->documents);
    if (walk->form == BATCH || walk->form == ELEMENT_BATCH) {
        CHECK_OK(model_apply_batch(walk->set, walk->operations, chosen, 2, results, &error), error);
        CHECK_INT(results[1].outcome, ==, TRUCE_SET_DUPLICATE);
    } else {
        CHECK_OK(model_apply(walk->set, &walk->operations[i], &results[0].outcome, &error), error);
    }
    if (results[0].outcome != expected(walk, from->delivered, i))
        test_fail(__FILE__, __LINE__, "%s: %s: operation %d after %x is %s", form_names[walk->form],
                  model_show(walk->operations, (size_t)walk->count, NULL, shown, sizeof shown), i,
                  from->delivered, truce_set_outcome_name(results[0].outcome));
    check_state(walk, from->delivered | 1u << i);
    add_state(walk, from->delivered | 1u << i);
}

static void deliver_pair(struct walk *walk, const struct state *from, int i, int k)
{
    truce_set_result results[2] = {{0}};
    int chosen[2] = {i, k};
    bson_error_t error;

    restore(walk, from->documents);
    CHECK_OK(model_apply_batch(walk->set, walk->operations, chosen, 2, results, &error), error);
    check_state(walk, from->delivered | 1u << i | 1u << k);
    add_state(walk, from->delivered | 1u << i | 1u << k);
}

static void walk_all(struct walk *walk)
{
    walk->states = bson_malloc(STATES_MAX * sizeof *walk->states);
    walk->states_count = 0;
    walk->states[walk->states_count++] = (struct state){0, bson_new()};
    for (int at = 0; at < walk->states_count && test_failures() < 5; at++) {
        struct state from = walk->states[at];

        for (int i = 0; i < walk->count; i++) {
            if (walk->form != BATCH_PAIRS)
                deliver_one(walk, &from, i);
            for (int k = 0; k < walk->count && walk->form == BATCH_PAIRS; k++)
                deliver_pair(walk, &from, i, k);
        }
    }
    for (int i = 0; i < walk->states_count; i++)
        bson_destroy(walk->states[i].documents);
    bson_free(walk->states);
}

static void walk_form(const struct model_operation *operations, int count, int names,
                      enum form form, truce_store *store)
{
    struct walk walk = {
        .store = store, .form = form, .operations = operations, .count = count, .names = names};

    walk.set = tutorial_set(
        store, &(truce_set_options){
                   .form = form == CLASSIC ? TRUCE_SET_FORM_CLASSIC : TRUCE_SET_FORM_AUTO,
                   .layout = form >= ELEMENT ? TRUCE_SET_BY_ELEMENT : TRUCE_SET_IN_DOCUMENT});
    walk_all(&walk);
    truce_set_free(walk.set);
}

static truce_store *open_memory(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    return store;
}

/* adds and removes of one name, numbers 1 to count, by the bits of `kinds` */
static void make_kinds(struct model_operation *operations, int count, unsigned kinds)
{
    for (int i = 0; i < count; i++)
        operations[i] = (struct model_operation){.add = kinds >> i & 1, .seq = i + 1, .key = 1};
}

static void every_pattern(enum form form, int count)
{
    struct model_operation operations[OPERATIONS_MAX];
    truce_store *store = open_memory();

    count -= (int)test_scale("TRUCE_ORDERS_LESS", 0);
    for (unsigned kinds = 0; kinds < 1u << count && !test_failures(); kinds++) {
        make_kinds(operations, count, kinds);
        walk_form(operations, count, 1, form, store);
    }
    truce_store_close(store);
}

TEST(agrees_on_every_order_of_six_operations_in_the_pipeline_form)
{
    every_pattern(PIPELINE, 6);
}

TEST(agrees_on_every_order_of_six_operations_in_the_classic_form)
{
    every_pattern(CLASSIC, 6);
}

TEST(agrees_on_every_order_of_six_operations_in_batches)
{
    every_pattern(BATCH, 6);
}

TEST(agrees_on_every_order_of_five_operations_in_batches_of_two)
{
    every_pattern(BATCH_PAIRS, 5);
}

TEST(agrees_on_every_order_of_six_operations_in_the_layout_by_element)
{
    every_pattern(ELEMENT, 6);
}

TEST(agrees_on_every_order_of_five_operations_in_batches_by_element)
{
    every_pattern(ELEMENT_BATCH, 5);
}

/* Two names, ties of an add and a remove, two sources and none: what the single-name patterns do
 * not have. */
static const struct model_operation mixed[][OPERATIONS_MAX] = {
    {{true, 1, NULL, 1, 0},
     {false, 2, NULL, 1, 0},
     {true, 2, NULL, 1, 1},
     {true, 3, NULL, 1, 0},
     {false, 4, NULL, 1, 1},
     {true, 5, NULL, 1, 1}},
    {{true, 1, NULL, 1, 0},
     {false, 1, NULL, 1, 0},
     {true, 2, NULL, 1, 0},
     {false, 2, NULL, 1, 0},
     {false, 3, NULL, 1, 0},
     {true, 3, NULL, 1, 0}},
    {{true, 1, "a", 1, 0},
     {false, 1, "b", 1, 0},
     {false, 2, "a", 1, 0},
     {true, 2, "b", 1, 0},
     {true, 2, "a", 1, 0},
     {false, 2, "b", 1, 0}},
    {{true, 1, NULL, 1, 0},
     {false, 1, "a", 1, 0},
     {true, 1, "b", 1, 0},
     {false, 2, NULL, 1, 0},
     {true, 2, NULL, 1, 0},
     {false, 2, "a", 1, 1}},
};

TEST(agrees_on_every_order_of_mixed_names_ties_and_sources)
{
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++) {
        for (int form = 0; form < FORMS && !test_failures(); form++) {
            truce_store *store = open_memory();

            walk_form(mixed[i], OPERATIONS_MAX, 2, (enum form)form, store);
            truce_store_close(store);
        }
    }
}
