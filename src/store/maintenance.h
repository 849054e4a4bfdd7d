#ifndef TRUCE_STORE_MAINTENANCE_H
#define TRUCE_STORE_MAINTENANCE_H

/*
 * What a part of truce (the commit, a pattern) gives to those who look after a store: a step of the
 * sweep, rules of the check. src/maintenance/registry.c is the table of all of them; a new pattern is one line
 * there.
 *
 * One thing that cannot be mended is told and stops nothing else: a step tells it by
 * truce__sweep_failed, a rule by a finding, and both go on with the next document. A status other than OK
 * is for a store that cannot be read at all.
 */
#include "base/status.h"
#include "truce/sweep.h"

/* ---- the sweep ---- */

struct sweep {
    truce_store *store;
    const truce_sweep_options *options; /* never NULL */
    truce_sweep_report *report;
    uint32_t batch;    /* documents of a kind in one round */
    int64_t cutoff_ms; /* what ended before that is purged; INT64_MIN: nothing */
};

/* Tells the sweep's caller that this document could not be mended, and why. */
void truce__sweep_failed(struct sweep *sweep, const char *collection, const bson_value_t *id,
                         truce_status status, const bson_error_t *reason);

typedef truce_status sweep_function(struct sweep *sweep, const char *collection,
                                    const bson_t *document, void *arg, bson_error_t *error);

/* Calls for each document that matches until a batch was mended, and sets report->more if there were so many.
 * The documents are gathered first: the function changes them. A document whose function fails is told
 * (but for LOCKED: somebody is at work on it, or it is not its time), passed over and not counted, so
 * nobody behind it is kept waiting. OK is for what does not match any more. */
truce_status truce__sweep_each(struct sweep *sweep, const char *collection, const bson_t *filter,
                               sweep_function *function, void *arg, bson_error_t *error);

/* ---- the check ---- */

struct check {
    truce_store *store;
    bool repair;
    truce_finding_function *function;
    void *arg;
    truce_check_report *report;
};

struct finding {
    const char *rule, *collection, *text, *repair;
    const bson_value_t *id;   /* NULL: of the collection, not of a document */
    const bson_oid_t *commit; /* NULL: none */
};

void truce__check_tell(struct check *check, const struct finding *finding, bool repaired);

typedef truce_status check_function(struct check *check, const char *collection,
                                    const bson_t *document, void *arg, bson_error_t *error);

/* Calls for each document that matches. A document whose function fails is a finding by the name of
 * "unchecked", and the walk goes on. */
truce_status truce__check_each(struct check *check, const char *collection, const bson_t *filter,
                               check_function *function, void *arg, bson_error_t *error);

/*
 * A check that needs other documents looks for those of CARE_BATCH documents at once: a message for each document would
 * make the check of a server take as many round trips. Sets suspect[i] of each document that the function has to look
 * at; the function reads again what it needs, so a suspicion may be wrong.
 */
#define CARE_BATCH 500
typedef truce_status suspect_function(struct check *check, bson_t *const *documents, uint32_t count,
                                      bool *suspect, void *arg, bson_error_t *error);

/* As truce__check_each, for the suspects only. If `find` fails, all of its documents are suspects. */
truce_status truce__check_suspects(struct check *check, const char *collection,
                                   const bson_t *filter, suspect_function *find,
                                   check_function *function, void *arg, bson_error_t *error);

/* Ids that documents refer to, and the numbers of these documents in their batch. */
struct care_links {
    bson_t ids; /* array */
    uint32_t *owners;
    uint32_t count;
};

void truce__care_link(struct care_links *links, const bson_value_t *id, uint32_t owner);
/* Suspects each owner of an id of which `to` has no document that matches `filter`. Releases the links. */
truce_status truce__care_follow(struct check *check, const char *to, const bson_t *filter,
                                struct care_links *links, bool *suspect, bson_error_t *error);

/* What the store itself keeps: its line of the table in src/maintenance/registry.c. */
truce_status truce__store_check(struct check *check, bson_error_t *error);

/* ---- both ---- */

typedef truce_status collection_function(void *arg, const char *collection, bson_error_t *error);

/* Calls the function for each collection until one call fails. It skips the collections that are
 * reserved for a server, such as admin's system.users: no operation accepts their names. */
truce_status truce__each_collection(truce_store *store, collection_function *function, void *arg,
                                    bson_error_t *error);

/* Borrowed from the document; null: it has none. */
bson_value_t truce__document_id(const bson_t *document);

/*
 * What looks after a store does so for each of its databases (store/decorators/database.h). A finding in another database
 * than the own one names it: {ns: "school.students"} for the students of school.
 */
struct care_teller {
    void (*function)(const bson_t *finding, void *arg); /* NULL: nothing is told */
    void *arg;
    const char *database; /* "": the own one */
    const char *field;    /* of a finding, with a name of the database: "ns" */
};

/* A truce_finding_function; `arg` is the struct care_teller. */
void truce__care_tell(const bson_t *finding, void *arg);

/* ---- a line of the table ---- */

typedef truce_status sweep_step(struct sweep *sweep, bson_error_t *error);
typedef truce_status check_rules(struct check *check, bson_error_t *error);

struct care {
    const char *name;
    bool whole;         /* it is about the store, not about each of its databases */
    sweep_step *sweep;  /* one bounded round; NULL: nothing to recover */
    check_rules *check; /* looks at all of it, mends where check->repair; NULL: no rules */
};

#endif
