#ifndef TRUCE_SERVER_COMMAND_EXPLAINED_H
#define TRUCE_SERVER_COMMAND_EXPLAINED_H

/* A read of the store that is explained, and what clients are told of it in MongoDB's words (serve_explain.c). */
#include "server/command/call.h"

/* A read, and what is done with what it finds. */
struct explained {
    const char *place, *ns; /* as the store and as the client knows it */
    const bson_t *filter;
    truce_find_options options;
    bool count;
    const char *writes; /* "UPDATE", "DELETE"; NULL: it reads */
    bool executes;      /* executionStats are asked for */
    bool returns;       /* of findAndModify: a document comes back */
    bool upserts;
    int64_t modified; /* documents that an update would change; -1: it is no update */
    /* what was found */
    bson_t plan;
    int64_t took_ms;
};

/* The plan, and with `executes` what the read comes to. The caller destroys `plan`, also if it fails. */
truce_status explained_look(struct call *call, struct explained *explained, bson_error_t *error);

/* {queryPlanner} */
void explained_append_planner(const struct explained *explained, bson_t *reply);
/* {executionStats}, if it was executed. */
void explained_append_stats(const struct explained *explained, bson_t *reply);
/* {command, serverInfo}; the command without what is of the message: lsid, $db ... */
void explained_append_end(const struct call *call, bson_t *reply);

/* All of it. */
truce_status explained_tell(struct call *call, struct explained *explained, bson_t *reply,
                            bson_error_t *error);

#endif
