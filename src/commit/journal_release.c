/* The steps of the journal that any process may do: the owner of a commit, or a process that
 * encounters its intent. Each step is one guarded write, except a release over plain writes, which
 * first stores what it discards (CX3). Each step can be repeated at any time. The file
 * has, from the bottom up: the changes of a decided commit (CM1 to CM3), the release of one
 * document (CL1 to CL4), the release over plain writes (CX1 to CX3), and the steps of a whole
 * commit. The invariants CJ and CH are in journal.c and complete_commit.c. */
#include "commit/journal_release.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/object_id.h"
#include "bson/field_name_escape.h"
#include "commit/commit_counters.h"
#include "commit/schema_validators.h"
#include "commit/unique_keys.h"
#include "query/update/update.h"
#include "store/reserved_names.h"
#include "store/store.h"
#include "truce/sys/store.h"

/* ---- filters and options -------------------------------------------------------------------- */

static void filter_state(const bson_oid_t *commit, const char *state, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_OID(filter, "_id", commit);
    BSON_APPEND_UTF8(filter, "state", state);
}

/* Makes {_id: id, "_intent.c": commit}. */
static void filter_intent(const bson_value_t *id, const bson_oid_t *commit, bson_t *filter)
{
    truce__filter_id(id, filter);
    BSON_APPEND_OID(filter, "_intent.c", commit);
}

static truce_write_options write_options(const struct worker *worker)
{
    return (truce_write_options){.relaxed = worker->relaxed};
}

/* Returns the options of a step that may skip the wait for the disk (journal.c, CJ9). */
static truce_write_options step_options(const struct worker *worker)
{
    return (truce_write_options){.relaxed = truce__worker_relaxed_step(worker)};
}

/* ---- one write ------------------------------------------------------------------------------ */

void truce__step_write_init(struct step_write *made, truce_write_kind kind, const char *collection)
{
    bson_init(&made->filter);
    bson_init(&made->document);
    bson_init(&made->exact);
    made->write = (truce_write){.kind = kind,
                                .collection = collection,
                                .filter = &made->filter,
                                .document = &made->document};
}

void truce__step_write_free(struct step_write *made)
{
    bson_destroy(&made->filter);
    bson_destroy(&made->document);
    bson_destroy(&made->exact);
}

/* ---- changes of a decided commit ------------------------------------------------------------- */

/*
 * One change of a decided commit is a path with its new value. A plain writer may write to the path
 * between the prepare and the release, so the change also records the old value that it was made
 * from:
 *
 *     {p: path, v: value (absent: unset), h: hash of the old value (absent: there was none),
 *      n: elements of the old list, a: [operators on the field "x", encoded by
 *      field_name_escape.h]}
 *
 *  CM1  The commit was decided before the release, so later writes come after it: elements that a
 *       plain writer pushed to the old list are appended to the new list.
 *  CM2  If the commit's own operators apply to any value ($inc, $push ...), they are applied to the
 *       current value. The result is that of one order or the other.
 *  CM3  Otherwise only one of the two values can be stored. The commit's value is, because other
 *       documents may depend on it. The other value is kept in another collection (CX2).
 */

#define OPERAND "x"

/* ---- operators ------------------------------------------------------------------------------ */

/* Returns whether the paths are equal or one is a prefix of the other. */
static bool change_touches(const char *a, const char *b)
{
    size_t length = strlen(a), other = strlen(b), shorter = length < other ? length : other;

    return !memcmp(a, b, shorter) &&
           (length == other || (length > other ? a[shorter] : b[shorter]) == '.');
}

static bool is_plain_push(const bson_iter_t *field)
{
    static const char *const modifiers[] = {"$position", "$slice", "$sort"};
    bson_iter_t below;

    for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
        if (BSON_ITER_HOLDS_DOCUMENT(field) && bson_iter_recurse(field, &below) &&
            bson_iter_find(&below, modifiers[i]))
            return false;
    }
    return true;
}

/* Returns whether the operator has the same meaning for any current value. */
static bool is_relative(const char *operator, const bson_iter_t * field)
{
    static const char *const names[] = {"$inc", "$addToSet", "$pull", "$max", "$min"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(operator, names[i]))
            return true;
    }
    return !strcmp(operator, "$push") && is_plain_push(field);
}

static void change_append_operator(bson_t *list, const char *operator, const bson_iter_t * field)
{
    bson_t one = BSON_INITIALIZER, fields;
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(list));
    bson_append_document_begin(&one, operator, - 1, &fields);
    bson_append_iter(&fields, OPERAND, 1, field);
    bson_append_document_end(&one, &fields);
    truce__names_append(list, key, &one);
    bson_destroy(&one);
}

/* Appends the operators of one update that touch the path. Returns false if one of them does not
 * qualify for CM2. */
static bool operators_in(const bson_t *update, const char *path, bson_t *list)
{
    bson_iter_t iter, field;

    truce_assert(bson_iter_init(&iter, update));
    while (bson_iter_next(&iter)) {
        truce_assert(bson_iter_recurse(&iter, &field));
        while (bson_iter_next(&field)) {
            bool renames = !strcmp(bson_iter_key(&iter), "$rename");

            if (renames && change_touches(bson_iter_utf8(&field, NULL), path))
                return false;
            if (!change_touches(bson_iter_key(&field), path))
                continue;
            if (strcmp(bson_iter_key(&field), path) != 0 ||
                !is_relative(bson_iter_key(&iter), &field))
                return false;
            change_append_operator(list, bson_iter_key(&iter), &field);
        }
    }
    return true;
}

static bool operators_of(const struct entry *entry, const char *path, bson_t *list)
{
    for (uint32_t i = 0; i < entry->changes_count; i++) {
        if (entry->changes[i].kind != CHANGE_UPDATE ||
            !operators_in(entry->changes[i].document, path, list))
            return false;
    }
    return !bson_empty(list);
}

/* ---- into the commit ------------------------------------------------------------------------ */

static uint32_t change_count_of(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

/* Appends one changed path to `post`, with what a merge needs: a hash of the old value, its length,
 * and the operators. */
static void change_append_change(bson_t *changes, const struct entry *entry, const char *path,
                                 struct value now, struct value old)
{
    bson_t change, operators = BSON_INITIALIZER;
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(changes));
    bson_append_document_begin(changes, key, -1, &change);
    BSON_APPEND_UTF8(&change, "p", path);
    truce__value_append(&change, "v", 1, now);
    if (old.type)
        BSON_APPEND_INT64(&change, "h", (int64_t)truce__value_hash(old));
    if (old.type == BSON_TYPE_ARRAY)
        BSON_APPEND_INT32(&change, "n", (int32_t)change_count_of(old));
    if (operators_of(entry, path, &operators))
        BSON_APPEND_ARRAY(&change, "a", &operators);
    bson_append_document_end(changes, &change);
    bson_destroy(&operators);
}

void truce__changes_append(bson_t *element, const struct entry *entry, const struct diff *diff)
{
    struct value old = truce__value_document(&diff->old);
    struct fields fields = truce__fields(truce__value_document(&diff->set));
    bson_t changes;

    bson_append_array_begin(element, "changes", 7, &changes);
    while (truce__fields_next(&fields))
        change_append_change(&changes, entry, fields.key, fields.value,
                             truce__value_field(old, fields.key, fields.key_length));
    fields = truce__fields(truce__value_document(&diff->unset));
    while (truce__fields_next(&fields)) {
        /* A replacement has no `_rev` yet. The release sets it, so it must not be recorded as
         * removed. */
        if (strcmp(fields.key, "_rev") != 0)
            change_append_change(&changes, entry, fields.key, (struct value){.type = VALUE_MISSING},
                                 fields.value);
    }
    bson_append_array_end(element, &changes);
}

/* ---- out of it ------------------------------------------------------------------------------ */

static struct value change_field(const bson_t *change, const char *name)
{
    return truce__value_field(truce__value_document(change), name, strlen(name));
}

/* Returns whether the value has the hash of the old one from which the change was made, or is
 * missing as that one was. */
static bool has_hash(const bson_t *change, struct value value)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, change, "h"))
        return !value.type;
    return value.type && bson_iter_as_int64(&iter) == (int64_t)truce__value_hash(value);
}

/* Appends the elements of `from` from index `skip` up to `most`, exclusive, numbered from `at`. */
static void append_elements(bson_t *array, uint32_t at, struct value from, uint32_t skip,
                            uint32_t most)
{
    struct fields fields = truce__fields(from);
    char key[16];

    for (uint32_t i = 0; i < most && truce__fields_next(&fields); i++) {
        if (i < skip)
            continue;
        truce__value_append(array, key, (size_t)bson_snprintf(key, sizeof key, "%u", at++),
                            fields.value);
    }
}

/* Returns whether the first `count` elements of the list are the old list of the change. */
static bool begins_with_old(const bson_t *change, struct value list, uint32_t count)
{
    bson_t holder = BSON_INITIALIZER, first;
    bool same;

    bson_append_array_begin(&holder, OPERAND, 1, &first);
    append_elements(&first, 0, list, 0, count);
    bson_append_array_end(&holder, &first);
    same = has_hash(change, truce__value_field(truce__value_document(&holder), OPERAND, 1));
    bson_destroy(&holder);
    return same;
}

/* Makes the commit's new list followed by the elements that a plain writer pushed to the old one
 * (CM1), in `made`. Returns false if the plain writer did anything else, or a value is not a
 * list. */
static bool merge_lists(const bson_t *change, struct value now, struct value there, bson_t *made)
{
    bson_iter_t iter;
    uint32_t count = 0;
    bson_t list;

    if (now.type != BSON_TYPE_ARRAY || there.type != BSON_TYPE_ARRAY)
        return false;
    if (bson_iter_init_find(&iter, change, "n"))
        count = (uint32_t)bson_iter_as_int64(&iter);
    else if (change_field(change, "h").type)
        return false;
    if (change_count_of(there) < count || (count && !begins_with_old(change, there, count)))
        return false;
    bson_append_array_begin(made, OPERAND, 1, &list);
    append_elements(&list, 0, now, 0, UINT32_MAX);
    append_elements(&list, change_count_of(now), there, count, UINT32_MAX);
    bson_append_array_end(made, &list);
    return true;
}

/* Applies operators to a document in place. On failure it stays unchanged. */
static truce_status release_apply_change(const bson_t *operators, bson_t *document,
                                         bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_options options = {.borrows = true};
    struct update_result result;
    struct update *update = NULL;
    bson_t after = BSON_INITIALIZER;
    truce_status status = truce__update_new(operators, &options, &update, error);

    if (!status) {
        bson_destroy(&after);
        status = truce__update_apply(update, document, NULL, &context, &after, &result, error);
    }
    if (!status) {
        bson_destroy(document);
        bson_steal(document, &after);
    } else {
        bson_destroy(&after);
    }
    truce__update_free(update);
    truce__arena_release(&arena);
    return status;
}

/* Applies the commit's operators to the current value (CM2). Returns false if the change has no
 * such operators, or one of them fails on this value. */
static bool merge_operators(const bson_t *change, struct value there, bson_t *made)
{
    struct value list = change_field(change, "a");
    struct fields operators;
    bson_error_t ignored;
    bool can = true;

    if (list.type != BSON_TYPE_ARRAY)
        return false;
    truce__value_append(made, OPERAND, 1, there);
    operators = truce__fields(list);
    while (can && truce__fields_next(&operators)) {
        bson_t stored, one;

        truce__value_bson(operators.value, &stored);
        truce__names_restore(&stored, &one);
        can = !release_apply_change(&one, made, &ignored);
        bson_destroy(&one);
    }
    return can;
}

/* Computes the value for the path of a change whose current value is `there`; either may be
 * missing. *made is borrowed from `change` or from `holder`, which the caller initializes and
 * destroys. Returns false if only one of the two values can be stored; *made is the commit's
 * then. */
static bool change_merge(const bson_t *change, struct value there, bson_t *holder,
                         struct value *made)
{
    struct value now = change_field(change, "v");

    *made = now;
    if (has_hash(change, there))
        return true;
    bson_reinit(holder);
    if (!merge_lists(change, now, there, holder)) {
        bson_reinit(holder);
        if (!merge_operators(change, there, holder))
            return truce__value_identical(there, now);
    }
    *made = truce__value_field(truce__value_document(holder), OPERAND, 1);
    return true;
}

/*
 * The release of one document of a decided commit applies its changes and removes the intent. Any
 * process may do it, at any time and repeatedly; the model is models/release.cpp. A plain writer
 * may have written under the intent:
 *
 *  CL1  A release overwrites only what it has seen: its write compares the whole document. A change
 *       of a plain writer is merged with the commit's change, or kept in another collection first
 *       (CX2). So no crash loses a plain write without a report. A hold changes nothing and
 *       compares nothing.
 *  CL2  The owner knows the document as it took it, so most releases are one write. Any other
 *       process, and an owner whose comparison failed, reads the stored document first.
 *  CL3  A release ends. After some failed comparisons, it notes the document in the commit as
 *       `overwritten` and writes without a comparison.
 *  CL4  A document that is too large for a comparison (commit_entry.h) is noted and written in the
 *       same way. The replaced document shows whether a plain write was lost. If none was, the
 *       process removes its own note. After a crash or a missing reply, the note stays, because
 *       no process removes the note of another one.
 */

/* The number of reads of a release. The last read is followed by a write without a comparison
 * (CL3). Also the number of attempts of release_force, which then fails with LOCKED. */
#define TRIES 32

/* Makes the update that applies the changes of a `post` and removes the intent. */
static void set_changes(const bson_t *post, const bson_oid_t *commit, bson_t *update)
{
    bson_t set, unset;
    bson_iter_t iter, change;

    bson_init(update);
    bson_init(&set);
    bson_init(&unset);
    truce_assert(bson_iter_init_find(&iter, post, "changes") && bson_iter_recurse(&iter, &change));
    while (bson_iter_next(&change)) {
        bson_iter_t path, value;

        truce_assert(bson_iter_recurse(&change, &path) && bson_iter_find(&path, "p"));
        if (bson_iter_recurse(&change, &value) && bson_iter_find(&value, "v"))
            bson_append_iter(&set, bson_iter_utf8(&path, NULL), -1, &value);
        else
            BSON_APPEND_UTF8(&unset, bson_iter_utf8(&path, NULL), "");
    }
    BSON_APPEND_OID(&set, "_rev", commit);
    BSON_APPEND_UTF8(&unset, "_intent", "");
    BSON_APPEND_DOCUMENT(update, "$set", &set);
    BSON_APPEND_DOCUMENT(update, "$unset", &unset);
    bson_destroy(&set);
    bson_destroy(&unset);
}

/* Makes the document of an entry `whole` or `insert`, with its revision. */
static void journal_whole(const bson_t *post, const bson_oid_t *commit, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;
    bson_iter_t iter;
    bson_t content;

    truce_assert(bson_iter_init_find(&iter, post, "document"));
    bson_iter_document(&iter, &length, &bytes);
    truce_assert(bson_init_static(&content, bytes, length));
    bson_copy_to(&content, document);
    BSON_APPEND_OID(document, "_rev", commit);
}

int64_t truce__journal_hash(const bson_t *document, bool reserved)
{
    struct fields fields = truce__fields(truce__value_document(document));
    bson_t plain = BSON_INITIALIZER;
    int64_t hash;

    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "_intent") != 0 && (!reserved || strcmp(fields.key, "_keys") != 0))
            truce__value_append(&plain, fields.key, fields.key_length, fields.value);
    }
    hash = (int64_t)truce__value_hash(truce__value_document(&plain));
    bson_destroy(&plain);
    return hash;
}

/* Returns whether a plain writer changed the document under the intent. */
static bool journal_was_changed(const bson_t *post, const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, post, "was") && BSON_ITER_HOLDS_INT64(&iter) &&
           bson_iter_int64(&iter) !=
               truce__journal_hash(document, truce__shadow_reserved(document) >= 0);
}

/* Notes in the commit that a release overwrites a plain write, or may do so. The releasing process
 * does so itself, because any process may mark the commit done. `by` (or NULL) names the note. */
static truce_status journal_note(struct worker *worker, const bson_oid_t *commit,
                                 const char *collection, const bson_value_t *id,
                                 const bson_oid_t *by, bson_error_t *error)
{
    truce_write_options options = {.relaxed = worker->relaxed};
    bson_t filter = BSON_INITIALIZER, note = BSON_INITIALIZER, push, one;
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", commit);
    bson_append_document_begin(&note, "$addToSet", 9, &push);
    bson_append_document_begin(&push, "overwritten", 11, &one);
    BSON_APPEND_UTF8(&one, "ns", collection);
    BSON_APPEND_VALUE(&one, "id", id);
    if (by)
        BSON_APPEND_OID(&one, "by", by);
    bson_append_document_end(&push, &one);
    bson_append_document_end(&note, &push);
    status = truce_update(worker->store, COMMITS, &filter, &note, &options, NULL, error);
    bson_destroy(&note);
    bson_destroy(&filter);
    return status;
}

/* Removes a note of this process from the commit, because its write overwrote no plain write. A
 * failure is ignored: the note then reports a loss that did not happen. */
static void journal_remove_note(struct worker *worker, const bson_oid_t *commit,
                                const bson_oid_t *by)
{
    truce_write_options options = {.relaxed = true};
    bson_t *filter = BCON_NEW("_id", BCON_OID(commit));
    bson_t *pull = BCON_NEW("$pull", "{", "overwritten", "{", "by", BCON_OID(by), "}", "}");

    (void)!truce_update(worker->store, COMMITS, filter, pull, &options, NULL, NULL);
    bson_destroy(pull);
    bson_destroy(filter);
}

/* Updates or removes a document if it is still as `seen`. Sets *done if it was. */
static truce_status journal_write_same(struct worker *worker, const bson_oid_t *commit,
                                       const char *collection, const bson_t *seen,
                                       const bson_t *update, bool *done, bson_error_t *error)
{
    bson_value_t id = truce__document_id(seen);
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(worker)};
    bson_t filter;
    truce_write write = {.kind = update ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_REMOVE,
                         .collection = collection,
                         .filter = &filter,
                         .document = update};
    truce_write_outcome outcome;
    truce_status status;

    write.exact = truce__filter_held(worker->store, &id, seen, commit, &filter);
    status = truce__validator_pass(worker->store, &write, &options, &outcome, error);
    *done = !status && outcome.result.matched + outcome.result.removed > 0;
    truce_write_result_release(&outcome.result);
    bson_destroy(&filter);
    return status;
}

static bool release_comparable(const struct worker *worker, const bson_t *seen)
{
    return (worker->store->capabilities & TRUCE_CAN_COMPARE) || seen->len <= VALUE_GUARD_BYTES_MAX;
}

/* ---- releasing over plain writes ------------------------------------------------------------- */

/*
 * A plain writer may change a document under the intent, so that the decided change no longer
 * applies. The commit was decided first, so the plain write comes after it.
 *
 *  CX1  The decided change is applied anyway, by one write that compares the document (CL4). The
 *       change is made field by field, in this process. Other changes of the plain writer remain. A
 *       field that both changed is merged (CM1 to CM3). A value that blocks a path is replaced. If
 *       the document would be invalid, for example too large, it stays as it is, with the commit's
 *       revision.
 *  CX2  Values of the plain writer or of the commit that this discards are first stored in the
 *       collection `truce_displaced`, and `truce check` reports them until a user removes them
 *       there. A document that is removed or replaced as a whole is stored as a whole, under the
 *       path "".
 *  CX3  The values are stored before the write, which compares the document that was seen
 *       (models/release.cpp). Values that are too large to be stored are noted in the commit, as in
 *      CL3.
 *
 *     {_id: {c: C, ns, id}, commit: C, ns, id, reason: "same field" | "in the way" | "no room", at,
 *      values: [{p: path, v: value (absent: unset)}]}
 */

/* ---- values in and out of documents --------------------------------------------------------- */

/* The result of merging a change with the document of a plain writer. */
struct merged {
    /* The merged document, or empty if the release removes the document. */
    bson_t after;
    /* The discarded values: [{p: path, v: value}]. */
    bson_t lost;
    /* The `reason` with which discarded values are stored: one of the three above. */
    const char *reason;
};

/* A value that a release sets in the document of a plain writer. */
struct forcing {
    /* The whole path of the change. The functions below get a pointer into it, to the part that is
     * left. */
    const char *path;
    /* The value to set at the path, or VALUE_MISSING to remove the field. */
    struct value value;
    /* Receives each discarded value as {p, v}. */
    bson_t *lost;
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

/* Appends the value under `key`. If `rest` is not empty, the value is nested in documents at that
 * path. Appends nothing if the value is missing. */
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

/* Returns whether the first part of the path is the number of an existing element. */
static bool names_element(struct value array, const char *path)
{
    size_t length = strcspn(path, ".");

    return length > 0 && length < 8 && strspn(path, "0123456789") == length &&
           (path[0] != '0' || length == 1) && strtoul(path, NULL, 10) < change_count_of(array);
}

static void force_below(const struct forcing *forcing, struct value container, const char *path,
                        bson_t *made);

/* Appends the field that the first part of `path` names, with the change applied. */
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
    } else if (forcing->value.type == VALUE_MISSING) {
        /* A value without fields blocks the path, so there is nothing to remove below it. */
        truce__value_append(made, path, length, there);
    } else {
        append_lost(forcing->lost, forcing->path, (size_t)(path - forcing->path) + length, there);
        append_nested(made, path, length, rest, forcing->value);
    }
}

/* Copies a container, with the field at the path replaced by the value. Creates what is missing on
 * the path. */
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

/* Finds the value at a path. Returns false if a value that is not a document blocks the path. */
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

/* Applies CX1 to one field. The commit's `_keys` win, because the prepare changed that field. */
static void merge_change(const bson_t *document, const bson_t *change, bool merge,
                         struct merged *merged)
{
    const char *path = truce__field_text(change, "p");
    struct value now = truce__value_field(truce__value_document(change), "v", 1), there;
    bson_t holder = BSON_INITIALIZER;
    uint32_t before;

    if (force_reach(document, path, &there) && strcmp(path, "_keys") != 0) {
        struct value made;
        bool both = change_merge(change, there, &holder, &made);

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

/* Merges each change of `post` with the document of a plain writer. */
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

/* Merges an entry with the stored document. If `merge` is false, the commit's values win even if
 * they could be merged. Initializes `merged`. */
static void journal_merge(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
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
        journal_whole(post, commit, &merged->after);
    }
}

static void merged_release(struct merged *merged)
{
    bson_destroy(&merged->after);
    bson_destroy(&merged->lost);
}

/* ---- discarded values ------------------------------------------------------------------------ */

/* Adds values with escaped names to a record that another process made before, from a document that
 * may have differed. */
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

/* Stores the values that a release discards, of the plain writer or (reason `no room`) of the
 * commit, in truce_displaced, under the commit and the document. */
static truce_status force_store_values(struct worker *worker, const bson_oid_t *commit,
                                       const bson_t *post, const char *reason, const bson_t *values,
                                       bson_error_t *error)
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
    status = truce_insert(worker->store, DISPLACED, &kept, NULL, error);
    if (status == TRUCE_DUPLICATE)
        status = keep_more(worker, &kept, reason, &stored, error);
    bson_destroy(&stored);
    bson_destroy(&kept);
    return status;
}

/* Copies the paths and values of the changes of an entry. */
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

/* Stores the discarded values. If they are too large, notes the document, unless it is `noted`. */
static truce_status journal_store_discarded(struct worker *worker, const bson_oid_t *commit,
                                            const bson_t *post, const struct merged *merged,
                                            bool noted, bson_error_t *error)
{
    const char *collection;
    bson_value_t id;
    truce_status status;

    if (bson_empty(&merged->lost))
        return TRUCE_OK;
    status = force_store_values(worker, commit, post, merged->reason, &merged->lost, error);
    if (status != TRUCE_LIMIT && status != TRUCE_INVALID)
        return status;
    if (noted)
        return TRUCE_OK;
    /* The names of the collection and of the document are valid, because the entry was checked. */
    truce_assert(truce__journal_target(post, &collection, &id));
    return journal_note(worker, commit, collection, &id, NULL, error);
}

/* Keeps the plain writer's document, because `after` would be invalid (CX1). */
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

/* Notes the document in the commit, and writes without a comparison (CL3, CL4). `update` is made for
 * the document `seen`, or (NULL) for any; a NULL `update` removes. Sets *done if it was written. */
static truce_status journal_write_noted(struct worker *worker, const bson_oid_t *commit,
                                        const bson_t *post, const bson_t *seen,
                                        const bson_t *update, bool *done, bson_error_t *error)
{
    truce_modify_options options = {.relaxed = truce__worker_relaxed_step(worker),
                                    .remove = !update};
    const char *collection;
    bson_t filter, before;
    struct merged merged;
    truce_status status;
    bson_value_t id;
    bson_oid_t by;
    bool lost;

    truce_assert(truce__journal_target(post, &collection, &id));
    truce__id_new(&by);
    status = journal_note(worker, commit, collection, &id, &by, error);
    if (status)
        return status;
    filter_intent(&id, commit, &filter);
    status = truce__validator_pass_modify(worker->store, collection, &filter, update, &options,
                                          &before, error);
    *done = !status;
    lost = !status && (seen ? !bson_equal(&before, seen) : journal_was_changed(post, &before));
    /* Invariant CL4: the note stays if a plain write was lost, or may be lost. */
    if (!lost && !truce__unanswered(status))
        journal_remove_note(worker, commit, &by);
    if (lost) {
        journal_merge(commit, post, &before, false, &merged);
        status = journal_store_discarded(worker, commit, post, &merged, true, error);
        merged_release(&merged);
    }
    bson_destroy(&before);
    bson_destroy(&filter);
    return status;
}

/* Releases a document as it was `seen`, with the intent, and merges the changes of a plain writer.
 * Sets *done if the document was still as `seen`. */
static truce_status journal_release_merged(struct worker *worker, const bson_oid_t *commit,
                                           const bson_t *post, const bson_t *seen, bool *done,
                                           bson_error_t *error)
{
    struct merged merged;
    const char *collection;
    const bson_t *after;
    bson_value_t id;
    truce_status status;

    truce_assert(truce__journal_target(post, &collection, &id));
    journal_merge(commit, post, seen, true, &merged);
    if (!strcmp(truce__field_text(post, "op"), "set") &&
        truce__document_check(&merged.after, "document", NULL))
        give_way(commit, post, seen, &merged);
    status = journal_store_discarded(worker, commit, post, &merged, false, error);
    after = bson_empty(&merged.after) ? NULL : &merged.after;
    /* Invariant CL4: a document that cannot be compared is noted. */
    if (!status && release_comparable(worker, seen))
        status = journal_write_same(worker, commit, collection, seen, after, done, error);
    else if (!status)
        status = journal_write_noted(worker, commit, post, seen, after, done, error);
    merged_release(&merged);
    return status;
}

/* Releases an entry `set` that the store refused for `reason`. Returns LOCKED if the store still
 * refuses it. */
static truce_status release_force(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *post, const bson_error_t *reason,
                                  bson_error_t *error)
{
    const char *collection;
    truce_status status = TRUCE_OK;
    bool done = false;
    bson_value_t id;
    bson_t filter;

    truce_assert(truce__journal_target(post, &collection, &id));
    filter_intent(&id, commit, &filter);
    for (int i = 0; i < TRIES && !status && !done; i++) {
        bson_t document;

        /* Reads the latest state, because a document without the intent counts as released
         * (journal.c, CJ5). */
        status = truce_find_one(worker->store, collection, &filter, &truce__find_latest, &document,
                                error);
        if (!status)
            status = journal_release_merged(worker, commit, post, &document, &done, error);
        bson_destroy(&document);
    }
    bson_destroy(&filter);
    worker->did += done;
    if (status == TRUCE_NOT_FOUND)
        return TRUCE_OK; /* Another process has released the document. */
    if ((!status && !done) || (status && !truce__unanswered(status)))
        return force_refused(commit, collection, reason, error);
    return status;
}

/* ---- releasing one document ----------------------------------------------------------------- */

/* Makes the document after a release by changes. If a plain writer has changed it, or a change
 * cannot be applied, merges. */
static void release_set_after(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                              bson_t *after)
{
    struct merged merged;
    bson_error_t ignored;
    bson_t changes;
    bool changed = journal_was_changed(post, document);

    set_changes(post, commit, &changes);
    bson_copy_to(document, after);
    if (changed || release_apply_change(&changes, after, &ignored)) {
        journal_merge(commit, post, document, true, &merged);
        bson_destroy(after);
        bson_copy_to(&merged.after, after);
        merged_release(&merged);
    }
    bson_destroy(&changes);
}

void truce__journal_after(const bson_oid_t *commit, const bson_t *post, const bson_t *document,
                          bson_t *after)
{
    const char *op = truce__field_text(post, "op");

    if (!strcmp(op, "whole") || !strcmp(op, "insert"))
        journal_whole(post, commit, after);
    else if (!strcmp(op, "set"))
        release_set_after(commit, post, document, after);
    else
        bson_init(after);
}

static truce_status release_fail_blocked(const bson_oid_t *commit, const char *collection,
                                         bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(
        TRUCE_LOCKED, error,
        "commit %s is decided, but a plain write took a unique value that it had reserved in "
        "\"%s\": `truce check` reports which",
        hex, collection);
}

static truce_status release_fail_refused(const bson_oid_t *commit, const char *collection,
                                         const bson_error_t *reason, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(
        TRUCE_LOCKED, error,
        "commit %s is decided, but a newer validator refuses its change in \"%.60s\", and this "
        "user may not bypass it (bypassDocumentValidation): %.160s",
        hex, collection, reason->message);
}

/* ---- the write ------------------------------------------------------------------------------ */

/* The release of one document. */
struct release {
    struct worker *worker;
    const bson_oid_t *commit;
    const bson_t *post;
    const char *op, *collection;
    bson_value_t id;
    /* `filter` matches the document while it has the intent. `write` is the update or the
     * document. */
    bson_t filter, write;
    /* The release removes the document. */
    bool remove;
    /* The error with which the store refused the last write. */
    bson_error_t reason;
};

/* Begins the release of a valid entry (truce__journal_post_check). */
static void release_begin(struct release *release, struct worker *worker, const bson_oid_t *commit,
                          const bson_t *post)
{
    *release = (struct release){.worker = worker,
                                .commit = commit,
                                .post = post,
                                .op = truce__field_text(post, "op"),
                                .write = BSON_INITIALIZER};
    truce_assert(truce__journal_target(post, &release->collection, &release->id));
    filter_intent(&release->id, commit, &release->filter);
    if (!strcmp(release->op, "set"))
        set_changes(post, commit, &release->write);
    else if (!strcmp(release->op, "whole") || !strcmp(release->op, "insert"))
        journal_whole(post, commit, &release->write);
    else if (!strcmp(release->op, "hold"))
        BCON_APPEND(&release->write, "$unset", "{", "_intent", BCON_UTF8(""), "}");
    else
        release->remove = true;
}

static void release_end(struct release *release)
{
    bson_destroy(&release->write);
    bson_destroy(&release->filter);
}

static bool release_is(const struct release *release, const char *op)
{
    return !strcmp(release->op, op);
}

/* Releases a stub or a hold, which overwrite nothing. */
static truce_status write_over(struct release *release, bson_error_t *error)
{
    truce_modify_options options = {.relaxed = truce__worker_relaxed_step(release->worker),
                                    .remove = release->remove};
    bson_t before;
    truce_status status = truce__validator_pass_modify(
        release->worker->store, release->collection, &release->filter,
        release->remove ? NULL : &release->write, &options, &before, &release->reason);

    release->worker->did += !status;
    if (status && error)
        *error = release->reason;
    bson_destroy(&before);
    return status;
}

/* Moves `from` to `to`, and destroys the old content of `to`. */
static void release_move(bson_t *to, bson_t *from)
{
    bool moved;

    bson_destroy(to);
    moved = bson_steal(to, from);
    truce_assert(moved);
}

void truce__journal_release_write(const truce_store *store, const bson_oid_t *commit,
                                  const bson_t *post, bson_t *seen, struct step_write *made)
{
    struct release release;

    release_begin(&release, NULL, commit, post);
    truce__step_write_init(made, release.remove ? TRUCE_WRITE_REMOVE : TRUCE_WRITE_UPDATE,
                           release.collection);
    release_move(&made->document, &release.write);
    if (seen)
        release_move(&made->exact, seen);
    if (!seen || release_is(&release, "hold")) {
        release_move(&made->filter, &release.filter);
        return;
    }
    bson_destroy(&release.filter);
    bson_destroy(&made->filter);
    made->write.exact = truce__filter_held(store, &release.id, &made->exact, commit, &made->filter);
}

/* Makes one write that compares the document (CL1, CL2). */
static truce_status write_seen(struct release *release, const bson_t *seen, bool *done,
                               bson_error_t *error)
{
    truce_status status;

    if (journal_was_changed(release->post, seen))
        status = journal_release_merged(release->worker, release->commit, release->post, seen, done,
                                        &release->reason);
    else
        status =
            journal_write_same(release->worker, release->commit, release->collection, seen,
                               release->remove ? NULL : &release->write, done, &release->reason);
    release->worker->did += *done;
    if (status && error)
        *error = release->reason;
    return status;
}

/* Releases the document if it is still as `seen`, which has the intent. With `last`, and for a hold
 * or a document that is too large for a comparison, releases it in any case (CL3, CL4). Sets *done
 * if it is released. */
static truce_status release_seen(struct release *release, const bson_t *seen, bool last, bool *done,
                                 bson_error_t *error)
{
    truce_status status;

    /* Invariants CL3 and CL4: a write without a comparison is noted. */
    if (release_comparable(release->worker, seen) && !last && !release_is(release, "hold"))
        return write_seen(release, seen, done, error);
    *done = release_is(release, "hold");
    if (*done)
        return write_over(release, error);
    status = journal_write_noted(release->worker, release->commit, release->post, NULL,
                                 release->remove ? NULL : &release->write, done, &release->reason);
    release->worker->did += *done;
    if (status && error)
        *error = release->reason;
    return status;
}

static truce_status release_read_and_write(struct release *release, bool last, bool *done,
                                           bson_error_t *error)
{
    bson_t document;
    /* Reads the latest state. A document without the intent counts as released, and the commit may
     * then be marked done and purged (journal.c, CJ5). */
    truce_status status = truce_find_one(release->worker->store, release->collection,
                                         &release->filter, &truce__find_latest, &document, error);

    if (!status)
        status = release_seen(release, &document, last, done, error);
    bson_destroy(&document);
    return status;
}

truce_status truce__journal_release(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *post, const bson_t *seen, bson_error_t *error)
{
    struct release release;
    bool done = false;
    truce_status status = truce__journal_post_check(commit, post, error);

    if (status)
        return status;
    release_begin(&release, worker, commit, post);
    /* The entry releases a stub. Plain writers do not write to a stub, so nothing is compared. */
    if (!bson_has_field(post, "was")) {
        done = true;
        status = write_over(&release, error);
    } else if (seen) {
        status = release_seen(&release, seen, false, &done, error);
    }
    for (int i = 1; !status && !done; i++)
        status = release_read_and_write(&release, i == TRIES, &done, error);
    if (status == TRUCE_NOT_FOUND) /* Another process has released the document. */
        status = TRUCE_OK;
    if (status == TRUCE_DUPLICATE)
        status = release_fail_blocked(commit, release.collection, error);
    if (truce__validator_refused(status, &release.reason)) /* schema_validators.c, CI3 */
        status = release_fail_refused(commit, release.collection, &release.reason, error);
    else if (!strcmp(release.op, "set") && (status == TRUCE_INVALID || status == TRUCE_LIMIT))
        status = release_force(worker, commit, post, &release.reason, error);
    release_end(&release);
    return status;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Changes a pending commit. If `seen` is not NULL, changes it only if its lease still ends as in
 * that document. Sets *changed if it was pending, with this lease. */
static truce_status change_pending(struct worker *worker, const bson_oid_t *commit,
                                   const bson_t *seen, const bson_t *update, bool *changed,
                                   bson_error_t *error)
{
    truce_write_options options = step_options(worker);
    truce_write_result result = {0};
    truce_status status;
    bson_iter_t iter, until;
    bson_t filter;

    filter_state(commit, "pending", &filter);
    /* Invariant CH3 of complete_commit.c: the lease must still have the end that was seen. */
    if (seen && bson_iter_init(&iter, seen) &&
        bson_iter_find_descendant(&iter, "lease.until", &until))
        BCON_APPEND(&filter, "lease.until", "{", "$eq", BCON_ITER(&until), "}");
    status = truce_update(worker->store, COMMITS, &filter, update, &options, &result, error);
    *changed = !status && result.matched > 0;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

truce_status truce__journal_abort(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *seen, const char *why, bool *changed,
                                  bson_error_t *error)
{
    bson_t *update = BCON_NEW("$set", "{", "state", BCON_UTF8("aborted"), "why", BCON_UTF8(why),
                              "}", "$unset", "{", "key", BCON_UTF8(""), "}");
    truce_status status = change_pending(worker, commit, seen, update, changed, error);

    if (*changed)
        COUNT(aborted);
    bson_destroy(update);
    return status;
}

truce_status truce__journal_renew(struct worker *worker, const bson_oid_t *commit, int64_t until_ms,
                                  bool *pending, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$set", "{", "lease.until", BCON_INT64(until_ms), "}");
    truce_status status = change_pending(worker, commit, NULL, update, pending, error);

    bson_destroy(update);
    return status;
}

/* Appends the removal of `_intent` and of all but the first `keys` elements of `_keys`
 * (unique_keys.c, CU3). If `keys` is negative, `_keys` stays. An intent never changes, so the
 * number is right no matter when it was read. */
static void append_strip(int32_t keys, bson_t *update)
{
    bson_t unset;

    bson_append_document_begin(update, "$unset", 6, &unset);
    BSON_APPEND_UTF8(&unset, "_intent", "");
    if (keys == 0)
        BSON_APPEND_UTF8(&unset, "_keys", "");
    bson_append_document_end(update, &unset);
    if (keys > 0)
        BCON_APPEND(update, "$push", "{", "_keys", "{", "$each", "[", "]", "$slice",
                    BCON_INT32(keys), "}", "}");
}

void truce__journal_strip_write(const char *collection, const bson_value_t *id,
                                const bson_oid_t *commit, int32_t keys, struct step_write *made)
{
    truce__step_write_init(made, TRUCE_WRITE_UPDATE, collection);
    bson_destroy(&made->filter);
    filter_intent(id, commit, &made->filter);
    BCON_APPEND(&made->filter, "_intent.new", "{", "$exists", BCON_BOOL(false), "}");
    append_strip(keys, &made->document);
}

void truce__journal_strip_stub_write(const char *collection, const bson_value_t *id,
                                     const bson_oid_t *commit, struct step_write *made)
{
    truce__step_write_init(made, TRUCE_WRITE_REMOVE, collection);
    bson_destroy(&made->filter);
    filter_intent(id, commit, &made->filter);
    BSON_APPEND_BOOL(&made->filter, "_intent.new", true);
}

/* Sends the write that removes the commit's intent. Sets *matched if the document had it. */
static truce_status strip_intent(struct worker *worker, const char *collection,
                                 const bson_value_t *id, const bson_oid_t *commit, int32_t keys,
                                 bool *matched, bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(worker)};
    struct step_write made;
    truce_write_outcome outcome;
    truce_status status;

    truce__journal_strip_write(collection, id, commit, keys, &made);
    status = truce__validator_pass(worker->store, &made.write, &options, &outcome, error);
    *matched = !status && outcome.result.matched > 0;
    worker->did += *matched;
    truce_write_result_release(&outcome.result);
    truce__step_write_free(&made);
    return status;
}

truce_status truce__journal_strip_stub(struct worker *worker, const char *collection,
                                       const bson_value_t *id, const bson_oid_t *commit,
                                       bson_error_t *error)
{
    truce_write_options options = step_options(worker);
    truce_write_result result = {0};
    struct step_write made;
    truce_status status;

    truce__journal_strip_stub_write(collection, id, commit, &made);
    status = truce_remove(worker->store, collection, &made.filter, &options, &result, error);
    worker->did += !status && result.removed > 0;
    truce_write_result_release(&result);
    truce__step_write_free(&made);
    return status;
}

truce_status truce__journal_strip(struct worker *worker, const char *collection,
                                  const bson_value_t *id, const bson_oid_t *commit, int32_t keys,
                                  bson_error_t *error)
{
    bool matched = false;
    truce_status status = strip_intent(worker, collection, id, commit, keys, &matched, error);

    /* A plain writer replaced `_keys` by another type, so it cannot be cut. The intent is removed
     * alone. */
    if (keys >= 0 && status && !truce__unanswered(status))
        status = strip_intent(worker, collection, id, commit, -1, &matched, error);
    if (!status && !matched)
        status = truce__journal_strip_stub(worker, collection, id, commit, error);
    return status;
}

/* ---- whole commits -------------------------------------------------------------------------- */

void truce__journal_done_write(const bson_oid_t *commit, struct step_write *made)
{
    bson_t set;

    truce__step_write_init(made, TRUCE_WRITE_UPDATE, COMMITS);
    bson_destroy(&made->filter);
    filter_state(commit, "committed", &made->filter);
    bson_append_document_begin(&made->document, "$set", 4, &set);
    BSON_APPEND_UTF8(&set, "state", "done");
    bson_append_document_end(&made->document, &set);
}

truce_status truce__journal_done(struct worker *worker, const bson_oid_t *commit,
                                 bson_error_t *error)
{
    truce_write_options options = write_options(worker);
    truce_write_result result = {0};
    struct step_write made;
    truce_status status;

    truce__journal_done_write(commit, &made);
    status = truce_update(worker->store, COMMITS, &made.filter, &made.document, &options, &result,
                          error);
    worker->ended += !status && result.matched > 0;
    truce_write_result_release(&result);
    truce__step_write_free(&made);
    return status;
}

typedef truce_status element_function(struct worker *worker, const bson_oid_t *commit,
                                      const bson_t *element, bson_error_t *error);

/* Calls the function for each document of a list of the commit, even after a failure, and returns
 * the first failure. */
static truce_status each_element(struct worker *worker, const bson_t *commit, const char *list,
                                 element_function *function, bson_error_t *error)
{
    truce_status first = TRUCE_OK;
    bson_iter_t iter, element;

    if (!bson_iter_init_find(&iter, commit, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_OK;
    const bson_oid_t *id = bson_iter_oid(&iter);
    if (!bson_iter_init_find(&iter, commit, list) || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &element))
        return TRUCE_OK;
    while (bson_iter_next(&element)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t document;
        truce_status status;

        if (!BSON_ITER_HOLDS_DOCUMENT(&element))
            continue;
        bson_iter_document(&element, &length, &bytes);
        truce_assert(bson_init_static(&document, bytes, length));
        status = function(worker, id, &document, first ? NULL : error);
        first = first ? first : status;
    }
    return first;
}

/* Removes the commit's intent from a document of a list, and the keys that it reserved there. */
static truce_status strip_element(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *element, bson_error_t *error)
{
    const char *collection;
    truce_status status;
    bson_iter_t keyed;
    bson_value_t id;
    int32_t keys = -1;
    bson_t filter, document;

    if (!truce__journal_target(element, &collection, &id))
        return TRUCE_OK;
    if (bson_iter_init_find(&keyed, element, "keyed")) { /* The intent says how many keys remain. */
        filter_intent(&id, commit, &filter);
        /* Reads the latest state: if the read missed the intent, the reserved keys would remain. */
        status = truce_find_one(worker->store, collection, &filter, &truce__find_latest, &document,
                                error);
        keys = status ? -1 : truce__shadow_reserved(&document);
        bson_destroy(&document);
        bson_destroy(&filter);
        if (status)
            return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    return truce__journal_strip(worker, collection, &id, commit, keys, error);
}

static truce_status release_element(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *element, bson_error_t *error)
{
    return truce__journal_release(worker, commit, element, NULL, error);
}

truce_status truce__journal_finish(struct worker *worker, const bson_t *commit, bson_error_t *error)
{
    truce_status status = each_element(worker, commit, "post", release_element, error);
    bson_iter_t iter;

    if (!status && bson_iter_init_find(&iter, commit, "_id") && BSON_ITER_HOLDS_OID(&iter))
        status = truce__journal_done(worker, bson_iter_oid(&iter), error);
    return status;
}

truce_status truce__journal_clean(struct worker *worker, const bson_t *commit, bson_error_t *error)
{
    return each_element(worker, commit, "writes", strip_element, error);
}
