/* Copies a store into another: byte for byte, concurrently with writers, and never over data of
 * other programs. */
#include "bson/value.h"
#include "tests/support/copy_stores.h"
#include "truce/sys/decorate.h"

struct reported {
    int collections, same, differences;
    bson_t *last; /* difference */
};

static void hear_collection(const bson_t *collection, void *arg)
{
    struct reported *reported = arg;
    bson_iter_t same;

    reported->collections++;
    reported->same += bson_iter_init_find(&same, collection, "same") && bson_iter_bool(&same);
}

static void hear_difference(const bson_t *difference, void *arg)
{
    struct reported *reported = arg;

    reported->differences++;
    bson_destroy(reported->last);
    reported->last = bson_copy(difference);
}

static truce_status copy(truce_store *from, truce_store *to, truce_copy_mode mode,
                         truce_copy_report *report, struct reported *reported, bson_error_t *error)
{
    truce_copy_options options = {.mode = mode, .name = "here", .batch = 7};

    if (reported) {
        *reported = (struct reported){0};
        options.collection = hear_collection;
        options.difference = hear_difference;
        options.arg = reported;
    }
    return truce_copy(from, to, &options, report, error);
}

static void check_difference(struct reported *reported, const char *json)
{
    bson_t *expected = test_bson(json);

    CHECK_INT(reported->differences, ==, 1);
    if (reported->last)
        CHECK_BSON(expected, reported->last);
    bson_destroy(reported->last);
    bson_destroy(expected);
}

static bool has_validator(truce_store *store, const char *collection, const bson_t *validator)
{
    bson_iter_t iter, child;
    bson_error_t error;
    bson_t list, view;
    bool has = false;

    CHECK_OK(truce_collection_list(store, NULL, &list, &error), error);
    bson_iter_init(&iter, &list);
    while (!has && bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t size;

        if (bson_iter_recurse(&iter, &child) && bson_iter_find(&child, "name") &&
            !strcmp(bson_iter_utf8(&child, NULL), collection) &&
            bson_iter_find(&child, "validator")) {
            bson_iter_document(&child, &size, &bytes);
            has = bson_init_static(&view, bytes, size) && bson_equal(&view, validator);
        }
    }
    bson_destroy(&list);
    return has;
}

TEST(a_copy_has_every_document_byte_for_byte_and_every_index)
{
    truce_store *from = copy_store("memory:"), *to = copy_file(test_directory(), "to"),
                *back = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;
    struct reported reported;
    bson_t indexes, copied, *validator = test_bson("{'_id': {'$exists': true}}");

    copy_fill(from, 300);
    copy_fill_old(from);
    copy_fill_random(from, test_seed(), 300);
    copy_index(from, "people", "{'key': {'at': 1}, 'expireAfterSeconds': 60, 'sparse': true}");
    copy_index(from, "people",
               "{'key': {'_keys': 1}, 'partialFilterExpression': {'mail': {'$gt': 'm'}}}");
    CHECK_OK(truce_collection_validate(from, "people", validator, &error), error);
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, &reported, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_INT(report.collections, ==, 6);
    CHECK_INT(report.inserted, ==, report.documents);
    CHECK_INT(report.indexes, ==, 5);
    CHECK_INT(reported.collections, ==, 6);
    CHECK_INT(reported.same, ==, 6);
    CHECK_SAME(from, to);
    CHECK_OK(truce_index_list(from, "people", &indexes, &error), error);
    CHECK_OK(truce_index_list(to, "people", &copied, &error), error);
    CHECK_INT(indexes.len, ==, copied.len);
    bson_destroy(&copied);
    CHECK_OK(truce_index_list(to, "bare", &copied, &error), error);
    CHECK_OK(copy(to, back, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, back);
    bson_destroy(&indexes);
    bson_destroy(&copied);
    CHECK(has_validator(back, "people", validator));
    bson_destroy(validator);
    truce_store_close(from);
    truce_store_close(to);
    truce_store_close(back);
}

TEST(a_finished_copy_is_compared_and_never_written_to)
{
    truce_store *from = copy_store("memory:"), *to = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;
    struct reported reported;

    copy_put(from, "c", "{'_id': 1, 'a': 1}");
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.inserted + report.differences, ==, 0);
    copy_change(to, "c", "{'_id': 1}", "{'$set': {'a': {'$numberLong': '1'}}}");
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, &reported, &error), error);
    CHECK_INT(report.differences, ==, 1);
    CHECK_INT(report.replaced, ==, 0);
    check_difference(&reported, "{'collection': 'c', 'id': 1, 'difference': 'other', 'field': 'a', "
                                "'from': 1, 'to': {'$numberLong': '1'}}");
    CHECK_INT(copy_count(to, "c", "{'a': {'$type': 'long'}}"), ==, 1);
    CHECK_OK(copy(from, to, TRUCE_COPY_REPLACE, &report, NULL, &error), error);
    CHECK_INT(report.replaced, ==, 1);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, to);
    truce_store_close(from);
    truce_store_close(to);
}

TEST(treats_existing_documents_by_the_conflict_policy)
{
    truce_store *from = copy_store("memory:"), *to = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;
    struct reported reported;

    copy_put(from, "c", "{'_id': 1, 'a': 1}");
    copy_put(from, "c", "{'_id': 2, 'a': 2}");
    copy_put(to, "c", "{'_id': 2, 'a': 3}");
    copy_put(to, "c", "{'_id': 3}");
    copy_put(to, "other", "{'_id': 3}");
    CHECK_STATUS(TRUCE_CONFLICT, copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(copy_count(to, "c", "{}"), ==, 2);
    CHECK_OK(copy(from, to, TRUCE_COPY_COMPARE, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 3);
    CHECK_INT(copy_count(to, "c", "{}"), ==, 2);
    CHECK_INT(copy_count(to, "truce_copies", "{}"), ==, 0);
    CHECK_OK(copy(from, to, TRUCE_COPY_MERGE, &report, &reported, &error), error);
    check_difference(&reported, "{'collection': 'c', 'id': 2, 'difference': 'other', 'field': 'a', "
                                "'from': 2, 'to': 3}");
    CHECK_INT(report.differences, ==, 1);
    CHECK_INT(report.kept, ==, 1);
    CHECK_INT(copy_count(to, "c", "{}"), ==, 3);
    CHECK_INT(copy_count(to, "c", "{'a': 3}"), ==, 1);
    CHECK_OK(copy(from, to, TRUCE_COPY_REPLACE, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_INT(report.removed, ==, 1);
    CHECK_INT(report.replaced, ==, 1);
    CHECK_INT(copy_count(to, "other", "{}"), ==, 1);
    CHECK_INT(copy_count(to, "c", "{}"), ==, 2);
    truce_store_close(from);
    truce_store_close(to);
}

TEST(replaces_documents_despite_moved_unique_keys)
{
    truce_store *from = copy_store("memory:"), *to = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;

    for (int i = 0; i < 2; i++) {
        truce_store *store = i ? to : from;

        copy_put(store, "c", i ? "{'_id': 1, 'u': 'a'}" : "{'_id': 1, 'u': 'b'}");
        copy_put(store, "c", i ? "{'_id': 2, 'u': 'b'}" : "{'_id': 2, 'u': 'a'}");
        copy_put(store, "c", i ? "{'_id': 3, 'u': 1}" : "{'_id': {'$numberLong': '3'}, 'u': 1}");
        copy_index(store, "c", "{'key': {'u': 1}, 'unique': true}");
    }
    CHECK_OK(copy(from, to, TRUCE_COPY_REPLACE, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, to);
    truce_store_close(from);
    truce_store_close(to);
}

TEST(reports_the_refusals_of_the_other_store_with_the_reason)
{
    truce_store *from = copy_store("memory:"), *to = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;
    struct reported reported;
    bson_iter_t text;

    copy_put(from, "c", "{'_id': 1, 'u': 1}");
    copy_put(from, "c", "{'_id': 2, 'u': 2}");
    copy_put(to, "c", "{'_id': 3, 'u': 1}");
    copy_index(to, "c", "{'key': {'u': 1}, 'unique': true}");
    CHECK_OK(copy(from, to, TRUCE_COPY_MERGE, &report, &reported, &error), error);
    CHECK_INT(report.differences, ==, 1);
    CHECK_INT(report.inserted, ==, 1);
    REQUIRE(reported.last != NULL);
    CHECK(bson_iter_init_find(&text, reported.last, "text") &&
          strstr(bson_iter_utf8(&text, NULL), "in the unique index"));
    bson_destroy(reported.last);
    copy_index(from, "d", "{'key': {'a': 1}, 'name': 'n'}");
    copy_index(to, "d", "{'key': {'b': 1}, 'name': 'n'}");
    CHECK_OK(truce_copy(from, to,
                        &(truce_copy_options){.mode = TRUCE_COPY_MERGE,
                                              .collections = (const char *const[]){"d", NULL}},
                        &report, &error),
             error);
    CHECK_INT(report.differences, ==, 1);
    truce_store_close(from);
    truce_store_close(to);
}

/* ---- commits --------------------------------------------------------------------------------- */

TEST(open_commits_are_refused_or_copied_with_their_documents)
{
    const char *const only_c[] = {"c", NULL};
    truce_store *from = copy_store("memory:"), *to = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;

    copy_put(from, "c", "{'_id': 1, '_intent': {'c': {'$oid': '0123456789abcdef01234567'}}}");
    copy_put(from, "d", "{'_id': 1}");
    copy_put(from, "truce_commits",
             "{'_id': {'$oid': '0123456789abcdef01234567'}, 'state': 'committed'}");
    CHECK_STATUS(TRUCE_CONFLICT, copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.open, ==, 1);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_copy(from, to, &(truce_copy_options){.live = true, .collections = only_c},
                            &report, &error),
                 error);
    CHECK_INT(copy_count(to, "c", "{}"), ==, 0);
    CHECK_OK(truce_copy(from, to,
                        &(truce_copy_options){.live = true,
                                              .collections = (const char *const[]){"d", NULL}},
                        &report, &error),
             error);
    CHECK_OK(truce_copy(from, to, &(truce_copy_options){.live = true}, &report, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, to);
    truce_store_close(from);
    truce_store_close(to);
}

TEST(names_a_missing_collection)
{
    const char *const wanted[] = {"c", "peple", NULL};
    truce_store *from = copy_store("memory:"), *to = copy_store("memory:");
    truce_copy_report report;
    bson_error_t error;

    copy_put(from, "c", "{'_id': 1}");
    CHECK_STATUS(
        TRUCE_NOT_FOUND,
        truce_copy(from, to, &(truce_copy_options){.collections = wanted}, &report, &error), error);
    CHECK(strstr(error.message, "\"peple\"") != NULL);
    CHECK_INT(copy_count(to, "c", "{}"), ==, 0);
    truce_store_close(from);
    truce_store_close(to);
}

/* ---- while others write ---------------------------------------------------------------------- */

/* Writes to the store that is copied when the copy has read so many documents. */
struct writer {
    truce_store *store;
    int reads, at;
    bool endless;
};

static void write_beside(const bson_t *event, void *arg)
{
    struct writer *writer = arg;
    bson_iter_t verb;
    char json[64];

    if (!bson_iter_init_find(&verb, event, "verb") || strcmp(bson_iter_utf8(&verb, NULL), "next"))
        return;
    if (++writer->reads != writer->at && !(writer->endless && writer->reads % 20 == 0))
        return;
    copy_change(writer->store, "people", "{'_id': 0}", "{'$inc': {'n': 1}}");
    snprintf(json, sizeof json, "{'_id': %d, 'mail': 'new %d'}", -writer->reads, writer->reads);
    copy_put(writer->store, "people", json);
    if (!writer->endless) {
        bson_t *gone = test_bson("{'_id': 1}");

        CHECK(!truce_remove(writer->store, "people", gone, NULL, NULL, NULL));
        copy_change(writer->store, "people", "{'_id': 2}", "{'$set': {'mail': 'm1'}}");
        copy_change(writer->store, "people", "{'_id': 3}", "{'$set': {'mail': 'm2'}}");
        bson_destroy(gone);
    }
}

/* A complete copy has all changes of one snapshot, or none of them. */
static void check_one_moment(truce_store *to)
{
    int64_t seen = copy_count(to, "people", "{'_id': 0, 'n': 1}");

    CHECK_INT(copy_count(to, "people", "{'_id': {'$lt': 0}}"), ==, seen);
    CHECK_INT(copy_count(to, "people", "{'_id': 1}"), ==, 1 - seen);
    CHECK_INT(copy_count(to, "people", "{'_id': 2, 'mail': 'm1'}"), ==, seen);
    CHECK_INT(copy_count(to, "people", "{'_id': 3, 'mail': 'm2'}"), ==, seen);
}

/* Acts as an old server: it can take no snapshot, and so writers cost rounds. */
static truce_store *old_store(void)
{
    static truce_store_ops ops;
    truce_store *store = copy_store("memory:");

    ops = *store->ops;
    ops.snapshot = NULL;
    store->ops = &ops;
    return store;
}

static void copy_beside(int at)
{
    struct writer writer = {.store = old_store(), .at = at};
    truce_store *to = copy_store("memory:"), *from;
    truce_copy_report report;
    bson_error_t error;

    copy_fill(writer.store, 60);
    from = truce_trace_wrap(writer.store,
                            &(truce_trace_options){.function = write_beside, .arg = &writer});
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    check_one_moment(to);
    writer.at = 0;
    CHECK_OK(copy(from, to, TRUCE_COPY_REPLACE, &report, NULL, &error), error);
    if (!CHECK_INT(report.differences, ==, 0) || !CHECK_SAME(from, to))
        fprintf(stderr, "    with a writer at read %d\n", at);
    truce_store_close(from);
    truce_store_close(to);
}

TEST(concurrent_writes_are_in_the_copy_wholly_or_not_at_all)
{
    for (int at = 1; at < 420 && !test_failures(); at += 7)
        copy_beside(at);
}

TEST(copies_a_changing_source_as_of_the_beginning)
{
    truce_store *source = copy_store("memory:"), *to = copy_store("memory:"), *from, *before;
    struct writer writer = {.store = source, .endless = true};
    truce_copy_report report;
    bson_error_t error;

    copy_fill(source, 60);
    CHECK_OK(truce_snapshot(source, NULL, &before, &error), error);
    from = truce_trace_wrap(to, &(truce_trace_options){.function = write_beside, .arg = &writer});
    CHECK_OK(copy(source, from, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(before, from);
    CHECK_OK(copy(source, from, TRUCE_COPY_REPLACE, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_INT(report.inserted + report.replaced + report.removed, >, 0);
    truce_store_close(before);
    truce_store_close(source);
    truce_store_close(from);
}

TEST(never_calls_a_changing_source_without_snapshots_equal)
{
    truce_store *source = old_store(), *to = copy_store("memory:"), *from;
    struct writer writer = {.store = source, .endless = true};
    truce_copy_report report;
    bson_error_t error;

    copy_fill(source, 60);
    from =
        truce_trace_wrap(source, &(truce_trace_options){.function = write_beside, .arg = &writer});
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, >, 0);
    CHECK_INT(copy_count(to, "truce_copies", "{'state': 'copying'}"), ==, 5);
    writer.endless = false;
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, to);
    truce_store_close(from);
    truce_store_close(to);
}

/* ---- unfinished copies ----------------------------------------------------------------------- */

/* Opens a store with a copy that ended at the n-th write. */
static truce_store *cut_off(truce_store *from, uint64_t at)
{
    truce_fault_options fault = {
        .kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true, .writes_only = true};
    truce_store *to = truce_fault_wrap(copy_store("memory:"), &fault);
    truce_copy_report report;
    bson_error_t error;

    CHECK_STATUS(TRUCE_IO, copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    truce_fault_arm(to, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
    return to;
}

TEST(resumes_an_unfinished_copy_of_the_same_store_only)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *from = truce_fault_wrap(old_store(), &none), *to;
    uint64_t before, whole;
    truce_copy_report report;
    bson_error_t error;

    copy_fill(from, 60);
    to = copy_store("memory:");
    before = truce_fault_calls(from);
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    whole = truce_fault_calls(from) - before;
    truce_store_close(to);
    to = cut_off(from, 14);
    CHECK_INT(copy_count(to, "people", "{}"), >, 0);
    CHECK_STATUS(TRUCE_CONFLICT,
                 truce_copy(from, to, &(truce_copy_options){.name = "elsewhere"}, &report, &error),
                 error);
    CHECK(strstr(error.message, "unfinished copy of another store (here)") != NULL);
    before = truce_fault_calls(from);
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(truce_fault_calls(from) - before, <, whole);
    CHECK_INT(report.resumed_at, >, 0);
    CHECK_INT(report.inserted + report.resumed_at, <=, report.documents);
    CHECK_INT(report.inserted + report.resumed_at, >=, report.documents - 7);
    CHECK_INT(report.replaced + report.removed + report.differences, ==, 0);
    CHECK_SAME(from, to);
    truce_store_close(from);
    truce_store_close(to);
}

TEST(removes_documents_that_the_source_lost_since_an_unfinished_copy)
{
    truce_store *from = copy_store("memory:"), *to;
    truce_copy_report report;
    bson_error_t error;

    copy_fill(from, 60);
    to = cut_off(from, 14);
    CHECK_OK(truce_collection_drop(from, "people", &error), error);
    CHECK_OK(copy(from, to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_INT(copy_count(to, "people", "{}"), ==, 0);
    CHECK_SAME(from, to);
    truce_store_close(from);
    truce_store_close(to);
}

/* A second run begins in the middle of the first. */
struct intruder {
    truce_store *from, *to;
    bool done;
};

static void intrude(bool comparing, int64_t done, int64_t total, void *arg)
{
    struct intruder *intruder = arg;
    truce_copy_report report;
    bson_error_t error;

    (void)comparing;
    (void)total;
    if (intruder->done || done < 20)
        return;
    intruder->done = true;
    CHECK_OK(copy(intruder->from, intruder->to, TRUCE_COPY_NEW, &report, NULL, &error), error);
    CHECK_INT(report.differences, ==, 0);
}

TEST(fails_the_first_of_two_concurrent_copies)
{
    struct intruder intruder = {.from = copy_store("memory:"), .to = copy_store("memory:")};
    truce_copy_options options = {
        .name = "here", .batch = 7, .progress = intrude, .arg = &intruder};
    truce_copy_report report;
    bson_error_t error;

    copy_fill(intruder.from, 60);
    CHECK_STATUS(TRUCE_CONFLICT, truce_copy(intruder.from, intruder.to, &options, &report, &error),
                 error);
    CHECK(intruder.done);
    CHECK(strstr(error.message, "another process") != NULL);
    CHECK_SAME(intruder.from, intruder.to);
    truce_store_close(intruder.from);
    truce_store_close(intruder.to);
}
