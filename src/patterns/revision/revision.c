/*
 * Revisions: optimistic concurrency for documents, by a revision number. A save has three versions:
 * base is what the caller read, mine is what it saves, and theirs is the stored document.
 *
 *     read theirs in the commit, which guards it
 *          |
 *     theirs is base (4)                     replace: number + 1         SAVED
 *     mine has no change                     nothing                     UNCHANGED
 *     save                                   nothing                     CONFLICT, with the paths
 *     merge: base, mine, theirs into one     replace: number + 1         MERGED
 *     if they cannot be merged               nothing, or the inbox       CONFLICT
 *
 * A save is one commit of the document, the version that is kept, the version that is dropped, and
 * the entry of the inbox. The usual save touches one document and is a single write. A save that
 * loses a race starts again with the read, a bounded number of times with a pause (truce_transact).
 * It then merges with the winner's document.
 *
 * Invariants:
 *
 * 1. A number is given once for an _id, even if the document was removed in between by any program.
 *    Only a drop of "<collection>.revisions" forgets the numbers.
 *    A document that had no number, or a number of another program, gets its numbers from a range
 *    that no other document of this _id has (revision_history.c).
 * 2. A document that was saved under a current number is never lost: a later save replaces it only
 *    with that number as its base, or merged.
 * 3. With `keep`, the commit that replaces or removes version n stores it, and removes version n -
 *    `keep`. A stored version may expire earlier (`keep_ms`).
 * 4. A change by a program that does not raise the number is not lost either, if the caller passes
 *    its base: theirs is base only if the number and the rest are the same.
 *
 * A crash leaves the commit done or not done.
 *
 *     this file           the handle, the comparison with base, the usual save as one write, the
 *                         save
 *     revision_history.c  replaced versions
 *     revision_conflict_inbox.c    conflicts that wait for a decision, and the decisions
 *     revision_patch.c    saves as patches; differences of documents
 *     revision_etag.c     ETags and conditions of HTTP
 */
#include "patterns/revision/revision.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/deadline.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "bson/number.h"
#include "commit/commit.h"
#include "commit/commit_entry.h"
#include "commit/journal.h"
#include "commit/metadata_cache.h"
#include "query/input_check.h"
#include "store/store.h"

/* ---- the handle ------------------------------------------------------------------------------ */

static void revision_handle_refuse(truce_revision *revision, const char *why, const char *name)
{
    if (!revision->refused)
        (void)truce__fail(TRUCE_INVALID, &revision->refusal, why, name);
    revision->refused = true;
}

truce_revision *truce_revision_new(truce_store *store, const truce_revision_options *options)
{
    static const truce_revision_options defaults;
    truce_revision *revision = bson_malloc0(sizeof *revision);
    char keep[24];

    truce_assert(store);
    options = options ? options : &defaults;
    revision->store = store;
    revision->refused =
        ROOM_CHECK(options, "truce_revision_options", &revision->refusal) != TRUCE_OK;
    revision->collection = bson_strdup(options->collection ? options->collection : "?");
    if (!options->collection)
        revision_handle_refuse(revision, "the option \"%s\" of the revisions is missing",
                               "collection");
    revision->version = bson_strdup(options->version ? options->version : "version");
    revision->kept = bson_strdup_printf("%s" REVISIONS_SUFFIX, revision->collection);
    revision->strict = options->strict;
    revision->inbox = options->inbox;
    revision->keep = options->keep;
    revision->keep_ms = options->keep_ms;
    revision->tries_max = options->tries_max;
    revision->deadline_ms = options->deadline_ms;
    revision->relaxed = options->relaxed;
    if (!revision->version[0] || revision->version[0] == '$' || revision->version[0] == '_' ||
        strchr(revision->version, '.'))
        revision_handle_refuse(revision,
                               "invalid version field \"%.100s\": expected the name of a field "
                               "without \".\", and without \"$\" or \"_\" in front",
                               revision->version);
    if (options->keep_ms < 0) {
        snprintf(keep, sizeof keep, "%" PRId64, options->keep_ms);
        revision_handle_refuse(revision, "`keep_ms` is %s: expected 0 (no limit) or more", keep);
    }
    if (truce__check_optional(options->rules, "document of rules", &revision->refusal) ||
        truce__merge_rules_new(options->rules, &revision->rules, &revision->refusal))
        revision->refused = true;
    else if (options->rules && !bson_empty(options->rules))
        revision->rules_text = bson_as_canonical_extended_json(options->rules, NULL);
    return revision;
}

void truce_revision_free(truce_revision *revision)
{
    if (!revision)
        return;
    truce__merge_rules_free(revision->rules);
    bson_free(revision->rules_text);
    bson_free(revision->collection);
    bson_free(revision->version);
    bson_free(revision->kept);
    bson_free(revision);
}

const char *truce_revision_outcome_name(truce_revision_outcome outcome)
{
    switch (outcome) {
    case TRUCE_REVISION_SAVED:
        return "saved";
    case TRUCE_REVISION_MERGED:
        return "merged";
    case TRUCE_REVISION_UNCHANGED:
        return "unchanged";
    case TRUCE_REVISION_CONFLICT:
        return "conflict";
    }
    return "unknown";
}

/* ---- the comparison with what was read ------------------------------------------------------- */

/*
 * Decides whether theirs is base. The number alone is not enough, because a program that ignores it
 * can change a document without incrementing it. So the caller's base is compared, too:
 *
 *     in a commit    same bytes         unchanged
 *                    same values        unchanged; if a number has another type now and mine does
 *                                       not change it, it keeps the new type
 *                    otherwise          stale, as under another number
 *     in a filter    the fields in order, without `_id`, the number, and truce's fields:
 *                    {$expr: {$eq: [{$filter: the fields of $$ROOT}, [{k: "a", v: 1}, ...]]}}
 *                    and the type of each number, because numbers of all types are equal there:
 *                    {"a": {$type: 16}, "list.0.n": {$type: 1}}
 *
 * RB1. The filter matches nothing that a commit would call stale. If a filter cannot express base,
 *     a commit decides.
 */

/* ---- in a commit ----------------------------------------------------------------------------- */

static bool same_values(struct value a, struct value b);

static uint32_t base_count_of(struct value container)
{
    uint32_t count = 0;

    for (struct fields fields = truce__fields(container); truce__fields_next(&fields);)
        count++;
    return count;
}

/* Returns whether two documents have the same fields. A different order of fields is not a
 * difference. */
static bool base_same_fields(struct value a, struct value b)
{
    for (struct fields fields = truce__fields(a); truce__fields_next(&fields);) {
        if (!same_values(fields.value, truce__value_field(b, fields.key, fields.key_length)))
            return false;
    }
    return base_count_of(a) == base_count_of(b);
}

static bool base_same_elements(struct value a, struct value b)
{
    struct fields in_a = truce__fields(a), in_b = truce__fields(b);

    for (;;) {
        bool more_a = truce__fields_next(&in_a), more_b = truce__fields_next(&in_b);

        if (!more_a || !more_b)
            return more_a == more_b;
        if (!same_values(in_a.value, in_b.value))
            return false;
    }
}

static bool same_values(struct value a, struct value b)
{
    if (a.type == BSON_TYPE_DOCUMENT && b.type == BSON_TYPE_DOCUMENT)
        return base_same_fields(a, b);
    if (a.type == BSON_TYPE_ARRAY && b.type == BSON_TYPE_ARRAY)
        return base_same_elements(a, b);
    return b.type && truce__value_equal(a, b);
}

/* Copies the content without `_keys`, which commits derive from the other fields. */
static void without_own(const bson_t *content, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(content, plain, "_id", "_keys", NULL);
}

/* Returns whether two contents are equal, whatever the types of numbers and the order of fields. */
static bool revision_same_values(const bson_t *base, const bson_t *theirs)
{
    bson_t a, b;
    bool same;

    without_own(base, &a);
    without_own(theirs, &b);
    same = same_values(truce__value_document(&a), truce__value_document(&b));
    bson_destroy(&a);
    bson_destroy(&b);
    return same;
}

/* ---- in a filter ----------------------------------------------------------------------------- */

static void revision_plain(const truce_revision *revision, const bson_t *document, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(document, plain, "_id", revision->version, "_rev", "_intent",
                                  NULL);
}

/* Appends the fields of `plain` as elements {k: "a", v: 1}. */
static void base_append_pairs(const bson_t *plain, bson_t *array)
{
    uint32_t index = 0;

    for (struct fields fields = truce__fields(truce__value_document(plain));
         truce__fields_next(&fields); index++) {
        char digits[16];
        const char *key;
        bson_t pair;

        bson_uint32_to_string(index, &key, digits, sizeof digits);
        bson_append_document_begin(array, key, -1, &pair);
        bson_append_utf8(&pair, "k", 1, fields.key, (int)fields.key_length);
        truce__value_append(&pair, "v", 1, fields.value);
        bson_append_document_end(array, &pair);
    }
}

/* Appends the $expr that compares the fields of the stored document, except those of truce, with
 * `plain`, in order. */
static void base_append_value_guard(const truce_revision *revision, const bson_t *plain,
                                    bson_t *filter)
{
    bson_t *fields =
        BCON_NEW("$filter", "{", "input", "{", "$objectToArray", "{", "$mergeObjects", "[",
                 "$$ROOT", "]", "}", "}", "as", "field", "cond", "{", "$not", "[", "{", "$in", "[",
                 "$$field.k", "[", BCON_UTF8("_id"), BCON_UTF8(revision->version),
                 BCON_UTF8("_rev"), BCON_UTF8("_intent"), "]", "]", "}", "]", "}", "}");
    bson_t expr, operands, literal, pairs;

    bson_append_document_begin(filter, "$expr", 5, &expr);
    bson_append_array_begin(&expr, "$eq", 3, &operands);
    BSON_APPEND_DOCUMENT(&operands, "0", fields);
    bson_append_document_begin(&operands, "1", 1, &literal);
    bson_append_array_begin(&literal, "$literal", 8, &pairs);
    base_append_pairs(plain, &pairs);
    bson_append_array_end(&literal, &pairs);
    bson_append_document_end(&operands, &literal);
    bson_append_array_end(&expr, &operands);
    bson_append_document_end(filter, &expr);
    bson_destroy(fields);
}

struct types {
    bson_t *filter;
    struct buffer path;
    uint32_t count;
};

static bool is_index(const char *name)
{
    return name[0] && strspn(name, "0123456789") == strlen(name);
}

/* Returns false for names that a path cannot express: "a.b" is two names, and "0" may be an array
 * index. */
static bool base_is_expressible(const struct fields *field, bool element)
{
    return element || (field->key_length && field->key[0] != '$' && !is_index(field->key) &&
                       strlen(field->key) == field->key_length && !strchr(field->key, '.'));
}

/* Appends the types of all numbers, because a filter compares numbers without them. Returns false
 * if a filter cannot express this. */
static bool append_types(struct types *types, struct value container)
{
    bool elements = container.type == BSON_TYPE_ARRAY;
    size_t before = types->path.size;

    for (struct fields fields = truce__fields(container); truce__fields_next(&fields);) {
        bool number = truce__value_is_number(fields.value);
        bson_t type;

        if (!number && !truce__value_is_container(fields.value))
            continue;
        if (!base_is_expressible(&fields, elements) || types->count == REVISION_NUMBERS_MAX)
            return false;
        if (before)
            truce__buffer_append(&types->path, ".", 1);
        truce__buffer_append(&types->path, fields.key, fields.key_length);
        if (number) {
            types->count++;
            bson_append_document_begin(types->filter, (const char *)types->path.bytes,
                                       (int)types->path.size, &type);
            BSON_APPEND_INT32(&type, "$type", fields.value.type);
            bson_append_document_end(types->filter, &type);
        } else if (!append_types(types, fields.value)) {
            return false;
        }
        types->path.size = before;
    }
    return true;
}

/* Adds base to a filter by `_id` and number. Returns false if a filter cannot express it. */
static bool revision_filter_base(const truce_revision *revision, const bson_t *base, bson_t *filter)
{
    struct types types = {.filter = filter};
    bson_t plain;
    bool expressible;

    revision_plain(revision, base, &plain);
    expressible =
        plain.len <= VALUE_GUARD_BYTES_MAX && append_types(&types, truce__value_document(&plain));
    if (expressible)
        base_append_value_guard(revision, &plain, filter);
    truce__buffer_release(&types.path);
    bson_destroy(&plain);
    return expressible;
}

/* ---- the usual save -------------------------------------------------------------------------- */

/*
 * The usual save in one round trip: no other save happened since the read, no version is kept, and
 * the caller passes its base. Then one filter contains everything that a save checks:
 *
 *     {_id, version: n, the rest as read, _intent: absent, _rev: truce's}
 *         -> mine, version: n + 1, _rev: fresh
 *
 *     matched                 SAVED
 *     not matched             a commit makes the save and finds out why
 *     refused                 likewise: a unique key may be taken only temporarily
 *     no reply, then          _rev is ours      SAVED
 *                             still as read     it has no effect yet: send it again (RD1)
 *                             otherwise         TRUCE_UNKNOWN: it may have been saved, and others
 *                                               after it
 *
 * Invariants:
 *
 * RD1. A number is given once for an _id, even if the document was removed in between. So of any
 *     number of sends at most one takes effect.
 * RD2. After a send without a reply, a send that matches nothing proves nothing: the first may
 *     have taken effect, and others may have saved since. Only `_rev` decides.
 * RD3. If the collection has declared unique keys, only a commit knows the right `_keys`.
 */

/* A save as a single write, without a commit. */
struct direct {
    const struct revision_save *save;
    struct worker worker;
    bson_value_t id;
    /* The `_rev` that the write sets. */
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

/* Returns whether `mine` has a change, as far as the caller knows. */
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
    if (truce__metadata_keyed(revision->store, revision->collection, &keyed, NULL))
        return false;
    return !keyed; /* With declared keys, only a commit knows the right `_keys` (RD3). */
}

/* ---- the write ------------------------------------------------------------------------------- */

static void direct_append_absent(bson_t *filter, const char *path)
{
    BCON_APPEND(filter, path, "{", "$exists", BCON_BOOL(false), "}");
}

/* Requires a `_rev` of truce. Without it, another program wrote the number, and only a commit can
 * reserve the next one. */
static void append_own_rev(bson_t *filter)
{
    BCON_APPEND(filter, "_rev", "{", "$type", BCON_INT32(BSON_TYPE_OID), "}");
}

/* Makes the filter of the direct write. Returns false if a filter cannot express base. */
static bool direct_make_filter(struct direct *direct)
{
    const char *version = direct->save->revision->version;
    char *first = bson_strdup_printf("%s.0", version);

    truce__filter_id(&direct->id, &direct->filter);
    BSON_APPEND_INT64(&direct->filter, version, direct->save->version);
    /* Numbers in an array would match the number, too, so an array is excluded. */
    direct_append_absent(&direct->filter, first);
    direct_append_absent(&direct->filter, "_intent");
    /* Invariant 1: without a `_rev` of truce, another program wrote the number. */
    append_own_rev(&direct->filter);
    bson_free(first);
    return revision_filter_base(direct->save->revision, direct->save->base, &direct->filter);
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

/* ---- no reply -------------------------------------------------------------------------------- */

enum write_effect { WRITE_APPLIED, WRITE_NOT_APPLIED, WRITE_UNKNOWN };

/* Returns whether the stored document is the one that was read. A program that does not raise the
 * number may have put it back, so the rest is compared, too. */
static bool direct_is_as_read(const struct direct *direct, const bson_t *document)
{
    const struct revision_save *save = direct->save;
    int64_t number;
    bson_t base, plain;
    bool same;

    if (truce__revision_number(save->revision, document, &number, NULL) || number != save->version)
        return false;
    revision_plain(save->revision, save->base, &base);
    revision_plain(save->revision, document, &plain);
    same = bson_equal(&base, &plain);
    bson_destroy(&base);
    bson_destroy(&plain);
    return same;
}

/* Reads the document to find out whether a write without a reply took effect (RD2). A failed read
 * counts as WRITE_UNKNOWN. */
static enum write_effect direct_check(struct direct *direct)
{
    const truce_revision *revision = direct->save->revision;
    enum write_effect effect = WRITE_UNKNOWN;
    struct token token;
    bson_t document;
    truce_status status =
        truce__journal_read(&direct->worker, revision->collection, &direct->id, &document, NULL);

    if (!status && !truce__token_of(&document, &token, NULL)) {
        if (token.has_rev && bson_oid_equal(&token.rev, &direct->rev))
            effect = WRITE_APPLIED;
        else if (direct_is_as_read(direct, &document))
            effect = WRITE_NOT_APPLIED; /* It is sent again (RD1). */
    }
    bson_destroy(&document);
    return effect;
}

/* Sends the write until its outcome is certain. TRUCE_OK with *saved false means that the write has
 * no effect, now or later. */
static truce_status send_certainly(struct direct *direct, bool *saved, bson_error_t *error)
{
    bool unanswered = false, silent = false;
    bson_error_t why;

    for (;;) {
        bson_error_t now = {0};
        truce_status status = direct_send(direct, saved, &now);
        enum write_effect effect;

        if (*saved || (!unanswered && !truce__unanswered(status)))
            return TRUCE_OK;
        unanswered = true;
        silent = silent || status != TRUCE_IO;
        why = now;
        /* After a send without a reply, only `_rev` decides (RD2). */
        effect = direct_check(direct);
        *saved = effect == WRITE_APPLIED;
        if (*saved)
            return TRUCE_OK;
        if (effect != WRITE_UNKNOWN && !truce__disk_refused(direct->worker.store, status) &&
            !truce__worker_wait(&direct->worker, "the store", NULL))
            continue;
        /* The disk failed each time, so the error gives the reason. */
        if (!silent && error)
            *error = why;
        if (!silent)
            return TRUCE_IO;
        return truce__fail(TRUCE_UNKNOWN, error,
                           "the outcome of a save in \"%s\" is unknown: the store did not reply, "
                           "and the stored document does not show the outcome",
                           direct->save->revision->collection);
    }
}

/* Makes the save as one write if possible. Returns TRUCE_OK with *saved false if a commit must make
 * it. Returns TRUCE_UNKNOWN if the store did not reply and the document does not show the outcome,
 * and TRUCE_IO if the disk failed each time. */
static truce_status revision_save_direct(struct revision_save *save, bool *saved,
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

/* ---- results --------------------------------------------------------------------------------- */

static void begin_result(truce_revision_result *result)
{
    memset(result, 0, sizeof *result);
    bson_init(&result->document);
    bson_init(&result->conflict);
    result->version = TRUCE_REVISION_NEW;
}

void truce_revision_result_release(truce_revision_result *result)
{
    if (!result)
        return;
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

/* ---- documents ------------------------------------------------------------------------------- */

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
    return truce__fail(TRUCE_INVALID, error,
                       "the field \"%s\" of the document is %s: expected a whole number from 0",
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
        return truce__fail(TRUCE_INVALID, error,
                           "the document has no _id, which identifies its revisions");
    *id = *bson_iter_value(&iter);
    return TRUCE_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static truce_status revision_run(truce_revision *revision, truce_commit *commit,
                                 truce_commit_function *function, void *arg, bson_error_t *error)
{
    truce_commit_options options = {.deadline_ms = revision->deadline_ms,
                                    .tries_max = revision->tries_max,
                                    .relaxed = revision->relaxed};
    truce_status status =
        truce__handle_usable(revision->store, revision->refused, &revision->refusal, error);

    if (status)
        return status;
    return commit ? function(commit, arg, error)
                  : truce__transact(revision->store, function, arg, &options, false, error);
}

truce_status truce__revision_write(truce_revision *revision, truce_commit *commit,
                                   truce_commit_function *function, void *arg, bson_error_t *error)
{
    truce_status status = revision->refused ? TRUCE_OK : truce__revision_index(revision, error);

    return status ? status : revision_run(revision, commit, function, arg, error);
}

/* ---- conflicts as data ----------------------------------------------------------------------- */

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

/* The contents of the three versions. The content of a missing version is empty. */
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

/* Describes a conflict of the whole document. */
static void describe_whole(struct revision_save *save, const struct contents *contents,
                           int64_t number, const char *kind)
{
    bson_t conflicts = BSON_INITIALIZER;

    truce__revision_append_conflict(&conflicts, "", kind);
    revision_describe(save, contents, number, &conflicts);
    bson_destroy(&conflicts);
}

/* ---- one save -------------------------------------------------------------------------------- */

static truce_status revision_insert_new(struct revision_save *save, truce_commit *commit,
                                        const bson_value_t *id, const bson_t *content,
                                        bson_error_t *error)
{
    int64_t number;
    truce_status status = truce__revision_first(save->revision, commit, id, 1, &number, error);

    if (status)
        return status;
    truce__revision_set_document(save->revision, save->result, content, number);
    save->result->outcome = TRUCE_REVISION_SAVED;
    return truce_commit_insert(commit, save->revision->collection, &save->result->document, error);
}

/* Replaces theirs by `content` under the next number, and keeps the replaced version. Reserves
 * numbers if theirs has none of truce (invariant 1). */
static truce_status revision_replace(struct revision_save *save, truce_commit *commit,
                                     const bson_value_t *id, const bson_t *theirs, int64_t number,
                                     const bson_t *content, truce_revision_outcome outcome,
                                     bson_error_t *error)
{
    truce_status status = truce__revision_keep(save->revision, commit, theirs, number, error);
    int64_t next = number + 1;

    if (status)
        return status;
    /* Invariant 1: the document has no number of truce, so its first number is reserved. */
    if (!number || !truce__commit_marks(commit, save->revision->collection, id))
        status = truce__revision_first(save->revision, commit, id, next, &next, error);
    if (status)
        return status;
    truce__revision_set_document(save->revision, save->result, content, next);
    save->result->outcome = outcome;
    return truce_commit_replace(commit, save->revision->collection, id, NULL,
                                &save->result->document, error);
}

/* Finds base: the caller's copy, or the kept version. */
static truce_status find_base(struct revision_save *save, truce_commit *commit,
                              const bson_value_t *id, struct contents *contents,
                              bson_error_t *error)
{
    bson_t kept;
    truce_status status = TRUCE_OK;

    if (!save->base && save->version >= 0) {
        status =
            truce__revision_stored_version(save->revision, commit, id, save->version, &kept, error);
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

/* Lists the paths on which mine and theirs disagree, for a save that does not merge. */
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

/* Merges mine into theirs, and saves the result. If they cannot be merged, describes the conflict
 * and changes nothing. */
static truce_status revision_merge_contents(struct revision_save *save, truce_commit *commit,
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

/* Handles a save whose base is not theirs. */
static truce_status save_stale(struct revision_save *save, truce_commit *commit,
                               const bson_value_t *id, const bson_t *theirs, int64_t number,
                               struct contents *contents, bson_error_t *error)
{
    truce_status status = find_base(save, commit, id, contents, error);

    if (status)
        return status;
    /* If mine equals theirs, nothing must be saved, unless a merge has to add two equal changes. */
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
        status = revision_merge_contents(save, commit, id, theirs, number, contents, error);
    if (!status && save->inbox && save->result->outcome == TRUCE_REVISION_CONFLICT)
        status = truce__revision_put_entry(save, commit, id, error);
    return status;
}

/* Gives the fields that mine does not change the types that they have in theirs. */
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

/* Compares documents of the same number: another program may have changed the document
 * nevertheless. */
static truce_status revision_compare_base(struct revision_save *save, struct contents *contents,
                                          bool *stale, bson_error_t *error)
{
    *stale = false;
    if (!save->base)
        return TRUCE_OK;
    truce__revision_content(save->revision, save->base, &contents->base);
    contents->has_base = true;
    *stale = !revision_same_values(&contents->base, &contents->theirs);
    return *stale || bson_equal(&contents->base, &contents->theirs)
               ? TRUCE_OK
               : revision_keep_types(contents, error);
}

/* Reads the number and the content of theirs, and gives theirs a new number if necessary (RN2 of
 * revision_history.c). Sets *stale if theirs is not base. */
static truce_status save_compare(struct revision_save *save, truce_commit *commit,
                                 const bson_value_t *id, bson_t *theirs, int64_t *number,
                                 struct contents *contents, bool *stale, bson_error_t *error)
{
    bool same, renumbered;
    truce_status status = truce__revision_number(save->revision, theirs, number, error);

    if (status)
        return status;
    truce__revision_content(save->revision, theirs, &contents->theirs);
    contents->has_theirs = true;
    same = *number == save->version;
    *stale = !same;
    if (same)
        status = revision_compare_base(save, contents, stale, error);
    if (!status)
        status = truce__revision_renumber(save->revision, commit, id, theirs, number, &renumbered,
                                          error);
    if (status)
        return status;
    if (renumbered && !save->base && !save->current)
        *stale = true;
    truce__revision_set_document(save->revision, save->result, &contents->theirs, *number);
    return TRUCE_OK;
}

/* Saves over theirs, or inserts the document if `found` is false. A stale save is left to
 * save_stale. */
static truce_status save_over(struct revision_save *save, truce_commit *commit,
                              const bson_value_t *id, bson_t *theirs, bool found,
                              struct contents *contents, bson_error_t *error)
{
    int64_t number = TRUCE_REVISION_NEW;
    truce_status status = TRUCE_OK;
    bool stale = save->version != TRUCE_REVISION_NEW;

    if (found)
        status = save_compare(save, commit, id, theirs, &number, contents, &stale, error);
    if (status)
        return status;
    if (stale)
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

/* ---- the public calls ------------------------------------------------------------------------ */

/* Checks the document that the caller read: it may lack its _id, but not have another one than
 * `document`. `base` may be NULL. */
static truce_status revision_check_base(const bson_t *base, const bson_t *document,
                                        bson_error_t *error)
{
    struct value id, other;
    char a[80], b[80];
    truce_status status = base ? truce__document_check(base, "base", error) : TRUCE_OK;

    if (status || !base)
        return status;
    id = truce__value_field(truce__value_document(document), "_id", 3);
    other = truce__value_field(truce__value_document(base), "_id", 3);
    if (!other.type || !id.type || truce__value_equal(other, id))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the base is another document: its _id is %s, and not %s",
                       truce__value_show(other, a, sizeof a), truce__value_show(id, b, sizeof b));
}

/* Saves a document by one write if possible, and otherwise in a commit. If `merges`, conflicts with
 * other changes are merged. */
static truce_status revision_save_or_merge(truce_revision *revision, truce_commit *commit,
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
        status = truce__fail(TRUCE_INVALID, error,
                             "the document to save is NULL: expected a document with an _id");
    else
        status = truce__document_check(mine, "document", error);
    if (!status)
        status = revision_check_base(base, mine, error);
    if (!status && version < TRUCE_REVISION_NEW)
        status = truce__fail(TRUCE_INVALID, error,
                             "the revision number is %" PRId64
                             ": expected the number that was read, or TRUCE_REVISION_NEW",
                             version);
    if (!status && !commit)
        status = revision_save_direct(&one, &saved, error);
    if (status || saved)
        return status;
    return truce__revision_write(revision, commit, truce__revision_save_in, &one, error);
}

truce_status truce_revision_save(truce_revision *revision, truce_commit *commit, const bson_t *mine,
                                 int64_t version, const bson_t *base, truce_revision_result *result,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(result, error);

    return revision_save_or_merge(revision, commit, mine, version, base, false, result, error);
}

truce_status truce_revision_merge(truce_revision *revision, truce_commit *commit,
                                  const bson_t *mine, int64_t version, const bson_t *base,
                                  truce_revision_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(result, error);

    return revision_save_or_merge(revision, commit, mine, version, base, true, result, error);
}

/* The argument of a commit that reads a document and its number. */
struct reading {
    const truce_revision *revision;
    const bson_value_t *id;
    bson_t *document;
    /* Result: the number of the document. */
    int64_t number;
};

/* Reads the document, without fields of truce, and its number (a truce_commit_function). */
static truce_status revision_read_in_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct reading *reading = arg;
    bson_t found;
    truce_status status =
        truce_commit_read(commit, reading->revision->collection, reading->id, &found, error);

    if (!status) {
        bson_reinit(reading->document);
        truce__document_append_without(&found, (const char *const[]){"_rev", "_intent", NULL},
                                       reading->document);
        status = truce__revision_number(reading->revision, &found, &reading->number, error);
    }
    bson_destroy(&found);
    return status;
}

truce_status truce_revision_get(truce_revision *revision, truce_commit *commit,
                                const bson_value_t *id, bson_t *document, int64_t *version,
                                bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    struct reading reading = {.revision = revision, .id = id, .document = document};
    truce_status status;

    bson_init(document);
    status = revision_run(revision, commit, revision_read_in_commit, &reading, error);
    if (version)
        *version = status ? TRUCE_REVISION_NEW : reading.number;
    return status;
}

struct removal {
    truce_revision *revision;
    const bson_value_t *id;
    int64_t version;
    /* The document that the caller read, or NULL if only the number is compared. */
    const bson_t *base;
    truce_revision_result *result;
};

/* Returns whether the stored document is still as it was read. */
static bool revision_is_as_read(const struct removal *removal, int64_t number,
                                const bson_t *content)
{
    bson_t base;
    bool same;

    if (number != removal->version || !removal->base)
        return number == removal->version;
    truce__revision_content(removal->revision, removal->base, &base);
    same = revision_same_values(&base, content);
    bson_destroy(&base);
    return same;
}

/* Removes a document in a commit, if it still is as the caller read it. Otherwise the result has
 * the conflict. */
static truce_status remove_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct removal *removal = arg;
    truce_revision *revision = removal->revision;
    truce_revision_result *result = removal->result;
    int64_t number = 0;
    bool as_read = false, renumbered = false;
    bson_t theirs, content;
    truce_status status =
        truce_commit_read(commit, revision->collection, removal->id, &theirs, error);

    truce__revision_reset(result);
    if (!status)
        status = truce__revision_number(revision, &theirs, &number, error);
    truce__revision_content(revision, &theirs, &content);
    if (!status) {
        as_read = revision_is_as_read(removal, number, &content);
        status = truce__revision_renumber(revision, commit, removal->id, &theirs, &number,
                                          &renumbered, error);
    }
    if (!status && (!as_read || (renumbered && !removal->base))) {
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
    RETURN_IF_NULL(result, error);

    struct removal removal = {revision, id, version, base, result};

    bson_t removed = BSON_INITIALIZER;
    truce_status status;

    begin_result(result);
    if (id)
        BSON_APPEND_VALUE(&removed, "_id", id);
    status = revision_check_base(base, &removed, error);
    bson_destroy(&removed);
    return status ? status : truce__revision_write(revision, commit, remove_in, &removal, error);
}
