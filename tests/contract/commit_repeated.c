/*
 * A keyed commit and its twin: the same request, sent again. Whatever part of the twin fails
 * because the first commit took effect (its id is taken, its guard does not match, its document is
 * gone), the twin reports success, with `earlier`.
 */
#include "base/clock.h"
#include "tests/support/book.h"

#define KEY_TIME 1700000000000

struct twin {
    truce_store *store;
    const struct setting *setting;
    const struct twin_part *part;
    const bson_t *input;
    truce_ledger *ledger;
    truce_queue *queue;
    truce_transfers *transfers;
    truce_job *job;
    bool meets; /* the first run sends the twin, which takes effect */
    bool done;
    int runs;
};

typedef truce_status twin_function(const struct twin *twin, truce_commit *commit,
                                   bson_error_t *error);

static truce_status add_insert(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_t *document = test_bson("{'_id': 'order', 'n': 1}");
    truce_status status = truce_commit_insert(commit, "things", document, error);

    (void)twin;
    bson_destroy(document);
    return status;
}

static truce_status add_missing(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("order");
    truce_status status = truce_commit_require_missing(commit, "things", &id, error);

    return status ? status : add_insert(twin, commit, error);
}

static truce_status add_remove(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("old");

    (void)twin;
    return truce_commit_remove(commit, "things", &id, NULL, error);
}

static truce_status add_guarded(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    (void)twin;
    return add_update(commit, "things", "old", "{'n': 0}", "{'$inc': {'n': 1}}", error);
}

static truce_status add_diff(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("old");
    bson_t *diff = test_bson("{'n': [0, 1]}");
    truce_status status = truce_commit_change(commit, "things", &id, diff, error);

    (void)twin;
    truce_commit_changes_fixed(commit);
    bson_destroy(diff);
    return status;
}

static truce_status add_require(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("old");
    bson_t *guard = test_bson("{'n': 0}");
    truce_status status = truce_commit_hold(commit, "things", &id, guard, error);

    bson_destroy(guard);
    return status ? status : add_guarded(twin, commit, error);
}

static truce_status add_post(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    truce_ledger_result result;
    truce_status status = book_post(twin->ledger, commit, "payment", TRUCE_LEDGER_TRANSFER, "bank",
                                    "shop", 5, &result, error);

    if (!status && result.exists) /* as truceCommit and `truce commit apply` do */
        status = TRUCE_REFUSED;
    return status;
}

static truce_status add_job(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_t *payload = test_bson("{'n': 1}");
    truce_job_options options = {.unique = "order", .on_conflict = TRUCE_ON_CONFLICT_REFUSE};
    truce_status status = truce_queue_add(twin->queue, commit, payload, &options, NULL, error);

    bson_destroy(payload);
    return status;
}

static truce_status end_job(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    return truce_job_done(twin->job, commit, NULL, error);
}

static truce_status add_transfer(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("move"), from = text_id("a"), to = text_id("b"),
                 amount = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 5};
    truce_transfer transfer = {.id = &id, .source = &from, .destination = &to, .value = &amount};
    truce_transfer_result result;
    truce_status status = truce_transfer_start(twin->transfers, commit, &transfer, &result, error);

    return !status && result.exists ? TRUCE_REFUSED : status;
}

static truce_status add_revision(const struct twin *twin, truce_commit *commit, bson_error_t *error)
{
    truce_revision *revision =
        truce_revision_new(twin->store, &(truce_revision_options){.collection = "posts"});
    bson_t *mine = test_bson("{'_id': 'post', 'title': 'new'}");
    truce_revision_result result;
    truce_status status =
        truce_revision_save(revision, commit, mine, TRUCE_REVISION_NEW, NULL, &result, error);

    if (!status && result.outcome == TRUCE_REVISION_CONFLICT)
        status = TRUCE_REFUSED;
    truce_revision_result_release(&result);
    bson_destroy(mine);
    truce_revision_free(revision);
    return status;
}

static const struct twin_part {
    const char *name;
    twin_function *add;
} parts[] = {
    {"insert", add_insert},     {"missing", add_missing},   {"remove", add_remove},
    {"guard", add_guarded},     {"diff", add_diff},         {"hold", add_require},
    {"post", add_post},         {"enqueue", add_job},       {"end of a job", end_job},
    {"transfer", add_transfer}, {"revision", add_revision},
};

static truce_status send(struct twin *twin, bool *earlier, bson_error_t *error);

/* Adds another document next to the part: it must count once. */
static truce_status add_parts(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct twin *twin = arg;
    bson_t *left = test_bson("{'number': 17}");
    truce_status status = truce_commit_set_result(commit, left, error);

    bson_destroy(left);
    twin->runs++;
    if (twin->meets && !twin->done) {
        struct twin first = *twin;
        bool earlier = true;

        first.meets = false;
        twin->done = true;
        CHECK_INT(send(&first, &earlier, error), ==, TRUCE_OK);
        CHECK(!earlier);
    }
    if (!status)
        status = twin->part->add(twin, commit, error);
    return status ? status
                  : add_update(commit, "things", "count", NULL, "{'$inc': {'n': 1}}", error);
}

static truce_status send(struct twin *twin, bool *earlier, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = twin->setting->mechanism,
                                    .key = "order 17",
                                    .key_time_ms = KEY_TIME,
                                    .input = twin->input,
                                    .earlier = earlier};

    return truce_transact(twin->store, add_parts, twin, &options, error);
}

static void prepare(struct twin *twin)
{
    static const char *const accounts[] = {"a", "b"};
    bson_t *payload = test_bson("{}");
    bson_error_t error = {0};

    insert_json(twin->store, "things", "{'_id': 'count', 'n': 0}");
    insert_json(twin->store, "things", "{'_id': 'old', 'n': 0}");
    for (size_t i = 0; i < 2; i++) {
        char json[60];

        snprintf(json, sizeof json, "{'_id': '%s', 'balance': 100}", accounts[i]);
        insert_json(twin->store, "accounts", json);
    }
    twin->ledger = book_ledger(twin->store);
    CHECK_OK(book_open(twin->ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(twin->ledger, "shop", INT64_MIN, &error), error);
    twin->queue = truce_queue_new(twin->store, &(truce_queue_options){.queue = "mails"});
    CHECK_OK(truce_queue_add(twin->queue, NULL, payload, NULL, NULL, &error), error);
    CHECK_OK(truce_queue_claim(twin->queue, &twin->job, &error), error);
    twin->transfers = truce_transfers_new(
        twin->store, &(truce_transfer_options){.collection = "moves", .accounts = "accounts"});
    bson_destroy(payload);
}

static void clean_up(struct twin *twin)
{
    truce_job_free(twin->job);
    truce_transfers_free(twin->transfers);
    truce_queue_free(twin->queue);
    truce_ledger_free(twin->ledger);
}

/* The first commit takes effect before the twin begins, or while the twin's function runs. */
static void sends_twice(const struct setting *setting, const struct twin_part *part, bool meets)
{
    truce_store *store = open_setting(setting);
    bson_t *input = test_bson("{'order': 17}"), *other = test_bson("{'order': 18}"), result;
    struct twin twin = {
        .store = store, .setting = setting, .part = part, .input = input, .meets = meets};
    bson_error_t error = {0};
    bool earlier = meets;

    prepare(&twin);
    if (!meets) {
        CHECK_OK(send(&twin, &earlier, &error), error);
        CHECK(!earlier);
    }
    CHECK_OK(send(&twin, &earlier, &error), error);
    CHECK(earlier);
    CHECK_INT(count_json(store, "things", "{'_id': 'count', 'n': 1}"), ==, 1);
    CHECK_OK(truce_commit_result(store, "order 17", &result, &error), error);
    CHECK(bson_has_field(&result, "number"));
    bson_destroy(&result);
    twin.input = other;
    twin.meets = false;
    CHECK_STATUS(TRUCE_DUPLICATE, send(&twin, &earlier, &error), error);
    CHECK(strstr(error.message,
                 "the key \"order 17\" was used before for a commit with a different "
                 "input: a new request needs a new key"));
    clean_up(&twin);
    bson_destroy(other);
    bson_destroy(input);
    truce_store_close(store);
}

static void every_part(bool meets)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            int before = test_failures();

            sends_twice(&settings[i], &parts[k], meets);
            if (test_failures() > before)
                fprintf(stderr, "    (%s, with %s)\n", parts[k].name, settings[i].name);
        }
    }
}

TEST(applies_a_repeated_keyed_commit_once)
{
    every_part(false);
}

TEST(applies_a_keyed_commit_sent_twice_concurrently_once)
{
    every_part(true);
}

/* A twin with another input, which takes effect while the function runs. */
static truce_status meet_another(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct twin *twin = arg;
    bson_t *input = test_bson("{'order': 18}");
    struct twin another = *twin;
    bool earlier = true;

    another.input = input;
    another.meets = false;
    if (!twin->done)
        CHECK_INT(send(&another, &earlier, error), ==, TRUCE_OK);
    twin->done = true;
    bson_destroy(input);
    return twin->part->add(twin, commit, error);
}

static void refuses_another(truce_store *store, const struct setting *setting)
{
    bson_t *input = test_bson("{'order': 17}");
    struct twin twin = {.store = store, .setting = setting, .part = &parts[0], .input = input};
    truce_commit_options options = {.mechanism = setting->mechanism,
                                    .key = "order 17",
                                    .key_time_ms = KEY_TIME,
                                    .input = input};
    bson_error_t error = {0};

    prepare(&twin);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_transact(store, meet_another, &twin, &options, &error),
                 error);
    CHECK(strstr(error.message, "the key \"order 17\" was used before"));
    clean_up(&twin);
    bson_destroy(input);
}

TEST(refuses_another_input_under_the_same_key)
{
    on_every_setting(refuses_another);
}

static void refuses_times(truce_store *store, const struct setting *setting)
{
    const int64_t bad[] = {0, -1, 1767225600, INT64_C(1767225600000000),
                           truce__clock_wall_ms() + INT64_C(2) * 86400000};
    truce_commit_options options = {.mechanism = setting->mechanism, .key = "k"};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.key_time_ms = bad[i];
        CHECK_STATUS(TRUCE_INVALID, truce_commit_begin(store, &options, &commit, &error), error);
    }
    options = (truce_commit_options){.key_time_ms = KEY_TIME};
    CHECK_STATUS(TRUCE_INVALID, truce_commit_begin(store, &options, &commit, &error), error);
    options = (truce_commit_options){.mechanism = (truce_mechanism)3};
    CHECK_STATUS(TRUCE_INVALID, truce_commit_begin(store, &options, &commit, &error), error);
    options = (truce_commit_options){.mechanism = (truce_mechanism)-1};
    CHECK_STATUS(TRUCE_INVALID, truce_commit_begin(store, &options, &commit, &error), error);
}

TEST(refuses_invalid_times_of_keys_and_mechanisms)
{
    on_every_setting(refuses_times);
}

/* ---- step by step --------------------------------------------------------------------------- */

static void tells_at_the_beginning(truce_store *store, const struct setting *setting)
{
    bool earlier = false;
    struct twin twin = {.store = store, .setting = setting, .part = &parts[0]};
    truce_commit_options options = {.mechanism = setting->mechanism,
                                    .key = "order 17",
                                    .key_time_ms = KEY_TIME,
                                    .earlier = &earlier};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    prepare(&twin);
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK(!earlier);
    CHECK_OK(send(&twin, &earlier, &error), error);
    CHECK_OK(add_insert(&twin, commit, &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    CHECK(earlier);
    truce_commit_free(commit);
    earlier = false;
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK(earlier);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    CHECK(earlier);
    truce_commit_free(commit);
    clean_up(&twin);
}

TEST(reports_at_its_beginning_that_the_key_took_effect)
{
    on_every_setting(tells_at_the_beginning);
}
