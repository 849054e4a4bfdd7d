/*
 * The pages of a damaged file.
 *
 *     page      the last version of it that was committed to the log and whose frame is whole;
 *               else what stands in the file, if its checksum is right;
 *               else what stands there, in doubt
 *
 * A frame of the log has a checksum that goes on from that of the frame before it. So a damaged one is known, and the
 * one behind it is judged by what stands in the damaged one's header: SQLite, which recovers up to the first
 * damaged frame, would leave all that were committed after it. A page whose younger version is lost so is in
 * doubt.
 *
 * Sizes come from the file system, and every number that stands in the file is compared with them.
 */
#include "engine/storage/page_recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "engine/storage/kv_format.h"
#include "engine/storage/kv_page.h"
#include "engine/storage/lock_bytes.h"
#include "engine/storage/process.h"

#define LOG_HEADER   32
#define FRAME_HEADER 24
#define FRAME        (FRAME_HEADER + WRECK_PAGE_BYTES)
#define LOG_MAGIC    0x377f0682u

static uint32_t wreck_number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool read_at_once(int file, uint8_t *to, size_t size, int64_t offset)
{
    while (size) {
        ssize_t got = pread(file, to, size, offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        size -= (size_t)got;
        offset += got;
    }
    return true;
}

/* All of it, or false. A read that fails may be right the next time. */
static bool read_at(int file, void *bytes, size_t size, int64_t offset)
{
    bool good = false;

    for (int i = 0; i < KV_READ_TRIES && !good; i++)
        good = read_at_once(file, bytes, size, offset);
    return good;
}

/* ---- the log ---------------------------------------------------------------------------------- */

struct chain {
    bool big; /* the bytes of its words */
    uint32_t salts[2], sum[2];
};

static uint32_t wreck_word_of(const struct chain *chain, const uint8_t *at)
{
    if (chain->big)
        return wreck_number_at(at);
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void wreck_add_to(struct chain *chain, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        chain->sum[0] += wreck_word_of(chain, bytes + i) + chain->sum[1];
        chain->sum[1] += wreck_word_of(chain, bytes + i + 4) + chain->sum[0];
    }
}

static bool begin_chain(const struct wreck *wreck, struct chain *chain)
{
    uint8_t header[LOG_HEADER];

    if (!read_at(wreck->log, header, sizeof header, 0))
        return false;
    truce__kv_log_show(header);
    if ((wreck_number_at(header) | 1) != (LOG_MAGIC | 1) ||
        wreck_number_at(header + 8) != WRECK_PAGE_BYTES)
        return false;
    *chain = (struct chain){.big = wreck_number_at(header) & 1,
                            .salts = {wreck_number_at(header + 16), wreck_number_at(header + 20)}};
    wreck_add_to(chain, header, 24);
    return chain->sum[0] == wreck_number_at(header + 24) &&
           chain->sum[1] == wreck_number_at(header + 28);
}

/* Whether the frame is whole; then, and if not, the chain goes on from what stands in its header. */
static bool check_frame(struct chain *chain, uint8_t *frame)
{
    bool whole;

    (void)truce__kv_magic_show(frame + FRAME_HEADER);
    wreck_add_to(chain, frame, 8);
    wreck_add_to(chain, frame + FRAME_HEADER, WRECK_PAGE_BYTES);
    whole = chain->sum[0] == wreck_number_at(frame + 16) &&
            chain->sum[1] == wreck_number_at(frame + 20);
    chain->sum[0] = wreck_number_at(frame + 16);
    chain->sum[1] = wreck_number_at(frame + 20);
    return whole;
}

/* The frames from `from` to `to` are of one commit. */
static void take_commit(struct wreck *wreck, const uint32_t *pages, const bool *whole,
                        uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i <= to; i++) {
        uint32_t page = pages[i - from];

        if (!page || page > wreck->pages)
            continue;
        if (whole[i - from]) {
            wreck->frames[page] = i;
            wreck->marks[page] &= (uint8_t)~WRECK_STALE;
        } else {
            wreck->marks[page] |= WRECK_STALE;
        }
    }
}

static bool count_frames(const struct wreck *wreck, uint32_t *frames)
{
    struct stat found = {0};

    *frames = 0;
    if (wreck->log >= 0 && fstat(wreck->log, &found))
        return false;
    if (found.st_size >= LOG_HEADER)
        *frames = (uint32_t)((found.st_size - LOG_HEADER) / FRAME);
    return true;
}

static void read_log(struct wreck *wreck, uint32_t frames)
{
    uint32_t *pages = bson_malloc0((frames + 1) * sizeof *pages);
    bool *whole = bson_malloc0((frames + 1) * sizeof *whole);
    uint8_t *frame = bson_malloc(FRAME);
    uint32_t first = 1;
    struct chain chain;
    bool begun = begin_chain(wreck, &chain);

    for (uint32_t i = 1; begun && i <= frames; i++) {
        if (!read_at(wreck->log, frame, FRAME, LOG_HEADER + (int64_t)(i - 1) * FRAME)) {
            wreck->frames_lost += frames - i + 1;
            break;
        }
        if (wreck_number_at(frame + 8) != chain.salts[0] ||
            wreck_number_at(frame + 12) != chain.salts[1])
            break;
        pages[i - first] = wreck_number_at(frame);
        whole[i - first] = check_frame(&chain, frame);
        wreck->frames_lost += !whole[i - first];
        if (!wreck_number_at(frame + 4))
            continue;
        take_commit(wreck, pages, whole, first, i);
        first = i + 1;
    }
    bson_free(frame);
    bson_free(whole);
    bson_free(pages);
}

/* ---- opening ---------------------------------------------------------------------------------- */

static truce_status wreck_cannot(const char *path, bson_error_t *error)
{
    return truce__fail(errno == ENOENT ? TRUCE_NOT_FOUND : TRUCE_IO, error,
                       "cannot read \"%s\": %s", path, strerror(errno));
}

static bool somebody_has_it(const char *path)
{
    char *name = bson_strdup_printf("%s-lock", path);
    int lock = truce__lock_file_open(name, O_RDONLY);
    bool there = lock >= 0 && lock_has_byte(lock, BYTE_PRESENT);

    if (lock >= 0)
        truce__process_close(lock);
    bson_free(name);
    return there;
}

/* A descriptor of the file that is closed drops SQLite's locks of this process: so nobody here may have it open. */
static truce_status wreck_look_around(const char *path, bson_error_t *error)
{
    struct file_id id;

    if (!truce__file_id(path, &id))
        return wreck_cannot(path, error);
    if (truce__process_has_open(&id) || somebody_has_it(path))
        return truce__fail(TRUCE_LOCKED, error, "\"%s\" is open: close it in every program first",
                           path);
    return TRUCE_OK;
}

static truce_status wreck_measure(struct wreck *wreck, const char *path, uint32_t frames,
                                  bson_error_t *error)
{
    struct stat found;
    int64_t pages;

    if (fstat(wreck->file, &found))
        return wreck_cannot(path, error);
    if (!S_ISREG(found.st_mode))
        return truce__fail(TRUCE_CORRUPT, error, "\"%s\" is not a regular file", path);
    pages = (found.st_size + WRECK_PAGE_BYTES - 1) / WRECK_PAGE_BYTES + frames;
    if (pages > TRUCE_SALVAGE_PAGES_MAX)
        return truce__fail(TRUCE_LIMIT, error, "\"%s\" has more than %d pages", path,
                           TRUCE_SALVAGE_PAGES_MAX);
    wreck->pages = (uint32_t)pages;
    wreck->frames = bson_malloc0(((size_t)pages + 1) * sizeof *wreck->frames);
    wreck->marks = bson_malloc0((size_t)pages + 1);
    return TRUCE_OK;
}

truce_status truce__wreck_open(const char *path, struct wreck *wreck, bson_error_t *error)
{
    char *log = bson_strdup_printf("%s-wal", path);
    truce_status status = wreck_look_around(path, error);
    uint32_t frames;

    *wreck = (struct wreck){.file = -1, .log = -1};
    if (!status) {
        wreck->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (wreck->file < 0)
            status = wreck_cannot(path, error);
    }
    if (!status) {
        wreck->log = open(log, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if ((wreck->log < 0 && errno != ENOENT) || !count_frames(wreck, &frames))
            status = truce__fail(TRUCE_IO, error, "cannot read \"%s\": %s", log, strerror(errno));
    }
    if (!status)
        status = wreck_measure(wreck, path, frames, error);
    bson_free(log);
    if (status) {
        truce__wreck_close(wreck);
        return status;
    }
    if (frames)
        read_log(wreck, frames);
    wreck->usable = WRECK_PAGE_BYTES - KV_SUM_BYTES;
    return TRUCE_OK;
}

void truce__wreck_close(struct wreck *wreck)
{
    if (wreck->file >= 0)
        close(wreck->file);
    if (wreck->log >= 0)
        close(wreck->log);
    bson_free(wreck->frames);
    bson_free(wreck->marks);
    *wreck = (struct wreck){.file = -1, .log = -1};
}

/* ---- pages ------------------------------------------------------------------------------------ */

static bool wreck_is_empty(const uint8_t *bytes)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, WRECK_PAGE_BYTES - 1);
}

static bool has_right_sum(const uint8_t *bytes, uint32_t page)
{
    uint64_t sum;

    memcpy(&sum, bytes + WRECK_PAGE_BYTES - KV_SUM_BYTES, sizeof sum);
    return BSON_UINT64_FROM_LE(sum) == truce__kv_page_sum(bytes, page);
}

enum wreck_state truce__wreck_read(const struct wreck *wreck, uint32_t page,
                                   uint8_t bytes[WRECK_PAGE_BYTES])
{
    bool stale = page && page <= wreck->pages && wreck->marks[page] & WRECK_STALE;
    bool sound;

    if (!page || page > wreck->pages)
        return WRECK_GONE;
    if (wreck->frames[page]) {
        int64_t offset = LOG_HEADER + (int64_t)(wreck->frames[page] - 1) * FRAME + FRAME_HEADER;

        if (read_at(wreck->log, bytes, WRECK_PAGE_BYTES, offset)) {
            (void)truce__kv_magic_show(bytes);
            return stale ? WRECK_DOUBTFUL : WRECK_SOUND;
        }
        stale = true;
    }
    if (!read_at(wreck->file, bytes, WRECK_PAGE_BYTES, (int64_t)(page - 1) * WRECK_PAGE_BYTES) ||
        wreck_is_empty(bytes))
        return WRECK_GONE;
    sound = !stale && has_right_sum(bytes, page);
    if (page == 1)
        (void)truce__kv_magic_show(bytes);
    return sound ? WRECK_SOUND : WRECK_DOUBTFUL;
}
