/*
 * truce demo tree: 100 pages belong to 10 chapters. One edit moves ten pages under a new chapter
 * and dies before it writes the chapter. Another edit of other pages is published. A reader walks
 * the tree after each step and counts pages without their chapter.
 *
 * There are three variants: edits in place; version numbers alone, where the second edit publishes
 * the rest of the first one under the same number; and truce.
 */
#include <inttypes.h>

#include "base/field.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define PAGES    100
#define CHAPTERS 10
#define MOVED    10
#define CHAPTER  1000 /* The itemId of the first chapter. The itemIds of pages begin at 0. */

enum way { IN_PLACE, NUMBERS, TRUCE, WAYS };
static const char *const way_names[] = {"in_place", "numbers", "truce"};

struct tree_demo {
    struct demo_stage stage;
    truce_store *store;
    truce_tree *tree;
    truce_tree_edit *edit;
    enum way way;
    /* With NUMBERS: the version that is being written. */
    int version;
    bson_error_t error;
    /* The first failure. After a failure, the functions do nothing. */
    truce_status status;
};

/* ---- writing --------------------------------------------------------------------------------- */

static void write_item(struct tree_demo *demo, int id, int up)
{
    bson_t *item = BCON_NEW("itemId", BCON_INT32(id), "up", BCON_INT32(up)),
           *filter = BCON_NEW("itemId", BCON_INT32(id));
    truce_write_options upsert = {.upsert = true};

    if (demo->status) {
        ;
    } else if (demo->way == TRUCE) {
        demo->status = truce_tree_put(demo->edit, item, &demo->error);
    } else if (demo->way == NUMBERS) {
        BSON_APPEND_INT32(item, "version", demo->version);
        demo->status = truce_insert(demo->store, "pages", item, NULL, &demo->error);
    } else {
        demo->status =
            truce_update(demo->store, "pages", filter, item, &upsert, NULL, &demo->error);
    }
    bson_destroy(filter);
    bson_destroy(item);
}

static void tree_begin_edit(struct tree_demo *demo, int version)
{
    demo->version = version;
    if (!demo->status && demo->way == TRUCE)
        demo->status = truce_tree_begin(demo->tree, NULL, &demo->edit, &demo->error);
}

/* Publishes the edit. An edit in place has nothing to publish. */
static void demo_tree_publish(struct tree_demo *demo)
{
    bson_t *filter = BCON_NEW("_id", "site"),
           *update = BCON_NEW("$set", "{", "current", BCON_INT32(demo->version), "}");
    truce_write_options upsert = {.upsert = true};

    if (!demo->status && demo->way == NUMBERS)
        demo->status =
            truce_update(demo->store, "masters", filter, update, &upsert, NULL, &demo->error);
    if (!demo->status && demo->way == TRUCE)
        demo->status = truce_tree_publish(demo->edit, NULL, NULL, &demo->error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void tree_end_edit(struct tree_demo *demo)
{
    if (demo->edit && !demo->status)
        demo->status = truce_tree_flush(demo->edit, &demo->error);
    truce_tree_edit_free(demo->edit);
    demo->edit = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct walk {
    /* For each page that was read, the number of its chapter. */
    int up[PAGES];
    /* The chapter was read. */
    bool chapters[CHAPTERS + 1];
};

/* Records an item of the walk (truce_tree_function). */
static bool tree_visit(const bson_t *item, void *arg)
{
    struct walk *walk = arg;
    int64_t id = truce__field_number(item, "itemId");

    if (id >= CHAPTER && id <= CHAPTER + CHAPTERS)
        walk->chapters[id - CHAPTER] = true;
    else if (id >= 0 && id < PAGES)
        walk->up[id] = (int)truce__field_number(item, "up");
    return true;
}

/* Reads the last version of each item, up to the published one. Edits in place leave only one
 * version. */
static void walk_plainly(struct tree_demo *demo, struct walk *walk)
{
    bson_t *which = BCON_NEW("_id", "site"), *sort = BCON_NEW("version", BCON_INT32(1)), *filter,
           master;
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *document;

    demo->status = truce_find_one(demo->store, "masters", which, NULL, &master, &demo->error);
    if (demo->status == TRUCE_NOT_FOUND)
        demo->status = TRUCE_OK;
    filter = BCON_NEW("version", "{", "$not", "{", "$gt",
                      BCON_INT64(truce__field_number(&master, "current")), "}", "}");
    if (!demo->status)
        demo->status = truce_find(demo->store, "pages", filter, &options, &cursor, &demo->error);
    while (!demo->status && !(demo->status = truce_cursor_next(cursor, &document, &demo->error)) &&
           document)
        (void)tree_visit(document, walk);
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(&master);
    bson_destroy(sort);
    bson_destroy(which);
}

/* Counts pages whose chapter is missing. */
static int64_t tale_count_orphans(struct tree_demo *demo)
{
    truce_tree_snapshot *snapshot = NULL;
    struct walk walk = {0};
    int64_t count = 0;

    if (demo->status)
        return 0;
    if (demo->way == TRUCE) {
        demo->status = truce_tree_open(demo->tree, NULL, &snapshot, &demo->error);
        if (!demo->status)
            demo->status = truce_tree_find(snapshot, NULL, NULL, tree_visit, &walk, &demo->error);
        truce_tree_close(snapshot);
    } else {
        walk_plainly(demo, &walk);
    }
    for (int i = 0; i < PAGES; i++)
        count += walk.up[i] < CHAPTER || !walk.chapters[walk.up[i] - CHAPTER];
    return count;
}

/* ---- the story ------------------------------------------------------------------------------- */

static void tree_begin(struct tree_demo *demo)
{
    if (!demo->status)
        demo->status = demo_stage_clear(&demo->stage, &demo->error);
    if (!demo->status)
        demo->status = truce_store_open(demo->stage.uri, NULL, &demo->store, &demo->error);
    if (!demo->status)
        demo->tree = truce_tree_new(demo->store,
                                    &(truce_tree_options){.collection = "pages", .name = "site"});
    tree_begin_edit(demo, 1);
    for (int i = 0; i < CHAPTERS; i++)
        write_item(demo, CHAPTER + i, 0);
    for (int i = 0; i < PAGES; i++)
        write_item(demo, i, CHAPTER + i % CHAPTERS);
    demo_tree_publish(demo);
    tree_end_edit(demo);
}

static int64_t tree_play(struct tree_demo *demo, enum way way)
{
    int64_t most = 0, now;

    demo->way = way;
    tree_begin(demo);
    tree_begin_edit(demo, 2); /* The first edit, which dies before it writes the chapter. */
    for (int i = 0; i < MOVED; i++) {
        write_item(demo, i, CHAPTER + CHAPTERS);
        now = tale_count_orphans(demo);
        most = now > most ? now : most;
    }
    tree_end_edit(demo);
    tree_begin_edit(demo, 2); /* The second edit. */
    write_item(demo, CHAPTER, 0);
    demo_tree_publish(demo);
    tree_end_edit(demo);
    now = tale_count_orphans(demo);
    truce_tree_free(demo->tree);
    demo->tree = NULL;
    truce_store_close(demo->store);
    demo->store = NULL;
    return now > most ? now : most;
}

int demo_tree(struct cli *cli)
{
    struct tree_demo demo = {.status = TRUCE_OK};
    bson_t answer = BSON_INITIALIZER;
    int64_t seen[WAYS];
    int code = demo_stage_begin(&demo.stage, cli, "tree", NULL);

    if (code)
        return code;
    for (enum way way = IN_PLACE; way < WAYS; way++)
        seen[way] = tree_play(&demo, way);
    demo_stage_end(&demo.stage);
    if (demo.status) {
        bson_destroy(&answer);
        return cli_error(cli, "tree", demo.status, &demo.error);
    }
    BSON_APPEND_UTF8(&answer, "story", "tree");
    for (enum way way = IN_PLACE; way < WAYS; way++)
        BSON_APPEND_INT64(&answer, way_names[way], seen[way]);
    cli_answer(
        cli, &answer,
        "tree         a reader walks %d pages while one edit, which moves %d of them under a\n"
        "             new chapter, dies before the chapter, and another one is published\n"
        "             in place       %" PRId64 " pages hang under no chapter: %s\n"
        "             numbers alone  %" PRId64 " pages hang under no chapter: %s\n"
        "             truce          %" PRId64 " pages hang under no chapter: %s",
        PAGES, MOVED, seen[IN_PLACE], seen[IN_PLACE] ? "wrong" : "right", seen[NUMBERS],
        seen[NUMBERS] ? "wrong" : "right", seen[TRUCE], seen[TRUCE] ? "wrong" : "right");
    bson_destroy(&answer);
    return cli_output_end(seen[TRUCE] ? CLI_NO : CLI_DONE);
}
