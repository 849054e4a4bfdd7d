#include "bson/id_filter.h"

void truce__filter_id(const bson_value_t *id, bson_t *filter)
{
    bson_t equal;

    bson_init(filter);
    if (id->value_type != BSON_TYPE_DOCUMENT) {
        bson_append_value(filter, "_id", 3, id);
        return;
    }
    bson_append_document_begin(filter, "_id", 3, &equal);
    bson_append_value(&equal, "$eq", 3, id);
    bson_append_document_end(filter, &equal);
}

void truce__filter_id_oid(const bson_oid_t *id, bson_t *filter)
{
    bson_init(filter);
    bson_append_oid(filter, "_id", 3, id);
}

void truce__filter_id_text(const char *id, bson_t *filter)
{
    bson_init(filter);
    bson_append_utf8(filter, "_id", 3, id, -1);
}
