/* The data commands on a store file: answers, exit codes, forms of output. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

static void fresh_store(void)
{
    snprintf(store, sizeof store, "%s/school.truce", test_directory());
}

#define RUN(...)           command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)
#define RUN_IN(input, ...) command_run(TRUCE_CLI, store, input, __VA_ARGS__, NULL)

/* runs a command; compares its exit code, standard output, and a part of standard error */
static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}
#define ANSWERS(code, out, err, ...) check(__LINE__, RUN(__VA_ARGS__), code, out, err)

TEST(documents_are_inserted_found_changed_and_deleted)
{
    fresh_store();
    ANSWERS(0, "inserted 2\n", NULL, "insert", "s", "{\"_id\": 1, \"n\": \"Ada\"}",
            "{\"_id\": 2, \"n\": \"Bob\", \"x\": 0.1}");
    ANSWERS(0, "{\"_id\": 1, \"n\": \"Ada\"}\n{\"_id\": 2, \"n\": \"Bob\", \"x\": 0.1}\n", NULL,
            "find", "s", "--sort", "{\"_id\": 1}");
    ANSWERS(0, "{\"_id\": {\"$numberInt\": \"1\"}}\n", NULL, "find", "s", "{\"n\": \"Ada\"}", "-p",
            "{\"_id\": 1}", "--canonical");
    ANSWERS(0, "{\"_id\": 2}\n", NULL, "find", "s", "--sort={\"_id\": 1}", "--skip", "1", "-n1",
            "--projection", "{\"_id\": 1}");
    ANSWERS(0, "matched 2, modified 2\n", NULL, "update", "s", "{}", "{\"$set\": {\"y\": 1}}",
            "--many");
    ANSWERS(0, "matched 1, modified 0\n", NULL, "update", "s", "{\"_id\": 1}",
            "{\"$set\": {\"y\": 1}}");
    ANSWERS(1, "matched 0, modified 0\n", NULL, "update", "s", "{\"_id\": 3}",
            "{\"$set\": {\"y\": 1}}");
    ANSWERS(0, "matched 0, inserted 1\n", NULL, "update", "s", "{\"_id\": 3}",
            "{\"$set\": {\"y\": 1}}", "--upsert");
    ANSWERS(0, "3\n", NULL, "count", "s");
    ANSWERS(0, "{\"count\": 3}\n", NULL, "count", "s", "{\"y\": 1}", "--json");
    ANSWERS(0, "removed 1\n", NULL, "delete", "s", "{\"_id\": 3}");
    ANSWERS(1, "removed 0\n", NULL, "delete", "s", "{\"_id\": 3}");
    ANSWERS(0, "{\"removed\": 2}\n", NULL, "delete", "s", "{}", "-m", "-j");
}

TEST(updates_take_pipelines_and_array_filters)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{\"_id\": 1, \"a\": [1, 5, 9], \"b\": 2}");
    ANSWERS(0, "matched 1, modified 1\n", NULL, "update", "s", "{}",
            "{\"$inc\": {\"a.$[big]\": 10}}", "--array-filters", "[{\"big\": {\"$gt\": 4}}]");
    ANSWERS(0, "matched 1, modified 1\n", NULL, "update", "s", "{}",
            "[{\"$set\": {\"c\": {\"$add\": [\"$b\", 1]}}}]");
    ANSWERS(0, "{\"_id\": 1, \"a\": [1, 15, 19], \"b\": 2, \"c\": 3}\n", NULL, "find", "s");
    ANSWERS(2, "", "--array-filters must be an array", "update", "s", "{}",
            "{\"$inc\": {\"a.$[big]\": 10}}", "--array-filters", "{}");
}

TEST(replaces_a_whole_document_only_with_the_option_for_it)
{
    static const char *const way =
        "UPDATE must consist of operators such as $set, not \"age\": add "
        "the operator, or --replace to replace the whole document";

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1, name: \"Ada\", age: 3}");
    ANSWERS(2, "", way, "update", "s", "{_id: 1}", "{age: 4}");
    ANSWERS(2, "", way, "update", "s", "{_id: 2}", "{age: 4}", "--upsert");
    ANSWERS(2, "", "UPDATE has the operator \"$set\" and the field \"age\": move the field",
            "update", "s", "{_id: 1}", "{age: 4, $set: {b: 1}}");
    ANSWERS(2, "", "UPDATE must consist of operators such as $set: add --replace", "update", "s",
            "{}", "{}");
    ANSWERS(2, "", "UPDATE has no stages", "update", "s", "{_id: 2}", "[]", "--upsert");
    ANSWERS(2, "", "UPDATE has no stages", "modify", "s", "{}", "[]");
    ANSWERS(2, "", way, "modify", "s", "{_id: 1}", "{age: 4}");
    ANSWERS(2, "", "give either --replace or --remove", "modify", "s", "{_id: 1}", "--remove",
            "--replace");
    ANSWERS(2, "", "UPDATE must consist of operators such as $set: add --replace", "update", "s",
            "{_id: 1}", "{}");
    ANSWERS(0, "{\"_id\": 1, \"name\": \"Ada\", \"age\": 3}\n", NULL, "find", "s");
    ANSWERS(2, "", "--replace needs a document without operators, not \"$set\"", "update", "s",
            "{_id: 1}", "{$set: {age: 4}}", "--replace");
    ANSWERS(2, "", "--replace needs a document, not an array of stages", "update", "s", "{_id: 1}",
            "[{$set: {age: 4}}]", "--replace");
    ANSWERS(0, "matched 1, modified 1\n", NULL, "update", "s", "{_id: 1}", "{age: 4}", "--replace");
    ANSWERS(0, "{\"_id\": 1, \"age\": 4}\n", NULL, "modify", "s", "{_id: 1}", "{age: 5}",
            "--replace");
    ANSWERS(0, "matched 0, inserted 1\n", NULL, "update", "s", "{_id: 2}", "{age: 6}", "--upsert",
            "--replace");
    ANSWERS(0, "{\"_id\": 1, \"age\": 5}\n{\"_id\": 2, \"age\": 6}\n", NULL, "find", "s", "--sort",
            "{_id: 1}");
}

/* The note costs a list of the collections, so it is printed only if nothing was found. */
TEST(notes_a_collection_that_does_not_exist)
{
#define NO_COLLECTION "truce: the store has no collection \"event\": did you mean \"events\"?\n"
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "events", "{_id: 1}");
    ANSWERS(0, "", NO_COLLECTION, "find", "event");
    ANSWERS(0, "0\n", NO_COLLECTION, "count", "event");
    ANSWERS(0, "", NO_COLLECTION, "distinct", "event", "a");
    ANSWERS(0, "", NO_COLLECTION, "export", "event");
    ANSWERS(0, "", NO_COLLECTION, "aggregate", "event", "[]");
    CHECK_TEXT(NO_COLLECTION, RUN("explain", "event")->err);
    ANSWERS(1, "matched 0, modified 0\n", NO_COLLECTION, "update", "event", "{}", "{$set: {a: 1}}");
    ANSWERS(1, "", NO_COLLECTION, "modify", "event", "{}", "{$set: {a: 1}}");
    ANSWERS(1, "removed 0\n", NO_COLLECTION, "delete", "event", "{}");
    ANSWERS(0, "", "truce: the store has no collection \"xyzzy\"\n", "find", "xyzzy");
    ANSWERS(0, "", "truce: the database \"shop\" has no collections\n", "find", "events",
            "--database", "shop");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "events", "{_id: 1}", "--database", "shop");
    ANSWERS(0, "", "the database \"shop\" has no collection \"event\": did you mean \"events\"?\n",
            "find", "event", "--database", "shop");
    CHECK_TEXT("", RUN("find", "truce_queue")->err);
    CHECK_TEXT("", RUN("find", "event", "--json")->err);
    CHECK_TEXT("", RUN("find", "event", "--quiet")->err);
    CHECK_TEXT("", RUN("find", "events", "{a: 1}")->err);
    ANSWERS(0, "removed 1\n", NULL, "delete", "events", "{}");
    CHECK_TEXT("", RUN("find", "events")->err);
    CHECK_TEXT("", RUN("delete", "events", "{}")->err);
}

TEST(suggests_the_nearest_name_for_a_mistyped_one)
{
    const struct command *c;

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1, n: 0}");
    ANSWERS(2, "", "\"a\": unknown operator \"$gtt\": did you mean \"$gt\"?", "find", "s",
            "{a: {$gtt: 1}}");
    ANSWERS(2, "", "unknown operator \"$orr\" in the place of a field name: did you mean \"$or\"?",
            "find", "s", "{$orr: []}");
    ANSWERS(2, "", "unknown pipeline stage \"$matc\": did you mean \"$match\"?", "aggregate", "s",
            "[{$matc: {}}]");
    ANSWERS(2, "", "unknown expression operator \"$substract\": did you mean \"$subtract\"?",
            "aggregate", "s", "[{$project: {b: {$substract: [1, 2]}}}]");
    ANSWERS(2, "", "unknown accumulator \"$sm\": did you mean \"$sum\"?", "aggregate", "s",
            "[{$group: {_id: 1, b: {$sm: 1}}}]");
    ANSWERS(2, "", "unknown index option \"uniqe\": did you mean \"unique\"?", "command",
            "{createIndexes: 's', indexes: [{key: {a: 1}, name: 'a', uniqe: true}]}");
    ANSWERS(2, "", "change 1: unknown field \"updat\": did you mean \"update\"?", "commit", "apply",
            "[{updat: 's', id: 1, with: {$set: {a: 1}}}]");
    ANSWERS(2, "", "change 1: unknown field \"iff\": did you mean \"if\"?", "commit", "apply",
            "[{update: 's', id: 1, iff: {n: 0}, with: {$set: {a: 1}}}]");
    c = command_run(TRUCE_CLI, "memroy:", NULL, "find", "s", NULL);
    CHECK_INT(c->code, ==, 2);
    CHECK_TEXT("truce: unknown kind of store \"memroy\": did you mean \"memory\"?\n", c->err);
}

TEST(suggests_an_operator_for_a_guard_that_lacks_its_dollar)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1, n: 0, size: {gt: 3}}");
    ANSWERS(1, "", "does not match its guard {\"n\": {\"gt\": 0}}: did you mean \"$gt\"?\n",
            "commit", "apply", "[{update: 's', id: 1, if: {n: {gt: 0}}, with: {$set: {a: 1}}}]");
    ANSWERS(1, "", "does not match its guard {\"n\": {\"$gt\": 0}}\n", "commit", "apply",
            "[{update: 's', id: 1, if: {n: {$gt: 0}}, with: {$set: {a: 1}}}]");
    ANSWERS(1, "", "does not match its guard {\"n\": {\"m\": 0}}\n", "commit", "apply",
            "[{update: 's', id: 1, if: {n: {m: 0}}, with: {$set: {a: 1}}}]");
    ANSWERS(0, "committed\n", NULL, "commit", "apply",
            "[{update: 's', id: 1, if: {size: {gt: 3}}, with: {$set: {a: 1}}}]");
}

TEST(exits_with_1_and_the_code_of_mongodb_for_a_duplicate_key)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{\"_id\": 1}");
    ANSWERS(1, "", "truce: ", "insert", "s", "{\"_id\": 1}");
    ANSWERS(1, "", "\"code\": 11000, \"codeName\": \"DuplicateKey\"", "insert", "s", "{\"_id\": 1}",
            "--json");
}

TEST(insert_reads_lines_and_names_a_bad_one)
{
    fresh_store();
    check(__LINE__, RUN_IN("{\"_id\": 1}\n\n{\"_id\": 2}\n", "insert", "s"), 0, "inserted 2\n",
          NULL);
    check(__LINE__, RUN_IN("{\"_id\": 3}\n{\"_id\": \n", "insert", "s"), 2, "inserted 1\n",
          "truce: line 2, column 9, field _id: the text ends in the middle of a document");
    check(__LINE__, RUN_IN("{\"_id\": 3}\n", "insert", "s"), 1, "", "truce: line 1: ");
    check(__LINE__, RUN("insert", "s", "{\"_id\": 4}", "--json"), 0,
          "{\"inserted\": 1, \"ids\": [4]}\n", NULL);
}

TEST(refuses_writes_into_collections_that_truce_writes_itself)
{
    fresh_store();
    ANSWERS(2, "", "truce_queue is reserved", "insert", "truce_queue", "{\"a\": 1}");
    ANSWERS(2, "", "truce_queue is reserved", "import", "truce_queue", "/dev/null");
    ANSWERS(2, "", "truce_sets is reserved", "update", "truce_sets", "{}", "{$set: {a: 1}}", "-u");
    ANSWERS(2, "", "truce_trees is reserved", "modify", "truce_trees", "{}", "{$set: {a: 1}}");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "truce_mine", "{\"_id\": 1}");
    check(__LINE__, RUN("command", "{insert: \"truce_displaced\", documents: [{_id: 1}]}"), 0,
          "{\"n\": 1, \"ok\": 1.0}\n", NULL);
    ANSWERS(0, "removed 1\n", NULL, "delete", "truce_displaced", "{_id: 1}");
}

TEST(bad_queries_are_wrong_usage_that_names_the_operator)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{\"_id\": 1}");
    ANSWERS(2, "", "$bogus", "find", "s", "{\"a\": {\"$bogus\": 1}}");
    ANSWERS(2, "", "$bogus", "update", "s", "{}", "{\"$bogus\": {\"a\": 1}}");
    ANSWERS(2, "", "$bogus", "aggregate", "s", "[{\"$bogus\": {}}]");
    ANSWERS(2, "", "truce: FILTER is not Extended JSON: column 7", "find", "s", "{\"a\": }");
    ANSWERS(2, "", "--limit needs a number", "find", "s", "--limit", "many");
}

TEST(prints_the_results_of_aggregate_distinct_and_explain)
{
    const struct command *c;

    fresh_store();
    ANSWERS(0, "inserted 3\n", NULL, "insert", "s", "{\"_id\": 1, \"g\": \"a\", \"t\": [1, 2]}",
            "{\"_id\": 2, \"g\": \"a\", \"t\": [2]}", "{\"_id\": 3, \"g\": \"b\", \"t\": [3]}");
    ANSWERS(0, "{\"_id\": \"a\", \"n\": 2}\n{\"_id\": \"b\", \"n\": 1}\n", NULL, "aggregate", "s",
            "[{\"$group\": {\"_id\": \"$g\", \"n\": {\"$sum\": 1}}}, {\"$sort\": {\"_id\": 1}}]");
    ANSWERS(0, "1\n2\n3\n", NULL, "distinct", "s", "t");
    ANSWERS(0, "{\"values\": [\"a\"]}\n", NULL, "distinct", "s", "g", "{\"t\": 2}", "--json");
    c = RUN("explain", "s", "{\"_id\": 2}");
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "\"totalDocsExamined\": 1"));
}

TEST(a_pipeline_may_write_into_the_store)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{\"_id\": 1}");
    ANSWERS(0, "", NULL, "aggregate", "s", "[{\"$out\": \"copy\"}]");
    ANSWERS(0, "{\"_id\": 1}\n", NULL, "find", "copy");
}

TEST(indexes_are_made_listed_used_and_dropped)
{
    const struct command *c;

    fresh_store();
    ANSWERS(0, "inserted 2\n", NULL, "insert", "s", "{\"_id\": 1, \"a\": 1}",
            "{\"_id\": 2, \"a\": 2}");
    ANSWERS(0, "created\n", NULL, "index", "create", "s", "{\"a\": 1}", "--unique");
    ANSWERS(1, "", "truce: ", "insert", "s", "{\"_id\": 3, \"a\": 2}");
    c = RUN("index", "list", "s");
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "\"_id_\"") && strstr(c->out, "\"a_1\"") && strstr(c->out, "unique"));
    c = RUN("explain", "s", "{\"a\": 2}");
    CHECK(strstr(c->out, "IXSCAN"));
    ANSWERS(0, "{\"_id\": 2, \"a\": 2}\n", NULL, "find", "s", "{\"a\": 2}", "--hint", "a_1");
    ANSWERS(2, "", "the index \"no_such_index\" of the hint", "find", "s", "{\"a\": 2}", "--hint",
            "no_such_index");
    ANSWERS(2, "", "has no database between @ and the dot", "insert", "@.s", "{}");
    ANSWERS(0, "{\"_id\": 2, \"a\": 2}\n", NULL, "find", "s", "--hint", "a_1", "--min",
            "{\"a\": 2}", "--max", "{\"a\": 9}");
    ANSWERS(0, "{\"a\": 1}\n", NULL, "find", "s", "--hint", "a_1", "--max", "{\"a\": 2}", "--keys");
    ANSWERS(0, "{\"_id\": 2, \"$recordId\": 2}\n", NULL, "find", "s", "{\"a\": 2}", "-p",
            "{\"_id\": 1}", "--records");
    ANSWERS(2, "", "truce: ", "find", "s", "--min", "{\"a\": 2}");
    c = RUN("explain", "s", "--hint", "a_1", "--min", "{\"a\": 2}");
    CHECK(strstr(c->out, "\"totalKeysExamined\": 1"));
    ANSWERS(0, "modified a_1\n", NULL, "index", "modify", "s", "a_1", "--hide");
    ANSWERS(2, "", "truce: ", "find", "s", "{\"a\": 2}", "--hint", "a_1");
    ANSWERS(0, "modified a_1\n", NULL, "index", "modify", "s", "a_1", "--show", "--expire-after",
            "60s");
    c = RUN("index", "list", "s");
    CHECK(strstr(c->out, "\"expireAfterSeconds\": 60") && !strstr(c->out, "hidden"));
    ANSWERS(2, "", "--expire-after needs whole seconds, for example 90s or 24h, not \"500ms\"",
            "index", "modify", "s", "a_1", "--expire-after", "500ms");
    ANSWERS(2, "", "--expire-after needs whole seconds", "index", "create", "s", "{\"e\": 1}",
            "--expire-after", "1500ms");
    ANSWERS(2, "", "truce: ", "index", "modify", "s", "a_1");
    ANSWERS(2, "", "truce: ", "index", "modify", "s", "a_1", "--hide", "--show");
    ANSWERS(2, "", "truce: ", "index", "modify", "s", "_id_", "--hide");
    ANSWERS(1, "", "truce: ", "index", "modify", "s", "none", "--hide");
    ANSWERS(0, "dropped a_1\n", NULL, "index", "drop", "s", "a_1");
    ANSWERS(0, "created\n", NULL, "index", "create", "s", "{\"h\": 1}", "--hidden");
    ANSWERS(2, "", "truce: ", "find", "s", "{\"h\": 2}", "--hint", "h_1");
    ANSWERS(1, "", "truce: ", "index", "drop", "s", "a_1");
    ANSWERS(2, "", "truce: ", "index", "create", "s", "{\"a\": \"text\"}");
}

TEST(collections_are_made_listed_renamed_and_dropped)
{
    const struct command *c;

    fresh_store();
    ANSWERS(0, "created s\n", NULL, "collections", "create", "s");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{\"_id\": 1}");
    c = RUN("collections", "list", "--json");
    CHECK_INT(c->code, ==, 0);
    CHECK(strstr(c->out, "{\"name\": \"s\", \"documents\": 0, ") == c->out);
    CHECK(strstr(c->out, "\n{\"name\": \"t\", \"documents\": 1, "));
    ANSWERS(1, "", "truce: ", "collections", "rename", "s", "t");
    ANSWERS(0, "renamed t\n", NULL, "collections", "rename", "s", "t", "--replace");
    ANSWERS(0, "0\n", NULL, "count", "t");
    ANSWERS(0, "dropped t\n", NULL, "collections", "drop", "t");
    ANSWERS(1, "", "truce: ", "collections", "drop", "t");
    ANSWERS(2, "", "truce: ", "insert", "$bad", "{}");
}

/* Under another name, a pattern would find nothing, without an error. */
TEST(collections_of_patterns_are_not_renamed_or_replaced)
{
    static const char items[] = "{\"itemId\": 1}\n";

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1, user: 1}");
    CHECK_INT(RUN("ledger", "currency", "book", "EUR", "2", "--slots", "numbers")->code, ==, 0);
    ANSWERS(0, "defined a.b.classes\n", NULL, "set", "define", "a.b", "--list", "classes", "--key",
            "k", "--name", "n");
    CHECK_INT(RUN_IN(items, "tree", "publish", "site", "--collection", "pages")->code, ==, 0);
    CHECK_INT(
        RUN("sync", "declare", "author", "users", "comments", "user", "{author: 'name'}")->code, ==,
        0);
    CHECK_INT(RUN("transfer", "start", "moves", "1", "A", "B", "1", "--accounts", "purses")->code,
              !=, 2);
    CHECK_INT(RUN("queue", "add", "mail", "{}")->code, ==, 0);
    for (int i = 0; i < 2; i++) {
        static const char *const used[] = {"book",     "numbers", "a.b",    "pages",      "users",
                                           "comments", "moves",   "purses", "truce_queue"};

        for (size_t k = 0; k < sizeof used / sizeof *used; k++) {
            const struct command *c = RUN("collections", "rename", i ? "s" : used[k],
                                          i ? used[k] : "t", i ? "--replace" : NULL);

            if (c->code != 2 || !strstr(c->err, used[k]))
                test_fail(__FILE__, __LINE__, "%s: %d, %s", used[k], c->code, c->err);
        }
    }
    ANSWERS(0, "inserted 1\n", NULL, "insert", "posts", "{_id: 1}");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "posts.revisions", "{_id: 1}");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "entries.guards", "{_id: 1}");
    ANSWERS(2, "", "\"posts\" has earlier versions of its documents in \"posts.revisions\"",
            "collections", "rename", "posts", "t");
    ANSWERS(2, "", "drop \"posts.revisions\" first", "collections", "rename", "posts.revisions",
            "t");
    ANSWERS(2, "", "\"posts\" has earlier", "collections", "rename", "s", "posts.revisions",
            "--replace");
    ANSWERS(2, "", "\"entries\" has watermarks", "collections", "rename", "s", "entries");
    ANSWERS(0, "renamed t.guards\n", NULL, "collections", "rename", "entries.guards", "t.guards");
    ANSWERS(2, "", "@config.transactions is reserved", "collections", "rename", "s",
            "@config.transactions");
    ANSWERS(0, "renamed a\n", NULL, "collections", "rename", "s", "a");
    ANSWERS(0, "renamed a.b.c\n", NULL, "collections", "rename", "a", "a.b.c");
}

TEST(patterns_refuse_collections_of_truce)
{
    fresh_store();
    CHECK_INT(RUN("queue", "add", "mail", "{}")->code, ==, 0);
    ANSWERS(2, "", "reserved", "doc", "save", "truce_queue", "{_id: 1}", "--new");
    ANSWERS(2, "", "reserved", "commit", "apply", "[{insert: 'truce_queue', with: {_id: 1}}]");
    ANSWERS(2, "", "reserved", "item", "add", "truce_queue", "{_id: 1}", "{a: 1}", "-f", "b", "-i",
            "a");
    ANSWERS(2, "", "reserved", "set", "define", "truce_queue", "--list", "l", "--key", "k",
            "--name", "n");
    ANSWERS(2, "", "reserved", "aggregate", "s", "[{$out: 'truce_queue'}]");
    ANSWERS(2, "", "reserved", "aggregate", "s", "[{$merge: {into: 'truce_queue'}}]");
    ANSWERS(2, "", "reserved", "aggregate", "s", "[{$merge: 'truce_queue'}]");
    ANSWERS(2, "", "reserved", "aggregate", "s", "[{$out: {db: 'x', coll: 'truce_queue'}}]");
    ANSWERS(2, "", "\"_id\" of the set", "set", "define", "s", "--list", "_id", "--key", "k",
            "--name", "n");
    ANSWERS(0, "1\n", NULL, "count", "truce_queue");
}

TEST(a_store_that_is_missing_is_not_made_by_reading)
{
    fresh_store();
    ANSWERS(3, "", "school.truce", "find", "s");
    ANSWERS(3, "", "school.truce", "delete", "s", "{}");
    CHECK(access(store, F_OK) != 0);
    ANSWERS(3, "", "truce: ", "insert", "s", "{}", "--store", "/nowhere/at/all.truce");
    ANSWERS(2, "", "truce: ", "find", "s", "--store", "bogus:thing");
}

TEST(a_file_that_is_no_store_is_refused_and_left_alone)
{
    FILE *file;
    char text[40] = "";

    fresh_store();
    file = fopen(store, "w");
    fputs("these are my notes, not a store\n", file);
    fclose(file);
    ANSWERS(3, "", "school.truce", "insert", "s", "{}");
    file = fopen(store, "r");
    CHECK(fgets(text, sizeof text, file));
    CHECK_TEXT("these are my notes, not a store\n", text);
    fclose(file);
}

TEST(a_truncated_file_is_refused_with_the_ways_out)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1}");
    CHECK(truncate(store, 500) == 0);
    ANSWERS(3, "", "restore a backup or an archive, or rescue what is readable with truce salvage",
            "count", "s");
}

/* Inverts a byte in the middle of a page, from 1. */
static void invert_byte(long page)
{
    FILE *file = fopen(store, "r+");
    long at = (page - 1) * 4096 + 2000;
    int byte;

    CHECK(file && fseek(file, at, SEEK_SET) == 0);
    byte = getc(file);
    CHECK(byte != EOF && fseek(file, at, SEEK_SET) == 0 && putc(byte ^ 0xff, file) != EOF);
    fclose(file);
}

TEST(names_the_ways_out_of_a_damaged_page)
{
    const struct command *c;
    bool catalog = false, incomplete = false;

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1}");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{_id: 1}");
    for (long page = 2; page < 8; page++) {
        invert_byte(page);
        c = RUN("check");
        catalog = catalog || strstr(c->err, "cannot read the catalog");
        incomplete =
            incomplete || strstr(c->out, "unreadable: the file: the check is not complete");
        CHECK_INT(c->code, ==, *c->err ? 3 : 1);
        CHECK(strstr(*c->err ? c->err : c->out, *c->err ? "truce salvage" : "damaged-page"));
        invert_byte(page);
    }
    CHECK(catalog && incomplete);
}

TEST(a_salvage_of_a_file_that_is_not_a_store_creates_no_store)
{
    const char *directory = test_directory();
    char from[300], page[4096];
    FILE *file;

    snprintf(store, sizeof store, "%s/saved.truce", directory);
    ANSWERS(3, "", "is not a regular file", "salvage", directory, store);
    CHECK(access(store, F_OK) != 0);
    snprintf(from, sizeof from, "%s/notes", directory);
    memset(page, 'x', sizeof page);
    for (int size = 0; size <= 2; size++) {
        file = fopen(from, "w");
        for (int i = 0; i < size; i++)
            CHECK(fwrite(page, 1, sizeof page, file) == sizeof page);
        fclose(file);
        ANSWERS(3, "", "is a page of a store: there is nothing to salvage", "salvage", from, store);
        CHECK(access(store, F_OK) != 0);
    }
}

static void make_view(const char *database)
{
    ANSWERS(0, "inserted 3\n", NULL, "insert", "s", "{_id: 1, g: 1}", "{_id: 2, g: 1}",
            "{_id: 3, g: 2}", "--database", database);
    ANSWERS(0, "{\"ok\": 1.0}\n", NULL, "command",
            "{create: 'w', viewOn: 's', pipeline: [{$match: {g: 1}}, {$addFields: {v: '$_id'}}]}",
            "--database", database);
}

TEST(reads_a_view_of_a_file)
{
    static const char *const databases[] = {"test", "shop"};

    fresh_store();
    for (int i = 0; i < 2; i++) {
        const char *database = databases[i];
#define READS(out, ...) ANSWERS(0, out, NULL, __VA_ARGS__, "--database", database)
        make_view(database);
        READS("{\"_id\": 1, \"g\": 1, \"v\": 1}\n{\"_id\": 2, \"g\": 1, \"v\": 2}\n", "find", "w");
        READS("{\"v\": 2}\n", "find", "w", "{v: {$gt: 0}}", "--sort", "{v: -1}", "--limit", "1",
              "-p", "{_id: 0, v: 1}");
        READS("{\"_id\": 2, \"g\": 1, \"v\": 2}\n", "find", "w", "--skip", "1", "--hint", "_id_");
        READS("2\n", "count", "w");
        READS("1\n", "count", "w", "{v: 2}");
        READS("0\n", "count", "w", "{v: 3}");
        READS("1\n2\n", "distinct", "w", "v");
        READS("{\"_id\": null, \"n\": 3}\n", "aggregate", "w",
              "[{$group: {_id: null, n: {$sum: '$v'}}}]");
        READS("{\"_id\": {\"$numberInt\": \"2\"}}\n", "export", "w", "{v: 2}", "-p", "{_id: 1}");
        READS("_id,g,v\n1,1,1\n2,1,2\n", "export", "w", "--csv");
        CHECK(strstr(RUN("explain", "w", "--database", database)->out, "\"$cursor\""));
        CHECK(strstr(RUN("explain", "w", "--count", "--database", database)->out, "\"$cursor\""));
        READS("{\"n\": 5}\n", "aggregate", "s", "[{$unionWith: 'w'}, {$count: 'n'}]");
        READS(
            "{\"_id\": 2, \"v\": [2]}\n", "aggregate", "s",
            "[{$match: {_id: 2}}, {$lookup: {from: 'w', localField: '_id', foreignField: 'v', as: 'w'}},"
            " {$project: {v: '$w.v'}}]");
        ANSWERS(2, "", "Option min not supported in aggregation", "find", "w", "--min", "{_id: 1}",
                "--hint", "_id_", "--database", database);
#undef READS
    }
}

/* A cursor of a command has batches. */
TEST(reads_many_documents_of_a_view)
{
    fresh_store();
    make_view("test");
    ANSWERS(
        0, "", NULL, "aggregate", "s",
        "[{$match: {_id: 1}}, {$set: {i: {$range: [10, 3010]}}}, {$unwind: '$i'}, {$project: {_id: "
        "'$i', g: {$literal: 1}}}, {$merge: 's'}]");
    ANSWERS(0, "3002\n", NULL, "count", "w");
    CHECK_INT(strlen(RUN("export", "w", "--relaxed", "-p", "{_id: 0, g: 1}")->out), ==,
              3002 * strlen("{\"g\": 1}\n"));
    CHECK_INT(strlen(RUN("find", "w", "-p", "{_id: 0, g: 1}")->out), ==,
              3002 * strlen("{\"g\": 1}\n"));
}

TEST(refuses_to_write_to_a_view_of_a_file)
{
    static const char *const databases[] = {"test", "shop"};

    fresh_store();
    for (int i = 0; i < 2; i++) {
        const char *database = databases[i];
#define REFUSES(...)                                                                               \
    ANSWERS(2, "", "\"w\" is a view, not a collection: ", __VA_ARGS__, "--database", database)
        make_view(database);
        REFUSES("insert", "w", "{_id: 1}");
        REFUSES("update", "w", "{}", "{$set: {a: 1}}", "--upsert");
        REFUSES("delete", "w", "{}");
        REFUSES("import", "w", "/dev/null");
        REFUSES("collections", "create", "w");
        REFUSES("index", "list", "w");
        ANSWERS(2, "", "w is a view, not a collection", "aggregate", "s", "[{$out: 'w'}]",
                "--database", database);
        ANSWERS(0, "3\n", NULL, "count", "s", "--database", database);
#undef REFUSES
    }
}

/* Names of operators are also names of fields in ordinary documents. */
TEST(hints_at_an_operator_only_where_it_fits)
{
    static const char *const plain[] = {"{dims: {size: 4}}",   "{kind: {type: 'y', n: 1}}",
                                        "{pos: {in: 'room'}}", "{n: {all: true}}",
                                        "{n: {gt: 0, b: 5}}",  "{seats: {gt: 1}}"};
    char call[200];

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1, n: 0, seats: {gt: 0}}");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const struct command *c;

        snprintf(call, sizeof call, "[{update: 's', id: 1, if: %s, with: {$set: {a: 1}}}]",
                 plain[i]);
        c = RUN("commit", "apply", call);
        CHECK(strstr(c->out, "does not match its guard") || strstr(c->err, "its guard"));
        CHECK(!strstr(c->out, "did you mean") && !strstr(c->err, "did you mean"));
    }
    ANSWERS(2, "", "\"$ad\": did you mean \"$add\"?", "aggregate", "s",
            "[{$project: {a: {$ad: [1, 2]}}}]");
    ANSWERS(2, "", "\"$conct\": did you mean \"$concat\"?", "aggregate", "s",
            "[{$project: {a: {$conct: ['a', 'b']}}}]");
}

TEST(shows_the_refused_name_of_a_collection)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1}");
    ANSWERS(2, "", "the collection name \"a\\u001b[31mb\" has control", "find", "a\x1b[31mb");
    ANSWERS(2, "", "the collection name \"a\\u202eb\" has control", "find", "a\u202eb");
    ANSWERS(2, "", "the collection name \"a\\xffb\" is not valid UTF-8", "find",
            "a\xff"
            "b");
}

TEST(refuses_array_filters_for_a_replacement)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1}");
    ANSWERS(2, "", "either --array-filters or --replace", "update", "s", "{}", "{a: 1}",
            "--replace", "--array-filters", "[{x: 1}]");
    ANSWERS(2, "", "either --array-filters or --replace", "modify", "s", "{}", "{a: 1}",
            "--replace", "--array-filters", "[{x: 1}]");
}

TEST(a_salvage_of_a_file_that_was_cut_is_not_complete)
{
    char saved[320], line[80];
    const struct command *c;
    struct stat file;

    fresh_store();
    snprintf(saved, sizeof saved, "%s.saved", store);
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1}");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{_id: 1}");
    CHECK(stat(store, &file) == 0);
    CHECK(truncate(store, 4096) == 0);
    c = RUN("salvage", store, saved);
    CHECK_INT(c->code, ==, 1);
    snprintf(line, sizeof line, "0 lost, %d pages of the file", (int)(file.st_size / 4096) - 1);
    CHECK(strstr(c->out, "not complete: 0 documents saved"));
    CHECK(strstr(c->out, line));
    snprintf(line, sizeof line, "has 1 of the %d pages", (int)(file.st_size / 4096));
    CHECK(strstr(c->err, line));
}

TEST(a_salvage_needs_one_page_of_a_store)
{
    char saved[320];

    fresh_store();
    snprintf(saved, sizeof saved, "%s.saved", store);
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{_id: 1}");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{_id: 1}");
    for (long page = 1; page < 8; page++)
        invert_byte(page);
    CHECK_INT(RUN("salvage", store, saved)->code, ==, 1); /* page 1 begins as that of a store */
    CHECK(access(saved, F_OK) == 0);
}

/* root may write to every file, so root runs the command as another user */
#define RUN_UNPRIVILEGED(...)                                                                      \
    (geteuid() == 0 ? command_run("/usr/bin/setpriv", store, NULL, "--reuid=65534",                \
                                  "--clear-groups", TRUCE_CLI, __VA_ARGS__, NULL)                  \
                    : RUN(__VA_ARGS__))

TEST(a_read_only_file_can_be_read_and_not_written)
{
    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{\"_id\": 1}");
    CHECK_INT(chmod(store, 0444), ==, 0);
    *strrchr(store, '/') = '\0';
    CHECK_INT(chmod(store, 0555), ==, 0);
    store[strlen(store)] = '/';
    if (RUN_UNPRIVILEGED("--version")->code != 0) {
        test_skip("this program cannot run as another user");
        return;
    }
    check(__LINE__, RUN_UNPRIVILEGED("find", "s"), 0, "{\"_id\": 1}\n", NULL);
    check(__LINE__, RUN_UNPRIVILEGED("insert", "s", "{\"_id\": 2}"), 3, "",
          "truce: the store cannot be written: cannot open the lock file \"");
    check(__LINE__, RUN_UNPRIVILEGED("insert", "s", "{\"_id\": 2}"), 3, "",
          "-lock\": Permission denied; a program that writes needs write access to the folder");
    check(__LINE__, RUN("count", "s"), 0, "1\n", NULL);
}

TEST(ends_find_silently_if_its_reader_closes_the_pipe)
{
    const struct command *c;
    char *script;

    fresh_store();
    script = bson_strdup_printf("for i in $(seq 2000); do echo \"{\\\"_id\\\": $i, \\\"text\\\": "
                                "\\\"%0200d\\\"}\"; done | %s insert s --store %s --relaxed -q && "
                                "%s find s --store %s | head -1 >/dev/null; "
                                "echo ${PIPESTATUS[0]}",
                                0, TRUCE_CLI, store, TRUCE_CLI, store);
    c = command_run("/bin/bash", store, NULL, "-c", script, NULL);
    CHECK_TEXT("inserted 2000\n3\n", c->out);
    CHECK_TEXT("", c->err);
    bson_free(script);
}

TEST(reports_a_full_disk)
{
    static const char *const commands[] = {"find s",       "count s",        "aggregate s '[]'",
                                           "export s",     "distinct s _id", "index list s",
                                           "--json find s"};
    const struct command *c;
    char *script;

    fresh_store();
    /* more than the buffer of stdio, so that it fails before the end and at the end */
    script = bson_strdup_printf("for i in $(seq 300); do echo \"{\\\"_id\\\": $i, \\\"text\\\": "
                                "\\\"%0200d\\\"}\"; done | %s insert s --store %s --relaxed -q",
                                0, TRUCE_CLI, store);
    c = command_run("/bin/bash", store, NULL, "-c", script, NULL);
    CHECK_INT(c->code, ==, 0);
    bson_free(script);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        script = bson_strdup_printf("%s --store %s %s >/dev/full", TRUCE_CLI, store, commands[i]);
        c = command_run("/bin/bash", store, NULL, "-c", script, NULL);
        CHECK_INT(c->code, ==, 3);
        CHECK(strstr(c->err, "cannot write") != NULL);
        bson_free(script);
    }
}

TEST(prints_no_control_characters)
{
    const struct command *c;

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s",
            "{\"_id\": 1, \"t\": \"a\\u001b[2J\\u009b\\u202eb\\u2066\\u061cä€\"}");
    ANSWERS(0, "{\"_id\": 1, \"t\": \"a\\u001b[2J\\u009b\\u202eb\\u2066\\u061cä€\"}\n", NULL,
            "find", "s");
    /* names of fields, too */
    ANSWERS(0, "inserted 1\n", NULL, "insert", "names",
            "{\"_id\": 1, \"x\\u009b\\u202ey\\u001b[2J\": 2}");
    ANSWERS(0, "_id  x\\u009b\\u202ey\\u001b[2J\n  1                        2\n", NULL, "find",
            "names", "--table");
    c = RUN("find", "a\x1b[2J\xe2\x80\xae");
    CHECK_INT(c->code, ==, 2);
    CHECK(!strchr(c->err, 0x1b) && !strstr(c->err, "\xe2\x80\xae"));
    c = RUN("find", "s", "{\"t\": {\"$\x1b[31mx\": 1}}");
    CHECK_INT(c->code, ==, 2);
    CHECK(!strchr(c->err, 0x1b));
}

TEST(an_interrupt_ends_a_command_in_order)
{
    const struct command *c;
    char *script;

    fresh_store();
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", "{\"_id\": 1}");
    /* Repeats a query that takes longer each time, until the slow-call message names it. The query
     * depends on the document; otherwise it would be computed in advance. */
    script = bson_strdup_printf(
        "set -m; n='{\"$multiply\": [\"$_id\", 100000]}'; for after in 0.2 1 4 16 60; do "
        "%s --store %s aggregate s '[{\"$set\": {\"x\": {\"$reduce\": {\"input\": {\"$range\": [0, '\"$n\"']}, "
        "\"initialValue\": 0, \"in\": {\"$size\": {\"$filter\": {\"input\": {\"$range\": "
        "[0, '\"$n\"']}, \"as\": \"x\", \"cond\": {\"$gt\": [\"$$x\", \"$$this\"]}}}}}}}}]' 2>%s.err & "
        "sleep $after; kill -INT $!; wait $!; code=$?; grep -q interrupted %s.err && break; done; "
        "echo $code",
        TRUCE_CLI, store, store, store);
    c = command_run("/bin/bash", store, NULL, "-c", script, NULL);
    CHECK_TEXT("130\n", c->out);
    bson_free(script);
}

/* Creates and discards a million numbers, which takes longer than a thousandth of a second. */
#define LONG_WORK                                                                                  \
    "aggregate", "people",                                                                         \
        "[{$set: {x: {$size: {$filter: {input: {$range: [0, 1000000]}, cond: true}}}}}]"

TEST(reports_slow_calls_on_request)
{
    const struct command *run;

    fresh_store();
    RUN("insert", "people", "{_id: 1}");
    run = RUN(LONG_WORK, "--slow", "1ms");
    CHECK_INT(run->code, ==, 0);
    if (!strstr(run->err, "truce: slow: next of people took "))
        test_fail(__FILE__, __LINE__, "%s", run->err);
    run = RUN(LONG_WORK, "--slow", "1ms", "--json");
    if (!strstr(run->err, "{\"slow\": \"next\", \"collection\": \"people\", \"ms\": "))
        test_fail(__FILE__, __LINE__, "%s", run->err);
    run = RUN(LONG_WORK, "--slow", "1h");
    CHECK_TEXT("", run->err);
    setenv("TRUCE_SLOW", "1ms", 1);
    run = RUN(LONG_WORK);
    CHECK(strstr(run->err, "slow: next of people"));
    run = RUN(LONG_WORK, "--slow", "1h"); /* the option wins over the environment */
    CHECK_TEXT("", run->err);
    setenv("TRUCE_SLOW", "soon", 1);
    run = RUN(LONG_WORK);
    CHECK_INT(run->code, ==, 2);
    CHECK_TEXT("truce: TRUCE_SLOW needs a duration, for example 100ms or 1s, not \"soon\"\n",
               run->err);
    unsetenv("TRUCE_SLOW");
}
