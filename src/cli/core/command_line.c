#include "cli/core/command_line.h"

#include <string.h>

#include "cli/core/config.h"
#include "cli/core/help.h"
#include "cli/core/operation_row.h"
#include "cli/core/slow_option.h"
#include "cli/core/suggestion.h"
#include "store/reserved_names.h"

/* ---- options in the table ------------------------------------------------------------------ */

static const struct cli_option *command_line_find_in(const struct cli_option *table,
                                                     const char *name, size_t length, char letter)
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
    const struct cli_option *own =
        command_line_find_in(cli_command_options(cli->command), name, length, letter);

    return own ? own : command_line_find_in(cli_common_options, name, length, letter);
}

static bool command_line_is_known(const char *word)
{
    bool words = word[1] == '-';
    size_t length = words ? strcspn(word + 2, "=") : 0;
    bool known =
        command_line_find_in(cli_common_options, word + 2, length, words ? 0 : word[1]) != NULL;

    for (int i = 0; cli_commands[i] && !known; i++)
        known = command_line_find_in(cli_command_options(cli_commands[i]), word + 2, length,
                                     words ? 0 : word[1]) != NULL;
    return known;
}

enum takes { NEVER, PERHAPS, ALWAYS };

/* Returns whether the option takes a value. Before the command is known, the result is ALWAYS only
 * if the option takes a value in every command that has it. */
static enum takes takes_value(const char *name, size_t length, char letter)
{
    const struct cli_option *option =
        command_line_find_in(cli_common_options, name, length, letter);
    bool any = option && option->value, all = !option || option->value;

    for (int i = 0; cli_commands[i]; i++) {
        option = command_line_find_in(cli_command_options(cli_commands[i]), name, length, letter);
        any |= option && option->value;
        all &= !option || option->value;
    }
    return any && all ? ALWAYS : any ? PERHAPS : NEVER;
}

static bool is_command_word(const char *word)
{
    for (int i = 0; cli_commands[i]; i++) {
        if (!strcmp(cli_commands[i]->noun, word) ||
            (cli_commands[i]->verb && !strcmp(cli_commands[i]->verb, word)))
            return true;
    }
    return false;
}

static bool command_line_is_option(const char *word)
{
    return word[0] == '-' && word[1] && !(word[1] >= '0' && word[1] <= '9');
}

/* Returns true if `next` is the value of the option that `word` ends with. */
static bool takes_next(const char *word, const char *next)
{
    enum takes takes = NEVER;

    if (!next)
        return false;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");

        takes = word[2 + length] ? NEVER : takes_value(word + 2, length, 0);
    } else {
        const char *letter = word + 1;

        while (letter[1] && !takes_value(NULL, 0, *letter))
            letter++;
        takes = letter[1] ? NEVER : takes_value(NULL, 0, *letter);
    }
    return takes == ALWAYS || (takes == PERHAPS && !is_command_word(next));
}

const struct cli_option *cli_option_before_value(const struct cli_command *command,
                                                 const char *word)
{
    const struct cli_option *option = NULL;
    size_t length;

    if (!command_line_is_option(word) || strchr(word, '='))
        return NULL;
    if (word[1] == '-') {
        length = strlen(word + 2);
        option = command_line_find_in(cli_command_options(command), word + 2, length, 0);
        option = option ? option : command_line_find_in(cli_common_options, word + 2, length, 0);
        return option && option->value ? option : NULL;
    }
    for (const char *letter = word + 1; *letter; letter++) {
        option = command_line_find_in(cli_command_options(command), NULL, 0, *letter);
        option = option ? option : command_line_find_in(cli_common_options, NULL, 0, *letter);
        if (option && option->value)
            return letter[1] ? NULL : option;
    }
    return NULL;
}

/* ---- the command --------------------------------------------------------------------------- */

int cli_next_plain(char **words, int at)
{
    for (; words[at] && strcmp(words[at], "--") != 0; at++) {
        if (!command_line_is_option(words[at]))
            return at;
        at += takes_next(words[at], words[at + 1]);
    }
    while (words[at])
        at++;
    return at;
}

static bool arguments_have_option(char **words, const char *name, const char *letter)
{
    for (; *words && strcmp(*words, "--") != 0; words++) {
        if (!strcmp(*words, name) || !strcmp(*words, letter))
            return true;
    }
    return false;
}

static int help_without(const char *noun, bool asked)
{
    int code = cli_help_noun(noun);

    return asked ? code : CLI_USAGE;
}

/* The words of the call, and what was found in them. */
struct words {
    char **all;
    /* The index of the next word. */
    int at;
    /* The indexes of the command's words. `verb` is -1 if the command has no verb. */
    int noun, verb;
};

/* Sets cli->command and the indexes of its words. If the call ends here, sets `*done` and returns
 * the exit code. */
static int command_line_find_command(struct cli *cli, struct words *words, bool *done)
{
    char **all = words->all;
    bool help = arguments_have_option(all, "--help", "-h");

    *done = true;
    words->noun = cli_next_plain(all, 0);
    words->verb = -1;
    if (!all[words->noun] && arguments_have_option(all, "--version", "-V")) {
        printf("truce %s\n", TRUCE_VERSION);
        return cli_output_end(CLI_DONE);
    }
    if (!all[words->noun])
        return help_without(NULL, help);
    for (int i = 0; i < words->noun; i++) {
        if (command_line_is_option(all[i]) && !command_line_is_known(all[i]))
            return cli_unknown(cli, all[i], NULL);
    }
    if (!cli_noun_exists(all[words->noun]))
        return cli_unknown(cli, all[words->noun], NULL);
    cli->command = cli_command_find(all[words->noun], NULL);
    words->verb = cli_next_plain(all, words->noun + 1);
    if (cli->command && all[words->verb] && cli_command_find(all[words->noun], all[words->verb])) {
        /* A noun may also be a command: `truce archive FILE` and `truce archive verify TARGET` both
         * exist. */
        cli->command = cli_command_find(all[words->noun], all[words->verb]);
    } else if (cli->command) {
        words->verb = -1;
    } else {
        if (!all[words->verb])
            return help_without(all[words->noun], help);
        cli->command = cli_command_find(all[words->noun], all[words->verb]);
        if (!cli->command)
            return cli_unknown(cli, all[words->noun], all[words->verb]);
    }
    *done = false;
    return CLI_DONE;
}

/* ---- options and arguments ----------------------------------------------------------------- */

int cli_call_give(struct cli *cli, const struct cli_option *option, const char *value, int line)
{
    if (cli->given_count == CLI_OPTIONS_MAX)
        return cli_usage(cli, "more than %d options", CLI_OPTIONS_MAX);
    cli->given[cli->given_count++] = (struct cli_given){option, value, line};
    if (!strcmp(option->name, "store")) {
        cli_store_choose(cli, value);
    } else if (!strcmp(option->name, "database") && cli_is_common(option)) {
        cli->database = value;
    } else if (!strcmp(option->name, "json")) {
        cli->json = true;
    } else if (!strcmp(option->name, "quiet")) {
        cli->quiet = true;
    }
    return CLI_DONE;
}

/* Refuses a second, different value of an option that may have only one. */
static int check_repeated(const struct cli *cli, const struct cli_option *option, const char *value)
{
    for (int i = 0; value && !option->many && i < cli->given_count; i++) {
        if (cli->given[i].option == option && strcmp(cli->given[i].value, value) != 0)
            return cli_usage(cli, "--%s is given twice, as \"%s\" and as \"%s\": give it once",
                             option->name, cli->given[i].value, value);
    }
    return CLI_DONE;
}

/* Stores the value of an option. If `value` is NULL, the next word is the value, unless it belongs
 * to the command. */
static int give_value(struct cli *cli, struct words *words, const struct cli_option *option,
                      const char *value)
{
    if (option->value && !value) {
        if (!words->all[words->at] || words->at == words->noun || words->at == words->verb)
            return cli_usage(cli, "--%s needs a value: %s", option->name, option->value);
        value = words->all[words->at++];
    }
    if (check_repeated(cli, option, value))
        return CLI_USAGE;
    return cli_call_give(cli, option, value, 0);
}

static int read_long(struct cli *cli, struct words *words, const char *word)
{
    size_t length = strcspn(word + 2, "=");
    const char *value = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
    const struct cli_option *option = find_option(cli, word + 2, length, 0);

    if (!option)
        return cli_unknown(cli, word, NULL);
    if (!option->value && value)
        return cli_usage(cli, "--%s is a flag and takes no value", option->name);
    return give_value(cli, words, option, value);
}

/* Reads a word of option letters: -q, -qj, -n1, -qjn1. */
static int read_letters(struct cli *cli, struct words *words, const char *word)
{
    char alone[3] = "-";
    int code = CLI_DONE;

    for (const char *letter = word + 1; *letter && !code; letter++) {
        const struct cli_option *option = find_option(cli, NULL, 0, *letter);

        alone[1] = *letter;
        if (!option)
            return cli_unknown(cli, alone, NULL);
        if (option->value)
            return give_value(cli, words, option, letter[1] ? letter + 1 : NULL);
        code = cli_call_give(cli, option, NULL, 0);
    }
    return code;
}

static int command_line_read_argument(struct cli *cli, const char *word)
{
    if (cli->count == CLI_ARGUMENTS_MAX)
        return cli_usage(cli, "more than %d arguments", CLI_ARGUMENTS_MAX);
    cli->arguments[cli->count++] = word;
    return CLI_DONE;
}

/* Reads the options and arguments of the command. All words after "--" are arguments. */
static int command_line_read_words(struct cli *cli, struct words *words)
{
    bool only_arguments = false;
    int code = CLI_DONE;

    while (!code && words->all[words->at]) {
        const char *word = words->all[words->at++];

        if (words->at - 1 == words->noun || words->at - 1 == words->verb)
            continue;
        if (!only_arguments && !strcmp(word, "--"))
            only_arguments = true;
        else if (only_arguments || !command_line_is_option(word))
            code = command_line_read_argument(cli, word);
        else if (word[1] == '-')
            code = read_long(cli, words, word);
        else
            code = read_letters(cli, words, word);
    }
    return code;
}

/* Counts the arguments that "COLLECTION [FILTER]" takes, and names the first missing one. */
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

/* Checks the number of arguments against the usage of the command. */
static int check_count(const struct cli *cli)
{
    const struct cli_command *c = cli->command;
    char missing[32];
    int least, most;

    arguments_range(c->arguments, cli->count, &least, &most, missing);
    if (cli->count < least)
        return cli_usage(cli, "%s is missing; usage: truce %s%s%s %s", missing, c->noun,
                         c->verb ? " " : "", c->verb ? c->verb : "", c->arguments);
    if (cli->count > most)
        return cli_usage(cli, "\"%s\" is one argument too many; usage: truce %s%s%s%s%s",
                         cli->arguments[most], c->noun, c->verb ? " " : "", c->verb ? c->verb : "",
                         c->arguments ? " " : "", c->arguments ? c->arguments : "");
    return CLI_DONE;
}

/* Refuses to write truce's own collections. Deletions are allowed, because users decide about some
 * of the documents, for example conflicts. */
static int check_collection(const struct cli *cli)
{
    if (!cli->command->writes_documents || !truce__reserved(cli->arguments[0]))
        return CLI_DONE;
    return cli_usage(cli,
                     "%s is reserved: truce writes its documents itself, and other writes would "
                     "damage its data; to repair a document by hand, use truce command",
                     cli->arguments[0]);
}

static int read_config(struct cli *cli)
{
    const char *path =
        command_line_find_in(cli_command_options(cli->command), "config", strlen("config"), 0)
            ? cli_text(cli, "config")
            : NULL;

    return path ? cli_config_read(cli, path) : CLI_DONE;
}

/* Reads the options of every command, and sets the form of the output. */
static int read_common(struct cli *cli)
{
    int64_t deadline_ms;

    if (!cli_duration(cli, "deadline", 1, CLI_WAIT_MAX_MS, 0, &deadline_ms))
        return CLI_USAGE;
    cli->deadline_ms = (uint32_t)deadline_ms;
    if (cli_slow_read(cli))
        return CLI_USAGE;
    if (cli_flag(cli, "pretty") && cli_flag(cli, "table"))
        return cli_usage(cli, "--pretty and --table exclude each other");
    if (cli->json && cli_flag(cli, "table"))
        return cli_usage(cli, "--json and --table exclude each other");
    cli_print_as(cli_flag(cli, "table")    ? CLI_TABLE
                 : cli_flag(cli, "pretty") ? CLI_PRETTY
                                           : CLI_LINES);
    return CLI_DONE;
}

int cli_call_read(struct cli *cli, char **all, bool *done)
{
    struct words words = {.all = all};
    int code;

    /* --json is read first, because it also determines the form of errors in the other words. */
    cli->json = arguments_have_option(all, "--json", "-j");
    code = command_line_find_command(cli, &words, done);
    if (*done)
        return code;
    if (arguments_have_option(all, "--help", "-h")) {
        *done = true;
        return cli_help(cli->command);
    }
    code = command_line_read_words(cli, &words);
    if (!code)
        code = check_count(cli);
    if (!code)
        code = check_collection(cli);
    if (!code)
        code = read_config(cli);
    if (!code)
        code = read_common(cli);
    *done = code != CLI_DONE;
    return code;
}
