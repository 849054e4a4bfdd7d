#include "tests/support/entry_points.h"

#include <string.h>

#include "truce/changes.h"
#include "truce/item.h"
#include "truce/queue.h"
#include "truce/request.h"
#include "truce/revision.h"
#include "truce/set.h"
#include "truce/sync.h"
#include "truce/transfer.h"
#include "truce/tree.h"

/* The arguments of a call: places 0, 1, 2 are documents, 3 is a value. */
struct given {
    truce_store *store;
    const bson_t *a, *b, *c;
    const bson_value_t *id;
    bson_error_t error;
};

static const truce_write_options relaxed = {.relaxed = true};

/* ---- the store ------------------------------------------------------------------------------- */

static truce_status walk(truce_status status, truce_cursor *cursor, bson_error_t *error)
{
    const bson_t *document = NULL;

    for (int i = 0; i < 20 && !status; i++) {
        status = truce_cursor_next(cursor, &document, error);
        if (!document)
            break;
    }
    truce_cursor_close(cursor);
    return status;
}

static truce_status call_find(struct given *g)
{
    truce_find_options options = {.sort = g->b, .projection = g->c};
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(g->store, "things", g->a, &options, &cursor, &g->error);

    return walk(status, cursor, &g->error);
}

static truce_status call_hint(struct given *g)
{
    truce_find_options options = {.hint = g->a};
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(g->store, "things", NULL, &options, &cursor, &g->error);

    return walk(status, cursor, &g->error);
}

static truce_status call_span(struct given *g)
{
    truce_find_options options = {
        .hint = g->a, .min = g->b, .max = g->c, .return_key = true, .show_record_id = true};
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(g->store, "things", NULL, &options, &cursor, &g->error);

    return walk(status, cursor, &g->error);
}

static truce_status call_count(struct given *g)
{
    int64_t count;

    return truce_count(g->store, "things", g->a, NULL, &count, &g->error);
}

static truce_status call_distinct(struct given *g)
{
    bson_t values;
    truce_status status = truce_distinct(g->store, "things", "a", g->a, &values, &g->error);

    bson_destroy(&values);
    return status;
}

static truce_status call_aggregate(struct given *g)
{
    truce_cursor *cursor = NULL;
    truce_status status = truce_aggregate(g->store, "things", g->a, NULL, &cursor, &g->error);

    return walk(status, cursor, &g->error);
}

static truce_status call_insert(struct given *g)
{
    return truce_insert(g->store, "things", g->a, &relaxed, &g->error);
}

static truce_status call_update(struct given *g)
{
    truce_write_options options = {.relaxed = true, .multi = true, .array_filters = g->c};

    return truce_update(g->store, "things", g->a, g->b, &options, NULL, &g->error);
}

static truce_status call_remove(struct given *g)
{
    return truce_remove(g->store, "things", g->a, &relaxed, NULL, &g->error);
}

static truce_status call_index(struct given *g)
{
    return truce_index_create(g->store, "other", g->a, &g->error);
}

/* ---- commits --------------------------------------------------------------------------------- */

typedef truce_status commit_step(truce_commit *commit, struct given *g);

static truce_status in_commit(struct given *g, commit_step *step)
{
    truce_commit *commit = NULL;
    truce_status status = truce_commit_begin(g->store, NULL, &commit, &g->error);

    if (!status)
        status = step(commit, g);
    if (!status)
        status = truce_commit_apply(commit, &g->error);
    truce_commit_free(commit);
    return status;
}

static truce_status step_read(truce_commit *commit, struct given *g)
{
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", g->id, &document, &g->error);

    bson_destroy(&document);
    return status;
}

static truce_status step_require(truce_commit *commit, struct given *g)
{
    return truce_commit_require(commit, "things", g->id, g->a, &g->error);
}

static truce_status step_missing(truce_commit *commit, struct given *g)
{
    return truce_commit_require_missing(commit, "things", g->id, &g->error);
}

static truce_status step_hold(truce_commit *commit, struct given *g)
{
    return truce_commit_hold(commit, "things", g->id, g->a, &g->error);
}

static truce_status step_insert(truce_commit *commit, struct given *g)
{
    return truce_commit_insert(commit, "things", g->a, &g->error);
}

static truce_status step_update(truce_commit *commit, struct given *g)
{
    return truce_commit_update(commit, "things", g->id, g->a, g->b, &g->error);
}

static truce_status step_replace(truce_commit *commit, struct given *g)
{
    return truce_commit_replace(commit, "things", g->id, g->a, g->b, &g->error);
}

static truce_status step_remove(truce_commit *commit, struct given *g)
{
    return truce_commit_remove(commit, "things", g->id, g->a, &g->error);
}

static truce_status step_change(truce_commit *commit, struct given *g)
{
    return truce_commit_change(commit, "things", g->id, g->a, &g->error);
}

static truce_status step_changes(truce_commit *commit, struct given *g)
{
    return truce_commit_changes(commit, "things", g->a, &g->error);
}

#define COMMIT_CALL(name)                                                                          \
    static truce_status call_##name(struct given *g)                                               \
    {                                                                                              \
        return in_commit(g, step_##name);                                                          \
    }

COMMIT_CALL(read)
COMMIT_CALL(require)
COMMIT_CALL(missing)
COMMIT_CALL(hold)
COMMIT_CALL(change)
COMMIT_CALL(changes)

static truce_status call_commit_insert(struct given *g)
{
    return in_commit(g, step_insert);
}

static truce_status call_commit_update(struct given *g)
{
    return in_commit(g, step_update);
}

static truce_status call_commit_replace(struct given *g)
{
    return in_commit(g, step_replace);
}

static truce_status call_commit_remove(struct given *g)
{
    return in_commit(g, step_remove);
}

static truce_status call_commit_input(struct given *g)
{
    truce_commit_options options = {.input = g->a};
    truce_commit *commit = NULL;
    truce_status status = truce_commit_begin(g->store, &options, &commit, &g->error);

    if (!status)
        truce_commit_free(commit);
    return status;
}

static truce_status call_changes_apply(struct given *g)
{
    return truce_changes_apply(g->store, "things", g->a, NULL, &g->error);
}

static truce_status call_changes_diff(struct given *g)
{
    bson_t diff;
    truce_status status = truce_changes_diff(g->a, g->b, &diff, &g->error);

    bson_destroy(&diff);
    return status;
}

static truce_status call_request(struct given *g)
{
    return truce_request_add(g->store, "key", "name", g->a, &g->error);
}

/* ---- revisions ------------------------------------------------------------------------------- */

typedef truce_status revision_step(truce_revision *revision, struct given *g,
                                   truce_revision_result *result);

static truce_status in_revision(struct given *g, const bson_t *rules, revision_step *step)
{
    truce_revision_options options = {
        .collection = "things", .rules = rules, .relaxed = true, .keep = 2};
    truce_revision *revision = truce_revision_new(g->store, &options);
    truce_revision_result result = {.document = BSON_INITIALIZER, .conflict = BSON_INITIALIZER};
    truce_status status = step(revision, g, &result);

    truce_revision_result_release(&result);
    truce_revision_free(revision);
    return status;
}

static truce_status step_save(truce_revision *revision, struct given *g,
                              truce_revision_result *result)
{
    return truce_revision_save(revision, NULL, g->a, 1, g->b, result, &g->error);
}

static truce_status step_merge(truce_revision *revision, struct given *g,
                               truce_revision_result *result)
{
    return truce_revision_merge(revision, NULL, g->a, 1, g->b, result, &g->error);
}

static truce_status step_patch(truce_revision *revision, struct given *g,
                               truce_revision_result *result)
{
    return truce_revision_patch(revision, NULL, g->id, 1, true, TRUCE_PATCH_OPERATORS, g->a, result,
                                &g->error);
}

static truce_status step_forget(truce_revision *revision, struct given *g,
                                truce_revision_result *result)
{
    return truce_revision_remove(revision, NULL, g->id, 1, g->a, result, &g->error);
}

static truce_status step_at(truce_revision *revision, struct given *g,
                            truce_revision_result *result)
{
    bson_t document;
    truce_status status = truce_revision_at(revision, g->id, 1, &document, &g->error);

    (void)result;
    bson_destroy(&document);
    return status;
}

static truce_status step_log(truce_revision *revision, struct given *g,
                             truce_revision_result *result)
{
    truce_cursor *cursor = NULL;
    truce_status status = truce_revision_log(revision, g->id, &cursor, &g->error);

    (void)result;
    return walk(status, cursor, &g->error);
}

static truce_status call_save(struct given *g)
{
    return in_revision(g, NULL, step_save);
}

static truce_status call_merge(struct given *g)
{
    return in_revision(g, g->c, step_merge);
}

static truce_status call_patch(struct given *g)
{
    return in_revision(g, NULL, step_patch);
}

static truce_status call_forget(struct given *g)
{
    return in_revision(g, NULL, step_forget);
}

static truce_status call_at(struct given *g)
{
    return in_revision(g, NULL, step_at);
}

static truce_status call_log(struct given *g)
{
    return in_revision(g, NULL, step_log);
}

static truce_status call_revision_diff(struct given *g)
{
    truce_status status = TRUCE_OK;

    for (int kind = TRUCE_PATCH_OPERATORS; kind <= TRUCE_PATCH_OPERATORS + 2; kind++) {
        bson_t patch = BSON_INITIALIZER;
        truce_status one =
            truce_revision_diff(g->a, g->b, (truce_patch_kind)kind, &patch, &g->error);

        status = status ? status : one;
        bson_destroy(&patch);
    }
    return status;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static truce_status add_job(struct given *g, const bson_t *payload, const bson_t *metadata,
                            const bson_t *tags)
{
    truce_queue *queue = truce_queue_new(g->store, &(truce_queue_options){.queue = "q"});
    truce_job_options options = {.metadata = metadata, .tags = tags};
    truce_status status = truce_queue_add(queue, NULL, payload, &options, NULL, &g->error);

    truce_queue_free(queue);
    return status;
}

static truce_status call_queue_add(struct given *g)
{
    return add_job(g, g->a, g->b, NULL);
}

static truce_status call_queue_tags(struct given *g)
{
    bson_t payload = BSON_INITIALIZER;
    truce_status status = add_job(g, &payload, NULL, g->a);

    bson_destroy(&payload);
    return status;
}

static truce_status call_queue_add_many(struct given *g)
{
    truce_queue *queue = truce_queue_new(g->store, &(truce_queue_options){.queue = "q"});
    const bson_t *payloads[] = {g->a, g->b};
    truce_status status = truce_queue_add_many(queue, payloads, 2, NULL, NULL, &g->error);

    truce_queue_free(queue);
    return status;
}

typedef truce_status job_step(truce_job *job, struct given *g);

static truce_status in_job(struct given *g, job_step *step)
{
    truce_queue *queue = truce_queue_new(g->store, &(truce_queue_options){.queue = "own"});
    bson_t payload = BSON_INITIALIZER;
    truce_job *job = NULL;
    truce_status status = truce_queue_add(queue, NULL, &payload, NULL, NULL, &g->error);

    if (!status)
        status = truce_queue_claim(queue, &job, &g->error);
    if (!status)
        status = step(job, g);
    truce_job_free(job);
    truce_queue_free(queue);
    bson_destroy(&payload);
    return status;
}

static truce_status job_done(truce_job *job, struct given *g)
{
    return truce_job_done(job, NULL, g->a, &g->error);
}

static truce_status job_progress(truce_job *job, struct given *g)
{
    return truce_job_progress(job, g->a, &g->error);
}

static truce_status call_job_done(struct given *g)
{
    return in_job(g, job_done);
}

static truce_status call_job_progress(struct given *g)
{
    return in_job(g, job_progress);
}

/* ---- items and sets -------------------------------------------------------------------------- */

typedef truce_status item_step(truce_item *item, struct given *g);

static truce_status in_item(struct given *g, item_step *step)
{
    truce_item_options options = {.collection = "things", .field = "items", .identity = "a"};
    truce_item *item = truce_item_new(g->store, &options);
    truce_status status = step(item, g);

    truce_item_free(item);
    return status;
}

static truce_status item_update(truce_item *item, struct given *g)
{
    return truce_item_update(item, NULL, g->a, g->b, g->c, NULL, &g->error);
}

static truce_status item_add(truce_item *item, struct given *g)
{
    return truce_item_add(item, NULL, g->a, g->b, NULL, &g->error);
}

static truce_status item_replace(truce_item *item, struct given *g)
{
    return truce_item_replace(item, NULL, g->a, g->b, g->c, NULL, &g->error);
}

static truce_status item_upsert(truce_item *item, struct given *g)
{
    return truce_item_upsert(item, NULL, g->a, g->b, NULL, &g->error);
}

static truce_status item_remove(truce_item *item, struct given *g)
{
    return truce_item_remove(item, NULL, g->a, g->b, NULL, &g->error);
}

static truce_status item_index(truce_item *item, struct given *g)
{
    return truce_item_index(item, TRUCE_ITEM_MAP, "a", g->a, &g->error);
}

#define ITEM_CALL(name)                                                                            \
    static truce_status call_##name(struct given *g)                                               \
    {                                                                                              \
        return in_item(g, name);                                                                   \
    }

ITEM_CALL(item_update)
ITEM_CALL(item_add)
ITEM_CALL(item_replace)
ITEM_CALL(item_upsert)
ITEM_CALL(item_remove)
ITEM_CALL(item_index)

static truce_status call_item_key(struct given *g)
{
    char *key = truce_item_key(g->id);

    bson_free(key);
    return key ? TRUCE_OK : TRUCE_INVALID;
}

static truce_set *new_set(truce_store *store)
{
    truce_set_options options = {
        .collection = "things", .key = "a", .field = "list", .name = "name"};

    return truce_set_new(store, &options);
}

static truce_status call_set_add(struct given *g)
{
    truce_set *set = new_set(g->store);
    truce_set_outcome outcome;
    truce_status status = truce_set_add(set, NULL, g->a, g->b, 1, &outcome, &g->error);

    truce_set_free(set);
    return status;
}

static truce_status call_set_show(struct given *g)
{
    truce_set *set = new_set(g->store);
    bson_t document;
    truce_status status = truce_set_show(set, g->a, &document, &g->error);

    bson_destroy(&document);
    truce_set_free(set);
    return status;
}

static truce_status call_set_replay(struct given *g)
{
    truce_set *set = new_set(g->store);
    truce_status status = truce_set_replay(set, g->a, 9, NULL, NULL, &g->error);

    truce_set_free(set);
    return status;
}

/* ---- transfers ------------------------------------------------------------------------------- */

typedef truce_status transfer_step(truce_transfers *transfers, struct given *g);

static truce_status in_transfers(struct given *g, transfer_step *step)
{
    truce_transfer_options options = {
        .collection = "moves", .accounts = "things", .mechanism = TRUCE_MECHANISM_JOURNAL};
    truce_transfers *transfers = truce_transfers_new(g->store, &options);
    truce_status status = step(transfers, g);

    truce_transfers_free(transfers);
    return status;
}

static truce_status transfer_entry(truce_transfers *transfers, struct given *g)
{
    truce_transfer_entry entry = {
        .collection = "things",
        .id = &(bson_value_t){.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}},
        .guard = g->a,
        .effect = g->b,
        .undo = g->c};
    bson_value_t id = {.value_type = BSON_TYPE_INT32};
    truce_transfer transfer = {.id = &id, .entries = &entry, .count = 1};

    return truce_transfer_start(transfers, NULL, &transfer, NULL, &g->error);
}

static truce_status transfer_move(truce_transfers *transfers, struct given *g)
{
    bson_value_t one = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};
    truce_transfer transfer = {
        .id = &one, .source = &one, .destination = g->id, .value = &one, .meta = g->a};

    return truce_transfer_start(transfers, NULL, &transfer, NULL, &g->error);
}

static truce_status transfer_resume(truce_transfers *transfers, struct given *g)
{
    return truce_transfer_resume(transfers, g->id, &g->error);
}

static truce_status call_transfer_entry(struct given *g)
{
    return in_transfers(g, transfer_entry);
}

static truce_status call_transfer_move(struct given *g)
{
    return in_transfers(g, transfer_move);
}

static truce_status call_transfer_resume(struct given *g)
{
    return in_transfers(g, transfer_resume);
}

/* ---- consistent copies ----------------------------------------------------------------------- */

static truce_status call_sync_declare(struct given *g)
{
    truce_sync *sync = truce_sync_new(g->store, NULL);
    truce_sync_rule rule = {.name = "r",
                            .source = "things",
                            .dependent = "others",
                            .reference = "thing",
                            .copies = g->a,
                            .settle_ms = 1};
    truce_status status = truce_sync_declare(sync, &rule, &g->error);

    truce_sync_free(sync);
    return status;
}

static truce_status call_sync_update(struct given *g)
{
    truce_sync *sync = truce_sync_new(g->store, NULL);
    truce_status status = truce_sync_update(sync, NULL, "things", g->id, g->a, NULL, &g->error);

    truce_sync_free(sync);
    return status;
}

static truce_status call_sync_insert(struct given *g)
{
    truce_sync *sync = truce_sync_new(g->store, NULL);
    truce_status status = truce_sync_insert(sync, NULL, "things", g->a, NULL, &g->error);

    truce_sync_free(sync);
    return status;
}

static truce_status call_sync_settle(struct given *g)
{
    truce_sync *sync = truce_sync_new(g->store, NULL);
    truce_status status = truce_sync_reconcile(sync, "things", g->id, NULL, &g->error);

    truce_sync_free(sync);
    return status;
}

static truce_status call_sync_read(struct given *g)
{
    truce_sync *sync = truce_sync_new(g->store, NULL);
    bson_t document;
    truce_status status = truce_sync_read(sync, "things", g->id, &document, &g->error);

    bson_destroy(&document);
    truce_sync_free(sync);
    return status;
}

/* ---- versions -------------------------------------------------------------------------------- */

typedef truce_status in_edit_function(truce_tree_edit *edit, struct given *g);

static truce_status in_edit(struct given *g, in_edit_function *function)
{
    truce_tree *tree = truce_tree_new(g->store, &(truce_tree_options){.collection = "things"});
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, NULL, &edit, &g->error);

    if (!status)
        status = function(edit, g);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
}

static truce_status tree_put(truce_tree_edit *edit, struct given *g)
{
    return truce_tree_put(edit, g->a, &g->error);
}

static truce_status call_tree_put(struct given *g)
{
    return in_edit(g, tree_put);
}

static truce_status tree_remove(truce_tree_edit *edit, struct given *g)
{
    return truce_tree_remove(edit, g->id, &g->error);
}

static truce_status call_tree_remove(struct given *g)
{
    return in_edit(g, tree_remove);
}

static truce_status tree_rebase(truce_tree_edit *edit, struct given *g)
{
    return truce_tree_rebase(edit, &(truce_tree_rebase_options){.rules = g->a}, NULL, &g->error);
}

static truce_status call_tree_rebase(struct given *g)
{
    return in_edit(g, tree_rebase);
}

typedef truce_status in_snapshot_function(truce_tree_snapshot *snapshot, struct given *g);

static truce_status in_snapshot(struct given *g, in_snapshot_function *function)
{
    truce_tree *tree = truce_tree_new(g->store, &(truce_tree_options){.collection = "things"});
    truce_tree_snapshot *snapshot;
    truce_tree_edit *edit;
    /* Beginning an edit creates the tree. */
    truce_status status = truce_tree_begin(tree, NULL, &edit, &g->error);

    if (!status)
        status = truce_tree_open(tree, NULL, &snapshot, &g->error);
    if (!status) {
        status = function(snapshot, g);
        truce_tree_close(snapshot);
    }
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
}

static truce_status tree_get(truce_tree_snapshot *snapshot, struct given *g)
{
    bson_t item;
    truce_status status = truce_tree_get(snapshot, g->id, &item, &g->error);

    bson_destroy(&item);
    return status;
}

static truce_status call_tree_get(struct given *g)
{
    return in_snapshot(g, tree_get);
}

static bool enough(const bson_t *item, void *arg)
{
    (void)item, (void)arg;
    return false;
}

static truce_status tree_find(truce_tree_snapshot *snapshot, struct given *g)
{
    truce_tree_find_options options = {.sort = g->b};

    return truce_tree_find(snapshot, g->a, &options, enough, NULL, &g->error);
}

static truce_status call_tree_find(struct given *g)
{
    return in_snapshot(g, tree_find);
}

/* Imports the document as a line of a history: as the first line or, if that fails, after a valid
 * beginning. */
static truce_status call_tree_import(struct given *g)
{
    truce_tree *tree = truce_tree_new(g->store, &(truce_tree_options){.name = "history"});
    truce_tree_import *import = truce_tree_import_new(tree);
    bson_t *head = BCON_NEW("$tree", BCON_UTF8("s"), "collection", BCON_UTF8("things"), "from",
                            BCON_INT32(1), "whole", BCON_BOOL(true)),
           *version = BCON_NEW("$version", BCON_INT32(1));
    truce_status status = truce_tree_import_line(import, g->a, &g->error);

    if (status)
        status = truce_tree_import_line(import, head, &g->error);
    if (!status)
        status = truce_tree_import_line(import, version, &g->error);
    if (!status)
        status = truce_tree_import_line(import, g->a, &g->error);
    if (!status)
        status = truce_tree_import_end(import, NULL, &g->error);
    bson_destroy(version);
    bson_destroy(head);
    truce_tree_import_free(import);
    truce_tree_free(tree);
    return status;
}

static truce_status call_tree_erase(struct given *g)
{
    truce_tree *tree = truce_tree_new(g->store, &(truce_tree_options){.collection = "things"});
    int64_t versions;
    truce_status status = truce_tree_erase(tree, g->id, &versions, &g->error);

    truce_tree_free(tree);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { A = 1, B = 2, C = 4, ID = 8, DOCUMENTS = 3, PLACES = 4 };

static const struct entry_point {
    const char *name;
    truce_status (*call)(struct given *g);
    /* The arguments that the call uses: bits of A, B, C, and ID. */
    unsigned takes;
} entry_points[] = {
    {"find", call_find, A | B | C},
    {"find hint", call_hint, A},
    {"find span", call_span, A | B | C},
    {"count", call_count, A},
    {"distinct", call_distinct, A},
    {"aggregate", call_aggregate, A},
    {"insert", call_insert, A},
    {"update", call_update, A | B | C},
    {"remove", call_remove, A},
    {"index_create", call_index, A},
    {"commit_begin", call_commit_input, A},
    {"commit_read", call_read, ID},
    {"commit_require", call_require, A | ID},
    {"commit_require_missing", call_missing, ID},
    {"commit_hold", call_hold, A | ID},
    {"commit_insert", call_commit_insert, A},
    {"commit_update", call_commit_update, A | B | ID},
    {"commit_replace", call_commit_replace, A | B | ID},
    {"commit_remove", call_commit_remove, A | ID},
    {"commit_change", call_change, A | ID},
    {"commit_changes", call_changes, A},
    {"changes_apply", call_changes_apply, A},
    {"changes_diff", call_changes_diff, A | B},
    {"request_add", call_request, A},
    {"revision_save", call_save, A | B},
    {"revision_merge", call_merge, A | B | C},
    {"revision_patch", call_patch, A | ID},
    {"revision_remove", call_forget, ID | A},
    {"revision_at", call_at, ID},
    {"revision_log", call_log, ID},
    {"revision_diff", call_revision_diff, A | B},
    {"item_update", call_item_update, A | B | C},
    {"item_add", call_item_add, A | B},
    {"item_replace", call_item_replace, A | B | C},
    {"item_upsert", call_item_upsert, A | B},
    {"item_remove", call_item_remove, A | B},
    {"item_index", call_item_index, A},
    {"item_key", call_item_key, ID},
    {"queue_add", call_queue_add, A | B},
    {"queue_tags", call_queue_tags, A},
    {"queue_add_many", call_queue_add_many, A | B},
    {"job_done", call_job_done, A},
    {"job_progress", call_job_progress, A},
    {"set_add", call_set_add, A | B},
    {"set_show", call_set_show, A},
    {"set_replay", call_set_replay, A},
    {"transfer_entry", call_transfer_entry, A | B | C},
    {"transfer_move", call_transfer_move, A | ID},
    {"transfer_resume", call_transfer_resume, ID},
    {"sync_declare", call_sync_declare, A},
    {"sync_update", call_sync_update, A | ID},
    {"sync_insert", call_sync_insert, A},
    {"sync_settle", call_sync_settle, ID},
    {"sync_read", call_sync_read, ID},
    {"tree_put", call_tree_put, A},
    {"tree_remove", call_tree_remove, ID},
    {"tree_rebase", call_tree_rebase, A},
    {"tree_get", call_tree_get, ID},
    {"tree_find", call_tree_find, A | B},
    {"tree_erase", call_tree_erase, ID},
    {"tree_import", call_tree_import, A},
};

const uint32_t entry_points_count = sizeof entry_points / sizeof *entry_points;

const char *entry_point_name(uint32_t number)
{
    return entry_points[number].name;
}

uint32_t entry_point_places(uint32_t number)
{
    uint32_t places = 0;

    for (unsigned takes = entry_points[number].takes; takes; takes &= takes - 1)
        places++;
    return places;
}

static bson_value_t value_of(const bson_t *document)
{
    bson_value_t value = {.value_type = BSON_TYPE_DOCUMENT};

    value.value.v_doc.data = (uint8_t *)bson_get_data(document);
    value.value.v_doc.data_len = document->len;
    return value;
}

/* ---- malformed ------------------------------------------------------------------------------- */

/* Returns a document, most of the time a malformed one: libbson accepts its length, and no more. */
static void spoil(struct fuzz_input *input, bson_t *document, bson_t *view)
{
    uint8_t *bytes = (uint8_t *)bson_get_data(document);
    uint32_t changes = fuzz_below(input, 4);

    for (uint32_t i = 0; i < changes && document->len > 5; i++)
        bytes[4 + fuzz_below(input, document->len - 5)] = fuzz_byte(input);
    if (!bson_init_static(view, bytes, document->len))
        bson_init(view);
}

truce_status entry_point_call(uint32_t number, truce_store *store, struct fuzz_input *input)
{
    bson_t *documents[PLACES], views[PLACES];
    struct given given = {.store = store};
    bson_value_t id;
    truce_status status;

    for (int i = 0; i < PLACES; i++) {
        documents[i] = i ? fuzz_document(input, 3) : fuzz_filter(input, 3);
        spoil(input, documents[i], &views[i]);
    }
    id = value_of(&views[3]);
    if (fuzz_below(input, 2))
        id = (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    given.a = &views[0];
    given.b = &views[1];
    given.c = fuzz_below(input, 2) ? &views[2] : NULL;
    given.id = &id;
    status = entry_points[number].call(&given);
    for (int i = 0; i < PLACES; i++)
        bson_destroy(documents[i]);
    return status;
}

truce_status entry_point_call_with(uint32_t number, truce_store *store, const bson_t *document,
                                   uint32_t place)
{
    static const char *const ordinary[] = {"a", "n"};
    bson_t *other = BCON_NEW("_id", BCON_INT32(1), ordinary[0], BCON_INT32(1));
    bson_t *update = BCON_NEW("$set", "{", ordinary[1], BCON_INT32(2), "}");
    const bson_t *documents[DOCUMENTS] = {other, update, NULL};
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    struct given given = {.store = store};
    unsigned takes = entry_points[number].takes;
    truce_status status;

    for (int i = 0; i < PLACES; i++) {
        if (!(takes & 1u << i) || place--)
            continue;
        if (i < DOCUMENTS)
            documents[i] = document;
        else
            id = value_of(document);
    }
    given.a = documents[0];
    given.b = documents[1];
    given.c = documents[2];
    given.id = &id;
    status = entry_points[number].call(&given);
    bson_destroy(other);
    bson_destroy(update);
    return status;
}
