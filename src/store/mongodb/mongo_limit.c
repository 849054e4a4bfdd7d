/*
 * How long a call may wait for the network.
 *
 *     call            its own limit, if it has one, and the deadline of the work around it (base/deadline.h)
 *     each message    reads, writes and handshakes on its connections end at the call's limit, also those
 *                     that libmongoc repeats by itself: each stream is wrapped, since a connection of
 *                     libmongoc's has one time-out only, for long reads and short writes alike
 *     a server        waited for in short steps (SELECT_MS): libmongoc knows one time for that, too
 *
 * The server gets the time of the call (wtimeout), and its answer GRACE_MS more. After the deadline of the work
 * around, what it still has to clean up gets as long in all, and then LEAST_MS for a message: a server that lives
 * answers in that, and one that does not holds nobody.
 *
 * The thread that listens for changes waits for each message in slices of STOP_SLICE_MS, and checks between them
 * whether its store is being closed (mongo_listen.c).
 *
 * Where libmongoc does not let its streams be made by others (its function for that is in Debian's library, and
 * not in every one), the URI's socketTimeoutMS is the only limit.
 */
#include "store/mongodb/mongo.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/deadline.h"

#define GRACE_MS 1000
#define LEAST_MS 100

static _Thread_local struct {
    int64_t until_ns;        /* of the call; 0: none */
    uint32_t wait_ms;        /* for the server; 0: the store's */
    const atomic_bool *stop; /* true: no read or connect of this thread goes on; NULL: none */
} limit;

#define STOP_SLICE_MS 50
#define LENGTH_BYTES                                                                               \
    4 /* libmongoc reads the length of a message first, with nothing in its buffers */

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
    /* each look takes seconds: none begins that could only end late */
    while (!found && now_ns < until_ns && !truce__store_interrupted(&store->base, NULL)) {
        found = mongoc_client_select_server(client, true, NULL, why);
        now_ns = truce__clock_monotonic_ns() + LOOK_SLACK_NS;
    }
    mongoc_server_description_destroy(found);
    return found != NULL;
}

/* ---- streams -------------------------------------------------------------------------------- */

#define STREAM_TYPE 100 /* none of libmongoc's */

struct limited {
    mongoc_stream_t stream; /* first */
    mongoc_stream_t *inner;
};

static mongoc_stream_t *inner_of(mongoc_stream_t *stream)
{
    return ((struct limited *)stream)->inner;
}

/* In milliseconds, as libmongoc counts; not more than what is left of the call. */
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

/* Waits until a message begins to arrive, or its time is over. False: the thread was stopped. */
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

/* `arg` is the client, as libmongoc's own function wants it. */
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

/* A pool has few clients, which stay: each is met here once. */
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
