/* Weak stand-ins for the parts of query/ that are not there yet, so that programs link. Each goes
 * away with the file that defines it. */
#include "base/assert.h"
#include "query/aggregate.h"
#include "query/expression.h"
#include "query/match.h"
#include "query/project.h"
#include "query/update.h"

#define PENDING(name, result, parameters)                                                          \
    __attribute__((weak)) result name parameters                                                   \
    {                                                                                              \
        truce__assert_failed("not there yet", __FILE__, __LINE__, #name);                          \
    }

PENDING(truce__match_new, truce_status, (const bson_t *f, struct match **m, bson_error_t *e))
__attribute__((weak)) void truce__match_free(struct match *m)
{
}
PENDING(truce__match_root, const struct match_node *, (const struct match *m))
PENDING(truce__match_test, truce_status,
        (const struct match *m, struct value d, struct query_context *c, struct match_result *r,
         bson_error_t *e))
PENDING(truce__pipeline_new, truce_status, (const bson_t *s, struct pipeline **p, bson_error_t *e))
__attribute__((weak)) void truce__pipeline_free(struct pipeline *p)
{
}
PENDING(truce__pipeline_open, truce_status,
        (struct pipeline * p, uint32_t f, struct source *i, const struct aggregate_world *w,
         struct query_context *c, struct source **o, bson_error_t *e))
PENDING(truce__project_new, truce_status,
        (const bson_t *p, const struct match *m, struct project **r, bson_error_t *e))
__attribute__((weak)) void truce__project_free(struct project *p)
{
}
PENDING(truce__project_apply, truce_status,
        (const struct project *p, struct value d, const struct match_result *f,
         struct query_context *c, bson_t *r, bson_error_t *e))
PENDING(truce__update_new, truce_status,
        (const bson_t *u, const struct update_options *o, struct update **m, bson_error_t *e))
__attribute__((weak)) void truce__update_free(struct update *u)
{
}
PENDING(truce__update_apply, truce_status,
        (const struct update *u, const bson_t *b, const struct match_result *f,
         struct query_context *c, bson_t *a, struct update_result *r, bson_error_t *e))
PENDING(truce__update_insert, truce_status,
        (const struct update *u, const struct match *m, struct query_context *c, bson_t *d,
         bson_error_t *e))
PENDING(truce__expression_new, truce_status,
        (struct value s, const char *const *v, struct expression **x, bson_error_t *e))
__attribute__((weak)) void truce__expression_free(struct expression *x)
{
}
PENDING(truce__expression_evaluate, truce_status,
        (const struct expression *x, struct value r, const struct value *v, struct query_context *c,
         struct value *o, bson_error_t *e))
