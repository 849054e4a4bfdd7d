/* Denormalized copies: rules, writes of sources and dependents, and divergence. */
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "operations/operation.h"
#include "operations/reply_list.h"
#include "truce/sync.h"

/* The maximum number of findings in one reply. */
#define FINDINGS_MAX 1000

/* Makes the handle for rules of copies. The calls of a database share one handle, except those in a
 * transaction. It caches the rules for SYNC_FRESH_MS, or until the structure of the store
 * changes. */
static void *make_sync(void *arg)
{
    return truce_sync_new(arg, NULL);
}

static void free_sync(void *sync)
{
    truce_sync_free(sync);
}

static struct handle *take_sync(struct operation_call *call)
{
    return truce__operation_handle(call, "sync", make_sync, call->store, free_sync);
}

/* ---- truceSyncDeclare, truceSyncDrop --------------------------------------------------------- */

struct declare_given {
    const char *source, *dependent, *reference;
    const bson_t *copies;
    int64_t resumeMS, settleMS;
};

static const struct operation_field declare_fields[] = {
    {GIVEN(declare_given, source, FIELD_TEXT), "the collection of the sources", .needed = true},
    {GIVEN(declare_given, dependent, FIELD_TEXT),
     "the collection of the dependents; it may be the same", .needed = true},
    {GIVEN(declare_given, reference, FIELD_TEXT),
     "the field of a dependent with the _id of its source: \"user\"", .needed = true},
    {GIVEN(declare_given, copies, FIELD_DOCUMENT),
     "{\"field of the dependent\": \"field of the source\"}", .needed = true},
    {GIVEN(declare_given, resumeMS, FIELD_DURATION),
     "the recovery pass completes an update after this time in milliseconds; absent: 60,000", 1,
     INT32_MAX},
    {GIVEN(declare_given, settleMS, FIELD_DURATION),
     "the command waits this long, in milliseconds, until all other processes have seen the rule; "
     "absent: 5,000; 1 if no other process uses the store",
     1, 60000},
    {{0}}};

/* A search for a field that no document has reads the whole collection. */
#define DECLARE_SCAN_MS 1000

/* Returns whether a collection has no document with the field. `path` may be NULL, for any
 * document. */
static bool declare_is_missing(const struct operation_call *call, const char *collection,
                               const char *path)
{
    const truce_find_options options = {.deadline_ms = DECLARE_SCAN_MS};
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status;

    if (path)
        BCON_APPEND(&filter, path, "{", "$exists", BCON_BOOL(true), "}");
    status = truce_find_one(call->store, collection, &filter, &options, &found, NULL);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND;
}

static void declare_note_field(const struct operation_call *call, const char *collection,
                               const char *path, bson_string_t *note)
{
    if (declare_is_missing(call, collection, path))
        bson_string_append_printf(note, "%sno document of %s has \"%s\"", note->len ? "; " : "",
                                  collection, path);
}

/* Appends a note about the names of the rule that no document has. A rule may be declared before
 * its documents exist, so an empty collection is noted only if the other one has documents. */
static void declare_append_note(const struct operation_call *call, const truce_sync_rule *rule,
                                bson_t *reply)
{
    const bool no_source = declare_is_missing(call, rule->source, NULL),
               no_dependent = declare_is_missing(call, rule->dependent, NULL);
    bson_string_t *note = bson_string_new("");
    bson_iter_t iter;

    if (no_source != no_dependent)
        bson_string_append_printf(note, "%s has no documents",
                                  no_source ? rule->source : rule->dependent);
    if (!no_dependent)
        declare_note_field(call, rule->dependent, rule->reference, note);
    for (bson_iter_init(&iter, rule->copies); !no_source && bson_iter_next(&iter);)
        declare_note_field(call, rule->source, bson_iter_utf8(&iter, NULL), note);
    if (note->len) {
        bson_string_append(note, ": check the names of the rule");
        BSON_APPEND_UTF8(reply, "note", call->host->message(call, note->str));
    }
    bson_string_free(note, true);
}

static truce_status operation_sync_run_declare(struct operation_call *call, const void *arg,
                                               bson_t *reply, bson_error_t *error)
{
    const struct declare_given *given = arg;
    truce_sync_rule rule = {.source = given->source,
                            .dependent = given->dependent,
                            .reference = given->reference,
                            .copies = given->copies,
                            .resume_ms = (uint32_t)given->resumeMS,
                            .settle_ms = (uint32_t)given->settleMS};
    struct handle *handle;
    truce_status status = truce__operation_text(call, &rule.name, error);

    if (!status)
        status = truce__operation_collection(call, given->source, true, error);
    if (!status)
        status = truce__operation_collection(call, given->dependent, true, error);
    if (status)
        return status;
    handle = take_sync(call);
    status = truce_sync_declare(handle->thing, &rule, error);
    truce__operation_return(call, handle);
    if (!status)
        declare_append_note(call, &rule, reply);
    return status;
}

static const struct operation_row declare_operation = {
    OPERATION("truceSyncDeclare", ROLE_WRITE,
              "declares which fields of a dependent are copies of its source"),
    .target = "rule",
    .value = "the name of the rule",
    .answer =
        "nothing more, also if the same rule exists; or a `note` that names the collections and "
        "fields of the rule that no document has, as if they are misspelled. For existing data, "
        "run truceSyncRepair. An error: 11000 (duplicate) another rule has this name; 2 (invalid) "
        "the rules form a cycle, or another rule copies to one of the fields",
    .fields = declare_fields,
    .size = sizeof(struct declare_given),
    .run = operation_sync_run_declare,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: "
               "'user', copies: {author: 'name'}, settleMS: 1}",
};

static truce_status operation_sync_run_drop(struct operation_call *call, const void *given,
                                            bson_t *reply, bson_error_t *error)
{
    struct handle *handle;
    const char *name;
    truce_status status = truce__operation_text(call, &name, error);

    (void)given, (void)reply;
    if (status)
        return status;
    handle = take_sync(call);
    status = truce_sync_drop(handle->thing, name, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row drop_operation = {
    OPERATION("truceSyncDrop", ROLE_WRITE, "removes a rule; the copies stay unchanged"),
    .target = "rule",
    .value = "the name of the rule",
    .answer = "nothing more. \"not found\": no such rule exists",
    .fields = truce__no_fields,
    .run = operation_sync_run_drop,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSyncDrop: 'author'}",
};

/* ---- truceSyncUpdate, truceSyncInsert -------------------------------------------------------- */

struct update_given {
    const bson_value_t *id;
    const bson_t *update;
};

static const struct operation_field update_fields[] = {
    {GIVEN(update_given, id, FIELD_VALUE), "the _id of the document, a source or a dependent",
     .needed = true},
    {GIVEN(update_given, update, FIELD_DOCUMENT), "update operators: {$set: {name: \"Ada\"}}",
     .needed = true},
    {{0}}};

static void sync_append_result(const truce_sync_result *result, bson_t *reply)
{
    BCON_APPEND(reply, "changed", BCON_BOOL(result->changed), "settled", BCON_BOOL(result->settled),
                "copies", BCON_INT64(result->copies));
}

static truce_status operation_sync_run_update(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct update_given *given = arg;
    truce_sync_result result;
    struct handle *handle;
    const char *collection;
    truce_status status = truce__operation_own_collection(call, true, &collection, error);

    if (status)
        return status;
    handle = take_sync(call);
    status = truce_sync_update(handle->thing, call->commit, collection, given->id, given->update,
                               &result, error);
    truce__operation_return(call, handle);
    if (!status)
        sync_append_result(&result, reply);
    return status;
}

#define WRITTEN                                                                                    \
    "`changed`: whether a copied field or a reference changed; false also if no rule names the "   \
    "collection; `copies`: the number of copies written after the document; `settled`: whether "   \
    "all copies are written. If not, as in a commit, truceSyncReconcile or, after "                \
    "`resumeMS`, the recovery pass writes the others"

static const struct operation_row update_operation = {
    OPERATION("truceSyncUpdate", ROLE_WRITE, "changes a source with its copies, or a dependent"),
    .target = "collection",
    .value = "the collection",
    .answer =
        WRITTEN ". \"not found\": the document does not exist. An error: 2 (invalid) the update "
                "changes a copy",
    .fields = update_fields,
    .size = sizeof(struct update_given),
    .run = operation_sync_run_update,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Ada'}}}",
};

struct insert_given {
    const bson_t *document;
};

static const struct operation_field insert_fields[] = {
    {GIVEN(insert_given, document, FIELD_DOCUMENT),
     "the whole document; without an _id, it gets one", .needed = true},
    {{0}}};

/* Returns the document with an _id, in the arena. */
static const bson_t *sync_with_id(struct operation_call *call, const bson_t *document)
{
    bson_t *named, *view;
    uint8_t *bytes;
    bson_oid_t id;

    if (bson_has_field(document, "_id"))
        return document;
    bson_oid_init(&id, NULL);
    named = BCON_NEW("_id", BCON_OID(&id));
    bson_concat(named, document);
    bytes = truce__arena_take(call->arena, named->len);
    view = truce__arena_take(call->arena, sizeof *view);
    memcpy(bytes, bson_get_data(named), named->len);
    (void)bson_init_static(view, bytes, named->len);
    bson_destroy(named);
    return view;
}

static truce_status operation_sync_run_insert(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct insert_given *given = arg;
    truce_sync_result result;
    struct handle *handle;
    const char *collection;
    truce_status status = truce__operation_own_collection(call, true, &collection, error);

    if (status)
        return status;
    handle = take_sync(call);
    status = truce_sync_insert(handle->thing, call->commit, collection,
                               sync_with_id(call, given->document), &result, error);
    truce__operation_return(call, handle);
    if (!status)
        sync_append_result(&result, reply);
    return status;
}

static const struct operation_row insert_operation = {
    OPERATION("truceSyncInsert", ROLE_WRITE, "inserts a dependent with its copies, or a source"),
    .target = "collection",
    .value = "the collection",
    .answer = WRITTEN ". A dependent is inserted with its copies, which replace values of the "
                      "document; `copies` is then 0 or 1. An error: 11000 (duplicate) its _id "
                      "exists",
    .fields = insert_fields,
    .size = sizeof(struct insert_given),
    .run = operation_sync_run_insert,
    .ways = OPERATION_COMMITS | OPERATION_STRICT | OPERATION_TRANSACTS,
    .example = "{truceSyncInsert: 'comments', document: {_id: 1, user: 17, text: 'first'}}",
};

/* ---- truceSyncRead, truceSyncReconcile ------------------------------------------------------- */

struct one_given {
    const bson_value_t *id;
};

static const struct operation_field one_fields[] = {
    {GIVEN(one_given, id, FIELD_VALUE), "the _id of the document", .needed = true}, {{0}}};

static truce_status sync_run_read(struct operation_call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct one_given *given = arg;
    struct handle *handle;
    const char *collection;
    bson_t document;
    truce_status status = truce__operation_own_collection(call, true, &collection, error);

    if (status)
        return status;
    handle = take_sync(call);
    status = truce_sync_read(handle->thing, collection, given->id, &document, error);
    truce__operation_return(call, handle);
    if (!status)
        BSON_APPEND_DOCUMENT(reply, "document", &document);
    bson_destroy(&document);
    return status;
}

static const struct operation_row read_operation = {
    OPERATION("truceSyncRead", ROLE_WRITE,
              "reads a document; outdated copies of a dependent are repaired first"),
    .target = "collection",
    .value = "the collection",
    .answer = "`document`. \"not found\": it does not exist",
    .fields = one_fields,
    .size = sizeof(struct one_given),
    .run = sync_run_read,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSyncRead: 'comments', id: 1}",
};

static const struct operation_field reconcile_fields[] = {
    {GIVEN(one_given, id, FIELD_VALUE), "the _id of the document"}, {{0}}};

/* The pending copies of all rules. */
struct reconciling {
    struct operation_call *call;
    truce_sync *sync;
    int64_t settled, failed, copies;
    struct reply_list failures;
};

static void reconcile_add_failure(struct reconciling *all, const char *collection,
                                  const bson_iter_t *id, const bson_error_t *why)
{
    bson_t one = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&one, "collection", collection);
    bson_append_iter(&one, "id", -1, id);
    BSON_APPEND_UTF8(&one, "failure", all->call->host->message(all->call, why->message));
    (void)truce__reply_list_add(&all->failures, &one);
    bson_destroy(&one);
    all->failed++;
}

/* Reconciles the documents of a collection that have the flag. */
static truce_status reconcile_flagged(struct reconciling *all, const char *collection,
                                      const char *flag, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}"),
           *projection = BCON_NEW("_id", BCON_INT32(1));
    const truce_find_options options = {.projection = projection};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status = truce__operation_collection(all->call, collection, true, error);

    if (!status)
        status = truce_find(all->call->store, collection, filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        truce_sync_result result;
        bson_error_t why;
        bson_iter_t id;

        (void)bson_iter_init_find(&id, document, "_id");
        if (truce_sync_reconcile(all->sync, collection, bson_iter_value(&id), &result, &why))
            reconcile_add_failure(all, collection, &id, &why);
        all->settled += result.settled;
        all->copies += result.copies;
    }
    truce_cursor_close(cursor);
    bson_destroy(projection);
    bson_destroy(filter);
    return status;
}

/* Writes the pending copies of all rules. A document that fails is counted and listed, and does not
 * end the loop. */
static truce_status reconcile_all(struct operation_call *call, truce_sync *sync, bson_t *reply,
                                  bson_error_t *error)
{
    struct reconciling all = {.call = call, .sync = sync};
    bson_iter_t at, rules;
    bson_t facts, rule;
    truce_status status = truce_sync_status(sync, &facts, error);
    bool good =
        !status && bson_iter_init_find(&at, &facts, "rules") && bson_iter_recurse(&at, &rules);

    truce__reply_list_begin(&all.failures, REPLY_LIST_MAX);
    while (good && !status && bson_iter_next(&rules)) {
        truce__value_bson(truce__value_of_iter(&rules), &rule);
        status = reconcile_flagged(&all, truce__field_text(&rule, "dependent"), "unchecked", error);
        if (!status)
            status = reconcile_flagged(&all, truce__field_text(&rule, "source"), "syncing", error);
    }
    bson_destroy(&facts);
    if (!status)
        BCON_APPEND(reply, "settled", BCON_INT64(all.settled), "copies", BCON_INT64(all.copies),
                    "failed", BCON_INT64(all.failed));
    return truce__reply_list_end(&all.failures, status, "failures", reply);
}

static truce_status sync_run_reconcile(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct one_given *given = arg;
    truce_sync_result result;
    struct handle *handle;
    const char *collection;
    truce_status status = truce__operation_optional_text(call, &collection, error);

    if (!status && !collection != !given->id)
        status = truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "a collection and an 'id' belong together: to write all pending copies, give neither "
            "(truceSyncReconcile: 1)");
    if (!status && collection)
        status = truce__operation_collection(call, collection, true, error);
    if (status)
        return status;
    handle = take_sync(call);
    if (collection)
        status = truce_sync_reconcile(handle->thing, collection, given->id, &result, error);
    else
        status = reconcile_all(call, handle->thing, reply, error);
    truce__operation_return(call, handle);
    if (!status && collection)
        sync_append_result(&result, reply);
    return status;
}

static const struct operation_row reconcile_operation = {
    OPERATION("truceSyncReconcile", ROLE_WRITE,
              "writes the pending copies of one document, or of all documents, now"),
    .target = "collection",
    .optional = true,
    .value = "the collection; 1, or no collection: all documents",
    .answer =
        "`changed`, `settled`, `copies`, as in truceSyncUpdate, also if nothing was pending. For "
        "all documents, the counts `settled`, `copies`, and `failed`, and `failures`: the first "
        "1,000, each {collection, id, failure}",
    .fields = reconcile_fields,
    .size = sizeof(struct one_given),
    .run = sync_run_reconcile,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSyncReconcile: 'users', id: 17}",
};

/* ---- truceSyncStatus ------------------------------------------------------------------------- */

static truce_status operation_sync_run_status(struct operation_call *call, const void *given,
                                              bson_t *reply, bson_error_t *error)
{
    struct handle *handle = take_sync(call);
    bson_t facts;
    truce_status status = truce_sync_status(handle->thing, &facts, error);

    (void)given;
    truce__operation_return(call, handle);
    if (!status)
        bson_concat(reply, &facts);
    bson_destroy(&facts);
    return status;
}

static const struct operation_row status_operation = {
    OPERATION("truceSyncStatus", ROLE_READ,
              "returns the rules of the database and their pending work"),
    .value = "1",
    .answer =
        "`rules`: each {rule, source, dependent, reference, copies, syncing, unchecked, since}: "
        "the numbers of sources and dependents with a flag, and the time of the oldest flag",
    .fields = truce__no_fields,
    .run = operation_sync_run_status,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSyncStatus: 1}",
};

/* ---- truceSyncRepair ------------------------------------------------------------------------- */

struct repair_given {
    bool dryRun;
    const bson_value_t *dependent;
};

static const struct operation_field repair_fields[] = {
    {GIVEN(repair_given, dryRun, FIELD_FLAG), "only reports, and repairs nothing"},
    {GIVEN(repair_given, dependent, FIELD_VALUE), "the _id of a dependent: compares only this one"},
    {{0}}};

struct findings {
    bson_t array;
    uint32_t count;
};

static const char *operation_sync_divergence_name(truce_sync_divergence divergence)
{
    return divergence == TRUCE_SYNC_DIFFERS  ? "differs"
           : divergence == TRUCE_SYNC_ORPHAN ? "has no source"
                                             : "refers to several";
}

/* Appends a finding. The report counts those after FINDINGS_MAX, but the list omits them. */
static void sync_add_finding(const truce_sync_finding *finding, void *arg)
{
    struct findings *findings = arg;
    char buffer[16];
    const char *key;
    bson_t one;

    if (findings->count == FINDINGS_MAX)
        return;
    bson_uint32_to_string(findings->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&findings->array, key, &one);
    BSON_APPEND_VALUE(&one, "dependent", finding->dependent);
    if (finding->source)
        BSON_APPEND_VALUE(&one, "source", finding->source);
    BSON_APPEND_UTF8(&one, "divergence", operation_sync_divergence_name(finding->divergence));
    BSON_APPEND_BOOL(&one, "repaired", finding->repaired);
    bson_append_document_end(&findings->array, &one);
}

static truce_status operation_sync_run_repair(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct repair_given *given = arg;
    struct findings findings = {BSON_INITIALIZER, 0};
    const truce_sync_walk_options options = {.repair = !given->dryRun,
                                             .dependent = given->dependent,
                                             .function = sync_add_finding,
                                             .arg = &findings};
    truce_sync_report report = {0};
    struct handle *handle;
    const char *name;
    truce_status status = truce__operation_text(call, &name, error);

    if (!status && !given->dryRun)
        status = call->host->check_role(call, ROLE_WRITE, error);
    if (!status) {
        handle = take_sync(call);
        status = truce_sync_walk(handle->thing, name, &options, &report, error);
        truce__operation_return(call, handle);
    }
    if (!status)
        BCON_APPEND(reply, "dependents", BCON_INT64(report.dependents), "differ",
                    BCON_INT64(report.differ), "orphans", BCON_INT64(report.orphans), "unreadable",
                    BCON_INT64(report.unreadable), "underWay", BCON_INT64(report.under_way),
                    "repaired", BCON_INT64(report.repaired), "findings",
                    BCON_ARRAY(&findings.array));
    bson_destroy(&findings.array);
    return status;
}

static const struct operation_row repair_operation = {
    OPERATION("truceSyncRepair", ROLE_READ,
              "compares every dependent of a rule with its source, and repairs what differs"),
    .target = "rule",
    .value = "the name of the rule",
    .answer =
        "counts: `dependents`, `differ`, `orphans`, `unreadable`, `underWay`, `repaired`; and "
        "`findings`: the first 1,000, each {dependent, source, divergence, repaired}. \"not "
        "found\": no such rule exists",
    .fields = repair_fields,
    .size = sizeof(struct repair_given),
    .run = operation_sync_run_repair,
    .ways = OPERATION_REPEATABLE | OPERATION_WRITES,
    .example = "{truceSyncRepair: 'author'}",
};

const struct operation_row *const sync_operations[] = {
    &declare_operation, &update_operation,    &insert_operation,
    &read_operation,    &reconcile_operation, &status_operation,
    &repair_operation,  &drop_operation,      NULL};
