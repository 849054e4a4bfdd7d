/*
 * Everybody gets on: a commit that always loses takes its documents first, whatever the others do. Time is
 * what is slept.
 */
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"

#define DOCUMENTS 8

struct loser {
    truce_store *store;
    truce_mechanism mechanism;
    int runs;
    int refuses; /* it says no in this run; 0: never */
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

/* Somebody else, between the reads and the writes of the one who loses. */
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
    if (!status) { /* and one that nobody could take before */
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
    truce__world_use(NULL);
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

TEST(what_was_taken_is_given_back_when_the_function_says_no)
{
    on_every_setting(gives_back);
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
    truce__world_use(NULL);
    CHECK_INT(vanishing.loser.runs, ==, 4);
    CHECK_INT(count_json(store, "things", "{'n': 1}"), ==, 1);
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 0);
    CHECK_INT(count_json(store, "things", "{}"), ==, DOCUMENTS - 1);
}

TEST(a_document_that_is_gone_costs_no_try_of_those_that_take_first)
{
    on_every_setting(takes_what_is_left);
}
