/*
 * Snapshots: reads of one version (T5 of tree.c).
 *
 * Each read is: the items, THEN the master again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/reserved_fields.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"

/* ---- open ------------------------------------------------------------------------------------- */

static truce_status gone(const truce_tree *tree, int64_t version, int64_t from, bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "version %" PRId64
                       " of tree \"%s\" is collected; kept are those from %" PRId64 " on",
                       version, tree->name, from);
}

static truce_status tree_read_check_version(const truce_tree *tree,
                                            const struct tree_master *master, int64_t version,
                                            bson_error_t *error)
{
    if (version < 0 || version > master->current)
        return truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                           tree->name, version);
    if (version < master->gone)
        return gone(tree, version, truce__tree_kept(master), error);
    return TRUCE_OK;
}

truce_status truce__tree_open(truce_tree *tree, int64_t version, truce_tree_snapshot *snapshot,
                              bson_error_t *error)
{
    truce_status status;

    *snapshot = (truce_tree_snapshot){.tree = tree, .version = version};
    status = truce__tree_master(tree, &snapshot->master, error);
    return status ? status : tree_read_check_version(tree, &snapshot->master, version, error);
}

void truce__tree_leave(truce_tree_snapshot *snapshot)
{
    truce__tree_master_release(&snapshot->master);
}

/* The version that was current then. */
static truce_status version_at(truce_tree *tree, const struct tree_master *master, int64_t time_ms,
                               int64_t *version, bson_error_t *error)
{
    bson_t filter, *sort, found;
    truce_find_options options = {0};
    truce_status status;

    for (int64_t i = master->current; i > master->settled; i--) {
        *version = i;
        if (master->published[i - master->settled - 1].at_ms <= time_ms)
            return TRUCE_OK;
    }
    sort = BCON_NEW("version", BCON_INT32(-1));
    options.sort = sort;
    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "pub", BCON_BOOL(true), "at", "{", "$lte", BCON_DATE_TIME(time_ms), "}",
                "version", "{", "$lte", BCON_INT64(master->settled), "}");
    status = truce_find_one(tree->store, TREE_EDITS, &filter, &options, &found, error);
    *version = truce__field_count(&found, "version");
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(master->gone > 1 ? TRUCE_EXPIRED : TRUCE_NOT_FOUND, error,
                             "no version of tree \"%s\" that was current then is kept", tree->name);
    bson_destroy(&found);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

static truce_status version_of_token(const truce_tree *tree, const struct tree_master *master,
                                     const char *token, int64_t *version, bson_error_t *error)
{
    char born[25], text[sizeof((truce_tree_snapshot *)0)->token];

    bson_oid_to_string(&master->born, born);
    *version = strtoll(token, NULL, 10);
    snprintf(text, sizeof text, "%" PRId64 "-%s", *version, born);
    return strcmp(text, token)
               ? truce__fail(TRUCE_NOT_FOUND, error, "\"%s\" is no snapshot of this tree \"%s\"",
                             token, tree->name)
               : TRUCE_OK;
}

static truce_status find_version(truce_tree *tree, const struct tree_master *master,
                                 const truce_tree_at *at, int64_t *version, bson_error_t *error)
{
    int said = (at->version != 0) + (at->time_ms != 0) + (at->tag != NULL) + (at->token != NULL);

    *version = at->version ? at->version : master->current;
    if (said > 1)
        return truce__fail(TRUCE_INVALID, error,
                           "a snapshot is of a version, a time, a tag or a token: say one of them");
    if (at->version < 0)
        return truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                           tree->name, at->version);
    if (at->time_ms)
        return version_at(tree, master, at->time_ms, version, error);
    if (at->tag)
        return truce__tree_tagged(tree, at->tag, version, error);
    return at->token ? version_of_token(tree, master, at->token, version, error) : TRUCE_OK;
}

static truce_status open_once(truce_tree_snapshot *snapshot, const truce_tree_at *at,
                              bson_error_t *error)
{
    const struct tree_master *master = &snapshot->master;
    char born[25];
    truce_status status = truce__tree_master(snapshot->tree, &snapshot->master, error);

    if (!status)
        status = find_version(snapshot->tree, &snapshot->master, at, &snapshot->version, error);
    if (!status && snapshot->version < master->first && snapshot->version != master->current)
        status = gone(snapshot->tree, snapshot->version, truce__tree_kept(master), error);
    if (!status)
        status =
            tree_read_check_version(snapshot->tree, &snapshot->master, snapshot->version, error);
    if (!status && at->hold)
        status = truce__tree_hold(snapshot, error);
    bson_oid_to_string(&snapshot->master.born, born);
    snprintf(snapshot->token, sizeof snapshot->token, "%" PRId64 "-%s", snapshot->version, born);
    return status;
}

/* The current one was overtaken, and collected, before it was held: the one after it. */
static truce_status open_at(truce_tree_snapshot *snapshot, const truce_tree_at *at,
                            bson_error_t *error)
{
    bool current = !at->version && !at->time_ms && !at->tag && !at->token;
    bson_error_t why;
    truce_status status;

    while ((status = open_once(snapshot, at, &why)) == TRUCE_EXPIRED && current) {
        truce__tree_let_go(snapshot);
        truce__tree_leave(snapshot);
    }
    if (status && error)
        *error = why;
    return status;
}

truce_status truce_tree_open(truce_tree *tree, const truce_tree_at *at,
                             truce_tree_snapshot **snapshot, bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    static const truce_tree_at now;
    truce_status status = ROOM_CHECK(at, "truce_tree_at", error);

    *snapshot = NULL;
    at = at ? at : &now;
    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (status)
        return status;
    *snapshot = bson_malloc0(sizeof **snapshot);
    (*snapshot)->tree = tree;
    (*snapshot)->lease_ms = at->lease_ms ? at->lease_ms : TREE_LEASE_MS;
    status = open_at(*snapshot, at, error);
    if (status) {
        truce_tree_close(*snapshot);
        *snapshot = NULL;
    }
    return status;
}

void truce_tree_close(truce_tree_snapshot *snapshot)
{
    if (!snapshot)
        return;
    truce__tree_let_go(snapshot);
    truce__tree_leave(snapshot);
    bson_free(snapshot);
}

int64_t truce_tree_version(const truce_tree_snapshot *snapshot)
{
    return snapshot->version;
}

const char *truce_tree_snapshot_token(const truce_tree_snapshot *snapshot)
{
    return snapshot->token;
}

/* ---- the second look --------------------------------------------------------------------------- */

truce_status truce__tree_still(truce_tree_snapshot *snapshot, bson_error_t *error)
{
    struct tree_master now;
    truce_status status = truce__tree_master(snapshot->tree, &now, error);

    if (!status && !bson_oid_equal(&now.born, &snapshot->master.born))
        status = truce__fail(TRUCE_EXPIRED, error, "tree \"%s\" is another one by now",
                             snapshot->tree->name);
    if (!status && now.gone > snapshot->version)
        status = gone(snapshot->tree, snapshot->version, now.gone, error);
    if (!status && now.gone > truce__tree_low(&snapshot->master, snapshot->version)) {
        truce__tree_master_release(&snapshot->master);
        snapshot->master = now;
        return TRUCE_CONFLICT;
    }
    truce__tree_master_release(&now);
    return status;
}

/* ---- one item --------------------------------------------------------------------------------- */

/* The greatest version of it that was published; NOT_FOUND. */
static truce_status pick(const truce_tree_snapshot *snapshot, struct value id, bson_t *found,
                         bson_error_t *error)
{
    const truce_tree *tree = snapshot->tree;
    bson_t filter, *sort = BCON_NEW("version", BCON_INT32(-1));
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    truce__tree_filter(tree, &filter);
    truce__tree_append_id(&filter, "itemId", id);
    BCON_APPEND(&filter, "version", "{", "$lte", BCON_INT64(snapshot->version), "}");
    status = truce_find(tree->store, tree->collection, &filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        if (truce__tree_accepts(&snapshot->master, document))
            break;
    }
    if (!status && document)
        bson_copy_to(document, found);
    else
        bson_init(found);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status || document ? status : TRUCE_NOT_FOUND;
}

static truce_status absent(const truce_tree_snapshot *snapshot, struct value id,
                           bson_error_t *error)
{
    char text[200];

    return truce__fail(
        TRUCE_NOT_FOUND, error, "item %s is not in version %" PRId64 " of tree \"%s\"",
        truce__value_show(id, text, sizeof text), snapshot->version, snapshot->tree->name);
}

truce_status truce_tree_get(truce_tree_snapshot *snapshot, const bson_value_t *id, bson_t *item,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(snapshot->tree->deadline_ms);
    bson_t holder = BSON_INITIALIZER, found;
    struct value value;
    truce_status status = truce__check_value(id, "itemId", error), still;

    bson_init(item);
    if (!status)
        status = truce__tree_renew_hold(snapshot, error);
    if (status) {
        bson_destroy(&holder);
        return status;
    }
    BSON_APPEND_VALUE(&holder, "itemId", id);
    value = truce__tree_item_id(&holder);
    for (;;) {
        status = pick(snapshot, value, &found, error);
        still = status && status != TRUCE_NOT_FOUND ? TRUCE_OK : truce__tree_still(snapshot, error);
        if (still != TRUCE_CONFLICT)
            break;
        bson_destroy(&found);
    }
    if (still)
        status = still;
    else if (status == TRUCE_NOT_FOUND || (!status && truce__tree_absent(&found)))
        status = absent(snapshot, value, error);
    if (!status)
        truce__tree_show(&found, item);
    bson_destroy(&found);
    bson_destroy(&holder);
    return status;
}

/* ---- two versions of some items ----------------------------------------------------------------- */

struct pair {
    const truce_tree_snapshot *snapshot;
    int64_t low_version, high_version;
    bson_t id, low, high; /* empty: none */
    tree_pair_function *function;
    void *arg;
};

static void pair_reset(struct pair *pair)
{
    bson_reinit(&pair->id);
    bson_reinit(&pair->low);
    bson_reinit(&pair->high);
}

static truce_status pair_end(struct pair *pair, bson_error_t *error)
{
    bool low = !bson_empty(&pair->low) && !truce__tree_absent(&pair->low),
         high = !bson_empty(&pair->high) && !truce__tree_absent(&pair->high);
    truce_status status = TRUCE_OK;

    if (low || high)
        status = pair->function(truce__tree_item_id(&pair->id), low ? &pair->low : NULL,
                                high ? &pair->high : NULL, pair->arg, error);
    pair_reset(pair);
    return status;
}

static void tree_read_take(bson_t *kept, const bson_t *document)
{
    bson_destroy(kept);
    bson_copy_to(document, kept);
}

static truce_status pair_add(struct pair *pair, const bson_t *document, bson_error_t *error)
{
    struct value id = truce__tree_item_id(document);
    int64_t version = truce__field_count(document, "version");
    truce_status status = TRUCE_OK;

    if (!bson_empty(&pair->id) && !truce__value_equal(truce__tree_item_id(&pair->id), id))
        status = pair_end(pair, error);
    if (status || !truce__tree_accepts(&pair->snapshot->master, document))
        return status;
    if (bson_empty(&pair->id))
        truce__value_append(&pair->id, "itemId", 6, id);
    if (version <= pair->low_version)
        tree_read_take(&pair->low, document);
    if (version <= pair->high_version)
        tree_read_take(&pair->high, document);
    return TRUCE_OK;
}

truce_status truce__tree_pairs(const truce_tree_snapshot *snapshot, int64_t low, int64_t high,
                               const bson_t *ids, tree_pair_function *function, void *arg,
                               bson_error_t *error)
{
    const truce_tree *tree = snapshot->tree;
    struct pair pair = {snapshot,         low,      high, BSON_INITIALIZER, BSON_INITIALIZER,
                        BSON_INITIALIZER, function, arg};
    bson_t filter, *sort = BCON_NEW("tree", BCON_INT32(1), "itemId", BCON_INT32(1), "version",
                                    BCON_INT32(1), "token", BCON_INT32(1));
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BCON_APPEND(&filter, "itemId", "{", "$in", BCON_ARRAY(ids), "}", "version", "{", "$lte",
                BCON_INT64(low > high ? low : high), "}");
    status = truce__tree_find_sorted(tree, &filter, sort, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = pair_add(&pair, document, error);
    if (!status)
        status = pair_end(&pair, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    bson_destroy(&pair.id);
    bson_destroy(&pair.low);
    bson_destroy(&pair.high);
    return status;
}
