/*
 * Commands: a connection of the pool for one call, and the concerns of every read and write.
 *
 * A connection belongs to one thread at a time. It is returned before the caller's next call,
 * except for a cursor with more than one batch, which keeps its connection to its end
 * (mongo_read.c).
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "store/mongodb/mongo.h"

/* ---- round trips ----------------------------------------------------------------------------- */

/*
 * libmongoc reports every command that was answered or lost, including its own repetitions and the
 * commands of cursors. Only the ends are reported here: for the beginning of a command it would
 * copy the message.
 *
 * Round trips are counted, because they are the cost of a call on a network.
 *
 * Lost messages of a call are remembered. libmongoc repeats a write by itself, and returns the
 * answer of the second message only. If that one was refused or matched nothing, the first may have
 * been executed, or may be later: it may be in the buffers of a stalled server. libmongoc reports
 * this in the thread of the call.
 */

static _Thread_local bool lost;

void truce__mongo_call(void)
{
    lost = false;
}

bool truce__mongo_lost(void)
{
    return lost;
}

static void count_add_one(struct mongo_store *store)
{
    atomic_fetch_add_explicit(&store->round_trips, 1, memory_order_relaxed);
}

static void count_answered(const mongoc_apm_command_succeeded_t *event)
{
    count_add_one(mongoc_apm_command_succeeded_get_context(event));
    if (bson_has_field(mongoc_apm_command_succeeded_get_reply(event), "writeConcernError"))
        lost = true; /* Executed, but it may be rolled back. */
}

static void count_failed(const mongoc_apm_command_failed_t *event)
{
    bson_error_t caught;

    count_add_one(mongoc_apm_command_failed_get_context(event));
    mongoc_apm_command_failed_get_error(event, &caught);
    if (truce__mongo_is_open(&caught))
        lost = true;
}

void truce__mongo_watch(struct mongo_store *store)
{
    mongoc_apm_callbacks_t *callbacks = mongoc_apm_callbacks_new();

    mongoc_apm_set_command_succeeded_cb(callbacks, count_answered);
    mongoc_apm_set_command_failed_cb(callbacks, count_failed);
    mongoc_client_pool_set_apm_callbacks(store->pool, callbacks, store);
    /* The pool has copied them. */
    mongoc_apm_callbacks_destroy(callbacks);
}

void truce__mongo_counters(truce_store *base, truce_store_counters *counters)
{
    struct mongo_store *store = (struct mongo_store *)base;

    counters->round_trips = atomic_load(&store->round_trips);
}

/* ---- time limits ----------------------------------------------------------------------------- */

/*
 * Time limits of a call on the network:
 *
 *     call            its own limit, if any, and the deadline of the surrounding work
 *                     (base/deadline.h)
 *     each message    reads, writes, and handshakes end at the call's limit, also those that
 *                     libmongoc repeats by itself. Each stream is wrapped, because a libmongoc
 *                     connection has only one time-out, for long reads and short writes alike
 *     a server        is awaited in short steps (SELECT_MS), because libmongoc has one time for
 *                     that too
 *
 * The server gets the time of the call (wtimeout), and its answer GRACE_MS more. After the deadline
 * of the surrounding work, the cleanup gets as long in total, and then LEAST_MS for each message. A
 * live server answers within that, and a dead one does not block the caller.
 *
 * The listening thread waits for each message in slices of STOP_SLICE_MS, and checks between them
 * whether its store is being closed (mongo_listen.c).
 *
 * If libmongoc does not let others make its streams (Debian's library has the function, but not
 * every one does), the URI's socketTimeoutMS is the only limit.
 */

#define GRACE_MS 1000
#define LEAST_MS 100

static _Thread_local struct {
    int64_t until_ns; /* The deadline of the call; 0: none. */
    uint32_t wait_ms; /* For the server; 0: the store's. */
    /* If true, reads and connects of this thread end; NULL: none. */
    const atomic_bool *stop;
} limit;

#define STOP_SLICE_MS 50
/* libmongoc reads the length of a message first, with empty buffers. */
#define LENGTH_BYTES 4

/* ---- calls ---------------------------------------------------------------------------------- */

void truce__mongo_limit(uint32_t wait_ms)
{
    int64_t now_ns = truce__clock_monotonic_ns(), work_ns = truce__deadline();
    int64_t left_ms = work_ns ? (work_ns - now_ns) / 1000000 : INT64_MAX;

    limit.until_ns = wait_ms ? now_ns + INT64_C(1000000) * ((int64_t)wait_ms + GRACE_MS) : 0;
    limit.wait_ms = wait_ms;
    if (!work_ns || (wait_ms && left_ms >= wait_ms))
        return;
    limit.wait_ms =
        left_ms > LEAST_MS ? (uint32_t)(left_ms < INT32_MAX ? left_ms : INT32_MAX) : LEAST_MS;
    limit.until_ns =
        now_ns + INT64_C(1000000) * (left_ms + GRACE_MS > LEAST_MS ? left_ms + GRACE_MS : LEAST_MS);
}

void truce__mongo_limit_until(const atomic_bool *stop)
{
    limit.stop = stop;
}

static bool limit_is_stopped(void)
{
    return limit.stop && atomic_load(limit.stop);
}

uint32_t truce__mongo_wait_ms(const struct mongo_store *store)
{
    return limit.wait_ms ? limit.wait_ms : store->deadline_ms;
}

/* ---- a server ------------------------------------------------------------------------------- */

#define LOOK_SLACK_NS INT64_C(500000000)

bool truce__mongo_await_server(struct mongo_store *store, mongoc_client_t *client,
                               bson_error_t *why)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    int64_t until_ns = now_ns + INT64_C(1000000) * truce__mongo_wait_ms(store);
    mongoc_server_description_t *found = NULL;
    /* Each attempt takes seconds, so none begins that would end late. */
    while (!found && now_ns < until_ns && !truce__store_interrupted(&store->base, NULL)) {
        found = mongoc_client_select_server(client, true, NULL, why);
        now_ns = truce__clock_monotonic_ns() + LOOK_SLACK_NS;
    }
    mongoc_server_description_destroy(found);
    return found != NULL;
}

/* ---- streams -------------------------------------------------------------------------------- */

#define STREAM_TYPE 100 /* None of libmongoc's. */

struct limited {
    mongoc_stream_t stream; /* first */
    mongoc_stream_t *inner;
};

static mongoc_stream_t *inner_of(mongoc_stream_t *stream)
{
    return ((struct limited *)stream)->inner;
}

/* Returns the time in milliseconds, as libmongoc counts it, limited to the rest of the call. */
static int32_t shorter(int32_t timeout_ms)
{
    int64_t left_ms;

    if (!limit.until_ns)
        return timeout_ms;
    left_ms = (limit.until_ns - truce__clock_monotonic_ns()) / 1000000;
    if (left_ms < 1)
        left_ms = 1;
    return timeout_ms < 0 || left_ms < timeout_ms
               ? (int32_t)(left_ms < INT32_MAX ? left_ms : INT32_MAX)
               : timeout_ms;
}

static ssize_t write_limited(mongoc_stream_t *stream, mongoc_iovec_t *parts, size_t count,
                             int32_t timeout_ms)
{
    return inner_of(stream)->writev(inner_of(stream), parts, count, shorter(timeout_ms));
}

/* Waits until a message begins to arrive, or the time is over. Returns false if the thread was
 * stopped. */
static bool await_message(mongoc_stream_t *inner, int32_t timeout_ms)
{
    int64_t until_ns = truce__clock_monotonic_ns() + INT64_C(1000000) * timeout_ms;
    mongoc_stream_poll_t readable = {.stream = inner, .events = POLLIN};

    while (!limit_is_stopped()) {
        if (mongoc_stream_poll(&readable, 1, STOP_SLICE_MS) ||
            (timeout_ms >= 0 && truce__clock_monotonic_ns() >= until_ns))
            return true;
    }
    return false;
}

static ssize_t read_limited(mongoc_stream_t *stream, mongoc_iovec_t *parts, size_t count,
                            size_t least, int32_t timeout_ms)
{
    mongoc_stream_t *inner = inner_of(stream);

    timeout_ms = shorter(timeout_ms);
    if (limit.stop && least <= LENGTH_BYTES && !await_message(inner, timeout_ms)) {
        errno = ETIMEDOUT;
        return -1;
    }
    return inner->readv(inner, parts, count, least, timeout_ms);
}

static void destroy(mongoc_stream_t *stream)
{
    mongoc_stream_destroy(inner_of(stream));
    bson_free(stream);
}

static void limit_failed(mongoc_stream_t *stream)
{
    mongoc_stream_failed(inner_of(stream));
    bson_free(stream);
}

static int close_inner(mongoc_stream_t *stream)
{
    return mongoc_stream_close(inner_of(stream));
}

static int limit_flush(mongoc_stream_t *stream)
{
    return mongoc_stream_flush(inner_of(stream));
}

static int set_option(mongoc_stream_t *stream, int level, int name, void *value,
                      mongoc_socklen_t length)
{
    return mongoc_stream_setsockopt(inner_of(stream), level, name, value, length);
}

static bool is_closed(mongoc_stream_t *stream)
{
    return mongoc_stream_check_closed(inner_of(stream));
}

static bool timed_out(mongoc_stream_t *stream)
{
    return mongoc_stream_timed_out(inner_of(stream));
}

static bool should_retry(mongoc_stream_t *stream)
{
    return mongoc_stream_should_retry(inner_of(stream));
}

/* Makes a stream. `arg` is the client, as libmongoc's own function requires. */
static mongoc_stream_t *make_stream(const mongoc_uri_t *uri, const mongoc_host_list_t *host,
                                    void *arg, bson_error_t *error)
{
    int32_t connect_ms = mongoc_uri_get_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS, 10000);
    mongoc_uri_t *hurried;
    mongoc_stream_t *inner;
    struct limited *made;

    if (limit_is_stopped()) {
        bson_set_error(error, MONGOC_ERROR_STREAM, MONGOC_ERROR_STREAM_CONNECT,
                       "the store is being closed");
        return NULL;
    }
    hurried = mongoc_uri_copy(uri);
    mongoc_uri_set_option_as_int32(hurried, MONGOC_URI_CONNECTTIMEOUTMS, shorter(connect_ms));
    inner = truce__mongoc_make_stream(hurried, host, arg, error);
    mongoc_uri_destroy(hurried);
    if (!inner)
        return NULL;
    made = bson_malloc0(sizeof *made);
    made->inner = inner;
    made->stream = (mongoc_stream_t){.type = STREAM_TYPE,
                                     .destroy = destroy,
                                     .close = close_inner,
                                     .flush = limit_flush,
                                     .writev = write_limited,
                                     .readv = read_limited,
                                     .setsockopt = set_option,
                                     .get_base_stream = inner_of,
                                     .check_closed = is_closed,
                                     .failed = limit_failed,
                                     .timed_out = timed_out,
                                     .should_retry = should_retry};
    return &made->stream;
}

/* Returns whether the client is new. A pool has few clients, which stay, so each is new once. */
static bool is_new(struct mongo_store *store, const mongoc_client_t *client)
{
    bool known = false;

    pthread_mutex_lock(&store->limited.mutex);
    for (uint32_t i = 0; i < store->limited.count && !known; i++)
        known = store->limited.clients[i] == client;
    if (!known) {
        store->limited.clients = bson_realloc(
            store->limited.clients, (store->limited.count + 1) * sizeof *store->limited.clients);
        store->limited.clients[store->limited.count++] = client;
    }
    pthread_mutex_unlock(&store->limited.mutex);
    return !known;
}

/* Applies the limits to this client's streams. */
static void mongo_limit_client(struct mongo_store *store, mongoc_client_t *client)
{
    if (truce__mongoc_make_stream && is_new(store, client))
        mongoc_client_set_stream_initiator(client, make_stream, client);
}

void truce__mongo_limit_listener(mongoc_client_t *client)
{
    if (truce__mongoc_make_stream)
        mongoc_client_set_stream_initiator(client, make_stream, client);
}

void truce__mongo_limit_forget(struct mongo_store *store)
{
    bson_free(store->limited.clients);
    store->limited.clients = NULL;
    store->limited.count = 0;
}

/* ---- commands -------------------------------------------------------------------------------- */

#define CODE_SNAPSHOT_TOO_OLD 239
/* A collection was created or changed since; this time will never work. */
#define CODE_SNAPSHOT_UNAVAILABLE 246

/* ---- connections ------------------------------------------------------------------------- */

truce_status truce__mongo_borrow(struct mongo_store *store, mongoc_client_t **client,
                                 bson_error_t *error)
{
    *client = mongoc_client_pool_pop(store->pool);
    if (*client && !store->at.seconds)
        mongo_limit_client(store, *client);
    if (*client)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_TIMEOUT, error,
        "all %d connections to the server are in use, and none was returned in time; cursors of "
        "many documents keep one until they are closed (the URI's options maxPoolSize and "
        "waitQueueTimeoutMS)",
        store->connections_max);
}

void truce__mongo_return(struct mongo_store *store, mongoc_client_t *client)
{
    if (client)
        mongoc_client_pool_push(store->pool, client);
}

/* ---- one command ---------------------------------------------------------------------------- */

mongoc_write_concern_t *truce__mongo_write_concern(const struct mongo_store *store, bool relaxed)
{
    mongoc_write_concern_t *concern = mongoc_write_concern_new();

    /* Also for relaxed writes, because a majority read must see them. */
    mongoc_write_concern_set_w(concern, MONGOC_WRITE_CONCERN_W_MAJORITY);
    mongoc_write_concern_set_journal(concern, !relaxed);
    mongoc_write_concern_set_wtimeout_int64(concern, truce__mongo_wait_ms(store));
    return concern;
}

static void append_read_concern(const struct mongo_store *store,
                                const struct mongo_command *command, bson_t *options)
{
    bool linearizable = command->linearizable && store->linearizable;
    bool snapshot = command->snapshot || store->at.seconds;
    bson_t concern;

    /* In a transaction, the first statement has the concern; a standalone server needs none. */
    if (!command->read_concern || store->server.deployment == MONGO_STANDALONE)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(options, "readConcern", &concern);
    BSON_APPEND_UTF8(&concern, "level",
                     snapshot       ? MONGOC_READ_CONCERN_LEVEL_SNAPSHOT
                     : linearizable ? MONGOC_READ_CONCERN_LEVEL_LINEARIZABLE
                                    : MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    if (store->at.seconds)
        BSON_APPEND_TIMESTAMP(&concern, "atClusterTime", store->at.seconds, store->at.ordinal);
    bson_append_document_end(options, &concern);
}

/* Returns whether the history of a view is gone. */
static bool is_too_old(const struct mongo_store *store, const bson_error_t *caught)
{
    return store->at.seconds && caught->domain == MONGOC_ERROR_SERVER &&
           (caught->code == CODE_SNAPSHOT_TOO_OLD || caught->code == CODE_SNAPSHOT_UNAVAILABLE);
}

/* Returns whether the commit of a transaction carries the concern. */
static bool in_transaction(const struct mongo_command *command)
{
    return command->session && mongoc_client_session_in_transaction(command->session);
}

static bool command_make_options(const struct mongo_store *store,
                                 const struct mongo_command *command, bson_t *options,
                                 bson_error_t *caught)
{
    bool made = true;

    bson_init(options);
    append_read_concern(store, command, options);
    if (command->write_concern && !in_transaction(command)) {
        mongoc_write_concern_t *concern = truce__mongo_write_concern(store, command->relaxed);

        mongoc_write_concern_append(concern, options);
        mongoc_write_concern_destroy(concern);
    }
    if (command->session)
        made = mongoc_client_session_append(command->session, options, caught);
    if (command->server_id)
        BSON_APPEND_INT32(options, "serverId", (int32_t)command->server_id);
    return made;
}

static bool command_run(mongoc_client_t *client, const char *database,
                        const struct mongo_command *command, const bson_t *options, bson_t *reply,
                        bson_error_t *caught)
{
    if (command->once)
        return mongoc_client_command_with_opts(client, database, command->body, NULL, options,
                                               reply, caught);
    if (command->write_concern)
        return mongoc_client_write_command_with_opts(client, database, command->body, options,
                                                     reply, caught);
    return mongoc_client_read_command_with_opts(client, database, command->body, NULL, options,
                                                reply, caught);
}

/* Returns whether to send it again once there is a server: no server was found, so nothing was
 * sent; or a read was lost. */
static bool may_run_again(const struct mongo_command *command, const bson_error_t *caught)
{
    if (command->session || command->server_id || caught->domain == MONGOC_ERROR_SERVER)
        return false;
    if (caught->domain == MONGOC_ERROR_SERVER_SELECTION)
        return !truce__mongo_lost();
    return command->kind == MONGO_READ && !command->write_concern && !command->once &&
           caught->domain == MONGOC_ERROR_STREAM;
}

#define RUNS 3 /* The runs of a read whose connection breaks. */

truce_status truce__mongo_run(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_command *command, bson_t *reply,
                              bson_error_t *error)
{
    const char *database = command->database ? command->database : store->database;
    bson_error_t caught = {0};
    truce_status status = TRUCE_OK;
    bson_t options;
    bool done;

    truce__mongo_limit(command->wait_ms);
    truce__mongo_call();
    done = command_make_options(store, command, &options, &caught);
    if (done)
        done = command_run(client, database, command, &options, reply, &caught);
    else
        bson_init(reply);
    for (int i = 1; !done && i < RUNS && may_run_again(command, &caught) &&
                    truce__mongo_await_server(store, client, NULL);
         i++) {
        bson_destroy(reply);
        done = command_run(client, database, command, &options, reply, &caught);
    }
    if (!done && is_too_old(store, &caught))
        status = truce__fail(TRUCE_EXPIRED, error,
                             "%s: the snapshot is older than the history that the server keeps",
                             command->what);
    else if (!done)
        status = truce__mongo_failed(command->kind, command->what, reply, &caught, error);
    bson_destroy(&options);
    return status;
}

truce_status truce__mongo_run_alone(struct mongo_store *store, const struct mongo_command *command,
                                    bson_t *reply, bson_error_t *error)
{
    mongoc_client_t *client;
    truce_status status = truce__mongo_borrow(store, &client, error);

    if (status) {
        bson_init(reply);
        return status;
    }
    status = truce__mongo_run(store, client, command, reply, error);
    truce__mongo_return(store, client);
    return status;
}

/* ---- helpers --------------------------------------------------------------------------------- */

const char *truce__mongo_what(char *text, size_t size, const char *verb, const char *collection)
{
    snprintf(text, size, "%s %s", verb, collection);
    return text;
}

int64_t truce__mongo_number(const bson_t *reply, const char *path, int64_t otherwise)
{
    bson_iter_t iter, found;

    if (!bson_iter_init(&iter, reply) || !bson_iter_find_descendant(&iter, path, &found))
        return otherwise;
    if (BSON_ITER_HOLDS_DOUBLE(&found)) {
        double number = bson_iter_double(&found);

        return number >= -9e15 && number <= 9e15 ? (int64_t)number : otherwise;
    }
    return BSON_ITER_HOLDS_INT(&found) ? bson_iter_as_int64(&found) : otherwise;
}

truce_status truce__mongo_writable(const struct mongo_store *store, bson_error_t *error)
{
    if (store->read_only)
        return truce__fail(TRUCE_INVALID, error, "the store was opened read-only");
    return TRUCE_OK;
}

void truce__mongo_append_hint(bson_t *command, const bson_t *hint)
{
    bson_iter_t iter;

    if (!hint)
        return;
    if (bson_iter_init(&iter, hint) && bson_iter_next(&iter) && !*bson_iter_key(&iter) &&
        BSON_ITER_HOLDS_UTF8(&iter))
        BSON_APPEND_UTF8(command, "hint", bson_iter_utf8(&iter, NULL));
    else
        BSON_APPEND_DOCUMENT(command, "hint", hint);
}
