/*
 * Bulk writes. A single insert, update, or remove is a bulk of one.
 *
 * The caller's thread compiles filters and updates. The writes run as one operation of the writer
 * (writer.c), so no other write happens between them, and all of them are in one commit. A refused
 * write has changed nothing, except for an update of several documents: as in MongoDB, the
 * documents before the refused one remain changed. A write that exceeds its time has changed
 * nothing at all.
 *
 * An atomic bulk of more than one step runs inside a savepoint, which is rolled back if a write is
 * refused or matches nothing. A power cut does no harm: the savepoint is within the transaction.
 *
 * The operation may run again after a failed transaction, so `run` begins by clearing the outcomes.
 */
#include "engine/documents/bulk_write.h"

#include "base/assert.h"
#include "bson/value.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/collections.h"
#include "engine/documents/delegated_writes.h"
#include "engine/documents/indexed_documents.h"
#include "engine/documents/read_validation.h"
#include "query/index/index.h"

/* The steps of the budget (base/budget.h) that changing a document and its index entries takes. */
#define STEPS_OF_CHANGE 64

static truce_status bulk_make(const struct truce_read_checks *checks, struct writer *writer,
                              bson_error_t *error);

/* ---- compiling ------------------------------------------------------------------------------ */

static truce_status compile_update(const truce_write *write, struct compiled *compiled,
                                   bson_error_t *error)
{
    const truce_write_options *options = &write->options;
    struct update_options how = {options->pipeline, options->multi, options->array_filters, true};

    return truce__update_new(write->document, &how, &compiled->update, error);
}

static void write_compile(const truce_write *write, struct compiled *compiled)
{
    const truce_write_options *options = &write->options;

    if (write->kind == TRUCE_WRITE_INSERT)
        return;
    compiled->in_parts = write->in_parts;
    compiled->status = truce__selector_init(write->filter, options->hint || options->upsert,
                                            &compiled->selector, &compiled->error);
    if (!compiled->status && write->kind == TRUCE_WRITE_UPDATE)
        compiled->status = compile_update(write, compiled, &compiled->error);
}

/* ---- one write ------------------------------------------------------------------------------ */

/* A write that is running. */
struct step {
    struct bulk *bulk;
    struct writer *writer;
    const truce_write *write;
    const struct compiled *compiled;
    truce_write_result *result;
    bson_error_t *error;
};

/* Finds the documents of the write's filter. Finds none if the collection does not exist. */
static truce_status write_find(const struct step *step, int64_t limit, struct gather *gather)
{
    struct selection selection = {.selector = &step->compiled->selector,
                                  .sort = step->write->options.sort,
                                  .hint = step->write->options.hint,
                                  .limit = limit};
    const struct collection *collection;
    truce_status status =
        truce__writer_collection(step->writer, step->write->collection, &collection, step->error);

    *gather = (struct gather){0};
    if (status || !collection)
        return status;
    status = truce__select(&selection, step->writer, collection, &step->bulk->context, gather,
                           step->error);
    if (!status && step->write->exact && gather->count &&
        !bson_equal(gather->items[0].document, step->write->exact))
        truce__gather_release(gather);
    return status;
}

static truce_status write_do_insert(const struct step *step)
{
    truce_status status = truce__documents_insert(step->writer, step->write->collection,
                                                  step->write->document, step->error);

    step->result->inserted = !status;
    return status;
}

/* Updates the first match, or all matches, of a write; upserts if nothing matches and the write has
 * the option. */
static truce_status write_do_update(const struct step *step)
{
    const char *collection = step->write->collection;
    struct query_context *context = &step->bulk->context;
    struct gather gather;
    truce_status status = write_find(step, step->write->options.multi ? 0 : 1, &gather);
    bson_t after;

    for (size_t i = 0; i < gather.count && !status; i++) {
        status = truce__budget_spend(context->budget, STEPS_OF_CHANGE, step->error);
        if (status)
            break;
        status = truce__change_update(step->writer, collection, &gather.items[i], step->compiled,
                                      context, &after, step->result, step->error);
        bson_destroy(&after);
    }
    if (!status && !gather.count && step->write->options.upsert) {
        status = truce__change_upsert(step->writer, collection, step->compiled, context, &after,
                                      step->result, step->error);
        bson_destroy(&after);
    }
    truce__gather_release(&gather);
    return status;
}

/* If several documents were removed, records whether the collection is empty now. */
static truce_status note_emptied(const struct step *step)
{
    const struct collection *collection;
    struct kv_cursor first = {0};
    bson_error_t ignored;
    truce_status status =
        truce__writer_collection(step->writer, step->write->collection, &collection, step->error);

    if (status || !collection)
        return status;
    status = truce__kv_rows_seek(step->writer->kv, collection->id, INT64_MIN, false, &first,
                                 step->error);
    if (!status && truce__kv_cursor_next(&first, &ignored) == TRUCE_NOT_FOUND)
        truce__writer_touch_structure(step->writer);
    truce__kv_cursor_close(&first);
    return status;
}

/* Removes the first match, or all matches, of a write. */
static truce_status write_do_remove(const struct step *step)
{
    struct gather gather;
    truce_status status = write_find(step, step->write->options.multi ? 0 : 1, &gather);

    for (size_t i = 0; i < gather.count && !status; i++) {
        status = truce__budget_spend(step->bulk->context.budget, STEPS_OF_CHANGE, step->error);
        if (!status)
            status = truce__change_remove(step->writer, step->write->collection, &gather.items[i],
                                          step->result, step->error);
    }
    if (!status && gather.count && step->write->options.multi)
        status = note_emptied(step);
    truce__gather_release(&gather);
    return status;
}

static truce_status write_do_require(const struct step *step)
{
    struct gather gather;
    truce_status status = write_find(step, 1, &gather);

    step->result->matched = (int64_t)gather.count;
    truce__gather_release(&gather);
    return status;
}

static truce_status (*const do_write[])(const struct step *step) = {
    [TRUCE_WRITE_INSERT] = write_do_insert,
    [TRUCE_WRITE_UPDATE] = write_do_update,
    [TRUCE_WRITE_REMOVE] = write_do_remove,
    [TRUCE_WRITE_REQUIRE] = write_do_require,
    [TRUCE_WRITE_REQUIRE_MISSING] = write_do_require,
    [TRUCE_WRITE_REQUIRE_IN_SNAPSHOT] = write_do_require,
};

/* Fails with CONFLICT if a write of an atomic bulk found no document, or found one that it requires
 * to be missing. */
static truce_status check_found(const truce_write *write, const truce_write_result *result,
                                bson_error_t *error)
{
    bool found = result->matched || result->upserted || result->inserted;
    char shown[200];

    if (found != (write->kind == TRUCE_WRITE_REQUIRE_MISSING))
        return TRUCE_OK;
    return truce__fail(
        TRUCE_CONFLICT, error, "%s document of %s matches %s", found ? "a" : "no",
        write->collection,
        truce__value_show(truce__value_document(write->filter), shown, sizeof shown));
}

/* Runs one write of a bulk and stores its outcome. In an atomic bulk, a write that found nothing
 * fails. */
static truce_status run_write(struct bulk *bulk, struct writer *writer, size_t number)
{
    const struct compiled *compiled = &bulk->compiled[number];
    truce_write_outcome *outcome = &bulk->outcomes[number];
    const truce_write *write = &bulk->writes[number];
    struct step step = {bulk, writer, write, compiled, &outcome->result, &outcome->error};
    truce_status status = compiled->status;

    writer->unvalidated = write->options.unvalidated;
    if (status)
        outcome->error = compiled->error;
    else
        status = do_write[write->kind](&step);
    writer->unvalidated = false;
    if (!status && bulk->options->atomic)
        status = check_found(write, &outcome->result, &outcome->error);
    outcome->status = status;
    return status;
}

/* ---- the operation -------------------------------------------------------------------------- */

static truce_status not_reached(const struct bulk *bulk)
{
    return bulk->options->atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND;
}

static void write_reset_outcomes(struct bulk *bulk, size_t but)
{
    for (size_t i = 0; i < bulk->count; i++) {
        truce__result_reset(&bulk->outcomes[i].result);
        if (i != but)
            bulk->outcomes[i] = (truce_write_outcome){.status = not_reached(bulk)};
    }
}

/* Undoes the changes of an atomic bulk through its savepoint. */
static truce_status write_undo(struct bulk *bulk, struct writer *writer, bson_error_t *error)
{
    truce_status status = truce__writer_undo(writer, error);

    write_reset_outcomes(bulk, bulk->first_at);
    return status;
}

/* Returns whether a write can be refused after it has written. */
static bool needs_savepoint(const struct bulk *bulk)
{
    return bulk->options->atomic && (bulk->count > 1 || bulk->writes[0].options.multi ||
                                     (bulk->view && bulk->options->checks->makings_count));
}

/* Returns whether the time limit ended a write after its first change. A write that exceeds its
 * time has changed nothing: its changes are undone with the transaction. When it runs again, it
 * ends at its first step, because the budget stays exceeded. */
static bool has_half_done(const truce_write_outcome *outcome)
{
    return outcome->status == TRUCE_TIMEOUT && (outcome->result.matched || outcome->result.removed);
}

/* Runs the writes of a bulk, until one is refused in an ordered or atomic bulk. Returns a failure
 * of the transaction; a refused write is in `first`. */
static truce_status run_all(struct bulk *bulk, struct writer *writer, bson_error_t *error)
{
    for (size_t i = 0; i < bulk->count; i++) {
        truce_status status = run_write(bulk, writer, i);

        if (truce__documents_failed(status) || has_half_done(&bulk->outcomes[i])) {
            *error = bulk->outcomes[i].error;
            return status;
        }
        if (!status || bulk->first)
            continue;
        bulk->first = status;
        bulk->first_at = i;
        if (!bulk->options->unordered || bulk->options->atomic)
            break;
    }
    return TRUCE_OK;
}

static void reset_bulk(struct write_op *base)
{
    struct bulk *bulk = (struct bulk *)base;

    bulk->first_at = 0;
    bulk->first = TRUCE_OK;
    write_reset_outcomes(bulk, SIZE_MAX);
}

/* Checks the reads of a transaction, or the receipt, before anything is written, so that a conflict
 * needs no undo. */
static truce_status bulk_check_reads(struct bulk *bulk, struct writer *writer, bson_error_t *error)
{
    truce_write_outcome *first = &bulk->outcomes[0];

    if (!bulk->view && !bulk->receipt.given)
        return TRUCE_OK;
    if (bulk->view)
        first->status = truce__read_validate(bulk->options->checks, bulk->view, writer,
                                             &bulk->context, &first->error);
    else
        first->status = truce__receipt_check(&bulk->receipt, writer, &bulk->context, &first->error);
    bulk->first = first->status;
    if (!truce__documents_failed(first->status))
        return TRUCE_OK;
    *error = first->error;
    return first->status;
}

/* Creates the collections of the checks. If one cannot be created, the first write reports it. */
static truce_status make_first(struct bulk *bulk, struct writer *writer, bson_error_t *error)
{
    truce_write_outcome *first = &bulk->outcomes[0];

    if (!bulk->view)
        return TRUCE_OK;
    first->status = bulk_make(bulk->options->checks, writer, &first->error);
    bulk->first = first->status;
    if (!truce__documents_failed(first->status))
        return TRUCE_OK;
    *error = first->error;
    return first->status;
}

/* Runs a bulk in the writer's transaction: its checks of reads, the collection to make, the writes,
 * and the receipt. If a write fails, undoes the changes of an atomic bulk through the savepoint. */
static truce_status run_bulk(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct bulk *bulk = (struct bulk *)base;
    bool savepoint = needs_savepoint(bulk);
    truce_status status = TRUCE_OK;

    bulk->context.arena = &writer->arena;
    status = bulk_check_reads(bulk, writer, error);
    if (status || bulk->first)
        return status;
    if (savepoint)
        status = truce__kv_savepoint_begin(writer->kv, error);
    if (!status)
        status = make_first(bulk, writer, error);
    if (!status && !bulk->first)
        status = run_all(bulk, writer, error);
    if (!status)
        status =
            truce__receipt_put(&bulk->receipt, writer, bulk->outcomes, bulk->count, NULL, error);
    if (status || !savepoint)
        return status;
    return bulk->first ? write_undo(bulk, writer, error)
                       : truce__kv_savepoint_release(writer->kv, error);
}

/* Passes the failure of the transaction on to the writes. Nothing was committed: the first write
 * gets the reason, and the other writes count as not reached. */
static truce_status write_fail_all(struct bulk *bulk, truce_status status,
                                   const bson_error_t *error)
{
    write_reset_outcomes(bulk, SIZE_MAX);
    bulk->outcomes[0].status = status;
    bulk->outcomes[0].error = *error;
    return status;
}

static truce_status write_finish(struct bulk *bulk, bson_error_t *error)
{
    if (bulk->first)
        *error = bulk->outcomes[bulk->first_at].error;
    return bulk->first;
}

truce_status truce__engine_bulk(struct engine *engine, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    return truce__engine_checked_bulk(engine, NULL, writes, count, options, outcomes, error);
}

void truce__bulk_init(struct bulk *bulk, struct engine *engine)
{
    bulk->compiled =
        bulk->count == 1 ? &bulk->single : bson_malloc0(bulk->count * sizeof *bulk->compiled);
    for (size_t i = 0; i < bulk->count; i++)
        write_compile(&bulk->writes[i], &bulk->compiled[i]);
    bulk->base.reset = reset_bulk;
    bulk->base.run = run_bulk;
    bulk->base.delegated_kind = &truce__delegated_kind_bulk;
    bulk->base.relaxed = bulk->options->relaxed || engine->relaxed;
    bulk->base.early = bulk->options->early;
    bulk->context = truce__engine_context(engine, NULL);
    bulk->context.budget = &bulk->budget;
}

void truce__bulk_release(struct bulk *bulk)
{
    for (size_t i = 0; i < bulk->count; i++)
        truce__compiled_release(&bulk->compiled[i]);
    truce__receipt_release(&bulk->receipt);
    if (bulk->compiled != &bulk->single)
        bson_free(bulk->compiled);
}

truce_status truce__engine_checked_bulk(struct engine *engine, const struct engine *view,
                                        const truce_write *writes, size_t count,
                                        const truce_bulk_options *options,
                                        truce_write_outcome *outcomes, bson_error_t *error)
{
    struct bulk bulk = {
        .writes = writes, .count = count, .options = options, .view = view, .outcomes = outcomes};
    truce_status status = truce__engine_writable(engine, error);

    memset(outcomes, 0, count * sizeof *outcomes);
    if (!count)
        return status;
    truce__bulk_init(&bulk, engine);
    bulk.base.deadline_ns = truce__engine_deadline(engine, options->deadline_ms);
    truce__engine_budget(engine, options->deadline_ms, &bulk.budget);
    if (!status)
        status = truce__receipt_init(&bulk.receipt, options->receipt, error);
    if (!status)
        status = truce__writer_run(&engine->writer, &bulk.base, error);
    status = status ? write_fail_all(&bulk, status, error) : write_finish(&bulk, error);
    truce__bulk_release(&bulk);
    return status;
}

/* ---- collections of a transaction ----------------------------------------------------------- */

/*
 * Creates collections that a transaction has created, as part of its commit. They are empty, so
 * their indexes are ready at once: there are no documents to enter, and no duplicate keys. The
 * transaction's documents follow as ordinary writes.
 */

static void bulk_make_changed(struct writer *writer, const char *collection)
{
    truce__writer_catalog_changed(writer);
    truce__cache_close(writer->cache);
    truce__writer_touch(writer, collection);
}

/* Creates an index of the collection that the bulk makes. The index of _id exists already. */
static truce_status bulk_make_index(struct writer *writer, const char *name,
                                    const bson_t *definition, bson_error_t *error)
{
    const struct collection *collection;
    struct index_spec spec;
    truce_status status = truce__index_spec_parse(definition, &spec, error);
    int64_t id;

    if (status)
        return status;
    if (!spec.is_id) {
        status = truce__writer_collection(writer, name, &collection, error);
        if (!status)
            status =
                truce__catalog_add_index(writer->kv, collection, &spec, INDEX_READY, &id, error);
        bulk_make_changed(writer, name);
        if (!status)
            status = truce__writer_collection(writer, name, &collection, error);
        if (!status)
            status = truce__feed_report_index(writer, FEED_INDEX, collection, &spec, error);
    }
    truce__index_spec_release(&spec);
    return status;
}

static truce_status bulk_make_validator(struct writer *writer, const truce_making *making,
                                        bson_error_t *error)
{
    const struct collection *collection;
    truce_status status;

    if (bson_empty(making->validator))
        return TRUCE_OK;
    status = truce__writer_collection(writer, making->collection, &collection, error);
    if (!status)
        status = truce__catalog_change_validator(writer->kv, collection, making->validator, error);
    bulk_make_changed(writer, making->collection);
    return status;
}

/* Creates the collection that a transaction makes, with its validator and indexes. Fails with a
 * write conflict if it exists in the meantime. */
static truce_status bulk_make_collection(struct writer *writer, const truce_making *making,
                                         bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(making->indexes));
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, making->collection, &collection, error);

    if (status)
        return status;
    if (collection)
        return truce__refuse(CODE_WRITE_CONFLICT, error, "%s was created by another client",
                             making->collection);
    status = truce__names_add_collection(writer, making->collection, error);
    if (status)
        return status;
    bulk_make_changed(writer, making->collection);
    status = bulk_make_validator(writer, making, error);
    if (!status)
        status = truce__feed_report_made(writer, making->collection, error);
    while (!status && truce__fields_next(&fields)) {
        bson_t definition;

        truce__value_bson(fields.value, &definition);
        status = bulk_make_index(writer, making->collection, &definition, error);
    }
    return status;
}

static truce_status bulk_make(const struct truce_read_checks *checks, struct writer *writer,
                              bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < checks->makings_count && !status; i++)
        status = bulk_make_collection(writer, &checks->makings[i], error);
    return status;
}
