/*
 * truce set worker: one worker process of truce set apply and of the demonstrations. It reads
 * frames of lines, applies each as one batch, and records the numbers. Only then it answers,
 * because the answer is what the parent acknowledges by.
 *
 *     frame     {line number: 8 bytes, size: 4 bytes, text} ...
 *     answer    {applied, stale, duplicate, quarantined, rejected: [...]}, or {failed: "message"}
 *
 * If a worker is killed, another one gets its frames. It finds what was applied and continues.
 */
#include "cli/set/set_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/utf8.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/file_sink.h"
#include "cli/core/message_format.h"
#include "cli/core/worker_pool.h"
#include "cli/set/set.h"
#include "store/reserved_names.h"

/* ---- the job --------------------------------------------------------------------------------- */

#define TEXT_BYTES_MAX 300 /* The maximum number of bytes of a rejected line that are stored. */

/* ---- the check ---- */

static uint64_t set_job_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

void chunk_check_add(struct chunk_check *check, const char *bytes, size_t size)
{
    uint64_t word;

    check->a = set_job_mix(check->a, size);
    check->b = set_job_mix(check->b + 1, size);
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        check->a = set_job_mix(check->a, word);
        check->b = set_job_mix(check->b + 1, word);
    }
    word = 0;
    memcpy(&word, bytes, size);
    check->a = set_job_mix(check->a, word);
    check->b = set_job_mix(check->b + 1, word);
}

/* ---- the documents ---- */

void job_init(struct job *job, truce_store *store, const char *set, const char *path,
              const char *format)
{
    char *whole = strcmp(path, "-") ? realpath(path, NULL) : NULL;

    job->store = store;
    job->name = bson_strdup_printf("%s %s %s", set, whole ? whole : path, format);
    free(whole);
}

void job_release(struct job *job)
{
    bson_free(job->name);
}

static void set_job_append_id(const struct job *job, int64_t chunk, bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, "_id", -1, &id);
    bson_append_utf8(&id, "job", -1, job->name, -1);
    bson_append_int64(&id, "chunk", -1, chunk);
    bson_append_document_end(document, &id);
}

static bool same_check(const bson_t *document, const struct chunk_check *check)
{
    bson_iter_t iter;
    bson_subtype_t subtype;
    const uint8_t *bytes;
    uint32_t size;

    if (!bson_iter_init_find(&iter, document, "check") || !BSON_ITER_HOLDS_BINARY(&iter))
        return false;
    bson_iter_binary(&iter, &subtype, &size, &bytes);
    return size == sizeof *check && !memcmp(bytes, check, sizeof *check);
}

static truce_status set_job_find(struct job *job, int64_t chunk, bson_t *document,
                                 bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    set_job_append_id(job, chunk, &filter);
    status = truce_find_one(job->store, SET_JOBS, &filter, NULL, document, error);
    bson_destroy(&filter);
    return status;
}

truce_status job_find(struct job *job, int64_t chunk, const struct chunk_check *check, bool *done,
                      struct chunk_counts *counts, bson_error_t *error)
{
    bson_t document;
    truce_status status = set_job_find(job, chunk, &document, error);

    *done = !status && same_check(&document, check);
    if (*done)
        *counts =
            (struct chunk_counts){.lines = truce__field_number(&document, "lines"),
                                  .applied = truce__field_number(&document, "applied"),
                                  .stale = truce__field_number(&document, "stale"),
                                  .duplicate = truce__field_number(&document, "duplicate"),
                                  .quarantined = truce__field_number(&document, "quarantined"),
                                  .rejected = truce__field_number(&document, "rejects")};
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

struct reject {
    int64_t line;
    struct value value;
};

static int by_line(const void *left, const void *right)
{
    const struct reject *a = left, *b = right;

    return (a->line > b->line) - (a->line < b->line);
}

/* Appends the rejected lines in the order of their lines. Workers report them in any order. */
static void set_job_append_sorted(const bson_t *rejected, bson_t *document)
{
    uint32_t count = bson_count_keys(rejected), index = 0;
    struct reject *rejects = bson_malloc((count + 1) * sizeof *rejects);
    struct value whole = {bson_get_data(rejected), rejected->len, BSON_TYPE_ARRAY};
    struct fields fields = truce__fields(whole);
    bson_t array;

    for (uint32_t i = 0; i < count && truce__fields_next(&fields); i++) {
        bson_t one;

        truce__value_bson(fields.value, &one);
        rejects[i] = (struct reject){truce__field_number(&one, "line"), fields.value};
    }
    qsort(rejects, count, sizeof *rejects, by_line);
    bson_append_array_begin(document, "rejected", -1, &array);
    for (uint32_t i = 0; i < count; i++)
        truce__value_append_element(&array, &index, rejects[i].value);
    bson_append_array_end(document, &array);
    bson_free(rejects);
}

truce_status job_done(struct job *job, int64_t chunk, const struct chunk_check *check,
                      const struct chunk_counts *counts, const bson_t *rejected,
                      bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document = BSON_INITIALIZER;
    truce_write_options options = {.upsert = true};
    truce_status status;

    set_job_append_id(job, chunk, &filter);
    set_job_append_id(job, chunk, &document);
    bson_append_binary(&document, "check", -1, BSON_SUBTYPE_BINARY, (const uint8_t *)check,
                       sizeof *check);
    bson_append_int64(&document, "lines", -1, counts->lines);
    bson_append_int64(&document, "applied", -1, counts->applied);
    bson_append_int64(&document, "stale", -1, counts->stale);
    bson_append_int64(&document, "duplicate", -1, counts->duplicate);
    bson_append_int64(&document, "quarantined", -1, counts->quarantined);
    bson_append_int64(&document, "rejects", -1, counts->rejected);
    set_job_append_sorted(rejected, &document);
    status = truce_update(job->store, SET_JOBS, &filter, &document, &options, NULL, error);
    bson_destroy(&filter);
    bson_destroy(&document);
    return status;
}

/* ---- rejected lines ---- */

void reject_append(bson_t *array, uint32_t *index, int64_t line, const char *reason,
                   const char *text, size_t size)
{
    bool cut = size > TEXT_BYTES_MAX;
    size_t kept = cut ? truce__text_whole(text, TEXT_BYTES_MAX) : size;
    char buffer[16];
    const char *key;
    bson_t one;

    bson_uint32_to_string((*index)++, &key, buffer, sizeof buffer);
    bson_append_document_begin(array, key, -1, &one);
    bson_append_int64(&one, "line", -1, line);
    bson_append_utf8(&one, "reason", -1, reason, -1);
    if (truce__utf8_check(text, kept) == kept)
        bson_append_utf8(&one, "text", -1, text, (int)kept);
    else
        bson_append_binary(&one, "bytes", -1, BSON_SUBTYPE_BINARY, (const uint8_t *)text,
                           (uint32_t)kept);
    if (cut)
        bson_append_bool(&one, "cut", -1, true);
    bson_append_document_end(array, &one);
}

/* Writes the rejected lines of a chunk to the sink. */
static truce_status write_chunk(struct job *job, int64_t chunk, struct sink *sink,
                                bson_error_t *error)
{
    bson_t document;
    struct value list;
    struct buffer line = {0};
    truce_status status = set_job_find(job, chunk, &document, error);

    list = truce__value_field(truce__value_document(&document), "rejected", 8);
    if (!status && list.type == BSON_TYPE_ARRAY) {
        struct fields fields = truce__fields(list);

        while (truce__fields_next(&fields)) {
            bson_t one;

            truce__value_bson(fields.value, &one);
            line.size = 0;
            truce__json_write(&line, &one, false, JSON_RELAXED);
            truce__buffer_append_byte(&line, '\n');
            /* A failure is ignored here: closing the sink reports it. */
            (void)cli_sink_write(sink, line.bytes, line.size);
        }
    }
    truce__buffer_release(&line);
    bson_destroy(&document);
    return status;
}

truce_status job_write_rejects(struct job *job, int64_t count, const char *path,
                               bson_error_t *error)
{
    struct sink sink;
    truce_status closed, status = cli_sink_open(&sink, path, error);

    for (int64_t chunk = 0; !status && chunk < count; chunk++)
        status = write_chunk(job, chunk, &sink, error);
    closed = cli_sink_close(&sink, !status, status ? NULL : error);
    return status ? status : closed;
}

/* ---- the worker ------------------------------------------------------------------------------ */

#define ATTEMPTS_MAX 20

struct worker {
    struct cli *cli;
    truce_set *set;
    /* The target of the naive code. */
    const char *collection, *list;
    struct message_format format;
    char consumer[140];
    /* Apply plain $addToSet and $pull in the order of arrival, to show how they fail. */
    bool usual;
    struct json_reader reader;
    struct message *messages;
    truce_set_operation *operations;
    truce_set_result *results;
    size_t count, room;
    bson_t rejected;
    uint32_t rejected_count;
    struct chunk_counts counts;
};

static void worker_reject(struct worker *worker, int64_t line, const char *reason, const char *text,
                          size_t size)
{
    reject_append(&worker->rejected, &worker->rejected_count, line, reason, text, size);
    worker->counts.rejected++;
}

/* Messages point into themselves, so the array is moved only while it is empty. */
static void worker_make_room(struct worker *worker, size_t lines)
{
    if (worker->room >= lines)
        return;
    worker->room = lines;
    worker->messages = bson_realloc(worker->messages, lines * sizeof *worker->messages);
    worker->operations = bson_realloc(worker->operations, lines * sizeof *worker->operations);
    worker->results = bson_realloc(worker->results, lines * sizeof *worker->results);
}

/* Parses a line into the next operation, or rejects it. */
static void worker_read_line(struct worker *worker, int64_t line, const char *text, size_t size)
{
    struct message *message = &worker->messages[worker->count];
    bson_error_t error;
    char reason[400];
    bson_t document;

    if (truce__json_read(&worker->reader, text, size, &document, NULL, &error)) {
        worker_reject(worker, line, error.message, text, size);
        return;
    }
    memset(message, 0, sizeof *message);
    if (!message_read(&worker->format, &document, message, reason, sizeof reason)) {
        worker_reject(worker, line, reason, text, size);
        return;
    }
    if (truce_set_check(worker->set, &message->operation, &error)) {
        worker_reject(worker, line, error.message, text, size);
        message_release(message);
        return;
    }
    message->line = line;
    worker->operations[worker->count] = message->operation;
    worker->count++;
}

/* Returns the number of lines in a frame, or 0 for an invalid frame. */
static size_t count_lines(const struct buffer *frame)
{
    size_t at = 0, count = 0;
    uint32_t size;

    while (frame->size - at >= 12) {
        memcpy(&size, frame->bytes + at + 8, 4);
        if (frame->size - at - 12 < size)
            return 0;
        at += 12 + size;
        count++;
    }
    return at == frame->size ? count : 0;
}

/* Reads the lines of a frame, each {number (8 bytes), size (4 bytes), text}. */
static void worker_read_lines(struct worker *worker, const struct buffer *frame)
{
    size_t lines = count_lines(frame), at = 0;

    worker_make_room(worker, lines);
    worker->count = 0;
    worker->counts = (struct chunk_counts){.lines = (int64_t)lines};
    worker->rejected_count = 0;
    bson_reinit(&worker->rejected);
    for (size_t i = 0; i < lines; i++) {
        uint32_t size;
        int64_t line;

        memcpy(&line, frame->bytes + at, 8);
        memcpy(&size, frame->bytes + at + 8, 4);
        worker_read_line(worker, line, (const char *)frame->bytes + at + 12, size);
        at += 12 + size;
    }
}

/* ---- the usual way ---- */

/* Applies {key} -> {$addToSet: {classes: {name}}} or {$pull: {classes: {name}}} as an upsert. */
static truce_status apply_usually(struct worker *worker, const truce_set_operation *operation,
                                  bson_error_t *error)
{
    truce_write_options options = {.upsert = true};
    bson_t update = BSON_INITIALIZER, inner;
    truce_status status;

    bson_append_document_begin(&update, operation->verb == TRUCE_SET_ADD ? "$addToSet" : "$pull",
                               -1, &inner);
    bson_append_document(&inner, worker->list, -1, operation->element);
    bson_append_document_end(&update, &inner);
    status = truce_update(worker->cli->store, worker->collection, operation->key, &update, &options,
                          NULL, error);
    bson_destroy(&update);
    return status;
}

static truce_status apply_all_usually(struct worker *worker, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < worker->count && !status; i++) {
        status = apply_usually(worker, &worker->operations[i], error);
        worker->counts.applied++;
    }
    return status;
}

/* ---- truce ---- */

static bool is_final(truce_status status)
{
    return status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_DUPLICATE ||
           status == TRUCE_CORRUPT;
}

/* Applies the operation again alone, to learn the reason of its failure. */
static truce_status reject_operation(struct worker *worker, size_t i, bson_error_t *error)
{
    truce_set_result result;
    truce_status status =
        truce_set_consume(worker->set, worker->consumer, &worker->operations[i], 1, &result, error);
    char *text;

    if (!status) {
        worker->results[i] = result;
        return TRUCE_OK;
    }
    if (!is_final(status))
        return status;
    text = bson_as_relaxed_extended_json(worker->operations[i].element, NULL);
    worker_reject(worker, worker->messages[i].line, error->message, text ? text : "",
                  text ? strlen(text) : 0);
    bson_free(text);
    return TRUCE_OK;
}

static void count_outcome(struct worker *worker, truce_set_outcome outcome)
{
    worker->counts.applied += outcome == TRUCE_SET_APPLIED;
    worker->counts.stale += outcome == TRUCE_SET_STALE;
    worker->counts.duplicate += outcome == TRUCE_SET_DUPLICATE;
    worker->counts.quarantined += outcome == TRUCE_SET_QUARANTINED;
}

/* Applies the operations as one batch, again after a temporary failure. Rejects operations that
 * also fail alone. */
static truce_status worker_consume(struct worker *worker, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        if (attempt)
            truce__clock_sleep_ms(50);
        status = truce_set_consume(worker->set, worker->consumer, worker->operations, worker->count,
                                   worker->results, error);
        if (status != TRUCE_LOCKED && status != TRUCE_TIMEOUT && status != TRUCE_CONFLICT &&
            status != TRUCE_UNKNOWN)
            break;
    }
    if (status && !is_final(status))
        return status;
    status = TRUCE_OK;
    for (size_t i = 0; i < worker->count && !status; i++) {
        if (worker->results[i].status)
            status = reject_operation(worker, i, error);
        if (!worker->results[i].status)
            count_outcome(worker, worker->results[i].outcome);
    }
    return status;
}

/* ---- answers ---- */

static void append_counts(const struct worker *worker, bson_t *answer)
{
    bson_append_int64(answer, "applied", -1, worker->counts.applied);
    bson_append_int64(answer, "stale", -1, worker->counts.stale);
    bson_append_int64(answer, "duplicate", -1, worker->counts.duplicate);
    bson_append_int64(answer, "quarantined", -1, worker->counts.quarantined);
    bson_append_array(answer, "rejected", -1, &worker->rejected);
}

/* Applies the lines of a frame, and answers it. Returns false if the answer cannot be written. */
static bool worker_work(struct worker *worker, const struct buffer *frame)
{
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;
    bool good;

    worker_read_lines(worker, frame);
    if (worker->count)
        status = worker->usual ? apply_all_usually(worker, &error) : worker_consume(worker, &error);
    if (status)
        bson_append_utf8(&answer, "failed", -1, error.message, -1);
    else
        append_counts(worker, &answer);
    good = pool_write_frame(STDOUT_FILENO, bson_get_data(&answer), answer.len);
    for (size_t i = 0; i < worker->count; i++)
        message_release(&worker->messages[i]);
    bson_destroy(&answer);
    return good;
}

/* Applies the frames of standard input until its end. */
static int worker_run(struct cli *cli)
{
    struct worker worker = {
        .cli = cli, .collection = cli->arguments[0], .usual = cli_flag(cli, "usual")};
    struct buffer frame = {0};
    struct cli_set found;
    bson_error_t error = {0};
    int64_t slot;
    int code;

    bson_init(&worker.rejected);
    if (!cli_number(cli, "slot", 0, 255, 0, &slot))
        return CLI_USAGE;
    snprintf(worker.consumer, sizeof worker.consumer, "%.100s.%" PRId64,
             cli_text(cli, "consumer") ? cli_text(cli, "consumer") : "apply", slot);
    code = cli_set_open(cli, cli->arguments[0], &found);
    worker.set = found.set;
    worker.list = found.options.field;
    if (!code && !message_format_init(&worker.format, cli, found.options.key, found.options.name))
        code = CLI_USAGE;
    while (!code && pool_read_frame(STDIN_FILENO, &frame, &error) && worker_work(&worker, &frame))
        continue;
    cli_set_release(&found);
    message_format_release(&worker.format);
    truce__json_reader_release(&worker.reader);
    truce__buffer_release(&frame);
    bson_destroy(&worker.rejected);
    bson_free(worker.messages);
    bson_free(worker.operations);
    bson_free(worker.results);
    return code;
}

const struct cli_command cli_set_worker = {
    .noun = "set",
    .verb = "worker",
    .arguments = "COLLECTION",
    .summary = "run a worker process of truce set apply",
    .options =
        (const struct cli_option[]){
            {"slot", 0, "NUMBER", "the worker's number", false},
            {"consumer", 0, "NAME", "the consumers' name (default: apply)", false},
            {"usual", 0, NULL, "apply with $addToSet and $pull, in order of arrival", false},
            CLI_MESSAGE_OPTIONS,
            {0}},
    .row = CLI_SET_ROW,
    .store = CLI_STORE_WRITE,
    .hidden = true,
    .run = worker_run,
};

cli_command_list cli_set_worker_commands = {&cli_set_worker, NULL};
