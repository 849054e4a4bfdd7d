/* truce queue and truce work: their output and exit codes; workers that are killed and stopped. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/jobs.h"

#define DRAIN  "work", "--queue", "mail", "--drain"
#define COUNTS "[{\"update\": \"effects\", \"id\": 1, \"with\": {\"$inc\": {\"n\": 1}}}]"

/* A queue needs no declaration, so a misspelled name is not an error. */
TEST(notes_which_queues_have_jobs_if_the_named_one_has_none)
{
#define NO_JOBS "the queue \"mial\" has no jobs"
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, "new ", NULL, "queue", "add", "cards", "{}");
    ANSWERS(0, "", NO_JOBS "; these queues have: \"cards\", \"mail\"", "queue", "list", "mial");
    ANSWERS(0, "0 retried\n", NO_JOBS "; these queues have: \"cards\", \"mail\"", "queue",
            "redrive", "mial");
    ANSWERS(0, "", NO_JOBS "; these queues have: \"cards\", \"mail\"", "queue", "stats", "mial");
    ANSWERS(0, "", NO_JOBS "; these queues have: \"cards\", \"mail\"", "work", "--queue", "mial",
            "--drain", "--exec", "cat");
    ANSWERS(0, "", NULL, "queue", "list", "mail", "--state", "dead");
    ANSWERS(0, "0 retried\n", NULL, "queue", "redrive", "mail");
}

TEST(a_worker_notes_an_unknown_queue_although_all_jobs_are_done)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "", NO_JOBS "; another queue has jobs: \"mail\"", "work", "--queue", "mial",
            "--drain", "--exec", "cat");
}

TEST(shows_the_statistics_of_one_queue)
{
    const struct command *c;

    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, "new ", NULL, "queue", "add", "cards", "{}");
    ANSWERS(0, "\"queue\": \"mail\"", NULL, "queue", "stats");
    c = command_run(TRUCE_CLI, store, NULL, "queue", "stats", "cards", NULL);
    CHECK(!strncmp(c->out, "{\"queue\": \"cards\"", 17) && !strstr(c->out, "mail"));
    CHECK_TEXT("", c->err);
    c = command_run(TRUCE_CLI, store, NULL, "queue", "stats", "cards", "--json", NULL);
    CHECK(!strncmp(c->out, "{\"queue\": \"cards\"", 17) && !strstr(c->out, "mail"));
}

TEST(stores_the_options_of_a_job)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--lane", "ada", "--lane-rate", "2",
            "--lane-per", "1h", "--keep-cancelled", "5ms", "--keep-discarded", "6ms", "--keep-dead",
            "7ms");
    ANSWERS(0, "\"rate\": 2, \"per_ms\": 3600000", NULL, "queue", "list");
    ANSWERS(0, "\"keep\": {\"cancelled\": 5, \"discarded\": 6, \"dead\": 7}", NULL, "queue",
            "list");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--unique", "k", "--unique-scope",
            "unclaimed");
    ANSWERS(0, "existing ", NULL, "queue", "add", "mail", "{}", "--unique", "k", "--unique-scope",
            "unclaimed");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--run-at", "2200-01-31T12:00:00Z");
    ANSWERS(0, "1\n", NULL, "count", "truce_queue",
            "{'undone.at': {$date: '2200-01-31T12:00:00Z'}, state: 'delayed'}");
    ANSWERS(2, "", "--run-at needs a time", "queue", "add", "mail", "{}", "--run-at", "tomorrow");
    ANSWERS(2, "", "both a delay and a time", "queue", "add", "mail", "{}", "--run-at",
            "2200-01-31", "--delay", "5ms");
    ANSWERS(2, "", "--failure needs --after", "queue", "add", "mail", "{}", "--failure", "goOn");
    ANSWERS(2, "", "live, kept, or unclaimed", "queue", "add", "mail", "{}", "--unique", "k",
            "--unique-scope", "once");
    ANSWERS(2, "", "--unique-scope needs a key", "queue", "add", "mail", "{}", "--unique-scope",
            "kept");
    ANSWERS(2, "", "--lane-rate and --lane-per must be given together", "queue", "add", "mail",
            "{}", "--lane", "a", "--lane-rate", "5");
    ANSWERS(2, "", "--lane-rate needs --lane", "queue", "add", "mail", "{}", "--lane-rate", "5",
            "--lane-per", "1s");
    ANSWERS(2, "", "--pool needs", "queue", "limit", "mail", "--pool", "smtp");
}

TEST(a_program_does_a_job_and_prints_its_result)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"to\": \"ada\"}", "--tag", "a",
            "--metadata", "{\"m\": 1}");
    ANSWERS(0, "\"state\": \"ready\"", NULL, "queue", "list", "mail", "--tag", "a");
    ANSWERS(0, "\"ready\": 1", NULL, "queue", "stats");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "\"result\": {\"to\": \"ada\"}", NULL, "queue", "show", job);
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"to\": \"bob\"}");
    ANSWERS(0, " done\n", NULL, "work", "--queue", "mail=3", "-n", "1", "--exec", "sh", "--", "-c",
            "echo $TRUCE_QUEUE $TRUCE_JOB_ATTEMPT $TRUCE_JOB_EPOCH");
    ANSWERS(0, "\"result\": {\"output\": \"mail 1 1\\n\"}", NULL, "queue", "show", job);
    ANSWERS(0, "", NULL, DRAIN, "--exec", "cat");
}

TEST(commits_the_output_of_a_program_with_the_end_of_its_job)
{
    begin();
    ANSWERS(0, NULL, NULL, "insert", "effects", "{\"_id\": 1, \"n\": 0}");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, " done\n", NULL, DRAIN, "--commit", "--exec", "echo", COUNTS);
    ANSWERS(0, "\"n\": 1", NULL, "find", "effects");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(1, " failed\n", "not an array of changes", DRAIN, "--commit", "--exec", "echo", "17");
    ANSWERS(0, "not an array of changes", NULL, "queue", "show", job);
    ANSWERS(0, "\"n\": 1", NULL, "find", "effects");
}

/* A worker that waits may be the first one of its queue. */
/* The call is correct, but has no effect. */
TEST(a_job_in_another_state_is_a_negative_result)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "true");
    ANSWERS(1, "", "done, so it cannot be retried", "queue", "retry", job);
    ANSWERS(1, "", "done, so it cannot be cancelled", "queue", "cancel", job);
    ANSWERS(1, "", "done, so it cannot be discarded", "queue", "discard", job);
    ANSWERS(2, "", "24 hexadecimal", "queue", "retry", "x");
}

TEST(a_worker_that_drains_notes_that_no_queue_has_jobs)
{
    begin();
    ANSWERS(0, "inserted 1", NULL, "insert", "orders", "{_id: 1}");
    ANSWERS(0, "", "the queue \"mail\" has no jobs\n", DRAIN, "--exec", "cat");
    ANSWERS(0, "", NULL, DRAIN, "--exec", "cat", "--json");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--delay", "1h");
    ANSWERS(0, "", NULL, DRAIN, "--exec", "cat");
}

TEST(a_worker_that_drains_notes_the_jobs_of_dead_workers)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    (void)command_run(TRUCE_CLI, store, NULL, DRAIN, "--lease", "1h", "--exec", "sh", "--", "-c",
                      "kill -9 $PPID", NULL);
    ANSWERS(0, "", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    (void)command_run(TRUCE_CLI, store, NULL, DRAIN, "--lease", "100ms", "--exec", "sh", "--", "-c",
                      "kill -9 $PPID", NULL);
    truce__clock_sleep_ms(150);
    ANSWERS(0, "",
            "1 job of the queue \"mail\" is still running after the end of the lease: ", DRAIN,
            "--exec", "cat");
}

TEST(a_queue_has_limits)
{
    begin();
    ANSWERS(0, "limited mail\n", NULL, "queue", "limit", "mail", "--running", "1", "--rate", "2",
            "--per", "1h");
    ANSWERS(0, "\"running_max\": 1, \"rate\": 2, \"per_ms\": 3600000", NULL, "find",
            "truce_queue_limiters");
    for (int i = 0; i < 3; i++)
        ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "\"ready\": 1", NULL, "queue", "stats");
    ANSWERS(0, "limited mial\n", "the queue \"mial\" has no jobs; these queues have: \"mail\"",
            "queue", "limit", "mial");
    ANSWERS(0, "paused mial\n", "these queues have: \"mail\"", "queue", "pause", "mial");
    ANSWERS(0, "resumed mial\n", "these queues have: \"mail\"", "queue", "resume", "mial");
    ANSWERS(0, "limited mail\n", NULL, "queue", "limit", "mail");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "cat");
    ANSWERS(2, "", "--rate and --per must be given together", "queue", "limit", "mail", "--rate",
            "5");
    ANSWERS(2, "", "1 to", "queue", "limit", "mail", "--rate", "0", "--per", "1s");
    ANSWERS(2, "", "500ms, 90s, 5m", "queue", "limit", "mail", "--rate", "5", "--per", "1w");
    ANSWERS(2, "", "\"60\"", "queue", "limit", "mail", "--rate", "5", "--per", "60");
    ANSWERS(2, "", "1 to", "queue", "limit", "mail", "--running", "0");
}

TEST(jobs_of_a_lane_run_one_after_the_other)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"n\": 1}", "--lane", "ada");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"n\": 2}", "--lane", "ada", "--priority",
            "9");
    ANSWERS(0, "\"waiting\": 1", NULL, "queue", "stats");
    ANSWERS(0, "\"n\": 2", NULL, "queue", "list", "mail", "--state", "waiting");
    ANSWERS(0, "\"lane\": {\"name\": \"ada\", \"width\": 1}", NULL, "queue", "list", "mail");
    ANSWERS(0, " done\n", NULL, "work", "--queue", "mail", "-n", "1", "--exec", "cat");
    ANSWERS(0, "\"result\": {\"n\": 1}", NULL, "queue", "list", "--state", "done");
    ANSWERS(2, "", "width", "queue", "add", "mail", "{}", "--lane-width", "2");
}

TEST(jobs_wait_for_others)
{
    char first[64];

    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"n\": 1}", "--name", "get\"<");
    memcpy(first, job, sizeof first);
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"n\": 2}", "--after", first, "--name",
            "sum");
    ANSWERS(0, "blocked    mail  after get\"<\n", NULL, "queue", "graph", first);
    ANSWERS(0, "n1 [label=\"sum\\nblocked\"", NULL, "queue", "graph", first, "--dot");
    ANSWERS(0, "[label=\"get\\\"<\\nready\"", NULL, "queue", "graph", first, "--dot");
    ANSWERS(0, "get&#34;&#60;</text>", NULL, "queue", "graph", first, "--svg");
    ANSWERS(0, "\"level\": 1, \"after\": [{\"$oid\"", NULL, "queue", "graph", first, "--json");
    ANSWERS(2, "", "exclude", "queue", "graph", first, "--dot", "--svg");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "\"result\": {\"n\": 1}", NULL, "queue", "results", job);
    ANSWERS(2, "", "24 hexadecimal", "queue", "add", "mail", "{}", "--after", "7");
    ANSWERS(2, "", "cancel, goOn, or wait", "queue", "add", "mail", "{}", "--failure", "no");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--open");
    memcpy(first, job, sizeof first);
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--batch", first);
    ANSWERS(0, "closed ", NULL, "queue", "close", first);
    ANSWERS(0, "\"blocked\": 1", NULL, "queue", "stats");
}

TEST(draws_a_label_with_escapes_of_the_characters_that_a_terminal_obeys)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "ma\nil", "{}", "--name",
            "a\x1b\x01z\xe2\x80\xae\nready  mail");
    CHECK_TEXT("a\\u001b\\u0001z\\u202e\\u000aready  mail  ready      ma\\u000ail\n",
               command_run(TRUCE_CLI, store, NULL, "queue", "graph", job, NULL)->out);
    ANSWERS(0, "[label=\"a\\\\u001b\\\\u0001z\\\\u202e\\\\u000aready  mail\\nready\"", NULL,
            "queue", "graph", job, "--dot");
    ANSWERS(0, ">a\\u001b\\u0001z\\u202e\\u000aready  mail</text>", NULL, "queue", "graph", job,
            "--svg");
}

TEST(the_figures_are_shown_once_where_there_is_no_terminal)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, "paused mail\n", NULL, "queue", "pause", "mail");
    ANSWERS(0, "mail                            1        0        0        0        0        0",
            NULL, "queue", "top");
    ANSWERS(0, "  paused\n", NULL, "queue", "top");
    ANSWERS(0, "\"ready\": 1", NULL, "queue", "top", "--json");
    ANSWERS(2, "", "100ms to", "queue", "top", "--every", "1ms");
}

TEST(delivers_an_event_to_a_job)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, "signalled paid\n", NULL, "queue", "signal", job, "paid", "{\"sum\": 5}");
    ANSWERS(0, "\"events\": {\"paid\": {\"sum\": 5}}", NULL, "queue", "show", job);
    ANSWERS(2, "", "EVENT", "queue", "signal", job, "paid", "{");
    ANSWERS(2, "", "name of a step", "queue", "signal", job, "a.b");
}

/* Writes the text to a file next to the store. Returns its path. */
static const char *flow_of(const char *text)
{
    static char path[300];
    FILE *file;

    snprintf(path, sizeof path, "%.290s.flow", store);
    file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    return path;
}

TEST(reads_a_workflow_from_a_file)
{
    const char *path;

    begin();
    path = flow_of("[{name: 'a', payload: {n: 1}}, {name: 'b', queue: 'other', after: ['a'], "
                   "failure: 'goOn', priority: 3, tags: ['t']}]");
    ANSWERS(2, "", "has no 'queue'", "queue", "flow", path);
    ANSWERS(0, "a ", NULL, "queue", "flow", path, "--queue", "web");
    ANSWERS(0, "\"failure\": \"go on\"", NULL, "queue", "list", "other", "--tag", "t");
    path = flow_of("[{name: 'c', lane: 'x', laneRate: 1, lanePerMS: 60000, keepDeadMS: 5}]");
    ANSWERS(0, "c ", NULL, "queue", "flow", path, "--queue", "rated");
    ANSWERS(0, "\"per_ms\": 60000", NULL, "queue", "list", "rated");
    ANSWERS(0, "\"dead\": 5", NULL, "queue", "list", "rated");
}

TEST(workflows_that_cannot_be_are_refused)
{
    static const struct {
        const char *flow, *word;
    } bad[] = {{"{}", "an array of jobs"},
               {"[7]", "job 1: must be a document, not int"},
               {"[{name: 'a', afer: []}]",
                "unknown field \"afer\" of \"truceFlow\": did you mean \"after\"?"},
               {"[{name: 'a', after: 'b'}]", "'after' must be an array"},
               {"[{name: 'a', after: [7]}]", "must be the name of a job"},
               {"[{name: 'a', priority: 2000}]", "from -1000 to 1000"},
               {"[{name: 'a', after: ['a']}]", "cycle: a after a"},
               {"[{name: 'a', failure: 'x'}]", "\"goOn\""}};

    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ANSWERS(2, "", bad[i].word, "queue", "flow", flow_of(bad[i].flow), "--queue", "web");
}

TEST(exit_codes_snooze_or_fail_a_job)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--attempts", "1");
    ANSWERS(0, " later\n", NULL, DRAIN, "--exec", "sh", "--", "-c", "exit 75");
    ANSWERS(0, "\"attempt\": 0", NULL, "queue", "show", job);
    ANSWERS(0, "retried ", NULL, "queue", "retry", job);
    ANSWERS(1, " failed\n", "exit code 3: oh dear", DRAIN, "--exec", "sh", "--", "-c",
            "echo oh dear >&2; exit 3");
    ANSWERS(0, "\"text\": \"exit code 3: oh dear\"", NULL, "queue", "show", job);
    ANSWERS(0, "\"dead\": 1", NULL, "queue", "stats");
    ANSWERS(0, "1 retried\n", NULL, "queue", "redrive", "mail");
    ANSWERS(1, " failed\n", "killed by signal 9", DRAIN, "--exec", "sh", "--", "-c", "kill -9 $$");
    ANSWERS(0, "discarded ", NULL, "queue", "discard", job);
    ANSWERS(0, "retried ", NULL, "queue", "retry", job);
    ANSWERS(1, " failed\n", "exit code 1\n", DRAIN, "--fixed", "--exec", "false");
    ANSWERS(0, "retried ", NULL, "queue", "retry", job);
    ANSWERS(1, " failed\n", "exit code 4: said here", DRAIN, "--backoff-max", "5ms", "--exec", "sh",
            "--", "-c", "echo said here; exit 4");
    ANSWERS(0, "discarded ", NULL, "queue", "discard", job);
    ANSWERS(1, "", "is discarded", "queue", "cancel", job);
    ANSWERS(2, "", "cannot run", DRAIN, "--exec", "/nowhere/at/all");
    ANSWERS(2, "", "cannot run /tmp: Permission denied", DRAIN, "--exec", "/tmp");
    ANSWERS(2, "", "cannot run nosuchprog: No such file", DRAIN, "--exec", "nosuchprog");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(2, "", "cannot run", DRAIN, "--exec", "/nowhere/at/all");
    ANSWERS(0, "\"attempt\": 0", NULL, "queue", "show", job);
}

TEST(a_job_that_takes_too_long_is_ended)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--timeout", "50ms", "--attempts", "1");
    ANSWERS(1, " failed\n", "timed out", DRAIN, "--exec", "sleep", "100");
    ANSWERS(0, "\"dead\": 1", NULL, "queue", "stats");
    ANSWERS(0, "1 retried\n", NULL, "queue", "redrive", "mail");
    ANSWERS(1, " failed\n", "timed out", DRAIN, "--grace", "50ms", "--exec", "sh", "--", "-c",
            "trap '' TERM; while :; do sleep 0.05; done");
}

TEST(wrong_calls_are_refused)
{
    begin();
    ANSWERS(2, "", "--exec PROGRAM is missing", "work", "--queue", "mail");
    ANSWERS(2, "", "--queue QUEUE is missing", "work", "--exec", "cat");
    ANSWERS(2, "", "weight", "work", "--queue", "mail=0", "--exec", "cat");
    ANSWERS(2, "", "--on-conflict", "queue", "add", "mail", "{}", "--on-conflict", "perhaps");
    ANSWERS(2, "", "PAYLOAD", "queue", "add", "mail", "{");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(2, "", "24 hexadecimal", "queue", "show", "x");
    ANSWERS(1, "", "the job 000000000000000000000000 does not exist", "queue", "cancel",
            "000000000000000000000000");
    ANSWERS(2, "", "--state must be ready", "queue", "list", "--state", "tired");
}

TEST(a_paused_queue_gives_nothing)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, "paused mail\n", NULL, "queue", "pause", "mail");
    ANSWERS(0, "", NULL, DRAIN, "--exec", "cat");
    ANSWERS(0, "\"paused\": true, \"ready\": 1", NULL, "queue", "stats");
    ANSWERS(0, "truce queue resume mail", NULL, "doctor");
    ANSWERS(0, "resumed mail\n", NULL, "queue", "resume", "mail");
    ANSWERS(0, " done\n", NULL, DRAIN, "--exec", "cat");
}

/* ---- workers that come to an end ---- */

/* Until the store's answer has `text`; bounded, a slow machine waits longer. */
static bool waits_for(const char *text, const char *noun, const char *verb)
{
    for (int i = 0; i < 1200; i++) {
        const struct command *c = command_run(TRUCE_CLI, store, NULL, noun, verb, NULL);

        if (strstr(c->out, text))
            return true;
        truce__clock_sleep_ms(50);
    }
    return test_fail(__FILE__, __LINE__, "\"%s\" never came", text);
}

static void end_of(pid_t worker)
{
    int state;

    kill(worker, SIGCONT);
    waitpid(worker, &state, 0);
}

TEST(a_worker_may_start_before_the_store_exists)
{
    pid_t worker;

    begin();
    worker =
        command_start(TRUCE_CLI, store, "work", "--queue", "mail", "-n1", "--exec", "true", NULL);
    for (int i = 0; i < 1200 && access(store, F_OK); i++)
        truce__clock_sleep_ms(50);
    if (CHECK(!access(store, F_OK))) {
        ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
        waits_for("\"state\": \"done\"", "queue", "list");
    } else {
        kill(worker, SIGTERM);
    }
    end_of(worker);
}

TEST(requeues_the_job_of_a_worker_that_is_asked_to_end)
{
    pid_t worker;

    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    worker = command_start(TRUCE_CLI, store, "work", "--queue", "mail", "--grace", "10ms", "--exec",
                           "sleep", "1000", NULL);
    waits_for("\"running\": 1", "queue", "stats");
    kill(worker, SIGTERM);
    end_of(worker);
    ANSWERS(0, "\"ready\": 1", NULL, "queue", "stats");
    ANSWERS(0, "\"attempt\": 0", NULL, "queue", "show", job);
}

TEST(a_job_that_is_cancelled_ends_its_program)
{
    pid_t worker;

    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    worker = command_start(TRUCE_CLI, store, "work", "--queue", "mail", "-n", "1", "--exec",
                           "sleep", "1000", NULL);
    waits_for("\"running\": 1", "queue", "stats");
    ANSWERS(0, "cancelled ", NULL, "queue", "cancel", job);
    end_of(worker); /* it ends by itself: its only job has ended */
    ANSWERS(0, "\"state\": \"cancelled\"", NULL, "queue", "show", job);
}

/* A worker is stopped while its program runs. Other workers do the job. Then the worker continues,
 * and its changes are refused. The program waits for a file, so that the result does not depend on
 * speed. */
TEST(a_worker_that_was_stopped_past_its_lease_changes_nothing)
{
    char program[600], go[320];
    pid_t stopped, other;
    FILE *file;

    begin();
    snprintf(go, sizeof go, "%s.go", store);
    snprintf(program, sizeof program, "while [ ! -e %s ]; do sleep 0.05; done; echo '%s'", go,
             COUNTS);
    ANSWERS(0, NULL, NULL, "insert", "effects", "{\"_id\": 1, \"n\": 0}");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    stopped =
        command_start(TRUCE_CLI, store, "work", "--queue", "mail", "-n", "1", "--lease", "100ms",
                      "--commit", "--exec", "sh", "--", "-c", "sleep 0.3; echo '" COUNTS "'", NULL);
    waits_for("\"running\": 1", "queue", "stats");
    kill(stopped, SIGSTOP);
    other = command_start(TRUCE_CLI, store, "work", "--queue", "mail", "-n", "1", "--lease", "5s",
                          "--commit", "--exec", "echo", COUNTS, NULL);
    waits_for("\"state\": \"done\"", "queue", "list");
    ANSWERS(0, "\"n\": 1", NULL, "find", "effects");
    file = fopen(go, "w");
    REQUIRE(file);
    fclose(file);
    end_of(stopped);
    kill(other, SIGTERM);
    end_of(other);
    ANSWERS(0, "\"n\": 1", NULL, "find", "effects");
}

/* Workers are killed with -9 again and again; each job has one effect in the end. */
TEST(does_jobs_once_despite_killed_processes)
{
    enum { WORKERS = 3, JOBS = 12 };
    pid_t workers[WORKERS] = {0};
    long kills = test_scale("TRUCE_QUEUE_KILLS", 5);
    bool done = false;

    begin();
    ANSWERS(0, NULL, NULL, "insert", "effects", "{\"_id\": 1, \"n\": 0}");
    for (int i = 0; i < JOBS; i++)
        ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--attempts", "1000");
    for (long round = 0; round < 3000 && !done; round++) {
        const struct command *c;

        for (int i = 0; i < WORKERS; i++) {
            if (workers[i] && waitpid(workers[i], NULL, WNOHANG) == workers[i])
                workers[i] = 0;
            if (!workers[i])
                workers[i] =
                    command_start(TRUCE_CLI, store, "work", "--queue", "mail", "--lease", "200ms",
                                  "--backoff", "1ms", "--commit", "--exec", "echo", COUNTS, NULL);
        }
        truce__clock_sleep_ms(20);
        if (round < kills)
            kill(workers[round % WORKERS], SIGKILL);
        c = command_run(TRUCE_CLI, store, NULL, "count", "truce_queue", "{\"state\": \"done\"}",
                        NULL);
        done = atoi(c->out) == JOBS && round >= kills;
    }
    CHECK(done);
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGTERM);
        end_of(workers[i]);
    }
    ANSWERS(0, "\"n\": 12", NULL, "find", "effects");
    ANSWERS(0, " 0 findings", NULL, "check");
}

TEST(runs_the_demonstration_of_friends_correctly)
{
    snprintf(store, sizeof store, "%s/friends.truce", test_directory());
    ANSWERS(0, "all jobs are done: right", NULL, "demo", "friends", "--duration", "1s", "--store",
            store);
}

/* A list that its default limit truncates reports that. */
TEST(says_that_a_list_is_not_complete)
{
    const char *more = "there are more than these 100";
    char documents[101 * 3 + 1] = "";

    begin();
    for (int i = 0; i < 101; i++)
        strcat(documents, "{}\n");
    jobs_check(__LINE__, __FILE__,
               command_run(TRUCE_CLI, store, documents + 3, "import", "book", "-", NULL), 0, NULL,
               "");
    ANSWERS(0, "", NULL, "transfer", "list", "book");
    ANSWERS(0, "", NULL, "insert", "book", "{}");
    ANSWERS(0, "", more, "transfer", "list", "book");
    ANSWERS(0, "", NULL, "transfer", "list", "book", "--limit", "100");
    for (int i = 0; i < 10; i++)
        ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "{}", "{}", "{}", "{}", "{}", "{}",
                "{}", "{}", "{}");
    ANSWERS(0, "ready", NULL, "queue", "list");
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}");
    ANSWERS(0, "ready", more, "queue", "list");
}
