/*
 * The reply of a command that failed: MongoDB's code, the message, and the labels that show a
 * driver whether to retry.
 *
 * Clients look for MongoDB's words and fields in two cases. The message of the store has all that
 * they need, so they are read from it:
 *
 *     duplicate key {"email": "a@b"} in the unique index "email_1" {"email": 1} of people
 *             ^values                                        ^name     ^pattern
 *     -> errmsg: "E11000 duplicate key error ...", keyPattern, keyValue
 *
 *     the document {"_id": 7} does not match the validator of people
 *                  ^id
 *     -> errmsg: "Document failed validation ...", errInfo: {failingDocumentId}
 *
 * Values in the message are relaxed Extended JSON, so a number has the smallest type that fits. A
 * value that is too long for the message ends with "..."; then keyValue or failingDocumentId is
 * missing.
 */
#include "server/call/call_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bson/json.h"
#include "server/call/call.h"

/* ---- a duplicate key ------------------------------------------------------------------------- */

/* A part of a message, which it borrows. */
struct part {
    const char *at;
    size_t size;
};

/* Cuts off the part of `*text` before the string `end`, and moves `*text` after `end`. */
static bool duplicate_take(const char **text, const char *end, struct part *part)
{
    const char *found = strstr(*text, end);

    if (!found)
        return false;
    *part = (struct part){*text, (size_t)(found - *text)};
    *text = found + strlen(end);
    return true;
}

/* Returns NULL if the part is not a complete document. The document borrows from the reader. */
static const bson_t *duplicate_read_document(struct json_reader *reader, struct part json,
                                             bson_t *document)
{
    bson_error_t error;

    return truce__json_read(reader, json.at, json.size, document, NULL, &error) ? NULL : document;
}

static void duplicate_write_fields(struct buffer *out, bson_iter_t *fields, bool named);

/* Writes a value in the syntax of MongoDB's shell. */
static void duplicate_write_value(struct buffer *out, const bson_iter_t *value)
{
    char text[48], hex[25];
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_OID(value)) {
        bson_oid_to_string(bson_iter_oid(value), hex);
        snprintf(text, sizeof text, "ObjectId('%s')", hex);
        truce__buffer_append_text(out, text);
    } else if (BSON_ITER_HOLDS_DATE_TIME(value)) {
        snprintf(text, sizeof text, "new Date(%" PRId64 ")", bson_iter_date_time(value));
        truce__buffer_append_text(out, text);
    } else if ((BSON_ITER_HOLDS_DOCUMENT(value) || BSON_ITER_HOLDS_ARRAY(value)) &&
               bson_iter_recurse(value, &inner)) {
        duplicate_write_fields(out, &inner, BSON_ITER_HOLDS_DOCUMENT(value));
    } else {
        truce__json_write_value(out, value, JSON_RELAXED);
    }
}

/* Writes the fields of a duplicate key as MongoDB does: { email: "a@b", of: ObjectId('65f0...'),
 * list: [ 1, 2.0 ] }. */
static void duplicate_write_fields(struct buffer *out, bson_iter_t *fields, bool named)
{
    const char *before = named ? "{ " : "[ ";

    while (bson_iter_next(fields)) {
        truce__buffer_append_text(out, before);
        before = ", ";
        if (named) {
            truce__buffer_append_text(out, bson_iter_key(fields));
            truce__buffer_append_text(out, ": ");
        }
        duplicate_write_value(out, fields);
    }
    truce__buffer_append_text(out, *before != ',' ? (named ? "{}" : "[]") : named ? " }" : " ]");
}

/* The parts of the message: duplicate key VALUES in the unique index "NAME" PATTERN of
 * COLLECTION. */
struct duplicate {
    struct part values, name, pattern;
    const char *collection;
};

/* Splits the store's message of a duplicate key into its parts, which borrow from it. Returns false
 * for any other message. */
static bool duplicate_read_message(const char *at, struct duplicate *duplicate)
{
    if (strncmp(at, "duplicate key ", 14) != 0)
        return false;
    at += 14;
    if (!duplicate_take(&at, " in the unique index \"", &duplicate->values) ||
        !duplicate_take(&at, "\" {", &duplicate->name))
        return false;
    at--; /* Moves back, so that the brace is read again. */
    if (!duplicate_take(&at, "} of ", &duplicate->pattern))
        return false;
    duplicate->pattern.size++;
    duplicate->collection = at;
    return true;
}

/* Appends the message of a duplicate key in MongoDB's form, which drivers and ODMs parse. */
static void duplicate_append_errmsg(const struct duplicate *duplicate, const char *database,
                                    const bson_t *values, bson_t *reply)
{
    struct buffer text = {0};
    const char *collection = duplicate->collection;
    bson_iter_t fields;

    truce__buffer_append_text(&text, "E11000 duplicate key error collection: ");
    if (*collection == '@') {
        collection++;
    } else {
        truce__buffer_append_text(&text, database);
        truce__buffer_append_text(&text, ".");
    }
    truce__buffer_append_text(&text, collection);
    truce__buffer_append_text(&text, " index: ");
    truce__buffer_append(&text, duplicate->name.at, duplicate->name.size);
    truce__buffer_append_text(&text, " dup key: ");
    if (values && bson_iter_init(&fields, values))
        duplicate_write_fields(&text, &fields, true);
    else
        truce__buffer_append(&text, duplicate->values.at, duplicate->values.size);
    bson_append_utf8(reply, "errmsg", -1, (const char *)text.bytes, (int)text.size);
    truce__buffer_release(&text);
}

static void duplicate_append_document(bson_t *reply, const char *name, const bson_t *document)
{
    if (document)
        bson_append_document(reply, name, -1, document);
}

bool call_append_duplicate_key(const char *message, const char *database, bson_t *reply)
{
    struct json_reader readers[2] = {{.typed = false}, {.typed = false}};
    bson_t documents[2];
    const bson_t *pattern, *values;
    struct duplicate duplicate;

    if (!duplicate_read_message(message, &duplicate))
        return false;
    pattern = duplicate_read_document(&readers[0], duplicate.pattern, &documents[0]);
    values = duplicate_read_document(&readers[1], duplicate.values, &documents[1]);
    duplicate_append_errmsg(&duplicate, database, values, reply);
    duplicate_append_document(reply, "keyPattern", pattern);
    duplicate_append_document(reply, "keyValue", values);
    truce__json_reader_release(&readers[0]);
    truce__json_reader_release(&readers[1]);
    return true;
}

/* ---- a document that a validator refused ----------------------------------------------------- */

/* Appends the _id that the store's message shows as failingDocumentId. Appends nothing if the
 * message has cut it off. */
static void refused_append_id(const char *message, bson_t *info)
{
    static const char before[] = "the document ", after[] = " does not match the validator";
    const char *from = strstr(message, before), *to = strstr(message, after);
    struct json_reader reader = {0};
    bson_error_t error;
    bson_iter_t id;
    bson_t document;

    if (!from || !to || to <= from + strlen(before))
        return;
    from += strlen(before);
    if (!truce__json_read(&reader, from, (size_t)(to - from), &document, NULL, &error) &&
        bson_iter_init_find(&id, &document, "_id"))
        bson_append_iter(info, "failingDocumentId", -1, &id);
    truce__json_reader_release(&reader);
}

static void refused_append(const char *message, bson_t *reply)
{
    char *text = bson_strdup_printf("Document failed validation: %s", message);
    bson_t info, details;

    BSON_APPEND_UTF8(reply, "errmsg", text);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "errInfo", &info);
    refused_append_id(message, &info);
    BSON_APPEND_DOCUMENT_BEGIN(&info, "details", &details);
    BSON_APPEND_UTF8(&details, "reason", "the document does not match the validator");
    bson_append_document_end(&info, &details);
    bson_append_document_end(reply, &info);
    bson_free(text);
}

/* ---- any error ------------------------------------------------------------------------------- */

uint32_t call_code(truce_status status, const bson_error_t *error)
{
    static const uint32_t codes[] = {
        [TRUCE_NOT_FOUND] = CODE_NAMESPACE_NOT_FOUND,
        [TRUCE_CONFLICT] = CODE_WRITE_CONFLICT,
        [TRUCE_LOCKED] = CODE_LOCK_TIMEOUT,
        [TRUCE_UNKNOWN] = CODE_UNKNOWN_ERROR,
        [TRUCE_DUPLICATE] = CODE_DUPLICATE_KEY,
        [TRUCE_EXPIRED] = CODE_CURSOR_KILLED,
        [TRUCE_INVALID] = CODE_BAD_VALUE,
        [TRUCE_LIMIT] = CODE_EXCEEDED_MEMORY_LIMIT,
        [TRUCE_IO] = CODE_UNKNOWN_ERROR,
        [TRUCE_CORRUPT] = CODE_UNKNOWN_ERROR,
        [TRUCE_TIMEOUT] = CODE_MAX_TIME_MS_EXPIRED,
        [TRUCE_REFUSED] = CODE_ILLEGAL_OPERATION,
    };

    return error->domain == TRUCE_ERROR_SERVER ? error->code : codes[status];
}

const char *call_message(struct call *call, const char *message)
{
    char *text = truce__arena_copy(&call->arena, message, strlen(message) + 1), *at = text;
    size_t length = strlen(call->database);

    while ((at = strchr(at, '@')) != NULL) {
        if (!strncmp(at + 1, call->database, length) && at[1 + length] == '.')
            memmove(at, at + 1, strlen(at));
        at++;
    }
    return text;
}

void call_append_message(struct call *call, bson_t *reply, const bson_error_t *error)
{
    if (error->code == CODE_DOCUMENT_VALIDATION_FAILURE)
        refused_append(call_message(call, error->message), reply);
    else if (error->code != CODE_DUPLICATE_KEY ||
             !call_append_duplicate_key(
                 error->message,
                 call->command->append_error ? call->database : call->server->database, reply))
        BSON_APPEND_UTF8(reply, "errmsg", call_message(call, error->message));
}

/* Returns whether the code is one of those after which MongoDB's drivers try again. */
static bool error_is_retryable(uint32_t code)
{
    static const uint32_t codes[] = {6,    7,     89,    91,    189,   262,
                                     9001, 10107, 11600, 11602, 13435, 13436};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* Returns whether the transaction was aborted and may be run again from its beginning. */
static bool error_is_transient(uint32_t code, bool ends)
{
    if (code == CODE_NO_SUCH_TRANSACTION || code == CODE_WRITE_CONFLICT ||
        code == CODE_SNAPSHOT_TOO_OLD || code == CODE_LOCK_TIMEOUT || code == 246 || code == 267)
        return true;
    return !ends && error_is_retryable(code);
}

static bool error_ends_transaction(const struct call *call)
{
    return call->command && (!strcmp(call->command->name, "commitTransaction") ||
                             !strcmp(call->command->name, "abortTransaction"));
}

/* Returns the label that says whether a driver may resume the change stream, or NULL if there is
 * none. */
static const char *error_stream_label(uint32_t code)
{
    if (code == CODE_CHANGE_STREAM_FATAL || code == CODE_CHANGE_STREAM_HISTORY_LOST ||
        code == CODE_BSON_OBJECT_TOO_LARGE)
        return "NonResumableChangeStreamError";
    /* Codes 133 FailedToSatisfyReadPreference, 150 StaleEpoch, and 234 RetryChangeStream. */
    return error_is_retryable(code) || code == 133 || code == 150 || code == 234
               ? "ResumableChangeStreamError"
               : NULL;
}

void call_append_labels(const struct call *call, bson_t *reply, uint32_t code, bool concern)
{
    const struct call_session *session = &call->session;
    bool ends = error_ends_transaction(call);
    const char *label = NULL;

    if (call->labels) {
        if (bson_count_keys(call->labels))
            BSON_APPEND_ARRAY(reply, "errorLabels", call->labels);
        return;
    }
    if (call->follows)
        label = error_stream_label(code);
    else if (session->number < 0)
        return;
    else if (session->transaction && !concern && error_is_transient(code, ends))
        label = "TransientTransactionError";
    else if (!session->transaction && call->unknown)
        label = "RetryableWriteError";
    else if ((!session->transaction || ends) && error_is_retryable(code))
        label = "RetryableWriteError";
    else if (session->transaction && call->unknown)
        label = "UnknownTransactionCommitResult";
    if (label)
        BCON_APPEND(reply, "errorLabels", "[", BCON_UTF8(label), "]");
}

void call_append_mismatch(const struct uuid_mismatch *mismatch, bson_t *reply)
{
    BSON_APPEND_UTF8(reply, "db", mismatch->database);
    BSON_APPEND_BINARY(reply, "collectionUUID", BSON_SUBTYPE_UUID, mismatch->uuid,
                       sizeof mismatch->uuid);
    BSON_APPEND_UTF8(reply, "expectedCollection", mismatch->expected);
    if (mismatch->actual)
        BSON_APPEND_UTF8(reply, "actualCollection", mismatch->actual);
    else
        BSON_APPEND_NULL(reply, "actualCollection");
}

void call_append_error(struct call *call, bson_t *reply, truce_status status,
                       const bson_error_t *error)
{
    uint32_t code = call_code(status, error);

    if (call->session.transaction && code == CODE_CURSOR_KILLED)
        code = CODE_SNAPSHOT_TOO_OLD;
    if (code == CODE_INTERRUPTED && server_is_stopping(call->server))
        code = CODE_INTERRUPTED_AT_SHUTDOWN;
    metrics_failed(call->server->metrics, code);
    BSON_APPEND_DOUBLE(reply, "ok", 0);
    call_append_message(call, reply, error);
    BSON_APPEND_INT32(reply, "code", (int32_t)code);
    BSON_APPEND_UTF8(reply, "codeName", truce_error_name(code));
    if (code == CODE_COLLECTION_UUID_MISMATCH && call->mismatch)
        call_append_mismatch(call->mismatch, reply);
    call_append_labels(call, reply, code, false);
    if (call->concern) /* As in MongoDB, the reply reports both errors. */
        BSON_APPEND_DOCUMENT(reply, "writeConcernError", call->concern);
    if (call->command && call->command->append_error)
        call->command->append_error(call, status, code, reply);
}
