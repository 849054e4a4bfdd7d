#ifndef TRUCE_COMMIT_SCHEMA_VALIDATORS_H
#define TRUCE_COMMIT_SCHEMA_VALIDATORS_H

/* The journal and the validators of collections. The essay is in schema_validators.c. */
#include "base/status.h"
#include "commit/commit_entry.h"
#include "commit/journal.h"

/* Checks that the document that the release will leave matches its collection's validator (CI1). */
truce_status truce__validator_lets(truce_store *store, const struct entry *entry,
                                   const bson_oid_t *rev, bson_error_t *error);

static inline bool truce__validator_refused(truce_status status, const bson_error_t *error)
{
    return status == TRUCE_INVALID && error->domain == TRUCE_ERROR_SERVER &&
           error->code == CODE_DOCUMENT_VALIDATION_FAILURE;
}

/* Sends a bulk of one write. If the validator refuses it, sends it again with a bypass (CI2). If
 * the store does not allow the bypass, the result is the validator's refusal. */
truce_status truce__validator_pass(truce_store *store, const truce_write *write,
                                   const truce_bulk_options *options, truce_write_outcome *outcome,
                                   bson_error_t *error);

/* Does what truce__validator_pass does, for find-and-modify. */
truce_status truce__validator_pass_modify(truce_store *store, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          bson_error_t *error);

#endif
