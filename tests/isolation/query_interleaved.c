/*
 * A commit that runs a query (truce_commit_find) and a commit of the journal. One of them runs
 * completely between two calls of the other to the store: before its first call, before its second,
 * and so on. In further runs a journal commit dies at each of its calls, before or after the call's
 * effect. The result is always that of one after the other.
 *
 *     on call   two doctors are on call; each of the two commits removes another one if both are
 *     room      the room is free; each of the two commits books it if it is free
 *
 * The commit of the journal reads single documents, the other one runs queries. Without a guard of
 * its results, or without a check of the documents that the journal holds, both would take effect.
 */
#include "tests/support/bank.h"
#include "tests/support/hooked.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

typedef truce_status work_function(truce_commit *commit, void *arg, bson_error_t *error);

/* ---- the commits ----------------------------------------------------------------------------- */

static bool is_on(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "on") && bson_iter_as_bool(&iter);
}

static truce_status is_on_call(truce_commit *commit, const char *name, bool *on,
                               bson_error_t *error)
{
    bson_value_t id = text_id(name);
    bson_t document;
    truce_status status = truce_commit_read(commit, "doctors", &id, &document, error);

    *on = !status && is_on(&document);
    bson_destroy(&document);
    return status;
}

static truce_status leave_by_reading(truce_commit *commit, void *arg, bson_error_t *error)
{
    bool first = false, second = false;
    truce_status status = is_on_call(commit, "a", &first, error);

    (void)arg;
    if (!status)
        status = is_on_call(commit, "b", &second, error);
    if (status || !first || !second)
        return status;
    return add_update(commit, "doctors", "a", NULL, "{'$set': {'on': false}}", error);
}

static truce_status count(truce_commit *commit, const char *collection, const char *json, int *sum,
                          bson_error_t *error)
{
    bson_t *filter = test_bson(json);
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce_commit_find(commit, collection, filter, NULL, &cursor, error);

    *sum = -1;
    do {
        ++*sum;
        if (!status)
            status = truce_cursor_next(cursor, &document, error);
    } while (!status && document);
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

static truce_status leave_by_asking(truce_commit *commit, void *arg, bson_error_t *error)
{
    int sum;
    truce_status status = count(commit, "doctors", "{'on': true}", &sum, error);

    (void)arg;
    return status || sum < 2
               ? status
               : add_update(commit, "doctors", "b", NULL, "{'$set': {'on': false}}", error);
}

static truce_status add(truce_commit *commit, const char *json, bson_error_t *error)
{
    bson_t *document = test_bson(json);
    truce_status status = truce_commit_insert(commit, "bookings", document, error);

    bson_destroy(document);
    return status;
}

/* It knows under which _id the other one would book. */
static truce_status book_by_reading(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t id = text_id("asked");
    bson_t document;
    truce_status status = truce_commit_read(commit, "bookings", &id, &document, error);

    (void)arg;
    bson_destroy(&document);
    if (status == TRUCE_NOT_FOUND)
        status = add(commit, "{'_id': 'read', 'room': 1}", error);
    return status;
}

static truce_status book_by_asking(truce_commit *commit, void *arg, bson_error_t *error)
{
    int sum;
    truce_status status = count(commit, "bookings", "{'room': 1}", &sum, error);

    (void)arg;
    return status || sum ? status : add(commit, "{'_id': 'asked', 'room': 1}", error);
}

/* Its snapshot has begun when it asks for the room. */
static truce_status book_by_asking_late(truce_commit *commit, void *arg, bson_error_t *error)
{
    int sum;
    truce_status status = count(commit, "doctors", "{'on': true}", &sum, error);

    return status ? status : book_by_asking(commit, arg, error);
}

static truce_status run(truce_store *store, work_function *work, truce_mechanism mechanism,
                        bson_error_t *error)
{
    truce_commit_options options = {
        .mechanism = mechanism,
        .lease_ms = 1000,
        /* the dead client may retry for a while, and the other one has its time anyway */
        .deadline_ms = mechanism == TRUCE_MECHANISM_JOURNAL ? 5000 : 60000,
    };

    return truce_transact(store, work, NULL, &options, error);
}

/* ---- the scenes ------------------------------------------------------------------------------ */

static const struct scene {
    const char *name;
    work_function *reads, *asks;
    const char *collection, *has_read; /* the result of the one that reads */
} scenes[] = {
    {"on call", leave_by_reading, leave_by_asking, "doctors", "{'_id': 'a', 'on': false}"},
    {"room", book_by_reading, book_by_asking, "bookings", "{'_id': 'read'}"},
    {"room, late", book_by_reading, book_by_asking_late, "bookings", "{'_id': 'read'}"},
};

/* A store, and the stores around it for the process that dies: the inner one loses an answer,
 * the outer one lets nothing through. */
static struct {
    truce_store *store, *inner, *outer;
} stage;

static void open_stage(bool indexed)
{
    static const struct setting file = {"file", "file:", TRUCE_MECHANISM_AUTO};
    static const truce_fault_options none;
    bson_t *index = test_bson("{'key': {'on': 1, 'room': 1}}");
    bson_error_t error;

    stage.store = open_setting(&file);
    stage.inner = truce_fault_wrap(stage.store, &none);
    stage.outer = truce_fault_wrap(stage.inner, &none);
    insert_json(stage.store, "doctors", "{'_id': 'a', 'on': true}");
    insert_json(stage.store, "doctors", "{'_id': 'b', 'on': true}");
    insert_json(stage.store, "doctors", "{'_id': 'c', 'on': false}");
    insert_json(stage.store, "bookings", "{'_id': 'of another', 'room': 2}");
    for (int i = 0; indexed && i < 2; i++)
        CHECK_OK(truce_index_create(stage.store, i ? "doctors" : "bookings", index, &error), error);
    bson_destroy(index);
}

/* One of them has taken effect, and the other has not. */
static void check_stage(const struct scene *scene)
{
    int64_t done = scene == scenes ? 2 - count_json(stage.store, "doctors", "{'on': true}")
                                   : count_json(stage.store, "bookings", "{'room': 1}");

    CHECK_INT(done, ==, 1);
    CHECK_INT(count_json(stage.store, "doctors", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(stage.store, "bookings", "{'_intent': {'$exists': true}}"), ==, 0);
}

/* Runs a journal commit that dies at this call, before it or after its effect. False: it ended
 * before. If a client was notified that the commit took effect (`reported`), it did take effect. */
static bool die_at(work_function *work, bool after, uint64_t at, bool *reported)
{
    truce_fault_options lose = {.kind = TRUCE_FAULT_LOSE, .at = at};
    truce_fault_options dead = {
        .kind = TRUCE_FAULT_FAIL, .at = after ? at + 1 : at, .from_then_on = true};
    bson_error_t error = {0};

    if (after)
        truce_fault_arm(stage.inner, &lose);
    truce_fault_arm(stage.outer, &dead);
    *reported = !run(stage.outer, work, TRUCE_MECHANISM_JOURNAL, &error);
    return truce_fault_hits(stage.inner) + truce_fault_hits(stage.outer) > 0;
}

/* ---- concurrent calls ------------------------------------------------------------------------ */

static struct {
    const struct scene *scene;
    bool asks;
    int enter_at, calls;
    uint64_t dies_at; /* 0: never */
    bool inside, entered, died, reported;
} other;

static void before_call(truce_store *store)
{
    bson_error_t error = {0};

    if (other.inside || ++other.calls != other.enter_at)
        return;
    other.inside = other.entered = true;
    if (other.dies_at)
        other.died = die_at(other.scene->reads, true, other.dies_at, &other.reported);
    else if (other.asks)
        CHECK_OK(run(store, other.scene->asks, TRUCE_MECHANISM_AUTO, &error), error);
    else
        CHECK_OK(run(store, other.scene->reads, TRUCE_MECHANISM_JOURNAL, &error), error);
    other.inside = false;
}

/* False: there is no such call, or the other one did not die at it. */
static bool run_with_other(const struct scene *scene, bool asks, bool indexed, int at,
                           uint64_t dies_at)
{
    int before = test_failures();
    bson_error_t error = {0};

    open_stage(indexed);
    hooked_make(stage.store, before_call);
    stage.store->ops = &hooked_ops;
    memset(&other, 0, sizeof other);
    other.scene = scene;
    other.asks = asks;
    other.enter_at = at;
    other.dies_at = dies_at;
    if (asks)
        CHECK_OK(run(stage.store, scene->reads, TRUCE_MECHANISM_JOURNAL, &error), error);
    else
        CHECK_OK(run(stage.store, scene->asks, TRUCE_MECHANISM_AUTO, &error), error);
    other.enter_at = 0;
    check_stage(scene);
    if (other.reported)
        CHECK_INT(count_json(stage.store, scene->collection, scene->has_read), ==, 1);
    truce_store_close(stage.outer);
    if (test_failures() > before)
        fprintf(stderr, "    %s, call %d, dies at %d\n", scene->name, at, (int)dies_at);
    return dies_at ? other.died : other.entered;
}

static void enter_everywhere(bool asks, int least)
{
    no_sleep_use();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (int indexed = 0; indexed <= 1; indexed++) {
            int at = 1;

            while (!test_failures() && run_with_other(&scenes[i], asks, indexed, at, 0))
                at++;
            CHECK_INT(at, >, least);
        }
    truce__environment_use(NULL);
}

TEST(handles_a_commit_with_a_query_during_a_journal_commit)
{
    enter_everywhere(true, 7);
}

TEST(handles_a_journal_commit_during_one_with_a_query)
{
    enter_everywhere(false, 1);
}

/* The plain commit comes after all reads of the other one, before or after that is decided or
 * released. */
TEST(handles_a_crashed_journal_commit_during_one_with_a_query)
{
    no_sleep_use();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        int at = 0;

        do {
            uint64_t dies_at = 1;

            at++;
            while (!test_failures() && run_with_other(&scenes[i], false, true, at, dies_at))
                dies_at++;
            CHECK(!other.entered || dies_at > 7);
        } while (!test_failures() && other.entered);
        CHECK_INT(at, >, 1);
    }
    truce__environment_use(NULL);
}

TEST(a_query_finishes_or_undoes_a_dead_commit)
{
    no_sleep_use();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (int after = 0; after <= 1; after++) {
            uint64_t at = 1;
            bool died = true, reported;
            bson_error_t error = {0};

            for (; died && !test_failures(); at++) {
                open_stage(true);
                died = die_at(scenes[i].reads, after, at, &reported);
                CHECK_OK(run(stage.store, scenes[i].asks, TRUCE_MECHANISM_AUTO, &error), error);
                check_stage(&scenes[i]);
                if (reported)
                    CHECK_INT(count_json(stage.store, scenes[i].collection, scenes[i].has_read), ==,
                              1);
                truce_store_close(stage.outer);
            }
            CHECK_INT(at, >, 8);
        }
    truce__environment_use(NULL);
}
