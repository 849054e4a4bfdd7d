/*
 * Ordered sets: the handle, its options, the definition kept in the store, and the public calls.
 *
 * A set is two lists in one document, the members and the tombstones (truce/set.h has the picture).
 *
 * Invariants of a document:
 *   1. A name stands at most once, in at most one of the lists.
 *   2. What stands is the operation of the highest rank among those applied, unless that is a
 *      remove at or below `_wm`, which may be gone.
 *   3. `_wm` never falls; an operation at or below it changes nothing.
 *   4. There is one document for each key (a unique index), and it is never deleted: it holds
 *      `_wm`.
 *   5. (The rule of single writes.) A document that a commit holds is not changed: the commit is met
 *      as commits meet each other, and then it is looked at again. A document that has a revision
 *      gets another one with every change; one that has none stays so, and commits compare it by
 *      value, which is as good, because a set never returns to a value that it had. So what a commit
 *      read of a set stands when it takes effect (models/set_commit.cpp).
 *
 * The life of one operation on one name, whatever the order of arrival:
 *
 *     rank > what stands, number > _wm    applied: its entry goes into its list, and the entry of
 *                                         that name leaves the other
 *     rank = what stands                  DUPLICATE, nothing is written
 *     rank < what stands                  STALE, nothing is written
 *     number <= _wm, nothing stands       a repeat of what was collected (DUPLICATE), or it comes
 *                                         after its number was given up (QUARANTINED)
 *
 * Each application is one atomic update whose guard holds all of that, or a merge inside the store's own
 * write, where the store can (`rewrites`; models/set_batch.cpp has both). So a crash leaves it done or
 * not done, and doing it again is harmless. The parts:
 *
 *     set_operation.c   operations: checks, keys, entries, their order; one document for each element
 *     set_form.c        one operation: as a pipeline, or as a loop of two guarded updates
 *     set_batch.c       batches: the winner of each name, merged inside the store, or by guarded writes
 *     set_merge.c       merges the winners of a document into its lists
 *     set_queue.c       combines the calls of several threads
 *     set_commit.c      operations as part of a commit
 *     set_ranges.c      sets of numbers
 *     set_progress.c    numbers that consumers recorded, and their lookup below the watermark
 *     set_source.c      sources, void numbers, the watermark
 *     set_collect.c     collects tombstones by proof; the archive; removes a set
 *     set_quarantine.c  late operations
 *     set_protect.c     a validator against programs that do not compare the watermark
 *     set_guard.c       collects the tombstones of the layout by element
 *     set_walk.c        reads documents in order, and writes many at a time
 *     set_convert.c     lists from before there were numbers
 *
 * Deliberately not done: a set does not order its members (the lists keep the order of arrival).
 */
#include "patterns/set/set.h"

#include "base/assert.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_names.h"
#include "commit/metadata_cache.h"
#include "store/store.h"

static bool set_name_is_good(const char *name)
{
    return name[0] && name[0] != '$' && !strpbrk(name, ".,") && strlen(name) <= 100 &&
           strcmp(name, "_rev") != 0 && strcmp(name, "_intent") != 0;
}

static void set_refuse(truce_set *set, const char *what, const char *name)
{
    if (set->refused)
        return;
    set->refused = true;
    (void)truce__fail(TRUCE_INVALID, &set->refusal, "the set's %s cannot be \"%s\"", what, name);
}

static char *take_name(truce_set *set, const char *what, const char *given, const char *otherwise)
{
    char *name = bson_strdup(given ? given : otherwise);

    if (!set_name_is_good(name))
        set_refuse(set, what, name);
    return name;
}

/* The user's own names: no default may write into a field that nobody meant. */
static const char *set_must(truce_set *set, const char *option, const char *given)
{
    if (given)
        return given;
    if (!set->refused)
        (void)truce__fail(TRUCE_INVALID, &set->refusal,
                          "the set's option \"%s\" is missing (it needs collection, key, field and"
                          " name)",
                          option);
    set->refused = true;
    return "?";
}

static void take_keys(truce_set *set, const char *given)
{
    const char *at = given;

    while (set->keys_count < SET_KEYS_MAX) {
        size_t length = strcspn(at, ",");

        set->keys[set->keys_count] = bson_strndup(at, length);
        if (!set_name_is_good(set->keys[set->keys_count++]))
            set_refuse(set, "key", given);
        if (!at[length])
            return;
        at += length + 1;
    }
    set_refuse(set, "key", given);
}

static void check_names_differ(truce_set *set)
{
    const char *top[SET_KEYS_MAX + 3] = {set->field, set->deleted, set->watermark};
    const char *inside[] = {set->name, set->seq, set->source};

    for (uint32_t i = 0; i < set->keys_count; i++)
        top[3 + i] = set->keys[i];
    for (uint32_t i = 0; i < 3 + set->keys_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (!strcmp(top[i], top[k]))
                set_refuse(set, "fields, which must differ,", top[i]);
        }
    }
    for (uint32_t i = 1; i < 3; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (!strcmp(inside[i], inside[k]))
                set_refuse(set, "element's fields, which must differ,", inside[i]);
        }
    }
    for (uint32_t i = 0; i < 3 && set->layout == TRUCE_SET_BY_ELEMENT; i++) {
        for (uint32_t k = 0; k < set->keys_count; k++) {
            if (!strcmp(inside[i], set->keys[k]))
                set_refuse(set, "element's fields, which differ from the key's,", inside[i]);
        }
    }
}

static truce_set_form set_form_for(const truce_store *store, truce_set_form wanted)
{
    if (wanted == TRUCE_SET_FORM_CLASSIC || !(store->capabilities & TRUCE_CAN_PIPELINE_UPDATE))
        return TRUCE_SET_FORM_CLASSIC;
    return TRUCE_SET_FORM_PIPELINE;
}

truce_set *truce_set_new(truce_store *store, const truce_set_options *options)
{
    static const truce_set_options defaults;
    truce_set *set = bson_malloc0(sizeof *set);
    char *deleted;

    truce_assert(store);
    if (!options)
        options = &defaults;
    set->store = store;
    set->refused = ROOM_CHECK(options, "truce_set_options", &set->refusal) != TRUCE_OK;
    set->layout = options->layout;
    set->form = set_form_for(store, options->form);
    set->deadline_ms = options->deadline_ms;
    set->rewrites = options->form == TRUCE_SET_FORM_AUTO &&
                    options->layout == TRUCE_SET_IN_DOCUMENT &&
                    (store->capabilities & TRUCE_CAN_REWRITE);
    set->beside = !(store->capabilities & TRUCE_CAN_REWRITE);
    if (options->form == TRUCE_SET_FORM_PIPELINE && set->form != options->form)
        set_refuse(set, "form on this store", "pipeline");
    set->collection = bson_strdup(set_must(set, "collection", options->collection));
    take_keys(set, set_must(set, "key", options->key));
    set->field = take_name(set, "list", set_must(set, "field", options->field), NULL);
    deleted = bson_strdup_printf("deleted_%s", set->field);
    set->deleted = take_name(set, "list of tombstones", options->deleted, deleted);
    set->name = take_name(set, "element's name", set_must(set, "name", options->name), NULL);
    set->name_length = (uint32_t)strlen(set->name);
    set->seq = take_name(set, "element's number", options->seq, "seq");
    set->source = take_name(set, "element's source", options->source, "src");
    set->watermark = take_name(set, "watermark", options->watermark, "_wm");
    set->elements = bson_strdup_printf("%s.%s", set->collection, set->field);
    set->guards = bson_strdup_printf("%s" GUARDS_SUFFIX, set->elements);
    set->id = bson_strdup(set->elements);
    check_names_differ(set);
    pthread_mutex_init(&set->mutex, NULL);
    pthread_mutex_init(&set->queue_mutex, NULL);
    bson_free(deleted);
    return set;
}

void truce_set_free(truce_set *set)
{
    if (!set)
        return;
    truce__sources_free(set->known);
    truce__recorded_free(set->recorded);
    pthread_mutex_destroy(&set->mutex);
    pthread_mutex_destroy(&set->queue_mutex);
    for (uint32_t i = 0; i < set->keys_count; i++)
        bson_free(set->keys[i]);
    bson_free(set->collection);
    bson_free(set->field);
    bson_free(set->deleted);
    bson_free(set->name);
    bson_free(set->seq);
    bson_free(set->source);
    bson_free(set->watermark);
    bson_free(set->elements);
    bson_free(set->guards);
    bson_free(set->id);
    bson_free(set);
}

/* ---- made ready before the first write ------------------------------------------------------ */

static truce_status create_index(truce_set *set, bson_error_t *error)
{
    bool by_element = set->layout == TRUCE_SET_BY_ELEMENT;
    bson_t index = BSON_INITIALIZER, key;
    truce_status status = TRUCE_OK;
    bson_error_t why;

    bson_append_document_begin(&index, "key", -1, &key);
    for (uint32_t i = 0; i < set->keys_count; i++)
        bson_append_int32(&key, set->keys[i], -1, 1);
    if (by_element)
        bson_append_int32(&key, set->name, -1, 1);
    bson_append_document_end(&index, &key);
    bson_append_bool(&index, "unique", -1, true);
    if (by_element || set->keys_count > 1 || strcmp(set->keys[0], "_id"))
        status = truce__index_ensure(set->store, by_element ? set->elements : set->collection,
                                     &index, &why);
    if (status == TRUCE_DUPLICATE)
        status =
            truce__fail(status, error,
                        "collection %s has two documents of one key; set %s needs one for each: %s",
                        set->collection, set->id, why.message);
    else if (status && error)
        *error = why;
    bson_destroy(&index);
    return status;
}

static void set_append_definition(const truce_set *set, bson_t *definition)
{
    bson_t keys;

    bson_append_utf8(definition, "_id", -1, set->id, -1);
    bson_append_array_begin(definition, "key", -1, &keys);
    for (uint32_t i = 0; i < set->keys_count; i++) {
        char text[16];
        const char *index;

        bson_uint32_to_string(i, &index, text, sizeof text);
        bson_append_utf8(&keys, index, -1, set->keys[i], -1);
    }
    bson_append_array_end(definition, &keys);
    bson_append_utf8(definition, "deleted", -1, set->deleted, -1);
    bson_append_utf8(definition, "name", -1, set->name, -1);
    bson_append_utf8(definition, "seq", -1, set->seq, -1);
    bson_append_utf8(definition, "source", -1, set->source, -1);
    bson_append_utf8(definition, "watermark", -1, set->watermark, -1);
    bson_append_utf8(definition, "layout", -1,
                     set->layout == TRUCE_SET_BY_ELEMENT ? "element" : "document", -1);
    if (set->layout == TRUCE_SET_IN_DOCUMENT) {
        char *guards = bson_strdup_printf("%s/%s", set->collection, set->watermark);

        bson_append_utf8(definition, "guards", -1, guards, -1);
        bson_free(guards);
    }
}

/* Two sets that share one watermark field would drop each other's operations: a unique index on
 * `guards` refuses the second. */
static truce_status index_definitions(truce_set *set, bson_error_t *error)
{
    bson_t index = BSON_INITIALIZER, key;
    truce_status status;

    bson_append_document_begin(&index, "key", -1, &key);
    bson_append_int32(&key, "guards", -1, 1);
    bson_append_document_end(&index, &key);
    bson_append_bool(&index, "unique", -1, true);
    bson_append_bool(&index, "sparse", -1, true);
    status = truce__index_ensure(set->store, SET_DEFINITIONS, &index, error);
    bson_destroy(&index);
    return status;
}

/* `kept` has the same fields with the same values, and perhaps more. */
static truce_status compare_definitions(const truce_set *set, const bson_t *wanted,
                                        const bson_t *kept, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(wanted));

    while (truce__fields_next(&fields)) {
        struct value there =
            truce__value_field(truce__value_document(kept), fields.key, fields.key_length);
        char a[120], b[120];

        if (!truce__value_identical(there, fields.value))
            return truce__fail(TRUCE_INVALID, error,
                               "set %s was made with %s %s, and is opened with %s", set->id,
                               fields.key, truce__value_show(there, a, sizeof a),
                               truce__value_show(fields.value, b, sizeof b));
    }
    return TRUCE_OK;
}

static truce_status keep_definition(truce_set *set, bson_error_t *error)
{
    bson_t wanted = BSON_INITIALIZER, kept = BSON_INITIALIZER, filter = BSON_INITIALIZER;
    truce_status status;

    set_append_definition(set, &wanted);
    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    for (int round = 0;; round++) {
        bson_destroy(&kept);
        status = truce_find_one(set->store, SET_DEFINITIONS, &filter, NULL, &kept, error);
        if (status == TRUCE_NOT_FOUND && round == 3)
            status = truce__fail(TRUCE_INVALID, error,
                                 "set %s needs a watermark field of its own: \"%s\" of collection "
                                 "%s belongs to another set",
                                 set->id, set->watermark, set->collection);
        if (status != TRUCE_NOT_FOUND)
            break;
        status = index_definitions(set, error);
        if (status)
            goto out;
        status = truce_insert(set->store, SET_DEFINITIONS, &wanted, NULL, error);
        if (status && status != TRUCE_DUPLICATE && !truce__repeatable(status))
            goto out;
    }
    if (!status)
        status = compare_definitions(set, &wanted, &kept, error);
out:
    bson_destroy(&wanted);
    bson_destroy(&kept);
    bson_destroy(&filter);
    return status;
}

/* With the mutex held: what was seen in collections that may be others now. */
static void set_set_forget(truce_set *set)
{
    truce__sources_free(set->known);
    truce__recorded_free(set->recorded);
    set->known = NULL;
    set->recorded = NULL;
}

truce_status truce__set_ready(truce_set *set, bson_error_t *error)
{
    uint64_t structure = truce__store_structure(set->store) + 1;
    truce_status status;

    if (set->refused) {
        if (error)
            *error = set->refusal;
        return TRUCE_INVALID;
    }
    if (atomic_load_explicit(&set->structure, memory_order_acquire) == structure)
        return TRUCE_OK;
    pthread_mutex_lock(&set->mutex);
    set_set_forget(set);
    status = keep_definition(set, error);
    if (!status)
        status = create_index(set, error);
    if (!status) /* a commit's insert has to know of the unique index */
        truce__memo_forget(set->store,
                           set->layout == TRUCE_SET_BY_ELEMENT ? set->elements : set->collection);
    if (!status)
        atomic_store_explicit(&set->structure, structure, memory_order_release);
    pthread_mutex_unlock(&set->mutex);
    return status;
}

/* ---- the public calls ------------------------------------------------------------------------ */

const char *truce_set_outcome_name(truce_set_outcome outcome)
{
    switch (outcome) {
    case TRUCE_SET_APPLIED:
        return "applied";
    case TRUCE_SET_STALE:
        return "stale";
    case TRUCE_SET_DUPLICATE:
        return "duplicate";
    case TRUCE_SET_QUARANTINED:
        return "quarantined";
    }
    return "unknown";
}

truce_status truce_set_check(truce_set *set, const truce_set_operation *operation,
                             bson_error_t *error)
{
    struct set_operation checked;

    return truce__set_operation_check(set, operation, &checked, error);
}

void truce__set_call_fail(struct set_call *call, size_t number, truce_status status,
                          const bson_error_t *why)
{
    if (call->status)
        return;
    call->status = status;
    call->error = *why;
    if (call->given > 1)
        (void)truce__fail(status, &call->error, "operation %zu: %s", number, why->message);
}

/* Those that cannot be applied, ever, have their answer; the others come first. Returns how many. */
static size_t set_check_all(truce_set *set, const truce_set_operation *given, struct set_call *call)
{
    size_t good = 0;
    bson_error_t why;

    for (size_t i = 0; i < call->count; i++) {
        struct set_operation *operation = &call->operations[good];
        truce_status status = truce__set_operation_check(set, &given[i], operation, &why);

        call->results[i] = (truce_set_result){status, 0};
        operation->call = call;
        operation->number = i;
        good += !status;
        if (status)
            truce__set_call_fail(call, i, status, &why);
    }
    return good;
}

/* What met a document that a commit holds waits here, in its caller's thread. */
static void settle_held(truce_set *set, struct set_call *call)
{
    struct worker worker;

    truce__worker_init(&worker, set->store, 0);
    for (size_t i = 0; i < call->count; i++) {
        const struct set_operation *operation = &call->operations[i];
        truce_set_result *result = &call->results[operation->number];
        bson_error_t why = {0};

        if (result->status || result->outcome != SET_OUTCOME_HELD)
            continue;
        *result = (truce_set_result){TRUCE_OK, 0};
        result->status =
            set->layout == TRUCE_SET_BY_ELEMENT
                ? truce__set_element_apply(set, operation, &worker, &result->outcome, &why)
                : truce__set_apply_one(set, operation, &worker, &result->outcome, &why);
        if (result->status)
            truce__set_call_fail(call, operation->number, result->status, &why);
    }
}

truce_status truce_set_apply(truce_set *set, truce_commit *commit, const truce_set_operation *given,
                             size_t count, truce_set_result *results, bson_error_t *error)
{
    if (count)
        RETURN_IF_NULL(results, error);

    DEADLINE_SCOPE(set->deadline_ms);
    struct set_operation single;
    struct set_call call = {
        .operations = &single, .count = count, .given = count, .results = results};
    bson_error_t why = {0};
    truce_status status;

    if (!count)
        return TRUCE_OK;
    if (count > 1)
        call.operations = bson_malloc(count * sizeof *call.operations);
    call.count = set_check_all(set, given, &call);
    status = commit ? call.status : TRUCE_OK;
    if (!status && call.count)
        status = truce__set_ready(set, &why);
    else if (status)
        why = call.error;
    for (size_t i = 0; status && i < count; i++) /* what is checked is not applied either */
        results[i].status = results[i].status ? results[i].status : status;
    if (!status && commit) {
        status = truce__set_apply_committed(set, commit, call.operations, count, results, &why);
    } else if (!status) {
        if (call.count)
            truce__set_submit(set, &call);
        if (call.held)
            settle_held(set, &call);
        status = call.status;
        why = call.error;
    }
    if (status && error)
        *error = why;
    if (count > 1)
        bson_free(call.operations);
    return status;
}

static truce_status apply_one(truce_set *set, truce_commit *commit, truce_set_operation operation,
                              truce_set_outcome *outcome, bson_error_t *error)
{
    truce_set_result result = {0};
    truce_status status = truce_set_apply(set, commit, &operation, 1, &result, error);

    if (outcome)
        *outcome = result.outcome;
    return status;
}

truce_status truce_set_add(truce_set *set, truce_commit *commit, const bson_t *key,
                           const bson_t *element, int64_t seq, truce_set_outcome *outcome,
                           bson_error_t *error)
{
    return apply_one(set, commit, (truce_set_operation){TRUCE_SET_ADD, key, element, seq, NULL},
                     outcome, error);
}

truce_status truce_set_remove(truce_set *set, truce_commit *commit, const bson_t *key,
                              const bson_t *element, int64_t seq, truce_set_outcome *outcome,
                              bson_error_t *error)
{
    return apply_one(set, commit, (truce_set_operation){TRUCE_SET_REMOVE, key, element, seq, NULL},
                     outcome, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The document of a set without truce's fields, and with numbers. NOT_FOUND: a commit may insert it, or not. */
static truce_status plain_document(const truce_set *set, const bson_t *found, bson_t *document,
                                   bson_error_t *error)
{
    bson_t lists = BSON_INITIALIZER, whole = BSON_INITIALIZER;
    bson_iter_t iter, is_new;

    if (bson_iter_init(&iter, found) && bson_iter_find_descendant(&iter, "_intent.new", &is_new))
        return truce__fail(TRUCE_NOT_FOUND, error, "set %s has nothing under this key", set->id);
    if (truce__set_has_bare(set, found)) {
        truce__set_converted(set, found, &lists);
        truce__set_with_lists(found, &lists, &whole);
        found = &whole;
    }
    truce__document_append_without(found, (const char *const[]){"_rev", "_intent", NULL}, document);
    bson_destroy(&lists);
    bson_destroy(&whole);
    return TRUCE_OK;
}

truce_status truce_set_show(truce_set *set, const bson_t *key, bson_t *document,
                            bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status;
    bson_t found;

    bson_init(document);
    status = set->refused ? truce__fail(TRUCE_INVALID, error, "%s", set->refusal.message)
                          : truce__set_key_check(set, key, error);
    if (status)
        return status;
    if (set->layout == TRUCE_SET_BY_ELEMENT) {
        bson_destroy(document);
        status = truce__set_element_show(set, key, document, error);
    } else {
        status = truce__set_look(set, key, &found, error);
        if (!status)
            status = plain_document(set, &found, document, error);
        bson_destroy(&found);
    }
    truce__names_restore_own(document);
    return status;
}

truce_status truce_set_members(truce_set *set, const bson_t *key, bson_t *members,
                               bson_error_t *error)
{
    RETURN_IF_NULL(members, error);

    bson_t document;
    struct value list;
    truce_status status = truce_set_show(set, key, &document, error);

    bson_init(members);
    if (!status) {
        list = truce__value_field(truce__value_document(&document), set->field, strlen(set->field));
        if (list.type == BSON_TYPE_ARRAY) {
            bson_t borrowed;

            truce__value_bson(list, &borrowed);
            bson_concat(members, &borrowed);
        }
    }
    bson_destroy(&document);
    return status;
}
