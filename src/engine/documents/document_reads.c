/*
 * Reading: find, count, distinct, and lookups of several documents.
 *
 * A cursor has one of three kinds:
 *
 *     point     the filter is exactly {_id: value}: one lookup when it is opened
 *     batches   documents come in the requested order: batches of them are copied out of one
 *               snapshot (query.c), which is kept while more may follow, and returned one by one
 *     sorted    otherwise: all documents go through a sorter when it is opened
 *
 * Invariant:
 *  1. Several documents that are looked up by their _ids are those of one snapshot. A document from
 *     the cache is one of them if the cache had it before the snapshot began, and still has it
 *     afterwards (truce__cache_view).
 */
#include "base/assert.h"
#include "engine/documents/query.h"
#include "query/distinct.h"
#include "query/project/find_result.h"
#include "query/project/project.h"

/* The number of documents in the first batch, which suffices for most readers. */
#define BATCH_FIRST 64
/* The number of documents in each further batch. A batch also ends when it has BATCH_BYTES
 * bytes. */
#define BATCH_DOCUMENTS 1024
#define BATCH_BYTES     (256 * 1024)

/* ---- one document by its _id ---------------------------------------------------------------- */

struct point_cursor {
    truce_cursor base;
    /* The document was returned. */
    bool given;
    struct buffer body;
    /* The document, which borrows from `body`. */
    bson_t document;
};

static truce_status next_of_point(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct point_cursor *cursor = (struct point_cursor *)base;

    (void)error;
    *document = cursor->given ? NULL : &cursor->document;
    cursor->given = true;
    return TRUCE_OK;
}

static void close_point(truce_cursor *base)
{
    struct point_cursor *cursor = (struct point_cursor *)base;

    truce__buffer_release(&cursor->body);
    bson_free(cursor);
}

static const truce_cursor_ops point_ops = {next_of_point, close_point};

/* Looks up the document by the key of its _id. Returns NOT_FOUND if it does not exist. On success
 * `body` is borrowed until the read ends. */
static truce_status read_look_up(struct engine *engine, struct reader *reader, const char *name,
                                 struct bytes key, int64_t *row, struct bytes *body,
                                 bson_error_t *error)
{
    const struct collection *collection = truce__catalog_find(reader->catalog, name);

    if (!collection)
        return TRUCE_NOT_FOUND;
    return truce__hints_look_up(engine->hints, reader->kv, collection->indexes[0].id,
                                collection->id, key, &reader->id, row, body, error);
}

static truce_status reads_fail_damaged(const char *name, bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error,
                       "a document of \"%s\" is damaged: truce check shows all damage", name);
}

/* Appends the document with that key of its _id to `found`, from a snapshot of current data.
 * Returns NOT_FOUND if it does not exist. Either result is durable when the number `*promised` is
 * (durable.h). */
static truce_status read_point(struct engine *engine, const char *name, struct bytes key,
                               const struct cache_lookup *cached, uint64_t *promised,
                               struct buffer *found, bson_error_t *error)
{
    struct reader *reader;
    struct bytes body;
    int64_t row;
    truce_status status = truce__engine_read_begin(engine, true, &reader, error);

    if (status)
        return status;
    *promised = engine->cache ? truce__cache_promised(engine->cache, name, key)
                              : truce__durable_promised(&engine->durable);
    status = read_look_up(engine, reader, name, key, &row, &body, error);
    if (!status)
        truce__buffer_append(found, body.data, body.size);
    if (!status && engine->cache)
        truce__cache_fill(engine->cache, name, key, cached, row, body);
    truce__engine_read_end(engine, reader);
    return status;
}

/* Does the same for a view. The cache has current documents; the view's snapshot contains those
 * that are older than it. */
static truce_status view_point(struct engine *engine, const char *name, struct bytes key,
                               struct buffer *found, bson_error_t *error)
{
    struct reader *reader;
    struct bytes body;
    struct cache_lookup lookup;
    int64_t row;
    truce_status status = truce__engine_read_begin(engine, false, &reader, error);
    bool cached = false;

    if (status)
        return status;
    if (engine->cache)
        cached =
            truce__cache_view(engine->cache, engine->cache_snapshot, name, key, found, &lookup);
    if (!cached)
        status = read_look_up(engine, reader, name, key, &row, &body, error);
    if (!cached && !status)
        truce__buffer_append(found, body.data, body.size);
    truce__engine_read_end(engine, reader);
    return status;
}

/* Checks from time to time that the files are those that were opened, because the cache has
 * documents of those files. */
static truce_status check_files(struct engine *engine, bson_error_t *error)
{
    return truce__file_identity_check_sometimes(&engine->lock, &engine->readers.checked_ms, error);
}

/* Reads a document by its _id: from the snapshot of the view, from the cache, or from the file.
 * Unless `early` is set, waits until the document, or its absence, is on disk. */
static truce_status get_point(struct engine *engine, const char *name, struct value id, bool early,
                              struct buffer *found, bson_error_t *error)
{
    struct cache_lookup lookup = {0};
    struct buffer key = {0};
    struct bytes wanted;
    truce_status status = TRUCE_OK;

    truce__key_append(&key, id, false);
    wanted = (struct bytes){key.bytes, key.size};
    early = early || engine->snapshot;
    if (engine->snapshot)
        status = view_point(engine, name, wanted, found, error);
    else if (!engine->cache || !truce__cache_get(engine->cache, name, wanted, found, &lookup))
        status = read_point(engine, name, wanted, &lookup, &lookup.promised, found, error);
    else
        status = check_files(engine, error);
    truce__buffer_release(&key);
    if (!early && (!status || status == TRUCE_NOT_FOUND)) {
        truce_status settled = truce__durable_wait(&engine->durable, lookup.promised, error);

        status = settled ? settled : status;
    }
    return status;
}

/* Opens a cursor over the document with that _id, which it reads at once. The cursor is empty if
 * the document does not exist. */
static truce_status find_point(struct engine *engine, const char *name, struct value id, bool early,
                               truce_cursor **cursor, bson_error_t *error)
{
    struct point_cursor *made;
    truce_status status = truce__engine_usable(engine, error);

    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    made->base.ops = &point_ops;
    status = get_point(engine, name, id, early, &made->body, error);
    made->given = status == TRUCE_NOT_FOUND;
    if (!status && !bson_init_static(&made->document, made->body.bytes, made->body.size))
        status = reads_fail_damaged(name, error);
    if (made->given)
        status = TRUCE_OK;
    *cursor = status ? NULL : &made->base;
    if (status)
        close_point(&made->base);
    return status;
}

/* ---- several documents by their _ids -------------------------------------------------------- */

/* Computes the key of the request's _id in `key`. */
static struct bytes read_key_of(const truce_read_request *request, struct buffer *key)
{
    bson_t wrapped = BSON_INITIALIZER;

    BSON_APPEND_VALUE(&wrapped, "", request->id);
    key->size = 0;
    truce__key_append(key, truce__value_field(truce__value_document(&wrapped), "", 0), false);
    bson_destroy(&wrapped);
    return (struct bytes){key->bytes, key->size};
}

static truce_status read_keep_document(truce_read_request *request, struct bytes body,
                                       bson_error_t *error)
{
    bson_t borrowed;

    if (!bson_init_static(&borrowed, body.data, body.size))
        return reads_fail_damaged(request->collection, error);
    bson_destroy(&request->document);
    bson_copy_to(&borrowed, &request->document);
    request->found = true;
    return TRUCE_OK;
}

/* The number of a snapshot (truce__cache_snapshot), and the result of the lookup of each document
 * in the cache before a snapshot of the file began. */
struct read_cached {
    uint64_t snapshot;
    struct cache_lookup *lookups;
};

/* Takes the documents that the cache has, as one snapshot shows them. Returns whether it has all of
 * them. */
static bool take_cached(struct engine *engine, truce_read_request *requests,
                        const struct read_cached *cached, size_t count, uint64_t *promised)
{
    struct buffer key = {0}, body = {0};
    bool all = true;

    *promised = 0;
    for (size_t i = 0; i < count; i++) {
        struct cache_lookup *lookup = &cached->lookups[i];

        body.size = 0;
        all = truce__cache_view(engine->cache, cached->snapshot, requests[i].collection,
                                read_key_of(&requests[i], &key), &body, lookup) &&
              !read_keep_document(&requests[i], (struct bytes){body.bytes, body.size}, NULL) && all;
        if (*promised < lookup->promised)
            *promised = lookup->promised;
    }
    truce__buffer_release(&key);
    truce__buffer_release(&body);
    return all;
}

/* Returns whether a document that the cache had is that of the reader's snapshot, too. */
static bool read_still_cached(struct engine *engine, const truce_read_request *request,
                              struct bytes key, uint64_t snapshot)
{
    struct cache_lookup again;

    return request->found &&
           truce__cache_view(engine->cache, snapshot, request->collection, key, NULL, &again);
}

/* Reads one document, from the cache if possible. `number` is that of the request. `cached` is from
 * before the reader's snapshot, or NULL if the cache is not used. */
static truce_status read_one_of_many(struct engine *engine, struct reader *reader,
                                     truce_read_request *request, const struct read_cached *cached,
                                     size_t number, bson_error_t *error)
{
    struct bytes key = read_key_of(request, &reader->key), body;
    truce_status status;
    int64_t row;

    /* Invariant 1. */
    if (cached && read_still_cached(engine, request, key, cached->snapshot))
        return TRUCE_OK;
    if (request->found)
        bson_reinit(&request->document);
    request->found = false;
    status = read_look_up(engine, reader, request->collection, key, &row, &body, error);
    if (status)
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    if (cached)
        truce__cache_fill(engine->cache, request->collection, key, &cached->lookups[number], row,
                          body);
    return read_keep_document(request, body, error);
}

static truce_status read_many_documents(struct engine *engine, truce_read_request *requests,
                                        const struct read_cached *cached, size_t count,
                                        bson_error_t *error)
{
    struct reader *reader;
    truce_status status = truce__engine_read_begin(engine, false, &reader, error);

    if (status)
        return status;
    for (size_t i = 0; i < count && !status; i++)
        status = read_one_of_many(engine, reader, &requests[i], cached, i, error);
    truce__engine_read_end(engine, reader);
    return status;
}

/* Reads current data: what the cache has, and the rest from a snapshot of the file. */
static truce_status read_many_current(struct engine *engine, truce_read_request *requests,
                                      size_t count, bson_error_t *error)
{
    struct read_cached cached = {.snapshot = truce__cache_snapshot(engine->cache),
                                 .lookups = bson_malloc(count * sizeof *cached.lookups)};
    truce_status status;
    uint64_t promised;

    if (take_cached(engine, requests, &cached, count, &promised)) {
        status = check_files(engine, error);
        if (!status)
            status = truce__durable_wait(&engine->durable, promised, error);
    } else
        status = read_many_documents(engine, requests, &cached, count, error);
    bson_free(cached.lookups);
    return status;
}

truce_status truce__engine_read_many(struct engine *engine, truce_read_request *requests,
                                     size_t count, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);

    for (size_t i = 0; i < count; i++) {
        bson_init(&requests[i].document);
        requests[i].found = false;
    }
    if (status)
        return status;
    return engine->cache && !engine->snapshot
               ? read_many_current(engine, requests, count, error)
               : read_many_documents(engine, requests, NULL, count, error);
}

truce_status truce__engine_settle(struct engine *engine, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);

    if (engine->snapshot)
        return status;
    if (status || engine->relaxed)
        return status;
    return truce__durable_wait(&engine->durable, truce__durable_promised(&engine->durable), error);
}

/* ---- cursors -------------------------------------------------------------------------------- */

struct read_cursor {
    truce_cursor base;
    struct query query;
    /* The form in which documents are returned, or NULL for whole documents. */
    struct find_result *shown;
    /* The number of documents to skip, and the number to return, or -1 for all. */
    int64_t skip, left;

    /* The documents of the batch, packed, each after its size. */
    struct buffer batch;
    /* The position of the next document in the batch. */
    size_t at;
    /* The number of documents in the batch. */
    int64_t count;
    /* The number of documents that this batch should have. */
    int64_t wanted;

    struct sort sort;
    /* Sorts the documents, or NULL if they are returned in batches. */
    struct sorter *sorter;
    struct buffer packed;
    /* The first error of adding a document to the sorter. */
    truce_status sorting;
    bson_error_t sorting_error;

    struct found found;
    /* `document` borrows from the batch or the sorter. `projected` is owned. */
    bson_t document, projected;
};

/* Packs a match into the batch of the cursor, after skipping. Returns false when the batch is
 * full. */
static bool take_into_batch(const struct found *found, void *arg)
{
    struct read_cursor *cursor = arg;
    uint32_t size;

    if (cursor->skip) {
        cursor->skip--;
        return true;
    }
    truce__found_pack(found, &cursor->packed);
    size = (uint32_t)cursor->packed.size;
    truce__buffer_append(&cursor->batch, &size, sizeof size);
    truce__buffer_append(&cursor->batch, cursor->packed.bytes, size);
    return ++cursor->count < cursor->wanted && cursor->batch.size < BATCH_BYTES;
}

/* Fills the next batch. An empty batch is the end. */
static truce_status read_fill(struct read_cursor *cursor, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    cursor->batch.size = cursor->at = 0;
    cursor->count = 0;
    cursor->wanted = cursor->wanted ? BATCH_DOCUMENTS : BATCH_FIRST;
    if (cursor->left >= 0 && cursor->left < cursor->wanted)
        cursor->wanted = cursor->left;
    if (!cursor->wanted)
        return TRUCE_OK;
    while (!status && !cursor->count && !cursor->query.done)
        status = truce__query_run(&cursor->query, take_into_batch, cursor, error);
    if (!status)
        status = truce__query_pause(&cursor->query, cursor->count != cursor->left, error);
    return status;
}

/* Unpacks the next document of the batch, and reads the next batch at the end of the current
 * one. */
static truce_status next_in_batch(struct read_cursor *cursor, bool *end, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t size;

    if (cursor->at == cursor->batch.size)
        status = read_fill(cursor, error);
    *end = cursor->at == cursor->batch.size;
    if (status || *end)
        return status;
    memcpy(&size, cursor->batch.bytes + cursor->at, sizeof size);
    truce__found_unpack(cursor->batch.bytes + cursor->at + sizeof size, size, &cursor->found);
    cursor->at += sizeof size + size;
    return TRUCE_OK;
}

/* Unpacks the next document of the sorter, after the documents to skip. */
static truce_status next_in_sorter(struct read_cursor *cursor, bool *end, bson_error_t *error)
{
    const void *packed = NULL;
    uint32_t size = 0;
    truce_status status;

    do
        status = truce__sorter_next(cursor->sorter, &packed, &size, error);
    while (!status && packed && cursor->skip && cursor->skip--);
    *end = status || !packed;
    if (!*end)
        truce__found_unpack(packed, size, &cursor->found);
    return status;
}

/* Returns the document that was found, or what is shown of it. The result is valid until the next
 * call. */
static truce_status read_show(struct read_cursor *cursor, const bson_t **document,
                              bson_error_t *error)
{
    truce_status status;

    truce__value_bson(cursor->found.document, &cursor->document);
    *document = &cursor->document;
    if (!cursor->shown)
        return TRUCE_OK;
    bson_destroy(&cursor->projected);
    truce__arena_reset(&cursor->query.arena);
    status = truce__find_result_make(cursor->shown, cursor->found.document, &cursor->found.match,
                                     cursor->found.row, &cursor->query.context, &cursor->projected,
                                     error);
    *document = status ? NULL : &cursor->projected;
    return status;
}

/* Returns the next document of the cursor, up to its limit, or NULL at the end. */
static truce_status next_document(truce_cursor *base, const bson_t **document, bson_error_t *error)
{
    struct read_cursor *cursor = (struct read_cursor *)base;
    bool end = cursor->left == 0;
    truce_status status = TRUCE_OK;

    *document = NULL;
    if (!end)
        status = cursor->sorter ? next_in_sorter(cursor, &end, error)
                                : next_in_batch(cursor, &end, error);
    if (status || end)
        return status;
    cursor->left -= cursor->left > 0;
    return read_show(cursor, document, error);
}

static void read_close_cursor(truce_cursor *base)
{
    struct read_cursor *cursor = (struct read_cursor *)base;

    truce__sorter_free(cursor->sorter);
    truce__sort_release(&cursor->sort);
    truce__find_result_free(cursor->shown);
    truce__query_release(&cursor->query);
    truce__buffer_release(&cursor->batch);
    truce__buffer_release(&cursor->packed);
    bson_destroy(&cursor->projected);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {next_document, read_close_cursor};

/* ---- all remaining documents ---------------------------------------------------------------- */

struct feeding {
    struct read_cursor *cursor;
    document_take *take;
    void *arg;
    /* The last status of `take`. */
    truce_status status;
    bson_error_t *error;
};

static bool feed_one(const struct found *found, void *arg)
{
    struct feeding *feeding = arg;
    struct read_cursor *cursor = feeding->cursor;

    feeding->status = feeding->take(feeding->arg, found->document, feeding->error);
    cursor->left -= cursor->left > 0;
    return !feeding->status && cursor->left != 0;
}

/* Passes the documents that no batch contains yet directly from the file to `take`. */
static truce_status reads_stream_rest(struct read_cursor *cursor, document_take *take, void *arg,
                                      bson_error_t *error)
{
    struct feeding feeding = {.cursor = cursor, .take = take, .arg = arg, .error = error};
    truce_status status = TRUCE_OK;

    if (cursor->left != 0)
        status = truce__query_run_all(&cursor->query, feed_one, &feeding, error);
    return status ? status : feeding.status;
}

truce_status truce__engine_each(truce_cursor *base, document_take *take, void *arg,
                                bson_error_t *error)
{
    struct read_cursor *cursor = base->ops == &cursor_ops ? (struct read_cursor *)base : NULL;
    const bson_t *document;
    truce_status status;

    truce_assert(!cursor || (!cursor->skip && !cursor->shown));
    for (;;) {
        if (cursor && !cursor->sorter && cursor->at == cursor->batch.size)
            return reads_stream_rest(cursor, take, arg, error);
        status = base->ops->next(base, &document, error);
        if (status || !document)
            return status;
        status = take(arg, truce__value_document(document), error);
        if (status)
            return status;
    }
}

static bool take_into_sorter(const struct found *found, void *arg)
{
    struct read_cursor *cursor = arg;

    truce__found_pack(found, &cursor->packed);
    cursor->sorting = truce__sorter_add(cursor->sorter, found->document, cursor->packed.bytes,
                                        (uint32_t)cursor->packed.size, &cursor->sorting_error);
    return !cursor->sorting;
}

/* Reads and sorts all matches, because no index has their order. With a limit, keeps only the best
 * ones. */
static truce_status read_sort_all(struct read_cursor *cursor, const truce_find_options *options,
                                  bson_error_t *error)
{
    struct spill_options spill = {.open =
                                      options->allow_disk_use ? cursor->query.engine->spill : NULL,
                                  .budget = &cursor->query.budget};
    uint64_t best = options->limit ? (uint64_t)options->skip + (uint64_t)options->limit : 0;
    truce_status status = truce__sort_parse(options->sort, &cursor->sort, error);

    if (status)
        return status;
    truce__sorter_new(&cursor->sort, best, &spill, &cursor->sorter);
    status = truce__query_run_all(&cursor->query, take_into_sorter, cursor, error);
    if (!status && cursor->sorting) {
        status = cursor->sorting;
        *error = cursor->sorting_error;
    }
    return status ? status : truce__sorter_sort(cursor->sorter, error);
}

/* Finds the index whose keys are returned: the one of the hint, otherwise the only one in use.
 * Returns NULL if there is no such index. */
static truce_status shown_index(const struct query *query, const bson_t *hint,
                                const struct index **index, bson_error_t *error)
{
    const struct collection *collection =
        query->reader ? truce__catalog_find(query->reader->catalog, query->collection) : NULL;
    truce_status status = TRUCE_OK;

    *index = NULL;
    if (collection)
        status = truce__plan_hinted(collection, hint, index, error);
    if (!status && collection && !*index && query->plan.count == 1 && query->plan.scans[0].index)
        *index = truce__collection_index_id(collection, query->plan.scans[0].index);
    return status;
}

/* Prepares what the cursor shows of a document: a projection, the keys of the index, or the number
 * of the row. */
static truce_status read_open_shown(struct read_cursor *cursor, const truce_find_options *options,
                                    bson_error_t *error)
{
    const struct query *query = &cursor->query;
    const struct index *index = NULL;
    struct find_result_options wanted = {.projection = options->projection,
                                         .match = query->match,
                                         .key = options->return_key,
                                         .min = options->min,
                                         .max = options->max,
                                         .record_id = options->show_record_id};
    truce_status status = TRUCE_OK;

    if (options->return_key)
        status = shown_index(query, options->hint, &index, error);
    wanted.index = index ? &index->spec : NULL;
    return status ? status : truce__find_result_new(&wanted, &cursor->shown, error);
}

/* Plans the query of a cursor and reads the first batch, or sorts all matches. */
static truce_status read_open_cursor(struct read_cursor *cursor, struct engine *engine,
                                     const char *collection, const bson_t *filter,
                                     const truce_find_options *options, enum plan_goal goal,
                                     bson_error_t *error)
{
    truce_status status =
        truce__query_init(&cursor->query, engine, collection, filter, options, goal, error);

    cursor->skip = options->skip;
    cursor->left = options->limit ? options->limit : -1;
    if (!status)
        status = read_open_shown(cursor, options, error);
    if (status)
        return status;
    if (goal != PLAN_IF_SORTED && !truce__query_sorted(&cursor->query))
        return read_sort_all(cursor, options, error);
    /* The first batch is read at once, so that data is current and errors are reported here. */
    return read_fill(cursor, error);
}

static truce_status read_find(struct engine *engine, const char *collection, const bson_t *filter,
                              const truce_find_options *options, enum plan_goal goal,
                              struct read_cursor **cursor, bson_error_t *error)
{
    struct read_cursor *made = bson_malloc0(sizeof *made);
    truce_status status;

    made->base.ops = &cursor_ops;
    bson_init(&made->projected);
    status = read_open_cursor(made, engine, collection, filter, options, goal, error);
    if (status)
        read_close_cursor(&made->base);
    *cursor = status ? NULL : made;
    return status;
}

truce_status truce__engine_find(struct engine *engine, const char *collection, const bson_t *filter,
                                const truce_find_options *options, truce_cursor **cursor,
                                bson_error_t *error)
{
    struct value id = truce__only_id(filter);
    struct read_cursor *made;
    truce_status status;

    *cursor = NULL;
    if (id.type != VALUE_MISSING && !options->hint && !options->skip && !options->projection &&
        !options->sort && !options->return_key && !options->show_record_id)
        return find_point(engine, collection, id, options->early, cursor, error);
    status = read_find(engine, collection, filter, options, PLAN_DOCUMENTS, &made, error);
    if (!status)
        *cursor = &made->base;
    return status;
}

truce_status truce__engine_find_if_sorted(struct engine *engine, const char *collection,
                                          const bson_t *filter, const truce_find_options *options,
                                          truce_cursor **cursor, bool *sorted, bson_error_t *error)
{
    struct read_cursor *made;
    truce_status status =
        read_find(engine, collection, filter, options, PLAN_IF_SORTED, &made, error);

    *sorted = !status && made->query.plan.sorted;
    *cursor = status ? NULL : &made->base;
    return status;
}

/* ---- count and distinct --------------------------------------------------------------------- */

/* Counts the rows of a collection, for a count without a filter. SQLite counts them faster than a
 * scan. */
static truce_status read_count_all(struct engine *engine, const char *name, uint32_t deadline_ms,
                                   int64_t *count, bson_error_t *error)
{
    const struct collection *collection;
    struct reader *reader;
    struct budget budget;
    truce_status status = truce__engine_usable(engine, error);

    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    truce__engine_budget(engine, deadline_ms, &budget);
    truce__kv_bound(reader->kv, &budget);
    collection = truce__catalog_find(reader->catalog, name);
    if (collection)
        status = truce__kv_rows_count(reader->kv, collection->id, count, error);
    truce__kv_bound(reader->kv, NULL);
    truce__engine_read_end(engine, reader);
    return status;
}

truce_status truce__engine_count(struct engine *engine, const char *collection,
                                 const bson_t *filter, const truce_find_options *options,
                                 int64_t *count, bson_error_t *error)
{
    struct query query;
    truce_status status;

    *count = 0;
    if (bson_empty(filter) && !options->hint) {
        status = read_count_all(engine, collection, options->deadline_ms, count, error);
        *count = truce__count_cut(*count, options);
        return status;
    }
    status = truce__query_init(&query, engine, collection, filter, options, PLAN_COUNT, error);
    if (!status)
        status = truce__query_count(&query, options->skip, options->limit, count, error);
    truce__query_release(&query);
    return status;
}

/* ---- distinct ------------------------------------------------------------------------------- */

struct collecting {
    struct distinct *distinct;
    struct budget *budget;
    truce_status status;
    bson_error_t error;
};

static bool collect_one(const struct found *found, void *arg)
{
    struct collecting *collecting = arg;

    collecting->status = truce__distinct_add(collecting->distinct, found->document,
                                             collecting->budget, &collecting->error);
    return !collecting->status;
}

truce_status truce__engine_distinct(struct engine *engine, const char *collection, const char *path,
                                    const bson_t *filter, bson_t *values, bson_error_t *error)
{
    static const truce_find_options all = {0};
    struct query query;
    struct collecting collecting = {.budget = &query.budget};
    truce_status status =
        truce__query_init(&query, engine, collection, filter, &all, PLAN_DOCUMENTS, error);

    if (!status)
        status = truce__distinct_new(path, &collecting.distinct, error);
    if (!status)
        status = truce__query_run_all(&query, collect_one, &collecting, error);
    if (!status && collecting.status) {
        status = collecting.status;
        *error = collecting.error;
    }
    if (status)
        bson_init(values);
    else
        truce__distinct_values(collecting.distinct, values);
    truce__distinct_free(collecting.distinct);
    truce__query_release(&query);
    return status;
}
