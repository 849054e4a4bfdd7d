/*
 * The check runs the rules of all parts, one after the other.
 *
 * MK1  Without repair, nothing is written.
 * MK2  A failure to read is reported and stops nothing else. An unreadable document is a finding.
 *   If a part cannot be read, the check still tries the others and then returns the first failure.
 * MK3  Each database of the store is checked separately; a part that concerns the whole store
 *   (struct maintenance_part, `whole`) is checked once.
 * MK4  If a single finding is given, no other one is repaired (truce__check_repairs), except that a
 *   repaired copy may raise its source, which other copies follow.
 */
#include <string.h>

#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "maintenance/maintenance_registry.h"
#include "store/decorators/database_view.h"

struct checking {
    struct check check;
    /* The first failure, with its error. */
    truce_status first;
    bson_error_t why;
};

/* Runs the rules of the parts that concern the whole store, or of the others. Records the first
 * failure. */
static void check_run_rules(struct checking *checking, struct check *check, bool whole)
{
    bson_error_t why = {0};

    for (uint32_t i = 0; i < truce__maintenance_parts_count; i++) {
        const struct maintenance_part *part = &truce__maintenance_parts[i];
        truce_status status =
            part->check && part->whole == whole ? part->check(check, &why) : TRUCE_OK;

        if (status && !checking->first) {
            checking->first = status;
            checking->why = why;
        }
    }
}

/* Checks one database. A failure of its parts is recorded, and the next database is checked. */
static truce_status maintenance_check_database(void *arg, truce_store *view, const char *name,
                                               bson_error_t *error)
{
    struct checking *checking = arg;
    struct maintenance_reporter reporter = {checking->check.function, checking->check.arg, name,
                                            "ns"};
    struct check check = checking->check;

    (void)error;
    check.store = view;
    check.function = truce__maintenance_report;
    check.arg = &reporter;
    check.database = name;
    check_run_rules(checking, &check, false);
    return TRUCE_OK;
}

static truce_status check_accept_finding(const truce_check_options *options, bson_error_t *error)
{
    const bson_t *finding = options ? options->finding : NULL;

    if (!finding)
        return TRUCE_OK;
    if (!options->repair)
        return truce__fail(TRUCE_INVALID, error, "'finding' needs 'repair': true");
    return *truce__field_text(finding, "rule") && *truce__field_text(finding, "ns")
               ? TRUCE_OK
               : truce__fail(TRUCE_INVALID, error,
                             "a finding to repair needs the strings 'rule' and 'ns', as the check "
                             "reported them");
}

truce_status truce_check(truce_store *store, const truce_check_options *options,
                         truce_finding_function *function, void *arg, truce_check_report *report,
                         bson_error_t *error)
{
    RETURN_IF_NULL(report, error);

    struct checking checking = {.check = {.store = store,
                                          .repair = options && options->repair,
                                          .only = options ? options->finding : NULL,
                                          .function = function,
                                          .arg = arg,
                                          .report = report}};
    truce_status status = ROOM_CHECK(options, "truce_check_options", error);

    memset(report, 0, sizeof *report);
    if (!status)
        status = check_accept_finding(options, error);
    if (status)
        return status;
    check_run_rules(&checking, &checking.check, true);
    status = truce__each_database(store, maintenance_check_database, &checking, error);
    if (checking.first && error)
        *error = checking.why;
    return checking.first ? checking.first : status;
}
