/* Patches and merges of any documents end in an answer or an error. A difference makes its
 * target; merges obey their laws. */
#include "merge/json_patch.h"
#include "merge/merge.h"

#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "tests/support/fuzz_input.h"

static bool names_are_unique(struct value value)
{
    if (!truce__value_is_container(value))
        return true;
    for (struct fields fields = truce__fields(value); truce__fields_next(&fields);) {
        if (!names_are_unique(fields.value) ||
            truce__value_field(value, fields.key, fields.key_length).data != fields.value.data)
            return false;
    }
    return true;
}

static const char *fuzz_pointer(struct fuzz_input *input, char *text)
{
    static const char *const tokens[] = {"/a",  "/b",  "/c", "/0", "/1", "/-",
                                         "/~0", "/~1", "/",  "~",  "x"};
    uint32_t count = fuzz_below(input, 4);

    *text = '\0';
    for (uint32_t i = 0; i < count; i++)
        strcat(text, tokens[fuzz_below(input, sizeof tokens / sizeof *tokens)]);
    return text;
}

static void fuzz_operations(struct fuzz_input *input, bson_t *operations)
{
    static const char *const kinds[] = {"add", "remove", "replace", "move", "copy", "test", "?"};
    uint32_t count = fuzz_below(input, 6);

    for (uint32_t i = 0; i < count; i++) {
        char key[2] = {(char)('0' + i), 0}, text[40];
        bson_t one;

        if (!fuzz_below(input, 20)) {
            fuzz_append(input, operations, key, 2);
            continue;
        }
        bson_append_document_begin(operations, key, 1, &one);
        bson_append_utf8(&one, "op", 2, kinds[fuzz_below(input, 7)], -1);
        bson_append_utf8(&one, "path", 4, fuzz_pointer(input, text), -1);
        if (fuzz_below(input, 2))
            bson_append_utf8(&one, "from", 4, fuzz_pointer(input, text), -1);
        if (fuzz_below(input, 4))
            fuzz_append(input, &one, "value", 3);
        bson_append_document_end(operations, &one);
    }
}

static void patch(struct fuzz_input *input, const bson_t *before)
{
    struct arena arena = ARENA_INIT;
    bson_t operations = BSON_INITIALIZER;
    bson_error_t error = {0};
    struct value after;
    truce_status status;

    fuzz_operations(input, &operations);
    status = truce__patch_apply(truce__value_document(before), &operations, &arena, &after, &error);
    truce_assert(!status == (after.type != VALUE_MISSING));
    truce_assert(!status || error.message[0]);
    if (!status && after.type == BSON_TYPE_DOCUMENT) {
        bson_t borrowed;

        truce__value_bson(after, &borrowed);
        truce_assert(truce__document_check(&borrowed, "document", &error) == TRUCE_OK);
    }
    bson_destroy(&operations);
    truce__arena_release(&arena);
}

static void differ(const bson_t *before, const bson_t *after)
{
    struct arena arena = ARENA_INIT;
    struct value result;
    bson_t operations, merge_patch, patched;
    bson_error_t error;

    if (after->len > TRUCE_DOCUMENT_BYTES_MAX) /* no patch makes it */
        return;
    truce__patch_diff(truce__value_document(before), truce__value_document(after), &operations);
    truce_assert(truce__patch_apply(truce__value_document(before), &operations, &arena, &result,
                                    &error) == TRUCE_OK);
    truce_assert(truce__patch_equal(result, truce__value_document(after)));
    if (truce__merge_patch_diff(truce__value_document(before), truce__value_document(after),
                                &merge_patch)) {
        truce__merge_patch_apply(truce__value_document(before), truce__value_document(&merge_patch),
                                 &patched);
        truce_assert(
            truce__patch_equal(truce__value_document(&patched), truce__value_document(after)));
        bson_destroy(&patched);
    }
    bson_destroy(&merge_patch);
    bson_destroy(&operations);
    truce__arena_release(&arena);
}

static void merge(const bson_t *base, const bson_t *mine, const bson_t *theirs,
                  const struct merge_options *options, const bson_t *expected)
{
    bson_t merged, conflicts;
    bson_error_t error;

    truce_assert(truce__merge(truce__value_document(base), truce__value_document(mine),
                              truce__value_document(theirs), options, &merged, &conflicts,
                              &error) == TRUCE_OK);
    truce_assert(!expected || (bson_equal(expected, &merged) && bson_empty(&conflicts)));
    bson_destroy(&merged);
    bson_destroy(&conflicts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bson_t *rules = fuzz_below(&input, 2) ? fuzz_document(&input, 2)
                                          : BCON_NEW("a", BCON_UTF8("union"), "b", BCON_UTF8("sum"),
                                                     "c", "{", "key", BCON_UTF8("a"), "}");
    bson_t *base = fuzz_document(&input, 4), *mine = fuzz_document(&input, 4);
    bson_t *theirs = fuzz_document(&input, 4);
    struct merge_rules *compiled = NULL;
    struct merge_options options = {.strict = !fuzz_below(&input, 8)};
    bson_error_t error = {0};

    truce_assert(!truce__merge_rules_new(rules, &compiled, &error) == (compiled != NULL));
    options.rules = compiled;
    patch(&input, base);
    if (names_are_unique(truce__value_document(base)) &&
        names_are_unique(truce__value_document(mine)))
        differ(base, mine);
    merge(base, mine, theirs, &options, NULL);
    merge(base, base, theirs, &options, theirs);
    merge(base, mine, base, &options, mine);
    truce__merge_rules_free(compiled);
    bson_destroy(rules);
    bson_destroy(base);
    bson_destroy(mine);
    bson_destroy(theirs);
    return 0;
}
