#include <string.h>

#include "base/assert.h"
#include "base/id.h"
#include "commit/commit.h"
#include "store/view.h"

/*
 * Documents by a unique key: patterns know theirs by fields such as {student_id: 1}, commits by
 * their _id. The _id is looked up; what is found is read, and guarded, by its _id like any other,
 * and must still have the key then.
 *
 * That there is none of that key cannot be guarded by an _id: the unique index does it. An insert
 * that the index refuses is judged by another look: a document of that key is there now, so somebody
 * was faster (CONFLICT, the function runs again and finds it); there is none, so it is another index
 * that refuses (DUPLICATE).
 */

static bool keyed_has_key(const bson_t *document, const bson_t *key)
{
    struct fields fields = truce__fields(truce__value_document(key));

    while (truce__fields_next(&fields)) {
        struct value there =
            truce__value_field(truce__value_document(document), fields.key, fields.key_length);

        if (there.type == VALUE_MISSING || !truce__value_equal(there, fields.value))
            return false;
    }
    return true;
}

/* What this commit itself has of that key. */
static struct entry *keyed_own_entry(const truce_commit *commit, const char *collection,
                                     const bson_t *key)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (!strcmp(entry->collection, collection) && entry->known && entry->after_found &&
            keyed_has_key(&entry->after, key))
            return entry;
    }
    return NULL;
}

/* The document in the store, free of intents. NOT_FOUND: none. */
static truce_status keyed_find(truce_commit *commit, const char *collection, const bson_t *key,
                               bson_t *document, bson_error_t *error)
{
    struct worker *worker = &commit->worker;

    worker->waits = 0;
    for (;;) {
        truce_status status = truce_find_one(commit->store, collection, key, NULL, document, error);

        if (status == TRUCE_UNKNOWN)
            status = truce__worker_wait(worker, "the store", error);
        else if (status || truce__intent_absent(document))
            return status;
        else if (truce__is_only_read(commit->store))
            return truce__intent_see(commit->store, collection, document, error);
        else
            status = truce__intent_meet(worker, collection, document, error);
        if (status)
            return status;
        bson_destroy(document);
    }
}

static void keyed_id_of(const bson_t *document, bson_value_t *id)
{
    bson_iter_t iter;

    truce_assert(bson_iter_init_find(&iter, document, "_id"));
    bson_value_copy(bson_iter_value(&iter), id);
}

static void fresh_id(const bson_t *key, bson_value_t *id)
{
    if (bson_has_field(key, "_id")) {
        keyed_id_of(key, id);
        return;
    }
    id->value_type = BSON_TYPE_OID;
    truce__id_new(&id->value.v_oid);
}

truce_status truce__commit_read_keyed(truce_commit *commit, const char *collection,
                                      const bson_t *key, bson_value_t *id, bson_t *document,
                                      bson_error_t *error)
{
    struct entry *entry = keyed_own_entry(commit, collection, key);
    truce_status status;
    bson_t found;

    memset(id, 0, sizeof *id);
    if (entry) {
        bson_value_copy(&entry->id, id);
        return truce_commit_read(commit, collection, id, document, error);
    }
    status = keyed_find(commit, collection, key, &found, error);
    if (!status)
        keyed_id_of(&found, id);
    else if (status == TRUCE_NOT_FOUND)
        fresh_id(key, id);
    bson_destroy(&found);
    if (status) {
        bson_init(document);
        return status;
    }
    status = truce_commit_read(commit, collection, id, document, error);
    if (!status && !keyed_has_key(document, key))
        status = truce__fail(TRUCE_CONFLICT, error,
                             "a document of \"%s\" got another key between two looks", collection);
    return status;
}

truce_status truce__commit_insert_keyed(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *document,
                                        bson_error_t *error)
{
    return truce__commit_insert_shown(commit, collection, key, NULL, document, error);
}

truce_status truce__commit_insert_shown(truce_commit *commit, const char *collection,
                                        const bson_t *key, const bson_t *shows,
                                        const bson_t *document, bson_error_t *error)
{
    truce_status status = truce_commit_insert(commit, collection, document, error);
    struct entry *entry;
    bson_value_t id;

    if (status)
        return status;
    keyed_id_of(document, &id);
    status = truce__commit_entry(commit, collection, &id, &entry, error);
    bson_value_destroy(&id);
    if (!status && !entry->key)
        entry->key = bson_copy(key);
    if (!status && shows && !entry->shows)
        entry->shows = bson_copy(shows);
    return status;
}

/* OK: somebody's document has the entry's key, held or not. NOT_FOUND. */
static truce_status keyed_is_there(truce_commit *commit, const struct entry *entry,
                                   bson_error_t *error)
{
    truce_status status;

    do {
        bson_t found;

        status = truce_find_one(commit->store, entry->collection, entry->key, NULL, &found, error);
        bson_destroy(&found);
    } while (status == TRUCE_UNKNOWN && !truce__worker_wait(&commit->worker, "the store", NULL));
    return status;
}

truce_status truce__commit_keyed_duplicate(truce_commit *commit, bson_error_t *error)
{
    for (uint32_t i = 0; i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];
        bson_error_t why = {0};
        truce_status status;

        if (!entry->key || truce__entry_net(entry) != NET_INSERT)
            continue;
        status = keyed_is_there(commit, entry, &why);
        if (!status)
            return truce__commit_conflict(entry, "was inserted by somebody else under its key",
                                          error);
        if (status != TRUCE_NOT_FOUND) { /* that it is another index, nobody has seen */
            if (error)
                *error = why;
            return status;
        }
    }
    return TRUCE_DUPLICATE;
}
