/*
 * Garbage collection, tags, and erase. The collector removes items that no reader can see (TR5,
 * TR7, and TR8 of tree.c). The retention decides how far back readers may go. Holds protect single
 * versions; a tag is a hold with a name.
 *
 * `collected` in the master says that the items superseded by versions up to it are removed. If a
 * sweeper dies, the next one resumes after that version. Sweepers do not exclude each other,
 * because a removal is final whichever process does it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "commit/lease_watch.h"
#include "commit/metadata_cache.h"
#include "patterns/tree/tree.h"
#include "query/input_check.h"
#include "store/reserved_names.h"

/* ---- holds ----------------------------------------------------------------------------------- */

/*
 * Holds protect a version from collection, for readers and tags (TR7 of tree.c).
 *
 *     {_id, tree, version, tag?, until?, ms?, lease?}
 *
 * The hold of a reader has a lease of `ms` milliseconds, which its reads renew. A renewal changes
 * `until`, even if the clock of the reader does not move. A collector removes a hold whose `until`
 * has not changed for `ms`, by the collector's monotonic clock (commit/lease_watch.h), so no clock
 * can take the version of a live reader. `lease` has the observations of collectors that ended.
 * Open edits have leases of the same kind, whose field `renewed` a renewal changes.
 *
 * A reader that pauses for longer than its lease loses its version, and its read fails; it never
 * gets wrong items.
 */

/* Writes a hold or a tag that no commit holds, and repeats the write until it gets a reply. Waits
 * for the commit if `upsert`; otherwise such a hold does not match. Sets *matched if the hold was
 * written, and *inserted if it may be a new one. */
static truce_status hold_write(truce_tree *tree, const bson_t *filter, const bson_t *update,
                               bool upsert, bool *matched, bool *inserted, bson_error_t *error)
{
    bson_t *unheld = truce__tree_unheld(filter);
    truce_write_options options = {.upsert = upsert};
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    *inserted = false;
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do {
        status = truce_update(tree->store, TREE_HOLDS, unheld, update, &options, &result, error);
        *matched = !status && (result.matched || result.upserted);
        *inserted = *inserted || status || result.upserted;
        truce_write_result_release(&result);
        /* Another process has inserted the hold, or a commit holds it. */
        if (status == TRUCE_DUPLICATE) {
            status = truce__tree_await(tree, TREE_HOLDS, filter, error);
            status = status ? status : TRUCE_CONFLICT;
        }
    } while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(unheld);
    return status;
}

/* Upserts the hold, which a sweep may have removed. Sets *inserted if the hold may be a new one. */
static truce_status hold_note(truce_tree_snapshot *snapshot, bool *inserted, bson_error_t *error)
{
    int64_t now_ns = truce__clock_monotonic_ns(),
            until_ms = truce__clock_wall_ms() + snapshot->lease_ms;
    bson_t *filter = BCON_NEW("_id", BCON_OID(&snapshot->hold)), *update;
    bool matched;
    truce_status status;

    snapshot->until_ms = until_ms > snapshot->until_ms ? until_ms : snapshot->until_ms + 1;
    update = BCON_NEW("$set", "{", "tree", BCON_UTF8(snapshot->tree->name), "version",
                      BCON_INT64(snapshot->version), "until", BCON_DATE_TIME(snapshot->until_ms),
                      "ms", BCON_INT64(snapshot->lease_ms), "}");
    status = hold_write(snapshot->tree, filter, update, true, &matched, inserted, error);
    bson_destroy(update);
    bson_destroy(filter);
    if (!status)
        snapshot->renewed_ns = now_ns;
    return status;
}

static truce_status too_late(const truce_tree_snapshot *snapshot, int64_t floor,
                             bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "version %" PRId64
                       " of tree \"%s\" is being collected; the oldest version is "
                       "%" PRId64,
                       snapshot->version, snapshot->tree->name, floor);
}

/* Writes the hold, THEN reads the floor. */
truce_status truce__tree_hold(truce_tree_snapshot *snapshot, bson_error_t *error)
{
    truce_status status;
    bool inserted;

    truce__id_new(&snapshot->hold);
    status = hold_note(snapshot, &inserted, error);
    if (status)
        return status;
    snapshot->holds = true;
    truce__tree_master_release(&snapshot->master);
    status = truce__tree_master(snapshot->tree, &snapshot->master, error);
    if (!status && snapshot->master.floor > snapshot->version)
        status = too_late(snapshot, snapshot->master.floor, error);
    return status;
}

truce_status truce__tree_renew_hold(truce_tree_snapshot *snapshot, bson_error_t *error)
{
    int64_t age_ns = truce__clock_monotonic_ns() - snapshot->renewed_ns;
    struct tree_master now;
    truce_status status;
    bool inserted;

    if (!snapshot->holds || age_ns < (int64_t)snapshot->lease_ms * 1000000 / 3)
        return TRUCE_OK;
    status = hold_note(snapshot, &inserted, error);
    if (status || !inserted)
        return status;
    status = truce__tree_master(snapshot->tree, &now, error);
    if (!status && now.floor > snapshot->version)
        status = too_late(snapshot, now.floor, error);
    truce__tree_master_release(&now);
    return status;
}

void truce__tree_release(truce_tree_snapshot *snapshot)
{
    bson_t *filter;

    if (!snapshot->holds)
        return;
    filter = BCON_NEW("_id", BCON_OID(&snapshot->hold));
    /* If a commit holds the hold, a collector removes it after the end of its lease. */
    /* Invariant TR13. */
    truce__intent_append_absent(filter);
    (void)!truce_remove(snapshot->tree->store, TREE_HOLDS, filter, NULL, NULL, NULL);
    bson_destroy(filter);
    snapshot->holds = false;
}

/* Finds the lowest version with a hold, or INT64_MAX if none exists. */
static truce_status tree_held(truce_tree *tree, int64_t *held, bson_error_t *error)
{
    bson_t filter, *sort = BCON_NEW("version", BCON_INT32(1)), found;
    truce_find_options options = {.sort = sort};
    truce_status status;

    truce__tree_filter(tree, &filter);
    status = truce_find_one(tree->store, TREE_HOLDS, &filter, &options, &found, error);
    *held = status ? INT64_MAX : truce__field_count(&found, "version");
    bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- tags ------------------------------------------------------------------------------------ */

/*
 * Tags: names of versions. A tag is a hold without an end, so no sweep collects its version
 * (TR7 of tree.c).
 *
 *     {_id: {tree, tag}, tree, tag, version}
 */

static void tag_filter(const truce_tree *tree, const char *tag, bson_t *filter)
{
    bson_init(filter);
    BCON_APPEND(filter, "_id", "{", "tree", BCON_UTF8(tree->name), "tag", BCON_UTF8(tag), "}");
}

truce_status truce__tree_tagged(truce_tree *tree, const char *tag, int64_t *version,
                                bson_error_t *error)
{
    bson_t filter, found;
    truce_status status;

    tag_filter(tree, tag, &filter);
    status = truce_find_one(tree->store, TREE_HOLDS, &filter, NULL, &found, error);
    *version = truce__field_count(&found, "version");
    if (status == TRUCE_NOT_FOUND)
        (void)truce__fail(status, error, "tree \"%s\" has no tag \"%s\"", tree->name, tag);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status;
}

/* Writes the version of a tag. If `existing`, only if the tag has this version or an older one.
 * Sets *done if the tag was written. */
static truce_status tag_write(truce_tree *tree, const char *tag, int64_t version, bool existing,
                              bool *done, bson_error_t *error)
{
    bson_t filter, *update = BCON_NEW("$set", "{", "tree", BCON_UTF8(tree->name), "tag",
                                      BCON_UTF8(tag), "version", BCON_INT64(version), "}");
    bool inserted;
    truce_status status;

    tag_filter(tree, tag, &filter);
    if (existing)
        BCON_APPEND(&filter, "version", "{", "$lte", BCON_INT64(version), "}");
    status = hold_write(tree, &filter, update, !existing, done, &inserted, error);
    bson_destroy(update);
    bson_destroy(&filter);
    return status;
}

/* Checks that the tree has the version; replaces 0 by the current one. */
static truce_status tag_check_version(truce_tree *tree, int64_t *version, bson_error_t *error)
{
    struct tree_master master;
    truce_status status = truce__tree_master(tree, &master, error);

    *version = *version ? *version : master.current;
    if (!status && (*version < 1 || *version > master.current))
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                             tree->name, *version);
    truce__tree_master_release(&master);
    return status;
}

static truce_status tag_check_name(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (!length || length > TREE_NAME_MAX || !bson_utf8_validate(name, length, false))
        return truce__fail(TRUCE_INVALID, error,
                           "invalid tag \"%.60s\": expected 1 to %d bytes of UTF-8", name,
                           TREE_NAME_MAX);
    return TRUCE_OK;
}

/* Gives the tag the version. A tag that moves forward needs no read of the floor, because a
 * collector finds the tag at its old or its new version. A new tag, or a tag that moves back, is
 * written under a reader's hold. */
static truce_status tag_move(truce_tree *tree, const char *name, int64_t version,
                             bson_error_t *error)
{
    truce_tree_at at = {.version = version, .hold = true};
    truce_tree_snapshot *snapshot = NULL;
    bool done;
    truce_status status = tag_write(tree, name, version, true, &done, error);

    if (status || done)
        return status;
    status = truce_tree_open(tree, &at, &snapshot, error);
    if (!status)
        status = tag_write(tree, name, version, false, &done, error);
    truce_tree_close(snapshot);
    return status;
}

truce_status truce_tree_tag(truce_tree *tree, const char *name, int64_t version,
                            bson_error_t *error)
{
    RETURN_IF_NULL(name, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    truce_status status = tag_check_name(name, error);

    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (!status)
        status = tag_check_version(tree, &version, error);
    return status ? status : tag_move(tree, name, version, error);
}

/* Removes a tag, and waits for a commit that holds it. Sets *removed if it existed. */
static truce_status tag_remove(truce_tree *tree, const bson_t *filter, bool *removed,
                               bson_error_t *error)
{
    bson_t *unheld = truce__tree_unheld(filter);
    bool left = true;
    truce_status status = TRUCE_OK;

    for (*removed = false; !status && left && !*removed;) {
        truce_write_result result = {0};

        status = truce_remove(tree->store, TREE_HOLDS, unheld, NULL, &result, error);
        *removed = result.removed > 0;
        truce_write_result_release(&result);
        if (!status && !*removed)
            status = truce__tree_any(tree, TREE_HOLDS, filter, &left, error);
        if (!status && !*removed && left)
            status = truce__tree_await(tree, TREE_HOLDS, filter, error);
    }
    bson_destroy(unheld);
    return status;
}

truce_status truce_tree_untag(truce_tree *tree, const char *name, bson_error_t *error)
{
    RETURN_IF_NULL(name, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    bool removed;
    bson_t filter;
    truce_status status = tag_check_name(name, error);

    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (status)
        return status;
    tag_filter(tree, name, &filter);
    status = tag_remove(tree, &filter, &removed, error);
    if (!status && !removed)
        status =
            truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no tag \"%s\"", tree->name, name);
    bson_destroy(&filter);
    return status;
}

/* ---- the collector --------------------------------------------------------------------------- */

struct collecting {
    truce_tree *tree;
    truce_tree_collected *totals;
    struct tree_master master;
};

static truce_status collect_refresh(struct collecting *collecting, bson_error_t *error)
{
    truce__tree_master_release(&collecting->master);
    return truce__tree_master(collecting->tree, &collecting->master, error);
}

/* Removes all documents that match the filter, which the call takes over. If `counted`, adds their
 * number to the totals; a send without a reply is not counted. */
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
            collecting->totals->items += result.removed;
        truce_write_result_release(&result);
    } while (truce__worker_repeats(&worker, status, "the store"));
    bson_destroy(filter);
    return status;
}

/* Removes the items that match the filter, which the call takes over, except those that a commit
 * holds. Sets *all to whether none is left. */
static truce_status collect_remove_items(struct collecting *collecting, bson_t *filter, bool *all,
                                         bson_error_t *error)
{
    truce_tree *tree = collecting->tree;
    bool left = true;
    truce_status status =
        collect_remove_all(collecting, tree->collection, truce__tree_unheld(filter), true, error);

    if (!status)
        status = truce__tree_any(tree, tree->collection, filter, &left, error);
    /* Invariant TR13. */
    *all = !left;
    bson_destroy(filter);
    return status;
}

/* ---- leases ---------------------------------------------------------------------------------- */

struct collect_lease {
    const char *collection, *kind;
    /* The name of the field that a renewal changes. `end` is its value in ms. */
    const char *field;
    int64_t end, length_ms;
    bson_oid_t id;
};

/* Returns false for a document that has no lease. */
static bool collect_read_lease(const bson_t *document, struct collect_lease *lease)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return false;
    bson_oid_copy(bson_iter_oid(&iter), &lease->id);
    if (!bson_iter_init_find(&iter, document, lease->field) || !BSON_ITER_HOLDS_DATE_TIME(&iter))
        return false;
    lease->end = truce__iter_date(&iter);
    if (bson_has_field(document, "ms"))
        lease->length_ms = truce__field_number(document, "ms");
    return true;
}

static bool collect_lease_over(struct collecting *collecting, const bson_t *document,
                               const struct collect_lease *lease)
{
    struct watched_lease watched = {.kind = lease->kind,
                                    .id = &lease->id,
                                    .size = sizeof lease->id,
                                    .state = (uint64_t)lease->end,
                                    .end = lease->end,
                                    .length_ms = lease->length_ms};
    bson_t fields;

    if (truce__value_subdocument(document, "lease", &fields))
        watched.fields = &fields;
    return truce__metadata_lease_over(collecting->tree->store, &watched);
}

/* Returns the filter of the document that has not been renewed. */
static bson_t *collect_lease_filter(const struct collect_lease *lease)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(&lease->id));

    BSON_APPEND_DATE_TIME(filter, lease->field, lease->end);
    truce__intent_append_absent(filter);
    return filter;
}

/* Stores when this process saw the lease, for collectors in later processes. */
static truce_status collect_observe(struct collecting *collecting, const bson_t *document,
                                    const struct collect_lease *lease, bson_error_t *error)
{
    bson_t *filter, update = BSON_INITIALIZER, set, fields;
    int64_t seen_ns;
    truce_status status;

    if (!truce__clock_name() || (truce__value_subdocument(document, "lease", &fields) &&
                                 truce__lease_seen(&fields, lease->end, &seen_ns)))
        return TRUCE_OK;
    filter = collect_lease_filter(lease);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    truce__lease_append_seen(lease->end, &set);
    bson_append_document_end(&update, &set);
    status = truce_update(collecting->tree->store, lease->collection, filter, &update, NULL, NULL,
                          error);
    bson_destroy(&update);
    bson_destroy(filter);
    return truce__repeatable(status) ? TRUCE_OK : status;
}

/* ---- the floor ------------------------------------------------------------------------------- */

static truce_status collect_settle_all(struct collecting *collecting, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool done = true;

    for (int i = 0; !status && i < TREE_SETTLE_BATCH; i++) {
        status = truce__tree_settle(collecting->tree, &done, error);
        if (status || !done)
            break;
        collecting->totals->settled++;
    }
    collecting->totals->more = !status && done;
    return status;
}

/* Finds the version that was current at a time, or 0 if no such version is kept. */
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

/* Finds the first version that the retention keeps. */
static truce_status first_retained(struct collecting *collecting, int64_t *first,
                                   bson_error_t *error)
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

/* Raises a field of the master. Sets `done` if the field was lower and no commit worked on the
 * master. */
static truce_status collecting_raise_field(struct collecting *collecting, const char *field,
                                           int64_t to, bool *done, bson_error_t *error)
{
    return truce__tree_write_master(collecting->tree, &collecting->master,
                                    BCON_NEW(field, "{", "$lt", BCON_INT64(to), "}"),
                                    BCON_NEW("$max", "{", field, BCON_INT64(to), "}"), done, error);
}

/* Finds the lowest base of open edits, which a rebase compares with. The rebase checks that the
 * base still exists. */
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

/* Writes the floor, THEN reads the holds, THEN writes `gone`. If the floor could not be written,
 * the next collection continues. */
static truce_status move_gone(struct collecting *collecting, bson_error_t *error)
{
    const struct tree_master *master = &collecting->master;
    int64_t first, held = INT64_MAX, base = INT64_MAX;
    bool done = true;
    truce_status status = first_retained(collecting, &first, error);

    if (!status && first > master->floor)
        status = collecting_raise_field(collecting, "floor", first, &done, error);
    first = first > master->floor ? first : master->floor;
    if (status || !done || first <= master->gone)
        return status;
    status = tree_held(collecting->tree, &held, error);
    if (!status)
        status = least_base(collecting, &base, error);
    first = held < first ? held : first;
    first = base < first ? base : first;
    return status || first <= master->gone
               ? status
               : collecting_raise_field(collecting, "gone", first, &done, error);
}

/* ---- superseded items ------------------------------------------------------------------------ */

static bool is_removal(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "removed");
}

/* Removes all versions of these items that are older than `version`; then the removals themselves.
 * Sets *all to whether none is left, because no commit holds one. */
static truce_status remove_older(struct collecting *collecting, int64_t version, const bson_t *ids,
                                 const bson_t *removals, bool *all, bson_error_t *error)
{
    bson_t filter;
    truce_status status;

    *all = true;
    if (bson_empty(ids))
        return TRUCE_OK;
    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "itemId", "{", "$in", BCON_ARRAY(ids), "}", "version", "{", "$lt",
                BCON_INT64(version), "}", "pub", BCON_BOOL(true));
    status = collect_remove_items(collecting, bson_copy(&filter), all, error);
    bson_destroy(&filter);
    /* Invariant TR13. */
    if (!*all)
        return status;
    return bson_empty(removals)
               ? status
               : collect_remove_items(collecting,
                                      BCON_NEW("_id", "{", "$in", BCON_ARRAY(removals), "}"), all,
                                      error);
}

/* Removes the items that a version has superseded, and its markers of removed items. Stops if a
 * commit holds one of them, and clears *all. */
static truce_status collect_version(struct collecting *collecting, int64_t version, bool *all,
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
    *all = true;
    while (!status && *all && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        truce__value_append_element(&ids, &count, truce__tree_item_id(document));
        if (is_removal(document))
            truce__value_append_element(
                &removals, &removed, truce__value_field(truce__value_document(document), "_id", 3));
        if (count < TREE_REMOVALS)
            continue;
        status = remove_older(collecting, version, &ids, &removals, all, error);
        bson_reinit(&ids);
        bson_reinit(&removals);
        count = removed = 0;
    }
    if (!status && *all)
        status = remove_older(collecting, version, &ids, &removals, all, error);
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
    bool done, all = true;

    while (!status && all && version < collecting->master.gone &&
           collecting->totals->items < TREE_COLLECT_BATCH) {
        status = collect_version(collecting, version + 1, &all, error);
        /* Invariant TR13. */
        version += all ? 1 : 0;
    }
    if (!status && version > collecting->master.collected)
        status = collecting_raise_field(collecting, "collected", version, &done, error);
    if (all && version < collecting->master.gone)
        collecting->totals->more = true;
    return status;
}

/* Removes the records of versions that no reader can open. */
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

/* ---- unpublished items ----------------------------------------------------------------------- */

/* Removes the items of an edit that was not published. Another version may own the edit's number.
 * Until the outcome of that version is known, the edit stays. */
static truce_status drop_edit(struct collecting *collecting, const bson_t *record,
                              bson_error_t *error)
{
    bson_iter_t iter;
    bson_t filter;
    bson_oid_t token;
    bool all = true;
    truce_status status;

    if (!bson_iter_init_find(&iter, record, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_OK;
    bson_oid_copy(bson_iter_oid(&iter), &token);
    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "version", BCON_INT64(truce__field_count(record, "version")), "token",
                BCON_OID(&token), "pub", "{", "$exists", BCON_BOOL(false), "}");
    status = collect_remove_items(collecting, bson_copy(&filter), &all, error);
    bson_destroy(&filter);
    /* Invariant TR13. */
    if (!all)
        return status;
    if (!status)
        status = collect_remove_all(
            collecting, TREE_EDITS,
            BCON_NEW("_id", BCON_OID(&token), "state", BCON_UTF8("given up")), false, error);
    collecting->totals->edits += !status;
    return status;
}

/* Abandons the edit if its lease has expired; the write checks that it was not renewed. */
static truce_status collect_give_up(struct collecting *collecting, const bson_t *record,
                                    bson_error_t *error)
{
    struct collect_lease lease = {.collection = TREE_EDITS,
                                  .kind = "tree edit",
                                  .field = "renewed",
                                  .length_ms = TREE_EDIT_MS};
    int64_t now_ms = truce__clock_wall_ms();
    bool done;

    if (!collect_read_lease(record, &lease))
        return TRUCE_OK;
    if (collect_lease_over(collecting, record, &lease))
        return truce__tree_give_up(collecting->tree, &lease.id, lease.end, &done, error);
    return lease.end <= now_ms - lease.length_ms || lease.end > now_ms
               ? collect_observe(collecting, record, &lease, error)
               : TRUCE_OK;
}

/* Handles the records at or below `settled` without a stamp, which belong to no version: gives up
 * open ones whose lease has expired, and drops those that were given up. */
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

/* Drops the hold if its lease has expired. A merge's hold that a commit has decided to keep is left
 * to the commit. */
static truce_status collect_drop_hold(struct collecting *collecting, const bson_t *hold,
                                      bson_error_t *error)
{
    struct collect_lease lease = {.collection = TREE_HOLDS,
                                  .kind = "tree hold",
                                  .field = "until",
                                  .length_ms = TREE_LEASE_MS};
    int64_t now_ms = truce__clock_wall_ms();

    if (!collect_read_lease(hold, &lease))
        return TRUCE_OK;
    if (collect_lease_over(collecting, hold, &lease))
        return collect_remove_all(collecting, TREE_HOLDS, collect_lease_filter(&lease), false,
                                  error);
    return lease.end <= now_ms || lease.end > now_ms + lease.length_ms
               ? collect_observe(collecting, hold, &lease, error)
               : TRUCE_OK;
}

static truce_status collect_drop_holds(struct collecting *collecting, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *hold;
    bson_t filter;
    truce_status status;

    truce__tree_filter(collecting->tree, &filter);
    BCON_APPEND(&filter, "until", "{", "$exists", BCON_BOOL(true), "}");
    status = truce_find(collecting->tree->store, TREE_HOLDS, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &hold, error)) && hold)
        status = collect_drop_hold(collecting, hold, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* Releases the holds that a merge left when it died after its commit. */
static truce_status release_common(truce_tree *tree, bson_error_t *error)
{
    struct tree_from from;
    truce_status status = truce__tree_from(tree, &from, error);

    return status || !from.merges ? status : truce__tree_release_common(tree, from.merges, error);
}

/* ---- one collection -------------------------------------------------------------------------- */

/* Collects once: settles versions, drops expired holds, moves `gone`, and removes what no reader
 * can see. */
static truce_status truce__tree_collect(truce_tree *tree, truce_tree_collected *collected,
                                        bson_error_t *error)
{
    struct collecting collecting = {.tree = tree, .totals = collected};
    truce_status status = collect_settle_all(&collecting, error);

    if (!status)
        status = release_common(tree, error);
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
    truce_tree_collected unused;
    truce_status status = truce__tree_ready(tree, false, error);

    collected = collected ? collected : &unused;
    *collected = (truce_tree_collected){0};
    return status ? status : truce__tree_collect(tree, collected, error);
}

/* ---- retention ------------------------------------------------------------------------------- */

/* Sets the retention once. Returns TRUCE_CONFLICT if a commit holds the master. */
static truce_status tree_set_retention(truce_tree *tree, const truce_tree_keep *keep,
                                       bson_error_t *error)
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
        status = truce__fail(TRUCE_INVALID, error,
                             "the retention of %" PRId64 " versions and %" PRId64
                             " ms is invalid: expected 0 or more of both",
                             keep ? (int64_t)keep->versions : INT64_C(-1),
                             keep ? keep->age_ms : INT64_C(-1));
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (status)
        return status;
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    while ((status = tree_set_retention(tree, keep, error)) == TRUCE_CONFLICT) {
        status = truce__worker_wait(&worker, "the master", error);
        if (status)
            break;
    }
    return status;
}

/* ---- erase ----------------------------------------------------------------------------------- */

/*
 * Erase removes the contents of an item from every version of a tree, of its origin, and of all
 * their branches.
 *
 * A branch or merge that has read the item already searches for erased items after it becomes
 * visible (tree_branch.c). Erase therefore marks the items first, and then lists the trees.
 */

/* Makes the update that removes the content. It has operators, so that a stamp that is set
 * concurrently stays. */
static void erase_make_update(const bson_t *document, bson_t *update)
{
    bson_t shown = BSON_INITIALIZER, unset;
    bson_iter_t iter;

    bson_init(update);
    truce__tree_show(document, &shown);
    BCON_APPEND(update, "$set", "{", "erased", BCON_BOOL(true), "}");
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    for (bson_iter_init(&iter, &shown); bson_iter_next(&iter);) {
        if (strcmp(bson_iter_key(&iter), "itemId") && strcmp(bson_iter_key(&iter), "version"))
            BSON_APPEND_BOOL(&unset, bson_iter_key(&iter), true);
    }
    BSON_APPEND_BOOL(&unset, "removed", true);
    bson_append_document_end(update, &unset);
    bson_destroy(&shown);
}

/* Reads the document when no commit holds it, and removes its content unless a commit has changed
 * or taken it since. Sets *done if it has no content. */
static truce_status erase_try(truce_tree *tree, struct worker *worker, const bson_value_t *id,
                              bool *done, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update, document;
    truce_write_result result = {0};
    bson_iter_t rev;
    truce_status status = truce__journal_read(worker, tree->collection, id, &document, error);

    erase_make_update(&document, &update);
    BSON_APPEND_VALUE(&filter, "_id", id);
    /* Invariant TR13. */
    truce__intent_append_absent(&filter);
    if (bson_iter_init_find(&rev, &document, "_rev"))
        BCON_APPEND(&filter, "_rev", "{", "$eq", BCON_ITER(&rev), "}");
    else
        BCON_APPEND(&filter, "_rev", "{", "$exists", BCON_BOOL(false), "}");
    if (!status)
        status =
            truce_update(tree->store, tree->collection, &filter, &update, NULL, &result, error);
    *done = status == TRUCE_NOT_FOUND || (!status && result.matched);
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(&filter);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Removes the content of one version of an item. The document stays, so the index refuses a late
 * insert of the item. */
static truce_status erase_one(truce_tree *tree, const bson_t *document, bson_error_t *error)
{
    bson_value_t id = truce__document_id(document);
    struct worker worker;
    bool done;
    truce_status status;

    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    worker.latest = true;
    do
        status = erase_try(tree, &worker, &id, &done, error);
    while ((!status && !done) || truce__worker_repeats(&worker, status, "the store"));
    return status;
}

truce_status truce__tree_erase(truce_tree *tree, struct value id, int64_t *versions,
                               bson_error_t *error)
{
    bson_t filter;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(tree, &filter);
    truce__tree_append_id(&filter, "itemId", id);
    BCON_APPEND(&filter, "removed", "{", "$exists", BCON_BOOL(false), "}", "erased", "{", "$exists",
                BCON_BOOL(false), "}");
    status = truce_find(tree->store, tree->collection, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        status = erase_one(tree, document, error);
        *versions += !status;
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* Erases in all trees of one root except `tree` itself. */
static truce_status erase_family(truce_tree *tree, struct value id, int64_t *versions,
                                 bson_error_t *error)
{
    struct tree_from from;
    bson_t *filter;
    truce_cursor *cursor = NULL;
    const bson_t *master;
    const char *root;
    truce_status status = truce__tree_from(tree, &from, error);

    if (status)
        return status;
    root = *from.root ? from.root : tree->name;
    filter = BCON_NEW("$or", "[", "{", "_id", BCON_UTF8(root), "}", "{", "from.root",
                      BCON_UTF8(root), "}", "]");
    status = truce_find(tree->store, TREES, filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &master, error)) && master) {
        truce_tree_options options = {.name = truce__field_text(master, "_id"),
                                      .deadline_ms = tree->deadline_ms};
        truce_tree *other;

        if (!strcmp(options.name, tree->name))
            continue;
        other = truce_tree_new(tree->store, &options);
        status = truce__tree_ready(other, false, error);
        if (!status)
            status = truce__tree_erase(other, id, versions, error);
        /* NOT_FOUND means that the tree is being dropped. */
        if (status == TRUCE_NOT_FOUND)
            status = TRUCE_OK;
        truce_tree_free(other);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

truce_status truce_tree_erase(truce_tree *tree, const bson_value_t *id, int64_t *versions,
                              bson_error_t *error)
{
    RETURN_IF_NULL(versions, error);

    DEADLINE_SCOPE(tree->deadline_ms);
    bson_t holder = BSON_INITIALIZER;
    struct value item;
    truce_status status = truce__check_value(id, "itemId", error);

    *versions = 0;
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (!status) {
        BSON_APPEND_VALUE(&holder, "itemId", id);
        item = truce__tree_item_id(&holder);
        status = truce__tree_erase(tree, item, versions, error);
        if (!status)
            status = erase_family(tree, item, versions, error);
    }
    bson_destroy(&holder);
    return status;
}
