#include "base/object_id.h"

#include <string.h>

#include "base/environment.h"
#include "base/random.h"

void truce__id_new(bson_oid_t *id)
{
    uint64_t chance[2];

    if (!truce__environment()) {
        bson_oid_init(id, NULL);
        return;
    }
    chance[0] = truce__random_entropy();
    chance[1] = truce__random_entropy();
    memcpy(id->bytes, chance, sizeof id->bytes);
}
