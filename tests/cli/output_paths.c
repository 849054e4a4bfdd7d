/* A file that a call writes is never the store, a file of the store, or a file that the call
 * reads. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

/* a server that would start ends by it */
#define NO_SERVER "--tls-certificate", "/nowhere"

static char store[600], input[600], folder[500];

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "%s", test_directory());
    snprintf(store, sizeof store, "%s/s.truce", folder);
    snprintf(input, sizeof input, "%s/in.json", folder);
    write_file(input, "{\"_id\": 7}\nnot a document\n");
    CHECK_INT(command_run(TRUCE_CLI, store, NULL, "insert", "c", "{_id: 1}", NULL)->code, ==, 0);
}

static int64_t size_of(const char *path)
{
    struct stat facts;

    return stat(path, &facts) ? -1 : (int64_t)facts.st_size;
}

/* Names of the file: its path, another path, a symbolic link, and a hard link. */
static char *name_of(const char *path, int way)
{
    const char *name = strrchr(path, '/') + 1;
    char *other = bson_strdup_printf("%s/way%d-%s", folder, way, name);

    unlink(other);
    if (way == 1) {
        bson_free(other);
        return bson_strdup_printf("%s/../%s/./%s", folder, strrchr(folder, '/') + 1, name);
    }
    if ((way == 2 && symlink(path, other)) || (way == 3 && link(path, other)) || !way) {
        bson_free(other);
        other = bson_strdup(path);
    }
    return other;
}

static bool linked; /* the store has two names, and is not opened at all */

static void check_refused(const struct command *command, const char *what)
{
    if (command->code <= 0 || (!linked && !strstr(command->err, "cannot write")))
        test_fail(__FILE__, __LINE__, "%s: exit code %d, %s%s", what, command->code, command->out,
                  command->err);
}

static void try_outputs(const char *output)
{
    check_refused(command_run(TRUCE_CLI, store, NULL, "export", "c", "--output", output, NULL),
                  output);
    check_refused(
        command_run(TRUCE_CLI, store, NULL, "import", "c", input, "--rejects", output, NULL),
        output);
    check_refused(
        command_run(TRUCE_CLI, store, NULL, "tree", "export", "t", "--output", output, NULL),
        output);
    check_refused(command_run(TRUCE_CLI, store, NULL, "ledger", "export", "book", output, "--form",
                              "ndjson", NULL),
                  output);
    check_refused(
        command_run(TRUCE_CLI, store, NULL, "set", "apply", input, "c", "--rejects", output, NULL),
        output);
    check_refused(command_run(TRUCE_CLI, NULL, NULL, "serve", store, "--port", "0", "--log-file",
                              output, NO_SERVER, NULL),
                  output);
    check_refused(command_run(TRUCE_CLI, store, NULL, "consume", "amqp://127.0.0.1:1/orders",
                              "--into", "queue:mail", "--metrics", output, NULL),
                  output);
}

TEST(refuses_an_output_file_that_is_a_file_of_the_store_under_any_name)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    int64_t size;

    begin();
    size = size_of(store);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        /* SQLite creates these files again */
        for (int way = 0; way < (i == 1 || i == 2 ? 3 : 4); way++) {
            char *path = bson_strdup_printf("%s%s", store, suffixes[i]), *name = name_of(path, way);

            linked = way == 3 && !access(path, F_OK);
            try_outputs(name);
            if (way > 1 && strcmp(name, path) != 0)
                unlink(name);
            bson_free(path);
            bson_free(name);
        }
    CHECK_INT(size_of(store), ==, size);
    command_check(command_run(TRUCE_CLI, store, NULL, "count", "c", NULL), 0, "1", NULL, __FILE__,
                  __LINE__);
}

TEST(refuses_to_write_output_to_the_path_of_a_new_store)
{
    char later[700];

    begin();
    snprintf(later, sizeof later, "%s/later.truce", folder);
    check_refused(command_run(TRUCE_CLI, NULL, NULL, "serve", later, "--port", "0", "--log-file",
                              later, NO_SERVER, NULL),
                  later);
    CHECK_INT(size_of(later), ==, -1);
    check_refused(
        command_run(TRUCE_CLI, later, NULL, "import", "c", input, "--rejects", later, NULL), later);
    CHECK_INT(size_of(later), ==, -1);
}

TEST(rejects_are_not_written_over_the_input)
{
    int64_t size;

    begin();
    size = size_of(input);
    for (int way = 0; way < 4; way++) {
        char *name = name_of(input, way);

        check_refused(
            command_run(TRUCE_CLI, store, NULL, "import", "c", input, "--rejects", name, NULL),
            name);
        check_refused(command_run(TRUCE_CLI, store, NULL, "set", "apply", input, "c", "--rejects",
                                  name, NULL),
                      name);
        if (way > 1)
            unlink(name);
        bson_free(name);
    }
    CHECK_INT(size_of(input), ==, size);
}

TEST(a_log_is_appended_to_a_log_only)
{
    static const char zeros[16] = "store";
    char other[700], log[700], link_name[700];
    FILE *file;

    begin();
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(log, sizeof log, "%s/server.log", folder);
    snprintf(link_name, sizeof link_name, "%s/link.log", folder);
    file = fopen(other, "we");
    REQUIRE(file != NULL);
    CHECK_INT(fwrite(zeros, 1, sizeof zeros, file), ==, sizeof zeros);
    fclose(file);
    CHECK_INT(command_run(TRUCE_CLI, NULL, NULL, "serve", store, "--port", "0", "--log-file", other,
                          NO_SERVER, NULL)
                  ->code,
              !=, 0);
    CHECK_INT(size_of(other), ==, sizeof zeros);
    write_file(log, "an older line\n");
    CHECK(!symlink(log, link_name));
    CHECK_INT(command_run(TRUCE_CLI, NULL, NULL, "serve", store, "--port", "0", "--log-file",
                          link_name, NO_SERVER, NULL)
                  ->code,
              !=, 0);
    CHECK_INT(size_of(log), ==, 14);
    CHECK_INT(command_run(TRUCE_CLI, NULL, NULL, "serve", store, "--port", "0", "--log-file",
                          folder, NO_SERVER, NULL)
                  ->code,
              !=, 0);
}
