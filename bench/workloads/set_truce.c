/* Ordered sets on truce: two lists in a document, or a document for each element. */
#include <inttypes.h>
#include <string.h>

#include "bench/workloads/sets.h"

static void truce_make(const struct set_operation *o, bson_t *key, bson_t *element)
{
    bson_init(key);
    BSON_APPEND_INT64(key, "student_id", o->set);
    bson_init(element);
    BSON_APPEND_UTF8(element, "name", o->text);
}

/* Builds a batch of BATCH operations; `next` returns each one. */
static void apply_batch(struct bench_side *side,
                        void (*next)(struct bench_side *side, int64_t i, struct set_operation *o),
                        int64_t from)
{
    truce_set_operation *operations = bson_malloc0(BATCH * sizeof *operations);
    truce_set_result *results = bson_malloc0(BATCH * sizeof *results);
    bson_t *documents = bson_malloc(2 * BATCH * sizeof *documents);
    bson_error_t error;

    for (int i = 0; i < BATCH; i++) {
        struct set_operation o;

        next(side, from + i, &o);
        truce_make(&o, &documents[2 * i], &documents[2 * i + 1]);
        operations[i] = (truce_set_operation){.verb = o.remove ? TRUCE_SET_REMOVE : TRUCE_SET_ADD,
                                              .key = &documents[2 * i],
                                              .element = &documents[2 * i + 1],
                                              .seq = o.seq};
    }
    BENCH_MUST(truce_set_apply(side->local, NULL, operations, BATCH, results, &error), error);
    for (int i = 0; i < 2 * BATCH; i++)
        bson_destroy(&documents[i]);
    bson_free(documents);
    bson_free(results);
    bson_free(operations);
}

static void next_of_setup(struct bench_side *side, int64_t i, struct set_operation *o)
{
    (void)side;
    *o = (struct set_operation){.set = i / NAMES, .name = (int)(i % NAMES), .seq = i + 1};
    snprintf(o->text, sizeof o->text, "CS %d", o->name);
}

static void next_drawn(struct bench_side *side, int64_t i, struct set_operation *o)
{
    (void)i;
    sets_draw(side, o);
}

void set_truce_join(struct bench_side *side)
{
    side->local =
        truce_set_new(side->connections[0],
                      &(truce_set_options){.collection = "students",
                                           .key = "student_id",
                                           .field = "classes",
                                           .name = "name",
                                           .layout = *(const truce_set_layout *)side->form->arg});
}

void set_truce_setup(struct bench_side *side)
{
    for (int64_t from = 0; from < FILLED; from += BATCH)
        apply_batch(side, next_of_setup, from);
    sets_fill(side);
}

int64_t set_truce_one(struct bench_call *call)
{
    truce_set *sets = call->side->local;
    struct set_operation o;
    bson_t key, element;
    bson_error_t error;

    sets_draw(call->side, &o);
    truce_make(&o, &key, &element);
    if (o.remove)
        BENCH_MUST(truce_set_remove(sets, NULL, &key, &element, o.seq, NULL, &error), error);
    else
        BENCH_MUST(truce_set_add(sets, NULL, &key, &element, o.seq, NULL, &error), error);
    bson_destroy(&key);
    bson_destroy(&element);
    return 1;
}

int64_t set_truce_batch(struct bench_call *call)
{
    apply_batch(call->side, next_drawn, 0);
    return BATCH;
}

/* ---- the check ------------------------------------------------------------------------------- */

static void truce_collect(const bson_t *document, const char *list, int64_t set, bool removed,
                          struct sets_found *found)
{
    bson_iter_t at, elements, field;

    if (!bson_iter_init_find(&at, document, list) || !bson_iter_recurse(&at, &elements))
        return;
    while (bson_iter_next(&elements)) {
        const char *name = NULL;
        int64_t seq = 0;

        BENCH_CHECK(bson_iter_recurse(&elements, &field));
        while (bson_iter_next(&field)) {
            if (!strcmp(bson_iter_key(&field), "name"))
                name = bson_iter_utf8(&field, NULL);
            else if (!strcmp(bson_iter_key(&field), "seq"))
                seq = bson_iter_as_int64(&field);
        }
        BENCH_CHECK(name);
        sets_found_add(found, set, name, seq, removed);
    }
}

void set_truce_check(struct bench_side *side)
{
    struct sets_found *found = bson_malloc0(sizeof *found);

    for (int64_t set = 0; set < SETS; set++) {
        bson_t key = BSON_INITIALIZER, document;
        bson_error_t error;
        truce_status status;

        BSON_APPEND_INT64(&key, "student_id", set);
        status = truce_set_show(side->local, &key, &document, &error);
        BENCH_CHECK(status == TRUCE_OK || status == TRUCE_NOT_FOUND);
        truce_collect(&document, "classes", set, false, found);
        truce_collect(&document, "deleted_classes", set, true, found);
        bson_destroy(&key);
        bson_destroy(&document);
    }
    sets_compare(side, found);
    bson_free(found);
    truce_set_free(side->local);
}
