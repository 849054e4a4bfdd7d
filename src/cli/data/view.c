#include "cli/data/view.h"

#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "cli/core/snapshot_option.h"
#include "store/decorators/database_view.h"
#include "truce/command.h"
#include "truce/sys/store.h"

/* A cursor over the batches of a command. */
struct view_cursor {
    /* Must be the first field. */
    truce_cursor base;
    const struct cli *cli;
    truce_store *store;
    char *collection;
    /* The cursor of the command, or 0 if it has no more batches. */
    int64_t id;
    /* The last reply, the documents of its batch that were not returned yet, and the last returned
     * document. `document` borrows from the reply. */
    bson_t reply;
    bson_iter_t batch;
    bson_t document;
};

truce_status cli_view_call(const struct cli *cli, truce_store *store, const bson_t *request,
                           bson_t *reply, bson_error_t *error)
{
    return truce_command(store, truce__database_name(cli->store), request, reply, error);
}

/* Commands run on the whole file, so the snapshot is that of the file. */
int cli_view_snapshot(const struct cli *cli, truce_store **snapshot)
{
    return cli_snapshot_take(cli, truce__database_holder(cli->store), snapshot);
}

/* Runs the command, and begins with its batch. */
static truce_status view_cursor_run(struct view_cursor *cursor, const bson_t *request,
                                    const char *batch, bson_error_t *error)
{
    bson_t answer;
    bson_iter_t at;
    truce_status status;

    bson_destroy(&cursor->reply);
    status = cli_view_call(cursor->cli, cursor->store, request, &cursor->reply, error);
    cursor->id = 0;
    if (status)
        return status;
    if (!truce__value_subdocument(&cursor->reply, "cursor", &answer) ||
        !bson_iter_init_find(&at, &answer, batch) || !bson_iter_recurse(&at, &cursor->batch))
        return truce__fail(TRUCE_CORRUPT, error, "the reply of a command has no batch");
    cursor->id = truce__field_number(&answer, "id");
    return TRUCE_OK;
}

static truce_status view_cursor_more(struct view_cursor *cursor, bson_error_t *error)
{
    bson_t request = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_INT64(&request, "getMore", cursor->id);
    BSON_APPEND_UTF8(&request, "collection", cursor->collection);
    status = view_cursor_run(cursor, &request, "nextBatch", error);
    bson_destroy(&request);
    return status;
}

static truce_status view_cursor_next(truce_cursor *base, const bson_t **document,
                                     bson_error_t *error)
{
    struct view_cursor *cursor = (struct view_cursor *)base;
    bool found = bson_iter_next(&cursor->batch);
    truce_status status = TRUCE_OK;

    *document = NULL;
    while (!status && !found && cursor->id) {
        status = view_cursor_more(cursor, error);
        found = !status && bson_iter_next(&cursor->batch);
    }
    if (status || !found)
        return status;
    truce__value_bson(truce__value_of_iter(&cursor->batch), &cursor->document);
    *document = &cursor->document;
    return TRUCE_OK;
}

/* Closing the store also ends the cursor of the command, if it has more batches. */
static void view_cursor_close(truce_cursor *base)
{
    struct view_cursor *cursor = (struct view_cursor *)base;

    bson_destroy(&cursor->reply);
    bson_free(cursor->collection);
    bson_free(cursor);
}

truce_status cli_view_open(const struct cli *cli, truce_store *store, const bson_t *request,
                           truce_cursor **cursor, bson_error_t *error)
{
    static const truce_cursor_ops ops = {view_cursor_next, view_cursor_close};
    struct view_cursor *made = bson_malloc0(sizeof *made);
    bson_iter_t first;
    truce_status status;

    made->base.ops = &ops;
    made->cli = cli;
    made->store = store;
    bson_init(&made->reply);
    if (bson_iter_init(&first, request) && bson_iter_next(&first))
        made->collection = bson_strdup(bson_iter_utf8(&first, NULL));
    status = view_cursor_run(made, request, "firstBatch", error);
    if (status)
        view_cursor_close(&made->base);
    *cursor = status ? NULL : &made->base;
    return status;
}

static void view_append_document(bson_t *request, const char *name, const bson_t *document)
{
    if (document)
        BSON_APPEND_DOCUMENT(request, name, document);
}

static void view_append_hint(bson_t *request, const bson_t *hint)
{
    bson_iter_t at;

    if (hint && bson_iter_init_find(&at, hint, ""))
        BSON_APPEND_UTF8(request, "hint", bson_iter_utf8(&at, NULL));
    else
        view_append_document(request, "hint", hint);
}

void cli_view_append_query(const struct cli *cli, const struct cli_query *query, const char *name,
                           bson_t *request)
{
    const truce_find_options *options = &query->options;

    if (name)
        BSON_APPEND_DOCUMENT(request, name, &query->filter);
    view_append_document(request, "projection", options->projection);
    view_append_document(request, "sort", options->sort);
    view_append_document(request, "min", options->min);
    view_append_document(request, "max", options->max);
    view_append_hint(request, options->hint);
    if (options->return_key)
        BSON_APPEND_BOOL(request, "returnKey", true);
    if (options->show_record_id)
        BSON_APPEND_BOOL(request, "showRecordId", true);
    if (options->skip)
        BSON_APPEND_INT64(request, "skip", options->skip);
    if (options->limit)
        BSON_APPEND_INT64(request, "limit", options->limit);
    if (cli->deadline_ms)
        BSON_APPEND_INT64(request, "maxTimeMS", cli->deadline_ms);
}
