/* truce demo: all stories, or one. */
#include "cli/demo/demo.h"

#include <string.h>

#include "cli/commands.h"

static const struct story {
    const char *name;
    int (*run)(struct cli *cli);
} stories[] = {
    {"enrolments", demo_enrolments},
    {"badges", demo_badges},
    {"keys", demo_keys},
    {"post", demo_post},
    {"friends", demo_friends},
    {"bank", demo_bank},
    {"transfer", demo_transfer},
    {"rename", demo_rename},
    {"tree", demo_tree},
};

static int demo_run(struct cli *cli)
{
    size_t count = sizeof stories / sizeof *stories;
    int code = CLI_DONE;
    bool found = !cli->count;

    for (size_t i = 0; i < count; i++) {
        int own;

        if (cli->count && strcmp(cli->arguments[0], stories[i].name))
            continue;
        found = true;
        own = stories[i].run(cli);
        code = own > code ? own : code;
    }
    if (!found)
        return cli_usage(
            cli,
            "there is no story \"%s\"; there are enrolments, badges, keys, post, friends, bank, "
            "transfer, rename and tree",
            cli->arguments[0]);
    return code;
}

const struct cli_command cli_demo = {
    .noun = "demo",
    .arguments = "[STORY]",
    .summary = "what goes wrong the usual way, and how it goes with truce",
    .help =
        "Each story runs on the embedded store, in a directory of its own, with real processes,\n"
        "and checks its result. The exit code is not 0 if truce's is not all right, or nothing\n"
        "was done. With --store it runs there: in a store with nothing in it, which is empty again\n"
        "at the end; keys in any that has no collection truce_demo_keys, which it drops.\n"
        "\n"
        "  enrolments   students enrol and unenrol through a work queue; the messages arrive\n"
        "               shuffled, some twice, at consumers that are killed with -9\n"
        "  badges       one process changes an item of an array, four readers never look away\n"
        "  keys         processes change two of three documents at once, and are killed with -9\n"
        "  post         two editors save one document\n"
        "  friends      jobs change two lists each, and their workers are killed with -9\n"
        "  bank         people send each other money, and the processes are killed with -9\n"
        "  transfer     a transfer by the recipe of two phases is canceled while it is applied\n"
        "  rename       a user is renamed twice at once, beside copies of the name\n"
        "  tree         a reader walks pages while an edit of many of them dies half-way",
    .example = "truce demo post",
    .options = (const struct cli_option[]){{"messages", 0, "NUMBER", "how many (20000)", false},
                                           {"students", 0, "NUMBER", "how many (2000)", false},
                                           {"consumers", 0, "NUMBER", "processes (5)", false},
                                           {"seconds", 0, "NUMBER",
                                            "badges, keys, friends, bank: each way (3)", false},
                                           {"keep", 0, NULL, "keep the store", false},
                                           {0}},
    .store = CLI_STORE_NONE,
    .run = demo_run,
};
