#include "operations/operation.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/deadline.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/time_check.h"
#include "bson/value.h"
#include "store/decorators/database_view.h"
#include "store/namespace_map.h"
#include "store/reserved_names.h"

#define FIELD_NAME_MAX 80

const struct operation_field truce__no_fields[] = {{{0}}};

const char *truce__operation_type(const struct operation_field *field)
{
    static const char *const types[] = {
        [FIELD_TEXT] = "string",   [FIELD_DOCUMENT] = "document",
        [FIELD_ARRAY] = "array",   [FIELD_EITHER] = "document or array",
        [FIELD_NUMBER] = "number", [FIELD_FLAG] = "true or false",
        [FIELD_VALUE] = "any",     [FIELD_OID] = "ObjectId",
        [FIELD_TIME] = "number",   [FIELD_DURATION] = "number",
    };

    return types[field->field.type];
}

/* ---- the fields of a request ----------------------------------------------------------------- */

static bool operation_has(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && !BSON_ITER_HOLDS_NULL(&iter);
}

bool truce__operation_given(const struct operation_call *call, const char *field)
{
    return operation_has(call->request, field);
}

int truce__operation_choice(const char *word, const char *const *words)
{
    int i = 0;

    while (word && words[i] && strcmp(word, words[i]) != 0)
        i++;
    return words[i] ? i : -1;
}

/* Fails with the list of all words if the field does not allow this one. */
static truce_status operation_check_word(const struct operation_field *field, const char *word,
                                         bson_error_t *error)
{
    struct buffer all = {0};
    truce_status status;

    if (truce__operation_choice(word, field->words) >= 0)
        return TRUCE_OK;
    for (const char *const *at = field->words; *at; at++) {
        truce__buffer_append_text(&all, at == field->words       ? "\""
                                        : at[1]                  ? ", \""
                                        : at == field->words + 1 ? " or \""
                                                                 : ", or \"");
        truce__buffer_append_text(&all, *at);
        truce__buffer_append_text(&all, "\"");
    }
    truce__buffer_append_byte(&all, 0);
    status = truce__refuse(CODE_BAD_VALUE, error, "the field '%s' must be %s, not \"%.80s\"",
                           field->field.name, (const char *)all.bytes, word);
    truce__buffer_release(&all);
    return status;
}

/* Checks a number that the row bounds. */
static truce_status operation_check_number(const struct operation_field *field, int64_t number,
                                           bson_error_t *error)
{
    char quoted[FIELD_NAME_MAX + 3];

    snprintf(quoted, sizeof quoted, "'%.*s'", FIELD_NAME_MAX, field->field.name);
    if (field->field.type == FIELD_TIME)
        return truce__time_check(quoted, number, error);
    if (field->field.type == FIELD_DURATION && truce__duration_check(quoted, number, error))
        return TRUCE_INVALID;
    if (number >= field->least && number <= field->most)
        return TRUCE_OK;
    return truce__refuse(CODE_BAD_VALUE, error,
                         "the field '%s' must be from %" PRId64 " to %" PRId64 "%s, not %" PRId64,
                         field->field.name, field->least, field->most,
                         field->field.type == FIELD_DURATION ? " ms" : "", number);
}

/* Checks a field that was read: that a needed field is given, and the words or bounds of the
 * row. */
static truce_status operation_check_field(const struct operation_call *call, const bson_t *document,
                                          const struct operation_field *field, const void *given,
                                          bson_error_t *error)
{
    const uint8_t *at = (const uint8_t *)given + field->field.at;
    bool is_given = operation_has(document, field->field.name);
    const char *word;
    int64_t number;

    if (field->needed && !is_given)
        return truce__refuse(40414, error, "'%s' needs the field '%s': %s", call->row->name,
                             field->field.name, field->help);
    if (!is_given)
        return TRUCE_OK;
    if (field->words) {
        memcpy(&word, at, sizeof word);
        return operation_check_word(field, word, error);
    }
    if (!(field->least || field->most) ||
        (field->field.type != FIELD_NUMBER && field->field.type != FIELD_TIME &&
         field->field.type != FIELD_DURATION))
        return TRUCE_OK;
    memcpy(&number, at, sizeof number);
    return operation_check_number(field, number, error);
}

static truce_status operation_read(struct operation_call *call, const bson_t *document, bool whole,
                                   const struct field *fields, void *into, bson_error_t *error)
{
    const struct fields_reading reading = {
        .arena = call->arena, .command = call->row->name, .whole = whole, .request = call->request};

    return truce__fields_read(&reading, document, fields, into, error);
}

truce_status truce__operation_fields(struct operation_call *call, const bson_t *document,
                                     const struct field *fields, void *into, bson_error_t *error)
{
    return operation_read(call, document, false, fields, into, error);
}

/* Reads the fields of the rows into `given` and checks them. A FIELD_NUMBER is read as FIELD_WHOLE,
 * because operations never round a number. */
static truce_status operation_read_rows(struct operation_call *call, const bson_t *document,
                                        bool whole, const struct operation_field *rows, void *given,
                                        bson_error_t *error)
{
    size_t count = 0;
    struct field *fields;
    truce_status status;

    while (rows[count].field.name)
        count++;
    fields = truce__arena_take(call->arena, (count + 1) * sizeof *fields);
    for (size_t i = 0; i <= count; i++) {
        fields[i] = rows[i].field;
        if (fields[i].type == FIELD_NUMBER)
            fields[i].type = FIELD_WHOLE;
    }
    status = operation_read(call, document, whole, fields, given, error);
    for (size_t i = 0; i < count && !status; i++)
        status = operation_check_field(call, document, &rows[i], given, error);
    return status;
}

/* Reads the fields of the request into a struct of the row, in the arena. */
static truce_status operation_read_request(struct operation_call *call, const void **given,
                                           bson_error_t *error)
{
    const struct operation_row *row = call->row;
    void *into = truce__arena_take(call->arena, row->size + 1);

    memset(into, 0, row->size + 1);
    *given = into;
    return operation_read_rows(call, call->request, true, row->fields, into, error);
}

truce_status truce__operation_nested(struct operation_call *call, const bson_t *document,
                                     const struct operation_field *rows, void *given,
                                     bson_error_t *error)
{
    return operation_read_rows(call, document, false, rows, given, error);
}

/* ---- names ----------------------------------------------------------------------------------- */

truce_status truce__operation_text(struct operation_call *call, const char **text,
                                   bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->target))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "'%s' must be a string, %s, not %s",
                             call->row->name, call->row->value,
                             truce__type_name((uint8_t)bson_iter_type(&call->target)));
    *text = bson_iter_utf8(&call->target, NULL);
    return TRUCE_OK;
}

static bool operation_target_is_one(const struct operation_call *call)
{
    int64_t number;

    return truce__field_to_whole(&call->target, &number) && number == 1;
}

truce_status truce__operation_optional_text(struct operation_call *call, const char **text,
                                            bson_error_t *error)
{
    char shown[60];

    *text = NULL;
    if (operation_target_is_one(call))
        return TRUCE_OK;
    if (truce__field_is_number(&call->target))
        return truce__refuse(
            CODE_BAD_VALUE, error, "'%s' must be a string or 1 (%s), not %s", call->row->name,
            call->row->value,
            truce__value_show(truce__value_of_iter(&call->target), shown, sizeof shown));
    return truce__operation_text(call, text, error);
}

/* Refuses a name for an operation that has no target: {truceQueues: "mail"} would return all
 * queues. */
static truce_status operation_check_target(const struct operation_call *call, bson_error_t *error)
{
    char shown[80];

    if (call->row->target || operation_target_is_one(call) ||
        (BSON_ITER_HOLDS_BOOL(&call->target) && bson_iter_bool(&call->target)))
        return TRUCE_OK;
    return truce__refuse(
        CODE_BAD_VALUE, error, "'%s' must be 1, not %s", call->row->name,
        truce__value_show(truce__value_of_iter(&call->target), shown, sizeof shown));
}

truce_status truce__operation_oid(struct operation_call *call, const bson_oid_t **id,
                                  bson_error_t *error)
{
    if (truce__field_to_oid(call->arena, &call->target, id))
        return TRUCE_OK;
    return truce__refuse(CODE_TYPE_MISMATCH, error,
                         "the %s of %s must be an ObjectId or its 24 hexadecimal digits, not %s",
                         call->row->target, call->row->name,
                         truce__type_name((uint8_t)bson_iter_type(&call->target)));
}

truce_status truce__operation_collection(struct operation_call *call, const char *collection,
                                         bool writes, bson_error_t *error)
{
    if (writes && truce__reserved(collection))
        return truce__fail(TRUCE_INVALID, error, "the collection \"%.100s\" is reserved for truce",
                           collection);
    return call->host->check_collection(call, collection, writes, error);
}

truce_status truce__operation_own_collection(struct operation_call *call, bool writes,
                                             const char **collection, bson_error_t *error)
{
    truce_status status = truce__operation_text(call, collection, error);

    return status ? status : truce__operation_collection(call, *collection, writes, error);
}

/* ---- objects of the library ------------------------------------------------------------------ */

char *truce__operation_key(const char *kind, const char *const *options, size_t count)
{
    bson_string_t *key = bson_string_new(kind);

    for (size_t i = 0; i < count; i++)
        if (options[i])
            bson_string_append_printf(key, "\n%zu:%s", strlen(options[i]), options[i]);
        else
            bson_string_append(key, "\n-");
    return bson_string_free(key, false);
}

struct handle *truce__operation_handle(struct operation_call *call, const char *key,
                                       handle_maker *make, void *arg, void (*free)(void *thing))
{
    bool shared = key && !call->transaction && strlen(key) <= TRUCE_SERVER_HANDLE_BYTES;
    char *whole = shared ? bson_strdup_printf("%s\n%s", call->database, key) : NULL;
    struct handle *handle = handles_take(call->handles, whole, make, arg, free, call->view);

    bson_free(whole);
    return handle;
}

/* ---- objects that live as long as the commit ------------------------------------------------- */

/* An object, or a handle (`free` is NULL), to release when the commit has ended. In the arena of
 * the call. */
struct operation_cleanup {
    struct operation_cleanup *next;
    void (*free)(void *thing);
    void *thing;
};

static void operation_add_cleanup(struct operation_call *call, void (*free)(void *thing),
                                  void *thing)
{
    struct operation_cleanup *cleanup = truce__arena_take(call->arena, sizeof *cleanup);

    *cleanup = (struct operation_cleanup){*call->cleanups, free, thing};
    *call->cleanups = cleanup;
}

void truce__operation_end(struct operation_call *call, void (*free)(void *thing), void *thing)
{
    if (call->cleanups)
        operation_add_cleanup(call, free, thing);
    else
        free(thing);
}

void truce__operation_return(struct operation_call *call, struct handle *handle)
{
    if (call->cleanups)
        operation_add_cleanup(call, NULL, handle);
    else
        handles_return(call->handles, handle);
}

void truce__operation_release(const struct operation_call *outer,
                              struct operation_cleanup *cleanups)
{
    for (; cleanups; cleanups = cleanups->next)
        if (cleanups->free)
            cleanups->free(cleanups->thing);
        else
            handles_return(outer->handles, cleanups->thing);
}

/* ---- the database ---------------------------------------------------------------------------- */

static void *operation_make_view(void *arg)
{
    const struct operation_call *call = arg;

    return truce__database_open(call->whole, call->own_database, call->database);
}

static void operation_free_view(void *view)
{
    truce_store_close(view);
}

static void operation_enter_database(struct operation_call *call)
{
    call->view = handles_take(call->handles, call->transaction ? NULL : call->database,
                              operation_make_view, call, operation_free_view, NULL);
    call->store = call->view->thing;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Sets the code CommandFailed for EXPIRED and NOT_FOUND, because MongoDB's codes for them are about
 * cursors and collections. In an operation, they mean that a key is too old, another worker has the
 * job, or a document is missing. */
static void operation_name_failure(truce_status status, bson_error_t *error)
{
    bool ours = status == TRUCE_EXPIRED || status == TRUCE_NOT_FOUND;

    if (ours && error->domain != TRUCE_ERROR_SERVER) {
        error->domain = TRUCE_ERROR_SERVER;
        error->code = CODE_COMMAND_FAILED;
    }
}

/* Adds that the database is empty, if it is another one than the store's own: a misspelled name in
 * the URI of a client is the name of another database. */
static void operation_name_empty_database(const struct operation_call *call, bson_error_t *error)
{
    const truce_list_options options = {.unmeasured = true};
    bson_t collections;
    size_t length = strlen(error->message);

    if (call->transaction || !strcmp(call->database, call->own_database))
        return;
    if (!truce_collection_list(call->store, &options, &collections, NULL) &&
        bson_empty(&collections))
        snprintf(error->message + length, sizeof error->message - length,
                 ": the database \"%.64s\" is empty", call->database);
    bson_destroy(&collections);
}

/* Refuses writes of patterns to the databases of MongoDB's own data. A client with another
 * authentication database than its own writes to admin by mistake. */
static truce_status operation_check_database(const struct operation_call *call, bson_error_t *error)
{
    if (call->row->role != ROLE_WRITE || !truce__database_is_system(call->database) ||
        !strcmp(call->database, call->own_database))
        return TRUCE_OK;
    return truce__refuse(CODE_INVALID_NAMESPACE, error,
                         "%s cannot write to \"%s\", the database of the server's own data: name "
                         "a database of your program, for example in the path of the URI",
                         call->row->name, call->database);
}

truce_status truce__operation_run(struct operation_call *call, bson_t *reply, bson_error_t *error)
{
    const struct operation_row *row = call->row;
    int64_t before = truce_deadline_begin(call->deadline_ms);
    const void *given;
    truce_status status;

    error->message[0] = '\0';
    status = operation_check_target(call, error);
    if (!status)
        status = operation_check_database(call, error);
    if (!status)
        status = operation_read_request(call, &given, error);
    if (!status) {
        operation_enter_database(call);
        status = row->run(call, given, reply, error);
        if (status == TRUCE_NOT_FOUND && row->ways & OPERATION_STRICT)
            operation_name_empty_database(call, error);
        handles_return(call->handles, call->view);
    }
    truce_deadline_end(before);
    if (status && (status != TRUCE_NOT_FOUND || row->ways & OPERATION_STRICT)) {
        operation_name_failure(status, error);
        return status;
    }
    BSON_APPEND_UTF8(reply, "status", truce_status_name(status));
    if (status)
        BSON_APPEND_UTF8(reply, "reason", call->host->message(call, error->message));
    return TRUCE_OK;
}

/* ---- a part of a commit ---------------------------------------------------------------------- */

/* Prepares a change of a list as a call of its own, with the environment of the outer call. Fails
 * with INVALID, naming the change, if it is not an operation, or cannot be part of a commit or of the
 * transaction around it. A field such as maxTimeMS, which would have no effect, is refused, too.
 * Otherwise, fails with the error of the role check. */
static truce_status operation_begin_part(const struct operation_call *outer, int number,
                                         const bson_t *request, struct operation_call *part,
                                         bson_error_t *error)
{
    bson_iter_t at;

    *part = *outer;
    part->request = request;
    (void)bson_iter_init(&part->target, request);
    part->row = bson_iter_next(&part->target) ? outer->find(bson_iter_key(&part->target)) : NULL;
    if (!part->row)
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: \"%.80s\" is not an operation: {truceHelp: 1} lists them",
                           number, bson_iter_key(&part->target));
    at = part->target;
    if (!(part->row->ways & OPERATION_COMMITS))
        return truce__fail(TRUCE_INVALID, error, "change %d: %s cannot be part of a commit", number,
                           part->row->name);
    if (outer->transaction && !(part->row->ways & OPERATION_TRANSACTS))
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "change %d: %s is not allowed in a transaction of the driver: send "
                             "this commit outside of the transaction",
                             number, part->row->name);
    while (bson_iter_next(&at))
        if (truce__field_is_common(bson_iter_key(&at)) &&
            strcmp(bson_iter_key(&at), "comment") != 0)
            return truce__fail(TRUCE_INVALID, error,
                               "change %d: the field '%s' belongs to the whole command, not to one "
                               "of its changes",
                               number, bson_iter_key(&at));
    return outer->host->check_role(part, part->row->role, error);
}

truce_status truce__operation_element(truce_status status, const char *what, int64_t number,
                                      bson_error_t *error)
{
    char message[sizeof error->message];

    snprintf(message, sizeof message, "%s", error->message);
    snprintf(error->message, sizeof error->message, "%s %" PRId64 ": %.470s", what, number,
             message);
    return status;
}

truce_status truce__operation_check_part(const struct operation_call *outer, int number,
                                         const bson_t *request, bson_error_t *error)
{
    struct operation_call part;

    return operation_begin_part(outer, number, request, &part, error);
}

truce_status truce__operation_add(const struct operation_call *outer, int number,
                                  const bson_t *request, truce_commit *commit,
                                  struct operation_cleanup **cleanups, bson_t *reply,
                                  bson_error_t *error)
{
    struct operation_call part;
    truce_status status = operation_begin_part(outer, number, request, &part, error);
    const void *given;

    if (status)
        return status;
    part.commit = commit;
    part.cleanups = cleanups;
    status = operation_read_request(&part, &given, error);
    return status ? status : part.row->run(&part, given, reply, error);
}

/* ---- failures -------------------------------------------------------------------------------- */

truce_status truce__class_of_code(uint32_t code)
{
    switch (code) {
    case CODE_NO_SUCH_TRANSACTION:
    case CODE_PREPARED_TRANSACTION_IN_PROGRESS:
        return TRUCE_CONFLICT;
    case CODE_LOCK_TIMEOUT:
        return TRUCE_LOCKED;
    case CODE_HOST_UNREACHABLE:
    case CODE_HOST_NOT_FOUND:
    case CODE_UNKNOWN_ERROR:
    case CODE_WRITE_CONCERN_FAILED:
    case CODE_NETWORK_TIMEOUT:
    case CODE_SHUTDOWN_IN_PROGRESS:
    case CODE_PRIMARY_STEPPED_DOWN:
    case CODE_SOCKET_EXCEPTION:
    case CODE_INTERRUPTED_AT_SHUTDOWN:
    case CODE_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE:
        return TRUCE_UNKNOWN;
    case CODE_CURSOR_KILLED:
    case CODE_SNAPSHOT_TOO_OLD:
    case CODE_SNAPSHOT_UNAVAILABLE:
        return TRUCE_EXPIRED;
    case CODE_OVERFLOW:
        return TRUCE_LIMIT;
    case CODE_READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET:
    case CODE_NOT_WRITABLE_PRIMARY:
    case CODE_NOT_PRIMARY_NO_SECONDARY_OK:
    case CODE_NOT_PRIMARY_OR_SECONDARY:
        return TRUCE_IO;
    case CODE_EXCEEDED_TIME_LIMIT:
        return TRUCE_TIMEOUT;
    default:
        return truce__status_of_code(code);
    }
}

const char *truce__class_name(truce_status status, uint32_t code)
{
    return code == CODE_UNAUTHORIZED ? "not authorized" : truce_status_name(status);
}

void truce__operation_detail(const struct operation_call *call, const bson_t *fields)
{
    bson_t *details = truce__arena_take(call->arena, sizeof *details);
    const uint8_t *bytes = truce__arena_copy(call->arena, bson_get_data(fields), fields->len);

    truce_assert(bson_init_static(details, bytes, fields->len));
    *call->details = details;
}

/* Appends `status` and labels to the reply. Drivers recognize the label that says that the
 * operation may be repeated. In a transaction, another label says so. */
void truce__operation_append_error(const struct operation_row *row, truce_status status,
                                   uint32_t code, bool transaction, bson_t *reply)
{
    bool again = truce__unanswered(status) || status == TRUCE_LOCKED || status == TRUCE_TIMEOUT;

    BSON_APPEND_UTF8(reply, "status", truce__class_name(status, code));
    if (!transaction && again && row->ways & OPERATION_REPEATABLE)
        BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8("RetryableWriteError"), "]");
}
