#ifndef TRUCE_SERVER_COMMAND_READ_REQUEST_H
#define TRUCE_SERVER_COMMAND_READ_REQUEST_H

/* The fields of find, count, distinct, and aggregate. */
#include "server/call/call.h"

/* The size of the first batch, as in MongoDB. A result of at most 101 documents needs no
 * getMore. */
#define FIRST_BATCH 101

struct find_request {
    const bson_t *filter, *sort, *projection, *hint, *let;
    /* Options that no view supports. */
    const bson_t *min, *max;
    int64_t skip, limit, batch;
    bool one_batch, disk;
    /* Further options that no view supports. */
    bool no_timeout, partial, keys, record_id;
    /* Options of the store's read. */
    truce_find_options options;
};

struct count_request {
    const bson_t *query, *hint;
    int64_t skip, limit;
    truce_count_options options;
};

struct distinct_request {
    const char *key;
    const bson_t *query, *hint;
};

struct aggregate_request {
    const bson_t *pipeline, *cursor, *hint, *let;
    bool disk, explain, unvalidated;
    int64_t batch;
    /* The collection's name, as the client knows it. */
    const char *name;
    char stored_name[STORED_NAME_MAX];
    /* The pipeline, with the stages of the view that it reads, as clients wrote them. */
    const bson_t *shown;
    truce_aggregate_options options;
};

/* These functions read the command of the call. The variables of `let` apply from then on
 * (call_let). */
truce_status request_read_find(struct call *call, struct find_request *find, bson_error_t *error);
truce_status request_read_count(struct call *call, struct count_request *count,
                                bson_error_t *error);
truce_status request_read_distinct(struct call *call, struct distinct_request *distinct,
                                   bson_error_t *error);
truce_status request_read_aggregate(struct call *call, struct aggregate_request *aggregate,
                                    bson_error_t *error);

/* Returns the pipeline with the store's names of collections. The user must be allowed to read or
 * write them. If the aggregate reads a view, the pipeline, `stored_name`, and `shown` are those of
 * the collection under the view. The pipeline lives as long as the call. */
truce_status request_pipeline(struct call *call, struct aggregate_request *aggregate,
                              const bson_t **pipeline, bson_error_t *error);

/* These functions convert a read of a view to an aggregate of its collection, whose first stages
 * are those of the view. For a count, the aggregate returns {n}, or no document if the count is 0;
 * for a distinct, it returns the documents. `pipeline` and `shown` live as long as the call. */
truce_status request_find_of_view(struct call *call, const struct find_request *find,
                                  const struct view_source *source,
                                  struct aggregate_request *aggregate, bson_error_t *error);
void request_count_of_view(struct call *call, const struct count_request *count,
                           const struct view_source *source, struct aggregate_request *aggregate);
void request_distinct_of_view(struct call *call, const struct distinct_request *distinct,
                              const struct view_source *source,
                              struct aggregate_request *aggregate);
/* Does the same for the command of the call, which is a find, a count, or a distinct. */
truce_status request_of_view(struct call *call, const struct view_source *source,
                             struct aggregate_request *aggregate, bson_error_t *error);

/* Reads {batchSize} from a command's option `cursor`, which may be NULL. Without the field, *most
 * stays unchanged. */
truce_status request_batch(struct call *call, const bson_t *cursor, int64_t *most,
                           bson_error_t *error);

#endif
