#ifndef TRUCE_BSON_FIELD_PATH_H
#define TRUCE_BSON_FIELD_PATH_H

/* Paths of fields as aggregation has them ("a.b", without the `$`): stricter than those of filters.
 */
#include "bson/path.h"

/* Empty (40352), ending in a dot (40353), an empty part (15998), a part that begins with `$`
 * (16410; but for $id, $ref and $db), a NUL (16411), too many parts (CODE_OVERFLOW). */
truce_status truce__field_path_check(const char *text, size_t length, bson_error_t *error);

/* One name alone, without a dot (16412). */
truce_status truce__field_name_check(const char *name, size_t length, bson_error_t *error);

#endif
