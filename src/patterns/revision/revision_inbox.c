/*
 * Conflicts kept for somebody to decide, in `truce_conflicts`:
 *
 *     {_id, collection, id, state: "open", at, version, base?, mine, theirs, conflicts}
 *
 * The _id is made of what was sent (collection, id, version, document), so an edit that is sent again is the
 * same entry, told against what stands then.
 *
 * A resolution is made against what theirs was when the conflict arose. If the document has changed
 * since, it is merged with that like any late save: base is the old theirs. The save and the closing
 * of the conflict (state "resolved") are one commit, so of two who decide at once one finds nothing
 * open any more. So is the closing of those that say the same: the same edit of the document, read under
 * another number, or one that is in what stands now whole. A new disagreement leaves the entry open, against what stands
 * now.
 */
#include "patterns/revision/revision.h"

struct resolving {
    truce_revision *revision;
    const bson_oid_t *conflict;
    truce_resolution resolution;
    const bson_t *document;
    truce_revision_result *result;
};

static bool is_open(const struct resolving *resolving, const bson_t *entry)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, entry, "state") && BSON_ITER_HOLDS_UTF8(&iter) &&
           !strcmp(bson_iter_utf8(&iter, NULL), "open") &&
           bson_iter_init_find(&iter, entry, "collection") && BSON_ITER_HOLDS_UTF8(&iter) &&
           !strcmp(bson_iter_utf8(&iter, NULL), resolving->revision->collection);
}

/* What is to be saved; `made` is initialised by the caller. */
static truce_status decide(const struct resolving *resolving, const bson_t *entry, bson_t *made,
                           bson_error_t *error)
{
    bool for_mine = resolving->resolution == TRUCE_RESOLVE_MINE;
    struct merge_options options = {.rules = resolving->revision->rules,
                                    .mine_is_newer = true,
                                    .settle = for_mine ? MERGE_SETTLE_MINE : MERGE_SETTLE_THEIRS};
    bson_t base, mine, theirs, conflicts;
    bool has_base = truce__value_subdocument(entry, "base", &base), has_theirs;
    truce_status status;

    if (resolving->resolution == TRUCE_RESOLVE_DOCUMENT) {
        truce__revision_content(resolving->revision, resolving->document, made);
        return TRUCE_OK;
    }
    has_theirs = truce__value_subdocument(entry, "theirs", &theirs);
    if (!truce__value_subdocument(entry, "mine", &mine))
        return truce__fail(TRUCE_CORRUPT, error, "the conflict has no document \"mine\"");
    if (!has_base || !has_theirs) {
        bson_concat(made, for_mine || !has_theirs ? &mine : &theirs);
        return TRUCE_OK;
    }
    bson_destroy(made);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(&theirs), &options, made, &conflicts, error);
    bson_destroy(&conflicts);
    return status;
}

/* The document was removed, and theirs is to stand. */
static bool nothing_to_save(const struct resolving *resolving, const bson_t *entry)
{
    bson_t theirs;

    return resolving->resolution == TRUCE_RESOLVE_THEIRS &&
           !truce__value_subdocument(entry, "theirs", &theirs);
}

static truce_status save_decision(const struct resolving *resolving, truce_commit *commit,
                                  const bson_t *entry, bson_error_t *error)
{
    struct revision_save save = {
        .revision = resolving->revision, .merges = true, .result = resolving->result};
    bson_t theirs, made = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status = decide(resolving, entry, &made, error);

    save.mine = &made;
    save.base = truce__value_subdocument(entry, "theirs", &theirs) ? &theirs : NULL;
    save.version = bson_iter_init_find(&iter, entry, "version") && BSON_ITER_HOLDS_INT64(&iter)
                       ? bson_iter_int64(&iter)
                       : TRUCE_REVISION_NEW;
    if (!status)
        status = truce__revision_save_in(commit, &save, error);
    bson_destroy(&made);
    return status;
}

static truce_status close_entry(truce_commit *commit, const bson_value_t *id, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$set", "{", "state", BCON_UTF8("resolved"), "}");
    truce_status status = truce_commit_update(commit, CONFLICTS, id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* ---- those that say the same ---- */

#define SAME_MAX 100

/* Is everything that the entry's edit changed in `now`? */
static bool is_contained(const struct resolving *resolving, const bson_t *entry, const bson_t *now)
{
    struct merge_options options = {.rules = resolving->revision->rules, .mine_is_newer = true};
    bson_t base, mine, merged, conflicts;
    bson_error_t ignored;
    bool same;

    if (!truce__value_subdocument(entry, "base", &base) ||
        !truce__value_subdocument(entry, "mine", &mine))
        return false;
    same = !truce__merge(truce__value_document(&base), truce__value_document(&mine),
                         truce__value_document(now), &options, &merged, &conflicts, &ignored) &&
           bson_empty(&conflicts) && bson_equal(&merged, now);
    bson_destroy(&merged);
    bson_destroy(&conflicts);
    return same;
}

static bool says_the_same(const struct resolving *resolving, const bson_t *decided,
                          const bson_t *other, const bson_t *now)
{
    bson_t a, b;

    if (truce__value_subdocument(decided, "mine", &a) &&
        truce__value_subdocument(other, "mine", &b) && bson_equal(&a, &b))
        return true;
    return resolving->result->version != TRUCE_REVISION_NEW && is_contained(resolving, other, now);
}

/* The other open entries of the document. */
static truce_status list_others(const struct resolving *resolving, const bson_t *entry,
                                bson_oid_t *others, size_t *count, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, inner;
    const truce_find_options options = {.limit = SAME_MAX};
    truce_cursor *cursor = NULL;
    bson_iter_t iter;
    truce_status status;

    *count = 0;
    if (!bson_iter_init_find(&iter, entry, "id"))
        return TRUCE_OK;
    BSON_APPEND_UTF8(&filter, "collection", resolving->revision->collection);
    BSON_APPEND_UTF8(&filter, "state", "open");
    bson_append_document_begin(&filter, "id", 2, &inner);
    BSON_APPEND_VALUE(&inner, "$eq", bson_iter_value(&iter));
    bson_append_document_end(&filter, &inner);
    status = truce_find(resolving->revision->store, CONFLICTS, &filter, &options, &cursor, error);
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (bson_iter_init_find(&iter, document, "_id") && BSON_ITER_HOLDS_OID(&iter) &&
            !bson_oid_equal(bson_iter_oid(&iter), resolving->conflict) && *count < SAME_MAX)
            others[(*count)++] = *bson_iter_oid(&iter);
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}

static truce_status close_same(const struct resolving *resolving, truce_commit *commit,
                               const bson_t *decided, bson_error_t *error)
{
    bson_oid_t others[SAME_MAX];
    bson_t now;
    size_t count;
    truce_status status = list_others(resolving, decided, others, &count, error);

    truce__revision_content(resolving->revision, &resolving->result->document, &now);
    for (size_t i = 0; !status && i < count; i++) {
        bson_value_t id = {.value_type = BSON_TYPE_OID, .value.v_oid = others[i]};
        bson_t other;

        status = truce_commit_read(commit, CONFLICTS, &id, &other, error);
        if (!status && is_open(resolving, &other) &&
            says_the_same(resolving, decided, &other, &now))
            status = close_entry(commit, &id, error);
        bson_destroy(&other);
        status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    bson_destroy(&now);
    return status;
}

/* The entry stays open: what the decision disagrees with is what stands now. */
static truce_status follow(const struct resolving *resolving, truce_commit *commit,
                           const bson_value_t *id, const bson_t *entry, bson_error_t *error)
{
    struct merge_options options = {.rules = resolving->revision->rules, .mine_is_newer = true};
    bson_t base, mine, theirs, merged, conflicts, changed, *update;
    truce_status status;

    if (!truce__value_subdocument(entry, "base", &base) ||
        !truce__value_subdocument(entry, "mine", &mine) ||
        resolving->result->version == TRUCE_REVISION_NEW)
        return TRUCE_OK;
    truce__revision_content(resolving->revision, &resolving->result->document, &theirs);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(&theirs), &options, &merged, &conflicts, error);
    if (!status) {
        bson_init(&changed);
        BSON_APPEND_INT64(&changed, "version", resolving->result->version);
        BSON_APPEND_DOCUMENT(&changed, "theirs", &theirs);
        BSON_APPEND_ARRAY(&changed, "conflicts", &conflicts);
        update = BCON_NEW("$set", BCON_DOCUMENT(&changed));
        status = truce_commit_update(commit, CONFLICTS, id, NULL, update, error);
        bson_destroy(update);
        bson_destroy(&changed);
    }
    bson_destroy(&merged);
    bson_destroy(&conflicts);
    bson_destroy(&theirs);
    return status;
}

static truce_status resolve_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct resolving *resolving = arg;
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    char hex[25];
    bson_t entry;
    truce_status status;

    bson_oid_copy(resolving->conflict, &id.value.v_oid);
    truce__revision_reset(resolving->result);
    status = truce_commit_read(commit, CONFLICTS, &id, &entry, error);
    if (status == TRUCE_NOT_FOUND) {
        bson_oid_to_string(resolving->conflict, hex);
        status = truce__fail(status, error, "there is no conflict %s", hex);
    }
    if (!status && !is_open(resolving, &entry))
        status = truce__fail(TRUCE_NOT_FOUND, error, "the conflict is resolved, or not of \"%s\"",
                             resolving->revision->collection);
    if (!status && nothing_to_save(resolving, &entry))
        resolving->result->outcome = TRUCE_REVISION_UNCHANGED;
    else if (!status)
        status = save_decision(resolving, commit, &entry, error);
    if (!status && resolving->result->outcome == TRUCE_REVISION_CONFLICT)
        status = follow(resolving, commit, &id, &entry, error);
    else if (!status)
        status = close_entry(commit, &id, error);
    if (!status && resolving->result->outcome != TRUCE_REVISION_CONFLICT)
        status = close_same(resolving, commit, &entry, error);
    bson_destroy(&entry);
    return status;
}

truce_status truce_revision_resolve(truce_revision *revision, truce_commit *commit,
                                    const bson_oid_t *conflict, truce_resolution resolution,
                                    const bson_t *document, truce_revision_result *result,
                                    bson_error_t *error)
{
    struct resolving resolving = {revision, conflict, resolution, document, result};

    *result = (truce_revision_result){.document = BSON_INITIALIZER, .conflict = BSON_INITIALIZER};
    if ((resolution == TRUCE_RESOLVE_DOCUMENT) != (document != NULL))
        return truce__fail(TRUCE_INVALID, error,
                           "a document goes with a resolution by document, and with no other");
    return truce__revision_write(revision, commit, resolve_in, &resolving, error);
}

truce_status truce_revision_conflicts(truce_revision *revision, truce_cursor **cursor,
                                      bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("collection", BCON_UTF8(revision->collection), "state", BCON_UTF8("open"));
    bson_t *sort = BCON_NEW("at", BCON_INT32(1), "_id", BCON_INT32(1));
    truce_find_options options = {.sort = sort};
    truce_status status = truce_find(revision->store, CONFLICTS, filter, &options, cursor, error);

    bson_destroy(filter);
    bson_destroy(sort);
    return status;
}
