/*
 * The entry: finds the command of the call in the table, reads its options and arguments, opens the
 * store, runs it.
 */
#include "cli/cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

static const struct cli_option *find_in(const struct cli_option *table, const char *name,
                                        size_t length, char letter)
{
    for (; table && table->name; table++) {
        if (letter ? table->letter == letter
                   : strlen(table->name) == length && !memcmp(table->name, name, length))
            return table;
    }
    return NULL;
}

static const struct cli_option *find_option(const struct cli *cli, const char *name, size_t length,
                                            char letter)
{
    const struct cli_option *own = find_in(cli->command->options, name, length, letter);

    return own ? own : find_in(cli_common_options, name, length, letter);
}

static void guess_in(struct cli_guess *guess, const struct cli_option *table)
{
    for (; table && table->name; table++)
        cli_guess(guess, table->name);
}

static int unknown_option(const struct cli *cli, const char *argument)
{
    char word[64];
    struct cli_guess guess = {.word = word};

    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    if (argument[1] == '-') {
        guess.word = word + 2;
        guess_in(&guess, cli->command->options);
        guess_in(&guess, cli_common_options);
    }
    if (guess.best)
        return cli_usage(cli, "there is no option %s; did you mean --%s?", word, guess.best);
    return cli_usage(cli, "there is no option %s", word);
}

static int give(struct cli *cli, const struct cli_option *option, const char *value)
{
    if (cli->given_count == CLI_OPTIONS_MAX)
        return cli_usage(cli, "more than %d options", CLI_OPTIONS_MAX);
    cli->given[cli->given_count].option = option;
    cli->given[cli->given_count++].value = value;
    if (!strcmp(option->name, "store")) {
        cli->uri = value;
        cli->uri_given = true;
    } else if (!strcmp(option->name, "json")) {
        cli->json = true;
    } else if (!strcmp(option->name, "quiet")) {
        cli->quiet = true;
    }
    return CLI_DONE;
}

/* `at` stands on the option; a value that is a word of its own moves it on */
static int read_option(struct cli *cli, char ***at)
{
    const char *argument = **at, *value = NULL;
    const struct cli_option *option;

    if (argument[1] == '-') {
        size_t length = strcspn(argument + 2, "=");
        option = find_option(cli, argument + 2, length, 0);
        if (argument[2 + length] == '=')
            value = argument + 2 + length + 1;
    } else {
        option = find_option(cli, NULL, 0, argument[1]);
        if (option && argument[2])
            value = argument + 2;
    }
    if (!option)
        return unknown_option(cli, argument);
    if (!option->value && value)
        return cli_usage(cli, "--%s takes no value", option->name);
    if (option->value && !value) {
        value = (*at)[1];
        if (!value)
            return cli_usage(cli, "--%s needs a value: %s", option->name, option->value);
        (*at)++;
    }
    return give(cli, option, value);
}

/* a lone "-" is standard input, and "-5" would be a number: arguments, not options */
static bool is_option(const char *argument)
{
    return argument[0] == '-' && argument[1] && !(argument[1] >= '0' && argument[1] <= '9');
}

static int read_words(struct cli *cli, char **at)
{
    bool only_arguments = false;

    for (; *at; at++) {
        if (!only_arguments && !strcmp(*at, "--")) {
            only_arguments = true;
        } else if (!only_arguments && is_option(*at)) {
            int code = read_option(cli, &at);
            if (code)
                return code;
        } else if (cli->count == CLI_ARGUMENTS_MAX) {
            return cli_usage(cli, "more than %d arguments", CLI_ARGUMENTS_MAX);
        } else {
            cli->arguments[cli->count++] = *at;
        }
    }
    return CLI_DONE;
}

/* How many arguments "COLLECTION [FILTER]" takes, and which the first missing one is. */
static void arguments_range(const char *text, int have, int *least, int *most, char missing[32])
{
    *least = *most = 0;
    missing[0] = '\0';
    while (text && *text) {
        size_t length = strcspn(text, " ");
        bool many = memmem(text, length, "...", 3) != NULL;

        if (*text != '[') {
            if (*least == have)
                snprintf(missing, 32, "%.*s", (int)length, text);
            (*least)++;
        }
        *most = many ? CLI_ARGUMENTS_MAX : *most + 1;
        text += length + strspn(text + length, " ");
    }
}

static int check_count(const struct cli *cli)
{
    const struct cli_command *c = cli->command;
    char missing[32];
    int least, most;

    arguments_range(c->arguments, cli->count, &least, &most, missing);
    if (cli->count < least)
        return cli_usage(cli, "%s is missing; the call is: truce %s%s%s %s", missing, c->noun,
                         c->verb ? " " : "", c->verb ? c->verb : "", c->arguments);
    if (cli->count > most)
        return cli_usage(cli, "\"%s\" is one argument too many; the call is: truce %s%s%s %s",
                         cli->arguments[most], c->noun, c->verb ? " " : "", c->verb ? c->verb : "",
                         c->arguments ? c->arguments : "");
    return CLI_DONE;
}

/* ---- finding the command ------------------------------------------------------------------- */

static int unknown_command(const struct cli *cli, const char *noun, const char *verb)
{
    struct cli_guess guess = {.word = verb ? verb : noun};

    if (noun[0] == '-')
        return cli_usage(cli, "the command comes first, and \"%s\" behind it", noun);
    for (int i = 0; cli_commands[i]; i++) {
        if (cli_commands[i]->hidden)
            continue;
        if (!verb)
            cli_guess(&guess, cli_commands[i]->noun);
        else if (!strcmp(noun, cli_commands[i]->noun) && cli_commands[i]->verb)
            cli_guess(&guess, cli_commands[i]->verb);
    }
    if (guess.best)
        return cli_usage(cli, "there is no command \"%s%s%s\"; did you mean \"%s%s%s\"?", noun,
                         verb ? " " : "", verb ? verb : "", verb ? noun : "", verb ? " " : "",
                         guess.best);
    if (verb)
        return cli_usage(cli, "there is no command \"%s %s\"; truce help %s lists what there is",
                         noun, verb, noun);
    return cli_usage(cli, "there is no command \"%s\"; truce help lists what there is", noun);
}

static bool asks_for_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* Sets cli->command and moves `at` behind its words; or a code, with `*done` set. */
static int find_command(struct cli *cli, char ***at, bool *done)
{
    const char *noun = **at, *verb;

    *done = true;
    if (!noun) {
        cli_help_noun(NULL);
        return CLI_USAGE;
    }
    if (asks_for_help(noun))
        return cli_help_noun(NULL);
    if (!strcmp(noun, "--version") || !strcmp(noun, "-V")) {
        printf("truce %s\n", TRUCE_VERSION);
        return cli_output_end(CLI_DONE);
    }
    if (!cli_noun_exists(noun))
        return unknown_command(cli, noun, NULL);
    verb = (*at)[1];
    cli->command = cli_command_find(noun, NULL);
    (*at)++;
    if (!cli->command) {
        if (!verb) {
            cli_help_noun(noun);
            return CLI_USAGE;
        }
        if (asks_for_help(verb))
            return cli_help_noun(noun);
        cli->command = cli_command_find(noun, verb);
        if (!cli->command)
            return unknown_command(cli, noun, verb);
        (*at)++;
    }
    *done = false;
    return CLI_DONE;
}

static int run(struct cli *cli, char **at)
{
    bool done;
    int code = find_command(cli, &at, &done);

    if (done)
        return code;
    for (char **word = at; *word && strcmp(*word, "--"); word++) {
        if (asks_for_help(*word))
            return cli_help(cli->command);
    }
    code = read_words(cli, at);
    if (!code)
        code = check_count(cli);
    if (!code && cli->command->store != CLI_STORE_NONE)
        code = cli_store_open(cli, cli->command->store, &cli->store);
    if (code)
        return code;
    return cli_output_end(cli->command->run(cli));
}

/* libmongoc makes this file, for a tool that shows its counters, as soon as it is loaded. A process
 * that is killed would leave it behind, and a later one of the same number would complain. */
static void remove_counters(void)
{
    char name[32];

    snprintf(name, sizeof name, "/mongoc-%u", (unsigned)getpid());
    (void)shm_unlink(name);
}

int main(int argc, char **argv)
{
    struct cli *cli = bson_malloc0(sizeof *cli);
    const char *uri = getenv("TRUCE_STORE");
    int code;

    remove_counters();
    signal(SIGPIPE, SIG_IGN);
    cli->program = argc ? argv[0] : "truce";
    cli->uri = uri && *uri ? uri : NULL;
    code = run(cli, argc ? argv + 1 : argv);
    truce_store_close(cli->store);
    bson_free(cli);
    return code;
}
