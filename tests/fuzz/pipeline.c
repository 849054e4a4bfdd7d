/*
 * A pipeline and documents, with a memory so small that sorts and groups spill. Whatever it is, it
 * must end with a status: no crash, no hang, no memory leak, no result that is not a document.
 *
 * The first byte chooses between raw BSON, {p: [stages], d: [documents]}, and a pipeline made from
 * decisions.
 */
#include "query/aggregate/aggregate.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "tests/support/fuzz_input.h"
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

struct environment {
    struct value documents;
    struct memory_spills spills;
};

static truce_status environment_open(void *arg, const char *collection, const bson_t *filter,
                                     struct source **source, bson_error_t *error)
{
    *source = list_new(((struct environment *)arg)->documents);
    return TRUCE_OK;
}

static truce_status environment_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    return memory_spill_open(&((struct environment *)arg)->spills, spill, error);
}

static void run(struct pipeline *pipeline, struct value documents)
{
    struct environment environment = {.documents = documents};
    struct aggregate_environment given = {.arg = &environment,
                                          .open = environment_open,
                                          .spill = environment_spill,
                                          .memory_max = 4096};
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
    truce_assert(environment.spills.opened == environment.spills.freed);
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

/* ---- a pipeline made from decisions --------------------------------------------------------- */

static const char *const paths[] = {"a",     "b",     "c", "a.b", "b.c", "a.0", "_id",
                                    "_id.a", "a.b.c", "x", "x.y", "a.",  "$a"};
static const char *const values[] = {"$a",     "$b",          "$c",    "$a.b",     "$b.c", "$_id",
                                     "$$ROOT", "$$CURRENT.a", "$$NOW", "$$REMOVE", "$$v",  "a"};
static const char *const operators[] = {"$add",          "$concat",       "$eq",  "$gt",
                                        "$concatArrays", "$divide",       "$mod", "$arrayElemAt",
                                        "$ifNull",       "$setUnion",     "$and", "$cmp",
                                        "$in",           "$mergeObjects", "$nope"};
static const char *const accumulators[] = {
    "$sum",      "$avg",          "$min",       "$max",        "$first", "$last", "$push",
    "$addToSet", "$mergeObjects", "$stdDevPop", "$stdDevSamp", "$count", "$nope"};

static void append_expression(struct fuzz_input *input, bson_t *to, const char *key, unsigned depth)
{
    bson_t call, operands;

    switch (fuzz_below(input, depth ? 5 : 3)) {
    case 0:
        bson_append_utf8(to, key, -1, FUZZ_PICK(input, values), -1);
        break;
    case 1:
        bson_append_int32(to, key, -1, (int32_t)fuzz_below(input, 5) - 1);
        break;
    case 2:
        fuzz_append(input, to, key, 2);
        break;
    case 3: /* a document of expressions */
        bson_append_document_begin(to, key, -1, &call);
        for (uint32_t i = fuzz_below(input, 3); i-- > 0;)
            append_expression(input, &call, FUZZ_PICK(input, paths), depth - 1);
        bson_append_document_end(to, &call);
        break;
    default:
        bson_append_document_begin(to, key, -1, &call);
        bson_append_array_begin(&call, FUZZ_PICK(input, operators), -1, &operands);
        for (uint32_t i = fuzz_below(input, 3); i-- > 0;)
            append_expression(input, &operands, i ? "1" : "0", depth - 1);
        bson_append_array_end(&call, &operands);
        bson_append_document_end(to, &call);
    }
}

static void append_fields(struct fuzz_input *input, bson_t *stage)
{
    for (uint32_t i = fuzz_below(input, 4); i-- > 0;)
        append_expression(input, stage, FUZZ_PICK(input, paths), 2);
}

static void append_outputs(struct fuzz_input *input, bson_t *stage)
{
    static const char *const names[] = {"x", "y", "a", "count"};
    bson_t one;

    for (uint32_t i = fuzz_below(input, 3); i-- > 0;) {
        bson_append_document_begin(stage, FUZZ_PICK(input, names), -1, &one);
        append_expression(input, &one, FUZZ_PICK(input, accumulators), 1);
        bson_append_document_end(stage, &one);
    }
}

static void append_path(struct fuzz_input *input, bson_t *stage, const char *option)
{
    if (fuzz_below(input, 16))
        bson_append_utf8(stage, option, -1, FUZZ_PICK(input, paths), -1);
}

static void append_pipeline(struct fuzz_input *input, bson_t *to, const char *key, unsigned depth);

static void append_filter(struct fuzz_input *input, bson_t *stage, const char *option)
{
    bson_t *filter = fuzz_filter(input, 2);

    bson_append_document(stage, option, -1, filter);
    bson_destroy(filter);
}

static void append_lookup(struct fuzz_input *input, bson_t *stage, unsigned depth)
{
    BSON_APPEND_UTF8(stage, "from", "other");
    append_path(input, stage, "as");
    if (fuzz_below(input, 2)) {
        append_path(input, stage, "localField");
        append_path(input, stage, "foreignField");
    }
    if (depth && fuzz_below(input, 2)) {
        bson_t let;

        BSON_APPEND_DOCUMENT_BEGIN(stage, "let", &let);
        append_expression(input, &let, "v", 1);
        bson_append_document_end(stage, &let);
        append_pipeline(input, stage, "pipeline", depth - 1);
    }
}

static void append_graph(struct fuzz_input *input, bson_t *stage)
{
    BSON_APPEND_UTF8(stage, "from", "other");
    append_expression(input, stage, "startWith", 1);
    append_path(input, stage, "connectFromField");
    append_path(input, stage, "connectToField");
    append_path(input, stage, "as");
    if (fuzz_below(input, 2))
        append_path(input, stage, "depthField");
    if (fuzz_below(input, 2))
        bson_append_int32(stage, "maxDepth", -1, (int32_t)fuzz_below(input, 4) - 1);
    if (fuzz_below(input, 2))
        append_filter(input, stage, "restrictSearchWithMatch");
}

static void append_bucket(struct fuzz_input *input, bson_t *stage, bool automatic)
{
    static const char *const series[] = {"R5", "1-2-5", "E6", "POWERSOF2", "nope"};
    bson_t inner;
    char key[4];

    append_expression(input, stage, "groupBy", 1);
    if (automatic) {
        bson_append_int32(stage, "buckets", -1, (int32_t)fuzz_below(input, 5));
        if (fuzz_below(input, 2))
            bson_append_utf8(stage, "granularity", -1, FUZZ_PICK(input, series), -1);
    } else {
        BSON_APPEND_ARRAY_BEGIN(stage, "boundaries", &inner);
        for (uint32_t i = 0, count = fuzz_below(input, 5); i < count; i++) {
            snprintf(key, sizeof key, "%u", i);
            bson_append_int32(&inner, key, -1, (int32_t)(i + fuzz_below(input, 2)));
        }
        bson_append_array_end(stage, &inner);
        if (fuzz_below(input, 2))
            append_expression(input, stage, "default", 0);
    }
    if (fuzz_below(input, 2)) {
        BSON_APPEND_DOCUMENT_BEGIN(stage, "output", &inner);
        append_outputs(input, &inner);
        bson_append_document_end(stage, &inner);
    }
}

static void append_unwind(struct fuzz_input *input, bson_t *stage)
{
    bson_append_utf8(stage, "path", -1, FUZZ_PICK(input, values), -1);
    if (fuzz_below(input, 2))
        append_path(input, stage, "includeArrayIndex");
    if (fuzz_below(input, 2))
        BSON_APPEND_BOOL(stage, "preserveNullAndEmptyArrays", true);
}

static void append_sort(struct fuzz_input *input, bson_t *stage)
{
    for (uint32_t i = fuzz_below(input, 3); i-- > 0;)
        bson_append_int32(stage, FUZZ_PICK(input, paths), -1, fuzz_below(input, 2) ? 1 : -1);
}

static void append_facets(struct fuzz_input *input, bson_t *stage, unsigned depth)
{
    static const char *const names[] = {"a", "b", "x"};

    for (uint32_t i = fuzz_below(input, FUZZ_COUNT(names) + 1); depth && i-- > 0;)
        append_pipeline(input, stage, names[i], depth - 1);
}

/* The fields of the document of a stage; its name is one of these. */
static const char *const documents_of[] = {
    "$match", "$project", "$set",         "$group",     "$sort",   "$bucket", "$bucketAuto",
    "$facet", "$lookup",  "$graphLookup", "$unionWith", "$unwind", "$sample", "$replaceRoot"};

static void append_body(struct fuzz_input *input, const char *name, bson_t *body, unsigned depth)
{
    if (!strcmp(name, "$project") || !strcmp(name, "$set")) {
        append_fields(input, body);
    } else if (!strcmp(name, "$group")) {
        append_expression(input, body, "_id", 2);
        append_outputs(input, body);
    } else if (!strcmp(name, "$sort")) {
        append_sort(input, body);
    } else if (!strncmp(name, "$bucket", 7)) {
        append_bucket(input, body, !strcmp(name, "$bucketAuto"));
    } else if (!strcmp(name, "$facet")) {
        append_facets(input, body, depth);
    } else if (!strcmp(name, "$lookup")) {
        append_lookup(input, body, depth);
    } else if (!strcmp(name, "$graphLookup")) {
        append_graph(input, body);
    } else if (!strcmp(name, "$unionWith")) {
        BSON_APPEND_UTF8(body, "coll", "other");
        if (depth)
            append_pipeline(input, body, "pipeline", depth - 1);
    } else if (!strcmp(name, "$unwind")) {
        append_unwind(input, body);
    } else if (!strcmp(name, "$sample")) {
        bson_append_int32(body, "size", -1, (int32_t)fuzz_below(input, 9));
    } else {
        append_expression(input, body, "newRoot", 2);
    }
}

static void append_stage(struct fuzz_input *input, bson_t *stage, unsigned depth)
{
    static const char *const others[] = {"$limit",  "$skip",        "$count", "$sortByCount",
                                         "$redact", "$replaceWith", "$unset", "$nope"};
    const char *name;
    bson_t body;

    if (fuzz_below(input, 3) == 0) {
        name = FUZZ_PICK(input, others);
        if (fuzz_below(input, 2))
            append_expression(input, stage, name, 2);
        else if (!strcmp(name, "$limit") || !strcmp(name, "$skip"))
            bson_append_int64(stage, name, -1, fuzz_below(input, 5));
        else
            bson_append_utf8(stage, name, -1, FUZZ_PICK(input, paths), -1);
        return;
    }
    name = FUZZ_PICK(input, documents_of);
    if (!strcmp(name, "$match")) {
        append_filter(input, stage, name);
        return;
    }
    bson_append_document_begin(stage, name, -1, &body);
    append_body(input, name, &body, depth);
    bson_append_document_end(stage, &body);
}

static void append_pipeline(struct fuzz_input *input, bson_t *to, const char *key, unsigned depth)
{
    bson_t stages, stage;
    char number[4];

    bson_append_array_begin(to, key, -1, &stages);
    for (uint32_t i = 0, count = fuzz_below(input, 5); i < count; i++) {
        snprintf(number, sizeof number, "%u", i);
        bson_append_document_begin(&stages, number, -1, &stage);
        append_stage(input, &stage, depth);
        bson_append_document_end(&stages, &stage);
    }
    bson_append_array_end(to, &stages);
}

static void append_documents(struct fuzz_input *input, bson_t *to)
{
    bson_t documents;
    char number[4];

    BSON_APPEND_ARRAY_BEGIN(to, "d", &documents);
    for (uint32_t i = 0, count = fuzz_below(input, 8); i < count; i++) {
        bson_t *one = fuzz_document(input, 3);

        snprintf(number, sizeof number, "%u", i);
        bson_append_document(&documents, number, -1, one);
        bson_destroy(one);
    }
    bson_append_array_end(to, &documents);
}

/* ---- the input ------------------------------------------------------------------------------ */

static void run_whole(const bson_t *whole)
{
    struct value stages = truce__value_field(truce__value_document(whole), "p", 1);
    struct value documents = truce__value_field(truce__value_document(whole), "d", 1);
    struct pipeline *pipeline;
    bson_t list;

    if (stages.type != BSON_TYPE_ARRAY || documents.type != BSON_TYPE_ARRAY)
        return;
    truce__value_bson(stages, &list);
    if (!truce__pipeline_new(&list, &pipeline, NULL)) {
        run(pipeline, documents);
        truce__pipeline_free(pipeline);
    }
    update(&list, documents);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bson_t whole;

    if (fuzz_below(&input, 8) == 0) {
        if (bson_init_static(&whole, input.at, input.left) &&
            !truce__document_check(&whole, "input", NULL))
            run_whole(&whole);
        return 0;
    }
    bson_init(&whole);
    append_pipeline(&input, &whole, "p", 2);
    append_documents(&input, &whole);
    run_whole(&whole);
    bson_destroy(&whole);
    return 0;
}
