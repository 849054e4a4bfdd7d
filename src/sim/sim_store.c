#include "sim/sim_run.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "store/decorators/decorator.h"

/* A client's store: a decorator around the memory store that all clients share. At each call, the
 * scheduler chooses what happens to the call (sim_scheduler.c lists the choices). */

/* ---- tracing -------------------------------------------------------------------------------- */

static const char *sim_store_show(const bson_t *document, char *text, size_t size)
{
    return document ? truce__value_show(truce__value_document(document), text, size) : "";
}

static void trace_call(struct run *run, const char *verb, const char *collection,
                       const bson_t *filter, const bson_t *document)
{
    char a[400], b[600];

    if (run->trace && run->current)
        fprintf(run->trace, "  P%d %s %s %s %s [%s]\n", run->current->number, verb, collection,
                sim_store_show(filter, a, sizeof a), sim_store_show(document, b, sizeof b),
                truce__sim_action_names[run->current->action]);
}

/* ---- the decorator -------------------------------------------------------------------------- */

static struct client *client_of(truce_store *store)
{
    return (struct client *)store;
}

static truce_status sim_store_fail_crashed(bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "the simulated process has crashed");
}

static truce_status sim_store_unanswered(bson_error_t *error)
{
    return truce__fail(TRUCE_UNKNOWN, error, "no reply");
}

/* Runs before each call. Returns false if the client is dead; the call is then not made. */
static bool before_call(struct client *client, bool may_be_late)
{
    struct run *run = client->run;

    if (client->dead)
        return false;
    if (run->free_running) {
        client->action = SIM_STEP;
        return true;
    }
    client->may_be_late = may_be_late;
    truce__fiber_yield();
    if (client->action == SIM_CRASH_BEFORE)
        client->dead = true;
    return !client->dead;
}

/* Runs after each write that reached the store. */
static void sim_store_observe(struct run *run, int txn, const char *collection,
                              const bson_t *filter)
{
    if (!strcmp(collection, "truce_commits"))
        truce__history_decision(&run->history, run->inner, txn, filter);
    else
        truce__history_observe(&run->history, run->inner, txn, filter);
    if (run->scenario->subject != SIM_COMMITS)
        truce__patterns_observe(run, collection);
    if (run->scenario->keyed && !run->history.wrong_keys)
        run->history.wrong_keys = truce__history_keys(run->inner, run->scenario->bare);
    truce__sim_plain_observe(run);
}

/* Runs after each call, with a digest of its reply. */
static truce_status after_call(struct client *client, truce_status status, uint64_t digest,
                               bson_error_t *error)
{
    client->local = truce__sim_mix(client->local,
                                   truce__sim_mix(digest, (uint64_t)status + 77 * client->action));
    if (client->action == SIM_CRASH_AFTER) {
        client->dead = true;
        return sim_store_fail_crashed(error);
    }
    return client->action == SIM_LOSE ? sim_store_unanswered(error) : status;
}

/* A cursor of a client. */
struct sim_cursor {
    truce_cursor base;
    truce_cursor *inner;
    struct client *client;
};

static truce_status sim_store_cursor_next(truce_cursor *base, const bson_t **document,
                                          bson_error_t *error)
{
    struct sim_cursor *cursor = (struct sim_cursor *)base;
    truce_status status = truce_cursor_next(cursor->inner, document, error);

    if (!status && *document)
        cursor->client->local = truce__sim_mix(cursor->client->local, truce__sim_digest(*document));
    return status;
}

static void sim_store_cursor_close(truce_cursor *base)
{
    struct sim_cursor *cursor = (struct sim_cursor *)base;

    truce_cursor_close(cursor->inner);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {sim_store_cursor_next, sim_store_cursor_close};

/* Opens a cursor after the scheduler's decision. Its later reads are not calls of their own, so no
 * event happens between them. */
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
        return sim_store_fail_crashed(error);
    trace_call(client->run, "find", collection, filter, NULL);
    status = truce_find(client->run->inner, collection, filter, options, &inner, error);
    status = after_call(client, status, 1, error);
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
                              const truce_count_options *options, int64_t *count,
                              bson_error_t *error)
{
    struct client *client = client_of(store);
    truce_status status;

    if (!before_call(client, false))
        return sim_store_fail_crashed(error);
    status = truce_count(client->run->inner, collection, filter, options, count, error);
    return after_call(client, status, (uint64_t)*count, error);
}

struct late_call *truce__sim_free_late(const struct run *run)
{
    for (int i = 0; i < SIM_LATE_MAX; i++) {
        if (!run->late[i].used)
            return (struct late_call *)&run->late[i];
    }
    return NULL;
}

static bson_t *sim_store_copy_of(const bson_t *document)
{
    return document ? bson_copy(document) : NULL;
}

static truce_status keep_late(struct client *client, const truce_write *write, bson_error_t *error)
{
    struct late_call *late = truce__sim_free_late(client->run);

    truce_assert(late);
    *late = (struct late_call){.used = true, .txn = client->txn, .write = *write};
    late->write.collection = bson_strdup(write->collection);
    late->write.filter = sim_store_copy_of(write->filter);
    late->write.document = sim_store_copy_of(write->document);
    late->write.exact = sim_store_copy_of(write->exact);
    late->write.options.sort = sim_store_copy_of(write->options.sort);
    late->write.options.array_filters = NULL;
    late->write.options.hint = NULL;
    client->local = truce__sim_mix(client->local, 4711);
    return sim_store_unanswered(error);
}

void truce__sim_drop_late(struct late_call *late)
{
    bson_free((char *)late->write.collection);
    bson_destroy((bson_t *)late->write.filter);
    bson_destroy((bson_t *)late->write.document);
    bson_destroy((bson_t *)late->write.exact);
    bson_destroy((bson_t *)late->write.options.sort);
    bson_destroy((bson_t *)late->modify.sort);
    bson_destroy((bson_t *)late->modify.array_filters);
    *late = (struct late_call){0};
}

void truce__sim_land(struct run *run, struct late_call *late)
{
    bson_error_t error;
    bson_t document;

    run->changes++;
    if (late->is_modify) {
        truce_status status =
            truce_find_and_modify(run->inner, late->write.collection, late->write.filter,
                                  late->write.document, &late->modify, &document, NULL, &error);

        (void)status; /* No client waits for the result. */
        bson_destroy(&document);
    } else {
        truce_write_outcome outcome;
        truce_status status = truce_bulk(run->inner, &late->write, 1, NULL, &outcome, &error);

        (void)status;
        truce_write_result_release(&outcome.result);
    }
    sim_store_observe(run, late->txn, late->write.collection, late->write.filter);
    truce__sim_drop_late(late);
}

static void trace_bulk(struct run *run, const truce_write *writes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        trace_call(run, truce__write_name(writes[i].kind), writes[i].collection, writes[i].filter,
                   writes[i].document);
}

/* Fails all writes of a call: the result is lost or the caller is dead, so their outcomes are
 * unknown. */
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

/* Makes a bulk as one call. Only a bulk of one write can take effect late. */
static truce_status one_bulk(struct client *client, const truce_write *writes, size_t count,
                             const truce_bulk_options *options, truce_write_outcome *outcomes,
                             bson_error_t *error)
{
    truce_status status;

    memset(outcomes, 0, count * sizeof *outcomes);
    if (!before_call(client, count == 1))
        return no_outcomes(outcomes, count, sim_store_fail_crashed(error), error);
    trace_bulk(client->run, writes, count);
    if (client->action == SIM_LATE)
        return no_outcomes(outcomes, count, keep_late(client, &writes[0], error), error);
    client->run->changes++;
    status = truce_bulk(client->run->inner, writes, count, options, outcomes, error);
    for (size_t i = 0; i < count; i++)
        sim_store_observe(client->run, client->txn, writes[i].collection, writes[i].filter);
    status = after_call(client, status, (uint64_t)outcomes[0].result.matched, error);
    if (client->dead || client->action == SIM_LOSE)
        no_outcomes(outcomes, count, status, error);
    return status;
}

/* Makes a message of several statements. As on a server, they run one after the other, and calls of
 * other clients may run between them. If the reply of one is lost, the replies of all are. If one
 * takes effect late, the ones after it do, too. */
static truce_status joined_bulk(struct client *client, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    size_t done = 0, changed = 0;

    memset(outcomes, 0, count * sizeof *outcomes);
    for (; !status && done < count; done++) {
        status = one_bulk(client, &writes[done], 1, options, &outcomes[done], error);
        changed += outcomes[done].result.matched + outcomes[done].result.inserted;
    }
    for (size_t i = done;
         client->action == SIM_LATE && i < count && truce__sim_free_late(client->run); i++)
        (void)keep_late(client, &writes[i], NULL);
    for (size_t i = 0; changed < count && i < done; i++) {
        if (writes[i].kind != TRUCE_WRITE_INSERT)
            truce_write_result_release(&outcomes[i].result);
    }
    for (size_t i = done; i < count; i++)
        outcomes[i].status = TRUCE_NOT_FOUND;
    return status;
}

static truce_status sim_bulk(truce_store *store, const truce_write *writes, size_t count,
                             const truce_bulk_options *options, truce_write_outcome *outcomes,
                             bson_error_t *error)
{
    return options->joined && count > 1
               ? joined_bulk(client_of(store), writes, count, options, outcomes, error)
               : one_bulk(client_of(store), writes, count, options, outcomes, error);
}

/* Makes a find-and-modify of a client. A late call keeps copies of its documents, and its caller
 * gets UNKNOWN. */
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
    if (!before_call(client, true))
        return sim_store_fail_crashed(error);
    trace_call(client->run, "find-and-modify", collection, filter, update);
    if (client->action == SIM_LATE) {
        truce_write write = {.collection = collection, .filter = filter, .document = update};
        struct late_call *late = truce__sim_free_late(client->run);

        status = keep_late(client, &write, error);
        late->is_modify = true;
        late->modify = *options;
        late->modify.projection = NULL; /* No client waits for the document. */
        late->modify.sort = sim_store_copy_of(options->sort);
        late->modify.array_filters = sim_store_copy_of(options->array_filters);
        late->modify.hint = NULL;
        return status;
    }
    client->run->changes++;
    bson_destroy(document);
    status = truce_find_and_modify(client->run->inner, collection, filter, update, options,
                                   document, result, error);
    sim_store_observe(client->run, client->txn, collection, filter);
    status = after_call(client, status, truce__sim_digest(document), error);
    if (status) {
        bson_reinit(document);
        if (result) {
            truce_write_result_release(result);
            memset(result, 0, sizeof *result);
        }
    }
    return status;
}

static truce_status sim_read_many(truce_store *store, truce_read_request *requests, size_t count,
                                  bson_error_t *error)
{
    (void)store;
    (void)requests;
    (void)count;
    return truce__fail(TRUCE_INVALID, error, "the simulator's store has no snapshots");
}

/* Indexes and collections exist before the run. Creating them again is not a step. */
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

static truce_status sim_collection_list(truce_store *store, const truce_list_options *options,
                                        bson_t *collections, bson_error_t *error)
{
    return truce_collection_list(client_of(store)->run->inner, options, collections, error);
}

static void sim_close(truce_store *store)
{
    (void)store;
}

const truce_store_ops truce__sim_store_ops = {
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
