/*
 * truce set apply: worker processes apply the messages of a queue, from a file or a pipe.
 *
 *     input     chunk 0 | chunk 1 | chunk 2 ...     up to CHUNK_LINES lines each
 *     chunk     part 0 ... part W-1                 by a hash of the key, one for each worker
 *
 * The lines of one document go to one worker, so its batches combine well and two workers seldom
 * change one document. If they do, the set itself handles it. A worker replies after it has applied
 * the operations and recorded their numbers. When all parts of a chunk are answered, the chunk is
 * recorded as done (set_worker.h). A process may be killed at any time:
 *
 *     a worker       the pool starts another one and gives it the parts again
 *     this process   started again on the same input, it skips the recorded chunks and repeats the
 *                    others; an operation that was already applied is a duplicate
 *
 * At most WINDOW chunks are open. This bounds the memory for any size of the input.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/message_format.h"
#include "cli/core/ndjson.h"
#include "cli/core/progress.h"
#include "cli/core/worker_pool.h"
#include "cli/set/set.h"
#include "cli/set/set_worker.h"

#define CHUNK_LINES    16384
#define CHUNK_BYTES    (8 * 1024 * 1024)
#define WINDOW         3
#define WORKERS_LIMIT  64
#define ARGUMENTS_ROOM 48

/* A chunk of lines. The workers get one part of it each. */
struct chunk {
    /* The slot of the window is in use. */
    bool open;
    /* The number of the chunk in the input, from 0. */
    int64_t number;
    /* The number of parts that the workers have not finished. */
    int parts_left;
    struct chunk_check check;
    struct chunk_counts counts;
    /* An array of the rejected lines. */
    bson_t rejected;
    uint32_t rejected_count;
};

struct apply {
    struct cli *cli;
    const char *path, *collection;
    int workers;
    struct ndjson *input;
    struct pool *pool;
    struct job job;
    struct chunk window[WINDOW];
    /* The number of chunks that were read so far. */
    int64_t chunks;
    /* The counts of the finished chunks. */
    struct chunk_counts totals;
    /* The number of lines that an earlier run has processed, and of those that it applied. */
    int64_t skipped, applied_before;
    int64_t started_ns;
    struct cli_progress progress;
    /* The text "\"student_id\"", which finds the key in a line without parsing all of it. */
    char *key_mark;
};

/* ---- chunks ---- */

static void add_counts(struct chunk_counts *to, const struct chunk_counts *from)
{
    to->lines += from->lines;
    to->applied += from->applied;
    to->stale += from->stale;
    to->duplicate += from->duplicate;
    to->quarantined += from->quarantined;
    to->rejected += from->rejected;
}

static struct chunk *free_chunk(struct apply *apply)
{
    for (int i = 0; i < WINDOW; i++) {
        if (!apply->window[i].open)
            return &apply->window[i];
    }
    return NULL;
}

static bool any_open(const struct apply *apply)
{
    for (int i = 0; i < WINDOW; i++) {
        if (apply->window[i].open)
            return true;
    }
    return false;
}

static void close_chunk(struct apply *apply, struct chunk *chunk)
{
    add_counts(&apply->totals, &chunk->counts);
    bson_destroy(&chunk->rejected);
    chunk->open = false;
}

static truce_status finish_chunk(struct apply *apply, struct chunk *chunk, bson_error_t *error)
{
    truce_status status = job_done(&apply->job, chunk->number, &chunk->check, &chunk->counts,
                                   &chunk->rejected, error);

    close_chunk(apply, chunk);
    cli_progress(&apply->progress, apply->totals.lines, 0);
    return status;
}

static void take_rejected(struct chunk *chunk, const bson_t *answer)
{
    struct value list =
        truce__value_field(truce__value_document(answer), "rejected", strlen("rejected"));
    struct fields fields;

    if (list.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        truce__value_append_element(&chunk->rejected, &chunk->rejected_count, fields.value);
        chunk->counts.rejected++;
    }
}

/* Adds the counts that a worker reports for a chunk, which is the tag (pool_answer_function). */
static truce_status apply_take_answer(void *arg, void *tag, const uint8_t *bytes, size_t size,
                                      bson_error_t *error)
{
    struct apply *apply = arg;
    struct chunk *chunk = tag;
    bson_t answer;
    bson_iter_t failed;

    if (!bson_init_static(&answer, bytes, size) || !bson_validate(&answer, 0, NULL))
        return truce__fail(TRUCE_IO, error, "a worker's answer is not a document");
    if (bson_iter_init_find(&failed, &answer, "failed") && BSON_ITER_HOLDS_UTF8(&failed))
        return truce__fail(TRUCE_IO, error, "%s", bson_iter_utf8(&failed, NULL));
    chunk->counts.applied += truce__field_number(&answer, "applied");
    chunk->counts.stale += truce__field_number(&answer, "stale");
    chunk->counts.duplicate += truce__field_number(&answer, "duplicate");
    chunk->counts.quarantined += truce__field_number(&answer, "quarantined");
    take_rejected(chunk, &answer);
    truce_assert(chunk->open && chunk->parts_left > 0);
    return --chunk->parts_left ? TRUCE_OK : finish_chunk(apply, chunk, error);
}

/* ---- lines to parts ---- */

/* Chooses the worker by the text of the key's value. A line whose key is not found this way may go
 * to any worker. */
static int apply_part_of(const struct apply *apply, const char *text, size_t size)
{
    size_t mark = strlen(apply->key_mark);
    const char *at = memmem(text, size, apply->key_mark, mark);
    const char *end = text + size;
    uint64_t hash = UINT64_C(14695981039346656037);

    for (at = at ? at + mark : end; at < end && strchr(" \t:", *at); at++)
        continue;
    for (; at < end && !strchr(",} \t", *at); at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return (int)((hash ^ hash >> 32) % (uint64_t)apply->workers);
}

static void apply_append_line(struct buffer *part, const struct ndjson_line *line)
{
    uint32_t size = (uint32_t)line->size;

    truce__buffer_append(part, &line->number, 8);
    truce__buffer_append(part, &size, 4);
    truce__buffer_append(part, line->text, line->size);
}

/* Adds a line to the part of its worker, or to the rejected lines if it is wrong or too long. */
static void apply_take_line(struct apply *apply, struct chunk *chunk, struct buffer *parts,
                            const struct ndjson_line *line)
{
    char reason[120];

    chunk_check_add(&chunk->check, line->text, line->size);
    chunk->counts.lines++;
    if (!line->wrong && line->size <= MESSAGE_BYTES_MAX) {
        apply_append_line(&parts[apply_part_of(apply, line->text, line->size)], line);
        return;
    }
    if (line->wrong)
        snprintf(reason, sizeof reason, "%s", line->wrong);
    else
        snprintf(reason, sizeof reason, "the line has %zu bytes, more than the maximum of %d",
                 line->size, MESSAGE_BYTES_MAX);
    reject_append(&chunk->rejected, &chunk->rejected_count, line->number, reason, line->text,
                  line->size);
    chunk->counts.rejected++;
}

/* Fills a chunk from the input. A chunk without lines means the end. */
static truce_status apply_read_chunk(struct apply *apply, struct chunk *chunk, struct buffer *parts,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    size_t bytes = 0;

    memset(chunk, 0, sizeof *chunk);
    bson_init(&chunk->rejected);
    chunk->open = true;
    chunk->number = apply->chunks;
    while (chunk->counts.lines < CHUNK_LINES && bytes < CHUNK_BYTES) {
        struct ndjson_line line;

        status = cli_ndjson_next(apply->input, &line, error);
        if (status || !line.text)
            break;
        apply_take_line(apply, chunk, parts, &line);
        bytes += line.size;
    }
    return status;
}

/* Sets *done if the chunk is already applied, and closes it with its recorded counts. */
static truce_status skip_chunk(struct apply *apply, struct chunk *chunk, bool *done,
                               bson_error_t *error)
{
    struct chunk_counts counts;
    truce_status status = TRUCE_OK;

    *done = false;
    if (!cli_flag(apply->cli, "again"))
        status = job_find(&apply->job, chunk->number, &chunk->check, done, &counts, error);
    if (status || !*done)
        return status;
    chunk->counts = counts;
    apply->skipped += counts.lines;
    apply->applied_before += counts.applied;
    close_chunk(apply, chunk);
    return TRUCE_OK;
}

/* Gives the parts of the chunk to the workers, and waits for room in their queues. */
static truce_status apply_parts(struct apply *apply, struct chunk *chunk, struct buffer *parts,
                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; i < apply->workers; i++)
        chunk->parts_left += parts[i].size > 0;
    if (!chunk->parts_left)
        return finish_chunk(apply, chunk, error);
    for (int i = 0; i < apply->workers && !status; i++) {
        if (!parts[i].size)
            continue;
        while (!status && pool_full(apply->pool, i))
            status = pool_step(apply->pool, 1000, error);
        if (!status)
            pool_give(apply->pool, i, &parts[i], chunk);
    }
    return status;
}

/* Reads one chunk of the input when there is room for it. */
static truce_status next_chunk(struct apply *apply, bool *end, bson_error_t *error)
{
    struct buffer *parts;
    struct chunk *chunk = free_chunk(apply);
    truce_status status = TRUCE_OK;
    bool done = false;

    while (!chunk && !status) {
        status = pool_step(apply->pool, 1000, error);
        chunk = free_chunk(apply);
    }
    if (status)
        return status;
    parts = bson_malloc0((size_t)apply->workers * sizeof *parts);
    status = apply_read_chunk(apply, chunk, parts, error);
    *end = status || !chunk->counts.lines;
    if (*end)
        close_chunk(apply, chunk);
    else
        apply->chunks++;
    if (!*end)
        status = skip_chunk(apply, chunk, &done, error);
    if (!*end && !status && !done)
        status = apply_parts(apply, chunk, parts, error);
    for (int i = 0; i < apply->workers; i++)
        truce__buffer_release(&parts[i]);
    bson_free(parts);
    return status;
}

static truce_status apply_input(struct apply *apply, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool end = false;

    while (!end && !status)
        status = next_chunk(apply, &end, error);
    while (!status && any_open(apply))
        status = pool_step(apply->pool, 1000, error);
    return status;
}

/* ---- the result ---- */

static void append_summary(const struct apply *apply, const char *rejects, bson_t *answer)
{
    const struct chunk_counts *totals = &apply->totals;

    bson_append_int64(answer, "messages", -1, totals->lines);
    bson_append_int64(answer, "applied", -1, totals->applied);
    bson_append_int64(answer, "stale", -1, totals->stale);
    bson_append_int64(answer, "duplicate", -1, totals->duplicate);
    bson_append_int64(answer, "quarantined", -1, totals->quarantined);
    bson_append_int64(answer, "rejected", -1, totals->rejected);
    if (totals->rejected)
        bson_append_utf8(answer, "rejects", -1, rejects, -1);
    bson_append_int64(answer, "done_before", -1, apply->skipped);
    bson_append_int64(answer, "workers_replaced", -1, pool_deaths(apply->pool));
}

static void apply_print_summary(const struct apply *apply, const char *rejects)
{
    const struct chunk_counts *totals = &apply->totals;
    double seconds = (double)(truce__clock_monotonic_ns() - apply->started_ns) / 1e9;
    bson_t answer = BSON_INITIALIZER;
    char earlier[64];

    append_summary(apply, rejects, &answer);
    bson_append_double(&answer, "seconds", -1, seconds);
    snprintf(earlier, sizeof earlier, " now, %" PRId64 " by an earlier run", apply->applied_before);
    cli_answer(apply->cli, &answer,
               "%s: %" PRId64 " applied%s, %" PRId64 " stale, %" PRId64 " duplicate, %" PRId64
               " quarantined, %" PRId64 " rejected%s%s; %.1f s, %.0f/s",
               PLURAL(totals->lines, "message", "messages"),
               totals->applied - apply->applied_before, apply->skipped ? earlier : "",
               totals->stale, totals->duplicate, totals->quarantined, totals->rejected,
               totals->rejected ? ", see " : "", totals->rejected ? rejects : "", seconds,
               (double)(totals->lines - apply->skipped) / seconds);
    if (apply->skipped)
        cli_note(apply->cli, "%s processed by an earlier run; --again applies them again",
                 PLURAL(apply->skipped, "message was", "messages were"));
    if (pool_deaths(apply->pool))
        cli_note(apply->cli, "%s killed and replaced",
                 PLURAL(pool_deaths(apply->pool), "worker was", "workers were"));
    bson_destroy(&answer);
}

/* Returns the path of the reject file. The caller frees it. */
static char *rejects_path(const struct apply *apply)
{
    const char *given = cli_text(apply->cli, "rejects");

    return given
               ? bson_strdup(given)
               : bson_strdup_printf("%s.rejects", strcmp(apply->path, "-") ? apply->path : "stdin");
}

/* Checks the reject file first, because it is written at the end. */
static int check_rejects(const struct apply *apply)
{
    const char *given = cli_text(apply->cli, "rejects");
    char *made = given ? NULL : rejects_path(apply);
    bson_error_t error;
    /* cli_output_check recognizes the option's own string by its address. */
    truce_status status =
        cli_output_check(apply->cli, given ? given : made, apply->cli->uri, &error);

    bson_free(made);
    return status ? cli_error(apply->cli, NULL, status, &error) : CLI_DONE;
}

/* Writes the reject file, and prints the summary. Returns CLI_NO if messages were rejected or
 * quarantined. */
static int apply_conclude(struct apply *apply)
{
    char *path = rejects_path(apply);
    bson_error_t error;
    truce_status status = TRUCE_OK;
    int code = CLI_DONE;

    if (apply->totals.rejected)
        status = job_write_rejects(&apply->job, apply->chunks, path, &error);
    if (status)
        code = cli_error(apply->cli, NULL, status, &error);
    apply_print_summary(apply, path);
    if (!code && (apply->totals.rejected || apply->totals.quarantined))
        code = CLI_NO;
    bson_free(path);
    return code;
}

/* ---- the call ---- */

/* Collects the arguments of a worker: the options of this call that a worker has, too. */
static void worker_arguments(struct apply *apply, const char **argv, char **owned)
{
    struct cli *cli = apply->cli;
    int count = 0, made = 0;

    argv[count++] = "set";
    argv[count++] = "worker";
    argv[count++] = apply->collection;
    argv[count++] = "--store";
    argv[count++] = cli->uri;
    if (cli->database) {
        argv[count++] = "--database";
        argv[count++] = cli->database;
    }
    for (int i = 0; i < cli->given_count && count < ARGUMENTS_ROOM - 1; i++) {
        const struct cli_option *option = cli->given[i].option;

        for (const struct cli_option *o = cli_command_options(&cli_set_worker); o->name; o++) {
            if (strcmp(o->name, option->name))
                continue;
            owned[made] = option->value
                              ? bson_strdup_printf("--%s=%s", option->name, cli->given[i].value)
                              : bson_strdup_printf("--%s", option->name);
            argv[count++] = owned[made++];
        }
    }
    argv[count] = NULL;
}

/* Returns all options that affect the outcome, as part of the job's identity. */
static char *format_text(const struct message_format *format)
{
    bson_string_t *text = bson_string_new(NULL);

    bson_string_append_printf(text, "%s/%s/%s/%s", format->operation, format->element, format->seq,
                              format->source ? format->source : "");
    for (int i = 0; i < format->keys_count; i++)
        bson_string_append_printf(text, "/%s=%s", format->keys[i], format->from[i]);
    return bson_string_free(text, false);
}

/* Reads the definition of the set, and prepares the message format and the job. */
static int apply_prepare(struct apply *apply, struct message_format *format)
{
    struct cli *cli = apply->cli;
    struct cli_set set;
    char *text, *id;
    int code = cli_set_open(cli, apply->collection, &set);

    if (!code && !message_format_init(format, cli, set.options.key, set.options.name))
        code = CLI_USAGE;
    if (!code) {
        text = format_text(format);
        id = bson_strdup_printf("%s.%s", apply->collection, set.options.field);
        job_init(&apply->job, cli->store, id, apply->path, text);
        apply->key_mark = bson_strdup_printf("\"%s\"", format->from[0]);
        bson_free(text);
        bson_free(id);
    }
    cli_set_release(&set);
    return code;
}

/* Prepares the store: creates the indexes before the workers start, so that they do not create them
 * concurrently. */
static truce_status apply_make_ready(struct apply *apply, bson_error_t *error)
{
    struct cli_set set;
    truce_status status = TRUCE_OK;

    if (cli_set_open(apply->cli, apply->collection, &set))
        status = truce__fail(TRUCE_INVALID, error,
                             "the set cannot be opened again: it may have been removed");
    else
        status = truce_set_record(set.set, "apply", NULL, 0, error);
    cli_set_release(&set);
    return status;
}

/* Starts the workers, applies the input, and prints the result. */
static int run_pool(struct apply *apply)
{
    const char *argv[ARGUMENTS_ROOM + 1];
    char *owned[ARGUMENTS_ROOM + 1] = {NULL};
    bson_error_t error;
    truce_status status;
    int code;

    worker_arguments(apply, argv, owned);
    apply->started_ns = truce__clock_monotonic_ns();
    cli_progress_begin(apply->cli, &apply->progress, "applied");
    status = apply_make_ready(apply, &error);
    if (!status)
        status = pool_new(argv, apply->workers, apply_take_answer, apply, &apply->pool, &error);
    if (!status)
        status = apply_input(apply, &error);
    cli_progress_end(&apply->progress);
    code = status ? cli_error(apply->cli, NULL, status, &error) : apply_conclude(apply);
    pool_free(apply->pool);
    for (int i = 0; i < WINDOW; i++) {
        if (apply->window[i].open)
            close_chunk(apply, &apply->window[i]);
    }
    for (int i = 0; owned[i]; i++)
        bson_free(owned[i]);
    return code;
}

static int apply_run(struct cli *cli)
{
    struct apply apply = {.cli = cli, .path = cli->arguments[0]};
    struct message_format format = {0};
    bson_error_t error;
    int64_t workers;
    int code;

    apply.collection = cli->arguments[1];
    if (!cli_number(cli, "workers", 1, WORKERS_LIMIT, 5, &workers))
        return CLI_USAGE;
    if (cli->uri && !strncmp(cli->uri, "memory:", 7))
        return cli_usage(cli,
                         "memory: cannot be used with worker processes: it belongs to one process");
    apply.workers = (int)workers;
    code = check_rejects(&apply);
    if (code)
        return code;
    apply.input = cli_ndjson_open(apply.path, &error);
    if (!apply.input)
        return cli_error(cli, NULL, TRUCE_INVALID, &error);
    code = cli_store_open(cli, CLI_STORE_INPUT, &cli->store);
    if (!code)
        code = apply_prepare(&apply, &format);
    if (!code)
        code = run_pool(&apply);
    cli_ndjson_close(apply.input);
    job_release(&apply.job);
    message_format_release(&format);
    bson_free(apply.key_mark);
    return code;
}

static const struct cli_command cli_set_apply = {
    .noun = "set",
    .verb = "apply",
    .arguments = "FILE COLLECTION",
    .summary = "apply messages of a queue with several processes",
    .help =
        "FILE (- for standard input) has one message per line:\n"
        "\n"
        "    {\"operation\": \"insert\", \"student_id\": 1, \"element\": \"CS 101\", "
        "\"sequence_number\": 1000}\n"
        "\n"
        "The operation is insert or delete (or add, remove). The element is a name, or a document\n"
        "with more fields. If your messages have other field names, give them with the --message\n"
        "options: --message-element class for {\"class\": \"CS 101\"}. Messages may arrive\n"
        "in any order and any number of times. The progress is stored: if the command is killed\n"
        "and started again on the same input, it resumes.\n"
        "Lines that are not messages go to FILE.rejects with their numbers and reasons, and the\n"
        "exit code is 1.",
    .example = "truce set define students --list classes --key student_id --name name\n"
               "echo '{\"operation\": \"insert\", \"student_id\": 1, \"element\": \"CS 101\", "
               "\"sequence_number\": 1}' > m.ndjson\n"
               "truce set apply m.ndjson students --workers 2",
    .options =
        (const struct cli_option[]){
            {"workers", 'w', "NUMBER", "worker processes (default: 5)", false},
            {"rejects", 0, "FILE", "the reject file (default: FILE.rejects)", false},
            {"consumer", 0, "NAME", "the consumers' name in the records (default: apply)", false},
            {"again", 0, NULL, "apply all messages again", false},
            CLI_MESSAGE_OPTIONS,
            {0}},
    .row = CLI_SET_ROW,
    .store = CLI_STORE_NONE, /* The store is opened after the file. */
    .run = apply_run,
};

cli_command_list cli_set_apply_commands = {&cli_set_apply, NULL};
