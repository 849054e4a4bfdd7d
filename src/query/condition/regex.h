#ifndef TRUCE_QUERY_CONDITION_REGEX_H
#define TRUCE_QUERY_CONDITION_REGEX_H

/*
 * Regular expressions in MongoDB's dialect: PCRE2 over UTF-8, with the options i, m, s and x (u is
 * accepted and changes nothing). Compiled by the just-in-time compiler where there is one.
 *
 * No pattern can hang a search: beyond TRUCE_REGEX_STEPS_MAX steps (and some for each byte of the
 * text), TRUCE_REGEX_MATCH_MAX at one place or TRUCE_REGEX_MEMORY_MAX bytes it fails with TRUCE_LIMIT. A compiled expression may be used from several threads at once.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/status.h"

struct regex;

/* Refuses (MongoDB's codes): a NUL in the pattern or more than TRUCE_REGEX_BYTES_MAX bytes (2), an
 * unknown option (51108), a pattern that does not compile (51091). */
truce_status truce__regex_new(const char *pattern, size_t length, const char *options,
                              struct regex **regex, bson_error_t *error);
void truce__regex_free(struct regex *regex);
/* 51091, if it does not compile within a group, into which the filters of MongoDB's servers put it: a comment at its end swallows the
 * closing parenthesis. $regexMatch and its like take it as it is. */
truce_status truce__regex_check_group(const struct regex *regex, bson_error_t *error);

/* as given */
const char *truce__regex_pattern(const struct regex *regex);
const char *truce__regex_options(const struct regex *regex);

/* capture groups, the whole match not counted */
uint32_t truce__regex_captures(const struct regex *regex);
/* the name of group `number` (from 1), NULL if it has none */
const char *truce__regex_capture_name(const struct regex *regex, uint32_t number);

struct regex_span {
    size_t start, end; /* bytes; a group that took no part: both REGEX_UNSET */
};
#define REGEX_UNSET SIZE_MAX

/* Looks for the expression in `text` (UTF-8) from byte `start` on. With `room` > 0 fills `spans`:
 * the whole match first, then the groups, as far as there is room. TIMEOUT: the budget (NULL: none) is
 * over. */
truce_status truce__regex_find(const struct regex *regex, const char *text, size_t length,
                               size_t start, struct budget *budget, bool *found,
                               struct regex_span *spans, uint32_t room, bson_error_t *error);

#endif
