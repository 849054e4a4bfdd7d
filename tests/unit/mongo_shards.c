/* Collections that are sharded by another key than _id, on a mongos without data. The key's values
 * go into find-and-modify, and operations that cannot be atomic there fail with an error that names
 * them. */
#include "store/mongodb/mongo.h"

#include "tests/support/bank.h"
#include "tests/support/stage.h"
#include "truce/doctor.h"

/* A mongos: config.collections says `key` of every collection; "things" holds {_id: 1, place: {x:
 * X}, n: 2}. */
struct cluster {
    const char *key; /* NULL: nothing is sharded */
    int x;
    int moves;   /* how often X changes between a read and the find-and-modify */
    bool gone;   /* after the first read */
    bool secret; /* config may not be read */
    int configs, looks, modified, refused;
};

static void say(bson_t *reply, const char *json)
{
    bson_t *said = test_bson(json);

    bson_concat(reply, said);
    bson_destroy(said);
}

static void say_batch(bson_t *reply, const char *document)
{
    char text[400];

    snprintf(text, sizeof text, "{'cursor': {'id': 0, 'ns': 'db.x', 'firstBatch': [%s]}}",
             document);
    say(reply, text);
}

static void answer_modify(struct cluster *cluster, const bson_t *command, bson_t *reply)
{
    bson_iter_t iter, found;
    bool named;
    bson_t query;
    const uint8_t *bytes;
    uint32_t length;

    bson_iter_init_find(&iter, command, "query");
    bson_iter_document(&iter, &length, &bytes);
    bson_init_static(&query, bytes, length);
    if (bson_iter_init(&iter, &query) && bson_iter_find_descendant(&iter, "$and.1", &found)) {
        bson_iter_document(&found, &length, &bytes);
        bson_init_static(&query, bytes, length);
    }
    named = bson_iter_init_find(&iter, &query, "place.x") && bson_iter_recurse(&iter, &found) &&
            bson_iter_find(&found, "$eq");
    if (cluster->key && strstr(cluster->key, "place.x") && !named) {
        cluster->refused++;
        say(reply, "{'ok': 0, 'code': 61, 'errmsg': 'Query for sharded findAndModify must contain "
                   "the shard key'}");
    } else if (named && bson_iter_as_int64(&found) != cluster->x) {
        say(reply, "{'value': null, 'lastErrorObject': {'n': 0}}");
    } else {
        cluster->modified++;
        say(reply, "{'value': {'_id': 1, 'n': 2}, 'lastErrorObject': {'n': 1}}");
    }
}

static enum fake_act be_mongos(const bson_t *command, bson_t *reply, void *arg)
{
    struct cluster *cluster = arg;
    char text[200];
    bson_iter_t iter;

    if (bson_has_field(command, "findAndModify")) {
        answer_modify(cluster, command, reply);
        return FAKE_ANSWER;
    }
    if (!bson_iter_init_find(&iter, command, "find"))
        return FAKE_PASS;
    if (!strcmp(bson_iter_utf8(&iter, NULL), "collections")) {
        cluster->configs++;
        snprintf(text, sizeof text, "{'_id': 'db.things', 'key': %s}",
                 cluster->key ? cluster->key : "{}");
        if (cluster->secret)
            say(reply, "{'ok': 0, 'code': 13, 'errmsg': 'not authorized on config'}");
        else
            say_batch(reply, cluster->key ? text : "");
        return FAKE_ANSWER;
    }
    if (strcmp(bson_iter_utf8(&iter, NULL), "things") != 0)
        return FAKE_PASS;
    snprintf(text, sizeof text, "{'_id': 1, 'place': {'x': %d}}", cluster->x);
    say_batch(reply, cluster->gone && cluster->looks > 0 ? "" : text);
    cluster->looks++;
    if (cluster->moves > 0) {
        cluster->moves--;
        cluster->x++;
    }
    return FAKE_ANSWER;
}

static truce_status modify(struct stage *stage, const char *filter_json, bson_error_t *error)
{
    bson_t *filter = test_bson(filter_json), *update = test_bson("{'$inc': {'n': 1}}"), document;
    truce_status status =
        truce_find_and_modify(stage->store, "things", filter, update, NULL, &document, NULL, error);

    bson_destroy(&document);
    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static bool open_cluster(struct stage *stage, struct cluster *cluster)
{
    bson_error_t error = {0};

    stage_script(stage, (struct script){.own = be_mongos, .arg = cluster});
    return CHECK_OK(raise_stage(stage, FAKE_SHARDED, 9, "", &error), error);
}

static void check_query(struct stage *stage, const char *wanted, int line)
{
    check_asked(stage, "findAndModify", "query", wanted, line);
}

TEST(the_shard_keys_values_go_into_a_find_and_modify)
{
    struct cluster cluster = {.key = "{'place.x': 1, 'k': 'hashed'}", .x = 7};
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (open_cluster(&stage, &cluster)) {
        CHECK_OK(modify(&stage, "{'_id': 1}", &error), error);
        check_query(&stage,
                    "{ \"_id\" : 1, \"place.x\" : { \"$eq\" : 7 }, \"k\" : { \"$eq\" : null } }",
                    __LINE__);
        CHECK_OK(modify(&stage, "{'n': 2}", &error), error); /* an item: another filter than _id */
        check_query(&stage,
                    "{ \"n\" : 2, \"_id\" : { \"$eq\" : 1 }, \"place.x\" : { \"$eq\" : 7 }, \"k\" "
                    ": { \"$eq\" : null } }",
                    __LINE__);
        CHECK_INT(cluster.looks, ==, 2);
        CHECK_OK(modify(&stage, "{'place.x': {'$eq': 7}, 'k': 1}", &error), error);
        check_query(&stage, "{ \"place.x\" : { \"$eq\" : 7 }, \"k\" : 1 }", __LINE__);
        CHECK_INT(cluster.looks, ==, 2); /* the filter contains the key's values */
        CHECK_OK(modify(&stage, "{'place.x': {'$gte': 7}, 'k': 1}", &error), error);
        check_query(&stage,
                    "{ \"$and\" : [ { \"place.x\" : { \"$gte\" : 7 }, \"k\" : 1 }, { \"_id\" : { "
                    "\"$eq\" : 1 }, \"place.x\" : { \"$eq\" : 7 } } ] }",
                    __LINE__);
        CHECK_INT(cluster.looks, ==, 3);
        CHECK_INT(cluster.configs, ==, 1);
        CHECK_INT(cluster.refused, ==, 0);
    }
    strike(&stage);
}

TEST(a_document_whose_key_changes_is_looked_for_again)
{
    struct cluster cluster = {.key = "{'place.x': 1}", .x = 7, .moves = 3}, gone = cluster;
    struct stage stage = {{0}}, other = {{0}};
    bson_error_t error = {0};

    if (open_cluster(&stage, &cluster)) {
        CHECK_OK(modify(&stage, "{'_id': 1}", &error), error);
        CHECK_INT(cluster.looks, ==, 4);
        CHECK_INT(cluster.modified, ==, 1);
    }
    strike(&stage);
    gone.gone = true;
    if (open_cluster(&other, &gone)) {
        CHECK_STATUS(TRUCE_NOT_FOUND, modify(&other, "{'_id': 1}", &error), error);
        CHECK_INT(gone.looks, ==, 2);
        CHECK_INT(gone.modified, ==, 0);
    }
    strike(&other);
}

TEST(a_collection_that_is_sharded_while_it_is_used_is_read_again)
{
    struct cluster cluster = {.x = 7};
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (open_cluster(&stage, &cluster)) {
        CHECK_OK(modify(&stage, "{'_id': 1}", &error), error);
        CHECK_INT(cluster.looks, ==, 0);
        cluster.key = "{'place.x': 1}";
        CHECK_OK(modify(&stage, "{'_id': 1}", &error), error);
        CHECK_INT(cluster.refused, ==, 1);
        CHECK_INT(cluster.configs, ==, 2);
        CHECK_OK(modify(&stage, "{'_id': 1}", &error), error);
        CHECK_INT(cluster.refused, ==, 1);
    }
    strike(&stage);
}

TEST(returns_the_clusters_error_if_the_shard_key_is_not_readable)
{
    struct cluster cluster = {.key = "{'place.x': 1}", .secret = true};
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (open_cluster(&stage, &cluster)) {
        CHECK_STATUS(TRUCE_INVALID, modify(&stage, "{'_id': 1}", &error), error);
        CHECK_INT(error.code, ==, 61);
        CHECK_INT(cluster.refused, ==, 2);
    }
    strike(&stage);
}

/* ---- operations that cannot be atomic -------------------------------------------------------- */

static void check_insert(const char *key, const char *collection, const char *json, bool atomic,
                         bool allowed, int line)
{
    struct cluster cluster = {.key = key};
    bson_t *document = test_bson(json);
    truce_write write = {
        .kind = TRUCE_WRITE_INSERT, .collection = collection, .document = document};
    truce_bulk_options options = {.atomic = atomic};
    truce_write_outcome outcome;
    struct stage stage = {{0}};
    bson_error_t error = {0};

    if (open_cluster(&stage, &cluster)) {
        bson_t *sent;

        test_check_status(allowed ? 0 : (int)TRUCE_INVALID,
                          (int)truce_bulk(stage.store, &write, 1, &options, &outcome, &error),
                          &error, "insert", __FILE__, line);
        sent = fake_last(stage.fake, "insert");
        test_check_int(sent != NULL, allowed, (sent != NULL) == allowed, "sent", __FILE__, line);
        bson_destroy(sent);
        if (!allowed &&
            (!strstr(error.message, collection) || !strstr(error.message, "sharded by")))
            test_fail(__FILE__, line, "%s", error.message);
    }
    strike(&stage);
    bson_destroy(document);
}

TEST(refuses_unique_ids_if_two_shards_may_hold_one)
{
    static const char *const by_id = "{'_id': 'hashed'}", *const by_place = "{'place.x': 1}";
    static const char written[] = "{'_id': 1, '_rev': 2}";

    for (int atomic = 0; atomic < 2; atomic++) {
        check_insert(by_place, "things", written, atomic, false, __LINE__);
        check_insert(by_place, "things", "{'_id': 1, '_intent': {}}", atomic, false, __LINE__);
        check_insert(by_place, "things", "{'_id': 1}", atomic, true, __LINE__);
        check_insert(by_place, "things", "{'_id': {'$oid': '0123456789abcdef01234567'}, '_rev': 2}",
                     atomic, true, __LINE__);
        check_insert("{'_id': 1, 'a': 1}", "things", written, atomic, false, __LINE__);
        check_insert(by_id, "things", written, atomic, true, __LINE__);
        check_insert(NULL, "things", written, atomic, true, __LINE__);
    }
}

TEST(refuses_a_shard_key_that_splits_truces_own_collections)
{
    static const char *const by_id = "{'_id': 1}", *const by_place = "{'place.x': 1}";

    check_insert(by_id, "truce_commits", "{'_id': 1}", false, false, __LINE__);
    check_insert(by_place, "truce_commits", "{'_id': 1}", false, false, __LINE__);
    check_insert(NULL, "truce_commits", "{'_id': 1}", false, true, __LINE__);
    check_insert(by_id, "truce_sets", "{'_id': 1}", false, false, __LINE__);
    check_insert(by_id, "truce_sequences", "{'_id': 1}", false, true, __LINE__);
    check_insert(by_place, "truce_sequences", "{'_id': 1}", false, false, __LINE__);
    check_insert(by_place, "posts.revisions", "{'_id': 1}", false, false, __LINE__);
    check_insert(by_id, "posts.revisions", "{'_id': 1}", false, true, __LINE__);
}

/* ---- listings and copies --------------------------------------------------------------------- */

/* "things" has 10 documents, two of them on their way between shards, and a hashed index. */
static enum fake_act be_moving(const bson_t *command, bson_t *reply, void *arg)
{
    bson_iter_t iter;

    (void)arg;
    if (bson_has_field(command, "listCollections"))
        say_batch(reply, "{'name': 'things', 'type': 'collection', 'options': {}, 'info': {}}");
    else if (bson_has_field(command, "listIndexes"))
        say_batch(reply, "{'v': 2, 'key': {'_id': 1}, 'name': '_id_'},"
                         "{'v': 2, 'key': {'place': 'hashed'}, 'name': 'place_hashed'}");
    else if (bson_has_field(command, "collStats"))
        say(reply, "{'count': 12, 'size': 300, 'nindexes': 2}");
    else if (bson_iter_init_find(&iter, command, "aggregate") &&
             !strcmp(bson_iter_utf8(&iter, NULL), "things"))
        say_batch(reply, "{'_id': 1, 'n': 10}");
    else
        return FAKE_PASS;
    return FAKE_ANSWER;
}

TEST(documents_between_two_shards_are_counted_once)
{
    struct stage stage = {{0}};
    bson_error_t error = {0};
    bson_t list = BSON_INITIALIZER;
    bson_iter_t iter, found;

    stage_script(&stage, (struct script){.own = be_moving});
    if (CHECK_OK(raise_stage(&stage, FAKE_SHARDED, 9, "", &error), error)) {
        bson_destroy(&list);
        CHECK_OK(truce_collection_list(stage.store, NULL, &list, &error), error);
        REQUIRE(bson_iter_init(&iter, &list) &&
                bson_iter_find_descendant(&iter, "0.documents", &found));
        CHECK_INT(bson_iter_as_int64(&found), ==, 10);
    }
    bson_destroy(&list);
    strike(&stage);
}

TEST(a_copy_leaves_hashed_indexes_where_they_are)
{
    struct stage stage = {{0}};
    truce_store *to = NULL;
    truce_copy_report report = {0};
    bson_error_t error = {0};

    stage_script(&stage, (struct script){.own = be_moving});
    CHECK_OK(truce_store_open("memory:", NULL, &to, &error), error);
    if (CHECK_OK(raise_stage(&stage, FAKE_SHARDED, 9, "", &error), error)) {
        CHECK_OK(
            truce_copy(stage.store, to, &(truce_copy_options){.name = "here"}, &report, &error),
            error);
        CHECK_INT(report.differences, ==, 0);
    }
    strike(&stage);
    truce_store_close(to);
}

/* ---- the doctor ------------------------------------------------------------------------------ */

static enum fake_act have_a_set(const bson_t *command, bson_t *reply, void *arg)
{
    const char *collection;
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, command, "find"))
        return FAKE_PASS;
    collection = bson_iter_utf8(&iter, NULL);
    if (!strcmp(collection, "collections"))
        say_batch(reply, "{'_id': 'db.students', 'key': {'school': 1}}");
    else if (!strcmp(collection, "truce_sets") && *(bool *)arg)
        say_batch(reply, "{'_id': 'students.classes', 'key': ['school', 'student_id'], 'layout': "
                         "'document'}");
    else
        return FAKE_PASS;
    return FAKE_ANSWER;
}

static void count_shard_keys(const bson_t *finding, void *arg)
{
    bson_iter_t iter;

    *(int *)arg += bson_iter_init_find(&iter, finding, "rule") &&
                   !strcmp(bson_iter_utf8(&iter, NULL), "shard-key");
}

TEST(the_doctor_reads_of_which_sets_the_shard_keys_are)
{
    for (int defined = 0; defined <= 1; defined++) {
        bool has_set = defined;
        struct stage stage = {.script = {.own = have_a_set, .arg = &has_set}};
        truce_doctor_report report = {0};
        bson_error_t error = {0};
        int found = 0;

        if (CHECK_OK(raise_stage(&stage, FAKE_SHARDED, 9, "", &error), error)) {
            CHECK_OK(truce_doctor(stage.store, count_shard_keys, &found, &report, &error), error);
            CHECK_INT(found, ==, !defined);
            bson_destroy(&report.facts);
        }
        strike(&stage);
    }
}
