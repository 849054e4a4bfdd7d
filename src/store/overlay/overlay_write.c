/*
 * Writing within a transaction: what a statement is to change is found through the transaction's own eyes, brought
 * into the scratch if it is not there, and changed there by the scratch, which knows how.
 */
#include "base/assert.h"
#include "query/incoming.h"
#include "query/update/update.h"
#include "store/overlay/overlay_parts.h"

/* What one statement is about. */
struct targets {
    bson_t **documents; /* as they are before it */
    size_t count, room;
    bool unvalidated; /* the validator lets them pass */
    bool replaced;    /* the statement means all of each */
};

/* What is removed is replaced by what may be inserted there. */
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

/* What all of them write together. */
static truce_status check_total(struct overlay *overlay, bson_error_t *error)
{
    struct overlay_total *total = overlay->options.total;

    if (!total)
        return TRUCE_OK;
    atomic_fetch_add(&total->bytes, overlay->bytes - overlay->told);
    overlay->told = overlay->bytes;
    return atomic_load(&total->bytes) <= total->bytes_max
               ? TRUCE_OK
               : truce__refuse(CODE_TRANSACTION_TOO_LARGE, error,
                               "the documents that all transactions write just now have more than "
                               "%zu bytes: begin again when others have ended",
                               total->bytes_max);
}

static truce_status overlay_write_check_room(struct overlay *overlay, bson_error_t *error)
{
    if (overlay->documents > overlay->options.documents_max)
        return truce__refuse(CODE_TRANSACTION_TOO_LARGE, error,
                             "the transaction writes more than %zu documents",
                             overlay->options.documents_max);
    if (overlay->bytes > overlay->options.bytes_max)
        return truce__refuse(CODE_TRANSACTION_TOO_LARGE, error,
                             "the documents that the transaction writes have more than %zu bytes",
                             overlay->options.bytes_max);
    return check_total(overlay, error);
}

/* ---- bringing documents into the scratch ---------------------------------------------------- */

/* Early notice: whoever changes what is no more as the view has it cannot commit. */
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
                         "a document of %s was changed by somebody else meanwhile", part->name);
}

static truce_status bring(struct overlay *overlay, struct collection_part *part,
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

/* The document of the view with the _id of this one, if there is one and it is not in the scratch. */
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
        status = bring(overlay, part, &there, error);
    bson_destroy(&filter);
    bson_destroy(&there);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The documents that a statement changes. */
static truce_status aim(struct overlay *overlay, struct collection_part *part, const bson_t *filter,
                        const truce_find_options *options, struct targets *targets,
                        bson_error_t *error)
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
        status = bring(overlay, part, targets->documents[i], error);
    return status;
}

/* {_id: {$in: the targets'}} */
static void overlay_write_ids_of(const struct targets *targets, bson_t *filter)
{
    bson_t in, list;

    bson_init(filter);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &list);
    for (size_t i = 0; i < targets->count; i++) {
        char buffer[16];
        const char *key;
        bson_iter_t id;

        bson_uint32_to_string((uint32_t)i, &key, buffer, sizeof buffer);
        if (bson_iter_init_find(&id, targets->documents[i], "_id"))
            BSON_APPEND_VALUE(&list, key, bson_iter_value(&id));
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(filter, &in);
}

/* The statement's filter, for the targets alone: the position that it finds in an array is the filter's own. */
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

/* ---- after a change ------------------------------------------------------------------------- */

void truce__overlay_weigh(struct overlay *overlay, struct entry *entry, uint32_t size)
{
    overlay->bytes = overlay->bytes - entry->size + size;
    entry->size = size;
}

static truce_status look_at_changed(struct overlay *overlay, struct collection_part *part,
                                    const bson_t *document, bson_error_t *error)
{
    struct entry *entry = truce__overlay_entry(part, document);
    truce_status status;

    truce_assert(entry);
    truce__overlay_weigh(overlay, entry, document->len);
    status = overlay_write_check_room(overlay, error);
    return status ? status : truce__overlay_unique(overlay, part, document, error);
}

/* What became of the targets in the scratch. */
static truce_status overlay_write_look_after(struct overlay *overlay, struct collection_part *part,
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
        truce__overlay_weigh(overlay, entry, 0);
    }
    overlay_write_ids_of(targets, &filter);
    status = truce_find(overlay->scratch, part->name, &filter, NULL, &cursor, error);
    bson_destroy(&filter);
    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && document)
            status = look_at_changed(overlay, part, document, error);
    } while (!status && document);
    truce_cursor_close(cursor);
    return status;
}

/* A document that was not there before, of which only the _id is known. */
static truce_status look_after_new(struct overlay *overlay, struct collection_part *part,
                                   const bson_value_t *id, bool unvalidated, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER, *only = &document;
    const struct targets targets = {.documents = &only, .count = 1, .unvalidated = unvalidated};
    bool found;
    truce_status status;

    BSON_APPEND_VALUE(&document, "_id", id);
    /* one that the view has is brought in after it, and refused by the scratch as the second of that _id */
    status = bring_same_id(overlay, part, &document, &found, error);
    if (!status && !found && !truce__overlay_entry(part, &document))
        truce__overlay_add(overlay, part, &document, NULL);
    if (!status)
        status = overlay_write_look_after(overlay, part, &targets, error);
    bson_destroy(&document);
    return status;
}

/* The validator counts for what a statement writes, and not for what is brought in. */
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
    return status ? status : overlay_write_look_after(overlay, part, &targets, error);
}

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
    truce_status status = aim(overlay, part, write->filter, &how, &targets, error);

    narrowed.options.sort = narrowed.options.hint = NULL;
    if (!status && targets.count) {
        bson_destroy(&filter);
        overlay_write_narrow(&targets, write->filter, &filter);
        narrowed.filter = &filter;
    }
    if (!status)
        status = write_scratch(overlay, part, &narrowed, outcome, error);
    if (!status && outcome->result.upserted)
        status =
            look_after_new(overlay, part, &outcome->result.upserted_id, targets.unvalidated, error);
    else if (!status && targets.count)
        status = overlay_write_look_after(overlay, part, &targets, error);
    targets_release(&targets);
    bson_destroy(&filter);
    return status;
}

truce_status truce__overlay_write(struct overlay *overlay, const truce_write *write,
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
    status = aim(overlay, part, filter, &how, &targets, error);
    if (!status && targets.count) {
        bson_destroy(&narrowed);
        overlay_write_narrow(&targets, filter, &narrowed);
    }
    if (!status)
        status = modify_scratch(overlay, part, targets.count ? &narrowed : filter, update,
                                &straight, document, result, error);
    if (!status && result->upserted)
        status = look_after_new(overlay, part, &result->upserted_id, targets.unvalidated, error);
    else if (!status && targets.count)
        status = overlay_write_look_after(overlay, part, &targets, error);
    if (status) {
        bson_reinit(document);
        truce_write_result_release(result);
    }
    targets_release(&targets);
    bson_destroy(&narrowed);
    return status;
}
