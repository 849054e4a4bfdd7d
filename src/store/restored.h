#ifndef TRUCE_STORE_RESTORED_H
#define TRUCE_STORE_RESTORED_H

#include "truce/store.h"

/* Wraps a cursor, and decodes the field names of its documents (bson/field_names.h). Takes over the
 * cursor. */
truce_cursor *truce__restored_cursor(truce_cursor *inner);

#endif
