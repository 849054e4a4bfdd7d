#ifndef TRUCE_BSON_FIELD_FINDER_H
#define TRUCE_BSON_FIELD_FINDER_H

/*
 * Fields by name, in documents that are asked again and again. A document that is large and is asked
 * often gets a table of its names, so that n names of a document of n fields are found in n steps,
 * not in n * n.
 *
 * Documents are known by where they stand: while a finder is in use none of those it was asked
 * about may change or go. One thread at a time.
 */
#include "bson/value.h"

#define FIELD_FINDER_BYTES 2048 /* what is smaller is looked through */

struct field_finder {
    struct field_finder_tables *tables; /* NULL until a large document was asked about */
};

/* `steps` grows by the work that it was, about one for 1 kB or for each name. */
struct value truce__field_finder_find_large(struct field_finder *finder, struct value document,
                                            const char *name, uint32_t length, uint32_t *steps);
void truce__field_finder_release_tables(struct field_finder *finder);

/* As truce__value_field. `finder` may be NULL. */
static inline struct value truce__field_finder_find(struct field_finder *finder,
                                                    struct value document, const char *name,
                                                    uint32_t length, uint32_t *steps)
{
    if (finder && document.size >= FIELD_FINDER_BYTES)
        return truce__field_finder_find_large(finder, document, name, length, steps);
    *steps += document.size / 1024;
    return truce__value_field(document, name, length);
}

static inline void truce__field_finder_release(struct field_finder *finder)
{
    if (finder->tables)
        truce__field_finder_release_tables(finder);
}

#endif
