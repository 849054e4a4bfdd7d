#ifndef TRUCE_STORE_RESTORED_H
#define TRUCE_STORE_RESTORED_H

#include "truce/store.h"

/* A cursor over the documents of another, with the names of their users (bson/field_names.h). Takes it over. */
truce_cursor *truce__restored_cursor(truce_cursor *inner);

#endif
