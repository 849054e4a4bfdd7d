/* truce verify: checks a history of transactions. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/ndjson.h"
#include "sim/verify.h"

static void verify_show(const struct verify_anomaly *anomaly, void *arg)
{
    const struct cli *cli = arg;
    bson_t document = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&document, "anomaly", anomaly->name);
    BSON_APPEND_UTF8(&document, "text", anomaly->text);
    cli_answer(cli, &document, "%s: %s", anomaly->name, anomaly->text);
    bson_destroy(&document);
}

static int read_history(struct cli *cli, struct ndjson *input, struct verify *verify,
                        int64_t *count)
{
    struct ndjson_line line;
    bson_error_t error;
    char what[40];

    for (*count = 0;; ++*count) {
        truce_status status = cli_ndjson_next(input, &line, &error);
        const char *wrong;
        bson_t document;

        if (status)
            return cli_error(cli, cli->arguments[0], status, &error);
        if (!line.text)
            return CLI_DONE;
        snprintf(what, sizeof what, "line %lld", (long long)line.number);
        wrong = cli_ndjson_document(input, &line, &document);
        if (wrong)
            return cli_usage(cli, "%s: %s", what, wrong);
        status = truce__verify_add(verify, &document, &error);
        if (status)
            return cli_usage(cli, "%s: %s", what, error.message);
    }
}

static int verify_run(struct cli *cli)
{
    bson_error_t error;
    struct ndjson *input = cli_ndjson_open(cli->arguments[0], &error);
    struct verify *verify;
    int64_t count;
    int code, anomalies;

    if (!input)
        return cli_usage(cli, "%s", error.message);
    verify = truce__verify_new();
    code = read_history(cli, input, verify, &count);
    cli_ndjson_close(input);
    if (!code) {
        bson_t answer = BSON_INITIALIZER;

        anomalies = truce__verify_run(verify, verify_show, cli);
        BSON_APPEND_INT64(&answer, "transactions", count);
        BSON_APPEND_INT32(&answer, "anomalies", anomalies);
        cli_answer(cli, &answer, "%lld transactions: %s", (long long)count,
                   anomalies ? "NOT strictly serializable" : "strictly serializable");
        bson_destroy(&answer);
        code = anomalies ? CLI_NO : CLI_DONE;
    }
    truce__verify_free(verify);
    return cli_output_end(code);
}

static const struct cli_command cli_verify = {
    .noun = "verify",
    .arguments = "FILE",
    .summary = "check a history of transactions for anomalies",
    .help =
        "Checks that a history, of any store, is strictly serializable. FILE (- is standard\n"
        "input) has a transaction on each line:\n"
        "  {\"process\": 3, \"begin\": 17, \"end\": 25, \"status\": \"ok\",\n"
        "   \"ops\": [[\"append\", \"x\", 5], [\"r\", \"x\", [1, 5]], [\"w\", \"y\", 3], [\"r\", \"y\", null]]}\n"
        "begin and end are of one clock. status is ok, fail (not committed), or unknown.\n"
        "A key is a list (append) or a register (w). No value may be written to a key twice.\n"
        "The anomalies are\n"
        "G0, G1a, G1b, G1c, G-single, G2-item (cycles also with -realtime), internal, duplicate,\n"
        "incompatible-order, not-linearizable. Each is printed with its transactions, numbered\n"
        "from 0, and its cycle. Exit code 1: there are anomalies.",
    .example =
        "printf '%s\\n' '{\"process\": 1, \"begin\": 1, \"end\": 2, \"status\": \"ok\", \"ops\": [[\"append\", \"x\", 5]]}' > h.ndjson\n"
        "truce verify h.ndjson",
    .store = CLI_STORE_NONE,
    .run = verify_run,
};

cli_command_list cli_verify_commands = {&cli_verify, NULL};
