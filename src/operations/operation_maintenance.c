/* truceSweep, truceCheck, truceDoctor: maintenance of the whole store, from any database. */
#include "operations/operation.h"
#include "operations/reply_list.h"
#include "truce/doctor.h"
#include "truce/sweep.h"

/* Appends a finding if the reply has room. The report also counts the findings without room. */
static void maintenance_add_finding(const bson_t *finding, void *arg)
{
    struct reply_list *findings = arg;

    if (findings->array.len + finding->len <= REPLY_LIST_BYTES)
        (void)truce__reply_list_add(findings, finding);
}

/* ---- truceSweep ------------------------------------------------------------------------------ */

struct sweep_given {
    int64_t retentionMS, batch;
};

static const struct operation_field sweep_fields[] = {
    {GIVEN(sweep_given, retentionMS, FIELD_DURATION),
     "the time in milliseconds for which ended commits are kept; absent: 7 days; -1: forever", -1,
     DURATION_MAX_MS},
    {GIVEN(sweep_given, batch, FIELD_NUMBER),
     "the maximum number of documents of each kind; absent: 1,000", 1, 1000000},
    {{0}}};

/* Runs a recovery pass. A `retentionMS` of 0 becomes 1 ms, because 0 means the default of the
 * library. */
static truce_status maintenance_run_sweep(struct operation_call *call, const void *arg,
                                          bson_t *reply, bson_error_t *error)
{
    const struct sweep_given *given = arg;
    struct reply_list findings;
    bool nothing_kept = truce__operation_given(call, "retentionMS") && !given->retentionMS;
    const truce_sweep_options options = {.retention_ms = nothing_kept ? 1 : given->retentionMS,
                                         .batch = (uint32_t)given->batch,
                                         .function = maintenance_add_finding,
                                         .arg = &findings};
    truce_sweep_report report;
    truce_status status;

    truce__reply_list_begin(&findings, REPLY_LIST_MAX);
    call->host->sweep(call, true);
    status = truce_sweep(call->whole, &options, &report, error);
    call->host->sweep(call, false);

    if (!status)
        BCON_APPEND(reply, "undone", BCON_INT64(report.undone), "finished",
                    BCON_INT64(report.finished), "cleaned", BCON_INT64(report.cleaned), "stripped",
                    BCON_INT64(report.stripped), "purged", BCON_INT64(report.purged), "expired",
                    BCON_INT64(report.expired), "pruned", BCON_INT64(report.pruned), "released",
                    BCON_INT64(report.released), "failed", BCON_INT64(report.failed), "more",
                    BCON_BOOL(report.more), "findings", BCON_ARRAY(&findings.array));
    bson_destroy(&findings.array);
    return status;
}

static const struct operation_row sweep_operation = {
    OPERATION("truceSweep", ROLE_MAINTAIN,
              "completes or undoes the work of dead processes, releases the jobs of dead workers, "
              "and removes expired documents"),
    .value = "1",
    .answer =
        "counts: `undone`, `finished`, `cleaned`, `stripped`, `purged`, `expired`, `pruned`, "
        "`released` (jobs of dead workers), `failed`; `more`: true if you need to send the command again; `findings`: items that "
        "could not be repaired",
    .fields = sweep_fields,
    .size = sizeof(struct sweep_given),
    .run = maintenance_run_sweep,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceSweep: 1}",
};

/* ---- truceCheck ------------------------------------------------------------------------------ */

struct check_given {
    bool repair;
    const bson_t *finding;
};

static const struct operation_field check_fields[] = {
    {GIVEN(check_given, repair, FIELD_FLAG), "repairs what can be repaired"},
    {GIVEN(check_given, finding, FIELD_DOCUMENT),
     "with `repair`: repairs only this finding, {rule, ns, id}, as a check returned it"},
    {{0}}};

/* Turns the failure of a check that has findings into another finding. They would be lost if the
 * reply were only an error. */
static void check_add_failure(const bson_error_t *error, struct reply_list *findings,
                              truce_check_report *report)
{
    char text[600];
    bson_t finding = BSON_INITIALIZER;

    snprintf(text, sizeof text, "the check is not complete: %s", error->message);
    BCON_APPEND(&finding, "rule", BCON_UTF8("unreadable"), "ns", BCON_UTF8(""), "text",
                BCON_UTF8(text), "repair",
                BCON_UTF8("none: restore a backup, or save the other documents with truce "
                          "salvage"));
    maintenance_add_finding(&finding, findings);
    report->findings++;
    bson_destroy(&finding);
}

/* Checks the store; `repair` needs the role to maintain. If damage ends the check, the reply has
 * the findings so far, and the damage as one more. */
static truce_status maintenance_run_check(struct operation_call *call, const void *arg,
                                          bson_t *reply, bson_error_t *error)
{
    const struct check_given *given = arg;
    const truce_check_options options = {.repair = given->repair, .finding = given->finding};
    struct reply_list findings;
    truce_check_report report = {0};
    bson_error_t why = {0};
    truce_status status =
        given->repair ? call->host->check_role(call, ROLE_MAINTAIN, error) : TRUCE_OK;

    truce__reply_list_begin(&findings, REPLY_LIST_MAX);
    if (!status) {
        status =
            truce_check(call->whole, &options, maintenance_add_finding, &findings, &report, &why);
        if (status == TRUCE_CORRUPT && report.findings) {
            check_add_failure(&why, &findings, &report);
            status = TRUCE_OK;
        }
        if (status && error)
            *error = why;
    }
    if (!status)
        BCON_APPEND(reply, "collections", BCON_INT64(report.collections), "documents",
                    BCON_INT64(report.documents), "commits", BCON_INT64(report.commits), "found",
                    BCON_INT64(report.findings), "repaired", BCON_INT64(report.repaired),
                    "findings", BCON_ARRAY(&findings.array));
    bson_destroy(&findings.array);
    return status;
}

static const struct operation_row check_operation = {
    OPERATION("truceCheck", ROLE_MONITOR,
              "checks the consistency of the whole store, while it is in use"),
    .value = "1",
    .answer = "counts: `collections`, `documents`, `commits`, `found`, `repaired`; and "
              "`findings`: the first 1,000, each {rule, ns, text, ...}",
    .fields = check_fields,
    .size = sizeof(struct check_given),
    .run = maintenance_run_check,
    .ways = OPERATION_REPEATABLE | OPERATION_WRITES,
    .example = "{truceCheck: 1}",
};

/* ---- truceDoctor ----------------------------------------------------------------------------- */

static truce_status run_doctor(struct operation_call *call, const void *given, bson_t *reply,
                               bson_error_t *error)
{
    struct reply_list findings;
    truce_doctor_report report;
    truce_status status;

    (void)given;
    truce__reply_list_begin(&findings, REPLY_LIST_MAX);
    status = truce_doctor(call->whole, maintenance_add_finding, &findings, &report, error);
    if (!status)
        BCON_APPEND(reply, "errors", BCON_INT64(report.errors), "warnings",
                    BCON_INT64(report.warnings), "notes", BCON_INT64(report.notes), "facts",
                    BCON_DOCUMENT(&report.facts), "findings", BCON_ARRAY(&findings.array));
    bson_destroy(&report.facts);
    bson_destroy(&findings.array);
    return status;
}

static const struct operation_row doctor_operation = {
    OPERATION("truceDoctor", ROLE_MONITOR,
              "examines the store and its environment, and recommends changes; changes nothing"),
    .value = "1",
    .answer = "counts: `errors`, `warnings`, `notes`; `facts`; and `findings`, each {level, rule, "
              "subject, text, change}",
    .fields = truce__no_fields,
    .run = run_doctor,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceDoctor: 1}",
};

const struct operation_row *const maintenance_operations[] = {&sweep_operation, &check_operation,
                                                              &doctor_operation, NULL};
