/* The uuids of collections: of the file and the collection, also where an older truce has made the
 * file. */
#include <string.h>

#include "engine/documents/change_feed.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "tests/support/test.h"

static truce_store *store;
static struct engine *engine;
static bson_error_t error;
static char path[400];

static bool open_store(void)
{
    const truce_store_options options = {.relaxed = true};

    if (!CHECK_OK(truce_store_open(path, &options, &store, &error), error))
        return false;
    engine = truce__file_engine(store);
    return true;
}

static bool begin(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return open_store();
}

static void make(const char *collection)
{
    CHECK_OK(truce_collection_create(store, collection, &error), error);
}

/* Returns false if the collection has no uuid. */
static bool uuid_of(const char *collection, uint8_t uuid[UUID_BYTES])
{
    const truce_list_options options = {
        .collection = collection, .unmeasured = true, .uuids = true};
    bson_subtype_t type;
    const uint8_t *bytes;
    bson_iter_t at, found;
    uint32_t size = 0;
    bson_t list;

    memset(uuid, 0, UUID_BYTES);
    CHECK_OK(truce_collection_list(store, &options, &list, &error), error);
    if (bson_iter_init(&at, &list) && bson_iter_find_descendant(&at, "0.uuid", &found)) {
        bson_iter_binary(&found, &type, &size, &bytes);
        if (CHECK_INT(type, ==, BSON_SUBTYPE_UUID) && CHECK_INT(size, ==, UUID_BYTES))
            memcpy(uuid, bytes, UUID_BYTES);
    }
    bson_destroy(&list);
    return size != 0;
}

/* As an older truce would have left the first row of the catalog. */
static void take_id_away(void)
{
    bson_t header = BSON_INITIALIZER;
    struct kv *kv = engine->kv;
    uint32_t version;

    BSON_APPEND_INT64(&header, "next", 20);
    CHECK_OK(truce__kv_write_begin(kv, &version, &error), error);
    CHECK_OK(
        truce__kv_row_update(kv, 0, 1, (struct bytes){bson_get_data(&header), header.len}, &error),
        error);
    CHECK_OK(truce__kv_version_bump(kv, &error), error);
    CHECK_OK(truce__kv_write_commit(kv, &error), error);
    bson_destroy(&header);
    truce_store_close(store);
    REQUIRE(open_store());
}

TEST(keeps_uuids_and_never_reuses_one)
{
    uint8_t first[UUID_BYTES], second[UUID_BYTES], again[UUID_BYTES];

    REQUIRE(begin());
    make("a");
    CHECK(uuid_of("a", first));
    CHECK_INT(first[6] >> 4, ==, 8);
    CHECK_INT(first[8] >> 6, ==, 2);
    make("b");
    CHECK_OK(truce__engine_identify(engine, &error), error);
    CHECK(uuid_of("a", again) && !memcmp(first, again, UUID_BYTES));
    CHECK(uuid_of("b", second) && memcmp(first, second, UUID_BYTES) != 0);
    CHECK_OK(truce_collection_rename(store, "a", "c", false, &error), error);
    truce_store_close(store);
    REQUIRE(open_store());
    CHECK(uuid_of("c", again) && !memcmp(first, again, UUID_BYTES));
    CHECK_OK(truce_collection_drop(store, "c", &error), error);
    make("c");
    CHECK(uuid_of("c", again) && memcmp(first, again, UUID_BYTES) != 0);
    truce_store_close(store);
    REQUIRE(begin()); /* another file, with the same numbers */
    make("a");
    CHECK(uuid_of("a", again) && memcmp(first, again, UUID_BYTES) != 0);
    truce_store_close(store);
}

TEST(a_file_of_an_older_truce_gets_an_id_when_it_is_asked_for)
{
    uint8_t first[UUID_BYTES], again[UUID_BYTES];

    REQUIRE(begin());
    CHECK_OK(truce__engine_identify(engine, &error), error); /* nothing, which is no failure */
    make("a");
    take_id_away();
    CHECK(!uuid_of("a", first));
    CHECK_OK(truce__engine_identify(engine, &error), error);
    CHECK(uuid_of("a", first));
    CHECK_OK(truce__engine_identify(engine, &error), error);
    make("b");
    CHECK(uuid_of("a", again) && !memcmp(first, again, UUID_BYTES));
    truce_store_close(store);
    REQUIRE(open_store());
    CHECK(uuid_of("a", again) && !memcmp(first, again, UUID_BYTES));
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    truce_store_close(store);
}

TEST(keeps_events_of_a_feed_with_its_own_id)
{
    uint8_t uuid[UUID_BYTES];
    struct feed_state state;
    bson_oid_t feed;

    REQUIRE(begin());
    make("a");
    CHECK_OK(truce__engine_feed_keep(engine, 3600000, 0, &error), error);
    CHECK_OK(truce__engine_feed_state(engine, &state, &error), error);
    feed = state.spec.id;
    CHECK(!bson_oid_equal(&feed, &state.file));
    take_id_away();
    CHECK_OK(truce__engine_feed_state(engine, &state, &error), error);
    CHECK(bson_oid_equal(&feed, &state.file));
    CHECK_OK(truce__engine_identify(engine, &error), error);
    CHECK_OK(truce__engine_feed_keep(engine, 0, 0, &error), error);
    CHECK_OK(truce__engine_feed_keep(engine, 3600000, 0, &error), error);
    CHECK_OK(truce__engine_feed_state(engine, &state, &error), error);
    CHECK(bson_oid_equal(&feed, &state.file) && !bson_oid_equal(&feed, &state.spec.id));
    CHECK(uuid_of("a", uuid) && !memcmp(uuid, feed.bytes, 6));
    truce_store_close(store);
}
