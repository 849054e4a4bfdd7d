/*
 * The sweep reconciles documents that have carried a flag for resume_ms. It is one more caller, so
 * any number of sweeps are safe.
 *
 * The check reports copies that differ from their source without a flag, which --repair repairs,
 * and flags that are two days old.
 */
#include "patterns/sync/sync_maintenance.h"

#include <string.h>

#include "base/clock.h"
#include "patterns/sync/sync.h"
#include "store/reserved_names.h"

/* A check reports flags that are older than this (two days). */
#define STUCK_MS INT64_C(172800000)

/* Returns a filter for flags that are older than `then_ms`, to the second: a token or date before
 * that time, or any other value. The caller destroys it. */
static bson_t *sync_filter_older_flags(const char *flag, int64_t then_ms)
{
    uint8_t bytes[12] = {0};
    bson_oid_t token;
    char path[SYNC_TOKEN_PATH];

    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)((uint64_t)((then_ms + 999) / 1000) >> (24 - 8 * i));
    bson_oid_init_from_data(&token, bytes);
    truce__sync_token_path(flag, path);
    return BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}", "$nor", "[", "{", path, "{", "$gte",
                    BCON_OID(&token), "}", "}", "{", flag, "{", "$gte", BCON_DATE_TIME(then_ms),
                    "}", "}", "]");
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static truce_status maintenance_settle(struct sweep *sweep, const char *collection,
                                       const bson_t *document, void *arg, bson_error_t *error)
{
    struct sync_work *work = arg;
    bson_value_t id = truce__document_id(document);
    truce_status status;

    truce__worker_init(&work->worker, sweep->store, COMMIT_DEADLINE_MS);
    status = truce__sync_reconcile(work, collection, &id, error);
    if (!status)
        sweep->report->finished++;
    return status;
}

static truce_status sweep_flag(struct sweep *sweep, struct sync_work *work, const char *collection,
                               const char *flag, uint32_t resume_ms, bson_error_t *error)
{
    bson_t *filter = sync_filter_older_flags(flag, truce__clock_wall_ms() - resume_ms);
    truce_status status =
        truce__sweep_each(sweep, collection, filter, maintenance_settle, work, error);

    bson_destroy(filter);
    return status;
}

truce_status truce__sync_sweep(struct sweep *sweep, bson_error_t *error)
{
    truce_sync *sync = truce_sync_new(sweep->store, NULL);
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    for (uint32_t i = 0; !status && i < work.rules->count; i++) {
        const struct sync_rule *rule = &work.rules->rules[i];

        status = sweep_flag(sweep, &work, rule->dependent, SYNC_UNCHECKED, rule->resume_ms, error);
        if (!status)
            status = sweep_flag(sweep, &work, rule->source, SYNC_FLAG, rule->resume_ms, error);
    }
    truce__sync_end(&work);
    truce_sync_free(sync);
    return status;
}

/* ---- the check ------------------------------------------------------------------------------- */

struct sync_check {
    struct check *check;
    const struct sync_rule *rule;
    /* The finding that `check->only` names was found, and is not reported yet. */
    bool found;
};

/* Reports a divergence to the check. A dependent without a source is not a fault. */
static void sync_maintenance_report(const truce_sync_finding *found, void *arg)
{
    struct sync_check *context = arg;
    bool differs = found->divergence == TRUCE_SYNC_DIFFERS;
    char text[300];
    const struct finding finding = {
        .rule = "sync-copy",
        .collection = context->rule->dependent,
        .id = found->dependent,
        .text = text,
        .repair = differs ? "the values of the source are copied"
                          : "none: references and copies must be fields of documents"};

    /* Users may remove a source, so an orphan is not a finding. */
    if (found->divergence == TRUCE_SYNC_ORPHAN)
        return;
    snprintf(text, sizeof text,
             differs ? "its copies by rule \"%s\" differ from %s"
                     : "an array lies on a path of rule \"%s\" to %s",
             found->rule, context->rule->source);
    if (differs && context->check->only && !found->repaired &&
        truce__check_repairs(context->check, &finding))
        context->found = true;
    else
        truce__check_report(context->check, &finding, found->repaired);
}

/* Reports a document whose flag is older than STUCK_MS. `arg` is the name of the flag. */
static truce_status maintenance_check_stuck(struct check *check, const char *collection,
                                            const bson_t *document, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(document);
    char text[200];

    (void)error;
    snprintf(text, sizeof text,
             "it has had the flag \"%s\" for two days, so its copies are not updated",
             (const char *)arg);
    truce__check_report(check,
                        &(struct finding){.rule = "sync-stuck",
                                          .collection = collection,
                                          .id = &id,
                                          .text = text,
                                          .repair = "truce sync run, which reports the obstacle"},
                        false);
    return TRUCE_OK;
}

static truce_status check_flag(struct check *check, const char *collection, const char *flag,
                               bson_error_t *error)
{
    bson_t *filter = sync_filter_older_flags(flag, truce__clock_wall_ms() - STUCK_MS);
    truce_status status =
        truce__check_each(check, collection, filter, maintenance_check_stuck, (void *)flag, error);

    bson_destroy(filter);
    return status;
}

/* Checks the copies and the flags of one rule. To repair a single finding (`check->only`), walks
 * without repairs first, and then repairs only the dependent that has the finding. */
static truce_status maintenance_check_rule(struct check *check, truce_sync *sync,
                                           const struct sync_rule *rule, bson_error_t *error)
{
    struct sync_check context = {check, rule, false};
    truce_sync_walk_options options = {.repair = check->repair && !check->only,
                                       .function = sync_maintenance_report,
                                       .arg = &context};
    truce_sync_report report;
    truce_status status = truce_sync_walk(sync, rule->name, &options, &report, error);
    bson_iter_t id;

    if (!status && context.found && bson_iter_init_find(&id, check->only, "id")) {
        options.repair = true;
        options.dependent = bson_iter_value(&id);
        status = truce_sync_walk(sync, rule->name, &options, &report, error);
    }
    if (!status)
        status = check_flag(check, rule->source, SYNC_FLAG, error);
    return status ? status : check_flag(check, rule->dependent, SYNC_UNCHECKED, error);
}

truce_status truce__sync_check(struct check *check, bson_error_t *error)
{
    truce_sync *sync = truce_sync_new(check->store, NULL);
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    for (uint32_t i = 0; !status && i < work.rules->count; i++)
        status = maintenance_check_rule(check, sync, &work.rules->rules[i], error);
    truce__sync_end(&work);
    truce_sync_free(sync);
    return status;
}
