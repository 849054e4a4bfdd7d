#ifndef TRUCE_ID_H
#define TRUCE_ID_H

/*
 * Functions that make the values for `id` parameters, without casts.
 *
 *     bson_value_t id = truce_id_utf8("a");
 *     status = truce_commit_read(commit, "accounts", &id, &account, error);
 *
 * The string is borrowed: it must stay valid while the value is used. All other data is copied. Do
 * not destroy such a value. A 32-bit and a 64-bit integer of the same value are the same id.
 */
#include <string.h>

#include <bson/bson.h>

#include "truce/export.h"

TRUCE_BEGIN_DECLS

/* Returns the id `number`. */
static inline bson_value_t truce_id_int64(int64_t number)
{
    bson_value_t id;

    memset(&id, 0, sizeof id);
    id.value_type = BSON_TYPE_INT64;
    id.value.v_int64 = number;
    return id;
}

/* Returns the id `text`, which is borrowed. */
static inline bson_value_t truce_id_utf8(const char *text)
{
    bson_value_t id;

    memset(&id, 0, sizeof id);
    id.value_type = BSON_TYPE_UTF8;
    memcpy(&id.value.v_utf8.str, &text, sizeof text);
    id.value.v_utf8.len = (uint32_t)strlen(text);
    return id;
}

/* Returns a copy of the ObjectId as an id. */
static inline bson_value_t truce_id_oid(const bson_oid_t *oid)
{
    bson_value_t id;

    memset(&id, 0, sizeof id);
    id.value_type = BSON_TYPE_OID;
    bson_oid_copy(oid, &id.value.v_oid);
    return id;
}

TRUCE_END_DECLS

#endif
