/* $count and $sortByCount, which are written in terms of $group. */
#include "query/aggregate/stage.h"

/* {_id: <id>, <name>: {$sum: 1}} */
static truce_status push_counting_group(struct stage_parser *parser, struct value id,
                                        const char *name, bson_error_t *error)
{
    bson_t group = BSON_INITIALIZER, sum;
    truce_status status;

    truce__value_append(&group, "_id", 3, id);
    BSON_APPEND_DOCUMENT_BEGIN(&group, name, &sum);
    BSON_APPEND_INT32(&sum, "$sum", 1);
    bson_append_document_end(&group, &sum);
    status = truce__stage_group(parser, truce__value_document(&group), error);
    bson_destroy(&group);
    return status;
}

truce_status truce__stage_count(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    bson_t project = BSON_INITIALIZER;
    size_t length;
    const char *name = truce__stage_text(argument, &length);
    truce_status status;

    if (!name)
        return truce__refuse(40156, error, "$count must be the name of a field");
    if (length == 0)
        return truce__refuse(40157, error, "$count's field name must not be empty");
    if (name[0] == '$')
        return truce__refuse(40158, error, "$count's field name must not begin with '$'");
    if (strlen(name) != length)
        return truce__refuse(40159, error, "$count's field name must not contain a zero byte");
    if (strchr(name, '.'))
        return truce__refuse(40160, error, "$count's field name must not have a dot");
    status = push_counting_group(parser, truce__value_null(), name, error);
    BSON_APPEND_INT32(&project, "_id", 0);
    if (!status)
        status = truce__stage_project(parser, truce__value_document(&project), error);
    bson_destroy(&project);
    return status;
}

truce_status truce__stage_sort_by_count(struct stage_parser *parser, struct value argument,
                                        bson_error_t *error)
{
    bson_t sort = BSON_INITIALIZER;
    size_t length;
    const char *text = truce__stage_text(argument, &length);
    truce_status status;

    if (argument.type == BSON_TYPE_DOCUMENT) {
        struct fields fields = truce__fields(argument);

        if (!truce__fields_next(&fields) || fields.key[0] != '$')
            return truce__refuse(40147, error,
                                 "$sortByCount must be a path or an expression, not a document of "
                                 "fields");
    } else if (!text) {
        return truce__refuse(40149, error, "$sortByCount must be a path or an expression");
    } else if (text[0] != '$') {
        return truce__refuse(40148, error, "$sortByCount's path must begin with '$'");
    }
    status = push_counting_group(parser, argument, "count", error);
    BSON_APPEND_INT32(&sort, "count", -1);
    if (!status)
        status = truce__stage_sort(parser, truce__value_document(&sort), error);
    bson_destroy(&sort);
    return status;
}
