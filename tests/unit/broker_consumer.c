/* The consumer with a broker in this process: targets, rejects, records, and dead letters. */
#include "broker/consumer.h"
#include "broker/inbox.h"
#include "tests/support/bank.h"
#include "tests/support/fake_broker.h"

struct consume_case {
    truce_store *store;
    truce_consume_options options;
    truce_consume_counts counts;
    bson_t *map;
    char notes[4000];
    int shown;
};

static void case_note(const char *text, void *arg)
{
    struct consume_case *c = arg;
    size_t used = strlen(c->notes);

    snprintf(c->notes + used, sizeof c->notes - used, "%s\n", text);
}

static void case_show(const bson_t *effect, void *arg)
{
    struct consume_case *c = arg;
    char *text = bson_as_relaxed_extended_json(effect, NULL);

    c->shown++;
    case_note(text, arg);
    bson_free(text);
}

static void case_begin(struct consume_case *c, const char *into, const char *map, bool log)
{
    bson_error_t error = {0};

    memset(c, 0, sizeof *c);
    CHECK_OK(truce_store_open("memory:", NULL, &c->store, &error), error);
    c->map = map ? test_bson(map) : NULL;
    c->options = (truce_consume_options){.url = "fake://host/topic",
                                         .into = into,
                                         .map = c->map,
                                         .map_is_array = !strcmp(into, "commit"),
                                         .until_empty = true,
                                         .note = case_note,
                                         .on_message = case_show,
                                         .arg = c};
    fake_broker_begin(log);
}

static truce_status case_run(struct consume_case *c, bson_error_t *error)
{
    c->notes[0] = 0;
    return truce__consume(c->store, &c->options, &fake_broker_ops, &c->counts, error);
}

static void case_run_ok(struct consume_case *c)
{
    bson_error_t error = {0};

    CHECK_OK(case_run(c, &error), error);
    CHECK_INT(fake_broker_left(), ==, 0);
}

static void case_end(struct consume_case *c)
{
    bson_destroy(c->map);
    truce_store_close(c->store);
    fake_broker_end();
}

static void case_notes(const struct consume_case *c, const char *part)
{
    if (!strstr(c->notes, part))
        test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", c->notes, part);
}

static void case_define_set(struct consume_case *c)
{
    truce_set *set = truce_set_new(c->store, &(truce_set_options){.collection = "students",
                                                                  .key = "student_id",
                                                                  .field = "classes",
                                                                  .name = "name"});
    bson_error_t error = {0};

    CHECK_OK(truce_set_record(set, "define", NULL, 0, &error), error);
    truce_set_free(set);
}

/* ---- targets --------------------------------------------------------------------------------- */

TEST(operations_of_a_set_arrive_in_any_order)
{
    struct consume_case c;

    case_begin(&c, "set:students.classes", "{'element': '$body.class'}", false);
    case_define_set(&c);
    fake_broker_put("{'operation': 'delete', 'student_id': 1, 'class': 'A', 'sequence_number': 2}",
                    NULL, 0);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'class': 'A', 'sequence_number': 1}",
                    NULL, 0);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'class': {'name': 'B', 'room': 4}, "
                    "'sequence_number': 3}",
                    NULL, 0);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'class': {'name': 'B', 'room': 4}, "
                    "'sequence_number': 3}",
                    NULL, 0);
    case_run_ok(&c);
    CHECK_INT(c.counts.applied, ==, 2);
    CHECK_INT(c.counts.stale, ==, 1);
    CHECK_INT(c.counts.duplicate, ==, 1);
    CHECK_INT(count_json(c.store, "students",
                         "{'student_id': 1, 'classes': {'$size': 1}, 'classes.room': 4}"),
              ==, 1);
    case_end(&c);
}

TEST(the_numbers_of_a_set_are_taken_from_a_sequence)
{
    bson_error_t error = {0};
    struct consume_case c;
    int64_t last = 0;

    case_begin(&c, "set:students.classes",
               "{'element': '$body.class', 'seq': {'$sequence': 'enrolments'}}", false);
    case_define_set(&c);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'class': 'A'}", "m1", 0);
    fake_broker_put("{'operation': 'delete', 'student_id': 1, 'class': 'A'}", "m2", 0);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'class': 'A'}", "m1", 0);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'class': 'A'}", NULL, 0);
    case_run_ok(&c);
    case_notes(&c, "the message has no id");
    CHECK_INT(c.counts.applied, ==, 2);
    CHECK_INT(c.counts.duplicate, ==, 1);
    CHECK_INT(c.counts.rejected, ==, 1);
    CHECK_INT(count_json(c.store, "students",
                         "{'student_id': 1, 'classes': [], 'deleted_classes.seq': 2}"),
              ==, 1);
    CHECK_OK(truce_sequence_last(c.store, "enrolments", &last, &error), error);
    CHECK_INT(last, ==, 2);
    case_end(&c);
    case_begin(&c, "set:students.classes", "{'seq': {'$sequence': 7}}", false);
    case_define_set(&c);
    fake_broker_put("{'operation': 'insert', 'student_id': 1, 'element': 'A'}", "m1", 0);
    case_run_ok(&c);
    case_notes(&c, "'seq.$sequence' of the mapping is 7, and must be the name of a sequence");
    case_end(&c);
}

TEST(rejects_a_bad_set_operation_and_applies_the_others)
{
    static const char *const bad[] = {
        "{'operation': 'move', 'student_id': 1, 'element': 'A', 'sequence_number': 1}",
        "{'operation': 'insert', 'element': 'A', 'sequence_number': 1}",
        "{'operation': 'insert', 'student_id': 1, 'element': 'A', 'sequence_number': 0}",
        "{'operation': 'insert', 'student_id': 1, 'element': 'A', 'sequence_number': 1.5}",
        "{'operation': 'insert', 'student_id': 1, 'element': 'A', 'sequence_number': '1'}",
        "{'operation': 'insert', 'student_id': 1, 'element': 1, 'sequence_number': 1e30}",
        "{'operation': 'insert', 'student_id': 1, 'element': {'room': 1}, 'sequence_number': 1}",
        "{'operation': 'insert', 'student_id': [1], 'element': 'A', 'sequence_number': 1}",
        "{'operation': 7, 'student_id': 1, 'element': 'A', 'sequence_number': 1}",
        "[1]",
        "",
        "{'operation'",
        "\xff\xfe",
    };
    size_t count = sizeof bad / sizeof *bad;
    struct consume_case c;

    case_begin(&c, "set:students.classes", NULL, false);
    case_define_set(&c);
    for (size_t i = 0; i < count; i++) {
        char good[200];

        snprintf(good, sizeof good,
                 "{'operation': 'insert', 'student_id': 1, 'element': 'E%zu', 'sequence_number': "
                 "%zu}",
                 i, i + 1);
        fake_broker_put(bad[i], NULL, 0);
        fake_broker_put(good, NULL, 0);
    }
    case_run_ok(&c);
    CHECK_INT(c.counts.rejected, ==, (int64_t)count);
    CHECK_INT(count_json(c.store, "truce_rejects", "{}"), ==, (int64_t)count);
    CHECK_INT(c.counts.applied, ==, (int64_t)count);
    case_end(&c);
}

TEST(rejects_whole_numbers_beyond_64_bits)
{
    static const char *const bodies[] = {
        "{'n': 9223372036854775808}",
        "{'a': [{'n': -9223372036854775809}]}",
        "{'n': 9223372036854775807, 'm': -9223372036854775808}",
        "{'n': 1234567890123456789012.5, 'm': 12345678901234567890e5}",
        "{'s': '99999999999999999999', 't': 'x\\\\', 'u': 'x\\'99999999999999999999'}",
    };
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, false);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char id[4] = {(char)('a' + i), 0};

        fake_broker_put(bodies[i], id, 0);
    }
    case_run_ok(&c);
    CHECK_INT(c.counts.rejected, ==, 2);
    CHECK_INT(c.counts.applied, ==, 3);
    CHECK_INT(count_json(c.store, "truce_rejects",
                         "{'reason': {'$regex': '9223372036854775808 is beyond'}}"),
              ==, 1);
    case_end(&c);
}

TEST(a_set_that_is_not_defined_is_reported)
{
    struct consume_case c;
    bson_error_t error = {0};

    case_begin(&c, "set:students.classes", NULL, false);
    CHECK_STATUS(TRUCE_NOT_FOUND, case_run(&c, &error), error);
    case_end(&c);
}

TEST(turns_messages_into_jobs)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", "{'with': {'to': '$body.to'}, 'lane': '$headers.lane'}", false);
    fake_broker_put("{'to': 'ada'}", "1", 0)->headers = test_bson("{'lane': 'a'}");
    fake_broker_put("{'to': 'bob'}", "2", 0)->headers = test_bson("{'lane': 7}");
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_queue", "{'payload.to': 'ada', 'lane.name': 'a'}"), ==, 1);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 1);
    case_notes(&c, "\"lane\" must be a string");
    case_end(&c);
}

TEST(an_upsert_with_a_version_keeps_the_newest)
{
    struct consume_case c;

    case_begin(&c, "upsert:things", "{'version': 'rev'}", false);
    fake_broker_put("{'_id': 1, 'rev': 2, 'v': 'b'}", "2", 0);
    fake_broker_put("{'_id': 1, 'rev': 1, 'v': 'a'}", "1", 0);
    fake_broker_put("{'_id': 1, 'v': 'none'}", "3", 0);
    fake_broker_put("{'rev': 1}", "4", 0);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "things", "{'_id': 1, 'v': 'b'}"), ==, 1);
    CHECK_INT(c.counts.rejected, ==, 2);
    fake_broker_put("{'_id': 1, 'rev': 3, 'v': 'c'}", "5", 0);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "things", "{'_id': 1, 'v': 'c'}"), ==, 1);
    case_end(&c);
}

TEST(a_merge_saves_revisions_and_rejects_a_conflict)
{
    struct consume_case c;

    case_begin(&c, "merge:posts", "{'with': '$body.post', 'version': '$body.version'}", false);
    fake_broker_put("{'post': {'_id': 1, 'a': 1, 'b': 1}, 'version': -1}", "1", 0);
    case_run_ok(&c);
    fake_broker_put("{'post': {'_id': 1, 'a': 2, 'b': 1, 'version': 1}, 'version': 1}", "2", 0);
    case_run_ok(&c);
    fake_broker_put("{'post': {'_id': 1, 'a': 1, 'b': 2, 'version': 1}, 'version': 1}", "3", 0);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "posts", "{'_id': 1, 'a': 2, 'b': 2}"), ==, 1);
    fake_broker_put("{'post': {'_id': 1, 'a': 9, 'b': 1, 'version': 1}, 'version': 1}", "4", 0);
    case_run_ok(&c);
    CHECK_INT(c.counts.rejected, ==, 1);
    case_notes(&c, "does not merge");
    CHECK_INT(count_json(c.store, "posts", "{'_id': 1, 'a': 2, 'b': 2}"), ==, 1);
    case_end(&c);
}

TEST(messages_are_posted_to_a_ledger_once)
{
    struct consume_case c;
    truce_ledger *ledger;
    truce_ledger_balance balance;
    truce_ledger_account account = {.account = "a", .currency = "EUR"};
    bson_error_t error = {0};

    case_begin(&c, "post:book", NULL, false);
    ledger = truce_ledger_new(c.store, &(truce_ledger_options){.collection = "book"});
    CHECK_OK(truce_ledger_currency(ledger, "EUR", 2, &error), error);
    CHECK_OK(truce_ledger_open(ledger, NULL, &account, &error), error);
    account.account = "b";
    CHECK_OK(truce_ledger_open(ledger, NULL, &account, &error), error);
    fake_broker_put("{'id': 't1', 'entries': {'a': '-12.50', 'b': '12.50'}}", "m1", 0);
    fake_broker_put("{'id': 't1', 'entries': {'a': '-12.50', 'b': '12.50'}}", "m1", 0);
    fake_broker_put("{'id': 't2', 'entries': {'a': '-1.00', 'b': '2.00'}}", "m2", 0);
    fake_broker_put("{'id': 't3', 'entries': {'a': 100, 'b': -100}}", "m3", 0);
    case_run_ok(&c);
    CHECK_INT(c.counts.applied, ==, 2);
    CHECK_INT(c.counts.duplicate, ==, 1);
    CHECK_INT(c.counts.rejected, ==, 1);
    CHECK_OK(truce_ledger_balance_of(ledger, "b", NULL, &balance, &error), error);
    CHECK_INT(balance.balance, ==, 1150);
    truce_ledger_free(ledger);
    case_end(&c);
}

TEST(a_commit_that_fails_is_halved_down_to_its_bad_message)
{
    struct consume_case c;

    case_begin(&c, "commit",
               "[{'require': 'accounts', 'id': '$body.of'}, {'insert': 'log', 'with': {'_id': "
               "'$body.n'}}, {'set': 'students.classes', 'operation': 'add', 'key': {'student_id': "
               "1}, 'element': '$body.of', 'seq': '$body.n'}]",
               false);
    case_define_set(&c);
    insert_json(c.store, "accounts", "{'_id': 'a'}");
    for (int i = 1; i <= 20; i++) {
        char body[100], id[20];

        snprintf(id, sizeof id, "m%d", i);
        snprintf(body, sizeof body, "{'of': '%s', 'n': %d}", i % 7 ? "a" : "missing",
                 i == 20 ? 19 : i);
        fake_broker_put(body, id, 0);
    }
    case_run_ok(&c);
    CHECK_INT(c.counts.rejected, ==, 3);
    CHECK_INT(count_json(c.store, "log", "{}"), ==, 17);
    CHECK_INT(count_json(c.store, "truce_rejects", "{'reason': {'$regex': 'missing'}}"), ==, 2);
    CHECK_INT(count_json(c.store, "truce_inbox", "{}"), ==, 17);
    case_end(&c);
}

/* A publisher chooses the collection, and must not reach the documents of truce. */
TEST(a_message_cannot_write_the_documents_of_truce)
{
    struct consume_case c;

    case_begin(&c, "commit", "[{'upsert': '$body.to', 'with': '$body.it'}]", false);
    fake_broker_put("{'to': 'things', 'it': {'_id': 1}}", "a", 0);
    fake_broker_put("{'to': 'truce_queue', 'it': {'_id': 1, 'state': 'ready'}}", "b", 0);
    fake_broker_put("{'to': 'truce_inbox', 'it': {'_id': 1}}", "c", 0);
    case_run_ok(&c);
    CHECK_INT(c.counts.applied, ==, 1);
    CHECK_INT(c.counts.rejected, ==, 2);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 0);
    CHECK_INT(count_json(c.store, "truce_inbox", "{'_id': 1}"), ==, 0);
    CHECK_INT(count_json(c.store, "truce_rejects", "{'reason': {'$regex': 'reserved for truce'}}"),
              ==, 2);
    case_end(&c);
}

/* ---- records --------------------------------------------------------------------------------- */

TEST(rejects_a_message_without_an_id)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, false);
    fake_broker_put("{'n': 1}", NULL, 0);
    case_run_ok(&c);
    case_notes(&c, "the message has no id");
    c.options.id = "$body.n";
    fake_broker_put("{'n': 1}", NULL, 0);
    fake_broker_put("{'n': 1}", NULL, 0);
    fake_broker_put("{'n': {}}", NULL, 0);
    fake_broker_put("{'n': ''}", NULL, 0);
    fake_broker_put("{}", NULL, 0);
    case_run_ok(&c);
    CHECK_INT(c.counts.applied, ==, 1);
    CHECK_INT(c.counts.duplicate, ==, 1);
    CHECK_INT(c.counts.rejected, ==, 3);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 1);
    case_end(&c);
}

TEST(two_consumers_have_records_of_their_own)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, false);
    fake_broker_put("{}", "1", 0);
    case_run_ok(&c);
    c.options.consumer = "other";
    fake_broker_put("{}", "1", 0);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 2);
    case_end(&c);
}

TEST(a_message_whose_record_was_collected_is_rejected)
{
    struct consume_case c;
    bson_error_t error = {0};

    case_begin(&c, "queue:mail", NULL, false);
    fake_broker_put("{}", "old", 0)->time_ms = 1000;
    fake_broker_put("{}", "new", 0)->time_ms = 3000;
    fake_broker_put("{}", "without", 0);
    case_run_ok(&c);
    CHECK_OK(truce__inbox_prepare(c.store, &error), error);
    CHECK_OK(truce__inbox_collect(c.store, "topic", 2000, &error), error);
    CHECK_OK(truce__inbox_collect(c.store, "topic", 1500, &error),
             error); /* the horizon never decreases */
    CHECK_INT(count_json(c.store, "truce_inbox", "{'_id.message': {'$exists': true}}"), ==, 2);
    fake_broker_put("{}", "old", 0)->time_ms = 1000;
    fake_broker_put("{}", "late", 0)->time_ms = 1999;
    fake_broker_put("{}", "new", 0)->time_ms = 3000;
    fake_broker_put("{}", "without", 0);
    fake_broker_put("{}", "next", 0)->time_ms = 2000;
    case_run_ok(&c);
    CHECK_INT(c.counts.rejected, ==, 2);
    CHECK_INT(c.counts.duplicate, ==, 2);
    CHECK_INT(c.counts.applied, ==, 1);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 4);
    case_end(&c);
}

TEST(positions_of_a_log_are_stored_with_the_effects)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, true);
    for (int i = 0; i < 10; i++)
        fake_broker_put(i == 9 ? "bad" : "{}", NULL, i % 3);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 9);
    CHECK_INT(count_json(c.store, "truce_inbox", "{'_id.partition': 0, 'next': 4}"), ==, 1);
    CHECK_INT(count_json(c.store, "truce_inbox", "{}"), ==, 3);
    CHECK_INT(count_json(c.store, "truce_rejects", "{'_id.offset': 3}"), ==, 1);
    case_run_ok(&c);
    CHECK_INT(c.counts.received, ==, 0);
    case_end(&c);
}

/* The position moves by one, too. */
TEST(stores_the_position_of_a_single_message)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, true);
    for (int i = 1; i <= 3; i++) {
        fake_broker_put("{}", NULL, 0);
        case_run_ok(&c);
        CHECK_INT(c.counts.received, ==, 1);
        CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, i);
    }
    CHECK_INT(count_json(c.store, "truce_inbox", "{'_id.partition': 0, 'next': 3}"), ==, 1);
    case_end(&c);
}

/* ---- rejects --------------------------------------------------------------------------------- */

TEST(a_reject_has_the_message_and_the_reason_once)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, false);
    fake_broker_put("[1]", "x", 0)->headers = test_bson("{'h': 1}");
    fake_broker_put("[1]", "x", 0);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_rejects",
                         "{'_id.consumer': 'topic', '_id.message': 'x', 'facts.headers.h': 1, "
                         "'body': {'$exists': true}, 'size': 3, 'reason': {'$regex': 'with'}}"),
              ==, 1);
    CHECK_INT(count_json(c.store, "truce_rejects", "{}"), ==, 1);
    case_end(&c);
}

TEST(confirms_a_dead_letter_before_it_acknowledges_the_message)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, false);
    c.options.dead_letter = "dead";
    fake_broker_put("{}", "good", 0);
    fake_broker_put("bad", "bad", 0);
    case_run_ok(&c);
    CHECK_INT(fake_broker.published_count, ==, 1);
    CHECK_INT(fake_broker.confirmed, ==, 1);
    CHECK_TEXT("bad", fake_broker.published[0]);
    CHECK_TEXT("dead", fake_broker.published_to[0]);
    CHECK_TEXT("bad", fake_broker.published_id[0]);
    case_end(&c);
}

TEST(replays_rejects_once_and_keeps_those_refused_again)
{
    static const bool logs[] = {false, true};

    for (int i = 0; i < 2; i++) {
        struct consume_case c;

        case_begin(&c, "commit",
                   "[{'require': 'accounts', 'id': '$body.of'}, {'insert': 'log', 'with': {}}]",
                   logs[i]);
        fake_broker_put("{'of': 'a'}", "1", 0);
        fake_broker_put("{'of': 'b'}", "2", 0);
        fake_broker_put("bad", "3", 0);
        case_run_ok(&c);
        CHECK_INT(count_json(c.store, "truce_rejects", "{}"), ==, 3);
        insert_json(c.store, "accounts", "{'_id': 'a'}");
        c.options.replay = true;
        for (int turn = 0; turn < 2; turn++) {
            case_run_ok(&c);
            CHECK_INT(c.counts.applied, ==, turn == 0);
            CHECK_INT(count_json(c.store, "truce_rejects", "{}"), ==, 2);
            CHECK_INT(count_json(c.store, "log", "{}"), ==, 1);
        }
        case_end(&c);
    }
}

TEST(a_replay_of_a_set_removes_the_reject)
{
    struct consume_case c;

    case_begin(&c, "set:students.classes", NULL, false);
    case_define_set(&c);
    fake_broker_put("{'operation': 'move', 'student_id': 1, 'element': 'A', 'sequence_number': 1}",
                    NULL, 0);
    case_run_ok(&c);
    bson_destroy(c.map);
    c.options.map = c.map = test_bson("{'operation': 'insert'}");
    c.options.replay = true;
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_rejects", "{}"), ==, 0);
    CHECK_INT(count_json(c.store, "students", "{'classes.name': 'A'}"), ==, 1);
    case_end(&c);
}

/* ---- the call -------------------------------------------------------------------------------- */

TEST(a_dry_run_shows_effects_and_changes_nothing)
{
    struct consume_case c;
    bson_error_t error = {0};

    case_begin(&c, "queue:mail", NULL, false);
    c.options.dry_run = true;
    fake_broker_put("{'n': 5}", "1", 0);
    fake_broker_put("bad", "2", 0);
    CHECK_OK(case_run(&c, &error), error);
    CHECK_INT(c.shown, ==, 2);
    case_notes(&c, "\"enqueue\" : \"mail\"");
    case_notes(&c, "\"reason\"");
    CHECK_INT(fake_broker_left(), ==, 2);
    CHECK_INT(count_json(c.store, "truce_queue", "{}"), ==, 0);
    case_end(&c);
}

TEST(reports_its_counts_once_and_no_password)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, false);
    c.options.url = "fake://user:secret@host:17/topic?a=b";
    fake_broker_put("{}", "a", 0);
    case_run_ok(&c);
    fake_broker_put("{}", "b", 0);
    fake_broker_put("no JSON", "c", 0);
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_consumers",
                         "{'_id': 'topic', 'source': 'fake://host:17/topic', 'into': 'queue:mail', "
                         "'received': 3, 'applied': 2, 'rejected': 1, 'workers': []}"),
              ==, 1);
    c.options.dry_run = true;
    case_run_ok(&c);
    c.options.dry_run = false;
    c.options.replay = true;
    case_run_ok(&c);
    CHECK_INT(count_json(c.store, "truce_consumers", "{'received': 3}"), ==, 1);
    case_end(&c);
}

/* Consumes one message (a dry run: none) while other members of the group have `others` messages. */
static void consumes_next_to_others(int64_t others, bool dry_run, int questions, const char *note)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, true);
    c.options.dry_run = dry_run;
    if (!dry_run)
        fake_broker_put("{'id': 1}", NULL, 0);
    fake_broker.others = others;
    case_run_ok(&c);
    CHECK_INT(fake_broker.questions, ==, questions);
    CHECK(!note == !strstr(c.notes, "waiting for other consumers"));
    CHECK(!note || strstr(c.notes, note));
    case_end(&c);
}

TEST(waits_for_the_messages_of_other_members_of_the_group)
{
    consumes_next_to_others(0, false, 1, NULL);
    consumes_next_to_others(9, false, 10, NULL);
    consumes_next_to_others(
        12, false, 13,
        "waiting for other consumers of \"topic\", which have 3 messages to apply\n");
    consumes_next_to_others(3, true, 0, NULL);
}

TEST(a_broker_that_does_not_count_is_empty_when_no_message_comes)
{
    struct consume_case c;

    case_begin(&c, "queue:mail", NULL, true);
    fake_broker_put("{'id': 1}", NULL, 0);
    fake_broker.uncounted = true;
    case_run_ok(&c);
    CHECK_INT(c.counts.applied, ==, 1);
    CHECK_INT(c.counts.waiting, ==, -1);
    CHECK_INT(fake_broker.questions, ==, 0);
    case_end(&c);
}

TEST(ends_after_a_limit)
{
    struct consume_case c;
    bson_error_t error = {0};

    case_begin(&c, "queue:mail", NULL, false);
    c.options.limit = 2;
    for (int i = 0; i < 5; i++)
        fake_broker_put("{}", i % 2 ? "a" : "b", 0);
    CHECK_OK(case_run(&c, &error), error);
    CHECK_INT(c.counts.received, ==, 2);
    CHECK_INT(fake_broker_left(), ==, 3);
    case_end(&c);
}

TEST(a_refusal_of_the_broker_ends_the_consumer)
{
    struct consume_case c;
    bson_error_t error = {0};

    case_begin(&c, "queue:mail", NULL, false);
    fake_broker.fails_at = 1;
    fake_broker.status = TRUCE_NOT_FOUND;
    CHECK_STATUS(TRUCE_NOT_FOUND, case_run(&c, &error), error);
    case_end(&c);
}

static void refused_path(const char *url, const char *into, const char *map, const char *id,
                         const char *reason)
{
    struct consume_case c;
    bson_error_t error = {0};

    case_begin(&c, into, map, false);
    c.options.url = url;
    c.options.id = id;
    CHECK_STATUS(reason ? TRUCE_INVALID : TRUCE_OK, case_run(&c, &error), error);
    if (reason && !strstr(error.message, reason))
        test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, reason);
    case_end(&c);
}

/* The fields of a message are those of its broker. */
TEST(a_path_that_no_message_has_is_refused_before_the_first_message)
{
    refused_path(
        "kafka://host/topic", "queue:mail", "{'with': '$headrs.x'}", NULL,
        "a message has no field \"headrs\", only body, id, time, headers, topic, partition, "
        "offset, key: did you mean \"headers\"?");
    refused_path("amqp://host/queue", "commit", "[{'insert': 'c', 'with': '$offset'}]", NULL,
                 "no field \"offset\", only body, id, time, headers, exchange, routingKey, "
                 "redelivered, type, app, user, contentType, correlationId, replyTo, priority");
    refused_path("kafka://host/topic", "queue:mail", NULL, "$routingKey",
                 "no field \"routingKey\"");
    refused_path("kafka://host/topic", "queue:mail", "{'unique': '$key'}", "$offset", NULL);
    refused_path("amqps://host/queue", "queue:mail", "{'unique': '$correlationId'}", "$id", NULL);
    refused_path("fake://host/queue", "queue:mail", "{'unique': '$nope'}", NULL, NULL);
}

TEST(wrong_options_are_refused)
{
    static const struct {
        const char *into, *map, *id, *reason;
    } wrong[] = {
        {"mail", NULL, NULL, "invalid target \"mail\""},
        {"queue:", NULL, NULL, "invalid target"},
        {"set:students", NULL, NULL, "invalid set"},
        {"commit", NULL, NULL, "needs a mapping"},
        {"upsert:$things", NULL, NULL, "has a $ in it"},
        {"upsert:system.x", NULL, NULL, "is reserved"},
        {"upsert:truce_queue", NULL, NULL, "\"truce_queue\" is reserved for truce"},
        {"merge:truce_inbox", NULL, NULL, "\"truce_inbox\" is reserved for truce"},
        {"upsert:things", "{'_id': '$body.id'}", NULL,
         "unknown field '_id' of a change of 'upsert'"},
        {"merge:things", "{'base': 1}", NULL, "unknown field 'base'"},
        {"upsert:things", "{'wth': '$body'}", NULL, "of 'upsert': did you mean \"with\"?"},
        {"queue:mail", "{'wiht': {'price': 1}}", NULL,
         "change 1: unknown field \"wiht\": did you mean \"with\"?"},
        {"queue:mail", "{'id': 1}", NULL, "must not have an \"id\""},
        {"post:bank", "{'lane': 'a'}", NULL, "\"lane\" is only for \"enqueue\""},
        {"commit", "[{'insert': 'a', 'with': {}}, {'insrt': 'b', 'with': '$body'}]", NULL,
         "change 2: unknown field \"insrt\": did you mean \"insert\"?"},
        {"commit", "[{'update': 'a', 'with': '$body'}]", NULL, "update of \"a\" needs an \"id\""},
        {"commit", "[{'set': 'a.b', 'sq': 1}]", NULL, "of 'set': did you mean \"seq\"?"},
        {"queue:mail", "{'with': {'$expr': {'$nope': 1}}}", NULL, "of the mapping"},
        {"queue:mail", NULL, "body.id", "invalid id"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct consume_case c;
        bson_error_t error = {0};

        case_begin(&c, wrong[i].into, wrong[i].map, false);
        c.options.id = wrong[i].id;
        CHECK_STATUS(TRUCE_INVALID, case_run(&c, &error), error);
        if (!strstr(error.message, wrong[i].reason))
            test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, wrong[i].reason);
        case_end(&c);
    }
}
