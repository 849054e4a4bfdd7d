/*
 * truce demo rename: a user whose name is copied to 100 comments is renamed twice at the same time.
 *
 * The first process sets a flag, copies to half of the comments, and stops for a while. The second
 * renames again and dies before it copies anything. The first resumes, copies its older name to the
 * rest, and clears the flag, which by now belongs to the second. Every comment is stale, and no
 * flag says so. With truce, each copy compares its revision, and a process clears only its own
 * flag. The flag stays, and the sweep copies the newer name.
 */
#include <inttypes.h>

#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define COMMENTS 100

enum way { USUAL, TRUCE, WAYS };
static const char *const way_names[] = {"usual", "truce"};

struct rename {
    struct demo_stage stage;
    truce_store *store;
    truce_sync *sync;
    bson_error_t error;
    /* The first failure. After a failure, the functions do nothing. */
    truce_status status;
};

/* Applies an update. Takes ownership of both documents and destroys them. */
static void rename_change(struct rename *demo, const char *collection, bson_t *filter,
                          bson_t *update)
{
    truce_write_options many = {.multi = true};

    if (!demo->status)
        demo->status =
            truce_update(demo->store, collection, filter, update, &many, NULL, &demo->error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void rename_insert(struct rename *demo, const char *collection, bson_t *document)
{
    if (!demo->status)
        demo->status = truce_insert(demo->store, collection, document, NULL, &demo->error);
    bson_destroy(document);
}

static void rename_declare(struct rename *demo)
{
    bson_t *copies = BCON_NEW("author", "name");
    truce_sync_rule rule = {.name = "author",
                            .source = "users",
                            .dependent = "comments",
                            .reference = "user",
                            .copies = copies,
                            .resume_ms = 1,
                            .settle_ms = 1};

    demo->sync = truce_sync_new(demo->store, NULL);
    demo->status = truce_sync_declare(demo->sync, &rule, &demo->error);
    bson_destroy(copies);
}

static void rename_begin(struct rename *demo, enum way way)
{
    if (!demo->status)
        demo->status = demo_stage_clear(&demo->stage, &demo->error);
    if (!demo->status)
        demo->status = truce_store_open(demo->stage.uri, NULL, &demo->store, &demo->error);
    rename_insert(demo, "users", BCON_NEW("_id", BCON_INT32(17), "name", "John"));
    for (int i = 0; i < COMMENTS; i++)
        rename_insert(demo, "comments",
                      BCON_NEW("_id", BCON_INT32(i), "user", BCON_INT32(17), "author", "John"));
    if (way == TRUCE && !demo->status)
        rename_declare(demo);
}

/* ---- the parts of a rename ------------------------------------------------------------------- */

/* Writes only to the source, like a process that stops after this write (truce_commit_function). */
static truce_status demo_rename_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct rename *demo = ((void **)arg)[0];
    bson_t *update = BCON_NEW("$set", "{", "name", BCON_UTF8(((void **)arg)[1]), "}");
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 17};
    truce_status status = truce_sync_update(demo->sync, commit, "users", &id, update, NULL, error);

    bson_destroy(update);
    return status;
}

static void set_name(struct rename *demo, enum way way, const char *name, bson_t *user)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(17));

    bson_init(user);
    if (way == USUAL)
        rename_change(
            demo, "users", bson_copy(filter),
            BCON_NEW("$set", "{", "name", BCON_UTF8(name), "syncing", BCON_DATE_TIME(1000), "}"));
    else if (!demo->status)
        demo->status = truce_transact(demo->store, demo_rename_in, (void *[]){demo, (void *)name},
                                      NULL, &demo->error);
    if (!demo->status) {
        bson_destroy(user);
        demo->status = truce_find_one(demo->store, "users", filter, NULL, user, &demo->error);
    }
    bson_destroy(filter);
}

/* Copies to `count` comments from `first` on. */
static void rename_copy(struct rename *demo, enum way way, const bson_t *user, int first, int count)
{
    bson_t *filter = BCON_NEW("user", BCON_INT32(17), "_id", "{", "$gte", BCON_INT32(first), "$lt",
                              BCON_INT32(first + count), "}");
    bson_iter_t name, revision, origin;
    bson_t *update;

    if (demo->status || !bson_iter_init_find(&name, user, "name")) {
        bson_destroy(filter);
        return;
    }
    if (way == TRUCE && bson_iter_init_find(&revision, user, "syncRevision") &&
        bson_iter_init_find(&origin, user, "syncOrigin")) {
        int64_t number = bson_iter_as_int64(&revision);

        BCON_APPEND(filter, "synced.author.revision", "{", "$not", "{", "$gte", BCON_INT64(number),
                    "}", "}");
        update = BCON_NEW("$set", "{", "author", BCON_ITER(&name), "synced.author", "{", "source",
                          BCON_INT32(17), "origin", BCON_ITER(&origin), "revision",
                          BCON_INT64(number), "}", "}");
    } else {
        update = BCON_NEW("$set", "{", "author", BCON_ITER(&name), "}");
    }
    rename_change(demo, "comments", filter, update);
}

static void take_flag_off(struct rename *demo, enum way way, const bson_t *user)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(17));
    bson_iter_t token;

    if (way == TRUCE && bson_iter_init_find(&token, user, "syncing"))
        BCON_APPEND(filter, "syncing", BCON_ITER(&token));
    rename_change(demo, "users", filter, BCON_NEW("$unset", "{", "syncing", BCON_BOOL(true), "}"));
}

/* Writes the flagged copies. Both variants have a process that searches for flags. */
static void rename_sweep(struct rename *demo, enum way way)
{
    truce_sweep_report report;
    bson_t user = BSON_INITIALIZER,
           *flagged = BCON_NEW("syncing", "{", "$exists", BCON_BOOL(true), "}");

    if (way == TRUCE && !demo->status) {
        demo->status = truce_sweep(demo->store, NULL, &report, &demo->error);
    } else if (!demo->status) {
        bson_destroy(&user);
        demo->status = truce_find_one(demo->store, "users", flagged, NULL, &user, &demo->error);
        if (!demo->status)
            rename_copy(demo, way, &user, 0, COMMENTS);
        else if (demo->status == TRUCE_NOT_FOUND)
            demo->status = TRUCE_OK;
    }
    bson_destroy(&user);
    bson_destroy(flagged);
}

static int64_t rename_count_stale(struct rename *demo)
{
    bson_t *filter = BCON_NEW("author", "{", "$ne", "Johnny", "}");
    int64_t count = -1;

    if (!demo->status)
        demo->status = truce_count(demo->store, "comments", filter, NULL, &count, &demo->error);
    bson_destroy(filter);
    return count;
}

static int64_t rename_play(struct rename *demo, enum way way)
{
    bson_t first, second;
    int64_t left;

    rename_begin(demo, way);
    set_name(demo, way, "Jon", &first);
    rename_copy(demo, way, &first, 0, COMMENTS / 2); /* The first process, which stops here. */
    set_name(demo, way, "Johnny", &second);          /* The second process, which dies here. */
    rename_copy(demo, way, &first, COMMENTS / 2, COMMENTS / 2); /* The first process resumes. */
    take_flag_off(demo, way, &first);
    rename_sweep(demo, way);
    left = rename_count_stale(demo);
    bson_destroy(&first);
    bson_destroy(&second);
    truce_sync_free(demo->sync);
    demo->sync = NULL;
    truce_store_close(demo->store);
    demo->store = NULL;
    return left;
}

int demo_rename(struct cli *cli)
{
    struct rename demo = {.status = TRUCE_OK};
    bson_t answer = BSON_INITIALIZER;
    int64_t left[WAYS];
    int code = demo_stage_begin(&demo.stage, cli, "rename", NULL);

    if (code)
        return code;
    for (enum way way = USUAL; way < WAYS; way++)
        left[way] = rename_play(&demo, way);
    demo_stage_end(&demo.stage);
    if (demo.status) {
        bson_destroy(&answer);
        return cli_error(cli, "rename", demo.status, &demo.error);
    }
    BSON_APPEND_UTF8(&answer, "story", "rename");
    for (enum way way = USUAL; way < WAYS; way++)
        BSON_APPEND_INT64(&answer, way_names[way], left[way]);
    cli_answer(cli, &answer,
               "rename       a user with %d comments is renamed twice at once; of the two\n"
               "             processes, one stops halfway, and the other dies\n"
               "             a flag         %" PRId64 " comments have an old name forever: %s\n"
               "             truce          %" PRId64 " comments have an old name: %s",
               COMMENTS, left[USUAL], left[USUAL] ? "wrong" : "right", left[TRUCE],
               left[TRUCE] ? "wrong" : "right");
    bson_destroy(&answer);
    return cli_output_end(left[TRUCE] ? CLI_NO : CLI_DONE);
}
