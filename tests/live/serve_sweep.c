/* The server runs its recovery pass by itself: its removals, its log lines, the skipped passes, and
 * that no client waits for it. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "tests/support/kept_log.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/sweep.h"
#include "truce/sys/store.h"

#define INDEX                                                                                        \
    "{'createIndexes': 'c', 'indexes': [{'key': {'at': 1}, 'name': 'at', 'expireAfterSeconds': 1}]," \
    " '$db': 'test'}"
#define INSERT                                                                                     \
    "{'insert': 'c', 'documents': [{'at': {'$date': '2001-01-01T00:00:00Z'}}, {'at': 1}],"         \
    " '$db': 'test'}"

/* ---- a store that blocks and fails the list call, which only the recovery pass makes ---- */

static truce_store_ops hooked_ops;
static truce_status (*plain_list)(truce_store *of, const truce_list_options *options, bson_t *names,
                                  bson_error_t *error);
/* the call fails, with this number in the message; 0: it succeeds */
static atomic_int broken;
/* the caller is blocked until it is released or interrupted; a caller was blocked */
static atomic_bool holds, held;

static truce_status hooked_list(truce_store *of, const truce_list_options *options, bson_t *names,
                                bson_error_t *error)
{
    int number = atomic_load(&broken);

    while (atomic_load(&holds) && !__atomic_load_n(&of->interrupted, __ATOMIC_RELAXED)) {
        atomic_store(&held, true);
        truce__clock_sleep_ms(1);
    }
    if (!number)
        return plain_list(of, options, names, error);
    bson_init(names);
    return truce__fail(TRUCE_IO, error, "disk %d is gone", number);
}

static void begin(int64_t every_ms)
{
    struct server_options options = {.sweep_every_ms = every_ms, .log = kept_log_new()};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    hooked_ops = *store->ops;
    plain_list = hooked_ops.collection_list;
    hooked_ops.collection_list = hooked_list;
    store->ops = &hooked_ops;
    atomic_store(&broken, 0);
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
    kept_log_free();
}

static int64_t status_number(const char *path)
{
    bson_t *reply = ask("{'serverStatus': 1, '$db': 'admin'}");
    int64_t number = reply_number(reply, path);

    bson_destroy(reply);
    return number;
}

static void wait_for(const char *path, int64_t least)
{
    for (int i = 0; i < 3000 && status_number(path) < least; i++)
        truce__clock_sleep_ms(10);
    CHECK_INT(status_number(path), >=, least);
}

static int64_t count_documents(void)
{
    bson_t *reply = ask("{'count': 'c', '$db': 'test'}");
    int64_t count = reply_number(reply, "n");

    bson_destroy(reply);
    return count;
}

TEST(removes_and_logs_expired_documents)
{
    bson_t *line;

    begin(10);
    expect_code(INDEX, 0);
    expect_code(INSERT, 0);
    wait_for("sweep.expired", 1);
    CHECK_INT(count_documents(), ==, 1);
    CHECK_INT(status_number("metrics.ttl.deletedDocuments"), ==, 1);
    kept_log_wait("sweep finished", 1);
    line = kept_log_last("sweep finished");
    CHECK_INT(reply_number(line, "fields.expired"), ==, 1);
    bson_destroy(line);
    wait_for("sweep.turns", status_number("sweep.turns") + 2);
    CHECK_INT(kept_log_count("sweep finished"), ==, 1); /* passes without changes are not logged */
    CHECK_INT(status_number("sweep.broken"), ==, 0);
    end();
}

static int64_t count_in_school(const char *collection, const char *query)
{
    char text[300];
    bson_t *reply;
    int64_t count;

    snprintf(text, sizeof text, "{'count': '%s', 'query': %s, '$db': 'school'}", collection, query);
    reply = ask(text);
    count = reply_number(reply, "n");
    bson_destroy(reply);
    return count;
}

/* Commits of library clients: one active, one that decided and died, one that died before its
 * decision. */
TEST(the_commits_of_clients_of_other_databases_are_theirs)
{
    begin(20);
    bson_destroy(
        ask("{'insert': 'truce_commits', '$db': 'school', 'documents': ["
            " {'_id': {'$oid': '00000000000000000000000a'}, 'state': 'pending', 'lease':"
            "  {'ms': 600000, 'until': {'$numberLong': '4102444800000'}}},"
            " {'_id': {'$oid': '00000000000000000000000b'}, 'state': 'committed', 'post': ["
            "  {'ns': 'c', 'id': 2, 'op': 'set', 'changes': [{'p': 'n', 'v': 7}]}]},"
            " {'_id': {'$oid': '00000000000000000000000c'}, 'state': 'aborted', 'writes': ["
            "  {'ns': 'c', 'id': 3}]}]}"));
    bson_destroy(ask("{'insert': 'c', '$db': 'school', 'documents': ["
                     " {'_id': 1, 'n': 0, '_intent': {'c': {'$oid': '00000000000000000000000a'}}},"
                     " {'_id': 2, 'n': 0, '_intent': {'c': {'$oid': '00000000000000000000000b'}}},"
                     " {'_id': 3, 'n': 0, '_intent': {'c': {'$oid': '00000000000000000000000c'}}}"
                     "]}"));
    wait_for("sweep.turns", status_number("sweep.turns") + 3);
    CHECK_INT(count_in_school("c", "{'_id': 1, '_intent': {'$exists': true}}"), ==, 1);
    CHECK_INT(count_in_school("c", "{'_id': 2, 'n': 7, '_intent': {'$exists': false}}"), ==, 1);
    CHECK_INT(count_in_school("c", "{'_id': 3, 'n': 0, '_intent': {'$exists': false}}"), ==, 1);
    CHECK_INT(count_in_school("truce_commits", "{'state': 'done'}"), ==, 1);
    end();
}

TEST(runs_no_recovery_pass_without_an_interval)
{
    begin(0);
    expect_code(INDEX, 0);
    expect_code(INSERT, 0);
    truce__clock_sleep_ms(100);
    CHECK_INT(count_documents(), ==, 2);
    CHECK_INT(status_number("sweep.turns"), ==, 0);
    expect_code("{'truceSweep': 1, '$db': 'admin'}", 0);
    CHECK_INT(count_documents(), ==, 1);
    end();
}

TEST(waits_for_its_interval_before_the_first_recovery_pass)
{
    begin(3600000);
    CHECK_INT(status_number("sweep.everySeconds"), ==, 3600);
    truce__clock_sleep_ms(50);
    CHECK_INT(status_number("sweep.turns"), ==, 0);
    end();
}

/* Passes that begin after this see the new settings. */
static void next_turns(void)
{
    wait_for("sweep.turns", status_number("sweep.turns") + 3);
}

TEST(logs_a_failure_once_and_a_different_one_again)
{
    bson_iter_t at, reason;
    bson_t *line;

    begin(5);
    next_turns();
    CHECK_INT(kept_log_count("sweep failed"), ==, 0);
    atomic_store(&broken, 1);
    next_turns();
    CHECK_INT(kept_log_count("sweep failed"), ==, 1);
    CHECK_INT(status_number("sweep.broken"), >=, 2);
    atomic_store(&broken, 2);
    next_turns();
    CHECK_INT(kept_log_count("sweep failed"), ==, 2);
    line = kept_log_last("sweep failed");
    CHECK(line && bson_iter_init(&at, line) &&
          bson_iter_find_descendant(&at, "fields.reason", &reason) &&
          !strcmp(bson_iter_utf8(&reason, NULL), "disk 2 is gone"));
    bson_destroy(line);
    atomic_store(&broken, 0);
    next_turns();
    atomic_store(&broken, 2); /* it was well in between */
    next_turns();
    CHECK_INT(kept_log_count("sweep failed"), ==, 3);
    end();
}

static void *ask_sweep(void *arg)
{
    (void)arg;
    expect_code("{'truceSweep': 1, '$db': 'admin'}", 0);
    return NULL;
}

TEST(skips_its_recovery_pass_during_a_clients_pass)
{
    pthread_t thread;
    int64_t turns;

    atomic_store(&holds, false);
    atomic_store(&held, false);
    begin(300);
    wait_for("sweep.turns", 1);
    atomic_store(&holds, true);
    pthread_create(&thread, NULL, ask_sweep, NULL);
    wait_for("sweep.skipped", 2);
    turns = status_number("sweep.turns");
    wait_for("sweep.skipped", status_number("sweep.skipped") + 2);
    CHECK_INT(status_number("sweep.turns"), ==, turns);
    atomic_store(&holds, false);
    pthread_join(thread, NULL);
    wait_for("sweep.turns", turns + 1);
    end();
}

/* The recovery pass is blocked until the store is interrupted: without an interrupt at once, the
 * stop would take its whole timeout. */
TEST(does_not_wait_for_the_recovery_pass_at_the_end)
{
    int64_t begun_ns;

    atomic_store(&held, false);
    atomic_store(&holds, true);
    begin(10);
    while (!atomic_load(&held))
        truce__clock_sleep_ms(1);
    begun_ns = truce__clock_monotonic_ns();
    server_stop(server, 3600000);
    CHECK_INT((truce__clock_monotonic_ns() - begun_ns) / 1000000, <, 3600000);
    CHECK_INT(kept_log_count("sweep failed"), ==, 0);
    atomic_store(&holds, false);
    truce_store_close(store);
    kept_log_free();
}

/* The server stores its own database under plain names, and data outside of databases under other
 * names. */
TEST(a_sweep_through_the_server_finds_its_own_database_and_others)
{
    static const char *const databases[] = {"test", "school"};

    begin(0);
    for (int i = 0; i < 2; i++) {
        bson_t *document = test_bson("{'_id': 1}");
        char uri[100];
        truce_sweep_report report;
        bson_error_t error = {0};
        truce_store *through;

        snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/%s", server_port(server), databases[i]);
        REQUIRE(!truce_store_open(uri, NULL, &through, &error));
        CHECK_OK(truce_insert(through, "c", document, NULL, &error), error);
        CHECK_OK(truce_sweep(through, NULL, &report, &error), error);
        truce_store_close(through);
        bson_destroy(document);
    }
    end();
}

/* The views of a database are documents of a collection that no call of a store may name. */
TEST(databases_with_views_are_swept_and_checked)
{
    static const char *const databases[] = {"test", "school"};
    static const char *const commands[] = {
        "'createIndexes': 'c', 'indexes': [{'key': {'at': 1}, 'name': 'at', "
        "'expireAfterSeconds': 1}]",
        "'insert': 'c', 'documents': [{'at': {'$date': '2001-01-01T00:00:00Z'}}]",
        "'create': 'v', 'viewOn': 'c', 'pipeline': []"};
    bson_error_t error = {0};
    truce_sweep_report report;

    begin(0);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 3; j++) {
            char *command = bson_strdup_printf("{%s, '$db': '%s'}", commands[j], databases[i]);

            bson_destroy(ask(command));
            bson_free(command);
        }
    }
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.expired, ==, 2);
    for (int i = 0; i < 2; i++) {
        char *command = bson_strdup_printf("{'truceCheck': 1, '$db': '%s'}", databases[i]);
        bson_t *reply = ask(command);

        CHECK_INT(reply_number(reply, "ok"), ==, 1);
        CHECK_INT(reply_number(reply, "found"), ==, 0);
        bson_destroy(reply);
        bson_free(command);
    }
    end();
}

#ifdef TRUCE_CLI
TEST(the_program_sweeps_and_ends)
{
    char line[1000];
    int pid = 0, port = 0, socket_;
    bson_t *reply;
    FILE *pipe;

    snprintf(line, sizeof line, "echo $$; exec %s serve %s/s --port 0 --sweep-every 1s 2>/dev/null",
             TRUCE_CLI, test_directory());
    pipe = popen(line, "r");
    REQUIRE(pipe);
    CHECK(fgets(line, sizeof line, pipe) && sscanf(line, "%d", &pid) == 1 && pid > 1);
    CHECK(fgets(line, sizeof line, pipe) &&
          sscanf(line, "listening on mongodb://127.0.0.1:%d", &port) == 1);
    socket_ = dial_port(port);
    bson_destroy(ask_on(socket_, INDEX, 0));
    bson_destroy(ask_on(socket_, INSERT, 0));
    for (int64_t left = 2; left == 2;) {
        truce__clock_sleep_ms(20);
        reply = ask_on(socket_, "{'count': 'c', '$db': 'test'}", 0);
        left = reply_number(reply, "n");
        bson_destroy(reply);
    }
    close(socket_);
    CHECK(pid > 1 && !kill(pid, SIGTERM));
    CHECK_INT(pclose(pipe), ==, 0);
}
#endif
