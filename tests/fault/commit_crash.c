/* A commit dies at its n-th store call, for every n, before and after the call's effect. Then a
 * recovery dies at its m-th call, for every m, and a last recovery does not. After that, all or
 * nothing is stored, and nothing is held. In further runs every single call fails, or loses its
 * answer, and the client continues. */
#include "base/clock.h"
#include "base/environment.h"
#include "base/random.h"
#include "tests/support/bank.h"
#include "truce/sys/decorate.h"

/* No thread sleeps: the clock is the sum of all sleeps. */
static int64_t slept_ms = 1700000000000;
static struct random chance;

static int64_t slept(void *arg)
{
    (void)arg;
    return slept_ms;
}

static int64_t slept_ns(void *arg)
{
    (void)arg;
    return slept_ms * 1000000;
}

static void sleep_on(void *arg, int64_t duration_ms)
{
    (void)arg;
    slept_ms += duration_ms;
}

static uint64_t draw(void *arg)
{
    (void)arg;
    return truce__random_next(&chance);
}

static const struct environment no_sleep = {NULL, slept, slept_ns, sleep_on, draw, NULL};

/* Two faults, one around the other: the inner loses the answer of call n, the outer lets nothing
 * through from the next call on. Together they act like a death right after the effect of call
 * n. */
struct patient {
    truce_store *store, *inner;
    const struct setting *setting;
};

/* A user whose unique name the commit changes. */
static void open_users(truce_store *store)
{
    bson_t *index = test_bson("{'key': {'name': 1}, 'unique': true}");
    truce_unique_options options = {.settle_ms = 1};
    truce_unique_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_index_create(store, "users", index, &error), error);
    insert_json(store, "users", "{'_id': 'u', 'name': 'x'}");
    CHECK_OK(truce_unique_declare(store, "users", &options, &report, &error), error);
    bson_destroy(index);
}

static void open_patient(struct patient *patient, const struct setting *setting)
{
    truce_fault_options none = {0};
    bson_t *index = test_bson("{'key': {'_intent': 1}, 'sparse': true}");
    bson_error_t error = {0};

    patient->setting = setting;
    patient->inner = truce_fault_wrap(open_setting(setting), &none);
    patient->store = truce_fault_wrap(patient->inner, &none);
    insert_json(patient->store, "accounts", "{'_id': 'a', 'n': 10}");
    insert_json(patient->store, "accounts", "{'_id': 'b', 'n': 0}");
    insert_json(patient->store, "accounts", "{'_id': 'd', 'n': 0}");
    insert_json(patient->store, "accounts", "{'_id': 'e', 'n': 0, 'm': 1}");
    insert_json(patient->store, "guards", "{'_id': 'g', 'open': true}");
    CHECK_OK(truce_index_create(patient->store, "accounts", index, &error), error);
    CHECK_OK(truce_index_create(patient->store, "users", index, &error), error);
    open_users(patient->store);
    bson_destroy(index);
}

enum death { BEFORE, AFTER, FAILS_ONCE, LOSES_ONCE };
static const char *const deaths[] = {"dies before", "dies after", "fails once", "loses once"};

static void arm(struct patient *patient, enum death death, uint64_t at)
{
    truce_fault_options inner = {0}, outer = {0};

    if (death == BEFORE)
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true};
    if (death == AFTER) {
        inner = (truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at};
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at + 1, .from_then_on = true};
    }
    if (death == FAILS_ONCE)
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at};
    if (death == LOSES_ONCE)
        inner = (truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at};
    truce_fault_arm(patient->inner, &inner);
    truce_fault_arm(patient->store, &outer);
}

static bool hit(const struct patient *patient)
{
    return truce_fault_hits(patient->inner) + truce_fault_hits(patient->store) > 0;
}

static truce_status work(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t g = text_id("g"), d = text_id("d"), e = text_id("e");
    bson_t *diff = test_bson("{'n': [0, 5]}");
    bson_t *inserted = test_bson("{'_id': 'c', 'n': 1}"), *guard = test_bson("{'open': true}");
    truce_status status = add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': -5}}", error);

    (void)arg;
    if (!status)
        status = add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 5}}", error);
    if (!status)
        status = add_update(commit, "users", "u", NULL, "{'$set': {'name': 'y'}}", error);
    if (!status)
        status = truce_commit_insert(commit, "accounts", inserted, error);
    if (!status)
        status = truce_commit_remove(commit, "accounts", &d, NULL, error);
    if (!status)
        status = truce_commit_change(commit, "accounts", &e, diff, error);
    if (!status)
        status = truce_commit_require(commit, "guards", &g, guard, error);
    bson_destroy(diff);
    bson_destroy(inserted);
    bson_destroy(guard);
    return status;
}

static truce_status commit_once(struct patient *patient)
{
    truce_commit_options options = {
        .mechanism = patient->setting->mechanism, .lease_ms = 1, .deadline_ms = 4};
    bson_error_t error;

    return truce_transact(patient->store, work, NULL, &options, &error);
}

static truce_status recover(struct patient *patient)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error;

    truce__clock_sleep_ms(4); /* past twice the lease */
    return truce_sweep(patient->store, &options, &report, &error);
}

/* `survives`: no client died, so the owner itself must have found the outcome of its calls. */
static void check_whole(struct patient *patient, truce_status reported, bool survives,
                        const char *what, uint64_t n, uint64_t m)
{
    truce_store *store = patient->store;
    int64_t a = count_json(store, "accounts", "{'_id': 'a', 'n': 5}");
    int64_t b = count_json(store, "accounts", "{'_id': 'b', 'n': 5}");
    int64_t c = count_json(store, "accounts", "{'_id': 'c'}");
    int64_t d = count_json(store, "accounts", "{'_id': 'd'}");
    int64_t u = count_json(store, "users", "{'name': 'y', '_keys': [{'i': 'name_1', 'v': ['y']}]}");
    int64_t v = count_json(store, "users", "{'name': 'x', '_keys': [{'i': 'name_1', 'v': ['x']}]}");
    int64_t e = count_json(store, "accounts", "{'_id': 'e', 'n': 5, 'm': 1}");
    int before = test_failures();

    CHECK_INT(a, ==, u);
    CHECK_INT(a, ==, 1 - v);
    CHECK_INT(count_json(store, "users", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(a, ==, b);
    CHECK_INT(a, ==, e);
    CHECK_INT(a, ==, c);
    CHECK_INT(a, ==, 1 - d);
    CHECK_INT(count_json(store, "accounts", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "truce_commits", "{'state': {'$in': ['pending', 'committed']}}"),
              ==, 0);
    if (survives)
        CHECK_INT(reported, ==, TRUCE_OK);
    if (reported == TRUCE_OK)
        CHECK_INT(a, ==, 1);
    else if (reported != TRUCE_UNKNOWN && reported != TRUCE_IO)
        CHECK_INT(a, ==, 0);
    if (test_failures() > before)
        fprintf(stderr, "    (%s: %s call %d, recovery at %d; reported \"%s\")\n",
                patient->setting->name, what, (int)n, (int)m, truce_status_name(reported));
}

/* Makes one run: it dies at call n; the recovery dies at its call m (0: does not). False: past
 * the last call. */
static bool run(const struct setting *setting, enum death death, uint64_t n, uint64_t m,
                bool *recovery_hit)
{
    struct patient patient;
    truce_status reported;
    bool reached;

    open_patient(&patient, setting);
    arm(&patient, death, n);
    reported = commit_once(&patient);
    reached = hit(&patient);
    *recovery_hit = false;
    if (m) {
        truce_status ignored;

        arm(&patient, death, m);
        ignored = recover(&patient);
        (void)ignored; /* it dies on purpose */
        *recovery_hit = hit(&patient);
    }
    arm(&patient, BEFORE, UINT64_MAX);
    for (int i = 0; i < 2; i++)
        CHECK_INT(recover(&patient), ==, TRUCE_OK);
    check_whole(&patient, reported,
                death == LOSES_ONCE && setting->mechanism == TRUCE_MECHANISM_JOURNAL, deaths[death],
                n, m);
    truce_store_close(patient.store);
    return reached;
}

/* A server may have no transactions. */
static bool can(const struct setting *setting)
{
    truce_store *store = open_setting(setting);
    bool has = store && (setting->mechanism != TRUCE_MECHANISM_NATIVE ||
                         (store->capabilities & TRUCE_CAN_ATOMIC_BULK));

    truce_store_close(store);
    if (!has)
        printf("%s: not here\n", setting->name);
    return has;
}

static void every_call(const struct setting *setting, bool twice)
{
    uint64_t step = (uint64_t)test_scale("TRUCE_COMMIT_CRASH_STEP", 1);
    int runs = 0;

    if (!can(setting))
        return;
    for (enum death death = BEFORE; death <= (twice ? AFTER : LOSES_ONCE); death++) {
        bool reached = true, again;

        for (uint64_t n = 1 + death % step; reached; n += step) {
            reached = run(setting, death, n, 0, &again);
            runs++;
            again = reached && twice;
            for (uint64_t m = 1; again; m += step, runs++)
                run(setting, death, n, m, &again);
        }
    }
    printf("%s: %d runs\n", setting->name, runs);
}

TEST(applies_a_commit_completely_or_not_at_all_if_it_crashes_at_any_call)
{
    truce__random_seed(&chance, 1);
    truce__environment_use(&no_sleep);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        every_call(&settings[i], false);
}

TEST(resumes_a_recovery_that_died_too)
{
    truce__environment_use(&no_sleep);
    every_call(&settings[1], true);
}

TEST(detects_a_commit_write_that_was_reported_but_not_made) /* the canary */
{
    truce_fault_options lie = {.kind = TRUCE_FAULT_LIE, .at = 1, .writes_only = true};
    int caught = 0;

    for (uint64_t n = 1; n < 30; n++) {
        struct patient patient;
        int64_t a, b;

        open_patient(&patient, &settings[1]);
        lie.at = n;
        truce_fault_arm(patient.inner, &lie);
        if (commit_once(&patient) == TRUCE_OK) {
            lie.kind = TRUCE_FAULT_NONE;
            truce_fault_arm(patient.inner, &lie);
            lie.kind = TRUCE_FAULT_LIE;
            CHECK_INT(recover(&patient), ==, TRUCE_OK);
            a = count_json(patient.store, "accounts", "{'_id': 'a', 'n': 5}");
            b = count_json(patient.store, "accounts", "{'_id': 'b', 'n': 5}");
            caught += a + b < 2;
        }
        truce_store_close(patient.store);
    }
    CHECK_INT(caught, >, 0);
}
