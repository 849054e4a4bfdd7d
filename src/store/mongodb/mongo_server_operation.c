/* Operations that a truce server runs: one message, instead of one for each read and write. */
#include <stdio.h>
#include <string.h>

#include "store/mongodb/mongo.h"

const char *truce__mongo_database(truce_store *base)
{
    return ((const struct mongo_store *)base)->database;
}

/* Returns the status that the server's reply contains, or `status` if it contains none. */
static truce_status operation_status(const bson_t *reply, truce_status status)
{
    bson_iter_t at;

    if (!bson_iter_init_find(&at, reply, "status") || !BSON_ITER_HOLDS_UTF8(&at))
        return status;
    for (truce_status i = TRUCE_NOT_FOUND; i <= TRUCE_REFUSED; i++)
        if (!strcmp(bson_iter_utf8(&at, NULL), truce_status_name(i)))
            return i;
    return status;
}

/* Copies the server's message, which is complete without the name of the call. */
static void operation_message(const bson_t *reply, bson_error_t *error)
{
    bson_iter_t at;

    if (error && bson_iter_init_find(&at, reply, "errmsg") && BSON_ITER_HOLDS_UTF8(&at))
        snprintf(error->message, sizeof error->message, "%s", bson_iter_utf8(&at, NULL));
}

truce_status truce__mongo_operation(truce_store *base, const bson_t *request, bool writes,
                                    bson_t *reply, bson_error_t *error)
{
    struct mongo_store *store = (struct mongo_store *)base;
    struct mongo_command command = {
        .body = request, .kind = writes ? MONGO_WRITE : MONGO_READ, .once = true};
    truce_status status = writes ? truce__mongo_writable(store, error) : TRUCE_OK;
    bson_iter_t name;

    if (status) {
        bson_init(reply);
        return status;
    }
    (void)bson_iter_init(&name, request);
    (void)bson_iter_next(&name);
    command.what = bson_iter_key(&name);
    status = truce__mongo_run_alone(store, &command, reply, error);
    if (!status)
        return TRUCE_OK;
    operation_message(reply, error);
    return operation_status(reply, status);
}
