#include "tests/support/test.h"

#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/random.h"
#include "truce/status.h"

#define TESTS_MAX 1000

#ifdef TRUCE_COVERAGE
void __gcov_dump(void);
#endif

static struct {
    const char *name, *file;
    test_function *function;
} tests[TESTS_MAX];
static int tests_count;

/* The number of failures of the running test. */
static atomic_int failures;
static atomic_bool skipped;
static const char *running = "";
/* The seed of the random numbers of the running test; 0 means none. */
static atomic_ullong seeded;
static char directory[256];
static pid_t directory_owner;

void test_register(const char *name, const char *file, test_function *function)
{
    if (tests_count == TESTS_MAX)
        abort();
    tests[tests_count].name = name;
    tests[tests_count].file = file;
    tests[tests_count++].function = function;
}

bool test_fail(const char *file, int line, const char *format, ...)
{
    char text[4096];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (atomic_fetch_add(&failures, 1) < 20)
        fprintf(stderr, "%s:%d: %s: %s\n", file, line, running, text);
    return false;
}

void test_skip(const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("skipped: %s: %s\n", running, text);
    atomic_store(&skipped, true);
}

int test_failures(void)
{
    return atomic_load(&failures);
}

void test_child_exit(void)
{
    fflush(NULL);
#ifdef TRUCE_COVERAGE
    /* _exit() does not write the coverage data. */
    __gcov_dump();
#endif
    _exit(atomic_load(&failures) ? 1 : 0);
}

uint64_t test_seed(void)
{
    const char *given = getenv("TRUCE_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : truce__random_entropy();

    printf("%s: TRUCE_TEST_SEED=%" PRIu64 "\n", running, seed);
    atomic_store(&seeded, seed);
    return seed;
}

long test_scale(const char *variable, long otherwise)
{
    const char *given = getenv(variable);

    return given ? strtol(given, NULL, 10) : otherwise;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directory(void)
{
    if (directory[0] && directory_owner == getpid())
        nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    directory[0] = 0;
}

const char *test_directory(void)
{
    const char *base = getenv("TMPDIR");

    remove_directory();
    snprintf(directory, sizeof directory, "%s/truce-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(directory))
        abort();
    directory_owner = getpid();
    return directory;
}

bson_t *test_bson(const char *json)
{
    char *text = strdup(json);
    bson_error_t error;
    bson_t *document;

    for (char *at = text; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    document = bson_new_from_json((const uint8_t *)text, -1, &error);
    if (!document) {
        fprintf(stderr, "test_bson: %s in: %s\n", error.message, json);
        abort();
    }
    free(text);
    return document;
}

bool test_bson_equal(const bson_t *expected, const bson_t *actual, const char *file, int line)
{
    char *wanted, *got;

    if (expected->len == actual->len &&
        !memcmp(bson_get_data(expected), bson_get_data(actual), expected->len))
        return true;
    wanted = bson_as_canonical_extended_json(expected, NULL);
    got = bson_as_canonical_extended_json(actual, NULL);
    test_fail(file, line, "expected %s, got %s", wanted ? wanted : "(bad BSON)",
              got ? got : "(bad BSON)");
    bson_free(wanted);
    bson_free(got);
    return false;
}

bool test_check_int(intmax_t a, intmax_t b, bool holds, const char *text, const char *file,
                    int line)
{
    return holds
               ? true
               : test_fail(file, line, "%s does not hold (%" PRIdMAX ", %" PRIdMAX ")", text, a, b);
}

bool test_check_text(const char *expected, const char *actual, const char *file, int line)
{
    if (expected == actual || (expected && actual && !strcmp(expected, actual)))
        return true;
    return test_fail(file, line, "expected \"%s\", got \"%s\"", expected ? expected : "(null)",
                     actual ? actual : "(null)");
}

bool test_check_status(int expected, int actual, const bson_error_t *error, const char *text,
                       const char *file, int line)
{
    if (expected == actual)
        return true;
    return test_fail(file, line, "%s: expected \"%s\", got \"%s\"%s%s", text,
                     truce_status_name((truce_status)expected),
                     truce_status_name((truce_status)actual), actual ? ": " : "",
                     actual ? error->message : "");
}

/* Returns whether the server under test is one of `whose`. "mongodb<4.4" means every version before
 * 4.4; TRUCE_TEST_SERVER_VERSION is the version of the server. "mongos" means MongoDB with a
 * TRUCE_TEST_SERVER_DEPLOYMENT that contains "shard". */
static bool is_server(const char *whose, const char *server)
{
    const char *version = getenv("TRUCE_TEST_SERVER_VERSION");
    const char *deployment = getenv("TRUCE_TEST_SERVER_DEPLOYMENT");
    size_t length = strcspn(whose, "<");
    int major, minor, its_major, its_minor;

    if (!strcmp(whose, "mongos"))
        return !strcmp(server, "mongodb") && deployment && strstr(deployment, "shard");
    if (strlen(server) != length || strncmp(whose, server, length) != 0)
        return false;
    if (!whose[length])
        return true;
    return version && sscanf(version, "%d.%d", &its_major, &its_minor) == 2 &&
           sscanf(whose + length + 1, "%d.%d", &major, &minor) == 2 &&
           (its_major < major || (its_major == major && its_minor < minor));
}

/* Returns why this server is excused from the test: a line "SERVER TEST REASON" of the file that
 * TRUCE_TEST_EXCEPTIONS names, for the server that TRUCE_TEST_SERVER names. */
static bool excused(const char *name, char *reason, size_t size)
{
    const char *server = getenv("TRUCE_TEST_SERVER"), *path = getenv("TRUCE_TEST_EXCEPTIONS");
    FILE *file = server && path ? fopen(path, "r") : NULL;
    char line[1024], whose[64], test[200];
    bool found = false;
    int at = 0;

    while (file && !found && fgets(line, sizeof line, file)) {
        if (line[0] == '#' || sscanf(line, "%63s %199s %n", whose, test, &at) != 2)
            continue;
        found = is_server(whose, server) && !strcmp(test, name);
        snprintf(reason, size, "%s: %.*s", server, (int)strcspn(line + at, "\n"), line + at);
    }
    if (file)
        fclose(file);
    return found;
}

bool test_excused(const char *name)
{
    char reason[1024];
    bool found = excused(name, reason, sizeof reason);

    if (found)
        printf("skipped: %s: %s\n", name, reason);
    return found;
}

/* Returns whether the list, which is separated by spaces, contains the name. */
static bool is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; at && (at = strstr(at, name)); at += length) {
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    }
    return false;
}

static bool wanted(const char *name, int words, char **word)
{
    if (is_listed(getenv("TRUCE_TEST_WITHOUT"), name))
        return false;
    for (int i = 0; i < words; i++) {
        if (strstr(name, word[i]))
            return true;
    }
    return words == 0;
}

/* Reports the running test when the runner interrupts the program. */
static void report_running(int number)
{
    (void)number;
    (void)!write(STDERR_FILENO, running, strlen(running));
    (void)!write(STDERR_FILENO, ": ended from outside\n", 21);
    _exit(1);
}

static double processor_s(void)
{
    struct rusage own, children;

    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec + children.ru_utime.tv_sec +
                    children.ru_stime.tv_sec) +
           1e-6 * (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec + children.ru_utime.tv_usec +
                           children.ru_stime.tv_usec);
}

int test_run_all(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    int passed = 0, failed = 0, left_out = 0;
    char reason[1024];
    double began_s;

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, report_running);
    /* A shell that starts jobs in the background sets SIGINT to ignored. */
    signal(SIGINT, SIG_DFL);
    atexit(remove_directory);
    for (int i = 0; i < tests_count; i++) {
        if (argc == 2 && !strcmp(argv[1], "--list")) {
            puts(tests[i].name);
            continue;
        }
        if (!wanted(tests[i].name, argc - 1, argv + 1))
            continue;
        running = tests[i].name;
        atomic_store(&seeded, 0);
        began_s = processor_s();
        atomic_store(&failures, 0);
        atomic_store(&skipped, false);
        if (excused(tests[i].name, reason, sizeof reason))
            test_skip("%s", reason);
        else
            tests[i].function();
        if (processor_s() - began_s >= 1)
            printf("%s: %.1f s of processor\n", tests[i].name, processor_s() - began_s);
        if (atomic_load(&failures)) {
            fprintf(stderr, "FAILED: %s (%s) TRUCE_TEST_SEED=%llu\n", tests[i].name, tests[i].file,
                    atomic_load(&seeded));
            failed++;
        } else if (atomic_load(&skipped)) {
            left_out++;
        } else {
            passed++;
        }
    }
    printf("%s: %d passed, %d failed", slash ? slash + 1 : argv[0], passed, failed);
    if (left_out)
        printf(", %d skipped", left_out);
    printf("\n");
    return failed ? 1 : 0;
}
