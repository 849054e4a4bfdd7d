/*
 * The answers of a mongos when it, or a shard behind it, dies. A proxy sends them in the name of a
 * real server, instead of passing a request on, or after the server has executed it. Commits stay
 * whole, happen once under a key, and a change that may have happened is never reported as refused
 * or as a conflict.
 *
 * TRUCE_FAULTS_STEP (5): every fifth message in whichever way; 1 takes all.
 */
#include "tests/support/bank.h"
#include "tests/support/wire_commits.h"

#define DOWN(code, name)                                                                           \
    "{'ok': 0, 'code': " #code ", 'codeName': '" name "', 'errmsg': 'the server is going away', "  \
    "'errorLabels': ['RetryableWriteError']}"
#define SHUT_DOWN    DOWN(91, "ShutdownInProgress")
#define STEPPED_DOWN DOWN(189, "PrimarySteppedDown")
#define INTERRUPTED  DOWN(11600, "InterruptedAtShutdown")
#define NO_PRIMARY   DOWN(10107, "NotWritablePrimary")
#define NO_TOKEN                                                                                   \
    "{'ok': 0, 'code': 50940, 'errmsg': 'cannot recover the transaction decision without a "       \
    "recoveryToken'}"
#define GONE                                                                                       \
    "{'ok': 0, 'code': 251, 'errmsg': 'there is no such transaction', 'errorLabels': "             \
    "['TransientTransactionError']}"
#define LATE                                                                                       \
    "{'ok': 0, 'code': 50, 'errmsg': 'out of time', 'errorLabels': "                               \
    "['UnknownTransactionCommitResult']}"
#define NOT_DURABLE                                                                                \
    "{'ok': 1, 'writeConcernError': {'code': 91, 'errmsg': 'the majority has not got it'}, "       \
    "'errorLabels': ['RetryableWriteError', 'UnknownTransactionCommitResult']}"
#define COMMIT  "commitTransaction"

#define INSTEAD .fault = PROXY_SAY, .direction = TO_SERVER
#define AFTER   .fault = PROXY_SAY, .direction = TO_CLIENT

static const struct wire_way any_message[] = {
    {.name = "down before it", INSTEAD, .say = SHUT_DOWN},
    {.name = "down after it", AFTER, .say = SHUT_DOWN},
    {.name = "stepped down before it", INSTEAD, .say = STEPPED_DOWN},
    {.name = "stepped down after it", AFTER, .say = STEPPED_DOWN},
    {.name = "interrupted before it", INSTEAD, .say = INTERRUPTED},
    {.name = "interrupted after it", AFTER, .say = INTERRUPTED},
    {.name = "no primary", INSTEAD, .say = NO_PRIMARY}, /* never after it */
};

static const struct wire_way of_transactions[] = {
    {.name = "no such transaction", INSTEAD, .say = GONE, .only = "autocommit"},
    {.name = "no request, no token", .fault = PROXY_CUT, .direction = TO_SERVER, .then = NO_TOKEN},
    {.name = "no answer, no token", .fault = PROXY_CUT, .direction = TO_CLIENT, .then = NO_TOKEN},
    {.name = "down before it, no token", INSTEAD, .say = SHUT_DOWN, .then = NO_TOKEN},
    {.name = "down after it, no token", AFTER, .say = SHUT_DOWN, .then = NO_TOKEN},
    {.name = "a commit out of time before", INSTEAD, .say = LATE, .only = COMMIT},
    {.name = "a commit out of time after", AFTER, .say = LATE, .only = COMMIT},
    {.name = "a commit not durable", AFTER, .say = NOT_DURABLE, .only = COMMIT},
};

static void go_through(const struct wire_operation *operation, const struct wire_way *ways,
                       size_t count)
{
    wire_spoil_in(operation, ways, count, "TRUCE_FAULTS_STEP", 5);
}

static void any(int number)
{
    go_through(&wire_commits[number], any_message, sizeof any_message / sizeof *any_message);
}

TEST(a_journal_commit_is_complete_after_any_reply_of_a_dying_server)
{
    any(WIRE_JOURNAL);
}

TEST(a_native_commit_is_whole_whatever_a_dying_server_says)
{
    any(WIRE_NATIVE);
}

TEST(applies_a_keyed_commit_once_if_the_server_dies)
{
    any(WIRE_KEY);
}

TEST(applies_a_single_document_once_if_the_server_dies)
{
    any(WIRE_ONE);
}

TEST(a_transaction_is_whole_whatever_a_dying_mongos_says_of_it)
{
    go_through(&wire_commits[WIRE_NATIVE], of_transactions,
               sizeof of_transactions / sizeof *of_transactions);
}
