/* The server's metrics for Prometheus: they match the executed operations, and any HTTP client can
 * read them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/archive_rig.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define ANSWER_MAX (256 * 1024)

static void begin_with(const struct server_options *options, const char *uri)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(uri, NULL, &store, &error));
    if (server_start(store, options, &server, &error)) {
        printf("%s\n", error.message);
        REQUIRE(false);
    }
}

static void begin(const struct server_feed *feed)
{
    const struct server_options options = {.metrics = "0", .feed = feed};
    char path[600];

    snprintf(path, sizeof path, "%s/store", test_directory());
    begin_with(&options, path);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static int metrics_dial(void)
{
    int port = 0;

    CHECK(sscanf(server_metrics(server), "http://127.0.0.1:%d/metrics", &port) == 1);
    return dial_port(port);
}

/* Reads until the other side closes the connection. */
static char *read_all(int socket_)
{
    char *text = bson_malloc0(ANSWER_MAX);
    size_t size = 0;
    ssize_t got;

    while (size < ANSWER_MAX - 1 &&
           (got = recv(socket_, text + size, ANSWER_MAX - 1 - size, 0)) > 0)
        size += (size_t)got;
    return text;
}

static char *request(const char *lines)
{
    int socket_ = metrics_dial();
    char *text;

    CHECK(send_all(socket_, (const uint8_t *)lines, strlen(lines)));
    text = read_all(socket_);
    close(socket_);
    return text;
}

/* Returns the body of the metrics. The caller frees it. */
static char *scrape(void)
{
    char *text = request("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    char *body = strstr(text, "\r\n\r\n");

    if (CHECK(!strncmp(text, "HTTP/1.1 200 ", 13) && body))
        memmove(text, body + 4, strlen(body + 4) + 1);
    return text;
}

/* Returns the value of the line with that name, or -1. */
static double value_in(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (!strncmp(at, name, length) && at[length] == ' ')
            return strtod(at + length, NULL);
    return -1;
}

static double value_of(const char *name)
{
    char *text = scrape();
    double value = value_in(text, name);

    bson_free(text);
    return value;
}

/* ---- counters and executed operations -------------------------------------------------------- */

TEST(commands_are_counted_by_name_and_timed_by_group)
{
    char *text;

    begin(NULL);
    for (int i = 0; i < 3; i++)
        expect_code("{'insert': 'c', 'documents': [{}, {}], '$db': 'test'}", 0);
    expect_code("{'find': 'c', '$db': 'test'}", 0);
    expect_code("{'aggregate': 'c', 'pipeline': [], 'cursor': {}, '$db': 'test'}", 0);
    expect_code("{'truceSequence': 'n', '$db': 'test'}", 0);
    text = scrape();
    CHECK(value_in(text, "truce_commands_total{command=\"insert\"}") == 3);
    CHECK(value_in(text, "truce_commands_total{command=\"find\"}") == 1);
    CHECK(value_in(text, "truce_commands_total{command=\"aggregate\"}") == 1);
    CHECK(value_in(text, "truce_commands_total{command=\"truceSequence\"}") == 1);
    CHECK(value_in(text, "truce_commands_total{command=\"delete\"}") == -1);
    CHECK(value_in(text, "truce_command_duration_seconds_count{group=\"insert\"}") == 3);
    CHECK(value_in(text, "truce_command_duration_seconds_count{group=\"query\"}") == 1);
    CHECK(value_in(text, "truce_command_duration_seconds_count{group=\"command\"}") == 1);
    CHECK(value_in(text, "truce_command_duration_seconds_count{group=\"commit\"}") == 1);
    CHECK(value_in(text, "truce_command_duration_seconds_count{group=\"ledger\"}") == 0);
    CHECK(value_in(text, "truce_command_duration_seconds_bucket{group=\"insert\",le=\"+Inf\"}") ==
          3);
    CHECK(value_in(text, "truce_command_duration_seconds_sum{group=\"insert\"}") > 0);
    CHECK(value_in(text, "truce_command_duration_seconds_sum{group=\"ledger\"}") == 0);
    bson_free(text);
    end();
}

/* The steps of every group grow. The last step has no bound, and counts all. */
TEST(the_steps_of_a_histogram_are_sums)
{
    static const char step[] = "truce_command_duration_seconds_bucket{group=\"insert\"";
    double before = 0, now;
    int steps = 0;
    char *text;

    begin(NULL);
    for (int i = 0; i < 40; i++)
        expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    text = scrape();
    for (const char *at = text; (at = strstr(at, step)) != NULL; at++, steps++) {
        now = strtod(strchr(at, ' '), NULL);
        CHECK(now >= before);
        before = now;
    }
    CHECK_INT(steps, ==, 17);
    CHECK(before == 40);
    bson_free(text);
    end();
}

TEST(errors_are_counted_by_their_codes_statements_too)
{
    char *text;

    begin(NULL);
    expect_code("{'nothing': 1, '$db': 'test'}", 59);
    expect_code("{'nothing': 1, '$db': 'test'}", 59);
    expect_code("{'find': 'c', 'filter': {'$nothing': 1}, '$db': 'test'}", 2);
    expect_code(
        "{'insert': 'c', 'ordered': false, 'documents': [{'_id': 1}, {'_id': 1}, {'_id': 1}],"
        " '$db': 'test'}",
        0);
    text = scrape();
    CHECK(value_in(text, "truce_command_errors_total{code=\"59\"}") == 2);
    CHECK(value_in(text, "truce_command_errors_total{code=\"2\"}") == 1);
    CHECK(value_in(text, "truce_command_errors_total{code=\"11000\"}") == 2);
    CHECK(!strstr(text, "nothing"));
    bson_free(text);
    end();
}

TEST(connections_cursors_and_bytes_are_those_that_are_there)
{
    double sent, received;
    int socket_;

    begin(NULL);
    CHECK(value_of("truce_connections") == 0);
    CHECK(value_of("truce_received_bytes_total") == 0);
    socket_ = dial();
    bson_destroy(ask_on(socket_, "{'insert': 'c', 'documents': [{}, {}, {}], '$db': 'test'}", 0));
    received = value_of("truce_received_bytes_total");
    sent = value_of("truce_sent_bytes_total");
    CHECK(value_of("truce_connections") == 1);
    CHECK(value_of("truce_connections_accepted_total") == 1);
    CHECK(received > 60 && received < 300);
    CHECK(sent > 20 && sent < 300);
    CHECK(value_of("truce_cursors") == 0);
    bson_destroy(ask_on(socket_, "{'find': 'c', 'batchSize': 1, '$db': 'test'}", 0));
    CHECK(value_of("truce_cursors") == 1);
    CHECK(value_of("truce_received_bytes_total") > received);
    CHECK(value_of("truce_sent_bytes_total") > sent);
    close(socket_);
    end();
}

TEST(a_transaction_is_counted_as_long_as_it_runs)
{
#define SESSION                                                                                    \
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}},"        \
    " 'txnNumber': {'$numberLong': '1'}, 'autocommit': false"
    begin(NULL);
    expect_code("{'create': 'c', '$db': 'test'}", 0);
    expect_code("{'insert': 'c', 'documents': [{}], " SESSION
                ", 'startTransaction': true, '$db': 'test'}",
                0);
    CHECK(value_of("truce_transactions") == 1);
    expect_code("{'commitTransaction': 1, " SESSION ", '$db': 'admin'}", 0);
    CHECK(value_of("truce_transactions") == 0);
    end();
}

TEST(counts_commits_by_their_outcome)
{
    double before;

    begin(NULL);
    before = value_of("truce_commits_total{outcome=\"committed\"}");
    expect_code(
        "{'truceCommit': [{'insert': 'a', 'with': {'_id': 1}}, {'insert': 'b', 'with': {'_id': 1}}],"
        " '$db': 'test'}",
        0);
    CHECK(value_of("truce_commits_total{outcome=\"committed\"}") == before + 1);
    end();
}

TEST(reports_writes_and_syncs_of_the_store)
{
    double writes, syncs;

    begin(NULL);
    expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    writes = value_of("truce_store_writes_total");
    syncs = value_of("truce_store_syncs_total");
    CHECK(value_of("truce_store_log_bytes") >= 4096);
    expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    CHECK(value_of("truce_store_writes_total") == writes + 1);
    CHECK(value_of("truce_store_syncs_total") == syncs + 1);
    expect_code(
        "{'insert': 'c', 'documents': [{}], 'writeConcern': {'w': 1, 'j': false}, '$db': 'test'}",
        0);
    CHECK(value_of("truce_store_writes_total") == writes + 2);
    CHECK(value_of("process_resident_memory_bytes") > 1e6);
    CHECK(value_of("truce_feed_bytes") == -1);
    end();
}

TEST(reports_the_feed_of_changes_if_it_exists)
{
    const struct server_feed feed = {.keep_ms = 3600000};
    double bytes;

    begin(&feed);
    CHECK(value_of("truce_feed_bytes") == 0);
    CHECK(value_of("truce_feed_oldest_timestamp_seconds") == -1);
    expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    bytes = value_of("truce_feed_bytes"); /* of a collection and a document */
    CHECK(bytes > 100);
    CHECK(value_of("truce_feed_oldest_timestamp_seconds") >=
          value_of("truce_start_time_seconds") - 1);
    expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    CHECK(value_of("truce_feed_bytes") > bytes + 50);
    end();
}

/* ---- HTTP clients ---------------------------------------------------------------------------- */

static void check_status(const char *lines, const char *status)
{
    char *text = request(lines);

    if (!CHECK(!strncmp(text, "HTTP/1.1 ", 9) && !strncmp(text + 9, status, 3)))
        printf("%.60s... is answered %.60s\n", lines, text);
    bson_free(text);
}

/* The lag of the archiver is there while one runs, and grows while its target fails. */
TEST(shows_the_lag_of_the_archive)
{
    const struct server_options options = {.metrics = "0"};
    bson_error_t error;

    REQUIRE(environment_open());
    REQUIRE(!server_start(world.store, &options, &server, &error));
    CHECK(value_of("truce_archive_behind_bytes") == -1);
    archiver_start(world_faulty(FAULT_NONE, 0));
    (void)wait_for_event(ARCHIVE_BASE, 1);
    for (int i = 0; i < 5000 && value_of("truce_archive_behind_bytes") != 0; i++)
        truce__clock_sleep_ms(1);
    CHECK(value_of("truce_archive_failing_seconds") == 0);
    atomic_store(&world.faulty.down, true);
    REQUIRE(insert_one(1, 10000));
    for (int i = 0; i < 5000 && value_of("truce_archive_failing_seconds") <= 0; i++)
        truce__clock_sleep_ms(1);
    CHECK(value_of("truce_archive_failing_seconds") > 0);
    CHECK(value_of("truce_archive_behind_seconds") > 0);
    CHECK(value_of("truce_archive_behind_bytes") >= 10000);
    atomic_store(&world.faulty.down, false);
    for (int i = 0; i < 5000 && value_of("truce_archive_behind_bytes") != 0; i++)
        truce__clock_sleep_ms(1);
    CHECK(value_of("truce_archive_failing_seconds") == 0);
    CHECK(value_of("truce_archive_behind_seconds") == 0);
    archiver_end();
    CHECK_OK(world.status, world.error);
    server_stop(server, 5000);
    world_close();
}

TEST(refuses_requests_other_than_get_metrics)
{
    char *text;

    begin(NULL);
    check_status("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "404");
    check_status("GET /metrics/.. HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "404");
    check_status("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "405");
    /* the server does not wait for a missing body */
    check_status("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000000\r\n\r\n", "405");
    text = request("nothing\r\n\r\n"); /* is no HTTP */
    CHECK(!*text || !strncmp(text, "HTTP/1.1 400", 12));
    bson_free(text);
    text = request("HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK(!strncmp(text, "HTTP/1.1 200", 12) && !strstr(text, "truce_commands_total"));
    bson_free(text);
    end();
}

TEST(ends_a_long_request_and_replies_to_the_others)
{
    const size_t size = 1024 * 1024;
    char *line = bson_malloc(size + 1), *text;
    int half[20], socket_; /* more than there may be */

    begin(NULL);
    for (size_t i = 0; i < sizeof half / sizeof *half; i++) { /* nothing more comes of these */
        half[i] = metrics_dial();
        CHECK(send_all(half[i], (const uint8_t *)"GET /met", 8));
    }
    memset(line, 'a', size);
    memcpy(line, "GET /", 5);
    line[size] = 0;
    socket_ = metrics_dial();
    (void)send_all(socket_, (const uint8_t *)line, size); /* it may be ended before */
    text = read_all(socket_);
    CHECK(!*text || !strncmp(text + 9, "414", 3) || !strncmp(text + 9, "431", 3));
    bson_free(text);
    close(socket_);
    bson_free(line);
    CHECK(value_of("truce_connections") == 0);
    for (size_t i = 0; i < sizeof half / sizeof *half; i++)
        close(half[i]);
    end();
}

TEST(ends_despite_an_open_metrics_connection)
{
    int half;

    begin(NULL);
    half = metrics_dial();
    CHECK(send_all(half, (const uint8_t *)"GET /metrics HTTP/1.1\r\n", 23));
    end();
    bson_free(read_all(half));
    close(half);
}

TEST(reports_the_depth_and_the_times_of_queues)
{
    char *text;

    begin(NULL);
    /* A name has no characters that end a label. */
    bson_destroy(ask("{'truceEnqueue': 'ma\\\\il', 'payload': {}, '$db': 'shop'}"));
    bson_destroy(
        ask("{'truceEnqueue': 'ma\\\\il', 'payload': {}, '$db': 'shop', 'delayMS': 3600000}"));
    text = scrape();
    CHECK(
        strstr(text, "truce_queue_jobs{database=\"shop\",queue=\"ma\\\\il\",state=\"ready\"} 1\n"));
    CHECK(strstr(text, "state=\"delayed\"} 1\n"));
    CHECK(strstr(text, "truce_queue_oldest_seconds{database=\"shop\",queue=\"ma\\\\il\"} "));
    CHECK(strstr(text, "truce_job_wait_seconds_count 0\n"));
    bson_free(text);
    bson_destroy(ask("{'truceClaim': 'ma\\\\il', '$db': 'shop'}"));
    text = scrape();
    CHECK(strstr(text, "truce_job_wait_seconds_count 1\n"));
    CHECK(strstr(text, "truce_job_wait_seconds_bucket{le=\"+Inf\"} 1\n"));
    CHECK(strstr(text, "state=\"running\"} 1\n"));
    bson_free(text);
    for (int i = 0; i < 120; i++) {
        char request[100];

        snprintf(request, sizeof request, "{'truceEnqueue': 'q%d', 'payload': {}, '$db': 'shop'}",
                 i);
        bson_destroy(ask(request));
    }
    text = scrape();
    CHECK(strstr(text, "truce_queue_jobs{database=\"\",queue=\"other\",state=\"ready\"} 21\n"));
    bson_free(text);
    end();
}

static void check_refused(const char *where, truce_status wanted, const char *sentence)
{
    const struct server_options options = {.metrics = where};
    bson_error_t error = {0};

    CHECK_INT(server_start(store, &options, &server, &error), ==, wanted);
    CHECK(!server);
    if (!CHECK(strstr(error.message, sentence)))
        printf("%s: %s\n", where, error.message);
}

TEST(serves_metrics_on_loopback_addresses_only)
{
    struct server_options options = {.metrics = "127.3.2.1:0"};
    bson_error_t error;
    char taken[40];
    int port = 0;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    check_refused("0.0.0.0:9216", TRUCE_INVALID, "loopback addresses only");
    check_refused("10.0.0.1:9216", TRUCE_INVALID, "loopback addresses only");
    check_refused("localhost:9216", TRUCE_INVALID, "ADDRESS:PORT");
    check_refused("127.100.100.100and more:1", TRUCE_INVALID, "ADDRESS:PORT");
    check_refused("65536", TRUCE_INVALID, "\"65536\": expected PORT");
    check_refused("", TRUCE_INVALID, "ADDRESS:PORT");
    check_refused("127.0.0.1:", TRUCE_INVALID, "ADDRESS:PORT");
    check_refused("12a", TRUCE_INVALID, "ADDRESS:PORT");
    check_refused("::1:9216", TRUCE_INVALID, "[ADDRESS]:PORT");
    check_refused("[::]:9216", TRUCE_INVALID, "loopback addresses only");
    truce_store_close(store);
    begin_with(&options, "memory:");
    CHECK(sscanf(server_metrics(server), "http://127.3.2.1:%d/metrics", &port) == 1 && port);
    end();
    begin(NULL);
    REQUIRE(sscanf(server_metrics(server), "http://127.0.0.1:%d/metrics", &port) == 1);
    snprintf(taken, sizeof taken, "%d", port);
    options.metrics = taken;
    {
        struct server *other;

        CHECK_INT(server_start(store, &options, &other, &error), ==, TRUCE_IO);
    }
    end();
    options.metrics = NULL;
    begin_with(&options, "memory:");
    CHECK(!server_metrics(server));
    end();
}

#ifdef TRUCE_CLI
TEST(prints_the_address_of_its_metrics)
{
    char line[1000], *text;
    int pid = 0, port = 0, socket_;
    const char *where;
    FILE *pipe;

    snprintf(line, sizeof line, "echo $$; exec %s serve %s/s --port 0 --metrics 127.0.0.1:0",
             TRUCE_CLI, test_directory());
    pipe = popen(line, "r");
    REQUIRE(pipe);
    CHECK(fgets(line, sizeof line, pipe) && sscanf(line, "%d", &pid) == 1);
    CHECK(fgets(line, sizeof line, pipe) && !strncmp(line, "listening on mongodb://", 23));
    where = strstr(line, ", metrics at http://127.0.0.1:");
    if (CHECK(where && sscanf(where, ", metrics at http://127.0.0.1:%d/metrics", &port) == 1)) {
        const char get[] = "GET /metrics HTTP/1.0\r\n\r\n";

        socket_ = dial_port(port);
        CHECK(send_all(socket_, (const uint8_t *)get, sizeof get - 1));
        text = read_all(socket_);
        CHECK(value_in(text, "truce_connections_limit") == 1000);
        bson_free(text);
        close(socket_);
    }
    CHECK(pid > 1 && !kill(pid, SIGTERM));
    CHECK_INT(pclose(pipe), ==, 0);
}
#endif

/* ---- as Prometheus reads it ------------------------------------------------------------------ */

TEST(promtool_accepts_the_metrics)
{
    char path[600], line[700], *text;
    int status;
    FILE *file;

    if (system("command -v promtool >/dev/null") != 0) {
        test_skip("promtool (Debian's prometheus) is not installed");
        return;
    }
    begin(&(const struct server_feed){.keep_ms = 3600000});
    expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    expect_code("{'nothing': 1, '$db': 'test'}", 59);
    text = scrape();
    snprintf(path, sizeof path, "%s/metrics", test_directory());
    file = fopen(path, "w");
    REQUIRE(file);
    CHECK(fputs(text, file) >= 0 && !fclose(file));
    snprintf(line, sizeof line, "promtool check metrics <%s", path);
    status = system(line);
    if (!CHECK(!status))
        printf("%s", text);
    bson_free(text);
    end();
}
