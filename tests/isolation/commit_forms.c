/*
 * The forms on top of the commit at interleavings of their store calls, with crashes, lost answers,
 * and calls that land late. The scenes are operations of ordered sets concurrently with commits on
 * the same document, operations in commits, and diffs of different keys of one document. When all
 * have ended, the operations that a queue would deliver again are delivered, and a recovery pass
 * ends the rest.
 */
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"
#include "tests/support/set_model.h"
#include "tests/support/turns.h"
#include "tests/support/tutorial.h"

#define MESSAGES_MAX 6
#define BEFORE       -1
#define BRANCH_MAX   40

/* How a client's operations get into the set. */
enum way {
    SINGLE,  /* one after the other, each alone */
    BATCH,   /* alone, as a batch */
    FAST,    /* each in a commit of its own, with nothing else in it */
    JOURNAL, /* together in a commit that also marks another document */
    NATIVE,
};

struct scene {
    truce_set_options options;
    enum way ways[TURNS_CLIENTS_MAX];
    int clients;
    struct model_operation messages[MESSAGES_MAX];
    int of[MESSAGES_MAX]; /* which client has it; BEFORE: it is there at the start */
    int count;
    bool committed_before; /* the set's document has a revision */
    bool given[MESSAGES_MAX];
};

static const char *const marks[] = {"m0", "m1", "m2", "m3"};

struct delivery {
    struct scene *scene;
    truce_set *set;
    const int *chosen;
    int count, client;
    bool mark;
};

static truce_status apply(truce_set *set, truce_commit *commit, const struct scene *scene,
                          const int *chosen, int count, bson_error_t *error)
{
    truce_set_result results[MESSAGES_MAX];
    truce_set_operation made[MESSAGES_MAX] = {{0}};
    bson_t parts[2 * MESSAGES_MAX];
    truce_status status;

    for (int i = 0; i < count; i++)
        model_operation_make(&scene->messages[chosen[i]], &parts[2 * i], &parts[2 * i + 1],
                             &made[i]);
    status = truce_set_apply(set, commit, made, (size_t)count, results, error);
    for (int i = 0; i < 2 * count; i++)
        bson_destroy(&parts[i]);
    return status;
}

static truce_status in_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct delivery *delivery = arg;
    bson_value_t e = text_id("e");
    bson_t *mark = BCON_NEW("$inc", "{", marks[delivery->client], BCON_INT32(1), "}");
    truce_status status =
        apply(delivery->set, commit, delivery->scene, delivery->chosen, delivery->count, error);

    if (!status && delivery->mark)
        status = truce_commit_update(commit, "marks", &e, NULL, mark, error);
    bson_destroy(mark);
    return status;
}

static truce_status transact(truce_store *store, struct delivery *delivery,
                             truce_mechanism mechanism, bson_error_t *error)
{
    truce_commit_options options = {
        .mechanism = mechanism, .lease_ms = 20, .deadline_ms = 2000, .tries_max = 50};

    return truce_transact(store, in_commit, delivery, &options, error);
}

static truce_status deliver(truce_store *store, struct delivery *delivery, enum way way,
                            bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (way == BATCH)
        return apply(delivery->set, NULL, delivery->scene, delivery->chosen, delivery->count,
                     error);
    if (way == JOURNAL || way == NATIVE) {
        delivery->mark = true;
        return transact(store, delivery,
                        way == JOURNAL ? TRUCE_MECHANISM_JOURNAL : TRUCE_MECHANISM_NATIVE, error);
    }
    for (int i = 0; !status && i < delivery->count; i++) {
        struct delivery one = *delivery;

        one.chosen = delivery->chosen + i;
        one.count = 1;
        status = way == SINGLE ? apply(delivery->set, NULL, delivery->scene, one.chosen, 1, error)
                               : transact(store, &one, TRUCE_MECHANISM_AUTO, error);
    }
    return status;
}

static int chosen_of(const struct scene *scene, int client, int *chosen)
{
    int count = 0;

    for (int i = 0; i < scene->count; i++) {
        if (scene->of[i] == client)
            chosen[count++] = i;
    }
    return count;
}

static void begin(truce_store *store, void *arg)
{
    struct scene *scene = arg;
    truce_set *set = tutorial_set(store, &scene->options);
    int chosen[MESSAGES_MAX], count = chosen_of(scene, BEFORE, chosen);
    bson_error_t error = {0};

    no_sleep_begin();
    insert_json(store, "marks", "{'_id': 'e'}");
    memset(scene->given, 0, sizeof scene->given);
    if (scene->committed_before) {
        struct delivery delivery = {scene, set, chosen, count, 0, false};

        CHECK_OK(transact(store, &delivery, TRUCE_MECHANISM_AUTO, &error), error);
    } else if (count) {
        CHECK_OK(apply(set, NULL, scene, chosen, count, &error), error);
    }
    for (int i = 0; i < count; i++)
        scene->given[chosen[i]] = true;
    truce_set_free(set);
}

static void client(truce_store *store, int number, void *arg)
{
    struct scene *scene = arg;
    truce_set *set = tutorial_set(store, &scene->options);
    int chosen[MESSAGES_MAX];
    struct delivery delivery = {scene,  set,  chosen, chosen_of(scene, number, chosen),
                                number, false};
    bson_error_t error = {0};
    truce_status status;

    no_sleep_use();
    status = deliver(store, &delivery, scene->ways[number], &error);

    for (int i = 0; !status && i < delivery.count; i++)
        scene->given[chosen[i]] = true;
    if (status && status != TRUCE_UNKNOWN && !turns_is_dead(store))
        test_fail(__FILE__, __LINE__, "client %d, alive, failed: %s", number, error.message);
    truce_set_free(set);
}

static int mark_of(truce_store *store, int client)
{
    bson_t *filter = test_bson("{'_id': 'e'}"), found;
    bson_error_t error = {0};
    bson_iter_t iter;
    int mark = 0;

    CHECK_OK(truce_find_one(store, "marks", filter, NULL, &found, &error), error);
    if (bson_iter_init_find(&iter, &found, marks[client]))
        mark = (int)bson_iter_as_int64(&iter);
    bson_destroy(&found);
    bson_destroy(filter);
    return mark;
}

static void recover(truce_store *store)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    truce_check_report checked;
    bson_error_t error = {0};

    for (int i = 0; i < 2; i++) {
        no_sleep_on(NULL, 100); /* past every lease */
        CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    }
    CHECK_OK(truce_check(store, NULL, NULL, NULL, &checked, &error), error);
    CHECK_INT(checked.findings, ==, 0);
}

static void check_none(truce_store *store, const char *collection)
{
    bson_t *filter = test_bson("{'_intent': {'$exists': true}}");
    bson_error_t error = {0};
    int64_t found;

    CHECK_OK(truce_count(store, collection, filter, NULL, &found, &error), error);
    CHECK_INT(found, ==, 0);
    bson_destroy(filter);
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    struct scene *scene = arg;
    truce_set *set = tutorial_set(store, &scene->options);
    bson_error_t error = {0};

    (void)crashed;
    recover(store);
    for (int number = 0; number < scene->clients; number++) {
        int chosen[MESSAGES_MAX], count = chosen_of(scene, number, chosen);
        bool marked = mark_of(store, number) == 1;
        bool commit = scene->ways[number] == JOURNAL || scene->ways[number] == NATIVE;

        CHECK_INT(mark_of(store, number), <=, 1);
        for (int i = 0; i < count; i++) {
            if (commit && scene->given[chosen[i]] && !marked)
                test_fail(__FILE__, __LINE__, "half of the commit of client %d", number);
            if (commit)
                scene->given[chosen[i]] = marked;
            else if (!scene->given[chosen[i]]) /* a queue delivers it again */
                CHECK_OK(apply(set, NULL, scene, &chosen[i], 1, &error), error);
            if (!commit)
                scene->given[chosen[i]] = true;
        }
    }
    model_check(set, scene->messages, (size_t)scene->count, scene->given, 1, 3, true, "at the end");
    check_none(store, "students");
    check_none(store, "students.classes");
    check_none(store, "marks");
    truce_set_free(set);
    truce__environment_use(NULL);
}

static void explore(struct scene *scene, struct turns_budget budget, const char *what)
{
    struct turns_run run = {scene->clients, client, begin, end, scene, budget, BRANCH_MAX};
    long runs_max = test_scale("TRUCE_FORMS_RUNS", 60);
    bool complete;
    long runs = turns_explore(&run, runs_max, 0, &complete);

    if (!complete && !test_failures())
        runs += turns_explore(&run, runs_max, test_seed(), NULL);
    printf("  %s: %ld runs%s\n", what, runs, complete ? ", all" : "");
    if (test_failures())
        fprintf(stderr, "    (%s)\n", what);
}

/* ---- operations of sets next to commits ------------------------------------------------------ */

#define ADD(n, key, name)                                                                          \
    {                                                                                              \
        true, n, NULL, key, name                                                                   \
    }
#define REMOVE(n, key, name)                                                                       \
    {                                                                                              \
        false, n, NULL, key, name                                                                  \
    }

static const struct {
    const char *name;
    truce_set_options options;
} forms[] = {
    {"pipeline", {.form = TRUCE_SET_FORM_PIPELINE}},
    {"classic", {.form = TRUCE_SET_FORM_CLASSIC}},
    {"by element", {.layout = TRUCE_SET_BY_ELEMENT}},
};
#define FORMS (sizeof forms / sizeof *forms)

/* Two clients on one name, and on another; `before` operations are applied at the start. */
static void beside(enum way first, enum way second, int before, bool committed_before,
                   struct turns_budget budget, const char *what)
{
    for (size_t f = 0; f < FORMS && !test_failures(); f++) {
        struct scene scene = {
            .options = forms[f].options,
            .ways = {first, second},
            .clients = 2,
            .messages = {ADD(1, 1, 0), REMOVE(2, 1, 0), ADD(3, 1, 1), ADD(4, 1, 0),
                         REMOVE(5, 1, 1)},
            .of = {BEFORE, 0, 0, 1, 1},
            .count = 5,
            .committed_before = committed_before,
        };
        char name[120];

        if (!before)
            scene.of[0] = 1;
        snprintf(name, sizeof name, "%s, %s", what, forms[f].name);
        explore(&scene, budget, name);
    }
}

TEST(operations_of_a_set_run_next_to_a_commit_of_the_journal)
{
    beside(JOURNAL, SINGLE, 1, false, (struct turns_budget){0}, "journal, single");
    beside(JOURNAL, BATCH, 1, true, (struct turns_budget){0}, "journal, batch, revision");
    beside(JOURNAL, BATCH, 0, false, (struct turns_budget){0}, "journal, batch, nothing there");
    beside(JOURNAL, SINGLE, 0, false, (struct turns_budget){0}, "journal, single, nothing there");
}

TEST(operations_of_a_set_run_next_to_a_native_commit)
{
    beside(NATIVE, SINGLE, 1, false, (struct turns_budget){0}, "native, single");
    beside(NATIVE, SINGLE, 1, true, (struct turns_budget){0}, "native, single, revision");
    beside(NATIVE, BATCH, 1, true, (struct turns_budget){0}, "native, batch, revision");
    beside(NATIVE, BATCH, 1, false, (struct turns_budget){0}, "native, batch");
    beside(NATIVE, SINGLE, 0, false, (struct turns_budget){0}, "native, single, nothing there");
}

TEST(operations_of_a_set_run_next_to_a_commit_of_one_document)
{
    beside(FAST, SINGLE, 1, false, (struct turns_budget){0}, "fast, single");
    beside(FAST, BATCH, 1, true, (struct turns_budget){0}, "fast, batch, revision");
    beside(FAST, SINGLE, 0, false, (struct turns_budget){0}, "fast, single, nothing there");
}

TEST(serializes_operations_in_commits_of_all_mechanisms)
{
    beside(JOURNAL, JOURNAL, 1, false, (struct turns_budget){0}, "journal, journal");
    beside(JOURNAL, NATIVE, 1, false, (struct turns_budget){0}, "journal, native");
    beside(JOURNAL, FAST, 0, false, (struct turns_budget){0}, "journal, fast, nothing there");
    beside(NATIVE, FAST, 1, true, (struct turns_budget){0}, "native, fast, revision");
}

TEST(a_crash_at_any_call_leaves_all_or_nothing)
{
    beside(JOURNAL, SINGLE, 1, false, (struct turns_budget){.crashes = 1}, "journal, single");
    beside(JOURNAL, BATCH, 0, false, (struct turns_budget){.crashes = 1}, "journal, batch");
    beside(NATIVE, SINGLE, 1, true, (struct turns_budget){.crashes = 1}, "native, single");
}

TEST(tolerates_calls_that_are_lost_or_arrive_late)
{
    beside(JOURNAL, SINGLE, 1, false, (struct turns_budget){.losses = 1, .lates = 1},
           "journal, single");
    beside(JOURNAL, BATCH, 1, true, (struct turns_budget){.lates = 2}, "journal, batch");
    beside(FAST, SINGLE, 1, true, (struct turns_budget){.losses = 1, .lates = 1}, "fast, single");
}

/* ---- diffs ---------------------------------------------------------------------------------- */

struct diffs {
    truce_mechanism mechanisms[2];
    const char *changes[2]; /* of collection data */
    truce_status reported[2];
    const char *after; /* of a and b alike; NULL: that of the client whose answer was OK */
    const char *either[2];
};

static void begin_diffs(truce_store *store, void *arg)
{
    (void)arg;
    no_sleep_begin();
    insert_json(store, "data", "{'_id': 'a', 'x': 0, 'y': 0}");
    insert_json(store, "data", "{'_id': 'b', 'x': 0, 'y': 0}");
}

static void diffs_client(truce_store *store, int number, void *arg)
{
    struct diffs *diffs = arg;
    truce_commit_options options = {
        .mechanism = diffs->mechanisms[number], .lease_ms = 20, .deadline_ms = 2000};
    bson_t *changes = test_bson(diffs->changes[number]);
    bson_error_t error = {0};

    no_sleep_use();
    diffs->reported[number] = truce_changes_apply(store, "data", changes, &options, &error);
    if (diffs->reported[number] && diffs->reported[number] != TRUCE_CONFLICT)
        test_fail(__FILE__, __LINE__, "client %d failed: %s", number, error.message);
    bson_destroy(changes);
}

static void end_diffs(truce_store *store, const bool *crashed, void *arg)
{
    struct diffs *diffs = arg;
    const char *after = diffs->after;

    (void)crashed;
    recover(store);
    CHECK_INT(!diffs->reported[0] + !diffs->reported[1], ==, after ? 2 : 1);
    if (!after)
        after = diffs->either[diffs->reported[0] ? 1 : 0];
    CHECK_DOCUMENT(store, "data", "a", after);
    after = "{'_id': 'b', 'x': 1, 'y': 1}";
    if (diffs->after)
        CHECK_DOCUMENT(store, "data", "b", after);
    truce__environment_use(NULL);
}

static const truce_mechanism both[] = {TRUCE_MECHANISM_NATIVE, TRUCE_MECHANISM_JOURNAL};

TEST(diffs_of_different_keys_are_never_a_conflict)
{
    for (int i = 0; i < 4 && !test_failures(); i++) {
        struct diffs diffs = {
            .mechanisms = {both[i / 2], both[i % 2]},
            .changes = {"{'a': {'x': [0, 1]}, 'b': {'x': [0, 1]}}",
                        "{'a': {'y': [0, 1]}, 'b': {'y': [0, 1]}}"},
            .after = "{'_id': 'a', 'x': 1, 'y': 1}",
        };
        struct turns_run run = {2, diffs_client, begin_diffs, end_diffs, &diffs, {0}, BRANCH_MAX};
        bool complete;
        long runs = turns_explore(&run, test_scale("TRUCE_FORMS_RUNS", 60), 0, &complete);

        printf("  %d: %ld runs%s\n", i, runs, complete ? ", all" : "");
    }
}

TEST(one_of_two_diffs_of_one_key_is_a_conflict)
{
    for (int i = 0; i < 4 && !test_failures(); i++) {
        struct diffs diffs = {
            .mechanisms = {both[i / 2], both[i % 2]},
            .changes = {"{'a': {'x': [0, 1]}, 'b': {'x': [0, 1]}}", "{'a': {'x': [0, 2]}}"},
            .either = {"{'_id': 'a', 'x': 1, 'y': 0}", "{'_id': 'a', 'x': 2, 'y': 0}"},
        };
        struct turns_run run = {2, diffs_client, begin_diffs, end_diffs, &diffs, {0}, BRANCH_MAX};
        bool complete;
        long runs = turns_explore(&run, test_scale("TRUCE_FORMS_RUNS", 60), 0, &complete);

        printf("  %d: %ld runs%s\n", i, runs, complete ? ", all" : "");
    }
}
