#ifndef TRUCE_ENGINE_DOCUMENTS_QUERY_H
#define TRUCE_ENGINE_DOCUMENTS_QUERY_H

/*
 * A query: a filter with everything that is needed to run it, for reads (in one snapshot) and for
 * writes (inside the write transaction).
 */
#include "engine/documents/document_store.h"
#include "engine/documents/scan.h"
#include "query/sort/sort.h"

/* The value of a filter that is {_id: value} and nothing else, one that only equals itself, or a
 * missing one. */
struct value truce__only_id(const bson_t *filter);

/* A filter, compiled. Most filters name one _id: those are looked up without a plan, and are not
 * compiled where all that they ask for besides are plain values (match_plain.h). */
struct selector {
    struct match *match; /* NULL: not compiled; then `plain` is the filter, the caller's */
    const bson_t *plain;
    struct buffer id_key; /* the key of the _id that it asks for; empty: it does not */
};

/* The filter stays the caller's, and there. `whole`: there is a `match` in any case, for a hint,
 * an upsert or a projection. */
truce_status truce__selector_init(const bson_t *filter, bool whole, struct selector *selector,
                                  bson_error_t *error);
void truce__selector_release(struct selector *selector);

/* ---- documents put aside -------------------------------------------------------------------- */

struct gathered {
    int64_t row;
    struct match_result match;
    bson_t *document; /* NULL: not kept */
};

struct gather {
    bool rows_only; /* documents are not kept */
    struct gathered *items;
    size_t count, room;
    struct gathered first; /* `items` may be this: a gather is not copied */
    bson_t first_document;
};

void truce__gather_release(struct gather *gather);

/* To bytes, for a sorter, and back; `found` then borrows from `packed`. */
void truce__found_pack(const struct found *found, struct buffer *packed);
void truce__found_unpack(const void *packed, uint32_t size, struct found *found);

/* ---- inside the write transaction ----------------------------------------------------------- */

/* What a write changes: the first documents (limit 0: all) that match, in the order of the sort. */
struct selection {
    const struct selector *selector;
    const bson_t *sort, *hint;
    int64_t limit;
    int64_t examined_max; /* entries and documents looked at, then LIMIT; 0: as many as it takes */
    bool keep;            /* documents, and not only their rows */
};

/* `gather` is initialised here and released by the caller, also on failure. With a limit of 1 the
 * document is kept in any case. */
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
    struct reader *reader; /* in the snapshot, in a slot of the pool or entered; or NULL */
    struct snapshot
        *snapshot; /* where the snapshot is kept; NULL: not yet, or that of the engine */
    bool ran;      /* a first part of it */
    bool early;    /* what is found need not be durable */
    int64_t table;
};

/* Compiles and plans, in the snapshot that all runs are in: run or release it at once. The
 * collection need not exist. `goal`: PLAN_COUNT for truce__query_count. */
truce_status truce__query_init(struct query *query, struct engine *engine, const char *collection,
                               const bson_t *filter, const truce_find_options *options,
                               enum plan_goal goal, bson_error_t *error);
void truce__query_release(struct query *query);

/* What it asked of the plan, of its collection. */
struct plan_request truce__query_request(const struct query *query,
                                         const struct collection *collection,
                                         const truce_find_options *options, enum plan_goal goal);

/* Gives matching documents to `take` until it has enough, all were seen (query->done), or it is
 * time to look around. Then run it again, or pause or release it at once. EXPIRED: the snapshot
 * was ended. */
truce_status truce__query_run(struct query *query, scan_take_function *take, void *arg,
                              bson_error_t *error);

/* The same until `take` has enough or all were seen, with the help of other threads where that
 * pays (ahead.c). `take` is called by this thread, for the same documents in the same order, and
 * then there is an error if there is one without help. */
truce_status truce__query_run_all(struct query *query, scan_take_function *take, void *arg,
                                  bson_error_t *error);

/* Into the snapshot, where query->reader is then, or out of it and in again: for who reads in
 * parts by himself. */
truce_status truce__query_enter(struct query *query, bson_error_t *error);

/* Before the caller is gone for a while: the snapshot is kept, if `more` shall be run, or ended. */
truce_status truce__query_pause(struct query *query, bool more, bson_error_t *error);

/* How many match behind the first `skip`, up to `limit` (0: all). */
truce_status truce__query_count(struct query *query, int64_t skip, int64_t limit, int64_t *count,
                                bson_error_t *error);

/* The same of a count that is known. */
int64_t truce__count_cut(int64_t count, const truce_find_options *options);

/* Does it come in the order of options->sort by itself? */
bool truce__query_sorted(const struct query *query);

#endif
