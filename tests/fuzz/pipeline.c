/*
 * A pipeline and documents from the input: {p: [stages], d: [documents]}, with a memory so small
 * that sorts and groups spill. Whatever it is, it must end with a status: no crash, no hang, no
 * memory left behind.
 */
#include "query/aggregate/aggregate.h"

#include "base/assert.h"
#include "tests/support/memory_spill.h"

#define RESULTS_MAX 10000

struct list_source {
    struct source base;
    struct fields fields;
    bson_t current;
};

static truce_status list_next(struct source *base, const bson_t **document, bson_error_t *error)
{
    struct list_source *source = (struct list_source *)base;

    *document = NULL;
    while (truce__fields_next(&source->fields)) {
        if (source->fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        truce__value_bson(source->fields.value, &source->current);
        *document = &source->current;
        break;
    }
    return TRUCE_OK;
}

static void list_free(struct source *base)
{
    bson_free(base);
}

static struct source *list_new(struct value documents)
{
    struct list_source *source = BSON_ALIGNED_ALLOC0(struct list_source);

    source->base = (struct source){list_next, list_free};
    source->fields = truce__fields(documents);
    return &source->base;
}

struct world {
    struct value documents;
    struct memory_spills spills;
};

static truce_status world_open(void *arg, const char *collection, const bson_t *filter,
                               struct source **source, bson_error_t *error)
{
    *source = list_new(((struct world *)arg)->documents);
    return TRUCE_OK;
}

static truce_status world_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    return memory_spill_open(&((struct world *)arg)->spills, spill, error);
}

static void run(struct pipeline *pipeline, struct value documents)
{
    struct world world = {.documents = documents};
    struct aggregate_world given = {
        .arg = &world, .open = world_open, .spill = world_spill, .memory_max = 4096};
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = 1, .arena = &arena};
    struct source *output = NULL;
    bson_error_t error;
    truce_status status =
        truce__pipeline_open(pipeline, 0, list_new(documents), &given, &context, &output, &error);

    for (int i = 0; !status && i < RESULTS_MAX; i++) {
        const bson_t *document;

        status = output->next(output, &document, &error);
        if (status || !document)
            break;
        status = truce__document_check(document, "result", &error);
    }
    if (output)
        output->free(output);
    truce_assert(world.spills.opened == world.spills.freed);
    truce__arena_release(&arena);
}

static void update(const bson_t *stages, struct value documents)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = 1, .arena = &arena};
    struct pipeline *pipeline;
    struct fields fields = truce__fields(documents);
    bson_t result;

    if (truce__pipeline_new_update(stages, &pipeline, NULL))
        return;
    while (truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_DOCUMENT)
            continue;
        (void)!truce__pipeline_apply(pipeline, fields.value, &context, &result, NULL);
        bson_destroy(&result);
        truce__arena_reset(&arena);
    }
    truce__pipeline_free(pipeline);
    truce__arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct value stages, documents;
    struct pipeline *pipeline;
    bson_t whole, list;

    if (!bson_init_static(&whole, data, size) || truce__document_check(&whole, "input", NULL))
        return 0;
    stages = truce__value_field(truce__value_document(&whole), "p", 1);
    documents = truce__value_field(truce__value_document(&whole), "d", 1);
    if (stages.type != BSON_TYPE_ARRAY || documents.type != BSON_TYPE_ARRAY)
        return 0;
    truce__value_bson(stages, &list);
    if (!truce__pipeline_new(&list, &pipeline, NULL)) {
        run(pipeline, documents);
        truce__pipeline_free(pipeline);
    }
    update(&list, documents);
    return 0;
}
