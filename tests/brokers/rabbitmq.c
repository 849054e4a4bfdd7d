/*
 * The program truce and a real RabbitMQ (tests/brokers/serve rabbitmq): a set and a queue with
 * consumers and a broker that are killed, and input that is hostile or wrong.
 * TRUCE_BROKER_MESSAGES sets the number of messages of the kills.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define CHANNEL 1
#define FEW     3 /* kills of the short form, which does not kill the broker */

static amqp_connection_state_t connection;

static char *url_of(const char *variable, const char *path)
{
    const char *base = getenv(variable);

    return bson_strdup_printf("%s/%s", base ? base : "", path);
}

static void connect_broker(void)
{
    const char *colon = strrchr(getenv("TRUCE_TEST_AMQP"), ':');
    amqp_socket_t *socket;

    connection = amqp_new_connection();
    socket = amqp_tcp_socket_new(connection);
    for (int i = 0; i < 100 && amqp_socket_open(socket, "127.0.0.1", atoi(colon + 1)); i++)
        truce__clock_sleep_ms(100);
    CHECK_INT(amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest")
                  .reply_type,
              ==, AMQP_RESPONSE_NORMAL);
    amqp_channel_open(connection, CHANNEL);
    CHECK_INT(amqp_get_rpc_reply(connection).reply_type, ==, AMQP_RESPONSE_NORMAL);
    amqp_tx_select(connection, CHANNEL);
    CHECK_INT(amqp_get_rpc_reply(connection).reply_type, ==, AMQP_RESPONSE_NORMAL);
}

static void disconnect_broker(void)
{
    (void)amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
    (void)amqp_destroy_connection(connection);
}

/* A quorum queue: a classic one may not survive a kill of the broker. */
static void declare(const char *queue)
{
    amqp_table_entry_t type = {.key = amqp_cstring_bytes("x-queue-type"),
                               .value = {.kind = AMQP_FIELD_KIND_UTF8}};

    type.value.value.bytes = amqp_cstring_bytes("quorum");
    amqp_queue_declare(connection, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0,
                       (amqp_table_t){1, &type});
    CHECK_INT(amqp_get_rpc_reply(connection).reply_type, ==, AMQP_RESPONSE_NORMAL);
}

static void delete_queue(const char *queue)
{
    amqp_queue_delete(connection, CHANNEL, amqp_cstring_bytes(queue), 0, 0);
    CHECK_INT(amqp_get_rpc_reply(connection).reply_type, ==, AMQP_RESPONSE_NORMAL);
}

static int64_t waiting(const char *queue)
{
    amqp_queue_declare_ok_t *declared = amqp_queue_declare(
        connection, CHANNEL, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);

    return declared ? (int64_t)declared->message_count : -1;
}

static void send(const char *queue, const char *body, size_t size, const char *id,
                 amqp_table_t *headers)
{
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = 2};

    if (id) {
        properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = amqp_cstring_bytes(id);
    }
    if (headers) {
        properties._flags |= AMQP_BASIC_HEADERS_FLAG;
        properties.headers = *headers;
    }
    CHECK_INT(amqp_basic_publish(connection, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue),
                                 0, 0, &properties,
                                 (amqp_bytes_t){.len = size, .bytes = (void *)body}),
              ==, 0);
}

/* Waits until the broker has written the messages that were sent. */
static void settle(void)
{
    amqp_tx_commit(connection, CHANNEL);
    (void)amqp_get_rpc_reply(connection);
}

static char *store_uri(const char *name)
{
    return bson_strdup_printf("%s/%s.truce", test_directory(), name);
}

/* ---- kills ----------------------------------------------------------------------------------- */

#define STUDENTS 50
#define CLASSES  10

struct enrolment {
    int student, class;
    bool insert;
};

static struct enrolment enrolment_of(int64_t seq)
{
    struct random chance;

    truce__random_seed(&chance, (uint64_t)seq * 7919);
    return (struct enrolment){(int)truce__random_below(&chance, STUDENTS),
                              (int)truce__random_below(&chance, CLASSES),
                              truce__random_below(&chance, 2) == 0};
}

static void send_enrolment(const char *queue, int64_t seq)
{
    struct enrolment enrolment = enrolment_of(seq);
    char body[200], id[32];

    snprintf(body, sizeof body,
             "{\"operation\": \"%s\", \"student_id\": %d, \"class\": \"CS %d\", "
             "\"sequence_number\": %lld}",
             enrolment.insert ? "insert" : "delete", enrolment.student, enrolment.class,
             (long long)seq);
    snprintf(id, sizeof id, "m%lld", (long long)seq);
    send(queue, body, strlen(body), id, NULL);
}

/* Sends the numbers 1 to `count` out of order, and every tenth one twice. */
static void send_all(const char *queue, int64_t count)
{
    int64_t *order = bson_malloc((size_t)count * 2 * sizeof *order), total = 0;
    struct random chance;

    truce__random_seed(&chance, test_seed());
    for (int64_t seq = 1; seq <= count; seq++) {
        order[total++] = seq;
        if (seq % 10 == 0)
            order[total++] = seq;
    }
    for (int64_t i = total - 1; i > 0; i--) {
        int64_t other = (int64_t)truce__random_below(&chance, (uint64_t)i + 1), seq = order[i];

        order[i] = order[other];
        order[other] = seq;
    }
    for (int64_t i = 0; i < total; i++)
        send_enrolment(queue, order[i]);
    settle();
    bson_free(order);
}

static pid_t start_consumer(const char *store, const char *url, const char *into, const char *map)
{
    return command_start("/bin/sh", store, "-c",
                         "exec \"$0\" consume \"$@\" --workers 2 --batch 50 >>\"$TRUCE_STORE.log\" "
                         "2>&1",
                         TRUCE_CLI, url, "--into", into, "--map", map, NULL);
}

/* Runs consumers in processes, and kills one after the other, and in the long form the broker; then
 * lets one end by itself. */
static void consume_with_kills(const char *store, const char *url, const char *into,
                               const char *map, int kills)
{
    pid_t consumers[2];
    struct random chance;
    const struct command *command;

    truce__random_seed(&chance, (uint64_t)kills);
    for (int i = 0; i < 2; i++)
        consumers[i] = start_consumer(store, url, into, map);
    for (int i = 0; i < kills; i++) {
        int which = i % 2;

        truce__clock_sleep_ms(100 + (int64_t)truce__random_below(&chance, 300));
        if (kills > FEW && i % FEW == FEW - 1)
            CHECK_INT(system(getenv("TRUCE_TEST_BROKER_KILL")), ==, 0); /* NOLINT */
        kill(consumers[which], SIGKILL);
        waitpid(consumers[which], NULL, 0);
        consumers[which] = start_consumer(store, url, into, map);
    }
    for (int i = 0; i < 2; i++) {
        kill(consumers[i], SIGKILL);
        waitpid(consumers[i], NULL, 0);
    }
    command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", into, "--map", map,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    if (test_failures())
        fprintf(stderr, "%s%s%s", command->out, command->err,
                command_run("/bin/sh", store, NULL, "-c", "cat \"$TRUCE_STORE.log\"", NULL)->out);
}

static void check_enrolments(const char *uri, int64_t count)
{
    int64_t last[STUDENTS][CLASSES] = {{0}};
    bson_error_t error = {0};
    truce_store *store = NULL;

    for (int64_t seq = 1; seq <= count; seq++) {
        struct enrolment enrolment = enrolment_of(seq);

        last[enrolment.student][enrolment.class] = enrolment.insert ? seq : -seq;
    }
    if (!CHECK_OK(truce_store_open(uri, NULL, &store, &error), error))
        return;
    for (int student = 0; student < STUDENTS; student++)
        for (int class = 0; class < CLASSES; class ++) {
            int64_t seq = last[student][class], found = -1;
            char json[200];
            bson_t *filter;

            if (!seq)
                continue;
            snprintf(json, sizeof json,
                     "{'student_id': %d, '%s': {'$elemMatch': {'name': 'CS %d', 'seq': %lld}}}",
                     student, seq > 0 ? "classes" : "deleted_classes", class,
                     (long long)(seq > 0 ? seq : -seq));
            filter = test_bson(json);
            CHECK_OK(truce_count(store, "students", filter, NULL, &found, &error), error);
            CHECK_INT(found, ==, 1);
            bson_destroy(filter);
        }
    truce_store_close(store);
}

static void check_count(const char *uri, const char *collection, int64_t expected)
{
    bson_error_t error = {0};
    truce_store *store = NULL;
    int64_t count = -1;

    if (CHECK_OK(truce_store_open(uri, NULL, &store, &error), error))
        CHECK_OK(truce_count(store, collection, NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, expected);
    truce_store_close(store);
}

TEST(a_set_survives_kills_of_consumers_and_of_the_broker)
{
    int64_t count = test_scale("TRUCE_BROKER_MESSAGES", 1500);
    char *url = url_of("TRUCE_TEST_AMQP", "enrolments"), *store = store_uri("set");

    connect_broker();
    declare("enrolments");
    send_all("enrolments", count);
    disconnect_broker();
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "set", "define", "students", "--list", "classes",
                          "--key", "student_id", "--name", "name", NULL)
                  ->code,
              ==, 0);
    consume_with_kills(store, url, "set:students.classes", "{element: \"$body.class\"}",
                       count > 10000 ? 7 * FEW : FEW);
    check_enrolments(store, count);
    connect_broker();
    CHECK_INT(waiting("enrolments"), ==, 0);
    disconnect_broker();
    bson_free(url);
    bson_free(store);
}

TEST(each_message_is_one_job_despite_kills)
{
    int64_t count = test_scale("TRUCE_BROKER_MESSAGES", 1500);
    char *url = url_of("TRUCE_TEST_AMQP", "mail"), *store = store_uri("queue");

    connect_broker();
    declare("mail");
    send_all("mail", count);
    disconnect_broker();
    consume_with_kills(store, url, "queue:mail", "{}", count > 10000 ? 7 * FEW : FEW);
    check_count(store, "truce_queue", count);
    check_count(store, "truce_rejects", 0);
    connect_broker();
    CHECK_INT(waiting("mail"), ==, 0);
    disconnect_broker();
    bson_free(url);
    bson_free(store);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void refuses(const char *url, int code, const char *reason)
{
    char *store = store_uri("refused");
    const struct command *command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into",
                                                "queue:mail", "--until-empty", NULL);

    CHECK_INT(command->code, ==, code);
    if (!strstr(command->err, reason))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" lacks \"%s\"", url, command->err, reason);
    bson_free(store);
}

static void refuses_path(const char *variable, const char *path, int code, const char *reason)
{
    char *url = url_of(variable, path);

    refuses(url, code, reason);
    bson_free(url);
}

TEST(refuses_an_invalid_url_and_names_the_reason)
{
    const char *port = strrchr(getenv("TRUCE_TEST_AMQP"), ':');
    char *wrong = bson_strdup_printf("amqp://guest:wrong@127.0.0.1%s/mail", port);

    refuses_path("TRUCE_TEST_AMQP", "no-queue", 1, "no queue 'no-queue'");
    refuses_path("TRUCE_TEST_AMQP", "no-host/mail", 1, "vhost no-host not found");
    refuses_path("TRUCE_TEST_AMQP", "mail?nope=1", 2, "unknown option \"nope\"");
    refuses_path("TRUCE_TEST_AMQP", "", 2, "no queue");
    refuses(wrong, 2, "ACCESS_REFUSED");
    refuses_path("TRUCE_TEST_AMQPS", "mail", 2, "is not trusted");
    refuses_path("TRUCE_TEST_AMQPS", "mail?cacert=/nowhere", 2, "cannot read the CA file");
    bson_free(wrong);
}

TEST(receives_by_tls_with_a_known_ca)
{
    char *path = bson_strdup_printf("tls?cacert=%s", getenv("TRUCE_TEST_BROKER_CA"));
    char *url = url_of("TRUCE_TEST_AMQPS", path), *store = store_uri("tls");

    connect_broker();
    declare("tls");
    send("tls", "{\"a\": 1}", 8, "1", NULL);
    settle();
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "queue:mail",
                          "--until-empty", NULL)
                  ->code,
              ==, 0);
    check_count(store, "truce_queue", 1);
    disconnect_broker();
    bson_free(path);
    bson_free(url);
    bson_free(store);
}

TEST(headers_of_all_types_are_mapped_and_bad_messages_are_rejected)
{
    char *url = url_of("TRUCE_TEST_AMQP", "mixed"), *store = store_uri("mixed");
    amqp_table_entry_t entries[4] = {{.key = amqp_cstring_bytes("big")},
                                     {.key = amqp_cstring_bytes("bytes")},
                                     {.key = amqp_cstring_bytes("inner")},
                                     {.key = amqp_cstring_bytes("lane")}};
    amqp_table_t headers = {4, entries}, inner = {1, entries};
    size_t big = 3 * 1024 * 1024;
    char *body = bson_malloc(big);
    const struct command *command;

    memset(body, 'x', big);
    memcpy(body, "{\"t\": \"", 7);
    memcpy(body + big - 2, "\"}", 2);
    entries[0].value.kind = AMQP_FIELD_KIND_I64;
    entries[0].value.value.i64 = INT64_MAX;
    entries[1].value.kind = AMQP_FIELD_KIND_BYTES;
    entries[1].value.value.bytes = (amqp_bytes_t){.len = 3, .bytes = (void *)"\xff\0\xfe"};
    entries[2].value.kind = AMQP_FIELD_KIND_TABLE;
    entries[2].value.value.table = inner;
    entries[3].value.kind = AMQP_FIELD_KIND_UTF8;
    entries[3].value.value.bytes = amqp_cstring_bytes("l");
    connect_broker();
    declare("mixed");
    send("mixed", body, big, "big", &headers);
    send("mixed", "no JSON", 7, "bad", &headers);
    send("mixed", "", 0, NULL, NULL);
    entries[3].value.kind = AMQP_FIELD_KIND_U64;
    send("mixed", "{}", 2, "wrong lane", &headers);
    settle();
    command = command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "queue:mail", "--map",
                          "{lane: \"$headers.lane\", with: {n: \"$headers.big\", i: "
                          "\"$headers.inner.big\", b: \"$headers.bytes\", t: \"$body.t\"}}",
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 1);
    check_count(store, "truce_queue", 1);
    check_count(store, "truce_rejects", 3);
    command = command_run(TRUCE_CLI, store, NULL, "find", "truce_queue", "-p",
                          "{_id: 0, n: \"$payload.n\"}", NULL);
    if (!strstr(command->out, "9223372036854775807"))
        test_fail(__FILE__, __LINE__, "%s", command->out);
    CHECK_INT(waiting("mixed"), ==, 0);
    disconnect_broker();
    bson_free(body);
    bson_free(url);
    bson_free(store);
}

TEST(ends_after_its_batch_by_a_signal)
{
    char *url = url_of("TRUCE_TEST_AMQP", "signal"), *store = store_uri("signal");
    pid_t consumer;
    int code = -1;

    connect_broker();
    declare("signal");
    send("signal", "{}", 2, "1", NULL);
    settle();
    consumer = start_consumer(store, url, "queue:mail", "{}");
    for (int i = 0; i < 600 && waiting("signal"); i++)
        truce__clock_sleep_ms(100);
    kill(consumer, SIGTERM);
    waitpid(consumer, &code, 0);
    CHECK_INT(code, ==, 0);
    check_count(store, "truce_queue", 1);
    CHECK_INT(waiting("signal"), ==, 0);
    disconnect_broker();
    bson_free(url);
    bson_free(store);
}

TEST(a_queue_that_is_deleted_ends_the_consumer_with_its_name)
{
    char *url = url_of("TRUCE_TEST_AMQP", "short"), *store = store_uri("short");
    pid_t consumer;
    int code = 0;

    connect_broker();
    declare("short");
    consumer = command_start(TRUCE_CLI, store, "consume", url, "--into", "queue:mail", NULL);
    truce__clock_sleep_ms(1000);
    delete_queue("short");
    waitpid(consumer, &code, 0);
    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 1);
    disconnect_broker();
    bson_free(url);
    bson_free(store);
}

TEST(a_dead_letter_goes_to_an_exchange)
{
    char *url = url_of("TRUCE_TEST_AMQP", "source?routing_key=dead"), *store = store_uri("dead");

    connect_broker();
    declare("source");
    declare("dead");
    send("source", "bad", 3, "1", NULL);
    settle();
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "consume", url, "--into", "queue:mail",
                          "--dead-letter", "", "--until-empty", NULL)
                  ->code,
              ==, 1);
    CHECK_INT(waiting("dead"), ==, 1);
    CHECK_INT(waiting("source"), ==, 0);
    disconnect_broker();
    bson_free(url);
    bson_free(store);
}

TEST(jobs_are_published_with_confirms_and_come_back_once)
{
    char *to = url_of("TRUCE_TEST_AMQP", "?routing_key=out");
    char *nowhere = url_of("TRUCE_TEST_AMQP", "?routing_key=nowhere");
    char *no_exchange = url_of("TRUCE_TEST_AMQP", "no-exchange?routing_key=x");
    char *from = url_of("TRUCE_TEST_AMQP", "out"), *store = store_uri("outbox");
    const struct command *command;

    connect_broker();
    declare("out");
    for (int i = 0; i < 3; i++)
        CHECK_INT(command_run(TRUCE_CLI, store, NULL, "queue", "add", "out", "{n: 1}", NULL)->code,
                  ==, 0);
    command = command_run(TRUCE_CLI, store, NULL, "publish", "queue:out", "--to", nowhere,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->err, "no queue receives") != NULL);
    command = command_run(TRUCE_CLI, store, NULL, "publish", "queue:out", "--to", no_exchange,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 1);
    CHECK(strstr(command->err, "no-exchange") != NULL);
    command = command_run(TRUCE_CLI, store, NULL, "publish", "queue:out", "--to", to,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    CHECK(strstr(command->out, "3 published") != NULL);
    command = command_run(TRUCE_CLI, store, NULL, "consume", from, "--into", "queue:in",
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    check_count(store, "truce_queue", 6);
    check_count(store, "truce_inbox", 3);
    disconnect_broker();
    bson_free(to);
    bson_free(nowhere);
    bson_free(no_exchange);
    bson_free(from);
    bson_free(store);
}
