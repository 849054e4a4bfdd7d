/*
 * libtruce for Node: an addon of the stable Node-API that runs truce_command in threads.
 *
 *     JavaScript thread            threads of the pool
 *     command(store, ...)  ----->  queue  ----->  truce_command
 *     settle the promises  <-----  done   <-----
 *
 * The pool is the addon's own. libuv's pool has four threads, which files, DNS, and cryptography
 * share: a few writes that wait for the disk would stop them. The pool belongs to the process, and
 * starts with the first call. A call that waits for a job or a change gets a thread of its own, so
 * any number of waiting calls up to WAITING_MAX leaves the pool free.
 *
 * A read by _id takes a few microseconds, less than the way to a thread and back. findNow runs it
 * in the JavaScript thread, for QUICK_MS at most. If it does not succeed, command runs it again.
 * The request and the document go through buffers of the environment, because each further buffer
 * or string among the arguments of a call costs time.
 *
 * Each JavaScript thread (the main thread and each of worker_threads) has an environment with a
 * list of completed calls. The first call of a list wakes the JavaScript thread, which settles the
 * promises of the whole list.
 *
 * 1. A store is closed after its last call, by the thread that drops the last reference. References
 *    are the handle in JavaScript, until close() or garbage collection, and each call.
 * 2. After the end of its JavaScript thread, an environment gets no further completed calls. Its
 *    running calls end by themselves; their results are discarded. A job that such a call claims
 *    is claimed again after its lease.
 * 3. The addon is never unloaded (-z nodelete), because threads may run in it.
 *
 * libtruce is loaded at run time. RTLD_DEEPBIND keeps it from using the functions of SQLite that
 * some versions of Node export. If the process ends while calls run, they end as by a crash: an
 * acknowledged write is stored.
 */
#define _GNU_SOURCE
#define NAPI_VERSION 8
#include <node_api.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POOL_MAX    16
#define WAITING_MAX 500
#define WATCH_US    100
#define QUICK_MS    1
#define ROOM_BYTES  16384
#define STACK_BYTES (8 << 20)

/* The statuses of calls that did not run. */
#define STATUS_NO_THREAD (-1)
#define STATUS_NO_BSON   (-2)

#if defined RTLD_DEEPBIND && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define DEEPBIND RTLD_DEEPBIND
#else
#define DEEPBIND 0
#endif

/* ---- libtruce -------------------------------------------------------------------------------- */

/* The declarations of truce/store.h and of libbson, so that a build needs no headers of them. */
typedef struct {
    _Alignas(128) uint32_t flags;
    uint32_t len;
    uint8_t padding[120];
} bson_t;

typedef struct {
    uint32_t domain;
    uint32_t code;
    char message[504];
} bson_error_t;

typedef struct truce_store truce_store;

typedef struct {
    bool read_only, must_exist, relaxed;
    uint32_t deadline_ms, snapshot_age_ms, cache_mb;
    uint64_t snapshot_log_bytes;
    const void *hooks;
    const char *database;
    uint64_t reserved[3];
} truce_store_options;

static struct library {
    void *handle;
    const char *(*truce_version)(void);
    const char *(*truce_status_name)(int);
    int (*truce_store_open)(const char *, const truce_store_options *, truce_store **,
                            bson_error_t *);
    void (*truce_store_close)(truce_store *);
    int (*truce_command)(truce_store *, const char *, const bson_t *, bson_t *, bson_error_t *);
    int64_t (*truce_deadline_begin)(uint32_t);
    void (*truce_deadline_end)(int64_t);
    bool (*bson_init_static)(bson_t *, const uint8_t *, size_t);
    const uint8_t *(*bson_get_data)(const bson_t *);
    void (*bson_destroy)(bson_t *);
} lib;

static pthread_mutex_t lib_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Loads the functions. Returns NULL, or the reason why the library cannot be used. */
static const char *library_load(const char *path)
{
    const struct {
        const char *name;
        void *function;
    } names[] = {
        {"truce_version", &lib.truce_version},
        {"truce_status_name", &lib.truce_status_name},
        {"truce_store_open", &lib.truce_store_open},
        {"truce_store_close", &lib.truce_store_close},
        {"truce_command", &lib.truce_command},
        {"bson_init_static", &lib.bson_init_static},
        {"truce_deadline_end", &lib.truce_deadline_end},
        {"truce_deadline_begin", &lib.truce_deadline_begin},
        {"bson_get_data", &lib.bson_get_data},
        {"bson_destroy", &lib.bson_destroy},
    };
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | DEEPBIND);

    if (!handle)
        return dlerror();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(handle, names[i].name);

        if (!found)
            return dlerror();
        memcpy(names[i].function, &found, sizeof found);
    }
    lib.handle = handle;
    return NULL;
}

/* ---- environments, stores, calls ------------------------------------------------------------- */

struct environment {
    pthread_mutex_t mutex;
    /* The list of completed calls whose promises are not settled, and the end of the list. Guarded
     * by the mutex. */
    struct call *done;
    struct call **done_end;
    /* The JavaScript thread has ended. Written by it under the mutex. */
    bool ended;
    /* The references to the environment: one of the JavaScript thread, and one of each call. */
    atomic_int references;
    napi_threadsafe_function wake;
    /* The calls whose promises are pending. Only the JavaScript thread uses it. */
    size_t pending;
    /* The buffers of findNow. Only the JavaScript thread uses them. */
    uint8_t *request;
    uint8_t *found;
};

struct store {
    atomic_int references;
    truce_store *store;
    /* The call of close(), if JavaScript waits for the end. */
    struct call *closing;
};

/* The reference of JavaScript to a store. */
struct handle {
    struct environment *environment;
    /* The store, or NULL after close(). Only the JavaScript thread uses it. */
    struct store *store;
};

enum call_kind { CALL_OPEN, CALL_COMMAND, CALL_CLOSE };

struct call {
    struct call *next;
    enum call_kind kind;
    struct environment *environment;
    /* The promise, or NULL if the call closes a store for which no promise is pending. */
    napi_deferred deferred;
    struct store *store;
    truce_store_options options;
    /* The database of a command (NULL means the store's own database), or the URI to open. */
    char *name;
    uint8_t *request;
    size_t request_len;
    bson_t reply;
    bool has_reply;
    int status;
    bson_error_t error;
};

static void environment_release(struct environment *environment)
{
    if (atomic_fetch_sub(&environment->references, 1) > 1)
        return;
    pthread_mutex_destroy(&environment->mutex);
    free(environment);
}

static void call_free(struct call *call)
{
    if (call->has_reply)
        lib.bson_destroy(&call->reply);
    environment_release(call->environment);
    free(call->name);
    free(call->request);
    free(call);
}

static struct call *call_new(struct environment *environment, enum call_kind kind)
{
    struct call *call = aligned_alloc(_Alignof(struct call), sizeof *call);

    if (!call)
        abort();
    memset(call, 0, sizeof *call);
    call->kind = kind;
    call->environment = environment;
    atomic_fetch_add(&environment->references, 1);
    return call;
}

/* Frees a completed call whose JavaScript thread has ended. */
static void call_discard(struct call *call)
{
    if (call->kind == CALL_OPEN && call->store) { /* No handle was made for the store. */
        lib.truce_store_close(call->store->store);
        free(call->store);
    }
    call_free(call);
}

/* Passes a call to its JavaScript thread, or frees it if that thread has ended. */
static void call_complete(struct call *call)
{
    struct environment *environment = call->environment;
    bool ended;

    pthread_mutex_lock(&environment->mutex);
    ended = environment->ended;
    if (!ended) {
        bool first = !environment->done;

        *environment->done_end = call;
        environment->done_end = &call->next;
        if (first)
            napi_call_threadsafe_function(environment->wake, NULL, napi_tsfn_nonblocking);
    }
    pthread_mutex_unlock(&environment->mutex);
    if (ended)
        call_discard(call);
}

/* Closes the store if this was its last reference. */
static void store_release(struct store *store)
{
    struct call *closing;

    if (atomic_fetch_sub(&store->references, 1) > 1)
        return;
    lib.truce_store_close(store->store);
    closing = store->closing;
    free(store);
    if (closing)
        call_complete(closing);
}

/* Makes the call, which may block: a command, or opening a store. */
static void call_run(struct call *call)
{
    bson_t request;

    if (call->kind == CALL_COMMAND) {
        if (!lib.bson_init_static(&request, call->request, call->request_len)) {
            call->status = STATUS_NO_BSON;
            snprintf(call->error.message, sizeof call->error.message,
                     "the request of %zu bytes is not a BSON document", call->request_len);
            return;
        }
        call->status =
            lib.truce_command(call->store->store, call->name, &request, &call->reply, &call->error);
        call->has_reply = true;
    } else if (call->kind == CALL_OPEN) {
        struct store *store = calloc(1, sizeof *store);

        if (!store)
            abort();
        atomic_init(&store->references, 1);
        call->status =
            lib.truce_store_open(call->name, &call->options, &store->store, &call->error);
        if (call->status)
            free(store);
        else
            call->store = store;
    }
}

/* Passes the result to the JavaScript thread, and drops the call's reference to the store. */
static void call_end(struct call *call)
{
    struct store *store = call->kind == CALL_OPEN ? NULL : call->store;

    if (call->kind == CALL_CLOSE)
        call_free(call); /* The promise of close() belongs to store->closing. */
    else
        call_complete(call);
    if (store)
        store_release(store);
}

/* ---- the pool -------------------------------------------------------------------------------- */

/*
 * Waking a thread takes longer than most calls. One thread therefore runs calls until the queue is
 * empty. While it runs, a second thread watches the queue. If no call was taken from the queue for
 * WATCH_US, the watcher adds threads that run calls: the running calls are long, or wait for the
 * disk or a lock. The mutex guards all fields except `waiting`.
 */
static struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    struct call *first;
    struct call **end;
    /* The number of calls in the queue, and of all calls that were taken from the queue. */
    size_t queued;
    size_t taken;
    /* The number of threads, of threads without a role, and of threads that run calls. */
    size_t threads;
    size_t idle;
    size_t running;
    /* A thread watches the queue, or was woken to watch. */
    bool watched;
    /* The roles that the next threads take when they wake. */
    size_t runners_wanted;
    bool watcher_wanted;
    /* The number of calls that wait for a job or a change, each in its own thread. */
    atomic_int waiting;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .end = &pool.first};

static void *pool_work(void *unused);

/* Starts a thread that leaves the signals to Node, except those of its own faults. */
static bool pool_start(void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int failed;

    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGFPE);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* Wakes or starts a thread for a role. Returns false if no thread can be started. The mutex must be
 * held. */
static bool pool_wake(void)
{
    if (pool.idle > pool.runners_wanted + pool.watcher_wanted) {
        pthread_cond_signal(&pool.more);
        return true;
    }
    /* POOL_MAX threads run calls, and one more thread watches. */
    if (pool.threads > POOL_MAX || !pool_start(pool_work, NULL))
        return false;
    pool.threads++;
    return true;
}

static bool pool_add_runner(void)
{
    if (!pool_wake())
        return false;
    pool.runners_wanted++;
    pool.running++;
    return true;
}

/* Returns the next call. If the queue is empty, returns NULL, and the thread no longer counts as
 * running. The mutex must be held. */
static struct call *pool_take(void)
{
    struct call *call = pool.first;

    if (!call) {
        pool.running--;
        return NULL;
    }
    pool.first = call->next;
    if (!pool.first)
        pool.end = &pool.first;
    pool.queued--;
    pool.taken++;
    call->next = NULL;
    return call;
}

/* Runs calls until the queue is empty. The next call is taken before the result of the last one is
 * passed on. So if the queue is empty, `running` is already decreased when JavaScript gets the
 * result and makes its next call, which therefore needs no watcher. The mutex must be held, and is
 * held on return. */
static void pool_run(void)
{
    struct call *call = pool_take(), *next;

    pthread_mutex_unlock(&pool.mutex);
    for (; call; call = next) {
        call_run(call);
        pthread_mutex_lock(&pool.mutex);
        next = pool_take();
        pthread_mutex_unlock(&pool.mutex);
        call_end(call);
    }
    pthread_mutex_lock(&pool.mutex);
}

/* Adds threads that run calls while no call is taken from the queue. The mutex must be held. */
static void pool_watch(void)
{
    while (pool.first) {
        size_t taken = pool.taken;

        pthread_mutex_unlock(&pool.mutex);
        nanosleep(&(struct timespec){.tv_nsec = WATCH_US * 1000}, NULL);
        pthread_mutex_lock(&pool.mutex);
        if (taken != pool.taken)
            continue;
        for (size_t i = 0; i < pool.queued && pool.running < POOL_MAX; i++)
            if (!pool_add_runner())
                break;
    }
    pool.watched = false;
}

/* Runs a thread of the pool, which runs queued calls or watches the queue. Never returns. */
static void *pool_work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.mutex);
    for (;;) {
        pool.idle++;
        while (!pool.runners_wanted && !pool.watcher_wanted)
            pthread_cond_wait(&pool.more, &pool.mutex);
        pool.idle--;
        if (pool.runners_wanted) {
            pool.runners_wanted--;
            pool_run();
        } else {
            pool.watcher_wanted = false;
            pool_watch();
        }
    }
    return NULL;
}

static void *pool_wait(void *call)
{
    call_run(call);
    atomic_fetch_sub(&pool.waiting, 1);
    call_end(call);
    return NULL;
}

/* Queues a call. Returns false if no thread can be started. */
static bool pool_submit(struct call *call)
{
    bool accepted = true;

    pthread_mutex_lock(&pool.mutex);
    if (!pool.running) {
        accepted = pool_add_runner() || pool.watched;
    } else if (!pool.watched && pool_wake()) {
        pool.watcher_wanted = true;
        pool.watched = true;
    }
    if (accepted) {
        *pool.end = call;
        pool.end = &call->next;
        pool.queued++;
    }
    pthread_mutex_unlock(&pool.mutex);
    return accepted;
}

/* Runs a call in a thread of its own. Returns false if there are too many of them. */
static bool pool_submit_waiting(struct call *call)
{
    if (atomic_fetch_add(&pool.waiting, 1) < WAITING_MAX && pool_start(pool_wait, call))
        return true;
    atomic_fetch_sub(&pool.waiting, 1);
    return false;
}

/* ---- results --------------------------------------------------------------------------------- */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != napi_ok)                                                                     \
            return NULL;                                                                           \
    } while (0)

static napi_value result_text(napi_env env, const char *text)
{
    napi_value value = NULL;

    napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value);
    return value;
}

static napi_value result_reply(napi_env env, const struct call *call)
{
    napi_value value = NULL;

    if (call->has_reply)
        napi_create_buffer_copy(env, call->reply.len, lib.bson_get_data(&call->reply), NULL,
                                &value);
    return value;
}

/* Returns what the promise is rejected with: {status, code, message, reply}. */
static napi_value result_failure(napi_env env, const struct call *call)
{
    napi_value failure = NULL, code = NULL, reply = result_reply(env, call);
    const char *status = call->status == STATUS_NO_THREAD ? "limit reached"
                         : call->status == STATUS_NO_BSON ? "invalid"
                                                          : lib.truce_status_name(call->status);

    napi_create_object(env, &failure);
    napi_create_uint32(env, call->error.code, &code);
    napi_set_named_property(env, failure, "status", result_text(env, status));
    napi_set_named_property(env, failure, "code", code);
    napi_set_named_property(env, failure, "message", result_text(env, call->error.message));
    if (reply)
        napi_set_named_property(env, failure, "reply", reply);
    return failure;
}

/* Drops the handle's reference. The pool closes a store that has no running calls. */
static void handle_close(struct handle *handle, struct call *closing)
{
    struct store *store = handle->store;
    struct call *call = call_new(handle->environment, CALL_CLOSE);

    handle->store = NULL;
    store->closing = closing;
    call->store = store;
    if (pool_submit(call))
        return;
    call_free(call);
    store_release(store);
}

static void handle_finalize(napi_env env, void *data, void *hint)
{
    struct handle *handle = data;

    (void)env;
    (void)hint;
    if (handle->store && handle->environment->ended)
        store_release(handle->store);
    else if (handle->store)
        handle_close(handle, NULL);
    environment_release(handle->environment);
    free(handle);
}

static napi_value handle_new(napi_env env, struct call *call)
{
    napi_value value = NULL;
    struct handle *handle = calloc(1, sizeof *handle);

    if (!handle)
        abort();
    handle->environment = call->environment;
    handle->store = call->store;
    atomic_fetch_add(&handle->environment->references, 1);
    if (napi_create_external(env, handle, handle_finalize, NULL, &value) != napi_ok)
        handle_finalize(env, handle, NULL);
    return value;
}

static void result_settle(napi_env env, struct call *call)
{
    napi_value value = NULL;

    if (call->status) {
        napi_reject_deferred(env, call->deferred, result_failure(env, call));
        return;
    }
    if (call->kind == CALL_COMMAND) {
        value = result_reply(env, call);
    } else if (call->kind == CALL_OPEN) {
        value = handle_new(env, call);
    }
    if (!value)
        napi_get_undefined(env, &value);
    napi_resolve_deferred(env, call->deferred, value);
}

/* Settles the promises of the completed calls. `env` is NULL if JavaScript cannot run any more. */
static void environment_drain(napi_env env, napi_value callback, void *context, void *data)
{
    struct environment *environment = context;
    struct call *call, *next;

    (void)callback;
    (void)data;
    if (!env)
        return;
    pthread_mutex_lock(&environment->mutex);
    call = environment->done;
    environment->done = NULL;
    environment->done_end = &environment->done;
    pthread_mutex_unlock(&environment->mutex);
    for (; call; call = next) {
        napi_handle_scope scope;

        next = call->next;
        napi_open_handle_scope(env, &scope);
        result_settle(env, call);
        napi_close_handle_scope(env, scope);
        call_free(call);
        environment->pending--;
    }
    if (!environment->pending)
        napi_unref_threadsafe_function(env, environment->wake);
}

/* ---- the functions of the addon -------------------------------------------------------------- */

/* Queues a call, and returns its promise. */
static napi_value call_start(napi_env env, struct call *call, bool waits)
{
    struct environment *environment = call->environment;
    napi_value promise = NULL;

    napi_create_promise(env, &call->deferred, &promise);
    if (!environment->pending++)
        napi_ref_threadsafe_function(env, environment->wake);
    if (call->kind == CALL_CLOSE || (waits ? pool_submit_waiting(call) : pool_submit(call)))
        return promise;
    call->status = STATUS_NO_THREAD;
    snprintf(call->error.message, sizeof call->error.message,
             waits ? "%d calls are waiting: wait for fewer jobs and changes at a time"
                   : "cannot start a thread of %d: the process has too many",
             waits ? WAITING_MAX : POOL_MAX);
    if (call->kind == CALL_COMMAND)
        store_release(call->store);
    call_complete(call);
    return promise;
}

static struct environment *environment_of(napi_env env)
{
    void *environment = NULL;

    napi_get_instance_data(env, &environment);
    return environment;
}

static char *argument_text(napi_env env, napi_value value)
{
    size_t length = 0;
    char *text;

    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok)
        return NULL; /* JavaScript gets undefined. */
    text = malloc(length + 1);
    if (!text)
        abort();
    napi_get_value_string_utf8(env, value, text, length + 1, &length);
    return text;
}

static bool argument_true(napi_env env, napi_value value)
{
    bool is_true = false;

    napi_get_value_bool(env, value, &is_true);
    return is_true;
}

static uint32_t argument_number(napi_env env, napi_value value)
{
    uint32_t number = 0;

    napi_get_value_uint32(env, value, &number);
    return number;
}

/* Returns an open handle, or NULL with an exception. */
static struct handle *argument_handle(napi_env env, napi_value value)
{
    void *data = NULL;
    struct handle *handle;

    if (napi_get_value_external(env, value, &data) != napi_ok || !((struct handle *)data)->store) {
        napi_throw_error(env, NULL, "the store is closed");
        return NULL;
    }
    handle = data;
    return handle;
}

/* load(path): returns the version of the library, which the first call of the process loads. */
static napi_value addon_load(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value argument;
    const char *reason = NULL;
    char *path;

    TRY(napi_get_cb_info(env, info, &count, &argument, NULL, NULL));
    path = argument_text(env, argument);
    pthread_mutex_lock(&lib_mutex);
    if (!lib.handle)
        reason = library_load(path);
    if (reason)
        napi_throw_error(env, NULL, reason);
    pthread_mutex_unlock(&lib_mutex);
    free(path);
    return reason ? NULL : result_text(env, lib.truce_version());
}

/* open(uri, readOnly, mustExist, relaxed, deadlineMS, snapshotAgeMS, cacheMB): a promise of a
 * handle. */
static napi_value addon_open(napi_env env, napi_callback_info info)
{
    size_t count = 7;
    napi_value arguments[7];
    struct call *call;

    TRY(napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
    call = call_new(environment_of(env), CALL_OPEN);
    call->name = argument_text(env, arguments[0]);
    call->options.read_only = argument_true(env, arguments[1]);
    call->options.must_exist = argument_true(env, arguments[2]);
    call->options.relaxed = argument_true(env, arguments[3]);
    call->options.deadline_ms = argument_number(env, arguments[4]);
    call->options.snapshot_age_ms = argument_number(env, arguments[5]);
    call->options.cache_mb = argument_number(env, arguments[6]);
    return call_start(env, call, false);
}

/* command(handle, database, request, waits): a promise of the reply's bytes. */
static napi_value addon_command(napi_env env, napi_callback_info info)
{
    size_t count = 4;
    napi_value arguments[4];
    struct handle *handle;
    struct call *call;
    void *bytes = NULL;
    size_t length = 0;

    TRY(napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
    handle = argument_handle(env, arguments[0]);
    if (!handle)
        return NULL;
    TRY(napi_get_buffer_info(env, arguments[2], &bytes, &length));
    call = call_new(handle->environment, CALL_COMMAND);
    call->name = argument_text(env, arguments[1]);
    call->request = malloc(length);
    if (!call->request)
        abort();
    memcpy(call->request, bytes, length);
    call->request_len = length;
    call->store = handle->store;
    atomic_fetch_add(&call->store->references, 1);
    return call_start(env, call, argument_true(env, arguments[3]));
}

/* Finds the document in the reply of a find with one at most. Returns false if the reply has
 * another form: {cursor: {firstBatch: [DOCUMENT], ...}, ...}. Without a document, it is NULL. */
static bool reply_first(const bson_t *reply, const uint8_t **document, uint32_t *size)
{
    static const char cursor[] = "\3cursor", batch[] = "\4firstBatch", first[] = {3, '0', 0};
    const uint8_t *at = lib.bson_get_data(reply), *end = at + reply->len;

    *document = NULL;
    at += 4;
    if (reply->len < 64 || memcmp(at, cursor, sizeof cursor) != 0)
        return false;
    at += sizeof cursor + 4;
    if (memcmp(at, batch, sizeof batch) != 0)
        return false;
    at += sizeof batch + 4;
    if (!*at)
        return true;
    if (memcmp(at, first, sizeof first) != 0)
        return false;
    *document = at + sizeof first;
    memcpy(size, *document, sizeof *size);
    return *size <= (size_t)(end - *document);
}

/* findNow(handle, database, length): runs a find of one document, whose command is in the buffer
 * `request` of the exports. Writes the document into the buffer `found`, and returns its length, or
 * -1 without a document. Returns 0 if the command failed or exceeded QUICK_MS, or if the document
 * is too large. */
static napi_value addon_find_now(napi_env env, napi_callback_info info)
{
    size_t count = 3, length = 0;
    napi_value arguments[3], value = NULL;
    struct environment *environment;
    struct handle *handle;
    bson_t request, reply;
    const uint8_t *document;
    uint32_t size = 0;
    int32_t found = 0;
    int64_t before;
    char name[128];

    TRY(napi_get_cb_info(env, info, &count, arguments, NULL, NULL));
    handle = argument_handle(env, arguments[0]);
    if (!handle)
        return NULL;
    environment = handle->environment;
    /* Every longer name is invalid. The command, which runs next, fails with the reason. */
    if (napi_get_value_string_utf8(env, arguments[1], name, sizeof name, &length) != napi_ok)
        length = 0;
    if (length < sizeof name - 1) {
        if (!lib.bson_init_static(&request, environment->request,
                                  argument_number(env, arguments[2])))
            goto out; /* command reports it */
        before = lib.truce_deadline_begin(QUICK_MS);
        if (!lib.truce_command(handle->store->store, length ? name : NULL, &request, &reply,
                               NULL) &&
            reply_first(&reply, &document, &size)) {
            found = document ? (int32_t)size : -1;
            if (document && size <= ROOM_BYTES)
                memcpy(environment->found, document, size);
            else if (document)
                found = 0;
        }
        lib.truce_deadline_end(before);
        lib.bson_destroy(&reply);
    }
out:
    napi_create_int32(env, found, &value);
    return value;
}

/* close(handle): a promise of the end. It waits for the store's running calls. */
static napi_value addon_close(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value argument, promise;
    struct handle *handle;
    struct call *call;

    TRY(napi_get_cb_info(env, info, &count, &argument, NULL, NULL));
    handle = argument_handle(env, argument);
    if (!handle)
        return NULL;
    call = call_new(handle->environment, CALL_CLOSE);
    promise = call_start(env, call, false);
    handle_close(handle, call);
    return promise;
}

static void environment_end(void *data)
{
    struct environment *environment = data;
    struct call *call, *next;

    pthread_mutex_lock(&environment->mutex);
    environment->ended = true;
    call = environment->done;
    environment->done = NULL;
    pthread_mutex_unlock(&environment->mutex);
    for (; call; call = next) {
        next = call->next;
        call_discard(call);
    }
    environment_release(environment);
}

/* Makes a buffer that lives as long as the environment. */
static uint8_t *exports_buffer(napi_env env, napi_value exports, const char *name)
{
    napi_value buffer = NULL;
    napi_ref reference;
    void *data = NULL;

    TRY(napi_create_buffer(env, ROOM_BYTES, &data, &buffer));
    TRY(napi_create_reference(env, buffer, 1, &reference));
    TRY(napi_set_named_property(env, exports, name, buffer));
    return data;
}

static napi_value addon_init(napi_env env, napi_value exports)
{
    const napi_property_descriptor functions[] = {
        {"load", NULL, addon_load, NULL, NULL, NULL, napi_enumerable, NULL},
        {"open", NULL, addon_open, NULL, NULL, NULL, napi_enumerable, NULL},
        {"command", NULL, addon_command, NULL, NULL, NULL, napi_enumerable, NULL},
        {"findNow", NULL, addon_find_now, NULL, NULL, NULL, napi_enumerable, NULL},
        {"close", NULL, addon_close, NULL, NULL, NULL, napi_enumerable, NULL},
    };
    struct environment *environment = calloc(1, sizeof *environment);

    if (!environment)
        abort();
    pthread_mutex_init(&environment->mutex, NULL);
    environment->done_end = &environment->done;
    atomic_init(&environment->references, 1);
    TRY(napi_create_threadsafe_function(env, NULL, NULL, result_text(env, "truce"), 0, 1, NULL,
                                        NULL, environment, environment_drain, &environment->wake));
    napi_unref_threadsafe_function(env, environment->wake);
    napi_set_instance_data(env, environment, NULL, NULL);
    /* The hooks run in reverse order, so environment_end runs before the hook of `wake`, which was
     * added first. */
    napi_add_env_cleanup_hook(env, environment_end, environment);
    TRY(napi_define_properties(env, exports, sizeof functions / sizeof *functions, functions));
    environment->request = exports_buffer(env, exports, "request");
    environment->found = exports_buffer(env, exports, "found");
    if (!environment->request || !environment->found)
        return NULL; /* An exception is pending. */
    return exports;
}

NAPI_MODULE(truce, addon_init)
