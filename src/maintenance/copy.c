/*
 * Copies a store into another store.
 *
 *     plan        which collections, and what may be done to each in `to`
 *     copy        from the _id in the record on, in the order of _id
 *     indexes     those that expire nothing
 *     compare     both sides completely
 *        |  if they differ, and the last round changed something: copy these collections
 *        |  again, then indexes, then compare, up to `rounds` rounds in all
 *     expiring indexes, record "done"
 *
 * The record of a collection in `to`, and its documents, decide what may be done there:
 *
 *     its record and documents                 NEW           MERGE     REPLACE      COMPARE
 *     nothing                                  everything    inserts   everything   nothing
 *     copying, from here                       everything    inserts   everything   nothing
 *     done, from here                          nothing       inserts   everything   nothing
 *     documents, and no record from here       refused       inserts   everything   nothing
 *
 * A complete copy is changed only on request, because it may already be in use.
 *
 * MC1  If a copy is reported as verified, every document was compared after its last write.
 * MC2  If no other process writes to `to`, it equals one snapshot of `from`. If `from` has
 *   snapshots (truce/snapshot.h), everything is read from one that is taken first and never
 *   expires. Writers to `from` then cost only the log that it pins. Otherwise, the snapshot is the
 *   start of the last comparison: each document of `to` was read before, and was found in `from`
 *   after it. It was therefore stored at that time, unless it was changed and changed back. Writers
 *   to `from` then cost rounds, but never lead to a verified mixture.
 * MC3  Commits move with their documents. Both sides have the documents and the commit
 *   document of an open commit from one snapshot (MC2). A process that encounters it in `to`
 *   completes or undoes it. If the commit documents are not copied, no commit may be open.
 * MC4  A crash leaves documents up to some _id, and a record with this _id or an earlier one.
 *
 * Deliberately not done: following the writers (the next call copies a change after the start of
 * the comparison), parallel reading, and data of a server other than documents and indexes.
 */
#include "maintenance/copy.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/plural.h"
#include "base/reserved_fields.h"
#include "bson/number.h"
#include "commit/journal.h"
#include "query/index/index_set.h"
#include "store/snapshot_view.h"
#include "store/store.h"
#include "truce/snapshot.h"

/* ---- the report ------------------------------------------------------------------------------ */

/* The report of a copy: collections, and the first of the remaining differences. */

/* The maximum bytes of a value in the report. A longer value is omitted. */
#define VALUE_BYTES 1000

static bool take_note(struct copy *copy, struct copy_notes *notes, bson_t *note)
{
    if (notes->count++ < copy->options.differences_max) {
        notes->items[notes->count - 1] = note;
        return true;
    }
    bson_destroy(note);
    return false;
}

static int64_t notes_kept(const struct copy *copy, const struct copy_notes *notes)
{
    return notes->count < copy->options.differences_max ? notes->count
                                                        : copy->options.differences_max;
}

static void copy_notes_clear(struct copy *copy, struct copy_notes *notes)
{
    for (int64_t i = notes_kept(copy, notes); i-- > 0;)
        bson_destroy(notes->items[i]);
    notes->count = 0;
}

static void report_append_value(bson_t *note, const char *key, struct value value)
{
    if (value.type && value.size <= VALUE_BYTES)
        truce__value_append(note, key, (uint32_t)strlen(key), value);
}

static bson_t *begin_note(const struct copy_part *part, const bson_t *document)
{
    bson_t *note = BCON_NEW("collection", BCON_UTF8(part->collection));

    report_append_value(note, "id", truce__value_field(truce__value_document(document), "_id", 3));
    return note;
}

/* Finds the first field of `a` that `b` does not have with the same value. */
static bool report_find_field(const bson_t *a, const bson_t *b, struct fields *field,
                              struct value *other)
{
    *field = truce__fields(truce__value_document(a));
    while (truce__fields_next(field)) {
        *other = truce__value_field(truce__value_document(b), field->key, field->key_length);
        if (!other->type || !truce__value_identical(field->value, *other))
            return true;
    }
    return false;
}

/* Appends the first field that differs, with both values if they are small. */
static void report_append_field(bson_t *note, const bson_t *from, const bson_t *to)
{
    struct fields field;
    struct value other;

    if (report_find_field(from, to, &field, &other)) {
        BSON_APPEND_UTF8(note, "field", field.key);
        report_append_value(note, "from", field.value);
        report_append_value(note, "to", other);
    } else if (report_find_field(to, from, &field, &other)) {
        BSON_APPEND_UTF8(note, "field", field.key);
        report_append_value(note, "to", field.value);
    } else {
        BSON_APPEND_UTF8(note, "text", "the fields have another order");
    }
}

void truce__copy_differs(struct copy *copy, struct copy_part *part, const bson_t *from,
                         const bson_t *to)
{
    bson_t *note;

    part->missing += !to;
    part->extra += !from;
    part->other += from && to;
    if (copy->differences.count >= copy->options.differences_max) {
        copy->differences.count++;
        return;
    }
    note = begin_note(part, from ? from : to);
    BSON_APPEND_UTF8(note, "difference", !to ? "missing" : !from ? "extra" : "other");
    if (from && to)
        report_append_field(note, from, to);
    (void)take_note(copy, &copy->differences, note);
}

static void copy_index_differs(struct copy *copy, const struct copy_part *part, const char *index,
                               const char *text)
{
    (void)take_note(copy, &copy->indexes,
                    BCON_NEW("collection", BCON_UTF8(part->collection), "index", BCON_UTF8(index),
                             "text", BCON_UTF8(text)));
}

void truce__copy_refused(struct copy *copy, const struct copy_part *part, const bson_t *document,
                         const bson_error_t *why)
{
    bson_t *note = begin_note(part, document);

    BSON_APPEND_UTF8(note, "text", why->message);
    (void)take_note(copy, &copy->refusals, note);
}

/* ---- reports --------------------------------------------------------------------------------- */

static struct value report_field_of(const bson_t *note, const char *name)
{
    return truce__value_field(truce__value_document(note), name, (uint32_t)strlen(name));
}

static bool report_same_field(const bson_t *a, const bson_t *b, const char *name)
{
    struct value x = report_field_of(a, name), y = report_field_of(b, name);

    return x.type && y.type && truce__value_identical(x, y);
}

/* Appends the reason why the store refused the document of a difference, if a reason is known. */
static void report_append_reason(const struct copy *copy, bson_t *note)
{
    for (int64_t i = 0; i < notes_kept(copy, &copy->refusals); i++) {
        const bson_t *refusal = copy->refusals.items[i];

        if (!report_same_field(note, refusal, "collection") ||
            !report_same_field(note, refusal, "id"))
            continue;
        report_append_value(note, "text", report_field_of(refusal, "text"));
        return;
    }
}

static int64_t copy_different(const struct copy_part *part)
{
    return part->missing + part->other + part->extra;
}

static bool report_is_same(const struct copy_part *part)
{
    return !copy_different(part) && part->from_sum.high == part->to_sum.high &&
           part->from_sum.low == part->to_sum.low;
}

/* Passes the summary of a collection to the caller. */
static void report_collection(const struct copy *copy, const struct copy_part *part)
{
    char hash[FINGERPRINT_TEXT];
    bson_t *summary;

    truce__fingerprint_text(&part->from_sum, hash);
    summary = BCON_NEW("collection", BCON_UTF8(part->collection), "documents",
                       BCON_INT64(part->documents), "hash", BCON_UTF8(hash), "indexes",
                       BCON_INT64(part->indexes), "inserted", BCON_INT64(part->inserted),
                       "replaced", BCON_INT64(part->replaced), "removed", BCON_INT64(part->removed),
                       "kept", BCON_INT64(part->kept), "missing", BCON_INT64(part->missing),
                       "other", BCON_INT64(part->other), "extra", BCON_INT64(part->extra), "same",
                       BCON_BOOL(report_is_same(part)));
    copy->options.collection(summary, copy->options.arg);
    bson_destroy(summary);
}

/* Calls the options' functions for all collections and for the remaining differences. */
static void copy_report(struct copy *copy)
{
    const truce_copy_options *options = &copy->options;

    for (size_t i = 0; options->collection && i < copy->count; i++)
        report_collection(copy, &copy->parts[i]);
    if (!options->difference)
        return;
    for (int64_t i = 0; i < notes_kept(copy, &copy->differences); i++) {
        report_append_reason(copy, copy->differences.items[i]);
        options->difference(copy->differences.items[i], options->arg);
    }
    for (int64_t i = 0; i < notes_kept(copy, &copy->indexes); i++)
        options->difference(copy->indexes.items[i], options->arg);
}

/* ---- the record of progress ------------------------------------------------------------------ */

/*
 * The progress of a copy, in the store that is copied to:
 *
 *     truce_copies  {_id: "people", from: "school.truce", run, state: "copying", last, documents,
 *                    at}
 *
 *     no record --begin--> copying --finish--> done --begin (replace)--> copying
 *
 * `last` is stored after the documents up to it are written. After a crash in between, the next run
 * finds those documents unchanged. `run` identifies the run that writes. If another run has begun,
 * the earlier one fails when it stores its progress.
 */

static bson_t *record_key_of(const char *collection)
{
    return BCON_NEW("_id", BCON_UTF8(collection));
}

/* Reads the record. Fails with NOT_FOUND if there is no record. `record` is always initialized. */
static truce_status copy_record_read(struct copy *copy, const char *collection, bson_t *record,
                                     bson_error_t *error)
{
    bson_t *key = record_key_of(collection);
    truce_status status = truce_find_one(copy->to, COPY_RECORDS, key, NULL, record, error);

    bson_destroy(key);
    return status;
}

/* Records that this run copies the collection. */
static truce_status copy_record_begin(struct copy *copy, const struct copy_part *part,
                                      bson_error_t *error)
{
    const truce_write_options options = {.upsert = true};
    bson_t *key = record_key_of(part->collection), update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_UTF8(&set, "from", copy->options.name);
    BSON_APPEND_OID(&set, "run", &copy->run);
    BSON_APPEND_UTF8(&set, "state", "copying");
    BSON_APPEND_INT64(&set, "documents", part->before);
    BSON_APPEND_DATE_TIME(&set, "at", truce__clock_wall_ms());
    bson_append_document_end(&update, &set);
    if (bson_empty(part->last))
        BCON_APPEND(&update, "$unset", "{", "last", BCON_UTF8(""), "}");
    status = truce_update(copy->to, COPY_RECORDS, key, &update, &options, NULL, error);
    bson_destroy(&update);
    bson_destroy(key);
    return status;
}

truce_status truce__copy_record_save(struct copy *copy, struct copy_part *part, struct value id,
                                     bson_error_t *error)
{
    const truce_write_options options = {.relaxed = true};
    bson_t *key = record_key_of(part->collection), update = BSON_INITIALIZER, set;
    truce_write_result result = {0};
    truce_status status;

    bson_reinit(part->last);
    truce__value_append(part->last, "last", 4, id);
    BSON_APPEND_OID(key, "run", &copy->run);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    truce__value_append(&set, "last", 4, id);
    BSON_APPEND_INT64(&set, "documents", part->before + part->documents);
    BSON_APPEND_DATE_TIME(&set, "at", truce__clock_wall_ms());
    bson_append_document_end(&update, &set);
    status = truce_update(copy->to, COPY_RECORDS, key, &update, &options, &result, error);
    if (!status && !result.matched)
        status = truce__fail(
            TRUCE_CONFLICT, error,
            "another process has begun to copy the collection \"%s\" into the target store",
            part->collection);
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(key);
    return status;
}

/* Marks all collections of this run as copied and compared. */
static truce_status copy_record_finish(struct copy *copy, bson_error_t *error)
{
    const truce_write_options options = {.multi = true};
    bson_t filter = BSON_INITIALIZER, *update;
    truce_status status;

    BSON_APPEND_OID(&filter, "run", &copy->run);
    update = BCON_NEW("$set", "{", "state", BCON_UTF8("done"), "at",
                      BCON_DATE_TIME(truce__clock_wall_ms()), "}", "$unset", "{", "last",
                      BCON_UTF8(""), "}");
    status = truce_update(copy->to, COPY_RECORDS, &filter, update, &options, NULL, error);
    bson_destroy(update);
    bson_destroy(&filter);
    return status;
}

/* ---- reads after an _id --------------------------------------------------------------------- */

/* Returns whether all stores order the values of this class alike. A filter that compares finds
 * only values of the class of its operand. All values of other classes are read again. */
static bool has_order(struct value id)
{
    switch (id.type) {
    case BSON_TYPE_UTF8:
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_BINARY:
    case BSON_TYPE_OID:
    case BSON_TYPE_DATE_TIME:
    case BSON_TYPE_TIMESTAMP:
        return true;
    default:
        return truce__value_is_number(id) && !isnan(truce__number_to_double(id));
    }
}

/* Appends the types of the classes from `class` on. Omits obsolete types (code, symbols) that some
 * servers do not know. The comparison still finds documents with such _ids. */
static void append_classes_from(bson_t *types, int class)
{
    static const int known[] = {BSON_TYPE_NULL,       BSON_TYPE_DOUBLE, BSON_TYPE_INT32,
                                BSON_TYPE_INT64,      BSON_TYPE_UTF8,   BSON_TYPE_DOCUMENT,
                                BSON_TYPE_BINARY,     BSON_TYPE_OID,    BSON_TYPE_BOOL,
                                BSON_TYPE_DATE_TIME,  BSON_TYPE_MAXKEY, BSON_TYPE_TIMESTAMP,
                                BSON_TYPE_DECIMAL128, BSON_TYPE_MINKEY};
    char buffer[16];
    const char *key;
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (truce__type_class((uint8_t)known[i]) < class)
            continue;
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        bson_append_int32(types, key, -1, known[i] == BSON_TYPE_MINKEY ? -1 : known[i]);
    }
}

void truce__copy_append_rest(const struct copy_part *part, bson_t *filter)
{
    struct value last = truce__value_field(truce__value_document(part->last), "last", 4);
    bson_t either, one, id, types;
    bool ordered;

    bson_init(filter);
    if (!last.type)
        return;
    ordered = has_order(last);
    bson_append_array_begin(filter, "$or", 3, &either);
    if (ordered) {
        bson_append_document_begin(&either, "0", 1, &one);
        bson_append_document_begin(&one, "_id", 3, &id);
        truce__value_append(&id, "$gt", 3, last);
        bson_append_document_end(&one, &id);
        bson_append_document_end(&either, &one);
    }
    bson_append_document_begin(&either, ordered ? "1" : "0", 1, &one);
    bson_append_document_begin(&one, "_id", 3, &id);
    bson_append_array_begin(&id, "$type", 5, &types);
    append_classes_from(&types, truce__type_class(last.type) + ordered);
    bson_append_array_end(&id, &types);
    bson_append_document_end(&one, &id);
    bson_append_document_end(&either, &one);
    bson_append_array_end(filter, &either);
}

/* ---- collections and indexes ----------------------------------------------------------------- */

/*
 * Collections and their indexes. Indexes are created after the documents are copied. This is
 * faster, and a unique index then does not refuse a document because of another one that has moved.
 * Indexes that expire documents come last, after the comparison, because a server would begin to
 * remove documents at once.
 *
 * An index or a validator that the other store cannot create is a difference and does not end the
 * copy.
 */

static const char *index_name_of(const bson_t *index)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, index, "name") && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

static bool copy_index_expires(const bson_t *index)
{
    return bson_has_field(index, "expireAfterSeconds");
}

/* Returns whether the index is hashed, as that of a shard key may be. Such an index belongs to the
 * cluster, and no other store creates one. */
static bool is_hashed(const bson_t *index)
{
    bson_iter_t iter, field;

    if (!bson_iter_init_find(&iter, index, "key") || !bson_iter_recurse(&iter, &field))
        return false;
    while (bson_iter_next(&field)) {
        if (BSON_ITER_HOLDS_UTF8(&field) && !strcmp(bson_iter_utf8(&field, NULL), "hashed"))
            return true;
    }
    return false;
}

/* Returns whether the index is not copied. */
static bool is_left_out(const bson_t *index)
{
    return !strcmp(index_name_of(index), "_id_") || is_hashed(index);
}

/* Finds the index of that name in a list. */
static bool index_find_in(const bson_t *indexes, const char *name, bson_t *found)
{
    struct fields fields = truce__fields(truce__value_document(indexes));

    while (truce__fields_next(&fields)) {
        truce__value_bson(fields.value, found);
        if (!strcmp(index_name_of(found), name))
            return true;
    }
    return false;
}

/* Lists the indexes of both sides. A list is empty if the collection does not exist. */
static truce_status list_both(struct copy *copy, const struct copy_part *part, bson_t *from,
                              bson_t *to, bson_error_t *error)
{
    truce_status status = truce_index_list(copy->from, part->collection, from, error);

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (status) {
        bson_init(to);
        return status;
    }
    status = truce_index_list(copy->to, part->collection, to, error);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status index_make_collection(struct copy *copy, const struct copy_part *part,
                                          bson_error_t *error)
{
    truce_status status = truce_collection_create(copy->to, part->collection, error);

    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

/* Creates an index in `to`. A refusal is noted as a difference and ends nothing. */
static truce_status index_make_index(struct copy *copy, struct copy_part *part, const bson_t *index,
                                     bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce_index_create(copy->to, part->collection, index, &caught);

    if (status == TRUCE_INVALID || status == TRUCE_DUPLICATE || status == TRUCE_LIMIT) {
        copy_index_differs(copy, part, index_name_of(index), caught.message);
        return TRUCE_OK;
    }
    if (status && error)
        *error = caught;
    part->indexes += !status;
    return status;
}

/* Creates the collection and its indexes, those that expire documents or the others. */
static truce_status truce__copy_indexes(struct copy *copy, struct copy_part *part, bool expiring,
                                        bson_error_t *error)
{
    struct fields fields;
    bson_t from, to;
    truce_status status = index_make_collection(copy, part, error);

    if (status || copy->options.no_indexes)
        return status;
    status = list_both(copy, part, &from, &to, error);
    fields = truce__fields(truce__value_document(&from));
    while (!status && truce__fields_next(&fields)) {
        bson_t index, there;

        truce__value_bson(fields.value, &index);
        if (is_left_out(&index) || copy_index_expires(&index) != expiring)
            continue;
        if (!index_find_in(&to, index_name_of(&index), &there) || !bson_equal(&index, &there))
            status = index_make_index(copy, part, &index, error);
    }
    bson_destroy(&from);
    bson_destroy(&to);
    return status;
}

/* Sets the validator in `to`. A refusal is noted as a difference. */
static truce_status copy_validator(struct copy *copy, const struct copy_part *part,
                                   bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    if (!part->validator)
        return TRUCE_OK;
    status = truce_collection_validate(copy->to, part->collection, part->validator, &caught);
    if (status == TRUCE_INVALID) {
        copy_index_differs(copy, part, "validator", caught.message);
        return TRUCE_OK;
    }
    if (status && error)
        *error = caught;
    return status;
}

/* Sets the validator and the other options of the collection, after everything else. */
static truce_status truce__copy_options(struct copy *copy, const struct copy_part *part,
                                        bson_error_t *error)
{
    truce_status status;

    if (part->rights != COPY_EVERYTHING)
        return TRUCE_OK;
    status = copy_validator(copy, part, error);
    if (!status && part->images)
        status = truce__store_keep_images(copy->to, part->collection, true, error);
    return status;
}

/* Notes each index of `from` that `to` does not have with the same definition. */
static truce_status copy_indexes_compare(struct copy *copy, struct copy_part *part,
                                         bson_error_t *error)
{
    struct fields fields;
    bson_t from, to;
    truce_status status;

    if (copy->options.no_indexes)
        return TRUCE_OK;
    status = list_both(copy, part, &from, &to, error);
    fields = truce__fields(truce__value_document(&from));
    while (!status && truce__fields_next(&fields)) {
        bson_t index, there;

        truce__value_bson(fields.value, &index);
        if (is_left_out(&index))
            continue;
        if (!index_find_in(&to, index_name_of(&index), &there))
            copy_index_differs(copy, part, index_name_of(&index), "it is missing");
        else if (!bson_equal(&index, &there))
            copy_index_differs(copy, part, index_name_of(&index), "it has another definition");
    }
    bson_destroy(&from);
    bson_destroy(&to);
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The defaults of truce_copy_options. */
#define BATCH       1000
#define ROUNDS      3
#define DIFFERENCES 20

/* ---- plan: which collections ----------------------------------------------------------------- */

static struct copy_part *copy_find_part(struct copy *copy, const char *collection)
{
    for (size_t i = 0; i < copy->count; i++) {
        if (!strcmp(copy->parts[i].collection, collection))
            return &copy->parts[i];
    }
    return NULL;
}

static bool copy_is_wanted(const struct copy *copy, const char *collection)
{
    const char *const *wanted = copy->options.collections;

    if (!strcmp(collection, COPY_RECORDS))
        return false;
    for (; wanted && *wanted; wanted++) {
        if (!strcmp(*wanted, collection))
            return true;
    }
    return !copy->options.collections;
}

static void copy_add_part(struct copy *copy, const char *collection, int64_t expected)
{
    struct copy_part *part;

    copy->parts = bson_realloc(copy->parts, (copy->count + 1) * sizeof *copy->parts);
    part = &copy->parts[copy->count++];
    *part = (struct copy_part){.collection = bson_strdup(collection), .expected = expected};
    part->last = bson_new();
    copy->total += expected;
}

/* Lists the collections to copy, with their validators and options. Fails with NOT_FOUND if a
 * requested collection does not exist. */
static truce_status list_from(struct copy *copy, bson_error_t *error)
{
    const char *const *wanted = copy->options.collections;
    bson_t collections, one, validator;
    truce_status status = truce_collection_list(copy->from, NULL, &collections, error);
    struct fields fields = truce__fields(truce__value_document(&collections));

    while (!status && truce__fields_next(&fields)) {
        truce__value_bson(fields.value, &one);
        if (!copy_is_wanted(copy, truce__field_text(&one, "name")))
            continue;
        copy_add_part(copy, truce__field_text(&one, "name"),
                      truce__field_number(&one, "documents"));
        if (truce__value_subdocument(&one, "validator", &validator))
            copy->parts[copy->count - 1].validator = bson_copy(&validator);
        copy->parts[copy->count - 1].images = bson_has_field(&one, "images");
    }
    bson_destroy(&collections);
    for (; !status && wanted && *wanted; wanted++) {
        if (!copy_find_part(copy, *wanted))
            status = truce__fail(TRUCE_NOT_FOUND, error,
                                 "the collection \"%s\" to copy does not exist", *wanted);
    }
    return status;
}

/* Adds the collections of an unfinished copy that `from` no longer has. They are emptied. */
static truce_status list_unfinished(struct copy *copy, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("state", BCON_UTF8("copying"), "from", BCON_UTF8(copy->options.name));
    truce_cursor *cursor = NULL;
    const bson_t *record;
    truce_status status = truce_find(copy->to, COPY_RECORDS, filter, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &record, error);
        if (status || !record)
            break;
        if (copy_is_wanted(copy, truce__field_text(record, "_id")) &&
            !copy_find_part(copy, truce__field_text(record, "_id")))
            copy_add_part(copy, truce__field_text(record, "_id"), 0);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

/* ---- plan: what may be done ------------------------------------------------------------------ */

static truce_status holds_anything(struct copy *copy, const char *collection, bool *holds,
                                   bson_error_t *error)
{
    bson_t any;
    truce_status status = truce_find_one(copy->to, collection, NULL, NULL, &any, error);

    *holds = !status;
    bson_destroy(&any);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status copy_refuse_part(const struct copy_part *part, const bson_t *record,
                                     bson_error_t *error)
{
    if (!strcmp(truce__field_text(record, "state"), "copying"))
        return truce__fail(
            TRUCE_CONFLICT, error,
            "the collection \"%s\" of the target store is an unfinished copy of another store (%s)",
            part->collection, truce__field_text(record, "from"));
    return truce__fail(TRUCE_CONFLICT, error,
                       "the collection \"%s\" of the target store already has documents",
                       part->collection);
}

static void copy_resume(struct copy *copy, struct copy_part *part, const bson_t *record)
{
    struct value last = truce__value_field(truce__value_document(record), "last", 4);

    truce__value_append(part->last, "last", 4, last);
    part->before = last.type ? truce__field_number(record, "documents") : 0;
    copy->done += part->before;
    copy->report->resumed_at += part->before;
}

/* Decides for a copy into a new store. Fails with CONFLICT if the collection has documents, and no
 * record says that they are copied from this store. */
static truce_status plan_new(struct copy *copy, struct copy_part *part, const bson_t *record,
                             bson_error_t *error)
{
    bool from_here = !strcmp(truce__field_text(record, "from"), copy->options.name);
    bool copying = !strcmp(truce__field_text(record, "state"), "copying"), holds;
    truce_status status = holds_anything(copy, part->collection, &holds, error);

    if (status)
        return status;
    if (holds && (bson_empty(record) || !from_here))
        return copy_refuse_part(part, record, error);
    part->rights = !holds || copying ? COPY_EVERYTHING : COPY_NOTHING;
    part->fresh = !holds;
    if (holds && copying)
        copy_resume(copy, part, record);
    return TRUCE_OK;
}

/* Decides what may be done to the collection in `to`, by the mode of the copy and by the record of
 * progress. */
static truce_status plan_part(struct copy *copy, struct copy_part *part, bson_error_t *error)
{
    bson_t record;
    truce_status status = copy_record_read(copy, part->collection, &record, error);

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status) {
        switch (copy->options.mode) {
        case TRUCE_COPY_NEW:
            status = plan_new(copy, part, &record, error);
            break;
        case TRUCE_COPY_MERGE:
            part->rights = COPY_INSERTS;
            break;
        case TRUCE_COPY_REPLACE:
            part->rights = COPY_EVERYTHING;
            break;
        case TRUCE_COPY_COMPARE:
            part->rights = COPY_NOTHING;
            break;
        }
    }
    bson_destroy(&record);
    return status;
}

static truce_status copy_plan_parts(struct copy *copy, bson_error_t *error)
{
    truce_status status = list_from(copy, error);

    if (!status && copy->options.mode == TRUCE_COPY_NEW)
        status = list_unfinished(copy, error);
    for (size_t i = 0; i < copy->count && !status; i++)
        status = plan_part(copy, &copy->parts[i], error);
    return status;
}

/* ---- open commits (MC3) ---------------------------------------------------------------------- */

/* Fails with INVALID if a commit holds documents of the collection, and the commit documents are
 * not copied (MC3). */
static truce_status check_held(struct copy *copy, const struct copy_part *part, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}"), held;
    truce_status status = truce_find_one(copy->from, part->collection, filter, NULL, &held, error);

    bson_destroy(&held);
    bson_destroy(filter);
    if (!status)
        return truce__fail(
            TRUCE_INVALID, error,
            "a commit has locked documents of the collection \"%s\", which cannot be "
            "copied without the collection \"%s\"",
            part->collection, COMMITS);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Counts the open commits. Unless the option `live` is set, fails with CONFLICT if there are
 * any. */
static truce_status check_commits(struct copy *copy, bson_error_t *error)
{
    bson_t *open =
        BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"), BCON_UTF8("committed"), "]", "}");
    truce_status status = truce_count(copy->from, COMMITS, open, NULL, &copy->report->open, error);
    bool whole = copy_find_part(copy, COMMITS) != NULL;

    bson_destroy(open);
    if (!status && copy->report->open && !copy->options.live)
        status = truce__fail(TRUCE_CONFLICT, error, "%s pending in the source store",
                             PLURAL(copy->report->open, "commit is", "commits are"));
    for (size_t i = 0; i < copy->count && !status && !whole && copy->report->open; i++)
        status = check_held(copy, &copy->parts[i], error);
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Copies each collection that may be written and differs, in the first round each of them, and
 * creates its indexes. */
static truce_status copy_pass_all(struct copy *copy, bool first, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    copy_notes_clear(copy, &copy->refusals);
    copy_notes_clear(copy, &copy->indexes);
    copy->comparing = false;
    for (size_t i = 0; i < copy->count && !status; i++) {
        struct copy_part *part = &copy->parts[i];

        if (part->rights == COPY_NOTHING)
            continue;
        if (!first && copy_different(part)) {
            part->before = 0;
            bson_reinit(part->last);
        }
        if (first || copy_different(part))
            status = truce__copy_pass(copy, part, true, error);
        if (!status)
            status = truce__copy_indexes(copy, part, false, error);
    }
    return status;
}

/* Compares each collection completely, and counts the differences of this round. */
static truce_status compare_pass_all(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    copy_notes_clear(copy, &copy->differences);
    copy->comparing = true;
    copy->done = copy->report->documents = copy->report->kept = 0;
    for (size_t i = 0; i < copy->count && !status; i++) {
        struct copy_part *part = &copy->parts[i];

        status = truce__copy_pass(copy, part, false, error);
        if (!status && part->rights == COPY_NOTHING)
            status = copy_indexes_compare(copy, part, error);
        copy->report->documents += part->documents;
        copy->report->kept += part->kept;
    }
    copy->report->differences = copy->differences.count + copy->indexes.count;
    return status;
}

static int64_t copy_count_changes(const struct copy *copy)
{
    int64_t sum = 0;

    for (size_t i = 0; i < copy->count; i++)
        sum += copy->parts[i].inserted + copy->parts[i].replaced + copy->parts[i].removed;
    return sum;
}

static bool may_write(const struct copy *copy)
{
    for (size_t i = 0; i < copy->count; i++) {
        if (copy->parts[i].rights != COPY_NOTHING)
            return true;
    }
    return false;
}

/* Copies and compares until there is no difference, a further round changes nothing, or all rounds
 * are used. */
static truce_status copy_run_passes(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t round = 0; round < copy->options.rounds && !status; round++) {
        int64_t before = copy_count_changes(copy);

        copy->done = round ? 0 : copy->done;
        status = copy_pass_all(copy, round == 0, error);
        if (!status)
            status = compare_pass_all(copy, error);
        if (!copy->report->differences || (round > 0 && copy_count_changes(copy) == before))
            break;
    }
    return status;
}

static truce_status copy_begin(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < copy->count && !status; i++) {
        if (copy->parts[i].rights != COPY_NOTHING)
            status = copy_record_begin(copy, &copy->parts[i], error);
    }
    return status;
}

/* Completes a copy without differences: expiring indexes, validators, and the records. With
 * differences, leaves the records as they are. */
static truce_status copy_end(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (copy->report->differences)
        return TRUCE_OK;
    for (size_t i = 0; i < copy->count && !status; i++) {
        if (copy->parts[i].rights != COPY_NOTHING)
            status = truce__copy_indexes(copy, &copy->parts[i], true, error);
        if (!status)
            status = truce__copy_options(copy, &copy->parts[i], error);
    }
    copy->report->differences = copy->indexes.count;
    return status || copy->indexes.count ? status : copy_record_finish(copy, error);
}

/* Plans, copies, and compares. If nothing may be written, only compares. */
static truce_status copy_run(struct copy *copy, bson_error_t *error)
{
    truce_status status = copy_plan_parts(copy, error);

    if (status)
        return status;
    if (!may_write(copy))
        return compare_pass_all(copy, error);
    status = check_commits(copy, error);
    if (!status)
        status = copy_begin(copy, error);
    if (!status)
        status = copy_run_passes(copy, error);
    return status ? status : copy_end(copy, error);
}

/* ---- the call -------------------------------------------------------------------------------- */

static uint32_t or_default(uint32_t given, uint32_t otherwise, uint32_t most)
{
    return !given ? otherwise : given < most ? given : most;
}

static void set_defaults(truce_copy_options *options)
{
    options->name = options->name ? options->name : "";
    options->batch = or_default(options->batch, BATCH, TRUCE_COPY_BATCH_MAX);
    options->rounds = or_default(options->rounds, ROUNDS, UINT32_MAX);
    options->differences_max =
        or_default(options->differences_max, DIFFERENCES, TRUCE_COPY_DIFFERENCES_MAX);
}

static void take_report(struct copy *copy)
{
    copy->report->collections = (int64_t)copy->count;
    for (size_t i = 0; i < copy->count; i++) {
        copy->report->inserted += copy->parts[i].inserted;
        copy->report->replaced += copy->parts[i].replaced;
        copy->report->removed += copy->parts[i].removed;
        copy->report->indexes += copy->parts[i].indexes;
    }
}

/* Frees what the copy owns: the notes and the states of the collections. */
static void copy_release(struct copy *copy)
{
    struct copy_notes *const notes[] = {&copy->differences, &copy->refusals, &copy->indexes};

    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        copy_notes_clear(copy, notes[i]);
        bson_free(notes[i]->items);
    }
    for (size_t i = 0; i < copy->count; i++) {
        bson_free(copy->parts[i].collection);
        bson_destroy(copy->parts[i].last);
        bson_destroy(copy->parts[i].validator);
    }
    bson_free(copy->parts);
}

/* Opens a snapshot of `from` if the store has snapshots. Otherwise returns `from` itself; writers
 * then cause further rounds. */
static truce_status copy_open_snapshot(truce_store *from, truce_store **snapshot,
                                       bson_error_t *error)
{
    static const truce_snapshot_options unlimited = {.unlimited = true};
    truce_status status = truce__store_snapshot(from, &unlimited, snapshot, error);

    return status == TRUCE_INVALID ? TRUCE_OK : status;
}

truce_status truce_copy(truce_store *from, truce_store *to, const truce_copy_options *options,
                        truce_copy_report *report, bson_error_t *error)
{
    RETURN_IF_NULL(to, error);
    RETURN_IF_NULL(report, error);

    struct copy copy = {.from = from, .to = to, .report = report};
    truce_store *snapshot = NULL;
    truce_status status = ROOM_CHECK(options, "truce_copy_options", error);
    size_t notes;

    *report = (truce_copy_report){0};
    if (status)
        return status;
    if (options)
        copy.options = *options;
    set_defaults(&copy.options);
    notes = copy.options.differences_max;
    copy.differences.items = bson_malloc0(notes * sizeof(bson_t *));
    copy.refusals.items = bson_malloc0(notes * sizeof(bson_t *));
    copy.indexes.items = bson_malloc0(notes * sizeof(bson_t *));
    truce__id_new(&copy.run);
    status = copy_open_snapshot(from, &snapshot, error);
    if (snapshot)
        copy.from = snapshot;
    if (!status)
        status = copy_run(&copy, error);
    take_report(&copy);
    if (!status)
        copy_report(&copy);
    copy_release(&copy);
    truce_store_close(snapshot);
    return status;
}
