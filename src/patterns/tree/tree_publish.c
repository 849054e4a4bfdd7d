/* Publishes a version with one write of the master (T1 of tree.c), and settles published versions. */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "commit/commit.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

/* ---- settle ---------------------------------------------------------------------------------- */

/*
 * Settling: a version's items are stamped, and its token leaves the master (T4, T6 of tree.c).
 *
 * Whoever was stopped between the look and a stamp stamps by _id what was there when the version was not settled; what lands late
 * has another _id. So any number of sweepers are safe, stopped for however long.
 */

#define STAMPS 500 /* in one write */

struct settling {
    truce_tree *tree;
    int64_t version;
    struct tree_version published;
    bson_t **ids;  /* arrays of STAMPS _ids */
    size_t count;  /* of arrays */
    uint32_t last; /* _ids in the last one */
};

static void take_id(struct settling *settling, const bson_value_t *id)
{
    char key[12];

    if (!settling->count || settling->last == STAMPS) {
        settling->ids = bson_realloc(settling->ids, (settling->count + 1) * sizeof *settling->ids);
        settling->ids[settling->count++] = bson_new();
        settling->last = 0;
    }
    snprintf(key, sizeof key, "%u", settling->last++);
    BSON_APPEND_VALUE(settling->ids[settling->count - 1], key, id);
}

static void forget_ids(struct settling *settling)
{
    for (size_t i = 0; i < settling->count; i++)
        bson_destroy(settling->ids[i]);
    bson_free(settling->ids);
    settling->ids = NULL;
    settling->count = 0;
}

/* The items of the version that have no stamp. */
static truce_status tree_settle_look(struct settling *settling, bson_error_t *error)
{
    bson_t filter, *only_id = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.projection = only_id};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(settling->tree, &filter);
    BSON_APPEND_INT64(&filter, "version", settling->version);
    BSON_APPEND_OID(&filter, "token", &settling->published.token);
    BCON_APPEND(&filter, "pub", "{", "$exists", BCON_BOOL(false), "}");
    status = truce_find(settling->tree->store, settling->tree->collection, &filter, &options,
                        &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        bson_value_t id = truce__document_id(document);

        take_id(settling, &id);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(only_id);
    return status;
}

/* The first version that is not settled; false: there is none. */
static bool take_first(struct settling *settling, const struct tree_master *master)
{
    if (master->settled >= master->current)
        return false;
    settling->version = master->settled + 1;
    settling->published = master->published[0];
    return true;
}

/* Is it still the first? */
static truce_status settle_look_again(struct settling *settling, bool *mine,
                                      struct tree_master *master, bson_error_t *error)
{
    truce_status status = truce__tree_master(settling->tree, master, error);

    *mine = !status && master->settled < master->current &&
            settling->version == master->settled + 1 &&
            bson_oid_equal(&settling->published.token, &master->published[0].token);
    return status;
}

static truce_status write_stamps(struct settling *settling, const char *collection, bson_t *filter,
                                 bson_t *update, bson_error_t *error)
{
    truce_write_options options = {.multi = true, .relaxed = truce__tree_relaxed(settling->tree)};
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, settling->tree->store, settling->tree->deadline_ms);
    do
        status =
            truce_update(settling->tree->store, collection, filter, update, &options, NULL, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

static truce_status settle_stamp(struct settling *settling, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; !status && i < settling->count; i++)
        status = write_stamps(settling, settling->tree->collection,
                              BCON_NEW("_id", "{", "$in", BCON_ARRAY(settling->ids[i]), "}", "pub",
                                       "{", "$exists", BCON_BOOL(false), "}"),
                              BCON_NEW("$set", "{", "pub", BCON_BOOL(true), "}"), error);
    return status;
}

static truce_status stamp_record(struct settling *settling, bson_error_t *error)
{
    return write_stamps(settling, TREE_EDITS, BCON_NEW("_id", BCON_OID(&settling->published.token)),
                        BCON_NEW("$set", "{", "pub", BCON_BOOL(true), "state",
                                 BCON_UTF8("published"), "at",
                                 BCON_DATE_TIME(settling->published.at_ms), "}"),
                        error);
}

/* The look, THEN the master again, THEN the stamps. *mine: the version is still to be settled. */
static truce_status stamp_all(struct settling *settling, struct tree_master *master, bool *mine,
                              bson_error_t *error)
{
    truce_status status = tree_settle_look(settling, error);

    truce__tree_master_release(master);
    if (!status)
        status = settle_look_again(settling, mine, master, error);
    return status || !*mine ? status : settle_stamp(settling, error);
}

/* The same, of a master that was looked at just now, and is looked at once more. */
static truce_status tree_settle_first(truce_tree *tree, struct tree_master *master, bool *done,
                                      bson_error_t *error)
{
    struct settling settling = {.tree = tree};
    bool mine = false, written;
    truce_status status = TRUCE_OK;

    *done = take_first(&settling, master);
    if (*done)
        status = stamp_all(&settling, master, &mine, error);
    if (!status && mine)
        status = stamp_record(&settling, error);
    if (!status && mine)
        status = truce__tree_write_master(tree, master,
                                          BCON_NEW("settled", BCON_INT64(settling.version - 1)),
                                          BCON_NEW("$inc", "{", "settled", BCON_INT64(1), "}",
                                                   "$pop", "{", "published", BCON_INT32(-1), "}"),
                                          &written, error);
    forget_ids(&settling);
    return status;
}

truce_status truce__tree_settle(truce_tree *tree, bool *done, bson_error_t *error)
{
    struct tree_master master = {0};
    truce_status status = truce__tree_master(tree, &master, error);

    *done = false;
    if (!status)
        status = tree_settle_first(tree, &master, done, error);
    truce__tree_master_release(&master);
    return status;
}

/* ---- publish --------------------------------------------------------------------------------- */

struct found_request {
    int64_t version; /* 0: none */
    bool own;        /* by this very edit */
};

static truce_status conflict(const truce_tree_edit *edit, truce_status status, int64_t current,
                             bson_error_t *error)
{
    return truce__fail(status, error,
                       "version %" PRId64
                       " of tree \"%s\" stands, and the edit is of version %" PRId64 ": rebase it",
                       current, edit->tree->name, edit->base);
}

static truce_status publish_another(const truce_tree_edit *edit, bson_error_t *error)
{
    return truce__fail(TRUCE_NOT_FOUND, error,
                       "tree \"%s\" is another one than that which was edited", edit->tree->name);
}

/* Above `settled` the master tells, below it the stamp of the record. */
truce_status truce__tree_published(const truce_tree_edit *edit, const struct tree_master *master,
                                   bool *published, bson_error_t *error)
{
    int64_t version = edit->base + 1;
    bson_t *filter, found;
    truce_status status = TRUCE_OK;

    *published = false;
    if (version > master->current)
        return TRUCE_OK;
    if (version > master->settled) {
        *published =
            bson_oid_equal(&edit->token, &master->published[version - master->settled - 1].token);
        return TRUCE_OK;
    }
    filter = BCON_NEW("_id", BCON_OID(&edit->token), "pub", BCON_BOOL(true));
    status = truce_find_one(edit->tree->store, TREE_EDITS, filter, NULL, &found, error);
    *published = !status;
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Times never go back, whatever the clock does. */
static int64_t publish_time_of(const truce_tree_edit *edit)
{
    int64_t now_ms = edit->at_ms ? edit->at_ms : truce__clock_wall_ms();

    return now_ms > edit->base_at_ms ? now_ms : edit->base_at_ms;
}

static bson_t *publishing(const truce_tree_edit *edit)
{
    int64_t at_ms = publish_time_of(edit);

    return BCON_NEW("$inc", "{", "current", BCON_INT64(1), "}", "$max", "{", "at",
                    BCON_DATE_TIME(at_ms), "}", "$push", "{", "published", "{", "token",
                    BCON_OID(&edit->token), "at", BCON_DATE_TIME(at_ms), "}", "}");
}

/* ---- alone ------------------------------------------------------------------------------------ */

static truce_status publish_alone(truce_tree_edit *edit, bson_error_t *error)
{
    struct tree_master master = {0};
    struct worker worker;
    bool done = false, other = false;
    truce_status status;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    for (;;) {
        status = truce__tree_write_master(edit->tree, &(struct tree_master){.born = edit->born},
                                          BCON_NEW("current", BCON_INT64(edit->base)),
                                          publishing(edit), &done, error);
        if (status || done)
            break;
        /* somebody was first; or we were, unanswered; or a commit is at work on the master, whom the look waits for */
        truce__tree_master_release(&master);
        status = truce__tree_master(edit->tree, &master, error);
        other = !status && !bson_oid_equal(&master.born, &edit->born);
        if (!status && !other)
            status = truce__tree_published(edit, &master, &done, error);
        if (status || done || other || master.current != edit->base)
            break;
        status = truce__worker_wait(&worker, "the master", error);
        if (status)
            break;
    }
    if (!status && other)
        status = publish_another(edit, error);
    else if (!status && !done)
        status = conflict(edit, TRUCE_CONFLICT, master.current, error);
    truce__tree_master_release(&master);
    return status;
}

/* Keeps the master short where nobody sweeps. What cannot be settled now is the sweep's. */
static void settle_one(truce_tree *tree)
{
    struct tree_master master = {0};
    bson_error_t nobody;
    bool done;

    if (!truce__tree_master(tree, &master, &nobody) &&
        master.current - master.settled > TREE_UNSETTLED)
        (void)!tree_settle_first(tree, &master, &done, &nobody);
    truce__tree_master_release(&master);
}

/* ---- in a commit ------------------------------------------------------------------------------ */

static truce_status tree_publish_publish_in(truce_tree_edit *edit, truce_commit *commit,
                                            bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, document, *update;
    bson_value_t id;
    bson_iter_t iter;
    int64_t current;
    truce_status status;

    BSON_APPEND_UTF8(&holder, "_id", edit->tree->name);
    id = truce__document_id(&holder);
    status = truce_commit_read(commit, TREES, &id, &document, error);
    current = truce__field_count(&document, "current");
    if (!status && (!bson_iter_init_find(&iter, &document, "born") || !BSON_ITER_HOLDS_OID(&iter) ||
                    !bson_oid_equal(bson_iter_oid(&iter), &edit->born) ||
                    bson_has_field(&document, "dropped")))
        status = TRUCE_NOT_FOUND;
    if (status == TRUCE_NOT_FOUND)
        status = publish_another(edit, error);
    if (!status && current != edit->base)
        status = conflict(edit, TRUCE_REFUSED, current, error);
    if (!status) {
        update = publishing(edit);
        status = truce_commit_update(commit, TREES, &id, NULL, update, error);
        bson_destroy(update);
    }
    bson_destroy(&document);
    bson_destroy(&holder);
    return status;
}

/* ---- under an id of the caller's --------------------------------------------------------------- */

/* The version that was published under it, in what `master` has; 0: none. */
static truce_status find_request(const truce_tree_edit *edit, const struct tree_master *master,
                                 struct found_request *found, bson_error_t *error)
{
    const bson_t *record;
    truce_cursor *cursor = NULL;
    bson_iter_t token;
    bson_t filter;
    truce_status status;

    truce__tree_filter(edit->tree, &filter);
    BCON_APPEND(&filter, "version", "{", "$gt", BCON_INT64(edit->since), "}", "request.id",
                BCON_OID(&edit->id));
    status = truce_find(edit->tree->store, TREE_EDITS, &filter, NULL, &cursor, error);
    while (!status && !found->version && !(status = truce_cursor_next(cursor, &record, error)) &&
           record) {
        if (!truce__tree_records(master, record) || !bson_iter_init_find(&token, record, "_id"))
            continue;
        found->version = truce__field_count(record, "version");
        found->own = bson_oid_equal(bson_iter_oid(&token), &edit->token);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

/* T12: the master, THEN the records of what it has, THEN whether one may have been removed meanwhile. */
static truce_status look_for_request(truce_tree_edit *edit, struct found_request *found,
                                     bson_error_t *error)
{
    struct tree_master master = {0}, now = {0};
    truce_status status = truce__tree_master(edit->tree, &master, error);

    *found = (struct found_request){0};
    if (!status && !bson_oid_equal(&master.born, &edit->born))
        status = publish_another(edit, error);
    if (!status && master.current > edit->since) {
        status = find_request(edit, &master, found, error);
        if (!status && !found->version)
            status = truce__tree_master(edit->tree, &now, error);
        if (!status && edit->since_said && now.gone > edit->since + 1)
            status = truce__fail(TRUCE_EXPIRED, error,
                                 "version %" PRId64
                                 " of tree \"%s\" is collected: nobody can tell whether the edit "
                                 "was published",
                                 edit->since + 1, edit->tree->name);
    }
    truce__tree_master_release(&now);
    truce__tree_master_release(&master);
    return status;
}

bool truce__tree_exists(truce_tree_edit *edit)
{
    struct found_request found = {0};

    return edit->has_id && !look_for_request(edit, &found, NULL) && found.version;
}

static void take_found(truce_tree_edit *edit, const struct found_request *found,
                       truce_tree_published *published)
{
    if (!found->own && !edit->published)
        (void)!truce_tree_abandon(edit, NULL); /* else the sweep does */
    edit->published = true;
    *published = (truce_tree_published){.version = found->version, .exists = !found->own};
}

/* ---- the call --------------------------------------------------------------------------------- */

truce_status truce_tree_publish(truce_tree_edit *edit, truce_commit *commit,
                                truce_tree_published *published, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    truce_tree_published nobody;
    struct found_request found;
    truce_status status = TRUCE_OK;

    published = published ? published : &nobody;
    *published = (truce_tree_published){.version = edit->base};
    if (commit && commit->store != edit->tree->store)
        return truce__fail(TRUCE_INVALID, error, "tree \"%s\" and the commit are of two stores",
                           edit->tree->name);
    if (edit->has_id && !edit->published) {
        status = look_for_request(edit, &found, error);
        if (!status && found.version)
            take_found(edit, &found, published);
        if (status || found.version)
            return status;
    }
    published->nothing = !edit->count && !edit->written && !edit->even_empty;
    if (published->nothing)
        return TRUCE_OK;
    if (!edit->published) {
        status = truce_tree_flush(edit, error);
        if (!status && edit->tree->parent)
            status = truce__tree_check_shape(edit, error);
    }
    if (!status && commit)
        status = tree_publish_publish_in(edit, commit, error);
    else if (!status && !edit->published)
        status = publish_alone(edit, error);
    if (status == TRUCE_CONFLICT && edit->has_id && !look_for_request(edit, &found, NULL) &&
        found.version) {
        take_found(edit, &found, published);
        return TRUCE_OK;
    }
    if (status)
        return status;
    published->version = edit->base + 1;
    if (!commit) {
        edit->published = true;
        settle_one(edit->tree);
    }
    return TRUCE_OK;
}
