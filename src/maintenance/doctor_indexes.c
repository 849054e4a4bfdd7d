/*
 * Indexes: those that truce's protocols rest on, and those of the user's that stand in their way.
 *
 *     _intent                      sparse: else every document has an entry, and each write costs one
 *     key of truce_commits         unique and sparse: a caller's key counts once
 *     _keys                        unique and sparse (truce_unique_declare)
 *     expireAfterSeconds           not on what truce must remember: a purge is raised behind a horizon
 *     unique, not sparse           has room for one document without its fields: a guard that a document
 *                                  is missing, as a transaction, puts one there for a moment
 */
#include <string.h>

#include "maintenance/doctor.h"
#include "store/reserved.h"

struct seen {
    const char *name;  /* of the index */
    const char *first; /* field of its key */
    bool single;       /* it has no other */
    bool unique, sparse, partial, expires;
    bool items; /* it is that of the items of trees, which have its fields */
};

static struct seen indexes_look_at(const bson_iter_t *iter)
{
    struct seen seen = {.name = "?", .first = ""};
    bson_iter_t index, key;

    if (!bson_iter_recurse(iter, &index))
        return seen;
    while (bson_iter_next(&index)) {
        const char *field = bson_iter_key(&index);

        if (!strcmp(field, "name") && BSON_ITER_HOLDS_UTF8(&index))
            seen.name = bson_iter_utf8(&index, NULL);
        else if (!strcmp(field, "unique"))
            seen.unique = bson_iter_as_bool(&index);
        else if (!strcmp(field, "sparse"))
            seen.sparse = bson_iter_as_bool(&index);
        else if (!strcmp(field, "partialFilterExpression"))
            seen.partial = true;
        else if (!strcmp(field, "expireAfterSeconds"))
            seen.expires = true;
        else if (!strcmp(field, "key") && bson_iter_recurse(&index, &key) && bson_iter_next(&key)) {
            seen.first = bson_iter_key(&key);
            seen.single = !bson_iter_next(&key);
            seen.items = !strcmp(seen.first, "tree") && !seen.single &&
                         !strcmp(bson_iter_key(&key), "itemId");
        }
    }
    return seen;
}

static void judge_own(struct doctor *doctor, const char *collection, const struct seen *seen)
{
    const struct reserved *reserved = truce__reserved(collection);

    if (!strcmp(seen->first, "_intent") && seen->single && !seen->sparse)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "intent-index", collection,
                           "drop the index and make it again with sparse: true",
                           "the index %s on _intent is not sparse: it has an entry for each "
                           "document, not only for those that a commit holds",
                           seen->name);
    if (!strcmp(seen->first, "_keys") && seen->single && !(seen->unique && seen->sparse))
        truce__doctor_tell(doctor, DOCTOR_ERROR, "keys-index", collection,
                           "drop the index and run truce commit unique for the collection",
                           "the index %s on _keys is not unique and sparse: what commits reserve "
                           "can be taken by others",
                           seen->name);
    if (seen->expires && reserved && reserved->remembers)
        truce__doctor_tell(doctor, DOCTOR_ERROR, "expiry", collection,
                           "drop the index; truce sweep removes what may go",
                           "the index %s lets documents expire by age, which truce must remember",
                           seen->name);
}

/* A ledger's collection has no documents without what its index is over. */
static bool is_of_ledger(const struct seen *seen)
{
    return !strcmp(seen->name, "changes.account_1_changes.seqId_1");
}

void truce__doctor_indexes(struct doctor *doctor, const char *collection, const bson_t *indexes)
{
    bool commits = !strcmp(collection, COMMITS), keyed = false;
    bson_iter_t iter;

    if (bson_iter_init(&iter, indexes))
        while (bson_iter_next(&iter)) {
            struct seen seen = indexes_look_at(&iter);

            judge_own(doctor, collection, &seen);
            keyed = keyed || (!strcmp(seen.first, "key") && seen.single && seen.unique &&
                              (seen.sparse || seen.partial));
            if (seen.unique && !seen.sparse && !seen.partial && strcmp(seen.first, "_id") != 0 &&
                !is_of_ledger(&seen) && !seen.items)
                truce__doctor_tell(doctor, DOCTOR_NOTE, "unique-index", collection,
                                   "make it sparse or partial if commits guard that documents of "
                                   "this collection are missing",
                                   "the unique index %s has room for one document without its "
                                   "fields",
                                   seen.name);
        }
    if (commits && !keyed)
        truce__doctor_tell(doctor, DOCTOR_ERROR, "key-index", collection,
                           "make the index {key: 1} with unique: true and sparse: true",
                           "no unique, sparse index on \"key\" makes sure that an idempotency key "
                           "counts once");
}
