/*
 * Entries of the inbox: conflicts kept for somebody to decide, in `truce_conflicts`:
 *
 *     {_id, collection, id, state: "open", at, rules?, version, base?, mine, theirs?, conflicts}
 *
 * The _id is made of what was sent (collection, id, version, document), so an edit that is sent again is the
 * same entry, told against what stands then. `version` and `theirs` are the revision that it was told against, -1
 * and none where the document was removed; `rules` those of the save, as text, for who decides without any.
 *
 * An entry that is listed is shown against what stands now: its `version`, `theirs` and `conflicts` are made anew,
 * and nothing is written. An entry of which no more can be said (the document's number is no number) is shown as it was told.
 */
#include "patterns/revision/revision.h"

#include "base/clock.h"
#include "base/fingerprint.h"
#include "bson/field_names.h"
#include "bson/json.h"
#include "store/restored.h"

/* ---- putting in ------------------------------------------------------------------------------- */

/* The same edit of the same version, however often it is sent, is one entry. */
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

void truce__revision_entry_store(bson_t *entry)
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
    truce__revision_entry_store(&entry);
    status = truce_commit_read(commit, CONFLICTS, &name, &there, error);
    if (status == TRUCE_NOT_FOUND)
        status = truce_commit_insert(commit, CONFLICTS, &entry, error);
    else if (!status)
        status = truce_commit_replace(commit, CONFLICTS, &name, NULL, &entry, error);
    bson_destroy(&there);
    bson_destroy(&entry);
    return status;
}

/* ---- against what stands ---------------------------------------------------------------------- */

const struct merge_rules *truce__revision_entry_rules(const truce_revision *revision,
                                                      const bson_t *entry,
                                                      struct merge_rules **kept)
{
    struct json_reader reader = {0};
    bson_error_t ignored; /* what are no rules of this version are none */
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

/* What mine and theirs disagree about; `conflicts` is initialised. */
static truce_status entry_disagree(const truce_revision *revision, const bson_t *entry,
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

truce_status truce__revision_entry_against(const truce_revision *revision, const bson_t *entry,
                                           const bson_t *theirs, int64_t number, bson_t *shown,
                                           bson_error_t *error)
{
    bson_t conflicts, field;
    truce_status status = entry_disagree(revision, entry, theirs, &conflicts, error);

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

/* ---- the list --------------------------------------------------------------------------------- */

static bson_t *open_entries(const truce_revision *revision)
{
    return BCON_NEW("collection", BCON_UTF8(revision->collection), "state", BCON_UTF8("open"));
}

struct entries {
    truce_cursor base; /* first */
    truce_revision *revision;
    truce_cursor *told;
    bson_t shown;
};

/* `shown` is initialised. */
static truce_status entry_show(truce_revision *revision, const bson_t *entry, bson_t *shown,
                               bson_error_t *error)
{
    bson_t document, content;
    bson_error_t ignored; /* such an entry is shown as it was told */
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
        (void)truce__revision_entry_against(revision, entry, status ? NULL : &content, number,
                                            shown, &ignored);
        bson_destroy(&content);
        status = TRUCE_OK;
    }
    bson_destroy(&document);
    return status;
}

static truce_status entries_next(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct entries *entries = (struct entries *)base;
    truce_status status = truce_cursor_next(entries->told, document, error);

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

    truce_cursor_close(entries->told);
    bson_destroy(&entries->shown);
    bson_free(entries);
}

static const truce_cursor_ops entries_ops = {entries_next, entries_close};

truce_status truce_revision_conflicts(truce_revision *revision, truce_cursor **cursor,
                                      bson_error_t *error)
{
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
    status = truce_find(revision->store, CONFLICTS, filter, &options, &entries->told, error);
    if (status) {
        bson_free(entries);
    } else {
        entries->told = truce__restored_cursor(entries->told);
        *cursor = &entries->base;
    }
    bson_destroy(filter);
    bson_destroy(sort);
    return status;
}

truce_status truce_revision_conflict(truce_revision *revision, const bson_oid_t *conflict,
                                     bson_t *entry, bson_error_t *error)
{
    bson_t *filter, told;
    truce_status status;
    char hex[25];

    bson_init(entry);
    if (revision->refused)
        return truce__fail(TRUCE_INVALID, error, "%s", revision->refusal.message);
    filter = open_entries(revision);
    BSON_APPEND_OID(filter, "_id", conflict);
    status = truce_find_one(revision->store, CONFLICTS, filter, NULL, &told, error);
    if (status == TRUCE_NOT_FOUND) {
        bson_oid_to_string(conflict, hex);
        status = truce__fail(status, error, "there is no open conflict %s of \"%s\"", hex,
                             revision->collection);
    } else if (!status) {
        bson_destroy(entry);
        truce__names_restore_own(&told);
        status = entry_show(revision, &told, entry, error);
    }
    bson_destroy(&told);
    bson_destroy(filter);
    return status;
}
