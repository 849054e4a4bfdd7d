#ifndef TRUCE_PATTERNS_SYNC_SYNC_H
#define TRUCE_PATTERNS_SYNC_SYNC_H

/* What the files of copies share. The contract is in truce/sync.h; the essay in sync.c. */
#include <pthread.h>

#include "base/limits.h"
#include "base/status.h"
#include "bson/value.h"
#include "commit/journal.h"
#include "store/care.h"
#include "truce/sync.h"

#define SYNC_FLAG      "syncing"      /* in a master */
#define SYNC_REVISION  "syncRevision" /* in a master */
#define SYNC_COPIED    "synced"       /* in a dependent: {rule: revision} */
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

/* The rules as they are kept, read again when they are SYNC_FRESH_MS old. Give them back. */
truce_status truce__sync_rules(truce_sync *sync, struct sync_rules **rules, bson_error_t *error);
void truce__sync_rules_leave(truce_sync *sync, struct sync_rules *rules);
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
    int64_t read_ns; /* when */
};

truce_status truce__sync_usable(const truce_sync *sync, bson_error_t *error);

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
/* 0: it has none. */
int64_t truce__sync_revision(const bson_t *master);
/* Of the master that a dependent's copies are of; -1: none is told. */
int64_t truce__sync_copied(const struct sync_rule *rule, const bson_t *dependent);
/* Of a change of the master; LIMIT: there is none after it. */
truce_status truce__sync_next(const bson_t *master, int64_t least, int64_t *next,
                              bson_error_t *error);
/* Appends to `set` and `unset`: the copies of `master`, and its revision. */
void truce__sync_append_copies(const struct sync_rule *rule, const bson_t *master, bson_t *set,
                               bson_t *unset);
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
/* What is compared by every copy (S2), appended: the reference, the revision, no intent. */
void truce__sync_append_guard(const struct sync_rule *rule, const bson_t *master, bson_t *filter);
/* An update that may land twice; made again while it is not answered. */
truce_status truce__sync_write(struct sync_work *work, const char *collection, const bson_t *filter,
                               const bson_t *update, bool multi, int64_t *matched,
                               bson_error_t *error);
/* The write of a copy, for one or for many; of a rule that feeds others two of them, one each time. */
truce_status truce__sync_copy(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *master, const bson_t *which, int64_t *matched,
                              bson_error_t *error);

#define SYNC_BULK 500

/* Copies of one dependent each, that are sent together. */
struct sync_bulk {
    uint32_t count;
    truce_write writes[SYNC_BULK];
    truce_write_outcome outcomes[SYNC_BULK];
    bool copied[SYNC_BULK]; /* out: it is, by this write */
};

/* Of a rule that feeds none. */
void truce__sync_bulk_add(struct sync_bulk *bulk, const struct sync_rule *rule,
                          const bson_t *dependent, const bson_t *master);
/* Which failed is seen in `copied`, and why by a copy alone. */
void truce__sync_bulk_write(struct sync_work *work, struct sync_bulk *bulk);

/* ---- sync_settle.c: flags ---- */

/* Every dependent of the master, if it carries a flag. */
truce_status truce__sync_settle_master(struct sync_work *work, const char *collection,
                                       const bson_value_t *id, bson_error_t *error);
/* The dependent, if it carries a flag. */
truce_status truce__sync_settle_dependent(struct sync_work *work, const char *collection,
                                          const bson_value_t *id, bson_error_t *error);
truce_status truce__sync_settle(struct sync_work *work, const char *collection,
                                const bson_value_t *id, bson_error_t *error);
/* One dependent by one rule, as its master is now. */
truce_status truce__sync_bring_up(struct sync_work *work, const struct sync_rule *rule,
                                  const bson_t *dependent, bson_error_t *error);
/* The same by every rule. */
truce_status truce__sync_bring_up_by_all(struct sync_work *work, const char *collection,
                                         const bson_t *dependent, bson_error_t *error);
/* A fresh flag and a revision above `least`, on a master as it was read. *done false: it changed since. */
truce_status truce__sync_touch(struct sync_work *work, const char *collection, const bson_t *master,
                               int64_t least, bool *done, bson_error_t *error);

#endif
