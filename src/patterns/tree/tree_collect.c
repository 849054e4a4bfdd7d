/*
 * Collecting: how far the retention lets readers go back, and the removal of what none of them can read (T5, T7, T8 of tree.c).
 *
 * `collected` in the master: what the versions up to it superseded is removed. A sweeper that dies begins with the version after it
 * again. Sweepers do not exclude each other: what one removes is removed for ever, whoever does it.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/reserved_fields.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

#define REMOVALS 500 /* in one write */

struct collecting {
    truce_tree *tree;
    truce_tree_collected *told;
    struct tree_master master;
};

static truce_status collect_refresh(struct collecting *collecting, bson_error_t *error)
{
    truce__tree_master_release(&collecting->master);
    return truce__tree_master(collecting->tree, &collecting->master, error);
}

static truce_status collect_remove_all(struct collecting *collecting, const char *collection,
                                       bson_t *filter, bool counted, bson_error_t *error)
{
    truce_write_options options = {.multi = true, .relaxed = truce__tree_relaxed(collecting->tree)};
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, collecting->tree->store, collecting->tree->deadline_ms);
    do {
        status =
            truce_remove(collecting->tree->store, collection, filter, &options, &result, error);
        if (counted)
            collecting->told->items += result.removed;
        truce_write_result_release(&result);
    } while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(filter);
    return status;
}

/* ---- the floor --------------------------------------------------------------------------------- */

static truce_status collect_settle_all(struct collecting *collecting, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool done = true;

    for (int i = 0; !status && i < TREE_SETTLE_ROUND; i++) {
        status = truce__tree_settle(collecting->tree, &done, error);
        if (status || !done)
            break;
        collecting->told->settled++;
    }
    collecting->told->more = !status && done;
    return status;
}

/* The version that was current then; 0: none that is kept. */
static truce_status current_at(struct collecting *collecting, int64_t time_ms, int64_t *version,
                               bson_error_t *error)
{
    bson_t filter, *sort = BCON_NEW("version", BCON_INT32(-1)), found;
    truce_find_options options = {.sort = sort};
    truce_status status;

    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "pub", BCON_BOOL(true), "at", "{", "$lte", BCON_DATE_TIME(time_ms), "}");
    status = truce_find_one(collecting->tree->store, TREE_EDITS, &filter, &options, &found, error);
    *version = truce__field_count(&found, "version");
    bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The first version that the retention keeps. */
static truce_status first_kept(struct collecting *collecting, int64_t *first, bson_error_t *error)
{
    const struct tree_master *master = &collecting->master;
    int64_t by_age = 0;
    truce_status status = TRUCE_OK;

    *first = 0;
    if (!master->keep.versions && !master->keep.age_ms)
        return TRUCE_OK;
    *first = master->settled;
    if (master->keep.versions && master->current - master->keep.versions + 1 < *first)
        *first = master->current - master->keep.versions + 1;
    if (master->keep.age_ms)
        status =
            current_at(collecting, truce__clock_wall_ms() - master->keep.age_ms, &by_age, error);
    if (master->keep.age_ms && by_age < *first)
        *first = by_age;
    return status;
}

/* *done: it was below, and no commit was at work on the master. */
static truce_status raise(struct collecting *collecting, const char *field, int64_t to, bool *done,
                          bson_error_t *error)
{
    return truce__tree_write_master(collecting->tree, &collecting->master,
                                    BCON_NEW(field, "{", "$lt", BCON_INT64(to), "}"),
                                    BCON_NEW("$max", "{", field, BCON_INT64(to), "}"), done, error);
}

/* Of edits that are under way: what a rebase compares with. It looks whether it is there still. */
static truce_status least_base(struct collecting *collecting, int64_t *base, bson_error_t *error)
{
    bson_t filter, *sort = BCON_NEW("version", BCON_INT32(1)), found;
    truce_find_options options = {.sort = sort};
    truce_status status;

    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "state", BCON_UTF8("open"), "pub", "{", "$exists", BCON_BOOL(false), "}",
                "version", "{", "$gt", BCON_INT64(collecting->master.gone), "}");
    status = truce_find_one(collecting->tree->store, TREE_EDITS, &filter, &options, &found, error);
    *base = status ? INT64_MAX : truce__field_count(&found, "version") - 1;
    bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The floor, THEN what is held, THEN `gone`. A floor that could not be written is for the next round. */
static truce_status move_gone(struct collecting *collecting, bson_error_t *error)
{
    const struct tree_master *master = &collecting->master;
    int64_t first, held = INT64_MAX, base = INT64_MAX;
    bool done = true;
    truce_status status = first_kept(collecting, &first, error);

    if (!status && first > master->floor)
        status = raise(collecting, "floor", first, &done, error);
    first = first > master->floor ? first : master->floor;
    if (status || !done || first <= master->gone)
        return status;
    status = truce__tree_held(collecting->tree, &held, error);
    if (!status)
        status = least_base(collecting, &base, error);
    first = held < first ? held : first;
    first = base < first ? base : first;
    return status || first <= master->gone ? status
                                           : raise(collecting, "gone", first, &done, error);
}

/* ---- what is superseded ------------------------------------------------------------------------ */

static bool is_removal(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "removed");
}

/* Of each of these items all that is older than `version`; then the removals themselves. */
static truce_status remove_older(struct collecting *collecting, int64_t version, const bson_t *ids,
                                 const bson_t *removals, bson_error_t *error)
{
    bson_t filter;
    truce_status status;

    if (bson_empty(ids))
        return TRUCE_OK;
    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "itemId", "{", "$in", BCON_ARRAY(ids), "}", "version", "{", "$lt",
                BCON_INT64(version), "}", "pub", BCON_BOOL(true));
    status = collect_remove_all(collecting, collecting->tree->collection, bson_copy(&filter), true,
                                error);
    bson_destroy(&filter);
    if (!status && !bson_empty(removals))
        status =
            collect_remove_all(collecting, collecting->tree->collection,
                               BCON_NEW("_id", "{", "$in", BCON_ARRAY(removals), "}"), true, error);
    return status;
}

static truce_status collect_version(struct collecting *collecting, int64_t version,
                                    bson_error_t *error)
{
    const truce_tree *tree = collecting->tree;
    bson_t filter, ids = BSON_INITIALIZER, removals = BSON_INITIALIZER,
                   *keys = BCON_NEW("itemId", BCON_INT32(1), "removed", BCON_INT32(1));
    truce_find_options options = {.projection = keys};
    uint32_t count = 0, removed = 0;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "version", BCON_INT64(version), "pub", BCON_BOOL(true));
    status = truce_find(tree->store, tree->collection, &filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        truce__value_append_element(&ids, &count, truce__tree_item_id(document));
        if (is_removal(document))
            truce__value_append_element(
                &removals, &removed, truce__value_field(truce__value_document(document), "_id", 3));
        if (count < REMOVALS)
            continue;
        status = remove_older(collecting, version, &ids, &removals, error);
        bson_reinit(&ids);
        bson_reinit(&removals);
        count = removed = 0;
    }
    if (!status)
        status = remove_older(collecting, version, &ids, &removals, error);
    truce_cursor_close(cursor);
    bson_destroy(keys);
    bson_destroy(&removals);
    bson_destroy(&ids);
    bson_destroy(&filter);
    return status;
}

static truce_status collect_superseded(struct collecting *collecting, bson_error_t *error)
{
    int64_t version = collecting->master.collected;
    truce_status status = TRUCE_OK;
    bool done;

    while (!status && version < collecting->master.gone &&
           collecting->told->items < TREE_COLLECT_ROUND)
        status = collect_version(collecting, ++version, error);
    if (!status && version > collecting->master.collected)
        status = raise(collecting, "collected", version, &done, error);
    if (version < collecting->master.gone)
        collecting->told->more = true;
    return status;
}

/* The log of versions that nobody can read. */
static truce_status forget_records(struct collecting *collecting, bson_error_t *error)
{
    bson_t filter;
    truce_status status;

    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "version", "{", "$lt", BCON_INT64(collecting->master.gone), "}", "pub",
                BCON_BOOL(true));
    status = collect_remove_all(collecting, TREE_EDITS, bson_copy(&filter), false, error);
    bson_destroy(&filter);
    return status;
}

/* ---- what was never published ------------------------------------------------------------------ */

/* Its number is another's for ever, or (not settled yet) may be so: it waits. */
static truce_status drop_edit(struct collecting *collecting, const bson_t *record,
                              bson_error_t *error)
{
    bson_iter_t iter;
    bson_t filter;
    bson_oid_t token;
    truce_status status;

    if (!bson_iter_init_find(&iter, record, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_OK;
    bson_oid_copy(bson_iter_oid(&iter), &token);
    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "version", BCON_INT64(truce__field_count(record, "version")), "token",
                BCON_OID(&token), "pub", "{", "$exists", BCON_BOOL(false), "}");
    status = collect_remove_all(collecting, collecting->tree->collection, bson_copy(&filter), true,
                                error);
    bson_destroy(&filter);
    if (!status)
        status = collect_remove_all(
            collecting, TREE_EDITS,
            BCON_NEW("_id", BCON_OID(&token), "state", BCON_UTF8("given up")), false, error);
    collecting->told->edits += !status;
    return status;
}

/* If it was silent for long: its write looks. */
static truce_status collect_give_up(struct collecting *collecting, const bson_t *record,
                                    bson_error_t *error)
{
    bson_iter_t iter;
    bool done;

    return bson_iter_init_find(&iter, record, "_id") && BSON_ITER_HOLDS_OID(&iter)
               ? truce__tree_give_up(collecting->tree, bson_iter_oid(&iter),
                                     truce__clock_wall_ms() - TREE_EDIT_MS, &done, error)
               : TRUCE_OK;
}

/* Records at or below `settled` without a stamp: those are of no version. */
static truce_status drop_edits(struct collecting *collecting, bson_error_t *error)
{
    const truce_tree *tree = collecting->tree;
    bson_t filter;
    truce_cursor *cursor = NULL;
    const bson_t *record;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "version", "{", "$lte", BCON_INT64(collecting->master.settled), "}", "pub",
                "{", "$exists", BCON_BOOL(false), "}");
    status = truce_find(tree->store, TREE_EDITS, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &record, error)) && record)
        status = strcmp(truce__field_text(record, "state"), "given up")
                     ? collect_give_up(collecting, record, error)
                     : drop_edit(collecting, record, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* A merge's that a commit has decided to keep is left to it. */
static truce_status collect_drop_holds(struct collecting *collecting, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("tree", BCON_UTF8(collecting->tree->name), "until", "{", "$lt",
                              BCON_DATE_TIME(truce__clock_wall_ms()), "}");

    truce__intent_append_absent(filter);
    return collect_remove_all(collecting, TREE_HOLDS, filter, false, error);
}

/* Where a merge died after its commit. */
static truce_status let_go_common(truce_tree *tree, bson_error_t *error)
{
    struct tree_from from;
    truce_status status = truce__tree_from(tree, &from, error);

    return status || !from.merges ? status : truce__tree_let_go_common(tree, from.merges, error);
}

/* ---- a round ----------------------------------------------------------------------------------- */

truce_status truce__tree_collect(truce_tree *tree, truce_tree_collected *collected,
                                 bson_error_t *error)
{
    struct collecting collecting = {.tree = tree, .told = collected};
    truce_status status = collect_settle_all(&collecting, error);

    if (!status)
        status = let_go_common(tree, error);
    if (!status)
        status = collect_drop_holds(&collecting, error);
    if (!status)
        status = collect_refresh(&collecting, error);
    if (!status)
        status = move_gone(&collecting, error);
    if (!status)
        status = collect_refresh(&collecting, error);
    if (!status)
        status = collect_superseded(&collecting, error);
    if (!status)
        status = forget_records(&collecting, error);
    if (!status)
        status = drop_edits(&collecting, error);
    truce__tree_master_release(&collecting.master);
    return status;
}

truce_status truce_tree_collect(truce_tree *tree, truce_tree_collected *collected,
                                bson_error_t *error)
{
    truce_tree_collected nobody;
    truce_status status = truce__tree_ready(tree, false, error);

    collected = collected ? collected : &nobody;
    *collected = (truce_tree_collected){0};
    return status ? status : truce__tree_collect(tree, collected, error);
}

/* ---- what is asked for ------------------------------------------------------------------------- */

/* Once; CONFLICT: a commit is at work on the master. */
static truce_status retain(truce_tree *tree, const truce_tree_keep *keep, bson_error_t *error)
{
    struct tree_master master;
    bool done = false;
    truce_status status = truce__tree_master(tree, &master, error);

    if (!status)
        status = truce__tree_write_master(tree, &master, bson_new(),
                                          BCON_NEW("$set", "{", "keep", "{", "versions",
                                                   BCON_INT64(keep->versions), "age_ms",
                                                   BCON_INT64(keep->age_ms), "}", "}"),
                                          &done, error);
    truce__tree_master_release(&master);
    return status || done ? status : TRUCE_CONFLICT;
}

truce_status truce_tree_retain(truce_tree *tree, const truce_tree_keep *keep, bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    struct worker worker;
    truce_status status = ROOM_CHECK(keep, "truce_tree_keep", error);

    if (!status && (!keep || keep->versions < 0 || keep->age_ms < 0))
        status = truce__fail(TRUCE_INVALID, error, "neither versions nor an age is below zero");
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (status)
        return status;
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    while ((status = retain(tree, keep, error)) == TRUCE_CONFLICT) {
        status = truce__worker_wait(&worker, "the master", error);
        if (status)
            break;
    }
    return status;
}
