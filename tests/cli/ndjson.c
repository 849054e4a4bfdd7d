/* The reader of NDJSON: lines, their numbers and offsets, bad lines, and the reject file. */
#include "cli/core/ndjson.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/test.h"

static char *write_file(const char *name, const char *text, size_t size)
{
    char *path = bson_strdup_printf("%s/%s", test_directory(), name);
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(text, 1, size, file) != size || fclose(file) != 0)
        abort();
    return path;
}

static struct ndjson *open_text(const char *name, const char *text, size_t size)
{
    bson_error_t error;
    char *path = write_file(name, text, size);
    struct ndjson *input = cli_ndjson_open(path, &error);

    CHECK(input != NULL);
    bson_free(path);
    return input;
}

TEST(lines_come_with_number_offset_and_document)
{
    static const char text[] = "\xef\xbb\xbf{\"a\":1}\n\n  \r\n{\"a\":2}\r\n{\"a\":3}";
    static const int64_t numbers[] = {1, 4, 5}, offsets[] = {0, 16, 25}, ends[] = {11, 25, 32};
    struct ndjson *input = open_text("lines", text, sizeof text - 1);
    struct ndjson_line line;
    bson_error_t error;
    bson_t document;

    for (int i = 0; i < 3; i++) {
        bson_iter_t iter;

        CHECK_OK(cli_ndjson_next(input, &line, &error), error);
        REQUIRE(line.text);
        CHECK_INT(line.number, ==, numbers[i]);
        CHECK_INT(line.offset, ==, offsets[i]);
        CHECK_INT(line.end, ==, ends[i]);
        CHECK_TEXT(NULL, cli_ndjson_document(input, &line, &document));
        CHECK(bson_iter_init_find(&iter, &document, "a") && bson_iter_as_int64(&iter) == i + 1);
    }
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK(!line.text);
    CHECK_OK(cli_ndjson_seek(input, 16, 4, 4, &error), error);
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK_INT(line.number, ==, 4);
    CHECK_TEXT(NULL, cli_ndjson_document(input, &line, &document));
    cli_ndjson_close(input);
}

TEST(reports_invalid_lines_and_reads_the_next)
{
    static const char text[] = "{\"a\":\n{\"b\":\"\xff\"}\n[1]\n{\"a\":1} {}\n{\"good\":1}\n";
    static const char *const wrong[] = {
        "column 6, field a: the text ends in the middle of a document",
        "column 7: byte 0xff is not UTF-8", "column 1: a document is expected: {",
        "column 9: unexpected text after the end of the document", NULL};
    struct ndjson *input = open_text("bad", text, sizeof text - 1);
    struct ndjson_line line;
    bson_error_t error;
    bson_t document;

    for (int i = 0; i < 5; i++) {
        CHECK_OK(cli_ndjson_next(input, &line, &error), error);
        REQUIRE(line.text);
        CHECK_INT(line.number, ==, i + 1);
        CHECK_TEXT(wrong[i], cli_ndjson_document(input, &line, &document));
    }
    cli_ndjson_close(input);
}

TEST(a_line_over_the_maximum_is_passed_over_in_flat_memory)
{
    size_t size = (size_t)NDJSON_LINE_MAX + 3000000;
    char *text = malloc(size + 20);
    struct ndjson *input;
    struct ndjson_line line;
    bson_error_t error;
    bson_t document;

    memset(text, 'x', size);
    memcpy(text, "{\"a\":1}\n", 8);
    memcpy(text + size, "\n{\"b\":2}\n", 9);
    input = open_text("long", text, size + 9);
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK_TEXT(NULL, cli_ndjson_document(input, &line, &document));
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK_INT(line.number, ==, 2);
    CHECK(line.wrong && strstr(line.wrong, "bytes long, more than"));
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK_INT(line.number, ==, 3);
    CHECK_INT(line.end, ==, size + 9);
    CHECK_TEXT(NULL, cli_ndjson_document(input, &line, &document));
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK(!line.text);
    cli_ndjson_close(input);
    free(text);
}

TEST(lines_longer_than_a_chunk_are_whole)
{
    size_t size = 3000000;
    char *text = malloc(size + 1);
    struct ndjson *input;
    struct ndjson_line line;
    bson_error_t error;
    bson_t document;

    memset(text, 'x', size);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + size - 3, "\"}\n", 3);
    input = open_text("whole", text, size);
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK_INT(line.size, ==, size - 1);
    CHECK_TEXT(NULL, cli_ndjson_document(input, &line, &document));
    CHECK_OK(cli_ndjson_next(input, &line, &error), error);
    CHECK(!line.text);
    cli_ndjson_close(input);
    free(text);
}

TEST(a_file_that_is_not_there_is_an_error_with_its_name)
{
    bson_error_t error = {0};

    CHECK(cli_ndjson_open("/nowhere/at-all.ndjson", &error) == NULL);
    CHECK_TEXT("cannot read /nowhere/at-all.ndjson: No such file or directory", error.message);
    CHECK(cli_ndjson_open("/", &error) == NULL);
    CHECK_TEXT("/ is a directory, not a file of NDJSON", error.message);
}

TEST(rejected_lines_are_documents_again)
{
    char *path = bson_strdup_printf("%s/rejects", test_directory());
    struct rejects rejects = REJECTS_INIT(path);
    bson_error_t error;
    struct ndjson *input;
    struct ndjson_line line;
    bson_t document;
    static const char *const expected[] = {
        "{'line': 3, 'reason': 'no JSON', 'text': 'a\\u0001b'}",
        "{'line': 4, 'reason': 'not UTF-8', 'bytes': {'$binary': {'base64': '/w==', 'subType': "
        "'00'}}}"};

    CHECK_OK(cli_reject(&rejects, 3, "no JSON", "a\001b", 3, &error), error);
    CHECK_OK(cli_reject(&rejects, 4, "not UTF-8", "\xff", 1, &error), error);
    CHECK_OK(cli_rejects_close(&rejects, &error), error);
    CHECK_INT(rejects.count, ==, 2);
    input = cli_ndjson_open(path, &error);
    REQUIRE(input);
    for (int i = 0; i < 2; i++) {
        bson_t *wanted = test_bson(expected[i]);
        CHECK_OK(cli_ndjson_next(input, &line, &error), error);
        CHECK_TEXT(NULL, cli_ndjson_document(input, &line, &document));
        CHECK_BSON(wanted, &document);
        bson_destroy(wanted);
    }
    cli_ndjson_close(input);
    bson_free(path);
}
