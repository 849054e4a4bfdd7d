/*
 * A consumer of a broker dies at every one of its store calls, before or after the call's effect,
 * and at every call to the broker; then another one continues. In further runs a single call fails,
 * or loses its answer, and the consumer recovers by itself. At the end, each message has had its
 * effect once, each bad message is a reject once, and the broker has nothing left.
 */
#include "broker/consumer.h"
#include "tests/support/bank.h"
#include "tests/support/fake_broker.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

struct broker_rig {
    const struct story *story;
    truce_store *inner, *store;
    bool stops; /* at the first fault */
    int turns;
};

struct story {
    const char *into, *map, *collection, *filter;
    bool log;
    int64_t effects;
    int rejects;
    void (*prepare)(truce_store *store);
};

static void define_set(truce_store *store)
{
    truce_set *set = truce_set_new(store, &(truce_set_options){.collection = "students",
                                                               .key = "student_id",
                                                               .field = "classes",
                                                               .name = "name"});
    bson_error_t error = {0};

    CHECK_OK(truce_set_record(set, "define", NULL, 0, &error), error);
    truce_set_free(set);
}

static void open_counter(truce_store *store)
{
    insert_json(store, "sums", "{'_id': 's', 'n': 0}");
}

static const struct story stories[] = {
    {"queue:mail", NULL, "truce_queue", "{}", false, 4, 1, NULL},
    {"queue:mail", NULL, "truce_queue", "{}", true, 6, 1, NULL},
    {"commit",
     "[{'update': 'sums', 'id': 's', 'with': {'$inc': {'n': '$body.n'}}}, {'insert': 'log', "
     "'with': {'of': '$body'}}]",
     "log", "{}", false, 4, 1, open_counter},
    {"commit",
     "[{'update': 'sums', 'id': 's', 'with': {'$inc': {'n': '$body.n'}}}, {'insert': 'log', "
     "'with': {'of': '$body'}}]",
     "log", "{}", true, 6, 1, open_counter},
    {"set:students.classes",
     "{'operation': 'insert', 'key': {'student_id': '$body.n'}, 'element': {'name': 'x'}, 'seq': "
     "'$body.n'}",
     "students", "{'classes.name': 'x'}", false, 4, 1, define_set},
    {"set:students.classes",
     "{'operation': 'insert', 'key': {'student_id': '$body.n'}, 'element': {'name': 'x'}, 'seq': "
     "'$body.n'}",
     "students", "{'classes.name': 'x'}", true, 4, 1, define_set},
    {"upsert:things", "{'with': {'_id': '$body.n', 'v': '$body.n'}, 'version': 'v'}", "things",
     "{}", false, 4, 1, NULL},
};

/* Four messages, two of them twice, and a bad one. */
static void fill(bool log)
{
    fake_broker_begin(log);
    fake_broker_put("{'n': 1}", "a", 0);
    fake_broker_put("{'n': 2}", "b", log ? 1 : 0);
    fake_broker_put("{'n': 2}", "b", log ? 1 : 0);
    fake_broker_put("no JSON", "bad", 0);
    fake_broker_put("{'n': 3}", "c", 0);
    fake_broker_put("{'n': 1}", "a", 0);
    fake_broker_put("{'n': 4}", "d", log ? 2 : 0);
}

static void broker_rig_open(struct broker_rig *rig, const struct story *story, bool journal)
{
    truce_fault_options none = {0};
    truce_store *memory = NULL;
    bson_error_t error = {0};

    no_sleep_begin();
    CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error);
    if (journal)
        memory->capabilities &= ~(uint32_t)TRUCE_CAN_ATOMIC_BULK;
    *rig = (struct broker_rig){.story = story, .inner = truce_fault_wrap(memory, &none)};
    rig->store = truce_fault_wrap(rig->inner, &none);
    if (story->prepare)
        story->prepare(rig->store);
    fill(story->log);
}

static bool rig_stop(const truce_consume_counts *counts, void *arg)
{
    struct broker_rig *rig = arg;

    (void)counts;
    return (rig->stops && (truce_fault_hits(rig->inner) || truce_fault_hits(rig->store) ||
                           (fake_broker.fails_at && fake_broker.calls >= fake_broker.fails_at))) ||
           ++rig->turns > 1000;
}

static truce_status rig_consume(struct broker_rig *rig, bool stops, bson_error_t *error)
{
    bson_t *map = rig->story->map ? test_bson(rig->story->map) : NULL;
    truce_consume_options options = {.url = "fake://host/topic",
                                     .into = rig->story->into,
                                     .map = map,
                                     .map_is_array = map && rig->story->into[0] == 'c',
                                     .batch = 3,
                                     .until_empty = true,
                                     .stop = rig_stop,
                                     .arg = rig};
    truce_status status;

    rig->stops = stops;
    rig->turns = 0;
    status = truce__consume(rig->store, &options, &fake_broker_ops, NULL, error);
    bson_destroy(map);
    return status;
}

static void rig_check(struct broker_rig *rig, const char *what, uint64_t at)
{
    const struct story *story = rig->story;
    const truce_sweep_options sweep = {.retention_ms = -1};
    truce_sweep_report report;
    int before = test_failures();
    bson_error_t error = {0};

    CHECK_OK(rig_consume(rig, false, &error), error);
    CHECK_OK(truce_sweep(rig->store, &sweep, &report, &error), error);
    no_sleep_on(NULL, 60000); /* past the leases that the sweep saw */
    CHECK_OK(truce_sweep(rig->store, &sweep, &report, &error), error);
    CHECK_INT(count_json(rig->store, story->collection, story->filter), ==, story->effects);
    CHECK_INT(count_json(rig->store, "truce_rejects", "{}"), ==, story->rejects);
    CHECK_INT(fake_broker_left(), ==, 0);
    if (story->prepare == open_counter)
        CHECK_INT(count_json(rig->store, "sums", story->log ? "{'n': 13}" : "{'n': 10}"), ==, 1);
    if (test_failures() > before)
        test_fail(__FILE__, __LINE__, "%s %s: %s call %d", story->into,
                  story->log ? "log" : "queue", what, (int)at);
    truce_store_close(rig->store);
    fake_broker_end();
}

enum broker_death { DIES_BEFORE, DIES_AFTER, FAILS, LOSES };
static const char *const broker_deaths[] = {"dies before", "dies after", "fails", "loses"};

static void rig_arm(struct broker_rig *rig, enum broker_death death, uint64_t at)
{
    truce_fault_options inner = {0}, outer = {0};

    if (death == DIES_BEFORE)
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true};
    if (death == DIES_AFTER) {
        inner = (truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at};
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at + 1, .from_then_on = true};
    }
    if (death == FAILS)
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL, .at = at};
    if (death == LOSES)
        inner = (truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at};
    truce_fault_arm(rig->inner, &inner);
    truce_fault_arm(rig->store, &outer);
}

/* Returns whether the consumer met the fault. */
static bool die_at(const struct story *story, bool journal, enum broker_death death, uint64_t at)
{
    struct broker_rig rig;
    bson_error_t error;
    bool hit;

    broker_rig_open(&rig, story, journal);
    rig_arm(&rig, death, at);
    /* a failure while it begins ends a consumer */
    (void)rig_consume(&rig, death <= DIES_AFTER, &error);
    hit = truce_fault_hits(rig.inner) + truce_fault_hits(rig.store) > 0;
    rig_arm(&rig, DIES_BEFORE, UINT64_MAX);
    no_sleep_on(NULL, 60000); /* past the leases of its commits */
    rig_check(&rig, broker_deaths[death], at);
    return hit;
}

static void die_everywhere(bool journal)
{
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        for (enum broker_death death = DIES_BEFORE; death <= LOSES; death++) {
            uint64_t at = 1;

            while (at < 2000 && die_at(&stories[i], journal, death, at))
                at++;
            CHECK_INT(at, >, 3);
        }
}

TEST(applies_each_message_once_if_a_consumer_dies_anywhere)
{
    die_everywhere(false);
}

TEST(applies_each_message_once_if_the_consumer_dies_at_any_call)
{
    die_everywhere(true);
}

TEST(applies_each_message_once_if_the_connection_fails_anywhere)
{
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        for (int stops = 0; stops < 2; stops++) {
            bool hit = true;

            for (uint64_t at = 1; hit && at < 2000; at++) {
                struct broker_rig rig;
                bson_error_t error = {0};

                broker_rig_open(&rig, &stories[i], false);
                fake_broker.fails_at = at;
                fake_broker.status = TRUCE_IO;
                CHECK_OK(rig_consume(&rig, stops, &error), error);
                hit = fake_broker.calls >= at;
                fake_broker.fails_at = 0;
                rig_check(&rig, "the broker fails at", at);
            }
        }
}

/* The canary: this consumer acknowledges before the commit, as `amqp-consume | truce` does. */
TEST(a_consumer_that_acknowledges_first_loses_messages)
{
    struct broker_rig rig;
    struct broker_message *message = NULL;
    struct broker_open_options open_options = {0};
    bson_error_t error = {0};
    void *broker;

    broker_rig_open(&rig, &stories[0], false);
    CHECK_OK(fake_broker_ops.open(NULL, &open_options, &broker, &error), error);
    CHECK_OK(fake_broker_ops.receive(broker, 0, &message, &error), error);
    CHECK_OK(fake_broker_ops.acknowledge(broker, &message, 1, &error), error);
    fake_broker_ops.close(broker); /* it dies here */
    truce__broker_message_free(message);
    CHECK_OK(rig_consume(&rig, false, &error), error);
    CHECK_INT(fake_broker_left(), ==, 0);
    CHECK_INT(count_json(rig.store, "truce_queue", "{}"), ==, 3 + 1); /* its repetition survived */
    truce_store_close(rig.store);
    fake_broker_end();
}
