/*
 * truce import: imports NDJSON, a JSON array, or CSV into a collection. All three consist of
 * "lines" here (ndjson.h).
 *
 * A line that is not a document, or that the store refuses (a duplicate key), goes to the reject
 * file; the other lines are imported. A line that is rejected just before a crash may be in the
 * reject file twice.
 *
 * The progress is recorded, so a killed import resumes.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/fingerprint.h"
#include "base/limits.h"
#include "base/object_id.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/csv.h"
#include "cli/core/ndjson.h"
#include "cli/core/progress.h"
#include "query/input_check.h"
#include "store/reserved_names.h"

struct entry {
    /* With --upsert, `filter` is {_id}. */
    bson_t document, filter;
    /* The fields of the same names in struct ndjson_line. */
    int64_t line, row, row_end, end;
    /* The text of the line, for the reject file. */
    char *text;
    size_t size;
};

struct import {
    struct cli *cli;
    /* The target, and the name of the input as the user gave it. */
    const char *collection, *path;
    struct ndjson *input;
    struct rejects rejects;
    struct cli_progress shown;
    struct entry *entries;
    truce_write *writes;
    truce_write_outcome *outcomes;
    /* The current batch: the number of its documents, the maximum of this number, and the size of
     * the documents and lines. */
    size_t count, batch_lines, bytes;
    enum ndjson_form form;
    /* `tracked`: the input is a file, so the progress is stored. */
    bool upsert, tracked;
    /* The fields of the same names in the progress document. */
    bson_oid_t seed;
    struct fingerprint hash;
    /* The _id of the progress document: {file, collection}. */
    bson_t id;
    /* `offset` to `rejected` have the same names in the progress document. `resumed_at` is the
     * first line after the stored progress, or 0. */
    int64_t offset;
    int64_t line, imported, rejected, resumed_at;
    /* The end, the number, and the row of the last line that was read, imported or not. */
    int64_t read_end, read_line, read_row;
};

/* ---- the progress ---------------------------------------------------------------------------- */

/*
 * The progress of an import.
 *
 * Lines are read in batches. Each batch is written, and then the progress:
 *
 *     truce_imports  {_id: {file, collection}, offset, line, row?, form?, imported, rejected,
 *                     check, hash, done, seed, at}
 *
 *     offset        the offset at which the next line starts
 *     line, row     the number of the line that ends before `offset`. For arrays and CSV, `line` is
 *                   the number of the element, and `row` the line of the file on which it ends
 *     form          the form of the file, "array" or "csv", or absent for NDJSON
 *     check         a hash of the last bytes before `offset`, to detect another file
 *     hash          the fingerprint of the imported documents
 *     done          the end of the file was reached
 *     seed          the base of generated _ids, together with the number of the line
 *     at            the time of the record
 *
 * An import that is killed at any time and started again on the same file resumes at `offset`, and
 * each line is imported once. The batch after `offset` may be stored in part. Its documents are
 * recognized by their _ids; equal documents count as imported. The import therefore needs no
 * transaction. A process that is killed would leave a transaction open on a server.
 *
 * The progress document stays after the import. Importing the same file again changes nothing, but
 * lines that were appended to the file are imported. A last line without a newline may be
 * incomplete, because a program is still writing the file: if it was rejected, it is read again. If
 * it was imported and has grown, the import is refused. With --again, or if the collection was emptied
 * in the meantime, the file is imported from its start. So is another file under the same name if
 * the first file was done. Input that cannot be read twice, such as a pipe, has no progress.
 */

/* The number of bytes before `offset` that are hashed. */
#define CHECK_BYTES 4096

/* Hashes up to CHECK_BYTES before `offset` with FNV-1a. Returns false if they cannot be read. */
static bool hash_before(const char *path, int64_t offset, int64_t *hash)
{
    unsigned char bytes[CHECK_BYTES];
    size_t want = offset < CHECK_BYTES ? (size_t)offset : CHECK_BYTES;
    uint64_t value = UINT64_C(14695981039346656037);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : pread(file, bytes, want, (off_t)(offset - (int64_t)want));

    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i < got; i++)
        value = (value ^ bytes[i]) * UINT64_C(1099511628211);
    *hash = (int64_t)value;
    return got == (ssize_t)want;
}

static void import_make_id(struct import *import)
{
    char *whole = realpath(import->path, NULL);

    bson_init(&import->id);
    BSON_APPEND_UTF8(&import->id, "file", whole ? whole : import->path);
    BSON_APPEND_UTF8(&import->id, "collection", import->collection);
    free(whole);
}

static const char *const form_names[] = {
    [NDJSON_LINES] = "lines", [NDJSON_ARRAY] = "array", [NDJSON_CSV] = "csv"};

/* Appends the fields of the progress up to `offset`. */
static void append_progress(struct import *import, int64_t offset, int64_t line, int64_t row,
                            bool done, bson_t *set)
{
    char text[FINGERPRINT_TEXT];
    int64_t check;

    truce__fingerprint_text(&import->hash, text);
    BSON_APPEND_UTF8(set, "hash", text);
    /* If the file cannot be read, the check differs later. */
    (void)hash_before(import->path, offset, &check);
    BSON_APPEND_INT64(set, "offset", offset);
    BSON_APPEND_INT64(set, "line", line);
    if (import->form != NDJSON_LINES) {
        BSON_APPEND_INT64(set, "row", row);
        BSON_APPEND_UTF8(set, "form", form_names[import->form]);
    }
    BSON_APPEND_INT64(set, "imported", import->imported);
    BSON_APPEND_INT64(set, "rejected", import->rejected);
    BSON_APPEND_INT64(set, "check", check);
    BSON_APPEND_BOOL(set, "done", done);
    BSON_APPEND_DATE_TIME(set, "at", truce__clock_wall_ms());
}

static int insert_progress(struct import *import)
{
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    truce__id_new(&import->seed);
    BSON_APPEND_DOCUMENT(&document, "_id", &import->id);
    BSON_APPEND_OID(&document, "seed", &import->seed);
    append_progress(import, 0, 0, 1, false, &document);
    status = truce_insert(import->cli->store, IMPORTS, &document, NULL, &error);
    bson_destroy(&document);
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

static int remove_progress(struct import *import)
{
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    status = truce_remove(import->cli->store, IMPORTS, &filter, NULL, NULL, &error);
    bson_destroy(&filter);
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

/* Records that the end of the input was reached. */
static int import_mark_done(struct import *import)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    append_progress(import, import->read_end, import->read_line, import->read_row, true, &set);
    bson_append_document_end(&update, &set);
    status = truce_update(import->cli->store, IMPORTS, &filter, &update, NULL, NULL, &error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

static bool is_same_form(const struct import *import, const bson_t *progress)
{
    bson_iter_t form;

    if (!bson_iter_init_find(&form, progress, "form") || !BSON_ITER_HOLDS_UTF8(&form))
        return import->form == NDJSON_LINES;
    return !strcmp(bson_iter_utf8(&form, NULL), form_names[import->form]);
}

/* Returns true if the file is the one that `progress` describes, perhaps with more lines at its
 * end. */
static bool progress_is_same_file(const struct import *import, const bson_t *progress)
{
    int64_t offset = truce__field_number(progress, "offset"), check;

    return is_same_form(import, progress) && offset <= cli_ndjson_size(import->input) &&
           hash_before(import->path, offset, &check) &&
           check == truce__field_number(progress, "check");
}

/* Returns whether more text follows on the line that ends at `offset`, which was therefore imported
 * before it was complete. */
static bool progress_line_has_grown(const struct import *import, int64_t offset)
{
    size_t before = offset < CHECK_BYTES ? (size_t)offset : CHECK_BYTES;
    int file = import->form == NDJSON_ARRAY ? -1 : open(import->path, O_RDONLY | O_CLOEXEC);
    char bytes[CHECK_BYTES + 1];
    ssize_t got = file < 0 ? -1 : pread(file, bytes, before + 1, (off_t)(offset - (int64_t)before));
    size_t at = before;

    if (file >= 0)
        close(file);
    if (got != (ssize_t)before + 1 || bytes[before] == '\n' || bytes[before] == '\r')
        return false;
    while (at && (bytes[at - 1] == ' ' || bytes[at - 1] == '\t' || bytes[at - 1] == '\r'))
        at--;
    return at && bytes[at - 1] != '\n';
}

/* Resumes after the lines that `progress` records. */
static int progress_resume(struct import *import, const bson_t *progress)
{
    bool done = truce__field_true(progress, "done");
    bson_error_t error;
    bson_iter_t iter;
    truce_status status;

    import->line = truce__field_number(progress, "line");
    import->offset = truce__field_number(progress, "offset");
    import->read_line = import->line;
    import->read_end = import->offset;
    import->read_row = truce__field_number(progress, "row");
    if (progress_line_has_grown(import, import->offset))
        return cli_usage(import->cli,
                         "%s %" PRId64 " of %s was imported before it was complete: correct its "
                         "document, or remove it and start over with --again",
                         import->form == NDJSON_LINES ? "line" : "document", import->line,
                         import->path);
    status =
        cli_ndjson_seek(import->input, import->offset, import->line + 1, import->read_row, &error);
    if (status)
        return cli_error(import->cli, NULL, status, &error);
    if (bson_iter_init_find(&iter, progress, "seed") && BSON_ITER_HOLDS_OID(&iter))
        import->seed = *bson_iter_oid(&iter);
    if (!done && bson_iter_init_find(&iter, progress, "hash") && BSON_ITER_HOLDS_UTF8(&iter))
        truce__fingerprint_read(&import->hash, bson_iter_utf8(&iter, NULL));
    import->imported = done ? 0 : truce__field_number(progress, "imported");
    import->rejected = done ? 0 : truce__field_number(progress, "rejected");
    import->resumed_at = import->line + 1;
    if (done && import->offset == cli_ndjson_size(import->input))
        cli_note(import->cli, "%s was imported before (--again imports it again)", import->path);
    else
        cli_note(import->cli, "resumes at %s %" PRId64 " of %s (--again starts over)",
                 import->form == NDJSON_LINES ? "line" : "document", import->resumed_at,
                 import->path);
    return CLI_DONE;
}

/* Sets *empty if the collection was emptied in the meantime. The progress is then useless. */
static int progress_is_empty(struct import *import, bool *empty)
{
    const truce_count_options one = {.limit = 1};
    bson_error_t error;
    int64_t count = 0;
    truce_status status =
        truce_count(import->cli->store, import->collection, NULL, &one, &count, &error);

    *empty = count == 0;
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

/* Resumes an earlier run of the same file, or starts at the first line. */
static int import_find_progress(struct import *import)
{
    bson_t filter = BSON_INITIALIZER, progress;
    bson_error_t error;
    truce_status status;
    bool empty = false;
    int code = CLI_DONE;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    status = truce_find_one(import->cli->store, IMPORTS, &filter, NULL, &progress, &error);
    if (status && status != TRUCE_NOT_FOUND)
        code = cli_error(import->cli, NULL, status, &error);
    if (!status)
        code = progress_is_empty(import, &empty);
    if (!status && !code) {
        bool same = progress_is_same_file(import, &progress);

        if (cli_flag(import->cli, "again") ||
            (empty && truce__field_number(&progress, "imported")) ||
            (!same && truce__field_true(&progress, "done")))
            code = remove_progress(import);
        else if (same)
            code = progress_resume(import, &progress);
        else
            code = cli_usage(import->cli,
                             "%s is not the file that was imported up to line %" PRId64
                             "; --again starts at its first line",
                             import->path, truce__field_number(&progress, "line"));
    }
    if (!code && !import->resumed_at) {
        cli_rejects_begin(&import->rejects);
        code = insert_progress(import);
    }
    bson_destroy(&filter);
    bson_destroy(&progress);
    return code;
}

/* Stores the progress up to the end of this line, if no other process has changed it. The write
 * does not wait for the disk. The progress may be older than the documents, but never newer. */
static int import_save_progress(struct import *import, const struct entry *last)
{
    const truce_write_options options = {.relaxed = true};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    truce_write_result result = {0};
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    BSON_APPEND_INT64(&filter, "offset", import->offset);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    append_progress(import, last->end, last->line, last->row_end, false, &set);
    bson_append_document_end(&update, &set);
    status = truce_update(import->cli->store, IMPORTS, &filter, &update, &options, &result, &error);
    bson_destroy(&filter);
    bson_destroy(&update);
    if (status)
        return cli_error(import->cli, NULL, status, &error);
    import->offset = last->end;
    import->line = last->line;
    if (!result.matched)
        return cli_message(import->cli, CLI_NO, "another process is importing %s into %s",
                           import->path, import->collection);
    return CLI_DONE;
}

/* ---- the import ------------------------------------------------------------------------------ */

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

/* Appends an ObjectId: time and random part come from the seed, and the counter is the line's
 * number. */
static void append_made_id(const struct import *import, int64_t line, bson_t *document)
{
    bson_oid_t id = import->seed;

    for (int i = 0; i < 4; i++)
        id.bytes[8 + i] = (uint8_t)(line >> (24 - 8 * i));
    BSON_APPEND_OID(document, "_id", &id);
}

/* Returns true if the interrupted run wrote this document. It can have written one batch after its
 * progress. */
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

/* Writes the batch in one unordered bulk, rejects the lines that the store refused, and stores the
 * progress. */
static int import_write_batch(struct import *import)
{
    bson_error_t error;
    truce_status status;
    int code = CLI_DONE;

    for (size_t i = 0; i < import->count; i++)
        entry_write(import, &import->entries[i], &import->writes[i]);
    status = write_entries(import, 0, import->count, &error);
    for (size_t i = 0; i < import->count && !status && !code; i++) {
        /* A failure without a message: a server may refuse a whole message because of one
         * document. */
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

/* Copies a document into the batch. If the progress is tracked, a document without an _id gets one
 * that a resumed run makes again. */
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

/* Reads lines into batches until the end of the input, and writes each full batch. */
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
        cli_progress(&import->shown, line.end, cli_ndjson_size(import->input));
        wrong = line.text ? cli_ndjson_document(import->input, &line, &document) : NULL;
        if (wrong)
            code = import_reject(import, line.row, wrong, line.text, line.size);
        if (wrong && line.unfinished && !code)
            return import_flush(import); /* The next run reads the line again. */
        import->read_end = line.end;
        import->read_line = line.number;
        import->read_row = line.row_end;
        if (!line.text)
            return import_flush(import);
        if (wrong)
            continue;
        if (!import->cli->store)
            code = cli_store_open(import->cli, CLI_STORE_INPUT, &import->cli->store);
        if (code)
            return code;
        cli_import_add(import, &line, &document);
        if (import->count == import->batch_lines || import->bytes >= BATCH_BYTES)
            code = import_flush(import);
    }
    return code;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Prints the result. Returns CLI_NO if lines were rejected. */
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
    if (!cli->store)
        cli_note(cli, "%s has no documents, so the store is not created",
                 strcmp(import->path, "-") ? import->path : "standard input");
    bson_destroy(&answer);
    return import->rejected ? CLI_NO : CLI_DONE;
}

/* Sets *usable to whether a line of the input is a document. Resumes at the first line. */
static int import_scan(struct import *import, bool *usable)
{
    struct ndjson_line line;
    bson_error_t error;
    bson_t document;
    truce_status status;

    *usable = false;
    while (!(status = cli_ndjson_next(import->input, &line, &error)) && line.text) {
        *usable = !cli_ndjson_document(import->input, &line, &document);
        if (*usable)
            break;
    }
    if (!status)
        status = cli_ndjson_seek(import->input, 0, 1, 1, &error);
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

/* Opens the store, unless it would be created for a file without a document. If the input cannot be
 * read twice, a new store is created at its first document. */
static int import_open_store(struct import *import)
{
    struct cli *cli = import->cli;
    const char *file = cli->uri ? cli_store_path(cli->uri) : NULL;
    bool usable = true;
    int code = CLI_DONE;

    if (file && access(file, F_OK) != 0 && errno == ENOENT) {
        usable = cli_ndjson_size(import->input) > 0;
        if (usable)
            code = import_scan(import, &usable);
    }
    return code || !usable ? code : cli_store_open(cli, CLI_STORE_INPUT, &cli->store);
}

/* Imports the input. If it can be read twice, continues where an earlier import ended. */
static int cli_import_all(struct import *import)
{
    bson_error_t error;
    int code = CLI_DONE;

    import->tracked = import->cli->store && cli_ndjson_size(import->input) > 0;
    if (import->tracked)
        code = import_find_progress(import);
    else
        cli_rejects_begin(&import->rejects);
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

/* Determines the form of the input: CSV with --csv, otherwise NDJSON or an array, by the first
 * character. */
static truce_status import_read_form(struct import *import, bson_error_t *error)
{
    const char *types = cli_text(import->cli, "types"),
               *separator = cli_text(import->cli, "separator");
    char one = 0;

    if (cli_flag(import->cli, "csv")) {
        import->form = NDJSON_CSV;
        if (separator && !cli_csv_separator_of(separator, &one))
            return truce__fail(TRUCE_INVALID, error,
                               "--separator needs one character (or tab), not \"%s\"", separator);
        return cli_ndjson_csv(import->input, one, types, error);
    }
    if (types || separator)
        return truce__fail(TRUCE_INVALID, error, "--%s needs --csv", types ? "types" : "separator");
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
    if (truce__collection_name_check(cli->arguments[0], &error)) {
        code = cli_error(cli, NULL, TRUCE_INVALID, &error);
        goto out;
    }
    if (cli_output_check(cli, import.rejects.path, cli->uri, &error) ||
        cli_rejects_check(&import.rejects, &error)) {
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
    code = import_open_store(&import);
    if (!code)
        code = cli_import_all(&import);
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

static const struct cli_command cli_import = {
    .noun = "import",
    .arguments = "COLLECTION [FILE]",
    .summary = "import NDJSON, a JSON array, or CSV from a file or stdin",
    .help =
        "The input has one document of Extended JSON per line, or one array of documents if it\n"
        "begins with [. With --csv, its first record names the fields (a.b is a path).\n"
        "A cell without quotes that is a number, true, false, or null has that value. An empty\n"
        "cell is omitted. Other cells are strings. --types overrides this: born=date,zip=string.\n"
        "The default separator is the most frequent one of the header: , ; | or tab. A first\n"
        "line sep=; as Excel writes it also sets the separator.\n"
        "\n"
        "Lines that are not documents, or that the store refuses (a duplicate key), go to a\n"
        "reject file with line number and reason. All other lines are imported, and the exit code\n"
        "is 1. If the command is killed and started again on the same file, it resumes. The\n"
        "progress is stored in (" IMPORTS ").",
    .example = "printf '%s\\n' '{\"_id\": 1, \"name\": \"Ada\"}' > students.ndjson\n"
               "truce import students students.ndjson\n"
               "printf '%s\\n' _id,name,born 2,Bob,2001-05-17 > more.csv\n"
               "truce import students more.csv --csv --types born=date",
    .options =
        (const struct cli_option[]){
            {"csv", 0, NULL, "the input is CSV, with a header", false},
            {"types", 0, "TYPES", "types of columns: COLUMN=string, date, objectId, or json, ...",
             false},
            {"separator", 0, "CHAR", "separator of cells: , ; | or tab (default: from the header)",
             false},
            {"rejects", 0, "FILE", "the reject file (default: FILE.rejects)", false},
            {"upsert", 'u', NULL, "replace documents that have the same _id", false},
            {"batch", 0, "N", "lines in one write (default: 1000)", false},
            {"again", 0, NULL, "import the file again from its first line", false},
            {"relaxed", 0, NULL, "do not wait for the disk at each batch", false},
            {0}},
    .store = CLI_STORE_NONE, /* The store is opened after the file. */
    .writes_documents = true,
    .run = import_run,
};

cli_command_list cli_import_commands = {&cli_import, NULL};
