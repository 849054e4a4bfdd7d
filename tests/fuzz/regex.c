/* Patterns and texts: an answer or an error, and spans within the text. */
#include "query/condition/regex.h"

#include <string.h>

#include "base/assert.h"
#include "tests/support/fuzz_input.h"

#define SPANS 8

static void check_spans(const struct regex_span *spans, size_t length)
{
    truce_assert(spans[0].start != REGEX_UNSET);
    for (int i = 0; i < SPANS; i++) {
        truce_assert((spans[i].start == REGEX_UNSET) == (spans[i].end == REGEX_UNSET));
        truce_assert(spans[i].start == REGEX_UNSET ||
                     (spans[i].start <= spans[i].end && spans[i].end <= length));
    }
}

static void search(const struct regex *regex, const char *text, size_t length)
{
    struct regex_span spans[SPANS];
    bool found, again;
    bson_error_t error;
    truce_status status =
        truce__regex_find(regex, text, length, 0, NULL, &found, spans, SPANS, &error);

    if (status == TRUCE_OK && found)
        check_spans(spans, length);
    truce_assert(truce__regex_find(regex, text, length, 0, NULL, &again, NULL, 0, &error) ==
                 status);
    truce_assert(again == found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const options[] = {"", "i", "m", "s", "x", "imsx", "u", "g"};
    struct fuzz_input input = {data, size};
    const char *chosen = options[fuzz_below(&input, 8)];
    size_t length = fuzz_byte(&input);
    struct regex *regex;
    bson_error_t error;

    if (length > input.left)
        length = input.left;
    if (truce__regex_new((const char *)input.at, length, chosen, &regex, &error) != TRUCE_OK) {
        truce_assert(!regex && error.message[0]);
        return 0;
    }
    input.at += length;
    input.left -= length;
    /* texts have been checked to be UTF-8 before they come here */
    if (bson_utf8_validate((const char *)input.at, input.left, true))
        search(regex, (const char *)input.at, input.left);
    truce__regex_free(regex);
    return 0;
}
