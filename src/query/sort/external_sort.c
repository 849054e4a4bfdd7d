/*
 * Sorting more content than fits into memory.
 *
 * The content is stored as rows in one arena, and an array of pointers to the rows is sorted:
 *
 *     row:  key size 4 | payload size 4 | key ... | number of arrival 8 | payload ...
 *
 * The number of arrival is the end of the key. The order is therefore total, and equal keys stay in
 * the order in which they arrived.
 *
 * With a limit, only the best `limit` rows matter. When twice as many (at least TOP_ROWS_MIN) have
 * arrived, the worse half is dropped. A later row must be better than the worst remaining row
 * (`bar`).
 *
 * When the memory is full, the rows are sorted and written as a run. MERGE_WIDTH runs of one level
 * are merged into one run of the next level. Few files are therefore open, and the number of times
 * that a row is written is logarithmic in the number of runs. At the end a heap merges all runs and
 * the rows in memory:
 *
 *     memory ─ rows ── run (level 0) ─┐
 *              rows ── run (level 0) ─┼─ MERGE_WIDTH ── run (level 1) ... ─┐
 *              ...                   ─┘                                    ├── heap ── next
 *     memory ─ rows ───────────────────────────────────────────────────────┘
 *
 * States: ADDING (add), then sort, then GIVING (next). Invariants:
 *   1. Each row that was added is in memory, or in exactly one run, or was dropped because `limit`
 *      better rows exist.
 *   2. Each run is in order, and has at most `limit` rows if there is a limit.
 *   3. Memory stays below memory_max, except for one row.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "query/sort/sort.h"

#define TOP_ROWS_MIN  256
#define MERGE_WIDTH   16
#define STEPS_OF_ROW  4
#define BYTES_OF_STEP 256
/* The number of rows that are sorted between two checks of the time. */
#define PART_ROWS 16384

struct row {
    uint32_t key_size;
    uint32_t payload_size;
    uint8_t bytes[];
};

/* A sorted run: rows from `file`, or, if file.spill is NULL, the rows in memory. */
struct run {
    struct spill_file file;
    unsigned level;
    struct row **rows;
    size_t rows_at, rows_count;
    /* The next row, or NULL at the end. */
    const struct row *head;
};

struct sorter {
    const struct sort *sort;
    /* The limit (0 means none), and the numbers of rows that were added and returned. */
    uint64_t limit, arrived, given;
    struct spill_options options;
    size_t memory_max;
    /* The state is GIVING, otherwise ADDING. */
    bool giving;
    /* Scratch memory for a sort key. */
    struct buffer key;
    /* The memory of the rows. When rows are dropped, the others are copied to `spare`, and the two
     * are exchanged. */
    struct arena arena, spare;
    /* The rows in memory. */
    struct row **rows;
    size_t count, room;
    /* With a limit: the worst row that still counts. A row that is not less is dropped. */
    const struct row *bar;
    struct run *runs;
    size_t runs_count, runs_room;
    /* The runs that are being merged and have a next row, as a heap with the least row first. */
    struct run **heap;
    size_t heap_count;
    /* The bytes that the sorter has reported to the budget. */
    size_t held;
};

static int sorter_compare_rows(const struct row *a, const struct row *b)
{
    return truce__bytes_compare(a->bytes, a->key_size, b->bytes, b->key_size);
}

static int compare_row_pointers(const void *a, const void *b)
{
    return sorter_compare_rows(*(struct row *const *)a, *(struct row *const *)b);
}

static truce_status sorter_spend(const struct sorter *sorter, uint32_t size, bson_error_t *error)
{
    return truce__budget_spend(sorter->options.budget, STEPS_OF_ROW + size / BYTES_OF_STEP, error);
}

static size_t row_bytes(const struct row *row)
{
    return sizeof *row + row->key_size + row->payload_size;
}

void truce__sorter_new(const struct sort *sort, uint64_t limit, const struct spill_options *options,
                       struct sorter **sorter)
{
    struct sorter *made = bson_malloc0(sizeof *made);

    made->sort = sort;
    made->limit = limit;
    made->options = *options;
    made->memory_max = options->memory_max ? options->memory_max : TRUCE_STAGE_MEMORY_MAX;
    *sorter = made;
}

void truce__sorter_free(struct sorter *sorter)
{
    if (!sorter)
        return;
    for (size_t i = 0; i < sorter->runs_count; i++)
        truce__spill_release(&sorter->runs[i].file);
    bson_free(sorter->runs);
    bson_free(sorter->heap);
    (void)truce__budget_hold(sorter->options.budget, sorter->held, 0);
    bson_free(sorter->rows);
    truce__buffer_release(&sorter->key);
    truce__arena_release(&sorter->arena);
    truce__arena_release(&sorter->spare);
    bson_free(sorter);
}

/* ---- rows in memory ------------------------------------------------------------------------- */

static size_t sorter_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Merges two adjacent sorted parts into one. */
static void merge_parts(struct row **from, struct row **to, size_t begin, size_t middle, size_t end)
{
    size_t left = begin, right = middle;

    for (size_t at = begin; at < end; at++) {
        bool is_left =
            right == end || (left < middle && sorter_compare_rows(from[left], from[right]) < 0);

        to[at] = is_left ? from[left++] : from[right++];
    }
}

/* Sorts in parts, and checks the time between them. */
static truce_status sort_large(struct sorter *sorter, bson_error_t *error)
{
    struct row **from = sorter->rows,
               **to = bson_malloc((sorter->room ? sorter->room : 1) * sizeof *to);
    size_t count = sorter->count;
    truce_status status = TRUCE_OK;

    for (size_t at = 0; at < count && !status; at += PART_ROWS) {
        status = truce__budget_spend(sorter->options.budget, PART_ROWS, error);
        if (!status)
            qsort(from + at, sorter_least(PART_ROWS, count - at), sizeof *from,
                  compare_row_pointers);
    }
    for (size_t width = PART_ROWS; width < count && !status; width *= 2) {
        struct row **merged = to;

        for (size_t at = 0; at < count && !status; at += 2 * width) {
            merge_parts(from, to, at, sorter_least(at + width, count),
                        sorter_least(at + 2 * width, count));
            status = truce__budget_spend(sorter->options.budget,
                                         (uint32_t)sorter_least(width, UINT32_MAX), error);
        }
        if (status)
            break;
        to = from;
        from = merged;
    }
    sorter->rows = from;
    bson_free(to);
    return status;
}

static truce_status sort_rows(struct sorter *sorter, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (sorter->count > PART_ROWS)
        status = sort_large(sorter, error);
    else if (sorter->count)
        qsort(sorter->rows, sorter->count, sizeof *sorter->rows, compare_row_pointers);
    if (sorter->limit && sorter->count > sorter->limit)
        sorter->count = sorter->limit;
    return status;
}

/* Drops all but the best `limit` rows, and frees their memory. */
static truce_status keep_best(struct sorter *sorter, bson_error_t *error)
{
    struct arena used = sorter->arena;
    truce_status status = sort_rows(sorter, error);

    if (status)
        return status;
    for (size_t i = 0; i < sorter->count; i++)
        sorter->rows[i] =
            truce__arena_copy(&sorter->spare, sorter->rows[i], row_bytes(sorter->rows[i]));
    sorter->arena = sorter->spare;
    sorter->spare = used;
    truce__arena_reset(&sorter->spare);
    sorter->bar = sorter->count == sorter->limit ? sorter->rows[sorter->count - 1] : NULL;
    return TRUCE_OK;
}

static size_t memory_used(const struct sorter *sorter)
{
    return sorter->arena.bytes + sorter->room * sizeof *sorter->rows;
}

static void empty_rows(struct sorter *sorter)
{
    truce__arena_reset(&sorter->arena);
    bson_free(sorter->rows);
    sorter->rows = NULL;
    sorter->count = sorter->room = 0;
    sorter->bar = NULL;
}

static void sorter_add_row(struct sorter *sorter, const void *payload, uint32_t size)
{
    struct row *row = truce__arena_take(&sorter->arena, sizeof *row + sorter->key.size + size);

    row->key_size = (uint32_t)sorter->key.size;
    row->payload_size = size;
    memcpy(row->bytes, sorter->key.bytes, sorter->key.size);
    if (size)
        memcpy(row->bytes + sorter->key.size, payload, size);
    if (sorter->count == sorter->room) {
        sorter->room = sorter->room ? 2 * sorter->room : 64;
        sorter->rows = bson_realloc(sorter->rows, sorter->room * sizeof *sorter->rows);
    }
    sorter->rows[sorter->count++] = row;
}

static void append_arrival(struct sorter *sorter)
{
    uint8_t bytes[8];
    uint64_t number = sorter->arrived++;

    for (int i = 7; i >= 0; i--, number >>= 8)
        bytes[i] = (uint8_t)number;
    truce__buffer_append(&sorter->key, bytes, sizeof bytes);
}

static bool clears_bar(const struct sorter *sorter)
{
    const struct row *bar = sorter->bar;
    size_t size = sorter->key.size, common;
    int order;

    if (!bar)
        return true;
    common = size < bar->key_size ? size : bar->key_size;
    order = memcmp(sorter->key.bytes, bar->bytes, common);
    return order < 0 || (order == 0 && size < bar->key_size);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct run *sorter_add_run(struct sorter *sorter, unsigned level)
{
    struct run *run;

    if (sorter->runs_count == sorter->runs_room) {
        sorter->runs_room = sorter->runs_room ? 2 * sorter->runs_room : 8;
        sorter->runs = bson_realloc(sorter->runs, sorter->runs_room * sizeof *sorter->runs);
    }
    run = &sorter->runs[sorter->runs_count++];
    *run = (struct run){.level = level};
    return run;
}

static truce_status sorter_write_row(struct run *run, const struct row *row, bson_error_t *error)
{
    return truce__spill_put(&run->file, row, row_bytes(row), error);
}

static truce_status sort_run_advance(struct run *run, bson_error_t *error)
{
    const void *bytes;
    size_t size;
    truce_status status;

    if (!run->file.spill) {
        run->head = run->rows_at < run->rows_count ? run->rows[run->rows_at++] : NULL;
        return TRUCE_OK;
    }
    status = truce__spill_get(&run->file, &bytes, &size, error);
    run->head = bytes;
    truce_assert(status || !bytes || size == row_bytes(bytes));
    return status;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Moves a run down in the heap until no run below it has a smaller head. */
static void sift_down(struct run **heap, size_t count, size_t at)
{
    for (;;) {
        size_t least = at;

        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (sorter_compare_rows(heap[child]->head, heap[least]->head) < 0)
                least = child;
        }
        if (least == at)
            return;
        struct run *moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

/* Reads the first row of each run, and makes the heap of those that have one. */
static truce_status start_heap(struct sorter *sorter, struct run *runs, size_t count,
                               bson_error_t *error)
{
    sorter->heap = bson_realloc(sorter->heap, (count + 1) * sizeof *sorter->heap);
    sorter->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        truce_status status = sort_run_advance(&runs[i], error);

        if (status)
            return status;
        if (runs[i].head)
            sorter->heap[sorter->heap_count++] = &runs[i];
    }
    for (size_t i = sorter->heap_count / 2; i-- > 0;)
        sift_down(sorter->heap, sorter->heap_count, i);
    return TRUCE_OK;
}

/* Advances the run at heap[0] to its next row. */
static truce_status step_heap(struct sorter *sorter, bson_error_t *error)
{
    truce_status status = sort_run_advance(sorter->heap[0], error);

    if (status)
        return status;
    if (!sorter->heap[0]->head)
        sorter->heap[0] = sorter->heap[--sorter->heap_count];
    if (sorter->heap_count)
        sift_down(sorter->heap, sorter->heap_count, 0);
    return TRUCE_OK;
}

/* Merges the last `count` runs into one of the next level. */
static truce_status merge_last(struct sorter *sorter, size_t count, bson_error_t *error)
{
    size_t first = sorter->runs_count - count;
    struct run merged = {.level = sorter->runs[first].level + 1};
    uint64_t written = 0;
    truce_status status = truce__spill_begin(&merged.file, &sorter->options, error);

    if (!status)
        status = start_heap(sorter, sorter->runs + first, count, error);
    while (!status && sorter->heap_count && !(sorter->limit && written == sorter->limit)) {
        status = sorter_spend(sorter, sorter->heap[0]->head->payload_size, error);
        if (!status)
            status = sorter_write_row(&merged, sorter->heap[0]->head, error);
        written++;
        if (!status)
            status = step_heap(sorter, error);
    }
    if (!status)
        status = truce__spill_end_run(&merged.file, error);
    if (status) {
        truce__spill_release(&merged.file);
        return status;
    }
    for (size_t i = first; i < sorter->runs_count; i++)
        truce__spill_release(&sorter->runs[i].file);
    sorter->runs_count = first;
    *sorter_add_run(sorter, 0) = merged;
    return TRUCE_OK;
}

static truce_status merge_full_levels(struct sorter *sorter, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && sorter->runs_count >= MERGE_WIDTH) {
        unsigned level = sorter->runs[sorter->runs_count - 1].level;

        if (sorter->runs[sorter->runs_count - MERGE_WIDTH].level != level)
            break;
        status = merge_last(sorter, MERGE_WIDTH, error);
    }
    return status;
}

/* Sorts the rows in memory and writes them to a new run. Fails if the caller does not allow
 * files. */
static truce_status spill_rows(struct sorter *sorter, bson_error_t *error)
{
    struct run *run;
    truce_status status;

    if (!sorter->options.open)
        return truce__refuse(
            CODE_NO_DISK_USE_ALLOWED, error,
            "a sort takes more than %zu bytes of memory: set allowDiskUse (in C: allow_disk_use), "
            "or add an index with the order of the sort",
            sorter->memory_max);
    status = sort_rows(sorter, error);
    if (status)
        return status;
    run = sorter_add_run(sorter, 0);
    status = truce__spill_begin(&run->file, &sorter->options, error);
    for (size_t i = 0; i < sorter->count && !status; i++)
        status = sorter_write_row(run, sorter->rows[i], error);
    if (!status)
        status = truce__spill_end_run(&run->file, error);
    empty_rows(sorter);
    return status ? status : merge_full_levels(sorter, error);
}

static bool sorter_hold(struct sorter *sorter)
{
    size_t before = sorter->held;

    sorter->held = memory_used(sorter);
    return truce__budget_hold(sorter->options.budget, before, sorter->held);
}

static truce_status sorter_limit_memory(struct sorter *sorter, bson_error_t *error)
{
    size_t used = memory_used(sorter);
    bool full = !sorter_hold(sorter);
    truce_status status;

    if (used <= sorter->memory_max && !(full && used > SPILL_BYTES_MIN))
        return TRUCE_OK;
    if (full && !sorter->options.open)
        return truce__budget_full(sorter->options.budget, error);
    status = spill_rows(sorter, error);
    (void)sorter_hold(sorter);
    return status;
}

/* ---- the sorter ----------------------------------------------------------------------------- */

/* Adds the row whose key is in sorter->key. */
static truce_status add_payload(struct sorter *sorter, const void *payload, uint32_t size,
                                bson_error_t *error)
{
    truce_status status = sorter_spend(sorter, size, error);

    truce_assert(!sorter->giving);
    append_arrival(sorter);
    if (status || !clears_bar(sorter))
        return status;
    sorter_add_row(sorter, payload, size);
    if (sorter->limit && sorter->count >= TOP_ROWS_MIN && sorter->count / 2 >= sorter->limit)
        status = keep_best(sorter, error);
    if (!status && memory_used(sorter) > sorter->memory_max && sorter->limit &&
        sorter->count > sorter->limit)
        status = keep_best(sorter, error);
    return status ? status : sorter_limit_memory(sorter, error);
}

truce_status truce__sorter_add(struct sorter *sorter, struct value document, const void *payload,
                               uint32_t size, bson_error_t *error)
{
    truce_status status;

    sorter->key.size = 0;
    status = truce__sort_key(sorter->sort, document, &sorter->key, error);
    return status ? status : add_payload(sorter, payload, size, error);
}

truce_status truce__sorter_add_key(struct sorter *sorter, const void *key, size_t key_size,
                                   const void *payload, uint32_t size, bson_error_t *error)
{
    sorter->key.size = 0;
    truce__buffer_append(&sorter->key, key, key_size);
    return add_payload(sorter, payload, size, error);
}

truce_status truce__sorter_sort(struct sorter *sorter, bson_error_t *error)
{
    struct run *run;
    truce_status status;

    truce_assert(!sorter->giving);
    sorter->giving = true;
    status = sort_rows(sorter, error);
    run = sorter_add_run(sorter, 0);
    run->rows = sorter->rows;
    run->rows_count = sorter->count;
    return status ? status : start_heap(sorter, sorter->runs, sorter->runs_count, error);
}

truce_status truce__sorter_next(struct sorter *sorter, const void **payload, uint32_t *size,
                                bson_error_t *error)
{
    const struct row *row;

    truce_assert(sorter->giving);
    *payload = NULL;
    *size = 0;
    if (sorter->given && sorter->heap_count) {
        truce_status status = sorter_spend(sorter, sorter->heap[0]->head->payload_size, error);

        if (!status)
            status = step_heap(sorter, error);
        if (status)
            return status;
    }
    if (!sorter->heap_count || (sorter->limit && sorter->given == sorter->limit))
        return TRUCE_OK;
    sorter->given++;
    row = sorter->heap[0]->head;
    *payload = row->bytes + row->key_size;
    *size = row->payload_size;
    return TRUCE_OK;
}
