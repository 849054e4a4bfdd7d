/*
 * Leases of the journal's commits, with a simulated clock. An active commit is not undone, a silent
 * commit is, and the recovery pass counts exactly its actions.
 */
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

#define LEASE_MS 300

/* Another client reads everything after each write of the owner. A write takes step_ms. */
struct owner_life {
    truce_store *inner;
    int64_t step_ms;
    bool looking; /* not at itself */
};

static void after_each_call(const bson_t *event, void *arg)
{
    struct owner_life *life = arg;
    truce_sweep_report report;
    bson_error_t error = {0};

    (void)event;
    if (!life->step_ms || life->looking)
        return;
    life->looking = true;
    no_sleep_ms += life->step_ms;
    CHECK_OK(truce_sweep(life->inner, NULL, &report, &error), error);
    life->looking = false;
}

static truce_status commit_four(truce_store *store, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = LEASE_MS};
    truce_commit *commit = NULL;
    truce_status status = truce_commit_begin(store, &options, &commit, error);

    for (char id = 'a'; !status && id <= 'h'; id++) {
        char name[2] = {id, 0};

        status = add_update(commit, "things", name, NULL, "{'$inc': {'n': 1}}", error);
    }
    if (!status)
        status = truce_commit_apply(commit, error);
    truce_commit_free(commit);
    return status;
}

/* The owner's write number `lost` and, of the answered ones, number `later` (0: none) get no answer
 * and have no effect. */
static truce_status while_others_look(int64_t step_ms, uint64_t lost, uint64_t later)
{
    struct owner_life life = {0};
    truce_fault_options none = {0}, fail = {.kind = TRUCE_FAULT_FAIL,
                                            .at = lost,
                                            .writes_only = true,
                                            .status = TRUCE_UNKNOWN};
    truce_store *store, *faults, *more;
    bson_error_t error = {0};
    truce_status status;

    no_sleep_begin();
    life.inner = open_setting(&settings[1]);
    more = truce_fault_wrap(life.inner, &none);
    faults = truce_fault_wrap(more, &none);
    store =
        truce_trace_wrap(faults, &(truce_trace_options){.function = after_each_call, .arg = &life});
    for (char id = 'a'; id <= 'h'; id++) {
        char json[40];

        snprintf(json, sizeof json, "{'_id': '%c', 'n': 0}", id);
        insert_json(life.inner, "things", json);
    }
    life.step_ms = step_ms;
    if (lost)
        truce_fault_arm(faults, &fail);
    fail.at = later;
    if (later)
        truce_fault_arm(more, &fail);
    status = commit_four(store, &error);
    life.step_ms = 0;
    CHECK_INT(count_json(life.inner, "things", "{'n': 1}"), ==, status ? 0 : 8);
    if (status) /* and reports the reason */
        CHECK_INT(count_json(life.inner, "truce_commits",
                             "{'state': 'aborted', 'why': {'$regex': 'lease'}}"),
                  ==, 1);
    truce_store_close(store);
    truce__world_use(NULL);
    return status;
}

TEST(a_commit_that_is_at_work_is_not_undone)
{
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_OK, while_others_look(LEASE_MS / 4, 0, 0), error);
}

/* Each write of the owner's in turn, the renewals among them. */
TEST(a_renewal_without_an_answer_is_made_again_at_the_next_step)
{
    bson_error_t error = {0};

    for (uint64_t lost = 2; lost < 14; lost++)
        for (int64_t step = LEASE_MS / 10; step <= LEASE_MS / 5; step += LEASE_MS / 30)
            CHECK_STATUS(TRUCE_OK, while_others_look(step, lost, 0), error);
}

/* At this pace two renewals, each repeated at the next step, come in time. A third renewal, which
 * waits for a third of the lease each time, does not. */
TEST(two_renewals_without_an_answer_are_each_made_again_at_once)
{
    bson_error_t error = {0};

    for (uint64_t lost = 2; lost < 14; lost++)
        for (uint64_t later = lost; later < lost + 6; later++)
            CHECK_STATUS(TRUCE_OK, while_others_look(LEASE_MS / 8, lost, later), error);
}

TEST(a_commit_that_is_silent_for_longer_than_its_lease_is_undone)
{
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_CONFLICT, while_others_look(3 * LEASE_MS, 0, 0), error);
}

TEST(a_commit_whose_clock_was_ahead_is_undone_a_lease_after_it_was_first_seen)
{
    truce_store *store = open_setting(&settings[1]);
    bson_t commit = BSON_INITIALIZER, lease;
    truce_sweep_report report;
    bson_error_t error = {0};
    bson_oid_t id;

    no_sleep_begin();
    bson_oid_init(&id, NULL);
    BSON_APPEND_OID(&commit, "_id", &id);
    BSON_APPEND_UTF8(&commit, "state", "pending");
    BSON_APPEND_DOCUMENT_BEGIN(&commit, "lease", &lease);
    BSON_APPEND_INT32(&lease, "ms", LEASE_MS);
    BSON_APPEND_INT64(&lease, "until", no_sleep_ms + 3600000);
    bson_append_document_end(&commit, &lease);
    CHECK_OK(truce_insert(store, "truce_commits", &commit, NULL, &error), error);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        CHECK_INT(report.undone, ==, round == 2);
        CHECK_INT(report.cleaned, ==, round == 2);
        no_sleep_ms += LEASE_MS / 2 + 1;
    }
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.undone + report.cleaned + report.finished + report.stripped, ==, 0);
    CHECK_INT(report.purged, ==, 0);
    no_sleep_ms += 3600000; /* attempts that came to nothing are not kept for days */
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.purged, ==, 0); /* `created` is missing: of no age that is known */
    bson_destroy(&commit);
    truce_store_close(store);
    truce__world_use(NULL);
}

/* Each write of a recovery pass fails in turn. */
TEST(does_not_count_failed_writes_of_a_recovery_pass)
{
    for (uint64_t at = 1; at < 6; at++) {
        truce_store *store = open_setting(&settings[1]), *fault;
        truce_fault_options fail = {.kind = TRUCE_FAULT_FAIL, .at = at, .writes_only = true};
        truce_sweep_report report = {0};
        bson_error_t error = {0};

        insert_json(store, "truce_commits",
                    "{'_id': {'$oid': '0123456789abcdef01234567'}, 'state': 'aborted', "
                    "'created': {'$date': {'$numberLong': '4102444800000'}}, 'writes': []}");
        fault = truce_fault_wrap(store, &fail);
        (void)!truce_sweep(fault, NULL, &report, &error);
        CHECK_INT(report.cleaned, ==,
                  count_json(store, "truce_commits", "{'cleaned': {'$exists': true}}"));
        truce_store_close(fault);
    }
}

TEST(purges_failed_attempts_within_the_hour_but_not_done_commits)
{
    truce_store *store = open_setting(&settings[1]);
    truce_sweep_report report;
    bson_error_t error = {0};

    no_sleep_begin();
    CHECK_STATUS(TRUCE_NOT_FOUND, commit_four(store, &error), error);
    for (char id = 'a'; id <= 'h'; id++) {
        char json[40];

        snprintf(json, sizeof json, "{'_id': '%c', 'n': 0}", id);
        insert_json(store, "things", json);
    }
    CHECK_OK(commit_four(store, &error), error);
    no_sleep_ms += 3599000;
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.purged, ==, 0);
    no_sleep_ms += 2000;
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.purged, ==, 1);
    CHECK_INT(count_json(store, "truce_commits", "{'state': 'done'}"), ==, 1);
    truce_store_close(store);
    truce__world_use(NULL);
}

/* ---- a look that dies ------------------------------------------------------------------------ */

TEST(holds_missing_documents_of_a_dead_read_for_a_short_lease)
{
    truce_store *inner = open_setting(&settings[1]), *store;
    truce_fault_options fail = {
        .kind = TRUCE_FAULT_FAIL, .at = 6, .writes_only = true, .from_then_on = true};
    truce_fault_options none = {0};
    truce_read_many_options options = {.deadline_ms = 100, .lease_ms = 200};
    truce_read_request looks[3];
    bson_value_t ids[3];
    bson_error_t error = {0};
    int64_t begun;

    no_sleep_begin();
    store = truce_fault_wrap(inner, &none);
    store->capabilities &= ~(uint32_t)(TRUCE_CAN_SNAPSHOT_READ | TRUCE_CAN_ATOMIC_BULK);
    for (int i = 0; i < 3; i++) {
        ids[i] = text_id(i == 0 ? "a" : i == 1 ? "b" : "c");
        looks[i] = (truce_read_request){.collection = "things", .id = &ids[i]};
    }
    truce_fault_arm(store, &fail);
    CHECK(truce_read_many(store, looks, 3, &options, &error) != TRUCE_OK);
    CHECK(truce_fault_hits(store) > 0);
    CHECK_INT(count_json(inner, "things", "{'_intent': {'$exists': true}}"), >, 0);
    for (int i = 0; i < 3; i++)
        bson_destroy(&looks[i].document);
    truce_fault_arm(store, &none);
    begun = no_sleep_ms;
    {
        truce_commit_options commits = {.mechanism = TRUCE_MECHANISM_JOURNAL};
        bson_t *document = test_bson("{'_id': 'b', 'n': 1}"), *other = test_bson("{'_id': 'c'}");
        truce_commit *commit = NULL;

        CHECK_OK(truce_commit_begin(store, &commits, &commit, &error), error);
        CHECK_OK(truce_commit_insert(commit, "things", document, &error), error);
        CHECK_OK(truce_commit_insert(commit, "things", other, &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        bson_destroy(document);
        bson_destroy(other);
    }
    CHECK(no_sleep_ms - begun < 1000);
    truce_store_close(store);
    truce__world_use(NULL);
}

static truce_status add_one(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    return add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);
}

/* A function that waits for a document of its own commit, after the commit locks its documents
 * first. */
static truce_status wait_for_oneself(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t id = text_id("a");
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &id, &document, error);

    bson_destroy(&document);
    no_sleep_ms += 40;
    if (!status)
        status = truce_transact(arg, add_one, NULL, NULL, error);
    return status ? status : add_one(commit, NULL, error);
}

static void ends_soon(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .deadline_ms = 500, .tries_max = 1000000};
    bson_error_t error = {0};
    truce_status status;
    int64_t begun_ms;

    no_sleep_begin();
    begun_ms = no_sleep_ms;
    insert_json(store, "things", "{'_id': 'a', 'n': 0}");
    status = truce_transact(store, wait_for_oneself, store, &options, &error);
    CHECK(status == TRUCE_TIMEOUT || status == TRUCE_LOCKED);
    CHECK_INT(no_sleep_ms - begun_ms, <=, 2500);
    truce__world_use(NULL);
}

TEST(a_commit_of_a_short_deadline_has_a_short_lease)
{
    on_every_setting(ends_soon);
}
