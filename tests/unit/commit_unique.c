/* Commits that change values of unique indexes: by every mechanism if the keys are declared, and
 * errors. */
#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

static const struct setting *const journal = &settings[1];

static void make_index(truce_store *store, const char *collection, const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error = {0};

    CHECK_OK(truce_index_create(store, collection, index, &error), error);
    bson_destroy(index);
}

static truce_unique_report declare(truce_store *store, const char *collection)
{
    truce_unique_options options = {.settle_ms = 1};
    truce_unique_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_unique_declare(store, collection, &options, &report, &error), error);
    return report;
}

/* users a and b with mail x and y, an account a; keys declared */
static void two_users(truce_store *store, bool declared)
{
    insert_json(store, "accounts", "{'_id': 'a', 'n': 0}");
    make_index(store, "users", "{'key': {'mail': 1}, 'unique': true}");
    insert_json(store, "users", "{'_id': 'a', 'mail': 'x'}");
    insert_json(store, "users", "{'_id': 'b', 'mail': 'y'}");
    if (declared)
        declare(store, "users");
}

static truce_commit *begin(truce_store *store, truce_mechanism mechanism)
{
    truce_commit_options options = {
        .mechanism = mechanism, .deadline_ms = 5000, .lease_ms = 1}; /* the dead are soon undone */
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    return commit;
}

/* Begins a commit that also counts account a up, so that it is one of several documents. */
static truce_commit *begin_wide(truce_store *store, const struct setting *setting)
{
    truce_commit *commit = begin(store, setting->mechanism);
    bson_error_t error = {0};

    CHECK_OK(add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    return commit;
}

static truce_status finish(truce_commit *commit, bson_error_t *error)
{
    truce_status status = truce_commit_apply(commit, error);

    truce_commit_free(commit);
    return status;
}

/* Updates a user, with the account (`wide`) or alone; retries once after a conflict. */
static truce_status set_user(truce_store *store, const struct setting *setting, bool wide,
                             const char *id, const char *update, bson_error_t *error)
{
    truce_status status = TRUCE_CONFLICT;

    for (int i = 0; i < 5 && status == TRUCE_CONFLICT; i++) {
        truce_commit *commit = wide ? begin_wide(store, setting) : begin(store, setting->mechanism);

        status = add_update(commit, "users", id, NULL, update, error);
        if (!status)
            status = truce_commit_apply(commit, error);
        truce_commit_free(commit);
    }
    return status;
}

static void insert_user(truce_commit *commit, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error = {0};

    CHECK_OK(truce_commit_insert(commit, "users", document, &error), error);
    bson_destroy(document);
}

static void remove_user(truce_commit *commit, const char *id)
{
    bson_value_t value = text_id(id);
    bson_error_t error = {0};

    CHECK_OK(truce_commit_remove(commit, "users", &value, NULL, &error), error);
}

#define KEYS(value) "'_keys': [{'i': 'mail_1', 'v': ['" value "']}]"

/* ---- changing ------------------------------------------------------------------------------- */

static void change(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};
    truce_commit *commit;

    two_users(store, true);
    CHECK_OK(set_user(store, setting, true, "a", "{'$set': {'mail': 'z'}}", &error), error);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'z', " KEYS("z") "}");
    CHECK_OK(set_user(store, setting, false, "b", "{'$set': {'mail': 'x'}}", &error), error);
    CHECK_DOCUMENT(store, "users", "b", "{'_id': 'b', 'mail': 'x', " KEYS("x") "}");
    CHECK_STATUS(TRUCE_DUPLICATE,
                 set_user(store, setting, true, "a", "{'$set': {'mail': 'x'}}", &error), error);
    CHECK_INT(error.code, ==, 11000);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 set_user(store, setting, false, "a", "{'$set': {'mail': 'x'}}", &error), error);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'z', " KEYS("z") "}");
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 1}");

    commit = begin_wide(store, setting);
    insert_user(commit, "{'_id': 'c', 'mail': 'y', '_keys': 7}");
    remove_user(commit, "b");
    CHECK_OK(finish(commit, &error), error);
    CHECK_DOCUMENT(store, "users", "c", "{'_id': 'c', 'mail': 'y', " KEYS("y") "}");
    CHECK_OK(set_user(store, setting, true, "a", "{'$set': {'mail': 'x'}}", &error), error);
}

TEST(a_unique_value_can_be_changed_where_its_keys_are_declared)
{
    on_every_setting(change);
}

static void replace(truce_store *store, const struct setting *setting)
{
    bson_value_t a = text_id("a");
    bson_t *whole = test_bson("{'name': 'Ada', 'mail': 'z', '_keys': [1]}"), *read;
    truce_commit *commit;
    bson_t document;
    bson_error_t error = {0};

    two_users(store, true);
    commit = begin_wide(store, setting);
    CHECK_OK(truce_commit_replace(commit, "users", &a, NULL, whole, &error), error);
    CHECK_OK(finish(commit, &error), error);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'name': 'Ada', 'mail': 'z', " KEYS("z") "}");
    commit = begin_wide(store, setting);
    CHECK_OK(truce_commit_read(commit, "users", &a, &document, &error), error);
    read = bson_copy(&document);
    CHECK_OK(truce_commit_replace(commit, "users", &a, NULL, read, &error), error);
    CHECK_OK(add_update(commit, "users", "a", NULL, "{'$unset': {'mail': 1}}", &error), error);
    CHECK_OK(finish(commit, &error), error);
    CHECK_DOCUMENT(store, "users", "a",
                   "{'_id': 'a', 'name': 'Ada', '_keys': [{'i': 'mail_1', 'v': [null]}]}");
    CHECK_STATUS(TRUCE_DUPLICATE,
                 set_user(store, setting, true, "b", "{'$unset': {'mail': 1}}", &error), error);
    bson_destroy(&document);
    bson_destroy(read);
    bson_destroy(whole);
}

TEST(a_replacement_and_a_missing_value_are_kept_in_keys)
{
    on_every_setting(replace);
}

static void kinds(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};

    insert_json(store, "accounts", "{'_id': 'a', 'n': 0}");
    make_index(store, "users", "{'key': {'tags': 1}, 'unique': true, 'sparse': true}");
    make_index(store, "users",
               "{'key': {'org.id': 1, 'no': -1}, 'name': 'both', 'unique': true, "
               "'partialFilterExpression': {'live': true}}");
    insert_json(store, "users", "{'_id': 'a', 'tags': ['p', 'q'], 'live': true, 'no': 1}");
    insert_json(store, "users", "{'_id': 'b', 'org': {'id': 5}, 'no': 1}");
    declare(store, "users");
    CHECK_DOCUMENT(store, "users", "a",
                   "{'_id': 'a', 'tags': ['p', 'q'], 'live': true, 'no': 1, '_keys': [{'i': "
                   "'both', 'v': [null, 1]}, {'i': 'tags_1', 'v': ['p']}, {'i': 'tags_1', 'v': "
                   "['q']}]}");
    CHECK_DOCUMENT(store, "users", "b", "{'_id': 'b', 'org': {'id': 5}, 'no': 1}");
    CHECK_OK(
        set_user(store, setting, true, "b", "{'$set': {'tags': ['r', 's'], 'live': true}}", &error),
        error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 set_user(store, setting, true, "a", "{'$push': {'tags': 's'}}", &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 set_user(store, setting, true, "a", "{'$set': {'org': {'id': 5.0}}}", &error),
                 error);
    CHECK_OK(set_user(store, setting, true, "b", "{'$set': {'live': false}, '$pop': {'tags': 1}}",
                      &error),
             error);
    CHECK_OK(set_user(store, setting, true, "a", "{'$push': {'tags': 's'}, '$set': {'org.id': 5}}",
                      &error),
             error);
    CHECK_DOCUMENT(store, "users", "b",
                   "{'_id': 'b', 'org': {'id': 5}, 'no': 1, '_keys': [{'i': "
                   "'tags_1', 'v': ['r']}], 'live': false, 'tags': ['r']}");
}

TEST(arrays_compound_sparse_and_partial_indexes_have_their_keys)
{
    on_every_setting(kinds);
}

/* ---- refused -------------------------------------------------------------------------------- */

TEST(the_journal_changes_no_unique_value_of_undeclared_keys)
{
    truce_store *store = open_setting(journal);
    bson_error_t error = {0};

    two_users(store, false);
    CHECK_STATUS(TRUCE_INVALID,
                 set_user(store, journal, true, "a", "{'$set': {'mail': 'z'}}", &error), error);
    CHECK(strstr(error.message, "\"mail_1\"") &&
          strstr(error.message, "truce commit unique users"));
    CHECK_OK(set_user(store, journal, true, "a", "{'$set': {'name': 'Ada'}}", &error), error);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'x', 'name': 'Ada'}");
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 1}");
    truce_store_close(store);
}

static void swap(truce_store *store, const struct setting *setting)
{
    truce_commit *commit;
    bson_error_t error = {0};

    two_users(store, true);
    commit = begin_wide(store, setting);
    CHECK_OK(add_update(commit, "users", "a", NULL, "{'$set': {'mail': 'y'}}", &error), error);
    CHECK_OK(add_update(commit, "users", "b", NULL, "{'$set': {'mail': 'x'}}", &error), error);
    CHECK_STATUS(TRUCE_INVALID, finish(commit, &error), error);
    CHECK(strstr(error.message, "\"mail_1\"") && strstr(error.message, "in a later one"));
    commit = begin_wide(store, setting); /* the same value twice is no exchange */
    CHECK_OK(add_update(commit, "users", "a", NULL, "{'$set': {'mail': 'z'}}", &error), error);
    CHECK_OK(add_update(commit, "users", "b", NULL, "{'$set': {'mail': 'z'}}", &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, finish(commit, &error), error);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'x', " KEYS("x") "}");
    CHECK_DOCUMENT(store, "users", "b", "{'_id': 'b', 'mail': 'y', " KEYS("y") "}");
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 0}");
}

TEST(two_documents_of_one_commit_do_not_exchange_unique_values)
{
    on_every_setting(swap);
}

static void move(truce_store *store, const struct setting *setting)
{
    bool native = setting->mechanism == TRUCE_MECHANISM_NATIVE;
    bson_error_t error = {0};

    for (int declared = 0; declared < 2; declared++) {
        for (int first = 0; first < 2; first++) { /* in the order of ids: the insert, the removal */
            truce_commit *commit;
            bson_t everything = BSON_INITIALIZER;

            CHECK_OK(truce_remove(store, "users", &everything, NULL, NULL, &error), error);
            bson_destroy(&everything);
            insert_json(store, "users",
                        first ? "{'_id': 'z', 'mail': 'x'}" : "{'_id': 'a', 'mail': 'x'}");
            make_index(store, "users", "{'key': {'mail': 1}, 'unique': true}");
            if (declared)
                declare(store, "users");
            commit = begin(store, setting->mechanism);
            insert_user(commit, "{'_id': 'm', 'mail': 'x'}");
            remove_user(commit, first ? "z" : "a");
            CHECK_STATUS(native ? TRUCE_OK : TRUCE_INVALID, finish(commit, &error), error);
            if (!native)
                CHECK(strstr(error.message, "\"mail_1\""));
        }
    }
}

TEST(moves_a_value_from_a_removed_to_a_new_document_natively)
{
    on_every_setting(move);
}

static void own_field(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};

    two_users(store, true);
    for (int wide = 0; wide < 2; wide++) {
        CHECK_STATUS(TRUCE_INVALID,
                     set_user(store, setting, wide, "a", "{'$unset': {'_keys': 1}}", &error),
                     error);
        CHECK(strstr(error.message, "\"_keys\""));
        CHECK_STATUS(TRUCE_INVALID,
                     set_user(store, setting, wide, "a", "{'$push': {'_keys': 1}}", &error), error);
    }
    insert_json(store, "free", "{'_id': 'a', '_keys': 1}"); /* elsewhere it is a name like others */
    truce_commit *commit = begin_wide(store, setting);
    CHECK_OK(add_update(commit, "free", "a", NULL, "{'$inc': {'_keys': 1}}", &error), error);
    CHECK_OK(finish(commit, &error), error);
    CHECK_DOCUMENT(store, "free", "a", "{'_id': 'a', '_keys': 2}");
}

TEST(a_commit_does_not_change_the_keys_themselves)
{
    on_every_setting(own_field);
}

/* ---- declaring ------------------------------------------------------------------------------ */

static void declaring(truce_store *store, const struct setting *setting)
{
    truce_unique_options options = {.settle_ms = 1};
    truce_unique_report report;
    bson_error_t error = {0};

    (void)setting;
    insert_json(store, "free", "{'_id': 'a'}");
    CHECK_STATUS(TRUCE_INVALID, truce_unique_declare(store, "free", &options, &report, &error),
                 error);
    two_users(store, false);
    report = declare(store, "users");
    CHECK(report.made && report.documents == 2 && report.converted == 2);
    insert_json(store, "users", "{'_id': 'c', 'mail': 'z'}");
    report = declare(store, "users");
    CHECK(!report.made && report.documents == 3 && report.converted == 1);
    make_index(store, "users", "{'key': {'_id': 1, 'mail': 1}, 'unique': true}");
    report = declare(store, "users");
    CHECK(!report.made && report.documents == 3 && report.converted == 3);

    make_index(store, "bad", "{'key': {'mail': 1}, 'unique': true}");
    make_index(store, "bad", "{'key': {'_keys': 1}, 'unique': true}");
    insert_json(store, "bad", "{'_id': 'a'}");
    CHECK_STATUS(TRUCE_INVALID, truce_unique_declare(store, "bad", &options, &report, &error),
                 error);
    CHECK(strstr(error.message, "sparse") != NULL);
}

TEST(declaring_keys_gives_them_to_every_document)
{
    on_every_setting(declaring);
}

/* ---- concurrent writers ---------------------------------------------------------------------- */

static void without_keys(truce_store *store, const struct setting *setting)
{
    bson_error_t error = {0};

    two_users(store, true);
    insert_json(store, "users", "{'_id': 'c', 'mail': 'z'}"); /* by a plain writer */
    for (int wide = 0; wide < 2; wide++)
        CHECK_STATUS(TRUCE_DUPLICATE,
                     set_user(store, setting, wide, "a", "{'$set': {'mail': 'z'}}", &error), error);
    CHECK_OK(set_user(store, setting, true, "c", "{'$set': {'n': 1}}", &error), error);
    CHECK_DOCUMENT(store, "users", "c", "{'_id': 'c', 'mail': 'z', " KEYS("z") ", 'n': 1}");
}

TEST(reserves_the_value_of_a_document_without_keys)
{
    on_every_setting(without_keys);
}

/* A commit of the journal that changes user a's mail from x to z, and dies at its n-th write. */
static void die_at(truce_store *store, uint64_t n)
{
    truce_fault_options fail = {.kind = TRUCE_FAULT_FAIL,
                                .writes_only = true,
                                .from_then_on = true,
                                .at = n},
                        none = {0};
    truce_commit *commit;
    bson_error_t error = {0};

    no_sleep_begin(); /* it tries until its deadline */
    commit = begin_wide(store, journal);
    CHECK_OK(add_update(commit, "users", "a", NULL, "{'$set': {'mail': 'z'}}", &error), error);
    truce_fault_arm(store, &fail);
    CHECK(finish(commit, &error) != TRUCE_CONFLICT);
    truce_fault_arm(store, &none);
    truce__environment_use(NULL);
}

static truce_store *open_faulty(void)
{
    truce_fault_options none = {0};
    truce_store *store = truce_fault_wrap(open_setting(journal), &none);
    bson_error_t error = {0};

    two_users(store, true);
    CHECK_OK(set_user(store, journal, true, "b", "{'$set': {'n': 1}}", &error),
             error); /* the journal's own indexes exist now */
    return store;
}

/* insert, prepare of the account, prepare of the user, then death */
TEST(a_value_that_a_dead_commit_reserved_comes_free)
{
    static const truce_mechanism mechanisms[] = {TRUCE_MECHANISM_NATIVE, TRUCE_MECHANISM_JOURNAL};

    for (int wide = 0; wide < 2; wide++) {
        for (int m = 0; m < 2; m++) {
            struct setting setting = {.mechanism = mechanisms[m]};
            truce_store *store = open_faulty();
            bson_error_t error = {0};

            die_at(store, 4);
            CHECK_OK(set_user(store, &setting, wide, "b", "{'$set': {'mail': 'z'}}", &error),
                     error);
            CHECK_DOCUMENT(store, "users", "b", "{'_id': 'b', 'mail': 'z', " KEYS("z") ", 'n': 1}");
            CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'x', " KEYS("x") "}");
            truce_store_close(store);
        }
    }
}

TEST(releases_reservations_by_a_recovery_pass)
{
    truce_store *store = open_faulty();
    truce_sweep_report report;
    bson_error_t error = {0};

    die_at(store, 4);
    no_sleep_use();
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.undone, ==, 0); /* the lease was seen for the first time */
    no_sleep_on(NULL, 7200000);      /* past the lease, and the sweep purges the attempt */
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.undone, ==, 1);
    CHECK_INT(report.cleaned, ==, 1);
    CHECK_INT(report.stripped, ==, 0);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'x', " KEYS("x") "}");
    die_at(store, 5); /* after the decision */
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.finished, ==, 1);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'z', " KEYS("z") "}");
    CHECK_INT(report.stripped, ==, 0);
    truce_store_close(store);
}

TEST(an_undone_insert_leaves_no_stub)
{
    truce_store *store = open_setting(journal);
    truce_commit *commit;
    bson_error_t error = {0};
    int64_t count = 0;

    two_users(store, true);
    commit = begin(store, TRUCE_MECHANISM_JOURNAL);
    insert_user(commit, "{'_id': 'B', 'mail': 'z'}");
    CHECK_OK(add_update(commit, "users", "a", "{'n': 1}", "{'$set': {'mail': 'q'}}", &error),
             error);
    CHECK_STATUS(TRUCE_REFUSED, finish(commit, &error), error);
    commit = begin(store, TRUCE_MECHANISM_JOURNAL); /* the guard fails only when it is prepared */
    insert_user(commit, "{'_id': 'B', 'mail': 'z'}");
    insert_user(commit, "{'_id': 'C', 'mail': 'y'}");
    CHECK_STATUS(TRUCE_DUPLICATE, finish(commit, &error), error);
    CHECK_OK(truce_count(store, "users", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 2);
    truce_store_close(store);
}

TEST(finds_a_reservation_whose_reply_was_lost)
{
    truce_store *store = open_faulty();
    truce_fault_options lose = {.kind = TRUCE_FAULT_LOSE, .writes_only = true, .at = 3}, none = {0};
    truce_commit *commit = begin_wide(store, journal);
    bson_error_t error = {0};
    bson_oid_t id;

    CHECK_OK(add_update(commit, "users", "a", NULL, "{'$set': {'mail': 'z'}}", &error), error);
    bson_oid_copy(truce_commit_id(commit), &id);
    truce_fault_arm(store, &lose);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    CHECK_INT(truce_fault_hits(store), ==, 1);
    CHECK(bson_oid_equal(&id, truce_commit_id(commit))); /* it continued under the same id */
    truce_fault_arm(store, &none);
    truce_commit_free(commit);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'z', " KEYS("z") "}");
    truce_store_close(store);
}

/* ---- the cost ------------------------------------------------------------------------------- */

TEST(a_changed_unique_value_costs_no_more_writes)
{
    truce_store *store;
    truce_fault_options count = {.kind = TRUCE_FAULT_NONE, .writes_only = true};
    bson_error_t error = {0};

    no_sleep_begin(); /* one that is slow renews its lease, and that is a write more */
    store = open_faulty();
    truce_fault_arm(store, &count);
    CHECK_OK(set_user(store, journal, true, "a", "{'$set': {'mail': 'z'}}", &error), error);
    CHECK_INT(truce_fault_calls(store), ==, 2 * 2 + 3);
    truce_fault_arm(store, &count);
    CHECK_OK(set_user(store, journal, false, "a", "{'$set': {'mail': 'q'}}", &error), error);
    CHECK_INT(truce_fault_calls(store), ==, 1);
    truce_store_close(store);
    truce__environment_use(NULL);
}

/* ---- the check ------------------------------------------------------------------------------ */

struct findings {
    int count;
    char rules[400];
};

static void note(const bson_t *finding, void *arg)
{
    struct findings *findings = arg;
    size_t length = strlen(findings->rules);
    bson_iter_t iter;

    findings->count++;
    if (bson_iter_init_find(&iter, finding, "rule"))
        snprintf(findings->rules + length, sizeof findings->rules - length, "%s ",
                 bson_iter_utf8(&iter, NULL));
}

static struct findings check(truce_store *store, bool repair)
{
    truce_check_options options = {.repair = repair};
    struct findings findings = {0};
    truce_check_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_check(store, &options, note, &findings, &report, &error), error);
    return findings;
}

static void plain_update(truce_store *store, const char *filter_json, const char *update_json)
{
    bson_t *filter = test_bson(filter_json), *update = test_bson(update_json);
    bson_error_t error = {0};

    CHECK_OK(truce_update(store, "users", filter, update, NULL, NULL, &error), error);
    bson_destroy(filter);
    bson_destroy(update);
}

TEST(finds_and_repairs_keys_corrupted_by_a_plain_write)
{
    truce_store *store = open_setting(journal);
    bson_error_t error = {0};

    two_users(store, true);
    insert_json(store, "users", "{'_id': 'c', 'mail': 'z'}"); /* has no keys: safe */
    CHECK_INT(check(store, false).count, ==, 0);
    plain_update(store, "{'_id': 'a'}", "{'$set': {'mail': 'w'}}");
    CHECK_TEXT("stale-keys ", check(store, false).rules);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 set_user(store, journal, true, "b", "{'$set': {'mail': 'x'}}", &error), error);
    CHECK_TEXT("stale-keys ", check(store, true).rules);
    CHECK_INT(check(store, false).count, ==, 0);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'w', " KEYS("w") "}");
    CHECK_OK(set_user(store, journal, true, "b", "{'$set': {'mail': 'x'}}", &error), error);
    truce_store_close(store);
}

TEST(a_plain_writer_that_takes_a_reserved_value_is_found)
{
    truce_store *store = open_faulty();
    truce_sweep_options keep_nothing = {.retention_ms = 1}; /* except undone commits */
    truce_sweep_report report;
    bson_error_t error = {0};
    struct findings findings;
    bson_value_t a = text_id("a");
    truce_commit *commit;
    bson_t document;

    die_at(store, 5); /* decided, not released */
    insert_json(store, "users", "{'_id': 'thief', 'mail': 'z'}");
    truce__clock_sleep_ms(5);
    CHECK_OK(truce_sweep(store, &keep_nothing, &report, &error), error);
    CHECK_INT(report.finished, ==, 0);
    findings = check(store, true);
    CHECK(strstr(findings.rules, "blocked ") != NULL);
    CHECK_DOCUMENT(store, "accounts", "a", "{'_id': 'a', 'n': 2}");
    commit = begin(store, TRUCE_MECHANISM_AUTO);
    CHECK_STATUS(TRUCE_LOCKED, truce_commit_read(commit, "users", &a, &document, &error), error);
    CHECK(strstr(error.message, "truce check") != NULL);
    bson_destroy(&document);
    truce_commit_free(commit);
    plain_update(store, "{'_id': 'thief'}", "{'$set': {'mail': 'honest'}}");
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.finished, ==, 1);
    CHECK_DOCUMENT(store, "users", "a", "{'_id': 'a', 'mail': 'z', " KEYS("z") "}");
    CHECK_INT(check(store, false).count, ==, 0);
    truce_store_close(store);
}
