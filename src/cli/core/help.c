/* Help from the table of commands. */
#include "cli/core/help.h"
#include "cli/core/cli.h"
#include "cli/core/operation_row.h"

#include <string.h>

const struct cli_command *const *cli_commands;

const struct cli_command *cli_command_find(const char *noun, const char *verb)
{
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];

        if (strcmp(c->noun, noun) != 0)
            continue;
        if (!c->verb ? !verb : verb && !strcmp(c->verb, verb))
            return c;
    }
    return NULL;
}

bool cli_noun_exists(const char *noun)
{
    for (int i = 0; cli_commands[i]; i++) {
        if (!strcmp(cli_commands[i]->noun, noun))
            return true;
    }
    return false;
}

static void print_call(const struct cli_command *c)
{
    printf("truce %s%s%s%s%s", c->noun, c->verb ? " " : "", c->verb ? c->verb : "",
           c->arguments ? " " : "", c->arguments ? c->arguments : "");
}

static bool help_is_among(const struct cli_option *options, const char *name)
{
    while (options && options->name && strcmp(options->name, name) != 0)
        options++;
    return options && options->name;
}

/* Prints the rest of a line from column 29 on, in lines of at most 80 columns. */
static void print_wrapped(const char *text)
{
    int left = 80 - 29;

    while (*text) {
        size_t spaces = strspn(text, " "), size = strcspn(text + spaces, " ");

        if (left < 80 - 29 && (int)(spaces + size) > left) {
            printf("\n%29s", "");
            left = 80 - 29;
            text += spaces;
            spaces = 0;
        }
        printf("%.*s", (int)(spaces + size), text);
        left -= (int)(spaces + size);
        text += spaces + size;
    }
    putchar('\n');
}

/* Prints the options that are not among `but` (NULL means all). */
static void print_options(const struct cli_option *options, const struct cli_option *but)
{
    for (; options && options->name; options++) {
        char left[64];
        char letter[8] = "    ";

        if (help_is_among(but, options->name))
            continue;
        if (options->letter)
            snprintf(letter, sizeof letter, "-%c, ", options->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, options->name, options->value ? " " : "",
                 options->value ? options->value : "");
        if (strlen(left) > 26)
            printf("  %s\n%29s", left, "");
        else
            printf("  %-26s ", left);
        print_wrapped(options->help);
    }
}

static void print_indented(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");

        printf("    %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

int cli_help(const struct cli_command *c)
{
    printf("usage: ");
    print_call(c);
    printf("%s\n\n%s\n", cli_command_options(c) ? " [options]" : "", c->summary);
    if (c->help)
        printf("\n%s\n", c->help);
    if (cli_command_options(c)) {
        printf("\noptions:\n");
        print_options(cli_command_options(c), NULL);
    }
    printf("\noptions of every command:\n");
    print_options(cli_common_options, cli_command_options(c));
    if (c->example) {
        printf("\nexample (export TRUCE_STORE=school.truce):\n");
        print_indented(c->example);
    }
    return cli_output_end(CLI_DONE);
}

static void help_print_summary(const struct cli_command *c)
{
    char left[64];

    snprintf(left, sizeof left, "%s%s%s", c->noun, c->verb ? " " : "", c->verb ? c->verb : "");
    printf("  %-22s %s\n", left, c->summary);
}

static void help_print_all(void)
{
    const char *noun = "";

    puts("usage: truce COMMAND [arguments] [options]\n");
    printf("truce keeps documents consistent while many writers change them concurrently, deliver\n"
           "changes out of order, and crash halfway.\n");
    for (int i = 0; cli_commands[i]; i++) {
        if (cli_commands[i]->hidden)
            continue;
        if (cli_commands[i]->verb ? strcmp(noun, cli_commands[i]->noun) != 0 : *noun || !i) {
            /* Ends the output here, while the reason of a failure is known. */
            if (cli_output_end(CLI_DONE))
                return;
            printf("\n");
        }
        noun = cli_commands[i]->verb ? cli_commands[i]->noun : "";
        help_print_summary(cli_commands[i]);
    }
    printf("\n"
           "options of every command:\n");
    print_options(cli_common_options, NULL);
    printf(
        "\n"
        "truce help COMMAND shows the arguments, the options, and an example of a command.\n"
        "exit codes: 0 success, 1 negative result (not found, conflict, refused), 2 wrong usage,\n"
        "3 failure of the store.\n");
}

int cli_help_noun(const char *noun)
{
    if (!noun) {
        help_print_all();
        return cli_output_end(CLI_DONE);
    }
    printf("usage: truce %s VERB [arguments] [options]\n\n", noun);
    for (int i = 0; cli_commands[i]; i++) {
        if (!strcmp(cli_commands[i]->noun, noun) && !cli_commands[i]->hidden)
            help_print_summary(cli_commands[i]);
    }
    printf("\ntruce help %s VERB shows the arguments, the options, and an example.\n", noun);
    return cli_output_end(CLI_DONE);
}

/* ---- truce help ---------------------------------------------------------------------------- */

static int help_run(struct cli *cli)
{
    const char *noun = cli->arguments[0], *verb = noun ? cli->arguments[1] : NULL;
    const struct cli_command *command;

    if (!noun)
        return cli_help_noun(NULL);
    command = cli_command_find(noun, verb);
    if (command)
        return cli_help(command);
    if (cli_noun_exists(noun) && !verb)
        return cli_help_noun(noun);
    return cli_usage(cli, "unknown command \"%s%s%s\"; truce help lists the commands", noun,
                     verb ? " " : "", verb ? verb : "");
}

static const struct cli_command cli_help_command = {
    .noun = "help",
    .arguments = "[NOUN] [VERB]",
    .summary = "list all commands, or show the help of one",
    .example = "truce help find",
    .run = help_run,
};

cli_command_list cli_help_commands = {&cli_help_command, NULL};
