/* truce insert: inserts documents of the call, or NDJSON from standard input. */
#include "cli/commands.h"
#include "cli/core/cli.h"

#include <inttypes.h>

#include "cli/core/ndjson.h"

struct insert {
    struct cli *cli;
    bson_t ids; /* The _ids of the inserted documents, for --json. */
    int64_t inserted;
};

/* Copies the document and prepends an _id if it has none, so that the caller learns the _id. */
static void with_id(const bson_t *document, bson_t *whole)
{
    bson_oid_t oid;

    bson_init(whole);
    if (!bson_has_field(document, "_id")) {
        bson_oid_init(&oid, NULL);
        BSON_APPEND_OID(whole, "_id", &oid);
    }
    bson_concat(whole, document);
}

static void remember_id(struct insert *insert, const bson_t *document)
{
    char key[16];
    const char *at;
    bson_iter_t iter;

    insert->inserted++;
    if (!insert->cli->json || insert->inserted > 10000 ||
        !bson_iter_init_find(&iter, document, "_id"))
        return;
    bson_uint32_to_string((uint32_t)(insert->inserted - 1), &at, key, sizeof key);
    bson_append_iter(&insert->ids, at, -1, &iter);
}

/* Inserts a document, with a new _id if it has none. `what` names the document in an error, or is
 * NULL if there is only one. */
static int insert_one(struct insert *insert, const bson_t *document, const char *what)
{
    const struct cli *cli = insert->cli;
    const truce_write_options options = {.relaxed = cli_flag(cli, "relaxed")};
    bson_error_t error;
    truce_status status;
    bson_t whole;

    with_id(document, &whole);
    status = truce_insert(cli->store, cli->arguments[0], &whole, &options, &error);
    if (!status)
        remember_id(insert, &whole);
    bson_destroy(&whole);
    return status ? cli_error(cli, what, status, &error) : CLI_DONE;
}

/* Reads the documents of the call, and with `insert`, inserts them one by one. Stops at the first
 * failure; those before it stay inserted. */
static int insert_read_arguments(const struct cli *cli, struct insert *insert)
{
    int code = CLI_DONE;

    for (int i = 1; i < cli->count && !code; i++) {
        char what[32];
        bson_t document;

        snprintf(what, sizeof what, "document %d", i);
        if (!cli_document(cli, cli->arguments[i], what, &document))
            code = CLI_USAGE;
        else if (insert)
            code = insert_one(insert, &document, cli->count > 2 ? what : NULL);
        bson_destroy(&document);
    }
    return code;
}

/* Inserts the documents of the call. If one of them cannot be read, nothing is inserted. */
static int insert_arguments(struct insert *insert)
{
    struct cli *cli = insert->cli;
    int code = insert_read_arguments(cli, NULL);

    if (!code)
        code = cli_store_open(cli, CLI_STORE_WRITE, &cli->store);
    return code || !cli->store ? code : insert_read_arguments(cli, insert);
}

/* Inserts a line. The store is opened at the first good line, so bad input creates no store. */
static int insert_line(struct insert *insert, const bson_t *document, const char *what)
{
    int code = CLI_DONE;

    if (!insert->cli->store)
        code = cli_store_open(insert->cli, CLI_STORE_WRITE, &insert->cli->store);
    return code ? code : insert_one(insert, document, what);
}

/* Inserts the documents of standard input until the first failure. A rehearsal ends after the first
 * insert. */
static int insert_lines(struct insert *insert)
{
    const struct cli *cli = insert->cli;
    bson_error_t error;
    struct ndjson *input = cli_ndjson_open("-", &error);
    struct ndjson_line line;
    bson_t document;
    int code = CLI_DONE;

    if (!input)
        return cli_error(cli, NULL, TRUCE_INVALID, &error);
    while (!code && !(cli->rehearsal && insert->inserted)) {
        char what[40];
        const char *wrong;
        truce_status status = cli_ndjson_next(input, &line, &error);

        if (status)
            code = cli_error(cli, NULL, status, &error);
        if (status || !line.text)
            break;
        snprintf(what, sizeof what, "line %" PRId64, line.number);
        wrong = cli_ndjson_document(input, &line, &document);
        code = wrong ? cli_usage(cli, "%s, %s", what, wrong) : insert_line(insert, &document, what);
    }
    cli_ndjson_close(input);
    return code;
}

static int insert_run(struct cli *cli)
{
    struct insert insert = {.cli = cli, .ids = BSON_INITIALIZER};
    bson_t answer = BSON_INITIALIZER;
    int code = cli->count > 1 ? insert_arguments(&insert) : insert_lines(&insert);

    if (!code || insert.inserted) {
        BSON_APPEND_INT64(&answer, "inserted", insert.inserted);
        BSON_APPEND_ARRAY(&answer, "ids", &insert.ids);
        cli_answer(cli, &answer, "inserted %" PRId64, insert.inserted);
    }
    bson_destroy(&insert.ids);
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_insert = {
    .noun = "insert",
    .arguments = "COLLECTION [DOCUMENT...]",
    .summary = "insert documents from the arguments or standard input",
    .help =
        "A document without _id gets an ObjectId; --json shows the ids (the first 10,000). If an\n"
        "argument cannot be read, nothing is inserted. Otherwise, the command ends at the first\n"
        "document that cannot be inserted; earlier ones stay. For large files, use truce import:\n"
        "it is faster, and continues after invalid lines.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}' '{_id: 2, name: \"Bob\"}'",
    .options =
        (const struct cli_option[]){
            {"relaxed", 0, NULL, "do not wait for the disk at each document", false}, {0}},
    .store = CLI_STORE_NONE, /* The store is opened after a document was read. */
    .writes_documents = true,
    .run = insert_run,
};

cli_command_list cli_insert_commands = {&cli_insert, NULL};
