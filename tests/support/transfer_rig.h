#ifndef TRUCE_TESTS_SUPPORT_TRANSFER_RIG_H
#define TRUCE_TESTS_SUPPORT_TRANSFER_RIG_H

/* The common part of the tests of transfers: accounts with balances, transfers between them, and
 * the final state. */
#include "tests/support/bank.h"

static inline void rig_says(const char *text, const char *part, const char *file, int line)
{
    if (!strstr(text, part))
        test_fail(file, line, "\"%s\" does not say \"%s\"", text, part);
}

#define CHECK_SAYS(text, part) rig_says(text, part, __FILE__, __LINE__)

static inline truce_transfers *rig_transfers(truce_store *store, truce_mechanism mechanism)
{
    return truce_transfers_new(store, &(truce_transfer_options){.collection = "transactions",
                                                                .accounts = "accounts",
                                                                .mechanism = mechanism});
}

static inline void rig_account(truce_store *store, const char *id, int balance)
{
    char json[200];

    snprintf(json, sizeof json, "{'_id': '%s', 'balance': %d}", id, balance);
    insert_json(store, "accounts", json);
}

static inline truce_status rig_move(truce_transfers *transfers, const char *id, const char *from,
                                    const char *to, int value, bool *exists, bson_error_t *error)
{
    bson_value_t key = text_id(id), source = text_id(from), destination = text_id(to),
                 amount = {.value_type = BSON_TYPE_INT32, .value.v_int32 = value};
    truce_transfer transfer = {
        .id = &key, .source = &source, .destination = &destination, .value = &amount};
    truce_transfer_result result;
    truce_status status = truce_transfer_start(transfers, NULL, &transfer, &result, error);

    if (exists)
        *exists = result.exists;
    return status;
}

/* Returns the balance of an account, or -1000 if the account or its balance does not exist. */
static inline int64_t rig_balance(truce_store *store, const char *id)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), found;
    int64_t balance = -1000;
    bson_error_t error;
    bson_iter_t iter;

    if (!truce_find_one(store, "accounts", filter, NULL, &found, &error) &&
        bson_iter_init_find(&iter, &found, "balance"))
        balance = bson_iter_as_int64(&iter);
    bson_destroy(&found);
    bson_destroy(filter);
    return balance;
}

/* Returns the state of a transfer, or "" if it does not exist. `text` has the result. */
static inline const char *rig_state(truce_store *store, const char *id, char text[20])
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), found;
    bson_error_t error;
    bson_iter_t iter;

    text[0] = 0;
    if (!truce_find_one(store, "transactions", filter, NULL, &found, &error) &&
        bson_iter_init_find(&iter, &found, "state"))
        snprintf(text, 20, "%s", bson_iter_utf8(&iter, NULL));
    bson_destroy(&found);
    bson_destroy(filter);
    return text;
}

/* Counts findings about transfers. Other findings, for example remains of an unfinished commit, are
 * ignored. */
static inline void rig_finding(const bson_t *finding, void *arg)
{
    char *text;
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, finding, "rule") ||
        strncmp(bson_iter_utf8(&iter, NULL), "transfer-", strlen("transfer-")))
        return;
    text = bson_as_relaxed_extended_json(finding, NULL);

    fprintf(stderr, "    %s\n", text);
    bson_free(text);
    ++*(int *)arg;
}

/* Checks that no mark is left, and that the check finds nothing. */
static inline void rig_settled(truce_store *store)
{
    truce_check_report report;
    bson_error_t error = {0};
    int findings = 0;

    CHECK_INT(count_json(store, "accounts", "{'pendingTransactions.0': {'$exists': true}}"), ==, 0);
    CHECK_OK(truce_check(store, NULL, rig_finding, &findings, &report, &error), error);
    CHECK_INT(findings, ==, 0);
}

#endif
