/*
 * Scans.
 *
 *     plan     scan 0: range 0, range 1, ...    scan 1: range 0, ...
 *     place           (at, range, behind which key and row of it)
 *
 * Each range is one cursor of a key table, or of the row table, opened behind the place where the
 * scan is. Pausing keeps the place as bytes and closes the cursor; what was written meanwhile is
 * seen if it lies ahead, as with any cursor that does not hold a snapshot for its whole life.
 *
 * Invariants:
 *  1. While a cursor is open, the place is the cursor's current entry; when it is closed, `key` and
 *     `row` are the place, if `positioned`.
 *  2. A plan that repeats brings each row once: the rows it has brought, or refused, are in `seen`.
 *
 * A plan by row first puts the rows of all its entries in order, a window of WINDOW_ROWS at a time:
 * the least rows behind those that are done. What does not fit into the window is left to another
 * pass over the entries, so memory is bounded whatever the number of entries.
 *
 * Who wants few of many need not wait for all entries to be gathered. After GATHER_FIRST entries the
 * rows themselves are walked as well, one for every GATHER_PER_ROW entries, and whichever comes to
 * an end first has the rest:
 *
 *     entries    gathered ............. in order: rows behind `done` are still to be brought
 *     rows       walked ---> `done`     each that matches was brought on the way
 *
 * A wide range has its first matches among the first rows; a narrow one is gathered soon.
 *
 * Where all rows are looked at in their order there is no cursor: SQLite's loop calls the scan for each
 * row, and the place is (row) all the time.
 */
#include "engine/documents/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

#define WINDOW_ROWS    (1 << 20)
#define GATHER_FIRST   64
#define GATHER_PER_ROW 4

/* ---- rows that were seen -------------------------------------------------------------------- */

static uint32_t scan_place(const struct row_set *set, int64_t row)
{
    uint32_t at = (uint32_t)((uint64_t)row * 0x9e3779b97f4a7c15u >> 32) & (set->room - 1);

    while (set->rows[at] && set->rows[at] != row)
        at = (at + 1) & (set->room - 1);
    return at;
}

static void scan_grow(struct row_set *set)
{
    struct row_set larger = {.room = set->room ? set->room * 2 : 64};

    larger.rows = bson_malloc0(larger.room * sizeof *larger.rows);
    for (uint32_t i = 0; i < set->room; i++) {
        if (set->rows[i])
            larger.rows[scan_place(&larger, set->rows[i])] = set->rows[i];
    }
    larger.count = set->count;
    bson_free(set->rows);
    *set = larger;
}

/* False if it was there. */
static bool scan_add_row(struct row_set *set, int64_t row)
{
    uint32_t at;

    if (set->count * 2 >= set->room)
        scan_grow(set);
    at = scan_place(set, row);
    if (set->rows[at])
        return false;
    set->rows[at] = row;
    set->count++;
    return true;
}

/* ---- life ----------------------------------------------------------------------------------- */

void truce__scan_init(struct scan *scan, const struct plan *plan, int64_t table,
                      const struct match *match, struct query_context *context)
{
    *scan = (struct scan){.plan = plan,
                          .match = match,
                          .context = context,
                          .table = table,
                          .window = {.last = INT64_MAX}};
}

void truce__scan_release(struct scan *scan)
{
    truce_assert(!scan->cursor.statement && !scan->walk.statement);
    truce__buffer_release(&scan->key);
    bson_free(scan->seen.rows);
    bson_free(scan->window.rows);
    *scan = (struct scan){0};
}

void truce__scan_pause(struct scan *scan)
{
    truce__kv_cursor_close(&scan->walk);
    if (!scan->cursor.statement)
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

/* Above every key: no encoding begins with ff. */
static const uint8_t above_all[] = {0xff};

static truce_status open_keys(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];
    const struct key_range *range = scan_range_of(scan);
    struct bytes key = {range->from.bytes, range->from.size};
    int64_t row = 0;

    if (part->backward)
        key = range->to.size ? (struct bytes){range->to.bytes, range->to.size}
                             : (struct bytes){above_all, sizeof above_all};
    if (scan->positioned) {
        key = (struct bytes){scan->key.bytes, scan->key.size};
        row = scan->row;
    }
    return truce__kv_keys_seek(kv, part->index, scan->plan->by_row ? 0 : scan->table, key, row,
                               part->backward, &scan->cursor, error);
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

/* To the beginning of the next range; false: there is none. */
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

/* Is the cursor's entry beyond the range? */
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

/* A scan over an index without ranges has nothing to bring. */
static bool scan_is_empty(const struct scan *scan)
{
    const struct plan_scan *part = &scan->plan->scans[scan->at];

    return part->index && !part->count;
}

/* The cursor to the next entry of the plan; NOT_FOUND at the end. */
static truce_status next_entry(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (scan->at >= scan->plan->count)
        return TRUCE_NOT_FOUND;
    for (;;) {
        if (scan_is_empty(scan))
            status = TRUCE_NOT_FOUND;
        else if (!scan->cursor.statement)
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

/* Reading an entry or a document is worth many steps. */
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

/* The next entry, tested; OK without a match is possible. */
static truce_status scan_step(struct scan *scan, struct kv *kv, struct found *found,
                              bson_error_t *error)
{
    truce_status status = next_entry(scan, kv, error);

    if (!status)
        status = scan_spend(scan, error);
    if (status)
        return status;
    scan->keys_examined += scan->cursor.keys;
    if (scan->plan->repeats && !scan_add_row(&scan->seen, scan->cursor.row))
        return TRUCE_OK;
    status = scan_examine(scan, scan->cursor.body, found, error);
    if (!status && found->match.matched)
        found->row = scan->cursor.row;
    return status;
}

/* ---- by row --------------------------------------------------------------------------------- */

static int scan_compare_rows(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* In order, each once, without those that are done meanwhile. */
static void scan_arrange(struct row_window *window)
{
    int64_t last = window->done;
    size_t kept = 0;

    if (window->count)
        qsort(window->rows, window->count, sizeof *window->rows, scan_compare_rows);
    for (size_t i = 0; i < window->count; i++) {
        if (window->rows[i] > last)
            last = window->rows[kept++] = window->rows[i];
    }
    window->count = kept;
}

/* A full window keeps its lower half; the rest is for the next pass. */
static void add_to_window(struct row_window *window, int64_t row)
{
    if (row <= window->done || row > window->last)
        return;
    if (window->count == window->room) {
        window->room = window->room ? window->room * 2 : 64;
        window->rows = bson_realloc(window->rows, window->room * sizeof *window->rows);
    }
    window->rows[window->count++] = row;
    if (window->count < WINDOW_ROWS)
        return;
    scan_arrange(window);
    if (window->count > WINDOW_ROWS / 2) {
        window->count = WINDOW_ROWS / 2;
        window->last = window->rows[window->count - 1];
    }
}

/* One entry into the window. */
static truce_status fill_step(struct scan *scan, struct kv *kv, bson_error_t *error)
{
    truce_status status = next_entry(scan, kv, error);

    if (!status)
        status = scan_spend(scan, error);
    if (!status) {
        scan->keys_examined++;
        scan->gathered++;
        add_to_window(&scan->window, scan->cursor.row);
    }
    if (status == TRUCE_NOT_FOUND) {
        truce__kv_cursor_close(&scan->walk);
        scan_arrange(&scan->window);
        scan->window.filled = true;
        status = TRUCE_OK;
    }
    return status;
}

/* Another pass, for rows behind this window; NOT_FOUND: there are none. */
static truce_status scan_next_window(struct scan *scan)
{
    struct row_window *window = &scan->window;

    if (window->last == INT64_MAX)
        return TRUCE_NOT_FOUND;
    if (window->done < window->last)
        window->done = window->last;
    window->last = INT64_MAX;
    window->count = window->at = 0;
    window->filled = false;
    scan->at = scan->range = 0;
    scan->positioned = false;
    return TRUCE_OK;
}

/* One row of those that are walked; after the last of them nothing is left to be gathered. */
static truce_status walk_step(struct scan *scan, struct kv *kv, struct found *found,
                              bson_error_t *error)
{
    struct row_window *window = &scan->window;
    truce_status status = TRUCE_OK;

    scan->gathered = 0;
    if (!scan->walk.statement)
        status = truce__kv_rows_seek(kv, scan->table, window->done, false, &scan->walk, error);
    if (!status)
        status = truce__kv_cursor_next(&scan->walk, error);
    if (status == TRUCE_NOT_FOUND) {
        truce__scan_pause(scan);
        window->count = window->at = 0;
        window->last = INT64_MAX;
        window->filled = true;
        return TRUCE_OK;
    }
    if (!status)
        status = scan_examine(scan, scan->walk.body, found, error);
    if (status)
        return status;
    window->done = scan->walk.row;
    if (found->match.matched)
        found->row = window->done;
    return TRUCE_OK;
}

static bool is_turn_of_rows(const struct scan *scan)
{
    return scan->plan->walks && scan->keys_examined >= GATHER_FIRST &&
           scan->gathered >= GATHER_PER_ROW;
}

static truce_status step_by_row(struct scan *scan, struct kv *kv, struct found *found,
                                bson_error_t *error)
{
    struct row_window *window = &scan->window;
    truce_status status;
    struct bytes body;
    int64_t row;

    if (!window->filled)
        return is_turn_of_rows(scan) ? walk_step(scan, kv, found, error)
                                     : fill_step(scan, kv, error);
    if (window->at == window->count)
        return scan_next_window(scan);
    status = scan_spend(scan, error);
    if (status)
        return status;
    row = window->rows[window->at++];
    status = truce__kv_row_get(kv, scan->table, row, &body, error);
    if (status)
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* removed since */
    status = scan_examine(scan, body, found, error);
    if (!status && found->match.matched)
        found->row = row;
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
        status = scan->plan->by_row ? step_by_row(scan, kv, found, error)
                                    : scan_step(scan, kv, found, error);
    }
    if (status && status != TRUCE_NOT_FOUND) {
        truce__kv_cursor_close(&scan->cursor);
        truce__kv_cursor_close(&scan->walk);
    }
    return status;
}

/* ---- one after the other --------------------------------------------------------------------- */

/* All rows in their order: SQLite goes over them by itself. */
bool truce__scan_is_of_rows(const struct plan *plan)
{
    return plan->count == 1 && !plan->scans[0].index && !plan->scans[0].backward;
}

struct taking {
    struct scan *scan;
    int64_t left; /* rows that may be looked at, ... */
    int64_t upto; /* ... and the last of them */
    int64_t beyond;
    scan_take_function *take;
    void *arg;
    struct found found;
    truce_status status;
    bson_error_t *error;
};

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
