/* No thread outlives its owner: a thread that still runs while `main` returns would use libraries
 * that are being torn down. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/bank.h"
#include "tests/support/stage.h"
#include "tests/support/talk.h"

/* The system removes a thread from its list shortly after it was joined. A thread that waits for a
 * server, or sleeps, stays for longer. */
#define GONE_MS 300

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    while (tasks && (entry = readdir(tasks)))
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void check_threads(int before)
{
    for (int i = 0; i < GONE_MS && count_threads() > before; i++)
        truce__clock_sleep_ms(1);
    CHECK_INT(count_threads(), ==, before);
}

/* ---- a store of a server -------------------------------------------------------------------- */

/* A replica set of one that answers no request for its change stream; a process, so that this one
 * has only the threads of the store. */
struct silent {
    pid_t process;
    int asked; /* to be read: one byte for each request for the stream */
    char uri[200];
};

static enum fake_act keep_silent(const bson_t *command, bson_t *reply, void *arg)
{
    bson_iter_t iter, stream;

    (void)reply;
    if (!bson_iter_init(&iter, command) ||
        !bson_iter_find_descendant(&iter, "pipeline.0.$changeStream", &stream))
        return FAKE_PASS;
    CHECK_INT(write(*(int *)arg, "x", 1), ==, 1);
    return FAKE_SILENT;
}

static void serve_silently(int out)
{
    struct stage stage = {.script = {.own = keep_silent, .arg = &out}};
    bson_error_t error;
    char uri[sizeof(((struct silent *)0)->uri)] = "";

    if (!CHECK_OK(raise_stage(&stage, FAKE_REPLICA_SET, 21, "", &error), error))
        _exit(1);
    snprintf(uri, sizeof uri, "%s", fake_uri(stage.fake, ""));
    CHECK_INT(write(out, uri, sizeof uri), ==, (ssize_t)sizeof uri);
    for (;;)
        pause();
}

static struct silent silent_start(void)
{
    struct silent silent;
    int ends[2];

    CHECK(pipe(ends) == 0);
    silent.process = fork();
    if (!silent.process)
        serve_silently(ends[1]);
    close(ends[1]);
    silent.asked = ends[0];
    CHECK_INT(read(ends[0], silent.uri, sizeof silent.uri), ==, (ssize_t)sizeof silent.uri);
    return silent;
}

static void silent_end(struct silent *silent)
{
    kill(silent->process, SIGKILL);
    waitpid(silent->process, NULL, 0);
    close(silent->asked);
}

enum moment { AT_ONCE, STREAM_IS_ASKED_FOR, SERVER_STANDS_STILL, SERVER_IS_DEAD, MOMENTS };

static void close_at(enum moment moment)
{
    struct silent silent = silent_start();
    truce_store *opened = NULL;
    int before = count_threads();
    uint64_t token = 0;
    bson_error_t error;
    char byte;

    CHECK_OK(truce_store_open(silent.uri, NULL, &opened, &error), error);
    REQUIRE(opened != NULL);
    if (moment == SERVER_STANDS_STILL)
        kill(silent.process, SIGSTOP);
    if (moment == SERVER_IS_DEAD)
        kill(silent.process, SIGKILL);
    CHECK_OK(truce_wait(opened, "things", &token, 0, &error), error);
    if (moment == STREAM_IS_ASKED_FOR)
        CHECK_INT(read(silent.asked, &byte, 1), ==, 1);
    truce_store_close(opened);
    check_threads(before);
    silent_end(&silent);
}

TEST(no_listener_outlives_its_store)
{
    for (enum moment moment = AT_ONCE; moment < MOMENTS; moment++)
        close_at(moment);
}

/* ---- a file --------------------------------------------------------------------------------- */

TEST(no_thread_outlives_the_store_of_a_file)
{
    int before = count_threads();
    char uri[200];
    bson_error_t error;
    truce_store *file = NULL;

    snprintf(uri, sizeof uri, "file:%s/f.truce", test_directory());
    CHECK_OK(truce_store_open(uri, NULL, &file, &error), error);
    REQUIRE(file != NULL);
    for (int i = 0; i < 20; i++)
        insert_json(file, "things", "{}");
    CHECK_INT(count_json(file, "things", "{}"), ==, 20);
    truce_store_close(file);
    check_threads(before);
}

/* ---- a server ------------------------------------------------------------------------------- */

TEST(no_connection_outlives_its_server)
{
    int before = count_threads();
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    CHECK_OK(server_start(store, NULL, &server, &error), error);
    for (int i = 0; i < 20; i++) {
        int end = dial();

        bson_destroy(ask_on(end, "{'ping': 1, '$db': 'admin'}", 0));
        if (i % 2) /* the others are open when the server ends */
            close(end);
    }
    server_stop(server, 5000);
    truce_store_close(store);
    CHECK_INT(count_threads(), ==, before);
}
