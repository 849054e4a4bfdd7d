/* Collections and indexes that a transaction makes (store/overlay/overlay_write.c). */
#include "base/field.h"
#include "store/overlay/transaction_overlay.h"
#include "tests/support/test.h"

static truce_store *store, *overlay;
static bson_error_t error;

static bool begin(bool snapshot)
{
    static int number;
    const struct overlay_options options = {.snapshot = snapshot};
    bson_t *document = test_bson("{'_id': 1, 'v': 1}");
    char path[600];
    bool begun;

    snprintf(path, sizeof path, "%s/%d.truce", test_directory(), number++);
    begun =
        CHECK_OK(truce_store_open(path, &(truce_store_options){.relaxed = true}, &store, &error),
                 error) &&
        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error) &&
        CHECK_OK(truce__overlay_open(store, &options, &overlay, &error), error);
    bson_destroy(document);
    return begun;
}

static void end(void)
{
    truce_store_close(overlay);
    truce_store_close(store);
}

static truce_status commit(void)
{
    return truce__overlay_commit(overlay, NULL, 0, NULL, &error);
}

static truce_status insert(truce_store *where, const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    truce_status status = truce_insert(where, collection, document, NULL, &error);

    bson_destroy(document);
    return status;
}

static truce_status make_index(truce_store *where, const char *collection, const char *json)
{
    bson_t *index = test_bson(json);
    truce_status status = truce_index_create(where, collection, index, &error);

    bson_destroy(index);
    return status;
}

static truce_status set_v_in(truce_store *where, const char *collection)
{
    bson_t *one = test_bson("{'_id': 1}"), *change = test_bson("{'$inc': {'v': 1}}");
    truce_status status = truce_update(where, collection, one, change, NULL, NULL, &error);

    bson_destroy(change);
    bson_destroy(one);
    return status;
}

static truce_status set_v(truce_store *where)
{
    return set_v_in(where, "c");
}

/* Returns -1 if the collection does not exist. */
static int count_indexes(truce_store *where, const char *collection)
{
    bson_t indexes;
    truce_status status = truce_index_list(where, collection, &indexes, &error);
    int count = status ? -1 : (int)bson_count_keys(&indexes);

    CHECK(!status || status == TRUCE_NOT_FOUND);
    bson_destroy(&indexes);
    return count;
}

/* Returns the number of documents of the collection in the list; -1 if it is not in the list. */
static int64_t listed(truce_store *where, const char *collection)
{
    int64_t documents = -1;
    bson_iter_t at;
    bson_t list;

    CHECK_OK(truce_collection_list(where, NULL, &list, &error), error);
    if (!CHECK(bson_iter_init(&at, &list)))
        return -1;
    while (bson_iter_next(&at)) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t facts;

        bson_iter_document(&at, &size, &bytes);
        if (CHECK(bson_init_static(&facts, bytes, size)) &&
            !strcmp(truce__field_text(&facts, "name"), collection)) {
            CHECK_INT(documents, ==, -1); /* once */
            documents = truce__field_number(&facts, "documents");
        }
    }
    bson_destroy(&list);
    return documents;
}

TEST(shows_created_collections_to_others_after_the_commit)
{
    bson_t *validator = test_bson("{'v': {'$type': 'number'}}");

    for (int commits = 0; commits < 2; commits++) {
        if (!begin(false))
            return;
        CHECK_OK(truce_collection_create(overlay, "n", &error), error);
        CHECK_OK(truce_collection_validate(overlay, "n", validator, &error), error);
        CHECK_OK(make_index(overlay, "n", "{'key': {'v': 1}, 'unique': true}"), error);
        CHECK_OK(make_index(overlay, "n", "{'key': {'_id': 1}}"), error);
        CHECK_OK(make_index(overlay, "m", "{'key': {'w': 1}}"), error);
        CHECK_OK(insert(overlay, "n", "{'_id': 1, 'v': 1}"), error);
        CHECK_INT(2, ==, count_indexes(overlay, "n"));
        CHECK_INT(2, ==, count_indexes(overlay, "m"));
        CHECK_INT(1, ==, listed(overlay, "n"));
        CHECK_INT(0, ==, listed(overlay, "m"));
        CHECK_INT(1, ==, listed(overlay, "c"));
        CHECK_OK(set_v_in(overlay, "nothing"), error);
        CHECK_INT(-1, ==, listed(overlay, "nothing"));
        CHECK_INT(-1, ==, count_indexes(overlay, "nothing"));
        CHECK_INT(-1, ==, listed(store, "n"));
        if (commits)
            CHECK_OK(commit(), error);
        CHECK_INT(commits ? 2 : -1, ==, count_indexes(store, "n"));
        CHECK_INT(commits ? 2 : -1, ==, count_indexes(store, "m"));
        CHECK_INT(commits ? 1 : -1, ==, listed(store, "n"));
        CHECK_STATUS(commits ? TRUCE_DUPLICATE : TRUCE_OK, insert(store, "n", "{'_id': 2, 'v': 1}"),
                     error);
        CHECK_STATUS(commits ? TRUCE_INVALID : TRUCE_OK,
                     insert(store, "n", "{'_id': 3, 'v': 'text'}"), error);
        end();
    }
    bson_destroy(validator);
}

TEST(enforces_rules_of_created_collections_in_the_transaction)
{
    static const char *const wrong[] = {"{'_id': 2, 'v': 1}", "{'_id': 3, 'v': 'text'}"};
    bson_t *validator = test_bson("{'v': {'$type': 'number'}}");

    for (int i = 0; i < 2; i++) {
        if (!begin(false))
            return;
        CHECK_OK(truce_collection_create(overlay, "n", &error), error);
        CHECK_OK(truce_collection_validate(overlay, "n", validator, &error), error);
        CHECK_OK(make_index(overlay, "n", "{'key': {'v': 1}, 'unique': true}"), error);
        CHECK_OK(insert(overlay, "n", "{'_id': 1, 'v': 1}"), error);
        CHECK_STATUS(i ? TRUCE_INVALID : TRUCE_DUPLICATE, insert(overlay, "n", wrong[i]), error);
        end();
    }
    bson_destroy(validator);
}

TEST(restarts_a_transaction_whose_collection_was_created_concurrently)
{
    for (int i = 0; i < 6; i++) {
        bool snapshot = i % 2;

        if (!begin(snapshot))
            return;
        CHECK_OK(truce_collection_create(overlay, "m", &error), error);
        CHECK_OK(truce_collection_create(overlay, "n", &error), error);
        if (i / 2 == 0)
            CHECK_OK(truce_collection_create(store, "n", &error), error);
        else if (i / 2 == 1)
            CHECK_OK(insert(store, "n", "{}"), error);
        CHECK_STATUS(i / 2 == 2 ? TRUCE_OK : TRUCE_CONFLICT, commit(), error);
        if (i / 2 < 2)
            CHECK_INT(112, ==, error.code);
        CHECK_INT(i / 2 == 2 ? 1 : -1, ==, count_indexes(store, "m"));
        CHECK_INT(1, ==, count_indexes(store, "n"));
        end();
    }
}

TEST(a_commit_that_is_a_conflict_makes_nothing)
{
    if (!begin(true))
        return;
    CHECK_OK(make_index(overlay, "n", "{'key': {'v': 1}}"), error);
    CHECK_OK(insert(overlay, "n", "{'_id': 1}"), error);
    CHECK_OK(set_v(overlay), error);
    CHECK_OK(set_v(store), error);
    CHECK_STATUS(TRUCE_CONFLICT, commit(), error);
    CHECK_INT(-1, ==, count_indexes(store, "n"));
    CHECK_OK(insert(store, "n", "{'_id': 1}"), error);
    CHECK_INT(1, ==, count_indexes(store, "n"));
    end();
}

TEST(creates_indexes_only_on_new_and_empty_collections)
{
    for (int i = 0; i < 8; i++) {
        if (!begin(false))
            return;
        CHECK_OK(make_index(store, "c", "{'key': {'w': 1}, 'name': 'w'}"), error);
        truce_store_close(overlay);
        CHECK_OK(truce__overlay_open(store, &(struct overlay_options){0}, &overlay, &error), error);
        if (i == 0) {
            CHECK_OK(make_index(overlay, "c", "{'key': {'w': 1}, 'name': 'w'}"), error);
        } else if (i == 1) {
            CHECK_STATUS(TRUCE_INVALID, make_index(overlay, "c", "{'key': {'v': 1}}"), error);
            CHECK_INT(263, ==, error.code);
        } else if (i == 2) {
            CHECK(make_index(overlay, "c", "{'key': {'v': 1}, 'name': 'w'}"));
            CHECK_INT(86, ==, error.code);
        } else if (i == 3) {
            CHECK_OK(insert(overlay, "n", "{}"), error);
            CHECK(make_index(overlay, "n", "{'key': {'v': 1}}"));
            CHECK_INT(263, ==, error.code);
        } else if (i == 4) {
            CHECK_OK(make_index(overlay, "n", "{'key': {'v': 1}, 'name': 'v'}"), error);
            CHECK_OK(insert(overlay, "n", "{}"), error);
            CHECK_OK(make_index(overlay, "n", "{'key': {'v': 1}, 'name': 'v'}"), error);
            CHECK(make_index(overlay, "n", "{'key': {'x': 1}, 'name': 'v'}"));
            CHECK_INT(86, ==, error.code);
        } else if (i == 5) {
            CHECK(truce_collection_create(overlay, "c", &error));
            CHECK_INT(48, ==, error.code);
        } else if (i == 6) {
            CHECK_OK(insert(overlay, "n", "{}"), error);
            CHECK(truce_collection_create(overlay, "n", &error));
            CHECK_INT(48, ==, error.code);
        } else {
            bson_t *validator = test_bson("{'v': 1}");

            CHECK_OK(truce_collection_create(overlay, "n", &error), error);
            CHECK(truce_collection_create(overlay, "n", &error));
            CHECK_INT(48, ==, error.code);
            CHECK(truce_collection_validate(overlay, "c", validator, &error));
            CHECK_INT(263, ==, error.code);
            bson_destroy(validator);
        }
        end();
    }
}
