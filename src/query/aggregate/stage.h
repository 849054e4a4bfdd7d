#ifndef TRUCE_QUERY_AGGREGATE_STAGE_H
#define TRUCE_QUERY_AGGREGATE_STAGE_H

/*
 * What a pipeline is made of, shared by the files aggregate*.c and nobody else.
 *
 *     [{$match: ...}, {$group: ...}]            parsed into
 *
 *     pipeline ── stage (kind, data) ── stage (kind, data)        compiled once, does not change
 *                   │ open                │ open
 *     input ────> stream ──────────────> stream ────> output     one for each run, pulled from the
 *                                                                 right
 *
 * Whoever pulls gets a document that stays valid until it pulls again. Each stream has an arena of
 * its own for the documents it makes, and empties it when the next one is asked for.
 */
#include "query/aggregate/aggregate.h"
#include "query/sort/sort.h"

/* ---- running -------------------------------------------------------------------------------- */

/* In place of a document: there is no more now, but ask again later (only inside $facet, whose
 * pipelines take turns on one input). A stage passes it on and goes on where it was. */
#define STREAM_PAUSED 0xfe

struct stream {
    /* VALUE_MISSING: the end. After an error or the end, only free. */
    truce_status (*next)(struct stream *stream, struct value *document, bson_error_t *error);
    void (*release)(struct stream *stream); /* what the kind of stream added; may be NULL */
    /* All documents that are left, as a source gives them; NULL: there is only `next`. */
    truce_status (*each)(struct stream *stream, document_take *take, void *arg,
                         bson_error_t *error);
    struct stream *input;         /* owned; may be NULL */
    struct query_context context; /* its arena is the one below */
    struct arena arena;
    size_t held; /* bytes that the call's budget knows of */
};

/* For one document that is worked on. */
static inline truce_status truce__stream_spend(struct stream *stream, bson_error_t *error)
{
    return truce__budget_spend(stream->context.budget, 8, error);
}

/* The same, where each byte of it may be looked at. */
static inline truce_status truce__stream_spend_on(struct stream *stream, struct value document,
                                                  bson_error_t *error)
{
    return truce__budget_spend(stream->context.budget, 8 + document.size / 1024, error);
}

/* The stream holds so many bytes now, its arena not counted. LIMIT: all stages together hold more than
 * a pipeline may. */
truce_status truce__stream_hold(struct stream *stream, size_t bytes, bson_error_t *error);

static inline bool truce__stream_is_document(struct value value)
{
    return value.type == BSON_TYPE_DOCUMENT;
}

/* What a run of a pipeline needs besides its stages. */
struct stage_run {
    const struct aggregate_world *world;
    const struct query_context *context;
    uint64_t limit_ahead; /* at most so many documents will be pulled; 0: all (for $sort) */
    bool ordered;         /* the input is an ordered source (for $sort) */
};

/* A zeroed stream of `size` bytes (its first member is the struct stream) on `input`. */
void *truce__stream_new(size_t size, const struct stage_run *run, struct stream *input,
                        truce_status (*next)(struct stream *stream, struct value *document,
                                             bson_error_t *error),
                        void (*release)(struct stream *stream));
void truce__stream_free(struct stream *stream);
struct spill_options truce__stage_spill(const struct aggregate_world *world,
                                        const struct query_context *context);

/* ---- stages --------------------------------------------------------------------------------- */

struct stage;

/* Whether a stage is a $limit or a $skip; its data is a struct count_stage then. */
enum stage_counts {
    STAGE_COUNTS_NOT,
    STAGE_LIMIT,
    STAGE_SKIP,
};

struct stage_kind {
    /* A stage that makes one document of one: used by streams and by update pipelines. The result
     * lives in context->arena or in the document. */
    truce_status (*apply)(const void *data, struct value document, struct query_context *context,
                          struct value *result, bson_error_t *error);
    /* All others: a stream on `input`, which it owns if it succeeds. */
    truce_status (*open)(const void *data, const struct stage_run *run, struct stream *input,
                         struct stream **stream, bson_error_t *error);
    void (*free)(void *data);
    /* Does each document that comes out have this field as it came in? And does the same come out, if a filter that looks at such
     * fields alone stands before the stage and not behind it? NULL: no (aggregate_match.c). */
    bool (*keeps)(const void *data, const char *field, uint32_t length);
    /* Is the value at this path of each document that comes out that of one field as it came in, which may be missing there where
     * it is null? And does the same come out, if a filter by that value alone stands before the stage? `*length` is of the
     * beginning of the path that stands for the field. NULL: no. */
    const char *(*takes)(const void *data, const char *path, size_t *length);
    /* Of a stage that lets its input through and adds documents of its own behind: where their pipeline stands (*: NULL, they come as
     * they are). A filter may stand before the stage, if it stands at the end of that pipeline, too. NULL: it is another stage. */
    struct pipeline **(*inner)(void *data);
    /* Returns the filter of a $match; NULL: the stage is not a $match. */
    const bson_t *(*filter)(const void *data);
    enum stage_counts counts;
    bool drops; /* `apply` may leave a document out, by a missing result: $redact */
};

struct stage {
    const struct stage_kind *kind;
    void *data;
    uint32_t from, to; /* it is made of these of the stages as given */
};

struct pipeline {
    bson_t *source; /* the stages, as given */
    struct stage *stages;
    uint32_t count, room;
    bool is_update;
};

enum stage_place {
    PLACE_TOP,
    PLACE_UPDATE,
    PLACE_FACET,
    PLACE_LOOKUP,
    PLACE_UNION,
};

struct stage_table;

struct stage_parser {
    /* the stages that exist */
    const struct stage_table *table;
    struct pipeline *pipeline;
    const char *const *variables; /* that expressions may use; NULL: none */
    enum stage_place place;
    uint32_t depth; /* of pipelines within pipelines */
    uint32_t number,
        from;   /* of the stage at hand, and of the first that what is made of it is made of */
    bool first; /* the stage at hand is the first */
    bool last;  /* ... is the last */
};

/* Adds a stage to the pipeline; takes over `data`. */
void truce__stage_push(struct stage_parser *parser, const struct stage_kind *kind, void *data);
/* The same, in front of the stage number `at` of those that are there. */
void truce__stage_insert(struct stage_parser *parser, uint32_t at, const struct stage_kind *kind,
                         void *data);

/* Takes the last stage off the pipeline and gives its data, if it was given right before the one at hand, is of that kind and
 * `wanted` says so; else NULL. */
void *truce__stage_pop(struct stage_parser *parser, const struct stage_kind *kind,
                       bool (*wanted)(const void *data));
/* Takes a stage off, which is the caller's then. */
struct stage truce__stage_take(struct stage_parser *parser, uint32_t at);

/* Of a $match; NULL: it is another stage. */
const bson_t *truce__stage_filter(const struct stage *stage);

typedef truce_status stage_parse_function(struct stage_parser *parser, struct value argument,
                                          bson_error_t *error);

/* A stage by its name. */
struct stage_name {
    const char *name;
    /* NULL: the stage is refused, with `refusal` in the message */
    stage_parse_function *parse;
    bool in_update;
    bool not_in_facet;
    const char *refusal;
};

/* The stages that exist. aggregate.c has the table, and gives it to the parser: the files of the
 * stages therefore do not depend on each other. */
struct stage_table {
    const struct stage_name *names;
    size_t count;
    /* Runs when all stages of a pipeline are parsed. */
    truce_status (*finish)(struct stage_parser *parser, bson_error_t *error);
};

/* aggregate_shape.c: one document into one */
stage_parse_function truce__stage_project;
stage_parse_function truce__stage_set;
stage_parse_function truce__stage_unset;
stage_parse_function truce__stage_replace_root;
stage_parse_function truce__stage_replace_with;
stage_parse_function truce__stage_redact;

stage_parse_function truce__stage_match; /* aggregate_match.c */
/* When all stages are there: filters that stand side by side become one. */
truce_status truce__stages_join_filters(struct stage_parser *parser, bson_error_t *error);

/* aggregate_flow.c: which documents, and how many */
stage_parse_function truce__stage_limit;
stage_parse_function truce__stage_skip;
stage_parse_function truce__stage_sample;
stage_parse_function truce__stage_sort;
stage_parse_function truce__stage_unwind;

stage_parse_function truce__stage_documents; /* aggregate_documents.c */
/* Has the pipeline within a stage, `stages`, its documents from itself? Then `collection`, which the stage names (missing: none),
 * must not be there, and else it must. */
truce_status truce__stage_own_documents(const char *stage, struct value stages,
                                        struct value collection, bool *own, bson_error_t *error);

/* aggregate_group.c, aggregate_bucket.c */
stage_parse_function truce__stage_group;
stage_parse_function truce__stage_count;
stage_parse_function truce__stage_sort_by_count;
stage_parse_function truce__stage_bucket;
stage_parse_function truce__stage_bucket_auto;

/* aggregate_join.c, aggregate_graph.c, aggregate_union.c, aggregate_facet.c, aggregate_write.c */
stage_parse_function truce__stage_lookup;
stage_parse_function truce__stage_graph_lookup;
stage_parse_function truce__stage_union_with;
stage_parse_function truce__stage_facet;
stage_parse_function truce__stage_out;
stage_parse_function truce__stage_merge;

/* ---- pipelines within pipelines ------------------------------------------------------------- */

/* Compiles the array `stages` for the stage that `outer` parses. For a pipeline that is in no other,
 * `outer` has only a table. */
truce_status truce__pipeline_compile(const struct stage_parser *outer, struct value stages,
                                     const char *const *variables, enum stage_place place,
                                     struct pipeline **pipeline, bson_error_t *error);
/* Puts the stages from `first` on over `input`; on failure `input` is freed. */
truce_status truce__pipeline_stack(const struct pipeline *pipeline, uint32_t first,
                                   const struct stage_run *run, struct stream *input,
                                   struct stream **output, bson_error_t *error);
/* Returns a stream of the source's documents, which owns the source. */
struct stream *truce__stream_of_source(const struct stage_run *run, struct source *source);
/* All of a collection, or what matches, as a stream. */
truce_status truce__stream_of_collection(const struct stage_run *run, const char *collection,
                                         const bson_t *filter, struct stream **stream,
                                         bson_error_t *error);
/* The filter that the pipeline starts with, or NULL. */
const bson_t *truce__pipeline_first_filter(const struct pipeline *pipeline);

/* ---- what the planner may take over --------------------------------------------------------- */

extern const struct stage_kind truce__sort_kind;

struct sort_stage {
    struct sort sort;
    bson_t *specification;
};

struct count_stage { /* $limit and $skip */
    int64_t count;
};

/* aggregate_ordered.c: a $sort on a source that is ordered. */
struct stream *truce__stream_sort_ordered(const struct stage_run *run, struct stream *input,
                                          const struct sort *sort);

/* ---- helpers for parsing -------------------------------------------------------------------- */

struct expression;

/* The options of a stage by name: where each one goes. The last has no name. */
struct stage_option {
    const char *name;
    struct value *value;
};
/* `argument` is a document; an option that is not known is refused with `code`. */
truce_status truce__stage_options(const char *stage, uint32_t code, struct value argument,
                                  const struct stage_option *options, bson_error_t *error);

/* A text value that is not NUL-terminated inside; NULL if `value` is no string. */
const char *truce__stage_text(struct value value, size_t *length);
bson_t *truce__stage_copy(struct value document);
/* The path of a field, from a string. */
truce_status truce__stage_path(struct value value, struct path *path, bson_error_t *error);

/* *document with `value` at the path, through documents only: what is no document on the way
 * becomes one. A missing value takes the field away. The result lives in the arena. */
truce_status truce__document_with(struct arena *arena, struct value *document,
                                  const struct path *path, struct value value, bson_error_t *error);

/* ---- what $lookup and $unionWith share ---- */

bool truce__filter_uses_expression(struct value filter);

#endif
