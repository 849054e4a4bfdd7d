/* truce set add, remove, show, watermark, collect, void, idle, start, quarantine, define, protect,
 * forget, convert. */
#include "cli/set/set.h"

#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "patterns/set/set.h"

/* ---- the set of a call, for commands that apply messages themselves -------------------------- */

int cli_set_open(const struct cli *cli, const char *collection, struct cli_set *set)
{
    bson_error_t error;
    truce_status status;

    *set =
        (struct cli_set){.options = {.collection = collection,
                                     .field = cli_text(cli, "list"),
                                     .key = cli_text(cli, "key"),
                                     .name = cli_text(cli, "name"),
                                     .deleted = cli_text(cli, "deleted"),
                                     .seq = cli_text(cli, "seq-field"),
                                     .source = cli_text(cli, "source-field"),
                                     .watermark = cli_text(cli, "watermark-field"),
                                     .layout = cli_flag(cli, "by-element") ? TRUCE_SET_BY_ELEMENT
                                                                           : TRUCE_SET_IN_DOCUMENT,
                                     .deadline_ms = cli->deadline_ms}};
    status = truce__set_complete(cli->store, &set->arena, NULL, &set->options, &error);
    if (status)
        return cli_row_error(cli, status, &error);
    set->set = truce_set_new(cli->store, &set->options);
    return CLI_DONE;
}

void cli_set_release(struct cli_set *set)
{
    truce_set_free(set->set);
    truce__arena_release(&set->arena);
    *set = (struct cli_set){0};
}

/* ---- define, protect, forget ----------------------------------------------------------------- */

static const struct cli_command cli_set_define = {
    .noun = "set",
    .verb = "define",
    .arguments = "COLLECTION",
    .summary = "define which list of a collection is a set",
    .help =
        "The store keeps the definition, so later calls need not repeat it. If a collection has\n"
        "several sets, they need --list. Creates a unique index on the key. The first write to a\n"
        "set also defines it.",
    .example = "truce set define students --list classes --key student_id --name name",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSetDefine",
                                   .named = CLI_SET_NAMED,
                                   .format = "defined {set}"},
    .run = cli_row_run,
};

static int run_protect(struct cli *cli)
{
    static const struct cli_row off = {.name = "truceSetProtect",
                                       .set = "{on: false}",
                                       .named = CLI_SET_NAMED,
                                       .format = "no longer protected {set}"};

    return cli_row_run_with(cli, cli_flag(cli, "off") ? &off : cli->command->row, NULL);
}

static const struct cli_command cli_set_protect = {
    .noun = "set",
    .verb = "protect",
    .arguments = "COLLECTION",
    .summary = "refuse writes of old programs that restore elements",
    .help =
        "A program that writes the updates of a set itself does not compare the watermark, and\n"
        "could restore removed elements. After this, `truce set collect` marks the elements that\n"
        "it passes (_proved), and a validator of the collection refuses elements without a mark\n"
        "with error 121. You may repeat the call, and call it while the set is in use.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set protect students",
    .options =
        (const struct cli_option[]){{"off", 0, NULL, "remove the rule from the validator", false},
                                    {0}},
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSetProtect",
                                   .set = "{on: true}",
                                   .named = CLI_SET_NAMED,
                                   .format = "protected {set}"},
    .run = run_protect,
};

static const struct cli_command cli_set_forget = {
    .noun = "set",
    .verb = "forget",
    .arguments = "COLLECTION",
    .summary = "remove the definition of a set from the store",
    .help =
        "Also removes its sources and the consumers' records. The lists in the documents stay,\n"
        "and so does the index on the key (truce index drop). No process may use the set. Exit\n"
        "code 1: documents contain the list, or the set does not exist.",
    .example = "truce set define carts --list items --key cart --name sku\n"
               "truce set forget carts",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSetForget",
                                   .named = CLI_SET_NAMED,
                                   .format = "forgotten {set}",
                                   .none = "the set does not exist"},
    .run = cli_row_run,
};

/* ---- add, remove, show ----------------------------------------------------------------------- */

#define CLI_SET_APPLY                                                                              \
    "seq source consumer field name deleted seqField sourceField watermark byElement"

static bool set_is_quarantined(const bson_t *reply)
{
    return !strcmp(truce__field_text(reply, "outcome"), "quarantined");
}

static const struct cli_command cli_set_add = {
    .noun = "set",
    .verb = "add",
    .arguments = "COLLECTION KEY ELEMENT",
    .summary = "add an element to a set, in any order of arrival",
    .help =
        "Prints applied, stale (a newer operation on that name was applied), duplicate (this one\n"
        "was applied before), or quarantined (its number was declared void). An element may have\n"
        "other fields than its name; a newer add replaces them.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1001",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSet",
                                   .named = CLI_SET_NAMED " ELEMENT add",
                                   .fields = CLI_SET_APPLY,
                                   .format = "{outcome}",
                                   .negative = set_is_quarantined},
    .run = cli_row_run,
};

static const struct cli_command cli_set_remove = {
    .noun = "set",
    .verb = "remove",
    .arguments = "COLLECTION KEY ELEMENT",
    .summary = "remove an element from a set, in any order of arrival",
    .help = "Prints the same as truce set add. A remove that arrives before its add leaves a\n"
            "tombstone, which makes the add stale.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set remove students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1002",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSet",
                                   .named = CLI_SET_NAMED " ELEMENT remove",
                                   .fields = CLI_SET_APPLY,
                                   .format = "{outcome}",
                                   .negative = set_is_quarantined},
    .run = cli_row_run,
};

static int set_run_show(struct cli *cli)
{
    const char *key = cli->arguments[1];

    if (key[strspn(key, " \t\r\n")] != '{')
        return cli_usage(cli, "KEY must be a document, for example '{student_id: 7}', not \"%s\"",
                         key);
    return cli_row_run(cli);
}

static const struct cli_command cli_set_show = {
    .noun = "set",
    .verb = "show",
    .arguments = "COLLECTION KEY",
    .summary = "show a set: elements, removed elements, watermark",
    .example =
        "truce set define students --list classes --key student_id --name name\n"
        "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1 --consumer web\n"
        "truce set show students '{student_id: 1}'",
    .store = CLI_STORE_READ,
    .row =
        &(const struct cli_row){.name = "truceSet",
                                .set = "{show: true}",
                                .named = CLI_SET_NAMED,
                                .fields =
                                    "field name deleted seqField sourceField watermark byElement",
                                .none = "no operation was applied to this key",
                                .show = "document"},
    .run = set_run_show,
};

/* ---- watermark, collect, convert ------------------------------------------------------------- */

static bool print_watermark(struct cli *cli, const bson_t *reply)
{
    struct fields fields =
        truce__fields(truce__value_field(truce__value_document(reply), "sources", 7));

    cli_answer(cli, reply, "watermark %" PRId64, truce__field_number(reply, "watermark"));
    while (truce__fields_next(&fields)) {
        const char *name;
        int64_t watermark;
        bson_t source;

        truce__value_bson(fields.value, &source);
        name = truce__field_text(&source, "source");
        watermark = truce__field_number(&source, "watermark");
        cli_put("  source %-20s watermark %" PRId64 ", waits for %" PRId64 "\n",
                *name ? name : "(none)", watermark, watermark + 1);
    }
    return true;
}

static const struct cli_command cli_set_watermark = {
    .noun = "set",
    .verb = "watermark",
    .arguments = "COLLECTION",
    .summary = "show up to which number each source was applied",
    .help =
        "The watermark of a source is the end of the numbers without a gap that consumers\n"
        "recorded. That of the set is the lowest of its sources. Tombstones at or below it can\n"
        "be collected.",
    .example =
        "truce set define students --list classes --key student_id --name name\n"
        "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1 --consumer web\n"
        "truce set watermark students",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceSetCollect",
                                   .named = CLI_SET_NAMED,
                                   .fields = CLI_SET_FIELDS,
                                   .print = print_watermark},
    .run = cli_row_run,
};

static const struct cli_command cli_set_collect = {
    .noun = "set",
    .verb = "collect",
    .arguments = "COLLECTION",
    .summary = "remove tombstones that are no longer needed",
    .help =
        "A tombstone is removed when every number up to its own was applied. The command may run\n"
        "at any time, concurrently with consumers and other collectors.",
    .example =
        "truce set define students --list classes --key student_id --name name\n"
        "truce set add students '{student_id: 1}' '{name: \"CS 101\"}' --seq 1 --consumer web\n"
        "truce set collect students",
    .store = CLI_STORE_CHANGE,
    .row =
        &(const struct cli_row){
            .name = "truceSetCollect",
            .set = "{collect: true}",
            .named = CLI_SET_NAMED,
            .format =
                "collected {tombstones tombstone tombstones} of {documents document documents}, up "
                "to watermark {watermark}"},
    .run = cli_row_run,
};

static bool set_left_some(const bson_t *reply)
{
    return truce__field_number(reply, "left") > 0;
}

static bool print_converted(struct cli *cli, const bson_t *reply)
{
    cli_answer(cli, reply, "converted %s of %s",
               PLURAL(truce__field_number(reply, "elements"), "element", "elements"),
               PLURAL(truce__field_number(reply, "documents"), "document", "documents"));
    if (set_left_some(reply))
        cli_message(cli, CLI_NO, "%s: %s",
                    PLURAL(truce__field_number(reply, "left"), "document was not converted",
                           "documents were not converted"),
                    truce__field_text(reply, "failure"));
    return true;
}

static const struct cli_command cli_set_convert = {
    .noun = "set",
    .verb = "convert",
    .arguments = "COLLECTION",
    .summary = "give a number to elements without one",
    .help =
        "Lists such as classes: [\"CS 101\"] become [{name: \"CS 101\", seq: 0}], which is older\n"
        "than every operation. An operation converts its own document; this command converts all.\n"
        "It may run while the set is in use. If it is stopped, start it again, and it resumes.",
    .example = "truce insert students '{student_id: 1, classes: [\"CS 101\"]}'\n"
               "truce set define students --list classes --key student_id --name name\n"
               "truce set convert students",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSetConvert",
                                   .named = CLI_SET_NAMED,
                                   .negative = set_left_some,
                                   .print = print_converted},
    .run = cli_row_run,
};

/* ---- void, idle, start ----------------------------------------------------------------------- */

static int set_run_void(struct cli *cli)
{
    static const struct cli_row below = {.name = "truceSetSource",
                                         .named = CLI_SET_NAMED " --below idle",
                                         .fields = "from to idle source " CLI_SET_FIELDS,
                                         .format = "below {idle}"};

    return cli_row_run_with(cli, cli_flag(cli, "below") ? &below : cli->command->row, NULL);
}

static const struct cli_command cli_set_void = {
    .noun = "set",
    .verb = "void",
    .arguments = "COLLECTION",
    .summary = "void numbers that were never published",
    .help =
        "A void number no longer stops the watermark. An operation that arrives with such a\n"
        "number after the watermark has passed it is quarantined.\n"
        "If numbers have gaps (timestamps, ids of a database), use --below N. It declares void\n"
        "every number below N that no consumer recorded.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set void students --from 17 --to 19",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSetSource",
                                   .named = CLI_SET_NAMED " --below idle",
                                   .fields = "from to idle source " CLI_SET_FIELDS,
                                   .format = "void {void}"},
    .run = set_run_void,
};

static const struct cli_command cli_set_idle = {
    .noun = "set",
    .verb = "idle",
    .arguments = "COLLECTION",
    .summary = "declare that a source is complete below a number",
    .help = "Every number of the source below --below was recorded or will never be published.\n"
            "A source that publishes rarely stops collecting until this is declared.\n"
            "Exit code 1: the set does not have the source (truce set start announces it).",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set start students --source web\n"
               "truce set idle students --source web --below 5000",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceSetSource",
                                   .named = CLI_SET_NAMED " --below idle",
                                   .fields = "idle source " CLI_SET_FIELDS,
                                   .format = "below {idle}"},
    .run = cli_row_run,
};

static const struct cli_command cli_set_start = {
    .noun = "set",
    .verb = "start",
    .arguments = "COLLECTION",
    .summary = "announce a new source and print its first number",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set start students --source mobile",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceSetSource",
                                   .set = "{start: true}",
                                   .named = CLI_SET_NAMED,
                                   .fields = "source " CLI_SET_FIELDS,
                                   .format = "first {first}"},
    .run = cli_row_run,
};

/* ---- quarantine ------------------------------------------------------------------------------ */

static int run_quarantine(struct cli *cli)
{
    static const struct cli_row replayed = {
        .name = "truceSetReplay",
        .set = "{all: true, consumer: 'replay'}",
        .named = CLI_SET_NAMED,
        .fields = "seq consumer " CLI_SET_FIELDS,
        .format =
            "applied {applied}, stale {stale}, duplicate {duplicate}; the next number is {next}"};
    bool replays = cli_flag(cli, "replay");
    int code;

    if (!replays && (cli_text(cli, "seq") || cli_text(cli, "consumer")))
        return cli_usage(cli, "--seq and --consumer need --replay");
    code = cli_store_open(cli, replays ? CLI_STORE_CHANGE : CLI_STORE_READ, &cli->store);
    return code ? code : cli_row_run_with(cli, replays ? &replayed : cli->command->row, NULL);
}

static const struct cli_command cli_set_quarantine = {
    .noun = "set",
    .verb = "quarantine",
    .arguments = "COLLECTION",
    .summary = "list or replay operations that arrived too late",
    .help =
        "Prints one document per line: the operation and the reason. Exit code 1: there are\n"
        "quarantined operations.\n"
        "\n"
        "With --replay, each operation is applied and removed from the quarantine. A name with a\n"
        "newer operation stays unchanged (stale). Others are applied under new numbers from --seq\n"
        "on, as if they were published now. --consumer records the numbers.\n"
        "Use numbers that the source assigned for this purpose only.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce set quarantine students\n"
               "truce set quarantine students --replay --seq 2000",
    .options =
        (const struct cli_option[]){
            {"replay", 0, NULL, "apply the quarantined operations", false},
            {"seq", 0, "NUMBER", "the first of the new numbers", false},
            {"consumer", 0, "NAME", "the consumer that records them (default: replay)", false},
            {0}},
    /* The command opens the store itself: only a replay writes. */
    .store = CLI_STORE_NONE,
    .row = &(const struct cli_row){.name = "truceSetQuarantine",
                                   .named = CLI_SET_NAMED,
                                   .none = "nothing is quarantined",
                                   .list = "quarantined",
                                   .findings = true},
    .run = run_quarantine,
};

cli_command_list cli_set_commands = {&cli_set_define,    &cli_set_add,
                                     &cli_set_remove,    &cli_set_show,
                                     &cli_set_watermark, &cli_set_collect,
                                     &cli_set_void,      &cli_set_idle,
                                     &cli_set_start,     &cli_set_quarantine,
                                     &cli_set_convert,   &cli_set_protect,
                                     &cli_set_forget,    NULL};
