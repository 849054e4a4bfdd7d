/* Suggestions for mistyped words: did you mean "find"? */
#include "cli/core/suggestion.h"

#include <stdio.h>
#include <string.h>

#include "cli/core/help.h"
#include "cli/core/operation_row.h"

#define WORD_MAX 40

/* Returns the number of edits between two words. A swap of neighbours counts as one edit (optimal
 * string alignment). */
static int suggestion_distance(const char *a, const char *b)
{
    int rows[WORD_MAX + 1][WORD_MAX + 1];
    int m = (int)strlen(a), n = (int)strlen(b);

    for (int i = 0; i <= m; i++)
        rows[i][0] = i;
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        for (int j = 1; j <= n; j++) {
            int best = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            if (rows[i - 1][j] + 1 < best)
                best = rows[i - 1][j] + 1;
            if (rows[i][j - 1] + 1 < best)
                best = rows[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                rows[i - 2][j - 2] + 1 < best)
                best = rows[i - 2][j - 2] + 1;
            rows[i][j] = best;
        }
    }
    return rows[m][n];
}

void cli_guess(struct cli_guess *guess, const char *candidate)
{
    size_t length = strlen(guess->word);
    int edits;

    if (length > WORD_MAX || strlen(candidate) > WORD_MAX)
        return;
    edits = suggestion_distance(guess->word, candidate);
    if (length > 1 && !strncmp(candidate, guess->word, length))
        edits = 1; /* The beginning of a word. */
    if (edits > (int)(length + 2) / 3)
        return;
    if (guess->best && edits >= guess->distance)
        return;
    guess->best = candidate;
    guess->distance = edits;
}

static void suggestion_search(struct cli_guess *guess, const struct cli_option *table)
{
    for (; table && table->name; table++)
        cli_guess(guess, table->name);
}

static int suggestion_option(const struct cli *cli, const char *argument)
{
    char word[64];
    struct cli_guess guess = {.word = word};

    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    if (argument[1] == '-') {
        guess.word = word + 2;
        if (cli->command)
            suggestion_search(&guess, cli_command_options(cli->command));
        suggestion_search(&guess, cli_common_options);
    }
    if (guess.best)
        return cli_usage(cli, "unknown option %s; did you mean --%s?", word, guess.best);
    return cli_usage(cli, "unknown option %s", word);
}

static int suggestion_command(const struct cli *cli, const char *noun, const char *verb)
{
    struct cli_guess guess = {.word = verb ? verb : noun};

    for (int i = 0; cli_commands[i]; i++) {
        if (cli_commands[i]->hidden)
            continue;
        if (!verb)
            cli_guess(&guess, cli_commands[i]->noun);
        else if (!strcmp(noun, cli_commands[i]->noun) && cli_commands[i]->verb)
            cli_guess(&guess, cli_commands[i]->verb);
    }
    if (guess.best)
        return cli_usage(cli, "unknown command \"%s%s%s\"; did you mean \"%s%s%s\"?", noun,
                         verb ? " " : "", verb ? verb : "", verb ? noun : "", verb ? " " : "",
                         guess.best);
    if (verb)
        return cli_usage(cli, "unknown command \"%s %s\"; truce help %s lists the commands", noun,
                         verb, noun);
    return cli_usage(cli, "unknown command \"%s\"; truce help lists the commands", noun);
}

int cli_unknown(const struct cli *cli, const char *word, const char *verb)
{
    return *word == '-' ? suggestion_option(cli, word) : suggestion_command(cli, word, verb);
}
