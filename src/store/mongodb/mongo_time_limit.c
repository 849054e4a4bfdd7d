/*
 * Time limits of a call on the network:
 *
 *     call            its own limit, if any, and the deadline of the surrounding work
 *                     (base/deadline.h)
 *     each message    reads, writes, and handshakes end at the call's limit, also those that
 *                     libmongoc repeats by itself. Each stream is wrapped, because a libmongoc
 *                     connection has only one time-out, for long reads and short writes alike
 *     a server        is awaited in steps of libmongoc, which all take the same time (SELECT_MS).
 *                     If less time is left, the call checks the known servers in short intervals
 *                     and does not let libmongoc wait
 *
 * The server gets the time of the call (wtimeout), and the thread waits GRACE_MS more for its
 * reply. After the deadline of the surrounding work, the cleanup gets as long in total, and then
 * LEAST_MS for each message until one has no reply. A live server replies within that time, and a
 * dead one does not block the caller.
 *
 * The listening thread waits for each message in slices of STOP_SLICE_MS, and checks between them
 * whether its store is being closed (mongo_change_listener.c).
 *
 * If libmongoc does not export the function that makes its streams (Debian's library exports it,
 * but not every library does), the URI's socketTimeoutMS is the only limit.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "store/mongodb/mongo.h"

/* The time for the reply after the time limit of the call. */
#define GRACE_MS 200
/* The minimum wait for the reply to a message of the cleanup. */
#define LEAST_MS 100

static _Thread_local struct {
    /* The time at which the server must end the call, or 0 for no limit. */
    int64_t end_ns;
    /* The time until which the thread waits for a reply, or 0 for no limit. */
    int64_t until_ns;
    /* The maximum wait for a server, or 0 for the setting of the store. */
    uint32_t wait_ms;
    /* `late`: the current message is sent after the deadline. `silent`: the last such message got
     * no reply. */
    bool late, silent;
    /* A flag that, when it is set, ends reads of this thread and prevents further connects, or
     * NULL. */
    const atomic_bool *stop;
} limit;

/* The milliseconds between two checks of `stop`. */
#define STOP_SLICE_MS 50
/* libmongoc reads the length of a message first, into an empty buffer. */
#define LENGTH_BYTES 4

/* ---- calls ---------------------------------------------------------------------------------- */

void truce__mongo_limit(uint32_t wait_ms)
{
    int64_t now_ns = truce__clock_monotonic_ns(), work_ns = truce__deadline();
    int64_t left_ms = work_ns ? (work_ns - now_ns) / 1000000 : INT64_MAX;

    limit.end_ns = wait_ms ? now_ns + INT64_C(1000000) * wait_ms : 0;
    limit.wait_ms = wait_ms;
    if (work_ns && (!wait_ms || left_ms < wait_ms)) {
        limit.end_ns = work_ns;
        limit.wait_ms =
            left_ms > LEAST_MS ? (uint32_t)(left_ms < INT32_MAX ? left_ms : INT32_MAX) : LEAST_MS;
    }
    limit.until_ns = limit.end_ns ? limit.end_ns + INT64_C(1000000) * GRACE_MS : 0;
    limit.late = limit.end_ns && limit.until_ns < now_ns + INT64_C(1000000) * LEAST_MS;
    if (limit.late)
        limit.until_ns = limit.silent ? now_ns : now_ns + INT64_C(1000000) * LEAST_MS;
}

void truce__mongo_limit_answered(bool answered)
{
    limit.silent = !answered && (limit.silent || limit.late);
}

void truce__mongo_limit_to_now(void)
{
    limit.end_ns = limit.until_ns = truce__clock_monotonic_ns();
    limit.wait_ms = 1;
}

bool truce__mongo_limit_is_over(void)
{
    return limit.end_ns && truce__clock_monotonic_ns() >= limit.end_ns;
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

/* The milliseconds between two attempts to select a server. */
#define CHECK_MS 10

/* Returns whether libmongoc can select a server that accepts writes without waiting. A direct
 * connection has only one server, which is selected in any role. */
static bool limit_knows_server(const struct mongo_store *store, const mongoc_client_t *client)
{
    static const char *const kinds[] = {"RSPrimary", "Mongos", "Standalone", "LoadBalancer"};
    size_t count = 0;
    /* libmongoc returns only the servers that have replied. */
    mongoc_server_description_t **all = mongoc_client_get_server_descriptions(client, &count);
    bool known = store->direct && count;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            known = known || !strcmp(mongoc_server_description_type(all[i]), kinds[k]);
    mongoc_server_descriptions_destroy_all(all, count);
    return known;
}

/* Gives the reason of a selection that failed before libmongoc had one, in libmongoc's form
 * (mongo_error.c). */
static void limit_give_reason(const mongoc_client_t *client, bson_error_t *why)
{
    size_t count = 0;

    mongoc_server_descriptions_destroy_all(mongoc_client_get_server_descriptions(client, &count),
                                           count);
    bson_set_error(why, MONGOC_ERROR_SERVER_SELECTION, MONGOC_ERROR_SERVER_SELECTION_FAILURE,
                   "No suitable servers found%s", count ? "" : ": [no server has answered]");
}

/* Returns whether libmongoc may wait for a server, for one step, and the call ends in time. */
static bool limit_has_step(const struct mongo_store *store, int64_t end_ns)
{
    int64_t left_ms = (end_ns - truce__clock_monotonic_ns()) / 1000000;

    return left_ms + GRACE_MS >= store->select_ms;
}

bool truce__mongo_await_server(struct mongo_store *store, mongoc_client_t *client,
                               bson_error_t *why)
{
    int64_t end_ns =
        limit.end_ns ? limit.end_ns
                     : truce__clock_monotonic_ns() + INT64_C(1000000) * truce__mongo_wait_ms(store);
    mongoc_server_description_t *found = NULL;

    if (why)
        why->message[0] = '\0';
    for (;;) {
        bool known = limit_knows_server(store, client);

        if (known || limit_has_step(store, end_ns))
            found = mongoc_client_select_server(client, true, NULL, why);
        if (found || truce__clock_monotonic_ns() >= end_ns ||
            truce__store_interrupted(&store->base, NULL))
            break;
        truce__clock_sleep_ms(CHECK_MS);
    }
    if (!found && why && !strchr(why->message, '['))
        limit_give_reason(client, why);
    mongoc_server_description_destroy(found);
    return found != NULL;
}

bool truce__mongo_has_server(struct mongo_store *store, mongoc_client_t *client, bson_error_t *why)
{
    return !limit.end_ns || limit_has_step(store, limit.end_ns) ||
           limit_knows_server(store, client) || truce__mongo_await_server(store, client, why);
}

/* ---- streams -------------------------------------------------------------------------------- */

/* A number that no stream of libmongoc has. */
#define STREAM_TYPE 100

struct limited {
    /* Must be the first field. */
    mongoc_stream_t stream;
    mongoc_stream_t *inner;
};

static mongoc_stream_t *inner_of(mongoc_stream_t *stream)
{
    return ((struct limited *)stream)->inner;
}

/* Returns the time in milliseconds, as libmongoc counts it, limited to the rest of the call. */
static int32_t limit_shorten_timeout(int32_t timeout_ms)
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
    return inner_of(stream)->writev(inner_of(stream), parts, count,
                                    limit_shorten_timeout(timeout_ms));
}

/* Waits until a message begins to arrive, or the time has expired. Returns false if the thread was
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

    timeout_ms = limit_shorten_timeout(timeout_ms);
    if (limit.stop && least <= LENGTH_BYTES && !await_message(inner, timeout_ms)) {
        errno = ETIMEDOUT;
        return -1;
    }
    return inner->readv(inner, parts, count, least, timeout_ms);
}

static void limited_stream_destroy(mongoc_stream_t *stream)
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

/* Creates a stream. `arg` is the client, as libmongoc's own function requires. */
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
    mongoc_uri_set_option_as_int32(hurried, MONGOC_URI_CONNECTTIMEOUTMS,
                                   limit_shorten_timeout(connect_ms));
    inner = truce__mongoc_make_stream(hurried, host, arg, error);
    mongoc_uri_destroy(hurried);
    if (!inner)
        return NULL;
    made = bson_malloc0(sizeof *made);
    made->inner = inner;
    made->stream = (mongoc_stream_t){.type = STREAM_TYPE,
                                     .destroy = limited_stream_destroy,
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

/* Records the client, and returns whether it is new. A pool has few clients and does not free them,
 * so each is new once. */
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

void truce__mongo_limit_client(struct mongo_store *store, mongoc_client_t *client)
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
