#ifndef TRUCE_TESTS_BROKERS_BROKER_RATES_H
#define TRUCE_TESTS_BROKERS_BROKER_RATES_H

/*
 * The rates of consumers, in turns: truce consume, the usual consumer with PostgreSQL, and for
 * sets, truce set apply from a file. tests/brokers/rates starts the servers, and sets
 * TRUCE_TEST_POSTGRES.
 *
 * The usual consumer writes the same to PostgreSQL, with a table of message ids in the same
 * transaction. It is written for speed. It has a thread for each connection, a prefetch of 200, and
 * one prepared statement for each message, which is its transaction. The server reads the JSON.
 */
#include <stdint.h>

struct broker_rates {
    const char *program;
    /* Returns the URL of a queue or topic with the messages of broker_trial_message, out of order,
     * and some of them twice. The caller frees it. */
    char *(*fill)(int64_t count, int64_t *total);
    /* The path of the message's id for truce consume; NULL: the broker's. */
    const char *id;
};

/* Measures, and prints the rates and their ratios. Checks what each consumer has written. */
void broker_rates_run(const struct broker_rates *rates);

#endif
