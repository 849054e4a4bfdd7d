/*
 * The rules of truce_check, one by one. Each test stores documents as a crash or a plain writer
 * would leave them. The check reports each fault once, under its rule, and nothing else. A repair
 * fixes the repairable faults, and changes nothing else.
 */
#include "store/decorators/database_view.h"
#include "tests/support/bank.h"

/* A commit and a document that it may hold; times are long past. */
#define C        "{'$oid': '00000000000000000000000a'}"
#define D        "{'$oid': '00000000000000000000000b'}"
#define OLD      "{'$oid': '000000000000000000000001'}"
#define HELD     "'_intent': {'c': " C "}"
#define POST_SET "{'ns': 'things', 'id': 'a', 'op': 'set', 'changes': [{'p': 'n', 'v': 2}]}"

static char reported[1000];

static void note(const bson_t *finding, void *arg)
{
    bson_iter_t rule, repaired;

    (void)arg;
    CHECK(bson_iter_init_find(&rule, finding, "rule") &&
          bson_iter_init_find(&repaired, finding, "repaired"));
    snprintf(reported + strlen(reported), sizeof reported - strlen(reported), "%s%s%s",
             reported[0] ? ", " : "", bson_iter_utf8(&rule, NULL),
             bson_iter_bool(&repaired) ? " repaired" : "");
}

static void check_reported(truce_store *store, bool repair, const char *expected)
{
    const truce_check_options options = {.repair = repair};
    truce_check_report report;
    bson_error_t error = {0};

    reported[0] = 0;
    CHECK_OK(truce_check(store, &options, note, NULL, &report, &error), error);
    CHECK_TEXT(expected, reported);
}

struct rule {
    const char *commit, *other;             /* documents of truce_commits, or NULL */
    const char *document;                   /* of "things", or NULL */
    const char *reported, *repaired, *left; /* left: findings after the repair */
    const char *after_repair; /* the document after the repair, or NULL if unchanged */
};

static void check_rule(truce_store *store, const struct rule *rule)
{
    if (rule->commit)
        insert_json(store, "truce_commits", rule->commit);
    if (rule->other)
        insert_json(store, "truce_commits", rule->other);
    if (rule->document)
        insert_json(store, "things", rule->document);
    insert_json(store, "things", "{'_id': 'z', 'n': 1}");
    check_reported(store, false, rule->reported);
    check_reported(store, false, rule->reported); /* looking changes nothing */
    check_reported(store, true, rule->repaired);
    check_reported(store, false, rule->left);
    if (rule->after_repair)
        CHECK_DOCUMENT(store, "things", "a", rule->after_repair);
    CHECK_DOCUMENT(store, "things", "z", "{'_id': 'z', 'n': 1}");
}

static const struct rule *rule_now;

static void on_setting(truce_store *store, const struct setting *setting)
{
    (void)setting;
    check_rule(store, rule_now);
}

static void run(const struct rule *rule)
{
    rule_now = rule;
    on_every_setting(on_setting);
}

TEST(a_valid_store_has_no_findings)
{
    run(&(struct rule){.commit = "{'_id': " C ", 'state': 'done', 'post': [" POST_SET "]}",
                       .document = "{'_id': 'a', 'n': 2, '_rev': " C "}",
                       .reported = "",
                       .repaired = "",
                       .left = "",
                       .after_repair = "{'_id': 'a', 'n': 2}"});
}

TEST(removes_an_intent_without_a_commit)
{
    run(&(struct rule){.document = "{'_id': 'a', 'n': 1, " HELD "}",
                       .reported = "orphan-intent",
                       .repaired = "orphan-intent repaired",
                       .left = "",
                       .after_repair = "{'_id': 'a', 'n': 1}"});
}

TEST(removes_an_intent_of_a_commit_that_was_undone)
{
    run(&(struct rule){.commit = "{'_id': " C ", 'state': 'aborted'}",
                       .document = "{'_id': 'a', 'n': 1, " HELD "}",
                       .reported = "orphan-intent",
                       .repaired = "orphan-intent repaired",
                       .left = "",
                       .after_repair = "{'_id': 'a', 'n': 1}"});
}

TEST(does_not_change_an_intent_that_truce_did_not_write)
{
    run(&(struct rule){.document = "{'_id': 'a', 'n': 1, '_intent': 'to travel'}",
                       .reported = "foreign-intent",
                       .repaired = "foreign-intent",
                       .left = "foreign-intent",
                       .after_repair = "{'_id': 'a', 'n': 1, '_intent': 'to travel'}"});
}

TEST(a_commit_past_its_lease_is_undone)
{
    run(&(struct rule){.commit =
                           "{'_id': " C ", 'state': 'pending', 'lease': {'ms': 10, 'until': "
                           "{'$numberLong': '1000'}}, 'writes': [{'ns': 'things', 'id': 'a'}]}",
                       .document = "{'_id': 'a', 'n': 1, " HELD "}",
                       .reported = "expired-lease",
                       .repaired = "expired-lease repaired",
                       .left = "",
                       .after_repair = "{'_id': 'a', 'n': 1}"});
}

TEST(completes_a_decided_commit)
{
    run(&(struct rule){.commit = "{'_id': " C ", 'state': 'committed', 'post': [" POST_SET "]}",
                       .document = "{'_id': 'a', 'n': 1, " HELD "}",
                       .reported = "half-applied",
                       .repaired = "half-applied repaired",
                       .left = "",
                       .after_repair = "{'_id': 'a', 'n': 2}"});
}

#define POST_PATH                                                                                  \
    "{'ns': 'things', 'id': 'a', 'op': 'set', 'changes': [{'p': 'n.x', 'v': 2}, {'p': 'l.1.y', "   \
    "'v': 3}, {'p': 'gone.z'}, {'p': 'k'}]}"

TEST(moves_values_that_block_a_release_to_the_displaced)
{
    run(&(struct rule){
        .commit = "{'_id': " C ", 'state': 'committed', 'post': [" POST_PATH "]}",
        .document = "{'_id': 'a', 'n': 1, 'l': [0, 1, 2], 'gone': 'x', 'k': 1, " HELD "}",
        .reported = "half-applied",
        .repaired = "half-applied repaired, displaced",
        .left = "displaced",
        .after_repair = "{'_id': 'a', 'n': {'x': 2}, 'l': [0, {'y': 3}, 2], 'gone': 'x'}"});
}

TEST(removes_an_intent_whose_reserved_keys_a_plain_write_corrupted)
{
    run(&(struct rule){
        .commit = "{'_id': " C ", 'state': 'aborted', 'writes': [{'ns': 'things', 'id': 'a'}]}",
        .document = "{'_id': 'a', 'n': 1, '_keys': 7, '_intent': {'c': " C ", 'keys': 1}}",
        .reported = "orphan-intent",
        .repaired = "orphan-intent repaired",
        .left = "",
        .after_repair = "{'_id': 'a', 'n': 1, '_keys': 7}"});
}

TEST(a_document_that_a_done_commit_still_holds_is_released)
{
    run(&(struct rule){.commit = "{'_id': " C ", 'state': 'done', 'post': [" POST_SET "]}",
                       .document = "{'_id': 'a', 'n': 1, " HELD "}",
                       .reported = "unreleased",
                       .repaired = "unreleased repaired",
                       .left = "",
                       .after_repair = "{'_id': 'a', 'n': 2}"});
}

TEST(reports_an_overwritten_plain_write)
{
    run(&(struct rule){.commit = "{'_id': " C ", 'state': 'done', 'post': [" POST_SET "], "
                                 "'overwritten': [{'ns': 'things', 'id': 'a'}]}",
                       .document = "{'_id': 'a', 'n': 2, '_rev': " C "}",
                       .reported = "overwritten",
                       .repaired = "overwritten",
                       .left = "overwritten"});
}

#define POST_FROM(id, pre)                                                                         \
    "{'ns': 'things', 'id': " id ", 'op': 'set', 'changes': [], 'pre': " pre "}"

TEST(reports_two_commits_over_one_version_of_a_document)
{
    run(&(struct rule){
        .commit = "{'_id': " C ", 'state': 'done', 'post': [" POST_FROM("'a'", OLD) "]}",
        .other = "{'_id': " D ", 'state': 'done', 'post': [" POST_FROM("'a'", OLD) "]}",
        .document = "{'_id': 'a', 'n': 2, '_rev': " D "}",
        .reported = "forked",
        .repaired = "forked",
        .left = "forked"});
}

TEST(reports_no_fork_for_commits_over_consecutive_versions)
{
    run(&(struct rule){
        .commit = "{'_id': " C ", 'state': 'done', 'post': [" POST_FROM("'a'", OLD) "]}",
        .other = "{'_id': " D ", 'state': 'done', 'post': [" POST_FROM("'a'", C) ", " POST_FROM(
            "'b'", OLD) ", {'ns': 'things', 'id': 'c', 'op': 'hold', 'pre': " OLD "}]}",
        .document = "{'_id': 'a', 'n': 2, '_rev': " D "}",
        .reported = "",
        .repaired = "",
        .left = ""});
}

TEST(reports_a_pending_change_of_a_missing_document)
{
    run(&(struct rule){.commit = "{'_id': " C ", 'state': 'committed', 'post': [" POST_SET "]}",
                       .reported = "missing-document, half-applied",
                       .repaired = "missing-document, half-applied repaired",
                       .left = ""});
}

/* Regression: an unknown change was once treated as a removal. */
TEST(reports_and_skips_corrupted_changes_of_a_commit)
{
    static const char *const spoilt[] = {
        "{'ns': 'things', 'id': 'a', 'op': 'set', 'changes': [{'v': 2}], 'was': {'$numberLong': '1'}}",
        "{'ns': 'things', 'id': 'a', 'op': 'set', 'was': {'$numberLong': '1'}}",
        "{'ns': 'things', 'id': 'a', 'op': 'whole', 'document': 5, 'was': {'$numberLong': '1'}}",
        "{'ns': 'things', 'id': 'a', 'op': 'sett', 'was': {'$numberLong': '1'}}",
        "{'ns': 'things', 'id': 'a', 'op': 5, 'was': {'$numberLong': '1'}}",
    };

    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        char *commit =
            bson_strdup_printf("{'_id': " C ", 'state': 'committed', 'post': [%s]}", spoilt[i]);

        run(&(struct rule){.commit = commit,
                           .document = "{'_id': 'a', 'n': 1, " HELD "}",
                           .reported = "corrupted-entry, half-applied",
                           .repaired = "corrupted-entry, half-applied",
                           .left = "corrupted-entry, half-applied",
                           .after_repair = "{'_id': 'a', 'n': 1, " HELD "}"});
        bson_free(commit);
    }
}

/* ---- documents that are not truce's ---------------------------------------------------------- */

#define PAST "{'$date': '2020-01-01T00:00:00Z'}"

/* Invalid jobs, cron lines, lanes and ledgers, each next to one that a recovery pass can repair. */
static void no_jobs_and_no_books(truce_store *store, const struct setting *setting)
{
    static const char *const documents[][2] = {
        {"truce_queue", "{'_id': 1}"},
        {"truce_queue", "{'_id': 2, 'undone': {'state': 'delayed', 'queue': 5, 'at': " PAST "}, "
                        "'priority': 'x'}"},
        {"truce_queue", "{'_id': 3, 'undone': {'state': 'running', 'at': " PAST "}, 'lease': 5}"},
        {"truce_queue", "{'_id': 4, 'undone': {'state': 'running', 'at': " PAST
                        "}, 'lease': {'token': " C ", 'ms': 1}, 'attempts_max': 'x', 'lane': 5}"},
        {"truce_queue", "{'_id': 5, 'undone': 7, 'expires': " PAST ", 'key': 5, 'queue': 7}"},
        {"truce_queue", "{'_id': 'late', 'undone': {'state': 'delayed', 'rank': 0, 'queue': 'q', "
                        "'at': " PAST "}, 'state': 'delayed', 'priority': 2}"},
        {"truce_queue_crons", "{'_id': 1}"},
        {"truce_queue_crons", "{'_id': 'x', 'next': " PAST ", 'line': 'nonsense'}"},
        {"truce_queue_crons", "{'_id': 'y', 'next': " PAST ", 'line': '* * * * *', 'queue': 5}"},
        {"truce_queue_lanes", "{'_id': 1, 'stalled': true}"},
        {"truce_queue_lanes", "{'_id': {'queue': 'q', 'lane': 'a'}, 'stalled': true, 'out': 'x', "
                              "'width': {}, 'head': -1, 'tail': 1}"},
        {"truce_ledgers", "{'_id': 1}"},
        {"truce_ledgers", "{'_id': '$x'}"},
        {"truce_ledgers", "{'_id': 'books'}"},
        {"books", "{'_id': 1, 'proc': 'UNCOMMITTED', 'changes': [{'account': 'a', 'seqId': 1, "
                  "'value': 'x'}]}"},
        {"books", "{'_id': 2, 'proc': 'UNCOMMITTED', 'state': 'VALID', 'changes': [{'account': "
                  "'b', 'seqId': {'$numberLong': '1'}, 'value': {'$numberLong': '5'}},"
                  "{'account': 'c', 'seqId': 1, 'value': -5.0}]}"},
    };
    truce_sweep_report report;
    truce_check_report found;
    bson_error_t error = {0};

    (void)setting;
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        insert_json(store, documents[i][0], documents[i][1]);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.failed, >=, 4); /* two lines, two ledgers */
    CHECK_INT(count_json(store, "truce_queue", "{'_id': 'late', 'state': 'ready'}"), ==, 1);
    CHECK_INT(count_json(store, "truce_queue", "{'_id': 5}"), ==, 0); /* it has expired */
    CHECK_INT(count_json(store, "books", "{'_id': 2, 'proc': 'COMMITTED'}"), ==, 1);
    reported[0] = 0;
    CHECK_OK(truce_check(store, NULL, note, NULL, &found, &error), error);
    CHECK_INT(found.findings, >=, 9);
    CHECK(strstr(reported, "job") && strstr(reported, "cron") && strstr(reported, "unchecked"));
}

TEST(continues_past_invalid_jobs_cron_lines_and_books)
{
    on_every_setting(no_jobs_and_no_books);
}

/* ---- a single finding ------------------------------------------------------------------------ */

static truce_status repair_one(truce_store *store, const char *finding, bson_error_t *error)
{
    bson_t *given = test_bson(finding);
    const truce_check_options options = {.repair = true, .finding = given};
    truce_check_report report;
    truce_status status;

    reported[0] = 0;
    status = truce_check(store, &options, note, NULL, &report, error);
    bson_destroy(given);
    return status;
}

#define REPAIR_ONE(expected, finding)                                                              \
    do {                                                                                           \
        bson_error_t error_ = {0};                                                                 \
        CHECK_OK(repair_one(store, finding, &error_), error_);                                     \
        CHECK_TEXT(expected, reported);                                                            \
    } while (0)

static void repairs_one(truce_store *store, const struct setting *setting)
{
    (void)setting;
    insert_json(store, "things", "{'_id': 'a', 'n': 1, " HELD "}");
    insert_json(store, "things", "{'_id': 5, 'n': 1, " HELD "}");
    insert_json(store, "others", "{'_id': 'a', 'n': 1, " HELD "}");
    REPAIR_ONE("orphan-intent, orphan-intent, orphan-intent",
               "{'rule': 'stale-keys', 'ns': 'things', 'id': 'a'}");
    REPAIR_ONE("orphan-intent, orphan-intent, orphan-intent",
               "{'rule': 'orphan-intent', 'ns': 'thing', 'id': 'a'}");
    REPAIR_ONE("orphan-intent, orphan-intent, orphan-intent",
               "{'rule': 'orphan-intent', 'ns': 'things', 'id': 'b'}");
    REPAIR_ONE("orphan-intent, orphan-intent, orphan-intent",
               "{'rule': 'orphan-intent', 'ns': 'things'}");
    CHECK_INT(count_json(store, "things", "{'_intent': {'$exists': true}}"), ==, 2);
    REPAIR_ONE("orphan-intent, orphan-intent, orphan-intent repaired",
               "{'rule': 'orphan-intent', 'ns': 'things', 'id': 5.0}");
    CHECK_DOCUMENT(store, "others", "a", "{'_id': 'a', 'n': 1, " HELD "}");
    REPAIR_ONE("orphan-intent, orphan-intent repaired",
               "{'rule': 'orphan-intent', 'ns': 'things', 'id': 'a'}");
    CHECK_DOCUMENT(store, "things", "a", "{'_id': 'a', 'n': 1}");
    CHECK_DOCUMENT(store, "others", "a", "{'_id': 'a', 'n': 1, " HELD "}");
}

TEST(repairs_only_the_given_finding)
{
    on_every_setting(repairs_one);
}

TEST(repairs_the_given_finding_in_its_database)
{
    bson_error_t error = {0};
    truce_store *store, *school;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    school = truce__database_open(store, "", "school");
    insert_json(store, "things", "{'_id': 'a', 'n': 1, " HELD "}");
    insert_json(school, "things", "{'_id': 'a', 'n': 1, " HELD "}");
    REPAIR_ONE("orphan-intent, orphan-intent repaired",
               "{'rule': 'orphan-intent', 'ns': 'school.things', 'id': 'a'}");
    CHECK_DOCUMENT(school, "things", "a", "{'_id': 'a', 'n': 1}");
    REPAIR_ONE("orphan-intent", "{'rule': 'orphan-intent', 'ns': 'schools.things', 'id': 'a'}");
    REPAIR_ONE("orphan-intent repaired", "{'rule': 'orphan-intent', 'ns': 'things', 'id': 'a'}");
    truce_store_close(school);
    truce_store_close(store);
}

TEST(refuses_a_finding_that_names_nothing)
{
    static const char *const findings[] = {"{}", "{'rule': 'job'}", "{'ns': 'things'}",
                                           "{'rule': 5, 'ns': 'things'}",
                                           "{'rule': 'wrong-index', 'ns': ''}"};
    bson_t *given = test_bson("{'rule': 'job', 'ns': 'truce_queue', 'id': 1}");
    const truce_check_options options = {.finding = given};
    truce_check_report report;
    bson_error_t error = {0};
    truce_store *store;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++) {
        CHECK_STATUS(TRUCE_INVALID, repair_one(store, findings[i], &error), error);
        CHECK(strstr(error.message, "'rule' and 'ns'"));
    }
    CHECK_STATUS(TRUCE_INVALID, truce_check(store, &options, NULL, NULL, &report, &error), error);
    CHECK(strstr(error.message, "'repair'"));
    truce_store_close(store);
    bson_destroy(given);
}
