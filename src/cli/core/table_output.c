#include "cli/core/table_output.h"

#include <string.h>

#include "bson/date.h"

struct cell {
    /* The text, or NULL if the document has no such field. */
    char *text;
    int width;
    bool number;
};

struct row {
    struct cell cells[TABLE_COLUMNS];
};

struct table {
    FILE *file;
    char *names[TABLE_COLUMNS];
    /* The names as they are shown. */
    char *titles[TABLE_COLUMNS];
    int widths[TABLE_COLUMNS];
    /* The number of columns, and of rows that were not printed yet. */
    int columns, count;
    /* The number of values that are not printed: no column is left for them, or their field
     * occurred before in the document. */
    int left_out;
    /* The widths are fixed, because rows were printed. */
    bool begun;
    struct row **rows;
};

struct table *cli_table_new(FILE *file)
{
    struct table *table = bson_malloc0(sizeof *table);

    table->file = file;
    table->rows = bson_malloc0(TABLE_ROWS * sizeof(struct row *));
    return table;
}

static bool table_is_inside(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static int width_of(const char *text)
{
    int width = 0;

    for (; *text; text++)
        width += !table_is_inside(*text);
    return width;
}

/* Fills a cell with a string (control characters escaped), a date, or JSON, and cuts it if it is
 * too long. */
static void table_fill(struct cell *cell, const bson_iter_t *value, enum json_form form)
{
    struct buffer text = {0};
    char date[DATE_TEXT_MAX];
    const char *from;
    size_t size;
    int width = 0;

    if (BSON_ITER_HOLDS_DATE_TIME(value)) {
        truce__date_show(bson_iter_date_time(value), date);
        truce__buffer_append(&text, date, strlen(date));
    } else {
        truce__json_write_value(&text, value, form);
    }
    from = (const char *)text.bytes;
    size = text.size;
    if (BSON_ITER_HOLDS_UTF8(value)) {
        from++;
        size -= 2;
    }
    cell->number = BSON_ITER_HOLDS_NUMBER(value);
    cell->text = bson_strndup(from, size);
    cell->width = width_of(cell->text);
    for (char *at = cell->text; cell->width > TABLE_CELL && *at; at++) {
        width += !table_is_inside(*at);
        if (width > TABLE_CELL - 3) {
            memcpy(at, "...", 4); /* There is room, because the cut left more than three bytes. */
            cell->width = TABLE_CELL;
            break;
        }
    }
    truce__buffer_release(&text);
}

/* Returns a name with its control characters escaped. */
static char *shown_of(const char *name)
{
    struct buffer text = {0};
    char *shown;

    truce__json_write_text(&text, name, strlen(name));
    shown = bson_strndup((const char *)text.bytes + 1, text.size - 2);
    truce__buffer_release(&text);
    return shown;
}

/* Returns the field's column, a new one if there is room, or -1. */
static int table_column_of(struct table *table, const char *name)
{
    for (int i = 0; i < table->columns; i++) {
        if (!strcmp(table->names[i], name))
            return i;
    }
    if (table->begun || table->columns == TABLE_COLUMNS)
        return -1;
    table->names[table->columns] = bson_strdup(name);
    table->titles[table->columns] = shown_of(name);
    table->widths[table->columns] = width_of(table->titles[table->columns]);
    return table->columns++;
}

/* Fills the cells of a row, and widens the columns until rows were printed. Counts values that have
 * no cell. */
static void read_row(struct table *table, struct row *row, const bson_t *document,
                     enum json_form form)
{
    bson_iter_t fields;

    for (bson_iter_init(&fields, document); bson_iter_next(&fields);) {
        int at = table_column_of(table, bson_iter_key(&fields));

        if (at < 0 || row->cells[at].text) {
            table->left_out++;
            continue;
        }
        table_fill(&row->cells[at], &fields, form);
        if (!table->begun && row->cells[at].width > table->widths[at])
            table->widths[at] = row->cells[at].width;
    }
}

static bool print_cell(struct table *table, int at, const char *text, int width, bool right)
{
    int space = table->widths[at] > width ? table->widths[at] - width : 0;
    bool last = at == table->columns - 1;

    if (right)
        fprintf(table->file, "%*s%s", space, "", text);
    else
        fprintf(table->file, "%s%*s", text, last ? 0 : space, "");
    return fputs(last ? "\n" : "  ", table->file) >= 0;
}

static bool print_row(struct table *table, struct row *row)
{
    bool good = true;

    for (int i = 0; i < table->columns; i++) {
        struct cell *cell = &row->cells[i];

        good &= print_cell(table, i, cell->text ? cell->text : "", cell->width, cell->number);
        bson_free(cell->text);
    }
    bson_free(row);
    return good;
}

/* Prints the titles and the buffered rows. */
static bool table_begin(struct table *table)
{
    bool good = true;

    table->begun = true;
    for (int i = 0; i < table->columns; i++)
        good &= print_cell(table, i, table->titles[i], width_of(table->titles[i]), false);
    for (int i = 0; i < table->count; i++)
        good &= print_row(table, table->rows[i]);
    table->count = 0;
    return good;
}

bool cli_table_add(struct table *table, const bson_t *document, enum json_form form)
{
    struct row *row = bson_malloc0(sizeof *row);

    read_row(table, row, document, form);
    if (table->begun)
        return print_row(table, row);
    table->rows[table->count++] = row;
    return table->count < TABLE_ROWS || table_begin(table);
}

void cli_table_end(struct table *table, int *left_out)
{
    if (!table->begun)
        (void)table_begin(table); /* A failure is ignored here: the caller checks ferror. */
    *left_out = table->left_out;
    for (int i = 0; i < table->columns; i++)
        bson_free(table->names[i]);
    for (int i = 0; i < table->columns; i++)
        bson_free(table->titles[i]);
    bson_free(table->rows);
    bson_free(table);
}
