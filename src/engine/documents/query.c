/*
 * Queries.
 *
 * A read uses one snapshot, the one in which its plan was made:
 *
 *     begun in a slot of the pool --done--> ended                    most reads end here
 *                  |
 *                  | SNAPSHOT_ENTRIES were examined, or the caller has enough documents for now
 *                  v
 *     kept, on a connection outside of the pool (snapshots.c) --done, closed--> ended
 *
 * A long read runs in parts. After each part the scan pauses, and the next part continues after its
 * position, in the same snapshot. Between two parts a snapshot that is too old can be ended. The
 * read then fails, but everything that it has returned was right.
 *
 * A query of a view (engine.c) enters the view's snapshot for each part.
 */
#include "engine/documents/query.h"

#include "base/assert.h"
#include "query/match/match_plain.h"

/* The number of rows or entries that one part examines. After the first part, the query leaves its
 * slot of the pool. */
#define SNAPSHOT_ENTRIES 4096

static void gather_add(struct gather *gather, const struct found *found);

/* ---- selectors ------------------------------------------------------------------------------ */

struct value truce__only_id(const bson_t *filter)
{
    struct fields fields = truce__fields(truce__value_document(filter));
    struct value id = truce__value_missing();

    if (!truce__fields_next(&fields) || strcmp(fields.key, "_id"))
        return id;
    switch (fields.value.type) {
    case BSON_TYPE_OID:
    case BSON_TYPE_UTF8:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_BINARY:
    case BSON_TYPE_DATE_TIME:
        id = fields.value;
        break;
    /* null, operators, and similar values match other values, too. */
    default:
        return id;
    }
    return truce__fields_next(&fields) ? truce__value_missing() : id;
}

static bool note_id(const struct path *path, struct value value, void *arg)
{
    struct buffer *key = arg;

    if (path->count != 1 || strcmp(path->text, "_id"))
        return true;
    /* null also matches a document without the field, and an array also matches arrays that contain
     * it. */
    if (value.type != BSON_TYPE_NULL && value.type != BSON_TYPE_ARRAY &&
        value.type != BSON_TYPE_UNDEFINED)
        truce__key_append(key, value, false);
    return false;
}

truce_status truce__selector_init(const bson_t *filter, bool whole, struct selector *selector,
                                  bson_error_t *error)
{
    struct value id;
    truce_status status;

    *selector = (struct selector){0};
    if (!whole && truce__match_is_plain(filter, &id) && id.type != VALUE_MISSING) {
        truce__key_append(&selector->id_key, id, false);
        selector->plain = filter;
        return TRUCE_OK;
    }
    status = truce__match_new(filter, &selector->match, error);
    if (!status)
        truce__match_equalities(selector->match, note_id, &selector->id_key);
    return status;
}

void truce__selector_release(struct selector *selector)
{
    truce__match_free(selector->match);
    truce__buffer_release(&selector->id_key);
    *selector = (struct selector){0};
}

/* ---- inside the write transaction ----------------------------------------------------------- */

/* The destination of matches: the list, directly or through a sorter. */
struct destination {
    struct gather *gather;
    /* The sorter, or NULL if the matches go directly to the list. */
    struct sorter *sorter;
    struct buffer packed;
    /* The number of matches that is enough, or 0 for all. */
    int64_t enough;
};

static truce_status query_put(struct destination *destination, const struct found *found,
                              bson_error_t *error)
{
    if (!destination->sorter) {
        gather_add(destination->gather, found);
        return TRUCE_OK;
    }
    truce__found_pack(found, &destination->packed);
    return truce__sorter_add(destination->sorter, found->document, destination->packed.bytes,
                             (uint32_t)destination->packed.size, error);
}

/* Does the same as truce__scan_next, within the maximum of the selection. */
static truce_status next_within(const struct selection *selection, struct scan *scan, struct kv *kv,
                                struct found *found, bson_error_t *error)
{
    int64_t most = selection->examined_max;
    truce_status status = truce__scan_next(scan, kv, most, found, error);

    if (status || !most || scan->keys_examined + scan->documents_examined <= most)
        return status;
    return truce__fail(TRUCE_LIMIT, error,
                       "the query would examine more than %lld index entries and documents: use a "
                       "filter that an index serves",
                       (long long)most);
}

/* Scans until the end, or until `enough` matches were found, and puts them into the destination. */
static truce_status query_scan_all(const struct plan *plan, const struct selection *selection,
                                   struct kv *kv, int64_t table, struct query_context *context,
                                   struct destination *destination, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct found found;
    struct scan scan;

    truce__scan_init(&scan, plan, table, selection->selector->match, context);
    while (!status &&
           (!destination->enough || (int64_t)destination->gather->count < destination->enough)) {
        status = next_within(selection, &scan, kv, &found, error);
        if (!status && found.row)
            status = query_put(destination, &found, error);
    }
    truce__scan_pause(&scan);
    truce__scan_release(&scan);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Moves the sorted matches from the sorter into the list. */
static truce_status take_sorted(struct sorter *sorter, struct gather *gather, bson_error_t *error)
{
    truce_status status = truce__sorter_sort(sorter, error);
    const void *packed;
    struct found found;
    uint32_t size;

    while (!status) {
        status = truce__sorter_next(sorter, &packed, &size, error);
        if (status || !packed)
            break;
        truce__found_unpack(packed, size, &found);
        gather_add(gather, &found);
    }
    return status;
}

/* Finds all matches and sorts them in memory, because no index has their order. */
static truce_status scan_and_sort(const struct plan *plan, const struct selection *selection,
                                  struct kv *kv, int64_t table, struct query_context *context,
                                  struct gather *gather, bson_error_t *error)
{
    static const struct spill_options in_memory = {0};
    struct destination destination = {.gather = gather};
    struct sort sort = {0};
    truce_status status = truce__sort_parse(selection->sort, &sort, error);

    truce__sorter_new(&sort, (uint64_t)selection->limit, &in_memory, &destination.sorter);
    if (!status)
        status = query_scan_all(plan, selection, kv, table, context, &destination, error);
    if (!status)
        status = take_sorted(destination.sorter, gather, error);
    truce__sorter_free(destination.sorter);
    truce__sort_release(&sort);
    truce__buffer_release(&destination.packed);
    return status;
}

/* Plans a selection and gathers its matches. */
static truce_status plan_and_scan(const struct selection *selection, struct kv *kv,
                                  const struct collection *collection,
                                  struct query_context *context, struct gather *gather,
                                  bson_error_t *error)
{
    struct plan_request request = {.collection = collection,
                                   .match = selection->selector->match,
                                   .sort = selection->sort,
                                   .hint = selection->hint};
    struct destination straight = {.gather = gather, .enough = selection->limit};
    struct plan plan;
    truce_status status = truce__plan_make(&request, &plan, error);

    if (!status && plan.sorted)
        status = query_scan_all(&plan, selection, kv, collection->id, context, &straight, error);
    else if (!status)
        status = scan_and_sort(&plan, selection, kv, collection->id, context, gather, error);
    truce__plan_release(&plan);
    return status;
}

/* Tests whether the document with the selector's _id matches. */
static truce_status query_test(const struct selector *selector, struct query_context *context,
                               struct found *found, bson_error_t *error)
{
    struct match *match = selector->match;
    truce_status status = TRUCE_OK;

    found->match = (struct match_result){.array_index = -1};
    if (!match && truce__match_plain_test(selector->plain, found->document, &found->match.matched))
        return TRUCE_OK;
    if (!match)
        status = truce__match_new(selector->plain, &match, error);
    if (!status)
        status = truce__match_test(match, found->document, context, &found->match, error);
    if (!selector->match)
        truce__match_free(match);
    return status;
}

/* Finds the document with the selector's _id. Returns NOT_FOUND if it does not exist or does not
 * match. */
static truce_status query_find_by_id(const struct selector *selector, struct writer *writer,
                                     const struct collection *collection,
                                     struct query_context *context, struct found *found,
                                     bson_error_t *error)
{
    struct bytes key = {selector->id_key.bytes, selector->id_key.size}, body;
    truce_status status = truce__writer_look_up(writer, collection, key, &found->row, &body, error);

    if (status)
        return status;
    found->document = (struct value){body.data, (uint32_t)body.size, BSON_TYPE_DOCUMENT};
    status = query_test(selector, context, found, error);
    return status || found->match.matched ? status : TRUCE_NOT_FOUND;
}

truce_status truce__select(const struct selection *selection, struct writer *writer,
                           const struct collection *collection, struct query_context *context,
                           struct gather *gather, bson_error_t *error)
{
    truce_status status;
    struct found found;

    *gather = (struct gather){.rows_only = selection->limit != 1 && !selection->keep};
    if (!selection->selector->id_key.size || selection->hint)
        return plan_and_scan(selection, writer->kv, collection, context, gather, error);
    status = query_find_by_id(selection->selector, writer, collection, context, &found, error);
    if (!status)
        gather_add(gather, &found);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- in a snapshot -------------------------------------------------------------------------- */

struct plan_request truce__query_request(const struct query *query,
                                         const struct collection *collection,
                                         const truce_find_options *options, enum plan_goal goal)
{
    return (struct plan_request){.collection = collection,
                                 .match = query->match,
                                 .sort = options->sort,
                                 .hint = options->hint,
                                 .min = options->min,
                                 .max = options->max,
                                 .goal = goal,
                                 .backward = options->backward};
}

/* Plans the query in the reader's snapshot. A query over a missing collection is done. */
static truce_status query_make_plan(struct query *query, const struct reader *reader,
                                    const truce_find_options *options, enum plan_goal goal,
                                    bson_error_t *error)
{
    const struct collection *collection = truce__catalog_find(reader->catalog, query->collection);
    struct plan_request request = truce__query_request(query, collection, options, goal);
    truce_status status;

    if (!collection) {
        query->done = true;
        return TRUCE_OK;
    }
    query->table = collection->id;
    status = truce__plan_make(&request, &query->plan, error);
    truce__scan_init(&query->scan, &query->plan, query->table, query->match, &query->context);
    return status;
}

truce_status truce__query_init(struct query *query, struct engine *engine, const char *collection,
                               const bson_t *filter, const truce_find_options *options,
                               enum plan_goal goal, bson_error_t *error)
{
    struct reader *reader;
    truce_status status;

    *query = (struct query){
        .engine = engine, .collection = bson_strdup(collection), .early = options->early};
    query->context = truce__engine_context(engine, &query->arena);
    query->context.budget = &query->budget;
    truce__engine_budget(engine, options->deadline_ms, &query->budget);
    status = truce__engine_usable(engine, error);
    if (!status)
        status = truce__match_new(filter, &query->match, error);
    if (!status)
        status = truce__engine_read_begin(engine, query->early, &reader, error);
    if (status)
        return status;
    status = query_make_plan(query, reader, options, goal, error);
    if (status || query->done)
        truce__engine_read_end(engine, reader);
    else
        query->reader = reader;
    return status;
}

/* Leaves the snapshot, which ends unless it is kept. */
static void query_leave(struct query *query)
{
    if (!query->reader)
        return;
    if (query->snapshot)
        truce__snapshot_leave(query->snapshot);
    else
        truce__engine_read_end(query->engine, query->reader);
    query->reader = NULL;
}

/* Ends the kept snapshot of a query. In a forked child the kept snapshot belongs to the parent. */
static void query_release_snapshot(struct query *query)
{
    query_leave(query);
    if (query->snapshot && !truce__engine_usable(query->engine, NULL))
        truce__snapshot_release(query->snapshot);
    query->snapshot = NULL;
}

void truce__query_release(struct query *query)
{
    query_release_snapshot(query);
    truce__scan_release(&query->scan);
    truce__plan_release(&query->plan);
    truce__match_free(query->match);
    truce__arena_release(&query->arena);
    bson_free(query->collection);
}

/* Keeps the snapshot and leaves it. */
static truce_status query_keep_snapshot(struct query *query, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (query->snapshot || query->engine->snapshot) {
        query_leave(query);
        return TRUCE_OK;
    }
    status = truce__snapshot_register(&query->engine->snapshots, query->reader, NULL,
                                      &query->snapshot, error);
    if (status)
        truce__readers_end(&query->engine->readers, query->reader);
    query->reader = NULL;
    return status;
}

/* Enters the snapshot again. A query never occupies a slot of the pool for longer than a part. */
truce_status truce__query_enter(struct query *query, bson_error_t *error)
{
    truce_status status = truce__engine_usable(query->engine, error);

    if (!status && query->reader && query->ran)
        status = query_keep_snapshot(query, error);
    query->ran = true;
    if (status || query->reader)
        return status;
    return query->snapshot
               ? truce__snapshot_enter(query->snapshot, &query->reader, error)
               : truce__engine_read_begin(query->engine, query->early, &query->reader, error);
}

static truce_status query_run_snapshot(struct query *query, struct kv *kv, scan_take_function *take,
                                       void *arg, bson_error_t *error)
{
    truce_status status = truce__scan_each(&query->scan, kv, SNAPSHOT_ENTRIES, take, arg, error);

    if (status == TRUCE_NOT_FOUND) {
        query->done = true;
        status = TRUCE_OK;
    }
    truce__scan_pause(&query->scan);
    return status;
}

truce_status truce__query_run(struct query *query, scan_take_function *take, void *arg,
                              bson_error_t *error)
{
    truce_status status;

    if (query->done)
        return TRUCE_OK;
    status = truce__query_enter(query, error);
    if (status)
        return status;
    status = query_run_snapshot(query, query->reader->kv, take, arg, error);
    if (status)
        query_leave(query);
    else if (query->done)
        query_release_snapshot(query);
    return status;
}

truce_status truce__query_pause(struct query *query, bool more, bson_error_t *error)
{
    if (query->reader && more)
        return query_keep_snapshot(query, error);
    query_release_snapshot(query);
    return TRUCE_OK;
}

bool truce__query_sorted(const struct query *query)
{
    return query->done || query->plan.sorted;
}

/* ---- counting ------------------------------------------------------------------------------- */

struct counting {
    /* The number of matches so far, and the number that is enough or 0 for all. */
    int64_t count, enough;
};

static bool query_count_one(const struct found *found, void *arg)
{
    struct counting *counting = arg;

    (void)found;
    return ++counting->count != counting->enough;
}

static bool has_enough(const struct counting *counting)
{
    return counting->enough && counting->count == counting->enough;
}

/* Counts the entries of all ranges in one part. Counting entries is fast, and SQLite ends when the
 * time has expired. */
static truce_status query_count_entries(struct query *query, struct kv *kv,
                                        struct counting *counting, bson_error_t *error)
{
    /* This key is above every key, because no encoding begins with ff. */
    static const uint8_t above_all[] = {0xff};
    const struct plan_scan *scan = &query->plan.scans[0];
    truce_status status = TRUCE_OK;

    truce_assert(query->plan.count == 1 && scan->index);
    for (uint32_t i = 0; i < scan->count && !status && !has_enough(counting); i++) {
        const struct key_range *range = &scan->ranges[i];
        struct bytes from = {range->from.bytes, range->from.size};
        struct bytes to = {range->to.bytes, range->to.size};
        int64_t left = counting->enough - counting->count, entries = 0;

        if (!to.size)
            to = (struct bytes){above_all, sizeof above_all};
        status = truce__budget_check(&query->budget, error);
        if (!status)
            status = truce__kv_keys_within(kv, scan->index, from, to, counting->enough ? left : 0,
                                           &entries, error);
        counting->count += entries;
        query->scan.keys_examined += entries;
    }
    query->done = true;
    return status;
}

static truce_status count_covered(struct query *query, struct counting *counting,
                                  bson_error_t *error)
{
    truce_status status = truce__query_enter(query, error);

    if (status)
        return status;
    truce__kv_bound(query->reader->kv, &query->budget);
    status = query_count_entries(query, query->reader->kv, counting, error);
    truce__kv_bound(query->reader->kv, NULL);
    query_release_snapshot(query);
    return status;
}

int64_t truce__count_cut(int64_t count, const truce_find_options *options)
{
    int64_t left = count > options->skip ? count - options->skip : 0;

    return options->limit && left > options->limit ? options->limit : left;
}

truce_status truce__query_count(struct query *query, int64_t skip, int64_t limit, int64_t *count,
                                bson_error_t *error)
{
    bool bounded = limit && limit <= INT64_MAX - skip;
    struct counting counting = {.enough = bounded ? skip + limit : 0};
    truce_status status = TRUCE_OK;

    if (query->plan.covered)
        status = query->done ? TRUCE_OK : count_covered(query, &counting, error);
    else
        status = truce__query_run_all(query, query_count_one, &counting, error);
    *count = counting.count > skip ? counting.count - skip : 0;
    return status;
}

/* ---- gathered documents --------------------------------------------------------------------- */

/*
 * Stores documents for sorts without an index, and for writes, which find all documents before they
 * change the first one.
 *
 * Documents to be sorted go through the sorter of query/sort/sort.h, packed as
 *
 *     | row, 8 bytes | array index of the match, 8 bytes | the document |
 */

struct packed {
    int64_t row, array_index;
};

void truce__found_pack(const struct found *found, struct buffer *packed)
{
    struct packed head = {found->row, found->match.array_index};

    packed->size = 0;
    truce__buffer_append(packed, &head, sizeof head);
    truce__buffer_append(packed, found->document.data, found->document.size);
}

void truce__found_unpack(const void *packed, uint32_t size, struct found *found)
{
    struct packed head;

    truce_assert(size > sizeof head);
    memcpy(&head, packed, sizeof head);
    found->row = head.row;
    found->match = (struct match_result){.matched = true, .array_index = head.array_index};
    found->document = (struct value){(const uint8_t *)packed + sizeof head,
                                     size - (uint32_t)sizeof head, BSON_TYPE_DOCUMENT};
}

void truce__gather_release(struct gather *gather)
{
    for (size_t i = 0; i < gather->count; i++) {
        if (gather->items[i].document)
            bson_destroy(gather->items[i].document);
    }
    if (gather->items != &gather->first)
        bson_free(gather->items);
    *gather = (struct gather){0};
}

/* Makes room for more items. Most selections have one item, which needs no memory of its own. */
static void gather_grow(struct gather *gather)
{
    struct gathered *more = &gather->first;

    gather->room = gather->room ? gather->room * 4 : 1;
    if (gather->room > 1)
        more = bson_malloc(gather->room * sizeof *more);
    if (gather->count)
        memcpy(more, gather->items, gather->count * sizeof *more);
    if (gather->items != &gather->first)
        bson_free(gather->items);
    gather->items = more;
}

/* Appends a match to the list, with a copy of its document unless only rows are wanted. */
static void gather_add(struct gather *gather, const struct found *found)
{
    struct gathered *item;
    bson_t document;

    if (gather->count == gather->room)
        gather_grow(gather);
    item = &gather->items[gather->count++];
    item->row = found->row;
    item->match = found->match;
    item->document = NULL;
    if (gather->rows_only)
        return;
    truce__value_bson(found->document, &document);
    if (gather->count == 1) {
        item->document = &gather->first_document;
        bson_copy_to(&document, item->document);
    } else {
        item->document = bson_copy(&document);
    }
}
