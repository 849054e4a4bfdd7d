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

struct tale {
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

static void write_item(struct tale *tale, int id, int up)
{
    bson_t *item = BCON_NEW("itemId", BCON_INT32(id), "up", BCON_INT32(up)),
           *filter = BCON_NEW("itemId", BCON_INT32(id));
    truce_write_options upsert = {.upsert = true};

    if (tale->status) {
        ;
    } else if (tale->way == TRUCE) {
        tale->status = truce_tree_put(tale->edit, item, &tale->error);
    } else if (tale->way == NUMBERS) {
        BSON_APPEND_INT32(item, "version", tale->version);
        tale->status = truce_insert(tale->store, "pages", item, NULL, &tale->error);
    } else {
        tale->status =
            truce_update(tale->store, "pages", filter, item, &upsert, NULL, &tale->error);
    }
    bson_destroy(filter);
    bson_destroy(item);
}

static void tree_begin_edit(struct tale *tale, int version)
{
    tale->version = version;
    if (!tale->status && tale->way == TRUCE)
        tale->status = truce_tree_begin(tale->tree, NULL, &tale->edit, &tale->error);
}

/* Publishes the edit. An edit in place has nothing to publish. */
static void demo_tree_publish(struct tale *tale)
{
    bson_t *filter = BCON_NEW("_id", "site"),
           *update = BCON_NEW("$set", "{", "current", BCON_INT32(tale->version), "}");
    truce_write_options upsert = {.upsert = true};

    if (!tale->status && tale->way == NUMBERS)
        tale->status =
            truce_update(tale->store, "masters", filter, update, &upsert, NULL, &tale->error);
    if (!tale->status && tale->way == TRUCE)
        tale->status = truce_tree_publish(tale->edit, NULL, NULL, &tale->error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void tree_end_edit(struct tale *tale)
{
    if (tale->edit && !tale->status)
        tale->status = truce_tree_flush(tale->edit, &tale->error);
    truce_tree_edit_free(tale->edit);
    tale->edit = NULL;
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
static void walk_plainly(struct tale *tale, struct walk *walk)
{
    bson_t *which = BCON_NEW("_id", "site"), *sort = BCON_NEW("version", BCON_INT32(1)), *filter,
           master;
    truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *document;

    tale->status = truce_find_one(tale->store, "masters", which, NULL, &master, &tale->error);
    if (tale->status == TRUCE_NOT_FOUND)
        tale->status = TRUCE_OK;
    filter = BCON_NEW("version", "{", "$not", "{", "$gt",
                      BCON_INT64(truce__field_number(&master, "current")), "}", "}");
    if (!tale->status)
        tale->status = truce_find(tale->store, "pages", filter, &options, &cursor, &tale->error);
    while (!tale->status && !(tale->status = truce_cursor_next(cursor, &document, &tale->error)) &&
           document)
        (void)tree_visit(document, walk);
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(&master);
    bson_destroy(sort);
    bson_destroy(which);
}

/* Counts pages whose chapter is missing. */
static int64_t tale_count_orphans(struct tale *tale)
{
    truce_tree_snapshot *snapshot = NULL;
    struct walk walk = {0};
    int64_t count = 0;

    if (tale->status)
        return 0;
    if (tale->way == TRUCE) {
        tale->status = truce_tree_open(tale->tree, NULL, &snapshot, &tale->error);
        if (!tale->status)
            tale->status = truce_tree_find(snapshot, NULL, NULL, tree_visit, &walk, &tale->error);
        truce_tree_close(snapshot);
    } else {
        walk_plainly(tale, &walk);
    }
    for (int i = 0; i < PAGES; i++)
        count += walk.up[i] < CHAPTER || !walk.chapters[walk.up[i] - CHAPTER];
    return count;
}

/* ---- the story ------------------------------------------------------------------------------- */

static void tree_begin(struct tale *tale)
{
    if (!tale->status)
        tale->status = demo_stage_clear(&tale->stage, &tale->error);
    if (!tale->status)
        tale->status = truce_store_open(tale->stage.uri, NULL, &tale->store, &tale->error);
    if (!tale->status)
        tale->tree = truce_tree_new(tale->store,
                                    &(truce_tree_options){.collection = "pages", .name = "site"});
    tree_begin_edit(tale, 1);
    for (int i = 0; i < CHAPTERS; i++)
        write_item(tale, CHAPTER + i, 0);
    for (int i = 0; i < PAGES; i++)
        write_item(tale, i, CHAPTER + i % CHAPTERS);
    demo_tree_publish(tale);
    tree_end_edit(tale);
}

static int64_t tree_play(struct tale *tale, enum way way)
{
    int64_t most = 0, now;

    tale->way = way;
    tree_begin(tale);
    tree_begin_edit(tale, 2); /* The first edit, which dies before it writes the chapter. */
    for (int i = 0; i < MOVED; i++) {
        write_item(tale, i, CHAPTER + CHAPTERS);
        now = tale_count_orphans(tale);
        most = now > most ? now : most;
    }
    tree_end_edit(tale);
    tree_begin_edit(tale, 2); /* The second edit. */
    write_item(tale, CHAPTER, 0);
    demo_tree_publish(tale);
    tree_end_edit(tale);
    now = tale_count_orphans(tale);
    truce_tree_free(tale->tree);
    tale->tree = NULL;
    truce_store_close(tale->store);
    tale->store = NULL;
    return now > most ? now : most;
}

int demo_tree(struct cli *cli)
{
    struct tale tale = {.status = TRUCE_OK};
    bson_t answer = BSON_INITIALIZER;
    int64_t seen[WAYS];
    int code = demo_stage_begin(&tale.stage, cli, "tree", NULL);

    if (code)
        return code;
    for (enum way way = IN_PLACE; way < WAYS; way++)
        seen[way] = tree_play(&tale, way);
    demo_stage_end(&tale.stage);
    if (tale.status) {
        bson_destroy(&answer);
        return cli_error(cli, "tree", tale.status, &tale.error);
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
