/*
 * truce complete: lists the candidates at the cursor, for the completion of the shells.
 *
 * The arguments are the words after "truce"; the last one is being typed. The output is one
 * candidate for each line, some with a tab and a description. ":files" means that the name of a
 * file is accepted here. Names in the store are looked up, so no name has to be remembered. A store
 * that does not reply within a second adds no names.
 */
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "base/terminal_escape.h"
#include "cli/core/command_line.h"
#include "cli/core/help.h"
#include "cli/core/operation_row.h"
#include "cli/core/plain_output.h"
#include "store/reserved_names.h"

#define NAMES_MAX 200

struct completing {
    const char *word;  /* The word that is being typed. */
    char **before;     /* The words before it, followed by NULL. */
    const char *uri;   /* --store or TRUCE_STORE, or NULL. */
    const char *first; /* The command's first argument, usually the collection, or NULL. */
    const struct cli_command *command;
    int arguments; /* The number of arguments before the word. */
};

/* Returns true if the string has characters that a terminal would obey. Shells print candidates
 * without escapes. */
static bool commands_a_terminal(const char *text)
{
    size_t length = strlen(text), at = 0;

    while (at < length && !truce__text_control(text + at, length - at))
        at++;
    return at < length;
}

static void complete_offer(const struct completing *c, const char *candidate, const char *meaning)
{
    if (commands_a_terminal(candidate))
        return;
    if (strncmp(candidate, c->word, strlen(c->word)) != 0)
        return;
    if (meaning)
        printf("%s\t%s\n", candidate, meaning);
    else
        printf("%s\n", candidate);
}

/* ---- completion from the store --------------------------------------------------------------- */

static truce_store *complete_open_store(const struct completing *c)
{
    const truce_store_options options = {
        .read_only = true, .must_exist = true, .deadline_ms = 1000};
    truce_store *store = NULL;

    return c->uri && !truce_store_open(c->uri, &options, &store, NULL) ? store : NULL;
}

/* Offers the collections. Hides those of truce's own and old versions, until the word begins with
 * "truce_". */
static void offer_collections(const struct completing *c, truce_store *store)
{
    bson_t collections, one;
    bson_iter_t iter;
    bool listed = !truce_collection_list(store, &(truce_list_options){.unmeasured = true},
                                         &collections, NULL);

    for (bson_iter_init(&iter, &collections); listed && bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;
        const char *name;

        bson_iter_document(&iter, &size, &bytes);
        name = bson_init_static(&one, bytes, size) ? truce__field_text(&one, "name") : "";
        if (!cli_plain_hides(name) || !strncmp(c->word, "truce_", 6))
            complete_offer(c, name, NULL);
    }
    bson_destroy(&collections);
}

/* Offers the names of the indexes of the call's collection. Offers nothing if they cannot be
 * read. */
static void offer_indexes(const struct completing *c, truce_store *store)
{
    bson_t indexes, one;
    bson_iter_t iter;
    bool listed = c->first && !truce_index_list(store, c->first, &indexes, NULL);

    if (!listed)
        return;
    for (bson_iter_init(&iter, &indexes); bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;

        bson_iter_document(&iter, &size, &bytes);
        if (bson_init_static(&one, bytes, size))
            complete_offer(c, truce__field_text(&one, "name"), NULL);
    }
    bson_destroy(&indexes);
}

/* Offers the _ids, strings or ObjectIds, of one of truce's own collections. */
static void offer_ids(const struct completing *c, truce_store *store, const char *collection)
{
    truce_find_options options = {.limit = NAMES_MAX};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = truce_find(store, collection, NULL, &options, &cursor, NULL);

    while (!status && !truce_cursor_next(cursor, &document, NULL) && document) {
        bson_iter_t id;
        char text[25];

        if (!bson_iter_init_find(&id, document, "_id"))
            continue;
        if (BSON_ITER_HOLDS_OID(&id)) {
            bson_oid_to_string(bson_iter_oid(&id), text);
            complete_offer(c, text, NULL);
        } else if (BSON_ITER_HOLDS_UTF8(&id)) {
            complete_offer(c, bson_iter_utf8(&id, NULL), NULL);
        }
    }
    truce_cursor_close(cursor);
}

static void offer_queues(const struct completing *c, truce_store *store)
{
    bson_t names;
    bson_iter_t iter;
    bool listed = !truce_distinct(store, QUEUE, "undone.queue", NULL, &names, NULL);

    for (bson_iter_init(&iter, &names); listed && bson_iter_next(&iter);) {
        if (BSON_ITER_HOLDS_UTF8(&iter))
            complete_offer(c, bson_iter_utf8(&iter, NULL), NULL);
    }
    bson_destroy(&names);
}

/* Offers the top-level fields of some documents. */
static void offer_fields(const struct completing *c, truce_store *store)
{
    truce_find_options options = {.limit = 20};
    bson_t seen = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status =
        c->first ? truce_find(store, c->first, NULL, &options, &cursor, NULL) : TRUCE_INVALID;

    while (!status && !truce_cursor_next(cursor, &document, NULL) && document) {
        bson_iter_t fields;

        for (bson_iter_init(&fields, document); bson_iter_next(&fields);) {
            const char *name = bson_iter_key(&fields);

            if (bson_has_field(&seen, name) || strchr(name, '.'))
                continue;
            bson_append_bool(&seen, name, -1, true);
            complete_offer(c, name, NULL);
        }
    }
    truce_cursor_close(cursor);
    bson_destroy(&seen);
}

/* ---- values of placeholders ------------------------------------------------------------------ */

static bool complete_is(const char *placeholder, const char *words)
{
    size_t length = strlen(placeholder);

    for (const char *at = words; (at = strstr(at, placeholder)); at++) {
        if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    }
    return false;
}

/* Offers names of the store that fit the placeholder. Offers nothing if the store cannot be
 * opened. */
static void offer_from_store(const struct completing *c, const char *placeholder)
{
    const char *noun = c->command->noun;
    truce_store *store = complete_open_store(c);

    if (!store)
        return;
    if (complete_is(placeholder, "COLLECTION SOURCE COPY"))
        offer_collections(c, store);
    else if (complete_is(placeholder, "INDEX") ||
             (complete_is(placeholder, "NAME") && !strcmp(noun, "index")))
        offer_indexes(c, store);
    else if (complete_is(placeholder, "SEQUENCE"))
        offer_ids(c, store, SEQUENCES);
    else if (complete_is(placeholder, "NAME") && !strcmp(noun, "sync"))
        offer_ids(c, store, SYNC_RULES);
    else if (complete_is(placeholder, "CRON"))
        offer_ids(c, store, QUEUE_CRONS);
    else if (complete_is(placeholder, "KEY") && !strcmp(noun, "request"))
        offer_ids(c, store, REQUESTS);
    else if (complete_is(placeholder, "ID") && !strcmp(noun, "commit"))
        offer_ids(c, store, COMMITS);
    else if (complete_is(placeholder, "CONFLICT"))
        offer_ids(c, store, CONFLICTS);
    else if (complete_is(placeholder, "ID JOB") && !strcmp(noun, "queue"))
        offer_ids(c, store, QUEUE);
    else if (complete_is(placeholder, "BOOK"))
        offer_ids(c, store, TRANSFERS);
    else if (complete_is(placeholder, "TREE"))
        offer_ids(c, store, TREES);
    else if (complete_is(placeholder, "QUEUE"))
        offer_queues(c, store);
    else if (complete_is(placeholder, "FIELD FIELDS PATH PATHS"))
        offer_fields(c, store);
    truce_store_close(store);
}

static void offer_words(const struct completing *c, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        char *word = bson_strndup(words, length);

        complete_offer(c, word, NULL);
        bson_free(word);
        words += length + (words[length] == ' ');
    }
}

/* Offers values for an argument or an option by its placeholder. The script completes file names if
 * it reads ":files". */
static void offer_value(const struct completing *c, const char *placeholder)
{
    if (complete_is(placeholder, "FILE URI STORE FROM TO PROGRAM"))
        puts(":files");
    else if (complete_is(placeholder, "FORM"))
        offer_words(c, "man bash zsh fish");
    else if (complete_is(placeholder, "FORMAT"))
        offer_words(c, "ndjson json csv");
    else if (complete_is(placeholder, "STORY"))
        offer_words(c, "enrolments badges keys post friends bank transfer rename");
    else if (complete_is(placeholder, "STATE"))
        offer_words(c, !strcmp(c->command->noun, "request") ? "waiting done failed"
                                                            : "pending committed aborted done");
    else
        offer_from_store(c, placeholder);
}

/* Offers values for the current argument: "COLLECTION" for the first of "COLLECTION [FILTER]". A
 * last "WORD..." is the placeholder of all later arguments. */
static void offer_argument(const struct completing *c)
{
    const char *text = c->command->arguments ? c->command->arguments : "";
    char placeholder[40] = "";

    for (int i = 0; *text; i++) {
        size_t length = strcspn(text, " ");
        bool many = memmem(text, length, "...", 3) != NULL;

        if (i == c->arguments || many) {
            text += *text == '[';
            snprintf(placeholder, sizeof placeholder, "%.*s", (int)strcspn(text, " ]."), text);
            break;
        }
        text += length + strspn(text + length, " ");
    }
    if (*placeholder)
        offer_value(c, placeholder);
}

/* ---- commands and options -------------------------------------------------------------------- */

static void offer_nouns(const struct completing *c)
{
    const char *before = "";

    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *k = cli_commands[i];

        if (!k->hidden && strcmp(before, k->noun) != 0)
            complete_offer(c, k->noun, k->verb ? NULL : k->summary);
        before = k->noun;
    }
}

static void offer_verbs(const struct completing *c, const char *noun)
{
    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *k = cli_commands[i];

        if (!k->hidden && k->verb && !strcmp(k->noun, noun))
            complete_offer(c, k->verb, k->summary);
    }
}

static void offer_options(const struct completing *c, const struct cli_option *options)
{
    char name[64];

    for (; options && options->name; options++) {
        snprintf(name, sizeof name, "--%s", options->name);
        complete_offer(c, name, options->help);
    }
}

/* Offers values if the word is the value of the option before it. Returns true if it is. */
static bool offer_option_value(const struct completing *c)
{
    const struct cli_option *option;
    const char *const *words;
    int last = 0;

    while (c->before[last] && c->before[last + 1])
        last++;
    if (!c->before[last])
        return false;
    option = cli_option_before_value(c->command, c->before[last]);
    words = option ? cli_row_words(c->command, option->name) : NULL;
    for (; words && *words; words++)
        complete_offer(c, *words, NULL);
    if (option)
        offer_value(c, option->value);
    return option != NULL;
}

/* Finds out whether the word is an option, its value, a noun, a verb, or an argument, and offers
 * the candidates. */
static void complete_complete(struct completing *c)
{
    int noun = cli_next_plain(c->before, 0), at = noun + 1;
    const char *verb = NULL;

    c->command = cli_command_find("help", NULL);
    if (*c->word == '-' && !c->before[noun]) {
        offer_options(c, cli_common_options);
        return;
    }
    if (offer_option_value(c) && !c->before[noun])
        return;
    if (!c->before[noun]) {
        offer_nouns(c);
        return;
    }
    c->command = cli_command_find(c->before[noun], NULL);
    if (!c->command) {
        at = cli_next_plain(c->before, noun + 1);
        verb = c->before[at++];
        if (!verb) {
            offer_verbs(c, c->before[noun]);
            return;
        }
        c->command = cli_command_find(c->before[noun], verb);
    }
    if (!c->command)
        return;
    for (at = cli_next_plain(c->before, at); c->before[at];
         at = cli_next_plain(c->before, at + 1)) {
        c->first = c->first ? c->first : c->before[at];
        c->arguments++;
    }
    if (offer_option_value(c))
        return;
    if (*c->word == '-') {
        offer_options(c, cli_command_options(c->command));
        offer_options(c, cli_common_options);
        return;
    }
    if (!strcmp(c->command->noun, "help") && !c->arguments)
        offer_nouns(c);
    else if (!strcmp(c->command->noun, "help"))
        offer_verbs(c, c->first);
    else
        offer_argument(c);
}

static int complete_run(struct cli *cli)
{
    char *before[CLI_ARGUMENTS_MAX + 1] = {NULL};
    struct completing c = {.before = before, .uri = cli->uri};
    int count = cli->count;

    c.word = count ? cli->arguments[count - 1] : "";
    for (int i = 0; i + 1 < count; i++) {
        before[i] = (char *)(uintptr_t)cli->arguments[i];
        if (!strncmp(before[i], "--store=", 8))
            c.uri = before[i] + 8;
        else if (i && (!strcmp(before[i - 1], "--store") || !strcmp(before[i - 1], "-s")))
            c.uri = before[i];
    }
    complete_complete(&c);
    return CLI_DONE;
}

static const struct cli_command cli_complete = {
    .noun = "complete",
    .arguments = "[WORD...]",
    .summary = "list the candidates at the cursor, for the shells",
    .hidden = true,
    .run = complete_run,
};

cli_command_list cli_complete_commands = {&cli_complete, NULL};
