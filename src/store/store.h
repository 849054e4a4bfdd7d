#ifndef TRUCE_STORE_STORE_H
#define TRUCE_STORE_STORE_H

/* What the files of store/ share, and what the layers above may use beside truce/store.h. */
#include "base/budget.h"
#include "truce/sys/store.h"

/* For the work of one call; deadline_ms 0: as long as it takes. */
void truce__store_budget(const truce_store *store, uint32_t deadline_ms, struct budget *budget);

#define INTERRUPT_MS 50 /* no backend waits longer without a look whether it is interrupted */

/* TIMEOUT while the store is interrupted. */
truce_status truce__store_interrupted(const truce_store *store, bson_error_t *error);

/* The token that truce_wait gives for one of 0, of a name that was checked before; the store can wait (TRUCE_CAN_WAIT). For who asks
 * so often that the checks of truce_wait would count. */
truce_status truce__store_token(truce_store *store, const char *collection, uint64_t *token,
                                bson_error_t *error);

/* Copies the error a wrapper caught to the caller's, when there is one. */
truce_status truce__pass_error(truce_status status, const bson_error_t *caught,
                               bson_error_t *error);

/* The structure of the store (truce/sys/store.h); 0: it is not known. */
uint64_t truce__store_structure(truce_store *store);

/* read_many of the backend, with checks; TRUCE_INVALID without TRUCE_CAN_SNAPSHOT_READ. */
truce_status truce__store_look(truce_store *store, truce_look *looks, size_t count,
                               bson_error_t *error);

/* explain of the backend, with checks: of a find, or of a count that has these options. */
truce_status truce__store_explain(truce_store *store, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, bool count, bson_t *plan,
                                  bson_error_t *error);

/* What a count shares with a find: hint, skip, limit and deadline_ms. */
truce_find_options truce__count_as_find(const truce_count_options *options);

/* As truce_index_create, of an index that truce rests on itself: what has been changed of it since it is there (truce_index_modify),
 * that it is hidden or when it expires, is no other index. Without the hidden one truce is right, and slower. */
truce_status truce__index_ensure(truce_store *store, const char *collection, const bson_t *index,
                                 bson_error_t *error);

/* rewrite of the backend, with checks; INVALID without TRUCE_CAN_REWRITE. */
truce_status truce__store_rewrite(truce_store *store, truce_rewrite *rewrite, bson_error_t *error);

/* {store: its scheme, ...}: what the backend's `facts` tells; always initialised. */
truce_status truce__store_facts(truce_store *store, bson_t *facts, bson_error_t *error);

/* keep_images of the backend. Does nothing if the store has no change feed. */
truce_status truce__store_keep_images(truce_store *store, const char *collection, bool on,
                                      bson_error_t *error);

/* The options of a read with `latest` alone. The code at each use says why it must be linearizable. */
extern const truce_find_options truce__find_latest;

/* Who closes last, a store or one of its cursors, closes the store itself. */

#endif
