#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/limits.h"
#include "bson/value.h"
#include "sim/sim_run.h"

/*
 * One run of the simulator. Every client is a fiber. Its store is a decorator around the memory
 * store that all clients share. Before each call, the fiber yields to the scheduler, which offers
 * the chooser all events that can happen next:
 *
 *     step          the call is made, and the client gets the reply
 *     crash before  the client dies: the call is not made
 *     crash after   the call is made, then the client dies
 *     lose          the call is made, the result is UNKNOWN
 *     late          the call is not made yet, the result is UNKNOWN; it is made later
 *     land          a late call is made
 *     jump          time advances digest every lease
 *     plain         a program that does not use truce writes (sim_plain.c)
 *
 * A dead client unwinds, so that nothing leaks; its calls fail at once. A sleeping client can
 * continue when the store has changed since, or when no other client can; then time jumps.
 * Otherwise, time does not advance. Each client draws its ids from its own stream. Two orders of
 * events that lead to one state therefore lead to the same bytes, and that state is explored once.
 *
 * After all clients have ended, a sweep runs, the remaining late calls land, and a sweep runs
 * again. Then the run is checked (history_checker.c). At the end, nothing may be locked, and a new
 * commit over all documents must succeed (liveness).
 */

const char *const truce__sim_action_names[] = {"step",       "crash before", "crash after",
                                               "lose reply", "reply late",   "land",
                                               "time jumps", "plain write"};

/* ---- the environment ------------------------------------------------------------------------- */

/* Returns the simulated time. The times that a client has read are a part of its state, like the
 * results of its calls. */
static int64_t scheduler_now_ms(struct run *run)
{
    if (run->current)
        run->current->local = truce__sim_mix(run->current->local, (uint64_t)run->now_ms);
    return run->now_ms;
}

static int64_t wall_ms(void *arg)
{
    return scheduler_now_ms(arg);
}

static int64_t monotonic_ns(void *arg)
{
    struct run *run = arg;

    if (run->current && run->current->dead)
        /* A time after every deadline, so that a dead client ends its waits. */
        return INT64_MAX / 2;
    return run->now_ms * 1000000;
}

static uint64_t scheduler_draw_entropy(void *arg)
{
    struct run *run = arg;
    struct client *client = run->current;
    /* Ids outside of clients come from a stream of their own. */
    uint64_t number = client ? (uint64_t)client->number : SIM_CLIENTS;
    uint64_t *ids = client ? &client->ids : &run->ids;

    /* The client's number is far above the count, so the streams of two clients never overlap. */
    return truce__sim_mix(truce__sim_mix((number + 1) << 40, ++*ids), 0x7472756365u);
}

static void sleep_ms(void *arg, int64_t duration_ms)
{
    struct run *run = arg;
    struct client *client = run->current;

    if (run->free_running || !client) {
        run->now_ms += duration_ms;
        return;
    }
    if (client->dead)
        return;
    client->sleeping = true;
    client->slept_at = run->changes;
    truce__fiber_yield();
    client->sleeping = false;
}

/* ---- scheduling ----------------------------------------------------------------------------- */

/* Returns a hash of the history, which is a part of the state because the checks at the end depend
 * on it. */
static uint64_t history_hash(const struct sim_history *history)
{
    uint64_t hash = (uint64_t)history->txns_count;

    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        for (int v = 0; v < history->count[d]; v++) {
            uint64_t rev = history->versions[d][v].present;

            if (history->versions[d][v].has_rev)
                memcpy(&rev, history->versions[d][v].rev.bytes, sizeof rev);
            hash = truce__sim_mix(hash, rev);
        }
    }
    for (int t = 0; t < history->txns_count; t++) {
        const struct sim_txn *txn = &history->txns[t];

        hash = truce__sim_mix(hash, (uint64_t)txn->client << 32 | (uint64_t)txn->began_at << 16 |
                                        (uint64_t)(txn->ended ? txn->ended_at : 0xffff));
        for (int d = 0; d < SIM_DOCUMENTS; d++)
            hash = truce__sim_mix(hash, (uint64_t)(txn->read[d] + 1));
    }
    return hash;
}

/* Returns a hash of the state of the run: time, history, the documents of the collections below,
 * clients, late calls, and the numbers of injected faults. Two runs with the same hash have the
 * same future, except runs of trees and copies, whose collections are not included. */
static uint64_t scheduler_state_of(const struct run *run)
{
    static const char *const collections[] = {
        "docs",     "truce_commits", "employees",   "posts",   "posts.revisions",
        "students", "others",        "truce_queue", "effects", "book",
        "orders",   "moves",         "accounts"};
    int collections_count =
        run->scenario->subject == SIM_COMMITS ? 2 : (int)(sizeof collections / sizeof *collections);
    uint64_t state = truce__sim_mix((uint64_t)run->now_ms, history_hash(&run->history));
    bson_error_t error;

    for (int i = 0; i < collections_count; i++) {
        truce_cursor *cursor = NULL;
        const bson_t *document = NULL;
        uint64_t sum = 0;

        truce_assert(!truce_find(run->inner, collections[i], NULL, NULL, &cursor, &error));
        while (!truce_cursor_next(cursor, &document, &error) && document)
            /* A sum, so the hash does not depend on the order of the documents. */
            sum += truce__sim_mix(truce__sim_digest(document), 99);
        truce_cursor_close(cursor);
        state = truce__sim_mix(state, sum);
    }
    for (int c = 0; c < run->scenario->clients_count; c++) {
        const struct client *client = &run->clients[c];
        bool fresh = client->sleeping && client->slept_at != run->changes;

        state = truce__sim_mix(state, truce__sim_mix(client->local, client->ids));
        state = truce__sim_mix(state, (uint64_t)(client->ended | client->dead << 1 |
                                                 client->sleeping << 2 | fresh << 3));
    }
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        const truce_write *write = &run->late[i].write;

        if (run->late[i].used)
            state = truce__sim_mix(
                state, truce__sim_mix(write->filter ? truce__sim_digest(write->filter) : 5,
                                      write->document ? truce__sim_digest(write->document) : 6));
    }
    return truce__sim_mix(truce__sim_mix(state, (uint64_t)run->result->crashes << 8 |
                                                    (uint64_t)run->result->jumps |
                                                    (uint64_t)run->result->plains << 16),
                          (uint64_t)run->result->losses << 8 | (uint64_t)run->result->lates);
}

static void scheduler_offer(struct sim_choice *choices, int *count, enum sim_action action,
                            int index)
{
    choices[(*count)++] = (struct sim_choice){action, index};
}

/* Appends the events that can happen to a client's pending call. A sleeping client can only take a
 * step, and only if the store has changed since it fell asleep. */
static void offer_client(const struct run *run, const struct client *client,
                         struct sim_choice *choices, int *count)
{
    const struct sim_scenario *scenario = run->scenario;

    if (client->sleeping && client->slept_at == run->changes)
        return;
    scheduler_offer(choices, count, SIM_STEP, client->number);
    if (client->sleeping)
        return;
    if (run->result->crashes < scenario->crashes) {
        scheduler_offer(choices, count, SIM_CRASH_BEFORE, client->number);
        scheduler_offer(choices, count, SIM_CRASH_AFTER, client->number);
    }
    if (run->result->losses < scenario->losses)
        scheduler_offer(choices, count, SIM_LOSE, client->number);
    /* Another client may have used the last slot since this client yielded. */
    if (run->result->lates < scenario->lates && client->may_be_late && truce__sim_free_late(run))
        scheduler_offer(choices, count, SIM_LATE, client->number);
}

/* Lists the events that can happen next. Returns 0 if all clients have ended. If all of them sleep,
 * only a jump in time is possible. */
static int gather_choices(struct run *run, struct sim_choice *choices)
{
    int count = 0, alive = 0;

    for (int c = 0; c < run->scenario->clients_count; c++) {
        if (run->clients[c].ended)
            continue;
        alive++;
        offer_client(run, &run->clients[c], choices, &count);
    }
    if (!alive)
        return 0;
    if (count == 0) { /* All clients wait, so time must advance. */
        run->changes++;
        scheduler_offer(choices, &count, SIM_JUMP, 0);
        return count;
    }
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        if (run->late[i].used)
            scheduler_offer(choices, &count, SIM_LAND, i);
    }
    if (run->result->jumps < run->scenario->jumps)
        scheduler_offer(choices, &count, SIM_JUMP, 0);
    for (int position = 0; position < truce__sim_plains(run); position++)
        scheduler_offer(choices, &count, SIM_PLAIN, position);
    return count;
}

static void scheduler_resume(struct run *run, struct client *client)
{
    run->current = client;
    if (truce__fiber_resume(client->fiber)) {
        client->ended = true;
        truce__fiber_free(client->fiber);
        client->fiber = NULL;
    }
    run->current = NULL;
}

static void count_fault(struct sim_result *result, enum sim_action action)
{
    result->crashes += action == SIM_CRASH_BEFORE || action == SIM_CRASH_AFTER;
    result->losses += action == SIM_LOSE;
    result->lates += action == SIM_LATE;
    result->jumps += action == SIM_JUMP;
    result->plains += action == SIM_PLAIN;
}

static void scheduler_act(struct run *run, struct sim_choice choice)
{
    if (run->trace && choice.action >= SIM_LAND)
        fprintf(run->trace, "  -- %s %d\n", truce__sim_action_names[choice.action], choice.index);
    count_fault(run->result, choice.action);
    if (choice.action == SIM_LAND) {
        truce__sim_land(run, &run->late[choice.index]);
    } else if (choice.action == SIM_PLAIN) {
        truce__sim_plain(run, choice.index);
    } else if (choice.action == SIM_JUMP) {
        run->now_ms += JUMP_MS;
        run->changes++; /* Sleeping clients check again what they wait for. */
    } else {
        run->clients[choice.index].action = choice.action;
        scheduler_resume(run, &run->clients[choice.index]);
    }
}

/* Unwinds all clients. Their calls no longer reach the store. */
static void kill_all(struct run *run)
{
    for (int c = 0; c < run->scenario->clients_count; c++) {
        while (!run->clients[c].ended) {
            run->clients[c].dead = true;
            scheduler_resume(run, &run->clients[c]);
        }
    }
}

/* Lets the chooser decide until all clients have ended. If the chooser ends the run, or the run has
 * too many steps, kills all clients. */
static void scheduler_run_steps(struct run *run)
{
    struct sim_choice choices[SIM_CLIENTS * 5 + SIM_LATE_MAX + 1 + SIM_DOCUMENTS];

    for (;;) {
        int count = gather_choices(run, choices), chosen;

        if (!count)
            return;
        if (run->result->steps++ >= STEPS_MAX) {
            run->result->violation = "the run does not end (livelock)";
            break;
        }
        chosen = run->chooser->choose(run->chooser, choices, count,
                                      run->chooser->wants_state ? scheduler_state_of(run) : 0);
        if (chosen < 0) {
            run->result->cut = true;
            break;
        }
        truce_assert(chosen < count);
        scheduler_act(run, choices[chosen]);
    }
    kill_all(run);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void declare_keys(struct run *run)
{
    static const char *const fields[] = {"u", "_keys"};
    bson_error_t error;

    for (int i = 0; i < 2; i++) {
        bson_t *index = BCON_NEW("key", "{", fields[i], BCON_INT32(1), "}", "unique",
                                 BCON_BOOL(true), "sparse", BCON_BOOL(true));

        truce_assert(!truce_index_create(run->inner, "docs", index, &error));
        bson_destroy(index);
    }
}

/* Opens the store of the run, and creates the indexes, the horizon, and the documents that exist at
 * the start. */
static void insert_documents(struct run *run)
{
    bson_error_t error;
    bson_t *index = BCON_NEW("key", "{", "_intent", BCON_INT32(1), "}", "sparse", BCON_BOOL(true));
    bson_t *keys = BCON_NEW("key", "{", "key", BCON_INT32(1), "}", "sparse", BCON_BOOL(true),
                            "unique", BCON_BOOL(true));
    bson_t *horizon = BCON_NEW("_id", BCON_UTF8("horizon"), "time", BCON_INT64(INT64_MIN));

    truce_assert(!truce_store_open("memory:", NULL, &run->inner, &error));
    truce_assert(!truce_index_create(run->inner, "docs", index, &error));
    truce_assert(!truce_index_create(run->inner, "truce_commits", keys, &error));
    truce_assert(!truce_insert(run->inner, "truce_commits", horizon, NULL, &error));
    if (run->scenario->keyed)
        declare_keys(run);
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        char text[2] = {(char)('a' + d), 0};
        bson_t *document = BCON_NEW("_id", BCON_UTF8(text), "n", BCON_INT32(0));
        int key = run->scenario->keyed ? run->scenario->keys[d] : 0;

        if (key)
            BSON_APPEND_INT32(document, "u", key);
        if (key && !run->scenario->bare[d])
            BCON_APPEND(document, "_keys", "[", "{", "i", BCON_UTF8("u_1"), "v", "[",
                        BCON_INT32(key), "]", "}", "]");
        if (!run->scenario->missing[d])
            truce_assert(!truce_insert(run->inner, "docs", document, NULL, &error));
        bson_destroy(document);
    }
    bson_destroy(index);
    bson_destroy(keys);
    bson_destroy(horizon);
}

/* Starts the clients, and runs each of them to its first call. The remaining stores are
 * initialized, too, because the sweeper uses the last one. */
static void start_clients(struct run *run)
{
    for (int c = 0; c < SIM_CLIENTS; c++) {
        struct client *client = &run->clients[c];

        client->store.ops = &truce__sim_store_ops;
        client->store.capabilities =
            run->inner->capabilities &
            ~(uint32_t)(TRUCE_CAN_SNAPSHOT_READ | TRUCE_CAN_WAIT | TRUCE_CAN_REWRITE);
        if (run->scenario->clients[c].journal)
            client->store.capabilities &= ~(uint32_t)TRUCE_CAN_ATOMIC_BULK;
        if (run->scenario->clients[c].values)
            client->store.capabilities &= ~(uint32_t)TRUCE_CAN_COMPARE;
        client->run = run;
        client->number = c;
        if (c >= run->scenario->clients_count) {
            client->ended = true;
            continue;
        }
        client->script = &run->scenario->clients[c];
        client->fiber = truce__fiber_new(truce__sim_client, client);
        client->action = SIM_STEP;
        scheduler_resume(run, client); /* Runs the client to its first call. */
    }
}

static void sweep_until_quiet(struct run *run)
{
    /* The sweeper is a client that no scenario uses. */
    struct client *sweeper = &run->clients[SIM_CLIENTS - 1];
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error = {0};

    sweeper->txn = -1;
    for (int i = 0; i < 3; i++) {
        run->now_ms += JUMP_MS;
        if (truce_sweep(&sweeper->store, &options, &report, &error)) {
            run->result->violation = "the sweep fails";
            snprintf(run->result->detail, sizeof run->result->detail, "%s", error.message);
        }
    }
}

static int64_t scheduler_count_of(struct run *run, const char *collection, bson_t *filter)
{
    bson_error_t error;
    int64_t count = -1;

    truce_assert(!truce_count(run->inner, collection, filter, NULL, &count, &error));
    bson_destroy(filter);
    return count;
}

/* Checks that nothing is locked or in progress, and that a new commit over all documents
 * succeeds. */
static const char *check_liveness(struct run *run)
{
    static const struct sim_script all = {
        .kind = SIM_JOURNAL, .ops = {SIM_REQUIRE, SIM_REQUIRE, SIM_REQUIRE}, .tries = 1};
    static const char *const held[] = {"docs",     "employees",   "posts",   "posts.revisions",
                                       "students", "truce_queue", "effects", "book",
                                       "orders",   "moves",       "accounts"};
    struct client *client = &run->clients[0];
    struct sim_txn txn = {.script = &all};
    bson_error_t error;

    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        if (scheduler_count_of(run, held[i],
                               BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}")))
            return "a document stays locked";
    }
    if (run->scenario->keyed && truce__history_keys(run->inner, run->scenario->bare))
        return truce__history_keys(run->inner, run->scenario->bare);
    if (scheduler_count_of(run, "truce_commits",
                           BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"),
                                    BCON_UTF8("committed"), "]", "}")))
        return "a commit never ends";
    if (scheduler_count_of(
            run, "truce_commits",
            BCON_NEW("state", BCON_UTF8("aborted"), "key", "{", "$exists", BCON_BOOL(true), "}")))
        return "an aborted commit keeps its key";
    client->dead = false;
    client->local = 0;
    if (truce__sim_commit(client, &txn, &error))
        return "a new commit does not succeed";
    return NULL;
}

/* Ends a run: sweeps, makes the remaining late calls, and sweeps again. Then checks the history,
 * the plain writes, the pattern, and liveness, in this order, up to the first violation. */
static void scheduler_finish(struct run *run)
{
    struct sim_result *result = run->result;

    run->free_running = true;
    sweep_until_quiet(run);
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        if (run->late[i].used)
            truce__sim_land(run, &run->late[i]);
    }
    sweep_until_quiet(run);
    if (!result->violation)
        result->violation =
            truce__history_check(&run->history, result->detail, sizeof result->detail);
    if (!result->violation)
        result->violation = run->plain_wrong;
    if (!result->violation && run->scenario->subject != SIM_COMMITS)
        result->violation = truce__patterns_check(run, result->detail, sizeof result->detail);
    if (!result->violation)
        result->violation = check_liveness(run);
    for (int t = 0; t < run->history.txns_count; t++) {
        const struct sim_txn *txn = &run->history.txns[t];

        result->committed += txn->ended && txn->status == TRUCE_OK;
        result->conflicts += txn->ended && txn->status == TRUCE_CONFLICT;
        result->unknown += txn->ended && txn->status == TRUCE_UNKNOWN;
    }
}

void truce__sim_run(const struct sim_scenario *scenario, struct sim_chooser *chooser, FILE *trace,
                    struct sim_result *result)
{
    struct run *run = bson_malloc0(sizeof *run);
    struct environment environment = {run, wall_ms, monotonic_ns, sleep_ms, scheduler_draw_entropy,
                                      NULL};
    const struct environment *before = truce__environment();

    truce_assert(scenario->clients_count < SIM_CLIENTS);
    memset(result, 0, sizeof *result);
    run->scenario = scenario;
    run->chooser = chooser;
    run->result = result;
    run->trace = trace;
    run->now_ms = 1000000;
    truce__environment_use(&environment);
    insert_documents(run);
    run->history.keyed = scenario->keyed;
    truce__history_observe(&run->history, run->inner, -1, NULL);
    if (scenario->subject != SIM_COMMITS)
        truce__patterns_begin(run);
    start_clients(run);
    scheduler_run_steps(run);
    if (!result->cut && !run->history.overflow)
        scheduler_finish(run);
    for (int i = 0; i < SIM_LATE_MAX; i++)
        truce__sim_drop_late(&run->late[i]);
    for (int c = 0; c < SIM_CLIENTS; c++)
        if (run->clients[c].store.ops)
            truce_store_close(&run->clients[c].store);
    truce_store_close(run->inner);
    truce__environment_use(before);
    if (trace && result->violation)
        fprintf(trace, "VIOLATION: %s (%s)\n", result->violation, result->detail);
    bson_free(run);
}
