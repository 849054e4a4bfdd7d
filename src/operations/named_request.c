#include "operations/named_request.h"

#include <string.h>

#include "bson/value.h"

/* ---- data commands --------------------------------------------------------------------------- */

#define FIELD(name_, type_, help_)                                                                 \
    {                                                                                              \
        {name_, type_, 0}, help_                                                                   \
    }

static const struct operation_field find_fields[] = {
    FIELD("filter", FIELD_DOCUMENT, "the documents that match; absent: all"),
    FIELD("projection", FIELD_DOCUMENT, "the fields to return"),
    FIELD("sort", FIELD_DOCUMENT, "the order: {field: 1 or -1}"),
    FIELD("skip", FIELD_NUMBER, "how many documents to skip"),
    FIELD("limit", FIELD_NUMBER, "the maximum number of documents"),
    FIELD("batchSize", FIELD_NUMBER, "the number of documents in the first reply"),
    FIELD("singleBatch", FIELD_FLAG, "close the cursor after the first reply"),
    FIELD("hint", FIELD_VALUE, "the index to use"),
    FIELD("let", FIELD_DOCUMENT, "variables of expressions"),
    {{0}}};
static const struct operation_field insert_fields[] = {
    {{"documents", FIELD_ARRAY, 0}, "the documents", .needed = true},
    FIELD("ordered", FIELD_FLAG, "stop at the first failure; absent: true"),
    {{0}}};
static const struct operation_field update_fields[] = {
    {{"updates", FIELD_ARRAY, 0}, "each {q: filter, u: update, multi, upsert}", .needed = true},
    FIELD("ordered", FIELD_FLAG, "stop at the first failure; absent: true"),
    {{0}}};
static const struct operation_field delete_fields[] = {
    {{"deletes", FIELD_ARRAY, 0}, "each {q: filter, limit: 0 or 1}", .needed = true},
    FIELD("ordered", FIELD_FLAG, "stop at the first failure; absent: true"),
    {{0}}};
static const struct operation_field modify_fields[] = {
    FIELD("query", FIELD_DOCUMENT, "the document: the first that matches"),
    FIELD("sort", FIELD_DOCUMENT, "the order that decides which is first"),
    FIELD("update", FIELD_VALUE, "operators, a document, or a pipeline"),
    FIELD("remove", FIELD_FLAG, "remove the document instead"),
    FIELD("new", FIELD_FLAG, "return the document after the change"),
    FIELD("upsert", FIELD_FLAG, "insert a document if none matches"),
    FIELD("fields", FIELD_DOCUMENT, "the fields to return"),
    {{0}}};
static const struct operation_field aggregate_fields[] = {
    {{"pipeline", FIELD_ARRAY, 0}, "the stages", .needed = true},
    {{"cursor", FIELD_DOCUMENT, 0}, "{} or {batchSize: N}", .needed = true},
    FIELD("let", FIELD_DOCUMENT, "variables of expressions"),
    {{0}}};
static const struct operation_field count_fields[] = {
    FIELD("query", FIELD_DOCUMENT, "the documents that match; absent: all"),
    FIELD("skip", FIELD_NUMBER, "how many documents to skip"),
    FIELD("limit", FIELD_NUMBER, "the maximum number of documents"),
    {{0}}};
static const struct operation_field distinct_fields[] = {
    {{"key", FIELD_TEXT, 0}, "the field", .needed = true},
    FIELD("query", FIELD_DOCUMENT, "the documents that match; absent: all"),
    {{0}}};
static const struct operation_field indexes_fields[] = {
    {{"indexes", FIELD_ARRAY, 0}, "each {key: {field: 1}, name, unique, ...}", .needed = true},
    {{0}}};
static const struct operation_field drop_indexes_fields[] = {
    {{"index", FIELD_VALUE, 0}, "the name or the key of the index, or \"*\"", .needed = true},
    {{0}}};
static const struct operation_field more_fields[] = {
    {{"collection", FIELD_TEXT, 0}, "the collection of the cursor", .needed = true},
    FIELD("batchSize", FIELD_NUMBER, "the number of documents in the reply"),
    {{0}}};
static const struct operation_field kill_fields[] = {
    {{"cursors", FIELD_ARRAY, 0}, "the ids of the cursors", .needed = true}, {{0}}};
static const struct operation_field list_fields[] = {
    FIELD("filter", FIELD_DOCUMENT, "the collections to list; absent: all"),
    FIELD("nameOnly", FIELD_FLAG, "return only names and types"),
    {{0}}};
static const struct operation_field explain_fields[] = {
    FIELD("verbosity", FIELD_TEXT, "queryPlanner, executionStats, or allPlansExecution"), {{0}}};
static const struct operation_field databases_fields[] = {
    FIELD("filter", FIELD_DOCUMENT, "the databases to list; absent: all"),
    FIELD("nameOnly", FIELD_FLAG, "return only names"),
    {{0}}};

#define DATA(variable, name_, role_, help_, target_, fields_)                                      \
    static const struct operation_row variable = {OPERATION(name_, role_, help_),                  \
                                                  .target = target_,                               \
                                                  .value = target_,                                \
                                                  .fields = fields_,                               \
                                                  .answer = "the reply of MongoDB's command",      \
                                                  .example = ""}

DATA(find_row, "find", ROLE_READ, "reads documents", "collection", find_fields);
DATA(insert_row, "insert", ROLE_WRITE, "inserts documents", "collection", insert_fields);
DATA(update_row, "update", ROLE_WRITE, "changes documents", "collection", update_fields);
DATA(delete_row, "delete", ROLE_WRITE, "removes documents", "collection", delete_fields);
DATA(modify_row, "findAndModify", ROLE_WRITE, "changes or removes one document, and returns it",
     "collection", modify_fields);
DATA(aggregate_row, "aggregate", ROLE_READ, "runs an aggregation pipeline", "collection",
     aggregate_fields);
DATA(count_row, "count", ROLE_READ, "counts documents", "collection", count_fields);
DATA(distinct_row, "distinct", ROLE_READ, "returns the distinct values of a field", "collection",
     distinct_fields);
DATA(more_row, "getMore", ROLE_READ, "returns more documents of a cursor", "cursor", more_fields);
DATA(kill_row, "killCursors", ROLE_READ, "closes cursors", "collection", kill_fields);
DATA(create_row, "create", ROLE_WRITE, "creates a collection", "collection", truce__no_fields);
DATA(drop_row, "drop", ROLE_WRITE, "drops a collection", "collection", truce__no_fields);
DATA(list_row, "listCollections", ROLE_READ, "lists the collections", NULL, list_fields);
DATA(indexes_row, "createIndexes", ROLE_WRITE, "creates indexes", "collection", indexes_fields);
DATA(drop_indexes_row, "dropIndexes", ROLE_WRITE, "drops indexes", "collection",
     drop_indexes_fields);
DATA(list_indexes_row, "listIndexes", ROLE_READ, "lists the indexes", "collection",
     truce__no_fields);
DATA(explain_row, "explain", ROLE_READ, "returns the plan of a command and its cost", "command",
     explain_fields);
DATA(databases_row, "listDatabases", ROLE_NONE, "lists the databases", NULL, databases_fields);
DATA(statistics_row, "collStats", ROLE_READ, "returns the size of a collection", "collection",
     truce__no_fields);
DATA(drop_database_row, "dropDatabase", ROLE_WRITE, "drops the database", NULL, truce__no_fields);
DATA(ping_row, "ping", ROLE_NONE, "answers whether the server runs", NULL, truce__no_fields);

const struct operation_row *const truce__data_rows[] = {
    &find_row,         &insert_row,  &update_row,    &delete_row,     &modify_row,
    &aggregate_row,    &count_row,   &distinct_row,  &more_row,       &kill_row,
    &create_row,       &drop_row,    &list_row,      &indexes_row,    &drop_indexes_row,
    &list_indexes_row, &explain_row, &databases_row, &statistics_row, &drop_database_row,
    &ping_row,         NULL};

const struct operation_row *truce__named_request_row(const char *name)
{
    for (const struct operation_row *const *at = truce__data_rows; *at; at++)
        if (!strcmp((*at)->name, name))
            return *at;
    return truce__operation_named(name);
}

/* ---- a request ------------------------------------------------------------------------------- */

static bool request_is_reserved(const char *name)
{
    static const char *const reserved[] = {"$db",     "$clusterTime",     "lsid",
                                           "stmtId",  "txnNumber",        "autocommit",
                                           "stmtIds", "startTransaction", "apiStrict"};

    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(name, reserved[i]))
            return true;
    return false;
}

/* Refuses a body without its target. A misspelled field is named first. */
static truce_status request_refuse_target(const struct operation_row *row, const bson_t *body,
                                          bson_error_t *error)
{
    bson_iter_t at;

    (void)bson_iter_init(&at, body);
    while (!strncmp(row->name, "truce", 5) && bson_iter_next(&at)) {
        const char *key = bson_iter_key(&at);
        const struct operation_field *field = row->fields;

        while (field->field.name && strcmp(field->field.name, key) != 0)
            field++;
        if (!field->field.name && !request_is_reserved(key))
            return truce__fail(TRUCE_INVALID, error,
                               "'%s' has no field '%.80s', and needs the field '%s': %s", row->name,
                               key, row->target, row->value);
    }
    return truce__fail(TRUCE_INVALID, error, "'%s' needs the field '%s': %s", row->name,
                       row->target, row->value);
}

/* Appends the first field of the operation. The body has its value under the name of the target, or
 * of the operation. */
static truce_status request_append_target(const struct operation_row *row, const bson_t *body,
                                          bson_t *command, bson_error_t *error)
{
    bool has_target = row->target && bson_has_field(body, row->target);
    const char *field = has_target ? row->target : row->name;
    bson_iter_t at, again;

    if (has_target && bson_has_field(body, row->name))
        return truce__fail(TRUCE_INVALID, error, "the fields '%s' and '%s' mean the same: give one",
                           row->target, row->name);
    if (bson_iter_init_find(&at, body, field)) {
        again = at;
        if (bson_iter_find(&again, field))
            return truce__fail(TRUCE_INVALID, error, "the field '%s' is given twice", field);
        BSON_APPEND_VALUE(command, row->name, bson_iter_value(&at));
        return TRUCE_OK;
    }
    if (row->target && !row->optional)
        return request_refuse_target(row, body, error);
    BSON_APPEND_INT32(command, row->name, 1);
    return TRUCE_OK;
}

truce_status truce__named_request_command(const struct operation_row *row, const char *database,
                                          const bson_t *body, bson_t *command, bson_error_t *error)
{
    truce_status status;
    bson_iter_t at;

    bson_init(command);
    status = request_append_target(row, body, command, error);
    (void)bson_iter_init(&at, body);
    while (!status && bson_iter_next(&at)) {
        const char *key = bson_iter_key(&at);

        if (!strcmp(key, row->name) || (row->target && !strcmp(key, row->target)))
            continue;
        if (request_is_reserved(key))
            status =
                truce__fail(TRUCE_INVALID, error, "the field '%.80s' is not allowed here", key);
        else
            bson_append_iter(command, key, -1, &at);
    }
    if (!status)
        BSON_APPEND_UTF8(command, "$db", database);
    return status;
}
