/* truce demo: stories in a store of the user's, and one that gets nothing done. */
#include "tests/support/command.h"
#include "tests/support/stage.h"

static char store[300];

#define DEMO(...)  command_run(TRUCE_CLI, NULL, NULL, "demo", __VA_ARGS__, "--store", store, NULL)
#define TRUCE(...) command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)

static void fresh(void)
{
    snprintf(store, sizeof store, "%s/demo.truce", test_directory());
}

static void check_code(const struct command *c, int code, const char *err, int line)
{
    if (c->code != code || !strstr(c->err, err))
        test_fail(__FILE__, line, "exit code %d: %s%s", c->code, c->out, c->err);
}

TEST(a_story_runs_in_an_empty_store_and_leaves_it_empty)
{
    fresh();
    check_code(DEMO("post"), 0, "", __LINE__);
    CHECK_TEXT("", TRUCE("collections", "list")->out);
    check_code(DEMO("post", "--keep"), 0, "the store is in", __LINE__);
    CHECK_TEXT("1\n", TRUCE("count", "posts")->out);
    check_code(DEMO("post"), 1, "needs an empty store", __LINE__);
    CHECK_TEXT("1\n", TRUCE("count", "posts")->out);
    CHECK(TRUCE("insert", "truce_demo_keys", "{_id: 1}")->code == 0);
    check_code(DEMO("keys"), 1, "already has a collection truce_demo_keys", __LINE__);
    snprintf(store, sizeof store, "memory:");
    check_code(DEMO("badges"), 2, "cannot share memory:", __LINE__);
}

/* A server on which no guarded write takes: it has the documents of the story, and changes none. */
static enum fake_act change_nothing(const bson_t *command, bson_t *reply, void *arg)
{
    bson_iter_t iter, found;

    (void)arg;
    if (!bson_iter_init_find(&iter, command, "find") ||
        strcmp(bson_iter_utf8(&iter, NULL), "truce_demo_keys") != 0 ||
        !bson_iter_init(&iter, command) || !bson_iter_find_descendant(&iter, "filter._id", &found))
        return FAKE_PASS;
    BCON_APPEND(reply, "cursor", "{", "id", BCON_INT64(0), "ns", BCON_UTF8("db.truce_demo_keys"),
                "firstBatch", "[", "{", "_id", BCON_UTF8(bson_iter_utf8(&found, NULL)), "keys", "[",
                "]", "count", BCON_INT64(0), "}", "]", "}");
    return FAKE_ANSWER;
}

TEST(a_story_in_which_no_commit_got_through_has_failed)
{
    struct stage stage = {.script = {.own = change_nothing}};
    bson_error_t error = {0};

    if (CHECK_OK(raise_stage(&stage, FAKE_STANDALONE, 21, "", &error), error)) {
        const struct command *c;

        snprintf(store, sizeof store, "%s", fake_uri(stage.fake, ""));
        c = DEMO("keys", "--duration", "1s");
        check_code(c, 1, "", __LINE__);
        if (!strstr(c->out, "red 0 + green 0 = 0, any 0: wrong"))
            test_fail(__FILE__, __LINE__, "%s%s", c->out, c->err);
    }
    strike(&stage);
}

TEST(shows_in_the_broker_demo_that_truce_loses_nothing)
{
    const struct command *command = command_run(TRUCE_CLI, NULL, NULL, "demo", "broker", NULL);

    check_code(command, 0, "", __LINE__);
    CHECK(strstr(command->out, "killed: right") || strstr(command->out, "skipped: "));
}
