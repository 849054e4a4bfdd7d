/*
 * The operating system refuses locks, like a network file system without its lock service: those of
 * the lock file, those of SQLite, or both. It refuses them from the beginning or once the store is
 * open. No call waits for a lock that no process holds: each ends at once with IO, and the error
 * names the cause and the way out.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define DEADLINE_MS 3000
#define LATEST_MS   2000

enum locks { OF_LOCK_FILE = 1, OF_SQLITE = 2, OF_BOTH = 3 };

static atomic_uint refused; /* enum locks */
static int refusal;
/* calls until the single one that is refused, acquisition or release; 0: none */
static atomic_int left;

static bool is_next(int command)
{
    return (command == F_OFD_SETLK || command == F_SETLK) && atomic_load(&left) &&
           atomic_fetch_sub(&left, 1) == 1;
}

static bool is_refused(int command, const struct flock *range)
{
    unsigned kind = command == F_OFD_SETLK || command == F_OFD_SETLKW ? OF_LOCK_FILE
                    : command == F_SETLK || command == F_SETLKW       ? OF_SQLITE
                                                                      : 0;

    return kind & atomic_load(&refused) && range->l_type != F_UNLCK;
}

/* Replaces the function of the C library, for truce and, since it is exported, for SQLite. */
#define REFUSING(name)                                                                             \
    __attribute__((visibility("default"))) int name(int file, int command, ...)                    \
    {                                                                                              \
        __typeof__(&name) real = (__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name);            \
        va_list list;                                                                              \
        void *argument;                                                                            \
                                                                                                   \
        va_start(list, command);                                                                   \
        argument = va_arg(list, void *);                                                           \
        va_end(list);                                                                              \
        if (!is_next(command) && !is_refused(command, argument))                                   \
            return real(file, command, argument);                                                  \
        errno = refusal;                                                                           \
        return -1;                                                                                 \
    }

REFUSING(fcntl)
REFUSING(fcntl64)

static bson_error_t error;

#define IS_REFUSED(call)                                                                           \
    do {                                                                                           \
        int64_t begun_ns = truce__clock_monotonic_ns();                                            \
        truce_status got = call;                                                                   \
        int64_t took_ms = (truce__clock_monotonic_ns() - begun_ns) / 1000000;                      \
                                                                                                   \
        CHECK_STATUS(TRUCE_IO, got, error);                                                        \
        CHECK(strstr(error.message, "lock") && strstr(error.message, "local disk"));               \
        CHECK_INT(took_ms, <, LATEST_MS);                                                          \
    } while (0)

static void try_locks(unsigned kind, int number)
{
    const truce_store_options options = {.deadline_ms = DEADLINE_MS};
    bson_t *document = test_bson("{'_id': 1}");
    truce_store *store;
    bson_t found;
    char path[600];

    snprintf(path, sizeof path, "%s/%u.%d.truce", test_directory(), kind, number);
    refusal = number;
    atomic_store(&refused, kind);
    IS_REFUSED(truce_store_open(path, &options, &store, &error));
    atomic_store(&refused, 0);
    CHECK_OK(truce_store_open(path, &options, &store, &error), error);
    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    truce_store_close(store);

    atomic_store(&refused, kind);
    IS_REFUSED(truce_store_open(path, &options, &store, &error));
    atomic_store(&refused, 0);
    CHECK_OK(truce_store_open(path, &options, &store, &error), error);
    atomic_store(&refused, kind);
    IS_REFUSED(truce_insert(store, "c", document, NULL, &error));
    if (kind & OF_SQLITE) {
        IS_REFUSED(truce_find_one(store, "c", NULL, NULL, &found, &error));
        bson_destroy(&found);
    }
    atomic_store(&refused, 0);
    CHECK_OK(truce_find_one(store, "c", NULL, NULL, &found, &error), error);
    bson_destroy(&found);
    truce_store_close(store);
    bson_destroy(document);
}

TEST(a_file_system_without_locks_is_refused_at_once)
{
    static const int numbers[] = {ENOLCK, EOPNOTSUPP, EINVAL, EIO};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (unsigned kind = OF_LOCK_FILE; kind <= OF_BOTH; kind++) {
            int before = test_failures();

            try_locks(kind, numbers[i]);
            if (test_failures() > before)
                printf("that is with locks %u refused by %s\n", kind, strerror(numbers[i]));
        }
    }
}

/* ---- a single refusal ------------------------------------------------------------------------ */

static int count_documents(truce_store *store)
{
    int64_t count = -1;

    CHECK_OK(truce_count(store, "c", NULL, NULL, &count, &error), error);
    return (int)count;
}

/* Refuses one call. Returns false if the operation makes fewer calls. */
static bool refuse_one(const char *path, bool read_only, int number, int *documents)
{
    const truce_store_options options = {.deadline_ms = DEADLINE_MS, .read_only = read_only};
    bson_t document = BSON_INITIALIZER;
    truce_status status;
    truce_store *store;
    int64_t count;
    bool hit;

    atomic_store(&left, number);
    status = truce_store_open(path, &options, &store, &error);
    CHECK(status == TRUCE_OK || status == TRUCE_IO);
    if (!status) {
        if (read_only) {
            status = truce_count(store, "c", NULL, NULL, &count, &error);
            CHECK(status || count == *documents);
        } else if (!truce_insert(store, "c", &document, NULL, &error)) {
            ++*documents;
        }
        truce_store_close(store);
    }
    hit = !atomic_load(&left);
    atomic_store(&left, 0);
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    CHECK_INT(count_documents(store), >=, *documents);
    *documents = count_documents(store);
    CHECK_OK(truce_insert(store, "c", &document, NULL, &error), error);
    ++*documents;
    truce_store_close(store);
    bson_destroy(&document);
    return hit;
}

/* The call may fail; the process goes on, and the next one finds a valid store. */
TEST(one_refused_call_ends_no_process_and_no_store)
{
    static const int numbers[] = {EIO, ENOLCK, EINTR};
    char path[600];

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (int read_only = 0; read_only < 2; read_only++) {
            int documents = 0, number = 1;

            snprintf(path, sizeof path, "%s/one.%zu.%d.truce", test_directory(), i, read_only);
            if (read_only)
                CHECK(refuse_one(path, false, 1, &documents));
            refusal = numbers[i];
            while (refuse_one(path, read_only, number, &documents) && number < 1000)
                number++;
            CHECK_INT(number, >, 10);
            CHECK_INT(number, <, 1000);
        }
    }
}
