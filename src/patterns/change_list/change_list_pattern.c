/* What goes into a queue and a ledger within a written commit (change_list.h, W1-W3). */
#include <stdio.h>

#include "bson/value.h"
#include "commit/commit.h"
#include "patterns/change_list/change_list_part.h"
#include "truce/ledger.h"
#include "truce/queue.h"

#define POST_ENTRIES_MAX 1000

/* Says which change has the blame, unless others, or the store, are in the way. */
static truce_status pattern_blame(int number, truce_status status, bson_error_t *error)
{
    const bson_error_t why = *error;

    if (status != TRUCE_INVALID && status != TRUCE_NOT_FOUND && status != TRUCE_DUPLICATE &&
        status != TRUCE_LIMIT)
        return status;
    return truce__fail(status, error, "change %d: %.400s", number, why.message);
}

truce_status truce__written_enqueue(int number, const struct written_part *part, const char *place,
                                    truce_commit *commit, bson_error_t *error)
{
    const truce_queue_options options = {.queue = place};
    const truce_job_options job = {.delay_ms = part->delay_ms,
                                   .priority = (int32_t)part->priority,
                                   .unique = part->unique,
                                   .lane = part->lane};
    truce_queue *queue;
    truce_status status;

    if (part->priority != job.priority)
        return truce__fail(TRUCE_INVALID, error, "change %d: the priority is too large", number);
    queue = truce_queue_new(commit->store, &options);
    status = truce_queue_add(queue, commit, &part->with, &job, NULL, error);
    truce_queue_free(queue);
    return status ? pattern_blame(number, status, error) : TRUCE_OK;
}

/* ---- posts ------------------------------------------------------------------------------------ */

static truce_status pattern_read_text(truce_ledger *ledger, const char *account, const char *text,
                                      int64_t *value, bson_error_t *error)
{
    truce_ledger_balance balance;
    int digits;
    truce_status status = truce_ledger_balance_of(ledger, account, NULL, &balance, error);

    if (!status)
        status = truce_ledger_digits(ledger, balance.currency, &digits, error);
    return status ? status : truce_ledger_read(text, digits, value, error);
}

static truce_status pattern_read_amount(truce_ledger *ledger, const bson_iter_t *iter,
                                        int64_t *value, bson_error_t *error)
{
    if (BSON_ITER_HOLDS_UTF8(iter))
        return pattern_read_text(ledger, bson_iter_key(iter), bson_iter_utf8(iter, NULL), value,
                                 error);
    if (!BSON_ITER_HOLDS_INT(iter) &&
        !(BSON_ITER_HOLDS_DOUBLE(iter) && truce__double_is_whole(bson_iter_double(iter))))
        return truce__fail(
            TRUCE_INVALID, error,
            "the amount of \"%.200s\" is neither a whole number of the smallest unit "
            "nor a text (\"12.50\")",
            bson_iter_key(iter));
    *value = bson_iter_as_int64(iter);
    return TRUCE_OK;
}

static truce_status pattern_read_entries(truce_ledger *ledger, const bson_t *with,
                                         truce_ledger_entry *entries, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;
    size_t i = 0;

    (void)bson_iter_init(&iter, with);
    while (!status && bson_iter_next(&iter)) {
        entries[i].account = bson_iter_key(&iter);
        status = pattern_read_amount(ledger, &iter, &entries[i++].value, error);
    }
    return status;
}

static truce_status pattern_post(truce_ledger *ledger, const struct written_part *part,
                                 truce_commit *commit, bson_error_t *error)
{
    uint32_t count = bson_count_keys(&part->with);
    truce_ledger_entry *entries = bson_malloc0((count + 1) * sizeof *entries);
    const truce_ledger_transaction transaction = {.id = &part->id,
                                                  .entries = entries,
                                                  .count = count,
                                                  .meta = part->has_meta ? &part->meta : NULL};
    truce_ledger_result result = {0};
    truce_status status = pattern_read_entries(ledger, &part->with, entries, error);

    if (!status)
        status = truce_ledger_post(ledger, commit, &transaction, &result, error);
    bson_free(entries);
    if (!status && result.exists) /* W2 */
        status = truce__fail(TRUCE_DUPLICATE, error, "the transaction was posted before");
    return status;
}

truce_status truce__written_post(int number, const struct written_part *part, const char *place,
                                 truce_commit *commit, bson_error_t *error)
{
    const truce_ledger_options options = {.collection = place};
    truce_ledger *ledger;
    truce_status status;

    if (bson_count_keys(&part->with) > POST_ENTRIES_MAX)
        return truce__fail(TRUCE_INVALID, error, "change %d: a transaction has at most %d entries",
                           number, POST_ENTRIES_MAX);
    if (commit->store->capabilities & TRUCE_IS_TRANSACTION)
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: nothing is posted within a transaction of the driver's",
                           number);
    ledger = truce_ledger_new(commit->store, &options);
    status = pattern_post(ledger, part, commit, error);
    truce_ledger_free(ledger);
    return status ? pattern_blame(number, status, error) : TRUCE_OK;
}
