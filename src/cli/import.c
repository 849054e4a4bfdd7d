/*
 * truce import: NDJSON into a collection.
 *
 * Lines are read in batches; each is written, and then the progress made by it:
 *
 *     truce_imports  {_id: {file, collection}, offset, line, imported, rejected, check, hash, done,
 *                     seed}
 *
 *     offset        where the next line starts
 *     check         a hash of the bytes in front of it: is it still the same file?
 *     hash          the fingerprint of the documents that were imported
 *     done          the end of the file was reached
 *     seed          what the _ids of documents without one are made of, with the line's number
 *
 * Killed at any moment, also after its last line, and started again on the same file, it goes on at
 * `offset`: a line is imported once. The batch behind `offset` may be there, or a part of it; those
 * documents are known by their _ids, and if they are the same, taken for imported. So it needs no
 * transaction, which a process that dies would leave open for a while on a server.
 *
 * The progress document stays: the same file again has nothing that is new, lines that were added to
 * it are imported, and another file under the name begins anew if the one before was done. Input that
 * cannot be read twice (a pipe) has no progress.
 *
 * A line that is no document, or that the store refuses (a unique key is taken), goes to the reject
 * file; the rest is imported. A line rejected just before a crash may be in the reject file twice.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/fingerprint.h"
#include "base/id.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/ndjson.h"
#include "cli/progress.h"
#include "store/reserved.h"

#define BATCH_BYTES     (4 * 1024 * 1024)
#define BATCH_LINES_MAX 10000
#define CHECK_BYTES     4096

struct entry {
    bson_t document, filter; /* filter: {_id} with --upsert */
    int64_t line, end;       /* where the next line starts */
    char *text;              /* for the reject file */
    size_t size;
};

struct import {
    struct cli *cli;
    const char *collection, *path;
    struct ndjson *input;
    struct rejects rejects;
    struct cli_progress shown;
    struct entry *entries;
    truce_write *writes;
    truce_write_outcome *outcomes;
    size_t count, batch_lines, bytes;
    bool upsert, tracked;
    bson_oid_t seed;
    struct fingerprint hash;
    bson_t id;      /* {file, collection}: of the progress document */
    int64_t offset; /* as the progress document has it */
    int64_t line, imported, rejected, resumed_at;
    int64_t read_end, read_line; /* of the last line that was read, imported or not */
};

/* ---- progress in the store ----------------------------------------------------------------- */

/* FNV-1a of up to CHECK_BYTES in front of `offset` */
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

static void make_id(struct import *import)
{
    char *whole = realpath(import->path, NULL);

    bson_init(&import->id);
    BSON_APPEND_UTF8(&import->id, "file", whole ? whole : import->path);
    BSON_APPEND_UTF8(&import->id, "collection", import->collection);
    free(whole);
}

static void append_progress(struct import *import, int64_t offset, int64_t line, bool done,
                            bson_t *set)
{
    char text[FINGERPRINT_TEXT];
    int64_t check;

    truce__fingerprint_text(&import->hash, text);
    BSON_APPEND_UTF8(set, "hash", text);
    (void)hash_before(import->path, offset, &check); /* unreadable now: it will not fit later */
    BSON_APPEND_INT64(set, "offset", offset);
    BSON_APPEND_INT64(set, "line", line);
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
    append_progress(import, 0, 0, false, &document);
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

static int mark_done(struct import *import)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    append_progress(import, import->read_end, import->read_line, true, &set);
    bson_append_document_end(&update, &set);
    status = truce_update(import->cli->store, IMPORTS, &filter, &update, NULL, NULL, &error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

static bool is_done(const bson_t *progress)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, progress, "done") && bson_iter_as_bool(&iter);
}

/* Is the file the one that `progress` speaks of, perhaps with more lines at its end? */
static bool is_same_file(const struct import *import, const bson_t *progress)
{
    int64_t offset = truce__field_number(progress, "offset"), check;

    return offset <= cli_ndjson_size(import->input) && hash_before(import->path, offset, &check) &&
           check == truce__field_number(progress, "check");
}

/* Goes on where `progress` says. */
static int resume(struct import *import, const bson_t *progress)
{
    bool done = is_done(progress);
    bson_error_t error;
    bson_iter_t iter;
    truce_status status;

    import->line = truce__field_number(progress, "line");
    import->offset = truce__field_number(progress, "offset");
    import->read_line = import->line;
    import->read_end = import->offset;
    status = cli_ndjson_seek(import->input, import->offset, import->line + 1, &error);
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
        cli_remark(import->cli, "%s was imported before (--again imports it again)", import->path);
    else
        cli_remark(import->cli, "goes on at line %" PRId64 " of %s (--again begins anew)",
                   import->resumed_at, import->path);
    return CLI_DONE;
}

/* Did somebody empty the collection since? Then the progress is of no use. */
static int is_empty(struct import *import, bool *empty)
{
    const truce_count_options one = {.limit = 1};
    bson_error_t error;
    int64_t count = 0;
    truce_status status =
        truce_count(import->cli->store, import->collection, NULL, &one, &count, &error);

    *empty = count == 0;
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

static int find_progress(struct import *import)
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
        code = is_empty(import, &empty);
    if (!status && !code) {
        bool same = is_same_file(import, &progress);

        if (cli_flag(import->cli, "again") ||
            (empty && truce__field_number(&progress, "imported")) || (!same && is_done(&progress)))
            code = remove_progress(import);
        else if (same)
            code = resume(import, &progress);
        else
            code = cli_usage(import->cli,
                             "%s is not the file that was imported up to line %" PRId64
                             "; --again begins at its first line",
                             import->path, truce__field_number(&progress, "line"));
    }
    if (!code && !import->resumed_at) {
        unlink(import->rejects.path); /* of an earlier import; not there is as good */
        code = insert_progress(import);
    }
    bson_destroy(&filter);
    bson_destroy(&progress);
    return code;
}

/* ---- one batch ----------------------------------------------------------------------------- */

/* The progress up to the end of this line. It matches only what this process wrote last. Not awaited:
 * it may fall behind the documents, never before them. */
static int save_progress(struct import *import, const struct entry *last)
{
    const truce_write_options options = {.relaxed = true};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    truce_write_result result = {0};
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    BSON_APPEND_INT64(&filter, "offset", import->offset);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    append_progress(import, last->end, last->line, false, &set);
    bson_append_document_end(&update, &set);
    status = truce_update(import->cli->store, IMPORTS, &filter, &update, &options, &result, &error);
    bson_destroy(&filter);
    bson_destroy(&update);
    if (status)
        return cli_error(import->cli, NULL, status, &error);
    import->offset = last->end;
    import->line = last->line;
    if (!result.matched)
        return cli_say(import->cli, CLI_NO, "another process is importing %s into %s", import->path,
                       import->collection);
    return CLI_DONE;
}

static void entry_write(struct import *import, const struct entry *entry, truce_write *write)
{
    bool replace = import->upsert && !bson_empty(&entry->filter);

    *write = (truce_write){.kind = replace ? TRUCE_WRITE_UPDATE : TRUCE_WRITE_INSERT,
                           .collection = import->collection,
                           .filter = replace ? &entry->filter : NULL,
                           .document = &entry->document,
                           .options = {.upsert = replace}};
}

static int reject(struct import *import, int64_t line, const char *reason, const char *text,
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

static int settle(struct import *import, const struct entry *entry,
                  const truce_write_outcome *outcome)
{
    if (outcome->status && !(outcome->status == TRUCE_DUPLICATE && was_written(import, entry)))
        return reject(import, entry->line, outcome->error.message, entry->text, entry->size);
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

static int write_batch(struct import *import)
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
            code = settle(import, &import->entries[i], &import->outcomes[i]);
    }
    if (status)
        return cli_error(import->cli, NULL, status, &error);
    return code || !import->tracked ? code
                                    : save_progress(import, &import->entries[import->count - 1]);
}

static int flush(struct import *import)
{
    int code = import->count ? write_batch(import) : CLI_DONE;

    empty_batch(import);
    return code;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void add(struct import *import, const struct ndjson_line *line, const bson_t *document)
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
    entry->end = line->end;
    entry->size = line->size;
    entry->text = bson_malloc(line->size + 1);
    memcpy(entry->text, line->text, line->size);
    import->bytes += document->len + line->size;
}

static int read_lines(struct import *import)
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
        if (!line.text)
            return flush(import);
        import->read_end = line.end;
        import->read_line = line.number;
        cli_progress(&import->shown, line.end, cli_ndjson_size(import->input));
        wrong = cli_ndjson_document(import->input, &line, &document);
        if (wrong) {
            code = reject(import, line.number, wrong, line.text, line.size);
            continue;
        }
        add(import, &line, &document);
        if (import->count == import->batch_lines || import->bytes >= BATCH_BYTES)
            code = flush(import);
    }
    return code;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int finish(struct import *import)
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

static int import_all(struct import *import)
{
    bson_error_t error;
    int code = CLI_DONE;

    import->tracked = cli_ndjson_size(import->input) > 0;
    if (import->tracked)
        code = find_progress(import);
    else
        unlink(import->rejects.path); /* of an earlier import; not there is as good */
    cli_progress_begin(import->cli, &import->shown, "bytes read:");
    if (!code)
        code = read_lines(import);
    cli_progress_end(&import->shown);
    if (cli_rejects_close(&import->rejects, &error) && !code)
        code = cli_error(import->cli, NULL, TRUCE_IO, &error);
    if (!code && import->tracked)
        code = mark_done(import);
    return code ? code : finish(import);
}

static int run(struct cli *cli)
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
    make_id(&import);
    code = cli_store_open(cli, CLI_STORE_INPUT, &cli->store);
    if (!code)
        code = import_all(&import);
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
    .summary = "insert the documents of an NDJSON file, or of standard input",
    .help = "One document of Extended JSON a line. Lines that are none, or that the store refuses\n"
            "(a unique key is taken), go to a reject file with line number and reason, and the\n"
            "rest is imported; the exit code is 1 then. Killed and started again on the same\n"
            "file, it goes on where it was: progress is kept in the store (" IMPORTS ").",
    .example = "printf '%s\\n' '{\"_id\": 1, \"name\": \"Ada\"}' > students.ndjson\n"
               "truce import students students.ndjson",
    .options =
        (const struct cli_option[]){
            {"rejects", 0, "FILE", "the reject file (else FILE.rejects)", false},
            {"upsert", 'u', NULL, "replace documents that have the same _id", false},
            {"batch", 0, "N", "lines that are written at a time (else 1000)", false},
            {"again", 0, NULL, "also what was imported before", false},
            {"relaxed", 0, NULL, "do not wait for the disk at each batch", false},
            {0}},
    .store = CLI_STORE_NONE, /* opened when the file is */
    .run = run,
};
