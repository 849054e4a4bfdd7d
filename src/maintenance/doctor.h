#ifndef TRUCE_MAINTENANCE_DOCTOR_H
#define TRUCE_MAINTENANCE_DOCTOR_H

/* The data and functions that the files of the doctor share. The contract is in truce/doctor.h, the
 * essay in doctor.c. */
#include "base/status.h"
#include "truce/doctor.h"

enum doctor_level { DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_ERROR };

struct doctor {
    truce_doctor_function *function;
    void *arg;
    truce_doctor_report *report;
    const bson_t *facts;
};

/* Reports a finding. `format` says what is wrong, and `change` what to do. */
void truce__doctor_report(struct doctor *doctor, enum doctor_level level, const char *rule,
                          const char *subject, const char *change, const char *format, ...)
    TRUCE_PRINTF(6, 7);

/* ---- the facts, by their paths ---- */

/* Finds a fact. Returns false if there is no such fact. */
bool truce__doctor_fact(const bson_t *facts, const char *path, bson_iter_t *found);
const char *truce__doctor_text(const bson_t *facts, const char *path, const char *otherwise);
int64_t truce__doctor_number(const bson_t *facts, const char *path, int64_t otherwise);
bool truce__doctor_flag(const bson_t *facts, const char *path, bool otherwise);

/* ---- the checks: functions of facts alone ---- */

/* Examines a deployment: versions, replica sets, durability, clocks (doctor_server.c). */
void truce__doctor_server(struct doctor *doctor);
/* Examines the shard keys that each layout needs. */
void truce__doctor_shards(struct doctor *doctor);
/* Examines space, file systems, and permissions. */
void truce__doctor_file(struct doctor *doctor);

#endif
