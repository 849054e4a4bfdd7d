/*
 * The program truce and a real Kafka (tests/brokers/serve kafka): jobs from three partitions with
 * consumers that are killed, numbers from the positions of the log, and errors by their name.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <librdkafka/rdkafka.h>

#include "base/clock.h"
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

static void make_topic(const char *topic, int partitions)
{
    char reason[300];
    rd_kafka_NewTopic_t *made = rd_kafka_NewTopic_new(topic, partitions, 1, reason, sizeof reason);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(producer);
    rd_kafka_event_t *event;

    rd_kafka_CreateTopics(producer, &made, 1, NULL, queue);
    event = rd_kafka_queue_poll(queue, 60000);
    CHECK(event && !rd_kafka_event_error(event));
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(made);
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

static pid_t start_consumer(const char *store, const char *url)
{
    return command_start(TRUCE_CLI, store, "consume", url, "--into", "queue:mail", "--batch", "20",
                         NULL);
}

TEST(each_message_is_one_job_despite_kills_and_rebalances)
{
    int64_t count = test_scale("TRUCE_BROKER_MESSAGES", 600);
    /* dead members of the group are noticed after six seconds, not 45 */
    char *url = kafka_url("mail?session.timeout.ms=6000&heartbeat.interval.ms=1000");
    char *store = kafka_store("mail");
    const struct command *command;
    pid_t consumers[2];

    begin();
    make_topic("mail", 3);
    for (int64_t i = 0; i < count; i++) {
        char body[60];

        snprintf(body, sizeof body, "{\"n\": %lld}", (long long)i);
        put("mail", (int32_t)(i % 3), body);
    }
    put("mail", 1, "no JSON");
    end();
    for (int i = 0; i < 2; i++)
        consumers[i] = start_consumer(store, url);
    for (int i = 0; i < 4; i++) {
        truce__clock_sleep_ms(1500);
        kill(consumers[i % 2], SIGKILL);
        waitpid(consumers[i % 2], NULL, 0);
        consumers[i % 2] = start_consumer(store, url);
    }
    for (int i = 0; i < 2; i++) {
        kill(consumers[i], SIGKILL);
        waitpid(consumers[i], NULL, 0);
    }
    command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "queue:mail",
                          "--until-empty", NULL);
    if (command->code > 1)
        test_fail(__FILE__, __LINE__, "%s", command->err);
    CHECK_INT(count_in(store, "truce_queue", "{}"), ==, count);
    CHECK_INT(count_in(store, "truce_rejects", "{}"), ==, 1);
    CHECK_INT(count_in(store, "truce_inbox", "{'_id.topic': 'mail'}"), ==, 3);
    bson_free(url);
    bson_free(store);
}

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

static void refuses(const char *path, int code, const char *reason)
{
    char *url = kafka_url(path), *store = kafka_store("refused");
    const struct command *command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into",
                                                "queue:mail", "--until-empty", NULL);

    CHECK_INT(command->code, ==, code);
    if (!strstr(command->err, reason))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" lacks \"%s\"", url, command->err, reason);
    bson_free(url);
    bson_free(store);
}

TEST(refuses_an_invalid_url_and_names_the_reason)
{
    refuses("no-topic", 1, "no-topic");
    refuses("mail?nope=1", 2, "nope");
    refuses("mail?enable.auto.commit=true", 2, "truce's own");
    refuses("a/b", 2, "kafka://HOST:PORT/TOPIC");
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
