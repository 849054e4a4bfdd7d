#ifndef TRUCE_TESTS_SUPPORT_CHANGED_BSON_H
#define TRUCE_TESTS_SUPPORT_CHANGED_BSON_H

/* Documents with one field changed to a value that no correct peer sends: for code that takes
 * documents from others. */
#include <stdint.h>

#include <bson/bson.h>

/* Ways to change a field: it is left out, occurs twice, or has another value. */
extern const uint32_t bson_changes;

/* Counts the fields of the document and of all within it. */
uint32_t bson_places(const bson_t *document);

/* Returns the document with the change at the place; the caller destroys it. */
bson_t *bson_changed(const bson_t *document, uint32_t place, uint32_t change);
/* Returns the document with this value there. */
bson_t *bson_replaced(const bson_t *document, uint32_t place, const bson_value_t *value);

#endif
