#ifndef TRUCE_ENGINE_DOCUMENTS_CATALOG_ROWS_H
#define TRUCE_ENGINE_DOCUMENTS_CATALOG_ROWS_H

/* The table of the catalog: what catalog.c writes and catalog_load.c reads. */
#include "engine/documents/catalog.h"

#define CATALOG      INT64_C(0)
#define ROW_NEXT     INT64_C(1)
#define FIRST_NUMBER INT64_C(2)

/* CORRUPT */
truce_status truce__catalog_bad_row(int64_t row, bson_error_t *error);

#endif
