/* Lookups of several documents, of which the cache has some: all are of one snapshot. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/field.h"
#include "tests/support/test.h"
#include "truce/truce.h"

/* More than the cache stores of one document. */
#define LARGE 70000

static truce_store *store;
static atomic_bool ended;

static bson_value_t id_of(int number)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = number};
}

static void put(int id, size_t padding)
{
    bson_t document = BSON_INITIALIZER;
    char *text = bson_malloc(padding + 1);
    bson_error_t error;

    memset(text, 'x', padding);
    text[padding] = '\0';
    BSON_APPEND_INT32(&document, "_id", id);
    BSON_APPEND_INT64(&document, "n", 0);
    BSON_APPEND_UTF8(&document, "padding", text);
    CHECK_OK(truce_insert(store, "things", &document, NULL, &error), error);
    bson_destroy(&document);
    bson_free(text);
}

static bool open_store(void)
{
    bson_error_t error;
    char path[400];

    snprintf(path, sizeof path, "%s/many.truce", test_directory());
    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

/* Increments n of the documents 1 and 2 in one commit. */
static void increment_both(void)
{
    const truce_bulk_options options = {.atomic = true, .relaxed = true};
    bson_t *filters[] = {BCON_NEW("_id", BCON_INT32(1)), BCON_NEW("_id", BCON_INT32(2))};
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT64(1), "}");
    truce_write_outcome outcomes[2];
    truce_write writes[2];
    bson_error_t error;

    for (int i = 0; i < 2; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                  .collection = "things",
                                  .filter = filters[i],
                                  .document = update};
    CHECK_OK(truce_bulk(store, writes, 2, &options, outcomes, &error), error);
    for (int i = 0; i < 2; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(filters[i]);
    }
    bson_destroy(update);
}

static void *increments(void *arg)
{
    (void)arg;
    while (!atomic_load(&ended))
        increment_both();
    return NULL;
}

/* Reads the documents 1 and 2: n of each, or -1. */
static void read_both(int64_t numbers[2])
{
    bson_value_t ids[] = {id_of(1), id_of(2)};
    truce_read_request looks[2] = {{0}};
    bson_error_t error;

    for (int i = 0; i < 2; i++) {
        looks[i].collection = "things";
        looks[i].id = &ids[i];
    }
    CHECK_OK(truce_read_many(store, looks, 2, NULL, &error), error);
    for (int i = 0; i < 2; i++) {
        numbers[i] = looks[i].found ? truce__field_number(&looks[i].document, "n") : -1;
        CHECK(looks[i].found == !bson_empty(&looks[i].document));
        bson_destroy(&looks[i].document);
    }
}

/* The cache has the small document, and the large one is read from the file. */
TEST(a_cached_document_is_of_the_snapshot_of_the_others)
{
    int64_t numbers[2] = {0}, last = 0;
    int changes = 0;
    pthread_t writer;

    REQUIRE(open_store());
    put(1, 10);
    put(2, LARGE);
    REQUIRE(!pthread_create(&writer, NULL, increments, NULL));
    for (int i = 0; i < 50000 && changes < 400; i++) {
        read_both(numbers);
        if (numbers[0] != numbers[1] || numbers[0] < last) {
            test_fail(__FILE__, __LINE__, "%lld and %lld after %lld", (long long)numbers[0],
                      (long long)numbers[1], (long long)last);
            break;
        }
        changes += numbers[0] != last;
        last = numbers[0];
    }
    atomic_store(&ended, true);
    pthread_join(writer, NULL);
    CHECK(changes > 0);
    truce_store_close(store);
}

TEST(a_document_that_is_gone_is_empty)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1));
    bson_error_t error;
    int64_t numbers[2];

    REQUIRE(open_store());
    put(1, 10);
    put(2, LARGE);
    read_both(numbers);
    CHECK(numbers[0] == 0 && numbers[1] == 0);
    CHECK_OK(truce_remove(store, "things", filter, NULL, NULL, &error), error);
    read_both(numbers);
    CHECK(numbers[0] == -1 && numbers[1] == 0);
    bson_destroy(filter);
    truce_store_close(store);
}
