/* Completes the work that a flag asks for: copies of a source, in batches, and the read of a
 * dependent's sources. SY3 to SY6 of sync.c. */
#include <string.h>

#include "base/clock.h"
#include "base/object_id.h"
#include "patterns/sync/sync.h"

static truce_status settle_read_one(struct sync_work *work, const char *collection,
                                    const bson_value_t *id, bson_t *document, bson_error_t *error)
{
    return truce__journal_read(&work->worker, collection, id, document, error);
}

/* Reads the source. If it has a flag, the flag is one of truce's tokens. Returns TRUCE_NOT_FOUND if
 * there is no such source. */
static truce_status settle_read_source(struct sync_work *work, const struct sync_rule *rule,
                                       const bson_value_t *id, bson_t *source, bson_error_t *error)
{
    truce_status status = settle_read_one(work, rule->source, id, source, error);
    bool done;

    for (int attempt = 0;
         !status && bson_has_field(source, SYNC_FLAG) && !truce__sync_token(source, SYNC_FLAG);
         attempt++) {
        if (attempt > 1)
            status = truce__worker_wait(&work->worker, "a flag", error);
        if (!status)
            status = truce__sync_touch(work, rule->source, source, 0, true, &done, error);
        if (!status) {
            bson_destroy(source);
            status = settle_read_one(work, rule->source, id, source, error);
        }
    }
    return status;
}

/* Sleeps if the call has made more copies than its rate allows. */
static truce_status reconcile_limit_rate(struct sync_work *work, bson_error_t *error)
{
    int64_t due_ms, gone_ms;

    if (!work->sync->options.rate)
        return TRUCE_OK;
    due_ms = work->copies * 1000 / work->sync->options.rate;
    gone_ms = (truce__clock_monotonic_ns() - work->begun_ns) / 1000000;
    if (due_ms <= gone_ms)
        return TRUCE_OK;
    if (truce__clock_monotonic_ns() + (due_ms - gone_ms) * 1000000 > work->worker.deadline_ns)
        return truce__fail(TRUCE_TIMEOUT, error,
                           "the deadline passed: the rate is limited to %u copies per second",
                           work->sync->options.rate);
    truce__clock_sleep_ms(due_ms - gone_ms);
    return TRUCE_OK;
}

/* ---- one batch of copies --------------------------------------------------------------------- */

struct batch {
    struct sync_work *work;
    const struct sync_rule *rule;
    const bson_t *source;
    /* The array of the _ids of the dependents in the batch. Owned. */
    bson_t *ids;
    uint32_t count;
};

static void which_of(const struct batch *batch, bson_t *which)
{
    bson_t inner;

    bson_init(which);
    BSON_APPEND_DOCUMENT_BEGIN(which, "_id", &inner);
    BSON_APPEND_ARRAY(&inner, "$in", batch->ids);
    bson_append_document_end(which, &inner);
}

/* Copies one by one the dependents that a batch skipped: a commit holds the dependent, or the store
 * refused it. Returns the last failure; the others are
 * copied. */
static truce_status copy_singly(const struct batch *batch, const bson_t *ids, bson_error_t *error)
{
    truce_status status, last = TRUCE_OK;
    bson_error_t why;
    bson_iter_t iter;
    bson_t document;

    for (bson_iter_init(&iter, ids); bson_iter_next(&iter);) {
        status = settle_read_one(batch->work, batch->rule->dependent, bson_iter_value(&iter),
                                 &document, &why);
        if (!status)
            status = truce__sync_bring_up(batch->work, batch->rule, &document, &why);
        bson_destroy(&document);
        if (status && status != TRUCE_NOT_FOUND) {
            last = status;
            if (error)
                *error = why;
        }
    }
    return last;
}

/* Begins to read the dependents of the batch that are still outdated. */
static truce_status settle_open_outdated(const struct batch *batch, const bson_t *projection,
                                         truce_cursor **cursor, bson_error_t *error)
{
    truce_find_options options = {.projection = projection};
    bson_t filter;
    truce_status status;

    which_of(batch, &filter);
    truce__sync_append_outdated(batch->rule, batch->source, &filter);
    status = truce_find(batch->work->sync->store, batch->rule->dependent, &filter, &options, cursor,
                        error);
    bson_destroy(&filter);
    return status;
}

/* Appends the dependents of the batch that are still outdated to an array. */
static truce_status find_outdated(const struct batch *batch, bson_t *behind, bson_error_t *error)
{
    bson_t projection = BSON_INITIALIZER;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    uint32_t count = 0;
    truce_status status;

    BSON_APPEND_INT32(&projection, "_id", 1);
    status = settle_open_outdated(batch, &projection, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        truce__value_append_element(behind, &count,
                                    truce__value_field(truce__value_document(document), "_id", 3));
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    return status;
}

/* Writes a copy to each dependent that was read. The source is read after the dependents (SY8).
 * Dependents that this skips are copied one by one. */
static truce_status settle_copy_seen(const struct batch *batch, bson_t *const *seen, uint32_t count,
                                     struct sync_bulk *bulk, bson_error_t *error)
{
    bson_value_t id = truce__document_id(batch->source);
    bson_t source;
    truce_status status = settle_read_source(batch->work, batch->rule, &id, &source, error);

    if (!status)
        status = truce__sync_check_arrays(batch->rule, NULL, &source, error);
    for (uint32_t i = 0; !status && i < count; i++) {
        if (!truce__sync_check_arrays(batch->rule, seen[i], NULL, NULL) &&
            !truce__sync_is_up(batch->rule, seen[i], &source) &&
            truce__sync_may_copy(batch->rule, seen[i], &source) &&
            truce__sync_bulk_add(bulk, batch->rule, seen[i], &source))
            truce__sync_bulk_write(batch->work, bulk);
    }
    truce__sync_bulk_write(batch->work, bulk);
    bson_destroy(&source);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Copies to dependents whose stamps are of another source or incarnation, as a repair leaves them,
 * by bulks with a guard for each dependent. Dependents that this skips are copied one by one. A
 * copy that is copied further needs two writes, so those rules have no bulks. */
static truce_status settle_by_bulks(const struct batch *batch, bson_error_t *error)
{
    bson_t *seen[SYNC_BULK], projection;
    struct sync_bulk *bulk;
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    uint32_t count = 0;
    size_t bytes = 0;
    truce_status status;

    if (batch->rule->feeds)
        return TRUCE_OK;
    bulk = bson_malloc0(sizeof *bulk);
    truce__sync_make_projection(batch->rule, false, &projection);
    status = settle_open_outdated(batch, &projection, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error))) {
        if (document) {
            seen[count++] = bson_copy(document);
            bytes += document->len;
        }
        if (document && count < SYNC_BULK && bytes < SYNC_BULK_BYTES)
            continue;
        status = count ? settle_copy_seen(batch, seen, count, bulk, error) : TRUCE_OK;
        while (count)
            bson_destroy(seen[--count]);
        bytes = 0;
        if (!document)
            break;
    }
    while (count)
        bson_destroy(seen[--count]);
    truce_cursor_close(cursor);
    bson_destroy(&projection);
    bson_free(bulk);
    return status;
}

/* Reconciles the dependents of the batch that are sources of other copies, because the copies have
 * set their flags. */
static truce_status settle_each(const struct batch *batch, bson_error_t *error)
{
    truce_status status, last = TRUCE_OK;
    bson_iter_t iter;

    for (bson_iter_init(&iter, batch->ids); bson_iter_next(&iter);) {
        status = truce__sync_reconcile_source(batch->work, batch->rule->dependent,
                                              bson_iter_value(&iter), error);
        last = status ? status : last;
    }
    return last;
}

static bool sync_settle_refused(truce_status status)
{
    return status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_DUPLICATE;
}

/* Copies to the dependents of the batch by one write, and empties the batch. Dependents that the
 * write skipped are copied by bulks, and the rest one by one. */
static truce_status copy_batch(struct batch *batch, bson_error_t *error)
{
    bson_t which, behind = BSON_INITIALIZER;
    int64_t matched;
    truce_status status;

    which_of(batch, &which);
    status =
        truce__sync_copy(batch->work, batch->rule, batch->source, NULL, &which, &matched, error);
    bson_destroy(&which);
    if (sync_settle_refused(status) || (!status && matched < batch->count)) {
        status = settle_by_bulks(batch, error);
        if (!status)
            status = find_outdated(batch, &behind, error);
        if (!status)
            status = copy_singly(batch, &behind, error);
    }
    bson_destroy(&behind);
    if (!status && batch->rule->feeds)
        status = settle_each(batch, error);
    bson_reinit(batch->ids);
    batch->count = 0;
    return status ? status : reconcile_limit_rate(batch->work, error);
}

/* ---- one source ------------------------------------------------------------------------------ */

/* Copies to each dependent that refers to the source now. A later one has a flag of its own
 * (SY4). */
static truce_status copy_rule(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *source, bson_error_t *error)
{
    struct batch batch = {.work = work, .rule = rule, .source = source, .ids = bson_new()};
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection};
    bson_value_t id = truce__document_id(source);
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status, last = TRUCE_OK;
    bson_error_t why;

    truce__sync_append_reference(rule, &id, &filter);
    BSON_APPEND_INT32(&projection, "_id", 1);
    status = truce_find(work->sync->store, rule->dependent, &filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error))) {
        if (document)
            truce__value_append_element(
                batch.ids, &batch.count,
                truce__value_field(truce__value_document(document), "_id", 3));
        if (document && batch.count < work->sync->options.batch &&
            batch.ids->len < SYNC_BATCH_BYTES)
            continue;
        status = batch.count ? copy_batch(&batch, &why) : TRUCE_OK;
        /* A dependent that cannot be copied must not stop the others. */
        if (sync_settle_refused(status)) {
            last = status;
            status = TRUCE_OK;
        }
        if ((status || last) && error)
            *error = why;
        if (!document)
            break;
    }
    truce_cursor_close(cursor);
    bson_destroy(batch.ids);
    bson_destroy(&projection);
    bson_destroy(&filter);
    return status ? status : last;
}

/* Copies a source by all rules of its collection. A copy that the store refuses does not stop the
 * other rules; its status is returned at the end. */
static truce_status copy_all(struct sync_work *work, const char *collection, const bson_t *source,
                             bson_error_t *error)
{
    truce_status status, last = TRUCE_OK;

    for (uint32_t i = 0; i < work->rules->count; i++) {
        const struct sync_rule *rule = &work->rules->rules[i];

        if (strcmp(rule->source, collection))
            continue;
        status = truce__sync_check_arrays(rule, NULL, source, error);
        if (!status)
            status = copy_rule(work, rule, source, error);
        if (status && !sync_settle_refused(status))
            return status;
        last = status ? status : last;
    }
    return last;
}

truce_status truce__sync_touch(struct sync_work *work, const char *collection, const bson_t *source,
                               int64_t least, bool flag, bool *done, bson_error_t *error)
{
    static const char *const fields[] = {SYNC_REVISION, SYNC_ORIGIN};
    bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER, unset = BSON_INITIALIZER,
           update = BSON_INITIALIZER;
    bson_value_t id = truce__document_id(source);
    int64_t next = 0, matched = 0;
    bson_iter_t iter;
    truce_status status = truce__sync_next(source, least, &next, error);

    *done = false;
    if (status)
        return status;
    BSON_APPEND_VALUE(&filter, "_id", &id);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (bson_iter_init_find(&iter, source, fields[i]))
            BCON_APPEND(&filter, fields[i], "{", "$eq", BCON_ITER(&iter), "}");
        else
            BCON_APPEND(&filter, fields[i], "{", "$exists", BCON_BOOL(false), "}");
    }
    truce__intent_append_absent(&filter);
    if (flag)
        truce__sync_append_flag(&set, SYNC_FLAG);
    truce__sync_append_number(source, next, &set);
    truce__sync_operators(&set, &unset, &update);
    status = truce__sync_write(work, collection, &filter, &update, false, &matched, error);
    *done = !status && matched;
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

/* Reads the document and its flag. Sets `over` if nothing must be done. */
static truce_status settle_read_flag(struct sync_work *work, const char *collection,
                                     const bson_value_t *id, const char *flag, int attempt,
                                     bson_t *document, bool *over, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    bson_init(document);
    if (attempt > 1)
        status = truce__worker_wait(&work->worker, "a flag", error);
    if (status)
        return status;
    bson_destroy(document);
    status = settle_read_one(work, collection, id, document, error);
    *over = status == TRUCE_NOT_FOUND || (!status && !bson_has_field(document, flag));
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Returns whether the flag differs from the one that was read. Then another process works on it. */
static bool passed_on(const bson_t *seen, const bson_t *now, const char *flag)
{
    struct value one = truce__value_field(truce__value_document(seen), flag, strlen(flag)),
                 other = truce__value_field(truce__value_document(now), flag, strlen(flag));

    return seen->len > 5 && truce__sync_token(now, flag) && !truce__value_identical(one, other);
}

/* ---- one dependent --------------------------------------------------------------------------- */

/* Tries once to bring a dependent, as read in `seen`, up to its source. The source is read after
 * the dependent. So the guard of the copy, which compares the stamp that was read, refuses a source
 * that was replaced in the meantime (SY8). Sets *over if nothing is left to do. */
static truce_status bring_up_once(struct sync_work *work, const struct sync_rule *rule,
                                  const bson_t *seen, bool *over, bson_error_t *error)
{
    bson_value_t own = truce__document_id(seen), id;
    bson_t source, which = BSON_INITIALIZER;
    int64_t matched = 0;
    bool done;
    truce_status status = truce__sync_check_arrays(rule, seen, NULL, error);

    *over = !status && !truce__sync_reference(rule, seen, &id);
    if (status || *over)
        return status;
    BSON_APPEND_VALUE(&which, "_id", &own);
    status = settle_read_source(work, rule, &id, &source, error);
    *over = status == TRUCE_NOT_FOUND || (!status && truce__sync_is_up(rule, seen, &source));
    if (!status && !*over)
        status = truce__sync_check_arrays(rule, NULL, &source, error);
    if (!status && !*over && !truce__sync_may_copy(rule, seen, &source)) {
        status = truce__sync_touch(work, rule->source, &source, 0, false, &done, error);
    } else if (!status && !*over) {
        status = truce__sync_copy(work, rule, &source, seen, &which, &matched, error);
        *over = matched > 0;
    }
    bson_destroy(&which);
    bson_destroy(&source);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__sync_bring_up(struct sync_work *work, const struct sync_rule *rule,
                                  const bson_t *dependent, bson_error_t *error)
{
    bson_value_t own = truce__document_id(dependent);
    truce_status status = TRUCE_OK;
    bool over = false;
    bson_t seen;

    bson_copy_to(dependent, &seen);
    for (int attempt = 0; !status && !over; attempt++) {
        if (attempt > 1)
            status = truce__worker_wait(&work->worker, "a dependent", error);
        if (!status)
            status = bring_up_once(work, rule, &seen, &over, error);
        if (!status && !over) {
            bson_destroy(&seen);
            status = settle_read_one(work, rule->dependent, &own, &seen, error);
        }
    }
    bson_destroy(&seen);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool settle_is_source(const struct sync_work *work, const char *collection)
{
    for (uint32_t i = 0; i < work->rules->count; i++)
        if (!strcmp(work->rules->rules[i].source, collection))
            return true;
    return false;
}

/* Replaces a flag of another program by a token. The program may set its flag again at any time.
 * If the program has inserted or replaced a document that is a source, too, the document may have
 * dependents, of an earlier incarnation. */
static truce_status settle_mark(struct sync_work *work, const char *collection,
                                const bson_t *document, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER, unset = BSON_INITIALIZER,
           update = BSON_INITIALIZER;
    bson_value_t id = truce__document_id(document);
    int64_t matched;
    truce_status status = TRUCE_OK;
    bool done;

    if (settle_is_source(work, collection) && !truce__sync_revision(document))
        status = truce__sync_touch(work, collection, document, 0, true, &done, error);
    BSON_APPEND_VALUE(&filter, "_id", &id);
    BCON_APPEND(&filter, SYNC_UNCHECKED, "{", "$exists", BCON_BOOL(true), "}");
    truce__intent_append_absent(&filter);
    truce__sync_append_flag(&set, SYNC_UNCHECKED);
    truce__sync_operators(&set, &unset, &update);
    if (!status)
        status = truce__sync_write(work, collection, &filter, &update, false, &matched, error);
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

truce_status truce__sync_bring_up_by_all(struct sync_work *work, const char *collection,
                                         const bson_t *dependent, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < work->rules->count; i++) {
        if (!strcmp(work->rules->rules[i].dependent, collection))
            status = truce__sync_bring_up(work, &work->rules->rules[i], dependent, error);
    }
    return status;
}

/* ---- flags ----------------------------------------------------------------------------------- */

typedef truce_status flag_function(struct sync_work *work, const char *collection,
                                   const bson_t *document, bson_error_t *error);

struct flag {
    const char *name;
    /* `adopt` replaces another program's flag by a token (SY3). `fulfil` does the work that the
     * flag demands. */
    flag_function *adopt, *fulfil;
};

static truce_status adopt_source(struct sync_work *work, const char *collection,
                                 const bson_t *source, bson_error_t *error)
{
    bool done;

    return truce__sync_touch(work, collection, source, 0, true, &done, error);
}

/* Repeats until the flag that was read is removed (SY1, SY5), or another process has replaced
 * it. */
static truce_status reconcile_flag(struct sync_work *work, const char *collection,
                                   const bson_value_t *id, const struct flag *flag,
                                   bson_error_t *error)
{
    bson_t document, fulfilled = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;
    bool over = false;

    for (int attempt = 0; !status && !over; attempt++) {
        status =
            settle_read_flag(work, collection, id, flag->name, attempt, &document, &over, error);
        over = over || (!status && passed_on(&fulfilled, &document, flag->name));
        if (!status && !over && !truce__sync_token(&document, flag->name)) {
            status = flag->adopt(work, collection, &document, error);
        } else if (!status && !over) {
            status = flag->fulfil(work, collection, &document, error);
            if (!status)
                status =
                    truce__sync_take_off(work, collection, &document, flag->name, &over, error);
            bson_destroy(&fulfilled);
            bson_copy_to(&document, &fulfilled);
        }
        bson_destroy(&document);
    }
    bson_destroy(&fulfilled);
    return status;
}

truce_status truce__sync_reconcile_source(struct sync_work *work, const char *collection,
                                          const bson_value_t *id, bson_error_t *error)
{
    return reconcile_flag(work, collection, id, &(struct flag){SYNC_FLAG, adopt_source, copy_all},
                          error);
}

/* Reconciles the dependent, if it has a flag. */
static truce_status sync_settle_dependent(struct sync_work *work, const char *collection,
                                          const bson_value_t *id, bson_error_t *error)
{
    return reconcile_flag(work, collection, id,
                          &(struct flag){SYNC_UNCHECKED, settle_mark, truce__sync_bring_up_by_all},
                          error);
}

truce_status truce__sync_reconcile(struct sync_work *work, const char *collection,
                                   const bson_value_t *id, bson_error_t *error)
{
    truce_status status = sync_settle_dependent(work, collection, id, error);

    return status ? status : truce__sync_reconcile_source(work, collection, id, error);
}
