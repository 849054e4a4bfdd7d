#include "cli/set/set_job.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/field.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/core/sink.h"
#include "store/reserved.h"

#define TEXT_BYTES_MAX 300 /* of a rejected line: the line's number says where the rest is */

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

/* Workers answer in any order; the kept array is in the order of lines. */
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

/* `size` or less, so that no character is cut in two */
static size_t set_job_whole_characters(const char *text, size_t size)
{
    while (size && ((unsigned char)text[size] & 0xc0) == 0x80)
        size--;
    return size;
}

void reject_append(bson_t *array, uint32_t *index, int64_t line, const char *reason,
                   const char *text, size_t size)
{
    bool cut = size > TEXT_BYTES_MAX;
    size_t kept = cut ? set_job_whole_characters(text, TEXT_BYTES_MAX) : size;
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
            (void)cli_sink_write(sink, line.bytes, line.size); /* closing it tells */
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
