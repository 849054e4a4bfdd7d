/*
 * The new document, written in one pass over the old one.
 *
 * Applying an update does not build a document in memory: it leaves a list of edits against the old
 * document's bytes, and what no edit names is copied with memcpy. $set of a number in a document of
 * 300 bytes is one edit of 4 bytes.
 *
 *     before   24 00 00 00 | 10 'n' 00 07 00 00 00 | 02 's' 00 ... | 00
 *     edits    ^ length: +9               ^ 4 bytes instead of 4    ^ 9 bytes instead of none
 *     after    2d 00 00 00 | 10 'n' 00 08 00 00 00 | 02 's' 00 ... | 10 'x' 00 01 00 00 00 | 00
 *
 * Invariants
 *   1. Edits never overlap: the tree has no two operators on one path or one above the other, and
 *      the edits of a container's length and end lie outside its elements. Each but those that
 *      append replaces at least one byte.
 *   2. Edits at one position are appended fields of one container, nothing else; they stand in the
 *      order in which they were made, that of the tree.
 *   3. No edit changes nothing: a run without edits left the document as it was.
 */
#include "query/update/update_tree.h"

#include "base/assert.h"
#include "base/limits.h"

void truce__update_edit(struct update_run *run, const uint8_t *at, uint32_t removed,
                        const uint8_t *bytes, uint32_t size)
{
    if (!run->edits) {
        run->edits = run->edits_inline;
        run->edits_room = UPDATE_EDITS_INLINE;
    }
    if (run->edits_count == run->edits_room) {
        uint32_t room = run->edits_room * 2;
        struct update_edit *edits = truce__arena_take(run->context->arena, room * sizeof *edits);

        memcpy(edits, run->edits, run->edits_count * sizeof *edits);
        run->edits = edits;
        run->edits_room = room;
    }
    run->edits[run->edits_count++] = (struct update_edit){at, removed, size, bytes};
    run->inserted += size;
    run->changes++;
}

void truce__update_edit_length(struct update_run *run, struct value container, int64_t delta)
{
    int64_t length = (int64_t)container.size + delta;
    int32_t stored = length > INT32_MAX ? INT32_MAX : (int32_t)length; /* the splice refuses that */

    if (delta)
        truce__update_edit(run, container.data, 4,
                           truce__arena_copy(run->context->arena, &stored, 4), 4);
}

static void insertion_sort(struct update_edit *edits, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct update_edit edit = edits[i];
        uint32_t j = i;

        for (; j > 0 && edits[j - 1].at > edit.at; j--)
            edits[j] = edits[j - 1];
        edits[j] = edit;
    }
}

/* stable, by position; `spare` has room for half of them */
static void merge_sort(struct update_edit *edits, uint32_t count, struct update_edit *spare)
{
    uint32_t half = count / 2;
    uint32_t left = 0, right = half, to = 0;

    if (count <= 16) {
        insertion_sort(edits, count);
        return;
    }
    merge_sort(edits, half, spare);
    merge_sort(edits + half, count - half, spare);
    memcpy(spare, edits, half * sizeof *edits);
    while (left < half && right < count)
        edits[to++] = edits[right].at < spare[left].at ? edits[right++] : spare[left++];
    while (left < half)
        edits[to++] = spare[left++];
}

static void sort_edits(struct update_run *run)
{
    struct update_edit *spare = NULL;

    if (run->edits_count > 16)
        spare = truce__arena_take(run->context->arena, run->edits_count / 2 * sizeof *spare);
    merge_sort(run->edits, run->edits_count, spare);
}

static int64_t size_after(const struct update_run *run, uint32_t size_before)
{
    int64_t size = size_before;

    for (uint32_t i = 0; i < run->edits_count; i++)
        size += (int64_t)run->edits[i].size - run->edits[i].removed;
    return size;
}

truce_status truce__update_splice(struct update_run *run, struct value before, bson_t *after,
                                  bson_error_t *error)
{
    const uint8_t *from = before.data, *end = before.data + before.size;
    int64_t size = size_after(run, before.size);
    uint8_t *to;

    if (size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the document after the update would have %lld bytes, at most %d fit",
                             (long long)size, TRUCE_DOCUMENT_BYTES_MAX);
    sort_edits(run);
    truce_assert(size >= 5);
    to = bson_reserve_buffer(after, (uint32_t)size);
    truce_assert(to);
    for (uint32_t i = 0; i < run->edits_count; i++) {
        const struct update_edit *edit = &run->edits[i];
        size_t kept = (size_t)(edit->at - from);

        truce_assert(edit->at >= from && edit->at + edit->removed <= end);
        memcpy(to, from, kept);
        to += kept;
        if (edit->size)
            memcpy(to, edit->bytes, edit->size);
        to += edit->size;
        from = edit->at + edit->removed;
    }
    truce_assert(to + (end - from) == bson_get_data(after) + size);
    memcpy(to, from, (size_t)(end - from));
    return TRUCE_OK;
}
