#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/verify_parts.h"

/* Draws the smallest part of a history that has an anomaly. Time goes to the right, one line for
 * each transaction:
 *
 *     0  [=========]          r x [], append y 1
 *     1     [=========]       r y [], append x 2
 *     2                [==]   r x [2], r y [1] */

/* The maximum width of the time axis in characters, and the maximum number of transactions. */
#define WIDTH_MAX 40
#define LINES_MAX 40
/* The maximum length of the operations of a transaction in bytes, and the maximum number of values
 * of a list that are shown. */
#define OPS_TEXT   240
#define VALUES_MAX 8

/* A picture of transactions. */
struct drawing {
    const struct verify *part;
    /* The times of all beginnings and ends, sorted, without repetitions. */
    double *times;
    uint32_t times_count;
};

static int draw_compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int draw_compare_txns(const void *a, const void *b)
{
    const struct verify_txn *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Collects the times of the part. The end of a transaction that did not commit is not drawn. */
static void gather_times(struct drawing *drawing)
{
    const struct verify *part = drawing->part;
    uint32_t count = 0, kept = 0;

    drawing->times = bson_malloc((2 * (size_t)part->count + 1) * sizeof *drawing->times);
    for (uint32_t t = 0; t < part->count; t++) {
        drawing->times[count++] = part->txns[t].begin;
        if (part->txns[t].outcome == VERIFY_OK)
            drawing->times[count++] = part->txns[t].end;
    }
    qsort(drawing->times, count, sizeof *drawing->times, draw_compare_times);
    for (uint32_t i = 0; i < count; i++) {
        if (!kept || drawing->times[i] > drawing->times[kept - 1])
            drawing->times[kept++] = drawing->times[i];
    }
    drawing->times_count = kept;
}

static uint32_t column_of(const struct drawing *drawing, double time)
{
    uint32_t at = 0, step = 3;

    while (at + 1 < drawing->times_count && drawing->times[at] < time)
        at++;
    if (drawing->times_count > 1 && (drawing->times_count - 1) * step >= WIDTH_MAX)
        return at * (WIDTH_MAX - 2) / (drawing->times_count - 1);
    return at * step;
}

/* Writes the value of an operation. A long list is shown with its first and last values. */
static void draw_value(char *text, size_t size, const struct verify_op *op, bool is_list)
{
    size_t at = 0;

    if (op->kind != VERIFY_READ || (!op->nothing && !is_list)) {
        snprintf(text, size, "%" PRId64, op->value);
        return;
    }
    if (op->nothing) {
        snprintf(text, size, "null");
        return;
    }
    at += (size_t)snprintf(text, size, "[");
    for (uint32_t i = 0; i < op->length && at + 30 < size; i++) {
        if (i == VALUES_MAX / 2 && op->length > VALUES_MAX) {
            at += (size_t)snprintf(text + at, size - at, ", ...");
            i = op->length - VALUES_MAX / 2;
        }
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, i ? ", " : "", op->list[i]);
    }
    snprintf(text + at, size - at, "]");
}

/* Appends the operations of a transaction, up to OPS_TEXT bytes. Omits what a transaction has read
 * unless it committed. */
static void draw_ops(struct drawing *drawing, const struct verify_txn *txn, struct buffer *out)
{
    static const char *const names[] = {"append", "w", "r"};
    size_t from = out->size;

    for (uint32_t i = 0; i < txn->ops_count; i++) {
        const struct verify_op *op = &txn->ops[i];
        const char *key = drawing->part->keys[op->key];
        char value[VALUES_MAX * 24 + 20];

        if (out->size - from > OPS_TEXT) {
            truce__buffer_append_text(out, ", ...");
            return;
        }
        draw_value(value, sizeof value, op, drawing->part->types[op->key] == VERIFY_LIST);
        truce__buffer_append_text(out, i ? ", " : "");
        truce__buffer_append_text(out, names[op->kind]);
        truce__buffer_append_text(out, " ");
        truce__buffer_append_text(out, key);
        /* The result of a read is known only if the transaction committed. */
        if (op->kind != VERIFY_READ || txn->outcome == VERIFY_OK) {
            truce__buffer_append_text(out, " ");
            truce__buffer_append_text(out, value);
        }
    }
}

/* Draws one line: the number, the bar, and the operations. A bar without a known end reaches to the
 * last time, and ends with "x" (failed) or "?" (unknown). */
static void draw_transaction(struct drawing *drawing, const struct verify_txn *txn,
                             struct buffer *out)
{
    char bar[WIDTH_MAX + 8], number[16];
    uint32_t last = column_of(drawing, drawing->times[drawing->times_count - 1]);
    uint32_t from = column_of(drawing, txn->begin);
    uint32_t to = txn->outcome == VERIFY_OK ? column_of(drawing, txn->end) : last;

    memset(bar, ' ', sizeof bar);
    for (uint32_t i = from; i <= to + 1; i++)
        bar[i] = '=';
    bar[from] = '[';
    bar[to + 1] = txn->outcome == VERIFY_OK ? ']' : txn->outcome == VERIFY_FAIL ? 'x' : '?';
    bar[last + 2] = 0;
    snprintf(number, sizeof number, "%6u  ", txn->number);
    truce__buffer_append_text(out, number);
    truce__buffer_append_text(out, bar);
    truce__buffer_append_text(out, "  ");
    draw_ops(drawing, txn, out);
    truce__buffer_append_text(out, "\n");
}

uint32_t truce__verify_draw(const struct verify *verify, const char *name, struct buffer *out)
{
    struct verify part;
    struct drawing drawing = {.part = &part};

    truce__verify_smallest(verify, name, &part);
    qsort(part.txns, part.count, sizeof *part.txns, draw_compare_txns);
    gather_times(&drawing);
    for (uint32_t t = 0; t < part.count && t < LINES_MAX; t++)
        draw_transaction(&drawing, &part.txns[t], out);
    if (part.count > LINES_MAX)
        truce__buffer_append_text(out, "   ...\n");
    bson_free(drawing.times);
    bson_free(part.txns);
    truce__arena_release(&part.arena);
    return part.count;
}
