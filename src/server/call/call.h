#ifndef TRUCE_SERVER_CALL_CALL_H
#define TRUCE_SERVER_CALL_CALL_H

/* A call: one command of a client, from its fields to its reply. */
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "operations/request_fields.h"
#include "server/auth/access.h"
#include "server/call/shared_state.h"
#include "server/net/wire_protocol.h"
#include "server/session/retryable_writes.h"
#include "server/session/sessions.h"
#include "store/namespace_map.h"

struct operation_row;

/* The fields of a command that name its session, its transaction, or its retryable write. */
struct call_session {
    bool given, start, autocommit;
    /* `autocommit` was given: the command belongs to a transaction. */
    bool transaction;
    uint8_t id[SESSION_ID_BYTES];
    /* txnNumber, or -1 if it is not given. */
    int64_t number;
    /* stmtId of the first statement. */
    int32_t statement;
    /* stmtIds, or NULL if it is not given. */
    const bson_t *statements;
};

/* Details of error 361. */
struct uuid_mismatch {
    const char *database, *expected;
    /* NULL if no collection of the database has the UUID. */
    const char *actual;
    uint8_t uuid[16];
};

struct call {
    struct server *server;
    struct connection *connection;
    const struct wire_request *request;
    const struct command *command;
    /* The value of the command's own field: "students" in {find: "students"}. */
    bson_iter_t value;
    char database[DATABASE_NAME_MAX + 1];
    /* The store that the command uses: the server's, its transaction, or its snapshot. */
    truce_store *store;
    /* The transaction that owns the cursors that the command opens and reads, or 0 if none
     * exists. */
    int64_t owner;
    struct call_session session;
    /* The retryable write that the command is; NULL if it is not a retryable write. */
    struct retryable *retryable;
    /* A statement of the command was refused. The command itself succeeds, and its reply has the
     * error. */
    bool refused;
    /* The outcome of the commit is unknown. */
    bool unknown;
    /* The command reads a change stream. */
    bool follows;
    /* Size of the error messages of its statements so far. */
    size_t error_bytes;
    /* Time that the command waited at the client's request; not part of its own duration. */
    int64_t waited_ns;
    /* maxTimeMS, or 0 if none exists. */
    uint32_t deadline_ms;
    /* readConcern: {level: "snapshot"}, and its atClusterTime (0 if none exists). */
    bool snapshot;
    uint64_t time;
    /* The registered snapshot that the command reads, or NULL if none exists. */
    struct registered_snapshot *read_snapshot;
    /* The client asked not to wait for the disk. */
    bool relaxed;
    /* wtimeout of its write concern, or 0 if none exists. */
    int64_t concern_ms;
    /* readConcern is majority or linearizable. */
    bool majority;
    /* The answer waits for the sync target, as that of a write. */
    bool awaits_sync_target;
    /* errorLabels and writeConcernError that a fail point puts into the reply, or NULL if none
     * exists. */
    const bson_t *labels, *concern;
    /* The views that its stages read, or NULL if none exists. */
    struct aliases *aliases;
    /* The call holds the lock on the names of collections (collection_uuid.h). */
    bool holds_names;
    /* Details of error 361, or NULL if none exists. */
    const struct uuid_mismatch *mismatch;
    /* Memory that is released when the call ends. */
    struct arena arena;
};

/* ---- commands -------------------------------------------------------------------------------- */

enum command_traits {
    /* It is in MongoDB's stable API, version 1. */
    COMMAND_STABLE = 1 << 0,
    /* It may run in a transaction. */
    COMMAND_TRANSACTS = 1 << 1,
    /* It is a write that clients may send again (retryable_writes.h). */
    COMMAND_RETRIES = 1 << 2,
    /* It accepts collectionUUID. */
    COMMAND_HAS_UUID = 1 << 3,
    /* It drops collections. */
    COMMAND_DROPS = 1 << 4,
    /* It changes the names of collections, so it runs alone among calls with a collectionUUID. */
    COMMAND_CHANGES_NAMES = 1 << 5,
    /* It reads views. */
    COMMAND_READS_VIEWS = 1 << 6,
    /* It creates or drops views, or refuses each statement on a view by itself. */
    COMMAND_CHECKS_VIEWS = 1 << 7,
    /* It changes no document, whatever access it needs. */
    COMMAND_KEEPS_DOCUMENTS = 1 << 8,
    /* The client program names itself in it (hello). */
    COMMAND_NAMES_CLIENT = 1 << 9,
};

struct command {
    const char *name;
    /* Fills the reply without `ok`. If the command fails, the reply is discarded. */
    truce_status (*run)(struct call *call, bson_t *reply, bson_error_t *error);
    enum server_counted counted;
    /* The access that the caller needs (access.h). */
    struct need need;
    /* Bits of enum command_traits. */
    uint32_t traits;
    /* A summary for listCommands; NULL means another spelling of a command. */
    const char *help;
    /* Appends the fields that a failed operation of the patterns has besides MongoDB's; NULL means
     * a command of MongoDB. */
    void (*append_error)(const struct call *call, truce_status status, uint32_t code,
                         bson_t *reply);
};

/* All commands of a server. The server gets the table when it starts, so that no file below it
 * depends on the handlers. */
struct command_table {
    /* MongoDB's commands; a name of NULL ends them. */
    const struct command *commands;
    /* Returns the command of an operation of the patterns (operations/operation.h). */
    const struct command *(*of_operation)(const struct operation_row *row);
    /* Returns the command of any kind with this name, or NULL if none exists. */
    const struct command *(*find)(const char *name);
};

/* ---- options that every command may have (call_options.c) ------------------------------------ */

/* Reads $db, the session, the deadline, and the concerns from the request into the call, and
 * checks them. */
truce_status call_read_options(struct call *call, bson_error_t *error);
/* Returns whether the client allows only commands of the stable API (apiStrict). */
bool call_is_strict(const struct call *call);
/* Reads {id: UUID}. The server knows the user, so `uid` is ignored. Fails with TypeMismatch (14),
 * InvalidUUID (207), 40414, or 40415 for another form. */
truce_status call_read_lsid(struct call_session *session, const bson_iter_t *value,
                            bson_error_t *error);
/* Refuses a field of an option, or of a stage, that is not one of the names, with this code. A
 * misspelled one would have no effect. */
truce_status call_check_name(uint32_t code, const char *option, const bson_iter_t *field,
                             const char *const *names, bson_error_t *error);
/* Computes the server's id of a session: with a login it depends on the user, too, so users
 * cannot use each other's sessions. */
void call_session_id(const struct call *call, const uint8_t given[SESSION_ID_BYTES],
                     uint8_t id[SESSION_ID_BYTES]);

/* ---- the sync target (call_archive_sync.c) --------------------------------------------------- */

/* Waits until the sync target works, if the call may write. Fails with LOCKED. */
truce_status call_archive_sync_ready(struct call *call, bson_error_t *error);
/* Does the same for an operation that turns out to write, before it does. */
truce_status call_archive_sync_write(struct call *call, bson_error_t *error);
/* Waits until the sync target has the commits that the answer depends on. Returns the status of
 * the answer: `status`, or UNKNOWN with an error. The answers of MongoDB's writes keep their status
 * and get a writeConcernError. */
truce_status call_archive_sync_wait(struct call *call, truce_status status, bson_error_t *error);

/* ---- errors (call_error.c) ------------------------------------------------------------------- */

/* Returns an error message with the names that the client knows: "school.students" for the place
 * "@school.students". The string lives as long as the call. */
const char *call_message(struct call *call, const char *message);
/* Appends errmsg. For duplicate keys and refused documents, the message and its extra fields are
 * MongoDB's. */
void call_append_message(struct call *call, bson_t *reply, const bson_error_t *error);
/* Appends {ok: 0, errmsg, code, codeName}, and errorLabels, of a command that failed. */
void call_append_error(struct call *call, bson_t *reply, truce_status status,
                       const bson_error_t *error);
/* Appends the errorLabels of `code`, which show a driver whether to retry. `concern` means that the
 * command succeeded, but its write concern was not satisfied. */
void call_append_labels(const struct call *call, bson_t *reply, uint32_t code, bool concern);
/* Appends the fields of error 361: the collection, its UUID, and the collection that has the
 * UUID. */
void call_append_mismatch(const struct uuid_mismatch *mismatch, bson_t *reply);
/* Returns MongoDB's code for the error of a store. */
uint32_t call_code(truce_status status, const bson_error_t *error);

/* ---- fields (call_fields.c) ------------------------------------------------------------------ */

/* Copies a value of FIELD_VALUE into `holder`, which the caller destroys, and sets `at` to it,
 * for the three functions above. */
void call_value_iter(const bson_value_t *value, bson_t *holder, bson_iter_t *at);

/* Reads the fields of `document` into `into`. With `skip`, the document is a command: its first
 * field and the common options are skipped. Fails with TypeMismatch (14), 40413 for a repeated
 * field, 40415 for an unknown field, and 323 for an unstable field of a strict call. */
truce_status call_fields(struct call *call, const bson_t *document, const struct field *fields,
                         bool skip, void *into, bson_error_t *error);
/* Reads the fields of the command itself. */
truce_status call_own_fields(struct call *call, const struct field *fields, void *into,
                             bson_error_t *error);
/* Checks that the command has no fields but its own and those that every command may have. */
truce_status call_no_fields(struct call *call, bson_error_t *error);

/* Sets the variables ({name: expression}, or NULL if none exists) of all expressions that the
 * command compiles after this. */
truce_status call_let(struct call *call, const bson_t *let, bson_error_t *error);

/* Returns a view of the bytes that lives as long as the call. */
const bson_t *call_view(struct call *call, const uint8_t *bytes, uint32_t size);
const bson_t *call_view_of(struct call *call, const bson_iter_t *iter);

/* Converts the collection that the command's own field names to its place in the store. */
truce_status call_place(struct call *call, char place[PLACE_MAX], bson_error_t *error);
/* Converts another collection of the database. */
truce_status call_place_of(struct call *call, const char *collection, char place[PLACE_MAX],
                           bson_error_t *error);
/* Returns "school.students". */
const char *call_namespace(struct call *call, const char *collection);

/* The documents of a command ("documents", "updates"), from an array in it or from sections after
 * it. */
struct documents {
    const bson_t **all;
    uint32_t count;
};

truce_status call_documents(struct call *call, const char *name, struct documents *documents,
                            bson_error_t *error);

#endif
