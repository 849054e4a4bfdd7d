/*
 * A ledger: a customer pays a shop, and the same commit marks the order as paid.
 *
 * Run it twice: the second time the payment exists, and no money moves.
 *
 *     cc ledger.c $(pkg-config --cflags --libs truce) -o ledger && ./ledger shop.truce
 */
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

static truce_status transfer(truce_ledger *book, truce_commit *commit, const char *name,
                             const char *from, const char *to, int64_t cents,
                             truce_ledger_result *result, bson_error_t *error)
{
    bson_value_t id = truce_id_utf8(name);
    truce_ledger_entry entries[] = {{.account = from, .value = -cents},
                                    {.account = to, .value = cents}};
    truce_ledger_transaction transaction = {.id = &id, .entries = entries, .count = 2};

    return truce_ledger_post(book, commit, &transaction, result, error);
}

/* Posts the payment and marks the order as paid, in one commit. */
static truce_status pay(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_ledger *book = arg;
    bson_value_t order = truce_id_utf8("order 17");
    bson_t *paid = BCON_NEW("$set", "{", "paid", BCON_BOOL(true), "}");
    truce_ledger_result result;
    truce_status status =
        transfer(book, commit, "order 17", "customers:ada", "shop:sales", 1250, &result, error);

    if (!status)
        status = truce_commit_update(commit, "orders", &order, NULL, paid, error);
    if (!status)
        printf("order 17: %s\n", result.exists ? "already paid" : "paid");
    bson_destroy(paid);
    return status;
}

/* Prints one balance. */
static bool show(const truce_ledger_account *account, const truce_ledger_balance *balance,
                 void *arg)
{
    char text[TRUCE_LEDGER_AMOUNT];

    (void)arg;
    printf("%-14s %10s %s\n", account->account, truce_ledger_show(balance->balance, 2, text),
           balance->currency);
    return true;
}

int main(int argc, char **argv)
{
    static const truce_ledger_account accounts[] = {
        {.account = "external:bank", .currency = "EUR"},
        {.account = "customers:ada", .currency = "EUR", .has_min = true},
        {.account = "shop:sales", .currency = "EUR", .has_min = true},
    };
    truce_write_options upsert = {.upsert = true};
    truce_store *store = NULL;
    truce_ledger *book;
    bson_t *order, *open;
    bson_error_t error;

    if (argc != 2) {
        fprintf(stderr, "usage: ledger STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    book = truce_ledger_new(store, &(truce_ledger_options){.collection = "book"});
    must(truce_ledger_currency(book, "EUR", 2, &error), &error);
    for (int i = 0; i < 3; i++)
        must(truce_ledger_open(book, NULL, &accounts[i], &error), &error);
    must(transfer(book, NULL, "payment 1", "external:bank", "customers:ada", 5000, NULL, &error),
         &error);
    order = BCON_NEW("_id", BCON_UTF8("order 17"));
    open = BCON_NEW("$set", "{", "customer", BCON_UTF8("ada"), "}");
    must(truce_update(store, "orders", order, open, &upsert, NULL, &error), &error);

    must(truce_transact(store, pay, book, NULL, &error), &error);
    must(truce_ledger_balances(book, NULL, show, NULL, &error), &error);

    bson_destroy(order);
    bson_destroy(open);
    truce_ledger_free(book);
    truce_store_close(store);
    return 0;
}
