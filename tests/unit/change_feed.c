/*
 * The feed of changes. A follower reconstructs the store's contents, after any writes, rollbacks
 * and repetitions. Other tests cover the retained entries, and the error for a position that was
 * pruned.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "store/store.h"
#include "tests/support/feed_replay.h"
#include "tests/support/random_operations.h"
#include "tests/support/test.h"
#include "truce/doctor.h"
#include "truce/salvage.h"
#include "truce/sweep.h"

#define HOUR_MS INT64_C(3600000)

static truce_store *store;
static struct engine *engine;
static char path[400];

static bool open_again(void)
{
    const truce_store_options options = {.relaxed = true};
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, &options, &store, &error), error))
        return false;
    engine = truce__file_engine(store);
    return true;
}

static bool begin(int64_t keep_ms, int64_t keep_bytes)
{
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return open_again() &&
           CHECK_OK(truce__engine_feed_keep(engine, keep_ms, keep_bytes, &error), error);
}

static void insert(const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

static void change(const char *collection, const char *filter, const char *update)
{
    bson_t *which = test_bson(filter), *how = test_bson(update);
    bson_error_t error;

    CHECK_OK(truce_update(store, collection, which, how, NULL, NULL, &error), error);
    bson_destroy(which);
    bson_destroy(how);
}

static struct feed_state state_now(void)
{
    struct feed_state state;
    bson_error_t error;

    CHECK_OK(truce__engine_feed_state(engine, &state, &error), error);
    return state;
}

static void check_store(void)
{
    bson_error_t error;

    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
}

static bool take_nothing(void *arg, const struct feed_entry *entry)
{
    (void)arg;
    return entry->position > 0;
}

struct counting {
    enum feed_kind kind;
    int count;
};

static bool take_count(void *arg, const struct feed_entry *entry)
{
    struct counting *counting = arg;

    counting->count += entry->kind == counting->kind;
    return true;
}

static int count_entries(enum feed_kind kind)
{
    struct counting counting = {kind, 0};
    struct feed_state state = state_now();
    bson_error_t error;
    int64_t reached;

    CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, state.horizon, INT32_MAX, take_count,
                                     &counting, &reached, &error),
             error);
    CHECK_INT(reached, ==, state.last);
    return counting.count;
}

/* ---- all that is written --------------------------------------------------------------------- */

static void follow_random_operations(bool rehearses, int count)
{
    uint64_t seed = test_seed();
    struct replay replay;
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    engine->writer.rehearses = rehearses;
    replay_open(&replay);
    for (int i = 0; i < count && !test_failures(); i++) {
        bson_t *operation = random_operation(seed, (uint64_t)i), answer = BSON_INITIALIZER;

        operation_run(store, operation, &answer);
        bson_destroy(operation);
        bson_destroy(&answer);
        if (i % 200 == 100) /* there may be none, and a new one keeps none */
            (void)!truce__store_keep_images(store, "x", i % 600 != 100, &error);
        if (i % 50 == 49)
            CHECK(replay_follow(&replay, store) && replay_same(&replay, store));
    }
    CHECK_INT(replay.kinds[FEED_INSERT], >, 0);
    CHECK_INT(replay.kinds[FEED_UPDATE], >, 0);
    CHECK_INT(replay.kinds[FEED_DELETE], >, 0);
    CHECK_INT(replay.images, >, 0);
    check_store();
    replay_close(&replay);
    truce_store_close(store);
}

TEST(reconstructs_the_store_from_the_feed)
{
    follow_random_operations(false, (int)test_scale("TRUCE_FEED_OPERATIONS", 3000));
}

TEST(reports_a_repeated_transaction_once)
{
    follow_random_operations(true, (int)test_scale("TRUCE_FEED_OPERATIONS", 1000));
}

/* Another program, which follows from the current position of the feed. */
static void write_as_another(void)
{
    for (int i = 0; i < 10000 && !engine; i++) {
        const truce_store_options options = {.relaxed = true, .must_exist = true};
        bson_error_t error;

        if (!truce_store_open(path, &options, &store, &error)) {
            engine = truce__file_engine(store);
            if (state_now().spec.table)
                break;
            truce_store_close(store);
            engine = NULL;
        }
        truce__clock_sleep_ms(1);
    }
    if (CHECK(engine)) {
        for (int i = 0; i < 300; i++) {
            insert("c", "{'by': 'child'}");
            change("c", "{'n': 0}", "{'$inc': {'k': 1}}");
        }
        truce_store_close(store);
    }
    test_child_exit();
}

TEST(two_processes_write_one_feed)
{
    bson_error_t error;
    int status;
    pid_t child;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    engine = NULL;
    child = fork();
    if (!child)
        write_as_another();
    REQUIRE(open_again());
    insert("c", "{'n': 0, 'k': 0}");
    CHECK_OK(truce__engine_feed_keep(engine, HOUR_MS, 0, &error), error);
    for (int i = 0; i < 300; i++)
        change("c", "{'n': 0}", "{'$inc': {'k': 1}}");
    waitpid(child, &status, 0);
    CHECK_INT(status, ==, 0);
    CHECK_INT(count_entries(FEED_UPDATE), ==, 600);
    CHECK_INT(count_entries(FEED_INSERT), ==, 300);
    check_store();
    truce_store_close(store);
}

/* ---- changes without an entry ---------------------------------------------------------------- */

TEST(reports_nothing_without_a_feed)
{
    bson_error_t error;
    int64_t reached;
    bson_oid_t id;

    REQUIRE(begin(0, 0));
    insert("c", "{'_id': 1}");
    CHECK_INT(state_now().spec.table, ==, 0);
    bson_oid_init(&id, NULL);
    CHECK_STATUS(TRUCE_EXPIRED,
                 truce__engine_feed_read(engine, &id, 0, 10, take_nothing, NULL, &reached, &error),
                 error);
    CHECK_OK(truce__engine_feed_note(engine, FEED_DROP_DATABASE, "c", &error), error);
    check_store();
    truce_store_close(store);
}

TEST(does_not_report_undone_changes)
{
    bson_t *first = test_bson("{'_id': 1}"), *second = test_bson("{'_id': 2}");
    const truce_write writes[] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = first},
        {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = second},
        {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = second}};
    const truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[3];
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    insert("c", "{'_id': 4}");
    CHECK_STATUS(TRUCE_DUPLICATE, truce_bulk(store, writes, 3, &options, outcomes, &error), error);
    CHECK_INT(count_entries(FEED_INSERT), ==, 1);
    insert("c", "{'_id': 3, 'a': 1}");
    change("c", "{'_id': 3}", "{'$set': {'a': 1}}"); /* nothing differs, */
    change("c", "{'_id': 3}", "{'a': 1}");           /* though MongoDB counts this as a change */
    CHECK_INT(count_entries(FEED_INSERT), ==, 2);
    CHECK_INT(count_entries(FEED_UPDATE) + count_entries(FEED_REPLACE), ==, 0);
    check_store();
    bson_destroy(first);
    bson_destroy(second);
    truce_store_close(store);
}

TEST(does_not_report_truces_own_documents)
{
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    insert("truce_queue", "{'_id': 1}");
    insert("@school.truce_commits", "{'_id': 1}");
    insert("@config.transactions", "{'_id': 1}");
    insert("@admin.system.users", "{'_id': 1}");
    CHECK_OK(truce_collection_drop(store, "truce_queue", &error), error);
    CHECK_INT(count_entries(FEED_INSERT) + count_entries(FEED_DROP), ==, 0);
    insert("truce_mine", "{'_id': 1}");
    insert("@school.students", "{'_id': 1}");
    CHECK_INT(count_entries(FEED_INSERT), ==, 2);
    truce_store_close(store);
}

TEST(reports_dropped_collections)
{
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    insert("a", "{'_id': 1}");
    insert("b", "{'_id': 1}");
    CHECK_OK(truce_collection_rename(store, "a", "b", true, &error), error);
    CHECK_OK(truce_collection_drop(store, "b", &error), error);
    CHECK_OK(truce__engine_feed_note(engine, FEED_DROP_DATABASE, "b", &error), error);
    CHECK_INT(count_entries(FEED_RENAME), ==, 1);
    CHECK_INT(count_entries(FEED_DROP), ==, 1);
    CHECK_INT(count_entries(FEED_DROP_DATABASE), ==, 1);
    truce_store_close(store);
}

/* ---- retained entries ------------------------------------------------------------------------ */

TEST(prunes_the_oldest_entries_beyond_the_size)
{
    struct feed_state state;
    bson_error_t error;
    int64_t reached;

    REQUIRE(begin(HOUR_MS, 20000));
    for (int i = 0; i < 2000; i++)
        insert("c", "{'text': 'a document of some length, so that there is something to keep'}");
    state = state_now();
    CHECK_INT(state.bytes, >, 10000);
    CHECK_INT(state.bytes, <, 50000);
    CHECK_INT(state.horizon, >, 0);
    CHECK_STATUS(TRUCE_EXPIRED,
                 truce__engine_feed_read(engine, &state.spec.id, state.horizon - 1, 10,
                                         take_nothing, NULL, &reached, &error),
                 error);
    CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, state.horizon, 10, take_nothing, NULL,
                                     &reached, &error),
             error);
    CHECK_INT(reached, >, state.horizon);
    CHECK_INT(reached, <, state.last);
    CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, state.last, 10, take_nothing, NULL,
                                     &reached, &error),
             error);
    CHECK_INT(reached, ==, state.last);
    CHECK_STATUS(TRUCE_INVALID,
                 truce__engine_feed_read(engine, &state.spec.id, state.last + 1, 10, take_nothing,
                                         NULL, &reached, &error),
                 error);
    check_store();
    truce_store_close(store);
}

TEST(prunes_old_entries_except_the_last)
{
    struct feed_state before, after;
    bson_error_t error;
    bool more = true;

    REQUIRE(begin(1, 0));
    for (int i = 0; i < 20; i++)
        insert("c", "{}");
    truce__clock_sleep_ms(5);
    before = state_now();
    while (more)
        REQUIRE(CHECK_OK(truce__engine_feed_prune(engine, NULL, &more, &error), error));
    after = state_now();
    CHECK_INT(after.last, ==, before.last);
    CHECK_INT(after.horizon, >, before.horizon);
    CHECK_INT(after.horizon, <, after.last);
    CHECK_INT(after.bytes, <, before.bytes);
    CHECK_INT(count_entries(FEED_INSERT), ==, 1);
    truce_store_close(store);
    REQUIRE(open_again()); /* no process has the positions in memory */
    insert("c", "{}");
    CHECK_INT(state_now().last, >, after.last);
    check_store();
    truce_store_close(store);
}

TEST(a_step_that_prunes_is_bounded)
{
    bson_error_t error;
    bool more;

    REQUIRE(begin(HOUR_MS, 0));
    for (int i = 0; i < 600; i++)
        insert("c", "{}");
    CHECK_OK(truce__engine_feed_keep(engine, 1, 0, &error), error);
    truce__clock_sleep_ms(5);
    CHECK_OK(truce__engine_feed_prune(engine, NULL, &more, &error), error);
    CHECK(more);
    CHECK_INT(count_entries(FEED_INSERT), >, 1);
    for (int i = 0; i < 3; i++)
        CHECK_OK(truce__engine_feed_prune(engine, NULL, &more, &error), error);
    CHECK(!more);
    CHECK_INT(count_entries(FEED_INSERT), ==, 1);
    truce_store_close(store);
}

static truce_sweep_report sweep(uint32_t batch)
{
    const truce_sweep_options options = {.batch = batch};
    truce_sweep_report report;
    bson_error_t error;

    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    return report;
}

TEST(prunes_by_a_recovery_pass_and_reports_the_rest_by_doctor)
{
    truce_doctor_report report;
    truce_sweep_report swept;
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    for (int i = 0; i < 600; i++)
        insert("c", "{}");
    CHECK_INT(sweep(0).pruned, ==, 0); /* all of it is wanted */
    CHECK_OK(truce__engine_feed_keep(engine, 1, 0, &error), error);
    truce__clock_sleep_ms(5);
    swept = sweep(100);
    CHECK(swept.more);
    CHECK_INT(swept.pruned, >=, 100);
    CHECK_INT(swept.pruned, <, 599);
    for (int i = 0; i < 9 && swept.more; i++)
        swept = sweep(100);
    CHECK(!swept.more);
    CHECK_INT(sweep(0).pruned, ==, 0);
    CHECK_INT(count_entries(FEED_INSERT), ==, 1);
    CHECK_OK(truce_doctor(store, NULL, NULL, &report, &error), error);
    {
        bson_iter_t top, at;

        CHECK(bson_iter_init(&top, &report.facts) &&
              bson_iter_find_descendant(&top, "feed.entries", &at) && bson_iter_as_int64(&at) == 1);
        CHECK(bson_iter_init(&top, &report.facts) &&
              bson_iter_find_descendant(&top, "feed.bytes", &at) &&
              bson_iter_as_int64(&at) == state_now().bytes);
        CHECK(bson_iter_init(&top, &report.facts) &&
              bson_iter_find_descendant(&top, "feed.age_ms", &at) && bson_iter_as_int64(&at) > 0 &&
              bson_iter_as_int64(&at) < HOUR_MS);
        CHECK(bson_iter_init(&top, &report.facts) &&
              bson_iter_find_descendant(&top, "feed.keep_ms", &at) && bson_iter_as_int64(&at) == 1);
    }
    bson_destroy(&report.facts);
    CHECK_OK(truce__engine_feed_keep(engine, 0, 0, &error), error);
    CHECK_OK(truce_doctor(store, NULL, NULL, &report, &error), error);
    CHECK(!bson_has_field(&report.facts, "feed"));
    bson_destroy(&report.facts);
    truce_store_close(store);
}

static void insert_large(size_t bytes)
{
    char *text = bson_malloc(bytes + 1);
    bson_t *document;
    bson_error_t error;

    memset(text, 'x', bytes);
    text[bytes] = 0;
    document = BCON_NEW("text", BCON_UTF8(text));
    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    bson_destroy(document);
    bson_free(text);
}

TEST(a_step_that_prunes_is_bounded_by_bytes_too)
{
    bson_error_t error;
    bool more;

    REQUIRE(begin(HOUR_MS, 0));
    for (int i = 0; i < 6; i++)
        insert_large(3 * 1024 * 1024);
    CHECK_OK(truce__engine_feed_keep(engine, 1, 0, &error), error);
    truce_store_close(store);
    /* the entries since the last step count, because another handle wrote them */
    REQUIRE(open_again());
    truce__clock_sleep_ms(5);
    CHECK_OK(truce__engine_feed_prune(engine, NULL, &more, &error), error);
    CHECK(more);
    CHECK_INT(count_entries(FEED_INSERT), ==, 4);
    truce_store_close(store);
}

TEST(a_feed_that_is_kept_again_is_another_feed)
{
    struct feed_state first, second;
    bson_error_t error;
    int64_t reached;

    REQUIRE(begin(HOUR_MS, 0));
    first = state_now();
    insert("c", "{}");
    CHECK_OK(truce__kv_mark(engine->kv, &error), error); /* as checkpoints do */
    truce_store_close(store);
    REQUIRE(open_again());
    CHECK_OK(truce__engine_feed_keep(engine, 0, 0, &error), error);
    CHECK_INT(state_now().spec.table, ==, 0);
    truce_store_close(store);
    REQUIRE(open_again());
    CHECK_OK(truce__engine_feed_keep(engine, HOUR_MS, 0, &error), error);
    second = state_now();
    CHECK(!bson_oid_equal(&first.spec.id, &second.spec.id));
    CHECK_STATUS(TRUCE_EXPIRED,
                 truce__engine_feed_read(engine, &first.spec.id, second.last, 10, take_nothing,
                                         NULL, &reached, &error),
                 error);
    check_store();
    truce_store_close(store);
}

/* ---- collections and indexes ----------------------------------------------------------------- */

static void make_index(const char *collection, const char *json, truce_status status)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_STATUS(status, truce_index_create(store, collection, index, &error), error);
    bson_destroy(index);
}

static void expect_counts(int created, int modified, int made, int dropped)
{
    CHECK_INT(count_entries(FEED_CREATE), ==, created);
    CHECK_INT(count_entries(FEED_MODIFY), ==, modified);
    CHECK_INT(count_entries(FEED_INDEX), ==, made);
    CHECK_INT(count_entries(FEED_INDEX_DROP), ==, dropped);
}

#define INDEX(F) "{'v': 2, 'key': {'" F "': 1}, 'name': '" F "_1'}"

TEST(reports_created_collections_and_indexes_once)
{
    bson_t *validator = test_bson("{'n': {'$gt': 0}}");
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    CHECK_OK(truce_collection_create(store, "a", &error), error);
    insert("b", "{'n': 1}");
    insert("b", "{'n': 1}");
    make_index("c", INDEX("n"), TRUCE_OK);
    expect_counts(3, 0, 1, 0);
    make_index("c", INDEX("n"), TRUCE_OK); /* it exists */
    make_index("b", "{'v': 2, 'key': {'n': 1}, 'name': 'n_1', 'unique': true}", TRUCE_DUPLICATE);
    make_index("b", INDEX("n"), TRUCE_OK);
    expect_counts(3, 0, 2, 0);
    CHECK_OK(truce_collection_validate(store, "a", validator, &error), error);
    CHECK_OK(truce_index_drop(store, "b", "n_1", &error), error);
    expect_counts(3, 1, 2, 1);
    insert("truce_queue", "{'_id': 1}");
    make_index("truce_queue", INDEX("n"), TRUCE_OK);
    expect_counts(3, 1, 2, 1);
    check_store();
    bson_destroy(validator);
    truce_store_close(store);
}

TEST(reports_a_document_of_the_greatest_depth)
{
    bson_t *document = test_bson("{}");
    struct replay replay;
    bson_error_t error;

    for (int i = 1; i < 100; i++) {
        bson_t *around = BCON_NEW("a", BCON_DOCUMENT(document));

        bson_destroy(document);
        document = around;
    }
    REQUIRE(begin(HOUR_MS, 0));
    replay_open(&replay);
    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    CHECK(replay_follow(&replay, store) && replay_same(&replay, store));
    check_store();
    bson_destroy(document);
    replay_close(&replay);
    truce_store_close(store);
}

/* ---- maintenance of the file ----------------------------------------------------------------- */

/* Writes an entry with a byte sum that the feed would not write. */
static void put_entry(int64_t position, int64_t sum, const char *kind)
{
    bson_t *key = test_bson("{'_id': 1}");
    bson_t *entry =
        BCON_NEW("s", BCON_INT64(sum), "w", BCON_DATE_TIME(0), "o", BCON_UTF8(kind), "c",
                 BCON_UTF8("c"), "k", BCON_BIN(BSON_SUBTYPE_BINARY, bson_get_data(key), key->len));
    struct feed_state state = state_now();
    bson_error_t error;
    uint32_t version;

    CHECK_OK(truce__kv_write_begin(engine->kv, &version, &error), error);
    CHECK_OK(truce__kv_row_insert(engine->kv, state.spec.table, &position,
                                  (struct bytes){bson_get_data(entry), entry->len}, &error),
             error);
    CHECK_OK(truce__kv_write_commit(engine->kv, &error), error);
    bson_destroy(entry);
    bson_destroy(key);
}

static void check_refuses(int64_t more, int64_t sum, const char *kind)
{
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    insert("c", "{'_id': 1}");
    check_store();
    put_entry(state_now().last + more, sum, kind);
    CHECK_STATUS(TRUCE_CORRUPT, truce__engine_check(engine, NULL, NULL, &error), error);
    CHECK_TEXT("the entry", strstr(error.message, "the entry") ? "the entry" : error.message);
    truce_store_close(store);
}

TEST(finds_invalid_entries_in_a_check)
{
    check_refuses(1, 1, "d");       /* bytes that others have had */
    check_refuses(1, 1 << 20, "i"); /* without its document */
    check_refuses(1, 1 << 20, "x");
}

TEST(salvages_a_file_without_a_feed)
{
    truce_salvage_report report;
    truce_store *saved;
    bson_error_t error;
    bson_t list;

    REQUIRE(begin(HOUR_MS, 0));
    for (int i = 0; i < 300; i++)
        insert("c", "{'text': 'a document of some length, so that there are several pages'}");
    truce_store_close(store);
    REQUIRE(CHECK_OK(truce_store_open("memory:", NULL, &saved, &error), error));
    CHECK_OK(truce_salvage(path, saved, NULL, &report, &error), error);
    CHECK(report.complete);
    CHECK_INT(report.collections, ==, 1);
    CHECK_INT(report.documents, ==, 300);
    CHECK_OK(truce_collection_list(saved, NULL, &list, &error), error);
    CHECK_INT(bson_count_keys(&list), ==, 1);
    bson_destroy(&list);
    truce_store_close(saved);
}
