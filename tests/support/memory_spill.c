#include "tests/support/memory_spill.h"

#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/status.h"

struct memory_spill {
    struct spill base;
    struct memory_spills *all;
    struct buffer bytes;
    /* The position in `bytes` of the next read. */
    size_t at;
    /* The spill was rewound: only reads may follow. */
    bool reading;
};

static truce_status count_call(struct memory_spills *all, bson_error_t *error)
{
    if (++all->calls == all->fail_at)
        return truce__fail(TRUCE_IO, error, "the disk fails, as the test asked");
    return TRUCE_OK;
}

static truce_status spill_write(struct spill *base, const void *bytes, size_t size,
                                bson_error_t *error)
{
    struct memory_spill *spill = (struct memory_spill *)base;

    truce_assert(!spill->reading && size > 0);
    truce__buffer_append(&spill->bytes, bytes, size);
    spill->all->bytes += size;
    return count_call(spill->all, error);
}

static truce_status spill_rewind(struct spill *base, bson_error_t *error)
{
    struct memory_spill *spill = (struct memory_spill *)base;

    truce_assert(!spill->reading);
    spill->reading = true;
    return count_call(spill->all, error);
}

static truce_status spill_read(struct spill *base, void *bytes, size_t size, size_t *got,
                               bson_error_t *error)
{
    struct memory_spill *spill = (struct memory_spill *)base;
    size_t left = spill->bytes.size - spill->at;

    truce_assert(spill->reading);
    *got = size < left ? size : left;
    if (*got)
        memcpy(bytes, spill->bytes.bytes + spill->at, *got);
    spill->at += *got;
    return count_call(spill->all, error);
}

static void spill_free(struct spill *base)
{
    struct memory_spill *spill = (struct memory_spill *)base;

    spill->all->freed++;
    truce__buffer_release(&spill->bytes);
    bson_free(spill);
}

truce_status memory_spill_open(void *arg, struct spill **spill, bson_error_t *error)
{
    struct memory_spills *all = arg;
    truce_status status = count_call(all, error);
    struct memory_spill *made;

    *spill = NULL;
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->base = (struct spill){spill_write, spill_rewind, spill_read, spill_free};
    made->all = all;
    *spill = &made->base;
    all->opened++;
    if (all->opened - all->freed > all->open_most)
        all->open_most = all->opened - all->freed;
    return TRUCE_OK;
}
