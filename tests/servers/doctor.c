/* The doctor at a server: its report, without false findings. */
#include "maintenance/doctor.h"

#include "tests/support/server.h"
#include "truce/truce.h"

static void hear(const bson_t *finding, void *arg)
{
    char *text = bson_as_relaxed_extended_json(finding, NULL);

    if (text && strstr(text, "\"error\""))
        test_fail(__FILE__, __LINE__, "an error is found: %s", text);
    bson_free(text);
}

TEST(a_working_server_has_no_errors_and_reports_its_kind)
{
    truce_store *store = server_store();
    truce_doctor_report report;
    bson_error_t error = {0};
    bson_iter_t iter;

    REQUIRE(store != NULL);
    CHECK_OK(truce_doctor(store, hear, NULL, &report, &error), error);
    CHECK(*truce__doctor_text(&report.facts, "build.version", ""));
    CHECK(*truce__doctor_text(&report.facts, "deployment", ""));
    CHECK(truce__doctor_fact(&report.facts, "clock.server", &iter));
    CHECK(truce__doctor_fact(&report.facts, "hello.maxWireVersion", &iter));
    CHECK(truce__doctor_fact(&report.facts, "status", &iter));
    bson_destroy(&report.facts);
    truce_store_close(store);
}

TEST(commits_leave_a_server_in_good_order)
{
    truce_store *store = server_store();
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .key = "k", .key_time_ms = 1700000000000};
    bson_t *a = test_bson("{'_id': 1}"), *b = test_bson("{'_id': 2}");
    truce_doctor_report report;
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    REQUIRE(store != NULL);
    CHECK_OK(truce_commit_begin(store, &options, &commit, &error), error);
    CHECK_OK(truce_commit_insert(commit, "things", a, &error), error);
    CHECK_OK(truce_commit_insert(commit, "things", b, &error), error);
    CHECK_OK(truce_commit_apply(commit, &error), error);
    CHECK_OK(truce_doctor(store, hear, NULL, &report, &error), error);
    bson_destroy(&report.facts);
    truce_commit_free(commit);
    bson_destroy(a);
    bson_destroy(b);
    truce_store_close(store);
}
