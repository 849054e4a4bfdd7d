/*
 * Loads libmongoc on demand, and finds the functions that truce calls.
 *
 * The library stays loaded, because its global state (OpenSSL, counters, threads) does not survive
 * an unload. A process that uses libmongoc itself shares the library.
 *
 * On load, libmongoc makes a file for its counters, /dev/shm/mongoc-<process>, for a tool that
 * shows them. If the process is killed, the file remains, and a later process with the same number
 * reports an error about it. So truce removes the file's name at once, unless the process itself
 * uses libmongoc.
 */
#define MONGOC_NAMES_ITSELF 1
#include "store/mongodb/mongoc_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/forks.h"

struct mongoc_functions truce__mongoc;
mongoc_stream_initiator_t truce__mongoc_make_stream;

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define FUNCTION(called) {"mongoc_" #called, offsetof(struct mongoc_functions, called)},
    MONGOC_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* ---- messages ------------------------------------------------------------------------------- */

static struct {
    /* Guards the list. */
    pthread_mutex_t mutex;
    struct mongoc_audience *first;
} audiences = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static truce_log_level level_of(mongoc_log_level_t level)
{
    return level <= MONGOC_LOG_LEVEL_CRITICAL  ? TRUCE_LOG_ERROR
           : level == MONGOC_LOG_LEVEL_WARNING ? TRUCE_LOG_WARNING
                                               : TRUCE_LOG_INFO;
}

/* libmongoc's message after a failed abort. It is no error: the server aborts a transaction by
 * itself when a statement fails. */
#define ABORT_FAILED "Error in abortTransaction"

/* Passes libmongoc's messages on to the stores. libmongoc's own handler writes them to standard
 * error, although most of them repeat errors of truce. Messages that may contain a password are
 * suppressed. */
static void report_audiences(mongoc_log_level_t level, const char *domain, const char *message,
                             void *arg)
{
    (void)arg;
    if (level > MONGOC_LOG_LEVEL_INFO || strstr(message, "://") ||
        !strncmp(message, ABORT_FAILED, sizeof ABORT_FAILED - 1))
        return;
    pthread_mutex_lock(&audiences.mutex);
    for (const struct mongoc_audience *one = audiences.first; one; one = one->next)
        truce__log_emit(&one->log_hook, level_of(level), "libmongoc (%s): %s", domain, message);
    pthread_mutex_unlock(&audiences.mutex);
}

void truce__mongoc_listen(struct mongoc_audience *audience)
{
    pthread_mutex_lock(&audiences.mutex);
    audience->next = audiences.first;
    audiences.first = audience;
    pthread_mutex_unlock(&audiences.mutex);
}

void truce__mongoc_listen_end(struct mongoc_audience *audience)
{
    struct mongoc_audience **link = &audiences.first;

    pthread_mutex_lock(&audiences.mutex);
    while (*link && *link != audience)
        link = &(*link)->next;
    if (*link)
        *link = audience->next;
    pthread_mutex_unlock(&audiences.mutex);
}

/* Resets the list of receivers in the child of a fork. The log function of a caller may fork, so a
 * fork does not wait for the mutex. A child does not report to its parent's stores. */
static void mongoc_forget_audiences(void)
{
    pthread_mutex_init(&audiences.mutex, NULL);
    audiences.first = NULL;
}

/* ---- loading -------------------------------------------------------------------------------- */

static void remove_counters(void)
{
    char name[32];

    snprintf(name, sizeof name, "/mongoc-%u", (unsigned)getpid());
    /* Usually no file has this name. */
    (void)shm_unlink(name);
}

static truce_status mongoc_find_all(void *handle, const char *library,
                                    struct mongoc_functions *found, bson_error_t *error)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(handle, functions[i].name);

        if (!function)
            return truce__fail(TRUCE_INVALID, error,
                               "mongodb:// needs a newer libmongoc: %s has no function %s", library,
                               functions[i].name);
        memcpy((char *)found + functions[i].offset, &function, sizeof function);
    }
    return TRUCE_OK;
}

/* Loads the library and finds its functions. If the program itself has loaded the library before,
 * does not change its log handler. */
static truce_status mongoc_load(const char *library, bson_error_t *error)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    bool own = handle != NULL;
    struct mongoc_functions found;
    truce_status status;
    void *function;

    if (!own) {
        remove_counters();
        handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    }
    if (!handle) {
        const char *why = dlerror();

        return truce__fail(TRUCE_INVALID, error,
                           "mongodb:// needs libmongoc, which cannot be loaded (Debian: apt-get"
                           " install libmongoc-1.0-0): %.300s",
                           why ? why : library);
    }
    status = mongoc_find_all(handle, library, &found, error);
    if (status) {
        dlclose(handle);
        return status;
    }
    truce__mongoc = found;
    function = dlsym(handle, "mongoc_client_default_stream_initiator");
    memcpy(&truce__mongoc_make_stream, &function, sizeof function);
    /* libmongoc is never cleaned up, because the program may use it, too. */
    truce__mongoc.init();
    if (!own) {
        truce__mongoc.log_set_handler(report_audiences, NULL);
        remove_counters();
    }
    return TRUCE_OK;
}

static pthread_mutex_t mongoc_loading = PTHREAD_MUTEX_INITIALIZER;

static void mongoc_before_fork(void)
{
    pthread_mutex_lock(&mongoc_loading);
}

static void mongoc_after_fork(void)
{
    pthread_mutex_unlock(&mongoc_loading);
}

__attribute__((constructor)) static void mongoc_watch_forks(void)
{
    truce__forks_watch(NULL, NULL, mongoc_forget_audiences);
    truce__forks_watch(mongoc_before_fork, mongoc_after_fork, mongoc_after_fork);
}

truce_status truce__mongoc_load(const char *library, bson_error_t *error)
{
    static bool loaded;
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&mongoc_loading);
    if (!loaded || library)
        status = mongoc_load(library ? library : TRUCE_MONGOC_LIBRARY, error);
    loaded |= !status;
    pthread_mutex_unlock(&mongoc_loading);
    return status;
}
