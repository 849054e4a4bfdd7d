/*
 * Leases of the journal's commits, with a simulated clock. An active commit is not undone, a silent
 * commit is, whatever the wall clocks say, and the recovery pass counts exactly its actions.
 */
#include "base/deadline.h"
#include "commit/journal.h"
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

#define LEASE_MS 300
#define HOUR_MS  INT64_C(3600000)

/* Another client reads everything after each write of the owner. A write takes step_ms. */
struct owner_life {
    truce_store *inner;
    int64_t step_ms;
    bool looking; /* not at itself */
};

/* How far the clock of the other client is ahead, and whether the owner's clock is frozen. */
static int64_t ahead_ms;
static bool owner_is_frozen;

static void after_each_call(const bson_t *event, void *arg)
{
    struct owner_life *life = arg;
    truce_sweep_report report;
    bson_error_t error = {0};

    (void)event;
    if (!life->step_ms || life->looking)
        return;
    life->looking = true;
    if (life->step_ms == LEASE_MS / 4 && !owner_is_frozen) { /* no renewal is lost */
        char late[100];

        snprintf(late, sizeof late,
                 "{'state': 'pending', 'lease.until': {'$lte': {'$numberLong': '%lld'}}}",
                 (long long)no_sleep_ms);
        CHECK_INT(count_json(life->inner, "truce_commits", late), ==, 0);
    }
    no_sleep_ms += life->step_ms;
    no_sleep_skew_ms = ahead_ms;
    CHECK_OK(truce_sweep(life->inner, NULL, &report, &error), error);
    no_sleep_skew_ms = owner_is_frozen ? INT64_C(1700000000000) - no_sleep_ms : 0;
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
    if (status && ahead_ms < HOUR_MS) /* and reports the reason, unless it was purged */
        CHECK_INT(count_json(life.inner, "truce_commits",
                             "{'state': 'aborted', 'why': {'$regex': 'lease'}}"),
                  ==, 1);
    truce_store_close(store);
    truce__environment_use(NULL);
    return status;
}

TEST(a_commit_that_is_at_work_is_not_undone)
{
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_OK, while_others_look(LEASE_MS / 4, 0, 0), error);
}

/* Each write of the owner's in turn, the renewals among them. */
TEST(repeats_a_renewal_without_a_reply_at_the_next_step)
{
    bson_error_t error = {0};

    for (uint64_t lost = 2; lost < 14; lost++)
        for (int64_t step = LEASE_MS / 10; step <= LEASE_MS / 5; step += LEASE_MS / 30)
            CHECK_STATUS(TRUCE_OK, while_others_look(step, lost, 0), error);
}

/* At this pace two renewals, each repeated at the next step, come in time. A third renewal, which
 * waits for a third of the lease each time, does not. */
TEST(repeats_each_of_two_renewals_without_a_reply_at_once)
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

/* ---- wrong clocks ---- */

static const int64_t skews[] = {25 * HOUR_MS, -25 * HOUR_MS, LEASE_MS, -LEASE_MS,
                                5 * LEASE_MS, -5 * LEASE_MS, 0};

TEST(does_not_undo_a_commit_at_work_if_another_clock_is_wrong)
{
    bson_error_t error = {0};

    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        ahead_ms = skews[i];
        CHECK_STATUS(TRUCE_OK, while_others_look(LEASE_MS / 4, 0, 0), error);
        CHECK_STATUS(TRUCE_CONFLICT, while_others_look(3 * LEASE_MS, 0, 0), error);
    }
    ahead_ms = 0;
}

TEST(does_not_undo_a_commit_at_work_whose_clock_is_frozen)
{
    bson_error_t error = {0};

    owner_is_frozen = true;
    CHECK_STATUS(TRUCE_OK, while_others_look(LEASE_MS / 4, 0, 0), error);
    CHECK_STATUS(TRUCE_CONFLICT, while_others_look(3 * LEASE_MS, 0, 0), error);
    owner_is_frozen = false;
}

/* Inserts a pending commit whose owner is dead, and whose lease ended at that time. */
static bson_oid_t insert_dead(truce_store *store, int64_t until_ms)
{
    bson_t commit = BSON_INITIALIZER, lease;
    bson_error_t error = {0};
    bson_oid_t id;

    bson_oid_init(&id, NULL);
    BSON_APPEND_OID(&commit, "_id", &id);
    BSON_APPEND_UTF8(&commit, "state", "pending");
    BSON_APPEND_DOCUMENT_BEGIN(&commit, "lease", &lease);
    BSON_APPEND_INT32(&lease, "ms", LEASE_MS);
    BSON_APPEND_INT64(&lease, "until", until_ms);
    bson_append_document_end(&commit, &lease);
    CHECK_OK(truce_insert(store, "truce_commits", &commit, NULL, &error), error);
    bson_destroy(&commit);
    return id;
}

static int64_t sweep_once(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    return report.undone;
}

/* Sweeps like processes of cron: each one opens the store and ends. Returns the number of the one
 * that undid the commit, 0: none did. `renewed_in`: the lease is renewed before that one. */
static int undone_by_round(int64_t until_ms, const char *second_clock, int renewed_in)
{
    static int number;
    char uri[300];
    int by = 0;

    snprintf(uri, sizeof uri, "file:%s/brief-%d.truce", test_directory(), number++);
    no_sleep_begin();
    no_sleep_clock = "11111111-1111-1111-1111-111111111111";
    for (int round = 0; round < 12 && !by; round++) {
        truce_store *store;
        bson_error_t error = {0};

        if (!CHECK_OK(truce_store_open(uri, NULL, &store, &error), error))
            return -1;
        if (!round)
            (void)insert_dead(store, until_ms);
        if (round && round == renewed_in) {
            bson_t *update = test_bson("{'$inc': {'lease.until': 1}}"), all = BSON_INITIALIZER;

            CHECK_OK(truce_update(store, "truce_commits", &all, update, NULL, NULL, &error), error);
            bson_destroy(update);
        }
        if (round && second_clock)
            no_sleep_clock = second_clock[0] ? second_clock : NULL;
        if (sweep_once(store))
            by = round;
        truce_store_close(store);
        no_sleep_ms += LEASE_MS / 3;
    }
    no_sleep_clock = NULL;
    truce__environment_use(NULL);
    return by;
}

TEST(short_processes_undo_a_dead_commit_a_lease_after_the_first_saw_it)
{
    const int64_t now_ms = 1700000000000;

    CHECK_INT(undone_by_round(now_ms - 25 * HOUR_MS, NULL, 0), ==, 3);
    CHECK_INT(undone_by_round(now_ms + 25 * HOUR_MS, NULL, 0), ==, 3);
    /* its owner is probably alive until the lease ends */
    CHECK_INT(undone_by_round(now_ms + LEASE_MS / 2, NULL, 0), ==, 5);
    CHECK_INT(undone_by_round(now_ms - 25 * HOUR_MS, NULL, 2), ==, 5);
    CHECK_INT(undone_by_round(now_ms - 25 * HOUR_MS, "22222222-2222-2222-2222-222222222222", 0), ==,
              4);
    CHECK_INT(undone_by_round(now_ms - 25 * HOUR_MS, "", 0), ==, 0);
}

TEST(does_not_undo_a_commit_that_was_renewed_after_its_lease_was_over)
{
    truce_store *store = open_setting(&settings[1]);
    bson_t seen, *update = test_bson("{'$inc': {'lease.until': 1}}"), all = BSON_INITIALIZER;
    bson_error_t error = {0};
    struct worker worker;
    bson_oid_t id;
    bool changed;

    no_sleep_begin();
    id = insert_dead(store, no_sleep_ms);
    truce__worker_init(&worker, store, 0);
    CHECK_OK(truce__commit_find(store, &id, &seen, &error), error);
    CHECK(!truce__journal_lease_over(&worker, &id, &seen));
    no_sleep_ms += LEASE_MS;
    CHECK(truce__journal_lease_over(&worker, &id, &seen));
    CHECK_OK(truce_update(store, "truce_commits", &all, update, NULL, NULL, &error), error);
    CHECK_OK(truce__journal_abort(&worker, &id, &seen, "over", &changed, &error), error);
    CHECK(!changed);
    bson_destroy(&seen);
    CHECK_OK(truce__commit_find(store, &id, &seen, &error), error);
    CHECK_OK(truce__journal_abort(&worker, &id, &seen, "over", &changed, &error), error);
    CHECK(changed);
    bson_destroy(&seen);
    bson_destroy(update);
    truce_store_close(store);
    truce__environment_use(NULL);
}

/* ---- check and resolve ---- */

static void rule_of(const bson_t *finding, void *arg)
{
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, finding, "rule"))
        snprintf(arg, 40, "%s", bson_iter_utf8(&iter, NULL));
}

/* Checks a store with a commit whose lease ended at that time. `renewing`: its owner is alive, and
 * renews the lease by a clock that is behind, before each look. */
static void renew_at_each_find(const bson_t *event, void *arg)
{
    bson_t *update = test_bson("{'$inc': {'lease.until': 1}}"), all = BSON_INITIALIZER;

    (void)event;
    (void)!truce_update(arg, "truce_commits", &all, update, NULL, NULL, NULL);
    bson_destroy(update);
}

static const char *checked(int64_t until_ms, bool renewing, int64_t *took_ms)
{
    static char rule[40];
    truce_store *inner = open_setting(&settings[1]), *store = inner;
    truce_check_report report;
    bson_error_t error = {0};

    rule[0] = 0;
    no_sleep_begin();
    (void)insert_dead(inner, until_ms);
    if (renewing)
        store = truce_trace_wrap(
            inner, &(truce_trace_options){.function = renew_at_each_find, .arg = inner});
    *took_ms = no_sleep_ms;
    {
        DEADLINE_SCOPE(10 * LEASE_MS);

        CHECK_OK(truce_check(store, NULL, rule_of, rule, &report, &error), error);
    }
    *took_ms = no_sleep_ms - *took_ms;
    CHECK_INT(count_json(inner, "truce_commits", "{'lease.seen': {'$exists': true}}"), ==, 0);
    truce_store_close(store);
    truce__environment_use(NULL);
    return rule;
}

TEST(a_check_watches_the_lease_of_a_commit_that_is_probably_dead)
{
    const int64_t now_ms = 1700000000000;
    int64_t took_ms;

    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        if (skews[i] == LEASE_MS)
            continue;
        CHECK_TEXT(checked(now_ms + skews[i], false, &took_ms), "expired-lease");
        CHECK_INT(took_ms, >=, LEASE_MS);
        CHECK_INT(took_ms, <=, 3 * LEASE_MS);
    }
    CHECK_TEXT(checked(now_ms + LEASE_MS, false, &took_ms), ""); /* probably alive */
    CHECK_INT(took_ms, ==, 0);
    CHECK_TEXT(checked(now_ms - 25 * HOUR_MS, true, &took_ms), "unchecked");
    CHECK_INT(took_ms, <=, 11 * LEASE_MS);
}

static truce_status resolved(int64_t until_ms, int64_t *took_ms)
{
    truce_store *store = open_setting(&settings[1]);
    bson_error_t error = {0};
    truce_status status;
    bson_t document;
    bson_oid_t id;

    no_sleep_begin();
    id = insert_dead(store, until_ms);
    *took_ms = no_sleep_ms;
    status = truce_commit_resolve(store, &id, &document, &error);
    *took_ms = no_sleep_ms - *took_ms;
    if (!status)
        CHECK_TEXT(truce__commit_state(&document), "aborted");
    bson_destroy(&document);
    truce_store_close(store);
    truce__environment_use(NULL);
    return status;
}

TEST(resolving_watches_the_lease_of_a_commit_that_is_probably_dead)
{
    const int64_t now_ms = 1700000000000;
    bson_error_t error = {0};
    int64_t took_ms;

    CHECK_STATUS(TRUCE_OK, resolved(now_ms - 25 * HOUR_MS, &took_ms), error);
    CHECK_INT(took_ms, >=, LEASE_MS);
    CHECK_INT(took_ms, <=, 2 * LEASE_MS);
    CHECK_STATUS(TRUCE_LOCKED, resolved(now_ms + LEASE_MS / 2, &took_ms), error);
    CHECK_INT(took_ms, ==, 0);
}

TEST(undoes_a_commit_with_a_fast_clock_one_lease_after_its_sight)
{
    truce_store *store = open_setting(&settings[1]);
    truce_sweep_report report;
    bson_error_t error = {0};

    no_sleep_begin();
    (void)insert_dead(store, no_sleep_ms + HOUR_MS);
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
    truce_store_close(store);
    truce__environment_use(NULL);
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
    truce__environment_use(NULL);
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
    truce__environment_use(NULL);
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
    truce__environment_use(NULL);
}

TEST(a_commit_of_a_short_deadline_has_a_short_lease)
{
    on_every_setting(ends_soon);
}
