/*
 * Writes that another process executes (engine/cross_process_commit.c). The lock holder dies, stops, or
 * refuses at each of its steps, or the publisher does. The lock holder is a second store on the
 * file, whose steps the test takes by itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "engine/storage/file_identity.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/own_faults.h"
#include "tests/support/test.h"

#define DEADLINE_MS 20000

static char path[400];
static struct engine *own, *other; /* publishes; carries out */

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static struct lock_page *page(void)
{
    return own->lock.page;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* An update of one document, in a thread of its own; with `before`, one of document 2 before it. */
struct call {
    pthread_t thread;
    struct engine *engine; /* NULL: the own one */
    const char *filter, *update;
    uint32_t deadline_ms;
    bool multi, before;
    truce_status status;
    truce_write_outcome outcome;
    bson_error_t error;
    atomic_bool done;
};

static void *run_call(void *arg)
{
    struct call *call = arg;
    bson_t *filter = test_bson(call->filter ? call->filter : "{'_id': 1}");
    bson_t *update = test_bson(call->update ? call->update : "{'$inc': {'n': 1}}");
    bson_t *two = test_bson("{'_id': 2}"), *one = test_bson("{'$inc': {'n': 1}}");
    const truce_write writes[] = {
        {.kind = TRUCE_WRITE_UPDATE, .collection = "c", .filter = two, .document = one},
        {.kind = TRUCE_WRITE_UPDATE,
         .collection = "c",
         .filter = filter,
         .document = update,
         .options = {.multi = call->multi}}};
    const truce_bulk_options options = {.deadline_ms =
                                            call->deadline_ms ? call->deadline_ms : DEADLINE_MS};
    truce_write_outcome outcomes[2];

    call->status =
        truce__engine_bulk(call->engine ? call->engine : own, call->before ? writes : writes + 1,
                           call->before ? 2 : 1, &options, outcomes, &call->error);
    call->outcome = outcomes[call->before ? 1 : 0]; /* no upsert happens: it holds nothing */
    atomic_store(&call->done, true);
    bson_destroy(filter);
    bson_destroy(update);
    bson_destroy(two);
    bson_destroy(one);
    return NULL;
}

static void until_published(int count)
{
    while (__builtin_popcountll(atomic_load(&page()->published)) < count)
        truce__clock_sleep_ms(1);
}

static void start(struct call *call)
{
    int before = __builtin_popcountll(atomic_load(&page()->published));

    atomic_store(&call->done, false);
    pthread_create(&call->thread, NULL, run_call, call);
    until_published(before + 1);
}

static void end(struct call *call)
{
    pthread_join(call->thread, NULL);
}

static bool end_well(struct call *call)
{
    end(call);
    return CHECK_OK(call->status, call->error) && CHECK_INT(call->outcome.result.matched, ==, 1) &&
           CHECK_INT(call->outcome.result.modified, ==, 1);
}

static int64_t count(const char *json)
{
    bson_t *filter = test_bson(json);
    const truce_find_options options = {0};
    bson_error_t error;
    int64_t number = -1;

    CHECK_OK(truce__engine_count(own, "c", filter, &options, &number, &error), error);
    bson_destroy(filter);
    return number;
}

static void insert(int id, int n)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "n", BCON_INT32(n));
    const truce_write write = {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = document};
    const truce_bulk_options options = {.relaxed = true};
    truce_write_outcome outcome;
    bson_error_t error;

    CHECK_OK(truce__engine_bulk(own, &write, 1, &options, &outcome, &error), error);
    bson_destroy(document);
}

static bool open_engine(struct engine **engine)
{
    const truce_store_options options = {0};
    bson_error_t error;

    return CHECK_OK(truce__engine_open(path, &options, engine, &error), error);
}

static void choose_path(void)
{
    disk_reset();
    snprintf(path, sizeof path, "%s/s.db", test_directory());
    fflush(NULL);
}

static bool open_both(void)
{
    if (!open_engine(&own) || !open_engine(&other))
        return false;
    insert(1, 0);
    insert(2, 0);
    return true;
}

static bool begin(void)
{
    choose_path();
    return open_both();
}

static void close_both(void)
{
    truce__engine_close(other);
    truce__engine_close(own);
}

/* ---- the steps of the lock holder ------------------------------------------------------------ */

static struct combine *others(void)
{
    return &other->writer.combine;
}

static void take_lock(void)
{
    bson_error_t error;

    CHECK_OK(truce__lock_acquire(&other->lock, truce__clock_monotonic_ns() + INT64_C(20000000000),
                                 &error),
             error);
    truce__durable_begin(&other->durable);
    CHECK_OK(truce__log_identity_check_locked(&other->lock, other->kv, &error), error);
}

/* The dead process does no write that is not done by then. */
static void die(void)
{
    truce__lock_release(&other->lock);
}

static void take_and_run(void)
{
    struct writer *writer = &other->writer;
    bson_error_t error;
    bool relaxed = true;
    uint32_t version;

    CHECK_OK(truce__kv_write_begin(writer->kv, &version, &error), error);
    truce__cache_begin(writer->cache, true);
    truce__kv_accept(writer->kv);
    truce__combine_forget(others());
    CHECK_OK(truce__combine_run(others(), writer, &relaxed, &error), error);
    CHECK(others()->taken);
}

static void roll_back(void)
{
    truce__kv_write_rollback(other->writer.kv);
    truce__cache_end(other->writer.cache, false);
    truce__writer_catalog_changed(&other->writer);
}

static uint64_t commit(void)
{
    uint64_t promise = truce__durable_promise(&other->durable);
    bson_error_t error;

    CHECK_OK(truce__kv_write_commit(other->writer.kv, &error), error);
    truce__cache_end(other->writer.cache, false);
    truce__writer_catalog_changed(&other->writer);
    return promise;
}

static void answer(uint64_t promise)
{
    truce__durable_written(&other->durable);
    truce__combine_committed(others(), promise);
}

/* Runs all of a delegated batch, except that no waiting process is woken. */
static void delegated_out(struct call *call)
{
    take_lock();
    start(call);
    take_and_run();
    answer(commit());
    die();
}

/* ---- the lock holder dies -------------------------------------------------------------------- */

TEST(returns_a_write_to_its_process_if_the_lock_holder_died)
{
    struct call call = {0};

    REQUIRE(begin());
    take_lock();
    start(&call);
    die();
    CHECK(end_well(&call));
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    CHECK_INT(atomic_load(&page()->published), ==, 0);
    close_both();
}

TEST(executes_nothing_if_the_lock_holder_died_before_its_commit)
{
    REQUIRE(begin());
    for (int step = 0; step < 2; step++) {
        struct call call = {0};

        take_lock();
        start(&call);
        if (step) {
            take_and_run();
            roll_back();
        } else
            CHECK(truce__records_take(&others()->records));
        die();
        CHECK(end_well(&call));
        CHECK_INT(atomic_load(&page()->taken), ==, 0);
        CHECK_INT(count(step ? "{'_id': 1, 'n': 2}" : "{'_id': 1, 'n': 1}"), ==, 1);
    }
    CHECK_INT(atomic_load(&own->writer.combine.sent), ==, 0);
    close_both();
}

TEST(executes_a_write_once_if_the_lock_holder_died_after_commit)
{
    struct call call = {0};

    REQUIRE(begin());
    take_lock();
    start(&call);
    take_and_run();
    commit();
    die();
    CHECK(end_well(&call));
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    CHECK_INT(atomic_load(&own->writer.combine.sent), ==, 1);
    CHECK_INT(atomic_load(&page()->taken), ==, 0);
    close_both();
}

TEST(does_not_wait_for_a_lock_holder_that_died_before_its_wake)
{
    struct call call = {0};

    REQUIRE(begin());
    delegated_out(&call);
    CHECK(end_well(&call));
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    close_both();
}

/* Its proof would be lost with the next group that has one. */
TEST(completes_a_dead_processs_commits_before_other_writes)
{
    struct call first = {0}, second = {.filter = "{'_id': 2}"};
    struct engine *third;
    bson_error_t error;

    REQUIRE(begin() && open_engine(&third));
    second.engine = third;
    take_lock();
    start(&first);
    take_and_run();
    commit();
    start(&second);
    /* its next turn, as of a later process */
    truce__durable_begin(&other->durable);
    CHECK_INT(atomic_load(&page()->taken), !=, 0);
    truce__lock_release(&other->lock);
    {
        struct call own_call = {
            .engine = other, .filter = "{'_id': 2}", .update = "{'$inc': {'m': 1}}"};

        run_call(&own_call);
        CHECK_OK(own_call.status, own_call.error);
    }
    CHECK(end_well(&first));
    CHECK(end_well(&second));
    CHECK_OK(truce__engine_check(own, NULL, NULL, &error), error);
    CHECK_INT(count("{'n': 1}"), ==, 2);
    truce__engine_close(third);
    close_both();
}

/* ---- the lock holder executes the write ------------------------------------------------------ */

TEST(a_delegated_write_is_acknowledged_when_it_is_on_the_disk)
{
    struct call call = {0};

    REQUIRE(begin());
    disk_hold_syncs(true);
    delegated_out(&call);
    truce__records_wake(&others()->records, others()->taken);
    truce__clock_sleep_ms(50);
    CHECK(!atomic_load(&call.done));
    disk_hold_syncs(false);
    CHECK(end_well(&call));
    close_both();
}

/* ---- the lock holder returns the write ------------------------------------------------------- */

TEST(a_returned_write_is_executed_by_its_own_process)
{
    struct call call = {0};

    REQUIRE(begin());
    take_lock();
    start(&call);
    take_and_run();
    roll_back();
    truce__combine_failed(others());
    die();
    CHECK(end_well(&call));
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    CHECK_INT(own->writer.combine.pause, ==, 0);
    close_both();
}

TEST(executes_a_long_write_in_its_own_process)
{
    struct call call = {.filter = "{'n': {'$gte': 100}}", .multi = true};

    REQUIRE(begin());
    for (int i = 0; i < 5000; i++)
        insert(100 + i, 100);
    take_lock();
    start(&call);
    take_and_run();
    CHECK_INT(others()->refused, ==, others()->taken);
    answer(commit());
    die();
    end(&call);
    CHECK_OK(call.status, call.error);
    CHECK_INT(call.outcome.result.modified, ==, 5000);
    CHECK_INT(count("{'n': 101}"), ==, 5000);
    CHECK_INT(own->writer.combine.pause, >, 0);
    own->writer.combine.pause = 0;
    call = (struct call){0};
    delegated_out(&call); /* and no write of that one is left with the other */
    CHECK(end_well(&call));
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    close_both();
}

static void *find_and_change(void *arg)
{
    struct call *call = arg;
    bson_t *filter = test_bson(call->filter), *update = test_bson("{'$set': {'found': true}}");
    const truce_modify_options options = {.return_new = true};
    bson_t document;
    bson_iter_t iter;

    call->status = truce__engine_find_and_modify(own, "c", filter, update, &options, &document,
                                                 &call->outcome.result, &call->error);
    CHECK(call->status || bson_iter_init_find(&iter, &document, "found"));
    bson_destroy(&document);
    bson_destroy(filter);
    bson_destroy(update);
    return NULL;
}

TEST(a_find_and_modify_is_delegated_unless_it_may_take_long)
{
    static const char *const filters[] = {"{'_id': 2}", "{'n': 5099}", "{'n': -1}"};

    REQUIRE(begin());
    for (int i = 0; i < 5000; i++)
        insert(100 + i, 100 + i);
    for (int i = 0; i < 3; i++) {
        struct call call = {.filter = filters[i]};

        own->writer.combine.pause = 0;
        take_lock();
        pthread_create(&call.thread, NULL, find_and_change, &call);
        until_published(1);
        take_and_run();
        answer(commit());
        die();
        end(&call);
        if (i < 2)
            CHECK_OK(call.status, call.error);
        else
            CHECK_STATUS(TRUCE_NOT_FOUND, call.status, call.error);
        CHECK_INT(atomic_load(&own->writer.combine.sent), ==, 1);
    }
    CHECK_INT(count("{'found': true}"), ==, 2);
    close_both();
}

/* It has executed one half before it notices; this does not affect the other's own write. */
TEST(a_write_that_fails_in_a_batch_is_executed_alone)
{
    struct call call = {.filter = "{'n': {'$gte': 100}}", .multi = true, .before = true};
    int64_t tries = 0;

    REQUIRE(begin());
    for (int i = 0; i < 5000; i++)
        insert(100 + i, 100);
    for (; !others()->served; tries++) { /* or its own process was faster */
        struct call theirs = {.engine = other};

        own->writer.combine.pause = 0;
        take_lock();
        start(&call);
        die();
        run_call(&theirs);
        CHECK_OK(theirs.status, theirs.error);
        end(&call);
        CHECK_OK(call.status, call.error);
        CHECK_INT(call.outcome.result.modified, ==, 5000);
    }
    CHECK_INT(own->writer.combine.pause, >, 0);
    {
        char found[40];

        snprintf(found, sizeof found, "{'_id': {'$lt': 3}, 'n': %d}", (int)tries);
        CHECK_INT(count(found), ==, 2);
        snprintf(found, sizeof found, "{'n': %d}", 100 + (int)tries);
        CHECK_INT(count(found), ==, 5000);
    }
    close_both();
}

/* The transaction of both fails, and each is tried by itself. */
TEST(loses_nothing_of_two_processes_on_a_briefly_full_disk)
{
    int64_t done = 0;
    char found[40];

    REQUIRE(begin());
    for (bool served = false; !served;) { /* or its own process was faster */
        struct call call = {0}, theirs = {.engine = other};

        take_lock();
        start(&call);
        disk_fail(DISK_FULL, 1, false);
        die();
        run_call(&theirs);
        end(&call);
        done += !theirs.status + !call.status;
        served = others()->served;
        CHECK(!served || disk_faults());
    }
    CHECK_INT(done, >, 0);
    snprintf(found, sizeof found, "{'_id': 1, 'n': %d}", (int)done);
    CHECK_INT(count(found), ==, 1);
    close_both();
}

TEST(an_expired_write_is_withdrawn_and_never_executed)
{
    struct call call = {.deadline_ms = 100};
    char named[40];

    REQUIRE(begin());
    take_lock();
    start(&call);
    end(&call);
    CHECK_STATUS(TRUCE_LOCKED, call.status, call.error);
    snprintf(named, sizeof named, "process %d", (int)getpid());
    CHECK(strstr(call.error.message, named));
    CHECK_INT(truce__records_take(&others()->records), ==, 0);
    die();
    CHECK_INT(count("{'n': 0}"), ==, 2);
    close_both();
}

TEST(reports_unknown_for_a_write_taken_by_a_stopped_process)
{
    struct call call = {.deadline_ms = 100}, next = {.update = "{'$inc': {'m': 1}}"};

    REQUIRE(begin());
    take_lock();
    start(&call);
    take_and_run();
    end(&call);
    CHECK_STATUS(TRUCE_UNKNOWN, call.status, call.error);
    CHECK(strstr(call.error.message, "the outcome of the write is unknown"));
    pthread_create(&next.thread, NULL, run_call, &next); /* the record is taken: for the lock */
    truce__clock_sleep_ms(30);
    answer(commit());
    die();
    CHECK(end_well(&next));
    CHECK_INT(count("{'_id': 1, 'n': 1, 'm': 1}"), ==, 1);
    delegated_out(&next); /* and its outcome is in no other call's way */
    CHECK(end_well(&next));
    CHECK_INT(count("{'_id': 1, 'n': 1, 'm': 2}"), ==, 1);
    close_both();
}

/* Publishes a write that no process has taken yet; `name`: of the lock file that holds it. */
static void publish(struct call *call, char name[420])
{
    take_lock();
    start(call);
    snprintf(name, 420, "%s-lock", path);
}

TEST(reports_unknown_if_the_lock_file_is_cut_during_a_write)
{
    struct call call = {0};
    char name[420];

    REQUIRE(begin());
    publish(&call, name);
    CHECK(!truncate(name, LOCK_RECORDS_AT));
    end(&call);
    CHECK_STATUS(TRUCE_UNKNOWN, call.status, call.error);
    die();
    CHECK_INT(count("{'n': 0}"), ==, 2);
    close_both();
}

TEST(reports_a_lock_file_that_is_removed_while_a_write_is_published)
{
    int64_t began_ns = truce__clock_monotonic_ns();
    struct call call = {0};
    char name[420];

    REQUIRE(begin());
    publish(&call, name);
    CHECK(!unlink(name));
    die();
    end(&call);
    CHECK_STATUS(TRUCE_CORRUPT, call.status, call.error);
    CHECK_INT((truce__clock_monotonic_ns() - began_ns) / 1000000, <, DEADLINE_MS / 2);
    CHECK_INT(count("{'n': 0}"), ==, 2);
    close_both();
}

/* ---- the publisher --------------------------------------------------------------------------- */

/* Children that open the store: one has the lock when this returns, the other's write is published,
 * forever. */
static pid_t start_child(bool holds)
{
    int pipes[2];
    char byte = 0;
    pid_t child;

    truce_assert(!pipe(pipes));
    fflush(NULL);
    child = fork();
    if (!child) {
        struct call call = {.deadline_ms = 100000};

        if (!(holds ? open_both() : open_engine(&own)))
            _exit(1);
        if (holds)
            take_lock();
        if (write(pipes[1], &byte, 1) != 1)
            _exit(1);
        if (!holds)
            run_call(&call);
        for (;;)
            pause();
    }
    close(pipes[1]);
    CHECK_INT(read(pipes[0], &byte, 1), ==, 1);
    close(pipes[0]);
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TEST(the_write_of_a_dead_process_is_not_executed)
{
    struct call call = {.update = "{'$inc': {'m': 1}}"};
    pid_t holder, publisher;

    choose_path();
    holder = start_child(true);
    publisher = start_child(false);
    REQUIRE(open_engine(&own));
    until_published(1);
    end_child(publisher);
    CHECK_INT(__builtin_popcountll(atomic_load(&page()->published)), ==, 1);
    end_child(holder);
    run_call(&call);
    CHECK_OK(call.status, call.error);
    CHECK_INT(atomic_load(&own->writer.combine.delegated), ==, 0);
    CHECK_INT(atomic_load(&page()->published), ==, 0);
    CHECK_INT(count("{'_id': 1, 'n': 0, 'm': 1}"), ==, 1);
    truce__engine_close(own);
}

static int64_t lock_file_bytes(void)
{
    char name[420];
    struct stat found = {0};

    snprintf(name, sizeof name, "%s-lock", path);
    CHECK(!stat(name, &found));
    return found.st_size;
}

TEST(keeps_the_lock_file_long_until_one_process_is_alone)
{
    struct call call = {0};

    REQUIRE(begin());
    CHECK_INT(lock_file_bytes(), ==, sizeof(struct lock_page));
    take_lock();
    start(&call);
    die();
    CHECK(end_well(&call));
    CHECK_INT(lock_file_bytes(), ==, LOCK_FILE_BYTES);
    close_both();
    REQUIRE(open_engine(&own));
    CHECK_INT(lock_file_bytes(), ==, sizeof(struct lock_page));
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    truce__engine_close(own);
}

/* ---- invalid writes -------------------------------------------------------------------------- */

TEST(invalid_writes_are_returned_and_not_executed)
{
    struct records *records;
    struct random random;

    REQUIRE(begin());
    truce__random_seed(&random, 7);
    records = &own->writer.combine.records;
    for (int i = 0; i < 300; i++) {
        uint8_t bytes[400];
        size_t size = truce__random_below(&random, sizeof bytes);

        for (size_t j = 0; j < size; j++)
            bytes[j] = (uint8_t)truce__random_below(&random, j < 8 ? 40 : 256);
        take_lock();
        REQUIRE(truce__records_publish(records, (struct bytes){bytes, size}, false));
        take_and_run();
        answer(commit());
        die();
        CHECK_INT(truce__records_state(records), ==, RECORD_RETURNED);
        CHECK(truce__records_refused(records));
        truce__records_close(records);
    }
    CHECK_INT(count("{}"), ==, 2);
    close_both();
}

TEST(returns_a_write_with_invalid_bytes_after_it_unexecuted)
{
    struct records *records;
    struct call call = {0};
    uint8_t bytes[RECORD_REQUEST_MAX] = {0};
    size_t size;

    REQUIRE(begin());
    records = &own->writer.combine.records;
    take_lock();
    start(&call);
    size = own->writer.combine.bytes.size;
    memcpy(bytes, own->writer.combine.bytes.bytes, size);
    take_and_run();
    answer(commit());
    CHECK(end_well(&call));
    REQUIRE(truce__records_publish(records, (struct bytes){bytes, size + 4}, false));
    take_and_run();
    answer(commit());
    die();
    CHECK_INT(truce__records_state(records), ==, RECORD_RETURNED);
    truce__records_close(records);
    CHECK_INT(count("{'_id': 1, 'n': 1}"), ==, 1);
    close_both();
}
