/*
 * A commit over two documents: money moves from one account to another, or not at all.
 *
 * If another thread changes an account in the meantime, truce_transact runs the function again.
 *
 *     cc transfer.c $(pkg-config --cflags --libs truce) -lpthread -o transfer && ./transfer bank
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

#define ACCOUNTS  4
#define THREADS   4
#define TRANSFERS 50

struct transfer {
    bson_value_t from, to;
    int64_t amount;
};

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

static int64_t balance_of(const bson_t *account)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, account, "balance") ? bson_iter_as_int64(&iter) : 0;
}

static truce_status add(truce_commit *commit, const bson_value_t *account, int64_t amount,
                        bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, inc;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inc);
    BSON_APPEND_INT64(&inc, "balance", amount);
    bson_append_document_end(&update, &inc);
    status = truce_commit_update(commit, "accounts", account, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

/* Moves the amount if the balance suffices. The read is a guard: if the balance changes before the
 * commit, the commit is a conflict. */
static truce_status move(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct transfer *transfer = arg;
    bson_t account;
    truce_status status = truce_commit_read(commit, "accounts", &transfer->from, &account, error);

    if (!status && balance_of(&account) >= transfer->amount) {
        status = add(commit, &transfer->from, -transfer->amount, error);
        if (!status)
            status = add(commit, &transfer->to, transfer->amount, error);
    }
    bson_destroy(&account);
    return status;
}

static void *work(void *arg)
{
    unsigned seed = (unsigned)(size_t)&seed;
    bson_error_t error;

    for (int i = 0; i < TRANSFERS; i++) {
        int from = rand_r(&seed) % ACCOUNTS;
        struct transfer transfer = {.amount = rand_r(&seed) % 20};

        transfer.from = truce_id_int64(from);
        transfer.to = truce_id_int64((from + 1) % ACCOUNTS);
        must(truce_transact(arg, move, &transfer, NULL, &error), &error);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    truce_store *store = NULL;
    truce_cursor *cursor = NULL;
    pthread_t threads[THREADS];
    const bson_t *account;
    bson_error_t error;
    int64_t sum = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: transfer STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    for (int i = 0; i < ACCOUNTS; i++) {
        bson_t *fresh = BCON_NEW("_id", BCON_INT32(i), "balance", BCON_INT64(100));

        must(truce_insert(store, "accounts", fresh, NULL, &error), &error);
        bson_destroy(fresh);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, store);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    must(truce_find(store, "accounts", NULL, NULL, &cursor, &error), &error);
    for (;;) {
        must(truce_cursor_next(cursor, &account, &error), &error);
        if (!account)
            break;
        if (balance_of(account) < 0)
            return 1;
        sum += balance_of(account);
    }
    truce_cursor_close(cursor);
    truce_store_close(store);
    printf("%d transfers, %d accounts, %d in all\n", THREADS * TRANSFERS, ACCOUNTS, (int)sum);
    return sum == ACCOUNTS * 100 ? 0 : 1;
}
