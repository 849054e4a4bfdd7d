/*
 * How far a copy came, in the store that is copied to:
 *
 *     truce_copies  {_id: "people", from: "school.truce", run, state: "copying", last, documents, at}
 *
 *     no record --begin--> copying --finish--> done --begin (replace)--> copying
 *
 * `last` is saved after the documents up to it are written, so a crash between the two leaves
 * documents that are found there, the same, by the next run. `run` is the run that writes: each
 * begins with a number of its own, and one that was overtaken notices at its next save.
 */
#include "maintenance/copy.h"

#include <math.h>

#include "base/clock.h"
#include "bson/number.h"

static bson_t *record_key_of(const char *collection)
{
    return BCON_NEW("_id", BCON_UTF8(collection));
}

truce_status truce__copy_record_read(struct copy *copy, const char *collection, bson_t *record,
                                     bson_error_t *error)
{
    bson_t *key = record_key_of(collection);
    truce_status status = truce_find_one(copy->to, COPY_RECORDS, key, NULL, record, error);

    bson_destroy(key);
    return status;
}

truce_status truce__copy_record_begin(struct copy *copy, const struct copy_part *part,
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
        status = truce__fail(TRUCE_CONFLICT, error,
                             "another process has begun to copy the collection %s there",
                             part->collection);
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(key);
    return status;
}

truce_status truce__copy_record_finish(struct copy *copy, bson_error_t *error)
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

/* ---- behind an _id -------------------------------------------------------------------------- */

/* A comparison in a filter stays within the class of its operand. Of these classes all stores order
 * the values alike; of the others the whole class is looked at again. */
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

/* Without the types that nobody uses for _ids any more (code, symbols), and that some servers do not
 * know: the comparison would find such documents. */
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

void truce__copy_behind(const struct copy_part *part, bson_t *filter)
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
