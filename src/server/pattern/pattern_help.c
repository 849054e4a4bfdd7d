/* truceHelp: what the rows of the commands say. */
#include <string.h>

#include "server/pattern/pattern_command.h"

static void help_append_fields(const struct pattern *pattern, bson_t *reply)
{
    char buffer[16];
    const char *key;
    bson_t array, one;
    uint32_t i = 0;

    BSON_APPEND_ARRAY_BEGIN(reply, "fields", &array);
    for (const struct pattern_field *at = pattern->fields; at->field.name; at++) {
        bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
        BCON_APPEND(&one, "name", BCON_UTF8(at->field.name), "type", BCON_UTF8(pattern_type(at)),
                    "needed", BCON_BOOL(at->needed), "help", BCON_UTF8(at->help));
        if (at->least || at->most)
            BCON_APPEND(&one, "least", BCON_INT64(at->least), "most", BCON_INT64(at->most));
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(reply, &array);
}

static truce_status help_of(const char *name, bson_t *reply, bson_error_t *error)
{
    const struct pattern *pattern = pattern_named(name);

    if (!pattern)
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error,
                             "no pattern has the command '%.80s': {truceHelp: 1} lists them", name);
    BCON_APPEND(reply, "name", BCON_UTF8(name), "help", BCON_UTF8(pattern->command.help), "value",
                BCON_UTF8(pattern->value));
    help_append_fields(pattern, reply);
    BCON_APPEND(reply, "answer", BCON_UTF8(pattern->answer), "transaction",
                BCON_BOOL(pattern->ways & PATTERN_TRANSACTS), "again",
                BCON_BOOL(pattern->ways & PATTERN_AGAIN), "writes",
                BCON_BOOL((pattern->command.need.actions & ACTION_WRITE) != 0), "example",
                BCON_UTF8(pattern->example));
    return TRUCE_OK;
}

static truce_status run_help(struct call *call, const void *given, bson_t *reply,
                             bson_error_t *error)
{
    char buffer[16];
    const char *key;
    bson_t array, one;
    uint32_t i = 0;

    (void)given;
    if (BSON_ITER_HOLDS_UTF8(&call->value))
        return help_of(bson_iter_utf8(&call->value, NULL), reply, error);
    BSON_APPEND_ARRAY_BEGIN(reply, "commands", &array);
    for (const struct pattern_group *group = pattern_groups; group->title; group++)
        for (const struct pattern *const *at = group->patterns; *at; at++) {
            bson_uint32_to_string(i++, &key, buffer, sizeof buffer);
            BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
            BCON_APPEND(&one, "name", BCON_UTF8((*at)->command.name), "group",
                        BCON_UTF8(group->title), "help", BCON_UTF8((*at)->command.help));
            bson_append_document_end(&array, &one);
        }
    bson_append_array_end(reply, &array);
    return TRUCE_OK;
}

static const struct pattern_field no_fields[] = {{{0}}};

const struct pattern truce_help_pattern = {
    .command = {"truceHelp",
                pattern_run,
                COUNTED_COMMAND,
                {NEED_NOTHING, 0},
                "the commands of the patterns, or all that one of them says"},
    .value = "1, or the name of a command",
    .answer = "`commands`: an array of {name, group, help}; of one command: `help`, `fields`, "
              "`answer`, `transaction`, `example`",
    .fields = no_fields,
    .run = run_help,
    .ways = PATTERN_TRANSACTS | PATTERN_AGAIN,
    .example = "{truceHelp: 'truceSet'}",
};
