/* Documents of a memory store by their _id (store/memory/memory.c): after any inserts and removals,
 * a filter by ids finds the same documents as a full scan, in the same order. */
#include "base/random.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define IDS 200

static truce_store *store;
static bson_error_t error;

/* Appends an id in one of its forms: numbers of all types are equal, other types are distinct. */
static void append_id(bson_t *document, const char *key, int id, uint64_t form)
{
    char text[20];

    if (id % 3 == 0) {
        snprintf(text, sizeof text, "id %d", id);
        BSON_APPEND_UTF8(document, key, text);
    } else if (form % 3 == 0) {
        BSON_APPEND_INT32(document, key, id);
    } else if (form % 3 == 1) {
        BSON_APPEND_INT64(document, key, id);
    } else {
        BSON_APPEND_DOUBLE(document, key, id);
    }
}

static int64_t count_matching(const bson_t *filter)
{
    int64_t count = -1;

    CHECK_OK(truce_count(store, "c", filter, NULL, &count, &error), error);
    return count;
}

static bson_t *ids_found(const bson_t *filter)
{
    bson_t *found = bson_new(), *by_id = test_bson("{'_id': 1}");
    const truce_find_options options = {.sort = by_id};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_iter_t id;

    CHECK_OK(truce_find(store, "c", filter, &options, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &document, &error) && document)
        if (CHECK(bson_iter_init_find(&id, document, "_id")))
            bson_append_iter(found, "_id", 3, &id);
    truce_cursor_close(cursor);
    bson_destroy(by_id);
    return found;
}

/* {_id: {$in: [...]}} and the same hidden from it: {$nor: [{_id: {$nin: [...]}}]} */
static void check_several(struct random *random)
{
    bson_t in = BSON_INITIALIZER, all = BSON_INITIALIZER, condition, list, nor, one;
    bson_t *named, *looked;
    uint32_t count = (uint32_t)truce__random_below(random, 8);
    char key[12];

    bson_init(&list);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%u", i);
        append_id(&list, key, (int)truce__random_below(random, IDS), truce__random_next(random));
    }
    BSON_APPEND_DOCUMENT_BEGIN(&in, "_id", &condition);
    BSON_APPEND_ARRAY(&condition, "$in", &list);
    bson_append_document_end(&in, &condition);
    BSON_APPEND_ARRAY_BEGIN(&all, "$nor", &nor);
    BSON_APPEND_DOCUMENT_BEGIN(&nor, "0", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "_id", &condition);
    BSON_APPEND_ARRAY(&condition, "$nin", &list);
    bson_append_document_end(&one, &condition);
    bson_append_document_end(&nor, &one);
    bson_append_array_end(&all, &nor);
    named = ids_found(&in);
    looked = ids_found(&all);
    CHECK_BSON(looked, named);
    bson_destroy(named);
    bson_destroy(looked);
    bson_destroy(&list);
    bson_destroy(&in);
    bson_destroy(&all);
}

/* Two inserts in one step, of which the second may be refused: then the first is undone. */
static void insert_two(bool there[], int first, int second, struct random *random)
{
    const truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[2] = {0};
    bson_t documents[2] = {BSON_INITIALIZER, BSON_INITIALIZER};
    truce_write writes[2] = {0};
    bool fits = !there[first] && !there[second] && first != second;
    truce_status status;

    for (int i = 0; i < 2; i++) {
        append_id(&documents[i], "_id", i ? second : first, truce__random_next(random));
        writes[i] =
            (truce_write){.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = &documents[i]};
    }
    status = truce_bulk(store, writes, 2, &options, outcomes, &error);
    CHECK_INT(status, ==, fits ? TRUCE_OK : TRUCE_DUPLICATE);
    if (fits)
        there[first] = there[second] = true;
    for (int i = 0; i < 2; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[i]);
    }
}

static void change_one(bool there[], int id, struct random *random)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    truce_write_result result = {0};

    append_id(&filter, "_id", id, truce__random_next(random));
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "n", (int64_t)truce__random_below(random, 1000));
    bson_append_document_end(&update, &set);
    CHECK_OK(truce_update(store, "c", &filter, &update, NULL, &result, &error), error);
    CHECK_INT(result.matched, ==, there[id]);
    truce_write_result_release(&result);
    bson_destroy(&filter);
    bson_destroy(&update);
}

static void remove_one(bool there[], int id, struct random *random)
{
    bson_t filter = BSON_INITIALIZER;
    truce_write_result result = {0};

    append_id(&filter, "_id", id, truce__random_next(random));
    CHECK_OK(truce_remove(store, "c", &filter, NULL, &result, &error), error);
    CHECK_INT(result.removed, ==, there[id]);
    there[id] = false;
    truce_write_result_release(&result);
    bson_destroy(&filter);
}

TEST(ids_are_found_whatever_came_and_went)
{
    struct random random;
    bool there[IDS] = {false};
    bson_t *index = test_bson("{'key': {'n': 1}}"), all = BSON_INITIALIZER;
    int64_t sum = 0;

    truce__random_seed(&random, test_seed());
    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    for (int step = 0; step < 6000; step++) {
        int id = (int)truce__random_below(&random, IDS);
        int other = (int)truce__random_below(&random, IDS);

        switch (truce__random_below(&random, 5)) {
        case 0:
            insert_two(there, id, other, &random);
            break;
        case 1:
            change_one(there, id, &random);
            break;
        case 2:
            check_several(&random);
            break;
        default:
            remove_one(there, id, &random);
            remove_one(there, other, &random);
            if (step % 2)
                insert_two(there, id, other, &random);
        }
        if (step == 3000) /* all documents are created again */
            CHECK_OK(truce_index_create(store, "c", index, &error), error);
    }
    for (int id = 0; id < IDS; id++) {
        bson_t filter = BSON_INITIALIZER;

        append_id(&filter, "_id", id, 1);
        CHECK_INT(count_matching(&filter), ==, there[id]);
        sum += there[id];
        bson_destroy(&filter);
    }
    CHECK_INT(count_matching(&all), ==, sum);
    truce_store_close(store);
    bson_destroy(index);
}
