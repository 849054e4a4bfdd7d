#ifndef TRUCE_TESTS_SUPPORT_BROKER_TRIAL_H
#define TRUCE_TESTS_SUPPORT_BROKER_TRIAL_H

/*
 * The trial of a broker: enrolments arrive out of order, every tenth one twice, at five consumers
 * in three processes. Consumers are killed with SIGKILL, and in the long form the broker, too, and
 * the disk of the store is full once. Then a last consumer reads the rest.
 *
 * TRUCE_BROKER_MESSAGES sets the number of messages. TRUCE_TEST_BROKER_KILL is the command that
 * kills the broker and starts it again. TRUCE_TEST_DISK is a command that makes the disk of TMPDIR
 * full ("full") and frees it again ("free"); tests/brokers/trial sets it.
 */
#include <stdbool.h>
#include <stdint.h>

struct broker_trial {
    /* The program truce, the URI of the store, and the options of truce consume; `id` may be
     * NULL. */
    const char *program, *store, *url, *into, *map, *id;
    /* The time between two kills; ten times as long in the long form. */
    int64_t pause_ms;
    /* The long form. */
    bool full;
};

/* Returns the number of messages, and sets `full` if that is the long form. */
int64_t broker_trial_count(bool *full);
/* Makes the order of the messages: the numbers 1 to `count`, some of them twice. The caller frees
 * it. */
int64_t *broker_trial_order(int64_t count, int64_t *total);
/* Returns the program of TRUCE_TEST_PROGRAM, which a build does not replace during a long run;
 * otherwise `program`. */
const char *broker_trial_program(const char *program);
/* Writes the body and the id of a message. */
void broker_trial_message(int64_t seq, char body[250], char id[32]);

/* The targets: a set, and jobs with posts to a ledger. */
#define BROKER_TRIAL_SET     "set:students.classes"
#define BROKER_TRIAL_SET_MAP "{element: \"$body.class\"}"
#define BROKER_TRIAL_POSTS   "commit"
#define BROKER_TRIAL_POSTS_MAP                                                                     \
    "[{enqueue: \"mail\", with: {n: \"$body.sequence_number\"}}, {post: \"book\", id: "            \
    "\"$body.sequence_number\", with: \"$body.entries\"}]"

/* Defines the set, the ledger, and its accounts. */
void broker_trial_prepare(const struct broker_trial *trial);
void broker_trial_run(const struct broker_trial *trial);
/* Checks the number of documents in a collection of the store. */
void broker_trial_check_count(const char *store, const char *collection, int64_t expected);
/* Checks that the set is that of the run in order. */
void broker_trial_check_set(const char *store, int64_t count);
/* Checks that each message has one job and one post. */
void broker_trial_check_posts(const char *program, const char *store, int64_t count);

#endif
