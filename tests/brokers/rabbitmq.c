/*
 * The program truce and a real RabbitMQ (tests/brokers/serve rabbitmq): a set and a queue with
 * consumers and a broker that are killed, and input that is hostile or wrong.
 * tests/support/broker_trial.h is the trial with kills.
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
#include "tests/brokers/broker_rates.h"
#include "tests/support/broker_trial.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define CHANNEL 1

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

static void declare_type(const char *queue, const char *name)
{
    amqp_table_entry_t type = {.key = amqp_cstring_bytes("x-queue-type"),
                               .value = {.kind = AMQP_FIELD_KIND_UTF8}};

    type.value.value.bytes = amqp_cstring_bytes(name);
    amqp_queue_declare(connection, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0,
                       (amqp_table_t){1, &type});
    CHECK_INT(amqp_get_rpc_reply(connection).reply_type, ==, AMQP_RESPONSE_NORMAL);
}

/* A quorum queue: a classic one may not survive a kill of the broker. */
static void declare(const char *queue)
{
    declare_type(queue, "quorum");
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

/* Returns the number of messages. */
static int64_t send_all(const char *queue, int64_t count)
{
    int64_t total, *order = broker_trial_order(count, &total);
    char body[250], id[32];

    for (int64_t i = 0; i < total; i++) {
        broker_trial_message(order[i], body, id);
        send(queue, body, strlen(body), id, NULL);
        if (i % 1000 == 999)
            settle();
    }
    settle();
    bson_free(order);
    return total;
}

/* Runs the trial, and returns the number of its messages. */
static int64_t try_queue(const char *queue, const char *store, const char *into, const char *map)
{
    char *url = url_of("TRUCE_TEST_AMQP", queue);
    struct broker_trial trial = {.program = TRUCE_CLI,
                                 .store = store,
                                 .url = url,
                                 .into = into,
                                 .map = map,
                                 .pause_ms = 100};
    int64_t count = broker_trial_count(&trial.full);

    connect_broker();
    declare(queue);
    (void)send_all(queue, count);
    disconnect_broker();
    broker_trial_prepare(&trial);
    broker_trial_run(&trial);
    connect_broker();
    CHECK_INT(waiting(queue), ==, 0);
    disconnect_broker();
    bson_free(url);
    return count;
}

TEST(a_set_survives_kills_of_consumers_and_of_the_broker)
{
    char *store = store_uri("set");

    broker_trial_check_set(store,
                           try_queue("enrolments", store, BROKER_TRIAL_SET, BROKER_TRIAL_SET_MAP));
    bson_free(store);
}

TEST(each_message_is_one_job_and_one_post_despite_kills)
{
    char *store = store_uri("queue");

    broker_trial_check_posts(TRUCE_CLI, store,
                             try_queue("mail", store, BROKER_TRIAL_POSTS, BROKER_TRIAL_POSTS_MAP));
    bson_free(store);
}

/* ---- rates ----------------------------------------------------------------------------------- */

#ifdef TRUCE_TEST_LIBPQ
static char *fill_rates(int64_t count, int64_t *total)
{
    connect_broker();
    declare("rates");
    CHECK_INT(waiting("rates"), ==, 0);
    *total = send_all("rates", count);
    disconnect_broker();
    return url_of("TRUCE_TEST_AMQP", "rates");
}

TEST(measures_the_rates_of_consumers_of_rabbitmq)
{
    if (!getenv("TRUCE_TEST_POSTGRES"))
        test_skip("tests/brokers/rates starts the servers");
    else
        broker_rates_run(&(struct broker_rates){.program = TRUCE_CLI, .fill = fill_rates});
}
#endif

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

TEST(refuses_an_invalid_rabbitmq_url_and_names_the_reason)
{
    const char *port = strrchr(getenv("TRUCE_TEST_AMQP"), ':');
    char *wrong = bson_strdup_printf("amqp://guest:wrong@127.0.0.1%s/mail", port);

    refuses_path("TRUCE_TEST_AMQP", "no-queue", 1, "no queue 'no-queue'");
    refuses_path("TRUCE_TEST_AMQP", "no-host/mail", 1, "vhost no-host not found");
    refuses_path("TRUCE_TEST_AMQP", "mail?nope=1", 2, "unknown option \"nope\"");
    refuses_path("TRUCE_TEST_AMQP", "", 2, "a URL with a queue");
    refuses_path("TRUCE_TEST_AMQP", "mail?cacert=/nowhere", 2, "\"cacert\" of the URL is for TLS");
    refuses(wrong, 2, "ACCESS_REFUSED");
    refuses_path("TRUCE_TEST_AMQPS", "mail", 2, "is not trusted");
    refuses_path("TRUCE_TEST_AMQPS", "mail?cacert=/nowhere", 2, "cannot read the CA file");
    bson_free(wrong);
}

/* Makes a URL of a port of the broker: that of `variable`. The caller frees it. */
static char *port_url(const char *scheme, const char *variable, const char *options)
{
    return bson_strdup_printf("%s://127.0.0.1%s/mail%s", scheme, strrchr(getenv(variable), ':'),
                              options);
}

TEST(refuses_a_port_of_another_protocol_and_a_certificate_of_another_host)
{
    char *options = bson_strdup_printf("?cacert=%s", getenv("TRUCE_TEST_BROKER_CA"));
    char *urls[] = {port_url("amqps", "TRUCE_TEST_AMQP", ""),
                    port_url("amqp", "TRUCE_TEST_AMQPS", ""),
                    port_url("amqps", "TRUCE_TEST_AMQPS", options)};
    static const char *const reasons[] = {"does not use TLS: write amqp://",
                                          "uses TLS: write amqps://", "belongs to another host"};

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        refuses(urls[i], 2, reasons[i]);
        bson_free(urls[i]);
    }
    bson_free(options);
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
    broker_trial_check_count(store, "truce_queue", 1);
    disconnect_broker();
    bson_free(path);
    bson_free(url);
    bson_free(store);
}

TEST(headers_of_all_types_are_mapped_and_bad_messages_are_rejected)
{
    char *url = url_of("TRUCE_TEST_AMQP", "mixed"), *store = store_uri("mixed");
    /* librabbitmq cannot copy a header without a name. */
    amqp_table_entry_t entries[5] = {{.key = amqp_cstring_bytes("big")},
                                     {.key = amqp_cstring_bytes("bytes")},
                                     {.key = amqp_cstring_bytes("inner")},
                                     {.key = amqp_cstring_bytes("lane")},
                                     {.key = amqp_cstring_bytes("")}};
    amqp_table_t headers = {5, entries}, inner = {1, entries};
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
    entries[4].value.kind = AMQP_FIELD_KIND_VOID;
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
    broker_trial_check_count(store, "truce_queue", 1);
    broker_trial_check_count(store, "truce_rejects", 3);
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

/* Returns the output of a command of the shell, which $0, the program, is passed to. */
static const char *shell_out(const char *store, const char *script, const char *argument)
{
    const struct command *command =
        command_run("/bin/sh", store, NULL, "-c", script, TRUCE_CLI, argument, NULL);

    return command->code ? command->err : command->out;
}

static void check_part(const char *text, const char *part)
{
    if (!strstr(text, part))
        test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", text, part);
}

/* Makes a file of options, with the URL. */
static void write_options(const char *path, const char *url)
{
    FILE *file = fopen(path, "w");

    REQUIRE(file != NULL);
    fprintf(file, "url = %s\ninto = queue:mail\n", url);
    fclose(file);
}

TEST(ends_after_its_batch_by_a_signal_with_options_from_a_file)
{
    char *url = url_of("TRUCE_TEST_AMQP", "signal"), *store = store_uri("signal");
    char *options = bson_strdup_printf("%s.conf", store);
    char *metrics = bson_strdup_printf("%s.prom", store);
    pid_t consumer;
    int code = -1;

    write_options(options, url);

    connect_broker();
    declare("signal");
    send("signal", "{}", 2, "1", NULL);
    settle();
    consumer =
        command_start(TRUCE_CLI, store, "consume", "--config", options, "--metrics", metrics, NULL);
    for (int i = 0; i < 600 && waiting("signal"); i++)
        truce__clock_sleep_ms(100);
    kill(consumer, SIGTERM);
    waitpid(consumer, &code, 0);
    CHECK_INT(code, ==, 0);
    broker_trial_check_count(store, "truce_queue", 1);
    CHECK_INT(waiting("signal"), ==, 0);
    disconnect_broker();
    CHECK_INT(command_run("/bin/grep", NULL, NULL, "-qxF",
                          "truce_consume_applied_total{into=\"queue:mail\"} 1", metrics, NULL)
                  ->code,
              ==, 0);
    bson_free(options);
    bson_free(metrics);
    bson_free(url);
    bson_free(store);
}

/* Reads the metrics of the server whose output is in the file $1. */
#define READ_METRICS                                                                               \
    "url=$(sed -n 's/.*metrics at //; s/ (Ctrl.*//p' \"$1\"); python3 -c 'import sys, "            \
    "urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' \"$url\" | grep ^truce_consume"

TEST(a_server_consumes_and_exports_the_consumers_of_all_processes)
{
    char *url = url_of("TRUCE_TEST_AMQP", "served"), *store = store_uri("served");
    char *options = bson_strdup_printf("%s.conf", store),
         *log = bson_strdup_printf("%s.log", store);
    pid_t server;
    int code = -1;

    write_options(options, url);
    connect_broker();
    server =
        command_start("/bin/sh", store, "-c",
                      "exec \"$0\" serve \"$TRUCE_STORE\" --port 0 --metrics 0 --consume \"$1\" "
                      ">\"$2\" 2>\"$2.err\"",
                      TRUCE_CLI, options, log, NULL);
    for (int i = 0; i < 100 && !*shell_out(store, "grep 'no queue' \"$1.err\" || true", log); i++)
        truce__clock_sleep_ms(100);
    check_part(shell_out(store, "cat \"$1.err\"", log), "consumer of queue:mail: ");
    declare("served");
    send("served", "{}", 2, "1", NULL);
    send("served", "{", 1, "2", NULL);
    settle();
    for (int i = 0; i < 300; i++) {
        truce__clock_sleep_ms(100);
        if (strstr(shell_out(store, "\"$0\" consumers --json", NULL), "\"received\": 2"))
            break;
    }
    check_part(shell_out(store, "\"$0\" consumers", NULL), "1 worker");
    check_part(
        shell_out(store, READ_METRICS, log),
        "truce_consume_applied_total{database=\"\",consumer=\"served\",into=\"queue:mail\"} 1");
    kill(server, SIGTERM);
    waitpid(server, &code, 0);
    CHECK_INT(code, ==, 0);
    check_part(shell_out(store, "\"$0\" consumers", NULL),
               "stopped; 2 messages, 1 applied, 1 rejected");
    CHECK_INT(waiting("served"), ==, 0);
    disconnect_broker();
    bson_free(log);
    bson_free(options);
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

/* A stream is read from the stored position, and its offsets are numbers of a set. */
TEST(a_stream_is_read_from_its_position)
{
    char *to = url_of("TRUCE_TEST_AMQP", "?routing_key=log"), *store = store_uri("stream");
    char *first = url_of("TRUCE_TEST_AMQP", "log?stream=first");
    const struct command *command;

    connect_broker();
    declare_type("log", "stream");
    disconnect_broker();
    for (int i = 0; i < 2; i++) {
        command = command_run(
            "/bin/sh", store, NULL, "-c",
            "for verb in insert delete insert; do $0 queue add out \"{operation: '$verb', "
            "student_id: 1, element: 'A'}\" || exit; done && $0 publish queue:out --to \"$1\" "
            "--until-empty && { [ $2 = 1 ] || $0 set define students --list classes --key "
            "student_id --name name; }",
            TRUCE_CLI, to, i ? "1" : "0", NULL);
        CHECK_INT(command->code, ==, 0);
        command =
            command_run(TRUCE_CLI, store, NULL, "consume", first, "--into", "set:students.classes",
                        "--map", "{seq: {$expr: {$add: [\"$headers.x-stream-offset\", 1]}}}",
                        "--until-empty", "--json", NULL);
        CHECK_INT(command->code, ==, 0);
        check_part(command->out, "\"messages\": 3");
    }
    check_part(command_run(TRUCE_CLI, store, NULL, "find", "students", NULL)->out, "\"seq\": 6");
    command = command_run(TRUCE_CLI, store, NULL, "consume", first, "--into", "queue:in",
                          "--consumer", "other", "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    broker_trial_check_count(store, "truce_queue", 12);
    refuses_path("TRUCE_TEST_AMQP", "log?stream=5", 2, "expected first, last, next, or no");
    connect_broker();
    declare("no-log");
    send("no-log", "{}", 2, "1", NULL);
    settle();
    disconnect_broker();
    refuses_path("TRUCE_TEST_AMQP", "no-log?stream=first", 2, "x-stream-offset");
    bson_free(to);
    bson_free(first);
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
    broker_trial_check_count(store, "truce_queue", 6);
    broker_trial_check_count(store, "truce_inbox", 3);
    disconnect_broker();
    bson_free(to);
    bson_free(nowhere);
    bson_free(no_exchange);
    bson_free(from);
    bson_free(store);
}

/* Changes are published while the publisher is killed, and a second store follows them. */
TEST(changes_are_published_despite_kills_and_make_a_copy)
{
    char *to = url_of("TRUCE_TEST_AMQP", "?routing_key=changes");
    char *from = url_of("TRUCE_TEST_AMQP", "changes"), *store = store_uri("source");
    char *copy = bson_strdup_printf("%s-copy", store);
    const struct command *command;

    connect_broker();
    declare("changes");
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "others", "{}", NULL)->code, ==, 0);
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "publish", "changes:things", "--to", to,
                          "--feed-keep", "1h", "--until-empty", NULL)
                  ->code,
              ==, 0);
    for (int i = 0; i < 4; i++) {
        pid_t publisher = command_start(TRUCE_CLI, store, "publish", "changes:things", "--to", to,
                                        "--batch", "3", NULL);

        command = command_run("/bin/sh", store, NULL, "-c",
                              "for i in 1 2 3; do $0 insert things \"{_id: $1$i, n: 1}\" && $0 "
                              "update things \"{_id: $1$i}\" '{$inc: {n: 1}}' || exit; done",
                              TRUCE_CLI, (const char *const[]){"1", "2", "3", "4"}[i], NULL);
        CHECK_INT(command->code, ==, 0);
        kill(publisher, SIGKILL);
        waitpid(publisher, NULL, 0);
    }
    command = command_run(TRUCE_CLI, store, NULL, "publish", "changes:things", "--to", to,
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    /* each change has its effect once: an insert and an $inc of each of the 12 things */
    command = command_run(TRUCE_CLI, copy, NULL, "consume", from, "--into", "commit", "--map",
                          "[{insert: \"events\", with: {type: \"$body.type\", of: "
                          "\"$body.data.documentKey._id\"}}]",
                          "--until-empty", NULL);
    CHECK_INT(command->code, ==, 0);
    broker_trial_check_count(copy, "events", 24);
    broker_trial_check_count(copy, "truce_rejects", 0);
    CHECK_INT(waiting("changes"), ==, 0);
    disconnect_broker();
    bson_free(to);
    bson_free(from);
    bson_free(store);
    bson_free(copy);
}
