/* Computes and applies JSON Merge Patch (RFC 7396), computes MongoDB's update operators, and
 * compares values as JSON Patch does. */
#include "base/assert.h"
#include "bson/builder.h"
#include "bson/key_numbering.h"
#include "merge/document_diff.h"
#include "merge/json_patch.h"

/* ---- equal ----------------------------------------------------------------------------------- */

/* Compares fields in any order. If two fields have one name, the first counts. */
static bool merge_same_fields(struct value a, struct value b)
{
    const struct value documents[] = {a, b};
    struct arena arena = ARENA_INIT;
    struct aligned aligned;
    bool same;

    if (truce__value_identical(a, b))
        return true;
    truce__align_fields(&arena, documents, 2, &aligned);
    same = aligned.sides[0].count == aligned.sides[1].count;
    for (uint32_t number = 0; same && number < aligned.names; number++)
        same = truce__patch_equal(truce__aligned_value(&aligned, 0, number),
                                  truce__aligned_value(&aligned, 1, number));
    truce__arena_release(&arena);
    return same;
}

/* Compares arrays element by element. */
static bool merge_same_elements(struct value a, struct value b)
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
        return merge_same_fields(a, b);
    if (a.type == BSON_TYPE_ARRAY)
        return merge_same_elements(a, b);
    return truce__value_identical(a, b);
}

/* ---- JSON Merge Patch ------------------------------------------------------------------------ */

/* Applies an object of the patch to the target. A target that is not a document counts as {}. */
static void patch_object(struct arena *arena, struct value target, struct value patch,
                         struct builder *to);

/* Appends the value of a field after the change, or nothing if the change is null. `old` may be a
 * missing value. */
static void patch_field(struct arena *arena, struct value old, const struct fields *change,
                        struct builder *to)
{
    struct builder_mark mark;

    if (change->value.type == BSON_TYPE_NULL)
        return;
    if (change->value.type != BSON_TYPE_DOCUMENT) {
        truce__builder_append(to, change->key, change->key_length, change->value);
        return;
    }
    mark = truce__builder_open(to, change->key, change->key_length, BSON_TYPE_DOCUMENT);
    patch_object(arena, old, change->value, to);
    truce__builder_close(to, mark);
}

/* Applies a patch to an object: patches its fields in their order, and then adds the new ones. */
static void patch_object(struct arena *arena, struct value target, struct value patch,
                         struct builder *to)
{
    static const uint8_t nothing[] = {5, 0, 0, 0, 0};
    struct value empty = {nothing, sizeof nothing, BSON_TYPE_DOCUMENT};
    const struct value documents[] = {target.type == BSON_TYPE_DOCUMENT ? target : empty, patch};
    const struct aligned_side *old, *new;
    struct aligned aligned;

    truce__align_fields(arena, documents, 2, &aligned);
    old = &aligned.sides[0];
    new = &aligned.sides[1];
    for (uint32_t i = 0; i < old->count; i++) {
        uint32_t position = new->positions[old->numbers[i]];

        if (position == ALIGNED_NONE)
            truce__builder_append(to, old->fields[i].key, old->fields[i].key_length,
                                  old->fields[i].value);
        else
            patch_field(arena, old->fields[i].value, &new->fields[position], to);
    }
    for (uint32_t i = 0; i < new->count; i++) {
        if (!truce__aligned_has(&aligned, 0, new->numbers[i]))
            patch_field(arena, truce__value_missing(), &new->fields[i], to);
    }
}

static void begin_made(struct builder *builder, struct arena *arena)
{
    truce__builder_begin(builder, arena, SIZE_MAX, BSON_TYPE_DOCUMENT);
}

/* Appends the finished value to `made`. The value always fits, because it is not longer than its
 * sources. */
static void end_made(struct builder *builder, bson_t *made)
{
    struct value value;
    bson_t borrowed;
    truce_status status = truce__builder_finish(builder, &value, NULL);

    truce_assert(!status);
    truce__value_bson(value, &borrowed);
    bson_concat(made, &borrowed);
}

void truce__merge_patch_apply(struct value before, struct value patch, bson_t *after)
{
    struct arena arena = ARENA_INIT, made = ARENA_INIT;
    struct builder builder;

    bson_init(after);
    begin_made(&builder, &made);
    patch_object(&arena, before, patch, &builder);
    end_made(&builder, after);
    truce__arena_release(&arena);
    truce__arena_release(&made);
}

/* Returns whether the value has a null, which a merge patch would treat as a removal. */
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

static bool diff_objects(struct arena *arena, struct value before, struct value after,
                         struct builder *patch);

/* Appends the change of a field that `before` has; a missing `now` becomes null. Returns false if
 * no merge patch can express the change. */
static bool diff_field(struct arena *arena, const struct fields *old, struct value now,
                       struct builder *patch)
{
    struct builder_mark mark;
    bool good;

    if (!now.type) {
        truce__builder_append(patch, old->key, old->key_length, truce__value_null());
        return true;
    }
    if (truce__value_identical(old->value, now))
        return true;
    if (old->value.type != BSON_TYPE_DOCUMENT || now.type != BSON_TYPE_DOCUMENT) {
        truce__builder_append(patch, old->key, old->key_length, now);
        return !has_null(now);
    }
    mark = truce__builder_open(patch, old->key, old->key_length, BSON_TYPE_DOCUMENT);
    good = diff_objects(arena, old->value, now, patch);
    truce__builder_close(patch, mark);
    return good;
}

/* Appends the patch between two objects. Returns false if no merge patch can express it, because a
 * new value contains null. */
static bool diff_objects(struct arena *arena, struct value before, struct value after,
                         struct builder *patch)
{
    const struct value documents[] = {before, after};
    const struct aligned_side *old, *new;
    struct aligned aligned;

    truce__align_fields(arena, documents, 2, &aligned);
    old = &aligned.sides[0];
    new = &aligned.sides[1];
    for (uint32_t i = 0; i < old->count; i++) {
        if (!diff_field(arena, &old->fields[i], truce__aligned_value(&aligned, 1, old->numbers[i]),
                        patch))
            return false;
    }
    for (uint32_t i = 0; i < new->count; i++) {
        if (truce__aligned_has(&aligned, 0, new->numbers[i]))
            continue;
        if (has_null(new->fields[i].value))
            return false;
        truce__builder_append(patch, new->fields[i].key, new->fields[i].key_length,
                              new->fields[i].value);
    }
    return true;
}

bool truce__merge_patch_diff(struct value before, struct value after, bson_t *patch)
{
    struct arena arena = ARENA_INIT, made = ARENA_INIT;
    struct builder builder;
    bool good;

    bson_init(patch);
    begin_made(&builder, &made);
    good = diff_objects(&arena, before, after, &builder);
    if (good)
        end_made(&builder, patch);
    truce__arena_release(&arena);
    truce__arena_release(&made);
    return good;
}

/* ---- operators ------------------------------------------------------------------------------- */

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
