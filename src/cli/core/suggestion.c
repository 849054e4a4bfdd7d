/* Suggestions for mistyped words: did you mean "find"? */
#include "cli/core/suggestion.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest_word.h"
#include "cli/core/help.h"
#include "cli/core/operation_row.h"

static void suggestion_search(struct nearest_word *guess, const struct cli_option *table)
{
    for (; table && table->name; table++)
        truce__nearest_word_offer(guess, table->name);
}

/* Returns the program that the call gives with --exec, or NULL. */
static const char *suggestion_program(const struct cli *cli)
{
    const struct cli_option *options = cli->command ? cli_command_options(cli->command) : NULL;

    for (; options && options->name; options++) {
        if (!strcmp(options->name, "exec"))
            return cli_text(cli, "exec");
    }
    return NULL;
}

/* Prints the usage error for an unknown option. Short options get no suggestion. */
static int suggestion_option(const struct cli *cli, const char *argument)
{
    char word[64], meant[64], hint[NEAREST_WORD_HINT_MAX];
    struct nearest_word guess = {.word = word};

    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    if (argument[1] == '-') {
        guess.word = word + 2;
        if (cli->command)
            suggestion_search(&guess, cli_command_options(cli->command));
        suggestion_search(&guess, cli_common_options);
    }
    if (guess.best) {
        snprintf(meant, sizeof meant, "--%s", guess.best);
        guess.best = meant;
    }
    if (!guess.best && suggestion_program(cli))
        return cli_usage(cli, "unknown option %s: put -- before the options of %s", word,
                         suggestion_program(cli));
    return cli_usage(cli, "unknown option %s%s", word, truce__nearest_word_hint(&guess, hint));
}

/* Words of similar tools, and of other commands of truce, with the same meaning. */
static const char *const synonyms[][2] = {
    {"remove", "delete"}, {"delete", "remove"}, {"rm", "delete"}, {"rm", "remove"},
    {"add", "insert"},    {"insert", "add"},    {"get", "find"},  {"get", "show"},
    {"show", "get"},      {"show", "list"},     {"list", "show"}, {"ls", "collections"},
    {"ls", "list"},
};

/* Returns the first synonym of the word that is a command, or a verb of the noun, or NULL. */
static const char *suggestion_synonym(const char *noun, const char *verb)
{
    const char *word = verb ? verb : noun;

    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        const char *meant = synonyms[i][1];

        if (!strcmp(synonyms[i][0], word) &&
            (verb ? cli_command_find(noun, meant) : cli_command_find(meant, NULL)))
            return meant;
    }
    return NULL;
}

/* Prints the usage error for an unknown noun, or an unknown verb of a noun. */
static int suggestion_command(const struct cli *cli, const char *noun, const char *verb)
{
    const char *synonym = suggestion_synonym(noun, verb);
    struct nearest_word guess = {.word = verb ? verb : noun, .best = synonym};
    char meant[64], hint[NEAREST_WORD_HINT_MAX];

    for (int i = 0; !synonym && cli_commands[i]; i++) {
        if (cli_commands[i]->hidden)
            continue;
        if (!verb)
            truce__nearest_word_offer(&guess, cli_commands[i]->noun);
        else if (!strcmp(noun, cli_commands[i]->noun) && cli_commands[i]->verb)
            truce__nearest_word_offer(&guess, cli_commands[i]->verb);
    }
    if (guess.best) {
        snprintf(meant, sizeof meant, "%s%s%s", verb ? noun : "", verb ? " " : "", guess.best);
        guess.best = meant;
        return cli_usage(cli, "unknown command \"%s%s%s\"%s", noun, verb ? " " : "",
                         verb ? verb : "", truce__nearest_word_hint(&guess, hint));
    }
    if (verb)
        return cli_usage(cli, "unknown command \"%s %s\"; truce help %s lists the commands", noun,
                         verb, noun);
    return cli_usage(cli, "unknown command \"%s\"; truce help lists the commands", noun);
}

int cli_unknown(const struct cli *cli, const char *word, const char *verb)
{
    return *word == '-' ? suggestion_option(cli, word) : suggestion_command(cli, word, verb);
}
