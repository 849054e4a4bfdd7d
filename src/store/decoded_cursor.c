#include "store/decoded_cursor.h"

#include "bson/field_name_escape.h"
#include "truce/sys/store.h"

struct decoded_cursor {
    /* Must be the first field. */
    truce_cursor base;
    truce_cursor *inner;
    /* The last returned document. */
    bson_t document;
};

static truce_status decoded_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct decoded_cursor *cursor = (struct decoded_cursor *)base;
    truce_status status = truce_cursor_next(cursor->inner, document, error);

    if (status || !*document || truce__names_plain(*document))
        return status;
    bson_destroy(&cursor->document);
    truce__names_restore(*document, &cursor->document);
    *document = &cursor->document;
    return status;
}

static void decoded_close(truce_cursor *base)
{
    struct decoded_cursor *cursor = (struct decoded_cursor *)base;

    truce_cursor_close(cursor->inner);
    bson_destroy(&cursor->document);
    bson_free(cursor);
}

static const truce_cursor_ops restored_ops = {decoded_next, decoded_close};

truce_cursor *truce__restored_cursor(truce_cursor *inner)
{
    struct decoded_cursor *made = bson_malloc0(sizeof *made);

    made->base.ops = &restored_ops;
    made->inner = inner;
    bson_init(&made->document);
    return &made->base;
}
