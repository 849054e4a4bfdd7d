#ifndef TRUCE_COMMIT_VALIDATED_H
#define TRUCE_COMMIT_VALIDATED_H

/* The journal and the validators of collections; the essay is in validated.c. */
#include "base/status.h"
#include "commit/entry.h"
#include "commit/journal.h"

/* V1: what the release will leave of the entry matches its collection's validator. */
truce_status truce__validator_lets(truce_store *store, const struct entry *entry,
                                   const bson_oid_t *rev, bson_error_t *error);

static inline bool truce__validator_refused(truce_status status, const bson_error_t *error)
{
    return status == TRUCE_INVALID && error->domain == TRUCE_ERROR_SERVER &&
           error->code == CODE_DOCUMENT_VALIDATION_FAILURE;
}

/* V2: a bulk of one write. Refused by the validator, it is sent once more, past it. Where the store does not allow
 * that, the validator's refusal is the answer. */
truce_status truce__validator_pass(truce_store *store, const truce_write *write,
                                   const truce_bulk_options *options, truce_write_outcome *outcome,
                                   bson_error_t *error);

/* The same for find-and-modify. */
truce_status truce__validator_pass_modify(truce_store *store, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          bson_error_t *error);

#endif
