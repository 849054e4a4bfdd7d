#ifndef TRUCE_TESTS_SUPPORT_CHANGED_BSON_H
#define TRUCE_TESTS_SUPPORT_CHANGED_BSON_H

/* Documents with one field changed to a value that no correct peer sends, to test code that
 * receives documents. */
#include <stdint.h>

#include <bson/bson.h>

/* The number of changes. A change leaves a field out, replaces its value, or adds a second field of
 * its name, with the same value or a longer one. */
extern const uint32_t bson_changes;

/* Counts the fields of the document and of all within it. */
uint32_t bson_places(const bson_t *document);

/* Returns the document with the change of field number `place`. The caller destroys it. */
bson_t *bson_changed(const bson_t *document, uint32_t place, uint32_t change);
/* Returns the document with this value in field number `place`. The caller destroys it. */
bson_t *bson_replaced(const bson_t *document, uint32_t place, const bson_value_t *value);

#endif
