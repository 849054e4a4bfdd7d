/*
 * truce import: NDJSON, an array of JSON, or CSV into a collection. All three are "lines" here (ndjson.h).
 *
 * A line that is no document, or that the store refuses (a unique key is taken), goes to the reject
 * file; the rest is imported. A line rejected just before a crash may be in the reject file twice.
 *
 *     import_progress.c  how far it is, so that it goes on after it was killed
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/core/csv.h"
#include "cli/data/import.h"
#include "store/reserved.h"

#define BATCH_BYTES     (4 * 1024 * 1024)
#define BATCH_LINES_MAX 10000

/* ---- one batch ----------------------------------------------------------------------------- */

static void entry_write(struct import *import, const struct entry *entry, truce_write *write)
{
    bool replace = import->upsert && !bson_empty(&entry->filter);

    *write = (truce_write){.kind = replace ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_INSERT,
                           .collection = import->collection,
                           .filter = replace ? &entry->filter : NULL,
                           .document = &entry->document,
                           .options = {.upsert = replace}};
}

static int import_reject(struct import *import, int64_t line, const char *reason, const char *text,
                         size_t size)
{
    bson_error_t error;

    import->rejected++;
    if (cli_reject(&import->rejects, line, reason, text, size, &error))
        return cli_error(import->cli, NULL, TRUCE_IO, &error);
    return CLI_DONE;
}

static bool is_about_input(truce_status status)
{
    return status == TRUCE_DUPLICATE || status == TRUCE_INVALID || status == TRUCE_LIMIT;
}

static void empty_batch(struct import *import)
{
    for (size_t i = 0; i < import->count; i++) {
        bson_destroy(&import->entries[i].document);
        bson_destroy(&import->entries[i].filter);
        bson_free(import->entries[i].text);
    }
    import->count = import->bytes = 0;
}

/* Its time and chance are the seed's, its counter is the line's number. */
static void append_made_id(const struct import *import, int64_t line, bson_t *document)
{
    bson_oid_t id = import->seed;

    for (int i = 0; i < 4; i++)
        id.bytes[8 + i] = (uint8_t)(line >> (24 - 8 * i));
    BSON_APPEND_OID(document, "_id", &id);
}

/* Did the run that was cut off write this document? It can have written one batch behind its progress. */
static bool was_written(const struct import *import, const struct entry *entry)
{
    bson_t filter = BSON_INITIALIZER, equal, there;
    bson_iter_t id;
    bool same = false;

    if (!import->resumed_at || entry->line >= import->resumed_at + BATCH_LINES_MAX ||
        !bson_iter_init_find(&id, &entry->document, "_id")) {
        bson_destroy(&filter);
        return false;
    }
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &equal);
    BSON_APPEND_VALUE(&equal, "$eq", bson_iter_value(&id));
    bson_append_document_end(&filter, &equal);
    if (!truce_find_one(import->cli->store, import->collection, &filter, NULL, &there, NULL))
        same = bson_equal(&there, &entry->document);
    bson_destroy(&there);
    bson_destroy(&filter);
    return same;
}

static int import_settle(struct import *import, const struct entry *entry,
                         const truce_write_outcome *outcome)
{
    if (outcome->status && !(outcome->status == TRUCE_DUPLICATE && was_written(import, entry)))
        return import_reject(import, entry->row, outcome->error.message, entry->text, entry->size);
    import->imported++;
    truce__fingerprint_add(&import->hash, bson_get_data(&entry->document), entry->document.len);
    return CLI_DONE;
}

static truce_status write_entries(struct import *import, size_t at, size_t count,
                                  bson_error_t *error)
{
    const truce_bulk_options options = {.unordered = true,
                                        .relaxed = cli_flag(import->cli, "relaxed")};
    truce_status status = truce_bulk(import->cli->store, import->writes + at, count, &options,
                                     import->outcomes + at, error);

    for (size_t i = at; i < at + count; i++)
        truce_write_result_release(&import->outcomes[i].result);
    return is_about_input(status) ? TRUCE_OK : status;
}

static int import_write_batch(struct import *import)
{
    bson_error_t error;
    truce_status status;
    int code = CLI_DONE;

    for (size_t i = 0; i < import->count; i++)
        entry_write(import, &import->entries[i], &import->writes[i]);
    status = write_entries(import, 0, import->count, &error);
    for (size_t i = 0; i < import->count && !status && !code; i++) {
        /* a server may refuse a message as a whole for the sake of one document */
        if (import->outcomes[i].status && !import->outcomes[i].error.message[0])
            status = write_entries(import, i, 1, &error);
        if (!status)
            code = import_settle(import, &import->entries[i], &import->outcomes[i]);
    }
    if (status)
        return cli_error(import->cli, NULL, status, &error);
    return code || !import->tracked
               ? code
               : import_save_progress(import, &import->entries[import->count - 1]);
}

static int import_flush(struct import *import)
{
    int code = import->count ? import_write_batch(import) : CLI_DONE;

    empty_batch(import);
    return code;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void cli_import_add(struct import *import, const struct ndjson_line *line,
                           const bson_t *document)
{
    struct entry *entry = &import->entries[import->count++];
    bson_iter_t id;

    bson_init(&entry->document);
    bson_init(&entry->filter);
    if (!bson_iter_init_find(&id, document, "_id")) {
        if (import->tracked)
            append_made_id(import, line->number, &entry->document);
    } else if (import->upsert) {
        bson_append_iter(&entry->filter, "_id", 3, &id);
    }
    bson_concat(&entry->document, document);
    entry->line = line->number;
    entry->row = line->row;
    entry->row_end = line->row_end;
    entry->end = line->end;
    entry->size = line->size;
    entry->text = bson_malloc(line->size + 1);
    memcpy(entry->text, line->text, line->size);
    import->bytes += document->len + line->size;
}

static int import_read_lines(struct import *import)
{
    struct ndjson_line line;
    bson_error_t error;
    bson_t document;
    int code = CLI_DONE;

    while (!code) {
        const char *wrong;
        truce_status status = cli_ndjson_next(import->input, &line, &error);

        if (status)
            return cli_error(import->cli, NULL, status, &error);
        import->read_end = line.end;
        import->read_line = line.number;
        import->read_row = line.row_end;
        if (!line.text)
            return import_flush(import);
        cli_progress(&import->shown, line.end, cli_ndjson_size(import->input));
        wrong = cli_ndjson_document(import->input, &line, &document);
        if (wrong) {
            code = import_reject(import, line.row, wrong, line.text, line.size);
            continue;
        }
        cli_import_add(import, &line, &document);
        if (import->count == import->batch_lines || import->bytes >= BATCH_BYTES)
            code = import_flush(import);
    }
    return code;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int import_finish(struct import *import)
{
    const struct cli *cli = import->cli;
    bson_t answer = BSON_INITIALIZER;
    char hash[FINGERPRINT_TEXT];

    BSON_APPEND_INT64(&answer, "imported", import->imported);
    BSON_APPEND_INT64(&answer, "rejected", import->rejected);
    truce__fingerprint_text(&import->hash, hash);
    BSON_APPEND_UTF8(&answer, "hash", hash);
    if (import->rejected)
        BSON_APPEND_UTF8(&answer, "rejects", import->rejects.path);
    if (import->resumed_at)
        BSON_APPEND_INT64(&answer, "resumedAtLine", import->resumed_at);
    if (import->rejected)
        cli_answer(cli, &answer, "imported %" PRId64 ", rejected %" PRId64 " (see %s)",
                   import->imported, import->rejected, import->rejects.path);
    else
        cli_answer(cli, &answer, "imported %" PRId64, import->imported);
    bson_destroy(&answer);
    return import->rejected ? CLI_NO : CLI_DONE;
}

static int cli_import_import_all(struct import *import)
{
    bson_error_t error;
    int code = CLI_DONE;

    import->tracked = cli_ndjson_size(import->input) > 0;
    if (import->tracked)
        code = import_find_progress(import);
    else
        unlink(import->rejects.path); /* of an earlier import; not there is as good */
    cli_progress_begin(import->cli, &import->shown, "bytes read:");
    if (!code)
        code = import_read_lines(import);
    cli_progress_end(&import->shown);
    if (cli_rejects_close(&import->rejects, &error) && !code)
        code = cli_error(import->cli, NULL, TRUCE_IO, &error);
    if (!code && import->tracked)
        code = import_mark_done(import);
    return code ? code : import_finish(import);
}

static truce_status import_read_form(struct import *import, bson_error_t *error)
{
    const char *types = cli_text(import->cli, "types"),
               *separator = cli_text(import->cli, "separator");
    char one = 0;

    if (cli_flag(import->cli, "csv")) {
        import->form = NDJSON_CSV;
        if (separator && !cli_csv_separator_of(separator, &one))
            return truce__fail(TRUCE_INVALID, error,
                               "--separator is one character (or tab), not \"%s\"", separator);
        return cli_ndjson_csv(import->input, one, types, error);
    }
    if (types || separator)
        return truce__fail(TRUCE_INVALID, error, "--%s is for columns, and needs --csv",
                           types ? "types" : "separator");
    return cli_ndjson_detect(import->input, &import->form, error);
}

static int import_run(struct cli *cli)
{
    const char *path = cli->arguments[1] ? cli->arguments[1] : "-";
    struct import import = {.cli = cli, .collection = cli->arguments[0], .path = path};
    const char *rejects = cli_text(cli, "rejects");
    char *made = bson_strdup_printf("%s.rejects", strcmp(path, "-") ? path : cli->arguments[0]);
    bson_error_t error;
    int64_t lines;
    int code = CLI_USAGE;

    bson_init(&import.id);
    import.rejects = (struct rejects)REJECTS_INIT(rejects ? rejects : made);
    import.upsert = cli_flag(cli, "upsert");
    if (cli_output_check(cli, import.rejects.path, cli->uri, &error)) {
        code = cli_error(cli, NULL, TRUCE_INVALID, &error);
        goto out;
    }
    if (!cli_number(cli, "batch", 1, BATCH_LINES_MAX, 1000, &lines))
        goto out;
    import.batch_lines = (size_t)lines;
    import.entries = bson_malloc0(import.batch_lines * sizeof *import.entries);
    import.writes = bson_malloc0(import.batch_lines * sizeof *import.writes);
    import.outcomes = bson_malloc0(import.batch_lines * sizeof *import.outcomes);
    import.input = cli_ndjson_open(path, &error);
    if (!import.input) {
        code = cli_error(cli, NULL, TRUCE_INVALID, &error);
        goto out;
    }
    if (import_read_form(&import, &error)) {
        code = cli_error(cli, NULL, TRUCE_INVALID, &error);
        goto out;
    }
    import_make_id(&import);
    code = cli_store_open(cli, CLI_STORE_INPUT, &cli->store);
    if (!code)
        code = cli_import_import_all(&import);
out:
    empty_batch(&import);
    cli_ndjson_close(import.input);
    bson_free(import.entries);
    bson_free(import.writes);
    bson_free(import.outcomes);
    bson_destroy(&import.id);
    bson_free(made);
    return code;
}

const struct cli_command cli_import = {
    .noun = "import",
    .arguments = "COLLECTION [FILE]",
    .summary = "insert the documents of a file (NDJSON, a JSON array, CSV), or of standard input",
    .help =
        "One document of Extended JSON a line; or one array of documents, in a file that begins\n"
        "with [; or, with --csv, records of cells, whose first names the fields (a.b is a path).\n"
        "A cell without quotes that is a number, true, false or null is that; an empty one is\n"
        "left out; anything else is a string. --types says otherwise: born=date,zip=string.\n"
        "Cells are separated by what the header has most of: , ; | or tab.\n"
        "\n"
        "Lines that are none, or that the store refuses (a unique key is taken), go to a reject\n"
        "file with line number and reason, and the rest is imported; the exit code is 1 then.\n"
        "Killed and started again on the same file, it goes on where it was: progress is kept in\n"
        "the store (" IMPORTS ").",
    .example = "printf '%s\\n' '{\"_id\": 1, \"name\": \"Ada\"}' > students.ndjson\n"
               "truce import students students.ndjson\n"
               "printf '%s\\n' _id,name,born 2,Bob,2001-05-17 > more.csv\n"
               "truce import students more.csv --csv --types born=date",
    .options =
        (const struct cli_option[]){
            {"csv", 0, NULL, "the input is CSV, with a header", false},
            {"types", 0, "TYPES", "of columns: COLUMN=string, date, objectId or json, ...", false},
            {"separator", 0, "CHAR", "between the cells: , ; | or tab (else found in the header)",
             false},
            {"rejects", 0, "FILE", "the reject file (else FILE.rejects)", false},
            {"upsert", 'u', NULL, "replace documents that have the same _id", false},
            {"batch", 0, "N", "lines that are written at a time (else 1000)", false},
            {"again", 0, NULL, "also what was imported before", false},
            {"relaxed", 0, NULL, "do not wait for the disk at each batch", false},
            {0}},
    .store = CLI_STORE_NONE, /* opened when the file is */
    .run = import_run,
};
