/* Weak stand-ins for the parts of query/ that are not there yet, so that programs link. Each goes
 * away with the file that defines it. */
#include "base/assert.h"
#include "query/aggregate.h"

#define PENDING(name, result, parameters)                                                          \
    __attribute__((weak)) result name parameters                                                   \
    {                                                                                              \
        truce__assert_failed("not there yet", __FILE__, __LINE__, #name);                          \
    }

PENDING(truce__pipeline_new, truce_status, (const bson_t *s, struct pipeline **p, bson_error_t *e))
__attribute__((weak)) void truce__pipeline_free(struct pipeline *p)
{
}
PENDING(truce__pipeline_open, truce_status,
        (struct pipeline * p, uint32_t f, struct source *i, const struct aggregate_world *w,
         struct query_context *c, struct source **o, bson_error_t *e))
PENDING(truce__pipeline_new_update, truce_status,
        (const bson_t *s, struct pipeline **p, bson_error_t *e))
PENDING(truce__pipeline_apply, truce_status,
        (const struct pipeline *p, struct value d, struct query_context *c, bson_t *r,
         bson_error_t *e))
PENDING(truce__pipeline_head, void, (const struct pipeline *p, struct pipeline_head *h))
