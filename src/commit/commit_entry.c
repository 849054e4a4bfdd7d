/*
 * An entry (commit_entry.h) collects the changes of one document. A known entry folds each change
 * into `after` when it is added. So the commit reads its own writes, and the call that makes a
 * wrong change refuses it. Two fields belong to truce, `_rev` and `_intent`. An update that touches
 * them is refused by comparing them before and after, whatever operator touched them. An insert or
 * replacement loses them (whole_document).
 *
 *  CE1  A document that was read is compared as a whole in the same write that changes it. If the
 *       store can (TRUCE_CAN_COMPARE), it compares bytes, else the revision and, in the filter, the
 *       value. A document that is too large for a filter (truce__entry_comparable) is compared in
 *       this process, while the journal holds it. The revision alone is not enough: plain writers,
 *       and patterns that change single documents (patterns/set/set.c), do not change it.
 *  CE2  The value alone is not enough either: a value that was changed and restored is not the same
 *       version. This matters if two commits require one document, and if a write without a reply
 *       is sent twice. So the revision, which never repeats, is always compared too.
 */
#include "commit/commit_entry.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "commit/commit.h"
#include "commit/compared_changes.h"
#include "merge/document_diff.h"
#include "query/input_check.h"
#include "query/match/match_tree.h"
#include "query/update/update.h"
#include "truce/sys/store.h"

/* Returns an _id as a value. A document or ObjectId borrows from `id`. Any other type is written to
 * `holder`, from which the value then borrows. `holder` is initialized in any case. */
static struct value value_of(const bson_value_t *id, bson_t *holder)
{
    struct fields fields;

    bson_init(holder);
    if (id->value_type == BSON_TYPE_DOCUMENT)
        return (struct value){id->value.v_doc.data, id->value.v_doc.data_len, BSON_TYPE_DOCUMENT};
    if (id->value_type == BSON_TYPE_OID)
        return (struct value){id->value.v_oid.bytes, sizeof id->value.v_oid.bytes, BSON_TYPE_OID};
    bson_append_value(holder, "", 0, id);
    fields = truce__fields(truce__value_document(holder));
    truce_assert(truce__fields_next(&fields));
    return fields.value;
}

struct entry *truce__entry_new(const char *collection, const bson_value_t *id)
{
    struct entry *entry = bson_malloc0(sizeof *entry);

    entry->collection = bson_strdup(collection);
    bson_value_copy(id, &entry->id);
    bson_init(&entry->base);
    bson_init(&entry->after);
    return entry;
}

void truce__entry_free(struct entry *entry)
{
    for (uint32_t i = 0; i < entry->changes_count; i++)
        bson_destroy(entry->changes[i].document);
    bson_free(entry->changes);
    bson_destroy(entry->guards);
    bson_destroy(entry->key);
    bson_destroy(entry->shows);
    bson_destroy(&entry->base);
    bson_destroy(&entry->after);
    bson_value_destroy(&entry->id);
    bson_free(entry->collection);
    bson_free(entry);
}

int truce__entry_compare(const struct entry *a, const struct entry *b)
{
    bson_t holder_a, holder_b;
    int order = strcmp(a->collection, b->collection);

    if (order)
        return order;
    order = truce__value_compare(value_of(&a->id, &holder_a), value_of(&b->id, &holder_b));
    bson_destroy(&holder_a);
    bson_destroy(&holder_b);
    return order;
}

uint64_t truce__entry_hash(const struct entry *entry)
{
    bson_t holder;
    uint64_t hash = truce__value_hash(value_of(&entry->id, &holder));

    for (const char *at = entry->collection; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    bson_destroy(&holder);
    return hash ^ hash >> 32;
}

const char *truce__entry_show(const struct entry *entry, char *text, size_t size)
{
    bson_t holder;
    char id[200];

    snprintf(text, size, "document %s of \"%s\"",
             truce__value_show(value_of(&entry->id, &holder), id, sizeof id), entry->collection);
    bson_destroy(&holder);
    return text;
}

truce_status truce__entry_missing(const struct entry *entry, bson_error_t *error)
{
    bson_t holder;
    struct value id = value_of(&entry->id, &holder);
    bool is_filter =
        id.type == BSON_TYPE_DOCUMENT && truce__value_field(id, "_id", 3).type != BSON_TYPE_EOD;
    char text[300];

    bson_destroy(&holder);
    return truce__fail(TRUCE_NOT_FOUND, error, "%s does not exist%s",
                       truce__entry_show(entry, text, sizeof text),
                       is_filter ? " (give the _id itself, not a filter)" : "");
}

truce_status truce__token_of(const bson_t *document, struct token *token, bson_error_t *error)
{
    bson_iter_t iter;

    memset(token, 0, sizeof *token);
    if (!document)
        return TRUCE_OK;
    token->found = true;
    if (!bson_iter_init_find(&iter, document, "_rev"))
        return TRUCE_OK;
    if (!BSON_ITER_HOLDS_OID(&iter))
        return truce__fail(
            TRUCE_INVALID, error,
            "the field \"_rev\" of a document in the commit is not an ObjectId: the name is "
            "reserved for truce, so remove or rename the field");
    token->has_rev = true;
    bson_oid_copy(bson_iter_oid(&iter), &token->rev);
    return TRUCE_OK;
}

static bool token_same(const struct token *a, const struct token *b)
{
    return a->found == b->found && a->has_rev == b->has_rev &&
           (!a->has_rev || bson_oid_equal(&a->rev, &b->rev));
}

/* ---- guards --------------------------------------------------------------------------------- */

truce_status truce__guard_matches(const bson_t *guard, const bson_t *document, bool *matches,
                                  bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct match_result result = {0};
    struct match *match = NULL;
    truce_status status = truce__match_new(guard, &match, error);

    if (!status)
        status =
            truce__match_test(match, truce__value_document(document), &context, &result, error);
    *matches = !status && result.matched;
    truce__match_free(match);
    truce__arena_release(&arena);
    return status;
}

/* The operators that a field of a condition probably means without its "$", each with the types of
 * its operand; 0 means any. The names of others, such as size and type, are names of usual fields. */
static const struct {
    const char *name;
    uint8_t types[2];
} guard_operators[] = {
    {"$gt", {0}},
    {"$gte", {0}},
    {"$lt", {0}},
    {"$lte", {0}},
    {"$ne", {0}},
    {"$in", {BSON_TYPE_ARRAY}},
    {"$nin", {BSON_TYPE_ARRAY}},
    {"$exists", {BSON_TYPE_BOOL, BSON_TYPE_INT32}},
    {"$regex", {BSON_TYPE_UTF8, BSON_TYPE_REGEX}},
    {"$elemMatch", {BSON_TYPE_DOCUMENT}},
};

/* Returns the operator that the field of a condition probably means without its "$", or NULL. */
static const char *guard_operator_meant(const struct fields *field)
{
    for (size_t i = 0; i < sizeof guard_operators / sizeof *guard_operators; i++) {
        const uint8_t *types = guard_operators[i].types;

        if (!strcmp(field->key, guard_operators[i].name + 1) &&
            (!types[0] || field->value.type == types[0] || field->value.type == types[1]))
            return guard_operators[i].name;
    }
    return NULL;
}

/* Returns `hint` with a hint if a condition of the guard is a document of operators without their
 * "$", as {seats: {gt: 0}}. A field of the document whose value is a document gets no hint. */
static const char *guard_hint(const bson_t *guard, const bson_t *base,
                              char hint[NEAREST_WORD_HINT_MAX])
{
    struct fields fields = truce__fields(truce__value_document(guard)), conditions;
    struct nearest_word nearest = {0};
    bson_iter_t iter, found;

    while (!nearest.best && truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_DOCUMENT ||
            (bson_iter_init(&iter, base) && bson_iter_find_descendant(&iter, fields.key, &found) &&
             BSON_ITER_HOLDS_DOCUMENT(&found)))
            continue;
        conditions = truce__fields(fields.value);
        while (truce__fields_next(&conditions)) {
            nearest.best = guard_operator_meant(&conditions);
            if (!nearest.best)
                break;
        }
    }
    return truce__nearest_word_hint(&nearest, hint);
}

/* Fails with REFUSED if the base does not match the guard, and with NOT_FOUND if no base exists. */
static truce_status test_guard(const struct entry *entry, const bson_t *guard, bson_error_t *error)
{
    bool matches = false;
    char text[300], shown[150], hint[NEAREST_WORD_HINT_MAX];
    truce_status status;

    if (!entry->token.found)
        return truce__entry_missing(entry, error);
    status = truce__guard_matches(guard, &entry->base, &matches, error);
    if (!status && !matches)
        status = truce__fail(TRUCE_REFUSED, error, "%s does not match its guard %s%s",
                             truce__entry_show(entry, text, sizeof text),
                             truce__value_show(truce__value_document(guard), shown, sizeof shown),
                             guard_hint(guard, &entry->base, hint));
    return status;
}

/* Tests all guards of the entry, and whether its document must exist. */
static truce_status test_guards(const struct entry *entry, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;

    if (entry->must_exist && !entry->token.found)
        return truce__entry_missing(entry, error);
    if (!entry->guards || !bson_iter_init(&iter, entry->guards))
        return TRUCE_OK;
    while (!status && bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t guard;

        bson_iter_document(&iter, &length, &bytes);
        truce_assert(bson_init_static(&guard, bytes, length));
        status = test_guard(entry, &guard, error);
    }
    return status;
}

truce_status truce__entry_guard(struct entry *entry, const bson_t *guard, bson_error_t *error)
{
    struct match *match = NULL;
    truce_status status;
    const char *index;
    char text[16];
    size_t size;

    status = truce__check_optional(guard, "guard", error);
    if (status || !guard || bson_empty(guard))
        return status;
    status = truce__match_new(guard, &match, error);
    truce__match_free(match);
    if (!status && entry->known)
        status = test_guard(entry, guard, error);
    if (status)
        return status;
    if (!entry->guards)
        entry->guards = bson_new();
    size = bson_uint32_to_string(bson_count_keys(entry->guards), &index, text, sizeof text);
    bson_append_document(entry->guards, index, (int)size, guard);
    return TRUCE_OK;
}

/* ---- changes -------------------------------------------------------------------------------- */

static truce_status refuse_entry(const struct entry *entry, truce_status status, const char *why,
                                 bson_error_t *error)
{
    char text[300];

    return truce__fail(status, error, "%s %s", truce__entry_show(entry, text, sizeof text), why);
}

static bool entry_same_field(const bson_t *a, const bson_t *b, const char *name)
{
    struct value in_a = truce__value_field(truce__value_document(a), name, strlen(name));
    struct value in_b = truce__value_field(truce__value_document(b), name, strlen(name));

    return truce__value_identical(in_a, in_b);
}

static void entry_set_after(struct entry *entry, bson_t *after, bool found)
{
    bson_destroy(&entry->after);
    bson_steal(&entry->after, after);
    entry->after_found = found;
}

/* Applies a compiled update to the entry's `after`. Fails with INVALID if it replaces the document
 * or changes a reserved field. */
static truce_status apply_compiled(struct entry *entry, const struct update *update,
                                   bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_result result;
    bson_t after = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (truce__update_is_replacement(update))
        status =
            truce__fail(TRUCE_INVALID, error,
                        "an update in a commit must consist of operators ($set, $inc ...); use "
                        "replace for a whole document");
    if (!status) {
        bson_destroy(&after);
        status = truce__update_apply(update, &entry->after, NULL, &context, &after, &result, error);
    }
    if (!status && (!entry_same_field(&entry->after, &after, "_rev") ||
                    !entry_same_field(&entry->after, &after, "_intent")))
        status = truce__fail(TRUCE_INVALID, error,
                             "the fields \"_rev\" and \"_intent\" are reserved for truce: a commit "
                             "cannot change them");
    if (!status)
        entry_set_after(entry, &after, true);
    else
        bson_destroy(&after);
    truce__arena_release(&arena);
    return status;
}

static truce_status entry_apply_operators(struct entry *entry, const bson_t *operators,
                                          bson_error_t *error)
{
    struct update_options options = {.borrows = true};
    struct update *update = NULL;
    truce_status status = truce__update_new(operators, &options, &update, error);

    if (!status)
        status = apply_compiled(entry, update, error);
    truce__update_free(update);
    return status;
}

/* Makes `document` with the entry's _id first and without truce's own fields. */
static void whole_document(const struct entry *entry, const bson_t *document, bson_t *whole)
{
    struct fields fields = truce__fields(truce__value_document(document));

    bson_init(whole);
    bson_append_value(whole, "_id", 3, &entry->id);
    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "_id") || !strcmp(fields.key, "_rev") ||
            !strcmp(fields.key, "_intent"))
            continue;
        truce__value_append(whole, fields.key, fields.key_length, fields.value);
    }
}

static truce_status entry_apply_whole(struct entry *entry, const bson_t *document,
                                      bson_error_t *error)
{
    bson_t whole;

    if (document->len > TRUCE_DOCUMENT_BYTES_MAX - TRUCE_INTERNAL_BYTES_EXTRA)
        return refuse_entry(entry, TRUCE_LIMIT, "would exceed the maximum size of a document",
                            error);
    whole_document(entry, document, &whole);
    entry_set_after(entry, &whole, true);
    return TRUCE_OK;
}

/* Applies a diff to `after`, if its old values are the current ones. Otherwise fails with CONFLICT
 * and marks the entry as stale. */
static truce_status entry_apply_diff(struct entry *entry, const bson_t *diff, bson_error_t *error)
{
    truce_status status;
    bson_t operators;
    char why[400];

    entry->stale = true;
    if (!entry->after_found)
        return refuse_entry(entry, TRUCE_CONFLICT, "no longer exists", error);
    if (!truce__changes_hold(diff, &entry->after, why, sizeof why)) {
        char text[300];

        return truce__fail(TRUCE_CONFLICT, error, "%s: %s",
                           truce__entry_show(entry, text, sizeof text), why);
    }
    entry->stale = false;
    truce__changes_operators(diff, &operators);
    status = entry_apply_operators(entry, &operators, error);
    bson_destroy(&operators);
    return status;
}

/* Applies one collected change to `after`. */
static truce_status apply_change(struct entry *entry, const struct change *change,
                                 const struct update *compiled, bson_error_t *error)
{
    bson_t nothing = BSON_INITIALIZER;

    if (change->kind == CHANGE_DIFF)
        return entry_apply_diff(entry, change->document, error);

    if (change->kind == CHANGE_INSERT) {
        if (entry->after_found)
            return refuse_entry(entry, TRUCE_DUPLICATE, "exists already", error);
        return entry_apply_whole(entry, change->document, error);
    }
    if (!entry->after_found)
        return truce__entry_missing(entry, error);
    if (change->kind == CHANGE_UPDATE && compiled)
        return apply_compiled(entry, compiled, error);
    if (change->kind == CHANGE_UPDATE)
        return entry_apply_operators(entry, change->document, error);
    if (change->kind == CHANGE_REPLACE)
        return entry_apply_whole(entry, change->document, error);
    entry_set_after(entry, &nothing, false);
    return TRUCE_OK;
}

static void keep_change(struct entry *entry, enum change_kind kind, const bson_t *document)
{
    struct change *change;

    if (entry->changes_count == entry->changes_room) {
        entry->changes_room = entry->changes_room ? 2 * entry->changes_room : 2;
        entry->changes = bson_realloc(entry->changes, entry->changes_room * sizeof *entry->changes);
    }
    change = &entry->changes[entry->changes_count++];
    change->kind = kind;
    change->document = document ? bson_copy(document) : NULL;
}

truce_status truce__entry_change(struct entry *entry, enum change_kind kind, const bson_t *document,
                                 const struct update *compiled, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!entry->known && !entry->changes_count) {
        /* An insert requires that the base is missing. A diff of a missing document is a CONFLICT.
         * Every other change requires the document. */
        if (kind == CHANGE_INSERT)
            entry->known = true;
        else if (kind != CHANGE_DIFF)
            entry->must_exist = true;
    }
    if (!entry->known && kind == CHANGE_INSERT &&
        entry->changes[entry->changes_count - 1].kind != CHANGE_REMOVE)
        return refuse_entry(entry, TRUCE_DUPLICATE, "exists already", error);
    keep_change(entry, kind, document);
    if (entry->known)
        status = apply_change(entry, &entry->changes[entry->changes_count - 1], compiled, error);
    if (status) {
        entry->changes_count--;
        bson_destroy(entry->changes[entry->changes_count].document);
    }
    return status;
}

/* Makes the document the base, tests the guards, and applies all collected changes. */
static truce_status set_base(struct entry *entry, const bson_t *base, bson_error_t *error)
{
    truce_status status = truce__token_of(base, &entry->token, error);
    bson_t copy = BSON_INITIALIZER;

    if (status)
        return status;
    bson_reinit(&entry->base);
    if (base)
        bson_concat(&entry->base, base);
    bson_concat(&copy, &entry->base);
    entry_set_after(entry, &copy, base != NULL);
    status = test_guards(entry, error);
    for (uint32_t i = 0; !status && i < entry->changes_count; i++)
        status = apply_change(entry, &entry->changes[i], NULL, error);
    return status;
}

truce_status truce__entry_know(struct entry *entry, const bson_t *base, bool read,
                               bson_error_t *error)
{
    truce_assert(!entry->known);
    entry->known = true;
    entry->read = read;
    return set_base(entry, base, error);
}

truce_status truce__entry_take(struct entry *entry, const bson_t *base, bson_error_t *error)
{
    truce_assert(!entry->known);
    return set_base(entry, base, error);
}

enum net truce__entry_net(const struct entry *entry)
{
    if (!entry->token.found)
        return entry->after_found ? NET_INSERT : NET_NOTHING;
    if (!entry->after_found)
        return NET_REMOVE;
    return entry->changes_count ? NET_UPDATE : NET_NOTHING;
}

bool truce__entry_has_diff(const struct entry *entry)
{
    for (uint32_t i = 0; i < entry->changes_count; i++) {
        if (entry->changes[i].kind == CHANGE_DIFF)
            return true;
    }
    return false;
}

bool truce__entry_writes(const struct entry *entry)
{
    return entry->changes_count > 0 && (!entry->known || truce__entry_net(entry) != NET_NOTHING);
}

/* ---- filters -------------------------------------------------------------------------------- */

static void entry_append_absent(bson_t *filter, const char *field)
{
    bson_t exists;

    bson_append_document_begin(filter, field, -1, &exists);
    BSON_APPEND_BOOL(&exists, "$exists", false);
    bson_append_document_end(filter, &exists);
}

void truce__filter_entry(const struct entry *entry, bool any_rev, bson_t *filter)
{
    truce__filter_id(&entry->id, filter);
    if (!any_rev && entry->token.has_rev)
        BSON_APPEND_OID(filter, "_rev", &entry->token.rev);
    else if (!any_rev)
        entry_append_absent(filter, "_rev");
    entry_append_absent(filter, "_intent");
    if (entry->guards)
        BSON_APPEND_ARRAY(filter, "$and", entry->guards);
}

/* Appends {$expr: {$eq: [{$mergeObjects: ["$$ROOT"]}, {$literal: base}]}}. Servers before 4.4 take
 * a bare $$ROOT in $mergeObjects for a path, and other servers do not evaluate it in a list. */
static void entry_append_value_guard(const bson_t *base, bson_t *filter)
{
    bson_t expr, operands, merged, list, literal;

    bson_append_document_begin(filter, "$expr", 5, &expr);
    bson_append_array_begin(&expr, "$eq", 3, &operands);
    bson_append_document_begin(&operands, "0", 1, &merged);
    bson_append_array_begin(&merged, "$mergeObjects", -1, &list);
    BSON_APPEND_UTF8(&list, "0", "$$ROOT");
    bson_append_array_end(&merged, &list);
    bson_append_document_end(&operands, &merged);
    bson_append_document_begin(&operands, "1", 1, &literal);
    BSON_APPEND_DOCUMENT(&literal, "$literal", base);
    bson_append_document_end(&operands, &literal);
    bson_append_array_end(&expr, &operands);
    bson_append_document_end(filter, &expr);
}

const bson_t *truce__filter_whole(const truce_store *store, const bson_value_t *id,
                                  const bson_t *document, bson_t *filter)
{
    truce__filter_id(id, filter);
    if (store->capabilities & TRUCE_CAN_COMPARE)
        return document;
    if (document->len <= VALUE_GUARD_BYTES_MAX)
        entry_append_value_guard(document, filter);
    return NULL;
}

const bson_t *truce__filter_held(const truce_store *store, const bson_value_t *id,
                                 const bson_t *document, const bson_oid_t *commit, bson_t *filter)
{
    const bson_t *exact = truce__filter_whole(store, id, document, filter);

    BSON_APPEND_OID(filter, "_intent.c", commit);
    return exact;
}

const bson_t *truce__filter_base(const truce_store *store, const struct entry *entry,
                                 bson_t *filter)
{
    truce_assert(entry->token.found);
    if (store->capabilities & TRUCE_CAN_COMPARE) {
        /* The bytes include _rev and exclude _intent. */
        truce__filter_id(&entry->id, filter);
        return &entry->base;
    }
    truce__filter_entry(entry, false, filter);
    entry_append_value_guard(&entry->base, filter);
    return NULL;
}

/* The bytes of the field `_intent: {c: C}`. The intent of an entry with reserved keys is longer,
 * but such an entry is released on its own, after a read (can_release in journal.c). */
#define INTENT_BYTES 29

bool truce__entry_comparable(const truce_store *store, const struct entry *entry)
{
    return (store->capabilities & TRUCE_CAN_COMPARE) || !entry->token.found ||
           entry->base.len + (entry->prepared ? INTENT_BYTES : 0) <= VALUE_GUARD_BYTES_MAX;
}

/* ---- the write of an entry ------------------------------------------------------------------- */

void truce__entry_document(const struct entry *entry, const bson_oid_t *rev, bson_t *document)
{
    bson_init(document);
    truce__document_append_without(&entry->after, (const char *const[]){"_rev", NULL}, document);
    BSON_APPEND_OID(document, "_rev", rev);
}

void truce__entry_update(const struct entry *entry, const bson_oid_t *rev, bson_t *update,
                         bool *replacement)
{
    truce__entry_update_over(&entry->base, entry, rev, update, replacement);
}

void truce__entry_update_over(const bson_t *now, const struct entry *entry, const bson_oid_t *rev,
                              bson_t *update, bool *replacement)
{
    struct diff diff;
    bson_t unset;

    *replacement =
        !truce__diff(truce__value_document(now), truce__value_document(&entry->after), &diff);
    if (*replacement) {
        truce__entry_document(entry, rev, update);
    } else {
        bson_init(update);
        BSON_APPEND_OID(&diff.set, "_rev", rev);
        BSON_APPEND_DOCUMENT(update, "$set", &diff.set);
        /* The new document of a replacement has no `_rev` yet, so the field is set and not
         * removed. */
        bson_init(&unset);
        truce__document_append_without(&diff.unset, (const char *const[]){"_rev", NULL}, &unset);
        if (!bson_empty(&unset))
            BSON_APPEND_DOCUMENT(update, "$unset", &unset);
        bson_destroy(&unset);
    }
    truce__diff_release(&diff);
}

/* ---- errors about an entry ------------------------------------------------------------------- */

truce_status truce__entry_conflict(const struct entry *entry, const char *why, bson_error_t *error)
{
    char text[300];

    return truce__fail(TRUCE_CONFLICT, error, "%s %s", truce__entry_show(entry, text, sizeof text),
                       why);
}

truce_status truce__entry_same(const struct entry *entry, const bson_t *document,
                               bson_error_t *error)
{
    struct token token;
    truce_status status = truce__token_of(document, &token, error);

    truce_assert(entry->known);
    if (status)
        return status;
    if (token.found != entry->token.found)
        return truce__entry_conflict(entry, token.found ? "was inserted" : "was removed", error);
    if (!token_same(&token, &entry->token))
        return truce__entry_conflict(entry, "was changed by another commit", error);
    if (token.found && !bson_equal(document, &entry->base))
        return truce__entry_conflict(entry, "was changed by a plain write", error);
    return TRUCE_OK;
}

truce_status truce__entry_exists(const struct entry *entry, bson_error_t *error)
{
    char text[300];

    return truce__refuse(CODE_DUPLICATE_KEY, error, "%s already exists",
                         truce__entry_show(entry, text, sizeof text));
}

truce_status truce__entry_blame(struct entry *entry, const bson_t *document, bson_error_t *error)
{
    truce_assert(!entry->known);
    return truce__entry_take(entry, document, error);
}
