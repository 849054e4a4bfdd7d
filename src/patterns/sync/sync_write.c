/* Changes and inserts of masters and dependents: S1 and S4 of sync.c. */
#include <string.h>

#include "base/deadline.h"
#include "base/id.h"
#include "base/null.h"
#include "commit/commit.h"
#include "patterns/sync/sync.h"
#include "query/incoming.h"
#include "store/reserved.h"
#include "store/store.h"

struct writing {
    struct sync_work *work;
    const char *collection;
    bson_value_t id;
    const bson_t *update;   /* NULL: */
    const bson_t *document; /* an insert */
    bool changed;
};

/* ---- what may not be written ------------------------------------------------------------------ */

static truce_status check_own_fields(const struct writing *writing, const bson_t *before,
                                     const bson_t *after, bson_error_t *error)
{
    static const char *const fields[] = {SYNC_FLAG, SYNC_REVISION, SYNC_ORIGIN, SYNC_COPIED,
                                         SYNC_UNCHECKED};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!truce__value_identical(truce__sync_at(before, fields[i]),
                                    truce__sync_at(after, fields[i])))
            return truce__fail(TRUCE_INVALID, error,
                               "\"%s\" of %s is kept by truce, and cannot be written", fields[i],
                               writing->collection);
    }
    return TRUCE_OK;
}

static truce_status sync_write_check_copies(const struct writing *writing,
                                            const struct sync_rule *rule, const bson_t *before,
                                            const bson_t *after, bson_error_t *error)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        const char *to = bson_iter_key(&iter);

        if (!truce__value_identical(truce__sync_at(before, to), truce__sync_at(after, to)))
            return truce__fail(TRUCE_INVALID, error,
                               "\"%s\" of %s is a copy of \"%s\" of %s, by rule \"%s\": change it "
                               "there",
                               to, writing->collection, bson_iter_utf8(&iter, NULL), rule->master,
                               rule->name);
    }
    return TRUCE_OK;
}

/* ---- what is added ---------------------------------------------------------------------------- */

struct addition {
    bson_t set, unset;
    bool flag, check; /* the document gets the flag of a master, of a dependent */
};

static bool source_changed(const struct sync_rule *rule, const bson_t *before, const bson_t *after)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        const char *from = bson_iter_utf8(&iter, NULL);

        if (!truce__value_identical(truce__sync_at(before, from), truce__sync_at(after, from)))
            return true;
    }
    return false;
}

/* The values that it begins with; the look that counts comes after it. So nobody is waited for, whom this commit may
 * stand in the way of. */
static truce_status begin_copies(const struct writing *writing, const struct sync_rule *rule,
                                 const bson_t *after, struct addition *addition,
                                 bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, master;
    bson_value_t id;
    truce_status status;

    addition->check = true;
    if (!truce__sync_reference(rule, after, &id)) {
        BSON_APPEND_BOOL(&addition->unset, rule->copied, true);
        bson_destroy(&filter);
        return TRUCE_OK;
    }
    BSON_APPEND_VALUE(&filter, "_id", &id);
    /* latest: the copies that go into the new dependent; its master may have been settled already */
    status = truce_find_one(writing->work->sync->store, rule->master, &filter, &truce__find_latest,
                            &master, error);
    if (!status)
        truce__sync_append_copies(rule, &master, &addition->set, &addition->unset);
    if (!status && truce__sync_revision(&master))
        truce__sync_append_stamp(rule, &master, &addition->set);
    else if (!status || status == TRUCE_NOT_FOUND)
        BSON_APPEND_BOOL(&addition->unset, rule->copied, true);
    bson_destroy(&master);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status add_for(const struct writing *writing, const struct sync_rule *rule,
                            const bson_t *before, const bson_t *after, struct addition *addition,
                            bson_error_t *error)
{
    bool is_copy = !strcmp(rule->dependent, writing->collection),
         is_source = !strcmp(rule->master, writing->collection);
    truce_status status =
        truce__sync_check_arrays(rule, is_copy ? after : NULL, is_source ? after : NULL, error);

    if (!status && is_copy) {
        if (truce__value_identical(truce__sync_at(before, rule->reference),
                                   truce__sync_at(after, rule->reference)))
            status = writing->document
                         ? TRUCE_OK
                         : sync_write_check_copies(writing, rule, before, after, error);
        else
            status = begin_copies(writing, rule, after, addition, error);
    }
    if (is_source && (writing->document || source_changed(rule, before, after)))
        addition->flag = true;
    return status;
}

/* A reference that moves takes copies with it, which may be copied on. */
static bool copied_on(const struct writing *writing, const struct addition *addition)
{
    for (uint32_t i = 0; addition->check && i < writing->work->rules->count; i++) {
        if (writing->work->rules->rules[i].feeds &&
            !strcmp(writing->work->rules->rules[i].dependent, writing->collection))
            return true;
    }
    return false;
}

static truce_status sync_write_put(truce_commit *commit, struct writing *writing,
                                   const bson_t *before, struct addition *addition,
                                   bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;
    bson_oid_t token;
    int64_t next;

    addition->flag = addition->flag || copied_on(writing, addition);
    writing->changed = addition->flag || addition->check;
    if (!writing->changed)
        return TRUCE_OK;
    if (addition->flag) {
        status = truce__sync_next(before, 0, &next, error);
        if (status)
            return status;
        truce__id_new(&token);
        BSON_APPEND_OID(&addition->set, SYNC_FLAG, &token);
        truce__sync_append_number(before, next, &addition->set);
    }
    if (addition->check) {
        truce__id_new(&token);
        BSON_APPEND_OID(&addition->set, SYNC_UNCHECKED, &token);
    }
    if (!bson_empty(&addition->set))
        BSON_APPEND_DOCUMENT(&update, "$set", &addition->set);
    if (!bson_empty(&addition->unset))
        BSON_APPEND_DOCUMENT(&update, "$unset", &addition->unset);
    status = truce_commit_update(commit, writing->collection, &writing->id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

/* ---- the commit ------------------------------------------------------------------------------- */

static truce_status sync_write_add(truce_commit *commit, struct writing *writing,
                                   const bson_t *before, const bson_t *after, bson_error_t *error)
{
    struct addition addition = {.set = BSON_INITIALIZER, .unset = BSON_INITIALIZER};
    truce_status status = check_own_fields(writing, before, after, error);

    for (uint32_t i = 0; !status && i < writing->work->rules->count; i++)
        status = add_for(writing, &writing->work->rules->rules[i], before, after, &addition, error);
    if (!status)
        status = sync_write_put(commit, writing, before, &addition, error);
    bson_destroy(&addition.unset);
    bson_destroy(&addition.set);
    return status;
}

static truce_status sync_write_no_such(const struct writing *writing, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    char text[200];

    BSON_APPEND_VALUE(&holder, "_id", &writing->id);
    truce__value_show(truce__value_document(&holder), text, sizeof text);
    bson_destroy(&holder);
    return truce__fail(TRUCE_NOT_FOUND, error, "%s %s does not exist", writing->collection, text);
}

/* A truce_commit_function. */
static truce_status sync_write_update_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct writing *writing = arg;
    bson_t before, after = BSON_INITIALIZER;
    truce_status status =
        truce_commit_read(commit, writing->collection, &writing->id, &before, error);

    if (status == TRUCE_NOT_FOUND)
        status = sync_write_no_such(writing, error);
    if (!status)
        status = truce_commit_update(commit, writing->collection, &writing->id, NULL,
                                     writing->update, error);
    if (!status) {
        bson_destroy(&after);
        status = truce_commit_read(commit, writing->collection, &writing->id, &after, error);
    }
    if (!status)
        status = sync_write_add(commit, writing, &before, &after, error);
    bson_destroy(&after);
    bson_destroy(&before);
    return status;
}

/* A truce_commit_function. */
static truce_status insert_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct writing *writing = arg;
    bson_t nothing = BSON_INITIALIZER;
    truce_status status =
        truce_commit_insert(commit, writing->collection, writing->document, error);

    if (!status)
        status = sync_write_add(commit, writing, &nothing, writing->document, error);
    bson_destroy(&nothing);
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------ */

static truce_status alone(struct writing *writing, truce_commit_function *function,
                          truce_sync_result *result, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = writing->work->sync->options.mechanism,
                                    .deadline_ms = writing->work->sync->options.deadline_ms};
    bson_error_t later;
    truce_status status =
        truce_transact(writing->work->sync->store, function, writing, &options, error);

    if (status)
        return status;
    result->changed = writing->changed;
    result->settled = !writing->changed ||
                      !truce__sync_settle(writing->work, writing->collection, &writing->id, &later);
    result->copies = writing->work->copies;
    return TRUCE_OK;
}

static truce_status sync_write_run(truce_sync *sync, truce_commit *commit, struct writing *writing,
                                   truce_commit_function *function, truce_sync_result *result,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(sync->options.deadline_ms);
    truce_sync_result nobody;
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    result = result ? result : &nobody;
    *result = (truce_sync_result){0};
    writing->work = &work;
    if (!status && truce__reserved(writing->collection))
        status =
            truce__fail(TRUCE_INVALID, error, "collection %s is truce's own", writing->collection);
    if (!status && commit && commit->store != sync->store)
        status = truce__fail(TRUCE_INVALID, error, "the rules and the commit are of two stores");
    if (!status && commit) {
        status = function(commit, writing, error);
        result->changed = writing->changed;
        result->settled = !writing->changed;
    } else if (!status) {
        status = alone(writing, function, result, error);
    }
    truce__sync_end(&work);
    return status;
}

truce_status truce_sync_update(truce_sync *sync, truce_commit *commit, const char *collection,
                               const bson_value_t *id, const bson_t *update,
                               truce_sync_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(id, error);
    RETURN_IF_NULL(update, error);

    struct writing writing = {.collection = collection, .id = *id, .update = update};
    truce_status status = truce__check_value(id, "_id", error);

    if (!status)
        status = truce__document_check(update, "update", error);
    return status ? status
                  : sync_write_run(sync, commit, &writing, sync_write_update_in, result, error);
}

truce_status truce_sync_insert(truce_sync *sync, truce_commit *commit, const char *collection,
                               const bson_t *document, truce_sync_result *result,
                               bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(document, error);

    struct writing writing = {.collection = collection, .document = document};
    truce_status status = truce__document_check(document, "document", error);

    if (status)
        return status;
    writing.id = truce__document_id(document);
    if (writing.id.value_type == BSON_TYPE_NULL)
        return truce__fail(TRUCE_INVALID, error, "the document has no _id");
    return sync_write_run(sync, commit, &writing, insert_in, result, error);
}
