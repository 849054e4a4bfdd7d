#ifndef TRUCE_STORE_DECODED_CURSOR_H
#define TRUCE_STORE_DECODED_CURSOR_H

#include "truce/store.h"

/* Wraps a cursor, and decodes the field names of its documents (bson/field_name_escape.h). Takes
 * over the cursor. */
truce_cursor *truce__restored_cursor(truce_cursor *inner);

#endif
