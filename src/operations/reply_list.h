#ifndef TRUCE_OPERATIONS_REPLY_LIST_H
#define TRUCE_OPERATIONS_REPLY_LIST_H

/*
 * A list of documents in a reply. It has a maximum number of elements, and a maximum size of 8 MiB.
 * `more` of the reply states whether other elements exist.
 */
#include "truce/store.h"

#define REPLY_LIST_MAX   1000
#define REPLY_LIST_BYTES (8 * 1024 * 1024)

struct reply_list {
    bson_t array;
    /* The number of elements, and its maximum. */
    uint32_t count;
    int64_t limit;
    /* A document did not fit into the list. */
    bool more;
};

/* Begins a list of at most `limit` elements, or of 100 if `limit` is 0. */
void truce__reply_list_begin(struct reply_list *list, int64_t limit);
/* Appends a document. If the list is full, it sets `more` and returns false. */
bool truce__reply_list_add(struct reply_list *list, const bson_t *document);
/* Appends the documents of a cursor, and closes the cursor. */
truce_status truce__reply_list_read(struct reply_list *list, truce_cursor *cursor,
                                    bson_error_t *error);
/* Ends the list: if the status is OK, appends the list under `name`, and `more`. Frees the list.
 * Returns the status. */
truce_status truce__reply_list_end(struct reply_list *list, truce_status status, const char *name,
                                   bson_t *reply);

#endif
