/*
 * What looks after ledgers: the reconciler, what is past its time, and the check.
 *
 * The reconciler is for transactions that others inserted UNCOMMITTED, as the description has it: truce inserts
 * COMMITTED itself (L3). It takes one whose predecessors on all its accounts are COMMITTED, and writes proc, balances and
 * hashes in one write that compares what they were made of.
 */
#include "patterns/ledger/ledger_care.h"

#include "base/clock.h"
#include "base/field.h"
#include "patterns/ledger/ledger.h"
#include "store/reserved.h"

/* ---- the reconciler ------------------------------------------------------------------------- */

/* A transaction's changes with the states after them. */
struct reckoning {
    struct ledger_look *look;
    const bson_t *document;
    struct ledger_table table; /* next: after the changes so far */
    uint8_t digest[SHA256_BYTES];
    bson_t changes;
};

/* *ready: what stands before the change is COMMITTED. */
static truce_status before_of(struct reckoning *reckoning, const struct ledger_change *change,
                              struct ledger_known **known, bool *ready, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *known = truce__ledger_at(&reckoning->table, change->account);
    *ready = true;
    if ((*known)->loaded)
        return TRUCE_OK;
    if (change->number > 1)
        status = truce__ledger_state_at(reckoning->look, change->account, change->number - 1,
                                        &(*known)->next, error);
    *ready = !status && (change->number == 1 || (*known)->next.committed);
    (*known)->loaded = true;
    return status == TRUCE_NOT_FOUND || status == TRUCE_CORRUPT ? TRUCE_OK : status;
}

static void append_change(struct value value, const struct ledger_state *state, uint32_t index,
                          bson_t *changes)
{
    char buffer[16];
    const char *key;
    size_t length = bson_uint32_to_string(index, &key, buffer, sizeof buffer);
    bson_t old, one;

    truce__value_bson(value, &old);
    bson_append_document_begin(changes, key, (int)length, &one);
    bson_copy_to_excluding_noinit(&old, &one, "cachedBal", "pendingOut", "pendingIn", "rules",
                                  "hash", NULL);
    BSON_APPEND_INT64(&one, "cachedBal", state->balance);
    if (state->out)
        BSON_APPEND_INT64(&one, "pendingOut", state->out);
    if (state->in)
        BSON_APPEND_INT64(&one, "pendingIn", state->in);
    BSON_APPEND_INT64(&one, "rules", state->rules_at);
    BSON_APPEND_BINARY(&one, "hash", BSON_SUBTYPE_BINARY, state->hash, SHA256_BYTES);
    bson_append_document_end(changes, &one);
}

/* *ready false: it has to wait. */
static truce_status reckon(struct reckoning *reckoning, bool *ready, bson_error_t *error)
{
    bool counts = truce__ledger_is(reckoning->document, "state", "VALID"),
         pending = truce__ledger_is(reckoning->document, "state", "PENDING");
    truce_status status = TRUCE_OK;
    uint32_t index = 0;

    truce__ledger_digest(reckoning->document, reckoning->digest);
    *ready = true;
    for (struct fields at = truce__ledger_changes(reckoning->document);
         !status && *ready && truce__fields_next(&at);) {
        uint8_t before[SHA256_BYTES];
        struct ledger_change change;
        struct ledger_known *known;

        *ready = truce__ledger_change(at.value, &change);
        if (!*ready)
            break;
        status = before_of(reckoning, &change, &known, ready, error);
        if (status || !*ready)
            break;
        status = truce__ledger_add(&known->next, &change, counts, pending, error);
        memcpy(before, known->next.hash, sizeof before);
        truce__ledger_chain(reckoning->digest, change.account, before, &known->next);
        append_change(at.value, &known->next, index++, &reckoning->changes);
    }
    return status;
}

/* {_id, proc: UNCOMMITTED, state and changes as used} -> COMMITTED, the changes with their balances */
static truce_status write_committed(struct reckoning *reckoning, bool *took, bson_error_t *error)
{
    truce_ledger *ledger = reckoning->look->ledger;
    bson_value_t id = truce__ledger_value(reckoning->document, "_id"),
                 state = truce__ledger_value(reckoning->document, "state"),
                 changes = truce__ledger_value(reckoning->document, "changes");
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_write_result result = {0};
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", &id);
    BSON_APPEND_UTF8(&filter, "proc", "UNCOMMITTED");
    if (state.value_type != BSON_TYPE_EOD)
        BSON_APPEND_VALUE(&filter, "state", &state);
    BSON_APPEND_VALUE(&filter, "changes", &changes);
    truce__intent_append_absent(&filter);
    bson_append_document_begin(&update, "$set", 4, &inner);
    BSON_APPEND_UTF8(&inner, "proc", "COMMITTED");
    BSON_APPEND_ARRAY(&inner, "changes", &reckoning->changes);
    bson_append_document_end(&update, &inner);
    status =
        truce_update(ledger->store, ledger->collection, &filter, &update, NULL, &result, error);
    *took = !status && result.matched;
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(&filter);
    return truce__repeatable(status) ? TRUCE_OK : status; /* the next look tells */
}

static truce_status commit_one(struct ledger_look *look, const bson_t *document, bool *took,
                               bson_error_t *error)
{
    struct reckoning reckoning = {.look = look, .document = document, .changes = BSON_INITIALIZER};
    bool ready;
    truce_status status = reckon(&reckoning, &ready, error);

    *took = false;
    if (!status && ready)
        status = write_committed(&reckoning, took, error);
    truce__ledger_table_clear(&reckoning.table);
    bson_destroy(&reckoning.changes);
    return status == TRUCE_LIMIT ? TRUCE_OK : status; /* it stays as it is; `left` tells */
}

static truce_status find_uncommitted(struct ledger_look *look, int64_t limit,
                                     struct ledger_documents *found, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&filter, "proc", "UNCOMMITTED");
    status = truce__ledger_fetch_filter(look, &filter, NULL, limit, found, error);
    bson_destroy(&filter);
    return status;
}

truce_status truce__ledger_reconcile(struct ledger_look *look, int64_t limit, int64_t *done,
                                     int64_t *left, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *done = *left = 0;
    for (bool progress = true; !status && progress;) {
        struct ledger_documents found = {0};

        progress = false;
        *left = 0;
        status = find_uncommitted(look, limit, &found, error);
        for (uint32_t i = 0; !status && i < found.count; i++) {
            bool took;

            status = commit_one(look, found.items[i], &took, error);
            progress = progress || took;
            *done += took;
            *left += !took;
        }
        truce__ledger_documents_release(&found);
    }
    return status;
}

/* ---- the sweep ------------------------------------------------------------------------------ */

static truce_status sweep_ledger(struct sweep *sweep, const char *collection,
                                 const bson_t *document, void *arg, bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(
        sweep->store, &(truce_ledger_options){.collection = truce__field_text(document, "_id")});
    int64_t done = 0, left = 0, expired = 0;
    struct ledger_look look;
    truce_status status;

    (void)collection;
    (void)arg;
    truce__ledger_look(&look, ledger);
    status = truce__ledger_reconcile(&look, sweep->batch, &done, &left, error);
    if (!status)
        status = truce__ledger_expire(ledger, NULL, sweep->batch, &expired, error);
    sweep->report->finished += done;
    sweep->report->expired += expired;
    sweep->report->more = sweep->report->more || expired == (int64_t)sweep->batch;
    truce_ledger_free(ledger);
    return status;
}

truce_status truce__ledger_sweep(struct sweep *sweep, bson_error_t *error)
{
    return truce__sweep_each(sweep, LEDGERS, NULL, sweep_ledger, NULL, error);
}

/* ---- the check ------------------------------------------------------------------------------ */

struct proving {
    struct check *check;
    const char *collection;
};

static void tell(const bson_t *found, void *arg)
{
    const struct proving *proving = arg;
    bson_value_t id = truce__ledger_value(found, "id");
    char rule[40], *text;
    struct finding finding = {.rule = rule, .collection = proving->collection};

    snprintf(rule, sizeof rule, "ledger-%s", truce__field_text(found, "rule"));
    text = bson_strdup_printf("account %s, number %lld: %s", truce__field_text(found, "account"),
                              (long long)truce__field_number(found, "number"),
                              truce__field_text(found, "text"));
    finding.text = text;
    finding.repair = "nothing: a book is not mended silently; compare it with a backup or a seal";
    if (id.value_type != BSON_TYPE_EOD)
        finding.id = &id;
    truce__check_tell(proving->check, &finding, false);
    bson_free(text);
}

static truce_status check_ledger(struct check *check, const char *collection,
                                 const bson_t *document, void *arg, bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(
        check->store, &(truce_ledger_options){.collection = truce__field_text(document, "_id")});
    struct proving proving = {check, truce__field_text(document, "_id")};
    truce_status status;

    (void)collection;
    (void)arg;
    status = truce_ledger_verify(ledger, NULL, NULL, tell, &proving, NULL, error);
    truce_ledger_free(ledger);
    return status;
}

truce_status truce__ledger_check(struct check *check, bson_error_t *error)
{
    return truce__check_each(check, LEDGERS, NULL, check_ledger, NULL, error);
}
