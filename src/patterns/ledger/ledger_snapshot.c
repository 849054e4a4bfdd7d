/*
 * All accounts in one consistent cut.
 *
 * A snapshot of the store is a cut. Its accounts are read one after the other, so the memory does
 * not grow with their number. A cursor reads the openings in the order of names; the last entry of
 * each account follows. The opening has the rules, so an account whose rules never changed needs no
 * read for them.
 *
 * A store without snapshots, and the walk over all transactions, take a cut of documents that are
 * read one at a time, with all accounts in memory:
 *
 *     1. Read the names of the accounts, the last number of each (the floor), and the names again.
 *        If they differ, begin again.
 *     2. Read everything after the floor of each account.
 *     3. If the cut has only some changes of a transaction, remove the transaction from the cut,
 *        with everything after it on each of its accounts. Repeat until none is left.
 *
 * All transactions with a number up to the floor were stored when step 2 began, so step 2 has read
 * all their changes: step 3 removes nothing below the floor. The cut therefore contains everything
 * that was posted before the call, and each transaction completely or not at all (LG11 of
 * ledger.c). An account that was opened after step 1 is not in the cut, and transactions of it are
 * removed.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "patterns/ledger/ledger.h"
#include "store/snapshot_view.h"

/* How often the names of the accounts are read again if each read finds other names. */
#define NAMES_TRIES 20

struct ledger_snapshot {
    struct ledger_reader *reader;
    /* The accounts. `state` is the state at the floor, and `next.number` the last number in the
     * cut. */
    struct ledger_table *table;
    /* The transactions after the floors, which step 2 reads. */
    struct ledger_documents behind;
    char **names;
    uint32_t count;
};

void truce__ledger_names_free(char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        bson_free(names[i]);
    bson_free(names);
}

static int ledger_cut_compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void ledger_snapshot_add_name(const bson_t *document, char ***names, uint32_t *count,
                                     uint32_t *room)
{
    if (*count == *room) {
        *room = *room ? 2 * *room : 64;
        *names = bson_realloc(*names, *room * sizeof **names);
    }
    (*names)[(*count)++] = bson_strdup(truce__field_text(document, "opens"));
}

/* Reads only the names, so that many accounts need little memory. Sets *whole to false if a commit
 * in flight holds one of the documents, or the store did not reply. */
static truce_status ledger_cut_read_names(struct ledger_reader *reader, const bson_t *filter,
                                          char ***names, uint32_t *count, bool *whole,
                                          bson_error_t *error)
{
    bson_t *fields = BCON_NEW("opens", BCON_INT32(1), "_intent", BCON_INT32(1));
    truce_find_options options = {.projection = fields, .early = reader->early};
    truce_cursor *cursor = NULL;
    const bson_t *found;
    uint32_t room = 0;
    truce_status status = truce_find(reader->ledger->store, reader->ledger->collection, filter,
                                     &options, &cursor, error);

    *whole = true;
    while (!status && *whole) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        *whole = truce__intent_absent(found);
        if (*whole)
            ledger_snapshot_add_name(found, names, count, &room);
    }
    truce_cursor_close(cursor);
    bson_destroy(fields);
    if (status == TRUCE_UNKNOWN)
        *whole = false;
    return *whole ? status : TRUCE_OK;
}

/* Lists the names of all accounts that were opened, sorted. The caller frees them. */
static truce_status ledger_snapshot_list_names(struct ledger_reader *reader, char ***names,
                                               uint32_t *count, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, exists;
    struct ledger_documents found = {0};
    uint32_t room = 0;
    bool whole;
    truce_status status;

    *names = NULL;
    *count = 0;
    bson_append_document_begin(&filter, "opens", 5, &exists);
    BSON_APPEND_BOOL(&exists, "$exists", true);
    bson_append_document_end(&filter, &exists);
    status = ledger_cut_read_names(reader, &filter, names, count, &whole, error);
    if (!status && !whole) {
        truce__ledger_names_free(*names, *count);
        *names = NULL;
        *count = 0;
        status = truce__ledger_fetch_filter(reader, &filter, NULL, 0, &found, error);
        for (uint32_t i = 0; !status && i < found.count; i++)
            ledger_snapshot_add_name(found.items[i], names, count, &room);
    }
    if (!status && *count)
        qsort(*names, *count, sizeof **names, ledger_cut_compare_names);
    truce__ledger_documents_release(&found);
    bson_destroy(&filter);
    return status;
}

static bool ledger_cut_same_names(char **a, uint32_t a_count, char **b, uint32_t b_count)
{
    if (a_count != b_count)
        return false;
    for (uint32_t i = 0; i < a_count; i++) {
        if (strcmp(a[i], b[i]) != 0)
            return false;
    }
    return true;
}

/* Reads the last state of each account, which becomes its floor. */
static truce_status ledger_snapshot_find_floor(struct ledger_snapshot *cut, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < cut->count; i++) {
        struct ledger_known *known = truce__ledger_at(cut->table, cut->names[i]);

        if (!truce__ledger_recall(cut->reader->ledger, known->account, &known->state))
            known->state = (struct ledger_state){0};
        status = truce__ledger_head(cut->reader, known->account, &known->state, error);
        if (!status)
            truce__ledger_remember(cut->reader, known->account, &known->state, 0);
    }
    return status;
}

/* Executes step 1: reads the names and the floor of each account. Returns LOCKED if each attempt
 * found new accounts. */
static truce_status ledger_snapshot_read_floor(struct ledger_snapshot *cut, bson_error_t *error)
{
    truce_status status = ledger_snapshot_list_names(cut->reader, &cut->names, &cut->count, error);

    for (int i = 0; !status && i < NAMES_TRIES; i++) {
        char **again;
        uint32_t count;
        bool same;

        truce__ledger_table_clear(cut->table);
        status = ledger_snapshot_find_floor(cut, error);
        if (status)
            break;
        status = ledger_snapshot_list_names(cut->reader, &again, &count, error);
        same = !status && ledger_cut_same_names(cut->names, cut->count, again, count);
        truce__ledger_names_free(cut->names, cut->count);
        cut->names = again;
        cut->count = count;
        if (status || same)
            return status;
    }
    return status ? status
                  : truce__fail(
                        TRUCE_LOCKED, error,
                        "accounts were opened during each attempt to read them all: try again");
}

static void ledger_snapshot_move_documents(struct ledger_documents *from,
                                           struct ledger_documents *to)
{
    for (uint32_t i = 0; i < from->count; i++)
        truce__ledger_keep(to, from->items[i]);
    truce__ledger_documents_release(from);
}

static bool ledger_snapshot_is_committed(struct ledger_documents *found, const char *account,
                                         int64_t number)
{
    const bson_t *document = truce__ledger_numbered(found, account, number);
    struct ledger_change change;

    return document && truce__ledger_change_of(document, account, number, &change) &&
           truce__ledger_is_anchor(document, &change);
}

/* Executes step 2: reads the transactions after the floors. */
static truce_status ledger_snapshot_read_after(struct ledger_snapshot *cut, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < cut->count; i++) {
        struct ledger_known *known = truce__ledger_at(cut->table, cut->names[i]);
        struct ledger_documents found = {0};
        bson_t condition = BSON_INITIALIZER;

        BSON_APPEND_INT64(&condition, "$gt", known->state.number);
        status = truce__ledger_fetch(cut->reader, known->account, &condition, 0, &found, error);
        known->next = known->state;
        while (!status &&
               ledger_snapshot_is_committed(&found, known->account, known->next.number + 1))
            known->next.number++;
        ledger_snapshot_move_documents(&found, &cut->behind);
        bson_destroy(&condition);
    }
    return status;
}

static bool ledger_cut_is_in(const struct ledger_snapshot *cut, const struct ledger_change *change)
{
    const struct ledger_known *known = truce__ledger_find(cut->table, change->account);

    return known && change->number <= known->next.number;
}

/* Removes a transaction from the cut, unless all its changes are in it. */
static bool ledger_snapshot_remove(struct ledger_snapshot *cut, const bson_t *document)
{
    struct ledger_change change;
    bool in = true, moved = false;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);)
        in = in && truce__ledger_change(at.value, &change) && ledger_cut_is_in(cut, &change);
    if (in)
        return false;
    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        if (!truce__ledger_change(at.value, &change) || !ledger_cut_is_in(cut, &change))
            continue;
        truce__ledger_find(cut->table, change.account)->next.number = change.number - 1;
        moved = true;
    }
    return moved;
}

/* Executes step 3: removes incomplete transactions from the cut, and computes the state of each
 * account there. */
static truce_status ledger_snapshot_close(struct ledger_snapshot *cut, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < cut->behind.count; i++)
            moved = ledger_snapshot_remove(cut, cut->behind.items[i]) || moved;
    }
    for (uint32_t i = 0; !status && i < cut->count; i++) {
        struct ledger_known *known = truce__ledger_find(cut->table, cut->names[i]);
        int64_t number = known->next.number;
        const bson_t *document;

        known->loaded = true;
        known->next = known->state;
        if (number == known->state.number)
            continue;
        document = truce__ledger_numbered(&cut->behind, known->account, number);
        status = document ? truce__ledger_state_of(cut->reader, document, known->account, number,
                                                   &known->next, error)
                          : truce__ledger_state_at(cut->reader, known->account, number,
                                                   &known->next, error);
    }
    return status;
}

/* Commits the documents of other programs, because they count only then. On a store that cannot be
 * written, the result is without them. */
static void ledger_snapshot_take_up(struct ledger_reader *reader)
{
    struct ledger_takeup takeup = {.account = NULL};
    bson_error_t ignored;

    if (!truce__is_only_read(reader->ledger->store))
        (void)!truce__ledger_take_up(reader, &takeup, &ignored);
}

truce_status truce__ledger_cut(struct ledger_reader *reader, struct ledger_table *table,
                               char ***names, uint32_t *count, bson_error_t *error)
{
    struct ledger_snapshot cut = {.reader = reader, .table = table};
    truce_status status = truce__ledger_usable(reader->ledger, error);

    if (!status)
        ledger_snapshot_take_up(reader);
    if (!status)
        status = ledger_snapshot_read_floor(&cut, error);
    if (!status)
        status = ledger_snapshot_read_after(&cut, error);
    if (!status)
        status = ledger_snapshot_close(&cut, error);
    truce__ledger_documents_release(&cut.behind);
    *names = cut.names;
    *count = cut.count;
    return status;
}

/* ---- each account ---------------------------------------------------------------------------- */

typedef bool account_function(const char *account, const struct ledger_state *state, void *arg);

struct accounts {
    /* Only accounts below `prefix` and only those whose name follows `after` are reported. NULL for
     * no such limit. */
    const char *prefix, *after;
    account_function *function;
    void *arg;
    /* The expired amounts of each account, below zero, in `state.out` and `state.in`. */
    struct ledger_table overdue;
    bool ended;
};

bool truce__ledger_is_below(const char *account, const char *prefix)
{
    size_t length = prefix ? strlen(prefix) : 0;

    return !length ||
           (!strncmp(account, prefix, length) && (!account[length] || account[length] == ':'));
}

static bool ledger_cut_selects(const struct accounts *accounts, const char *account)
{
    return (!accounts->after || strcmp(account, accounts->after) > 0) &&
           truce__ledger_is_below(account, accounts->prefix);
}

/* Reports an account without its expired amounts. */
static void report_account(struct accounts *accounts, const char *account,
                           struct ledger_state *state)
{
    const struct ledger_known *overdue = truce__ledger_find(&accounts->overdue, account);

    if (overdue) {
        state->out += overdue->state.out;
        state->in += overdue->state.in;
    }
    accounts->ended = !accounts->function(account, state, accounts->arg);
}

static struct ledger_state *ledger_snapshot_view_overdue(void *arg, const char *account)
{
    struct ledger_known *known = truce__ledger_at(arg, account);

    /* All numbers of the view count, so the account has the greatest possible number. */
    known->state.number = INT64_MAX;
    return &known->state;
}

/* Finds the last state of an account in a view. The opening has the rules, and usually they still
 * apply. */
static truce_status ledger_snapshot_view_last(struct ledger_reader *reader, const bson_t *opening,
                                              const char *account, struct ledger_state *state,
                                              bson_error_t *error)
{
    struct ledger_change change;

    *state = (struct ledger_state){0};
    if (truce__ledger_change_of(opening, account, 0, &change) && change.sets) {
        truce__ledger_rules_of(&change.set, &state->rules);
        state->rules_at = change.number;
    }
    return truce__ledger_head(reader, account, state, error);
}

/* Appends the filter of the openings of accounts whose name is the prefix, or begins with it and
 * ":", and follows `after`; also of some others. The range begins at the first account of a page,
 * so a page costs the same wherever it begins. */
static void ledger_snapshot_filter_openings(const char *prefix, const char *after, bson_t *filter)
{
    bson_t range;

    bson_append_document_begin(filter, "opens", -1, &range);
    if (after && strcmp(after, prefix ? prefix : "") >= 0)
        BSON_APPEND_UTF8(&range, "$gt", after);
    else
        BSON_APPEND_UTF8(&range, "$gte", prefix ? prefix : "");
    if (prefix && *prefix) {
        /* ";" is the character after ":", so the range ends after all names that begin with the
         * prefix and ":". */
        char *end = bson_strdup_printf("%s;", prefix);

        BSON_APPEND_UTF8(&range, "$lt", end);
        bson_free(end);
    }
    bson_append_document_end(filter, &range);
}

/* Reports the selected accounts of a view, in the order of their names. */
static truce_status ledger_snapshot_each_in_view(struct ledger_reader *reader,
                                                 struct accounts *accounts, bson_error_t *error)
{
    bson_t *sort = BCON_NEW("opens", BCON_INT32(1)), filter = BSON_INITIALIZER;
    truce_find_options options = {.sort = sort, .allow_disk_use = true};
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status = truce__ledger_release_overdue(reader, NULL, ledger_snapshot_view_overdue,
                                                        &accounts->overdue, error);

    ledger_snapshot_filter_openings(accounts->prefix, accounts->after, &filter);
    if (!status)
        status = truce_find(reader->ledger->store, reader->ledger->collection, &filter, &options,
                            &cursor, error);
    while (!status && !accounts->ended) {
        const char *account;
        struct ledger_state state;

        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        account = truce__field_text(found, "opens");
        if (!ledger_cut_selects(accounts, account))
            continue;
        status = ledger_snapshot_view_last(reader, found, account, &state, error);
        if (!status)
            report_account(accounts, account, &state);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(sort);
    return status;
}

static truce_status ledger_snapshot_each_of_view(truce_store *view, const truce_ledger *ledger,
                                                 struct accounts *accounts, bson_error_t *error)
{
    truce_ledger *own =
        truce_ledger_new(view, &(truce_ledger_options){.collection = ledger->collection,
                                                       .deadline_ms = ledger->deadline_ms});
    struct ledger_reader reader;
    truce_status status;

    truce__ledger_reader_init(&reader, own);
    status = ledger_snapshot_each_in_view(&reader, accounts, error);
    truce_ledger_free(own);
    return status;
}

static struct ledger_state *ledger_snapshot_overdue(void *arg, const char *account)
{
    struct ledger_known *known = truce__ledger_find(arg, account);

    return known ? &known->next : NULL;
}

/* Reports the selected accounts of a consistent cut. */
static truce_status ledger_snapshot_each(struct ledger_reader *reader, struct accounts *accounts,
                                         bson_error_t *error)
{
    struct ledger_table table = {0};
    char **names = NULL;
    uint32_t count = 0;
    truce_status status = truce__ledger_cut(reader, &table, &names, &count, error);

    if (!status)
        status =
            truce__ledger_release_overdue(reader, NULL, ledger_snapshot_overdue, &table, error);
    for (uint32_t i = 0; !status && !accounts->ended && i < count; i++) {
        if (ledger_cut_selects(accounts, names[i]))
            report_account(accounts, names[i], &truce__ledger_find(&table, names[i])->next);
    }
    truce__ledger_names_free(names, count);
    truce__ledger_table_clear(&table);
    return status;
}

/* Calls the function for each account that was opened, also if it is closed. The accounts are those
 * below the prefix and after a name, in the order of names, with their states in one cut. */
static truce_status ledger_snapshot_each_account(truce_ledger *ledger, const char *prefix,
                                                 const char *after, account_function *function,
                                                 void *arg, bson_error_t *error)
{
    struct accounts accounts = {.prefix = prefix, .after = after, .function = function, .arg = arg};
    truce_store *view = NULL;
    struct ledger_reader reader;
    truce_status status = truce__ledger_usable(ledger, error);

    if (status)
        return status;
    truce__ledger_reader_init(&reader, ledger);
    if (truce__is_view(ledger->store)) {
        status = ledger_snapshot_each_in_view(&reader, &accounts, error);
    } else {
        ledger_snapshot_take_up(&reader);
        status = truce_snapshot(ledger->store, NULL, &view, error);
        if (!status)
            status = ledger_snapshot_each_of_view(view, ledger, &accounts, error);
        else if (status == TRUCE_INVALID) /* The store has no snapshots, so the cut is computed. */
            status = ledger_snapshot_each(&reader, &accounts, error);
        truce_store_close(view);
    }
    truce__ledger_table_clear(&accounts.overdue);
    return status;
}

/* ---- balances -------------------------------------------------------------------------------- */

struct balances {
    truce_ledger_balance_function *function;
    void *arg;
};

/* Passes an account and its balance to the function of the caller. */
static bool report_balance(const char *name, const struct ledger_state *state, void *arg)
{
    const struct balances *balances = arg;
    const struct ledger_rules *rules = &state->rules;
    truce_ledger_account account = {.account = name,
                                    .currency = rules->currency,
                                    .has_min = rules->has_min,
                                    .has_max = rules->has_max,
                                    .min = rules->min,
                                    .max = rules->max,
                                    .debit_only = rules->debit_only,
                                    .credit_only = rules->credit_only,
                                    .closed = rules->closed};
    truce_ledger_balance balance;

    truce__ledger_balance_from(state, &balance);
    return balances->function(&account, &balance, balances->arg);
}

truce_status truce__ledger_balances_after(truce_ledger *ledger, const char *prefix,
                                          const char *after,
                                          truce_ledger_balance_function *function, void *arg,
                                          bson_error_t *error)
{
    struct balances balances = {function, arg};

    return ledger_snapshot_each_account(ledger, prefix, after, report_balance, &balances, error);
}

truce_status truce_ledger_balances(truce_ledger *ledger, const char *prefix,
                                   truce_ledger_balance_function *function, void *arg,
                                   bson_error_t *error)
{
    RETURN_IF_NULL(function, error);
    return truce__ledger_balances_after(ledger, prefix, NULL, function, arg, error);
}

/* ---- seals ----------------------------------------------------------------------------------- */

/*
 * A seal is a sequence of parts. Each part has a limited number of accounts, so it stays a small
 * document. Each part has a hash over its bytes, which include the hash of the part before. The
 * last hash is therefore that of the whole seal. The last part is marked as such, so a seal with
 * missing parts is not accepted as complete.
 */
struct sealing {
    const truce_ledger *ledger;
    truce_ledger_seal_function *function;
    void *arg;
    int64_t time_ms;
    /* The part that is being filled and its list of accounts; the number of the part; the count of
     * accounts in it. */
    bson_t part, accounts;
    int32_t number;
    uint32_t count;
    /* The hash of the previous part. */
    uint8_t hash[SHA256_BYTES];
    bool ended;
};

static void seal_begin(struct sealing *sealing)
{
    bson_init(&sealing->part);
    BSON_APPEND_UTF8(&sealing->part, "ledger", sealing->ledger->collection);
    BSON_APPEND_DATE_TIME(&sealing->part, "time", sealing->time_ms);
    BSON_APPEND_INT32(&sealing->part, "part", ++sealing->number);
    if (sealing->number > 1)
        BSON_APPEND_BINARY(&sealing->part, "before", BSON_SUBTYPE_BINARY, sealing->hash,
                           SHA256_BYTES);
    bson_append_array_begin(&sealing->part, "accounts", 8, &sealing->accounts);
    sealing->count = 0;
}

void truce__ledger_seal_hash(const bson_t *part, uint8_t digest[SHA256_BYTES])
{
    truce__sha256(bson_get_data(part), part->len, digest);
}

static void seal_end(struct sealing *sealing, bool last)
{
    bson_append_array_end(&sealing->part, &sealing->accounts);
    BSON_APPEND_BOOL(&sealing->part, "last", last);
    truce__ledger_seal_hash(&sealing->part, sealing->hash);
    BSON_APPEND_BINARY(&sealing->part, "hash", BSON_SUBTYPE_BINARY, sealing->hash, SHA256_BYTES);
    if (!sealing->ended)
        sealing->ended = !sealing->function(&sealing->part, sealing->arg);
    bson_destroy(&sealing->part);
}

/* Appends an account to the seal, and begins a new part if the current one is full. */
static bool seal_account(const char *account, const struct ledger_state *state, void *arg)
{
    struct sealing *sealing = arg;
    char buffer[16];
    const char *key;
    size_t length;
    bson_t one;

    if (sealing->count == LEDGER_SEAL_ACCOUNTS) {
        seal_end(sealing, false);
        seal_begin(sealing);
    }
    length = bson_uint32_to_string(sealing->count++, &key, buffer, sizeof buffer);
    bson_append_document_begin(&sealing->accounts, key, (int)length, &one);
    BSON_APPEND_UTF8(&one, "account", account);
    BSON_APPEND_INT64(&one, "number", state->number);
    BSON_APPEND_INT64(&one, "balance", state->balance);
    BSON_APPEND_BINARY(&one, "hash", BSON_SUBTYPE_BINARY, state->hash, SHA256_BYTES);
    bson_append_document_end(&sealing->accounts, &one);
    return !sealing->ended;
}

truce_status truce_ledger_seal(truce_ledger *ledger, truce_ledger_seal_function *function,
                               void *arg, bson_error_t *error)
{
    return truce__ledger_seal_after(ledger, NULL, function, arg, error);
}

truce_status truce__ledger_seal_after(truce_ledger *ledger, const struct ledger_sealed *after,
                                      truce_ledger_seal_function *function, void *arg,
                                      bson_error_t *error)
{
    struct sealing sealing = {
        .ledger = ledger, .function = function, .arg = arg, .time_ms = truce__clock_wall_ms()};
    truce_status status = truce__ledger_usable(ledger, error);

    if (status)
        return status;
    RETURN_IF_NULL(function, error);
    if (after) {
        sealing.number = after->part;
        memcpy(sealing.hash, after->hash, SHA256_BYTES);
    }
    seal_begin(&sealing);
    status = ledger_snapshot_each_account(ledger, NULL, after ? after->account : NULL, seal_account,
                                          &sealing, error);
    sealing.ended = sealing.ended || status;
    seal_end(&sealing, true);
    return status;
}
