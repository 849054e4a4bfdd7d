/* Long reads: their end, their pins, and the processes that see the pins. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "engine/storage/snapshot_pins.h"
#include "tests/support/cursor_use.h"
#include "tests/support/open_lock.h"
#include "tests/support/test.h"
#include "truce/doctor.h"
#include "truce/truce.h"

#define DOCUMENTS 2000

static truce_store *store;
static char path[400];

static void insert_to(truce_store *to, int id, int bytes)
{
    char *pad = bson_malloc0((size_t)bytes + 1);
    truce_write_options options = {.relaxed = true};
    bson_error_t error;
    bson_t *document;

    memset(pad, 'x', (size_t)bytes);
    document = BCON_NEW("_id", BCON_INT32(id), "pad", BCON_UTF8(pad));
    CHECK_OK(truce_insert(to, "c", document, &options, &error), error);
    bson_destroy(document);
    bson_free(pad);
}

static bool open_at_path(const truce_store_options *options)
{
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, options, &store, &error), error))
        return false;
    for (int i = 0; i < DOCUMENTS; i++)
        insert_to(store, i, 10);
    return !test_failures();
}

static bool open_with(const truce_store_options *options)
{
    snprintf(path, sizeof path, "%s/moments.truce", test_directory());
    return open_at_path(options);
}

/* A cursor that has given one document, and has to read on for the others. */
static truce_cursor *begin_read(truce_store *from)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;

    CHECK_OK(truce_find(from, "c", NULL, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    CHECK(document != NULL);
    return cursor;
}

/* How the rest of it ends, and after how many documents. */
static truce_status end_read(truce_cursor *cursor, int *seen)
{
    const bson_t *document;
    truce_status status;
    bson_error_t error;

    for (*seen = 1; !(status = truce_cursor_next(cursor, &document, &error)) && document;)
        ++*seen;
    if (status)
        CHECK(strstr(error.message, "snapshot"));
    truce_cursor_close(cursor);
    return status;
}

static bool reads(truce_store *view, truce_status expected)
{
    bson_error_t error = {0};
    int64_t count;

    return CHECK_STATUS(expected, truce_count(view, "c", NULL, NULL, &count, &error), error);
}

static truce_store *snapshot(const truce_snapshot_options *options)
{
    truce_store *view = NULL;
    bson_error_t error;

    CHECK_OK(truce_snapshot(store, options, &view, &error), error);
    return view;
}

/* ---- maxima --------------------------------------------------------------------------------- */

TEST(a_read_that_is_too_old_ends_once_something_was_written)
{
    const truce_store_options options = {.snapshot_age_ms = 1};
    truce_cursor *cursor, *quick;
    int seen;

    REQUIRE(open_with(&options));
    cursor = begin_read(store);
    truce__clock_sleep_ms(20);
    CHECK_INT(end_read(cursor, &seen), ==, TRUCE_OK); /* no write happened */
    CHECK_INT(seen, ==, DOCUMENTS);
    cursor = begin_read(store);
    quick = begin_read(store);
    insert_to(store, DOCUMENTS, 10);
    truce__clock_sleep_ms(20);
    CHECK_INT(end_read(cursor, &seen), ==, TRUCE_EXPIRED);
    CHECK_INT(seen, >, 1);
    CHECK_INT(seen, <, DOCUMENTS);
    truce_cursor_close(quick);
    reads(store, TRUCE_OK);
    truce_store_close(store);
}

TEST(a_read_ends_when_too_much_was_written_since)
{
    const truce_store_options options = {.snapshot_log_bytes = 400000};
    truce_cursor *cursor;
    int seen;

    REQUIRE(open_with(&options));
    cursor = begin_read(store);
    insert_to(store, DOCUMENTS, 100000);
    CHECK_INT(end_read(cursor, &seen), ==, TRUCE_OK);
    cursor = begin_read(store);
    for (int i = 1; i < 8; i++)
        insert_to(store, DOCUMENTS + i, 100000);
    CHECK_INT(end_read(cursor, &seen), ==, TRUCE_EXPIRED);
    truce_store_close(store);
}

TEST(gives_a_snapshot_its_own_limits_or_no_limits)
{
    const truce_store_options options = {.snapshot_age_ms = 1};
    const truce_snapshot_options patient = {.age_ms = 3600000},
                                 small = {.log_bytes = 100000, .age_ms = 3600000},
                                 unlimited = {.unlimited = true};
    truce_store *default_one, *patient_one, *small_one, *unlimited_one;

    REQUIRE(open_with(&options));
    default_one = snapshot(NULL);
    patient_one = snapshot(&patient);
    small_one = snapshot(&small);
    unlimited_one = snapshot(&unlimited);
    for (int i = 0; i < 4; i++)
        insert_to(store, DOCUMENTS + i, 100000);
    truce__clock_sleep_ms(20);
    reads(default_one, TRUCE_EXPIRED);
    reads(patient_one, TRUCE_OK);
    reads(small_one, TRUCE_EXPIRED);
    reads(unlimited_one, TRUCE_OK);
    truce_store_close(default_one);
    truce_store_close(patient_one);
    truce_store_close(small_one);
    truce_store_close(unlimited_one);
    truce_store_close(store);
}

TEST(ends_abandoned_snapshots_too)
{
    const truce_store_options options = {.snapshot_age_ms = 1};
    truce_snapshot_state state = {0};
    truce_store *view;
    bson_error_t error;

    REQUIRE(open_with(&options));
    view = snapshot(NULL);
    insert_to(store, DOCUMENTS, 10);
    for (int i = 0; i < 6000 && !state.ended; i++) {
        truce__clock_sleep_ms(10);
        CHECK_OK(truce_snapshot_inspect(view, &state, &error), error);
    }
    CHECK(state.ended);
    CHECK(state.log_bytes > 0);
    truce_store_close(view);
    truce_store_close(store);
}

/* A sequence of short reads, which together never let the log restart. */
TEST(ends_snapshots_that_keep_a_log_far_too_long)
{
    const truce_snapshot_options unlimited = {.unlimited = true};
    truce_store *view, *backup;
    bson_error_t error;
    struct lock lock;

    REQUIRE(open_with(NULL));
    REQUIRE(CHECK_OK(open_lock(path, &lock, &error), error));
    view = snapshot(NULL);
    backup = snapshot(&unlimited);
    insert_to(store, DOCUMENTS, 10);
    atomic_store(&lock.page->log_pages, 1u << 20); /* pretends that the log has 4 GB */
    /* because another snapshot keeps the log, too */
    reads(view, TRUCE_OK);
    truce_store_close(backup);
    atomic_store(&lock.page->log_pages, 1u << 20);
    reads(view, TRUCE_EXPIRED);
    truce_store_close(view);
    truce__lock_close(&lock);
    truce_store_close(store);
}

/* Begins a read that needs one cursor more than the maximum. */
static void refuses_read(void)
{
    truce_cursor *cursor;
    bson_error_t error = {0};

    CHECK_STATUS(TRUCE_LIMIT, truce_find(store, "c", NULL, NULL, &cursor, &error), error);
    CHECK(strstr(error.message, "read cursors to their end or close them"));
}

TEST(refuses_a_read_while_too_many_cursors_are_used)
{
    truce_cursor *cursors[TRUCE_CURSORS_LEAST];
    truce_store *view;
    int seen;

    cursor_use_least();
    REQUIRE(open_with(NULL));
    view = snapshot(NULL);
    for (int i = 0; i < TRUCE_CURSORS_LEAST; i++)
        cursors[i] = begin_read(store);
    cursor_use_set(store, -1, 3600);
    refuses_read();
    reads(view, TRUCE_OK);
    for (int i = 0; i < TRUCE_CURSORS_LEAST; i++) {
        CHECK_INT(end_read(cursors[i], &seen), ==, TRUCE_OK);
        CHECK_INT(seen, ==, DOCUMENTS);
    }
    reads(view, TRUCE_OK);
    truce_cursor_close(begin_read(store));
    truce_store_close(view);
    truce_store_close(store);
}

static int ends_told;

static void note_ends(truce_log_level level, const char *message, void *arg)
{
    ends_told += level == TRUCE_LOG_INFO && strstr(message, "ended a cursor");
}

TEST(ends_the_cursor_that_was_unused_for_the_longest)
{
    const truce_store_hooks hooks = {.log = note_ends};
    const truce_store_options options = {.hooks = &hooks};
    truce_cursor *cursors[TRUCE_CURSORS_LEAST + 2];
    truce_store *view;
    int seen;

    cursor_use_least();
    REQUIRE(open_with(&options));
    view = snapshot(NULL);
    for (int i = 0; i < TRUCE_CURSORS_LEAST; i++)
        cursors[i] = begin_read(store);
    cursor_use_set(store, -1, 3600);
    cursor_use_set(store, 3, -3600);
    cursor_use_set(store, 5, -3601);
    cursors[TRUCE_CURSORS_LEAST] = begin_read(store);
    cursors[TRUCE_CURSORS_LEAST + 1] = begin_read(store);
    cursor_use_set(store, -1, 3600);
    refuses_read();
    CHECK_INT(ends_told, ==, 1); /* one message for both */
    reads(view, TRUCE_OK);
    CHECK_INT(end_read(cursors[0], &seen), ==, TRUCE_OK);
    cursors[0] = begin_read(store); /* those that were ended do not count */
    for (int i = 0; i < TRUCE_CURSORS_LEAST + 2; i++)
        CHECK_INT(end_read(cursors[i], &seen), ==, i == 3 || i == 5 ? TRUCE_EXPIRED : TRUCE_OK);
    truce_store_close(view);
    truce_store_close(store);
}

TEST(never_ends_unlimited_snapshots)
{
    static truce_store *views[TRUCE_SNAPSHOTS_MAX + 1];
    const truce_snapshot_options unlimited = {.unlimited = true};
    bson_error_t error;

    REQUIRE(open_with(NULL));
    for (int i = 0; i < TRUCE_SNAPSHOTS_MAX; i++)
        views[i] = snapshot(&unlimited);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce_snapshot(store, &unlimited, &views[TRUCE_SNAPSHOTS_MAX], &error), error);
    CHECK(!views[TRUCE_SNAPSHOTS_MAX]);
    for (int i = 0; i < TRUCE_SNAPSHOTS_MAX; i++) {
        reads(views[i], TRUCE_OK);
        truce_store_close(views[i]);
    }
    truce_store_close(store);
}

/* ---- pinned and visible snapshots ------------------------------------------------------------ */

static size_t list_pins(struct pin_facts *pins, size_t room)
{
    struct lock lock;
    bson_error_t error;
    size_t count;

    if (!CHECK_OK(open_lock(path, &lock, &error), error))
        return 0;
    count = truce__pins_list(&lock, pins, room);
    truce__lock_close(&lock);
    return count;
}

TEST(shows_the_pins_of_a_process_to_all_until_it_ends)
{
    struct pin_facts pins[PIN_SLOTS];
    int ready[2], status;
    char byte;
    pid_t child;

    snprintf(path, sizeof path, "%s/moments.truce", test_directory());
    REQUIRE(!pipe(ready));
    child = fork();
    if (!child) {
        if (open_at_path(NULL)) {
            const truce_snapshot_options unlimited = {.unlimited = true};

            begin_read(store);
            snapshot(&unlimited);
            insert_to(store, DOCUMENTS, 100000);
            status = (int)write(ready[1], "x", 1);
        }
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK_INT(list_pins(pins, PIN_SLOTS), ==, 1);
    CHECK_INT(pins[0].process, ==, child);
    CHECK_INT(pins[0].count, ==, 2);
    CHECK_INT(pins[0].unlimited, ==, 1);
    CHECK_INT(pins[0].log_behind, >, 100000);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(list_pins(pins, PIN_SLOTS), ==, 0);
    close(ready[0]);
    close(ready[1]);
}

static int64_t log_bytes(void)
{
    char name[420];
    struct stat wal;

    snprintf(name, sizeof name, "%s-wal", path);
    return stat(name, &wal) ? -1 : wal.st_size;
}

/* Writes 110 MB, which is more than the size of a log that may restart. */
static void write_much(int round)
{
    for (int i = 0; i < 1100 && !test_failures(); i++)
        insert_to(store, 1000000 + round * 10000 + i, 100000);
}

static int growth_told;

static void note_growth(truce_log_level level, const char *message, void *arg)
{
    if (level == TRUCE_LOG_WARNING && strstr(message, "a cursor or a snapshot is open"))
        __atomic_add_fetch(&growth_told, 1, __ATOMIC_RELAXED);
}

TEST(keeps_the_log_until_the_snapshot_ends)
{
    const truce_store_hooks hooks = {.log = note_growth};
    const truce_store_options options = {.hooks = &hooks};
    truce_store *view;
    int64_t kept;

    REQUIRE(open_with(&options));
    view = snapshot(NULL);
    write_much(0);
    for (int i = 0; i < 6000 && !__atomic_load_n(&growth_told, __ATOMIC_RELAXED); i++)
        truce__clock_sleep_ms(10); /* another thread reports it later */
    CHECK(growth_told);
    kept = log_bytes();
    CHECK_INT(kept, >, 110000000);
    reads(view, TRUCE_OK);
    truce_store_close(view);
    for (int round = 1; round < 20 && log_bytes() > 0; round++) {
        struct pin_facts pins[PIN_SLOTS];

        CHECK_INT(list_pins(pins, PIN_SLOTS), ==, 0);
        write_much(round);
        if (log_bytes() <= kept) /* it restarted, and is overwritten */
            break;
        kept = log_bytes();
    }
    CHECK_INT(log_bytes(), <, 1000000000);
    truce_store_close(store);
}

/* ---- in use --------------------------------------------------------------------------------- */

TEST(connections_come_back_and_are_used_again)
{
    truce_cursor *cursors[20];
    int seen;

    REQUIRE(open_with(NULL));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 20; i++)
            cursors[i] = begin_read(store);
        insert_to(store, DOCUMENTS + round, 10);
        for (int i = 0; i < 20; i++) {
            CHECK_INT(end_read(cursors[i], &seen), ==, TRUCE_OK);
            CHECK_INT(seen, ==, DOCUMENTS + round);
        }
    }
    truce_store_close(store);
}

TEST(keeps_snapshots_in_a_read_only_store)
{
    const truce_store_options options = {.read_only = true};
    truce_store *reader = NULL;
    truce_cursor *cursor;
    bson_error_t error;
    int seen;

    REQUIRE(open_with(NULL));
    CHECK_OK(truce_store_open(path, &options, &reader, &error), error);
    cursor = begin_read(reader);
    insert_to(store, DOCUMENTS, 10);
    CHECK_INT(end_read(cursor, &seen), ==, TRUCE_OK);
    CHECK_INT(seen, ==, DOCUMENTS);
    truce_store_close(reader);
    truce_store_close(store);
}

/* A commit writes a report of a snapshot that was taken after the commit's read. */
TEST(a_guarded_report_is_refused_when_its_guard_has_changed)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 7};

    REQUIRE(open_with(NULL));
    for (int changed = 0; changed < 2; changed++) {
        bson_t *report = BCON_NEW("_id", BCON_INT32(changed)), guard;
        truce_commit *commit = NULL;
        truce_store *view;
        bson_error_t error;

        CHECK_OK(truce_commit_begin(store, NULL, &commit, &error), error);
        CHECK_OK(truce_commit_read(commit, "c", &id, &guard, &error), error);
        view = snapshot(NULL);
        if (changed) {
            bson_t *filter = BCON_NEW("_id", BCON_INT32(7));
            bson_t *update = BCON_NEW("$set", "{", "pad", "other", "}");

            CHECK_OK(truce_update(store, "c", filter, update, NULL, NULL, &error), error);
            bson_destroy(filter);
            bson_destroy(update);
        }
        reads(view, TRUCE_OK);
        truce_store_close(view);
        CHECK_OK(truce_commit_insert(commit, "reports", report, &error), error);
        CHECK_STATUS(changed ? TRUCE_CONFLICT : TRUCE_OK, truce_commit_apply(commit, &error),
                     error);
        truce_commit_free(commit);
        bson_destroy(&guard);
        bson_destroy(report);
    }
    truce_store_close(store);
}
