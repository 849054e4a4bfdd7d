/*
 * Ordered sets: the handle, its options, and the definition in the store.
 *
 * A set is two lists in one document, the members and the tombstones (truce/set.h has a picture).
 * The stored entry of a name is its member or its tombstone.
 *
 * Invariants of a document:
 *
 * 1. A name occurs at most once, in at most one of the lists.
 * 2. The stored entry of a name is the operation of the highest rank among those applied. Only a
 *    remove at or below `_wm` may be missing, because it was collected.
 * 3. `_wm` never decreases. An operation at or below it changes nothing.
 * 4. There is one document for each key (a unique index). truce never deletes it, because it holds
 *    `_wm`. If another program deletes the document, older operations are applied again.
 * 5. (The rule of single writes.) A write never changes a document that a commit holds: it treats
 *    that commit as another commit would, and then reads the document again. If a document has a
 *    revision, each change replaces the revision. If it has none, commits compare the document by
 *    value, which is equally safe, because a set never returns to an earlier value. So the state
 *    that a commit read from a set is still stored when the commit takes effect
 *    (models/set_commit.cpp).
 *
 * An operation on a name is decided as follows, in whatever order operations arrive:
 *
 *     rank > stored rank, number > _wm    applied: its entry goes into its list, and the entry
 *                                         of the same name leaves the other list
 *     rank = stored rank                  DUPLICATE, nothing is written
 *     rank < stored rank                  STALE, nothing is written
 *     number <= _wm, no stored entry      DUPLICATE if the number was recorded, otherwise it was
 *                                         declared void before it arrived: QUARANTINED
 *
 * Each application is one atomic update whose guard contains these conditions, or a merge inside
 * the store's own write if the store can do that (`rewrites`; models/set_batch.cpp has both). So a
 * crash leaves it done or not done, and repeating it is harmless. Within a transaction, the first
 * conflict ends the call, because repeating it cannot succeed (store/repeatable_call.h).
 *
 *     set_operation.c          one operation without the store: checks, keys, entries, ranks, order
 *     set_apply.c              the public calls, and batches
 *     set_queue.c              the queue that combines the calls of several threads
 *     set_merge.c              merges winners into the lists of a document; lists without numbers
 *     set_write_form.c         one operation: a pipeline update, or a loop of two guarded ones
 *     set_layout_by_element.c  the layout by element, and its guards
 *     set_commit.c             operations as part of a commit
 *     set_quarantine.c         late operations
 *     set_watermark.c          sources, recorded numbers, void numbers, the watermark
 *     set_tombstones.c         collects tombstones; the archive; the validator; removes a set
 *     set_ranges.c             sets of numbers
 *     set_walk.c               reads documents in order, and writes many at a time
 *
 * Deliberately not done: a set does not order its members. The lists keep the order of arrival.
 */
#include "patterns/set/set.h"

#include "base/assert.h"
#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "commit/metadata_cache.h"
#include "store/store.h"

#define SET_NAME_RULES                                                                             \
    " of 1 to 100 bytes, without \".\" and \",\", and without \"$\" in front; _rev and "           \
    "_intent are reserved"

static bool set_name_is_good(const char *name)
{
    return name[0] && name[0] != '$' && !strpbrk(name, ".,") && strlen(name) <= 100 &&
           strcmp(name, "_rev") != 0 && strcmp(name, "_intent") != 0;
}

static void set_refuse(truce_set *set, const char *what, const char *name, const char *expected)
{
    if (set->refused)
        return;
    set->refused = true;
    (void)truce__fail(TRUCE_INVALID, &set->refusal, "invalid %s \"%.400s\" of the set: expected %s",
                      what, name, expected);
}

static char *take_name(truce_set *set, const char *what, const char *given, const char *otherwise)
{
    char *name = bson_strdup(given ? given : otherwise);

    if (!set_name_is_good(name))
        set_refuse(set, what, name, "a field name" SET_NAME_RULES);
    return name;
}

/* Returns the value of a required option. These names have no defaults, because a default could
 * write into a field of the user. */
static const char *set_must(truce_set *set, const char *option, const char *given)
{
    if (given)
        return given;
    if (!set->refused)
        (void)truce__fail(
            TRUCE_INVALID, &set->refusal,
            "the set's option \"%s\" is missing (required: collection, key, field, and"
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
            set_refuse(set, "key", given, "field names" SET_NAME_RULES);
        if (!at[length])
            return;
        at += length + 1;
    }
    _Static_assert(SET_KEYS_MAX == 4, "the message names the maximum");
    set_refuse(set, "key", given, "at most 4 fields, separated by commas");
}

/* Refuses options that give two fields the same name, or a field a name that truce uses itself. */
static void check_names_differ(truce_set *set)
{
    const char *top[SET_KEYS_MAX + 3] = {set->field, set->deleted, set->watermark};
    const char *inside[] = {set->name, set->seq, set->source};
    static const char *const own[] = {"_id", "_rev", "_intent", "_keys"};

    for (uint32_t i = 0; i < set->keys_count; i++)
        top[3 + i] = set->keys[i];
    for (uint32_t i = 0; i < 3 + set->keys_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (!strcmp(top[i], top[k]))
                set_refuse(
                    set, "field", top[i],
                    "different names for the list, the tombstones, the watermark, and the key");
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
            if (!strcmp(top[i], own[k]))
                set_refuse(set, "list or watermark field", top[i],
                           "a name that truce does not use itself");
        }
    }
    for (uint32_t i = 1; i < 3; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (!strcmp(inside[i], inside[k]))
                set_refuse(set, "field of an element", inside[i],
                           "different names for the name, the number, and the source");
        }
    }
    for (uint32_t i = 0; i < 3 && set->layout == TRUCE_SET_BY_ELEMENT; i++) {
        for (uint32_t k = 0; k < set->keys_count; k++) {
            if (!strcmp(inside[i], set->keys[k]))
                set_refuse(set, "field of an element", inside[i],
                           "another name than a field of the key");
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
    set->by_document = !(store->capabilities & TRUCE_CAN_REWRITE);
    if (options->form == TRUCE_SET_FORM_PIPELINE && set->form != options->form)
        set_refuse(set, "form", "pipeline",
                   "TRUCE_SET_FORM_AUTO or TRUCE_SET_FORM_CLASSIC on this store");
    set->collection = bson_strdup(set_must(set, "collection", options->collection));
    take_keys(set, set_must(set, "key", options->key));
    set->field = take_name(set, "list", set_must(set, "field", options->field), NULL);
    deleted = bson_strdup_printf("deleted_%s", set->field);
    set->deleted = take_name(set, "list of tombstones", options->deleted, deleted);
    set->name =
        take_name(set, "name field of an element", set_must(set, "name", options->name), NULL);
    set->name_length = (uint32_t)strlen(set->name);
    set->seq = take_name(set, "sequence field of an element", options->seq, "seq");
    set->source = take_name(set, "source field of an element", options->source, "src");
    set->watermark = take_name(set, "watermark field", options->watermark, "_wm");
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

/* ---- options from the definition ------------------------------------------------------------- */

/* Returns the fields of the key in a definition, joined by commas. The string is in the arena. */
static const char *definition_keys(const bson_t *definition, struct arena *arena)
{
    struct buffer text = {0};
    bson_iter_t at, key;
    const char *keys;

    if (bson_iter_init_find(&at, definition, "key") && BSON_ITER_HOLDS_ARRAY(&at) &&
        bson_iter_recurse(&at, &key))
        while (bson_iter_next(&key))
            if (BSON_ITER_HOLDS_UTF8(&key)) {
                truce__buffer_append_text(&text, text.size ? "," : "");
                truce__buffer_append_text(&text, bson_iter_utf8(&key, NULL));
            }
    truce__buffer_append_byte(&text, 0);
    keys = truce__arena_copy(arena, text.bytes, text.size);
    truce__buffer_release(&text);
    return keys;
}

static void definition_take(const char *text, struct arena *arena, const char **option)
{
    if (!*option && *text)
        *option = truce__arena_copy(arena, text, strlen(text) + 1);
}

static void definition_complete(const bson_t *definition, const char *field, struct arena *arena,
                                truce_set_options *options)
{
    if (!options->key)
        options->key = definition_keys(definition, arena);
    if (!strcmp(truce__field_text(definition, "layout"), "element"))
        options->layout = TRUCE_SET_BY_ELEMENT;
    definition_take(field, arena, &options->field);
    definition_take(truce__field_text(definition, "name"), arena, &options->name);
    definition_take(truce__field_text(definition, "deleted"), arena, &options->deleted);
    definition_take(truce__field_text(definition, "seq"), arena, &options->seq);
    definition_take(truce__field_text(definition, "source"), arena, &options->source);
    definition_take(truce__field_text(definition, "watermark"), arena, &options->watermark);
}

/* Returns the definitions of the sets of a collection, or only that of `field`. */
static bson_t *definitions_filter(const char *collection, const char *field)
{
    /* "/" is the character after ".", so the range ends after all fields of the collection. */
    char *from = bson_strdup_printf("%s.%s", collection, field ? field : ""),
         *to = bson_strdup_printf("%s/", collection);
    bson_t *filter = field
                         ? BCON_NEW("_id", BCON_UTF8(from))
                         : BCON_NEW("_id", "{", "$gt", BCON_UTF8(from), "$lt", BCON_UTF8(to), "}");

    bson_free(from);
    bson_free(to);
    return filter;
}

/* Finds the definition, and completes the options from it. */
static truce_status definition_find(truce_store *store, struct arena *arena,
                                    truce_set_options *options, bson_error_t *error)
{
    bson_t *filter = definitions_filter(options->collection, options->field);
    truce_set_options found = *options;
    struct buffer names = {0};
    truce_cursor *cursor = NULL;
    const bson_t *definition = NULL;
    int count = 0;
    truce_status status = truce_find(store, SET_DEFINITIONS, filter, NULL, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &definition, error)) && definition) {
        const char *field = truce__field_text(definition, "_id") + strlen(options->collection) + 1;

        /* The definition belongs to another collection, such as "students.old". */
        if (strchr(field, '.'))
            continue;
        truce__buffer_append_text(&names, count ? ", " : "");
        truce__buffer_append_text(&names, field);
        if (!count++)
            definition_complete(definition, field, arena, &found);
    }
    truce_cursor_close(cursor);
    truce__buffer_append_byte(&names, 0);
    if (!status && count > 1)
        status =
            truce__fail(TRUCE_INVALID, error, "%s has several sets; choose one with 'field': %s",
                        options->collection, (const char *)names.bytes);
    if (!status)
        *options = found;
    truce__buffer_release(&names);
    bson_destroy(filter);
    return status;
}

truce_status truce__set_complete(truce_store *store, struct arena *arena, const char *key,
                                 truce_set_options *options, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!options->field || !options->name || (!options->key && !key))
        status = definition_find(store, arena, options, error);
    if (status)
        return status;
    if (!options->key)
        options->key = key;
    if (!options->field)
        return truce__refuse(
            40414, error,
            "%s has no set yet: 'field' is missing, the list in its documents (also needed: %s"
            "'name', the field that names an element)",
            options->collection, options->key ? "" : "'key', the fields of a document's key, and ");
    if (!options->key)
        return truce__refuse(
            40414, error,
            "'key' is missing: the fields that identify a document of %s (the set \"%s.%s\" does "
            "not "
            "exist yet)",
            options->collection, options->collection, options->field);
    if (!options->name)
        return truce__refuse(40414, error,
                             "'name' is missing: the field that identifies an element of %s.%s "
                             "(this set does not exist yet)",
                             options->collection, options->field);
    return TRUCE_OK;
}

/* ---- readiness before the first write -------------------------------------------------------- */

/* How often an index is ensured if the store does not reply. */
#define INDEX_TRIES 5

/* Ensures the index, and repeats this if the store did not reply. Otherwise an operation that was
 * not sent would fail with UNKNOWN, as if it had been. */
static truce_status ensure_index(const truce_set *set, const char *collection, const bson_t *index,
                                 bson_error_t *error)
{
    truce_status status = TRUCE_UNKNOWN;

    for (int attempt = 0; attempt < INDEX_TRIES; attempt++) {
        truce__set_pause(attempt);
        status = truce__index_ensure(set->store, collection, index, error);
        if (!truce__store_repeatable(set->store, status))
            break;
    }
    return status;
}

/* Creates the unique index on the key; in the layout by element, on the key and the name. */
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
        status = ensure_index(set, by_element ? set->elements : set->collection, &index, &why);
    if (status == TRUCE_DUPLICATE)
        status = truce__fail(status, error,
                             "collection \"%s\" has two documents with the same key; set \"%s\" "
                             "needs a unique key: %s",
                             set->collection, set->id, why.message);
    else if (status && error)
        *error = why;
    bson_destroy(&index);
    return status;
}

/* Appends the definition of the set as it is stored. */
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

/* Creates the unique index on `guards`, which refuses a second set with the same watermark field.
 * Two such sets would drop each other's operations. */
static truce_status index_definitions(truce_set *set, bson_error_t *error)
{
    bson_t index = BSON_INITIALIZER, key;
    truce_status status;

    bson_append_document_begin(&index, "key", -1, &key);
    bson_append_int32(&key, "guards", -1, 1);
    bson_append_document_end(&index, &key);
    bson_append_bool(&index, "unique", -1, true);
    bson_append_bool(&index, "sparse", -1, true);
    status = ensure_index(set, SET_DEFINITIONS, &index, error);
    bson_destroy(&index);
    return status;
}

/* Checks that `kept` has the same fields with the same values; it may have more. */
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
                               "set \"%s\" was created with %s %s and cannot be opened with %s",
                               set->id, fields.key, truce__value_show(there, a, sizeof a),
                               truce__value_show(fields.value, b, sizeof b));
    }
    return TRUCE_OK;
}

/* Stores the definition of the set, or compares the stored one with it. */
static truce_status keep_definition(truce_set *set, bson_error_t *error)
{
    bson_t wanted = BSON_INITIALIZER, kept = BSON_INITIALIZER, filter = BSON_INITIALIZER;
    truce_status status;

    set_append_definition(set, &wanted);
    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    for (int attempt = 0;; attempt++) {
        bson_destroy(&kept);
        status = truce_find_one(set->store, SET_DEFINITIONS, &filter, NULL, &kept, error);
        if (status == TRUCE_NOT_FOUND && attempt == 3)
            status =
                truce__fail(TRUCE_INVALID, error,
                            "set \"%s\" needs a watermark field of its own: \"%s\" of collection "
                            "\"%s\" belongs to another set",
                            set->id, set->watermark, set->collection);
        if (status != TRUCE_NOT_FOUND)
            break;
        status = index_definitions(set, error);
        if (status)
            goto out;
        status = truce_insert(set->store, SET_DEFINITIONS, &wanted, NULL, error);
        if (status && status != TRUCE_DUPLICATE && !truce__store_repeatable(set->store, status))
            goto out;
    }
    if (!status)
        status = compare_definitions(set, &wanted, &kept, error);
    if (!status)
        truce__metadata_rely(set->store, SET_DEFINITIONS, &filter);
out:
    bson_destroy(&wanted);
    bson_destroy(&kept);
    bson_destroy(&filter);
    return status;
}

truce_status truce__set_agrees(truce_set *set, bson_error_t *error)
{
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);
    uint64_t structure = status ? 0 : truce__metadata_structure(set->store) + 1;
    bson_t wanted = BSON_INITIALIZER, kept, *filter;

    if (status || atomic_load_explicit(&set->structure, memory_order_acquire) == structure ||
        atomic_load_explicit(&set->agreed, memory_order_acquire) == structure)
        return status;
    filter = BCON_NEW("_id", BCON_UTF8(set->id));
    set_append_definition(set, &wanted);
    status = truce_find_one(set->store, SET_DEFINITIONS, filter, NULL, &kept, error);
    if (!status)
        status = compare_definitions(set, &wanted, &kept, error);
    if (!status)
        atomic_store_explicit(&set->agreed, structure, memory_order_release);
    bson_destroy(&kept);
    bson_destroy(&wanted);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Forgets what the handle saw in collections that may have been replaced. The caller holds the
 * mutex. */
static void set_forget(truce_set *set)
{
    truce__sources_free(set->known);
    truce__recorded_free(set->recorded);
    set->known = NULL;
    set->recorded = NULL;
}

truce_status truce__set_ready(truce_set *set, bson_error_t *error)
{
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);
    uint64_t structure = status ? 0 : truce__metadata_structure(set->store) + 1;

    if (status || atomic_load_explicit(&set->structure, memory_order_acquire) == structure)
        return status;
    pthread_mutex_lock(&set->mutex);
    set_forget(set);
    status = keep_definition(set, error);
    if (!status)
        status = create_index(set, error);
    /* A commit that inserts must know the unique index, so the cached list of indexes is read
     * again. */
    if (!status)
        truce__metadata_forget(set->store, set->layout == TRUCE_SET_BY_ELEMENT ? set->elements
                                                                               : set->collection);
    if (!status)
        atomic_store_explicit(&set->structure, structure, memory_order_release);
    pthread_mutex_unlock(&set->mutex);
    return status;
}
