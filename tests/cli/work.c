/* truce work --keep-open: the lines of its protocol, and programs that violate it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/queue/work_program.h"
#include "tests/support/jobs.h"

/* Returns a path next to the store; valid until the next call. */
static const char *path_of(const char *name)
{
    static char path[400];

    snprintf(path, sizeof path, "%s.%s", store, name);
    return path;
}

static void add(const char *payload)
{
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", payload, "--attempts", "1");
}

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

#define KEEPS "work", "--queue", "mail", "--drain", "--keep-open"
#define SH    "--exec", "sh", "--", "-c"
/* The next line of a program in sh: $id, $epoch. */
#define NEXT                                                                                       \
    "next() { read -r line || exit 0; id=${line#*: \\\"}; id=${id%%\\\"*}; "                       \
    "epoch=${line#*epoch\\\": }; epoch=${epoch%%,*}; }; "                                          \
    "end() { echo \"{\\\"$1\\\": \\\"$id\\\", \\\"epoch\\\": $epoch $2}\"; }; "
#define EACH(what) NEXT "while next; do " what "; done"

/* ---- answers ---- */

TEST(accepts_only_the_fields_of_the_kind_of_a_reply)
{
    static const struct {
        const char *line, *why; /* NULL: it is good */
    } lines[] = {
        {"{\"done\": \"%s\", \"epoch\": 1}", NULL},
        {"{\"epoch\": 1, \"result\": {}, \"changes\": [], \"done\": \"%s\"}", NULL},
        {"{\"fail\": \"%s\", \"epoch\": 1, \"error\": \"e\", \"delay_ms\": 5}", NULL},
        {"{\"snooze\": \"%s\", \"epoch\": 1}", NULL},
        {"{\"discard\": \"%s\", \"epoch\": 1}", NULL},
        {"{\"progress\": \"%s\", \"epoch\": 1, \"result\": {}}", NULL},
        {"", "only white space"},
        {"done", "column 1"},
        {"[]", ""},
        {"{}", "the line has no \"done\""},
        {"{\"done\": \"%s\"}", "\"epoch\" is missing"},
        {"{\"done\": 7, \"epoch\": 1}", "not the id"},
        {"{\"done\": \"x\", \"epoch\": 1}", "not the id"},
        {"{\"done\": \"%s\", \"fail\": \"%s\", \"epoch\": 1}", "both"},
        {"{\"done\": \"%s\", \"epoch\": 1, \"resutl\": {}}", "no field \"resutl\""},
        {"{\"done\": \"%s\", \"epoch\": 1, \"error\": \"e\"}", "no field \"error\""},
        {"{\"snooze\": \"%s\", \"epoch\": 1, \"changes\": []}", "no field \"changes\""},
        {"{\"done\": \"%s\", \"epoch\": 1, \"epoch\": 2}", "twice"},
        {"{\"done\": \"%s\", \"epoch\": -1}", "wrong type"},
        {"{\"done\": \"%s\", \"epoch\": \"1\"}", "wrong type"},
        {"{\"done\": \"%s\", \"epoch\": 1, \"result\": 7}", "wrong type"},
        {"{\"done\": \"%s\", \"epoch\": 1, \"changes\": {}}", "wrong type"},
        {"{\"fail\": \"%s\", \"epoch\": 1}", "\"error\" is missing"},
        {"{\"fail\": \"%s\", \"epoch\": 1, \"error\": 7}", "wrong type"},
        {"{\"snooze\": \"%s\", \"epoch\": 1, \"delay_ms\": -5}", "wrong type"},
    };
    static const char id[] = "0123456789abcdef01234567";
    struct json_reader reader = {.typed = false};

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[200];
        struct answer answer;
        bson_error_t error = {0};
        truce_status status;

        snprintf(line, sizeof line, lines[i].line, id, id);
        status = work_answer_read(&reader, line, strlen(line), &answer, &error);
        if (lines[i].why ? status != TRUCE_INVALID || !strstr(error.message, lines[i].why)
                         : status != TRUCE_OK)
            test_fail(__FILE__, __LINE__, "%s: %d, %s", line, (int)status, error.message);
    }
    truce__json_reader_release(&reader);
}

TEST(one_program_runs_many_jobs)
{
    begin();
    ANSWERS(0, NULL, NULL, "insert", "effects", "{\"_id\": 1, \"n\": 0}");
    for (int i = 0; i < 5; i++)
        add("{\"n\": 1}");
    ANSWERS(
        0, " done\n", NULL, KEEPS, SH,
        NEXT
        "all=0; while next; do all=$((all + 1)); end done \", \\\"result\\\": {\\\"all\\\": $all}, "
        "\\\"changes\\\": [{\\\"update\\\": \\\"effects\\\", \\\"id\\\": 1, "
        "\\\"with\\\": {\\\"\\$inc\\\": {\\\"n\\\": 1}}}]\"; done");
    ANSWERS(0, "\"n\": 5", NULL, "find", "effects");
    ANSWERS(0, "\"result\": {\"all\": 5}", NULL, "queue", "list", "--state", "done");
}

TEST(passes_all_fields_of_a_job_to_the_program)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{\"to\": [\"ada\", 1.5]}", "--timeout", "1h");
    ANSWERS(0, " done\n", NULL, KEEPS, SH,
            EACH("end done \", \\\"result\\\": {\\\"got\\\": $line}\""));
    ANSWERS(0, "\"epoch\": 1, \"queue\": \"mail\", \"attempt\": 1, \"deadline\": ", NULL, "queue",
            "show", job);
    ANSWERS(0, "\"payload\": {\"to\": [\"ada\", 1.5]}}", NULL, "queue", "show", job);
}

TEST(ends_a_job_as_its_reply_says)
{
    begin();
    add("{}");
    ANSWERS(0, " later\n", NULL, KEEPS, SH, EACH("end snooze ', \"delay_ms\": 1000000'"));
    ANSWERS(0, "\"attempt\": 0", NULL, "queue", "show", job);
    ANSWERS(0, "retried ", NULL, "queue", "retry", job);
    ANSWERS(1, " failed\n", "oh dear", KEEPS, SH, EACH("end fail ', \"error\": \"oh dear\"'"));
    ANSWERS(0, "\"text\": \"oh dear\"", NULL, "queue", "show", job);
    ANSWERS(0, "retried ", NULL, "queue", "retry", job);
    ANSWERS(0, " discarded\n", NULL, KEEPS, SH, EACH("end discard ', \"error\": \"no\"'"));
    ANSWERS(0, "\"state\": \"discarded\"", NULL, "queue", "show", job);
    ANSWERS(0, "retried ", NULL, "queue", "retry", job);
    ANSWERS(0, " done\n", NULL, KEEPS, SH,
            EACH("end progress ', \"result\": {\"half\": 1}'; end done"));
    ANSWERS(0, "\"progress\": {\"half\": 1}", NULL, "queue", "show", job);
    add("{}");
    ANSWERS(1, " failed\n", "change 1", KEEPS, SH, EACH("end done ', \"changes\": [7]'"));
}

TEST(a_program_has_several_jobs_at_once)
{
    begin();
    for (int i = 0; i < 4; i++)
        add("{}");
    /* it answers none before it has four, and the last one first */
    ANSWERS(0, " done\n", NULL, KEEPS, "--at-once", "4", SH,
            NEXT "while :; do next; a=$id; next; b=$id; next; c=$id; next; "
                 "for id in $id $c $b $a; do end done; done; done");
    ANSWERS(0, "4\n", NULL, "count", "truce_queue", "{\"state\": \"done\"}");
}

TEST(several_programs_share_the_jobs)
{
    begin();
    for (int i = 0; i < 4; i++)
        add("{}");
    /* each answers when there are two */
    setenv("HERE", path_of("here"), 1);
    ANSWERS(
        0, " done\n", NULL, KEEPS, "--workers", "2", SH,
        EACH(
            "touch $HERE.$$; while [ $(ls $HERE.* | wc -l) -lt 2 ]; do sleep 0.01; done; end done"));
    ANSWERS(0, "4\n", NULL, "count", "truce_queue", "{\"state\": \"done\"}");
    for (int i = 0; i < 4; i++)
        add("{}");
    ANSWERS(0, " done\n", NULL, "work", "--queue", "mail", "--drain", "--workers", "3", "--exec",
            "cat");
    ANSWERS(0, "8\n", NULL, "count", "truce_queue", "{\"state\": \"done\"}");
}

/* ---- programs that do wrong ---- */

TEST(fails_the_job_of_a_dead_program_and_restarts_it)
{
    begin();
    add("{}");
    add("{}");
    ANSWERS(1, " failed\n", "the program ended, exit code 3: oh dear", KEEPS, "-n", "2", SH,
            NEXT "next; echo oh dear >&2; exit 3");
    ANSWERS(0, "\"text\": \"the program ended, exit code 3: oh dear\"", NULL, "queue", "show", job);
    ANSWERS(0, "\"dead\": 2", NULL, "queue", "stats");
    ANSWERS(0, "2 retried\n", NULL, "queue", "redrive", "mail");
    ANSWERS(1, " failed\n", "killed by signal 9", KEEPS, SH, NEXT "next; kill -9 $$");
    ANSWERS(0, "\"dead\": 2", NULL, "queue", "stats");
    ANSWERS(2, "", "cannot run", KEEPS, "--exec", "/nowhere/at/all");
}

TEST(ends_a_program_that_prints_an_invalid_line)
{
    static const struct {
        const char *program, *reason;
    } bad[] = {
        {EACH("echo hello"), "invalid line: column 1"},
        {EACH("end done ', \"resutl\": {}'"), "no field \\\"resutl\\\""},
        {EACH("printf '\\377\\033[2J\\n'"), "invalid line"},
        {EACH("printf '{\"done\": '; exit 0"), "ended in the middle of a line, exit code 0"},
        {EACH("head -c 17000000 /dev/zero | tr '\\0' a"),
         "the line is too long: the maximum is 16 MiB: aaaa"},
    };

    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        add("{}");
        ANSWERS(1, " failed\n", "the program", KEEPS, SH, bad[i].program);
        ANSWERS(0, bad[i].reason, NULL, "queue", "show", job);
    }
    add("{}");
    ANSWERS(0, " done\n", NULL, KEEPS, SH, EACH("end done"));
}

TEST(ignores_a_reply_for_a_job_that_the_program_does_not_have)
{
    begin();
    add("{}");
    ANSWERS(0, " done\n", "which it does not have", KEEPS, SH, EACH("end done; end done"));
    add("{}");
    ANSWERS(
        0, " done\n", "epoch 2, which it does not have", KEEPS, SH,
        EACH(
            "epoch=$((epoch + 1)); end fail ', \"error\": \"e\"'; epoch=$((epoch - 1)); end done"));
    add("{}");
    ANSWERS(0, " done\n", "job 0123456789abcdef01234567 of", KEEPS, SH,
            EACH("mine=$id; id=0123456789abcdef01234567; end done; id=$mine; end done"));
    ANSWERS(0, "3\n", NULL, "count", "truce_queue", "{\"state\": \"done\"}");
}

TEST(a_program_that_closes_its_output_or_its_input_is_ended)
{
    begin();
    add("{}");
    ANSWERS(1, " failed\n", "closed its input or output", KEEPS, "--grace", "50ms", SH,
            NEXT "next; exec >&-; exec sleep 1000");
    add("{\"text\": \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}");
    ANSWERS(1, " failed\n", "closed its input or output", KEEPS, "--grace", "50ms", "-n", "1", SH,
            "exec <&-; trap '' TERM; while :; do sleep 0.05; done");
}

TEST(cancels_a_job_that_takes_too_long_and_requeues_the_others)
{
    begin();
    ANSWERS(0, "new ", NULL, "queue", "add", "mail", "{}", "--timeout", "50ms", "--attempts", "1",
            "--priority", "5");
    add("{}");
    /* the program gets both jobs and answers neither; after a restart it gets only the second
     * job */
    ANSWERS(1, " returned\n", "timed out", KEEPS, "--at-once", "2", "--grace", "50ms", SH,
            NEXT "next; case $line in *deadline*) next; exec sleep 1000;; esac; end done; "
                 "while next; do end done; done");
    ANSWERS(0, "\"state\": \"done\"", NULL, "queue", "show", job);
    ANSWERS(0, "\"dead\": 1", NULL, "queue", "stats");
    ANSWERS(0, "1 retried\n", NULL, "queue", "redrive", "mail");
    /* notified in time, it continues */
    ANSWERS(1, " failed\n", "timed out", KEEPS, SH,
            EACH("case $line in *cancel*) end fail ', \"error\": \"well\"';; esac"));
}

TEST(notifies_the_program_of_a_cancelled_job)
{
    pid_t worker;

    begin();
    add("{}");
    setenv("SEEN", path_of("seen"), 1);
    worker =
        command_start(TRUCE_CLI, store, "work", "--queue", "mail", "-n", "1", "--keep-open", SH,
                      EACH("case $line in *cancel*) echo \"$line\" >$SEEN; end done;; esac"), NULL);
    waits_for("\"running\": 1", "queue", "stats");
    ANSWERS(0, "cancelled ", NULL, "queue", "cancel", job);
    waitpid(worker, NULL, 0); /* it ends by itself: its only job has ended */
    ANSWERS(0, "\"state\": \"cancelled\"", NULL, "queue", "show", job);
    command_check(command_run("/bin/cat", NULL, NULL, path_of("seen"), NULL), 0,
                  "\"reason\": \"lost\"}", NULL, __FILE__, __LINE__);
}

/* Stops a worker by SIGTERM after its job runs, and checks the state of the job. The program may
 * wait for the file $GO, which appears after the signal. */
static void ends_when_asked(const char *program, const char *grace, const char *state)
{
    pid_t worker;
    FILE *go;
    int how;

    setenv("GO", path_of("go"), 1);
    worker = command_start(TRUCE_CLI, store, "work", "--queue", "mail", "--grace", grace,
                           "--keep-open", SH, program, NULL);
    waits_for("\"running\": 1", "queue", "stats");
    kill(worker, SIGTERM);
    go = fopen(path_of("go"), "w");
    REQUIRE(go && !fclose(go));
    REQUIRE(waitpid(worker, &how, 0) == worker);
    CHECK(WIFEXITED(how) && !WEXITSTATUS(how));
    ANSWERS(0, state, NULL, "queue", "show", job);
}

TEST(a_worker_that_ends_waits_for_the_replies_of_its_programs)
{
    begin();
    add("{}");
    ends_when_asked(EACH("while ! test -e \"$GO\"; do sleep 0.05; done; sleep 0.2; "
                         "end snooze ', \"delay_ms\": 1000000'"),
                    "10m", "\"state\": \"delayed\"");
}

TEST(requeues_a_job_without_a_reply_at_the_end)
{
    begin();
    add("{}");
    ends_when_asked(NEXT "next; exec sleep 1000", "50ms", "\"state\": \"ready\"");
    ANSWERS(0, "\"attempt\": 0", NULL, "queue", "show", job);
}

TEST(refuses_contradictory_options_of_work)
{
    begin();
    ANSWERS(2, "", "--keep-open", "work", "--queue", "mail", "--at-once", "2", "--exec", "cat");
    ANSWERS(2, "", "\"changes\"", KEEPS, "--commit", "--exec", "cat");
    ANSWERS(2, "", "\"result\"", KEEPS, "--output", "7", "--exec", "cat");
    ANSWERS(2, "", "1 to 64", KEEPS, "--workers", "65", "--exec", "cat");
    ANSWERS(2, "", "1 to 1000", KEEPS, "--at-once", "0", "--exec", "cat");
}

/* ---- the workers of the examples ---- */

static void example_works(const char *program, const char *file)
{
    const char *at_once = strcmp(program, "node") ? "1" : "10";

    begin();
    if (strstr(command_run("/bin/sh", NULL, NULL, "-c", "command -v \"$1\" || echo none", "sh",
                           program, NULL)
                   ->out,
               "none")) {
        test_skip("there is no %s", program);
        return;
    }
    add("{\"to\": \"ada\"}");
    add("{\"to\": \"bob\"}");
    add("{\"for\": \"eve\"}");
    ANSWERS(1, " done\n", "the payload has no \"to\"", KEEPS, "--at-once", at_once, "--exec",
            program, file);
    ANSWERS(0, "2\n", NULL, "count", "sent");
    ANSWERS(0, "\"result\": {\"sent\": \"ada\"}", NULL, "queue", "list", "--state", "done");
    ANSWERS(0, "\"dead\": 1", NULL, "queue", "stats");
}

TEST(the_worker_in_python_works)
{
    example_works("python3", TRUCE_TEST_DATA "/../../examples/worker.py");
}

TEST(the_worker_in_node_works)
{
    example_works("node", TRUCE_TEST_DATA "/../../examples/worker.js");
}
