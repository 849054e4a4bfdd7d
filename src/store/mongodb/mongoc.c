/*
 * Loads libmongoc when it is asked for, and finds the functions that truce calls.
 *
 * It stays loaded: what it set up (OpenSSL, counters, threads) does not survive being taken away. A
 * process that has it already, because it uses libmongoc itself, shares it.
 *
 * libmongoc makes a file for its counters, /dev/shm/mongoc-<process>, when it is loaded, for a tool that
 * shows them. A process that is killed leaves it behind, and a later one of the same number complains
 * of it; so it loses its name at once, unless it is the process's own.
 */
#define MONGOC_NAMES_ITSELF 1
#include "store/mongodb/mongoc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
    pthread_mutex_t mutex; /* over the list */
    struct mongoc_audience *first;
} audiences = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static truce_log_level level_of(mongoc_log_level_t level)
{
    return level <= MONGOC_LOG_LEVEL_CRITICAL  ? TRUCE_LOG_ERROR
           : level == MONGOC_LOG_LEVEL_WARNING ? TRUCE_LOG_WARNING
                                               : TRUCE_LOG_INFO;
}

/* libmongoc's own handler writes them to standard error, most of them besides what truce answers to its
 * caller. What might have a password in it is not told. */
static void tell_audiences(mongoc_log_level_t level, const char *domain, const char *message,
                           void *arg)
{
    (void)arg;
    if (level > MONGOC_LOG_LEVEL_INFO || strstr(message, "://"))
        return;
    pthread_mutex_lock(&audiences.mutex);
    for (const struct mongoc_audience *one = audiences.first; one; one = one->next)
        truce__notice(&one->notices, level_of(level), "libmongoc (%s): %s", domain, message);
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

/* ---- loading -------------------------------------------------------------------------------- */

static void remove_counters(void)
{
    char name[32];

    snprintf(name, sizeof name, "/mongoc-%u", (unsigned)getpid());
    (void)shm_unlink(name); /* mostly there is none */
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
    truce__mongoc.init(); /* for the life of the process: others may use libmongoc, too */
    if (!own) {
        truce__mongoc.log_set_handler(tell_audiences, NULL);
        remove_counters();
    }
    return TRUCE_OK;
}

truce_status truce__mongoc_load(const char *library, bson_error_t *error)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&mutex);
    if (!loaded || library)
        status = mongoc_load(library ? library : TRUCE_MONGOC_LIBRARY, error);
    loaded |= !status;
    pthread_mutex_unlock(&mutex);
    return status;
}
