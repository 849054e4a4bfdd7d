#ifndef TRUCE_SERVER_PATTERN_PATTERN_COMMAND_H
#define TRUCE_SERVER_PATTERN_PATTERN_COMMAND_H

/*
 * The patterns as commands: {truceSet: "students", key: {...}, add: {...}, seq: 1001}.
 *
 * One row says all of a command: what its fields are, of which type, how large, and what they mean; who may send it, and
 * where; an example. The check of what a client sends, {truceHelp: ...} and docs/commands.md are made of the row. What
 * a command does is the call of the library that its file names: nothing of a pattern is done here.
 *
 * Invariants:
 *  1. What the row does not name is refused by its name, and so is a number that is beyond what the row allows, before
 *     the store is asked for anything.
 *  2. A command works on the view of the database that it was sent to (call->view, store/decorators/database.h), so all
 *     that it keeps there, and each name of it (a queue, a sequence, a key), is of that database alone.
 *  3. The reply has `status`, the name of what the call of the library answered, also in an error. NOT_FOUND is an answer
 *     (ok: 1) but of what is all or none, all else but OK an error.
 *  4. In a transaction only those run that say so.
 */
#include "server/command/call.h"
#include "server/pattern/handles.h"

struct pattern_field {
    struct field field;
    const char *help;
    int64_t least, most; /* of a number; both 0: any */
    bool needed;
};

enum pattern_ways {
    PATTERN_TRANSACTS = 1, /* it may be a part of a transaction */
    PATTERN_AGAIN = 2,     /* to send it again does no harm, whatever became of it */
    PATTERN_STRICT = 4,    /* NOT_FOUND is an error of it, too */
};

struct pattern {
    struct command command; /* first */
    const char *value;      /* what its own field is, for people: "COLLECTION" */
    const char *answer;     /* what the reply has besides `status` */
    const struct pattern_field *fields;
    size_t size; /* of what the fields are read into */
    truce_status (*run)(struct call *call, const void *given, bson_t *reply, bson_error_t *error);
    int ways;            /* enum pattern_ways */
    const char *example; /* as it is typed */
};

struct pattern_group {
    const char *title, *word;              /* word: in the metrics */
    const struct pattern *const *patterns; /* NULL after the last */
};

/* pattern_command.c; a title of NULL ends it */
extern const struct pattern_group pattern_groups[];

/* NULL: there is none of that name. */
const struct pattern *pattern_named(const char *name);
/* The pattern of a command; NULL: it is another command. */
const struct pattern *pattern_of(const struct command *command);
/* The command of every pattern. */
truce_status pattern_run(struct call *call, bson_t *reply, bson_error_t *error);
/* To the reply that says that it failed. */
void pattern_append_error(const struct pattern *pattern, truce_status status, bool transaction,
                          bson_t *reply);
/* "text", "document" ... */
const char *pattern_type(const struct pattern_field *field);

/* ---- for the files of the commands ------------------------------------------------------------ */

/* The text of the command's own field; TypeMismatch if it is none. */
truce_status pattern_text(struct call *call, const char **text, bson_error_t *error);
/* Refuses a collection of the database that the client may not write (`writes`) or read, or that is a view. */
truce_status pattern_collection(struct call *call, const char *collection, bool writes,
                                bson_error_t *error);
/* The same of the collection that the command's own field names, borrowed. */
truce_status pattern_own_collection(struct call *call, bool writes, const char **collection,
                                    bson_error_t *error);
/* The same for the changes of a commit (struct written_guard). */
truce_status pattern_guard(void *call, const char *collection, bool reads, bson_error_t *error);
/* A thing of the library that is made on call->view, shared by all calls of the database with this key; of a NULL key, or in a
 * transaction, one for the call alone. */
struct handle *pattern_handle(struct call *call, const char *key, handle_maker *make, void *arg,
                              void (*free)(void *thing));
void pattern_give(struct call *call, struct handle *handle);
/* The rows of a command: its name, what it needs of the database, its help. */
#define PATTERN(name_, actions_, help_)                                                            \
    .command = {name_, pattern_run, COUNTED_COMMAND, {NEED_DATABASE, actions_}, help_}
#define READS  ACTION_FIND
#define WRITES (ACTION_FIND | ACTION_WRITE)
#define GIVEN(type, member, kind)                                                                  \
    {                                                                                              \
#member, kind, offsetof(struct type, member)                                               \
    }

/* pattern_help.c */
extern const struct pattern truce_help_pattern;
/* pattern_commit.c */
extern const struct pattern *const commit_patterns[];
/* pattern_queue.c, pattern_job.c */
extern const struct pattern *const queue_patterns[], *const job_patterns[];
/* pattern_document.c, pattern_care.c */
extern const struct pattern *const document_patterns[], *const care_patterns[];
/* pattern_ledger.c */
extern const struct pattern *const ledger_patterns[];
/* pattern_set.c */
extern const struct pattern *const set_patterns[];
/* pattern_tree.c */
extern const struct pattern *const tree_patterns[];
/* pattern_transfer.c */
extern const struct pattern *const transfer_patterns[];
/* pattern_sync.c */
extern const struct pattern *const sync_patterns[];

#endif
