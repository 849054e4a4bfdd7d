#ifndef TRUCE_QUERY_SHAPE_H
#define TRUCE_QUERY_SHAPE_H

/*
 * The shape of a document: which of its fields stay, go or are computed. The one engine behind
 * $project, $addFields, $unset and the projections of find.
 */
#include "query/context.h"
#include "query/value.h"

struct shape;

/* A field that is computed. `evaluate` gets the whole document; VALUE_MISSING leaves the field out.
 */
struct shape_computed {
    truce_status (*evaluate)(const void *arg, struct value root, struct query_context *context,
                             struct value *result, bson_error_t *error);
    void (*free)(void *arg);
    void *arg;
};

enum shape_leaf {
    SHAPE_KEEP,    /* makes the projection an inclusion */
    SHAPE_DROP,    /* ... an exclusion */
    SHAPE_COMPUTE, /* ... an inclusion */
    SHAPE_EITHER,  /* kept in either; find's $slice is of this kind, and does its work afterwards */
};

/* What find's own operators ask for: {a: {$slice: 1}}, {"a.$": 1}. Called for every path whose
 * value is a document that begins with `$`, or which ends in ".$". *taken: it was one of those, and
 * `leaf` stands at the first *path_length bytes of the path, with `computed` if it is
 * SHAPE_COMPUTE. */
struct shape_special {
    truce_status (*parse)(void *arg, const char *path, size_t *path_length, struct value value,
                          bool *taken, enum shape_leaf *leaf, struct shape_computed *computed,
                          bson_error_t *error);
    void *arg;
};

/* A projection, as find and $project have it: {a: 1, "b.c": 1, d: <expression>} or {a: 0, "b.c":
 * 0}. `special` may be NULL. MongoDB's codes 31249 to 31254, 51270, and those of field paths. An
 * empty specification keeps everything. */
truce_status truce__shape_parse_projection(struct value specification, const char *const *variables,
                                           const struct shape_special *special,
                                           struct shape **shape, bson_error_t *error);
/* {a: <expression>, b: {c: <expression>}}: of $addFields. Codes 40176 to 40183. */
truce_status truce__shape_parse_fields(struct value specification, const char *const *variables,
                                       struct shape **shape, bson_error_t *error);
/* ["a", "b.c"] or "a": of $unset. */
truce_status truce__shape_parse_unset(struct value specification, struct shape **shape,
                                      bson_error_t *error);
void truce__shape_free(struct shape *shape);

/* Does the shape keep what it does not name? (an exclusion, and $addFields) */
bool truce__shape_keeps_others(const struct shape *shape);

/* The document in its new shape, in context->arena. */
truce_status truce__shape_apply(const struct shape *shape, struct value document,
                                struct query_context *context, struct value *result,
                                bson_error_t *error);

#endif
