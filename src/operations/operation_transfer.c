/* Transfers in two phases: start, show, list, resume, cancel. */
#include <string.h>

#include "bson/value.h"
#include "operations/operation.h"
#include "store/known_names.h"
#include "store/reserved_names.h"
#include "truce/transfer.h"

/* The maximum size of the transfers in one reply. */
#define LIST_BYTES (8 * 1024 * 1024)

/* The layout of the documents. The struct of every command that writes begins with it. */
struct layout {
    const char *accounts, *field, *marks, *fence;
    bool steps;
};

#define LAYOUT_FIELDS                                                                              \
    {GIVEN(layout, accounts, FIELD_TEXT),                                                          \
     "the collection of source and destination. The first transfer of a collection sets this and " \
     "the next three fields permanently"},                                                         \
        {GIVEN(layout, field, FIELD_TEXT),                                                         \
         "the field that the amount is moved from and to; absent: \"balance\""},                   \
        {GIVEN(layout, marks, FIELD_TEXT),                                                         \
         "the field of pending transfers; absent: \"pendingTransactions\""},                       \
        {GIVEN(layout, fence, FIELD_TEXT), "the field of the fence; absent: \"pendingFence\""},    \
    {                                                                                              \
        GIVEN(layout, steps, FIELD_FLAG),                                                          \
            "executes step by step, also if the store supports one step"                           \
    }

static void *make_transfers(void *arg)
{
    const void *const *made = arg;

    return truce_transfers_new((truce_store *)made[0], made[1]);
}

static void free_transfers(void *transfers)
{
    truce_transfers_free(transfers);
}

/* Finds the handle of the transfers with this layout, and checks that the caller may use both
 * collections. */
static truce_status take_transfers(struct operation_call *call, const struct layout *given,
                                   bool writes, struct handle **handle, bson_error_t *error)
{
    truce_transfer_options options = {.field = given->field,
                                      .marks = given->marks,
                                      .fence = given->fence,
                                      .mechanism = given->steps ? TRUCE_MECHANISM_JOURNAL
                                                                : TRUCE_MECHANISM_AUTO};
    const void *made[2] = {call->store, &options};
    char *text;
    truce_status status = truce__operation_own_collection(call, writes, &options.collection, error);

    if (!status && given->steps && call->transaction)
        status =
            truce__refuse(CODE_INVALID_OPTIONS, error,
                          "'steps' is not allowed in a transaction, where a transfer is one step");
    options.accounts = given->accounts;
    if (!status && given->accounts)
        status = truce__operation_collection(call, given->accounts, writes, error);
    if (status)
        return status;
    text = truce__operation_key(given->steps ? "transfers in steps" : "transfers",
                                (const char *const[]){options.collection, options.accounts,
                                                      options.field, options.marks, options.fence},
                                5);
    /* A command that does not name the accounts gets its own handle, because another command may
     * set them later. */
    *handle = truce__operation_handle(call, given->accounts ? text : NULL, make_transfers, made,
                                      free_transfers);
    bson_free(text);
    return TRUCE_OK;
}

/* ---- truceTransfer --------------------------------------------------------------------------- */

struct start_given {
    struct layout layout; /* Must be the first field: the table has offsets into it. */
    const bson_value_t *id, *source, *destination, *amount;
    const bson_t *entries, *meta;
    bool overdraft;
};

static const struct operation_field start_fields[] = {
    {GIVEN(start_given, id, FIELD_VALUE), "the caller's id; sending it again has no effect",
     .needed = true},
    {GIVEN(start_given, source, FIELD_VALUE), "the _id of a document of `accounts`"},
    {GIVEN(start_given, destination, FIELD_VALUE), "the _id of another one"},
    {GIVEN(start_given, amount, FIELD_VALUE),
     "a number above zero, which is moved from one to the other"},
    {GIVEN(start_given, overdraft, FIELD_FLAG), "the balance of the source may become negative"},
    {GIVEN(start_given, entries, FIELD_ARRAY),
     "instead of these four: up to 100, each {collection, id, guard, effect, undo}, or "
     "{collection, id, when: \"after\", effect}, which executes after the decision",
     .each = FIELD_DOCUMENT},
    {GIVEN(start_given, meta, FIELD_DOCUMENT), "metadata that is stored with the transfer"},
    LAYOUT_FIELDS,
    {{0}}};

struct entry_given {
    const char *collection, *when;
    const bson_value_t *id;
    const bson_t *guard, *effect, *undo;
};

static const struct field entry_fields[] = {GIVEN(entry_given, collection, FIELD_TEXT),
                                            GIVEN(entry_given, id, FIELD_VALUE),
                                            GIVEN(entry_given, when, FIELD_TEXT),
                                            GIVEN(entry_given, guard, FIELD_DOCUMENT),
                                            GIVEN(entry_given, effect, FIELD_DOCUMENT),
                                            GIVEN(entry_given, undo, FIELD_DOCUMENT),
                                            {0}};

/* Reads an entry, and checks that the caller may write its collection. */
static truce_status operation_transfer_read_entry(struct operation_call *call,
                                                  const bson_iter_t *at,
                                                  truce_transfer_entry *entry, bson_error_t *error)
{
    struct entry_given given = {0};
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__element_wrong_type("entries", at, "a document", error);
    status = truce__operation_fields(call, truce__field_view(call->arena, at), entry_fields, &given,
                                     error);
    if (status)
        return status;
    if (!given.collection || !given.id)
        return truce__refuse(40414, error,
                             "an entry needs a 'collection' and an 'id', and has no '%s'",
                             given.collection ? "id" : "collection");
    if (given.when && strcmp(given.when, "before") != 0 && strcmp(given.when, "after") != 0)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "'when' must be \"before\" or \"after\", not \"%.80s\"", given.when);
    *entry = (truce_transfer_entry){.collection = given.collection,
                                    .id = given.id,
                                    .after = given.when && !strcmp(given.when, "after"),
                                    .guard = given.guard,
                                    .effect = given.effect,
                                    .undo = given.undo};
    return truce__operation_collection(call, given.collection, true, error);
}

/* Reads 1 to TRANSFER_ENTRIES_MAX entries into the arena. */
static truce_status operation_transfer_read_entries(struct operation_call *call,
                                                    const bson_t *array, truce_transfer *transfer,
                                                    bson_error_t *error)
{
    uint32_t count = bson_count_keys(array);
    truce_transfer_entry *entries;
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (!count || count > TRANSFER_ENTRIES_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'entries' must have 1 to %d elements, and has %u",
                             TRANSFER_ENTRIES_MAX, count);
    entries = truce__arena_take(call->arena, count * sizeof *entries);
    (void)bson_iter_init(&at, array);
    while (!status && bson_iter_next(&at))
        status = operation_transfer_read_entry(call, &at, &entries[transfer->count++], error);
    transfer->entries = entries;
    return status;
}

/* Reads the transfer, which has either `entries`, or `source`, `destination`, and `amount`. */
static truce_status read_transfer(struct operation_call *call, const struct start_given *given,
                                  truce_transfer *transfer, bson_error_t *error)
{
    bool all = given->source && given->destination && given->amount,
         some = given->source || given->destination || given->amount || given->overdraft;

    *transfer = (truce_transfer){.id = given->id,
                                 .source = given->source,
                                 .destination = given->destination,
                                 .value = given->amount,
                                 .overdraft = given->overdraft,
                                 .meta = given->meta};
    if (given->entries ? some : !all)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "give either 'source', 'destination', and 'amount', or 'entries'");
    return given->entries ? operation_transfer_read_entries(call, given->entries, transfer, error)
                          : TRUCE_OK;
}

static truce_status operation_transfer_run_start(struct operation_call *call, const void *arg,
                                                 bson_t *reply, bson_error_t *error)
{
    const struct start_given *given = arg;
    truce_transfer_result result = {0};
    truce_transfer transfer;
    struct handle *handle;
    truce_status status = read_transfer(call, given, &transfer, error);

    if (!status)
        status = take_transfers(call, &given->layout, true, &handle, error);
    if (status)
        return status;
    status = truce_transfer_start(handle->thing, call->commit, &transfer, &result, error);
    truce__operation_return(call, handle);
    if (!status)
        BCON_APPEND(reply, "state", BCON_UTF8("done"), "exists", BCON_BOOL(result.exists));
    return status;
}

static const struct operation_row start_operation = {
    OPERATION("truceTransfer", ROLE_WRITE,
              "changes several documents, all or none, without locking them"),
    .target = "collection",
    .value = "the collection of the transfers",
    .answer =
        "`state`: \"done\", and `exists`: whether it was started before. An error 20 (refused): "
        "the transfer is canceled permanently, because a guard did not match or a document does "
        "not exist. In a transaction, this error ends the transaction, and nothing is stored. "
        "11000 (duplicate): the id was used for another transfer. 2 (invalid): an undo does not "
        "reverse its effect",
    .fields = start_fields,
    .size = sizeof(struct start_given),
    .run = operation_transfer_run_start,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_STRICT | OPERATION_TRANSACTS,
    .example = "{truceTransfer: 'transactions', id: 17, source: 'a', destination: 'b', amount: 1, "
               "accounts: 'accounts', field: 'n'}",
};

/* ---- truceTransferShow ----------------------------------------------------------------------- */

struct id_given {
    struct layout layout; /* Must be the first field: the table has offsets into it. */
    const bson_value_t *id;
};

static const struct operation_field show_fields[] = {
    {GIVEN(id_given, id, FIELD_VALUE), "the id of the transfer", .needed = true}, {{0}}};

/* Appends a transfer without the fields of commits. */
static void append_transfer(struct operation_call *call, const char *key, const bson_t *document,
                            bson_t *reply)
{
    bson_iter_t at;
    bson_t shown;

    BSON_APPEND_DOCUMENT_BEGIN(reply, key, &shown);
    (void)bson_iter_init(&at, document);
    while (bson_iter_next(&at)) {
        const char *name = bson_iter_key(&at);

        if (strcmp(name, "_rev") != 0 && strcmp(name, "_intent") != 0)
            BSON_APPEND_VALUE(&shown, name, bson_iter_value(&at));
    }
    bson_append_document_end(reply, &shown);
}

static truce_status operation_transfer_run_show(struct operation_call *call, const void *arg,
                                                bson_t *reply, bson_error_t *error)
{
    const struct id_given *given = arg;
    struct handle *handle;
    bson_t document;
    truce_status status = take_transfers(call, &given->layout, false, &handle, error);

    if (status)
        return status;
    status = truce_transfer_get(handle->thing, given->id, &document, error);
    truce__operation_return(call, handle);
    if (!status)
        append_transfer(call, "transfer", &document, reply);
    bson_destroy(&document);
    return status;
}

static const struct operation_row show_operation = {
    OPERATION("truceTransferShow", ROLE_READ, "returns the current state of a transfer"),
    .target = "collection",
    .value = "the collection of the transfers",
    .answer =
        "`transfer`: {_id, source, destination, value, state, lastModified, entries, reason, meta, "
        "...}. \"not found\": no such transfer exists, or it was removed long after its end",
    .fields = show_fields,
    .size = sizeof(struct id_given),
    .run = operation_transfer_run_show,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceTransferShow: 'transactions', id: 17}",
};

/* ---- truceTransfers -------------------------------------------------------------------------- */

struct list_given {
    const char *state;
    int64_t limit, skip;
};

static const char *const transfer_states[] = {"initial", "pending",   "committed", "applied",
                                              "done",    "canceling", "canceled",  NULL};

static const struct operation_field list_fields[] = {
    {GIVEN(list_given, state, FIELD_TEXT), "only transfers in this state",
     .words = transfer_states},
    {GIVEN(list_given, limit, FIELD_NUMBER), "the maximum number of transfers; absent: 100", 1,
     1000},
    {GIVEN(list_given, skip, FIELD_NUMBER), "the number of transfers to skip", 0, INT32_MAX},
    {{0}}};

/* Appends the transfers up to `limit` and LIST_BYTES, and `more`. */
static truce_status append_list(struct operation_call *call, truce_cursor *cursor, int64_t limit,
                                bson_t *reply, bson_error_t *error)
{
    const bson_t *transfer = NULL;
    truce_status status;
    uint32_t i = 0;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(reply, "transfers", &array);
    while (!(status = truce_cursor_next(cursor, &transfer, error)) && transfer && i < limit) {
        char buffer[16];
        const char *key;

        if (i && array.len + transfer->len > LIST_BYTES)
            break;
        bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
        append_transfer(call, key, transfer, &array);
    }
    bson_append_array_end(reply, &array);
    BSON_APPEND_BOOL(reply, "more", !status && transfer);
    return status;
}

/* Fails with NOT_FOUND if the collection has neither transfers nor a book. */
static truce_status transfer_list_must_exist(struct operation_call *call, const char *collection,
                                             bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(collection)), any = BSON_INITIALIZER, found;
    truce_status status = truce_find_one(call->store, TRANSFERS, filter, NULL, &found, error);

    bson_destroy(&found);
    if (status == TRUCE_NOT_FOUND) {
        status = truce_find_one(call->store, collection, &any, NULL, &found, error);
        bson_destroy(&found);
    }
    if (status == TRUCE_NOT_FOUND)
        status =
            truce__fail_unknown(call->store, TRANSFERS, "book of transfers", collection, error);
    bson_destroy(&any);
    bson_destroy(filter);
    return status;
}

static truce_status operation_transfer_run_list(struct operation_call *call, const void *arg,
                                                bson_t *reply, bson_error_t *error)
{
    const struct list_given *given = arg;
    int64_t limit = given->limit ? given->limit : 100;
    bson_t filter = BSON_INITIALIZER,
           *sort = BCON_NEW("lastModified", BCON_INT32(-1), "_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .limit = limit + 1, .skip = given->skip};
    const char *collection;
    truce_cursor *cursor;
    truce_status status = truce__operation_own_collection(call, false, &collection, error);

    if (given->state)
        BSON_APPEND_UTF8(&filter, "state", given->state);
    if (!status)
        status = transfer_list_must_exist(call, collection, error);
    if (!status)
        status = truce_find(call->store, collection, &filter, &options, &cursor, error);
    if (!status) {
        status = append_list(call, cursor, limit, reply, error);
        truce_cursor_close(cursor);
    }
    bson_destroy(sort);
    bson_destroy(&filter);
    return status;
}

static const struct operation_row list_operation = {
    OPERATION("truceTransfers", ROLE_READ,
              "lists the transfers of a collection, the last changed first"),
    .target = "collection",
    .value = "the collection of the transfers",
    .answer = "`transfers`, each as in truceTransferShow, and `more`: continue with `skip`",
    .fields = list_fields,
    .size = sizeof(struct list_given),
    .run = operation_transfer_run_list,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceTransfers: 'transactions', state: 'done', limit: 10}",
};

/* ---- truceTransferResume, truceTransferCancel ------------------------------------------------ */

static const struct operation_field id_fields[] = {
    {GIVEN(id_given, id, FIELD_VALUE), "the id of the transfer", .needed = true},
    LAYOUT_FIELDS,
    {{0}}};

typedef truce_status by_id(truce_transfers *transfers, const bson_value_t *id, bson_error_t *error);

static truce_status end_transfer(struct operation_call *call, const struct id_given *given,
                                 by_id *end, const char *state, bson_t *reply, bson_error_t *error)
{
    struct handle *handle;
    truce_status status = take_transfers(call, &given->layout, true, &handle, error);

    if (status)
        return status;
    status = end(handle->thing, given->id, error);
    truce__operation_return(call, handle);
    if (!status)
        BSON_APPEND_UTF8(reply, "state", state);
    return status;
}

static truce_status operation_transfer_run_resume(struct operation_call *call, const void *arg,
                                                  bson_t *reply, bson_error_t *error)
{
    return end_transfer(call, arg, truce_transfer_resume, "done", reply, error);
}

static const struct operation_row resume_operation = {
    OPERATION("truceTransferResume", ROLE_WRITE, "completes an interrupted transfer"),
    .target = "collection",
    .value = "the collection of the transfers",
    .answer =
        "`state`: \"done\". An error: 125 (not found) no such transfer exists; 20 (refused) it "
        "is canceled",
    .fields = id_fields,
    .size = sizeof(struct id_given),
    .run = operation_transfer_run_resume,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceTransferResume: 'transactions', id: 17}",
};

static truce_status operation_transfer_run_cancel(struct operation_call *call, const void *arg,
                                                  bson_t *reply, bson_error_t *error)
{
    return end_transfer(call, arg, truce_transfer_cancel, "canceled", reply, error);
}

static const struct operation_row cancel_operation = {
    OPERATION("truceTransferCancel", ROLE_WRITE, "cancels a transfer that is not decided"),
    .target = "collection",
    .value = "the collection of the transfers",
    .answer = "`state`: \"canceled\", now or before. An error: 125 (not found) no such transfer "
              "exists; 20 (refused) it is decided or done; start another transfer in the other "
              "direction",
    .fields = id_fields,
    .size = sizeof(struct id_given),
    .run = operation_transfer_run_cancel,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceTransferCancel: 'transactions', id: 18}",
};

const struct operation_row *const transfer_operations[] = {
    &start_operation, &show_operation, &list_operation, &resume_operation, &cancel_operation, NULL};
