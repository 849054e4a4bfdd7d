/* Patches: the cases of RFC 6902 (appendix A) and RFC 7396 (appendix A) as data, other rules of the
 * RFCs, and differences that give the target when they are applied. */
#include "merge/json_patch.h"

#include "base/random.h"
#include "query/update/update.h"
#include "tests/support/random_bson.h"
#include "tests/support/test.h"

/* {v: value} */
static struct value holder_value(const bson_t *holder)
{
    return truce__value_field(truce__value_document(holder), "v", 1);
}

static bson_t *wrapped(const char *json)
{
    char *text = bson_strdup_printf("{'v': %s}", json);
    bson_t *holder = test_bson(text);

    bson_free(text);
    return holder;
}

/* ---- RFC 6902 ---- */

static const struct {
    const char *name, *before, *patch, *after; /* after NULL: refused */
} cases[] = {
    {"A.1 adding an object member", "{'foo': 'bar'}",
     "[{'op': 'add', 'path': '/baz', 'value': 'qux'}]", "{'baz': 'qux', 'foo': 'bar'}"},
    {"A.2 adding an array element", "{'foo': ['bar', 'baz']}",
     "[{'op': 'add', 'path': '/foo/1', 'value': 'qux'}]", "{'foo': ['bar', 'qux', 'baz']}"},
    {"A.3 removing an object member", "{'baz': 'qux', 'foo': 'bar'}",
     "[{'op': 'remove', 'path': '/baz'}]", "{'foo': 'bar'}"},
    {"A.4 removing an array element", "{'foo': ['bar', 'qux', 'baz']}",
     "[{'op': 'remove', 'path': '/foo/1'}]", "{'foo': ['bar', 'baz']}"},
    {"A.5 replacing a value", "{'baz': 'qux', 'foo': 'bar'}",
     "[{'op': 'replace', 'path': '/baz', 'value': 'boo'}]", "{'baz': 'boo', 'foo': 'bar'}"},
    {"A.6 moving a value", "{'foo': {'bar': 'baz', 'waldo': 'fred'}, 'qux': {'corge': 'grault'}}",
     "[{'op': 'move', 'from': '/foo/waldo', 'path': '/qux/thud'}]",
     "{'foo': {'bar': 'baz'}, 'qux': {'corge': 'grault', 'thud': 'fred'}}"},
    {"A.7 moving an array element", "{'foo': ['all', 'grass', 'cows', 'eat']}",
     "[{'op': 'move', 'from': '/foo/1', 'path': '/foo/3'}]",
     "{'foo': ['all', 'cows', 'eat', 'grass']}"},
    {"A.8 testing a value: success", "{'baz': 'qux', 'foo': ['a', 2, 'c']}",
     "[{'op': 'test', 'path': '/baz', 'value': 'qux'}, {'op': 'test', 'path': '/foo/1', 'value': 2}]",
     "{'baz': 'qux', 'foo': ['a', 2, 'c']}"},
    {"A.9 testing a value: error", "{'baz': 'qux'}",
     "[{'op': 'test', 'path': '/baz', 'value': 'bar'}]", NULL},
    {"A.10 adding a nested member object", "{'foo': 'bar'}",
     "[{'op': 'add', 'path': '/child', 'value': {'grandchild': {}}}]",
     "{'foo': 'bar', 'child': {'grandchild': {}}}"},
    {"A.11 ignoring unrecognized elements", "{'foo': 'bar'}",
     "[{'op': 'add', 'path': '/baz', 'value': 'qux', 'xyz': 123}]", "{'foo': 'bar', 'baz': 'qux'}"},
    {"A.12 adding to a nonexistent target", "{'foo': 'bar'}",
     "[{'op': 'add', 'path': '/baz/bat', 'value': 'qux'}]", NULL},
    {"A.13 invalid: the last op counts, and has no target", "{'foo': 'bar'}",
     "[{'op': 'add', 'path': '/baz', 'value': 'qux'}, {'op': 'remove', 'path': '/none'}]", NULL},
    {"A.14 ~ escape ordering", "{'/': 9, '~1': 10}",
     "[{'op': 'test', 'path': '/~01', 'value': 10}]", "{'/': 9, '~1': 10}"},
    {"A.15 comparing strings and numbers", "{'/': 9, '~1': 10}",
     "[{'op': 'test', 'path': '/~01', 'value': '10'}]", NULL},
    {"A.16 adding an array value", "{'foo': ['bar']}",
     "[{'op': 'add', 'path': '/foo/-', 'value': ['abc', 'def']}]",
     "{'foo': ['bar', ['abc', 'def']]}"},
    /* section 4 */
    {"4.1 add replaces a member that exists", "{'a': 1}",
     "[{'op': 'add', 'path': '/a', 'value': 2}]", "{'a': 2}"},
    {"4.1 add at the whole document", "{'a': 1}", "[{'op': 'add', 'path': '', 'value': {'b': 2}}]",
     "{'b': 2}"},
    {"4.1 add beyond the end of an array", "{'a': [1]}",
     "[{'op': 'add', 'path': '/a/2', 'value': 2}]", NULL},
    {"4.1 add at the end of an array", "{'a': [1]}", "[{'op': 'add', 'path': '/a/1', 'value': 2}]",
     "{'a': [1, 2]}"},
    {"4.1 add of null", "{}", "[{'op': 'add', 'path': '/a', 'value': null}]", "{'a': null}"},
    {"4.1 add without value", "{}", "[{'op': 'add', 'path': '/a'}]", NULL},
    {"4.1 add into a scalar", "{'a': 1}", "[{'op': 'add', 'path': '/a/b', 'value': 1}]", NULL},
    {"4.2 remove of what is not there", "{'a': 1}", "[{'op': 'remove', 'path': '/b'}]", NULL},
    {"4.2 remove beyond the end", "{'a': [1]}", "[{'op': 'remove', 'path': '/a/1'}]", NULL},
    {"4.2 remove of -", "{'a': [1]}", "[{'op': 'remove', 'path': '/a/-'}]", NULL},
    {"4.3 replace of what is not there", "{'a': 1}",
     "[{'op': 'replace', 'path': '/b', 'value': 1}]", NULL},
    {"4.3 replace of the whole document", "{'a': 1}",
     "[{'op': 'replace', 'path': '', 'value': {'b': [1]}}]", "{'b': [1]}"},
    {"4.3 replace in what was put in", "{'a': 1}",
     "[{'op': 'replace', 'path': '/a', 'value': {'b': [1]}},"
     "{'op': 'add', 'path': '/a/b/0', 'value': 0}]",
     "{'a': {'b': [0, 1]}}"},
    {"4.4 move into itself", "{'a': {'b': {}}}", "[{'op': 'move', 'from': '/a', 'path': '/a/b'}]",
     NULL},
    {"4.4 move of an element into itself", "{'a': [{}, {}]}",
     "[{'op': 'move', 'from': '/a/0', 'path': '/a/0/x'}]", NULL},
    {"4.4 move to where it is", "{'a': 1, 'b': 2}", "[{'op': 'move', 'from': '/a', 'path': '/a'}]",
     "{'a': 1, 'b': 2}"},
    {"4.4 move to a name that begins like it", "{'a': 1, 'ab': {}}",
     "[{'op': 'move', 'from': '/a', 'path': '/ab/c'}]", "{'ab': {'c': 1}}"},
    {"4.4 move of what is not there", "{'a': 1}", "[{'op': 'move', 'from': '/b', 'path': '/a'}]",
     NULL},
    {"4.4 move without from", "{'a': 1}", "[{'op': 'move', 'path': '/a'}]", NULL},
    {"4.5 copy", "{'a': {'b': [1]}}", "[{'op': 'copy', 'from': '/a/b', 'path': '/c'}]",
     "{'a': {'b': [1]}, 'c': [1]}"},
    {"4.5 a copy is not what it was copied from", "{'a': {'b': 1}}",
     "[{'op': 'copy', 'from': '/a', 'path': '/c'}, {'op': 'replace', 'path': '/c/b', 'value': 2},"
     "{'op': 'copy', 'from': '/c', 'path': '/d'}, {'op': 'remove', 'path': '/c/b'}]",
     "{'a': {'b': 1}, 'c': {}, 'd': {'b': 2}}"},
    {"4.6 test of numbers by value", "{'a': 1}",
     "[{'op': 'test', 'path': '/a', 'value': {'$numberDouble': '1.0'}}]", "{'a': 1}"},
    {"4.6 test of objects in any order", "{'a': {'b': 1, 'c': [{'d': 1, 'e': 2}]}}",
     "[{'op': 'test', 'path': '/a', 'value': {'c': [{'e': 2, 'd': 1}], 'b': 1}}]",
     "{'a': {'b': 1, 'c': [{'d': 1, 'e': 2}]}}"},
    {"4.6 test of an object that has more", "{'a': {'b': 1}}",
     "[{'op': 'test', 'path': '/a', 'value': {'b': 1, 'c': 1}}]", NULL},
    {"4.6 test of an object that has less", "{'a': {'b': 1, 'c': 1}}",
     "[{'op': 'test', 'path': '/a', 'value': {'b': 1}}]", NULL},
    {"4.6 test of arrays in another order", "{'a': [1, 2]}",
     "[{'op': 'test', 'path': '/a', 'value': [2, 1]}]", NULL},
    {"4.6 test of an array that is longer", "{'a': [1, 2, 3]}",
     "[{'op': 'test', 'path': '/a', 'value': [1, 2]}]", NULL},
    {"4.6 test of null against missing", "{'a': 1}",
     "[{'op': 'test', 'path': '/b', 'value': null}]", NULL},
    {"4.6 test of null", "{'a': null}", "[{'op': 'test', 'path': '/a', 'value': null}]",
     "{'a': null}"},
    {"5 a failure undoes what was done before it", "{'a': 1}",
     "[{'op': 'replace', 'path': '/a', 'value': 2}, {'op': 'test', 'path': '/a', 'value': 1}]",
     NULL},
    /* RFC 6901 */
    {"6901 the empty name", "{'': 0, 'a': 1}", "[{'op': 'replace', 'path': '/', 'value': 5}]",
     "{'': 5, 'a': 1}"},
    {"6901 a slash in a name", "{'a/b': 1, 'm~n': 8}",
     "[{'op': 'remove', 'path': '/a~1b'}, {'op': 'replace', 'path': '/m~0n', 'value': 9}]",
     "{'m~n': 9}"},
    {"6901 leading zeros", "{'a': [1, 2]}", "[{'op': 'remove', 'path': '/a/01'}]", NULL},
    {"6901 a number as the name of a member", "{'a': {'0': 1, '-': 2}}",
     "[{'op': 'remove', 'path': '/a/0'}, {'op': 'remove', 'path': '/a/-'}]", "{'a': {}}"},
    {"6901 no slash in front", "{'a': 1}", "[{'op': 'remove', 'path': 'a'}]", NULL},
    {"6901 a bad escape", "{'a~2': 1}", "[{'op': 'remove', 'path': '/a~2'}]", NULL},
    {"6901 an escape that ends", "{'a~': 1}", "[{'op': 'remove', 'path': '/a~'}]", NULL},
    {"6901 a sign", "{'a': [1, 2]}", "[{'op': 'remove', 'path': '/a/-1'}]", NULL},
    {"6901 no number", "{'a': [1, 2]}", "[{'op': 'remove', 'path': '/a/1e0'}]", NULL},
    {"an operation that there is not", "{'a': 1}", "[{'op': 'spam', 'path': '/a'}]", NULL},
    {"no operation", "{'a': 1}", "[{'path': '/a'}]", NULL},
    {"no path", "{'a': 1}", "[{'op': 'remove'}]", NULL},
    {"a path that is no text", "{'a': 1}", "[{'op': 'remove', 'path': 5}]", NULL},
    {"an operation that is not an object", "{'a': 1}", "[5]", NULL},
    {"no operations", "{'a': 1}", "[]", "{'a': 1}"},
    {"removals shift what is behind", "{'a': [1, 2, 3]}",
     "[{'op': 'remove', 'path': '/a/0'}, {'op': 'remove', 'path': '/a/0'}]", "{'a': [3]}"},
    {"an array as the document", "['a']", "[{'op': 'add', 'path': '/0', 'value': 'b'}]",
     "['b', 'a']"},
    {"the whole document is not removed", "{'a': 1}", "[{'op': 'remove', 'path': ''}]", NULL},
};

TEST(the_cases_of_rfc_6902_hold)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = ARENA_INIT;
        bson_t *before = wrapped(cases[i].before), *patch = wrapped(cases[i].patch);
        bson_t operations;
        struct value after;
        bson_error_t error = {0};
        truce_status status;

        truce__value_bson(holder_value(patch), &operations);
        status = truce__patch_apply(holder_value(before), &operations, &arena, &after, &error);
        if (cases[i].after) {
            bson_t *expected = wrapped(cases[i].after);

            if (status || !truce__patch_equal(holder_value(expected), after))
                test_fail(__FILE__, __LINE__, "%s: %s", cases[i].name, error.message);
            bson_destroy(expected);
        } else if (!status || after.type || !error.message[0] ||
                   (status != TRUCE_INVALID && status != TRUCE_CONFLICT)) {
            test_fail(__FILE__, __LINE__, "%s: %d, \"%s\"", cases[i].name, status, error.message);
        }
        bson_destroy(before);
        bson_destroy(patch);
        truce__arena_release(&arena);
    }
}

TEST(a_patch_that_grows_without_end_is_stopped)
{
    struct arena arena = ARENA_INIT;
    bson_t operations = BSON_INITIALIZER, deep = BSON_INITIALIZER, one;
    bson_t *before = test_bson("{'a': {'b': {}}}");
    struct value after;
    bson_error_t error;
    char key[16], path[40];

    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "%d", i);
        snprintf(path, sizeof path, "/a/c%d", i);
        bson_append_document_begin(&operations, key, -1, &one);
        BSON_APPEND_UTF8(&one, "op", "copy");
        BSON_APPEND_UTF8(&one, "from", "/a");
        BSON_APPEND_UTF8(&one, "path", path);
        bson_append_document_end(&operations, &one);
        bson_append_document_begin(&deep, key, -1, &one);
        BSON_APPEND_UTF8(&one, "op", "copy");
        BSON_APPEND_UTF8(&one, "from", "");
        BSON_APPEND_UTF8(&one, "path", "/a/b/c");
        bson_append_document_end(&deep, &one);
    }
    CHECK_STATUS(
        TRUCE_LIMIT,
        truce__patch_apply(truce__value_document(before), &operations, &arena, &after, &error),
        error);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce__patch_apply(truce__value_document(before), &deep, &arena, &after, &error),
                 error);
    CHECK(strstr(error.message, "levels") != NULL);
    bson_destroy(&operations);
    bson_destroy(&deep);
    bson_destroy(before);
    truce__arena_release(&arena);
}

/* ---- RFC 7396, appendix A ---- */

TEST(the_cases_of_rfc_7396_hold)
{
    static const struct {
        const char *before, *patch, *after;
    } rows[] = {
        {"{'a': 'b'}", "{'a': 'c'}", "{'a': 'c'}"},
        {"{'a': 'b'}", "{'b': 'c'}", "{'a': 'b', 'b': 'c'}"},
        {"{'a': 'b'}", "{'a': null}", "{}"},
        {"{'a': 'b', 'b': 'c'}", "{'a': null}", "{'b': 'c'}"},
        {"{'a': ['b']}", "{'a': 'c'}", "{'a': 'c'}"},
        {"{'a': 'c'}", "{'a': ['b']}", "{'a': ['b']}"},
        {"{'a': {'b': 'c'}}", "{'a': {'b': 'd', 'c': null}}", "{'a': {'b': 'd'}}"},
        {"{'a': [{'b': 'c'}]}", "{'a': [1]}", "{'a': [1]}"},
        {"{'e': null}", "{'a': 1}", "{'e': null, 'a': 1}"},
        {"['a', 'b']", "{'a': 'b', 'c': null}", "{'a': 'b'}"},
        {"{}", "{'a': {'bb': {'ccc': null}}}", "{'a': {'bb': {}}}"},
        {"{'title': 'Goodbye!', 'author': {'givenName': 'John', 'familyName': 'Doe'},"
         "'tags': ['example', 'sample'], 'content': 'This will be unchanged'}",
         "{'title': 'Hello!', 'phoneNumber': '+01-123-456-7890', 'author': {'familyName': null},"
         "'tags': ['example']}",
         "{'title': 'Hello!', 'author': {'givenName': 'John'}, 'tags': ['example'],"
         "'content': 'This will be unchanged', 'phoneNumber': '+01-123-456-7890'}"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bson_t *before = wrapped(rows[i].before), *patch = test_bson(rows[i].patch);
        bson_t *expected = test_bson(rows[i].after), after;

        truce__merge_patch_apply(holder_value(before), truce__value_document(patch), &after);
        CHECK_BSON(expected, &after);
        bson_destroy(before);
        bson_destroy(patch);
        bson_destroy(expected);
        bson_destroy(&after);
    }
}

/* ---- differences ---- */

static void check_diff(const char *before_json, const char *after_json, const char *expected_json)
{
    bson_t *before = test_bson(before_json), *after = test_bson(after_json), operations, holder;
    bson_t *expected = wrapped(expected_json);

    truce__patch_diff(truce__value_document(before), truce__value_document(after), &operations);
    bson_init(&holder);
    BSON_APPEND_ARRAY(&holder, "v", &operations);
    CHECK_BSON(expected, &holder);
    bson_destroy(&holder);
    bson_destroy(&operations);
    bson_destroy(before);
    bson_destroy(after);
    bson_destroy(expected);
}

TEST(reports_a_difference_at_its_path)
{
    check_diff("{'a': 1}", "{'a': 1}", "[]");
    check_diff("{'a': 1, 'b': 2}", "{'b': 2, 'c': 3}",
               "[{'op': 'remove', 'path': '/a'}, {'op': 'add', 'path': '/c', 'value': 3}]");
    check_diff("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "[]");
    check_diff("{'a/b': {'m~n': {'x': 'long enough to be left', 'y': 'also', 'z': 1}}}",
               "{'a/b': {'m~n': {'x': 'long enough to be left', 'y': 'also', 'z': 2}}}",
               "[{'op': 'replace', 'path': '/a~1b/m~0n/z', 'value': 2}]");
    check_diff("{'l': ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine']}",
               "{'l': ['one', 'three', 'four', 'five', 'six', 'seven', 'eight', 'ten', 'nine']}",
               "[{'op': 'remove', 'path': '/l/1'}, {'op': 'add', 'path': '/l/7', 'value': 'ten'}]");
    check_diff(
        "{'l': [{'id': 1, 't': 'a'}, {'id': 2, 't': 'b', 'u': 'a text that is longer than a patch of what is beside it, so "
        "that the patch is about the place'}]}",
        "{'l': [{'id': 2, 't': 'changed', 'u': 'a text that is longer than a patch of what is beside it, so that "
        "the patch is about the place'}]}",
        "[{'op': 'remove', 'path': '/l/0'},"
        "{'op': 'replace', 'path': '/l/0/t', 'value': 'changed'}]");
    check_diff("{'l': [1, 2]}", "{'l': [3, 4]}",
               "[{'op': 'replace', 'path': '/l', 'value': [3, 4]}]");
}

static bool applies(const bson_t *before, const bson_t *after)
{
    struct arena arena = ARENA_INIT;
    struct value result;
    bson_t operations;
    bson_error_t error = {0};
    truce_status status;
    bool same;

    truce__patch_diff(truce__value_document(before), truce__value_document(after), &operations);
    status =
        truce__patch_apply(truce__value_document(before), &operations, &arena, &result, &error);
    same = !status && truce__patch_equal(truce__value_document(after), result);
    if (!same) {
        char *text = bson_as_canonical_extended_json(&operations, NULL);

        test_fail(__FILE__, __LINE__, "%s: %s", text, error.message);
        bson_free(text);
    }
    bson_destroy(&operations);
    truce__arena_release(&arena);
    return same;
}

static bool has_two_of_a_name(struct value value)
{
    struct fields fields;

    if (!truce__value_is_container(value))
        return false;
    for (fields = truce__fields(value); truce__fields_next(&fields);) {
        if (has_two_of_a_name(fields.value) ||
            truce__value_field(value, fields.key, fields.key_length).data != fields.value.data)
            return true;
    }
    return false;
}

/* A document that equals another except in some of its fields. */
static bson_t *changed(struct random *random, const bson_t *document)
{
    bson_t *other = random_document(random, 3), *made = bson_new();

    for (struct fields fields = truce__fields(truce__value_document(document));
         truce__fields_next(&fields);) {
        struct value there =
            truce__value_field(truce__value_document(other), fields.key, fields.key_length);

        if (there.type && truce__random_below(random, 2))
            truce__value_append(made, fields.key, fields.key_length, there);
        else if (truce__random_below(random, 5))
            truce__value_append(made, fields.key, fields.key_length, fields.value);
    }
    random_append(random, made, "new", 2);
    bson_destroy(other);
    return made;
}

static bool operators_apply(const bson_t *before, const bson_t *after)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct update_result result;
    struct update *compiled = NULL;
    bson_t update, made = BSON_INITIALIZER;
    bson_error_t error;
    bool same = true;

    truce__operators_diff(truce__value_document(before), truce__value_document(after), &update);
    if (!bson_empty(&update) && !truce__update_new(&update, NULL, &compiled, &error) &&
        !truce__update_is_replacement(compiled)) {
        bson_destroy(&made);
        same = !truce__update_apply(compiled, before, NULL, &context, &made, &result, &error) &&
               truce__patch_equal(truce__value_document(after), truce__value_document(&made));
    }
    truce__update_free(compiled);
    bson_destroy(&made);
    bson_destroy(&update);
    truce__arena_release(&arena);
    return same;
}

TEST(a_difference_applied_gives_the_target)
{
    long rounds = test_scale("TRUCE_PATCH_ROUNDS", 10000), merge_patches = 0;
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < rounds && !test_failures(); i++) {
        bson_t *before = random_document(&random, 4);
        bson_t *after = i % 3 ? changed(&random, before) : random_document(&random, 4);
        bson_t patch, patched;

        if (!has_two_of_a_name(truce__value_document(before)) &&
            !has_two_of_a_name(truce__value_document(after))) {
            CHECK(applies(before, after));
            CHECK(operators_apply(before, after));
            if (truce__merge_patch_diff(truce__value_document(before), truce__value_document(after),
                                        &patch)) {
                truce__merge_patch_apply(truce__value_document(before),
                                         truce__value_document(&patch), &patched);
                CHECK(truce__patch_equal(truce__value_document(after),
                                         truce__value_document(&patched)));
                bson_destroy(&patched);
                merge_patches++;
            }
            bson_destroy(&patch);
        }
        bson_destroy(before);
        bson_destroy(after);
    }
    CHECK_INT(merge_patches, >, rounds / 10);
}

/* ---- arrays of many elements ---- */

static bson_t *numbers(struct random *random, const bson_t *like, uint32_t count, uint32_t edits)
{
    bson_t *made = bson_new(), list;
    uint32_t index = 0;

    bson_append_array_begin(made, "l", 1, &list);
    if (like) {
        for (struct fields fields =
                 truce__fields(truce__value_field(truce__value_document(like), "l", 1));
             truce__fields_next(&fields);) {
            struct arena arena = ARENA_INIT;
            uint64_t chance = truce__random_below(random, count);

            if (chance < edits)
                truce__value_append_element(
                    &list, &index,
                    truce__value_from_int32(&arena, (int32_t)truce__random_below(random, 1000)));
            if (chance >= edits / 2)
                truce__value_append_element(&list, &index, fields.value);
            truce__arena_release(&arena);
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            char key[16];

            snprintf(key, sizeof key, "%u", i);
            BSON_APPEND_INT32(&list, key, (int32_t)truce__random_below(random, 1000));
        }
    }
    bson_append_array_end(made, &list);
    return made;
}

TEST(gives_short_differences_of_long_arrays)
{
    static const uint32_t edits[] = {1, 5, 40, 300, 3000};
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 5; i++) {
        bson_t *before = numbers(&random, NULL, 3000, 0);
        bson_t *after = numbers(&random, before, 3000, edits[i]), operations;

        CHECK(applies(before, after));
        truce__patch_diff(truce__value_document(before), truce__value_document(after), &operations);
        CHECK_INT(bson_count_keys(&operations), <=, 3 * edits[i] + 20);
        bson_destroy(&operations);
        bson_destroy(before);
        bson_destroy(after);
    }
}

/* ---- equality -------------------------------------------------------------------------------- */

static void check_equal(const char *a_json, const char *b_json, bool equal)
{
    bson_t *a = test_bson(a_json), *b = test_bson(b_json);

    CHECK_INT(truce__patch_equal(truce__value_document(a), truce__value_document(b)), ==, equal);
    CHECK_INT(truce__patch_equal(truce__value_document(b), truce__value_document(a)), ==, equal);
    bson_destroy(a);
    bson_destroy(b);
}

TEST(equal_are_the_same_members_in_any_order)
{
    check_equal("{'a': 1, 'b': [1, {'c': 2, 'd': 3}]}", "{'b': [1.0, {'d': 3, 'c': 2}], 'a': 1}",
                true);
    check_equal("{'a': 1}", "{'b': 1}", false);
    check_equal("{'a': 1, 'c': 1}", "{'a': 1, 'b': 1}", false);
    check_equal("{'a': 1}", "{'a': 1, 'b': 1}", false);
    check_equal("{'a': [1, 2]}", "{'a': [2, 1]}", false);
    check_equal("{'a': 1}", "{'a': '1'}", false);
    check_equal("{}", "{'a': null}", false);
}

/* ---- documents of many fields ---- */

/* Names field0 ... in an order that `step` (no divisor of `count`) gives, some left out. */
static bson_t *wide(struct random *random, uint32_t count, uint32_t step)
{
    bson_t *made = bson_new();

    for (uint32_t i = 0; i < count; i++) {
        char name[24];

        snprintf(name, sizeof name, "field%u", i * step % count);
        if (truce__random_below(random, 10))
            BSON_APPEND_INT32(made, name, (int32_t)truce__random_below(random, 3));
    }
    return made;
}

TEST(gives_short_differences_of_documents_in_any_field_order)
{
    static const uint32_t steps[] = {1, 1, 1008, 517};
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 4; i++) {
        bson_t *before = wide(&random, 1009, 1), *after = wide(&random, 1009, steps[i]);
        bson_t merge_patch, patched;

        CHECK(applies(before, after));
        CHECK(operators_apply(before, after));
        CHECK(truce__merge_patch_diff(truce__value_document(before), truce__value_document(after),
                                      &merge_patch));
        truce__merge_patch_apply(truce__value_document(before), truce__value_document(&merge_patch),
                                 &patched);
        CHECK(truce__patch_equal(truce__value_document(after), truce__value_document(&patched)));
        CHECK(!truce__patch_equal(truce__value_document(before), truce__value_document(&patched)));
        bson_destroy(&patched);
        bson_destroy(&merge_patch);
        bson_destroy(before);
        bson_destroy(after);
    }
}

TEST(a_field_of_many_that_was_removed_can_be_added_again)
{
    struct arena arena = ARENA_INIT;
    struct random random;
    bson_t *before, *patch, *once;
    struct value after;
    bson_error_t error;
    bson_iter_t iter;

    truce__random_seed(&random, 1);
    before = wide(&random, 100, 1);
    once = BCON_NEW("moved", BCON_INT32(1));
    bson_concat(before, once);
    patch = BCON_NEW("0", "{", "op", BCON_UTF8("remove"), "path", BCON_UTF8("/moved"), "}", "1",
                     "{", "op", BCON_UTF8("add"), "path", BCON_UTF8("/moved"), "value",
                     BCON_INT32(7), "}", "2", "{", "op", BCON_UTF8("copy"), "from",
                     BCON_UTF8("/moved"), "path", BCON_UTF8("/other"), "}", "3", "{", "op",
                     BCON_UTF8("remove"), "path", BCON_UTF8("/moved"), "}");
    CHECK_OK(truce__patch_apply(truce__value_document(before), patch, &arena, &after, &error),
             error);
    CHECK(!truce__value_field(after, "moved", 5).type);
    CHECK_INT(truce__value_int32(truce__value_field(after, "other", 5)), ==, 7);
    bson_destroy(patch);
    patch = BCON_NEW("0", "{", "op", BCON_UTF8("remove"), "path", BCON_UTF8("/moved"), "}", "1",
                     "{", "op", BCON_UTF8("remove"), "path", BCON_UTF8("/moved"), "}");
    CHECK_STATUS(TRUCE_INVALID,
                 truce__patch_apply(truce__value_document(before), patch, &arena, &after, &error),
                 error);
    CHECK(bson_iter_init_find(&iter, before, "moved"));
    bson_destroy(patch);
    bson_destroy(once);
    bson_destroy(before);
    truce__arena_release(&arena);
}
