#include "tests/support/stage.h"

#include <pthread.h>
#include <string.h>

static void append_json(bson_t *reply, const char *json)
{
    bson_t *said = test_bson(json);

    bson_concat(reply, said);
    bson_destroy(said);
}

/* Replies by the script, and otherwise as an empty server. The caller holds the mutex of the
 * scripts. */
static enum fake_act play(struct script *script, const bson_t *command, bson_t *reply)
{
    enum fake_act act = script->own ? script->own(command, reply, script->arg) : FAKE_PASS;
    const char *said = NULL, *name;
    bson_iter_t iter;

    if (act != FAKE_PASS)
        return act;
    bson_iter_init(&iter, command);
    bson_iter_next(&iter);
    name = bson_iter_key(&iter);
    if (script->name && !strcmp(name, script->name)) {
        bool first = script->seen++ < script->times;

        if (first && script->silent)
            return FAKE_SILENT;
        if (first && !script->reply)
            return FAKE_CUT;
        said = first ? script->reply : script->then;
    }
    if (said) {
        append_json(reply, said);
        return FAKE_ANSWER;
    }
    if (script->token && bson_has_field(command, "autocommit"))
        BCON_APPEND(reply, "recoveryToken", "{", "recoveryShardId", BCON_UTF8("one"), "}");
    if (!strcmp(name, "find") || !strcmp(name, "aggregate") || !strcmp(name, "listCollections") ||
        !strcmp(name, "listIndexes"))
        BCON_APPEND(reply, "cursor", "{", "id", BCON_INT64(0), "ns", BCON_UTF8("db.things"),
                    "firstBatch", "[", "]", "}");
    else if (!strcmp(name, "insert"))
        BCON_APPEND(reply, "n", BCON_INT32(1));
    else
        BCON_APPEND(reply, "n", BCON_INT32(0), "nModified", BCON_INT32(0));
    return FAKE_ANSWER;
}

/* Protects the scripts of all stages, which change while the server's threads run. */
static pthread_mutex_t scripts = PTHREAD_MUTEX_INITIALIZER;

static enum fake_act answer(const bson_t *command, bson_t *reply, void *arg)
{
    enum fake_act act;

    pthread_mutex_lock(&scripts);
    act = play(arg, command, reply);
    pthread_mutex_unlock(&scripts);
    return act;
}

void stage_script(struct stage *stage, struct script script)
{
    pthread_mutex_lock(&scripts);
    stage->script = script;
    pthread_mutex_unlock(&scripts);
}

truce_status raise_stage(struct stage *stage, enum fake_deployment deployment, int32_t wire,
                         const char *options, bson_error_t *error)
{
    stage->fake = fake_start(deployment, wire, answer, &stage->script);
    return truce_store_open(fake_uri(stage->fake, options), &stage->options, &stage->store, error);
}

void strike(struct stage *stage)
{
    if (stage->store)
        truce_store_close(stage->store);
    fake_stop(stage->fake);
}

/* Checks a field of the last command of this name (stage.h). */
void check_asked(struct stage *stage, const char *name, const char *field, const char *json,
                 int line)
{
    bson_t *command = fake_last(stage->fake, name);
    bson_iter_t iter;
    char *text = NULL;
    bson_t value;

    if (!command) {
        test_fail(__FILE__, line, "%s was not sent", name);
        return;
    }
    if (bson_iter_init_find(&iter, command, field)) {
        const uint8_t *bytes;
        uint32_t length;

        bson_iter_document(&iter, &length, &bytes);
        if (bson_init_static(&value, bytes, length))
            text = bson_as_relaxed_extended_json(&value, NULL);
    }
    test_check_text(json, text ? text : "", __FILE__, line);
    bson_free(text);
    bson_destroy(command);
}
