/*
 * What copies, transfers and trees rest on.
 *
 *     truce_sync        a rule finds its dependents by their reference, and sweeps find flags: by indexes, which
 *                       declaring made; the collection that it copies from is there
 *     truce_transfers   a book finds by its index what stands still; nothing does for longer than it may
 *     truce_trees       a unique index refuses what is put twice; versions are settled; a branch has its origin; drops end
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "maintenance/doctor.h"
#include "store/reserved.h"
#include "truce/store.h"

#define LATE_MS INT64_C(60000)

/* *there false: the collection is not. */
static truce_status need_index(struct doctor *doctor, truce_store *store, const char *collection,
                               const char *field, const char *why, bool *there, bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(store, collection, &indexes, error);
    char change[300];

    *there = status != TRUCE_NOT_FOUND;
    if (!status && !truce__doctor_has_index(&indexes, field)) {
        snprintf(change, sizeof change, "make the index {%.200s: 1}", field);
        truce__doctor_tell(doctor, DOCTOR_WARNING, "pattern-index", collection, change,
                           "no index begins with \"%s\", by which %s", field, why);
    }
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND || status == TRUCE_INVALID ? TRUCE_OK : status;
}

/* What a process at work removes again: a note, since one may be at work now. */
static truce_status look_for_flag(struct doctor *doctor, truce_store *store, const char *collection,
                                  const char *flag, const char *text, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}");
    int64_t count = 0;
    truce_status status = truce_count(store, collection, filter, NULL, &count, error);

    if (!status && count)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "unfinished-copies", collection, "run truce sweep",
                           "%lld %s", (long long)count, text);
    bson_destroy(filter);
    return status;
}

/* Requests that are due, and that no process runs. */
static truce_status look_at_requests(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("state", BCON_UTF8("waiting"), "due", "{", "$lt",
                              BCON_DATE_TIME(truce__clock_wall_ms() - LATE_MS), "}");
    int64_t count = 0;
    truce_status status = truce_count(store, REQUESTS, filter, NULL, &count, error);

    if (!status && count)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "late-requests", REQUESTS,
                           "run the program that handles them (truce_request_run, truce request "
                           "run)",
                           "%lld requests are due for more than a minute: no process runs them",
                           (long long)count);
    bson_destroy(filter);
    return status;
}

static truce_status look_at_rule(struct doctor *doctor, truce_store *store, const bson_t *rule,
                                 bson_error_t *error)
{
    const char *master = truce__field_text(rule, "master"),
               *dependent = truce__field_text(rule, "dependent"),
               *reference = truce__field_text(rule, "reference");
    bool there;
    truce_status status = need_index(doctor, store, master, "syncing",
                                     "a sweep finds changes that stopped half way", &there, error);

    if (!status && !there)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "copies-master", master,
                           "give the rule up (truce sync drop), or put the collection back",
                           "the rule %s copies from this collection, which is not there",
                           truce__field_text(rule, "_id"));
    if (!status)
        status = need_index(doctor, store, dependent, "unchecked",
                            "a sweep finds copies that nobody compared", &there, error);
    if (!status && there && strcmp(reference, "_id") != 0)
        status = need_index(doctor, store, dependent, reference,
                            "each change of a master finds its copies", &there, error);
    if (!status)
        status = look_for_flag(doctor, store, master, "syncing",
                               "documents have changed, and their copies are not all made", error);
    if (!status)
        status = look_for_flag(doctor, store, dependent, "unchecked",
                               "documents have copies that were not compared", error);
    return status;
}

static truce_status look_at_book(struct doctor *doctor, truce_store *store, const bson_t *book,
                                 bson_error_t *error)
{
    const char *name = truce__field_text(book, "_id");
    int64_t before_ms = truce__clock_wall_ms() - truce__field_count(book, "resume_ms") - LATE_MS,
            still = 0;
    bson_t *filter = BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"),
                              BCON_UTF8("committed"), BCON_UTF8("applied"), BCON_UTF8("canceling"),
                              "]", "}", "lastModified", "{", "$lt", BCON_DATE_TIME(before_ms), "}");
    bool there;
    truce_status status =
        need_index(doctor, store, name, "state", "a sweep finds transfers that stopped half way",
                   &there, error);

    if (!status)
        status = truce_count(store, name, filter, NULL, &still, error);
    if (!status && still)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "unfinished-transfers", name, "run truce sweep",
                           "%lld transfers stand half way for longer than their book allows",
                           (long long)still);
    bson_destroy(filter);
    return status;
}

static bool is_item_index(bson_iter_t index)
{
    static const char *const fields[] = {"tree", "itemId", "version", "token"};
    bson_iter_t key;
    bool unique = false, right = false;

    while (bson_iter_next(&index)) {
        if (!strcmp(bson_iter_key(&index), "unique"))
            unique = bson_iter_as_bool(&index);
        if (strcmp(bson_iter_key(&index), "key") != 0 || !bson_iter_recurse(&index, &key))
            continue;
        right = true;
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            right = right && bson_iter_next(&key) && !strcmp(bson_iter_key(&key), fields[i]);
        right = right && !bson_iter_next(&key);
    }
    return unique && right;
}

static truce_status need_item_index(struct doctor *doctor, truce_store *store,
                                    const char *collection, bson_error_t *error)
{
    bson_t indexes;
    bson_iter_t iter, index;
    bool kept = false;
    truce_status status = truce_index_list(store, collection, &indexes, error);

    if (!status && bson_iter_init(&iter, &indexes)) {
        while (bson_iter_next(&iter))
            kept = kept || (bson_iter_recurse(&iter, &index) && is_item_index(index));
    }
    if (!status && !kept)
        truce__doctor_tell(doctor, DOCTOR_ERROR, "tree-index", collection,
                           "make the index {tree: 1, itemId: 1, version: 1, token: 1}, unique",
                           "no unique index keeps an item from being put twice in one version");
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND || status == TRUCE_INVALID ? TRUCE_OK : status;
}

static truce_status need_origin(struct doctor *doctor, truce_store *store, const bson_t *tree,
                                bson_error_t *error)
{
    bson_t from, found, *filter;
    truce_status status;

    if (!truce__value_subdocument(tree, "from", &from))
        return TRUCE_OK;
    filter = BCON_NEW("_id", BCON_UTF8(truce__field_text(&from, "tree")));
    status = truce_find_one(store, TREES, filter, NULL, &found, error);
    if (status == TRUCE_NOT_FOUND)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "tree-origin", TREES,
                           "put the origin back, or go on without merging",
                           "the tree %s is a branch of %s, which is not there",
                           truce__field_text(tree, "_id"), truce__field_text(&from, "tree"));
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status look_at_tree(struct doctor *doctor, truce_store *store, const bson_t *tree,
                                 bson_error_t *error)
{
    int64_t unsettled = truce__field_count(tree, "current") - truce__field_count(tree, "settled");
    truce_status status;

    if (bson_has_field(tree, "dropped")) {
        truce__doctor_tell(doctor, DOCTOR_WARNING, "tree-dropped", TREES, "run truce sweep",
                           "the tree %s is dropped, and not all of it is gone",
                           truce__field_text(tree, "_id"));
        return TRUCE_OK;
    }
    if (unsettled > 2 * TREE_UNSETTLED)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "unsettled-versions", TREES, "run truce sweep",
                           "%lld versions of the tree %s are not settled: each read of its master "
                           "carries their tokens",
                           (long long)unsettled, truce__field_text(tree, "_id"));
    status = need_item_index(doctor, store, truce__field_text(tree, "collection"), error);
    return status ? status : need_origin(doctor, store, tree, error);
}

typedef truce_status look_function(struct doctor *doctor, truce_store *store,
                                   const bson_t *document, bson_error_t *error);

static truce_status look_at_each(struct doctor *doctor, truce_store *store, const char *collection,
                                 look_function *look, bson_error_t *error)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = truce_find(store, collection, &everything, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status = look(doctor, store, document, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

truce_status truce__doctor_patterns(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    truce_status status = look_at_requests(doctor, store, error);

    if (!status)
        status = look_at_each(doctor, store, SYNC_RULES, look_at_rule, error);
    if (!status)
        status = look_at_each(doctor, store, TRANSFERS, look_at_book, error);
    return status ? status : look_at_each(doctor, store, TREES, look_at_tree, error);
}
