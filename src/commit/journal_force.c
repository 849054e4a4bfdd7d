#include "commit/journal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "commit/journal_step.h"
#include "store/reserved.h"

/*
 * A release that the store refuses. When the commit was decided, everything fitted; so a plain writer that
 * ignored the intent has made it impossible since: a path of the change goes through what is no document
 * now, or the document has grown.
 *
 *   X1  What is decided is brought to its end all the same, by one write that compares the whole document:
 *       the change is made in this process, and what stands in the way of a path is replaced. If there is
 *       no room for the change, the document stays as it is, with the commit's revision.
 *   X2  What is lost by that, of the plain writer or of the commit, is kept first in the collection
 *       `truce_displaced`, and `truce check` tells it until somebody removes it there:
 *
 *   X3  What is kept or noted is so before the write, which compares what was seen (models/release.cpp). What
 *       a plain writer changed besides, and nobody keeps, is noted as for every release (journal_release.c).
 *
 *     {_id: {c: C, ns, id}, commit: C, ns, id, reason: "in the way" | "no room", at,
 *      values: [{p: path, v: value (absent: unset)}]}
 */

#define TRIES 5 /* against a plain writer that changes the document meanwhile */

/* ---- values in and out of documents --------------------------------------------------------- */

struct forcing {
    const char *path;   /* the whole one */
    struct value value; /* VALUE_MISSING: unset */
    bson_t *lost;       /* array of {p, v} */
};

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

static uint32_t count_of(struct value array)
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
           (path[0] != '0' || length == 1) && strtoul(path, NULL, 10) < count_of(array);
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

/* The changes of an entry of `post`, in any document. */
void truce__journal_forced(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                           bson_t *after, bson_t *lost)
{
    bson_iter_t iter;
    struct fields changes;

    without_intent(document, after);
    truce_assert(bson_iter_init_find(&iter, post, "changes"));
    changes = truce__fields(
        truce__value_field(truce__value_document(post), "changes", strlen("changes")));
    while (truce__fields_next(&changes)) {
        bson_t change;

        truce__value_bson(changes.value, &change);
        force_path(after, truce__field_text(&change, "p"),
                   truce__value_field(changes.value, "v", 1), lost);
    }
    set_revision(after, commit);
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

static truce_status keep(struct worker *worker, const bson_oid_t *commit, const bson_t *post,
                         const char *reason, const bson_t *values, bson_error_t *error)
{
    bson_t kept = BSON_INITIALIZER, id;
    const char *collection;
    bson_value_t target;
    truce_status status;

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
    BSON_APPEND_ARRAY(&kept, "values", values);
    status = truce_insert(worker->store, DISPLACED, &kept, NULL, error);
    if (status == TRUCE_DUPLICATE)
        status = keep_more(worker, &kept, reason, values, error);
    bson_destroy(&kept);
    return status;
}

static void changes_of(const bson_t *post, bson_t *values)
{
    bson_t changes;

    truce__value_bson(truce__value_field(truce__value_document(post), "changes", 7), &changes);
    bson_copy_to(&changes, values);
}

/* X1, X2. `after` and `lost`: the change by force. *kept: not everything has its place in `after`. */
static truce_status keep_what_is_lost(struct worker *worker, const bson_oid_t *commit,
                                      const bson_t *post, const bson_t *document, bson_t *after,
                                      bson_t *lost, bool *kept, bson_error_t *error)
{
    bson_t changes;
    truce_status status;

    *kept = true;
    if (!truce__document_check(after, "document", NULL)) {
        *kept = !bson_empty(lost);
        return *kept ? keep(worker, commit, post, "in the way", lost, error) : TRUCE_OK;
    }
    bson_destroy(after);
    without_intent(document, after);
    set_revision(after, commit);
    changes_of(post, &changes);
    status = keep(worker, commit, post, "no room", &changes, error);
    bson_destroy(&changes);
    return status;
}

/* ---- the write ------------------------------------------------------------------------------ */

static truce_status refused(const bson_oid_t *commit, const char *collection,
                            const bson_error_t *reason, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(
        TRUCE_LOCKED, error,
        "commit %s is decided, but the store refuses its change in \"%.60s\": %.200s", hex,
        collection, reason->message);
}

/* X1 to X3 of the document as it was seen. *done: it was so still. */
static truce_status force_seen(struct worker *worker, const bson_oid_t *commit, const bson_t *post,
                               const bson_t *seen, bool *done, bson_error_t *error)
{
    bson_t after, lost = BSON_INITIALIZER;
    const char *collection;
    bool kept = false;
    bson_value_t id;
    truce_status status;

    truce_assert(truce__journal_target(post, &collection, &id));
    truce__journal_forced(commit, post, seen, &after, &lost);
    status = keep_what_is_lost(worker, commit, post, seen, &after, &lost, &kept, error);
    if (!status && !kept && truce__journal_was_changed(post, seen))
        status = truce__journal_note(worker, commit, collection, &id, error);
    if (!status)
        status = truce__journal_write_same(worker, commit, collection, seen, &after, done, error);
    bson_destroy(&after);
    bson_destroy(&lost);
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

        status = truce_find_one(worker->store, collection, &filter, NULL, &document, error);
        if (!status)
            status = force_seen(worker, commit, post, &document, &done, error);
        bson_destroy(&document);
    }
    bson_destroy(&filter);
    worker->did += done;
    if (status == TRUCE_NOT_FOUND)
        return TRUCE_OK; /* somebody released it */
    if ((!status && !done) || (status && !truce__unanswered(status)))
        return refused(commit, collection, reason, error);
    return status;
}
