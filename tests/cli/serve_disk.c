/* truce serve when a sync of the disk fails: it ends, so that its service manager starts it
 * again. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/core/command_line.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define INSERT(id) "{'insert': 'c', 'documents': [{'_id': " id "}], '$db': 'school'}"

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

struct served {
    pid_t child;
    int orders, reported; /* after a byte, the disk fails; the program's output */
    int port;
};

static void *fail_when_ordered(void *orders)
{
    char byte;

    if (read(*(int *)orders, &byte, 1) == 1)
        disk_fail(DISK_SYNC_FAILS, 1, true);
    return NULL;
}

static void run_child(const char *path, int orders, int reported)
{
    char *words[] = {
        (char *)"serve",   (char *)path, (char *)"--port", (char *)"0", (char *)"--json",
        (char *)"--quiet", NULL};
    struct cli *cli = bson_malloc0(sizeof *cli);
    pthread_t failer;
    sigset_t all, before;
    bool done;
    int code;

    dup2(reported, STDOUT_FILENO);
    sigfillset(&all); /* signals are for the program, and not for this thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&failer, NULL, fail_when_ordered, &orders))
        _exit(99);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(failer);
    cli_commands = cli_command_table();
    code = cli_call_read(cli, words, &done);
    fflush(NULL);
    _exit(code ? code : cli->command->run(cli));
}

static void begin(struct served *served, const char *path)
{
    int orders[2], reported[2];
    char line[500] = "", *at;

    REQUIRE(!pipe(orders) && !pipe(reported));
    served->child = fork();
    if (!served->child)
        run_child(path, orders[0], reported[1]);
    close(orders[0]);
    close(reported[1]);
    served->orders = orders[1];
    served->reported = reported[0];
    REQUIRE(read(served->reported, line, sizeof line - 1) > 0);
    at = strstr(line, "\"port\"");
    REQUIRE(at);
    served->port = (int)strtol(at + strcspn(at, "0123456789"), NULL, 10);
}

static int64_t insert(const struct served *served, const char *json)
{
    int end = dial_port(served->port);
    bson_t *reply = ask_on(end, json, 0);
    int64_t code = reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code");

    bson_destroy(reply);
    close(end);
    return code;
}

static int end(struct served *served)
{
    int status = 0;

    waitpid(served->child, &status, 0);
    close(served->orders);
    close(served->reported);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(exits_with_3_on_a_failed_disk_and_serves_after_a_restart)
{
    struct served served = {0};
    char path[500];

    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    begin(&served, path);
    CHECK_INT(insert(&served, INSERT("1")), ==, 0);
    CHECK_INT(write(served.orders, "x", 1), ==, 1);
    while (!insert(&served, "{'insert': 'd', 'documents': [{}], '$db': 'school'}"))
        continue; /* until the order has come there */
    CHECK_INT(end(&served), ==, 3);
    begin(&served, path);
    CHECK_INT(insert(&served, INSERT("2")), ==, 0);
    kill(served.child, SIGTERM);
    CHECK_INT(end(&served), ==, 0);
}
