/*
 * The usual save in one round trip: nobody saved since, nothing is kept, and the caller has the
 * document as it was read (revision_base.c). Then everything that a save looks at can stand in the filter of one write:
 *
 *     {_id, version: n, all else as read, _intent: absent, _rev: absent or truce's}
 *                             -> mine, version: n + 1, _rev: fresh
 *
 *     matched                 SAVED
 *     not matched             the save is made by a commit, which looks why (revision.c)
 *     refused                 likewise: a unique key may be held by somebody for a moment only
 *     no answer, then:        _rev is ours      SAVED
 *                             as it was read    it has no effect yet: send it again (D1)
 *                             otherwise         TRUCE_UNKNOWN: it may have been saved, and others after
 *
 * Invariants:
 *   D1. A number is given once for an _id, also if the document was removed in between (revision.c), so
 *       of any number of sends one takes effect at most.
 *   D2. After a send without an answer, one that matched nothing is no proof: the first may have
 *       landed, and others may have saved since. Only `_rev` tells.
 *   D3. Of a collection whose unique keys are declared, commits alone know what `_keys` must hold.
 */
#include "patterns/revision/revision.h"

#include "base/id.h"
#include "commit/journal.h"
#include "commit/metadata_cache.h"

struct direct {
    const struct revision_save *save;
    struct worker worker;
    bson_value_t id;
    bson_oid_t rev;
    bson_t filter, replacement;
};

/* ---- when ------------------------------------------------------------------------------------ */

static bool has_operators(const bson_t *document)
{
    struct fields fields = truce__fields(truce__value_document(document));

    while (truce__fields_next(&fields))
        if (fields.key[0] == '$')
            return true;
    return false;
}

/* `mine` says something new, as far as the caller knows. */
static bool direct_differs(const struct revision_save *save)
{
    bson_t mine, base;
    bool different;

    truce__revision_content(save->revision, save->mine, &mine);
    truce__revision_content(save->revision, save->base, &base);
    different = !bson_equal(&mine, &base);
    bson_destroy(&mine);
    bson_destroy(&base);
    return different;
}

static bool is_usual(const struct revision_save *save)
{
    const truce_revision *revision = save->revision;
    bool keyed = true;

    if (revision->refused || revision->keep || !save->base || save->version < 1 ||
        save->version == INT64_MAX || !bson_has_field(save->mine, "_id") ||
        has_operators(save->mine) || !direct_differs(save))
        return false;
    if (truce__memo_keyed(revision->store, revision->collection, &keyed, NULL))
        return false;
    return !keyed; /* D3 */
}

/* ---- the write ------------------------------------------------------------------------------- */

static void direct_append_absent(bson_t *filter, const char *path)
{
    BCON_APPEND(filter, path, "{", "$exists", BCON_BOOL(false), "}");
}

static void append_own_rev(bson_t *filter)
{
    BCON_APPEND(filter, "$or", "[", "{", "_rev", "{", "$exists", BCON_BOOL(false), "}", "}", "{",
                "_rev", "{", "$type", BCON_INT32(BSON_TYPE_OID), "}", "}", "]");
}

/* False: a filter cannot say what was read. */
static bool direct_make_filter(struct direct *direct)
{
    const char *version = direct->save->revision->version;
    char *first = bson_strdup_printf("%s.0", version);

    truce__filter_id(&direct->id, &direct->filter);
    BSON_APPEND_INT64(&direct->filter, version, direct->save->version);
    direct_append_absent(&direct->filter, first); /* a number in an array matches, too */
    direct_append_absent(&direct->filter, "_intent");
    append_own_rev(&direct->filter);
    bson_free(first);
    return truce__revision_filter_base(direct->save->revision, direct->save->base, &direct->filter);
}

static void make_replacement(struct direct *direct)
{
    const truce_revision *revision = direct->save->revision;

    bson_init(&direct->replacement);
    BSON_APPEND_VALUE(&direct->replacement, "_id", &direct->id);
    bson_copy_to_excluding_noinit(direct->save->mine, &direct->replacement, "_id",
                                  revision->version, "_rev", "_intent", NULL);
    bson_append_int64(&direct->replacement, revision->version, -1, direct->save->version + 1);
    BSON_APPEND_OID(&direct->replacement, "_rev", &direct->rev);
}

static truce_status direct_send(const struct direct *direct, bool *matched, bson_error_t *why)
{
    const truce_revision *revision = direct->save->revision;
    truce_write_options options = {.relaxed = revision->relaxed,
                                   .deadline_ms = revision->deadline_ms};
    truce_write_result result = {0};
    truce_status status = truce_update(revision->store, revision->collection, &direct->filter,
                                       &direct->replacement, &options, &result, why);

    *matched = !status && result.matched > 0;
    truce_write_result_release(&result);
    return status;
}

/* ---- no answer ------------------------------------------------------------------------------- */

enum verdict { TOOK, AS_READ, OTHERWISE };

/* Somebody who does not raise the number may have put it back: all else tells, too. */
static bool direct_is_as_read(const struct direct *direct, const bson_t *document)
{
    const struct revision_save *save = direct->save;
    int64_t number;
    bson_t base, plain;
    bool same;

    if (truce__revision_number(save->revision, document, &number, NULL) || number != save->version)
        return false;
    truce__revision_plain(save->revision, save->base, &base);
    truce__revision_plain(save->revision, document, &plain);
    same = bson_equal(&base, &plain);
    bson_destroy(&base);
    bson_destroy(&plain);
    return same;
}

static enum verdict direct_judge(struct direct *direct)
{
    const truce_revision *revision = direct->save->revision;
    enum verdict verdict = OTHERWISE;
    struct token token;
    bson_t document;
    truce_status status =
        truce__journal_read(&direct->worker, revision->collection, &direct->id, &document, NULL);

    if (!status && !truce__token_of(&document, &token, NULL)) {
        if (token.has_rev && bson_oid_equal(&token.rev, &direct->rev))
            verdict = TOOK;
        else if (direct_is_as_read(direct, &document))
            verdict = AS_READ; /* D1 */
    }
    bson_destroy(&document);
    return verdict;
}

/* Sends it until its outcome is certain. *saved false, OK: it has no effect, and never will. */
static truce_status send_certainly(struct direct *direct, bool *saved, bson_error_t *error)
{
    bool unanswered = false, silent = false;
    bson_error_t why;

    for (;;) {
        bson_error_t now = {0};
        truce_status status = direct_send(direct, saved, &now);
        enum verdict verdict;

        if (*saved || (!unanswered && !truce__unanswered(status)))
            return TRUCE_OK;
        unanswered = true;
        silent = silent || status != TRUCE_IO;
        why = now;
        verdict = direct_judge(direct); /* D2 */
        *saved = verdict == TOOK;
        if (*saved)
            return TRUCE_OK;
        if (verdict != OTHERWISE && !truce__disk_refused(direct->worker.store, status) &&
            !truce__worker_wait(&direct->worker, "the store", NULL))
            continue;
        if (!silent && error) /* the disk failed each time: that is told, with its reason */
            *error = why;
        if (!silent)
            return TRUCE_IO;
        return truce__fail(TRUCE_UNKNOWN, error,
                           "the store did not answer a save in \"%s\", and what stands there "
                           "now does not tell whether it took effect",
                           direct->save->revision->collection);
    }
}

truce_status truce__revision_save_direct(struct revision_save *save, bool *saved,
                                         bson_error_t *error)
{
    struct direct direct = {.save = save};
    truce_status status;
    bson_iter_t iter;

    *saved = false;
    if (!is_usual(save) || !bson_iter_init_find(&iter, save->mine, "_id"))
        return TRUCE_OK;
    bson_value_copy(bson_iter_value(&iter), &direct.id);
    truce__worker_init(&direct.worker, save->revision->store, save->revision->deadline_ms);
    truce__id_new(&direct.rev);
    make_replacement(&direct);
    status = direct_make_filter(&direct) ? send_certainly(&direct, saved, error) : TRUCE_OK;
    if (*saved) {
        bson_t content;

        truce__revision_content(save->revision, save->mine, &content);
        truce__revision_set_document(save->revision, save->result, &content, save->version + 1);
        save->result->outcome = TRUCE_REVISION_SAVED;
        bson_destroy(&content);
    }
    bson_destroy(&direct.filter);
    bson_destroy(&direct.replacement);
    bson_value_destroy(&direct.id);
    return status;
}
