/* If a call needs a function and gets none, the call is refused, and the program continues. */
#include "tests/support/test.h"
#include "truce/commit.h"
#include "truce/ledger.h"
#include "truce/queue.h"
#include "truce/tree.h"

static truce_store *store;
static bson_error_t error;

#define CHECK_INVALID(call)                                                                        \
    do {                                                                                           \
        error.message[0] = 0;                                                                      \
        CHECK_INT(call, ==, TRUCE_INVALID);                                                        \
        CHECK(error.message[0]);                                                                   \
    } while (0)

TEST(a_call_without_the_function_that_it_needs_is_refused)
{
    truce_ledger *ledger;
    truce_queue *queue;
    truce_tree *tree;
    truce_job *job;
    bson_t *payload = test_bson("{}");

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = "book"});
    CHECK_INVALID(truce_ledger_find(ledger, NULL, NULL, NULL, &error));
    CHECK_INVALID(truce_ledger_balances(ledger, NULL, NULL, NULL, &error));
    CHECK_INVALID(truce_ledger_statement(ledger, "a", NULL, NULL, NULL, &error));
    CHECK_INVALID(truce_ledger_pending(ledger, NULL, NULL, NULL, &error));
    CHECK_INVALID(truce_ledger_walk(ledger, NULL, NULL, &error));
    truce_ledger_free(ledger);
    CHECK_INVALID(truce_transact(store, NULL, NULL, NULL, &error));
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "q"});
    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
    CHECK_OK(truce_queue_claim(queue, &job, &error), error);
    CHECK_INVALID(truce_job_commit(job, NULL, NULL, NULL, &error));
    CHECK_INVALID(truce_job_step(job, "s", NULL, NULL, NULL, &error));
    truce_job_free(job);
    truce_queue_free(queue);
    tree = truce_tree_new(store, &(truce_tree_options){.collection = "t"});
    CHECK_INVALID(truce_tree_log(tree, 1, NULL, NULL, &error));
    CHECK_INVALID(truce_tree_export(tree, 1, NULL, NULL, &error));
    truce_tree_free(tree);
    truce_store_close(store);
    bson_destroy(payload);
}
