/*
 * Documents of every pattern, truce's own among them, that another program has changed: a field is
 * missing, duplicated, or changed. A call that reads one returns an error or continues. No call
 * crashes or waits forever.
 */
#include <string.h>

#include "base/random.h"
#include "store/reserved_names.h"
#include "tests/support/bank.h"
#include "tests/support/changed_bson.h"
#include "tests/support/each_operation.h"
#include "tests/support/sample_commands.h"
#include "tests/support/still_calls.h"
#include "truce/sys/decorate.h"

/* The commands in addition to the example of each pattern. */
static const char *const asked[] = {
    "{truceRevision: 'posts', get: 1}",
    "{truceRevision: 'posts', save: {_id: 1, title: 'New', views: 9}, version: 2, keep: 2}",
    "{truceConflicts: 'posts'}",
    "{truceQueue: 'mail', action: 'resume'}",
    "{truceQueue: 'mail', action: 'redrive'}",
    "{truceQueue: 'mail', action: 'cancel', id: {$oid: '0123456789abcdef01234568'}}",
    "{truceQueue: 'mail', action: 'retry', id: {$oid: '0123456789abcdef01234568'}}",
    "{truceJobs: 'mail'}",
    "{truceClaim: 'mail', most: 10}",
    "{truceEnqueue: 'mail', payload: {n: 9}, lane: 'l', after: [{$oid: '0123456789abcdef01234567'}]}",
    "{truceLedgerPost: 'bank', id: 'settled', kind: 'settle', of: 'held'}",
    "{truceLedgerPost: 'bank', id: 'back', kind: 'reverse', of: 'sale 16'}",
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', show: true}",
    "{truceSyncRead: 'comments', id: 1}",
    "{truceTransferResume: 'transactions', id: 16}",
    "{truceTree: 'site', merge: 'draft'}",
    "{truceTree: 'site', keep: {versions: 1}}",
    "{truceTree: 'site', collect: true}",
    "{truceTree: 'site', erase: 'home'}",
    "{truceTree: 'draft', drop: true}",
    "{truceTreePublish: 'site', revert: 1}",
    "{find: 'accounts', filter: {n: {$gte: 0}}}",
    "{update: 'accounts', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
    "{truceSweep: 1}",
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct random chance;

static uint32_t below(uint32_t bound)
{
    return (uint32_t)truce__random_below(&chance, bound);
}

/* ---- unfinished operations ------------------------------------------------------------------- */

static truce_status two(truce_store *store, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    truce_commit *commit;
    truce_status status = truce_commit_begin(store, &options, &commit, error);

    if (status)
        return status;
    status = add_update(commit, "accounts", "c", NULL, "{'$inc': {'n': 1}}", error);
    if (!status)
        status = add_update(commit, "accounts", "d", NULL, "{'$inc': {'n': 1}}", error);
    if (!status)
        status = truce_commit_apply(commit, error);
    truce_commit_free(commit);
    return status;
}

static truce_status transfer(truce_store *store, bson_error_t *error)
{
    truce_transfers *transfers =
        truce_transfers_new(store, &(truce_transfer_options){.collection = "transactions",
                                                             .accounts = "accounts",
                                                             .field = "n",
                                                             .mechanism = TRUCE_MECHANISM_JOURNAL});
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 18}, a = text_id("a"),
                 b = text_id("b"), value = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    truce_status status = truce_transfer_start(
        transfers, NULL,
        &(truce_transfer){.id = &id, .source = &a, .destination = &b, .value = &value}, NULL,
        error);

    truce_transfers_free(transfers);
    return status;
}

static truce_status master(truce_store *store, const bson_t *change, bson_error_t *error)
{
    truce_sync *sync = truce_sync_new(store, NULL);
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 17};
    truce_status status = truce_sync_update(sync, NULL, "users", &id, change, NULL, error);

    truce_sync_free(sync);
    return status;
}

static truce_status publish(truce_store *store, bson_error_t *error)
{
    truce_tree *tree = truce_tree_new(store, &(truce_tree_options){.name = "site"});
    bson_t *item = test_bson("{'itemId': 'late', 'title': 'Late'}");
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    if (!status) {
        status = truce_tree_put(edit, item, error);
        if (!status)
            status = truce_tree_publish(edit, NULL, NULL, error);
        truce_tree_edit_free(edit);
    }
    truce_tree_free(tree);
    bson_destroy(item);
    return status;
}

/* Each commit ends at a different write, as if its process had died. */
static void leave_open(truce_store *store)
{
    truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL,
                                 .status = TRUCE_INVALID,
                                 .at = 1 + below(8),
                                 .from_then_on = true,
                                 .writes_only = true};
    bson_t *name = test_bson("{'$set': {'name': 'Eve'}}");
    bson_error_t error;

    truce_fault_arm(store, &fault);
    (void)two(store, &error);
    truce_fault_arm(store, &fault);
    (void)transfer(store, &error);
    truce_fault_arm(store, &fault);
    (void)master(store, name, &error);
    truce_fault_arm(store, &fault);
    (void)publish(store, &error);
    truce_fault_arm(store, &(truce_fault_options){0});
    bson_destroy(name);
}

/* ---- the changes ----------------------------------------------------------------------------- */

/* The names of all collections; bson_destroy it. */
static void names_of(truce_store *store, bson_t *names)
{
    bson_error_t error = {0};

    CHECK_OK(truce_collection_list(store, NULL, names, &error), error);
}

static const char *name_at(const bson_t *names, uint32_t at)
{
    bson_iter_t iter, inner;

    (void)bson_iter_init(&iter, names);
    for (uint32_t i = 0; i <= at; i++)
        truce_assert(bson_iter_next(&iter));
    truce_assert(bson_iter_recurse(&iter, &inner) && bson_iter_find(&inner, "name"));
    return bson_iter_utf8(&inner, NULL);
}

/* Chooses a document of the collection. Returns false if it is empty. */
static bool choose(truce_store *store, const char *collection, bson_t *document)
{
    bson_t none = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *at = NULL;
    bson_error_t error;
    int64_t count = 0;

    bson_init(document);
    (void)!truce_count(store, collection, &none, NULL, &count, &error);
    if (!count || truce_find(store, collection, &none, NULL, &cursor, &error))
        return false;
    for (uint32_t left = 1 + below((uint32_t)count); left; left--)
        if (truce_cursor_next(cursor, &at, &error) || !at)
            break;
    if (at)
        bson_copy_to(at, document);
    truce_cursor_close(cursor);
    return at != NULL;
}

static void put_instead(truce_store *store, const char *collection, const bson_t *old,
                        const bson_t *changed)
{
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error;
    bson_iter_t id;

    truce_assert(bson_iter_init_find(&id, old, "_id"));
    BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&id));
    (void)!truce_remove(store, collection, &filter, NULL, &(truce_write_result){0}, &error);
    (void)!truce_insert(store, collection, changed, NULL,
                        &error); /* it may be one that no store takes */
    bson_destroy(&filter);
}

/* A field of a document of any collection. */
static void change_one(truce_store *store)
{
    bson_t names, document, *changed;
    const char *collection;

    names_of(store, &names);
    collection = name_at(&names, below((uint32_t)bson_count_keys(&names)));
    if (choose(store, collection, &document)) {
        changed = bson_changed(&document, below(bson_places(&document)), below(bson_changes));
        put_instead(store, collection, &document, changed);
        bson_destroy(changed);
    }
    bson_destroy(&document);
    bson_destroy(&names);
}

/* ---- the rounds ------------------------------------------------------------------------------ */

static void build(truce_store *store)
{
    for (size_t i = 0; i < COUNT(built); i++)
        ask(built[i]);
    leave_open(store);
}

/* Runs all commands, from a random one on, because the first may remove the documents of the
 * others. */
static void ask_all(void)
{
    static const char *questions[200];
    static size_t count;
    size_t first;

    if (!count) {
        EACH_OPERATION(pattern)
        {
            questions[count++] = pattern->example;
        }
        for (size_t i = 0; i < COUNT(asked); i++)
            questions[count++] = asked[i];
        truce_assert(count <= COUNT(questions));
    }
    first = below((uint32_t)count);
    for (size_t i = 0; i < count; i++)
        ask(questions[(first + i) % count]);
    truce__clock_sleep_ms(120000); /* leases end */
    ask("{truceSweep: 1}");
    ask("{truceCheck: 1}");
}

static void round_of(uint32_t changes)
{
    truce_store *store = truce_fault_wrap(still_store(), &(truce_fault_options){0});

    still_connect(still_serve(store, NULL));
    build(store);
    while (changes--)
        change_one(store);
    ask_all();
    still_end();
}

TEST(replies_to_commands_on_built_documents)
{
    still_connect(still_serve(still_store(), NULL));
    for (size_t i = 0; i < COUNT(built); i++)
        must(built[i]);
    still_end();
}

/* Regression: values that once blocked a call forever, or until memory was exhausted. */
TEST(survives_numbers_that_truce_never_writes)
{
    static const struct {
        const char *collection, *filter, *update, *asked;
    } cases[] = {
        {TREES, "{'_id': 'site'}", "{'$set': {'settled': 0.5}}",
         "{truceTree: 'site', collect: true}"},
        {TREES, "{'_id': 'site'}", "{'$set': {'current': 2147483647}}",
         "{truceTree: 'site', collect: true}"},
        {"comments", "{'_id': 1}", "{'$set': {'synced.author': [1, 9007199254740991]}}",
         "{truceSyncRepair: 'author'}"},
        {"comments", "{'_id': 1}", "{'$set': {'synced.author': 1e300}}",
         "{truceSyncRepair: 'author'}"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        bson_t *filter = test_bson(cases[i].filter), *update = test_bson(cases[i].update);
        truce_store *store = truce_fault_wrap(still_store(), &(truce_fault_options){0});
        truce_write_result result = {0};
        bson_error_t error = {0};

        still_connect(still_serve(store, NULL));
        for (size_t each = 0; each < COUNT(built); each++)
            ask(built[each]);
        CHECK_OK(truce_update(store, cases[i].collection, filter, update, NULL, &result, &error),
                 error);
        CHECK_INT(result.modified, ==, 1);
        ask("{update: 'users', updates: [{q: {_id: 17}, u: {$set: {name: 'Eve'}}}]}");
        ask(cases[i].asked);
        still_end();
        bson_destroy(filter);
        bson_destroy(update);
    }
}

#define ROUNDS 500

/* The same ones each time; in long form others each time. */
TEST(survives_documents_changed_by_other_programs)
{
    long rounds = test_scale("TRUCE_SPOILT_ROUNDS", ROUNDS);

    truce__random_seed(&chance, rounds == ROUNDS ? ROUNDS : test_seed());
    for (long i = 0; i < rounds; i++)
        round_of(1 + below(3));
}
