#include "query/diff.h"

#define PATH_BYTES_MAX 4096

struct walk {
    struct diff *diff;
    char path[PATH_BYTES_MAX];
};

static bool plain_name(const char *key, uint32_t length)
{
    return length > 0 && key[0] != '$' && !memchr(key, '.', length);
}

/* Every changed, new or gone field can be named in a path. */
static bool names_are_plain(struct value document)
{
    struct fields fields = truce__fields(document);

    while (truce__fields_next(&fields)) {
        if (!plain_name(fields.key, fields.key_length))
            return false;
    }
    return true;
}

/* The fields that both have stand in the same order, and new ones behind them: what $set and $unset
 * of single fields can bring about. */
static bool same_order(struct value before, struct value after)
{
    struct fields old = truce__fields(before);
    struct fields new = truce__fields(after);
    bool more = truce__fields_next(&new);

    while (truce__fields_next(&old)) {
        if (!truce__value_field(after, old.key, old.key_length).type)
            continue;
        if (!more || new.key_length != old.key_length ||
            memcmp(new.key, old.key, old.key_length) != 0)
            return false;
        more = truce__fields_next(&new);
    }
    for (; more; more = truce__fields_next(&new)) {
        if (truce__value_field(before, new.key, new.key_length).type)
            return false;
    }
    return true;
}

static bool diff_documents(struct walk *walk, size_t length, struct value before,
                           struct value after);

static bool changed_field(struct walk *walk, size_t length, struct value before, struct value after)
{
    if (before.type == BSON_TYPE_DOCUMENT && after.type == BSON_TYPE_DOCUMENT &&
        names_are_plain(before) && names_are_plain(after) && same_order(before, after) &&
        length + 1 < PATH_BYTES_MAX) {
        walk->path[length] = '.';
        return diff_documents(walk, length + 1, before, after);
    }
    truce__value_append(&walk->diff->old, walk->path, length, before);
    truce__value_append(&walk->diff->set, walk->path, length, after);
    return true;
}

static bool extend(struct walk *walk, size_t length, const struct fields *field, size_t *extended)
{
    if (length + field->key_length >= PATH_BYTES_MAX)
        return false;
    memcpy(walk->path + length, field->key, field->key_length);
    *extended = length + field->key_length;
    return true;
}

static bool diff_documents(struct walk *walk, size_t length, struct value before,
                           struct value after)
{
    struct fields fields = truce__fields(before);
    size_t extended;

    while (truce__fields_next(&fields)) {
        struct value now = truce__value_field(after, fields.key, fields.key_length);

        if (truce__value_identical(fields.value, now))
            continue;
        if (!extend(walk, length, &fields, &extended))
            return false;
        if (now.type) {
            if (!changed_field(walk, extended, fields.value, now))
                return false;
            continue;
        }
        truce__value_append(&walk->diff->unset, walk->path, extended, fields.value);
        truce__value_append(&walk->diff->old, walk->path, extended, fields.value);
    }
    fields = truce__fields(after);
    while (truce__fields_next(&fields)) {
        if (truce__value_field(before, fields.key, fields.key_length).type)
            continue;
        if (!extend(walk, length, &fields, &extended))
            return false;
        truce__value_append(&walk->diff->set, walk->path, extended, fields.value);
    }
    return true;
}

bool truce__diff(struct value before, struct value after, struct diff *diff)
{
    struct walk walk = {.diff = diff};

    bson_init(&diff->set);
    bson_init(&diff->unset);
    bson_init(&diff->old);
    if (names_are_plain(before) && names_are_plain(after) && same_order(before, after) &&
        diff_documents(&walk, 0, before, after))
        return true;
    bson_reinit(&diff->set);
    bson_reinit(&diff->unset);
    bson_reinit(&diff->old);
    return false;
}

void truce__diff_release(struct diff *diff)
{
    bson_destroy(&diff->set);
    bson_destroy(&diff->unset);
    bson_destroy(&diff->old);
}
