#include "engine/id_row_cache.h"

#include <string.h>

#include "base/assert.h"
#include "bson/key_encoding.h"

/* The base-2 logarithm of the number of lines. */
#define LINE_BITS 13
/* The number of slots in a line. A line is one cache line of the processor, which is loaded at
 * once. */
#define LINE_SLOTS 8
/* The number of low bits of a slot that contain the row. The others contain bits of the hash. */
#define ROW_BITS 40
#define ROW_MAX  (((int64_t)1 << ROW_BITS) - 1)

/* The base-2 logarithm of the number of runs. With 256 documents in each run, they serve 16 million
 * documents. */
#define RUN_BITS 16
/* Makes the stored row of step 0 positive: a slot contains the row plus this number. */
#define RUN_ZERO ((int64_t)1 << (ROW_BITS - 1))
/* A bit of a slot that was stored twice with the same row, and the bits of the hash. */
#define RUN_SURE ((uint64_t)1 << ROW_BITS)
#define RUN_MARK (~(RUN_SURE | (uint64_t)ROW_MAX))

/* A megabyte, whose pages are allocated when they are used. */
struct hints {
    /* For documents whose _id has no run, or that do not follow the order of their run. The hash of
     * the table and key chooses the line; a slot has the row and bits of the hash. */
    struct line {
        _Alignas(64) atomic_uint_fast64_t slots[LINE_SLOTS];
    } lines[1 << LINE_BITS];
    /* For runs of _ids: the hash of the table and run chooses the slot, which has the row of step
     * 0, RUN_SURE, and bits of the hash. */
    atomic_uint_fast64_t runs[1 << RUN_BITS];
};

struct hints *truce__hints_new(void)
{
    struct hints *hints = BSON_ALIGNED_ALLOC0(struct hints);

    return hints;
}

void truce__hints_free(struct hints *hints)
{
    bson_free(hints);
}

static uint64_t hints_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hints_hash_of(int64_t table, struct bytes key)
{
    uint64_t hash = (uint64_t)table ^ 0x9e3779b97f4a7c15u, word;
    size_t at = 0;

    for (; at + sizeof word <= key.size; at += sizeof word) {
        memcpy(&word, key.data + at, sizeof word);
        hash = hints_mix(hash ^ word, 0xe7037ed1a0b428dbu);
    }
    word = 0;
    memcpy(&word, key.data + at, key.size - at);
    return hints_mix(hash ^ word, 0x8ebc6af09c88c6e3u ^ key.size);
}

static struct line *hints_line_of(struct hints *hints, uint64_t hash)
{
    return &hints->lines[hash >> (64 - LINE_BITS)];
}

static uint64_t mark_of(uint64_t hash)
{
    return hash << ROW_BITS;
}

static bool hints_is_of(uint64_t slot, uint64_t hash)
{
    return slot && (slot & ~(uint64_t)ROW_MAX) == mark_of(hash);
}

static int64_t hints_guess_row(struct hints *hints, uint64_t hash)
{
    struct line *line = hints_line_of(hints, hash);

    for (int i = 0; i < LINE_SLOTS; i++) {
        uint64_t slot = atomic_load_explicit(&line->slots[i], memory_order_relaxed);

        if (hints_is_of(slot, hash))
            return (int64_t)(slot & (uint64_t)ROW_MAX);
    }
    return 0;
}

/* Replaces the last hint for the document. If the document has no hint, uses a free slot. If no
 * slot is free, overwrites one. */
static void hints_note(struct hints *hints, uint64_t hash, int64_t row)
{
    struct line *line = hints_line_of(hints, hash);
    int run = (int)(hash >> (64 - ROW_BITS) & (LINE_SLOTS - 1));

    if (row <= 0 || row > ROW_MAX)
        return;
    for (int i = LINE_SLOTS; i--;) {
        uint64_t slot = atomic_load_explicit(&line->slots[i], memory_order_relaxed);

        if (!slot || hints_is_of(slot, hash))
            run = i;
        if (hints_is_of(slot, hash))
            break;
    }
    atomic_store_explicit(&line->slots[run], mark_of(hash) | (uint64_t)row, memory_order_relaxed);
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* The slot and the step of an _id, in its run or among the numbers of its table. */
struct run_position {
    atomic_uint_fast64_t *slot;
    /* The bits of the hash that the slot must have. */
    uint64_t mark;
    int64_t step;
};

static struct run_position run_position_of(struct hints *hints, int64_t table, const uint8_t *run,
                                           size_t size, int64_t step)
{
    uint64_t hash = hints_hash_of(table, (struct bytes){run, size});

    return (struct run_position){.slot = &hints->runs[hash >> (64 - RUN_BITS)],
                                 .mark = hash << (ROW_BITS + 1),
                                 .step = step};
}

/* Returns the number of slots for an _id: none, that of its run, or also that of the numbers of its
 * table. */
static int run_positions_of(struct hints *hints, int64_t table, struct bytes key,
                            struct run_position runs[2])
{
    uint8_t run[KEY_RUN_BYTES], step;
    int64_t whole;

    if (!truce__key_split(key.data, key.size, run, &step, &whole))
        return 0;
    runs[0] = run_position_of(hints, table, run, sizeof run, step);
    if (whole < 0)
        return 1;
    runs[1] = run_position_of(hints, table, run, 1, whole);
    return 2;
}

static int64_t hints_guess_run(const struct run_position *run)
{
    uint64_t slot = atomic_load_explicit(run->slot, memory_order_relaxed);

    if (!(slot & RUN_SURE) || (slot & RUN_MARK) != run->mark)
        return 0;
    return (int64_t)(slot & (uint64_t)ROW_MAX) - RUN_ZERO + run->step;
}

/* Records the row that the index has found. Returns whether the slot now gives this row. */
static bool hints_note_run(const struct run_position *run, int64_t row)
{
    int64_t first = row - run->step + RUN_ZERO;
    uint64_t slot;

    if (row <= 0 || first <= 0 || first > ROW_MAX)
        return false;
    slot = atomic_load_explicit(run->slot, memory_order_relaxed);
    /* The slot already had this row of step 0. */
    if ((slot & ~RUN_SURE) == (run->mark | (uint64_t)first)) {
        atomic_store_explicit(run->slot, slot | RUN_SURE, memory_order_relaxed);
        return true;
    }
    atomic_store_explicit(run->slot, run->mark | (uint64_t)first, memory_order_relaxed);
    return false;
}

/* ---- lookups -------------------------------------------------------------------------------- */

static bool hints_has_id(struct bytes body, struct bytes key, struct buffer *id)
{
    struct value document = {body.data, (uint32_t)body.size, BSON_TYPE_DOCUMENT};
    struct value found = truce__value_field(document, "_id", 3);

    id->size = 0;
    if (found.type != VALUE_MISSING)
        truce__key_append(id, found, false);
    return id->size == key.size && !memcmp(id->bytes, key.data, key.size);
}

/* Reads the guessed row. Returns false if the row does not have the document, and also if the row
 * is damaged, because it may belong to another document. Returns any other failure in `*status`. */
static bool hints_follow(struct kv *kv, int64_t table, int64_t row, struct bytes key,
                         struct buffer *id, struct bytes *body, truce_status *status,
                         bson_error_t *error)
{
    if (row <= 0)
        return false;
    *status = truce__kv_row_get(kv, table, row, body, error);
    if (*status)
        return *status != TRUCE_NOT_FOUND && *status != TRUCE_CORRUPT;
    return hints_has_id(*body, key, id);
}

truce_status truce__hints_look_up(struct hints *hints, struct kv *kv, int64_t index, int64_t table,
                                  struct bytes key, struct buffer *id, int64_t *row,
                                  struct bytes *body, bson_error_t *error)
{
    uint64_t hash = hints_hash_of(table, key);
    struct run_position runs[2];
    bool noted = false;
    truce_status status;
    int count;

    truce_assert(!id->bytes || id->bytes != key.data);
    /* A document that does not follow the order of its run has a slot of its own. */
    *row = hints_guess_row(hints, hash);
    if (hints_follow(kv, table, *row, key, id, body, &status, error))
        return status;
    count = run_positions_of(hints, table, key, runs);
    for (int i = 0; i < count; i++) {
        int64_t before = *row;

        *row = hints_guess_run(&runs[i]);
        if (*row != before && hints_follow(kv, table, *row, key, id, body, &status, error))
            return status;
    }
    status = truce__kv_key_lookup(kv, index, table, key, row, body, error);
    if (status)
        return status;
    for (int i = 0; i < count; i++)
        noted = hints_note_run(&runs[i], *row) || noted;
    if (!noted)
        hints_note(hints, hash, *row);
    return TRUCE_OK;
}
