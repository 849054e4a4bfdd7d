/*
 * Revisions: one save inside of a commit.
 *
 *     read theirs in the commit, which guards it
 *          |
 *     theirs is what was read (4)            replace: number + 1         SAVED
 *     mine says nothing new                  nothing                     UNCHANGED
 *     save                                   nothing                     CONFLICT, with the paths
 *     merge: base, mine, theirs into one     replace: number + 1         MERGED
 *     what cannot be merged                  nothing, or the inbox       CONFLICT
 *
 * All of a save is one commit (the usual one, of a document alone, a single write): the document, the version that is kept, the one that is dropped, the
 * entry of the inbox. A save that loses a race begins again from the look, a bounded number of times
 * with a pause (truce_transact); what it merges with is then what the winner left.
 *
 * Invariants:
 *   1. A number is given once for an _id, also if the document was removed in between, and whoever removed it: the
 *      numbers of a document that had none come from a range that no other document of this _id has
 *      (revision_keep.c).
 *   2. What was saved under a number that was current is never lost: a later save replaces it only
 *      with that number, or merged.
 *   3. With `keep`, number n of a document is kept exactly if n + 1 replaced it, and n is among the
 *      last `keep`.
 *   4. What another program changed without raising the number is not lost either, as far as the caller
 *      has what was read: theirs is that only if the number and all else is the same.
 *
 * A crash leaves the commit done or not done.
 *
 *     revision_handle.c the handle and its options
 *     revision_base.c   is what stands there what was read?
 *     revision_direct.c the usual save as one write
 *     revision_keep.c   versions that were replaced
 *     revision_entry.c  conflicts kept for somebody to decide: what an entry is, and shows
 *     revision_inbox.c  their decisions
 *     revision_patch.c  saves that are said as patches; the differences of documents
 *     revision_http.c   ETags and conditions of HTTP
 */
#include "patterns/revision/revision.h"

#include "base/deadline.h"
#include "base/limits.h"
#include "bson/number.h"
#include "commit/commit.h"
#include "query/incoming.h"

/* ---- results ---------------------------------------------------------------------------------- */

static void begin_result(truce_revision_result *result)
{
    memset(result, 0, sizeof *result);
    bson_init(&result->document);
    bson_init(&result->conflict);
    result->version = TRUCE_REVISION_NEW;
}

void truce_revision_result_release(truce_revision_result *result)
{
    bson_destroy(&result->document);
    bson_destroy(&result->conflict);
}

void truce__revision_reset(truce_revision_result *result)
{
    truce_revision_result_release(result);
    begin_result(result);
}

void truce__revision_set_document(const truce_revision *revision, truce_revision_result *result,
                                  const bson_t *content, int64_t number)
{
    result->version = number;
    bson_reinit(&result->document);
    bson_concat(&result->document, content);
    bson_append_int64(&result->document, revision->version, -1, number);
}

/* ---- documents -------------------------------------------------------------------------------- */

truce_status truce__revision_number(const truce_revision *revision, const bson_t *document,
                                    int64_t *number, bson_error_t *error)
{
    struct value value = truce__value_field(truce__value_document(document), revision->version,
                                            strlen(revision->version));
    char text[80];

    *number = 0;
    if (!value.type)
        return TRUCE_OK;
    if (truce__value_is_number(value) && truce__number_to_int64(value, number) && *number >= 0 &&
        *number < INT64_MAX)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error, "the field \"%s\" of the document is %s, no number",
                       revision->version, truce__value_show(value, text, sizeof text));
}

void truce__revision_content(const truce_revision *revision, const bson_t *document,
                             bson_t *content)
{
    bson_init(content);
    truce__document_append_without(
        document, (const char *const[]){revision->version, "_rev", "_intent", NULL}, content);
}

static truce_status revision_id_of(const bson_t *document, bson_value_t *id, bson_error_t *error)
{
    bson_iter_t iter;

    if (!document || !bson_iter_init_find(&iter, document, "_id"))
        return truce__fail(TRUCE_INVALID, error, "a document that is saved has an _id");
    *id = *bson_iter_value(&iter);
    return TRUCE_OK;
}

/* ---- running ---------------------------------------------------------------------------------- */

truce_status truce__revision_run(truce_revision *revision, truce_commit *commit,
                                 truce_commit_function *function, void *arg, bson_error_t *error)
{
    truce_commit_options options = {.deadline_ms = revision->deadline_ms,
                                    .tries_max = revision->tries_max,
                                    .relaxed = revision->relaxed};

    if (revision->refused) {
        if (error)
            *error = revision->refusal;
        return TRUCE_INVALID;
    }
    return commit ? function(commit, arg, error)
                  : truce__transact(revision->store, function, arg, &options, false, error);
}

truce_status truce__revision_write(truce_revision *revision, truce_commit *commit,
                                   truce_commit_function *function, void *arg, bson_error_t *error)
{
    truce_status status = revision->refused ? TRUCE_OK : truce__revision_index(revision, error);

    return status ? status : truce__revision_run(revision, commit, function, arg, error);
}

/* ---- conflicts as data ------------------------------------------------------------------------ */

void truce__revision_append_conflict(bson_t *conflicts, const char *path, const char *kind)
{
    char key[12];
    bson_t one;

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(conflicts));
    bson_append_document_begin(conflicts, key, -1, &one);
    bson_append_utf8(&one, "path", 4, path, -1);
    bson_append_utf8(&one, "kind", 4, kind, -1);
    bson_append_document_end(conflicts, &one);
}

/* The contents of the three; an empty one is missing. */
struct contents {
    bson_t base, mine, theirs;
    bool has_base, has_theirs;
};

static void revision_describe(struct revision_save *save, const struct contents *contents,
                              int64_t number, const bson_t *conflicts)
{
    bson_t *conflict = &save->result->conflict;

    save->result->outcome = TRUCE_REVISION_CONFLICT;
    bson_append_int64(conflict, "version", 7, number);
    if (contents->has_base)
        BSON_APPEND_DOCUMENT(conflict, "base", &contents->base);
    BSON_APPEND_DOCUMENT(conflict, "mine", &contents->mine);
    if (contents->has_theirs)
        BSON_APPEND_DOCUMENT(conflict, "theirs", &contents->theirs);
    BSON_APPEND_ARRAY(conflict, "conflicts", conflicts);
}

/* A conflict of the whole document. */
static void describe_whole(struct revision_save *save, const struct contents *contents,
                           int64_t number, const char *kind)
{
    bson_t conflicts = BSON_INITIALIZER;

    truce__revision_append_conflict(&conflicts, "", kind);
    revision_describe(save, contents, number, &conflicts);
    bson_destroy(&conflicts);
}

/* ---- one save --------------------------------------------------------------------------------- */

static truce_status revision_insert_new(struct revision_save *save, truce_commit *commit,
                                        const bson_value_t *id, const bson_t *content,
                                        bson_error_t *error)
{
    int64_t number;
    truce_status status = truce__revision_first(save->revision, commit, id, &number, error);

    if (status)
        return status;
    truce__revision_set_document(save->revision, save->result, content, number);
    save->result->outcome = TRUCE_REVISION_SAVED;
    return truce_commit_insert(commit, save->revision->collection, &save->result->document, error);
}

static truce_status revision_replace(struct revision_save *save, truce_commit *commit,
                                     const bson_value_t *id, const bson_t *theirs, int64_t number,
                                     const bson_t *content, truce_revision_outcome outcome,
                                     bson_error_t *error)
{
    truce_status status = truce__revision_keep(save->revision, commit, theirs, number, error);
    int64_t next = number + 1;

    if (!status && !number) /* it has none yet */
        status = truce__revision_first(save->revision, commit, id, &next, error);
    if (status)
        return status;
    truce__revision_set_document(save->revision, save->result, content, next);
    save->result->outcome = outcome;
    return truce_commit_replace(commit, save->revision->collection, id, NULL,
                                &save->result->document, error);
}

/* The document as it was read: the caller's copy, or what is kept. */
static truce_status find_base(struct revision_save *save, truce_commit *commit,
                              const bson_value_t *id, struct contents *contents,
                              bson_error_t *error)
{
    bson_t kept;
    truce_status status = TRUCE_OK;

    if (!save->base && save->version >= 0) {
        status = truce__revision_kept(save->revision, commit, id, save->version, &kept, error);
        if (!status)
            truce__revision_content(save->revision, &kept, &contents->base);
        contents->has_base = !status;
        bson_destroy(&kept);
    } else if (save->base && !contents->has_base) {
        truce__revision_content(save->revision, save->base, &contents->base);
        contents->has_base = true;
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The paths that mine and theirs disagree about, for a save that does not merge. */
static truce_status describe_stale(struct revision_save *save, const struct contents *contents,
                                   int64_t number, bson_error_t *error)
{
    struct merge_options options = {.rules = save->rules};
    bson_t merged, conflicts;
    truce_status status;

    if (!contents->has_base) {
        describe_whole(save, contents, number, "stale");
        return TRUCE_OK;
    }
    status = truce__merge(
        truce__value_document(&contents->base), truce__value_document(&contents->mine),
        truce__value_document(&contents->theirs), &options, &merged, &conflicts, error);
    if (!status) {
        truce__revision_append_conflict(&conflicts, "", "stale");
        revision_describe(save, contents, number, &conflicts);
    }
    bson_destroy(&merged);
    bson_destroy(&conflicts);
    return status;
}

static truce_status revision_revision_merge(struct revision_save *save, truce_commit *commit,
                                            const bson_value_t *id, const bson_t *theirs,
                                            int64_t number, const struct contents *contents,
                                            bson_error_t *error)
{
    struct merge_options options = {
        .rules = save->rules, .strict = save->revision->strict, .mine_is_newer = true};
    bson_t merged, conflicts;
    truce_status status;

    status = truce__merge(
        truce__value_document(&contents->base), truce__value_document(&contents->mine),
        truce__value_document(&contents->theirs), &options, &merged, &conflicts, error);
    if (!status && !bson_empty(&conflicts)) {
        revision_describe(save, contents, number, &conflicts);
    } else if (!status && bson_equal(&merged, &contents->theirs)) {
        save->result->outcome = TRUCE_REVISION_UNCHANGED;
    } else if (!status) {
        status = revision_replace(save, commit, id, theirs, number, &merged, TRUCE_REVISION_MERGED,
                                  error);
    }
    bson_destroy(&merged);
    bson_destroy(&conflicts);
    return status;
}

/* Theirs is not what was read. */
static truce_status save_stale(struct revision_save *save, truce_commit *commit,
                               const bson_value_t *id, const bson_t *theirs, int64_t number,
                               struct contents *contents, bson_error_t *error)
{
    truce_status status = find_base(save, commit, id, contents, error);

    if (status)
        return status;
    /* what is merged may have to be summed: two equal changes are two */
    if (contents->has_theirs && bson_equal(&contents->mine, &contents->theirs) &&
        !(save->merges && contents->has_base)) {
        save->result->outcome = TRUCE_REVISION_UNCHANGED;
        return TRUCE_OK;
    }
    if (!contents->has_theirs)
        describe_whole(save, contents, number, "removed");
    else if (!save->merges)
        status = describe_stale(save, contents, number, error);
    else if (!contents->has_base)
        describe_whole(save, contents, number, "no-base");
    else
        status = revision_revision_merge(save, commit, id, theirs, number, contents, error);
    if (!status && save->inbox && save->result->outcome == TRUCE_REVISION_CONFLICT)
        status = truce__revision_put_entry(save, commit, id, error);
    return status;
}

/* Of the same values, what mine leaves alone stays as it is: a number may have got another type. */
static truce_status revision_keep_types(struct contents *contents, bson_error_t *error)
{
    struct merge_options options = {.settle = MERGE_SETTLE_MINE};
    bson_t merged, conflicts;
    truce_status status = truce__merge(
        truce__value_document(&contents->base), truce__value_document(&contents->mine),
        truce__value_document(&contents->theirs), &options, &merged, &conflicts, error);

    bson_destroy(&conflicts);
    bson_destroy(&contents->mine);
    bson_steal(&contents->mine, &merged);
    return status;
}

/* Of the same number: somebody may have changed it all the same. */
static truce_status revision_compare_base(struct revision_save *save, struct contents *contents,
                                          bool *stale, bson_error_t *error)
{
    *stale = false;
    if (!save->base)
        return TRUCE_OK;
    truce__revision_content(save->revision, save->base, &contents->base);
    contents->has_base = true;
    *stale = !truce__revision_same_values(&contents->base, &contents->theirs);
    return *stale || bson_equal(&contents->base, &contents->theirs)
               ? TRUCE_OK
               : revision_keep_types(contents, error);
}

static truce_status save_over(struct revision_save *save, truce_commit *commit,
                              const bson_value_t *id, const bson_t *theirs, bool found,
                              struct contents *contents, bson_error_t *error)
{
    int64_t number = TRUCE_REVISION_NEW;
    truce_status status = TRUCE_OK;
    bool stale = false;

    if (found)
        status = truce__revision_number(save->revision, theirs, &number, error);
    if (status)
        return status;
    if (found) {
        truce__revision_content(save->revision, theirs, &contents->theirs);
        contents->has_theirs = true;
        truce__revision_set_document(save->revision, save->result, &contents->theirs, number);
    }
    if (found && number == save->version)
        status = revision_compare_base(save, contents, &stale, error);
    if (status)
        return status;
    if (stale || number != save->version)
        return save_stale(save, commit, id, theirs, number, contents, error);
    if (!found)
        return revision_insert_new(save, commit, id, &contents->mine, error);
    if (bson_equal(&contents->mine, &contents->theirs)) {
        save->result->outcome = TRUCE_REVISION_UNCHANGED;
        return TRUCE_OK;
    }
    return revision_replace(save, commit, id, theirs, number, &contents->mine, TRUCE_REVISION_SAVED,
                            error);
}

truce_status truce__revision_save_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct revision_save *save = arg;
    struct contents contents = {.base = BSON_INITIALIZER, .theirs = BSON_INITIALIZER};
    bson_value_t id;
    bson_t theirs;
    truce_status status = revision_id_of(save->mine, &id, error);

    truce__revision_reset(save->result);
    if (status)
        return status;
    truce__revision_content(save->revision, save->mine, &contents.mine);
    status = truce_commit_read(commit, save->revision->collection, &id, &theirs, error);
    if (!status || status == TRUCE_NOT_FOUND)
        status = save_over(save, commit, &id, &theirs, !status, &contents, error);
    bson_destroy(&theirs);
    bson_destroy(&contents.base);
    bson_destroy(&contents.mine);
    bson_destroy(&contents.theirs);
    return status;
}

/* ---- the public calls ------------------------------------------------------------------------- */

static truce_status revision_revision_save(truce_revision *revision, truce_commit *commit,
                                           const bson_t *mine, int64_t version, const bson_t *base,
                                           bool merges, truce_revision_result *result,
                                           bson_error_t *error)
{
    struct revision_save one = {.revision = revision,
                                .rules = revision->rules,
                                .mine = mine,
                                .base = base,
                                .version = version,
                                .merges = merges,
                                .inbox = merges && revision->inbox,
                                .result = result};
    DEADLINE_SCOPE(commit ? 0 : revision->deadline_ms ? revision->deadline_ms : COMMIT_DEADLINE_MS);
    truce_status status = TRUCE_OK;
    bool saved = false;

    begin_result(result);
    if (!mine)
        status = truce__fail(TRUCE_INVALID, error, "there is no document to save");
    else
        status = truce__document_check(mine, "document", error);
    if (!status && base)
        status = truce__document_check(base, "base", error);
    if (!status && version < TRUCE_REVISION_NEW)
        status = truce__fail(TRUCE_INVALID, error, "the number of a revision is not below 0");
    if (!status && !commit)
        status = truce__revision_save_direct(&one, &saved, error);
    if (status || saved)
        return status;
    return truce__revision_write(revision, commit, truce__revision_save_in, &one, error);
}

truce_status truce_revision_save(truce_revision *revision, truce_commit *commit, const bson_t *mine,
                                 int64_t version, const bson_t *base, truce_revision_result *result,
                                 bson_error_t *error)
{
    return revision_revision_save(revision, commit, mine, version, base, false, result, error);
}

truce_status truce_revision_merge(truce_revision *revision, truce_commit *commit,
                                  const bson_t *mine, int64_t version, const bson_t *base,
                                  truce_revision_result *result, bson_error_t *error)
{
    return revision_revision_save(revision, commit, mine, version, base, true, result, error);
}

struct look {
    const truce_revision *revision;
    const bson_value_t *id;
    bson_t *document;
    int64_t number;
};

static truce_status look_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct look *look = arg;
    bson_t found;
    truce_status status =
        truce_commit_read(commit, look->revision->collection, look->id, &found, error);

    if (!status) {
        bson_reinit(look->document);
        truce__document_append_without(&found, (const char *const[]){"_rev", "_intent", NULL},
                                       look->document);
        status = truce__revision_number(look->revision, &found, &look->number, error);
    }
    bson_destroy(&found);
    return status;
}

truce_status truce_revision_get(truce_revision *revision, truce_commit *commit,
                                const bson_value_t *id, bson_t *document, int64_t *version,
                                bson_error_t *error)
{
    struct look look = {.revision = revision, .id = id, .document = document};
    truce_status status;

    bson_init(document);
    status = truce__revision_run(revision, commit, look_in, &look, error);
    if (version)
        *version = status ? TRUCE_REVISION_NEW : look.number;
    return status;
}

struct removal {
    truce_revision *revision;
    const bson_value_t *id;
    int64_t version;
    const bson_t *base; /* NULL: the number says it all */
    truce_revision_result *result;
};

/* What stands is what was read. */
static bool revision_is_as_read(const struct removal *removal, int64_t number,
                                const bson_t *content)
{
    bson_t base;
    bool same;

    if (number != removal->version || !removal->base)
        return number == removal->version;
    truce__revision_content(removal->revision, removal->base, &base);
    same = truce__revision_same_values(&base, content);
    bson_destroy(&base);
    return same;
}

static truce_status remove_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct removal *removal = arg;
    truce_revision *revision = removal->revision;
    truce_revision_result *result = removal->result;
    int64_t number = 0;
    bson_t theirs, content;
    truce_status status =
        truce_commit_read(commit, revision->collection, removal->id, &theirs, error);

    truce__revision_reset(result);
    if (!status)
        status = truce__revision_number(revision, &theirs, &number, error);
    truce__revision_content(revision, &theirs, &content);
    if (!status && !revision_is_as_read(removal, number, &content)) {
        bson_t conflicts = BSON_INITIALIZER;

        truce__revision_set_document(revision, result, &content, number);
        truce__revision_append_conflict(&conflicts, "", "stale");
        bson_append_int64(&result->conflict, "version", 7, number);
        BSON_APPEND_DOCUMENT(&result->conflict, "theirs", &content);
        BSON_APPEND_ARRAY(&result->conflict, "conflicts", &conflicts);
        result->outcome = TRUCE_REVISION_CONFLICT;
        bson_destroy(&conflicts);
    } else if (!status) {
        result->outcome = TRUCE_REVISION_SAVED;
        status = truce__revision_keep(revision, commit, &theirs, number, error);
        if (!status)
            status = truce__revision_bury(revision, commit, removal->id, number, error);
        if (!status)
            status = truce_commit_remove(commit, revision->collection, removal->id, NULL, error);
    }
    bson_destroy(&content);
    bson_destroy(&theirs);
    return status;
}

truce_status truce_revision_remove(truce_revision *revision, truce_commit *commit,
                                   const bson_value_t *id, int64_t version, const bson_t *base,
                                   truce_revision_result *result, bson_error_t *error)
{
    struct removal removal = {revision, id, version, base, result};

    truce_status status = base ? truce__document_check(base, "base", error) : TRUCE_OK;

    begin_result(result);
    return status ? status : truce__revision_write(revision, commit, remove_in, &removal, error);
}
