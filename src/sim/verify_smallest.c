#include <stdlib.h>
#include <string.h>

#include "sim/verify_parts.h"

/*
 * Reduces a history to a small part with the same anomaly. It removes groups of transactions, then
 * single ones, as long as the anomaly remains (Zeller and Hildebrandt, 2002).
 *
 * The anomaly of a part must be one of the whole history. Assume that the whole history has a valid
 * order. The order of a part is the same, without the removed transactions:
 *
 *     lists      the values of removed transactions are removed from the reads of the others, too.
 *                These reads then agree with the order.
 *     registers  the transactions that wrote a value which another one read are not removed. The
 *                last write before a read is therefore the same.
 *
 * So a part without a valid order proves that the whole history has none.
 */

/* The maximum amount of work, in operations and in values that were read. */
#define WORK_MAX  200000000
#define STEPS_MAX 100000

/* A value that a transaction wrote. */
struct written {
    uint32_t key, txn;
    int64_t value;
};

/* The search for the smallest part that has the anomaly. */
struct smallest {
    const struct verify *whole;
    /* All values that the transactions wrote, sorted by key and value. */
    struct written *written;
    uint32_t written_count;
    /* kept[t]: transaction t of the whole history is in the part. */
    bool *kept;
    /* The transactions of the current part and of the candidate. Their reads are in `arena` and
     * `candidate_arena`. */
    struct verify_txn *txns, *candidate;
    uint32_t count, candidate_count;
    struct arena arena, candidate_arena;
    /* The name of the anomaly. */
    const char *name;
    /* The candidate has the anomaly. */
    bool found;
    /* The amount of work so far (WORK_MAX). */
    uint64_t work;
};

static int compare_written(const void *a, const void *b)
{
    const struct written *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Collects all values that transactions wrote, sorted by key and value. */
static void gather_written(struct smallest *smallest)
{
    const struct verify *whole = smallest->whole;
    uint32_t room = 0;

    for (uint32_t t = 0; t < whole->count; t++)
        room += whole->txns[t].ops_count;
    smallest->written = bson_malloc((room + 1) * sizeof *smallest->written);
    for (uint32_t t = 0; t < whole->count; t++) {
        for (uint32_t i = 0; i < whole->txns[t].ops_count; i++) {
            const struct verify_op *op = &whole->txns[t].ops[i];

            if (op->kind != VERIFY_READ)
                smallest->written[smallest->written_count++] =
                    (struct written){op->key, t, op->value};
        }
    }
    qsort(smallest->written, smallest->written_count, sizeof *smallest->written, compare_written);
}

/* Returns the first entry of a value, or NULL. Others of the same value follow it. */
static const struct written *writers_of(const struct smallest *smallest, uint32_t key,
                                        int64_t value)
{
    struct written wanted = {.key = key, .value = value};
    uint32_t low = 0, high = smallest->written_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (compare_written(&smallest->written[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < smallest->written_count && !compare_written(&smallest->written[low], &wanted)
               ? &smallest->written[low]
               : NULL;
}

static bool smallest_same_value(const struct smallest *smallest, const struct written *written,
                                const struct written *first)
{
    return written < smallest->written + smallest->written_count &&
           !compare_written(written, first);
}

/* Returns true if a value that was read stays: a kept transaction wrote it, or none did. */
static bool value_stays(const struct smallest *smallest, uint32_t key, int64_t value)
{
    const struct written *first = writers_of(smallest, key, value);

    for (const struct written *one = first; first && smallest_same_value(smallest, one, first);
         one++) {
        if (smallest->kept[one->txn])
            return true;
    }
    return !first;
}

/* Keeps the transactions that wrote what kept transactions read in registers. */
static void keep_writers(struct smallest *smallest)
{
    const struct verify *whole = smallest->whole;

    for (bool more = true; more;) {
        more = false;
        for (uint32_t t = 0; t < whole->count; t++) {
            const struct verify_txn *txn = &whole->txns[t];

            for (uint32_t i = 0; smallest->kept[t] && i < txn->ops_count; i++) {
                const struct verify_op *op = &txn->ops[i];
                const struct written *first;

                if (op->kind != VERIFY_READ || op->nothing ||
                    whole->types[op->key] != VERIFY_REGISTER)
                    continue;
                first = writers_of(smallest, op->key, op->value);
                for (const struct written *one = first;
                     first && smallest_same_value(smallest, one, first); one++) {
                    more |= !smallest->kept[one->txn];
                    smallest->kept[one->txn] = true;
                }
            }
        }
        smallest->work += whole->count;
    }
}

/* ---- the candidate -------------------------------------------------------------------------- */

static void smallest_copy_op(struct smallest *smallest, struct verify_op *op)
{
    int64_t *list;
    uint32_t length = 0;

    smallest->work += 1 + op->length;
    if (op->kind != VERIFY_READ || !op->length)
        return;
    list = truce__arena_take(&smallest->candidate_arena, op->length * sizeof *list);
    for (uint32_t i = 0; i < op->length; i++) {
        if (value_stays(smallest, op->key, op->list[i]))
            list[length++] = op->list[i];
    }
    op->list = list;
    op->length = length;
}

/* Copies the kept transactions into the candidate, without the values of removed ones in their
 * reads. */
static void make_candidate(struct smallest *smallest)
{
    truce__arena_reset(&smallest->candidate_arena);
    smallest->candidate_count = 0;
    for (uint32_t t = 0; t < smallest->whole->count; t++) {
        struct verify_txn txn = smallest->whole->txns[t];
        struct verify_op *ops;

        if (!smallest->kept[t])
            continue;
        ops = truce__arena_take(&smallest->candidate_arena, (txn.ops_count + 1) * sizeof *ops);
        if (txn.ops_count)
            memcpy(ops, txn.ops, txn.ops_count * sizeof *ops);
        for (uint32_t i = 0; i < txn.ops_count; i++)
            smallest_copy_op(smallest, &ops[i]);
        txn.ops = ops;
        smallest->candidate[smallest->candidate_count++] = txn;
    }
}

static void smallest_note(const struct verify_anomaly *anomaly, void *arg)
{
    struct smallest *smallest = arg;

    smallest->found |= !strcmp(anomaly->name, smallest->name);
}

/* Returns true, and makes the candidate the part, if it has the anomaly. */
static bool accept_candidate(struct smallest *smallest)
{
    struct verify part = *smallest->whole;
    struct verify_txn *txns = smallest->txns;
    struct arena arena = smallest->arena;

    part.txns = smallest->candidate;
    part.count = smallest->candidate_count;
    part.steps_max = STEPS_MAX;
    smallest->found = false;
    truce__verify_run(&part, smallest_note, smallest);
    smallest->work += part.steps;
    if (!smallest->found)
        return false;
    smallest->txns = smallest->candidate;
    smallest->count = smallest->candidate_count;
    smallest->arena = smallest->candidate_arena;
    smallest->candidate = txns;
    smallest->candidate_arena = arena;
    return true;
}

/* Removes `size` transactions of the part, from `from` on. */
static bool remove_group(struct smallest *smallest, uint32_t from, uint32_t size)
{
    uint32_t end = from + size < smallest->count ? from + size : smallest->count;

    for (uint32_t i = from; i < end; i++)
        smallest->kept[smallest->txns[i].number] = false;
    keep_writers(smallest);
    make_candidate(smallest);
    if (smallest->candidate_count < smallest->count && accept_candidate(smallest))
        return true;
    for (uint32_t i = from; i < end; i++)
        smallest->kept[smallest->txns[i].number] = true;
    return false;
}

/* Removes groups of half of the transactions, then of a quarter, and so on down to single ones,
 * which are repeated until none can be removed. Stops after WORK_MAX. */
static void smallest_reduce(struct smallest *smallest)
{
    for (uint32_t size = smallest->count / 2; size && smallest->work < WORK_MAX;) {
        bool removed = false;
        uint32_t from = 0;

        while (from < smallest->count && smallest->count > 1 && smallest->work < WORK_MAX) {
            uint32_t count = smallest->count;

            if (remove_group(smallest, from, size)) {
                removed = true;
                from += size > count - smallest->count ? size - (count - smallest->count) : 0;
            } else {
                from += size;
            }
        }
        if (size > 1 || !removed)
            size /= 2;
    }
}

void truce__verify_smallest(const struct verify *verify, const char *name, struct verify *part)
{
    struct smallest smallest = {.whole = verify, .name = name, .count = verify->count};

    gather_written(&smallest);
    smallest.kept = bson_malloc(verify->count + 1);
    memset(smallest.kept, true, verify->count + 1);
    smallest.txns = bson_malloc((verify->count + 1) * sizeof *smallest.txns);
    smallest.candidate = bson_malloc((verify->count + 1) * sizeof *smallest.candidate);
    if (verify->count)
        memcpy(smallest.txns, verify->txns, verify->count * sizeof *smallest.txns);
    smallest_reduce(&smallest);
    *part = *verify;
    part->txns = smallest.txns;
    part->count = smallest.count;
    part->arena = smallest.arena;
    bson_free(smallest.candidate);
    truce__arena_release(&smallest.candidate_arena);
    bson_free(smallest.written);
    bson_free(smallest.kept);
}
