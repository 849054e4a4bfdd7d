#include "tests/support/broker_trial.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define STUDENTS   50
#define CLASSES    10
#define PROCESSES  3
#define FEW_KILLS  3
#define MANY_KILLS 21
#define LONG_FORM  10000

/* ---- messages -------------------------------------------------------------------------------- */

struct trial_enrolment {
    int student, class;
    /* The message inserts the class; otherwise it deletes the class. */
    bool insert;
};

static struct trial_enrolment trial_enrolment_of(int64_t seq)
{
    struct random chance;

    truce__random_seed(&chance, (uint64_t)seq * 7919);
    return (struct trial_enrolment){(int)truce__random_below(&chance, STUDENTS),
                                    (int)truce__random_below(&chance, CLASSES),
                                    truce__random_below(&chance, 2) == 0};
}

int64_t broker_trial_count(bool *full)
{
    int64_t count = test_scale("TRUCE_BROKER_MESSAGES", 1500);

    *full = count >= LONG_FORM;
    return count;
}

int64_t *broker_trial_order(int64_t count, int64_t *total)
{
    int64_t *order = bson_malloc((size_t)count * 2 * sizeof *order);
    struct random chance;

    *total = 0;
    truce__random_seed(&chance, test_seed());
    for (int64_t seq = 1; seq <= count; seq++) {
        order[(*total)++] = seq;
        if (seq % 10 == 0)
            order[(*total)++] = seq;
    }
    for (int64_t i = *total - 1; i > 0; i--) {
        int64_t other = (int64_t)truce__random_below(&chance, (uint64_t)i + 1), seq = order[i];

        order[i] = order[other];
        order[other] = seq;
    }
    return order;
}

void broker_trial_message(int64_t seq, char body[250], char id[32])
{
    struct trial_enrolment enrolment = trial_enrolment_of(seq);

    snprintf(
        body, 250,
        "{\"operation\": \"%s\", \"student_id\": %d, \"class\": \"CS %d\", "
        "\"sequence_number\": %lld, \"entries\": {\"external:bank\": \"-0.01\", \"students:%d\": "
        "\"0.01\"}}",
        enrolment.insert ? "insert" : "delete", enrolment.student, enrolment.class, (long long)seq,
        enrolment.student);
    snprintf(id, 32, "m%lld", (long long)seq);
}

/* ---- the run --------------------------------------------------------------------------------- */

const char *broker_trial_program(const char *program)
{
    const char *other = getenv("TRUCE_TEST_PROGRAM");

    return other ? other : program;
}

void broker_trial_prepare(const struct broker_trial *trial)
{
    char script[600];

    snprintf(
        script, sizeof script,
        "t=$0; $t set define students --list classes --key student_id --name name && "
        "$t ledger currency book EUR 2 && $t ledger open book external:bank --currency EUR && "
        "for i in $(seq 0 %d); do $t ledger open book students:$i --currency EUR || exit; done",
        STUDENTS - 1);
    CHECK_INT(command_run("/bin/sh", trial->store, NULL, "-c", script,
                          broker_trial_program(trial->program), NULL)
                  ->code,
              ==, 0);
}

static pid_t trial_start(const struct broker_trial *trial, int which)
{
    static const char *const workers[PROCESSES] = {"2", "2", "1"};

    return command_start(
        "/bin/sh", trial->store, "-c", "exec \"$0\" consume \"$@\" >>\"$TRUCE_STORE.log\" 2>&1",
        broker_trial_program(trial->program), trial->url, "--into", trial->into, "--map",
        trial->map, "--workers", workers[which], trial->id ? "--id" : NULL, trial->id, NULL);
}

static void trial_kill(pid_t consumer)
{
    kill(consumer, SIGKILL);
    waitpid(consumer, NULL, 0);
}

/* Makes the disk full for some time. The consumers continue when it is free again. */
static void trial_fill_disk(const char *disk)
{
    char line[500];

    snprintf(line, sizeof line, "%s full", disk);
    CHECK_INT(system(line), ==, 0); /* NOLINT */
    truce__clock_sleep_ms(4000);
    snprintf(line, sizeof line, "%s free", disk);
    CHECK_INT(system(line), ==, 0); /* NOLINT */
}

/* Kills and restarts the consumers, one after the other, with random pauses. In the long form, also
 * kills the broker regularly, and fills the disk once. */
static void trial_kill_all(const struct broker_trial *trial, pid_t consumers[PROCESSES])
{
    int kills = trial->full ? MANY_KILLS : FEW_KILLS;
    const char *disk = getenv("TRUCE_TEST_DISK");
    struct random chance;

    truce__random_seed(&chance, test_seed());
    for (int i = 0; i < kills; i++) {
        int which = i % PROCESSES;

        truce__clock_sleep_ms(trial->pause_ms * (trial->full ? 10 : 1) +
                              (int64_t)truce__random_below(&chance, 300));
        if (trial->full && i % 7 == 6)
            CHECK_INT(system(getenv("TRUCE_TEST_BROKER_KILL")), ==, 0); /* NOLINT */
        if (trial->full && i == 3 && disk)
            trial_fill_disk(disk);
        trial_kill(consumers[which]);
        consumers[which] = trial_start(trial, which);
    }
}

void broker_trial_run(const struct broker_trial *trial)
{
    const struct command *command;
    pid_t consumers[PROCESSES];

    for (int i = 0; i < PROCESSES; i++)
        consumers[i] = trial_start(trial, i);
    trial_kill_all(trial, consumers);
    for (int i = 0; i < PROCESSES; i++)
        trial_kill(consumers[i]);
    command = command_run(broker_trial_program(trial->program), trial->store, NULL, "consume",
                          trial->url, "--into", trial->into, "--map", trial->map, "--until-empty",
                          "--workers", "5", trial->id ? "--id" : NULL, trial->id, NULL);
    CHECK_INT(command->code, ==, 0);
    if (trial->full)
        fprintf(stderr, "    the last consumer: %s", command->out);
    if (test_failures())
        fprintf(
            stderr, "%s%s%s", command->out, command->err,
            command_run("/bin/sh", trial->store, NULL, "-c", "tail -50 \"$TRUCE_STORE.log\"", NULL)
                ->out);
}

/* ---- checks ---------------------------------------------------------------------------------- */

void broker_trial_check_count(const char *store, const char *collection, int64_t expected)
{
    bson_error_t error = {0};
    truce_store *opened = NULL;
    int64_t count = -1;

    if (CHECK_OK(truce_store_open(store, NULL, &opened, &error), error))
        CHECK_OK(truce_count(opened, collection, NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, expected);
    truce_store_close(opened);
}

void broker_trial_check_set(const char *uri, int64_t count)
{
    int64_t last[STUDENTS][CLASSES] = {{0}};
    bson_error_t error = {0};
    truce_store *store = NULL;

    for (int64_t seq = 1; seq <= count; seq++) {
        struct trial_enrolment enrolment = trial_enrolment_of(seq);

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
    broker_trial_check_count(uri, "truce_rejects", 0);
}

void broker_trial_check_posts(const char *program, const char *store, int64_t count)
{
    const struct command *command;
    char expected[60];

    broker_trial_check_count(store, "truce_queue", count);
    broker_trial_check_count(store, "truce_rejects", 0);
    command =
        command_run(broker_trial_program(program), store, NULL, "ledger", "verify", "book", NULL);
    CHECK_INT(command->code, ==, 0);
    command = command_run(broker_trial_program(program), store, NULL, "ledger", "balance", "book",
                          "external:bank", "--json", NULL);
    snprintf(expected, sizeof expected, "\"-%lld.%02lld\"", (long long)count / 100,
             (long long)count % 100);
    if (!strstr(command->out, expected))
        test_fail(__FILE__, __LINE__, "the balance is not %s: %s%s", expected, command->out,
                  command->err);
}
