#include "base/assert.h"
#include "query/condition/regex.h"
#include "query/expression/expression_tree.h"

/*
 * $regexMatch, $regexFind, $regexFindAll. A constant pattern is compiled with the expression and
 * used by all threads; another pattern is compiled for each evaluation. Positions are counted in
 * code points.
 */

enum { REGEX_INPUT, REGEX_PATTERN, REGEX_OPTIONS };

static void release_regex(void *regex)
{
    truce__regex_free(regex);
}

/* -- compiling the pattern -------------------------------------------------------------------- */

/* Reads a pattern: a regular expression with its options, or a string. */
static truce_status read_pattern(const char *name, struct value value, const char **pattern,
                                 uint32_t *length, const char **options, bson_error_t *error)
{
    *options = "";
    if (value.type == BSON_TYPE_REGEX) {
        *pattern = (const char *)value.data;
        *length = (uint32_t)strlen(*pattern);
        *options = *pattern + *length + 1;
        return TRUCE_OK;
    }
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(51105, error, "\"regex\" of %s must be a string or a regex, not %s",
                             name, truce__type_name(value.type));
    *pattern = truce__value_text(value, length);
    if (memchr(*pattern, '\0', *length))
        return truce__refuse(51109, error, "\"regex\" of %s contains a zero byte", name);
    return TRUCE_OK;
}

/* Reads the argument options, which must not repeat options of the pattern. */
static truce_status regex_read_options(const char *name, struct value value, const char **options,
                                       bson_error_t *error)
{
    uint32_t length;
    const char *text;

    if (truce__value_is_nullish(value))
        return TRUCE_OK;
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(51106, error, "\"options\" of %s must be a string, not %s", name,
                             truce__type_name(value.type));
    if (**options)
        return truce__refuse(51107, error, "%s has options in \"regex\" and in \"options\"", name);
    text = truce__value_text(value, &length);
    if (memchr(text, '\0', length))
        return truce__refuse(51110, error, "\"options\" of %s contains a zero byte", name);
    for (uint32_t i = 0; i < length; i++) {
        if (!strchr("imsxu", text[i]))
            return truce__refuse(51108, error, "\"options\" of %s has an unknown flag '%c'", name,
                                 text[i]);
    }
    *options = text;
    return TRUCE_OK;
}

/* Compiles a pattern and its options. `*regex` stays NULL if the pattern is null. */
static truce_status compile_pattern(const char *name, struct value pattern_value,
                                    struct value options_value, struct regex **regex,
                                    bson_error_t *error)
{
    const char *pattern = "", *options = "";
    uint32_t length = 0;
    bson_error_t reason;
    truce_status status = TRUCE_OK;

    *regex = NULL;
    if (!truce__value_is_nullish(pattern_value))
        status = read_pattern(name, pattern_value, &pattern, &length, &options, error);
    if (!status)
        status = regex_read_options(name, options_value, &options, error);
    if (status || truce__value_is_nullish(pattern_value))
        return status;
    status = truce__regex_new(pattern, length, options, regex, &reason);
    if (status)
        return truce__refuse(51111, error, "%s: %s", name, reason.message);
    return TRUCE_OK;
}

static bool is_constant(const struct expression_node *node)
{
    return !node || truce__expression_is_constant_node(node);
}

/* Compiles the pattern with the expression if it and its options are constants. */
static truce_status regex_prepare(struct expression_compiler *compiler,
                                  struct expression_node *node)
{
    struct value options = truce__value_missing();
    struct regex *regex;
    truce_status status;

    if (!is_constant(node->operands[REGEX_PATTERN]) || !is_constant(node->operands[REGEX_OPTIONS]))
        return TRUCE_OK;
    if (node->operands[REGEX_OPTIONS])
        options = node->operands[REGEX_OPTIONS]->value;
    status = compile_pattern(truce__expression_name(node), node->operands[REGEX_PATTERN]->value,
                             options, &regex, compiler->error);
    if (!status && regex) {
        truce__expression_own(compiler, regex, release_regex);
        node->extra = regex;
    }
    return status;
}

/* -- one evaluation --------------------------------------------------------------------------- */

struct search {
    struct value input;
    const char *text;
    uint32_t length;
    /* The expression, or NULL if the pattern or the input is null, so that nothing matches. */
    const struct regex *regex;
    /* The expression if this search has compiled it and must free it. */
    struct regex *own;
    struct regex_span *spans;
    /* The number of groups, including the whole match. */
    uint32_t groups;
    bool found;
    /* The number of bytes whose characters have been counted. */
    size_t counted;
    /* The number of characters in these bytes. */
    int32_t character;
};

/* Evaluates the arguments, and compiles the pattern unless it is a constant. The caller frees
 * search->own. */
static truce_status regex_begin(const struct expression_node *node, struct evaluation *run,
                                struct search *search)
{
    struct value pattern, options;
    truce_status status = truce__expression_run(node->operands[REGEX_INPUT], run, &search->input);

    if (!status && !truce__value_is_nullish(search->input) &&
        search->input.type != BSON_TYPE_UTF8 && search->input.type != BSON_TYPE_SYMBOL)
        return truce__refuse(51104, run->error, "\"input\" of %s must be a string, not %s",
                             truce__expression_name(node), truce__type_name(search->input.type));
    search->regex = node->extra;
    if (!status && !search->regex) {
        status = truce__expression_run(node->operands[REGEX_PATTERN], run, &pattern);
        if (!status)
            status = truce__expression_run(node->operands[REGEX_OPTIONS], run, &options);
        if (!status)
            status = compile_pattern(truce__expression_name(node), pattern, options, &search->own,
                                     run->error);
        search->regex = search->own;
    }
    if (status || !search->regex)
        return status;
    if (truce__value_is_nullish(search->input)) {
        search->regex = NULL;
        return TRUCE_OK;
    }
    search->text = truce__value_text(search->input, &search->length);
    search->groups = truce__regex_captures(search->regex) + 1;
    search->spans = truce__evaluation_take(run, search->groups * sizeof *search->spans);
    return search->spans ? TRUCE_OK : TRUCE_LIMIT;
}

static truce_status regex_find_next(struct search *search, struct evaluation *run, size_t start)
{
    return truce__regex_find(search->regex, search->text, search->length, start,
                             run->context->budget, &search->found, search->spans, search->groups,
                             run->error);
}

/* Returns the number of the character at byte `at`, which must not be before the last such byte. */
static int32_t character_at(struct search *search, size_t at)
{
    for (; search->counted < at; search->counted++)
        search->character += (search->text[search->counted] & 0xc0) != 0x80;
    return search->character;
}

/* Appends match, idx, and captures. */
static void append_match(struct search *search, struct builder *builder)
{
    const struct regex_span *whole = &search->spans[0];
    int32_t index = character_at(search, whole->start);
    struct builder_mark mark;

    truce__builder_append_text(builder, "match", 5, search->text + whole->start,
                               whole->end - whole->start);
    truce__builder_append(builder, "idx", 3,
                          (struct value){(const uint8_t *)&index, 4, BSON_TYPE_INT32});
    mark = truce__builder_open(builder, "captures", 8, BSON_TYPE_ARRAY);
    for (uint32_t i = 1; i < search->groups && !builder->full; i++) {
        const struct regex_span *span = &search->spans[i];
        if (span->start == REGEX_UNSET)
            truce__builder_element(builder, truce__value_null());
        else
            truce__builder_element_text(builder, search->text + span->start,
                                        span->end - span->start);
    }
    truce__builder_close(builder, mark);
}

static truce_status evaluate_match(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    struct search search = {0};
    truce_status status = regex_begin(node, run, &search);

    if (!status && search.regex)
        status = regex_find_next(&search, run, 0);
    truce__regex_free(search.own);
    *result = truce__value_from_bool(search.found);
    return status;
}

/* Evaluates $regexFind: the first match, or null. */
static truce_status evaluate_find(const struct expression_node *node, struct evaluation *run,
                                  struct value *result)
{
    struct search search = {0};
    struct builder builder;
    truce_status status = regex_begin(node, run, &search);

    if (!status && search.regex)
        status = regex_find_next(&search, run, 0);
    truce__regex_free(search.own);
    *result = truce__value_null();
    if (status || !search.found)
        return status;
    truce__evaluation_build(run, &builder, BSON_TYPE_DOCUMENT);
    append_match(&search, &builder);
    return truce__builder_finish(&builder, result, run->error);
}

/* Returns the byte after a match; after an empty match, the byte one character later. */
static size_t next_start(const struct search *search)
{
    size_t at = search->spans[0].end;

    if (at > search->spans[0].start)
        return at;
    do {
        at++;
    } while (at < search->length && (search->text[at] & 0xc0) == 0x80);
    return at;
}

/* Appends all matches. */
static truce_status regex_find_all(struct search *search, struct evaluation *run,
                                   struct builder *builder)
{
    size_t start = 0;
    truce_status status;

    do {
        struct builder_mark mark;
        status = regex_find_next(search, run, start);
        if (status || !search->found)
            break;
        mark = truce__builder_open_element(builder, BSON_TYPE_DOCUMENT);
        append_match(search, builder);
        truce__builder_close(builder, mark);
        start = next_start(search);
    } while (!builder->full && start < search->length);
    return status;
}

static truce_status evaluate_find_all(const struct expression_node *node, struct evaluation *run,
                                      struct value *result)
{
    struct search search = {0};
    struct builder builder;
    truce_status status = regex_begin(node, run, &search);

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    if (!status && search.regex)
        status = regex_find_all(&search, run, &builder);
    truce__regex_free(search.own);
    return status ? status : truce__builder_finish(&builder, result, run->error);
}

static const struct expression_arguments arguments = {
    51103, 31024, {{"input", 31022}, {"regex", 31023}, {"options", 0}}};

const struct expression_operator truce__expressions_regex[] = {
    {"$regexMatch", .evaluate = evaluate_match, .arguments = &arguments, .prepare = regex_prepare},
    {"$regexFind", .evaluate = evaluate_find, .arguments = &arguments, .prepare = regex_prepare},
    {"$regexFindAll", .evaluate = evaluate_find_all, .arguments = &arguments,
     .prepare = regex_prepare},
    {NULL},
};
