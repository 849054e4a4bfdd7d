#ifndef TRUCE_ENGINE_DOCUMENTS_QUERY_H
#define TRUCE_ENGINE_DOCUMENTS_QUERY_H

/*
 * A query: a compiled filter with everything that is needed to run it, for reads (in one snapshot)
 * and for writes (inside the write transaction).
 */
#include "engine/documents/open_documents.h"
#include "engine/documents/scan.h"
#include "query/sort/sort.h"

/* Returns the value of a filter that is exactly {_id: value} with a value that only equals itself;
 * otherwise a missing value. */
struct value truce__only_id(const bson_t *filter);

/* A compiled filter. Most filters name one _id: their document is looked up without a plan. If all
 * other conditions are plain values (match_plain.h), the filter is not compiled. */
struct selector {
    /* The compiled filter, or NULL if it is not compiled. `plain` is then the filter of the
     * caller. */
    struct match *match;
    const bson_t *plain;
    /* The key of the _id in the filter. It is empty if the filter names no _id. */
    struct buffer id_key;
};

/* Initializes a selector from a filter, which belongs to the caller and must outlive the selector.
 * With `whole`, always makes `match`, for a hint, an upsert, or a projection. */
truce_status truce__selector_init(const bson_t *filter, bool whole, struct selector *selector,
                                  bson_error_t *error);
void truce__selector_release(struct selector *selector);

/* ---- gathered documents --------------------------------------------------------------------- */

struct gathered {
    int64_t row;
    struct match_result match;
    /* The document, or NULL if only the row is stored. */
    bson_t *document;
};

struct gather {
    /* Only the rows are stored, not the documents. */
    bool rows_only;
    struct gathered *items;
    size_t count, room;
    /* The item of a list with one item. `items` may point to it, so a gather must not be copied. */
    struct gathered first;
    bson_t first_document;
};

void truce__gather_release(struct gather *gather);

/* Converts a document to bytes for a sorter, and back. `found` then borrows from `packed`. */
void truce__found_pack(const struct found *found, struct buffer *packed);
void truce__found_unpack(const void *packed, uint32_t size, struct found *found);

/* ---- inside the write transaction ----------------------------------------------------------- */

/* The documents that a write changes: the first `limit` matches, or all if it is 0, in the order of
 * the sort. */
struct selection {
    const struct selector *selector;
    const bson_t *sort, *hint;
    int64_t limit;
    /* The maximum number of examined entries and documents, or 0 for no maximum. If it is exceeded,
     * the call fails with LIMIT. */
    int64_t examined_max;
    /* Whether documents are stored, and not only their rows. */
    bool keep;
};

/* Finds the documents. `gather` is initialized here and released by the caller, also on failure.
 * With a limit of 1 the document is always stored. */
truce_status truce__select(const struct selection *selection, struct writer *writer,
                           const struct collection *collection, struct query_context *context,
                           struct gather *gather, bson_error_t *error);

/* ---- in a snapshot -------------------------------------------------------------------------- */

struct query {
    struct engine *engine;
    char *collection;
    struct match *match;
    struct arena arena;
    struct budget budget;
    struct query_context context;
    struct plan plan;
    struct scan scan;
    bool done;
    /* The reader of the current part: in a slot of the pool, or in the kept snapshot that the query
     * has entered. NULL between two parts (query.c). */
    struct reader *reader;
    /* The kept snapshot. NULL before it is kept, and if the engine is a view, which has its own. */
    struct snapshot *snapshot;
    /* Whether the first part has run. */
    bool ran;
    /* Whether results may be returned before they are durable. */
    bool early;
    int64_t table;
};

/* Compiles the filter, begins the snapshot that all runs of the query read, and plans in it. The
 * query then has a reader (query->reader), so the caller runs or releases it at once. The caller
 * releases the query also after a failure. If the collection does not exist, the query is done and
 * has no reader. `goal` is PLAN_COUNT for truce__query_count. */
truce_status truce__query_init(struct query *query, struct engine *engine, const char *collection,
                               const bson_t *filter, const truce_find_options *options,
                               enum plan_goal goal, bson_error_t *error);
void truce__query_release(struct query *query);

/* Returns the request that the query made for its plan. */
struct plan_request truce__query_request(const struct query *query,
                                         const struct collection *collection,
                                         const truce_find_options *options, enum plan_goal goal);

/* Passes matching documents to `take` until `take` returns false, all were seen (query->done), or a
 * part has ended. The caller then runs the query again, or pauses or releases it at once. Fails
 * with EXPIRED if the snapshot was ended. */
truce_status truce__query_run(struct query *query, scan_take_function *take, void *arg,
                              bson_error_t *error);

/* Does the same until `take` returns false or all were seen, with the help of other threads if that
 * is useful (read_ahead.c). This thread calls `take`, for the same documents in the same order, and
 * errors are the same as without help. */
truce_status truce__query_run_all(struct query *query, scan_take_function *take, void *arg,
                                  bson_error_t *error);

/* Enters the snapshot for the next part and sets query->reader. If the query is still in the
 * snapshot from an earlier part, keeps the snapshot and leaves it first. For callers that read in
 * parts themselves. */
truce_status truce__query_enter(struct query *query, bson_error_t *error);

/* Ends the access to the file until the next call. Called before the caller pauses. Keeps the
 * snapshot if `more` is set, otherwise ends it. */
truce_status truce__query_pause(struct query *query, bool more, bson_error_t *error);

/* Counts the matches after the first `skip`, up to `limit` (0 means all). */
truce_status truce__query_count(struct query *query, int64_t skip, int64_t limit, int64_t *count,
                                bson_error_t *error);

/* Returns what is left of a count after skip and limit. */
int64_t truce__count_cut(int64_t count, const truce_find_options *options);

/* Returns whether the documents come in the order of options->sort. */
bool truce__query_sorted(const struct query *query);

#endif
