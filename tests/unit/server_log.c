/* Lines of the server's log: their format, escaped hostile strings, and writers that never wait. */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bson/json.h"
#include "server/admin/server_log.h"
#include "tests/support/test.h"

static int ends[2]; /* of a pipe: the read end, and the log's write end */
static struct log *log_;
static char text[8 * LOG_LINE_MAX];

static void begin(bool json, bool quiet)
{
    REQUIRE(!pipe2(ends, O_CLOEXEC) && !fcntl(ends[0], F_SETFL, O_NONBLOCK));
    log_ = log_new(&(struct log_options){.file = ends[1], .json = json, .quiet = quiet});
}

/* Returns the output since the last call. */
static const char *read_all(void)
{
    ssize_t got = read(ends[0], text, sizeof text - 1);

    text[got > 0 ? got : 0] = '\0';
    return text;
}

static void end(void)
{
    log_free(log_);
    close(ends[0]);
    close(ends[1]);
}

/* Returns the line after its time, so that lines can be compared. */
static const char *behind_time(const char *line)
{
    int year, month, day, hour, minute, ms;
    char z;

    CHECK(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%d.", &year, &month, &day, &hour, &minute, &ms) == 6);
    CHECK(sscanf(line + 23, "%c", &z) == 1 && z == 'Z');
    return line + 24;
}

TEST(writes_fields_after_the_message_of_a_line_of_text)
{
    bson_t *fields = BCON_NEW("from", BCON_UTF8("127.0.0.1:5000"), "name", BCON_UTF8("a b"), "none",
                              BCON_UTF8(""), "count", BCON_INT64(3), "good", BCON_BOOL(true));

    begin(false, false);
    log_write(log_, TRUCE_LOG_WARNING, LOG_NETWORK, 7, "it happened", fields);
    CHECK_TEXT(" warning network conn7 it happened from=127.0.0.1:5000 name=\"a b\" none=\"\" "
               "count=3 good=true\n",
               behind_time(read_all()));
    log_write(log_, TRUCE_LOG_ERROR, LOG_SERVER, 0, "alone", NULL);
    CHECK_TEXT(" error server alone\n", behind_time(read_all()));
    log_write_store(TRUCE_LOG_INFO, "the disk is slow", log_);
    CHECK_TEXT(" info store store event text=\"the disk is slow\"\n", behind_time(read_all()));
    bson_destroy(fields);
    end();
}

TEST(a_line_of_json_is_a_document)
{
    bson_t *fields = BCON_NEW("from", BCON_UTF8("127.0.0.1:5000"), "name", BCON_UTF8("a \"b\"\n\\"),
                              "count", BCON_INT64(3), "good", BCON_BOOL(true));
    const char *line;

    begin(true, false);
    log_write(log_, TRUCE_LOG_INFO, LOG_ACCESS, 7, "it happened", fields);
    line = read_all();
    CHECK(!strncmp(line, "{\"time\": \"", 10));
    CHECK_TEXT("\", \"level\": \"info\", \"component\": \"access\", \"connection\": 7, "
               "\"message\": \"it happened\", \"fields\": {\"from\": \"127.0.0.1:5000\", "
               "\"name\": \"a \\\"b\\\"\\n\\\\\", \"count\": 3, \"good\": true}}\n",
               behind_time(line + 10));
    log_write(log_, TRUCE_LOG_INFO, LOG_COMMAND, 0, "alone", NULL);
    CHECK_TEXT("\", \"level\": \"info\", \"component\": \"command\", \"message\": \"alone\", "
               "\"fields\": {}}\n",
               behind_time(read_all() + 10));
    bson_destroy(fields);
    end();
}

static void check_one_line(const char *line)
{
    size_t length = strlen(line);

    CHECK(length > 0 && length <= LOG_LINE_MAX && line[length - 1] == '\n');
    CHECK(strchr(line, '\n') == line + length - 1);
    CHECK(truce__utf8_check(line, length) == length);
    for (size_t i = 0; i + 1 < length; i++)
        CHECK((unsigned char)line[i] >= ' ' && line[i] != 0x7f);
}

TEST(keeps_hostile_strings_on_one_line)
{
    static const char hostile[] = "x\ny\x1b[2J\x7f \xc2\x9b \xe2\x80\xae \xff\xfe \xe2\x82 end";
    bson_t *fields = BCON_NEW("name", BCON_UTF8(hostile));

    for (int json = 0; json < 2; json++) {
        const char *line;

        begin(json, false);
        log_write(log_, TRUCE_LOG_INFO, LOG_ACCESS, 1, "login failed", fields);
        line = read_all();
        check_one_line(line);
        CHECK(strstr(line, "\"x\\ny\\u001b[2J\\u007f \\u009b \\u202e \xef\xbf\xbd\xef\xbf\xbd "
                           "\xef\xbf\xbd\xef\xbf\xbd end\""));
        end();
    }
    bson_destroy(fields);
}

TEST(six_long_texts_fit_whatever_they_are)
{
    static const char *const pieces[] = {"a", "\x1b", "\xc3\xa4", "\"", "\xff", " "};
    char longer[20000];
    bson_t fields;

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t size = strlen(pieces[i]);

        for (size_t at = 0; at + size < sizeof longer; at += size)
            memcpy(longer + at, pieces[i], size + 1);
        bson_init(&fields);
        BCON_APPEND(&fields, "collection", BCON_UTF8(longer), "database", BCON_UTF8(longer),
                    "reason", BCON_UTF8(longer), "mechanism", BCON_UTF8(longer), "application",
                    BCON_UTF8(longer), "command", BCON_UTF8(longer));
        for (int json = 0; json < 2; json++) {
            begin(json, false);
            log_write(log_, TRUCE_LOG_WARNING, LOG_COMMAND, INT32_MAX, "slow command", &fields);
            check_one_line(read_all());
            CHECK(strstr(text, "...\""));
            end();
        }
        bson_destroy(&fields);
    }
}

TEST(does_not_wait_for_a_full_pipe_and_reports_lost_lines)
{
    int reported = 1;

    begin(false, false);
    for (int i = 0; i < 5000; i++)
        log_write(log_, TRUCE_LOG_INFO, LOG_SERVER, 0, "one of very many lines", NULL);
    while (*read_all())
        for (const char *at = text; (at = strstr(at, "very many")) != NULL; at++)
            reported++;
    CHECK_INT(reported, <, 5000);
    log_write(log_, TRUCE_LOG_INFO, LOG_SERVER, 0, "the next", NULL);
    CHECK(strstr(read_all(), " warning server lines of this log were lost lines="));
    CHECK_INT(atoi(strstr(text, "lines=") + 6), ==, 5001 - reported);
    CHECK(strstr(text, " info server the next\n"));
    log_write(log_, TRUCE_LOG_INFO, LOG_SERVER, 0, "the last", NULL);
    CHECK(!strstr(read_all(), "lost"));
    end();
}

TEST(survives_a_closed_reader_and_a_closed_file)
{
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    struct log *closed = log_new(&(struct log_options){.file = -1});

    begin(false, false);
    close(ends[0]);
    for (int i = 0; i < 3; i++) {
        log_write(log_, TRUCE_LOG_INFO, LOG_SERVER, 0, "not logged", NULL);
        log_write(closed, TRUCE_LOG_INFO, LOG_SERVER, 0, "not logged", NULL);
        log_write(NULL, TRUCE_LOG_INFO, LOG_SERVER, 0, "not logged", NULL);
    }
    log_free(log_);
    log_free(closed);
    close(ends[1]);
    signal(SIGPIPE, before);
}

TEST(omits_connections_from_a_quiet_log)
{
    begin(false, true);
    log_write(log_, TRUCE_LOG_INFO, LOG_NETWORK, 1, "connection accepted", NULL);
    CHECK_TEXT("", read_all());
    log_write(log_, TRUCE_LOG_WARNING, LOG_NETWORK, 0, "connection refused", NULL);
    CHECK(strstr(read_all(), "connection refused"));
    log_write(log_, TRUCE_LOG_INFO, LOG_ACCESS, 1, "login succeeded", NULL);
    CHECK(strstr(read_all(), "login succeeded"));
    end();
}

/* ---- a file of its own ----------------------------------------------------------------------- */

static char path[500];

static void tell_it(const char *message)
{
    log_write(log_, TRUCE_LOG_INFO, LOG_SERVER, 0, message, NULL);
}

/* Counts the words in the file; -1: the file does not exist. */
static int count_in(const char *file, const char *words)
{
    FILE *stream = fopen(file, "r");
    size_t size;
    int count = 0;

    if (!stream)
        return -1;
    size = fread(text, 1, sizeof text - 1, stream);
    text[size] = '\0';
    fclose(stream);
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* Counts the files whose names begin with the log's name and a dot. Copies the last name to
 * `moved`. */
static int count_moved(char moved[600])
{
    char pattern[600];
    glob_t found;
    int count;

    snprintf(pattern, sizeof pattern, "%s.*", path);
    count = glob(pattern, 0, NULL, &found) ? 0 : (int)found.gl_pathc;
    if (count)
        snprintf(moved, 600, "%s", found.gl_pathv[count - 1]);
    globfree(&found);
    return count;
}

static void begin_file(const char *name, bool renames)
{
    bson_error_t error;

    begin(false, false);
    if (name) /* else the same again */
        snprintf(path, sizeof path, "%s/%s", test_directory(), name);
    CHECK_STATUS(TRUCE_OK, log_to_file(log_, path, renames, &error), error);
}

TEST(restarts_a_log_file_under_its_name)
{
    bson_error_t error;
    char moved[600] = "";
    struct stat facts;

    begin_file("one.log", true);
    tell_it("first");
    CHECK_INT(count_in(path, "first"), ==, 1);
    CHECK_TEXT("", read_all());
    CHECK(!stat(path, &facts) && (facts.st_mode & 0777) == 0600);
    CHECK_STATUS(TRUCE_OK, log_rotate(log_, &error), error);
    tell_it("second");
    CHECK_INT(count_in(path, "first"), ==, 0);
    CHECK_INT(count_in(path, "log rotated"), ==, 1);
    CHECK_INT(count_in(path, "second"), ==, 1);
    CHECK_INT(count_moved(moved), ==, 1);
    CHECK_INT(count_in(moved, "first"), ==, 1);
    CHECK_INT(count_in(moved, "second"), ==, 0);
    end();
    begin_file(NULL, true); /* the existing lines stay */
    CHECK_INT(count_in(path, "second"), ==, 1);
    end();
}

TEST(reopens_a_log_that_was_moved)
{
    bson_error_t error;
    char moved[600], unused[600];

    begin_file("two.log", false);
    tell_it("first");
    snprintf(moved, sizeof moved, "%s.1", path);
    CHECK(!rename(path, moved));
    tell_it("between");
    CHECK_INT(count_in(moved, "between"), ==, 1);
    CHECK_STATUS(TRUCE_OK, log_rotate(log_, &error), error);
    tell_it("second");
    CHECK_INT(count_in(path, "second"), ==, 1);
    CHECK_INT(count_in(moved, "second"), ==, 0);
    CHECK_INT(count_moved(unused), ==, 1);
    CHECK_STATUS(TRUCE_OK, log_rotate(log_, &error), error);
    CHECK_INT(count_in(path, "second"), ==, 1);
    end();
    begin_file("two.log", true);
    CHECK(!unlink(path));
    CHECK_STATUS(TRUCE_OK, log_rotate(log_, &error), error); /* nothing was there to be moved */
    end();
}

TEST(continues_a_log_that_cannot_be_rotated)
{
    bson_error_t error = {0};
    char moved[600];

    begin(false, false);
    CHECK_STATUS(TRUCE_OK, log_rotate(log_, &error), error);
    CHECK_STATUS(TRUCE_OK, log_rotate(NULL, &error), error);
    CHECK_TEXT("", read_all());
    CHECK(log_to_file(log_, "/nowhere/at/all", true, &error));
    CHECK_INT(error.code, ==, CODE_FILE_NOT_OPEN);
    CHECK(log_to_file(log_, "/dev/null", true, &error));
    CHECK_INT(error.code, ==, CODE_FILE_NOT_OPEN);
    end();
    begin_file("three.log", true);
    error.code = 0;
    CHECK_STATUS(TRUCE_OK, log_rotate(log_, &error), error);
    for (int i = 0; i < 5 && !error.code; i++) /* more than once in a second */
        (void)!log_rotate(log_, &error);
    CHECK_INT(error.code, ==, CODE_FILE_RENAME_FAILED);
    tell_it("after");
    CHECK_INT(count_in(path, "after"), ==, 1);
    CHECK_INT(count_in(path, "log rotation failed"), ==, 1);
    CHECK_INT(count_moved(moved), >=, 1);
    end();
}
