/* Filters as their users have them: of documents, of the values of a $pull, of the elements of arrays. */
#include "query/match/match_tree.h"

static truce_status parse_whole(struct match *match, struct match_parser *parser)
{
    return truce__match_parse(parser, truce__value_document(match->filter), &match->root);
}

static void make_tables(struct match_node *node)
{
    for (uint32_t i = 0; i < node->children_count; i++)
        make_tables(node->children[i]);
    if (node->kind == MATCH_AND || node->kind == MATCH_OR || node->kind == MATCH_NOR)
        node->extra = truce__match_table_new(node);
}

static truce_status match_new_finish(truce_status status, struct match *made, struct match **match)
{
    if (status == TRUCE_OK) {
        make_tables(made->root);
        *match = made;
        return TRUCE_OK;
    }
    truce__match_free(made);
    *match = NULL;
    return status;
}

truce_status truce__match_new_with_variables(const bson_t *filter, const char *const *variables,
                                             struct match **match, bson_error_t *error)
{
    struct match_parser parser = {.variables = variables, .error = error};
    struct match *made = bson_malloc0(sizeof *made);

    made->filter = filter ? bson_copy(filter) : bson_new();
    return match_new_finish(parse_whole(made, &parser), made, match);
}

truce_status truce__match_new(const bson_t *filter, struct match **match, bson_error_t *error)
{
    return truce__match_new_with_variables(filter, NULL, match, error);
}

void truce__match_free(struct match *match)
{
    if (!match)
        return;
    truce__match_node_free(match->root);
    bson_destroy(match->filter);
    bson_free(match->identifier);
    bson_free(match);
}

/* Does the condition of a $pull look at the value itself, not at its fields? */
static bool is_about_value(struct value condition)
{
    struct fields fields;

    if (condition.type != BSON_TYPE_DOCUMENT)
        return condition.type == BSON_TYPE_REGEX;
    fields = truce__fields(condition);
    return truce__fields_next(&fields) && truce__match_is_operator(fields.key);
}

truce_status truce__match_value_new(struct value condition, struct match **match,
                                    bson_error_t *error)
{
    struct match_parser parser = {.special_banned = true, .error = error};
    struct match *made = bson_malloc0(sizeof *made);
    truce_status status = TRUCE_OK;
    struct value own;

    made->filter = bson_new();
    truce__value_append(made->filter, "", 0, condition);
    own = truce__value_field(truce__value_document(made->filter), "", 0);
    if (is_about_value(own)) {
        made->subject = SUBJECT_FIELD;
        status = truce__match_parse_field(&parser, "", 0, own, &made->root);
    } else if (own.type == BSON_TYPE_DOCUMENT) {
        made->subject = SUBJECT_DOCUMENT;
        status = truce__match_parse(&parser, own, &made->root);
    } else {
        made->subject = SUBJECT_EQUAL;
        made->root = truce__match_node_new(MATCH_EQ);
        made->root->operand = own;
    }
    return match_new_finish(status, made, match);
}

/* The first parts of all paths must be one name. */
static truce_status find_identifier(const struct match_node *node, char **identifier,
                                    bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool logic = node->kind == MATCH_AND || node->kind == MATCH_OR || node->kind == MATCH_NOR ||
                 node->kind == MATCH_NOT;
    const struct path_part *first;

    for (uint32_t i = 0; logic && i < node->children_count && status == TRUCE_OK; i++)
        status = find_identifier(node->children[i], identifier, error);
    if (logic || !node->path.count)
        return status;
    first = node->path.parts;
    if (!*identifier)
        *identifier = bson_strndup(first->name, first->length);
    if (strlen(*identifier) == first->length && !memcmp(*identifier, first->name, first->length))
        return TRUCE_OK;
    return truce__refuse(CODE_FAILED_TO_PARSE, error,
                         "an array filter is about one name, not about '%s' and '%.*s'",
                         *identifier, (int)first->length, first->name);
}

static bool match_new_is_identifier(const char *name)
{
    if (*name < 'a' || *name > 'z')
        return false;
    while ((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
           (*name >= '0' && *name <= '9'))
        name++;
    return !*name;
}

static truce_status parse_elements(struct match *match, struct match_parser *parser)
{
    truce_status status = parse_whole(match, parser);

    if (status == TRUCE_OK)
        status = find_identifier(match->root, &match->identifier, parser->error);
    if (status != TRUCE_OK)
        return status;
    if (!match->identifier)
        return truce__refuse(CODE_FAILED_TO_PARSE, parser->error,
                             "an array filter begins with the name of its identifier");
    if (!match_new_is_identifier(match->identifier))
        return truce__refuse(CODE_BAD_VALUE, parser->error,
                             "the identifier of an array filter begins with a small letter and has "
                             "letters and digits only, not '%s'",
                             match->identifier);
    return TRUCE_OK;
}

truce_status truce__match_elements_new(const bson_t *filter, struct match **match,
                                       const char **identifier, bson_error_t *error)
{
    struct match_parser parser = {.special_banned = true, .error = error};
    struct match *made = bson_malloc0(sizeof *made);
    truce_status status;

    made->filter = bson_copy(filter);
    made->subject = SUBJECT_FIELD;
    status = match_new_finish(parse_elements(made, &parser), made, match);
    *identifier = status == TRUCE_OK ? (*match)->identifier : NULL;
    return status;
}
