/* Edits: records, and items before they are published (T3, T6, T8 of tree.c). */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/id.h"
#include "base/reserved_fields.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"
#include "store/reserved.h"
#include "store/view.h"

#define RENEW_MS (TREE_EDIT_MS / 24)

/* ---- records ---------------------------------------------------------------------------------- */

static bson_t *record(const truce_tree_edit *edit)
{
    int64_t now_ms = truce__clock_wall_ms();
    bson_t *document = BCON_NEW("_id", BCON_OID(&edit->token), "tree", BCON_UTF8(edit->tree->name),
                                "version", BCON_INT64(edit->base + 1), "state", BCON_UTF8("open"),
                                "begun", BCON_DATE_TIME(now_ms), "renewed", BCON_DATE_TIME(now_ms));

    if (edit->message)
        BSON_APPEND_UTF8(document, "message", edit->message);
    if (edit->author)
        BSON_APPEND_UTF8(document, "author", edit->author);
    if (edit->imported)
        BSON_APPEND_OID(document, "origin", &edit->origin);
    if (edit->has_id)
        BCON_APPEND(document, "request", "{", "id", BCON_OID(&edit->id),
                    edit->since_said ? "since" : "from", BCON_INT64(edit->since), "}");
    return document;
}

static truce_status edit_write_record(truce_tree_edit *edit, bson_error_t *error)
{
    truce_write_options options = {.relaxed = truce__tree_relaxed(edit->tree)};
    bson_t *document = record(edit);
    struct worker worker;
    truce_status status;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    do
        status = truce_insert(edit->tree->store, TREE_EDITS, document, &options, error);
    while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(document);
    if (status && status != TRUCE_DUPLICATE)
        return status;
    edit->recorded = true;
    edit->renewed_ms = truce__clock_wall_ms();
    return TRUCE_OK;
}

/* One write of a record that is open; taken over: `guard`, `set`. */
static truce_status edit_write_open(truce_tree *tree, const bson_oid_t *token, bson_t *guard,
                                    bson_t *set, bool *done, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER;
    truce_write_result result = {0};
    struct worker worker;
    truce_status status;

    *done = false;
    BCON_APPEND(guard, "_id", BCON_OID(token), "tree", BCON_UTF8(tree->name), "state",
                BCON_UTF8("open"));
    BSON_APPEND_DOCUMENT(&update, "$set", set);
    truce__worker_init(&worker, tree->store, tree->deadline_ms);
    do {
        status = truce_update(tree->store, TREE_EDITS, guard, &update, NULL, &result, error);
        *done = *done || (!status && result.matched);
        truce_write_result_release(&result);
    } while (truce__repeatable(status) && !truce__worker_wait(&worker, "the store", NULL));
    bson_destroy(&update);
    bson_destroy(set);
    bson_destroy(guard);
    return status;
}

truce_status truce__tree_renew(truce_tree *tree, const bson_oid_t *token, bson_error_t *error)
{
    char text[25];
    bool done;
    truce_status status =
        edit_write_open(tree, token, bson_new(),
                        BCON_NEW("renewed", BCON_DATE_TIME(truce__clock_wall_ms())), &done, error);

    bson_oid_to_string(token, text);
    if (!status && !done)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no open edit %s of tree \"%s\"",
                             text, tree->name);
    return status;
}

truce_status truce__tree_give_up(truce_tree *tree, const bson_oid_t *token, int64_t silent_since_ms,
                                 bool *done, bson_error_t *error)
{
    bson_t *guard = bson_new();

    if (silent_since_ms)
        BCON_APPEND(guard, "renewed", "{", "$lte", BCON_DATE_TIME(silent_since_ms), "}");
    return edit_write_open(tree, token, guard, BCON_NEW("state", BCON_UTF8("given up")), done,
                           error);
}

/* ---- begin ------------------------------------------------------------------------------------ */

truce_tree_edit *truce__tree_edit_new(truce_tree *tree, const struct tree_master *master,
                                      int64_t base, const char *message, const char *author)
{
    truce_tree_edit *edit = bson_malloc0(sizeof *edit);

    edit->tree = tree;
    edit->born = master->born;
    edit->base = base;
    edit->base_at_ms = base == master->current ? master->at_ms : 0;
    edit->message = bson_strdup(message);
    edit->author = bson_strdup(author);
    truce__id_new(&edit->token);
    return edit;
}

static truce_status edit_check_text(const char *text, const char *what, bson_error_t *error)
{
    size_t length = text ? strlen(text) : 0;

    if (length > TREE_TEXT_MAX || (text && !bson_utf8_validate(text, length, false)))
        return truce__fail(TRUCE_INVALID, error, "the %s is UTF-8 of at most %d bytes", what,
                           TREE_TEXT_MAX);
    return TRUCE_OK;
}

static truce_status edit_check_options(const truce_tree_edit_options *options, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(options, "truce_tree_edit_options", error);

    if (!status && options)
        status = edit_check_text(options->message, "message", error);
    if (!status && options)
        status = edit_check_text(options->author, "author", error);
    return status;
}

/* A put of the new edit for each of the old one. */
static truce_status take_over(const bson_t *document, void *arg, bson_error_t *error)
{
    bson_t item = BSON_INITIALIZER;
    truce_status status;

    truce__tree_show(document, &item);
    if (truce__tree_absent(document)) {
        bson_iter_t iter;

        status = bson_iter_init_find(&iter, document, "itemId")
                     ? truce_tree_remove(arg, bson_iter_value(&iter), error)
                     : TRUCE_OK;
    } else {
        status = truce_tree_put(arg, &item, error);
    }
    bson_destroy(&item);
    return status;
}

static void take_request(truce_tree_edit *edit, const bson_t *record)
{
    bson_t request;
    bson_iter_t id;

    if (edit->has_id || !truce__value_subdocument(record, "request", &request) ||
        !bson_iter_init_find(&id, &request, "id") || !BSON_ITER_HOLDS_OID(&id))
        return;
    edit->has_id = true;
    bson_oid_copy(bson_iter_oid(&id), &edit->id);
    edit->since = truce__field_count(&request, "since");
    edit->since_said = bson_has_field(&request, "since");
}

/* The items get a token of this edit's own: who began it may be at work still, and writes into what is his. */
static truce_status edit_resume(truce_tree_edit *edit, const bson_oid_t *token, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(token)), found;
    truce_status status =
        truce_find_one(edit->tree->store, TREE_EDITS, filter, NULL, &found, error);
    bool done;

    if (!status || status == TRUCE_NOT_FOUND)
        status = truce__tree_renew(edit->tree, token, error);
    if (!status) {
        edit->base = truce__field_count(&found, "version") - 1;
        edit->base_at_ms = 0;
        if (!edit->message && *truce__field_text(&found, "message"))
            edit->message = bson_strdup(truce__field_text(&found, "message"));
        if (!edit->author && *truce__field_text(&found, "author"))
            edit->author = bson_strdup(truce__field_text(&found, "author"));
        take_request(edit, &found);
        status = truce__tree_own(edit->tree, edit->base + 1, token, take_over, edit, error);
    }
    if (!status)
        status = truce_tree_flush(edit, error);
    if (!status)
        status = truce__tree_renew(edit->tree, token, error); /* T8 */
    if (!status)
        status = truce__tree_give_up(edit->tree, token, 0, &done, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* It may have been dropped since this handle knew of it. */
static truce_status read_or_make(truce_tree *tree, struct tree_master *master, bson_error_t *error)
{
    truce_status status = truce__tree_master(tree, master, error);

    if (status != TRUCE_NOT_FOUND)
        return status;
    status = truce__tree_make(tree, error);
    return status ? status : truce__tree_master(tree, master, error);
}

truce_status truce_tree_begin(truce_tree *tree, const truce_tree_edit_options *options,
                              truce_tree_edit **edit, bson_error_t *error)
{
    DEADLINE_SCOPE(tree->deadline_ms);
    static const truce_tree_edit_options nothing;
    struct tree_master master = {0};
    truce_status status = edit_check_options(options, error);

    *edit = NULL;
    options = options ? options : &nothing;
    if (!status)
        status = truce__tree_ready(tree, true, error);
    if (!status)
        status = truce__view_guard(tree->store, "write", tree->collection, error);
    if (!status)
        status = read_or_make(tree, &master, error);
    if (!status && (options->base < 0 || options->base > master.current))
        status = truce__fail(TRUCE_NOT_FOUND, error, "tree \"%s\" has no version %" PRId64,
                             tree->name, options->base);
    if (!status) {
        *edit = truce__tree_edit_new(tree, &master, options->base ? options->base : master.current,
                                     options->message, options->author);
        if (options->id) {
            (*edit)->has_id = true;
            bson_oid_copy(options->id, &(*edit)->id);
            (*edit)->since = options->base;
            (*edit)->since_said = options->base != 0;
        }
        if (options->token)
            status = edit_resume(*edit, options->token, error);
    }
    if (status) {
        truce_tree_edit_free(*edit);
        *edit = NULL;
    }
    truce__tree_master_release(&master);
    return status;
}

void truce_tree_edit_free(truce_tree_edit *edit)
{
    if (!edit)
        return;
    for (uint32_t i = 0; i < edit->count; i++)
        bson_destroy(edit->items[i]);
    bson_free(edit->message);
    bson_free(edit->author);
    bson_free(edit);
}

const bson_oid_t *truce_tree_edit_token(const truce_tree_edit *edit)
{
    return &edit->token;
}

int64_t truce_tree_edit_base(const truce_tree_edit *edit)
{
    return edit->base;
}

truce_status truce_tree_abandon(truce_tree_edit *edit, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    bool done;

    return edit->recorded ? truce__tree_give_up(edit->tree, &edit->token, 0, &done, error)
                          : TRUCE_OK;
}

/* ---- what is gathered -------------------------------------------------------------------------- */

/* Takes `item` over. */
static truce_status edit_gather(truce_tree_edit *edit, struct value id, bson_t *item,
                                bson_error_t *error)
{
    uint64_t hash = truce__value_hash(id);
    truce_status status = TRUCE_OK;

    if (edit->published)
        status = truce__fail(TRUCE_INVALID, error, "the edit was published");
    for (uint32_t i = 0; !status && i < edit->count; i++) {
        if (edit->hashes[i] != hash || !truce__value_equal(truce__tree_item_id(edit->items[i]), id))
            continue;
        edit->bytes = edit->bytes - edit->items[i]->len + item->len;
        bson_destroy(edit->items[i]);
        edit->items[i] = item;
        return TRUCE_OK;
    }
    if (!status && (edit->count == TREE_BATCH || edit->bytes + item->len > TREE_BATCH_BYTES))
        status = truce_tree_flush(edit, error);
    if (status) {
        bson_destroy(item);
        return status;
    }
    edit->hashes[edit->count] = hash;
    edit->items[edit->count++] = item;
    edit->bytes += item->len;
    return TRUCE_OK;
}

truce_status truce_tree_put(truce_tree_edit *edit, const bson_t *item, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    struct value id;
    truce_status status = truce__tree_check_item(item, &id, error);

    return status ? status : edit_gather(edit, id, bson_copy(item), error);
}

truce_status truce_tree_remove(truce_tree_edit *edit, const bson_value_t *item, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    bson_t *document;
    struct value id;
    truce_status status = truce__check_value(item, "itemId", error);

    if (status)
        return status;
    document = bson_new();
    BSON_APPEND_VALUE(document, "itemId", item);
    status = truce__tree_check_item(document, &id, error);
    if (status) {
        bson_destroy(document);
        return status;
    }
    BSON_APPEND_BOOL(document, "removed", true);
    return edit_gather(edit, id, document, error);
}

/* ---- what is written --------------------------------------------------------------------------- */

static void own_filter(const truce_tree_edit *edit, struct value id, bson_t *filter)
{
    truce__tree_filter(edit->tree, filter);
    truce__tree_append_id(filter, "itemId", id);
    BSON_APPEND_INT64(filter, "version", edit->base + 1);
    BSON_APPEND_OID(filter, "token", &edit->token);
}

/* It was put before in this edit, or by an attempt that was not answered: {_id, edited: as it is} -> the next. CONFLICT: look again. */
static truce_status edit_replace(truce_tree_edit *edit, const bson_t *item, bson_error_t *error)
{
    struct value id = truce__tree_item_id(item);
    truce_write_options options = {.relaxed = truce__tree_relaxed(edit->tree)};
    truce_write_result result = {0};
    bson_t filter, found, guard = BSON_INITIALIZER, document = BSON_INITIALIZER;
    int64_t edited;
    bson_value_t there;
    truce_status status;

    own_filter(edit, id, &filter);
    status =
        truce_find_one(edit->tree->store, edit->tree->collection, &filter, NULL, &found, error);
    if (!status && !truce__tree_same(&found, item)) {
        edited = truce__field_count(&found, "edited");
        there = truce__document_id(&found);
        BSON_APPEND_VALUE(&guard, "_id", &there);
        if (edited)
            BSON_APPEND_INT64(&guard, "edited", edited);
        else
            BCON_APPEND(&guard, "edited", "{", "$exists", BCON_BOOL(false), "}");
        truce__tree_keep_item(edit->tree, edit->base + 1, &edit->token, id,
                              truce__tree_absent(item) ? NULL : item, &document);
        BSON_APPEND_INT64(&document, "edited", edited + 1);
        bson_t whole = BSON_INITIALIZER;
        bson_copy_to_excluding_noinit(&document, &whole, "_id", NULL);
        status = truce_update(edit->tree->store, edit->tree->collection, &guard, &whole, &options,
                              &result, error);
        if (!status && !result.matched)
            status = TRUCE_CONFLICT;
        truce_write_result_release(&result);
        bson_destroy(&whole);
    }
    bson_destroy(&document);
    bson_destroy(&guard);
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_CONFLICT : status;
}

/* Those that are left after it: the first `edit->count`. OK: each of the others is written; CONFLICT: once more. */
static truce_status write_gathered(truce_tree_edit *edit, bson_error_t *error)
{
    truce_bulk_options options = {.unordered = true, .relaxed = truce__tree_relaxed(edit->tree)};
    truce_write *writes = bson_malloc0(edit->count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(edit->count * sizeof *outcomes);
    bson_t *documents = bson_malloc(edit->count * sizeof *documents);
    uint32_t left = 0;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < edit->count; i++) {
        const bson_t *item = edit->items[i];

        bson_init(&documents[i]);
        truce__tree_keep_item(edit->tree, edit->base + 1, &edit->token, truce__tree_item_id(item),
                              truce__tree_absent(item) ? NULL : item, &documents[i]);
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = edit->tree->collection,
                                  .document = &documents[i]};
    }
    (void)!truce_bulk(edit->tree->store, writes, edit->count, &options, outcomes, error);
    for (uint32_t i = 0; i < edit->count; i++) {
        truce_status one = outcomes[i].status;

        if (one == TRUCE_DUPLICATE)
            one = edit_replace(edit, edit->items[i], &outcomes[i].error);
        if (one == TRUCE_OK) {
            edit->bytes -= edit->items[i]->len;
            edit->written++;
            bson_destroy(edit->items[i]);
        } else {
            edit->hashes[left] = edit->hashes[i];
            edit->items[left++] = edit->items[i];
            if (!status || truce__repeatable(status)) {
                status = one;
                if (error)
                    *error = outcomes[i].error;
            }
        }
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[i]);
    }
    edit->count = left;
    bson_free(documents);
    bson_free(outcomes);
    bson_free(writes);
    return status;
}

truce_status truce_tree_flush(truce_tree_edit *edit, bson_error_t *error)
{
    DEADLINE_SCOPE(edit->tree->deadline_ms);
    struct worker worker;
    bson_error_t waited;
    truce_status status = TRUCE_OK;

    truce__worker_init(&worker, edit->tree->store, edit->tree->deadline_ms);
    if ((edit->count || edit->even_empty) && !edit->recorded)
        status = edit_write_record(edit, error);
    else if (edit->count && truce__clock_wall_ms() > edit->renewed_ms + RENEW_MS) {
        status = truce__tree_renew(edit->tree, &edit->token, error);
        edit->renewed_ms = truce__clock_wall_ms();
    }
    while (!status && edit->count) {
        status = write_gathered(edit, error);
        if (!truce__repeatable(status) || truce__worker_wait(&worker, "the store", &waited))
            break;
        status = TRUCE_OK;
    }
    return status;
}

/* ---- what was written -------------------------------------------------------------------------- */

truce_status truce__tree_own(truce_tree *tree, int64_t version, const bson_oid_t *token,
                             tree_own_function *function, void *arg, bson_error_t *error)
{
    bson_t filter;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    truce__tree_filter(tree, &filter);
    BSON_APPEND_INT64(&filter, "version", version);
    BSON_APPEND_OID(&filter, "token", token);
    status = truce_find(tree->store, tree->collection, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = function(document, arg, error);
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    return status;
}
