/*
 * Records of writes that wait for the lock.
 *
 *     PATH-lock    | the page: bits `published`, `taken` | record 0 | record 1 | ... | record 63 |
 *     a record     | state | number | promise | request | answer |   claimed by its open store
 *
 *     FREE --owner--> PUBLISHED --lock holder--> TAKEN --commit----> ANSWERED --owner--> FREE
 *           <--------withdrawn--------                 --no commit--> RETURNED --owner--> FREE
 *
 * The lock holder executes published writes of other processes in its own transaction. In the same
 * transaction it stores a proof: the numbers of these writes, in a row of the catalog's table that
 * no catalog uses. If it dies, a process that finds the lock free and its own write taken can
 * therefore find out whether the write was done.
 *
 * Invariants (models/combine.cpp):
 *  1. A state leaves PUBLISHED by compare-and-swap alone. Only the lock holder changes a state to
 *     TAKEN and from TAKEN.
 *  2. While the lock is free, only records of a dead lock holder are TAKEN. The bit in `taken` is
 *     set before the state becomes TAKEN, and cleared after.
 *  3. Answers are complete before the commit, so they exist even if the lock holder dies right
 *     after it.
 *  4. A write is ANSWERED after the commit that did it. It is RETURNED only if no commit has done
 *     it, and no commit in the log that is not visible yet will do it. The process therefore first
 *     commits an empty proof, whose frames overwrite those of such a commit in the log.
 *  5. The proof is of the last group that contained writes of other processes. Therefore every
 *     TAKEN record is settled before another such group.
 *  6. No number is used twice: each store starts at a random number out of 2^63.
 *  7. An ANSWERED write is reported when it is durable. Its process waits for that by itself if it
 *     is not woken.
 *  8. A write of a dead process is not taken. If a process dies while its write is taken, the write
 *     may be done afterwards. It is then done before any later write of another process, because
 *     that process needs the lock.
 *
 * A process that can write the lock file can also write the database. Nevertheless the contents of
 * a record are copied first, and then checked before they are used.
 */
#include "engine/storage/published_records.h"

#include <stddef.h>

#include "base/assert.h"
#include "base/futex.h"
#include "base/random.h"

/* The table of the catalog. The proof is stored in it, too. */
#define PROOF_TABLE INT64_C(0)
/* The row of the proof. The rows of the catalog begin after it. */
#define PROOF_ROW   INT64_C(-1)
#define PROOF_FIELD "combined"

struct record {
    /* An enum record_state. */
    atomic_uint state;
    uint32_t request_size, answer_size;
    /* Whether the write need not wait for the disk. */
    uint32_t relaxed;
    /* The number of the write, which a proof contains (invariant 6). */
    uint64_t number;
    /* In an answered record, the number of the commit. In a returned record, any number other than
     * 0 if the write should not be published again soon. */
    uint64_t promise;
    uint8_t request[RECORD_REQUEST_MAX];
    uint8_t answer[RECORD_ANSWER_MAX];
    uint8_t unused[16384 - 32 - RECORD_REQUEST_MAX - RECORD_ANSWER_MAX];
};

_Static_assert(RECORDS * sizeof(struct record) == LOCK_RECORDS_BYTES, "the file has room for them");
_Static_assert(sizeof(struct lock_page) <= LOCK_RECORDS_AT, "the records are after the page");

static int64_t number_of_claim(size_t record)
{
    return LOCK_RECORDS + (int64_t)record;
}

void truce__records_release(struct records *records)
{
    truce__lock_disclaim(records->claim);
    if (records->all)
        truce__lock_unmap_records(records->all);
    *records = (struct records){.claim = -1};
}

static bool records_map(struct records *records)
{
    if (!records->tried)
        records->all = truce__lock_map_records(records->lock);
    records->tried = true;
    return records->all;
}

/* ---- for the owner of a record -------------------------------------------------------------- */

static bool records_claim(struct records *records)
{
    if (records->claimed)
        return records->claim >= 0;
    records->claimed = true;
    for (size_t i = 0; i < RECORDS && records->claim < 0; i++) {
        records->claim = truce__lock_claim(records->lock, number_of_claim(i));
        records->own = i;
    }
    records->number = truce__random_entropy() >> 1;
    return records->claim >= 0;
}

static struct record *records_own(const struct records *records)
{
    return &records->all[records->own];
}

static bool records_change_state(struct record *record, unsigned from, unsigned to)
{
    return atomic_compare_exchange_strong(&record->state, &from, to);
}

/* Makes the record free, unless a lock holder executes its write. Returns whether it is free. The
 * record may belong to a closed store, to a dead process, or to a store that stopped waiting for
 * its write. */
static bool make_free(struct record *record)
{
    unsigned state = atomic_load(&record->state);

    return state == RECORD_FREE ||
           (state != RECORD_TAKEN && records_change_state(record, state, RECORD_FREE));
}

bool truce__records_publish(struct records *records, struct bytes request, bool relaxed)
{
    struct record *record;

    truce_assert(request.size <= RECORD_REQUEST_MAX);
    if (!records_map(records) || !records_claim(records) || !make_free(records_own(records)))
        return false;
    record = records_own(records);
    record->number = ++records->number;
    record->relaxed = relaxed;
    record->request_size = (uint32_t)request.size;
    record->answer_size = 0;
    memcpy(record->request, request.data, request.size);
    atomic_store(&record->state, RECORD_PUBLISHED);
    atomic_fetch_or(&records->lock->page->published, record_bit(records->own));
    return true;
}

enum record_state truce__records_state(struct records *records)
{
    return (enum record_state)atomic_load(&records_own(records)->state);
}

void truce__records_sleep(struct records *records, enum record_state seen, int64_t nanoseconds)
{
    truce__futex_wait_shared(&records_own(records)->state, seen, nanoseconds);
}

bool truce__records_withdraw(struct records *records)
{
    if (!records_change_state(records_own(records), RECORD_PUBLISHED, RECORD_FREE))
        return false;
    atomic_fetch_and(&records->lock->page->published, ~record_bit(records->own));
    return true;
}

uint64_t truce__records_answer(struct records *records, struct buffer *answer)
{
    const struct record *record = records_own(records);
    uint32_t size = record->answer_size;

    answer->size = 0;
    truce__buffer_append(answer, record->answer, size < RECORD_ANSWER_MAX ? size : 0);
    return record->promise;
}

bool truce__records_refused(const struct records *records)
{
    return records_own(records)->promise;
}

void truce__records_close(struct records *records)
{
    atomic_store(&records_own(records)->state, RECORD_FREE);
}

/* ---- for the holder of the lock ------------------------------------------------------------- */

/* Takes a published record for execution. Returns false if its process has died or has withdrawn
 * it. */
static bool records_take(struct records *records, size_t number)
{
    struct lock_page *page = records->lock->page;
    struct record *record = &records->all[number];

    atomic_fetch_and(&page->published, ~record_bit(number));
    if (!truce__lock_is_claimed(records->lock, number_of_claim(number))) {
        records_change_state(record, RECORD_PUBLISHED, RECORD_FREE);
        return false;
    }
    atomic_fetch_or(&page->taken, record_bit(number));
    if (records_change_state(record, RECORD_PUBLISHED, RECORD_TAKEN))
        return true;
    atomic_fetch_and(&page->taken, ~record_bit(number));
    return false;
}

uint64_t truce__records_take(struct records *records)
{
    uint64_t published = atomic_load(&records->lock->page->published), taken = 0;

    truce_assert(atomic_load(&records->lock->held));
    if (records->claim >= 0)
        published &= ~record_bit(records->own);
    if (!published || !records_map(records))
        return 0;
    while (published) {
        size_t number = record_next(&published);

        if (records_take(records, number))
            taken |= record_bit(number);
    }
    return taken;
}

void truce__records_request(struct records *records, size_t record, struct buffer *request)
{
    uint32_t size = records->all[record].request_size;

    request->size = 0;
    truce__buffer_append(request, records->all[record].request,
                         size < RECORD_REQUEST_MAX ? size : RECORD_REQUEST_MAX);
}

bool truce__records_relaxed(struct records *records, size_t record)
{
    return records->all[record].relaxed;
}

bool truce__records_put_answer(struct records *records, size_t record, struct bytes answer)
{
    if (answer.size > RECORD_ANSWER_MAX)
        return false;
    memcpy(records->all[record].answer, answer.data, answer.size);
    records->all[record].answer_size = (uint32_t)answer.size;
    return true;
}

/* ---- the proof ------------------------------------------------------------------------------ */

/* Writes the proof of a group: the numbers of the writes that its transaction contains (invariant
 * 5). */
static truce_status put_proof(struct kv *kv, const uint64_t *numbers, size_t count,
                              bson_error_t *error)
{
    bson_t proof = BSON_INITIALIZER;
    struct bytes body, before;
    int64_t row = PROOF_ROW;
    truce_status status;

    BSON_APPEND_BINARY(&proof, PROOF_FIELD, BSON_SUBTYPE_BINARY, (const uint8_t *)numbers,
                       (uint32_t)(count * sizeof *numbers));
    body = kv_body(&proof);
    status = truce__kv_row_get(kv, PROOF_TABLE, PROOF_ROW, &before, error);
    if (!status)
        status = truce__kv_row_update(kv, PROOF_TABLE, PROOF_ROW, body, error);
    else if (status == TRUCE_NOT_FOUND)
        status = truce__kv_row_insert(kv, PROOF_TABLE, &row, body, error);
    bson_destroy(&proof);
    return status;
}

truce_status truce__records_prove(struct records *records, struct kv *kv, uint64_t taken,
                                  bson_error_t *error)
{
    uint64_t numbers[RECORDS];
    size_t count = 0;

    while (taken)
        numbers[count++] = records->all[record_next(&taken)].number;
    return put_proof(kv, numbers, count, error);
}

/* Reads the numbers of the last group that had writes of other processes. `*count` is 0 if there
 * was no such group. */
static truce_status read_proof(struct kv *kv, uint64_t numbers[RECORDS], size_t *count,
                               bson_error_t *error)
{
    struct bytes body;
    truce_status status = truce__kv_row_get(kv, PROOF_TABLE, PROOF_ROW, &body, error);
    bson_iter_t iter;
    bson_t proof;
    uint32_t size = 0;
    const uint8_t *data = NULL;

    *count = 0;
    if (status)
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    if (bson_init_static(&proof, body.data, body.size) &&
        bson_iter_init_find(&iter, &proof, PROOF_FIELD) && BSON_ITER_HOLDS_BINARY(&iter))
        bson_iter_binary(&iter, NULL, &size, &data);
    if (!data || size % sizeof *numbers || size > RECORDS * sizeof *numbers)
        return truce__fail(
            TRUCE_CORRUPT, error,
            "the record of delegated writes in the catalog is damaged: check the file with truce "
            "check");
    memcpy(numbers, data, size);
    *count = size / sizeof *numbers;
    return TRUCE_OK;
}

/* ---- settling records ----------------------------------------------------------------------- */

static void records_settle_all(struct records *records, uint64_t taken, enum record_state state)
{
    truce_assert(atomic_load(&records->lock->held));
    for (uint64_t left = taken; left;)
        atomic_store(&records->all[record_next(&left)].state, state);
    atomic_fetch_and(&records->lock->page->taken, ~taken);
}

void truce__records_answer_all(struct records *records, uint64_t taken, uint64_t promise)
{
    for (uint64_t left = taken; left;)
        records->all[record_next(&left)].promise = promise;
    records_settle_all(records, taken, RECORD_ANSWERED);
}

void truce__records_return_all(struct records *records, uint64_t taken, uint64_t refused)
{
    for (uint64_t left = taken; left;) {
        size_t number = record_next(&left);

        records->all[number].promise = refused >> number & 1;
    }
    records_settle_all(records, taken, RECORD_RETURNED);
    truce__records_wake(records, taken);
}

bool truce__records_orphaned(const struct records *records)
{
    return atomic_load(&records->lock->page->taken);
}

static bool records_is_among(uint64_t number, const uint64_t *numbers, size_t count)
{
    while (count && numbers[count - 1] != number)
        count--;
    return count;
}

truce_status truce__records_adopt(struct records *records, struct kv *kv, uint64_t promise,
                                  uint64_t *lost, bson_error_t *error)
{
    uint64_t taken = atomic_load(&records->lock->page->taken), done = 0;
    uint64_t numbers[RECORDS];
    size_t count;
    truce_status status = read_proof(kv, numbers, &count, error);

    *lost = 0;
    if (!status && !records_map(records))
        status =
            truce__fail(TRUCE_IO, error, "cannot map the lock file \"%s\"", records->lock->path);
    if (status)
        return status;
    for (uint64_t left = taken; left;) {
        size_t number = record_next(&left);
        struct record *record = &records->all[number];

        if (atomic_load(&record->state) != RECORD_TAKEN)
            continue;
        if (records_is_among(record->number, numbers, count))
            done |= record_bit(number);
        else
            *lost |= record_bit(number);
    }
    truce__records_answer_all(records, done, promise);
    truce__records_wake(records, done);
    atomic_fetch_and(&records->lock->page->taken, *lost);
    return *lost ? put_proof(kv, numbers, 0, error) : TRUCE_OK;
}

/* ---- for every process ---------------------------------------------------------------------- */

void truce__records_wake(struct records *records, uint64_t answered)
{
    while (answered)
        truce__futex_wake_shared(&records->all[record_next(&answered)].state, 1);
}

void truce__records_wake_next(struct records *records)
{
    uint64_t published = atomic_load(&records->lock->page->published), behind;

    if (records->claim >= 0)
        published &= ~record_bit(records->own);
    if (!published || !records_map(records))
        return;
    behind = records->claim >= 0 ? published & ~(2 * record_bit(records->own) - 1) : 0;
    if (behind)
        published = behind;
    truce__futex_wake_shared(&records->all[record_next(&published)].state, 1);
}
