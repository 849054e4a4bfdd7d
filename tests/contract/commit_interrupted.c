/*
 * A commit of the journal dies after each of its writes. Then a single write of a pattern
 * encounters the document that the commit holds. The change of both is stored, or that of the write
 * alone if the commit was not decided, and nothing is recorded as displaced: no plain writer was
 * there.
 *
 * A commit is also interrupted (truce_interrupt) in each of its calls. Its status says whether it
 * takes effect.
 */
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

typedef truce_status met_function(truce_store *store, bson_error_t *error);

static truce_set_options set_options(truce_set_form form)
{
    return (truce_set_options){
        .collection = "things", .key = "_id", .field = "classes", .name = "name", .form = form};
}

static truce_status add_element(truce_store *store, truce_set_form form, int count,
                                bson_error_t *error)
{
    truce_set_options options = set_options(form);
    truce_set *set = truce_set_new(store, &options);
    bson_t *key = test_bson("{'_id': 'a'}"), *one = test_bson("{'name': 'x'}"),
           *two = test_bson("{'name': 'y'}");
    truce_set_operation operations[] = {
        {.verb = TRUCE_SET_ADD, .key = key, .element = one, .seq = 2},
        {.verb = TRUCE_SET_ADD, .key = key, .element = two, .seq = 3}};
    truce_set_result results[2];
    truce_status status = count == 1 ? truce_set_add(set, NULL, key, one, 2, NULL, error)
                                     : truce_set_apply(set, NULL, operations, 2, results, error);

    bson_destroy(two);
    bson_destroy(one);
    bson_destroy(key);
    truce_set_free(set);
    return status;
}

static truce_status add_by_pipeline(truce_store *store, bson_error_t *error)
{
    return add_element(store, TRUCE_SET_FORM_PIPELINE, 1, error);
}

static truce_status add_classic(truce_store *store, bson_error_t *error)
{
    return add_element(store, TRUCE_SET_FORM_CLASSIC, 1, error);
}

static truce_status add_directly(truce_store *store, bson_error_t *error)
{
    return add_element(store, TRUCE_SET_FORM_AUTO, 1, error);
}

static truce_status add_batch(truce_store *store, bson_error_t *error)
{
    return add_element(store, TRUCE_SET_FORM_AUTO, 2, error);
}

static truce_status add_item(truce_store *store, bson_error_t *error)
{
    truce_item *item = truce_item_new(
        store,
        &(truce_item_options){.collection = "things", .field = "classes", .identity = "name"});
    bson_t *filter = test_bson("{'_id': 'a'}"), *one = test_bson("{'name': 'x'}");
    truce_status status = truce_item_add(item, NULL, filter, one, NULL, error);

    bson_destroy(one);
    bson_destroy(filter);
    truce_item_free(item);
    return status;
}

static truce_status patch_revision(truce_store *store, bson_error_t *error)
{
    truce_revision *revision =
        truce_revision_new(store, &(truce_revision_options){.collection = "things"});
    bson_t *patch = test_bson("{'$push': {'classes': {'name': 'x'}}}");
    bson_value_t id = text_id("a");
    truce_revision_result result;
    truce_status status = truce_revision_patch(revision, NULL, &id, 0, true, TRUCE_PATCH_OPERATORS,
                                               patch, &result, error);

    truce_revision_result_release(&result);
    bson_destroy(patch);
    truce_revision_free(revision);
    return status;
}

static truce_status push_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    return add_update(commit, "things", "a", NULL, "{'$push': {'classes': {'name': 'x'}}}", error);
}

static truce_status commit_one(truce_store *store, bson_error_t *error)
{
    return truce_transact(store, push_in, NULL, NULL, error);
}

static const struct met {
    const char *name;
    met_function *write;
} writes[] = {
    {"set, pipeline", add_by_pipeline},
    {"set, classic", add_classic},
    {"set", add_directly},
    {"set, batch", add_batch},
    {"item", add_item},
    {"revision", patch_revision},
    {"commit", commit_one},
};

static truce_status change_two(truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("a");
    bson_t read;
    truce_status status = truce_commit_read(commit, "things", &id, &read, error);

    bson_destroy(&read);
    if (!status)
        status = add_update(commit, "things", "a", NULL,
                            "{'$push': {'list': 5}, '$set': {'last': 5}}", error);
    return status ? status : add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", error);
}

/* Applies the commit, which fails from its write of that number on. False: it has fewer writes. */
static bool die_at(truce_store *store, uint64_t at)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1000, .deadline_ms = 1};
    truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL,
                                 .at = at,
                                 .from_then_on = true,
                                 .writes_only = true,
                                 .status = TRUCE_IO};
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    uint64_t hits;

    truce_fault_arm(store, &fault);
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(change_two(commit, &error), error);
    (void)!truce_commit_apply(commit, &error);
    hits = truce_fault_hits(store);
    truce_fault_arm(store, &(truce_fault_options){0});
    truce_commit_free(commit);
    return hits > 0;
}

static bool meet(const struct setting *setting, const struct met *met, uint64_t at)
{
    truce_store *store = truce_fault_wrap(open_setting(setting), &(truce_fault_options){0});
    bson_error_t error = {0};
    truce_sweep_report report;
    bool died;

    no_sleep_begin();
    insert_json(store, "things", "{'_id': 'a', 'list': [1], 'last': 1}");
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    CHECK_OK(add_directly(store, &error), error); /* the indexes */
    CHECK_INT(count_json(store, "things", "{'_id': 'a', 'classes.name': 'x'}"), ==, 1);
    died = die_at(store, at);
    CHECK_STATUS(TRUCE_OK, met->write(store, &error), error);
    for (int i = 0; i < 3; i++) {
        no_sleep_ms += 5000;
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    }
    CHECK_INT(count_json(store, "truce_displaced", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_commits", "{'overwritten': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "things", "{'_id': 'a', 'classes.name': 'x'}"), ==, 1);
    CHECK_INT(count_json(store, "things", "{'_id': 'a', 'list': [1, 5], 'last': 5}"), ==,
              count_json(store, "things", "{'_id': 'b', 'n': 1}"));
    truce__environment_use(NULL);
    truce_store_close(store);
    return died;
}

TEST(leaves_no_false_finding_if_a_write_encounters_a_commit)
{
    static const struct setting stores[] = {
        {"memory", "memory:", TRUCE_MECHANISM_JOURNAL, 0},
        {"memory, no rewriting", "memory:", TRUCE_MECHANISM_JOURNAL, TRUCE_CAN_REWRITE},
        {"memory, by value", "memory:", TRUCE_MECHANISM_JOURNAL,
         TRUCE_CAN_REWRITE | TRUCE_CAN_COMPARE | TRUCE_CAN_ATOMIC_BULK},
    };

    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        for (size_t k = 0; k < sizeof writes / sizeof *writes; k++) {
            for (uint64_t at = 1; at < 30; at++) {
                int before = test_failures();
                bool died = meet(&stores[i], &writes[k], at);

                if (test_failures() > before)
                    fprintf(stderr, "    (%s, %s, write %d)\n", writes[k].name, stores[i].name,
                            (int)at);
                if (!died)
                    break;
            }
        }
    }
}

/* ---- truce_interrupt ------------------------------------------------------------------------- */

struct interrupter {
    truce_store *store;
    int calls, at;
};

/* Interrupts the store when the call of that number begins. */
static void interrupt_call(const bson_t *event, void *arg)
{
    struct interrupter *interrupter = arg;

    if (bson_has_field(event, "end") || !interrupter->at)
        return;
    if (++interrupter->calls == interrupter->at)
        truce_interrupt(interrupter->store);
}

/* Interrupts the commit in its call of that number, and compares its status with its effect. False:
 * it has fewer calls. */
static bool interrupt_at(const struct setting *setting, int at, bool seen[2])
{
    struct interrupter interrupter = {0};
    truce_store *store =
        truce_trace_wrap(open_setting(setting), &(truce_trace_options){.function = interrupt_call,
                                                                       .arg = &interrupter,
                                                                       .beginnings = true});
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1000};
    truce_commit *commit = NULL;
    truce_sweep_report report;
    truce_status status;
    bson_error_t error = {0};

    interrupter.store = store;
    no_sleep_begin();
    insert_json(store, "things", "{'_id': 'a', 'list': [1], 'last': 1}");
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(change_two(commit, &error), error);
    interrupter.at = at;
    status = truce_commit_apply(commit, &error);
    truce_commit_free(commit);
    interrupter.at = 0;
    truce_resume(store);
    for (int i = 0; i < 3; i++) {
        no_sleep_ms += 5000;
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    }
    CHECK(status == TRUCE_OK || status == TRUCE_TIMEOUT);
    seen[status == TRUCE_OK] = true;
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "things", "{'_id': 'a', 'last': 5}"), ==, status == TRUCE_OK);
    CHECK_INT(count_json(store, "things", "{'_id': 'b', 'n': 1}"), ==, status == TRUCE_OK);
    truce__environment_use(NULL);
    truce_store_close(store);
    return interrupter.calls >= at;
}

TEST(reports_by_its_status_whether_an_interrupted_commit_takes_effect)
{
    static const struct setting stores[] = {
        {"memory", "memory:", TRUCE_MECHANISM_JOURNAL, 0},
        {"memory, by value", "memory:", TRUCE_MECHANISM_JOURNAL,
         TRUCE_CAN_REWRITE | TRUCE_CAN_COMPARE | TRUCE_CAN_ATOMIC_BULK},
    };

    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        bool seen[2] = {false, false};
        int at = 1;

        while (at < 60 && interrupt_at(&stores[i], at, seen))
            at++;
        CHECK_INT(at, >, 5);
        CHECK_INT(at, <, 60);
        CHECK(seen[0] && seen[1]);
    }
}
