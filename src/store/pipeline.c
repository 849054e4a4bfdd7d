/*
 * Aggregation over any store.
 *
 *     backend's documents -> input -> stages of query/ -> output -> truce_cursor
 *                                        |
 *                                        +-- world: this file, on the store's own public verbs
 *
 * The cursor owns everything of its pipeline. $out writes into a collection of its own, named
 * "tmp.agg_out.<ObjectId>", with the indexes of the target, and renames it over the target when the
 * last document is in: readers see the old collection or the new one. A crash before leaves the
 * temporary collection; a cursor that fails or is closed before removes it.
 *
 * All that a pipeline reads is of one moment: where a stage reads other collections ($lookup, $unionWith), a view
 * of the store is taken first, and both the input and these stages read it. What $out and $merge write goes to the
 * store, and is not read. A name may stand for a pipeline over another collection (alias.h): then that is read.
 */
#include "store/pipeline.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/random.h"
#include "store/alias.h"
#include "store/file/file.h"
#include "store/merge_stage.h"

#define STEPS_OF_DOCUMENT 256 /* that goes through the pipeline */

#define OUT_BATCH         1000
#define OUT_BATCH_BYTES   (4 * 1024 * 1024)

struct out_state {
    char temporary[TRUCE_COLLECTION_NAME_MAX + 1]; /* empty: $out has not begun */
    bson_t *batch[OUT_BATCH];
    size_t count, bytes;
};

struct pipeline_cursor {
    truce_cursor base;
    truce_store *store; /* where it writes */
    truce_store *
        reads; /* where other collections are read: the moment of the input; its own, if not `store` */
    struct pipeline *pipeline;
    struct source *output;
    struct query_context context;
    struct arena arena;
    struct random random;
    struct aggregate_world world;
    struct budget budget;
    struct out_state out;
    struct merge *merge;     /* of $merge, from its first document on */
    bool unvalidated;        /* what it writes */
    struct aliases *aliases; /* NULL: every name is a collection's */
};

/* ---- the world: other collections ----------------------------------------------------------- */

struct find_source {
    struct source base;
    truce_cursor *cursor;
};

static truce_status pipeline_find_next(struct source *base, const bson_t **document,
                                       bson_error_t *error)
{
    return truce_cursor_next(((struct find_source *)base)->cursor, document, error);
}

static void pipeline_find_free(struct source *base)
{
    truce_cursor_close(((struct find_source *)base)->cursor);
    bson_free(base);
}

/* What is left of the call's time; 0: it has no deadline. */
static truce_status time_left(struct pipeline_cursor *cursor, uint32_t *left_ms,
                              bson_error_t *error)
{
    truce_status status = truce__budget_look(&cursor->budget, error);
    int64_t left_ns;

    *left_ms = 0;
    if (status || !cursor->budget.deadline_ns)
        return status;
    left_ns = cursor->budget.deadline_ns - truce__clock_monotonic_ns();
    *left_ms = left_ns > 0 ? (uint32_t)(left_ns / 1000000 + 1) : 1;
    return TRUCE_OK;
}

/* A pipeline of its own, in which names mean what they mean here. */
static truce_status open_alias(struct pipeline_cursor *cursor, const struct alias *alias,
                               const bson_t *filter, uint32_t deadline_ms, truce_cursor **opened,
                               bson_error_t *error)
{
    const truce_aggregate_options options = {.deadline_ms = deadline_ms,
                                             .allow_disk_use = cursor->world.spill != NULL};
    struct aliases *before = truce__aliases_use(cursor->aliases);
    truce_status status;
    bson_t stages;

    truce__alias_pipeline(alias, filter, &stages);
    status = truce_aggregate(cursor->reads, alias->on, &stages, &options, opened, error);
    truce__aliases_use(before);
    bson_destroy(&stages);
    return status;
}

static truce_status world_open(void *arg, const char *collection, const bson_t *filter,
                               struct source **source, bson_error_t *error)
{
    struct pipeline_cursor *cursor = arg;
    const struct alias *alias = truce__aliases_find(cursor->aliases, collection);
    struct find_source *made = bson_malloc0(sizeof(*made));
    truce_find_options options = {0};
    truce_status status = time_left(cursor, &options.deadline_ms, error);

    if (!status && alias)
        status = open_alias(cursor, alias, filter, options.deadline_ms, &made->cursor, error);
    else if (!status)
        status = truce_find(cursor->reads, collection, filter, &options, &made->cursor, error);

    made->base = (struct source){pipeline_find_next, pipeline_find_free};
    if (status) {
        bson_free(made);
        made = NULL;
    }
    *source = (struct source *)made;
    return status;
}

/* Does the definition serve every equality at the path? Sparse, partial and hidden ones do not. */
static bool serves(struct value definition, const char *path)
{
    struct fields key = truce__fields(truce__value_field(definition, "key", 3));

    return truce__fields_next(&key) && !strcmp(key.key, path) &&
           !truce__value_truth(truce__value_field(definition, "sparse", 6)) &&
           !truce__value_truth(truce__value_field(definition, "hidden", 6)) &&
           truce__value_field(definition, "partialFilterExpression", 23).type == VALUE_MISSING;
}

static bool world_indexed(void *arg, const char *collection, const char *path)
{
    struct pipeline_cursor *cursor = arg;
    const struct alias *alias = truce__aliases_find(cursor->aliases, collection);
    struct fields fields;
    bool found = false;
    char *asked = NULL;
    bson_t indexes;

    if (alias) {
        collection = alias->on;
        path = asked = truce__alias_path(alias, path);
    }
    if (!path)
        return false;
    if (truce_index_list(cursor->reads, collection, &indexes, NULL) == TRUCE_OK)
        for (fields = truce__fields(truce__value_document(&indexes)); truce__fields_next(&fields);)
            found = found || serves(fields.value, path);
    bson_destroy(&indexes);
    bson_free(asked);
    return found;
}

/* ---- the world: $out ------------------------------------------------------------------------ */

static truce_status copy_indexes(struct pipeline_cursor *cursor, const char *collection,
                                 bson_error_t *error)
{
    truce_status status;
    bson_iter_t iter;
    bson_t indexes;

    status = truce_index_list(cursor->store, collection, &indexes, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    else if (!status && bson_iter_init(&iter, &indexes))
        while (!status && bson_iter_next(&iter)) {
            struct value definition = truce__value_of_iter(&iter);
            bson_t index;

            truce__value_bson(definition, &index);
            status = truce_index_create(cursor->store, cursor->out.temporary, &index, error);
        }
    bson_destroy(&indexes);
    return status;
}

/* What is written has to pass the validator of what it replaces, and its changes are kept as those were. */
static truce_status copy_options(struct pipeline_cursor *cursor, const char *collection,
                                 bson_error_t *error)
{
    const truce_list_options wanted = {.collection = collection, .unmeasured = true};
    bson_t list, one, validator;
    truce_status status = truce_collection_list(cursor->store, &wanted, &list, error);
    struct fields fields = truce__fields(truce__value_document(&list));

    while (!status && truce__fields_next(&fields)) {
        truce__value_bson(fields.value, &one);
        if (truce__value_subdocument(&one, "validator", &validator))
            status =
                truce_collection_validate(cursor->store, cursor->out.temporary, &validator, error);
        if (!status && bson_has_field(&one, "images"))
            status = truce__file_keep_images(cursor->store, cursor->out.temporary, true, error);
    }
    bson_destroy(&list);
    return status;
}

static truce_status out_begin(struct pipeline_cursor *cursor, const char *collection,
                              bson_error_t *error)
{
    truce_status status;
    bson_oid_t oid;
    char text[25];

    if (cursor->out.temporary[0])
        return TRUCE_OK;
    bson_oid_init(&oid, NULL);
    bson_oid_to_string(&oid, text);
    snprintf(cursor->out.temporary, sizeof(cursor->out.temporary), "tmp.agg_out.%s", text);
    status = truce_collection_create(cursor->store, cursor->out.temporary, error);
    if (!status)
        status = copy_indexes(cursor, collection, error);
    return status ? status : copy_options(cursor, collection, error);
}

static void out_empty(struct out_state *out)
{
    for (size_t i = 0; i < out->count; i++)
        bson_destroy(out->batch[i]);
    out->count = out->bytes = 0;
}

static truce_status out_flush(struct pipeline_cursor *cursor, bson_error_t *error)
{
    struct out_state *out = &cursor->out;
    truce_write *writes = bson_malloc0((out->count + 1) * sizeof(*writes));
    truce_write_outcome *outcomes = bson_malloc0((out->count + 1) * sizeof(*outcomes));
    truce_status status;

    for (size_t i = 0; i < out->count; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = out->temporary,
                                  .document = out->batch[i],
                                  .options.unvalidated = cursor->unvalidated};
    status = truce_bulk(cursor->store, writes, out->count, NULL, outcomes, error);
    for (size_t i = 0; i < out->count; i++)
        truce_write_result_release(&outcomes[i].result);
    out_empty(out);
    bson_free(writes);
    bson_free(outcomes);
    return status;
}

static truce_status out_end(struct pipeline_cursor *cursor, const char *collection,
                            bson_error_t *error)
{
    truce_status status = out_flush(cursor, error);

    if (!status)
        status =
            truce_collection_rename(cursor->store, cursor->out.temporary, collection, true, error);
    if (!status)
        cursor->out.temporary[0] = '\0';
    return status;
}

static truce_status world_out(void *arg, const char *collection, const bson_t *document, bool last,
                              bson_error_t *error)
{
    struct pipeline_cursor *cursor = arg;
    struct out_state *out = &cursor->out;
    truce_status status = out_begin(cursor, collection, error);

    if (!status && document) {
        out->batch[out->count++] = bson_copy(document);
        out->bytes += document->len;
        if (out->count == OUT_BATCH || out->bytes > OUT_BATCH_BYTES)
            status = out_flush(cursor, error);
    }
    if (!status && last)
        status = out_end(cursor, collection, error);
    return status;
}

static void out_abandon(struct pipeline_cursor *cursor)
{
    truce_status status = TRUCE_OK;

    out_empty(&cursor->out);
    if (cursor->out.temporary[0])
        status = truce_collection_drop(cursor->store, cursor->out.temporary, NULL);
    /* A failure is ignored: the cursor is closed already, or has told a failure before. */
    (void)status;
}

static truce_status world_merge(void *arg, const bson_t *stage, const bson_t *document,
                                struct query_context *context, bson_error_t *error)
{
    struct pipeline_cursor *cursor = arg;

    truce_status status = TRUCE_OK;

    if (!cursor->merge)
        status = truce__merge_new(cursor->store, stage, cursor->unvalidated, &cursor->merge, error);
    if (!status && document)
        status = truce__merge_put(cursor->merge, document, context, error);
    return status;
}

/* ---- the world: spilling -------------------------------------------------------------------- */

struct file_spill {
    struct spill base;
    FILE *file;
};

static truce_status spill_write(struct spill *base, const void *bytes, size_t size,
                                bson_error_t *error)
{
    struct file_spill *spill = (struct file_spill *)base;

    if (fwrite(bytes, 1, size, spill->file) != size)
        return truce__fail(TRUCE_IO, error, "cannot write to a temporary file: %m");
    return TRUCE_OK;
}

static truce_status spill_rewind(struct spill *base, bson_error_t *error)
{
    struct file_spill *spill = (struct file_spill *)base;

    if (fflush(spill->file) || fseeko(spill->file, 0, SEEK_SET))
        return truce__fail(TRUCE_IO, error, "cannot rewind a temporary file: %m");
    return TRUCE_OK;
}

static truce_status spill_read(struct spill *base, void *bytes, size_t size, size_t *got,
                               bson_error_t *error)
{
    struct file_spill *spill = (struct file_spill *)base;

    *got = fread(bytes, 1, size, spill->file);
    if (*got < size && ferror(spill->file))
        return truce__fail(TRUCE_IO, error, "cannot read from a temporary file: %m");
    return TRUCE_OK;
}

static void spill_free(struct spill *base)
{
    fclose(((struct file_spill *)base)->file);
    bson_free(base);
}

/* A file below TMPDIR that has no name any more: it goes away with its descriptor. */
static FILE *open_unnamed(void)
{
    const char *directory = getenv("TMPDIR");
    char *name =
        bson_strdup_printf("%s/truce-spill-XXXXXX", directory && *directory ? directory : "/tmp");
    int descriptor = mkstemp(name);
    FILE *file = NULL;

    if (descriptor >= 0) {
        unlink(name);
        file = fdopen(descriptor, "w+");
        if (!file)
            close(descriptor);
    }
    bson_free(name);
    return file;
}

truce_status truce__store_spill(struct spill **spill, bson_error_t *error)
{
    struct file_spill *made;
    FILE *file = open_unnamed();

    *spill = NULL;
    if (!file)
        return truce__fail(TRUCE_IO, error, "cannot make a temporary file: %m");
    made = bson_malloc0(sizeof(*made));
    made->base = (struct spill){spill_write, spill_rewind, spill_read, spill_free};
    made->file = file;
    *spill = &made->base;
    return TRUCE_OK;
}

static truce_status world_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    return truce__store_spill(spill, error);
}

/* ---- the cursor ----------------------------------------------------------------------------- */

static truce_status pipeline_cursor_next(truce_cursor *base, const bson_t **document,
                                         bson_error_t *error)
{
    struct pipeline_cursor *cursor = (struct pipeline_cursor *)base;

    truce_status status = truce__budget_spend(&cursor->budget, STEPS_OF_DOCUMENT, error);

    return status ? status : cursor->output->next(cursor->output, document, error);
}

static void pipeline_cursor_close(truce_cursor *base)
{
    struct pipeline_cursor *cursor = (struct pipeline_cursor *)base;

    if (cursor->output)
        cursor->output->free(cursor->output);
    if (cursor->reads != cursor->store)
        truce_store_close(cursor->reads);
    out_abandon(cursor);
    truce__merge_free(cursor->merge);
    truce__aliases_release(cursor->aliases);
    truce__pipeline_free(cursor->pipeline);
    truce__arena_release(&cursor->arena);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {pipeline_cursor_next, pipeline_cursor_close};

static struct pipeline_cursor *cursor_new(truce_store *store, struct pipeline *pipeline,
                                          const truce_aggregate_options *options)
{
    struct pipeline_cursor *cursor = bson_malloc0(sizeof(*cursor));

    cursor->base.ops = &cursor_ops;
    cursor->store = store;
    cursor->pipeline = pipeline;
    cursor->unvalidated = options->unvalidated;
    cursor->aliases = truce__aliases_hold(truce__aliases_used());
    truce__random_seed(&cursor->random, truce__random_entropy());
    cursor->context = (struct query_context){.now_ms = truce__clock_wall_ms(),
                                             .random = &cursor->random,
                                             .budget = &cursor->budget,
                                             .arena = &cursor->arena};
    cursor->world = (struct aggregate_world){.arg = cursor,
                                             .open = world_open,
                                             .indexed = world_indexed,
                                             .out = world_out,
                                             .merge = world_merge,
                                             .spill = options->allow_disk_use ? world_spill : NULL};
    truce__store_budget(store, options->deadline_ms, &cursor->budget);
    cursor->budget.memory_max = TRUCE_PIPELINE_MEMORY_MAX;
    return cursor;
}

truce_status truce__store_pipeline_cursor(truce_store *store, truce_store *reads,
                                          struct pipeline *pipeline, uint32_t first,
                                          struct source *input,
                                          const truce_aggregate_options *options,
                                          truce_cursor **cursor, bson_error_t *error)
{
    struct pipeline_cursor *made = cursor_new(store, pipeline, options);
    truce_status status;

    made->reads = reads ? reads : store;
    status = truce__pipeline_open(pipeline, first, input, &made->world, &made->context,
                                  &made->output, error);

    truce_assert(!status == (made->output != NULL));
    if (status) {
        pipeline_cursor_close(&made->base);
        made = NULL;
    }
    *cursor = (truce_cursor *)made;
    return status;
}
