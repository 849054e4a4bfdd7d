#include "cli/core/config.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "cli/core/command_line.h"
#include "cli/core/operation_row.h"

#define BLANKS           " \t"
#define SHOWN_MAX        40
#define MARK             "\xef\xbb\xbf" /* The byte order mark, which some editors write. */
#define YES_OR_NO(value) (!strcmp(value, "yes") || !strcmp(value, "no"))

struct config {
    struct cli *cli;
    const char *path;
    int line;
    /* The options that were read, including flags with the value "no". */
    struct {
        const struct cli_option *option;
        int line;
    } seen[CLI_OPTIONS_MAX];
    int seen_count;
};

TRUCE_PRINTF(2, 3)
static int config_wrong(const struct config *config, const char *format, ...)
{
    char *sentence;
    va_list arguments;

    va_start(arguments, format);
    sentence = bson_strdupv_printf(format, arguments);
    va_end(arguments);
    cli_usage(config->cli, "%s line %d: %s", config->path, config->line, sentence);
    bson_free(sentence);
    return CLI_USAGE;
}

/* ---- names --------------------------------------------------------------------------------- */

/* Returns true if a file may contain the option. Options about the call itself, such as --help, are
 * excluded. */
static bool of_files(const struct cli_option *option)
{
    return strcmp(option->name, "config") != 0 && strcmp(option->name, "help") != 0;
}

static const struct cli_option *config_find_in(const struct cli_option *table, const char *name)
{
    for (; table && table->name; table++) {
        if (!strcmp(table->name, name) && of_files(table))
            return table;
    }
    return NULL;
}

/* Appends the names of a table that `listed` does not have. */
static void config_list_names(const struct cli_option *table, const struct cli_option *listed,
                              bson_string_t *names)
{
    for (; table && table->name; table++) {
        if (of_files(table) && !config_find_in(listed, table->name)) {
            bson_string_append(names, names->len ? ", " : "");
            bson_string_append(names, table->name);
        }
    }
}

static int config_unknown(const struct config *config, const char *name)
{
    const struct cli_option *own = cli_command_options(config->cli->command);
    bson_string_t *names = bson_string_new(NULL);
    bool shown = strlen(name) <= SHOWN_MAX;

    config_list_names(own, NULL, names);
    config_list_names(cli_common_options, own, names);
    config_wrong(config, "unknown option%s%s%s: expected one of %s", shown ? " \"" : "",
                 shown ? name : "", shown ? "\"" : "", names->str);
    bson_string_free(names, true);
    return CLI_USAGE;
}

static int first_time(struct config *config, const struct cli_option *option)
{
    for (int i = 0; i < config->seen_count && !option->many; i++) {
        if (config->seen[i].option == option)
            return config_wrong(config, "%s is already set in line %d; set it once", option->name,
                                config->seen[i].line);
    }
    if (config->seen_count == CLI_OPTIONS_MAX)
        return config_wrong(config, "more than %d options", CLI_OPTIONS_MAX);
    config->seen[config->seen_count].option = option;
    config->seen[config->seen_count++].line = config->line;
    return CLI_DONE;
}

/* ---- values -------------------------------------------------------------------------------- */

/* Refuses values that are probably mistakes: quotes, a comment after the value, or a password,
 * which must not be in a file. */
static int check_value(const struct config *config, const struct cli_option *option,
                       const char *value)
{
    if (!option->value && !YES_OR_NO(value))
        return config_wrong(config, "%s must be yes or no", option->name);
    if (!*value)
        return config_wrong(config, "%s needs a value: %s", option->name, option->value);
    if (*value == '"' || *value == '\'')
        return config_wrong(config, "write the value without quotes");
    if (strstr(value, " #") || strstr(value, "\t#"))
        return config_wrong(config, "write the comment on a line of its own");
    if (!strcmp(option->name, "store") && !strncmp(value, "mongodb", 7) && strchr(value, '@'))
        return config_wrong(config,
                            "this file must not contain a password; set TRUCE_STORE instead");
    return CLI_DONE;
}

/* ---- lines --------------------------------------------------------------------------------- */

static bool config_is_text(const char *line)
{
    for (const char *at = line; *at; at++) {
        if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7f)
            return false;
    }
    return bson_utf8_validate(line, strlen(line), false);
}

static void cut_blanks(char *text)
{
    size_t length = strlen(text);

    while (length && strchr(BLANKS, text[length - 1]))
        length--;
    text[length] = '\0';
}

/* Reads one line, which it splits in place; the value stays in cli->config_text. */
static int config_read_line(struct config *config, char *line)
{
    const struct cli_option *option;
    char *value;
    int code;

    if (!config_is_text(line))
        return config_wrong(config, "the line is not UTF-8 text");
    line += strspn(line, BLANKS);
    if (!*line || *line == '#')
        return CLI_DONE;
    value = strchr(line, '=');
    if (!value)
        return config_wrong(config, "expected a line of the form: name = value");
    *value++ = '\0';
    value += strspn(value, BLANKS);
    cut_blanks(line);
    cut_blanks(value);
    option = config_find_in(cli_command_options(config->cli->command), line);
    if (!option)
        option = config_find_in(cli_common_options, line);
    if (!option)
        return config_unknown(config, line);
    code = first_time(config, option);
    if (!code)
        code = check_value(config, option, value);
    if (code || (!option->value && !strcmp(value, "no")))
        return code;
    return cli_call_give(config->cli, option, option->value ? value : NULL, config->line);
}

/* Reads the lines, which it ends with NULs in place. Skips a byte order mark. */
static int config_read_lines(struct config *config, char *text)
{
    int code = CLI_DONE;

    text += strncmp(text, MARK, strlen(MARK)) ? 0 : strlen(MARK);
    while (!code && *text) {
        size_t length = strcspn(text, "\n");
        char *next = text + length + (text[length] == '\n');

        text[length] = '\0';
        if (length && text[length - 1] == '\r')
            text[length - 1] = '\0';
        config->line++;
        code = config_read_line(config, text);
        text = next;
    }
    return code;
}

/* Returns the option that names the file. A server also reads the files of --consume. */
static const char *config_option(const struct cli *cli)
{
    return cli_text(cli, "config") ? "--config" : "--consume";
}

/* Reads the file into `text`, which has room for CONFIG_BYTES_MAX + 2. */
static int config_read_file(struct cli *cli, const char *path, char *text)
{
    FILE *file = fopen(path, "re");
    size_t size = file ? fread(text, 1, CONFIG_BYTES_MAX + 1, file) : 0;
    bool failed = !file || ferror(file);
    int reason = errno;

    if (file)
        fclose(file);
    if (failed)
        return cli_usage(cli, "%s: cannot read %s: %s", config_option(cli), path, strerror(reason));
    if (size > CONFIG_BYTES_MAX)
        return cli_usage(cli, "%s: %s is longer than %d bytes", config_option(cli), path,
                         CONFIG_BYTES_MAX);
    if (memchr(text, '\0', size))
        return cli_usage(cli, "%s: %s is not UTF-8 text", config_option(cli), path);
    text[size] = '\0';
    return CLI_DONE;
}

int cli_config_read(struct cli *cli, const char *path)
{
    struct config config = {.cli = cli, .path = path};
    struct cli_given of_call[CLI_OPTIONS_MAX];
    int count = cli->given_count, code;

    cli->config_path = path;
    cli->config_text = bson_malloc(CONFIG_BYTES_MAX + 2);
    code = config_read_file(cli, path, cli->config_text);
    memcpy(of_call, cli->given, sizeof of_call);
    cli->given_count = 0;
    if (!code)
        code = config_read_lines(&config, cli->config_text);
    for (int i = 0; i < count && !code; i++)
        code = cli_call_give(cli, of_call[i].option, of_call[i].value, 0);
    return code;
}

const char *cli_config_position(const struct cli *cli, const char *sentence, char *position,
                                size_t size)
{
    for (int i = 0; i < cli->given_count; i++) {
        const struct cli_given *given = &cli->given[i];
        char *quoted =
            given->line && given->value ? bson_strdup_printf("\"%s\"", given->value) : NULL;
        bool meant = quoted && cli_text(cli, given->option->name) == given->value &&
                     strstr(sentence, quoted);

        bson_free(quoted);
        if (meant) {
            snprintf(position, size, "%s line %d", cli->config_path, given->line);
            return position;
        }
    }
    return NULL;
}
