/*
 * Records in temporary files:
 *
 *     size 8 | bytes ..., padded to a multiple of 8 | size 8 | ...
 *
 * They are written and read through a buffer of BUFFER_BYTES, which grows for a larger record. In
 * reading, the buffer always begins with a record, so records are used in place, aligned. A
 * temporary file lives as long as the process that wrote it, so the numbers are in the byte order
 * of the machine.
 */
#include "query/sort/spill_file.h"

#include <string.h>

#include "base/assert.h"
#include "base/status.h"

#define BUFFER_BYTES (32 * 1024)

static size_t spill_padded_size(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

truce_status truce__spill_begin(struct spill_file *file, const struct spill_options *options,
                                bson_error_t *error)
{
    truce_assert(options->open && !file->spill);
    return options->open(options->arg, &file->spill, error);
}

static truce_status spill_flush(struct spill_file *file, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (file->buffer.size)
        status = file->spill->write(file->spill, file->buffer.bytes, file->buffer.size, error);
    file->buffer.size = 0;
    return status;
}

truce_status truce__spill_put(struct spill_file *file, const void *bytes, size_t size,
                              bson_error_t *error)
{
    static const uint8_t zeros[8];
    uint64_t header = size;

    truce__buffer_append(&file->buffer, &header, sizeof header);
    truce__buffer_append(&file->buffer, bytes, size);
    truce__buffer_append(&file->buffer, zeros, spill_padded_size(size) - size);
    return file->buffer.size >= BUFFER_BYTES ? spill_flush(file, error) : TRUCE_OK;
}

truce_status truce__spill_end_run(struct spill_file *file, bson_error_t *error)
{
    truce_status status = spill_flush(file, error);

    return status ? status : file->spill->rewind(file->spill, error);
}

/* Reads until `size` bytes from file->at on are available, or the file ends. */
static truce_status spill_fill(struct spill_file *file, size_t size, bson_error_t *error)
{
    size_t left = file->buffer.size - file->at;
    size_t wanted = size > BUFFER_BYTES ? size : BUFFER_BYTES, got = 0;
    truce_status status;

    if (left >= size || file->ended)
        return TRUCE_OK;
    if (left && file->at)
        memmove(file->buffer.bytes, file->buffer.bytes + file->at, left);
    file->buffer.size = left;
    file->at = 0;
    truce__buffer_reserve(&file->buffer, wanted - left);
    status = file->spill->read(file->spill, file->buffer.bytes + left, wanted - left, &got, error);
    file->ended = got < wanted - left;
    file->buffer.size += got;
    return status;
}

truce_status truce__spill_get(struct spill_file *file, const void **bytes, size_t *size,
                              bson_error_t *error)
{
    uint64_t header;
    truce_status status;

    *bytes = NULL;
    *size = 0;
    file->at += file->taken;
    file->taken = 0;
    status = spill_fill(file, sizeof header, error);
    if (status || file->at == file->buffer.size)
        return status;
    if (file->buffer.size - file->at >= sizeof header) {
        memcpy(&header, file->buffer.bytes + file->at, sizeof header);
        status = spill_fill(file, sizeof header + spill_padded_size(header), error);
        if (status)
            return status;
        if (file->buffer.size - file->at >= sizeof header + spill_padded_size(header)) {
            *bytes = file->buffer.bytes + file->at + sizeof header;
            *size = header;
            file->taken = sizeof header + spill_padded_size(header);
            return TRUCE_OK;
        }
    }
    return truce__fail(TRUCE_CORRUPT, error, "a temporary file is truncated");
}

void truce__spill_release(struct spill_file *file)
{
    if (file->spill)
        file->spill->free(file->spill);
    truce__buffer_release(&file->buffer);
    *file = (struct spill_file){0};
}
