/* Operations of the writer that run again after a transaction that was rolled back. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/documents/open_documents.h"
#include "tests/support/test.h"

#define DOCUMENTS 3500 /* an index of them is built in several steps */

static struct engine *engine;
static char path[400];

static bool begin(bool rehearses)
{
    const truce_store_options options = {.relaxed = true};
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    if (!CHECK_OK(truce__engine_open(path, &options, &engine, &error), error))
        return false;
    engine->writer.rehearses = rehearses;
    return true;
}

static truce_status insert(const char *collection, int from, int count, int v)
{
    truce_write *writes = bson_malloc0((size_t)count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0((size_t)count * sizeof *outcomes);
    const truce_bulk_options options = {.atomic = true};
    bson_error_t error;
    truce_status status;

    for (int i = 0; i < count; i++)
        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_INSERT,
            .collection = collection,
            .document = BCON_NEW("_id", BCON_INT32(from + i), "v", BCON_INT32(v + i))};
    status = truce__engine_bulk(engine, writes, (size_t)count, &options, outcomes, &error);
    for (int i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy((bson_t *)(uintptr_t)writes[i].document);
    }
    bson_free(outcomes);
    bson_free(writes);
    return status;
}

static truce_status build(const char *collection, bool unique, bson_error_t *error)
{
    bson_t *index = test_bson(unique ? "{'key': {'v': 1}, 'unique': true}" : "{'key': {'v': 1}}");
    truce_status status = truce__engine_index_create(engine, collection, index, error);

    bson_destroy(index);
    return status;
}

static void check_index(void)
{
    bson_error_t error;
    int64_t documents = 0, entries = 0;

    CHECK_OK(truce__engine_check(engine, &documents, &entries, &error), error);
    CHECK_INT(documents, ==, DOCUMENTS);
    CHECK_INT(entries, ==, 2 * DOCUMENTS); /* by _id and by v */
}

TEST(indexes_every_document_when_build_steps_are_rerun)
{
    bson_error_t error;

    REQUIRE(begin(true));
    CHECK_STATUS(TRUCE_OK, insert("big", 0, DOCUMENTS, 0), error);
    CHECK_OK(build("big", false, &error), error);
    check_index();
    truce__engine_close(engine);
}

TEST(keeps_a_unique_index_unique_when_build_steps_are_rerun)
{
    bson_error_t error;

    REQUIRE(begin(true));
    CHECK_STATUS(TRUCE_OK, insert("big", 0, DOCUMENTS, 0), error);
    CHECK_OK(build("big", true, &error), error);
    check_index();
    for (int i = 0; i < DOCUMENTS; i += 100)
        CHECK_STATUS(TRUCE_DUPLICATE, insert("big", DOCUMENTS + i, 1, i), error);
    truce__engine_close(engine);
}

static void *ensure(void *arg)
{
    bson_error_t error;

    (void)arg;
    while (build("big", true, &error) == TRUCE_CONFLICT)
        continue;
    return NULL;
}

/* While the index is built, other calls that ensure it fail, and so does the batch that contains a
 * step of the build. */
TEST(an_index_that_many_threads_ensure_has_every_document)
{
    pthread_t threads[8];
    bson_error_t error;

    REQUIRE(begin(false));
    CHECK_STATUS(TRUCE_OK, insert("big", 0, DOCUMENTS, 0), error);
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, ensure, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(build("big", true, &error), error);
    check_index();
    truce__engine_close(engine);
}

static atomic_bool over;

static void *be_refused(void *arg)
{
    bson_error_t error;

    (void)arg;
    while (!atomic_load(&over))
        CHECK_STATUS(TRUCE_DUPLICATE, build("small", true, &error), error);
    return NULL;
}

/* Both are of one group at times, and get the same number one after the other. */
TEST(does_not_block_other_indexes_by_a_refused_one)
{
    pthread_t threads[2];
    bson_error_t error;

    REQUIRE(begin(false));
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(TRUCE_OK, insert("small", i, 1, 7), error);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, be_refused, NULL);
    for (int i = 0; i < 40 && !test_failures(); i++) {
        char name[20];

        snprintf(name, sizeof name, "c%d", i);
        CHECK_STATUS(TRUCE_OK, insert(name, 0, 20, 0), error);
        CHECK_OK(build(name, false, &error), error);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    truce__engine_close(engine);
}

/* ---- numbers that are given again ------------------------------------------------------------ */

/* Two inserts into new collections, and a write that makes the whole bulk fail. */
static void undo_a_bulk(void)
{
    bson_t *one = test_bson("{'_id': 1}"), *none = test_bson("{'_id': 77}");
    bson_t *set = test_bson("{'$set': {'w': 2}}");
    truce_write writes[] = {{.kind = TRUCE_WRITE_INSERT, .collection = "a", .document = one},
                            {.kind = TRUCE_WRITE_UPDATE,
                             .collection = "a",
                             .filter = one,
                             .document = set,
                             .options = {.hint = one}},
                            {.kind = TRUCE_WRITE_REQUIRE, .collection = "y", .filter = none}};
    const truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[3];
    bson_error_t error;

    CHECK_STATUS(TRUCE_CONFLICT, truce__engine_bulk(engine, writes, 3, &options, outcomes, &error),
                 error);
    for (int i = 0; i < 3; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_destroy(one);
    bson_destroy(none);
    bson_destroy(set);
}

/* Builds through another handle, which does not notify the statements prepared by this handle. */
static void build_elsewhere(void)
{
    const truce_store_options options = {0};
    struct engine *here = engine;
    bson_error_t error;

    REQUIRE(!truce__engine_open(path, &options, &engine, &error));
    CHECK_OK(build("y", false, &error), error);
    CHECK_OK(build("z", false, &error), error);
    truce__engine_close(engine);
    engine = here;
}

TEST(does_not_reuse_statements_of_an_undone_index)
{
    bson_t *filter = test_bson("{'v': 1}"), *update = test_bson("{'$set': {'w': 3}}"), found;
    const truce_modify_options options = {.sort = filter};
    truce_write_result result;
    bson_error_t error;

    REQUIRE(begin(false));
    CHECK_STATUS(TRUCE_OK, insert("y", 1, 1, 1), error);
    CHECK_STATUS(TRUCE_OK, insert("z", 1, 1, 1), error);
    undo_a_bulk();
    build_elsewhere();
    CHECK_OK(truce__engine_find_and_modify(engine, "z", filter, update, &options, &found, &result,
                                           &error),
             error);
    CHECK_INT(result.matched, ==, 1);
    truce_write_result_release(&result);
    bson_destroy(&found);
    bson_destroy(filter);
    bson_destroy(update);
    truce__engine_close(engine);
}
