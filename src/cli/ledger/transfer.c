/* truce transfer start, resume, cancel, show, list. */
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/document/doc.h"
#include "store/reserved.h"

#define LAYOUT_OPTIONS                                                                             \
    {"accounts", 'a', "COLLECTION", "the collection of SOURCE and DESTINATION", false},            \
        {"field", 'f', "PATH", "the field that VALUE moves between (default: balance)", false},    \
        {"marks", 0, "FIELD", "the field of marks (default: pendingTransactions)", false},         \
        {"fence", 0, "FIELD", "the field of the fence (default: pendingFence)", false},            \
    {                                                                                              \
        "steps", 0, NULL, "apply step by step, even if one step would suffice", false              \
    }

static truce_transfers *open_transfers(const struct cli *cli)
{
    return truce_transfers_new(
        cli->store,
        &(truce_transfer_options){
            .collection = cli->arguments[0],
            .accounts = cli_text(cli, "accounts"),
            .field = cli_text(cli, "field"),
            .marks = cli_text(cli, "marks"),
            .fence = cli_text(cli, "fence"),
            .deadline_ms = cli->deadline_ms,
            .mechanism = cli_flag(cli, "steps") ? TRUCE_MECHANISM_JOURNAL : TRUCE_MECHANISM_AUTO,
        });
}

/* Prints the answer. A refusal is a negative answer, not an error. */
static int transfer_answer(struct cli *cli, truce_status status, const char *state, bool exists,
                           const bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;

    if (status)
        return cli_error(cli, NULL, status, error);
    BSON_APPEND_UTF8(&document, "state", state);
    if (exists)
        BSON_APPEND_BOOL(&document, "exists", true);
    cli_answer(cli, &document, "%s%s", state, exists ? " (it was started before)" : "");
    bson_destroy(&document);
    return CLI_DONE;
}

/* ---- start ----------------------------------------------------------------------------------- */

struct request {
    bson_t ids, entries, meta; /* `ids` has {v} of ID, SOURCE, DESTINATION, VALUE under "0" ... */
    bson_t guards[TRANSFER_ENTRIES_MAX], effects[TRANSFER_ENTRIES_MAX], undos[TRANSFER_ENTRIES_MAX];
    bson_value_t values[4], entry_ids[TRANSFER_ENTRIES_MAX];
    truce_transfer_entry items[TRANSFER_ENTRIES_MAX];
    truce_transfer transfer;
};

static bool transfer_read_argument(const struct cli *cli, int at, struct request *request)
{
    char key[2] = {(char)('0' + at), 0};
    bson_value_t value;
    bson_t holder;
    bool good = cli_doc_id(cli, cli->arguments[1 + at], &holder);

    if (good) {
        value = cli_doc_id_in(&holder);
        BSON_APPEND_VALUE(&request->ids, key, &value);
    }
    bson_destroy(&holder);
    return good;
}

/* Reads {collection, id, when, guard, effect, undo}. On a fault, prints the error and returns
 * false. */
static bool transfer_read_entry(const struct cli *cli, struct request *request, uint32_t at,
                                const bson_t *one)
{
    static const char *const known[] = {"collection", "id", "when", "guard", "effect", "undo"};
    truce_transfer_entry *entry = &request->items[at];
    const char *when = truce__field_text(one, "when");
    struct fields fields = truce__fields(truce__value_document(one));
    bson_iter_t iter;

    while (truce__fields_next(&fields)) {
        bool good = false;

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            good = good || !strcmp(fields.key, known[i]);
        if (!good)
            return cli_usage(cli, "--entries: entry %u has an unknown field \"%s\"", at + 1,
                             fields.key) < 0;
    }
    if (when[0] && strcmp(when, "before") && strcmp(when, "after"))
        return cli_usage(cli, "--entries: `when` of entry %u must be \"before\" or \"after\"",
                         at + 1) < 0;
    if (!bson_iter_init_find(&iter, one, "id"))
        return cli_usage(cli, "--entries: entry %u has no id", at + 1) < 0;
    request->entry_ids[at] = *bson_iter_value(&iter);
    entry->id = &request->entry_ids[at];
    entry->collection = truce__field_text(one, "collection");
    entry->after = !strcmp(when, "after");
    if (truce__value_subdocument(one, "guard", &request->guards[at]))
        entry->guard = &request->guards[at];
    if (truce__value_subdocument(one, "effect", &request->effects[at]))
        entry->effect = &request->effects[at];
    if (truce__value_subdocument(one, "undo", &request->undos[at]))
        entry->undo = &request->undos[at];
    return true;
}

static bool transfer_read_entries(const struct cli *cli, struct request *request)
{
    struct fields fields;
    bool is_array;
    uint32_t count = 0;

    if (!cli_document_or_array(cli, cli_text(cli, "entries"), "--entries", &request->entries,
                               &is_array))
        return false;
    if (!is_array)
        return cli_usage(cli, "--entries must be an array: [{collection, id, when, guard, effect, "
                              "undo}, ...]") < 0;
    fields = truce__fields(truce__value_document(&request->entries));
    while (truce__fields_next(&fields)) {
        bson_t one;

        if (count == TRANSFER_ENTRIES_MAX || fields.value.type != BSON_TYPE_DOCUMENT)
            return cli_usage(cli, "--entries may have up to %d documents", TRANSFER_ENTRIES_MAX) <
                   0;
        truce__value_bson(fields.value, &one);
        if (!transfer_read_entry(cli, request, count++, &one))
            return false;
    }
    request->transfer.entries = request->items;
    request->transfer.count = count;
    return true;
}

static bool read_request(const struct cli *cli, struct request *request)
{
    bson_iter_t iter;
    bool given;
    int i = 0;

    if (cli->count != 2 && cli->count != 5)
        return cli_usage(cli, "expected BOOK ID SOURCE DESTINATION VALUE, or BOOK ID --entries "
                              "[...]") < 0;
    if (cli_text(cli, "entries") && cli->count != 2)
        return cli_usage(cli, "--entries replaces SOURCE DESTINATION VALUE") < 0;
    if (!cli_text(cli, "entries") && cli->count == 2)
        return cli_usage(cli, "SOURCE DESTINATION VALUE are missing, or --entries [...]") < 0;
    for (int at = 0; at < cli->count - 1; at++) {
        if (!transfer_read_argument(cli, at, request))
            return false;
    }
    for (bson_iter_init(&iter, &request->ids); bson_iter_next(&iter); i++)
        request->values[i] = *bson_iter_value(&iter);
    request->transfer.id = &request->values[0];
    if (cli->count == 5) {
        request->transfer.source = &request->values[1];
        request->transfer.destination = &request->values[2];
        request->transfer.value = &request->values[3];
    } else if (!transfer_read_entries(cli, request)) {
        return false;
    }
    request->transfer.overdraft = cli_flag(cli, "overdraft");
    if (!cli_option_document(cli, "meta", &request->meta, &given))
        return false;
    request->transfer.meta = given ? &request->meta : NULL;
    return true;
}

static int transfer_run_start(struct cli *cli)
{
    struct request *request = bson_malloc0(sizeof *request);
    truce_transfer_result result = {0};
    truce_transfers *transfers;
    bson_error_t error;
    int code = CLI_USAGE;

    bson_init(&request->ids);
    bson_init(&request->entries);
    bson_init(&request->meta);
    if (read_request(cli, request)) {
        truce_status status;

        transfers = open_transfers(cli);
        status = truce_transfer_start(transfers, NULL, &request->transfer, &result, &error);
        code = transfer_answer(cli, status, "done", result.exists, &error);
        truce_transfers_free(transfers);
    }
    bson_destroy(&request->meta);
    bson_destroy(&request->entries);
    bson_destroy(&request->ids);
    bson_free(request);
    return code;
}

const struct cli_command cli_transfer_start = {
    .noun = "transfer",
    .verb = "start",
    .arguments = "BOOK ID [SOURCE] [DESTINATION] [VALUE]",
    .summary = "change several documents, all or none",
    .help =
        "BOOK is the collection of the transfers. You choose ID: repeating the call changes\n"
        "nothing. VALUE moves from one document of --accounts to another, if it has enough. Or\n"
        "give --entries: [{collection, id, guard, effect, undo},\n"
        "{collection, id, when: \"after\", effect}], where an entry after the decision cannot\n"
        "refuse (a credit). The first transfer of a book stores the layout, so give it once.\n"
        "A refused transfer ends with exit code 1 and stays refused under its ID.",
    .example =
        "truce insert accounts '{_id: \"A\", balance: 1000}'\n"
        "truce insert accounts '{_id: \"B\", balance: 0}'\n"
        "truce transfer start transactions 1 A B 100 --accounts accounts\n"
        "truce transfer start transactions 2 --entries '[{collection: \"accounts\", id: \"A\",\n"
        "    effect: {$inc: {balance: -5}}}, {collection: \"accounts\", id: \"B\", when: \"after\",\n"
        "    effect: {$inc: {balance: 5}}}]'",
    .options =
        (const struct cli_option[]){
            LAYOUT_OPTIONS,
            {"overdraft", 0, NULL, "allow an overdraft of the source", false},
            {"entries", 'e', "ARRAY", "instead of SOURCE DESTINATION VALUE", false},
            {"meta", 0, "DOCUMENT", "metadata: {order: 17}", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = transfer_run_start,
};

/* ---- resume, cancel -------------------------------------------------------------------------- */

typedef truce_status id_function(truce_transfers *transfers, const bson_value_t *id,
                                 bson_error_t *error);

static int transfer_by_id(struct cli *cli, id_function *function, const char *state)
{
    truce_transfers *transfers;
    bson_error_t error;
    bson_value_t id;
    bson_t holder;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder)) {
        id = cli_doc_id_in(&holder);
        transfers = open_transfers(cli);
        code = transfer_answer(cli, function(transfers, &id, &error), state, false, &error);
        truce_transfers_free(transfers);
    }
    bson_destroy(&holder);
    return code;
}

static int transfer_run_resume(struct cli *cli)
{
    return transfer_by_id(cli, truce_transfer_resume, "done");
}

static int transfer_run_cancel(struct cli *cli)
{
    return transfer_by_id(cli, truce_transfer_cancel, "canceled");
}

#define SAMPLE                                                                                     \
    "truce insert accounts '{_id: \"A\", balance: 1000}' '{_id: \"B\", balance: 0}'\n"             \
    "truce insert transactions '{_id: 7, source: \"A\", destination: \"B\", value: 100,\n"         \
    "    state: \"pending\"}'\n"

static const struct cli_option layout_options[] = {LAYOUT_OPTIONS, {0}};

const struct cli_command cli_transfer_resume = {
    .noun = "transfer",
    .verb = "resume",
    .arguments = "BOOK ID",
    .summary = "complete an interrupted transfer",
    .help = "`truce sweep` does so for transfers without progress for half an hour. Transfers\n"
            "of the recipe in MongoDB's manual are also completed.",
    .example = SAMPLE "truce transfer resume transactions 7 --accounts accounts",
    .options = layout_options,
    .store = CLI_STORE_CHANGE,
    .run = transfer_run_resume,
};

const struct cli_command cli_transfer_cancel = {
    .noun = "transfer",
    .verb = "cancel",
    .arguments = "BOOK ID",
    .summary = "cancel a transfer that is not decided",
    .example = SAMPLE "truce transfer cancel transactions 7 --accounts accounts",
    .options = layout_options,
    .store = CLI_STORE_CHANGE,
    .run = transfer_run_cancel,
};

/* ---- reading --------------------------------------------------------------------------------- */

static int transfer_run_show(struct cli *cli)
{
    truce_transfers *transfers;
    bson_t holder, document;
    bson_error_t error;
    bson_value_t id;
    truce_status status;
    int code = CLI_USAGE;

    if (cli_doc_id(cli, cli->arguments[1], &holder)) {
        id = cli_doc_id_in(&holder);
        transfers = truce_transfers_new(cli->store,
                                        &(truce_transfer_options){.collection = cli->arguments[0]});
        status = truce_transfer_get(transfers, &id, &document, &error);
        if (!status)
            cli_print(&document, JSON_RELAXED);
        code = status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
        bson_destroy(&document);
        truce_transfers_free(transfers);
    }
    bson_destroy(&holder);
    return code;
}

const struct cli_command cli_transfer_show = {
    .noun = "transfer",
    .verb = "show",
    .arguments = "BOOK ID",
    .summary = "show a transfer: state, entries, reason of a refusal",
    .example = SAMPLE "truce transfer show transactions 7",
    .store = CLI_STORE_READ,
    .run = transfer_run_show,
};

static int transfer_run_list(struct cli *cli)
{
    bson_t *filter = bson_new(), *sort = BCON_NEW("lastModified", BCON_INT32(-1)),
           *projection = BCON_NEW("entries", BCON_INT32(0), "_rev", BCON_INT32(0));
    truce_find_options options = {
        .sort = sort, .projection = projection, .deadline_ms = cli->deadline_ms};
    truce_cursor *cursor = NULL;
    int64_t limit;
    bson_error_t error;
    truce_status status;
    int code = CLI_USAGE;

    if (cli_number(cli, "limit", 1, INT32_MAX, 100, &limit)) {
        options.limit = limit + 1;
        if (cli_text(cli, "state"))
            BSON_APPEND_UTF8(filter, "state", cli_text(cli, "state"));
        status = truce_find(cli->store, cli->arguments[0], filter, &options, &cursor, &error);
        code = cli_print_page(cli, status, cursor, limit, &error);
    }
    bson_destroy(projection);
    bson_destroy(sort);
    bson_destroy(filter);
    return code;
}

const struct cli_command cli_transfer_list = {
    .noun = "transfer",
    .verb = "list",
    .arguments = "BOOK",
    .summary = "list the transfers of a book, newest first",
    .example = SAMPLE "truce transfer list transactions --state pending",
    .options =
        (const struct cli_option[]){{"state", 0, "STATE", "only these", false},
                                    {"limit", 'l', "N", "at most this many (default: 100)", false},
                                    {0}},
    .store = CLI_STORE_READ,
    .run = transfer_run_list,
};
