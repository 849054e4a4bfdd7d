/* The contract, kept by the fault decorator without faults; and its behaviour with faults. */
#include "tests/support/contract.h"
#include "truce/sys/decorate.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static truce_store *open_memory(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open("memory:", NULL, &store, &error))
        fprintf(stderr, "%s\n", error.message);
    return store;
}

static truce_store *open_fault(void)
{
    return truce_fault_wrap(open_memory(), &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
}

CONTRACT_SUITE(open_fault)

#define ARM(...) truce_fault_arm(c->store, &(truce_fault_options){__VA_ARGS__})

CONTRACT(a_call_that_fails_has_no_effect_and_the_next_works)
{
    ARM(.kind = TRUCE_FAULT_FAIL, .at = 2, .status = TRUCE_LOCKED);
    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_REFUSED(TRUCE_LOCKED, 0,
                  truce_insert(c->store, "things", J("{'_id': 2}"), NULL, &c->error));
    contract_fill(c, "things", "[{'_id': 3}]");
    CHECK_INT(truce_fault_calls(c->store), ==, 3);
    CHECK_INT(truce_fault_hits(c->store), ==, 1);
    CHECK_HOLDS("things", "[{'_id': 1}, {'_id': 3}]");
}

CONTRACT(a_lost_answer_is_unknown_and_the_effect_is_there)
{
    truce_write_result result;
    bson_t document;

    ARM(.kind = TRUCE_FAULT_LOSE, .at = 1);
    CHECK_REFUSED(TRUCE_UNKNOWN, 0,
                  truce_update(c->store, "things", J("{'_id': 1}"), J("{'$set': {'a': 1}}"),
                               WRITE_OPTIONS(.upsert = true), &result, &c->error));
    CHECK(!result.upserted);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}]");
    ARM(.kind = TRUCE_FAULT_LOSE, .at = 1);
    CHECK_REFUSED(TRUCE_UNKNOWN, 0,
                  truce_find_and_modify(c->store, "things", J("{}"), J("{'$inc': {'a': 1}}"), NULL,
                                        &document, &result, &c->error));
    CHECK(bson_empty(&document) && result.matched == 0);
    bson_destroy(&document);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}]");
}

/* Makes one call of each verb. Returns how many failed with `expected`. */
static int call_everything(struct contract *c, truce_status expected)
{
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status answers[20];
    uint64_t token = 0;
    bson_t document;
    int64_t number;
    int count = 0, failed = 0;

    answers[count++] = truce_insert(c->store, "a", J("{'x': 1}"), NULL, NULL);
    answers[count++] = truce_find(c->store, "a", NULL, NULL, &cursor, NULL);
    if (cursor)
        answers[count++] = truce_cursor_next(cursor, &found, NULL);
    truce_cursor_close(cursor);
    answers[count++] = truce_count(c->store, "a", NULL, NULL, &number, NULL);
    answers[count++] = truce_distinct(c->store, "a", "x", NULL, &document, NULL);
    bson_destroy(&document);
    answers[count++] = truce_explain(c->store, "a", NULL, NULL, &document, NULL);
    bson_destroy(&document);
    answers[count++] = truce_find_and_modify(c->store, "a", J("{}"), J("{'$inc': {'x': 1}}"), NULL,
                                             &document, NULL, NULL);
    bson_destroy(&document);
    answers[count++] = truce_index_create(c->store, "a", J("{'key': {'x': 1}}"), NULL);
    answers[count++] = truce_index_list(c->store, "a", &document, NULL);
    bson_destroy(&document);
    answers[count++] = truce_index_drop(c->store, "a", "x_1", NULL);
    answers[count++] = truce_collection_create(c->store, "b", NULL);
    answers[count++] = truce_collection_list(c->store, NULL, &document, NULL);
    bson_destroy(&document);
    answers[count++] = truce_collection_rename(c->store, "b", "d", false, NULL);
    answers[count++] = truce_collection_drop(c->store, "d", NULL);
    answers[count++] = truce_wait(c->store, "a", &token, 0, NULL);
    for (int i = 0; i < count; i++)
        failed += answers[i] == expected;
    return failed;
}

CONTRACT(every_call_can_be_hit_in_turn)
{
    int answered = call_everything(c, TRUCE_OK);
    uint64_t calls = truce_fault_calls(c->store);

    CHECK_INT(answered, ==, 15);
    CHECK_INT(calls, ==, 15);
    for (uint64_t at = 1; at <= calls; at++) {
        truce_store_close(c->store);
        c->store = open_fault();
        ARM(.kind = TRUCE_FAULT_FAIL, .at = at);
        answered = call_everything(c, TRUCE_IO);
        CHECK_INT(answered, ==, 1);
        CHECK_INT(truce_fault_hits(c->store), ==, 1);
        truce_store_close(c->store);
        c->store = open_fault();
        ARM(.kind = TRUCE_FAULT_LOSE, .at = at);
        answered = call_everything(c, TRUCE_UNKNOWN);
        CHECK_INT(answered, ==, 1);
    }
    ARM(.kind = TRUCE_FAULT_FAIL, .at = calls + 1);
    CHECK_INT(truce_fault_hits(c->store), ==, 0);
}

CONTRACT(from_a_call_on_everything_can_fail)
{
    int failed;

    ARM(.kind = TRUCE_FAULT_FAIL, .at = 1, .from_then_on = true);
    failed = call_everything(c, TRUCE_IO);
    CHECK_INT(failed, ==, 14); /* no cursor, no step */
}

CONTRACT(reads_need_not_count)
{
    int64_t count;

    ARM(.kind = TRUCE_FAULT_FAIL, .at = 2, .writes_only = true);
    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_DONE(truce_count(c->store, "things", NULL, NULL, &count, &c->error));
    CHECK_DONE(truce_count(c->store, "things", NULL, NULL, &count, &c->error));
    CHECK_REFUSED(TRUCE_IO, 0, truce_insert(c->store, "things", J("{'_id': 2}"), NULL, &c->error));
}

static void leave(void *arg)
{
    _exit(*(int *)arg);
}

/* Inserts one document in a child that is to die; returns how the child ended. */
static int end_of_child(truce_fault_kind kind, const char *path, void (*die)(void *), void *arg)
{
    pid_t child = fork();
    int how = 0;

    if (child == 0) {
        truce_store *store = NULL;
        bson_t *document = test_bson("{'_id': 1}");

        if (truce_store_open(path, NULL, &store, NULL))
            _exit(99);
        store = truce_fault_wrap(
            store, &(truce_fault_options){.kind = kind, .at = 1, .die = die, .arg = arg});
        _exit(truce_insert(store, "things", document, NULL, NULL) ? 98 : 97);
    }
    waitpid(child, &how, 0);
    return how;
}

static int64_t count_in(const char *path)
{
    truce_store *store = NULL;
    bson_error_t error;
    int64_t count = -1;

    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    if (store)
        CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    truce_store_close(store);
    return count;
}

TEST(a_process_crashes_before_or_after_the_effect)
{
    const char *directory = test_directory();
    char before[600], after[600];
    int code = 42, how;
    int64_t count;

    snprintf(before, sizeof(before), "%s/before.truce", directory);
    snprintf(after, sizeof(after), "%s/after.truce", directory);
    how = end_of_child(TRUCE_FAULT_DIE_BEFORE, before, NULL, NULL);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    count = count_in(before);
    CHECK_INT(count, ==, 0);
    how = end_of_child(TRUCE_FAULT_DIE_AFTER, after, leave, &code);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 42);
    count = count_in(after);
    CHECK_INT(count, ==, 1);
}

/* Does in small what a suite that looks for lost writes does. */
static bool finds_a_lost_write(struct contract *c)
{
    int64_t count = 0;

    for (int i = 0; i < 5; i++)
        CHECK_DONE(truce_insert(c->store, "things", J("{'x': 1}"), NULL, &c->error));
    CHECK_DONE(truce_count(c->store, "things", NULL, NULL, &count, &c->error));
    CHECK_DONE(
        truce_remove(c->store, "things", J("{}"), WRITE_OPTIONS(.multi = true), NULL, &c->error));
    return count < 5;
}

CONTRACT(a_lie_is_what_a_suite_must_catch)
{
    truce_write_result result;

    CHECK(!finds_a_lost_write(c));
    ARM(.kind = TRUCE_FAULT_LIE, .at = 3);
    CHECK(finds_a_lost_write(c));
    ARM(.kind = TRUCE_FAULT_LIE, .at = 1);
    CHECK_DONE(truce_update(c->store, "things", J("{}"), J("{'$set': {'a': 1}}"), NULL, &result,
                            &c->error));
    CHECK_INT(result.modified, ==, 1);
    CHECK_FINDS("things", "{}", NULL, "[]");
}
