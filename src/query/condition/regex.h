#ifndef TRUCE_QUERY_CONDITION_REGEX_H
#define TRUCE_QUERY_CONDITION_REGEX_H

/*
 * Regular expressions in MongoDB's dialect: PCRE2 over UTF-8, with the options i, m, s, and x (u is
 * accepted and has no effect). The just-in-time compiler is used if the platform has it.
 *
 * The work of a search is bounded. It fails with TRUCE_LIMIT after TRUCE_REGEX_STEPS_MAX steps (and
 * some for each byte of the text), TRUCE_REGEX_MATCH_MAX matches at one position, or
 * TRUCE_REGEX_MEMORY_MAX bytes. Several threads may use a compiled expression at once.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/status.h"

struct regex;

/* Compiles a pattern. Refuses with MongoDB's codes: a NUL in the pattern or more than
 * TRUCE_REGEX_BYTES_MAX bytes (2), an unknown option (51108), a pattern that does not compile
 * (51091). */
truce_status truce__regex_new(const char *pattern, size_t length, const char *options,
                              struct regex **regex, bson_error_t *error);
void truce__regex_free(struct regex *regex);
/* Refuses the expression (51091) if it does not compile within a group, in which MongoDB's servers
 * put the patterns of filters: a comment at its end swallows the closing parenthesis. $regexMatch
 * and similar operators use the pattern without a group. */
truce_status truce__regex_check_group(const struct regex *regex, bson_error_t *error);

/* These functions return the pattern and the options as given. */
const char *truce__regex_pattern(const struct regex *regex);
const char *truce__regex_options(const struct regex *regex);

/* Returns the number of capture groups, without the whole match. */
uint32_t truce__regex_captures(const struct regex *regex);

struct regex_span {
    /* Offsets in bytes. Both are REGEX_UNSET for a group that did not take part in the match. */
    size_t start, end;
};
#define REGEX_UNSET SIZE_MAX

/* Finds the expression in `text` (UTF-8) from byte `start` on. With `room` > 0 fills `spans`: the
 * whole match first, then as many groups as fit. Fails with TIMEOUT if the budget is exceeded; NULL
 * means no budget. */
truce_status truce__regex_find(const struct regex *regex, const char *text, size_t length,
                               size_t start, struct budget *budget, bool *found,
                               struct regex_span *spans, uint32_t room, bson_error_t *error);

#endif
