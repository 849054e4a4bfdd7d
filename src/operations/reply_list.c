#include "operations/reply_list.h"

void truce__reply_list_begin(struct reply_list *list, int64_t limit)
{
    *list = (struct reply_list){.limit = limit ? limit : 100};
    bson_init(&list->array);
}

bool truce__reply_list_add(struct reply_list *list, const bson_t *document)
{
    char buffer[16];
    const char *key;

    list->more = list->count == list->limit ||
                 (list->count && list->array.len + document->len > REPLY_LIST_BYTES);
    if (list->more)
        return false;
    bson_uint32_to_string(list->count++, &key, buffer, sizeof buffer);
    return BSON_APPEND_DOCUMENT(&list->array, key, document);
}

truce_status truce__reply_list_read(struct reply_list *list, truce_cursor *cursor,
                                    bson_error_t *error)
{
    const bson_t *document = NULL;
    truce_status status;

    do {
        status = truce_cursor_next(cursor, &document, error);
    } while (!status && document && truce__reply_list_add(list, document));
    truce_cursor_close(cursor);
    return status;
}

truce_status truce__reply_list_end(struct reply_list *list, truce_status status, const char *name,
                                   bson_t *reply)
{
    if (!status) {
        BSON_APPEND_ARRAY(reply, name, &list->array);
        BSON_APPEND_BOOL(reply, "more", list->more);
    }
    bson_destroy(&list->array);
    return status;
}
