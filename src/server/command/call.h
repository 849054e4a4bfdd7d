#ifndef TRUCE_SERVER_COMMAND_CALL_H
#define TRUCE_SERVER_COMMAND_CALL_H

/* One command of a client, from its fields to its reply. */
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "operations/fields.h"
#include "server/auth/access.h"
#include "server/command/state.h"
#include "server/net/wire.h"
#include "server/session/retryable_writes.h"
#include "server/session/sessions.h"
#include "store/namespace_map.h"

/* What a command says of the session that it is of. */
struct call_session {
    bool given, start, autocommit, transaction; /* transaction: autocommit stands there */
    uint8_t id[SESSION_ID_BYTES];
    int64_t number;           /* txnNumber; -1: none */
    int32_t statement;        /* stmtId: of the first statement */
    const bson_t *statements; /* stmtIds; NULL: none */
};

struct call {
    struct server *server;
    struct connection *connection;
    const struct wire_request *request;
    const struct command *command;
    bson_iter_t value; /* of the command's own field: {find: "students"} */
    char database[DATABASE_NAME_MAX + 1];
    truce_store *store; /* that it reads and writes: the server's, or its transaction */
    int64_t owner;      /* of the cursors that it opens and reads: its transaction; 0: none */
    struct call_session session;
    struct kept *kept;                    /* what its statements do is kept; NULL: it is not */
    bool refused;                         /* a statement of it was */
    bool unknown;                         /* nobody knows whether it was committed */
    bool follows;                         /* it is of a change stream */
    size_t told_bytes;                    /* of errors of its statements */
    int64_t waited_ns;                    /* for what others were to do, as its client asked */
    uint32_t deadline_ms;                 /* maxTimeMS; 0: none */
    bool snapshot;                        /* readConcern: {level: "snapshot"} ... */
    uint64_t time;                        /* ... and its atClusterTime; 0: none */
    struct past *past;                    /* that it reads; NULL: none */
    bool relaxed;                         /* the client asked not to wait for the disk */
    const bson_t *labels, *concern;       /* of its reply, by a fail point; NULL: none */
    struct aliases *aliases;              /* views that its stages read; NULL: none */
    bool holds_names;                     /* of collections (same_collection.h) */
    const struct uuid_mismatch *mismatch; /* with 361: what has which uuid */
    struct arena arena;                   /* released at the end */
};

struct command {
    const char *name;
    /* Fills the reply but for `ok`; what it has put there is thrown away if it fails. */
    truce_status (*run)(struct call *call, bson_t *reply, bson_error_t *error);
    enum server_counted counted;
    struct need need; /* what who calls it must be allowed (access.h) */
    const char *help;
};

/* commands.c: NULL as name ends it */
extern const struct command server_commands[];
/* NULL: there is none */
const struct command *server_command(const char *name);

/* Answers the request; `reply` is initialised, whatever comes. */
void call_run(struct connection *connection, const struct wire_request *request, bson_t *reply);

/* Is it one of MongoDB's stable API, version 1? */
bool call_is_stable(const struct command *command);
/* Does its client allow nothing but that (apiStrict)? */
bool call_is_strict(const struct call *call);

/* Runs the command, in the transaction that it is of (serve_session.c). */
truce_status call_in_session(struct call *call, bson_t *reply, bson_error_t *error);

/* Reads {id: UUID}. TypeMismatch (14), InvalidUUID (207), or 40414 for another form. */
truce_status call_read_lsid(struct call_session *session, const bson_iter_t *value,
                            bson_error_t *error);
/* The id of a session as the server knows it: with a user, of that user alone. */
void call_session_id(const struct call *call, const uint8_t given[SESSION_ID_BYTES],
                     uint8_t id[SESSION_ID_BYTES]);

/* The sentence of an error with the names that the client knows: "school.students" for the place
 * "@school.students". Lives as long as the call. */
const char *call_sentence(struct call *call, const char *message);
/* Appends that as errmsg; where a key is taken, or a validator refused a document, MongoDB's words and its fields. */
void call_append_sentence(struct call *call, bson_t *reply, const bson_error_t *error);
/* {ok: 0, errmsg, code, codeName}, and errorLabels, of a command that failed. */
void call_append_error(struct call *call, bson_t *reply, truce_status status,
                       const bson_error_t *error);
/* What a driver is to do about that code; `concern`: the command was done, and its write concern was not satisfied. */
void call_append_labels(const struct call *call, bson_t *reply, uint32_t code, bool concern);
/* MongoDB's code for what a call of the store answered. */
uint32_t call_code(truce_status status, const bson_error_t *error);

/* ---- fields --------------------------------------------------------------------------------- */

/* Puts a value of FIELD_VALUE into `holder`, which the caller destroys, and `at` onto it, for the functions of operations/fields.h. */
void call_value_iter(const bson_value_t *value, bson_t *holder, bson_iter_t *at);

/* Reads the fields of `document` into `into`. `skip`: its first field is the command's own, and those that
 * every command may have are passed over. TypeMismatch (14); 40413 for a field that is given twice, 40415 for one that
 * is not in the table, 323 for one that is not stable, if the call is strict. */
truce_status call_fields(struct call *call, const bson_t *document, const struct field *fields,
                         bool skip, void *into, bson_error_t *error);
/* The same of the command itself. */
truce_status call_own_fields(struct call *call, const struct field *fields, void *into,
                             bson_error_t *error);

/* The variables of the command ({name: expression}; NULL: none), for all that it compiles from here on. */
truce_status call_let(struct call *call, const bson_t *let, bson_error_t *error);

/* A view that lives as long as the call. */
const bson_t *call_view(struct call *call, const uint8_t *bytes, uint32_t size);
const bson_t *call_view_of(struct call *call, const bson_iter_t *iter);

/* The place of the collection that the command's own field names. */
truce_status call_place(struct call *call, char place[PLACE_MAX], bson_error_t *error);
/* The same for another name of the database. */
truce_status call_place_of(struct call *call, const char *collection, char place[PLACE_MAX],
                           bson_error_t *error);
/* "school.students" */
const char *call_namespace(struct call *call, const char *collection);

/* Documents of a command that stand in an array of its own or behind it ("documents", "updates"). */
struct documents {
    const bson_t **all;
    uint32_t count;
};

truce_status call_documents(struct call *call, const char *name, struct documents *documents,
                            bson_error_t *error);

#endif
