/* The operations of jobs, of a ledger with two accounts, of a transfer between two documents, of a
 * user with one comment, and of a tree with three items. */
#include "base/limits.h"
#include "bench/operations_place.h"

#define JOBS 500

static bson_value_t text_id(const char *text)
{
    return truce_id_utf8(text);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

truce_status bench_queue_add(struct bench_place *place, const struct bench_operation *operation,
                             bson_error_t *error)
{
    bson_t *payload = BCON_NEW("turn", BCON_INT32(place->turn));
    truce_status status = truce_queue_add(place->queue, NULL, payload, NULL, NULL, error);

    (void)operation;
    bson_destroy(payload);
    return status;
}

/* Adds enough jobs that each claim finds one. */
static truce_status patterns_begin_queue(struct bench_place *place, bson_error_t *error)
{
    const bson_t *payloads[JOBS];
    bson_t payload = BSON_INITIALIZER;

    place->queue = truce_queue_new(place->store, &(truce_queue_options){.queue = "trips"});
    for (int i = 0; i < JOBS; i++)
        payloads[i] = &payload;
    return truce_queue_add_many(place->queue, payloads, JOBS, NULL, NULL, error);
}

truce_status bench_queue_work(struct bench_place *place, const struct bench_operation *operation,
                              bson_error_t *error)
{
    truce_job *job = NULL;
    truce_status status = truce_queue_claim(place->queue, &job, error);

    (void)operation;
    if (!status)
        status = truce_job_done(job, NULL, NULL, error);
    truce_job_free(job);
    return status;
}

/* ---- money ----------------------------------------------------------------------------------- */

static truce_status patterns_post(struct bench_place *place, truce_commit *commit,
                                  bson_error_t *error)
{
    truce_ledger_entry entries[] = {{"a", -1, NULL}, {"b", 1, NULL}};
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    truce_ledger_transaction transaction = {
        .id = &id, .kind = TRUCE_LEDGER_TRANSFER, .entries = entries, .count = 2};

    bson_oid_init(&id.value.v_oid, NULL);
    return truce_ledger_post(place->ledger, commit, &transaction, NULL, error);
}

truce_status bench_ledger_post(struct bench_place *place, const struct bench_operation *operation,
                               bson_error_t *error)
{
    (void)operation;
    return patterns_post(place, NULL, error);
}

/* Posts, and changes a document. */
static truce_status post_and_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    bson_value_t id = {.value_type = BSON_TYPE_INT32};
    truce_status status = patterns_post(arg, commit, error);

    if (!status)
        status = truce_commit_update(commit, COLLECTION "accounts", &id, NULL, update, error);
    bson_destroy(update);
    return status;
}

truce_status bench_ledger_commit(struct bench_place *place, const struct bench_operation *operation,
                                 bson_error_t *error)
{
    const truce_commit_options options = {.mechanism = operation->mechanism};

    return truce_transact(place->store, post_and_change, place, &options, error);
}

truce_status bench_ledger_balance(struct bench_place *place,
                                  const struct bench_operation *operation, bson_error_t *error)
{
    truce_ledger_balance balance;

    (void)operation;
    return truce_ledger_balance_of(place->ledger, "b", NULL, &balance, error);
}

truce_status bench_transfer(struct bench_place *place, const struct bench_operation *operation,
                            bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_OID}, from = text_id("a"), to = text_id("b"),
                 value = truce_id_int64(1);
    truce_transfer transfer = {.id = &id, .source = &from, .destination = &to, .value = &value};

    (void)operation;
    bson_oid_init(&id.value.v_oid, NULL);
    return truce_transfer_start(place->transfers, NULL, &transfer, NULL, error);
}

/* ---- copies, versions ------------------------------------------------------------------------ */

truce_status bench_rename(struct bench_place *place, const struct bench_operation *operation,
                          bson_error_t *error)
{
    bson_value_t id = text_id("u");
    bson_t *update = BCON_NEW("$set", "{", "name", BCON_INT32(place->turn), "}");
    truce_status status =
        truce_sync_update(place->sync, NULL, COLLECTION "users", &id, update, NULL, error);

    (void)operation;
    bson_destroy(update);
    return status;
}

static truce_status patterns_publish(truce_tree *tree, int turn, bson_error_t *error)
{
    truce_tree_edit *edit = NULL;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    for (int i = 0; !status && i < 3; i++) {
        bson_t *item = BCON_NEW("itemId", BCON_INT32(i), "turn", BCON_INT32(turn));

        status = truce_tree_put(edit, item, error);
        bson_destroy(item);
    }
    if (!status)
        status = truce_tree_publish(edit, NULL, NULL, error);
    truce_tree_edit_free(edit);
    return status;
}

truce_status bench_publish(struct bench_place *place, const struct bench_operation *operation,
                           bson_error_t *error)
{
    (void)operation;
    return patterns_publish(place->tree, place->turn, error);
}

/* Publishes to a tree that no recovery pass visits. Publishing a version also settles an old one if
 * TREE_UNSETTLED of them exist. */
truce_status bench_publish_unswept(struct bench_place *place,
                                   const struct bench_operation *operation, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    (void)operation;
    if (!place->unswept) {
        place->unswept =
            truce_tree_new(place->store, &(truce_tree_options){.collection = COLLECTION "pages",
                                                               .name = COLLECTION "unswept"});
        for (int i = 0; !status && i < TREE_UNSETTLED; i++)
            status = patterns_publish(place->unswept, i, error);
    }
    return status ? status : patterns_publish(place->unswept, place->turn, error);
}

truce_status bench_tree_get(struct bench_place *place, const struct bench_operation *operation,
                            bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    bson_t item;
    truce_status status = truce_tree_get(place->snapshot, &id, &item, error);

    (void)operation;
    if (!status)
        bson_destroy(&item);
    return status;
}

/* ---- the place ------------------------------------------------------------------------------- */

static truce_status patterns_insert(struct bench_place *place, const char *collection,
                                    bson_t *document, bson_error_t *error)
{
    truce_status status = truce_insert(place->store, collection, document, NULL, error);

    bson_destroy(document);
    return status;
}

static truce_status patterns_begin_ledger(struct bench_place *place, bson_error_t *error)
{
    truce_ledger_account a = {.account = "a", .currency = "EUR"},
                         b = {.account = "b", .currency = "EUR"};
    truce_status status;

    place->ledger =
        truce_ledger_new(place->store, &(truce_ledger_options){.collection = COLLECTION "book"});
    status = truce_ledger_currency(place->ledger, "EUR", 2, error);
    if (!status)
        status = truce_ledger_open(place->ledger, NULL, &a, error);
    return status ? status : truce_ledger_open(place->ledger, NULL, &b, error);
}

static truce_status patterns_begin_sync(struct bench_place *place, bson_error_t *error)
{
    bson_t *copies = BCON_NEW("author", "name");
    truce_sync_rule rule = {.name = COLLECTION "author",
                            .source = COLLECTION "users",
                            .dependent = COLLECTION "comments",
                            .reference = "user",
                            .copies = copies};
    truce_status status = patterns_insert(place, COLLECTION "users",
                                          BCON_NEW("_id", "u", "name", BCON_INT32(0)), error);

    place->sync = truce_sync_new(place->store, NULL);
    if (!status)
        status = patterns_insert(place, COLLECTION "comments",
                                 BCON_NEW("_id", "c", "user", "u", "author", BCON_INT32(0)), error);
    if (!status)
        status = truce_sync_declare(place->sync, &rule, error);
    bson_destroy(copies);
    return status;
}

truce_status bench_patterns_begin(struct bench_place *place, bson_error_t *error)
{
    truce_status status = patterns_begin_ledger(place, error);

    if (!status)
        status = patterns_begin_queue(place, error);
    place->transfers = truce_transfers_new(
        place->store, &(truce_transfer_options){.collection = COLLECTION "transfers",
                                                .accounts = COLLECTION "purses"});
    place->tree =
        truce_tree_new(place->store, &(truce_tree_options){.collection = COLLECTION "pages",
                                                           .name = COLLECTION "site"});
    for (int i = 0; !status && i < 2; i++)
        status =
            patterns_insert(place, COLLECTION "purses",
                            BCON_NEW("_id", i ? "b" : "a", "balance", BCON_INT64(1000)), error);
    if (!status)
        status = patterns_begin_sync(place, error);
    if (!status)
        status = bench_publish(place, NULL, error);
    return status ? status : truce_tree_open(place->tree, NULL, &place->snapshot, error);
}

void bench_patterns_end(struct bench_place *place)
{
    truce_tree_close(place->snapshot);
    truce_tree_free(place->tree);
    truce_tree_free(place->unswept);
    truce_sync_free(place->sync);
    truce_transfers_free(place->transfers);
    truce_ledger_free(place->ledger);
    truce_queue_free(place->queue);
}
