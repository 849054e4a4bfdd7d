/*
 * The check: the rules of each part in turn.
 *
 *   K1  Without repair nothing is written.
 *   K2  What cannot be looked at is told and stops nothing else: one document is a finding, a part that
 *       cannot be looked at is the status that is answered when all were tried.
 */
#include <string.h>

#include "base/room.h"
#include "care/parts.h"

truce_status truce_check(truce_store *store, const truce_check_options *options,
                         truce_finding_function *function, void *arg, truce_check_report *report,
                         bson_error_t *error)
{
    struct check check = {.store = store,
                          .repair = options && options->repair,
                          .function = function,
                          .arg = arg,
                          .report = report};
    truce_status first = TRUCE_OK, status = ROOM_CHECK(options, "truce_check_options", error);
    bson_error_t reason;

    memset(report, 0, sizeof *report);
    if (status)
        return status;
    for (uint32_t i = 0; i < truce__care_parts_count; i++) {
        if (!truce__care_parts[i].check)
            continue;
        status = truce__care_parts[i].check(&check, &reason);
        if (status && !first) {
            first = status;
            if (error)
                *error = reason;
        }
    }
    return first;
}
