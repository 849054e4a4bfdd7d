/* The list of the consumers of all processes: truce_consumers. */
#include "broker/consumer_list.h"

#include "base/clock.h"
#include "base/field.h"
#include "bson/value.h"
#include "tests/support/bank.h"
#include "tests/support/no_sleep.h"

struct list_case {
    truce_store *store;
    bson_t list;
};

static void list_begin(struct list_case *c)
{
    bson_error_t error = {0};

    no_sleep_begin();
    CHECK_OK(truce_store_open("memory:", NULL, &c->store, &error), error);
    bson_init(&c->list);
}

static void list_end(struct list_case *c)
{
    bson_destroy(&c->list);
    truce_store_close(c->store);
}

static void list_report(struct list_case *c, const char *source, const char *worker,
                        int64_t received, int64_t waiting, bool ends)
{
    const struct consumers_report report = {.consumer = "mail",
                                            .source = source,
                                            .into = "queue:mail",
                                            .worker = worker,
                                            .started_ms = truce__clock_wall_ms(),
                                            .last_message_ms = truce__clock_wall_ms(),
                                            .rate = 2.5,
                                            .now = {.received = received, .waiting = waiting},
                                            .ends = ends};
    bson_error_t error = {0};

    CHECK_OK(truce__consumers_report(c->store, &report, &error), error);
}

/* Checks that the list has one consumer with these values. */
static void list_check(struct list_case *c, int64_t received, int64_t waiting, uint32_t workers)
{
    bson_error_t error = {0};
    bson_iter_t at;
    bson_t one, running;

    bson_destroy(&c->list);
    CHECK_OK(truce_consumers(c->store, &c->list, &error), error);
    CHECK_INT(bson_count_keys(&c->list), ==, 1);
    REQUIRE(bson_iter_init_find(&at, &c->list, "0"));
    truce__value_bson(truce__value_of_iter(&at), &one);
    CHECK_TEXT("mail", truce__field_text(&one, "consumer"));
    CHECK_INT(truce__field_number(&one, "received"), ==, received);
    CHECK_INT(bson_iter_init_find(&at, &one, "waiting") ? bson_iter_as_int64(&at) : -1, ==,
              waiting);
    REQUIRE(bson_iter_init_find(&at, &one, "workers"));
    truce__value_bson(truce__value_of_iter(&at), &running);
    CHECK_INT(bson_count_keys(&running), ==, workers);
    REQUIRE(bson_iter_init_find(&at, &one, "rate"));
    CHECK(bson_iter_as_double(&at) == 2.5 * workers);
}

TEST(workers_of_one_queue_share_its_waiting_messages)
{
    struct list_case c;

    list_begin(&c);
    list_report(&c, "amqp://host/mail", "one:1:0", 10, 7, false);
    list_check(&c, 10, 7, 1);
    list_report(&c, "amqp://host/mail", "two:1:0", 5, 6, false);
    list_check(&c, 15, 7, 2);
    list_report(&c, "amqp://host/mail", "one:1:0", 1, 0, false);
    list_check(&c, 16, 6, 2);
    list_end(&c);
}

TEST(workers_of_partitions_have_their_own_waiting_messages)
{
    struct list_case c;

    list_begin(&c);
    list_report(&c, "kafka://host/mail", "one:1:0", 10, 7, false);
    list_report(&c, "kafka://host/mail", "two:1:0", 5, 6, false);
    list_check(&c, 15, 13, 2);
    list_end(&c);
}

TEST(keeps_the_counts_of_workers_that_ended_or_died)
{
    struct list_case c;

    list_begin(&c);
    list_report(&c, "amqp://host/mail", "one:1:0", 10, 7, false);
    list_report(&c, "amqp://host/mail", "two:1:0", 5, 6, false);
    list_report(&c, "amqp://host/mail", "one:1:0", 1, 6, true);
    list_check(&c, 16, 6, 1);
    truce__clock_sleep_ms(CONSUMERS_LIVE_MS);
    list_check(&c, 16, -1, 0);
    list_report(&c, "amqp://host/mail", "three:1:0", 1, -1, false);
    CHECK_INT(count_json(c.store, "truce_consumers", "{'workers': {'$size': 1}}"), ==, 1);
    list_check(&c, 17, -1, 1);
    list_end(&c);
}

TEST(the_workers_of_a_consumer_have_a_maximum)
{
    struct list_case c;
    char worker[20];

    list_begin(&c);
    for (int i = 0; i < 300; i++) {
        snprintf(worker, sizeof worker, "one:1:%d", i);
        list_report(&c, "amqp://host/mail", worker, 1, -1, false);
    }
    list_check(&c, 300, -1, 256);
    list_end(&c);
}

TEST(a_consumer_without_reports_is_removed_after_a_month)
{
    struct list_case c;
    bson_error_t error = {0};

    list_begin(&c);
    list_report(&c, "amqp://host/mail", "one:1:0", 10, 7, true);
    truce__clock_sleep_ms(INT64_C(29) * 86400000);
    CHECK_OK(truce__consumers_forget(c.store, &error), error);
    list_check(&c, 10, -1, 0);
    truce__clock_sleep_ms(INT64_C(2) * 86400000);
    CHECK_OK(truce__consumers_forget(c.store, &error), error);
    CHECK_INT(count_json(c.store, "truce_consumers", "{}"), ==, 0);
    list_end(&c);
}

/* Other programs may write anything there. */
TEST(a_document_of_another_form_is_listed)
{
    static const char *const forms[] = {
        "{'_id': 'x'}",
        "{'_id': 'x', 'workers': 7, 'received': 'many', 'updated': 1}",
        "{'_id': 'x', 'workers': [1, {}, {'updated': 1}], 'source': 5, 'lastMessage': 'now'}",
        "{'_id': 1}",
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct list_case c;
        bson_error_t error = {0};

        list_begin(&c);
        insert_json(c.store, "truce_consumers", forms[i]);
        bson_destroy(&c.list);
        CHECK_OK(truce_consumers(c.store, &c.list, &error), error);
        CHECK_INT(bson_count_keys(&c.list), ==, 1);
        list_end(&c);
    }
}
