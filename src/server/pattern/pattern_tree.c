/* Trees of versions: publishing, and reading one version. What else there is of them is in pattern_tree_log.c. */
#include "server/pattern/pattern_tree.h"

#include <string.h>

/* ---- for both files ---------------------------------------------------------------------------- */

truce_status pattern_tree_take(struct call *call, const char *collection, bool writes,
                               const char *parent, truce_tree **tree, bson_error_t *error)
{
    truce_tree_options options = {.parent = parent, .deadline_ms = call->deadline_ms};
    truce_status status = pattern_text(call, &options.name, error);

    *tree = NULL;
    options.collection = collection;
    if (!status && collection)
        status = pattern_collection(call, collection, writes, error);
    if (!status)
        *tree = truce_tree_new(call->view, &options);
    return status;
}

bool pattern_rows_begin(struct tree_rows *rows, size_t size, bson_t *row)
{
    char buffer[16];
    const char *key;

    if (rows->passed) {
        rows->passed--;
        return false;
    }
    if (!rows->room || (rows->count && rows->array.len + size > TREE_ANSWER_BYTES)) {
        rows->more = true;
        return false;
    }
    rows->room--;
    bson_uint32_to_string(rows->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(&rows->array, key, row);
    return true;
}

void pattern_rows_end(struct tree_rows *rows, bson_t *row)
{
    bson_append_document_end(&rows->array, row);
}

void pattern_rows_append(struct tree_rows *rows, truce_status status, const char *name,
                         bson_t *reply)
{
    if (!status) {
        BSON_APPEND_ARRAY(reply, name, &rows->array);
        BSON_APPEND_BOOL(reply, "more", rows->more);
    }
    bson_destroy(&rows->array);
}

truce_status pattern_prefer(const char *text, truce_tree_prefer *prefer, bson_error_t *error)
{
    *prefer = !text                     ? TRUCE_TREE_ASK
              : !strcmp(text, "mine")   ? TRUCE_TREE_MINE
              : !strcmp(text, "theirs") ? TRUCE_TREE_THEIRS
                                        : (truce_tree_prefer)-1;
    return (int)*prefer < 0
               ? truce__refuse(CODE_BAD_VALUE, error, "'prefer' is \"mine\" or \"theirs\"")
               : TRUCE_OK;
}

static void tree_append_side(bson_t *row, const char *key, const bson_t *side)
{
    if (side)
        BSON_APPEND_DOCUMENT(row, key, side);
}

static size_t tree_size_of(const bson_t *document)
{
    return document ? document->len : 0;
}

void pattern_conflict_add(const truce_tree_conflict *conflict, void *arg)
{
    struct tree_rows *rows = arg;
    bson_t row;

    if (!pattern_rows_begin(rows,
                            tree_size_of(conflict->base) + tree_size_of(conflict->mine) +
                                tree_size_of(conflict->theirs),
                            &row))
        return;
    BSON_APPEND_VALUE(&row, "itemId", conflict->item);
    tree_append_side(&row, "base", conflict->base);
    tree_append_side(&row, "mine", conflict->mine);
    tree_append_side(&row, "theirs", conflict->theirs);
    BSON_APPEND_ARRAY(&row, "paths", conflict->paths);
    pattern_rows_end(rows, &row);
}

/* ---- truceTreePublish -------------------------------------------------------------------------- */

struct publish_given {
    const char *collection, *parent, *base, *message, *author, *prefer;
    const bson_t *changes, *rules;
    const bson_oid_t *id;
    int64_t revert;
    bool merge;
};

static const struct pattern_field publish_fields[] = {
    {GIVEN(publish_given, changes, FIELD_ARRAY),
     "each {put: ITEM}, a whole one with its itemId, or {remove: itemId}; up to 100,000"},
    {GIVEN(publish_given, revert, FIELD_NUMBER), "instead: what the tree was in that version", 1,
     INT64_MAX},
    {GIVEN(publish_given, base, FIELD_TEXT),
     "the token of the version that was read and changed; \"new\": the tree has none yet; absent: "
     "whatever stands now"},
    {GIVEN(publish_given, id, FIELD_OID),
     "of this publication: sent again with the same base, it is published once"},
    {GIVEN(publish_given, merge, FIELD_FLAG),
     "merges with what others have published since the base, item by item"},
    {GIVEN(publish_given, prefer, FIELD_TEXT),
     "with merge: \"mine\" or \"theirs\", where both sides changed the same"},
    {GIVEN(publish_given, rules, FIELD_DOCUMENT),
     "with merge: policies by path, as of truceRevision"},
    {GIVEN(publish_given, message, FIELD_TEXT), "for the log"},
    {GIVEN(publish_given, author, FIELD_TEXT), "for the log"},
    {GIVEN(publish_given, collection, FIELD_TEXT), "of the items; needed the first time"},
    {GIVEN(publish_given, parent, FIELD_TEXT),
     "the field of an item with its parent's itemId: no orphans, no circles; said the first time"},
    {{0}}};

struct publishing {
    truce_tree *tree;
    truce_tree_edit *edit;
    truce_tree_published published;
    int64_t base;          /* by the token */
    bool based;            /* it was given */
    bool stale;            /* the base was the empty tree, which it is not any more */
    bool conflict;         /* nothing was published */
    struct tree_rows rows; /* the items that could not be merged */
};

static truce_status check_publish(const struct publish_given *given, bson_error_t *error)
{
    if (!given->changes == !given->revert)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "'changes' or 'revert' must be given");
    if (given->changes && bson_count_keys(given->changes) > TRUCE_BULK_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error, "'changes' has at most %d of them",
                             TRUCE_BULK_MAX);
    if (!given->merge && (given->prefer || given->rules))
        return truce__refuse(CODE_INVALID_OPTIONS, error, "'prefer' and 'rules' belong to 'merge'");
    if (given->merge && !given->base)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'merge' needs the 'base': what others have published since it");
    return TRUCE_OK;
}

static truce_status read_base(struct publishing *publishing, const char *base, bson_error_t *error)
{
    truce_tree_at at = {.token = base};
    truce_tree_snapshot *snapshot;
    truce_status status;

    publishing->based = base != NULL;
    if (!base || !strcmp(base, "new"))
        return TRUCE_OK;
    status = truce_tree_open(publishing->tree, &at, &snapshot, error);
    if (!status)
        publishing->base = truce_tree_version(snapshot);
    truce_tree_close(snapshot);
    return status;
}

static truce_status tree_add_change(struct call *call, truce_tree_edit *edit, const bson_iter_t *at,
                                    bson_error_t *error)
{
    bson_iter_t change;
    bool is_put;

    if (!BSON_ITER_HOLDS_DOCUMENT(at) || !bson_iter_recurse(at, &change) ||
        !bson_iter_next(&change))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "change %s: must be {put: ITEM} or {remove: itemId}",
                             bson_iter_key(at));
    is_put = !strcmp(bson_iter_key(&change), "put");
    if (!is_put && strcmp(bson_iter_key(&change), "remove") != 0)
        return truce__refuse(40415, error, "change %s: has 'put' or 'remove', and not '%.80s'",
                             bson_iter_key(at), bson_iter_key(&change));
    if (is_put && !BSON_ITER_HOLDS_DOCUMENT(&change))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "change %s: an item must be a document",
                             bson_iter_key(at));
    if (is_put) {
        const bson_t *item = call_view_of(call, &change);

        if (bson_iter_next(&change))
            return truce__refuse(40415, error, "change %s: has 'put' and '%.80s'",
                                 bson_iter_key(at), bson_iter_key(&change));
        return truce_tree_put(edit, item, error);
    }
    return truce_tree_remove(edit, bson_iter_value(&change), error);
}

static truce_status tree_add_changes(struct call *call, struct publishing *publishing,
                                     const struct publish_given *given, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (given->revert)
        return truce_tree_revert(publishing->edit, given->revert, error);
    (void)bson_iter_init(&at, given->changes);
    while (!status && bson_iter_next(&at))
        status = tree_add_change(call, publishing->edit, &at, error);
    return status;
}

/* Merges, as often as others are first. */
static truce_status pattern_tree_publish(struct publishing *publishing,
                                         const struct publish_given *given,
                                         const truce_tree_rebase_options *how, bson_error_t *error)
{
    uint32_t conflicts = 0;
    truce_status status = truce_tree_publish(publishing->edit, NULL, &publishing->published, error);

    while (status == TRUCE_CONFLICT && given->merge && !conflicts) {
        status = truce_tree_rebase(publishing->edit, how, &conflicts, error);
        if (!status)
            status = truce_tree_publish(publishing->edit, NULL, &publishing->published, error);
    }
    publishing->conflict = status == TRUCE_CONFLICT;
    return publishing->conflict ? TRUCE_OK : status;
}

static truce_status run_edit(struct call *call, struct publishing *publishing,
                             const struct publish_given *given, bson_error_t *error)
{
    const truce_tree_edit_options options = {.base = publishing->base,
                                             .message = given->message,
                                             .author = given->author,
                                             .id = given->id};
    truce_tree_rebase_options how = {
        .rules = given->rules, .conflict = pattern_conflict_add, .arg = &publishing->rows};
    truce_status status = pattern_prefer(given->prefer, &how.prefer, error);

    if (!status)
        status = truce_tree_begin(publishing->tree, &options, &publishing->edit, error);
    if (status)
        return status;
    publishing->stale =
        publishing->based && truce_tree_edit_base(publishing->edit) != publishing->base;
    if (!publishing->stale)
        status = tree_add_changes(call, publishing, given, error);
    if (!status)
        status = pattern_tree_publish(publishing, given, &how, error);
    if (publishing->stale && !status && publishing->published.nothing)
        publishing->conflict = true;
    if (status || publishing->conflict)
        (void)!truce_tree_abandon(publishing->edit, NULL); /* else the sweep gives it up */
    return status;
}

/* {version, token}; without the token, if the version is collected by now. */
static void append_version(truce_tree *tree, int64_t version, bson_t *reply)
{
    truce_tree_at at = {.version = version};
    truce_tree_snapshot *snapshot;
    bson_error_t nobody;

    if (truce_tree_open(tree, &at, &snapshot, &nobody)) {
        BSON_APPEND_INT64(reply, "version", version);
        return;
    }
    BCON_APPEND(reply, "version", BCON_INT64(truce_tree_version(snapshot)), "token",
                BCON_UTF8(truce_tree_snapshot_token(snapshot)));
    truce_tree_close(snapshot);
}

static truce_status pattern_tree_run_publish(struct call *call, const void *arg, bson_t *reply,
                                             bson_error_t *error)
{
    const struct publish_given *given = arg;
    struct publishing publishing = {.rows = {BSON_INITIALIZER, .room = TREE_ANSWER_ROWS}};
    truce_status status = check_publish(given, error);

    if (!status)
        status = pattern_tree_take(call, given->collection, true, given->parent, &publishing.tree,
                                   error);
    if (!status)
        status = read_base(&publishing, given->base, error);
    if (!status)
        status = run_edit(call, &publishing, given, error);
    if (!status) {
        BSON_APPEND_UTF8(reply, "outcome",
                         publishing.conflict            ? "conflict"
                         : publishing.published.exists  ? "exists"
                         : publishing.published.nothing ? "nothing"
                                                        : "published");
        append_version(publishing.tree, publishing.conflict ? 0 : publishing.published.version,
                       reply);
    }
    if (!status && publishing.conflict)
        pattern_rows_append(&publishing.rows, status, "conflicts", reply);
    else
        bson_destroy(&publishing.rows.array);
    truce_tree_edit_free(publishing.edit);
    truce_tree_free(publishing.tree);
    return status;
}

static const struct pattern publish_pattern = {
    PATTERN("truceTreePublish", WRITES,
            "publishes changes of many items as the next version of a tree, all at one instant"),
    .value = "the tree",
    .answer =
        "`outcome`: \"published\", \"exists\" (it was, under this id), \"nothing\" (there was "
        "nothing to change) or \"conflict\" (others have published since the base; nothing was "
        "published); `version` and `token` of what was published, or stands now; of a conflict "
        "`conflicts`, with merge: each {itemId, base, mine, theirs, paths}, and `more`. An error: "
        "2 (invalid) an orphan or a circle, a bad item; 125 (expired) the base is collected; 125 "
        "(not found) the base is another tree's",
    .fields = publish_fields,
    .size = sizeof(struct publish_given),
    .run = pattern_tree_run_publish,
    .ways = PATTERN_STRICT | PATTERN_TRANSACTS,
    .example =
        "{truceTreePublish: 'site', collection: 'pages', parent: 'up', changes: [{put: {itemId: "
        "'home', title: 'Home'}}, {put: {itemId: 'about', up: 'home', title: 'About'}}], id: {$oid: "
        "'0123456789abcdef01234567'}, message: 'the first pages'}",
};

/* ---- truceTreeRead ----------------------------------------------------------------------------- */

struct read_given {
    const bson_value_t *id, *after;
    const bson_t *filter, *sort;
    const char *tag, *token;
    int64_t limit, skip, version, timeMS;
};

#define AT_FIELDS(given)                                                                           \
    {GIVEN(given, token, FIELD_TEXT), "of that version, as an answer gave it"},                    \
        {GIVEN(given, version, FIELD_NUMBER), "or by its number", 1, INT64_MAX},                   \
        {GIVEN(given, timeMS, FIELD_NUMBER), "or what was current then, ms since 1970", 1,         \
         INT64_C(1) << 48},                                                                        \
    {                                                                                              \
        GIVEN(given, tag, FIELD_TEXT), "or by a tag; none of them: the current one"                \
    }

static const struct pattern_field read_fields[] = {
    {GIVEN(read_given, id, FIELD_VALUE), "only the item of this itemId"},
    {GIVEN(read_given, filter, FIELD_DOCUMENT), "only items that match"},
    {GIVEN(read_given, sort, FIELD_DOCUMENT), "{field: 1}; absent: by itemId"},
    {GIVEN(read_given, limit, FIELD_NUMBER), "at most so many; absent: 100", 1, TREE_ANSWER_ROWS},
    {GIVEN(read_given, after, FIELD_VALUE), "goes on behind this itemId"},
    {GIVEN(read_given, skip, FIELD_NUMBER), "with sort: goes on behind so many", 0, INT32_MAX},
    AT_FIELDS(read_given),
    {{0}}};

static bool add_item(const bson_t *item, void *arg)
{
    struct tree_rows *rows = arg;
    bson_t row;

    if (pattern_rows_begin(rows, item->len, &row)) {
        bson_concat(&row, item);
        pattern_rows_end(rows, &row);
    }
    return !rows->more;
}

/* The classes of values that come after that of an itemId, in their order. */
static const char *const *later_classes(const bson_value_t *id)
{
    static const char *const classes[] = {"number", "string", "binData", "objectId",
                                          "bool",   "date",   NULL};

    switch (id->value_type) {
    case BSON_TYPE_UTF8:
        return &classes[2];
    case BSON_TYPE_BINARY:
        return &classes[3];
    case BSON_TYPE_OID:
        return &classes[4];
    case BSON_TYPE_BOOL:
        return &classes[5];
    case BSON_TYPE_DATE_TIME:
        return &classes[6];
    default:
        return &classes[1];
    }
}

/* Items whose itemId is so, and that match. */
static truce_status find_of(truce_tree_snapshot *snapshot, const struct read_given *given,
                            const bson_t *id, truce_tree_find_options *options,
                            struct tree_rows *rows, bson_error_t *error)
{
    static const bson_t all = BSON_INITIALIZER;
    bson_t *filter = BCON_NEW("itemId", BCON_DOCUMENT(id), "$and", "[",
                              BCON_DOCUMENT(given->filter ? given->filter : &all), "]");
    truce_status status = truce_tree_find(snapshot, filter, options, add_item, rows, error);

    bson_destroy(filter);
    return status;
}

/* $gt finds values of the same class only: so those, then all later classes. */
static truce_status find_after(truce_tree_snapshot *snapshot, const struct read_given *given,
                               truce_tree_find_options *options, struct tree_rows *rows,
                               bson_error_t *error)
{
    const char *const *later = later_classes(given->after);
    bson_t id = BSON_INITIALIZER, array;
    truce_status status;

    BSON_APPEND_VALUE(&id, "$gt", given->after);
    status = find_of(snapshot, given, &id, options, rows, error);
    if (!status && !rows->more && *later) {
        bson_reinit(&id);
        BSON_APPEND_ARRAY_BEGIN(&id, "$type", &array);
        for (uint32_t i = 0; later[i]; i++) {
            char key[2] = {(char)('0' + i), 0};

            BSON_APPEND_UTF8(&array, key, later[i]);
        }
        bson_append_array_end(&id, &array);
        status = find_of(snapshot, given, &id, options, rows, error);
    }
    bson_destroy(&id);
    return status;
}

/* Ties stand in the order of their itemIds, so that every page of them is of one order. */
static void sort_ties(const bson_t *given, bson_t *sort)
{
    if (given)
        bson_concat(sort, given);
    if (!bson_has_field(sort, "itemId"))
        BSON_APPEND_INT32(sort, "itemId", 1);
}

static truce_status find_items(truce_tree_snapshot *snapshot, const struct read_given *given,
                               bson_t *reply, bson_error_t *error)
{
    struct tree_rows rows = {BSON_INITIALIZER, .passed = given->skip,
                             .room = given->limit ? given->limit : 100};
    bson_t sort = BSON_INITIALIZER;
    truce_tree_find_options options = {.sort = &sort};
    truce_status status;

    sort_ties(given->sort, &sort);
    if (given->after)
        status = find_after(snapshot, given, &options, &rows, error);
    else
        status =
            truce_tree_find(snapshot, given->filter, given->filter || given->sort ? &options : NULL,
                            add_item, &rows, error);
    pattern_rows_append(&rows, status, "items", reply);
    bson_destroy(&sort);
    return status;
}

static truce_status find_item(truce_tree_snapshot *snapshot, const struct read_given *given,
                              bson_t *reply, bson_error_t *error)
{
    bson_t item;
    truce_status status = truce_tree_get(snapshot, given->id, &item, error);

    if (!status)
        BSON_APPEND_DOCUMENT(reply, "item", &item);
    bson_destroy(&item);
    return status;
}

static truce_status check_read(const struct read_given *given, bson_error_t *error)
{
    if (given->id && (given->filter || given->sort || given->limit || given->after || given->skip))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "with 'id' there is no 'filter', 'sort', 'limit', 'after' or 'skip'");
    if (given->sort && given->after)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'after' is an itemId; with 'sort' one goes on by 'skip'");
    if (given->skip && !given->sort)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'skip' belongs to 'sort'; else one goes on by 'after'");
    return TRUCE_OK;
}

static truce_status tree_run_read(struct call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct read_given *given = arg;
    const truce_tree_at at = {.version = given->version,
                              .time_ms = given->timeMS,
                              .tag = given->tag,
                              .token = given->token};
    truce_tree_snapshot *snapshot = NULL;
    truce_tree *tree = NULL;
    truce_status status = check_read(given, error);

    if (!status)
        status = pattern_tree_take(call, NULL, false, NULL, &tree, error);
    if (!status)
        status = truce_tree_open(tree, &at, &snapshot, error);
    if (!status) {
        BCON_APPEND(reply, "version", BCON_INT64(truce_tree_version(snapshot)), "token",
                    BCON_UTF8(truce_tree_snapshot_token(snapshot)));
        status = given->id ? find_item(snapshot, given, reply, error)
                           : find_items(snapshot, given, reply, error);
    }
    truce_tree_close(snapshot);
    truce_tree_free(tree);
    return status;
}

static const struct pattern read_pattern = {
    PATTERN("truceTreeRead", READS, "one item of a tree, or many, of one version"),
    .value = "the tree",
    .answer =
        "`version` and its `token`, with which all further reads are of this version, whatever is "
        "published meanwhile; `item`, or `items` and `more`: go on with `after` the last itemId (or "
        "`skip`) and the `token`. \"not found\": no such tree, version, tag or item (of which "
        "`token` tells). An error: 125 (expired) the version is collected; a tag keeps it "
        "(truceTree)",
    .fields = read_fields,
    .size = sizeof(struct read_given),
    .run = tree_run_read,
    .ways = PATTERN_AGAIN | PATTERN_TRANSACTS,
    .example = "{truceTreeRead: 'site', filter: {up: 'home'}, limit: 50}",
};

const struct pattern *const tree_patterns[] = {&publish_pattern,   &read_pattern, &tree_log_pattern,
                                               &tree_diff_pattern, &tree_pattern, NULL};
