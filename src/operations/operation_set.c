/*
 * Ordered sets: operations, their sources, collecting, and the quarantine.
 *
 * Each request names the set by its collection, the list (`field`), and the fields of the key. The
 * options of a set that is defined (truceSetDefine) are stored, so later requests may omit them.
 *
 * truceSet has three forms: one operation, many operations of any documents (`apply`), and a read.
 * The operations of `apply` have separate results. If some are applied and others fail, the reply
 * is "ok" with all results, so that the caller repeats only the others. In a transaction or a
 * commit, one failure ends them all.
 */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "operations/operation.h"
#include "operations/reply_list.h"
#include "patterns/set/set.h"

/* The fields that name a set. The struct of every command begins with them. */
struct set_named {
    const char *field, *name, *deleted, *seqField, *sourceField, *watermark;
    const bson_value_t *key;
    bool byElement;
};

#define SET_FIELDS                                                                                 \
    {GIVEN(set_named, field, FIELD_TEXT),                                                          \
     "the list in the document: \"classes\"; absent: the only set of the collection"},             \
        {GIVEN(set_named, name, FIELD_TEXT),                                                       \
         "the field of an element that names it: \"name\"; absent: as defined"},                   \
        {GIVEN(set_named, deleted, FIELD_TEXT),                                                    \
         "the list of tombstones; absent: \"deleted_\" and the field"},                            \
        {GIVEN(set_named, seqField, FIELD_TEXT),                                                   \
         "the field of an element with its number; absent: \"seq\""},                              \
        {GIVEN(set_named, sourceField, FIELD_TEXT),                                                \
         "the field of an element with its source; absent: \"src\""},                              \
        {GIVEN(set_named, watermark, FIELD_TEXT),                                                  \
         "the field of the document with the watermark; absent: \"_wm\""},                         \
    {                                                                                              \
        GIVEN(set_named, byElement, FIELD_FLAG),                                                   \
            "one document for each element, for sets that outgrow a document"                      \
    }

#define SET_KEY_FIELD                                                                              \
    {                                                                                              \
        GIVEN(set_named, key, FIELD_VALUE),                                                        \
            "the fields of the key, separated by commas: \"student_id\"; absent: as defined"       \
    }

static void *operation_set_make_set(void *arg)
{
    const void *const *made = arg;

    return truce_set_new((truce_store *)made[0], made[1]);
}

static void free_set(void *set)
{
    truce_set_free(set);
}

/* Sets *fields to the names of the fields of the key {student_id: 1}, separated by commas, in the
 * call's arena. */
static truce_status key_fields(struct operation_call *call, const bson_value_t *key,
                               const char **fields, bson_error_t *error)
{
    struct buffer names = {0};
    bson_iter_t at;
    bson_t document;

    if (key->value_type != BSON_TYPE_DOCUMENT ||
        !bson_init_static(&document, key->value.v_doc.data, key->value.v_doc.data_len))
        return truce__refuse(
            CODE_TYPE_MISMATCH, error,
            "'key' must be the key of a document, for example {student_id: 1}%s, not %s",
            call->row->ways & OPERATION_TRANSACTS ? "" : ", or the names of its fields",
            truce__type_name((uint8_t)key->value_type));
    (void)bson_iter_init(&at, &document);
    while (bson_iter_next(&at)) {
        if (names.size)
            truce__buffer_append(&names, ",", 1);
        truce__buffer_append(&names, bson_iter_key(&at), strlen(bson_iter_key(&at)));
    }
    truce__buffer_append(&names, "", 1);
    *fields = truce__arena_copy(call->arena, names.bytes, names.size);
    truce__buffer_release(&names);
    return TRUCE_OK;
}

/* Takes the set of the command. If `key` is NULL, uses the key that the command names. The first
 * write compares the options with the definition; for a read, this function does. */
static truce_status operation_set_take_set(struct operation_call *call,
                                           const struct set_named *given, const bson_value_t *key,
                                           bool writes, struct handle **handle, bson_error_t *error)
{
    truce_set_options options = {.field = given->field,
                                 .name = given->name,
                                 .deleted = given->deleted,
                                 .seq = given->seqField,
                                 .source = given->sourceField,
                                 .watermark = given->watermark,
                                 .layout = given->byElement ? TRUCE_SET_BY_ELEMENT
                                                            : TRUCE_SET_IN_DOCUMENT};
    const void *made[2] = {call->store, &options};
    const char *fields = NULL;
    char *text;
    truce_status status = truce__operation_own_collection(call, writes, &options.collection, error);

    key = key ? key : given->key;
    if (key && key->value_type == BSON_TYPE_UTF8)
        options.key = key->value.v_utf8.str;
    else if (!status && key)
        status = key_fields(call, key, &fields, error);
    if (!status)
        status = truce__set_complete(call->store, call->arena, fields, &options, error);
    if (status)
        return status;
    text = truce__operation_key(
        options.layout == TRUCE_SET_BY_ELEMENT ? "set by element" : "set",
        (const char *const[]){options.collection, options.key, options.field, options.name,
                              options.deleted, options.seq, options.source, options.watermark},
        8);
    *handle = truce__operation_handle(call, text, operation_set_make_set, made, free_set);
    bson_free(text);
    status = writes ? TRUCE_OK : truce__set_agrees((*handle)->thing, error);
    if (status)
        truce__operation_return(call, *handle);
    return status;
}

/* Calls the library for the set of the command. */
typedef truce_status set_function(truce_set *set, const void *given, bson_t *reply,
                                  bson_error_t *error);

/* Runs a function of the library on the set that the command names. Returns the status of the
 * function, or of the lookup of the set. */
static truce_status set_run_on(struct operation_call *call, const void *given, bool writes,
                               set_function *function, bson_t *reply, bson_error_t *error)
{
    struct handle *handle;
    truce_status status = operation_set_take_set(call, given, NULL, writes, &handle, error);

    if (status)
        return status;
    status = function(handle->thing, given, reply, error);
    truce__operation_return(call, handle);
    return status;
}

static void set_append_name(const truce_set *set, bson_t *reply)
{
    BSON_APPEND_UTF8(reply, "set", set->id);
}

/* ---- truceSetDefine -------------------------------------------------------------------------- */

static const struct operation_field named_fields[] = {SET_FIELDS, SET_KEY_FIELD, {{0}}};

static truce_status set_define(truce_set *set, const void *given, bson_t *reply,
                               bson_error_t *error)
{
    truce_status status = truce_set_record(set, "define", NULL, 0, error);

    (void)given;
    if (!status)
        set_append_name(set, reply);
    return status;
}

static truce_status set_run_define(struct operation_call *call, const void *given, bson_t *reply,
                                   bson_error_t *error)
{
    return set_run_on(call, given, true, set_define, reply, error);
}

static const struct operation_row define_operation = {
    OPERATION("truceSetDefine", ROLE_WRITE,
              "defines a set of a collection; later operations need not repeat its fields"),
    .target = "collection",
    .value = "the collection",
    .answer = "`set`: its name, \"students.classes\". The first write to a set also defines it. An "
              "error: 2 (invalid) the set is defined differently, or a field is missing",
    .fields = named_fields,
    .size = sizeof(struct set_named),
    .run = set_run_define,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceSetDefine: 'students', key: 'student_id', field: 'classes', name: 'name'}",
};

/* ---- truceSet -------------------------------------------------------------------------------- */

struct set_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    const bson_t *add, *remove, *apply;
    int64_t seq;
    const char *source, *consumer;
    bool show;
};

static const struct operation_field set_fields[] = {
    SET_FIELDS,
    {GIVEN(set_named, key, FIELD_VALUE), "the document's key: {student_id: 1}"},
    {GIVEN(set_given, add, FIELD_DOCUMENT), "the element to add, with its name and any payload"},
    {GIVEN(set_given, remove, FIELD_DOCUMENT), "the element to remove: its name"},
    {GIVEN(set_given, seq, FIELD_NUMBER), "the number of the operation", 1, INT64_MAX},
    {GIVEN(set_given, source, FIELD_TEXT), "the source of the number, if several sources publish"},
    {GIVEN(set_given, apply, FIELD_ARRAY),
     "instead: many operations of any documents, each {add or remove, key, seq, source}"},
    {GIVEN(set_given, consumer, FIELD_TEXT), "records for this consumer that the operations were "
                                             "applied; then it may acknowledge its messages"},
    {GIVEN(set_given, show, FIELD_FLAG),
     "for a read: returns the tombstones and the watermark, too"},
    {{0}}};

struct operation_given {
    const bson_t *add, *remove, *key;
    int64_t seq;
    const char *source;
};

static const struct field operation_fields[] = {
    GIVEN(operation_given, add, FIELD_DOCUMENT), GIVEN(operation_given, remove, FIELD_DOCUMENT),
    GIVEN(operation_given, key, FIELD_DOCUMENT), GIVEN(operation_given, seq, FIELD_WHOLE),
    GIVEN(operation_given, source, FIELD_TEXT),  {0}};

/* Makes an operation of a list, which borrows from the request. It needs a key, a number, and one
 * of add and remove. */
static truce_status make_operation(const struct operation_given *given,
                                   truce_set_operation *operation, bson_error_t *error)
{
    if (!given->add == !given->remove)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "an operation needs one of 'add' and 'remove', and has %s",
                             given->add ? "both" : "neither");
    if (!given->key || !given->seq)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "an operation needs a 'key' and a 'seq', and has no '%s'",
                             given->key ? "seq" : "key");
    *operation = (truce_set_operation){.verb = given->add ? TRUCE_SET_ADD : TRUCE_SET_REMOVE,
                                       .key = given->key,
                                       .element = given->add ? given->add : given->remove,
                                       .seq = given->seq,
                                       .source = given->source};
    return TRUCE_OK;
}

/* Reads the operations of `apply` into the memory of the call. */
static truce_status read_apply(struct operation_call *call, const bson_t *apply,
                               truce_set_operation **operations, size_t *count, bson_error_t *error)
{
    size_t room = bson_count_keys(apply);
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (!room || room > TRUCE_BULK_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'apply' must have 1 to %d operations, and has %zu", TRUCE_BULK_MAX,
                             room);
    *operations = truce__arena_take(call->arena, room * sizeof **operations);
    (void)bson_iter_init(&at, apply);
    for (*count = 0; !status && bson_iter_next(&at); (*count)++) {
        struct operation_given given = {0};

        if (!BSON_ITER_HOLDS_DOCUMENT(&at))
            return truce__element_wrong_type("apply", &at, "a document", error);
        status = truce__operation_fields(call, truce__field_view(call->arena, &at),
                                         operation_fields, &given, error);
        if (!status)
            status = make_operation(&given, &(*operations)[*count], error);
    }
    return status;
}

/* Reads the operations of `apply`, or the one of `add` or `remove`. *count is 0 if the request only
 * reads. */
static truce_status read_operations(struct operation_call *call, const struct set_given *given,
                                    truce_set_operation **operations, size_t *count,
                                    bson_error_t *error)
{
    const bson_value_t *key = given->named.key;
    struct operation_given one = {
        .add = given->add, .remove = given->remove, .seq = given->seq, .source = given->source};

    *count = 0;
    if (given->apply && (given->add || given->remove || key || given->seq || given->source))
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'apply' excludes 'add', 'remove', 'key', 'seq', and 'source': each of its operations "
            "has its own");
    if (given->show && (given->apply || given->add || given->remove))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'show' is allowed only for a read, without 'add', 'remove', and "
                             "'apply'");
    if (given->apply)
        return read_apply(call, given->apply, operations, count, error);
    if (!given->add && !given->remove)
        return given->seq || given->source || given->consumer
                   ? truce__refuse(CODE_INVALID_OPTIONS, error,
                                   "'seq', 'source', and 'consumer' need an operation: give 'add' "
                                   "or 'remove', too")
                   : TRUCE_OK;
    if (key && key->value_type != BSON_TYPE_DOCUMENT)
        return truce__refuse(
            CODE_TYPE_MISMATCH, error,
            "the 'key' of an operation must be a document, for example {student_id: 1}, not %s",
            truce__type_name((uint8_t)key->value_type));
    if (key)
        one.key = truce__bytes_view(call->arena, key->value.v_doc.data, key->value.v_doc.data_len);
    *operations = truce__arena_take(call->arena, sizeof **operations);
    *count = 1;
    return make_operation(&one, *operations, error);
}

/* Appends `results`: [{status, outcome}, ...]. A failed operation has no outcome. */
static void append_results(const truce_set_result *results, size_t count, bson_t *reply)
{
    char buffer[16];
    const char *key;
    bson_t array, one;

    BSON_APPEND_ARRAY_BEGIN(reply, "results", &array);
    for (size_t i = 0; i < count; i++) {
        bson_uint32_to_string((uint32_t)i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
        BSON_APPEND_UTF8(&one, "status", truce_status_name(results[i].status));
        if (!results[i].status)
            BSON_APPEND_UTF8(&one, "outcome", truce_set_outcome_name(results[i].outcome));
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(reply, &array);
}

/* Returns whether some operations failed, and others have an outcome (applied, stale, duplicate,
 * or quarantined). */
static bool is_partial(const truce_set_result *results, size_t count)
{
    size_t failed = 0, applied = 0;

    for (size_t i = 0; i < count; i++) {
        failed += results[i].status != TRUCE_OK;
        applied += !results[i].status && results[i].outcome;
    }
    return failed && applied;
}

/* Applies the operations, for a consumer if the request names one. If only some operations of
 * `apply` fail, returns OK with all results, so that the caller repeats only the failed ones. */
static truce_status operation_set_apply(struct operation_call *call, truce_set *set,
                                        const struct set_given *given,
                                        const truce_set_operation *operations, size_t count,
                                        bson_t *reply, bson_error_t *error)
{
    truce_set_result *results = bson_malloc0(count * sizeof *results);
    truce_status status;

    if (given->consumer)
        status = truce_set_consume(set, given->consumer, operations, count, results, error);
    else
        status = truce_set_apply(set, call->commit, operations, count, results, error);
    if (given->apply &&
        (!status || (is_partial(results, count) && !call->transaction && !call->commit))) {
        append_results(results, count, reply);
        if (status)
            BSON_APPEND_UTF8(reply, "failure", call->host->message(call, error->message));
        status = TRUCE_OK;
    } else if (!status) {
        BSON_APPEND_UTF8(reply, "outcome", truce_set_outcome_name(results[0].outcome));
    }
    bson_free(results);
    return status;
}

static truce_status operation_set_show(const struct set_given *given, truce_set *set,
                                       const bson_t *key, bson_t *reply, bson_error_t *error)
{
    bson_t found;
    truce_status status = given->show ? truce_set_show(set, key, &found, error)
                                      : truce_set_members(set, key, &found, error);

    if (!status && given->show)
        BSON_APPEND_DOCUMENT(reply, "document", &found);
    else if (!status)
        BSON_APPEND_ARRAY(reply, "members", &found);
    bson_destroy(&found);
    return status;
}

static truce_status operation_set_run_set(struct operation_call *call, const void *arg,
                                          bson_t *reply, bson_error_t *error)
{
    const struct set_given *given = arg;
    truce_set_operation *operations = NULL;
    bson_value_t first = {.value_type = BSON_TYPE_DOCUMENT};
    const bson_value_t *key = NULL;
    struct handle *handle;
    size_t count;
    bson_t one;
    truce_status status = read_operations(call, given, &operations, &count, error);

    if (status)
        return status;
    if (call->commit && given->consumer)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'consumer' is not allowed in a commit: send truceSetRecord after the commit");
    /* All keys have the fields of the first one. */
    if (given->apply) {
        first.value.v_doc.data = (uint8_t *)bson_get_data(operations[0].key);
        first.value.v_doc.data_len = operations[0].key->len;
        key = &first;
    } else if (!given->named.key || given->named.key->value_type != BSON_TYPE_DOCUMENT) {
        return truce__refuse(
            CODE_TYPE_MISMATCH, error,
            "'key' must be a document, for example {student_id: 7}, not %s",
            given->named.key ? truce__type_name((uint8_t)given->named.key->value_type) : "missing");
    }
    status = operation_set_take_set(call, &given->named, key, count > 0, &handle, error);
    if (status)
        return status;
    if (count)
        status = operation_set_apply(call, handle->thing, given, operations, count, reply, error);
    else if (bson_init_static(&one, given->named.key->value.v_doc.data,
                              given->named.key->value.v_doc.data_len))
        status = operation_set_show(given, handle->thing, &one, reply, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row set_operation = {
    OPERATION("truceSet", ROLE_READ,
              "adds to an ordered set, removes from it, or reads it; the operations may arrive in "
              "any order"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "for one operation `outcome`: \"applied\", \"stale\", \"duplicate\", or "
        "\"quarantined\". For `apply`, an array of `results`, each {status, outcome}. If some failed "
        "and others were applied, the call is no error: `failure` has the first reason, with the "
        "number of its operation (from 1). For a read, `members`, or `document` with `show`. \"not found\": no operation was applied to the key",
    .fields = set_fields,
    .size = sizeof(struct set_given),
    .run = operation_set_run_set,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_TRANSACTS | OPERATION_WRITES,
    .example = "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', add: "
               "{name: 'CS 101', room: 4}, seq: 1001}",
};

/* ---- sources --------------------------------------------------------------------------------- */

struct source_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    const char *source;
    bool start;
    int64_t idle, from, to;
};

static const struct operation_field source_fields[] = {
    SET_FIELDS,
    SET_KEY_FIELD,
    {GIVEN(source_given, source, FIELD_TEXT), "the source; absent: the numbers without a source"},
    {GIVEN(source_given, start, FIELD_FLAG), "announces the source, and returns its first number"},
    {GIVEN(source_given, idle, FIELD_NUMBER),
     "every number below this one was recorded or will never be published. With 2^63-1, the source "
     "never delays the collection again: use it for a misspelled source",
     1, INT64_MAX},
    {GIVEN(source_given, from, FIELD_NUMBER),
     "the numbers from this one to `to` were never published", 1, INT64_MAX},
    {GIVEN(source_given, to, FIELD_NUMBER), "the last of these numbers; absent: the first one", 1,
     INT64_MAX},
    {{0}}};

/* Changes a source: marks it as idle, declares numbers as void, or announces the source and returns
 * its first number. */
static truce_status set_change_source(truce_set *set, const void *arg, bson_t *reply,
                                      bson_error_t *error)
{
    const struct source_given *given = arg;
    int64_t to = given->to ? given->to : given->from, first;
    truce_status status;

    if (given->idle)
        return truce_set_source_idle(set, given->source, given->idle, error);
    if (given->from) {
        status = truce_set_void(set, given->source, given->from, to, error);
        if (!status)
            BSON_APPEND_INT64(reply, "void", to - given->from + 1);
        return status;
    }
    status = truce_set_source_start(set, given->source, &first, error);
    if (!status)
        BSON_APPEND_INT64(reply, "first", first);
    return status;
}

static truce_status run_source(struct operation_call *call, const void *arg, bson_t *reply,
                               bson_error_t *error)
{
    const struct source_given *given = arg;

    if (given->start + (given->idle != 0) + (given->from != 0) != 1 || (given->to && !given->from))
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "give exactly one of 'start', 'idle', and 'from' (optionally with 'to')");
    return set_run_on(call, given, true, set_change_source, reply, error);
}

static const struct operation_row source_operation = {
    OPERATION("truceSetSource", ROLE_WRITE,
              "announces a source, or declares which numbers it does not use"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "with `start`, `first`: the first number of the source; with `from`, `void`: how many "
        "numbers are void now",
    .fields = source_fields,
    .size = sizeof(struct source_given),
    .run = run_source,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name', "
               "source: 'east', start: true}",
};

/* ---- collecting ------------------------------------------------------------------------------ */

struct collect_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    bool collect;
};

static const struct operation_field collect_fields[] = {
    SET_FIELDS,
    SET_KEY_FIELD,
    {GIVEN(collect_given, collect, FIELD_FLAG), "removes the tombstones at or below the watermark"},
    {{0}}};

/* Removes tombstones if `collect` is set, and returns the watermark with its sources. */
static truce_status set_collect(truce_set *set, const void *arg, bson_t *reply, bson_error_t *error)
{
    const struct collect_given *given = arg;
    truce_set_collected collected;
    bson_iter_t sources;
    int64_t watermark;
    bson_t report;
    truce_status status = given->collect ? truce_set_collect(set, &collected, error) : TRUCE_OK;

    if (status)
        return status;
    if (given->collect)
        BCON_APPEND(reply, "documents", BCON_INT64(collected.documents), "tombstones",
                    BCON_INT64(collected.tombstones));
    status = truce_set_watermark(set, &watermark, &report, error);
    if (!status) {
        BSON_APPEND_INT64(reply, "watermark", watermark);
        if (bson_iter_init_find(&sources, &report, "sources"))
            BSON_APPEND_VALUE(reply, "sources", bson_iter_value(&sources));
    }
    bson_destroy(&report);
    return status;
}

static truce_status operation_set_run_collect(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct collect_given *given = arg;

    return set_run_on(call, given, given->collect, set_collect, reply, error);
}

static const struct operation_row collect_operation = {
    OPERATION("truceSetCollect", ROLE_READ,
              "returns the watermark of a set, and removes tombstones below it"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`watermark`: all operations up to this number were applied; and `sources`: [{source, "
        "watermark, floor, missing}]. With `collect`, `documents`: the number of documents that "
        "changed, and `tombstones`: the number of tombstones that were removed",
    .fields = collect_fields,
    .size = sizeof(struct collect_given),
    .run = operation_set_run_collect,
    .ways = OPERATION_REPEATABLE | OPERATION_WRITES,
    .example = "{truceSetCollect: 'students', key: 'student_id', field: 'classes', name: 'name', "
               "collect: true}",
};

/* ---- truceSetRecord -------------------------------------------------------------------------- */

struct record_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    const bson_t *apply;
    const char *consumer;
};

static const struct operation_field record_fields[] = {
    SET_FIELDS,
    {GIVEN(record_given, consumer, FIELD_TEXT),
     "the name of the consumer, which it keeps after a restart", .needed = true},
    {GIVEN(record_given, apply, FIELD_ARRAY),
     "the operations that were applied, each {add or remove, key, seq, source}", .needed = true},
    {{0}}};

static truce_status set_run_record(struct operation_call *call, const void *arg, bson_t *reply,
                                   bson_error_t *error)
{
    const struct record_given *given = arg;
    bson_value_t key = {.value_type = BSON_TYPE_DOCUMENT};
    truce_set_operation *operations;
    struct handle *handle;
    size_t count;
    truce_status status = read_apply(call, given->apply, &operations, &count, error);

    (void)reply;
    if (status)
        return status;
    key.value.v_doc.data = (uint8_t *)bson_get_data(operations[0].key);
    key.value.v_doc.data_len = operations[0].key->len;
    status = operation_set_take_set(call, &given->named, &key, true, &handle, error);
    if (status)
        return status;
    status = truce_set_record(handle->thing, given->consumer, operations, count, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row record_operation = {
    OPERATION("truceSetRecord", ROLE_WRITE,
              "records that a consumer has applied operations, for example in a commit"),
    .target = "collection",
    .value = "the collection",
    .answer = "nothing more. After it, the consumer may acknowledge its messages. Recording an "
              "operation that was not applied loses it",
    .fields = record_fields,
    .size = sizeof(struct record_given),
    .run = set_run_record,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceSetRecord: 'students', field: 'classes', name: 'name', consumer: 'one', apply: "
        "[{add: {name: 'CS 101'}, key: {student_id: 1}, seq: 1001}]}",
};

/* ---- the quarantine -------------------------------------------------------------------------- */

struct quarantine_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    int64_t limit;
};

static const struct operation_field quarantine_fields[] = {
    SET_FIELDS,
    SET_KEY_FIELD,
    {GIVEN(quarantine_given, limit, FIELD_NUMBER), "the maximum number of operations; absent: 100",
     1, REPLY_LIST_MAX},
    {{0}}};

static truce_status set_run_quarantine(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct quarantine_given *given = arg;
    struct reply_list list;
    struct handle *handle;
    truce_cursor *cursor;
    truce_status status = operation_set_take_set(call, &given->named, NULL, false, &handle, error);

    if (status)
        return status;
    truce__reply_list_begin(&list, given->limit);
    status = truce_set_quarantine(handle->thing, &cursor, error);
    if (!status)
        status = truce__reply_list_read(&list, cursor, error);
    truce__operation_return(call, handle);
    return truce__reply_list_end(&list, status, "quarantined", reply);
}

static const struct operation_row quarantine_operation = {
    OPERATION("truceSetQuarantine", ROLE_READ,
              "lists operations that arrived after their number was declared void"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`quarantined`: each {_id: {set, source, seq, verb, key, name}, element, reason, time}; "
        "and `more`: true if others exist",
    .fields = quarantine_fields,
    .size = sizeof(struct quarantine_given),
    .run = set_run_quarantine,
    .ways = OPERATION_REPEATABLE,
    .example =
        "{truceSetQuarantine: 'students', key: 'student_id', field: 'classes', name: 'name'}",
};

struct replay_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    const bson_t *quarantined;
    int64_t seq;
    const char *consumer;
    bool all;
};

static const struct operation_field replay_fields[] = {
    SET_FIELDS,
    SET_KEY_FIELD,
    {GIVEN(replay_given, quarantined, FIELD_DOCUMENT),
     "the operation, as truceSetQuarantine returned it"},
    {GIVEN(replay_given, all, FIELD_FLAG), "instead: all operations that are quarantined"},
    {GIVEN(replay_given, seq, FIELD_NUMBER), "a new number of its source; of all: the first one", 1,
     INT64_MAX, .needed = true},
    {GIVEN(replay_given, consumer, FIELD_TEXT),
     "the consumer for which the number is recorded; absent: it is not recorded"},
    {{0}}};

/* Replays all operations that are in quarantine now. */
static truce_status replay_all(truce_set *set, const struct replay_given *given, bson_t *reply,
                               bson_error_t *error)
{
    int64_t counts[TRUCE_SET_QUARANTINED + 1] = {0}, seq = given->seq;
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce_set_quarantine(set, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        truce_set_outcome outcome;

        status = truce_set_replay(set, document, seq, given->consumer, &outcome, error);
        /* Another process has replayed the operation. */
        if (status == TRUCE_NOT_FOUND) {
            status = TRUCE_OK;
        } else if (!status) {
            counts[outcome]++;
            seq++;
        }
    }
    truce_cursor_close(cursor);
    if (!status)
        BCON_APPEND(reply, "applied", BCON_INT64(counts[TRUCE_SET_APPLIED]), "stale",
                    BCON_INT64(counts[TRUCE_SET_STALE]), "duplicate",
                    BCON_INT64(counts[TRUCE_SET_DUPLICATE]), "next", BCON_INT64(seq));
    return status;
}

static truce_status set_replay(truce_set *set, const void *arg, bson_t *reply, bson_error_t *error)
{
    const struct replay_given *given = arg;
    truce_set_outcome outcome;
    truce_status status;

    if (given->all)
        return replay_all(set, given, reply, error);
    status =
        truce_set_replay(set, given->quarantined, given->seq, given->consumer, &outcome, error);
    if (!status)
        BSON_APPEND_UTF8(reply, "outcome", truce_set_outcome_name(outcome));
    return status;
}

static truce_status set_run_replay(struct operation_call *call, const void *arg, bson_t *reply,
                                   bson_error_t *error)
{
    const struct replay_given *given = arg;

    if (given->all == (given->quarantined != NULL))
        return truce__refuse(40414, error, "give either 'quarantined', one operation, or 'all'");
    return set_run_on(call, given, true, set_replay, reply, error);
}

static const struct operation_row replay_operation = {
    OPERATION("truceSetReplay", ROLE_WRITE,
              "applies a quarantined operation under a new number, and releases it"),
    .target = "collection",
    .value = "the collection",
    .answer = "`outcome`: \"applied\", \"stale\", or \"duplicate\"; of all, the counts of each, "
              "and `next`, the next number. \"not found\": the operation is not, or no longer, in "
              "the quarantine. An error: 2 (invalid) the number is not above the collected ones, "
              "and the operation stays there",
    .fields = replay_fields,
    .size = sizeof(struct replay_given),
    .run = set_run_replay,
    .example = "{truceSetReplay: 'students', key: 'student_id', field: 'classes', name: 'name', "
               "quarantined: {_id: {set: 'students.classes', source: '', seq: 7, verb: 'add', key: "
               "{student_id: 1}, name: 'CS 101'}}, seq: 2001}",
};

/* ---- truceSetProtect, truceSetConvert, truceSetForget ---------------------------------------- */

struct protect_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    bool on;
};

static const struct operation_field protect_fields[] = {SET_FIELDS,
                                                        SET_KEY_FIELD,
                                                        {GIVEN(protect_given, on, FIELD_FLAG),
                                                         "true: sets the rule; false: removes it",
                                                         .needed = true},
                                                        {{0}}};

static truce_status set_protect(truce_set *set, const void *arg, bson_t *reply, bson_error_t *error)
{
    const struct protect_given *given = arg;
    truce_status status = truce_set_protect(set, given->on, error);

    if (!status)
        set_append_name(set, reply);
    return status;
}

static truce_status set_run_protect(struct operation_call *call, const void *given, bson_t *reply,
                                    bson_error_t *error)
{
    return set_run_on(call, given, true, set_protect, reply, error);
}

static const struct operation_row protect_operation = {
    OPERATION("truceSetProtect", ROLE_WRITE,
              "refuses removed elements that programs without watermarks would restore"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`set`: its name. The validator of the collection gets a rule: such a write fails with "
        "error 121. An error: 24 (locked) a commit holds a document; send the command again",
    .fields = protect_fields,
    .size = sizeof(struct protect_given),
    .run = set_run_protect,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceSetProtect: 'students', key: 'student_id', field: 'classes', name: 'name', on: "
        "true}",
};

/* Converts the elements without numbers, and replies with the counts. If some documents could not
 * be converted, the operation succeeds and reports the first failure. */
static truce_status set_convert(truce_set *set, const void *given, bson_t *reply,
                                bson_error_t *error)
{
    truce_set_converted converted;
    truce_status status = truce_set_convert(set, &converted, error);

    (void)given;
    if (status && !converted.left)
        return status;
    BCON_APPEND(reply, "documents", BCON_INT64(converted.documents), "elements",
                BCON_INT64(converted.elements), "left", BCON_INT64(converted.left));
    if (status)
        BSON_APPEND_UTF8(reply, "failure", error->message);
    return TRUCE_OK;
}

static truce_status set_run_convert(struct operation_call *call, const void *given, bson_t *reply,
                                    bson_error_t *error)
{
    return set_run_on(call, given, true, set_convert, reply, error);
}

static const struct operation_row convert_operation = {
    OPERATION("truceSetConvert", ROLE_WRITE,
              "gives every element without a number the number 0, in all documents"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`documents` that were written, `elements` that changed, and documents that were `left` "
        "unchanged, with `failure`: why. Such a document has a value other than a list",
    .fields = named_fields,
    .size = sizeof(struct set_named),
    .run = set_run_convert,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSetConvert: 'students', key: 'student_id', field: 'classes', name: 'name'}",
};

struct forget_given {
    struct set_named named; /* Must be the first field: the table has offsets into it. */
    bool anyway;
};

static const struct operation_field forget_fields[] = {
    SET_FIELDS,
    SET_KEY_FIELD,
    {GIVEN(forget_given, anyway, FIELD_FLAG),
     "removes the definition even if documents still contain the lists"},
    {{0}}};

/* Removes the definition of the set. If documents still have its lists, the operation fails with
 * CONFLICT unless `anyway` is given. */
static truce_status set_forget_definition(truce_set *set, const void *arg, bson_t *reply,
                                          bson_error_t *error)
{
    const struct forget_given *given = arg;
    bson_error_t why;
    truce_status status = truce_set_forget(set, given->anyway, &why);

    if (status == TRUCE_CONFLICT)
        return truce__fail(status, error, "%s: use 'anyway' to remove it and to keep the documents",
                           why.message);
    if (status)
        *error = why;
    else
        set_append_name(set, reply);
    return status;
}

static truce_status set_run_forget(struct operation_call *call, const void *given, bson_t *reply,
                                   bson_error_t *error)
{
    return set_run_on(call, given, true, set_forget_definition, reply, error);
}

static const struct operation_row forget_operation = {
    OPERATION("truceSetForget", ROLE_WRITE,
              "removes the definition of a set with its sources and records"),
    .target = "collection",
    .value = "the collection",
    .answer =
        "`set`: its name. No process may use the set during the command. The lists in the "
        "documents stay. \"not found\": no such set exists. An error: 112 (conflict) a document "
        "contains one of the lists, and `anyway` is absent",
    .fields = forget_fields,
    .size = sizeof(struct forget_given),
    .run = set_run_forget,
    .example = "{truceSetForget: 'students', key: 'student_id', field: 'classes', name: 'name', "
               "anyway: true}",
};

const struct operation_row *const set_operations[] = {&set_operation,
                                                      &define_operation,
                                                      &source_operation,
                                                      &collect_operation,
                                                      &record_operation,
                                                      &quarantine_operation,
                                                      &replay_operation,
                                                      &protect_operation,
                                                      &convert_operation,
                                                      &forget_operation,
                                                      NULL};
