#ifndef TRUCE_STORE_STORE_H
#define TRUCE_STORE_STORE_H

/* The internal interface of the store, for the files of src/store and for the layers above. The
 * public interface is truce/store.h. */
#include "base/budget.h"
#include "truce/sys/store.h"

/* Starts the budget of one call. If deadline_ms is 0, there is no deadline. */
void truce__store_budget(const truce_store *store, uint32_t deadline_ms, struct budget *budget);

/* A backend checks at least this often whether it is interrupted. */
#define INTERRUPT_MS 50

/* Fails with INVALID in a forked child if a parent opened the store. */
truce_status truce__store_not_inherited(const truce_store *store, bson_error_t *error);

/* Checks at the start of a call that the handle of a pattern can be used, before any lock is taken.
 * Fails with the error of the handle's options if they were invalid, and as
 * truce__store_not_inherited does. `error` may be NULL. */
truce_status truce__handle_usable(const truce_store *store, bool refused,
                                  const bson_error_t *refusal, bson_error_t *error);

/* Fails with TIMEOUT while the store is interrupted. */
truce_status truce__store_interrupted(const truce_store *store, bson_error_t *error);

/* Returns the token that truce_wait returns for a token of 0. The name was checked before, and the
 * store has TRUCE_CAN_WAIT. For callers that call so often that the checks of truce_wait would take
 * too long. */
truce_status truce__store_token(truce_store *store, const char *collection, uint64_t *token,
                                bson_error_t *error);

/* Copies the error `caught` to `error` if the status is a failure and `error` is not NULL. Returns
 * the status. */
truce_status truce__pass_error(truce_status status, const bson_error_t *caught,
                               bson_error_t *error);

/* Returns the structure number of the store (truce/sys/store.h), or 0 if it is unknown. */
uint64_t truce__store_structure(truce_store *store);

/* Returns the version number of the store (truce/sys/store.h), or 0 if it is unknown. */
uint64_t truce__store_version(truce_store *store);

/* Returns whether the structure number changes if another process drops or empties a collection. On
 * other stores, a pattern must read cached metadata again before a write that could corrupt
 * data. */
bool truce__store_sees_drops(const truce_store *store);

/* Calls read_many of the backend, with checks. Fails with INVALID without
 * TRUCE_CAN_SNAPSHOT_READ. */
truce_status truce__store_read_many(truce_store *store, truce_read_request *requests, size_t count,
                                    bson_error_t *error);

/* Calls explain of the backend, with checks: for a find, or for a count with these options. */
truce_status truce__store_explain(truce_store *store, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, bool count, bson_t *plan,
                                  bson_error_t *error);

/* Returns the options that a count shares with a find: hint, skip, limit, and deadline_ms. */
truce_find_options truce__count_as_find(const truce_count_options *options);

/* Does what truce_index_create does, for an index that truce needs. The index may have been
 * modified since (truce_index_modify: hidden, or another expiry) and still counts as the same.
 * Without a hidden index, truce is slower but correct. */
truce_status truce__index_ensure(truce_store *store, const char *collection, const bson_t *index,
                                 bson_error_t *error);

/* Calls rewrite of the backend, with checks. Fails with INVALID without TRUCE_CAN_REWRITE. */
truce_status truce__store_rewrite(truce_store *store, truce_rewrite *rewrite, bson_error_t *error);

/* Builds {store: its scheme, ...} with the `facts` of the backend. Always initializes the
 * document. */
truce_status truce__store_facts(truce_store *store, bson_t *facts, bson_error_t *error);

/* Calls keep_images of the backend. Does nothing if the store has no change feed. */
truce_status truce__store_keep_images(truce_store *store, const char *collection, bool on,
                                      bson_error_t *error);

/* The options of a read with only `latest` set. The code at each use says why the read must be
 * linearizable. */
extern const truce_find_options truce__find_latest;

#endif
