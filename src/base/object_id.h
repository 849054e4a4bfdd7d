#ifndef TRUCE_BASE_OBJECT_ID_H
#define TRUCE_BASE_OBJECT_ID_H

#include <bson/bson.h>

/* Creates an ObjectId that no process has created before. In a simulated environment
 * (base/environment.h), it consists of random numbers of the environment. */
void truce__id_new(bson_oid_t *id);

#endif
