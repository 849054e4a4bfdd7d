/* Copies from a file to a server and back: the documents return byte for byte. */
#include <stdlib.h>

#include "tests/support/copy_stores.h"
#include "tests/support/server.h"
#include "tests/support/tutorial.h"
#include "truce/sys/decorate.h"

static truce_status copy(truce_store *from, truce_store *to, truce_copy_report *report,
                         bson_error_t *error)
{
    return truce_copy(from, to, &(truce_copy_options){.name = "here", .batch = 40}, report, error);
}

TEST(a_store_that_went_to_a_server_and_back_is_the_same)
{
    const char *directory = test_directory();
    truce_store *from = copy_file(directory, "from"), *back = copy_file(directory, "back");
    truce_store *server = server_store();
    truce_copy_report report;
    bson_error_t error;

    REQUIRE(server != NULL);
    copy_fill(from, 200);
    CHECK_OK(copy(from, server, &report, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, server);
    CHECK_OK(copy(server, back, &report, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_INT(report.indexes, ==, 3);
    CHECK_SAME(from, back);
    truce_store_close(from);
    truce_store_close(back);
}

TEST(deprecated_types_go_to_a_server_and_back)
{
    truce_store *from = copy_store("memory:"), *back = copy_store("memory:");
    truce_store *server = server_store();
    truce_copy_report report;
    bson_error_t error;

    REQUIRE(server != NULL);
    copy_fill_old(from);
    CHECK_OK(copy(from, server, &report, &error), error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_OK(copy(server, back, &report, &error), error);
    CHECK_SAME(from, back);
    truce_store_close(from);
    truce_store_close(back);
}

/* The copy is cut off at its n-th write, and another run ends it. */
static void cut_off_at(truce_store *from, uint64_t at, bool to_server)
{
    truce_store *server = server_store(), *memory = copy_store("memory:");
    truce_store *inner = to_server ? server : memory;
    truce_fault_options fault = {
        .kind = TRUCE_FAULT_FAIL, .at = at, .from_then_on = true, .writes_only = true};
    truce_copy_report report;
    bson_error_t error;

    if (!to_server)
        CHECK_OK(copy(from, server, &report, &error), error);
    {
        truce_store *source = to_server ? from : server, *to = truce_fault_wrap(inner, &fault);

        CHECK(copy(source, to, &report, &error) != TRUCE_OK);
        truce_fault_arm(to, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
        CHECK_OK(copy(source, to, &report, &error), error);
        CHECK_INT(report.differences, ==, 0);
        CHECK_INT(report.resumed_at, >, 0);
        CHECK_INT(report.inserted, <, report.documents);
        CHECK_SAME(from, to);
        if (to_server)
            truce_store_close(memory);
        truce_store_close(to);
    }
}

TEST(resumes_an_interrupted_copy_in_both_directions)
{
    truce_store *from = copy_file(test_directory(), "from");

    copy_fill(from, 120);
    cut_off_at(from, 11, true);
    cut_off_at(from, 11, false);
    truce_store_close(from);
}

static void kill_server(bool comparing, int64_t done, int64_t total, void *arg)
{
    bool *killed = arg;

    (void)comparing;
    (void)total;
    if (!*killed && done >= 80)
        *killed = server_kill();
}

TEST(a_server_that_is_killed_in_the_middle_does_no_harm)
{
    bool killed = false;
    truce_copy_options options = {
        .name = "here", .batch = 40, .progress = kill_server, .arg = &killed};
    truce_store *from = copy_store("memory:"), *server = server_store();
    truce_copy_report report;
    truce_status status;
    bson_error_t error;

    REQUIRE(server != NULL);
    if (!getenv("TRUCE_TEST_SERVER_KILL")) {
        test_skip("this server cannot be killed and started again");
        truce_store_close(from);
        return;
    }
    copy_fill(from, 200);
    status = truce_copy(from, server, &options, &report, &error);
    CHECK(killed);
    for (int i = 0; i < 5 && (status || report.differences); i++)
        status = copy(from, server, &report, &error);
    CHECK_OK(status, error);
    CHECK_INT(report.differences, ==, 0);
    CHECK_SAME(from, server);
    truce_store_close(from);
}

TEST(sets_and_commits_continue_in_the_copy)
{
    truce_store *from = copy_file(test_directory(), "from"), *server = server_store();
    truce_set_options options = {
        .collection = "students", .key = "student_id", .field = "classes", .name = "name"};
    bson_t *student = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'CS 101'}");
    truce_set *set = tutorial_set(from, &options);
    truce_set_outcome outcome;
    truce_copy_report report;
    truce_check_report found;
    bson_error_t error;

    REQUIRE(server != NULL);
    CHECK_OK(truce_set_remove(set, NULL, student, element, 1001, &outcome, &error), error);
    truce_set_free(set);
    CHECK_OK(copy(from, server, &report, &error), error);
    CHECK_INT(report.differences, ==, 0);
    set = tutorial_set(server, &options);
    CHECK_OK(truce_set_add(set, NULL, student, element, 1000, &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_STALE);
    CHECK_OK(truce_set_add(set, NULL, student, element, 1002, &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_APPLIED);
    CHECK_OK(truce_check(server, NULL, NULL, NULL, &found, &error), error);
    CHECK_INT(found.findings, ==, 0);
    truce_set_free(set);
    truce_store_close(from);
    bson_destroy(student);
    bson_destroy(element);
}
