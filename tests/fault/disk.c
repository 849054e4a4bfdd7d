/*
 * A disk that fails: the n-th write or sync is refused, for n = 1, 2, ... until a run has no fault
 * any more. Every operation that answers OK has happened. If a write is refused, no other operation
 * has happened, and the store continues to work. If a sync is refused, the store is opened again,
 * and then each operation has happened whole or not at all.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "engine/documents/open_documents.h"
#include "tests/support/disk_vfs.h"
#include "tests/support/test.h"
#include "truce/commit.h"

#define STEPS 9

__attribute__((constructor)) static void install(void)
{
    disk_install();
}

static truce_status insert(truce_store *store, const char *json, bson_error_t *error)
{
    bson_t *document = test_bson(json);
    truce_status status = truce_insert(store, "c", document, NULL, error);

    bson_destroy(document);
    return status;
}

static truce_status update(truce_store *store, const char *filter_json, const char *update_json,
                           bool multi, bson_error_t *error)
{
    truce_write_options options = {.multi = multi};
    bson_t *filter = test_bson(filter_json), *change = test_bson(update_json);
    truce_status status = truce_update(store, "c", filter, change, &options, NULL, error);

    bson_destroy(filter);
    bson_destroy(change);
    return status;
}

static truce_status create_index(truce_store *store, bson_error_t *error)
{
    bson_t *index = test_bson("{'key': {'tags': 1}}");
    truce_status status = truce_index_create(store, "c", index, error);

    bson_destroy(index);
    return status;
}

static truce_status insert_many(truce_store *store, bson_error_t *error)
{
    truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[40];
    truce_write writes[40];
    truce_status status;

    for (int i = 0; i < 40; i++) {
        char json[100];

        snprintf(json, sizeof json, "{'_id': %d, 'tags': ['x', %d], 'n': 0}", 100 + i, i);
        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_INSERT, .collection = "c", .document = test_bson(json)};
    }
    status = truce_bulk(store, writes, 40, &options, outcomes, error);
    for (int i = 0; i < 40; i++) {
        CHECK(!status || outcomes[i].status);
        bson_destroy((bson_t *)(uintptr_t)writes[i].document);
    }
    return status;
}

static truce_status remove_some(truce_store *store, bson_error_t *error)
{
    truce_write_options options = {.multi = true};
    bson_t *filter = test_bson("{'_id': {'$gte': 120}}");
    truce_status status = truce_remove(store, "c", filter, &options, NULL, error);

    bson_destroy(filter);
    return status;
}

/* The steps; each changes what `fingerprint` shows. */
static truce_status do_step(truce_store *store, int step, bson_error_t *error)
{
    switch (step) {
    case 0:
        return insert(store, "{'_id': 1, 'tags': ['a', 'b'], 'n': 1}", error);
    case 1:
        return create_index(store, error);
    case 2:
        return insert_many(store, error);
    case 3:
        return update(store, "{'_id': 1}", "{'$push': {'tags': 'c'}}", false, error);
    case 4:
        return update(store, "{}", "{'$inc': {'n': 1}, '$push': {'tags': 'd'}}", true, error);
    case 5:
        return remove_some(store, error);
    case 6:
        return truce_index_drop(store, "c", "tags_1", error);
    case 7:
        return truce_collection_rename(store, "c", "d", false, error);
    default:
        return truce_collection_drop(store, "d", error);
    }
}

static void append_documents(truce_store *store, const char *collection, bson_string_t *text)
{
    truce_cursor *cursor;
    bson_error_t error;
    const bson_t *found;

    if (!CHECK_OK(truce_find(store, collection, NULL, NULL, &cursor, &error), error))
        return;
    while (CHECK_OK(truce_cursor_next(cursor, &found, &error), error) && found) {
        char *json = bson_as_relaxed_extended_json(found, NULL);

        bson_string_append(text, json);
        bson_free(json);
    }
    truce_cursor_close(cursor);
}

/* Appends a collection without its pages, which depend on its history. */
static void append_collection(const bson_iter_t *at, bson_string_t *text)
{
    bson_t one = BSON_INITIALIZER, view;
    const uint8_t *bytes;
    uint32_t size;
    char *json;

    bson_iter_document(at, &size, &bytes);
    REQUIRE(bson_init_static(&view, bytes, size));
    bson_copy_to_excluding_noinit(&view, &one, "storage", "unused", "indexBytes", NULL);
    json = bson_as_relaxed_extended_json(&one, NULL);
    bson_string_append(text, json);
    bson_free(json);
    bson_destroy(&one);
}

/* Everything that a client can see of the store. */
static char *fingerprint(truce_store *store)
{
    bson_string_t *text = bson_string_new("");
    bson_error_t error;
    bson_iter_t at;
    bson_t list;

    CHECK_OK(truce_collection_list(store, NULL, &list, &error), error);
    if (CHECK(bson_iter_init(&at, &list)))
        while (bson_iter_next(&at))
            append_collection(&at, text);
    bson_destroy(&list);
    append_documents(store, "c", text);
    append_documents(store, "d", text);
    return bson_string_free(text, false);
}

static void check_whole(const char *path)
{
    truce_store_options options = {0};
    struct engine *engine;
    bson_error_t error;

    if (!CHECK_OK(truce__engine_open(path, &options, &engine, &error), error))
        return;
    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
    truce__engine_close(engine);
}

static char *after_step[STEPS]; /* the state of the store, without faults */

static void note_steps(void)
{
    char path[400];
    truce_store *store;
    bson_error_t error;

    snprintf(path, sizeof path, "%s/good.truce", test_directory());
    disk_reset();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(do_step(store, step, &error), error);
        bson_free(after_step[step]);
        after_step[step] = fingerprint(store);
    }
    truce_store_close(store);
}

/* After a refused sync no call succeeds before the store is opened again. */
static bool open_again(const char *path, truce_store **store)
{
    bson_error_t error;
    bson_t list;
    truce_status status = truce_collection_list(*store, NULL, &list, &error);

    bson_destroy(&list);
    if (!status)
        return true;
    CHECK_STATUS(TRUCE_IO, status, error);
    truce_store_close(*store);
    return CHECK_OK(truce_store_open(path, NULL, store, &error), error);
}

/* Makes all steps, each again until it has happened. */
static int64_t run(enum disk_fault fault, int64_t number, int faults_max)
{
    char path[400], *before, *after;
    truce_store *store;
    bson_error_t error;
    int64_t faults;
    int failed = 0;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    disk_reset();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return 0;
    before = fingerprint(store);
    disk_fail(fault, number, faults_max > 1);
    for (int step = 0; step < STEPS && !test_failures(); step++) {
        truce_status status = do_step(store, step, &error);

        if (status) {
            CHECK_STATUS(TRUCE_IO, status, error);
            if (++failed == faults_max && faults_max > 1)
                disk_fail(DISK_NO_FAULT, 0, false);
        }
        if (status && fault == DISK_SYNC_FAILS && !open_again(path, &store))
            break;
        after = fingerprint(store);
        if (status && strcmp(after, after_step[step]) != 0) {
            CHECK_TEXT(before, after);
            step--;
        } else if (status) {
            CHECK(fault == DISK_SYNC_FAILS);
        }
        bson_free(before);
        before = after;
    }
    bson_free(before);
    faults = faults_max > 1 ? failed : disk_faults();
    truce_store_close(store);
    check_whole(path);
    return faults;
}

static void run_all(enum disk_fault fault, int faults_max)
{
    int64_t number = 1, faults = 1;

    note_steps();
    while (faults && !test_failures()) {
        faults = run(fault, number, faults_max);
        /* the first ones each, later ones in growing steps */
        number += 1 + number / 40;
    }
    CHECK_INT(number, >, 10);
}

TEST(a_write_that_fails_fails_one_operation_cleanly)
{
    run_all(DISK_WRITE_FAILS, 1);
}

TEST(a_full_disk_fails_operations_cleanly_until_there_is_room)
{
    run_all(DISK_FULL, 3);
}

TEST(keeps_an_operation_wholly_or_not_after_a_failed_sync)
{
    run_all(DISK_SYNC_FAILS, 1);
}

static truce_status insert_both(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *document = test_bson("{'_id': 7}");
    truce_status status = truce_commit_insert(commit, "c", document, error);

    if (!status && *(const int *)arg > 1)
        status = truce_commit_insert(commit, "d", document, error);
    bson_destroy(document);
    return status;
}

TEST(a_full_disk_is_named_by_a_commit)
{
    const truce_commit_options options = {.deadline_ms = 50};
    truce_store *store;
    bson_error_t error;
    char path[400];

    snprintf(path, sizeof path, "%s/t.truce", test_directory());
    disk_reset();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    for (int documents = 1; documents <= 2; documents++) {
        disk_fail(DISK_FULL, 1, true);
        CHECK_STATUS(TRUCE_IO, truce_transact(store, insert_both, &documents, &options, &error),
                     error);
        CHECK(strstr(error.message, "the disk is full"));
        disk_fail(DISK_NO_FAULT, 0, false);
    }
    truce_store_close(store);
}

TEST(a_full_disk_is_named)
{
    truce_store *store;
    bson_error_t error;
    char path[400];

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    disk_reset();
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    disk_fail(DISK_FULL, 1, true);
    CHECK_STATUS(TRUCE_IO, insert(store, "{'_id': 1}", &error), error);
    CHECK(strstr(error.message, "the disk is full"));
    disk_fail(DISK_NO_FAULT, 0, false);
    CHECK_OK(insert(store, "{'_id': 1}", &error), error);
    truce_store_close(store);
}

TEST(a_commit_that_failed_is_not_read_by_id)
{
    bson_t *filter = test_bson("{'_id': 1}"), *update = test_bson("{'$set': {'n': 2}}");
    bson_t *wanted = test_bson("{'_id': 1, 'n': 1}"), found;
    truce_store *store;
    bson_error_t error;
    char path[400];

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    disk_reset();
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    CHECK_OK(insert(store, "{'_id': 1, 'n': 1}", &error), error);
    disk_fail(DISK_WRITE_FAILS, 1, true);
    CHECK_STATUS(TRUCE_IO, truce_update(store, "c", filter, update, NULL, NULL, &error), error);
    disk_fail(DISK_NO_FAULT, 0, false);
    CHECK_OK(truce_find_one(store, "c", filter, NULL, &found, &error), error);
    CHECK_BSON(wanted, &found);
    bson_destroy(&found);
    truce_store_close(store);
    bson_destroy(wanted);
    bson_destroy(update);
    bson_destroy(filter);
}
