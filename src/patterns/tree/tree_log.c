/* The log: the records of what was published. */
#include "base/deadline.h"
#include "base/field.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"

/* Of one that is not settled the time stands in the master. */
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

/* A record's _id is its token, as an item has one. */
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
    if (!function)
        return truce__fail(TRUCE_INVALID, error, "%s needs a function", __func__);
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

truce_status truce__tree_entry(truce_tree *tree, const struct tree_master *master, int64_t version,
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
