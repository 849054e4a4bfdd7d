/*
 * Which shard key each layout needs.
 *
 *     truce_commits, truce_sets            none: idempotency keys, and what a set's documents are, need a
 *                                          unique index over everything
 *     truce_sequences,                     {_id: 1} or {_id: "hashed"}: their documents are found, and
 *     truce_sources, truce_progress,       kept from being made twice, by _id
 *     truce_quarantine, truce_requests,
 *     truce_conflicts, X.revisions
 *     documents changed by commits,        the same: an _id is unique over all shards only if it is the
 *     items, revisions                     shard key, and a find-and-modify has to have the shard key
 *     ordered sets, one document a key     fields that the set's key begins with, in its order
 *     ordered sets, one per element        the same
 *
 * A sharded cluster finds the document of an update by its _id without the shard key, but not that of a
 * find-and-modify, which the journal and the items use. Transactions are without it.
 */
#include <stdio.h>
#include <string.h>

#include "maintenance/doctor.h"
#include "store/reserved.h"

static bool shards_is_id_alone(const bson_t *key)
{
    return bson_has_field(key, "_id") && bson_count_keys(key) == 1;
}

/* Is it an array of one? */
static bool is_key_alone(const bson_iter_t *fields)
{
    bson_iter_t iter;

    return bson_iter_recurse(fields, &iter) && bson_iter_next(&iter) && !bson_iter_next(&iter);
}

/* Do the set's documents stay whole and single? Its key begins with the fields of the shard key, in their order, and
 * none of them is hashed: then the unique index on the key is one over all shards. Or its one field is the hashed
 * shard key: equal ones are on one shard. */
static bool fits_set(const bson_t *definition, const bson_t *key, bool by_element)
{
    bson_iter_t shard, field, keys;

    if (!bson_iter_init(&shard, key) || !bson_iter_init_find(&field, definition, "key") ||
        !bson_iter_recurse(&field, &keys))
        return false;
    while (bson_iter_next(&shard)) {
        const char *wanted = bson_iter_key(&shard);

        if (!BSON_ITER_HOLDS_NUMBER(&shard) &&
            (by_element || bson_count_keys(key) > 1 || !is_key_alone(&field)))
            return false; /* hashed */
        if (bson_iter_next(&keys)) {
            if (!BSON_ITER_HOLDS_UTF8(&keys) || strcmp(bson_iter_utf8(&keys, NULL), wanted) != 0)
                return false;
        } else if (!by_element || strcmp(truce__doctor_text(definition, "name", ""), wanted) != 0) {
            return false;
        } else {
            by_element = false; /* the name is the last one */
        }
    }
    return true;
}

/* Is the collection one of an ordered set, sharded as its layout needs? */
static bool is_of_set(const struct doctor *doctor, const char *collection, const bson_t *key)
{
    bson_iter_t list, iter;

    if (!truce__doctor_fact(doctor->facts, "sets", &list) || !bson_iter_recurse(&list, &iter))
        return false;
    while (bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t definition;
        const char *id;
        bool by_element;

        if (!BSON_ITER_HOLDS_DOCUMENT(&iter))
            continue;
        bson_iter_document(&iter, &length, &bytes);
        if (!bson_init_static(&definition, bytes, length))
            continue;
        id = truce__doctor_text(&definition, "_id", ""); /* "<collection>.<field>" */
        by_element = !strcmp(truce__doctor_text(&definition, "layout", ""), "element");
        length = (uint32_t)strlen(collection);
        if ((by_element ? strcmp(id, collection)
                        : strncmp(id, collection, length) != 0 || id[length] != '.') == 0 &&
            fits_set(&definition, key, by_element))
            return true;
    }
    return false;
}

static void judge_key(struct doctor *doctor, const char *collection, const bson_t *key)
{
    char *shown = bson_as_relaxed_extended_json(key, NULL);
    const char *text = shown ? shown : "{}";

    switch (truce__reserved_shards(collection)) {
    case SHARD_NEVER:
        truce__doctor_tell(doctor, DOCTOR_ERROR, "shard-key", collection,
                           "leave this collection unsharded: copy it to a database of its own "
                           "primary shard, or unshardCollection (MongoDB 8.0)",
                           "it is sharded by %s: no unique index over all shards can make a key "
                           "or a name of truce's count once",
                           text);
        break;
    case SHARD_BY_ID:
        if (!shards_is_id_alone(key))
            truce__doctor_tell(doctor, DOCTOR_ERROR, "shard-key", collection,
                               "reshard it by {_id: \"hashed\"}, or leave it unsharded",
                               "it is sharded by %s, but its documents are made once and found by "
                               "their _id",
                               text);
        break;
    case SHARD_FREE:
        if (!shards_is_id_alone(key) && !is_of_set(doctor, collection, key))
            truce__doctor_tell(
                doctor, DOCTOR_WARNING, "shard-key", collection,
                "right for an ordered set whose key begins with these fields; reshard "
                "by {_id: \"hashed\"} what commits, items or revisions change",
                "it is sharded by %s: an _id is unique within one shard only, and a "
                "find-and-modify by _id, which the journal and items need, may be "
                "refused",
                text);
        break;
    }
    bson_free(shown);
}

static void judge_collection(struct doctor *doctor, const bson_iter_t *iter, size_t skip)
{
    const char *name = NULL;
    const uint8_t *bytes;
    uint32_t length;
    bson_iter_t field;
    bson_t key = BSON_INITIALIZER;

    if (!bson_iter_recurse(iter, &field))
        return;
    while (bson_iter_next(&field)) {
        if (!strcmp(bson_iter_key(&field), "_id") && BSON_ITER_HOLDS_UTF8(&field)) {
            name = bson_iter_utf8(&field, NULL);
        } else if (!strcmp(bson_iter_key(&field), "key") && BSON_ITER_HOLDS_DOCUMENT(&field)) {
            bson_iter_document(&field, &length, &bytes);
            if (!bson_init_static(&key, bytes, length))
                return;
        }
    }
    if (name && strlen(name) > skip)
        judge_key(doctor, name + skip, &key);
}

void truce__doctor_shards(struct doctor *doctor)
{
    size_t skip = strlen(truce__doctor_text(doctor->facts, "database", "")) + 1;
    bson_iter_t list, iter;
    int count = 0;

    if (!truce__doctor_fact(doctor->facts, "sharded", &list) || !BSON_ITER_HOLDS_ARRAY(&list) ||
        !bson_iter_recurse(&list, &iter))
        return;
    for (; bson_iter_next(&iter); count++)
        judge_collection(doctor, &iter, skip);
    if (!count)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "shard-key",
                           truce__doctor_text(doctor->facts, "database", "the database"),
                           "shard the collections that outgrow one shard (docs/mongodb.md)",
                           "none of its collections is sharded: all of it lives on one shard");
}
