/*
 * The inbox: stored conflicts and their decisions.
 *
 * A decision refers to a revision that its author saw. It combines base, mine, and that revision,
 * and is saved like any late save whose base is that revision. So changes saved since are merged
 * with it. The save and the closing of the entry (state "resolved") are one commit, so of two
 * concurrent decisions the second finds no open entry. The same commit closes equivalent entries:
 * the same edit, read under another number, or an edit that the stored document contains
 * completely.
 *
 * The revision is given by the entry as it was shown (number and document), by its number alone, or
 * it is the revision that the entry was created against. The document of a number alone is that of
 * the entry, the stored one, or a kept version.
 *
 * 1. A decision never overwrites a stored change that its author did not see: it conflicts with the
 *    change, or is merged.
 * 2. If they conflict, or the revision is unknown, nothing is saved, and the entry stays open
 *    against the stored document or its removal. So every entry can be decided after another read.
 */
#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/null.h"
#include "bson/field_name_escape.h"
#include "bson/json.h"
#include "bson/number.h"
#include "patterns/revision/revision.h"
#include "query/input_check.h"
#include "store/decoded_cursor.h"

/* ---- entries --------------------------------------------------------------------------------- */

/*
 * Entries of the inbox, in `truce_conflicts`:
 *
 *     {_id, collection, id, state: "open", at, rules?, version, base?, mine, theirs?, conflicts}
 *
 * The _id is derived from the edit (collection, id, version, document). So an edit that is sent
 * again is the same entry, updated to the document that is stored then. `version` and `theirs` are
 * the revision that the entry was created against: -1 and none if the document was removed. `rules`
 * are the rules of the save, as text, for decisions by a handle without rules.
 *
 * An entry is listed against the stored document: `version`, `theirs`, and `conflicts` are computed
 * again, and nothing is written. If that is impossible because the document's number is invalid,
 * the entry is shown as it was created.
 */

/* ---- putting in ------------------------------------------------------------------------------ */

/* Computes the _id of an entry from the edit and its version. The same edit of the same version is
 * one entry, however often it is sent. */
static void name_entry(const struct revision_save *save, const bson_value_t *id, bson_oid_t *name)
{
    struct fingerprint sum = {0};
    bson_t edit = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&edit, "collection", save->revision->collection);
    BSON_APPEND_VALUE(&edit, "id", id);
    BSON_APPEND_INT64(&edit, "version", save->version);
    BSON_APPEND_DOCUMENT(&edit, "mine", save->mine);
    truce__fingerprint_add(&sum, bson_get_data(&edit), edit.len);
    memcpy(name->bytes, &sum.high, 8);
    memcpy(name->bytes + 8, &sum.low, 4);
    bson_destroy(&edit);
}

/* Converts an entry to its stored form (bson/field_name_escape.h). */
static void revision_entry_store(bson_t *entry)
{
    bson_t stored = BSON_INITIALIZER;
    bson_iter_t iter;

    (void)!bson_iter_init(&iter, entry);
    while (bson_iter_next(&iter)) {
        const char *key = bson_iter_key(&iter);
        bson_t side;

        if ((!strcmp(key, "base") || !strcmp(key, "mine") || !strcmp(key, "theirs")) &&
            truce__value_subdocument(entry, key, &side))
            truce__names_append(&stored, key, &side);
        else
            bson_append_iter(&stored, NULL, -1, &iter);
    }
    bson_destroy(entry);
    bson_steal(entry, &stored);
}

truce_status truce__revision_put_entry(struct revision_save *save, truce_commit *commit,
                                       const bson_value_t *id, bson_error_t *error)
{
    const truce_revision *revision = save->revision;
    bson_t entry = BSON_INITIALIZER, there;
    bson_value_t name = {.value_type = BSON_TYPE_OID};
    truce_status status;

    name_entry(save, id, &name.value.v_oid);
    save->result->inbox = name.value.v_oid;
    BSON_APPEND_OID(&entry, "_id", &save->result->inbox);
    BSON_APPEND_UTF8(&entry, "collection", revision->collection);
    BSON_APPEND_VALUE(&entry, "id", id);
    BSON_APPEND_UTF8(&entry, "state", "open");
    BSON_APPEND_DATE_TIME(&entry, "at", truce__clock_wall_ms());
    if (revision->rules_text)
        BSON_APPEND_UTF8(&entry, "rules", revision->rules_text);
    bson_concat(&entry, &save->result->conflict);
    revision_entry_store(&entry);
    status = truce_commit_read(commit, CONFLICTS, &name, &there, error);
    if (status == TRUCE_NOT_FOUND)
        status = truce_commit_insert(commit, CONFLICTS, &entry, error);
    else if (!status)
        status = truce_commit_replace(commit, CONFLICTS, &name, NULL, &entry, error);
    bson_destroy(&there);
    bson_destroy(&entry);
    return status;
}

/* ---- comparison with the current document -------------------------------------------------- */

const struct merge_rules *truce__revision_entry_rules(const truce_revision *revision,
                                                      const bson_t *entry,
                                                      struct merge_rules **kept)
{
    struct json_reader reader = {0};
    /* Rules that this version of truce cannot read are ignored. */
    bson_error_t ignored;
    bson_iter_t iter;
    const char *text;
    uint32_t length;
    bson_t rules;

    *kept = NULL;
    if (revision->rules_text || !bson_iter_init_find(&iter, entry, "rules") ||
        !BSON_ITER_HOLDS_UTF8(&iter))
        return revision->rules;
    text = bson_iter_utf8(&iter, &length);
    if (truce__json_read(&reader, text, length, &rules, NULL, &ignored) ||
        truce__merge_rules_new(&rules, kept, &ignored))
        *kept = NULL;
    truce__json_reader_release(&reader);
    bson_destroy(&rules);
    return *kept ? *kept : revision->rules;
}

/* Lists the paths on which mine and theirs conflict; initializes `conflicts`. */
static truce_status entry_conflicts(const truce_revision *revision, const bson_t *entry,
                                    const bson_t *theirs, bson_t *conflicts, bson_error_t *error)
{
    struct merge_options options = {.strict = revision->strict, .mine_is_newer = true};
    struct merge_rules *kept;
    bson_t base, mine, merged;
    truce_status status;

    bson_init(conflicts);
    if (!theirs || !truce__value_subdocument(entry, "base", &base) ||
        !truce__value_subdocument(entry, "mine", &mine)) {
        truce__revision_append_conflict(conflicts, "", theirs ? "no-base" : "removed");
        return TRUCE_OK;
    }
    bson_destroy(conflicts);
    options.rules = truce__revision_entry_rules(revision, entry, &kept);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(theirs), &options, &merged, conflicts, error);
    truce__merge_rules_free(kept);
    bson_destroy(&merged);
    return status;
}

/* Builds the entry against a document of that number (NULL if it was removed). Initializes `shown`;
 * after an error, `shown` is the entry as it was created. */
static truce_status revision_entry_against(const truce_revision *revision, const bson_t *entry,
                                           const bson_t *theirs, int64_t number, bson_t *shown,
                                           bson_error_t *error)
{
    bson_t conflicts, field;
    truce_status status = entry_conflicts(revision, entry, theirs, &conflicts, error);

    bson_init(shown);
    if (status) {
        bson_concat(shown, entry);
    } else {
        bson_copy_to_excluding_noinit(entry, shown, "version", "base", "mine", "theirs",
                                      "conflicts", "_rev", "_intent", NULL);
        BSON_APPEND_INT64(shown, "version", number);
        if (truce__value_subdocument(entry, "base", &field))
            BSON_APPEND_DOCUMENT(shown, "base", &field);
        if (truce__value_subdocument(entry, "mine", &field))
            BSON_APPEND_DOCUMENT(shown, "mine", &field);
        if (theirs)
            BSON_APPEND_DOCUMENT(shown, "theirs", theirs);
        BSON_APPEND_ARRAY(shown, "conflicts", &conflicts);
    }
    bson_destroy(&conflicts);
    return status;
}

/* ---- the list -------------------------------------------------------------------------------- */

static bson_t *open_entries(const truce_revision *revision)
{
    return BCON_NEW("collection", BCON_UTF8(revision->collection), "state", BCON_UTF8("open"));
}

/* A cursor over the entries of the inbox. */
struct entries {
    /* Must be the first field: cursor functions get a pointer to it. */
    truce_cursor base;
    truce_revision *revision;
    truce_cursor *stored;
    bson_t shown;
};

/* Makes the form of an entry that users see, against the stored document. `shown` is always
 * initialized. */
static truce_status entry_show(truce_revision *revision, const bson_t *entry, bson_t *shown,
                               bson_error_t *error)
{
    bson_t document, content;
    /* If the comparison fails, the entry is shown as it was created. */
    bson_error_t ignored;
    bson_iter_t id;
    int64_t number;
    truce_status status;

    if (!bson_iter_init_find(&id, entry, "id")) {
        bson_copy_to(entry, shown);
        return TRUCE_OK;
    }
    status = truce_revision_get(revision, NULL, bson_iter_value(&id), &document, &number, error);
    if (status == TRUCE_INVALID) {
        bson_copy_to(entry, shown);
        status = TRUCE_OK;
    } else if (status && status != TRUCE_NOT_FOUND) {
        bson_init(shown);
    } else {
        truce__revision_content(revision, &document, &content);
        (void)revision_entry_against(revision, entry, status ? NULL : &content, number, shown,
                                     &ignored);
        bson_destroy(&content);
        status = TRUCE_OK;
    }
    bson_destroy(&document);
    return status;
}

static truce_status entries_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct entries *entries = (struct entries *)base;
    truce_status status = truce_cursor_next(entries->stored, document, error);

    if (!status && *document) {
        bson_destroy(&entries->shown);
        status = entry_show(entries->revision, *document, &entries->shown, error);
        *document = status ? NULL : &entries->shown;
    }
    return status;
}

static void entries_close(truce_cursor *base)
{
    struct entries *entries = (struct entries *)base;

    truce_cursor_close(entries->stored);
    bson_destroy(&entries->shown);
    bson_free(entries);
}

static const truce_cursor_ops entries_ops = {entries_next, entries_close};

truce_status truce_revision_conflicts(truce_revision *revision, truce_cursor **cursor,
                                      bson_error_t *error)
{
    RETURN_IF_NULL(cursor, error);

    bson_t *filter, *sort;
    truce_find_options options = {0};
    struct entries *entries;
    truce_status status;

    *cursor = NULL;
    if (revision->refused)
        return truce__fail(TRUCE_INVALID, error, "%s", revision->refusal.message);
    filter = open_entries(revision);
    sort = BCON_NEW("at", BCON_INT32(1), "_id", BCON_INT32(1));
    options.sort = sort;
    entries = bson_malloc0(sizeof *entries);
    *entries = (struct entries){
        .base = {.ops = &entries_ops}, .revision = revision, .shown = BSON_INITIALIZER};
    status = truce_find(revision->store, CONFLICTS, filter, &options, &entries->stored, error);
    if (status) {
        bson_free(entries);
    } else {
        entries->stored = truce__restored_cursor(entries->stored);
        *cursor = &entries->base;
    }
    bson_destroy(filter);
    bson_destroy(sort);
    return status;
}

truce_status truce_revision_conflict(truce_revision *revision, const bson_oid_t *conflict,
                                     bson_t *entry, bson_error_t *error)
{
    RETURN_IF_NULL(entry, error);
    RETURN_EMPTY_IF_NULL(conflict, entry, error);

    bson_t *filter, stored;
    truce_status status;
    char hex[25];

    bson_init(entry);
    if (revision->refused)
        return truce__fail(TRUCE_INVALID, error, "%s", revision->refusal.message);
    filter = open_entries(revision);
    BSON_APPEND_OID(filter, "_id", conflict);
    status = truce_find_one(revision->store, CONFLICTS, filter, NULL, &stored, error);
    if (status == TRUCE_NOT_FOUND) {
        bson_oid_to_string(conflict, hex);
        status =
            truce__fail(status, error, "the conflict %s of \"%s\" does not exist, or is resolved",
                        hex, revision->collection);
    } else if (!status) {
        bson_destroy(entry);
        truce__names_restore_own(&stored);
        status = entry_show(revision, &stored, entry, error);
    }
    bson_destroy(&stored);
    bson_destroy(filter);
    return status;
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* The argument of the commit that decides a conflict. */
struct resolving {
    truce_revision *revision;
    const bson_oid_t *conflict;
    truce_resolution resolution;
    const bson_t *document, *seen;
    truce_revision_result *result;
};

/* A version of the document: the stored one, or the one that the author of a decision saw. */
struct inbox_version {
    int64_t number;
    bool exists;
    bson_t content;
};

static bool inbox_is_open(const struct resolving *resolving, const bson_t *entry)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, entry, "state") && BSON_ITER_HOLDS_UTF8(&iter) &&
           !strcmp(bson_iter_utf8(&iter, NULL), "open") &&
           bson_iter_init_find(&iter, entry, "collection") && BSON_ITER_HOLDS_UTF8(&iter) &&
           !strcmp(bson_iter_utf8(&iter, NULL), resolving->revision->collection);
}

/* ---- the current document, and the document that was read ---- */

static int64_t inbox_number_in(const bson_t *document)
{
    struct value value = truce__value_field(truce__value_document(document), "version", 7);
    int64_t number;

    return truce__value_is_number(value) && truce__number_to_int64(value, &number) && number >= 0
               ? number
               : TRUCE_REVISION_NEW;
}

static void take_content(const truce_revision *revision, const bson_t *document,
                         struct inbox_version *to)
{
    bson_destroy(&to->content);
    truce__revision_content(revision, document, &to->content);
    to->exists = true;
}

/* Reads the stored document and its number in the commit. A missing document is not a failure. */
static truce_status read_now(const struct resolving *resolving, truce_commit *commit,
                             const bson_value_t *id, struct inbox_version *now, bson_error_t *error)
{
    bson_t document;
    truce_status status =
        truce_commit_read(commit, resolving->revision->collection, id, &document, error);

    now->number = TRUCE_REVISION_NEW;
    if (!status)
        status = truce__revision_number(resolving->revision, &document, &now->number, error);
    if (!status)
        take_content(resolving->revision, &document, now);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Finds the version that the author saw. Sets *known to false if the document of that number is
 * unknown. */
static truce_status find_seen(const struct resolving *resolving, truce_commit *commit,
                              const bson_value_t *id, const bson_t *entry,
                              const struct inbox_version *now, struct inbox_version *seen,
                              bool *known, bson_error_t *error)
{
    truce_revision *revision = resolving->revision;
    const bson_t *named = resolving->seen ? resolving->seen : entry;
    truce_status status = TRUCE_OK;
    bson_t theirs;

    *known = true;
    seen->number = inbox_number_in(named);
    if (truce__value_subdocument(named, "theirs", &theirs) ||
        (seen->number == inbox_number_in(entry) &&
         truce__value_subdocument(entry, "theirs", &theirs))) {
        take_content(revision, &theirs, seen);
    } else if (now->exists && seen->number == now->number) {
        take_content(revision, &now->content, seen);
    } else if (seen->number != TRUCE_REVISION_NEW) {
        status = truce__revision_stored_version(revision, commit, id, seen->number, &theirs, error);
        *known = !status;
        if (!status)
            take_content(revision, &theirs, seen);
        bson_destroy(&theirs);
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- the decision ---- */

/* Builds the document to save; the caller initializes `made`. */
static truce_status inbox_decide(const struct resolving *resolving, const bson_t *entry,
                                 const struct inbox_version *seen, const struct merge_rules *rules,
                                 bson_t *made, bson_error_t *error)
{
    bool for_mine = resolving->resolution == TRUCE_RESOLVE_MINE;
    struct merge_options options = {.rules = rules,
                                    .mine_is_newer = true,
                                    .settle = for_mine ? MERGE_SETTLE_MINE : MERGE_SETTLE_THEIRS};
    bson_t base, mine, conflicts;
    truce_status status;

    if (resolving->resolution == TRUCE_RESOLVE_DOCUMENT) {
        truce__revision_content(resolving->revision, resolving->document, made);
        return TRUCE_OK;
    }
    if (!truce__value_subdocument(entry, "mine", &mine))
        return truce__fail(TRUCE_CORRUPT, error, "the conflict has no document \"mine\"");
    if (!seen->exists || !truce__value_subdocument(entry, "base", &base)) {
        bson_concat(made, for_mine || !seen->exists ? &mine : &seen->content);
        return TRUCE_OK;
    }
    bson_destroy(made);
    status = truce__merge(truce__value_document(&base), truce__value_document(&mine),
                          truce__value_document(&seen->content), &options, made, &conflicts, error);
    bson_destroy(&conflicts);
    return status;
}

/* Saves the decision as a late save whose base is the version that the author saw. It merges with
 * changes made since. */
static truce_status save_decision(const struct resolving *resolving, truce_commit *commit,
                                  const bson_t *entry, const struct inbox_version *seen,
                                  bson_error_t *error)
{
    struct revision_save save = {.revision = resolving->revision,
                                 .merges = true,
                                 .version = seen->number,
                                 .base = seen->exists ? &seen->content : NULL,
                                 .result = resolving->result};
    struct merge_rules *kept;
    bson_t made = BSON_INITIALIZER;
    truce_status status;

    save.rules = truce__revision_entry_rules(resolving->revision, entry, &kept);
    status = inbox_decide(resolving, entry, seen, save.rules, &made, error);
    save.mine = &made;
    if (!status)
        status = truce__revision_save_in(commit, &save, error);
    truce__merge_rules_free(kept);
    bson_destroy(&made);
    return status;
}

/* Saves the decision of the author, or reports a conflict. If the author saw a removal, or a stored
 * document, the decision is valid only if that still holds or is known. */
static truce_status decide_against(const struct resolving *resolving, truce_commit *commit,
                                   const bson_value_t *id, const bson_t *entry,
                                   const struct inbox_version *now, bson_error_t *error)
{
    struct inbox_version seen = {.content = BSON_INITIALIZER};
    truce_revision_result *result = resolving->result;
    bool known;
    truce_status status = find_seen(resolving, commit, id, entry, now, &seen, &known, error);

    if (!status && (!known || seen.exists != now->exists)) {
        result->outcome = TRUCE_REVISION_CONFLICT;
        if (now->exists)
            truce__revision_set_document(resolving->revision, result, &now->content, now->number);
    } else if (!status && !seen.exists && resolving->resolution == TRUCE_RESOLVE_THEIRS) {
        result->outcome = TRUCE_REVISION_UNCHANGED;
    } else if (!status) {
        status = save_decision(resolving, commit, entry, &seen, error);
    }
    bson_destroy(&seen.content);
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

/* The maximum number of other open entries that one decision looks at. */
#define SAME_MAX 100

/* Returns whether `now` contains every change of the entry's edit. */
static bool is_contained(const struct resolving *resolving, const bson_t *entry, const bson_t *now)
{
    struct merge_options options = {.mine_is_newer = true};
    struct merge_rules *kept;
    bson_t base, mine, merged, conflicts;
    bson_error_t ignored;
    bool same;

    if (!truce__value_subdocument(entry, "base", &base) ||
        !truce__value_subdocument(entry, "mine", &mine))
        return false;
    options.rules = truce__revision_entry_rules(resolving->revision, entry, &kept);
    same = !truce__merge(truce__value_document(&base), truce__value_document(&mine),
                         truce__value_document(now), &options, &merged, &conflicts, &ignored) &&
           bson_empty(&conflicts) && bson_equal(&merged, now);
    truce__merge_rules_free(kept);
    bson_destroy(&merged);
    bson_destroy(&conflicts);
    return same;
}

/* Returns whether the decision also resolves the other entry: both have the same edit, or the new
 * document contains the changes of the other one. */
static bool is_resolved_by(const struct resolving *resolving, const bson_t *decided,
                           const bson_t *other, const bson_t *now)
{
    bson_t a, b;

    if (truce__value_subdocument(decided, "mine", &a) &&
        truce__value_subdocument(other, "mine", &b) && bson_equal(&a, &b))
        return true;
    return resolving->result->version != TRUCE_REVISION_NEW && is_contained(resolving, other, now);
}

/* Lists the other open entries of the document. */
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

/* Closes the other open entries of the document that say the same, or that the saved document
 * contains completely. */
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
        truce__names_restore_own(&other);
        if (!status && inbox_is_open(resolving, &other) &&
            is_resolved_by(resolving, decided, &other, &now))
            status = close_entry(commit, &id, error);
        bson_destroy(&other);
        status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    bson_destroy(&now);
    return status;
}

/* ---- the whole ---- */

/* Sets the conflict of the result to the entry, compared with the stored document. */
static void inbox_report(const struct resolving *resolving, const bson_t *against)
{
    static const char *const sides[] = {"base", "mine", "theirs"};
    bson_t *conflict = &resolving->result->conflict, conflicts = BSON_INITIALIZER, field;
    bson_iter_t list, iter;

    bson_reinit(conflict);
    bson_append_int64(conflict, "version", 7, inbox_number_in(against));
    for (int i = 0; i < 3; i++) {
        if (truce__value_subdocument(against, sides[i], &field))
            bson_append_document(conflict, sides[i], -1, &field);
    }
    if (bson_iter_init_find(&list, against, "conflicts") && bson_iter_recurse(&list, &iter)) {
        while (bson_iter_next(&iter))
            bson_append_iter(&conflicts, NULL, -1, &iter);
    }
    truce__revision_append_conflict(&conflicts, "", "stale");
    BSON_APPEND_ARRAY(conflict, "conflicts", &conflicts);
    bson_destroy(&conflicts);
    resolving->result->inbox = *resolving->conflict;
}

/* Leaves the entry open: the decision conflicts with the stored document. */
static truce_status leave_open(const struct resolving *resolving, truce_commit *commit,
                               const bson_value_t *entry_id, const bson_t *entry,
                               const struct inbox_version *now, bson_error_t *error)
{
    bson_t against;
    truce_status status =
        revision_entry_against(resolving->revision, entry, now->exists ? &now->content : NULL,
                               now->number, &against, error);

    if (!status) {
        bson_t stored;

        bson_copy_to(&against, &stored);
        revision_entry_store(&stored);
        status = truce_commit_replace(commit, CONFLICTS, entry_id, NULL, &stored, error);
        bson_destroy(&stored);
    }
    if (!status)
        inbox_report(resolving, &against);
    bson_destroy(&against);
    return status;
}

/* Applies the decision to one open entry. Closes the entry, or leaves it open if the decision
 * conflicts with the stored document. */
static truce_status resolve_entry(const struct resolving *resolving, truce_commit *commit,
                                  const bson_value_t *entry_id, const bson_t *entry,
                                  bson_error_t *error)
{
    struct inbox_version now = {.content = BSON_INITIALIZER};
    bson_iter_t id;
    truce_status status;

    if (!bson_iter_init_find(&id, entry, "id"))
        return truce__fail(TRUCE_CORRUPT, error, "the conflict has no field \"id\"");
    status = read_now(resolving, commit, bson_iter_value(&id), &now, error);
    if (!status)
        status = decide_against(resolving, commit, bson_iter_value(&id), entry, &now, error);
    if (!status && resolving->result->outcome == TRUCE_REVISION_CONFLICT) {
        status = leave_open(resolving, commit, entry_id, entry, &now, error);
    } else if (!status) {
        status = close_entry(commit, entry_id, error);
        if (!status)
            status = close_same(resolving, commit, entry, error);
    }
    bson_destroy(&now.content);
    return status;
}

/* Resolves an open entry of the inbox in a commit. */
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
    truce__names_restore_own(&entry);
    if (status == TRUCE_NOT_FOUND) {
        bson_oid_to_string(resolving->conflict, hex);
        status = truce__fail(status, error, "the conflict %s does not exist", hex);
    }
    if (!status && !inbox_is_open(resolving, &entry))
        status =
            truce__fail(TRUCE_NOT_FOUND, error,
                        "the conflict is resolved, or belongs to another collection than \"%s\"",
                        resolving->revision->collection);
    if (!status)
        status = resolve_entry(resolving, commit, &id, &entry, error);
    bson_destroy(&entry);
    return status;
}

static truce_status check_seen(const bson_t *seen, bson_error_t *error)
{
    truce_status status = truce__check_optional(seen, "entry that was seen", error);
    struct value number;
    int64_t ignored;

    if (status || !seen)
        return status;
    number = truce__value_field(truce__value_document(seen), "version", 7);
    if (truce__value_is_number(number) && truce__number_to_int64(number, &ignored))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the entry that was seen must have an integer \"version\"");
}

truce_status truce_revision_resolve(truce_revision *revision, truce_commit *commit,
                                    const bson_oid_t *conflict, truce_resolution resolution,
                                    const bson_t *document, const bson_t *seen,
                                    truce_revision_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(result, error);

    struct resolving resolving = {revision, conflict, resolution, document, seen, result};
    truce_status status = truce__check_optional(document, "document", error);

    *result = (truce_revision_result){.document = BSON_INITIALIZER, .conflict = BSON_INITIALIZER};
    if (!status)
        status = check_seen(seen, error);
    if (status)
        return status;
    if ((resolution == TRUCE_RESOLVE_DOCUMENT) != (document != NULL))
        return truce__fail(
            TRUCE_INVALID, error,
            "the resolution \"document\" needs a document; other resolutions take none");
    return truce__revision_write(revision, commit, resolve_in, &resolving, error);
}
