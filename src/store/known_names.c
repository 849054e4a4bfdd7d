#include "store/known_names.h"

#include "base/status.h"

/* A message has 500 bytes: the name and as many others as fit in. */
#define NAMES_MAX   10
#define NAME_SHOWN  80
#define NAMES_SHOWN 280

/* Reads the first names into `text`: `"book", "cash", ...`. */
static void known_names_read(truce_cursor *cursor, bson_string_t *text)
{
    const bson_t *document = NULL;
    bson_iter_t id;
    int count = 0;

    while (!truce_cursor_next(cursor, &document, NULL) && document) {
        if (!bson_iter_init_find(&id, document, "_id") || !BSON_ITER_HOLDS_UTF8(&id))
            continue;
        if (count == NAMES_MAX || text->len > NAMES_SHOWN) {
            bson_string_append(text, ", ...");
            return;
        }
        bson_string_append_printf(text, "%s\"%.*s\"", count++ ? ", " : "", NAME_SHOWN,
                                  bson_iter_utf8(&id, NULL));
    }
}

truce_status truce__fail_unknown(truce_store *store, const char *collection, const char *noun,
                                 const char *name, bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(1)),
           *keys = BCON_NEW("_id", BCON_INT32(1));
    const truce_find_options options = {.sort = sort, .projection = keys, .limit = 2 * NAMES_MAX};
    bson_string_t *text = bson_string_new("");
    truce_cursor *cursor = NULL;
    bool read = !truce_find(store, collection, &all, &options, &cursor, NULL);
    truce_status status;

    if (read)
        known_names_read(cursor, text);
    truce_cursor_close(cursor);
    status = truce__fail(TRUCE_NOT_FOUND, error, "the %s \"%.*s\" does not exist%s%s%s", noun,
                         NAME_SHOWN, name, *text->str ? ": expected " : "", text->str,
                         read && !*text->str ? ", and the database has none" : "");
    bson_string_free(text, true);
    bson_destroy(keys);
    bson_destroy(sort);
    bson_destroy(&all);
    return status;
}
