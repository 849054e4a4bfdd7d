#include "cli/core/csv_columns.h"

#include <string.h>

#include "base/limits.h"
#include "cli/core/csv.h"

struct columns {
    /* The user named the columns, so documents add none. */
    bool named;
    char **names;
    /* The values of the current document, by column. */
    bson_iter_t *values;
    int count;
};

/* Adds a column. Fails if the name is empty, or there are too many columns. */
static truce_status columns_add(struct columns *columns, const char *name, size_t size,
                                bson_error_t *error)
{
    if (!size)
        return truce__fail(
            TRUCE_INVALID, error,
            "the name of a column is empty: expected field names separated by commas, for example "
            "name,address.city");
    if (columns->count == TRUCE_CSV_COLUMNS_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the documents have more than %d fields: choose some of them with "
                           "--fields",
                           TRUCE_CSV_COLUMNS_MAX);
    columns->names[columns->count++] = bson_strndup(name, size);
    return TRUCE_OK;
}

struct columns *cli_columns_new(const char *fields, bson_error_t *error)
{
    struct columns *columns = bson_malloc0(sizeof *columns);
    truce_status status = TRUCE_OK;

    columns->names = bson_malloc0(TRUCE_CSV_COLUMNS_MAX * sizeof *columns->names);
    columns->values =
        bson_aligned_alloc0(_Alignof(bson_iter_t), TRUCE_CSV_COLUMNS_MAX * sizeof *columns->values);
    columns->named = fields != NULL;
    while (fields && !status) {
        size_t size = strcspn(fields, ",");

        status = columns_add(columns, fields, size, error);
        fields = fields[size] ? fields + size + 1 : NULL;
    }
    if (!status)
        return columns;
    cli_columns_free(columns);
    return NULL;
}

void cli_columns_free(struct columns *columns)
{
    if (!columns)
        return;
    for (int i = 0; i < columns->count; i++)
        bson_free(columns->names[i]);
    bson_free(columns->names);
    bson_free(columns->values);
    bson_free(columns);
}

bool cli_columns_are_named(const struct columns *columns)
{
    return columns->named;
}

/* Returns the index of the column, or -1. The search begins at `from`, because most documents have
 * their fields in the order of the columns. */
static int columns_find(const struct columns *columns, const char *name, int from)
{
    for (int i = 0; i < columns->count; i++) {
        int at = from + i < columns->count ? from + i : from + i - columns->count;

        if (!strcmp(columns->names[at], name))
            return at;
    }
    return -1;
}

truce_status cli_columns_learn(struct columns *columns, const bson_t *document, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;
    int at = -1;

    if (columns->named || !bson_iter_init(&iter, document))
        return TRUCE_OK;
    while (!status && bson_iter_next(&iter)) {
        const char *name = bson_iter_key(&iter);
        int found = columns_find(columns, name, at + 1 < columns->count ? at + 1 : 0);

        if (found < 0 && strchr(name, '.'))
            return truce__fail(TRUCE_INVALID, error,
                               "the field \"%s\" would be read as a path: choose the fields with "
                               "--fields",
                               name);
        if (found < 0)
            status = columns_add(columns, name, strlen(name), error);
        at = found < 0 ? columns->count - 1 : found;
    }
    return status;
}

void cli_columns_header(const struct columns *columns, struct buffer *out)
{
    for (int i = 0; i < columns->count; i++) {
        if (i)
            truce__buffer_append_byte(out, ',');
        cli_csv_write_text(out, columns->names[i], strlen(columns->names[i]));
    }
    if (columns->count)
        truce__buffer_append_byte(out, '\n');
}

/* Finds the value of each column. Fails with INVALID if the columns were learned and a field has
 * none. */
static truce_status find_values(struct columns *columns, const bson_t *document, bool *found,
                                bson_error_t *error)
{
    bson_iter_t iter;
    int at = -1;

    if (!bson_iter_init(&iter, document))
        return TRUCE_OK;
    while (!columns->named && bson_iter_next(&iter)) {
        at = columns_find(columns, bson_iter_key(&iter), at + 1 < columns->count ? at + 1 : 0);
        if (at < 0)
            return truce__fail(TRUCE_INVALID, error,
                               "the field \"%s\" appeared after the columns were determined: "
                               "choose the fields with --fields",
                               bson_iter_key(&iter));
        columns->values[at] = iter;
        found[at] = true;
    }
    for (int i = 0; columns->named && i < columns->count; i++)
        found[i] = bson_iter_init(&iter, document) &&
                   bson_iter_find_descendant(&iter, columns->names[i], &columns->values[i]);
    return TRUCE_OK;
}

truce_status cli_columns_row(struct columns *columns, const bson_t *document, struct buffer *out,
                             bson_error_t *error)
{
    bool found[TRUCE_CSV_COLUMNS_MAX] = {false};
    truce_status status = find_values(columns, document, found, error);
    size_t begin = out->size;

    for (int i = 0; i < columns->count && !status; i++) {
        if (i)
            truce__buffer_append_byte(out, ',');
        if (found[i])
            cli_csv_write(out, &columns->values[i]);
    }
    /* With one column, a document without a value is omitted, because an empty line is not a
     * record. */
    if (!status && columns->count == 1 && out->size == begin)
        return TRUCE_OK;
    truce__buffer_append_byte(out, '\n');
    return status;
}
