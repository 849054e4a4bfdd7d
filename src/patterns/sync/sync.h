#ifndef TRUCE_PATTERNS_SYNC_SYNC_H
#define TRUCE_PATTERNS_SYNC_SYNC_H

/* What the files of copies share. The contract is in truce/sync.h; the essay in sync.c. */
#include <pthread.h>

#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/maintenance.h"
#include "truce/sync.h"

#define SYNC_FLAG      "syncing"      /* in a source */
#define SYNC_REVISION  "syncRevision" /* in a source */
#define SYNC_ORIGIN    "syncOrigin"   /* in a source: a token of this incarnation */
#define SYNC_COPIED    "synced"       /* in a copy: {rule: {source, origin, revision}}, the stamp */
#define SYNC_UNCHECKED "unchecked"    /* in a dependent */

/* ---- sync_rule.c ---- */

struct sync_rule {
    bson_t kept; /* the document; what follows borrows from it */
    const char *name, *master, *dependent, *reference;
    bson_t copies;
    char copied[sizeof SYNC_COPIED + 1 + SYNC_NAME_MAX]; /* "synced.NAME" */
    uint32_t resume_ms;
    bool feeds; /* what it copies is copied on */
};

struct sync_rules {
    uint32_t holders, count;
    struct sync_rule rules[SYNC_RULES_MAX];
};

/* NULL: there is none. */
const struct sync_rule *truce__sync_rule(const struct sync_rules *rules, const char *name);

/* ---- sync.c ---- */

struct truce_sync {
    truce_store *store;
    truce_sync_options options;
    bool refused;
    bson_error_t refusal;
    pthread_mutex_t mutex; /* of what follows */
    struct sync_rules *rules;
    int64_t read_ns;    /* when */
    uint64_t structure; /* of the store, before they were read; 0: never */
};

/* What one call has at hand. */
struct sync_work {
    truce_sync *sync;
    struct sync_rules *rules;
    struct worker worker;
    int64_t copies;
    int64_t begun_ns; /* for the rate */
};

truce_status truce__sync_begin(truce_sync *sync, struct sync_work *work, bson_error_t *error);
void truce__sync_end(struct sync_work *work);

/* ---- sync_copy.c: values and single writes ---- */

/* The value at a path of documents; missing: there is none. */
struct value truce__sync_at(const bson_t *document, const char *path);
/* The master that a dependent refers to; false: to none. Borrowed. */
bool truce__sync_reference(const struct sync_rule *rule, const bson_t *dependent, bson_value_t *id);
/* INVALID: an array lies on a path of the rule, in a document of its collection; NULL: none is looked at. */
truce_status truce__sync_check_arrays(const struct sync_rule *rule, const bson_t *dependent,
                                      const bson_t *master, bson_error_t *error);
/* 0: truce has not numbered this source. */
int64_t truce__sync_revision(const bson_t *master);
/* Is the stamp of the dependent of this source, and of this incarnation of it? */
bool truce__sync_same(const struct sync_rule *rule, const bson_t *dependent, const bson_t *master);
/* The revision of the stamp; -1: it has none. To be compared for the same source only. */
int64_t truce__sync_copied(const struct sync_rule *rule, const bson_t *dependent);
/* Does the dependent need nothing of that source? It has its revision, or a later one, or refers to another source. */
bool truce__sync_is_up(const struct sync_rule *rule, const bson_t *dependent, const bson_t *master);
/* May the source be copied to the dependent as it is? Else it is numbered first (S8). */
bool truce__sync_may_copy(const struct sync_rule *rule, const bson_t *dependent,
                          const bson_t *master);
/* Of a change of the master; LIMIT: there is none after it. */
truce_status truce__sync_next(const bson_t *master, int64_t least, int64_t *next,
                              bson_error_t *error);
/* Appends to `set`: the number, and the token of a new incarnation to a source without one. */
void truce__sync_append_number(const bson_t *master, int64_t number, bson_t *set);
/* Do the copies equal the master's fields? */
bool truce__sync_equal(const struct sync_rule *rule, const bson_t *dependent, const bson_t *master);
bool truce__sync_token(const bson_t *document, const char *flag);
/* {$set, $unset} with a fresh _rev; empty ones are left out. Takes both over. */
void truce__sync_operators(bson_t *set, bson_t *unset, bson_t *update);
/* {_id, flag: as it is in the document} -> flag away. *off: it is. */
truce_status truce__sync_take_off(struct sync_work *work, const char *collection,
                                  const bson_t *document, const char *flag, bool *off,
                                  bson_error_t *error);
/* Those that refer to the master, and to no other. */
void truce__sync_append_reference(const struct sync_rule *rule, const bson_value_t *master,
                                  bson_t *filter);
/* Those that refer to the master and are not up, appended. */
void truce__sync_append_behind(const struct sync_rule *rule, const bson_t *master, bson_t *filter);
/* An update that may land twice; made again while it is not answered. */
truce_status truce__sync_write(struct sync_work *work, const char *collection, const bson_t *filter,
                               const bson_t *update, bool multi, int64_t *matched,
                               bson_error_t *error);
/* The write of a copy, for one or for many; of a rule that feeds others two of them, one each time. `seen`: the one
 * dependent, read before its master was; NULL: only those without a stamp, or with one of this master, are written. */
truce_status truce__sync_copy(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *master, const bson_t *seen, const bson_t *which,
                              int64_t *matched, bson_error_t *error);

#define SYNC_BULK 500

/* Copies of one dependent each, that are sent together. */
struct sync_bulk {
    uint32_t count;
    truce_write writes[SYNC_BULK];
    truce_write_outcome outcomes[SYNC_BULK];
    bool copied[SYNC_BULK]; /* out: it is, by this write */
};

/* Of a rule that feeds none; the dependent was read before its master, and may have it (truce__sync_may_copy). */
void truce__sync_bulk_add(struct sync_bulk *bulk, const struct sync_rule *rule,
                          const bson_t *dependent, const bson_t *master);
/* Which failed is seen in `copied`, and why by a copy alone. */
void truce__sync_bulk_write(struct sync_work *work, struct sync_bulk *bulk);

/* ---- sync_reconcile.c: flags ---- */

/* Every dependent of the master, if it carries a flag. */
truce_status truce__sync_settle_master(struct sync_work *work, const char *collection,
                                       const bson_value_t *id, bson_error_t *error);
truce_status truce__sync_settle(struct sync_work *work, const char *collection,
                                const bson_value_t *id, bson_error_t *error);
/* One dependent by one rule, as its master is now. The master is read after it. */
truce_status truce__sync_bring_up(struct sync_work *work, const struct sync_rule *rule,
                                  const bson_t *dependent, bson_error_t *error);
/* The same by every rule. */
truce_status truce__sync_bring_up_by_all(struct sync_work *work, const char *collection,
                                         const bson_t *dependent, bson_error_t *error);
/* A revision above `least`, and a fresh flag if `flag`, on a master as it was read. *done false: it changed since. */
truce_status truce__sync_touch(struct sync_work *work, const char *collection, const bson_t *master,
                               int64_t least, bool flag, bool *done, bson_error_t *error);

#endif
