/*
 * A power cut in a checkpoint tears the pages that it was writing. The log still has them, so
 * nothing is lost, and nothing is reported: by reads, check, copy, backup, compact, and salvage. A
 * torn page that the log does not have is damage.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "engine/storage/checksum_vfs.h"
#include "tests/support/command.h"
#include "tests/support/damage.h"
#include "tests/support/test.h"
#include "truce/store.h"
#include "truce/sweep.h"

enum { DOCUMENTS = 600, LOG_HEADER = 32, FRAME = 24 + KV_PAGE_BYTES };

static char path[400], log_path[420], other[420];
static struct image file, logged;
static bool in_log[1000];

static void fill(truce_store *store)
{
    bson_error_t error;

    for (int i = 0; i < DOCUMENTS; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT32(0), "text",
                                    "a text that makes the documents some pages long in the file");

        CHECK_OK(truce_insert(store, i % 2 ? "one" : "two", document, NULL, &error), error);
        bson_destroy(document);
    }
}

static void change_all(truce_store *store)
{
    const truce_write_options many = {.multi = true};
    bson_t *all = test_bson("{}"), *update = test_bson("{'$set': {'n': 1}}");
    bson_error_t error;

    CHECK_OK(truce_update(store, "one", all, update, &many, NULL, &error), error);
    CHECK_OK(truce_insert(store, "three", all, NULL, &error), error);
    bson_destroy(all);
    bson_destroy(update);
}

static void run_child(bool dies)
{
    int state;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child) {
        truce_store *store;
        bson_error_t error;

        if (truce_store_open(path, NULL, &store, &error))
            _exit(1);
        if (dies) {
            change_all(store);
            kill(getpid(), SIGKILL);
        }
        fill(store);
        truce_store_close(store);
        _exit(0);
    }
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state) == dies);
}

static bool make(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    snprintf(log_path, sizeof log_path, "%s-wal", path);
    snprintf(other, sizeof other, "%s.other", path);
    memset(in_log, 0, sizeof in_log);
    run_child(false);
    run_child(true);
    if (!image_read(&file, path) || !image_read(&logged, log_path))
        return false;
    for (size_t at = LOG_HEADER; at + FRAME <= logged.size; at += FRAME) {
        const uint8_t *number = logged.bytes + at;
        uint32_t page = (uint32_t)number[2] << 8 | number[3];

        /* of this log, and not of an earlier one in its place */
        if (!memcmp(number + 8, logged.bytes + 16, 8) && page < 1000)
            in_log[page] = true;
    }
    return true;
}

static void release(void)
{
    image_release(&file);
    image_release(&logged);
}

/* The file with one page torn, and its log. */
static void tear(uint32_t page, struct random *random)
{
    struct image torn = image_copy(&file);
    size_t sectors = KV_PAGE_BYTES / 512, first = truce__random_below(random, sectors),
           count = 1 + truce__random_below(random, sectors - first);

    for (size_t i = 0; i < count * 512; i++)
        torn.bytes[(page - 1) * (size_t)KV_PAGE_BYTES + first * 512 + i] =
            (uint8_t)truce__random_next(random);
    CHECK(image_write(&torn, path) && image_write(&logged, log_path));
    image_release(&torn);
}

static char found[400];

static void note(const bson_t *finding, void *arg)
{
    bson_iter_t at;

    (void)arg;
    if (bson_iter_init_find(&at, finding, "rule"))
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s ",
                 bson_iter_utf8(&at, NULL));
}

/* Damage is a finding, or keeps the store from being opened or examined. */
static void check_reported(bool damaged)
{
    const truce_store_options reading = {.read_only = true};

    for (int i = 0; i < 2; i++) {
        truce_check_report report;
        truce_store *store;
        bson_error_t error = {0};
        truce_status status = truce_store_open(path, i ? NULL : &reading, &store, &error);

        found[0] = 0;
        if (!status) {
            status = truce_check(store, NULL, note, NULL, &report, &error);
            truce_store_close(store);
        }
        if (damaged)
            CHECK(status == TRUCE_CORRUPT || strstr(found, "damaged-page"));
        else if (CHECK_OK(status, error))
            CHECK_TEXT("", found);
    }
}

/* The program ends with 0, and the documents are in the other store. */
static void check_command(const char *command)
{
    const struct command *called = command_run(TRUCE_CLI, NULL, NULL, command, path, other, NULL);
    bson_t *filter = test_bson("{'n': 1}");
    truce_store *store;
    int64_t count = 0;
    bson_error_t error;

    if (!CHECK_INT(called->code, ==, 0))
        fprintf(stderr, "%s: %s%s\n", command, called->out, called->err);
    if (CHECK_OK(truce_store_open(other, NULL, &store, &error), error)) {
        CHECK_OK(truce_count(store, "one", filter, NULL, &count, &error), error);
        CHECK_INT(count, ==, DOCUMENTS / 2);
        truce_store_close(store);
    }
    bson_destroy(filter);
    image_write(&(struct image){(uint8_t *)"", 0}, other);
    unlink(other);
}

TEST(a_torn_page_is_damage_only_if_the_log_does_not_have_it)
{
    struct random random;
    int covered = 0, lost = 0;

    truce__random_seed(&random, test_seed());
    REQUIRE(make());
    for (uint32_t page = 1; page <= file.size / KV_PAGE_BYTES; page++) {
        tear(page, &random);
        check_reported(!in_log[page]);
        covered += in_log[page];
        lost += !in_log[page];
    }
    CHECK_INT(covered, >, 5);
    CHECK_INT(lost, >, 5);
    release();
}

TEST(reads_a_torn_page_from_the_log)
{
    struct random random;
    uint32_t last = 0;

    truce__random_seed(&random, test_seed());
    REQUIRE(make());
    for (uint32_t page = 1; page <= file.size / KV_PAGE_BYTES; page++) {
        if (!in_log[page] || page < last + 5)
            continue;
        last = page;
        tear(page, &random);
        check_command("salvage");
        tear(page, &random);
        check_command("copy");
        tear(page, &random);
        {
            const struct command *called =
                command_run(TRUCE_CLI, NULL, NULL, "compact", "--store", path, NULL);

            CHECK_INT(called->code, ==, 0);
            check_reported(false);
        }
    }
    CHECK_INT(last, >, 0);
    release();
}
