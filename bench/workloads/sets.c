#include "bench/workloads/sets.h"

#include <inttypes.h>
#include <string.h>

/* Numbers are out of order within this distance. */
#define BLOCK 64

static void sets_expect(struct sets_state *state, const struct set_operation *o)
{
    atomic_int_fast64_t *winner = &state->winners[o->set][o->name];
    int_fast64_t mine = o->seq * 2 + o->remove, seen = atomic_load(winner);

    while (seen < mine && !atomic_compare_exchange_weak(winner, &seen, mine))
        ;
}

void sets_fill(struct bench_side *side)
{
    struct sets_state *state = side->state;

    for (int64_t i = 0; i < FILLED; i++)
        atomic_store(&state->winners[i / NAMES][i % NAMES], (i + 1) * 2);
    atomic_store(&state->next, FILLED);
}

void sets_draw(struct bench_side *side, struct set_operation *o)
{
    struct sets_state *state = side->state;
    int64_t n = atomic_fetch_add(&state->next, 1);

    *o = (struct set_operation){.set = (int64_t)bench_random(SETS),
                                .name = (int)bench_random(NAMES),
                                .seq = 1 + n / BLOCK * BLOCK + n * 37 % BLOCK,
                                .remove = bench_random(3) == 0};
    snprintf(o->text, sizeof o->text, "CS %d", o->name);
    sets_expect(state, o);
}

void sets_found_add(struct sets_found *found, int64_t set, const char *name, int64_t seq,
                    bool removed)
{
    int number = (int)strtol(name + 3, NULL, 10);

    BENCH_CHECK(set >= 0 && set < SETS && number >= 0 && number < NAMES);
    BENCH_CHECK(found->winners[set][number] == 0);
    found->winners[set][number] = seq * 2 + removed;
}

void sets_compare(struct bench_side *side, const struct sets_found *found)
{
    struct sets_state *state = side->state;

    BENCH_CHECK(atomic_load(&state->next) == FILLED + side->operations);
    for (int64_t set = 0; set < SETS; set++) {
        for (int name = 0; name < NAMES; name++)
            BENCH_CHECK(found->winners[set][name] == atomic_load(&state->winners[set][name]));
    }
}

static const truce_set_layout in_document = TRUCE_SET_IN_DOCUMENT,
                              by_element = TRUCE_SET_BY_ELEMENT;

const struct bench_workload workload_set_apply = {
    .name = "set_apply",
    .on_servers = true,
    .title = "ordered sets: apply one operation, out of order",
    .unit = "operations",
    .state_size = sizeof(struct sets_state),
    .aim = 1.2,
    .aim_jsonb = 3,
    .aim_serve = 16000,
    .forms = {
        {"truce", NULL, set_truce_setup, set_truce_one, set_truce_check, &in_document,
         set_truce_join},
        {"truce", "elements", set_truce_setup, set_truce_one, set_truce_check, &by_element,
         set_truce_join},
        {"postgresql", NULL, set_rows_setup, set_rows_one, set_rows_check},
        {"postgresql", "jsonb", set_jsonb_setup, set_jsonb_one, set_jsonb_check},
        {"sqlite", NULL, set_rows_setup, set_rows_one, set_rows_check},
        {"redis", NULL, set_redis_setup, set_redis_one, set_redis_check},
        {"mongodb", NULL, set_mongo_setup, set_mongo_one, set_mongo_check},
    }};

const struct bench_workload workload_set_batch = {
    .name = "set_batch",
    .title = "ordered sets: apply operations, 1,000 in a batch",
    .unit = "operations",
    .state_size = sizeof(struct sets_state),
    .aim_rate = 200000,
    .forms = {
        {"truce", NULL, set_truce_setup, set_truce_batch, set_truce_check, &in_document,
         set_truce_join},
        {"truce", "elements", set_truce_setup, set_truce_batch, set_truce_check, &by_element,
         set_truce_join},
        {"postgresql", NULL, set_rows_setup, set_rows_batch_postgres, set_rows_check},
        {"sqlite", NULL, set_rows_setup, set_rows_batch_sqlite, set_rows_check},
        {"redis", NULL, set_redis_setup, set_redis_batch, set_redis_check},
        {"mongodb", NULL, set_mongo_setup, set_mongo_batch, set_mongo_check},
    }};
