/*
 * truce demo badges: an employee has four badges. One process keeps changing the date of one badge,
 * and four processes keep reading.
 *
 * The naive code pulls the badge, changes it, and pushes it back. This takes two updates, because
 * MongoDB refuses both on one array in one update. Then the story runs with truce. Every result of
 * the readers is checked: the badge is present once, and in its place.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/core/worker_pool.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define READERS 4
#define WORN    4 /* The number of badges. */

enum way { USUAL, TRUCE, WAYS };

static const char *const way_names[] = {"usual way", "truce"};

struct tally {
    /* The struct is in memory that all processes share. The number of reads; of reads that saw the
     * badge not at all, twice, or in another position; and of changes. */
    atomic_long reads, absent, twice, moved, changes;
    /* The number of failed calls, and the message of the first one. */
    atomic_int failures;
    char failure[504];
};

struct badges {
    struct cli *cli;
    struct demo_stage stage;
    int64_t duration_ms;
    struct tally *tally;
    pid_t children[READERS + 1];
};

struct observations {
    int64_t reads, absent, twice, moved, changes;
};

static const char *const worn[WORN] = {"FIRST_YEAR", "TOP_EMPLOYEE", "MENTOR", "SAFETY"};

/* ---- the writer ------------------------------------------------------------------------------ */

/* Replaces the badge by a pull and a push. Readers can see the state in between. */
static truce_status change_usual(truce_store *store, int64_t date, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1));
    bson_t *pull = BCON_NEW("$pull", "{", "badges", "{", "type", BCON_UTF8(worn[1]), "}", "}");
    bson_t *push = BCON_NEW("$push", "{", "badges", "{", "type", BCON_UTF8(worn[1]), "date",
                            BCON_DATE_TIME(date), "}", "}");
    truce_write_options options = {.relaxed = true};
    truce_status status = truce_update(store, "employees", filter, pull, &options, NULL, error);

    if (!status)
        status = truce_update(store, "employees", filter, push, &options, NULL, error);
    bson_destroy(filter);
    bson_destroy(pull);
    bson_destroy(push);
    return status;
}

static truce_status change_truce(truce_item *item, int64_t date, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1)), *query = BCON_NEW("type", BCON_UTF8(worn[1]));
    bson_t *set = BCON_NEW("$set", "{", "date", BCON_DATE_TIME(date), "}");
    truce_status status = truce_item_update(item, NULL, filter, query, set, NULL, error);

    bson_destroy(filter);
    bson_destroy(query);
    bson_destroy(set);
    return status;
}

static void badges_fail(struct tally *tally, const bson_error_t *error)
{
    if (atomic_fetch_add(&tally->failures, 1) == 0)
        snprintf(tally->failure, sizeof tally->failure, "%s", error->message);
}

_Noreturn static void write_badges(const struct badges *demo, enum way way)
{
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, &error);
    truce_item *item = status
                           ? NULL
                           : truce_item_new(store, &(truce_item_options){.collection = "employees",
                                                                         .field = "badges",
                                                                         .identity = "type",
                                                                         .relaxed = true});

    for (int64_t date = 1; !status; date++) {
        status =
            way == USUAL ? change_usual(store, date, &error) : change_truce(item, date, &error);
        if (!status)
            atomic_fetch_add(&demo->tally->changes, 1);
    }
    badges_fail(demo->tally, &error);
    _exit(1);
}

/* ---- the readers ----------------------------------------------------------------------------- */

/* Counts what a reader saw of the second badge, which the writer changes all the time. It should
 * occur once, in the second position. */
static void badges_check(struct tally *tally, const bson_t *document)
{
    bson_iter_t iter, items, type;
    int position = 0, count = 0, at = -1;

    if (bson_iter_init_find(&iter, document, "badges") && bson_iter_recurse(&iter, &items)) {
        for (; bson_iter_next(&items); position++) {
            if (bson_iter_recurse(&items, &type) && bson_iter_find(&type, "type") &&
                !strcmp(bson_iter_utf8(&type, NULL), worn[1])) {
                at = position;
                count++;
            }
        }
    }
    atomic_fetch_add(&tally->reads, 1);
    if (!count)
        atomic_fetch_add(&tally->absent, 1);
    else if (count > 1)
        atomic_fetch_add(&tally->twice, 1);
    else if (at != 1)
        atomic_fetch_add(&tally->moved, 1);
}

_Noreturn static void read_badges(const struct badges *demo)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1));
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, &error);

    while (!status) {
        bson_t found;

        status = truce_find_one(store, "employees", filter, NULL, &found, &error);
        if (!status)
            badges_check(demo->tally, &found);
        bson_destroy(&found);
    }
    badges_fail(demo->tally, &error);
    _exit(1);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static truce_status badges_insert_employee(const struct badges *demo, bson_error_t *error)
{
    bson_t employee = BSON_INITIALIZER, items, item;
    truce_store *store = NULL;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, error);

    BSON_APPEND_INT32(&employee, "_id", 1);
    bson_append_array_begin(&employee, "badges", -1, &items);
    for (int i = 0; i < WORN; i++) {
        char key[16];

        snprintf(key, sizeof key, "%d", i);
        bson_append_document_begin(&items, key, -1, &item);
        BSON_APPEND_UTF8(&item, "type", worn[i]);
        BSON_APPEND_DATE_TIME(&item, "date", 0);
        bson_append_document_end(&items, &item);
    }
    bson_append_array_end(&employee, &items);
    if (!status)
        status = truce_insert(store, "employees", &employee, NULL, error);
    truce_store_close(store);
    bson_destroy(&employee);
    return status;
}

/* Runs the writer and the readers for the time of the demo, and returns what the readers saw. */
static truce_status badges_play(struct badges *demo, enum way way,
                                struct observations *observations, bson_error_t *error)
{
    struct tally *tally = demo->tally;
    truce_status status;

    memset(tally, 0, sizeof *tally);
    status = demo_stage_clear(&demo->stage, error);
    if (!status)
        status = badges_insert_employee(demo, error);
    if (status)
        return status;
    for (int i = 0; i <= READERS; i++) {
        demo->children[i] = pool_fork();
        if (!demo->children[i] && i)
            read_badges(demo);
        if (!demo->children[i])
            write_badges(demo, way);
    }
    truce__clock_sleep_ms(demo->duration_ms);
    for (int i = 0; i <= READERS; i++)
        pool_end(&demo->children[i]);
    *observations = (struct observations){.reads = atomic_load(&tally->reads),
                                          .absent = atomic_load(&tally->absent),
                                          .twice = atomic_load(&tally->twice),
                                          .moved = atomic_load(&tally->moved),
                                          .changes = atomic_load(&tally->changes)};
    if (atomic_load(&tally->failures))
        return truce__fail(TRUCE_IO, error, "a process failed: %.400s", tally->failure);
    return TRUCE_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool badges_right(const struct observations *observations)
{
    return observations->reads && observations->changes && !observations->absent &&
           !observations->twice && !observations->moved;
}

static void badges_print_json(const struct observations *observations)
{
    bson_t answer = BSON_INITIALIZER, part;

    BSON_APPEND_UTF8(&answer, "story", "badges");
    for (enum way way = USUAL; way < WAYS; way++) {
        bson_append_document_begin(&answer, way_names[way], -1, &part);
        BSON_APPEND_INT64(&part, "reads", observations[way].reads);
        BSON_APPEND_INT64(&part, "absent", observations[way].absent);
        BSON_APPEND_INT64(&part, "twice", observations[way].twice);
        BSON_APPEND_INT64(&part, "moved", observations[way].moved);
        BSON_APPEND_INT64(&part, "changes", observations[way].changes);
        BSON_APPEND_BOOL(&part, "right", badges_right(&observations[way]));
        bson_append_document_end(&answer, &part);
    }
    cli_print(&answer, JSON_RELAXED);
    bson_destroy(&answer);
}

static int badges_report(struct badges *demo)
{
    struct observations observations[WAYS] = {{0}};
    bson_error_t error;

    for (enum way way = USUAL; way < WAYS; way++) {
        truce_status status = badges_play(demo, way, &observations[way], &error);

        if (status)
            return cli_error(demo->cli, way_names[way], status, &error);
    }
    if (demo->cli->json) {
        badges_print_json(observations);
    } else {
        printf("badges       1 process changes a badge, %d processes read it\n", READERS);
        for (enum way way = USUAL; way < WAYS; way++)
            printf("             %-14s %" PRId64 " reads without the badge, %" PRId64
                   " with it in another place, of %" PRId64 "; %" PRId64 " changes: %s\n",
                   way_names[way], observations[way].absent + observations[way].twice,
                   observations[way].moved, observations[way].reads, observations[way].changes,
                   badges_right(&observations[way]) ? "right" : "wrong");
    }
    return cli_output_end(badges_right(&observations[TRUCE]) ? CLI_DONE : CLI_NO);
}

int demo_badges(struct cli *cli)
{
    struct badges demo = {.cli = cli};
    int code;

    if (!cli_duration(cli, "duration", 100, 600000, 3000, &demo.duration_ms))
        return CLI_USAGE;
    demo.tally =
        mmap(NULL, sizeof *demo.tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (demo.tally == MAP_FAILED)
        return cli_message(cli, CLI_FAILED, "cannot share memory with the demo's processes: %s",
                           strerror(errno));
    code = demo_stage_begin(&demo.stage, cli, "badges", NULL);
    if (!code) {
        code = badges_report(&demo);
        demo_stage_end(&demo.stage);
    }
    munmap(demo.tally, sizeof *demo.tally);
    return code;
}
