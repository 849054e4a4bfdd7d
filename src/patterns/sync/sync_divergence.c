/*
 * Divergence: compares every dependent of a rule with its source, page by page, while the data is
 * in use.
 *
 * If the dependent or its source has a flag, an update is in progress, which is not a divergence. A
 * dependent that differs is read once more, alone, in the order that decides: the dependent, then
 * the source, then the dependent again. A source without a flag has updated all dependents
 * that existed (SY1 of sync.c). A dependent that is still outdated would stay outdated.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "patterns/sync/sync.h"

#define PAGE SYNC_BULK
/* The number of pages between two reports of progress. */
#define PROGRESS_EACH 10

struct walk {
    struct sync_work *work;
    const struct sync_rule *rule;
    const truce_sync_walk_options *options;
    truce_sync_report *report;
};

struct page {
    bson_t *dependents[PAGE], *sources[PAGE];
    /* ids[i]: the _id of sources[i], in ascending order; borrowed. */
    struct value ids[PAGE];
    uint32_t count, sources_count;
    /* The size of the dependents. */
    size_t bytes;
    /* The copies to outdated dependents, which are sent together. */
    struct sync_bulk bulk;
    /* repaired[i]: the index in `dependents` of copy i of the bulk. */
    uint32_t repaired[PAGE];
};

/* ---- one page -------------------------------------------------------------------------------- */

static int walk_by_id(const void *a, const void *b)
{
    const bson_t *one = *(bson_t *const *)a, *other = *(bson_t *const *)b;

    return truce__value_compare(truce__value_field(truce__value_document(one), "_id", 3),
                                truce__value_field(truce__value_document(other), "_id", 3));
}

static const bson_t *source_of(const struct page *page, struct value id)
{
    uint32_t low = 0, high = page->sources_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = truce__value_compare(page->ids[middle], id);

        if (!order)
            return page->sources[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Reads the sources of a page of dependents, sorted by _id. */
static truce_status read_masters(const struct walk *walk, struct page *page, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, inner, ids, projection;
    truce_find_options options = {.projection = &projection};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    uint32_t count = 0;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &inner);
    BSON_APPEND_ARRAY_BEGIN(&inner, "$in", &ids);
    for (uint32_t i = 0; i < page->count; i++) {
        bson_value_t id;

        if (truce__sync_reference(walk->rule, page->dependents[i], &id))
            truce__value_append_element(&ids, &count,
                                        truce__sync_at(page->dependents[i], walk->rule->reference));
    }
    bson_append_array_end(&inner, &ids);
    bson_append_document_end(&filter, &inner);
    truce__sync_make_projection(walk->rule, true, &projection);
    status =
        truce_find(walk->work->sync->store, walk->rule->source, &filter, &options, &cursor, error);
    while (!status && page->sources_count < PAGE &&
           !(status = truce_cursor_next(cursor, &document, error)) && document)
        page->sources[page->sources_count++] = bson_copy(document);
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    bson_destroy(&filter);
    qsort(page->sources, page->sources_count, sizeof *page->sources, walk_by_id);
    for (uint32_t i = 0; i < page->sources_count; i++)
        page->ids[i] = truce__value_field(truce__value_document(page->sources[i]), "_id", 3);
    return status;
}

static void release_page(struct page *page)
{
    for (uint32_t i = 0; i < page->count; i++)
        bson_destroy(page->dependents[i]);
    for (uint32_t i = 0; i < page->sources_count; i++)
        bson_destroy(page->sources[i]);
    page->count = page->sources_count = 0;
    page->bytes = 0;
}

/* ---- one dependent --------------------------------------------------------------------------- */

static bool walk_under_way(const bson_t *dependent, const bson_t *source)
{
    return bson_has_field(dependent, SYNC_UNCHECKED) || bson_has_field(source, SYNC_FLAG);
}

/* Returns whether a dependent has the values of its source. A dependent with a higher revision than
 * its source is divergent, too: it would miss the next change. */
static bool is_consistent(const struct sync_rule *rule, const bson_t *dependent,
                          const bson_t *source)
{
    return truce__sync_equal(rule, dependent, source) &&
           !(truce__sync_same(rule, dependent, source) &&
             truce__sync_copied(rule, dependent) > truce__sync_revision(source));
}

/* Counts a divergence in the report, and passes it to the caller's function. The finding borrows
 * from the dependent. */
static void sync_walk_report(const struct walk *walk, truce_sync_divergence divergence,
                             const bson_t *dependent, bool repaired)
{
    bson_value_t id = truce__document_id(dependent), source = {.value_type = BSON_TYPE_NULL};
    truce_sync_finding finding = {.rule = walk->rule->name,
                                  .divergence = divergence,
                                  .dependent = &id,
                                  .source = &source,
                                  .repaired = repaired};

    (void)truce__sync_reference(walk->rule, dependent, &source);
    walk->report->repaired += repaired;
    if (divergence == TRUCE_SYNC_DIFFERS)
        walk->report->differ++;
    else if (divergence == TRUCE_SYNC_ORPHAN)
        walk->report->orphans++;
    else
        walk->report->unreadable++;
    if (walk->options->function)
        walk->options->function(&finding, walk->options->arg);
}

/* Repairs by a copy if the dependent is outdated; otherwise raises the source above it, and all its
 * dependents follow. */
static truce_status walk_repair(const struct walk *walk, const bson_t *dependent,
                                const bson_t *source, bson_error_t *error)
{
    int64_t revision = truce__sync_same(walk->rule, dependent, source)
                           ? truce__sync_copied(walk->rule, dependent)
                           : 0;
    bson_value_t id = truce__document_id(source);
    bool done;
    truce_status status;

    if (!truce__sync_is_up(walk->rule, dependent, source)) {
        /* The walk has no deadline, but a single dependent must not stop it forever. */
        walk->work->worker.deadline_ns =
            truce__clock_monotonic_ns() + COMMIT_DEADLINE_MS * INT64_C(1000000);
        status = truce__sync_bring_up(walk->work, walk->rule, dependent, error);
        walk->work->worker.deadline_ns = INT64_MAX;
        return status;
    }
    status =
        truce__sync_touch(walk->work, walk->rule->source, source, revision, true, &done, error);
    return status ? status
                  : truce__sync_reconcile_source(walk->work, walk->rule->source, &id, error);
}

static truce_status read_again(const struct walk *walk, const char *collection,
                               const bson_value_t *id, bson_t *document, bson_error_t *error)
{
    bson_destroy(document);
    return truce__journal_read(&walk->work->worker, collection, id, document, error);
}

/* Returns whether the store refused a copy because of the dependent: a value is in the place of a
 * document, a validator, or a unique key. The walk continues with the others. */
static bool is_about_dependent(truce_status status)
{
    return status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_DUPLICATE;
}

/* Decides about a dependent that differed in its page. */
static truce_status walk_check(const struct walk *walk, const bson_t *seen, bson_error_t *error)
{
    bson_value_t id = truce__document_id(seen), source_id;
    bson_t dependent = BSON_INITIALIZER, source = BSON_INITIALIZER;
    truce_status status = read_again(walk, walk->rule->dependent, &id, &dependent, error);

    if (!status && !truce__sync_reference(walk->rule, &dependent, &source_id))
        status = TRUCE_NOT_FOUND;
    if (!status)
        status = read_again(walk, walk->rule->source, &source_id, &source, error);
    if (!status)
        status = read_again(walk, walk->rule->dependent, &id, &dependent, error);
    if (!status && walk_under_way(&dependent, &source)) {
        walk->report->under_way++;
    } else if (!status && !is_consistent(walk->rule, &dependent, &source)) {
        bool repaired = walk->options->repair;

        if (repaired)
            status = walk_repair(walk, &dependent, &source, error);
        if (is_about_dependent(status)) {
            status = TRUCE_OK;
            repaired = false;
        }
        if (!status)
            sync_walk_report(walk, TRUCE_SYNC_DIFFERS, &dependent, repaired);
    }
    bson_destroy(&source);
    bson_destroy(&dependent);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Returns whether a guarded copy suffices. It is correct at any time if the source was read after
 * the dependent. */
static bool walk_is_outdated(const struct walk *walk, const bson_t *dependent, const bson_t *source)
{
    return !walk->rule->feeds && !truce__sync_is_up(walk->rule, dependent, source) &&
           truce__sync_may_copy(walk->rule, dependent, source);
}

/* Sends the copies of the page together. Dependents that were not copied are repaired alone. A copy
 * that the store refuses because of its dependent is reported as not repaired; any other failure is
 * returned. */
static truce_status repair_together(const struct walk *walk, struct page *page, bson_error_t *error)
{
    uint32_t count = page->bulk.count;
    truce_status status = TRUCE_OK;

    truce__sync_bulk_write(walk->work, &page->bulk);
    for (uint32_t i = 0; !status && i < count; i++) {
        const bson_t *dependent = page->dependents[page->repaired[i]];

        if (page->bulk.copied[i])
            sync_walk_report(walk, TRUCE_SYNC_DIFFERS, dependent, true);
        else
            status = walk_check(walk, dependent, error);
    }
    return status;
}

static truce_status walk_differs(const struct walk *walk, struct page *page, uint32_t at,
                                 const bson_t *source, bson_error_t *error)
{
    if (!walk->options->repair || !walk_is_outdated(walk, page->dependents[at], source))
        return walk_check(walk, page->dependents[at], error);
    page->repaired[page->bulk.count] = at;
    return truce__sync_bulk_add(&page->bulk, walk->rule, page->dependents[at], source)
               ? repair_together(walk, page, error)
               : TRUCE_OK;
}

/* Compares one dependent with its source, and reports or counts the divergence. */
static truce_status walk_compare(const struct walk *walk, struct page *page, uint32_t at,
                                 bson_error_t *error)
{
    const bson_t *dependent = page->dependents[at];
    struct value reference = truce__sync_at(dependent, walk->rule->reference);
    const bson_t *source;
    bson_value_t id;

    walk->report->dependents++;
    if (truce__sync_check_arrays(walk->rule, dependent, NULL, NULL)) {
        sync_walk_report(walk, TRUCE_SYNC_UNREADABLE, dependent, false);
        return TRUCE_OK;
    }
    if (!truce__sync_reference(walk->rule, dependent, &id))
        return TRUCE_OK;
    source = source_of(page, reference);
    if (!source)
        sync_walk_report(walk, TRUCE_SYNC_ORPHAN, dependent, false);
    else if (truce__sync_check_arrays(walk->rule, NULL, source, NULL))
        sync_walk_report(walk, TRUCE_SYNC_UNREADABLE, dependent, false);
    else if (walk_under_way(dependent, source))
        walk->report->under_way++;
    else if (!is_consistent(walk->rule, dependent, source))
        return walk_differs(walk, page, at, source, error);
    return TRUCE_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static truce_status compare_page(const struct walk *walk, struct page *page, bson_error_t *error)
{
    truce_status status = read_masters(walk, page, error), repaired;

    for (uint32_t i = 0; !status && i < page->count; i++)
        status = walk_compare(walk, page, i, error);
    repaired = repair_together(walk, page, status ? NULL : error);
    release_page(page);
    return status ? status : repaired;
}

/* Walks over the dependents of a rule, a page at a time. */
static truce_status walk_pages(const struct walk *walk, bson_error_t *error)
{
    struct page *page = bson_malloc0(sizeof *page);
    truce_find_options options = {0};
    bson_t filter = BSON_INITIALIZER, projection;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    uint32_t pages = 0;
    truce_status status;

    truce__sync_make_projection(walk->rule, false, &projection);
    options.projection = &projection;
    if (walk->options->dependent)
        BSON_APPEND_VALUE(&filter, "_id", walk->options->dependent);
    status = truce_find(walk->work->sync->store, walk->rule->dependent, &filter, &options, &cursor,
                        error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error))) {
        if (document) {
            page->dependents[page->count++] = bson_copy(document);
            page->bytes += document->len;
        }
        if (!document || page->count == PAGE || page->bytes >= SYNC_BULK_BYTES) {
            status = compare_page(walk, page, error);
            if (walk->options->progress && ++pages % PROGRESS_EACH == 0)
                walk->options->progress(walk->report, walk->options->arg);
        }
        if (!document)
            break;
    }
    release_page(page);
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    bson_destroy(&filter);
    bson_free(page);
    return status;
}

truce_status truce_sync_walk(truce_sync *sync, const char *rule,
                             const truce_sync_walk_options *options, truce_sync_report *report,
                             bson_error_t *error)
{
    RETURN_IF_NULL(report, error);

    static const truce_sync_walk_options defaults;
    struct sync_work work;
    struct walk walk = {.work = &work, .options = options ? options : &defaults, .report = report};
    truce_status status = ROOM_CHECK(options, "truce_sync_walk_options", error);

    *report = (truce_sync_report){0};
    if (status)
        return status;
    status = truce__sync_begin(sync, &work, error);
    work.worker.deadline_ns = INT64_MAX;
    if (!status) {
        walk.rule = truce__sync_rule(work.rules, rule);
        status = walk.rule
                     ? walk_pages(&walk, error)
                     : truce__fail(TRUCE_NOT_FOUND, error, "the rule \"%s\" does not exist", rule);
    }
    truce__sync_end(&work);
    return status;
}
