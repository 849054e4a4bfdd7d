#ifndef TRUCE_OPERATIONS_OPERATION_H
#define TRUCE_OPERATIONS_OPERATION_H

/*
 * The table of operations: every pattern as a request document and a reply document.
 *
 *     {truceSet: "students", key: {...}, add: {...}, seq: 1} -> {status: "ok", outcome: "applied"}
 *
 * A row describes one operation: its name, its fields, its reply, the role that it needs, where it
 * may run, an example, and the function that runs it. The library (truce_command), the wire
 * protocol, HTTP, {truceHelp: ...}, and docs/commands.md are derived from the rows. The function
 * calls the library; it contains nothing of the pattern itself.
 *
 * Invariants:
 *  1. A field that the row does not name, and a number or word that it does not allow, is refused
 *     by name before the store is asked for anything.
 *  2. An operation runs on the view of its database (store/decorators/database_view.h). So all its
 *     documents, and all names (a queue, a sequence, a key), belong to that database.
 *  3. The reply contains `status`, the name of the library's status, also in an error. NOT_FOUND is
 *     a result (ok: 1) with its `reason`, except in operations that are all or nothing
 *     (OPERATION_STRICT); every other status except OK is an error.
 *  4. Only operations that say so run in a transaction or as a part of a commit.
 */
#include "base/limits.h"
#include "base/nearest_word.h"
#include "base/status.h"
#include "base/time_check.h"
#include "operations/request_fields.h"
#include "operations/shared_handles.h"
#include "truce/truce.h"

/* The permission that the caller needs. */
enum operation_role {
    ROLE_NONE,
    /* The caller must be allowed to read, or to write, in the database. */
    ROLE_READ,
    ROLE_WRITE,
    /* The caller must be allowed to see the state of the whole store, or to maintain it. */
    ROLE_MONITOR,
    ROLE_MAINTAIN,
};

enum operation_ways {
    /* The operation may be part of a driver's transaction. */
    OPERATION_TRANSACTS = 1,
    /* Repeating the operation after an unknown outcome does no harm. */
    OPERATION_REPEATABLE = 2,
    /* NOT_FOUND is an error, not a result. */
    OPERATION_STRICT = 4,
    /* The operation may be part of truceCommit. */
    OPERATION_COMMITS = 8,
    /* The operation writes or not, depending on its fields, and checks the role itself before it
     * writes. */
    OPERATION_WRITES = 16,
};

struct operation_field {
    struct field field;
    const char *help;
    /* The bounds of a number. If both are 0, any number is valid. */
    int64_t least, most;
    bool needed;
    /* The words that are valid for a string, followed by NULL. NULL means that any string is
     * valid. */
    const char *const *words;
    /* The type of an array's elements. 0 means strings. */
    enum field_type each;
};

/* The empty list of fields. */
extern const struct operation_field truce__no_fields[];

struct operation_call;

struct operation_row {
    const char *name;
    enum operation_role role;
    const char *help;
    /* The name of the operation's first field outside of the wire protocol: {queue: "mail"} is
     * {truceEnqueue: "mail"} there. NULL means that its value is 1. */
    const char *target;
    /* The target may be absent. Its value is 1 then. */
    bool optional;
    /* The value of that field, for people: "the queue". */
    const char *value;
    /* The fields of the reply besides `status`, for people. */
    const char *answer;
    const struct operation_field *fields;
    /* The size of the struct into which the fields are read. */
    size_t size;
    truce_status (*run)(struct operation_call *call, const void *given, bson_t *reply,
                        bson_error_t *error);
    /* Bits of enum operation_ways. */
    int ways;
    const char *example;
};

struct operation_group {
    const char *title;
    /* The group's name in metrics. */
    const char *word;
    /* The rows, followed by NULL. */
    const struct operation_row *const *rows;
};

/* The front end that runs an operation for a caller. */
struct operation_host {
    /* Checks that the caller has the role. */
    truce_status (*check_role)(const struct operation_call *call, enum operation_role role,
                               bson_error_t *error);
    /* Checks that the caller may read or write the collection of the database, and that it is
     * not a view. */
    truce_status (*check_collection)(const struct operation_call *call, const char *collection,
                                     bool writes, bson_error_t *error);
    /* Returns whether the caller no longer waits for the reply. */
    bool (*is_gone)(const struct operation_call *call);
    /* Returns a message with the names that the caller knows. It lives as long as the call. */
    const char *(*message)(const struct operation_call *call, const char *message);
    /* Called before and after a recovery pass over the store. */
    void (*sweep)(const struct operation_call *call, bool begins);
};

/* One operation, from its request to its reply. The front end sets the first part. */
struct operation_call {
    const struct operation_row *row;
    const struct operation_host *host;
    void *host_arg;
    /* Finds an operation in a list of changes by its name (truce__operation_named). */
    const struct operation_row *(*find)(const char *name);
    struct handles *handles;
    /* The whole store, or a transaction on it. */
    truce_store *whole;
    bool transaction;
    /* The database whose collections have the store's own names, and the database of the call. */
    const char *own_database, *database;
    const bson_t *request;
    /* The value of the operation's first field. */
    bson_iter_t target;
    /* The deadline of the call in ms, or 0 for no deadline. */
    uint32_t deadline_ms;
    /* The caller does not wait for the disk. */
    bool relaxed;
    struct arena *arena;

    /* The view of the database. */
    truce_store *store;
    struct handle *view;
    /* The commit that the operation is part of, or NULL if the operation commits by itself. */
    truce_commit *commit;
    /* With a commit: the objects to free after its end. */
    struct operation_cleanup **cleanups;
    /* The fields that the reply has if the call fails, or NULL. A part of a commit shares the
     * pointer of the whole call. */
    const bson_t **details;
    /* The time that the call has waited because its caller asked for it. */
    int64_t waited_ns;
};

/* A title of NULL ends the table. */
extern const struct operation_group truce__operation_groups[];

/* Returns the row of that name, or NULL. */
const struct operation_row *truce__operation_named(const char *name);
/* Offers the operations as candidates for a mistyped name: "truceEnque", or "enque" of a
 * package. */
void truce__operation_nearest(struct nearest_word *nearest);
/* Runs the operation call->row. */
truce_status truce__operation_run(struct operation_call *call, bson_t *reply, bson_error_t *error);
/* Sets the fields that the reply has if the call fails. */
void truce__operation_detail(const struct operation_call *call, const bson_t *fields);
/* Appends `status` and labels to the reply of a failed operation. `code` is the code of the
 * reply. */
void truce__operation_append_error(const struct operation_row *row, truce_status status,
                                   uint32_t code, bool transaction, bson_t *reply);
/* Returns the class of a code (docs/errors.md). */
truce_status truce__class_of_code(uint32_t code);
/* Returns the class of an error in a reply: "not authorized" for that code, else the status's
 * name. */
const char *truce__class_name(truce_status status, uint32_t code);
/* Returns the name of a field's type: "string", "document", ... */
const char *truce__operation_type(const struct operation_field *field);

/* ---- for the files of the operations ------------------------------------------------------ */

/* Returns the string in the operation's first field. Fails with TypeMismatch if the field has
 * another type. */
truce_status truce__operation_text(struct operation_call *call, const char **text,
                                   bson_error_t *error);
/* Does the same if the string is optional. If the client sends a number, {truceX: 1}, sets *text to
 * NULL. */
truce_status truce__operation_optional_text(struct operation_call *call, const char **text,
                                            bson_error_t *error);
/* Checks that the caller may read (`writes`: write) the collection, and that it is not a view. */
truce_status truce__operation_collection(struct operation_call *call, const char *collection,
                                         bool writes, bson_error_t *error);
/* Does the same for the collection that the operation's first field names. Returns its name,
 * borrowed. */
truce_status truce__operation_own_collection(struct operation_call *call, bool writes,
                                             const char **collection, bson_error_t *error);
/* Returns whether the request has the field with a value other than null. */
bool truce__operation_given(const struct operation_call *call, const char *field);
/* Reads a document within the request, such as an entry of an array. */
truce_status truce__operation_fields(struct operation_call *call, const bson_t *document,
                                     const struct field *fields, void *into, bson_error_t *error);
/* Does the same for fields with bounds and words. */
truce_status truce__operation_nested(struct operation_call *call, const bson_t *document,
                                     const struct operation_field *rows, void *given,
                                     bson_error_t *error);
/* Puts "record 17: " in front of the error of an element of the request. Returns the status. */
truce_status truce__operation_element(truce_status status, const char *what, int64_t number,
                                      bson_error_t *error);
/* Returns the ObjectId in the operation's first field. Fails with TypeMismatch if the field has
 * another type. */
truce_status truce__operation_oid(struct operation_call *call, const bson_oid_t **id,
                                  bson_error_t *error);
/* Returns the index of the word in a list that NULL ends, 0 if the word is NULL, or -1 if the list
 * lacks the word. */
int truce__operation_choice(const char *word, const char *const *words);
/* Returns the key of an object of the library: its kind, and its options, each a string or NULL.
 * Objects with different options have different keys. The caller frees it by bson_free. */
char *truce__operation_key(const char *kind, const char *const *options, size_t count);
/* Returns an object of the library that is made on call->store. All calls of the database share
 * the object of a key. If the key is NULL, or in a transaction, the object is for the call
 * alone. */
struct handle *truce__operation_handle(struct operation_call *call, const char *key,
                                       handle_maker *make, void *arg, void (*free)(void *thing));
void truce__operation_return(struct operation_call *call, struct handle *handle);
/* Frees an object by `free`, which must accept NULL if the object may be NULL. If the operation is
 * part of a commit, frees it after the end of the commit. */
void truce__operation_end(struct operation_call *call, void (*free)(void *thing), void *thing);
/* Adds the operation of a request to the commit. `number` is its position in the list of
 * changes, from 1. Appends the reply. Every status except OK ends the commit, also NOT_FOUND. */
truce_status truce__operation_add(const struct operation_call *outer, int number,
                                  const bson_t *request, truce_commit *commit,
                                  struct operation_cleanup **cleanups, bson_t *reply,
                                  bson_error_t *error);
/* Checks that the request is an operation that may be part of a commit, and that the caller has
 * its role. */
truce_status truce__operation_check_part(const struct operation_call *outer, int number,
                                         const bson_t *request, bson_error_t *error);
/* Frees what operations have kept for the commit. */
void truce__operation_release(const struct operation_call *outer,
                              struct operation_cleanup *cleanups);

/* A list of changes (patterns/change_list/change_list.h) whose elements may also be operations. */
struct operation_changes {
    struct operation_call *call;
    const bson_t *changes;
    /* The array of results of the operations: {change: N, ...}, where N counts all changes from
     * 1. */
    bson_t results;
    struct operation_cleanup *cleanups;
};

/* Prepares the list; the caller releases it in any case. Fails if a change is not valid. */
truce_status truce__operation_changes_begin(struct operation_changes *list,
                                            struct operation_call *call, const bson_t *changes,
                                            bson_error_t *error);
/* Adds all changes to the commit, also in a further run of its function. */
truce_status truce__operation_changes_add(struct operation_changes *list, truce_commit *commit,
                                          bson_error_t *error);
/* Appends `results` to the reply, if there are any. */
void truce__operation_changes_append(const struct operation_changes *list, bson_t *reply);
void truce__operation_changes_release(struct operation_changes *list);

#define OPERATION(name_, role_, help_) .name = name_, .role = role_, .help = help_
#define GIVEN(type, member, kind)                                                                  \
    {                                                                                              \
#member, kind, offsetof(struct type, member)                                               \
    }

/* In operation_help.c. */
extern const struct operation_row truce_help_operation;
extern const struct operation_row *const help_operations[];
/* In operation_commit.c. */
extern const struct operation_row *const commit_operations[];
/* In operation_queue.c, operation_job.c, operation_workflow.c, and operation_cron.c. */
extern const struct operation_row *const queue_operations[],
    *const job_operations[], *const flow_operations[], *const cron_operations[];
/* In operation_document.c and operation_maintenance.c. */
extern const struct operation_row *const document_operations[], *const maintenance_operations[];
/* In operation_ledger.c. */
extern const struct operation_row *const ledger_operations[];
/* In operation_set.c. */
extern const struct operation_row *const set_operations[];
/* In operation_tree.c. */
extern const struct operation_row *const tree_operations[];
/* In operation_broker.c. */
extern const struct operation_row *const broker_operations[];
/* In operation_transfer.c. */
extern const struct operation_row *const transfer_operations[];
/* In operation_sync.c. */
extern const struct operation_row *const sync_operations[];

#endif
