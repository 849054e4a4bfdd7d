/* The sweep and the check of ledgers. */
#include "patterns/ledger/ledger_maintenance.h"

#include "base/clock.h"
#include "base/field.h"
#include "patterns/ledger/ledger.h"
#include "store/reserved_names.h"

/* ---- the sweep ------------------------------------------------------------------------------- */

struct sweeping {
    struct sweep *sweep;
    const char *collection;
};

static void ledger_report_refused(const bson_value_t *id, const bson_error_t *why, void *arg)
{
    const struct sweeping *sweeping = arg;

    truce__sweep_failed(sweeping->sweep, sweeping->collection, id, TRUCE_INVALID, why);
}

/* Sweeps one ledger. Expired amounts are released before the documents of other programs are
 * checked. */
static truce_status ledger_sweep_one(struct sweep *sweep, const char *collection,
                                     const bson_t *document, void *arg, bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(
        sweep->store, &(truce_ledger_options){.collection = truce__field_text(document, "_id")});
    struct sweeping sweeping = {sweep, truce__field_text(document, "_id")};
    struct ledger_takeup takeup = {
        .limit = sweep->batch, .refused = ledger_report_refused, .arg = &sweeping};
    struct ledger_reader reader;
    int64_t expired = 0;
    truce_status status;

    (void)collection;
    (void)arg;
    truce__ledger_reader_init(&reader, ledger);
    status = truce__ledger_expire(ledger, NULL, sweep->batch, &expired, error);
    if (!status)
        status = truce__ledger_take_up(&reader, &takeup, error);
    if (!status)
        status = truce__ledger_sums_clean(ledger, error);
    sweep->report->finished += takeup.committed;
    sweep->report->expired += expired;
    sweep->report->more = sweep->report->more || expired == (int64_t)sweep->batch ||
                          takeup.committed + takeup.refusals >= (int64_t)sweep->batch;
    truce_ledger_free(ledger);
    return status;
}

truce_status truce__ledger_sweep(struct sweep *sweep, bson_error_t *error)
{
    return truce__sweep_each(sweep, LEDGERS, NULL, ledger_sweep_one, NULL, error);
}

/* ---- the check ------------------------------------------------------------------------------- */

struct proving {
    struct check *check;
    const char *collection;
};

/* Reports a finding of the verification to the check. */
static void ledger_report_finding(const bson_t *found, void *arg)
{
    const struct proving *proving = arg;
    bson_value_t id = truce__ledger_value(found, "id");
    char rule[40], *text;
    struct finding finding = {.rule = rule, .collection = proving->collection};

    snprintf(rule, sizeof rule, "ledger-%s", truce__field_text(found, "rule"));
    if (*truce__field_text(found, "account"))
        text = bson_strdup_printf(
            "account \"%s\", number %lld: %s", truce__field_text(found, "account"),
            (long long)truce__field_number(found, "number"), truce__field_text(found, "text"));
    else
        text = bson_strdup(truce__field_text(found, "text"));
    finding.text = text;
    finding.repair =
        !strcmp(truce__field_text(found, "rule"), "refused")
            ? "none: correct `changes` and set proc to UNCOMMITTED again, or delete the document"
            : "none: a book is not repaired silently; compare it with a backup or a seal";
    if (id.value_type != BSON_TYPE_EOD)
        finding.id = &id;
    truce__check_report(proving->check, &finding, false);
    bson_free(text);
}

static truce_status ledger_check_one(struct check *check, const char *collection,
                                     const bson_t *document, void *arg, bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(
        check->store, &(truce_ledger_options){.collection = truce__field_text(document, "_id")});
    struct proving proving = {check, truce__field_text(document, "_id")};
    truce_status status;

    (void)collection;
    (void)arg;
    status = truce_ledger_verify(ledger, NULL, NULL, ledger_report_finding, &proving, NULL, error);
    truce_ledger_free(ledger);
    return status;
}

/* Checks a collection that has the index and the hashes of a ledger, but no line in LEDGERS. */
static truce_status ledger_check_unlisted(void *arg, const char *collection, bson_error_t *error)
{
    struct check *check = arg;
    bson_t filter = BSON_INITIALIZER, found;
    truce_status status;

    if (truce__reserved(collection))
        return TRUCE_OK;
    BSON_APPEND_UTF8(&filter, "_id", collection);
    status = truce_find_one(check->store, LEDGERS, &filter, NULL, &found, error);
    bson_destroy(&found);
    if (status == TRUCE_NOT_FOUND && truce__ledger_has_indexes(check->store, collection))
        status = ledger_check_one(check, LEDGERS, &filter, NULL, error);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__ledger_check(struct check *check, bson_error_t *error)
{
    truce_status status = truce__check_each(check, LEDGERS, NULL, ledger_check_one, NULL, error);

    return status ? status
                  : truce__each_collection(check->store, ledger_check_unlisted, check, error);
}
