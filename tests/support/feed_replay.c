#include "tests/support/feed_replay.h"

#include "bson/value.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "store/reserved_names.h"
#include "tests/support/test.h"

#define READ_AT_ONCE 100

void replay_open(struct replay *replay)
{
    bson_error_t error;

    *replay = (struct replay){0};
    CHECK_OK(truce_store_open("memory:", NULL, &replay->copy, &error), error);
}

void replay_close(struct replay *replay)
{
    truce_store_close(replay->copy);
}

/* ---- one entry, done again ------------------------------------------------------------------- */

static bson_t *by_id(const bson_t *id)
{
    bson_t *filter = bson_new(), equal;
    bson_iter_t at;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &equal);
    if (bson_iter_init_find(&at, id, "_id"))
        BSON_APPEND_VALUE(&equal, "$eq", bson_iter_value(&at));
    bson_append_document_end(filter, &equal);
    return filter;
}

static void update(truce_store *store, const char *collection, const bson_t *filter,
                   const bson_t *change)
{
    truce_write_result result = {0};
    bson_error_t error;
    char *shown;

    if (!CHECK_OK(truce_update(store, collection, filter, change, NULL, &result, &error), error) ||
        !CHECK_INT(result.matched, ==, 1)) {
        shown = bson_as_canonical_extended_json(change, NULL);
        fprintf(stderr, "    %s: %s\n", collection, shown);
        bson_free(shown);
    }
    truce_write_result_release(&result);
}

/* Truncates arrays, one after the other, by {$push: {field: {$each: [], $slice: size}}}. */
static void cut_arrays(truce_store *store, const char *collection, const bson_t *filter,
                       const bson_t *cuts)
{
    bson_iter_t cut, field, size;

    (void)bson_iter_init(&cut, cuts);
    while (bson_iter_next(&cut)) {
        bson_t *change;

        if (!bson_iter_recurse(&cut, &field) || !bson_iter_find(&field, "field") ||
            !bson_iter_recurse(&cut, &size) || !bson_iter_find(&size, "newSize")) {
            test_fail(__FILE__, __LINE__, "a cut of an array has no field and size");
            continue;
        }
        change = BCON_NEW("$push", "{", bson_iter_utf8(&field, NULL), "{", "$each", "[", "]",
                          "$slice", BCON_INT32(bson_iter_int32(&size)), "}", "}");
        update(store, collection, filter, change);
        bson_destroy(change);
    }
}

/* Makes the update of an entry as its difference describes it: first the truncated arrays, then the
 * set and removed fields. */
static void do_update(truce_store *store, const struct feed_entry *entry)
{
    bson_t *filter = by_id(&entry->id), change = BSON_INITIALIZER, set, gone, cuts, unset;
    bson_iter_t at;

    if (!CHECK(truce__value_subdocument(&entry->diff, "updatedFields", &set)) ||
        !CHECK(bson_iter_init_find(&at, &entry->diff, "truncatedArrays")))
        goto out;
    truce__value_bson(truce__value_of_iter(&at), &cuts);
    cut_arrays(store, entry->collection, filter, &cuts);
    if (!bson_empty(&set))
        BSON_APPEND_DOCUMENT(&change, "$set", &set);
    (void)bson_iter_init_find(&at, &entry->diff, "removedFields");
    truce__value_bson(truce__value_of_iter(&at), &gone);
    if (!bson_empty(&gone)) {
        BSON_APPEND_DOCUMENT_BEGIN(&change, "$unset", &unset);
        (void)bson_iter_init(&at, &gone);
        while (bson_iter_next(&at))
            BSON_APPEND_BOOL(&unset, bson_iter_utf8(&at, NULL), true);
        bson_append_document_end(&change, &unset);
    }
    if (!bson_empty(&change))
        update(store, entry->collection, filter, &change);
    else
        CHECK(!bson_empty(&cuts));
out:
    bson_destroy(&change);
    bson_destroy(filter);
}

/* Makes the change of an entry in the copy. Changes of indexes and options do not concern
 * documents. */
static void do_entry(truce_store *store, const struct feed_entry *entry)
{
    truce_write_result result = {0};
    bson_error_t error = {0};
    bson_t *filter;

    switch (entry->kind) {
    case FEED_INSERT:
        CHECK_OK(truce_insert(store, entry->collection, &entry->document, NULL, &error), error);
        break;
    case FEED_UPDATE:
        do_update(store, entry);
        break;
    case FEED_REPLACE:
        filter = by_id(&entry->id);
        update(store, entry->collection, filter, &entry->document);
        bson_destroy(filter);
        break;
    case FEED_DELETE:
        filter = by_id(&entry->id);
        CHECK_OK(truce_remove(store, entry->collection, filter, NULL, &result, &error), error);
        CHECK_INT(result.removed, ==, 1);
        truce_write_result_release(&result);
        bson_destroy(filter);
        break;
    /* The removed documents were reported when they were inserted. */
    case FEED_DROP:
        CHECK_OK(truce_collection_drop(store, entry->collection, &error), error);
        break;
    case FEED_RENAME:
        CHECK_OK(truce_collection_rename(store, entry->collection, entry->other, true, &error),
                 error);
        break;
    case FEED_CREATE:
        CHECK_OK(truce_collection_create(store, entry->collection, &error), error);
        break;
    case FEED_MODIFY:
    case FEED_INDEX:
    case FEED_INDEX_DROP:
    case FEED_DROP_DATABASE:
        break;
    }
}

static int count_fields(struct value container)
{
    struct fields fields = truce__fields(container);
    int count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

/* Compares two values, without the order of the fields in documents. */
static bool same_value(struct value a, struct value b)
{
    struct fields fields, others;

    if (a.type != b.type || !truce__value_is_container(a))
        return truce__value_identical(a, b);
    if (count_fields(a) != count_fields(b))
        return false;
    fields = truce__fields(a);
    others = truce__fields(b);
    while (truce__fields_next(&fields)) {
        if (a.type == BSON_TYPE_ARRAY && !truce__fields_next(&others))
            return false;
        if (!same_value(fields.value, a.type == BSON_TYPE_ARRAY
                                          ? others.value
                                          : truce__value_field(b, fields.key, fields.key_length)))
            return false;
    }
    return true;
}

/* Checks that the document of the copy equals the image that the entry has kept, if it has one. */
static void same_image(struct replay *replay, const struct feed_entry *entry, const bson_t *image)
{
    bson_t *filter, copied;
    bson_error_t error;

    if (bson_empty(image))
        return;
    replay->images++;
    filter = by_id(&entry->id);
    if (CHECK_OK(truce_find_one(replay->copy, entry->collection, filter, NULL, &copied, &error),
                 error) &&
        !same_value(truce__value_document(image), truce__value_document(&copied)))
        test_bson_equal(image, &copied, __FILE__, __LINE__);
    bson_destroy(&copied);
    bson_destroy(filter);
}

static bool take(void *arg, const struct feed_entry *entry)
{
    struct replay *replay = arg;

    CHECK_INT(entry->position, >, replay->position);
    CHECK(!truce__reserved_stored_name(entry->collection));
    replay->entries++;
    replay->kinds[entry->kind]++;
    same_image(replay, entry, &entry->before);
    do_entry(replay->copy, entry);
    same_image(replay, entry, &entry->after);
    return true;
}

bool replay_follow(struct replay *replay, truce_store *store)
{
    struct engine *engine = truce__file_engine(store);
    int before = test_failures();
    struct feed_state state;
    bson_error_t error;

    if (!CHECK_OK(truce__engine_feed_state(engine, &state, &error), error) ||
        !CHECK(state.spec.table))
        return false;
    if (!replay->position)
        replay->position = state.horizon;
    while (replay->position < state.last && test_failures() == before) {
        int64_t reached;

        if (!CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, replay->position,
                                              READ_AT_ONCE, take, replay, &reached, &error),
                      error) ||
            !CHECK_INT(reached, >, replay->position))
            return false;
        replay->position = reached;
    }
    return test_failures() == before;
}

/* ---- the same? ------------------------------------------------------------------------------- */

static void same_document(struct replay *replay, const char *collection, const bson_t *document)
{
    bson_t *filter = by_id(document), copied;
    bson_error_t error;

    if (CHECK_OK(truce_find_one(replay->copy, collection, filter, NULL, &copied, &error), error) &&
        !same_value(truce__value_document(document), truce__value_document(&copied)))
        test_bson_equal(document, &copied, __FILE__, __LINE__);
    bson_destroy(&copied);
    bson_destroy(filter);
}

/* Checks that the copy has the same documents, and no others. */
static void same_collection(struct replay *replay, truce_store *store, const char *collection)
{
    static const bson_t all = BSON_INITIALIZER;
    int64_t count = 0, copied = 0;
    const bson_t *document;
    truce_cursor *cursor;
    bson_error_t error;

    if (!CHECK_OK(truce_find(store, collection, &all, NULL, &cursor, &error), error))
        return;
    while (!test_failures() && CHECK_OK(truce_cursor_next(cursor, &document, &error), error) &&
           document) {
        same_document(replay, collection, document);
        count++;
    }
    truce_cursor_close(cursor);
    CHECK_OK(truce_count(replay->copy, collection, &all, NULL, &copied, &error), error);
    CHECK_INT(copied, ==, count);
}

static void same_collections(struct replay *replay, truce_store *names, truce_store *store)
{
    bson_t list;
    bson_iter_t at, field;
    bson_error_t error;

    CHECK_OK(truce_collection_list(names, NULL, &list, &error), error);
    (void)bson_iter_init(&at, &list);
    while (bson_iter_next(&at))
        if (bson_iter_recurse(&at, &field) && bson_iter_find(&field, "name") &&
            !truce__reserved_stored_name(bson_iter_utf8(&field, NULL)))
            same_collection(replay, store, bson_iter_utf8(&field, NULL));
    bson_destroy(&list);
}

bool replay_same(struct replay *replay, truce_store *store)
{
    int before = test_failures();

    same_collections(replay, store, store);
    same_collections(replay, replay->copy, store);
    return test_failures() == before;
}
