/*
 * The set that a call means: by its options, and by the definition that the store keeps of it.
 *
 * A set of its own in a collection needs no option once it is defined; a new one is told by --list, --key
 * and --name, and what is missing is asked for. Nothing is guessed: a set that is made by mistake changes
 * documents.
 */
#include <string.h>

#include "bson/value.h"
#include "cli/set/set.h"
#include "store/reserved.h"

/* The fields of the key as the options have them, comma between; NULL: there are none. */
static char *set_open_keys_of(const bson_t *definition)
{
    struct value keys = truce__value_field(truce__value_document(definition), "key", 3);
    bson_string_t *text;
    struct fields fields;

    if (keys.type != BSON_TYPE_ARRAY)
        return NULL;
    text = bson_string_new(NULL);
    fields = truce__fields(keys);
    while (truce__fields_next(&fields)) {
        uint32_t length;

        if (fields.value.type == BSON_TYPE_UTF8)
            bson_string_append_printf(text, "%s%s", text->len ? "," : "",
                                      truce__value_text(fields.value, &length));
    }
    return bson_string_free(text, false);
}

/* What an option says, else the definition, else NULL; the caller frees it. */
static char *either(const struct cli *cli, const char *option, const bson_t *definition,
                    const char *field)
{
    bson_iter_t iter;

    if (cli_text(cli, option))
        return bson_strdup(cli_text(cli, option));
    if (bson_iter_init_find(&iter, definition, field) && BSON_ITER_HOLDS_UTF8(&iter))
        return bson_strdup(bson_iter_utf8(&iter, NULL));
    return NULL;
}

/* "classes" of {_id: "students.classes"}, or NULL: it is of another collection. */
static const char *set_open_list_of(const bson_t *definition, const char *collection)
{
    size_t length = strlen(collection);
    bson_iter_t iter;
    const char *id;

    if (!bson_iter_init_find(&iter, definition, "_id") || !BSON_ITER_HOLDS_UTF8(&iter))
        return NULL;
    id = bson_iter_utf8(&iter, NULL);
    if (strncmp(id, collection, length) || id[length] != '.' || strchr(id + length + 1, '.'))
        return NULL;
    return id + length + 1;
}

static int several(const struct cli *cli, const char *collection, const char *names)
{
    return cli_usage(cli, "%s has several sets; --list FIELD says which: %s", collection, names);
}

/* The definition of the set that --list names, or of the only one of the collection; empty: none. */
static int find_definition(const struct cli *cli, truce_store *store, const char *collection,
                           bson_t *definition)
{
    const char *list = cli_text(cli, "list");
    bson_string_t *names = bson_string_new(NULL);
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;
    truce_status status = truce_find(store, SET_DEFINITIONS, NULL, NULL, &cursor, &error);
    int count = 0, code;

    bson_init(definition);
    while (!status) {
        const char *name;

        status = truce_cursor_next(cursor, &document, &error);
        if (status || !document)
            break;
        name = set_open_list_of(document, collection);
        if (!name || (list && strcmp(name, list) != 0))
            continue;
        count++;
        bson_string_append_printf(names, "%s%s", names->len ? ", " : "", name);
        bson_destroy(definition);
        bson_copy_to(document, definition);
    }
    truce_cursor_close(cursor);
    code = status      ? cli_error(cli, NULL, status, &error)
           : count > 1 ? several(cli, collection, names->str)
                       : CLI_DONE;
    bson_string_free(names, true);
    return code;
}

/* What is missing, asked for by name. */
static int set_open_ask(const struct cli *cli, const char *collection, const struct cli_set *set)
{
    if (!set->list)
        return cli_usage(cli,
                         "which set? %s has none yet: --list FIELD names the list in its "
                         "documents, --key FIELDS what tells the documents apart, --name FIELD "
                         "what tells the elements apart",
                         collection);
    if (!set->keys)
        return cli_usage(cli,
                         "--key FIELDS is missing: what tells the documents of %s apart (there is "
                         "no set %s.%s yet)",
                         collection, collection, set->list);
    return cli_usage(cli,
                     "--name FIELD is missing: what tells the elements of %s.%s apart (there is no "
                     "such set yet)",
                     collection, set->list);
}

static truce_set *set_open_make(const struct cli *cli, truce_store *store, const char *collection,
                                const struct cli_set *of, const bson_t *definition)
{
    char *deleted = either(cli, "deleted", definition, "deleted");
    char *seq = either(cli, "seq-field", definition, "seq");
    char *source = either(cli, "source-field", definition, "source");
    char *watermark = either(cli, "watermark-field", definition, "watermark");
    bson_iter_t layout;
    bool by_element =
        cli_flag(cli, "by-element") ||
        (bson_iter_init_find(&layout, definition, "layout") && BSON_ITER_HOLDS_UTF8(&layout) &&
         !strcmp(bson_iter_utf8(&layout, NULL), "element"));
    truce_set *set = truce_set_new(
        store, &(truce_set_options){
                   .collection = collection,
                   .field = of->list,
                   .key = of->keys,
                   .name = of->name,
                   .deleted = deleted,
                   .seq = seq,
                   .source = source,
                   .watermark = watermark,
                   .layout = by_element ? TRUCE_SET_BY_ELEMENT : TRUCE_SET_IN_DOCUMENT,
                   .deadline_ms = cli->deadline_ms,
               });

    bson_free(deleted);
    bson_free(seq);
    bson_free(source);
    bson_free(watermark);
    return set;
}

int cli_set_find(const struct cli *cli, truce_store *store, const char *collection,
                 struct cli_set *set)
{
    bson_t definition;
    int code;

    *set = (struct cli_set){0};
    code = find_definition(cli, store, collection, &definition);
    if (!code) {
        const char *list = set_open_list_of(&definition, collection);

        set->list = bson_strdup(cli_text(cli, "list") ? cli_text(cli, "list") : list);
        set->keys = cli_text(cli, "key") ? bson_strdup(cli_text(cli, "key"))
                                         : set_open_keys_of(&definition);
        set->name = either(cli, "name", &definition, "name");
        if (set->list && set->keys && set->name)
            set->set = set_open_make(cli, store, collection, set, &definition);
        else
            code = set_open_ask(cli, collection, set);
    }
    bson_destroy(&definition);
    return code;
}

void cli_set_release(struct cli_set *set)
{
    truce_set_free(set->set);
    bson_free(set->list);
    bson_free(set->keys);
    bson_free(set->name);
    *set = (struct cli_set){0};
}

int cli_set_open(const struct cli *cli, truce_store *store, const char *collection, truce_set **set)
{
    struct cli_set found;
    int code = cli_set_find(cli, store, collection, &found);

    *set = found.set;
    found.set = NULL;
    cli_set_release(&found);
    return code;
}
