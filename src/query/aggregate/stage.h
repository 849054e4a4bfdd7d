#ifndef TRUCE_QUERY_AGGREGATE_STAGE_H
#define TRUCE_QUERY_AGGREGATE_STAGE_H

/*
 * The parts of a pipeline, which only the files of this folder share.
 *
 *     [{$match: ...}, {$group: ...}]            parsed into
 *
 *     pipeline ── stage (kind, data) ── stage (kind, data)        compiled once, does not change
 *                   │ open                │ open
 *     input ────> stream ──────────────> stream ────> output     one for each run, pulled from the
 *                                                                 right
 *
 * A pull returns a document that is valid until the next pull. Each stream has an arena of its own
 * for the documents that it makes, and resets the arena at the next pull.
 */
#include "query/aggregate/aggregate.h"
#include "query/sort/sort.h"

/* ---- running -------------------------------------------------------------------------------- */

/* Returned instead of a document if a stream has none now but will have one later. It occurs only
 * inside $facet, whose pipelines read one input alternately. A stage returns it and resumes at the
 * next pull. */
#define STREAM_PAUSED 0xfe

struct stream {
    /* Pulls the next document. At the end it is VALUE_MISSING. After an error or the end, the
     * stream may only be freed. */
    truce_status (*next)(struct stream *stream, struct value *document, bson_error_t *error);
    /* Frees the members that the kind of stream has added. May be NULL. */
    void (*release)(struct stream *stream);
    /* Passes all remaining documents to `take`, as `each` of a source does; NULL if the stream
     * has only `next`. */
    truce_status (*each)(struct stream *stream, document_take *take, void *arg,
                         bson_error_t *error);
    /* The stream that this one pulls from. Owned; may be NULL. */
    struct stream *input;
    /* The environment of evaluations. Its arena is `arena`. */
    struct query_context context;
    struct arena arena;
    /* The bytes that the stream has reported to the budget of the call. */
    size_t held;
};

/* Spends the steps of one document. */
static inline truce_status truce__stream_spend(struct stream *stream, bson_error_t *error)
{
    return truce__budget_spend(stream->context.budget, 8, error);
}

/* Spends the steps of one document of which every byte may be read. */
static inline truce_status truce__stream_spend_on(struct stream *stream, struct value document,
                                                  bson_error_t *error)
{
    return truce__budget_spend(stream->context.budget, 8 + document.size / 1024, error);
}

/* Reports that the stream holds so many bytes, in addition to its arena. Fails with LIMIT if all
 * stages together hold more than the maximum of a pipeline. */
truce_status truce__stream_hold(struct stream *stream, size_t bytes, bson_error_t *error);

static inline bool truce__stream_is_document(struct value value)
{
    return value.type == BSON_TYPE_DOCUMENT;
}

/* The input of a run of a pipeline, next to its stages. */
struct stage_run {
    const struct aggregate_environment *environment;
    const struct query_context *context;
    /* The maximum number of documents that will be pulled; 0 means all (for $sort). */
    uint64_t limit_ahead;
    /* The input is an ordered source (for $sort). */
    bool ordered;
};

/* Returns a zeroed stream of `size` bytes on `input`. Its first member is the struct stream. */
void *truce__stream_new(size_t size, const struct stage_run *run, struct stream *input,
                        truce_status (*next)(struct stream *stream, struct value *document,
                                             bson_error_t *error),
                        void (*release)(struct stream *stream));
void truce__stream_free(struct stream *stream);
struct spill_options truce__stage_spill(const struct aggregate_environment *environment,
                                        const struct query_context *context);

/* ---- stages --------------------------------------------------------------------------------- */

struct stage;

/* States whether a stage is a $limit or a $skip. The data of both is a struct count_stage. */
enum stage_counts {
    STAGE_COUNTS_NOT,
    STAGE_LIMIT,
    STAGE_SKIP,
};

struct stage_kind {
    /* Makes one document of one, in streams and in update pipelines. If NULL, `open` is used. The
     * result lives in context->arena or in the document. */
    truce_status (*apply)(const void *data, struct value document, struct query_context *context,
                          struct value *result, bson_error_t *error);
    /* Opens a stream on `input`, which the stream owns on success. If NULL, `apply` is used. */
    truce_status (*open)(const void *data, const struct stage_run *run, struct stream *input,
                         struct stream **stream, bson_error_t *error);
    void (*free)(void *data);
    /* Returns whether the stage leaves this field of each document unchanged, so that a filter that
     * reads only such fields may move before the stage. NULL means never (aggregate_match.c). */
    bool (*keeps)(const void *data, const char *field, uint32_t length);
    /* Returns the path before the stage whose value is at `path` after it, so that a filter by
     * that value may move before the stage. The value may be missing there where it is null
     * after the stage. `*length` is the length of the part of `path` that the result replaces.
     * NULL means never. */
    const char *(*takes)(const void *data, const char *path, size_t *length);
    /* For a stage that passes its input through and appends other documents ($unionWith): returns
     * the address of their pipeline, which is NULL if they are not filtered or changed. A filter
     * may move before the stage if it is also added to the end of that pipeline. NULL for any other
     * stage. */
    struct pipeline **(*inner)(void *data);
    /* Returns the filter of a $match, or NULL if the stage is not a $match. */
    const bson_t *(*filter)(const void *data);
    enum stage_counts counts;
    /* `apply` may drop a document, by returning a missing value ($redact). */
    bool drops;
};

struct stage {
    const struct stage_kind *kind;
    void *data;
    /* The range of the given stages from which this one was made. */
    uint32_t from, to;
};

struct pipeline {
    /* The stages, as given. */
    bson_t *source;
    struct stage *stages;
    uint32_t count, room;
    bool is_update;
};

enum stage_context {
    CONTEXT_TOP,
    CONTEXT_UPDATE,
    CONTEXT_FACET,
    CONTEXT_LOOKUP,
    CONTEXT_UNION,
};

struct stage_table;

struct stage_parser {
    /* The stages that exist. */
    const struct stage_table *table;
    struct pipeline *pipeline;
    /* The names of the variables that expressions may use, or NULL. */
    const char *const *variables;
    enum stage_context context;
    /* The number of pipelines around this one. */
    uint32_t depth;
    /* The number of the current stage, and of the first given stage from which its compiled stage
     * is made. */
    uint32_t number, from;
    /* The current stage is the first. */
    bool first;
    /* The current stage is the last. */
    bool last;
};

/* Adds a stage to the pipeline. Takes ownership of `data`. */
void truce__stage_push(struct stage_parser *parser, const struct stage_kind *kind, void *data);
/* Inserts a stage before stage number `at`. Takes ownership of `data`. */
void truce__stage_insert(struct stage_parser *parser, uint32_t at, const struct stage_kind *kind,
                         void *data);

/* Removes the last stage and returns its data, if it was given directly before the current one, is
 * of that kind, and `wanted` returns true; else returns NULL. */
void *truce__stage_pop(struct stage_parser *parser, const struct stage_kind *kind,
                       bool (*wanted)(const void *data));
/* Removes a stage, which the caller then owns. */
struct stage truce__stage_take(struct stage_parser *parser, uint32_t at);

/* Returns the filter of a $match, or NULL if the stage is another one. */
const bson_t *truce__stage_filter(const struct stage *stage);

typedef truce_status stage_parse_function(struct stage_parser *parser, struct value argument,
                                          bson_error_t *error);

/* A stage by its name. */
struct stage_name {
    const char *name;
    /* The parser, or NULL if the stage is refused with `refusal` in the message. */
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

/* The stages that make one document of one (aggregate_project.c). */
stage_parse_function truce__stage_project;
stage_parse_function truce__stage_set;
stage_parse_function truce__stage_unset;
stage_parse_function truce__stage_replace_root;
stage_parse_function truce__stage_replace_with;
stage_parse_function truce__stage_redact;

stage_parse_function truce__stage_match; /* In aggregate_match.c. */
/* Joins adjacent filters. Called when all stages are parsed. */
truce_status truce__stages_join_filters(struct stage_parser *parser, bson_error_t *error);

/* The stages that select or reorder documents (aggregate_sort_limit.c and others). */
stage_parse_function truce__stage_limit;
stage_parse_function truce__stage_skip;
stage_parse_function truce__stage_sample;
stage_parse_function truce__stage_sort;
stage_parse_function truce__stage_unwind;

stage_parse_function truce__stage_documents; /* In aggregate_documents.c. */
/* Returns in `own` whether `stages`, the pipeline within a stage, begins with $documents.
 * `collection`, which the stage names (missing: none), must be missing then, and must be given
 * otherwise. */
truce_status truce__stage_own_documents(const char *stage, struct value stages,
                                        struct value collection, bool *own, bson_error_t *error);

/* aggregate_group.c, aggregate_bucket.c */
stage_parse_function truce__stage_group;
stage_parse_function truce__stage_count;
stage_parse_function truce__stage_sort_by_count;
stage_parse_function truce__stage_bucket;
stage_parse_function truce__stage_bucket_auto;

/* aggregate_lookup.c, aggregate_graph_lookup.c, aggregate_union_with.c, aggregate_facet.c,
 * aggregate_write.c */
stage_parse_function truce__stage_lookup;
stage_parse_function truce__stage_graph_lookup;
stage_parse_function truce__stage_union_with;
stage_parse_function truce__stage_facet;
stage_parse_function truce__stage_out;
stage_parse_function truce__stage_merge;

/* ---- pipelines within pipelines ------------------------------------------------------------- */

/* Compiles the array `stages` for the stage that `outer` parses. For a pipeline that is in no
 * other, `outer` has only a table. */
truce_status truce__pipeline_compile(const struct stage_parser *outer, struct value stages,
                                     const char *const *variables, enum stage_context context,
                                     struct pipeline **pipeline, bson_error_t *error);
/* Opens the stages from `first` on over `input`. On failure `input` is freed. */
truce_status truce__pipeline_stack(const struct pipeline *pipeline, uint32_t first,
                                   const struct stage_run *run, struct stream *input,
                                   struct stream **output, bson_error_t *error);
/* Returns a stream of the source's documents, which owns the source. */
struct stream *truce__stream_of_source(const struct stage_run *run, struct source *source);
/* Opens the documents of a collection, or those that match `filter`. */
truce_status truce__stream_of_collection(const struct stage_run *run, const char *collection,
                                         const bson_t *filter, struct stream **stream,
                                         bson_error_t *error);
/* Returns the filter with which the pipeline starts, or NULL. */
const bson_t *truce__pipeline_first_filter(const struct pipeline *pipeline);

/* ---- stages that the planner may take over -------------------------------------------------- */

extern const struct stage_kind truce__sort_kind;

struct sort_stage {
    struct sort sort;
    bson_t *specification;
};

/* The data of $limit and $skip. */
struct count_stage {
    int64_t count;
};

/* Opens a $sort on an ordered source (aggregate_ordered.c). */
struct stream *truce__stream_sort_ordered(const struct stage_run *run, struct stream *input,
                                          const struct sort *sort);

/* ---- helpers for parsing -------------------------------------------------------------------- */

struct expression;

/* An option of a stage, and where its value goes. The last option has no name. */
struct stage_option {
    const char *name;
    struct value *value;
};
/* Reads the options of the document `argument`. Refuses an unknown option with `code`; the message
 * lists the options. */
truce_status truce__stage_options(const char *stage, uint32_t code, struct value argument,
                                  const struct stage_option *options, bson_error_t *error);

/* Refuses an argument with `code`. `rule` says what is expected; the message adds the value. */
truce_status truce__stage_refuse(uint32_t code, struct value value, const char *rule,
                                 bson_error_t *error);

/* Returns the string of `value`; NULL if `value` is not a string. */
const char *truce__stage_text(struct value value, size_t *length);
bson_t *truce__stage_copy(struct value document);
/* Parses a string as the path of a field. */
truce_status truce__stage_path(struct value value, struct path *path, bson_error_t *error);

/* Sets `value` at the path in *document, through documents only: a value on the way that is not a
 * document becomes one. A missing value removes the field. The result lives in the arena. */
truce_status truce__document_with(struct arena *arena, struct value *document,
                                  const struct path *path, struct value value, bson_error_t *error);

/* ---- shared by $lookup and $unionWith ----- */

bool truce__filter_uses_expression(struct value filter);

#endif
