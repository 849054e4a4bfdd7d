#include "server/pattern/pattern_command.h"

#include <stdio.h>
#include <string.h>

#include "bson/value.h"
#include "store/decorators/database.h"

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

static truce_status command_check_field(const struct call *call, const struct pattern_field *field,
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

static truce_status command_read_fields(struct call *call, const struct pattern *pattern,
                                        void *given, bson_error_t *error)
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
        status = command_check_field(call, &pattern->fields[i], given, error);
    return status;
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

truce_status pattern_collection(struct call *call, const char *collection, bool writes,
                                bson_error_t *error)
{
    char place[PLACE_MAX];
    truce_status status = call_place_of(call, collection, place, error);

    if (!status)
        status = access_need_collection(call, call->database, collection, writes ? WRITES : READS,
                                        error);
    return status ? status : view_refuse(call, call->database, collection, true, error);
}

truce_status pattern_own_collection(struct call *call, bool writes, const char **collection,
                                    bson_error_t *error)
{
    truce_status status = pattern_text(call, collection, error);

    return status ? status : pattern_collection(call, *collection, writes, error);
}

truce_status pattern_guard(void *arg, const char *collection, bool reads, bson_error_t *error)
{
    return pattern_collection(arg, collection, !reads, error);
}

/* ---- the database ----------------------------------------------------------------------------- */

static void *command_make_view(void *arg)
{
    struct call *call = arg;

    return truce__database_open(call->store, call->server->database, call->database);
}

static void free_view(void *view)
{
    truce_store_close(view);
}

static bool command_is_shared(const struct call *call)
{
    return call->store == call->server->store;
}

struct handle *pattern_handle(struct call *call, const char *key, handle_maker *make, void *arg,
                              void (*free)(void *thing))
{
    bool shared = key && command_is_shared(call) && strlen(key) <= TRUCE_SERVER_HANDLE_BYTES;
    char *whole = shared ? bson_strdup_printf("%s\n%s", call->database, key) : NULL;
    struct handle *handle =
        handles_take(call->server->handles, whole, make, arg, free, call->view_handle);

    bson_free(whole);
    return handle;
}

void pattern_give(struct call *call, struct handle *handle)
{
    handles_give(call->server->handles, handle);
}

static void view_begin(struct call *call)
{
    call->view_handle =
        handles_take(call->server->handles, command_is_shared(call) ? call->database : NULL,
                     command_make_view, call, free_view, NULL);
    call->view = call->view_handle->thing;
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
    status = command_read_fields(call, pattern, given, error);
    if (!status) {
        view_begin(call);
        status = pattern->run(call, given, reply, error);
        pattern_give(call, call->view_handle);
    }
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
