/* Regular expressions: options, refusals, captures, limits, and use from several threads. */
#include "query/condition/regex.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/limits.h"
#include "tests/support/test.h"

static struct regex *compile(const char *pattern, const char *options)
{
    struct regex *regex;
    bson_error_t error;

    CHECK_OK(truce__regex_new(pattern, strlen(pattern), options, &regex, &error), error);
    return regex;
}

static bool finds(const char *pattern, const char *options, const char *text)
{
    struct regex *regex = compile(pattern, options);
    bool found = false;
    bson_error_t error;

    CHECK_OK(truce__regex_find(regex, text, strlen(text), 0, NULL, &found, NULL, 0, &error), error);
    truce__regex_free(regex);
    return found;
}

TEST(a_pattern_is_searched_for_anywhere)
{
    CHECK(finds("b+", "", "abbc"));
    CHECK(!finds("^b", "", "abbc"));
    CHECK(finds("c$", "", "abbc"));
    CHECK(finds("", "", ""));
    CHECK(!finds("x", "", ""));
}

TEST(gives_options_their_meaning_in_mongodb)
{
    CHECK(finds("ABC", "i", "xabc"));
    CHECK(finds("\303\211", "i", "\303\251"));
    CHECK(!finds("^b", "", "a\nb"));
    CHECK(finds("^b", "m", "a\nb"));
    CHECK(!finds("a.b", "", "a\nb"));
    CHECK(finds("a.b", "s", "a\nb"));
    CHECK(finds("a b # comment\n", "x", "ab"));
    CHECK(finds("^.$", "u", "\303\251"));
}

static void check_refused(const char *pattern, size_t length, const char *options, uint32_t code)
{
    struct regex *regex;
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce__regex_new(pattern, length, options, &regex, &error), error);
    CHECK_INT(error.code, ==, code);
    CHECK(!regex);
}

TEST(bad_patterns_are_refused_with_the_codes_of_mongodb)
{
    char *large = bson_malloc(40000);

    memset(large, 'a', 40000);
    check_refused("(", 1, "", 51091);
    check_refused("a", 1, "g", 51108);
    check_refused("a\0b", 3, "", CODE_BAD_VALUE);
    check_refused(large, 40000, "", CODE_BAD_VALUE);
    check_refused("(((a{999}){999}){999})", 22, "", 51091);
    bson_free(large);
}

TEST(a_comment_at_the_end_is_refused_in_a_group_only)
{
    struct regex *regex = compile("lin(e|k) # either", "x");
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce__regex_check_group(regex, &error), error);
    CHECK_INT(error.code, ==, 51091);
    truce__regex_free(regex);
    CHECK(finds("lin(e|k) # either", "x", "a link"));
    regex = compile("lin(e|k) # either\n", "x");
    CHECK_OK(truce__regex_check_group(regex, &error), error);
    truce__regex_free(regex);
    regex = compile("a#b", "");
    CHECK_OK(truce__regex_check_group(regex, &error), error);
    truce__regex_free(regex);
}

TEST(returns_the_spans_of_groups)
{
    struct regex *regex = compile("(?<first>a)|(b)(c)?", "");
    struct regex_span spans[5];
    bson_error_t error;
    bool found;

    CHECK_INT(truce__regex_captures(regex), ==, 3);
    CHECK_OK(truce__regex_find(regex, "xbb", 3, 2, NULL, &found, spans, 5, &error), error);
    CHECK(found);
    CHECK_INT(spans[0].start, ==, 2);
    CHECK_INT(spans[0].end, ==, 3);
    CHECK(spans[1].start == REGEX_UNSET && spans[1].end == REGEX_UNSET);
    CHECK_INT(spans[2].start, ==, 2);
    CHECK(spans[3].start == REGEX_UNSET);
    CHECK(spans[4].start == REGEX_UNSET);
    truce__regex_free(regex);
}

/* patterns that would backtrack for longer than the universe lasts */
TEST(no_pattern_hangs)
{
    static const char *const patterns[] = {
        "(a+)+$",         "(a|a)*$",        "(a|aa)+$", "(.*a){25}x", "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(?=(a+))a*b\\1", "(*NO_JIT)(a+)+$"};
    char text[5000];

    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '!';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct regex *regex = compile(patterns[i], "");
        int64_t start = truce__clock_monotonic_ns();
        bson_error_t error;
        bool found;
        truce_status status =
            truce__regex_find(regex, text, sizeof text, 0, NULL, &found, NULL, 0, &error);

        CHECK(status == TRUCE_LIMIT || (status == TRUCE_OK && !found));
        CHECK_INT((truce__clock_monotonic_ns() - start) / 1000000, <, 20000);
        truce__regex_free(regex);
    }
}

/* more than the machine stack of the just-in-time code holds, well within the limits */
TEST(succeeds_in_a_deep_but_short_search)
{
    size_t size = 40000;
    char *text = bson_malloc(size);
    struct regex *regex = compile("^(?:(a)|b)*$", "");
    bson_error_t error;
    bool found;

    memset(text, 'a', size);
    CHECK_OK(truce__regex_find(regex, text, size, 0, NULL, &found, NULL, 0, &error), error);
    CHECK(found);
    truce__regex_free(regex);
    bson_free(text);
}

static void *search_often(void *arg)
{
    for (int i = 0; i < 20000; i++) {
        bson_error_t error;
        bool found;

        CHECK_OK(truce__regex_find(arg, "xxabab", 6, 0, NULL, &found, NULL, 0, &error), error);
        CHECK(found);
    }
    return NULL;
}

/* A pattern compiles with callouts or not at all: the first search that needs them finds them. */
TEST(a_pattern_that_is_accepted_can_be_searched_for_in_any_text)
{
    static const char *const parts[] = {"c",       "(c)", "[cd]", "c?",  "|c",
                                        "(?:c|d)", "\\w", ".",    "(?i)"};
    static const size_t lengths[] = {1, 1000, 7000, 8190, 8192, 10000, 16000, 32764};
    size_t size = 50001;
    char *text = bson_malloc(size), *pattern = bson_malloc0(TRUCE_REGEX_BYTES_MAX + 1);
    int refused = 0, accepted = 0;

    memset(text, 'c', size - 1);
    text[size - 1] = 'd';
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            size_t part = strlen(parts[p]), length = lengths[l] / part * part;
            struct regex *regex;
            bson_error_t error;
            bool found;

            for (size_t i = 0; i < length; i++)
                pattern[i] = parts[p][i % part];
            pattern[length] = 0;
            if (truce__regex_new(pattern, length, "", &regex, &error)) {
                CHECK_INT(error.code, ==, 51091);
                refused++;
                continue;
            }
            accepted++;
            (void)!truce__regex_find(regex, text, size, 0, NULL, &found, NULL, 0, &error);
            (void)!truce__regex_find(regex, text, 10, 0, NULL, &found, NULL, 0, &error);
            truce__regex_free(regex);
        }
    }
    CHECK_INT(refused, >, 10);
    CHECK_INT(accepted, >, 30);
    bson_free(pattern);
    bson_free(text);
}

/* The same of a short pattern that becomes long when it is compiled. */
TEST(a_pattern_whose_repetitions_are_too_large_is_refused)
{
    check_refused("((abc){200}){200}", 17, "", 51091);
    check_refused("(abcdefghijklm){1000}", 21, "", 51091);
    CHECK(finds("(abc){50}", "", "abc") == false);
}

TEST(threads_share_an_expression)
{
    struct regex *regex = compile("(ab)+$", "");
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        REQUIRE(!pthread_create(threads + i, NULL, search_often, regex));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    truce__regex_free(regex);
}

/* PCRE2's own limit counts again from 0 at each possible start of a match. */
TEST(a_search_ends_after_so_many_steps_whatever_the_text)
{
    static const char *const patterns[] = {"a.*b.*c.*d.*e[0-9]", "[^x]*b[0-9]", "(a|b)*c[0-9]",
                                           "[a-z]+[0-9]"};
    size_t size = 512 * 1024;
    char *text = bson_malloc(size);
    bson_error_t error;

    for (size_t i = 0; i < size; i++)
        text[i] = "abcde"[i % 5];
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct regex *regex;
        bool found = true;
        truce_status status;

        CHECK_OK(truce__regex_new(patterns[i], strlen(patterns[i]), "", &regex, &error), error);
        status = truce__regex_find(regex, text, size, 0, NULL, &found, NULL, 0, &error);
        CHECK(status == TRUCE_LIMIT || status == TRUCE_OK);
        CHECK(!found);
        truce__regex_free(regex);
    }
    bson_free(text);
}

TEST(a_search_ends_when_the_time_of_the_call_is_over)
{
    int interrupted = 1;
    size_t size = 64 * 1024;
    char *text = bson_malloc(size);
    struct budget budget;
    struct regex *regex;
    bson_error_t error;
    bool found = false;

    memset(text, 'a', size);
    truce__budget_init(&budget, 0, &interrupted);
    CHECK_OK(truce__regex_new("[a-z]+[0-9]", 11, "", &regex, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT,
                 truce__regex_find(regex, text, size, 0, &budget, &found, NULL, 0, &error), error);
    CHECK(!found);
    CHECK_INT((intmax_t)truce__budget_spent(&budget), <, 3 * BUDGET_STEPS);
    truce__regex_free(regex);
    bson_free(text);
}
