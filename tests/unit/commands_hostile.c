/*
 * Every command of the server, with each of its fields, and each nested field, changed to an
 * invalid value. The answer is one valid document with `ok`.
 */
#include <string.h>
#include <unistd.h>

#include "server/commands.h"
#include "tests/support/changed_bson.h"
#include "tests/support/each_operation.h"
#include "tests/support/sample_commands.h"
#include "tests/support/still_calls.h"

/* Runs the command unchanged, and expects the code; -1: any code. */
static void run_plain(const bson_t *command, int code)
{
    bson_t reply;
    bson_iter_t iter;
    int64_t got = 0;

    answer(command, &reply);
    if (bson_iter_init_find(&iter, &reply, "code"))
        got = bson_iter_as_int64(&iter);
    if (code >= 0 && got != code)
        fail_answer(command, &reply);
    bson_destroy(&reply);
}

static void run_changed(const bson_t *command)
{
    for (uint32_t place = 0; place < bson_places(command); place++) {
        for (uint32_t change = 0; change < bson_changes; change++) {
            bson_t *changed = bson_changed(command, place, change), reply;

            answer(changed, &reply);
            bson_destroy(&reply);
            bson_destroy(changed);
        }
    }
}

static struct server *serve_file(const char *path)
{
    static const struct server_feed feed = {.keep_ms = 3600000};
    static const struct server_options options = {
        .replica_set = "rs0", .feed = &feed, .test_commands = true};
    truce_store *store;

    truce__environment_use(NULL);
    truce_assert(!truce_store_open(path, NULL, &store, NULL));
    return still_serve(store, &options);
}

/* Runs on a store of its own: a file, except for commands that wait for other clients. These take
 * no time on a store in memory. */
static void try_all(const char *json, int code)
{
    bson_t *command = command_of(json);
    char path[600];

    snprintf(path, sizeof path, "%s/store", test_directory());
    still_connect(strstr(json, "waitMS") ? still_serve(still_store(), NULL) : serve_file(path));
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        must(before[i]);
    run_plain(command, code);
    run_changed(command);
    still_end();
    unlink(path);
    bson_destroy(command);
}

TEST(survives_changed_fields_of_the_operations)
{
    EACH_OPERATION(pattern)
    {
        try_all(pattern->example, -1);
    }
}

static bool has_sample(const char *name)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        size_t length = strlen(name);

        if (!strncmp(samples[i].command + 1, name, length) && samples[i].command[length + 1] == ':')
            return true;
    }
    return false;
}

TEST(every_command_has_a_sample)
{
    for (const struct command *command = server_commands.commands; command->name; command++) {
        if (command->help && !has_sample(command->name)) /* the others are other names */
            test_fail(__FILE__, __LINE__, "%s has no sample here", command->name);
    }
}

TEST(survives_changed_fields_of_the_commands)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        try_all(samples[i].command, samples[i].code);
}

/* ---- wrong values of the right type ---------------------------------------------------------- */

static void refused(bson_t *command, int code)
{
    bson_append_utf8(command, "$db", -1, "test", -1);
    run_plain(command, code);
    bson_destroy(command);
}

TEST(does_not_end_a_string_at_a_nul_byte)
{
    bson_t *command;

    still_connect(still_serve(still_store(), NULL));
    command = bson_new();
    bson_append_utf8(command, "find", -1, "c\0d", 3);
    refused(command, 73);
    command = BCON_NEW("find", "c");
    bson_append_utf8(command, "hint", -1, "_id_\0", 5);
    refused(command, 2);
    command = bson_new();
    bson_append_utf8(command, "truceTreeLog", -1, "site\0x", 6);
    refused(command, 73);
    command = BCON_NEW("truceTreePublish", "site", "changes", "[", "]");
    bson_append_utf8(command, "collection", -1, "c\0d", 3);
    refused(command, 2);
    command = BCON_NEW("ping", BCON_INT32(1));
    bson_append_utf8(command, "$db", -1, "te\0st", 5);
    refused(command, 73);
    still_end();
}

TEST(a_field_that_is_given_twice_is_refused)
{
    still_connect(still_serve(still_store(), NULL));
    refused(BCON_NEW("find", "c", "filter", "{", "a", BCON_INT32(1), "}", "filter", "{", "}"),
            40413);
    refused(BCON_NEW("createIndexes", "c", "indexes", "[", "{", "key", "{", "a", BCON_INT32(1), "}",
                     "name", "a", "name", "b", "}", "]"),
            40413);
    /* Access is checked for the first field, and the command would obey the second one. */
    refused(BCON_NEW("insert", "c", "documents", "[", "{", "}", "]", "bypassDocumentValidation",
                     BCON_NULL, "bypassDocumentValidation", BCON_BOOL(true)),
            40413);
    still_end();
}
