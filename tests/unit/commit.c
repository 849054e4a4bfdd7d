/* The commit through its public interface, on each store with each mechanism. */
#include <pthread.h>

#include "base/clock.h"
#include "bson/value.h"

#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

static truce_commit *begin(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .deadline_ms = 2000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    return commit;
}

static void two_accounts(truce_store *store)
{
    insert_json(store, "accounts", "{'_id': 'a', 'n': 10}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 20}");
}

static void all_or_none(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};
    truce_commit *commit = begin(store, setting);

    two_accounts(store);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': -5}}", &error), error);
    CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 5}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 5}");
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': 25}");

    commit = begin(store, setting);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': -5}}", &error), error);
    CHECK_OK(add_update(commit, "accounts", "b", "{'n': {'$lt': 0}}", "{'$inc': {'n': 5}}", &error),
             error);
    CHECK_STATUS(TRUCE_REFUSED, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 5}");
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': 25}");
}

/* The documents of a commit are changed without a read: alone, and next to another document. */
static void guard_or_missing(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *id, *guard;
        truce_status status;
    } cases[] = {{"b", "{'n': 20}", TRUCE_OK},
                 {"b", "{'n': 20}", TRUCE_REFUSED},
                 {"c", "{'n': 20}", TRUCE_NOT_FOUND},
                 {"c", NULL, TRUCE_NOT_FOUND}};
    bson_error_t error = {0};

    for (int beside = 0; beside < 2; beside++) {
        two_accounts(store);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            truce_commit *commit = begin(store, setting);

            if (beside)
                CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error),
                         error);
            CHECK_OK(add_update(commit, "accounts", cases[i].id, cases[i].guard,
                                "{'$inc': {'n': 1}}", &error),
                     error);
            CHECK_STATUS(cases[i].status, truce_commit_apply(commit, &error), error);
            truce_commit_free(commit);
        }
        CHECK_DOCUMENT(store, "accounts", "a",
                       beside ? "{'_id': 'a', 'n': 11}" : "{'_id': 'a', 'n': 10}");
        CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': 21}");
        CHECK_OK(truce_collection_drop(store, "accounts", &error), error);
    }
}

TEST(distinguishes_a_failed_guard_from_a_missing_document)
{
    on_every_setting(guard_or_missing);
}

TEST(a_commit_takes_effect_as_a_whole_or_not_at_all)
{
    on_every_setting(all_or_none);
}

static void all_kinds(truce_store *store, const struct setting *setting)
{
    bson_value_t a = text_id("a"), b = text_id("b");
    bson_t *inserted = test_bson("{'_id': 'c', 'x': {'y': 1}}");
    bson_t *replacement = test_bson("{'z': 1}");
    bson_error_t error = {0};
    truce_commit *commit = begin(store, setting);

    two_accounts(store);
    insert_json(store, "others", "{'_id': 'a', 'v': 1}");
    CHECK_OK(truce_commit_insert(commit, "accounts", inserted, &error), error);
    CHECK_OK(truce_commit_remove(commit, "accounts", &b, NULL, &error), error);
    CHECK_OK(truce_commit_replace(commit, "accounts", &a, NULL, replacement, &error), error);
    CHECK_OK(truce_commit_require(commit, "others", &a, NULL, &error), error);
    CHECK_OK(truce_commit_require_missing(commit, "others", &b, &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'z': 1}");
    CHECK_DOCUMENT(store, "accounts", "b", NULL);
    CHECK_DOCUMENT(store, "accounts", "c", "{'_id': 'c', 'x': {'y': 1}}");
    CHECK_DOCUMENT(store, "others", "a", "{'_id': 'a', 'v': 1}");
    bson_destroy(inserted);
    bson_destroy(replacement);
}

TEST(insert_remove_replace_and_require_go_together)
{
    on_every_setting(all_kinds);
}

static void replaced_twice(truce_store *store, const struct setting *setting)
{
    static const char *const versions[] = {"{'n': 1, 'm': 2}", "{'n': 3}",
                                           "{'k': {'x': 1}, 'n': 3}", "{}"};
    bson_value_t a = text_id("a");
    bson_error_t error = {0};

    two_accounts(store);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        truce_commit *commit = begin(store, setting);
        bson_t *version = test_bson(versions[i]), expected = BSON_INITIALIZER;
        char *json;

        CHECK_OK(truce_commit_replace(commit, "accounts", &a, NULL, version, &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        BSON_APPEND_UTF8(&expected, "_id", "a");
        bson_concat(&expected, version);
        json = bson_as_relaxed_extended_json(&expected, NULL);
        CHECK_DOCUMENT(store, "accounts", "a", json);
        bson_free(json);
        bson_destroy(&expected);
        bson_destroy(version);
    }
}

TEST(lets_a_commit_replace_documents_of_another)
{
    on_every_setting(replaced_twice);
}

static void own_writes(truce_store *store, const struct setting *setting)
{
    bson_value_t a = text_id("a"), c = text_id("c");
    bson_t *inserted = test_bson("{'_id': 'c', 'n': 1}"), seen;
    bson_error_t error = {0};
    truce_commit *commit = begin(store, setting);
    bson_iter_t iter;

    two_accounts(store);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_read(commit, "accounts", &a, &seen, &error), error);
    CHECK(bson_iter_init_find(&iter, &seen, "n") && bson_iter_int32(&iter) == 12);
    bson_destroy(&seen);
    CHECK_OK(truce_commit_insert(commit, "accounts", inserted, &error), error);
    CHECK_OK(truce_commit_read(commit, "accounts", &c, &seen, &error), error);
    bson_destroy(&seen);
    CHECK_OK(truce_commit_remove(commit, "accounts", &c, NULL, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_commit_read(commit, "accounts", &c, &seen, &error), error);
    bson_destroy(&seen);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 12}");
    CHECK_DOCUMENT(store, "accounts", "c", NULL);
    bson_destroy(inserted);
}

TEST(a_commit_reads_its_own_writes)
{
    on_every_setting(own_writes);
}

static bson_t without_rev(const bson_t *document)
{
    bson_t plain = BSON_INITIALIZER;

    truce__document_append_without(document, (const char *const[]){"_rev", NULL}, &plain);
    return plain;
}

static void check_shown(truce_store *store, const bson_value_t *id, const bson_t *shown)
{
    bson_t filter = BSON_INITIALIZER, found, stands = BSON_INITIALIZER;
    bson_error_t error;

    BSON_APPEND_VALUE(&filter, "_id", id);
    if (CHECK_OK(truce_find_one(store, "accounts", &filter, NULL, &found, &error), error)) {
        stands = without_rev(&found);
        CHECK_BSON(shown, &stands);
    }
    bson_destroy(&found);
    bson_destroy(&stands);
    bson_destroy(&filter);
}

/* One update, or two, of a document that was read. */
static void show(truce_store *store, const struct setting *setting, const char *first,
                 const char *second)
{
    bson_value_t a = text_id("a");
    bson_t found = BSON_INITIALIZER, shown;
    bson_error_t error = {0};
    truce_commit *commit = begin(store, setting);

    CHECK_OK(truce_commit_read(commit, "accounts", &a, &found, &error), error);
    bson_destroy(&found);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, first, &error), error);
    if (second)
        CHECK_OK(add_update(commit, "accounts", "a", NULL, second, &error), error);
    CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_read(commit, "accounts", &a, &found, &error), error);
    shown = without_rev(&found);
    truce__clock_sleep_ms(3);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    check_shown(store, &a, &shown);
    truce_commit_free(commit);
    bson_destroy(&found);
    bson_destroy(&shown);
}

static void shown_and_written(truce_store *store, const struct setting *setting)
{
    two_accounts(store);
    show(store, setting, "{'$set': {'list': [3, 1]}, '$inc': {'n': 1}}", NULL);
    show(store, setting, "{'$push': {'list': {'$each': [2], '$sort': 1, '$slice': -2}}}", NULL);
    show(store, setting, "{'$currentDate': {'d': true}}", NULL);
    show(store, setting, "{'$rename': {'n': 'm'}}", NULL);
    show(store, setting, "{'$unset': {'m': true}, '$max': {'list.0': 7}}", NULL);
    show(store, setting, "{'$set': {'n': 5}}", "{'$mul': {'n': 3}}");
}

TEST(shows_an_update_in_a_commit_as_it_is_written)
{
    on_every_setting(shown_and_written);
}

static void conflict(truce_store *store, const struct setting *setting)
{
    bson_value_t a = text_id("a");
    bson_t seen;
    bson_error_t error = {0};
    truce_commit *commit = begin(store, setting), *other = begin(store, setting);

    two_accounts(store);
    CHECK_OK(truce_commit_read(commit, "accounts", &a, &seen, &error), error);
    bson_destroy(&seen);
    CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(other, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(other, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
    CHECK(strstr(error.message, "\"a\"") != NULL);
    truce_commit_free(commit);
    truce_commit_free(other);
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': 20}");
}

TEST(names_the_changed_document_in_a_conflict)
{
    on_every_setting(conflict);
}

static void wrong_calls(truce_store *store, const struct setting *setting)
{
    bson_value_t a = text_id("a"), array = {.value_type = BSON_TYPE_ARRAY};
    bson_t *whole = test_bson("{'n': 1}"), *odd = test_bson("{'_id': [1], 'n': 1}"), seen;
    bson_error_t error = {0};
    truce_commit *commit = begin(store, setting);

    two_accounts(store);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_insert(commit, "accounts", odd, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_update(commit, "accounts", &a, NULL, whole, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID,
                 add_update(commit, "accounts", "a", NULL, "{'$set': {'_rev': 1}}", &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 add_update(commit, "accounts", "a", NULL, "{'$bad': {'n': 1}}", &error), error);
    truce_commit_free(commit);
    commit = begin(store, setting);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_read(commit, "truce_commits", &a, &seen, &error),
                 error);
    bson_destroy(&seen);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_remove(commit, "accounts", &array, NULL, &error),
                 error);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$push': {'n': 1}}", &error), error);
    CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': 20}");
    bson_destroy(odd);
    bson_destroy(whole);
}

TEST(a_wrong_change_is_refused_and_leaves_nothing)
{
    on_every_setting(wrong_calls);
}

/* ---- transact ------------------------------------------------------------------------------- */

struct transfer {
    truce_store *store;
    const struct setting *setting;
    int runs, times;
};

static truce_status transfer(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct transfer *transfer = arg;
    bson_value_t a = text_id("a"), b = text_id("b");
    bson_t from, *less, *more;
    truce_status status = truce_commit_read(commit, "accounts", &a, &from, error);
    bson_iter_t iter;
    int64_t n = 0;

    transfer->runs++;
    if (!status && bson_iter_init_find(&iter, &from, "n"))
        n = bson_iter_as_int64(&iter);
    bson_destroy(&from);
    less = BCON_NEW("$set", "{", "n", BCON_INT64(n - 1), "}");
    more = BCON_NEW("$inc", "{", "n", BCON_INT64(1), "}");
    if (!status)
        status = truce_commit_update(commit, "accounts", &a, NULL, less, error);
    if (!status)
        status = truce_commit_update(commit, "accounts", &b, NULL, more, error);
    bson_destroy(less);
    bson_destroy(more);
    return status;
}

static void *transfers(void *arg)
{
    struct transfer *work = arg;
    truce_commit_options options = {.mechanism = work->setting->mechanism, .tries_max = 10000};

    for (int i = 0; i < work->times; i++) {
        bson_error_t error = {0};

        CHECK_OK(truce_transact(work->store, transfer, work, &options, &error), error);
    }
    return NULL;
}

static void many_at_once(truce_store *store, const struct setting *setting)
{
    struct transfer works[4];
    pthread_t threads[4];

    insert_json(store, "accounts", "{'_id': 'a', 'n': {'$numberLong': '1000'}}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': {'$numberLong': '0'}}");
    for (int i = 0; i < 4; i++) {
        works[i] = (struct transfer){store, setting, 0, 25};
        CHECK(pthread_create(&threads[i], NULL, transfers, &works[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': {'$numberLong': '900'}}");
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': {'$numberLong': '100'}}");
}

TEST(no_update_is_lost_between_threads)
{
    on_every_setting(many_at_once);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void keyed(truce_store *store, const struct setting *setting)
{
    bson_t *input = test_bson("{'order': 1}"), *other = test_bson("{'order': 2}");
    struct transfer work = {store, setting, 0, 1};
    truce_commit_options options = {.mechanism = setting->mechanism,
                                    .key = "order 1",
                                    .key_time_ms = 1700000000000,
                                    .input = input};
    truce_sweep_options sweep = {.retention_ms = 1};
    truce_sweep_report report;
    bson_error_t error = {0};

    insert_json(store, "accounts", "{'_id': 'a', 'n': {'$numberLong': '10'}}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': {'$numberLong': '0'}}");
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_transact(store, transfer, &work, &options, &error), error);
    CHECK_INT(work.runs, ==, 1);
    options.input = other;
    CHECK_STATUS(TRUCE_DUPLICATE, truce_transact(store, transfer, &work, &options, &error), error);
    options.input = input;
    options.key_time_ms += 999; /* rounded */
    CHECK_OK(truce_transact(store, transfer, &work, &options, &error), error);
    for (int64_t later = -1000; later <= 1000; later += 2000) { /* computed again in the retry */
        options.key_time_ms = 1700000000000 + later;
        CHECK_STATUS(TRUCE_DUPLICATE, truce_transact(store, transfer, &work, &options, &error),
                     error);
        CHECK(strstr(error.message, "give the same time in every retry"));
    }
    options.key_time_ms = 1700000000000;
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': {'$numberLong': '1'}}");

    truce__clock_sleep_ms(5); /* past its retention */
    CHECK_OK(truce_sweep(store, &sweep, &report, &error), error);
    CHECK_INT(report.purged, >=, 1);
    options.input = input;
    CHECK_STATUS(TRUCE_EXPIRED, truce_transact(store, transfer, &work, &options, &error), error);
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': {'$numberLong': '1'}}");
    options.key = "order 2";
    options.key_time_ms = 1700000000001;
    CHECK_OK(truce_transact(store, transfer, &work, &options, &error), error);
    bson_destroy(input);
    bson_destroy(other);
}

static void refused_options(truce_store *store, const struct setting *setting)
{
    static const struct {
        truce_commit_options options;
        const char *message;
    } cases[] = {
        {{.key_time_ms = 1700000000000}, "key_time_ms needs a key"},
        {{.key = "k"}, "needs key_time_ms"},
        {{.mechanism = (truce_mechanism)9}, "unknown `mechanism` 9 of a commit"},
    };
    struct transfer work = {store, setting, 0, 1};
    truce_commit *commit;
    bson_error_t error;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(TRUCE_INVALID,
                     truce_transact(store, transfer, &work, &cases[i].options, &error), error);
        CHECK(strstr(error.message, cases[i].message));
    }
    CHECK_OK(truce_commit_begin(store, NULL, &commit, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_commit_remove(commit, "accounts", NULL, NULL, &error), error);
    CHECK(strstr(error.message, "the _id of a document of \"accounts\" is missing"));
    truce_commit_free(commit);
}

TEST(refuses_options_that_do_not_fit_together)
{
    on_every_setting(refused_options);
}

static truce_status without_message(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)commit;
    (void)error;
    return *(truce_status *)arg;
}

static void unexplained(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism, .tries_max = 2};
    truce_status status = TRUCE_CONFLICT;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_CONFLICT, truce_transact(store, without_message, &status, &options, &error),
                 error);
    CHECK(strstr(error.message, "in each of 2 runs"));
    status = (truce_status)99;
    CHECK_INT(truce_transact(store, without_message, &status, &options, &error), ==, 99);
    CHECK(strstr(error.message, "returned 99"));
}

TEST(a_function_that_fails_without_a_message_is_explained)
{
    on_every_setting(unexplained);
}

TEST(a_key_takes_effect_once_for_ever)
{
    on_every_setting(keyed);
}

static void purged_key(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {
        .mechanism = setting->mechanism, .key = "old", .key_time_ms = 1700000000000};
    truce_sweep_options keep_nothing = {.retention_ms = 1};
    truce_sweep_report report;
    bson_error_t error = {0};

    two_accounts(store);
    for (int i = 0; i < 2; i++) {
        truce_commit *commit = NULL;

        CHECK_STATUS(i ? TRUCE_EXPIRED : TRUCE_OK,
                     truce_commit_begin(store, &options, &commit, &error), error);
        if (commit) {
            CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error),
                     error);
            CHECK_OK(truce_commit_apply(commit, &error), error);
        }
        truce_commit_free(commit);
        truce__clock_sleep_ms(5);
        CHECK_OK(truce_sweep(store, &keep_nothing, &report, &error), error);
        if (i == 0)
            CHECK_INT(report.purged, ==, 1);
    }
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 11}");
}

TEST(refuses_a_purged_key_on_every_setting)
{
    on_every_setting(purged_key);
}

TEST(two_commits_of_the_journal_cannot_have_one_key)
{
    truce_store *store = open_setting(&settings[1]);
    bson_t *second = test_bson("{'_id': 2, 'key': 'k'}");
    bson_error_t error = {0};
    truce_commit *commit;

    two_accounts(store);
    commit = begin(store, &settings[1]); /* makes the journal's indexes */
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    insert_json(store, "truce_commits", "{'_id': 1, 'key': 'k'}");
    CHECK_STATUS(TRUCE_DUPLICATE, truce_insert(store, "truce_commits", second, NULL, &error),
                 error);
    bson_destroy(second);
    truce_store_close(store);
}

/* ---- unique indexes ------------------------------------------------------------------------- */

static void unique(truce_store *store, const struct setting *setting)
{
    bson_t *index = test_bson("{'key': {'mail': 1}, 'unique': true}");
    bson_t *taken = test_bson("{'_id': 'c', 'mail': 'x'}");
    bson_t *fresh = test_bson("{'_id': 'c', 'mail': 'y'}");
    bson_error_t error = {0};
    truce_commit *commit;

    two_accounts(store);
    CHECK_OK(truce_index_create(store, "users", index, &error), error);
    insert_json(store, "users", "{'_id': 'a', 'mail': 'x'}");
    commit = begin(store, setting);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_insert(commit, "users", taken, &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 10}");
    commit = begin(store, setting);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_insert(commit, "users", fresh, &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "users", "c", "{'_id': 'c', 'mail': 'y'}");
    bson_destroy(index);
    bson_destroy(taken);
    bson_destroy(fresh);
}

TEST(a_taken_unique_value_refuses_the_whole_commit)
{
    on_every_setting(unique);
}

/* ---- cost ----------------------------------------------------------------------------------- */

TEST(costs_a_blind_journal_commit_one_write_per_document_and_four)
{
    truce_store *inner = open_setting(&settings[1]), *store;
    truce_fault_options count = {.kind = TRUCE_FAULT_NONE, .writes_only = true};
    bson_error_t error = {0};
    truce_commit *commit;

    two_accounts(inner);
    store = truce_fault_wrap(inner, &count);
    for (int i = 0; i < 2; i++) { /* the first makes the indexes */
        commit = begin(store, &settings[1]);
        truce_fault_arm(store, &count);
        CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
    }
    CHECK_INT(truce_fault_calls(store), ==, 2 + 4);
    commit = begin(store, &settings[1]);
    truce_fault_arm(store, &count);
    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    CHECK_INT(truce_fault_calls(store), ==, 1);
    truce_store_close(store);
}

TEST(repeats_a_failed_release_before_the_commit_is_done)
{
    truce_fault_options none = {0}, fail = {.kind = TRUCE_FAULT_FAIL, .writes_only = true};
    truce_store *store = truce_fault_wrap(open_setting(&settings[1]), &none);
    bson_error_t error = {0};

    two_accounts(store);
    for (int i = 0; i < 2;
         i++) { /* the first makes the indexes; then: insert, two prepares, decide */
        truce_commit *commit = begin(store, &settings[1]);

        fail.at = i == 0 ? UINT64_MAX : 5;
        truce_fault_arm(store, &fail);
        CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_OK(add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
    }
    CHECK_INT(truce_fault_hits(store), ==, 1);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 12}");
    CHECK_DOCUMENT(store, "accounts", "b", "{'_id': 'b', 'n': 22}");
    truce_store_close(store);
}

/* ---- requests ------------------------------------------------------------------------------- */

static truce_status book(truce_commit *commit, const bson_t *input, void *arg, bson_error_t *error)
{
    bson_value_t a = text_id("a");
    bson_t *more = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = truce_commit_update(commit, "accounts", &a, NULL, more, error);

    (void)input;
    ++*(int *)arg;
    bson_destroy(more);
    return status;
}

static truce_status fail(truce_commit *commit, const bson_t *input, void *arg, bson_error_t *error)
{
    (void)commit;
    (void)input;
    (void)arg;
    (void)error;
    return TRUCE_INVALID;
}

static void requests(truce_store *store, const struct setting *setting)
{
    int runs = 0;
    truce_request_handler handlers[] = {{"book", book, &runs}, {"fail", fail, NULL}};
    truce_commit_options options = {.mechanism = setting->mechanism};
    truce_request_report report;
    bson_t *input = test_bson("{'x': 1}"), state;
    bson_error_t error = {0};

    two_accounts(store);
    CHECK_OK(truce_request_add(store, "k0", "fail", input, &error), error);
    CHECK_OK(truce_request_add(store, "k1", "book", input, &error), error);
    CHECK_OK(truce_request_add(store, "k1", "book", input, &error), error);
    CHECK_OK(truce_request_add(store, "k2", "unheard of", input, &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_request_add(store, "k1", "book", NULL, &error), error);
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce_request_run(store, handlers, 2, 0, &options, &report, &error), error);
    CHECK_INT(runs, ==, 1);
    CHECK_INT(report.refused, ==, 1);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 11}");
    CHECK_OK(truce_request_state(store, "k1", &state, &error), error);
    bson_destroy(&state);
    bson_destroy(input);
}

TEST(runs_a_request_once_and_continues_after_a_failing_one)
{
    on_every_setting(requests);
}

/* Another program wrote requests that truce_request_add would not write. */
static void foreign_requests(truce_store *store, const struct setting *setting)
{
    static const char *const wrong[] = {"'attempts': 0", "'attempts': 0, 'input': 5",
                                        "'attempts': 'many'", "'attempts': -5",
                                        "'attempts': {'$numberLong': '9223372036854775807'}"};
    int runs = 0;
    truce_request_handler handlers[] = {{"book", book, &runs}};
    truce_commit_options options = {.mechanism = setting->mechanism};
    truce_request_report report;
    bson_error_t error = {0};

    two_accounts(store);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char json[200];

        snprintf(json, sizeof json,
                 "{'_id': 'w%zu', 'name': 'book', 'state': 'waiting', 'due': {'$date': 0}, %s}", i,
                 wrong[i]);
        insert_json(store, "truce_requests", json);
    }
    CHECK_OK(truce_request_add(store, "right", "book", NULL, &error), error);
    CHECK_OK(truce_request_run(store, handlers, 1, 0, &options, &report, &error), error);
    CHECK_INT(report.failed, ==, sizeof wrong / sizeof *wrong);
    CHECK_INT(report.done, ==, 1);
    CHECK_INT(runs, ==, 1);
    CHECK_INT(count_json(store, "truce_requests", "{'error': {'$regex': 'is not a document'}}"), ==,
              sizeof wrong / sizeof *wrong);
}

TEST(sets_aside_requests_of_other_programs_without_an_input)
{
    on_every_setting(foreign_requests);
}

/* The process that added the request, or that tried it, had a clock that was ahead. */
TEST(runs_requests_of_processes_whose_clocks_were_wrong)
{
    const int64_t skews[] = {-86400000, 60000, 86400000, INT64_C(400) * 86400000};
    int runs = 0;
    truce_request_handler good = {"book", book, &runs}, bad = {"book", fail, NULL};
    truce_store *store = open_setting(&settings[0]);
    truce_request_report report;
    bson_error_t error;
    char key[20];

    no_sleep_begin();
    two_accounts(store);
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        atomic_store(&no_sleep_skew_ms, skews[i]);
        snprintf(key, sizeof key, "k%zu", i);
        CHECK_OK(truce_request_add(store, key, "book", NULL, &error), error);
        atomic_store(&no_sleep_skew_ms, 0);
        CHECK_OK(truce_request_run(store, &good, 1, 0, NULL, &report, &error), error);
        CHECK_INT(report.done, ==, 1);
    }
    CHECK_OK(truce_request_add(store, "tried", "book", NULL, &error), error);
    atomic_store(&no_sleep_skew_ms, 86400000);
    CHECK_OK(truce_request_run(store, &bad, 1, 0, NULL, &report, &error), error);
    CHECK_INT(report.failed, ==, 1);
    atomic_store(&no_sleep_skew_ms, 0);
    CHECK_OK(truce_request_run(store, &good, 1, 0, NULL, &report, &error), error);
    CHECK_INT(report.done, ==, 1);
    CHECK_INT(runs, ==, 5);
    truce__environment_use(NULL);
    truce_store_close(store);
}

/* ---- looks ---------------------------------------------------------------------------------- */

static void look(truce_store *store, const struct setting *setting)
{
    bson_value_t ids[3] = {text_id("a"), text_id("b"), text_id("none")};
    truce_read_request looks[4] = {{"accounts", &ids[0], BSON_INITIALIZER, false},
                                   {"accounts", &ids[2], BSON_INITIALIZER, false},
                                   {"accounts", &ids[1], BSON_INITIALIZER, false},
                                   {"others", &ids[2], BSON_INITIALIZER, false}};
    bson_error_t error = {0};

    (void)setting;
    two_accounts(store);
    CHECK_OK(truce_read_many(store, looks, 4, NULL, &error), error);
    CHECK(looks[0].found && !looks[1].found && looks[2].found && !looks[3].found);
    for (int i = 0; i < 4; i++)
        bson_destroy(&looks[i].document);
}

TEST(reads_existing_and_missing_documents_at_once)
{
    on_every_setting(look);
}
