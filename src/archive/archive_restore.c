/*
 * Restoring a store from an archive.
 *
 * A restore chooses a complete base and reads the segments in their order, from the `replay` of the
 * base to the commit:
 *
 *     a page of the base    is written, unless the log has had the page before it
 *     a frame of the log    is written if its commit ends in this segment, unless a later frame of
 *                           such a commit has the same page; frames after the last end of a commit
 *                           wait for the next segment
 *
 * Only pages of the chosen base are used. Another base may have been copied in between.
 *
 * Invariants:
 *  1. Every segment is verified before any of it is used: its own hash and checksums, and its
 *     position in the chain. The result has no byte that was not verified.
 *  2. The last commit is at the end of the base or after it. The pages of the base may have been
 *     changed by all commits up to the end.
 *  3. The file appears under its name after it is complete and synced. A crash leaves the file
 *     NAME.restoring, which the next restore replaces.
 *  4. The commits of the result are a prefix of the commits of the store. `--at` ends before the
 *     first commit whose time is later, even if the clock went back after it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/directory_sync.h"
#include "bson/date.h"

struct restoring {
    struct target *target;
    const struct restore_options *options;
    struct restore_report *report;
    struct archive_list list;
    struct buffer bytes;
    struct segment segment;
    struct segment_pages pages;
    /* For each frame of the segment, whether it is the last one of its page. */
    bool last[SEGMENT_ENTRIES_MAX];
    /* The index of the end of the chosen base in the list, and the head of that segment. */
    size_t end;
    struct segment_head base;
    /* The hash of the last segment. `chained` is false if no segment was read yet. */
    uint8_t hash[SHA256_BYTES];
    bool chained;
    /* The descriptor of the new file, or -1 if nothing is written. */
    int file;
    /* The path of the new file, and its path until it is complete. */
    char *path, *hidden;
    /* If bit n is set, the log has written page n. */
    struct buffer written;
    /* The frames of a commit whose end was not read yet: the page numbers, and the pages. */
    struct buffer numbers, frames;
    /* The size of the file in pages after the last commit, or 0 if no commit was replayed. */
    uint32_t file_pages;
    /* The number of the last commit that was replayed. */
    uint64_t commit;
    /* Whether the requested commit or time is reached. */
    bool ended;
};

/* ---- the plan ------------------------------------------------------------------------------- */

static truce_status restore_read(struct restoring *restoring, size_t i, bool index,
                                 bson_error_t *error)
{
    return truce__archive_read(restoring->target, &restoring->list.names[i],
                               index ? NULL : &restoring->pages, &restoring->bytes,
                               &restoring->segment, error);
}

/* Returns whether the restore can begin with the base. */
static bool base_serves(const struct restoring *restoring, const struct segment_head *head)
{
    const struct restore_options *options = restoring->options;

    return options->at_commit ? head->commit <= options->at_commit
                              : truce__segment_time(head) <= options->at_ms;
}

/* Fails with NOT_FOUND. The message names the first commit and time that the archive can restore,
 * if there is `any`. */
static truce_status refuse_time(const struct restoring *restoring, bool any, int64_t first_ms,
                                uint64_t first_commit, bson_error_t *error)
{
    const struct restore_options *options = restoring->options;
    char requested[DATE_TEXT_MAX], first[DATE_TEXT_MAX];

    if (!any)
        return truce__fail(TRUCE_NOT_FOUND, error,
                           "\"%s\" has no complete base: nothing can be restored from it",
                           restoring->target->name);
    truce__date_show(first_ms, first);
    if (options->at_commit)
        return truce__fail(TRUCE_NOT_FOUND, error,
                           "commit %" PRIu64
                           " cannot be restored: the first that \"%s\" can restore is %" PRIu64
                           " of %s",
                           options->at_commit, restoring->target->name, first_commit, first);
    return truce__fail(TRUCE_NOT_FOUND, error,
                       "%s cannot be restored: the first time that \"%s\" can restore is %s",
                       truce__date_show(options->at_ms, requested), restoring->target->name, first);
}

/* Returns whether all segments that the base needs are in the list. */
static bool restore_base_is_there(const struct restoring *restoring, size_t end)
{
    uint64_t needed = restoring->list.names[end].sequence - restoring->segment.head.base_replay;

    return needed <= end &&
           restoring->list.names[end - needed].generation == restoring->list.names[end].generation;
}

static bool wants_earlier(const struct restoring *restoring)
{
    return restoring->options->at_commit || restoring->options->at_ms != INT64_MAX;
}

/* Chooses the last base with which the restore can begin. */
static truce_status choose_base(struct restoring *restoring, bson_error_t *error)
{
    int64_t first_ms = 0;
    uint64_t first_commit = 0;
    truce_status damaged = TRUCE_OK;
    bool any = false;

    for (size_t i = restoring->list.count; i--;) {
        const struct segment_head *head = &restoring->segment.head;
        truce_status status;

        if (restoring->list.names[i].kind != SEGMENT_END)
            continue;
        status = restore_read(restoring, i, true, error);
        if (status == TRUCE_CORRUPT && wants_earlier(restoring)) {
            /* An older base may be usable, because the replay then ends before the damaged
             * segment. */
            damaged = status;
            continue;
        }
        if (status)
            return status;
        if (!restore_base_is_there(restoring, i))
            continue;
        if (base_serves(restoring, head)) {
            restoring->base = *head;
            restoring->end = i;
            return TRUCE_OK;
        }
        any = true;
        first_ms = truce__segment_time(head);
        first_commit = head->commit;
    }
    return damaged ? damaged : refuse_time(restoring, any, first_ms, first_commit, error);
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Writes pages with successive numbers. */
static truce_status restore_write_pages(struct restoring *restoring, uint32_t number,
                                        const uint8_t *pages, size_t count, bson_error_t *error)
{
    off_t offset = (off_t)(number - 1) * SEGMENT_PAGE_BYTES;
    size_t size = count * SEGMENT_PAGE_BYTES, done = 0;

    while (restoring->file >= 0 && done < size) {
        ssize_t wrote = pwrite(restoring->file, pages + done, size - done, offset + (off_t)done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return truce__fail(TRUCE_IO, error, "cannot write \"%s\": %s", restoring->hidden,
                               strerror(errno));
        done += (size_t)wrote;
    }
    return TRUCE_OK;
}

static bool restore_was_written(const struct restoring *restoring, uint32_t number)
{
    return number / 8 < restoring->written.size &&
           restoring->written.bytes[number / 8] >> number % 8 & 1;
}

static void note_written(struct restoring *restoring, uint32_t number)
{
    struct buffer *written = &restoring->written;

    if (number / 8 >= written->size) {
        size_t more = number / 8 + 1 - written->size;

        truce__buffer_reserve(written, more);
        memset(written->bytes + written->size, 0, more);
        written->size += more;
    }
    written->bytes[number / 8] |= (uint8_t)(1 << number % 8);
}

static truce_status restore_write_frame(struct restoring *restoring, uint32_t number,
                                        const uint8_t *page, bson_error_t *error)
{
    note_written(restoring, number);
    return restore_write_pages(restoring, number, page, 1, error);
}

/* Writes the frames of a commit that began in an earlier segment. */
static truce_status restore_apply(struct restoring *restoring, bson_error_t *error)
{
    size_t count = restoring->numbers.size / sizeof(uint32_t);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < count && !status; i++) {
        uint32_t number;

        memcpy(&number, restoring->numbers.bytes + i * sizeof number, sizeof number);
        status = restore_write_frame(restoring, number,
                                     restoring->frames.bytes + i * SEGMENT_PAGE_BYTES, error);
    }
    restoring->numbers.size = restoring->frames.size = 0;
    return status;
}

/* ---- segments ------------------------------------------------------------------------------- */

/* Returns whether the commit is after the last one to restore. */
static bool is_after(const struct restoring *restoring, uint64_t commit, int64_t time_ms)
{
    const struct restore_options *options = restoring->options;

    return options->at_commit ? commit > options->at_commit
                              : commit > restoring->base.commit && time_ms > options->at_ms;
}

/* Writes the pages of a segment of the chosen base, except those that the log has written.
 * Successive pages are written at once. */
static truce_status take_base(struct restoring *restoring, bson_error_t *error)
{
    const struct segment *segment = &restoring->segment;
    truce_status status = TRUCE_OK;

    if (segment->head.base != restoring->base.base)
        return TRUCE_OK;
    for (uint32_t i = 0, count; i < segment->head.entries && !status; i += count) {
        uint32_t number = segment->entries[i].page;
        bool written = restore_was_written(restoring, number);

        for (count = 1; !written && i + count < segment->head.entries; count++) {
            if (segment->entries[i + count].page != number + count ||
                restore_was_written(restoring, number + count))
                break;
        }
        if (!written)
            status = restore_write_pages(
                restoring, number, segment->data + i * (size_t)SEGMENT_PAGE_BYTES, count, error);
    }
    return status;
}

/* Takes the commits of the segment up to the last one to restore. Returns the number of their
 * entries. */
static uint32_t take_commits(struct restoring *restoring)
{
    const struct segment *segment = &restoring->segment;
    struct restore_report *report = restoring->report;
    uint32_t taken = 0;

    for (uint32_t i = 0; i < segment->head.entries; i++) {
        const struct segment_entry *entry = &segment->entries[i];

        if (!entry->pages_after)
            continue;
        if (is_after(restoring, restoring->commit + 1, entry->time_ms)) {
            report->next_commit = restoring->commit + 1;
            report->next_ms = entry->time_ms;
            restoring->ended = true;
            break;
        }
        report->commit = ++restoring->commit;
        report->commit_ms = entry->time_ms;
        restoring->file_pages = entry->pages_after;
        taken = i + 1;
    }
    return taken;
}

/* Writes the pages of the commits that were taken. Writes only the last version of each page. */
static truce_status take_log(struct restoring *restoring, bson_error_t *error)
{
    const struct segment *segment = &restoring->segment;
    uint32_t taken = take_commits(restoring);
    truce_status status = taken ? restore_apply(restoring, error) : TRUCE_OK;

    truce__segment_find_last(&restoring->pages, segment, taken, restoring->last);
    for (uint32_t i = 0; i < segment->head.entries && !status; i++) {
        const uint8_t *page = truce__segment_page(&restoring->pages, segment, i);
        uint32_t number = segment->entries[i].page;

        if (i >= taken) {
            truce__buffer_append(&restoring->numbers, &number, sizeof number);
            truce__buffer_append(&restoring->frames, page, SEGMENT_PAGE_BYTES);
        } else if (restoring->last[i])
            status = restore_write_frame(restoring, number, page, error);
    }
    return status;
}

/* Verifies that the segment continues the chain. */
static truce_status check_chain(struct restoring *restoring, size_t i, bson_error_t *error)
{
    const struct segment_name *name = &restoring->list.names[i];
    char text[SEGMENT_NAME_BYTES];

    truce__segment_name(name, text);
    if (restoring->chained &&
        memcmp(restoring->hash, restoring->segment.head.before, SHA256_BYTES) != 0)
        return truce__fail(TRUCE_CORRUPT, error,
                           "the segment %s of the archive does not continue the one before it: it "
                           "belongs to another archive",
                           text);
    memcpy(restoring->hash, restoring->segment.hash, SHA256_BYTES);
    restoring->chained = true;
    return TRUCE_OK;
}

/* Returns the number of commits in a segment of the log, or 0 for a segment of a base. The last of
 * them has the number in the head of the segment. */
static uint64_t commits_of(const struct segment *segment)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < segment->head.entries; i++)
        count += segment->head.kind == SEGMENT_LOG && segment->entries[i].pages_after;
    return count;
}

/* Reads and verifies the next segment, and writes its pages. Calls `progress`. */
static truce_status restore_segment(struct restoring *restoring, size_t i, bson_error_t *error)
{
    const struct segment_head *head = &restoring->segment.head;
    truce_status status = restore_read(restoring, i, false, error);

    if (!status)
        status = check_chain(restoring, i, error);
    if (status)
        return status;
    restoring->report->segments++;
    restoring->report->bytes_read += restoring->bytes.size;
    if (restoring->options->progress)
        restoring->options->progress((int64_t)restoring->report->bytes_read,
                                     restoring->options->arg);
    if (head->kind == SEGMENT_BASE)
        return take_base(restoring, error);
    if (head->kind == SEGMENT_END)
        return TRUCE_OK;
    restoring->commit = head->commit - commits_of(&restoring->segment);
    return take_log(restoring, error);
}

/* Returns the status of a restore that cannot use a segment: OK if the requested commit is complete
 * without it. Otherwise the error names the commits that can be restored. */
static truce_status restore_stop(struct restoring *restoring, uint64_t sequence,
                                 truce_status status, bson_error_t *error)
{
    bool after = sequence > restoring->list.names[restoring->end].sequence;
    uint64_t last = restoring->report->commit;
    bson_error_t found;

    if (after && restoring->options->at_commit == last) {
        restoring->ended = true;
        return TRUCE_OK;
    }
    if (!error)
        return status;
    found = *error;
    if (!after)
        return truce__fail(status, error,
                           "%.300s: restore a commit before %" PRIu64 " with --at-commit",
                           found.message, restoring->base.commit);
    return truce__fail(status, error,
                       "%.300s: restore the last commit before it with --at-commit %" PRIu64,
                       found.message, last);
}

static truce_status restore_missing(const struct restoring *restoring, uint64_t sequence,
                                    bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error,
                       "the segment %" PRIu64 " of generation %u is missing in \"%s\"", sequence,
                       restoring->base.generation, restoring->target->name);
}

/* Reads the segments from `replay` up to the last commit to restore. */
static truce_status restore_replay(struct restoring *restoring, bson_error_t *error)
{
    const struct segment_name *names = restoring->list.names;
    size_t first =
        restoring->end - (size_t)(names[restoring->end].sequence - restoring->base.base_replay);
    truce_status status = TRUCE_OK;

    for (size_t i = first; !status && !restoring->ended && i < restoring->list.count &&
                           names[i].generation == restoring->base.generation;
         i++) {
        uint64_t sequence = restoring->base.base_replay + (i - first);

        if (restoring->options->stop && atomic_load(restoring->options->stop))
            return truce__fail(TRUCE_TIMEOUT, error, "interrupted");
        status = names[i].sequence == sequence ? restore_segment(restoring, i, error)
                                               : restore_missing(restoring, sequence, error);
        if (status == TRUCE_CORRUPT)
            status = restore_stop(restoring, sequence, status, error);
    }
    return status;
}

/* Fails with NOT_FOUND if the requested time or commit may be in a gap. The commits between the
 * last of a generation and the first of the next are not in the archive. If the last commit is
 * requested, only reports the newer generation. */
static truce_status check_gap(const struct restoring *restoring, bson_error_t *error)
{
    const struct restore_options *options = restoring->options;
    const struct archive_list *list = &restoring->list;
    const struct segment_name *last = &list->names[list->count - 1];
    char time[DATE_TEXT_MAX];

    if (restoring->ended || last->generation == restoring->base.generation)
        return TRUCE_OK;
    if (options->at_commit && restoring->report->commit >= options->at_commit)
        return TRUCE_OK;
    if (!wants_earlier(restoring)) {
        restoring->report->newer_generation = last->generation;
        return TRUCE_OK;
    }
    truce__date_show(restoring->report->commit_ms, time);
    return truce__fail(TRUCE_NOT_FOUND, error,
                       "the archive has a gap after commit %" PRIu64
                       " of %s, because the archiver did not run or the log exceeded its limit: "
                       "restore this commit with --at-commit %" PRIu64
                       ", or a time after the next base",
                       restoring->report->commit, time, restoring->report->commit);
}

/* Finds out whether the clock was set back: whether the last commit of the generation has a time
 * before the requested time. */
static void note_clock(struct restoring *restoring)
{
    const struct segment *segment = &restoring->segment;
    struct restore_report *report = restoring->report;
    const struct segment_name *names = restoring->list.names;

    if (!restoring->ended || restoring->options->at_commit)
        return;
    for (size_t i = restoring->list.count; i--;) {
        if (names[i].generation != restoring->base.generation || names[i].kind != SEGMENT_LOG)
            continue;
        /* The result does not depend on this segment, so an error is ignored. */
        if (restore_read(restoring, i, true, NULL))
            return;
        for (uint32_t entry = segment->head.entries; entry--;) {
            if (!segment->entries[entry].pages_after)
                continue;
            if (segment->entries[entry].time_ms <= restoring->options->at_ms)
                report->back_commit = segment->head.commit;
            return;
        }
    }
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Refuses a name that exists, or whose neighboring files would be taken for parts of the store. */
static truce_status refuse_existing(const char *path, bson_error_t *error)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock", NULL};
    truce_status status = TRUCE_OK;

    for (int i = 0; suffixes[i] && !status; i++) {
        char *name = bson_strdup_printf("%s%s", path, suffixes[i]);
        struct stat found;

        if (!lstat(name, &found))
            status = truce__fail(TRUCE_INVALID, error,
                                 "\"%s\" exists: restore into a new file, or end the programs that "
                                 "use the store and move its files away",
                                 name);
        bson_free(name);
    }
    return status;
}

/* Creates the file under its hidden name. Fails with INVALID if the file, or a side file of a store
 * (-wal, -shm, -lock), exists under the final name. */
static truce_status restore_create(struct restoring *restoring, const char *path,
                                   bson_error_t *error)
{
    truce_status status = refuse_existing(path, error);

    if (status)
        return status;
    restoring->path = bson_strdup(path);
    restoring->hidden = bson_strdup_printf("%s.restoring", path);
    restoring->file =
        open(restoring->hidden, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (restoring->file >= 0)
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot create \"%s\": %s", restoring->hidden,
                       strerror(errno));
}

static bool sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? bson_strndup(path, (size_t)(slash - path + 1)) : bson_strdup(".");
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool fine = file >= 0 && truce__directory_sync(file);

    if (file >= 0)
        close(file);
    bson_free(folder);
    return fine;
}

static truce_status restore_finish(struct restoring *restoring, bson_error_t *error)
{
    bool fine = !ftruncate(restoring->file, restoring->report->bytes) && !fsync(restoring->file);

    fine = !close(restoring->file) && fine;
    restoring->file = -1;
    /* The rename does not replace a file that has appeared in the meantime. */
    if (fine &&
        !renameat2(AT_FDCWD, restoring->hidden, AT_FDCWD, restoring->path, RENAME_NOREPLACE) &&
        sync_folder(restoring->path))
        return TRUCE_OK;
    return truce__fail(TRUCE_IO, error, "cannot write \"%s\": %s", restoring->path,
                       strerror(errno));
}

truce_status truce__archive_restore(struct target *target, const char *path,
                                    const struct restore_options *options,
                                    struct restore_report *report, bson_error_t *error)
{
    struct restoring *restoring = bson_malloc0(sizeof *restoring);
    truce_status status;

    *report = (struct restore_report){0};
    restoring->target = target;
    restoring->options = options;
    restoring->report = report;
    restoring->file = -1;
    status = truce__archive_list(target, &restoring->list, error);
    if (!status)
        status = choose_base(restoring, error);
    if (!status && !options->dry_run)
        status = restore_create(restoring, path, error);
    if (!status) {
        report->generation = restoring->base.generation;
        report->commit = restoring->base.commit;
        report->commit_ms = truce__segment_time(&restoring->base);
        status = restore_replay(restoring, error);
    }
    if (!status && options->at_commit && report->commit < options->at_commit &&
        restoring->list.names[restoring->list.count - 1].generation == report->generation)
        status = truce__fail(TRUCE_NOT_FOUND, error,
                             "the archive has no commit %" PRIu64 ": the last is %" PRIu64,
                             options->at_commit, report->commit);
    if (!status)
        status = check_gap(restoring, error);
    if (!status)
        note_clock(restoring);
    report->bytes =
        (int64_t)(restoring->file_pages ? restoring->file_pages : restoring->base.base_pages) *
        SEGMENT_PAGE_BYTES;
    if (!status && !options->dry_run)
        status = restore_finish(restoring, error);
    if (restoring->file >= 0)
        close(restoring->file);
    if (status && restoring->hidden)
        (void)unlink(restoring->hidden);
    truce__archive_list_release(&restoring->list);
    truce__buffer_release(&restoring->bytes);
    truce__buffer_release(&restoring->written);
    truce__buffer_release(&restoring->numbers);
    truce__buffer_release(&restoring->frames);
    truce__segment_pages_release(&restoring->pages);
    bson_free(restoring->path);
    bson_free(restoring->hidden);
    bson_free(restoring);
    return status;
}
