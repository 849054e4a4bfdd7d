/* truce verify: histories of truce and of Jepsen, and the drawing. */
#include "tests/support/command.h"
#include "tests/support/test.h"

#define VERIFY(input, ...) command_run(TRUCE_CLI, NULL, input, "verify", "-", __VA_ARGS__, NULL)

static void verify_answers(int line, const struct command *c, int code, const char *out,
                           const char *wrong)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    test_check_text(out, c->out, __FILE__, line);
    if (!strstr(c->err, wrong))
        test_fail(__FILE__, line, "%s", c->err);
}
#define ANSWERS(code, out, wrong, command) verify_answers(__LINE__, command, code, out, wrong)

#define SKEW                                                                                       \
    "the smallest part with G2-item, 2 of 2 transactions:\n"                                       \
    "     0  [======]     r x [], append y 1\n"                                                    \
    "     1     [======]  r y [], append x 2\n"                                                    \
    "2 transactions: NOT strictly serializable\n"

TEST(draws_the_anomaly_of_a_history_in_lines_in_an_array_and_in_edn)
{
    ANSWERS(1, "G2-item: transactions 0 -rw x-> 1 -rw y-> 0\n" SKEW, "",
            VERIFY("{\"process\": 0, \"begin\": 1, \"end\": 3, \"status\": \"ok\","
                   " \"ops\": [[\"r\", \"x\", []], [\"append\", \"y\", 1]]}\n"
                   "{\"process\": 1, \"begin\": 2, \"end\": 4, \"status\": \"ok\","
                   " \"ops\": [[\"r\", \"y\", []], [\"append\", \"x\", 2]]}\n",
                   "--format", "json"));
    ANSWERS(1, "G2-item: transactions 0 -rw x-> 1 -rw y-> 0\n" SKEW, "",
            VERIFY("[{\"process\": 0, \"type\": \"invoke\", \"value\": [[\"r\", \"x\", null]]},\n"
                   "{\"process\": 1, \"type\": \"invoke\", \"value\": [[\"r\", \"y\", null]]},\n"
                   "{\"process\": 0, \"type\": \"ok\","
                   " \"value\": [[\"r\", \"x\", []], [\"append\", \"y\", 1]]},\n"
                   "{\"process\": 1, \"type\": \"ok\","
                   " \"value\": [[\"r\", \"y\", []], [\"append\", \"x\", 2]]}]\n",
                   "--format", "json"));
    ANSWERS(1, "G2-item: transactions 0 -rw x-> 1 -rw y-> 0\n" SKEW, "",
            VERIFY("{:process 0 :type :invoke :value [[:r :x nil] [:append :y 1]]}\n"
                   "{:process 1 :type :invoke :value [[:r :y nil] [:append :x 2]]}\n"
                   "{:process 0 :type :ok :value [[:r :x []] [:append :y 1]]}\n"
                   "{:process 1 :type :ok :value [[:r :y []] [:append :x 2]]}\n",
                   "--format", "edn"));
}

TEST(a_good_history_of_jepsen_is_strictly_serializable)
{
    ANSWERS(0, "1 transaction: strictly serializable\n", "",
            VERIFY("{:process 0 :type :invoke :value [[:r 7 nil] [:append 7 1]]}\n"
                   "{:process 0 :type :ok :value [[:r 7 []] [:append 7 1]]}\n",
                   "--format", "edn"));
}

TEST(refuses_an_input_that_cannot_be_checked)
{
    ANSWERS(2, "", "- has no transactions", VERIFY("", "--format", "edn"));
    ANSWERS(2, "", "- has no transactions", VERIFY("", "--format", "json"));
    ANSWERS(2, "", "invalid --format \"xml\": expected json or edn", VERIFY("", "--format", "xml"));
    ANSWERS(2, "", "line 2: process 0 ends an operation that it did not begin",
            VERIFY("\n{:process 0 :type :ok :value []}", "--format", "edn"));
    ANSWERS(2, "", "line 1: transaction 0: needs \"ops\", an array",
            VERIFY("{\"process\": 0, \"begin\": 1, \"end\": 3, \"status\": \"ok\"}", "--format",
                   "json"));
    ANSWERS(2, "", "at the end: f \"cas\" cannot be checked: txn, read, and write can",
            VERIFY("{:process 0 :type :invoke :f :cas :value [1 2]}", "--format", "edn"));
}
