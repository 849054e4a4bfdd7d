/*
 * Writes of the memory store, with the store's mutex from the first read to the last change.
 *
 * A write or an atomic bulk has an undo journal:
 *
 *     inserted   collection, position               undone by removing
 *     replaced   collection, position, old          undone by restoring old
 *     removed    collection, position, old          undone by inserting old
 *     created    collection                         undone by dropping it
 *
 * It is undone from its end, so every position means what it meant when it was noted.
 */
#include <stdlib.h>

#include "base/assert.h"

#include "base/clock.h"
#include "base/limits.h"
#include "query/input_check.h"
#include "query/match/validator.h"
#include "query/project/project.h"
#include "store/memory/memory.h"

enum change_kind { CHANGE_INSERTED, CHANGE_REPLACED, CHANGE_REMOVED, CHANGE_CREATED };

struct change {
    enum change_kind kind;
    struct memory_collection *collection;
    size_t position;
    /* The document before the change. Owned. */
    struct memory_document *old;
};

struct journal {
    struct change *changes;
    size_t count, room;
};

/* The state that all writes of one call share. */
struct writing {
    struct memory_store *store;
    struct budget budget;
    struct query_context context;
    struct arena arena;
    struct journal journal;
    /* The current write bypasses the validator. */
    bool unvalidated;
};

/* ---- find-and-modify ------------------------------------------------------------------------- */

struct modifying {
    struct match *match;
    /* The update, or NULL to remove the document. */
    struct update *update;
    /* The projection, or NULL to return whole documents. */
    struct project *project;
    struct memory_matches matches;
};

static void memory_undo(struct writing *writing, size_t mark);
static void memory_writing_begin(struct writing *writing, truce_store *base, uint32_t deadline_ms);
static void memory_writing_end(struct writing *writing);
static void memory_remove_document(struct writing *writing, struct memory_collection *collection,
                                   size_t position);
static truce_status memory_change(struct writing *writing, struct memory_collection *collection,
                                  const struct memory_match *match, const struct update *update,
                                  bson_t *after, truce_write_result *result, bson_error_t *error);
static truce_status memory_upsert(struct writing *writing, const char *name,
                                  const struct match *match, const struct update *update,
                                  bson_t *made, truce_write_result *result, bson_error_t *error);
static truce_status memory_receipt_check(struct writing *writing, truce_receipt *receipt,
                                         bson_error_t *error);
static truce_status memory_receipt_put(struct writing *writing, truce_receipt *receipt,
                                       const truce_write_outcome *outcomes, size_t count,
                                       const bson_t *document, bson_error_t *error);

static void modifying_release(struct modifying *modifying)
{
    truce__memory_matches_release(&modifying->matches);
    truce__project_free(modifying->project);
    truce__update_free(modifying->update);
    truce__match_free(modifying->match);
}

/* Compiles the filter, the update, and the projection. The caller releases `modifying`, also on
 * failure. */
static truce_status modifying_compile(struct modifying *modifying, const bson_t *filter,
                                      const bson_t *update, const truce_modify_options *options,
                                      bson_error_t *error)
{
    struct update_options how = {.pipeline = options->pipeline,
                                 .array_filters = options->array_filters};
    truce_status status = truce__match_new(filter, &modifying->match, error);

    if (!status && !options->remove)
        status = truce__update_new(update, &how, &modifying->update, error);
    if (!status && options->projection && !bson_empty(options->projection))
        status =
            truce__project_new(options->projection, modifying->match, &modifying->project, error);
    return status;
}

/* Makes `shown` from `document` for the caller. `shown` is initialized and empty before the
 * call. */
static truce_status memory_modify_show(struct writing *writing, const struct modifying *modifying,
                                       const bson_t *document, const struct match_result *found,
                                       bson_t *shown, bson_error_t *error)
{
    bson_destroy(shown);
    if (!modifying->project) {
        bson_copy_to(document, shown);
        return TRUCE_OK;
    }
    truce__arena_reset(&writing->arena);
    return truce__project_apply(modifying->project, truce__value_document(document), found,
                                &writing->context, shown, error);
}

/* Changes or removes the first match. */
static truce_status modify_found(struct writing *writing, const char *name,
                                 const struct modifying *modifying, bool return_new,
                                 bson_t *document, truce_write_result *result, bson_error_t *error)
{
    struct memory_collection *collection = truce__memory_find(writing->store, name);
    const struct memory_match *match = &modifying->matches.items[0];
    truce_status status;
    bson_t after = BSON_INITIALIZER;

    if (modifying->update) {
        bson_destroy(&after);
        status =
            memory_change(writing, collection, match, modifying->update, &after, result, error);
    } else {
        memory_remove_document(writing, collection, match->position);
        result->matched = result->removed = 1;
        status = TRUCE_OK;
    }
    if (!status)
        status = memory_modify_show(writing, modifying, return_new ? &after : match->document->bson,
                                    &match->found, document, error);
    bson_destroy(&after);
    return status;
}

/* Upserts if nothing matched and the option is set, otherwise returns NOT_FOUND without a
 * message. */
static truce_status modify_missing(struct writing *writing, const char *name,
                                   const struct modifying *modifying,
                                   const truce_modify_options *options, bson_t *document,
                                   truce_write_result *result, bson_error_t *error)
{
    const struct match_result found = {.array_index = -1};
    truce_status status;
    bson_t made;

    if (!options->upsert)
        return TRUCE_NOT_FOUND;
    status =
        memory_upsert(writing, name, modifying->match, modifying->update, &made, result, error);
    if (!status && options->return_new)
        status = memory_modify_show(writing, modifying, &made, &found, document, error);
    bson_destroy(&made);
    return status;
}

truce_status truce__memory_find_and_modify(truce_store *base, const char *name,
                                           const bson_t *filter, const bson_t *update,
                                           const truce_modify_options *options, bson_t *document,
                                           truce_write_result *result, bson_error_t *error)
{
    struct modifying modifying = {0};
    struct memory_query query = {.sort = options->sort, .hint = options->hint, .limit = 1};
    truce_write_outcome outcome = {0};
    struct writing writing;
    truce_status status;

    bson_init(document);
    *result = (truce_write_result){0};
    memory_writing_begin(&writing, base, options->deadline_ms);
    writing.unvalidated = options->unvalidated;
    status = memory_receipt_check(&writing, options->receipt, error);
    if (!status)
        status = modifying_compile(&modifying, filter, update, options, error);
    query.match = modifying.match;
    query.context = &writing.context;
    if (!status)
        status = truce__memory_select(truce__memory_find(writing.store, name), &query,
                                      &modifying.matches, error);
    if (!status && modifying.matches.count > 0)
        status =
            modify_found(&writing, name, &modifying, options->return_new, document, result, error);
    else if (!status)
        status = modify_missing(&writing, name, &modifying, options, document, result, error);
    outcome.result = *result;
    if (!status)
        status = memory_receipt_put(&writing, options->receipt, &outcome, 1, document, error);
    if (status) {
        memory_undo(&writing, 0);
        bson_destroy(document);
        bson_init(document);
        truce_write_result_release(result);
    }
    memory_writing_end(&writing);
    modifying_release(&modifying);
    return status;
}

/* ---- the undo journal ------------------------------------------------------------------------ */

static void memory_write_note(struct writing *writing, enum change_kind kind,
                              struct memory_collection *collection, size_t position,
                              struct memory_document *old)
{
    struct journal *journal = &writing->journal;

    if (journal->count == journal->room) {
        journal->room = journal->room ? journal->room * 2 : 16;
        journal->changes = bson_realloc(journal->changes, journal->room * sizeof(struct change));
    }
    journal->changes[journal->count++] = (struct change){kind, collection, position, old};
}

/* Undoes one change. The old document goes back into the list. */
static void undo_change(struct writing *writing, struct change *change)
{
    struct memory_collection *collection = change->collection;

    switch (change->kind) {
    case CHANGE_INSERTED:
        truce__memory_document_release(truce__memory_remove(collection, change->position));
        break;
    case CHANGE_REPLACED:
        truce__memory_document_release(
            truce__memory_replace(collection, change->position, change->old));
        break;
    case CHANGE_REMOVED:
        truce__memory_insert(collection, change->position, change->old);
        break;
    case CHANGE_CREATED:
        truce_assert(collection->count == 0);
        truce__memory_drop(writing->store, collection);
        break;
    }
}

/* Undoes all changes of the journal except the first `mark`. */
static void memory_undo(struct writing *writing, size_t mark)
{
    while (writing->journal.count > mark)
        undo_change(writing, &writing->journal.changes[--writing->journal.count]);
}

/* Forgets the journal, keeps its changes, and wakes waiting threads. */
static void memory_write_commit(struct writing *writing)
{
    struct journal *journal = &writing->journal;

    for (size_t i = 0; i < journal->count; i++) {
        truce__memory_written(writing->store, journal->changes[i].collection);
        truce__memory_document_release(journal->changes[i].old);
    }
    journal->count = 0;
}

/* Acquires the store's mutex. memory_writing_end keeps the changes and releases it. */
static void memory_writing_begin(struct writing *writing, truce_store *base, uint32_t deadline_ms)
{
    *writing = (struct writing){.store = (struct memory_store *)base};
    writing->context = (struct query_context){
        .now_ms = truce__clock_wall_ms(), .budget = &writing->budget, .arena = &writing->arena};
    truce__store_budget(base, deadline_ms, &writing->budget);
    pthread_mutex_lock(&writing->store->mutex);
}

static void memory_writing_end(struct writing *writing)
{
    memory_write_commit(writing);
    pthread_mutex_unlock(&writing->store->mutex);
    bson_free(writing->journal.changes);
    truce__arena_release(&writing->arena);
}

/* ---- single documents ----------------------------------------------------------------------- */

static truce_status memory_write_validate(const struct writing *writing,
                                          const struct memory_collection *collection,
                                          const bson_t *document, bson_error_t *error)
{
    return writing->unvalidated ? TRUCE_OK
                                : truce__validator_test(collection->validator, collection->name,
                                                        writing->context.now_ms, document, error);
}

/* Inserts a document, and creates its collection if it does not exist. Records both, so that they
 * can be undone. */
static truce_status memory_write_insert(struct writing *writing, const char *name,
                                        const bson_t *bson, bson_error_t *error)
{
    struct memory_collection *collection = truce__memory_find(writing->store, name);
    struct memory_document *document = NULL;
    truce_status status;

    if (!collection) {
        collection = truce__memory_find_or_create(writing->store, name);
        memory_write_note(writing, CHANGE_CREATED, collection, 0, NULL);
    }
    status = memory_write_validate(writing, collection, bson, error);
    if (!status)
        status = truce__memory_document_new(collection, bson, &document, error);
    if (!status)
        status =
            truce__memory_check_unique(collection, document, SIZE_MAX, &writing->budget, error);
    if (status) {
        truce__memory_document_release(document);
        return status;
    }
    memory_write_note(writing, CHANGE_INSERTED, collection, collection->count, NULL);
    truce__memory_insert(collection, collection->count, document);
    return TRUCE_OK;
}

/* Replaces a document after all checks, and records the old one in the journal. */
static truce_status memory_write_replace(struct writing *writing,
                                         struct memory_collection *collection, size_t position,
                                         const bson_t *bson, bson_error_t *error)
{
    struct memory_document *document = NULL, *old;
    truce_status status = truce__document_check(bson, "updated document", error);

    if (!status)
        status = memory_write_validate(writing, collection, bson, error);
    if (!status)
        status = truce__memory_document_new(collection, bson, &document, error);
    if (!status)
        status =
            truce__memory_check_unique(collection, document, position, &writing->budget, error);
    if (status) {
        truce__memory_document_release(document);
        return status;
    }
    old = truce__memory_replace(collection, position, document);
    memory_write_note(writing, CHANGE_REPLACED, collection, position, old);
    return TRUCE_OK;
}

static void memory_remove_document(struct writing *writing, struct memory_collection *collection,
                                   size_t position)
{
    struct memory_document *old = truce__memory_remove(collection, position);

    memory_write_note(writing, CHANGE_REMOVED, collection, position, old);
}

/* ---- one write ------------------------------------------------------------------------------ */

/* Updates one document that was found; `after` is always initialized. */
static truce_status memory_change(struct writing *writing, struct memory_collection *collection,
                                  const struct memory_match *match, const struct update *update,
                                  bson_t *after, truce_write_result *result, bson_error_t *error)
{
    struct update_result changed = {0};
    truce_status status;

    truce__arena_reset(&writing->arena);
    status = truce__update_apply(update, match->document->bson, &match->found, &writing->context,
                                 after, &changed, error);
    if (!status && changed.modified)
        status = memory_write_replace(writing, collection, match->position, after, error);
    if (!status) {
        result->matched++;
        result->modified += changed.modified;
    }
    return status;
}

static void memory_write_keep_id(const bson_t *document, truce_write_result *result)
{
    bson_iter_t iter;
    bool found = bson_iter_init_find(&iter, document, "_id");

    truce_assert(found);
    bson_value_copy(bson_iter_value(&iter), &result->upserted_id);
    result->upserted = true;
}

/* Inserts the document that filter and update make, because nothing matched. `made` is always
 * initialized. */
static truce_status memory_upsert(struct writing *writing, const char *name,
                                  const struct match *match, const struct update *update,
                                  bson_t *made, truce_write_result *result, bson_error_t *error)
{
    bson_t raw;
    truce_status status;

    bson_init(made);
    truce__arena_reset(&writing->arena);
    status = truce__update_insert(update, match, &writing->context, &raw, error);
    if (!status)
        status = truce__document_check(&raw, "upserted document", error);
    if (!status) {
        bson_destroy(made);
        status = truce__document_prepare(&raw, &writing->context, made, error);
    }
    if (!status)
        status = memory_write_insert(writing, name, made, error);
    if (!status)
        memory_write_keep_id(made, result);
    bson_destroy(&raw);
    return status;
}

/* Finds the documents of a write. None is left if `exact` is set and the document differs from
 * it. */
static truce_status select_for(struct writing *writing, const truce_write *write,
                               const struct match *match, int64_t limit,
                               struct memory_matches *matches, bson_error_t *error)
{
    struct memory_query query = {.match = match,
                                 .sort = write->options.sort,
                                 .hint = write->options.hint,
                                 .limit = limit,
                                 .context = &writing->context};
    truce_status status = truce__memory_select(
        truce__memory_find(writing->store, write->collection), &query, matches, error);

    if (!status && write->exact && matches->count &&
        !bson_equal(matches->items[0].document->bson, write->exact))
        truce__memory_matches_release(matches);
    return status;
}

/* Updates the first match, or all matches, of a write. Upserts if nothing matches and the write has
 * the option. */
static truce_status memory_write_do_update(struct writing *writing, const truce_write *write,
                                           truce_write_result *result, bson_error_t *error)
{
    const truce_write_options *options = &write->options;
    struct update_options how = {options->pipeline, options->multi, options->array_filters};
    struct memory_matches matches = {0};
    struct match *match = NULL;
    struct update *update = NULL;
    truce_status status = truce__match_new(write->filter, &match, error);
    bson_t after;

    if (!status)
        status = truce__update_new(write->document, &how, &update, error);
    if (!status)
        status = select_for(writing, write, match, options->multi ? 0 : 1, &matches, error);
    for (size_t i = 0; i < matches.count && !status; i++) {
        status = truce__budget_spend(&writing->budget, 1, error);
        if (status)
            break;
        status = memory_change(writing, truce__memory_find(writing->store, write->collection),
                               &matches.items[i], update, &after, result, error);
        bson_destroy(&after);
    }
    if (!status && matches.count == 0 && options->upsert) {
        status = memory_upsert(writing, write->collection, match, update, &after, result, error);
        bson_destroy(&after);
    }
    truce__memory_matches_release(&matches);
    truce__update_free(update);
    truce__match_free(match);
    return status;
}

static truce_status memory_write_do_insert(struct writing *writing, const truce_write *write,
                                           truce_write_result *result, bson_error_t *error)
{
    truce_status status = memory_write_insert(writing, write->collection, write->document, error);

    result->inserted += !status;
    return status;
}

static int memory_write_by_position(const void *a, const void *b)
{
    const struct memory_match *x = a, *y = b;

    return (x->position > y->position) - (x->position < y->position);
}

/* Removes the first match, or all matches, of a write. */
static truce_status memory_write_do_remove(struct writing *writing, const truce_write *write,
                                           truce_write_result *result, bson_error_t *error)
{
    struct memory_matches matches = {0};
    struct match *match = NULL;
    truce_status status = truce__match_new(write->filter, &match, error);

    if (!status)
        status = select_for(writing, write, match, write->options.multi ? 0 : 1, &matches, error);
    /* Removes from the end of the list, so that the other positions stay valid. */
    if (matches.count > 1)
        qsort(matches.items, matches.count, sizeof *matches.items, memory_write_by_position);
    for (size_t i = matches.count; i > 0 && !status; i--)
        memory_remove_document(writing, truce__memory_find(writing->store, write->collection),
                               matches.items[i - 1].position);
    if (!status)
        result->matched = result->removed = (int64_t)matches.count;
    if (!status && write->options.multi && matches.count &&
        !truce__memory_find(writing->store, write->collection)->count)
        writing->store->dropped = ++writing->store->sequence;
    truce__memory_matches_release(&matches);
    truce__match_free(match);
    return status;
}

/* Counts whether a document matches. check_required then decides, by the kind of the write. */
static truce_status memory_write_do_require(struct writing *writing, const truce_write *write,
                                            truce_write_result *result, bson_error_t *error)
{
    struct memory_matches matches = {0};
    struct match *match = NULL;
    truce_status status = truce__match_new(write->filter, &match, error);

    if (!status)
        status = select_for(writing, write, match, 1, &matches, error);
    if (!status)
        result->matched = (int64_t)matches.count;
    truce__memory_matches_release(&matches);
    truce__match_free(match);
    return status;
}

typedef truce_status write_function(struct writing *writing, const truce_write *write,
                                    truce_write_result *result, bson_error_t *error);

static write_function *const write_functions[] = {
    [TRUCE_WRITE_INSERT] = memory_write_do_insert,
    [TRUCE_WRITE_UPDATE] = memory_write_do_update,
    [TRUCE_WRITE_REMOVE] = memory_write_do_remove,
    [TRUCE_WRITE_REQUIRE] = memory_write_do_require,
    [TRUCE_WRITE_REQUIRE_MISSING] = memory_write_do_require,
    [TRUCE_WRITE_REQUIRE_IN_SNAPSHOT] = memory_write_do_require,
};

/* ---- bulk ----------------------------------------------------------------------------------- */

static truce_status check_required(const truce_write *write, const truce_write_result *result,
                                   bson_error_t *error)
{
    char shown[200];
    bool found = result->matched > 0 || result->upserted || result->inserted > 0;

    if (found != (write->kind == TRUCE_WRITE_REQUIRE_MISSING))
        return TRUCE_OK;
    return truce__fail(TRUCE_CONFLICT, error, "%s document of %s matches %s", found ? "a" : "no",
                       write->collection,
                       write->filter ? truce__value_show(truce__value_document(write->filter),
                                                         shown, sizeof(shown))
                                     : "{}");
}

/* Runs one write. A write that fails leaves no change, with one exception: an update of several
 * documents leaves those before the failure, unless its time has expired. */
static truce_status do_write(struct writing *writing, const truce_write *write,
                             const truce_bulk_options *options, truce_write_outcome *outcome)
{
    size_t mark = writing->journal.count;
    bool partial = write->kind == TRUCE_WRITE_UPDATE && write->options.multi;
    truce_status status;

    writing->unvalidated = write->options.unvalidated;
    status = write_functions[write->kind](writing, write, &outcome->result, &outcome->error);

    if (!status && options->atomic)
        status = check_required(write, &outcome->result, &outcome->error);
    if (status && (!partial || status == TRUCE_TIMEOUT)) {
        memory_undo(writing, mark);
        truce_write_result_release(&outcome->result);
    }
    if (!options->atomic && !options->receipt)
        memory_write_commit(writing);
    outcome->status = status;
    return status;
}

static void memory_write_reset_outcomes(truce_write_outcome *outcomes, size_t count, size_t but,
                                        truce_status status)
{
    for (size_t i = 0; i < count; i++) {
        if (i == but)
            continue;
        truce_write_result_release(&outcomes[i].result);
        outcomes[i] = (truce_write_outcome){.status = status};
    }
}

/* Runs the writes up to the first failure, or all of an unordered bulk. Undoes an atomic bulk that
 * fails. Returns the first failure. */
static truce_status do_writes(struct writing *writing, const truce_write *writes, size_t count,
                              const truce_bulk_options *options, truce_write_outcome *outcomes,
                              bson_error_t *error)
{
    truce_status first = TRUCE_OK, status;

    for (size_t i = 0; i < count && (!first || options->unordered); i++) {
        status = do_write(writing, &writes[i], options, &outcomes[i]);
        if (!status || first)
            continue;
        first = status;
        if (error)
            *error = outcomes[i].error;
        if (options->atomic) {
            memory_undo(writing, 0);
            memory_write_reset_outcomes(outcomes, count, i, TRUCE_CONFLICT);
            truce_write_result_release(&outcomes[i].result);
            break;
        }
    }
    return first;
}

/* Undoes the whole bulk. The first write gets the reason. */
static truce_status memory_write_fail_all(struct writing *writing, truce_write_outcome *outcomes,
                                          size_t count, truce_status status,
                                          const bson_error_t *error)
{
    memory_undo(writing, 0);
    memory_write_reset_outcomes(outcomes, count, SIZE_MAX, TRUCE_NOT_FOUND);
    outcomes[0].status = status;
    outcomes[0].error = *error;
    return status;
}

truce_status truce__memory_bulk(truce_store *base, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    truce_status first, status;
    struct writing writing;

    for (size_t i = 0; i < count; i++)
        outcomes[i] =
            (truce_write_outcome){.status = options->atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND};
    memory_writing_begin(&writing, base, options->deadline_ms);
    first = status = memory_receipt_check(&writing, options->receipt, error);
    if (!status)
        first = do_writes(&writing, writes, count, options, outcomes, error);
    if (!status)
        status = memory_receipt_put(&writing, options->receipt, outcomes, count, NULL, error);
    if (status)
        first = memory_write_fail_all(&writing, outcomes, count, status, error);
    memory_writing_end(&writing);
    return first;
}

/* ---- rewriting ------------------------------------------------------------------------------ */

/* Finds a unique index that has the fields of `wanted`, and puts the key into `key`. Returns its
 * number, or -1. */
static int64_t memory_write_index_of(const struct memory_collection *collection,
                                     const bson_t *wanted, struct buffer *key)
{
    for (uint32_t i = 0; collection && i < collection->indexes_count; i++) {
        if (truce__index_key_of(collection->indexes[i], wanted, key))
            return i;
    }
    return -1;
}

/* Returns the position of the document, or SIZE_MAX if no document has the key. */
static size_t memory_write_position_of(const struct memory_collection *collection, int64_t index,
                                       const struct buffer *key)
{
    for (size_t at = 0; at < collection->count; at++) {
        const struct field_keys *keys = &collection->documents[at]->keys[index];
        uint32_t start = 0;

        for (uint32_t i = 0; i < keys->count; start = keys->ends[i++]) {
            if (keys->ends[i] - start == key->size &&
                !memcmp(keys->bytes.bytes + start, key->bytes, key->size))
                return at;
        }
    }
    return SIZE_MAX;
}

static truce_status memory_write_put(struct writing *writing, const char *name, size_t position,
                                     const bson_t *after, bson_error_t *error)
{
    truce_status status = truce__document_check_size(after, "document", error);

    if (status)
        return status;
    if (position == SIZE_MAX)
        return memory_write_insert(writing, name, after, error);
    return memory_write_replace(writing, truce__memory_find(writing->store, name), position, after,
                                error);
}

/* Returns the position of the receipt's document, or SIZE_MAX if it does not exist. */
static size_t receipt_at(const struct writing *writing, const truce_receipt *receipt)
{
    const struct memory_collection *collection =
        truce__memory_find(writing->store, receipt->collection);
    struct buffer key = {0};
    int64_t index = memory_write_index_of(collection, receipt->key, &key);
    size_t at = index < 0 ? SIZE_MAX : memory_write_position_of(collection, index, &key);

    truce__buffer_release(&key);
    return at;
}

/* Checks a receipt (truce/sys/store.h), if it is not NULL. Fails with CONFLICT if the stored
 * document differs from the expected one. */
static truce_status memory_receipt_check(struct writing *writing, truce_receipt *receipt,
                                         bson_error_t *error)
{
    size_t at = receipt ? receipt_at(writing, receipt) : SIZE_MAX;
    const struct memory_collection *collection;

    if (!receipt)
        return TRUCE_OK;
    collection = truce__memory_find(writing->store, receipt->collection);
    return receipt->agrees(receipt, at == SIZE_MAX ? NULL : collection->documents[at]->bson)
               ? TRUCE_OK
               : truce__fail(TRUCE_CONFLICT, error,
                             "the receipt in %s differs from the expected one",
                             receipt->collection);
}

/* Writes the receipt. After any failure, everything must be undone. */
static truce_status memory_receipt_put(struct writing *writing, truce_receipt *receipt,
                                       const truce_write_outcome *outcomes, size_t count,
                                       const bson_t *document, bson_error_t *error)
{
    bson_t after = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (receipt && receipt->make(receipt, outcomes, count, document, &after)) {
        /* A validator applies to documents of users, not to a receipt. */
        writing->unvalidated = true;
        status = memory_write_put(writing, receipt->collection, receipt_at(writing, receipt),
                                  &after, error);
    }
    bson_destroy(&after);
    return status;
}

/* Computes and stores one document of a rewrite. A refusal is passed to the caller and ends
 * nothing. */
static void memory_write_rewrite_one(struct writing *writing, truce_rewrite *rewrite, size_t number,
                                     const struct memory_collection *collection, size_t position)
{
    bool found = position != SIZE_MAX;
    bson_t after = BSON_INITIALIZER;
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;

    if (rewrite->make(rewrite, number, found ? collection->documents[position]->bson : NULL,
                      &after))
        status = memory_write_put(writing, rewrite->collection, position, &after, &why);
    if (status)
        rewrite->refuse(rewrite, number, status, &why);
    bson_destroy(&after);
}

truce_status truce__memory_rewrite(truce_store *base, truce_rewrite *rewrite, bson_error_t *error)
{
    struct memory_collection *collection;
    struct buffer key = {0};
    struct writing writing;
    int64_t index = 0;

    (void)error;
    memory_writing_begin(&writing, base, 0);
    rewrite->begin(rewrite);
    collection = truce__memory_find(writing.store, rewrite->collection);
    for (size_t i = 0; i < rewrite->count && index >= 0; i++) {
        index = memory_write_index_of(collection, rewrite->keys[i], &key);
        truce_assert(index >= 0 || i == 0);
        if (index >= 0)
            memory_write_rewrite_one(&writing, rewrite, i, collection,
                                     memory_write_position_of(collection, index, &key));
    }
    memory_writing_end(&writing);
    truce__buffer_release(&key);
    return index < 0 ? TRUCE_NOT_FOUND : TRUCE_OK;
}
