#include "store/known_names.h"

#include "base/status.h"

/* The maximum number of names in a message, and the size of the list after which no name is added.
 * A message has 500 bytes: the unknown name, its sentence, and as many others as fit. */
#define NAMES_MAX   10
#define NAMES_BYTES 180

void truce__known_names_begin(struct known_names *names)
{
    *names = (struct known_names){.text = bson_string_new("")};
}

bool truce__known_names_add(struct known_names *names, const char *name)
{
    if (names->full)
        return false;
    names->full = names->count == NAMES_MAX || names->text->len > NAMES_BYTES;
    if (names->full)
        bson_string_append(names->text, ", ...");
    else
        bson_string_append_printf(names->text, "%s\"%.*s\"", names->count++ ? ", " : "",
                                  KNOWN_NAME_SHOWN, name);
    return !names->full;
}

void truce__known_names_end(struct known_names *names)
{
    bson_string_free(names->text, true);
}

/* Adds the _ids of the documents. */
static void known_names_read(truce_cursor *cursor, struct known_names *names)
{
    const bson_t *document = NULL;
    bson_iter_t id;
    bool room = true;

    while (room && !truce_cursor_next(cursor, &document, NULL) && document) {
        if (bson_iter_init_find(&id, document, "_id") && BSON_ITER_HOLDS_UTF8(&id))
            room = truce__known_names_add(names, bson_iter_utf8(&id, NULL));
    }
}

truce_status truce__fail_unknown(truce_store *store, const char *collection, const char *noun,
                                 const char *name, bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(1)),
           *keys = BCON_NEW("_id", BCON_INT32(1));
    const truce_find_options options = {.sort = sort, .projection = keys, .limit = 2 * NAMES_MAX};
    struct known_names names;
    truce_cursor *cursor = NULL;
    bool read = !truce_find(store, collection, &all, &options, &cursor, NULL);
    truce_status status;

    truce__known_names_begin(&names);
    if (read)
        known_names_read(cursor, &names);
    truce_cursor_close(cursor);
    status = truce__fail(TRUCE_NOT_FOUND, error, "the %s \"%.*s\" does not exist%s%s%s", noun,
                         KNOWN_NAME_SHOWN, name, names.count ? ": expected " : "", names.text->str,
                         read && !names.count ? ", and the database has none" : "");
    truce__known_names_end(&names);
    bson_destroy(keys);
    bson_destroy(sort);
    bson_destroy(&all);
    return status;
}
