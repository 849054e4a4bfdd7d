/* Writes within a transaction. A statement finds the documents to change as the transaction shows
 * them, copies them into the scratch, and lets the scratch change them. */
#include "base/assert.h"
#include "base/field.h"
#include "bson/array.h"
#include "bson/value.h"
#include "query/index/index_set.h"
#include "query/input_check.h"
#include "query/update/update.h"
#include "store/overlay/overlay_parts.h"
#include "store/snapshot_view.h"

/* ---- unique keys ----------------------------------------------------------------------------- */

/* Unique keys across the scratch and the view. The scratch has the indexes and refuses duplicates
 * among its own documents. Documents that are only in the view remain: the values of each key are
 * looked up there. If another client takes a key between the view and the commit, the commit is a
 * conflict. */

/* One key of a document in one index. */
struct unique_key {
    struct overlay *overlay;
    struct collection_part *part;
    const struct index_spec *spec;
    const bson_t *document;
    /* The encoded key. */
    const uint8_t *bytes;
    size_t size;
};

static void overlay_weigh(struct overlay *overlay, struct entry *entry, uint32_t size);
static truce_status truce__overlay_write(struct overlay *overlay, const truce_write *write,
                                         truce_write_outcome *outcome, bson_error_t *error);

/* Builds a filter for every document that may have the key. overlay_check_unique ignores the
 * documents that do not have it. */
static void unique_filter_of(const struct unique_key *key, bson_t *filter)
{
    bson_t both;

    truce__index_key_filter(key->spec, truce__value_document(key->document), key->bytes, key->size,
                            filter);
    if (key->spec->partial_filter) {
        BSON_APPEND_ARRAY_BEGIN(filter, "$and", &both);
        BSON_APPEND_DOCUMENT(&both, "0", key->spec->partial_filter);
        bson_append_array_end(filter, &both);
    }
}

static bool overlay_unique_holds(const struct field_keys *keys, const struct unique_key *key)
{
    uint32_t start = 0;

    for (uint32_t i = 0; i < keys->count; start = keys->ends[i++])
        if (keys->ends[i] - start == key->size &&
            !memcmp(keys->bytes.bytes + start, key->bytes, key->size))
            return true;
    return false;
}

/* Fails with DUPLICATE if a document of the view, which the scratch does not have, has the key. */
static truce_status overlay_check_unique(const struct unique_key *key, const bson_t *other,
                                         bson_error_t *error)
{
    struct field_keys keys = {.bounded = true};
    truce_status status = TRUCE_OK;

    if (truce__overlay_entry(key->part, other))
        /* The scratch has checked the documents that have entries. */
        return TRUCE_OK;
    status = truce__index_keys(key->spec, truce__value_document(other), &keys, error);
    if (!status && overlay_unique_holds(&keys, key))
        status = truce__index_refuse_duplicate(key->part->name, key->spec,
                                               truce__value_document(key->document), key->bytes,
                                               key->size, error);
    truce__field_keys_release(&keys);
    return status;
}

/* Looks up a unique key among the documents of the view. */
static truce_status overlay_find_duplicate(const struct unique_key *key, bson_error_t *error)
{
    const bson_t *other;
    truce_cursor *cursor;
    truce_status status;
    bson_t filter;

    unique_filter_of(key, &filter);
    status = truce_find(key->overlay->view, key->part->name, &filter, NULL, &cursor, error);
    bson_destroy(&filter);
    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &other, error);
        if (!status && other)
            status = overlay_check_unique(key, other, error);
    } while (!status && other);
    truce_cursor_close(cursor);
    return status;
}

/* Fails with DUPLICATE if a document of the view that is not in the scratch has a unique key of
 * this document, which is in the scratch. */
static truce_status truce__overlay_unique(struct overlay *overlay, struct collection_part *part,
                                          const bson_t *document, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < part->unique_count && !status; i++) {
        struct field_keys keys = {.bounded = true};
        struct unique_key key = {overlay, part, &part->unique[i], document, NULL, 0};
        uint32_t start = 0;

        status = truce__index_keys(key.spec, truce__value_document(document), &keys, error);
        for (uint32_t j = 0; j < keys.count && !status; start = keys.ends[j++]) {
            key.bytes = keys.bytes.bytes + start;
            key.size = keys.ends[j] - start;
            status = overlay_find_duplicate(&key, error);
        }
        truce__field_keys_release(&keys);
    }
    return status;
}

/* ---- collections and indexes ----------------------------------------------------------------- */

/*
 * Collections and indexes that a transaction creates. They are created in the scratch and, by the
 * commit, in the store (engine/documents/bulk_write.c), where they must still be missing.
 *
 * As in MongoDB, an index can be made only in a collection that is new and empty. Documents of
 * another collection would have to be indexed, but they are in the view and may change until the
 * commit. An index that exists already is not a change. A collection that a write creates
 * implicitly is different: if another client creates it first, the writes of both go there.
 */

static truce_status is_in_view(struct overlay *overlay, const char *name, bool *is,
                               bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(overlay->view, name, &indexes, error);

    *is = !status;
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status has_documents(struct overlay *overlay, const char *name, bool *has,
                                  bson_error_t *error)
{
    int64_t count;
    truce_status status = truce_count(overlay->scratch, name, NULL, NULL, &count, error);

    *has = !status && count;
    return status;
}

/* ---- collections ---------------------------------------------------------------------------- */

truce_status truce__overlay_create(truce_store *base, const char *name, bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, name);
    bool there, written = false;
    truce_status status = is_in_view(overlay, name, &there, error);

    if (!status)
        status = has_documents(overlay, name, &written, error);
    if (!status && (there || written || part->made))
        return truce__collection_taken(name, error);
    if (!status)
        status = truce__overlay_prepare(overlay, part, error);
    part->made = part->made || !status;
    return status;
}

/* Sets the validator of a new collection. The scratch checks that it is valid, and gets it again
 * for each statement (with_validator). */
truce_status truce__overlay_validate(truce_store *base, const char *name, const bson_t *validator,
                                     bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, name);
    truce_status status;

    if (!part->made)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "the validator of %s cannot be set in a transaction, because the "
                             "collection is not new",
                             name);
    status = truce_collection_validate(overlay->scratch, name, validator, error);
    if (!status)
        status = truce_collection_validate(overlay->scratch, name, NULL, error);
    if (status)
        return status;
    bson_destroy(&part->validator);
    bson_copy_to(validator, &part->validator);
    return TRUCE_OK;
}

/* Appends the collections of the scratch that the view does not have. */
static truce_status overlay_make_append_new(struct overlay *overlay, const bson_t *scratch,
                                            bson_t *collections, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(scratch));
    struct array list;
    bson_t facts, *view = bson_copy(collections);
    truce_status status = TRUCE_OK;

    truce__array_resume(&list, collections);
    while (!status && truce__fields_next(&fields)) {
        struct fields known = truce__fields(truce__value_document(view));
        const char *name;
        bool is_known = false, written = false;
        bson_t other;

        truce__value_bson(fields.value, &facts);
        name = truce__field_text(&facts, "name");
        while (!is_known && truce__fields_next(&known)) {
            truce__value_bson(known.value, &other);
            is_known = !strcmp(truce__field_text(&other, "name"), name);
        }
        if (is_known)
            continue;
        status = has_documents(overlay, name, &written, error);
        if (!status && (truce__overlay_part(overlay, name)->made || written))
            truce__array_add(&list, fields.value);
    }
    bson_destroy(view);
    return status;
}

/* Lists the collections. The numbers of documents and bytes are those of the view, except for new
 * collections. */
truce_status truce__overlay_list(truce_store *base, const truce_list_options *options,
                                 bson_t *collections, bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    truce_status status = truce_collection_list(overlay->view, options, collections, error);
    bson_t scratch;

    if (status)
        return status;
    status = truce_collection_list(overlay->scratch, options, &scratch, error);
    if (!status)
        status = overlay_make_append_new(overlay, &scratch, collections, error);
    bson_destroy(&scratch);
    return status;
}

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce__overlay_index_list(truce_store *base, const char *name, bson_t *indexes,
                                       bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    truce_status status = truce_index_list(overlay->view, name, indexes, error);
    bool written = false;

    if (status != TRUCE_NOT_FOUND)
        return status;
    if (has_documents(overlay, name, &written, error) ||
        (!written && !truce__overlay_part(overlay, name)->made))
        return status;
    bson_destroy(indexes);
    return truce_index_list(overlay->scratch, name, indexes, error);
}

static truce_status refuse_index(const char *name, const char *why, bson_error_t *error)
{
    return truce__refuse(
        CODE_NOT_IN_TRANSACTION, error,
        "an index of %s must be created, which %s: create it outside of a transaction first", name,
        why);
}

/* Creates an index in the scratch, for the commit to create in the store. Fails if the transaction
 * has written documents to the collection. */
static truce_status overlay_make_index(struct overlay *overlay, struct collection_part *part,
                                       const bson_t *index, bson_error_t *error)
{
    bool written;
    truce_status status = has_documents(overlay, part->name, &written, error);

    if (!status && written)
        return refuse_index(part->name, "already has documents", error);
    if (!status)
        status = truce__overlay_prepare(overlay, part, error);
    if (!status)
        status = truce__overlay_keep_index(overlay, part, index, error);
    part->made = part->made || !status;
    return status;
}

truce_status truce__overlay_index_create(truce_store *base, const char *name, const bson_t *index,
                                         bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    bool in_view, there = false;
    bson_t indexes;
    truce_status status = is_in_view(overlay, name, &in_view, error);

    if (status)
        return status;
    status = truce__overlay_index_list(base, name, &indexes, error);
    if (!status)
        status = truce__index_is_among(&indexes, index, &there, error);
    bson_destroy(&indexes);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (there)
        return TRUCE_OK;
    return in_view ? refuse_index(name, "is not new", error)
                   : overlay_make_index(overlay, truce__overlay_part(overlay, name), index, error);
}

/* ---- the commit's makings -------------------------------------------------------------------- */

truce_status truce__overlay_makings(struct overlay *overlay, struct makings *makings,
                                    bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    size_t most = 0;

    for (const struct collection_part *part = overlay->parts; part; part = part->next)
        most += part->made;
    *makings = (struct makings){0};
    if (!most)
        return TRUCE_OK;
    makings->all = bson_malloc0(most * sizeof *makings->all);
    makings->indexes = bson_aligned_alloc0(_Alignof(bson_t), most * sizeof *makings->indexes);
    for (const struct collection_part *part = overlay->parts; part && !status; part = part->next) {
        bson_t *indexes = &makings->indexes[makings->count];

        if (!part->made)
            continue;
        makings->all[makings->count++] = (truce_making){
            .collection = part->name, .indexes = indexes, .validator = &part->validator};
        status = truce_index_list(overlay->scratch, part->name, indexes, error);
    }
    return status;
}

void truce__overlay_makings_release(struct makings *makings)
{
    for (size_t i = 0; i < makings->count; i++)
        bson_destroy(&makings->indexes[i]);
    bson_free(makings->indexes);
    bson_free(makings->all);
}

/* ---- atomic bulks ---------------------------------------------------------------------------- */

/*
 * All or no writes of a bulk within a transaction: the old documents of the scratch are kept, and
 * restored if one of the writes fails. Documents that the bulk copied into the scratch remain,
 * because they equal the view's.
 *
 * No other writer is active between two writes, so each is checked and then done. If the old
 * documents cannot be restored (for example because the deadline passed), the transaction is
 * broken and cannot be committed.
 */

/* A document of the scratch before a write of an atomic bulk changes it. */
struct undo_entry {
    struct collection_part *part;
    /* The old document, or NULL if the scratch had no document with the _id of `made`. */
    bson_t *document;
    const bson_t *made;
    /* The value of `replaced` in its entry. */
    bool replaced;
};

static truce_status overlay_fail_guard(const truce_write *write, bool found, bson_error_t *error)
{
    char shown[200];

    return truce__fail(
        TRUCE_CONFLICT, error, "%s document of %s matches %s", found ? "a" : "no",
        write->collection,
        truce__value_show(truce__value_document(write->filter), shown, sizeof shown));
}

/* Checks whether the write finds a document that it requires, or none. `undo` gets the document
 * that the write will change. */
static truce_status atomic_check_guards(struct overlay *overlay, const truce_write *write,
                                        struct undo_entry *undo, bson_error_t *error)
{
    bool wanted = write->kind != TRUCE_WRITE_REQUIRE_MISSING, found;
    bson_t document;
    truce_status status;

    if (write->options.multi || write->options.upsert)
        return truce__fail(
            TRUCE_INVALID, error,
            "within a transaction, an atomic write must change one existing document");
    status =
        truce_find_one(&overlay->base, write->collection, write->filter, NULL, &document, error);
    found = !status;
    if (found && undo)
        undo->document = bson_copy(&document);
    bson_destroy(&document);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    return found == wanted ? TRUCE_OK : overlay_fail_guard(write, found, error);
}

/* Reads the document with the _id of an insert, before the insert replaces it. */
static truce_status overlay_read_before_insert(struct overlay *overlay, const truce_write *write,
                                               struct undo_entry *undo, bson_error_t *error)
{
    bson_t filter, document;
    truce_status status;

    truce__overlay_id(write->document, &filter);
    status = truce_find_one(&overlay->base, write->collection, &filter, NULL, &document, error);
    if (status == TRUCE_NOT_FOUND)
        undo->made = write->document;
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static void undo_keep_kind(struct undo_entry *undo)
{
    const struct entry *entry =
        undo->document ? truce__overlay_entry(undo->part, undo->document) : NULL;

    undo->replaced = entry && entry->replaced;
}

/* Runs one write of an atomic bulk, after it has recorded the document that the write changes. A
 * guard only reads. */
static truce_status atomic_run_one(struct overlay *overlay, const truce_write *write,
                                   struct undo_entry *undo, truce_write_outcome *outcome,
                                   bson_error_t *error)
{
    bool changes = write->kind == TRUCE_WRITE_UPDATE || write->kind == TRUCE_WRITE_REMOVE;
    truce_status status;

    undo->part = truce__overlay_part(overlay, write->collection);
    status = write->kind == TRUCE_WRITE_INSERT
                 ? overlay_read_before_insert(overlay, write, undo, error)
                 : atomic_check_guards(overlay, write, changes ? undo : NULL, error);
    undo_keep_kind(undo);
    if (!status && (changes || write->kind == TRUCE_WRITE_INSERT))
        return truce__overlay_write(overlay, write, outcome, error);
    outcome->status = status;
    outcome->result.matched = !status && write->kind != TRUCE_WRITE_REQUIRE_MISSING;
    if (status)
        outcome->error = *error;
    return status;
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* Restores the document of the scratch that a write has changed. The entry remains. */
static truce_status atomic_restore(struct overlay *overlay, const struct undo_entry *undo)
{
    const bson_t *document = undo->document ? undo->document : undo->made;
    struct entry *entry = truce__overlay_entry(undo->part, document);
    truce_status status;
    bson_t filter;

    if (!entry)
        /* The write did not happen. */
        return TRUCE_OK;
    truce__overlay_id(document, &filter);
    status = truce_remove(overlay->scratch, undo->part->name, &filter, NULL, NULL, NULL);
    if ((!status || status == TRUCE_NOT_FOUND) && undo->document)
        status = truce_insert(overlay->scratch, undo->part->name, undo->document, NULL, NULL);
    bson_destroy(&filter);
    overlay_weigh(overlay, entry, undo->document ? undo->document->len : 0);
    entry->replaced = undo->replaced;
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static void atomic_undo(struct overlay *overlay, const struct undo_entry *undo, size_t count)
{
    for (size_t i = count; i-- > 0;)
        if ((undo[i].document || undo[i].made) && atomic_restore(overlay, &undo[i]))
            overlay->broken = true;
}

/* Runs all writes of a bulk or none. The outcomes are those of an atomic bulk. */
static truce_status truce__overlay_atomic(struct overlay *overlay, const truce_write *writes,
                                          size_t count, truce_write_outcome *outcomes,
                                          bson_error_t *error)
{
    struct undo_entry *undo = bson_malloc0((count + 1) * sizeof *undo);
    truce_status status = TRUCE_OK;
    size_t done = 0;

    for (; done < count && !status; done++)
        status = atomic_run_one(overlay, &writes[done], &undo[done], &outcomes[done], error);
    if (status) {
        atomic_undo(overlay, undo, done);
        for (size_t i = 0; i + 1 < done; i++) {
            truce_write_result_release(&outcomes[i].result);
            outcomes[i] = (truce_write_outcome){.status = TRUCE_CONFLICT};
        }
    }
    for (size_t i = 0; i < count; i++)
        if (undo[i].document)
            bson_destroy(undo[i].document);
    bson_free(undo);
    return status;
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* The documents that one statement changes. */
struct targets {
    /* The documents before the statement. */
    bson_t **documents;
    size_t count, room;
    /* Whether the statement bypasses the validator. */
    bool unvalidated;
    /* Whether the statement replaces whole documents. */
    bool replaced;
};

/* Returns whether the statement replaces whole documents. A removal counts, because another
 * document with the same _id may be inserted afterwards. */
static bool means_all(bool remove, const bson_t *update, bool pipeline)
{
    return remove || (!pipeline && !truce__update_has_operators(update));
}

static void targets_add(struct targets *targets, const bson_t *document)
{
    if (targets->count == targets->room) {
        targets->room = targets->room ? 2 * targets->room : 4;
        targets->documents =
            bson_realloc(targets->documents, targets->room * sizeof *targets->documents);
    }
    targets->documents[targets->count++] = bson_copy(document);
}

static void targets_release(struct targets *targets)
{
    for (size_t i = 0; i < targets->count; i++)
        bson_destroy(targets->documents[i]);
    bson_free(targets->documents);
}

/* Checks the limit that several transactions share. */
static truce_status check_total(struct overlay *overlay, bson_error_t *error)
{
    struct overlay_total *total = overlay->options.total;

    if (!total)
        return TRUCE_OK;
    atomic_fetch_add(&total->bytes, overlay->bytes - overlay->counted);
    overlay->counted = overlay->bytes;
    return atomic_load(&total->bytes) <= total->bytes_max
               ? TRUCE_OK
               : truce__refuse(CODE_TRANSACTION_TOO_LARGE, error,
                               "the documents that all transactions write now exceed %zu bytes: "
                               "try again when others have ended",
                               total->bytes_max);
}

static truce_status overlay_write_check_room(struct overlay *overlay, bson_error_t *error)
{
    if (overlay->documents > overlay->options.documents_max)
        return truce__refuse(CODE_TRANSACTION_TOO_LARGE, error,
                             "the transaction writes more than the maximum of %zu documents",
                             overlay->options.documents_max);
    if (overlay->bytes > overlay->options.bytes_max)
        return truce__refuse(CODE_TRANSACTION_TOO_LARGE, error,
                             "the documents that the transaction writes exceed the maximum of %zu "
                             "bytes",
                             overlay->options.bytes_max);
    return check_total(overlay, error);
}

/* ---- copying documents into the scratch ------------------------------------------------------ */

/* Checks that the store still has the document of the view. If not, the transaction could not
 * commit. */
static truce_status check_fresh(struct overlay *overlay, const struct collection_part *part,
                                const bson_t *document, bson_error_t *error)
{
    bson_t filter, now;
    bool same;
    truce_status status;

    truce__overlay_id(document, &filter);
    status = truce_find_one(overlay->store, part->name, &filter, NULL, &now, error);
    same = !status && bson_equal(&now, document);
    bson_destroy(&filter);
    bson_destroy(&now);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (same)
        return TRUCE_OK;
    return truce__refuse(CODE_WRITE_CONFLICT, error,
                         "a document of %s was changed by another writer in the meantime",
                         part->name);
}

static truce_status overlay_add_document(struct overlay *overlay, struct collection_part *part,
                                         const bson_t *document, bson_error_t *error)
{
    truce_status status;

    if (truce__overlay_entry(part, document))
        return TRUCE_OK;
    status = check_fresh(overlay, part, document, error);
    if (status)
        return status;
    truce__overlay_add(overlay, part, document, document);
    status = overlay_write_check_room(overlay, error);
    return status ? status : truce_insert(overlay->scratch, part->name, document, NULL, error);
}

/* Copies the view's document with this _id into the scratch, if it exists and has no entry. */
static truce_status bring_same_id(struct overlay *overlay, struct collection_part *part,
                                  const bson_t *document, bool *found, bson_error_t *error)
{
    bson_t filter, there;
    truce_status status;

    *found = false;
    if (truce__overlay_entry(part, document))
        return TRUCE_OK;
    truce__overlay_id(document, &filter);
    status = truce_find_one(overlay->view, part->name, &filter, NULL, &there, error);
    *found = !status;
    if (!status)
        status = overlay_add_document(overlay, part, &there, error);
    bson_destroy(&filter);
    bson_destroy(&there);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Finds the documents that a statement changes. */
static truce_status overlay_find_targets(struct overlay *overlay, struct collection_part *part,
                                         const bson_t *filter, const truce_find_options *options,
                                         struct targets *targets, bson_error_t *error)
{
    const bson_t *document;
    truce_cursor *cursor;
    truce_status status = truce__overlay_prepare(overlay, part, error);

    overlay->writes++;
    if (!status)
        status = truce_find(&overlay->base, part->name, filter, options, &cursor, error);
    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && document)
            targets_add(targets, document);
        if (targets->count > overlay->options.documents_max)
            break;
    } while (!status && document);
    truce_cursor_close(cursor);
    for (size_t i = 0; i < targets->count && !status; i++)
        status = overlay_add_document(overlay, part, targets->documents[i], error);
    return status;
}

/* Builds {_id: {$in: [...]}} with the _ids of the targets. */
static void overlay_write_ids_of(const struct targets *targets, bson_t *filter)
{
    struct array list;
    bson_t in;

    bson_init(filter);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &in);
    truce__array_begin(&list, &in, "$in");
    for (size_t i = 0; i < targets->count; i++) {
        bson_iter_t id;

        if (bson_iter_init_find(&id, targets->documents[i], "_id"))
            truce__array_add_value(&list, bson_iter_value(&id));
    }
    truce__array_end(&list, &in);
    bson_append_document_end(filter, &in);
}

/* Adds the _ids of the targets to the statement's filter. The filter itself is still needed,
 * because it determines positions in arrays. */
static void overlay_write_narrow(const struct targets *targets, const bson_t *filter,
                                 bson_t *narrowed)
{
    bson_t both, ids;

    overlay_write_ids_of(targets, &ids);
    bson_init(narrowed);
    BSON_APPEND_ARRAY_BEGIN(narrowed, "$and", &both);
    BSON_APPEND_DOCUMENT(&both, "0", &ids);
    BSON_APPEND_DOCUMENT(&both, "1", filter);
    bson_append_array_end(narrowed, &both);
    bson_destroy(&ids);
}

/* ---- effects of a change -------------------------------------------------------------------- */

static void overlay_weigh(struct overlay *overlay, struct entry *entry, uint32_t size)
{
    overlay->bytes = overlay->bytes - entry->size + size;
    entry->size = size;
}

static truce_status overlay_check_changed(struct overlay *overlay, struct collection_part *part,
                                          const bson_t *document, bson_error_t *error)
{
    struct entry *entry = truce__overlay_entry(part, document);
    truce_status status;

    truce_assert(entry);
    overlay_weigh(overlay, entry, document->len);
    status = overlay_write_check_room(overlay, error);
    return status ? status : truce__overlay_unique(overlay, part, document, error);
}

/* Checks the targets in the scratch after the change. */
static truce_status overlay_check_targets(struct overlay *overlay, struct collection_part *part,
                                          const struct targets *targets, bson_error_t *error)
{
    const bson_t *document;
    truce_cursor *cursor;
    truce_status status;
    bson_t filter;

    for (size_t i = 0; i < targets->count; i++) {
        struct entry *entry = truce__overlay_entry(part, targets->documents[i]);

        entry->unvalidated = entry->unvalidated || targets->unvalidated;
        entry->replaced = entry->replaced || targets->replaced;
        overlay_weigh(overlay, entry, 0);
    }
    overlay_write_ids_of(targets, &filter);
    status = truce_find(overlay->scratch, part->name, &filter, NULL, &cursor, error);
    bson_destroy(&filter);
    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && document)
            status = overlay_check_changed(overlay, part, document, error);
    } while (!status && document);
    truce_cursor_close(cursor);
    return status;
}

/* Checks a new document of which only the _id is known. */
static truce_status overlay_check_new(struct overlay *overlay, struct collection_part *part,
                                      const bson_value_t *id, bool unvalidated, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER, *only = &document;
    const struct targets targets = {.documents = &only, .count = 1, .unvalidated = unvalidated};
    bool found;
    truce_status status;

    BSON_APPEND_VALUE(&document, "_id", id);
    /* If the view has a document with this _id, the document is copied into the scratch after the
     * new one, and the scratch refuses it as a duplicate. */
    status = bring_same_id(overlay, part, &document, &found, error);
    if (!status && !found && !truce__overlay_entry(part, &document))
        truce__overlay_add(overlay, part, &document, NULL);
    if (!status)
        status = overlay_check_targets(overlay, part, &targets, error);
    bson_destroy(&document);
    return status;
}

/* Sets the validator of the scratch for the writes of a statement, or removes it before documents
 * are copied. */
static truce_status with_validator(struct overlay *overlay, const struct collection_part *part,
                                   bool on, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;

    if (bson_empty(&part->validator))
        return TRUCE_OK;
    return truce_collection_validate(overlay->scratch, part->name, on ? &part->validator : &none,
                                     error);
}

/* ---- bulks ---------------------------------------------------------------------------------- */

static truce_status write_scratch(struct overlay *overlay, const struct collection_part *part,
                                  const truce_write *write, truce_write_outcome *outcome,
                                  bson_error_t *error)
{
    truce_status status = with_validator(overlay, part, true, error), after;
    bson_error_t ignored;

    if (status)
        return status;
    status = truce_bulk(overlay->scratch, write, 1, NULL, outcome, error);
    after = with_validator(overlay, part, false, status ? &ignored : error);
    return status ? status : after;
}

/* Inserts a document into the scratch. If the view has a document with the same _id, this one is
 * copied before, so that the scratch refuses the duplicate. */
static truce_status overlay_write_insert(struct overlay *overlay, struct collection_part *part,
                                         const truce_write *write, truce_write_outcome *outcome,
                                         bson_error_t *error)
{
    bson_t *document = (bson_t *)write->document;
    const struct targets targets = {
        .documents = &document, .count = 1, .unvalidated = write->options.unvalidated};
    bool found = false;
    truce_status status = truce__overlay_prepare(overlay, part, error);

    overlay->writes++;
    if (!status)
        status = bring_same_id(overlay, part, write->document, &found, error);
    if (!status && !found && !truce__overlay_entry(part, write->document))
        truce__overlay_add(overlay, part, write->document, NULL);
    if (!status)
        status = write_scratch(overlay, part, write, outcome, error);
    return status ? status : overlay_check_targets(overlay, part, &targets, error);
}

/* Updates or removes documents in the scratch. Before that, copies the documents of the view that
 * match into the scratch; after that, checks the results. */
static truce_status overlay_write_change(struct overlay *overlay, struct collection_part *part,
                                         const truce_write *write, truce_write_outcome *outcome,
                                         bson_error_t *error)
{
    const truce_find_options how = {.sort = write->options.sort,
                                    .hint = write->options.hint,
                                    .limit = write->options.multi ? 0 : 1};
    struct targets targets = {.unvalidated = write->options.unvalidated,
                              .replaced = means_all(write->kind == TRUCE_WRITE_REMOVE,
                                                    write->document, write->options.pipeline)};
    truce_write narrowed = *write;
    bson_t filter = BSON_INITIALIZER;
    truce_status status = overlay_find_targets(overlay, part, write->filter, &how, &targets, error);

    narrowed.options.sort = narrowed.options.hint = NULL;
    if (!status && targets.count) {
        bson_destroy(&filter);
        overlay_write_narrow(&targets, write->filter, &filter);
        narrowed.filter = &filter;
    }
    if (!status)
        status = write_scratch(overlay, part, &narrowed, outcome, error);
    if (!status && outcome->result.upserted)
        status = overlay_check_new(overlay, part, &outcome->result.upserted_id, targets.unvalidated,
                                   error);
    else if (!status && targets.count)
        status = overlay_check_targets(overlay, part, &targets, error);
    targets_release(&targets);
    bson_destroy(&filter);
    return status;
}

/* Runs one write of a bulk and stores its result in `outcome`. */
static truce_status truce__overlay_write(struct overlay *overlay, const truce_write *write,
                                         truce_write_outcome *outcome, bson_error_t *error)
{
    struct collection_part *part = truce__overlay_part(overlay, write->collection);
    truce_status status = write->kind == TRUCE_WRITE_INSERT
                              ? overlay_write_insert(overlay, part, write, outcome, error)
                              : overlay_write_change(overlay, part, write, outcome, error);

    if (status)
        truce_write_result_release(&outcome->result);
    outcome->status = status;
    if (status)
        outcome->error = *error;
    return status;
}

truce_status truce__overlay_bulk(truce_store *base, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count; i++)
        outcomes[i] =
            (truce_write_outcome){.status = options->atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND};
    if (options->atomic)
        return truce__overlay_atomic(overlay, writes, count, outcomes, error);
    for (size_t i = 0; i < count && !status; i++)
        status = truce__overlay_write(overlay, &writes[i], &outcomes[i], error);
    return status;
}

/* ---- find-and-modify ------------------------------------------------------------------------ */

/* Runs the find-and-modify in the scratch, under the validator of the collection. */
static truce_status modify_scratch(struct overlay *overlay, const struct collection_part *part,
                                   const bson_t *filter, const bson_t *update,
                                   const truce_modify_options *options, bson_t *document,
                                   truce_write_result *result, bson_error_t *error)
{
    truce_status status = with_validator(overlay, part, true, error), after;
    bson_error_t ignored;

    if (status)
        return status;
    bson_destroy(document);
    status = truce_find_and_modify(overlay->scratch, part->name, filter, update, options, document,
                                   result, error);
    after = with_validator(overlay, part, false, status ? &ignored : error);
    return status ? status : after;
}

truce_status truce__overlay_modify(truce_store *base, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error)
{
    const truce_find_options how = {.sort = options->sort, .hint = options->hint, .limit = 1};
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, collection);
    truce_modify_options straight = *options;
    struct targets targets = {.unvalidated = options->unvalidated,
                              .replaced = means_all(options->remove, update, options->pipeline)};
    bson_t narrowed = BSON_INITIALIZER;
    truce_status status;

    bson_init(document);
    *result = (truce_write_result){0};
    straight.sort = straight.hint = NULL;
    status = overlay_find_targets(overlay, part, filter, &how, &targets, error);
    if (!status && targets.count) {
        bson_destroy(&narrowed);
        overlay_write_narrow(&targets, filter, &narrowed);
    }
    if (!status)
        status = modify_scratch(overlay, part, targets.count ? &narrowed : filter, update,
                                &straight, document, result, error);
    if (!status && result->upserted)
        status = overlay_check_new(overlay, part, &result->upserted_id, targets.unvalidated, error);
    else if (!status && targets.count)
        status = overlay_check_targets(overlay, part, &targets, error);
    if (status) {
        bson_reinit(document);
        truce_write_result_release(result);
    }
    targets_release(&targets);
    bson_destroy(&narrowed);
    return status;
}
