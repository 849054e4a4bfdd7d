/*
 * The progress of an import (import.h).
 *
 * Lines are read in batches; each is written, and then the progress made by it:
 *
 *     truce_imports  {_id: {file, collection}, offset, line, row?, form?, imported, rejected, check,
 *                     hash, done, seed}
 *
 *     line, row     the number of the line that ends there; of arrays and CSV, the element's number, and
 *                   the line of the file on which it ends
 *     form          of the file: "array" or "csv"; none: NDJSON
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
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/id.h"
#include "cli/data/import.h"
#include "store/reserved.h"

#define CHECK_BYTES 4096 /* of the file, in front of where it goes on */

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

void import_make_id(struct import *import)
{
    char *whole = realpath(import->path, NULL);

    bson_init(&import->id);
    BSON_APPEND_UTF8(&import->id, "file", whole ? whole : import->path);
    BSON_APPEND_UTF8(&import->id, "collection", import->collection);
    free(whole);
}

static const char *const form_names[] = {
    [NDJSON_LINES] = "lines", [NDJSON_ARRAY] = "array", [NDJSON_CSV] = "csv"};

static void append_progress(struct import *import, int64_t offset, int64_t line, int64_t row,
                            bool done, bson_t *set)
{
    char text[FINGERPRINT_TEXT];
    int64_t check;

    truce__fingerprint_text(&import->hash, text);
    BSON_APPEND_UTF8(set, "hash", text);
    (void)hash_before(import->path, offset, &check); /* unreadable now: it will not fit later */
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

int import_mark_done(struct import *import)
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

static bool progress_is_done(const bson_t *progress)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, progress, "done") && bson_iter_as_bool(&iter);
}

static bool is_same_form(const struct import *import, const bson_t *progress)
{
    bson_iter_t form;

    if (!bson_iter_init_find(&form, progress, "form") || !BSON_ITER_HOLDS_UTF8(&form))
        return import->form == NDJSON_LINES;
    return !strcmp(bson_iter_utf8(&form, NULL), form_names[import->form]);
}

/* Is the file the one that `progress` speaks of, perhaps with more lines at its end? */
static bool progress_is_same_file(const struct import *import, const bson_t *progress)
{
    int64_t offset = truce__field_number(progress, "offset"), check;

    return is_same_form(import, progress) && offset <= cli_ndjson_size(import->input) &&
           hash_before(import->path, offset, &check) &&
           check == truce__field_number(progress, "check");
}

/* Goes on where `progress` says. */
static int progress_resume(struct import *import, const bson_t *progress)
{
    bool done = progress_is_done(progress);
    bson_error_t error;
    bson_iter_t iter;
    truce_status status;

    import->line = truce__field_number(progress, "line");
    import->offset = truce__field_number(progress, "offset");
    import->read_line = import->line;
    import->read_end = import->offset;
    import->read_row = truce__field_number(progress, "row");
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
        cli_remark(import->cli, "%s was imported before (--again imports it again)", import->path);
    else
        cli_remark(import->cli, "goes on at %s %" PRId64 " of %s (--again begins anew)",
                   import->form == NDJSON_LINES ? "line" : "document", import->resumed_at,
                   import->path);
    return CLI_DONE;
}

/* Did somebody empty the collection since? Then the progress is of no use. */
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

int import_find_progress(struct import *import)
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
            (!same && progress_is_done(&progress)))
            code = remove_progress(import);
        else if (same)
            code = progress_resume(import, &progress);
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

/* The progress up to the end of this line. It matches only what this process wrote last. Not awaited:
 * it may fall behind the documents, never before them. */
int import_save_progress(struct import *import, const struct entry *last)
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
        return cli_say(import->cli, CLI_NO, "another process is importing %s into %s", import->path,
                       import->collection);
    return CLI_DONE;
}
