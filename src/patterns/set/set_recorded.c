/*
 * What became of a number that is below the watermark. What was recorded stays so; so whatever a look at the
 * records has shown is kept with the handle, for the numbers that come next are often near: a file that is
 * applied again, a queue that delivers again. A look shows all records that are as wide as the numbers are far
 * apart, some hundreds of numbers at least (set_progress.c).
 *
 *   K1  Only what stands in a record is kept, never that a number is missing.
 *   K2  It takes at most RANGES_KEPT ranges of all sources together; then it begins anew.
 *   K3  Numbers that are far apart fill many documents with some each; who comes again with one brings those
 *       around it, newest first, so the documents on both sides are looked at with it.
 */
#include <string.h>

#include "base/field.h"
#include "patterns/set/set.h"
#include "store/store.h"

#define RANGES_KEPT  (1 << 20) /* 16 MiB: as many as lie between those of one worker among others */
#define SOURCES_KEPT 64

struct recorded {
    size_t count, ranges; /* sources; ranges of all of them */
    struct {
        char source[SET_CONSUMER_MAX + 1];
        struct ranges ranges;
    } of[SOURCES_KEPT];
};

static void recorded_forget(struct recorded *recorded)
{
    for (size_t i = 0; i < recorded->count; i++)
        truce__ranges_release(&recorded->of[i].ranges);
    recorded->count = recorded->ranges = 0;
}

void truce__recorded_free(struct recorded *recorded)
{
    if (recorded)
        recorded_forget(recorded);
    bson_free(recorded);
}

/* NULL: nothing is known of the source. */
static struct ranges *ranges_of(struct recorded *recorded, const char *source)
{
    for (size_t i = 0; recorded && i < recorded->count; i++) {
        if (!strcmp(recorded->of[i].source, source))
            return &recorded->of[i].ranges;
    }
    return NULL;
}

/* With the set's mutex held. */
static struct ranges *recorded_room_for(truce_set *set, const char *source, size_t more)
{
    struct recorded *recorded = set->recorded;
    struct ranges *ranges;

    if (!recorded)
        recorded = set->recorded = bson_malloc0(sizeof *recorded);
    if (recorded->ranges + more > RANGES_KEPT) /* K2 */
        recorded_forget(recorded);
    ranges = ranges_of(recorded, source);
    if (ranges)
        return ranges;
    if (recorded->count == SOURCES_KEPT)
        recorded_forget(recorded);
    memcpy(recorded->of[recorded->count].source, source, strlen(source) + 1);
    return &recorded->of[recorded->count++].ranges;
}

static void keep_recorded(truce_set *set, const char *source, const struct ranges *more)
{
    struct ranges *kept;
    size_t before;

    if (!more->count)
        return;
    pthread_mutex_lock(&set->mutex);
    kept = recorded_room_for(set, source, more->count);
    before = kept->count;
    truce__ranges_merge(kept, more);
    set->recorded->ranges += kept->count;
    set->recorded->ranges -= before;
    pthread_mutex_unlock(&set->mutex);
}

bool truce__number_recorded(truce_set *set, const char *source, int64_t seq)
{
    const struct ranges *kept;
    bool found;

    pthread_mutex_lock(&set->mutex);
    kept = ranges_of(set->recorded, source);
    found = kept && truce__ranges_has(kept, seq);
    pthread_mutex_unlock(&set->mutex);
    return found;
}

/* K3. What cannot be read is looked at when its turn comes. */
static void recorded_look_around(truce_set *set, const char *source, int64_t seq, int shift)
{
    for (int from = 0; from <= 1; from++) {
        struct progress progress;

        if (!truce__progress_near(set, source, seq, shift, from, &progress, NULL))
            keep_recorded(set, source, &progress.recorded);
        truce__progress_release(&progress);
    }
}

truce_status truce__number_fate(truce_set *set, const char *source, int64_t seq,
                                struct number_fate *fate, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    int narrowest = 0;
    truce_status status;

    *fate = (struct number_fate){0};
    truce__source_id(set, source, &filter);
    /* latest: an operation whose number is not recorded goes to the quarantine, also if it is a repeat */
    status =
        truce_find_one(set->store, SET_SOURCES, &filter, &truce__find_latest, &document, error);
    if (status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
    } else if (!status) {
        fate->known = true;
        fate->floor = truce__field_number(&document, "floor");
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    /* two looks: between the pages of one, the archive may be written behind it and a consumer's
     * document removed before it */
    for (int i = 0; i < 2 && !status && !fate->recorded; i++) {
        struct progress progress;

        status = truce__progress_load(set, source, seq, BLOCK_SHIFT, &progress, error);
        fate->recorded = !status && truce__ranges_has(&progress.recorded, seq);
        fate->voided = !status && truce__ranges_has(&progress.voided, seq);
        if (!status)
            keep_recorded(set, source, &progress.recorded);
        narrowest = progress.narrowest;
        truce__progress_release(&progress);
    }
    if (fate->recorded && narrowest > BLOCK_SHIFT && narrowest < WIDE_SHIFT_MAX)
        recorded_look_around(set, source, seq, narrowest);
    return status;
}
