#ifndef TRUCE_TESTS_SUPPORT_TEST_H
#define TRUCE_TESTS_SUPPORT_TEST_H

/*
 * The test harness. One file is one program:
 *
 *     TEST(a_sentence_of_what_holds)
 *     {
 *         CHECK_INT(2, ==, 1 + 1);
 *     }
 *
 * Tests register themselves and run in the order of the file; `PROGRAM name...` runs those whose
 * names contain one of the words, `PROGRAM --list` names them. A failed CHECK prints its line and
 * its condition, fails the test, and continues; a failed REQUIRE also ends the test. The program
 * closes with "PROGRAM: N passed, N failed[, N skipped]" and exits with 1 if any failed.
 *
 * Checks may be made from any thread. A check in a child process counts only if the child exits
 * with test_child_exit(), whose status the parent then checks.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <bson/bson.h>

/* Whether sanitizers are on: they need more memory, and do not work with a preloaded library. */
#if defined(__has_feature)
#define TEST_ADDRESS_SANITIZED (__has_feature(address_sanitizer))
#define TEST_THREAD_SANITIZED  (__has_feature(thread_sanitizer))
#else
#ifdef __SANITIZE_ADDRESS__
#define TEST_ADDRESS_SANITIZED 1
#else
#define TEST_ADDRESS_SANITIZED 0
#endif
#ifdef __SANITIZE_THREAD__
#define TEST_THREAD_SANITIZED 1
#else
#define TEST_THREAD_SANITIZED 0
#endif
#endif
#define TEST_SANITIZED (TEST_ADDRESS_SANITIZED || TEST_THREAD_SANITIZED)

typedef void test_function(void);

void test_register(const char *name, const char *file, test_function *function);

/* Runs the registered tests that the arguments name, or all of them. Returns the exit code of
 * the program. */
int test_run_all(int argc, char **argv);

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        test_register(#name, __FILE__, test_##name);                                               \
    }                                                                                              \
    static void test_##name(void)

/* Records a failure of the running test; `format` describes it. Returns false, for use in a check.
 */
bool test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Skips the running test, and prints the reason; return from the test afterwards. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns whether the server under test has an exception of this name, which excludes a part of the
 * tests. If so, prints the reason. */
bool test_excused(const char *name);

/* Returns the number of failed checks of the running test. */
int test_failures(void);

/* Exits a forked child with 0, or 1 if a check failed in it; never runs atexit handlers. */
_Noreturn void test_child_exit(void);

/* Returns TRUCE_TEST_SEED, or a new seed. A failed test prints it, so that you can repeat the
 * run. */
uint64_t test_seed(void);

/* Returns a number from the environment (for longer or shorter runs), or the given default. */
long test_scale(const char *variable, long otherwise);

/* Returns a fresh empty directory below TMPDIR, removed at exit (not in forked children). */
const char *test_directory(void);

/* Parses BSON from Extended JSON in which ' may replace "; aborts on bad JSON. The caller
 * destroys it. */
bson_t *test_bson(const char *json);

/* Compares documents byte for byte; shows them as canonical Extended JSON if they differ. */
bool test_bson_equal(const bson_t *expected, const bson_t *actual, const char *file, int line);

#define CHECK(condition)                                                                           \
    ((condition) ? true : test_fail(__FILE__, __LINE__, "%s does not hold", #condition))

/* Compares two integers. Each side is evaluated once. */
#define CHECK_INT(a, operator, b)                                                                  \
    __extension__({                                                                                \
        const intmax_t check_left_ = (intmax_t)(a), check_right_ = (intmax_t)(b);                  \
        test_check_int(check_left_, check_right_, check_left_ operator check_right_,               \
                       #a " " #operator" " #b, __FILE__, __LINE__);                                \
    })

#define CHECK_TEXT(expected, actual) test_check_text(expected, actual, __FILE__, __LINE__)

#define CHECK_BSON(expected, actual) test_bson_equal(expected, actual, __FILE__, __LINE__)

/* Checks a truce_status. `status` is the expression, `error` the bson_error_t that it fills. */
#define CHECK_STATUS(expected, status, error)                                                      \
    test_check_status(expected, status, &(error), #status, __FILE__, __LINE__)
#define CHECK_OK(status, error) CHECK_STATUS(0, status, error)

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(__FILE__, __LINE__, "%s does not hold", #condition);                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)

bool test_check_int(intmax_t a, intmax_t b, bool holds, const char *text, const char *file,
                    int line);
bool test_check_text(const char *expected, const char *actual, const char *file, int line);
bool test_check_status(int expected, int actual, const bson_error_t *error, const char *text,
                       const char *file, int line);

#endif
