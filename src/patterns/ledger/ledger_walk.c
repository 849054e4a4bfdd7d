/*
 * The walk over a book: every transaction once, in an order in which the book could be posted
 * again. The order is by booking time, and each transaction follows those before it on all its
 * accounts.
 *
 *     1. A cut (ledger_snapshot.c) gives the last number of each account.
 *     2. All transactions are read by their time; a transaction outside of the cut is skipped.
 *     3. A transaction that follows one that was not reported yet is held until then.
 *        Two such transactions have the same millisecond, or times that other programs chose.
 *
 * Transactions in a cut are stored forever, so step 2 reads all of them. If one is missing, it was
 * removed, and the walk fails.
 */
#include <inttypes.h>

#include "base/field.h"
#include "base/null.h"
#include "patterns/ledger/ledger.h"

struct walk {
    /* The accounts of the cut. `next.number` is the last number in the cut, and `state.number` the
     * last number that was reported. */
    struct ledger_table cut;
    /* The transactions that wait for their predecessors. One that was reported is NULL. */
    struct ledger_documents held;
    truce_ledger_document_function *function;
    void *arg;
    bool ended;
};

enum walk_order { ORDER_OUTSIDE, ORDER_LATER, ORDER_NEXT };

/* Decides whether a document is outside of the cut, is the next one of all its accounts, or must
 * wait for its predecessors. */
static enum walk_order walk_order_of(const struct walk *walk, const bson_t *document)
{
    struct fields at = truce__ledger_changes(document);
    enum walk_order walk_order = ORDER_OUTSIDE;
    struct ledger_change change;

    while (truce__fields_next(&at)) {
        const struct ledger_known *known = truce__ledger_change(at.value, &change)
                                               ? truce__ledger_find(&walk->cut, change.account)
                                               : NULL;

        if (!known || change.number > known->next.number)
            return ORDER_OUTSIDE;
        if (change.number == known->state.number + 1 && walk_order == ORDER_OUTSIDE)
            walk_order = ORDER_NEXT;
        else if (change.number > known->state.number + 1 &&
                 !truce__ledger_change_of(document, change.account, known->state.number + 1,
                                          &change))
            walk_order = ORDER_LATER;
    }
    return walk_order;
}

static void walk_report(struct walk *walk, const bson_t *document)
{
    struct fields at = truce__ledger_changes(document);
    struct ledger_change change;

    while (truce__fields_next(&at)) {
        if (truce__ledger_change(at.value, &change)) {
            int64_t *reported = &truce__ledger_find(&walk->cut, change.account)->state.number;

            *reported = change.number > *reported ? change.number : *reported;
        }
    }
    walk->ended = !walk->function(document, walk->arg);
}

/* Reports the waiting documents whose predecessors were reported, and removes them from the
 * list. */
static void walk_report_held(struct walk *walk)
{
    uint32_t left = 0;

    for (bool more = true; more && !walk->ended;) {
        more = false;
        for (uint32_t i = 0; i < walk->held.count && !walk->ended; i++) {
            bson_t *document = walk->held.items[i];

            if (!document || walk_order_of(walk, document) != ORDER_NEXT)
                continue;
            walk_report(walk, document);
            bson_destroy(document);
            walk->held.items[i] = NULL;
            more = true;
        }
    }
    for (uint32_t i = 0; i < walk->held.count; i++) {
        if (walk->held.items[i])
            walk->held.items[left++] = walk->held.items[i];
    }
    walk->held.count = left;
}

/* Reports a document that is the next one, or keeps it until its predecessors were reported. */
static void walk_take(struct walk *walk, const bson_t *document)
{
    switch (walk_order_of(walk, document)) {
    case ORDER_OUTSIDE:
        break;
    case ORDER_LATER:
        truce__ledger_keep(&walk->held, document);
        break;
    case ORDER_NEXT:
        walk_report(walk, document);
        if (walk->held.count)
            walk_report_held(walk);
        break;
    }
}

/* Reads all documents in the order of booking. */
static truce_status walk_read_all(struct walk *walk, const truce_ledger *ledger,
                                  bson_error_t *error)
{
    bson_t *sort = BCON_NEW("ts", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .allow_disk_use = true};
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status =
        truce_find(ledger->store, ledger->collection, NULL, &options, &cursor, error);

    while (!status && !walk->ended) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        walk_take(walk, found);
    }
    truce_cursor_close(cursor);
    bson_destroy(sort);
    return status;
}

/* Checks that all numbers up to the cut were reported (LG1 of ledger.c). */
static truce_status walk_check_complete(const struct walk *walk, bson_error_t *error)
{
    for (uint32_t i = 0; i < walk->cut.room && !walk->ended; i++) {
        const struct ledger_known *known = walk->cut.slots[i];

        if (known && known->state.number < known->next.number)
            return truce__fail(TRUCE_CORRUPT, error,
                               "number %" PRId64
                               " of account \"%s\" is missing: run truce ledger verify",
                               known->state.number + 1, known->account);
    }
    return TRUCE_OK;
}

/* Sets the last number of each account that an earlier walk reported: [{account, number}]. */
static truce_status walk_resume(struct walk *walk, const bson_t *after, bson_error_t *error)
{
    struct fields at = truce__fields(truce__value_array(after));

    while (truce__fields_next(&at)) {
        struct ledger_known *known;
        const char *account;
        int64_t number;
        bson_t one;

        if (at.value.type != BSON_TYPE_DOCUMENT)
            return truce__fail(TRUCE_INVALID, error,
                               "an element of 'after' must be {account, number}");
        truce__value_bson(at.value, &one);
        account = truce__field_text(&one, "account");
        number = truce__field_number(&one, "number");
        known = truce__ledger_find(&walk->cut, account);
        if (!known || number < 0 || number > known->next.number)
            return truce__fail(
                TRUCE_INVALID, error,
                "'after' does not belong to this ledger, which has no number %" PRId64
                " of account \"%.200s\"",
                number, account);
        known->state.number = number;
    }
    return TRUCE_OK;
}

/* Appends the last number of each account that was reported. */
static void walk_append_reached(const struct walk *walk, bson_t *reached)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < walk->cut.room; i++) {
        const struct ledger_known *known = walk->cut.slots[i];
        char buffer[16];
        const char *key;
        bson_t one;

        if (!known || !known->state.number)
            continue;
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(reached, key, &one);
        BCON_APPEND(&one, "account", BCON_UTF8(known->account), "number",
                    BCON_INT64(known->state.number));
        bson_append_document_end(reached, &one);
    }
}

truce_status truce_ledger_walk(truce_ledger *ledger, truce_ledger_document_function *function,
                               void *arg, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    return truce__ledger_walk_after(ledger, NULL, function, arg, NULL, error);
}

truce_status truce__ledger_walk_after(truce_ledger *ledger, const bson_t *after,
                                      truce_ledger_document_function *function, void *arg,
                                      bson_t *reached, bson_error_t *error)
{
    struct walk walk = {.function = function, .arg = arg};
    struct ledger_reader reader;
    char **names = NULL;
    uint32_t count = 0;
    truce_status status;

    truce__ledger_reader_init(&reader, ledger);
    status = truce__ledger_cut(&reader, &walk.cut, &names, &count, error);
    for (uint32_t i = 0; !status && i < count; i++)
        truce__ledger_find(&walk.cut, names[i])->state.number = 0;
    if (!status && after)
        status = walk_resume(&walk, after, error);
    if (!status)
        status = walk_read_all(&walk, ledger, error);
    if (!status)
        status = walk_check_complete(&walk, error);
    if (!status && reached)
        walk_append_reached(&walk, reached);
    truce__ledger_documents_release(&walk.held);
    truce__ledger_names_free(names, count);
    truce__ledger_table_clear(&walk.cut);
    return status;
}
