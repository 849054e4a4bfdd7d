#include "tests/support/json_command.h"

#include <string.h>

#include "base/assert.h"
#include "truce/json.h"

truce_status run_json_command(truce_store *store, const char *database, const char *json,
                              bson_t *reply, bson_error_t *error)
{
    bson_t request;
    truce_status status =
        truce_json_read(json, strlen(json), TRUCE_JSON_TYPED, &request, NULL, error);

    truce_assert(!status);
    status = truce_command(store, database, &request, reply, error);
    bson_destroy(&request);
    return status;
}
