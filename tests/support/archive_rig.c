/* A store, its archiver, and a target that fails: see archive_rig.h. */
#include "tests/support/archive_rig.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/storage/log_archive.h"
#include "store/file/file.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

/* ---- a target with faults ------------------------------------------------------------------- */

static struct faulty *faulty_of(struct target *target)
{
    return (struct faulty *)target;
}

/* Returns whether this call has the fault. */
static bool faulty_strikes(struct faulty *faulty)
{
    atomic_fetch_add(&faulty->calls, 1);
    return atomic_fetch_sub(&faulty->until, 1) == 1;
}

static truce_status faulty_fail(bson_error_t *error)
{
    bson_set_error(error, 0x7472u, TRUCE_IO, "the target is down");
    return TRUCE_IO;
}

/* Stores an object of the archive, unless the fault strikes. A process that dies exits with 9,
 * without cleanup. */
static truce_status faulty_put(struct target *target, const char *name, const void *bytes,
                               size_t size, bson_error_t *error)
{
    struct faulty *faulty = faulty_of(target);
    bool strikes = faulty_strikes(faulty);
    truce_status status;

    if (strikes && faulty->kind == FAULT_DIE_BEFORE)
        _exit(9);
    while (atomic_load(&faulty->stuck))
        truce__clock_sleep_ms(1);
    if (atomic_load(&faulty->no_base) && strstr(name, ".base"))
        return faulty_fail(error);
    if (atomic_load(&faulty->down) || (strikes && faulty->kind == FAULT_FAIL_BEFORE))
        return faulty_fail(error);
    status = faulty->real->calls->put(faulty->real, name, bytes, size, error);
    if (strikes && faulty->kind == FAULT_DIE_AFTER)
        _exit(9);
    if (strikes && faulty->kind == FAULT_FAIL_AFTER)
        return faulty_fail(error);
    return status;
}

static truce_status faulty_get(struct target *target, const char *name, size_t most,
                               struct buffer *out, bson_error_t *error)
{
    struct faulty *faulty = faulty_of(target);

    if (faulty_strikes(faulty) && faulty->kind >= FAULT_DIE_BEFORE)
        _exit(9);
    return faulty->real->calls->get(faulty->real, name, most, out, error);
}

static truce_status faulty_list(struct target *target, target_name_function *function, void *arg,
                                bson_error_t *error)
{
    struct faulty *faulty = faulty_of(target);

    if (faulty_strikes(faulty) && faulty->kind >= FAULT_DIE_BEFORE)
        _exit(9);
    return faulty->real->calls->list(faulty->real, function, arg, error);
}

static truce_status faulty_has_after(struct target *target, const char *name, bool *found,
                                     bson_error_t *error)
{
    struct faulty *faulty = faulty_of(target);

    return faulty->real->calls->has_after(faulty->real, name, found, error);
}

static truce_status faulty_remove(struct target *target, const char *name, bson_error_t *error)
{
    struct faulty *faulty = faulty_of(target);
    bool strikes = faulty_strikes(faulty);
    truce_status status;

    if (strikes && faulty->kind == FAULT_DIE_BEFORE)
        _exit(9);
    status = faulty->real->calls->remove(faulty->real, name, error);
    if (strikes && faulty->kind == FAULT_DIE_AFTER)
        _exit(9);
    return status;
}

static const struct target_calls faulty_calls = {.put = faulty_put,
                                                 .get = faulty_get,
                                                 .list = faulty_list,
                                                 .has_after = faulty_has_after,
                                                 .remove = faulty_remove};

/* ---- a store and its archive ---------------------------------------------------------------- */

struct archive_world world;

static void world_event(enum archive_event event, const struct segment_head *head, const char *text,
                        void *arg)
{
    atomic_fetch_add(&world.events[event], 1);
    (void)head;
    (void)text;
    (void)arg;
}

bool environment_open(void)
{
    const char *directory = test_directory();
    bson_error_t error;

    world = (struct archive_world){0};
    snprintf(world.path, sizeof world.path, "%s/s.truce", directory);
    snprintf(world.archive, sizeof world.archive, "%s/archive", directory);
    snprintf(world.restored, sizeof world.restored, "%s/restored.truce", directory);
    world.options = (struct archive_options){
        .interval_ms = 5, .log_limit = 1 << 30, .stop = &world.stop, .event = world_event};
    return CHECK_OK(truce_store_open(world.path, NULL, &world.store, &error), error) &&
           CHECK_OK(truce__archive_store_id(world.store, world.id, &error), error) &&
           CHECK_OK(truce__target_directory(world.archive, true, &world.target, &error), error);
}

void world_lose_log(void)
{
    static const char *const suffixes[] = {"-wal", "-shm", "-lock"};
    char name[320];

    truce_store_close(world.store);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", world.path, suffixes[i]);
        unlink(name);
    }
}

void world_close(void)
{
    truce_store_close(world.store);
    truce__target_close(world.target);
    world.store = NULL;
    world.target = NULL;
}

struct target *world_faulty(int kind, int until)
{
    static char name[] = "faulty";

    world.faulty.base = (struct target){.calls = &faulty_calls, .name = name};
    world.faulty.real = world.target;
    world.faulty.kind = kind;
    atomic_store(&world.faulty.until, until);
    return &world.faulty.base;
}

truce_status archive_once(struct target *target, bson_error_t *error)
{
    struct archive_options options = world.options;

    options.once = true;
    return truce__archive_run(world.path, world.id, target, &options, error);
}

static void *archive_thread(void *arg)
{
    world.status = truce__archive_run(world.path, world.id, arg, &world.options, &world.error);
    return NULL;
}

void archiver_start(struct target *target)
{
    atomic_store(&world.stop, 0);
    pthread_create(&world.thread, NULL, archive_thread, target);
}

bool wait_for_event(enum archive_event event, int count)
{
    for (int i = 0; i < 10000 && atomic_load(&world.events[event]) < count; i++)
        truce__clock_sleep_ms(1);
    return CHECK_INT(atomic_load(&world.events[event]), >=, count);
}

void archiver_end(void)
{
    atomic_store(&world.stop, 1);
    /* Ends its pause. */
    if (world.store)
        truce__archive_request(&truce__file_engine_or_null(world.store)->lock);
    pthread_join(world.thread, NULL);
}

bool insert_one(int id, int pad)
{
    char *text = bson_malloc((size_t)pad + 1);
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    bool fine;

    memset(text, 'x', (size_t)pad);
    text[pad] = 0;
    BSON_APPEND_INT32(&document, "_id", id);
    BSON_APPEND_UTF8(&document, "pad", text);
    fine = CHECK_OK(truce_insert(world.store, "things", &document, NULL, &error), error);
    bson_destroy(&document);
    bson_free(text);
    return fine;
}

bool insert_many(int first, int last, int pad)
{
    for (int i = first; i <= last; i++) {
        if (!insert_one(i, pad))
            return false;
    }
    return true;
}

truce_status restore_to(const struct restore_options *options, struct restore_report *report,
                        bson_error_t *error)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    char name[320];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", world.restored, suffixes[i]);
        unlink(name);
    }
    return truce__archive_restore(world.target, world.restored, options, report, error);
}

int restored_things(void)
{
    const truce_store_options options = {.must_exist = true};
    const truce_check_options check = {0};
    truce_check_report report;
    truce_store *store;
    bson_error_t error;
    bson_t all = BSON_INITIALIZER;
    int64_t count = 0, highest = 0;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_iter_t iter;
    bool fine = CHECK_OK(truce_store_open(world.restored, &options, &store, &error), error);

    if (!fine)
        return -1;
    fine = CHECK_OK(truce_check(store, &check, NULL, NULL, &report, &error), error) &&
           CHECK_INT(report.findings, ==, 0);
    fine = fine && CHECK_OK(truce_find(store, "things", &all, NULL, &cursor, &error), error);
    while (fine && !truce_cursor_next(cursor, &document, &error) && document) {
        count++;
        if (bson_iter_init_find(&iter, document, "_id") && bson_iter_int32(&iter) > highest)
            highest = bson_iter_int32(&iter);
    }
    truce_cursor_close(cursor);
    truce_store_close(store);
    return fine && CHECK_INT(count, ==, highest) ? (int)count : -1;
}

int restored_last(void)
{
    const struct restore_options options = {.at_ms = INT64_MAX};
    struct restore_report report;
    bson_error_t error;

    if (!CHECK_OK(restore_to(&options, &report, &error), error))
        return -1;
    return restored_things();
}

bool verifies(void)
{
    struct verify_report report;
    bson_error_t error;

    return CHECK_OK(truce__archive_verify(world.target, NULL, NULL, &report, &error), error) &&
           CHECK_INT(report.faults, ==, 0);
}
