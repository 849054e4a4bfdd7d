/*
 * Group commit across processes.
 *
 * Requests and answers are sequences of operations, each with its length before it:
 *
 *     | 4 bytes | operation | 4 bytes | operation | ...
 *
 * The operations of a record are all executed, or none is. An operation that is refused states this
 * in its answer. If an operation fails the transaction, or would take long, the whole transaction
 * is rolled back and every record is returned. The record of that operation is marked, so that it
 * does not come again soon.
 *
 * A write that makes its process crash, by a fault in truce, crashes at most one other process.
 * The writes that a dead process had taken are returned, and the next process does not take them.
 */
#include "engine/cross_process_commit.h"

#include "base/assert.h"
#include "engine/writer.h"

/* The maximum number of operations in one record. Their answers usually fit into the record,
 * too. */
#define OPERATIONS_MAX 8
/* How often a lock holder searches for published writes in one transaction. A write that is
 * published during a pass is taken by the next pass. */
#define PASSES 3
/* The number of groups that a process does not publish after a refusal. The number doubles with
 * each further refusal. */
#define PAUSE_LEAST 8
#define PAUSE_MOST  1024

void truce__combine_init(struct combine *combine, struct lock *lock)
{
    *combine = (struct combine){.pauses = PAUSE_LEAST};
    truce__records_init(&combine->records, lock);
}

void truce__combine_release(struct combine *combine)
{
    truce__records_release(&combine->records);
    truce__buffer_release(&combine->bytes);
    truce__buffer_release(&combine->answer);
}

/* ---- sequences of operations ---------------------------------------------------------------- */

static size_t begin_part(struct buffer *buffer)
{
    uint32_t size = 0;

    truce__buffer_append(buffer, &size, sizeof size);
    return buffer->size;
}

static void end_part(struct buffer *buffer, size_t began)
{
    uint32_t size = (uint32_t)(buffer->size - began);

    memcpy(buffer->bytes + began - sizeof size, &size, sizeof size);
}

/* Returns false if there is no part left, or if its length exceeds the bytes. */
static bool combine_next_part(struct bytes *left, struct bytes *part)
{
    uint32_t size;

    if (left->size < sizeof size)
        return false;
    memcpy(&size, left->data, sizeof size);
    if (size > left->size - sizeof size)
        return false;
    *part = (struct bytes){left->data + sizeof size, size};
    left->data += sizeof size + size;
    left->size -= sizeof size + size;
    return true;
}

/* ---- for the process whose operations are delegated ----------------------------------------- */

bool truce__combine_wanted(struct combine *combine)
{
    if (!combine->kinds)
        return false;
    if (!combine->pause)
        return true;
    combine->pause--;
    return false;
}

bool truce__combine_add(struct combine *combine, const struct write_op *op)
{
    size_t before = combine->bytes.size, began;

    if (!op->delegated_kind || combine->added == OPERATIONS_MAX)
        return false;
    began = begin_part(&combine->bytes);
    truce__buffer_append_byte(&combine->bytes, op->delegated_kind->letter);
    if (op->delegated_kind->pack(op, &combine->bytes) &&
        combine->bytes.size <= RECORD_REQUEST_MAX) {
        end_part(&combine->bytes, began);
        combine->added++;
        return true;
    }
    combine->bytes.size = before;
    return false;
}

bool truce__combine_publish(struct combine *combine, bool relaxed)
{
    struct bytes request = {combine->bytes.bytes, combine->bytes.size};

    return truce__records_publish(&combine->records, request, relaxed);
}

/* Fails the operation with UNKNOWN, because its reply in the lock file is damaged. Only another
 * program that writes into the lock file can cause this. */
static void fail_damaged(struct write_op *op)
{
    op->status = truce__fail(TRUCE_UNKNOWN, &op->error,
                             "another process executed the write, but its reply in the lock file "
                             "is damaged: read the documents to find the outcome");
}

void truce__combine_report(struct combine *combine, struct write_op *group, uint64_t *promise)
{
    struct bytes left, part;

    *promise = truce__records_answer(&combine->records, &combine->answer);
    left = (struct bytes){combine->answer.bytes, combine->answer.size};
    for (struct write_op *op = group; op; op = op->next) {
        op->status = TRUCE_OK;
        if (!combine_next_part(&left, &part) || !op->delegated_kind->unpack(op, part))
            fail_damaged(op);
    }
    truce__records_close(&combine->records);
    combine->pauses = PAUSE_LEAST;
    atomic_fetch_add(&combine->sent, 1);
}

void truce__combine_take_back(struct combine *combine)
{
    if (truce__records_refused(&combine->records)) {
        combine->pause = combine->pauses;
        combine->pauses = combine->pauses < PAUSE_MOST ? 2 * combine->pauses : PAUSE_MOST;
    }
    truce__records_close(&combine->records);
}

/* ---- for the holder of the lock ------------------------------------------------------------- */

static void combine_close_all(struct write_op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ops[i]->delegated_kind->close(ops[i]);
}

static struct write_op *combine_open_one(struct combine *combine, struct bytes part)
{
    for (const struct delegated_kind *const *kind = combine->kinds; *kind && part.size; kind++) {
        if ((*kind)->letter == part.data[0])
            return (*kind)->open(combine->arg, (struct bytes){part.data + 1, part.size - 1});
    }
    return NULL;
}

/* Opens all operations of a record. Returns their number, or 0 if one of them is not valid. */
static size_t combine_open_all(struct combine *combine, struct write_op *ops[OPERATIONS_MAX])
{
    struct bytes left = {combine->bytes.bytes, combine->bytes.size}, part;
    size_t count = 0;

    while (left.size) {
        struct write_op *op = NULL;

        if (count < OPERATIONS_MAX && combine_next_part(&left, &part))
            op = combine_open_one(combine, part);
        if (!op) {
            combine_close_all(ops, count);
            return 0;
        }
        ops[count++] = op;
    }
    return count;
}

/* Executes one operation of another process and appends its answer. If the operation fails the
 * transaction, `*status` is the reason. */
static enum delegated combine_run_one(struct combine *combine, struct writer *writer,
                                      struct write_op *op, truce_status *status,
                                      bson_error_t *error)
{
    size_t began;
    enum delegated delegated;

    truce__arena_reset(&writer->arena);
    op->reset(op);
    writer->feed.first = 0;
    *status = op->run(op, writer, error);
    if (*status)
        return DELEGATED_HALF;
    began = begin_part(&combine->answer);
    delegated = op->delegated_kind->answer(op, &combine->answer);
    end_part(&combine->answer, began);
    return delegated;
}

/* Executes the operations of another process's record and puts the answer into the record. Marks
 * the record as refused if this process cannot execute it. Fails if a part of the record was
 * executed, so that the transaction is rolled back. */
static truce_status run_record(struct combine *combine, struct writer *writer, size_t record,
                               bson_error_t *error)
{
    struct write_op *ops[OPERATIONS_MAX];
    enum delegated delegated = DELEGATED_DONE;
    truce_status status = TRUCE_OK;
    size_t count, done = 0;

    truce__records_request(&combine->records, record, &combine->bytes);
    combine->answer.size = 0;
    count = combine_open_all(combine, ops);
    if (!count)
        delegated = DELEGATED_NOT;
    while (done < count && delegated == DELEGATED_DONE)
        delegated = combine_run_one(combine, writer, ops[done++], &status, error);
    combine_close_all(ops, count);
    if (delegated == DELEGATED_DONE &&
        !truce__records_put_answer(&combine->records, record,
                                   (struct bytes){combine->answer.bytes, combine->answer.size}))
        delegated = DELEGATED_HALF;
    if (delegated == DELEGATED_DONE)
        return TRUCE_OK;
    combine->refused |= record_bit(record);
    if (delegated == DELEGATED_NOT && done <= 1)
        return TRUCE_OK;
    return status
               ? status
               : truce__fail(TRUCE_LIMIT, error, "a write of another process would take too long");
}

/* Runs the operations that are published now. `*taken` is the set of their records. */
static truce_status run_published(struct combine *combine, struct writer *writer, uint64_t *taken,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *taken = truce__records_take(&combine->records);
    combine->taken |= *taken;
    for (uint64_t left = *taken; left && !status;) {
        size_t record = record_next(&left);

        if (truce__records_relaxed(&combine->records, record))
            combine->relaxed |= record_bit(record);
        status = run_record(combine, writer, record, error);
    }
    return status;
}

truce_status truce__combine_run(struct combine *combine, struct writer *writer, bool *relaxed,
                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint64_t taken = 1, done;

    for (int pass = 0; pass < PASSES && taken && !status; pass++)
        status = run_published(combine, writer, &taken, error);
    combine->served = combine->served || combine->taken;
    done = combine->taken & ~combine->refused;
    *relaxed = *relaxed && !(done & ~combine->relaxed);
    if (!status && done && truce__kv_changed(writer->kv))
        status = truce__records_prove(&combine->records, writer->kv, done, error);
    return status;
}

void truce__combine_committed(struct combine *combine, uint64_t promise)
{
    uint64_t done = combine->taken & ~combine->refused;

    truce__records_answer_all(&combine->records, done, promise);
    truce__records_return_all(&combine->records, combine->refused, combine->refused);
    combine->taken = done;
    atomic_fetch_add(&combine->delegated, (unsigned)__builtin_popcountll(done));
}

void truce__combine_failed(struct combine *combine)
{
    truce__records_return_all(&combine->records, combine->taken, combine->refused);
    truce__combine_forget(combine);
}
