/*
 * truce serve --archive-sync: what it acknowledges survives the loss of the store's disk, and what
 * it does while the target fails.
 *
 * TRUCE_ARCHIVE_DISKS: how many disks are lost.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cli/core/command_line.h"
#include "tests/support/command.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define CLIENTS 4

static struct {
    char path[500], archive[520], restored[520];
    pid_t child;
    int port;
    /* Ids that were acknowledged. */
    atomic_int next, answers;
    int acknowledged[CLIENTS][20000], counts[CLIENTS];
} served;

static void run_child(int reported, const char *timeout)
{
    char *words[] = {(char *)"serve",          served.path,
                     (char *)"--port",         (char *)"0",
                     (char *)"--json",         (char *)"--quiet",
                     (char *)"--archive",      served.archive,
                     (char *)"--archive-sync", (char *)"--archive-sync-timeout",
                     (char *)timeout,          NULL};
    struct cli *cli = bson_malloc0(sizeof *cli);
    bool done;
    int code;

    dup2(reported, STDOUT_FILENO);
    cli_commands = cli_command_table();
    code = cli_call_read(cli, words, &done);
    fflush(NULL);
    _exit(code ? code : cli->command->run(cli));
}

static bool serve_begin(const char *timeout)
{
    char line[500] = "", *at;
    int reported[2];

    if (!CHECK(!pipe(reported)))
        return false;
    served.child = fork();
    if (!served.child)
        run_child(reported[1], timeout);
    close(reported[1]);
    at = CHECK(read(reported[0], line, sizeof line - 1) > 0) ? strstr(line, "\"port\"") : NULL;
    close(reported[0]);
    if (!CHECK(at != NULL))
        return false;
    served.port = (int)strtol(at + strcspn(at, "0123456789"), NULL, 10);
    return true;
}

static int serve_kill(int signal)
{
    int status = 0;

    kill(served.child, signal);
    waitpid(served.child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void served_paths(void)
{
    const char *directory = test_directory();

    memset(&served, 0, sizeof served);
    snprintf(served.path, sizeof served.path, "%s/served.truce", directory);
    snprintf(served.archive, sizeof served.archive, "%s/archive", directory);
    snprintf(served.restored, sizeof served.restored, "%s/restored.truce", directory);
}

static void remove_files(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    char name[540];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
}

/* Restores the last commit, and opens the result. */
static truce_store *served_restore(void)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    struct target *target;
    truce_store *restored = NULL;
    bson_error_t error;

    remove_files(served.restored);
    if (!CHECK_OK(truce__target_directory(served.archive, false, &target, &error), error))
        return NULL;
    if (CHECK_OK(truce__archive_restore(target, served.restored, &options, &report, &error), error))
        CHECK_OK(truce_store_open(served.restored, NULL, &restored, &error), error);
    truce__target_close(target);
    return restored;
}

static bool restored_has(truce_store *restored, const char *json)
{
    bson_t *filter = test_bson(json), document;
    bson_error_t error;
    truce_status status = truce_find_one(restored, "c", filter, NULL, &document, &error);

    bson_destroy(filter);
    bson_destroy(&document);
    return !status;
}

/* ---- the loss of the disk ------------------------------------------------------------------- */

/* Inserts until the connection ends, and notes what is acknowledged. */
static void *insert_until_killed(void *arg)
{
    int client = (int)(intptr_t)arg, end_ = dial_port(served.port);

    while (served.counts[client] < 20000) {
        int id = atomic_fetch_add(&served.next, 1);
        bson_t *command = BCON_NEW("insert", "c", "documents", "[", "{", "_id", BCON_INT32(id), "}",
                                   "]", "$db", "test");
        struct buffer message = message_of(command, 0);
        bool sent = send_all(end_, message.bytes, message.size);
        bson_t *reply = sent ? receive_reply(end_) : NULL;
        bool fine = reply && reply_number(reply, "ok") == 1;

        if (fine && !bson_has_field(reply, "writeConcernError")) {
            served.acknowledged[client][served.counts[client]++] = id;
            atomic_fetch_add(&served.answers, 1);
        }
        truce__buffer_release(&message);
        bson_destroy(command);
        if (reply)
            bson_destroy(reply);
        if (!fine)
            break;
    }
    close(end_);
    return NULL;
}

static int64_t lose_disk(struct random *random)
{
    pthread_t threads[CLIENTS];
    truce_store *restored;
    int64_t checked = 0;
    char filter[64];

    served_paths();
    atomic_store(&served.next, 1);
    if (!serve_begin("60s"))
        return 0;
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&threads[i], NULL, insert_until_killed, (void *)(intptr_t)i);
    /* The first base may take a while. */
    for (int i = 0; i < 6000 && !atomic_load(&served.answers); i++)
        truce__clock_sleep_ms(10);
    truce__clock_sleep_ms((int)truce__random_below(random, 300));
    serve_kill(SIGKILL);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    remove_files(served.path);
    restored = served_restore();
    for (int i = 0; i < CLIENTS && restored; i++) {
        for (int k = 0; k < served.counts[i]; k++, checked++) {
            snprintf(filter, sizeof filter, "{'_id': %d}", served.acknowledged[i][k]);
            CHECK(restored_has(restored, filter));
        }
    }
    truce_store_close(restored);
    return checked;
}

TEST(nothing_acknowledged_is_lost_with_the_disk)
{
    long disks = test_scale("TRUCE_ARCHIVE_DISKS", 3);
    int64_t checked = 0;
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < disks && !test_failures(); i++)
        checked += lose_disk(&random);
    CHECK_INT(checked, >, 0);
}

/* ---- a target that fails -------------------------------------------------------------------- */

/* Makes the target refuse its next segment: a directory has its name. */
static void block_target(char name[600])
{
    char folder[560];
    struct dirent *found;
    unsigned long last = 0;
    DIR *opened;

    snprintf(folder, sizeof folder, "%s/00000001", served.archive);
    opened = opendir(folder);
    while (opened && (found = readdir(opened))) {
        unsigned long number = strtoul(found->d_name, NULL, 10);

        last = number > last ? number : last;
    }
    if (opened)
        closedir(opened);
    snprintf(name, 600, "%s/%010lu.log", folder, last + 1);
    CHECK(!mkdir(name, 0700));
}

static bson_t *ask_served(const char *json)
{
    int end_ = dial_port(served.port);
    bson_t *reply = ask_on(end_, json, 0);

    close(end_);
    return reply;
}

/* Returns the code of the reply, or of its writeConcernError; 0: success. */
static int64_t served_code(const char *json)
{
    bson_t *reply = ask_served(json);
    int64_t code = reply_number(reply, "ok") != 1 ? reply_number(reply, "code")
                   : bson_has_field(reply, "writeConcernError")
                       ? reply_number(reply, "writeConcernError.code")
                       : 0;

    bson_destroy(reply);
    return code;
}

#define INSERT(id) "{'insert': 'c', 'documents': [{'_id': '" id "'}], '$db': 'test'}"
#define IN_TRANSACTION                                                                             \
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "       \
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false, '$db': 'admin'"
#define FIND(level)                                                                                \
    "{'find': 'c', 'readConcern': {'level': '" level "'}, 'maxTimeMS': 200, '$db': 'test'}"

/* The target works again some time after it is no longer blocked. */
static bool works_again(void)
{
    for (int i = 0; i < 1000; i++) {
        if (!served_code("{'update': 'other', 'updates': [{'q': {}, 'u': {'$inc': {'n': 1}}, "
                         "'upsert': true}], '$db': 'test'}"))
            return true;
        truce__clock_sleep_ms(10);
    }
    return CHECK(false);
}

TEST(reports_what_is_not_archived_and_then_refuses_writes)
{
    char name[600];
    truce_store *restored;

    served_paths();
    REQUIRE(serve_begin("1s"));
    REQUIRE(works_again());
    CHECK_INT(served_code(INSERT("before")), ==, 0);
    CHECK_INT(served_code(FIND("majority")), ==, 0);
    block_target(name);
    CHECK_INT(served_code(INSERT("unknown")), ==, 64);
    CHECK_INT(served_code(FIND("local")), ==, 0);
    CHECK_INT(served_code(FIND("majority")), ==, 50);
    truce__clock_sleep_ms(1000);
    CHECK_INT(served_code(INSERT("refused")), ==, 24);
    CHECK_INT(served_code("{'truceSequence': 'orders', 'take': 1, '$db': 'test'}"), ==, 24);
    CHECK_INT(served_code("{'insert': 'c', 'documents': [{'_id': 'relaxed'}], 'writeConcern': "
                          "{'j': false}, '$db': 'test'}"),
              ==, 0);
    CHECK_INT(served_code("{'truceSet': 'students', 'key': {'_id': 1}, 'field': 'classes', 'name': "
                          "'name', 'add': {'name': 'a'}, 'seq': 1, '$db': 'test'}"),
              ==, 24);
    CHECK_INT(served_code("{'truceSequence': 'orders', 'take': 1, 'writeConcern': {'j': false}, "
                          "'$db': 'test'}"),
              ==, 0);
    CHECK_INT(served_code("{'truceSequence': 'orders', 'take': 1, " IN_TRANSACTION
                          ", 'startTransaction': true}"),
              ==, 0);
    CHECK_INT(served_code("{'commitTransaction': 1, " IN_TRANSACTION "}"), ==, 24);
    CHECK_INT(served_code("{'truceSequence': 'orders', '$db': 'test'}"), ==, 0);
    CHECK_INT(served_code("{'ping': 1, '$db': 'test'}"), ==, 0);
    CHECK(!rmdir(name));
    REQUIRE(works_again());
    CHECK_INT(served_code(INSERT("after")), ==, 0);
    serve_kill(SIGKILL);
    remove_files(served.path);
    restored = served_restore();
    REQUIRE(restored);
    CHECK(restored_has(restored, "{'_id': 'before'}"));
    CHECK(restored_has(restored, "{'_id': 'unknown'}"));
    CHECK(!restored_has(restored, "{'_id': 'refused'}"));
    CHECK(restored_has(restored, "{'_id': 'relaxed'}"));
    CHECK(restored_has(restored, "{'_id': 'after'}"));
    truce_store_close(restored);
}

/* An operation of a pattern has no writeConcernError. */
TEST(an_operation_that_is_not_archived_is_unknown)
{
    char name[600];
    bson_t *reply;
    bson_iter_t at;

    served_paths();
    REQUIRE(serve_begin("1s"));
    REQUIRE(works_again());
    block_target(name);
    reply = ask_served("{'truceSequence': 'orders', 'take': 1, '$db': 'test'}");
    CHECK_INT(reply_number(reply, "ok"), ==, 0);
    if (CHECK(bson_iter_init_find(&at, reply, "status") && BSON_ITER_HOLDS_UTF8(&at)))
        CHECK_TEXT(truce_status_name(TRUCE_UNKNOWN), bson_iter_utf8(&at, NULL));
    bson_destroy(reply);
    CHECK(!rmdir(name));
    REQUIRE(works_again());
    CHECK_INT(serve_kill(SIGTERM), ==, 0);
}

/* The client's own bounds count, too. */
TEST(waits_no_longer_than_the_client_does)
{
    char name[600];

    served_paths();
    REQUIRE(serve_begin("1h"));
    REQUIRE(works_again());
    block_target(name);
    CHECK_INT(served_code("{'insert': 'c', 'documents': [{'_id': 1}], 'writeConcern': {'w': 1, "
                          "'wtimeout': 100}, '$db': 'test'}"),
              ==, 64);
    CHECK_INT(served_code("{'insert': 'c', 'documents': [{'_id': 2}], 'maxTimeMS': 100, "
                          "'$db': 'test'}"),
              ==, 24);
    CHECK_INT(served_code("{'aggregate': 'c', 'pipeline': [{'$out': 'd'}], 'cursor': {}, "
                          "'maxTimeMS': 100, '$db': 'test'}"),
              ==, 24);
    CHECK_INT(served_code("{'aggregate': 'c', 'pipeline': [], 'cursor': {}, '$db': 'test'}"), ==,
              0);
    serve_kill(SIGKILL);
}

TEST(needs_an_archive)
{
    const struct command *c;

    served_paths();
    c = command_run(TRUCE_CLI, NULL, NULL, "serve", served.path, "--archive-sync", NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, "--archive-sync needs --archive TARGET") != NULL);
    c = command_run(TRUCE_CLI, NULL, NULL, "serve", served.path, "--archive", served.archive,
                    "--archive-sync-timeout", "5s", NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK(strstr(c->err, "--archive-sync-timeout needs --archive-sync") != NULL);
}
