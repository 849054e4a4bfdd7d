/*
 * Power cuts of a store that is archived. The archive is in a directory that loses nothing: a
 * segment is synced before it counts. It must have no commit that the store has lost, and the next
 * archiver must continue or begin a generation, whatever the disk has kept.
 *
 * TRUCE_POWER_CUTS: how many cuts.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/random.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"

static struct {
    char path[300];
    uint8_t id[SEGMENT_STORE_BYTES];
    truce_store *store;
    struct target *target;
    atomic_int stop;
    int inserted;
} life;

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static truce_status insert_thing(truce_store *store, int id, bool relaxed, bson_error_t *error)
{
    const truce_write_options options = {.relaxed = relaxed};
    bson_t document = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_INT32(&document, "_id", id);
    BSON_APPEND_UTF8(&document, "pad", "0123456789012345678901234567890123456789");
    status = truce_insert(store, "things", &document, &options, error);
    bson_destroy(&document);
    return status;
}

static void *write_until_cut(void *arg)
{
    bson_error_t error;

    while (!disk_is_cut() &&
           !insert_thing(life.store, life.inserted + 1, life.inserted % 3 != 0, &error))
        life.inserted++;
    return arg;
}

static truce_status archive_now(const char *path, bool once, bson_error_t *error)
{
    const struct archive_options options = {
        .interval_ms = 1, .log_limit = 1 << 30, .once = once, .stop = &life.stop};

    return truce__archive_run(path, life.id, life.target, &options, error);
}

/* Archives until the disk fails. */
static void *archive_until_cut(void *arg)
{
    bson_error_t error;

    (void)archive_now(life.path, false, &error);
    return arg;
}

/* Returns how many things the file has, which must be the first ones. */
static int64_t count_things(const char *path)
{
    const truce_store_options options = {.must_exist = true};
    bson_t all = BSON_INITIALIZER, beyond;
    int64_t count = -1, wrong = -1;
    truce_store *store;
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, &options, &store, &error), error))
        return -1;
    CHECK_OK(truce_count(store, "things", &all, NULL, &count, &error), error);
    bson_init(&beyond);
    BCON_APPEND(&beyond, "_id", "{", "$gt", BCON_INT32((int32_t)count), "}");
    CHECK_OK(truce_count(store, "things", &beyond, NULL, &wrong, &error), error);
    CHECK_INT(wrong, ==, 0);
    bson_destroy(&beyond);
    truce_store_close(store);
    return count;
}

static int64_t count_archived(const char *directory)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;
    char path[440];

    snprintf(path, sizeof path, "%s/restored.truce", directory);
    unlink(path);
    if (!CHECK_OK(truce__archive_restore(life.target, path, &options, &report, &error), error))
        return -1;
    return count_things(path);
}

static void check_after(const char *directory)
{
    char path[420], restored[420];
    int64_t archived, stored;
    bson_error_t error;

    snprintf(restored, sizeof restored, "%s/archived", directory);
    mkdir(restored, 0700);
    archived = count_archived(restored);
    snprintf(path, sizeof path, "%s/s.truce", directory);
    stored = count_things(path);
    CHECK_INT(archived, <=, stored);
    /* The open above was the last one, so the log is gone, and this is a new generation. */
    CHECK_OK(archive_now(path, true, &error), error);
    snprintf(restored, sizeof restored, "%s/again", directory);
    mkdir(restored, 0700);
    CHECK_INT(count_archived(restored), ==, stored);
}

/* Archives what the disk has kept before any other program opens it. */
static void check_continued(const char *directory)
{
    char path[420], restored[420];
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", directory);
    CHECK_OK(archive_now(path, true, &error), error);
    snprintf(restored, sizeof restored, "%s/continued", directory);
    mkdir(restored, 0700);
    CHECK_INT(count_archived(restored), ==, count_things(path));
}

static void live_and_cut(struct random *random, bool first)
{
    const char *directory = test_directory();
    char archive[400], after[300];
    pthread_t writer, archiver;
    struct verify_report report;
    bson_error_t error;

    life.inserted = 0;
    atomic_store(&life.stop, 0);
    disk_reset();
    disk_honest(true);
    snprintf(life.path, sizeof life.path, "%s/s.truce", directory);
    snprintf(archive, sizeof archive, "%s/archive", directory);
    if (!CHECK_OK(truce_store_open(life.path, NULL, &life.store, &error), error) ||
        !CHECK_OK(truce__archive_store_id(life.store, life.id, &error), error) ||
        !CHECK_OK(truce__target_directory(archive, true, &life.target, &error), error) ||
        !CHECK_OK(archive_now(life.path, true, &error), error))
        return;
    disk_cut_after(1 + (int64_t)truce__random_below(random, 600));
    pthread_create(&archiver, NULL, archive_until_cut, NULL);
    pthread_create(&writer, NULL, write_until_cut, NULL);
    pthread_join(writer, NULL);
    disk_cut();
    /* The archiver may not notice the cut: it writes nothing. */
    atomic_store(&life.stop, 1);
    pthread_join(archiver, NULL);
    snprintf(after, sizeof after, "%s/after", directory);
    mkdir(after, 0700);
    disk_restore(after, random);
    truce_store_close(life.store);
    disk_reset();
    atomic_store(&life.stop, 0);
    if (first || truce__random_below(random, 2))
        check_after(after);
    else
        check_continued(after);
    CHECK_OK(truce__archive_verify(life.target, NULL, NULL, &report, &error), error);
    CHECK_INT(report.faults, ==, 0);
    truce__target_close(life.target);
}

TEST(an_archive_has_no_commit_that_a_power_cut_undoes)
{
    long cuts = test_scale("TRUCE_POWER_CUTS", 12);
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < cuts && !test_failures(); i++)
        live_and_cut(&random, i == 0);
}
