#include "server/pattern_command.h"

#include <stdio.h>
#include <string.h>

#include "bson/value.h"

static const struct pattern *const help_patterns[] = {&truce_help_pattern, NULL};

const struct pattern_group pattern_groups[] = {
    {"Help", "help", help_patterns},
    {"Commits, requests and sequences", "commit", commit_patterns},
    {"Ordered sets", "set", set_patterns},
    {"Documents that people edit, and items", "document", document_patterns},
    {"Queues", "queue", queue_patterns},
    {"Queues: what workers send", "job", job_patterns},
    {"Ledgers", "ledger", ledger_patterns},
    {"Transfers in two phases", "transfer", transfer_patterns},
    {"Copies kept in step", "sync", sync_patterns},
    {"Trees of versions", "tree", tree_patterns},
    {"The whole store", "store", care_patterns},
    {0}};

const struct pattern *pattern_named(const char *name)
{
    if (strncmp(name, "truce", 5) != 0)
        return NULL;
    for (const struct pattern_group *group = pattern_groups; group->title; group++)
        for (const struct pattern *const *at = group->patterns; *at; at++)
            if (!strcmp((*at)->command.name, name))
                return *at;
    return NULL;
}

const struct pattern *pattern_of(const struct command *command)
{
    return command && command->run == pattern_run ? (const struct pattern *)command : NULL;
}

const char *pattern_type(const struct pattern_field *field)
{
    static const char *const types[] = {
        [FIELD_TEXT] = "text",     [FIELD_DOCUMENT] = "document",
        [FIELD_ARRAY] = "array",   [FIELD_EITHER] = "document or array",
        [FIELD_NUMBER] = "number", [FIELD_FLAG] = "true or false",
        [FIELD_VALUE] = "any",     [FIELD_OID] = "ObjectId",
    };

    return types[field->field.type];
}

/* ---- what was sent ---------------------------------------------------------------------------- */

static truce_status check_field(const struct call *call, const struct pattern_field *field,
                                const void *given, bson_error_t *error)
{
    const uint8_t *at = (const uint8_t *)given + field->field.at;
    bson_iter_t iter;
    int64_t number;

    if (field->needed && (!bson_iter_init_find(&iter, &call->request->body, field->field.name) ||
                          BSON_ITER_HOLDS_NULL(&iter)))
        return truce__refuse(40414, error, "'%s' needs the field '%s': %s", call->command->name,
                             field->field.name, field->help);
    if (field->field.type != FIELD_NUMBER || (!field->least && !field->most))
        return TRUCE_OK;
    memcpy(&number, at, sizeof number);
    if (bson_iter_init_find(&iter, &call->request->body, field->field.name) &&
        !BSON_ITER_HOLDS_NULL(&iter) && (number < field->least || number > field->most))
        return truce__refuse(CODE_BAD_VALUE, error, "the field '%s' may be from %lld to %lld",
                             field->field.name, (long long)field->least, (long long)field->most);
    return TRUCE_OK;
}

static truce_status read_fields(struct call *call, const struct pattern *pattern, void *given,
                                bson_error_t *error)
{
    size_t count = 0;
    struct field *fields;
    truce_status status;

    while (pattern->fields[count].field.name)
        count++;
    fields = truce__arena_take(&call->arena, (count + 1) * sizeof *fields);
    for (size_t i = 0; i <= count; i++) {
        fields[i] = pattern->fields[i].field;
        if (fields[i].type == FIELD_NUMBER)
            fields[i].type = FIELD_WHOLE;
    }
    status = call_own_fields(call, fields, given, error);
    for (size_t i = 0; i < count && !status; i++)
        status = check_field(call, &pattern->fields[i], given, error);
    return status;
}

/* ---- the run ---------------------------------------------------------------------------------- */

/* MongoDB's codes for EXPIRED and NOT_FOUND are of cursors and collections; here a key is too old, a job somebody else's,
 * a guard does not match. */
static void name_failure(truce_status status, bson_error_t *error)
{
    bool ours = status == TRUCE_EXPIRED || status == TRUCE_NOT_FOUND;

    if (ours && error->domain != TRUCE_ERROR_SERVER) {
        error->domain = TRUCE_ERROR_SERVER;
        error->code = CODE_COMMAND_FAILED;
    }
}

truce_status pattern_run(struct call *call, bson_t *reply, bson_error_t *error)
{
    const struct pattern *pattern = pattern_of(call->command);
    void *given = truce__arena_take(&call->arena, pattern->size + 1);
    int64_t before = truce_deadline_begin(call->deadline_ms);
    truce_status status;

    memset(given, 0, pattern->size + 1);
    status = read_fields(call, pattern, given, error);
    if (!status)
        status = pattern->run(call, given, reply, error);
    truce_deadline_end(before);
    if (status && (status != TRUCE_NOT_FOUND || pattern->ways & PATTERN_STRICT)) {
        name_failure(status, error);
        return status;
    }
    BSON_APPEND_UTF8(reply, "status", truce_status_name(status));
    return TRUCE_OK;
}

/* What may be sent again is said so, in the word that drivers know; within a transaction they know another. */
void pattern_append_error(const struct pattern *pattern, truce_status status, bool transaction,
                          bson_t *reply)
{
    bool again = truce__unanswered(status) || status == TRUCE_LOCKED || status == TRUCE_TIMEOUT;

    BSON_APPEND_UTF8(reply, "status", truce_status_name(status));
    if (!transaction && again && pattern->ways & PATTERN_AGAIN)
        BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8("RetryableWriteError"), "]");
}

/* ---- names ------------------------------------------------------------------------------------ */

truce_status pattern_text(struct call *call, const char **text, bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "'%s' must be a text, %s, and is %s",
                             call->command->name, pattern_of(call->command)->value,
                             truce__type_name((uint8_t)bson_iter_type(&call->value)));
    *text = bson_iter_utf8(&call->value, NULL);
    return TRUCE_OK;
}

truce_status pattern_name(struct call *call, const char *text, const char **name,
                          bson_error_t *error)
{
    char *made;
    size_t size;

    *name = text;
    if (!text)
        return TRUCE_OK;
    if (strcmp(call->database, call->server->database) != 0) {
        size = strlen(call->database) + strlen(text) + 3;
        made = truce__arena_take(&call->arena, size);
        snprintf(made, size, "@%s.%s", call->database, text);
        *name = made;
    } else if (text[0] == '@') {
        return truce__refuse(CODE_BAD_VALUE, error,
                             "\"%.80s\" begins with @, which stands for other databases", text);
    }
    return TRUCE_OK;
}

const char *pattern_plain(const struct call *call, const char *name)
{
    return place_within(call->server->database, call->database, name);
}

truce_status pattern_place(struct call *call, const char *collection, bool writes,
                           const char **place, bson_error_t *error)
{
    char *made = truce__arena_take(&call->arena, PLACE_MAX);
    truce_status status = call_place_of(call, collection, made, error);

    if (!status)
        status = access_need_collection(call, call->database, collection, writes ? WRITES : READS,
                                        error);
    if (!status)
        status = view_refuse(call, call->database, collection, true, error);
    *place = made;
    return status;
}

truce_status pattern_queue_of(void *arg, const char *queue, const char **place, bson_error_t *error)
{
    struct call *call = arg;
    truce_status status = pattern_name(call, queue, place, error);

    return status ? status : access_need(call, call->database, WRITES, error);
}

void pattern_renamed_append(const struct call *call, const char *key, const bson_t *document,
                            const char *field, bson_t *to)
{
    bson_iter_t at;
    bson_t copy;

    BSON_APPEND_DOCUMENT_BEGIN(to, key, &copy);
    (void)bson_iter_init(&at, document);
    while (bson_iter_next(&at)) {
        const char *plain = NULL;

        if (!strcmp(bson_iter_key(&at), field) && BSON_ITER_HOLDS_UTF8(&at))
            plain = pattern_plain(call, bson_iter_utf8(&at, NULL));
        if (plain)
            BSON_APPEND_UTF8(&copy, field, plain);
        else
            BSON_APPEND_VALUE(&copy, bson_iter_key(&at), bson_iter_value(&at));
    }
    bson_append_document_end(to, &copy);
}

struct handle *pattern_handle(struct call *call, const char *key, handle_maker *make, void *arg,
                              void (*free)(void *thing))
{
    bool shared = call->store == call->server->store && strlen(key) <= TRUCE_SERVER_HANDLE_BYTES;

    return handles_take(call->server->handles, shared ? key : NULL, make, arg, free);
}

void pattern_give(struct call *call, struct handle *handle)
{
    handles_give(call->server->handles, handle);
}
