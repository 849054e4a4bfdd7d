#ifndef TRUCE_PATTERNS_SYNC_SYNC_H
#define TRUCE_PATTERNS_SYNC_SYNC_H

/* Declarations that the files of copies share. truce/sync.h has the contract; sync.c has the
 * essay. */
#include <pthread.h>

#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/maintenance.h"
#include "truce/sync.h"

/* The fields of a source; `syncOrigin` identifies its incarnation. */
#define SYNC_FLAG     "syncing"
#define SYNC_REVISION "syncRevision"
#define SYNC_ORIGIN   "syncOrigin"
/* The stamps in a dependent: {rule: {source, origin, revision}}. */
#define SYNC_COPIED "synced"
/* The flag of a dependent. */
#define SYNC_UNCHECKED "unchecked"

/* ---- rules (sync.c) ---- */

/* A rule: which fields are copied from which documents to which. */
struct sync_rule {
    /* The document of the rule. Owned; the other fields borrow from it. */
    bson_t kept;
    const char *name, *source, *dependent, *reference;
    bson_t copies;
    /* The path of the stamp in a dependent: "synced.NAME". */
    char copied[sizeof SYNC_COPIED + 1 + SYNC_NAME_MAX];
    uint32_t resume_ms;
    /* Another rule copies the copies of this rule. */
    bool feeds;
};

struct sync_rules {
    /* The number of users, of which the handle is one, and the number of rules. The last user frees
     * the rules. */
    uint32_t holders, count;
    struct sync_rule rules[SYNC_RULES_MAX];
};

/* Returns NULL if there is no such rule. */
const struct sync_rule *truce__sync_rule(const struct sync_rules *rules, const char *name);

/* ---- sync.c ---- */

/* A handle for the rules of a store. Threads may share it. */
struct truce_sync {
    truce_store *store;
    truce_sync_options options;
    /* The options are invalid; every call fails with `refusal`. */
    bool refused;
    bson_error_t refusal;
    /* Protects the fields below. The rules themselves never change. */
    pthread_mutex_t mutex;
    struct sync_rules *rules;
    /* When the rules were read, by the monotonic clock. */
    int64_t read_ns;
    /* The store's structure number plus one before they were read, or 0 if they never were. */
    uint64_t structure;
};

/* The state of one call. */
struct sync_work {
    truce_sync *sync;
    struct sync_rules *rules;
    struct worker worker;
    /* The number of copies that the call has written so far. */
    int64_t copies;
    /* When the call began, by the monotonic clock. The rate of copies is measured from then on. */
    int64_t begun_ns;
};

/* Begins a call with the current rules. Call truce__sync_end even after a failure. */
truce_status truce__sync_begin(truce_sync *sync, struct sync_work *work, bson_error_t *error);
void truce__sync_end(struct sync_work *work);

/* ---- values and single writes (sync_write.c) ---- */

/* Returns the value at a path of documents, or missing. */
struct value truce__sync_at(const bson_t *document, const char *path);
/* Finds the _id of the source to which a dependent refers; borrowed. Returns false if it refers to
 * none. */
bool truce__sync_reference(const struct sync_rule *rule, const bson_t *dependent, bson_value_t *id);
/* Returns TRUCE_INVALID if an array lies on a path of the rule, in a document of its collection.
 * A document of NULL is not checked. */
truce_status truce__sync_check_arrays(const struct sync_rule *rule, const bson_t *dependent,
                                      const bson_t *source, bson_error_t *error);
/* Returns the number of a source, or 0 if truce has not numbered this source. */
int64_t truce__sync_revision(const bson_t *source);
/* Returns whether the dependent's stamp belongs to this source and incarnation. */
bool truce__sync_same(const struct sync_rule *rule, const bson_t *dependent, const bson_t *source);
/* Returns the revision of the stamp, or -1 if there is no stamp. Compare it for the same source
 * only. */
int64_t truce__sync_copied(const struct sync_rule *rule, const bson_t *dependent);
/* Returns whether the dependent needs nothing from that source: it has its revision or a later one,
 * or refers to another source. If the source has no revision, the values must be equal. */
bool truce__sync_is_up(const struct sync_rule *rule, const bson_t *dependent, const bson_t *source);
/* Returns whether the source may be copied to the dependent as it is. If not, it is numbered first
 * (SY8). */
bool truce__sync_may_copy(const struct sync_rule *rule, const bson_t *dependent,
                          const bson_t *source);
/* Computes the next revision. Returns TRUCE_LIMIT if the maximum is reached. */
truce_status truce__sync_next(const bson_t *source, int64_t least, int64_t *next,
                              bson_error_t *error);
/* Appends the revision to `set`, and the token of a new incarnation to a source without one. */
void truce__sync_append_number(const bson_t *source, int64_t number, bson_t *set);
/* Returns whether the copies equal the source's fields. */
bool truce__sync_equal(const struct sync_rule *rule, const bson_t *dependent, const bson_t *source);
/* Appends the flag with a fresh token: {syncing: {token: ObjectId}}. */
void truce__sync_append_flag(bson_t *set, const char *flag);
/* Returns whether the flag is a token of truce's, and not a value of another program. */
bool truce__sync_token(const bson_t *document, const char *flag);
/* The size of the text "<flag>.token" with its zero byte. */
#define SYNC_TOKEN_PATH 20
/* Writes the path of the token: "syncing.token". */
void truce__sync_token_path(const char *flag, char path[SYNC_TOKEN_PATH]);
/* Builds {$set, $unset} with a new _rev, without empty operators. Takes over `set` and `unset`. */
void truce__sync_operators(bson_t *set, bson_t *unset, bson_t *update);
/* Removes a flag: {_id, flag: as read} -> without it. Sets `off` if the flag is removed. */
truce_status truce__sync_take_off(struct sync_work *work, const char *collection,
                                  const bson_t *document, const char *flag, bool *off,
                                  bson_error_t *error);
/* Makes the projection of a dependent, {reference, copies, synced, flag}, or of a source, {copied
 * fields, revision, origin, flag}. The caller destroys it. */
void truce__sync_make_projection(const struct sync_rule *rule, bool source, bson_t *projection);
/* Appends a filter for the dependents that refer to this source. */
void truce__sync_append_reference(const struct sync_rule *rule, const bson_value_t *source,
                                  bson_t *filter);
/* Appends a filter for the dependents of this source that are outdated. */
void truce__sync_append_outdated(const struct sync_rule *rule, const bson_t *source,
                                 bson_t *filter);
/* Sends an idempotent update until it gets a reply, or the deadline of the call passes. */
truce_status truce__sync_write(struct sync_work *work, const char *collection, const bson_t *filter,
                               const bson_t *update, bool multi, int64_t *matched,
                               bson_error_t *error);
/* Writes a copy to one or many dependents. A rule that feeds others needs two writes, one each
 * time. `seen` is the single dependent, read before its source. If it is NULL, writes only
 * dependents without a stamp, or with a stamp of this source. */
truce_status truce__sync_copy(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *source, const bson_t *seen, const bson_t *which,
                              int64_t *matched, bson_error_t *error);

/* The maximum number of writes in a bulk of copies. */
#define SYNC_BULK 500
/* The number of bytes from which a bulk, or a page of dependents, is complete. A single document can
 * have 16 MB. */
#define SYNC_BULK_BYTES (16 * 1024 * 1024)

/* Copies of one dependent each that are sent together. */
struct sync_bulk {
    uint32_t count;
    /* The size of the writes. */
    size_t bytes;
    truce_write writes[SYNC_BULK];
    truce_write_outcome outcomes[SYNC_BULK];
    /* Result: copied[i] is true if this bulk made copy i. */
    bool copied[SYNC_BULK];
};

/* Adds a copy of a rule that feeds no other. The dependent was read before its source, and
 * truce__sync_may_copy allows the copy. Returns whether the bulk is complete: then send it before
 * you add more. */
bool truce__sync_bulk_add(struct sync_bulk *bulk, const struct sync_rule *rule,
                          const bson_t *dependent, const bson_t *source);
/* Sends the copies. copied[i] shows which ones took effect. For the others, a single copy returns
 * the reason. */
void truce__sync_bulk_write(struct sync_work *work, struct sync_bulk *bulk);

/* ---- sync_reconcile.c: flags ---- */

/* Brings every dependent of the source up to date, if the source has a flag. */
truce_status truce__sync_reconcile_source(struct sync_work *work, const char *collection,
                                          const bson_value_t *id, bson_error_t *error);
/* Brings a document up to date as a dependent, and then its own dependents, as far as flags
 * exist. */
truce_status truce__sync_reconcile(struct sync_work *work, const char *collection,
                                   const bson_value_t *id, bson_error_t *error);
/* Brings one dependent up to date by one rule. The source is read after the dependent. */
truce_status truce__sync_bring_up(struct sync_work *work, const struct sync_rule *rule,
                                  const bson_t *dependent, bson_error_t *error);
/* Brings one dependent up to date by each of the rules. */
truce_status truce__sync_bring_up_by_all(struct sync_work *work, const char *collection,
                                         const bson_t *dependent, bson_error_t *error);
/* Raises the revision of a source above `least`. If `flag`, also sets a new flag. Does both only if
 * the source is still as it was read; otherwise sets *done to false. */
truce_status truce__sync_touch(struct sync_work *work, const char *collection, const bson_t *source,
                               int64_t least, bool flag, bool *done, bson_error_t *error);

#endif
