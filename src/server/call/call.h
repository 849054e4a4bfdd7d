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
    /* txnNumber, or -1 if the client gave none. */
    int64_t number;
    /* stmtId of the first statement. */
    int32_t statement;
    /* stmtIds, or NULL if the client gave none. */
    const bson_t *statements;
};

/* The details of error 361: the collection that the command names has another UUID. */
struct uuid_mismatch {
    const char *database, *expected;
    /* The name of the collection that has the UUID, or NULL if none in the database has it. */
    const char *actual;
    uint8_t uuid[16];
};

struct call {
    struct server *server;
    struct connection *connection;
    const struct wire_request *request;
    const struct command *command;
    /* The value of the command's first field: "students" in {find: "students"}. */
    bson_iter_t value;
    char database[DATABASE_NAME_MAX + 1];
    /* The store that the command uses: the server's, its transaction, or its snapshot. */
    truce_store *store;
    /* The transaction that owns the cursors that the command opens and reads, or 0 outside of
     * transactions. */
    int64_t owner;
    struct call_session session;
    /* The state of a retryable write, or NULL for any other command. */
    struct retryable *retryable;
    /* A statement of the command was refused. The command itself succeeds, and its reply has the
     * error. */
    bool refused;
    /* The outcome of the commit is unknown. */
    bool unknown;
    /* The command reads a change stream. */
    bool follows;
    /* The size of the error messages of the statements so far. */
    size_t error_bytes;
    /* The time that the command waited at the client's request. It does not count as duration of
     * the command. */
    int64_t waited_ns;
    /* maxTimeMS, or 0 if the client gave none. */
    uint32_t deadline_ms;
    /* readConcern is {level: "snapshot"}; `time` is its atClusterTime, or 0 if the client gave
     * none. */
    bool snapshot;
    uint64_t time;
    /* The registered snapshot that the command reads, or NULL if it reads current data. */
    struct registered_snapshot *read_snapshot;
    /* The client asked not to wait for the disk. */
    bool relaxed;
    /* wtimeout of the write concern, or 0 if the client gave none. */
    int64_t concern_ms;
    /* readConcern is majority or linearizable. */
    bool majority;
    /* The command may write, so its reply waits for the sync target. */
    bool awaits_sync_target;
    /* The errorLabels that a fail point puts into the reply, and the writeConcernError of the
     * reply, or NULL. */
    const bson_t *labels, *concern;
    /* The views that stages of the command read, or NULL. */
    struct aliases *aliases;
    /* The call holds the lock on the names of collections (collection_uuid.h). */
    bool holds_names;
    /* The details of error 361, or NULL unless the command failed with it. */
    const struct uuid_mismatch *mismatch;
    /* The fields that an operation adds to the reply of its failure, or NULL. */
    const bson_t *details;
    /* Memory that is released when the call ends. */
    struct arena arena;
};

/* ---- commands -------------------------------------------------------------------------------- */

enum command_traits {
    /* The command is in MongoDB's stable API, version 1. */
    COMMAND_STABLE = 1 << 0,
    /* The command may run in a transaction. */
    COMMAND_TRANSACTS = 1 << 1,
    /* The command is a write that clients may send again (retryable_writes.h). */
    COMMAND_RETRIES = 1 << 2,
    /* The command accepts collectionUUID. */
    COMMAND_HAS_UUID = 1 << 3,
    /* The command drops collections. */
    COMMAND_DROPS = 1 << 4,
    /* The command changes the names of collections, so no call with a collectionUUID runs at the
     * same time. */
    COMMAND_CHANGES_NAMES = 1 << 5,
    /* The command can read views. */
    COMMAND_READS_VIEWS = 1 << 6,
    /* The command creates or drops views, or refuses each statement on a view by itself. */
    COMMAND_CHECKS_VIEWS = 1 << 7,
    /* The command changes no document, although the access that it needs would allow it. */
    COMMAND_KEEPS_DOCUMENTS = 1 << 8,
    /* The command contains the name of the client program (hello). */
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
    /* A summary for listCommands. NULL means that the row is another spelling of a command. */
    const char *help;
    /* Appends the fields that a failed operation of the patterns has besides MongoDB's; NULL means
     * a command of MongoDB. */
    void (*append_error)(const struct call *call, truce_status status, uint32_t code,
                         bson_t *reply);
};

/* All commands of a server. The server gets a pointer to the table when it starts, so the files
 * that dispatch commands do not depend on the handlers. */
struct command_table {
    /* MongoDB's commands; a name of NULL ends them. */
    const struct command *commands;
    /* Returns the command of an operation of the patterns (operations/operation.h). */
    const struct command *(*of_operation)(const struct operation_row *row);
    /* Returns the command or operation with this name, or NULL. */
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
/* Does the same as call_archive_sync_ready for an operation that has found out that it writes,
 * before it writes. */
truce_status call_archive_sync_write(struct call *call, bson_error_t *error);
/* Waits until the sync target has the commits that the reply depends on. Returns the status of the
 * reply: `status`, or if the wait failed, its status for a write (UNKNOWN), and TIMEOUT for a read.
 * MongoDB's writes over the wire protocol keep their status and get a writeConcernError instead. */
truce_status call_archive_sync_wait(struct call *call, truce_status status, bson_error_t *error);

/* ---- errors (call_error.c) ------------------------------------------------------------------- */

/* Returns an error message with the names that the client knows: "school.students" for
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

/* Copies a value of FIELD_VALUE into `holder`, which the caller destroys, and sets `at` to it, for
 * functions that take an iterator. */
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

/* Sets the variables ({name: expression}, or NULL) of all expressions that the command compiles
 * after this call. */
truce_status call_let(struct call *call, const bson_t *let, bson_error_t *error);

/* Returns a view of the bytes that lives as long as the call. */
const bson_t *call_view(struct call *call, const uint8_t *bytes, uint32_t size);
const bson_t *call_view_of(struct call *call, const bson_iter_t *iter);

/* Converts the collection that the command's first field names to its name in the store. */
truce_status call_stored_name(struct call *call, char stored_name[STORED_NAME_MAX],
                              bson_error_t *error);
/* Converts the name of another collection of the database. */
truce_status call_stored_name_of(struct call *call, const char *collection,
                                 char stored_name[STORED_NAME_MAX], bson_error_t *error);
/* Returns the namespace of a collection of the call's database, such as "school.students". */
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
