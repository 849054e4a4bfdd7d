/*
 * Sequences: a counter and the names of its last takers.
 *
 *     {_id: "enrolments", value: 7, recent: [{by: A, count: 1}, {by: B, count: 3}]}
 *
 * B took 5, 6, 7; A took 4. Each taker has a fresh id and sends
 *
 *     {_id, recent.by: {$ne: id}}  ->  {$inc: {value: count},
 *                                       $push: {recent: {$each: [{by: id, count}], $slice: -64}}}
 *
 * in one step, as an upsert. If the call took effect without a reply and is sent again, the guard
 * does not match, and the upsert finds the `_id` (a duplicate key). The taker then reads its
 * numbers from `recent`. A lost reply therefore neither doubles nor skips a number. If 64 other
 * takers took numbers in the meantime, the outcome is UNKNOWN.
 */
#include "patterns/sequence/sequence.h"

#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "base/random.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "store/repeatable_call.h"
#include "store/reserved_names.h"
#include "store/store.h"

/* The maximum number of takers in `recent`. */
#define RECENT_MAX 64
/* How often a call is sent if it gets no reply or conflicts with another one. */
#define ATTEMPTS_MAX 20
/* The maximum count of numbers that one call takes. */
#define COUNT_MAX 1000000
/* The maximum length of the name of a sequence in bytes. */
#define SEQUENCE_NAME_MAX 200

/* Builds the update that takes `count` numbers for the taker `by`. $slice keeps the last RECENT_MAX
 * takers. */
static void sequence_build_update(const bson_oid_t *by, int64_t count, bson_t *update)
{
    bson_t outer, inner, each, one;

    bson_append_document_begin(update, "$inc", -1, &inner);
    bson_append_int64(&inner, "value", -1, count);
    bson_append_document_end(update, &inner);
    bson_append_document_begin(update, "$push", -1, &outer);
    bson_append_document_begin(&outer, "recent", -1, &inner);
    bson_append_array_begin(&inner, "$each", -1, &each);
    bson_append_document_begin(&each, "0", 1, &one);
    bson_append_oid(&one, "by", -1, by);
    bson_append_int64(&one, "count", -1, count);
    bson_append_document_end(&each, &one);
    bson_append_array_end(&inner, &each);
    bson_append_int32(&inner, "$slice", -1, -RECENT_MAX);
    bson_append_document_end(&outer, &inner);
    bson_append_document_end(update, &outer);
}

static void sequence_build(const char *name, const bson_oid_t *by, int64_t count, bson_t *filter,
                           bson_t *update)
{
    bson_t inner;

    bson_append_utf8(filter, "_id", -1, name, -1);
    bson_append_document_begin(filter, "recent.by", -1, &inner);
    bson_append_oid(&inner, "$ne", -1, by);
    bson_append_document_end(filter, &inner);
    sequence_build_update(by, count, update);
}

/* Finds the taker's numbers in `recent`: its last number is the counter minus the numbers that were
 * taken after it. */
static bool sequence_find_taken(const bson_t *document, const bson_oid_t *by, int64_t *first)
{
    struct value recent = truce__value_field(truce__value_document(document), "recent", 6);
    /* The sum cannot overflow: `recent` has at most RECENT_MAX takers of COUNT_MAX numbers each. */
    int64_t taken = 0;
    bool found = false;
    struct fields fields;

    if (recent.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(recent);
    while (truce__fields_next(&fields)) {
        bson_t one;
        bson_iter_t iter;
        int64_t count;

        if (fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        truce__value_bson(fields.value, &one);
        count = truce__field_number(&one, "count");
        if (count < 1 || count > COUNT_MAX) /* truce did not write such a count. */
            return false;
        if (bson_iter_init_find(&iter, &one, "by") && BSON_ITER_HOLDS_OID(&iter) &&
            bson_oid_equal(bson_iter_oid(&iter), by)) {
            found = true;
            taken = count;
        } else if (found) {
            taken += count;
        }
    }
    return found &&
           !__builtin_sub_overflow(truce__field_number(document, "value"), taken - 1, first);
}

static truce_status sequence_read(truce_store *store, const char *name, const bson_oid_t *by,
                                  int64_t *first, bool *found, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    truce_status status;

    bson_append_utf8(&filter, "_id", -1, name, -1);
    /* Reads the latest state: if the numbers of a call without a reply were missed here, they would
     * be taken again. */
    status = truce_find_one(store, SEQUENCES, &filter, &truce__find_latest, &document, error);
    *found = !status && sequence_find_taken(&document, by, first);
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status sequence_check_name(const char *name, bson_error_t *error)
{
    if (name && name[0] && strlen(name) <= SEQUENCE_NAME_MAX)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "invalid name of a sequence \"%.60s\": expected 1 to %d bytes",
                       name ? name : "", SEQUENCE_NAME_MAX);
}

/* Takes numbers. A call that found nothing to change has taken effect before, or lost an upsert to
 * another process. */
static truce_status sequence_take(truce_store *store, const char *name, const bson_oid_t *by,
                                  const bson_t *filter, const bson_t *update, int64_t *first,
                                  bson_error_t *error)
{
    static const truce_modify_options options = {.upsert = true, .return_new = true};
    truce_status status = TRUCE_OK;

    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        bson_t document;
        bool found;

        if (attempt > 1)
            truce__clock_sleep_ms((int64_t)(truce__random_entropy() % 8));
        status = truce_find_and_modify(store, SEQUENCES, filter, update, &options, &document, NULL,
                                       error);
        found = !status && sequence_find_taken(&document, by, first);
        bson_destroy(&document);
        if (found)
            return TRUCE_OK;
        if (status && status != TRUCE_DUPLICATE && !truce__store_repeatable(store, status))
            return status;
        status = sequence_read(store, name, by, first, &found, error);
        if (found)
            return TRUCE_OK;
        if (status && !truce__store_repeatable(store, status))
            return status;
    }
    return truce__fail(TRUCE_UNKNOWN, error,
                       "sequence \"%s\": the store did not reply, so a number may be lost", name);
}

static truce_status sequence_check(const char *name, int64_t count, bson_error_t *error)
{
    truce_status status = sequence_check_name(name, error);

    if (!status && (count < 1 || count > COUNT_MAX))
        status = truce__fail(TRUCE_INVALID, error,
                             "sequence \"%s\": cannot take %lld numbers at once: expected 1 to %d",
                             name, (long long)count, COUNT_MAX);
    return status;
}

truce_status truce_sequence_take(truce_store *store, const char *name, int64_t count,
                                 int64_t *first, bson_error_t *error)
{
    RETURN_IF_NULL(first, error);

    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    bson_oid_t by;
    truce_status status = sequence_check(name, count, error);

    *first = 0;
    if (!status) {
        bson_oid_init(&by, NULL);
        sequence_build(name, &by, count, &filter, &update);
        status = sequence_take(store, name, &by, &filter, &update, first, error);
    }
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

/* ---- in a commit ----------------------------------------------------------------------------- */

/* Writes the counter, which the commit has read and therefore guards. */
static truce_status sequence_write(truce_commit *commit, const bson_value_t *id, bool found,
                                   int64_t count, bson_error_t *error)
{
    bson_t written = BSON_INITIALIZER;
    bson_oid_t by;
    truce_status status;

    bson_oid_init(&by, NULL);
    if (found) {
        sequence_build_update(&by, count, &written);
        status = truce_commit_update(commit, SEQUENCES, id, NULL, &written, error);
    } else {
        BCON_APPEND(&written, "_id", BCON_UTF8(id->value.v_utf8.str), "value", BCON_INT64(count),
                    "recent", "[", "{", "by", BCON_OID(&by), "count", BCON_INT64(count), "}", "]");
        status = truce_commit_insert(commit, SEQUENCES, &written, error);
    }
    bson_destroy(&written);
    return status;
}

truce_status truce__sequence_take_in(truce_commit *commit, const char *name, int64_t count,
                                     int64_t *first, bson_error_t *error)
{
    truce_status status = sequence_check(name, count, error);
    bson_value_t id = {.value_type = BSON_TYPE_UTF8};
    bson_t counter;
    int64_t value;

    if (status)
        return status;
    id.value.v_utf8.str = (char *)name;
    id.value.v_utf8.len = (uint32_t)strlen(name);
    commit->numbered = commit->untakeable = commit->inside = true;
    status = truce_commit_read(commit, SEQUENCES, &id, &counter, error);
    value = status ? 0 : truce__field_number(&counter, "value");
    bson_destroy(&counter);
    if (value > INT64_MAX - count)
        status = truce__fail(
            TRUCE_LIMIT, error,
            "sequence \"%s\" cannot give %lld more numbers: the largest number is 2^63 - 1", name,
            (long long)count);
    else if (!status || status == TRUCE_NOT_FOUND)
        status = sequence_write(commit, &id, !status, count, error);
    commit->inside = false;
    *first = value + 1;
    return status;
}

truce_status truce_sequence_next(truce_store *store, const char *name, int64_t *number,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(number, error);

    return truce_sequence_take(store, name, 1, number, error);
}

truce_status truce_sequence_last(truce_store *store, const char *name, int64_t *number,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(number, error);

    bson_t filter = BSON_INITIALIZER, document = BSON_INITIALIZER;
    truce_status status = sequence_check_name(name, error);

    *number = 0;
    if (!status) {
        bson_append_utf8(&filter, "_id", -1, name, -1);
        bson_destroy(&document);
        status = truce_find_one(store, SEQUENCES, &filter, NULL, &document, error);
    }
    if (!status)
        *number = truce__field_number(&document, "value");
    bson_destroy(&filter);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Raises the counter. No taker gets the numbers in between. The same write empties `recent`,
 * because positions in it count back from the counter. A taker that lost its reply at this time
 * takes numbers again. */
truce_status truce_sequence_raise(truce_store *store, const char *name, int64_t number,
                                  bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner, empty;
    truce_write_options options = {.upsert = true};
    truce_status status = sequence_check_name(name, error);
    bool good = !status;

    bson_append_utf8(&filter, "_id", -1, name ? name : "", -1);
    bson_append_document_begin(&filter, "value", -1, &inner);
    bson_append_document_begin(&inner, "$not", -1, &empty);
    bson_append_int64(&empty, "$gte", -1, number);
    bson_append_document_end(&inner, &empty);
    bson_append_document_end(&filter, &inner);
    bson_append_document_begin(&update, "$set", -1, &inner);
    bson_append_int64(&inner, "value", -1, number);
    bson_append_array_begin(&inner, "recent", -1, &empty);
    bson_append_array_end(&inner, &empty);
    bson_append_document_end(&update, &inner);
    for (int attempt = 0; good && attempt < ATTEMPTS_MAX; attempt++) {
        status = truce_update(store, SEQUENCES, &filter, &update, &options, NULL, error);
        if (!truce__store_repeatable(store, status))
            break;
    }
    bson_destroy(&filter);
    bson_destroy(&update);
    /* DUPLICATE means that the counter is already higher. */
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}
