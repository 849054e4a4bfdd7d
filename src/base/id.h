#ifndef TRUCE_BASE_ID_H
#define TRUCE_BASE_ID_H

#include <bson/bson.h>

/* A fresh ObjectId: never given before, by any process (base/environment.h may supply the chance). */
void truce__id_new(bson_oid_t *id);

#endif
