#include "commit/unique.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "commit/memo.h"
#include "query/catalog.h"
#include "query/project.h"

/*
 * After the decision a release must not be refused, by an index least of all. So each index of the
 * collection is asked before: its keys are made of the document as it will be (a compound index
 * over two arrays would refuse it), and values under a unique index are taken in advance:
 *
 *   an insert    puts them into its stub: from then on the index itself keeps others away
 *   an update    of such a value would have to hold two keys, the old one in case of an abort, the
 * new one in case of a commit, so the journal refuses it, naming the index; with a remove and an
 * insert in two commits, or a store with native commits, it can be done
 */

typedef truce_status spec_function(const struct index_spec *spec, void *arg, bson_error_t *error);

static truce_status each_index(truce_store *store, const char *collection, spec_function *function,
                               void *arg, bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce__memo_indexes(store, collection, &indexes, error);
    bson_iter_t iter;

    if (!status)
        truce_assert(bson_iter_init(&iter, &indexes));
    while (!status && bson_iter_next(&iter)) {
        struct index_spec spec = {0};
        const uint8_t *bytes;
        uint32_t length;
        bson_t definition;

        bson_iter_document(&iter, &length, &bytes);
        truce_assert(bson_init_static(&definition, bytes, length));
        status = truce__index_spec_parse(&definition, &spec, error);
        if (!status)
            status = function(&spec, arg, error);
        truce__index_spec_release(&spec);
    }
    bson_destroy(&indexes);
    return status;
}

/* ---- keys before and after ------------------------------------------------------------------ */

static bool same_keys(const struct index_keys *a, const struct index_keys *b)
{
    return a->count == b->count && a->bytes.size == b->bytes.size &&
           (!a->bytes.size || !memcmp(a->bytes.bytes, b->bytes.bytes, a->bytes.size));
}

static truce_status check_index(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    const struct entry *entry = arg;
    struct index_keys before = {0}, after = {0};
    truce_status status =
        truce__index_keys(spec, truce__value_document(&entry->after), &after, error);
    char text[300];

    if (!status && spec->unique && !spec->is_id && entry->token.found) {
        status = truce__index_keys(spec, truce__value_document(&entry->base), &before, error);
        if (!status && !same_keys(&before, &after))
            status =
                truce__fail(TRUCE_INVALID, error,
                            "the journal cannot change what the unique index \"%s\" holds of %s: "
                            "insert a document with the new value and remove this one in a later "
                            "commit, or use a store that commits natively",
                            spec->name, truce__entry_show(entry, text, sizeof text));
    }
    truce__index_keys_release(&before);
    truce__index_keys_release(&after);
    return status;
}

truce_status truce__unique_check(truce_store *store, const struct entry *entry, bson_error_t *error)
{
    if (!entry->after_found)
        return TRUCE_OK;
    return each_index(store, entry->collection, check_index, (void *)entry, error);
}

/* ---- the stub ------------------------------------------------------------------------------- */

static void include(bson_t *projection, const char *path)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, projection, path))
        bson_append_int32(projection, path, -1, 1);
}

/* The fields that a filter speaks of, whole. */
static void include_filter(bson_t *projection, const bson_t *filter)
{
    bson_iter_t iter, below;

    truce_assert(bson_iter_init(&iter, filter));
    while (bson_iter_next(&iter)) {
        const char *name = bson_iter_key(&iter);

        if (name[0] != '$') {
            include(projection, name);
            continue;
        }
        if (!bson_iter_recurse(&iter, &below))
            continue;
        while (bson_iter_next(&below)) {
            const uint8_t *bytes;
            uint32_t length;
            bson_t inner;

            if (!BSON_ITER_HOLDS_DOCUMENT(&below))
                continue;
            bson_iter_document(&below, &length, &bytes);
            if (bson_init_static(&inner, bytes, length))
                include_filter(projection, &inner);
        }
    }
}

/* Paths of which one contains the other are refused by projections: the outer one is enough. */
static bool covered(const bson_t *projection, const char *path)
{
    bson_iter_t iter;

    truce_assert(bson_iter_init(&iter, projection));
    while (bson_iter_next(&iter)) {
        size_t length = strlen(bson_iter_key(&iter));

        if (strcmp(bson_iter_key(&iter), path) != 0 &&
            !strncmp(bson_iter_key(&iter), path, length) && path[length] == '.')
            return true;
    }
    return false;
}

static truce_status collect_unique(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    bson_t *projection = arg;

    (void)error;
    if (!spec->unique || spec->is_id)
        return TRUCE_OK;
    for (uint32_t i = 0; i < spec->count; i++)
        include(projection, spec->fields[i].path.text);
    if (spec->partial_filter)
        include_filter(projection, spec->partial_filter);
    return TRUCE_OK;
}

static truce_status project_stub(const struct entry *entry, const bson_t *paths, bson_t *stub,
                                 bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    bson_t projection = BSON_INITIALIZER;
    struct project *project = NULL;
    truce_status status;
    bson_iter_t iter;

    BSON_APPEND_INT32(&projection, "_id", 1);
    truce_assert(bson_iter_init(&iter, paths));
    while (bson_iter_next(&iter)) {
        if (!covered(paths, bson_iter_key(&iter)))
            bson_append_int32(&projection, bson_iter_key(&iter), -1, 1);
    }
    status = truce__project_new(&projection, NULL, &project, error);
    if (!status) {
        bson_destroy(stub);
        status = truce__project_apply(project, truce__value_document(&entry->after), NULL, &context,
                                      stub, error);
    }
    truce__project_free(project);
    bson_destroy(&projection);
    truce__arena_release(&arena);
    return status;
}

truce_status truce__unique_stub(truce_store *store, const struct entry *entry,
                                const bson_oid_t *commit, bson_t *stub, bson_error_t *error)
{
    bson_t paths = BSON_INITIALIZER, intent;
    truce_status status;

    bson_init(stub);
    status = each_index(store, entry->collection, collect_unique, &paths, error);
    if (!status && !bson_empty(&paths) && entry->after_found)
        status = project_stub(entry, &paths, stub, error);
    else if (!status)
        BSON_APPEND_VALUE(stub, "_id", &entry->id);
    if (!status) {
        bson_append_document_begin(stub, "_intent", 7, &intent);
        BSON_APPEND_OID(&intent, "c", commit);
        BSON_APPEND_BOOL(&intent, "new", true);
        bson_append_document_end(stub, &intent);
    }
    bson_destroy(&paths);
    return status;
}

/* ---- who has the value ---------------------------------------------------------------------- */

struct search {
    struct worker *worker;
    const struct entry *entry;
    bool met; /* a holder under an intent was met: try again */
};

static truce_status judge_holder(struct search *search, const struct index_spec *spec,
                                 const bson_t *filter, bson_error_t *error)
{
    bson_t holder;
    truce_status status = truce_find_one(search->worker->store, search->entry->collection, filter,
                                         NULL, &holder, error);
    char text[300];

    if (status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
    } else if (!status && !truce__intent_absent(&holder)) {
        search->met = true;
        status = truce__intent_meet(search->worker, search->entry->collection, &holder, error);
    } else if (!status) {
        status = truce__fail(TRUCE_DUPLICATE, error,
                             "%s cannot be inserted: another document has its value of the unique "
                             "index \"%s\"",
                             truce__entry_show(search->entry, text, sizeof text), spec->name);
    }
    bson_destroy(&holder);
    return status;
}

static truce_status search_index(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    struct search *search = arg;
    struct index_keys keys = {0};
    truce_status status = TRUCE_OK;

    if (!spec->unique || spec->is_id)
        return TRUCE_OK;
    status = truce__index_keys(spec, truce__value_document(&search->entry->after), &keys, error);
    for (uint32_t i = 0, start = 0; !status && !search->met && i < keys.count; i++) {
        bson_t filter;

        truce__index_key_values(spec, truce__value_document(&search->entry->after),
                                keys.bytes.bytes + start, keys.ends[i] - start, &filter);
        status = judge_holder(search, spec, &filter, error);
        bson_destroy(&filter);
        start = keys.ends[i];
    }
    truce__index_keys_release(&keys);
    return status;
}

truce_status truce__unique_holder(struct worker *worker, const struct entry *entry,
                                  bson_error_t *error)
{
    struct search search = {.worker = worker, .entry = entry};
    truce_status status = TRUCE_OK;

    if (entry->after_found)
        status = each_index(worker->store, entry->collection, search_index, &search, error);
    if (!status && !search.met) /* whoever had it is gone */
        status = truce__worker_wait(worker, "a unique value", error);
    return status;
}
