#ifndef TRUCE_PATTERNS_TRANSFER_TRANSFER_COMMIT_H
#define TRUCE_PATTERNS_TRANSFER_TRANSFER_COMMIT_H

/* A transfer in one step: all of it is one commit. */
#include "patterns/transfer/transfer.h"

/* As a part of `commit`, or (NULL) as one of its own. Takes the document over. */
truce_status truce__transfer_at_once(truce_transfers *transfers, truce_commit *commit,
                                     bson_t *document, bool *exists, bson_error_t *error);

#endif
