#include "tests/support/see.h"

#include <string.h>

static void start(const char *uri, const struct server_options *options)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(uri, NULL, &store, &error));
    REQUIRE(!server_start(store, options, &server, &error));
}

void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

bson_t *parsed(const char *json)
{
    bson_error_t error;
    char *text = bson_strdup(json);
    bson_t *made;

    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    made = bson_new_from_json((const uint8_t *)text, -1, &error);
    if (!made)
        test_fail(__FILE__, __LINE__, "%s: %s", text, error.message);
    bson_free(text);
    return made;
}

/* Returns the value at the path of the reply ("": all of it), as JSON. */
static char *at_path(const bson_t *reply, const char *path)
{
    bson_t found = BSON_INITIALIZER;
    bson_iter_t iter, at;
    char *text;

    if (reply && bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &at))
        BSON_APPEND_VALUE(&found, "v", bson_iter_value(&at));
    text = bson_as_relaxed_extended_json(path[0] ? &found : reply, NULL);
    bson_destroy(&found);
    return text;
}

void see_on(int end_, const char *command, const char *path, const char *wanted, int line)
{
    bson_t *reply = end_ < 0 ? ask(command) : ask_on(end_, command, 0), *want;
    char *got, *expected, around[3000];

    snprintf(around, sizeof around, wanted[0] ? "{'v': %s}" : "{}", wanted);
    want = parsed(around);
    got = at_path(reply, path);
    expected = bson_as_relaxed_extended_json(want, NULL);
    if (strcmp(got, expected) != 0) {
        char *all = at_path(reply, "");

        test_fail(__FILE__, line, "%s: %s is %s, not %s: %s", command, path, got, expected, all);
        bson_free(all);
    }
    bson_free(got);
    bson_free(expected);
    bson_destroy(want);
    if (reply)
        bson_destroy(reply);
}

void begin_at(const char *uri)
{
    static const struct server_options options = {.replica_set = "rs"};

    start(uri, &options);
    OK(PEOPLE SCHOOL);
    OK("{'insert': 'groups', 'documents': [{'_id': 'a'}, {'_id': 'b'}, {'_id': 'c'}], " SCHOOL);
    OK(ADULTS SCHOOL);
    OK("{'create': 'names', 'viewOn': 'adults', 'pipeline': [{'$project': {'n': 1}}], " SCHOOL);
}

void begin(void)
{
    begin_at("memory:");
}

const char *file(const char *name)
{
    static char path[600];

    snprintf(path, sizeof path, "%s/%s.truce", test_directory(), name);
    return path;
}
