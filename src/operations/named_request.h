#ifndef TRUCE_OPERATIONS_NAMED_REQUEST_H
#define TRUCE_OPERATIONS_NAMED_REQUEST_H

/*
 * Requests by the name of an operation, as HTTP has them, and their description.
 *
 *     {queue: "mail", payload: {...}} -> {truceEnqueue: "mail", payload: {...}, $db: "shop"}
 *
 * Besides the operations, MongoDB's data commands can be named. Their rows only describe them: the
 * target, mostly `collection`, becomes the first field of the command, and all other fields are
 * passed on.
 */
#include "operations/operation.h"

/* The rows of MongoDB's data commands. NULL ends the list. Their `run` is NULL. */
extern const struct operation_row *const truce__data_rows[];

/* Returns the row of an operation or a data command that has the name, or NULL. */
const struct operation_row *truce__named_request_row(const char *name);
/* Makes the command of a request. `command` is always initialized. A field that only a session
 * of a driver has ($db, lsid, ...) and a request without its target fail with TRUCE_INVALID. */
truce_status truce__named_request_command(const struct operation_row *row, const char *database,
                                          const bson_t *body, bson_t *command, bson_error_t *error);

/* Returns the OpenAPI 3.1 description of all operations, as a document that the caller destroys. */
void truce__openapi(bson_t *document);

#endif
