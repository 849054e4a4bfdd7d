/*
 * Pending transactions that have expired. From their expiry on, their amounts are free in every
 * current balance and for every limit, whether or not a sweep has booked the release:
 *
 *     posts       a post that reaches a limit books the release of the account, and tries again
 *     commits     the plan subtracts expired amounts (it cannot book in another transaction), so
 *                 the stored state after such an entry may be below the minimum
 *     balances    subtract expired amounts
 *     statements  book the release as an entry of its own; a page that was read never changes
 *     sweep       books the release of all accounts
 *
 * `open` is the time at which a pending transaction expires. It is a hint: it is removed when the
 * transaction is settled, and may remain after a crash. `resolves` decides (LG6 of ledger.c).
 */
#include <string.h>

#include "base/clock.h"
#include "patterns/ledger/ledger_post.h"

void truce__ledger_close_pending(truce_ledger *ledger, const bson_value_t *id)
{
    bson_t filter = BSON_INITIALIZER, *update = BCON_NEW("$unset", "{", "open", BCON_UTF8(""), "}");
    truce_write_options options = {.relaxed = true};
    bson_error_t ignored;

    BSON_APPEND_VALUE(&filter, "_id", id);
    truce__intent_append_absent(&filter);
    /* A failure is ignored, because the field is only a hint. The sweep removes it, too. */
    (void)!truce_update(ledger->store, ledger->collection, &filter, update, &options, NULL,
                        &ignored);
    bson_destroy(update);
    bson_destroy(&filter);
}

/* Reads up to `limit` pending transactions that have expired, the oldest first. */
static truce_status expire_find(struct ledger_reader *reader, const char *account, int64_t limit,
                                struct ledger_documents *found, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("open", BCON_INT32(1)), until;
    truce_status status;

    bson_append_document_begin(&filter, "open", 4, &until);
    BSON_APPEND_DATE_TIME(&until, "$lte", truce__clock_wall_ms());
    bson_append_document_end(&filter, &until);
    BSON_APPEND_UTF8(&filter, "state", "PENDING");
    if (account)
        BSON_APPEND_UTF8(&filter, "changes.account", account);
    status = truce__ledger_fetch_filter(reader, &filter, sort, limit, found, error);
    bson_destroy(sort);
    bson_destroy(&filter);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Returns true if the change still holds its amount in the account's state `after`: the state
 * includes the change, but not its release. */
static bool expire_is_held(const struct ledger_change *change, const bson_t *release,
                           const struct ledger_state *after)
{
    struct ledger_change there;

    return change->number <= after->number &&
           !(release && truce__ledger_change_of(release, change->account, 0, &there) &&
             there.number <= after->number);
}

/* Subtracts the amounts of an expired pending transaction from each state that includes them, but
 * not their release. */
static truce_status expire_release_from(struct ledger_reader *reader, const bson_t *document,
                                        ledger_state_function *state_of, void *arg,
                                        bson_error_t *error)
{
    bson_value_t id = truce__ledger_value(document, "_id");
    bson_t release;
    truce_status status = truce__ledger_settled(reader, &id, &release, error);

    if (status && status != TRUCE_NOT_FOUND) {
        bson_destroy(&release);
        return status;
    }
    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        struct ledger_change change;
        struct ledger_state *state;

        if (!truce__ledger_change(at.value, &change) || !truce__ledger_is_anchor(document, &change))
            continue;
        state = state_of(arg, change.account);
        if (!state || !expire_is_held(&change, status ? NULL : &release, state))
            continue;
        if (change.value < 0)
            state->out += change.value;
        else
            state->in -= change.value;
    }
    bson_destroy(&release);
    return TRUCE_OK;
}

truce_status truce__ledger_release_overdue(struct ledger_reader *reader, const char *account,
                                           ledger_state_function *state_of, void *arg,
                                           bson_error_t *error)
{
    struct ledger_documents found = {0};
    truce_status status = expire_find(reader, account, 0, &found, error);

    for (uint32_t i = 0; !status && i < found.count; i++)
        status = expire_release_from(reader, found.items[i], state_of, arg, error);
    truce__ledger_documents_release(&found);
    return status;
}

struct one_account {
    const char *account;
    struct ledger_state *state;
};

static struct ledger_state *expire_state_of_one(void *arg, const char *account)
{
    const struct one_account *one = arg;

    return strcmp(account, one->account) ? NULL : one->state;
}

truce_status truce__ledger_free_overdue(struct ledger_reader *reader, const char *account,
                                        struct ledger_state *state, bson_error_t *error)
{
    struct one_account one = {account, state};

    return state->out || state->in
               ? truce__ledger_release_overdue(reader, account, expire_state_of_one, &one, error)
               : TRUCE_OK;
}

/* ---- booking --------------------------------------------------------------------------------- */

/* Books the release of expired transactions. If another call settles one first, only its hint is
 * removed (LG6). */
truce_status truce__ledger_expire_by(truce_ledger *ledger, const char *account, int64_t limit,
                                     ledger_run *run, int64_t *expired, bson_error_t *error)
{
    struct ledger_documents found = {0};
    struct ledger_reader reader;
    truce_status status;

    truce__ledger_reader_init(&reader, ledger);
    status = expire_find(&reader, account, limit, &found, error);
    *expired = 0;
    for (uint32_t i = 0; !status && i < found.count; i++) {
        truce_ledger_result result = {0};
        bson_value_t id = truce__ledger_value(found.items[i], "_id");
        struct ledger_request request = {.verb = LEDGER_EXPIRE, .of = &id, .result = &result};
        struct ledger_request *one = &request;

        status = run(ledger, &one, 1, error);
        *expired += !status && !result.status && !result.exists;
        if (!status && (result.exists || result.status == TRUCE_DUPLICATE))
            truce__ledger_close_pending(ledger, &id);
    }
    truce__ledger_documents_release(&found);
    return status;
}
