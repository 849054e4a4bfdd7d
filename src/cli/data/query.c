/* Reads filters and find options of the call, and prints the documents of a cursor. */
#include "cli/data/query.h"

#include <string.h>

#include "base/nearest_word.h"
#include "cli/core/operation_row.h"
#include "cli/core/plain_output.h"
#include "cli/core/view_lookup.h"
#include "cli/data/view.h"
#include "store/reserved_names.h"

static bool has_option(const struct cli *cli, const char *name)
{
    for (const struct cli_option *o = cli_command_options(cli->command); o && o->name; o++) {
        if (!strcmp(o->name, name))
            return true;
    }
    return false;
}

/* Reads the document of an option, which is always initialized. If the option was given, sets *set
 * to the document. */
static bool query_read_document(const struct cli *cli, const char *name, bson_t *document,
                                const bson_t **set)
{
    bool given;

    bson_init(document);
    if (!has_option(cli, name))
        return true;
    if (!cli_option_document(cli, name, document, &given))
        return false;
    if (given)
        *set = document;
    return true;
}

bool cli_hint_read(const struct cli *cli, bson_t *hint)
{
    const char *text = cli_text(cli, "hint");

    bson_init(hint);
    if (!text)
        return true;
    if (text[strspn(text, " \t")] == '{')
        return cli_document(cli, text, "--hint", hint);
    BSON_APPEND_UTF8(hint, "", text);
    return true;
}

/* Refuses an update without --replace that does not begin with an operator: its first field is
 * `name`, or "". */
static int update_refuse_field(const struct cli *cli, const bson_t *update, const char *name)
{
    bson_iter_t at;

    if (!*name)
        return cli_usage(cli, "UPDATE must consist of operators such as $set: add --replace to "
                              "replace the whole document");
    (void)bson_iter_init(&at, update);
    while (bson_iter_next(&at))
        if (*bson_iter_key(&at) == '$')
            return cli_usage(cli,
                             "UPDATE has the operator \"%s\" and the field \"%s\": move the field "
                             "into an operator such as $set",
                             bson_iter_key(&at), name);
    return cli_usage(cli,
                     "UPDATE must consist of operators such as $set, not \"%s\": add the operator, "
                     "or --replace to replace the whole document",
                     name);
}

int cli_update_check(const struct cli *cli, const bson_t *update, bool is_pipeline)
{
    bson_iter_t first;
    const char *name =
        bson_iter_init(&first, update) && bson_iter_next(&first) ? bson_iter_key(&first) : "";

    if (cli_flag(cli, "replace") && cli_text(cli, "array-filters"))
        return cli_usage(cli, "--array-filters selects elements for update operators: give either "
                              "--array-filters or --replace, not both");
    if (!cli_flag(cli, "replace")) {
        if (is_pipeline && bson_empty(update))
            return cli_usage(cli,
                             "UPDATE has no stages: give at least one, for example [{\"$set\": "
                             "{...}}]");
        return is_pipeline || *name == '$' ? CLI_DONE : update_refuse_field(cli, update, name);
    }
    if (is_pipeline)
        return cli_usage(cli, "--replace needs a document, not an array of stages");
    if (*name == '$')
        return cli_usage(cli, "--replace needs a document without operators, not \"%s\"", name);
    return CLI_DONE;
}

static bool query_read_number(const struct cli *cli, const char *name, int64_t most,
                              int64_t *number)
{
    *number = 0;
    return !has_option(cli, name) || cli_number(cli, name, 0, most, 0, number);
}

int cli_query_read(const struct cli *cli, const char *filter, struct cli_query *query)
{
    truce_find_options *options = &query->options;
    bool good = true;

    *options = (truce_find_options){0};
    bson_init(&query->hint);
    good &= cli_document(cli, filter, "FILTER", &query->filter);
    good &= query_read_document(cli, "projection", &query->projection, &options->projection);
    good &= query_read_document(cli, "sort", &query->sort, &options->sort);
    good &= query_read_document(cli, "min", &query->min, &options->min);
    good &= query_read_document(cli, "max", &query->max, &options->max);
    good &= query_read_number(cli, "skip", INT64_MAX, &options->skip);
    good &= query_read_number(cli, "limit", INT64_MAX, &options->limit);
    options->deadline_ms = cli->deadline_ms;
    options->allow_disk_use = true;
    if (has_option(cli, "hint")) {
        good &= cli_hint_read(cli, &query->hint);
        options->hint = bson_empty(&query->hint) ? NULL : &query->hint;
    }
    query->counting = (truce_count_options){.hint = options->hint,
                                            .skip = options->skip,
                                            .limit = options->limit,
                                            .deadline_ms = options->deadline_ms};
    return good ? CLI_DONE : CLI_USAGE;
}

void cli_query_release(struct cli_query *query)
{
    bson_destroy(&query->filter);
    bson_destroy(&query->projection);
    bson_destroy(&query->sort);
    bson_destroy(&query->hint);
    bson_destroy(&query->min);
    bson_destroy(&query->max);
}

truce_status cli_query_find(const struct cli *cli, truce_store *store,
                            const struct cli_query *query, truce_cursor **cursor,
                            bson_error_t *error)
{
    bson_t request = BSON_INITIALIZER;
    truce_status status;

    if (!cli->is_view)
        return truce_find(store, cli->arguments[0], &query->filter, &query->options, cursor, error);
    BSON_APPEND_UTF8(&request, "find", cli->arguments[0]);
    cli_view_append_query(cli, query, "filter", &request);
    BSON_APPEND_BOOL(&request, "allowDiskUse", true);
    status = cli_view_open(cli, store, &request, cursor, error);
    bson_destroy(&request);
    return status;
}

/* Prints that the store, or the database of a file that the call names, has no such collection. */
static void note_missing(const struct cli *cli, const struct nearest_word *nearest, bool has_others)
{
    char hint[NEAREST_WORD_HINT_MAX];

    (void)truce__nearest_word_hint(nearest, hint);
    if (!cli->database)
        cli_note(cli, "the store has no collection \"%s\"%s", nearest->word, hint);
    else if (has_others)
        cli_note(cli, "the database \"%s\" has no collection \"%s\"%s", cli->database,
                 nearest->word, hint);
    else
        cli_note(cli, "the database \"%s\" has no collections", cli->database);
}

void cli_note_missing_collection(const struct cli *cli)
{
    struct nearest_word nearest = {.word = cli->arguments[0]};
    bson_t collections;
    bson_iter_t at, name;
    bool found;

    /* The store of a rehearsal is empty, and the collections of truce exist once they are needed. */
    if (cli->json || cli->rehearsal || cli->is_view || truce__reserved(nearest.word))
        return;
    /* If the collections cannot be listed, the note is omitted. */
    found = truce_collection_list(cli->store, &(truce_list_options){.unmeasured = true},
                                  &collections, NULL) != TRUCE_OK;
    for (bson_iter_init(&at, &collections); !found && bson_iter_next(&at);)
        if (bson_iter_recurse(&at, &name) && bson_iter_find(&name, "name")) {
            found = !strcmp(bson_iter_utf8(&name, NULL), nearest.word);
            truce__nearest_word_offer(&nearest, bson_iter_utf8(&name, NULL));
        }
    /* The list has no views of a server, so the name may be that of a view. */
    if (!found &&
        !(cli_store_is_server(cli->uri) && cli_view_may_be_on_server(cli->store, nearest.word)))
        note_missing(cli, &nearest, !bson_empty(&collections));
    bson_destroy(&collections);
}

enum json_form cli_form(const struct cli *cli)
{
    return cli_flag(cli, "canonical") ? JSON_CANONICAL : JSON_RELAXED;
}

static bool print_one(const bson_t *document, const struct plain *plain, enum json_form form)
{
    bson_t shown;
    bool good;

    if (!plain)
        return cli_print(document, form);
    cli_plain(plain, document, &shown);
    good = cli_print(&shown, form);
    bson_destroy(&shown);
    return good;
}

int cli_print_cursor(const struct cli *cli, truce_cursor *cursor, bool *any)
{
    struct plain *plain = cli_plain_new(cli, cli->arguments[0]);
    enum json_form form = cli_form(cli);
    const bson_t *document;
    bson_error_t error;
    truce_status status;
    bool printed = false, good = true;

    do {
        status = truce_cursor_next(cursor, &document, &error);
        if (!status && document) {
            good = print_one(document, plain, form);
            printed = true;
        }
    } while (!status && document && good);
    if (any)
        *any = printed;
    truce_cursor_close(cursor);
    cli_plain_free(plain);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}
