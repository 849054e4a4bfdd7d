/* Trees of versions as commands: their answers and their errors. */
#include "tests/support/served_story.h"

#define ID_1                "{$oid: '0123456789abcdef01234567'}"
#define ID_2                "{$oid: '0123456789abcdef01234568'}"

#define PUBLISH(more)       "{truceTreePublish: 'site', collection: 'pages', " more "}"
#define PUT(id, text)       "{put: {itemId: '" id "', text: '" text "'}}"
#define SITE(changes, more) PUBLISH("changes: [" changes "]" more)
#define READ(more)          "{truceTreeRead: 'site'" more "}"

/* Returns the command with the answer's value at a path in place of every %s. The caller frees
 * it. */
static char *with(const char *command, const char *asked, const char *path)
{
    int end_ = dial();
    bson_t *reply = send_typed(end_, asked);
    char *text = shown(reply, path), *whole = bson_strdup_printf(command, text ? text : "0");

    CHECK(text);
    bson_free(text);
    bson_destroy(reply);
    close(end_);
    return whole;
}

static void tell_one(const char *command, int code, const char *path, const char *text)
{
    const struct step step = {command, code, path, text};

    tell(&step, 1);
}

TEST(versions_are_published_and_read_by_the_wire)
{
    static const struct step steps[] = {
        {READ(""), 0, "status", "\"not found\""},
        {"{truceTree: 'site'}", 0, "status", "\"not found\""},
        {"{truceTreeLog: 'site'}", 0, "status", "\"not found\""},
        {"{truceTreePublish: 'site', changes: [" PUT("a", "1") "]}", 125, "status",
         "\"not found\""}, /* no collection was declared */
        {SITE(PUT("a", "1") ", " PUT("b", "1"), ", base: 'new', message: 'first', author: 'ada'"),
         0, "outcome", "\"published\""},
        {SITE(PUT("c", "1"), ", base: 'new'"), 0, "outcome", "\"conflict\""},
        {SITE(PUT("c", "1"), ", base: 'new'"), 0, "reason",
         "\"version 1 of tree \\\"site\\\" is current, but the edit is based on version 0\""},
        {SITE(PUT("a", "2") ", {remove: 'b'}, " PUT("c", "2"), ""), 0, "version", "2"},
        {SITE("{remove: 'nothing'}", ""), 0, "outcome", "\"published\""},
        {SITE("", ""), 0, "outcome", "\"nothing\""},
        {READ(", id: 'a'"), 0, "item.text", "\"2\""},
        {READ(", id: 'a', version: 1"), 0, "item.text", "\"1\""},
        {READ(", id: 'b'"), 0, "status", "\"not found\""},
        {READ(", id: 'b'"), 0, "version", "3"},
        {READ(", version: 1"), 0, "items.1.itemId", "\"b\""},
        {READ(", version: 9"), 0, "status", "\"not found\""},
        {READ(", timeMS: 1000000000000"), 0, "status", "\"not found\""},
        {READ(", filter: {text: '2'}"), 0, "items.1.itemId", "\"c\""},
        {READ(", tag: 'launch'"), 0, "status", "\"not found\""},
        {"{truceTree: 'site', tag: 'launch', version: 1}", 0, "status", "\"ok\""},
        {READ(", tag: 'launch'"), 0, "version", "1"},
        {"{truceTree: 'site'}", 0, "tags", "{\"launch\": 1}"},
        {"{truceTree: 'site'}", 0, "collection", "\"pages\""},
        {"{truceTreeLog: 'site'}", 0, "versions.2.message", "\"first\""},
        {"{truceTreeLog: 'site', limit: 2}", 0, "more", "true"},
        {"{truceTreeLog: 'site', limit: 2, before: 2}", 0, "versions.0.author", "\"ada\""},
        {"{truceTreeLog: 'site', limit: 2, before: 2}", 0, "more", "false"},
        {"{truceTreeDiff: 'site', from: 1, to: 2}", 0, "changes.1.change", "\"removed\""},
        {"{truceTreeDiff: 'site', from: 1, to: 2}", 0, "changes.0.before", NULL},
        {"{truceTreeDiff: 'site', from: 1, to: 2, contents: true, limit: 1}", 0,
         "changes.0.before.text", "\"1\""},
        {"{truceTreeDiff: 'site', from: 1, to: 2, limit: 1}", 0, "more", "true"},
        {"{truceTreeDiff: 'site', from: 1, to: 2, after: 'b'}", 0, "changes.0.itemId", "\"c\""},
        {"{truceTreeDiff: 'site', from: 1, to: 2, after: 'b'}", 0, "more", "false"},
        {"{truceTreeDiff: 'site', from: 1, to: 9}", 0, "status", "\"not found\""},
        {PUBLISH("revert: 1, message: 'back'"), 0, "version", "4"},
        {READ(", id: 'b'"), 0, "item.text", "\"1\""},
        {PUBLISH("revert: 9"), 125, "status", "\"not found\""},
        {"{truceTree: 'site', keep: {versions: 1}}", 0},
        {"{truceTree: 'site', untag: 'launch'}", 0},
        {"{truceTree: 'site', untag: 'launch'}", 0, "status", "\"not found\""},
        {"{truceTree: 'site', collect: true}", 0, "settled", "4"},
        {READ(", version: 1"), 125, "status", "\"expired\""},
        {"{truceTree: 'site', erase: 'a'}", 0, "versions", "1"},
        {READ(", id: 'a'"), 0, "status", "\"not found\""},
        {"{truceTree: 'site', drop: true}", 0},
        {READ(""), 0, "status", "\"not found\""},
        /* another one of its name, elsewhere */
        {"{truceTreePublish: 'site', collection: 'others', changes: [" PUT("z", "1") "]}", 0,
         "version", "1"},
        {READ(""), 0, "items.0.itemId", "\"z\""},
        {"{count: 'pages'}", 0, "n", "0"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_invalid_trees_by_name)
{
    static const struct step steps[] = {
        {PUBLISH("base: 'new'"), 72},
        {PUBLISH("changes: [], revert: 1"), 72},
        {PUBLISH("revert: 0"), 2},
        {PUBLISH("changes: {}"), 14},
        {PUBLISH("changes: [1]"), 14, "errmsg",
         "\"change 1: must be {put: ITEM} or {remove: itemId}, not 1\""},
        {PUBLISH("changes: [{}]"), 14},
        {PUBLISH("changes: [{set: 1}]"), 40415},
        {PUBLISH("changes: [{put: 1}]"), 14},
        {PUBLISH("changes: [{put: {itemId: 1}, remove: 2}]"), 40415},
        {PUBLISH("changes: [{put: {title: 'no id'}}]"), 2, "status", "\"invalid\""},
        {PUBLISH("changes: [{put: {itemId: 1, pub: true}}]"), 2},
        {PUBLISH("changes: [{remove: {a: 1}}]"), 2},
        {PUBLISH("changes: [{put: {itemId: 1}}], prefer: 'mine'"), 72},
        {PUBLISH("changes: [{put: {itemId: 1}}], rules: {a: 'sum'}"), 72},
        {PUBLISH("changes: [{put: {itemId: 1}}], base: 'new', merge: true, prefer: 'ours'"), 2},
        {PUBLISH("changes: [{put: {itemId: 1}}], id: 7"), 14},
        {PUBLISH("changes: [{put: {itemId: 1}}], base: 5"), 14},
        {PUBLISH("changes: [{put: {itemId: 1}}], nothing: 5"), 40415},
        {"{truceTreePublish: 7, changes: []}", 14},
        {"{truceTreePublish: '', collection: 'pages', changes: [{put: {itemId: 1}}]}", 2},
        {"{truceTreePublish: 'x', collection: '@school.pages', changes: []}", 73},
        {"{truceTreePublish: 'x', collection: 'truce_trees', changes: [{put: {itemId: 1}}]}", 2},
        {SITE(PUT("a", "1"), ""), 0},
        {PUBLISH("changes: [], base: 'nonsense'"), 125, "status", "\"not found\""},
        {PUBLISH("changes: [], base: '1-0123456789abcdef01234567'"), 125, "status",
         "\"not found\""},
        {"{truceTreePublish: 'site', collection: 'other', changes: [{put: {itemId: 1}}]}", 2,
         "status", "\"invalid\""},
        {"{truceTreePublish: 'site', parent: 'up', changes: [{put: {itemId: 1}}]}", 2},
        {"{truceTreePublish: 'org', collection: 'units', parent: 'up',"
         " changes: [{put: {itemId: 1, up: 7}}]}",
         2, "status", "\"invalid\""},
        {READ(", version: 1, tag: 'x'"), 2},
        {READ(", version: 0"), 2},
        {READ(", limit: 0"), 2},
        {READ(", limit: 1001"), 2},
        {READ(", id: 1, limit: 5"), 72},
        {READ(", id: 1, filter: {}"), 72},
        {READ(", skip: 5"), 72},
        {READ(", sort: {text: 1}, after: 'a'"), 72},
        {READ(", sort: {text: 'up'}"), 15974},
        {READ(", filter: {$nothing: 1}"), 2},
        {READ(", token: 'x'"), 0, "status", "\"not found\""},
        {"{truceTreeLog: 'site', before: 0}", 2},
        {"{truceTreeDiff: 'site', from: 1}", 40414},
        {"{truceTreeDiff: 'site', from: -1, to: 1}", 2},
        {"{truceTree: 'site', tag: 'a', untag: 'b'}", 72},
        {"{truceTree: 'site', version: 1}", 72},
        {"{truceTree: 'site', prefer: 'mine'}", 72},
        {"{truceTree: 'site', merge: 'x', prefer: 'ours'}", 2},
        {"{truceTree: 'site', keep: {days: 1}}", 40415},
        {"{truceTree: 'site', keep: {versions: -1}}", 2},
        {"{truceTree: 'site', tag: ''}", 2},
        {"{truceTree: 'site', tag: 'x', version: 7}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}

/* Two clients publish on the same version: the second gets a conflict, or merges. */
TEST(gives_a_base_one_successor_and_merges_or_reports_the_loser)
{
    char *stale, *merged, *reported, *preferred;

    begin();
    tell_one(SITE(PUT("a", "1") ", " PUT("b", "1"), ""), 0, "version", "1");
    stale = with(SITE(PUT("a", "mine"), ", base: %s"), READ(""), "token");
    merged = with(SITE(PUT("b", "mine"), ", merge: true, base: %s"), READ(""), "token");
    reported = with(SITE(PUT("a", "mine"), ", merge: true, base: %s"), READ(""), "token");
    preferred =
        with(SITE(PUT("a", "mine"), ", merge: true, prefer: 'mine', base: %s"), READ(""), "token");
    tell_one(SITE(PUT("a", "theirs"), ""), 0, "version", "2");
    tell_one(stale, 0, "outcome", "\"conflict\"");
    tell_one(stale, 0, "version", "2");
    tell_one(stale, 0, "conflicts", "[]");
    tell_one(reported, 0, "outcome", "\"conflict\"");
    tell_one(reported, 0, "reason",
             "\"1 item cannot be merged with version 2 of tree \\\"site\\\"\"");
    tell_one(reported, 0, "conflicts.0.theirs.text", "\"theirs\"");
    tell_one(reported, 0, "conflicts.0.mine.text", "\"mine\"");
    tell_one(reported, 0, "conflicts.0.base.text", "\"1\"");
    tell_one(reported, 0, "conflicts.0.paths.0.path", "\"text\"");
    tell_one(merged, 0, "version", "3");
    tell_one(READ(", id: 'a'"), 0, "item.text", "\"theirs\"");
    tell_one(READ(", id: 'b'"), 0, "item.text", "\"mine\"");
    tell_one(preferred, 0, "version", "4");
    tell_one(READ(", id: 'a'"), 0, "item.text", "\"mine\"");
    tell_one("{truceTree: 'site'}", 0, "edits", "0");
    bson_free(preferred);
    bson_free(reported);
    bson_free(merged);
    bson_free(stale);
    end();
}

TEST(returns_the_result_of_a_repeated_publication)
{
    char *based, *merged;

    begin();
    tell_one(SITE(PUT("a", "1"), ", id: " ID_1), 0, "outcome", "\"published\"");
    tell_one(SITE(PUT("a", "1"), ", id: " ID_1), 0, "outcome", "\"exists\"");
    tell_one(SITE(PUT("a", "1"), ", base: 'new', id: " ID_1), 0, "outcome", "\"exists\"");
    based = with(SITE(PUT("b", "1"), ", id: " ID_2 ", base: %s"), READ(""), "token");
    tell_one(SITE(PUT("c", "1"), ""), 0, "version", "2");
    tell_one(based, 0, "outcome", "\"conflict\"");
    merged = with(SITE(PUT("b", "1"), ", id: " ID_2 ", merge: true, base: %s"),
                  READ(", version: 1"), "token");
    tell_one(merged, 0, "version", "3");
    tell_one(SITE(PUT("b", "other"), ""), 0, "version", "4");
    tell_one(merged, 0, "outcome", "\"exists\"");
    tell_one(merged, 0, "version", "3");
    tell_one(based, 0, "outcome", "\"exists\"");
    tell_one(SITE(PUT("a", "1"), ", id: " ID_1), 0, "version", "1");
    tell_one(READ(", id: 'b'"), 0, "item.text", "\"other\"");
    tell_one("{truceTree: 'site'}", 0, "current", "4");
    tell_one("{truceTree: 'site', keep: {versions: 1}}", 0, NULL, NULL);
    tell_one("{truceTree: 'site', collect: true}", 0, NULL, NULL);
    tell_one(merged, 125, "status", "\"expired\"");
    bson_free(merged);
    bson_free(based);
    end();
}

static const char *const ids[] = {"-1",
                                  "2.5",
                                  "7",
                                  "'a'",
                                  "'b'",
                                  "{$binary: {base64: 'AAAA', subType: '00'}}",
                                  ID_1,
                                  ID_2,
                                  "false",
                                  "true",
                                  "{$date: '2026-01-01T00:00:00Z'}",
                                  "{$date: '2026-02-01T00:00:00Z'}"};

#define IDS ((int)(sizeof ids / sizeof *ids))

/* All of the version, an item a page, after the first by `token`. */
static void read_pages(const char *more, bool by_skip)
{
    char *token = NULL, *last = NULL, *behind, *command, *text;
    int end_ = dial();
    bson_t *reply;

    for (int i = 0; i < IDS; i++) {
        behind = !i        ? bson_strdup_printf(", version: %d", IDS)
                 : by_skip ? bson_strdup_printf(", skip: %d, token: %s", i, token)
                           : bson_strdup_printf(", after: %s, token: %s", last, token);
        command = bson_strdup_printf(READ(", limit: 1%s%s"), more, behind);
        reply = send_typed(end_, command);
        bson_free(last);
        last = shown(reply, "items.0.itemId");
        text = shown(reply, "more");
        if (!token)
            token = shown(reply, "token");
        CHECK_INT(reply_number(reply, "items.0.n"), ==, i);
        CHECK_INT(reply_number(reply, "version"), ==, IDS);
        CHECK_TEXT(i + 1 < IDS ? "true" : "false", text ? text : "nothing");
        bson_destroy(reply);
        bson_free(text);
        bson_free(command);
        bson_free(behind);
    }
    bson_free(last);
    bson_free(token);
    close(end_);
}

/* Ids of every type, in their order, while other clients publish. */
TEST(pages_of_a_version_have_every_item_once)
{
    begin();
    for (int i = IDS - 1; i >= 0; i--) {
        char *put = bson_strdup_printf(SITE("{put: {itemId: %s, n: %d, all: 1}}", ""), ids[i], i);

        tell_one(put, 0, "outcome", "\"published\"");
        bson_free(put);
    }
    tell_one(
        SITE("{put: {itemId: 'aa', n: 99, all: 1}}, {remove: 7}, {put: {itemId: 'b', n: 98}}", ""),
        0, "outcome", "\"published\"");
    read_pages("", false);
    read_pages(", filter: {n: {$gte: 0}}", false);
    read_pages(", sort: {n: 1}", true);
    read_pages(", sort: {all: 1}", true);
    end();
}

/* If the results exceed one answer, the next answer continues them. */
TEST(continues_results_that_exceed_one_reply_in_the_next_reply)
{
    char *large = bson_malloc(5000001), *put;
    int end_;
    bson_t *reply;

    memset(large, 'x', 5000000);
    large[5000000] = 0;
    begin();
    for (int i = 0; i < 3; i++) {
        put = bson_strdup_printf(SITE("{put: {itemId: %d, text: '%s'}}", ""), i, large);
        tell_one(put, 0, "outcome", "\"published\"");
        bson_free(put);
    }
    end_ = dial();
    reply = send_typed(end_, READ(""));
    CHECK_INT(reply_number(reply, "items.0.itemId"), ==, 0);
    CHECK_INT(reply_number(reply, "items.1.itemId"), ==, -1);
    CHECK_INT(reply_number(reply, "more"), ==, 1);
    bson_destroy(reply);
    reply = send_typed(end_, "{truceTreeDiff: 'site', from: 0, to: 3, contents: true, after: 0}");
    CHECK_INT(reply_number(reply, "changes.0.itemId"), ==, 1);
    CHECK_INT(reply_number(reply, "changes.1.itemId"), ==, -1);
    bson_destroy(reply);
    reply = send_typed(end_, "{truceTreeDiff: 'site', from: 0, to: 3}");
    CHECK_INT(reply_number(reply, "changes.2.itemId"), ==, 2);
    bson_destroy(reply);
    close(end_);
    end();
    bson_free(large);
}

TEST(branches_are_made_and_merged)
{
    static const struct step steps[] = {
        {SITE(PUT("a", "1") ", " PUT("b", "1"), ""), 0},
        {"{truceTree: 'site', branch: 'draft', version: 1}", 0},
        {"{truceTree: 'site', branch: 'draft'}", 11000, "status", "\"duplicate\""},
        {"{truceTree: 'site'}", 0, "branches", "[\"draft\"]"},
        {"{truceTree: 'draft'}", 0, "from.tree", "\"site\""},
        {"{truceTreePublish: 'draft', changes: [" PUT("a", "2") "]}", 0, "version", "2"},
        {"{truceTree: 'site', merge: 'draft', message: 'in'}", 0, "outcome", "\"published\""},
        {"{truceTree: 'site', merge: 'draft'}", 0, "outcome", "\"nothing\""},
        {READ(", id: 'a'"), 0, "item.text", "\"2\""},
        {SITE(PUT("b", "2"), ""), 0},
        {"{truceTreePublish: 'draft', changes: [" PUT("b", "3") "]}", 0},
        {"{truceTree: 'site', merge: 'draft'}", 0, "conflicts.0.itemId", "\"b\""},
        {"{truceTree: 'site', merge: 'draft', prefer: 'theirs'}", 0, "outcome", "\"published\""},
        {READ(", id: 'b'"), 0, "item.text", "\"3\""},
        {"{truceTree: 'site', merge: 'nobody'}", 0, "status", "\"not found\""},
        {"{truceTree: 'site', merge: 'site'}", 2, "status", "\"invalid\""},
        {"{truceTree: 'site', drop: true}", 2},
        {"{truceTree: 'draft', drop: true}", 0},
        {"{truceTree: 'site', drop: true}", 0},
    };

    begin();
    TELL(steps);
    end();
}

TEST(databases_have_trees_of_their_own)
{
    static const struct step steps[] = {
        {SITE(PUT("a", "1"), ""), 0},
        {SITE(PUT("a", "school"), ", $db: 'school'"), 0, "version", "1"},
        {READ(", id: 'a', $db: 'school'"), 0, "item.text", "\"school\""},
        {READ(", id: 'a'"), 0, "item.text", "\"1\""},
        {READ(", $db: 'other'"), 0, "status", "\"not found\""},
        {"{truceTree: 'site', $db: 'school'}", 0, "tree", "\"site\""},
        {"{truceTree: 'site', $db: 'school'}", 0, "collection", "\"pages\""},
        {"{truceTree: 'site', branch: 'draft', $db: 'school'}", 0},
        {"{truceTree: 'site', $db: 'school'}", 0, "branches", "[\"draft\"]"},
        {"{truceTree: 'draft', $db: 'school'}", 0, "from.tree", "\"site\""},
        {"{truceTree: 'draft'}", 0, "status", "\"not found\""},
        {"{truceTree: 'site', merge: 'draft'}", 0, "status", "\"not found\""},
        {"{count: 'pages', $db: 'school'}", 0, "n", "2"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_version_is_a_part_of_a_transaction)
{
    static const struct step steps[] = {
        /* the first of all makes the tree's collections and indexes with it */
        {"{truceTreePublish: 'site', collection: 'pages', changes: [" PUT("a", "1") "]" FIRST(1), 0,
         "outcome", "\"published\""},
        {ABORT(1), 0},
        {SITE(PUT("a", "1"), ""), 0},
        {"{insert: 'orders', documents: [{_id: 1}]}", 0},
        {"{insert: 'orders', documents: [{_id: 2}]" FIRST(2), 0},
        {"{truceTreePublish: 'site', changes: [" PUT("a", "2") ", " PUT("b", "2") "]" NEXT(2), 0,
         "outcome", "\"published\""},
        {"{truceTreeRead: 'site', id: 'b'" NEXT(2), 0, "version", "2"},
        {"{truceTreeLog: 'site'" NEXT(2), 0, "versions.0.version", "2"},
        {READ(", id: 'b'"), 0, "status", "\"not found\""},
        {ABORT(2), 0},
        {READ(""), 0, "version", "1"},
        {"{insert: 'orders', documents: [{_id: 2}]" FIRST(3), 0},
        {"{truceTreePublish: 'site', changes: [" PUT("b", "2") "]" NEXT(3), 0},
        {COMMIT(3), 0},
        {READ(", id: 'b'"), 0, "version", "2"},
        {"{count: 'orders'}", 0, "n", "2"},
        /* others were faster */
        {"{truceTreePublish: 'site', changes: [" PUT("b", "3") "]" FIRST(4), 0, "version", "3"},
        {SITE(PUT("c", "3"), ""), 0, "version", "3"},
        {COMMIT(4), 112, "errorLabels.0", "\"TransientTransactionError\""},
        {READ(", id: 'b'"), 0, "item.text", "\"2\""},
        {"{truceTree: 'site', tag: 'x'" FIRST(5), 263},
    };

    begin();
    TELL(steps);
    end();
}

TEST(pages_of_a_history_are_the_whole_and_make_the_same_tree)
{
    static const struct step steps[] = {
        {SITE(
             PUT("a", "1") ", " PUT("b", "1") ", " PUT(
                 "c",
                 "1") ", {put: {itemId: 7}}, {put: "
                      "{itemId: true}}, {put: {itemId: {$date: '2026-03-01T09:00:00Z'}}}, {put: {itemId: "
                      "{$oid: '0123456789abcdef01234567'}}}",
             ", base: 'new', message: 'one'"),
         0},
        {SITE(PUT("a", "2") ", {remove: 'b'}, {put: {itemId: 7, n: 1}}, {remove: true}", ""), 0},
        {"{truceTree: 'site', tag: 'launch', version: 1}", 0},
        {"{truceTreeExport: 'site', after: {from: 1, to: 2, item: 'a'}}", 2},
        {"{truceTreeExport: 'site', after: {from: 1, to: 2, version: 1, item: {a: 1}}}", 2},
        {"{truceTreeRead: 'site', after: {a: 1}}", 2},
        {"{truceTreeExport: 'none'}", 0, "status", "\"not found\""},
        {"{truceTreeExport: 'site', from: 9}", 0, "status", "\"not found\""},
        {"{truceTreeExport: 'site', after: {from: 1}}", 40414},
        {"{truceTreeExport: 'site', after: {from: 1, to: 2, version: 3}}", 2},
        {"{truceTreeExport: 'site', from: 1, after: {from: 1, to: 2, version: 1}}", 72},
        {"{truceTreeImport: 'other', lines: [7]}", 14},
        {"{truceTreeImport: 'other', lines: []}", 2},
        {"{truceTreeImport: 'other', lines: [{$tree: 'site', collection: 'copies', from: 1, to: 1, "
         "whole: true}, {$version: 1}]}",
         2, "status", "\"invalid\""},
    };
    static const struct step same[] = {
        {"{truceTreeRead: 'other', id: 'a'}", 0, "item.text", "\"2\""},
        {"{truceTreeRead: 'other', tag: 'launch', id: 'b'}", 0, "item.text", "\"1\""},
        {"{truceTree: 'other'}", 0, "current", "2"},
    };
    char *whole = NULL;

    begin();
    TELL(steps);
    for (int limit = 10; limit; limit--) {
        char *command = bson_strdup_printf("{truceTreeExport: 'site', limit: %d", limit),
             *paged = all_pages(command, "lines", NULL);

        whole = whole ? whole : bson_strdup(paged);
        CHECK_TEXT(whole, paged);
        bson_free(paged);
        bson_free(command);
    }
    for (int i = 0; i < 2; i++) {
        char *command = bson_strdup_printf(
            "{truceTreeImport: 'other', collection: 'copies', lines: %s}", whole);

        tell_one(command, 0, "published", i ? "0" : "2");
        bson_free(command);
    }
    TELL(same);
    bson_free(whole);
    end();
}
