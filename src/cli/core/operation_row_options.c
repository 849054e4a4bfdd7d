/*
 * The options of a command from the fields of its row.
 *
 * The option tables are made with their first use, and live as long as the process. The help of an
 * option is the field's help: names of fields become names of options, and the unit of a time is
 * part of the value.
 */
#include "cli/core/operation_row_options.h"

#include <ctype.h>
#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"

/* ---- names ----------------------------------------------------------------------------------- */

static bool row_ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), length = strlen(end);

    return size >= length && !strcmp(text + size - length, end);
}

enum row_unit cli_row_unit(const struct operation_field *field)
{
    if (field->field.type == FIELD_TIME)
        return ROW_DATE;
    return field->field.type == FIELD_DURATION ? ROW_DURATION : ROW_PLAIN;
}

/* Writes "laneWidth" as "lane-width", without the last `less` characters. */
static void row_write_name(const char *field, size_t less, char name[ROW_NAME_MAX])
{
    size_t size = strlen(field) - less, at = 0;

    for (size_t i = 0; i < size && at < ROW_NAME_MAX - 2; i++) {
        if (field[i] == '_' || (isupper((unsigned char)field[i]) && i))
            name[at++] = '-';
        if (field[i] != '_')
            name[at++] = (char)tolower((unsigned char)field[i]);
    }
    name[at] = '\0';
}

/* Returns the next word at the position, and moves to the byte after it. */
static const char *row_next_word(const char **at, size_t *size)
{
    const char *word = *at;

    *size = strcspn(word, " ");
    *at += *size + strspn(word + *size, " ");
    return word;
}

static bool row_is_word(const char *word, size_t size, const char *text)
{
    return strlen(text) == size && !memcmp(word, text, size);
}

void cli_row_option(const struct cli_row *row, const struct operation_field *field,
                    char name[ROW_NAME_MAX])
{
    const char *own = field->field.name, *at = row->named ? row->named : "";
    size_t less = 0, size, field_size;

    while (*at) {
        const char *word = row_next_word(&at, &size), *of = row_next_word(&at, &field_size);

        if (!strncmp(word, "--", 2) && row_is_word(of, field_size, own)) {
            snprintf(name, ROW_NAME_MAX, "%.*s", (int)size - 2, word + 2);
            return;
        }
    }
    if (row_ends_with(own, "MS"))
        less = 2;
    else if (field->field.type == FIELD_ARRAY && field->each != FIELD_DOCUMENT &&
             row_ends_with(own, "s"))
        less = 1;
    row_write_name(own, less, name);
}

static void row_upper(char *text)
{
    for (; *text; text++)
        *text = (char)toupper((unsigned char)*text);
}

bool cli_row_is_argument(const struct cli_row *row, const char *argument, size_t size,
                         const char *field)
{
    const char *at = row->named ? row->named : "";
    char name[ROW_NAME_MAX];
    size_t word_size, field_size;

    while (*at) {
        const char *word = row_next_word(&at, &word_size), *of = row_next_word(&at, &field_size);

        if (word_size == size && !memcmp(word, argument, size))
            return row_is_word(of, field_size, field);
    }
    row_write_name(field, 0, name);
    row_upper(name);
    return row_is_word(argument, size, name);
}

const struct operation_row *cli_row_find(const struct cli_row *row)
{
    const struct operation_row *found = truce__operation_named(row->name);

    truce_assert(found);
    return found;
}

/* ---- fields that are options ----------------------------------------------------------------- */

/* Returns whether `words` ("limit pool") has the word. */
static bool row_lists(const char *words, const char *word)
{
    size_t size = strlen(word);

    for (const char *at = words; (at = strstr(at, word)); at++)
        if ((at == words || at[-1] == ' ') && (!at[size] || at[size] == ' '))
            return true;
    return false;
}

int cli_row_find_argument(const struct cli_command *command, const struct cli_row *row,
                          const char *field, const char **word)
{
    const char *at = command->arguments;
    size_t size;

    for (int i = 0; at && *at; i++) {
        *word = at + strspn(at, "[");
        if (cli_row_is_argument(row, *word, strcspn(*word, "]. "), field))
            return i;
        (void)row_next_word(&at, &size);
    }
    return -1;
}

/* Returns whether the fields that the command sets ("{action: 'pause'}") have the name. */
static bool row_sets(const struct cli_row *row, const char *field)
{
    const char *at = row->set;
    size_t size = strlen(field);

    while (at && (at = strstr(at, field)) != NULL) {
        if (at[size] == ':' && strchr("{ ", at[-1]))
            return true;
        at++;
    }
    return false;
}

bool cli_row_has_option(const struct cli_command *command, const struct cli_row *row,
                        const struct operation_field *field)
{
    const char *word;

    if (row->fields && row->fields[0] != '!')
        return row_lists(row->fields, field->field.name);
    if (row->fields && row_lists(row->fields + 1, field->field.name))
        return false;
    return field->field.type != FIELD_IGNORED && field->field.type != FIELD_PLAIN &&
           cli_row_find_argument(command, row, field->field.name, &word) < 0 &&
           !row_sets(row, field->field.name);
}

/* ---- the help of an option ------------------------------------------------------------------- */

/* Appends a word of the help. If it is a field of the row, appends its option instead: laneWidth
 * becomes --lane-width. */
static void row_help_append_option(const struct cli_row *row, const char *name, size_t size,
                                   struct buffer *text)
{
    const struct operation_field *at = cli_row_find(row)->fields;
    char option[ROW_NAME_MAX];

    while (at->field.name && (strlen(at->field.name) != size || memcmp(at->field.name, name, size)))
        at++;
    if (!at->field.name) {
        truce__buffer_append(text, name, size);
        return;
    }
    cli_row_option(row, at, option);
    truce__buffer_append_text(text, "--");
    truce__buffer_append_text(text, option);
}

/* Returns the help of the field with names of options in place of fields, and without units of
 * time. */
static char *row_help(const struct cli_row *row, const struct operation_field *field)
{
    static const char *const replaced[][2] = {{", in milliseconds", ""},
                                              {" in milliseconds", ""},
                                              {", ms since 1970", ""},
                                              {"; absent: ", "; default: "},
                                              {"; absent, ", "; else "}};
    struct buffer text = {0};
    const char *at = field->help;
    size_t i;

    while (*at) {
        for (i = 0; i < sizeof replaced / sizeof *replaced; i++)
            if (!strncmp(at, replaced[i][0], strlen(replaced[i][0])))
                break;
        if (i < sizeof replaced / sizeof *replaced) {
            truce__buffer_append_text(&text, replaced[i][1]);
            at += strlen(replaced[i][0]);
        } else if (*at == '`') {
            size_t size = strcspn(at + 1, "`");

            row_help_append_option(row, at + 1, size, &text);
            at += size + 1 + (at[size + 1] == '`');
        } else { /* Up to the next character that may begin one of these. */
            size_t size = 1 + strcspn(at + 1, " ,;`");

            truce__buffer_append(&text, at, size);
            at += size;
        }
    }
    for (const char *const *word = field->words; word && *word; word++) {
        truce__buffer_append_text(&text, word == field->words ? " (" : ", ");
        truce__buffer_append_text(&text, *word);
    }
    truce__buffer_append_text(&text, field->words ? ")" : "");
    truce__buffer_append_byte(&text, 0);
    return (char *)text.bytes;
}

/* ---- the options of a command ---------------------------------------------------------------- */

/* Returns the placeholder of the option's value, or NULL for a flag. */
static const char *row_value(const struct operation_field *field, const char *name)
{
    enum field_type type = field->field.type == FIELD_ARRAY ? field->each : field->field.type;
    char *upper;

    if (type == FIELD_FLAG)
        return NULL;
    if (field->words)
        return "WORD";
    if (cli_row_unit(field))
        return cli_row_unit(field) == ROW_DATE ? "TIME" : "DURATION";
    if (type == FIELD_NUMBER)
        return "N";
    if (type == FIELD_DOCUMENT || type == FIELD_EITHER)
        return "DOCUMENT";
    if (type == FIELD_OID)
        return "ID";
    upper = bson_strdup(name);
    row_upper(upper);
    return upper;
}

static char row_letter(const char *name)
{
    static const struct {
        const char *name;
        char letter;
    } letters[] = {{"limit", 'n'},   {"field", 'f'}, {"identity", 'i'}, {"accounts", 'a'},
                   {"entries", 'e'}, {"key", 'k'},   {"id", 'i'},       {"message", 'm'},
                   {"version", 'v'}, {"base", 'b'},  {"rules", 'r'},    {"dry-run", 'n'}};

    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (!strcmp(name, letters[i].name))
            return letters[i].letter;
    return 0;
}

static struct cli_option row_option(const struct cli_row *row, const struct operation_field *field)
{
    char name[ROW_NAME_MAX];

    cli_row_option(row, field, name);
    return (struct cli_option){.name = bson_strdup(name),
                               .letter = row_letter(name),
                               .value = row_value(field, name),
                               .help = row_help(row, field),
                               .many = field->field.type == FIELD_ARRAY};
}

/* Returns whether the command has an option of its own in the place of that of the field. */
static bool row_is_replaced(const struct cli_command *command, const struct operation_field *field)
{
    const struct cli_option *own = command->options;
    char name[ROW_NAME_MAX];

    cli_row_option(command->row, field, name);
    while (own && own->name && strcmp(own->name, name) != 0)
        own++;
    return own && own->name;
}

/* Makes the options of the command: its own, then those of its row. NULL if it has none. */
static const struct cli_option *row_make_options(const struct cli_command *command)
{
    const struct operation_row *row = cli_row_find(command->row);
    const struct cli_option *own = command->options;
    size_t count = 0, room = 1;
    struct cli_option *made;

    for (size_t i = 0; own && own[i].name; i++)
        room++;
    for (const struct operation_field *at = row->fields; at->field.name; at++)
        room++;
    made = bson_malloc0(room * sizeof *made);
    for (; own && own->name; own++)
        made[count++] = *own;
    for (const struct operation_field *at = row->fields; at->field.name; at++)
        if (cli_row_has_option(command, command->row, at) && !row_is_replaced(command, at))
            made[count++] = row_option(command->row, at);
    if (!count) {
        bson_free(made);
        made = NULL;
    }
    return made;
}

const struct cli_option *cli_command_options(const struct cli_command *command)
{
    static struct made {
        struct made *next;
        const struct cli_command *command;
        const struct cli_option *options;
    } * all;
    struct made *found = all;

    if (!command->row)
        return command->options;
    while (found && found->command != command)
        found = found->next;
    if (!found) {
        found = bson_malloc0(sizeof *found);
        *found = (struct made){all, command, row_make_options(command)};
        all = found;
    }
    return found->options;
}

const char *const *cli_row_words(const struct cli_command *command, const char *name)
{
    char option[ROW_NAME_MAX];

    if (!command->row)
        return NULL;
    for (const struct operation_field *at = cli_row_find(command->row)->fields; at->field.name;
         at++) {
        cli_row_option(command->row, at, option);
        if (!strcmp(option, name))
            return at->words;
    }
    return NULL;
}
