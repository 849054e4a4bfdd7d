#ifndef TRUCE_MAINTENANCE_DOCTOR_H
#define TRUCE_MAINTENANCE_DOCTOR_H

/* What the files of the doctor share. The contract is in truce/doctor.h; the essay in doctor.c. */
#include "base/status.h"
#include "truce/doctor.h"

enum doctor_level { DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_ERROR };

struct doctor {
    truce_doctor_function *function;
    void *arg;
    truce_doctor_report *report;
    const bson_t *facts;
};

/* `change`: what to do; `format`: what is wrong. */
void truce__doctor_tell(struct doctor *doctor, enum doctor_level level, const char *rule,
                        const char *subject, const char *change, const char *format, ...)
    TRUCE_PRINTF(6, 7);

/* ---- the facts, by their paths ---- */

/* False: there is no such fact. */
bool truce__doctor_fact(const bson_t *facts, const char *path, bson_iter_t *found);
const char *truce__doctor_text(const bson_t *facts, const char *path, const char *otherwise);
int64_t truce__doctor_number(const bson_t *facts, const char *path, int64_t otherwise);
bool truce__doctor_flag(const bson_t *facts, const char *path, bool otherwise);

/* Is there one that begins with the field? */
bool truce__doctor_has_index(const bson_t *indexes, const char *field);
/* doctor_patterns.c: what copies and transfers rest on */
truce_status truce__doctor_patterns(struct doctor *doctor, truce_store *store, bson_error_t *error);

/* ---- the judgements: functions of facts alone ---- */

/* doctor_server.c: versions, replica sets, durability, clocks */
void truce__doctor_server(struct doctor *doctor);
/* doctor_shards.c: which shard key each layout needs */
void truce__doctor_shards(struct doctor *doctor);
/* doctor_file.c: space, file systems, permissions */
void truce__doctor_file(struct doctor *doctor);
/* doctor_indexes.c: the definitions of one collection's indexes */
void truce__doctor_indexes(struct doctor *doctor, const char *collection, const bson_t *indexes);

/* doctor_queues.c: what stands in the job queues, and nobody cares for; asks the store */
truce_status truce__doctor_queues(struct doctor *doctor, truce_store *store, bson_error_t *error);

#endif
