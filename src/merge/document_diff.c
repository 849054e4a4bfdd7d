#include "merge/document_diff.h"

#include "bson/key_numbering.h"

/* Documents at a longer path are compared as whole values, not by their fields. */
#define PATH_BYTES_MAX 4096

/* The comparison of two documents. */
struct walk {
    struct arena arena;
    struct diff *diff;
    char path[PATH_BYTES_MAX];
};

static bool merge_diff_plain_name(const char *key, uint32_t length)
{
    return length > 0 && key[0] != '$' && !memchr(key, '.', length);
}

static bool names_are_plain(const struct aligned_side *side)
{
    for (uint32_t i = 0; i < side->count; i++) {
        if (!merge_diff_plain_name(side->fields[i].key, side->fields[i].key_length))
            return false;
    }
    return true;
}

/* Returns whether the common fields keep their order and new fields follow them. $set and $unset of
 * single fields cannot express any other order. */
static bool order_is_kept(const struct aligned *aligned)
{
    const struct aligned_side *after = &aligned->sides[1];
    bool new = false;

    for (uint32_t i = 0; i < after->count; i++) {
        bool old = truce__aligned_has(aligned, 0, after->numbers[i]);

        if (old && new)
            return false;
        new |= !old;
    }
    return aligned->unique && truce__aligned_same_order(aligned, 0, 1);
}

/* Aligns the fields of two documents. Returns false if a path cannot name all of their fields, or
 * if $set and $unset cannot express the new order. */
static bool diff_align_fields(struct walk *walk, struct value before, struct value after,
                              struct aligned *aligned)
{
    const struct value documents[] = {before, after};

    truce__align_fields(&walk->arena, documents, 2, aligned);
    return names_are_plain(&aligned->sides[0]) && names_are_plain(&aligned->sides[1]) &&
           order_is_kept(aligned);
}

static bool merge_patch_diff_documents(struct walk *walk, size_t length,
                                       const struct aligned *aligned);

static bool changed_field(struct walk *walk, size_t length, struct value before, struct value after)
{
    struct aligned aligned;

    if (before.type == BSON_TYPE_DOCUMENT && after.type == BSON_TYPE_DOCUMENT &&
        length + 1 < PATH_BYTES_MAX && diff_align_fields(walk, before, after, &aligned)) {
        walk->path[length] = '.';
        return merge_patch_diff_documents(walk, length + 1, &aligned);
    }
    truce__value_append(&walk->diff->old, walk->path, length, before);
    truce__value_append(&walk->diff->set, walk->path, length, after);
    return true;
}

static bool diff_extend_path(struct walk *walk, size_t length, const struct fields *field,
                             size_t *extended)
{
    if (length + field->key_length >= PATH_BYTES_MAX)
        return false;
    memcpy(walk->path + length, field->key, field->key_length);
    *extended = length + field->key_length;
    return true;
}

/* Appends the differences of two documents, field by field. Returns false if a path cannot express
 * one. */
static bool merge_patch_diff_documents(struct walk *walk, size_t length,
                                       const struct aligned *aligned)
{
    const struct aligned_side *before = &aligned->sides[0], *after = &aligned->sides[1];
    size_t extended;

    for (uint32_t i = 0; i < before->count; i++) {
        const struct fields *field = &before->fields[i];
        struct value now = truce__aligned_value(aligned, 1, before->numbers[i]);

        if (truce__value_identical(field->value, now))
            continue;
        if (!diff_extend_path(walk, length, field, &extended))
            return false;
        if (now.type) {
            if (!changed_field(walk, extended, field->value, now))
                return false;
            continue;
        }
        truce__value_append(&walk->diff->unset, walk->path, extended, field->value);
        truce__value_append(&walk->diff->old, walk->path, extended, field->value);
    }
    for (uint32_t i = 0; i < after->count; i++) {
        if (truce__aligned_has(aligned, 0, after->numbers[i]))
            continue;
        if (!diff_extend_path(walk, length, &after->fields[i], &extended))
            return false;
        truce__value_append(&walk->diff->set, walk->path, extended, after->fields[i].value);
    }
    return true;
}

bool truce__diff(struct value before, struct value after, struct diff *diff)
{
    struct walk walk = {.diff = diff};
    struct aligned aligned;
    bool expressed;

    bson_init(&diff->set);
    bson_init(&diff->unset);
    bson_init(&diff->old);
    expressed = diff_align_fields(&walk, before, after, &aligned) &&
                merge_patch_diff_documents(&walk, 0, &aligned);
    if (!expressed) {
        bson_reinit(&diff->set);
        bson_reinit(&diff->unset);
        bson_reinit(&diff->old);
    }
    truce__arena_release(&walk.arena);
    return expressed;
}

void truce__diff_release(struct diff *diff)
{
    bson_destroy(&diff->set);
    bson_destroy(&diff->unset);
    bson_destroy(&diff->old);
}
