/*
 * Verifies an archive without restoring it: every segment, the chain, and what can be restored.
 *
 * Invariants:
 *  1. Any commit between the reported first and last one can be restored, unless it is in a gap, a
 *     fault names it, or the target loses a segment afterwards.
 *  2. A fault does not end the verification. An error of the target does.
 */
#include <inttypes.h>
#include <string.h>

#include "archive/archive.h"

struct verifying {
    struct target *target;
    void (*fault)(const char *text, void *arg);
    void *arg;
    struct verify_report *report;
    struct buffer bytes;
    struct segment segment;
    struct segment_pages pages;
    /* The name and the hash of the segment before. */
    struct segment_name last;
    uint8_t hash[SHA256_BYTES];
    struct segment_head head;
    /* Whether the segment before is valid. */
    bool chained;
    /* The number of the segment from which on the generation has no fault. */
    uint64_t whole_from;
    /* Whether a base is complete and no fault follows it. */
    bool restorable;
};

static void verify_fault(struct verifying *verifying, const char *text)
{
    char lost[64] = "", line[400];

    verifying->report->faults++;
    if (verifying->restorable)
        snprintf(lost, sizeof lost, ": commits after %" PRIu64 " need a later base",
                 verifying->report->last_commit);
    verifying->restorable = false;
    snprintf(line, sizeof line, "%.300s%s", text, lost);
    if (verifying->fault)
        verifying->fault(line, verifying->arg);
}

/* Reports the segments that are missing before this one. */
static void verify_order(struct verifying *verifying, const struct segment_name *name)
{
    const struct segment_name *last = &verifying->last;
    bool first = !last->generation, again = name->generation != last->generation;
    uint64_t expected = again ? 1 : last->sequence + 1;
    char text[128];

    if (again || name->sequence != expected)
        verifying->whole_from = name->sequence;
    verifying->report->generations += again;
    verifying->restorable = verifying->restorable && !again;
    if (name->sequence == expected)
        return;
    verifying->chained = false;
    /* Retention removes the first segments, so they are not missing. */
    if (first)
        return;
    if (name->sequence < expected)
        snprintf(text, sizeof text, "the segment %" PRIu64 " of generation %u exists twice",
                 name->sequence, name->generation);
    else
        snprintf(text, sizeof text,
                 "the segments %" PRIu64 " to %" PRIu64 " of generation %u are missing", expected,
                 name->sequence - 1, name->generation);
    verify_fault(verifying, text);
}

/* Reports a segment that belongs to another store, or that does not continue a valid segment before
 * it. Bases that began before such a segment do not count. */
static void verify_chain(struct verifying *verifying)
{
    const struct segment_head *head = &verifying->segment.head;
    char name[SEGMENT_NAME_BYTES], text[128];
    bool other = verifying->head.generation &&
                 memcmp(head->store, verifying->head.store, sizeof head->store) != 0;

    if (!other &&
        (!verifying->chained || !memcmp(head->before, verifying->hash, sizeof head->before)))
        return;
    truce__segment_name(&(struct segment_name){head->generation, head->sequence, head->kind}, name);
    snprintf(text, sizeof text, "the segment %s %s", name,
             other ? "belongs to another store" : "does not continue the one before it");
    verify_fault(verifying, text);
    verifying->whole_from = head->sequence;
}

/* Records that commits can be restored after a complete base, and the last such commit. */
static void verify_note(struct verifying *verifying)
{
    const struct segment_head *head = &verifying->segment.head;
    struct verify_report *report = verifying->report;

    if (head->kind == SEGMENT_END && head->base_replay >= verifying->whole_from) {
        report->bases++;
        verifying->restorable = true;
        if (!report->first_ms) {
            report->first_ms = truce__segment_time(head);
            report->first_commit = head->commit;
        }
    }
    if (!verifying->restorable)
        return;
    report->last_commit = head->commit;
    report->last_ms = truce__segment_time(head);
}

/* Verifies one segment and its position in the chain. Reports a damaged segment as a fault and
 * returns OK. Returns any other error of the target. */
static truce_status verify_segment(struct verifying *verifying, const struct segment_name *name,
                                   bson_error_t *error)
{
    truce_status status;
    bson_error_t found;

    verify_order(verifying, name);
    status = truce__archive_read(verifying->target, name, &verifying->pages, &verifying->bytes,
                                 &verifying->segment, &found);
    if (status && status != TRUCE_CORRUPT) {
        if (error)
            *error = found;
        return status;
    }
    verifying->report->segments++;
    verifying->report->bytes += verifying->bytes.size;
    verifying->last = *name;
    if (status) {
        verify_fault(verifying, found.message);
        verifying->chained = false;
        verifying->whole_from = name->sequence + 1;
        return TRUCE_OK;
    }
    verify_chain(verifying);
    verify_note(verifying);
    verifying->chained = true;
    verifying->head = verifying->segment.head;
    memcpy(verifying->hash, verifying->segment.hash, sizeof verifying->hash);
    return TRUCE_OK;
}

truce_status truce__archive_verify(struct target *target,
                                   void (*fault)(const char *text, void *arg), void *arg,
                                   struct verify_report *report, bson_error_t *error)
{
    struct verifying *verifying = bson_malloc0(sizeof *verifying);
    struct archive_list list;
    truce_status status = truce__archive_list(target, &list, error);

    *report = (struct verify_report){0};
    verifying->target = target;
    verifying->fault = fault;
    verifying->arg = arg;
    verifying->report = report;
    for (size_t i = 0; !status && i < list.count; i++)
        status = verify_segment(verifying, &list.names[i], error);
    truce__archive_list_release(&list);
    truce__buffer_release(&verifying->bytes);
    truce__segment_pages_release(&verifying->pages);
    bson_free(verifying);
    return status;
}
