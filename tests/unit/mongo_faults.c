/* The mongodb:// store with a server that dies or restarts, and calls whose first request had no
 * answer. A write that may have happened is never reported as refused. */
#include "store/mongodb/mongo.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/support/bank.h"
#include "tests/support/stage.h"

#define REFUSED   "{'ok': 1, 'n': 0, 'writeErrors': [{'index': 0, 'code': 121, 'errmsg': 'no'}]}"
#define NOTHING   "{'ok': 1, 'n': 0, 'nModified': 0}"
#define ONE       "{'ok': 1, 'n': 1, 'nModified': 1}"
#define RETRYABLE "'errorLabels': ['RetryableWriteError']"
#define NO_TOKEN                                                                                   \
    "{'ok': 0, 'code': 50940, 'errmsg': 'cannot recover the transaction decision without a "       \
    "recoveryToken'}"

/* libmongoc waits half a second before it checks a lost server again, so the cases run
 * concurrently. */
#define SIDE_BY_SIDE 48

static pthread_t threads[SIDE_BY_SIDE];
static int running;

static void wait_for_all(void)
{
    while (running > 0)
        pthread_join(threads[--running], NULL);
}

static void run_beside(void *(*function)(void *arg), const void *arg, size_t size)
{
    void *copy = malloc(size);

    memcpy(copy, arg, size);
    if (running == SIDE_BY_SIDE)
        wait_for_all();
    if (pthread_create(&threads[running++], NULL, function, copy))
        abort();
}

/* ---- commits of transactions ---------------------------------------------------------------- */

struct atomic_case {
    struct script script;
    truce_status wanted;
    int sent, line;
};

static void *run_atomic(void *arg)
{
    const struct atomic_case *one = arg;
    bson_t *document = test_bson("{'_id': 1}");
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document},
        {.kind = TRUCE_WRITE_INSERT, .collection = "others", .document = document}};
    truce_bulk_options options = {.atomic = true, .deadline_ms = 30000};
    truce_write_outcome outcomes[2];
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_SHARDED, 9, "", &error), error)) {
        stage_script(&stage, one->script);
        test_check_status((int)one->wanted,
                          (int)truce_bulk(stage.store, writes, 2, &options, outcomes, &error),
                          &error, "bulk", __FILE__, one->line);
        test_check_int(stage.script.seen, one->sent, stage.script.seen == one->sent, "messages",
                       __FILE__, one->line);
    }
    strike(&stage);
    bson_destroy(document);
    free(arg);
    return NULL;
}

static void check_atomic(struct script script, truce_status wanted, int sent, int line)
{
    run_beside(run_atomic, &(struct atomic_case){script, wanted, sent, line},
               sizeof(struct atomic_case));
}

TEST(reports_unknown_for_an_uncertain_reply_after_a_lost_commit_reply)
{
    struct script cut = {"commitTransaction", NULL, 1, 0};
    struct script open = {"commitTransaction", NULL, 3, 0};

    cut.then = NO_TOKEN;
    check_atomic(cut, TRUCE_UNKNOWN, 2, __LINE__);
    cut.then = "{'ok': 0, 'code': 13, 'errmsg': 'not authorized'}";
    check_atomic(cut, TRUCE_UNKNOWN, 2, __LINE__);
    cut.then = "{'ok': 0, 'code': 251, 'errmsg': 'no such transaction'}";
    check_atomic(cut, TRUCE_UNKNOWN, 2, __LINE__);
    cut.then = "{'ok': 0, 'code': 251, 'errmsg': 'gone', 'errorLabels': "
               "['TransientTransactionError']}";
    check_atomic(cut, TRUCE_CONFLICT, 2, __LINE__);
    cut.then = "{'ok': 1}";
    check_atomic(cut, TRUCE_OK, 2, __LINE__);
    open.reply = "{'ok': 0, 'code': 50, 'errmsg': 'late', 'errorLabels': "
                 "['UnknownTransactionCommitResult']}";
    open.then = NO_TOKEN;
    check_atomic(open, TRUCE_UNKNOWN, 4, __LINE__);
    open.then = "{'ok': 0, 'code': 13, 'errmsg': 'not authorized'}";
    check_atomic(open, TRUCE_UNKNOWN, 4, __LINE__);
    open.reply = "{'ok': 0, 'code': 11600, 'errmsg': 'down', 'errorLabels': "
                 "['RetryableWriteError', 'UnknownTransactionCommitResult']}";
    open.times = 2; /* libmongoc sends it twice, and the next is this file's */
    open.then = NO_TOKEN;
    check_atomic(open, TRUCE_UNKNOWN, 3, __LINE__);
    wait_for_all();
}

TEST(reports_a_first_commit_as_refused_only_by_known_codes)
{
    static const struct {
        int code;
        truce_status reported;
    } cases[] = {{13, TRUCE_INVALID},   {121, TRUCE_INVALID},   {11000, TRUCE_DUPLICATE},
                 {112, TRUCE_CONFLICT}, {50940, TRUCE_UNKNOWN}, {251, TRUCE_UNKNOWN},
                 {4242, TRUCE_UNKNOWN}, {8, TRUCE_UNKNOWN},     {10107, TRUCE_UNKNOWN},
                 {133, TRUCE_UNKNOWN},  {117, TRUCE_UNKNOWN}};
    char replies[sizeof cases / sizeof *cases][100];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script script = {"commitTransaction", replies[i], 1000000, 0};

        snprintf(replies[i], sizeof replies[i], "{'ok': 0, 'code': %d, 'errmsg': 'x'}",
                 cases[i].code);
        check_atomic(script, cases[i].reported, 1, __LINE__);
    }
    wait_for_all();
}

static void check_token(const char *options, int line)
{
    bson_t *document = test_bson("{'_id': 1}"), *command;
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document},
        {.kind = TRUCE_WRITE_INSERT, .collection = "others", .document = document}};
    truce_write_outcome outcomes[2];
    struct stage stage = {.script = {.token = true}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_SHARDED, 9, options, &error), error)) {
        bson_destroy(fake_last(stage.fake, "commitTransaction"));
        CHECK_OK(truce_bulk(stage.store, writes, 2, &(truce_bulk_options){.atomic = true}, outcomes,
                            &error),
                 error);
        command = fake_last(stage.fake, "commitTransaction");
        if (!command || !bson_has_field(command, "recoveryToken.recoveryShardId"))
            test_fail(__FILE__, line, "the commit has no token");
        bson_destroy(command);
    }
    strike(&stage);
    bson_destroy(document);
}

TEST(sends_the_token_of_a_commit_to_another_mongos)
{
    check_token("", __LINE__);
    check_token("directConnection=true", __LINE__);
}

/* ---- single writes -------------------------------------------------------------------------- */

enum verb { INSERT, INSERTS, UPDATE, REMOVE, MODIFY };

static truce_status change(truce_store *store, enum verb verb, bson_error_t *error)
{
    bson_t *document = test_bson("{'_id': 1}"), *update = test_bson("{'$set': {'a': 1}}");
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document},
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document}};
    truce_write_outcome outcomes[2];
    truce_status status = TRUCE_OK;
    bson_t shown;

    switch (verb) {
    case INSERT:
        status = truce_insert(store, "things", document, NULL, error);
        break;
    case INSERTS:
        status = truce_bulk(store, writes, 2, NULL, outcomes, error);
        break;
    case UPDATE:
        status = truce_update(store, "things", document, update, NULL, NULL, error);
        break;
    case REMOVE:
        status = truce_remove(store, "things", document, NULL, NULL, error);
        break;
    case MODIFY:
        status =
            truce_find_and_modify(store, "things", document, update, NULL, &shown, NULL, error);
        bson_destroy(&shown);
    }
    bson_destroy(document);
    bson_destroy(update);
    return status;
}

struct change_case {
    enum verb verb;
    const char *reply, *then;
    truce_status wanted;
    int line;
};

static void *run_change(void *arg)
{
    static const char *const names[] = {"insert", "insert", "update", "delete", "findAndModify"};
    const struct change_case *one = arg;
    const char *name = names[one->verb];
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        stage_script(&stage, (struct script){.name = name, .reply = one->reply, .times = 1});
        stage.script.then = one->then;
        test_check_status((int)one->wanted, (int)change(stage.store, one->verb, &error), &error,
                          name, __FILE__, one->line);
        test_check_int(stage.script.seen, 2, stage.script.seen == 2, "messages", __FILE__,
                       one->line);
    }
    strike(&stage);
    free(arg);
    return NULL;
}

/* The first request gets `reply` (NULL: a lost connection), the second gets `then`. */
static void check_change(enum verb verb, const char *reply, const char *then, truce_status wanted,
                         int line)
{
    run_beside(run_change, &(struct change_case){verb, reply, then, wanted, line},
               sizeof(struct change_case));
}

TEST(does_not_report_a_write_as_refused_by_the_reply_to_its_retry)
{
    static const char *const lost[] = {
        NULL,
        "{'ok': 0, 'code': 91, 'errmsg': 'down', " RETRYABLE "}",
        "{'ok': 0, 'code': 189, 'errmsg': 'stepped down', " RETRYABLE "}",
        "{'ok': 0, 'code': 11600, 'errmsg': 'interrupted', " RETRYABLE "}",
        "{'ok': 1, 'n': 1, 'writeConcernError': {'code': 91, 'errmsg': 'down'}, " RETRYABLE "}",
    };

    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        for (enum verb verb = INSERT; verb <= REMOVE; verb++) {
            check_change(verb, lost[i], REFUSED, TRUCE_UNKNOWN, __LINE__);
            check_change(verb, lost[i], "{'ok': 1, 'n': 2}", TRUCE_OK, __LINE__);
            check_change(verb, lost[i], "{'ok': 0, 'code': 13, 'errmsg': 'no'}", TRUCE_UNKNOWN,
                         __LINE__);
            check_change(verb, lost[i], "{'ok': 0, 'code': 10107, 'errmsg': 'not primary'}",
                         TRUCE_UNKNOWN, __LINE__);
        }
        check_change(UPDATE, lost[i], NOTHING, TRUCE_UNKNOWN, __LINE__);
        check_change(REMOVE, lost[i], NOTHING, TRUCE_UNKNOWN, __LINE__);
        check_change(MODIFY, lost[i], "{'ok': 1, 'value': null, 'lastErrorObject': {'n': 0}}",
                     TRUCE_UNKNOWN, __LINE__);
        check_change(MODIFY, lost[i], "{'ok': 0, 'code': 121, 'errmsg': 'no'}", TRUCE_UNKNOWN,
                     __LINE__);
        check_change(MODIFY, lost[i], "{'ok': 1, 'value': {'_id': 1}, 'lastErrorObject': {'n': 1}}",
                     TRUCE_OK, __LINE__);
    }
    wait_for_all();
}

TEST(reports_an_unstarted_write_by_the_reply_to_its_retry)
{
    static const char not_primary[] =
        "{'ok': 0, 'code': 10107, 'errmsg': 'not primary', " RETRYABLE "}";

    check_change(INSERT, not_primary, REFUSED, TRUCE_INVALID, __LINE__);
    check_change(UPDATE, not_primary, NOTHING, TRUCE_OK, __LINE__);
    check_change(MODIFY, not_primary, "{'ok': 0, 'code': 121, 'errmsg': 'no'}", TRUCE_INVALID,
                 __LINE__);
    check_change(REMOVE, not_primary, ONE, TRUCE_OK, __LINE__);
    wait_for_all();
}

/* In one thread, a lost answer of one call does not affect the next. */
TEST(limits_a_lost_reply_to_its_call)
{
    static const enum verb verbs[] = {UPDATE, MODIFY};
    static const char *const names[] = {"update", "findAndModify"};

    for (size_t i = 0; i < 2; i++) {
        struct stage stage = {{0}};
        bson_error_t error = {0};

        if (CHECK_OK(raise_stage(&stage, FAKE_STANDALONE, 21, "", &error), error)) {
            stage_script(&stage, (struct script){names[i], NULL, 1, 0});
            CHECK_STATUS(TRUCE_UNKNOWN, change(stage.store, verbs[i], &error), error);
            stage_script(
                &stage,
                (struct script){names[i],
                                "{'ok': 0, 'code': 121, 'errmsg': 'Document failed validation'}", 1,
                                0});
            CHECK_STATUS(TRUCE_INVALID, change(stage.store, verbs[i], &error), error);
        }
        strike(&stage);
    }
}

TEST(reports_an_unknown_outcome_after_a_timeout_of_mongos)
{
    static const struct {
        enum fake_deployment deployment;
        truce_status reported;
    } cases[] = {{FAKE_SHARDED, TRUCE_UNKNOWN}, {FAKE_REPLICA_SET, TRUCE_TIMEOUT}};

    for (size_t i = 0; i < 2; i++) {
        struct stage stage = {{0}};
        bson_error_t error = {0};

        if (CHECK_OK(raise_stage(&stage, cases[i].deployment, 21, "", &error), error)) {
            stage_script(&stage,
                         (struct script){"findAndModify",
                                         "{'ok': 0, 'code': 50, 'errmsg': 'out of time'}", 1, 0});
            CHECK_STATUS(cases[i].reported, change(stage.store, MODIFY, &error), error);
        }
        strike(&stage);
    }
}

/* ---- validators ----------------------------------------------------------------------------- */

#define BY_VALIDATOR                                                                               \
    "{'ok': 1, 'n': 0, 'nModified': 0, 'writeErrors': [{'index': 0, 'code': 121, 'errmsg': "       \
    "'Document failed validation'}]}"

struct refusing {
    int updates;
};

/* Finds a document of _id 1, and refuses every update. */
static enum fake_act refuse_updates(const bson_t *command, bson_t *reply, void *arg)
{
    struct refusing *refusing = arg;
    bson_t *said = NULL;

    if (bson_has_field(command, "update")) {
        refusing->updates++;
        said = test_bson(BY_VALIDATOR);
    } else if (bson_has_field(command, "find")) {
        said = test_bson(
            "{'cursor': {'id': 0, 'ns': 'db.things', 'firstBatch': [{'_id': 1, 'a': 1}]}}");
    } else {
        return FAKE_PASS;
    }
    bson_concat(reply, said);
    bson_destroy(said);
    return FAKE_ANSWER;
}

/* A guard alone, a guard whose document is found first, and one in a message with another write. */
TEST(reports_a_guard_refused_by_a_validator_and_does_not_retry_it)
{
    bson_t *by_id = test_bson("{'_id': 1}"), *other = test_bson("{'a': 1}");
    bson_t *update = test_bson("{'$set': {'b': 1}}");
    const truce_write guard = {
        .kind = TRUCE_WRITE_REQUIRE, .collection = "things", .filter = by_id};
    const truce_write found = {
        .kind = TRUCE_WRITE_REQUIRE, .collection = "things", .filter = other};
    const truce_write change = {
        .kind = TRUCE_WRITE_UPDATE, .collection = "things", .filter = by_id, .document = update};
    const truce_write cases[][2] = {{guard, guard}, {found, guard}, {guard, change}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        truce_write_outcome outcomes[2];
        struct stage stage = {{0}};
        bson_error_t error = {0};

        if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
            struct refusing refusing = {0};

            stage_script(&stage, (struct script){.own = refuse_updates, .arg = &refusing});
            CHECK_STATUS(TRUCE_INVALID,
                         truce_bulk(stage.store, cases[i], 2, &(truce_bulk_options){.atomic = true},
                                    outcomes, &error),
                         error);
            CHECK_INT(error.code, ==, 121);
            if (!strstr(error.message, MONGO_TOUCH) ||
                !strstr(error.message, "Document failed validation"))
                test_fail(__FILE__, __LINE__, "case %d: %s", (int)i, error.message);
            CHECK_INT(refusing.updates, ==, 1);
        }
        strike(&stage);
    }
    bson_destroy(by_id);
    bson_destroy(other);
    bson_destroy(update);
}

/* ---- snapshots whose history is gone --------------------------------------------------------- */

#define AT_FIVE "'atClusterTime': {'$timestamp': {'t': 5, 'i': 1}}"

static void check_gone(const char *then, int line)
{
    bson_t *filter = test_bson("{}"), found;
    struct stage stage = {{0}};
    truce_store *view = NULL;
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        stage_script(
            &stage,
            (struct script){"find",
                            "{'ok': 1, 'cursor': {'id': 0, 'ns': 'a.b', 'firstBatch': [], " AT_FIVE
                            "}}",
                            1, 0, then});
        CHECK_OK(truce_snapshot(stage.store, NULL, &view, &error), error);
    }
    if (view) {
        test_check_status(TRUCE_EXPIRED,
                          (int)truce_find_one(view, "things", filter, NULL, &found, &error), &error,
                          "find", __FILE__, line);
        bson_destroy(&found);
    }
    truce_store_close(view);
    strike(&stage);
    bson_destroy(filter);
}

TEST(reports_expired_for_a_snapshot_without_history)
{
    check_gone("{'ok': 0, 'code': 239, 'errmsg': 'older than the oldest'}", __LINE__);
    check_gone("{'ok': 0, 'code': 246, 'errmsg': 'the collection was changed since'}", __LINE__);
}
