/* A server that stalls or dies blocks no call for longer than its deadline, and the store finds it
 * again. The time limits here are far longer than the expected waits, and far shorter than a
 * connection's own time-out. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "store/mongodb/mongo.h"
#include "tests/support/bank.h"
#include "tests/support/stage.h"
#include "tests/support/tutorial.h"

#define DEADLINE_MS 500
#define LONGEST_MS  60000
/* Much longer than the second for an answer that is under way. */
#define OPENING_MS 4000

/* ---- a server that stalls -------------------------------------------------------------------- */

enum call {
    INSERT,
    UPDATE_ONE,
    MODIFY,
    TRANSACTION,
    FIND,
    COMMIT,
    COMMIT_BY_JOURNAL,
    ITEM,
    SAVE,
    SET,
    LOOK,
    CALLS
};

static truce_status look_and_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", error);

    (void)arg;
    return status ? status : add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", error);
}

/* They consist of several messages, and have one deadline. */
static truce_status do_pattern(truce_store *store, enum call call, bson_error_t *error)
{
    bson_t *filter = test_bson("{'_id': 1}"), *mine = test_bson("{'_id': 1, 'a': 2}");
    bson_t *key = test_bson("{'student_id': 1}"), *thing = test_bson("{'type': 'A', 'name': 'A'}");
    truce_item *item = tutorial_item(store, &(truce_item_options){.deadline_ms = DEADLINE_MS});
    truce_revision *revision =
        tutorial_revision(store, &(truce_revision_options){.deadline_ms = DEADLINE_MS});
    truce_set *set = tutorial_set(store, &(truce_set_options){.deadline_ms = DEADLINE_MS});
    bson_value_t a = text_id("a"), b = text_id("b");
    truce_read_request looks[2] = {{.collection = "things", .id = &a},
                                   {.collection = "things", .id = &b}};
    truce_revision_result result;
    truce_status status;

    if (call == ITEM) {
        status = truce_item_add(item, NULL, filter, thing, NULL, error);
    } else if (call == SAVE) {
        status = truce_revision_save(revision, NULL, mine, 1, filter, &result, error);
        truce_revision_result_release(&result);
    } else if (call == SET) {
        status = truce_set_add(set, NULL, key, thing, 1, NULL, error);
    } else {
        status = truce_read_many(store, looks, 2,
                                 &(truce_read_many_options){.deadline_ms = DEADLINE_MS}, error);
        bson_destroy(&looks[0].document);
        bson_destroy(&looks[1].document);
    }
    truce_set_free(set);
    truce_revision_free(revision);
    truce_item_free(item);
    bson_destroy(thing);
    bson_destroy(key);
    bson_destroy(mine);
    bson_destroy(filter);
    return status;
}

static truce_status do_call(truce_store *store, enum call call, bson_error_t *error)
{
    bson_t *document = test_bson("{'_id': 1}"), *update = test_bson("{'$set': {'a': 1}}"), shown;
    truce_write_options options = {.deadline_ms = DEADLINE_MS};
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "things", .document = document},
        {.kind = TRUCE_WRITE_INSERT, .collection = "others", .document = document}};
    truce_bulk_options bulk = {.atomic = true, .deadline_ms = DEADLINE_MS};
    truce_commit_options commit = {.deadline_ms = DEADLINE_MS};
    truce_write_outcome outcomes[2];
    truce_cursor *cursor = NULL;
    truce_status status = TRUCE_OK;

    commit.mechanism = call == COMMIT_BY_JOURNAL ? TRUCE_MECHANISM_JOURNAL : TRUCE_MECHANISM_AUTO;
    switch (call) {
    case INSERT:
        status = truce_insert(store, "things", document, &options, error);
        break;
    case UPDATE_ONE:
        status = truce_update(store, "things", document, update, &options, NULL, error);
        break;
    case MODIFY:
        status = truce_find_and_modify(store, "things", document, update,
                                       &(truce_modify_options){.deadline_ms = DEADLINE_MS}, &shown,
                                       NULL, error);
        bson_destroy(&shown);
        break;
    case TRANSACTION:
        status = truce_bulk(store, writes, 2, &bulk, outcomes, error);
        break;
    case FIND:
        status = truce_find(store, "things", document,
                            &(truce_find_options){.deadline_ms = DEADLINE_MS}, &cursor, error);
        truce_cursor_close(cursor);
        break;
    case COMMIT:
    case COMMIT_BY_JOURNAL:
        status = truce_transact(store, look_and_change, NULL, &commit, error);
        break;
    case ITEM:
    case SAVE:
    case SET:
    case LOOK:
        status = do_pattern(store, call, error);
        break;
    case CALLS:
        break;
    }
    bson_destroy(document);
    bson_destroy(update);
    return status;
}

static void *run_call(void *arg)
{
    enum call call = *(enum call *)arg;
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        int64_t begun_ns = truce__clock_monotonic_ns();
        truce_status status;

        fake_freeze(stage.fake, true);
        status = do_call(stage.store, call, &error);
        if (status != TRUCE_UNKNOWN && status != TRUCE_IO && status != TRUCE_LOCKED &&
            status != TRUCE_TIMEOUT && !(call == TRANSACTION && status == TRUCE_CONFLICT))
            test_fail(__FILE__, __LINE__, "call %d: %s: %s", (int)call, truce_status_name(status),
                      error.message);
        CHECK_INT((truce__clock_monotonic_ns() - begun_ns) / 1000000, <, LONGEST_MS);
        fake_freeze(stage.fake, false);
        status = do_call(stage.store, UPDATE_ONE, &error);
        for (int i = 0; i < 60 && (status == TRUCE_UNKNOWN || status == TRUCE_IO); i++)
            status = do_call(stage.store, INSERT, &error); /* by connections of before */
        CHECK_OK(status, error);
    }
    strike(&stage);
    return NULL;
}

TEST(ends_calls_on_a_stalled_server_at_their_deadline)
{
    enum call calls[CALLS];
    pthread_t threads[CALLS];

    for (int i = 0; i < CALLS; i++) {
        calls[i] = (enum call)i;
        if (pthread_create(&threads[i], NULL, run_call, &calls[i]))
            abort();
    }
    for (int i = 0; i < CALLS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- how long after its deadline a call may end ----------------------------------------------- */

#define LATE_MS  400
#define ATTEMPTS 20

static int64_t ms_since(int64_t begun_ns)
{
    return (truce__clock_monotonic_ns() - begun_ns) / 1000000;
}

/* Opens a store on a silent server. Returns how many milliseconds after the deadline it ended. */
static int64_t open_late(uint32_t deadline_ms)
{
    struct fake *fake = fake_start(FAKE_REPLICA_SET, 21, NULL, NULL);
    truce_store_options options = {.deadline_ms = deadline_ms};
    int64_t begun_ns = truce__clock_monotonic_ns(), late_ms;
    truce_store *store;
    bson_error_t error;

    fake_freeze(fake, true);
    CHECK_STATUS(TRUCE_IO, truce_store_open(fake_uri(fake, ""), &options, &store, &error), error);
    late_ms = ms_since(begun_ns) - deadline_ms;
    fake_stop(fake);
    return late_ms;
}

/* Runs a call on a server that became silent. */
static int64_t call_late(enum call call)
{
    struct stage stage = {{0}};
    bson_error_t error = {0};
    int64_t late_ms = INT64_MAX;

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        int64_t begun_ns = truce__clock_monotonic_ns();

        fake_freeze(stage.fake, true);
        (void)!do_call(stage.store, call, &error);
        late_ms = ms_since(begun_ns) - DEADLINE_MS;
        fake_freeze(stage.fake, false);
    }
    strike(&stage);
    return late_ms;
}

/* A busy machine delays some attempts, but not all of them. */
TEST(a_call_ends_soon_after_its_deadline)
{
    static const uint32_t openings[] = {300, 1000, 2600, 3000};

    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        int64_t late_ms = INT64_MAX;

        for (int k = 0; k < ATTEMPTS && late_ms > LATE_MS; k++)
            late_ms = open_late(openings[i]);
        if (late_ms > LATE_MS)
            test_fail(__FILE__, __LINE__, "an opening with %u ms ended %lld ms late", openings[i],
                      (long long)late_ms);
    }
    for (int call = 0; call < CALLS; call++) {
        int64_t late_ms = INT64_MAX;

        for (int k = 0; k < ATTEMPTS && late_ms > LATE_MS; k++)
            late_ms = call_late((enum call)call);
        if (late_ms > LATE_MS)
            test_fail(__FILE__, __LINE__, "call %d ended %lld ms late", call, (long long)late_ms);
    }
}

/* ---- a commit that stalls at one of its messages --------------------------------------------- */

struct standing {
    const char *at; /* this command is the first that is not answered */
    bool still;
};

static void say(bson_t *reply, const char *json)
{
    bson_t *said = test_bson(json);

    bson_concat(reply, said);
    bson_destroy(said);
}

static enum fake_act stand(const bson_t *command, bson_t *reply, void *arg)
{
    struct standing *standing = arg;
    bson_iter_t iter;

    standing->still = standing->still || (standing->at && bson_has_field(command, standing->at) &&
                                          bson_iter_init_find(&iter, command, "$db"));
    if (standing->still)
        return FAKE_SILENT;
    if (bson_has_field(command, "find"))
        say(reply,
            "{'cursor': {'id': 0, 'ns': 'db.things', 'firstBatch': [{'_id': 'a', 'n': 1}]}}");
    else if (bson_has_field(command, "update"))
        say(reply, "{'n': 2, 'nModified': 2}");
    else
        return FAKE_PASS;
    return FAKE_ANSWER;
}

static void *run_standing(void *arg)
{
    struct standing standing = {.at = NULL};
    truce_commit_options options = {.deadline_ms = DEADLINE_MS,
                                    .mechanism = TRUCE_MECHANISM_NATIVE};
    struct stage stage = {.script = {.own = stand, .arg = &standing}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        int64_t begun_ns = truce__clock_monotonic_ns();
        truce_status status;

        standing.at = arg;
        if (!strcmp(arg, "find")) /* the second message of a change of items */
            status = do_pattern(stage.store, ITEM, &error);
        else
            status = truce_transact(stage.store, look_and_change, NULL, &options, &error);
        if (status != TRUCE_UNKNOWN && status != TRUCE_IO && status != TRUCE_LOCKED &&
            status != TRUCE_TIMEOUT)
            test_fail(__FILE__, __LINE__, "%s: %s: %s", (const char *)arg,
                      truce_status_name(status), error.message);
        if (!strcmp(arg, "commitTransaction") && status != TRUCE_UNKNOWN && status != TRUCE_IO)
            test_fail(__FILE__, __LINE__, "%s: %s", truce_status_name(status), error.message);
        CHECK_INT((truce__clock_monotonic_ns() - begun_ns) / 1000000, <, LONGEST_MS);
    }
    strike(&stage);
    return NULL;
}

TEST(ends_a_commit_in_time_at_any_stall_of_the_server)
{
    static const char *const places[] = {"update", "commitTransaction", "listIndexes", "find"};
    enum { PLACES = sizeof places / sizeof *places };
    pthread_t threads[PLACES];

    for (int i = 0; i < PLACES; i++)
        if (pthread_create(&threads[i], NULL, run_standing, (void *)places[i]))
            abort();
    for (int i = 0; i < PLACES; i++)
        pthread_join(threads[i], NULL);
}

/* ---- an opening that stalls at one of its messages ------------------------------------------- */

/* A place is the name of a command and how many of them are answered before. */
struct opening {
    const char *at;
    atomic_int answered;
    /* Set by the threads of the server. */
    atomic_bool still;
};

static enum fake_act stand_in_opening(const bson_t *command, bson_t *reply, void *arg)
{
    struct opening *opening = arg;

    (void)reply;
    if (bson_has_field(command, opening->at) && bson_has_field(command, "$db"))
        opening->still = opening->still || opening->answered-- <= 0;
    return opening->still ? FAKE_SILENT : FAKE_PASS;
}

static void *run_opening(void *arg)
{
    struct opening *opening = arg;
    struct stage stage = {.script = {.own = stand_in_opening, .arg = opening},
                          .options = {.deadline_ms = OPENING_MS}};
    int64_t begun_ns = truce__clock_monotonic_ns();
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_IO, raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error);
    CHECK(opening->still);
    CHECK_INT((truce__clock_monotonic_ns() - begun_ns) / 1000000, <, 3 * OPENING_MS);
    strike(&stage);
    return NULL;
}

TEST(ends_an_opening_in_time_at_any_stall_of_the_server)
{
    static struct opening openings[] = {{"delete", 0, false},
                                        {"update", 0, false},
                                        {"update", 1, false},
                                        {"find", 0, false},
                                        {"commitTransaction", 0, false}};
    enum { OPENINGS = sizeof openings / sizeof *openings };
    pthread_t threads[OPENINGS];

    for (int i = 0; i < OPENINGS; i++)
        if (pthread_create(&threads[i], NULL, run_opening, &openings[i]))
            abort();
    for (int i = 0; i < OPENINGS; i++)
        pthread_join(threads[i], NULL);
}

/* A connection that breaks says nothing of what the server supports. */
static enum fake_act cut_once(const bson_t *command, bson_t *reply, void *arg)
{
    struct opening *opening = arg;

    (void)reply;
    if (!bson_has_field(command, opening->at) || opening->answered-- != 0)
        return FAKE_PASS;
    opening->still = true;
    return FAKE_CUT;
}

TEST(has_every_capability_if_a_reply_was_lost_during_the_opening)
{
    static const struct opening openings[] = {
        {"update", 0, false}, {"update", 1, false}, {"find", 0, false}};
    const uint32_t abilities = TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS |
                               TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_SNAPSHOT_READ;

    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        struct opening opening = openings[i];
        struct stage stage = {.script = {.own = cut_once, .arg = &opening}};
        bson_error_t error = {0};

        if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error))
            CHECK((stage.store->capabilities & abilities) == abilities);
        CHECK(opening.still);
        strike(&stage);
    }
}

/* ---- a server that dies and comes back ------------------------------------------------------ */

static void *revive(void *arg)
{
    truce__clock_sleep_ms(3000); /* longer than one step of looking for it */
    fake_die(arg, false);
    return NULL;
}

static void *run_revived(void *arg)
{
    enum call call = *(enum call *)arg;
    bson_t *document = test_bson("{'_id': 1}"), *update = test_bson("{'$set': {'a': 1}}"), shown;
    struct stage stage = {{0}};
    truce_cursor *cursor = NULL;
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error)) {
        truce_status status;
        pthread_t thread;

        fake_die(stage.fake, true);
        /* the first call learns that it is dead */
        (void)!truce_insert(stage.store, "things", document,
                            &(truce_write_options){.deadline_ms = 1}, &error);
        if (pthread_create(&thread, NULL, revive, stage.fake))
            abort();
        if (call == INSERT) {
            status = truce_insert(stage.store, "things", document, NULL, &error);
        } else if (call == FIND) {
            status = truce_find(stage.store, "things", document, NULL, &cursor, &error);
            truce_cursor_close(cursor);
        } else {
            status = truce_find_and_modify(stage.store, "things", document, update, NULL, &shown,
                                           NULL, &error);
            bson_destroy(&shown);
        }
        CHECK_STATUS(call == MODIFY ? TRUCE_NOT_FOUND : TRUCE_OK, status, error);
        pthread_join(thread, NULL);
    }
    strike(&stage);
    bson_destroy(document);
    bson_destroy(update);
    return NULL;
}

TEST(waits_for_a_server_that_restarts)
{
    static enum call calls[] = {INSERT, MODIFY, FIND};
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, run_revived, &calls[i]))
            abort();
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}
