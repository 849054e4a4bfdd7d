/* Filters. Whatever the filter and the document are, compiling and testing end in an answer or an
 * error. Logic holds: a filter in $and equals itself, in $nor its opposite. The first byte chooses
 * between raw BSON and a filter made from decisions.
 */
#include "query/match/match.h"

#include "base/assert.h"
#include "tests/support/fuzz_input.h"

struct answer {
    truce_status status;
    bool matched;
};

static struct answer answer(const bson_t *filter, const bson_t *document)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct match_result result = {0};
    struct answer answer = {0};
    struct match *match;
    bson_error_t error;

    answer.status = truce__match_new(filter, &match, &error);
    if (answer.status == TRUCE_OK) {
        answer.status =
            truce__match_test(match, truce__value_document(document), &context, &result, &error);
        truce_assert(result.array_index >= -1);
        truce_assert(result.matched || result.array_index == -1);
        truce__match_free(match);
    }
    answer.matched = result.matched;
    truce__arena_release(&arena);
    return answer;
}

static struct answer answer_in(const char *clause, const bson_t *filter, const bson_t *document)
{
    bson_t *outer = BCON_NEW(clause, "[", BCON_DOCUMENT(filter), "]");
    struct answer result = answer(outer, document);

    bson_destroy(outer);
    return result;
}

static void check(const bson_t *filter, const bson_t *document)
{
    struct answer plain = answer(filter, document);
    struct answer both = answer_in("$and", filter, document);
    struct answer neither = answer_in("$nor", filter, document);

    truce_assert(plain.status == both.status && plain.matched == both.matched);
    truce_assert(plain.status == neither.status);
    truce_assert(plain.status != TRUCE_OK || plain.matched != neither.matched);
}

static void check_raw(struct fuzz_input *input)
{
    size_t size = input->left < 4 ? 0 : fuzz_byte(input) + 256u * fuzz_byte(input);
    bson_t filter, document;

    if (size > input->left || !bson_init_static(&filter, input->at, size) ||
        !bson_init_static(&document, input->at + size, input->left - size))
        return;
    if (!truce__document_check(&filter, "filter", NULL) &&
        !truce__document_check(&document, "document", NULL))
        (void)answer(&filter, &document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bson_t *filter, *document;

    if (fuzz_byte(&input) % 8 == 7) {
        check_raw(&input);
        return 0;
    }
    filter = fuzz_filter(&input, 4);
    document = fuzz_document(&input, 4);
    check(filter, document);
    bson_destroy(filter);
    bson_destroy(document);
    return 0;
}
