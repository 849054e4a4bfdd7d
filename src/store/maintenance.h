#ifndef TRUCE_STORE_MAINTENANCE_H
#define TRUCE_STORE_MAINTENANCE_H

/*
 * The interface of maintenance: each part of truce (the commit, a pattern) provides a step of the
 * sweep and rules of the check. src/maintenance/maintenance_registry.c lists them; a new pattern
 * adds one line there.
 *
 * A document that cannot be repaired is reported and stops nothing: a step reports it by
 * truce__sweep_failed, a rule by a finding, and both continue with the next document. A status
 * other than OK means that the store cannot be read at all.
 */
#include "base/status.h"
#include "truce/sweep.h"

/* ---- the sweep ---- */

struct sweep {
    truce_store *store;
    /* The options of the caller, never NULL. */
    const truce_sweep_options *options;
    truce_sweep_report *report;
    /* The maximum number of documents of a kind that one pass repairs. */
    uint32_t batch;
    /* Documents that ended before this time, in milliseconds since 1970, are purged. INT64_MIN
     * purges none. */
    int64_t cutoff_ms;
};

/* Reports a document that could not be repaired, with the reason, to the caller of the sweep. */
void truce__sweep_failed(struct sweep *sweep, const char *collection, const bson_value_t *id,
                         truce_status status, const bson_error_t *reason);

typedef truce_status sweep_function(struct sweep *sweep, const char *collection,
                                    const bson_t *document, void *arg, bson_error_t *error);

/* Calls the function for each document that matches, until a batch was repaired; then it sets
 * report->more. The documents are collected first, because the function changes them. If the
 * function fails for a document, the failure is reported (except LOCKED: another process works on
 * it, or it is too early), and the document is skipped and not counted. A document that always
 * fails therefore delays no other, until the _ids of skipped documents take SWEEP_PASSED_BYTES. IO
 * and TIMEOUT end the pass and are returned. The function returns OK for a document that no longer
 * matches. */
truce_status truce__sweep_each(struct sweep *sweep, const char *collection, const bson_t *filter,
                               sweep_function *function, void *arg, bson_error_t *error);

/* ---- the check ---- */

struct check {
    truce_store *store;
    /* Whether findings are repaired. Rules call truce__check_repairs, which also compares
     * `only`. */
    bool repair;
    /* The only finding to repair, {rule, ns, id?}, or NULL to repair all. */
    const bson_t *only;
    /* The name of the database in findings. NULL or "" means the database of the store. */
    const char *database;
    truce_finding_function *function;
    void *arg;
    truce_check_report *report;
};

struct finding {
    const char *rule, *collection, *text, *repair;
    /* The _id of the document, or NULL if the finding is about the collection. */
    const bson_value_t *id;
    /* The commit that the finding is about, or NULL. */
    const bson_oid_t *commit;
};

void truce__check_report(struct check *check, const struct finding *finding, bool repaired);
/* Returns whether the finding is to be repaired. */
bool truce__check_repairs(const struct check *check, const struct finding *finding);

typedef truce_status check_function(struct check *check, const char *collection,
                                    const bson_t *document, void *arg, bson_error_t *error);

/* Calls the function for each document that matches. If the function fails for a document, that
 * becomes the finding "unchecked", and the check continues; but IO and TIMEOUT are returned. */
truce_status truce__check_each(struct check *check, const char *collection, const bson_t *filter,
                               check_function *function, void *arg, bson_error_t *error);

/* A check that needs other documents reads those of MAINTENANCE_BATCH documents at once. With one
 * message for each document, the check of a server would take one round trip for each. The function
 * sets suspect[i] for each document that needs a closer check. That check reads the document again,
 * so a suspicion may be wrong. */
#define MAINTENANCE_BATCH 500
typedef truce_status suspect_function(struct check *check, bson_t *const *documents, uint32_t count,
                                      bool *suspect, void *arg, bson_error_t *error);

/* Does what truce__check_each does, for the suspects only. If `find` fails, all of its documents
 * are suspects; but IO and TIMEOUT are returned. */
truce_status truce__check_suspects(struct check *check, const char *collection,
                                   const bson_t *filter, suspect_function *find,
                                   check_function *function, void *arg, bson_error_t *error);

/* Ids that documents refer to, with the numbers of these documents in their batch. */
struct maintenance_links {
    /* The array of ids, and for each of them the number of the document that refers to it. */
    bson_t ids;
    uint32_t *owners;
    uint32_t count;
};

void truce__maintenance_link(struct maintenance_links *links, const bson_value_t *id,
                             uint32_t owner);
void truce__maintenance_links_release(struct maintenance_links *links);
/* Marks each document as a suspect that refers to an id for which `to` has no document that matches
 * `filter`. Releases the links. */
truce_status truce__maintenance_follow(struct check *check, const char *to, const bson_t *filter,
                                       struct maintenance_links *links, bool *suspect,
                                       bson_error_t *error);

/* Checks the store itself. This is the function of an entry in the table of
 * src/maintenance/maintenance_registry.c. */
truce_status truce__store_check(struct check *check, bson_error_t *error);

/* ---- both ---- */

typedef truce_status collection_function(void *arg, const char *collection, bson_error_t *error);

/* Calls the function for each collection until one call fails. Skips collections that are reserved
 * for a server, such as admin's system.users: no operation accepts their names. */
truce_status truce__each_collection(truce_store *store, collection_function *function, void *arg,
                                    bson_error_t *error);

/* Returns the _id, borrowed from the document, or null if it has none. */
bson_value_t truce__document_id(const bson_t *document);
/* Finds the _id of a document that was read whole. Fails with INVALID if it has none: documents of
 * a view, and only those, may lack it. */
truce_status truce__document_need_id(const char *collection, const bson_t *document,
                                     bson_iter_t *id, bson_error_t *error);

/* Maintenance runs for each database of a store (store/decorators/database_view.h). A finding
 * outside of the own database names its database: {ns: "school.students"} for the students of
 * school. */
struct maintenance_reporter {
    /* The function that receives findings, or NULL if they are not reported. */
    void (*function)(const bson_t *finding, void *arg);
    void *arg;
    /* The name of the database, or "" for the own database of the store. */
    const char *database;
    /* The field of a finding that gets the name of the database: "ns". */
    const char *field;
};

/* Reports a finding (a truce_finding_function); `arg` is the struct maintenance_reporter. */
void truce__maintenance_report(const bson_t *finding, void *arg);

/* ---- an entry of the registry ---------------------------------------------------------------- */

typedef truce_status sweep_step(struct sweep *sweep, bson_error_t *error);
typedef truce_status check_rules(struct check *check, bson_error_t *error);

struct maintenance_part {
    const char *name;
    /* The part concerns the whole store, not each of its databases. */
    bool whole;
    /* One bounded pass of the sweep, or NULL if the part has nothing to recover. */
    sweep_step *sweep;
    /* Checks everything, and repairs if check->repair is set. NULL if the part has no rules. */
    check_rules *check;
};

#endif
