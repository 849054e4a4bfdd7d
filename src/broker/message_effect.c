/*
 * Targets. A target compiles its mapping to a list of changes; a message is mapped to such a list.
 * The list is checked before it enters a commit, so a commit fails only because of the store or of
 * the documents in it, such as a merge that conflicts.
 */
#include "broker/message_effect.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "broker/message_template.h"
#include "bson/number.h"
#include "bson/value.h"
#include "patterns/change_list/change_list.h"
#include "patterns/sequence/sequence.h"
#include "patterns/set/set.h"
#include "query/input_check.h"
#include "store/reserved_names.h"
#include "truce/queue.h"
#include "truce/revision.h"
#include "truce/store.h"

#define TARGET_HANDLES_MAX 64
#define TARGET_CHANGES_MAX 100
#define EXACT_DOUBLES      9007199254740992.0 /* 2^53: above it, doubles skip integers. */

enum handle_kind { HANDLE_SET, HANDLE_QUEUE, HANDLE_REVISION };

/* An object of the library that all messages use. */
struct effect_handle {
    enum handle_kind kind;
    char *name;
    /* For HANDLE_SET: the fields of the key, such as "school,student_id", and the field that names
     * an element. */
    char *keys, *element_name;
    union {
        truce_set *set;
        truce_queue *queue;
        truce_revision *revision;
    } of;
};

struct effect_target {
    truce_store *store;
    struct template *template;
    /* The target is the set handles[0], and its messages have numbers, so they need no records. */
    bool is_set;
    struct effect_handle handles[TARGET_HANDLES_MAX];
    size_t count;
    /* The queue and the ledger of the last job and transaction, for the next messages. */
    struct change_list_handles changes;
};

/* ---- the definition of a set ----------------------------------------------------------------- */

/* Opens the set "students.classes" as it is defined in the store. */
static truce_status effect_target_open_set(truce_store *store, const char *name,
                                           struct effect_handle *handle, bson_error_t *error)
{
    const char *dot = strrchr(name, '.');
    struct arena arena = ARENA_INIT;
    truce_set_options options = {0};
    truce_status status;
    char *collection;

    if (!dot || dot == name || !dot[1])
        return truce__fail(TRUCE_INVALID, error,
                           "invalid set \"%.80s\": expected COLLECTION.LIST, for example "
                           "students.classes",
                           name);
    collection = bson_strndup(name, (size_t)(dot - name));
    options.collection = collection;
    options.field = dot + 1;
    status = truce__set_complete(store, &arena, NULL, &options, error);
    if (!status) {
        handle->keys = bson_strdup(options.key);
        handle->element_name = bson_strdup(options.name);
        handle->of.set = truce_set_new(store, &options);
    } else if (status == TRUCE_INVALID) {
        status = truce__fail(TRUCE_NOT_FOUND, error,
                             "the set \"%.200s\" is not defined: `truce set define %s --list %.80s "
                             "--key FIELDS --name FIELD` defines it",
                             name, collection, dot + 1);
    }
    truce__arena_release(&arena);
    bson_free(collection);
    return status;
}

/* ---- handles --------------------------------------------------------------------------------- */

/* Finds the handle of that kind and name, or opens it. The target owns it. Fails with LIMIT after
 * TARGET_HANDLES_MAX handles. */
static truce_status effect_target_handle_of(struct effect_target *target, enum handle_kind kind,
                                            const char *name, struct effect_handle **found,
                                            bson_error_t *error)
{
    struct effect_handle *handle = target->handles + target->count;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < target->count; i++) {
        *found = &target->handles[i];
        if ((*found)->kind == kind && !strcmp((*found)->name, name))
            return TRUCE_OK;
    }
    *found = NULL;
    if (target->count == TARGET_HANDLES_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the messages name more than %d sets, queues, and collections",
                           TARGET_HANDLES_MAX);
    memset(handle, 0, sizeof *handle);
    handle->kind = kind;
    if (kind == HANDLE_QUEUE)
        handle->of.queue = truce_queue_new(target->store, &(truce_queue_options){.queue = name});
    if (kind == HANDLE_REVISION)
        handle->of.revision = truce_revision_new(
            target->store, &(truce_revision_options){.collection = name, .keep = 1});
    if (kind == HANDLE_SET)
        status = effect_target_open_set(target->store, name, handle, error);
    if (status)
        return status;
    handle->name = bson_strdup(name);
    target->count++;
    *found = handle;
    return TRUCE_OK;
}

static void effect_target_handle_free(struct effect_handle *handle)
{
    if (handle->kind == HANDLE_SET)
        truce_set_free(handle->of.set);
    if (handle->kind == HANDLE_QUEUE)
        truce_queue_free(handle->of.queue);
    if (handle->kind == HANDLE_REVISION)
        truce_revision_free(handle->of.revision);
    bson_free(handle->keys);
    bson_free(handle->element_name);
    bson_free(handle->name);
}

/* ---- the mapping ----------------------------------------------------------------------------- */

/* The fields of a change, with the verb as the first one; NULL ends them. */
static const char *const set_fields[] = {"set", "operation", "key", "element",
                                         "seq", "source",    NULL};
static const char *const upsert_fields[] = {"upsert", "with", "version", NULL};
static const char *const merge_fields[] = {"merge", "with", "version", NULL};

static const struct effect_verb_row {
    const char *scheme, *verb;
    /* The default mapping, as name and value pairs; NULL ends it. */
    const char *fields[6];
    /* All fields. NULL: the change list checks them. */
    const char *const *allowed;
} target_verbs[] = {
    {"set",
     "set",
     {"operation", "$body.operation", "seq", "$body.sequence_number", NULL},
     set_fields},
    {"queue", "enqueue", {"with", "$body", NULL}, NULL},
    {"upsert", "upsert", {"with", "$body", NULL}, upsert_fields},
    {"merge", "merge", {"with", "$body.document", "version", "$body.version", NULL}, merge_fields},
    {"post", "post", {"id", "$body.id", "with", "$body.entries", NULL}, NULL},
};

static truce_status effect_refuse_field(const char *key, const char *const *allowed,
                                        bson_error_t *error)
{
    struct nearest_word nearest = {.word = key};
    char hint[NEAREST_WORD_HINT_MAX];

    for (int i = 1; allowed[i]; i++)
        truce__nearest_word_offer(&nearest, allowed[i]);
    return truce__fail(TRUCE_INVALID, error, "unknown field '%.80s' of a change of '%s'%s", key,
                       allowed[0], truce__nearest_word_hint(&nearest, hint));
}

static truce_status effect_check_fields(const bson_t *change, const char *const *allowed,
                                        bson_error_t *error)
{
    bson_iter_t at;

    (void)bson_iter_init(&at, change);
    while (bson_iter_next(&at)) {
        int i = 0;

        while (allowed[i] && strcmp(allowed[i], bson_iter_key(&at)) != 0)
            i++;
        if (!allowed[i])
            return effect_refuse_field(bson_iter_key(&at), allowed, error);
    }
    return TRUCE_OK;
}

/* Checks the names of the fields of a change in a mapping. The values are those of messages, which
 * are checked later. The change may also be {$expr: ...} or {$literal: ...}. */
static truce_status effect_check_names(int number, const bson_t *change, bson_error_t *error)
{
    bson_iter_t first;
    const char *verb =
        bson_iter_init(&first, change) && bson_iter_next(&first) ? bson_iter_key(&first) : "";

    if (*verb == '$' && !bson_iter_next(&first))
        return TRUCE_OK;
    for (size_t i = 0; i < sizeof target_verbs / sizeof *target_verbs; i++)
        if (target_verbs[i].allowed && !strcmp(target_verbs[i].verb, verb))
            return effect_check_fields(change, target_verbs[i].allowed, error);
    return truce__change_list_check_names(number, change, error);
}

/* Checks the changes of the mapping of the target "commit". A change may also be a path, which
 * gives the whole change. */
static truce_status effect_check_list(const bson_t *map, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;
    bson_t change;
    int number = 0;

    (void)bson_iter_init(&at, map);
    while (!status && bson_iter_next(&at)) {
        number++;
        if (!BSON_ITER_HOLDS_DOCUMENT(&at))
            continue;
        truce__value_bson(truce__value_of_iter(&at), &change);
        status = effect_check_names(number, &change, error);
    }
    return status;
}

/* Checks the collection of an upsert or a merge. A message must not write the documents of a queue
 * or of another pattern: the commit of an effect may change them. */
static truce_status effect_check_collection(const char *name, bson_error_t *error)
{
    if (truce__reserved(name))
        return truce__fail(TRUCE_INVALID, error, "the collection \"%s\" is reserved for truce",
                           name);
    return truce__collection_name_check(name, error);
}

/* Appends the default `key` and `element` of a set: {student_id: "$body.student_id"}, {name:
 * "$body.name"}. */
static void effect_target_set_defaults(const bson_t *map, const char *keys, bson_t *change)
{
    char *list = bson_strdup(keys), *save = NULL;
    bson_t key;

    if (!bson_has_field(map, "key")) {
        BSON_APPEND_DOCUMENT_BEGIN(change, "key", &key);
        for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
            char *path = bson_strdup_printf("$body.%s", name);

            BSON_APPEND_UTF8(&key, name, path);
            bson_free(path);
        }
        bson_append_document_end(change, &key);
    }
    if (!bson_has_field(map, "element"))
        BSON_APPEND_UTF8(change, "element", "$body.element");
    bson_free(list);
}

/* Returns whether the consumer takes the numbers: {seq: {$sequence: "NAME"}}. */
static bool effect_target_takes_numbers(const bson_t *map)
{
    bson_iter_t at, inner;

    return bson_iter_init_find(&at, map, "seq") && BSON_ITER_HOLDS_DOCUMENT(&at) &&
           bson_iter_recurse(&at, &inner) && bson_iter_find(&inner, "$sequence");
}

/* Makes {enqueue: "mail", ...map, ...defaults}. */
static truce_status effect_target_make_change(struct effect_target *target,
                                              const struct effect_verb_row *verb, const char *name,
                                              const bson_t *map, bson_t *change,
                                              bson_error_t *error)
{
    struct effect_handle *set;
    bson_t literal;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(change, verb->verb, &literal);
    BSON_APPEND_UTF8(&literal, "$literal", name);
    bson_append_document_end(change, &literal);
    bson_concat(change, map);
    for (int i = 0; verb->fields[i]; i += 2)
        if (!bson_has_field(map, verb->fields[i]))
            BSON_APPEND_UTF8(change, verb->fields[i], verb->fields[i + 1]);
    status = effect_check_names(1, change, error);
    if (status)
        return status;
    if (verb->allowed == upsert_fields || verb->allowed == merge_fields)
        return effect_check_collection(name, error);
    if (verb->allowed != set_fields)
        return TRUCE_OK;
    status = effect_target_handle_of(target, HANDLE_SET, name, &set, error);
    if (!status)
        effect_target_set_defaults(map, set->keys, change);
    return status;
}

static truce_status effect_target_compile_one(struct effect_target *target,
                                              const struct effect_verb_row *verb, const char *name,
                                              const bson_t *map, const char *const *names,
                                              bson_error_t *error)
{
    bson_t list = BSON_INITIALIZER, change;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &change);
    status = effect_target_make_change(target, verb, name, map, &change, error);
    bson_append_document_end(&list, &change);
    if (!status)
        status = truce__template_new(&list, true, names, &target->template, error);
    bson_destroy(&list);
    return status;
}

/* Compiles a target such as "queue:mail" and its mapping into the template of a list of changes. */
static truce_status effect_target_compile(struct effect_target *target, const char *into,
                                          const bson_t *map, bool map_is_array,
                                          const char *const *names, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    const char *colon = strchr(into, ':');
    truce_status status;

    if (!strcmp(into, "commit")) {
        if (!map || !map_is_array)
            return truce__fail(TRUCE_INVALID, error,
                               "the target \"commit\" needs a mapping that is an array of "
                               "changes, for example [{\"insert\": \"orders\", \"with\": "
                               "\"$body\"}]");
        status = effect_check_list(map, error);
        return status ? status : truce__template_new(map, true, names, &target->template, error);
    }
    if (map && map_is_array)
        return truce__fail(TRUCE_INVALID, error,
                           "the mapping of the target \"%.80s\" must be a document, not an "
                           "array: a list of changes is for the target \"commit\"",
                           into);
    for (size_t i = 0; colon && i < sizeof target_verbs / sizeof *target_verbs; i++) {
        const struct effect_verb_row *verb = &target_verbs[i];

        if (strlen(verb->scheme) != (size_t)(colon - into) ||
            strncmp(verb->scheme, into, strlen(verb->scheme)) != 0 || !colon[1])
            continue;
        map = map ? map : &none;
        target->is_set = !strcmp(verb->verb, "set") && !effect_target_takes_numbers(map);
        return effect_target_compile_one(target, verb, colon + 1, map, names, error);
    }
    return truce__fail(TRUCE_INVALID, error,
                       "invalid target \"%.80s\": expected set:COLLECTION.LIST, queue:QUEUE, "
                       "upsert:COLLECTION, merge:COLLECTION, post:BOOK, or commit",
                       into);
}

truce_status truce__effect_target_new(truce_store *store, const char *into, const bson_t *map,
                                      bool map_is_array, const char *const *names,
                                      struct effect_target **made, bson_error_t *error)
{
    struct effect_target *target = bson_malloc0(sizeof *target);
    truce_status status;

    target->store = store;
    *made = target;
    status = effect_target_compile(target, into, map, map_is_array, names, error);
    if (status) {
        truce__effect_target_free(target);
        *made = NULL;
    }
    return status;
}

void truce__effect_target_free(struct effect_target *target)
{
    if (!target)
        return;
    for (size_t i = 0; i < target->count; i++)
        effect_target_handle_free(&target->handles[i]);
    truce__change_list_handles_release(&target->changes);
    truce__template_free(target->template);
    bson_free(target);
}

bool truce__effect_target_is_set(const struct effect_target *target)
{
    return target->is_set;
}

truce_set *truce__effect_target_set(const struct effect_target *target)
{
    return target->handles[0].of.set;
}

/* ---- the changes of a message ---------------------------------------------------------------- */

/* Returns the value of the first field if that field has the name. */
static const char *effect_verb(const bson_t *change, const char *verb)
{
    bson_iter_t at;

    return bson_iter_init(&at, change) && bson_iter_next(&at) &&
                   !strcmp(bson_iter_key(&at), verb) && BSON_ITER_HOLDS_UTF8(&at)
               ? bson_iter_utf8(&at, NULL)
               : NULL;
}

static struct value effect_field(const bson_t *change, const char *name)
{
    return truce__value_field(truce__value_document(change), name, strlen(name));
}

/* Fails with INVALID because a value has the wrong type or content. */
static truce_status effect_refuse(const char *field, struct value value, const char *expected,
                                  bson_error_t *error)
{
    char shown[120];

    if (value.type == VALUE_MISSING)
        return truce__fail(TRUCE_INVALID, error, "the field '%s' of the mapping is missing", field);
    return truce__fail(TRUCE_INVALID, error, "the field '%s' of the mapping is %s, and must be %s",
                       field, truce__value_show(value, shown, sizeof shown), expected);
}

static truce_status effect_read_operation(const bson_t *change, truce_set_operation *operation,
                                          bson_error_t *error)
{
    struct value value = effect_field(change, "operation");
    const char *text = "";
    uint32_t length;

    if (value.type == BSON_TYPE_UTF8)
        text = truce__value_text(value, &length);
    if (!strcmp(text, "insert") || !strcmp(text, "add"))
        operation->verb = TRUCE_SET_ADD;
    else if (!strcmp(text, "delete") || !strcmp(text, "remove"))
        operation->verb = TRUCE_SET_REMOVE;
    else
        return effect_refuse("operation", value, "\"insert\" or \"delete\"", error);
    return TRUCE_OK;
}

/* Finds the sequence from which the consumer takes the number. The name is NULL if the message has
 * the number. */
static truce_status effect_read_sequence(const bson_t *change, const char **name,
                                         bson_error_t *error)
{
    struct value value = effect_field(change, "seq"), text = truce__value_missing();
    uint32_t length = 0;

    *name = NULL;
    if (value.type == BSON_TYPE_DOCUMENT)
        text = truce__value_field(value, "$sequence", strlen("$sequence"));
    if (text.type == VALUE_MISSING)
        return TRUCE_OK;
    if (text.type == BSON_TYPE_UTF8)
        *name = truce__value_text(text, &length);
    return length && strlen(*name) == length
               ? TRUCE_OK
               : effect_refuse("seq.$sequence", text, "the name of a sequence", error);
}

/* Reads the number of the message. If the consumer takes the number from a sequence, *seq is 1, and
 * effect_add_set takes the number from *sequence in the commit. */
static truce_status effect_read_seq(const bson_t *change, int64_t *seq, const char **sequence,
                                    bson_error_t *error)
{
    struct value value = effect_field(change, "seq");
    truce_status status = effect_read_sequence(change, sequence, error);

    *seq = 1;
    if (status || *sequence)
        return status;
    if (value.type == BSON_TYPE_DOUBLE && truce__value_double(value) >= EXACT_DOUBLES)
        return effect_refuse("seq", value,
                             "below 2^53 as a double, which has no exact numbers "
                             "above",
                             error);
    if (!truce__value_is_number(value) || !truce__number_to_int64(value, seq) || *seq < 1)
        return effect_refuse("seq", value, "a whole number from 1 to 2^63 - 1", error);
    return TRUCE_OK;
}

static truce_status effect_read_source(const bson_t *change, const char **source,
                                       bson_error_t *error)
{
    struct value value = effect_field(change, "source");
    uint32_t length = 0;

    *source = NULL;
    if (value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (value.type == BSON_TYPE_UTF8)
        *source = truce__value_text(value, &length);
    if (!length || strlen(*source) != length || length > 120)
        return effect_refuse("source", value, "a string of 1 to 120 bytes", error);
    return TRUCE_OK;
}

/* Reads {set, operation, key, element, seq, source}. *sequence is that of effect_read_seq.
 * `element` is initialized; the result borrows from the change, `key`, and `element`. */
static truce_status effect_read_set(const struct effect_handle *handle, const bson_t *change,
                                    truce_set_operation *operation, bson_t *key, bson_t *element,
                                    const char **sequence, bson_error_t *error)
{
    struct value of_key = effect_field(change, "key");
    struct value of_element = effect_field(change, "element");
    truce_status status = effect_check_fields(change, set_fields, error);

    *operation = (truce_set_operation){.key = key, .element = element};
    *sequence = NULL;
    if (!status)
        status = effect_read_operation(change, operation, error);
    if (!status)
        status = effect_read_seq(change, &operation->seq, sequence, error);
    if (!status)
        status = effect_read_source(change, &operation->source, error);
    if (!status && of_key.type != BSON_TYPE_DOCUMENT)
        status = effect_refuse("key", of_key, "a document", error);
    if (!status && of_element.type == VALUE_MISSING)
        status = effect_refuse("element", of_element, "", error);
    if (status)
        return status;
    truce__value_bson(of_key, key);
    if (of_element.type == BSON_TYPE_DOCUMENT) {
        bson_t borrowed;

        truce__value_bson(of_element, &borrowed);
        bson_concat(element, &borrowed);
    } else {
        truce__value_append(element, handle->element_name, strlen(handle->element_name),
                            of_element);
    }
    return truce_set_check(handle->of.set, operation, error);
}

/* Reads the document `with`, which needs an _id if `with_id`. */
static truce_status effect_read_with(const bson_t *change, bool with_id, bson_t *with,
                                     bson_error_t *error)
{
    struct value value = effect_field(change, "with");

    if (value.type != BSON_TYPE_DOCUMENT)
        return effect_refuse("with", value, "a document", error);
    truce__value_bson(value, with);
    if (with_id && !bson_has_field(with, "_id"))
        return truce__fail(TRUCE_INVALID, error, "the document of the message has no _id");
    return TRUCE_OK;
}

/* Reads the number at a path of a document: a whole number. */
static truce_status effect_read_version(const bson_t *document, const char *path, int64_t *version,
                                        bson_error_t *error)
{
    bson_iter_t at, found;
    struct value value = truce__value_missing();

    if (bson_iter_init(&at, document) && bson_iter_find_descendant(&at, path, &found))
        value = truce__value_of_iter(&found);
    if (!truce__value_is_number(value) || !truce__number_to_int64(value, version))
        return effect_refuse(path, value, "a whole number of 64 bits", error);
    return TRUCE_OK;
}

static truce_status effect_check_upsert(const bson_t *change, bson_error_t *error)
{
    struct value path = effect_field(change, "version");
    bson_t with;
    int64_t version;
    truce_status status = effect_check_fields(change, upsert_fields, error);

    if (!status)
        status = effect_check_collection(effect_verb(change, "upsert"), error);
    if (!status)
        status = effect_read_with(change, true, &with, error);
    if (status || path.type == VALUE_MISSING)
        return status;
    if (path.type != BSON_TYPE_UTF8)
        return effect_refuse("version", path, "the path of the number in the document", error);
    return effect_read_version(&with, truce__field_text(change, "version"), &version, error);
}

static truce_status effect_check_merge(const bson_t *change, bson_error_t *error)
{
    bson_t with;
    int64_t version;
    truce_status status = effect_check_fields(change, merge_fields, error);

    if (!status)
        status = effect_check_collection(effect_verb(change, "merge"), error);
    if (!status)
        status = effect_read_with(change, true, &with, error);
    return status ? status : effect_read_version(change, "version", &version, error);
}

/* ---- making an effect ------------------------------------------------------------------------ */

static void effect_append(bson_t *list, const bson_t *change)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string(bson_count_keys(list), &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT(list, key, change);
}

/* Checks a change. Appends it to `others` if it is not specific to brokers
 * (patterns/change_list). */
static truce_status effect_check_change(struct effect_target *target, const bson_t *change,
                                        bson_t *others, bson_error_t *error)
{
    const char *name = effect_verb(change, "set");
    struct effect_handle *handle;
    truce_set_operation operation;
    bson_t key = BSON_INITIALIZER, element = BSON_INITIALIZER;
    const char *sequence;
    truce_status status;

    if (effect_verb(change, "upsert"))
        return effect_check_upsert(change, error);
    if (effect_verb(change, "merge"))
        return effect_check_merge(change, error);
    if (!name) {
        effect_append(others, change);
        return TRUCE_OK;
    }
    status = effect_target_handle_of(target, HANDLE_SET, name, &handle, error);
    if (!status)
        status = effect_read_set(handle, change, &operation, &key, &element, &sequence, error);
    bson_destroy(&element);
    return status;
}

/* Returns the next change of a list. Fails with INVALID if it is not a document. */
static truce_status effect_next(bson_iter_t *at, bson_t *change, bool *more, bson_error_t *error)
{
    *more = bson_iter_next(at);
    if (!*more)
        return TRUCE_OK;
    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__fail(
            TRUCE_INVALID, error,
            "change %s of the mapping must be a document, for example {\"insert\": \"orders\", "
            "\"with\": \"$body\"}",
            bson_iter_key(at));
    truce__value_bson(truce__value_of_iter(at), change);
    return TRUCE_OK;
}

/* Checks all changes of a message without a commit: those of brokers one by one, and the others as
 * one list of changes. */
static truce_status effect_check(struct effect_target *target, const bson_t *changes,
                                 bson_error_t *error)
{
    bson_t others = BSON_INITIALIZER, change;
    bson_iter_t at;
    bool more = true;
    truce_status status = TRUCE_OK;

    (void)bson_iter_init(&at, changes);
    while (!status && more) {
        status = effect_next(&at, &change, &more, error);
        if (!status && more)
            status = effect_check_change(target, &change, &others, error);
    }
    if (!status && bson_count_keys(changes) > TARGET_CHANGES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "the mapping makes %u changes: at most %d",
                             bson_count_keys(changes), TARGET_CHANGES_MAX);
    if (!status)
        status = truce__change_list_check(&others, NULL, error);
    bson_destroy(&others);
    return status;
}

truce_status truce__effect_make(struct effect_target *target, const bson_t *message,
                                struct arena *arena, struct effect *effect, bson_error_t *error)
{
    const char *sequence;
    bson_t change;
    bson_iter_t at;
    bool more;
    truce_status status =
        truce__template_apply(target->template, message, arena, &effect->changes, error);

    bson_init(&effect->key);
    bson_init(&effect->element);
    if (!status && !target->is_set)
        status = effect_check(target, &effect->changes, error);
    if (!status && target->is_set) {
        (void)bson_iter_init(&at, &effect->changes);
        status = effect_next(&at, &change, &more, error);
        if (!status)
            status = effect_read_set(&target->handles[0], &change, &effect->operation, &effect->key,
                                     &effect->element, &sequence, error);
    }
    if (status)
        truce__effect_release(effect);
    return status;
}

void truce__effect_release(struct effect *effect)
{
    bson_destroy(&effect->changes);
    bson_destroy(&effect->element);
}

/* ---- adding an effect to a commit ------------------------------------------------------------ */

/* Adds {upsert, with, version?} to the commit. Does nothing if the stored version is the same or
 * higher. */
static truce_status effect_add_upsert(const bson_t *change, const char *collection,
                                      truce_commit *commit, bson_error_t *error)
{
    const char *path = truce__field_text(change, "version");
    int64_t given = 0, stored = 0;
    bson_t with, found;
    bson_iter_t id;
    truce_status status = effect_read_with(change, true, &with, error);

    if (status)
        return status;
    (void)bson_iter_init_find(&id, &with, "_id");
    status = truce_commit_read(commit, collection, bson_iter_value(&id), &found, error);
    if (status == TRUCE_NOT_FOUND) {
        bson_destroy(&found);
        return truce_commit_insert(commit, collection, &with, error);
    }
    if (!status && *path)
        status = effect_read_version(&with, path, &given, error);
    /* A stored document without a number is older than every message. */
    if (!status && *path && effect_read_version(&found, path, &stored, NULL))
        stored = INT64_MIN;
    bson_destroy(&found);
    if (status || (*path && given <= stored))
        return status;
    return truce_commit_replace(commit, collection, bson_iter_value(&id), NULL, &with, error);
}

/* Adds {merge, with, version} to the commit. Fails with REFUSED if the merge has a conflict. */
static truce_status effect_add_merge(struct effect_target *target, const bson_t *change,
                                     const char *collection, truce_commit *commit,
                                     bson_error_t *error)
{
    struct effect_handle *handle;
    truce_revision_result result;
    int64_t version = 0;
    bson_t with;
    truce_status status = effect_read_with(change, true, &with, error);

    if (!status)
        status = effect_read_version(change, "version", &version, error);
    if (!status)
        status = effect_target_handle_of(target, HANDLE_REVISION, collection, &handle, error);
    if (status)
        return status;
    status =
        truce_revision_merge(handle->of.revision, commit, &with, version, NULL, &result, error);
    if (!status && result.outcome == TRUCE_REVISION_CONFLICT)
        status = truce__fail(TRUCE_REFUSED, error,
                             "the document of the message was made from version %lld of %.80s, and "
                             "does not merge with version %lld",
                             (long long)version, collection, (long long)result.version);
    truce_revision_result_release(&result);
    return status;
}

/* Adds an operation of a set to the commit, with a number of the sequence if the mapping names
 * one. */
static truce_status effect_add_set(struct effect_target *target, const bson_t *change,
                                   const char *name, truce_commit *commit, bson_error_t *error)
{
    truce_set_operation operation;
    truce_set_result result;
    struct effect_handle *handle;
    bson_t key = BSON_INITIALIZER, element = BSON_INITIALIZER;
    const char *sequence = NULL;
    truce_status status = effect_target_handle_of(target, HANDLE_SET, name, &handle, error);

    if (!status)
        status = effect_read_set(handle, change, &operation, &key, &element, &sequence, error);
    if (!status && sequence)
        status = truce__sequence_take_in(commit, sequence, 1, &operation.seq, error);
    if (!status)
        status = truce_set_apply(handle->of.set, commit, &operation, 1, &result, error);
    bson_destroy(&element);
    return status;
}

static truce_status effect_add_change(struct effect_target *target, const bson_t *change,
                                      bson_t *others, truce_commit *commit, bson_error_t *error)
{
    const char *name = effect_verb(change, "upsert");

    if (name)
        return effect_add_upsert(change, name, commit, error);
    name = effect_verb(change, "merge");
    if (name)
        return effect_add_merge(target, change, name, commit, error);
    name = effect_verb(change, "set");
    if (name)
        return effect_add_set(target, change, name, commit, error);
    effect_append(others, change);
    return TRUCE_OK;
}

truce_status truce__effect_add(struct effect_target *target, const struct effect *effect,
                               truce_commit *commit, bson_error_t *error)
{
    bson_t others = BSON_INITIALIZER, change;
    bson_iter_t at;
    bool more = true;
    truce_status status = TRUCE_OK;

    (void)bson_iter_init(&at, &effect->changes);
    while (!status && more) {
        status = effect_next(&at, &change, &more, error);
        if (!status && more)
            status = effect_add_change(target, &change, &others, commit, error);
    }
    if (!status)
        status = truce__change_list_add(&others, NULL, &target->changes, commit, error);
    bson_destroy(&others);
    return status;
}
