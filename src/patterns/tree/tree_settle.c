/*
 * Settling: a version's items are stamped, and its token leaves the master (T4, T6 of tree.c).
 *
 * Whoever was stopped between the look and a stamp stamps by _id what was there when the version was not settled; what lands late
 * has another _id. So any number of sweepers are safe, stopped for however long.
 */
#include <string.h>

#include "base/deadline.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

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

truce_status truce__tree_settle_first(truce_tree *tree, struct tree_master *master, bool *done,
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
        status = truce__tree_settle_first(tree, &master, done, error);
    truce__tree_master_release(&master);
    return status;
}
