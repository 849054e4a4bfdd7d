#include "engine/documents/collections.h"

#include "base/assert.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/index_build.h"
#include "engine/documents/open_documents.h"
#include "engine/documents/query.h"
#include "engine/storage/kv_table.h"
#include "query/index/index_set.h"
#include "query/input_check.h"
#include "query/match/validator.h"

/* Finds out whether the collection has a document with that _id, within the transaction of the
 * writer. */
static truce_status names_find_document(struct writer *writer, const struct name_document *document,
                                        bool *there, bson_error_t *error)
{
    struct query_context context = {.arena = &writer->arena};
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(document->id));
    const struct collection *collection;
    struct selector selector = {0};
    const struct selection selection = {.selector = &selector, .limit = 1};
    struct gather found = {0};
    truce_status status =
        truce__writer_collection(writer, document->collection, &collection, error);

    if (!status && collection) {
        status = truce__selector_init(filter, false, &selector, error);
        if (!status)
            status = truce__select(&selection, writer, collection, &context, &found, error);
        *there = !status && found.count;
        truce__gather_release(&found);
        truce__selector_release(&selector);
    }
    bson_destroy(filter);
    return status;
}

/* Checks, before a collection gets this name, that no view has it (error 166). Writes nothing. */
static truce_status names_free(struct writer *writer, const char *name, bson_error_t *error)
{
    /* A server in this process may set `names` at any time. */
    const struct names *names = __atomic_load_n(&writer->names, __ATOMIC_ACQUIRE);
    struct name_document document;
    bool there = false;
    truce_status status = TRUCE_OK;

    if (names && names->document_of(names, name, &document))
        status = names_find_document(writer, &document, &there, error);
    return !there ? status
                  : truce__refuse(CODE_COMMAND_NOT_SUPPORTED_ON_VIEW, error,
                                  "Namespace %s is a view, not a collection", document.id);
}

truce_status truce__names_add_collection(struct writer *writer, const char *name,
                                         bson_error_t *error)
{
    truce_status status = names_free(writer, name, error);

    if (status)
        return status;
    status = truce__catalog_add_collection(writer->kv, name, error);
    truce__writer_catalog_changed(writer);
    return status;
}

/* ---- changes of the catalog ----------------------------------------------------------------- */

/* A change of the catalog as an operation of the writer. */
struct catalog_op {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    truce_status (*change)(struct catalog_op *op, struct writer *writer, bson_error_t *error);
    /* The name of the collection, and its new name or the name of an index. */
    const char *name, *other;
    bool drop_target;
    struct budget budget;
    /* The options with which the collection is created, or to which they change. */
    struct collection_options options;
    /* The result of the change. The status of `base` is that of the transaction. */
    truce_status status;
    bson_error_t error;
};

static void reset_change(struct write_op *base)
{
    struct catalog_op *op = (struct catalog_op *)base;

    op->status = TRUCE_OK;
    op->error = (bson_error_t){0};
}

/* Runs a change of the catalog within the time of its call. A change that was refused has written
 * nothing and leaves the transaction usable. */
static truce_status run_change(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct catalog_op *op = (struct catalog_op *)base;

    truce__kv_bound(writer->kv, &op->budget);
    op->status = op->change(op, writer, &op->error);
    truce__kv_bound(writer->kv, NULL);
    /* A refused change has written nothing: every status with a code is returned before the first
     * write, except for TIMEOUT, after which SQLite has rolled back. */
    if (op->status && (op->error.domain == TRUCE_ERROR || op->status == TRUCE_TIMEOUT)) {
        *error = op->error;
        return op->status;
    }
    return TRUCE_OK;
}

/* Runs a change of the catalog in the writer. The status is the change's own, or that of the
 * transaction. */
static truce_status collections_run(struct engine *engine, struct catalog_op *op,
                                    bson_error_t *error)
{
    truce_status status = truce__engine_writable(engine, error);

    if (status)
        return status;
    op->base.reset = reset_change;
    op->base.run = run_change;
    op->base.relaxed = engine->relaxed;
    op->base.deadline_ns = truce__engine_deadline(engine, 0);
    truce__engine_budget(engine, 0, &op->budget);
    status = truce__writer_run(&engine->writer, &op->base, error);
    if (!status && op->status) {
        status = op->status;
        *error = op->error;
    }
    return status;
}

/* Records a change of the catalog, and closes the cache of documents. The threads that wait for the
 * collection are woken after the commit. Called after each change of the catalog. */
static void collections_changed(struct writer *writer, const char *name)
{
    truce__writer_catalog_changed(writer);
    truce__cache_close(writer->cache);
    truce__writer_touch(writer, name);
}

/* ---- collections ---------------------------------------------------------------------------- */

static truce_status set_validator(struct catalog_op *op, struct writer *writer, bson_error_t *error)
{
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, op->name, &collection, error);

    if (!status)
        status =
            truce__catalog_change_validator(writer->kv, collection, op->options.validator, error);
    collections_changed(writer, op->name);
    return status;
}

static truce_status set_images(struct catalog_op *op, struct writer *writer, bson_error_t *error)
{
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, op->name, &collection, error);

    if (status || collection->images == *op->options.images)
        return status;
    status = truce__catalog_change_images(writer->kv, collection, *op->options.images, error);
    collections_changed(writer, op->name);
    return status;
}

static truce_status collections_set_options(struct catalog_op *op, struct writer *writer,
                                            bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (op->options.validator)
        status = set_validator(op, writer, error);
    if (!status && op->options.images)
        status = set_images(op, writer, error);
    return status;
}

/* Refuses invalid options before anything is written. */
static truce_status collections_check_options(const struct collection_options *options,
                                              bson_error_t *error)
{
    struct match *match = NULL;
    truce_status status = TRUCE_OK;

    if (options->validator)
        status = truce__validator_new(options->validator, &match, error);
    if (match)
        truce__match_free(match);
    return status;
}

/* Creates a collection with its options. Fails if the name is taken by a collection or a view. */
static truce_status collections_create(struct catalog_op *op, struct writer *writer,
                                       bson_error_t *error)
{
    const struct collection *collection;
    truce_status status = collections_check_options(&op->options, error);

    if (!status)
        status = truce__writer_collection(writer, op->name, &collection, error);

    if (status)
        return status;
    if (collection)
        return truce__collection_taken(op->name, error);
    status = truce__names_add_collection(writer, op->name, error);
    if (status)
        return status;
    collections_changed(writer, op->name);
    status = collections_set_options(op, writer, error);
    return status ? status : truce__feed_report_made(writer, op->name, error);
}

static truce_status drop_one(struct writer *writer, const struct collection *collection,
                             const char *name, bson_error_t *error)
{
    truce_status status = truce__catalog_drop_collection(writer->kv, collection, error);

    truce__writer_touch_structure(writer);
    collections_changed(writer, name);
    return status;
}

static truce_status collections_drop(struct catalog_op *op, struct writer *writer,
                                     bson_error_t *error)
{
    struct feed_fact fact = {FEED_DROP, op->name};
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, op->name, &collection, error);

    if (status)
        return status;
    if (!collection)
        return truce__collection_missing(op->name, error);
    fact.number = collection->id;
    status = drop_one(writer, collection, op->name, error);
    return status ? status : truce__feed_report_fact(writer, &fact, error);
}

static truce_status replace_target(struct catalog_op *op, struct writer *writer, int64_t *dropped,
                                   bson_error_t *error)
{
    const struct collection *target;
    truce_status status = truce__writer_collection(writer, op->other, &target, error);

    if (status || !target)
        return status;
    if (!op->drop_target)
        return truce__collection_taken(op->other, error);
    *dropped = target->id;
    return drop_one(writer, target, op->other, error);
}

/* Renames a collection in the writer's transaction. Replaces an existing target if `drop_target` is
 * set, and reports the rename to the feed. */
static truce_status collections_rename_to(struct catalog_op *op, struct writer *writer,
                                          bson_error_t *error)
{
    struct feed_fact fact = {FEED_RENAME, op->name, op->other};
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, op->name, &collection, error);

    if (!status && !collection)
        status = truce__collection_missing(op->name, error);
    if (!status)
        status = names_free(writer, op->other, error);
    if (!status)
        status = replace_target(op, writer, &fact.dropped, error);
    if (!status)
        status = truce__writer_collection(writer, op->name, &collection, error);
    if (status)
        return status;
    fact.number = collection->id;
    status = truce__catalog_rename_collection(writer->kv, collection, op->other, error);
    truce__writer_touch_structure(writer);
    collections_changed(writer, op->name);
    collections_changed(writer, op->other);
    return status ? status : truce__feed_report_fact(writer, &fact, error);
}

truce_status truce__engine_collection_create(struct engine *engine, const char *collection,
                                             const struct collection_options *options,
                                             bson_error_t *error)
{
    struct catalog_op op = {.change = collections_create, .name = collection, .options = *options};

    return collections_run(engine, &op, error);
}

truce_status truce__engine_collection_drop(struct engine *engine, const char *collection,
                                           bson_error_t *error)
{
    struct catalog_op op = {.change = collections_drop, .name = collection};

    return collections_run(engine, &op, error);
}

truce_status truce__engine_collection_rename(struct engine *engine, const char *from,
                                             const char *to, bool drop_target, bson_error_t *error)
{
    struct catalog_op op = {
        .change = collections_rename_to, .name = from, .other = to, .drop_target = drop_target};

    return collections_run(engine, &op, error);
}

/* Gives the file an id, if it has none. */
static truce_status collections_identify(struct catalog_op *op, struct writer *writer,
                                         bson_error_t *error)
{
    const struct collection *ignored;
    truce_status status = truce__writer_collection(writer, op->name, &ignored, error);
    bson_oid_t id;

    if (status || writer->catalog->has_id)
        return status;
    bson_oid_init(&id, NULL);
    /* The id of the feed becomes the id of the file. */
    if (writer->catalog->feed.table)
        id = writer->catalog->feed.id;
    status = truce__catalog_identify(writer->kv, &id, error);
    truce__writer_catalog_changed(writer);
    return status;
}

truce_status truce__engine_identify(struct engine *engine, bson_error_t *error)
{
    /* The name does not matter: the call only loads the catalog. */
    struct catalog_op op = {.change = collections_identify, .name = ""};
    struct reader *reader;
    truce_status status = truce__engine_read_begin(engine, false, &reader, error);
    bool has_id;

    if (status)
        return status;
    has_id = reader->catalog->has_id;
    truce__engine_read_end(engine, reader);
    return has_id || engine->read_only ? TRUCE_OK : collections_run(engine, &op, error);
}

/* ---- lists ---------------------------------------------------------------------------------- */

static uint32_t count_ready(const struct collection *collection)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < collection->indexes_count; i++)
        count += collection->indexes[i].state == INDEX_READY;
    return count;
}

/* Appends storage and unused (of the documents) and indexBytes: {name: bytes}. */
static truce_status measure_pages(struct kv *kv, const struct collection *collection,
                                  bson_t *description, bson_error_t *error)
{
    struct kv_size size;
    bson_t indexes = BSON_INITIALIZER;
    truce_status status = truce__kv_size(kv, false, collection->id, &size, error);

    BSON_APPEND_INT64(description, "storage", size.bytes);
    BSON_APPEND_INT64(description, "unused", size.unused);
    for (uint32_t i = 0; i < collection->indexes_count && !status; i++) {
        const struct index *index = &collection->indexes[i];

        if (index->state != INDEX_READY)
            continue;
        status = truce__kv_size(kv, true, index->id, &size, error);
        BSON_APPEND_INT64(&indexes, index->spec.name, size.bytes);
    }
    BSON_APPEND_DOCUMENT(description, "indexBytes", &indexes);
    bson_destroy(&indexes);
    return status;
}

static truce_status collections_measure(struct kv *kv, const struct collection *collection,
                                        bson_t *description, bson_error_t *error)
{
    int64_t documents = 0, bytes = 0;
    truce_status status = truce__kv_rows_measure(kv, collection->id, &documents, &bytes, error);

    BSON_APPEND_INT64(description, "documents", documents);
    BSON_APPEND_INT64(description, "bytes", bytes);
    BSON_APPEND_INT32(description, "indexes", (int32_t)count_ready(collection));
    return status;
}

static void collections_append_uuid(const struct catalog *catalog, int64_t number,
                                    bson_t *description)
{
    uint8_t uuid[UUID_BYTES];

    truce__catalog_uuid(&catalog->id, number, uuid);
    if (catalog->has_id)
        BSON_APPEND_BINARY(description, "uuid", BSON_SUBTYPE_UUID, uuid, sizeof uuid);
}

/* Appends the description of a collection, with the measures that the options request. */
static truce_status collections_describe(struct kv *kv, const struct collection *collection,
                                         const truce_list_options *options, bson_t *description,
                                         bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    BSON_APPEND_UTF8(description, "name", collection->name);
    if (!options->unmeasured)
        status = collections_measure(kv, collection, description, error);
    if (!status && options->pages && truce__kv_reports_sizes())
        status = measure_pages(kv, collection, description, error);
    if (collection->validator)
        BSON_APPEND_DOCUMENT(description, "validator", truce__match_filter(collection->validator));
    if (collection->images)
        BSON_APPEND_BOOL(description, "images", true);
    return status;
}

truce_status truce__engine_validator(struct engine *engine, const char *name, bson_t *validator,
                                     bson_error_t *error)
{
    const struct collection *collection;
    struct reader *reader;
    bool found;
    truce_status status = truce__engine_usable(engine, error);

    bson_init(validator);
    if (!status)
        status = truce__engine_read_begin(engine, true, &reader, error);
    if (status)
        return status;
    collection = truce__catalog_find(reader->catalog, name);
    found = collection && collection->validator;
    if (found)
        bson_concat(validator, truce__match_filter(collection->validator));
    truce__engine_read_end(engine, reader);
    /* A document may be refused because of a validator, so the validator must be durable. Without a
     * validator, only writes follow, and they reach the disk after the data that was read here. */
    return found ? truce__engine_settle(engine, error) : TRUCE_OK;
}

truce_status truce__engine_collection_list(struct engine *engine, const truce_list_options *options,
                                           bson_t *collections, bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);
    struct reader *reader = NULL;
    struct budget budget;
    uint32_t count = 0;

    bson_init(collections);
    truce__engine_budget(engine, 0, &budget);
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (reader)
        truce__kv_bound(reader->kv, &budget);
    for (uint32_t i = 0; !status && i < reader->catalog->count; i++) {
        const struct collection *collection = &reader->catalog->collections[i];
        char buffer[16];
        const char *key;
        bson_t description;

        if (options->collection && strcmp(options->collection, collection->name))
            continue;
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        bson_append_document_begin(collections, key, -1, &description);
        status = collections_describe(reader->kv, collection, options, &description, error);
        if (options->uuids)
            collections_append_uuid(reader->catalog, collection->id, &description);
        bson_append_document_end(collections, &description);
    }
    if (reader) {
        truce__kv_bound(reader->kv, NULL);
        truce__engine_read_end(engine, reader);
    }
    return status;
}

/* Appends the definitions of the ready indexes. */
static void list_indexes(const struct collection *collection, bson_t *indexes)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        char buffer[16];
        const char *key;
        bson_t definition;

        if (collection->indexes[i].state != INDEX_READY)
            continue;
        bson_uint32_to_string(count++, &key, buffer, sizeof buffer);
        truce__index_describe(&collection->indexes[i].spec, &definition);
        bson_append_document(indexes, key, -1, &definition);
        bson_destroy(&definition);
    }
}

truce_status truce__engine_index_list(struct engine *engine, const char *name, bson_t *indexes,
                                      bson_error_t *error)
{
    truce_status status = truce__engine_usable(engine, error);
    const struct collection *collection;
    struct reader *reader;

    bson_init(indexes);
    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    collection = truce__catalog_find(reader->catalog, name);
    if (collection)
        list_indexes(collection, indexes);
    else
        status = truce__collection_missing(name, error);
    truce__engine_read_end(engine, reader);
    return status;
}

/* ---- dropping indexes ----------------------------------------------------------------------- */

static truce_status collections_find_index(const struct catalog_op *op, struct writer *writer,
                                           const struct collection **collection,
                                           const struct index **index, bson_error_t *error)
{
    truce_status status = truce__writer_collection(writer, op->name, collection, error);

    if (status)
        return status;
    if (!*collection)
        return truce__collection_missing(op->name, error);
    *index = truce__collection_index(*collection, op->other);
    return *index ? TRUCE_OK : truce__index_missing(op->other, op->name, error);
}

/* Drops an index. Refuses to drop that of _id, which each collection needs. */
static truce_status drop_index(struct catalog_op *op, struct writer *writer, bson_error_t *error)
{
    const struct collection *collection;
    const struct index *index;
    truce_status status = collections_find_index(op, writer, &collection, &index, error);

    if (status)
        return status;
    if (index == collection->indexes)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "the index \"%s\" of collection \"%s\" cannot be dropped: every collection has an "
            "index of _id",
            index->spec.name, collection->name);
    if (index->state == INDEX_READY)
        status = truce__feed_report_index(writer, FEED_INDEX_DROP, collection, &index->spec, error);
    if (!status)
        status = truce__catalog_drop_index(writer->kv, collection, index->id, error);
    truce__writer_touch_structure(writer);
    collections_changed(writer, op->name);
    return status;
}

truce_status truce__engine_index_drop(struct engine *engine, const char *collection,
                                      const char *name, bson_error_t *error)
{
    struct catalog_op op = {.change = drop_index, .name = collection, .other = name};

    return collections_run(engine, &op, error);
}

/* ---- changing collections and indexes ------------------------------------------------------- */

/* Appends the values that the index has for the changed options. Omits the expiry of an index
 * without one. */
static void append_index_options(const bson_t *changes, const struct index_spec *spec, bson_t *to)
{
    if (bson_has_field(changes, "hidden"))
        BSON_APPEND_BOOL(to, "hidden", spec->hidden);
    if (bson_has_field(changes, "expireAfterSeconds") && spec->expire_after_s >= 0)
        BSON_APPEND_INT64(to, "expireAfterSeconds", spec->expire_after_s);
}

/* Makes the changed index `is`, which borrows from `was`. Refuses an invalid change. */
static truce_status change_index(const struct catalog_op *op, struct writer *writer,
                                 struct index *was, struct index *is, bson_error_t *error)
{
    const struct collection *collection;
    const struct index *index;
    truce_status status = collections_find_index(op, writer, &collection, &index, error);

    if (!status && index->state != INDEX_READY)
        status = truce__refuse(CODE_INDEX_NOT_FOUND, error, "the index \"%s\" is being built",
                               op->other);
    if (status)
        return status;
    *was = *is = *index;
    return truce__index_change(&is->spec, op->options.changes, error);
}

static void collections_append_options(const struct collection_options *options, bson_t *what)
{
    if (options->validator)
        BSON_APPEND_DOCUMENT(what, "validator", options->validator);
    if (options->images)
        BSON_APPEND_BOOL(what, "images", *options->images);
}

/* Appends {index: {name?, hidden?, expireAfterSeconds?}}. */
static void collections_append_index(const bson_t *changes, const struct index *index, bool named,
                                     bson_t *to)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(to, "index", &inner);
    if (named)
        BSON_APPEND_UTF8(&inner, "name", index->spec.name);
    append_index_options(changes, &index->spec, &inner);
    bson_append_document_end(to, &inner);
}

/* Writes the index before the options: it borrows from the catalog, which the options change. */
static truce_status write_modified(struct catalog_op *op, struct writer *writer,
                                   const struct collection *collection, const struct index *index,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (index) {
        status = truce__catalog_change_index(writer->kv, collection, index, error);
        collections_changed(writer, op->name);
    }
    return status ? status : collections_set_options(op, writer, error);
}

/* Makes all changes or none, and reports them to the feed as one change. */
static truce_status collection_modify(struct catalog_op *op, struct writer *writer,
                                      bson_error_t *error)
{
    struct feed_fact fact = {FEED_MODIFY, op->name};
    const bson_t *changes = op->options.changes;
    const struct collection *collection;
    bson_t *before, what = BSON_INITIALIZER;
    struct index was, is;
    truce_status status = truce__writer_collection(writer, op->name, &collection, error);

    if (!status && !collection)
        status = truce__collection_missing(op->name, error);
    if (!status && changes)
        status = change_index(op, writer, &was, &is, error);
    if (!status)
        status = collections_check_options(&op->options, error);
    if (status)
        return status;
    fact.number = collection->id;
    before = truce__feed_options(collection);
    collections_append_options(&op->options, &what);
    if (changes) {
        collections_append_index(changes, &was, false, before);
        collections_append_index(changes, &is, true, &what);
    }
    fact.what = &what;
    fact.before = before;
    status = write_modified(op, writer, collection, changes ? &is : NULL, error);
    /* MongoDB reports a modification without changes, too. */
    if (!status)
        status = truce__feed_report_fact(writer, &fact, error);
    bson_destroy(before);
    bson_destroy(&what);
    return status;
}

truce_status truce__engine_collection_modify(struct engine *engine, const char *collection,
                                             const struct collection_options *options,
                                             bson_error_t *error)
{
    struct catalog_op op = {.change = collection_modify,
                            .name = collection,
                            .other = options->index,
                            .options = *options};

    return collections_run(engine, &op, error);
}

truce_status truce__engine_index_modify(struct engine *engine, const char *collection,
                                        const char *name, const bson_t *changes,
                                        bson_error_t *error)
{
    const struct collection_options options = {.index = name, .changes = changes};

    return truce__engine_collection_modify(engine, collection, &options, error);
}
