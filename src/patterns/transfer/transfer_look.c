/* A look at the documents that take part: one find for each collection, of the fields that matter. */
#include <string.h>

#include "base/clock.h"
#include "patterns/transfer/transfer.h"
#include "query/update/update.h"

void truce__transfer_looks_release(struct transfer_look *looks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        bson_destroy(&looks[i].document);
}

bson_value_t truce__transfer_fence(const truce_transfers *transfers, const bson_t *document)
{
    bson_value_t value = {.value_type = BSON_TYPE_EOD};
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, transfers->layout.fence))
        value = *bson_iter_value(&iter);
    return value;
}

/* ---- reading ---------------------------------------------------------------------------------- */

static bool look_add_field(const char *field, size_t length, void *arg)
{
    bson_t *projection = arg;
    bson_iter_t iter;

    if (!bson_iter_init_find_w_len(&iter, projection, field, (int)length))
        bson_append_int32(projection, field, (int)length, 1);
    return true;
}

/* {_id: {$in: [...]}} and the fields, of the entries in the collection of entry `first` */
static void look_ask_for(const truce_transfers *transfers, const struct transfer_plan *plan,
                         uint32_t first, bson_t *filter, bson_t *projection)
{
    bson_t condition, ids;
    uint32_t index = 0;

    BSON_APPEND_INT32(projection, transfers->layout.marks, 1);
    BSON_APPEND_INT32(projection, transfers->layout.fence, 1);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &condition);
    BSON_APPEND_ARRAY_BEGIN(&condition, "$in", &ids);
    for (uint32_t i = first; i < plan->count; i++) {
        const struct transfer_entry *entry = &plan->entries[i];
        char buffer[16];
        const char *key;
        size_t length;

        if (strcmp(entry->collection, plan->entries[first].collection))
            continue;
        length = bson_uint32_to_string(index++, &key, buffer, sizeof buffer);
        bson_append_value(&ids, key, (int)length, &entry->id);
        (void)truce__transfer_each_field(&entry->effect, look_add_field, projection);
        if (!entry->after)
            (void)truce__transfer_each_field(&entry->undo, look_add_field, projection);
    }
    bson_append_array_end(&condition, &ids);
    bson_append_document_end(filter, &condition);
}

static bool look_same_id(const bson_value_t *id, const bson_t *document)
{
    bson_t *holder = BCON_NEW("x", BCON_INT32(0));
    bool same;

    BSON_APPEND_VALUE(holder, "_id", id);
    same = truce__value_equal(truce__value_field(truce__value_document(holder), "_id", 3),
                              truce__value_field(truce__value_document(document), "_id", 3));
    bson_destroy(holder);
    return same;
}

static void look_place(const struct transfer_plan *plan, uint32_t first, const bson_t *document,
                       struct transfer_look *looks)
{
    for (uint32_t i = first; i < plan->count; i++) {
        if (strcmp(plan->entries[i].collection, plan->entries[first].collection) ||
            !look_same_id(&plan->entries[i].id, document))
            continue;
        bson_destroy(&looks[i].document);
        bson_copy_to(document, &looks[i].document);
        looks[i].found = true;
    }
}

static truce_status look_read_collection(truce_transfers *transfers,
                                         const struct transfer_plan *plan, uint32_t first,
                                         struct transfer_look *looks, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    look_ask_for(transfers, plan, first, &filter, &projection);
    status = truce_find(transfers->store, plan->entries[first].collection, &filter, &options,
                        &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && !document)
            break;
        if (!status)
            look_place(plan, first, document, looks);
    }
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool look_is_first(const struct transfer_plan *plan, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++) {
        if (!strcmp(plan->entries[i].collection, plan->entries[at].collection))
            return false;
    }
    return true;
}

truce_status truce__transfer_look(truce_transfers *transfers, const struct transfer_plan *plan,
                                  struct transfer_look *looks, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < plan->count; i++) {
        bson_init(&looks[i].document);
        looks[i].found = false;
    }
    for (uint32_t i = 0; i < plan->count && !status; i++) {
        if (look_is_first(plan, i))
            status = look_read_collection(transfers, plan, i, looks, error);
    }
    return status;
}

/* ---- can it come to its end? ------------------------------------------------------------------ */

static truce_status look_apply(const bson_t *update, const bson_t *before, bson_t *after,
                               bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_result result;
    struct update *compiled = NULL;
    truce_status status = truce__update_new(update, NULL, &compiled, error);

    if (status)
        bson_init(after);
    else
        status = truce__update_apply(compiled, before, NULL, &context, after, &result, error);
    truce__update_free(compiled);
    truce__arena_release(&arena);
    return status;
}

/* Of opposite numbers: then there is nothing to prove. */
static bool undo_is_plain(const struct transfer_entry *entry)
{
    bson_t made = BSON_INITIALIZER;
    bool plain =
        truce__transfer_make_undo(&entry->effect, &made) &&
        truce__value_equal(truce__value_document(&made), truce__value_document(&entry->undo));

    bson_destroy(&made);
    return plain;
}

bool truce__transfer_needs_proof(const struct transfer_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        if (!plan->entries[i].after && !undo_is_plain(&plan->entries[i]))
            return true;
    }
    return false;
}

static truce_status prove_undo(const struct transfer_entry *entry, const bson_t *before,
                               const bson_t *after, const char *text, bson_error_t *error)
{
    bson_error_t why = {0};
    bson_t back;
    truce_status status = look_apply(&entry->undo, after, &back, &why);

    if (status)
        status = truce__fail(TRUCE_INVALID, error, "the undo of %s: %s", text, why.message);
    else if (!truce__value_equal(truce__value_document(&back), truce__value_document(before)))
        status = truce__fail(TRUCE_INVALID, error,
                             "the undo of %s does not take its effect back: the document as it "
                             "stands would become another one",
                             text);
    bson_destroy(&back);
    return status;
}

static truce_status prove_one(const struct transfer_entry *entry, const struct transfer_look *look,
                              bson_error_t *error)
{
    bson_error_t why = {0};
    bson_t after;
    char text[200];
    truce_status status = look_apply(&entry->effect, &look->document, &after, &why);

    truce__transfer_show(entry->collection, &entry->id, text, sizeof text);
    if (status)
        status = truce__fail(TRUCE_REFUSED, error, "the effect on %s: %s", text, why.message);
    else if (!entry->after && !undo_is_plain(entry))
        status = prove_undo(entry, &look->document, &after, text, error);
    bson_destroy(&after);
    return status;
}

truce_status truce__transfer_prove(const struct transfer_plan *plan,
                                   const struct transfer_look *looks, bool credits,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    char text[200];

    for (uint32_t i = 0; i < plan->count && !status; i++) {
        const struct transfer_entry *entry = &plan->entries[i];

        if (!looks[i].found)
            status =
                truce__fail(TRUCE_REFUSED, error, "%s does not exist",
                            truce__transfer_show(entry->collection, &entry->id, text, sizeof text));
        else if (!entry->after || credits)
            status = prove_one(entry, &looks[i], error);
    }
    return status;
}
