/*
 * Compaction while the store is in use.
 *
 *     pack      each table, one part after the other (vacuum.c): if a part needs fewer pages
 *               afterwards, the step is committed, otherwise rolled back
 *     shrink    free pages are removed from the end of the file
 *     cut       a checkpoint moves the log into the file and truncates the file at its new end
 *
 * Invariants:
 *  1. A step is one transaction under the lock, of STEP_MS or one part: other threads write in
 *     between. It changes no document, row number, or catalog, so no cache, cursor, or index build
 *     is affected.
 *  2. A step does not wait for the disk. A power cut undoes the last steps completely, as relaxed
 *     commits.
 *  3. A step looks up tables in its own transaction: a table may be dropped between two steps.
 *  4. Moving pages does not grow the log without limit. If it is longer than TRUCE_LOG_BYTES_KEPT,
 *     the next step waits for a checkpoint. If a read blocks that, the call ends and reports it.
 *
 * Readers that began before a step continue with the old pages in the log and in the file. Only a
 * checkpoint that has moved everything truncates the file, and such a reader prevents it.
 *
 * Deliberately not done: the catalog's own table, which has few pages.
 */
#include <sys/stat.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "engine/storage/checksum_vfs.h"

/* The milliseconds for which a step moves pages. Packing a part takes about as long. */
#define STEP_MS 4
/* The number of pages that are moved between two reads of the clock. */
#define STEP_PAGES 16
/* The maximum pause after a step in milliseconds. */
#define PAUSE_MS 20
/* The packing of a part is committed if it saves at least one of this number of pages. */
#define WORTH 8
/* The milliseconds to wait for long reads. */
#define PINNED_MS 1000
/* The milliseconds to wait for anything else that blocks a checkpoint. */
#define BLOCKED_MS 30000
/* The milliseconds between two attempts while something blocks a checkpoint. */
#define CHECK_MS 5

struct table {
    /* The number of the collection, and the number of its index or 0 for its documents. */
    int64_t collection, index;
};

struct compaction {
    struct engine *engine;
    const truce_compact_options *options;
    truce_compact_report *report;
    struct budget budget;
    /* The progress in pages. */
    int64_t done, total;
    struct table *tables;
    /* The number of tables. */
    size_t count;
    /* Whether the compaction ends early, because a read or a checkpoint blocks it. */
    bool given_up;
};

struct step {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    const struct table *table;
    struct kv_pack pack;
    /* The space in the file after the step. */
    struct kv_space space;
    /* Whether the table was dropped. */
    bool gone;
};

/* ---- steps, under the lock ------------------------------------------------------------------ */

/* Finds out whether the table of the step still exists (`gone`), in the transaction that has just
 * begun. */
static truce_status compaction_find_table(struct step *step, struct writer *writer,
                                          uint32_t version, bson_error_t *error)
{
    const struct collection *collection;
    truce_status status;

    if (writer->catalog && writer->catalog->version != version)
        truce__writer_catalog_changed(writer);
    /* The name does not matter: the call only loads the catalog. */
    status = truce__writer_collection(writer, "", &collection, error);
    if (status)
        return status;
    if (writer->catalog->feed.table == step->table->collection)
        return TRUCE_OK;
    collection = truce__catalog_find_id(writer->catalog, step->table->collection);
    step->gone = !collection || (step->table->index &&
                                 !truce__collection_index_id(collection, step->table->index));
    return TRUCE_OK;
}

static bool compaction_is_worth_it(const struct kv_pack *pack)
{
    return pack->emptied > 0 && pack->emptied * WORTH * KV_PAGE_BYTES >= pack->bytes;
}

/* Packs a part of a table in its own transaction. Rolls back if the packing frees too few pages. */
static truce_status run_pack(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct step *step = (struct step *)base;
    uint32_t version;
    truce_status status = truce__kv_write_begin(writer->kv, &version, error);

    if (status)
        return status;
    status = compaction_find_table(step, writer, version, error);
    if (!status && !step->gone)
        status = truce__kv_pack(writer->kv, &step->pack, error);
    if (!status && !step->gone && compaction_is_worth_it(&step->pack))
        return truce__writer_commit(writer, error);
    truce__kv_write_rollback(writer->kv);
    return status;
}

/* Moves pages from the end of the file into free ones, for STEP_MS at most, in its own
 * transaction. */
static truce_status run_shrink(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct step *step = (struct step *)base;
    int64_t until_ns = truce__clock_monotonic_ns() + STEP_MS * INT64_C(1000000);
    uint32_t version;
    truce_status status = truce__kv_write_begin(writer->kv, &version, error);

    if (status)
        return status;
    do {
        status = truce__kv_shrink(writer->kv, STEP_PAGES, error);
        if (!status)
            status = truce__kv_space(writer->kv, &step->space, error);
    } while (!status && step->space.free && truce__clock_monotonic_ns() < until_ns);
    if (!status)
        return truce__writer_commit(writer, error);
    truce__kv_write_rollback(writer->kv);
    return status;
}

/* ---- between steps -------------------------------------------------------------------------- */

static truce_status compaction_report_progress(struct compaction *compaction, bson_error_t *error)
{
    if (compaction->options->progress)
        compaction->options->progress(compaction->done, compaction->total,
                                      compaction->options->arg);
    return truce__budget_check(&compaction->budget, error);
}

/* Pauses, so that a checkpoint can be made. `*waited_ms` is the total time of the pauses so far. */
static truce_status wait_for_checkpoint(struct compaction *compaction, int *waited_ms,
                                        bson_error_t *error)
{
    bool pinned = truce__pins_blocking(&compaction->engine->lock);

    if (*waited_ms >= (pinned ? PINNED_MS : BLOCKED_MS)) {
        compaction->given_up = true;
        return TRUCE_OK;
    }
    truce__checkpointer_request(&compaction->engine->checkpointer);
    truce__clock_sleep_ms(CHECK_MS);
    *waited_ms += CHECK_MS;
    return compaction_report_progress(compaction, error);
}

/* Waits until the log is short enough to continue. */
static truce_status wait_for_log(struct compaction *compaction, bson_error_t *error)
{
    const struct lock *lock = &compaction->engine->lock;
    truce_status status = TRUCE_OK;
    int waited_ms = 0;

    while (!status && !compaction->given_up && truce__pins_log_length(lock) > TRUCE_LOG_BYTES_KEPT)
        status = wait_for_checkpoint(compaction, &waited_ms, error);
    return status;
}

/* Takes a step, and leaves other threads as much time as it took, but at most PAUSE_MS. */
static truce_status take_step(struct compaction *compaction, struct step *step, bson_error_t *error)
{
    truce_status status = compaction_report_progress(compaction, error);
    int64_t begun_ns, took_ms;

    if (!status)
        status = wait_for_log(compaction, error);
    if (status || compaction->given_up)
        return status;
    step->base.alone = true;
    step->base.deadline_ns = truce__engine_deadline(compaction->engine, 0);
    if (compaction->budget.deadline_ns && compaction->budget.deadline_ns < step->base.deadline_ns)
        step->base.deadline_ns = compaction->budget.deadline_ns;
    begun_ns = truce__clock_monotonic_ns();
    status = truce__writer_run(&compaction->engine->writer, &step->base, error);
    took_ms = (truce__clock_monotonic_ns() - begun_ns) / 1000000;
    truce__clock_sleep_ms(took_ms < PAUSE_MS ? took_ms : PAUSE_MS);
    return status;
}

static truce_status compaction_measure(struct engine *engine, struct kv_space *space,
                                       bson_error_t *error)
{
    struct reader *reader;
    truce_status status = truce__engine_read_begin(engine, false, &reader, error);

    if (status)
        return status;
    status = truce__kv_space(reader->kv, space, error);
    truce__engine_read_end(engine, reader);
    return status;
}

/* ---- phases --------------------------------------------------------------------------------- */

/* Packs a table, step by step, until its end. */
static truce_status pack_table(struct compaction *compaction, const struct table *table,
                               bson_error_t *error)
{
    struct step step = {.base.run = run_pack, .table = table};
    truce_status status = TRUCE_OK;

    step.pack = (struct kv_pack){.keys = table->index,
                                 .table = table->index ? table->index : table->collection,
                                 .row = INT64_MIN};
    while (!status && !step.pack.end && !step.gone && !compaction->given_up) {
        status = take_step(compaction, &step, error);
        compaction->done += step.pack.bytes / KV_PAGE_BYTES + 1;
    }
    truce__kv_pack_release(&step.pack);
    return status;
}

/* Removes free pages from the end of the file, step by step. Other threads may free pages at the
 * same time. The phase ends when it has removed as many pages as were free at its beginning. */
static truce_status compaction_shrink(struct compaction *compaction, bson_error_t *error)
{
    struct step step = {.base.run = run_shrink};
    struct kv_space first;
    truce_status status = compaction_measure(compaction->engine, &first, error);
    int64_t gone = 0;

    step.space = first;
    compaction->total = compaction->done + first.free;
    while (!status && step.space.free && gone < first.free && !compaction->given_up) {
        status = take_step(compaction, &step, error);
        gone = first.pages - step.space.pages;
        compaction->done = compaction->total - step.space.free;
    }
    return status;
}

/* Returns the number of pages in the file, used or not. */
static int64_t pages_there(const struct engine *engine, const struct kv_space *space)
{
    struct stat found;
    int64_t there = stat(engine->path, &found) ? 0 : found.st_size / KV_PAGE_BYTES;

    return there > space->pages ? there : space->pages;
}

/* Waits until a checkpoint has moved the whole log, which truncates the file. */
static truce_status compaction_cut(struct compaction *compaction, bson_error_t *error)
{
    struct engine *engine = compaction->engine;
    struct kv_space space;
    truce_status status = compaction_measure(engine, &space, error);
    int waited_ms = 0;

    while (!status && !compaction->given_up && pages_there(engine, &space) > space.pages) {
        status = wait_for_checkpoint(compaction, &waited_ms, error);
        if (!status)
            status = compaction_measure(engine, &space, error);
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* Lists the tables of the file in one snapshot: the feed, the collections, and their indexes. */
static truce_status list_tables(struct compaction *compaction, bson_error_t *error)
{
    struct reader *reader;
    truce_status status = truce__engine_read_begin(compaction->engine, false, &reader, error);
    const struct catalog *catalog;
    size_t count = 0;

    if (status)
        return status;
    catalog = reader->catalog;
    for (uint32_t i = 0; i < catalog->count; i++)
        count += 1 + catalog->collections[i].indexes_count;
    compaction->tables = bson_malloc0((count + 1) * sizeof *compaction->tables);
    if (catalog->feed.table)
        compaction->tables[compaction->count++] = (struct table){.collection = catalog->feed.table};
    for (uint32_t i = 0; i < catalog->count; i++) {
        const struct collection *collection = &catalog->collections[i];

        compaction->tables[compaction->count++] = (struct table){.collection = collection->id};
        for (uint32_t j = 0; j < collection->indexes_count; j++)
            compaction->tables[compaction->count++] =
                (struct table){collection->id, collection->indexes[j].id};
    }
    truce__engine_read_end(compaction->engine, reader);
    return TRUCE_OK;
}

/* Measures the file and lists its tables. */
static truce_status compaction_begin(struct compaction *compaction, bson_error_t *error)
{
    struct engine *engine = compaction->engine;
    struct kv_space space;
    truce_status status = truce__engine_writable(engine, error);

    if (!status)
        status = compaction_measure(engine, &space, error);
    if (status)
        return status;
    compaction->total = 2 * space.pages;
    compaction->report->bytes_before = compaction->report->bytes_after =
        pages_there(engine, &space) * KV_PAGE_BYTES;
    return list_tables(compaction, error);
}

/* Reports the reads that began before something that is in the log by now. */
static void report_reads(const struct lock *lock, truce_compact_report *report)
{
    struct pin_facts pins[PIN_SLOTS];
    size_t count = truce__pins_list(lock, pins, PIN_SLOTS);
    int64_t since_ms = INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (!pins[i].log_behind)
            continue;
        report->reads += pins[i].count;
        if (pins[i].since_ms < since_ms)
            report->process = pins[i].process;
        since_ms = pins[i].since_ms < since_ms ? pins[i].since_ms : since_ms;
    }
}

/* Frees the list of tables and completes the report, also after a failure. */
static void compaction_end(struct compaction *compaction, truce_status status)
{
    truce_compact_report *report = compaction->report;
    struct kv_space space;

    bson_free(compaction->tables);
    report->complete = !status && !compaction->given_up;
    if (!report->complete)
        report_reads(&compaction->engine->lock, report);
    if (compaction_measure(compaction->engine, &space, NULL))
        return;
    report->bytes_after = pages_there(compaction->engine, &space) * KV_PAGE_BYTES;
    report->bytes_free = report->bytes_after - (space.pages - space.free) * KV_PAGE_BYTES;
}

truce_status truce__engine_compact(struct engine *engine, const truce_compact_options *options,
                                   truce_compact_report *report, bson_error_t *error)
{
    struct compaction compaction = {.engine = engine, .options = options, .report = report};
    truce_status status;

    truce__engine_budget(engine, options->deadline_ms, &compaction.budget);
    status = compaction_begin(&compaction, error);
    if (status)
        return status;
    for (size_t i = 0; i < compaction.count && !status; i++)
        status = pack_table(&compaction, &compaction.tables[i], error);
    if (!status)
        status = compaction_shrink(&compaction, error);
    if (!status)
        status = compaction_cut(&compaction, error);
    compaction_end(&compaction, status);
    return status;
}
