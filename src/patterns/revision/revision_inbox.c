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
 * open any more.
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

static truce_status resolve_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct resolving *resolving = arg;
    bson_value_t id = {.value_type = BSON_TYPE_OID};
    bson_t entry;
    truce_status status;

    bson_oid_copy(resolving->conflict, &id.value.v_oid);
    truce__revision_reset(resolving->result);
    status = truce_commit_read(commit, CONFLICTS, &id, &entry, error);
    if (!status && !is_open(resolving, &entry))
        status = truce__fail(TRUCE_NOT_FOUND, error, "the conflict is resolved, or not of \"%s\"",
                             resolving->revision->collection);
    if (!status && nothing_to_save(resolving, &entry))
        resolving->result->outcome = TRUCE_REVISION_UNCHANGED;
    else if (!status)
        status = save_decision(resolving, commit, &entry, error);
    if (!status && resolving->result->outcome != TRUCE_REVISION_CONFLICT)
        status = close_entry(commit, &id, error);
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
