/*
 * truce demo transfer: 100 go from A to B, by the two-phase recipe of MongoDB's manual.
 *
 * One process applies the transfer and stops for a while; in the meantime, another process cancels
 * it. The recipe looks for a mark before it applies the transfer, and finds none. The first process
 * resumes, and the money arrives although the transfer was canceled. With truce, each write
 * compares the fence of its document. A cancel raises the fence, so a late write has no effect.
 */
#include <inttypes.h>

#include "base/field.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

enum way { RECIPE, TRUCE, WAYS };
static const char *const way_names[] = {"recipe", "truce"};

struct transfer {
    struct demo_stage stage;
    truce_store *store;
    bson_error_t error;
    /* The first failure. After a failure, the functions do nothing. */
    truce_status status;
};

/* Applies an update. Takes ownership of both documents and destroys them. */
static void transfer_change(struct transfer *demo, const char *collection, bson_t *filter,
                            bson_t *update)
{
    if (!demo->status)
        demo->status =
            truce_update(demo->store, collection, filter, update, NULL, NULL, &demo->error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void transfer_insert(struct transfer *demo, const char *collection, bson_t *document)
{
    if (!demo->status)
        demo->status = truce_insert(demo->store, collection, document, NULL, &demo->error);
    bson_destroy(document);
}

static void transfer_begin(struct transfer *demo)
{
    if (!demo->status)
        demo->status = demo_stage_clear(&demo->stage, &demo->error);
    if (!demo->status)
        demo->status = truce_store_open(demo->stage.uri, NULL, &demo->store, &demo->error);
    transfer_insert(demo, "accounts",
                    BCON_NEW("_id", BCON_UTF8("A"), "balance", BCON_INT32(1000),
                             "pendingTransactions", "[", "]"));
    transfer_insert(
        demo, "accounts",
        BCON_NEW("_id", BCON_UTF8("B"), "balance", BCON_INT32(0), "pendingTransactions", "[", "]"));
    transfer_insert(demo, "transactions",
                    BCON_NEW("_id", BCON_INT32(1), "source", BCON_UTF8("A"), "destination",
                             BCON_UTF8("B"), "value", BCON_INT32(100), "state",
                             BCON_UTF8("pending")));
}

/* Applies the transfer to the account if the account has no mark of the transfer. truce also
 * requires that the account still has no fence, as when the process read the transfer. */
static void transfer_apply(struct transfer *demo, enum way way, const char *account, int32_t value)
{
    bson_t *filter =
        BCON_NEW("_id", BCON_UTF8(account), "pendingTransactions", "{", "$ne", BCON_INT32(1), "}");

    if (way == TRUCE)
        BCON_APPEND(filter, "pendingFence", "{", "$exists", BCON_BOOL(false), "}");
    transfer_change(demo, "accounts", filter,
                    BCON_NEW("$inc", "{", "balance", BCON_INT32(value), "}", "$push", "{",
                             "pendingTransactions", BCON_INT32(1), "}"));
}

/* Reverts the change of the account and removes the mark, if the account has one (the recipe). */
static void transfer_take_back(struct transfer *demo, const char *account, int32_t value)
{
    transfer_change(demo, "accounts",
                    BCON_NEW("_id", BCON_UTF8(account), "pendingTransactions", BCON_INT32(1)),
                    BCON_NEW("$inc", "{", "balance", BCON_INT32(value), "}", "$pull", "{",
                             "pendingTransactions", BCON_INT32(1), "}"));
}

static void transfer_enter(struct transfer *demo, const char *from, const char *to)
{
    transfer_change(demo, "transactions", BCON_NEW("_id", BCON_INT32(1), "state", BCON_UTF8(from)),
                    BCON_NEW("$set", "{", "state", BCON_UTF8(to), "}"));
}

static void transfer_cancel(struct transfer *demo, enum way way)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    truce_transfers *transfers;

    if (way == RECIPE) {
        transfer_enter(demo, "pending", "canceling");
        transfer_take_back(demo, "A", 100);
        transfer_take_back(demo, "B", -100);
        transfer_enter(demo, "canceling", "canceled");
    } else if (!demo->status) {
        transfers =
            truce_transfers_new(demo->store, &(truce_transfer_options){.collection = "transactions",
                                                                       .accounts = "accounts"});
        demo->status = truce_transfer_cancel(transfers, &id, &demo->error);
        truce_transfers_free(transfers);
    }
}

static int64_t balance_of(struct transfer *demo, const char *account)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(account)), found = BSON_INITIALIZER;
    int64_t balance;

    if (!demo->status)
        demo->status = truce_find_one(demo->store, "accounts", filter, NULL, &found, &demo->error);
    balance = truce__field_number(&found, "balance");
    bson_destroy(&found);
    bson_destroy(filter);
    return balance;
}

static void transfer_play(struct transfer *demo, enum way way, int64_t balances[2])
{
    transfer_begin(demo);
    transfer_apply(demo, way, "A", -100); /* The first process, which stops here. */
    transfer_cancel(demo, way);
    transfer_apply(demo, way, "B", 100); /* The first process resumes. */
    balances[0] = balance_of(demo, "A");
    balances[1] = balance_of(demo, "B");
    truce_store_close(demo->store);
    demo->store = NULL;
}

static bool transfer_right(const int64_t balances[2])
{
    return balances[0] == 1000 && balances[1] == 0;
}

int demo_transfer(struct cli *cli)
{
    struct transfer demo = {.status = TRUCE_OK};
    bson_t answer = BSON_INITIALIZER, part;
    int64_t balances[WAYS][2];
    int code = demo_stage_begin(&demo.stage, cli, "transfer", NULL);

    if (code)
        return code;
    for (enum way way = RECIPE; way < WAYS; way++)
        transfer_play(&demo, way, balances[way]);
    demo_stage_end(&demo.stage);
    if (demo.status)
        return cli_error(cli, "transfer", demo.status, &demo.error);
    BSON_APPEND_UTF8(&answer, "story", "transfer");
    for (enum way way = RECIPE; way < WAYS; way++) {
        bson_append_document_begin(&answer, way_names[way], -1, &part);
        BSON_APPEND_INT64(&part, "A", balances[way][0]);
        BSON_APPEND_INT64(&part, "B", balances[way][1]);
        bson_append_document_end(&answer, &part);
    }
    cli_answer(
        cli, &answer,
        "transfer     100 of the 1000 of A go to B; the process stops halfway, another\n"
        "             process cancels the transfer, and the first resumes\n"
        "             the recipe     A has %" PRId64 ", B has %" PRId64 ", and the transfer is "
        "canceled: %s\n"
        "             truce          A has %" PRId64 ", B has %" PRId64 ", and the transfer is "
        "canceled: %s",
        balances[RECIPE][0], balances[RECIPE][1],
        transfer_right(balances[RECIPE]) ? "right" : "wrong", balances[TRUCE][0],
        balances[TRUCE][1], transfer_right(balances[TRUCE]) ? "right" : "wrong");
    bson_destroy(&answer);
    return cli_output_end(transfer_right(balances[TRUCE]) ? CLI_DONE : CLI_NO);
}
