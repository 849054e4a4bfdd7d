/*
 * Regular expressions on PCRE2.
 *
 * PCRE2 needs match data for each search. The expression keeps one spare: a search takes it and
 * puts it back afterwards. If two threads search at the same time, the second one finds no spare
 * and allocates its own. The last one to finish replaces the spare and frees the one that it
 * replaces. A thread that tests a million documents therefore allocates once, and the end of a
 * thread needs no cleanup.
 *
 * The just-in-time code runs on the machine stack (PCRE2's 32 kB). If that is too small, the search
 * starts again in the interpreter, which stores its backtracking points on the heap within the
 * memory limit.
 *
 * PCRE2's match limit starts again at each position where a match may begin, and its just-in-time
 * code may read a text many times between two counts. The limit alone therefore does not bound the
 * time, and there are two forms of the code. The quick form is for short texts, with a low match
 * limit. Searches that exceed it, and longer texts, use the careful form, which calls back before
 * each item of the pattern. The calls, and the bytes between them, count as steps. The same search
 * always ends at the same step, and each step is taken from the budget of the call.
 *
 * The careful form is several times as large as the quick one, because a callout precedes each
 * item, and PCRE2 limits the size of both. A new expression therefore compiles both forms. If
 * either fails, the pattern is refused before any search: whether a pattern is valid never depends
 * on the text. The just-in-time code is expensive; the careful form gets it when a search first
 * needs it.
 */
#include "query/condition/regex.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/assert.h"
#include "base/limits.h"

/* The longest text of the quick form. */
#define QUICK_BYTES 1024
/* The match limit of the quick form. */
#define QUICK_LIMIT 1000
/* Bytes between two items that count as one step. */
#define STEP_BYTES   64
#define STEPS_A_BYTE 32
/* The result of a callout that ends a search. PCRE2 has no such code. */
#define CALLOUT_OVER (-1000)

/* MongoDB's code for a pattern that does not compile. */
#define CODE_REGEX_INVALID 51091
/* MongoDB's code for an unknown option. */
#define CODE_REGEX_OPTION 51108
/* MongoDB's code for an error during a search. */
#define CODE_REGEX_FAILED 51156

struct regex {
    char *pattern, *options;
    uint32_t flags;
    /* The quick form. */
    pcre2_code *code;
    /* The careful form, or NULL before a search needs it. */
    _Atomic(pcre2_code *) careful;
    /* The match context of the quick form. */
    pcre2_match_context *context;
    /* The match data that no search uses, or NULL. */
    _Atomic(pcre2_match_data *) spare;
    /* The number of groups of the pattern. */
    uint32_t captures;
};

/* Converts the options of a regular expression, such as "im", to flags of PCRE2. */
static truce_status regex_parse_options(const char *options, uint32_t *flags, bson_error_t *error)
{
    *flags = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
    for (; *options; options++) {
        switch (*options) {
        case 'i':
            *flags |= PCRE2_CASELESS;
            break;
        case 'm':
            *flags |= PCRE2_MULTILINE;
            break;
        case 's':
            *flags |= PCRE2_DOTALL;
            break;
        case 'x':
            *flags |= PCRE2_EXTENDED;
            break;
        case 'u':
            break;
        default:
            return truce__refuse(CODE_REGEX_OPTION, error,
                                 "a regular expression has the unknown option '%c' (known: imsxu)",
                                 *options);
        }
    }
    return TRUCE_OK;
}

static pcre2_code *regex_compile(const char *pattern, size_t length, uint32_t flags, int *number,
                                 size_t *offset)
{
    return pcre2_compile((PCRE2_SPTR)pattern, length, flags, number, offset, NULL);
}

static truce_status refuse_pattern(int number, const char *pattern, bson_error_t *error)
{
    char reason[160];

    pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
    return truce__refuse(CODE_REGEX_INVALID, error, "regular expression /%.120s/ is invalid: %s",
                         pattern, reason);
}

/* Checks that the careful form compiles. The code is compiled again when a search needs it. */
static truce_status check_careful(const char *pattern, size_t length, uint32_t flags,
                                  bson_error_t *error)
{
    int number;
    size_t offset;
    pcre2_code *code = regex_compile(pattern, length, flags | PCRE2_AUTO_CALLOUT, &number, &offset);

    if (!code)
        return truce__refuse(CODE_REGEX_INVALID, error,
                             "regular expression /%.120s/ of %zu bytes is too large: its compiled "
                             "form exceeds 64 KiB, which is about 8,000 characters",
                             pattern, length);
    pcre2_code_free(code);
    return TRUCE_OK;
}

/* Compiles the pattern twice: once to search quickly, and once as match_carefully will, so that it
 * cannot fail later. */
static truce_status compile_regex(struct regex *regex, size_t length, uint32_t flags,
                                  bson_error_t *error)
{
    int number;
    size_t offset;
    truce_status status;

    regex->code = regex_compile(regex->pattern, length, flags, &number, &offset);
    if (!regex->code)
        return refuse_pattern(number, regex->pattern, error);
    status = check_careful(regex->pattern, length, flags, error);
    if (status)
        return status;
    /* A failure is ignored: without just-in-time code, the interpreter searches. */
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &regex->captures);
    regex->context = pcre2_match_context_create(NULL);
    truce_assert(regex->context);
    pcre2_set_match_limit(regex->context, QUICK_LIMIT);
    pcre2_set_heap_limit(regex->context, TRUCE_REGEX_MEMORY_MAX / 1024);
    regex->flags = flags;
    return TRUCE_OK;
}

truce_status truce__regex_new(const char *pattern, size_t length, const char *options,
                              struct regex **regex, bson_error_t *error)
{
    uint32_t flags;
    truce_status status;

    *regex = NULL;
    if (memchr(pattern, 0, length))
        return truce__refuse(CODE_BAD_VALUE, error, "a regular expression contains a NUL");
    if (length > TRUCE_REGEX_BYTES_MAX)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "a regular expression has %zu bytes, more than the maximum of %d",
                             length, TRUCE_REGEX_BYTES_MAX);
    status = regex_parse_options(options, &flags, error);
    if (status != TRUCE_OK)
        return status;
    *regex = bson_malloc0(sizeof **regex);
    /* bson_strndup would read one byte beyond the length. */
    (*regex)->pattern = bson_malloc0(length + 1);
    memcpy((*regex)->pattern, pattern, length);
    (*regex)->options = bson_strdup(options);
    status = compile_regex(*regex, length, flags, error);
    if (status != TRUCE_OK) {
        truce__regex_free(*regex);
        *regex = NULL;
    }
    return status;
}

truce_status truce__regex_check_group(const struct regex *regex, bson_error_t *error)
{
    size_t length = strlen(regex->pattern), offset;
    int number;
    char *group;
    pcre2_code *code;

    if (!(regex->flags & PCRE2_EXTENDED))
        return TRUCE_OK;
    group = bson_strdup_printf("(%s)", regex->pattern);
    code = regex_compile(group, length + 2, regex->flags, &number, &offset);
    bson_free(group);
    if (!code)
        return refuse_pattern(number, regex->pattern, error);
    pcre2_code_free(code);
    return TRUCE_OK;
}

void truce__regex_free(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_match_data_free(atomic_load(&regex->spare));
    pcre2_match_context_free(regex->context);
    pcre2_code_free(regex->code);
    pcre2_code_free(atomic_load(&regex->careful));
    bson_free(regex->pattern);
    bson_free(regex->options);
    bson_free(regex);
}

const char *truce__regex_pattern(const struct regex *regex)
{
    return regex->pattern;
}

const char *truce__regex_options(const struct regex *regex)
{
    return regex->options;
}

uint32_t truce__regex_captures(const struct regex *regex)
{
    return regex->captures;
}

static pcre2_match_data *take_match_data(const struct regex *regex)
{
    /* The expression is logically const: the spare is only a cache. */
    struct regex *shared = (struct regex *)regex;
    pcre2_match_data *data = atomic_exchange(&shared->spare, NULL);

    if (!data)
        data = pcre2_match_data_create_from_pattern(regex->code, NULL);
    truce_assert(data);
    return data;
}

static void regex_return_match_data(const struct regex *regex, pcre2_match_data *data)
{
    struct regex *shared = (struct regex *)regex;

    pcre2_match_data_free(atomic_exchange(&shared->spare, data));
}

static void copy_spans(const pcre2_match_data *data, struct regex_span *spans, uint32_t room,
                       uint32_t captures)
{
    const size_t *ends = pcre2_get_ovector_pointer((pcre2_match_data *)data);

    for (uint32_t i = 0; i < room; i++) {
        bool set = i <= captures && ends[2 * i] != PCRE2_UNSET;

        /* \K in a lookahead can put the start of a match after its end. */
        spans[i].start = set ? ends[2 * i] : REGEX_UNSET;
        spans[i].end =
            set ? (ends[2 * i + 1] < ends[2 * i] ? ends[2 * i] : ends[2 * i + 1]) : REGEX_UNSET;
    }
}

/* ---- the careful form ----------------------------------------------------------------------- */

/* Returns the code that calls regex_count_item at each item of the pattern. The first search that
 * needs it compiles it. */
static const pcre2_code *careful_code(const struct regex *regex)
{
    /* The careful code is a cache, like the spare. */
    struct regex *shared = (struct regex *)regex;
    pcre2_code *code = atomic_load(&shared->careful), *others = NULL;
    size_t offset;
    int number;

    if (code)
        return code;
    code = regex_compile(regex->pattern, strlen(regex->pattern), regex->flags | PCRE2_AUTO_CALLOUT,
                         &number, &offset);
    /* The same call succeeded in check_careful(), so only memory can be the reason. */
    truce_assert(code);
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    if (atomic_compare_exchange_strong(&shared->careful, &others, code))
        return code;
    pcre2_code_free(code);
    return others;
}

struct search {
    uint64_t steps, steps_max;
    /* The position at which the last item was tried. */
    size_t at;
    struct budget *budget;
    /* TIMEOUT if the budget is used up. */
    truce_status status;
    bson_error_t *error;
};

static int regex_count_item(pcre2_callout_block *block, void *arg)
{
    struct search *search = arg;
    size_t at = block->current_position;
    size_t moved = at > search->at ? at - search->at : search->at - at;
    uint32_t steps = 1 + (uint32_t)(moved / STEP_BYTES);

    search->at = at;
    search->steps += steps;
    search->status = truce__budget_spend(search->budget, steps, search->error);
    return search->status || search->steps > search->steps_max ? CALLOUT_OVER : 0;
}

/* Searches again with a larger limit, and counts the steps of the search. */
static int match_carefully(const struct regex *regex, const char *text, size_t length, size_t start,
                           struct search *search, pcre2_match_data *data)
{
    const pcre2_code *code = careful_code(regex);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int result;

    truce_assert(context);
    pcre2_set_match_limit(context, TRUCE_REGEX_MATCH_MAX);
    pcre2_set_heap_limit(context, TRUCE_REGEX_MEMORY_MAX / 1024);
    pcre2_set_callout(context, regex_count_item, search);
    result = pcre2_match(code, (PCRE2_SPTR)text, length, start, PCRE2_NO_UTF_CHECK, data, context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(code, (PCRE2_SPTR)text, length, start,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
    pcre2_match_context_free(context);
    return result;
}

/* ---- searching ------------------------------------------------------------------------------ */

static int regex_match(const struct regex *regex, const char *text, size_t length, size_t start,
                       struct search *search, pcre2_match_data *data)
{
    int result = PCRE2_ERROR_MATCHLIMIT;

    if (length - start <= QUICK_BYTES)
        result = pcre2_match(regex->code, (PCRE2_SPTR)text, length, start, PCRE2_NO_UTF_CHECK, data,
                             regex->context);
    if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = match_carefully(regex, text, length, start, search, data);
    return result;
}

static truce_status refuse_search(const struct regex *regex, int result, bson_error_t *error)
{
    char reason[160];

    snprintf(reason, sizeof reason,
             "it takes more than %d steps, and %d for each byte of the string",
             TRUCE_REGEX_STEPS_MAX, STEPS_A_BYTE);
    if (result != CALLOUT_OVER)
        pcre2_get_error_message(result, (PCRE2_UCHAR *)reason, sizeof reason);
    (void)truce__refuse(CODE_REGEX_FAILED, error, "regular expression /%.120s/ failed: %s",
                        regex->pattern, reason);
    return TRUCE_LIMIT;
}

truce_status truce__regex_find(const struct regex *regex, const char *text, size_t length,
                               size_t start, struct budget *budget, bool *found,
                               struct regex_span *spans, uint32_t room, bson_error_t *error)
{
    struct search search = {.steps_max = TRUCE_REGEX_STEPS_MAX + STEPS_A_BYTE * (uint64_t)length,
                            .at = start,
                            .budget = budget,
                            .error = error};
    pcre2_match_data *data = take_match_data(regex);
    int result = regex_match(regex, text, length, start, &search, data);

    *found = result >= 0;
    if (*found)
        copy_spans(data, spans, room, regex->captures);
    regex_return_match_data(regex, data);
    if (search.status)
        return search.status;
    return result >= 0 || result == PCRE2_ERROR_NOMATCH ? TRUCE_OK
                                                        : refuse_search(regex, result, error);
}
