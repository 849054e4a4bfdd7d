#include <math.h>

#include "bson/number.h"
#include "query/expression/expression_tree.h"

/* Substrings by position, and positions of substrings: counted in bytes (...Bytes, $substr) or in
 * code points (...CP). */

static bool is_continuation(char c)
{
    return (c & 0xc0) == 0x80;
}

static size_t next_character(const char *text, size_t length, size_t at)
{
    at++;
    while (at < length && is_continuation(text[at]))
        at++;
    return at;
}

static truce_status substring_part_of(struct evaluation *run, const char *text, size_t start,
                                      size_t end, struct value *result)
{
    *result = truce__value_from_text(run->arena, text + start, end - start);
    return truce__evaluation_check(run);
}

/* -- $substr, $substrBytes -------------------------------------------------------------------- */

/* Truncates fractions. */
static truce_status to_int64(struct evaluation *run, struct value number, int64_t *result)
{
    double real;

    if (truce__number_to_int64(number, result))
        return TRUCE_OK;
    real = truce__number_to_double(number);
    if (!(fabs(real) < 0x1p63))
        return truce__refuse(31109, run->error, "a position in a string is out of range");
    *result = (int64_t)real;
    return TRUCE_OK;
}

static truce_status substring_apply_bytes(const struct expression_node *node,
                                          struct evaluation *run, const struct value *operands,
                                          struct value *result)
{
    const char *text;
    uint32_t length;
    int64_t start, count;
    size_t end;
    truce_status status = truce__evaluation_text(node, run, operands[0], &text, &length);

    if (status)
        return status;
    if (!truce__value_is_number(operands[1]))
        return truce__refuse(16034, run->error, "the start of %s must be a number, not %s",
                             truce__expression_name(node), truce__type_name(operands[1].type));
    if (!truce__value_is_number(operands[2]))
        return truce__refuse(16035, run->error, "the length of %s must be a number, not %s",
                             truce__expression_name(node), truce__type_name(operands[2].type));
    status = to_int64(run, operands[1], &start);
    if (!status)
        status = to_int64(run, operands[2], &count);
    if (status)
        return status;
    if (start < 0)
        return truce__refuse(50752, run->error, "the start of %s is negative",
                             truce__expression_name(node));
    if (start < length && is_continuation(text[start]))
        return truce__refuse(28656, run->error, "the start of %s is inside a character",
                             truce__expression_name(node));
    if (start >= length)
        return substring_part_of(run, text, 0, 0, result);
    end = count < 0 || count > length - start ? length : (size_t)(start + count);
    if (end < length && is_continuation(text[end]))
        return truce__refuse(28657, run->error, "the end of %s is inside a character",
                             truce__expression_name(node));
    return substring_part_of(run, text, (size_t)start, end, result);
}

/* -- $substrCP -------------------------------------------------------------------------------- */

static truce_status read_place(struct evaluation *run, struct value value, const char *what,
                               uint32_t code, int32_t *place)
{
    if (!truce__value_is_number(value))
        return truce__refuse(code, run->error, "the %s of $substrCP must be a number, not %s", what,
                             truce__type_name(value.type));
    if (!truce__value_to_int32(value, place))
        return truce__refuse(code + 1, run->error, "the %s of $substrCP is not a 32-bit integer",
                             what);
    return TRUCE_OK;
}

static truce_status substring_apply_characters(const struct expression_node *node,
                                               struct evaluation *run, const struct value *operands,
                                               struct value *result)
{
    const char *text;
    uint32_t length;
    int32_t start, count;
    size_t at = 0, end;
    truce_status status = truce__evaluation_text(node, run, operands[0], &text, &length);

    if (!status)
        status = read_place(run, operands[1], "start", 34450, &start);
    if (!status)
        status = read_place(run, operands[2], "length", 34452, &count);
    if (status)
        return status;
    if (count < 0)
        return truce__refuse(34454, run->error, "the length of $substrCP is negative: %d", count);
    if (start < 0)
        return truce__refuse(34455, run->error, "the start of $substrCP is negative: %d", start);
    for (; at < length && start > 0; start--)
        at = next_character(text, length, at);
    for (end = at; end < length && count > 0; count--)
        end = next_character(text, length, end);
    return substring_part_of(run, text, at, end, result);
}

/* -- $indexOfBytes, $indexOfCP ---------------------------------------------------------------- */

struct search {
    const char *text, *part;
    uint32_t length, part_length;
    /* in the operator's unit */
    int32_t start, end;
};

static truce_status substring_read_bound(const struct expression_node *node, struct evaluation *run,
                                         struct value value, int32_t *bound)
{
    if (!truce__value_to_int32(value, bound))
        return truce__refuse(40096, run->error, "a bound of %s must be a 32-bit integer, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    if (*bound < 0)
        return truce__refuse(40097, run->error, "a bound of %s is negative: %d",
                             truce__expression_name(node), *bound);
    return TRUCE_OK;
}

static truce_status read_search(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, uint32_t code, struct search *search)
{
    truce_status status = TRUCE_OK;

    *search = (struct search){.end = INT32_MAX};
    for (uint32_t i = 0; i < 2; i++) {
        if (operands[i].type != BSON_TYPE_UTF8)
            return truce__refuse(code + i, run->error, "operand %u of %s must be a string, not %s",
                                 i + 1, truce__expression_name(node),
                                 truce__type_name(operands[i].type));
    }
    search->text = truce__value_text(operands[0], &search->length);
    search->part = truce__value_text(operands[1], &search->part_length);
    if (node->count > 2)
        status = substring_read_bound(node, run, operands[2], &search->start);
    if (!status && node->count > 3)
        status = substring_read_bound(node, run, operands[3], &search->end);
    return status;
}

static truce_status apply_index_bytes(const struct expression_node *node, struct evaluation *run,
                                      const struct value *operands, struct value *result)
{
    struct search search;
    const char *found = NULL;
    size_t end;
    truce_status status;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    status = read_search(node, run, operands, 40091, &search);
    if (status)
        return status;
    end = BSON_MIN(search.length, (uint32_t)search.end);
    if ((size_t)search.start <= end)
        found = memmem(search.text + search.start, end - (size_t)search.start, search.part,
                       search.part_length);
    *result = truce__value_from_int32(run->arena, found ? (int32_t)(found - search.text) : -1);
    return TRUCE_OK;
}

/* Returns the number of the first character, from `start` on, at which the substring begins. */
static int32_t find_character(const struct search *search)
{
    const char *text = search->text, *found;
    int32_t number = 0;
    size_t at = 0;

    if (search->length == 0 && search->part_length == 0 && search->start == 0)
        return 0;
    for (; at < search->length && number < search->start; number++)
        at = next_character(text, search->length, at);
    while (at < search->length && number < search->end) {
        found = memmem(text + at, search->length - at, search->part, search->part_length);
        if (!found)
            return -1;
        for (; at < (size_t)(found - text) && number < search->end; number++)
            at = next_character(text, search->length, at);
        if (number < search->end && text + at == found)
            return number;
    }
    return -1;
}

static truce_status apply_index_characters(const struct expression_node *node,
                                           struct evaluation *run, const struct value *operands,
                                           struct value *result)
{
    struct search search;
    truce_status status;

    if (truce__value_is_nullish(operands[0]))
        return truce__evaluation_null(result);
    status = read_search(node, run, operands, 40093, &search);
    if (!status)
        *result = truce__value_from_int32(run->arena, find_character(&search));
    return status;
}

const struct expression_operator truce__expressions_substring[] = {
    {"$substr", 3, 3, .apply = substring_apply_bytes},
    {"$substrBytes", 3, 3, .apply = substring_apply_bytes},
    {"$substrCP", 3, 3, .apply = substring_apply_characters},
    {"$indexOfBytes", 2, 4, EXPRESSION_RANGED, .apply = apply_index_bytes},
    {"$indexOfCP", 2, 4, EXPRESSION_RANGED, .apply = apply_index_characters},
    {NULL},
};
