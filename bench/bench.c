#include "bench/bench.h"

#include <errno.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t bench_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

double bench_now(void)
{
    return (double)bench_now_ns() / 1e9;
}

int64_t bench_scale(const char *variable, int64_t otherwise)
{
    const char *given = getenv(variable);

    return given && *given ? strtoll(given, NULL, 10) : otherwise;
}

double bench_seconds(void)
{
    const char *given = getenv("TRUCE_BENCH_SECONDS");

    return given && *given ? strtod(given, NULL) : 2.0;
}

void bench_in_turns(void (*once)(void *arg, int side), void *arg, int turns, double least[2])
{
    const double seconds = 2 * bench_seconds() / turns;

    least[0] = least[1] = 1e9;
    for (int turn = 0; turn < turns; turn++) {
        double began = bench_now(), took;
        int64_t calls = 0;

        do {
            once(arg, turn % 2);
            calls++;
        } while (bench_now() - began < seconds);
        took = (bench_now() - began) / (double)calls;
        least[turn % 2] = took < least[turn % 2] ? took : least[turn % 2];
    }
}

static _Thread_local uint64_t random_state;

void bench_random_again(void)
{
    random_state = (bench_now_ns() ^ (uint64_t)getpid() << 40) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

uint64_t bench_random(uint64_t bound)
{
    if (!random_state)
        bench_random_again();
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint64_t)(((unsigned __int128)random_state * bound) >> 64);
}

/* ---- the directory --------------------------------------------------------------------------- */

static char directory[500];
static pid_t directory_owner;

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directory(void)
{
    if (getpid() == directory_owner)
        nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *bench_directory(void)
{
    const char *base = getenv("TRUCE_BENCH_DIR");
    char *absolute;

    if (directory[0])
        return directory;
    base = base && *base ? base : "build/bench";
    if (mkdir(base, 0777) != 0 && errno != EEXIST)
        bench_fail(__FILE__, __LINE__, base, strerror(errno));
    absolute = realpath(base, NULL);
    BENCH_CHECK(absolute && strlen(absolute) < sizeof directory - 20);
    snprintf(directory, sizeof directory, "%s/run-XXXXXX", absolute);
    free(absolute);
    if (!mkdtemp(directory) || chmod(directory, 0755) != 0)
        bench_fail(__FILE__, __LINE__, directory, strerror(errno));
    directory_owner = getpid();
    atexit(remove_directory);
    return directory;
}

int64_t bench_file_size(const char *path, const char *suffix)
{
    char *name = bson_strdup_printf("%s%s", path, suffix);
    struct stat about;
    int64_t size = stat(name, &about) == 0 ? about.st_size : 0;

    bson_free(name);
    return size;
}

/* ---- failing --------------------------------------------------------------------------------- */

static char *fail_into;
static size_t fail_size;

void bench_fail_into(char *why, size_t size)
{
    fail_into = why;
    fail_size = size;
}

_Noreturn void bench_cannot(const char *prefix, const char *why)
{
    BENCH_CHECK(fail_into);
    snprintf(fail_into, fail_size, "%s%s", prefix, why);
    _exit(1);
}

_Noreturn void bench_fail(const char *file, int line, const char *what, const char *why)
{
    if (fail_into && !fail_into[0])
        snprintf(fail_into, fail_size, "%s: %s", what, why);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why);
    if (fail_into)
        /* Other threads may be running, so nothing is freed here. The harness cleans up. */
        _exit(1);
    exit(1);
}
