/* The public verbs that write; store.c says what a wrapper does. A single insert, update or remove
 * is a bulk of one. */
#include "store/answer.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "query/incoming.h"
#include "store/view.h"

void truce_write_result_release(truce_write_result *result)
{
    if (!result)
        return;
    if (result->upserted_id.value_type)
        bson_value_destroy(&result->upserted_id);
    *result = (truce_write_result){0};
}

/* ---- checks --------------------------------------------------------------------------------- */

static truce_status check_write_options(const truce_write_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_write_options", error);

    if (!status)
        status = truce__check_optional(options->array_filters, "array of filters", error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    return status;
}

/* Whoever means every document says so: a filter that was forgotten would mean them, too. */
static truce_status store_write_check_filter(const bson_t *filter, bson_error_t *error)
{
    if (!filter)
        return truce__fail(TRUCE_INVALID, error,
                           "the filter is missing; {} stands for every document");
    return truce__document_check(filter, "filter", error);
}

static truce_status store_write_check_guard(const truce_write *write,
                                            const truce_bulk_options *options, bson_error_t *error)
{
    if (!options->atomic)
        return truce__fail(TRUCE_INVALID, error, "a guard without a change needs an atomic bulk");
    return truce__check_optional(write->filter, "filter", error);
}

static truce_status check_sort(const truce_store *store, const truce_write *write,
                               bson_error_t *error)
{
    const bson_t *sort = write->options.sort;

    if (!sort || bson_empty(sort))
        return TRUCE_OK;
    if (write->kind != TRUCE_WRITE_UPDATE)
        return truce__fail(TRUCE_INVALID, error, "only an update has a sort");
    if (!(store->capabilities & TRUCE_CAN_SORT_UPDATE))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error, "a %s: store cannot sort an update",
                             store->ops->scheme);
    return truce__check_update_sort(sort, write->options.multi, error);
}

/* The bytes are only compared. */
static truce_status check_exact(const truce_store *store, const truce_write *write,
                                bson_error_t *error)
{
    if (!write->exact)
        return TRUCE_OK;
    if (!(store->capabilities & TRUCE_CAN_COMPARE))
        return truce__fail(TRUCE_INVALID, error, "this store cannot compare whole documents");
    if (write->kind == TRUCE_WRITE_INSERT || write->options.multi || write->options.upsert)
        return truce__fail(
            TRUCE_INVALID, error,
            "one document that is there can be compared, not an insert, an upsert or "
            "several");
    return TRUCE_OK;
}

static truce_status check_write(const truce_store *store, const truce_write *write,
                                const truce_bulk_options *options, bson_error_t *error)
{
    truce_status status;

    if (!write->collection)
        return truce__fail(TRUCE_INVALID, error, "the write has no collection");
    status = truce__collection_name_check(write->collection, error);
    if (!status)
        status = check_write_options(&write->options, error);
    if (!status)
        status = ROOM_CHECK(write, "truce_write", error);
    if (!status)
        status = check_exact(store, write, error);
    if (!status)
        status = check_sort(store, write, error);
    if (status)
        return status;
    switch (write->kind) {
    case TRUCE_WRITE_INSERT:
        return truce__check_required(write->document, "document", error);
    case TRUCE_WRITE_UPDATE:
        status = store_write_check_filter(write->filter, error);
        return status ? status : truce__check_required(write->document, "update", error);
    case TRUCE_WRITE_REMOVE:
        return store_write_check_filter(write->filter, error);
    case TRUCE_WRITE_REQUIRE:
    case TRUCE_WRITE_REQUIRE_MISSING:
    case TRUCE_WRITE_LOOK:
        return store_write_check_guard(write, options, error);
    }
    return truce__fail(TRUCE_INVALID, error, "there is no write of kind %d", (int)write->kind);
}

static truce_status check_receipt(const truce_store *store, const truce_receipt *receipt,
                                  bson_error_t *error)
{
    truce_status status;

    if (!receipt)
        return TRUCE_OK;
    if (!(store->capabilities & TRUCE_CAN_RECEIPT))
        return truce__fail(TRUCE_INVALID, error, "this store writes no receipts");
    status = truce__collection_name_check(receipt->collection, error);
    return status ? status : truce__check_required(receipt->key, "key of the receipt", error);
}

static truce_status check_sizes(const truce_store *store, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, bson_error_t *error)
{
    uint64_t bytes = 0;
    truce_status status;

    if (options->atomic && options->unordered)
        return truce__fail(TRUCE_INVALID, error, "a bulk is atomic or unordered, not both");
    if (options->checks && !(options->atomic && store->capabilities & TRUCE_CAN_CHECK))
        return truce__fail(TRUCE_INVALID, error,
                           options->atomic ? "this store cannot check what was read"
                                           : "what was read is checked by an atomic bulk only");
    if (options->receipt && options->atomic)
        return truce__fail(TRUCE_INVALID, error, "an atomic bulk has no receipt");
    status = check_receipt(store, options->receipt, error);
    if (status)
        return status;
    if (count > TRUCE_BULK_MAX)
        return truce__fail(TRUCE_LIMIT, error, "the bulk has %zu writes, the maximum is %d", count,
                           TRUCE_BULK_MAX);
    for (size_t i = 0; i < count; i++)
        bytes += writes[i].document ? writes[i].document->len : 0;
    if (bytes > TRUCE_BULK_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the documents of the bulk have %" PRIu64 " bytes, the maximum is %d",
                           bytes, TRUCE_BULK_BYTES_MAX);
    return TRUCE_OK;
}

/* ---- a bulk on its way ---------------------------------------------------------------------- */

#define PREPARED_FEW 8 /* writes that take no memory of their own */

/* The writes as the backend sees them: filters given, documents to insert with their _id; those
 * that are wrong in themselves are left out. */
struct prepared {
    const truce_store *store;
    truce_write *writes;
    size_t *numbers; /* of each in the caller's list */
    size_t count;
    bson_t *documents; /* prepared documents, by number of the caller's list */
    truce_write_outcome *outcomes;
    truce_write few_writes[PREPARED_FEW];
    size_t few_numbers[PREPARED_FEW];
    bson_t few_documents[PREPARED_FEW];
    truce_write_outcome few_outcomes[PREPARED_FEW];
};

/* As it is not small, only what is used of it is filled. */
static void prepared_init(struct prepared *prepared, const truce_store *store, size_t count)
{
    bool few = count <= PREPARED_FEW;

    prepared->store = store;
    prepared->count = 0;
    prepared->writes = few ? prepared->few_writes : bson_malloc(count * sizeof(truce_write));
    prepared->numbers = few ? prepared->few_numbers : bson_malloc(count * sizeof(size_t));
    prepared->documents = few ? prepared->few_documents
                              : bson_aligned_alloc(_Alignof(bson_t), count * sizeof(bson_t));
    prepared->outcomes =
        few ? prepared->few_outcomes : bson_malloc(count * sizeof(truce_write_outcome));
    for (size_t i = 0; i < count; i++)
        bson_init(&prepared->documents[i]);
    memset(prepared->outcomes, 0, count * sizeof *prepared->outcomes);
}

static void prepared_release(struct prepared *prepared, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bson_destroy(&prepared->documents[i]);
    if (prepared->writes == prepared->few_writes)
        return;
    bson_free(prepared->writes);
    bson_free(prepared->numbers);
    bson_free(prepared->documents);
    bson_free(prepared->outcomes);
}

static truce_status store_write_prepare(struct prepared *prepared, const truce_write *write,
                                        size_t number, const truce_bulk_options *options,
                                        const struct query_context *context, bson_error_t *error)
{
    truce_write *added = &prepared->writes[prepared->count];
    bson_t *document = &prepared->documents[number];
    truce_status status = check_write(prepared->store, write, options, error);
    bool unprepared = !status && write->kind == TRUCE_WRITE_INSERT &&
                      !truce__document_is_prepared(write->document);

    if (unprepared) {
        bson_destroy(document);
        status = truce__document_prepare(write->document, context, document, error);
    }
    if (status)
        return status;
    *added = *write;
    added->filter = truce__filter_or_empty(write->filter);
    if (unprepared)
        added->document = document;
    prepared->numbers[prepared->count++] = number;
    return TRUCE_OK;
}

/* Prepares all, or up to the first that is wrong (all the same if unordered). Returns the number of
 * the first that is wrong, `count` if none is. */
static size_t prepare_all(struct prepared *prepared, const truce_write *writes, size_t count,
                          const truce_bulk_options *options, truce_write_outcome *outcomes)
{
    struct query_context context = {.now_ms = truce__clock_wall_ms()};
    size_t wrong = count;

    for (size_t i = 0; i < count && (wrong == count || options->unordered); i++) {
        outcomes[i].status =
            store_write_prepare(prepared, &writes[i], i, options, &context, &outcomes[i].error);
        context.now_ordinal++;
        if (outcomes[i].status && wrong == count)
            wrong = i;
    }
    return wrong;
}

/* ---- what a backend answered ---------------------------------------------------------------- */

static void check_outcome(const truce_write *write, const truce_write_outcome *outcome)
{
    const truce_write_result *result = &outcome->result;

    truce_assert(result->matched >= 0 && result->modified >= 0);
    truce_assert(result->inserted >= 0 && result->removed >= 0);
    truce_assert(result->modified <= result->matched);
    truce_assert(result->upserted == (result->upserted_id.value_type != 0));
    truce_assert(!result->upserted || result->matched == 0);
    truce_assert(write->kind == TRUCE_WRITE_UPDATE || !result->upserted);
    truce_assert(write->kind == TRUCE_WRITE_REMOVE || result->removed == 0);
    if (outcome->status != TRUCE_OK)
        return;
    if (write->kind == TRUCE_WRITE_INSERT)
        truce_assert(result->inserted == 1);
    if (write->kind == TRUCE_WRITE_REMOVE)
        truce_assert(result->removed == result->matched);
    if (!write->options.multi)
        truce_assert(result->matched <= 1);
}

/* The first failure is the one that is returned, and only an unordered bulk goes on after it. */
static void check_outcomes(const struct prepared *prepared, const truce_bulk_options *options,
                           truce_status status)
{
    truce_status first = TRUCE_OK;
    size_t failures = 0;

    for (size_t i = 0; i < prepared->count; i++) {
        const truce_write_outcome *outcome = &prepared->outcomes[i];

        check_outcome(&prepared->writes[i], outcome);
        if (outcome->status && outcome->error.message[0]) {
            truce__check_answer(outcome->status, &outcome->error);
            first = failures++ ? first : outcome->status;
        }
    }
    truce_assert(failures <= 1 || options->unordered);
    truce_assert(status != TRUCE_OK || failures == 0);
    truce_assert(failures == 0 || status == first);
}

/* The outcomes of writes that were not reached. */
static void fill_outcomes(truce_write_outcome *outcomes, size_t count, bool atomic)
{
    for (size_t i = 0; i < count; i++)
        outcomes[i] = (truce_write_outcome){.status = atomic ? TRUCE_CONFLICT : TRUCE_NOT_FOUND};
}

/* ---- bulk ----------------------------------------------------------------------------------- */

/* The receipt as the backend knows it: of the writes that were prepared. The caller's knows all of its list. */
struct passed_receipt {
    truce_receipt base; /* first */
    truce_receipt *given;
    const struct prepared *prepared;
    truce_write_outcome *outcomes;
    size_t count;
};

static bool pass_agrees(truce_receipt *base, const bson_t *before)
{
    truce_receipt *given = ((struct passed_receipt *)base)->given;

    return given->agrees(given, before);
}

static bool pass_make(truce_receipt *base, const truce_write_outcome *outcomes, size_t count,
                      const bson_t *document, bson_t *after)
{
    const struct passed_receipt *passed = (struct passed_receipt *)base;

    for (size_t i = 0; i < count; i++)
        passed->outcomes[passed->prepared->numbers[i]] = outcomes[i];
    return passed->given->make(passed->given, passed->outcomes, passed->count, document, after);
}

/* Hands the prepared writes to the backend; outcomes go where they belong in the caller's list. */
static truce_status store_write_run(truce_store *store, const struct prepared *prepared,
                                    size_t total, const truce_bulk_options *options,
                                    truce_write_outcome *outcomes, bson_error_t *error)
{
    struct passed_receipt passed = {
        .given = options->receipt, .prepared = prepared, .outcomes = outcomes, .count = total};
    truce_bulk_options how = *options;
    truce_status status;

    if (prepared->count == 0)
        return TRUCE_OK;
    if (options->receipt) {
        passed.base = (truce_receipt){options->receipt->collection, options->receipt->key,
                                      pass_agrees, pass_make};
        how.receipt = &passed.base;
    }
    status =
        store->ops->bulk(store, prepared->writes, prepared->count, &how, prepared->outcomes, error);
    truce__check_answer(status, error);
    check_outcomes(prepared, options, status);
    for (size_t i = 0; i < prepared->count; i++) {
        truce_write_outcome *outcome = &prepared->outcomes[i];

        /* what failed did nothing, but for an update of several documents */
        if (outcome->status && (options->atomic || !prepared->writes[i].options.multi))
            truce_write_result_release(&outcome->result);
        outcomes[prepared->numbers[i]] = *outcome;
    }
    return status;
}

/* The first failure in the caller's order. */
static truce_status first_failure(const truce_write_outcome *outcomes, size_t count,
                                  truce_status status, bson_error_t *error)
{
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].status == TRUCE_OK || !outcomes[i].error.message[0])
            continue;
        *error = outcomes[i].error;
        return outcomes[i].status;
    }
    return status;
}

/* A bulk is refused by the name of its first write. */
static truce_status guard(const truce_store *store, const truce_write *write, bson_error_t *error)
{
    static const char *const names[] = {[TRUCE_WRITE_INSERT] = "insert into",
                                        [TRUCE_WRITE_UPDATE] = "update",
                                        [TRUCE_WRITE_REMOVE] = "remove from"};
    bool named = write->kind >= TRUCE_WRITE_INSERT && write->kind <= TRUCE_WRITE_REMOVE;

    return truce__view_guard(store, named ? names[write->kind] : "write to",
                             write->collection ? write->collection : "a collection", error);
}

truce_status truce_bulk(truce_store *store, const truce_write *writes, size_t count,
                        const truce_bulk_options *options, truce_write_outcome *outcomes,
                        bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(writes, error);
    if (count)
        RETURN_IF_NULL(outcomes, error);

    static const truce_bulk_options defaults;
    struct prepared prepared;
    bson_error_t caught = {0};
    truce_status status;
    size_t wrong;

    options = options ? options : &defaults;
    fill_outcomes(outcomes, count, options->atomic);
    status = ROOM_CHECK(options, "truce_bulk_options", error);
    if (!status)
        status = check_sizes(store, writes, count, options, error);
    if (!status && count)
        status = guard(store, &writes[0], error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status)
        return status;
    prepared_init(&prepared, store, count);
    wrong = prepare_all(&prepared, writes, count, options, outcomes);
    if (wrong == count || !options->atomic)
        status = store_write_run(store, &prepared, count, options, outcomes, &caught);
    else
        fill_outcomes(outcomes, wrong, true);
    if (status && wrong < count && !options->unordered) /* one before it ended the bulk */
        fill_outcomes(&outcomes[wrong], 1, false);
    if (wrong < count || status)
        status = first_failure(outcomes, count, status, &caught);
    prepared_release(&prepared, count);
    return truce__pass_error(status, &caught, error);
}

/* ---- rewriting ------------------------------------------------------------------------------ */

truce_status truce__store_rewrite(truce_store *store, truce_rewrite *rewrite, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(rewrite->collection, error);

    if (!status && !(store->capabilities & TRUCE_CAN_REWRITE))
        status =
            truce__fail(TRUCE_INVALID, error, "a %s: store cannot rewrite", store->ops->scheme);
    if (!status)
        status = truce__view_guard(store, "write to", rewrite->collection, error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status || !rewrite->count)
        return status;
    status = store->ops->rewrite(store, rewrite, &caught);
    truce__check_answer(status, &caught);
    return truce__pass_error(status, &caught, error);
}

/* ---- single writes -------------------------------------------------------------------------- */

static truce_status store_write_write_one(truce_store *store, const truce_write *write,
                                          truce_write_result *result, bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = write->options.relaxed,
                                  .deadline_ms = write->options.deadline_ms};
    truce_write_outcome outcome;
    truce_status status = truce_bulk(store, write, 1, &options, &outcome, error);

    if (result)
        *result = outcome.result;
    else
        truce_write_result_release(&outcome.result);
    return status;
}

truce_status truce_insert(truce_store *store, const char *collection, const bson_t *document,
                          const truce_write_options *options, bson_error_t *error)
{
    truce_write write = {TRUCE_WRITE_INSERT, collection, NULL, document,
                         options ? *options : (truce_write_options){0}};

    return store_write_write_one(store, &write, NULL, error);
}

truce_status truce_update(truce_store *store, const char *collection, const bson_t *filter,
                          const bson_t *update, const truce_write_options *options,
                          truce_write_result *result, bson_error_t *error)
{
    truce_write write = {TRUCE_WRITE_UPDATE, collection, filter, update,
                         options ? *options : (truce_write_options){0}};

    return store_write_write_one(store, &write, result, error);
}

truce_status truce_remove(truce_store *store, const char *collection, const bson_t *filter,
                          const truce_write_options *options, truce_write_result *result,
                          bson_error_t *error)
{
    truce_write write = {TRUCE_WRITE_REMOVE, collection, filter, NULL,
                         options ? *options : (truce_write_options){0}};

    return store_write_write_one(store, &write, result, error);
}

/* ---- find-and-modify ------------------------------------------------------------------------ */

/* The combinations that MongoDB refuses, with its code. */
static truce_status check_combination(const bson_t *update, const truce_modify_options *options,
                                      bson_error_t *error)
{
    const char *wrong = NULL;

    if (options->remove && update)
        wrong = "both an update and remove are given";
    else if (!options->remove && !update)
        wrong = "neither an update nor remove is given";
    else if (options->remove && options->upsert)
        wrong = "remove and upsert exclude each other";
    else if (options->remove && options->return_new)
        wrong = "remove has no new document to return";
    else if (options->remove && options->array_filters)
        wrong = "remove takes no array filters";
    if (wrong)
        return truce__refuse(CODE_FAILED_TO_PARSE, error, "find-and-modify: %s", wrong);
    return TRUCE_OK;
}

static truce_status store_write_check_modify(const truce_store *store, const char *collection,
                                             const bson_t *filter, const bson_t *update,
                                             const truce_modify_options *options,
                                             bson_error_t *error)
{
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = ROOM_CHECK(options, "truce_modify_options", error);
    if (!status)
        status = check_combination(update, options, error);
    if (!status)
        status = store_write_check_filter(filter, error);
    if (!status)
        status = truce__check_optional(update, "update", error);
    if (!status)
        status = truce__check_sort(options->sort, error);
    if (!status)
        status = truce__check_optional(options->projection, "projection", error);
    if (!status)
        status = truce__check_optional(options->hint, "hint", error);
    if (!status)
        status = truce__check_optional(options->array_filters, "array of filters", error);
    if (!status)
        status = check_receipt(store, options->receipt, error);
    return status;
}

static void store_write_check_modified(truce_status status, const truce_modify_options *options,
                                       const bson_t *document, const truce_write_result *result)
{
    truce_assert(document->len >= 5);
    truce_assert(result->matched + result->upserted == (status == TRUCE_OK));
    truce_assert(result->removed == (options->remove && status == TRUCE_OK));
    truce_assert(result->upserted == (result->upserted_id.value_type != 0));
    truce_assert(result->modified <= result->matched);
    truce_assert(!result->upserted || options->upsert);
}

truce_status truce_find_and_modify(truce_store *store, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    static const truce_modify_options defaults;
    truce_write_result done = {0};
    bson_error_t caught = {0};
    truce_status status;

    options = options ? options : &defaults;
    if (result)
        *result = done;
    status = store_write_check_modify(store, collection, filter, update, options, error);
    if (!status)
        status = truce__view_guard(store, "find and modify in", collection, error);
    if (!status)
        status = truce__store_begin(store, error);
    if (status) {
        bson_init(document);
        return status;
    }
    status = store->ops->find_and_modify(store, collection, filter, update, options, document,
                                         &done, &caught);
    store_write_check_modified(status, options, document, &done);
    if (result)
        *result = done;
    else
        truce_write_result_release(&done);
    if (status == TRUCE_NOT_FOUND && !caught.message[0])
        return truce__fail(status, error, "no document of %s matches", collection);
    return truce__pass_error(status, &caught, error);
}
