#ifndef TRUCE_STORE_DECORATORS_DECORATOR_H
#define TRUCE_STORE_DECORATORS_DECORATOR_H

/*
 * A decorator is a store that wraps a store. This file has what all decorators share.
 *
 * Each call of a verb below becomes a struct decorated_call and goes to the one function of the
 * decorator's kind. That function runs it on the inner store (truce__decorated_run), once or not at
 * all, and returns the result. Other operations are forwarded directly: settling, facts,
 * validators, images, examining, compacting, counters, interrupting, and closing.
 *
 * The decorator has the inner store's name and capabilities, except TRUCE_CAN_CHECK. It takes over
 * the inner store and closes it.
 */
#include "truce/sys/store.h"

enum decorated_verb {
    VERB_FIND,
    /* One step of a cursor of a find or an aggregate. */
    VERB_NEXT,
    VERB_COUNT,
    VERB_DISTINCT,
    VERB_AGGREGATE,
    VERB_EXPLAIN,
    VERB_READ_MANY,
    VERB_SNAPSHOT,
    VERB_BULK,
    VERB_FIND_AND_MODIFY,
    VERB_REWRITE,
    VERB_INDEX_CREATE,
    VERB_INDEX_DROP,
    VERB_INDEX_MODIFY,
    VERB_INDEX_LIST,
    VERB_COLLECTION_CREATE,
    VERB_COLLECTION_DROP,
    VERB_COLLECTION_RENAME,
    VERB_COLLECTION_VALIDATE,
    VERB_COLLECTION_LIST,
    VERB_WAIT,
    /* An operation that the server runs. */
    VERB_COMMAND,
};

struct decorator;

struct decorated_cursor {
    /* Must be the first field. */
    truce_cursor base;
    struct decorator *decorator;
    truce_cursor *inner;
    char *collection;
    /* The number of the cursor, from 1, in the order in which cursors of the store were opened. */
    uint64_t number;
};

/* The arguments of a call. Arguments that a verb does not have are zero. Out parameters are as in
 * the backend's table (truce/sys/store.h). */
struct decorated_call {
    enum decorated_verb verb;
    /* The collection, or NULL if the call has none or several. */
    const char *collection;
    /* A path, the name of an index, or the new name of a collection. */
    const char *text;
    const bson_t *filter;
    /* A pipeline, an update, an index, a validator, or a request. */
    const bson_t *document;
    /* explain: the plan of a count is requested. rename: the target is dropped. command: the
     * operation writes. */
    bool flag;
    union {
        /* The options of find, and of explain. */
        const truce_find_options *find;
        const truce_count_options *count;
        const truce_aggregate_options *aggregate;
        const truce_modify_options *modify;
        const truce_bulk_options *bulk;
        const truce_snapshot_options *snapshot;
        const truce_list_options *list;
    } how;
    const truce_write *writes;
    truce_read_request *requests;
    /* The number of writes or reads. */
    size_t number;
    truce_rewrite *rewrite;
    uint32_t timeout_ms;
    /* The cursor of VERB_NEXT. */
    struct decorated_cursor *at;

    truce_cursor **cursor;
    const bson_t **next;
    /* The result, which is initialized when the call has run. */
    bson_t *answer;
    int64_t *count;
    truce_write_outcome *outcomes;
    truce_write_result *result;
    uint64_t *token;
    truce_store **view;
};

struct decorator_kind {
    truce_status (*call)(struct decorator *decorator, const struct decorated_call *call,
                         bson_error_t *error);
    /* Frees the data of the decorator's kind. */
    void (*release)(struct decorator *decorator);
    /* Wraps the view of a snapshot, which it takes over, or NULL if views are not decorated. */
    truce_store *(*wrap_view)(struct decorator *decorator, truce_store *view);
};

/* The base of every decorator. */
struct decorator {
    /* Must be the first field. */
    truce_store base;
    truce_store_ops ops;
    const struct decorator_kind *kind;
    truce_store *inner;
    /* The number of cursors that were opened so far. */
    uint64_t cursors;
};

void truce__decorator_init(struct decorator *decorator, const struct decorator_kind *kind,
                           truce_store *inner);

/* Returns the name of the verb. */
const char *truce__decorated_name(const struct decorated_call *call);
/* Returns the name of a kind of write: "insert", "require_missing", and so on. */
const char *truce__write_name(truce_write_kind kind);
/* Returns whether the call may write. */
bool truce__decorated_writes(const struct decorated_call *call);

/* Runs the call on the inner store. A cursor that it opens is decorated. */
truce_status truce__decorated_run(struct decorator *decorator, const struct decorated_call *call,
                                  bson_error_t *error);

#endif
