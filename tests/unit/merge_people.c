/*
 * Merges as people expect them: an editor of posts, of forms, of lists of tasks. Each row was
 * judged by eye: a person who knows both edits would have written the result. Exchanged sides must
 * give the same result.
 */
#include "merge/merge.h"
#include "tests/support/test.h"

struct row {
    const char *what;
    const char *base, *mine, *theirs, *merged;
    const char *conflicts; /* their paths, blank between; "": none */
};

static void merge_row(const struct row *row, const char *rules_json, bool exchanged)
{
    bson_t *base = test_bson(row->base), *mine = test_bson(row->mine);
    bson_t *theirs = test_bson(row->theirs), *expected = test_bson(row->merged);
    bson_t *rules_document = test_bson(rules_json), merged, conflicts;
    const bson_t *left = exchanged ? theirs : mine, *right = exchanged ? mine : theirs;
    struct merge_options options = {0};
    struct merge_rules *rules = NULL;
    char paths[500] = "";
    bson_error_t error;

    CHECK_OK(truce__merge_rules_new(rules_document, &rules, &error), error);
    options.rules = rules;
    CHECK_OK(truce__merge(truce__value_document(base), truce__value_document(left),
                          truce__value_document(right), &options, &merged, &conflicts, &error),
             error);
    for (struct fields all = truce__fields(truce__value_document(&conflicts));
         truce__fields_next(&all);) {
        uint32_t length;

        if (paths[0])
            strcat(paths, " ");
        strncat(paths, truce__value_text(truce__value_field(all.value, "path", 4), &length), 80);
    }
    if (strcmp(paths, row->conflicts) != 0 ||
        (!(exchanged && paths[0]) && !bson_equal(expected, &merged))) {
        char *shown = bson_as_relaxed_extended_json(&merged, NULL);

        test_fail(__FILE__, __LINE__, "%s%s: wanted %s with conflicts [%s], got %s with [%s]",
                  row->what, exchanged ? " (exchanged)" : "", row->merged, row->conflicts, shown,
                  paths);
        bson_free(shown);
    }
    truce__merge_rules_free(rules);
    bson_destroy(&merged);
    bson_destroy(&conflicts);
    bson_destroy(base);
    bson_destroy(mine);
    bson_destroy(theirs);
    bson_destroy(expected);
    bson_destroy(rules_document);
}

static void merge_rows(const struct row *rows, size_t count, const char *rules)
{
    for (size_t i = 0; i < count; i++) {
        merge_row(&rows[i], rules, false);
        merge_row(&rows[i], rules, true);
    }
}
#define MERGE_ROWS(rows, rules) merge_rows(rows, sizeof(rows) / sizeof *(rows), rules)

/* ---- an editor of posts ---- */

#define T(text) "{'t': '" text "'}"

TEST(merges_posts_as_their_authors_expect)
{
    static const struct row rows[] = {
        {"two lines far apart", T("one\\ntwo\\nthree\\nfour\\n"), T("ONE\\ntwo\\nthree\\nfour\\n"),
         T("one\\ntwo\\nthree\\nFOUR\\n"), T("ONE\\ntwo\\nthree\\nFOUR\\n"), ""},
        {"a line added at each end", T("b\\n"), T("a\\nb\\n"), T("b\\nc\\n"), T("a\\nb\\nc\\n"),
         ""},
        {"a line removed, another changed", T("a\\nb\\nc\\nd\\n"), T("a\\nc\\nd\\n"),
         T("a\\nb\\nc\\nD\\n"), T("a\\nc\\nD\\n"), ""},
        {"two words of one line", T("the quick brown fox jumps"), T("the slow brown fox jumps"),
         T("the quick brown fox sleeps"), T("the slow brown fox sleeps"), ""},
        {"two words side by side", T("the quick fox"), T("the slow fox"), T("the quick dog"),
         T("the quick dog"), "t"},
        {"the same word, differently", T("it is good"), T("it is great"), T("it is fine"),
         T("it is fine"), "t"},
        {"the same word, alike", T("it is god"), T("it is good"), T("it is good"), T("it is good"),
         ""},
        {"a typo fixed, a sentence added at the end", T("Teh end."), T("The end."),
         T("Teh end. Really."), T("The end. Really."), ""},
        {"words added before and behind", T("world"), T("hello world"), T("world again"),
         T("hello world again"), ""},
        {"a line rewritten, a word of it fixed", T("a bb c\\nd\\n"), T("x y z\\nd\\n"),
         T("a b c\\nd\\n"), T("a b c\\nd\\n"), "t"},
        {"a title and a text", "{'t': 'a', 'title': 'x'}", "{'t': 'b', 'title': 'x'}",
         "{'t': 'a', 'title': 'y'}", "{'t': 'b', 'title': 'y'}", ""},
        {"a line changed by one, removed by the other", T("a\\nb\\nc\\n"), T("a\\nB\\nc\\n"),
         T("a\\nc\\n"), T("a\\nc\\n"), "t"},
        {"a hunk, and a clean edit elsewhere", T("1\\n2\\n3\\n4\\n5\\n"), T("1\\nx\\n3\\n4\\n5\\n"),
         T("1\\ny\\n3\\n4\\nFIVE\\n"), T("1\\ny\\n3\\n4\\nFIVE\\n"), "t"},
        {"a hunk, and clean edits of both sides", T("1\\n2\\n3\\n4\\n5\\n"),
         T("ONE\\nx\\n3\\n4\\n5\\n"), T("1\\ny\\n3\\n4\\nFIVE\\n"), T("1\\ny\\n3\\n4\\nFIVE\\n"),
         "t"},
        {"one side saved with CRLF", T("a\\nb\\n"), T("a\\r\\nb\\r\\n"), T("a\\nB\\n"),
         T("a\\r\\nB\\r\\n"), ""},
        {"both CRLF", T("a\\r\\nb\\r\\nc\\r\\n"), T("A\\r\\nb\\r\\nc\\r\\n"),
         T("a\\r\\nb\\r\\nC\\r\\n"), T("A\\r\\nb\\r\\nC\\r\\n"), ""},
        {"CRLF back to LF", T("a\\r\\nb\\r\\n"), T("a\\nb\\n"), T("a\\r\\nb\\r\\nc\\r\\n"),
         T("a\\nb\\nc\\n"), ""},
        {"the last newline goes, a line is changed", T("a\\nb\\nc\\n"), T("a\\nb\\nc"),
         T("A\\nb\\nc\\n"), T("A\\nb\\nc"), ""},
        {"an empty text written by both", T(""), T("a"), T("b"), T("b"), "t"},
        {"an empty text written by one", T(""), T("a"), T(""), T("a"), ""},
        {"a text emptied by one, changed by the other", T("a b c"), T(""), T("a b d"), T("a b d"),
         "t"},
        {"a paragraph moved by one, a word elsewhere", T("p\\nq\\nr\\nz\\n"), T("q\\nr\\nz\\np\\n"),
         T("p\\nq\\nr s\\nz\\n"), T("q\\nr s\\nz\\np\\n"), ""},
        {"umlauts are parts of words", T("ein schöner Tag heute"), T("ein schöner Abend heute"),
         T("kein schöner Tag heute"), T("kein schöner Abend heute"), ""},
        {"numbers of a sentence", T("5 of 7 were late by 3 minutes"),
         T("6 of 7 were late by 3 minutes"), T("5 of 7 were late by 4 minutes"),
         T("6 of 7 were late by 4 minutes"), ""},
        {"marks do not part two changes", T("a, b"), T("x, b"), T("a, y"), T("a, y"), "t"},
        {"a paragraph put in by each, far apart", T("a\\n\\nb\\n\\nc\\n"),
         T("a\\n\\nnew\\n\\nb\\n\\nc\\n"), T("a\\n\\nb\\n\\nc\\n\\nend\\n"),
         T("a\\n\\nnew\\n\\nb\\n\\nc\\n\\nend\\n"), ""},
        {"a sentence added behind by both", T("One."), T("One. Two."), T("One. Three."),
         T("One. Three."), "t"},
        {"a line added behind by both", T("a\\n"), T("a\\nb\\n"), T("a\\nc\\n"), T("a\\nc\\n"),
         "t"},
        {"the same paragraph removed by both, another changed", T("a\\nb\\nc\\nd\\n"),
         T("a\\nc\\nd\\n"), T("a\\nc\\nD\\n"), T("a\\nc\\nD\\n"), ""},
        {"a word fixed, its line moved by the other", T("teh a\\nb\\nc\\nd\\n"),
         T("the a\\nb\\nc\\nd\\n"), T("b\\nc\\nd\\nteh a\\n"), T("b\\nc\\nd\\nteh a\\n"), "t"},
        {"a heading and the first line below", T("# a\\n\\ntext one\\n"), T("# A\\n\\ntext one\\n"),
         T("# a\\n\\ntext two\\n"), T("# A\\n\\ntext two\\n"), ""},
        {"the text goes, the text is changed", "{'t': 'a', 'n': 1}", "{'n': 1}",
         "{'t': 'b', 'n': 1}", "{'t': 'b', 'n': 1}", "t"},
    };

    MERGE_ROWS(rows, "{'t': 'text'}");
}

/* Any decision about a hunk keeps the clean edits of both sides. */
TEST(a_decided_hunk_keeps_the_rest_of_both)
{
    bson_t *base = test_bson(T("1\\n2\\n3\\n4\\n5\\n")),
           *mine = test_bson(T("ONE\\n1\\nx\\n3\\n4\\n5\\n"));
    bson_t *theirs = test_bson(T("1\\ny\\n3\\n4\\nFIVE\\n")), *rules = test_bson("{'t': 'text'}");
    const char *const wanted[] = {T("ONE\\n1\\nx\\n3\\n4\\nFIVE\\n"),
                                  T("ONE\\n1\\ny\\n3\\n4\\nFIVE\\n")};
    const enum merge_settle settles[] = {MERGE_SETTLE_MINE, MERGE_SETTLE_THEIRS};
    struct merge_rules *compiled;
    bson_error_t error;

    CHECK_OK(truce__merge_rules_new(rules, &compiled, &error), error);
    for (int i = 0; i < 2; i++) {
        struct merge_options options = {.rules = compiled, .settle = settles[i]};
        bson_t merged, conflicts, *expected = test_bson(wanted[i]);

        CHECK_OK(truce__merge(truce__value_document(base), truce__value_document(mine),
                              truce__value_document(theirs), &options, &merged, &conflicts, &error),
                 error);
        test_bson_equal(expected, &merged, __FILE__, __LINE__);
        CHECK(bson_empty(&conflicts));
        bson_destroy(expected);
        bson_destroy(&merged);
        bson_destroy(&conflicts);
    }
    truce__merge_rules_free(compiled);
    bson_destroy(base);
    bson_destroy(mine);
    bson_destroy(theirs);
    bson_destroy(rules);
}

/* ---- an editor of a form ---- */

TEST(merges_forms_as_their_authors_expect)
{
    static const struct row rows[] = {
        {"two fields", "{'name': 'a', 'mail': 'b'}", "{'name': 'x', 'mail': 'b'}",
         "{'name': 'a', 'mail': 'y'}", "{'name': 'x', 'mail': 'y'}", ""},
        {"one field, differently", "{'name': 'a'}", "{'name': 'x'}", "{'name': 'y'}",
         "{'name': 'y'}", "name"},
        {"fields inside of one document", "{'to': {'street': 'a', 'city': 'b'}}",
         "{'to': {'street': 'x', 'city': 'b'}}", "{'to': {'street': 'a', 'city': 'y'}}",
         "{'to': {'street': 'x', 'city': 'y'}}", ""},
        {"a field added by each", "{'a': 1}", "{'a': 1, 'b': 2}", "{'a': 1, 'c': 3}",
         "{'a': 1, 'b': 2, 'c': 3}", ""},
        {"the same field added alike", "{}", "{'b': 2}", "{'b': 2}", "{'b': 2}", ""},
        {"the same field added, differently", "{}", "{'b': 2}", "{'b': 3}", "{'b': 3}", "b"},
        {"a field removed by both", "{'a': 1, 'b': 2}", "{'a': 1}", "{'a': 1}", "{'a': 1}", ""},
        {"a field removed, another changed", "{'a': 1, 'b': 2}", "{'b': 2}", "{'a': 1, 'b': 3}",
         "{'b': 3}", ""},
        {"a field removed by one, changed by the other", "{'a': 1}", "{}", "{'a': 2}", "{'a': 2}",
         "a"},
        {"another type is a change", "{'a': 5}", "{'a': {'$numberDecimal': '5'}}", "{'a': 5}",
         "{'a': {'$numberDecimal': '5'}}", ""},
        {"two other types", "{'a': 5}", "{'a': {'$numberDecimal': '5'}}", "{'a': 5.0}",
         "{'a': 5.0}", "a"},
        {"a box ticked, a text written", "{'done': false, 'n': ''}", "{'done': true, 'n': ''}",
         "{'done': false, 'n': 'x'}", "{'done': true, 'n': 'x'}", ""},
        {"counters that both raised", "{'views': 10}", "{'views': 12}", "{'views': 11}",
         "{'views': 13}", ""},
        {"counters that both raised alike", "{'views': 10}", "{'views': 11}", "{'views': 11}",
         "{'views': 12}", ""},
        {"a counter made by both", "{}", "{'views': 1}", "{'views': 2}", "{'views': 3}", ""},
        {"the highest of two bids", "{'bid': 1}", "{'bid': 5}", "{'bid': 4}", "{'bid': 5}", ""},
        {"a document made a text by one", "{'to': {'city': 'a'}}", "{'to': 'a'}",
         "{'to': {'city': 'b'}}", "{'to': {'city': 'b'}}", "to"},
        {"an address filled in by one, a note by the other", "{'n': 'a', 'to': null}",
         "{'n': 'a', 'to': {'city': 'x'}}", "{'n': 'b', 'to': null}",
         "{'n': 'b', 'to': {'city': 'x'}}", ""},
        {"a field renamed by one, another changed", "{'a': 1, 'b': 2}", "{'c': 1, 'b': 2}",
         "{'a': 1, 'b': 3}", "{'b': 3, 'c': 1}", ""},
        {"a field emptied by one, filled in by the other", "{'a': 'x'}", "{'a': null}",
         "{'a': 'y'}", "{'a': 'y'}", "a"},
        {"a field set back by one, another changed", "{'a': 2, 'b': 1}", "{'a': 1, 'b': 1}",
         "{'a': 2, 'b': 2}", "{'a': 1, 'b': 2}", ""},
        {"a document removed by one, a field of it changed", "{'to': {'city': 'a'}, 'n': 1}",
         "{'n': 1}", "{'to': {'city': 'b'}, 'n': 1}", "{'to': {'city': 'b'}, 'n': 1}", "to"},
        {"both made the same document, with different fields", "{}", "{'to': {'street': 'a'}}",
         "{'to': {'city': 'b'}}", "{'to': {'city': 'b', 'street': 'a'}}", ""},
        {"both made the same document, one field differently", "{}", "{'to': {'a': 1, 'b': 1}}",
         "{'to': {'a': 1, 'b': 2}}", "{'to': {'a': 1, 'b': 2}}", "to.b"},
        {"fields in another order are no edit", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}",
         "{'a': 1, 'b': 3}", "{'b': 3, 'a': 1}", ""},
    };

    MERGE_ROWS(rows, "{'views': 'sum', 'bid': 'max'}");
}

/* ---- tags, and lists of tasks ---- */

TEST(merges_tags_as_their_authors_expect)
{
    static const struct row rows[] = {
        {"a tag added by each", "{'tags': ['a']}", "{'tags': ['a', 'b']}", "{'tags': ['a', 'c']}",
         "{'tags': ['a', 'b', 'c']}", ""},
        {"one added, one removed", "{'tags': ['a', 'b']}", "{'tags': ['a', 'b', 'c']}",
         "{'tags': ['b']}", "{'tags': ['b', 'c']}", ""},
        {"the first tags, by both", "{}", "{'tags': ['a']}", "{'tags': ['b', 'a']}",
         "{'tags': ['a', 'b']}", ""},
        {"the first tags, alike", "{}", "{'tags': ['a']}", "{'tags': ['a']}", "{'tags': ['a']}",
         ""},
        {"the same tag by both", "{'tags': []}", "{'tags': ['a']}", "{'tags': ['a']}",
         "{'tags': ['a']}", ""},
        {"all tags gone, one added", "{'tags': ['a', 'b']}", "{'tags': []}",
         "{'tags': ['a', 'b', 'c']}", "{'tags': ['c']}", ""},
        {"scalars without a rule are one value", "{'l': [1]}", "{'l': [1, 2]}", "{'l': [1, 3]}",
         "{'l': [1, 3]}", "l"},
        {"scalars without a rule, added by both", "{}", "{'l': [1]}", "{'l': [2]}", "{'l': [2]}",
         "l"},
    };

    MERGE_ROWS(rows, "{'tags': 'union'}");
}

#define A       "{'id': 1, 't': 'a'}"
#define B       "{'id': 2, 't': 'b'}"
#define C       "{'id': 3, 't': 'c'}"
#define D       "{'id': 4, 't': 'd'}"
#define E       "{'id': 5, 't': 'e'}"
#define X       "{'id': 8, 't': 'x'}"
#define Y       "{'id': 9, 't': 'y'}"
#define L(list) "{'l': [" list "]}"

TEST(merges_tasks_as_their_authors_expect)
{
    static const struct row rows[] = {
        {"a task ticked by each", L(A "," B), L("{'id': 1, 't': 'a', 'ok': 1}," B),
         L(A ",{'id': 2, 't': 'b', 'ok': 1}"),
         L("{'id': 1, 't': 'a', 'ok': 1},{'id': 2, 't': 'b', 'ok': 1}"), ""},
        {"one task, two fields", L("{'id': 1, 't': 'a', 'who': 'p'}"),
         L("{'id': 1, 't': 'b', 'who': 'p'}"), L("{'id': 1, 't': 'a', 'who': 'q'}"),
         L("{'id': 1, 't': 'b', 'who': 'q'}"), ""},
        {"one field of one task", L(A), L("{'id': 1, 't': 'm'}"), L("{'id': 1, 't': 'n'}"),
         L("{'id': 1, 't': 'n'}"), "l[id: 1].t"},
        {"appended by both", L(A), L(A "," X), L(A "," Y), L(A "," X "," Y), ""},
        {"appended by one, put first by the other", L(A), L(A "," X), L(Y "," A), L(Y "," A "," X),
         ""},
        {"appended by one, the last removed by the other", L(A "," B), L(A "," B "," X), L(A),
         L(A "," X), ""},
        {"appended by one, the last moved by the other", L(A "," B "," C), L(A "," B "," C "," X),
         L(C "," A "," B), L(C "," A "," B "," X), ""},
        {"appended by one, the last put first and another moved", L(A "," B "," C "," D),
         L(A "," B "," C "," D "," X), L(D "," A "," C "," B), L(D "," A "," C "," B "," X), ""},
        {"removed by one, moved by the other", L(A "," B "," C), L(B "," C), L(B "," C "," A),
         L(B "," C), ""},
        {"removed by one, ticked by the other", L(A "," B), L(B),
         L("{'id': 1, 't': 'a', 'ok': 1}," B), L("{'id': 1, 't': 'a', 'ok': 1}," B), "l[id: 1]"},
        {"moved and ticked", L(A "," B "," C), L(C "," A "," B), L(A "," B ",{'id': 3, 't': 'z'}"),
         L("{'id': 3, 't': 'z'}," A "," B), ""},
        {"each moved another one", L(A "," B "," C "," D), L(B "," C "," D "," A),
         L(A "," D "," B "," C), L(D "," B "," C "," A), ""},
        {"the first and the last, to the middle", L(A "," B "," C "," D "," E),
         L(B "," A "," C "," D "," E), L(A "," B "," C "," E "," D), L(B "," A "," C "," E "," D),
         ""},
        {"both moved the same one, to the same place", L(A "," B "," C), L(B "," C "," A),
         L(B "," C "," A), L(B "," C "," A), ""},
        {"both moved the same one, elsewhere", L(A "," B "," C "," D), L(B "," A "," C "," D),
         L(B "," C "," D "," A), L(B "," C "," D "," A), "l"},
        {"moves that contradict each other", L(A "," B "," C), L(B "," A "," C), L(A "," C "," B),
         L(A "," C "," B), "l"},
        {"lists made by both", "{}", L(A), L(B), L(A "," B), ""},
        {"lists made by both, one task in both", "{}", L(A "," B), L(B), L(A "," B), ""},
        {"lists made by both, one task different", "{}", L(A), L("{'id': 1, 't': 'b'}"),
         L("{'id': 1, 't': 'b'}"), "l[id: 1]"},
        {"put between by each, in different places", L(A "," B "," C), L(A "," X "," B "," C),
         L(A "," B "," Y "," C), L(A "," X "," B "," Y "," C), ""},
        {"put between by both, in one place", L(A "," B), L(A "," X "," B), L(A "," Y "," B),
         L(A "," X "," Y "," B), ""},
        {"everything removed by one", L(A "," B), L(""), L(A "," B "," X), L(X), ""},
        {"turned round by one", L(A "," B "," C), L(C "," B "," A), L(A "," B "," C "," X),
         L(C "," B "," A "," X), ""},
        {"a task taken apart by one, ticked by the other", L(A "," B), L(A "," X "," Y "," B),
         L("{'id': 1, 't': 'a', 'ok': 1}," B), L("{'id': 1, 't': 'a', 'ok': 1}," X "," Y "," B),
         ""},
        {"the last moved to the front by both, one appended", L(A "," B "," C), L(C "," A "," B),
         L(C "," A "," B "," X), L(C "," A "," B "," X), ""},
        {"cleared of what is done, one added, one ticked", L(A "," B "," C), L(A "," C),
         L(A "," B ",{'id': 3, 't': 'c', 'ok': 1}," X), L(A ",{'id': 3, 't': 'c', 'ok': 1}," X),
         ""},
        {"a task and a list inside of it",
         "{'l': [{'id': 1, 's': [{'id': 1, 'ok': 0}, {'id': 2, 'ok': 0}]}]}",
         "{'l': [{'id': 1, 's': [{'id': 1, 'ok': 1}, {'id': 2, 'ok': 0}]}]}",
         "{'l': [{'id': 1, 's': [{'id': 1, 'ok': 0}, {'id': 2, 'ok': 1}]}]}",
         "{'l': [{'id': 1, 's': [{'id': 1, 'ok': 1}, {'id': 2, 'ok': 1}]}]}", ""},
        {"two new tasks under one number are not mixed", L(A), L(A ",{'id': 8, 't': 'x'}"),
         L(A ",{'id': 8, 'who': 'y'}"), L(A ",{'id': 8, 'who': 'y'}"), "l[id: 8]"},
        {"one removed by each", L(A "," B "," C), L(A "," C), L(B "," C), L(C), ""},
        {"the same one removed by both, one added by each", L(A "," B), L(A "," X), L(A "," Y),
         L(A "," X "," Y), ""},
        {"swapped by one, removed by the other", L(A "," B "," C), L(B "," A "," C), L(A "," C),
         L(A "," C), ""},
    };

    MERGE_ROWS(rows, "{}");
}
