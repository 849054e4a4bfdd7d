/*
 * Deadlines and statuses of all calls that wait for another client's commit, with a simulated
 * clock. At the deadline, and not much later, the call fails with LOCKED or TIMEOUT. A call that
 * succeeds leaves its error unchanged.
 */
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "tests/support/tutorial.h"
#include "truce/sys/decorate.h"

#define HELD "'_intent': {'c': {'$oid': '0123456789abcdef01234567'}}"

/* Holds all of these documents by a pending commit whose lease never expires. */
static void hold_everything(truce_store *store)
{
    bson_t *commit = BCON_NEW("state", BCON_UTF8("pending"), "lease", "{", "ms", BCON_INT32(600000),
                              "until", BCON_INT64(INT64_C(1700009999999)), "}");
    bson_t *filter = test_bson("{'_id': {'$oid': '0123456789abcdef01234567'}}");
    bson_t update = BSON_INITIALIZER;
    bson_error_t error = {0};

    BSON_APPEND_DOCUMENT(&update, "$set", commit);
    CHECK_OK(truce_update(store, "truce_commits", filter, &update,
                          &(truce_write_options){.upsert = true}, NULL, &error),
             error);
    insert_json(store, "things", "{'_id': 'a', 'n': 0, " HELD "}");
    insert_json(store, "things", "{'_id': 'b', 'n': 0, " HELD "}");
    insert_json(store, "employees", "{'_id': 1, 'badges': [{'type': 'A'}], " HELD "}");
    insert_json(store, "students", "{'_id': 1, 'student_id': 1, 'classes': [], " HELD "}");
    insert_json(store, "posts", "{'_id': 1, 'a': 1, 'version': {'$numberLong': '1'}, " HELD "}");
    bson_destroy(&update);
    bson_destroy(filter);
    bson_destroy(commit);
}

/* ---- the waiting calls ----------------------------------------------------------------------- */

struct want {
    truce_mechanism mechanism;
    uint32_t deadline_ms;
    int kind; /* the kind of the commit's changes */
};

static truce_status read_a(truce_commit *commit, bson_error_t *error)
{
    bson_value_t id = text_id("a");
    bson_t document;
    truce_status status = truce_commit_read(commit, "things", &id, &document, error);

    bson_destroy(&document);
    return status;
}

enum { READS, BLIND, TWO_BLIND, REQUIRES, HOLDS, REMOVES, COMMIT_KINDS };

static truce_status want_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct want *want = arg;
    bson_value_t a = text_id("a");
    truce_status status;

    switch (want->kind) {
    case READS:
        return read_a(commit, error);
    case REQUIRES:
        status = truce_commit_require(commit, "things", &a, NULL, error);
        return status ? status
                      : add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", error);
    case HOLDS:
        return truce_commit_hold(commit, "things", &a, NULL, error);
    case REMOVES:
        return truce_commit_remove(commit, "things", &a, NULL, error);
    case TWO_BLIND:
        status = add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", error);
        if (status)
            return status;
        return add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);
    default:
        return add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);
    }
}

static truce_status want_commit(truce_store *store, const struct want *want, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = want->mechanism, .deadline_ms = want->deadline_ms};

    return truce_transact(store, want_in, (void *)want, &options, error);
}

static truce_status want_look(truce_store *store, const struct want *want, bson_error_t *error)
{
    bson_value_t a = text_id("a"), b = text_id("b");
    truce_read_request looks[2] = {{.collection = "things", .id = &a},
                                   {.collection = "things", .id = &b}};
    truce_status status = truce_read_many(
        store, looks, 2, &(truce_read_many_options){.deadline_ms = want->deadline_ms}, error);

    bson_destroy(&looks[0].document);
    bson_destroy(&looks[1].document);
    return status;
}

static truce_status want_item(truce_store *store, const struct want *want, bson_error_t *error)
{
    truce_item *item =
        tutorial_item(store, &(truce_item_options){.deadline_ms = want->deadline_ms});
    bson_t *filter = test_bson("{'_id': 1}"), *added = test_bson("{'type': 'B'}");
    truce_status status = truce_item_add(item, NULL, filter, added, NULL, error);

    bson_destroy(added);
    bson_destroy(filter);
    truce_item_free(item);
    return status;
}

static truce_status want_save(truce_store *store, const struct want *want, bson_error_t *error)
{
    truce_revision *revision =
        tutorial_revision(store, &(truce_revision_options){.deadline_ms = want->deadline_ms});
    bson_t *base = test_bson("{'_id': 1, 'a': 1}"), *mine = test_bson("{'_id': 1, 'a': 2}");
    truce_revision_result result;
    truce_status status = truce_revision_save(revision, NULL, mine, 1, base, &result, error);

    truce_revision_result_release(&result);
    bson_destroy(mine);
    bson_destroy(base);
    truce_revision_free(revision);
    return status;
}

/* It has no deadline of its own: 30 seconds. */
static truce_status want_set(truce_store *store, const struct want *want, bson_error_t *error)
{
    truce_set *set = tutorial_set(store, NULL);
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'A'}");
    truce_status status = truce_set_add(set, NULL, key, element, 7, NULL, error);

    (void)want;
    bson_destroy(element);
    bson_destroy(key);
    truce_set_free(set);
    return status;
}

typedef truce_status want_function(truce_store *store, const struct want *want,
                                   bson_error_t *error);

/* A wait that began before the deadline may end after it, by at most its own length. */
static void check_wait(truce_store *store, want_function *function, const struct want *want,
                       const char *name)
{
    int64_t wanted = want->deadline_ms ? want->deadline_ms : 30000;
    int64_t begun = atomic_load(&no_sleep_ms), waited;
    bson_error_t error = {0};
    truce_status status = function(store, want, &error);

    waited = atomic_load(&no_sleep_ms) - begun;
    if (status != TRUCE_LOCKED && status != TRUCE_TIMEOUT)
        test_fail(__FILE__, __LINE__, "%s, kind %d: %s: %s", name, want->kind,
                  truce_status_name(status), error.message);
    if (waited < wanted - 200 || waited > wanted + 1500)
        test_fail(__FILE__, __LINE__, "%s, kind %d: waited for %d ms of %d", name, want->kind,
                  (int)waited, (int)wanted);
}

static void all_wait(truce_store *store, const struct setting *setting)
{
    hold_everything(store);
    for (int i = 0; i < 2; i++) {
        struct want want = {.mechanism = setting->mechanism, .deadline_ms = i ? 5000 : 0};

        for (want.kind = 0; want.kind < COMMIT_KINDS; want.kind++)
            check_wait(store, want_commit, &want, "a commit");
        check_wait(store, want_look, &want, "a look at several");
        check_wait(store, want_item, &want, "a change of items");
        check_wait(store, want_save, &want, "a save");
        if (!want.deadline_ms)
            check_wait(store, want_set, &want, "an operation of a set");
    }
}

static void in_no_time(truce_store *store, const struct setting *setting)
{
    no_sleep_begin();
    all_wait(store, setting);
    truce__environment_use(NULL);
}

TEST(returns_locked_or_timeout_at_the_deadline_of_a_wait)
{
    on_every_setting(in_no_time);
}

/* ---- an insert of an existing document ------------------------------------------------------- */

enum { INSERTS, INSERTS_AND_MORE, READS_AND_INSERTS, INSERT_KINDS };

static truce_status insert_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct want *want = arg;
    bson_t *again = test_bson("{'_id': 'x', 'u': 7}");
    truce_status status = TRUCE_OK;

    if (want->kind == READS_AND_INSERTS) {
        bson_value_t other = text_id("other");
        bson_t document;

        status = truce_commit_read(commit, "things", &other, &document, error);
        bson_destroy(&document);
    }
    if (!status)
        status = truce_commit_insert(commit, "things", again, error);
    if (!status && want->kind != INSERTS)
        status = add_update(commit, "things", "other", NULL, "{'$inc': {'n': 1}}", error);
    bson_destroy(again);
    return status;
}

static void inserts(truce_store *store, const struct setting *setting)
{
    bson_t *index = test_bson("{'key': {'u': 1}, 'unique': true, 'sparse': true}");
    bson_t *id = test_bson("{'_id': 'x'}");
    truce_commit_options options = {.mechanism = setting->mechanism};
    bson_error_t error = {0};

    CHECK_OK(truce_index_create(store, "things", index, &error), error);
    insert_json(store, "things", "{'_id': 'other', 'n': 0}");
    for (int by_key = 0; by_key < 2; by_key++) { /* the same _id, the same unique value */
        insert_json(store, "things", by_key ? "{'_id': 'y', 'u': 7}" : "{'_id': 'x', 'u': 8}");
        for (struct want want = {0}; want.kind < INSERT_KINDS; want.kind++)
            CHECK_STATUS(TRUCE_DUPLICATE, truce_transact(store, insert_in, &want, &options, &error),
                         error);
        CHECK_OK(truce_remove(store, "things", id, NULL, NULL, &error), error);
    }
    CHECK_DOCUMENT(store, "things", "other", "{'_id': 'other', 'n': 0}");
    bson_destroy(id);
    bson_destroy(index);
}

TEST(returns_duplicate_for_an_insert_of_an_existing_document)
{
    on_every_setting(inserts);
}

/* ---- unused error arguments ------------------------------------------------------------------ */

static want_function *const calls[] = {want_commit, want_look, want_item, want_save, want_set};

/* Any writing call loses its answer. If the operation succeeds in the end, its error is
 * unchanged. */
static void check_untouched(const struct setting *setting, want_function *function, uint64_t at,
                            bool *past)
{
    truce_store *store = open_setting(setting), *fault;
    struct want want = {.mechanism = setting->mechanism, .kind = TWO_BLIND};
    bson_error_t error = {.code = 4711};
    truce_status status;

    insert_json(store, "things", "{'_id': 'a', 'n': 0}");
    insert_json(store, "things", "{'_id': 'b', 'n': 0}");
    insert_json(store, "employees", "{'_id': 1, 'badges': [{'type': 'A'}]}");
    insert_json(store, "posts", "{'_id': 1, 'a': 1, 'version': {'$numberLong': '1'}}");
    fault = truce_fault_wrap(
        store, &(truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at, .writes_only = true});
    fault->capabilities &= ~setting->lacks;
    status = function(fault, &want, &error);
    *past = !truce_fault_hits(fault);
    if (!status && (error.code != 4711 || error.message[0]))
        test_fail(__FILE__, __LINE__, "call %d: OK, and the error says %s", (int)at, error.message);
    truce_store_close(fault);
}

TEST(leaves_the_error_unchanged_if_the_status_is_ok)
{
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        if (strcmp(settings[s].uri, "memory:") != 0)
            continue;
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            bool past = false;

            for (uint64_t at = 1; !past && at < 40; at++) {
                no_sleep_begin();
                check_untouched(&settings[s], calls[c], at, &past);
                truce__environment_use(NULL);
            }
            CHECK(past);
        }
    }
}
