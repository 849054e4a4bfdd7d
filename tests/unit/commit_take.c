/*
 * Every commit makes progress: a commit that always loses locks its documents first, whatever the
 * others do. The clock is the sum of all sleeps.
 */
#include "tests/support/bank.h"
#include "tests/support/hooked.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

#define DOCUMENTS 8

struct loser {
    truce_store *store;
    truce_mechanism mechanism;
    int runs;
    int refuses; /* the run in which it refuses; 0: none */
    bool plain;  /* the others are plain writers */
};

static void fill(truce_store *store)
{
    for (int i = 0; i < DOCUMENTS; i++) {
        char json[40];

        snprintf(json, sizeof json, "{'_id': '%c', 'n': 0, 'm': 0}", 'a' + i);
        insert_json(store, "things", json);
    }
}

static truce_status short_one(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    return add_update(commit, "things", "c", NULL, "{'$inc': {'m': 1}}", error);
}

/* A concurrent write, between the reads and the writes of the losing commit. */
static void somebody_else(struct loser *loser)
{
    truce_commit_options options = {.mechanism = loser->mechanism, .deadline_ms = 5};
    bson_t *filter = test_bson("{'_id': 'c'}"), *more = test_bson("{'$inc': {'m': 1}}");
    truce_status status;

    no_sleep_ms += 40;
    if (loser->plain)
        status = truce_update(loser->store, "things", filter, more, NULL, NULL, NULL);
    else
        status = truce_transact(loser->store, short_one, NULL, &options, NULL);
    CHECK(status == TRUCE_OK || (status == TRUCE_LOCKED && !loser->plain));
    bson_destroy(filter);
    bson_destroy(more);
}

static truce_status think(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct loser *loser = arg;
    truce_status status = TRUCE_OK;

    loser->runs++;
    for (int i = DOCUMENTS; !status && i-- > 0;) {
        char name[2] = {(char)('a' + i), 0};
        bson_value_t id = text_id(name);
        bson_t document;

        status = truce_commit_read(commit, "things", &id, &document, error);
        bson_destroy(&document);
    }
    somebody_else(loser);
    if (loser->runs == loser->refuses)
        return TRUCE_REFUSED;
    for (int i = 0; !status && i < DOCUMENTS - 1; i++) {
        char name[2] = {(char)('a' + i), 0};

        status = add_update(commit, "things", name, NULL, "{'$inc': {'n': 1}}", error);
    }
    if (!status) { /* and a new document, which could not be locked before */
        bson_t *fresh = test_bson("{'_id': 'fresh'}");

        status = truce_commit_insert(commit, "things", fresh, error);
        bson_destroy(fresh);
    }
    return status;
}

static truce_status lose(truce_store *store, const struct setting *setting, struct loser *loser)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .tries_max = 30, .deadline_ms = 60000};
    bson_error_t error = {0};
    truce_status status;

    no_sleep_begin();
    loser->store = store;
    loser->mechanism = setting->mechanism;
    fill(store);
    status = truce_transact(store, think, loser, &options, &error);
    truce__environment_use(NULL);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    return status;
}

static void gets_through(truce_store *store, const struct setting *setting)
{
    struct loser loser = {0};
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_OK, lose(store, setting, &loser), error);
    CHECK_INT(loser.runs, >=, 4);
    CHECK_INT(loser.runs, <=, 8);
    CHECK_INT(count_json(store, "things", "{'n': 1}"), ==, DOCUMENTS - 1);
    CHECK_INT(count_json(store, "things", "{'n': 0}"), ==, 1);
    CHECK_INT(count_json(store, "things", "{'_id': 'fresh'}"), ==, 1);
}

TEST(a_commit_that_always_loses_takes_its_documents_first)
{
    on_every_setting(gets_through);
}

static void never_over_a_plain_write(truce_store *store, const struct setting *setting)
{
    struct loser loser = {.plain = true};
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_CONFLICT, lose(store, setting, &loser), error);
    CHECK_INT(loser.runs, ==, 30);
    CHECK_INT(count_json(store, "things", "{'n': 0}"), ==, DOCUMENTS);
    CHECK_INT(count_json(store, "things", "{'m': 30}"), ==, 1);
    CHECK_INT(count_json(store, "things", "{'_id': 'fresh'}"), ==, 0);
}

TEST(a_plain_write_of_a_document_that_was_taken_is_a_conflict)
{
    on_every_setting(never_over_a_plain_write);
}

static void gives_back(truce_store *store, const struct setting *setting)
{
    struct loser loser = {.refuses = 4};
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_REFUSED, lose(store, setting, &loser), error);
    CHECK_INT(loser.runs, ==, 4);
    CHECK_INT(count_json(store, "things", "{'n': 0}"), ==, DOCUMENTS);
    CHECK_INT(count_json(store, "truce_commits", "{'why': {'$regex': 'function'}}"), ==, 1);
}

TEST(releases_locked_documents_if_the_function_refuses)
{
    on_every_setting(gives_back);
}

/* Once its document was taken, it waits for itself. */
static truce_status wait_for_itself(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    struct loser *loser = arg;
    bson_value_t id = text_id("c");
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &id, &document, error);

    bson_destroy(&document);
    if (status)
        return status;
    if (++loser->runs > 3)
        return truce_transact(loser->store, short_one, NULL, &options, error);
    somebody_else(loser);
    return add_update(commit, "things", "c", NULL, "{'$inc': {'n': 1}}", error);
}

static void ends_by_its_deadline(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .deadline_ms = 1000, .lease_ms = 20000};
    struct loser loser = {.store = store, .mechanism = setting->mechanism};
    bson_error_t error = {0};
    int64_t begun_ms;

    no_sleep_begin();
    begun_ms = no_sleep_ms;
    fill(store);
    CHECK_STATUS(TRUCE_LOCKED, truce_transact(store, wait_for_itself, &loser, &options, &error),
                 error);
    CHECK_INT(no_sleep_ms - begun_ms, <, 2000);
    truce__environment_use(NULL);
    CHECK_INT(loser.runs, ==, 4);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
}

TEST(ends_a_function_that_waits_for_its_own_commit)
{
    on_every_setting(ends_by_its_deadline);
}

/* CT8: reads documents outside the commit, including a missing one. */
static void look_beside(const struct loser *loser, int32_t m)
{
    bson_value_t c = text_id("c"), none = text_id("none");
    truce_read_request looks[2] = {{.collection = "things", .id = &c},
                                   {.collection = "things", .id = &none}};
    truce_read_many_options options = {.deadline_ms = 50};
    bson_error_t error = {0};
    bson_iter_t iter;

    CHECK_STATUS(TRUCE_OK, truce_read_many(loser->store, looks, 2, &options, &error), error);
    CHECK(looks[0].found && !looks[1].found);
    CHECK(!bson_has_field(&looks[0].document, "_intent"));
    CHECK(bson_iter_init_find(&iter, &looks[0].document, "m"));
    CHECK_INT(bson_iter_as_int64(&iter), ==, m);
    for (int i = 0; i < 2; i++)
        bson_destroy(&looks[i].document);
}

static truce_status looks_beside(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct loser *loser = arg;
    truce_status status = think(commit, arg, error);

    if (!status)
        look_beside(loser, loser->runs < 4 || loser->plain ? loser->runs : 3);
    return status;
}

static void sees_what_it_took(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .tries_max = 4, .deadline_ms = 60000};
    struct loser loser = {.store = store, .mechanism = setting->mechanism};
    bson_error_t error = {0};

    no_sleep_begin();
    fill(store);
    CHECK_STATUS(TRUCE_OK, truce_transact(store, looks_beside, &loser, &options, &error), error);
    CHECK_INT(loser.runs, ==, 4);
    look_beside(&loser, 3); /* no commit is active */
    truce__environment_use(NULL);
}

TEST(reads_the_current_value_of_a_locked_document)
{
    on_every_setting(sees_what_it_took);
}

static void sees_by_two_looks(truce_store *store, const struct setting *setting)
{
    store->capabilities &= ~(uint32_t)TRUCE_CAN_SNAPSHOT_READ;
    sees_what_it_took(store, setting);
}

TEST(shows_the_taken_documents_without_snapshot_reads)
{
    on_every_setting(sees_by_two_looks);
}

/* A nested function of another commit: it sees both, and the documents that it locked itself. */
static truce_status within(truce_commit *commit, void *arg, bson_error_t *error)
{
    look_beside(arg, 3);
    return add_update(commit, "things", "h", NULL, "{'$inc': {'n': 1}}", error);
}

static truce_status calls_another(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct loser *loser = arg;
    truce_commit_options options = {.mechanism = loser->mechanism};
    bson_value_t c = text_id("c");
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &c, &document, error);

    bson_destroy(&document);
    somebody_else(loser);
    if (!status && ++loser->runs == 4)
        status = truce_transact(loser->store, within, loser, &options, error);
    if (!status && loser->runs == 4)
        look_beside(loser, 3);
    return status ? status : add_update(commit, "things", "c", NULL, "{'$inc': {'n': 1}}", error);
}

static void sees_through_two(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .tries_max = 4, .deadline_ms = 60000};
    struct loser loser = {.store = store, .mechanism = setting->mechanism};
    bson_error_t error = {0};

    no_sleep_begin();
    fill(store);
    CHECK_STATUS(TRUCE_OK, truce_transact(store, calls_another, &loser, &options, &error), error);
    truce__environment_use(NULL);
    CHECK_INT(count_json(store, "things", "{'_id': {'$in': ['c', 'h']}, 'n': 1}"), ==, 2);
}

TEST(reads_documents_that_the_outer_commit_locked)
{
    on_every_setting(sees_through_two);
}

struct vanishing {
    struct loser loser;
    int last; /* in this run one document is removed, after it was read */
};

static truce_status read_one(truce_commit *commit, const char *name, bson_error_t *error)
{
    bson_value_t id = text_id(name);
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &id, &document, error);

    bson_destroy(&document);
    return status;
}

static truce_status see_it_vanish(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct vanishing *vanishing = arg;
    struct loser *loser = &vanishing->loser;
    truce_status status = read_one(commit, "a", error);
    bson_t *filter = test_bson("{'_id': 'a'}");

    loser->runs++;
    CHECK_INT(status, ==, loser->runs > vanishing->last ? TRUCE_NOT_FOUND : TRUCE_OK);
    status = read_one(commit, "c", error);
    somebody_else(loser);
    if (loser->runs == vanishing->last)
        CHECK(truce_remove(loser->store, "things", filter, NULL, NULL, NULL) == TRUCE_OK);
    bson_destroy(filter);
    return status ? status : add_update(commit, "things", "c", NULL, "{'$inc': {'n': 1}}", error);
}

/* The fourth try takes first. */
static void takes_what_is_left(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .tries_max = 4, .deadline_ms = 60000};
    struct vanishing vanishing = {{store, setting->mechanism, 0, 0, false}, 3};
    bson_error_t error = {0};

    no_sleep_begin();
    fill(store);
    CHECK_STATUS(TRUCE_OK, truce_transact(store, see_it_vanish, &vanishing, &options, &error),
                 error);
    truce__environment_use(NULL);
    CHECK_INT(vanishing.loser.runs, ==, 4);
    CHECK_INT(count_json(store, "things", "{'n': 1}"), ==, 1);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "things", "{}"), ==, DOCUMENTS - 1);
}

TEST(spends_no_try_on_a_removed_document)
{
    on_every_setting(takes_what_is_left);
}

/* ---- a plain write at any time after the documents were locked ------------------------------- */

static int calls, enter_at;
static bool armed;

static const char *intrude_in, *intrude_on, *intrude_with;

static void intrude(truce_store *store)
{
    bson_t *filter = test_bson(intrude_on), *more = test_bson(intrude_with);

    if (armed && ++calls == enter_at) {
        armed = false;
        CHECK(truce_update(store, intrude_in, filter, more, NULL, NULL, NULL) == TRUCE_OK);
        armed = true;
    }
    bson_destroy(more);
    bson_destroy(filter);
}

/* A concurrent write wins three times; the fourth try locks first. */
static truce_status take_at_last(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct loser *loser = arg;
    truce_status status = read_one(commit, "c", error);

    if (!status)
        status = read_one(commit, "a", error);
    armed = ++loser->runs > 3;
    if (!armed)
        somebody_else(loser);
    if (!status && loser->runs % 2) /* a whole document, too */
        status = add_update(commit, "things", "a", NULL, "{'$inc': {'m': 1}}", error);
    return status ? status : add_update(commit, "things", "c", NULL, "{'$inc': {'n': 1}}", error);
}

/* Calls `look` after each run. */
static void intrude_at_every_call(truce_store *store, const struct setting *setting,
                                  truce_commit_function *function, setting_function *look)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 60000};
    const truce_store_ops *own = store->ops;
    bson_t *all = test_bson("{}");
    bool entered = true;

    hooked_make(store, intrude);
    for (enter_at = 1; entered && enter_at < 60; enter_at++) {
        struct loser loser = {.store = store, .mechanism = setting->mechanism};
        bson_error_t error = {0};

        for (int i = 0; i < 2; i++)
            CHECK(truce_remove(store, i ? "truce_commits" : "things", all,
                               &(truce_write_options){.multi = true}, NULL, NULL) == TRUCE_OK);
        no_sleep_begin();
        fill(store);
        store->ops = &hooked_ops;
        calls = 0;
        CHECK_STATUS(TRUCE_OK, truce_transact(store, function, &loser, &options, &error), error);
        armed = false;
        store->ops = own;
        truce__environment_use(NULL);
        entered = calls >= enter_at;
        CHECK_INT(loser.runs, >=, 4);
        look(store, setting);
        CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
        CHECK_INT(count_json(store, "truce_commits", "{'state': 'pending'}"), ==, 0);
    }
    CHECK(!entered);
    bson_destroy(all);
}

static void has_both(truce_store *store, const struct setting *setting)
{
    bool entered = calls >= enter_at;

    if (setting->mechanism == TRUCE_MECHANISM_NATIVE ||
        !count_json(store, "truce_commits", "{'overwritten': {'$exists': true}}"))
        CHECK_INT(count_json(store, "things", entered ? "{'n': 2}" : "{'n': 1}"), ==, 1);
}

static void loses_no_plain_write(truce_store *store, const struct setting *setting)
{
    intrude_in = "things";
    intrude_on = "{'_id': 'c'}";
    intrude_with = "{'$inc': {'n': 1}}";
    intrude_at_every_call(store, setting, take_at_last, has_both);
}

/* One document, with any mechanism: no displaced value is reported, because no write is lost. */
static truce_status take_one_at_last(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct loser *loser = arg;
    bson_value_t id = text_id("c");
    char update[60];
    bson_iter_t iter;
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &id, &document, error);

    CHECK(!status && bson_iter_init_find(&iter, &document, "n"));
    snprintf(update, sizeof update, "{'$set': {'n': %d, 'm': 0}}", 1 + (int)bson_iter_int32(&iter));
    bson_destroy(&document);
    armed = ++loser->runs > 3;
    if (!armed)
        somebody_else(loser);
    return add_update(commit, "things", "c", NULL, update, error);
}

static void has_both_for_certain(truce_store *store, const struct setting *setting)
{
    (void)setting;
    CHECK_INT(count_json(store, "things", calls >= enter_at ? "{'n': 2}" : "{'n': 1}"), ==, 1);
    CHECK_INT(count_json(store, "truce_commits", "{'overwritten': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "truce_displaced", "{}"), ==, 0);
}

static void loses_none_of_one(truce_store *store, const struct setting *setting)
{
    intrude_in = "things";
    intrude_on = "{'_id': 'c'}";
    intrude_with = "{'$inc': {'n': 1}}";
    intrude_at_every_call(store, setting, take_one_at_last, has_both_for_certain);
}

TEST(loses_no_plain_write_to_a_commit_of_a_taken_document)
{
    on_every_setting(loses_none_of_one);
}

/* The same with another document: the store's step compares both, and the journal would keep the
 * losing write separately. */
static truce_status take_two_at_last(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = take_one_at_last(commit, arg, error);

    return status ? status : add_update(commit, "things", "a", NULL, "{'$inc': {'m': 1}}", error);
}

static void has_both_in_one_step(truce_store *store, const struct setting *setting)
{
    if (setting->mechanism == TRUCE_MECHANISM_NATIVE)
        has_both_for_certain(store, setting);
}

static void loses_none_of_two(truce_store *store, const struct setting *setting)
{
    intrude_in = "things";
    intrude_on = "{'_id': 'c'}";
    intrude_with = "{'$inc': {'n': 1}}";
    intrude_at_every_call(store, setting, take_two_at_last, has_both_in_one_step);
}

TEST(loses_no_plain_write_after_documents_were_taken)
{
    on_every_setting(loses_no_plain_write);
    on_every_setting(loses_none_of_two);
}

/* ---- a call without an answer after the documents were taken --------------------------------- */

static truce_fault_options fault;
static const bson_t *leaves; /* the result of the commit under its key */

/* Like take_at_last; its other documents are a guarded document and a new one. */
static truce_status take_then_fault(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct loser *loser = arg;
    truce_status status = read_one(commit, "a", error);

    if (!status)
        status = read_one(commit, "c", error);
    if (++loser->runs <= 3)
        somebody_else(loser);
    else if (loser->runs == 4)
        truce_fault_arm(loser->store, &fault);
    if (!status && leaves)
        status = truce_commit_set_result(commit, leaves, error);
    return status ? status : add_update(commit, "things", "c", NULL, "{'$inc': {'n': 1}}", error);
}

static void happens_once(const struct setting *setting, bool keyed)
{
    truce_store *store = truce_fault_wrap(open_setting(setting), &(truce_fault_options){0});
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 60000};
    bson_t *all = test_bson("{}"), *number = test_bson("{'number': 17}"), left;
    bool hit = true;

    for (fault.at = 1; hit && fault.at < 60; fault.at++) {
        struct loser loser = {.store = store, .mechanism = setting->mechanism};
        bson_error_t error = {0};
        truce_status status;
        char key[20];

        for (int i = 0; i < 2; i++)
            CHECK(truce_remove(store, i ? "truce_commits" : "things", all,
                               &(truce_write_options){.multi = true}, NULL, NULL) == TRUCE_OK);
        snprintf(key, sizeof key, "key %u", (unsigned)fault.at);
        options.key = keyed ? key : NULL;
        leaves = keyed ? number : NULL;
        options.key_time_ms = keyed ? 1700000000000 : 0;
        no_sleep_begin();
        fill(store);
        status = truce_transact(store, take_then_fault, &loser, &options, &error);
        hit = truce_fault_hits(store) > 0;
        truce_fault_arm(store, &(truce_fault_options){0});
        truce__environment_use(NULL);
        CHECK(status == TRUCE_OK || (fault.kind == TRUCE_FAULT_FAIL && status == fault.status));
        CHECK_INT(count_json(store, "things", status ? "{'n': 1}" : "{'n': {'$ne': 1}}"), ==,
                  status ? 0 : DOCUMENTS - 1);
        CHECK_INT(count_json(store, "things", "{'n': {'$gt': 1}}"), ==, 0);
        if (!status)
            CHECK_INT(count_json(store, "truce_commits", "{'state': 'pending'}"), ==, 0);
        if (!status && keyed) {
            CHECK_OK(truce_commit_result(store, key, &left, &error), error);
            CHECK_BSON(number, &left);
            bson_destroy(&left);
        }
    }
    CHECK(!hit);
    bson_destroy(number);
    bson_destroy(all);
    truce_store_close(store);
}

TEST(applies_a_commit_of_taken_documents_once_at_any_lost_reply)
{
    static const truce_fault_options faults[] = {
        {.kind = TRUCE_FAULT_LOSE},
        {.kind = TRUCE_FAULT_FAIL, .status = TRUCE_UNKNOWN},
        {.kind = TRUCE_FAULT_FAIL, .status = TRUCE_IO},
    };

    for (size_t i = 0; i < 2 * sizeof settings / sizeof *settings; i++) {
        for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
            int before = test_failures();

            fault = faults[k];
            happens_once(&settings[i / 2], i % 2);
            if (test_failures() > before)
                fprintf(stderr, "    (with %s, fault %zu, key %zu)\n", settings[i / 2].name, k,
                        i % 2);
        }
    }
}

static void is_no_aborted_one(truce_store *store, const struct setting *setting)
{
    bson_t *filter = test_bson("{'_id': 'c'}"), document;
    char undone[140], hex[25];
    bson_error_t error;
    bson_iter_t iter;

    (void)setting;
    CHECK_OK(truce_find_one(store, "things", filter, NULL, &document, &error), error);
    CHECK(bson_iter_init_find(&iter, &document, "_rev") && BSON_ITER_HOLDS_OID(&iter));
    bson_oid_to_string(bson_iter_oid(&iter), hex);
    snprintf(undone, sizeof undone, "{'_id': {'$oid': '%s'}, 'why': {'$exists': true}}", hex);
    CHECK_INT(count_json(store, "truce_commits", undone), ==, 0);
    CHECK_INT(count_json(store, "things", "{'n': 1}"), ==, 1);
    bson_destroy(&document);
    bson_destroy(filter);
}

static void is_undone_or_not(truce_store *store, const struct setting *setting)
{
    intrude_in = "truce_commits";
    intrude_on = "{'state': 'pending'}";
    intrude_with = "{'$set': {'state': 'aborted', 'why': 'its lease had expired'}}";
    intrude_at_every_call(store, setting, take_at_last, is_no_aborted_one);
}

TEST(undoes_a_commit_that_took_its_documents_without_effect)
{
    on_every_setting(is_undone_or_not);
}

/* ---- CT2: calls of a function that do not go through its commit ------------------------------ */

/* Each reads or writes, apart from the commit, documents that another pending commit holds. */
static truce_status reads_many(truce_store *store, bson_error_t *error)
{
    bson_value_t id = text_id("held");
    truce_read_request look = {.collection = "others", .id = &id};
    truce_status status = truce_read_many(store, &look, 1, NULL, error);

    bson_destroy(&look.document);
    return status;
}

static truce_status change_held(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    return add_update(commit, "others", "held", NULL, "{'$inc': {'n': 1}}", error);
}

static truce_status commits_apart(truce_store *store, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};

    return truce_transact(store, change_held, NULL, &options, error);
}

static truce_status adds_to_a_set(truce_store *store, bson_error_t *error)
{
    truce_set *set = truce_set_new(
        store, &(truce_set_options){
                   .collection = "others", .key = "_id", .field = "list", .name = "name"});
    bson_t *key = test_bson("{'_id': 'held'}"), *element = test_bson("{'name': 'x'}");
    truce_status status = truce_set_add(set, NULL, key, element, 1, NULL, error);

    bson_destroy(element);
    bson_destroy(key);
    truce_set_free(set);
    return status;
}

static truce_status changes_an_item(truce_store *store, bson_error_t *error)
{
    truce_item *item = truce_item_new(
        store, &(truce_item_options){.collection = "others", .field = "items", .identity = "name"});
    bson_t *filter = test_bson("{'_id': 'held'}"), *one = test_bson("{'name': 'x'}");
    truce_status status = truce_item_add(item, NULL, filter, one, NULL, error);

    bson_destroy(one);
    bson_destroy(filter);
    truce_item_free(item);
    return status;
}

static truce_status saves_a_revision(truce_store *store, bson_error_t *error)
{
    truce_revision *revision =
        truce_revision_new(store, &(truce_revision_options){.collection = "others"});
    bson_t *mine = test_bson("{'_id': 'held', 'n': 9}");
    truce_revision_result result;
    truce_status status = truce_revision_save(revision, NULL, mine, 0, NULL, &result, error);

    truce_revision_result_release(&result);
    bson_destroy(mine);
    truce_revision_free(revision);
    return status;
}

static const struct apart {
    const char *name;
    truce_status (*call)(truce_store *store, bson_error_t *error);
} aparts[] = {{"truce_read_many", reads_many},
              {"truce_transact", commits_apart},
              {"truce_set_add", adds_to_a_set},
              {"truce_item_add", changes_an_item},
              {"truce_revision_save", saves_a_revision}};

struct apart_run {
    struct loser loser;
    const struct apart *apart;
    int called;
};

/* A commit of another process, which is pending during the whole test. */
static void hold_another(truce_store *store)
{
    insert_json(store, "others",
                "{'_id': 'held', 'n': 1, '_intent': {'c': {'$oid': 'aaaaaaaaaaaaaaaaaaaaaaaa'}}}");
    insert_json(store, "truce_commits",
                "{'_id': {'$oid': 'aaaaaaaaaaaaaaaaaaaaaaaa'}, 'state': 'pending',"
                " 'lease': {'ms': 600000, 'until': {'$numberLong': '1700000600000'}}}");
}

static truce_status calls_apart(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct apart_run *run = arg;
    bson_value_t id = text_id("c");
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &id, &document, error);
    int64_t begun_ms;

    bson_destroy(&document);
    somebody_else(&run->loser);
    if (status)
        return status;
    if (++run->loser.runs == 4) { /* the documents of the commit are taken */
        begun_ms = no_sleep_ms;
        status = run->apart->call(run->loser.store, error);
        CHECK_INT(status, ==, TRUCE_LOCKED);
        CHECK_INT(no_sleep_ms - begun_ms, ==, 0);
        run->called++;
        return status;
    }
    return add_update(commit, "things", "c", NULL, "{'$inc': {'n': 1}}", error);
}

static void keeps_no_one_waiting(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .tries_max = 6, .deadline_ms = 60000};
    bson_error_t error = {0};

    no_sleep_begin();
    fill(store);
    hold_another(store);
    for (size_t i = 0; i < sizeof aparts / sizeof *aparts; i++) {
        struct apart_run run = {.loser = {.store = store, .mechanism = setting->mechanism},
                                .apart = &aparts[i]};
        int before = test_failures();

        CHECK_STATUS(TRUCE_OK, truce_transact(store, calls_apart, &run, &options, &error), error);
        CHECK_INT(run.called, ==, 1);
        if (test_failures() > before)
            fprintf(stderr, "    (%s)\n", aparts[i].name);
    }
    truce__environment_use(NULL);
}

TEST(does_not_wait_for_other_commits_while_it_holds_documents)
{
    on_every_setting(keeps_no_one_waiting);
}
