/*
 * Balances and statements. Every result names the number up to which it goes, and stays right for
 * this number.
 *
 *     now                  the last number
 *     number               that number
 *     booked until         the last number with an earlier or the same booking time: booking times
 *                          never decrease (LG10 of ledger.c), so a search finds it
 *     effective until      the sum of the entries whose value date is not later
 *                          (ledger_value_date.c), up to the last number, or up to that of one of
 *                          the two above
 */
#include <inttypes.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "base/time_check.h"
#include "bson/field_name_escape.h"
#include "patterns/ledger/ledger.h"
#include "query/input_check.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* ---- a number by a time ---------------------------------------------------------------------- */

/* Reads when a number of the account was booked. */
static truce_status booked_at(struct ledger_reader *reader, const char *account, int64_t number,
                              int64_t *booked_ms, bson_error_t *error)
{
    struct ledger_documents found = {0};
    truce_status status = truce__ledger_fetch_range(reader, account, number, number, &found, error);

    if (!status && !found.count)
        status =
            truce__fail(TRUCE_CORRUPT, error,
                        "number %" PRId64 " of account \"%s\" is missing: run truce ledger verify",
                        number, account);
    if (!status)
        *booked_ms = truce__ledger_date(found.items[0], "ts");
    truce__ledger_documents_release(&found);
    return status;
}

/* Finds the last number that was booked until then, or 0 if none exists. */
static truce_status number_until(struct ledger_reader *reader, const char *account, int64_t last,
                                 int64_t until_ms, int64_t *number, bson_error_t *error)
{
    int64_t low = 0, high = last + 1;
    truce_status status = TRUCE_OK;

    while (!status && low + 1 < high) {
        int64_t middle = low + (high - low) / 2, booked_ms = 0;

        status = booked_at(reader, account, middle, &booked_ms, error);
        if (booked_ms <= until_ms)
            low = middle;
        else
            high = middle;
    }
    *number = low;
    return status;
}

/* ---- balances -------------------------------------------------------------------------------- */

void truce__ledger_balance_from(const struct ledger_state *state, truce_ledger_balance *balance)
{
    *balance = (truce_ledger_balance){.number = state->number,
                                      .balance = state->balance,
                                      .out = state->out,
                                      .in = state->in,
                                      .booked_ms = state->booked_ms};
    if (__builtin_sub_overflow(state->balance, state->out, &balance->available))
        balance->available = INT64_MIN;
    memcpy(balance->currency, state->rules.currency, sizeof balance->currency);
}

static truce_status state_until(struct ledger_reader *reader, const char *account, int64_t until_ms,
                                struct ledger_state *state, bson_error_t *error)
{
    struct ledger_rules rules = state->rules;
    int64_t number;
    truce_status status = number_until(reader, account, state->number, until_ms, &number, error);

    if (status || number == state->number)
        return status;
    if (number)
        return truce__ledger_state_at(reader, account, number, state, error);
    *state = (struct ledger_state){.rules = rules};
    return TRUCE_OK;
}

/* Sets the balance of the state to the sum of the entries up to its number whose value date is not
 * later. The pending amounts become 0. */
static truce_status effective_until(struct ledger_reader *reader, const char *account,
                                    int64_t until_ms, struct ledger_state *state,
                                    bson_error_t *error)
{
    state->out = state->in = 0;
    if (!state->number)
        return TRUCE_OK;
    return truce__ledger_sum_until(reader, account, state->number, until_ms, &state->balance,
                                   error);
}

/* Commits the documents of other programs, because they count only then. On a store that cannot be
 * written, the result is without them. */
static truce_status ledger_read_take_up(struct ledger_reader *reader, const char *account,
                                        struct ledger_state *state, bson_error_t *error)
{
    struct ledger_takeup takeup = {.account = account};
    bson_error_t ignored;

    if (truce__is_only_read(reader->ledger->store))
        return TRUCE_OK;
    if (truce__ledger_take_up(reader, &takeup, &ignored) || !takeup.committed)
        return TRUCE_OK;
    return truce__ledger_head(reader, account, state, error);
}

/* Finds the last state of the account, from the cache if the store has not changed. If documents of
 * other programs follow it, commits them and reads it again. */
static truce_status last_of(struct ledger_reader *reader, const char *account,
                            struct ledger_state *state, bson_error_t *error)
{
    uint64_t version = truce__store_version(reader->ledger->store);
    truce_status status = truce__ledger_usable(reader->ledger, error);

    if (!status)
        status = truce__ledger_account_name(account, error);
    if (status || truce__ledger_recall_last(reader->ledger, account, version, state))
        return status;
    if (!truce__ledger_recall(reader->ledger, account, state))
        *state = (struct ledger_state){0};
    status = truce__ledger_head(reader, account, state, error);
    if (!status && state->behind)
        status = ledger_read_take_up(reader, account, state, error);
    if (!status && !state->number)
        status = truce__ledger_not_open(reader->ledger, account, error);
    if (!status)
        truce__ledger_remember(reader, account, state, state->behind ? 0 : version);
    return status;
}

truce_status truce_ledger_balance_of(truce_ledger *ledger, const char *account,
                                     const truce_ledger_moment *as_of,
                                     truce_ledger_balance *balance, bson_error_t *error)
{
    RETURN_IF_NULL(balance, error);

    static const truce_ledger_moment now;
    struct ledger_reader reader;
    struct ledger_state state;
    truce_status status;

    *balance = (truce_ledger_balance){0};
    if (!as_of)
        as_of = &now;
    status = ROOM_CHECK(as_of, "truce_ledger_moment", error);
    if (status)
        return status;
    if (as_of->number && as_of->booked_ms)
        return truce__fail(TRUCE_INVALID, error,
                           "a balance at number %" PRId64 " and at booking time %" PRId64
                           ": give only one of them",
                           as_of->number, as_of->booked_ms);
    if ((as_of->booked_ms && truce__time_check("booked_ms", as_of->booked_ms, error)) ||
        (as_of->effective_ms > 0 && truce__time_check("effective_ms", as_of->effective_ms, error)))
        return TRUCE_INVALID;
    truce__ledger_reader_init(&reader, ledger);
    status = last_of(&reader, account, &state, error);
    if (!status && as_of->number)
        status = truce__ledger_state_at(&reader, account, as_of->number, &state, error);
    else if (!status && as_of->booked_ms)
        status = state_until(&reader, account, as_of->booked_ms, &state, error);
    if (!status && as_of->effective_ms)
        status = effective_until(&reader, account, as_of->effective_ms, &state, error);
    if (!status && !as_of->effective_ms)
        status = truce__ledger_free_overdue(&reader, account, &state, error);
    if (!status)
        truce__ledger_balance_from(&state, balance);
    return status;
}

/* ---- statements ------------------------------------------------------------------------------ */

struct statement {
    struct ledger_reader *reader;
    const char *account;
    truce_ledger_line_function *function;
    void *arg;
    /* The state of the account after the previous line. */
    struct ledger_state state;
    bool ended;
};

/* Calls the function of the statement for one number of the account. */
static truce_status report_line(struct statement *statement, const bson_t *document, int64_t number,
                                bson_error_t *error)
{
    bson_value_t id = truce__ledger_value(document, "_id");
    truce_ledger_line line = {.id = &id,
                              .state = truce__field_text(document, "state"),
                              .number = number,
                              .booked_ms = truce__ledger_date(document, "ts"),
                              .document = document};
    truce_ledger_balance balance;
    struct ledger_change change;
    truce_status status;

    if (!truce__ledger_change_of(document, statement->account, number, &change))
        return truce__fail(TRUCE_CORRUPT, error,
                           "number %" PRId64
                           " of account \"%s\" is missing: run truce ledger verify",
                           number, statement->account);
    status = truce__ledger_state_of(statement->reader, document, statement->account, number,
                                    &statement->state, error);
    if (status)
        return status;
    truce__ledger_balance_from(&statement->state, &balance);
    line.type = change.type ? change.type : "";
    line.value = change.value;
    line.balance = balance.balance;
    line.available = balance.available;
    line.effective_ms = truce__ledger_value_date(document);
    statement->ended = !statement->function(&line, statement->arg);
    return TRUCE_OK;
}

/* Reports a range of numbers, all of which must exist. */
static truce_status report_window(struct statement *statement, int64_t from, int64_t to,
                                  bson_error_t *error)
{
    struct ledger_documents found = {0};
    truce_status status =
        truce__ledger_fetch_range(statement->reader, statement->account, from, to, &found, error);

    for (int64_t at = from; !status && !statement->ended && at <= to; at++) {
        const bson_t *document = truce__ledger_numbered(&found, statement->account, at);

        status = document ? report_line(statement, document, at, error)
                          : truce__fail(TRUCE_CORRUPT, error,
                                        "number %" PRId64
                                        " of account \"%s\" is missing: run truce ledger verify",
                                        at, statement->account);
    }
    truce__ledger_documents_release(&found);
    return status;
}

/* Books the release of expired amounts as a line of its own. On a store that cannot be written, the
 * statement has only the stored lines. */
static truce_status book_overdue(struct ledger_reader *reader, const char *account,
                                 struct ledger_state *last, bson_error_t *error)
{
    bson_error_t ignored;
    int64_t expired;

    if ((!last->out && !last->in) || truce__is_only_read(reader->ledger->store))
        return TRUCE_OK;
    if (truce__ledger_expire(reader->ledger, account, LEDGER_BULK, &expired, &ignored) || !expired)
        return TRUCE_OK;
    return last_of(reader, account, last, error);
}

truce_status truce_ledger_statement(truce_ledger *ledger, const char *account,
                                    const truce_ledger_page *page,
                                    truce_ledger_line_function *function, void *arg,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    static const truce_ledger_page all;
    struct ledger_reader reader;
    struct statement statement = {
        .reader = &reader, .account = account, .function = function, .arg = arg};
    struct ledger_state last;
    truce_status status;
    int64_t end;

    if (!page)
        page = &all;
    status = ROOM_CHECK(page, "truce_ledger_page", error);
    if (status)
        return status;
    truce__ledger_reader_init(&reader, ledger);
    status = last_of(&reader, account, &last, error);
    if (!status)
        status = book_overdue(&reader, account, &last, error);
    if (!status && (page->after < 0 || page->limit < 0 || page->last < 0))
        status = truce__fail(TRUCE_INVALID, error,
                             "invalid page: `after` is %" PRId64 ", `limit` %" PRId64
                             ", and `last` %" PRId64 ", but none may be negative",
                             page->after, (int64_t)page->limit, page->last);
    if (status)
        return status;
    end = page->last && page->last < last.number ? page->last : last.number;
    if (page->limit && page->limit < end - page->after)
        end = page->after + page->limit;
    if (page->after && page->after <= end)
        status = truce__ledger_state_at(&reader, account, page->after, &statement.state, error);
    for (int64_t from = page->after + 1; !status && !statement.ended && from <= end;
         from += LEDGER_WINDOW)
        status = report_window(&statement, from,
                               end - from >= LEDGER_WINDOW ? from + LEDGER_WINDOW - 1 : end, error);
    return status;
}

/* ---- pending --------------------------------------------------------------------------------- */

/* Passes a copy of the document, with the original names of its metadata, to the function. Returns
 * whether the function wants more documents. */
static bool ledger_read_hand_out(const bson_t *stored, truce_ledger_document_function *function,
                                 void *arg)
{
    bson_t document;
    bool more;

    truce__names_restore(stored, &document);
    more = function(&document, arg);
    bson_destroy(&document);
    return more;
}

truce_status truce_ledger_pending(truce_ledger *ledger, const char *account,
                                  truce_ledger_document_function *function, void *arg,
                                  bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("open", BCON_INT32(1)), later;
    struct ledger_documents found = {0};
    struct ledger_reader reader;
    bool more = true;
    truce_status status = truce__ledger_usable(ledger, error);

    truce__ledger_reader_init(&reader, ledger);
    bson_append_document_begin(&filter, "open", 4, &later);
    BSON_APPEND_DATE_TIME(&later, "$gt", truce__clock_wall_ms());
    bson_append_document_end(&filter, &later);
    if (account)
        BSON_APPEND_UTF8(&filter, "changes.account", account);
    if (!status)
        status = truce__ledger_fetch_filter(&reader, &filter, sort, 0, &found, error);
    for (uint32_t i = 0; !status && more && i < found.count; i++) {
        bson_value_t id = truce__ledger_value(found.items[i], "_id");
        bson_t settled;

        status = truce__ledger_settled(&reader, &id, &settled, error);
        bson_destroy(&settled);
        if (status == TRUCE_NOT_FOUND) {
            more = ledger_read_hand_out(found.items[i], function, arg);
            status = TRUCE_OK;
        }
    }
    truce__ledger_documents_release(&found);
    bson_destroy(sort);
    bson_destroy(&filter);
    return status;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* Appends the conditions on metadata to the filter of a search. */
static truce_status filter_meta(const bson_t *meta, bson_t *filter, bson_error_t *error)
{
    truce_status status = truce__document_check(meta, "meta", error);
    bson_iter_t iter;

    if (status)
        return status;
    (void)!bson_iter_init(&iter, meta);
    while (bson_iter_next(&iter)) {
        const char *field = bson_iter_key(&iter);
        char *path;

        if (!*field || *field == '$')
            return truce__fail(
                TRUCE_INVALID, error,
                "metadata can only be searched by its fields: \"%.60s\" is not a valid field",
                field);
        path = bson_strdup_printf("meta.%s", field);
        bson_append_iter(filter, path, -1, &iter);
        bson_free(path);
    }
    return TRUCE_OK;
}

static void filter_booked(const truce_ledger_search *search, bson_t *filter)
{
    bson_t range;

    if (!search->from_ms && !search->before_ms)
        return;
    bson_append_document_begin(filter, "ts", 2, &range);
    if (search->from_ms)
        BSON_APPEND_DATE_TIME(&range, "$gte", search->from_ms);
    if (search->before_ms)
        BSON_APPEND_DATE_TIME(&range, "$lt", search->before_ms);
    bson_append_document_end(filter, &range);
}

/* Matches what follows the transaction: later ones, and those of the same time with a higher id.
 * The comparison of an expression orders ids of different types, too. */
static truce_status filter_after(const truce_ledger *ledger, const bson_value_t *id, bson_t *filter,
                                 bson_error_t *error)
{
    bson_t by_id = BSON_INITIALIZER, found, any, one, expression, pair, literal;
    bson_value_t booked;
    truce_status status;

    BSON_APPEND_VALUE(&by_id, "_id", id);
    status = truce_find_one(ledger->store, ledger->collection, &by_id, NULL, &found, error);
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(status, error, "no transaction has the id that 'after' gives");
    if (!status) {
        booked = truce__ledger_value(&found, "ts");
        BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
        BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &one);
        BSON_APPEND_DOCUMENT_BEGIN(&one, "ts", &expression);
        BSON_APPEND_VALUE(&expression, "$gt", &booked);
        bson_append_document_end(&one, &expression);
        bson_append_document_end(&any, &one);
        BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &one);
        BSON_APPEND_VALUE(&one, "ts", &booked);
        BSON_APPEND_DOCUMENT_BEGIN(&one, "$expr", &expression);
        BSON_APPEND_ARRAY_BEGIN(&expression, "$gt", &pair);
        BSON_APPEND_UTF8(&pair, "0", "$_id");
        BSON_APPEND_DOCUMENT_BEGIN(&pair, "1", &literal);
        BSON_APPEND_VALUE(&literal, "$literal", id);
        bson_append_document_end(&pair, &literal);
        bson_append_array_end(&expression, &pair);
        bson_append_document_end(&one, &expression);
        bson_append_document_end(&any, &one);
        bson_append_array_end(filter, &any);
    }
    bson_destroy(&found);
    bson_destroy(&by_id);
    return status;
}

/* Checks a search and makes its filter. */
static truce_status filter_search(const truce_ledger *ledger, const truce_ledger_search *search,
                                  bson_t *filter, bson_error_t *error)
{
    bson_t *kinds = BCON_NEW("$nin", "[", BCON_UTF8("open"), BCON_UTF8("rules"), "]");
    truce_status status = TRUCE_OK;

    if (search->limit < 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "the limit is %" PRId64 ": expected 0 (no limit) or more",
                             (int64_t)search->limit);
    if (!status && search->from_ms)
        status = truce__time_check("from_ms", search->from_ms, error);
    if (!status && search->before_ms)
        status = truce__time_check("before_ms", search->before_ms, error);
    if (!status && search->account)
        status = truce__ledger_account_name(search->account, error);
    if (!status && search->account)
        BSON_APPEND_UTF8(filter, "changes.account", search->account);
    if (!status && search->meta)
        status = filter_meta(search->meta, filter, error);
    if (!status && search->after)
        status = filter_after(ledger, search->after, filter, error);
    filter_booked(search, filter);
    BSON_APPEND_DOCUMENT(filter, "kind", kinds);
    bson_destroy(kinds);
    return status;
}

truce_status truce_ledger_find(truce_ledger *ledger, const truce_ledger_search *search,
                               truce_ledger_document_function *function, void *arg,
                               bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    static const truce_ledger_search any;
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("ts", BCON_INT32(1), "_id", BCON_INT32(1));
    struct ledger_documents found = {0};
    struct ledger_reader reader;
    bool more = true;
    truce_status status = truce__ledger_usable(ledger, error);

    if (!search)
        search = &any;
    if (!status)
        status = ROOM_CHECK(search, "truce_ledger_search", error);
    if (!status)
        status = filter_search(ledger, search, &filter, error);
    truce__ledger_reader_init(&reader, ledger);
    if (!status)
        status = truce__ledger_fetch_filter(&reader, &filter, sort, search->limit, &found, error);
    for (uint32_t i = 0; !status && more && i < found.count; i++)
        more = ledger_read_hand_out(found.items[i], function, arg);
    truce__ledger_documents_release(&found);
    bson_destroy(sort);
    bson_destroy(&filter);
    return status;
}
