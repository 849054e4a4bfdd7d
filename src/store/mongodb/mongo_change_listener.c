/*
 * Listening for changes. One thread of a store reads the change stream of its database and advances
 * a counter for each collection that an event names. The first wait starts the thread.
 *
 *     slot of the name ->  [ 7 ][ 0 ][ 3 ] ...      a token is the counter that its waiter has seen
 *
 *     opening ---server replies---> listening ---no wait for idle_ms---> asleep ---wait---> opening
 *        ^                              |
 *        +----- RETRY_MS, rising <------+ network error, a server that steps down
 *
 * Invariants:
 *
 *   1. A change that was acknowledged after a token was filled ends the wait for it. Its event
 *      arrives while the thread listens. Every counter advances whenever listening begins, because
 *      earlier events do not arrive. So a broken stream need not be resumed; libmongoc
 *      resumes it if it can.
 *   2. No wait depends on the stream. If the stream is not open, or has been silent for longer than
 *      the server may be, a wait ends after POLL_MS and its caller checks.
 *   3. No thread outlives its store: closing joins it. The thread runs code of libmongoc and
 *      OpenSSL, which the end of the process tears down. It ends within STOP_SLICE_MS of the stop,
 *      also during a read (mongo_time_limit.c), and after at most GIVE_UP during a connect.
 *
 * Collections share counters by hash, so a wait may end for a change of another collection.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/thread.h"
#include "store/mongodb/mongo.h"

/* ---- waits ----------------------------------------------------------------------------------- */

/*
 * Waits for a change, with and without change streams.
 *
 * Without streams, the store cannot know whether there was a change (it has no TRUCE_CAN_WAIT). A
 * wait ends some time after its token was filled, and the caller checks. So it may wake without a
 * change, but never misses one. The time doubles from wait to wait, from SHORTEST_MS to LONGEST_MS.
 * If a caller waits again after more time than its last wait took, it was busy with changes. Its
 * next wait is the shortest one.
 *
 *     token: the monotonic time when it was filled, in microseconds << 4 | number of doublings
 */

/* The shortest and the longest wait without a change stream, in milliseconds. */
#define SHORTEST_MS 10
#define LONGEST_MS  500
/* The number of doublings: SHORTEST_MS << STEPS exceeds LONGEST_MS. */
#define STEPS 6

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

/* Waits without a change stream: sleeps for an interval that grows with each call, and then reports
 * that there may be changes. The token has the time and the number of the last interval. */
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
                      : truce__fail(TRUCE_TIMEOUT, error,
                                    "the changes of %s are unknown after %u "
                                    "ms",
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

/* The number of counters. A collection uses the counter of its hash. */
#define SLOTS 256
/* The milliseconds after which a silent server must send an empty batch. */
#define AWAIT_MS 1000
/* The stream counts as broken after this many milliseconds of silence. */
#define STALE_MS 3000
/* The milliseconds of a wait without an open stream. */
#define POLL_MS 250
/* The milliseconds before the first attempt to open the stream again. They double with each
 * attempt. */
#define RETRY_MS 50
/* The longest pause between two attempts in milliseconds. */
#define RETRY_MAX 5000
/* The maximum milliseconds that the thread waits for a server, and for a socket in addition to
 * AWAIT_MS. */
#define GIVE_UP 2000

struct mongo_listener {
    mongoc_uri_t *uri;
    char *database;
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when counters have changed, when the thread begins or ends to listen, when a waiting
     * thread needs it while it is asleep, and when it must end. */
    pthread_cond_t moved;
    /* The counter of each slot of collections. */
    uint32_t counters[SLOTS];
    bool listening, asleep;
    /* The thread exists until it is joined. */
    bool started;
    pthread_t thread;
    /* Set under the mutex. The thread's reads check it without the mutex. */
    atomic_bool stop;
    /* The nanoseconds without a wait after which the thread stops listening. */
    int64_t idle_ns;
    /* The structure number of the store, which drops and renames increment. */
    _Atomic uint64_t *structure;
    int waiters;
    /* The times of the last event or empty batch, and of the last wait (listen_now_ns). */
    int64_t heard_ns, waited_ns;
};

/* ---- time ------------------------------------------------------------------------------------ */

static void at_most(mongoc_uri_t *uri, const char *option, int32_t most_ms)
{
    if (mongoc_uri_get_option_as_int32(uri, option, most_ms) >= most_ms)
        mongoc_uri_set_option_as_int32(uri, option, most_ms);
}

struct mongo_listener *truce__mongo_listener_new(const mongoc_uri_t *uri, uint32_t idle_ms,
                                                 _Atomic uint64_t *structure)
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
    listener->structure = structure;
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

/* Returns the system's time, even if a test has installed another clock, by which no thread could
 * wake. */
static int64_t listen_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Sleeps until `until_ns`, or until a counter moves. Called under the mutex. */
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

/* Advances the counter of the collection that the event names at `path`, "ns" or "to". Returns
 * whether it names one. */
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

/* Returns whether the event concerns more than documents, such as a drop or a rename. */
static bool listen_is_structure(const bson_t *event)
{
    static const char *const plain[] = {"insert", "update", "replace", "delete"};
    const char *type = truce__field_text(event, "operationType");

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(type, plain[i]))
            return false;
    return true;
}

/* Handles an event. NULL means that the server had no event. */
static void listen_receive(struct mongo_listener *listener, const bson_t *event)
{
    pthread_mutex_lock(&listener->mutex);
    listener->heard_ns = listen_now_ns();
    if (event && listen_is_structure(event))
        atomic_fetch_add(listener->structure, 1);
    if (event) {
        bool named = move_named(listener, event, "ns.coll");

        /* The target of a rename changes, too. */
        named |= move_named(listener, event, "to.coll");
        if (!named)
            /* The database was dropped, or the stream has ended. */
            listen_move_all(listener);
        pthread_cond_broadcast(&listener->moved);
    }
    pthread_mutex_unlock(&listener->mutex);
}

static void set_listening(struct mongo_listener *listener, bool listening)
{
    pthread_mutex_lock(&listener->mutex);
    listener->listening = listening;
    listener->heard_ns = listen_now_ns();
    if (listening) {
        listen_move_all(listener);
        atomic_fetch_add(listener->structure, 1);
    }
    pthread_cond_broadcast(&listener->moved);
    pthread_mutex_unlock(&listener->mutex);
}

/* Returns whether no wait needs the stream. Called under the mutex. */
static bool listen_is_idle(const struct mongo_listener *listener)
{
    return !listener->waiters && listen_now_ns() - listener->waited_ns > listener->idle_ns;
}

/* Returns whether the listener was stopped, or no wait needs the stream. Called under the mutex. */
static bool listen_is_over(const struct mongo_listener *listener)
{
    return atomic_load(&listener->stop) || listen_is_idle(listener);
}

static bool listen_continues(struct mongo_listener *listener)
{
    bool over;

    pthread_mutex_lock(&listener->mutex);
    over = listen_is_over(listener);
    pthread_mutex_unlock(&listener->mutex);
    return !over;
}

/* Listens until the stream breaks. Returns true if it had begun. */
static bool listen_to_stream(struct mongo_listener *listener, mongoc_client_t *client)
{
    mongoc_database_t *database = mongoc_client_get_database(client, listener->database);
    bson_t *pipeline = BCON_NEW("pipeline", "[", "{", "$project", "{", "ns", BCON_INT32(1), "to",
                                BCON_INT32(1), "operationType", BCON_INT32(1), "}", "}", "]");
    bson_t *options = BCON_NEW("maxAwaitTimeMS", BCON_INT64(AWAIT_MS));
    mongoc_change_stream_t *stream = mongoc_database_watch(database, pipeline, options);
    bool begun = !mongoc_change_stream_error_document(stream, NULL, NULL);

    if (begun)
        set_listening(listener, true);
    while (begun && listen_continues(listener)) {
        const bson_t *event = NULL;

        if (!mongoc_change_stream_next(stream, &event) &&
            mongoc_change_stream_error_document(stream, NULL, NULL))
            break;
        listen_receive(listener, event);
    }
    if (begun)
        set_listening(listener, false);
    mongoc_change_stream_destroy(stream);
    bson_destroy(options);
    bson_destroy(pipeline);
    mongoc_database_destroy(database);
    return begun;
}

/* Pauses for some time, or until the listener ends. */
static void pause_for(struct mongo_listener *listener, int64_t pause_ms)
{
    int64_t until_ns = listen_now_ns() + pause_ms * 1000000;

    pthread_mutex_lock(&listener->mutex);
    while (!listen_is_over(listener) && listen_now_ns() < until_ns)
        listen_sleep_until(listener, until_ns);
    pthread_mutex_unlock(&listener->mutex);
}

/* Listens until the store is closed, or no wait needs the stream. */
static void listen_while_needed(struct mongo_listener *listener)
{
    mongoc_client_t *client = mongoc_client_new_from_uri(listener->uri);
    int64_t pause_ms = RETRY_MS;

    if (client) {
        mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
        truce__mongo_limit_listener(client);
    }
    while (listen_continues(listener)) {
        if (client && listen_to_stream(listener, client))
            pause_ms = RETRY_MS;
        pause_for(listener, pause_ms);
        pause_ms = pause_ms * 2 < RETRY_MAX ? pause_ms * 2 : RETRY_MAX;
    }
    if (client)
        mongoc_client_destroy(client);
}

/* Sleeps while no wait needs the stream. Returns false if the store is closed. */
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

/* Returns the time until which a wait may rely on the stream. After that, or without a stream, the
 * wait ends by POLL_MS. */
static int64_t listen_reliable_until(const struct mongo_listener *listener, int64_t begun_ns)
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
    int64_t begun_ns = listen_now_ns(), at_ns = begun_ns, reliable_ns;
    int64_t until_ns = begun_ns + (int64_t)timeout_ms * 1000000, wake_ns;
    truce_status status = TRUCE_OK;
    uint64_t seen;

    pthread_mutex_lock(&listener->mutex);
    listener->waiters++;
    if (listener->asleep)
        pthread_cond_broadcast(&listener->moved);
    /* If no thread can be started, waits poll. */
    if (!listener->started)
        listener->started = truce__thread_start(&listener->thread, listen_run, listener);
    for (;;) {
        /* The token is never 0. */
        seen = (uint64_t)*counter << 1 | 1;
        reliable_ns = listen_reliable_until(listener, begun_ns);
        if (seen != *token || at_ns >= until_ns || at_ns >= reliable_ns)
            break;
        status = truce__store_interrupted(store, error);
        if (status)
            break;
        wake_ns = at_ns + INTERRUPT_MS * INT64_C(1000000);
        wake_ns = until_ns < wake_ns ? until_ns : wake_ns;
        listen_sleep_until(listener, reliable_ns < wake_ns ? reliable_ns : wake_ns);
        at_ns = listen_now_ns();
    }
    listener->waiters--;
    listener->waited_ns = at_ns;
    pthread_mutex_unlock(&listener->mutex);
    if (status)
        return status;
    if (seen == *token && at_ns >= until_ns)
        return truce__fail(TRUCE_TIMEOUT, error, "nothing was written to %s in %u ms", collection,
                           timeout_ms);
    *token = seen;
    return TRUCE_OK;
}
