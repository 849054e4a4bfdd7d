/*
 * No result is reported before it is on the disk: the disk is held in the middle of a sync, and
 * writers and readers are observed in the meantime. Further tests cover processes that die in
 * between, and a disk that refuses.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/documents/open_documents.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/open_lock.h"
#include "tests/support/test.h"
#include "tests/support/tutorial.h"
#include "truce/set.h"

#define A_WHILE_MS 30 /* the time in which a call that does not wait would have returned */

static char path[400];
static struct engine *engine;

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static int errors_logged, warnings_logged;

static void count_messages(truce_log_level level, const char *message, void *arg)
{
    CHECK(strstr(message, path));
    __atomic_add_fetch(level == TRUCE_LOG_ERROR ? &errors_logged : &warnings_logged, 1,
                       __ATOMIC_RELAXED);
}

static truce_status open_store(bool relaxed, struct engine **opened, bson_error_t *error)
{
    const truce_store_hooks hooks = {.log = count_messages};
    truce_store_options options = {.relaxed = relaxed, .hooks = &hooks};

    return truce__engine_open(path, &options, opened, error);
}

static bool begin_again(struct engine **opened)
{
    bson_error_t error;

    return CHECK_OK(open_store(false, opened, &error), error);
}

/* ---- calls, in threads of their own ---------------------------------------------------------- */

struct call {
    pthread_t thread;
    const char *filter, *update; /* update NULL: a find; empty: a remove */
    bool early, relaxed;
    uint32_t deadline_ms;  /* of a write; 0: the usual one */
    struct engine *engine; /* NULL: the one */
    truce_status status;
    bson_error_t error;
    int64_t n; /* the found value; -1: nothing */
    atomic_bool done;
};

static int64_t number_of(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "n") ? bson_iter_as_int64(&iter) : -1;
}

static void do_find(struct call *call, const bson_t *filter)
{
    const truce_find_options options = {.early = call->early};
    const bson_t *found = NULL;
    truce_cursor *cursor;

    call->n = -1;
    call->status = truce__engine_find(call->engine ? call->engine : engine, "c", filter, &options,
                                      &cursor, &call->error);
    if (call->status)
        return;
    call->status = truce_cursor_next(cursor, &found, &call->error);
    if (found)
        call->n = number_of(found);
    truce_cursor_close(cursor);
}

static void do_update(struct call *call, const bson_t *filter)
{
    bson_t *update = test_bson(call->update[0] ? call->update : "{}");
    truce_write write = {.kind = call->update[0] ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_REMOVE,
                         .collection = "c",
                         .filter = filter,
                         .document = update,
                         .options = {.upsert = call->update[0]}};
    const truce_bulk_options options = {.relaxed = call->relaxed, .deadline_ms = call->deadline_ms};
    truce_write_outcome outcome = {0};

    call->status = truce__engine_bulk(call->engine ? call->engine : engine, &write, 1, &options,
                                      &outcome, &call->error);
    truce_write_result_release(&outcome.result);
    bson_destroy(update);
}

static void *run_call(void *arg)
{
    struct call *call = arg;
    bson_t *filter = test_bson(call->filter);

    if (call->update)
        do_update(call, filter);
    else
        do_find(call, filter);
    bson_destroy(filter);
    atomic_store(&call->done, true);
    return NULL;
}

static void start(struct call *call)
{
    atomic_store(&call->done, false);
    pthread_create(&call->thread, NULL, run_call, call);
}

static void end(struct call *call)
{
    pthread_join(call->thread, NULL);
}

static truce_status do_now(struct call *call)
{
    run_call(call);
    return call->status;
}

static void set_n(int id, int n)
{
    char filter[40], update[60];
    struct call call = {.filter = filter, .update = update};

    snprintf(filter, sizeof filter, "{'_id': %d}", id);
    snprintf(update, sizeof update, "{'$set': {'n': %d}}", n);
    CHECK_OK(do_now(&call), call.error);
}

static void until_held(int syncs)
{
    while (disk_held_syncs() < syncs)
        truce__clock_sleep_ms(1);
}

static void until_written(uint64_t number)
{
    while (atomic_load(&engine->lock.page->written) < number)
        truce__clock_sleep_ms(1);
}

static bool begin(bool relaxed)
{
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    disk_reset();
    return CHECK_OK(open_store(relaxed, &engine, &error), error);
}

/* ---- waiting --------------------------------------------------------------------------------- */

TEST(the_next_commit_is_written_while_the_one_before_it_is_synced)
{
    struct call first = {.filter = "{'_id': 1}", .update = "{'$set': {'n': 1}}"};
    struct call second = {.filter = "{'_id': 2}", .update = "{'$set': {'n': 1}}"};
    uint64_t before;

    REQUIRE(begin(false));
    set_n(3, 0);
    before = atomic_load(&engine->lock.page->written);
    disk_hold_syncs(true);
    start(&first);
    until_held(1);
    start(&second);
    until_written(before + 2);
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&first.done) && !atomic_load(&second.done));
    CHECK_INT(atomic_load(&engine->lock.page->durable), ==, before);
    disk_hold_syncs(false);
    end(&first);
    end(&second);
    CHECK_OK(first.status, first.error);
    CHECK_OK(second.status, second.error);
    CHECK_INT(atomic_load(&engine->lock.page->durable), ==, before + 2);
    truce__engine_close(engine);
}

static int64_t now_ms(void)
{
    return truce__clock_monotonic_ns() / 1000000;
}

/* Without a wake-up each would sleep for a tenth of a second from its beginning on. */
TEST(a_waiter_for_the_sync_of_another_is_woken_when_it_ends)
{
    struct call first = {.filter = "{'_id': 1}", .update = "{'$inc': {'n': 1}}"};
    struct call second = {.filter = "{'_id': 2}", .update = "{'$inc': {'n': 1}}"};
    int64_t late_ms = 0;

    REQUIRE(begin(false));
    set_n(3, 0);
    for (int i = 0; i < 8; i++) {
        uint64_t before = atomic_load(&engine->lock.page->written);

        disk_hold_syncs(true);
        start(&first);
        until_held(1);
        start(&second);
        until_written(before + 2);
        truce__clock_sleep_ms(A_WHILE_MS);
        late_ms -= now_ms();
        disk_hold_syncs(false);
        end(&first);
        end(&second);
        late_ms += now_ms();
    }
    CHECK_INT(late_ms, <, 8 * 45);
    truce__engine_close(engine);
}

/* Checks that a find with that filter is not answered before the write that it would show is on
 * the disk. A find of a document that has not changed, or does not exist, is answered at once. */
static void finds_wait(struct call write, const char *filter, int64_t wanted)
{
    struct call other = {.filter = "{'_id': 2}"}, none = {.filter = "{'_id': 3}"};
    struct call find = {.filter = filter};

    REQUIRE(begin(false));
    set_n(1, 1);
    set_n(2, 1);
    disk_hold_syncs(true);
    start(&write);
    until_held(1);
    for (int i = 0; i < 2; i++) { /* from the file, from the cache */
        CHECK_OK(do_now(&other), other.error);
        CHECK_INT(other.n, ==, 1);
    }
    CHECK_OK(do_now(&none), none.error);
    CHECK_INT(none.n, ==, -1);
    start(&find);
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&find.done));
    disk_hold_syncs(false);
    end(&write);
    end(&find);
    CHECK_OK(write.status, write.error);
    CHECK_OK(find.status, find.error);
    CHECK_INT(find.n, ==, wanted);
    truce__engine_close(engine);
}

static const struct call update = {.filter = "{'_id': 1}", .update = "{'$set': {'n': 2}}"};
static const struct call insert = {.filter = "{'_id': 5}", .update = "{'$set': {'n': 5}}"};
static const struct call removal = {.filter = "{'_id': 1}", .update = ""};

TEST(a_read_by_id_waits_until_its_document_is_on_the_disk)
{
    finds_wait(update, "{'_id': 1}", 2);
}

TEST(a_read_by_id_waits_until_the_insert_is_on_the_disk)
{
    finds_wait(insert, "{'_id': 5}", 5);
}

TEST(a_read_by_id_reports_a_removal_when_it_is_on_the_disk)
{
    finds_wait(removal, "{'_id': 1}", -1);
}

TEST(a_read_by_a_filter_waits_until_its_documents_are_on_the_disk)
{
    finds_wait(update, "{'n': 2}", 2);
}

TEST(reports_a_removal_only_when_it_is_on_the_disk)
{
    finds_wait(update, "{'n': 1, '_id': {'$lt': 2}}", -1);
}

/* `then_write`: this process writes after the other one, and so has read its write. */
static void finds_wait_for_another_process(bool then_write)
{
    struct call theirs = update, own = insert, find = {.filter = "{'_id': 1}"};
    struct call other = {.filter = "{'_id': 2}"};
    bson_error_t error;

    REQUIRE(begin(false));
    REQUIRE(CHECK_OK(open_store(false, &theirs.engine, &error), error));
    set_n(1, 1);
    set_n(2, 1);
    disk_hold_syncs(true);
    start(&theirs);
    until_held(1);
    if (then_write) {
        start(&own);
        until_held(2);
    }
    start(&find);
    CHECK_OK(do_now(&other), other.error); /* which no call has changed */
    CHECK_INT(other.n, ==, 1);
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&find.done));
    disk_hold_syncs(false);
    end(&theirs);
    end(&find);
    if (then_write)
        end(&own);
    CHECK_OK(find.status, find.error);
    CHECK_INT(find.n, ==, 2);
    truce__engine_close(theirs.engine);
    truce__engine_close(engine);
}

TEST(a_read_by_id_waits_for_the_write_of_another_process)
{
    finds_wait_for_another_process(false);
}

TEST(a_read_by_id_waits_for_an_earlier_write_of_another_process)
{
    finds_wait_for_another_process(true);
}

TEST(a_write_that_found_nothing_waits_for_the_removal)
{
    struct call write = {.filter = "{'_id': 1}", .update = "{'$set': {'n': 2}}"};
    struct call same = write;

    REQUIRE(begin(false));
    set_n(1, 1);
    disk_hold_syncs(true);
    start(&write);
    until_held(1);
    start(&same); /* it has nothing to change */
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&same.done));
    disk_hold_syncs(false);
    end(&write);
    end(&same);
    CHECK_OK(same.status, same.error);
    truce__engine_close(engine);
}

TEST(no_call_waits_for_a_relaxed_commit)
{
    struct call write = {.filter = "{'_id': 1}", .update = "{'$set': {'n': 2}}"};
    struct call by_id = {.filter = "{'_id': 1}"}, by_filter = {.filter = "{'n': 2}"};

    REQUIRE(begin(true));
    set_n(1, 1);
    disk_hold_syncs(true);
    CHECK_OK(do_now(&write), write.error);
    CHECK_OK(do_now(&by_id), by_id.error);
    CHECK_OK(do_now(&by_filter), by_filter.error);
    CHECK_INT(by_id.n, ==, 2);
    CHECK_INT(by_filter.n, ==, 2);
    disk_hold_syncs(false);
    truce__engine_close(engine);
}

static void *settle_all(void *arg)
{
    struct call *call = arg;

    call->status = truce__engine_settle(engine, &call->error);
    atomic_store(&call->done, true);
    return NULL;
}

TEST(an_early_find_does_not_wait_and_settle_does)
{
    struct call write = {.filter = "{'_id': 5}", .update = "{'$set': {'n': 2}}"};
    struct call by_id = {.filter = "{'_id': 5}", .early = true};
    struct call by_filter = {.filter = "{'n': 2}", .early = true};
    struct call again = {.filter = "{'_id': 5}"}, settle = {0};

    REQUIRE(begin(false));
    set_n(1, 1);
    disk_hold_syncs(true);
    start(&write);
    until_held(1);
    CHECK_OK(do_now(&by_id), by_id.error);
    CHECK_OK(do_now(&by_filter), by_filter.error);
    CHECK_INT(by_id.n, ==, 2);
    CHECK_INT(by_filter.n, ==, 2);
    start(&again); /* a result that was found early is no answer to others */
    pthread_create(&settle.thread, NULL, settle_all, &settle);
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&again.done));
    CHECK(!atomic_load(&settle.done));
    disk_hold_syncs(false);
    end(&write);
    end(&again);
    end(&settle);
    CHECK_OK(settle.status, settle.error);
    truce__engine_close(engine);
}

static void *find_validator(void *arg)
{
    struct call *call = arg;
    bson_t validator;

    call->status = truce__engine_validator(engine, "c", &validator, &call->error);
    call->n = (int)bson_count_keys(&validator);
    bson_destroy(&validator);
    atomic_store(&call->done, true);
    return NULL;
}

TEST(a_validator_is_durable_and_its_absence_need_not_be)
{
    struct call write = {.filter = "{'_id': 5}", .update = "{'$set': {'n': 2}}"}, look = {0};
    bson_t *rules = test_bson("{'n': {'$gt': 0}}");
    const struct collection_options options = {.validator = rules};
    bson_error_t error;

    REQUIRE(begin(false));
    set_n(1, 1);
    disk_hold_syncs(true);
    start(&write);
    until_held(1);
    find_validator(&look);
    CHECK_OK(look.status, look.error);
    CHECK_INT(look.n, ==, 0);
    disk_hold_syncs(false);
    end(&write);
    CHECK_OK(truce__engine_collection_modify(engine, "c", &options, &error), error);
    write.update = "{'$set': {'n': 3}}";
    disk_hold_syncs(true);
    start(&write);
    until_held(1);
    atomic_store(&look.done, false);
    pthread_create(&look.thread, NULL, find_validator, &look);
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&look.done));
    disk_hold_syncs(false);
    end(&write);
    end(&look);
    CHECK_OK(look.status, look.error);
    CHECK_INT(look.n, ==, 1);
    bson_destroy(rules);
    truce__engine_close(engine);
}

/* ---- ordered sets, which read early ---------------------------------------------------------- */

struct set_run {
    pthread_t thread;
    truce_set *set;
    int64_t seq;
    truce_set_result results[2];
    truce_status status;
    bson_error_t error;
    atomic_bool done;
};

static void *apply_two(void *arg)
{
    struct set_run *apply = arg;
    bson_t *key = test_bson("{'student_id': 1}");
    bson_t *names[] = {test_bson("{'name': 'a'}"), test_bson("{'name': 'b'}")};
    truce_set_operation operations[] = {{TRUCE_SET_ADD, key, names[0], apply->seq, NULL},
                                        {TRUCE_SET_ADD, key, names[1], apply->seq, NULL}};

    apply->status = truce_set_apply(apply->set, NULL, operations, 2, apply->results, &apply->error);
    atomic_store(&apply->done, true);
    bson_destroy(names[0]);
    bson_destroy(names[1]);
    bson_destroy(key);
    return NULL;
}

/* Two handles apply the same operations: the second finds them applied, and reports this when
 * they are on the disk. */
static void repeats_wait(truce_set_layout layout, truce_set_form form)
{
    const truce_set_options options = {.layout = layout, .form = form};
    struct set_run first = {.seq = 1}, second = {.seq = 2};
    truce_store *store;
    bson_error_t error;

    REQUIRE(begin(false));
    truce__engine_close(engine);
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    first.set = tutorial_set(store, &options);
    second.set = tutorial_set(store, &options);
    apply_two(&first);
    CHECK_OK(first.status, first.error);
    first.seq = second.seq;
    second.seq = 1;
    apply_two(&second);
    CHECK_OK(second.status, second.error);
    second.seq = 2;
    atomic_store(&first.done, false);
    atomic_store(&second.done, false);
    disk_hold_syncs(true);
    pthread_create(&first.thread, NULL, apply_two, &first);
    until_held(1);
    pthread_create(&second.thread, NULL, apply_two, &second);
    truce__clock_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&first.done));
    CHECK(!atomic_load(&second.done));
    disk_hold_syncs(false);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    CHECK_OK(first.status, first.error);
    CHECK_OK(second.status, second.error);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(first.results[i].outcome, ==, TRUCE_SET_APPLIED);
        CHECK_INT(second.results[i].outcome, ==, TRUCE_SET_DUPLICATE);
    }
    truce_set_free(first.set);
    truce_set_free(second.set);
    truce_store_close(store);
}

TEST(a_set_reports_no_duplicate_before_it_is_on_the_disk)
{
    repeats_wait(TRUCE_SET_IN_DOCUMENT, TRUCE_SET_FORM_AUTO);
}

TEST(reports_a_set_duplicate_only_once_it_is_durable)
{
    repeats_wait(TRUCE_SET_IN_DOCUMENT, TRUCE_SET_FORM_PIPELINE);
}

TEST(reports_a_duplicate_by_element_only_once_it_is_durable)
{
    repeats_wait(TRUCE_SET_BY_ELEMENT, TRUCE_SET_FORM_AUTO);
}

/* ---- processes that died --------------------------------------------------------------------- */

TEST(a_reader_completes_the_commit_of_a_dead_writer)
{
    struct call find = {.filter = "{'n': 1}"};

    REQUIRE(begin(false));
    set_n(1, 1);
    atomic_fetch_add(&engine->lock.page->promised, 1);
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(find.n, ==, 1);
    CHECK_INT(atomic_load(&engine->lock.page->durable), ==,
              atomic_load(&engine->lock.page->promised));
    truce__engine_close(engine);
}

TEST(syncs_in_a_reader_the_write_of_a_dead_writer)
{
    struct call find = {.filter = "{'n': 1}"};
    int64_t calls;

    REQUIRE(begin(false));
    set_n(1, 1);
    atomic_fetch_add(&engine->lock.page->promised, 1);
    atomic_fetch_add(&engine->lock.page->written, 1);
    calls = disk_calls();
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(disk_calls(), ==, calls + 1);
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(disk_calls(), ==, calls + 1);
    truce__engine_close(engine);
}

TEST(avoids_deadlock_of_readers_with_waiters_for_a_dead_writer)
{
    struct call find = {.filter = "{'n': 1}"};

    REQUIRE(begin(false));
    set_n(1, 1);
    for (int i = 0; i < 20; i++) {
        atomic_fetch_add(&engine->lock.page->promised, 1);
        start(&find);
        /* a checkpoint closes the gate to readers, under the lock */
        truce__checkpointer_note(&engine->checkpointer, 1000000);
        end(&find);
        CHECK_OK(find.status, find.error);
    }
    truce__engine_close(engine);
}

TEST(a_number_that_counts_as_durable_is_not_given_again)
{
    struct call write = {.filter = "{'_id': 1}", .update = "{'$inc': {'n': 1}}"};
    uint64_t left[] = {1000, UINT64_MAX};

    REQUIRE(begin(false));
    set_n(1, 1);
    for (int i = 0; i < 2; i++) {
        atomic_store(&engine->lock.page->durable, left[i]);
        disk_hold_syncs(true);
        start(&write);
        until_held(1);
        disk_hold_syncs(false);
        end(&write);
        CHECK_OK(write.status, write.error);
        CHECK_INT(atomic_load(&engine->lock.page->durable), ==,
                  atomic_load(&engine->lock.page->promised));
    }
    truce__engine_close(engine);
}

/* Another process takes the lock, and is stopped in its commit, which may be in the log. */
static bool stop_in_commit(struct lock *other)
{
    int64_t deadline_ns = truce__clock_monotonic_ns() + INT64_C(60000000000);
    bson_error_t error;

    if (!CHECK_OK(open_lock(path, other, &error), error))
        return false;
    if (!CHECK_OK(truce__lock_acquire(other, deadline_ns, &error), error))
        return false;
    atomic_store(&other->page->promises.all, atomic_fetch_add(&other->page->promised, 1) + 1);
    return true;
}

static void go_on(struct lock *other)
{
    truce__lock_release(other);
    truce__lock_close(other);
}

TEST(a_promised_commit_does_not_count_before_it_is_written)
{
    struct call find = {.filter = "{'n': 1}"};
    struct lock other;

    REQUIRE(begin(false));
    set_n(1, 1);
    REQUIRE(stop_in_commit(&other));
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(atomic_load(&other.page->durable), ==, atomic_load(&other.page->written));
    CHECK_INT(atomic_load(&other.page->durable), <, atomic_load(&other.page->promised));
    go_on(&other);
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(atomic_load(&engine->lock.page->durable), ==,
              atomic_load(&engine->lock.page->promised));
    truce__engine_close(engine);
}

/* The reader may show the commit of the stopped writer: a sync of its own confirms that it is on
 * the disk. */
TEST(does_not_wait_in_reads_for_a_writer_stopped_in_its_commit)
{
    struct call finds[] = {{.filter = "{'n': 1}"}, {.filter = "{'_id': 1}"}, {.filter = "{}"}};
    struct lock other;
    int64_t calls;

    REQUIRE(begin(false));
    set_n(1, 1);
    truce__engine_close(engine);
    REQUIRE(begin_again(&engine)); /* no document is cached */
    REQUIRE(stop_in_commit(&other));
    for (int i = 0; i < 3; i++) {
        calls = disk_calls();
        CHECK_OK(do_now(&finds[i]), finds[i].error);
        CHECK_INT(finds[i].n, ==, 1);
        CHECK_INT(disk_calls(), ==, calls + 1);
    }
    go_on(&other);
    truce__engine_close(engine);
}

TEST(a_store_opens_while_a_writer_is_stopped_in_its_commit)
{
    struct call find = {.filter = "{'n': 1}"};
    struct lock other;

    REQUIRE(begin(false));
    set_n(1, 1);
    REQUIRE(stop_in_commit(&other));
    REQUIRE(begin_again(&find.engine));
    CHECK_OK(do_now(&find), find.error);
    go_on(&other);
    truce__engine_close(find.engine);
    truce__engine_close(engine);
}

/* The first caller in the queue waits for the lock, the second for the first, each until its own
 * deadline. */
TEST(ends_a_write_at_its_deadline_and_names_the_lock_holder)
{
    struct call writes[] = {
        {.filter = "{'_id': 1}", .update = "{'$set': {'n': 1}}", .deadline_ms = 300},
        {.filter = "{'_id': 2}", .update = "{'$set': {'n': 1}}", .deadline_ms = 200}};
    char name[40];
    struct lock other;

    REQUIRE(begin(false));
    REQUIRE(stop_in_commit(&other));
    snprintf(name, sizeof name, "process %d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        start(&writes[i]);
        truce__clock_sleep_ms(A_WHILE_MS);
    }
    for (int i = 0; i < 2; i++) {
        end(&writes[i]);
        CHECK_STATUS(TRUCE_LOCKED, writes[i].status, writes[i].error);
        CHECK(strstr(writes[i].error.message, name));
    }
    go_on(&other);
    CHECK_OK(do_now(&writes[0]), writes[0].error);
    truce__engine_close(engine);
}

static void until_queued(int count)
{
    for (int seen = 0; seen < count; truce__clock_sleep_ms(1)) {
        pthread_mutex_lock(&engine->writer.mutex);
        seen = 0;
        for (const struct write_op *op = engine->writer.first; op; op = op->next)
            seen++;
        pthread_mutex_unlock(&engine->writer.mutex);
    }
}

/* Both are one group, for the lock is held until both have come. */
TEST(a_relaxed_write_waits_for_no_disk_next_to_a_durable_one)
{
    struct call durable = {.filter = "{'_id': 1}", .update = "{'$set': {'n': 2}}"};
    struct call relaxed = {.filter = "{'_id': 2}", .update = "{'$set': {'n': 2}}", .relaxed = true};
    int64_t until_ns = truce__clock_monotonic_ns() + INT64_C(20000000000);
    struct lock other;

    REQUIRE(begin(false));
    engine->writer.combine.kinds = NULL; /* published writes are in no queue */
    REQUIRE(stop_in_commit(&other));
    disk_hold_syncs(true);
    start(&durable);
    until_queued(1);
    start(&relaxed);
    until_queued(2);
    go_on(&other);
    while (!atomic_load(&relaxed.done) && truce__clock_monotonic_ns() < until_ns)
        truce__clock_sleep_ms(1);
    CHECK(atomic_load(&relaxed.done));
    CHECK(!atomic_load(&durable.done));
    disk_hold_syncs(false);
    end(&durable);
    end(&relaxed);
    CHECK_OK(durable.status, durable.error);
    CHECK_OK(relaxed.status, relaxed.error);
    truce__engine_close(engine);
}

/* ---- a disk that fails ----------------------------------------------------------------------- */

static void nothing_goes(void)
{
    struct call calls[] = {{.filter = "{'_id': 1}"},
                           {.filter = "{'n': 1}"},
                           {.filter = "{'_id': 2}", .update = "{'$set': {'n': 1}}"}};

    for (size_t i = 1; i < 3; i++) {
        CHECK_STATUS(TRUCE_IO, do_now(&calls[i]), calls[i].error);
        CHECK(strstr(calls[i].error.message, "open the store again"));
    }
    (void)do_now(&calls[0]); /* in the cache, and durable, or not */
    CHECK(calls[0].status || calls[0].n == 1);
}

/* Zeros follow the written bytes. */
static void spoil_end_of_log(void)
{
    char log[420];
    uint8_t byte = 0;
    off_t at;
    int file;

    snprintf(log, sizeof log, "%s-wal", path);
    file = open(log, O_RDWR);
    at = lseek(file, 0, SEEK_END);
    while (at > 0 && !byte && pread(file, &byte, 1, --at) == 1)
        continue;
    byte ^= 1;
    CHECK(byte != 1 && pwrite(file, &byte, 1, at) == 1);
    close(file);
}

/* The update of document 1 fails at its sync. Afterwards it counts, or, if the log is not what was
 * written, it does not. */
static void fail_a_sync(bool spoil)
{
    struct call write = {.filter = "{'_id': 1}", .update = "{'$set': {'n': 2}}"};
    struct call find = {.filter = "{'_id': 1}"};
    struct engine *other, *third;
    bson_error_t error;

    errors_logged = warnings_logged = 0;
    REQUIRE(begin(false));
    set_n(1, 1);
    REQUIRE(CHECK_OK(open_store(false, &other, &error), error));
    disk_fail(DISK_SYNC_FAILS, 1, false);
    CHECK_STATUS(TRUCE_IO, do_now(&write), write.error);
    CHECK_INT(errors_logged, ==, 1); /* once, although two processes have it open */
    nothing_goes();
    CHECK_STATUS(TRUCE_IO, open_store(false, &third, &error), error);
    truce__engine_close(engine);
    engine = other;
    nothing_goes();
    truce__engine_close(other);
    if (spoil)
        spoil_end_of_log();
    REQUIRE(CHECK_OK(open_store(false, &engine, &error), error));
    CHECK_INT(errors_logged, ==, 1);
    CHECK_INT(warnings_logged, ==, 1); /* the log was written again */
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(find.n, ==, spoil ? 1 : 2);
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    set_n(1, 3);
    CHECK_OK(do_now(&find), find.error);
    CHECK_INT(find.n, ==, 3);
    truce__engine_close(engine);
}

TEST(refuses_every_call_after_a_failed_sync_until_reopened)
{
    fail_a_sync(false);
}

TEST(does_not_trust_data_that_a_failed_sync_lost)
{
    fail_a_sync(true);
}
