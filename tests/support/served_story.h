#ifndef TRUCE_TESTS_SUPPORT_SERVED_STORY_H
#define TRUCE_TESTS_SUPPORT_SERVED_STORY_H

/* Scripted conversations with a server in this process: the commands, and the checked part of
 * each answer. */
#include <string.h>
#include <unistd.h>

#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/json.h"

static inline void begin(void)
{
    char path[600];
    bson_error_t error = {0};

    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    unlink(path);
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
}

static inline void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* A step of a conversation: the command (without $db: to test), and the checked part of the
 * answer. */
struct step {
    const char *command;
    /* The expected code; 0 means that the command succeeds. */
    int code;
    /* The path of the checked value in the reply, or NULL. */
    const char *path;
    /* The value at the path as relaxed JSON; NULL means that the path must be missing. */
    const char *text;
};

static inline char *shown(const bson_t *reply, const char *path)
{
    bson_iter_t iter, found;
    bson_t one = BSON_INITIALIZER;
    char *json, *text = NULL;

    if (bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found)) {
        BSON_APPEND_VALUE(&one, "v", bson_iter_value(&found));
        json = truce_json_write(&one, false, TRUCE_JSON_RELAXED);
        text = bson_strndup(json + strlen("{\"v\": "), strlen(json) - strlen("{\"v\": }"));
        bson_free(json);
    }
    bson_destroy(&one);
    return text;
}

static inline bson_t *send_typed(int end_, const char *command)
{
    bson_error_t error;
    bson_t typed, *reply;
    char *json;

    if (truce_json_read(command, strlen(command), TRUCE_JSON_TYPED, &typed, NULL, &error)) {
        test_fail(__FILE__, __LINE__, "%s: %s", command, error.message);
        bson_destroy(&typed);
        return bson_new();
    }
    if (!bson_has_field(&typed, "$db"))
        BSON_APPEND_UTF8(&typed, "$db", "test");
    json = truce_json_write(&typed, false, TRUCE_JSON_CANONICAL);
    reply = ask_on(end_, json, 0);
    bson_free(json);
    bson_destroy(&typed);
    return reply ? reply : bson_new();
}

/* Sends the command ("{truceTreeExport: 'site', limit: 3", without its end) until the reply has no
 * `after`, and returns the elements of all its lists as JSON. The caller frees it. If `once` is not
 * NULL, only the first element with this field is returned. */
static inline char *all_pages(const char *command, const char *list, const char *once)
{
    bson_t all = BSON_INITIALIZER, array;
    char *after = NULL, *whole;
    uint32_t count = 0;
    int end_ = dial();

    BSON_APPEND_ARRAY_BEGIN(&all, "all", &array);
    for (int pages = 0; pages < 100 && (after || !pages); pages++) {
        char *page =
            bson_strdup_printf("%s%s%s}", command, after ? ", after: " : "", after ? after : "");
        bson_t *reply = send_typed(end_, page);
        bson_iter_t elements, at, field;
        bool found =
            bson_iter_init_find(&elements, reply, list) && bson_iter_recurse(&elements, &at);

        CHECK(found);
        bson_free(page);
        bson_free(after);
        after = shown(reply, "after");
        while (found && bson_iter_next(&at)) {
            bool is_once = once && bson_iter_recurse(&at, &field) && bson_iter_find(&field, once);
            char key[12];

            if (is_once && count)
                continue;
            snprintf(key, sizeof key, "%u", count++);
            bson_append_iter(&array, key, -1, &at);
        }
        bson_destroy(reply);
    }
    bson_append_array_end(&all, &array);
    whole = shown(&all, "all");
    bson_free(after);
    bson_destroy(&all);
    close(end_);
    return whole;
}

static inline void take_step(int end_, const struct step *step)
{
    bson_t *reply = send_typed(end_, step->command);
    int64_t code = reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code");
    char *text = step->path ? shown(reply, step->path) : NULL;

    if (code != step->code) {
        char *json = bson_as_relaxed_extended_json(reply, NULL);

        test_fail(__FILE__, __LINE__, "%s is answered with %lld, not %d: %s", step->command,
                  (long long)code, step->code, json);
        bson_free(json);
    } else if (step->path && (!text != !step->text || (text && strcmp(text, step->text) != 0))) {
        test_fail(__FILE__, __LINE__, "%s: %s is %s, not %s", step->command, step->path,
                  text ? text : "nothing", step->text ? step->text : "nothing");
    }
    bson_free(text);
    bson_destroy(reply);
}

static inline void tell(const struct step *steps, size_t count)
{
    int end_ = dial();

    for (size_t i = 0; i < count; i++)
        take_step(end_, &steps[i]);
    close(end_);
}

#define TELL(steps) tell(steps, sizeof(steps) / sizeof *(steps))

/* ---- within a driver's transaction ---- */

#define SESSION                                                                                    \
    "lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}, autocommit: false, txnNumber: {$numberLong: "
#define FIRST(number)  ", " SESSION "'" #number "'}, startTransaction: true}"
#define NEXT(number)   ", " SESSION "'" #number "'}}"
#define COMMIT(number) "{commitTransaction: 1, $db: 'admin'" NEXT(number)
#define ABORT(number)  "{abortTransaction: 1, $db: 'admin'" NEXT(number)

#endif
