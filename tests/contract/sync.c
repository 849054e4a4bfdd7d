/* Denormalized copies: every call, by every mechanism, on every store. */
#include <string.h>

#include "tests/support/sync_rig.h"
#include "truce/sys/decorate.h"

static void people(truce_store *store)
{
    insert_json(store, "users", "{'_id': 'u', 'name': 'John', 'mail': 'j@x'}");
    insert_json(store, "users", "{'_id': 'v', 'name': 'Vera'}");
    insert_json(store, "comments", "{'_id': 'c1', 'user': 'u', 'author': 'John'}");
    insert_json(store, "comments", "{'_id': 'c2', 'user': 'u', 'author': 'John'}");
    insert_json(store, "comments", "{'_id': 'c3', 'user': 'u', 'author': 'John'}");
    insert_json(store, "comments", "{'_id': 'c4', 'user': 'v', 'author': 'Vera'}");
}

static truce_sync *begin(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = rig_sync(store, setting->mechanism, 0);

    people(store);
    rig_author(sync);
    return sync;
}

/* A plain write. */
static void write_plainly(truce_store *store, const char *collection, const char *filter,
                          const char *update)
{
    bson_t *which = test_bson(filter), *operators = test_bson(update);
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    CHECK_OK(truce_update(store, collection, which, operators, &many, NULL, &error), error);
    bson_destroy(operators);
    bson_destroy(which);
}

/* ---- a change of a source -------------------------------------------------------------------- */

static void renames(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    truce_sync_result result;
    bson_error_t error = {0};

    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Johnny'}}", &result, &error),
             error);
    CHECK(result.changed && result.settled);
    CHECK_INT(result.copies, ==, 3);
    CHECK_FIELD("Johnny", "comments", "c1", "author");
    CHECK_FIELD("Johnny", "comments", "c3", "author");
    CHECK_FIELD("Vera", "comments", "c4", "author");
    CHECK_INT(count_json(store, "comments", "{'user': 'u', '_rev': {'$exists': true}}"), ==, 3);
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'mail': 'k@x'}}", &result, &error), error);
    CHECK(!result.changed && result.settled);
    CHECK_OK(rig_change(sync, "users", "u", "{'$unset': {'name': 1}}", &result, &error), error);
    CHECK_INT(count_json(store, "comments", "{'author': {'$exists': true}}"), ==, 1);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 rig_change(sync, "users", "nobody", "{'$set': {'name': 'x'}}", &result, &error),
                 error);
    CHECK(strstr(error.message, "users"));
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(a_change_of_a_source_reaches_every_copy)
{
    rig_everywhere(renames);
}

static void writes_what_it_may(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_INVALID,
                 rig_change(sync, "comments", "c1", "{'$set': {'author': 'me'}}", NULL, &error),
                 error);
    CHECK(strstr(error.message, "rule \"author\""));
    CHECK_STATUS(TRUCE_INVALID,
                 rig_change(sync, "users", "u", "{'$set': {'syncRevision': 9}}", NULL, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID,
                 rig_insert(sync, "comments", "{'_id': 'c9', 'unchecked': true}", NULL, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, rig_insert(sync, "comments", "{'user': 'u'}", NULL, &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE,
                 rig_insert(sync, "comments", "{'_id': 'c1', 'user': 'u'}", NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, rig_insert(sync, "truce_sync", "{'_id': 'c1'}", NULL, &error),
                 error);
    CHECK_FIELD("John", "comments", "c1", "author");
    truce_sync_free(sync);
}

TEST(copies_and_flags_are_not_written_by_hand)
{
    rig_everywhere(writes_what_it_may);
}

/* ---- copies that come and move --------------------------------------------------------------- */

static void comes(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    truce_sync_result result;
    bson_error_t error = {0};

    CHECK_OK(
        rig_insert(sync, "comments", "{'_id': 'd1', 'user': 'u', 'text': 'hm'}", &result, &error),
        error);
    CHECK(result.settled);
    CHECK_FIELD("John", "comments", "d1", "author");
    CHECK_OK(rig_change(sync, "comments", "d1", "{'$set': {'user': 'v'}}", &result, &error), error);
    CHECK_FIELD("Vera", "comments", "d1", "author");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", &result, &error), error);
    CHECK_FIELD("Vera", "comments", "d1", "author");
    CHECK_OK(rig_change(sync, "comments", "d1", "{'$set': {'user': 'u'}}", &result, &error), error);
    CHECK_FIELD("Jo", "comments", "d1", "author");
    CHECK_OK(rig_insert(sync, "comments", "{'_id': 'd2', 'user': 'w'}", &result, &error), error);
    CHECK_FIELD("", "comments", "d2", "author");
    CHECK_OK(rig_insert(sync, "users", "{'_id': 'w', 'name': 'Will'}", &result, &error), error);
    CHECK_FIELD("Will", "comments", "d2", "author");
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(a_new_or_moved_copy_has_the_values_of_its_source)
{
    rig_everywhere(comes);
}

/* ---- in a commit ----------------------------------------------------------------------------- */

struct in_commit {
    truce_sync *sync;
    truce_sync_result result;
};

static truce_status rename_and_comment(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct in_commit *in = arg;
    bson_value_t id = text_id("u");
    bson_t *update = test_bson("{'$set': {'name': 'Juan'}}"),
           *document = test_bson("{'_id': 'e1', 'user': 'u'}");
    truce_status status =
        truce_sync_update(in->sync, commit, "users", &id, update, &in->result, error);

    if (!status)
        status = truce_sync_insert(in->sync, commit, "comments", document, NULL, error);
    bson_destroy(document);
    bson_destroy(update);
    return status;
}

static void commits(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    struct in_commit in = {.sync = sync};
    truce_commit_options options = {.mechanism = setting->mechanism};
    bson_value_t u = text_id("u"), e1 = text_id("e1");
    bson_error_t error = {0};

    CHECK_OK(truce_transact(store, rename_and_comment, &in, &options, &error), error);
    CHECK(in.result.changed && !in.result.settled);
    CHECK_FIELD("John", "comments", "c1", "author");
    CHECK_OK(truce_sync_reconcile(sync, "users", &u, &in.result, &error), error);
    CHECK(in.result.settled);
    CHECK_FIELD("Juan", "comments", "c1", "author");
    CHECK_OK(truce_sync_reconcile(sync, "comments", &e1, NULL, &error), error);
    CHECK_FIELD("Juan", "comments", "e1", "author");
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(in_a_commit_the_flags_are_set_and_the_copies_follow)
{
    rig_everywhere(commits);
}

/* ---- plain writers --------------------------------------------------------------------------- */

static void beside(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    truce_sync_report report;
    bson_error_t error = {0};

    write_plainly(store, "users", "{'_id': 'u'}",
                  "{'$set': {'name': 'Plain', 'syncing': {'$date': {'$numberLong': '1000'}}}}");
    insert_json(store, "comments", "{'_id': 'p1', 'user': 'v', 'author': 'V', 'unchecked': true}");
    CHECK_OK(truce_sync_walk(sync, "author", NULL, &report, &error), error);
    CHECK_INT(report.under_way, ==, 4);
    CHECK_INT(report.differ, ==, 0);
    rig_sweep(store);
    CHECK_FIELD("Plain", "comments", "c1", "author");
    CHECK_FIELD("Vera", "comments", "p1", "author");
    rig_in_step(sync, store, "author");
    write_plainly(store, "users", "{'_id': 'u'}", "{'$set': {'name': 'Again', 'syncing': true}}");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Ours'}}", NULL, &error), error);
    CHECK_FIELD("Ours", "comments", "c1", "author");
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(adopts_flags_of_plain_writers)
{
    rig_everywhere(beside);
}

/* A flag may have any value, also one that looks like truce's own. */
static void flags_of_any_type(truce_store *store, const struct setting *setting)
{
    static const char *const flags[] = {"true",
                                        "false",
                                        "null",
                                        "1",
                                        "''",
                                        "{'$date': '2026-01-01T00:00:00Z'}",
                                        "{'$oid': '6b0b4db2d5b89be50c2cc667'}",
                                        "{'$oid': '0b0b4db2d5b89be50c2cc667'}",
                                        "{'$binary': {'base64': 'AA==', 'subType': '00'}}",
                                        "{'by': 'a program'}",
                                        "{'token': 1}",
                                        "{'at': {'$date': '2999-01-01T00:00:00Z'}}",
                                        "[]",
                                        "[true]",
                                        "{'$maxKey': 1}"};
    truce_sync *sync = begin(store, setting);
    char update[200], name[20];

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        snprintf(name, sizeof name, "name %zu", i);
        snprintf(update, sizeof update, "{'$set': {'name': '%s', 'syncing': %s}}", name, flags[i]);
        write_plainly(store, "users", "{'_id': 'u'}", update);
        snprintf(update, sizeof update, "{'$set': {'user': '%s', 'unchecked': %s}}",
                 i % 2 ? "v" : "u", flags[i]);
        write_plainly(store, "comments", "{'_id': 'c1'}", update);
        rig_sweep(store);
        CHECK_FIELD(i % 2 ? "Vera" : name, "comments", "c1", "author");
        CHECK_FIELD(name, "comments", "c2", "author");
        rig_in_step(sync, store, "author");
    }
    truce_sync_free(sync);
}

TEST(flags_of_plain_writers_may_have_any_type)
{
    rig_everywhere(flags_of_any_type);
}

/* A comment is the source of likes. A plain writer replaces it. */
static void replaces_a_middle_document(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *document, *of;
    } again[] = {{"{'_id': 'c1', 'user': 'nobody', 'unchecked': true}", ""},
                 {"{'_id': 'c1', 'user': 'v', 'unchecked': true}", "Vera"},
                 {"{'_id': 'c1', 'unchecked': true}", ""}};
    truce_sync *sync = begin(store, setting);
    bson_t *filter = test_bson("{'_id': 'c1'}");
    bson_error_t error = {0};

    insert_json(store, "likes", "{'_id': 'l1', 'comment': 'c1', 'unchecked': true}");
    CHECK_OK(rig_declare(sync, "liked", "comments", "likes", "comment", "{'of': 'author'}", &error),
             error);
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Long'}}", NULL, &error), error);
    rig_sweep(store);
    CHECK_FIELD("Long", "likes", "l1", "of");
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        CHECK_OK(truce_remove(store, "comments", filter, NULL, NULL, &error), error);
        insert_json(store, "comments", again[i].document);
        rig_sweep(store);
        CHECK_FIELD(again[i].of, "likes", "l1", "of");
    }
    rig_in_step(sync, store, "liked");
    bson_destroy(filter);
    truce_sync_free(sync);
}

TEST(copies_a_replaced_middle_document_to_its_dependents)
{
    rig_everywhere(replaces_a_middle_document);
}

static void reads(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_value_t c1 = text_id("c1"), nobody = text_id("nobody");
    bson_error_t error = {0};
    bson_iter_t iter;
    bson_t found;

    write_plainly(store, "users", "{'_id': 'u'}", "{'$set': {'name': 'New', 'syncing': true}}");
    CHECK_OK(truce_sync_read(sync, "comments", &c1, &found, &error), error);
    CHECK(bson_iter_init_find(&iter, &found, "author") &&
          !strcmp(bson_iter_utf8(&iter, NULL), "New"));
    bson_destroy(&found);
    CHECK_FIELD("John", "comments", "c2", "author");
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_sync_read(sync, "comments", &nobody, &found, &error),
                 error);
    bson_destroy(&found);
    rig_sweep(store);
    CHECK_FIELD("New", "comments", "c2", "author");
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(a_reader_reads_the_source_and_repairs_the_copy)
{
    rig_everywhere(reads);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void chains(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    truce_sync_result result;
    bson_error_t error = {0};

    insert_json(store, "likes", "{'_id': 'l1', 'comment': 'c1'}");
    insert_json(store, "likes", "{'_id': 'l2', 'comment': 'c4'}");
    CHECK_OK(rig_declare(sync, "liked", "comments", "likes", "comment", "{'of.author': 'author'}",
                         &error),
             error);
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Long'}}", &result, &error), error);
    CHECK(result.settled);
    CHECK_FIELD("Long", "likes", "l1", "of.author");
    CHECK_FIELD("", "likes", "l2", "of.author");
    CHECK_OK(rig_change(sync, "comments", "c1", "{'$set': {'user': 'v'}}", &result, &error), error);
    CHECK_FIELD("Vera", "likes", "l1", "of.author");
    CHECK_OK(rig_change(sync, "users", "v", "{'$set': {'name': 'Vero'}}", &result, &error), error);
    CHECK_FIELD("Vero", "likes", "l1", "of.author");
    rig_in_step(sync, store, "author");
    CHECK_STATUS(
        TRUCE_INVALID,
        rig_declare(sync, "back", "likes", "users", "like", "{'name': 'of.author'}", &error),
        error);
    CHECK(strstr(error.message, "cycle"));
    truce_sync_free(sync);
}

TEST(a_copy_that_is_copied_on_is_a_change_of_a_source)
{
    rig_everywhere(chains);
}

static void refuses(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    static const struct {
        const char *name, *source, *dependent, *reference, *copies;
        truce_status status;
    } rules[] = {
        {"author", "users", "comments", "user", "{'author': 'name'}", TRUCE_OK},
        {"author", "users", "comments", "user", "{'author': 'mail'}", TRUCE_DUPLICATE},
        {"other", "users", "comments", "user", "{'author': 'mail'}", TRUCE_INVALID},
        {"other", "users", "comments", "user", "{'author.x': 'mail'}", TRUCE_INVALID},
        {"other", "users", "comments", "by", "{'user': 'mail'}", TRUCE_INVALID},
        {"other", "users", "comments", "author", "{'a': 'mail'}", TRUCE_INVALID},
        {"self", "users", "users", "boss", "{'name': 'name'}", TRUCE_INVALID},
        {"boss", "users", "users", "boss", "{'bossName': 'name'}", TRUCE_OK},
        {"a.b", "users", "comments", "user", "{'x': 'name'}", TRUCE_INVALID},
        {"", "users", "comments", "user", "{'x': 'name'}", TRUCE_INVALID},
        {"x", "", "comments", "user", "{'x': 'name'}", TRUCE_INVALID},
        {"x", "users", "truce_commits", "user", "{'x': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "$user", "{'x': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "users.0", "{'x': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'x': 1}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'_id': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'_rev': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'synced.author': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'user': 'name'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'x': 'syncing'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'x': 'name', 'x.y': 'mail'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'x.y': 'name', 'z': 'a', 'x': 'mail'}", TRUCE_INVALID},
        {"x", "users", "comments", "user", "{'x': 'name', 'x': 'mail'}", TRUCE_INVALID},
    };
    bson_error_t error = {0};

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        truce_status status = rig_declare(sync, rules[i].name, rules[i].source, rules[i].dependent,
                                          rules[i].reference, rules[i].copies, &error);

        if (status != rules[i].status)
            test_fail(__FILE__, __LINE__, "rule %d: %s (%s)", (int)i, truce_status_name(status),
                      error.message);
    }
    CHECK_INT(count_json(store, "truce_sync", "{}"), ==, 2);
    CHECK_OK(truce_sync_drop(sync, "boss", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_sync_drop(sync, "boss", &error), error);
    truce_sync_free(sync);
}

TEST(refuses_invalid_rules_by_name)
{
    rig_everywhere(refuses);
}

/* ---- divergence ------------------------------------------------------------------------------ */

static void drifts(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    bson_error_t error = {0};

    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", NULL, &error), error);
    write_plainly(store, "comments", "{'_id': 'c1'}", "{'$set': {'author': 'wrong'}}");
    write_plainly(store, "comments", "{'_id': 'c4'}", "{'$set': {'author': 'old', 'synced': {}}}");
    write_plainly(store, "comments", "{'_id': 'c3'}", "{'$inc': {'synced.author.revision': 100}}");
    insert_json(store, "comments", "{'_id': 'o', 'user': 'gone'}");
    insert_json(store, "comments", "{'_id': 'a', 'user': ['u', 'v']}");
    insert_json(store, "comments", "{'_id': 'n'}");
    CHECK_OK(truce_sync_walk(sync, "author", NULL, &report, &error), error);
    CHECK_INT(report.dependents, ==, 7);
    CHECK_INT(report.differ, ==, 3);
    CHECK_INT(report.orphans, ==, 1);
    CHECK_INT(report.unreadable, ==, 1);
    CHECK_INT(report.repaired, ==, 0);
    CHECK_FIELD("wrong", "comments", "c1", "author");
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK(report.repaired >= 2 && report.repaired <= 3); /* the first may repair the second */
    CHECK_FIELD("Jo", "comments", "c1", "author");
    CHECK_FIELD("Vera", "comments", "c4", "author");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Joe'}}", NULL, &error), error);
    CHECK_INT(count_json(store, "comments", "{'author': 'Joe'}"), ==, 3);
    rig_in_step(sync, store, "author");
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_sync_walk(sync, "none", NULL, &report, &error), error);
    truce_sync_free(sync);
}

TEST(divergence_is_found_and_repaired)
{
    rig_everywhere(drifts);
}

/* A source path may be copied twice, and may be inside another one. */
static void repairs_overlapping_sources(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = rig_sync(store, setting->mechanism, 0);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    bson_error_t error = {0};

    insert_json(store, "users", "{'_id': 'u', 'name': {'first': 'Ada', 'last': 'L'}}");
    insert_json(store, "comments", "{'_id': 'c1', 'user': 'u'}");
    CHECK_OK(rig_declare(sync, "names", "users", "comments", "user",
                         "{'first': 'name.first', 'name': 'name', 'again': 'name.first', 'id': "
                         "'_id'}",
                         &error),
             error);
    CHECK_OK(truce_sync_walk(sync, "names", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, 1);
    CHECK_FIELD("Ada", "comments", "c1", "first");
    CHECK_FIELD("Ada", "comments", "c1", "again");
    CHECK_FIELD("L", "comments", "c1", "name.last");
    CHECK_FIELD("u", "comments", "c1", "id");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name.first': 'Eve'}}", NULL, &error),
             error);
    CHECK_FIELD("Eve", "comments", "c1", "again");
    rig_in_step(sync, store, "names");
    truce_sync_free(sync);
}

TEST(sources_of_copies_may_overlap)
{
    rig_everywhere(repairs_overlapping_sources);
}

static void comes_again(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_t *filter = test_bson("{'_id': 'u'}");
    bson_error_t error = {0};

    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'First'}}", NULL, &error), error);
    CHECK_OK(truce_remove(store, "users", filter, NULL, NULL, &error), error);
    insert_json(store, "users", "{'_id': 'u', 'name': 'Plain', 'syncing': true}");
    truce__clock_sleep_ms(2);
    rig_sweep(store);
    CHECK_FIELD("Plain", "comments", "c1", "author");
    CHECK_OK(truce_remove(store, "users", filter, NULL, NULL, &error), error);
    truce__clock_sleep_ms(2);
    CHECK_OK(rig_insert(sync, "users", "{'_id': 'u', 'name': 'Third'}", NULL, &error), error);
    CHECK_FIELD("Third", "comments", "c1", "author");
    rig_in_step(sync, store, "author");
    bson_destroy(filter);
    truce_sync_free(sync);
}

TEST(a_recreated_source_is_another_incarnation)
{
    rig_everywhere(comes_again);
}

/* A clock that was wrong, or a plain writer, left a high number in the old incarnation. */
static void comes_again_with_a_lower_number(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_t *filter = test_bson("{'_id': 'u'}");
    bson_error_t error = {0};

    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'First'}}", NULL, &error), error);
    write_plainly(store, "users", "{'_id': 'u'}",
                  "{'$set': {'syncRevision': {'$numberLong': '9000000000000000000'}}}");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'High'}}", NULL, &error), error);
    CHECK_FIELD("High", "comments", "c1", "author");
    CHECK_OK(truce_remove(store, "users", filter, NULL, NULL, &error), error);
    insert_json(store, "users", "{'_id': 'u', 'name': 'Bare'}");
    write_plainly(store, "comments", "{'_id': 'c1'}", "{'$set': {'unchecked': true}}");
    truce__clock_sleep_ms(2);
    rig_sweep(store);
    CHECK_FIELD("Bare", "comments", "c1", "author");
    CHECK_FIELD("High", "comments", "c2", "author"); /* no flag asked for it */
    CHECK_OK(truce_remove(store, "users", filter, NULL, NULL, &error), error);
    CHECK_OK(rig_insert(sync, "users", "{'_id': 'u', 'name': 'Again'}", NULL, &error), error);
    CHECK_FIELD("Again", "comments", "c1", "author");
    CHECK_FIELD("Again", "comments", "c2", "author");
    rig_in_step(sync, store, "author");
    bson_destroy(filter);
    truce_sync_free(sync);
}

TEST(writes_a_copy_despite_the_number_of_an_earlier_incarnation)
{
    rig_everywhere(comes_again_with_a_lower_number);
}

/* Each source has been changed another number of times; c1 carries the stamp of `u`. */
static void moves_plainly(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_error_t error = {0};

    insert_json(store, "users", "{'_id': 'w', 'name': 'Bare'}");
    CHECK_OK(rig_change(sync, "users", "v", "{'$set': {'name': 'Vero'}}", NULL, &error), error);
    for (int i = 0; i < 3; i++)
        CHECK_OK(rig_change(sync, "users", "u",
                            i % 2 ? "{'$set': {'name': 'Jo'}}" : "{'$set': {'name': 'Joe'}}", NULL,
                            &error),
                 error);
    for (int i = 0; i < 2; i++) {
        static const char *const flags[] = {"true", "{'$date': '2026-01-01T00:00:00Z'}"};
        static const struct {
            const char *to, *name;
        } moves[] = {{"v", "Vero"}, {"u", "Joe"},  {"w", "Bare"},
                     {"v", "Vero"}, {"w", "Bare"}, {"u", "Joe"}};

        for (size_t move = 0; move < sizeof moves / sizeof *moves; move++) {
            char *update = bson_strdup_printf("{'$set': {'user': '%s', 'unchecked': %s}}",
                                              moves[move].to, flags[i]);

            write_plainly(store, "comments", "{'_id': 'c1'}", update);
            truce__clock_sleep_ms(2);
            rig_sweep(store);
            CHECK_FIELD(moves[move].name, "comments", "c1", "author");
            CHECK_INT(count_json(store, "comments", "{'unchecked': {'$exists': true}}"), ==, 0);
            bson_free(update);
        }
    }
    write_plainly(store, "comments", "{'_id': 'c1'}", "{'$set': {'user': 'v', 'unchecked': true}}");
    CHECK_OK(rig_change(sync, "users", "v", "{'$set': {'name': 'Val'}}", NULL, &error), error);
    CHECK_FIELD("Val", "comments", "c1",
                "author"); /* the change of the source came before the recovery pass */
    rig_sweep(store);
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

static void repairs_one(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_value_t id = text_id("c4"), none = text_id("c9");
    truce_sync_walk_options walk = {.repair = true, .dependent = &none};
    bson_t *finding = test_bson("{'rule': 'sync-copy', 'ns': 'comments', 'id': 'c1'}");
    truce_check_options check = {.repair = true, .finding = finding};
    truce_sync_report report;
    truce_check_report checked;
    bson_error_t error = {0};

    write_plainly(store, "comments", "{'_id': 'c1'}", "{'$set': {'author': 'wrong'}}");
    write_plainly(store, "comments", "{'_id': 'c4'}", "{'$set': {'author': 'false'}}");
    CHECK_OK(truce_sync_walk(sync, "author", &walk, &report, &error), error);
    CHECK_INT(report.dependents, ==, 0);
    walk.dependent = &id;
    CHECK_OK(truce_sync_walk(sync, "author", &walk, &report, &error), error);
    CHECK_INT(report.dependents, ==, 1);
    CHECK_INT(report.repaired, ==, 1);
    CHECK_FIELD("Vera", "comments", "c4", "author");
    CHECK_FIELD("wrong", "comments", "c1", "author");
    write_plainly(store, "comments", "{'_id': 'c4'}", "{'$set': {'author': 'false'}}");
    CHECK_OK(truce_check(store, &check, NULL, NULL, &checked, &error), error);
    CHECK_INT(checked.findings, ==, 2);
    CHECK_INT(checked.repaired, ==, 1);
    CHECK_FIELD("John", "comments", "c1", "author");
    CHECK_FIELD("false", "comments", "c4", "author");
    bson_destroy(finding);
    truce_sync_free(sync);
}

TEST(repairs_a_single_dependent)
{
    rig_everywhere(repairs_one);
}

TEST(gives_a_moved_copy_the_values_of_its_new_source)
{
    rig_everywhere(moves_plainly);
}

static void moves_without_a_flag(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    bson_error_t error = {0};

    CHECK_OK(rig_change(sync, "users", "v", "{'$set': {'name': 'Vero'}}", NULL, &error), error);
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", NULL, &error), error);
    write_plainly(store, "comments", "{'_id': 'c1'}", "{'$set': {'user': 'v'}}");
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, 1);
    CHECK_FIELD("Vero", "comments", "c1", "author");
    write_plainly(store, "comments", "{'_id': 'c4'}", "{'$set': {'user': 'u'}}");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Joe'}}", NULL, &error), error);
    CHECK_FIELD("Joe", "comments", "c4", "author");
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(repair_and_changes_reach_a_copy_that_moved_without_a_flag)
{
    rig_everywhere(moves_without_a_flag);
}

/* ---- arrays where a field is expected -------------------------------------------------------- */

static void refuses_arrays(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = rig_sync(store, setting->mechanism, 0);
    static const struct {
        const char *reference, *copies, *named;
    } rules[] = {
        {"comments.user", "{'author': 'name'}", "\"comments\" of posts"},
        {"users", "{'author': 'name'}", "\"users\" of posts"},
        {"a.b.user", "{'author': 'name'}", "\"a.b\" of posts"},
        {"user", "{'comments.name': 'name'}", "\"comments\" of posts"},
        {"user", "{'author': 'names.first'}", "\"names\" of users"},
        {"user", "{'name': 'author'}", "path in users"},
    };
    bson_error_t error = {0};

    people(store);
    insert_json(store, "users", "{'_id': 'n', 'name': 'N', 'names': [{'first': 'N'}]}");
    insert_json(store, "posts", "{'_id': 1, 'comments': [{'user': 'u', 'name': 'old'}]}");
    insert_json(store, "posts", "{'_id': 2, 'users': ['u', 'v'], 'a': {'b': [{'user': 'u'}]}}");
    insert_json(store, "posts", "{'_id': 3, 'user': 'u', 'author': 'John'}");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        CHECK_STATUS(
            TRUCE_INVALID,
            rig_declare(sync, "r", "users", "posts", rules[i].reference, rules[i].copies, &error),
            error);
        CHECK(strstr(error.message, rules[i].named));
    }
    CHECK_INT(count_json(store, "posts", "{}"), ==, 3);
    truce_sync_free(sync);
}

TEST(a_rule_through_an_array_or_with_reversed_copies_is_refused)
{
    rig_everywhere(refuses_arrays);
}

static void reports_arrays(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = rig_sync(store, setting->mechanism, 0);
    truce_sync_report report;
    truce_sync_result result;
    bson_error_t error = {0};

    people(store);
    CHECK_OK(rig_declare(sync, "r", "users", "posts", "by.user", "{'by.name': 'name'}", &error),
             error);
    CHECK_STATUS(TRUCE_INVALID,
                 rig_insert(sync, "posts", "{'_id': 1, 'by': [{'user': 'u'}]}", NULL, &error),
                 error);
    CHECK(strstr(error.message, "\"by.user\" leads through an array in posts"));
    CHECK_OK(rig_insert(sync, "posts", "{'_id': 2, 'by': {'user': 'u'}}", &result, &error), error);
    insert_json(store, "posts", "{'_id': 3, 'by': [{'user': 'u', 'name': 'old'}]}");
    insert_json(store, "posts", "{'_id': 4, 'by': {'user': ['u']}, 'unchecked': true}");
    CHECK_OK(truce_sync_walk(sync, "r", NULL, &report, &error), error);
    CHECK_INT(report.unreadable, ==, 2);
    truce__clock_sleep_ms(2);
    rig_sweep(store);
    CHECK_INT(count_json(store, "posts", "{'_id': 4, 'unchecked': {'$exists': true}}"), ==, 1);
    truce_sync_free(sync);
}

TEST(refuses_or_reports_a_later_array)
{
    rig_everywhere(reports_arrays);
}

/* ---- a copy that cannot be repaired ---------------------------------------------------------- */

static void one_stops_no_other(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = rig_sync(store, setting->mechanism, 0);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    truce_sync_result result;
    bson_error_t error = {0};

    insert_json(store, "comments", "{'_id': 'b0', 'user': 'u', 'author': 'a text'}");
    people(store); /* the others come after it in its batch, too */
    CHECK_OK(
        rig_declare(sync, "author", "users", "comments", "user", "{'by.name': 'name'}", &error),
        error);
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, 5);
    write_plainly(store, "comments", "{'_id': 'b0'}", "{'$set': {'by': 'a text'}}");
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", &result, &error), error);
    CHECK(!result.settled);
    CHECK_FIELD("Jo", "comments", "c1", "by.name");
    CHECK_FIELD("Jo", "comments", "c3", "by.name");
    CHECK_INT(count_json(store, "users", "{'syncing': {'$exists': true}}"), ==, 1);
    write_plainly(store, "comments", "{'_id': 'b0'}", "{'$unset': {'by': 1}}");
    rig_sweep(store);
    CHECK_FIELD("Jo", "comments", "b0", "by.name");
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
}

TEST(a_document_that_refuses_its_copy_stops_no_other)
{
    rig_everywhere(one_stops_no_other);
}

/* More than fit one batch, or one page of the walk, whose ids are long. */
static void are_many(truce_store *store, const struct setting *setting)
{
    truce_sync *sync =
        truce_sync_new(store, &(truce_sync_options){.mechanism = setting->mechanism});
    truce_sync_walk_options repair = {.repair = true};
    const int count = server_under_test() ? 600 : 1200;
    truce_sync_report report;
    truce_sync_result result;
    bson_error_t error = {0};
    char json[200];

    insert_json(store, "users", "{'_id': 'u', 'name': 'John'}");
    rig_author(sync);
    for (int i = 0; i < count; i++) {
        snprintf(json, sizeof json, "{'_id': 'the comment that has the number %d', 'user': 'u'}",
                 i);
        insert_json(store, "comments", json);
    }
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, count);
    CHECK_INT(count_json(store, "comments", "{'author': 'John'}"), ==, count);
    write_plainly(store, "comments", "{'_id': {'$in': ['the comment that has the number 7']}}",
                  "{'$set': {'synced': 7}}"); /* it refuses copies, and stops no other */
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", &result, &error), error);
    CHECK(!result.settled);
    CHECK_INT(count_json(store, "comments", "{'author': 'Jo'}"), ==, count - 1);
    truce_sync_free(sync);
}

TEST(many_copies_are_written_in_batches)
{
    rig_everywhere(are_many);
}

/* A repair gives the dependents of a source without a revision a stamp without an origin, so the
 * first change finds stamps of another incarnation. */
TEST(the_first_change_after_a_repair_writes_its_copies_together)
{
    truce_store *store = truce_fault_wrap(open_setting(&settings[0]), &(truce_fault_options){0});
    /* A slow server needs more than the default of 30 s. */
    truce_sync *sync = truce_sync_new(store, &(truce_sync_options){.deadline_ms = 600000});
    truce_sync_walk_options repair = {.repair = true};
    enum { COUNT = 600 };
    truce_sync_report report;
    truce_sync_result result;
    bson_error_t error = {0};
    char json[80];

    insert_json(store, "users", "{'_id': 'u', 'name': 'John'}");
    for (int i = 0; i < COUNT; i++) {
        snprintf(json, sizeof json, "{'_id': %d, 'user': 'u'}", i);
        insert_json(store, "comments", json);
    }
    rig_author(sync);
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, COUNT);
    truce_fault_arm(store, &(truce_fault_options){.kind = TRUCE_FAULT_NONE, .writes_only = true});
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", &result, &error), error);
    CHECK_INT(truce_fault_calls(store), <, 30);
    CHECK(result.settled);
    CHECK_INT(result.copies, ==, COUNT);
    CHECK_INT(count_json(store, "comments", "{'author': 'Jo'}"), ==, COUNT);
    rig_in_step(sync, store, "author");
    truce_sync_free(sync);
    truce_store_close(store);
}

/* Another process, which runs between the first batch of copies and the next step. */
struct created_again {
    truce_store *store;
    truce_sync *sync;
    bool armed;
};

/* Removes the source after the first write of copies, and inserts another one with the same _id,
 * whose copies are written (a truce_trace_function). */
static void create_again(const bson_t *event, void *arg)
{
    struct created_again *race = arg;
    bson_t *filter;
    bson_error_t error = {0};
    bson_iter_t at;

    if (!race->armed || !bson_iter_init_find(&at, event, "collection") ||
        strcmp(bson_iter_utf8(&at, NULL), "comments") != 0 ||
        !bson_iter_init_find(&at, event, "verb") || strcmp(bson_iter_utf8(&at, NULL), "bulk") != 0)
        return;
    race->armed = false;
    filter = test_bson("{'_id': 'u'}");
    CHECK_OK(truce_remove(race->store, "users", filter, NULL, NULL, &error), error);
    CHECK_OK(rig_insert(race->sync, "users", "{'_id': 'u', 'name': 'Again'}", NULL, &error), error);
    bson_destroy(filter);
}

/* SY8: the batch skips the dependents with stamps of a repair. Their source is read again before
 * they are copied. */
TEST(a_bulk_of_copies_does_not_overwrite_those_of_a_source_that_was_created_again)
{
    struct created_again race = {.store = open_setting(&settings[1])};
    truce_store *store = truce_trace_wrap(
        race.store, &(truce_trace_options){.function = create_again, .arg = &race});
    truce_sync *sync = rig_sync(store, settings[1].mechanism, 0);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    bson_error_t error = {0};

    race.sync = rig_sync(race.store, settings[1].mechanism, 0);
    insert_json(store, "users", "{'_id': 'u', 'name': 'John'}");
    insert_json(store, "comments", "{'_id': 'c1', 'user': 'u'}");
    insert_json(store, "comments", "{'_id': 'c2', 'user': 'u'}");
    rig_author(sync);
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, 2);
    race.armed = true;
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Jo'}}", NULL, &error), error);
    CHECK(!race.armed);
    CHECK_FIELD("Again", "comments", "c1", "author");
    CHECK_FIELD("Again", "comments", "c2", "author");
    rig_in_step(sync, store, "author");
    truce_sync_free(race.sync);
    truce_sync_free(sync);
    truce_store_close(store);
}

/* Counts the bulks of copies (a truce_trace_function). */
static void count_bulks(const bson_t *event, void *arg)
{
    bson_iter_t at;

    *(int *)arg += bson_iter_init_find(&at, event, "collection") &&
                   !strcmp(bson_iter_utf8(&at, NULL), "comments") &&
                   bson_iter_init_find(&at, event, "verb") &&
                   !strcmp(bson_iter_utf8(&at, NULL), "bulk");
}

/* Returns a string of more than a million characters, which the caller frees. */
static char *large_text(char character)
{
    enum { SIZE = 1200000 };
    char *text = bson_malloc(SIZE + 1);

    memset(text, character, SIZE);
    text[SIZE] = '\0';
    return text;
}

/* The memory of a call must not grow with the product of the number of copies and their size. */
TEST(large_copies_are_written_by_several_bulks)
{
    enum { COUNT = 15 };
    int bulks = 0;
    truce_store *store = truce_trace_wrap(
        open_setting(&settings[0]), &(truce_trace_options){.function = count_bulks, .arg = &bulks});
    truce_sync *sync = truce_sync_new(store, NULL);
    truce_sync_walk_options repair = {.repair = true};
    char *before = large_text('a'), *after = large_text('b'), json[80];
    bson_t *user = BCON_NEW("_id", "u", "name", BCON_UTF8(before)),
           *change = BCON_NEW("$set", "{", "name", BCON_UTF8(after), "}");
    bson_value_t id = text_id("u");
    truce_sync_report report;
    truce_sync_result result;
    bson_error_t error = {0};

    CHECK_OK(truce_insert(store, "users", user, NULL, &error), error);
    for (int i = 0; i < COUNT; i++) {
        snprintf(json, sizeof json, "{'_id': %d, 'user': 'u'}", i);
        insert_json(store, "comments", json);
    }
    rig_author(sync);
    bulks = 0;
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, COUNT);
    CHECK_INT(bulks, ==, 2);
    bulks = 0;
    CHECK_OK(truce_sync_update(sync, NULL, "users", &id, change, &result, &error), error);
    CHECK(result.settled);
    CHECK_INT(result.copies, ==, COUNT);
    /* One write for all, which skips these dependents, and two bulks. */
    CHECK_INT(bulks, ==, 3);
    rig_in_step(sync, store, "author");
    bson_destroy(change);
    bson_destroy(user);
    bson_free(after);
    bson_free(before);
    truce_sync_free(sync);
    truce_store_close(store);
}

static void tells_status(truce_store *store, const struct setting *setting)
{
    truce_sync *sync = begin(store, setting);
    bson_error_t error = {0};
    bson_iter_t iter, value;
    bson_t status;

    write_plainly(store, "users", "{}", "{'$set': {'syncing': true}}");
    CHECK_OK(truce_sync_status(sync, &status, &error), error);
    CHECK(bson_iter_init(&iter, &status) &&
          bson_iter_find_descendant(&iter, "rules.0.syncing", &value));
    CHECK_INT(bson_iter_as_int64(&value), ==, 2);
    bson_destroy(&status);
    truce_sync_free(sync);
}

TEST(the_status_counts_flagged_documents)
{
    rig_everywhere(tells_status);
}
