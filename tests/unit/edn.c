/* The reader of EDN, and histories of Jepsen. */
#include "sim/edn.h"
#include "sim/jepsen.h"

#include "tests/support/test.h"

/* Reads a text of one operation. */
static truce_status edn_read_one(const char *text, bson_t *operation, bson_error_t *error)
{
    struct edn_reader reader = {.text = text, .size = strlen(text), .line = 1};
    truce_status status = truce__edn_next(&reader, operation, error);

    CHECK(status || reader.found);
    return status;
}

static void edn_reads(const char *text, const char *json)
{
    bson_error_t error = {0};
    bson_t operation, *wanted = test_bson(json);

    REQUIRE(!edn_read_one(text, &operation, &error));
    CHECK_BSON(wanted, &operation);
    bson_destroy(wanted);
    bson_destroy(&operation);
}

static void edn_refuses(const char *text, const char *message)
{
    bson_error_t error = {0};
    bson_t operation;

    CHECK_STATUS(TRUCE_INVALID, edn_read_one(text, &operation, &error), error);
    if (!strstr(error.message, message))
        test_fail(__FILE__, __LINE__, "%s: %s", text, error.message);
}

TEST(reads_every_kind_of_value)
{
    edn_reads(
        "{:a 1, :b -2 :c nil :d true :e false}",
        "{'a': {'$numberLong': '1'}, 'b': {'$numberLong': '-2'}, 'c': null, 'd': true, 'e': false}");
    edn_reads("{:a 1.5 :b 12N :c 2.5M :d 99999999999999999999}",
              "{'a': 1.5, 'b': {'$numberLong': '12'}, 'c': 2.5, 'd': 1e20}");
    edn_reads(
        "{:a :key :b sym :c \"te\\n\\u00e9xt\" :d \\x :e \\newline :f \\[}",
        "{'a': 'key', 'b': 'sym', 'c': 'te\\né\\u0078t', 'd': 'x', 'e': 'newline', 'f': '['}");
    edn_reads("{:v [] :l (1) :s #{2} :m {}}",
              "{'v': [], 'l': [{'$numberLong': '1'}], 's': [{'$numberLong': '2'}], 'm': {}}");
    edn_reads("{\"text\" a, sym b, 7 c, [1 2] d}", "{'text': 'a', 'sym': 'b', '7': 'c', '': 'd'}");
}

TEST(skips_tags_metadata_comments_and_dropped_values)
{
    edn_reads("; a comment\n#jepsen.history.Op{:at #inst \"2026\" ; more\n :v [1 #_ [2 3] #_4]}",
              "{'at': '2026', 'v': [{'$numberLong': '1'}]}");
    edn_reads("{:a ^:meta [] #_ :b #_ 1 :c ^{:d 1} x}", "{'a': [], 'c': 'x'}");
    edn_reads("#:ns{:a #\"re\\\\d\" :nan ##NaN}", "{'a': 're\\\\d', 'nan': '##NaN'}");
}

TEST(refuses_what_is_not_edn_and_names_the_line)
{
    edn_refuses("{:a 1", "line 1: invalid EDN: a bracket is not closed before the end");
    edn_refuses("{:a\n\n", "line 3: invalid EDN");
    edn_refuses("{:a}", "a map has a key without a value");
    edn_refuses("{:a [1}}", "a bracket closes nothing");
    edn_refuses("{:a \"text}", "a string without its end");
    edn_refuses("{:a \"\\q\"}", "an unknown escape");
    edn_refuses("{:a \"\\u12g4\"}", "four hexadecimal digits");
    edn_refuses("{:a \"\xff\"}", "not UTF-8");
    edn_refuses("{: 1}", "a keyword without a name");
    edn_refuses("{:a #}", "# without the name of a tag");
    edn_refuses("7", "an operation is a map");
}

TEST(refuses_values_that_are_too_deep)
{
    char text[500];
    bson_error_t error = {0};
    bson_t operation;

    memset(text, '[', sizeof text);
    memcpy(text, "{:a ", 4);
    text[sizeof text - 1] = 0;
    CHECK_STATUS(TRUCE_LIMIT, edn_read_one(text, &operation, &error), error);
    memset(text, '^', sizeof text);
    memcpy(text, "{:a ", 4);
    text[sizeof text - 1] = 0;
    CHECK_STATUS(TRUCE_LIMIT, edn_read_one(text, &operation, &error), error);
}

/* ---- histories ------------------------------------------------------------------------------ */

struct edn_found {
    int count;
    char name[40], text[600];
};

static void edn_note(const struct verify_anomaly *anomaly, void *arg)
{
    struct edn_found *found = arg;

    if (found->count++)
        return;
    snprintf(found->name, sizeof found->name, "%s", anomaly->name);
    snprintf(found->text, sizeof found->text, "%s", anomaly->text);
}

/* Reads a history, and returns its transactions and first anomaly. */
static truce_status edn_check(const char *text, struct edn_found *found, uint32_t *transactions,
                              bson_error_t *error)
{
    struct edn_reader reader = {.text = text, .size = strlen(text), .line = 1};
    struct verify *verify = truce__verify_new();
    struct jepsen *jepsen = truce__jepsen_new(verify);
    truce_status status = TRUCE_OK;

    memset(found, 0, sizeof *found);
    while (!status) {
        bson_t operation;

        status = truce__edn_next(&reader, &operation, error);
        if (status || !reader.found)
            break;
        CHECK(truce__jepsen_is_operation(&operation));
        status = truce__jepsen_add(jepsen, &operation, error);
        bson_destroy(&operation);
    }
    if (!status)
        status = truce__jepsen_end(jepsen, error);
    *transactions = truce__verify_count(verify);
    if (!status)
        truce__verify_run(verify, edn_note, found);
    truce__jepsen_free(jepsen);
    truce__verify_free(verify);
    return status;
}

static void edn_is(const char *text, uint32_t wanted, const char *anomaly)
{
    bson_error_t error = {0};
    struct edn_found found;
    uint32_t transactions;

    REQUIRE(!edn_check(text, &found, &transactions, &error));
    CHECK_INT(wanted, ==, transactions);
    CHECK_TEXT(anomaly, found.name);
}

TEST(an_ok_is_committed_a_fail_is_not_and_an_info_is_unknown)
{
    edn_is("[{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}"
           " {:process 1 :type :invoke :f :txn :value [[:append :x 2]]}"
           " {:process 0 :type :ok :f :txn :value [[:append :x 1]]}"
           " {:process 1 :type :info :f :txn :value [[:append :x 2]]}"
           " {:process 2 :type :invoke :f :txn :value [[:append :x 3]]}"
           " {:process 2 :type :fail :f :txn :value [[:append :x 3]]}"
           " {:process 3 :type :invoke :f :txn :value [[:r :x nil]]}"
           " {:process 3 :type :ok :f :txn :value [[:r :x [1 2]]]}]",
           4, "");
    edn_is("{:process 2 :type :invoke :value [[:append :x 3]]}"
           "{:process 2 :type :fail :value [[:append :x 3]]}"
           "{:process 3 :type :invoke :value [[:r :x nil]]}"
           "{:process 3 :type :ok :value [[:r :x [3]]]}",
           2, "G1a");
}

TEST(the_order_of_the_operations_is_the_clock)
{
    edn_is("{:process 0 :type :invoke :time 900 :value [[:append 7 1]]}"
           "{:process 0 :type :ok :time 5 :value [[:append 7 1]]}"
           "{:process 1 :type :invoke :time 4 :value [[:r 7 nil]]}"
           "{:process 1 :type :ok :time 3 :value [[:r 7 []]]}"
           "{:process 1 :type :invoke :time 2 :value [[:r 7 nil]]}"
           "{:process 1 :type :ok :time 1 :value [[:r 7 [1]]]}",
           3, "G-single-realtime");
}

TEST(an_operation_without_an_end_is_unknown)
{
    edn_is("{:process 0 :type :invoke :value [[:append 7 1]]}"
           "{:process 1 :type :invoke :value [[:r 7 nil]]}"
           "{:process 1 :type :ok :value [[:r 7 [1]]]}",
           2, "");
}

TEST(parses_reads_and_writes_of_registers)
{
    edn_is("{:process 0 :type :invoke :f :write :value 1}"
           "{:process 0 :type :ok :f :write :value 1}"
           "{:process :nemesis :type :info :f :kill :value {:n1 \"down\"}}"
           "{:process 0 :type :invoke :f :read :value nil}"
           "{:process 0 :type :ok :f :read :value nil}",
           2, "not-linearizable");
    edn_is("{:process 0 :type :invoke :f :write :value [:a 1]}"
           "{:process 0 :type :ok :f :write :value [:a 1]}"
           "{:process 0 :type :invoke :f :read :value [:b nil]}"
           "{:process 0 :type :ok :f :read :value [:b nil]}",
           2, "");
}

TEST(refuses_an_edn_history_of_another_format)
{
    static const char *const wrong[][2] = {
        {"{:process 0 :type :ok :value []}", "process 0 ends an operation that it did not begin"},
        {"{:process 0 :type :invoke :value []} {:process 0 :type :invoke :value []}",
         "process 0 begins an operation before the end of its last one"},
        {"{:process 0 :type :foo}", "invalid type \"foo\": expected invoke, ok, fail, or info"},
        {"{:type :invoke}", "an operation needs a \"type\""},
        {"{:process 0 :type :invoke}", "an operation needs a \"value\""},
        {"{:process 0 :type :invoke :f :cas :value [1 2]}", "f \"cas\" cannot be checked"},
        {"{:process 0 :type :invoke :value 7}", "the value of a transaction must be a list"},
        {"{:process 0 :type :invoke :value [7]}", "a part of a transaction must be"},
        {"{:process 0 :type :invoke :value [[:r]]}", "[:r] has no key"},
        {"{:process 0 :type :invoke :value [[:r {} nil]]}", "the key of an operation must be"},
        {"{:process 0 :type :invoke :value [[:append 1 \"x\"]]}", "a value must be an integer"},
        {"{:process 0 :type :invoke :value [[:add 1 1]]}", "an operation is \"append\""},
        {"[{:process 0 :type :invoke :value []}] 7", "text after the list of operations"},
        {"[{:process 0 :type :invoke :value []}", "is not closed before the end"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bson_error_t error = {0};
        struct edn_found found;
        uint32_t transactions;

        CHECK_STATUS(TRUCE_INVALID, edn_check(wrong[i][0], &found, &transactions, &error), error);
        if (!strstr(error.message, wrong[i][1]))
            test_fail(__FILE__, __LINE__, "%s: %s", wrong[i][0], error.message);
    }
}
