/* Strings: joining, splitting, case conversion, trimming, replacing, and substrings. Strings are
 * UTF-8 and may contain zero bytes. Case conversion covers only ASCII. */
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "bson/date.h"
#include "bson/number.h"
#include "query/condition/regex.h"
#include "query/expression/expression_tree.h"

/* Returns room for a string of that many bytes, plus its length and NUL; NULL if the memory is used
 * up. */
static char *begin_text(struct evaluation *run, size_t length, uint8_t **data)
{
    *data = truce__evaluation_take(run, length + 5);
    return *data ? (char *)*data + 4 : NULL;
}

static struct value end_text(uint8_t *data, size_t length)
{
    uint32_t prefix = BSON_UINT32_TO_LE((uint32_t)length + 1);

    memcpy(data, &prefix, 4);
    data[4 + length] = '\0';
    return (struct value){data, (uint32_t)length + 5, BSON_TYPE_UTF8};
}

static truce_status string_copy_text(struct evaluation *run, const char *text, size_t length,
                                     struct value *result)
{
    uint8_t *data;
    char *at = begin_text(run, length, &data);

    if (!at)
        return TRUCE_LIMIT;
    memcpy(at, text, length);
    *result = end_text(data, length);
    return TRUCE_OK;
}

/* Returns the string of a value as string operators see it: also of numbers and dates; "" for null.
 * Others are refused (16007). */
static truce_status evaluation_text(const struct expression_node *node, struct evaluation *run,
                                    struct value value, const char **text, uint32_t *length)
{
    char *shown = truce__arena_take(run->arena, NUMBER_TEXT_MAX);
    int64_t date;

    if (truce__value_is_nullish(value))
        *text = "";
    else if (truce__value_is_number(value))
        *text = truce__number_show(value, shown);
    else if (value.type == BSON_TYPE_DATE_TIME && truce__value_to_date(value, &date))
        *text = truce__date_show(date, shown);
    else if (value.type == BSON_TYPE_UTF8 || value.type == BSON_TYPE_SYMBOL ||
             value.type == BSON_TYPE_CODE) {
        *text = truce__value_text(value, length);
        return TRUCE_OK;
    } else {
        return truce__refuse(16007, run->error, "%s takes a string, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    }
    *length = (uint32_t)strlen(*text);
    return TRUCE_OK;
}

/* -- $concat ---------------------------------------------------------------------------------- */

/* Evaluates $concat: first all operands, and then one string of their total length. */
static truce_status string_evaluate_concat(const struct expression_node *node,
                                           struct evaluation *run, struct value *result)
{
    struct value *parts = truce__evaluation_take(run, node->count * sizeof *parts);
    size_t total = 0, done = 0;
    uint8_t *data;
    char *at;

    if (!parts)
        return TRUCE_LIMIT;
    for (uint32_t i = 0; i < node->count; i++) {
        truce_status status = truce__expression_run(node->operands[i], run, &parts[i]);
        if (status)
            return status;
        if (truce__value_is_nullish(parts[i]))
            return truce__evaluation_null(result);
        if (parts[i].type != BSON_TYPE_UTF8)
            return truce__refuse(16702, run->error, "$concat takes strings, not %s",
                                 truce__type_name(parts[i].type));
        total += parts[i].size - 5;
    }
    at = begin_text(run, total, &data);
    if (!at)
        return TRUCE_LIMIT;
    for (uint32_t i = 0; i < node->count; i++) {
        memcpy(at + done, parts[i].data + 4, parts[i].size - 5);
        done += parts[i].size - 5;
    }
    *result = end_text(data, total);
    return truce__evaluation_spend(run, total / 64);
}

/* -- cases and lengths ------------------------------------------------------------------------ */

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static char to_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Changes the case of each byte of a string. */
static truce_status change_case(const struct expression_node *node, struct evaluation *run,
                                struct value operand, char (*change)(char), struct value *result)
{
    const char *text;
    uint32_t length;
    uint8_t *data;
    char *at;
    truce_status status = evaluation_text(node, run, operand, &text, &length);

    if (status)
        return status;
    at = begin_text(run, length, &data);
    if (!at)
        return TRUCE_LIMIT;
    for (uint32_t i = 0; i < length; i++)
        at[i] = change(text[i]);
    *result = end_text(data, length);
    return TRUCE_OK;
}

static truce_status apply_lower(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    return change_case(node, run, operands[0], to_lower, result);
}

static truce_status apply_upper(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    return change_case(node, run, operands[0], to_upper, result);
}

/* Applies $strcasecmp, which ignores the case of ASCII letters. */
static truce_status apply_case_compare(const struct expression_node *node, struct evaluation *run,
                                       const struct value *operands, struct value *result)
{
    const char *a, *b;
    uint32_t a_length, b_length, common;
    int order = 0;
    truce_status status = evaluation_text(node, run, operands[0], &a, &a_length);

    if (!status)
        status = evaluation_text(node, run, operands[1], &b, &b_length);
    if (status)
        return status;
    common = BSON_MIN(a_length, b_length);
    for (uint32_t i = 0; order == 0 && i < common; i++)
        order = (uint8_t)to_upper(a[i]) - (uint8_t)to_upper(b[i]);
    if (order == 0)
        order = (a_length > b_length) - (a_length < b_length);
    *result = truce__value_from_int32(run->arena, (order > 0) - (order < 0));
    return TRUCE_OK;
}

static truce_status string_apply_bytes(const struct expression_node *node, struct evaluation *run,
                                       const struct value *operands, struct value *result)
{
    if (operands[0].type != BSON_TYPE_UTF8)
        return truce__refuse(34473, run->error, "$strLenBytes takes a string, not %s",
                             truce__type_name(operands[0].type));
    *result = truce__value_from_int32(run->arena, (int32_t)operands[0].size - 5);
    return TRUCE_OK;
}

/* Applies $strLenCP: counts the bytes that begin a character. */
static truce_status string_apply_characters(const struct expression_node *node,
                                            struct evaluation *run, const struct value *operands,
                                            struct value *result)
{
    const char *text;
    uint32_t length;
    int32_t count = 0;

    if (operands[0].type != BSON_TYPE_UTF8)
        return truce__refuse(34471, run->error, "$strLenCP takes a string, not %s",
                             truce__type_name(operands[0].type));
    text = truce__value_text(operands[0], &length);
    for (uint32_t i = 0; i < length; i++)
        count += (text[i] & 0xc0) != 0x80;
    *result = truce__value_from_int32(run->arena, count);
    return TRUCE_OK;
}

/* -- $split ----------------------------------------------------------------------------------- */

static size_t character_length(const char *at, const char *end)
{
    size_t length = 1;

    while (at + length < end && (at[length] & 0xc0) == 0x80)
        length++;
    return length;
}

static truce_status string_compile(struct evaluation *run, struct value value, struct regex **regex)
{
    const char *pattern = (const char *)value.data;
    size_t length = strlen(pattern);

    return truce__regex_new(pattern, length, pattern + length + 1, regex, run->error);
}

/* Splits a string by a regular expression. The result also has the groups of each match. A group
 * that took no part is an empty string. An empty match splits before each character and at the
 * end. */
static truce_status split_by_regex(struct evaluation *run, struct value input,
                                   struct value separator, struct value *result)
{
    uint32_t length, groups;
    const char *text = truce__value_text(input, &length);
    struct regex_span *spans = NULL;
    struct regex *regex = NULL;
    size_t at = 0, from = 0;
    struct builder builder;
    truce_status status = string_compile(run, separator, &regex);
    bool found = !status;

    if (!status) {
        groups = 1 + truce__regex_captures(regex);
        spans = bson_malloc(groups * sizeof *spans);
        truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    }
    while (!status && found && from <= length && !builder.full) {
        status = truce__regex_find(regex, text, length, from, run->context->budget, &found, spans,
                                   groups, run->error);
        if (status || !found)
            break;
        truce__builder_element_text(&builder, text + at, spans->start - at);
        for (uint32_t i = 1; i < groups; i++) {
            bool unset = spans[i].start == REGEX_UNSET;

            truce__builder_element_text(&builder, text + (unset ? 0 : spans[i].start),
                                        unset ? 0 : spans[i].end - spans[i].start);
        }
        from = at = spans->end;
        if (spans->start == spans->end)
            from += at < length ? character_length(text + at, text + length) : 1;
    }
    if (!status) {
        truce__builder_element_text(&builder, text + at, length - at);
        status = truce__builder_finish(&builder, result, run->error);
    }
    truce__regex_free(regex);
    bson_free(spans);
    return status;
}

/* Applies $split with a string or a regular expression as the separator. */
static truce_status apply_split(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    const char *text, *separator, *end, *found;
    uint32_t length, separator_length;
    struct builder builder;

    if (truce__value_is_nullish(operands[0]) || truce__value_is_nullish(operands[1]))
        return truce__evaluation_null(result);
    if (operands[0].type != BSON_TYPE_UTF8)
        return truce__refuse(40085, run->error, "$split takes a string, not %s",
                             truce__type_name(operands[0].type));
    if (operands[1].type == BSON_TYPE_REGEX)
        return split_by_regex(run, operands[0], operands[1], result);
    if (operands[1].type != BSON_TYPE_UTF8)
        return truce__refuse(
            40086, run->error,
            "the separator of $split must be a string or a regular expression, not %s",
            truce__type_name(operands[1].type));
    text = truce__value_text(operands[0], &length);
    separator = truce__value_text(operands[1], &separator_length);
    if (separator_length == 0)
        return truce__refuse(40087, run->error, "the separator of $split is empty");
    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (end = text + length; !builder.full; text = found + separator_length) {
        found = memmem(text, (size_t)(end - text), separator, separator_length);
        truce__builder_element_text(&builder, text, (size_t)((found ? found : end) - text));
        if (!found)
            break;
    }
    return truce__builder_finish(&builder, result, run->error);
}

/* -- $trim, $ltrim, $rtrim -------------------------------------------------------------------- */

/* The characters that are trimmed by default: Unicode's white space, and the zero byte. */
static const char blanks[] = "\0 \t\n\v\f\r"
                             "\xc2\xa0\xe1\x9a\x80"
                             "\xe2\x80\x80\xe2\x80\x81\xe2\x80\x82\xe2\x80\x83\xe2\x80\x84\xe2\x80"
                             "\x85\xe2\x80\x86\xe2\x80\x87\xe2\x80\x88\xe2\x80\x89\xe2\x80\x8a";

struct trim {
    bool left, right;
};

/* A set of characters. */
struct characters {
    const char *bytes;
    size_t length;
    /* The numbers of the characters (string_number_of), ascending, or NULL for a set of few bytes,
     * which is searched linearly. */
    uint32_t *sorted;
    uint32_t count;
};

#define FEW_BYTES 64

/* Returns a different number for each character: its bytes, of which UTF-8 has at most four. */
static uint32_t string_number_of(const char *at, size_t length)
{
    uint32_t number = 0;

    for (size_t i = 0; i < length; i++)
        number = number << 8 | (uint8_t)at[i];
    return number;
}

static int string_compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static truce_status sort_characters(struct evaluation *run, struct characters *set)
{
    const char *end = set->bytes + set->length;

    if (set->length <= FEW_BYTES)
        return TRUCE_OK;
    set->sorted = truce__evaluation_take(run, set->length * sizeof *set->sorted);
    if (!set->sorted)
        return TRUCE_LIMIT;
    for (const char *at = set->bytes; at < end; at += character_length(at, end))
        set->sorted[set->count++] = string_number_of(at, character_length(at, end));
    qsort(set->sorted, set->count, sizeof *set->sorted, string_compare_numbers);
    return truce__evaluation_spend(run, set->length);
}

/* Returns whether the character of `length` bytes at `at` is in the set. */
static bool string_is_in(const char *at, size_t length, const struct characters *set)
{
    const char *end = set->bytes + set->length;
    uint32_t number = string_number_of(at, length);

    if (set->sorted)
        return bsearch(&number, set->sorted, set->count, sizeof number, string_compare_numbers) !=
               NULL;
    for (const char *other = set->bytes; other < end;) {
        size_t size = character_length(other, end);

        if (size == length && !memcmp(other, at, size))
            return true;
        other += size;
    }
    return false;
}

/* Removes the characters of the set at the ends of a string. */
static truce_status trim_text(const struct trim *trim, struct evaluation *run, struct value input,
                              const struct characters *set, struct value *result)
{
    uint32_t length;
    const char *text = truce__value_text(input, &length), *end = text + length;

    while (trim->left && text < end) {
        size_t size = character_length(text, end);
        if (!string_is_in(text, size, set))
            break;
        text += size;
    }
    while (trim->right && text < end) {
        const char *last = end - 1;
        while (last > text && (*last & 0xc0) == 0x80)
            last--;
        if (!string_is_in(last, (size_t)(end - last), set))
            break;
        end = last;
    }
    return string_copy_text(run, text, (size_t)(end - text), result);
}

enum { TRIM_INPUT, TRIM_CHARS };

/* Applies $trim, $ltrim, or $rtrim, with blanks or the given characters. */
static truce_status apply_trim(const struct expression_node *node, struct evaluation *run,
                               const struct value *operands, struct value *result)
{
    struct characters set = {.bytes = blanks, .length = sizeof blanks - 1};
    truce_status status;
    uint32_t length;

    if (truce__value_is_nullish(operands[TRIM_INPUT]))
        return truce__evaluation_null(result);
    if (operands[TRIM_INPUT].type != BSON_TYPE_UTF8)
        return truce__refuse(50699, run->error, "%s takes a string, not %s",
                             truce__expression_name(node),
                             truce__type_name(operands[TRIM_INPUT].type));
    if (node->operands[TRIM_CHARS]) {
        if (truce__value_is_nullish(operands[TRIM_CHARS]))
            return truce__evaluation_null(result);
        if (operands[TRIM_CHARS].type != BSON_TYPE_UTF8)
            return truce__refuse(50700, run->error, "\"chars\" of %s must be a string, not %s",
                                 truce__expression_name(node),
                                 truce__type_name(operands[TRIM_CHARS].type));
        set.bytes = truce__value_text(operands[TRIM_CHARS], &length);
        set.length = length;
    }
    status = sort_characters(run, &set);
    return status ? status : trim_text(node->extra, run, operands[TRIM_INPUT], &set, result);
}

static const struct expression_arguments trim_arguments = {
    50696, 50694, {{"input", 50695}, {"chars", 0}}};
static const struct trim both = {true, true}, left = {true, false}, right = {false, true};

/* -- $replaceOne, $replaceAll ----------------------------------------------------------------- */

enum { REPLACE_INPUT, REPLACE_FIND, REPLACE_BY };

struct replacement {
    const char *text, *find, *by;
    uint32_t length, find_length, by_length;
    /* The regular expression to find, or NULL if `find` is a string. */
    const struct regex *regex;
    bool all;
};

/* A match in the text. If nothing matches, `at` is NULL. */
struct replaced {
    const char *at;
    size_t length;
};

/* Finds the next match at or after `from`. An empty pattern matches before each character and at
 * the end. */
static truce_status next_occurrence(const struct replacement *replacement, struct evaluation *run,
                                    const char *from, struct replaced *occurrence)
{
    const char *end = replacement->text + replacement->length;
    struct regex_span span;
    bool found = false;
    truce_status status;

    *occurrence = (struct replaced){NULL, replacement->find_length};
    if (from > end)
        return TRUCE_OK;
    if (!replacement->regex) {
        occurrence->at =
            memmem(from, (size_t)(end - from), replacement->find, replacement->find_length);
        return TRUCE_OK;
    }
    status = truce__regex_find(replacement->regex, replacement->text, replacement->length,
                               (size_t)(from - replacement->text), run->context->budget, &found,
                               &span, 1, run->error);
    if (!status && found)
        *occurrence = (struct replaced){replacement->text + span.start, span.end - span.start};
    return status;
}

/* Copies the text with its replacements to `to`, or only counts the bytes if `to` is NULL. Sets
 * `*total` to the number of bytes. */
static truce_status string_replace(const struct replacement *replacement, struct evaluation *run,
                                   char *to, size_t *total)
{
    const char *at = replacement->text, *end = at + replacement->length, *from = at;
    truce_status status = TRUCE_OK;

    *total = 0;
    do {
        struct replaced occurrence;
        size_t before;

        status = next_occurrence(replacement, run, from, &occurrence);
        if (status || !occurrence.at)
            break;
        before = (size_t)(occurrence.at - at);
        if (to) {
            memcpy(to + *total, at, before);
            memcpy(to + *total + before, replacement->by, replacement->by_length);
        }
        *total += before + replacement->by_length;
        from = at = occurrence.at + occurrence.length;
        if (!occurrence.length)
            from += occurrence.at < end ? character_length(occurrence.at, end) : 1;
    } while (replacement->all);
    if (to)
        memcpy(to + *total, at, (size_t)(end - at));
    *total += (size_t)(end - at);
    return status;
}

/* Makes the string with its replacements: one pass for its length, and one to write it. */
static truce_status replace_in(const struct replacement *replacement, struct evaluation *run,
                               struct value *result)
{
    uint8_t *data;
    size_t length;
    char *at;
    truce_status status = string_replace(replacement, run, NULL, &length);

    if (status)
        return status;
    at = begin_text(run, length, &data);
    if (!at)
        return TRUCE_LIMIT;
    /* Cannot fail: the first pass has found the same matches. */
    status = string_replace(replacement, run, at, &length);
    if (!status)
        *result = end_text(data, length);
    return status;
}

/* Applies $replaceOne or $replaceAll. */
static truce_status apply_replace(const struct expression_node *node, struct evaluation *run,
                                  const struct value *operands, struct value *result)
{
    static const uint32_t codes[] = {51746, 51745, 51744};
    static const char *const names[] = {"input", "find", "replacement"};
    struct replacement replacement = {.all = !strcmp(truce__expression_name(node), "$replaceAll")};
    struct value find = operands[REPLACE_FIND];
    struct regex *regex = NULL;
    truce_status status = TRUCE_OK;

    for (int i = 0; i < 3; i++) {
        bool fits = operands[i].type == BSON_TYPE_UTF8 ||
                    (i == REPLACE_FIND && operands[i].type == BSON_TYPE_REGEX);

        if (!truce__value_is_nullish(operands[i]) && !fits)
            return truce__refuse(codes[i], run->error, "\"%s\" of %s must be a string%s, not %s",
                                 names[i], truce__expression_name(node),
                                 i == REPLACE_FIND ? " or a regular expression" : "",
                                 truce__type_name(operands[i].type));
    }
    for (int i = 0; i < 3; i++) {
        if (truce__value_is_nullish(operands[i]))
            return truce__evaluation_null(result);
    }
    replacement.text = truce__value_text(operands[REPLACE_INPUT], &replacement.length);
    replacement.by = truce__value_text(operands[REPLACE_BY], &replacement.by_length);
    if (find.type == BSON_TYPE_REGEX) {
        status = string_compile(run, find, &regex);
        replacement.regex = regex;
    } else {
        replacement.find = truce__value_text(find, &replacement.find_length);
    }
    if (!status)
        status = replace_in(&replacement, run, result);
    truce__regex_free(regex);
    return status;
}

static const struct expression_arguments replace_arguments = {
    51751, 51750, {{"input", 51749}, {"find", 51748}, {"replacement", 51747}}};

/* ---- substrings ------------------------------------------------------------------------------ */

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

/* Converts a number to an int64, without its fraction. */
static truce_status to_int64(struct evaluation *run, struct value number, int64_t *result)
{
    double real;

    if (truce__number_to_int64(number, result))
        return TRUCE_OK;
    real = truce__number_to_double(number);
    if (!(fabs(real) < 0x1p63))
        return truce__refuse(
            31109, run->error,
            "position %g in a string is out of range: expected a number of 64 bits", real);
    *result = (int64_t)real;
    return TRUCE_OK;
}

/* Applies $substrBytes. Fails if the start or the end is inside a character. */
static truce_status substring_apply_bytes(const struct expression_node *node,
                                          struct evaluation *run, const struct value *operands,
                                          struct value *result)
{
    const char *text;
    uint32_t length;
    int64_t start, count;
    size_t end;
    truce_status status = evaluation_text(node, run, operands[0], &text, &length);

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
        return truce__refuse(50752, run->error, "the start of %s is negative: %lld",
                             truce__expression_name(node), (long long)start);
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

/* Applies $substrCP, which counts characters. */
static truce_status substring_apply_characters(const struct expression_node *node,
                                               struct evaluation *run, const struct value *operands,
                                               struct value *result)
{
    const char *text;
    uint32_t length;
    int32_t start, count;
    size_t at = 0, end;
    truce_status status = evaluation_text(node, run, operands[0], &text, &length);

    if (!status)
        status = truce__evaluation_int32(node, run, operands[1], "start", 34450, &start);
    if (!status)
        status = truce__evaluation_int32(node, run, operands[2], "length", 34452, &count);
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
    /* The range to search, in the operator's unit: bytes or characters. */
    int32_t start, end;
};

/* Reads the operands of $indexOfBytes and $indexOfCP. */
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
        status = truce__evaluation_bound(node, run, operands[2], &search->start);
    if (!status && node->count > 3)
        status = truce__evaluation_bound(node, run, operands[3], &search->end);
    return status;
}

/* Applies $indexOfBytes. */
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

/* Returns the number of the first character from `start` on and before `end` at which the substring
 * begins, or -1. */
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

/* -- the table --------------------------------------------------------------------------------- */

const struct expression_operator truce__expressions_string[] = {
    {"$concat", 0, EXPRESSION_ANY, .evaluate = string_evaluate_concat},
    {"$toLower", 1, 1, .apply = apply_lower},
    {"$toUpper", 1, 1, .apply = apply_upper},
    {"$strcasecmp", 2, 2, .apply = apply_case_compare},
    {"$strLenBytes", 1, 1, .apply = string_apply_bytes},
    {"$strLenCP", 1, 1, .apply = string_apply_characters},
    {"$split", 2, 2, .apply = apply_split},
    {"$trim", .apply = apply_trim, .arguments = &trim_arguments, .extra = &both},
    {"$ltrim", .apply = apply_trim, .arguments = &trim_arguments, .extra = &left},
    {"$rtrim", .apply = apply_trim, .arguments = &trim_arguments, .extra = &right},
    {"$replaceOne", .apply = apply_replace, .arguments = &replace_arguments},
    {"$replaceAll", .apply = apply_replace, .arguments = &replace_arguments},
    {"$substr", 3, 3, .apply = substring_apply_bytes},
    {"$substrBytes", 3, 3, .apply = substring_apply_bytes},
    {"$substrCP", 3, 3, .apply = substring_apply_characters},
    {"$indexOfBytes", 2, 4, EXPRESSION_RANGED, .apply = apply_index_bytes},
    {"$indexOfCP", 2, 4, EXPRESSION_RANGED, .apply = apply_index_characters},
    {NULL},
};
