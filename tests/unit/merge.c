/* Three-way merges: the policies, the conflicts, and the properties of all merges. */
#include "merge/merge.h"

#include "base/random.h"
#include "tests/support/random_bson.h"
#include "tests/support/test.h"

struct merged {
    bson_t document, conflicts;
};

static void merge(const bson_t *base, const bson_t *mine, const bson_t *theirs, const char *rules,
                  struct merge_options options, struct merged *merged)
{
    bson_t *rule_document = rules ? test_bson(rules) : NULL;
    struct merge_rules *compiled = NULL;
    bson_error_t error;

    CHECK_OK(truce__merge_rules_new(rule_document, &compiled, &error), error);
    options.rules = compiled;
    CHECK_OK(truce__merge(truce__value_document(base), truce__value_document(mine),
                          truce__value_document(theirs), &options, &merged->document,
                          &merged->conflicts, &error),
             error);
    truce__merge_rules_free(compiled);
    bson_destroy(rule_document);
}

static void release(struct merged *merged)
{
    bson_destroy(&merged->document);
    bson_destroy(&merged->conflicts);
}

static void check_with(struct merge_options options, const char *rules, const char *base_json,
                       const char *mine_json, const char *theirs_json, const char *expected_json,
                       const char *conflicts_json, int line)
{
    bson_t *base = test_bson(base_json), *mine = test_bson(mine_json);
    bson_t *theirs = test_bson(theirs_json), *expected = test_bson(expected_json);
    bson_t *conflicts = test_bson(conflicts_json);
    struct merged merged;

    merge(base, mine, theirs, rules, options, &merged);
    test_bson_equal(expected, &merged.document, __FILE__, line);
    test_bson_equal(conflicts, &merged.conflicts, __FILE__, line);
    release(&merged);
    bson_destroy(base);
    bson_destroy(mine);
    bson_destroy(theirs);
    bson_destroy(expected);
    bson_destroy(conflicts);
}

#define MERGES(rules, base, mine, theirs, expected)                                                \
    check_with((struct merge_options){0}, rules, base, mine, theirs, expected, "[]", __LINE__)
#define CONFLICTS(rules, base, mine, theirs, expected, conflicts)                                  \
    check_with((struct merge_options){0}, rules, base, mine, theirs, expected, conflicts, __LINE__)

TEST(changes_of_different_fields_come_together)
{
    MERGES(NULL, "{'a': 1, 'b': 2, 'c': 3}", "{'a': 5, 'b': 2, 'd': 4}", "{'a': 1, 'b': 6, 'c': 3}",
           "{'a': 5, 'b': 6, 'd': 4}");
    MERGES(NULL, "{'a': {'x': 1, 'y': {'z': 1}}}", "{'a': {'x': 2, 'y': {'z': 1}}}",
           "{'a': {'x': 1, 'y': {'z': 2, 'w': 1}}}", "{'a': {'x': 2, 'y': {'z': 2, 'w': 1}}}");
    MERGES(NULL, "{'a': 1}", "{'a': 2}", "{'a': 2}", "{'a': 2}");
    MERGES(NULL, "{'a': 1, 'b': 1}", "{'b': 1}", "{'b': 1}", "{'b': 1}");
    MERGES(NULL, "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "{'a': 1, 'b': 3}", "{'b': 3, 'a': 1}");
    MERGES(NULL, "{}", "{'z': 1, 'a': 1}", "{'m': 1}", "{'a': 1, 'm': 1, 'z': 1}");
}

TEST(reports_a_value_that_both_changed_as_a_conflict)
{
    CONFLICTS(NULL, "{'a': 1, 'b': 1}", "{'a': 2, 'b': 5}", "{'a': 3, 'b': 1}", "{'a': 3, 'b': 5}",
              "[{'path': 'a', 'kind': 'both-changed', 'base': 1, 'mine': 2, 'theirs': 3}]");
    CONFLICTS(NULL, "{'a': {'b': 1, 'c': 1}}", "{'a': {'c': 1}}", "{'a': {'b': 3, 'c': 1}}",
              "{'a': {'b': 3, 'c': 1}}",
              "[{'path': 'a.b', 'kind': 'delete-edit', 'base': 1, 'theirs': 3}]");
    CONFLICTS(NULL, "{'a': 1}", "{'a': 2}", "{}", "{}",
              "[{'path': 'a', 'kind': 'delete-edit', 'base': 1, 'mine': 2}]");
    CONFLICTS(NULL, "{}", "{'a': 2}", "{'a': 3}", "{'a': 3}",
              "[{'path': 'a', 'kind': 'both-added', 'mine': 2, 'theirs': 3}]");
    CONFLICTS(NULL, "{'a': 1}", "{'a': 'x'}", "{'a': {}}", "{'a': {}}",
              "[{'path': 'a', 'kind': 'type', 'base': 1, 'mine': 'x', 'theirs': {}}]");
    CONFLICTS(NULL, "{'a': [1]}", "{'a': [1, 2]}", "{'a': [1, 3]}", "{'a': [1, 3]}",
              "[{'path': 'a', 'kind': 'both-changed', 'base': [1], 'mine': [1, 2],"
              "'theirs': [1, 3]}]");
}

TEST(resolves_conflicts_by_policy)
{
    static const char *const base = "{'a': 1}", *const mine = "{'a': 5}",
                             *const theirs = "{'a': 3}";

    MERGES("{'a': 'mine'}", base, mine, theirs, "{'a': 5}");
    MERGES("{'a': 'theirs'}", base, mine, theirs, "{'a': 3}");
    MERGES("{'a': 'max'}", base, theirs, mine, "{'a': 5}");
    MERGES("{'a': 'min'}", base, mine, theirs, "{'a': 3}");
    MERGES("{'a': 'sum'}", base, mine, theirs, "{'a': 7}");
    MERGES("{'a': 'newest'}", base, mine, theirs, "{'a': 3}");
    check_with((struct merge_options){.mine_is_newer = true}, "{'a': 'newest'}", base, mine, theirs,
               "{'a': 5}", "[]", __LINE__);
    MERGES("{'$default': 'mine'}", base, mine, theirs, "{'a': 5}");
    MERGES("{'$default': 'theirs', 'b': 'mine'}", base, mine, theirs, "{'a': 3}");
    MERGES("{'a': 'mine'}", "{'a': 1}", "{}", "{'a': 3}", "{}");
    MERGES("{'a': 'theirs'}", "{'a': 1}", "{}", "{'a': 3}", "{'a': 3}");
    /* two equal changes are two */
    MERGES("{'a': 'sum'}", "{'a': 1}", "{'a': 2}", "{'a': 2}", "{'a': 3}");
    MERGES("{'a': 'sum'}", "{}", "{'a': 2}", "{'a': 2}", "{'a': 4}");
    MERGES("{'a': 'max'}", "{'a': 1}", "{'a': 2}", "{'a': 2}", "{'a': 2}");
}

TEST(a_policy_that_does_not_fit_is_a_conflict)
{
    CONFLICTS("{'a': 'sum'}", "{'a': 1}", "{'a': 'x'}", "{'a': 2}", "{'a': 2}",
              "[{'path': 'a', 'kind': 'type', 'base': 1, 'mine': 'x', 'theirs': 2}]");
    CONFLICTS("{'a': 'max'}", "{'a': 1}", "{}", "{'a': 2}", "{'a': 2}",
              "[{'path': 'a', 'kind': 'delete-edit', 'base': 1, 'theirs': 2}]");
    CONFLICTS("{'a': 'ask', '$default': 'mine'}", "{'a': 1}", "{'a': 3}", "{'a': 2}", "{'a': 2}",
              "[{'path': 'a', 'kind': 'both-changed', 'base': 1, 'mine': 3, 'theirs': 2}]");
    CONFLICTS("{'a': 'sum'}", "{'a': {'$numberLong': '0'}}",
              "{'a': {'$numberLong': '9223372036854775807'}}",
              "{'a': {'$numberLong': '9223372036854775807'}}",
              "{'a': {'$numberLong': '9223372036854775807'}}",
              "[{'path': 'a', 'kind': 'both-changed', 'base': {'$numberLong': '0'},"
              "'mine': {'$numberLong': '9223372036854775807'},"
              "'theirs': {'$numberLong': '9223372036854775807'}}]");
}

TEST(a_rule_holds_below_its_path_until_a_nearer_one)
{
    MERGES("{'a': 'mine', 'a.b.c': 'theirs'}", "{'a': {'b': {'c': 1, 'd': 1}}}",
           "{'a': {'b': {'c': 2, 'd': 2}}}", "{'a': {'b': {'c': 3, 'd': 3}}}",
           "{'a': {'b': {'c': 3, 'd': 2}}}");
    CONFLICTS("{'a': 'mine'}", "{'ab': 1}", "{'ab': 2}", "{'ab': 3}", "{'ab': 3}",
              "[{'path': 'ab', 'kind': 'both-changed', 'base': 1, 'mine': 2, 'theirs': 3}]");
    MERGES("{'lines.price': 'max'}", "{'lines': [{'id': 1, 'price': 1}]}",
           "{'lines': [{'id': 1, 'price': 2}]}", "{'lines': [{'id': 1, 'price': 3}]}",
           "{'lines': [{'id': 1, 'price': 3}]}");
}

TEST(strict_makes_a_conflict_of_whatever_both_changed)
{
    check_with((struct merge_options){.strict = true}, "{'$default': 'mine'}", "{'a': 1, 'b': 1}",
               "{'a': 2, 'b': 1}", "{'a': 1, 'b': 2}", "{'a': 1, 'b': 2}",
               "[{'path': '', 'kind': 'both-changed', 'base': {'a': 1, 'b': 1},"
               "'mine': {'a': 2, 'b': 1}, 'theirs': {'a': 1, 'b': 2}}]",
               __LINE__);
    check_with((struct merge_options){.strict = true}, NULL, "{'a': 1}", "{'a': 2}", "{'a': 1}",
               "{'a': 2}", "[]", __LINE__);
}

/* ---- arrays ---- */

#define E(id, n) "{'_id': '" #id "', 'n': " #n "}"

TEST(distinguishes_elements_by_their_identity)
{
    MERGES(NULL, "{'l': [" E(a, 1) "," E(b, 1) "," E(c, 1) "]}",
           "{'l': [" E(b, 1) "," E(a, 1) "," E(c, 1) "," E(x, 1) "]}",
           "{'l': [" E(a, 1) "," E(b, 2) "," E(y, 1) "," E(c, 1) "]}",
           "{'l': [" E(b, 2) "," E(y, 1) "," E(a, 1) "," E(c, 1) "," E(x, 1) "]}");
    MERGES(NULL, "{'l': [" E(a, 1) "," E(b, 1) "]}", "{'l': [" E(a, 2) "]}",
           "{'l': [" E(a, 1) "," E(b, 1) "," E(c, 1) "]}", "{'l': [" E(a, 2) "," E(c, 1) "]}");
    MERGES(NULL, "{'l': []}", "{'l': [" E(b, 1) "]}", "{'l': [" E(a, 1) "]}",
           "{'l': [" E(a, 1) "," E(b, 1) "]}");
    MERGES(NULL, "{'l': [{'name': 'a', 'n': 1, 'm': 1}]}", "{'l': [{'name': 'a', 'n': 2, 'm': 1}]}",
           "{'l': [{'name': 'a', 'n': 1, 'm': 2}]}", "{'l': [{'name': 'a', 'n': 2, 'm': 2}]}");
    MERGES("{'l': {'key': 'sku'}}", "{'l': [{'sku': 1, 'n': 1, 'id': 1}, {'sku': 2, 'id': 1}]}",
           "{'l': [{'sku': 1, 'n': 2, 'id': 1}, {'sku': 2, 'id': 1}]}",
           "{'l': [{'sku': 2, 'id': 1}, {'sku': 1, 'n': 1, 'id': 1}]}",
           "{'l': [{'sku': 2, 'id': 1}, {'sku': 1, 'n': 2, 'id': 1}]}");
}

TEST(conflicts_of_elements_are_named_by_their_identity)
{
    CONFLICTS(NULL, "{'l': [" E(a, 1) "," E(b, 1) "]}", "{'l': [" E(a, 1) "]}",
              "{'l': [" E(a, 1) "," E(b, 2) "]}", "{'l': [" E(a, 1) "," E(b, 2) "]}",
              "[{'path': 'l[_id: \\\"b\\\"]', 'kind': 'delete-edit', 'base': " E(
                  b, 1) ","
                        "'theirs': " E(b, 2) "}]");
    CONFLICTS(NULL, "{'l': [" E(a, 1) "]}", "{'l': [" E(a, 2) "]}", "{'l': [" E(a, 3) "]}",
              "{'l': [" E(a, 3) "]}",
              "[{'path': 'l[_id: \\\"a\\\"].n', 'kind': 'both-changed', 'base': 1, 'mine': 2,"
              "'theirs': 3}]");
    CONFLICTS(NULL, "{'l': []}", "{'l': [" E(a, 2) "]}", "{'l': [" E(a, 3) "]}",
              "{'l': [" E(a, 3) "]}",
              "[{'path': 'l[_id: \\\"a\\\"]', 'kind': 'both-added', 'mine': " E(
                  a, 2) ","
                        "'theirs': " E(a, 3) "}]");
}

TEST(treats_indistinguishable_elements_as_one_value)
{
    CONFLICTS(NULL, "{'l': [{'id': 1, 'n': 1}, {'id': 1, 'n': 2}]}", "{'l': [{'id': 1, 'n': 1}]}",
              "{'l': [{'id': 1, 'n': 2}]}", "{'l': [{'id': 1, 'n': 2}]}",
              "[{'path': 'l', 'kind': 'both-changed', 'base': [{'id': 1, 'n': 1},"
              "{'id': 1, 'n': 2}], 'mine': [{'id': 1, 'n': 1}], 'theirs': [{'id': 1, 'n': 2}]}]");
}

TEST(conflicts_can_be_settled_for_one_side)
{
    static const char *const base =
        "{'a': 1, 'b': 1, 'c': 1, 'l': [{'id': 1}, {'id': 2}, {'id': 3}]}";
    static const char *const mine =
        "{'a': 2, 'b': 2, 'c': 1, 'l': [{'id': 2}, {'id': 1}, {'id': 3}]}";
    static const char *const theirs =
        "{'a': 3, 'b': 1, 'c': 3, 'l': [{'id': 1}, {'id': 3}, {'id': 2}]}";

    check_with((struct merge_options){.settle = MERGE_SETTLE_MINE}, NULL, base, mine, theirs,
               "{'a': 2, 'b': 2, 'c': 3, 'l': [{'id': 2}, {'id': 1}, {'id': 3}]}", "[]", __LINE__);
    check_with((struct merge_options){.settle = MERGE_SETTLE_THEIRS}, NULL, base, mine, theirs,
               "{'a': 3, 'b': 2, 'c': 3, 'l': [{'id': 1}, {'id': 3}, {'id': 2}]}", "[]", __LINE__);
}

TEST(an_order_that_both_changed_is_a_conflict)
{
    CONFLICTS(NULL, "{'l': [{'id': 1}, {'id': 2}, {'id': 3}]}",
              "{'l': [{'id': 2}, {'id': 1}, {'id': 3}]}",
              "{'l': [{'id': 1}, {'id': 3}, {'id': 2}]}",
              "{'l': [{'id': 1}, {'id': 3}, {'id': 2}]}",
              "[{'path': 'l', 'kind': 'order', 'base': [{'id': 1}, {'id': 2}, {'id': 3}],"
              "'mine': [{'id': 2}, {'id': 1}, {'id': 3}],"
              "'theirs': [{'id': 1}, {'id': 3}, {'id': 2}]}]");
    MERGES("{'l': 'mine'}", "{'l': [{'id': 1}, {'id': 2}, {'id': 3}]}",
           "{'l': [{'id': 2}, {'id': 1}, {'id': 3}]}", "{'l': [{'id': 1}, {'id': 3}, {'id': 2}]}",
           "{'l': [{'id': 2}, {'id': 1}, {'id': 3}]}");
    MERGES(NULL, "{'l': [{'id': 1}, {'id': 2}]}", "{'l': [{'id': 2}, {'id': 1}]}",
           "{'l': [{'id': 2}, {'id': 1}, {'id': 3}]}", "{'l': [{'id': 2}, {'id': 1}, {'id': 3}]}");
}

TEST(arrays_are_sets_where_a_rule_says_so)
{
    MERGES("{'t': 'union'}", "{'t': ['a', 'b']}", "{'t': ['a', 'b', 'c']}", "{'t': ['b', 'd']}",
           "{'t': ['b', 'c', 'd']}");
    MERGES("{'t': 'union'}", "{'t': []}", "{'t': ['a', 'a']}", "{'t': ['b', 'a']}",
           "{'t': ['a', 'b']}");
    CONFLICTS("{'t': 'union'}", "{'t': []}", "{'t': ['a']}", "{'t': 'b'}", "{'t': 'b'}",
              "[{'path': 't', 'kind': 'type', 'base': [], 'mine': ['a'], 'theirs': 'b'}]");
}

TEST(texts_are_merged_line_by_line)
{
    MERGES("{'t': 'text'}", "{'t': 'a\\nb\\nc\\nd\\n'}", "{'t': 'a\\nB\\nc\\nd\\n'}",
           "{'t': 'a\\nb\\nc\\nD\\ne\\n'}", "{'t': 'a\\nB\\nc\\nD\\ne\\n'}");
    MERGES("{'t': 'text'}", "{'t': 'a\\nb\\nc'}", "{'t': '0\\na\\nb\\nc'}", "{'t': 'a\\nc'}",
           "{'t': '0\\na\\nc'}");
    MERGES("{'t': 'text'}", "{'t': 'a\\nb\\nc\\n'}", "{'t': 'a\\nX\\nc\\n0\\n'}",
           "{'t': 'a\\nX\\nc\\n'}", "{'t': 'a\\nX\\nc\\n0\\n'}");
    MERGES("{'t': 'text'}", "{'t': ''}", "{'t': 'a'}", "{'t': 'a'}", "{'t': 'a'}");
    CONFLICTS("{'t': 'text'}", "{'t': 'a\\nb'}", "{'t': 'a\\nc'}", "{'t': 'a\\nd'}",
              "{'t': 'a\\nd'}",
              "[{'path': 't', 'kind': 'both-changed', 'base': 'a\\nb', 'mine': 'a\\nc',"
              "'theirs': 'a\\nd', 'hunks': [{'base': 'b', 'mine': 'c', 'theirs': 'd'}],"
              "'marked': 'a\\n<<<<<<< mine\\nc\\n=======\\nd\\n>>>>>>> theirs\\n'}]");
    CONFLICTS("{'t': 'text'}", "{}", "{'t': 'a'}", "{'t': 'b'}", "{'t': 'b'}",
              "[{'path': 't', 'kind': 'both-added', 'mine': 'a', 'theirs': 'b'}]");
}

TEST(names_invalid_merge_rules)
{
    static const char *const wrong[][2] = {{"{'a': 'mien'}", "\"mien\""},
                                           {"{'a': 5}", "5"},
                                           {"{'a': {'polcy': 'sum'}}", "polcy"},
                                           {"{'a': {'key': 5}}", "key of \"a\""},
                                           {"{'': 'sum'}", "not a valid path"},
                                           {"{'a..b': 'sum'}", "a..b"},
                                           {"{'$a': 'sum'}", "$a"},
                                           {"{'$default': 'all'}", "all"}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bson_t *rules = test_bson(wrong[i][0]);
        struct merge_rules *compiled;
        bson_error_t error = {0};

        CHECK_STATUS(TRUCE_INVALID, truce__merge_rules_new(rules, &compiled, &error), error);
        CHECK(!compiled);
        if (!strstr(error.message, wrong[i][1]))
            test_fail(__FILE__, __LINE__, "%s: %s", wrong[i][0], error.message);
        bson_destroy(rules);
    }
}

/* ---- properties of all merges ---------------------------------------------------------------- */

/* Returns a document with values of all kinds that merges distinguish; most come from `like`. */
static bson_t *random_version(struct random *random, const bson_t *like)
{
    bson_t *made = bson_new();
    static const char *const names[] = {"a", "b", "c", "list", "set", "text", "sum", "z"};

    for (int i = 0; i < 8; i++) {
        bson_iter_t iter;
        bool there = like && bson_iter_init_find(&iter, like, names[i]);
        bson_t inner, element;

        if (there && truce__random_below(random, 3)) {
            bson_append_iter(made, NULL, 0, &iter);
            continue;
        }
        if (!truce__random_below(random, 6))
            continue;
        if (i == 3) {
            bson_append_array_begin(made, names[i], -1, &inner);
            for (uint32_t k = 0, id = 0; k < 5; k++) {
                char key[12];

                id += (uint32_t)truce__random_below(random, 3);
                if (!truce__random_below(random, 3))
                    continue;
                snprintf(key, sizeof key, "%u", bson_count_keys(&inner));
                bson_append_document_begin(&inner, key, -1, &element);
                BSON_APPEND_INT32(&element, "_id", (int32_t)(id++ * 7 % 11));
                BSON_APPEND_INT32(&element, "n", (int32_t)truce__random_below(random, 2));
                bson_append_document_end(&inner, &element);
            }
            bson_append_array_end(made, &inner);
        } else if (i == 4) {
            bson_append_array_begin(made, names[i], -1, &inner);
            for (uint32_t k = 0; k < 3; k++)
                BSON_APPEND_INT32(&inner,
                                  k == 0   ? "0"
                                  : k == 1 ? "1"
                                           : "2",
                                  (int32_t)truce__random_below(random, 4));
            bson_append_array_end(made, &inner);
        } else if (i == 5) {
            char text[40];

            snprintf(text, sizeof text, "%d\nb\n%d\nd\n%d", (int)truce__random_below(random, 2),
                     (int)truce__random_below(random, 2), (int)truce__random_below(random, 2));
            BSON_APPEND_UTF8(made, names[i], text);
        } else if (i == 6) {
            BSON_APPEND_INT32(made, names[i], (int32_t)truce__random_below(random, 10));
        } else {
            random_append(random, made, names[i], 2);
        }
    }
    return made;
}

#define RANDOM_RULES "{'set': 'union', 'text': 'text', 'sum': 'sum', 'a': 'max', 'list.n': 'min'}"

static void check_trivial(const bson_t *b, const bson_t *x)
{
    const bson_t *threes[][3] = {{b, b, x}, {b, x, b}, {b, x, x}};

    for (int i = 0; i < 3; i++) {
        struct merged merged;

        /* x, x is two changes for "sum" */
        merge(threes[i][0], threes[i][1], threes[i][2], i == 2 ? NULL : RANDOM_RULES,
              (struct merge_options){0}, &merged);
        CHECK_BSON(x, &merged.document);
        CHECK(bson_empty(&merged.conflicts));
        release(&merged);
    }
}

/* With sides exchanged: the same document, or as many conflicts. */
static void check_symmetric(const bson_t *b, const bson_t *x, const bson_t *y)
{
    struct merged one, other;

    merge(b, x, y, RANDOM_RULES, (struct merge_options){0}, &one);
    merge(b, y, x, RANDOM_RULES, (struct merge_options){0}, &other);
    CHECK_INT(bson_count_keys(&one.conflicts), ==, bson_count_keys(&other.conflicts));
    if (bson_empty(&one.conflicts))
        CHECK_BSON(&one.document, &other.document);
    release(&one);
    release(&other);
}

static bool reported(const bson_t *conflicts, const char *path)
{
    bson_iter_t iter, inner;

    for (bson_iter_init(&iter, conflicts); bson_iter_next(&iter);) {
        const char *shown;

        if (!bson_iter_recurse(&iter, &inner) || !bson_iter_find(&inner, "path"))
            continue;
        shown = bson_iter_utf8(&inner, NULL);
        if (!*shown || (!strncmp(shown, path, strlen(path)) &&
                        (!shown[strlen(path)] || strchr(".[", shown[strlen(path)]))))
            return true;
    }
    return false;
}

/* Without policies, each change of one side is in the result, or its field is among the
 * conflicts. */
static void check_nothing_lost(const bson_t *b, const bson_t *x, const bson_t *y)
{
    static const char *const names[] = {"a", "b", "c", "text", "sum", "z"};
    const bson_t *sides[] = {x, y};
    struct merged merged;

    merge(b, x, y, NULL, (struct merge_options){0}, &merged);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            size_t length = strlen(names[i]);
            struct value was = truce__value_field(truce__value_document(b), names[i], length);
            struct value is =
                truce__value_field(truce__value_document(sides[side]), names[i], length);
            struct value other =
                truce__value_field(truce__value_document(sides[!side]), names[i], length);
            struct value now =
                truce__value_field(truce__value_document(&merged.document), names[i], length);

            if (truce__value_identical(was, is) || truce__value_identical(now, is) ||
                reported(merged.conflicts.len ? &merged.conflicts : NULL, names[i]))
                continue;
            /* both changed inside of a document */
            if (truce__value_is_container(is) && !truce__value_identical(was, other))
                continue;
            test_fail(__FILE__, __LINE__, "a change of %s is lost", names[i]);
        }
    }
    release(&merged);
}

TEST(merges_of_random_versions_keep_the_laws)
{
    long rounds = test_scale("TRUCE_MERGE_ROUNDS", 4000);
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < rounds && !test_failures(); i++) {
        bson_t *b = random_version(&random, NULL), *x = random_version(&random, b);
        bson_t *y = random_version(&random, b);

        check_trivial(b, x);
        check_symmetric(b, x, y);
        check_nothing_lost(b, x, y);
        if (test_failures()) {
            const bson_t *all[] = {b, x, y};

            for (int k = 0; k < 3; k++) {
                char *text = bson_as_canonical_extended_json(all[k], NULL);

                fprintf(stderr, "    %s\n", text);
                bson_free(text);
            }
        }
        bson_destroy(b);
        bson_destroy(x);
        bson_destroy(y);
    }
}

/* ---- many elements and fields, against a model ---- */

/* The fate of one thing: 0 unchanged, 1 changed, 2 removed; mine first. */
struct fate {
    int mine, theirs;
};

#define THINGS 700

static void append_thing(bson_t *to, bool elements, uint32_t *count, int id, int n)
{
    char name[24];
    bson_t element;

    if (!elements) {
        snprintf(name, sizeof name, "field%d", id);
        bson_append_int32(to, name, -1, n);
        return;
    }
    snprintf(name, sizeof name, "%u", (*count)++);
    bson_append_document_begin(to, name, -1, &element);
    BSON_APPEND_INT32(&element, "id", id);
    BSON_APPEND_INT32(&element, "n", n);
    bson_append_document_end(to, &element);
}

/* One side: things by their fates, and some of its own at the end, numbered from `added`. */
static bson_t *version_of(const struct fate *fates, bool elements, int side, int added)
{
    bson_t *made = bson_new(), list;
    uint32_t count = 0;

    if (elements)
        bson_append_array_begin(made, "l", 1, &list);
    else
        bson_append_document_begin(made, "l", 1, &list);
    for (int i = 0; i < THINGS; i++) {
        int fate = side == 1 ? fates[i].mine : side == 2 ? fates[i].theirs : 0;

        if (fate != 2)
            append_thing(&list, elements, &count, i, fate ? i + side : i);
    }
    for (int i = 0; side && i < 20; i++)
        append_thing(&list, elements, &count, added + i, i);
    if (elements)
        bson_append_array_end(made, &list);
    else
        bson_append_document_end(made, &list);
    return made;
}

static struct value thing_in(const bson_t *document, bool elements, int id)
{
    struct value list = truce__value_field(truce__value_document(document), "l", 1);
    char name[24];

    snprintf(name, sizeof name, "field%d", id);
    if (!elements)
        return truce__value_field(list, name, strlen(name));
    for (struct fields fields = truce__fields(list); truce__fields_next(&fields);) {
        if (truce__value_int32(truce__value_field(fields.value, "id", 2)) == id)
            return truce__value_field(fields.value, "n", 1);
    }
    return truce__value_missing();
}

static void check_model(const struct fate *fates, bool elements)
{
    bson_t *base = version_of(fates, elements, 0, 0);
    bson_t *mine = version_of(fates, elements, 1, 10000);
    bson_t *theirs = version_of(fates, elements, 2, 20000);
    struct merged merged;
    uint32_t expected = 0;

    merge(base, mine, theirs, NULL, (struct merge_options){0}, &merged);
    for (int i = 0; i < THINGS && !test_failures(); i++) {
        struct fate fate = fates[i];
        struct value now = thing_in(&merged.document, elements, i);

        if (fate.mine && fate.theirs && fate.mine + fate.theirs < 4) {
            expected++;
            continue;
        }
        if (fate.mine == 2 || fate.theirs == 2)
            CHECK(!now.type);
        else if (CHECK_INT(now.type, ==, BSON_TYPE_INT32))
            CHECK_INT(truce__value_int32(now), ==, i + (fate.mine ? 1 : fate.theirs ? 2 : 0));
    }
    for (int i = 0; i < 20; i++) {
        CHECK_INT(thing_in(&merged.document, elements, 10000 + i).type, ==, BSON_TYPE_INT32);
        CHECK_INT(thing_in(&merged.document, elements, 20000 + i).type, ==, BSON_TYPE_INT32);
    }
    CHECK_INT(bson_count_keys(&merged.conflicts), ==, expected);
    release(&merged);
    bson_destroy(base);
    bson_destroy(mine);
    bson_destroy(theirs);
}

TEST(merges_or_reports_every_edit_of_many_things)
{
    long rounds = test_scale("TRUCE_MERGE_ROUNDS", 4000) / 200;
    struct fate fates[THINGS];
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long round = 0; round < rounds && !test_failures(); round++) {
        for (int i = 0; i < THINGS; i++)
            fates[i] = (struct fate){
                truce__random_below(&random, 5) ? 0 : 1 + (int)truce__random_below(&random, 2),
                truce__random_below(&random, 5) ? 0 : 1 + (int)truce__random_below(&random, 2)};
        check_model(fates, round % 2);
    }
}
