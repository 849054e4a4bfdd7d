/*
 * truce demo keys: three documents: red, green, and any. Eight processes add keys, each to one
 * color and to any, and some are killed with SIGKILL.
 *
 * The naive code does two updates, one after the other. Then one commit does both. Then the same
 * commit runs through the journal, as on a store that has only atomic updates of one document. The
 * result is right if any has as many keys as red and green together, and every counter agrees with
 * its list.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cli/core/worker_pool.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define KEYS          "truce_demo_keys" /* The collection. */
#define PROCESSES     8
#define KILL_EVERY_MS 150
#define LEASE_MS      300
/* The maximum number of entries in each list. The counters have the total. */
#define KEYS_KEPT 20

enum way { USUAL, TRUCE, JOURNAL, WAYS };

static const char *const way_names[] = {"usual way", "truce", "truce, journal"};

/* Counts in memory that the child processes share. */
struct tally {
    /* The number of acknowledged additions. */
    atomic_long added;
    /* The sums of truce_commit_count over the processes. */
    atomic_long conflicts, reruns, completions;
    /* The number of failed calls, and the message of the first one. */
    atomic_int failures;
    char failure[504];
};

struct keys {
    struct cli *cli;
    struct demo_stage stage;
    int64_t duration_ms;
    struct tally *tally;
    pid_t children[PROCESSES];
};

struct books {
    /* The counters of the three documents. */
    int64_t red, green, any;
    /* The last entry of each list equals its counter. */
    bool lists_agree;
    int64_t added, kills;
    int64_t conflicts, reruns, completions, findings;
    double seconds;
};

static bson_value_t keys_id_of(const char *name)
{
    bson_value_t id = {.value_type = BSON_TYPE_UTF8};

    id.value.v_utf8.str = (char *)name;
    id.value.v_utf8.len = (uint32_t)strlen(name);
    return id;
}

static int64_t keys_count_in(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "count") ? bson_iter_as_int64(&iter) : 0;
}

/* Returns {$set: {count: n + 1}, $push: {keys: n + 1 of `key`}}, computed from the document that
 * was read. */
static bson_t *one_more(const bson_t *document, const char *key)
{
    int64_t count = keys_count_in(document) + 1;

    return BCON_NEW("$set", "{", "count", BCON_INT64(count), "}", "$push", "{", "keys", "{",
                    "$each", "[", "{", "n", BCON_INT64(count), "key", BCON_UTF8(key), "}", "]",
                    "$slice", BCON_INT32(-KEYS_KEPT), "}", "}");
}

/* ---- the usual way -------------------------------------------------------------------------- */

static truce_status keys_add_to(truce_store *store, const char *name, const char *key,
                                bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)), found, *change;
    truce_status status = truce_find_one(store, KEYS, filter, NULL, &found, error);

    change = one_more(&found, key);
    if (!status)
        status = truce_update(store, KEYS, filter, change, NULL, NULL, error);
    bson_destroy(change);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* ---- truce ---------------------------------------------------------------------------------- */

struct addition {
    const char *colour, *key;
};

static truce_status keys_add_in(truce_commit *commit, const char *name, const char *key,
                                bson_error_t *error)
{
    bson_value_t id = keys_id_of(name);
    bson_t found, *change;
    truce_status status = truce_commit_read(commit, KEYS, &id, &found, error);

    change = one_more(&found, key);
    if (!status)
        status = truce_commit_update(commit, KEYS, &id, NULL, change, error);
    bson_destroy(change);
    bson_destroy(&found);
    return status;
}

static truce_status add_key(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct addition *addition = arg;
    truce_status status = keys_add_in(commit, addition->colour, addition->key, error);

    return status ? status : keys_add_in(commit, "any", addition->key, error);
}

/* ---- a process ------------------------------------------------------------------------------ */

static truce_status add_once(truce_store *store, enum way way, const struct addition *addition,
                             bson_error_t *error)
{
    truce_commit_options options = {.mechanism = way == JOURNAL ? TRUCE_MECHANISM_JOURNAL
                                                                : TRUCE_MECHANISM_AUTO,
                                    .lease_ms = LEASE_MS,
                                    .tries_max = 100000};
    truce_status status;

    if (way != USUAL)
        return truce_transact(store, add_key, (void *)addition, &options, error);
    status = keys_add_to(store, addition->colour, addition->key, error);
    return status ? status : keys_add_to(store, "any", addition->key, error);
}

static void add_counters(struct tally *tally, truce_commit_counters *before)
{
    truce_commit_counters now;

    truce_commit_count(&now);
    atomic_fetch_add(&tally->conflicts, (long)(now.conflicts - before->conflicts));
    atomic_fetch_add(&tally->reruns, (long)(now.reruns - before->reruns));
    atomic_fetch_add(&tally->completions, (long)(now.completions - before->completions));
    *before = now;
}

_Noreturn static void keys_child(const struct keys *demo, enum way way)
{
    struct tally *tally = demo->tally;
    truce_commit_counters counters = {0};
    truce_store *store = NULL;
    struct random random;
    bson_error_t error;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, &error);

    truce__random_seed(&random, truce__random_entropy());
    while (!status) {
        char key[2] = {(char)('a' + truce__random_below(&random, 26)), 0};
        struct addition addition = {truce__random_below(&random, 2) ? "red" : "green", key};

        status = add_once(store, way, &addition, &error);
        if (!status)
            atomic_fetch_add(&tally->added, 1);
        add_counters(tally, &counters);
    }
    if (atomic_fetch_add(&tally->failures, 1) == 0)
        snprintf(tally->failure, sizeof tally->failure, "%s", error.message);
    _exit(1);
}

/* ---- the parent ----------------------------------------------------------------------------- */

static void keys_start(struct keys *demo, int slot, enum way way)
{
    demo->children[slot] = pool_fork();
    if (!demo->children[slot])
        keys_child(demo, way);
}

static truce_status begin_books(const struct keys *demo, bson_error_t *error)
{
    static const char *const names[] = {"red", "green", "any"};
    truce_store *store = NULL;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, error);

    for (int i = 0; !status && i < 3; i++) {
        bson_t *document = BCON_NEW("_id", BCON_UTF8(names[i]), "keys", "[", "]", "count",
                                    BCON_INT64(0), "colour", BCON_UTF8(names[i]));

        status = truce_insert(store, KEYS, document, NULL, error);
        bson_destroy(document);
    }
    truce_store_close(store);
    return status;
}

/* Returns true if the last entry of the list has the counter's number. */
static bool list_agrees(const bson_t *document)
{
    bson_iter_t keys, element, n;
    int64_t last = 0, before = 0;

    if (!bson_iter_init_find(&keys, document, "keys") || !bson_iter_recurse(&keys, &element))
        return false;
    while (bson_iter_next(&element)) {
        if (!bson_iter_recurse(&element, &n) || !bson_iter_find(&n, "n"))
            return false;
        last = bson_iter_as_int64(&n);
        if (before && last != before + 1)
            return false;
        before = last;
    }
    return last == keys_count_in(document);
}

static truce_status read_book(truce_store *store, const char *name, int64_t *count, bool *agrees,
                              bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name)), found;
    truce_status status = truce_find_one(store, KEYS, filter, NULL, &found, error);

    *count = keys_count_in(&found);
    *agrees = *agrees && list_agrees(&found);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

static void count_own(const bson_t *finding, void *arg)
{
    struct books *books = arg;
    bson_iter_t iter;

    books->findings += bson_iter_init_find(&iter, finding, "ns") && BSON_ITER_HOLDS_UTF8(&iter) &&
                       !strcmp(bson_iter_utf8(&iter, NULL), KEYS);
}

/* Completes or undoes the commits of dead processes. The first pass sees their leases, and the
 * second one finds that no process renewed them. */
static truce_status sweep_dead_commits(truce_store *store, bson_error_t *error)
{
    truce_sweep_options sweep = {.retention_ms = -1};
    truce_sweep_report swept;
    truce_status status = truce_sweep(store, &sweep, &swept, error);

    if (status)
        return status;
    truce__clock_sleep_ms(2 * LEASE_MS + 50);
    return truce_sweep(store, &sweep, &swept, error);
}

/* Completes or undoes the commits of dead processes, and reads all lists. */
static truce_status read_books(const struct keys *demo, struct books *books, bson_error_t *error)
{
    truce_check_report checked;
    truce_store *store = NULL;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, error);

    books->lists_agree = true;
    if (!status)
        status = sweep_dead_commits(store, error);
    if (!status)
        status = truce_check(store, NULL, count_own, books, &checked, error);
    if (!status)
        status = read_book(store, "red", &books->red, &books->lists_agree, error);
    if (!status)
        status = read_book(store, "green", &books->green, &books->lists_agree, error);
    if (!status)
        status = read_book(store, "any", &books->any, &books->lists_agree, error);
    truce_store_close(store);
    return status;
}

/* Runs one way: kills and replaces its processes for the time of the demo, and reads the
 * counters. */
static truce_status keys_play(struct keys *demo, enum way way, struct books *books,
                              bson_error_t *error)
{
    int64_t began_ns = truce__clock_monotonic_ns();
    struct random random;
    truce_status status;

    memset(demo->tally, 0, sizeof *demo->tally);
    status = demo_stage_clear(&demo->stage, error);
    if (!status)
        status = begin_books(demo, error);
    if (status)
        return status;
    truce__random_seed(&random, truce__random_entropy());
    for (int i = 0; i < PROCESSES; i++)
        keys_start(demo, i, way);
    while (truce__clock_monotonic_ns() - began_ns < demo->duration_ms * 1000000) {
        int slot = (int)truce__random_below(&random, PROCESSES);

        truce__clock_sleep_ms(KILL_EVERY_MS);
        pool_end(&demo->children[slot]);
        keys_start(demo, slot, way);
        books->kills++;
    }
    for (int i = 0; i < PROCESSES; i++)
        pool_end(&demo->children[i]);
    books->seconds = (double)(truce__clock_monotonic_ns() - began_ns) / 1e9;
    books->added = atomic_load(&demo->tally->added);
    books->conflicts = atomic_load(&demo->tally->conflicts);
    books->reruns = atomic_load(&demo->tally->reruns);
    books->completions = atomic_load(&demo->tally->completions);
    if (atomic_load(&demo->tally->failures))
        return truce__fail(TRUCE_IO, error, "a process failed: %.400s", demo->tally->failure);
    return read_books(demo, books, error);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Returns true if every acknowledged key is stored. Further keys come from processes that died
 * after the commit. */
static bool keys_right(const struct books *books)
{
    return books->added > 0 && books->red + books->green == books->any && books->lists_agree &&
           books->any >= books->added && books->any <= books->added + books->kills + PROCESSES &&
           books->findings == 0;
}

static void print_way(enum way way, const struct books *books)
{
    printf("             %-14s red %" PRId64 " + green %" PRId64 " = %" PRId64 ", any %" PRId64
           "%s: %s\n",
           way_names[way], books->red, books->green, books->red + books->green, books->any,
           books->lists_agree ? "" : ", lists and counters differ",
           keys_right(books) ? "equal" : "wrong");
    if (way != USUAL)
        printf("                            %.0f commits/s, %" PRId64 " conflicts, %" PRId64
               " run again, %" PRId64 " completed for others\n",
               (double)books->added / books->seconds, books->conflicts, books->reruns,
               books->completions);
}

static void keys_print_json(const struct books *books)
{
    bson_t answer = BSON_INITIALIZER, part;

    BSON_APPEND_UTF8(&answer, "story", "keys");
    for (enum way way = USUAL; way < WAYS; way++) {
        bson_append_document_begin(&answer, way_names[way], -1, &part);
        BSON_APPEND_INT64(&part, "red", books[way].red);
        BSON_APPEND_INT64(&part, "green", books[way].green);
        BSON_APPEND_INT64(&part, "any", books[way].any);
        BSON_APPEND_INT64(&part, "acknowledged", books[way].added);
        BSON_APPEND_INT64(&part, "killed", books[way].kills);
        BSON_APPEND_INT64(&part, "conflicts", books[way].conflicts);
        BSON_APPEND_INT64(&part, "completions", books[way].completions);
        BSON_APPEND_BOOL(&part, "right", keys_right(&books[way]));
        bson_append_document_end(&answer, &part);
    }
    cli_print(&answer, JSON_RELAXED);
    bson_destroy(&answer);
}

static int keys_report(struct keys *demo)
{
    struct books books[WAYS] = {{0}};
    bson_error_t error;

    for (enum way way = USUAL; way < WAYS; way++) {
        truce_status status = keys_play(demo, way, &books[way], &error);

        if (status)
            return cli_error(demo->cli, way_names[way], status, &error);
    }
    if (demo->cli->json) {
        keys_print_json(books);
    } else {
        printf("keys         %d processes add a key to two of three documents together; %" PRId64
               " killed\n",
               PROCESSES, books[USUAL].kills + books[TRUCE].kills + books[JOURNAL].kills);
        for (enum way way = USUAL; way < WAYS; way++)
            print_way(way, &books[way]);
    }
    return cli_output_end(keys_right(&books[TRUCE]) && keys_right(&books[JOURNAL]) ? CLI_DONE
                                                                                   : CLI_NO);
}

int demo_keys(struct cli *cli)
{
    struct keys demo = {.cli = cli};
    int code;

    if (!cli_duration(cli, "duration", 100, 600000, 3000, &demo.duration_ms))
        return CLI_USAGE;
    demo.tally =
        mmap(NULL, sizeof *demo.tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (demo.tally == MAP_FAILED)
        return cli_message(cli, CLI_FAILED, "cannot share memory with the demo's processes: %s",
                           strerror(errno));
    code = demo_stage_begin(&demo.stage, cli, "keys", KEYS);
    if (!code) {
        code = keys_report(&demo);
        demo_stage_end(&demo.stage);
    }
    munmap(demo.tally, sizeof *demo.tally);
    return code;
}
