/* The history of a tree: diff, log, export as lines, and import. truce/tree.h defines the lines. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "patterns/tree/tree.h"
#include "query/input_check.h"
#include "store/reserved_names.h"

/* ---- differences ----------------------------------------------------------------------------- */

/* The number of items that are read at once, whatever their sizes. */
#define PORTION 50

/* ---- the diff -------------------------------------------------------------------------------- */

struct diffing {
    /* A snapshot of the older version, without a hold. The second read of the master shows whether
     * either version was collected (truce__tree_still). */
    truce_tree_snapshot snapshot;
    int64_t from, to;
    bool (*function)(const truce_tree_change *change, void *arg);
    void *arg;
    bool enough;
    uint32_t count;
    struct changed {
        bson_t id;
        /* The item before and after, as users see it, or NULL. Owned. */
        bson_t *before, *after;
    } all[PORTION];
};

static void diff_forget(struct diffing *diffing)
{
    for (uint32_t i = 0; i < diffing->count; i++) {
        struct changed *changed = &diffing->all[i];

        bson_destroy(&changed->id);
        if (changed->before)
            bson_destroy(changed->before);
        if (changed->after)
            bson_destroy(changed->after);
    }
    diffing->count = 0;
}

static bson_t *diff_shown(const bson_t *document)
{
    bson_t *item = document ? bson_sized_new(document->len) : NULL;

    if (item)
        truce__tree_show(document, item);
    return item;
}

/* Adds an item to the difference if the two versions of it differ (a tree_pair_function); `low` is
 * `from`. */
static truce_status diff_compare(struct value id, const bson_t *low, const bson_t *high, void *arg,
                                 bson_error_t *error)
{
    struct diffing *diffing = arg;
    struct changed *changed = &diffing->all[diffing->count];

    (void)error;
    if (low && high && truce__tree_same(low, high))
        return TRUCE_OK;
    bson_init(&changed->id);
    truce__value_append(&changed->id, "itemId", 6, id);
    changed->before = diff_shown(low);
    changed->after = diff_shown(high);
    diffing->count++;
    return TRUCE_OK;
}

static void diff_hand(struct diffing *diffing)
{
    for (uint32_t i = 0; !diffing->enough && i < diffing->count; i++) {
        struct changed *changed = &diffing->all[i];
        bson_iter_t iter;

        if (bson_iter_init_find(&iter, &changed->id, "itemId"))
            diffing->enough =
                !diffing->function(&(truce_tree_change){.item = bson_iter_value(&iter),
                                                        .before = changed->before,
                                                        .after = changed->after},
                                   diffing->arg);
    }
}

/* Compares both versions of some items and passes the differences to the caller, after the second
 * read of the master. */
static truce_status diff_portion(struct diffing *diffing, const struct value *ids, size_t count,
                                 bson_error_t *error)
{
    bson_t array = BSON_INITIALIZER;
    uint32_t index = 0;
    truce_status status;

    for (size_t i = 0; i < count; i++)
        truce__value_append_element(&array, &index, ids[i]);
    do {
        diff_forget(diffing);
        status = truce__tree_pairs(&diffing->snapshot, diffing->from, diffing->to, &array,
                                   diff_compare, diffing, error);
        if (!status)
            status = truce__tree_still(&diffing->snapshot, error);
    } while (status == TRUCE_CONFLICT);
    if (!status)
        diff_hand(diffing);
    diff_forget(diffing);
    bson_destroy(&array);
    return status;
}

/* Returns the number of ids up to `after`. The ids are in order. */
static size_t diff_passed(const struct tree_ids *ids, const bson_value_t *after)
{
    bson_t holder = BSON_INITIALIZER;
    size_t low = 0, high = ids->count;

    if (after)
        BSON_APPEND_VALUE(&holder, "itemId", after);
    else
        high = 0;
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (truce__value_compare(ids->all[middle], truce__tree_item_id(&holder)) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    bson_destroy(&holder);
    return low;
}

static truce_status diff_all(struct diffing *diffing, int64_t low, int64_t high,
                             const bson_value_t *after, bson_error_t *error)
{
    struct tree_ids touched = {0};
    truce_status status;

    status = truce__tree_ids_between(diffing->snapshot.tree, low, high, &touched, error);
    for (size_t at = diff_passed(&touched, after);
         !status && !diffing->enough && at < touched.count; at += PORTION)
        status = diff_portion(diffing, touched.all + at,
                              touched.count - at < PORTION ? touched.count - at : PORTION, error);
    truce__tree_ids_release(&touched);
    return status;
}

/* Does what truce_tree_diff does, for the items after an itemId (NULL for all). */
static truce_status diff_after(truce_tree *tree, int64_t from, int64_t to,
                               const bson_value_t *after,
                               bool (*function)(const truce_tree_change *change, void *arg),
                               void *arg, bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    int64_t low = from < to ? from : to, high = from < to ? to : from;
    struct diffing *diffing;
    truce_status status = truce__tree_ready(tree, false, error);

    if (status)
        return status;
    diffing = bson_malloc0(sizeof *diffing);
    diffing->from = from;
    diffing->to = to;
    diffing->function = function;
    diffing->arg = arg;
    status = truce__tree_open(tree, low, &diffing->snapshot, error);
    if (!status && high > diffing->snapshot.master.current)
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                             tree->name, high);
    if (!status)
        status = diff_all(diffing, low, high, after, error);
    truce__tree_leave(&diffing->snapshot);
    bson_free(diffing);
    return status;
}

truce_status truce_tree_diff(truce_tree *tree, int64_t from, int64_t to,
                             bool (*function)(const truce_tree_change *change, void *arg),
                             void *arg, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    return diff_after(tree, from, to, NULL, function, arg, error);
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Appends the fields of a version for the log. The time of an unsettled version is in the
 * master. */
static void tree_log_show(const struct tree_master *master, const bson_t *record, bson_t *entry)
{
    int64_t version = truce__field_count(record, "version"),
            at_ms = version > master->settled
                        ? master->published[version - master->settled - 1].at_ms
                        : truce__field_date(record, "at");
    bson_value_t token = truce__document_id(record);
    bson_iter_t iter;

    BSON_APPEND_INT64(entry, "version", version);
    BSON_APPEND_DATE_TIME(entry, "at", at_ms);
    if (*truce__field_text(record, "message"))
        BSON_APPEND_UTF8(entry, "message", truce__field_text(record, "message"));
    if (*truce__field_text(record, "author"))
        BSON_APPEND_UTF8(entry, "author", truce__field_text(record, "author"));
    BSON_APPEND_VALUE(entry, "token",
                      bson_iter_init_find(&iter, record, "origin") ? bson_iter_value(&iter)
                                                                   : &token);
}

/* Returns whether the record belongs to a published version. The _id of a record is its token, so
 * the rule of items applies. */
bool truce__tree_records(const struct tree_master *master, const bson_t *record)
{
    int64_t version = truce__field_count(record, "version");
    bson_iter_t iter;

    if (version < master->gone || version > master->current)
        return false;
    if (version <= master->settled)
        return bson_iter_init_find(&iter, record, "pub");
    return bson_iter_init_find(&iter, record, "_id") && BSON_ITER_HOLDS_OID(&iter) &&
           bson_oid_equal(bson_iter_oid(&iter),
                          &master->published[version - master->settled - 1].token);
}

truce_status truce_tree_log(truce_tree *tree, int64_t limit, truce_tree_function *function,
                            void *arg, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    DEADLINE_SCOPE(tree->deadline_ms);
    bson_t filter, *newest = BCON_NEW("version", BCON_INT32(-1));
    truce_find_options options = {.sort = newest};
    struct tree_master master = {0};
    truce_cursor *cursor = NULL;
    const bson_t *record;
    bool more = true;
    truce_status status = truce__tree_ready(tree, false, error);

    truce__tree_filter(tree, &filter);
    if (!status)
        status = truce__tree_master(tree, &master, error);
    if (!status)
        status = truce_find(tree->store, TREE_EDITS, &filter, &options, &cursor, error);
    while (!status && more && !(status = truce_cursor_next(cursor, &record, error)) && record) {
        bson_t entry = BSON_INITIALIZER;

        if (truce__tree_records(&master, record)) {
            tree_log_show(&master, record, &entry);
            more = function(&entry, arg) && --limit;
        }
        bson_destroy(&entry);
    }
    truce_cursor_close(cursor);
    truce__tree_master_release(&master);
    bson_destroy(newest);
    bson_destroy(&filter);
    return status;
}

/* Builds {version, at, message?, author?, token}. Initializes `entry` in any case. Returns
 * TRUCE_NOT_FOUND if the version was not published, or is collected. */
static truce_status tree_entry(truce_tree *tree, const struct tree_master *master, int64_t version,
                               bson_t *entry, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *record;
    bson_t filter;
    truce_status status;

    bson_init(entry);
    truce__tree_filter(tree, &filter);
    BSON_APPEND_INT64(&filter, "version", version);
    status = truce_find(tree->store, TREE_EDITS, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &record, error)) && record) {
        if (truce__tree_records(master, record))
            break;
    }
    if (!status && record)
        tree_log_show(master, record, entry);
    else if (!status)
        status =
            truce__fail(TRUCE_NOT_FOUND, error, "version %" PRId64 " of tree \"%s\" has no record",
                        version, tree->name);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* ---- export ---------------------------------------------------------------------------------- */

struct exporting {
    truce_tree *tree;
    /* A snapshot of the first version. It holds that version and all later ones. */
    truce_tree_snapshot *snapshot;
    /* The first and the last version of the export. */
    int64_t from, to;
    truce_tree_function *function;
    void *arg;
    bool enough;
};

/* Passes a line to the caller's function, and takes over `line`. */
static void history_hand(struct exporting *exporting, bson_t *line)
{
    if (!exporting->enough)
        exporting->enough = !exporting->function(line, exporting->arg);
    bson_destroy(line);
}

/* Passes on an item, without its version number, to the export (a truce_tree_function). */
static bool hand_item(const bson_t *item, void *arg)
{
    struct exporting *exporting = arg;
    bson_t *line = bson_sized_new(item->len);

    bson_copy_to_excluding_noinit(item, line, "version", NULL);
    history_hand(exporting, line);
    return !exporting->enough;
}

static bool hand_change(const truce_tree_change *change, void *arg)
{
    struct exporting *exporting = arg;
    bson_t *line;

    if (change->after)
        return hand_item(change->after, arg);
    line = bson_new();
    BSON_APPEND_VALUE(line, "$remove", change->item);
    history_hand(exporting, line);
    return !exporting->enough;
}

static void hand_head(struct exporting *exporting)
{
    const truce_tree *tree = exporting->tree;
    bson_t *line =
        BCON_NEW("$tree", BCON_UTF8(tree->name), "collection", BCON_UTF8(tree->collection));

    if (tree->parent)
        BSON_APPEND_UTF8(line, "parent", tree->parent);
    BCON_APPEND(line, "from", BCON_INT64(exporting->from), "to", BCON_INT64(exporting->to), "whole",
                BCON_BOOL(exporting->from == exporting->snapshot->version));
    history_hand(exporting, line);
}

static truce_status hand_version(struct exporting *exporting, int64_t version, bson_error_t *error)
{
    bson_t entry, *line = BCON_NEW("$version", BCON_INT64(version));
    truce_status status =
        tree_entry(exporting->tree, &exporting->snapshot->master, version, &entry, error);

    bson_copy_to_excluding_noinit(&entry, line, "version", NULL);
    bson_destroy(&entry);
    if (status)
        bson_destroy(line);
    else
        history_hand(exporting, line);
    return status;
}

static truce_status export_version(struct exporting *exporting, const struct tree_export_part *part,
                                   int64_t version, bson_error_t *error)
{
    truce_tree_snapshot *snapshot = exporting->snapshot;
    bool begun = part->begun && version == part->start;
    const bson_value_t *after = begun ? part->item : NULL;
    truce_status status = begun ? TRUCE_OK : hand_version(exporting, version, error);

    if (status || exporting->enough)
        return status;
    return version == snapshot->version
               ? truce__tree_find_after(snapshot, after, hand_item, exporting, error)
               : diff_after(exporting->tree, version - 1, version, after, hand_change, exporting,
                            error);
}

/* Passes the tags of the exported versions, by version. */
static truce_status export_tags(struct exporting *exporting, bson_error_t *error)
{
    const truce_tree *tree = exporting->tree;
    bson_t *filter = BCON_NEW("tree", BCON_UTF8(tree->name), "tag", "{", "$exists", BCON_BOOL(true),
                              "}", "version", "{", "$gte", BCON_INT64(exporting->from), "$lte",
                              BCON_INT64(exporting->to), "}"),
           *sort = BCON_NEW("tree", BCON_INT32(1), "version", BCON_INT32(1));
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *tag;
    truce_status status = truce_find(tree->store, TREE_HOLDS, filter, &options, &cursor, error);

    while (!status && !exporting->enough && !(status = truce_cursor_next(cursor, &tag, error)) &&
           tag)
        history_hand(exporting,
                     BCON_NEW("$tag", BCON_UTF8(truce__field_text(tag, "tag")), "version",
                              BCON_INT64(truce__field_count(tag, "version"))));
    truce_cursor_close(cursor);
    bson_destroy(sort);
    bson_destroy(filter);
    return status;
}

/* Finds the version to open: `from` - 1 if it is available, to compute the first changes, otherwise
 * the oldest available version. Returns TRUCE_NOT_FOUND if `from` does not exist yet, and
 * TRUCE_EXPIRED if it was collected. */
static truce_status find_first(const struct exporting *exporting, int64_t *first,
                               bson_error_t *error)
{
    const char *name = exporting->tree->name;
    struct tree_master master;
    truce_status status = truce__tree_master(exporting->tree, &master, error);

    /* Versions below the floor cannot be held. */
    *first = master.floor > master.first ? master.floor : master.first;
    if (!status && *first > master.current)
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version yet", name);
    if (!status && exporting->from > master.current)
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64, name,
                             exporting->from);
    if (!status && exporting->from && exporting->from < *first)
        status = truce__fail(TRUCE_EXPIRED, error,
                             "version %" PRId64
                             " of tree \"%s\" was collected: the oldest stored version is %" PRId64,
                             exporting->from, name, *first);
    if (exporting->from > *first)
        *first = exporting->from - 1;
    truce__tree_master_release(&master);
    return status;
}

static truce_status open_first(struct exporting *exporting, bson_error_t *error)
{
    truce_tree_at at = {.hold = true};
    truce_status status;

    do {
        status = find_first(exporting, &at.version, error);
        if (status)
            return status;
        status = truce_tree_open(exporting->tree, &at, &exporting->snapshot, error);
        /* If the version was collected in the meantime, the next one is tried. */
    } while (status == TRUCE_EXPIRED);
    if (!status && !exporting->from)
        exporting->from = exporting->snapshot->version;
    return status;
}

/* Checks that the version before a part still exists. A part after the first one needs it for the
 * changes of its first version. */
static truce_status check_continues(const struct exporting *exporting,
                                    const struct tree_export_part *part, bson_error_t *error)
{
    if (part->start <= part->from || exporting->snapshot->version < part->start)
        return TRUCE_OK;
    return truce__fail(TRUCE_EXPIRED, error,
                       "version %" PRId64
                       " of tree \"%s\" was collected during the export: export again",
                       part->start - 1, exporting->tree->name);
}

truce_status truce__tree_export_part(truce_tree *tree, const struct tree_export_part *part,
                                     truce_tree_function *function, void *arg, bson_error_t *error)
{
    struct exporting exporting = {.tree = tree,
                                  .from = part->start ? part->start : part->from,
                                  .function = function,
                                  .arg = arg};
    truce_status status = truce__tree_ready(tree, false, error);

    if (!status && part->from < 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "`from` is %" PRId64 ": expected a version of 0 or more", part->from);
    if (!status)
        status = open_first(&exporting, error);
    if (!status)
        status = check_continues(&exporting, part, error);
    if (!status)
        exporting.to = part->to ? part->to : exporting.snapshot->master.current;
    if (!status && !part->start)
        hand_head(&exporting);
    for (int64_t version = exporting.from; !status && !exporting.enough && version <= exporting.to;
         version++)
        status = export_version(&exporting, part, version, error);
    if (part->start)
        exporting.from = part->from;
    if (!status && !exporting.enough)
        status = export_tags(&exporting, error);
    if (!status && !exporting.enough)
        history_hand(&exporting, BCON_NEW("$end", BCON_INT64(exporting.to)));
    truce_tree_close(exporting.snapshot);
    return status;
}

truce_status truce_tree_export(truce_tree *tree, int64_t from, truce_tree_function *function,
                               void *arg, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    return truce__tree_export_part(tree, &(struct tree_export_part){.from = from}, function, arg,
                                   error);
}

/* ---- import ---------------------------------------------------------------------------------- */

struct truce_tree_import {
    truce_tree *tree;
    /* The edit of the version that is read, or NULL if the version is skipped or no edit was
     * begun. */
    truce_tree_edit *edit;
    bool headed, begun, whole, ended;
    /* The first version of the lines. `first` is the first version of the tree if the lines create
     * the tree from a whole version, otherwise 0. */
    int64_t from, first;
    truce_tree_imported totals;
};

truce_tree_import *truce_tree_import_new(truce_tree *tree)
{
    truce_tree_import *import = bson_malloc0(sizeof *import);

    import->tree = tree;
    return import;
}

void truce_tree_import_free(truce_tree_import *import)
{
    if (!import)
        return;
    if (import->edit)
        (void)!truce_tree_abandon(import->edit, NULL);
    truce_tree_edit_free(import->edit);
    bson_free(import);
}

/* Takes the names from the head if neither the caller nor the store has them. */
static void take_names(truce_tree *tree, const bson_t *head)
{
    const char *collection = truce__field_text(head, "collection"),
               *parent = truce__field_text(head, "parent");

    pthread_mutex_lock(&tree->mutex);
    if (!tree->collection)
        tree->collection = bson_strdup(collection);
    if (!tree->parent && *parent)
        tree->parent = bson_strdup(parent);
    pthread_mutex_unlock(&tree->mutex);
}

/* Reads the first line of an import, and checks that its names fit the tree. */
static truce_status take_head(truce_tree_import *import, const bson_t *head, bson_error_t *error)
{
    truce_tree_options names = {
        .name = import->tree->name,
        .collection = truce__field_text(head, "collection"),
        .parent = *truce__field_text(head, "parent") ? truce__field_text(head, "parent") : NULL};
    truce_tree *named;
    truce_status status;

    if (import->headed)
        return truce__fail(TRUCE_INVALID, error, "line {$tree: ...} occurs twice");
    import->headed = true;
    import->from = truce__field_count(head, "from");
    import->whole = truce__field_true(head, "whole");
    if (import->from < 1 || !*names.collection)
        return truce__fail(TRUCE_INVALID, error,
                           "the line {$tree: ...} has no \"collection\" or no \"from\"");
    status = truce__tree_ready(import->tree, false, error);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    /* Opening a handle checks the names. */
    named = truce_tree_new(import->tree->store, &names);
    if (named->refused) {
        status = truce__tree_ready(named, false, error);
    } else if (status) {
        take_names(import->tree, head);
        import->first = import->whole ? import->from : 0;
        status = TRUCE_OK;
    }
    truce_tree_free(named);
    return status;
}

/* Publishes the open edit. */
static truce_status end_version(truce_tree_import *import, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (import->edit) {
        status = truce_tree_flush(import->edit, error);
        if (!status)
            status = truce_tree_publish(import->edit, NULL, NULL, error);
        import->totals.published += !status;
        truce_tree_edit_free(import->edit);
        import->edit = NULL;
    }
    import->begun = false;
    return status;
}

/* Passes over a version that the tree has or has collected. Returns INVALID if the version of the
 * tree has another token, because the histories then differ. */
static truce_status history_pass(truce_tree_import *import, const struct tree_master *master,
                                 const bson_t *line, int64_t version, bson_error_t *error)
{
    bson_iter_t ours, theirs;
    bson_t entry;
    truce_status status;

    import->totals.passed++;
    /* This tree had the version and has collected it. */
    if (version < truce__tree_oldest_version(master))
        return TRUCE_OK;
    status = tree_entry(import->tree, master, version, &entry, error);
    if (!status && bson_iter_init_find(&ours, &entry, "token") &&
        bson_iter_init_find(&theirs, line, "token") && BSON_ITER_HOLDS_OID(&theirs) &&
        !bson_oid_equal(bson_iter_oid(&ours), bson_iter_oid(&theirs)))
        status = truce__fail(
            TRUCE_INVALID, error,
            "version %" PRId64
            " of tree \"%s\" differs from that version in the import: import into another tree",
            version, import->tree->name);
    bson_destroy(&entry);
    return status;
}

/* Begins the edit of the next version, with the message, author, time, and token of the line. If
 * the tree does not exist yet, it begins with import->first. */
static truce_status history_begin_edit(truce_tree_import *import, const bson_t *line,
                                       bson_error_t *error)
{
    truce_tree_edit_options options = {
        .message = *truce__field_text(line, "message") ? truce__field_text(line, "message") : NULL,
        .author = *truce__field_text(line, "author") ? truce__field_text(line, "author") : NULL};
    bson_iter_t iter;
    truce_status status;

    import->tree->first = import->first;
    status = truce_tree_begin(import->tree, &options, &import->edit, error);
    import->tree->first = 0;
    if (status)
        return status;
    import->edit->even_empty = true;
    import->edit->at_ms = truce__field_date(line, "at");
    import->edit->imported =
        bson_iter_init_find(&iter, line, "token") && BSON_ITER_HOLDS_OID(&iter);
    if (import->edit->imported)
        bson_oid_copy(bson_iter_oid(&iter), &import->edit->origin);
    return TRUCE_OK;
}

static truce_status check_next(const truce_tree_import *import, int64_t current, int64_t version,
                               bson_error_t *error)
{
    if (version != current + 1 || (!current && !import->whole && import->from > 1))
        return truce__fail(TRUCE_INVALID, error,
                           "version %" PRId64 " of the import does not follow version %" PRId64
                           ", the last one of tree \"%s\"",
                           version, current, import->tree->name);
    return TRUCE_OK;
}

/* Begins the next version of an import. A version that the tree already has is compared and passed
 * over. */
static truce_status take_version(truce_tree_import *import, const bson_t *line, bson_error_t *error)
{
    int64_t version = truce__field_count(line, "$version"), current;
    struct tree_master master = {0};
    bool there;
    truce_status status = end_version(import, error);

    if (status)
        return status;
    status = truce__tree_master(import->tree, &master, error);
    there = !status;
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    current = there ? master.current : import->first ? import->first - 1 : 0;
    if (!status && there && version >= 1 && version <= current) {
        status = history_pass(import, &master, line, version, error);
    } else if (!status) {
        status = check_next(import, current, version, error);
        if (!status)
            status = history_begin_edit(import, line, error);
    }
    import->begun = !status;
    import->totals.version = version;
    truce__tree_master_release(&master);
    return status;
}

static truce_status take_tag(truce_tree_import *import, const bson_t *line, bson_error_t *error)
{
    truce_status status = end_version(import, error);

    return status ? status
                  : truce_tree_tag(import->tree, truce__field_text(line, "$tag"),
                                   truce__field_count(line, "version"), error);
}

truce_status truce_tree_import_line(truce_tree_import *import, const bson_t *line,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(line, error);

    truce_status status = truce__document_check(line, "line", error);
    bson_iter_t iter;

    if (status)
        return status;
    if (import->ended)
        return truce__fail(TRUCE_INVALID, error, "unexpected line after {$end: ...}");
    if (bson_has_field(line, "$tree"))
        return take_head(import, line, error);
    if (!import->headed)
        return truce__fail(TRUCE_INVALID, error, "the history must begin with a line {$tree: ...}");
    if (bson_has_field(line, "$version"))
        return take_version(import, line, error);
    if (bson_has_field(line, "$tag"))
        return take_tag(import, line, error);
    if (bson_has_field(line, "$end")) {
        import->ended = true;
        return end_version(import, error);
    }
    if (!import->begun)
        return truce__fail(TRUCE_INVALID, error, "an item comes before the line {$version: ...}");
    if (!import->edit)
        return TRUCE_OK;
    return bson_iter_init_find(&iter, line, "$remove")
               ? truce_tree_remove(import->edit, bson_iter_value(&iter), error)
               : truce_tree_put(import->edit, line, error);
}

truce_status truce_tree_import_end(truce_tree_import *import, truce_tree_imported *imported,
                                   bson_error_t *error)
{
    if (imported)
        *imported = import->totals;
    if (!import->headed)
        return truce__fail(TRUCE_INVALID, error, "the history must begin with a line {$tree: ...}");
    return import->ended ? TRUCE_OK
                         : truce__fail(TRUCE_INVALID, error,
                                       "the history is truncated: it has no line {$end: ...}");
}
