#ifndef TRUCE_STORE_MONGODB_MONGO_TRANSACTION_H
#define TRUCE_STORE_MONGODB_MONGO_TRANSACTION_H

/* What mongo_transaction.c and mongo_guard.c share. */
#include "store/mongodb/mongo.h"

struct transaction {
    struct mongo_store *store;
    mongoc_client_t *client;
    mongoc_client_session_t *session;
    int64_t until_ns;
};

/* What is left of its time, and always a little. */
uint32_t truce__mongo_left_ms(const struct transaction *transaction);

/* A statement of it; `write`: one that changes something. `reply` is always initialised. */
truce_status truce__mongo_statement(struct transaction *transaction, const char *what,
                                    const bson_t *body, bool write, bson_t *reply,
                                    bson_error_t *error);

/* CONFLICT: nothing matches. */
truce_status truce__mongo_none_matches(const char *collection, bson_error_t *error);

/* ---- mongo_guard.c ---- */

/* TRUCE_WRITE_REQUIRE, TRUCE_WRITE_LOOK and TRUCE_WRITE_REQUIRE_MISSING. */
truce_status truce__mongo_require(struct transaction *transaction, const truce_write *write,
                                  bson_error_t *error);
truce_status truce__mongo_look(struct transaction *transaction, const truce_write *write,
                               bson_error_t *error);
truce_status truce__mongo_require_missing(struct transaction *transaction, const truce_write *write,
                                          bson_error_t *error);

#endif
