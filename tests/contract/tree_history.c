/* Histories of trees: export as lines, and import; truncated, continued, and invalid histories. */
#include <string.h>

#include "base/field.h"
#include "base/random.h"
#include "tests/support/tree_rig.h"

struct lines {
    bson_t *all[400];
    size_t count;
};

static bool take_line(const bson_t *line, void *arg)
{
    struct lines *lines = arg;

    lines->all[lines->count++] = bson_copy(line);
    return lines->count < sizeof lines->all / sizeof *lines->all;
}

static void export_lines(truce_tree *tree, int64_t from, struct lines *lines)
{
    bson_error_t error = {0};

    lines->count = 0;
    CHECK_OK(truce_tree_export(tree, from, take_line, lines, &error), error);
}

static void release(struct lines *lines)
{
    while (lines->count)
        bson_destroy(lines->all[--lines->count]);
}

static truce_status import_lines(truce_tree *tree, const struct lines *lines, size_t count,
                                 truce_tree_imported *imported, bson_error_t *error)
{
    truce_tree_import *import = truce_tree_import_new(tree);
    truce_status status = TRUCE_OK;

    for (size_t i = 0; !status && i < count; i++)
        status = truce_tree_import_line(import, lines->all[i], error);
    if (!status)
        status = truce_tree_import_end(import, imported, error);
    truce_tree_import_free(import);
    return status;
}

static truce_tree *named(truce_store *store, const char *name)
{
    return truce_tree_new(store, &(truce_tree_options){.name = name});
}

static void same_lines(const struct lines *a, const struct lines *b)
{
    CHECK_INT(a->count, ==, b->count);
    for (size_t i = 1; i < a->count && i < b->count; i++) {
        if (!bson_equal(a->all[i], b->all[i]))
            test_fail(__FILE__, __LINE__, "line %d differs", (int)i);
    }
}

/* ---- export and import ----------------------------------------------------------------------- */

static void comes_back(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *copy = named(store, "copy");
    struct lines lines = {0}, again = {0};
    truce_tree_imported imported;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(site, "b=2 -a c=2", NULL, &error), error);
    CHECK_OK(rig_publish(site, "c=2", NULL, &error), error); /* nothing is another */
    CHECK_OK(rig_publish(site, "a=4", NULL, &error), error);
    CHECK_OK(truce_tree_tag(site, "second", 2, &error), error);
    export_lines(site, 0, &lines);
    CHECK_OK(import_lines(copy, &lines, lines.count, &imported, &error), error);
    CHECK_INT(imported.published, ==, 4);
    CHECK_INT(imported.version, ==, 4);
    CHECK_TREE("a=1 b=1", copy, 1);
    CHECK_TREE("b=2 c=2", copy, 2);
    CHECK_TREE("b=2 c=2", copy, 3);
    CHECK_TREE("a=4 b=2 c=2", copy, 0);
    export_lines(copy, 0, &again);
    same_lines(&lines, &again);
    /* once more: all is there */
    CHECK_OK(import_lines(copy, &lines, lines.count, &imported, &error), error);
    CHECK_INT(imported.published, ==, 0);
    CHECK_INT(imported.passed, ==, 4);
    /* the later versions are added */
    release(&again);
    CHECK_OK(rig_publish(site, "-b", NULL, &error), error);
    export_lines(site, 5, &again);
    CHECK_OK(import_lines(copy, &again, again.count, &imported, &error), error);
    CHECK_INT(imported.published, ==, 1);
    CHECK_TREE("a=4 c=2", copy, 5);
    /* the copy has changed independently: then there is another version 6 */
    CHECK_OK(rig_publish(copy, "z=1", NULL, &error), error);
    CHECK_OK(rig_publish(site, "y=1", NULL, &error), error);
    release(&again);
    export_lines(site, 0, &again);
    CHECK_STATUS(TRUCE_INVALID, import_lines(copy, &again, again.count, &imported, &error), error);
    CHECK(strstr(error.message, "version 6 of tree \"copy\" differs from that version"));
    CHECK_TREE("a=4 c=2 z=1", copy, 0);
    release(&again);
    release(&lines);
    truce_tree_free(copy);
    truce_tree_free(site);
}

TEST(a_history_that_is_read_again_is_the_same)
{
    rig_everywhere(comes_back);
}

static void keeps_numbers(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *copy = named(store, "copy");
    struct lines lines = {0}, again = {0};
    struct rig_text gone;
    bson_error_t error = {0};

    (void)setting;
    for (int i = 1; i <= 5; i++) {
        char text[20];

        snprintf(text, sizeof text, "a=%d b=%d", i, i % 2);
        CHECK_OK(rig_publish(site, text, NULL, &error), error);
    }
    rig_keep(site, 2);
    rig_collect(site, NULL);
    export_lines(site, 0, &lines);
    CHECK_INT(truce__field_number(lines.all[0], "from"), ==, 4);
    CHECK_OK(import_lines(copy, &lines, lines.count, NULL, &error), error);
    CHECK_TREE("a=4 b=0", copy, 4);
    CHECK_TREE("a=5 b=1", copy, 5);
    for (int version = 1; version <= 3; version++)
        CHECK_STATUS(TRUCE_EXPIRED, rig_see(copy, version, &gone, &error), error);
    export_lines(copy, 0, &again);
    same_lines(&lines, &again);
    rig_collect(copy, NULL);
    CHECK_OK(rig_publish(copy, "c=6", NULL, &error), error);
    CHECK_TREE("a=5 b=1 c=6", copy, 6);
    CHECK_STATUS(TRUCE_EXPIRED, truce_tree_export(site, 3, take_line, &again, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_export(site, 7, take_line, &again, &error), error);
    release(&again);
    export_lines(site, 5, &again);
    CHECK_OK(truce_tree_drop(copy, &error), error);
    CHECK_STATUS(TRUCE_INVALID, import_lines(copy, &again, again.count, NULL, &error), error);
    CHECK(strstr(error.message, "does not follow"));
    release(&again);
    release(&lines);
    truce_tree_free(copy);
    truce_tree_free(site);
}

TEST(versions_keep_their_numbers)
{
    rig_everywhere(keeps_numbers);
}

/* Truncates after each line: the import has whole versions; the rest comes with the whole file. */
static void is_cut_off(truce_store *store, const struct setting *setting)
{
    static const char *const wanted[] = {"", "a=1 b=1", "b=2 c=2", "a=3 b=2 c=2"};
    truce_tree *site = rig_tree(store, NULL, 0);
    struct lines lines = {0};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(site, "b=2 -a c=2", NULL, &error), error);
    CHECK_OK(rig_publish(site, "a=3", NULL, &error), error);
    CHECK_OK(truce_tree_tag(site, "second", 2, &error), error);
    export_lines(site, 0, &lines);
    for (size_t at = 1; at < lines.count; at++) {
        truce_tree *copy = named(store, "copy");
        truce_tree_imported imported = {0};
        truce_tree_snapshot *snapshot;

        CHECK_STATUS(TRUCE_INVALID, import_lines(copy, &lines, at, &imported, &error), error);
        CHECK(strstr(error.message, "truncated"));
        if (truce_tree_open(copy, NULL, &snapshot, &error) == TRUCE_OK) {
            CHECK_TREE(wanted[truce_tree_version(snapshot)], copy, 0);
            truce_tree_close(snapshot);
        }
        CHECK_OK(import_lines(copy, &lines, lines.count, &imported, &error), error);
        CHECK_INT(imported.published + imported.passed, ==, 3);
        CHECK_TREE(wanted[3], copy, 0);
        CHECK_TREE(wanted[2], copy, 2);
        CHECK_OK(truce_tree_drop(copy, &error), error);
        truce_tree_free(copy);
    }
    release(&lines);
    truce_tree_free(site);
}

TEST(repeats_an_interrupted_import)
{
    rig_everywhere(is_cut_off);
}

/* ---- invalid records ------------------------------------------------------------------------- */

static void refused(truce_store *store, const char *const *texts, const char *why)
{
    truce_tree *copy = named(store, "copy");
    struct lines lines = {0};
    bson_error_t error = {0};

    for (; *texts; texts++)
        lines.all[lines.count++] = test_bson(*texts);
    CHECK_STATUS(TRUCE_INVALID, import_lines(copy, &lines, lines.count, NULL, &error), error);
    if (!strstr(error.message, why))
        test_fail(__FILE__, __LINE__, "\"%s\" has no \"%s\"", error.message, why);
    release(&lines);
    truce_tree_free(copy);
}

#define REFUSED(why, ...) refused(store, (const char *const[]){__VA_ARGS__, NULL}, why)
#define HEAD              "{'$tree': 's', 'collection': 'pages', 'from': 1, 'to': 1, 'whole': true}"

TEST(refuses_lines_that_are_not_a_history)
{
    truce_store *store = NULL;
    bson_error_t error = {0};

    if (!CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error))
        return;
    REFUSED("must begin with", "{'itemId': 'a'}");
    REFUSED("must begin with", "{'$end': 1}");
    REFUSED("no \"collection\"", "{'$tree': 's', 'from': 1}");
    REFUSED("no \"collection\"", "{'$tree': 's', 'collection': 'pages'}");
    REFUSED("reserved for truce", "{'$tree': 's', 'collection': 'truce_trees', 'from': 1}");
    REFUSED("twice", HEAD, HEAD);
    REFUSED("before the line", HEAD, "{'itemId': 'a'}");
    REFUSED("does not follow", HEAD, "{'$version': 2}");
    REFUSED("does not follow", HEAD, "{'$version': 'x'}");
    REFUSED("does not follow", HEAD, "{'$version': -1}");
    REFUSED("truncated", HEAD);
    REFUSED("no field \"itemId\"", HEAD, "{'$version': 1}", "{'a': 1}");
    REFUSED("after {$end", HEAD, "{'$end': 0}", "{'$version': 1}");
    CHECK_INT(count_json(store, "pages", "{}"), ==, 0);
    truce_store_close(store);
}
