#include "patterns/queue/queue_rate.h"

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "commit/metadata_cache.h"
#include "patterns/queue/queue.h"

#define SLOTS    32
#define DAY_MS   INT64_C(86400000)
#define NS_IN_MS 1000000

/* ---- the document --------------------------------------------------------------------------------- */

static void read_begun(struct queue_rate *rate, const bson_t *document)
{
    struct value list = truce__value_field(truce__value_document(document), "begun", 5);

    if (list.type != BSON_TYPE_ARRAY)
        return;
    for (struct fields fields = truce__fields(list);
         rate->count < RATE_ENTRIES && truce__fields_next(&fields);) {
        int64_t at_ms, n;
        bson_t entry;

        if (fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        truce__value_bson(fields.value, &entry);
        n = truce__field_count(&entry, "n");
        if (!truce__job_date(&entry, "at", &at_ms) || n < 1 || at_ms > rate->now_ms)
            continue;
        rate->begun[rate->count].at_ms = at_ms;
        rate->begun[rate->count++].n = n;
    }
}

/* R1, R3 */
static int64_t time_now(truce_store *store, const bson_t *id, int64_t stored_ms)
{
    int64_t now_ms = truce__clock_wall_ms(), since_ns, seen_ms;

    since_ns = truce__memo_watch(store, "rate", bson_get_data(id), id->len, (uint64_t)stored_ms);
    seen_ms = truce__job_date_after(stored_ms, (truce__clock_monotonic_ns() - since_ns) / NS_IN_MS);
    return seen_ms > now_ms ? seen_ms : now_ms;
}

void truce__rate_read(struct queue_rate *rate, truce_store *store, const bson_t *document,
                      const bson_t *id)
{
    int64_t stored_ms = 0;

    *rate = (struct queue_rate){.rate = truce__field_count(document, "rate"),
                                .per_ms = truce__field_count(document, "per_ms")};
    if (rate->rate < 1 || rate->per_ms < 1)
        rate->rate = rate->per_ms = 0;
    if (truce__job_date(document, "at", &stored_ms) && stored_ms > DATE_LAST_MS)
        stored_ms = 0;
    rate->now_ms = time_now(store, id, stored_ms);
    read_begun(rate, document);
}

void truce__rate_append(const struct queue_rate *rate, bson_t *document)
{
    bson_t list;

    if (!rate->rate)
        return;
    BSON_APPEND_INT64(document, "rate", rate->rate);
    BSON_APPEND_INT64(document, "per_ms", rate->per_ms);
    BSON_APPEND_DATE_TIME(document, "at", rate->now_ms);
    BSON_APPEND_ARRAY_BEGIN(document, "begun", &list);
    for (size_t i = 0, kept = 0; i < rate->count; i++) {
        char text[16];
        const char *key;

        if (rate->now_ms - rate->begun[i].at_ms >= rate->per_ms)
            continue;
        bson_uint32_to_string((uint32_t)kept++, &key, text, sizeof text);
        BCON_APPEND(&list, key, "{", "at", BCON_DATE_TIME(rate->begun[i].at_ms), "n",
                    BCON_INT64(rate->begun[i].n), "}");
    }
    bson_append_array_end(document, &list);
}

/* ---- the window ----------------------------------------------------------------------------------- */

int64_t truce__rate_wait_ms(const struct queue_rate *rate)
{
    int64_t in_window = 0;

    for (size_t i = rate->count; i-- > 0;) { /* the youngest first */
        int64_t left_ms = rate->begun[i].at_ms + rate->per_ms - rate->now_ms;

        in_window += rate->begun[i].n;
        if (in_window >= rate->rate)
            return rate->rate && left_ms > 0 ? left_ms : 0;
    }
    return 0;
}

int64_t truce__rate_left_ms(const struct queue_rate *rate)
{
    int64_t left_ms = rate->rate && rate->count
                          ? rate->begun[rate->count - 1].at_ms + rate->per_ms - rate->now_ms
                          : 0;

    return left_ms > 0 ? left_ms : 0;
}

static void drop_old(struct queue_rate *rate)
{
    size_t kept = 0;

    for (size_t i = 0; i < rate->count; i++)
        if (rate->now_ms - rate->begun[i].at_ms < rate->per_ms)
            rate->begun[kept++] = rate->begun[i];
    rate->count = kept;
}

/* R4: the last entry counts this begin, too. */
static bool rate_is_shared(const struct queue_rate *rate)
{
    int64_t slot_ms = (rate->per_ms + SLOTS - 1) / SLOTS;

    if (!rate->count || rate->count == RATE_ENTRIES)
        return rate->count == RATE_ENTRIES;
    return rate->rate > SLOTS &&
           rate->begun[rate->count - 1].at_ms / slot_ms == rate->now_ms / slot_ms;
}

void truce__rate_begin(struct queue_rate *rate)
{
    if (!rate->rate)
        return;
    drop_old(rate);
    if (!rate_is_shared(rate))
        rate->begun[rate->count++].n = 0;
    rate->begun[rate->count - 1].at_ms = rate->now_ms;
    rate->begun[rate->count - 1].n++;
}

void truce__rate_correct(struct queue_rate *rate)
{
    int64_t ahead_ms = rate->now_ms - truce__clock_wall_ms();

    if (ahead_ms <= DAY_MS)
        return;
    rate->now_ms -= ahead_ms;
    for (size_t i = 0; i < rate->count; i++)
        rate->begun[i].at_ms -= ahead_ms;
}
