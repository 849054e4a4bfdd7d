/* The publisher of changes with a broker in this process: changes become CloudEvents, in order for
 * each document, and at least once (invariants BF1 to BF4). */
#include "base/clock.h"
#include "broker/feed_events.h"
#include "broker/publisher.h"
#include "store/file/file.h"
#include "tests/support/bank.h"
#include "tests/support/fake_broker.h"
#include "tests/support/no_sleep.h"
#include "truce/commit.h"
#include "truce/sys/decorate.h"

#define CHANGES 9 /* of feed_case_fill */

struct feed_case {
    truce_store *store, *faulty;
    struct engine *engine;
    truce_publish_options options;
    truce_publish_counts counts;
    int turns;
    /* In this turn, the unread changes are removed; 0: never. `removes_feed`: with the feed. */
    int removes_at;
    bool removes_feed;
    char path[400];
};

static void feed_case_remove(struct feed_case *c)
{
    bson_error_t error = {0};
    bool more = true;

    CHECK_OK(truce__engine_feed_keep(c->engine, c->removes_feed ? 0 : 1, 0, &error), error);
    truce__clock_sleep_ms(10);
    while (more && !c->removes_feed &&
           CHECK_OK(truce__engine_feed_prune(c->engine, NULL, &more, &error), error))
        continue;
    CHECK_OK(truce__engine_feed_keep(c->engine, 3600000, 0, &error), error);
}

static bool feed_case_stop(const truce_publish_counts *counts, void *arg)
{
    struct feed_case *c = arg;

    (void)counts;
    if (++c->turns == c->removes_at)
        feed_case_remove(c);
    return c->turns > 100;
}

static void feed_case_open(struct feed_case *c)
{
    const truce_store_options options = {.relaxed = true};
    const truce_fault_options none = {0};
    bson_error_t error = {0};

    CHECK_OK(truce_store_open(c->path, &options, &c->store, &error), error);
    c->engine = truce__file_engine(c->store);
    c->faulty = truce_fault_wrap(c->store, &none);
}

static void feed_case_begin(struct feed_case *c)
{
    static int number;

    no_sleep_begin();
    memset(c, 0, sizeof *c);
    snprintf(c->path, sizeof c->path, "%s/%d.truce", test_directory(), number++);
    feed_case_open(c);
    fake_broker_begin(false);
    c->options = (truce_publish_options){.changes = "students",
                                         .url = "fake://host/exchange",
                                         .batch = 3,
                                         .until_empty = true,
                                         .feed_ms = 3600000,
                                         .stop = feed_case_stop,
                                         .arg = c};
}

static void feed_case_end(struct feed_case *c)
{
    truce_store_close(c->faulty);
    fake_broker_end();
}

static truce_status feed_case_publish(struct feed_case *c, bson_error_t *error)
{
    c->turns = 0;
    return truce__publish(c->faulty, c->engine, &c->options, &fake_broker_ops, &c->counts, error);
}

static void publish_well(struct feed_case *c)
{
    bson_error_t error = {0};

    CHECK_OK(feed_case_publish(c, &error), error);
}

static void publish_badly(struct feed_case *c, truce_status status, const char *reason)
{
    bson_error_t error = {0};

    CHECK_INT(feed_case_publish(c, &error), ==, status);
    if (!strstr(error.message, reason))
        test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, reason);
}

static void change_student(struct feed_case *c, const char *filter, const char *update)
{
    bson_t *which = test_bson(filter), *how = update ? test_bson(update) : NULL;
    bson_error_t error = {0};

    if (how)
        CHECK_OK(truce_update(c->store, "students", which, how, NULL, NULL, &error), error);
    else
        CHECK_OK(truce_remove(c->store, "students", which, NULL, NULL, &error), error);
    bson_destroy(which);
    if (how)
        bson_destroy(how);
}

static truce_status enrol(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    (void)arg;
    for (int i = 0; i < 2 && !status; i++) {
        bson_t *class = BCON_NEW("_id", BCON_INT32(i));
        bson_t *student = BCON_NEW("_id", "{", "n", BCON_INT32(i), "}");

        status = truce_commit_insert(commit, "classes", class, error);
        if (!status)
            status = truce_commit_insert(commit, "students", student, error);
        bson_destroy(student);
        bson_destroy(class);
    }
    return status;
}

/* Makes CHANGES changes: of the student ada, of others, and of two in a commit. */
static void feed_case_fill(struct feed_case *c)
{
    bson_error_t error = {0};

    insert_json(c->store, "students", "{'_id': 'ada', 'year': 1}");
    insert_json(c->store, "students", "{'_id': 7, 'year': 1}");
    insert_json(c->store, "classes", "{'_id': 'x'}");
    change_student(c, "{'_id': 'ada'}", "{'$set': {'year': 2}, '$unset': {'none': 1}}");
    CHECK_OK(truce_transact(c->store, enrol, NULL, NULL, &error), error);
    change_student(c, "{'_id': 'ada'}", "{'name': 'Ada'}");
    change_student(c, "{'_id': 7}", NULL);
    change_student(c, "{'_id': 'ada'}", "{'$inc': {'n': 1}}");
    change_student(c, "{'_id': 'ada'}", NULL);
}

/* Returns a value of the n-th published event, as JSON. */
static const char *event_value(size_t n, const char *path)
{
    static char *text;
    bson_t *event = test_bson(fake_broker.published[n]);
    bson_iter_t at, found;

    bson_free(text);
    text = NULL;
    if (bson_iter_init(&at, event) && bson_iter_find_descendant(&at, path, &found)) {
        bson_t value = BSON_INITIALIZER;

        bson_append_iter(&value, "v", -1, &found);
        text = bson_as_relaxed_extended_json(&value, NULL);
        bson_destroy(&value);
    }
    bson_destroy(event);
    return text ? text : "none";
}

TEST(feed_events_are_cloudevents_in_order)
{
    static const char *const types[CHANGES] = {"insert",  "insert", "update", "insert", "insert",
                                               "replace", "delete", "update", "delete"};
    struct feed_case c;
    char expected[80];

    feed_case_begin(&c);
    publish_well(&c);
    feed_case_fill(&c);
    publish_well(&c);
    CHECK_INT(c.counts.published, ==, CHANGES);
    CHECK_INT(fake_broker.confirmed, ==, CHANGES);
    for (size_t i = 0; i < CHANGES; i++) {
        snprintf(expected, sizeof expected, "{ \"v\" : \"truce.%s\" }", types[i]);
        CHECK_TEXT(expected, event_value(i, "type"));
        CHECK_TEXT("{ \"v\" : \"1.0\" }", event_value(i, "specversion"));
        snprintf(expected, sizeof expected, "{ \"v\" : \"%s\" }", fake_broker.published_id[i]);
        CHECK_TEXT(expected, event_value(i, "id"));
        CHECK(i == 0 || strcmp(fake_broker.published_id[i - 1], fake_broker.published_id[i]) < 0);
    }
    CHECK_TEXT("ada", fake_broker.published_key[0]);
    CHECK_TEXT("7", fake_broker.published_key[1]);
    CHECK_TEXT("{\"n\": 0}", fake_broker.published_key[3]);
    CHECK_TEXT("{ \"v\" : { \"_id\" : \"ada\", \"year\" : 1 } }",
               event_value(0, "data.fullDocument"));
    CHECK_TEXT("{ \"v\" : { \"year\" : 2 } }",
               event_value(2, "data.updateDescription.updatedFields"));
    CHECK_TEXT("{ \"v\" : { \"_id\" : 7 } }", event_value(6, "data.documentKey"));
    CHECK_INT(count_json(c.store, "truce_outbox", "{'_id.publisher': 'students'}"), ==, 1);
    publish_well(&c);
    CHECK_INT(c.counts.published, ==, 0);
    feed_case_end(&c);
}

/* The events of one commit have one transaction, and the last one of the collection is marked. */
TEST(events_of_a_commit_are_marked)
{
    for (uint32_t batch = 1; batch <= 10; batch++) {
        struct feed_case c;
        char *transaction;

        feed_case_begin(&c);
        publish_well(&c);
        feed_case_fill(&c);
        c.options.batch = batch;
        publish_well(&c);
        for (size_t i = 0; i < CHANGES; i++) {
            CHECK_TEXT(i == 4 ? "{ \"v\" : 2 }" : "{ \"v\" : 1 }",
                       event_value(i, "transactionindex"));
            CHECK_TEXT(i == 3 ? "{ \"v\" : false }" : "{ \"v\" : true }",
                       event_value(i, "transactionlast"));
        }
        transaction = bson_strdup(event_value(3, "transaction"));
        CHECK_TEXT(transaction, event_value(4, "transaction"));
        CHECK(strcmp(transaction, event_value(2, "transaction")) != 0);
        CHECK(strcmp(transaction, event_value(5, "transaction")) != 0);
        bson_free(transaction);
        feed_case_end(&c);
    }
}

/* Checks that each change was confirmed, and that a repetition is equal. The events of a key came
 * for the first time in order, each after the confirm of the one before it. */
static void check_published(const char *what, uint64_t at)
{
    int before = test_failures();
    int distinct = 0;

    for (size_t i = 0; i < fake_broker.published_count; i++) {
        bool again = false;

        for (size_t k = 0; k < i; k++) {
            bool same = !strcmp(fake_broker.published_id[i], fake_broker.published_id[k]);

            CHECK_INT(same, ==, !strcmp(fake_broker.published[i], fake_broker.published[k]));
            again |= same;
            if (!same && !strcmp(fake_broker.published_key[i], fake_broker.published_key[k]) &&
                strcmp(fake_broker.published_id[i], fake_broker.published_id[k]) > 0)
                CHECK_INT(fake_broker.published_after[i], >, k); /* Invariant BF3. */
        }
        for (size_t k = i + 1; k < fake_broker.published_count && !again; k++)
            if (!strcmp(fake_broker.published_key[i], fake_broker.published_key[k]) &&
                strcmp(fake_broker.published_id[k], fake_broker.published_id[i]) < 0) {
                bool earlier = false;

                for (size_t j = 0; j < i; j++)
                    earlier |= !strcmp(fake_broker.published_id[j], fake_broker.published_id[k]);
                CHECK(earlier);
            }
        if (!again && distinct < CHANGES)
            distinct += !again;
    }
    CHECK_INT(distinct, ==, CHANGES);
    CHECK_INT(fake_broker.confirmed, ==, fake_broker.published_count);
    if (test_failures() > before)
        test_fail(__FILE__, __LINE__, "%s call %d", what, (int)at);
}

TEST(a_connection_that_fails_at_any_call_loses_no_change)
{
    bool hit = true;

    for (uint64_t at = 2; hit && at < 200; at++) {
        struct feed_case c;

        feed_case_begin(&c);
        publish_well(&c);
        feed_case_fill(&c);
        fake_broker.calls = 0;
        fake_broker.fails_at = at;
        fake_broker.status = TRUCE_IO;
        publish_well(&c);
        hit = fake_broker.calls >= at;
        check_published("the broker fails at", at);
        feed_case_end(&c);
    }
}

TEST(loses_no_change_if_a_publisher_crashes_at_any_broker_call)
{
    bool hit = true;

    for (uint64_t at = 1; hit && at < 200; at++) {
        struct feed_case c;
        bson_error_t error;

        feed_case_begin(&c);
        publish_well(&c);
        feed_case_fill(&c);
        fake_broker.calls = 0;
        fake_broker.fails_at = at;
        fake_broker.status = TRUCE_INVALID; /* it ends */
        hit = feed_case_publish(&c, &error) != TRUCE_OK;
        fake_broker.fails_at = 0;
        publish_well(&c);
        check_published("the publisher dies at the broker's", at);
        feed_case_end(&c);
    }
}

TEST(loses_no_change_if_a_publisher_crashes_at_any_store_call)
{
    for (int loses = 0; loses < 2; loses++) {
        bool hit = true;

        for (uint64_t at = 1; hit && at < 200; at++) {
            truce_fault_options fault = {.kind = loses ? TRUCE_FAULT_LOSE : TRUCE_FAULT_FAIL,
                                         .at = at,
                                         .from_then_on = true};
            truce_fault_options none = {0};
            struct feed_case c;
            bson_error_t error;

            feed_case_begin(&c);
            publish_well(&c);
            feed_case_fill(&c);
            truce_fault_arm(c.faulty, &fault);
            c.turns = 90; /* it gives up soon */
            (void)truce__publish(c.faulty, c.engine, &c.options, &fake_broker_ops, &c.counts,
                                 &error);
            hit = truce_fault_hits(c.faulty) > 0;
            truce_fault_arm(c.faulty, &none);
            publish_well(&c);
            check_published(loses ? "the store loses" : "the store fails at", at);
            feed_case_end(&c);
        }
    }
}

TEST(refuses_to_skip_removed_changes)
{
    struct feed_case c;
    bson_error_t error = {0};

    feed_case_begin(&c);
    publish_well(&c);
    feed_case_fill(&c);
    CHECK_OK(truce_collection_drop(c.store, "students", &error), error);
    CHECK_OK(truce_collection_drop(c.store, "classes", &error), error);
    CHECK_OK(truce__engine_feed_keep(c.engine, 0, 0, &error), error);
    publish_badly(&c, TRUCE_EXPIRED, "were removed from the feed");
    c.options.feed_ms = 0;
    CHECK_OK(truce__engine_feed_keep(c.engine, 3600000, 0, &error), error);
    publish_badly(&c, TRUCE_EXPIRED, "--from latest");
    feed_case_fill(&c);
    c.options.from = TRUCE_PUBLISH_FROM_OLDEST;
    publish_well(&c);
    CHECK_INT(c.counts.published, ==, CHANGES);
    c.options.from = TRUCE_PUBLISH_FROM_DEFAULT;
    publish_well(&c);
    feed_case_end(&c);
}

TEST(ends_if_changes_are_removed_while_it_publishes)
{
    for (int removes_feed = 0; removes_feed < 2; removes_feed++) {
        struct feed_case c;

        feed_case_begin(&c);
        publish_well(&c);
        feed_case_fill(&c);
        c.removes_at = 2;
        c.removes_feed = removes_feed;
        publish_badly(&c, TRUCE_EXPIRED, "were removed from the feed");
        CHECK_INT(c.counts.published, >, 0);
        c.removes_at = 0;
        publish_badly(&c, TRUCE_EXPIRED, "were removed from the feed");
        feed_case_end(&c);
    }
}

TEST(begins_at_the_oldest_or_the_latest_change)
{
    struct feed_case c;

    feed_case_begin(&c);
    publish_well(&c);
    feed_case_fill(&c);
    c.options.publisher = "late";
    publish_well(&c);
    CHECK_INT(c.counts.published, ==, 0);
    c.options.publisher = "all";
    c.options.from = TRUCE_PUBLISH_FROM_OLDEST;
    publish_well(&c);
    CHECK_INT(c.counts.published, ==, CHANGES);
    publish_well(&c); /* from its position */
    CHECK_INT(c.counts.published, ==, 0);
    c.options.publisher = "none";
    c.options.from = TRUCE_PUBLISH_FROM_STORED;
    publish_badly(&c, TRUCE_INVALID, "no stored position");
    feed_case_end(&c);
}

TEST(a_position_belongs_to_one_broker_and_one_collection)
{
    struct feed_case c;

    feed_case_begin(&c);
    publish_well(&c);
    c.options.url = "fake://user:secret@host/other";
    publish_badly(&c, TRUCE_INVALID, "belongs to fake://host/exchange");
    c.options.from = TRUCE_PUBLISH_FROM_STORED;
    publish_well(&c);
    c.options.changes = "classes";
    c.options.publisher = "students";
    publish_badly(&c, TRUCE_INVALID, "publishes changes of students");
    feed_case_end(&c);
}

TEST(refuses_a_store_without_changes)
{
    struct feed_case c;

    feed_case_begin(&c);
    c.options.feed_ms = 0;
    publish_badly(&c, TRUCE_INVALID, "--feed-keep 24h");
    c.options.changes = "truce_queue";
    c.options.feed_ms = 1000;
    publish_badly(&c, TRUCE_INVALID, "a collection of truce");
    c.options.queue = "out";
    publish_badly(&c, TRUCE_INVALID, "`queue` or `changes`");
    c.options.changes = NULL;
    publish_badly(&c, TRUCE_INVALID, "are for changes");
    c.options.queue = NULL;
    c.options.changes = "students";
    c.engine = NULL; /* that of a decorated store is not found */
    publish_badly(&c, TRUCE_INVALID, "a store in a file");
    feed_case_end(&c);
}

TEST(publishes_a_drop_and_a_rename)
{
    struct feed_case c;
    bson_error_t error = {0};

    feed_case_begin(&c);
    publish_well(&c);
    insert_json(c.store, "students", "{'_id': 1}");
    CHECK_OK(truce_collection_rename(c.store, "students", "old", false, &error), error);
    insert_json(c.store, "students", "{'_id': 2}");
    CHECK_OK(truce_collection_drop(c.store, "students", &error), error);
    c.options.key = "$type";
    publish_well(&c);
    CHECK_INT(c.counts.published, ==, 4);
    CHECK_TEXT("{ \"v\" : \"truce.rename\" }", event_value(1, "type"));
    CHECK_TEXT("{ \"v\" : \"old\" }", event_value(1, "data.to"));
    CHECK_TEXT("{ \"v\" : \"truce.drop\" }", event_value(3, "type"));
    CHECK(!fake_broker.published_key[3]);
    CHECK_INT(fake_broker.published_after[2], ==, 2);
    feed_case_end(&c);
}
