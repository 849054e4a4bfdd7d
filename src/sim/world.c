#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/world.h"
#include "query/value.h"
#include "sim/fiber.h"
#include "sim/history.h"
#include "sim/sim.h"
#include "truce/sys/store.h"

/*
 * One run of the simulator. Every client is a fiber with a store of its own, a decorator around the
 * one memory store: each call stops before it is made and hands over to the scheduler, which offers
 * the chooser everything that could happen next:
 *
 *     step          the call is made and answered
 *     crash before  the client dies: the call is not made
 *     crash after   the call is made, then the client dies
 *     lose          the call is made, the answer is UNKNOWN
 *     late          the call is not made yet, the answer is UNKNOWN; it may land at any later time,
 * or never land          a late call is made jump          time goes on past every lease
 *
 * A dead client still unwinds, so that nothing leaks: its calls fail at once and reach nothing. A
 * sleeping client may go on when the store has changed since, or when nobody else can: then time
 * jumps. Time stands still otherwise; each client's ids come from a stream of its own: so that two
 * orders of events that lead to one state lead to the same bytes, and are explored once.
 *
 * When everybody has ended, the late calls that are left land or are dropped, a sweeper runs, and
 * the run is judged (history.c). Then nothing may be held any more, and a fresh commit over all
 * documents must go through (liveness).
 */

#define LEASE_MS    1000
#define JUMP_MS     INT64_C(5000)
#define DEADLINE_MS 1000000000u
#define STEPS_MAX   5000

struct run;

struct late_call {
    bool used, is_modify;
    int txn;
    truce_write write; /* documents are copies */
    truce_modify_options modify;
};

struct client {
    truce_store store; /* first: the decorator */
    struct run *run;
    int number;
    struct fiber *fiber;
    const struct sim_client_script *script;
    bool ended, dead, sleeping, may_be_late;
    uint64_t slept_at; /* store version when it went to sleep */
    int txn;           /* at work on */
    uint64_t ids;      /* drawn so far */
    uint64_t local;    /* hash of everything it was answered */
    enum sim_action verdict;
};

struct run {
    const struct sim_scenario *scenario;
    struct sim_chooser *chooser;
    struct sim_result *result;
    FILE *trace;
    truce_store *inner;
    struct client clients[SIM_CLIENTS];
    struct client *current;
    struct late_call late[SIM_LATE_MAX];
    struct sim_history history;
    int64_t now_ms;
    uint64_t changes;  /* writes that reached the store */
    bool free_running; /* no scheduling: setup and the end */
};

static const char *const action_names[] = {
    "step", "crash before", "crash after", "lose answer", "answer late", "land", "time jumps"};

/* ---- the world ------------------------------------------------------------------------------ */

static int64_t wall_ms(void *arg)
{
    const struct run *run = arg;

    return run->now_ms;
}

static int64_t monotonic_ns(void *arg)
{
    const struct run *run = arg;

    if (run->current && run->current->dead)
        return INT64_MAX / 2; /* past every deadline */
    return run->now_ms * 1000000;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;

    return x ^ (x >> 32);
}

static uint64_t entropy(void *arg)
{
    struct run *run = arg;
    struct client *client = run->current ? run->current : &run->clients[SIM_CLIENTS - 1];

    return mix(mix((uint64_t)client->number + 1, ++client->ids), 0x7472756365u);
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

/* ---- tracing -------------------------------------------------------------------------------- */

static const char *show(const bson_t *document, char *text, size_t size)
{
    return document ? truce__value_show(truce__value_document(document), text, size) : "";
}

static void trace_call(struct run *run, const char *verb, const char *collection,
                       const bson_t *filter, const bson_t *document)
{
    char a[400], b[600];

    if (run->trace && run->current)
        fprintf(run->trace, "  P%d %s %s %s %s [%s]\n", run->current->number, verb, collection,
                show(filter, a, sizeof a), show(document, b, sizeof b),
                action_names[run->current->verdict]);
}

/* ---- the decorator -------------------------------------------------------------------------- */

static struct client *client_of(truce_store *store)
{
    return (struct client *)store;
}

static truce_status dead(bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "this process is dead");
}

static truce_status unanswered(bson_error_t *error)
{
    return truce__fail(TRUCE_UNKNOWN, error, "no answer");
}

/* Before each call. False: it is not made, the client is dead. */
static bool before_call(struct client *client, bool may_be_late)
{
    struct run *run = client->run;

    if (client->dead)
        return false;
    if (run->free_running) {
        client->verdict = SIM_STEP;
        return true;
    }
    client->may_be_late = may_be_late;
    truce__fiber_yield();
    if (client->verdict == SIM_CRASH_BEFORE)
        client->dead = true;
    return !client->dead;
}

/* After each call that was made; `digest` of its answer. */
static truce_status after_call(struct client *client, const bson_t *filter, truce_status status,
                               uint64_t digest, bson_error_t *error)
{
    truce__history_observe(&client->run->history, client->run->inner, client->txn, filter);
    client->local = mix(client->local, mix(digest, (uint64_t)status + 77 * client->verdict));
    if (client->verdict == SIM_CRASH_AFTER) {
        client->dead = true;
        return dead(error);
    }
    return client->verdict == SIM_LOSE ? unanswered(error) : status;
}

static uint64_t digest_of(const bson_t *document)
{
    return document->len > 5 ? truce__value_hash(truce__value_document(document)) : 0;
}

struct sim_cursor {
    truce_cursor base;
    truce_cursor *inner;
    struct client *client;
};

static truce_status cursor_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct sim_cursor *cursor = (struct sim_cursor *)base;
    truce_status status = truce_cursor_next(cursor->inner, document, error);

    if (!status && *document)
        cursor->client->local = mix(cursor->client->local, digest_of(*document));
    return status;
}

static void cursor_close(truce_cursor *base)
{
    struct sim_cursor *cursor = (struct sim_cursor *)base;

    truce_cursor_close(cursor->inner);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {cursor_next, cursor_close};

static truce_status sim_find(truce_store *store, const char *collection, const bson_t *filter,
                             const truce_find_options *options, truce_cursor **made,
                             bson_error_t *error)
{
    struct client *client = client_of(store);
    struct sim_cursor *cursor;
    truce_cursor *inner = NULL;
    truce_status status;

    *made = NULL;
    if (!before_call(client, false))
        return dead(error);
    trace_call(client->run, "find", collection, filter, NULL);
    status = truce_find(client->run->inner, collection, filter, options, &inner, error);
    status = after_call(client, NULL, status, 1, error);
    if (status) {
        truce_cursor_close(inner);
        return status;
    }
    cursor = bson_malloc0(sizeof *cursor);
    cursor->base.ops = &cursor_ops;
    cursor->inner = inner;
    cursor->client = client;
    *made = &cursor->base;
    return TRUCE_OK;
}

static truce_status sim_count(truce_store *store, const char *collection, const bson_t *filter,
                              const truce_find_options *options, int64_t *count,
                              bson_error_t *error)
{
    struct client *client = client_of(store);
    truce_status status;

    if (!before_call(client, false))
        return dead(error);
    status = truce_count(client->run->inner, collection, filter, options, count, error);
    return after_call(client, NULL, status, (uint64_t)*count, error);
}

static struct late_call *free_late(struct run *run)
{
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        if (!run->late[i].used)
            return &run->late[i];
    }
    return NULL;
}

static bson_t *copy_of(const bson_t *document)
{
    return document ? bson_copy(document) : NULL;
}

static truce_status keep_late(struct client *client, const truce_write *write, bson_error_t *error)
{
    struct late_call *late = free_late(client->run);

    truce_assert(late);
    *late = (struct late_call){.used = true, .txn = client->txn, .write = *write};
    late->write.collection = bson_strdup(write->collection);
    late->write.filter = copy_of(write->filter);
    late->write.document = copy_of(write->document);
    late->write.options.array_filters = NULL;
    late->write.options.hint = NULL;
    client->local = mix(client->local, 4711);
    return unanswered(error);
}

static void drop_late(struct late_call *late)
{
    bson_free((char *)late->write.collection);
    bson_destroy((bson_t *)late->write.filter);
    bson_destroy((bson_t *)late->write.document);
    *late = (struct late_call){0};
}

static void land(struct run *run, struct late_call *late)
{
    bson_error_t error;
    bson_t document;

    run->changes++;
    if (late->is_modify) {
        truce_status status =
            truce_find_and_modify(run->inner, late->write.collection, late->write.filter,
                                  late->write.document, &late->modify, &document, NULL, &error);

        (void)status; /* nobody hears the answer */
        bson_destroy(&document);
    } else {
        truce_write_outcome outcome;
        truce_status status = truce_bulk(run->inner, &late->write, 1, NULL, &outcome, &error);

        (void)status;
        truce_write_result_release(&outcome.result);
    }
    truce__history_observe(&run->history, run->inner, late->txn, late->write.filter);
    drop_late(late);
}

static void trace_bulk(struct run *run, const truce_write *writes, size_t count)
{
    static const char *const verbs[] = {"",       "insert",  "update",
                                        "remove", "require", "require missing"};

    for (size_t i = 0; i < count; i++)
        trace_call(run, verbs[writes[i].kind], writes[i].collection, writes[i].filter,
                   writes[i].document);
}

/* No answer, or a dead caller: nothing is known of any write. */
static truce_status no_outcomes(truce_write_outcome *outcomes, size_t count, truce_status status,
                                const bson_error_t *error)
{
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        memset(&outcomes[i], 0, sizeof outcomes[i]);
        outcomes[i].status = status;
    }
    if (error)
        outcomes[0].error = *error;
    return status;
}

static truce_status sim_bulk(truce_store *store, const truce_write *writes, size_t count,
                             const truce_bulk_options *options, truce_write_outcome *outcomes,
                             bson_error_t *error)
{
    struct client *client = client_of(store);
    truce_status status;

    memset(outcomes, 0, count * sizeof *outcomes);
    if (!before_call(client, count == 1 && free_late(client->run)))
        return no_outcomes(outcomes, count, dead(error), error);
    trace_bulk(client->run, writes, count);
    if (client->verdict == SIM_LATE)
        return no_outcomes(outcomes, count, keep_late(client, &writes[0], error), error);
    client->run->changes++;
    status = truce_bulk(client->run->inner, writes, count, options, outcomes, error);
    status = after_call(client, count == 1 ? writes[0].filter : NULL, status,
                        (uint64_t)outcomes[0].result.matched, error);
    if (client->dead || client->verdict == SIM_LOSE)
        no_outcomes(outcomes, count, status, error);
    return status;
}

static truce_status sim_find_and_modify(truce_store *store, const char *collection,
                                        const bson_t *filter, const bson_t *update,
                                        const truce_modify_options *options, bson_t *document,
                                        truce_write_result *result, bson_error_t *error)
{
    struct client *client = client_of(store);
    truce_status status;

    bson_init(document);
    if (result)
        memset(result, 0, sizeof *result);
    if (!before_call(client, free_late(client->run) != NULL))
        return dead(error);
    trace_call(client->run, "find-and-modify", collection, filter, update);
    if (client->verdict == SIM_LATE) {
        truce_write write = {.collection = collection, .filter = filter, .document = update};
        struct late_call *late = free_late(client->run);

        status = keep_late(client, &write, error);
        late->is_modify = true;
        late->modify = *options;
        return status;
    }
    client->run->changes++;
    bson_destroy(document);
    status = truce_find_and_modify(client->run->inner, collection, filter, update, options,
                                   document, result, error);
    status = after_call(client, filter, status, digest_of(document), error);
    if (status) {
        bson_reinit(document);
        if (result) {
            truce_write_result_release(result);
            memset(result, 0, sizeof *result);
        }
    }
    return status;
}

static truce_status sim_read_many(truce_store *store, truce_look *looks, size_t count,
                                  bson_error_t *error)
{
    (void)store;
    (void)looks;
    (void)count;
    return truce__fail(TRUCE_INVALID, error, "the simulator's store gives no snapshots");
}

/* Indexes and collections are made before the run: asking for them again is no step. */
static truce_status sim_index_create(truce_store *store, const char *collection,
                                     const bson_t *index, bson_error_t *error)
{
    return truce_index_create(client_of(store)->run->inner, collection, index, error);
}

static truce_status sim_index_list(truce_store *store, const char *collection, bson_t *indexes,
                                   bson_error_t *error)
{
    return truce_index_list(client_of(store)->run->inner, collection, indexes, error);
}

static truce_status sim_collection_list(truce_store *store, bson_t *collections,
                                        bson_error_t *error)
{
    return truce_collection_list(client_of(store)->run->inner, collections, error);
}

static void sim_close(truce_store *store)
{
    (void)store;
}

static const truce_store_ops sim_ops = {
    .scheme = "simulator",
    .close = sim_close,
    .find = sim_find,
    .count = sim_count,
    .bulk = sim_bulk,
    .find_and_modify = sim_find_and_modify,
    .read_many = sim_read_many,
    .index_create = sim_index_create,
    .index_list = sim_index_list,
    .collection_list = sim_collection_list,
};

/* ---- clients -------------------------------------------------------------------------------- */

static void id_of(int document, bson_value_t *id, char text[2])
{
    text[0] = (char)('a' + document);
    text[1] = 0;
    memset(id, 0, sizeof *id);
    id->value_type = BSON_TYPE_UTF8;
    id->value.v_utf8.str = text;
    id->value.v_utf8.len = 1;
}

static truce_status read_document(struct client *client, truce_commit *commit, struct sim_txn *txn,
                                  int document, const bson_value_t *id, bson_error_t *error)
{
    bson_t seen;
    truce_status status = truce_commit_read(commit, "docs", id, &seen, error);

    if (!status || status == TRUCE_NOT_FOUND) {
        txn->read[document] =
            truce__history_version(&client->run->history, document, status ? NULL : &seen);
        status = TRUCE_OK;
    }
    bson_destroy(&seen);
    return status;
}

static truce_status write_document(truce_commit *commit, enum sim_op op, const bson_value_t *id,
                                   bson_error_t *error)
{
    bson_t *document;
    truce_status status;

    switch (op) {
    case SIM_READ_WRITE:
    case SIM_BLIND_WRITE:
        document = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
        status = truce_commit_update(commit, "docs", id, NULL, document, error);
        break;
    case SIM_INSERT:
        document = BCON_NEW("_id", BCON_UTF8(id->value.v_utf8.str), "n", BCON_INT32(100));
        status = truce_commit_insert(commit, "docs", document, error);
        break;
    case SIM_REPLACE:
        document = BCON_NEW("m", BCON_INT32(7));
        status = truce_commit_replace(commit, "docs", id, NULL, document, error);
        break;
    case SIM_HOLD:
        return truce_commit_hold(commit, "docs", id, NULL, error);
    case SIM_REMOVE:
    case SIM_BLIND_REMOVE:
        return truce_commit_remove(commit, "docs", id, NULL, error);
    default:
        return TRUCE_OK;
    }
    bson_destroy(document);
    return status;
}

static bool reads(enum sim_op op)
{
    return op == SIM_REQUIRE || op == SIM_READ_WRITE || op == SIM_REMOVE || op == SIM_HOLD ||
           op == SIM_REPLACE;
}

static truce_status fill_commit(struct client *client, truce_commit *commit, struct sim_txn *txn,
                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int d = 0; !status && d < SIM_DOCUMENTS; d++) {
        bson_value_t id;
        char text[2];

        id_of(d, &id, text);
        if (reads(txn->script->ops[d]))
            status = read_document(client, commit, txn, d, &id, error);
    }
    for (int d = 0; !status && d < SIM_DOCUMENTS; d++) {
        bson_value_t id;
        char text[2];

        id_of(d, &id, text);
        status = write_document(commit, txn->script->ops[d], &id, error);
    }
    return status;
}

static truce_status run_commit(struct client *client, struct sim_txn *txn, bson_error_t *error)
{
    char key[16];
    truce_commit_options options = {.lease_ms = LEASE_MS, .deadline_ms = DEADLINE_MS};
    truce_commit *commit = NULL;
    truce_status status;

    if (txn->script->kind == SIM_JOURNAL)
        options.mechanism = TRUCE_MECHANISM_JOURNAL;
    if (txn->script->kind == SIM_NATIVE)
        options.mechanism = TRUCE_MECHANISM_NATIVE;
    if (txn->script->key) {
        snprintf(key, sizeof key, "key%d", txn->script->key);
        options.key = key;
        options.key_time_ms = txn->script->key;
    }
    status = truce_commit_begin(&client->store, &options, &commit, error);
    if (!status)
        status = fill_commit(client, commit, txn, error);
    if (!status)
        status = truce_commit_apply(commit, error);
    if (commit)
        bson_oid_copy(truce_commit_id(commit), &txn->id);
    truce_commit_free(commit);
    return status;
}

static truce_status run_snapshot(struct client *client, struct sim_txn *txn, bson_error_t *error)
{
    truce_look looks[SIM_DOCUMENTS];
    bson_value_t ids[SIM_DOCUMENTS];
    char texts[SIM_DOCUMENTS][2];
    int documents[SIM_DOCUMENTS], count = 0;
    truce_status status;

    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        if (txn->script->ops[d] == SIM_NONE)
            continue;
        id_of(d, &ids[count], texts[count]);
        looks[count].collection = "docs";
        looks[count].id = &ids[count];
        documents[count++] = d;
    }
    status = truce_read_many(&client->store, looks, (size_t)count, DEADLINE_MS, error);
    for (int i = 0; i < count; i++) {
        if (!status)
            txn->read[documents[i]] = truce__history_version(
                &client->run->history, documents[i], looks[i].found ? &looks[i].document : NULL);
        bson_destroy(&looks[i].document);
    }
    return status;
}

static truce_status run_sweep(struct client *client, bson_error_t *error)
{
    truce_sweep_options options = {.retention_ms = 1};
    truce_sweep_report report;

    return truce_sweep(&client->store, &options, &report, error);
}

static struct sim_txn *new_txn(struct client *client, const struct sim_script *script)
{
    struct sim_history *history = &client->run->history;
    struct sim_txn *txn;

    if (history->txns_count == SIM_TXNS) {
        history->overflow = true;
        return NULL;
    }
    txn = &history->txns[history->txns_count++];
    *txn = (struct sim_txn){.script = script, .client = client->number};
    for (int d = 0; d < SIM_DOCUMENTS; d++)
        txn->read[d] = -1;
    txn->began_at = history->clock++;
    return txn;
}

static truce_status run_script(struct client *client, const struct sim_script *script)
{
    struct sim_txn *txn = new_txn(client, script);
    bson_error_t error = {0};

    if (!txn)
        return TRUCE_LIMIT;
    client->txn = (int)(txn - client->run->history.txns);
    if (script->kind == SIM_SWEEP)
        txn->status = run_sweep(client, &error);
    else if (script->kind == SIM_SNAPSHOT)
        txn->status = run_snapshot(client, txn, &error);
    else
        txn->status = run_commit(client, txn, &error);
    if (!client->dead) { /* the dead tell nothing */
        txn->ended = true;
        txn->ended_at = client->run->history.clock++;
        if (client->run->trace)
            fprintf(client->run->trace, "P%d: transaction %d: %s%s%s\n", client->number,
                    (int)(txn - client->run->history.txns), truce_status_name(txn->status),
                    txn->status ? ": " : "", txn->status ? error.message : "");
    }
    return txn->status;
}

static void client_main(void *arg)
{
    struct client *client = arg;

    for (int i = 0; !client->dead && i < client->script->count; i++) {
        const struct sim_script *script = &client->script->scripts[i];

        for (int t = 0; !client->dead && t < (script->tries ? script->tries : 1); t++) {
            if (run_script(client, script) != TRUCE_CONFLICT)
                break;
        }
    }
    client->ended = true;
}

/* ---- scheduling ----------------------------------------------------------------------------- */

/* What the judge will look at is part of the state: two pasts are two states. */
static uint64_t past_of(const struct sim_history *history)
{
    uint64_t past = (uint64_t)history->txns_count;

    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        for (int v = 0; v < history->count[d]; v++) {
            uint64_t rev = history->versions[d][v].present;

            if (history->versions[d][v].has_rev)
                memcpy(&rev, history->versions[d][v].rev.bytes, sizeof rev);
            past = mix(past, rev);
        }
    }
    for (int t = 0; t < history->txns_count; t++) {
        const struct sim_txn *txn = &history->txns[t];

        past = mix(past, (uint64_t)txn->client << 32 | (uint64_t)txn->began_at << 16 |
                             (uint64_t)(txn->ended ? txn->ended_at : 0xffff));
        for (int d = 0; d < SIM_DOCUMENTS; d++)
            past = mix(past, (uint64_t)(txn->read[d] + 1));
    }
    return past;
}

static uint64_t state_of(const struct run *run)
{
    static const char *const collections[] = {"docs", "truce_commits"};
    uint64_t state = mix((uint64_t)run->now_ms, past_of(&run->history));
    bson_error_t error;

    for (int i = 0; i < 2; i++) {
        truce_cursor *cursor = NULL;
        const bson_t *document = NULL;
        uint64_t sum = 0;

        truce_assert(!truce_find(run->inner, collections[i], NULL, NULL, &cursor, &error));
        while (!truce_cursor_next(cursor, &document, &error) && document)
            sum += mix(digest_of(document), 99); /* in no order */
        truce_cursor_close(cursor);
        state = mix(state, sum);
    }
    for (int c = 0; c < run->scenario->clients_count; c++) {
        const struct client *client = &run->clients[c];
        bool fresh = client->sleeping && client->slept_at != run->changes;

        state = mix(state, mix(client->local, client->ids));
        state = mix(state, (uint64_t)(client->ended | client->dead << 1 | client->sleeping << 2 |
                                      fresh << 3));
    }
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        const truce_write *write = &run->late[i].write;

        if (run->late[i].used)
            state = mix(state, mix(write->filter ? digest_of(write->filter) : 5,
                                   write->document ? digest_of(write->document) : 6));
    }
    return mix(mix(state, (uint64_t)run->result->crashes << 8 | (uint64_t)run->result->jumps),
               (uint64_t)run->result->losses << 8 | (uint64_t)run->result->lates);
}

static void offer(struct sim_choice *choices, int *count, enum sim_action action, int who)
{
    choices[(*count)++] = (struct sim_choice){action, who};
}

static void offer_client(const struct run *run, const struct client *client,
                         struct sim_choice *choices, int *count)
{
    const struct sim_scenario *scenario = run->scenario;

    if (client->sleeping && client->slept_at == run->changes)
        return;
    offer(choices, count, SIM_STEP, client->number);
    if (client->sleeping)
        return;
    if (run->result->crashes < scenario->crashes) {
        offer(choices, count, SIM_CRASH_BEFORE, client->number);
        offer(choices, count, SIM_CRASH_AFTER, client->number);
    }
    if (run->result->losses < scenario->losses)
        offer(choices, count, SIM_LOSE, client->number);
    if (run->result->lates < scenario->lates && client->may_be_late)
        offer(choices, count, SIM_LATE, client->number);
}

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
    if (count == 0) { /* everybody waits */
        run->changes++;
        offer(choices, &count, SIM_JUMP, 0);
        return count;
    }
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        if (run->late[i].used)
            offer(choices, &count, SIM_LAND, i);
    }
    if (run->result->jumps < run->scenario->jumps)
        offer(choices, &count, SIM_JUMP, 0);
    return count;
}

static void resume(struct run *run, struct client *client)
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
}

static void act(struct run *run, struct sim_choice choice)
{
    if (run->trace && choice.action >= SIM_LAND)
        fprintf(run->trace, "  -- %s\n", action_names[choice.action]);
    count_fault(run->result, choice.action);
    if (choice.action == SIM_LAND) {
        land(run, &run->late[choice.who]);
    } else if (choice.action == SIM_JUMP) {
        run->now_ms += JUMP_MS;
        run->changes++; /* sleepers look again */
    } else {
        run->clients[choice.who].verdict = choice.action;
        resume(run, &run->clients[choice.who]);
    }
}

/* The rest of everybody's life: they unwind, and reach nothing. */
static void kill_all(struct run *run)
{
    for (int c = 0; c < run->scenario->clients_count; c++) {
        while (!run->clients[c].ended) {
            run->clients[c].dead = true;
            resume(run, &run->clients[c]);
        }
    }
}

static void schedule(struct run *run)
{
    struct sim_choice choices[SIM_CLIENTS * 5 + SIM_LATE_MAX + 1];

    for (;;) {
        int count = gather_choices(run, choices), chosen;

        if (!count)
            return;
        if (run->result->steps++ >= STEPS_MAX) {
            run->result->violation = "the run does not end (livelock)";
            break;
        }
        chosen = run->chooser->choose(run->chooser, choices, count,
                                      run->chooser->wants_state ? state_of(run) : 0);
        if (chosen < 0) {
            run->result->cut = true;
            break;
        }
        truce_assert(chosen < count);
        act(run, choices[chosen]);
    }
    kill_all(run);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

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
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        char text[2] = {(char)('a' + d), 0};
        bson_t *document = BCON_NEW("_id", BCON_UTF8(text), "n", BCON_INT32(0));

        if (!run->scenario->missing[d])
            truce_assert(!truce_insert(run->inner, "docs", document, NULL, &error));
        bson_destroy(document);
    }
    bson_destroy(index);
    bson_destroy(keys);
    bson_destroy(horizon);
}

static void start_clients(struct run *run)
{
    for (int c = 0; c < SIM_CLIENTS; c++) {
        struct client *client = &run->clients[c];

        client->store.ops = &sim_ops;
        client->store.capabilities =
            run->inner->capabilities & ~(uint32_t)(TRUCE_CAN_SNAPSHOT_READ | TRUCE_CAN_WAIT);
        client->run = run;
        client->number = c;
        if (c >= run->scenario->clients_count) {
            client->ended = true;
            continue;
        }
        client->script = &run->scenario->clients[c];
        client->fiber = truce__fiber_new(client_main, client);
        client->verdict = SIM_STEP;
        resume(run, client); /* to its first call */
    }
}

static void sweep_until_quiet(struct run *run)
{
    struct client *sweeper = &run->clients[SIM_CLIENTS - 1]; /* never one of the scenario's */
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

static int64_t count_of(struct run *run, const char *collection, bson_t *filter)
{
    bson_error_t error;
    int64_t count = -1;

    truce_assert(!truce_count(run->inner, collection, filter, NULL, &count, &error));
    bson_destroy(filter);
    return count;
}

/* Nothing is held, nothing is under way, and a fresh commit over everything goes through. */
static const char *check_liveness(struct run *run)
{
    static const struct sim_script all = {
        .kind = SIM_JOURNAL, .ops = {SIM_REQUIRE, SIM_REQUIRE, SIM_REQUIRE}, .tries = 1};
    struct client *client = &run->clients[0];
    struct sim_txn txn = {.script = &all};
    bson_error_t error;

    if (count_of(run, "docs", BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}")))
        return "a document is held for ever";
    if (count_of(run, "truce_commits",
                 BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"), BCON_UTF8("committed"),
                          "]", "}")))
        return "a commit is under way for ever";
    if (count_of(
            run, "truce_commits",
            BCON_NEW("state", BCON_UTF8("aborted"), "key", "{", "$exists", BCON_BOOL(true), "}")))
        return "an aborted commit keeps its key";
    client->dead = false;
    client->local = 0;
    if (run_commit(client, &txn, &error))
        return "a fresh commit does not go through";
    return NULL;
}

static void finish(struct run *run)
{
    struct sim_result *result = run->result;

    run->free_running = true;
    sweep_until_quiet(run);
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        if (run->late[i].used)
            land(run, &run->late[i]);
    }
    sweep_until_quiet(run);
    if (!result->violation)
        result->violation =
            truce__history_judge(&run->history, result->detail, sizeof result->detail);
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
    struct world world = {run, wall_ms, monotonic_ns, sleep_ms, entropy};
    const struct world *before = truce__world();

    truce_assert(scenario->clients_count < SIM_CLIENTS);
    memset(result, 0, sizeof *result);
    run->scenario = scenario;
    run->chooser = chooser;
    run->result = result;
    run->trace = trace;
    run->now_ms = 1000000;
    truce__world_use(&world);
    insert_documents(run);
    truce__history_observe(&run->history, run->inner, -1, NULL);
    start_clients(run);
    schedule(run);
    if (!result->cut && !run->history.overflow)
        finish(run);
    for (int i = 0; i < SIM_LATE_MAX; i++)
        drop_late(&run->late[i]);
    for (int c = 0; c < SIM_CLIENTS; c++) {
        if (run->clients[c].store.memo)
            run->clients[c].store.memo->free(run->clients[c].store.memo);
    }
    truce_store_close(run->inner);
    truce__world_use(before);
    if (trace && result->violation)
        fprintf(trace, "VIOLATION: %s (%s)\n", result->violation, result->detail);
    bson_free(run);
}
