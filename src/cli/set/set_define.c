/* truce set define, protect, forget. */
#include "cli/commands.h"
#include "cli/set/set.h"

static int define_answer(const struct cli *cli, const char *what, const char *collection,
                         const struct cli_set *set)
{
    bson_t document = BSON_INITIALIZER;
    char *id = bson_strdup_printf("%s.%s", collection, set->list);

    bson_append_utf8(&document, what, -1, id, -1);
    cli_answer(cli, &document, "%s %s", what, id);
    bson_destroy(&document);
    bson_free(id);
    return CLI_DONE;
}

static int run_define(struct cli *cli)
{
    struct cli_set set;
    bson_error_t error;
    int code = cli_set_find(cli, cli->store, cli->arguments[0], &set);

    if (!code) {
        truce_status status = truce_set_record(set.set, "define", NULL, 0, &error);

        code = status ? cli_error(cli, NULL, status, &error)
                      : define_answer(cli, "defined", cli->arguments[0], &set);
    }
    cli_set_release(&set);
    return code;
}

const struct cli_command cli_set_define = {
    .noun = "set",
    .verb = "define",
    .arguments = "COLLECTION",
    .summary = "say once which list of a collection is a set, and what names its elements",
    .help =
        "The store keeps it, so that other calls need not say it again; --list is needed where a\n"
        "collection has several sets. Makes a unique index on the key. The first write to a set\n"
        "defines it as well.",
    .example = "truce set define students --list classes --key student_id --name name",
    .options = (const struct cli_option[]){CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_WRITE,
    .run = run_define,
};

static int run_protect(struct cli *cli)
{
    struct cli_set set;
    bson_error_t error;
    int code = cli_set_find(cli, cli->store, cli->arguments[0], &set);

    if (!code) {
        bool off = cli_flag(cli, "off");
        truce_status status = truce_set_protect(set.set, !off, &error);

        code = status ? cli_error(cli, NULL, status, &error)
                      : define_answer(cli, off ? "no longer protected" : "protected",
                                      cli->arguments[0], &set);
    }
    cli_set_release(&set);
    return code;
}

const struct cli_command cli_set_protect = {
    .noun = "set",
    .verb = "protect",
    .arguments = "COLLECTION",
    .summary = "have the store refuse what older programs would bring back after collecting",
    .help =
        "A program that sends the updates of the classic description by itself compares no\n"
        "watermark. From now on `truce set collect` marks the elements that it passes (_proved),\n"
        "and a validator of the collection refuses those without a mark: such a program gets error\n"
        "121. May be called again, and while the set is in use.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set protect students",
    .options = (const struct cli_option[]){{"off", 0, NULL,
                                            "take the rule out of the validator again", false},
                                           CLI_SET_OPTIONS,
                                           {0}},
    .store = CLI_STORE_WRITE,
    .run = run_protect,
};

static int run_forget(struct cli *cli)
{
    struct cli_set set;
    bson_error_t error;
    int code = cli_set_find(cli, cli->store, cli->arguments[0], &set);

    if (!code) {
        truce_status status = truce_set_forget(set.set, cli_flag(cli, "anyway"), &error);

        if (status == TRUCE_CONFLICT)
            code = cli_say(cli, CLI_NO, "%s (--anyway leaves the documents as they are)",
                           error.message);
        else
            code = status ? cli_error(cli, NULL, status, &error)
                          : define_answer(cli, "forgotten", cli->arguments[0], &set);
    }
    cli_set_release(&set);
    return code;
}

const struct cli_command cli_set_forget = {
    .noun = "set",
    .verb = "forget",
    .arguments = "COLLECTION",
    .summary = "take the definition of a set out of the store again",
    .help =
        "With it go its sources and what consumers recorded. The lists in the documents stay, and\n"
        "so does the index on the key (truce index drop). Nobody may be working with the set. Exit\n"
        "code 1: documents hold the list, or there is no such set.",
    .example = "truce set define carts --list items --key cart --name sku\n"
               "truce set forget carts",
    .options =
        (const struct cli_option[]){
            {"anyway", 0, NULL, "also if documents hold the list", false}, CLI_SET_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_forget,
};
