/* Import and export of arrays and of CSV. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "cli/core/csv.h"
#include "cli/core/ndjson.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300], input[300], rejects[310], output[300];

static void fresh(const char *name)
{
    const char *directory = test_directory();

    snprintf(store, sizeof store, "%s/school.truce", directory);
    snprintf(input, sizeof input, "%s/%s", directory, name);
    snprintf(rejects, sizeof rejects, "%s.rejects", input);
    snprintf(output, sizeof output, "%s/out", directory);
}

static void write_file(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "w");

    if (!file || fwrite(text, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

static char *read_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "r");
    char *text = bson_malloc0(1 << 24);

    *size = file ? fread(text, 1, (1 << 24) - 1, file) : 0;
    if (file)
        fclose(file);
    return text;
}

static void holds(int line, const char *path, const char *expected)
{
    size_t size;
    char *text = read_text(path, &size);

    test_check_text(expected, text, __FILE__, line);
    bson_free(text);
}
#define HOLDS(path, expected) holds(__LINE__, path, expected)

static void check(int line, const struct command *c, int code, const char *out, const char *err)
{
    test_check_int(code, c->code, c->code == code, "exit code", __FILE__, line);
    if (out)
        test_check_text(out, c->out, __FILE__, line);
    if (err ? !strstr(c->err, err) : *c->err != '\0')
        test_fail(__FILE__, line, "standard error is \"%s\", not \"%s\"", c->err, err ? err : "");
}
#define RUN(...)                     command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)
#define ANSWERS(code, out, err, ...) check(__LINE__, RUN(__VA_ARGS__), code, out, err)

/* ---- arrays --------------------------------------------------------------------------------- */

TEST(an_array_that_was_exported_is_imported_byte_for_byte)
{
    static const char text[] = "[\n{\"_id\": {\"$numberInt\": \"1\"}, \"a\": \"x]},{[\\\\\\\"\"},\n"
                               "{\"_id\": {\"$numberInt\": \"2\"}, \"b\": [[], {}]}\n]\n";

    fresh("in.json");
    write_text(input, text);
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    ANSWERS(0, "exported 2\n", NULL, "export", "s", "--array", "--output", output);
    HOLDS(output, text);
    ANSWERS(0, text, NULL, "export", "s", "--array");
    ANSWERS(0, "[]\n", "no collection \"none\"", "export", "none", "--array");
}

/* Imports the text; how many documents there are, and the first reason of the reject file. */
static void import_text(int line, const char *text, int documents, const char *reason)
{
    char answer[400], count[20];
    size_t size;
    char *reported;

    unlink(store);
    write_text(input, text);
    if (reason)
        snprintf(answer, sizeof answer, "imported %d, rejected 1 (see %s)\n", documents, rejects);
    else
        snprintf(answer, sizeof answer, "imported %d\n", documents);
    check(line, RUN("import", "s", input, "--again"), reason ? 1 : 0, answer, NULL);
    snprintf(count, sizeof count, "%d\n", documents);
    check(line, RUN("count", "s"), 0, count, NULL);
    reported = read_text(rejects, &size);
    if (reason ? !strstr(reported, reason) : size != 0)
        test_fail(__FILE__, line, "rejects are \"%s\", not \"%s\"", reported, reason ? reason : "");
    bson_free(reported);
}
#define IMPORT(text, documents, reason) import_text(__LINE__, text, documents, reason)

TEST(reads_an_array_with_any_separators)
{
    fresh("in.json");
    IMPORT("\xef\xbb\xbf[{\"a\":1}]", 1, NULL);
    IMPORT("[{\"a\":1},{\"a\":2}\n,\t{\"a\":3}\r\n]\r\n", 3, NULL); /* without _ids, on one line */
    IMPORT("[\n{\n\"a\": [1,\n2]\n}\n]", 1, NULL);
}

TEST(reports_errors_in_an_array_with_their_line)
{
    fresh("in.json");
    IMPORT("[{\"a\":1},\n\n5,{\"b\":1}]", 2,
           "{\"line\": 3, \"reason\": \"column 1: a document is expected");
    IMPORT("[{\"a\":1},\n{\"b\": x},\n{\"c\":1}]", 2,
           "{\"line\": 2, \"reason\": \"column 7, field b");
    IMPORT("[{\"a\":1},]", 1, "a document is missing next to a comma");
    IMPORT("[,{\"a\":1}]", 1, "a document is missing next to a comma");
    IMPORT("[{\"a\":1},\n{\"b\":", 1, "{\"line\": 2, \"reason\": \"the text ends before the array");
    IMPORT("[{\"a\":1}\n", 1, "{\"line\": 2, \"reason\": \"the array is not closed by ]");
    IMPORT("[{\"a\":1}]\n{\"b\":2}\n", 1,
           "{\"line\": 2, \"reason\": \"unexpected text after the array");
    IMPORT("[{\"a\":\"\x80\"},{\"b\":1}]", 1, "is not UTF-8");
}

/* A file without a document creates no store; its faults are reported as usual. */
TEST(an_import_without_documents_creates_no_store)
{
    static const char *const without[] = {"", "\n\n", "[]", " \n[ ] \n"};
    static const char *const useless[] = {"these are my notes\n", "5\n6\n", "[5, 6]", "[{\"a\": "};

    fresh("in.json");
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        write_text(input, without[i]);
        ANSWERS(0, "imported 0\n", "in.json has no documents, so the store is not created",
                "import", "s", input);
        CHECK(access(store, F_OK) != 0);
        CHECK(access(rejects, F_OK) != 0);
    }
    write_text(input, "a,b\n");
    ANSWERS(0, "imported 0\n", "in.json has no documents, so the store is not created", "import",
            "s", input, "--csv");
    CHECK(access(store, F_OK) != 0);
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++) {
        write_text(input, useless[i]);
        ANSWERS(1, NULL, "in.json has no documents, so the store is not created", "import", "s",
                input);
        CHECK(access(store, F_OK) != 0);
        CHECK(access(rejects, F_OK) == 0);
    }
    /* A store that exists is used. */
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{_id: 1}");
    write_text(input, "");
    ANSWERS(0, "imported 0\n", NULL, "import", "s", input);
    /* A fault before the first document. */
    unlink(store);
    write_text(input, "x\n{\"_id\": 1}\n{\"_id\": 2}\n");
    ANSWERS(1, NULL, NULL, "import", "s", input);
    ANSWERS(0, "2\n", NULL, "count", "s");
}

TEST(blank_lines_at_the_end_are_not_rejected)
{
    fresh("in.json");
    write_text(input, "\n{\"_id\": 1}\n\n{\"_id\": 2}\n\n \t\n");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    ANSWERS(0, "imported 0\n", "was imported before", "import", "s", input);
    write_text(input, "\n{\"_id\": 1}\n\n{\"_id\": 2}\n\n \t\n{\"_id\": 3}\n  ");
    ANSWERS(0, "imported 1\n", "resumes at line 7", "import", "s", input);
}

TEST(an_array_that_was_imported_is_not_imported_again)
{
    fresh("in.json");
    write_text(input, "[{\"a\":1},{\"a\":2}]\n");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    ANSWERS(0, "imported 0\n", "was imported before", "import", "s", input);
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input, "--again");
    write_text(input, "[{\"a\":1},{\"a\":2},{\"a\":3}]\n"); /* it is another file */
    ANSWERS(0, "imported 3\n", NULL, "import", "s", input);
}

TEST(an_incomplete_last_line_is_read_again_when_it_is_complete)
{
    static const char *const whole[] = {"{\"_id\":1}\n{\"_id\":2}\n{\"_id\":3}\n",
                                        "_id,b\n1,2\n2,4\n3,6\n"},
                             *const cut[] = {"{\"_id\":1}\n{\"_id\":", "_id,b\n1,2\n2"},
                             *const form[] = {"--relaxed", "--csv"};

    for (int csv = 0; csv < 2; csv++) {
        fresh(csv ? "in.csv" : "in.json");
        unlink(store);
        write_text(input, cut[csv]);
        CHECK(strstr(RUN("import", "s", input, form[csv])->out, "imported 1, rejected 1 ("));
        write_text(input, whole[csv]);
        ANSWERS(0, "imported 2\n", "resumes at", "import", "s", input, form[csv]);
        ANSWERS(0, "{\"_id\": 1}\n{\"_id\": 2}\n{\"_id\": 3}\n", NULL, "find", "s", "--sort",
                "{_id: 1}", "--projection", "{_id: 1}");
    }
}

TEST(refuses_a_last_line_that_grew_after_it_was_imported)
{
    fresh("in.csv");
    write_text(input, "a\n1\n2");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input, "--csv");
    write_text(input, "a\n1\n23\n4\n");
    ANSWERS(2, "", "document 2 of", "import", "s", input, "--csv");
    ANSWERS(0, "2\n", NULL, "count", "s");
    write_text(input, "a\n1\n2\n4\n");
    ANSWERS(0, "imported 1\n", "resumes at document 3", "import", "s", input, "--csv");
}

/* ---- CSV ------------------------------------------------------------------------------------ */

TEST(converts_cells_by_their_look_or_the_type_of_their_column)
{
    fresh("in.csv");
    write_text(input, "\xef\xbb\xbf_id,name,born,address.city,address.zip,x,tags\r\n"
                      "1,Ada,1815-12-10,London,00123,1.5,\"[\"\"a\"\", 1]\"\r\n"
                      "2,\"Bob \"\"the\"\" B,\nx\",2024-01-02T03:04:05Z,,7,true,\r\n"
                      "\r\n"
                      "3,\"\",,,,\"true\",{}\n"
                      "4,null,,,-12,null,\"{\"\"$oid\"\": \"\"6b0324128aaa18caba032920\"\"}\"");
    ANSWERS(0, "imported 4\n", NULL, "import", "s", input, "--csv", "--types",
            "born=date,tags=json,address.zip=string");
    ANSWERS(0,
            "{\"_id\": 1, \"name\": \"Ada\", \"born\": {\"$date\": {\"$numberLong\": "
            "\"-4861728000000\"}}, \"address\": {\"city\": \"London\", \"zip\": \"00123\"}, \"x\": "
            "1.5, \"tags\": [\"a\", 1]}\n"
            "{\"_id\": 2, \"name\": \"Bob \\\"the\\\" B,\\nx\", \"born\": {\"$date\": "
            "\"2024-01-02T03:04:05Z\"}, \"address\": {\"zip\": \"7\"}, \"x\": true}\n"
            "{\"_id\": 3, \"name\": \"\", \"x\": \"true\", \"tags\": {}}\n"
            "{\"_id\": 4, \"name\": null, \"address\": {\"zip\": \"-12\"}, \"x\": null, \"tags\": "
            "{\"$oid\": \"6b0324128aaa18caba032920\"}}\n",
            NULL, "find", "s", "--sort", "{_id: 1}");
}

TEST(no_integer_of_a_cell_is_rounded)
{
    fresh("in.csv");
    write_text(input, "_id,n\n1,9223372036854775807\n2,9223372036854775808\n"
                      "3,-12345678901234567890123\n4,1e20\n");
    ANSWERS(0, "imported 4\n", NULL, "import", "s", input, "--csv");
    ANSWERS(0,
            "{\"_id\": 1, \"n\": 9223372036854775807}\n"
            "{\"_id\": 2, \"n\": \"9223372036854775808\"}\n"
            "{\"_id\": 3, \"n\": \"-12345678901234567890123\"}\n"
            "{\"_id\": 4, \"n\": 1e+20}\n",
            NULL, "find", "s", "--sort", "{_id: 1}");
    ANSWERS(0,
            "_id,n\n1,9223372036854775807\n2,\"9223372036854775808\"\n"
            "3,\"-12345678901234567890123\"\n4,1e+20\n",
            NULL, "export", "s", "--csv");
}

TEST(spaces_around_a_cell_count_only_in_quotes)
{
    fresh("in.csv");
    write_text(input, "_id , a\n 1 , x y \n2,\" z \"\n3,  \n");
    ANSWERS(0, "imported 3\n", NULL, "import", "s", input, "--csv");
    ANSWERS(0, "{\"_id\": 1, \"a\": \"x y\"}\n{\"_id\": 2, \"a\": \" z \"}\n{\"_id\": 3}\n", NULL,
            "find", "s", "--sort", "{_id: 1}");
    ANSWERS(0, "_id,a\n1,x y\n2,\" z \"\n3,\n", NULL, "export", "s", "--csv");
}

TEST(names_with_another_separator_are_exported_so_that_an_import_reads_them)
{
    static const char document[] =
        "{\"_id\": 1, \"a;b;c\": \"x;y\", \"d|e\": 1, \"f\\tg\": \"|\", \"sep=;\": true}\n";

    fresh("in.csv");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "s", document);
    ANSWERS(0, "exported 1\n", NULL, "export", "s", "--csv", "--output", input);
    ANSWERS(0, "imported 1\n", NULL, "import", "t", input, "--csv");
    ANSWERS(0, document, NULL, "find", "t");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "u", "{\"_id\": 1, \"a;b\": \"1;2\"}");
    ANSWERS(0, "exported 1\n", NULL, "export", "u", "--csv", "--fields", "a;b", "--output", input);
    ANSWERS(0, "imported 1\n", NULL, "import", "v", input, "--csv");
    ANSWERS(0, "{\"a;b\": \"1;2\"}\n", NULL, "find", "v", "--projection", "{_id: 0}");
}

TEST(an_import_removes_no_file_that_is_not_a_reject_file)
{
    const char *directory = test_directory();
    char notes[320], pipe[320];
    struct stat about;

    fresh("in.ndjson");
    write_text(input, "{\"_id\": 1}\n{\"_id\": \n");
    snprintf(notes, sizeof notes, "%s/notes", directory);
    snprintf(pipe, sizeof pipe, "%s/pipe", directory);
    write_text(notes, "precious\n");
    ANSWERS(2, "", "is not a file of rejected lines: name another with --rejects", "import", "s",
            input, "--rejects", notes);
    HOLDS(notes, "precious\n");
    ANSWERS(2, "", "is a directory: name a file for rejected lines", "import", "s", input,
            "--rejects", directory);
    ANSWERS(2, "", "rejected lines cannot go to \"-\"", "import", "s", input, "--rejects", "-");
    ANSWERS(2, "", "its folder does not exist", "import", "s", input, "--rejects", "no/such/file");
    ANSWERS(2, "", "cannot be created", "import", "s", input, "--rejects", "");
    /* of an earlier import, and one that has no lines */
    write_text(notes, "{\"line\": 7, \"reason\": \"\"}\n");
    ANSWERS(1, NULL, NULL, "import", "s", input, "--rejects", notes);
    write_text(notes, "");
    ANSWERS(1, NULL, NULL, "import", "s", input, "--rejects", notes, "--again");
    write_text(rejects, "precious\n");
    ANSWERS(2, "", "is not a file of rejected lines", "import", "s", input, "--again");
    /* neither a device nor a pipe is removed */
    CHECK_INT(mkfifo(pipe, 0600), ==, 0);
    write_text(input, "{\"_id\": 2}\n");
    ANSWERS(0, "imported 1\n", NULL, "import", "s", input, "--again", "--rejects", pipe);
    CHECK(!stat(pipe, &about) && S_ISFIFO(about.st_mode));
}

/* One record below the header, and why it is rejected. */
static void import_record(int line, const char *header, const char *record, const char *types,
                          const char *reason)
{
    char *text = bson_strdup_printf("%s\n%s", header, record), *reported;
    size_t size;

    write_text(input, text);
    check(line, RUN("import", "s", input, "--again", "--csv", types ? "--types" : NULL, types), 1,
          NULL, NULL);
    reported = read_text(rejects, &size);
    if (!strstr(reported, reason) || strncmp(reported, "{\"line\": 2, ", 12) != 0)
        test_fail(__FILE__, line, "rejects are \"%s\", not \"%s\"", reported, reason);
    bson_free(reported);
    bson_free(text);
}

TEST(reports_errors_in_a_record_with_their_line)
{
    fresh("in.csv");
    ANSWERS(0, "inserted 1\n", NULL, "insert", "t", "{}");
    import_record(__LINE__, "a,b", "1", NULL, "1 cell, but the header has 2");
    import_record(__LINE__, "a,b", "1,2,3\n", NULL, "3 cells, but the header has 2");
    import_record(__LINE__, "a", "x\"y\n", NULL, "a quote inside a cell");
    import_record(__LINE__, "a", "\"x\" \n", NULL, "a cell continues after its closing quote");
    import_record(__LINE__, "a", "\"x\n", NULL, "a quote is not closed");
    import_record(__LINE__, "a", "x\xff\n", NULL, "is not UTF-8");
    import_record(__LINE__, "a", "soon\n", "a=date",
                  "column a: invalid value \\\"soon\\\": expected date");
    import_record(__LINE__, "a", "2024-02-31\n", "a=date", "expected date");
    import_record(__LINE__, "a", "01/02/2024\n", "a=date", "expected date");
    import_record(__LINE__, "a", "12\n", "a=objectId", "expected ObjectId");
    import_record(__LINE__, "a", "\"1}, {\"\n", "a=json", "expected Extended JSON");
    import_record(__LINE__, "a", "\"1, \"\"b\"\": 2\"\n", "a=json", "expected Extended JSON");
    ANSWERS(0, "0\n", "no collection \"s\"", "count", "s");
    write_text(input, "a\nx\"y\n7\n"); /* and the record ends with its line */
    ANSWERS(1, NULL, NULL, "import", "s", input, "--again", "--csv");
    ANSWERS(0, "1\n", NULL, "count", "s");
}

static void refuse_header(int line, const char *text, const char *types, const char *sentence)
{
    write_text(input, text);
    check(line, RUN("import", "s", input, "--csv", types ? "--types" : NULL, types), 2, "",
          sentence);
    CHECK(access(store, F_OK) != 0); /* a refused call makes no store */
}

TEST(a_header_that_names_no_fields_is_refused)
{
    fresh("in.csv");
    refuse_header(__LINE__, "", NULL, "is empty");
    refuse_header(__LINE__, "a,a\n1,2\n", NULL, "\"a\" in the header conflicts");
    refuse_header(__LINE__, "a,a.b\n1,2\n", NULL, "the name \"a.b\" in the header");
    refuse_header(__LINE__, "a.b,a\n1,2\n", NULL, "the name \"a\" in the header");
    refuse_header(__LINE__, "a..b\n1\n", NULL, "has an empty part");
    refuse_header(__LINE__, "a,\n1,2\n", NULL, "column 2 of the header has the name \"\": ");
    refuse_header(__LINE__, "$a\n1\n", NULL, "has the name \"$a\": ");
    refuse_header(__LINE__, "\"a\n1\n", NULL, "a quote is not closed");
    refuse_header(__LINE__, "a\n1\n", "b=date", "no column \"b\"");
    refuse_header(__LINE__, "a\n1\n", "a=time", "\"time\" is not a type: expected string, date");
    refuse_header(__LINE__, "a\n1\n", "a", "COLUMN=TYPE");
    write_text(input, "a\n1\n");
    ANSWERS(2, "", "needs --csv", "import", "s", input, "--types", "a=date");
}

TEST(csv_has_a_column_for_each_field_or_for_those_that_are_named)
{
    fresh("in.ndjson");
    ANSWERS(0, NULL, NULL, "insert", "s",
            "{_id: 1, name: 'a,b', n: 1.5, d: {$date: '2024-01-02T03:04:05Z'}, in: {x: [1, 'y']}}",
            "{_id: {$oid: '6b0324128aaa18caba032920'}, n: null, more: '12', name: ''}",
            "{_id: 3, name: 'say \"x\"', n: true, b: {$numberDecimal: '1.50'}, d: {$date: "
            "{$numberLong: '-4861727999999'}}}");
    ANSWERS(
        0,
        "_id,name,n,d,in,more,b\n"
        "1,\"a,b\",1.5,2024-01-02T03:04:05.000Z,\"{\"\"x\"\": [1, \"\"y\"\"]}\",,\n"
        "6b0324128aaa18caba032920,\"\",null,,,\"12\",\n"
        "3,\"say \"\"x\"\"\",true,1815-12-10T00:00:00.001Z,,,\"{\"\"$numberDecimal\"\": \"\"1.50\"\"}\"\n",
        NULL, "export", "s", "--csv", "--sort", "{$natural: 1}");
    ANSWERS(0, "in.x,_id\n\"[1, \"\"y\"\"]\",1\n,3\n", NULL, "export", "s",
            "{_id: {$type: 'number'}}", "--csv", "--fields", "in.x,_id", "--sort", "{_id: 1}");
    ANSWERS(0, "", "no collection \"none\"", "export", "none", "--csv");
    ANSWERS(0, "a,b\n", "no collection \"none\"", "export", "none", "--csv", "--fields", "a,b");
    ANSWERS(2, "", "exclude each other", "export", "s", "--csv", "--array");
    ANSWERS(2, "", "exclude each other", "--json", "find", "s", "--table");
    ANSWERS(2, "", "--fields needs --csv", "export", "s", "--fields", "a");
    ANSWERS(2, "", "the name of a column is empty", "export", "s", "--csv", "--fields", "a,,b");
    ANSWERS(0, NULL, NULL, "update", "s", "{_id: 3}", "[{$set: {t: {$literal: {'a.b': 1}}}}]");
    ANSWERS(0, NULL, NULL, "update", "s", "{_id: 3}",
            "[{$replaceWith: {$setField: {field: 'a.b', input: '$$ROOT', value: 1}}}]");
    ANSWERS(2, "", "\"a.b\" would be read as a path", "export", "s", "--csv");
}

TEST(more_columns_than_the_maximum_are_refused)
{
    bson_t document = BSON_INITIALIZER;
    char name[20], *json;

    fresh("in.ndjson");
    for (int i = 0; i < 1001; i++) {
        snprintf(name, sizeof name, "f%d", i);
        BSON_APPEND_INT32(&document, name, i);
    }
    json = bson_as_relaxed_extended_json(&document, NULL);
    write_text(input, json);
    ANSWERS(0, "imported 1\n", NULL, "import", "s", input);
    ANSWERS(2, "", "more than 1000 fields", "export", "s", "--csv", "--output", output);
    CHECK(access(output, F_OK) != 0); /* nothing is left */
    for (char *at = json; *at; at++)
        *at = *at == ':' ? ',' : *at == '"' ? '_' : *at;
    write_text(input, json);
    ANSWERS(2, "", "the maximum is 1000", "import", "t", input, "--csv");
    bson_free(json);
    bson_destroy(&document);
}

/* ---- both, at random ------------------------------------------------------------------------ */

static void append_random_text(struct random *random, bson_string_t *text)
{
    static const char *const parts[] = {"a",  "\"",   ",",     "\n", "\r\n", "{",  "]", "\\",
                                        "12", "-",    "true",  " ",  "",     "ö",  "'", "null",
                                        "x",  "\"\"", "\",\"", "}",  "[",    "\t", ":", "1e5"};

    for (uint64_t i = truce__random_below(random, 6); i > 0; i--)
        bson_string_append(text, parts[truce__random_below(random, sizeof parts / sizeof *parts)]);
}

/* Longer than two chunks of the reader, so that every kind of string crosses their borders. */
TEST(imports_an_export_of_any_format)
{
    struct random random;
    bson_string_t *lines = bson_string_new(NULL);
    size_t size, again;
    char *first, *second;

    fresh("in.ndjson");
    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000; i++) {
        bson_t document = BSON_INITIALIZER;
        bson_string_t *text = bson_string_new(NULL), *other = bson_string_new(NULL);
        char *json;

        append_random_text(&random, text);
        append_random_text(&random, other);
        BSON_APPEND_INT32(&document, "_id", i);
        if (truce__random_below(&random, 2))
            BSON_APPEND_UTF8(&document, "a", text->str);
        if (truce__random_below(&random, 2))
            BSON_APPEND_INT32(&document, "n", (int)truce__random_below(&random, 1000));
        if (truce__random_below(&random, 2))
            BSON_APPEND_UTF8(&document, "b", other->str);
        json = bson_as_canonical_extended_json(&document, NULL);
        bson_string_append(lines, json);
        bson_string_append_c(lines, '\n');
        bson_free(json);
        bson_string_free(text, true);
        bson_string_free(other, true);
        bson_destroy(&document);
    }
    write_file(input, lines->str, lines->len);
    bson_string_free(lines, true);
    ANSWERS(0, "imported 20000\n", NULL, "import", "s", input, "--relaxed");
    RUN("export", "s", "--sort", "{_id: 1}", "--fields", "_id,a,n,b", "--csv", "--output", output);
    ANSWERS(0, "imported 20000\n", NULL, "import", "csv", output, "--csv", "--relaxed");
    RUN("export", "s", "--sort", "{_id: 1}", "--array", "--output", output);
    ANSWERS(0, "imported 20000\n", NULL, "import", "array", output, "--relaxed");
    RUN("export", "s", "--sort", "{_id: 1}", "--output", output);
    first = read_text(output, &size);
    for (int i = 0; i < 2; i++) {
        RUN("export", i ? "csv" : "array", "--sort", "{_id: 1}", "--output", output);
        second = read_text(output, &again);
        CHECK_INT(size, ==, again);
        CHECK(!memcmp(first, second, size));
        bson_free(second);
    }
    bson_free(first);
}

/* Returns the hash that truce import computes of the input before the position where it resumes. */
static long long hash_of(const char *text, int64_t size)
{
    uint64_t value = UINT64_C(14695981039346656037);

    for (int64_t i = 0; i < size; i++)
        value = (value ^ (uint8_t)text[i]) * UINT64_C(1099511628211);
    return (long long)value;
}

/* Sets the progress back to the end of the first document, as if the process had been killed after
 * it wrote all the others, too. */
static void go_back(const char *text, int64_t offset, int row)
{
    char update[400];

    snprintf(
        update, sizeof update,
        "{update: 'truce_imports', updates: [{q: {}, u: {$set: {offset: {$numberLong: '%lld'}, "
        "line: {$numberLong: '1'}, row: {$numberLong: '%d'}, imported: {$numberLong: '1'}, "
        "rejected: {$numberLong: '0'}, done: false, check: {$numberLong: '%lld'}}}}]}",
        (long long)offset, row, hash_of(text, offset));
    ANSWERS(0, NULL, NULL, "command", update);
    unlink(rejects);
}

static void resume(int line, const char *text, int64_t offset, int row, const char *flag,
                   const char *reported)
{
    char answer[400], *rejected;
    size_t size;

    unlink(store);
    write_text(input, text);
    snprintf(answer, sizeof answer, "imported 3, rejected 1 (see %s)\n", rejects);
    check(line, RUN("import", "s", input, flag), 1, answer, NULL);
    go_back(text, offset, row);
    check(line, RUN("import", "s", input, flag), 1, answer, "resumes at document 2");
    check(line, RUN("count", "s"), 0, "3\n", NULL); /* each document exists once */
    rejected = read_text(rejects, &size);
    if (strncmp(rejected, reported, strlen(reported)) != 0)
        test_fail(__FILE__, line, "rejects are \"%s\", not \"%s\"", rejected, reported);
    bson_free(rejected);
}

TEST(resumes_an_array_and_csv_after_the_last_document)
{
    fresh("in.json");
    resume(__LINE__, "[{\"a\":1},\n{\"a\":2},\n{\"a\":3},7]\n", 8, 1, NULL, "{\"line\": 3, ");
    fresh("in.csv");
    resume(__LINE__, "a\n1\n\"2\n\"\n3\n\"\n", 4, 3, "--csv", "{\"line\": 6, ");
}

TEST(a_file_that_was_imported_as_something_else_is_another_file)
{
    fresh("in.csv");
    write_text(input, "{\"a\": 1}\n{\"a\": 2}\n");
    ANSWERS(0, "imported 2\n", NULL, "import", "s", input);
    ANSWERS(2, "", "the header: a quote inside", "import", "s", input, "--csv");
    write_text(input, "a\n1\n");
    ANSWERS(1, NULL, NULL, "import", "s", input);
    ANSWERS(0, "imported 1\n", NULL, "import", "s", input, "--csv");
}

/* ---- files of other programs ----------------------------------------------------------------- */

static void import_two(int line, const char *text, const char *separator)
{
    static const char wanted[] = "{\"a\": 1, \"b\": \"x;y,z|w\"}\n{\"a\": 3, \"b\": 4}\n";

    unlink(store);
    write_text(input, text);
    check(line, RUN("import", "s", input, "--csv", separator ? "--separator" : NULL, separator), 0,
          "imported 2\n", NULL);
    check(line, RUN("find", "s", "--projection", "{_id: 0}", "--sort", "{a: 1}"), 0, wanted, NULL);
}

TEST(records_have_any_separator_and_any_line_end)
{
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    static const struct {
        char separator;
        const char *option;
    } separators[] = {{',', NULL}, {';', NULL},   {'\t', NULL},  {'|', NULL}, {';', ";"},
                      {'|', "|"},  {'\t', "tab"}, {'\t', "\\t"}, {':', ":"}};

    fresh("other.csv");
    for (size_t s = 0; s < sizeof separators / sizeof *separators; s++) {
        for (size_t e = 0; e < 3; e++) {
            char text[200], c = separators[s].separator;

            for (int last = 0; last < 2; last++) { /* the last line ends, or does not */
                snprintf(text, sizeof text, "a%cb%s1%c\"x;y,z|w\"%s%s3%c4%s", c, ends[e], c,
                         ends[e], ends[e], c, last ? ends[e] : "");
                import_two(__LINE__, text, separators[s].option);
            }
        }
    }
    import_two(__LINE__, "sep=:\r\na:b\r\n1:\"x;y,z|w\"\r\n3:4\r\n", NULL);
    import_two(__LINE__, "\xef\xbb\xbfSEP=;\na;b\n1;\"x;y,z|w\"\n3;4\n", ";");
    write_text(input, "a;b\n1;2\n");
    check(__LINE__, RUN("import", "s", input, "--csv", "--separator", ";;"), 2, "",
          "--separator needs one character");
    check(__LINE__, RUN("import", "s", input, "--separator", ";"), 2, "", "needs --csv");
}
