/* truce sequence next, last, raise, list. */
#include <inttypes.h>

#include "cli/commands.h"
#include "store/reserved.h"

static int sequence_answer(const struct cli *cli, const char *what, int64_t number, int64_t count)
{
    bson_t document = BSON_INITIALIZER;

    bson_append_int64(&document, what, -1, number);
    if (count > 1)
        BSON_APPEND_INT64(&document, "count", count);
    cli_answer(cli, &document, "%" PRId64, number);
    bson_destroy(&document);
    return CLI_DONE;
}

static int sequence_run_next(struct cli *cli)
{
    int64_t count, first;
    bson_error_t error;
    truce_status status;

    if (!cli_number(cli, "count", 1, 1000000, 1, &count))
        return CLI_USAGE;
    status = truce_sequence_take(cli->store, cli->arguments[0], count, &first, &error);
    return status ? cli_error(cli, NULL, status, &error)
                  : sequence_answer(cli, "first", first, count);
}

const struct cli_command cli_sequence_next = {
    .noun = "sequence",
    .verb = "next",
    .arguments = "NAME",
    .summary = "take the next number of a sequence, or several",
    .help = "1, 2, 3 ...: each number goes to exactly one caller. With --count, the first of the\n"
            "numbers is printed. The first call creates the sequence and gets 1.",
    .example = "truce sequence next enrolments\n"
               "truce sequence next enrolments --count 100",
    .options =
        (const struct cli_option[]){
            {"count", 'c', "N", "how many consecutive numbers (default: 1)", false}, {0}},
    .store = CLI_STORE_WRITE,
    .run = sequence_run_next,
};

static int run_last(struct cli *cli)
{
    int64_t number;
    bson_error_t error;
    truce_status status = truce_sequence_last(cli->store, cli->arguments[0], &number, &error);

    return status ? cli_error(cli, NULL, status, &error) : sequence_answer(cli, "last", number, 1);
}

const struct cli_command cli_sequence_last = {
    .noun = "sequence",
    .verb = "last",
    .arguments = "NAME",
    .summary = "print the last assigned number (0: none yet)",
    .example = "truce sequence next enrolments\n"
               "truce sequence last enrolments",
    .store = CLI_STORE_READ,
    .run = run_last,
};

static int run_raise(struct cli *cli)
{
    int64_t number;
    bson_error_t error;
    truce_status status;

    if (!cli_argument_number(cli, 1, "NUMBER", 1, INT64_MAX, &number))
        return CLI_USAGE;
    status = truce_sequence_raise(cli->store, cli->arguments[0], number, &error);
    if (!status)
        status = truce_sequence_last(cli->store, cli->arguments[0], &number, &error);
    return status ? cli_error(cli, NULL, status, &error) : sequence_answer(cli, "last", number, 1);
}

const struct cli_command cli_sequence_raise = {
    .noun = "sequence",
    .verb = "raise",
    .arguments = "NAME NUMBER",
    .summary = "skip all numbers up to this one",
    .help =
        "For numbers that were assigned elsewhere. A sequence is never lowered. Prints the last\n"
        "number of the sequence.",
    .example = "truce sequence raise enrolments 5000",
    .store = CLI_STORE_WRITE,
    .run = run_raise,
};

static int sequence_run_list(struct cli *cli)
{
    bson_t *projection = BCON_NEW("value", BCON_INT32(1));
    bson_t *sort = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {
        .projection = projection, .sort = sort, .deadline_ms = cli->deadline_ms};
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status = truce_find(cli->store, SEQUENCES, NULL, &options, &cursor, &error);
    int code = cli_print_documents(cli, status, cursor, &error);

    bson_destroy(projection);
    bson_destroy(sort);
    return code;
}

const struct cli_command cli_sequence_list = {
    .noun = "sequence",
    .verb = "list",
    .summary = "list sequences with their last numbers",
    .example = "truce sequence next enrolments\n"
               "truce sequence list",
    .store = CLI_STORE_READ,
    .run = sequence_run_list,
};
