#include "commit/journal_step.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/field_names.h"
#include "commit/journal_change.h"
#include "store/reserved.h"
#include "store/store.h"

/*
 * A release of a document that a plain writer changed under the intent. The commit was decided first, so what
 * came since comes after it; when it was decided, everything fitted.
 *
 *   X1  What is decided is brought to its end all the same, by one write that compares the whole document:
 *       the change is made in this process, field by field. What a plain writer changed besides stays; in a
 *       field that both changed the two are merged (journal_change.c), or the commit's value stands; what
 *       is in the way of a path is replaced. If there is no room for the change, the document stays
 *       as it is, with the commit's revision.
 *   X2  What is lost by that, of the plain writer or of the commit, is kept first in the collection
 *       `truce_displaced`, and `truce check` tells it until somebody removes it there. A document that goes,
 *       or is replaced as a whole, is kept as a whole, under the path "".
 *   X3  What is kept is so before the write, which compares what was seen (models/release.cpp). What is too large
 *       to be kept is noted as in every release (journal_release.c).
 *
 *     {_id: {c: C, ns, id}, commit: C, ns, id, reason: "same field" | "in the way" | "no room", at,
 *      values: [{p: path, v: value (absent: unset)}]}
 */

#define TRIES 32 /* against a plain writer that changes the document meanwhile */

/* ---- values in and out of documents --------------------------------------------------------- */

struct forcing {
    const char *path;   /* the whole one */
    struct value value; /* VALUE_MISSING: unset */
    bson_t *lost;       /* array of {p, v} */
};

static const char same_field[] = "same field", in_the_way[] = "in the way", no_room[] = "no room";

static void append_lost(bson_t *lost, const char *path, size_t length, struct value value)
{
    char key[16];
    bson_t element;

    bson_append_document_begin(lost, key, snprintf(key, sizeof key, "%u", bson_count_keys(lost)),
                               &element);
    bson_append_utf8(&element, "p", 1, path, (int)length);
    truce__value_append(&element, "v", 1, value);
    bson_append_document_end(lost, &element);
}

/* key: {the rest of the path: value}, or just key: value; nothing if the value is missing */
static void append_nested(bson_t *made, const char *key, size_t length, const char *rest,
                          struct value value)
{
    size_t part = strcspn(rest, ".");
    bson_t below;

    if (value.type == VALUE_MISSING)
        return;
    if (!*rest) {
        truce__value_append(made, key, length, value);
        return;
    }
    bson_append_document_begin(made, key, (int)length, &below);
    append_nested(&below, rest, part, rest[part] ? rest + part + 1 : rest + part, value);
    bson_append_document_end(made, &below);
}

static uint32_t force_count_of(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

/* Does the first part of the path name an element that is there? */
static bool names_element(struct value array, const char *path)
{
    size_t length = strcspn(path, ".");

    return length > 0 && length < 8 && strspn(path, "0123456789") == length &&
           (path[0] != '0' || length == 1) && strtoul(path, NULL, 10) < force_count_of(array);
}

static void force_below(const struct forcing *forcing, struct value container, const char *path,
                        bson_t *made);

/* The field that the first part of `path` names, as it is to be. */
static void force_field(const struct forcing *forcing, struct value there, const char *path,
                        bson_t *made)
{
    size_t length = strcspn(path, ".");
    const char *rest = path[length] ? path + length + 1 : path + length;
    bson_t below;

    if (!*rest) {
        truce__value_append(made, path, length, forcing->value);
    } else if (there.type == BSON_TYPE_DOCUMENT) {
        bson_append_document_begin(made, path, (int)length, &below);
        force_below(forcing, there, rest, &below);
        bson_append_document_end(made, &below);
    } else if (there.type == BSON_TYPE_ARRAY && names_element(there, rest)) {
        bson_append_array_begin(made, path, (int)length, &below);
        force_below(forcing, there, rest, &below);
        bson_append_array_end(made, &below);
    } else if (forcing->value.type == VALUE_MISSING) { /* nothing of that path to take away */
        truce__value_append(made, path, length, there);
    } else {
        append_lost(forcing->lost, forcing->path, (size_t)(path - forcing->path) + length, there);
        append_nested(made, path, length, rest, forcing->value);
    }
}

static void force_below(const struct forcing *forcing, struct value container, const char *path,
                        bson_t *made)
{
    struct fields fields = truce__fields(container);
    size_t length = strcspn(path, ".");
    bool found = false;

    while (truce__fields_next(&fields)) {
        if (fields.key_length != length || memcmp(fields.key, path, length) != 0) {
            truce__value_append(made, fields.key, fields.key_length, fields.value);
            continue;
        }
        found = true;
        force_field(forcing, fields.value, path, made);
    }
    if (!found)
        append_nested(made, path, length, path[length] ? path + length + 1 : path + length,
                      forcing->value);
}

static void force_path(bson_t *document, const char *path, struct value value, bson_t *lost)
{
    struct forcing forcing = {path, value, lost};
    bson_t made = BSON_INITIALIZER;

    force_below(&forcing, truce__value_document(document), path, &made);
    bson_destroy(document);
    bson_steal(document, &made);
}

static void without_intent(const bson_t *document, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(document, plain, "_intent", NULL);
}

static void set_revision(bson_t *document, const bson_oid_t *commit)
{
    bson_t plain = BSON_INITIALIZER;

    bson_copy_to_excluding_noinit(document, &plain, "_rev", NULL);
    BSON_APPEND_OID(&plain, "_rev", commit);
    bson_destroy(document);
    bson_steal(document, &plain);
}

/* What stands at a path. False: something that is no document is in its way. */
static bool force_reach(const bson_t *document, const char *path, struct value *there)
{
    *there = truce__value_document(document);
    for (;;) {
        size_t length = strcspn(path, ".");

        if (there->type != BSON_TYPE_DOCUMENT)
            return there->type == VALUE_MISSING;
        *there = truce__value_field(*there, path, length);
        if (!path[length])
            return true;
        path += length + 1;
    }
}

/* X1 of one field. `_keys` are the commit's: the prepare has changed them. */
static void merge_change(const bson_t *document, const bson_t *change, bool merge,
                         struct merged *merged)
{
    const char *path = truce__field_text(change, "p");
    struct value now = truce__value_field(truce__value_document(change), "v", 1), there;
    bson_t holder = BSON_INITIALIZER;
    uint32_t before;

    if (force_reach(document, path, &there) && strcmp(path, "_keys") != 0) {
        struct value made;
        bool both = truce__change_merge(change, there, &holder, &made);

        if (merge)
            now = made;
        if (!both || (!merge && !truce__value_identical(made, now)))
            append_lost(&merged->lost, path, strlen(path), there);
    }
    before = merged->lost.len;
    force_path(&merged->after, path, now, &merged->lost);
    if (merged->lost.len > before)
        merged->reason = in_the_way;
    bson_destroy(&holder);
}

static void merge_changes(const bson_t *post, const bson_t *document, bool merge,
                          struct merged *merged)
{
    bson_iter_t iter;
    struct fields changes;

    truce_assert(bson_iter_init_find(&iter, post, "changes"));
    changes = truce__fields(
        truce__value_field(truce__value_document(post), "changes", strlen("changes")));
    while (truce__fields_next(&changes)) {
        bson_t change;

        truce__value_bson(changes.value, &change);
        merge_change(document, &change, merge, merged);
    }
}

void truce__journal_merge(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                          bool merge, struct merged *merged)
{
    const char *op = truce__field_text(post, "op");

    *merged = (struct merged){.lost = BSON_INITIALIZER, .reason = same_field};
    without_intent(document, &merged->after);
    if (!strcmp(op, "set")) {
        merge_changes(post, document, merge, merged);
        set_revision(&merged->after, commit);
        return;
    }
    append_lost(&merged->lost, "", 0, truce__value_document(&merged->after));
    bson_reinit(&merged->after);
    if (!strcmp(op, "whole")) {
        bson_destroy(&merged->after);
        truce__journal_whole(post, commit, &merged->after);
    }
}

void truce__merged_release(struct merged *merged)
{
    bson_destroy(&merged->after);
    bson_destroy(&merged->lost);
}

/* ---- what is displaced ---------------------------------------------------------------------- */

/* Who came before kept what he saw, and may have seen another one. */
static truce_status keep_more(struct worker *worker, const bson_t *kept, const char *reason,
                              const bson_t *values, bson_error_t *error)
{
    bson_value_t id = truce__document_id(kept);
    bson_t *update = BCON_NEW("$set", "{", "reason", BCON_UTF8(reason), "}", "$addToSet", "{",
                              "values", "{", "$each", BCON_ARRAY(values), "}", "}");
    truce_status status;
    bson_t filter;

    truce__filter_id(&id, &filter);
    status = truce_update(worker->store, DISPLACED, &filter, update, NULL, NULL, error);
    bson_destroy(&filter);
    bson_destroy(update);
    return status;
}

static truce_status force_keep(struct worker *worker, const bson_oid_t *commit, const bson_t *post,
                               const char *reason, const bson_t *values, bson_error_t *error)
{
    bson_t kept = BSON_INITIALIZER, id;
    const char *collection;
    bson_value_t target;
    truce_status status;
    bson_t stored;

    truce_assert(truce__journal_target(post, &collection, &target));
    bson_append_document_begin(&kept, "_id", 3, &id);
    BSON_APPEND_OID(&id, "c", commit);
    BSON_APPEND_UTF8(&id, "ns", collection);
    BSON_APPEND_VALUE(&id, "id", &target);
    bson_append_document_end(&kept, &id);
    BSON_APPEND_OID(&kept, "commit", commit);
    BSON_APPEND_UTF8(&kept, "ns", collection);
    BSON_APPEND_VALUE(&kept, "id", &target);
    BSON_APPEND_UTF8(&kept, "reason", reason);
    BSON_APPEND_DATE_TIME(&kept, "at", truce__clock_wall_ms());
    truce__names_store(values, &stored);
    BSON_APPEND_ARRAY(&kept, "values", &stored);
    bson_destroy(&stored);
    status = truce_insert(worker->store, DISPLACED, &kept, NULL, error);
    if (status == TRUCE_DUPLICATE)
        status = keep_more(worker, &kept, reason, values, error);
    bson_destroy(&kept);
    return status;
}

/* Their paths and values. */
static void changes_of(const bson_t *post, bson_t *values)
{
    struct fields changes =
        truce__fields(truce__value_field(truce__value_document(post), "changes", 7));

    while (truce__fields_next(&changes)) {
        bson_t change;

        truce__value_bson(changes.value, &change);
        append_lost(values, truce__field_text(&change, "p"),
                    strlen(truce__field_text(&change, "p")),
                    truce__value_field(changes.value, "v", 1));
    }
}

truce_status truce__journal_keep(struct worker *worker, const bson_oid_t *commit,
                                 const bson_t *post, const struct merged *merged,
                                 bson_error_t *error)
{
    const char *collection;
    bson_value_t id;
    truce_status status;

    if (bson_empty(&merged->lost))
        return TRUCE_OK;
    status = force_keep(worker, commit, post, merged->reason, &merged->lost, error);
    if (status != TRUCE_LIMIT && status != TRUCE_INVALID)
        return status;
    truce_assert(truce__journal_target(post, &collection, &id)); /* X3 */
    return truce__journal_note(worker, commit, collection, &id, error);
}

/* X1: `after` cannot be. */
static void give_way(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                     struct merged *merged)
{
    bson_reinit(&merged->lost);
    merged->reason = no_room;
    changes_of(post, &merged->lost);
    bson_destroy(&merged->after);
    without_intent(document, &merged->after);
    set_revision(&merged->after, commit);
}

/* ---- the write ------------------------------------------------------------------------------ */

static truce_status force_refused(const bson_oid_t *commit, const char *collection,
                                  const bson_error_t *reason, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(
        TRUCE_LOCKED, error,
        "commit %s is decided, but the store refuses its change in \"%.60s\": %.200s", hex,
        collection, reason->message);
}

truce_status truce__journal_release_merged(struct worker *worker, const bson_oid_t *commit,
                                           const bson_t *post, const bson_t *seen, bool *done,
                                           bson_error_t *error)
{
    struct merged merged;
    const char *collection;
    bson_value_t id;
    truce_status status;

    truce_assert(truce__journal_target(post, &collection, &id));
    truce__journal_merge(commit, post, seen, true, &merged);
    if (!strcmp(truce__field_text(post, "op"), "set") &&
        truce__document_check(&merged.after, "document", NULL))
        give_way(commit, post, seen, &merged);
    status = truce__journal_keep(worker, commit, post, &merged, error);
    if (!status)
        status = truce__journal_write_same(worker, commit, collection, seen,
                                           bson_empty(&merged.after) ? NULL : &merged.after, done,
                                           error);
    truce__merged_release(&merged);
    return status;
}

truce_status truce__journal_force(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *post, const bson_error_t *reason,
                                  bson_error_t *error)
{
    const char *collection;
    truce_status status = TRUCE_OK;
    bool done = false;
    bson_value_t id;
    bson_t filter;

    truce_assert(truce__journal_target(post, &collection, &id));
    truce__filter_intent(&id, commit, &filter);
    for (int i = 0; i < TRIES && !status && !done; i++) {
        bson_t document;

        /* latest: a document without the intent counts as released (J5) */
        status = truce_find_one(worker->store, collection, &filter, &truce__find_latest, &document,
                                error);
        if (!status)
            status = truce__journal_release_merged(worker, commit, post, &document, &done, error);
        bson_destroy(&document);
    }
    bson_destroy(&filter);
    worker->did += done;
    if (status == TRUCE_NOT_FOUND)
        return TRUCE_OK; /* somebody released it */
    if ((!status && !done) || (status && !truce__unanswered(status)))
        return force_refused(commit, collection, reason, error);
    return status;
}
