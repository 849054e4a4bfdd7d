/*
 * Scans.
 *
 *     plan        scan 0: range 0, range 1, ...    scan 1: range 0, ...
 *     position           (at, range, key and row after which to continue)
 *
 * Each range is one cursor of a key table, or of the row table, opened after the position of the
 * scan. Pausing stores the position as bytes and closes the cursor. The caller decides in which
 * snapshot the scan continues. In a later one, the scan sees later writes that lie after its
 * position; query.c continues in the same snapshot.
 *
 * Invariants:
 *  1. While a cursor is open, the position is the cursor's current entry. When it is closed, `key`
 *     and `row` are the position if `positioned` is set.
 *  2. A plan that repeats returns each row once, at the first of its entries. The set `seen` has
 *     the rows that it has returned or refused.
 *
 * If all rows are read in their order, there is no cursor: SQLite's loop calls the scan for each
 * row, and the position is always (row).
 */
#include "engine/documents/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

/* ---- rows that were seen -------------------------------------------------------------------- */

static struct row_slot *scan_slot(const struct row_set *set, int64_t rows_from)
{
    uint32_t at = (uint32_t)((uint64_t)rows_from * 0x9e3779b97f4a7c15u >> 32) & (set->room - 1);

    while (set->slots[at].seen && set->slots[at].rows_from != rows_from)
        at = (at + 1) & (set->room - 1);
    return &set->slots[at];
}

static void scan_grow(struct row_set *set)
{
    struct row_set larger = {.count = set->count, .room = set->room ? set->room * 2 : 64};

    larger.slots = bson_malloc0(larger.room * sizeof *larger.slots);
    for (uint32_t i = 0; i < set->room; i++) {
        if (set->slots[i].seen)
            *scan_slot(&larger, set->slots[i].rows_from) = set->slots[i];
    }
    bson_free(set->slots);
    *set = larger;
}

/* Returns false if the row is in the set already. */
static bool scan_add_row(struct row_set *set, int64_t row)
{
    uint64_t bit = UINT64_C(1) << (row & 63);
    struct row_slot *slot;

    if (set->count * 2 >= set->room)
        scan_grow(set);
    slot = scan_slot(set, row & ~INT64_C(63));
    if (slot->seen & bit)
        return false;
    set->count += !slot->seen;
    slot->rows_from = row & ~INT64_C(63);
    slot->seen |= bit;
    return true;
}

void truce__scan_init(struct scan *scan, const struct plan *plan, int64_t table,
                      const struct match *match, struct query_context *context)
{
    *scan = (struct scan){.plan = plan, .match = match, .context = context, .table = table};
}

void truce__scan_release(struct scan *scan)
{
    truce_assert(!scan->cursor.kv);
    truce__buffer_release(&scan->key);
    bson_free(scan->seen.slots);
    *scan = (struct scan){0};
}

void truce__scan_pause(struct scan *scan)
{
    if (!scan->cursor.kv)
        return;
    if (scan->positioned) {
        scan->key.size = 0;
        truce__buffer_append(&scan->key, scan->cursor.key.data, scan->cursor.key.size);
        scan->row = scan->cursor.row;
    }
    truce__kv_cursor_close(&scan->cursor);
}

/* ---- ranges --------------------------------------------------------------------------------- */

static const struct key_range *scan_range_of(const struct scan *scan)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];
    uint32_t number = part->backward ? part->count - 1 - scan->range : scan->range;

    return &part->ranges[number];
}

/* A key above every key, because no encoding begins with ff. */
static const uint8_t above_all[] = {0xff};

/* Opens the cursor of the current range of an index, after the position of the scan. */
static truce_status open_keys(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];
    const struct key_range *range = scan_range_of(scan);
    struct bytes from = {range->from.bytes, range->from.size};
    struct bytes to = range->to.size ? (struct bytes){range->to.bytes, range->to.size}
                                     : (struct bytes){above_all, sizeof above_all};
    struct bytes key = part->backward ? to : from;
    int64_t row = 0;

    if (scan->positioned) {
        key = (struct bytes){scan->key.bytes, scan->key.size};
        row = scan->row;
    }
    /* If entries may repeat, most of them may lead to documents that were seen already. Their
     * bodies are then not returned here, and scan_step() reads the others. */
    return truce__kv_keys_seek(kv, part->index, scan->plan->repeats ? 0 : scan->table, key, row,
                               part->backward ? from : to, part->backward, &scan->cursor, error);
}

static truce_status open_rows(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    bool backward = scan->plan->scans[scan->at].backward;
    int64_t row = backward ? INT64_MAX : 0;

    if (scan->positioned)
        row = scan->row;
    return truce__kv_rows_seek(kv, scan->table, row, backward, &scan->cursor, error);
}

static truce_status open_range(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    if (scan->plan->scans[scan->at].index)
        return open_keys(scan, kv, error);
    return open_rows(scan, kv, error);
}

/* Moves to the beginning of the next range. Returns false at the end. */
static bool next_range(struct scan *scan)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];

    truce__kv_cursor_close(&scan->cursor);
    scan->positioned = false;
    scan->range++;
    if (!part->index || scan->range >= part->count) {
        scan->range = 0;
        scan->at++;
    }
    return scan->at < scan->plan->count;
}

static bool scan_is_below(struct bytes key, const struct buffer *bound)
{
    size_t common = key.size < bound->size ? key.size : bound->size;
    int order = memcmp(key.data, bound->bytes, common);

    return order ? order < 0 : key.size < bound->size;
}

/* Returns whether the cursor's entry is outside of the range. */
static bool is_beyond(const struct scan *scan)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];
    const struct key_range *range;

    if (!part->index)
        return false;
    range = scan_range_of(scan);
    if (part->backward)
        return range->from.size && scan_is_below(scan->cursor.key, &range->from);
    return range->to.size && !scan_is_below(scan->cursor.key, &range->to);
}

/* ---- entries -------------------------------------------------------------------------------- */

/* Returns whether the current scan of the plan has no results, because it is over an index and has
 * no ranges. */
static bool scan_is_empty(const struct scan *scan)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];

    return part->index && !part->count;
}

/* Moves the cursor to the next entry of the plan. Returns NOT_FOUND at the end. */
static truce_status next_entry(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (scan->at >= scan->plan->count)
        return TRUCE_NOT_FOUND;
    for (;;) {
        if (scan_is_empty(scan))
            status = TRUCE_NOT_FOUND;
        else if (!scan->cursor.kv)
            status = open_range(scan, kv, error);
        if (!status)
            status = truce__kv_cursor_next(&scan->cursor, error);
        if (!status && !is_beyond(scan)) {
            scan->positioned = true;
            return TRUCE_OK;
        }
        if (status && status != TRUCE_NOT_FOUND)
            return status;
        if (!next_range(scan))
            return TRUCE_NOT_FOUND;
        status = TRUCE_OK;
    }
}

/* Takes steps from the budget. Reading an entry or a document costs many steps. */
static truce_status scan_spend(const struct scan *scan, bson_error_t *error)
{
    return truce__budget_spend(scan->context->budget, SCAN_STEPS_OF_ENTRY, error);
}

static truce_status scan_examine(struct scan *scan, struct bytes body, struct found *found,
                                 bson_error_t *error)
{
    scan->documents_examined++;
    found->match = (struct match_result){.array_index = -1};
    found->document = (struct value){body.data, (uint32_t)body.size, BSON_TYPE_DOCUMENT};
    if (scan->context->arena)
        truce__arena_reset(scan->context->arena);
    return truce__match_test(scan->match, found->document, scan->context, &found->match, error);
}

/* Tests the next entry. Also returns OK if it does not match. */
static truce_status scan_step(struct scan *scan, struct kv *kv, struct found *found,
                              bson_error_t *error)
{
    truce_status status = next_entry(scan, kv, error);
    struct bytes body;

    if (!status)
        status = scan_spend(scan, error);
    if (status)
        return status;
    scan->keys_examined += scan->cursor.keys;
    body = scan->cursor.body;
    if (scan->plan->repeats) {
        if (!scan_add_row(&scan->seen, scan->cursor.row))
            return TRUCE_OK;
        status = truce__kv_row_get(kv, scan->table, scan->cursor.row, &body, error);
        if (status)
            /* The document was removed after its entry was read. */
            return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    status = scan_examine(scan, body, found, error);
    if (!status && found->match.matched)
        found->row = scan->cursor.row;
    return status;
}

truce_status truce__scan_next(struct scan *scan, struct kv *kv, int64_t examined_max,
                              struct found *found, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    found->row = 0;
    for (int64_t examined = 0; !status && !found->row; examined++) {
        if (examined_max && examined >= examined_max)
            return TRUCE_OK;
        status = scan_step(scan, kv, found, error);
    }
    if (status && status != TRUCE_NOT_FOUND)
        truce__kv_cursor_close(&scan->cursor);
    return status;
}

/* ---- all rows ------------------------------------------------------------------------------- */

struct taking {
    struct scan *scan;
    /* The number of rows that may still be examined. */
    int64_t left;
    /* The last row that may be examined. */
    int64_t upto;
    /* The first row after `upto` that was found, or 0. */
    int64_t beyond;
    scan_take_function *take;
    void *arg;
    struct found found;
    truce_status status;
    bson_error_t *error;
};

/* Examines one row for SQLite's loop and passes a match on. Returns false to end the loop. */
static bool scan_take_row(void *arg, int64_t row, struct bytes body)
{
    struct taking *taking = arg;
    bool more = true;

    if (row > taking->upto) {
        taking->beyond = row;
        return false;
    }
    taking->status = scan_spend(taking->scan, taking->error);
    if (!taking->status)
        taking->status = scan_examine(taking->scan, body, &taking->found, taking->error);
    if (taking->status)
        return false;
    taking->scan->positioned = true;
    taking->scan->row = row;
    if (taking->found.match.matched) {
        taking->found.row = row;
        more = taking->take(&taking->found, taking->arg);
    }
    return more && --taking->left;
}

static truce_status each_of_rows(struct scan *scan, struct kv *kv, struct taking *taking,
                                 bson_error_t *error)
{
    int64_t after = scan->positioned ? scan->row : 0;
    truce_status status;

    if (scan->at)
        return TRUCE_NOT_FOUND;
    status = truce__kv_rows_each(kv, scan->table, after, scan_take_row, taking, error);
    if (status == TRUCE_NOT_FOUND)
        (void)next_range(scan);
    return taking->status ? taking->status : status;
}

truce_status truce__scan_each(struct scan *scan, struct kv *kv, int64_t examined_max,
                              scan_take_function *take, void *arg, bson_error_t *error)
{
    struct taking taking = {.scan = scan,
                            .left = examined_max,
                            .upto = INT64_MAX,
                            .take = take,
                            .arg = arg,
                            .error = error};
    int64_t start = scan->keys_examined + scan->documents_examined, examined = 0;
    truce_status status = TRUCE_OK;
    struct found found;

    truce_assert(examined_max > 0);
    if (truce__scan_is_of_rows(scan->plan))
        return each_of_rows(scan, kv, &taking, error);
    while (!status && examined < examined_max) {
        status = truce__scan_next(scan, kv, examined_max - examined, &found, error);
        if (!status && found.row && !take(&found, arg))
            break;
        examined = scan->keys_examined + scan->documents_examined - start;
    }
    return status;
}

truce_status truce__scan_rows(struct scan *scan, struct kv *kv, int64_t upto,
                              scan_take_function *take, void *arg, int64_t *beyond,
                              bson_error_t *error)
{
    struct taking taking = {
        .scan = scan, .left = INT64_MAX, .upto = upto, .take = take, .arg = arg, .error = error};
    truce_status status = truce__kv_rows_each(kv, scan->table, scan->positioned ? scan->row : 0,
                                              scan_take_row, &taking, error);

    *beyond = taking.beyond;
    if (taking.status)
        return taking.status;
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}
