/*
 * The segments of a target, and the id of a store.
 *
 * The id is a document of the store, {_id: "store", store: ObjectId, began: Date}, in the reserved
 * collection ARCHIVE_RECORDS. Copies and restored stores have the same id. An archive belongs to
 * one id. `began` is the time at which the last archiver began. It is written so that the log is
 * not empty: the archive then has a position in the log, from which the next archiver continues
 * (log_archive.c).
 */
#include <stdlib.h>
#include <string.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "store/reserved_names.h"

static void archive_list_add(void *arg, const char *text)
{
    struct archive_list *list = arg;
    struct segment_name name;

    if (!truce__segment_name_parse(text, &name))
        return;
    if (list->count == list->room) {
        list->room = list->room ? list->room * 2 : 256;
        list->names = bson_realloc(list->names, list->room * sizeof *list->names);
    }
    list->names[list->count++] = name;
}

static int compare_names(const void *a, const void *b)
{
    const struct segment_name *one = a, *other = b;

    if (one->generation != other->generation)
        return one->generation < other->generation ? -1 : 1;
    return one->sequence < other->sequence ? -1 : one->sequence > other->sequence;
}

truce_status truce__archive_list(struct target *target, struct archive_list *list,
                                 bson_error_t *error)
{
    truce_status status;

    *list = (struct archive_list){0};
    status = target->calls->list(target, archive_list_add, list, error);
    if (status)
        truce__archive_list_release(list);
    else if (list->count)
        qsort(list->names, list->count, sizeof *list->names, compare_names);
    return status;
}

void truce__archive_list_release(struct archive_list *list)
{
    bson_free(list->names);
    *list = (struct archive_list){0};
}

truce_status truce__archive_read(struct target *target, const struct segment_name *name,
                                 struct segment_pages *pages, struct buffer *bytes,
                                 struct segment *segment, bson_error_t *error)
{
    char text[SEGMENT_NAME_BYTES];
    truce_status status;

    truce__segment_name(name, text);
    bytes->size = 0;
    status = target->calls->get(
        target, text, pages ? SEGMENT_BYTES_MAX + 1 : SEGMENT_INDEX_BYTES_MAX, bytes, error);
    if (status == TRUCE_NOT_FOUND)
        return truce__fail(TRUCE_CORRUPT, error, "the segment %s of the archive is missing", text);
    if (status)
        return status;
    return truce__segment_decode(name, bytes->bytes, bytes->size, pages, segment, error);
}

/* ---- the id of a store ---------------------------------------------------------------------- */

/* Reads the id. `*found` is false if the store has none; that is no failure. */
static truce_status id_find(truce_store *store, uint8_t id[SEGMENT_STORE_BYTES], bool *found,
                            bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    bson_iter_t iter;
    truce_status status;

    BSON_APPEND_UTF8(&filter, "_id", "store");
    status = truce_find_one(store, ARCHIVE_RECORDS, &filter, NULL, &document, error);
    *found =
        !status && bson_iter_init_find(&iter, &document, "store") && BSON_ITER_HOLDS_OID(&iter);
    if (*found)
        memcpy(id, bson_iter_oid(&iter)->bytes, SEGMENT_STORE_BYTES);
    bson_destroy(&filter);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Records that an archiver begins. */
static truce_status id_note(truce_store *store, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8("store"));
    bson_t *update = BCON_NEW("$set", "{", "began", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status = truce_update(store, ARCHIVE_RECORDS, filter, update, NULL, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static truce_status id_create(truce_store *store, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status;
    bson_oid_t oid;

    bson_oid_init(&oid, NULL);
    BSON_APPEND_UTF8(&document, "_id", "store");
    BSON_APPEND_OID(&document, "store", &oid);
    status = truce_insert(store, ARCHIVE_RECORDS, &document, NULL, error);
    bson_destroy(&document);
    /* Another process may have created the id in the meantime. */
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

truce_status truce__archive_store_id(truce_store *store, uint8_t id[SEGMENT_STORE_BYTES],
                                     bson_error_t *error)
{
    bool found;
    truce_status status = id_find(store, id, &found, error);

    if (!status && !found) {
        status = id_create(store, error);
        if (!status)
            status = id_find(store, id, &found, error);
    }
    if (!status && !found)
        return truce__fail(TRUCE_CORRUPT, error,
                           "the document \"store\" of \"" ARCHIVE_RECORDS
                           "\" has no ObjectId \"store\": remove it");
    return status ? status : id_note(store, error);
}
