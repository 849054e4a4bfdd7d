#include "commit/written.h"

#include <string.h>

/* One change of the list. */
struct part {
    const char *verb, *collection;
    bson_value_t id;
    bson_t with, guard;
    bool has_id, has_with, has_guard;
};

static const struct verb {
    const char *name;
    bool id, with, guard, reads;
} verbs[] = {
    {"insert", false, true, false, false}, {"update", true, true, true, false},
    {"replace", true, true, true, false},  {"remove", true, false, true, false},
    {"require", true, false, true, true},  {"hold", true, false, true, false},
    {"missing", true, false, false, true}, {"change", true, true, false, false},
};

static const struct verb *verb_named(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    }
    return NULL;
}

static bool take_document(const bson_iter_t *iter, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;

    if (!BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    bson_iter_document(iter, &length, &bytes);
    return bson_init_static(document, bytes, length);
}

static truce_status bad_part(int number, const char *what, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "change %d: %s", number, what);
}

static truce_status read_field(int number, const bson_iter_t *iter, struct part *part,
                               bson_error_t *error)
{
    const char *key = bson_iter_key(iter);

    if (!strcmp(key, "id")) {
        part->has_id = true;
        part->id = *bson_iter_value((bson_iter_t *)iter);
    } else if (!strcmp(key, "with")) {
        part->has_with = take_document(iter, &part->with);
        return part->has_with ? TRUCE_OK : bad_part(number, "\"with\" must be a document", error);
    } else if (!strcmp(key, "if")) {
        part->has_guard = take_document(iter, &part->guard);
        return part->has_guard ? TRUCE_OK : bad_part(number, "\"if\" must be a document", error);
    } else if (verb_named(key) && !part->verb && BSON_ITER_HOLDS_UTF8(iter)) {
        part->verb = key;
        part->collection = bson_iter_utf8(iter, NULL);
    } else {
        return truce__fail(
            TRUCE_INVALID, error,
            "change %d: \"%.80s\" is neither a verb with a collection (insert, update, "
            "replace, remove, require, hold, missing, change) nor id, with, if",
            number, key);
    }
    return TRUCE_OK;
}

static truce_status check_part(int number, const struct part *part, bson_error_t *error)
{
    const struct verb *verb = part->verb ? verb_named(part->verb) : NULL;

    if (!verb)
        return bad_part(number,
                        "says nothing to do: {\"update\": \"COLLECTION\", \"id\": ..., \"with\": "
                        "{...}}",
                        error);
    if (verb->id != part->has_id)
        return bad_part(number, verb->id ? "needs an \"id\"" : "takes its _id from \"with\"",
                        error);
    if (verb->with != part->has_with)
        return bad_part(number, verb->with ? "needs \"with\"" : "takes no \"with\"", error);
    if (part->has_guard && !verb->guard)
        return bad_part(number, "takes no \"if\"", error);
    return TRUCE_OK;
}

static truce_status add_part(truce_commit *commit, const struct part *part, const char *place,
                             bson_error_t *error)
{
    const bson_t *guard = part->has_guard ? &part->guard : NULL;

    if (!strcmp(part->verb, "insert"))
        return truce_commit_insert(commit, place, &part->with, error);
    if (!strcmp(part->verb, "update"))
        return truce_commit_update(commit, place, &part->id, guard, &part->with, error);
    if (!strcmp(part->verb, "replace"))
        return truce_commit_replace(commit, place, &part->id, guard, &part->with, error);
    if (!strcmp(part->verb, "remove"))
        return truce_commit_remove(commit, place, &part->id, guard, error);
    if (!strcmp(part->verb, "require"))
        return truce_commit_require(commit, place, &part->id, guard, error);
    if (!strcmp(part->verb, "change"))
        return truce_commit_change(commit, place, &part->id, &part->with, error);
    if (!strcmp(part->verb, "hold"))
        return truce_commit_hold(commit, place, &part->id, guard, error);
    return truce_commit_require_missing(commit, place, &part->id, error);
}

typedef truce_status part_function(int number, const struct part *part, void *arg,
                                   bson_error_t *error);

static truce_status each_part(const bson_t *changes, part_function *function, void *arg,
                              bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter, field;
    int number = 0;

    (void)bson_iter_init(&iter, changes);
    while (!status && bson_iter_next(&iter)) {
        struct part part = {0};

        number++;
        if (!BSON_ITER_HOLDS_DOCUMENT(&iter) || !bson_iter_recurse(&iter, &field))
            return bad_part(number, "must be a document", error);
        while (!status && bson_iter_next(&field))
            status = read_field(number, &field, &part, error);
        if (!status)
            status = function(number, &part, arg, error);
    }
    return status;
}

static truce_status check_one(int number, const struct part *part, void *arg, bson_error_t *error)
{
    (void)arg;
    return check_part(number, part, error);
}

truce_status truce__written_check(const bson_t *changes, bson_error_t *error)
{
    return each_part(changes, check_one, NULL, error);
}

struct adding {
    const struct written_places *places;
    truce_commit *commit;
};

static truce_status add_one(int number, const struct part *part, void *arg, bson_error_t *error)
{
    const struct adding *adding = arg;
    const char *place = part->collection;
    truce_status status = TRUCE_OK;

    (void)number;
    if (adding->places)
        status = adding->places->place(adding->places->arg, part->collection,
                                       verb_named(part->verb)->reads, &place, error);
    return status ? status : add_part(adding->commit, part, place, error);
}

truce_status truce__written_add(const bson_t *changes, const struct written_places *places,
                                truce_commit *commit, bson_error_t *error)
{
    struct adding adding = {places, commit};

    return each_part(changes, add_one, &adding, error);
}
