/*
 * Retention: removes the segments that no restore needs (archiver.c, invariants 7 and 8).
 *
 *     ... log base base end log ... base base end log ... now
 *                                   ^ the newest complete base that is older than the period
 *         removed: every segment before `replay` of this base
 *
 * A crash leaves a complete archive, because the oldest segment is removed first.
 */
#include "archive/archive.h"

/* Finds the newest complete base that ended at `old_ms` or before, by the age of the archive.
 * found->sequence is 0 if no base is that old. */
static truce_status retention_find_base(struct target *target, const struct archive_list *list,
                                        int64_t old_ms, struct segment_head *found,
                                        bson_error_t *error)
{
    struct segment *segment = bson_malloc0(sizeof *segment);
    struct buffer bytes = {0};
    truce_status status = TRUCE_OK;

    found->sequence = 0;
    for (size_t i = list->count; i-- && !status && !found->sequence;) {
        if (list->names[i].kind != SEGMENT_END)
            continue;
        status = truce__archive_read(target, &list->names[i], NULL, &bytes, segment, error);
        if (!status && segment->head.age_ms <= old_ms)
            *found = segment->head;
    }
    truce__buffer_release(&bytes);
    bson_free(segment);
    return status;
}

truce_status truce__archive_remove_old(struct target *target, int64_t old_ms, uint64_t *removed,
                                       bson_error_t *error)
{
    struct archive_list list = {0};
    struct segment_head base;
    char name[SEGMENT_NAME_BYTES];
    truce_status status = truce__archive_list(target, &list, error);

    *removed = 0;
    if (!status)
        status = retention_find_base(target, &list, old_ms, &base, error);
    for (size_t i = 0; !status && base.sequence && i < list.count; i++) {
        const struct segment_name *segment = &list.names[i];

        if (segment->generation > base.generation ||
            (segment->generation == base.generation && segment->sequence >= base.base_replay))
            break;
        truce__segment_name(segment, name);
        status = target->calls->remove(target, name, error);
        *removed += !status;
    }
    truce__archive_list_release(&list);
    return status;
}
