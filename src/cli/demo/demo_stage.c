#include "cli/demo/demo_stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/maintenance.h"

/* ---- a file of its own ----------------------------------------------------------------------- */

static int make_directory(struct demo_stage *stage, const char *story)
{
    const char *base = getenv("TMPDIR");

    snprintf(stage->directory, sizeof stage->directory, "%.40s/truce-demo-XXXXXX",
             base && strlen(base) < 40 ? base : "/tmp");
    if (!mkdtemp(stage->directory))
        return cli_message(stage->cli, CLI_FAILED, "cannot create a directory in %s: %s",
                           base ? base : "/tmp", strerror(errno));
    snprintf(stage->own, sizeof stage->own, "file:%s/%.20s.truce", stage->directory, story);
    stage->uri = stage->own;
    return CLI_DONE;
}

static void remove_files(const struct demo_stage *stage)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-lock", "-wake", "-journal"};
    char path[140];

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s%s", stage->own + strlen("file:"), ends[i]);
        unlink(path);
    }
}

/* ---- the store of --store -------------------------------------------------------------------- */

struct counting {
    const char *collection;
    /* The number of collections other than `collection`. */
    int others;
    bool there;
};

static truce_status count_collection(void *arg, const char *collection, bson_error_t *error)
{
    struct counting *counting = arg;

    (void)error;
    if (counting->collection && !strcmp(collection, counting->collection))
        counting->there = true;
    else
        counting->others++;
    return TRUCE_OK;
}

/* Takes the store of --store. Refuses one that has the collection of the story, or any collection
 * if the story uses several. */
static int take_store(struct demo_stage *stage, const char *story)
{
    struct cli *cli = stage->cli;
    struct counting counting = {.collection = stage->collection};
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status;

    if (!strncmp(cli->uri, "memory:", 7))
        return cli_usage(cli, "the demo runs several processes, and they cannot share memory:");
    stage->uri = cli->uri;
    status = truce_store_open(stage->uri, NULL, &store, &error);
    if (!status)
        status = truce__each_collection(store, count_collection, &counting, &error);
    truce_store_close(store);
    if (status)
        return cli_error(cli, NULL, status, &error);
    if (counting.there)
        return cli_message(
            cli, CLI_NO,
            "the store already has a collection %s, which the demo would change; drop it "
            "first: truce collections drop %s",
            stage->collection, stage->collection);
    if (counting.others && !stage->collection)
        return cli_message(cli, CLI_NO,
                           "the story %s needs an empty store: give it one of its own, such "
                           "as mongodb://HOST/truce_demo",
                           story);
    stage->all = !counting.others;
    return CLI_DONE;
}

static truce_status stage_drop(void *arg, const char *collection, bson_error_t *error)
{
    truce_status status = truce_collection_drop(arg, collection, error);

    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- both ------------------------------------------------------------------------------------ */

int demo_stage_begin(struct demo_stage *stage, struct cli *cli, const char *story,
                     const char *collection)
{
    *stage = (struct demo_stage){.cli = cli, .collection = collection};
    return cli->uri_given ? take_store(stage, story) : make_directory(stage, story);
}

truce_status demo_stage_clear(const struct demo_stage *stage, bson_error_t *error)
{
    truce_store *store = NULL;
    truce_status status;

    if (stage->uri == stage->own) {
        remove_files(stage);
        return TRUCE_OK;
    }
    status = truce_store_open(stage->uri, NULL, &store, error);
    if (!status)
        status = stage->all ? truce__each_collection(store, stage_drop, store, error)
                            : stage_drop(store, stage->collection, error);
    truce_store_close(store);
    return status;
}

void demo_stage_end(const struct demo_stage *stage)
{
    bool own = stage->uri == stage->own;
    bson_error_t error;

    if (cli_flag(stage->cli, "keep"))
        cli_note(stage->cli, "the store is in %s", own ? stage->directory : stage->uri);
    else if (demo_stage_clear(stage, &error))
        cli_note(stage->cli, "the demo's data could not be removed: %s", error.message);
    else if (own)
        rmdir(stage->directory);
}
