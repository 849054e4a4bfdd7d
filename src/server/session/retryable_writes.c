/*
 * Retryable writes of one command. The record is parsed when the command begins. It is written
 * again under the store's lock, when the results of the statements are known.
 */
#include "server/session/retryable_writes.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "bson/refuse_value.h"
#include "server/call/call.h"

#define SPARE_BYTES 4096 /* An upper bound for the size of a record without its measured parts. */

enum statement_result_kind {
    STATEMENT_INSERT,
    STATEMENT_UPDATE,
    STATEMENT_REMOVE,
    RANGES,
    STATEMENT_UPSERT = RANGES,
    STATEMENT_REPLY,
    STATEMENT_LOST
};

static const char *const range_names[RANGES] = {"inserted", "updated", "removed"};

/* The result of the statements with the ids `from` to `to`. */
struct statement_result {
    int32_t from, to;
    enum statement_result_kind kind;
    /* The _id of an upsert, or the reply of a findAndModify. Borrowed. */
    bson_value_t value;
};

struct statement_results {
    /* The results, sorted by `from` before the first search and before they are stored. */
    struct statement_result *all;
    size_t count, room;
};

struct retryable {
    /* Must be the first field: the store calls the functions of the receipt with a pointer to
     * it. */
    truce_receipt receipt;
    bson_t key;
    struct call *call;
    struct session *session;
    /* The record before this command, or NULL if the session has none. */
    const bson_t *before;
    /* The memory of `before` if the session has not cached the record. */
    bson_t read;
    /* The record that the receipt has made last, or NULL. */
    bson_t *after;
    /* Another server has changed the stored record since it was read. */
    bool stale;
    /* The results in the record `before`. */
    struct statement_results known;
    /* The id of the first statement, or -1 if it is not known. */
    int32_t first;
    /* The ids of the statements, or NULL for first, first + 1, ... */
    int32_t *ids;
    uint32_t ids_count;
    /* The ids of statements that the client has sent again. */
    int32_t *again;
    uint32_t again_count;
    /* The running bulk, without the statements that were sent again. numbers[i] is the id of the
     * statement writes[i]. */
    const truce_write *writes;
    const int32_t *numbers;
    /* For findAndModify, which has no `writes`. */
    retryable_reply *fill;
    void *arg;
};

/* ---- results of statements ------------------------------------------------------------------- */

/* Appends a result whose value is borrowed. Counts of the same kind with consecutive ids are joined
 * into one range. */
static void statement_results_add(struct statement_results *results, int32_t from, int32_t to,
                                  enum statement_result_kind kind, const bson_value_t *value)
{
    struct statement_result *last = results->count ? &results->all[results->count - 1] : NULL;

    if (last && kind < RANGES && last->kind == kind && last->to == from - 1) {
        last->to = to;
        return;
    }
    if (results->count == results->room) {
        results->room = results->room ? 2 * results->room : 4;
        results->all = bson_realloc(results->all, results->room * sizeof *results->all);
    }
    results->all[results->count] = (struct statement_result){.from = from, .to = to, .kind = kind};
    if (value)
        results->all[results->count].value = *value;
    results->count++;
}

static int retryable_compare(const void *a, const void *b)
{
    int32_t x = ((const struct statement_result *)a)->from,
            y = ((const struct statement_result *)b)->from;

    return (x > y) - (x < y);
}

static void statement_results_sort(struct statement_results *results)
{
    if (results->count > 1)
        qsort(results->all, results->count, sizeof *results->all, retryable_compare);
}

/* Returns the result that includes the statement id, or NULL. The results must be sorted. */
static const struct statement_result *statement_results_find(
    const struct statement_results *results, int32_t id)
{
    size_t low = 0, high = results->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (results->all[middle].to < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < results->count && results->all[low].from <= id ? &results->all[low] : NULL;
}

/* Adds the ranges of one kind that the record has. A range without its end has one id. */
static void read_ranges(struct statement_results *results, const bson_t *record,
                        enum statement_result_kind kind)
{
    bson_iter_t array, at;

    if (!bson_iter_init_find(&array, record, range_names[kind]) || !BSON_ITER_HOLDS_ARRAY(&array) ||
        !bson_iter_recurse(&array, &at))
        return;
    while (bson_iter_next(&at)) {
        int64_t from = bson_iter_as_int64(&at),
                to = bson_iter_next(&at) ? bson_iter_as_int64(&at) : from;

        statement_results_add(results, (int32_t)from, (int32_t)to, kind, NULL);
    }
}

/* Reads the result of a statement that has more than counts: an upserted _id, or a reply. */
static void read_other(struct statement_results *results, const bson_iter_t *element)
{
    enum statement_result_kind kind = STATEMENT_LOST;
    bson_value_t value = {0};
    bson_iter_t field;
    int32_t id = -1;

    if (!BSON_ITER_HOLDS_DOCUMENT(element) || !bson_iter_recurse(element, &field))
        return;
    while (bson_iter_next(&field)) {
        const char *name = bson_iter_key(&field);

        if (!strcmp(name, "s")) {
            id = (int32_t)bson_iter_as_int64(&field);
            continue;
        }
        kind = !strcmp(name, "upserted")                                    ? STATEMENT_UPSERT
               : !strcmp(name, "reply") && BSON_ITER_HOLDS_DOCUMENT(&field) ? STATEMENT_REPLY
                                                                            : STATEMENT_LOST;
        value = *bson_iter_value(&field);
    }
    statement_results_add(results, id, id, kind, &value);
}

static void retryable_read_record(struct statement_results *results, const bson_t *record)
{
    bson_iter_t array, at;

    for (enum statement_result_kind kind = 0; kind < RANGES; kind++)
        read_ranges(results, record, kind);
    if (bson_iter_init_find(&array, record, "others") && BSON_ITER_HOLDS_ARRAY(&array) &&
        bson_iter_recurse(&array, &at))
        while (bson_iter_next(&at))
            read_other(results, &at);
    statement_results_sort(results);
}

/* ---- a record -------------------------------------------------------------------------------- */

static void retryable_append_key(uint32_t number, bson_t *array, bson_t *element)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string(number, &key, buffer, sizeof buffer);
    bson_append_document_begin(array, key, -1, element);
}

static void retryable_append_number(bson_t *array, uint32_t number, int32_t value)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string(number, &key, buffer, sizeof buffer);
    BSON_APPEND_INT32(array, key, value);
}

/* Appends the ranges of one kind as [from, to, from, to ...], or nothing if no range exists. */
static void append_ranges(const struct statement_results *results, enum statement_result_kind kind,
                          bson_t *record)
{
    uint32_t number = 0;
    bson_t array;

    for (size_t i = 0; i < results->count; i++) {
        const struct statement_result *earlier = &results->all[i];

        if (earlier->kind != kind)
            continue;
        if (!number)
            BSON_APPEND_ARRAY_BEGIN(record, range_names[kind], &array);
        retryable_append_number(&array, number++, earlier->from);
        retryable_append_number(&array, number++, earlier->to);
    }
    if (number)
        bson_append_array_end(record, &array);
}

/* Returns the size of a value of variable size in bytes, for the limit on a record. */
static uint32_t retryable_size_of(const bson_value_t *value)
{
    switch (value->value_type) {
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        return value->value.v_doc.data_len;
    case BSON_TYPE_UTF8:
        return value->value.v_utf8.len;
    case BSON_TYPE_BINARY:
        return value->value.v_binary.data_len;
    /* An _id of any other type is so small that SPARE_BYTES covers it. */
    default:
        return 0;
    }
}

/* Appends the results that have more than counts. If the record is full, omits values, so that
 * these statements count as lost. */
static void append_others(const struct statement_results *results, bson_t *record)
{
    uint32_t number = 0, most = TRUCE_DOCUMENT_BYTES_MAX - SPARE_BYTES;
    uint32_t room = record->len < most ? most - record->len : 0;
    bson_t array, element;

    for (size_t i = 0; i < results->count; i++) {
        const struct statement_result *earlier = &results->all[i];

        if (earlier->kind < RANGES)
            continue;
        if (!number)
            BSON_APPEND_ARRAY_BEGIN(record, "others", &array);
        retryable_append_key(number++, &array, &element);
        BSON_APPEND_INT32(&element, "s", earlier->from);
        if (earlier->kind != STATEMENT_LOST && retryable_size_of(&earlier->value) < room &&
            array.len < room - retryable_size_of(&earlier->value))
            BSON_APPEND_VALUE(&element, earlier->kind == STATEMENT_UPSERT ? "upserted" : "reply",
                              &earlier->value);
        bson_append_document_end(&array, &element);
    }
    if (number)
        bson_append_array_end(record, &array);
}

static void retryable_make_record(const struct retryable *retryable,
                                  struct statement_results *results, bson_t *record)
{
    statement_results_sort(results);
    bson_concat(record, &retryable->key);
    BSON_APPEND_INT64(record, "txnNum", retryable->session->number);
    BSON_APPEND_DATE_TIME(record, "lastWriteDate", truce__clock_wall_ms());
    for (enum statement_result_kind kind = 0; kind < RANGES; kind++)
        append_ranges(results, kind, record);
    append_others(results, record);
}

/* ---- the receipt ----------------------------------------------------------------------------- */

static bool retryable_check_before(truce_receipt *receipt, const bson_t *before)
{
    struct retryable *retryable = (struct retryable *)receipt;
    bool same = before && retryable->before ? bson_equal(before, retryable->before)
                                            : !before && !retryable->before;

    retryable->stale = !same;
    return same;
}

/* Fills the result that is recorded for a write. Returns false if the write changed nothing. */
static bool statement_result_of(const truce_write *write, const truce_write_result *result,
                                struct statement_result *earlier)
{
    switch (write->kind) {
    case TRUCE_WRITE_INSERT:
        earlier->kind = STATEMENT_INSERT;
        return result->inserted;
    case TRUCE_WRITE_REMOVE:
        earlier->kind = STATEMENT_REMOVE;
        return result->removed;
    default:
        earlier->kind = result->upserted ? STATEMENT_UPSERT : STATEMENT_UPDATE;
        earlier->value = result->upserted_id;
        return result->upserted || result->modified;
    }
}

/* Adds the results of the statements of a bulk that have an id and changed something. Returns
 * whether there was any. */
static bool retryable_add_bulk(const struct retryable *retryable,
                               const truce_write_outcome *outcomes, size_t count,
                               struct statement_results *results)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        struct statement_result earlier = {0};

        if (outcomes[i].status || retryable->numbers[i] < 0 ||
            !statement_result_of(&retryable->writes[i], &outcomes[i].result, &earlier))
            continue;
        statement_results_add(results, retryable->numbers[i], retryable->numbers[i], earlier.kind,
                              &earlier.value);
        any = true;
    }
    return any;
}

static bool has_modified(const truce_write_result *result)
{
    return result->modified || result->removed || result->upserted;
}

static bool add_reply(const struct retryable *retryable, const truce_write_result *result,
                      const bson_t *document, bson_t *reply, struct statement_results *results)
{
    bson_value_t value = {.value_type = BSON_TYPE_DOCUMENT};

    if (retryable->first < 0 || !has_modified(result))
        return false;
    retryable->fill(retryable->arg, result, document, reply);
    value.value.v_doc.data = (uint8_t *)bson_get_data(reply);
    value.value.v_doc.data_len = reply->len;
    statement_results_add(results, retryable->first, retryable->first, STATEMENT_REPLY, &value);
    return true;
}

/* Makes the record of the session after a write, with the earlier results and the new ones. Returns
 * false if no statement must be recorded. */
static bool retryable_make(truce_receipt *receipt, const truce_write_outcome *outcomes,
                           size_t count, const bson_t *document, bson_t *after)
{
    struct retryable *retryable = (struct retryable *)receipt;
    bson_t reply = BSON_INITIALIZER;
    struct statement_results results = {0};
    bool any;

    for (size_t i = 0; i < retryable->known.count; i++) {
        const struct statement_result *earlier = &retryable->known.all[i];

        statement_results_add(&results, earlier->from, earlier->to, earlier->kind, &earlier->value);
    }
    any = retryable->fill ? add_reply(retryable, &outcomes->result, document, &reply, &results)
                          : retryable_add_bulk(retryable, outcomes, count, &results);
    if (retryable->after)
        bson_destroy(retryable->after);
    retryable->after = NULL;
    if (any) {
        retryable_make_record(retryable, &results, after);
        retryable->after = bson_copy(after);
    }
    bson_destroy(&reply);
    bson_free(results.all);
    return any;
}

/* ---- one command ----------------------------------------------------------------------------- */

/* Copies the statement ids of the command. Fails with 14 if one is not a number of 32 bits from -1
 * on. */
static truce_status read_ids(struct retryable *retryable, const bson_t *ids, bson_error_t *error)
{
    bson_iter_t at;

    if (!ids)
        return TRUCE_OK;
    retryable->ids = bson_malloc0(((size_t)bson_count_keys(ids) + 1) * sizeof *retryable->ids);
    (void)bson_iter_init(&at, ids);
    while (bson_iter_next(&at)) {
        int64_t id = BSON_ITER_HOLDS_INT(&at) ? bson_iter_as_int64(&at) : -2;

        if (id < -1 || id > INT32_MAX)
            return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&at), error,
                                       "each of stmtIds must be a non-negative 32-bit integer");
        retryable->ids[retryable->ids_count++] = (int32_t)id;
    }
    retryable->first = retryable->ids_count ? retryable->ids[0] : -1;
    return TRUCE_OK;
}

truce_status retryable_begin(struct call *call, struct session *session, int32_t first,
                             const bson_t *ids, struct retryable **retryable, bson_error_t *error)
{
    struct retryable *made = bson_aligned_alloc0(_Alignof(struct retryable), sizeof *made);
    truce_status status;

    *made = (struct retryable){.call = call, .session = session, .first = first};
    bson_init(&made->key);
    BSON_APPEND_BINARY(&made->key, "_id", BSON_SUBTYPE_UUID, session->id, SESSION_ID_BYTES);
    bson_init(&made->read);
    made->receipt =
        (truce_receipt){SESSION_RECORDS, &made->key, retryable_check_before, retryable_make};
    *retryable = made;
    status = read_ids(made, ids, error);
    if (!status)
        status = session_record(call->server->sessions, session, &made->read, &made->before, error);
    if (!status && made->before && session->wrote)
        retryable_read_record(&made->known, made->before);
    return status;
}

void retryable_end(struct retryable *retryable, truce_status status, bool *stale)
{
    *stale = retryable->stale;
    if (status || retryable->after)
        session_wrote(retryable->session, status ? NULL : retryable->after);
    if (retryable->after)
        bson_destroy(retryable->after);
    bson_destroy(&retryable->read);
    bson_destroy(&retryable->key);
    bson_free(retryable->known.all);
    bson_free(retryable->ids);
    bson_free(retryable->again);
    bson_free(retryable);
}

static truce_status retryable_fail_forgotten(int32_t id, bson_error_t *error)
{
    return truce__refuse(CODE_INCOMPLETE_HISTORY, error,
                         "statement %d was executed, and its result is no longer stored", (int)id);
}

static void comes_again(struct retryable *retryable, int32_t id)
{
    if (!(retryable->again_count & (retryable->again_count - 1)))
        retryable->again = bson_realloc(
            retryable->again, (retryable->again_count ? 2 * (size_t)retryable->again_count : 1) *
                                  sizeof *retryable->again);
    retryable->again[retryable->again_count++] = id;
}

void retryable_append_retried(const struct retryable *retryable, bson_t *reply)
{
    bson_t array;

    if (!retryable->again_count)
        return;
    BSON_APPEND_ARRAY_BEGIN(reply, "retriedStmtIds", &array);
    for (uint32_t i = 0; i < retryable->again_count; i++)
        retryable_append_number(&array, i, retryable->again[i]);
    bson_append_array_end(reply, &array);
}

/* ---- a bulk ---------------------------------------------------------------------------------- */

/* The writes that were not executed before, and their positions in the whole list. */
struct rest {
    truce_write *writes;
    /* numbers[i]: the statement id of writes[i]. */
    int32_t *numbers;
    uint32_t *positions;
    truce_write_outcome *outcomes;
    /* `end`: the position in the whole list from which the bulk does not reach any write. */
    uint32_t count, end;
};

/* Fills the result of a statement that was sent again from its recorded result. Fails with 217 if
 * the recorded result is lost, or is that of another kind of write. */
static truce_status answer_again(const truce_write *write, const struct statement_result *earlier,
                                 int32_t id, truce_write_result *result, bson_error_t *error)
{
    bool updates = write->kind == TRUCE_WRITE_UPDATE;

    if (earlier->kind == STATEMENT_INSERT && write->kind == TRUCE_WRITE_INSERT) {
        result->inserted = 1;
    } else if (earlier->kind == STATEMENT_REMOVE && write->kind == TRUCE_WRITE_REMOVE) {
        result->matched = result->removed = 1;
    } else if (earlier->kind == STATEMENT_UPDATE && updates) {
        result->matched = result->modified = 1;
    } else if (earlier->kind == STATEMENT_UPSERT && updates) {
        result->upserted = true;
        bson_value_copy(&earlier->value, &result->upserted_id);
    } else {
        return retryable_fail_forgotten(id, error);
    }
    return TRUCE_OK;
}

static int32_t retryable_number_of(const struct retryable *retryable, uint32_t i)
{
    if (retryable->ids)
        return i < retryable->ids_count ? retryable->ids[i] : -1;
    return retryable->first < 0 ? -1 : (int32_t)(((int64_t)retryable->first + i) & INT32_MAX);
}

/* Chooses the writes to execute. A statement that was sent again gets its recorded result; one with
 * `multi` is refused. In an ordered bulk, the first refusal sets rest->end. Fails with 217 if a
 * result is no longer stored. */
static truce_status retryable_choose(struct retryable *retryable, const truce_write *writes,
                                     uint32_t count, bool unordered, truce_write_outcome *outcomes,
                                     struct rest *rest, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < count && i < rest->end && !status; i++) {
        int32_t number = retryable_number_of(retryable, i);
        const struct statement_result *earlier =
            number < 0 ? NULL : statement_results_find(&retryable->known, number);

        if (earlier) {
            comes_again(retryable, number);
            outcomes[i].status = TRUCE_OK;
            status = answer_again(&writes[i], earlier, number, &outcomes[i].result, error);
        } else if (writes[i].options.multi) {
            outcomes[i].status =
                truce__refuse(CODE_INVALID_OPTIONS, &outcomes[i].error,
                              "Cannot use (or request) retryable writes with %s",
                              writes[i].kind == TRUCE_WRITE_REMOVE ? "limit=0" : "multi=true");
            rest->end = unordered ? rest->end : i + 1;
        } else if ((outcomes[i].status = fail_point_write(retryable->call, &outcomes[i].error))) {
            rest->end = unordered ? rest->end : i + 1;
        } else {
            outcomes[i].status = TRUCE_NOT_FOUND;
            rest->writes[rest->count] = writes[i];
            rest->numbers[rest->count] = number;
            rest->positions[rest->count++] = i;
        }
    }
    return status;
}

static void retryable_drop(truce_write_outcome *outcome)
{
    truce_write_result_release(&outcome->result);
    *outcome = (truce_write_outcome){.status = TRUCE_NOT_FOUND};
}

/* Runs the statements that were not executed before, in one bulk with the receipt of the session's
 * record. */
static truce_status run_rest(struct retryable *retryable, truce_store *store, struct rest *rest,
                             const truce_bulk_options *options, truce_write_outcome *outcomes,
                             uint32_t count, bson_error_t *error)
{
    truce_bulk_options how = *options;
    truce_status status;

    retryable->writes = rest->writes;
    retryable->numbers = rest->numbers;
    how.receipt = &retryable->receipt;
    status = truce_bulk(store, rest->writes, rest->count, &how, rest->outcomes, error);
    for (uint32_t i = 0; i < rest->count; i++) {
        struct statement_result earlier;

        outcomes[rest->positions[i]] = rest->outcomes[i];
        if (!rest->outcomes[i].status &&
            statement_result_of(&rest->writes[i], &rest->outcomes[i].result, &earlier))
            fail_point_written(retryable->call);
        if (rest->outcomes[i].status && !options->unordered && rest->positions[i] < rest->end)
            rest->end = rest->positions[i] + 1;
    }
    for (uint32_t i = rest->end; i < count; i++)
        retryable_drop(&outcomes[i]);
    return status;
}

truce_status retryable_bulk(struct retryable *retryable, truce_store *store,
                            const truce_write *writes, uint32_t count,
                            const truce_bulk_options *options, truce_write_outcome *outcomes,
                            bson_error_t *error)
{
    struct rest rest = {.writes = bson_malloc0(count * sizeof *rest.writes),
                        .numbers = bson_malloc0(count * sizeof *rest.numbers),
                        .positions = bson_malloc0(count * sizeof *rest.positions),
                        .outcomes = bson_malloc0(count * sizeof *rest.outcomes),
                        .end = count};
    truce_status status;

    for (uint32_t i = 0; i < count; i++)
        outcomes[i] = (truce_write_outcome){.status = TRUCE_NOT_FOUND};
    status = retryable_choose(retryable, writes, count, options->unordered, outcomes, &rest, error);
    if (!status && rest.count)
        status = run_rest(retryable, store, &rest, options, outcomes, count, error);
    else if (!status && !options->relaxed)
        /* Waits until the results of earlier executions are durable, too. */
        status = truce_settle(store, error);
    bson_free(rest.writes);
    bson_free(rest.numbers);
    bson_free(rest.positions);
    bson_free(rest.outcomes);
    return status;
}

/* ---- findAndModify --------------------------------------------------------------------------- */

truce_status retryable_modify(struct retryable *retryable, retryable_reply *fill, void *arg,
                              bson_t *reply, bool *again, truce_receipt **receipt,
                              bson_error_t *error)
{
    const struct statement_result *earlier =
        retryable->first < 0 ? NULL : statement_results_find(&retryable->known, retryable->first);
    bson_t view;

    *again = earlier != NULL;
    *receipt = &retryable->receipt;
    retryable->fill = fill;
    retryable->arg = arg;
    if (!earlier)
        return fail_point_write(retryable->call, error);
    if (earlier->kind != STATEMENT_REPLY ||
        !bson_init_static(&view, earlier->value.value.v_doc.data,
                          earlier->value.value.v_doc.data_len))
        return retryable_fail_forgotten(retryable->first, error);
    comes_again(retryable, retryable->first);
    bson_concat(reply, &view);
    return truce_settle(sessions_store(retryable->call->server->sessions), error);
}

void retryable_modified(const struct retryable *retryable, const truce_write_result *result)
{
    if (has_modified(result))
        fail_point_written(retryable->call);
}
