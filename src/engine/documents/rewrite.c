/*
 * Rewriting: a function of the caller makes new versions of documents inside the write transaction
 * (truce/sys/store.h).
 *
 *     key {student_id: 5}  ->  its key in the unique index of student_id  ->  row 7
 *     row 7                ->  before  --make-->  after  ->  row 7, and the indexes
 *     none                 ->  NULL    --make-->  after  ->  a new row, and the indexes
 *
 * Nothing is compiled, planned, or compared: `make` receives the current document of this
 * transaction, and no other process writes before the commit. The transaction may also contain
 * other operations (writer.c), and may run again from `begin` after a failure. Its results count
 * only when truce__writer_run has returned TRUCE_OK.
 *
 * A refused document (indexed_documents.c checks before it writes) does not change, and the other
 * ones are written nevertheless. A crash leaves all of them or none.
 */
#include "base/assert.h"
#include "engine/documents/indexed_documents.h"
#include "engine/documents/open_documents.h"
#include "query/index/index_set.h"
#include "query/input_check.h"

struct rewriting {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    truce_rewrite *rewrite;
    /* Whether no unique index fits the keys. */
    bool missing;
    /* The current key, and the document before the rewriting. */
    struct buffer key, before;
};

/* Finds the unique index for `wanted`, and puts the key into `key`. Returns NULL if there is
 * none. */
static const struct index *rewrite_index_of(const struct collection *collection,
                                            const bson_t *wanted, struct buffer *key)
{
    for (uint32_t i = 0; collection && i < collection->indexes_count; i++) {
        const struct index *index = &collection->indexes[i];

        if (index->state == INDEX_READY && truce__index_key_of(&index->spec, wanted, key))
            return index;
    }
    return NULL;
}

/* Reads the document with the key: its row, and a copy, because the next call on the connection
 * ends the loan. Returns NOT_FOUND if the document does not exist. */
static truce_status read_before(struct rewriting *rewriting, struct writer *writer,
                                const struct collection *collection, const struct index *index,
                                int64_t *row, bson_t *before, bson_error_t *error)
{
    struct bytes key = {rewriting->key.bytes, rewriting->key.size}, body;
    truce_status status =
        index->spec.is_id
            ? truce__writer_look_up(writer, collection, key, row, &body, error)
            : truce__kv_key_lookup(writer->kv, index->id, collection->id, key, row, &body, error);

    if (status)
        return status;
    rewriting->before.size = 0;
    truce__buffer_append(&rewriting->before, body.data, body.size);
    if (!bson_init_static(before, rewriting->before.bytes, rewriting->before.size))
        return truce__fail(
            TRUCE_CORRUPT, error,
            "the document in row %lld of \"%s\" is damaged: truce check shows all damage",
            (long long)*row, collection->name);
    return TRUCE_OK;
}

static bool rewrite_same_id(const bson_t *before, const bson_t *after)
{
    return truce__value_identical(truce__value_field(truce__value_document(before), "_id", 3),
                                  truce__value_field(truce__value_document(after), "_id", 3));
}

/* Writes the document that the rewrite function returned. `before` is NULL for a new document. */
static truce_status rewrite_put(struct writer *writer, const char *collection, int64_t row,
                                const bson_t *before, const bson_t *after, bson_error_t *error)
{
    truce_status status = truce__document_check_size(after, "document", error);

    if (status)
        return status;
    if (!before) {
        truce_assert(truce__document_is_prepared(after));
        return truce__documents_insert(writer, collection, after, error);
    }
    truce_assert(rewrite_same_id(before, after));
    return truce__documents_replace(writer, collection, row, before, after, false, error);
}

/* Runs the rewrite function on one document. A status other than OK is that of the transaction. */
static truce_status rewrite_one(struct rewriting *rewriting, struct writer *writer,
                                const struct collection *collection, const struct index *index,
                                size_t number, bson_error_t *error)
{
    truce_rewrite *rewrite = rewriting->rewrite;
    bson_t before, after = BSON_INITIALIZER;
    bson_error_t why = {0};
    int64_t row = 0;
    truce_status status = read_before(rewriting, writer, collection, index, &row, &before, &why);
    bool found = !status;

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status && rewrite->make(rewrite, number, found ? &before : NULL, &after))
        status =
            rewrite_put(writer, rewrite->collection, row, found ? &before : NULL, &after, &why);
    bson_destroy(&after);
    if (truce__documents_failed(status)) {
        *error = why;
        return status;
    }
    if (status)
        rewrite->refuse(rewrite, number, status, &why);
    return TRUCE_OK;
}

static void reset_rewrite(struct write_op *base)
{
    struct rewriting *rewriting = (struct rewriting *)base;

    rewriting->missing = false;
    rewriting->rewrite->begin(rewriting->rewrite);
}

/* Rewrites the documents of a call in the writer's transaction, and looks up the collection and the
 * index again after each change. Sets `missing` if no index fits. */
static truce_status run_rewrite(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct rewriting *rewriting = (struct rewriting *)base;
    truce_rewrite *rewrite = rewriting->rewrite;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < rewrite->count && !status; i++) {
        const struct collection *collection;
        const struct index *index;

        status = truce__writer_collection(writer, rewrite->collection, &collection, error);
        if (status)
            break;
        index = rewrite_index_of(collection, rewrite->keys[i], &rewriting->key);
        if (!index) {
            truce_assert(i == 0);
            rewriting->missing = true;
            break;
        }
        status = rewrite_one(rewriting, writer, collection, index, i, error);
    }
    return status;
}

truce_status truce__engine_rewrite(struct engine *engine, truce_rewrite *rewrite,
                                   bson_error_t *error)
{
    struct rewriting rewriting = {.base = {.reset = reset_rewrite,
                                           .run = run_rewrite,
                                           .relaxed = engine->relaxed || rewrite->relaxed},
                                  .rewrite = rewrite};
    truce_status status = truce__engine_writable(engine, error);

    rewriting.base.deadline_ns = truce__engine_deadline(engine, 0);
    if (!status)
        status = truce__writer_run(&engine->writer, &rewriting.base, error);
    truce__buffer_release(&rewriting.key);
    truce__buffer_release(&rewriting.before);
    if (!status && rewriting.missing)
        return TRUCE_NOT_FOUND;
    return status;
}
