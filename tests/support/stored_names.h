#ifndef TRUCE_TESTS_SUPPORT_STORED_NAMES_H
#define TRUCE_TESTS_SUPPORT_STORED_NAMES_H

/*
 * A store that refuses names of fields as MongoDB before 5.0 does. A name of a stored document, at
 * any depth, may not begin with a dollar sign (code 52) or contain a dot (code 57). The store has
 * the capabilities of such a server without transactions.
 *
 * Inserts, replacements, and operands of operators are refused before they are written. Results of
 * pipelines are checked when the store is closed: each document is read then, and such a name is a
 * failure of the test.
 *
 * With TRUCE_TEST_STORED_NAMES=1 each store that a test program opens is wrapped in one.
 */
#include "truce/store.h"

/* Wraps the store. Closing the result closes `inner`. */
truce_store *stored_names_wrap(truce_store *inner);

/* Returns an error if a name in the document is refused, with its path. `what` is the operation for
 * the message. */
truce_status stored_names_check(const bson_t *document, const char *what, bson_error_t *error);

#endif
