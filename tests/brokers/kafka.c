/*
 * The program truce and a real Kafka (tests/brokers/serve kafka): jobs from three partitions with
 * consumers that are killed, numbers from the positions of the log, and errors by their name.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <librdkafka/rdkafka.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "tests/brokers/broker_rates.h"
#include "tests/support/broker_trial.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "truce/truce.h"

static rd_kafka_t *producer;

static void begin(void)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char reason[300];

    CHECK(!rd_kafka_conf_set(conf, "bootstrap.servers",
                             getenv("TRUCE_TEST_KAFKA") + strlen("kafka://"), reason,
                             sizeof reason));
    producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof reason);
    REQUIRE(producer != NULL);
}

/* Waits for the result of an administrative call, and frees the queue of the result. */
static void await_done(rd_kafka_queue_t *queue)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 60000);

    CHECK(event && !rd_kafka_event_error(event));
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
}

static void make_topic(const char *topic, int partitions)
{
    char reason[300];
    rd_kafka_NewTopic_t *made = rd_kafka_NewTopic_new(topic, partitions, 1, reason, sizeof reason);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(producer);

    rd_kafka_CreateTopics(producer, &made, 1, NULL, queue);
    await_done(queue);
    rd_kafka_NewTopic_destroy(made);
}

static void delete_topic(const char *topic)
{
    rd_kafka_DeleteTopic_t *deleted = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(producer);

    rd_kafka_DeleteTopics(producer, &deleted, 1, NULL, queue);
    await_done(queue);
    rd_kafka_DeleteTopic_destroy(deleted);
}

static void add_partitions(const char *topic, size_t total)
{
    char reason[300];
    rd_kafka_NewPartitions_t *added =
        rd_kafka_NewPartitions_new(topic, total, reason, sizeof reason);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(producer);

    rd_kafka_CreatePartitions(producer, &added, 1, NULL, queue);
    await_done(queue);
    rd_kafka_NewPartitions_destroy(added);
}

static void put(const char *topic, int32_t partition, const char *body)
{
    CHECK_INT(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                RD_KAFKA_V_VALUE((void *)body, strlen(body)),
                                RD_KAFKA_V_HEADER("lane", "l", 1),
                                RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
              ==, 0);
}

static void end(void)
{
    CHECK_INT(rd_kafka_flush(producer, 60000), ==, 0);
    rd_kafka_destroy(producer);
}

static char *kafka_url(const char *path)
{
    return bson_strdup_printf("%s/%s", getenv("TRUCE_TEST_KAFKA"), path);
}

static char *kafka_store(const char *name)
{
    return bson_strdup_printf("%s/%s.truce", test_directory(), name);
}

static int64_t count_in(const char *uri, const char *collection, const char *filter_json)
{
    bson_t *filter = test_bson(filter_json);
    bson_error_t error = {0};
    truce_store *store = NULL;
    int64_t count = -1;

    if (CHECK_OK(truce_store_open(uri, NULL, &store, &error), error))
        CHECK_OK(truce_count(store, collection, filter, NULL, &count, &error), error);
    truce_store_close(store);
    bson_destroy(filter);
    return count;
}

/* ---- kills ----------------------------------------------------------------------------------- */

#define PARTITIONS 6

static int64_t put_all(const char *topic, int64_t count)
{
    int64_t total, *order = broker_trial_order(count, &total);
    char body[250], id[32];

    for (int64_t i = 0; i < total; i++) {
        broker_trial_message(order[i], body, id);
        put(topic, (int32_t)(i % PARTITIONS), body);
        if (i % 50000 == 49999)
            CHECK_INT(rd_kafka_flush(producer, 60000), ==, 0);
    }
    bson_free(order);
    return total;
}

/* Checks that the stored positions are the ends of the partitions. */
static void check_positions(const char *store, int64_t total)
{
    const struct command *command =
        command_run(TRUCE_CLI, store, NULL, "aggregate", "truce_inbox",
                    "[{$match: {\"_id.topic\": {$exists: true}}}, {$group: {_id: null, n: {$sum: "
                    "\"$next\"}}}]",
                    NULL);
    char expected[60];

    snprintf(expected, sizeof expected, "\"n\": %lld", (long long)total);
    if (!strstr(command->out, expected))
        test_fail(__FILE__, __LINE__, "the positions are not %s: %s", expected, command->out);
}

/* Runs the trial, and returns the number of its messages. */
static int64_t try_topic(const char *topic, const char *store, const char *into, const char *map)
{
    /* dead members of the group are noticed after six seconds, not 45 */
    char *options =
        bson_strdup_printf("%s?session.timeout.ms=6000&heartbeat.interval.ms=1000", topic);
    char *url = kafka_url(options);
    struct broker_trial trial = {.program = TRUCE_CLI,
                                 .store = store,
                                 .url = url,
                                 .into = into,
                                 .map = map,
                                 .id = "$body.sequence_number",
                                 .pause_ms = 1000};
    int64_t count = broker_trial_count(&trial.full), total;

    begin();
    make_topic(topic, PARTITIONS);
    total = put_all(topic, count);
    end();
    broker_trial_prepare(&trial);
    broker_trial_run(&trial);
    check_positions(store, total);
    bson_free(options);
    bson_free(url);
    return count;
}

TEST(a_set_survives_kills_and_rebalances)
{
    char *store = kafka_store("set");

    broker_trial_check_set(store,
                           try_topic("enrolments", store, BROKER_TRIAL_SET, BROKER_TRIAL_SET_MAP));
    bson_free(store);
}

TEST(each_message_is_one_job_and_one_post_despite_kills_and_rebalances)
{
    char *store = kafka_store("mail");

    broker_trial_check_posts(TRUCE_CLI, store,
                             try_topic("mail", store, BROKER_TRIAL_POSTS, BROKER_TRIAL_POSTS_MAP));
    bson_free(store);
}

#ifdef TRUCE_TEST_LIBPQ
/* Each consumer reads a topic from its beginning. Each number of messages has a topic. */
static char *fill_rates(int64_t count, int64_t *total)
{
    static struct {
        int64_t count, total;
    } filled[2];
    int which = filled[0].count && filled[0].count != count;
    char topic[40];

    snprintf(topic, sizeof topic, "rates-%lld", (long long)count);
    if (!filled[which].count) {
        begin();
        make_topic(topic, PARTITIONS);
        filled[which].count = count;
        filled[which].total = put_all(topic, count);
        end();
    }
    *total = filled[which].total;
    return kafka_url(topic);
}

TEST(measures_the_rates_of_consumers_of_kafka)
{
    if (!getenv("TRUCE_TEST_POSTGRES"))
        test_skip("tests/brokers/rates starts the servers");
    else
        broker_rates_run(&(struct broker_rates){
            .program = TRUCE_CLI, .fill = fill_rates, .id = "$body.sequence_number"});
}
#endif

TEST(a_set_takes_its_numbers_from_the_positions)
{
    char *url = kafka_url("classes"), *store = kafka_store("classes");

    begin();
    make_topic("classes", 1);
    put("classes", 0, "{\"operation\": \"insert\", \"student_id\": 1, \"element\": \"A\"}");
    put("classes", 0, "{\"operation\": \"insert\", \"student_id\": 1, \"element\": \"B\"}");
    put("classes", 0, "{\"operation\": \"delete\", \"student_id\": 1, \"element\": \"A\"}");
    end();
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "set", "define", "students", "--list", "classes",
                          "--key", "student_id", "--name", "name", NULL)
                  ->code,
              ==, 0);
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "set:students.classes",
                          "--map", "{seq: {$expr: {$add: [\"$offset\", 1]}}}", "--until-empty",
                          NULL)
                  ->code,
              ==, 0);
    CHECK_INT(count_in(store, "students",
                       "{'classes': {'$size': 1}, 'classes.name': 'B', 'deleted_classes.seq': 3}"),
              ==, 1);
    bson_free(url);
    bson_free(store);
}

static void refuses_url(char *url, int code, const char *reason)
{
    char *store = kafka_store("refused");
    const struct command *command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into",
                                                "queue:mail", "--until-empty", NULL);

    CHECK_INT(command->code, ==, code);
    if (!strstr(command->err, reason))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" lacks \"%s\"", url, command->err, reason);
    bson_free(url);
    bson_free(store);
}

static void refuses(const char *path, int code, const char *reason)
{
    refuses_url(kafka_url(path), code, reason);
}

TEST(refuses_an_invalid_kafka_url_and_names_the_reason)
{
    refuses("no-topic", 1, "no-topic");
    refuses("mail?nope=1", 2, "nope");
    refuses("mail?enable.auto.commit=true", 2, "is set by truce itself");
    refuses("a/b", 2, "kafka://HOST:PORT/TOPIC");
    /* the broker speaks no TLS there */
    refuses("mail?security.protocol=ssl", 2, "SSL");
    refuses_url(bson_strdup_printf("%s/mail", getenv("TRUCE_TEST_KAFKA_TLS")), 2,
                "uses TLS: write ?security.protocol=ssl");
    refuses_url(bson_strdup_printf("%s/mail?security.protocol=ssl", getenv("TRUCE_TEST_KAFKA_TLS")),
                2, "ssl.ca.location");
    refuses_url(bson_strdup_printf("kafka://guest:wrong@%s/mail", getenv("TRUCE_TEST_KAFKA_LOGIN")),
                2, "uthentication");
}

TEST(receives_by_tls_with_a_known_ca_and_with_a_password)
{
    char *urls[] = {
        bson_strdup_printf("%s/safe?security.protocol=ssl&ssl.ca.location=%s",
                           getenv("TRUCE_TEST_KAFKA_TLS"), getenv("TRUCE_TEST_BROKER_CA")),
        bson_strdup_printf("kafka://guest:guest@%s/safe", getenv("TRUCE_TEST_KAFKA_LOGIN"))};

    begin();
    make_topic("safe", 1);
    put("safe", 0, "{\"n\": 1}");
    end();
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char *store = kafka_store(i ? "password" : "tls");
        const struct command *command = command_run(TRUCE_CLI, store, NULL, "consume", urls[i],
                                                    "--into", "queue:mail", "--until-empty", NULL);

        if (command->code)
            test_fail(__FILE__, __LINE__, "%s: %s", urls[i], command->err);
        CHECK_INT(count_in(store, "truce_queue", "{}"), ==, 1);
        bson_free(store);
        bson_free(urls[i]);
    }
}

/* Returns a string of JSON that does not end, just below the maximum of the broker. */
static char *long_body(void)
{
    static const char start[] = "{\"n\": 1, \"t\": \"";
    size_t size = 900 * 1024;
    char *body = bson_malloc(size + 1);

    memset(body, ' ', size);
    body[size] = 0;
    memcpy(body, start, sizeof start - 1);
    return body;
}

TEST(bad_messages_are_rejected_with_their_reasons)
{
    char *url = kafka_url("mixed"), *store = kafka_store("mixed"), *body = long_body();
    /* the message at the offset i, and the reason; NULL: it becomes a job */
    const char *const messages[][2] = {
        {"{\"n\": 1}", NULL},
        {"", "there is no document"},
        {"no JSON", "a document or an array is expected"},
        {"[1]", ".lane. must be a string"}, /* $body.n is an empty array */
        {"{\"m\": 1}", "the message has no .body.n."},
        {"{\"n\": 18446744073709551616}", "field n: the number 18446744073709551616 is beyond"},
        {"{\"n\": 1, \"lane\": 7}", ".lane. must be a string"},
        {body, "the text ends in the middle of a document"},
        {"{\"n\": 9223372036854775807}", NULL},
    };
    size_t count = sizeof messages / sizeof *messages;

    begin();
    make_topic("mixed", 1);
    for (size_t i = 0; i < count; i++)
        put("mixed", 0, messages[i][0]);
    end();
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "queue:mail", "--map",
                          "{with: {n: \"$body.n\"}, lane: {$expr: \"$body.lane\"}}",
                          "--until-empty", NULL)
                  ->code,
              ==, 1);
    CHECK_INT(count_in(store, "truce_queue", "{}"), ==, 2);
    for (size_t i = 0; i < count; i++) {
        char filter[200];

        snprintf(filter, sizeof filter, "{'_id.offset': %zu, 'reason': {'$regex': '%s'}}", i,
                 messages[i][1] ? messages[i][1] : "");
        CHECK_INT(count_in(store, "truce_rejects", filter), ==, messages[i][1] != NULL);
    }
    bson_free(body);
    bson_free(url);
    bson_free(store);
}

/* Returns whether the process ends with code 0 within `seconds`. */
static bool ends_within(pid_t process, int seconds)
{
    int code = -1;

    for (int i = 0; i < seconds * 10; i++) {
        if (waitpid(process, &code, WNOHANG) == process)
            return code == 0;
        truce__clock_sleep_ms(100);
    }
    return false;
}

/* Nothing listens at this port, so the client waits for a reply. */
TEST(ends_soon_after_a_signal_if_no_broker_replies)
{
    char *store = kafka_store("unreachable");
    pid_t consumer = command_start(TRUCE_CLI, store, "consume", "kafka://127.0.0.1:1/mail",
                                   "--into", "queue:mail", NULL);

    truce__clock_sleep_ms(1500);
    kill(consumer, SIGTERM);
    CHECK(ends_within(consumer, 10));
    bson_free(store);
}

/* ---- the end of a topic ---------------------------------------------------------------------- */

static pid_t start_until_empty(const char *store, const char *url, const char *workers)
{
    return command_start(TRUCE_CLI, store, "consume", url, "--into", "queue:mail", "--until-empty",
                         "--workers", workers, NULL);
}

/* Joins the group of the topic. The member takes part in each rebalance, but reads no message, like
 * a process that was killed before the broker notices it. */
static rd_kafka_t *join_without_reading(const char *topic)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_t *assigned = NULL;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char reason[300];
    rd_kafka_t *member;

    CHECK(!rd_kafka_conf_set(conf, "bootstrap.servers",
                             getenv("TRUCE_TEST_KAFKA") + strlen("kafka://"), reason,
                             sizeof reason));
    CHECK(!rd_kafka_conf_set(conf, "group.id", topic, reason, sizeof reason));
    member = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof reason);
    rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
    CHECK_INT(rd_kafka_subscribe(member, topics), ==, 0);
    for (int i = 0; i < 300 && !(assigned && assigned->cnt); i++) {
        if (assigned)
            rd_kafka_topic_partition_list_destroy(assigned);
        truce__clock_sleep_ms(100);
        CHECK_INT(rd_kafka_assignment(member, &assigned), ==, 0);
    }
    if (CHECK(assigned != NULL))
        CHECK_INT(assigned->cnt, ==, PARTITIONS);
    rd_kafka_topic_partition_list_destroy(assigned);
    rd_kafka_topic_partition_list_destroy(topics);
    return member;
}

TEST(until_empty_waits_for_messages_that_another_member_of_the_group_has)
{
    char *url = kafka_url("shared"), *store = kafka_store("shared");
    rd_kafka_t *member;
    pid_t consumer;

    begin();
    make_topic("shared", PARTITIONS);
    for (int32_t i = 0; i < PARTITIONS; i++)
        put("shared", i, "{}");
    end();
    member = join_without_reading("shared");
    consumer = start_until_empty(store, url, "2");
    CHECK(!ends_within(consumer, 12));
    rd_kafka_consumer_close(member);
    rd_kafka_destroy(member);
    CHECK(ends_within(consumer, 60));
    CHECK_INT(count_in(store, "truce_queue", "{}"), ==, PARTITIONS);
    bson_free(url);
    bson_free(store);
}

/* Puts a message into each partition in one transaction, whose end is a record of its own. */
static void put_in_transaction(const char *topic)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char reason[300];

    CHECK(!rd_kafka_conf_set(conf, "bootstrap.servers",
                             getenv("TRUCE_TEST_KAFKA") + strlen("kafka://"), reason,
                             sizeof reason));
    CHECK(!rd_kafka_conf_set(conf, "transactional.id", topic, reason, sizeof reason));
    producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof reason);
    REQUIRE(producer != NULL);
    CHECK(!rd_kafka_init_transactions(producer, 60000));
    CHECK(!rd_kafka_begin_transaction(producer));
    for (int32_t i = 0; i < PARTITIONS; i++)
        put(topic, i, "{}");
    CHECK(!rd_kafka_commit_transaction(producer, 60000));
    end();
}

TEST(until_empty_ends_at_a_topic_that_ends_with_a_transaction)
{
    char *url = kafka_url("transactional"), *store = kafka_store("transactional");

    begin();
    make_topic("transactional", PARTITIONS);
    end();
    put_in_transaction("transactional");
    CHECK(ends_within(start_until_empty(store, url, "3"), 60));
    CHECK_INT(count_in(store, "truce_queue", "{}"), ==, PARTITIONS);
    bson_free(url);
    bson_free(store);
}

static truce_status find_no_position(void *arg, const char *stream, int32_t partition,
                                     int64_t *next, bson_error_t *error)
{
    (void)arg, (void)stream, (void)partition, (void)error;
    *next = -1;
    return TRUCE_OK;
}

/* librdkafka ends the process if the queue of a consumer is served as that of a producer. */
TEST(messages_are_counted_while_others_wait_in_the_client)
{
    const struct broker_open_options open_options = {
        .consumer = "counted", .prefetch = 200, .find_position = find_no_position};
    char *url = kafka_url("counted");
    void *module = dlopen(TRUCE_BROKER_MODULE, RTLD_NOW), *symbol, *broker = NULL;
    const struct broker_ops *ops = NULL;
    truce_broker_function *find = NULL;
    struct broker_message *message = NULL;
    struct broker_address address;
    bson_error_t error = {0};
    int64_t waiting = -1;
    bson_t query;

    REQUIRE(module != NULL);
    symbol = dlsym(module, "truce_broker_kafka");
    REQUIRE(symbol != NULL);
    memcpy(&find, &symbol, sizeof find);
    ops = find(BROKER_VERSION);
    begin();
    make_topic("counted", 1);
    for (int i = 0; i < 100; i++)
        put("counted", 0, "{}");
    end();
    CHECK_OK(truce__broker_address_read(url, &query, &address, &error), error);
    REQUIRE(!ops->open(&address, &open_options, &broker, &error));
    for (int i = 0; i < 600 && !message; i++)
        CHECK_OK(ops->receive(broker, 100, &message, &error), error);
    CHECK_OK(ops->waiting(broker, &waiting, NULL, &error), error);
    CHECK_INT(waiting, ==, 99);
    truce__broker_message_free(message);
    ops->close(broker);
    bson_destroy(&query);
    bson_free(url);
}

TEST(refuses_a_topic_with_a_long_name)
{
    char name[601], *url, *store = kafka_store("long");
    const struct command *command;

    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    url = kafka_url(name);
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "queue", "add", "out", "{n: 1}", NULL)->code, ==,
              0);
    command = command_run(TRUCE_CLI, store, NULL, "publish", "queue:out", "--to", url,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 2);
    CHECK(strstr(command->err, "invalid topic \"aaaa") != NULL);
    bson_free(url);
    bson_free(store);
}

TEST(changes_have_the_key_of_their_document)
{
    char *url = kafka_url("changes"), *store = kafka_store("changes");
    char *copy = bson_strdup_printf("%s-copy", store);
    const struct command *command;

    begin();
    make_topic("changes", 3);
    end();
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "others", "{}", NULL)->code, ==, 0);
    command = command_run(TRUCE_CLI, store, NULL, "publish", "changes:things", "--to", url,
                          "--feed-keep", "1h", "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    command = command_run("/bin/sh", store, NULL, "-c",
                          "for i in 1 2 3 4 5; do $0 insert things \"{_id: 't$i', n: 0}\" && $0 "
                          "update things \"{_id: 't$i'}\" '{$inc: {n: 1}}' || exit; done",
                          TRUCE_CLI, NULL);
    CHECK_INT(command->code, ==, 0);
    command = command_run(TRUCE_CLI, store, NULL, "publish", "changes:things", "--to", url,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "10 published") != NULL);
    command = command_run(TRUCE_CLI, copy, NULL, "consume", url, "--into", "commit", "--id",
                          "$headers.id", "--map",
                          "[{insert: \"events\", with: {type: \"$body.type\", key: \"$key\", "
                          "content: \"$headers.content-type\", partition: \"$partition\"}}]",
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK_INT(count_in(copy, "events", "{'key': 't3'}"), ==, 2);
    CHECK_INT(
        count_in(copy, "events", "{'content': 'application/cloudevents+json; charset=UTF-8'}"), ==,
        10);
    bson_free(url);
    bson_free(store);
    bson_free(copy);
}

static void wait_for_jobs(const char *store, int64_t count)
{
    for (int i = 0; i < 300 && count_in(store, "truce_queue", "{}") < count; i++)
        truce__clock_sleep_ms(100);
    CHECK_INT(count_in(store, "truce_queue", "{}"), ==, count);
}

TEST(reads_an_added_partition_and_ends_on_a_deleted_topic)
{
    char *url = kafka_url("short?topic.metadata.refresh.interval.ms=500"), *store;
    pid_t consumer;
    int code = 0;

    store = kafka_store("short");
    begin();
    make_topic("short", 1);
    put("short", 0, "{\"n\": 1}");
    CHECK_INT(rd_kafka_flush(producer, 60000), ==, 0);
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "others", "{}", NULL)->code, ==, 0);
    consumer =
        command_start("/bin/sh", store, "-c", "exec \"$0\" \"$@\" >\"$TRUCE_STORE.log\" 2>&1",
                      TRUCE_CLI, "consume", url, "--into", "queue:mail", NULL);
    wait_for_jobs(store, 1);
    add_partitions("short", 3);
    end(); /* another producer knows the partitions */
    begin();
    put("short", 2, "{\"n\": 9223372036854775808}");
    put("short", 2, "{\"n\": 9223372036854775807}");
    CHECK_INT(rd_kafka_flush(producer, 60000), ==, 0);
    wait_for_jobs(store, 2);
    CHECK_INT(count_in(store, "truce_rejects", "{}"), ==, 1);
    delete_topic("short");
    end();
    for (int i = 0; i < 300 && waitpid(consumer, &code, WNOHANG) == 0; i++)
        truce__clock_sleep_ms(100);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 1)
        test_fail(__FILE__, __LINE__, "status %d: %s", code,
                  command_run("/bin/sh", store, NULL, "-c", "cat \"$TRUCE_STORE.log\"", NULL)->out);
    bson_free(url);
    bson_free(store);
}

/* A topic that was deleted and created again has other messages at the positions of the store. */
TEST(a_topic_that_was_created_again_is_refused)
{
    char *url = kafka_url("again"), *store = kafka_store("again");
    const struct command *command = NULL;

    for (int i = 0; i < 2; i++) {
        begin();
        make_topic("again", 1);
        put("again", 0, "{\"n\": 1}");
        if (!i)
            put("again", 0, "{\"n\": 2}");
        end();
        command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "queue:mail",
                              "--until-empty", NULL);
        begin();
        delete_topic("again");
        end();
        CHECK_INT(command->code, ==, i ? 2 : 0);
    }
    if (!strstr(command->err, "does not have the stored position 2, but those from 0 to 1"))
        test_fail(__FILE__, __LINE__, "%s", command->err);
    CHECK_INT(count_in(store, "truce_queue", "{}"), ==, 2);
    bson_free(url);
    bson_free(store);
}
