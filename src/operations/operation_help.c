/* truceHelp returns the contents of the rows, and truceAccess the permissions of the caller. */
#include <ctype.h>
#include <string.h>

#include "operations/operation.h"

static void help_append_words(const char *const *words, bson_t *one)
{
    bson_t list;
    char buffer[16];
    const char *key;

    BSON_APPEND_ARRAY_BEGIN(one, "words", &list);
    for (uint32_t i = 0; words[i]; i++) {
        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_UTF8(&list, key, words[i]);
    }
    bson_append_array_end(one, &list);
}

/* Appends the array `fields`: name, type, help, words, and bounds of each field of the row. */
static void help_append_fields(const struct operation_row *row, bson_t *reply)
{
    char buffer[16];
    const char *key;
    bson_t array, one;
    uint32_t i = 0;

    BSON_APPEND_ARRAY_BEGIN(reply, "fields", &array);
    for (const struct operation_field *at = row->fields; at->field.name; at++) {
        bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
        BCON_APPEND(&one, "name", BCON_UTF8(at->field.name), "type",
                    BCON_UTF8(truce__operation_type(at)), "needed", BCON_BOOL(at->needed), "help",
                    BCON_UTF8(at->help));
        if (at->words)
            help_append_words(at->words, &one);
        if (at->least || at->most)
            BCON_APPEND(&one, "least", BCON_INT64(at->least), "most", BCON_INT64(at->most));
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(reply, &array);
}

static bool help_writes(const struct operation_row *row)
{
    return row->role == ROLE_WRITE || row->role == ROLE_MAINTAIN || row->ways & OPERATION_WRITES;
}

/* Returns whether a package has the operation as this method: ledgerPost, ledger_post, and
 * LedgerPost are truceLedgerPost. */
static bool help_is_method(const char *operation, const char *method)
{
    for (operation += strlen("truce"); *operation; operation++, method++) {
        while (*method == '_')
            method++;
        if (tolower((uint8_t)*operation) != tolower((uint8_t)*method))
            return false;
    }
    return !*method;
}

static const struct operation_row *help_named(const char *name)
{
    const struct operation_row *row = truce__operation_named(name);

    for (const struct operation_group *group = truce__operation_groups; !row && group->title;
         group++)
        for (const struct operation_row *const *at = group->rows; !row && *at; at++)
            if (help_is_method((*at)->name, name))
                row = *at;
    return row;
}

/* Describes an operation. Fails with CommandNotFound, and a similar name if one exists. */
static truce_status help_of(const char *name, bson_t *reply, bson_error_t *error)
{
    const struct operation_row *row = help_named(name);
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    if (!row) {
        truce__operation_nearest(&nearest);
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error, "\"%.80s\" is not an operation%s", name,
                             nearest.best ? truce__nearest_word_hint(&nearest, hint)
                                          : ": the help without a name lists them");
    }
    BCON_APPEND(reply, "name", BCON_UTF8(row->name), "help", BCON_UTF8(row->help), "value",
                BCON_UTF8(row->value));
    if (row->target)
        BCON_APPEND(reply, "target", BCON_UTF8(row->target), "optional", BCON_BOOL(row->optional));
    help_append_fields(row, reply);
    BCON_APPEND(reply, "answer", BCON_UTF8(row->answer), "transaction",
                BCON_BOOL(row->ways & OPERATION_TRANSACTS), "again",
                BCON_BOOL(row->ways & OPERATION_REPEATABLE), "commit",
                BCON_BOOL(row->ways & OPERATION_COMMITS), "writes", BCON_BOOL(help_writes(row)),
                "example", BCON_UTF8(row->example));
    return TRUCE_OK;
}

static truce_status run_help(struct operation_call *call, const void *given, bson_t *reply,
                             bson_error_t *error)
{
    char buffer[16];
    const char *key;
    bson_t array, one;
    uint32_t i = 0;
    const char *name;
    truce_status status = truce__operation_optional_text(call, &name, error);

    (void)given;
    if (status || name)
        return status ? status : help_of(name, reply, error);
    BSON_APPEND_ARRAY_BEGIN(reply, "commands", &array);
    for (const struct operation_group *group = truce__operation_groups; group->title; group++)
        for (const struct operation_row *const *at = group->rows; *at; at++) {
            bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
            BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
            BCON_APPEND(&one, "name", BCON_UTF8((*at)->name), "group", BCON_UTF8(group->title),
                        "help", BCON_UTF8((*at)->help));
            bson_append_document_end(&array, &one);
        }
    bson_append_array_end(reply, &array);
    return TRUCE_OK;
}

const struct operation_row truce_help_operation = {
    OPERATION("truceHelp", ROLE_NONE, "lists the operations, or describes one of them"),
    .target = "name",
    .optional = true,
    .value = "1, or the name of an operation or of its method",
    .answer = "`commands`: an array of {name, group, help}; for one operation `help`, `fields`, "
              "`answer`, `transaction`, `example`",
    .fields = truce__no_fields,
    .run = run_help,
    .ways = OPERATION_TRANSACTS | OPERATION_REPEATABLE,
    .example = "{truceHelp: 'truceSet'}",
};

/* ---- truceAccess ----------------------------------------------------------------------------- */

/* Appends which roles the caller has, the database, and the version of truce. */
static truce_status run_access(struct operation_call *call, const void *given, bson_t *reply,
                               bson_error_t *error)
{
    static const struct {
        enum operation_role role;
        const char *name;
    } roles[] = {{ROLE_WRITE, "write"}, {ROLE_MONITOR, "monitor"}, {ROLE_MAINTAIN, "maintain"}};

    (void)given;
    (void)error;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        /* The refusal is the result, not a failure. */
        bson_error_t refusal;

        bson_append_bool(reply, roles[i].name, -1,
                         !call->host->check_role(call, roles[i].role, &refusal));
    }
    BCON_APPEND(reply, "database", BCON_UTF8(call->own_database), "version",
                BCON_UTF8(TRUCE_VERSION));
    return TRUCE_OK;
}

static const struct operation_row access_operation = {
    OPERATION("truceAccess", ROLE_READ, "returns what the caller may do in the database"),
    .value = "1",
    .answer =
        "`write`, `monitor`, `maintain`: whether the caller may write in the database, and examine "
        "or maintain the whole store. The own `database` of the store, and the `version`",
    .fields = truce__no_fields,
    .run = run_access,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceAccess: 1}",
};

const struct operation_row *const help_operations[] = {&truce_help_operation, &access_operation,
                                                       NULL};
