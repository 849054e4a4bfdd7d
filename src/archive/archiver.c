/*
 * The archiver: copies a store to a target while the store is in use.
 *
 * The terms:
 *
 *     log          SQLite's write-ahead log: frames, each of which has a page as a commit wrote it.
 *                  A checkpoint moves the frames into the file. When all are moved, the next commit
 *                  may restart the log: it begins with new salts, and overwrites the old frames
 *     position     a point in the log: its salts, a number of frames, and the running checksum of
 *                  the last of them
 *     segment      a numbered file of the target. It has frames of the log, pages of a base, or the
 *                  end of a base
 *     head         the first part of a segment: the state of the archive after this segment. An
 *                  archiver has the head of the last segment in memory and continues from it
 *     generation   segments with the frames of the log without a gap
 *     gap          commits between two generations, which the archive does not have
 *     base         a copy of the pages of the file, from which a restore begins
 *     replay       the number of a segment. All frames before it are in the file. A restore replays
 *                  the segments of the log from the `replay` of its base on
 *
 * The archiver is a process, or a thread. It has the store open, so no other process removes the
 * log. It also has a read transaction, which pins the log, and a descriptor of the log. It repeats
 * one step:
 *
 *     1. begin a second read transaction; it ends at a commit, the new position
 *     2. sync the log, so that the archive gets nothing that a power cut could undo
 *     3. read the frames from the old position to the new one, and compare their checksums
 *     4. put them into segments of the target
 *     5. end the first read transaction, and publish the new position (log_archive.c)
 *
 * Between these steps it copies a base, a segment at a time: the pages of the file, as checkpoints
 * have left them. The copy is not of one snapshot, because the file changes during the copy. The
 * log repairs it. All frames before `replay` were in the file when the base began, so a page that
 * changed during the copy has a frame in that segment or a later one. After the last page, the
 * archiver archives the log up to a new position and writes a segment of the kind "end". The base
 * is then complete.
 *
 *     ... log log base log base base log end log log log ...
 *         ^ replay                       ^ every commit from here on can be restored
 *
 * Invariants:
 *  1. The frames of a generation's segments are the frames of the log, in their order, without a
 *     gap. SQLite guarantees this while a read transaction is open. While the transaction uses
 *     frames of the log, no commit restarts the log. If a checkpoint has moved all frames into the
 *     file, the transaction uses none, and one commit may restart the log. Until the transaction
 *     ends, no checkpoint moves frames of the restarted log, so no second restart can overwrite
 *     frames that are not archived. The first transaction ends after the second has begun and
 *     everything up to it is in the target.
 *  2. After a restart, the last segment is continued only if the log still has the frame at its
 *     position, with the same running checksum. Otherwise a new generation begins, with a new base.
 *  3. Only durable frames are archived.
 *  4. A segment is put once, under the next number. If the target has another segment of this
 *     number, another archiver uses the target, and this one ends. The archiver also ends if
 *     the target has a later segment, for which it checks from time to time. Another machine may
 *     archive a copy of the store, which has the same id.
 *  5. The head that the archiver has in memory changes only after the target has the segment.
 *  6. When a base begins, every frame before its `replay` is in the file. Its end has a position
 *     that was read after its last page was copied.
 *  7. Retention (archive_retention.c) removes only segments before `replay` of a complete base that
 *     is older than the period, in their order.
 *  8. Retention does not read the wall clock, which can be set. Each segment has the age of the
 *     archive, which is a sum of monotonic times. The time while an archiver runs counts. So does
 *     the time between the last segment and the next archiver, if both are of the same boot. The
 *     age is therefore never too large, and it is too small after a restart of the machine. While
 *     nothing is committed, a segment without frames notes the age from time to time.
 *  9. A generation is continued only if the target has all segments from the `replay` of its last
 *     base on. If one of them is missing, no later commit of the generation can be restored.
 *
 * A crash between any two steps leaves complete segments. The next archiver continues after the
 * last one, also within a base.
 *
 * After a step, the threads that wait for the archive (archive_sync.h) get the number of the last
 * commit that was written when the step began. Before the first base of the generation is complete,
 * they get no number.
 *
 * If the target fails, the archiver repeats the call, and the log grows. If the log exceeds the
 * limit, the archiver ends its read transaction. After the log was restarted, the archiver begins a
 * new generation.
 */
#include <inttypes.h>
#include <string.h>

#include "archive/archive.h"
#include "archive/unarchived_commit_times.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/log_archive.h"

/* The milliseconds for which opening a connection waits for other processes. */
#define PATIENCE_MS 30000
/* The number of attempts to begin a snapshot whose position in the log is known. */
#define BEGIN_TRIES 10000
/* The number of attempts to read a page, because a checkpoint may be writing it. */
#define PAGE_TRIES 400
/* The milliseconds of the first and of the longest pause after a failed call. Each pause is twice
 * the one before it. */
#define RETRY_MS     100
#define RETRY_MS_MAX 5000
/* The number of pages in the segments of the log, 64 MB, after which a new base may begin. They
 * must also be as large as the last base. */
#define BASE_LOG_PAGES 16384
/* The milliseconds between two searches for segments that are too old, and between two records of
 * the age. */
#define REMOVE_MS INT64_C(3600000)
/* The archiver ends after this number of consecutive gaps. */
#define GAPS_MAX 5

struct archiver {
    const struct archive_options *options;
    const uint8_t *store;
    struct target *target;
    struct engine *engine;
    struct lock *lock;
    /* The claim of the archive (write_lock.h). */
    int claim;
    /* Two connections, and the number of the one with the read transaction that pins the log, or
     * -1. The position of that snapshot is `held_position`. */
    struct kv *kv[2];
    int held;
    struct kv_log_position held_position;
    struct kv_log *log;
    struct commit_times *times;
    /* The head of the last segment, and the hash of that segment. */
    struct segment_head head;
    uint8_t hash[SHA256_BYTES];
    /* Whether the head continues the log. */
    bool continues;
    /* The number of a segment that the last base needs and the target does not have, or 0 if none
     * is missing. */
    uint64_t missing;
    /* Whether the limit was exceeded, so that the log with the salts `gave_up_salts` is not
     * archived any further. */
    bool gave_up;
    uint64_t gave_up_salts;
    /* Whether all pages of the base were read, so that only its end is missing. */
    bool base_read;
    /* The number of consecutive gaps. */
    int gaps;
    /* The monotonic time in nanoseconds since which calls to the target fail, or 0. */
    int64_t failing_since_ns;
    /* The next pause after a failure in milliseconds. */
    int retry_ms;
    /* The monotonic time of the last search for segments that are too old, in milliseconds. */
    int64_t removed_ms;
    /* The monotonic time in nanoseconds of the last check for another archiver. */
    int64_t checked_ns;
    /* The age of the archive when this archiver began, and the monotonic time of that beginning,
     * both in milliseconds. */
    int64_t found_age_ms, found_ms;
    /* The milliseconds that the last successful put took. */
    unsigned call_ms;
    /* The value of truce__archive_calls when the current work began. */
    unsigned calls;
    /* The number of the last commit that was written when the last step began (durable.h). */
    uint64_t durable;
    /* `target_failed`: the target has caused the last error. `gap`: the log does not continue the
     * archive. */
    bool target_failed, gap;
    /* Whether `segment` and `bytes` have a segment whose put has no known outcome yet. */
    bool pending;
    struct segment segment;
    struct segment_pages pages;
    struct buffer bytes;
};

static void archiver_report(struct archiver *archiver, enum archive_event event, const char *text)
{
    if (archiver->options->event)
        archiver->options->event(event, &archiver->head, text, archiver->options->arg);
}

static bool archiver_is_stopping(const struct archiver *archiver)
{
    return archiver->options->stop && atomic_load(archiver->options->stop);
}

/* ---- the age of the archive ----------------------------------------------------------------- */

static int64_t archiver_now_ms(void)
{
    return truce__clock_monotonic_ns() / 1000000;
}

/* Computes the age of the archive from the age in its last segment. */
static void archiver_find_age(struct archiver *archiver)
{
    const struct segment_head *head = &archiver->head;
    const char *clock = truce__clock_name();

    archiver->found_ms = archiver_now_ms();
    archiver->found_age_ms = head->age_ms;
    /* Invariant 8: a virtual machine can go back to an earlier state of the same boot. */
    if (clock && !strncmp(clock, head->clock, sizeof head->clock) &&
        archiver->found_ms > head->clock_ms)
        archiver->found_age_ms += archiver->found_ms - head->clock_ms;
}

static int64_t archiver_age_ms(const struct archiver *archiver)
{
    return archiver->found_age_ms + archiver_now_ms() - archiver->found_ms;
}

static void archiver_note_age(const struct archiver *archiver, struct segment_head *head)
{
    const char *clock = truce__clock_name();

    head->age_ms = archiver_age_ms(archiver);
    head->clock_ms = archiver_now_ms();
    memset(head->clock, 0, sizeof head->clock);
    snprintf(head->clock, sizeof head->clock, "%s", clock ? clock : "");
}

/* ---- segments ------------------------------------------------------------------------------- */

/* Accepts the segment that the target already has under this name, if it has the same bytes: an
 * earlier put of it may have had an unknown outcome. Fails with CONFLICT if it has other bytes. */
static truce_status check_same(struct archiver *archiver, const char *name, bson_error_t *error)
{
    struct buffer found = {0};
    truce_status status =
        archiver->target->calls->get(archiver->target, name, SEGMENT_BYTES_MAX + 1, &found, error);
    bool same = !status && found.size == archiver->bytes.size &&
                !memcmp(found.bytes, archiver->bytes.bytes, found.size);

    truce__buffer_release(&found);
    if (status || same)
        return status;
    return truce__fail(
        TRUCE_CONFLICT, error,
        "\"%s\" has another segment %s: another archiver writes to this archive; end "
        "it, or use another target",
        archiver->target->name, name);
}

/* If the target is another directory now, checks that it has the last segment. A foreign archive
 * would be damaged otherwise, and no restore would find the commits from here on. */
static truce_status archiver_check_target(struct archiver *archiver, bson_error_t *error)
{
    const struct segment_name last = {archiver->head.generation, archiver->head.sequence,
                                      archiver->head.kind};
    struct segment *segment;
    struct buffer bytes = {0};
    char name[SEGMENT_NAME_BYTES];
    truce_status status = TRUCE_OK;
    bool same;

    if (!archiver->target->renewed)
        return TRUCE_OK;
    if (last.sequence) {
        segment = bson_malloc(sizeof *segment);
        status = truce__archive_read(archiver->target, &last, NULL, &bytes, segment, error);
        same = !status && !memcmp(segment->hash, archiver->hash, sizeof segment->hash);
        bson_free(segment);
        truce__buffer_release(&bytes);
        if (status && status != TRUCE_CORRUPT)
            return status;
        truce__segment_name(&last, name);
        if (!same)
            return truce__fail(TRUCE_CORRUPT, error,
                               "\"%s\" is another directory now, without the segment %s of this "
                               "archive: start the archiver again to begin a new archive in it",
                               archiver->target->name, name);
    }
    archiver->target->renewed = false;
    return TRUCE_OK;
}

/* Puts the pending segment. After a failure the segment stays pending, because the target may have
 * stored it: the next put has the same bytes. */
static truce_status put_pending(struct archiver *archiver, bson_error_t *error)
{
    const struct segment_head *head = &archiver->segment.head;
    int64_t began_ns = truce__clock_monotonic_ns();
    char name[SEGMENT_NAME_BYTES];
    truce_status status;
    int tries = 0;

    truce__segment_name(&(struct segment_name){head->generation, head->sequence, head->kind}, name);
    do { /* a put that finds another directory writes nothing */
        status = archiver_check_target(archiver, error);
        if (!status)
            status = archiver->target->calls->put(archiver->target, name, archiver->bytes.bytes,
                                                  archiver->bytes.size, error);
    } while (status == TRUCE_IO && archiver->target->renewed && !tries++);
    if (status == TRUCE_DUPLICATE)
        status = check_same(archiver, name, error);
    archiver->target_failed = status == TRUCE_IO;
    if (status)
        return status;
    archiver->pending = false;
    archiver->call_ms = (unsigned)((truce__clock_monotonic_ns() - began_ns) / 1000000);
    archiver->head = *head;
    memcpy(archiver->hash, archiver->segment.hash, sizeof archiver->hash);
    if (head->kind == SEGMENT_END) {
        archiver->base_read = false;
        archiver_report(archiver, ARCHIVE_BASE, NULL);
    }
    return TRUCE_OK;
}

/* Puts the segment whose head, entries, and pages are prepared. */
static truce_status archiver_put(struct archiver *archiver, bson_error_t *error)
{
    struct segment_head *head = &archiver->segment.head;

    truce_assert(!archiver->pending);
    head->sequence = archiver->head.sequence + 1;
    memcpy(head->before, archiver->hash, sizeof head->before);
    head->made_ms = truce__clock_wall_ms();
    archiver_note_age(archiver, head);
    truce__segment_encode(&archiver->segment, &archiver->pages, &archiver->bytes);
    archiver->pending = true;
    return put_pending(archiver, error);
}

/* Begins a segment that follows the last one. */
static void archiver_prepare(struct archiver *archiver, enum segment_kind kind)
{
    archiver->segment.head = archiver->head;
    archiver->segment.head.kind = kind;
    archiver->segment.head.entries = 0;
    truce__segment_pages_begin(&archiver->pages);
}

/* ---- the log -------------------------------------------------------------------------------- */

/* Begins a snapshot whose position in the log is known. */
static truce_status begin_at_position(const struct archiver *archiver, struct kv *kv,
                                      struct kv_log_position *position, uint32_t *moved,
                                      bson_error_t *error)
{
    truce_status status;
    uint32_t version;

    for (int i = 0; i < BEGIN_TRIES; i++) {
        status = truce__kv_snapshot_begin(kv, &version, error);
        if (status)
            return status;
        if (truce__kv_snapshot(kv)->known) {
            truce__kv_snapshot_position(kv, position, moved);
            return TRUCE_OK;
        }
        truce__kv_snapshot_end(kv);
    }
    return truce__fail(TRUCE_LOCKED, error,
                       "\"%s\" was committed to during every attempt to read the end of its log",
                       archiver->engine->path);
}

/* Sets the time of each commit of the segment. If a time is unknown, the next known time is used,
 * because no later commit may have an earlier time. */
static void note_times(struct archiver *archiver, uint32_t first, int64_t seen_ms)
{
    struct segment *segment = &archiver->segment;
    /* The last frame of the previous commit. */
    uint32_t before = first - 1;
    size_t count, at = 0;
    const struct commit_time *times =
        truce__commit_times_after(archiver->times, segment->head.position.salts, before, &count);

    for (uint32_t i = 0; i < segment->head.entries; i++) {
        bool known = false;

        if (!segment->entries[i].pages_after)
            continue;
        /* Uses the last time with a frame of this commit, because a commit before it may have
         * failed. */
        for (; at < count && times[at].frame <= first + i; at++) {
            known = times[at].frame > before;
            segment->entries[i].time_ms = times[at].time_ms;
        }
        if (!known)
            segment->entries[i].time_ms = at < count ? times[at].time_ms : seen_ms;
        before = first + i;
        if (segment->entries[i].time_ms > segment->head.latest_ms)
            segment->head.latest_ms = segment->entries[i].time_ms;
    }
    truce__commit_times_release(archiver->times);
}

/* Archives the next frames, up to the frame `last` of the log. */
static truce_status ship_segment(struct archiver *archiver, uint32_t last, int64_t seen_ms,
                                 bson_error_t *error)
{
    struct segment *segment = &archiver->segment;
    struct segment_head *head = &segment->head;
    uint32_t first = archiver->head.position.frames + 1;
    struct kv_log_frame frame;
    truce_status status = TRUCE_OK;

    archiver_prepare(archiver, SEGMENT_LOG);
    if (first == 1)
        head->replay = head->sequence + 1;
    while (!status && head->position.frames < last &&
           !truce__segment_is_full(segment, &archiver->pages)) {
        status = truce__kv_log_next(archiver->log, &head->position, last, &frame, error);
        if (status)
            break;
        truce__segment_add(segment, &archiver->pages, frame.page, frame.bytes, frame.pages_after);
        head->commit += frame.pages_after != 0;
    }
    archiver->gap = status == TRUCE_CORRUPT;
    if (status)
        return status;
    head->log_pages += archiver->pages.data.size / SEGMENT_PAGE_BYTES + 1;
    note_times(archiver, first, seen_ms);
    return archiver_put(archiver, error);
}

static truce_status archiver_gap(struct archiver *archiver, bson_error_t *error)
{
    archiver->gap = true;
    return truce__fail(TRUCE_CORRUPT, error,
                       "the log does not continue the archive, which needs a new generation");
}

static bool position_equal(const struct kv_log_position *a, const struct kv_log_position *b)
{
    return a->salts == b->salts && a->frames == b->frames && a->sum[0] == b->sum[0] &&
           a->sum[1] == b->sum[1];
}

/* Finds the position of the next frame if the log has begun again since the last step. A commit
 * first begins the log in its index, then writes its header, and then its frames. */
static truce_status follow_log(struct archiver *archiver, const struct kv_log_position *to,
                               bson_error_t *error)
{
    struct kv_log_position *position = &archiver->head.position, start;
    truce_status status = TRUCE_OK;

    if (position->salts != to->salts) {
        if (archiver->held < 0 || !position_equal(position, &archiver->held_position))
            return archiver_gap(archiver, error);
        *position = (struct kv_log_position){.salts = to->salts};
    }
    if (!to->frames)
        return TRUCE_OK;
    status = truce__kv_log_start(archiver->log, &start, error);
    if (!status && start.salts != to->salts)
        status = archiver_gap(archiver, error);
    if (!status && !position->frames)
        *position = start;
    return status;
}

/* Archives the log up to a position at which a commit ends. Fails with CORRUPT if the log does not
 * continue what is archived. */
static truce_status ship_log(struct archiver *archiver, const struct kv_log_position *to,
                             int64_t seen_ms, bson_error_t *error)
{
    struct kv_log_position *position = &archiver->head.position;
    truce_status status = TRUCE_OK;

    if (!position_equal(position, to))
        status = follow_log(archiver, to, error);
    if (status || !to->frames)
        return status;
    while (!status && position->frames < to->frames)
        status = ship_segment(archiver, to->frames, seen_ms, error);
    if (!status && !position_equal(position, to))
        status = archiver_gap(archiver, error);
    return status;
}

/* Returns whether the log still has the frame at the position of the last segment (invariant 2).
 * Returns false for an empty log, which cannot be compared. */
static bool log_has_position(struct archiver *archiver, const struct kv_log_position *to)
{
    struct kv_log_position position = archiver->head.position, start;
    struct kv_log_frame frame;

    if (!position.frames || position.salts != to->salts || position.frames > to->frames)
        return false;
    if (position.frames == to->frames)
        return position_equal(&position, to);
    return !truce__kv_log_start(archiver->log, &start, NULL) && start.salts == to->salts &&
           !truce__kv_log_next(archiver->log, &position, to->frames, &frame, NULL);
}

/* Begins a generation at a snapshot. Its first segment begins after the snapshot if all frames are
 * in the file, and otherwise at the first frame of the log. */
static truce_status begin_generation(struct archiver *archiver, const struct kv_log_position *to,
                                     uint32_t moved, bson_error_t *error)
{
    struct segment_head *head = &archiver->head;
    truce_status status = TRUCE_OK;
    char why[80];

    head->generation++;
    head->sequence = 0;
    /* The base counts as a commit, because it may contain commits that the archive does not
     * have. */
    head->commit++;
    head->replay = head->base_replay = 1;
    head->latest_ms = 0;
    head->base_pages = head->log_pages = 0;
    head->base++;
    head->base_next = 1;
    archiver->base_read = false;
    if (moved == to->frames)
        head->position = *to;
    else
        status = truce__kv_log_start(archiver->log, &head->position, error);
    archiver->continues = !status;
    if (archiver->missing)
        snprintf(why, sizeof why, "segment %" PRIu64 " of generation %u is missing",
                 archiver->missing, head->generation - 1);
    if (!status)
        archiver_report(archiver, ARCHIVE_GENERATION, archiver->missing ? why : NULL);
    archiver->missing = 0;
    return status;
}

/* Continues the last generation if the log continues it (invariants 2 and 9), otherwise begins a
 * new one. After a gap, or after the limit was exceeded, always begins a new one. */
static truce_status archiver_continue(struct archiver *archiver, const struct kv_log_position *to,
                                      uint32_t moved, bson_error_t *error)
{
    bool same = archiver->head.sequence && !archiver->gave_up && !archiver->gaps &&
                log_has_position(archiver, to);

    /* Invariant 9. */
    same = same && !archiver->missing;
    if (same) {
        archiver->continues = true;
        archiver_report(archiver, ARCHIVE_CONTINUES, NULL);
        return TRUCE_OK;
    }
    archiver->gave_up = false;
    return begin_generation(archiver, to, moved, error);
}

static uint64_t unarchived_bytes(const struct archiver *archiver, const struct kv_log_position *to)
{
    const struct kv_log_position *position = &archiver->head.position;
    uint32_t archived =
        archiver->continues && position->salts == to->salts && position->frames <= to->frames
            ? position->frames
            : 0;

    return (uint64_t)(to->frames - archived) * SEGMENT_PAGE_BYTES;
}

static void archiver_unpin(struct archiver *archiver)
{
    if (archiver->held >= 0)
        truce__kv_snapshot_end(archiver->kv[archiver->held]);
    archiver->held = -1;
    archiver->continues = false;
    truce__archive_publish(archiver->lock, NULL);
}

/* Ends a step in which the target did not store everything. The log after the old position stays
 * pinned up to the limit. Above the limit, the archiver no longer archives this log, and reports
 * that. */
static void step_failed(struct archiver *archiver, const struct kv_log_position *to)
{
    uint64_t behind = unarchived_bytes(archiver, to);
    char text[64];

    truce__archive_publish_state(archiver->lock, behind, archiver->failing_since_ns,
                                 archiver->call_ms);
    /* Nothing of the generation is in the target, so the number is used again. */
    if (!archiver->head.sequence) {
        archiver->head.generation--;
        archiver->head.commit--;
        archiver_unpin(archiver);
        return;
    }
    if (archiver->gave_up || behind <= (uint64_t)archiver->options->log_limit)
        return;
    snprintf(text, sizeof text, "%" PRIu64 " MB", behind / 1000000);
    archiver->gave_up = true;
    archiver->gave_up_salts = to->salts;
    archiver_unpin(archiver);
    archiver_report(archiver, ARCHIVE_LIMIT, text);
}

static void step_succeeded(struct archiver *archiver, int next, const struct kv_log_position *to)
{
    if (archiver->held >= 0)
        truce__kv_snapshot_end(archiver->kv[archiver->held]);
    archiver->held = next;
    archiver->held_position = archiver->head.position;
    archiver->gaps = 0;
    truce__archive_publish(archiver->lock, to);
}

/* Wakes the threads that wait for the archive. All commits up to the number of the step are in the
 * target. */
static void step_acknowledge(const struct archiver *archiver)
{
    struct archive_sync *sync = archiver->options->sync;

    if (!sync)
        return;
    /* Invariant 1 of archive_sync.h. */
    if (!archiver->head.base_pages) {
        truce__archive_sync_fail(sync, "its first base is not complete yet");
        return;
    }
    truce__archive_sync_note(sync, archiver->durable);
}

/* Fails with CONFLICT if the target has a segment after the last one. */
static truce_status archiver_check_alone(struct archiver *archiver, bson_error_t *error)
{
    const struct segment_head *head = &archiver->head;
    int64_t now_ns = truce__clock_monotonic_ns();
    char name[SEGMENT_NAME_BYTES];
    truce_status status = TRUCE_OK;
    bool found = false;

    if (!head->sequence || !archiver->continues ||
        now_ns - archiver->checked_ns < archiver->target->check_ms * INT64_C(1000000))
        return TRUCE_OK;
    truce__segment_name(&(struct segment_name){head->generation, head->sequence, head->kind}, name);
    archiver->checked_ns = now_ns;
    /* Invariant 4. */
    status = archiver->target->calls->has_after(archiver->target, name, &found, error);
    if (!status)
        status = archiver_check_target(archiver, error);
    /* If the target does not work, the next put reports that. */
    if (status)
        return status == TRUCE_IO ? TRUCE_OK : status;
    if (found)
        return truce__fail(TRUCE_CONFLICT, error,
                           "\"%s\" has segments after %s: another archiver writes to this "
                           "archive, perhaps of a copy of the store; end it, or use another target",
                           archiver->target->name, name);
    return TRUCE_OK;
}

/* Archives the log up to now: the steps 1 to 5. If the target fails, keeps a read transaction, so
 * that the part that is not archived stays in the log up to the limit (step_failed). */
static truce_status archiver_step(struct archiver *archiver, bson_error_t *error)
{
    int next = archiver->held == 0 ? 1 : 0;
    int64_t seen_ms = truce__clock_wall_ms(), seen_ns = truce__clock_monotonic_ns();
    struct kv_log_position to;
    uint32_t moved;
    truce_status status = truce__file_identity_check(archiver->lock, error);

    if (status)
        return status;
    archiver->durable = atomic_load(&archiver->lock->page->written);
    status = begin_at_position(archiver, archiver->kv[next], &to, &moved, error);
    if (status)
        return status;
    if (archiver->gave_up && to.salts == archiver->gave_up_salts &&
        unarchived_bytes(archiver, &to) > (uint64_t)archiver->options->log_limit) {
        /* The log that was given up is still too long. A checkpoint must shorten it first. */
        truce__kv_snapshot_end(archiver->kv[next]);
        return TRUCE_OK;
    }
    if (!archiver->continues || !position_equal(&archiver->head.position, &to))
        status = truce__durable_sync(&archiver->engine->durable, error);
    if (!status && !archiver->log)
        status = truce__kv_log_open(archiver->engine->path, &archiver->log, error);
    if (!status && !archiver->continues)
        status = archiver_continue(archiver, &to, moved, error);
    if (!status)
        status = ship_log(archiver, &to, seen_ms, error);
    if (!status) {
        step_succeeded(archiver, next, &to);
        truce__archive_publish_commit(archiver->lock, archiver->durable, seen_ns,
                                      archiver->head.commit, archiver->head.generation);
        step_acknowledge(archiver);
        return TRUCE_OK;
    }
    if (archiver->held < 0 && archiver->target_failed && archiver->head.sequence) {
        /* This is the first step: its snapshot pins the part that is not archived. */
        archiver->held = next;
        archiver->held_position = to;
    } else
        truce__kv_snapshot_end(archiver->kv[next]);
    if (archiver->target_failed)
        step_failed(archiver, &to);
    return status;
}

/* ---- the base ------------------------------------------------------------------------------- */

/* Reads a page of the file. Tries again while its checksum is wrong, because a checkpoint may be
 * writing it. `*there` is false after the end of the file. Fails with CORRUPT if the page stays
 * wrong. */
static truce_status copy_page(struct archiver *archiver, uint32_t number, uint8_t *page,
                              bool *there, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool valid = false;

    for (int i = 0; i < PAGE_TRIES && !status && !valid; i++) {
        if (i)
            truce__clock_sleep_ms(1);
        status = truce__kv_page_copy(archiver->kv[0], number, page, there, &valid, error);
        if (!status && !*there)
            return TRUCE_OK;
    }
    if (status || valid)
        return status;
    return truce__fail(
        TRUCE_CORRUPT, error,
        "page %u of \"%s\" is damaged (its checksum is wrong), so the archive gets no "
        "new base: restore the store from the archive, or use truce salvage",
        number, archiver->engine->path);
}

/* Copies the next pages of the base. */
static truce_status copy_base(struct archiver *archiver, bson_error_t *error)
{
    struct segment *segment = &archiver->segment;
    struct segment_head *head = &segment->head;
    uint8_t page[SEGMENT_PAGE_BYTES];
    truce_status status = TRUCE_OK;
    bool there = true;

    archiver_prepare(archiver, SEGMENT_BASE);
    while (!status && !truce__segment_is_full(segment, &archiver->pages)) {
        status = copy_page(archiver, head->base_next, page, &there, error);
        if (status || !there)
            break;
        truce__segment_add(segment, &archiver->pages, head->base_next++, page, 0);
    }
    if (status)
        return status;
    if (head->entries)
        status = archiver_put(archiver, error);
    if (!status)
        archiver->base_read = !there;
    return status;
}

/* Ends a base, after the log is archived up to a position after its last page. */
static truce_status end_base(struct archiver *archiver, bson_error_t *error)
{
    struct segment_head *head = &archiver->segment.head;
    truce_status status = archiver_step(archiver, error);

    if (status || !archiver->base_read)
        return status;
    archiver_prepare(archiver, SEGMENT_END);
    head->base_pages = head->base_next - 1;
    head->base_next = 0;
    head->log_pages = 0;
    status = archiver_put(archiver, error);
    if (!status)
        step_acknowledge(archiver);
    return status;
}

/* Begins a base if the segments of the log since the last base are as large as that base, and have
 * at least BASE_LOG_PAGES pages. */
static void consider_base(struct archiver *archiver)
{
    struct segment_head *head = &archiver->head;
    uint64_t enough = head->base_pages > BASE_LOG_PAGES ? head->base_pages : BASE_LOG_PAGES;

    if (head->base_next || head->log_pages < enough)
        return;
    head->base++;
    head->base_next = 1;
    head->base_replay = head->replay;
}

/* ---- retention ------------------------------------------------------------------------------ */

/* Removes the segments that are too old, and reports their number, also after a failure. */
static truce_status archiver_remove_old(struct archiver *archiver, bson_error_t *error)
{
    int64_t old_ms = archiver_age_ms(archiver) - archiver->options->keep_ms;
    uint64_t removed = 0;
    char text[24];
    truce_status status;

    truce_assert(!archiver->pending);
    archiver->removed_ms = archiver_now_ms();
    status = truce__archive_remove_old(archiver->target, old_ms, &removed, error);
    if (removed) {
        snprintf(text, sizeof text, "%" PRIu64, removed);
        archiver_report(archiver, ARCHIVE_REMOVED, text);
    }
    archiver->target_failed = status == TRUCE_IO;
    return status;
}

static truce_status archiver_retain(struct archiver *archiver, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (archiver_age_ms(archiver) - archiver->head.age_ms >= REMOVE_MS) {
        archiver_prepare(archiver, SEGMENT_LOG);
        status = archiver_put(archiver, error);
    }
    if (!status && archiver_now_ms() - archiver->removed_ms >= REMOVE_MS)
        status = archiver_remove_old(archiver, error);
    return status;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Handles the failure of a step. Returns the status with which the archiver ends, or OK. */
static truce_status archiver_failed(struct archiver *archiver, truce_status status,
                                    const bson_error_t *error)
{
    if (archiver->gap && archiver->gaps < GAPS_MAX) {
        archiver->gaps++;
        archiver_unpin(archiver);
        return TRUCE_OK;
    }
    if (!archiver->target_failed || archiver->options->once || archiver_is_stopping(archiver))
        return status;
    if (!archiver->failing_since_ns) {
        archiver->failing_since_ns = truce__clock_monotonic_ns();
        archiver->retry_ms = RETRY_MS;
        archiver_report(archiver, ARCHIVE_FAILS, error->message);
    }
    if (archiver->options->sync)
        truce__archive_sync_fail(archiver->options->sync, error->message);
    truce__archive_sleep(archiver->lock, truce__archive_calls(archiver->lock), archiver->retry_ms);
    if (archiver->retry_ms < RETRY_MS_MAX)
        archiver->retry_ms *= 2;
    return TRUCE_OK;
}

static void archiver_succeeded(struct archiver *archiver)
{
    if (archiver->failing_since_ns)
        archiver_report(archiver, ARCHIVE_WORKS, NULL);
    archiver->failing_since_ns = 0;
    truce__archive_publish_state(archiver->lock, 0, 0, archiver->call_ms);
}

/* Repeats a put that has failed. */
static truce_status archiver_repeat(struct archiver *archiver, bson_error_t *error)
{
    struct kv *kv = archiver->kv[archiver->held == 0 ? 1 : 0];
    struct kv_log_position to;
    uint32_t moved;
    truce_status status = put_pending(archiver, error);

    if (!status || !archiver->target_failed)
        return status;
    if (!begin_at_position(archiver, kv, &to, &moved, NULL)) {
        truce__kv_snapshot_end(kv);
        step_failed(archiver, &to);
    }
    return status;
}

/* Does one part of the work: archives the log, and then a part of a base. */
static truce_status archiver_work(struct archiver *archiver, bool stopping, bson_error_t *error)
{
    truce_status status = archiver->pending ? archiver_repeat(archiver, error) : TRUCE_OK;

    if (!status)
        status = archiver_check_alone(archiver, error);
    if (!status)
        status = archiver_step(archiver, error);
    if (status || !archiver->continues || stopping)
        return status;
    consider_base(archiver);
    if (archiver->head.base_next && !archiver->base_read)
        status = copy_base(archiver, error);
    if (!status && archiver->base_read)
        status = end_base(archiver, error);
    if (!status && archiver->options->keep_ms)
        status = archiver_retain(archiver, error);
    return status;
}

/* Archives until `stop` is set or, with `once`, until everything is archived. A failure that is
 * worth another attempt does not end the loop. */
static truce_status archiver_loop(struct archiver *archiver, bson_error_t *error)
{
    const struct archive_options *options = archiver->options;

    for (;;) {
        bool stopping = archiver_is_stopping(archiver);
        truce_status status;

        archiver->target_failed = archiver->gap = false;
        archiver->calls = truce__archive_calls(archiver->lock);
        status = archiver_work(archiver, stopping, error);
        if (status) {
            status = archiver_failed(archiver, status, error);
            if (status)
                return status;
            continue;
        }
        if (archiver->continues)
            archiver_succeeded(archiver);
        if (stopping || (options->once && archiver->continues && !archiver->head.base_next))
            return TRUCE_OK;
        /* The first base of a generation is urgent, so it is copied without pauses. */
        if (!archiver->head.base_next || !archiver->continues ||
            (archiver->head.base_pages && !options->once))
            truce__archive_sleep(archiver->lock, archiver->calls, options->interval_ms);
    }
}

/* ---- beginning and ending ------------------------------------------------------------------- */

/* Appends to the error of the last segment what to do to continue without it. */
static truce_status load_refuse(const struct archiver *archiver, bson_error_t *error)
{
    const bson_error_t found = *error;

    return truce__fail(
        TRUCE_CORRUPT, error,
        "%.300s: move this segment out of \"%.100s\" to continue after the one before "
        "it, or use another target",
        found.message, archiver->target->name);
}

/* Returns the number of the last segment that the last base, or the one in progress, needs and that
 * is not in the list. Returns 0 if none is missing. */
static uint64_t find_missing(const struct archive_list *list, const struct segment_head *head)
{
    uint64_t wanted = head->sequence;

    for (size_t i = list->count; i-- && wanted >= head->base_replay && wanted;) {
        if (list->names[i].generation != head->generation || list->names[i].sequence < wanted)
            return wanted;
        wanted -= list->names[i].sequence == wanted;
    }
    return wanted >= head->base_replay ? wanted : 0;
}

/* Reads the state of the archive from its last segment. */
static truce_status load_head(struct archiver *archiver, bson_error_t *error)
{
    struct archive_list list;
    truce_status status = truce__archive_list(archiver->target, &list, error);

    if (status)
        return status;
    archiver->target->renewed = false;
    if (list.count)
        status = truce__archive_read(archiver->target, &list.names[list.count - 1], NULL,
                                     &archiver->bytes, &archiver->segment, error);
    if (status == TRUCE_CORRUPT)
        status = load_refuse(archiver, error);
    if (!status && list.count &&
        memcmp(archiver->segment.head.store, archiver->store, SEGMENT_STORE_BYTES) != 0)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "\"%s\" has the archive of another store: use another directory or "
                             "prefix for \"%s\"",
                             archiver->target->name, archiver->engine->path);
    if (!status && list.count) {
        archiver->head = archiver->segment.head;
        memcpy(archiver->hash, archiver->segment.hash, sizeof archiver->hash);
        archiver->missing = find_missing(&list, &archiver->head);
    }
    memcpy(archiver->head.store, archiver->store, SEGMENT_STORE_BYTES);
    archiver_find_age(archiver);
    truce__archive_list_release(&list);
    return status;
}

/* Opens the store read-only, claims the archive, and reads the state of the archive. Fails with
 * INVALID if the lock file is not writable. */
static truce_status archiver_open(struct archiver *archiver, const char *path, bson_error_t *error)
{
    const truce_store_options options = {.read_only = true, .must_exist = true};
    truce_status status = truce__engine_start(path, &options, NULL, &archiver->engine, error);

    if (status)
        return status;
    archiver->lock = &archiver->engine->lock;
    if (!archiver->engine->locked)
        return truce__fail(TRUCE_INVALID, error,
                           "cannot archive \"%s\": the files next to it are not writable", path);
    status = truce__archive_enter(archiver->lock, &archiver->claim, error);
    if (!status) {
        archiver->times = truce__commit_times_begin(archiver->lock);
        if (!archiver->times)
            status = truce__fail(TRUCE_IO, error,
                                 "cannot start a thread of the archiver: the system has no memory "
                                 "or no threads left");
    }
    for (int i = 0; i < 2 && !status; i++)
        status = truce__kv_open(archiver->engine->path, KV_READ_ONLY, PATIENCE_MS, &archiver->kv[i],
                                error);
    if (!status)
        status = load_head(archiver, error);
    /* Cleaning is safe: this process has claimed the archive, and the target belongs to this
     * store. */
    if (!status && archiver->target->calls->clean)
        status = archiver->target->calls->clean(archiver->target, error);
    return status;
}

/* Releases everything that archiver_open has opened, also if it failed halfway, and the
 * archiver. */
static void archiver_close(struct archiver *archiver)
{
    if (archiver->engine) {
        truce__commit_times_end(archiver->times);
        if (archiver->held >= 0)
            truce__kv_snapshot_end(archiver->kv[archiver->held]);
        truce__kv_log_close(archiver->log);
        for (int i = 0; i < 2; i++) {
            if (archiver->kv[i])
                truce__kv_close(archiver->kv[i]);
        }
        if (archiver->claim >= 0)
            truce__archive_leave(archiver->lock, archiver->claim);
        truce__engine_close(archiver->engine);
    }
    truce__segment_pages_release(&archiver->pages);
    truce__buffer_release(&archiver->bytes);
    bson_free(archiver);
}

truce_status truce__archive_run(const char *path, const uint8_t store[SEGMENT_STORE_BYTES],
                                struct target *target, const struct archive_options *options,
                                bson_error_t *error)
{
    struct archiver *archiver = bson_malloc0(sizeof *archiver);
    bson_error_t ignored;
    truce_status status;

    if (!error)
        error = &ignored;
    archiver->options = options;
    archiver->store = store;
    archiver->target = target;
    archiver->claim = -1;
    archiver->held = -1;
    status = archiver_open(archiver, path, error);
    if (!status && options->keep_ms)
        status = archiver_remove_old(archiver, error);
    if (!status)
        status = archiver_loop(archiver, error);
    archiver_close(archiver);
    if (options->sync)
        truce__archive_sync_fail(options->sync, status ? error->message : "the archiver has ended");
    return status;
}
