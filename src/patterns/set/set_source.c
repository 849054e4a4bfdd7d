/*
 * Sources and their watermarks. A source is whoever gives out sequence numbers; one document for
 * each set and source, in `truce_sources`:
 *
 *     {_id: {set: "students.classes", source: "web"}, first: 1, floor: 0, proven: 812, archived: 0}
 *
 *     floor     nothing at or below it is to come: first - 1, raised by truce_set_source_idle
 *     proven    its watermark when a collector last computed it; computing starts there
 *     archived  blocks of 4,096 numbers below it are in the archive (set_collect.c)
 *
 * The watermark of a source is the end of the longest gapless run of recorded and void numbers
 * above its floor, in the UNION of all consumers' records. The watermark of the set is the least of
 * its sources'. Both only rise. Consumers that died stay counted through what they recorded; what
 * they took and did not record is a gap until it is delivered again.
 *
 * A source that starts late. The collector reads the sources, announces the watermark it is about
 * to use ($max in the set's definition), THEN reads the sources again, and begins anew if there is
 * another. A new source inserts its document, THEN reads what was announced, and begins above. So
 * either the collector sees the source, or the source sees the watermark. A source document without
 * `floor` (the starter died between) holds the watermark at 0 until it is started again.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/null.h"
#include "patterns/set/set.h"
#include "store/store.h"

#define LOAD_SHIFT 18 /* numbers that are looked at together: 2^18 */

/* Sources that this handle has seen in the store. */
struct known_source {
    struct known_source *next;
    int shift; /* how wide the block was that took the last number */
    char name[];
};

void truce__sources_free(struct known_source *known)
{
    while (known) {
        struct known_source *next = known->next;

        bson_free(known);
        known = next;
    }
}

void truce__source_id(const truce_set *set, const char *source, bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, "_id", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    if (source)
        bson_append_utf8(&id, "source", -1, source, -1);
    bson_append_document_end(document, &id);
}

/* With the set's mutex held. */
static struct known_source *source_find_known(const truce_set *set, const char *source)
{
    struct known_source *at = set->known;

    while (at && strcmp(at->name, source) != 0)
        at = at->next;
    return at;
}

static bool source_is_known(truce_set *set, const char *source)
{
    bool found;

    pthread_mutex_lock(&set->mutex);
    found = source_find_known(set, source);
    pthread_mutex_unlock(&set->mutex);
    return found;
}

int truce__source_shift(truce_set *set, const char *source)
{
    const struct known_source *known;
    int shift;

    pthread_mutex_lock(&set->mutex);
    known = source_find_known(set, source);
    shift = known ? known->shift : 0;
    pthread_mutex_unlock(&set->mutex);
    return shift;
}

void truce__source_shift_keep(truce_set *set, const char *source, int shift)
{
    struct known_source *known;

    pthread_mutex_lock(&set->mutex);
    known = source_find_known(set, source);
    if (known)
        known->shift = shift;
    pthread_mutex_unlock(&set->mutex);
}

static void source_remember(truce_set *set, const char *source)
{
    size_t size = strlen(source) + 1;
    struct known_source *known = bson_malloc(sizeof *known + size);

    memcpy(known->name, source, size);
    known->shift = 0;
    pthread_mutex_lock(&set->mutex);
    known->next = set->known;
    set->known = known;
    pthread_mutex_unlock(&set->mutex);
}

/* An insert that finds the document there is as good. */
static truce_status insert_source(truce_set *set, const char *source, bool with_floor,
                                  bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status = TRUCE_UNKNOWN;

    truce__source_id(set, source, &document);
    if (with_floor) {
        bson_append_int64(&document, "first", -1, 1);
        bson_append_int64(&document, "floor", -1, 0);
    }
    for (int round = 0; truce__repeatable(status) && round < SET_TRIES_MAX; round++) {
        truce__set_pause(round);
        status = truce_insert(set->store, SET_SOURCES, &document, NULL, error);
    }
    bson_destroy(&document);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

truce_status truce__source_known(truce_set *set, const char *source, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    truce_status status;

    if (source_is_known(set, source))
        return TRUCE_OK;
    truce__source_id(set, source, &filter);
    status = truce_find_one(set->store, SET_SOURCES, &filter, NULL, &document, error);
    bson_destroy(&document);
    bson_destroy(&filter);
    if (status == TRUCE_NOT_FOUND)
        status = insert_source(set, source, true, error);
    if (!status)
        source_remember(set, source);
    return status;
}

/* ---- computing watermarks ---- */

/* From source->floor or source->proven up, as far as there is no gap. */
static truce_status source_compute(truce_set *set, struct source_state *source, bson_error_t *error)
{
    int64_t at = source->floor > source->proven ? source->floor : source->proven;
    truce_status status = TRUCE_OK;
    bool gap = false;

    while (!gap && !status && at < INT64_MAX) {
        struct progress progress;
        int64_t end = (at + 1) | ((INT64_C(1) << LOAD_SHIFT) - 1); /* of what is looked at */

        status = truce__progress_load(set, source->name, at + 1, LOAD_SHIFT, &progress, error);
        for (size_t i = 0; i < progress.voided.count; i++)
            truce__ranges_append(&progress.recorded, progress.voided.at[i].from,
                                 progress.voided.at[i].to);
        truce__ranges_settle(&progress.recorded);
        if (!status)
            at = truce__ranges_end(&progress.recorded, at + 1);
        gap = at < end;
        truce__progress_release(&progress);
    }
    source->watermark = at;
    return status;
}

static void source_add_source(struct source_list *list, const char *name, const bson_t *document)
{
    struct source_state *source;

    list->sources = bson_realloc(list->sources, (list->count + 1) * sizeof *list->sources);
    source = &list->sources[list->count++];
    *source = (struct source_state){.name = bson_strdup(name),
                                    .floor = truce__field_number(document, "floor"),
                                    .proven = truce__field_number(document, "proven"),
                                    .archived = truce__field_number(document, "archived")};
}

void truce__set_own(const truce_set *set, bson_t *filter)
{
    bson_t bounds, id;

    bson_append_document_begin(filter, "_id", -1, &bounds);
    bson_append_document_begin(&bounds, "$gte", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_document_end(&bounds, &id);
    bson_append_document_begin(&bounds, "$lt", -1, &id);
    bson_append_utf8(&id, "set", -1, set->id, -1);
    bson_append_maxkey(&id, "source", -1);
    bson_append_document_end(&bounds, &id);
    bson_append_document_end(filter, &bounds);
}

static truce_status list_sources(truce_set *set, struct source_list *list, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, sort = BSON_INITIALIZER;
    truce_find_options options = {.sort = &sort};
    truce_cursor *cursor = NULL;
    truce_status status;

    truce__set_own(set, &filter);
    bson_append_int32(&sort, "_id", -1, 1);
    status = truce_find(set->store, SET_SOURCES, &filter, &options, &cursor, error);
    while (!status) {
        const bson_t *document;
        bson_iter_t iter, name;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (bson_iter_init(&iter, document) &&
            bson_iter_find_descendant(&iter, "_id.source", &name) && BSON_ITER_HOLDS_UTF8(&name))
            source_add_source(list, bson_iter_utf8(&name, NULL), document);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(&sort);
    return status;
}

truce_status truce__sources_load(truce_set *set, struct source_list *list, bson_error_t *error)
{
    truce_status status;

    *list = (struct source_list){0};
    status = list_sources(set, list, error);
    for (size_t i = 0; !status && i < list->count; i++) {
        status = source_compute(set, &list->sources[i], error);
        if (!i || list->sources[i].watermark < list->watermark)
            list->watermark = list->sources[i].watermark;
    }
    return status;
}

void truce__sources_release(struct source_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        bson_free(list->sources[i].name);
    bson_free(list->sources);
    *list = (struct source_list){0};
}

truce_status truce_set_watermark(truce_set *set, int64_t *watermark, bson_t *report,
                                 bson_error_t *error)
{
    RETURN_IF_NULL(watermark, error);

    DEADLINE_SCOPE(set->deadline_ms);
    struct source_list list = {0};
    bson_t array, one;
    truce_status status = TRUCE_OK;

    if (report)
        bson_init(report);
    *watermark = 0;
    if (set->refused)
        return truce__fail(TRUCE_INVALID, error, "%s", set->refusal.message);
    status = truce__sources_load(set, &list, error);
    if (!status)
        *watermark = list.watermark;
    if (!status && report) {
        bson_append_utf8(report, "set", -1, set->id, -1);
        bson_append_int64(report, "watermark", -1, list.watermark);
        bson_append_array_begin(report, "sources", -1, &array);
        for (size_t i = 0; i < list.count; i++) {
            char text[16];
            const char *key;

            bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
            bson_append_document_begin(&array, key, -1, &one);
            bson_append_utf8(&one, "source", -1, list.sources[i].name, -1);
            bson_append_int64(&one, "watermark", -1, list.sources[i].watermark);
            bson_append_int64(&one, "floor", -1, list.sources[i].floor);
            bson_append_int64(&one, "missing", -1, truce__number_behind(list.sources[i].watermark));
            bson_append_document_end(&array, &one);
        }
        bson_append_array_end(report, &array);
    }
    truce__sources_release(&list);
    return status;
}

/* ---- starting, idling, void numbers ---- */

static truce_status check_source(const truce_set *set, const char *source, bson_error_t *error)
{
    if (source && (!source[0] || strlen(source) > SET_CONSUMER_MAX))
        return truce__fail(TRUCE_INVALID, error, "set %s: a source's name has 1 to %d bytes",
                           set->id, SET_CONSUMER_MAX);
    return TRUCE_OK;
}

/* the watermark that a collector announced last; 0: none yet */
static truce_status read_announced(truce_set *set, int64_t *announced, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    truce_status status;

    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    /* latest: the floor of a new source is above the watermark that a collector announced before it */
    status =
        truce_find_one(set->store, SET_DEFINITIONS, &filter, &truce__find_latest, &document, error);
    *announced = status ? 0 : truce__field_number(&document, "announced");
    bson_destroy(&document);
    bson_destroy(&filter);
    return status;
}

/* {_id, floor absent} -> floor and first; whoever comes first decides. Repeating is harmless. */
static truce_status set_floor(truce_set *set, const char *source, int64_t floor,
                              bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_status status;

    truce__source_id(set, source, &filter);
    bson_append_document_begin(&filter, "floor", -1, &inner);
    bson_append_bool(&inner, "$exists", -1, false);
    bson_append_document_end(&filter, &inner);
    bson_append_document_begin(&update, "$set", -1, &inner);
    bson_append_int64(&inner, "first", -1, truce__number_behind(floor));
    bson_append_int64(&inner, "floor", -1, floor);
    bson_append_document_end(&update, &inner);
    status = truce__set_update_answered(set, SET_SOURCES, &filter, &update, NULL, error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

truce_status truce_set_source_start(truce_set *set, const char *source, int64_t *first,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(first, error);

    DEADLINE_SCOPE(set->deadline_ms);
    const char *name = source ? source : "";
    bson_t filter = BSON_INITIALIZER, document = BSON_INITIALIZER;
    int64_t announced;
    truce_status status = truce__set_ready(set, error);

    *first = 0;
    if (!status)
        status = check_source(set, source, error);
    if (!status)
        status = insert_source(set, name, false, error);
    if (!status)
        status = read_announced(set, &announced, error);
    if (!status)
        status = set_floor(set, name, announced, error);
    if (!status) {
        truce__source_id(set, name, &filter);
        bson_destroy(&document);
        /* latest: the first number that the source may give out */
        status =
            truce_find_one(set->store, SET_SOURCES, &filter, &truce__find_latest, &document, error);
    }
    if (!status) {
        *first = truce__field_number(&document, "first");
        source_remember(set, name);
    }
    bson_destroy(&filter);
    bson_destroy(&document);
    return status;
}

/* {_id} -> {$max: {field: value}} */
truce_status truce__source_raise(truce_set *set, const char *source, const char *field,
                                 int64_t value, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_status status;

    truce__source_id(set, source, &filter);
    bson_append_document_begin(&update, "$max", -1, &inner);
    bson_append_int64(&inner, field, -1, value);
    bson_append_document_end(&update, &inner);
    status = truce__set_update_answered(set, SET_SOURCES, &filter, &update, NULL, error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

truce_status truce_set_source_idle(truce_set *set, const char *source, int64_t below,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__set_ready(set, error);

    if (!status)
        status = check_source(set, source, error);
    if (!status && below < 1)
        status = truce__fail(TRUCE_INVALID, error,
                             "the number below which nothing comes is %lld, "
                             "and must be at least 1",
                             (long long)below);
    if (!status)
        status = truce__source_known(set, source ? source : "", error);
    if (!status)
        status = truce__source_raise(set, source ? source : "", "floor", below - 1, error);
    return status;
}

truce_status truce_set_void(truce_set *set, const char *source, int64_t from, int64_t to,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__set_ready(set, error);

    if (!status)
        status = check_source(set, source, error);
    if (!status && (from < 1 || to < from))
        status = truce__fail(TRUCE_INVALID, error, "void numbers %lld to %lld: from at least 1",
                             (long long)from, (long long)to);
    if (!status)
        status = truce__source_known(set, source ? source : "", error);
    if (!status)
        status = truce__progress_add(set, source ? source : "", CONSUMER_VOID,
                                     &(struct ranges){&(struct range){from, to}, 1, 1}, error);
    return status;
}
