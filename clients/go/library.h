#ifndef TRUCE_GO_LIBRARY_H
#define TRUCE_GO_LIBRARY_H

/* The part of the Go module that is C (library.go). */
#include <stdlib.h>
#include <string.h>
#include <truce/truce.h>

#if TRUCE_VERSION_NUMBER < 100
#error "this Go module needs libtruce 0.1.0 or later: see pkg-config --modversion truce"
#endif

/* Runs a command with a deadline of the thread (0 means no deadline). If the reply is longer than
 * `room`, it is allocated as `reply`, and the caller frees it with bson_free(). */
static inline int truce_go_command(truce_store *store, const char *database, const uint8_t *request,
                                   size_t length, uint32_t deadline_ms, uint8_t *room,
                                   size_t room_length, uint8_t **reply, uint32_t *reply_length)
{
    bson_t given, got;
    int64_t before;
    int status;

    *reply = NULL;
    *reply_length = 0;
    if (!bson_init_static(&given, request, length))
        return TRUCE_INVALID;
    before = truce_deadline_begin(deadline_ms);
    status = truce_command(store, database, &given, &got, NULL);
    truce_deadline_end(before);
    *reply_length = got.len;
    if (got.len <= room_length) {
        memcpy(room, bson_get_data(&got), got.len);
        bson_destroy(&got);
    } else {
        *reply = bson_destroy_with_steal(&got, true, NULL);
    }
    return status;
}

#endif
