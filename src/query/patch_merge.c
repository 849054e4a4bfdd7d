/* RFC 7396, both ways; MongoDB's operators; and what "equal" means to a patch. */
#include "query/diff.h"
#include "query/patch.h"

/* ---- equal ------------------------------------------------------------------------------------ */

static bool same_fields(struct value a, struct value b)
{
    struct fields fields = truce__fields(a);
    uint32_t count = 0;

    for (; truce__fields_next(&fields); count++) {
        struct value other = truce__value_field(b, fields.key, fields.key_length);

        if (!other.type || !truce__patch_equal(fields.value, other))
            return false;
    }
    for (fields = truce__fields(b); truce__fields_next(&fields);)
        count--;
    return count == 0;
}

static bool same_elements(struct value a, struct value b)
{
    struct fields one = truce__fields(a), other = truce__fields(b);

    for (;;) {
        bool more = truce__fields_next(&one);

        if (more != truce__fields_next(&other))
            return false;
        if (!more)
            return true;
        if (!truce__patch_equal(one.value, other.value))
            return false;
    }
}

bool truce__patch_equal(struct value a, struct value b)
{
    if (truce__value_is_number(a) && truce__value_is_number(b))
        return truce__value_equal(a, b);
    if (a.type != b.type)
        return false;
    if (a.type == BSON_TYPE_DOCUMENT)
        return same_fields(a, b);
    if (a.type == BSON_TYPE_ARRAY)
        return same_elements(a, b);
    return truce__value_identical(a, b);
}

/* ---- JSON Merge Patch ------------------------------------------------------------------------- */

/* An object of the patch, applied to what stands there (anything but a document counts as {}). */
static void patch_object(struct value target, struct value patch, bson_t *to);

static void patch_field(struct value old, const struct fields *change, bson_t *to)
{
    bson_t inner;

    if (change->value.type == BSON_TYPE_NULL)
        return;
    if (change->value.type != BSON_TYPE_DOCUMENT) {
        truce__value_append(to, change->key, change->key_length, change->value);
        return;
    }
    bson_append_document_begin(to, change->key, (int)change->key_length, &inner);
    patch_object(old, change->value, &inner);
    bson_append_document_end(to, &inner);
}

static void patch_object(struct value target, struct value patch, bson_t *to)
{
    struct fields fields;

    if (target.type == BSON_TYPE_DOCUMENT) {
        fields = truce__fields(target);
        while (truce__fields_next(&fields)) {
            struct fields change = {.key = fields.key, .key_length = fields.key_length};

            change.value = truce__value_field(patch, fields.key, fields.key_length);
            if (change.value.type)
                patch_field(fields.value, &change, to);
            else
                truce__value_append(to, fields.key, fields.key_length, fields.value);
        }
    }
    fields = truce__fields(patch);
    while (truce__fields_next(&fields)) {
        if (target.type != BSON_TYPE_DOCUMENT ||
            !truce__value_field(target, fields.key, fields.key_length).type)
            patch_field(truce__value_missing(), &fields, to);
    }
}

void truce__merge_patch_apply(struct value before, struct value patch, bson_t *after)
{
    bson_init(after);
    patch_object(before, patch, after);
}

/* A null in a new value would be taken for "remove". */
static bool has_null(struct value value)
{
    struct fields fields;

    if (value.type == BSON_TYPE_NULL)
        return true;
    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        if (has_null(fields.value))
            return true;
    }
    return false;
}

static bool diff_objects(struct value before, struct value after, bson_t *patch);

static bool diff_field(const struct fields *old, struct value now, bson_t *patch)
{
    bson_t inner;
    bool good;

    if (!now.type) {
        bson_append_null(patch, old->key, (int)old->key_length);
        return true;
    }
    if (truce__value_identical(old->value, now))
        return true;
    if (old->value.type != BSON_TYPE_DOCUMENT || now.type != BSON_TYPE_DOCUMENT) {
        truce__value_append(patch, old->key, old->key_length, now);
        return !has_null(now);
    }
    bson_append_document_begin(patch, old->key, (int)old->key_length, &inner);
    good = diff_objects(old->value, now, &inner);
    bson_append_document_end(patch, &inner);
    return good;
}

static bool diff_objects(struct value before, struct value after, bson_t *patch)
{
    struct fields fields = truce__fields(before);

    while (truce__fields_next(&fields)) {
        if (!diff_field(&fields, truce__value_field(after, fields.key, fields.key_length), patch))
            return false;
    }
    fields = truce__fields(after);
    while (truce__fields_next(&fields)) {
        if (truce__value_field(before, fields.key, fields.key_length).type)
            continue;
        if (has_null(fields.value))
            return false;
        truce__value_append(patch, fields.key, fields.key_length, fields.value);
    }
    return true;
}

bool truce__merge_patch_diff(struct value before, struct value after, bson_t *patch)
{
    bson_init(patch);
    if (diff_objects(before, after, patch))
        return true;
    bson_reinit(patch);
    return false;
}

/* ---- operators -------------------------------------------------------------------------------- */

void truce__operators_diff(struct value before, struct value after, bson_t *update)
{
    struct diff diff;
    bson_t borrowed;

    bson_init(update);
    if (!truce__diff(before, after, &diff)) {
        truce__value_bson(after, &borrowed);
        bson_concat(update, &borrowed);
    } else {
        if (!bson_empty(&diff.set))
            BSON_APPEND_DOCUMENT(update, "$set", &diff.set);
        if (!bson_empty(&diff.unset)) {
            bson_t unset;

            bson_append_document_begin(update, "$unset", 6, &unset);
            for (struct fields fields = truce__fields(truce__value_document(&diff.unset));
                 truce__fields_next(&fields);)
                bson_append_utf8(&unset, fields.key, (int)fields.key_length, "", 0);
            bson_append_document_end(update, &unset);
        }
    }
    truce__diff_release(&diff);
}
