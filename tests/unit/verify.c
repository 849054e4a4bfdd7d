/* The checker of histories: one that is right, and one that is wrong on purpose for each
 * anomaly. */
#include "sim/verify.h"

#include "tests/support/test.h"

#define FOUND_MAX 20

struct found {
    char names[FOUND_MAX][32];
    char text[600];
    int count;
};

static void note(const struct verify_anomaly *anomaly, void *arg)
{
    struct found *found = arg;

    if (found->count < FOUND_MAX)
        snprintf(found->names[found->count], sizeof found->names[0], "%s", anomaly->name);
    if (!found->count++)
        snprintf(found->text, sizeof found->text, "%s", anomaly->text);
}

/* Lines of "begin end status ops", the process being the line's number. */
static void check(const char *const *lines, struct found *found)
{
    struct verify *verify = truce__verify_new();
    bson_error_t error = {0};

    memset(found, 0, sizeof *found);
    for (int i = 0; lines[i]; i++) {
        char status[16], json[1000];
        int begin, end, at = 0;
        bson_t *document;

        CHECK(sscanf(lines[i], "%d %d %15s %n", &begin, &end, status, &at) == 3);
        snprintf(json, sizeof json,
                 "{'process': %d, 'begin': %d, 'end': %d, 'status': '%s', 'ops': %s}", i, begin,
                 end, status, lines[i] + at);
        document = test_bson(json);
        CHECK_OK(truce__verify_add(verify, document, &error), error);
        bson_destroy(document);
    }
    truce__verify_run(verify, note, found);
    truce__verify_free(verify);
}

#define GOOD(...)                                                                                  \
    do {                                                                                           \
        struct found found;                                                                        \
        check((const char *const[]){__VA_ARGS__, NULL}, &found);                                   \
        if (found.count)                                                                           \
            test_fail(__FILE__, __LINE__, "%s: %s", found.names[0], found.text);                   \
    } while (0)

#define WRONG(anomaly, ...)                                                                        \
    do {                                                                                           \
        struct found found;                                                                        \
        check((const char *const[]){__VA_ARGS__, NULL}, &found);                                   \
        CHECK_INT(found.count, >, 0);                                                              \
        CHECK_TEXT(anomaly, found.names[0]);                                                       \
    } while (0)

TEST(accepts_a_serial_history)
{
    GOOD("1 2 ok [['append', 'x', 1], ['append', 'y', 1]]",
         "3 4 ok [['r', 'x', [1]], ['append', 'x', 2], ['r', 'x', [1, 2]]]",
         "5 6 ok [['r', 'x', [1, 2]], ['r', 'y', [1]], ['r', 'z', null]]");
    GOOD("1 2 ok [['w', 'x', 1]]", "3 4 ok [['r', 'x', 1], ['w', 'x', 2]]",
         "5 6 ok [['r', 'x', 2]]");
}

TEST(transactions_at_the_same_time_may_come_in_any_order)
{
    GOOD("1 10 ok [['append', 'x', 1]]", "1 10 ok [['r', 'x', null]]", "1 10 ok [['r', 'x', [1]]]");
    GOOD("1 10 ok [['w', 'x', 1]]", "1 10 ok [['w', 'x', 2]]", "11 12 ok [['r', 'x', 1]]");
}

TEST(an_unknown_outcome_may_be_either)
{
    GOOD("1 2 unknown [['append', 'x', 1]]", "3 4 ok [['r', 'x', null]]",
         "5 6 ok [['r', 'x', [1]]]");
    GOOD("1 2 unknown [['w', 'x', 1]]", "3 4 ok [['r', 'x', null]]", "5 6 ok [['r', 'x', 1]]");
    GOOD("1 2 unknown [['w', 'x', 1]]", "3 4 ok [['r', 'x', null]]");
}

TEST(dirty_write_is_g0)
{
    WRONG("G0", "1 9 ok [['append', 'x', 1], ['append', 'y', 1]]",
          "1 9 ok [['append', 'x', 2], ['append', 'y', 2]]",
          "10 11 ok [['r', 'x', [1, 2]], ['r', 'y', [2, 1]]]");
}

TEST(aborted_read_is_g1a)
{
    WRONG("G1a", "1 2 fail [['append', 'x', 1]]", "3 4 ok [['r', 'x', [1]]]");
    WRONG("G1a", "3 4 ok [['r', 'x', [7]]]");
}

TEST(intermediate_read_is_g1b)
{
    WRONG("G1b", "1 9 ok [['append', 'x', 1], ['append', 'x', 2]]", "1 9 ok [['r', 'x', [1]]]",
          "10 11 ok [['r', 'x', [1, 2]]]");
}

TEST(circular_information_flow_is_g1c)
{
    WRONG("G1c", "1 9 ok [['append', 'x', 1], ['r', 'y', [1]]]",
          "1 9 ok [['append', 'y', 1], ['r', 'x', [1]]]");
}

TEST(read_skew_is_g_single)
{
    WRONG("G-single", "1 9 ok [['r', 'x', null], ['r', 'y', [1]]]",
          "1 9 ok [['append', 'x', 1], ['append', 'y', 1]]",
          "10 11 ok [['r', 'x', [1]], ['r', 'y', [1]]]");
}

TEST(write_skew_is_g2_item)
{
    WRONG("G2-item", "1 9 ok [['r', 'x', null], ['append', 'y', 1]]",
          "1 9 ok [['r', 'y', null], ['append', 'x', 1]]",
          "10 11 ok [['r', 'x', [1]], ['r', 'y', [1]]]");
}

TEST(a_stale_read_breaks_real_time)
{
    WRONG("G-single-realtime", "1 2 ok [['append', 'x', 1]]", "3 4 ok [['r', 'x', null]]",
          "5 6 ok [['r', 'x', [1]]]");
    WRONG("G0-realtime", "1 2 ok [['append', 'x', 1]]", "3 4 ok [['append', 'x', 2]]",
          "5 6 ok [['r', 'x', [2, 1]]]");
    WRONG("G1c-realtime", "5 6 ok [['append', 'x', 1]]", "1 2 ok [['r', 'x', [1]]]");
}

TEST(detects_a_lost_update)
{
    WRONG("G2-item", "1 9 ok [['r', 'x', null], ['append', 'x', 1]]",
          "1 9 ok [['r', 'x', null], ['append', 'x', 2]]");
}

TEST(rejects_a_history_whose_transaction_contradicts_itself)
{
    WRONG("internal", "1 2 ok [['append', 'x', 1], ['r', 'x', null]]");
    WRONG("internal", "1 9 ok [['r', 'x', null], ['r', 'x', [1]]]", "1 9 ok [['append', 'x', 1]]");
}

TEST(detects_incompatible_orders_and_duplicates)
{
    WRONG("incompatible-order", "1 2 ok [['append', 'x', 1]]", "1 2 ok [['append', 'x', 2]]",
          "1 5 ok [['r', 'x', [1, 2]]]", "1 5 ok [['r', 'x', [2, 1]]]");
    WRONG("duplicate", "1 2 ok [['append', 'x', 1]]", "3 4 ok [['r', 'x', [1, 1]]]");
}

TEST(registers_without_an_order_are_not_linearizable)
{
    WRONG("not-linearizable", "1 2 ok [['w', 'x', 1]]", "3 4 ok [['w', 'x', 2]]",
          "5 6 ok [['r', 'x', 1]]");
    WRONG("not-linearizable", "1 9 ok [['r', 'x', null], ['w', 'x', 1]]",
          "1 9 ok [['r', 'x', null], ['w', 'x', 2]]");
    WRONG("not-linearizable", "1 2 fail [['w', 'x', 1]]", "3 4 ok [['r', 'x', 1]]");
    WRONG("not-linearizable", "1 9 ok [['r', 'x', null], ['w', 'y', 1]]",
          "1 9 ok [['r', 'y', null], ['w', 'x', 1]]");
}

TEST(detects_a_lost_value_before_a_later_one)
{
    WRONG("lost-append", "1 9 ok [['append', 'x', 1], ['append', 'x', 2]]",
          "1 9 ok [['r', 'x', [2]]]");
    WRONG("lost-append", "1 9 unknown [['append', 'x', 1], ['append', 'x', 2]]",
          "1 9 ok [['r', 'x', [2]]]");
}

TEST(a_transaction_of_which_a_value_was_read_took_effect)
{
    WRONG("G-single", "1 2 unknown [['append', 'x', 1], ['append', 'y', 1]]",
          "3 9 ok [['r', 'x', [1]], ['r', 'y', []]]", "10 11 ok [['r', 'y', []]]");
    GOOD("1 2 unknown [['append', 'x', 1], ['append', 'y', 1]]",
         "3 9 ok [['r', 'x', []], ['r', 'y', []]]", "10 11 ok [['r', 'x', [1]], ['r', 'y', [1]]]");
}

TEST(lists_and_registers_have_one_order)
{
    WRONG("not-linearizable", "1 9 ok [['append', 'l', 1], ['w', 'x', 1]]",
          "1 9 ok [['r', 'x', null], ['append', 'l', 2]]", "10 11 ok [['r', 'l', [1, 2]]]");
    WRONG("not-linearizable", "1 9 ok [['r', 'l', []], ['w', 'x', 1]]",
          "1 9 ok [['r', 'x', null], ['append', 'l', 1]]");
    GOOD("1 9 ok [['r', 'l', []], ['w', 'x', 1]]", "1 9 ok [['r', 'x', 1], ['append', 'l', 1]]",
         "10 11 ok [['r', 'l', [1]], ['append', 'l', 2], ['r', 'l', [1, 2]], ['r', 'z', null]]");
}

/* ---- the smallest part ---------------------------------------------------------------------- */

/* Adds transactions like those of check(), and returns the drawing of the smallest part. */
static const char *draw(const char *name, const char *const *lines, struct buffer *out)
{
    struct verify *verify = truce__verify_new();
    bson_error_t error = {0};

    for (int i = 0; lines[i]; i++) {
        bson_t *document = test_bson(lines[i]);

        CHECK_OK(truce__verify_add(verify, document, &error), error);
        bson_destroy(document);
    }
    out->size = 0;
    truce__verify_draw(verify, name, out);
    truce__buffer_append_byte(out, 0);
    truce__verify_free(verify);
    return (const char *)out->bytes;
}

TEST(draws_the_smallest_part_with_the_anomaly)
{
    static const char *const skew[] = {
        "{'process': 0, 'begin': 0, 'end': 1, 'status': 'ok', 'ops': [['append', 'x', 1], ['append', 'y', 1]]}",
        "{'process': 1, 'begin': 2, 'end': 5, 'status': 'ok', 'ops': [['r', 'x', [1]], ['append', 'y', 2]]}",
        "{'process': 2, 'begin': 3, 'end': 6, 'status': 'ok', 'ops': [['r', 'y', [1]], ['append', 'x', 3]]}",
        "{'process': 3, 'begin': 7, 'end': 8, 'status': 'ok', 'ops': [['r', 'x', [1, 3]]]}", NULL};
    static const char *const stale[] = {
        "{'process': 0, 'begin': 1, 'end': 2, 'status': 'ok', 'ops': [['w', 'x', 1], ['w', 'y', 7]]}",
        "{'process': 0, 'begin': 1, 'end': 2, 'status': 'ok', 'ops': [['w', 'z', 1]]}",
        "{'process': 0, 'begin': 3, 'status': 'unknown', 'ops': [['w', 'x', 2]]}",
        "{'process': 0, 'begin': 4, 'end': 5, 'status': 'ok', 'ops': [['r', 'z', 1]]}",
        "{'process': 0, 'begin': 4, 'end': 5, 'status': 'ok', 'ops': [['r', 'x', 2]]}",
        "{'process': 1, 'begin': 6, 'end': 7, 'status': 'ok', 'ops': [['r', 'x', 1]]}",
        NULL};
    struct buffer out = {0};

    CHECK_TEXT("     1  [======]     r x [], append y 2\n"
               "     2     [======]  r y [], append x 3\n",
               draw("G2-item", skew, &out));
    CHECK_TEXT("     0  [===]                 w x 1, w y 7\n"
               "     2        [============?  w x 2\n"
               "     4           [===]        r x 2\n"
               "     5                 [===]  r x 1\n",
               draw("not-linearizable", stale, &out));
    truce__buffer_release(&out);
}

TEST(the_smallest_part_of_a_long_history_is_small)
{
    struct verify *verify = truce__verify_new();
    struct buffer out = {0};
    bson_error_t error = {0};

    for (int i = 0; i < 1000; i++) { /* each reads the list, and appends; 700 misses the last */
        bson_t document = BSON_INITIALIZER, ops, op, list;
        char index[16];
        const char *key;

        BSON_APPEND_INT32(&document, "process", i % 7);
        BSON_APPEND_INT32(&document, "begin", 2 * i);
        BSON_APPEND_INT32(&document, "end", 2 * i + 1);
        BSON_APPEND_UTF8(&document, "status", "ok");
        BSON_APPEND_ARRAY_BEGIN(&document, "ops", &ops);
        BSON_APPEND_ARRAY_BEGIN(&ops, "0", &op);
        BSON_APPEND_UTF8(&op, "0", "r");
        BSON_APPEND_UTF8(&op, "1", "x");
        BSON_APPEND_ARRAY_BEGIN(&op, "2", &list);
        for (int value = 0; value < i - (i == 700); value++) {
            bson_uint32_to_string((uint32_t)value, &key, index, sizeof index);
            bson_append_int32(&list, key, -1, value);
        }
        bson_append_array_end(&op, &list);
        bson_append_array_end(&ops, &op);
        BSON_APPEND_ARRAY_BEGIN(&ops, "1", &op);
        BSON_APPEND_UTF8(&op, "0", "append");
        BSON_APPEND_UTF8(&op, "1", "x");
        BSON_APPEND_INT32(&op, "2", i);
        bson_append_array_end(&ops, &op);
        bson_append_array_end(&document, &ops);
        CHECK_OK(truce__verify_add(verify, &document, &error), error);
        bson_destroy(&document);
    }
    CHECK_INT(3, ==, truce__verify_draw(verify, "G-single", &out));
    truce__buffer_append_byte(&out, 0);
    CHECK_TEXT("   699  [===]              r x [], append x 699\n"
               "   700        [===]        r x [], append x 700\n"
               "   701              [===]  r x [699, 700], append x 701\n",
               (const char *)out.bytes);
    truce__buffer_release(&out);
    truce__verify_free(verify);
}

TEST(refuses_a_json_history_of_another_format)
{
    static const char *const bad[] = {
        "{}",
        "{'process': 1, 'begin': 1, 'status': 'ok', 'ops': []}",
        "{'process': 1, 'begin': 2, 'end': 1, 'status': 'ok', 'ops': []}",
        "{'process': 1, 'begin': 1, 'end': 1, 'status': 'good', 'ops': []}",
        "{'process': 1, 'begin': 1, 'end': 1, 'status': 'ok', 'ops': [['x']]}",
        "{'process': 1, 'begin': 1, 'end': 1, 'status': 'ok', 'ops': [['r', 'x', 'y']]}",
        "{'process': 1, 'begin': 1, 'end': 1, 'status': 'ok', 'ops': [['w', 'x', null]]}",
        "{'process': 1, 'begin': 1, 'status': 'unknown', 'ops': [['w', 'x', 1], ['append', 'x', 2]]}",
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct verify *verify = truce__verify_new();
        bson_t *document = test_bson(bad[i]);
        bson_error_t error = {0};

        CHECK_STATUS(TRUCE_INVALID, truce__verify_add(verify, document, &error), error);
        bson_destroy(document);
        truce__verify_free(verify);
    }
}
