/* The publisher with a broker in this process: jobs become messages, at least once. */
#include "broker/publisher.h"
#include "tests/support/bank.h"
#include "tests/support/fake_broker.h"
#include "tests/support/no_sleep.h"
#include "truce/sys/decorate.h"

struct publish_case {
    truce_store *store;
    truce_publish_options options;
    truce_publish_counts counts;
    int turns;
};

static bool publish_case_stop(const truce_publish_counts *counts, void *arg)
{
    struct publish_case *c = arg;

    (void)counts;
    return ++c->turns > 200;
}

static void publish_case_begin(struct publish_case *c)
{
    truce_fault_options none = {0};
    bson_error_t error = {0};
    truce_store *memory = NULL;
    truce_queue *queue;

    no_sleep_begin();
    memset(c, 0, sizeof *c);
    CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error);
    c->store = truce_fault_wrap(memory, &none);
    queue = truce_queue_new(c->store, &(truce_queue_options){.queue = "out"});
    for (int i = 0; i < 5; i++) {
        bson_t *payload = BCON_NEW("n", BCON_INT32(i), "customer", i < 4 ? "ada" : "bob");

        CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
        bson_destroy(payload);
    }
    truce_queue_free(queue);
    fake_broker_begin(false);
    c->options = (truce_publish_options){.queue = "out",
                                         .url = "fake://host/exchange",
                                         .batch = 2,
                                         .until_empty = true,
                                         .stop = publish_case_stop,
                                         .arg = c};
}

static void publish_case_end(struct publish_case *c)
{
    truce_store_close(c->store);
    fake_broker_end();
}

/* Returns how often the n-th job was published. */
static int times(int n)
{
    char body[60];
    int count = 0;

    snprintf(body, sizeof body, "{\"n\": %d,", n);
    for (size_t i = 0; i < fake_broker.confirmed; i++)
        count += !strncmp(fake_broker.published[i], body, strlen(body));
    return count;
}

TEST(jobs_are_published_in_order_and_end)
{
    struct publish_case c;
    bson_error_t error = {0};

    publish_case_begin(&c);
    c.options.key = "$payload.customer";
    CHECK_OK(truce__publish(c.store, NULL, &c.options, &fake_broker_ops, &c.counts, &error), error);
    CHECK_INT(c.counts.published, ==, 5);
    CHECK_INT(fake_broker.confirmed, ==, 5);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(times(i), ==, 1);
        CHECK(!strncmp(fake_broker.published_id[i], "out/", 4));
    }
    CHECK_TEXT("{\"n\": 0, \"customer\": \"ada\"}", fake_broker.published[0]);
    CHECK_INT(count_json(c.store, "truce_queue", "{'state': 'done'}"), ==, 5);
    publish_case_end(&c);
}

/* Equal ids have equal bodies: a repetition has the id of its job. */
static void check_ids(void)
{
    for (size_t i = 0; i < fake_broker.published_count; i++)
        for (size_t k = 0; k < i; k++)
            CHECK_INT(!strcmp(fake_broker.published[i], fake_broker.published[k]), ==,
                      !strcmp(fake_broker.published_id[i], fake_broker.published_id[k]));
}

TEST(a_connection_that_fails_at_any_call_loses_no_message)
{
    bool hit = true;

    for (uint64_t at = 1; hit && at < 200; at++) {
        struct publish_case c;
        bson_error_t error = {0};

        publish_case_begin(&c);
        fake_broker.fails_at = at;
        fake_broker.status = TRUCE_IO;
        CHECK_OK(truce__publish(c.store, NULL, &c.options, &fake_broker_ops, &c.counts, &error),
                 error);
        hit = fake_broker.calls >= at;
        for (int i = 0; i < 5; i++)
            CHECK_INT(times(i), >=, 1);
        check_ids();
        CHECK_INT(count_json(c.store, "truce_queue", "{'state': 'done'}"), ==, 5);
        publish_case_end(&c);
    }
}

/* The leases of jobs that were claimed by a dead publisher end. */
static void publish_rest(struct publish_case *c)
{
    for (int i = 0; i < 20 && count_json(c->store, "truce_queue", "{'state': 'done'}") < 5; i++) {
        bson_error_t error = {0};
        truce_sweep_report report;

        c->turns = 0;
        CHECK_OK(truce__publish(c->store, NULL, &c->options, &fake_broker_ops, &c->counts, &error),
                 error);
        no_sleep_on(NULL, 31000);
        CHECK_OK(truce_sweep(c->store, NULL, &report, &error), error);
    }
}

TEST(loses_no_message_if_a_publisher_crashes_at_any_store_call)
{
    bool hit = true;

    for (uint64_t at = 1; hit && at < 500; at++) {
        truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true};
        truce_fault_options none = {0};
        struct publish_case c;
        bson_error_t error;

        publish_case_begin(&c);
        truce_fault_arm(c.store, &fault);
        c.turns = 195; /* it gives up soon */
        (void)truce__publish(c.store, NULL, &c.options, &fake_broker_ops, &c.counts, &error);
        hit = truce_fault_hits(c.store) > 0;
        truce_fault_arm(c.store, &none);
        publish_rest(&c);
        for (int i = 0; i < 5; i++)
            CHECK_INT(times(i), >=, 1);
        check_ids();
        CHECK_INT(count_json(c.store, "truce_queue", "{'state': 'done'}"), ==, 5);
        publish_case_end(&c);
    }
}

TEST(ends_the_publisher_after_a_refusal_and_keeps_the_jobs)
{
    struct publish_case c;
    bson_error_t error = {0};

    publish_case_begin(&c);
    fake_broker.fails_at = 4; /* the confirm */
    fake_broker.status = TRUCE_NOT_FOUND;
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 truce__publish(c.store, NULL, &c.options, &fake_broker_ops, &c.counts, &error),
                 error);
    CHECK_INT(count_json(c.store, "truce_queue", "{'state': 'ready'}"), ==, 5);
    publish_case_end(&c);
}

TEST(wrong_options_of_a_publisher_are_refused)
{
    struct publish_case c;
    bson_error_t error = {0};

    publish_case_begin(&c);
    c.options.key = "customer";
    CHECK_STATUS(TRUCE_INVALID,
                 truce__publish(c.store, NULL, &c.options, &fake_broker_ops, &c.counts, &error),
                 error);
    c.options.key = "$payload.n"; /* no string */
    CHECK_STATUS(TRUCE_INVALID,
                 truce__publish(c.store, NULL, &c.options, &fake_broker_ops, &c.counts, &error),
                 error);
    CHECK_INT(count_json(c.store, "truce_queue", "{'state': 'ready'}"), ==, 5);
    publish_case_end(&c);
}
