#ifndef TRUCE_SERVER_COMMAND_READ_REQUEST_H
#define TRUCE_SERVER_COMMAND_READ_REQUEST_H

/* What find, count, distinct and aggregate ask, as their fields say it. */
#include "server/command/call.h"

#define FIRST_BATCH 101 /* as MongoDB: small questions end with their first answer */

struct question_find {
    const bson_t *filter, *sort, *projection, *hint, *let;
    const bson_t *min, *max; /* that no view takes, ... */
    int64_t skip, limit, batch;
    bool one_batch, disk;
    bool no_timeout, partial, keys, record_id; /* ... nor these */
    truce_find_options options;                /* of it */
};

struct question_count {
    const bson_t *query, *hint;
    int64_t skip, limit;
    truce_count_options options;
};

struct question_distinct {
    const char *key;
    const bson_t *query, *hint;
};

struct question_aggregate {
    const bson_t *pipeline, *cursor, *hint, *let;
    bool disk, explain, unvalidated;
    int64_t batch;
    const char *name; /* of the collection, as the client knows it */
    char place[PLACE_MAX];
    const bson_t *shown; /* its pipeline, with that of the view that it reads */
    truce_aggregate_options options;
};

/* Each reads the command of the call. The variables of `let` hold from here on (call_let). */
truce_status question_find(struct call *call, struct question_find *find, bson_error_t *error);
truce_status question_count(struct call *call, struct question_count *count, bson_error_t *error);
truce_status question_distinct(struct call *call, struct question_distinct *distinct,
                               bson_error_t *error);
truce_status question_aggregate(struct call *call, struct question_aggregate *aggregate,
                                bson_error_t *error);

/* The pipeline with places for the names of collections; who calls must be allowed to read, and to write, them. Of a view it is
 * one of the collection behind it, and so are `place` and `shown` then. Lives as long as the call. */
truce_status question_pipeline(struct call *call, struct question_aggregate *aggregate,
                               const bson_t **pipeline, bson_error_t *error);

/* What a find, a count ({n}; no document: 0) and a distinct (the documents) ask of a view, as an aggregate of the collection behind
 * it: its stages stand in front. Its `pipeline` and `shown` are whole, and live as long as the call. */
truce_status question_find_of(struct call *call, const struct question_find *find,
                              const struct view_source *source,
                              struct question_aggregate *aggregate, bson_error_t *error);
void question_count_of(struct call *call, const struct question_count *count,
                       const struct view_source *source, struct question_aggregate *aggregate);
void question_distinct_of(struct call *call, const struct question_distinct *distinct,
                          const struct view_source *source, struct question_aggregate *aggregate);
/* The same, of whichever of the three the call's command is. */
truce_status question_of_view(struct call *call, const struct view_source *source,
                              struct question_aggregate *aggregate, bson_error_t *error);

/* {batchSize} of a command's `cursor` (NULL: not given); *most is left as it is where there is none. */
truce_status question_batch(struct call *call, const bson_t *cursor, int64_t *most,
                            bson_error_t *error);

#endif
