/* Ordered sets: operations, their sources, the collecting of tombstones. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "operations/operation.h"
#include "truce/set.h"

/* What names a set, in every command; first in their structs. */
struct set_named {
    const char *field, *name, *deleted, *seqField, *sourceField, *watermark;
    const bson_value_t *key;
    bool byElement;
};

#define SET_FIELDS                                                                                 \
    {GIVEN(set_named, field, FIELD_TEXT), "the list in the document: \"classes\"",                 \
     .needed = true},                                                                              \
        {GIVEN(set_named, name, FIELD_TEXT), "the field of an element that names it: \"name\"",    \
         .needed = true},                                                                          \
        {GIVEN(set_named, deleted, FIELD_TEXT),                                                    \
         "the list of tombstones, if it is another than \"deleted_\" and the field"},              \
        {GIVEN(set_named, seqField, FIELD_TEXT),                                                   \
         "the field of an element with its number, if it is another than \"seq\""},                \
        {GIVEN(set_named, sourceField, FIELD_TEXT),                                                \
         "the field of an element with its source, if it is another than \"src\""},                \
        {GIVEN(set_named, watermark, FIELD_TEXT),                                                  \
         "the field of the document with the watermark, if it is another than \"_wm\""},           \
    {                                                                                              \
        GIVEN(set_named, byElement, FIELD_FLAG),                                                   \
            "one document for each element, for sets that outgrow a document"                      \
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

/* The names of the fields of the key: {student_id: 1} or "student_id". */
static truce_status key_fields(struct operation_call *call, const bson_value_t *key,
                               const char **fields, bson_error_t *error)
{
    struct buffer names = {0};
    bson_iter_t at;
    bson_t document;

    *fields = key && key->value_type == BSON_TYPE_UTF8 ? key->value.v_utf8.str : NULL;
    if (*fields)
        return TRUCE_OK;
    if (!key || key->value_type != BSON_TYPE_DOCUMENT ||
        !bson_init_static(&document, key->value.v_doc.data, key->value.v_doc.data_len))
        return truce__refuse(
            CODE_TYPE_MISMATCH, error, "'key' must be the key of a document, {student_id: 1}%s",
            call->row->ways & OPERATION_TRANSACTS ? "" : ", or the names of its fields");
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

/* The set that the command is about. `key` NULL: as the command names it. */
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
    char *text;
    truce_status status = truce__operation_own_collection(call, writes, &options.collection, error);

    if (!status)
        status = key_fields(call, key ? key : given->key, &options.key, error);
    if (status)
        return status;
#define OR(text) ((text) ? (text) : "")
    text = bson_strdup_printf("set\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%d", options.collection,
                              options.key, options.field, options.name, OR(options.deleted),
                              OR(options.seq), OR(options.source), OR(options.watermark),
                              (int)options.layout);
#undef OR
    *handle = truce__operation_handle(call, text, operation_set_make_set, made, free_set);
    bson_free(text);
    return TRUCE_OK;
}

/* ---- truceSet --------------------------------------------------------------------------------- */

struct set_given {
    struct set_named named; /* first */
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
    {GIVEN(set_given, source, FIELD_TEXT), "who gave the number, where there are several"},
    {GIVEN(set_given, apply, FIELD_ARRAY),
     "instead: many operations, of any documents, each {add or remove, key, seq, source}"},
    {GIVEN(set_given, consumer, FIELD_TEXT),
     "records for this consumer what was applied; then its messages may be acknowledged"},
    {GIVEN(set_given, show, FIELD_FLAG), "reads the tombstones and the watermark, too"},
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

static truce_status make_operation(const struct operation_given *given,
                                   truce_set_operation *operation, bson_error_t *error)
{
    if (!given->add == !given->remove)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "an operation has 'add' or 'remove'");
    if (!given->key || !given->seq)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "an operation needs a 'key' and a 'seq'");
    *operation = (truce_set_operation){.verb = given->add ? TRUCE_SET_ADD : TRUCE_SET_REMOVE,
                                       .key = given->key,
                                       .element = given->add ? given->add : given->remove,
                                       .seq = given->seq,
                                       .source = given->source};
    return TRUCE_OK;
}

static truce_status read_apply(struct operation_call *call, const bson_t *apply,
                               truce_set_operation **operations, size_t *count, bson_error_t *error)
{
    size_t room = bson_count_keys(apply);
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (!room || room > TRUCE_BULK_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error, "'apply' has 1 to %d operations",
                             TRUCE_BULK_MAX);
    *operations = truce__arena_take(call->arena, room * sizeof **operations);
    (void)bson_iter_init(&at, apply);
    for (*count = 0; !status && bson_iter_next(&at); (*count)++) {
        struct operation_given given = {0};

        if (!BSON_ITER_HOLDS_DOCUMENT(&at))
            return truce__refuse(CODE_TYPE_MISMATCH, error, "an operation must be a document");
        status = truce__operation_fields(call, truce__field_view(call->arena, &at),
                                         operation_fields, &given, error);
        if (!status)
            status = make_operation(&given, &(*operations)[*count], error);
    }
    return status;
}

static truce_status read_operations(struct operation_call *call, const struct set_given *given,
                                    truce_set_operation **operations, size_t *count,
                                    bson_error_t *error)
{
    const bson_value_t *key = given->named.key;
    struct operation_given one = {
        .add = given->add, .remove = given->remove, .seq = given->seq, .source = given->source};

    *count = 0;
    if (given->apply && (given->add || given->remove || key || given->seq || given->source))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "with 'apply' each operation has its own key, seq and source");
    if (given->apply)
        return read_apply(call, given->apply, operations, count, error);
    if (!given->add && !given->remove)
        return given->seq || given->source || given->consumer
                   ? truce__refuse(CODE_INVALID_OPTIONS, error,
                                   "'seq', 'source' and 'consumer' belong to an operation")
                   : TRUCE_OK;
    if (key && key->value_type == BSON_TYPE_DOCUMENT)
        one.key = truce__bytes_view(call->arena, key->value.v_doc.data, key->value.v_doc.data_len);
    *operations = truce__arena_take(call->arena, sizeof **operations);
    *count = 1;
    return make_operation(&one, *operations, error);
}

/* [{outcome}, {status}, ...] */
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

/* Some failed, and the others were applied all the same. */
static bool is_partial(const truce_set_result *results, size_t count)
{
    size_t failed = 0, applied = 0;

    for (size_t i = 0; i < count; i++) {
        failed += results[i].status != TRUCE_OK;
        applied += !results[i].status && results[i].outcome;
    }
    return failed && applied;
}

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

static truce_status operation_set_look(const struct set_given *given, truce_set *set,
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
    if (given->apply) { /* the fields of all keys are those of the first */
        first.value.v_doc.data = (uint8_t *)bson_get_data(operations[0].key);
        first.value.v_doc.data_len = operations[0].key->len;
        key = &first;
    } else if (!given->named.key || given->named.key->value_type != BSON_TYPE_DOCUMENT) {
        return truce__refuse(CODE_TYPE_MISMATCH, error, "'key' must be a document");
    }
    status = operation_set_take_set(call, &given->named, key, count > 0, &handle, error);
    if (status)
        return status;
    if (count)
        status = operation_set_apply(call, handle->thing, given, operations, count, reply, error);
    else if (bson_init_static(&one, given->named.key->value.v_doc.data,
                              given->named.key->value.v_doc.data_len))
        status = operation_set_look(given, handle->thing, &one, reply, error);
    truce__operation_give(call, handle);
    return status;
}

static const struct operation_row set_operation = {
    OPERATION("truceSet", ROLE_READ,
              "adds to an ordered set, removes from it, or reads it; in whatever order the "
              "operations come"),
    .target = "collection",
    .value = "the collection",
    .answer = "of one operation `outcome`: \"applied\", \"stale\", \"duplicate\" or "
              "\"quarantined\"; of `apply` an array of `results`, each {status, outcome}, and "
              "`failure`, the first reason, where one failed and others were applied; of neither "
              "`members`, or `document` with `show`. \"not found\": nothing was ever applied there",
    .fields = set_fields,
    .size = sizeof(struct set_given),
    .run = operation_set_run_set,
    .ways = OPERATION_COMMITS | OPERATION_AGAIN | OPERATION_TRANSACTS,
    .example = "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', add: "
               "{name: 'CS 101', room: 4}, seq: 1001}",
};

/* ---- sources ---------------------------------------------------------------------------------- */

struct source_given {
    struct set_named named; /* first */
    const char *source;
    bool start;
    int64_t idle, from, to;
};

static const struct operation_field source_fields[] = {
    SET_FIELDS,
    {GIVEN(set_named, key, FIELD_VALUE),
     "the key's fields, comma between: \"student_id\"; or a key", .needed = true},
    {GIVEN(source_given, source, FIELD_TEXT), "the source; absent: numbers without one"},
    {GIVEN(source_given, start, FIELD_FLAG), "announces it: answers its first number"},
    {GIVEN(source_given, idle, FIELD_NUMBER),
     "every number below this one is recorded or will never come", 1, INT64_MAX},
    {GIVEN(source_given, from, FIELD_NUMBER), "numbers from this one ...", 1, INT64_MAX},
    {GIVEN(source_given, to, FIELD_NUMBER), "... to this one were never published", 1, INT64_MAX},
    {{0}}};

static truce_status tell_source(const struct source_given *given, truce_set *set, bson_t *reply,
                                bson_error_t *error)
{
    truce_status status;
    int64_t first;

    if (given->idle)
        return truce_set_source_idle(set, given->source, given->idle, error);
    if (given->from)
        return truce_set_void(set, given->source, given->from, given->to, error);
    status = truce_set_source_start(set, given->source, &first, error);
    if (!status)
        BSON_APPEND_INT64(reply, "first", first);
    return status;
}

static truce_status run_source(struct operation_call *call, const void *arg, bson_t *reply,
                               bson_error_t *error)
{
    const struct source_given *given = arg;
    struct handle *handle;
    truce_status status;

    if (given->start + (given->idle != 0) + (given->from != 0) != 1 || !given->from != !given->to)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "one of 'start', 'idle' and 'from' with 'to' must be given");
    status = operation_set_take_set(call, &given->named, NULL, true, &handle, error);
    if (status)
        return status;
    status = tell_source(given, handle->thing, reply, error);
    truce__operation_give(call, handle);
    return status;
}

static const struct operation_row source_operation = {
    OPERATION("truceSetSource", ROLE_WRITE, "what a publisher says of its numbers"),
    .target = "collection",
    .value = "the collection",
    .answer = "with `start`, `first`: its first number",
    .fields = source_fields,
    .size = sizeof(struct source_given),
    .run = run_source,
    .ways = OPERATION_AGAIN,
    .example = "{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name', "
               "source: 'east', start: true}",
};

/* ---- collecting ------------------------------------------------------------------------------- */

struct collect_given {
    struct set_named named; /* first */
    bool collect;
};

static const struct operation_field collect_fields[] = {
    SET_FIELDS,
    {GIVEN(set_named, key, FIELD_VALUE),
     "the key's fields, comma between: \"student_id\"; or a key", .needed = true},
    {GIVEN(collect_given, collect, FIELD_FLAG), "removes the tombstones at or below the watermark"},
    {{0}}};

static truce_status operation_set_run_collect(struct operation_call *call, const void *arg,
                                              bson_t *reply, bson_error_t *error)
{
    const struct collect_given *given = arg;
    truce_set_collected collected;
    struct handle *handle;
    int64_t watermark;
    bson_t report = BSON_INITIALIZER;
    truce_status status =
        operation_set_take_set(call, &given->named, NULL, given->collect, &handle, error);

    if (!status) {
        if (given->collect)
            status = truce_set_collect(handle->thing, &collected, error);
        if (!status && given->collect)
            BCON_APPEND(reply, "documents", BCON_INT64(collected.documents), "tombstones",
                        BCON_INT64(collected.tombstones));
        if (!status) {
            bson_destroy(&report);
            status = truce_set_watermark(handle->thing, &watermark, &report, error);
        }
        truce__operation_give(call, handle);
    }
    if (!status) {
        bson_iter_t sources;

        BSON_APPEND_INT64(reply, "watermark", watermark);
        if (bson_iter_init_find(&sources, &report, "sources"))
            BSON_APPEND_VALUE(reply, "sources", bson_iter_value(&sources));
    }
    bson_destroy(&report);
    return status;
}

static const struct operation_row collect_operation = {
    OPERATION("truceSetCollect", ROLE_READ,
              "up to where all operations have come; and removes the tombstones that nobody needs"),
    .target = "collection",
    .value = "the collection",
    .answer = "`watermark`, and `sources`: [{source, watermark, floor, missing}]; with `collect`, "
              "`documents` and `tombstones`: how many were changed, and are gone",
    .fields = collect_fields,
    .size = sizeof(struct collect_given),
    .run = operation_set_run_collect,
    .ways = OPERATION_AGAIN,
    .example = "{truceSetCollect: 'students', key: 'student_id', field: 'classes', name: 'name', "
               "collect: true}",
};

const struct operation_row *const set_operations[] = {&set_operation, &source_operation,
                                                      &collect_operation, NULL};
