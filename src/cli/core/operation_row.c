/*
 * Runs the operation of a command: reads the fields from arguments and options, sends the request,
 * and prints the reply.
 */
#include "cli/core/operation_row.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/field.h"
#include "base/plural.h"
#include "bson/date.h"
#include "bson/value.h"
#include "cli/core/operation_row_options.h"
#include "truce/command.h"

/* The maximum number of elements of a page, unless the row has another one. */
#define PAGE_MAX 1000

/* ---- values ---------------------------------------------------------------------------------- */

/* A value of the call, and where it was given: "--keep", or "QUEUE". */
struct row_text {
    const struct cli *cli;
    const char *label, *text;
};

/* A number with at least this number of digits is a time in ms. */
#define TIME_DIGITS 11

/* Reads a date, or milliseconds since 1970, as programs know the times of their messages. */
static bool row_read_time(const char *text, int64_t *ms)
{
    size_t digits = strspn(text, "0123456789");

    if (digits >= TIME_DIGITS && !text[digits]) {
        *ms = strtoll(text, NULL, 10);
        return !errno;
    }
    return !truce__date_parse_typed(text, strlen(text), ms, NULL);
}

/* Appends a number, a time, or a duration, by the unit of the field. If the text is bad, prints the
 * error and returns false. */
static bool row_append_number(const struct row_text *from, const struct operation_field *field,
                              const char *key, bson_t *to)
{
    enum row_unit unit = cli_row_unit(field);
    bool bounded = field->least || field->most, read;
    char *end, least[CLI_DURATION_MAX], most[CLI_DURATION_MAX];
    int64_t number = 0;

    errno = 0;
    if (unit == ROW_DATE)
        read = row_read_time(from->text, &number);
    else if (unit == ROW_DURATION)
        read = cli_duration_read(from->text, &number);
    else {
        number = strtoll(from->text, &end, 10);
        read = !errno && end != from->text && !*end;
    }
    if (read && (!bounded || (number >= field->least && number <= field->most)))
        return BSON_APPEND_INT64(to, key, number);
    if (unit == ROW_DATE)
        cli_usage(
            from->cli,
            "%s needs a time, for example 2026-12-24T18:00:00Z, or milliseconds since 1970, not "
            "\"%s\"%s",
            from->label, from->text,
            from->text[0] && !from->text[strspn(from->text, "0123456789")]
                ? ", which is probably in seconds"
                : "");
    else if (unit == ROW_DURATION && !read)
        cli_usage(from->cli,
                  "%s needs a duration, for example 500ms, 90s, 5m, 24h, or 7d, not \"%s\"",
                  from->label, from->text);
    else if (unit == ROW_DURATION)
        cli_usage(from->cli, "%s needs a duration from %s to %s, not \"%s\"", from->label,
                  cli_duration_show(field->least, least), cli_duration_show(field->most, most),
                  from->text);
    else if (bounded)
        cli_usage(from->cli, "%s needs a number from %lld to %lld, not \"%s\"", from->label,
                  (long long)field->least, (long long)field->most, from->text);
    else
        cli_usage(from->cli, "%s needs a number, not \"%s\"", from->label, from->text);
    return false;
}

static bool row_append_id(const struct row_text *from, const char *key, bson_t *to)
{
    bson_oid_t id;

    if (!bson_oid_is_valid(from->text, strlen(from->text))) {
        cli_usage(from->cli, "%s needs 24 hexadecimal digits, not \"%s\"", from->label, from->text);
        return false;
    }
    bson_oid_init_from_string(&id, from->text);
    return BSON_APPEND_OID(to, key, &id);
}

/* Appends a value of the call as a document or an array, as the type of the field demands. On a
 * fault, prints the usage error and returns false. */
static bool row_append_document(const struct row_text *from, enum field_type type, const char *key,
                                bson_t *to)
{
    bool is_array = false;
    bson_t document;
    bool good = cli_document_or_array(from->cli, from->text, from->label, &document,
                                      type == FIELD_DOCUMENT ? NULL : &is_array);

    if (good && type == FIELD_ARRAY && !is_array) {
        cli_usage(from->cli, "%s needs an array, not \"%s\"", from->label, from->text);
        good = false;
    }
    if (good)
        good = is_array ? BSON_APPEND_ARRAY(to, key, &document)
                        : BSON_APPEND_DOCUMENT(to, key, &document);
    bson_destroy(&document);
    return good;
}

/* Returns whether the text begins like JSON and not like a word. */
static bool row_is_json(const char *text)
{
    char *end;

    if (!*text)
        return false;
    if (strchr("{[\"'", text[0]) || !strcmp(text, "true") || !strcmp(text, "false") ||
        !strcmp(text, "null") || strpbrk(text, " \t"))
        return true;
    if (!strchr("-0123456789", text[0]) || strpbrk(text, "xXnNpP"))
        return false;
    (void)strtod(text, &end);
    return *end == '\0';
}

bool cli_row_append_value(const struct cli *cli, const char *label, const char *text,
                          const char *key, bson_t *to)
{
    struct json_reader reader = {.typed = true};
    char *wrapped;
    bson_error_t ignored;
    bson_iter_t at;
    bson_oid_t id;
    bson_t read;
    bool good;

    if (bson_oid_is_valid(text, strlen(text))) {
        bson_oid_init_from_string(&id, text);
        return BSON_APPEND_OID(to, key, &id);
    }
    if (!row_is_json(text))
        return BSON_APPEND_UTF8(to, key, text);
    wrapped = bson_strdup_printf("{\"v\": %s}", text);
    good = !truce__json_read(&reader, wrapped, strlen(wrapped), &read, NULL, &ignored) &&
           bson_count_keys(&read) == 1 && bson_iter_init_find(&at, &read, "v") &&
           bson_append_iter(to, key, -1, &at);
    if (!good)
        cli_usage(cli, "%s must be a value of Extended JSON or a word, not \"%s\"", label, text);
    truce__json_reader_release(&reader);
    bson_free(wrapped);
    return good;
}

/* Checks that the value is one of the words of the field. Otherwise prints all of them and returns
 * false. */
static bool row_check_word(const struct row_text *from, const char *const *words)
{
    struct buffer all = {0};

    if (truce__operation_choice(from->text, words) >= 0)
        return true;
    for (const char *const *at = words; *at; at++) {
        truce__buffer_append_text(&all, at == words ? "" : at[1] ? ", " : ", or ");
        truce__buffer_append_text(&all, *at);
    }
    truce__buffer_append_byte(&all, 0);
    cli_usage(from->cli, "%s must be %s, not \"%s\"", from->label, (const char *)all.bytes,
              from->text);
    truce__buffer_release(&all);
    return false;
}

/* Appends the text as a value of `type`: that of the field, or of an element of its array. */
static bool row_append(const struct row_text *from, const struct operation_field *field,
                       enum field_type type, const char *key, bson_t *to)
{
    if (field->words && !row_check_word(from, field->words))
        return false;
    switch (type) {
    case FIELD_TEXT:
        return BSON_APPEND_UTF8(to, key, from->text);
    case FIELD_NUMBER:
    case FIELD_WHOLE:
    case FIELD_TIME:
    case FIELD_DURATION:
        return row_append_number(from, field, key, to);
    case FIELD_OID:
        return row_append_id(from, key, to);
    case FIELD_DOCUMENT:
    case FIELD_ARRAY:
    case FIELD_EITHER:
        return row_append_document(from, type, key, to);
    case FIELD_VALUE:
    case FIELD_HINT:
        return cli_row_append_value(from->cli, from->label, from->text, key, to);
    case FIELD_FLAG:
    case FIELD_PLAIN:
    case FIELD_IGNORED:
        break;
    }
    return BSON_APPEND_BOOL(to, key, true);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* One run of the operation. */
struct row_call {
    struct cli *cli;
    const struct cli_row *row;
    const struct operation_row *operation;
    /* Further fields that the command passes, or NULL. */
    const bson_t *more;
    /* The current value of the argument that ends in "...", or NULL. */
    const char *each;
    bson_t request;
};

/* Returns the value of the argument that has the field, or NULL. */
static const char *row_argument(const struct row_call *call, const char *field)
{
    const char *word;
    int i = cli_row_find_argument(call->cli->command, call->row, field, &word);

    if (i < 0 || (call->more && bson_has_field(call->more, field)))
        return NULL;
    word += strcspn(word, "]. ");
    return !strncmp(word, "...", 3) || !strncmp(word, "]...", 4) ? call->each
                                                                 : call->cli->arguments[i];
}

static void row_write_argument(const struct row_call *call, const char *field,
                               char label[ROW_NAME_MAX])
{
    const char *word = "";

    (void)cli_row_find_argument(call->cli->command, call->row, field, &word);
    snprintf(label, ROW_NAME_MAX, "%.*s", (int)strcspn(word, "]. "), word);
}

static bool row_append_argument(struct row_call *call, const struct operation_field *field,
                                const char *text)
{
    char label[ROW_NAME_MAX];
    struct row_text from = {call->cli, label, text};

    row_write_argument(call, field->field.name, label);
    return row_append(&from, field, field->field.type, field->field.name, &call->request);
}

/* Appends an array: one JSON array, or an element for each time that the option is given. */
static bool row_append_array(struct row_call *call, const struct operation_field *field,
                             const char *option, const char *label)
{
    struct row_text from = {call->cli, label, cli_texts(call->cli, option, 0)};
    bson_t array;
    bool good = true;

    if (from.text[0] == '[')
        return row_append(&from, field, FIELD_ARRAY, field->field.name, &call->request);
    BSON_APPEND_ARRAY_BEGIN(&call->request, field->field.name, &array);
    for (int i = 0; good && (from.text = cli_texts(call->cli, option, i)); i++) {
        char key[12];

        snprintf(key, sizeof key, "%d", i);
        good = row_append(&from, field, field->each, key, &array);
    }
    bson_append_array_end(&call->request, &array);
    return good;
}

/* Appends the option of the field if the call gives it. */
static bool row_append_option(struct row_call *call, const struct operation_field *field)
{
    char option[ROW_NAME_MAX], label[CLI_LABEL_MAX];
    struct row_text from = {call->cli, label, NULL};
    struct operation_field unlimited;

    cli_row_option(call->row, field, option);
    /* --limit applies to all pages together, so it may exceed the maximum of a page. */
    if (call->row->next && !strcmp(field->field.name, "limit")) {
        unlimited = *field;
        unlimited.most = INT64_MAX;
        field = &unlimited;
    }
    if (!cli_flag(call->cli, option))
        return true;
    from.text = cli_text(call->cli, option);
    cli_option_label(call->cli, option, label, sizeof label);
    if (field->field.type == FIELD_ARRAY)
        return row_append_array(call, field, option, label);
    return row_append(&from, field, field->field.type, field->field.name, &call->request);
}

/* Reads an example or constant fields of a row. */
static void row_read_json(const char *text, bson_t *document)
{
    bson_error_t ignored;
    struct json_reader reader = {.typed = true};
    bson_t borrowed;

    bson_init(document);
    if (text && !truce__json_read(&reader, text, strlen(text), &borrowed, NULL, &ignored))
        bson_concat(document, &borrowed);
    truce__json_reader_release(&reader);
}

/* Appends the operation's first field. Its type is that in the example. */
static bool row_append_target(struct row_call *call)
{
    const struct operation_row *row = call->operation;
    const char *text = row->target ? row_argument(call, row->target) : NULL;
    struct operation_field field = {{row->name, FIELD_TEXT, 0}};
    char label[ROW_NAME_MAX];
    struct row_text from = {call->cli, label, text};
    bson_iter_t at;
    bson_t example;

    if (row->target && call->more && bson_iter_init_find(&at, call->more, row->target))
        return BSON_APPEND_VALUE(&call->request, row->name, bson_iter_value(&at));
    if (!text)
        return BSON_APPEND_INT32(&call->request, row->name, 1);
    row_read_json(row->example, &example);
    if (bson_iter_init_find(&at, &example, row->name))
        field.field.type = BSON_ITER_HOLDS_OID(&at)        ? FIELD_OID
                           : BSON_ITER_HOLDS_ARRAY(&at)    ? FIELD_ARRAY
                           : BSON_ITER_HOLDS_DOCUMENT(&at) ? FIELD_DOCUMENT
                                                           : FIELD_TEXT;
    bson_destroy(&example);
    row_write_argument(call, row->target, label);
    return row_append(&from, &field, field.field.type, row->name, &call->request);
}

/* Appends the fields that the command sets, unless the call gave them. */
static void row_append_set(struct row_call *call)
{
    bson_iter_t at;
    bson_t set;

    row_read_json(call->row->set, &set);
    (void)bson_iter_init(&at, &set);
    while (bson_iter_next(&at))
        if (!bson_has_field(&call->request, bson_iter_key(&at)))
            bson_append_iter(&call->request, NULL, -1, &at);
    bson_destroy(&set);
}

static void row_append_more(struct row_call *call)
{
    const char *target = call->operation->target;
    bson_iter_t at;

    if (call->more && bson_iter_init(&at, call->more))
        while (bson_iter_next(&at))
            if (!target || strcmp(bson_iter_key(&at), target) != 0)
                bson_append_iter(&call->request, NULL, -1, &at);
}

/* Checks that the call gives the options that the operation needs. */
static bool row_check_needed(const struct row_call *call)
{
    char option[ROW_NAME_MAX];

    for (const struct operation_field *at = call->operation->fields; at->field.name; at++) {
        if (!at->needed || bson_has_field(&call->request, at->field.name) ||
            !cli_row_has_option(call->cli->command, call->row, at))
            continue;
        cli_row_option(call->row, at, option);
        cli_usage(call->cli, "--%s is missing: %s", option, at->help);
        return false;
    }
    return true;
}

/* Builds the request. Returns CLI_DONE, or CLI_USAGE after printing the error. */
static int row_read(struct row_call *call)
{
    bool good = row_append_target(call);

    for (const struct operation_field *field = call->operation->fields; good && field->field.name;
         field++) {
        const char *text = row_argument(call, field->field.name);

        if (text)
            good = row_append_argument(call, field, text);
        else if (cli_row_has_option(call->cli->command, call->row, field))
            good = row_append_option(call, field);
    }
    if (!good)
        return CLI_USAGE;
    row_append_set(call);
    row_append_more(call);
    return row_check_needed(call) ? CLI_DONE : CLI_USAGE;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Appends a value of the reply for people: strings, ids, and dates without quotes, anything else as
 * JSON. */
static void row_append_found(const bson_iter_t *at, struct buffer *text)
{
    char date[DATE_TEXT_MAX], id[25];

    if (BSON_ITER_HOLDS_UTF8(at)) {
        truce__buffer_append_text(text, bson_iter_utf8(at, NULL));
    } else if (BSON_ITER_HOLDS_OID(at)) {
        bson_oid_to_string(bson_iter_oid(at), id);
        truce__buffer_append_text(text, id);
    } else if (BSON_ITER_HOLDS_DATE_TIME(at)) {
        truce__buffer_append_text(text, truce__date_show(bson_iter_date_time(at), date));
    } else {
        truce__json_write_value(text, at, JSON_RELAXED);
    }
}

/* Appends the value of {field}: of the reply, or else of the request. */
static void row_append_field(const struct row_call *call, const bson_t *reply, const char *name,
                             struct buffer *text)
{
    const char *target = call->operation->target;
    bson_iter_t at, found;

    if (bson_iter_init(&at, reply) && bson_iter_find_descendant(&at, name, &found))
        row_append_found(&found, text);
    else if (bson_iter_init_find(&found, &call->request,
                                 target && !strcmp(name, target) ? call->operation->name : name))
        row_append_found(&found, text);
}

/* Appends {field one many}: a count with its noun. */
static void row_append_count(const bson_t *reply, const char *name, char *nouns,
                             struct buffer *text)
{
    char *many = strchr(nouns, ' ');

    truce_assert(many);
    *many++ = '\0';
    truce__buffer_append_text(text, PLURAL(truce__field_number(reply, name), nouns, many));
}

/* Fills a format: {field} is a field, and {field one many} a count. */
static char *row_fill(const struct row_call *call, const char *format, const bson_t *reply)
{
    struct buffer text = {0};

    while (*format) {
        if (*format == '{') {
            char name[ROW_NAME_MAX], *nouns;
            size_t size = strcspn(format, "}");

            snprintf(name, sizeof name, "%.*s", (int)size - 1, format + 1);
            nouns = strchr(name, ' ');
            if (nouns) {
                *nouns++ = '\0';
                row_append_count(reply, name, nouns, &text);
            } else {
                row_append_field(call, reply, name, &text);
            }
            format += size + (format[size] == '}');
        } else {
            truce__buffer_append_byte(&text, (uint8_t)*format++);
        }
    }
    truce__buffer_append_byte(&text, 0);
    return (char *)text.bytes;
}

/* Prints a reply, or an element of its list. */
static bool row_print(const struct row_call *call, const bson_t *document)
{
    struct cli *cli = call->cli;
    char *text;
    bool good;

    if (call->row->print && (!cli->json || call->row->prints_json))
        return call->row->print(cli, document);
    if (!call->row->format)
        return cli_print(document, JSON_RELAXED);
    if (!call->row->format[0] && !cli->json)
        return true;
    text = row_fill(call, call->row->format, document);
    good = cli_answer(cli, document, "%s", text);
    bson_free(text);
    return good;
}

/* Prints the elements of the list. Sets *last to the last one, from which the next page
 * continues. */
static int row_print_list(struct row_call *call, const bson_t *reply, int64_t *printed,
                          bson_iter_t *last)
{
    bson_iter_t list, at;
    bool good = bson_iter_init_find(&list, reply, call->row->list) && bson_iter_recurse(&list, &at);

    while (good && bson_iter_next(&at)) {
        bson_t element;

        *last = at;
        if (BSON_ITER_HOLDS_DOCUMENT(&at)) {
            truce__value_bson(truce__value_of_iter(&at), &element);
        } else {
            /* An element that is not a document: those of `times` become {time: ...}. */
            bson_init(&element);
            bson_append_value(&element, call->row->list, (int)strlen(call->row->list) - 1,
                              bson_iter_value(&at));
        }
        good = row_print(call, &element);
        (*printed)++;
        bson_destroy(&element);
    }
    return good ? CLI_DONE : CLI_FAILED;
}

/* Prints a reply; --json shows its status, too. */
static int row_print_reply(const struct row_call *call, const bson_t *reply)
{
    bson_t shown = BSON_INITIALIZER, read;
    bson_iter_t at;
    bool good;

    if (call->row->show && bson_iter_init_find(&at, reply, call->row->show) &&
        BSON_ITER_HOLDS_DOCUMENT(&at)) {
        truce__value_bson(truce__value_of_iter(&at), &read);
        return cli_print(&read, JSON_RELAXED) ? CLI_DONE : CLI_FAILED;
    }
    bson_copy_to_excluding_noinit(reply, &shown, "ok", call->cli->json ? NULL : "status", NULL);
    good = row_print(call, &shown);
    bson_destroy(&shown);
    return !good                                               ? CLI_FAILED
           : call->row->negative && call->row->negative(reply) ? CLI_NO
                                                               : CLI_DONE;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Writes the names of fields in a message as options: 'perMS' is --per. */
static void row_translate(const struct cli *cli, const struct operation_row *row,
                          bson_error_t *error)
{
    struct buffer text = {0};
    const char *at = error->message;

    while (*at) {
        const struct operation_field *field = row->fields;
        size_t size = *at == '\'' ? strcspn(at + 1, "'") : 0;
        char option[ROW_NAME_MAX];

        while (field->field.name &&
               (strlen(field->field.name) != size || memcmp(field->field.name, at + 1, size) != 0))
            field++;
        if (size && field->field.name &&
            cli_row_has_option(cli->command, cli->command->row, field)) {
            cli_row_option(cli->command->row, field, option);
            truce__buffer_append_text(&text, "--");
            truce__buffer_append_text(&text, option);
            at += size + 2;
        } else {
            truce__buffer_append_byte(&text, (uint8_t)*at++);
        }
    }
    truce__buffer_append_byte(&text, 0);
    snprintf(error->message, sizeof error->message, "%s", (const char *)text.bytes);
    truce__buffer_release(&text);
}

int cli_row_error(const struct cli *cli, truce_status status, bson_error_t *error)
{
    const struct cli_row *row = cli->command->row;
    int code;

    if (row)
        row_translate(cli, cli_row_find(row), error);
    code = cli_error(cli, NULL, status, error);
    if (row && row->limits && status == TRUCE_LIMIT)
        return CLI_NO;
    return row && row->refuses && status == TRUCE_INVALID && error->code == CODE_BAD_VALUE ? CLI_NO
                                                                                           : code;
}

void cli_row_lines_add(struct cli_row_lines *lines, int64_t line)
{
    if (lines->count == lines->room) {
        lines->room = lines->room ? 2 * lines->room : 1024;
        lines->lines = bson_realloc(lines->lines, (size_t)lines->room * sizeof *lines->lines);
    }
    lines->lines[lines->count++] = line;
}

int64_t cli_row_line_of(const struct cli_row_lines *lines, int64_t record)
{
    return record >= 1 && record <= lines->count ? lines->lines[record - 1] : 0;
}

/* Replaces "record 17: " at the beginning of the error by the line. */
static void row_name_line(const struct cli_row_lines *lines, bson_error_t *error)
{
    char message[sizeof error->message], *end;
    size_t size = strlen(lines->what);
    int64_t record;

    if (strncmp(error->message, lines->what, size) != 0 || error->message[size] != ' ')
        return;
    record = strtoll(error->message + size, &end, 10);
    snprintf(message, sizeof message, "line %lld%s", (long long)cli_row_line_of(lines, record),
             end);
    snprintf(error->message, sizeof error->message, "%s", message);
}

truce_status cli_row_call(const struct cli *cli, const bson_t *request, bson_t *reply,
                          bson_error_t *error)
{
    int64_t before = truce_deadline_begin(cli->deadline_ms);
    bson_t timed;
    truce_status status;

    bson_copy_to(request, &timed);
    if (cli->deadline_ms && !bson_has_field(request, "maxTimeMS"))
        BSON_APPEND_INT64(&timed, "maxTimeMS", cli->deadline_ms);
    status = truce_command(cli->store, NULL, &timed, reply, error);
    truce_deadline_end(before);
    bson_destroy(&timed);
    return status;
}

int cli_row_send_lines(struct cli *cli, const bson_t *request, const struct cli_row_lines *lines,
                       bson_t *reply)
{
    bson_error_t error = {0};
    truce_status status = cli_row_call(cli, request, reply, &error);

    if (status && lines)
        row_name_line(lines, &error);
    return status ? cli_row_error(cli, status, &error) : CLI_DONE;
}

int cli_row_send(struct cli *cli, const bson_t *request, bson_t *reply)
{
    return cli_row_send_lines(cli, request, NULL, reply);
}

static bool row_found_nothing(const bson_t *reply)
{
    return !strcmp(truce__field_text(reply, "status"), "not found");
}

int cli_row_send_found(struct cli *cli, const bson_t *request, bson_t *reply)
{
    int code = cli_row_send(cli, request, reply);

    if (!code && row_found_nothing(reply))
        code = cli_message(cli, CLI_NO, "%s", truce__field_text(reply, "reason"));
    return code;
}

static int row_not_found(struct row_call *call, const bson_t *reply)
{
    const char *reason = truce__field_text(reply, "reason");
    char *text = call->row->none ? row_fill(call, call->row->none, reply)
                                 : bson_strdup(*reason ? reason : "not found");
    int code = cli_message(call->cli, CLI_NO, "%s", text);

    bson_free(text);
    return code;
}

/* One page of a list. */
struct row_page {
    /* The number of elements that may still be read, or 0 if the list has no pages. */
    int64_t left;
    int64_t printed;
    /* The field `next` of the last element. */
    bson_value_t after;
    /* The token of the snapshot that all pages belong to, or NULL. */
    char *token;
};

/* Returns whether the page replaces a field of the request. */
static bool row_page_has(const struct row_page *page, const char *field)
{
    static const char *const of_snapshot[] = {"token", "version", "tag", "timeMS"};

    for (size_t i = 0; page->token && i < sizeof of_snapshot / sizeof *of_snapshot; i++)
        if (!strcmp(field, of_snapshot[i]))
            return true;
    return (page->left && !strcmp(field, "limit")) || (page->printed && !strcmp(field, "after"));
}

/* Sends the request of a page: with its limit, and with `after`, or with `skip` if the list is
 * sorted. */
static int row_send_page(struct row_call *call, const struct row_page *page, bson_t *reply)
{
    bool sorted = bson_has_field(&call->request, "sort");
    int64_t most = call->row->page ? call->row->page : PAGE_MAX;
    bson_t request = BSON_INITIALIZER;
    bson_iter_t at;
    int code;

    (void)bson_iter_init(&at, &call->request);
    while (bson_iter_next(&at))
        if (!row_page_has(page, bson_iter_key(&at)))
            bson_append_iter(&request, NULL, -1, &at);
    if (page->left)
        BSON_APPEND_INT64(&request, "limit", page->left < most ? page->left : most);
    if (page->printed && sorted)
        BSON_APPEND_INT64(&request, "skip", page->printed);
    else if (page->printed)
        BSON_APPEND_VALUE(&request, "after", &page->after);
    if (page->token)
        BSON_APPEND_UTF8(&request, "token", page->token);
    code = cli_row_send(call->cli, &request, reply);
    bson_destroy(&request);
    return code;
}

/* Finds `after` of the next page. */
static bool row_find_after(const struct cli_row *row, const bson_t *reply, const bson_iter_t *last,
                           bson_iter_t *after)
{
    return row->next[0] ? bson_iter_recurse(last, after) && bson_iter_find(after, row->next)
                        : bson_iter_init_find(after, reply, "after");
}

/* Prints a page, and moves to the next one. Returns whether there is one. */
static bool row_list_page(struct row_call *call, struct row_page *page, bool *more, int *code)
{
    bson_iter_t last = {0}, next;
    bson_t reply;

    *code = row_send_page(call, page, &reply);
    if (!*code && row_found_nothing(&reply))
        *code = row_not_found(call, &reply);
    if (!*code)
        *code = row_print_list(call, &reply, &page->printed, &last);
    *more = !*code && truce__field_true(&reply, "more");
    if (*more && page->left && bson_has_field(&reply, "token") && !page->token)
        page->token = bson_strdup(truce__field_text(&reply, "token"));
    if (page->after.value_type)
        bson_value_destroy(&page->after);
    page->after = (bson_value_t){0};
    if (*more && page->left && row_find_after(call->row, &reply, &last, &next))
        bson_value_copy(bson_iter_value(&next), &page->after);
    bson_destroy(&reply);
    return *more && page->after.value_type;
}

/* Prints a list, page by page. */
static int row_list(struct row_call *call)
{
    bool limited = bson_has_field(&call->request, "limit"), more;
    int64_t limit = limited          ? truce__field_number(&call->request, "limit")
                    : call->row->all ? INT64_MAX
                                     : 100;
    struct row_page page = {0};
    int code;

    do
        page.left = call->row->next ? limit - page.printed : 0;
    while (row_list_page(call, &page, &more, &code) && page.printed < limit);
    if (page.after.value_type)
        bson_value_destroy(&page.after);
    bson_free(page.token);
    if (!code && !page.printed && call->row->needed)
        return row_not_found(call, &call->request);
    if (!code && call->row->findings && !page.printed)
        cli_note(call->cli, "%s", call->row->none);
    else if (!code && call->row->findings)
        code = CLI_NO;
    if (more && !limited)
        cli_note(call->cli, "there are more than these %lld: --limit N prints more",
                 (long long)page.printed);
    return code;
}

/* Runs the operation for one value of the arguments, and prints the reply. Returns the exit
 * code. */
static int row_run_once(struct row_call *call)
{
    bson_t reply;
    int code;

    if (call->row->list)
        return row_list(call);
    code = cli_row_send(call->cli, &call->request, &reply);
    if (!code && row_found_nothing(&reply))
        code = row_not_found(call, &reply);
    else if (!code)
        code = row_print_reply(call, &reply);
    bson_destroy(&reply);
    return code;
}

/* Returns the index of the argument that ends in "...", or -1. */
static int row_repeated(const struct cli *cli)
{
    int i = 0;

    for (const char *at = cli->command->arguments; at && *at; i++) {
        size_t size = strcspn(at, " ");

        if (memmem(at, size, "...", 3))
            return i;
        at += size + strspn(at + size, " ");
    }
    return -1;
}

/* Builds the request for the i-th argument, which is the repeated one, or -1. With `run`, runs it. */
static int row_run_for(struct cli *cli, const struct cli_row *row, const bson_t *more, int i,
                       bool run)
{
    struct row_call call = {.cli = cli,
                            .row = row,
                            .operation = cli_row_find(row),
                            .more = more,
                            .each = i < 0 ? NULL : cli->arguments[i]};
    int code;

    bson_init(&call.request);
    code = row_read(&call);
    if (!code && run)
        code = row_run_once(&call);
    bson_destroy(&call.request);
    return code;
}

int cli_row_run_with(struct cli *cli, const struct cli_row *row, const bson_t *more)
{
    int first = row_repeated(cli), worst = CLI_DONE;
    int last = first >= 0 && cli->count > first ? cli->count - 1 : first;

    /* If one of several values cannot be read, none is used. The run of the first one reads it. */
    for (int i = first + 1; i <= last && !worst; i++)
        worst = row_run_for(cli, row, more, i, false);
    if (worst)
        return worst;
    for (int i = first; i <= last && worst <= CLI_NO; i++) {
        int code = row_run_for(cli, row, more, i, true);

        worst = code > worst ? code : worst;
    }
    return worst;
}

int cli_row_request(struct cli *cli, bson_t *request)
{
    struct row_call call = {
        .cli = cli, .row = cli->command->row, .operation = cli_row_find(cli->command->row)};
    int code;

    bson_init(&call.request);
    code = row_read(&call);
    bson_copy_to(&call.request, request);
    bson_destroy(&call.request);
    return code;
}

int cli_row_run(struct cli *cli)
{
    return cli_row_run_with(cli, cli->command->row, NULL);
}
