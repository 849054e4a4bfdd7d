#include "store/maintenance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/array.h"
#include "bson/value.h"
#include "query/input_check.h"
#include "truce/sys/store.h"

bson_value_t truce__document_id(const bson_t *document)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, "_id"))
        return (bson_value_t){.value_type = BSON_TYPE_NULL};
    return *bson_iter_value(&iter);
}

truce_status truce__document_need_id(const char *collection, const bson_t *document,
                                     bson_iter_t *id, bson_error_t *error)
{
    if (bson_iter_init_find(id, document, "_id"))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "a document of \"%s\" has no _id: expected a collection, not a view that "
                       "removes the field",
                       collection);
}

truce_status truce__each_collection(truce_store *store, collection_function *function, void *arg,
                                    bson_error_t *error)
{
    bson_t collections;
    truce_status status = truce_collection_list(store, &(truce_list_options){.unmeasured = true},
                                                &collections, error);
    bson_iter_t iter, name;

    if (!status)
        truce_assert(bson_iter_init(&iter, &collections));
    while (!status && bson_iter_next(&iter)) {
        if (bson_iter_recurse(&iter, &name) && bson_iter_find(&name, "name") &&
            BSON_ITER_HOLDS_UTF8(&name) &&
            !truce__collection_name_check(bson_iter_utf8(&name, NULL), NULL))
            status = function(arg, bson_iter_utf8(&name, NULL), error);
    }
    bson_destroy(&collections);
    return status;
}

/* Returns whether the store itself fails, so that the sweep or the check cannot continue. */
static bool ends_all(truce_status status)
{
    return status == TRUCE_IO || status == TRUCE_TIMEOUT;
}

static void pass_on(bson_error_t *error, const bson_error_t *reason)
{
    if (error)
        *error = *reason;
}

/* ---- the sweep ------------------------------------------------------------------------------ */

void truce__sweep_failed(struct sweep *sweep, const char *collection, const bson_value_t *id,
                         truce_status status, const bson_error_t *reason)
{
    bson_t finding = BSON_INITIALIZER;

    sweep->report->failed++;
    if (!sweep->options->function)
        return;
    BSON_APPEND_UTF8(&finding, "rule", "failed");
    BSON_APPEND_UTF8(&finding, "ns", collection);
    BSON_APPEND_VALUE(&finding, "id", id);
    BSON_APPEND_UTF8(&finding, "status", truce_status_name(status));
    BSON_APPEND_UTF8(&finding, "text", reason->message);
    sweep->options->function(&finding, sweep->options->arg);
    bson_destroy(&finding);
}

/* Builds the filter without the skipped documents. The caller destroys it. */
static bson_t *maintenance_exclude_ids(const bson_t *filter, const bson_t *passed)
{
    bson_t *narrowed = filter ? bson_copy(filter) : bson_new();

    if (!bson_empty(passed))
        BCON_APPEND(narrowed, "_id", "{", "$nin", BCON_ARRAY(passed), "}");
    return narrowed;
}

/* Collects at most `most` documents. The caller destroys each of them. */
static truce_status maintenance_gather(struct sweep *sweep, const char *collection,
                                       const bson_t *filter, const bson_t *passed, uint32_t most,
                                       bson_t **found, uint32_t *count, bson_error_t *error)
{
    bson_t *narrowed = maintenance_exclude_ids(filter, passed);
    truce_find_options options = {.limit = most};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = truce_find(sweep->store, collection, narrowed, &options, &cursor, error);

    *count = 0;
    while (!status && *count < most) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        found[(*count)++] = bson_copy(document);
    }
    truce_cursor_close(cursor);
    bson_destroy(narrowed);
    return status;
}

struct walk {
    struct sweep *sweep;
    const char *collection;
    sweep_function *function;
    void *arg;
    uint32_t repaired;
    /* An array of the _ids of documents that were skipped. */
    bson_t passed;
};

static void maintenance_pass_over(struct walk *walk, const bson_value_t *id)
{
    struct array passed;

    truce__array_resume(&passed, &walk->passed);
    truce__array_add_value(&passed, id);
}

/* Repairs one document. A status other than OK ends the walk. */
static truce_status maintenance_repair_one(struct walk *walk, const bson_t *document,
                                           bson_error_t *error)
{
    bson_error_t reason = {0};
    truce_status failed =
        walk->function(walk->sweep, walk->collection, document, walk->arg, &reason);
    bson_value_t id = truce__document_id(document);

    if (ends_all(failed)) {
        pass_on(error, &reason);
        return failed;
    }
    if (failed)
        maintenance_pass_over(walk, &id);
    else
        walk->repaired++;
    if (failed && failed != TRUCE_LOCKED)
        truce__sweep_failed(walk->sweep, walk->collection, &id, failed, &reason);
    return TRUCE_OK;
}

/* The batch counts only documents that were repaired, so documents that cannot be repaired do not
 * use it up. */
truce_status truce__sweep_each(struct sweep *sweep, const char *collection, const bson_t *filter,
                               sweep_function *function, void *arg, bson_error_t *error)
{
    bson_t **found = bson_malloc0(sweep->batch * sizeof *found);
    struct walk walk = {sweep, collection, function, arg, 0, BSON_INITIALIZER};
    truce_status status;
    uint32_t count, most;

    do {
        most = sweep->batch - walk.repaired;
        status =
            maintenance_gather(sweep, collection, filter, &walk.passed, most, found, &count, error);
        for (uint32_t i = 0; i < count; i++) {
            if (!status)
                status = maintenance_repair_one(&walk, found[i], error);
            bson_destroy(found[i]);
        }
    } while (!status && count == most && walk.repaired < sweep->batch &&
             walk.passed.len < SWEEP_PASSED_BYTES);
    if (count == most)
        sweep->report->more = true;
    bson_destroy(&walk.passed);
    bson_free(found);
    return status;
}

/* ---- the check ------------------------------------------------------------------------------ */

void truce__check_report(struct check *check, const struct finding *finding, bool repaired)
{
    bson_t document = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&document, "rule", finding->rule);
    BSON_APPEND_UTF8(&document, "ns", finding->collection);
    if (finding->id)
        BSON_APPEND_VALUE(&document, "id", finding->id);
    if (finding->commit)
        BSON_APPEND_OID(&document, "commit", finding->commit);
    BSON_APPEND_UTF8(&document, "text", finding->text);
    BSON_APPEND_UTF8(&document, "repair", finding->repair);
    BSON_APPEND_BOOL(&document, "repaired", repaired);
    check->report->findings++;
    check->report->repaired += repaired;
    if (check->function)
        check->function(&document, check->arg);
    bson_destroy(&document);
}

/* Returns whether `ns` names the collection: "students", or "school.students" in another
 * database. */
static bool check_is_at(const struct check *check, const char *collection, const char *ns)
{
    size_t length = check->database ? strlen(check->database) : 0;

    return (!length || (!strncmp(ns, check->database, length) && ns[length++] == '.')) &&
           !strcmp(ns + length, collection);
}

bool truce__check_repairs(const struct check *check, const struct finding *finding)
{
    struct value id = truce__value_missing(), given;
    bson_t own = BSON_INITIALIZER;
    bool same;

    if (!check->repair || !check->only)
        return check->repair;
    /* Invariant MK4 of check.c. */
    if (strcmp(truce__field_text(check->only, "rule"), finding->rule) != 0 ||
        !check_is_at(check, finding->collection, truce__field_text(check->only, "ns")))
        return false;
    given = truce__value_field(truce__value_document(check->only), "id", 2);
    if (finding->id) {
        BSON_APPEND_VALUE(&own, "id", finding->id);
        id = truce__value_field(truce__value_document(&own), "id", 2);
    }
    same = truce__value_equal(id, given);
    bson_destroy(&own);
    return same;
}

static void report_unchecked(struct check *check, const char *collection, const bson_value_t *id,
                             const bson_error_t *reason)
{
    const struct finding finding = {.rule = "unchecked",
                                    .collection = collection,
                                    .text = reason->message,
                                    .repair = "none: inspect the document by hand",
                                    .id = id};

    truce__check_report(check, &finding, false);
}

truce_status truce__check_each(struct check *check, const char *collection, const bson_t *filter,
                               check_function *function, void *arg, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce_find(check->store, collection, filter, NULL, &cursor, error);

    while (!status) {
        bson_error_t reason = {0};
        truce_status failed;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        failed = function(check, collection, document, arg, &reason);
        if (ends_all(failed)) {
            pass_on(error, &reason);
            status = failed;
        } else if (failed) {
            bson_value_t id = truce__document_id(document);

            report_unchecked(check, collection, &id, &reason);
        }
    }
    truce_cursor_close(cursor);
    return status;
}

/* A batch ends when it has more bytes. */
#define BATCH_BYTES ((size_t)16 * 1024 * 1024)

/* ---- batches --------------------------------------------------------------------------------- */

/* Checks a batch of documents. `find` marks the suspects, and `function` checks each of them.
 * Reports a document that cannot be checked, and continues unless the whole check must end.
 * Destroys the batch. */
static truce_status check_batch(struct check *check, const char *collection, bson_t **batch,
                                uint32_t count, suspect_function *find, check_function *function,
                                void *arg, bson_error_t *error)
{
    bool suspect[MAINTENANCE_BATCH] = {false};
    bson_error_t reason = {0};
    truce_status status = find(check, batch, count, suspect, arg, &reason);
    bool all = status && !ends_all(status);

    if (ends_all(status))
        pass_on(error, &reason);
    else
        status = TRUCE_OK;
    for (uint32_t i = 0; i < count; i++) {
        bson_value_t id = truce__document_id(batch[i]);
        truce_status failed = TRUCE_OK;

        if (!status && (all || suspect[i]))
            failed = function(check, collection, batch[i], arg, &reason);
        if (ends_all(failed)) {
            pass_on(error, &reason);
            status = failed;
        } else if (failed) {
            report_unchecked(check, collection, &id, &reason);
        }
        bson_destroy(batch[i]);
    }
    return status;
}

truce_status truce__check_suspects(struct check *check, const char *collection,
                                   const bson_t *filter, suspect_function *find,
                                   check_function *function, void *arg, bson_error_t *error)
{
    bson_t *batch[MAINTENANCE_BATCH];
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    uint32_t count = 0;
    size_t bytes = 0;
    truce_status status = truce_find(check->store, collection, filter, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (!status && document) {
            bytes += document->len;
            batch[count++] = bson_copy(document);
        }
        if (!status && count && (!document || count == MAINTENANCE_BATCH || bytes > BATCH_BYTES)) {
            status = check_batch(check, collection, batch, count, find, function, arg, error);
            count = 0;
            bytes = 0;
        }
        if (status || !document)
            break;
    }
    while (count)
        bson_destroy(batch[--count]);
    truce_cursor_close(cursor);
    return status;
}

void truce__maintenance_link(struct maintenance_links *links, const bson_value_t *id,
                             uint32_t owner)
{
    char key[16];

    if (!links->owners)
        bson_init(&links->ids);
    links->owners = bson_realloc(links->owners, (links->count + 1) * sizeof *links->owners);
    links->owners[links->count] = owner;
    bson_append_value(&links->ids, key, snprintf(key, sizeof key, "%u", links->count), id);
    links->count++;
}

void truce__maintenance_links_release(struct maintenance_links *links)
{
    if (links->owners)
        bson_destroy(&links->ids);
    bson_free(links->owners);
    *links = (struct maintenance_links){.count = 0};
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Hashes the _id. If equal ids of different types have different hashes, the document only becomes
 * a false suspect. */
static uint64_t hash_of_id(const bson_t *document)
{
    return truce__value_hash(truce__value_field(truce__value_document(document), "_id", 3));
}

truce_status truce__maintenance_follow(struct check *check, const char *to, const bson_t *filter,
                                       struct maintenance_links *links, bool *suspect,
                                       bson_error_t *error)
{
    bson_t *projection, *wanted;
    truce_find_options options = {0};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    uint64_t *found;
    size_t count = 0;
    struct fields ids;
    truce_status status;

    if (!links->count)
        return TRUCE_OK;
    projection = BCON_NEW("_id", BCON_INT32(1));
    wanted = BCON_NEW("_id", "{", "$in", BCON_ARRAY(&links->ids), "}");
    found = bson_malloc0(links->count * sizeof *found);
    options.projection = projection;
    if (filter)
        bson_concat(wanted, filter);
    status = truce_find(check->store, to, wanted, &options, &cursor, error);
    while (!status && count < links->count) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        found[count++] = hash_of_id(document);
    }
    truce_cursor_close(cursor);
    qsort(found, count, sizeof *found, compare_hashes);
    ids = truce__fields(truce__value_document(&links->ids));
    for (uint32_t i = 0; !status && truce__fields_next(&ids); i++) {
        uint64_t hash = truce__value_hash(ids.value);

        if (!bsearch(&hash, found, count, sizeof *found, compare_hashes))
            suspect[links->owners[i]] = true;
    }
    bson_free(found);
    bson_destroy(wanted);
    bson_destroy(projection);
    truce__maintenance_links_release(links);
    return status;
}

/* ---- the check of the store itself ----------------------------------------------------------- */

static void maintenance_report_fault(const bson_t *finding, void *arg)
{
    struct check *check = arg;
    bson_iter_t repaired;

    check->report->findings++;
    check->report->repaired +=
        bson_iter_init_find(&repaired, finding, "repaired") && bson_iter_bool(&repaired);
    if (check->function)
        check->function(finding, check->arg);
}

truce_status truce__store_check(struct check *check, bson_error_t *error)
{
    truce_store *store = check->store;
    const char *repair = NULL;

    if (!store->ops->examine)
        return TRUCE_OK;
    if (check->repair && !check->only)
        repair = "";
    else if (check->repair && !strcmp(truce__field_text(check->only, "rule"), "wrong-index"))
        repair = truce__field_text(check->only, "ns");
    return store->ops->examine(store, repair, maintenance_report_fault, check, error);
}

/* ---- databases ------------------------------------------------------------------------------- */

void truce__maintenance_report(const bson_t *finding, void *arg)
{
    const struct maintenance_reporter *reporter = arg;
    bson_t named = BSON_INITIALIZER;
    bson_iter_t at;

    if (!reporter->function)
        return;
    if (!reporter->database[0] || !bson_iter_init(&at, finding)) {
        reporter->function(finding, reporter->arg);
        return;
    }
    while (bson_iter_next(&at)) {
        if (!strcmp(bson_iter_key(&at), reporter->field) && BSON_ITER_HOLDS_UTF8(&at)) {
            char *name = bson_strdup_printf("%s.%s", reporter->database, bson_iter_utf8(&at, NULL));

            BSON_APPEND_UTF8(&named, reporter->field, name);
            bson_free(name);
        } else {
            BSON_APPEND_VALUE(&named, bson_iter_key(&at), bson_iter_value(&at));
        }
    }
    reporter->function(&named, reporter->arg);
    bson_destroy(&named);
}
