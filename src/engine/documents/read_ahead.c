/*
 * Walks over all rows with the help of other threads, which read ahead.
 *
 * The rows are divided into slices by their numbers. One thread reads each slice. Only the caller's
 * thread passes matching documents to the caller's `take`, in order. To the code above the query
 * (groups, sorts, sums, errors, limits) the walk is the same as without help.
 *
 *     rows     | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 ...
 *                ^passed on      ^claimed: at most SLICES ahead
 *
 *     caller   the next slice:  unclaimed     reads it and passes it on directly, without a copy
 *                               ready         passes it on
 *                               being read    reads another slice ahead, as a helper does; if none
 *                                             is left, waits briefly, and reads the slice itself
 *     helper   claims the next unclaimed slice, copies its matches, and makes it ready
 *
 * The faster thread therefore does more, and no thread waits for a suspended helper.
 *
 * A helper reads in a snapshot of its own, which is kept like any other (snapshots.c). It must show
 * the same data as the caller's: both began at the same state of the log (truce__kv_snapshot_same).
 * The caller begins it for the helper, soon after its own. If another process or thread has
 * committed between the two, there is no help.
 *
 * Invariants:
 *  1. Documents are passed on in the order of their rows, each once, and all are of the caller's
 *     snapshot.
 *  2. A helper stops at what it cannot read: an error, an exceeded budget, an ended snapshot, or a
 *     document that is too large to be copied. A slice records how far it was read, and the caller
 *     reads the rest. An error is therefore reported when the walk reaches it, as without help.
 *  3. A slice that the caller has read itself is not passed on again: if a helper makes it ready
 *     too late, the slice is dropped.
 *  4. A helper uses nothing of the caller that ends with the call. They share only `struct ahead`,
 *     which the last of them frees.
 *
 * Slices become narrower if their documents are large, and wider if rows are rare, so that a slice
 * is worth the search for its beginning. They begin at multiples of their width: a connection
 * remembers a walk (body_fingerprints.h) by its beginning.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/documents/query.h"
#include "engine/helper_threads.h"

/* The maximum number of slices that are claimed and not passed on. */
#define SLICES 8
/* The number of rows of the first slices, and the limits of this number. */
#define WIDTH       512
#define WIDTH_LEAST 16
#define WIDTH_MOST  (1 << 20)
/* The minimum number of rows of a walk for which helpers are requested. */
#define ROWS_WORTH 4096
/* The nanoseconds that the caller waits for a slice before it reads the slice itself. */
#define WAIT_NS 300000

struct slice {
    /* The slice consists of the rows after `after`, up to `upto`. */
    int64_t after, upto;
    /* The last row that was read. */
    int64_t done;
    /* The number of rows that were examined. */
    int64_t examined;
    /* The first row after `upto`, or 0 if it is unknown. */
    int64_t beyond;
    /* Whether the matches can be passed on. */
    bool ready;
    /* The matches, packed. */
    struct buffer found;
};

struct ahead {
    /* The fields up to `last` do not change. */
    struct helpers *helpers;
    struct snapshots *snapshots;
    bson_t *filter;
    int64_t table;
    struct query_context context;
    int64_t deadline_ns;
    struct kv_snapshot snapshot;
    /* The last row of the snapshot. */
    int64_t last;

    /* An interrupt flag for the budgets of the helpers: set to 1 when the walk needs no more
     * help. */
    int over;

    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when a slice is ready, when half of the slices are free again, and when the walk
     * ends. */
    pthread_cond_t change;
    /* The number of threads that use the struct: the caller, and the helpers. */
    unsigned holders;
    /* The numbers of slices that were claimed, and that were passed on. */
    uint64_t claimed, given;
    /* The next slice begins after this row. */
    int64_t position;
    /* The number of rows of the next slice. */
    int64_t width;
    struct slice slices[SLICES];
};

/* The state of one thread that reads slices. */
struct reading {
    struct ahead *ahead;
    struct scan scan;
    /* The slice that the thread reads. It belongs to the thread until it is ready. */
    struct slice slice;
    /* The number of that slice. */
    uint64_t number;
};

/* Releases one holder of the shared state. The last one frees it. */
static void ahead_release(struct ahead *ahead)
{
    bool last;

    pthread_mutex_lock(&ahead->mutex);
    last = --ahead->holders == 0;
    pthread_mutex_unlock(&ahead->mutex);
    if (!last)
        return;
    for (int i = 0; i < SLICES; i++)
        truce__helpers_take_back(ahead->helpers, &ahead->slices[i].found);
    pthread_cond_destroy(&ahead->change);
    pthread_mutex_destroy(&ahead->mutex);
    bson_destroy(ahead->filter);
    bson_free(ahead);
}

/* ---- slices, all under the mutex ------------------------------------------------------------ */

static struct slice *slice_of(struct ahead *ahead, uint64_t number)
{
    return &ahead->slices[number % SLICES];
}

/* Claims the next slice. Returns false if no slice is left, or if too many slices wait to be passed
 * on. */
static bool ahead_claim(struct ahead *ahead, struct reading *reading)
{
    struct slice *slice = &reading->slice, *shared;
    int64_t step;

    if (ahead->position >= ahead->last || ahead->claimed - ahead->given == SLICES)
        return false;
    reading->number = ahead->claimed++;
    slice->after = slice->done = ahead->position;
    step = ahead->width - ahead->position % ahead->width;
    slice->upto = step < ahead->last - ahead->position ? ahead->position + step : ahead->last;
    slice->examined = slice->beyond = 0;
    if (!slice->found.bytes)
        truce__helpers_lend(ahead->helpers, &slice->found);
    slice->found.size = 0;
    shared = slice_of(ahead, reading->number);
    shared->after = slice->after;
    shared->upto = slice->upto;
    shared->ready = false;
    ahead->position = slice->upto;
    return true;
}

/* Adapts the width and the beginning of the next slices to what a slice has shown. */
static void ahead_learn(struct ahead *ahead, const struct slice *slice)
{
    if (slice->done < slice->upto && ahead->width > WIDTH_LEAST)
        ahead->width /= 2;
    else if (slice->done == slice->upto && slice->examined < (slice->upto - slice->after) / 8 &&
             ahead->width < WIDTH_MOST)
        ahead->width *= 2;
    if (slice->beyond && slice->beyond - 1 - ahead->position > ahead->width)
        ahead->position = (slice->beyond - 1) / ahead->width * ahead->width;
}

/* Makes the slice ready that the thread has read. The thread gets the buffer of the shared slice in
 * exchange for its own. */
static void ahead_make_ready(struct ahead *ahead, struct reading *reading)
{
    struct slice *shared = slice_of(ahead, reading->number), *own = &reading->slice;
    struct buffer found = shared->found;

    /* The caller has read this slice itself (invariant 3). */
    if (reading->number < ahead->given)
        return;
    ahead_learn(ahead, own);
    *shared = *own;
    shared->ready = true;
    own->found = found;
    pthread_cond_broadcast(&ahead->change);
}

/* ---- reading ahead -------------------------------------------------------------------------- */

struct packed {
    /* The row of the match, its match_result, and the size of the document, which follows. */
    int64_t row, array_index;
    uint32_t size;
};

/* Packs a match into the slice. Returns false if the slice is full or the walk has ended; the slice
 * then ends before the row. */
static bool slice_pack(const struct found *found, void *arg)
{
    struct reading *reading = arg;
    struct slice *slice = &reading->slice;
    struct packed head = {found->row, found->match.array_index, found->document.size};
    bool over = __atomic_load_n(&reading->ahead->over, __ATOMIC_RELAXED);

    if (over || slice->found.size + sizeof head + head.size > HELPERS_BLOCK) {
        slice->done = found->row - 1;
        return false;
    }
    truce__buffer_append(&slice->found, &head, sizeof head);
    truce__buffer_append(&slice->found, found->document.data, head.size);
    return true;
}

/* Reads the rows of a slice and keeps the matches. Drops errors (invariant 2). */
static void ahead_read_slice(struct reading *reading, struct kv *kv)
{
    struct slice *slice = &reading->slice;
    struct scan *scan = &reading->scan;
    int64_t before = scan->documents_examined;
    truce_status status;

    scan->positioned = true;
    scan->row = slice->after;
    slice->done = slice->upto;
    status = truce__scan_rows(scan, kv, slice->upto, slice_pack, reading, &slice->beyond, NULL);
    if (status)
        slice->done = scan->row;
    slice->examined = scan->documents_examined - before;
}

/* ---- helpers -------------------------------------------------------------------------------- */

struct helper {
    struct ahead *ahead;
    /* The helper's own snapshot, which shows the data of the caller's snapshot. */
    struct snapshot *snapshot;
};

/* Claims the next slice, or waits for one. Returns false if nothing is left to do. */
static bool claim_or_wait(struct ahead *ahead, struct reading *reading)
{
    bool claimed = false, over = false;

    pthread_mutex_lock(&ahead->mutex);
    while (!claimed && !over) {
        over = ahead->over || ahead->position >= ahead->last;
        claimed = !over && ahead_claim(ahead, reading);
        if (!claimed && !over)
            pthread_cond_wait(&ahead->change, &ahead->mutex);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return claimed;
}

/* Claims and reads slices until none is left, the helper is needed elsewhere, or the snapshot has
 * ended. */
static void ahead_read_slices(struct ahead *ahead, struct snapshot *snapshot,
                              struct reading *reading)
{
    struct helper_work work = {0};
    struct reader *reader;
    truce_status status = TRUCE_OK;

    while (!status && truce__helpers_may_continue(ahead->helpers, &work) &&
           claim_or_wait(ahead, reading)) {
        status = truce__snapshot_enter(snapshot, &reader, NULL);
        if (!status) {
            ahead_read_slice(reading, reader->kv);
            truce__snapshot_leave(snapshot);
        }
        pthread_mutex_lock(&ahead->mutex);
        ahead_make_ready(ahead, reading);
        pthread_mutex_unlock(&ahead->mutex);
    }
}

/* Reads slices in a helper thread, with its own match, arena, budget, and snapshot, until no slice
 * is left. Releases the helper. */
static void read_ahead_help(void *arg)
{
    struct helper *helper = arg;
    struct ahead *ahead = helper->ahead;
    struct query_context context = ahead->context;
    struct arena arena = ARENA_INIT;
    struct reading reading = {.ahead = ahead};
    struct match *match = NULL;
    struct budget budget;

    truce__budget_init(&budget, ahead->deadline_ns, &ahead->over);
    context.arena = &arena;
    context.budget = &budget;
    if (!truce__match_new(ahead->filter, &match, NULL)) {
        truce__scan_init(&reading.scan, NULL, ahead->table, match, &context);
        ahead_read_slices(ahead, helper->snapshot, &reading);
        truce__scan_release(&reading.scan);
    }
    truce__snapshot_release(helper->snapshot);
    truce__helpers_take_back(ahead->helpers, &reading.slice.found);
    truce__match_free(match);
    truce__arena_release(&arena);
    ahead_release(ahead);
    bson_free(helper);
}

/* ---- the caller ----------------------------------------------------------------------------- */

struct walk {
    struct query *query;
    scan_take_function *take;
    void *arg;
    bool enough;
};

static bool ahead_take_one(const struct found *found, void *arg)
{
    struct walk *walk = arg;

    walk->enough = !walk->take(found, walk->arg);
    return !walk->enough;
}

/* Passes the rows of a slice after slice->done directly to the caller. */
static truce_status pass_rows(struct walk *walk, struct slice *slice, bson_error_t *error)
{
    struct query *query = walk->query;
    int64_t before = query->scan.documents_examined;
    truce_status status;

    query->scan.positioned = true;
    query->scan.row = slice->done;
    status = truce__scan_rows(&query->scan, query->reader->kv, slice->upto, ahead_take_one, walk,
                              &slice->beyond, error);
    if (status || walk->enough)
        return status;
    query->scan.row = slice->done = slice->upto;
    slice->examined += query->scan.documents_examined - before;
    return TRUCE_OK;
}

/* Passes the matches of a slice that was read ahead to the caller of the walk, and takes the steps
 * of the helper from the budget of the call. */
static truce_status pass_found(struct walk *walk, const struct slice *slice, bson_error_t *error)
{
    struct query *query = walk->query;
    const uint8_t *at = slice->found.bytes, *end = at + slice->found.size;
    uint32_t steps = (uint32_t)slice->examined * SCAN_STEPS_OF_ENTRY;
    truce_status status = truce__budget_spend(&query->budget, steps, error);

    query->scan.documents_examined += slice->examined;
    while (!status && at < end && !walk->enough) {
        struct found found = {.match.matched = true};
        struct packed head;

        memcpy(&head, at, sizeof head);
        found.row = head.row;
        found.match.array_index = head.array_index;
        found.document = (struct value){at + sizeof head, head.size, BSON_TYPE_DOCUMENT};
        at += sizeof head + head.size;
        query->scan.positioned = true;
        query->scan.row = found.row;
        ahead_take_one(&found, walk);
    }
    return status;
}

/* Records that a slice was passed on, and wakes threads that wait for a free slice. */
static void note_given(struct ahead *ahead, const struct slice *slice)
{
    pthread_mutex_lock(&ahead->mutex);
    /* A slice of another thread has been taken into account when it became ready. */
    if (slice != slice_of(ahead, ahead->given))
        ahead_learn(ahead, slice);
    slice_of(ahead, ahead->given)->ready = false;
    ahead->given++;
    if (ahead->claimed - ahead->given == SLICES / 2)
        pthread_cond_broadcast(&ahead->change);
    pthread_mutex_unlock(&ahead->mutex);
}

/* Waits until the next slice is ready, for WAIT_NS at most. Called under the mutex. */
static void ahead_wait(struct ahead *ahead)
{
    int64_t until_ns = truce__clock_monotonic_ns() + WAIT_NS;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    const struct slice *slice = slice_of(ahead, ahead->given);

    while (!slice->ready && truce__clock_monotonic_ns() < until_ns)
        pthread_cond_timedwait(&ahead->change, &ahead->mutex, &until);
}

enum part { PART_END, PART_ALONE, PART_ROWS, PART_FOUND, PART_AHEAD };

/* Chooses the caller's next step. reading->slice is the one that it has finished. */
static enum part ahead_next_part(struct ahead *ahead, struct reading *reading)
{
    struct slice *shared = slice_of(ahead, ahead->given);

    if (ahead->given == ahead->claimed) {
        if (ahead->holders == 1)
            return PART_ALONE;
        return ahead_claim(ahead, reading) ? PART_ROWS : PART_END;
    }
    if (!shared->ready && ahead_claim(ahead, reading))
        return PART_AHEAD;
    if (!shared->ready)
        ahead_wait(ahead);
    if (shared->ready)
        return PART_FOUND;
    reading->slice.after = reading->slice.done = shared->after;
    reading->slice.upto = shared->upto;
    reading->slice.examined = 0;
    return PART_ROWS;
}

/* Does one part of a walk with helpers: reads a slice ahead, or returns a slice to the caller, from
 * memory and then from the file. */
static truce_status do_part(struct walk *walk, struct ahead *ahead, enum part part,
                            struct reading *reading, bson_error_t *error)
{
    struct slice *slice = &reading->slice;
    truce_status status = TRUCE_OK;

    if (part == PART_AHEAD) {
        ahead_read_slice(reading, walk->query->reader->kv);
        pthread_mutex_lock(&ahead->mutex);
        ahead_make_ready(ahead, reading);
        pthread_mutex_unlock(&ahead->mutex);
        return TRUCE_OK;
    }
    if (part == PART_FOUND) {
        /* The slice belongs to the caller of the walk until it is passed on. */
        slice = slice_of(ahead, ahead->given);
        status = pass_found(walk, slice, error);
    }
    if (!status && !walk->enough && slice->done < slice->upto)
        status = pass_rows(walk, slice, error);
    if (!status && !walk->enough)
        note_given(ahead, slice);
    return status;
}

/* Walks over a table while helpers read slices ahead, until the end, an error, or `enough`. Leaves
 * the rest to the caller if the helpers cannot continue. */
static truce_status walk_with_help(struct walk *walk, struct ahead *ahead, bson_error_t *error)
{
    struct query *query = walk->query;
    struct reading reading = {.ahead = ahead};
    enum part part = PART_ROWS;
    truce_status status = TRUCE_OK;

    truce__scan_init(&reading.scan, NULL, query->table, query->match, &query->context);
    while (!status && !walk->enough) {
        status = truce__query_enter(query, error);
        if (status)
            break;
        pthread_mutex_lock(&ahead->mutex);
        part = ahead_next_part(ahead, &reading);
        pthread_mutex_unlock(&ahead->mutex);
        if (part == PART_END || part == PART_ALONE)
            break;
        status = do_part(walk, ahead, part, &reading, error);
    }
    query->done = part == PART_END;
    if (status || query->done)
        /* Pausing fails only if the snapshot cannot be kept, and it is not kept here. */
        (void)truce__query_pause(query, false, NULL);
    truce__scan_release(&reading.scan);
    truce__helpers_take_back(ahead->helpers, &reading.slice.found);
    return status;
}

/* Returns the last row, or 0 if the table is empty or cannot be read. */
static int64_t last_row(struct kv *kv, int64_t table)
{
    struct kv_cursor cursor = {.raw = true};
    int64_t row = 0;

    if (truce__kv_rows_seek(kv, table, INT64_MAX, true, &cursor, NULL))
        return 0;
    if (!truce__kv_cursor_next(&cursor, NULL))
        row = cursor.row;
    truce__kv_cursor_close(&cursor);
    return row;
}

/* Creates the state that a walk shares with its helpers. The caller is its first holder. */
static struct ahead *new_ahead(struct query *query, int64_t last)
{
    struct engine *engine = query->engine;
    struct ahead *made = bson_malloc0(sizeof *made);
    pthread_condattr_t attributes;

    made->helpers = engine->helpers;
    made->snapshots = engine->snapshot ? engine->snapshot->all : &engine->snapshots;
    made->filter = bson_copy(truce__match_filter(query->match));
    made->table = query->table;
    made->context = query->context;
    made->deadline_ns = query->budget.deadline_ns;
    made->snapshot = *truce__kv_snapshot(query->reader->kv);
    made->last = last;
    made->position = query->scan.positioned ? query->scan.row : 0;
    made->width = WIDTH;
    made->holders = 1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&made->change, &attributes);
    pthread_condattr_destroy(&attributes);
    return made;
}

/* Returns another kept snapshot with the data of the caller's. Returns NULL if another commit
 * happened in the meantime, or if too many snapshots are kept. */
static struct snapshot *same_snapshot(struct ahead *ahead)
{
    struct readers *readers = ahead->snapshots->readers;
    struct snapshot *snapshot = NULL;
    struct reader *reader;

    if (!truce__snapshots_room(ahead->snapshots) ||
        truce__readers_begin(readers, true, &reader, NULL))
        return NULL;
    if (!truce__kv_snapshot_same(truce__kv_snapshot(reader->kv), &ahead->snapshot) ||
        truce__snapshot_register(ahead->snapshots, reader, NULL, &snapshot, NULL))
        truce__readers_end(readers, reader);
    return snapshot;
}

/* Requests one more helper, with a snapshot of the same data. Returns false if there is no such
 * snapshot or no free helper. */
static bool request_helper(struct ahead *ahead)
{
    struct snapshot *snapshot = same_snapshot(ahead);
    struct helper *helper;

    if (!snapshot)
        return false;
    helper = bson_malloc(sizeof *helper);
    *helper = (struct helper){ahead, snapshot};
    pthread_mutex_lock(&ahead->mutex);
    ahead->holders++;
    pthread_mutex_unlock(&ahead->mutex);
    if (truce__helpers_run(ahead->helpers, read_ahead_help, helper))
        return true;
    truce__snapshot_release(snapshot);
    bson_free(helper);
    ahead_release(ahead);
    return false;
}

/* Returns whether there are helpers, the snapshot still shows the current data, and at least
 * ROWS_WORTH rows are left. Sets `*last` to the last row. */
static bool ahead_is_worth_it(const struct query *query, int64_t *last)
{
    int64_t position = query->scan.positioned ? query->scan.row : 0;

    if (!truce__helpers_any(query->engine->helpers) || !truce__kv_snapshot_last(query->reader->kv))
        return false;
    *last = last_row(query->reader->kv, query->table);
    return *last - position >= ROWS_WORTH;
}

/* Requests helpers. `*ahead` is NULL if none is available. The caller's snapshot is kept and left
 * in the meantime, so the caller holds nothing that other threads may wait for. */
static truce_status request_helpers(struct query *query, struct ahead **ahead, bson_error_t *error)
{
    struct ahead *made;
    unsigned started = 0;
    int64_t last;
    truce_status status;

    *ahead = NULL;
    if (!ahead_is_worth_it(query, &last))
        return TRUCE_OK;
    made = new_ahead(query, last);
    status = truce__query_pause(query, true, error);
    while (!status && started < HELPERS_MAX && truce__helpers_any(made->helpers) &&
           request_helper(made))
        started++;
    if (started)
        *ahead = made;
    else
        ahead_release(made);
    return status;
}

/* Walks with helpers if some are free and the walk is long enough, and stops them at the end. */
static truce_status try_with_help(struct walk *walk, bson_error_t *error)
{
    struct ahead *ahead = NULL;
    truce_status status = TRUCE_OK;

    if (!walk->query->reader)
        status = truce__query_enter(walk->query, error);
    if (!status)
        status = request_helpers(walk->query, &ahead, error);
    if (!ahead)
        return status;
    status = walk_with_help(walk, ahead, error);
    pthread_mutex_lock(&ahead->mutex);
    __atomic_store_n(&ahead->over, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&ahead->change);
    pthread_mutex_unlock(&ahead->mutex);
    ahead_release(ahead);
    return status;
}

truce_status truce__query_run_all(struct query *query, scan_take_function *take, void *arg,
                                  bson_error_t *error)
{
    struct walk walk = {query, take, arg, false};
    bool helped = !query->done && truce__scan_is_of_rows(&query->plan);
    truce_status status = TRUCE_OK;

    if (helped) {
        truce__helpers_enter(query->engine->helpers);
        status = try_with_help(&walk, error);
    }
    while (!status && !query->done && !walk.enough)
        status = truce__query_run(query, ahead_take_one, &walk, error);
    if (helped)
        truce__helpers_leave(query->engine->helpers);
    return status;
}
