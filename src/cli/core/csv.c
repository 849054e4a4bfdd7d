#include "cli/core/csv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/plural.h"
#include "bson/date.h"

#define REASON 400

enum type { TYPE_GUESSED, TYPE_STRING, TYPE_DATE, TYPE_OBJECT_ID, TYPE_JSON };

/* A part of a column's path. Columns whose paths begin alike share a node. */
struct node {
    char *name;
    /* The number of the column, or -1 for a node with children. */
    int column;
    /* The first child, and the next child of the same parent. Owned. */
    struct node *below, *next;
};

struct cell {
    /* The position in `cells`, and the size, both without quotes. */
    size_t at, size;
    bool quoted;
};

struct csv {
    char separator;
    /* The names and the types of the columns, from the header. */
    char **names;
    enum type *types;
    int count;
    /* The reader was made by cli_csv_new_flat. */
    bool flat;
    /* The first node of the tree of paths. */
    struct node *top;
    /* The cells of the current record. */
    struct cell *found;
    /* The bytes of these cells, one after the other. */
    struct buffer cells;
    /* The text of a value that is read as JSON. Scratch memory. */
    struct buffer text;
    struct json_reader reader;
    bson_t document;
    char reason[REASON];
};

/* ---- records and cells ---------------------------------------------------------------------- */

bool cli_csv_end(const char *text, size_t size, struct csv_scan *scan)
{
    char separator = scan->separator ? scan->separator : ',';

    while (scan->scanned < size) {
        char c = text[scan->scanned++];
        bool doubled = scan->closed && c == '"';

        if (scan->quoted) {
            scan->closed = c == '"';
            scan->quoted = c != '"';
            continue;
        }
        if (c == '\n')
            return true;
        if (scan->returned) { /* The record ended with the CR before this byte. */
            scan->scanned--;
            return true;
        }
        scan->returned = c == '\r';
        scan->quoted = doubled || (c == '"' && !scan->inside);
        scan->inside = c != separator;
        scan->closed = false;
    }
    return false;
}

static const char *csv_wrong(struct csv *csv, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(csv->reason, sizeof csv->reason, format, arguments);
    va_end(arguments);
    truce__message_clean(csv->reason, sizeof csv->reason);
    return csv->reason;
}

/* Reads the quoted cell at *at and moves *at past it. */
static const char *read_quoted(struct csv *csv, const char **at, const char *end)
{
    const char *from = *at + 1;

    for (;; from++) {
        const char *quote = memchr(from, '"', (size_t)(end - from));

        if (!quote)
            return csv_wrong(csv, "a quote is not closed");
        truce__buffer_append(&csv->cells, from, (size_t)(quote - from));
        from = quote + 1;
        if (from == end || *from != '"')
            break;
        truce__buffer_append_byte(&csv->cells, '"');
    }
    if (from < end && *from != csv->separator)
        return csv_wrong(csv, "a cell continues after its closing quote");
    *at = from;
    return NULL;
}

static const char *read_bare(struct csv *csv, const char **at, const char *end)
{
    const char *next = memchr(*at, csv->separator, (size_t)(end - *at)), *stop = next ? next : end;

    if (memchr(*at, '"', (size_t)(stop - *at)))
        return csv_wrong(csv, "a quote inside a cell: put the cell in quotes and double the quote");
    truce__buffer_append(&csv->cells, *at, (size_t)(stop - *at));
    *at = stop;
    return NULL;
}

/* Removes the spaces around a cell without quotes. */
static void csv_trim(const struct csv *csv, struct cell *cell)
{
    const char *text = (const char *)csv->cells.bytes;

    while (cell->size && text[cell->at] == ' ') {
        cell->at++;
        cell->size--;
    }
    while (cell->size && text[cell->at + cell->size - 1] == ' ')
        cell->size--;
}

/* Splits text[0..size) into at most `room` cells in `found`. `*count` is the number of cells. */
static const char *csv_split(struct csv *csv, const char *text, size_t size, int room, int *count)
{
    const char *at = text, *end = text + size;

    if (end > at && end[-1] == '\n')
        end--;
    if (end > at && end[-1] == '\r')
        end--;
    csv->cells.size = 0;
    for (*count = 0;; at++) {
        struct cell cell = {csv->cells.size, 0, at < end && *at == '"'};
        const char *why = cell.quoted ? read_quoted(csv, &at, end) : read_bare(csv, &at, end);

        if (why)
            return why;
        cell.size = csv->cells.size - cell.at;
        if (!cell.quoted)
            csv_trim(csv, &cell);
        if (*count < room)
            csv->found[*count] = cell;
        ++*count;
        if (at == end)
            return NULL;
    }
}

static const char *csv_text_of(const struct csv *csv, const struct cell *cell)
{
    return (const char *)csv->cells.bytes + cell->at;
}

/* ---- the header ----------------------------------------------------------------------------- */

/* Adds the node of text[0..size) at *link. Returns NULL if the names contradict each other. */
static struct node *csv_node_at(struct node **link, const char *text, size_t size, bool last,
                                int column)
{
    for (; *link; link = &(*link)->next) {
        if (strlen((*link)->name) == size && !memcmp((*link)->name, text, size))
            return last || (*link)->column >= 0 ? NULL : *link;
    }
    *link = bson_malloc0(sizeof **link);
    (*link)->name = bson_strndup(text, size);
    (*link)->column = last ? column : -1;
    return *link;
}

/* Adds the column to the tree of paths. Fails with INVALID if its name is not valid or conflicts
 * with another one. */
static truce_status csv_write_path(struct csv *csv, int column, bson_error_t *error)
{
    const char *name = csv->names[column], *at = name;
    struct node **link = &csv->top;

    if (!*name || strchr(name, '$') == name)
        return truce__fail(
            TRUCE_INVALID, error,
            "column %d of the header has the name \"%s\": expected a name that is not empty and "
            "does not begin with $",
            column + 1, name);
    for (;;) {
        size_t size = strcspn(at, ".");
        struct node *node = size ? csv_node_at(link, at, size, !at[size], column) : NULL;

        if (!node)
            return truce__fail(
                TRUCE_INVALID, error,
                "the name \"%s\" in the header conflicts with another one: a name occurs twice, is "
                "the beginning of another path (a and a.b), or has an empty part",
                name);
        if (!at[size])
            return TRUCE_OK;
        link = &node->below;
        at += size + 1;
    }
}

/* U+2024, which replaces a dot in the name of a field. */
static const char csv_dot[] = "\xe2\x80\xa4";

char *cli_csv_column(const char *field)
{
    size_t size = strlen(csv_dot);
    char *name = bson_strdup(field), *at = name;

    for (; *field; at++) {
        bool is_dot = !strncmp(field, csv_dot, size);

        *at = is_dot ? '.' : *field;
        field += is_dot ? size : 1;
    }
    *at = '\0';
    return name;
}

char *cli_csv_field(const char *name)
{
    bson_string_t *field = bson_string_new(NULL);

    for (; *name; name++)
        bson_string_append(field, *name == '.' ? csv_dot : (char[]){*name, '\0'});
    return bson_string_free(field, false);
}

/* Names the column of a flat reader. */
static void csv_write_flat(struct csv *csv, int column)
{
    char *name = cli_csv_field(csv->names[column]), *own = bson_strdup(name);

    for (int i = 2; *name && !csv_node_at(&csv->top, own, strlen(own), true, column); i++) {
        bson_free(own);
        own = bson_strdup_printf("%s %d", name, i);
    }
    bson_free(csv->names[column]);
    bson_free(name);
    csv->names[column] = own;
}

/* Reads the names of the columns. */
static truce_status csv_read_header(struct csv *csv, const char *text, size_t size,
                                    bson_error_t *error)
{
    int count;
    const char *why;

    csv->found = bson_malloc0(TRUCE_CSV_COLUMNS_MAX * sizeof *csv->found);
    why = csv_split(csv, text, size, TRUCE_CSV_COLUMNS_MAX, &count);
    if (why)
        return truce__fail(TRUCE_INVALID, error, "the header: %s", why);
    if (count > TRUCE_CSV_COLUMNS_MAX)
        return truce__fail(TRUCE_LIMIT, error, "the header has %d columns, the maximum is %d",
                           count, TRUCE_CSV_COLUMNS_MAX);
    csv->names = bson_malloc0((size_t)count * sizeof *csv->names);
    csv->types = bson_malloc0((size_t)count * sizeof *csv->types);
    csv->count = count;
    for (int i = 0; i < count; i++)
        csv->names[i] = bson_strndup(csv_text_of(csv, &csv->found[i]), csv->found[i].size);
    for (int i = 0; i < count; i++) {
        truce_status status = TRUCE_OK;

        if (csv->flat)
            csv_write_flat(csv, i);
        else
            status = csv_write_path(csv, i, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Sets the type of a column from "COLUMN=TYPE", or of all columns from "*=string". */
static truce_status csv_set_type(struct csv *csv, const char *text, size_t size,
                                 bson_error_t *error)
{
    static const char *const names[] = {"", "string", "date", "objectId", "json"};
    const char *equals = memchr(text, '=', size);
    size_t name = equals ? (size_t)(equals - text) : 0, type = equals ? size - name - 1 : 0;
    int column = 0;

    if (!equals)
        return truce__fail(TRUCE_INVALID, error,
                           "--types needs COLUMN=TYPE, separated by commas, not \"%.*s\"",
                           (int)size, text);
    if (name == 1 && *text == '*' && type == 6 && !memcmp(equals, "=string", 7)) {
        for (int i = 0; i < csv->count; i++)
            csv->types[i] = TYPE_STRING;
        return TRUCE_OK;
    }
    while (column < csv->count &&
           (strlen(csv->names[column]) != name || memcmp(csv->names[column], text, name) != 0))
        column++;
    if (column == csv->count)
        return truce__fail(TRUCE_INVALID, error, "--types: the header has no column \"%.*s\"",
                           (int)name, text);
    for (size_t i = TYPE_STRING; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == type && !memcmp(names[i], equals + 1, type)) {
            csv->types[column] = (enum type)i;
            return TRUCE_OK;
        }
    }
    return truce__fail(TRUCE_INVALID, error,
                       "--types: \"%.*s\" is not a type: expected string, date, objectId, or json",
                       (int)type, equals + 1);
}

static truce_status read_types(struct csv *csv, const char *types, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (const char *at = types; at && !status;) {
        size_t size = strcspn(at, ",");

        status = csv_set_type(csv, at, size, error);
        at = at[size] ? at + size + 1 : NULL;
    }
    return status;
}

/* Returns the number of characters `wanted` outside of quotes. */
static size_t csv_count_of(const char *text, size_t size, char wanted)
{
    bool quoted = false;
    size_t count = 0;

    for (size_t i = 0; i < size; i++) {
        quoted = quoted != (text[i] == '"');
        count += !quoted && text[i] == wanted;
    }
    return count;
}

char cli_csv_separator(const char *header, size_t size)
{
    static const char separators[] = {',', ';', '\t', '|'};
    char best = ',';

    for (size_t i = 0; i < sizeof separators; i++) {
        if (csv_count_of(header, size, separators[i]) > csv_count_of(header, size, best))
            best = separators[i];
    }
    return best;
}

bool cli_csv_separator_of(const char *text, char *separator)
{
    bool tab = !strcmp(text, "tab") || !strcmp(text, "\\t");

    *separator = tab ? '\t' : *text;
    return tab || (strlen(text) == 1 && !strchr("\"\r\n", *text) && (uint8_t)*text < 0x80);
}

/* Makes a reader from the header. Returns NULL if the header or the types are wrong. */
static struct csv *csv_new(const char *text, size_t size, char separator, bool flat,
                           const char *types, bson_error_t *error)
{
    struct csv *csv = bson_malloc0(sizeof *csv);
    truce_status status;

    csv->separator = separator;
    csv->flat = flat;
    bson_init(&csv->document);
    truce__buffer_reserve(&csv->cells, size + 1);
    status = csv_read_header(csv, text, size, error);
    if (!status)
        status = read_types(csv, types, error);
    if (!status)
        return csv;
    cli_csv_free(csv);
    return NULL;
}

struct csv *cli_csv_new(const char *text, size_t size, char separator, const char *types,
                        bson_error_t *error)
{
    return csv_new(text, size, separator, false, types, error);
}

struct csv *cli_csv_new_flat(const char *text, size_t size, char separator, bson_error_t *error)
{
    return csv_new(text, size, separator, true, "*=string", error);
}

bool cli_csv_has(const struct csv *csv, const char *name)
{
    for (int i = 0; i < csv->count; i++) {
        if (*name && !strcmp(csv->names[i], name))
            return true;
    }
    return false;
}

static void free_nodes(struct node *node)
{
    while (node) {
        struct node *next = node->next;

        free_nodes(node->below);
        bson_free(node->name);
        bson_free(node);
        node = next;
    }
}

void cli_csv_free(struct csv *csv)
{
    if (!csv)
        return;
    for (int i = 0; i < csv->count; i++)
        bson_free(csv->names[i]);
    free_nodes(csv->top);
    bson_free(csv->names);
    bson_free(csv->types);
    bson_free(csv->found);
    truce__buffer_release(&csv->cells);
    truce__buffer_release(&csv->text);
    truce__json_reader_release(&csv->reader);
    bson_destroy(&csv->document);
    bson_free(csv);
}

/* ---- a record as a document ----------------------------------------------------------------- */

/* Returns true if the cell can be a number or a literal of JSON. */
static bool looks_like_json(const char *text, size_t size)
{
    return size && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9') ||
                    (size == 4 && (!memcmp(text, "true", 4) || !memcmp(text, "null", 4))) ||
                    (size == 5 && !memcmp(text, "false", 5)));
}

/* Returns whether the number is an integer of more than 64 bits, which a double would round. */
static bool is_too_large(const char *text, size_t size, const bson_iter_t *value)
{
    for (size_t i = text[0] == '-'; i < size; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return BSON_ITER_HOLDS_DOUBLE(value);
}

/* Reads {"v": <before> text <after>}. Returns false if it is not a single value. */
static bool csv_read_value(struct csv *csv, const char *before, const char *text, size_t size,
                           const char *after, bson_iter_t *value)
{
    bson_t document;

    csv->text.size = 0;
    truce__buffer_append(&csv->text, "{\"v\": ", 6);
    truce__buffer_append(&csv->text, before, strlen(before));
    truce__buffer_append(&csv->text, text, size);
    truce__buffer_append(&csv->text, after, strlen(after));
    truce__buffer_append_byte(&csv->text, '}');
    return !truce__json_read(&csv->reader, (const char *)csv->text.bytes, csv->text.size, &document,
                             NULL, NULL) &&
           bson_count_keys(&document) == 1 && bson_iter_init_find(value, &document, "v");
}

static bool is_object_id(const char *text, size_t size)
{
    char id[25];

    if (size != sizeof id - 1)
        return false;
    memcpy(id, text, size);
    id[size] = '\0';
    return bson_oid_is_valid(id, size);
}

/* Appends a cell of a column with a type. Returns false if the cell does not have that type. */
static bool append_typed(struct csv *csv, enum type type, const char *text, size_t size,
                         const char *name, bson_t *to)
{
    bson_iter_t value;
    int64_t date_ms;

    if (type == TYPE_DATE)
        return !truce__date_parse_typed(text, size, &date_ms, NULL) &&
               BSON_APPEND_DATE_TIME(to, name, date_ms);
    if (type == TYPE_OBJECT_ID && !is_object_id(text, size))
        return false;
    return csv_read_value(csv, type == TYPE_JSON ? "" : "{\"$oid\": \"", text, size,
                          type == TYPE_JSON ? "" : "\"}", &value) &&
           bson_append_iter(to, name, -1, &value);
}

/* Appends the value of a cell. Returns NULL, or the fault. Omits an empty cell without quotes. */
static const char *append_cell(struct csv *csv, int column, const char *name, bson_t *to)
{
    static const char *const names[] = {
        [TYPE_DATE] = "date", [TYPE_OBJECT_ID] = "ObjectId", [TYPE_JSON] = "Extended JSON"};
    const struct cell *cell = &csv->found[column];
    const char *text = csv_text_of(csv, cell);
    enum type type = csv->types[column];
    bson_iter_t value;

    if (!cell->size && !cell->quoted)
        return NULL;
    if (type > TYPE_STRING)
        return append_typed(csv, type, text, cell->size, name, to)
                   ? NULL
                   : csv_wrong(csv, "column %s: invalid value \"%.*s\": expected %s",
                               csv->names[column], cell->size > 100 ? 100 : (int)cell->size, text,
                               names[type]);
    if (type == TYPE_GUESSED && !cell->quoted && looks_like_json(text, cell->size) &&
        csv_read_value(csv, "", text, cell->size, "", &value) &&
        !is_too_large(text, cell->size, &value))
        bson_append_iter(to, name, -1, &value);
    else
        bson_append_utf8(to, name, -1, text, (int)cell->size);
    return NULL;
}

/* Appends the cells below the nodes. Omits a document without fields. Returns NULL, or the
 * fault. */
static const char *append_nodes(struct csv *csv, const struct node *node, bson_t *to)
{
    const char *why = NULL;

    for (; node && !why; node = node->next) {
        bson_t below = BSON_INITIALIZER;

        if (node->column >= 0) {
            why = append_cell(csv, node->column, node->name, to);
        } else {
            why = append_nodes(csv, node->below, &below);
            if (!why && !bson_empty(&below))
                bson_append_document(to, node->name, -1, &below);
        }
        bson_destroy(&below);
    }
    return why;
}

const char *cli_csv_document(struct csv *csv, const char *text, size_t size, bson_t *document)
{
    const char *why;
    int count;

    bson_reinit(&csv->document);
    why = csv_split(csv, text, size, TRUCE_CSV_COLUMNS_MAX, &count);
    while (csv->flat && count > csv->count && count <= TRUCE_CSV_COLUMNS_MAX &&
           !csv->found[count - 1].size)
        count--;
    if (!why && count != csv->count)
        why =
            csv_wrong(csv, "%s, but the header has %d", PLURAL(count, "cell", "cells"), csv->count);
    if (!why)
        why = append_nodes(csv, csv->top, &csv->document);
    if (why)
        bson_reinit(&csv->document);
    truce_assert(bson_init_static(document, bson_get_data(&csv->document), csv->document.len));
    return why;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void csv_write_quoted(struct buffer *out, const char *text, size_t size)
{
    truce__buffer_append_byte(out, '"');
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"')
            truce__buffer_append_byte(out, '"');
        truce__buffer_append_byte(out, (uint8_t)text[i]);
    }
    truce__buffer_append_byte(out, '"');
}

/* Returns whether the string must be quoted. Strings with other separators are quoted, too:
 * otherwise an import could mistake a separator within a name for that of the file. */
static bool needs_quotes(const char *text, size_t size)
{
    if (size && (text[0] == ' ' || text[size - 1] == ' '))
        return true;
    for (size_t i = 0; i < size; i++)
        if (strchr(",;\t|\"\n\r", text[i]))
            return true;
    return false;
}

void cli_csv_write_text(struct buffer *out, const char *text, size_t size)
{
    if (!size || needs_quotes(text, size))
        csv_write_quoted(out, text, size);
    else
        truce__buffer_append(out, text, size);
}

void cli_csv_write(struct buffer *out, const bson_iter_t *value)
{
    struct buffer json = {0};
    char id[25], date[DATE_TEXT_MAX];
    uint32_t size;
    const char *text;

    if (BSON_ITER_HOLDS_DATE_TIME(value)) {
        text = truce__date_show(bson_iter_date_time(value), date);
        truce__buffer_append(out, text, strlen(text));
        return;
    }
    if (BSON_ITER_HOLDS_OID(value)) {
        bson_oid_to_string(bson_iter_oid(value), id);
        truce__buffer_append(out, id, sizeof id - 1);
        return;
    }
    if (BSON_ITER_HOLDS_UTF8(value)) {
        text = bson_iter_utf8(value, &size);
        if (looks_like_json(text, size))
            csv_write_quoted(out, text, size);
        else
            cli_csv_write_text(out, text, size);
        return;
    }
    truce__json_write_value(&json, value, JSON_RELAXED);
    cli_csv_write_text(out, (const char *)json.bytes, json.size);
    truce__buffer_release(&json);
}
