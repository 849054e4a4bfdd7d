/* What a copy has to tell: collections, and the first of the differences that were left. */
#include "maintenance/copy.h"

#include <string.h>

#define VALUE_BYTES 1000 /* longer values are not told */

static bool take_note(struct copy *copy, struct copy_notes *notes, bson_t *note)
{
    if (notes->count++ < copy->options.differences_max) {
        notes->items[notes->count - 1] = note;
        return true;
    }
    bson_destroy(note);
    return false;
}

static int64_t kept_notes(const struct copy *copy, const struct copy_notes *notes)
{
    return notes->count < copy->options.differences_max ? notes->count
                                                        : copy->options.differences_max;
}

void truce__copy_notes_clear(struct copy *copy, struct copy_notes *notes)
{
    for (int64_t i = kept_notes(copy, notes); i-- > 0;)
        bson_destroy(notes->items[i]);
    notes->count = 0;
}

static void tell_append_value(bson_t *note, const char *key, struct value value)
{
    if (value.type && value.size <= VALUE_BYTES)
        truce__value_append(note, key, (uint32_t)strlen(key), value);
}

static bson_t *begin_note(const struct copy_part *part, const bson_t *document)
{
    bson_t *note = BCON_NEW("collection", BCON_UTF8(part->collection));

    tell_append_value(note, "id", truce__value_field(truce__value_document(document), "_id", 3));
    return note;
}

/* The first field that `a` has and `b` has not, or has with another value. */
static bool tell_find_field(const bson_t *a, const bson_t *b, struct fields *field,
                            struct value *other)
{
    *field = truce__fields(truce__value_document(a));
    while (truce__fields_next(field)) {
        *other = truce__value_field(truce__value_document(b), field->key, field->key_length);
        if (!other->type || !truce__value_identical(field->value, *other))
            return true;
    }
    return false;
}

static void tell_append_field(bson_t *note, const bson_t *from, const bson_t *to)
{
    struct fields field;
    struct value other;

    if (tell_find_field(from, to, &field, &other)) {
        BSON_APPEND_UTF8(note, "field", field.key);
        tell_append_value(note, "from", field.value);
        tell_append_value(note, "to", other);
    } else if (tell_find_field(to, from, &field, &other)) {
        BSON_APPEND_UTF8(note, "field", field.key);
        tell_append_value(note, "to", field.value);
    } else {
        BSON_APPEND_UTF8(note, "text", "the fields stand in another order");
    }
}

void truce__copy_differs(struct copy *copy, struct copy_part *part, const bson_t *from,
                         const bson_t *to)
{
    bson_t *note;

    part->missing += !to;
    part->extra += !from;
    part->other += from && to;
    if (copy->differences.count >= copy->options.differences_max) {
        copy->differences.count++;
        return;
    }
    note = begin_note(part, from ? from : to);
    BSON_APPEND_UTF8(note, "difference", !to ? "missing" : !from ? "extra" : "other");
    if (from && to)
        tell_append_field(note, from, to);
    (void)take_note(copy, &copy->differences, note);
}

void truce__copy_index_differs(struct copy *copy, const struct copy_part *part, const char *index,
                               const char *text)
{
    (void)take_note(copy, &copy->indexes,
                    BCON_NEW("collection", BCON_UTF8(part->collection), "index", BCON_UTF8(index),
                             "text", BCON_UTF8(text)));
}

void truce__copy_refused(struct copy *copy, const struct copy_part *part, const bson_t *document,
                         const bson_error_t *why)
{
    bson_t *note = begin_note(part, document);

    BSON_APPEND_UTF8(note, "text", why->message);
    (void)take_note(copy, &copy->refusals, note);
}

/* ---- telling --------------------------------------------------------------------------------- */

static struct value tell_field_of(const bson_t *note, const char *name)
{
    return truce__value_field(truce__value_document(note), name, (uint32_t)strlen(name));
}

static bool tell_same_field(const bson_t *a, const bson_t *b, const char *name)
{
    struct value x = tell_field_of(a, name), y = tell_field_of(b, name);

    return x.type && y.type && truce__value_identical(x, y);
}

/* Why the store did not take the document of a difference, if it said so. */
static void tell_append_reason(const struct copy *copy, bson_t *note)
{
    for (int64_t i = 0; i < kept_notes(copy, &copy->refusals); i++) {
        const bson_t *refusal = copy->refusals.items[i];

        if (!tell_same_field(note, refusal, "collection") || !tell_same_field(note, refusal, "id"))
            continue;
        tell_append_value(note, "text", tell_field_of(refusal, "text"));
        return;
    }
}

int64_t truce__copy_different(const struct copy_part *part)
{
    return part->missing + part->other + part->extra;
}

static bool tell_is_same(const struct copy_part *part)
{
    return !truce__copy_different(part) && part->from_sum.high == part->to_sum.high &&
           part->from_sum.low == part->to_sum.low;
}

static void tell_collection(const struct copy *copy, const struct copy_part *part)
{
    char hash[FINGERPRINT_TEXT];
    bson_t *told;

    truce__fingerprint_text(&part->from_sum, hash);
    told = BCON_NEW("collection", BCON_UTF8(part->collection), "documents",
                    BCON_INT64(part->documents), "hash", BCON_UTF8(hash), "indexes",
                    BCON_INT64(part->indexes), "inserted", BCON_INT64(part->inserted), "replaced",
                    BCON_INT64(part->replaced), "removed", BCON_INT64(part->removed), "kept",
                    BCON_INT64(part->kept), "missing", BCON_INT64(part->missing), "other",
                    BCON_INT64(part->other), "extra", BCON_INT64(part->extra), "same",
                    BCON_BOOL(tell_is_same(part)));
    copy->options.collection(told, copy->options.arg);
    bson_destroy(told);
}

void truce__copy_tell(struct copy *copy)
{
    const truce_copy_options *options = &copy->options;

    for (size_t i = 0; options->collection && i < copy->count; i++)
        tell_collection(copy, &copy->parts[i]);
    if (!options->difference)
        return;
    for (int64_t i = 0; i < kept_notes(copy, &copy->differences); i++) {
        tell_append_reason(copy, copy->differences.items[i]);
        options->difference(copy->differences.items[i], options->arg);
    }
    for (int64_t i = 0; i < kept_notes(copy, &copy->indexes); i++)
        options->difference(copy->indexes.items[i], options->arg);
}
