/*
 * vectors [--store URI] [--only WORD]... [--plain] [--exceptions FILE] [--answers] PATH...
 *
 * Runs files of recorded cases (NDJSON, plain or .xz), or all such files of a folder. Closes with
 * "N passed, N failed, N skipped"; a case that fails prints its id, the expected answer, and what
 * came. A case counts once, whatever number of variants it ran in; --plain leaves the variants out.
 * WORD is a kind, a group, "kind/group" or an id. --answers prints what each case answered.
 */
#include "tests/vectors/vectors.h"

#include <dirent.h>
#include <errno.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FILE_BYTES_MAX (256u << 20)
#define SHOWN_MAX      2000 /* characters of an answer */

struct exception {
    char *id;
    bson_t *newer;
    char *reason;
};

static struct session {
    truce_store *store;
    const char **words;
    int words_count;
    bool plain, answers;
    struct exception *exceptions;
    size_t exceptions_count;
    long passed, failed, skipped, runs;
    long lines, every; /* so many cases were read; one of so many is run */
} session = {.every = 1};

/* ---- files ---------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t size, room;
};

static bool text_add(struct text *text, const void *bytes, size_t size)
{
    if (text->size + size > FILE_BYTES_MAX)
        return false;
    if (text->size + size + 1 > text->room) {
        text->room = (text->size + size + 1) * 2;
        text->bytes = bson_realloc(text->bytes, text->room);
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
    return true;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), end_length = strlen(end);

    return length >= end_length && !strcmp(name + length - end_length, end);
}

static bool unpack(FILE *file, struct text *text)
{
    lzma_stream stream = LZMA_STREAM_INIT;
    uint8_t in[1 << 16], out[1 << 16];
    lzma_ret answer = lzma_stream_decoder(&stream, UINT64_MAX, 0);

    while (answer == LZMA_OK) {
        lzma_action action = feof(file) ? LZMA_FINISH : LZMA_RUN;

        if (stream.avail_in == 0 && !feof(file)) {
            stream.next_in = in;
            stream.avail_in = fread(in, 1, sizeof(in), file);
        }
        stream.next_out = out;
        stream.avail_out = sizeof(out);
        answer = lzma_code(&stream, action);
        if (!text_add(text, out, sizeof(out) - stream.avail_out))
            break;
    }
    lzma_end(&stream);
    return answer == LZMA_STREAM_END;
}

static bool read_file(const char *path, struct text *text)
{
    FILE *file = fopen(path, "rb");
    char buffer[1 << 16];
    size_t got;
    bool good = file != NULL;

    if (good && ends_with(path, ".xz")) {
        good = unpack(file, text);
    } else {
        while (good && (got = fread(buffer, 1, sizeof(buffer), file)) > 0)
            good = text_add(text, buffer, got);
        good = good && !ferror(file);
    }
    if (file)
        fclose(file);
    if (!good)
        fprintf(stderr, "vectors: cannot read %s: %s\n", path, strerror(errno));
    return good;
}

/* ---- exceptions ----------------------------------------------------------------------------- */

/* A line: id, a space, the fields of the newer answer as Extended JSON, a space, the reason. The
 * answer may be "skip": the answer of a newer server cannot be stated. {"plain": true} leaves
 * the variants out: they have another order of documents, which decides the answer. */
static bool add_exception(char *line)
{
    char *answer = strchr(line, ' ');
    char *reason = answer ? strstr(answer, "  ") : NULL;
    struct exception *made;

    if (!answer || !reason)
        return false;
    *answer++ = '\0';
    *reason = '\0';
    session.exceptions =
        bson_realloc(session.exceptions, (session.exceptions_count + 1) * sizeof(struct exception));
    made = &session.exceptions[session.exceptions_count++];
    *made = (struct exception){.id = bson_strdup(line), .reason = bson_strdup(reason + 2)};
    if (!strcmp(answer, "skip"))
        return true;
    made->newer = bson_new_from_json((const uint8_t *)answer, -1, NULL);
    return made->newer != NULL;
}

static int compare_exceptions(const void *a, const void *b)
{
    return strcmp(((const struct exception *)a)->id, ((const struct exception *)b)->id);
}

static bool read_exceptions(const char *path)
{
    struct text text = {0};
    bool good = read_file(path, &text);
    char *rest = NULL;

    for (char *line = good ? strtok_r(text.bytes, "\n", &rest) : NULL; line && good;
         line = strtok_r(NULL, "\n", &rest)) {
        if (*line == '#')
            continue;
        good = add_exception(line);
        if (!good)
            fprintf(stderr, "vectors: %s: not an exception: %s\n", path, line);
    }
    bson_free(text.bytes);
    if (session.exceptions_count > 0)
        qsort(session.exceptions, session.exceptions_count, sizeof(struct exception),
              compare_exceptions);
    return good;
}

static const struct exception *find_exception(const char *id)
{
    struct exception key = {.id = (char *)id};

    if (session.exceptions_count == 0)
        return NULL;
    return bsearch(&key, session.exceptions, session.exceptions_count, sizeof(key),
                   compare_exceptions);
}

/* ---- cases ---------------------------------------------------------------------------------- */

static bool is_chosen(const struct vector_case *vector)
{
    char both[200];

    snprintf(both, sizeof(both), "%s/%s", vector->kind, vector->group);
    for (int i = 0; i < session.words_count; i++)
        if (!strcmp(session.words[i], vector->kind) || !strcmp(session.words[i], vector->group) ||
            !strcmp(session.words[i], both) || !strcmp(session.words[i], vector->id))
            return true;
    return session.words_count == 0;
}

static void show_field(const struct vector_case *vector, const char *name)
{
    bson_iter_t field;
    bson_t shown = BSON_INITIALIZER;
    char *json;

    if (vector_field(vector, name, &field)) {
        bson_append_iter(&shown, name, -1, &field);
        json = bson_as_canonical_extended_json(&shown, NULL);
        printf("  %.*s\n", SHOWN_MAX, json ? json : name);
        bson_free(json);
    }
    bson_destroy(&shown);
}

static void show_failure(const struct vector_case *vector, const struct variant *variant,
                         const struct vector_answer *answer)
{
    static const char *const inputs[] = {
        "docs",   "doc",          "others", "indexes",    "ops",     "filter",
        "query",  "key",          "sort",   "projection", "command", "pipeline",
        "update", "arrayFilters", "upsert", "multi",      "skip",    "limit"};
    static const char *const answers[] = {
        "match",     "order",    "result", "values",          "count",   "after", "n",
        "nModified", "upserted", "value",  "lastErrorObject", "results", "error", "newer"};
    char *json = bson_as_canonical_extended_json(&answer->document, NULL);

    printf("%s (%s)%s%s\n", vector->id, vector->group, variant ? " with indexes: " : "",
           variant ? variant->name : "");
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
        show_field(vector, inputs[i]);
    printf(" expected\n");
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        show_field(vector, answers[i]);
    printf(" actual\n  %.*s\n", SHOWN_MAX, json ? json : "?");
    if (answer->note[0])
        printf("  %s\n", answer->note);
    bson_free(json);
}

static bool run_variant(const struct vector_case *vector, const struct variant *variant)
{
    struct vector_run run = {session.store, vector, variant};
    struct vector_answer answer = {.document = BSON_INITIALIZER};
    bool right = vector_run(&run, &answer);

    session.runs++;
    if (!right && !session.answers)
        show_failure(vector, variant, &answer);
    if (session.answers && !variant) {
        char *json = bson_as_canonical_extended_json(&answer.document, NULL);

        printf("%s\t%s\t%s\n", vector->id, right ? "right" : "wrong", json);
        bson_free(json);
    }
    bson_destroy(&answer.document);
    return right;
}

static void run_case(struct vector_case *vector)
{
    const struct exception *exception = find_exception(vector->id);
    char kind[100];
    bool right, plain;

    if (exception && !exception->newer) {
        session.skipped++;
        return;
    }
    if (exception) {
        vector->newer = exception->newer;
        vector->reason = exception->reason;
        vector->generated_id =
            vector->generated_id || vector_sub_truth(vector->newer, "generatedId");
    }
    snprintf(kind, sizeof(kind), " %s ", vector->kind);
    plain = session.plain || (vector->newer && vector_sub_truth(vector->newer, "plain"));
    right = run_variant(vector, NULL);
    for (size_t i = 0; i < vector_variants_count && right && !plain; i++)
        if (strstr(vector_variants[i].kinds, kind))
            right = run_variant(vector, &vector_variants[i]);
    session.passed += right;
    session.failed += !right;
}

static void run_line(const char *path, long number, const char *line, size_t size)
{
    struct vector_case *vector = vector_case_new(line, size);

    if (!vector) {
        printf("%s:%ld: not a case\n", path, number);
        session.failed++;
        return;
    }
    if (session.lines++ % session.every == 0 && is_chosen(vector))
        run_case(vector);
    vector_case_free(vector);
}

static bool run_file(const char *path)
{
    struct text text = {0};
    long number = 0;

    if (!read_file(path, &text))
        return false;
    for (char *line = text.bytes, *end; line && *line; line = end) {
        size_t size = strcspn(line, "\n");

        end = line + size + (line[size] == '\n');
        number++;
        if (size > 0)
            run_line(path, number, line, size);
    }
    bson_free(text.bytes);
    return true;
}

static int is_case_file(const struct dirent *entry)
{
    return ends_with(entry->d_name, ".ndjson") || ends_with(entry->d_name, ".ndjson.xz");
}

static bool run_path(const char *path)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_case_file, alphasort);
    bool good = true;

    if (count < 0)
        return run_file(path);
    for (int i = 0; i < count; i++) {
        char *file = bson_strdup_printf("%s/%s", path, entries[i]->d_name);

        good = run_file(file) && good;
        bson_free(file);
        free(entries[i]);
    }
    free(entries);
    return good;
}

/* ---- a file of its own ---------------------------------------------------------------------- */

static char own_directory[300];

static bool make_own_directory(char *uri, size_t size)
{
    const char *parent = getenv("TMPDIR");

    snprintf(own_directory, sizeof(own_directory), "%s/truce-vectors-XXXXXX",
             parent && *parent ? parent : "/tmp");
    if (!mkdtemp(own_directory))
        return false;
    snprintf(uri, size, "file:%s/vectors.truce", own_directory);
    return true;
}

static void remove_own_directory(void)
{
    struct dirent **entries = NULL;
    int count = *own_directory ? scandir(own_directory, &entries, NULL, NULL) : 0;

    for (int i = 0; i < count; i++) {
        char *path = bson_strdup_printf("%s/%s", own_directory, entries[i]->d_name);

        remove(path);
        bson_free(path);
        free(entries[i]);
    }
    free(entries);
    if (*own_directory)
        remove(own_directory);
}

/* ---- main ----------------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr, "usage: vectors [--store URI] [--only WORD]... [--plain] [--answers]\n"
                    "               [--exceptions FILE] PATH...\n");
    return 2;
}

int main(int count, char **arguments)
{
    truce_store_options options = {.relaxed = true};
    const char *uri = "memory:", *exceptions = NULL;
    char own_uri[400];
    bson_error_t error;
    struct timespec begin, end;
    bool good = true;
    int first = 1;

    session.words = bson_malloc0((size_t)count * sizeof(char *));
    for (; first < count && !strncmp(arguments[first], "--", 2); first++) {
        const char *option = arguments[first] + 2;

        if (!strcmp(option, "plain"))
            session.plain = true;
        else if (!strcmp(option, "answers"))
            session.answers = true;
        else if (first + 1 == count)
            return usage();
        else if (!strcmp(option, "store"))
            uri = arguments[++first];
        else if (!strcmp(option, "exceptions"))
            exceptions = arguments[++first];
        else if (!strcmp(option, "only"))
            session.words[session.words_count++] = arguments[++first];
        else
            return usage();
    }
    if (first == count || (exceptions && !read_exceptions(exceptions)))
        return usage();
    if (!strcmp(uri, "file:") && make_own_directory(own_uri, sizeof(own_uri)))
        uri = own_uri;
    if (truce_store_open(uri, &options, &session.store, &error)) {
        fprintf(stderr, "vectors: cannot open %s: %s\n", uri, error.message);
        return 2;
    }
    if (getenv("TRUCE_VECTORS_EVERY") && atol(getenv("TRUCE_VECTORS_EVERY")) > 1) {
        session.every = atol(getenv("TRUCE_VECTORS_EVERY"));
        printf("one case of %ld, as TRUCE_VECTORS_EVERY says\n", session.every);
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (; first < count; first++)
        good = run_path(arguments[first]) && good;
    clock_gettime(CLOCK_MONOTONIC, &end);
    truce_store_close(session.store);
    remove_own_directory();
    if (!session.answers)
        printf("%s: %ld runs in %.1f s\n", uri, session.runs,
               (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    printf("%ld passed, %ld failed, %ld skipped\n", session.passed, session.failed,
           session.skipped);
    for (size_t i = 0; i < session.exceptions_count; i++) {
        bson_free(session.exceptions[i].id);
        bson_free(session.exceptions[i].reason);
        bson_destroy(session.exceptions[i].newer);
    }
    bson_free(session.exceptions);
    bson_free(session.words);
    return session.failed || !good ? 1 : 0;
}
