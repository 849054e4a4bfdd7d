/*
 * truce import: NDJSON into a collection.
 *
 * Lines are read in batches; a batch and the progress made by it are one atomic write:
 *
 *     truce_imports  {_id: {file, collection}, offset, line, imported, rejected, check, done}
 *
 *     offset        where the next line starts
 *     check         a hash of the bytes in front of it: is it still the same file?
 *     done          the end of the file was reached
 *
 * Killed at any moment, also after its last line, and started again on the same file, it goes on at
 * `offset`: a line is imported once. The document stays: the same file again has nothing that is
 * new, lines that were added to it are imported, and another file under the name begins anew if
 * the one before was done. Input that cannot be read twice (a pipe) has no progress.
 *
 * A line that is no document, or that the store refuses (a unique key is taken), goes to the reject
 * file; the rest is imported. A batch that the store refuses tells which write was the first: the
 * part in front of it is written, the line rejected, and the size of the attempts grows again from
 * a small one. A line rejected just before a crash may be in the reject file twice.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/ndjson.h"

#define PROGRESS_COLLECTION "truce_imports"
#define BATCH_BYTES         (4 * 1024 * 1024)
#define BATCH_LINES_MAX     10000
#define ATTEMPT_AFTER_BAD   16 /* writes in the next attempt after one was refused */
#define CHECK_BYTES         4096

struct entry {
    bson_t document, filter; /* filter: {_id} with --upsert */
    int64_t line, end;       /* where the next line starts */
    char *text;              /* for the reject file */
    size_t size;
};

struct import {
    const struct cli *cli;
    const char *collection, *path;
    struct ndjson *input;
    struct rejects rejects;
    struct cli_progress shown;
    struct entry *entries;
    truce_write *writes;
    truce_write_outcome *outcomes;
    size_t count, batch_lines, bytes;
    bool upsert, tracked;
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

static int64_t number_of(const bson_t *document, const char *key)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, key) ? bson_iter_as_int64(&iter) : 0;
}

static void append_progress(struct import *import, int64_t offset, int64_t line, int64_t imported,
                            bool done, bson_t *set)
{
    int64_t check;

    (void)hash_before(import->path, offset, &check); /* unreadable now: it will not fit later */
    BSON_APPEND_INT64(set, "offset", offset);
    BSON_APPEND_INT64(set, "line", line);
    BSON_APPEND_INT64(set, "imported", imported);
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

    BSON_APPEND_DOCUMENT(&document, "_id", &import->id);
    append_progress(import, 0, 0, 0, false, &document);
    status = truce_insert(import->cli->store, PROGRESS_COLLECTION, &document, NULL, &error);
    bson_destroy(&document);
    return status ? cli_error(import->cli, NULL, status, &error) : CLI_DONE;
}

static int remove_progress(struct import *import)
{
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&filter, "_id", &import->id);
    status = truce_remove(import->cli->store, PROGRESS_COLLECTION, &filter, NULL, NULL, &error);
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
    append_progress(import, import->read_end, import->read_line, import->imported, true, &set);
    bson_append_document_end(&update, &set);
    status =
        truce_update(import->cli->store, PROGRESS_COLLECTION, &filter, &update, NULL, NULL, &error);
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
    int64_t offset = number_of(progress, "offset"), check;

    return offset <= cli_ndjson_size(import->input) && hash_before(import->path, offset, &check) &&
           check == number_of(progress, "check");
}

/* Goes on where `progress` says. */
static int resume(struct import *import, const bson_t *progress)
{
    bool done = is_done(progress);
    bson_error_t error;
    truce_status status;

    import->line = number_of(progress, "line");
    import->offset = number_of(progress, "offset");
    import->read_line = import->line;
    import->read_end = import->offset;
    status = cli_ndjson_seek(import->input, import->offset, import->line + 1, &error);
    if (status)
        return cli_error(import->cli, NULL, status, &error);
    import->imported = done ? 0 : number_of(progress, "imported");
    import->rejected = done ? 0 : number_of(progress, "rejected");
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
    const truce_find_options one = {.limit = 1};
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
    status =
        truce_find_one(import->cli->store, PROGRESS_COLLECTION, &filter, NULL, &progress, &error);
    if (status && status != TRUCE_NOT_FOUND)
        code = cli_error(import->cli, NULL, status, &error);
    if (!status)
        code = is_empty(import, &empty);
    if (!status && !code) {
        bool same = is_same_file(import, &progress);

        if (cli_flag(import->cli, "again") || (empty && number_of(&progress, "imported")) ||
            (!same && is_done(&progress)))
            code = remove_progress(import);
        else if (same)
            code = resume(import, &progress);
        else
            code = cli_usage(import->cli,
                             "%s is not the file that was imported up to line %" PRId64
                             "; --again begins at its first line",
                             import->path, number_of(&progress, "line"));
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

/* The write behind the batch's own: the progress. It matches only what this process wrote last. */
static void progress_write(struct import *import, const struct entry *last, size_t count,
                           bson_t *filter, bson_t *update, truce_write *write)
{
    bson_t set;

    bson_init(filter);
    bson_init(update);
    BSON_APPEND_DOCUMENT(filter, "_id", &import->id);
    BSON_APPEND_INT64(filter, "offset", import->offset);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    append_progress(import, last->end, last->line, import->imported + (int64_t)count, false, &set);
    bson_append_document_end(update, &set);
    *write = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                           .collection = PROGRESS_COLLECTION,
                           .filter = filter,
                           .document = update};
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

/* entries[from..from+count) and the progress, all or none. `*bad`: the first that was refused, or
 * `count` if the failure is not about one of them. */
static truce_status attempt(struct import *import, size_t from, size_t count, size_t *bad,
                            bson_error_t *error)
{
    const struct entry *entries = import->entries + from;
    const truce_bulk_options options = {.atomic = true,
                                        .relaxed = cli_flag(import->cli, "relaxed")};
    bson_t filter, update;
    size_t total = count + import->tracked;
    truce_status status;

    for (size_t i = 0; i < count; i++)
        entry_write(import, &entries[i], &import->writes[i]);
    if (import->tracked)
        progress_write(import, &entries[count - 1], count, &filter, &update,
                       &import->writes[count]);
    status =
        truce_bulk(import->cli->store, import->writes, total, &options, import->outcomes, error);
    *bad = count;
    for (size_t i = total; i-- > 0;) {
        const truce_write_outcome *outcome = &import->outcomes[i];
        if (status && outcome->status == status && outcome->error.message[0] && i < count)
            *bad = i;
        truce_write_result_release(&import->outcomes[i].result);
    }
    if (import->tracked) {
        bson_destroy(&filter);
        bson_destroy(&update);
    }
    return status;
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

static int flush_failed(struct import *import, truce_status status, const bson_error_t *error)
{
    if (status == TRUCE_CONFLICT && import->tracked)
        return cli_say(import->cli, CLI_NO, "another process is importing %s into %s", import->path,
                       import->collection);
    return cli_error(import->cli, NULL, status, error);
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

static int flush(struct import *import)
{
    size_t at = 0, size = import->count;
    int code = CLI_DONE;

    while (at < import->count && !code) {
        size_t count = size < import->count - at ? size : import->count - at;
        const struct entry *last = &import->entries[at + count - 1];
        bson_error_t error;
        size_t bad;
        truce_status status = attempt(import, at, count, &bad, &error);

        if (!status) {
            import->offset = last->end;
            import->line = last->line;
            import->imported += (int64_t)count;
            at += count;
            size = count * 2;
        } else if (!is_about_input(status) || bad == count) {
            code = flush_failed(import, status, &error);
        } else if (bad > 0) {
            size = bad;
        } else {
            const struct entry *entry = &import->entries[at++];
            code = reject(import, entry->line, error.message, entry->text, entry->size);
            size = ATTEMPT_AFTER_BAD;
        }
    }
    empty_batch(import);
    return code;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void add(struct import *import, const struct ndjson_line *line, const bson_t *document)
{
    struct entry *entry = &import->entries[import->count++];
    bson_iter_t id;

    bson_copy_to(document, &entry->document);
    bson_init(&entry->filter);
    if (import->upsert && bson_iter_init_find(&id, document, "_id"))
        bson_append_iter(&entry->filter, "_id", 3, &id);
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

    BSON_APPEND_INT64(&answer, "imported", import->imported);
    BSON_APPEND_INT64(&answer, "rejected", import->rejected);
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
    import.writes = bson_malloc0((import.batch_lines + 1) * sizeof *import.writes);
    import.outcomes = bson_malloc0((import.batch_lines + 1) * sizeof *import.outcomes);
    import.input = cli_ndjson_open(path, &error);
    if (!import.input) {
        code = cli_error(cli, NULL, TRUCE_INVALID, &error);
        goto out;
    }
    make_id(&import);
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
    .help =
        "One document of Extended JSON a line. Lines that are none, or that the store refuses\n"
        "(a unique key is taken), go to a reject file with line number and reason, and the\n"
        "rest is imported; the exit code is 1 then. Killed and started again on the same\n"
        "file, it goes on where it was: progress is kept in the store (" PROGRESS_COLLECTION ").",
    .example = "truce import students students.ndjson --store school.truce",
    .options =
        (const struct cli_option[]){
            {"rejects", 0, "FILE", "the reject file (else FILE.rejects)", false},
            {"upsert", 'u', NULL, "replace documents that have the same _id", false},
            {"batch", 0, "N", "lines in one atomic write (else 1000)", false},
            {"again", 0, NULL, "also what was imported before", false},
            {"relaxed", 0, NULL, "do not wait for the disk at each batch", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = run,
};
