/*
 * Revisions, with their inbox, and items of arrays and maps.
 *
 * A change of a revision names the version that it is based on. If the document has another one,
 * the outcome is a conflict: a result with a `reason` and the fields that both sides changed. As a
 * part of a commit, a conflict is an error instead, because it must end the commit.
 *
 * truceItem changes items of one array or one map of a document in one atomic write.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bson/value.h"
#include "commit/commit.h"
#include "operations/operation.h"
#include "operations/reply_list.h"
#include "truce/item.h"
#include "truce/revision.h"

/* ---- the handle of revisions ----------------------------------------------------------------- */

/* The fields that name a handle of revisions. The struct of each operation that uses such a handle
 * begins with them. */
struct revision_named {
    const char *versionField;
    const bson_t *rules;
    bool strict, inbox;
    int64_t keep, keepMS;
};

#define REVISION_VERSION_FIELD                                                                     \
    {                                                                                              \
        GIVEN(revision_named, versionField, FIELD_TEXT),                                           \
            "the field with the number of the document; absent: \"version\""                       \
    }

/* `with` begins the help of a row whose other actions do not merge: "with merge: ". */
#define REVISION_MERGE_FIELDS(with)                                                                \
    {GIVEN(revision_named, rules, FIELD_DOCUMENT),                                                 \
     with "the policies of merges: {views: \"sum\", tags: \"union\", body: \"text\"}"},            \
    {                                                                                              \
        GIVEN(revision_named, strict, FIELD_FLAG),                                                 \
            with "merges only fields that one side alone changed"                                  \
    }

#define REVISION_KEEP_FIELDS                                                                       \
    {GIVEN(revision_named, keep, FIELD_NUMBER),                                                    \
     "the number of replaced versions that are kept for each document", 0, INT32_MAX},             \
    {                                                                                              \
        GIVEN(revision_named, keepMS, FIELD_DURATION),                                             \
            "with keep: the maximum age of kept versions in milliseconds; truceSweep removes "     \
            "older ones; "                                                                         \
            "absent: no maximum",                                                                  \
            1, DURATION_MAX_MS                                                                     \
    }

static void *make_revision(void *arg)
{
    const void *const *made = arg;

    return truce_revision_new((truce_store *)made[0], made[1]);
}

static void free_revision(void *revision)
{
    truce_revision_free(revision);
}

/* Finds the handle of the collection with these options. Its key contains all options. */
static truce_status take_revision(struct operation_call *call, const struct revision_named *given,
                                  bool writes, struct handle **handle, bson_error_t *error)
{
    truce_revision_options options = {.version = given->versionField,
                                      .rules = given->rules,
                                      .strict = given->strict,
                                      .inbox = given->inbox,
                                      .keep = (uint32_t)given->keep,
                                      .keep_ms = given->keepMS,
                                      .relaxed = call->relaxed};
    const void *made[2] = {call->store, &options};
    char *text, *rules, numbers[80];
    truce_status status = truce__operation_own_collection(call, writes, &options.collection, error);

    if (!status && given->keepMS && !given->keep)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'keepMS' needs 'keep': without it, no versions are kept");
    if (status)
        return status;
    rules = given->rules ? truce_json_write(given->rules, false, TRUCE_JSON_CANONICAL) : NULL;
    snprintf(numbers, sizeof numbers, "%d %d %d %u %lld", given->strict, given->inbox,
             call->relaxed, options.keep, (long long)options.keep_ms);
    text = truce__operation_key(
        "revision", (const char *const[]){options.collection, given->versionField, numbers, rules},
        4);
    *handle = truce__operation_handle(call, text, make_revision, made, free_revision);
    bson_free(rules);
    bson_free(text);
    return TRUCE_OK;
}

/* The number of a change whose request does not give one. */
#define NUMBER_NOT_GIVEN     INT64_MIN
#define CONFLICT_PATHS_SHOWN 3
#define CONFLICT_TEXT_MAX    420

/* Appends a list of the fields that both sides changed. */
static void document_show_paths(const bson_t *conflict, char *text, int length)
{
    struct value list = truce__value_field(truce__value_document(conflict), "conflicts", 9);
    struct fields fields;
    int count = 0;

    if (list.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(list);
    while (truce__fields_next(&fields) && count <= CONFLICT_PATHS_SHOWN &&
           length < CONFLICT_TEXT_MAX) {
        struct value path = truce__value_field(fields.value, "path", 4);
        const char *before = count ? ", " : ": both sides changed ";
        char shown[80];

        if (path.type != BSON_TYPE_UTF8 || !*truce__value_text(path, &(uint32_t){0}))
            continue;
        truce__value_show(path, shown, sizeof shown);
        length += snprintf(text + length, (size_t)(CONFLICT_TEXT_MAX - length), "%s%s", before,
                           count < CONFLICT_PATHS_SHOWN ? shown : "...");
        count++;
    }
}

/* Returns whether the version that the change is based on is no longer known. */
static bool document_lacks_base(const bson_t *conflict)
{
    bson_iter_t iter, kind;

    return bson_iter_init(&iter, conflict) &&
           bson_iter_find_descendant(&iter, "conflicts.0.kind", &kind) &&
           BSON_ITER_HOLDS_UTF8(&kind) && !strcmp(bson_iter_utf8(&kind, NULL), "no-base");
}

/* Sets the error that names the conflicting document and both numbers. `number` is the number in
 * the request. */
static void document_explain_conflict(const struct operation_call *call,
                                      const truce_revision_result *result, int64_t number,
                                      bson_error_t *error)
{
    struct value id = truce__value_field(truce__value_document(&result->document), "_id", 3);
    char shown[120], text[CONFLICT_TEXT_MAX], now[40] = "does not exist", based[240] = "";
    bson_t mine;
    int length;

    /* The document was removed, so its _id is that of `mine`. */
    if (!id.type && truce__value_subdocument(&result->conflict, "mine", &mine))
        id = truce__value_field(truce__value_document(&mine), "_id", 3);
    if (result->version != TRUCE_REVISION_NEW)
        snprintf(now, sizeof now, "has version %" PRId64, result->version);
    if (number == result->version)
        snprintf(based, sizeof based,
                 ", but the base differs: it is wrong, or another "
                 "program changed the document without a new version");
    else if (number == TRUCE_REVISION_NEW)
        snprintf(based, sizeof based,
                 ", and this change inserts a new document: to change the stored one, give the "
                 "version that you read");
    else if (!number && result->version == TRUCE_REVISION_NEW)
        snprintf(based, sizeof based,
                 ", and version 0 is for stored documents without a number: insert the document, "
                 "or save it without a version");
    else if (number == 0)
        snprintf(based, sizeof based,
                 ", and this change names version 0: give the version that you read");
    else if (number != NUMBER_NOT_GIVEN)
        snprintf(based, sizeof based, ", and this change is based on version %" PRId64, number);
    length = snprintf(text, sizeof text, "document %s of \"%.80s\" %s%s",
                      truce__value_show(id, shown, sizeof shown),
                      bson_iter_utf8(&call->target, NULL), now, based);
    if (!document_lacks_base(&result->conflict))
        document_show_paths(&result->conflict, text, length);
    else if (number > 0)
        snprintf(text + length, sizeof text - (size_t)length,
                 "%s: to merge, give 'base', or save with 'keep'",
                 number == result->version ? "" : ", which is no longer stored");
    (void)truce__fail(TRUCE_CONFLICT, error, "%s", text);
}

static void document_append_state(const truce_revision_result *result, bson_t *reply)
{
    BSON_APPEND_INT64(reply, "version", result->version);
    BSON_APPEND_DOCUMENT(reply, "document", &result->document);
    if (!bson_empty(&result->conflict))
        BSON_APPEND_DOCUMENT(reply, "conflict", &result->conflict);
}

/* Ends the commit with a conflict, because its caller sees the outcome of a part only after the
 * commit. The reply of the commit has the state of the document. */
static truce_status document_end_commit(const struct operation_call *call,
                                        const truce_revision_result *result)
{
    bson_t details = BSON_INITIALIZER;

    document_append_state(result, &details);
    truce__operation_detail(call, &details);
    bson_destroy(&details);
    call->commit->conflicts = true;
    return TRUCE_CONFLICT;
}

/* Appends the outcome of the change. */
static truce_status document_append_result(struct operation_call *call,
                                           const truce_revision_result *result, int64_t number,
                                           bson_t *reply, bson_error_t *error)
{
    static const bson_oid_t none;
    bool conflicts = result->outcome == TRUCE_REVISION_CONFLICT;

    if (conflicts)
        document_explain_conflict(call, result, number, error);
    if (conflicts && call->commit)
        return document_end_commit(call, result);
    BSON_APPEND_UTF8(reply, "outcome", truce_revision_outcome_name(result->outcome));
    if (conflicts)
        BSON_APPEND_UTF8(reply, "reason", call->host->message(call, error->message));
    document_append_state(result, reply);
    if (!bson_oid_equal(&result->inbox, &none))
        BSON_APPEND_OID(reply, "inbox", &result->inbox);
    return TRUCE_OK;
}

/* ---- truceRevision --------------------------------------------------------------------------- */

struct revision_given {
    struct revision_named named; /* Must be the first field: the table has offsets into it. */
    const bson_value_t *get, *remove;
    const bson_t *save, *merge, *base;
    int64_t version;
};

static const struct operation_field revision_fields[] = {
    {GIVEN(revision_given, get, FIELD_VALUE), "reads the document with this _id"},
    {GIVEN(revision_given, save, FIELD_DOCUMENT),
     "saves this whole document, with its _id, if no other save happened since"},
    {GIVEN(revision_given, merge, FIELD_DOCUMENT),
     "saves the document, merged with other saves since"},
    {GIVEN(revision_given, remove, FIELD_VALUE), "removes the document with this _id"},
    {GIVEN(revision_given, version, FIELD_NUMBER),
     "the number that was read, 0 if the document had none; absent or -1: the document is new. A "
     "number within the document is ignored",
     -1, INT64_MAX},
    {GIVEN(revision_given, base, FIELD_DOCUMENT),
     "the document that was read, with its `version`; absent: only the number is compared"},
    REVISION_VERSION_FIELD,
    REVISION_MERGE_FIELDS("with merge: "),
    {GIVEN(revision_named, inbox, FIELD_FLAG),
     "with merge: records conflicts that it cannot resolve (truceConflicts)"},
    REVISION_KEEP_FIELDS,
    {{0}}};

/* Refuses more than one action, and options that the action does not use. */
static truce_status revision_check(const struct operation_call *call,
                                   const struct revision_given *given, bson_error_t *error)
{
    static const char *const writing[] = {"version", "base", "rules",  "strict",
                                          "inbox",   "keep", "keepMS", NULL};
    int verbs = !!given->get + !!given->save + !!given->merge + !!given->remove;
    bool numbered = truce__operation_given(call, "version") && given->version >= 0;

    if (verbs != 1)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "give exactly one of 'get', 'save', 'merge', and 'remove': the request has %d", verbs);
    for (const char *const *field = writing; given->get && *field; field++)
        if (truce__operation_given(call, *field))
            return truce__refuse(
                CODE_INVALID_OPTIONS, error, "'%s' is not allowed with 'get'%s", *field,
                strcmp(*field, "version") ? "" : ": truceRevisionLog returns a stored version");
    if (!given->merge && (given->named.rules || given->named.strict || given->named.inbox))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'%s' is allowed only with 'merge': '%s' does not merge",
                             given->named.rules    ? "rules"
                             : given->named.strict ? "strict"
                                                   : "inbox",
                             given->save ? "save" : "remove");
    if (given->remove && !numbered)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'remove' needs 'version': the number that was read");
    if (given->base && !numbered)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'base' needs 'version': the number of the document that was read, 0 if it had none");
    return TRUCE_OK;
}

static truce_status get_revision(truce_revision *revision, const bson_value_t *id, bson_t *reply,
                                 bson_error_t *error)
{
    int64_t version = 0;
    bson_t document;
    truce_status status = truce_revision_get(revision, NULL, id, &document, &version, error);

    if (!status) {
        BSON_APPEND_INT64(reply, "version", version);
        BSON_APPEND_DOCUMENT(reply, "document", &document);
    }
    bson_destroy(&document);
    return status;
}

/* Saves, merges, or removes, whichever field is given. Without `version`, the document must not
 * exist. */
static truce_status write_revision(struct operation_call *call, truce_revision *revision,
                                   const struct revision_given *given, bson_t *reply,
                                   bson_error_t *error)
{
    bool has_number = truce__operation_given(call, "version");
    int64_t version = has_number ? given->version : TRUCE_REVISION_NEW;
    truce_revision_result result;
    truce_status status;

    if (given->save)
        status = truce_revision_save(revision, call->commit, given->save, version, given->base,
                                     &result, error);
    else if (given->merge)
        status = truce_revision_merge(revision, call->commit, given->merge, version, given->base,
                                      &result, error);
    else
        status = truce_revision_remove(revision, call->commit, given->remove, version, given->base,
                                       &result, error);
    if (!status)
        status = document_append_result(call, &result, version, reply, error);
    truce_revision_result_release(&result);
    return status;
}

static truce_status run_revision(struct operation_call *call, const void *arg, bson_t *reply,
                                 bson_error_t *error)
{
    const struct revision_given *given = arg;
    struct handle *handle;
    truce_status status = revision_check(call, given, error);

    if (!status)
        status = take_revision(call, &given->named, !given->get, &handle, error);
    if (status)
        return status;
    status = given->get ? get_revision(handle->thing, given->get, reply, error)
                        : write_revision(call, handle->thing, given, reply, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row revision_operation = {
    OPERATION("truceRevision", ROLE_READ,
              "reads a document with its number, saves it by that number, or merges it"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "the current `version` and `document`; -1 and an empty document if it does not exist. For "
        "a write also `outcome`: \"saved\", \"merged\", \"unchanged\", or \"conflict\". A conflict "
        "writes nothing, and has a `reason`, `conflict`, the differences of both sides, and "
        "`inbox`, its _id in the inbox. In a commit it is an error 112 with the same fields except "
        "`inbox`, and the commit changes nothing. \"not found\": the document to read does not "
        "exist",
    .fields = revision_fields,
    .size = sizeof(struct revision_given),
    .run = run_revision,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS | OPERATION_WRITES,
    .example = "{truceRevision: 'posts', save: {_id: 1, title: 'On truce', views: 0}}",
};

/* ---- truceRevisionPatch, truceRevisionDiff --------------------------------------------------- */

/* The words, in the order of truce_patch_kind. */
static const char *const patch_kinds[] = {"operators", "json", "merge", NULL};

static truce_patch_kind document_patch_kind(const char *word)
{
    return (truce_patch_kind)(TRUCE_PATCH_OPERATORS + truce__operation_choice(word, patch_kinds));
}

struct patch_given {
    struct revision_named named; /* Must be the first field: the table has offsets into it. */
    const bson_value_t *id;
    struct document_or_array patch;
    const char *kind;
    int64_t version;
};

static const struct operation_field patch_fields[] = {
    {GIVEN(patch_given, id, FIELD_VALUE), "the _id of the document", .needed = true},
    {GIVEN(patch_given, patch, FIELD_EITHER), "the patch; an array for \"json\"", .needed = true},
    {GIVEN(patch_given, kind, FIELD_TEXT),
     "the format: MongoDB's update operators, RFC 6902, or RFC 7396; absent: \"operators\"",
     .words = patch_kinds},
    {GIVEN(patch_given, version, FIELD_NUMBER),
     "the number that was read: a document with another one is a conflict, and is not merged; "
     "absent: the current document, whatever its number",
     0, INT64_MAX},
    REVISION_VERSION_FIELD,
    REVISION_KEEP_FIELDS,
    {{0}}};

static truce_status document_run_patch(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct patch_given *given = arg;
    truce_patch_kind kind = document_patch_kind(given->kind);
    bool has_number = truce__operation_given(call, "version");
    truce_revision_result result;
    struct handle *handle;
    truce_status status;

    if (given->patch.is_array != (kind == TRUCE_PATCH_JSON))
        return truce__refuse(
            CODE_TYPE_MISMATCH, error,
            "'patch' must be an array with 'kind' \"json\", else a document, not %s",
            given->patch.is_array ? "an array" : "a document");
    status = take_revision(call, &given->named, true, &handle, error);
    if (status)
        return status;
    status = truce_revision_patch(handle->thing, call->commit, given->id, given->version,
                                  !has_number, kind, given->patch.document, &result, error);
    if (!status)
        status = document_append_result(
            call, &result, has_number ? given->version : NUMBER_NOT_GIVEN, reply, error);
    truce_revision_result_release(&result);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row patch_operation = {
    OPERATION("truceRevisionPatch", ROLE_WRITE, "applies a patch to a document, and saves it"),
    .target = "collection",
    .value = "the collection",
    .answer = "as in truceRevision. \"not found\": the document does not exist",
    .fields = patch_fields,
    .size = sizeof(struct patch_given),
    .run = document_run_patch,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceRevisionPatch: 'posts', id: 1, kind: 'merge', patch: {title: 'On truces'}}",
};

struct diff_given {
    const bson_t *before, *after;
    const char *kind;
};

static const struct operation_field diff_fields[] = {
    {GIVEN(diff_given, before, FIELD_DOCUMENT), "a document", .needed = true},
    {GIVEN(diff_given, after, FIELD_DOCUMENT), "another document", .needed = true},
    {GIVEN(diff_given, kind, FIELD_TEXT), "the format, as in truceRevisionPatch",
     .words = patch_kinds},
    {{0}}};

static truce_status document_run_diff(struct operation_call *call, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct diff_given *given = arg;
    truce_patch_kind kind = document_patch_kind(given->kind);
    bson_t patch;
    truce_status status = truce_revision_diff(given->before, given->after, kind, &patch, error);

    (void)call;
    if (!status && kind == TRUCE_PATCH_JSON)
        BSON_APPEND_ARRAY(reply, "patch", &patch);
    else if (!status)
        BSON_APPEND_DOCUMENT(reply, "patch", &patch);
    bson_destroy(&patch);
    return status;
}

static const struct operation_row diff_operation = {
    OPERATION("truceRevisionDiff", ROLE_READ,
              "computes the patch that changes one document into another"),
    .value = "1",
    .answer = "`patch`. An error: 2 (invalid) a merge patch cannot express the difference",
    .fields = diff_fields,
    .size = sizeof(struct diff_given),
    .run = document_run_diff,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceRevisionDiff: 1, before: {n: 1}, after: {n: 2}}",
};

/* ---- truceRevisionLog ------------------------------------------------------------------------ */

struct log_given {
    struct revision_named named; /* Must be the first field: the table has offsets into it. */
    const bson_value_t *id;
    int64_t version, limit;
};

static const struct operation_field log_fields[] = {
    {GIVEN(log_given, id, FIELD_VALUE), "the _id of the document", .needed = true},
    {GIVEN(log_given, version, FIELD_NUMBER), "only this version", 0, INT64_MAX},
    {GIVEN(log_given, limit, FIELD_NUMBER), "the maximum number of versions; absent: 100", 1,
     REPLY_LIST_MAX},
    REVISION_VERSION_FIELD,
    {{0}}};

static truce_status document_look_up(truce_revision *revision, const struct log_given *given,
                                     bson_t *reply, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce_revision_at(revision, given->id, given->version, &document, error);

    if (!status)
        BSON_APPEND_DOCUMENT(reply, "document", &document);
    bson_destroy(&document);
    return status;
}

static truce_status document_list_log(truce_revision *revision, const struct log_given *given,
                                      bson_t *reply, bson_error_t *error)
{
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status = truce_revision_log(revision, given->id, &cursor, error);

    truce__reply_list_begin(&list, given->limit);
    if (!status)
        status = truce__reply_list_read(&list, cursor, error);
    return truce__reply_list_end(&list, status, "versions", reply);
}

static truce_status document_run_log(struct operation_call *call, const void *arg, bson_t *reply,
                                     bson_error_t *error)
{
    const struct log_given *given = arg;
    bool one = truce__operation_given(call, "version");
    struct handle *handle;
    truce_status status = TRUCE_OK;

    if (one && given->limit)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'limit' is not allowed with 'version', which returns one version");
    if (!status &&
        (given->id->value_type == BSON_TYPE_ARRAY || given->id->value_type == BSON_TYPE_REGEX ||
         given->id->value_type == BSON_TYPE_UNDEFINED))
        status =
            truce__refuse(CODE_BAD_VALUE, error, "the field 'id' is %s: an _id has any other type",
                          truce__type_name((uint8_t)given->id->value_type));
    if (!status)
        status = take_revision(call, &given->named, false, &handle, error);
    if (status)
        return status;
    status = one ? document_look_up(handle->thing, given, reply, error)
                 : document_list_log(handle->thing, given, reply, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row log_operation = {
    OPERATION("truceRevisionLog", ROLE_READ,
              "lists the kept versions of a document, the newest first, or returns one"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`versions`: each {_id: {id, version}, at, until, document}, and `more`: true if others "
        "exist. With `version`, `document`. \"not found\": the version is not kept",
    .fields = log_fields,
    .size = sizeof(struct log_given),
    .run = document_run_log,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceRevisionLog: 'posts', id: 1, limit: 20}",
};

/* ---- the inbox ------------------------------------------------------------------------------- */

struct conflicts_given {
    struct revision_named named; /* Must be the first field: the table has offsets into it. */
    const bson_oid_t *conflict;
};

static const struct operation_field conflicts_fields[] = {
    {GIVEN(conflicts_given, conflict, FIELD_OID), "only the conflict with this _id"},
    REVISION_VERSION_FIELD,
    REVISION_MERGE_FIELDS(""),
    {{0}}};

/* Appends the conflicts of the cursor that fit into the reply, and omits the others. */
static truce_status append_conflicts(struct operation_call *call, truce_cursor *cursor,
                                     bson_t *reply, bson_error_t *error)
{
    const bson_t *entry = NULL;
    truce_status status;
    uint32_t i = 0;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(reply, "conflicts", &array);
    while (!(status = truce_cursor_next(cursor, &entry, error)) && entry) {
        char buffer[16];
        const char *key;

        if (i && array.len + entry->len > TRUCE_DOCUMENT_BYTES_MAX)
            break;
        bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT(&array, key, entry);
    }
    bson_append_array_end(reply, &array);
    return status;
}

static truce_status append_conflict(truce_revision *revision, const bson_oid_t *conflict,
                                    bson_t *reply, bson_error_t *error)
{
    bson_t entry, array;
    truce_status status = truce_revision_conflict(revision, conflict, &entry, error);

    if (!status) {
        BSON_APPEND_ARRAY_BEGIN(reply, "conflicts", &array);
        BSON_APPEND_DOCUMENT(&array, "0", &entry);
        bson_append_array_end(reply, &array);
    }
    bson_destroy(&entry);
    return status;
}

static truce_status document_run_conflicts(struct operation_call *call, const void *arg,
                                           bson_t *reply, bson_error_t *error)
{
    const struct conflicts_given *given = arg;
    truce_cursor *cursor;
    struct handle *handle;
    truce_status status = take_revision(call, &given->named, false, &handle, error);

    if (status)
        return status;
    if (given->conflict) {
        status = append_conflict(handle->thing, given->conflict, reply, error);
    } else if (!(status = truce_revision_conflicts(handle->thing, &cursor, error))) {
        status = append_conflicts(call, cursor, reply, error);
        truce_cursor_close(cursor);
    }
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row conflicts_operation = {
    OPERATION("truceConflicts", ROLE_READ,
              "lists the open conflicts of a collection, the oldest first"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`conflicts`: each {_id, id, at, version, base, mine, theirs, conflicts: [{path, "
        "kind, ...}]}, compared with the current document; as many as a reply has room for. \"not "
        "found\": `conflict` is not open",
    .fields = conflicts_fields,
    .size = sizeof(struct conflicts_given),
    .run = document_run_conflicts,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceConflicts: 'posts'}",
};

struct resolve_given {
    struct revision_named named; /* Must be the first field: the table has offsets into it. */
    const bson_oid_t *conflict;
    const char *take;
    const bson_t *document, *seen;
};

/* The words, in the order of truce_resolution. */
static const char *const resolutions[] = {"mine", "theirs", "document", NULL};

static const struct operation_field resolve_fields[] = {
    {GIVEN(resolve_given, conflict, FIELD_OID), "the _id of the conflict", .needed = true},
    {GIVEN(resolve_given, take, FIELD_TEXT),
     "the side that wins where both differ, or the given document", .needed = true,
     .words = resolutions},
    {GIVEN(resolve_given, document, FIELD_DOCUMENT), "with \"document\": the whole document"},
    {GIVEN(resolve_given, seen, FIELD_DOCUMENT),
     "the conflict as it was shown, or only its {version}; absent: as it was last returned"},
    REVISION_VERSION_FIELD,
    REVISION_MERGE_FIELDS(""),
    REVISION_KEEP_FIELDS,
    {{0}}};

static truce_status document_run_resolve(struct operation_call *call, const void *arg,
                                         bson_t *reply, bson_error_t *error)
{
    const struct resolve_given *given = arg;
    truce_resolution resolution =
        (truce_resolution)(TRUCE_RESOLVE_MINE + truce__operation_choice(given->take, resolutions));
    truce_revision_result result;
    struct handle *handle;
    truce_status status;

    if ((resolution == TRUCE_RESOLVE_DOCUMENT) != (given->document != NULL))
        return truce__refuse(
            CODE_BAD_VALUE, error,
            "'document' is required with 'take' \"document\", and not allowed otherwise");
    status = take_revision(call, &given->named, true, &handle, error);
    if (status)
        return status;
    status = truce_revision_resolve(handle->thing, call->commit, given->conflict, resolution,
                                    given->document, given->seen, &result, error);
    if (!status)
        status = document_append_result(call, &result, NUMBER_NOT_GIVEN, reply, error);
    truce_revision_result_release(&result);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row resolve_operation = {
    OPERATION("truceResolve", ROLE_WRITE, "resolves a conflict"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "as in truceRevision. With the outcome \"conflict\", the conflict stays open, compared "
        "with the current document. \"not found\": no such open conflict exists",
    .fields = resolve_fields,
    .size = sizeof(struct resolve_given),
    .run = document_run_resolve,
    .ways = OPERATION_COMMITS,
    .example =
        "{truceResolve: 'posts', conflict: {$oid: '0123456789abcdef01234567'}, take: 'mine'}",
};

/* ---- truceItem ------------------------------------------------------------------------------- */

struct item_given {
    const char *field, *identity, *versionField;
    const bson_t *filter, *query, *update, *add, *replace, *upsert;
    bool map, remove;
};

static const struct operation_field item_fields[] = {
    {GIVEN(item_given, field, FIELD_TEXT), "the array or map, by its path: \"badges\"",
     .needed = true},
    {GIVEN(item_given, identity, FIELD_TEXT), "the field that identifies an item: \"type\"",
     .needed = true},
    {GIVEN(item_given, filter, FIELD_DOCUMENT), "the first document that matches is changed",
     .needed = true},
    {GIVEN(item_given, query, FIELD_DOCUMENT), "the items that change; {}: all"},
    {GIVEN(item_given, update, FIELD_DOCUMENT),
     "with `query`: operators, with paths that begin at the item"},
    {GIVEN(item_given, remove, FIELD_FLAG), "with `query`: removes these items"},
    {GIVEN(item_given, add, FIELD_DOCUMENT),
     "appends this item, unless an item with its identity exists"},
    {GIVEN(item_given, replace, FIELD_DOCUMENT),
     "replaces the item with its identity, in its position"},
    {GIVEN(item_given, upsert, FIELD_DOCUMENT), "replaces the item with its identity, or adds it"},
    {GIVEN(item_given, map, FIELD_FLAG),
     "with add and upsert: documents without items get a map instead of an array"},
    {GIVEN(item_given, versionField, FIELD_TEXT),
     "the field with the number of the document, which every change increments"},
    {{0}}};

static void *make_item(void *arg)
{
    const void *const *made = arg;

    return truce_item_new((truce_store *)made[0], made[1]);
}

static void free_item(void *item)
{
    truce_item_free(item);
}

/* Checks that the request has exactly one verb, `query` where the verb needs it, and no option that
 * the verb does not use. */
static truce_status document_check_item(const struct item_given *given, bson_error_t *error)
{
    int verbs = !!given->update + given->remove + !!given->add + !!given->replace + !!given->upsert;

    if (verbs != 1)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "give exactly one of 'update', 'remove', 'add', 'replace', and 'upsert': the request "
            "has %d",
            verbs);
    if ((given->update || given->remove) && !given->query)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'query' must select the items; {} selects all");
    if ((given->add || given->upsert) && given->query)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'query' is not allowed with 'add' and 'upsert': they find the item by its identity");
    if (given->map && !given->add && !given->upsert)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'map' is allowed only with 'add' and 'upsert': other changes keep the "
            "layout of the document");
    return TRUCE_OK;
}

/* Runs the one change that the request has. The caller has checked that it has exactly one. */
static truce_status document_change_item(struct operation_call *call, truce_item *item,
                                         const struct item_given *given, truce_item_result *result,
                                         bson_error_t *error)
{
    if (given->update)
        return truce_item_update(item, call->commit, given->filter, given->query, given->update,
                                 result, error);
    if (given->remove)
        return truce_item_remove(item, call->commit, given->filter, given->query, result, error);
    if (given->add)
        return truce_item_add(item, call->commit, given->filter, given->add, result, error);
    if (given->replace)
        return truce_item_replace(item, call->commit, given->filter, given->query, given->replace,
                                  result, error);
    return truce_item_upsert(item, call->commit, given->filter, given->upsert, result, error);
}

/* Finds the handle of the items with these options. Its key contains all options. */
static truce_status document_take_item(struct operation_call *call, const struct item_given *given,
                                       struct handle **handle, bson_error_t *error)
{
    truce_item_options options = {.field = given->field,
                                  .identity = given->identity,
                                  .version = given->versionField,
                                  .layout = given->map ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY,
                                  .relaxed = call->relaxed};
    const void *made[2] = {call->store, &options};
    char *text, flags[20];
    truce_status status = truce__operation_own_collection(call, true, &options.collection, error);

    if (status)
        return status;
    snprintf(flags, sizeof flags, "%d %d", given->map, call->relaxed);
    text = truce__operation_key("item",
                                (const char *const[]){options.collection, given->field,
                                                      given->identity, given->versionField, flags},
                                5);
    *handle = truce__operation_handle(call, text, make_item, made, free_item);
    bson_free(text);
    return TRUCE_OK;
}

static truce_status run_item(struct operation_call *call, const void *arg, bson_t *reply,
                             bson_error_t *error)
{
    const struct item_given *given = arg;
    truce_item_result result = {0};
    struct handle *handle;
    truce_status status = document_check_item(given, error);

    if (!status)
        status = document_take_item(call, given, &handle, error);
    if (status)
        return status;
    status = document_change_item(call, handle->thing, given, &result, error);
    truce__operation_return(call, handle);
    if (!status)
        BCON_APPEND(reply, "matched", BCON_INT64(result.matched), "modified",
                    BCON_INT64(result.modified), "added", BCON_BOOL(result.added));
    return status;
}

static const struct operation_row item_operation = {
    OPERATION("truceItem", ROLE_WRITE, "changes items of an array or a map in one atomic write"),
    .target = "collection",
    .value = "the collection",
    .answer = "`matched`, `modified`: numbers of items; `added`: whether an item was added. \"not "
              "found\": no document matches",
    .fields = item_fields,
    .size = sizeof(struct item_given),
    .run = run_item,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceItem: 'employees', filter: {_id: 1}, field: 'badges', identity: 'type', "
               "upsert: {type: 'MENTOR', since: 2026}}",
};

/* ---- truceItemIndex, truceItemConvert -------------------------------------------------------- */

struct item_layout_given {
    struct item_given item; /* Must be the first field; only its names are read. */
    const char *path;
    const bson_t *keys;
};

#define ITEM_LAYOUT_FIELDS                                                                         \
    {GIVEN(item_given, field, FIELD_TEXT), "the array or map, by its path: \"badges\"",            \
     .needed = true},                                                                              \
        {GIVEN(item_given, identity, FIELD_TEXT), "the field that identifies an item: \"type\"",   \
         .needed = true},                                                                          \
    {                                                                                              \
        GIVEN(item_given, map, FIELD_FLAG), "true: maps; absent: arrays"                           \
    }

static const struct operation_field item_index_fields[] = {
    ITEM_LAYOUT_FIELDS,
    {GIVEN(item_layout_given, path, FIELD_TEXT),
     "the field of the items; for maps, it needs `keys`; absent: for arrays the identity, for maps "
     "the whole item"},
    {GIVEN(item_layout_given, keys, FIELD_ARRAY),
     "for maps: the identities that get an index; absent: a wildcard index over the whole map"},
    {{0}}};

static truce_item_layout document_layout(const struct item_layout_given *given)
{
    return given->item.map ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY;
}

/* Refuses options that the layout does not use. */
static truce_status document_check_index(const struct item_layout_given *given, bson_error_t *error)
{
    if (given->keys && !given->item.map)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'keys' is allowed only with 'map': an array has one index for all "
                             "items");
    if (given->keys && bson_empty(given->keys))
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'keys' is empty: name the identities that get an index, or omit it "
                             "for an index over the whole map");
    if (given->path && given->item.map && !given->keys)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'path' needs 'keys' with 'map': without keys, one index has all "
                             "fields of all items");
    return TRUCE_OK;
}

static truce_status document_run_item_index(struct operation_call *call, const void *arg,
                                            bson_t *reply, bson_error_t *error)
{
    const struct item_layout_given *given = arg;
    struct handle *handle;
    truce_status status = document_check_index(given, error);

    (void)reply;
    if (!status)
        status = document_take_item(call, &given->item, &handle, error);
    if (status)
        return status;
    status =
        truce_item_index(handle->thing, document_layout(given), given->path, given->keys, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row item_index_operation = {
    OPERATION("truceItemIndex", ROLE_WRITE, "creates an index on a field of items"),
    .target = "collection",
    .value = "the collection",
    .answer = "nothing more. An error: 2 (invalid) the store does not support wildcard indexes",
    .fields = item_index_fields,
    .size = sizeof(struct item_layout_given),
    .run = document_run_item_index,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceItemIndex: 'employees', field: 'badges', identity: 'type'}",
};

static const struct operation_field item_convert_fields[] = {ITEM_LAYOUT_FIELDS, {{0}}};

static truce_status document_run_item_convert(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct item_layout_given *given = arg;
    truce_item_converted converted = {0};
    bson_error_t why = {0};
    struct handle *handle;
    truce_status status = document_take_item(call, &given->item, &handle, error);

    if (status)
        return status;
    status = truce_item_convert(handle->thing, document_layout(given), &converted, &why, error);
    truce__operation_return(call, handle);
    if (status)
        return status;
    BCON_APPEND(reply, "documents", BCON_INT64(converted.documents), "refused",
                BCON_INT64(converted.refused));
    if (converted.refused)
        BSON_APPEND_UTF8(reply, "failure", call->host->message(call, why.message));
    return TRUCE_OK;
}

static const struct operation_row item_convert_operation = {
    OPERATION("truceItemConvert", ROLE_WRITE,
              "converts the items of all documents from arrays to maps, or back"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`documents` that were converted; `refused`: the number of documents left unchanged, "
        "because an item has no identity or two items have the same; `failure`: the first reason",
    .fields = item_convert_fields,
    .size = sizeof(struct item_layout_given),
    .run = document_run_item_convert,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceItemConvert: 'employees', field: 'badges', identity: 'type', map: true}",
};

const struct operation_row *const document_operations[] = {
    &revision_operation,     &patch_operation,
    &diff_operation,         &log_operation,
    &conflicts_operation,    &resolve_operation,
    &item_operation,         &item_index_operation,
    &item_convert_operation, NULL};
