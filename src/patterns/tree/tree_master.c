/* The master: how it is read, and written. */
#include <string.h>

#include "base/field.h"
#include "base/id.h"
#include "commit/metadata_cache.h"
#include "patterns/tree/tree.h"
#include "store/reserved.h"
#include "store/store.h"

/* ---- reading ---------------------------------------------------------------------------------- */

static bool read_published(const bson_t *document, struct tree_master *master)
{
    int64_t room = master->current - master->settled, count = 0;
    struct value published = truce__value_field(truce__value_document(document), "published", 9);
    bson_iter_t array, entry;
    bson_t each;

    if (published.type != BSON_TYPE_ARRAY)
        return false;
    truce__value_bson(published, &each);
    if (bson_count_keys(&each) != room || !bson_iter_init(&array, &each))
        return false;
    master->published = bson_malloc0(((size_t)room + 1) * sizeof *master->published);
    for (; bson_iter_next(&array); count++) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&array) || !bson_iter_recurse(&array, &entry) ||
            !bson_iter_find(&entry, "token") || !BSON_ITER_HOLDS_OID(&entry))
            return false;
        bson_oid_copy(bson_iter_oid(&entry), &master->published[count].token);
        if (bson_iter_recurse(&array, &entry) && bson_iter_find(&entry, "at") &&
            BSON_ITER_HOLDS_DATE_TIME(&entry))
            master->published[count].at_ms = truce__iter_date(&entry);
    }
    return true;
}

static bool master_parse(const bson_t *document, struct tree_master *master)
{
    bson_iter_t iter;
    bson_t keep;

    if (!bson_iter_init_find(&iter, document, "born") || !BSON_ITER_HOLDS_OID(&iter))
        return false;
    bson_oid_copy(bson_iter_oid(&iter), &master->born);
    if (!truce__field_whole(document, "current", &master->current) ||
        !truce__field_whole(document, "settled", &master->settled) ||
        !truce__field_whole(document, "floor", &master->floor) ||
        !truce__field_whole(document, "gone", &master->gone) ||
        !truce__field_whole(document, "collected", &master->collected) ||
        master->current > FIELD_MAX)
        return false;
    master->at_ms = truce__field_date(document, "at");
    master->first = truce__field_count(document, "first");
    master->first = master->first > 0 ? master->first : 1;
    if (truce__value_subdocument(document, "keep", &keep)) {
        master->keep.versions = truce__field_count(&keep, "versions");
        master->keep.age_ms = truce__field_count(&keep, "age_ms");
    }
    return master->collected >= 0 && master->collected <= master->gone &&
           master->gone <= master->floor && master->floor <= master->settled &&
           read_published(document, master);
}

truce_status truce__tree_master(truce_tree *tree, struct tree_master *master, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, document;
    struct worker worker;
    bson_value_t id;
    truce_status status;

    *master = (struct tree_master){0};
    BSON_APPEND_UTF8(&holder, "_id", tree->name);
    id = truce__document_id(&holder);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    worker.latest =
        true; /* a look at the master after a read, a hold, or a stamp decides about these (T5 to T7) */
    status = truce__journal_look(&worker, TREES, &id, &document, error);
    if (!status && bson_has_field(&document, "dropped"))
        status = TRUCE_NOT_FOUND;
    if (status == TRUCE_NOT_FOUND)
        (void)truce__fail(status, error, "there is no tree \"%s\"", tree->name);
    if (!status && !master_parse(&document, master))
        status = truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is no tree of truce's", TREES,
                             tree->name);
    bson_destroy(&document);
    bson_destroy(&holder);
    return status;
}

void truce__tree_master_release(struct tree_master *master)
{
    bson_free(master->published);
    master->published = NULL;
}

bool truce__tree_counts(const struct tree_master *master, const struct tree_item *item)
{
    if (item->version <= 0 || item->version > master->current)
        return false;
    if (item->version <= master->settled)
        return item->stamped;
    return item->token.type == BSON_TYPE_OID &&
           !memcmp(item->token.data,
                   master->published[item->version - master->settled - 1].token.bytes,
                   item->token.size);
}

bool truce__tree_accepts(const struct tree_master *master, const bson_t *document)
{
    struct tree_item item;

    truce__tree_look(document, &item);
    return truce__tree_counts(master, &item);
}

/* ---- writing ---------------------------------------------------------------------------------- */

truce_status truce__tree_indexes(truce_tree *tree, bson_error_t *error)
{
    struct {
        const char *collection;
        bson_t *index;
    } all[] = {
        {tree->collection,
         BCON_NEW("key", "{", "tree", BCON_INT32(1), "itemId", BCON_INT32(1), "version",
                  BCON_INT32(1), "token", BCON_INT32(1), "}", "unique", BCON_BOOL(true))},
        {tree->collection,
         BCON_NEW("key", "{", "tree", BCON_INT32(1), "version", BCON_INT32(1), "}")},
        {TREE_EDITS, BCON_NEW("key", "{", "tree", BCON_INT32(1), "version", BCON_INT32(1), "}")},
        {TREE_HOLDS, BCON_NEW("key", "{", "tree", BCON_INT32(1), "version", BCON_INT32(1), "}")},
    };
    uint64_t structure;
    bool known = truce__memo_known(tree->store, "tree", tree->collection, &structure);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!status && !known)
            status = truce__index_ensure(tree->store, all[i].collection, all[i].index, error);
        bson_destroy(all[i].index);
    }
    if (!status && !known)
        truce__memo_learn(tree->store, "tree", tree->collection, structure);
    return status;
}

static truce_status insert_master(truce_tree *tree, bson_error_t *error)
{
    int64_t before = tree->first ? tree->first - 1 : 0;
    bson_t *document =
        BCON_NEW("_id", BCON_UTF8(tree->name), "collection", BCON_UTF8(tree->collection), "current",
                 BCON_INT64(before), "settled", BCON_INT64(before), "published", "[", "]", "floor",
                 BCON_INT64(before), "gone", BCON_INT64(before), "collected", BCON_INT64(before));
    bson_oid_t born;
    truce_status status;

    truce__id_new(&born);
    BSON_APPEND_OID(document, "born", &born);
    if (before)
        BSON_APPEND_INT64(document, "first", tree->first);
    if (tree->parent)
        BSON_APPEND_UTF8(document, "parent", tree->parent);
    status = truce_insert(tree->store, TREES, document, NULL, error);
    bson_destroy(document);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

truce_status truce__tree_make(truce_tree *tree, bson_error_t *error)
{
    struct worker worker;
    truce_status status = truce__tree_end_drop(tree, error);

    if (!status)
        status = truce__tree_indexes(tree, error);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    while (!status) {
        status = insert_master(tree, error);
        if (!truce__repeatable(status) || truce__worker_wait(&worker, "the store", NULL))
            break;
        status = TRUCE_OK;
    }
    return status;
}

/* {$set: {_rev}} beside what the update says. */
static void append_rev(const bson_t *update, bson_t *with)
{
    bson_t set, said;
    bson_oid_t rev;

    bson_copy_to_excluding_noinit(update, with, "$set", NULL);
    truce__id_new(&rev);
    BSON_APPEND_DOCUMENT_BEGIN(with, "$set", &set);
    if (truce__value_subdocument(update, "$set", &said))
        bson_concat(&set, &said);
    BSON_APPEND_OID(&set, "_rev", &rev);
    bson_append_document_end(with, &set);
}

truce_status truce__tree_write_master(truce_tree *tree, const struct tree_master *master,
                                      bson_t *guard, bson_t *update, bool *done,
                                      bson_error_t *error)
{
    truce_write_result result = {0};
    struct worker worker;
    bson_error_t waited;
    bson_t with = BSON_INITIALIZER;
    truce_status status;

    *done = false;
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    BSON_APPEND_UTF8(guard, "_id", tree->name);
    BCON_APPEND(guard, "born", BCON_OID(&master->born), "dropped", "{", "$exists", BCON_BOOL(false),
                "}");
    truce__intent_append_absent(guard);
    append_rev(update, &with);
    do {
        status = truce_update(tree->store, TREES, guard, &with, NULL, &result, error);
        *done = *done || (!status && result.matched);
        truce_write_result_release(&result);
    } while (truce__repeatable(status) && !truce__worker_wait(&worker, "the master", &waited));
    bson_destroy(&with);
    bson_destroy(update);
    bson_destroy(guard);
    return status;
}
