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

/* ---- the judgements: functions of facts alone ---- */

/* doctor_server.c: versions, replica sets, durability, clocks */
void truce__doctor_server(struct doctor *doctor);
/* which shard key each layout needs */
void truce__doctor_shards(struct doctor *doctor);
/* space, file systems, permissions */
void truce__doctor_file(struct doctor *doctor);

#endif
