/* truce sequence next, last, raise, list. */
#include "cli/commands.h"
#include "cli/core/operation_row.h"

static const struct cli_command cli_sequence_next = {
    .noun = "sequence",
    .verb = "next",
    .arguments = "SEQUENCE",
    .summary = "allocate the next number of a sequence, or several",
    .help = "1, 2, 3 ...: each number goes to exactly one caller. With --take, the first of the\n"
            "numbers is printed. The first call creates the sequence and gets 1.",
    .example = "truce sequence next enrolments\n"
               "truce sequence next enrolments --take 100",
    .store = CLI_STORE_WRITE,
    .row =
        &(const struct cli_row){
            .name = "truceSequence", .set = "{take: 1}", .fields = "take", .format = "{first}"},
    .run = cli_row_run,
};

static const struct cli_command cli_sequence_last = {
    .noun = "sequence",
    .verb = "last",
    .arguments = "SEQUENCE",
    .summary = "print the last assigned number (0: none yet)",
    .example = "truce sequence next enrolments\n"
               "truce sequence last enrolments",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceSequence", .fields = "", .format = "{last}"},
    .run = cli_row_run,
};

static const struct cli_command cli_sequence_raise = {
    .noun = "sequence",
    .verb = "raise",
    .arguments = "SEQUENCE NUMBER",
    .summary = "skip all numbers up to this one",
    .help =
        "For numbers that were assigned elsewhere. A sequence is never lowered. Prints the last\n"
        "number of the sequence.",
    .example = "truce sequence raise enrolments 5000",
    .store = CLI_STORE_WRITE,
    .row =
        &(const struct cli_row){
            .name = "truceSequence", .named = "NUMBER raise", .fields = "", .format = "{last}"},
    .run = cli_row_run,
};

static const struct cli_command cli_sequence_list = {
    .noun = "sequence",
    .verb = "list",
    .summary = "list sequences with their last numbers",
    .example = "truce sequence next enrolments\n"
               "truce sequence list",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceSequences", .list = "sequences", .next = "_id"},
    .run = cli_row_run,
};

cli_command_list cli_sequence_commands = {&cli_sequence_next, &cli_sequence_last,
                                          &cli_sequence_raise, &cli_sequence_list, NULL};
