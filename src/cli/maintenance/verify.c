/* truce verify: checks a history of transactions. */
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/ndjson.h"
#include "sim/edn.h"
#include "sim/jepsen.h"
#include "sim/verify.h"

struct verify_input {
    struct cli *cli;
    struct verify *verify;
    struct jepsen *jepsen;
    /* The name of the first anomaly that can be drawn. */
    char name[40];
};

static void verify_show(const struct verify_anomaly *anomaly, void *arg)
{
    struct verify_input *input = arg;
    bson_t document = BSON_INITIALIZER;

    if (!*input->name && strcmp(anomaly->name, "undecided") != 0)
        snprintf(input->name, sizeof input->name, "%s", anomaly->name);
    BSON_APPEND_UTF8(&document, "anomaly", anomaly->name);
    BSON_APPEND_UTF8(&document, "text", anomaly->text);
    cli_answer(input->cli, &document, "%s: %s", anomaly->name, anomaly->text);
    bson_destroy(&document);
}

/* Adds a transaction, or an operation of Jepsen's form. */
static truce_status verify_take(struct verify_input *input, const bson_t *document,
                                bson_error_t *error)
{
    if (!truce__jepsen_is_operation(document))
        return truce__verify_add(input->verify, document, error);
    return truce__jepsen_add(input->jepsen, document, error);
}

/* Reads the operations of lines of JSON. A fault is a usage error that names the line. */
static int read_json(struct verify_input *input, struct ndjson *lines)
{
    struct ndjson_line line;
    enum ndjson_form form;
    bson_error_t error;
    truce_status status = cli_ndjson_detect(lines, &form, &error);

    while (!status) {
        const char *wrong;
        bson_t document;

        status = cli_ndjson_next(lines, &line, &error);
        if (status || !line.text)
            break;
        wrong = cli_ndjson_document(lines, &line, &document);
        if (wrong)
            return cli_usage(input->cli, "line %lld: %s", (long long)line.row, wrong);
        if (verify_take(input, &document, &error))
            return cli_usage(input->cli, "line %lld: %s", (long long)line.row, error.message);
    }
    return status ? cli_error(input->cli, input->cli->arguments[0], status, &error) : CLI_DONE;
}

static int verify_json(struct verify_input *input)
{
    bson_error_t error;
    struct ndjson *lines = cli_ndjson_open(input->cli->arguments[0], &error);
    int code;

    if (!lines)
        return cli_usage(input->cli, "%s", error.message);
    code = read_json(input, lines);
    cli_ndjson_close(lines);
    return code;
}

/* Reads the operations of a file in EDN. A fault is a usage error that names the line. */
static int verify_edn(struct verify_input *input)
{
    struct edn_reader reader = {.line = 1};
    bson_error_t error;
    char *text;
    truce_status status = cli_text_file(input->cli->arguments[0], &text, &error);

    if (status)
        return cli_usage(input->cli, "%s", error.message);
    reader.text = text;
    reader.size = strlen(text);
    while (!status) {
        bson_t operation;
        bson_error_t why;

        status = truce__edn_next(&reader, &operation, &error);
        if (status || !reader.found)
            break;
        status = verify_take(input, &operation, &why);
        bson_destroy(&operation);
        if (status)
            truce__fail(status, &error, "line %lld: %s", (long long)reader.line, why.message);
    }
    bson_free(text);
    return status ? cli_usage(input->cli, "%s", error.message) : CLI_DONE;
}

/* Reads the history. It is EDN if --format or the ending of the file name says so. */
static int verify_read(struct verify_input *input)
{
    const char *format = cli_text(input->cli, "format");
    const char *path = input->cli->arguments[0];
    size_t length = strlen(path);
    bson_error_t error;
    int code;

    if (format && strcmp(format, "edn") != 0 && strcmp(format, "json") != 0)
        return cli_usage(input->cli, "invalid --format \"%s\": expected json or edn", format);
    if (!format)
        format = length > 4 && !strcmp(path + length - 4, ".edn") ? "edn" : "json";
    code = *format == 'e' ? verify_edn(input) : verify_json(input);
    if (!code && truce__jepsen_end(input->jepsen, &error))
        code = cli_usage(input->cli, "at the end: %s", error.message);
    return code;
}

/* Checks the history, and prints the smallest part that shows an anomaly, and the result. Returns
 * CLI_NO if there is an anomaly. */
static int verify_answer(struct verify_input *input)
{
    int anomalies = truce__verify_run(input->verify, verify_show, input);
    uint32_t count = truce__verify_count(input->verify), smallest;
    struct buffer drawing = {0};
    bson_t answer = BSON_INITIALIZER;

    if (*input->name) {
        smallest = truce__verify_draw(input->verify, input->name, &drawing);
        truce__buffer_append_byte(&drawing, 0);
        drawing.bytes[drawing.size - 2] = 0; /* Removes the newline at the end of the drawing. */
        BSON_APPEND_UTF8(&answer, "smallest", input->name);
        BSON_APPEND_INT64(&answer, "transactions", smallest);
        BSON_APPEND_UTF8(&answer, "drawing", (const char *)drawing.bytes);
        cli_answer(input->cli, &answer, "the smallest part with %s, %u of %s:\n%s", input->name,
                   smallest, PLURAL(count, "transaction", "transactions"),
                   (const char *)drawing.bytes);
        truce__buffer_release(&drawing);
        bson_reinit(&answer);
    }
    BSON_APPEND_INT64(&answer, "transactions", count);
    BSON_APPEND_INT32(&answer, "anomalies", anomalies);
    cli_answer(input->cli, &answer, "%s: %s", PLURAL(count, "transaction", "transactions"),
               !anomalies     ? "strictly serializable"
               : *input->name ? "NOT strictly serializable"
                              : "undecided");
    bson_destroy(&answer);
    return anomalies ? CLI_NO : CLI_DONE;
}

static int verify_run(struct cli *cli)
{
    struct verify_input input = {.cli = cli, .verify = truce__verify_new()};
    int code;

    input.jepsen = truce__jepsen_new(input.verify);
    code = verify_read(&input);
    if (!code && !truce__verify_count(input.verify))
        code =
            cli_usage(cli, "%s has no transactions: expected one on each line", cli->arguments[0]);
    if (!code)
        code = verify_answer(&input);
    truce__jepsen_free(input.jepsen);
    truce__verify_free(input.verify);
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
        "   \"ops\": [[\"append\", \"x\", 5], [\"r\", \"x\", [1, 5]], [\"w\", \"y\", 3], [\"r\", "
        "\"y\", 3]]}\n"
        "begin and end are of one clock. status is ok, fail (not committed), or unknown.\n"
        "A key is a list (append) or a register (w). No value may be written to a key twice.\n"
        "A history of Jepsen is read, too, as JSON (lines, or an array) or as EDN:\n"
        "  {:process 3, :type :invoke, :f :txn, :value [[:append :x 5] [:r :y nil]]}\n"
        "  {:process 3, :type :ok, :f :txn, :value [[:append :x 5] [:r :y [1 5]]]}\n"
        "The anomalies are\n"
        "G0, G1a, G1b, G1c, G-single, G2-item (cycles also with -realtime), internal, duplicate,\n"
        "incompatible-order, lost-append, not-linearizable. Each is printed with its cycle. The\n"
        "transactions are numbered from 0. The smallest part of the history that has the first\n"
        "anomaly is drawn, without the values of other transactions: [=] committed, [=x not\n"
        "committed, [=? unknown. Exit code 1: there are anomalies.",
    .example =
        "printf '%s\\n' '{\"process\": 1, \"begin\": 1, \"end\": 2, \"status\": \"ok\", \"ops\": "
        "[[\"append\", \"x\", 5]]}' > h.ndjson\n"
        "truce verify h.ndjson",
    .options =
        (const struct cli_option[]){
            {"format", 0, "FORMAT", "json or edn; otherwise by the end of FILE: .edn"}, {0}},
    .store = CLI_STORE_NONE,
    .run = verify_run,
};

cli_command_list cli_verify_commands = {&cli_verify, NULL};
