/*
 * Listening for changes. One thread of a store reads the change stream of its database and advances a counter
 * for each collection that an event names. The first wait starts the thread.
 *
 *     slot of the name ->  [ 7 ][ 0 ][ 3 ] ...      a token is the counter that its waiter has seen
 *
 *     opening ---server answers---> listening ---no wait for idle_ms---> asleep ---wait---> opening
 *        ^                              |
 *        +----- RETRY_MS, rising <------+ network error, a server that steps down
 *
 * Invariants
 * 1. A change that was acknowledged after a token was filled ends the wait for it: its event arrives while
 *    the thread listens, and every counter advances whenever listening begins, because no event of the time
 *    before arrives. So a broken stream need not be resumed where it ended; libmongoc resumes it where it can.
 * 2. No wait depends on the stream: if the stream is not open, or has been silent for longer than the server
 *    may be, a wait ends after POLL_MS and its caller looks.
 * 3. No thread outlives its store: closing joins it. The thread runs code of libmongoc and OpenSSL, which the
 *    end of the process tears down. It ends within STOP_SLICE_MS of the stop, also in the middle of a read
 *    (mongo_command.c), and after at most GIVE_UP in the middle of a connect.
 *
 * Collections share counters by hash, so a wait may end for a change of another collection.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "store/mongodb/mongo.h"

/* ---- waits ----------------------------------------------------------------------------------- */

/*
 * Waiting for a change, with change streams and without them.
 *
 * Without them the store cannot tell whether there was a change (it has no TRUCE_CAN_WAIT), so a wait
 * ends some time after its token was filled, and the caller looks: that may wake without a change, and
 * never misses one. The time doubles from wait to wait, from SHORTEST_MS to LONGEST_MS. A caller that
 * stays away for longer than its last wait had found something to do: it begins with the shortest again.
 *
 *     token: the monotonic time at which it was filled, in microseconds << 4 | how often it was doubled
 */

#define SHORTEST_MS 10
#define LONGEST_MS  500
#define STEPS       6 /* 10 << 6 is past LONGEST_MS */

static int64_t interval_us(uint64_t steps)
{
    int64_t interval_ms = (int64_t)SHORTEST_MS << steps;

    return (interval_ms < LONGEST_MS ? interval_ms : LONGEST_MS) * 1000;
}

static uint64_t make_token(int64_t now_us, uint64_t steps)
{
    return (uint64_t)now_us << 4 | steps;
}

static truce_status sleep_for(const truce_store *store, int64_t duration_ms, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (duration_ms > 0 && !status) {
        truce__clock_sleep_ms(duration_ms < INTERRUPT_MS ? duration_ms : INTERRUPT_MS);
        duration_ms -= INTERRUPT_MS;
        status = truce__store_interrupted(store, error);
    }
    return status;
}

static truce_status poll_for(const truce_store *store, const char *collection, uint64_t *token,
                             uint32_t timeout_ms, bson_error_t *error)
{
    uint64_t steps = *token & 15;
    int64_t filled_us = (int64_t)(*token >> 4), now_us = truce__clock_monotonic_ns() / 1000;
    int64_t left_us = filled_us + interval_us(steps) - now_us;
    truce_status status = TRUCE_OK;

    if (!*token) {
        *token = make_token(now_us, 0);
        return TRUCE_OK;
    }
    if (left_us > (int64_t)timeout_ms * 1000) {
        status = sleep_for(store, timeout_ms, error);
        return status ? status
                      : truce__fail(TRUCE_TIMEOUT, error, "nothing is known of %s after %u ms",
                                    collection, timeout_ms);
    }
    if (left_us > 0)
        status = sleep_for(store, (left_us + 999) / 1000, error);
    if (status)
        return status;
    steps = left_us <= 0 ? 0 : steps < STEPS ? steps + 1 : STEPS;
    *token = make_token(truce__clock_monotonic_ns() / 1000, steps);
    return TRUCE_OK;
}

truce_status truce__mongo_wait(truce_store *base, const char *collection, uint64_t *token,
                               uint32_t timeout_ms, bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;

    return store->listener ? truce__mongo_listener_wait(store->listener, base, collection, token,
                                                        timeout_ms, error)
                           : poll_for(base, collection, token, timeout_ms, error);
}

/* ---- change streams -------------------------------------------------------------------------- */

#define SLOTS     256
#define AWAIT_MS  1000 /* how long the server may keep silent */
#define STALE_MS  3000 /* the stream counts as broken when it was silent for that long */
#define POLL_MS   250  /* a wait while nobody listens */
#define RETRY_MS  50   /* until the first try to open it again */
#define RETRY_MAX 5000 /* the last ones */
/* The most that the thread waits for a server, and for a socket beyond AWAIT_MS. */
#define GIVE_UP 2000

struct mongo_listener {
    mongoc_uri_t *uri;
    char *database;
    pthread_mutex_t mutex; /* over all below */
    pthread_cond_t moved;
    uint32_t counters[SLOTS];
    bool listening, asleep;
    bool started; /* the thread exists, until it is joined */
    pthread_t thread;
    atomic_bool stop; /* set under the mutex; the thread's reads look at it without */
    int64_t idle_ns;
    int waiters;
    int64_t heard_ns, waited_ns; /* by listen_now_ns() */
};

/* ---- life ----------------------------------------------------------------------------------- */

static void at_most(mongoc_uri_t *uri, const char *option, int32_t most_ms)
{
    if (mongoc_uri_get_option_as_int32(uri, option, most_ms) >= most_ms)
        mongoc_uri_set_option_as_int32(uri, option, most_ms);
}

struct mongo_listener *truce__mongo_listener_new(const mongoc_uri_t *uri, uint32_t idle_ms)
{
    struct mongo_listener *listener = bson_malloc0(sizeof *listener);
    pthread_condattr_t attributes;

    listener->uri = mongoc_uri_copy(uri);
    listener->database = bson_strdup(mongoc_uri_get_database(uri));
    at_most(listener->uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, GIVE_UP);
    at_most(listener->uri, MONGOC_URI_CONNECTTIMEOUTMS, GIVE_UP);
    mongoc_uri_set_option_as_int32(listener->uri, MONGOC_URI_SOCKETTIMEOUTMS, AWAIT_MS + GIVE_UP);
    pthread_mutex_init(&listener->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&listener->moved, &attributes);
    pthread_condattr_destroy(&attributes);
    listener->idle_ns = idle_ms * INT64_C(1000000);
    return listener;
}

void truce__mongo_listener_close(struct mongo_listener *listener)
{
    if (!listener)
        return;
    pthread_mutex_lock(&listener->mutex);
    atomic_store(&listener->stop, true);
    pthread_cond_broadcast(&listener->moved);
    pthread_mutex_unlock(&listener->mutex);
    if (listener->started)
        pthread_join(listener->thread, NULL);
    pthread_cond_destroy(&listener->moved);
    pthread_mutex_destroy(&listener->mutex);
    mongoc_uri_destroy(listener->uri);
    bson_free(listener->database);
    bson_free(listener);
}

/* The system's, also where a test has put another clock in its place: nobody could wake by that. */
static int64_t listen_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Under the mutex: until `until_ns`, or something moved. */
static void listen_sleep_until(struct mongo_listener *listener, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};

    pthread_cond_timedwait(&listener->moved, &listener->mutex, &until);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static uint32_t listen_slot_of(const char *collection, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)collection[i]) * 16777619u;
    return hash % SLOTS;
}

static void listen_move_all(struct mongo_listener *listener)
{
    for (size_t i = 0; i < SLOTS; i++)
        listener->counters[i]++;
}

/* The collection that "ns" or "to" of the event names. */
static bool move_named(struct mongo_listener *listener, const bson_t *event, const char *path)
{
    bson_iter_t iter, name;
    uint32_t length;
    const char *text;

    if (!bson_iter_init(&iter, event) || !bson_iter_find_descendant(&iter, path, &name) ||
        !BSON_ITER_HOLDS_UTF8(&name))
        return false;
    text = bson_iter_utf8(&name, &length);
    listener->counters[listen_slot_of(text, length)]++;
    return true;
}

/* An event, or NULL: the server had nothing to tell. */
static void listen_hear(struct mongo_listener *listener, const bson_t *event)
{
    pthread_mutex_lock(&listener->mutex);
    listener->heard_ns = listen_now_ns();
    if (event) {
        bool named = move_named(listener, event, "ns.coll");

        named |= move_named(listener, event, "to.coll"); /* of a rename */
        if (!named)
            listen_move_all(listener); /* the database was dropped, or the stream has ended */
        pthread_cond_broadcast(&listener->moved);
    }
    pthread_mutex_unlock(&listener->mutex);
}

static void set_listening(struct mongo_listener *listener, bool listening)
{
    pthread_mutex_lock(&listener->mutex);
    listener->listening = listening;
    listener->heard_ns = listen_now_ns();
    if (listening)
        listen_move_all(listener);
    pthread_cond_broadcast(&listener->moved);
    pthread_mutex_unlock(&listener->mutex);
}

/* Under the mutex: no wait needs the stream any more. */
static bool listen_is_idle(const struct mongo_listener *listener)
{
    return !listener->waiters && listen_now_ns() - listener->waited_ns > listener->idle_ns;
}

/* Under the mutex. */
static bool listen_is_over(const struct mongo_listener *listener)
{
    return atomic_load(&listener->stop) || listen_is_idle(listener);
}

static bool listen_goes_on(struct mongo_listener *listener)
{
    bool over;

    pthread_mutex_lock(&listener->mutex);
    over = listen_is_over(listener);
    pthread_mutex_unlock(&listener->mutex);
    return !over;
}

/* Until the stream breaks. True: it had begun. */
static bool hear_all(struct mongo_listener *listener, mongoc_client_t *client)
{
    mongoc_database_t *database = mongoc_client_get_database(client, listener->database);
    bson_t *pipeline = BCON_NEW("pipeline", "[", "{", "$project", "{", "ns", BCON_INT32(1), "to",
                                BCON_INT32(1), "operationType", BCON_INT32(1), "}", "}", "]");
    bson_t *options = BCON_NEW("maxAwaitTimeMS", BCON_INT64(AWAIT_MS));
    mongoc_change_stream_t *stream = mongoc_database_watch(database, pipeline, options);
    bool begun = !mongoc_change_stream_error_document(stream, NULL, NULL);

    if (begun)
        set_listening(listener, true);
    while (begun && listen_goes_on(listener)) {
        const bson_t *event = NULL;

        if (!mongoc_change_stream_next(stream, &event) &&
            mongoc_change_stream_error_document(stream, NULL, NULL))
            break;
        listen_hear(listener, event);
    }
    if (begun)
        set_listening(listener, false);
    mongoc_change_stream_destroy(stream);
    bson_destroy(options);
    bson_destroy(pipeline);
    mongoc_database_destroy(database);
    return begun;
}

/* Some time, or until it is over. */
static void pause_for(struct mongo_listener *listener, int64_t pause_ms)
{
    int64_t until_ns = listen_now_ns() + pause_ms * 1000000;

    pthread_mutex_lock(&listener->mutex);
    while (!listen_is_over(listener) && listen_now_ns() < until_ns)
        listen_sleep_until(listener, until_ns);
    pthread_mutex_unlock(&listener->mutex);
}

/* Until the store is closed, or no wait needs the stream. */
static void listen_while_needed(struct mongo_listener *listener)
{
    mongoc_client_t *client = mongoc_client_new_from_uri(listener->uri);
    int64_t pause_ms = RETRY_MS;

    if (client) {
        mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
        truce__mongo_limit_listener(client);
    }
    while (listen_goes_on(listener)) {
        if (client && hear_all(listener, client))
            pause_ms = RETRY_MS;
        pause_for(listener, pause_ms);
        pause_ms = pause_ms * 2 < RETRY_MAX ? pause_ms * 2 : RETRY_MAX;
    }
    if (client)
        mongoc_client_destroy(client);
}

/* False: the store is closed. */
static bool sleep_while_idle(struct mongo_listener *listener)
{
    bool stop;

    pthread_mutex_lock(&listener->mutex);
    listener->asleep = true;
    while (!atomic_load(&listener->stop) && listen_is_idle(listener))
        pthread_cond_wait(&listener->moved, &listener->mutex);
    listener->asleep = false;
    stop = atomic_load(&listener->stop);
    pthread_mutex_unlock(&listener->mutex);
    return !stop;
}

static void *listen_run(void *arg)
{
    struct mongo_listener *listener = arg;

    truce__mongo_limit_until(&listener->stop);
    while (sleep_while_idle(listener))
        listen_while_needed(listener);
    return NULL;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Until when a wait may rely on the stream; past that, or without one, it ends by POLL_MS. */
static int64_t trusted_until(const struct mongo_listener *listener, int64_t begun_ns)
{
    int64_t stale_ns = listener->heard_ns + STALE_MS * INT64_C(1000000);
    int64_t polled_ns = begun_ns + POLL_MS * INT64_C(1000000);

    return listener->listening && stale_ns > polled_ns ? stale_ns : polled_ns;
}

truce_status truce__mongo_listener_wait(struct mongo_listener *listener, const truce_store *store,
                                        const char *collection, uint64_t *token,
                                        uint32_t timeout_ms, bson_error_t *error)
{
    uint32_t *counter = &listener->counters[listen_slot_of(collection, strlen(collection))];
    int64_t begun_ns = listen_now_ns(), at_ns = begun_ns, trusted_ns;
    int64_t until_ns = begun_ns + (int64_t)timeout_ms * 1000000, wake_ns;
    truce_status status = TRUCE_OK;
    uint64_t seen;

    pthread_mutex_lock(&listener->mutex);
    listener->waiters++;
    if (listener->asleep)
        pthread_cond_broadcast(&listener->moved);
    if (!listener->started) /* if there is no thread to have, waits poll */
        listener->started = truce__thread_start(&listener->thread, listen_run, listener);
    for (;;) {
        seen = (uint64_t)*counter << 1 | 1; /* never 0 */
        trusted_ns = trusted_until(listener, begun_ns);
        if (seen != *token || at_ns >= until_ns || at_ns >= trusted_ns)
            break;
        status = truce__store_interrupted(store, error);
        if (status)
            break;
        wake_ns = at_ns + INTERRUPT_MS * INT64_C(1000000);
        wake_ns = until_ns < wake_ns ? until_ns : wake_ns;
        listen_sleep_until(listener, trusted_ns < wake_ns ? trusted_ns : wake_ns);
        at_ns = listen_now_ns();
    }
    listener->waiters--;
    listener->waited_ns = at_ns;
    pthread_mutex_unlock(&listener->mutex);
    if (status)
        return status;
    if (seen == *token && at_ns >= until_ns)
        return truce__fail(TRUCE_TIMEOUT, error, "nothing was heard of %s in %u ms", collection,
                           timeout_ms);
    *token = seen;
    return TRUCE_OK;
}
