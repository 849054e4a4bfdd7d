#ifndef TRUCE_TESTS_SUPPORT_STREAMS_H
#define TRUCE_TESTS_SUPPORT_STREAMS_H

/* Change streams of a server in this process, by raw sockets. */
#include <bson/bson.h>

struct stream_of {
    /* The socket of the connection. */
    int end;
    /* The id of the cursor, or 0 after its end. */
    int64_t id;
    /* The namespace of the cursor, from the first reply. */
    char collection[60], database[60];
    /* The postBatchResumeToken of the last reply. */
    char token[100];
    /* The last reply, which the stream owns, and the name of its batch: "firstBatch" or
     * "nextBatch". Without a reply, `reply` is NULL. */
    bson_t *reply;
    const char *batch;
    /* The index of the next event in the batch. */
    int at;
};

/* Runs the command, and checks that it succeeds. */
void done(const char *json);
/* Returns the string of this name, or "" if it is missing. */
const char *text_of(const bson_t *document, const char *name);

/* Opens a stream. The name of the collection comes from the reply. `reply` is NULL if the server
 * ended before it replied. */
struct stream_of open_stream_at(int port, const char *aggregate);
struct stream_of open_stream(const char *aggregate);
/* Opens a stream of c with these options (or "") and stages (", ..." or ""). */
struct stream_of watch_c(const char *options, const char *stages);
void close_stream(struct stream_of *stream);

void ask_more(struct stream_of *stream, int batch, int wait_ms);
/* Returns the next event, in a batch of at most `batch` events; borrowed until the next call. It is
 * empty if there is no event. */
void event_of(struct stream_of *stream, int batch, int wait_ms, bson_t *event);
/* Checks that the next event has these fields; _id, clusterTime, and wallTime are left out. */
void expect_event(struct stream_of *stream, const char *json);
void expect_nothing(struct stream_of *stream);

#endif
