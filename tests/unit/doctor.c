/* The doctor's judgements, on recorded facts of deployments that are not at hand, and on stores. */
#include "maintenance/doctor.h"

#include "base/clock.h"
#include "tests/support/open_lock.h"
#include "tests/support/test.h"
#include "truce/truce.h"

/* "error version the server" for each finding, a line each */
struct heard {
    char text[4000];
};

static const char *field(const bson_t *finding, const char *name)
{
    bson_iter_t iter;

    CHECK(bson_iter_init_find(&iter, finding, name) && BSON_ITER_HOLDS_UTF8(&iter) &&
          *bson_iter_utf8(&iter, NULL));
    return bson_iter_init_find(&iter, finding, name) ? bson_iter_utf8(&iter, NULL) : "";
}

static void hear(const bson_t *finding, void *arg)
{
    struct heard *heard = arg;
    size_t length = strlen(heard->text);

    snprintf(heard->text + length, sizeof heard->text - length, "%s %s %s\n",
             field(finding, "level"), field(finding, "rule"), field(finding, "subject"));
    CHECK(*field(finding, "text") && *field(finding, "change"));
}

static void check_judged(const char *json, const char *expected, int line)
{
    bson_t *facts = test_bson(json);
    truce_doctor_report report = {0};
    struct heard heard = {""};
    struct doctor doctor = {.function = hear, .arg = &heard, .report = &report, .facts = facts};

    truce__doctor_server(&doctor);
    truce__doctor_shards(&doctor);
    truce__doctor_file(&doctor);
    test_check_text(expected, heard.text, __FILE__, line);
    bson_destroy(facts);
}
#define JUDGED(facts, expected) check_judged(facts, expected, __LINE__)

#define ABLE                                                                                       \
    "'capabilities': ['transactions', 'updates by pipelines', 'array filters', 'durable writes']"
#define HELLO                                                                                      \
    "'hello': {'isWritablePrimary': true, 'maxWireVersion': 17, 'setName': 'rs0', "                \
    "'logicalSessionTimeoutMinutes': 30}"
#define BUILD   "'build': {'version': '6.0.14', 'ok': 1.0}"
#define FEATURE "'feature': {'featureCompatibilityVersion': {'version': '6.0'}, 'ok': 1.0}"
#define CLOCK   "'clock': {'server': 1700000000500, 'before': 1700000000400, 'after': 1700000000600}"
#define STATUS                                                                                     \
    "'status': {'connections': {'current': 12, 'available': 51188}, 'storageEngine': {'name': "    \
    "'wiredTiger', 'supportsCommittedReads': true, 'persistent': true}}"
#define SPACE "'space': {'fsUsedSize': 40000000000.0, 'fsTotalSize': 100000000000.0}"
#define HEAD(deployment)                                                                           \
    "{'store': 'mongodb', 'database': 'school', 'deployment': '" deployment "', " ABLE ", " HELLO  \
    ", " FEATURE ", "
#define MEMBER(n, more) "{'_id': " #n ", 'host': 'db" #n ":27017', 'votes': 1" more "}"

/* ---- servers -------------------------------------------------------------------------------- */

TEST(a_replica_set_of_three_in_good_order_has_no_findings)
{
    JUDGED(
        HEAD("replica set") BUILD
        "," CLOCK "," STATUS "," SPACE
        ", 'options': {'parsed': {'storage': {'dbPath': '/data'}}}, 'defaults': "
        "{'defaultWriteConcern': {'w': 'majority', 'wtimeout': 0}}, 'config': {'config': {'members': [" MEMBER(
            0,
            "") "," MEMBER(1,
                           "") "," MEMBER(2,
                                          "") "], 'writeConcernMajorityJournalDefault': true}}, 'replica': {'members': [{'name': "
                                              "'db0:27017', 'health': 1.0, 'stateStr': 'PRIMARY', 'optimeDate': {'$date': "
                                              "{'$numberLong': '1700000000000'}}}, {'name': 'db1:27017', 'health': 1.0, 'stateStr': "
                                              "'SECONDARY', 'optimeDate': {'$date': {'$numberLong': '1699999999000'}}}]}}",
        "");
}

TEST(recommends_a_replica_set_to_a_standalone_server)
{
    JUDGED("{'store': 'mongodb', 'database': 'school', 'deployment': 'standalone', 'capabilities': "
           "['updates by pipelines', 'durable writes'], 'hello': {'maxWireVersion': 17}, " BUILD
           "," FEATURE "}",
           "note transactions the server\n");
    JUDGED("{'store': 'mongodb', 'database': 'school', 'deployment': 'standalone', 'capabilities': "
           "['durable writes'], 'hello': {'maxWireVersion': 5}, 'build': {'version': '3.4.24'}}",
           "error version the server\nnote transactions the server\n"
           "note pipeline-updates the server\n");
}

TEST(reports_missing_features_of_a_replica_set)
{
    JUDGED("{'store': 'mongodb', 'deployment': 'replica set', 'capabilities': ['updates by "
           "pipelines', 'durable writes'], 'hello': {'maxWireVersion': 17}, " BUILD ", 'feature': "
           "{'featureCompatibilityVersion': {'version': '5.0'}}}",
           "warning feature-version the server\nwarning transactions the server\n"
           "warning sessions the server\n");
}

TEST(the_feature_version_is_compared_by_its_numbers)
{
    JUDGED("{'store': 'mongodb', 'deployment': 'replica set', " ABLE "," HELLO ", 'build': "
           "{'version': '6.01.1'}, " FEATURE "}",
           "warning feature-version the server\n");
}

TEST(reports_a_server_that_can_lose_acknowledged_writes)
{
    JUDGED(HEAD("replica set") BUILD
           ", 'status': {'storageEngine': {'name': 'inMemory', 'persistent': "
           "false, 'supportsCommittedReads': true}}}",
           "error durability the server\n");
    JUDGED(HEAD("replica set") BUILD ", 'status': {'storageEngine': {'name': 'ephemeralForTest'}}}",
           "error durability the server\n");
    JUDGED(HEAD("replica set") BUILD
           ", 'options': {'parsed': {'storage': {'journal': {'enabled': false}}}}}",
           "error durability the server\n");
    JUDGED(
        HEAD("replica set") BUILD
        ", 'status': {'storageEngine': {'name': 'wiredTiger', 'supportsCommittedReads': false}}}",
        "error read-concern the server\n");
}

TEST(reports_members_that_cannot_form_a_majority)
{
    JUDGED(HEAD("replica set") BUILD ", 'config': {'config': {'members': [" MEMBER(
               0, "") "," MEMBER(1, "") "," MEMBER(2, ", 'arbiterOnly': true") "]}}}",
           "warning members rs0\n");
    JUDGED(HEAD("replica set") BUILD ", 'config': {'config': {'members': [" MEMBER(0, "") "]}}}",
           "note members rs0\n");
    JUDGED(HEAD("replica set") BUILD ", 'config': {'config': {'members': [" MEMBER(
               0, "") "," MEMBER(1, "") "," MEMBER(2, "") "," MEMBER(3, "") "]}}}",
           "note members rs0\n");
    JUDGED(HEAD("replica set") BUILD
           ", 'config': {'config': {'members': [" MEMBER(0, "") "," MEMBER(1, "") "," MEMBER(
               2, "") "," MEMBER(3, "") "," MEMBER(4, ", 'arbiterOnly': true") "]}}}",
           "");
    JUDGED(
        HEAD("replica set") BUILD
        ", 'replica': {'members': [{'name': 'db1', 'health': 0.0, 'stateStr': '(not reachable)'}, "
        "{'name': 'db0', 'health': 1.0, 'stateStr': 'PRIMARY', 'optimeDate': {'$date': "
        "{'$numberLong': '1700000100000'}}}, {'name': 'db2', 'health': 1.0, 'stateStr': "
        "'SECONDARY', 'optimeDate': {'$date': {'$numberLong': '1700000000000'}}}]}}",
        "warning members db1\nwarning lag db2\n");
}

TEST(defaults_of_other_programs_are_notes)
{
    JUDGED(HEAD("replica set") BUILD ", 'defaults': {'defaultWriteConcern': {'w': 1}}}",
           "note default-write-concern the server\n");
    JUDGED(HEAD("replica set") BUILD ", 'config': {'config': {'members': [],"
                                     "'writeConcernMajorityJournalDefault': false}}}",
           "note default-write-concern the server\n");
}

TEST(reports_a_clock_difference_beyond_the_network_delay)
{
    JUDGED(HEAD("replica set") BUILD
           ", 'clock': {'server': 1700000005000, 'before': 1700000000000, 'after': 1700000004500}}",
           "");
    JUDGED(HEAD("replica set") BUILD
           ", 'clock': {'server': 1700000005600, 'before': 1700000000000, 'after': 1700000004500}}",
           "warning clock the server\n");
    JUDGED(HEAD("replica set") BUILD
           ", 'clock': {'server': 1699999998000, 'before': 1700000000000, 'after': 1700000004500}}",
           "warning clock the server\n");
}

TEST(reports_exhausted_resources)
{
    JUDGED(HEAD("replica set") BUILD
           ", 'status': {'connections': {'current': 790, 'available': 29}}, "
           "'space': {'fsUsedSize': 98000000000.0, 'fsTotalSize': 100000000000.0}}",
           "warning connections the server\nwarning disk-space the server\n");
}

TEST(notes_forbidden_facts_and_omits_missing_ones)
{
    JUDGED(HEAD("replica set") BUILD
           ", 'status': {'refused': 'not authorized on admin', 'code': 13}, 'config': {'refused': "
           "'no such command', 'code': 59}}",
           "note rights status\n");
}

/* ---- shards --------------------------------------------------------------------------------- */

#define SHARDED(list) HEAD("sharded") BUILD ", 'sharded': [" list "]}"

TEST(each_layout_has_its_shard_key)
{
    JUDGED(SHARDED("{'_id': 'school.accounts', 'key': {'_id': 'hashed'}, 'unique': false},"
                   "{'_id': 'school.truce_sequences', 'key': {'_id': 1}},"
                   "{'_id': 'school.posts.revisions', 'key': {'_id': 'hashed'}}"),
           "");
    JUDGED(SHARDED("{'_id': 'school.truce_commits', 'key': {'_id': 'hashed'}}"),
           "error shard-key truce_commits\n");
    JUDGED(SHARDED("{'_id': 'school.truce_progress', 'key': {'set': 1}},"
                   "{'_id': 'school.posts.revisions', 'key': {'document': 1, '_id': 1}}"),
           "error shard-key truce_progress\nerror shard-key posts.revisions\n");
    JUDGED(SHARDED("{'_id': 'school.students', 'key': {'student_id': 1}, 'unique': true}"),
           "warning shard-key students\n");
    JUDGED(SHARDED(""), "note shard-key school\n");
#define SETS(list, sets) HEAD("sharded") BUILD ", 'sharded': [" list "], 'sets': [" sets "]}"
#define STUDENTS(key)    "{'_id': 'school.students', 'key': " key "}"
#define CLASSES          "{'_id': 'students.classes', 'key': ['school', 'student_id'], 'layout': 'document'}"
    /* an ordered set, whose key begins with the shard key */
    JUDGED(SETS(STUDENTS("{'school': 1}"), CLASSES), "");
    JUDGED(SETS(STUDENTS("{'school': 1, 'student_id': 1}"), CLASSES), "");
    JUDGED(SETS(STUDENTS("{'student_id': 1}"), CLASSES), "warning shard-key students\n");
    JUDGED(SETS(STUDENTS("{'school': 1, 'student_id': 1, 'x': 1}"), CLASSES),
           "warning shard-key students\n");
    JUDGED(SETS(STUDENTS("{'school': 'hashed'}"), CLASSES), "warning shard-key students\n");
    JUDGED(SETS(STUDENTS("{'_id': 'hashed', 'student_id': 1}"), CLASSES),
           "warning shard-key students\n");
    JUDGED(SETS(STUDENTS("{'student_id': 'hashed'}"),
                "{'_id': 'students.classes', 'key': ['student_id'], 'layout': 'document'}"),
           "");
    JUDGED(SETS("{'_id': 'school.student', 'key': {'school': 1}}", CLASSES),
           "warning shard-key student\n");
    JUDGED(SETS("{'_id': 'school.pages.seen', 'key': {'visitor': 1, 'page': 1}},"
                "{'_id': 'school.pages', 'key': {'visitor': 1}}",
                "{'_id': 'pages.seen', 'key': ['visitor'], 'name': 'page', 'layout': 'element'}"),
           "warning shard-key pages\n");
}

/* ---- files ---------------------------------------------------------------------------------- */

#define FILE_HEAD(mode)                                                                            \
    "{'store': 'file', 'path': '/d/s.truce', 'file': {'bytes': 9000, 'mode': " mode                \
    ", 'writable': true}"
#define LOCK ", 'lock': {'bytes': 4096}"
#define ROOM                                                                                       \
    ", 'space': {'free': {'$numberLong': '90000000000'}, 'total': {'$numberLong': '100000000000'}}"
#define ON(name, local) ", 'filesystem': {'type': 1, 'name': '" name "', 'local': " local "}}"

TEST(a_file_on_a_local_disk_with_room_has_no_findings)
{
    JUDGED(FILE_HEAD("420") LOCK ROOM ON("ext4", "true"), "");
}

TEST(reports_a_file_on_a_network_or_in_memory)
{
    JUDGED(FILE_HEAD("420") LOCK ROOM ON("nfs", "false"), "error file-system /d/s.truce\n");
    JUDGED(FILE_HEAD("420") LOCK ROOM ON("tmpfs", "true"), "warning file-system /d/s.truce\n");
    JUDGED(FILE_HEAD("420") LOCK ROOM ON("overlay", "true"), "note file-system /d/s.truce\n");
    JUDGED(FILE_HEAD("420") LOCK ROOM ", 'filesystem': {'type': 77}}",
           "note file-system /d/s.truce\n");
}

TEST(reports_a_full_disk_a_long_log_and_permissions)
{
    JUDGED(FILE_HEAD("420") LOCK
           ", 'space': {'free': 1000, 'total': {'$numberLong': '100000000000'}}}",
           "error disk-space /d/s.truce\n");
    JUDGED("{'store': 'file', 'path': '/d/s.truce', 'file': {'bytes': {'$numberLong': "
           "'5000000000'}, 'mode': 420, 'writable': true}" LOCK
           ", 'space': {'free': {'$numberLong': "
           "'1000000000'}, 'total': {'$numberLong': '100000000000'}}}",
           "warning disk-space /d/s.truce\n");
    JUDGED(FILE_HEAD("438") LOCK ", 'wal': {'bytes': 900000000}}",
           "warning wal /d/s.truce\nwarning permissions /d/s.truce\n");
    JUDGED(FILE_HEAD("420") LOCK ", 'directory': {'writable': false}}",
           "warning permissions /d/s.truce\n");
    JUDGED(FILE_HEAD("420") "}", "error lock-file /d/s.truce\n");
    JUDGED(FILE_HEAD("420") ", 'read_only': true}", "");
}

#define PIN(process, reads, bytes)                                                                 \
    "{'process': " #process ", 'reads': " #reads ", 'unlimited': 1, 'age_ms': 65000, 'bytes': "    \
    "{'$numberLong': '" #bytes "'}}"

#define FEED(entries, age, keep)                                                                   \
    ", 'feed': {'entries': " #entries ", 'bytes': 4096, 'age_ms': " #age ", 'keep_ms': " #keep     \
    ", 'keep_bytes': 1024}}"

TEST(reports_retained_changes_and_changes_that_are_never_pruned)
{
    JUDGED(FILE_HEAD("420") LOCK "}", "");
    JUDGED(FILE_HEAD("420") LOCK FEED(0, 0, 3600000), "note changes /d/s.truce\n");
    JUDGED(FILE_HEAD("420") LOCK FEED(9, 4200000, 3600000), "note changes /d/s.truce\n");
    JUDGED(FILE_HEAD("420") LOCK FEED(9, 4200001, 3600000), "warning changes /d/s.truce\n");
    /* the last one always stays */
    JUDGED(FILE_HEAD("420") LOCK FEED(1, 990000000, 3600000), "note changes /d/s.truce\n");
}

#define WRITER(ms) ", 'writer': {'process': 77, 'held_ms': " #ms "}}"

TEST(reports_a_process_that_holds_the_lock_for_ten_seconds)
{
    JUDGED(FILE_HEAD("420") LOCK WRITER(9999), "");
    JUDGED(FILE_HEAD("420") LOCK WRITER(10000), "warning long-write process 77\n");
}

TEST(reports_the_process_that_pins_the_log)
{
    JUDGED(FILE_HEAD("420") LOCK ", 'pins': []}", "");
    JUDGED(FILE_HEAD("420") LOCK ", 'pins': [" PIN(77, 2, 5000000) "]}",
           "note pinned process 77\n");
    JUDGED(FILE_HEAD("420") LOCK
           ", 'pins': [" PIN(77, 2, 268435456) ", " PIN(78, 1, 268435457) "]}",
           "note pinned process 77\nwarning pinned process 78\n");
}

/* ---- stores --------------------------------------------------------------------------------- */

static void insert(truce_store *store, const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

static void make_index(truce_store *store, const char *collection, const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_index_create(store, collection, index, &error), error);
    bson_destroy(index);
}

static void check_store(truce_store *store, const char *expected, int line)
{
    truce_doctor_report report;
    struct heard heard = {""};
    bson_error_t error = {0};

    CHECK_OK(truce_doctor(store, hear, &heard, &report, &error), error);
    test_check_text(expected, heard.text, __FILE__, line);
    bson_destroy(&report.facts);
}
#define FINDS(expected) check_store(store, expected, __LINE__)

TEST(indexes_that_protocols_rest_on_are_missed)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    FINDS("");
    insert(store, "accounts", "{'_id': 1, '_intent': {'c': {'$oid': '0123456789abcdef01234567'}}}");
    FINDS("error intent-index accounts\n");
    make_index(store, "accounts", "{'key': {'_intent': 1}}");
    FINDS("warning intent-index accounts\n");
    make_index(store, "people", "{'key': {'mail': 1}, 'unique': true}");
    make_index(store, "people", "{'key': {'_keys': 1}, 'unique': true}");
    FINDS("warning intent-index accounts\nnote unique-index people\nerror keys-index people\n"
          "note unique-index people\n");
    truce_store_close(store);
}

TEST(reports_abandoned_commits_and_unguarded_keys)
{
    char pending[300], decided[300], old[300];
    int64_t now_ms = truce__clock_wall_ms();
    truce_store *store = NULL;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    snprintf(pending, sizeof pending,
             "{'state': 'pending', 'lease': {'ms': 10000, 'until': {'$numberLong': '%" PRId64
             "'}}}",
             now_ms - 70000);
    snprintf(decided, sizeof decided,
             "{'state': 'committed', 'created': {'$date': {'$numberLong': '%" PRId64 "'}}}",
             now_ms - 70000);
    snprintf(old, sizeof old,
             "{'state': 'done', 'created': {'$date': {'$numberLong': '%" PRId64 "'}}}",
             now_ms - INT64_C(9) * 86400000);
    insert(store, "truce_commits", pending);
    insert(store, "truce_commits", decided);
    insert(store, "truce_commits", old);
    make_index(store, "truce_commits", "{'key': {'created': 1}, 'expireAfterSeconds': 60}");
    FINDS("error expiry truce_commits\nerror key-index truce_commits\n"
          "warning expired-commits truce_commits\nwarning unfinished-commits truce_commits\n"
          "note old-commits truce_commits\n");
    make_index(store, "truce_commits", "{'key': {'key': 1}, 'unique': true, 'sparse': true}");
    FINDS("error expiry truce_commits\nwarning expired-commits truce_commits\n"
          "warning unfinished-commits truce_commits\nnote old-commits truce_commits\n");
    truce_store_close(store);
}

/* Inserts a job of the queue "mail" in that state, with a time that long ago. */
static void insert_job(truce_store *store, const char *state, int64_t ago_ms)
{
    char text[400];

    snprintf(
        text, sizeof text,
        "{'queue': 'mail', 'state': '%s', 'undone': {'state': '%s', 'queue': 'mail', 'rank': 0,"
        " 'at': {'$date': {'$numberLong': '%" PRId64 "'}}}}",
        state, state, truce__clock_wall_ms() - ago_ms);
    insert(store, "truce_queue", text);
}

static void insert_cron(truce_store *store, const char *name, int64_t ago_ms)
{
    char text[300];

    snprintf(text, sizeof text,
             "{'_id': '%s', 'job': {'queue': 'mail'}, 'next': {'$date': {'$numberLong': '%" PRId64
             "'}}}",
             name, truce__clock_wall_ms() - ago_ms);
    insert(store, "truce_queue_crons", text);
}

TEST(reports_abandoned_jobs)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    insert_cron(store, "soon", -3600000);
    FINDS("");
    insert_cron(store, "late", 3600000);
    FINDS("warning late-cron late\n");
    insert_job(store, "ready", -3600000); /* now, by a clock that is ahead */
    make_index(store, "truce_queue", "{'key': {'undone.state': 1, 'a': 1, 'b': 1, 'c': 1}}");
    FINDS("warning job-index truce_queue\nwarning late-cron late\n");
    make_index(store, "truce_queue",
               "{'key': {'undone.state': 1, 'undone.queue': 1, 'undone.rank': 1, 'undone.at': 1}}");
    FINDS("warning late-cron late\n");
    insert_job(store, "ready", 7200000);
    FINDS("warning idle-queue mail\nwarning late-cron late\n");
    insert_job(store, "running", -3600000);
    FINDS("warning late-cron late\n");
    insert(store, "truce_queues", "{'_id': 'mail', 'paused': true}");
    FINDS("note paused-queue mail\nwarning late-cron late\n");
    insert_job(store, "delayed", -3600000);
    FINDS("note paused-queue mail\nwarning late-cron late\n");
    insert_job(store, "delayed", 3600000);
    insert_job(store, "running", 3600000);
    FINDS("note paused-queue mail\nwarning ended-leases truce_queue\nwarning late-jobs "
          "truce_queue\nwarning late-cron late\n");
    insert(store, "truce_queue",
           "{'queue': 'web', 'state': 'dead', 'dead': {'queue': 'web', 'at': {'$date': 0}}}");
    FINDS("note paused-queue mail\nwarning dead-letters web\nwarning ended-leases truce_queue\n"
          "warning late-jobs truce_queue\nwarning late-cron late\n");
    truce_store_close(store);
}

/* Reports all work without a process, and no work with one. */
TEST(reports_jobs_without_a_worker)
{
    truce_store *store = NULL;
    bson_error_t error;
    char text[300];

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    make_index(store, "truce_queue",
               "{'key': {'undone.state': 1, 'undone.queue': 1, 'undone.rank': 1, 'undone.at': 1}}");
    insert_job(store, "ready", 30000);
    FINDS("");
    insert_job(store, "ready", 1500000);
    FINDS("warning idle-queue mail\n");
    insert_job(store, "running", 3600000); /* its worker is gone */
    FINDS("warning idle-queue mail\nwarning ended-leases truce_queue\n");
    snprintf(text, sizeof text,
             "{'queue': 'mail', 'state': 'done', 'ended': {'$date': {'$numberLong': '%" PRId64
             "'}}}",
             truce__clock_wall_ms() - 120000);
    insert(store, "truce_queue", text); /* a worker that is between two jobs */
    FINDS("warning ended-leases truce_queue\n");
    insert_job(store, "blocked", 7200000);
    FINDS("warning ended-leases truce_queue\nnote blocked-jobs truce_queue\n");
    insert_job(store, "running", -7 * 86400000);
    FINDS("warning ended-leases truce_queue\nnote far-leases truce_queue\nnote blocked-jobs "
          "truce_queue\n");
    truce_store_close(store);
}

TEST(reports_stalled_lanes_limits_crons_and_requests)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    insert(store, "truce_queue_lanes", "{'_id': {'queue': 'q', 'lane': 'a'}, 'stalled': true}");
    FINDS("warning stalled-lanes truce_queue_lanes\n");
    insert(store, "truce_queue_limiters",
           "{'_id': {'queue': 'q'}, 'rate': 5, 'at': {'$date': 7258118400000}}");
    insert(store, "truce_queue_crons", "{'_id': 'c', 'paused': true}");
    insert(store, "truce_queue_crons",
           "{'_id': 'd', 'last': {'$date': 7258118400000}, 'next': {'$date': 7258204800000}}");
    insert(store, "truce_requests", "{'_id': 'k', 'state': 'waiting', 'due': {'$date': 0}}");
    insert(store, "truce_requests",
           "{'_id': 'l', 'state': 'waiting', 'due': {'$date': 7258118400000}}");
    FINDS(
        "warning stalled-lanes truce_queue_lanes\nwarning rate-ahead truce_queue_limiters\n"
        "warning cron-ahead truce_queue_crons\nnote paused-cron truce_queue_crons\nwarning late-requests truce_requests\n");
    truce_store_close(store);
}

TEST(a_queue_at_work_is_in_good_order)
{
    truce_store *store = NULL;
    truce_queue *queue;
    truce_job *job = NULL;
    bson_t *payload = test_bson("{}");
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "mail"});
    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
    CHECK_OK(truce_queue_claim(queue, &job, &error), error);
    FINDS("");
    truce_job_free(job);
    truce_queue_free(queue);
    bson_destroy(payload);
    truce_store_close(store);
}

TEST(reports_missing_collections_of_copies_and_transfers)
{
    truce_store *store = NULL;
    char still[300];
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    make_index(store, "users", "{'key': {'syncing': 1}, 'sparse': true}");
    make_index(store, "comments", "{'key': {'unchecked': 1}, 'sparse': true}");
    make_index(store, "comments", "{'key': {'user': 1, 'at': 1}}");
    insert(store, "truce_sync",
           "{'_id': 'author', 'source': 'users', 'dependent': 'comments', 'reference': 'user', "
           "'copies': {'author': 'name'}, 'resume_ms': 1000}");
    FINDS("");
    insert(store, "truce_sync",
           "{'_id': 'room', 'source': 'rooms', 'dependent': 'comments', 'reference': 'room.id', "
           "'copies': {'roomName': 'name'}, 'resume_ms': 1000}");
    FINDS("warning copies-source rooms\nwarning pattern-index comments\n");
    CHECK_OK(truce_index_drop(store, "users", "syncing_1", &error), error);
    CHECK_OK(truce_index_drop(store, "comments", "unchecked_1", &error), error);
    FINDS("warning pattern-index users\nwarning pattern-index comments\n"
          "warning copies-source rooms\nwarning pattern-index comments\n"
          "warning pattern-index comments\n");
    CHECK_OK(truce_collection_drop(store, "truce_sync", &error), error);
    insert(store, "truce_transfers", "{'_id': 'transactions', 'resume_ms': 1800000}");
    make_index(store, "transactions", "{'key': {'state': 1, 'lastModified': 1}}");
    for (int minutes = 30; minutes <= 32; minutes += 2) { /* 31 are too long */
        snprintf(still, sizeof still,
                 "{'state': 'applied', 'lastModified': {'$date': {'$numberLong': '%" PRId64 "'}}}",
                 truce__clock_wall_ms() - minutes * INT64_C(60000));
        insert(store, "transactions", still);
        if (minutes == 30)
            FINDS("");
    }
    FINDS("warning unfinished-transfers transactions\n");
    CHECK_OK(truce_index_drop(store, "transactions", "state_1_lastModified_1", &error), error);
    FINDS("warning pattern-index transactions\nwarning unfinished-transfers transactions\n");
    truce_store_close(store);
}

TEST(reports_missing_collections_of_trees)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    make_index(store, "pages",
               "{'key': {'tree': 1, 'itemId': 1, 'version': 1, 'token': 1}, 'unique': true}");
    insert(store, "truce_trees",
           "{'_id': 'site', 'collection': 'pages', 'current': 200, 'settled': 72}");
    insert(store, "truce_trees",
           "{'_id': 'draft', 'collection': 'pages', 'current': 1, 'settled': 1, "
           "'from': {'tree': 'site'}}");
    FINDS("");
    insert(store, "truce_trees",
           "{'_id': 'old', 'collection': 'pages', 'current': 201, 'settled': 72, "
           "'from': {'tree': 'gone'}}");
    insert(store, "truce_trees", "{'_id': 'half', 'collection': 'pages', 'dropped': true}");
    FINDS("warning unsettled-versions truce_trees\nwarning tree-origin truce_trees\n"
          "warning tree-dropped truce_trees\n");
    CHECK_OK(truce_collection_drop(store, "truce_trees", &error), error);
    CHECK_OK(truce_index_drop(store, "pages", "tree_1_itemId_1_version_1_token_1", &error), error);
    make_index(store, "pages", "{'key': {'tree': 1, 'itemId': 1, 'version': 1, 'token': 1}}");
    insert(store, "truce_trees", "{'_id': 'site', 'collection': 'pages', 'current': 1}");
    FINDS("error tree-index pages\n");
    truce_store_close(store);
}

TEST(a_store_that_commits_have_used_is_in_good_order)
{
    truce_store *store = NULL;
    truce_commit *commit = NULL;
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .key = "k", .key_time_ms = 1700000000000};
    bson_t *a = test_bson("{'_id': 1}"), *b = test_bson("{'_id': 2}");
    bson_error_t error;
    char uri[400];

    snprintf(uri, sizeof uri, "file:%s/doctor.truce", test_directory());
    if (!CHECK_OK(truce_store_open(uri, NULL, &store, &error), error))
        return;
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(truce_commit_insert(commit, "things", a, &error), error);
    CHECK_OK(truce_commit_insert(commit, "things", b, &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    truce_commit_free(commit);
    bson_destroy(a);
    bson_destroy(b);
    {
        truce_doctor_report report;
        struct heard heard = {""};
        bson_iter_t iter;

        CHECK_OK(truce_doctor(store, hear, &heard, &report, &error), error);
        CHECK(!strstr(heard.text, "index") && !strstr(heard.text, "commits"));
        CHECK(truce__doctor_fact(&report.facts, "space.free", &iter));
        CHECK(truce__doctor_fact(&report.facts, "lock.bytes", &iter));
        CHECK(truce__doctor_fact(&report.facts, "filesystem.type", &iter));
        bson_destroy(&report.facts);
    }
    truce_store_close(store);
}

/* A process that died holding the lock is not reported. */
TEST(names_the_process_that_holds_the_lock_to_write)
{
    struct lock lock = {.file = -1};
    truce_store *store = NULL;
    truce_doctor_report report;
    struct heard heard = {""};
    bson_iter_t iter;
    char path[400];
    bson_error_t error;

    snprintf(path, sizeof path, "%s/writer.truce", test_directory());
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error) ||
        !CHECK_OK(open_lock(path, &lock, &error), error) ||
        !CHECK_OK(truce__lock_acquire(&lock, INT64_MAX, &error), error))
        return;
    CHECK_OK(truce_doctor(store, hear, &heard, &report, &error), error);
    CHECK(truce__doctor_fact(&report.facts, "writer.process", &iter) &&
          bson_iter_int32(&iter) == (int)getpid());
    bson_destroy(&report.facts);
    truce__lock_release(&lock);
    atomic_store(&lock.page->holder, 4711);
    CHECK_OK(truce_doctor(store, hear, &heard, &report, &error), error);
    CHECK(!truce__doctor_fact(&report.facts, "writer.process", &iter));
    bson_destroy(&report.facts);
    truce__lock_close(&lock);
    truce_store_close(store);
}

static void hear_pin(const bson_t *finding, void *arg)
{
    char *text = arg;

    if (!strcmp(field(finding, "rule"), "pinned"))
        snprintf(text, 600, "%s %s: %s", field(finding, "level"), field(finding, "subject"),
                 field(finding, "text"));
}

/* Another handle reports the pages that an open snapshot of this process pins. */
TEST(reports_an_open_snapshot_with_its_process)
{
    const truce_snapshot_options unlimited = {.unlimited = true};
    truce_store *store = NULL, *other = NULL, *view;
    truce_doctor_report report;
    char text[600] = "", path[400], process[60];
    bson_error_t error;

    snprintf(path, sizeof path, "%s/doctor.truce", test_directory());
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error) ||
        !CHECK_OK(truce_store_open(path, NULL, &other, &error), error))
        return;
    CHECK_OK(truce_doctor(other, hear_pin, text, &report, &error), error);
    CHECK_TEXT("", text);
    bson_destroy(&report.facts);
    CHECK_OK(truce_snapshot(store, &unlimited, &view, &error), error);
    insert(store, "things", "{'_id': 1}");
    CHECK_OK(truce_doctor(other, hear_pin, text, &report, &error), error);
    snprintf(process, sizeof process, "note process %d: 1 cursor or snapshot is open (1 of them",
             (int)getpid());
    if (!CHECK(strstr(text, process) && strstr(text, "0 MB were written since")))
        fprintf(stderr, "  %s\n", text);
    bson_destroy(&report.facts);
    truce_store_close(view);
    text[0] = 0;
    CHECK_OK(truce_doctor(other, hear_pin, text, &report, &error), error);
    CHECK_TEXT("", text);
    bson_destroy(&report.facts);
    truce_store_close(other);
    truce_store_close(store);
}
