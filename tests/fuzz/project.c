/* Projections. Whatever the projection and the document are, compiling and applying end in a valid
 * document or an error. Including the same fields twice equals including them once. The inclusion
 * and the exclusion of the same fields have no field in common.
 *
 * The first byte chooses between raw BSON and a projection made from decisions.
 */
#include "query/project/project.h"

#include "base/assert.h"
#include "tests/support/fuzz_input.h"

static const char *const paths[] = {"a",   "b",     "c",   "a.b", "a.b.c", "a.0", "_id",   "_id.a",
                                    "a.$", "b.c.$", "x.y", "a.",  "$a",    "0",   "a.$.b", "x"};
static const char *const plain[] = {"a", "b.a", "c", "x.b.a"};

static void append_slice(struct fuzz_input *input, bson_t *projection, const char *path)
{
    if (fuzz_below(input, 2))
        BCON_APPEND(projection, path, "{", "$slice", BCON_INT32((int32_t)fuzz_below(input, 7) - 3),
                    "}");
    else
        BCON_APPEND(projection, path, "{", "$slice", "[",
                    BCON_INT32((int32_t)fuzz_below(input, 7) - 3),
                    BCON_INT32((int32_t)fuzz_below(input, 4)), "]", "}");
}

static void append_elem_match(struct fuzz_input *input, bson_t *projection, const char *path)
{
    bson_t *filter = fuzz_filter(input, 2);

    BCON_APPEND(projection, path, "{", "$elemMatch", BCON_DOCUMENT(filter), "}");
    bson_destroy(filter);
}

static void append_path(struct fuzz_input *input, bson_t *projection, bool include, unsigned depth)
{
    const char *path = FUZZ_PICK(input, paths);
    bson_t inner;

    switch (fuzz_below(input, 8)) {
    case 0:
        append_slice(input, projection, path);
        break;
    case 1:
        append_elem_match(input, projection, path);
        break;
    case 2:
        BCON_APPEND(projection, path, "{", "$ifNull", "[", "$a.b", "$c", BCON_INT32(1), "]", "}");
        break;
    case 3:
        fuzz_append(input, projection, path, 2);
        break;
    case 4:
        bson_append_document_begin(projection, path, -1, &inner);
        if (depth)
            append_path(input, &inner, include, depth - 1);
        bson_append_document_end(projection, &inner);
        break;
    default:
        bson_append_bool(projection, path, -1, include);
        break;
    }
}

/* NULL where it is refused; bson_destroy it */
static bson_t *show(const bson_t *projection, const bson_t *query, const bson_t *document)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct project *compiled = NULL;
    struct match *match = NULL;
    bson_t shown, *result = NULL;
    bson_error_t error;

    if (query && truce__match_new(query, &match, &error))
        match = NULL;
    if (truce__project_new(projection, match, &compiled, &error) == TRUCE_OK) {
        if (truce__project_apply(compiled, truce__value_document(document), NULL, &context, &shown,
                                 &error) == TRUCE_OK) {
            truce_assert(truce__document_check(&shown, "result", &error) == TRUCE_OK);
            result = bson_copy(&shown);
        }
        bson_destroy(&shown);
        truce__project_free(compiled);
    }
    if (match)
        truce__match_free(match);
    truce__arena_release(&arena);
    return result;
}

static void check_twice(const bson_t *projection, const bson_t *document)
{
    bson_t *once = show(projection, NULL, document), *twice;

    truce_assert(once);
    twice = show(projection, NULL, once);
    truce_assert(twice && bson_equal(once, twice));
    bson_destroy(once);
    bson_destroy(twice);
}

static void check_plain(struct fuzz_input *input, const bson_t *document)
{
    bson_t include = BSON_INITIALIZER, exclude = BSON_INITIALIZER, *kept, *rest;
    uint32_t chosen = 1 + fuzz_below(input, (1u << FUZZ_COUNT(plain)) - 1);
    bson_iter_t iter;

    for (uint32_t i = 0; i < FUZZ_COUNT(plain); i++) {
        if (chosen >> i & 1) {
            bson_append_bool(&include, plain[i], -1, true);
            bson_append_bool(&exclude, plain[i], -1, false);
        }
    }
    bson_append_bool(&include, "_id", -1, false);
    check_twice(&include, document);
    check_twice(&exclude, document);
    kept = show(&include, NULL, document);
    rest = show(&exclude, NULL, document);
    if (chosen & 1)
        truce_assert(!bson_iter_init_find(&iter, rest, "a"));
    else
        truce_assert(!bson_iter_init_find(&iter, kept, "a"));
    bson_destroy(kept);
    bson_destroy(rest);
    bson_destroy(&include);
    bson_destroy(&exclude);
}

static bool take_raw(struct fuzz_input *input, bson_t *document)
{
    size_t size = input->left < 2 ? 0 : fuzz_byte(input) + 256u * fuzz_byte(input);

    if (size > input->left || !bson_init_static(document, input->at, size))
        return false;
    input->at += size;
    input->left -= size;
    return truce__document_check(document, "input", NULL) == TRUCE_OK;
}

static void check_raw(struct fuzz_input *input)
{
    bson_t projection, query, document, *shown;

    if (!take_raw(input, &projection) || !take_raw(input, &query) || !take_raw(input, &document))
        return;
    shown = show(&projection, &query, &document);
    if (shown)
        bson_destroy(shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t kind = fuzz_byte(&input) % 8;
    bson_t projection = BSON_INITIALIZER, *document, *query, *shown;

    if (kind == 7) {
        check_raw(&input);
        return 0;
    }
    document = fuzz_document(&input, 4);
    if (kind == 6) {
        check_plain(&input, document);
        bson_destroy(document);
        return 0;
    }
    query = fuzz_filter(&input, 2);
    for (uint32_t i = fuzz_below(&input, 4); i-- > 0;)
        append_path(&input, &projection, kind % 2, 2);
    shown = show(&projection, query, document);
    if (shown)
        bson_destroy(shown);
    bson_destroy(&projection);
    bson_destroy(document);
    bson_destroy(query);
    return 0;
}
