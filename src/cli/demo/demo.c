/* truce demo: runs all stories, or one. */
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
    {"broker", demo_broker},
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
            "unknown story \"%s\": expected enrolments, badges, keys, post, friends, bank, "
            "transfer, rename, tree, and broker",
            cli->arguments[0]);
    return code;
}

static const struct cli_command cli_demo = {
    .noun = "demo",
    .arguments = "[STORY]",
    .summary = "show failures of the naive code, and how truce avoids them",
    .help =
        "Each story runs real processes on an embedded store in a directory of its own, and\n"
        "checks the result. The exit code is not 0 if truce's result is wrong or nothing was\n"
        "done. With --store, the story runs in that store, which must be empty and is empty\n"
        "again at the end. The story keys only needs a store without the collection\n"
        "truce_demo_keys, which it drops.\n"
        "\n"
        "  enrolments   students enrol and unenrol through a message queue; messages arrive\n"
        "               shuffled, some twice, at consumers that are killed with -9\n"
        "  badges       one process changes an item of an array, and four processes read it\n"
        "  keys         processes change two of three documents together, and are killed\n"
        "  post         two editors save the same document\n"
        "  friends      jobs change two lists each, and their workers are killed\n"
        "  bank         people send each other money, and the processes are killed\n"
        "  transfer     a two-phase transfer is canceled while it is applied\n"
        "  rename       a user with copies of the name is renamed twice at the same time\n"
        "  tree         a reader walks pages while an edit of many pages dies halfway\n"
        "  broker       payments arrive through RabbitMQ at consumers that are killed; needs an\n"
        "               installed rabbitmq-server, of which it starts a private one",
    .example = "truce demo post",
    .options =
        (const struct cli_option[]){
            {"messages", 0, "NUMBER", "number of messages (default: 20000)", false},
            {"students", 0, "NUMBER", "number of students (default: 2000)", false},
            {"consumers", 0, "NUMBER", "number of processes (default: 5)", false},
            {"duration", 0, "DURATION",
             "badges, keys, friends, bank: the time of each variant (default: 3s)", false},
            {"keep", 0, NULL, "keep the store", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = demo_run,
};

cli_command_list cli_demo_commands = {&cli_demo, NULL};
