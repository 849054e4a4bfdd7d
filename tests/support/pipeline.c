#include "tests/support/pipeline.h"

#include "tests/support/test.h"

struct list_source {
    struct source base;
    struct pipeline_world *environment;
    /* The filter, or NULL. Owned. */
    struct match *match;
    /* The documents that were not read yet. Valid if `any` is true. */
    struct fields fields;
    /* `any`: the list exists. `counts`: its documents are counted in `pulled` of the environment,
     * otherwise in `given`. */
    bool any, counts;
    /* The document that was returned last, a view of the list. */
    bson_t current;
};

/* Returns the next document of the list that matches the filter, and counts it. */
static truce_status list_next(struct source *base, const bson_t **document, bson_error_t *error)
{
    struct list_source *source = (struct list_source *)base;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    truce_status status = TRUCE_OK;

    *document = NULL;
    while (!status && source->any && truce__fields_next(&source->fields)) {
        struct match_result found = {.matched = true};

        if (source->match)
            status =
                truce__match_test(source->match, source->fields.value, &context, &found, error);
        if (status || !found.matched)
            continue;
        if (source->counts)
            source->environment->pulled++;
        else
            source->environment->given++;
        truce__value_bson(source->fields.value, &source->current);
        *document = &source->current;
        break;
    }
    truce__arena_release(&arena);
    return status;
}

static void list_free(struct source *base)
{
    truce__match_free(((struct list_source *)base)->match);
    bson_free(base);
}

static struct list_source *list_source(struct pipeline_world *environment, const bson_t *documents)
{
    struct list_source *source = BSON_ALIGNED_ALLOC0(struct list_source);

    source->base = (struct source){list_next, list_free};
    source->environment = environment;
    source->any = documents != NULL;
    if (documents)
        source->fields = truce__fields(truce__value_document(documents));
    return source;
}

/* Opens a collection of the environment with a filter. An unknown collection is empty. */
static truce_status environment_open(void *arg, const char *collection, const bson_t *filter,
                                     struct source **source, bson_error_t *error)
{
    struct pipeline_world *environment = arg;
    struct list_source *made;
    const bson_t *documents = NULL;
    truce_status status = TRUCE_OK;

    if (++environment->opened == environment->fail_open)
        return truce__fail(TRUCE_IO, error, "the collection fails, as the test asked");
    for (int i = 0; i < 4; i++) {
        if (environment->collections[i] && !strcmp(environment->collections[i], collection))
            documents = environment->documents[i];
    }
    made = list_source(environment, documents);
    environment->filtered += filter && !bson_empty(filter);
    if (filter)
        status = truce__match_new(filter, &made->match, error);
    if (status)
        list_free(&made->base);
    else
        *source = &made->base;
    return status;
}

static bool environment_indexed(void *arg, const char *collection, const char *path)
{
    return ((struct pipeline_world *)arg)->indexed;
}

static truce_status environment_out(void *arg, const char *collection, const bson_t *document,
                                    bool last, bson_error_t *error)
{
    struct pipeline_world *environment = arg;
    struct arena arena = ARENA_INIT;

    CHECK(last == !document);
    truce__value_append_element(
        &environment->out, &environment->out_count,
        document ? truce__value_document(document)
                 : truce__value_from_text(&arena, collection, strlen(collection)));
    truce__arena_release(&arena);
    return TRUCE_OK;
}

static truce_status environment_merge(void *arg, const bson_t *stage, const bson_t *document,
                                      struct query_context *context, bson_error_t *error)
{
    struct pipeline_world *environment = arg;
    bson_t both = BSON_INITIALIZER;

    CHECK_INT(environment->merges++ == 0, ==, !document);
    if (!document)
        return TRUCE_OK;
    BSON_APPEND_DOCUMENT(&both, "stage", stage);
    BSON_APPEND_DOCUMENT(&both, "document", document);
    truce__value_append_element(&environment->merged, &environment->merged_count,
                                truce__value_document(&both));
    bson_destroy(&both);
    return TRUCE_OK;
}

static truce_status environment_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    return memory_spill_open(&((struct pipeline_world *)arg)->spill, spill, error);
}

void pipeline_world_init(struct pipeline_world *environment)
{
    memset(environment, 0, sizeof *environment);
    bson_init(&environment->out);
    bson_init(&environment->merged);
    truce__random_seed(&environment->random, 1);
}

void pipeline_world_release(struct pipeline_world *environment)
{
    for (int i = 0; i < 4; i++)
        bson_destroy(environment->documents[i]);
    bson_destroy(&environment->out);
    bson_destroy(&environment->merged);
    CHECK_INT(environment->spill.opened, ==, environment->spill.freed);
}

void pipeline_world_add(struct pipeline_world *environment, const char *name, bson_t *documents)
{
    int i = 0;

    while (environment->collections[i])
        i++;
    environment->collections[i] = name;
    environment->documents[i] = documents;
}

static truce_status read_output(struct source *output, bson_t *result, bson_error_t *error)
{
    uint32_t count = 0;

    for (;;) {
        const bson_t *document;
        truce_status status = output->next(output, &document, error);

        if (status || !document)
            return status;
        truce__value_append_element(result, &count, truce__value_document(document));
    }
}

truce_status pipeline_run(struct pipeline_world *environment, const bson_t *stages,
                          const bson_t *documents, bson_t *result, bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {
        .now_ms = 1000, .random = &environment->random, .arena = &arena};
    struct aggregate_environment given = {.arg = environment,
                                          .open = environment_open,
                                          .indexed = environment_indexed,
                                          .out = environment->read_only ? NULL : environment_out,
                                          .merge =
                                              environment->read_only ? NULL : environment_merge,
                                          .spill = environment->spills ? environment_spill : NULL,
                                          .memory_max = environment->memory_max};
    struct pipeline *pipeline = NULL;
    struct source *output = NULL;
    truce_status status = truce__pipeline_new(stages, &pipeline, error);

    bson_init(result);
    if (!status) {
        struct list_source *input = list_source(environment, documents);

        input->counts = true;
        status = truce__pipeline_open(pipeline, 0, &input->base, &given, &context, &output, error);
    }
    if (!status)
        status = read_output(output, result, error);
    if (output)
        output->free(output);
    truce__pipeline_free(pipeline);
    truce__arena_release(&arena);
    return status;
}

bson_t *test_array(const char *json)
{
    bson_t *whole = test_bson(json), borrowed, *copy;

    truce__value_bson(truce__value_field(truce__value_document(whole), "v", 1), &borrowed);
    copy = bson_copy(&borrowed);
    bson_destroy(whole);
    return copy;
}

void pipeline_check(struct pipeline_world *environment, const char *stages, const char *documents,
                    const char *expected)
{
    bson_t *list = test_array(stages), *input = test_array(documents);
    bson_t *wanted = test_array(expected), result;
    bson_error_t error;

    CHECK_OK(pipeline_run(environment, list, input, &result, &error), error);
    if (!CHECK_BSON(wanted, &result))
        test_fail(__FILE__, __LINE__, "of %s", stages);
    bson_destroy(list);
    bson_destroy(input);
    bson_destroy(wanted);
    bson_destroy(&result);
}

void pipeline_check_refused(struct pipeline_world *environment, const char *stages, uint32_t code)
{
    bson_t *list = test_array(stages), *input = test_array("{'v': [{'_id': 1, 'a': [1, 2]}]}");
    bson_t result;
    bson_error_t error = {0};
    truce_status status = pipeline_run(environment, list, input, &result, &error);

    if (status == TRUCE_OK || error.code != code)
        test_fail(__FILE__, __LINE__, "%s: %d, code %u instead of %u: %s", stages, status,
                  error.code, code, error.message);
    CHECK(status == TRUCE_OK || error.message[0] != '\0');
    bson_destroy(list);
    bson_destroy(input);
    bson_destroy(&result);
}
