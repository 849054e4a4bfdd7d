/*
 * Holds: what readers and tags keep from being collected (T7 of tree.c).
 *
 *     {_id, tree, version, tag?, until?}
 *
 * A reader's hold has a lease, which its reads renew; one that is over is removed by a sweep. A clock that is wrong costs a
 * reader its version, and it is told so; nobody reads what is not there.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

/* ---- of readers ------------------------------------------------------------------------------- */

/* An upsert: a sweep may have removed it; then it is *anew. */
static truce_status hold_note(truce_tree_snapshot *snapshot, bool *anew, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(&snapshot->hold)),
           *update = BCON_NEW("$set", "{", "tree", BCON_UTF8(snapshot->tree->name), "version",
                              BCON_INT64(snapshot->version), "until",
                              BCON_DATE_TIME(truce__clock_wall_ms() + snapshot->lease_ms), "}");
    truce_write_options options = {.upsert = true};
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    *anew = false;
    truce__worker_init(&worker, snapshot->tree->store, snapshot->tree->deadline_ms);
    do {
        status = truce_update(snapshot->tree->store, TREE_HOLDS, filter, update, &options, &result,
                              error);
        *anew = *anew || status || result.upserted;
        truce_write_result_release(&result);
    } while ((truce__repeatable(status) || status == TRUCE_DUPLICATE) &&
             !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(update);
    bson_destroy(filter);
    if (!status)
        snapshot->renewed_ns = truce__clock_monotonic_ns();
    return status;
}

static truce_status too_late(const truce_tree_snapshot *snapshot, int64_t floor,
                             bson_error_t *error)
{
    return truce__fail(TRUCE_EXPIRED, error,
                       "version %" PRId64 " of tree \"%s\" is being collected; kept are those from "
                       "%" PRId64 " on",
                       snapshot->version, snapshot->tree->name, floor);
}

/* The hold, THEN the floor. */
truce_status truce__tree_hold(truce_tree_snapshot *snapshot, bson_error_t *error)
{
    truce_status status;
    bool anew;

    truce__id_new(&snapshot->hold);
    status = hold_note(snapshot, &anew, error);
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
    bool anew;

    if (!snapshot->holds || age_ns < (int64_t)snapshot->lease_ms * 1000000 / 3)
        return TRUCE_OK;
    status = hold_note(snapshot, &anew, error);
    if (status || !anew)
        return status;
    status = truce__tree_master(snapshot->tree, &now, error);
    if (!status && now.floor > snapshot->version)
        status = too_late(snapshot, now.floor, error);
    truce__tree_master_release(&now);
    return status;
}

void truce__tree_let_go(truce_tree_snapshot *snapshot)
{
    bson_t *filter;

    if (!snapshot->holds)
        return;
    filter = BCON_NEW("_id", BCON_OID(&snapshot->hold));
    (void)!truce_remove(snapshot->tree->store, TREE_HOLDS, filter, NULL, NULL, NULL);
    bson_destroy(filter);
    snapshot->holds = false;
}

truce_status truce__tree_held(truce_tree *tree, int64_t *held, bson_error_t *error)
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

/* ---- tags ------------------------------------------------------------------------------------- */

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

/* {version, of} of a tag; `existing`: one that holds this version already, an older one. *done: it is put. */
static truce_status put_tag(truce_tree *tree, const char *tag, int64_t version, bool existing,
                            bool *done, bson_error_t *error)
{
    bson_t filter, *update = BCON_NEW("$set", "{", "tree", BCON_UTF8(tree->name), "tag",
                                      BCON_UTF8(tag), "version", BCON_INT64(version), "}");
    truce_write_options options = {.upsert = !existing};
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    tag_filter(tree, tag, &filter);
    if (existing)
        BCON_APPEND(&filter, "version", "{", "$lte", BCON_INT64(version), "}");
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do {
        status = truce_update(tree->store, TREE_HOLDS, &filter, update, &options, &result, error);
        *done = !status && (result.matched || result.upserted);
        truce_write_result_release(&result);
    } while ((truce__repeatable(status) || status == TRUCE_DUPLICATE) &&
             !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(update);
    bson_destroy(&filter);
    return status;
}

/* version 0: the current one. */
static truce_status hold_check_version(truce_tree *tree, int64_t *version, bson_error_t *error)
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

static truce_status check_tag(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (!length || length > TREE_NAME_MAX || !bson_utf8_validate(name, length, false))
        return truce__fail(TRUCE_INVALID, error, "a tag has 1 to %d bytes of UTF-8", TREE_NAME_MAX);
    return TRUCE_OK;
}

/* A tag that moves on needs no look at the floor: whoever reads the holds finds it before or after. Another one is put under
 * a reader's hold. */
static truce_status tag(truce_tree *tree, const char *name, int64_t version, bson_error_t *error)
{
    truce_tree_at at = {.version = version, .hold = true};
    truce_tree_snapshot *snapshot = NULL;
    bool done;
    truce_status status = put_tag(tree, name, version, true, &done, error);

    if (status || done)
        return status;
    status = truce_tree_open(tree, &at, &snapshot, error);
    if (!status)
        status = put_tag(tree, name, version, false, &done, error);
    truce_tree_close(snapshot);
    return status;
}

truce_status truce_tree_tag(truce_tree *tree, const char *name, int64_t version,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    truce_status status = check_tag(name, error);

    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (!status)
        status = hold_check_version(tree, &version, error);
    return status ? status : tag(tree, name, version, error);
}

truce_status truce_tree_untag(truce_tree *tree, const char *name, bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    truce_write_result result = {0};
    bson_t filter;
    truce_status status = check_tag(name, error);

    if (!status)
        status = truce__tree_ready(tree, false, error);
    if (status)
        return status;
    tag_filter(tree, name, &filter);
    status = truce_remove(tree->store, TREE_HOLDS, &filter, NULL, &result, error);
    if (!status && !result.removed)
        status =
            truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no tag \"%s\"", tree->name, name);
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}
