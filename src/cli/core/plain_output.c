#include "cli/core/plain_output.h"

#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "store/reserved_names.h"

#define SETS_MAX 50

struct set_fields {
    char *list, *deleted, *watermark, *seq, *source;
};

struct plain {
    struct set_fields sets[SETS_MAX];
    int count;
};

static bool is_requested(const struct cli *cli)
{
    for (const struct cli_option *o = cli->command->options; o && o->name; o++) {
        if (!strcmp(o->name, "plain"))
            return cli_flag(cli, "plain");
    }
    return false;
}

/* Remembers the fields of a set of the collection. A set of another collection, one whose list is a
 * nested field, and one that exceeds SETS_MAX are left out. */
static void plain_take_set(struct plain *plain, const bson_t *definition, const char *collection)
{
    size_t length = strlen(collection);
    const char *id = truce__field_text(definition, "_id");

    if (plain->count == SETS_MAX || strncmp(id, collection, length) || id[length] != '.' ||
        strchr(id + length + 1, '.'))
        return;
    plain->sets[plain->count++] = (struct set_fields){
        .list = bson_strdup(id + length + 1),
        .deleted = bson_strdup(truce__field_text(definition, "deleted")),
        .watermark = bson_strdup(truce__field_text(definition, "watermark")),
        .seq = bson_strdup(truce__field_text(definition, "seq")),
        .source = bson_strdup(truce__field_text(definition, "source")),
    };
}

struct plain *cli_plain_new(const struct cli *cli, const char *collection)
{
    struct plain *plain;
    truce_cursor *cursor = NULL;
    const bson_t *document;

    if (!is_requested(cli))
        return NULL;
    plain = bson_malloc0(sizeof *plain);
    if (!truce_find(cli->store, SET_DEFINITIONS, NULL, NULL, &cursor, NULL)) {
        while (!truce_cursor_next(cursor, &document, NULL) && document)
            plain_take_set(plain, document, collection);
    }
    truce_cursor_close(cursor);
    return plain;
}

void cli_plain_free(struct plain *plain)
{
    for (int i = 0; plain && i < plain->count; i++) {
        bson_free(plain->sets[i].list);
        bson_free(plain->sets[i].deleted);
        bson_free(plain->sets[i].watermark);
        bson_free(plain->sets[i].seq);
        bson_free(plain->sets[i].source);
    }
    bson_free(plain);
}

static bool plain_is_own(const struct plain *plain, const char *name)
{
    bool own = !strcmp(name, "_rev") || !strcmp(name, "_intent") || !strcmp(name, "_keys");

    for (int i = 0; i < plain->count; i++)
        own |= !strcmp(name, plain->sets[i].deleted) || !strcmp(name, plain->sets[i].watermark);
    return own;
}

/* Copies the elements of a set's list, without number and source. */
static void copy_list(const struct set_fields *set, struct value list, const char *name, bson_t *to)
{
    struct fields elements = truce__fields(list);
    bson_t array, one;

    bson_append_array_begin(to, name, -1, &array);
    while (truce__fields_next(&elements)) {
        struct fields fields;

        if (elements.value.type != BSON_TYPE_DOCUMENT) {
            truce__value_append(&array, elements.key, elements.key_length, elements.value);
            continue;
        }
        bson_append_document_begin(&array, elements.key, (int)elements.key_length, &one);
        for (fields = truce__fields(elements.value); truce__fields_next(&fields);) {
            if (strcmp(fields.key, set->seq) != 0 && strcmp(fields.key, set->source) != 0)
                truce__value_append(&one, fields.key, fields.key_length, fields.value);
        }
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(to, &array);
}

void cli_plain(const struct plain *plain, const bson_t *document, bson_t *result)
{
    bson_init(result);
    for (struct fields fields = truce__fields(truce__value_document(document));
         truce__fields_next(&fields);) {
        const struct set_fields *set = NULL;

        if (plain_is_own(plain, fields.key))
            continue;
        for (int i = 0; i < plain->count && fields.value.type == BSON_TYPE_ARRAY; i++)
            set = strcmp(fields.key, plain->sets[i].list) ? set : &plain->sets[i];
        if (set)
            copy_list(set, fields.value, fields.key, result);
        else
            truce__value_append(result, fields.key, fields.key_length, fields.value);
    }
}

bool cli_plain_hides(const char *collection)
{
    size_t length = strlen(collection), suffix = strlen(REVISIONS_SUFFIX);

    return truce__reserved(collection) ||
           (length > suffix && !strcmp(collection + length - suffix, REVISIONS_SUFFIX));
}
