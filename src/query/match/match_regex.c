/* Regular expressions in filters: /abc/i as a value, $regex with $options, and the text that all
 * matches begin with, which lets an index help. */
#include "base/assert.h"
#include "query/match/match_tree.h"

static truce_status regex_node(struct match_parser *parser, const struct match_condition *condition,
                               const char *pattern, size_t length, const char *options,
                               struct match_node **node)
{
    struct regex *regex;
    truce_status status = truce__regex_new(pattern, length, options, &regex, parser->error);

    if (status != TRUCE_OK)
        return status;
    status = truce__regex_check_group(regex, parser->error);
    if (status == TRUCE_OK)
        status = truce__match_leaf_new(parser, MATCH_REGEX, condition, node);
    if (status == TRUCE_OK)
        (*node)->extra = regex;
    else
        truce__regex_free(regex);
    return status;
}

truce_status truce__match_regex_new(struct match_parser *parser,
                                    const struct match_condition *condition,
                                    struct match_node **node)
{
    const char *pattern = (const char *)condition->value.data;
    size_t length = strlen(pattern);

    return regex_node(parser, condition, pattern, length, pattern + length + 1, node);
}

static truce_status refuse_options_twice(struct match_parser *parser,
                                         const struct match_condition *condition)
{
    return truce__refuse(51075, parser->error, "'%s': options stand in both $regex and $options",
                         condition->path);
}

/* The options of $options; "" if there is none. */
static truce_status find_options(struct match_parser *parser,
                                 const struct match_condition *condition, const char **options)
{
    struct value value = truce__value_field(condition->siblings, "$options", 8);
    uint32_t length;

    *options = "";
    if (value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $options takes a string, not %s",
                             condition->path, truce__type_name(value.type));
    *options = truce__value_text(value, &length);
    if (strlen(*options) != length)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $options contains a NUL",
                             condition->path);
    return TRUCE_OK;
}

truce_status truce__match_parse_regex(struct match_parser *parser,
                                      const struct match_condition *condition,
                                      struct match_node **node)
{
    const char *options, *pattern, *own;
    uint32_t length;
    truce_status status = find_options(parser, condition, &options);

    if (status != TRUCE_OK)
        return status;
    if (condition->value.type == BSON_TYPE_UTF8) {
        pattern = truce__value_text(condition->value, &length);
        return regex_node(parser, condition, pattern, length, options, node);
    }
    if (condition->value.type != BSON_TYPE_REGEX)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $regex takes a string, not %s",
                             condition->path, truce__type_name(condition->value.type));
    pattern = (const char *)condition->value.data;
    own = pattern + strlen(pattern) + 1;
    if (*own && *options)
        return refuse_options_twice(parser, condition);
    return regex_node(parser, condition, pattern, strlen(pattern), *own ? own : options, node);
}

truce_status truce__match_parse_options(struct match_parser *parser,
                                        const struct match_condition *condition,
                                        struct match_node **node)
{
    if (truce__value_field(condition->siblings, "$regex", 6).type == VALUE_MISSING)
        return truce__refuse(CODE_BAD_VALUE, parser->error, "'%s': $options needs a $regex",
                             condition->path);
    return TRUCE_OK;
}

/* characters that are themselves in a pattern, outside of the extended syntax */
static bool is_literal(char c)
{
    return !strchr("\\^$.[|()?*+{", c);
}

bool truce__match_regex_prefix(const struct match_node *node, const char **prefix, size_t *length,
                               bool *whole)
{
    const char *pattern = truce__regex_pattern(node->extra), *at;
    const char *options = truce__regex_options(node->extra);

    truce_assert(node->kind == MATCH_REGEX);
    /* an alternative would make the beginning one of several */
    if (*pattern != '^' || strpbrk(options, "imx") || strchr(pattern, '|'))
        return false;
    *prefix = at = pattern + 1;
    while (*at && is_literal(*at))
        at++;
    /* a quantifier takes the last character back */
    if (*at && strchr("?*+{", *at) && at > *prefix) {
        do
            at--;
        while (at > *prefix && ((unsigned char)*at & 0xc0) == 0x80);
    }
    *length = (size_t)(at - *prefix);
    *whole = !*at || !strcmp(at, ".*");
    return *length > 0;
}
