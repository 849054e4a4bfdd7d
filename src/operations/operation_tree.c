/*
 * Trees of versions: publish, read, log, diff, tags, and branches.
 *
 * Replies have pages. A row that exceeds the page sets `more`, and the next request continues with
 * `after`. A `token` names the version that is read, so that all pages are of the same version.
 *
 * truceTreePublish begins an edit, adds the changes, and publishes them as one version. If another
 * edit was published first, it merges (`merge`) and tries again, or reports a conflict. As a part
 * of a commit, it fails instead, and the commit runs again from the newest version.
 */
#include <string.h>

#include "base/field.h"
#include "bson/refuse_value.h"
#include "bson/value.h"
#include "merge/merge.h"
#include "operations/operation_tree.h"
#include "patterns/tree/tree.h"
#include "store/reserved_names.h"

/* The maximum number of items, changes, or versions in one reply, and their maximum size. */
#define TREE_ANSWER_ROWS  1000
#define TREE_ANSWER_BYTES (8 * 1024 * 1024)
/* The maximum number of changes in a publication. */
#define TREE_CHANGES_MAX 1000000

/* The rows of a reply. */
struct tree_rows {
    bson_t array;
    /* The number of rows to skip first. */
    int64_t passed;
    /* The number of rows that may still be added. */
    int64_t room;
    uint32_t count;
    /* Further rows exist that have no room. */
    bool more;
};

/* The words, in the order of truce_tree_prefer, without the first value. */
static const char *const tree_sides[] = {"mine", "theirs", NULL};

/* Returns the side that the word names, or TRUCE_TREE_ASK if `word` is NULL. */
static truce_tree_prefer tree_prefer(const char *word)
{
    return word ? (truce_tree_prefer)(truce__operation_choice(word, tree_sides) + 1)
                : TRUCE_TREE_ASK;
}

/* Refuses invalid rules also if nothing has to be merged now. */
static truce_status tree_check_rules(const bson_t *rules, bson_error_t *error)
{
    struct merge_rules *parsed;
    truce_status status = truce__merge_rules_new(rules, &parsed, error);

    if (!status)
        truce__merge_rules_free(parsed);
    return status;
}

extern const struct operation_row tree_log_operation, tree_diff_operation, tree_operation;

/* ---- truceTreeLog ---------------------------------------------------------------------------- */

struct log_given {
    int64_t limit, before;
};

static const struct operation_field log_fields[] = {
    {GIVEN(log_given, limit, FIELD_NUMBER), "the maximum number; absent: 100", 1, TREE_ANSWER_ROWS},
    {GIVEN(log_given, before, FIELD_NUMBER), "only versions before this one", 1, INT64_MAX},
    {{0}}};

struct logging {
    struct tree_rows rows;
    int64_t before;
};

static bool operation_rows_begin(struct tree_rows *rows, size_t size, bson_t *row);
static void operation_rows_end(struct tree_rows *rows, bson_t *row);
static void operation_rows_append(struct tree_rows *rows, truce_status status, const char *name,
                                  bson_t *reply);
static void operation_conflict_add(const truce_tree_conflict *conflict, void *arg);

static bool add_version(const bson_t *entry, void *arg)
{
    struct logging *logging = arg;
    bson_t row;

    if (logging->before && truce__field_number(entry, "version") >= logging->before)
        return true;
    if (operation_rows_begin(&logging->rows, entry->len, &row)) {
        bson_concat(&row, entry);
        operation_rows_end(&logging->rows, &row);
    }
    return !logging->rows.more;
}

static truce_status operation_tree_log_run_log(struct operation_call *call, const void *arg,
                                               bson_t *reply, bson_error_t *error)
{
    const struct log_given *given = arg;
    struct logging logging = {.rows = {BSON_INITIALIZER, .room = given->limit ? given->limit : 100},
                              .before = given->before};
    truce_tree *tree;
    truce_status status = truce__operation_tree(call, NULL, false, NULL, &tree, error);

    if (!status)
        status = truce_tree_log(tree, 0, add_version, &logging, error);
    operation_rows_append(&logging.rows, status, "versions", reply);
    truce_tree_free(tree);
    return status;
}

const struct operation_row tree_log_operation = {
    OPERATION("truceTreeLog", ROLE_READ, "lists the kept versions of a tree, the newest first"),
    .target = "tree",
    .value = "the tree",
    .answer =
        "`versions`: each {version, at, message, author, token}, where `token` is that of the "
        "edit; and `more`: continue with `before` the last version. \"not found\": no such tree "
        "exists",
    .fields = log_fields,
    .size = sizeof(struct log_given),
    .run = operation_tree_log_run_log,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceTreeLog: 'site', limit: 20}",
};

/* ---- truceTreeDiff --------------------------------------------------------------------------- */

struct diff_given {
    int64_t from, to, limit;
    const bson_value_t *after;
    bool contents;
};

static const struct operation_field diff_fields[] = {
    {GIVEN(diff_given, from, FIELD_NUMBER), "a version; 0: the empty tree", 0, INT64_MAX,
     .needed = true},
    {GIVEN(diff_given, to, FIELD_NUMBER), "another version", 0, INT64_MAX, .needed = true},
    {GIVEN(diff_given, contents, FIELD_FLAG), "returns the contents `before` and `after`, too"},
    {GIVEN(diff_given, limit, FIELD_NUMBER), "the maximum number; absent: 100", 1,
     TREE_ANSWER_ROWS},
    {GIVEN(diff_given, after, FIELD_VALUE), "only items after this itemId"},
    {{0}}};

struct diffing {
    struct tree_rows rows;
    /* {v: itemId} of the option `after`, or empty. */
    bson_t after;
    bool contents;
};

static bool operation_tree_log_is_after(const struct diffing *diffing, const bson_value_t *id)
{
    bson_t holder = BSON_INITIALIZER;
    bool is;

    if (bson_empty(&diffing->after))
        return true;
    BSON_APPEND_VALUE(&holder, "v", id);
    is = truce__value_compare(truce__value_field(truce__value_document(&holder), "v", 1),
                              truce__value_field(truce__value_document(&diffing->after), "v", 1)) >
         0;
    bson_destroy(&holder);
    return is;
}

/* Adds a changed item to the reply. Returns false, which ends the walk, if the reply is full. */
static bool add_difference(const truce_tree_change *change, void *arg)
{
    struct diffing *diffing = arg;
    size_t size =
        (change->before ? change->before->len : 0) + (change->after ? change->after->len : 0);
    bson_t row;

    if (!operation_tree_log_is_after(diffing, change->item))
        return true;
    if (operation_rows_begin(&diffing->rows, diffing->contents ? size : 100, &row)) {
        BSON_APPEND_VALUE(&row, "itemId", change->item);
        BSON_APPEND_UTF8(&row, "change",
                         !change->before  ? "added"
                         : !change->after ? "removed"
                                          : "changed");
        if (diffing->contents && change->before)
            BSON_APPEND_DOCUMENT(&row, "before", change->before);
        if (diffing->contents && change->after)
            BSON_APPEND_DOCUMENT(&row, "after", change->after);
        operation_rows_end(&diffing->rows, &row);
    }
    return !diffing->rows.more;
}

static truce_status operation_tree_log_run_diff(struct operation_call *call, const void *arg,
                                                bson_t *reply, bson_error_t *error)
{
    const struct diff_given *given = arg;
    struct diffing diffing = {.rows = {BSON_INITIALIZER, .room = given->limit ? given->limit : 100},
                              .after = BSON_INITIALIZER,
                              .contents = given->contents};
    truce_tree *tree = NULL;
    truce_status status =
        given->after ? truce__operation_item_id(given->after, "after", error) : TRUCE_OK;

    if (!status)
        status = truce__operation_tree(call, NULL, false, NULL, &tree, error);
    if (given->after)
        BSON_APPEND_VALUE(&diffing.after, "v", given->after);
    if (!status)
        status = truce_tree_diff(tree, given->from, given->to, add_difference, &diffing, error);
    operation_rows_append(&diffing.rows, status, "changes", reply);
    bson_destroy(&diffing.after);
    truce_tree_free(tree);
    return status;
}

const struct operation_row tree_diff_operation = {
    OPERATION("truceTreeDiff", ROLE_READ, "returns the differences of two versions of a tree"),
    .target = "tree",
    .value = "the tree",
    .answer =
        "`changes`, by itemId: each {itemId, change, before, after}, where `change` is \"added\", "
        "\"removed\", or \"changed\"; and `more`: continue with `after` the last itemId. \"not "
        "found\": no such tree or version exists. An error: 125 (expired) a version was collected",
    .fields = diff_fields,
    .size = sizeof(struct diff_given),
    .run = operation_tree_log_run_diff,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceTreeDiff: 'site', from: 0, to: 1}",
};

/* ---- truceTree ------------------------------------------------------------------------------- */

struct tree_given {
    const char *tag, *untag, *branch, *merge, *prefer, *message, *author;
    const bson_value_t *erase;
    const bson_t *keep, *rules;
    int64_t version;
    bool collect, drop;
};

static const struct operation_field tree_fields[] = {
    {GIVEN(tree_given, tag, FIELD_TEXT),
     "names the `version`, which is kept until the tag is removed"},
    {GIVEN(tree_given, untag, FIELD_TEXT), "removes this tag"},
    {GIVEN(tree_given, keep, FIELD_DOCUMENT),
     "the retention, {versions: 20, ageMS: 86400000}; {}: all versions are kept"},
    {GIVEN(tree_given, branch, FIELD_TEXT),
     "creates a tree of this name, which begins as the `version`"},
    {GIVEN(tree_given, merge, FIELD_TEXT),
     "publishes in this tree the changes of that branch or origin"},
    {GIVEN(tree_given, erase, FIELD_VALUE),
     "erases the contents of this item from all versions, permanently"},
    {GIVEN(tree_given, collect, FIELD_FLAG), "removes items that no reader can see"},
    {GIVEN(tree_given, drop, FIELD_FLAG), "drops the tree with all its versions"},
    {GIVEN(tree_given, version, FIELD_NUMBER),
     "with tag and branch: the version; absent: the current one", 1, INT64_MAX},
    {GIVEN(tree_given, prefer, FIELD_TEXT),
     "with merge: the side that wins where both changed the same path; absent: a conflict",
     .words = tree_sides},
    {GIVEN(tree_given, rules, FIELD_DOCUMENT), "with merge: policies by path"},
    {GIVEN(tree_given, message, FIELD_TEXT), "with merge: the message for the log"},
    {GIVEN(tree_given, author, FIELD_TEXT), "with merge: the author for the log"},
    {{0}}};

/* Refuses more than one action, and options that the chosen action does not use. */
static truce_status operation_tree_log_check_tree(const struct tree_given *given, int actions,
                                                  bson_error_t *error)
{
    bool merges = given->prefer || given->rules || given->message || given->author;

    if (actions > 1)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "the request has %d actions: give only one of 'tag', 'untag', 'keep', 'branch', "
            "'merge', 'erase', 'collect', and 'drop'",
            actions);
    if (given->version && !given->tag && !given->branch)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'version' is allowed only with 'tag' or 'branch'");
    if (merges && !given->merge)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'prefer', 'rules', 'message', and 'author' are allowed only with 'merge'");
    if (given->erase)
        return truce__operation_item_id(given->erase, "erase", error);
    return tree_check_rules(given->rules, error);
}

struct keep_given {
    int64_t versions, ageMS;
};

/* Sets the retention of the tree: {versions, ageMS}. */
static truce_status operation_tree_log_keep(struct operation_call *call, truce_tree *tree,
                                            const bson_t *given, bson_error_t *error)
{
    static const struct operation_field fields[] = {
        {GIVEN(keep_given, versions, FIELD_NUMBER), "the number of versions", 1, INT64_MAX},
        {GIVEN(keep_given, ageMS, FIELD_DURATION), "their age in milliseconds", 1, DURATION_MAX_MS},
        {{0}}};
    struct keep_given read = {0};
    truce_status status = truce__operation_nested(call, given, fields, &read, error);

    return status ? status
                  : truce_tree_retain(
                        tree, &(truce_tree_keep){.versions = read.versions, .age_ms = read.ageMS},
                        error);
}

/* Merges the branch or origin. A conflict of items is a result in the reply, not a failure. */
static truce_status operation_tree_log_merge(truce_tree *tree, const struct tree_given *given,
                                             bson_t *reply, bson_error_t *error)
{
    struct tree_rows rows = {BSON_INITIALIZER, .room = TREE_ANSWER_ROWS};
    truce_tree_merge_options options = {.how = {.rules = given->rules,
                                                .prefer = tree_prefer(given->prefer),
                                                .conflict = operation_conflict_add,
                                                .arg = &rows},
                                        .message = given->message,
                                        .author = given->author};
    truce_tree_published published = {0};
    uint32_t conflicts = 0;
    truce_status status =
        truce_tree_merge(tree, given->merge, &options, &published, &conflicts, error);

    if (status == TRUCE_CONFLICT && conflicts) {
        status = TRUCE_OK;
        BSON_APPEND_UTF8(reply, "outcome", "conflict");
        BSON_APPEND_UTF8(reply, "reason", error->message);
        operation_rows_append(&rows, status, "conflicts", reply);
        return TRUCE_OK;
    }
    bson_destroy(&rows.array);
    if (!status)
        BCON_APPEND(reply, "outcome", BCON_UTF8(published.nothing ? "nothing" : "published"),
                    "version", BCON_INT64(published.version));
    return status;
}

/* Removes all items that no reader can see. */
static truce_status operation_tree_log_collect(truce_tree *tree, bson_t *reply, bson_error_t *error)
{
    truce_tree_collected round = {.more = true};
    int64_t settled = 0, items = 0, edits = 0;
    truce_status status = TRUCE_OK;

    while (!status && round.more) {
        status = truce_tree_collect(tree, &round, error);
        settled += round.settled;
        items += round.items;
        edits += round.edits;
    }
    if (!status)
        BCON_APPEND(reply, "settled", BCON_INT64(settled), "removed", BCON_INT64(items), "edits",
                    BCON_INT64(edits));
    return status;
}

static truce_status operation_tree_log_status(truce_tree *tree, bson_t *reply, bson_error_t *error)
{
    bson_t facts;
    truce_status status = truce_tree_status(tree, &facts, error);

    if (!status)
        bson_concat(reply, &facts);
    bson_destroy(&facts);
    return status;
}

static truce_status tree_erase_item(truce_tree *tree, const bson_value_t *id, bson_t *reply,
                                    bson_error_t *error)
{
    int64_t versions = 0;
    truce_status status = truce_tree_erase(tree, id, &versions, error);

    if (!status)
        BSON_APPEND_INT64(reply, "versions", versions);
    return status;
}

/* Runs the action of the request. Without an action, replies with the status of the tree. */
static truce_status operation_tree_log_act(struct operation_call *call, truce_tree *tree,
                                           const struct tree_given *given, bson_t *reply,
                                           bson_error_t *error)
{
    const truce_tree_at at = {.version = given->version};

    if (given->tag)
        return truce_tree_tag(tree, given->tag, given->version, error);
    if (given->untag)
        return truce_tree_untag(tree, given->untag, error);
    if (given->keep)
        return operation_tree_log_keep(call, tree, given->keep, error);
    if (given->merge)
        return operation_tree_log_merge(tree, given, reply, error);
    if (given->erase)
        return tree_erase_item(tree, given->erase, reply, error);
    if (given->collect)
        return operation_tree_log_collect(tree, reply, error);
    if (given->drop)
        return truce_tree_drop(tree, error);
    if (!given->branch)
        return operation_tree_log_status(tree, reply, error);
    return truce_tree_branch(tree, &at, given->branch, error);
}

static truce_status run_tree(struct operation_call *call, const void *arg, bson_t *reply,
                             bson_error_t *error)
{
    const struct tree_given *given = arg;
    int actions = !!given->tag + !!given->untag + !!given->keep + !!given->branch + !!given->merge +
                  !!given->erase + given->collect + given->drop;
    truce_tree *tree = NULL;
    truce_status status = operation_tree_log_check_tree(given, actions, error);

    if (!status && actions)
        status = call->host->check_role(call, ROLE_WRITE, error);
    if (!status)
        status = truce__operation_tree(call, NULL, actions > 0, NULL, &tree, error);
    if (!status)
        status = operation_tree_log_act(call, tree, given, reply, error);
    truce_tree_free(tree);
    return status;
}

const struct operation_row tree_operation = {
    OPERATION("truceTree", ROLE_READ,
              "returns the status of a tree; or tags a version, sets the retention, branches, "
              "merges, erases, or drops"),
    .target = "tree",
    .value = "the tree",
    .answer = "without an action {tree, collection, parent, current, settled, kept, at, keep, "
              "tags, from, branches, readers, edits}. With merge, `outcome`: \"published\", "
              "\"nothing\", or \"conflict\", with `version`, or `conflicts` and a `reason`. With "
              "erase, `versions`. With collect, `settled`, `removed`, and `edits`. \"not found\": "
              "no such tree, version, or tag exists. An error: 11000 (duplicate) a tree has the "
              "name of the branch; 125 (expired) the version was collected; 2 (invalid) the tree "
              "has branches, or is neither branch nor origin",
    .fields = tree_fields,
    .size = sizeof(struct tree_given),
    .run = run_tree,
    .ways = OPERATION_WRITES,
    .example = "{truceTree: 'site', tag: 'launch'}",
};

/* ---- the tree, and the rows of a reply ------------------------------------------------------- */

truce_status truce__operation_tree(struct operation_call *call, const char *collection, bool writes,
                                   const char *parent, truce_tree **tree, bson_error_t *error)
{
    truce_tree_options options = {.parent = parent, .deadline_ms = call->deadline_ms};
    truce_status status = truce__operation_text(call, &options.name, error);

    *tree = NULL;
    options.collection = collection;
    if (!status && collection)
        status = truce__operation_collection(call, collection, writes, error);
    if (!status)
        *tree = truce_tree_new(call->store, &options);
    return status;
}

/* Begins a row of about `size` bytes; operation_rows_end ends it. Returns false if the row is not
 * part of the reply. */
static bool operation_rows_begin(struct tree_rows *rows, size_t size, bson_t *row)
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

static void operation_rows_end(struct tree_rows *rows, bson_t *row)
{
    bson_append_document_end(&rows->array, row);
}

/* Appends {name: [...], more} to the reply, and frees the rows. */
static void operation_rows_append(struct tree_rows *rows, truce_status status, const char *name,
                                  bson_t *reply)
{
    if (!status) {
        BSON_APPEND_ARRAY(reply, name, &rows->array);
        BSON_APPEND_BOOL(reply, "more", rows->more);
    }
    bson_destroy(&rows->array);
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

/* Appends a row {itemId, base, mine, theirs, paths} to the rows, which are `arg`. */
static void operation_conflict_add(const truce_tree_conflict *conflict, void *arg)
{
    struct tree_rows *rows = arg;
    bson_t row;

    if (!operation_rows_begin(rows,
                              tree_size_of(conflict->base) + tree_size_of(conflict->mine) +
                                  tree_size_of(conflict->theirs),
                              &row))
        return;
    BSON_APPEND_VALUE(&row, "itemId", conflict->item);
    tree_append_side(&row, "base", conflict->base);
    tree_append_side(&row, "mine", conflict->mine);
    tree_append_side(&row, "theirs", conflict->theirs);
    BSON_APPEND_ARRAY(&row, "paths", conflict->paths);
    operation_rows_end(rows, &row);
}

/* ---- truceTreePublish ------------------------------------------------------------------------ */

struct publish_given {
    const char *collection, *parent, *base, *message, *author, *prefer;
    const bson_t *changes, *rules;
    const bson_oid_t *id;
    int64_t revert;
    bool merge;
};

static const struct operation_field publish_fields[] = {
    {GIVEN(publish_given, changes, FIELD_ARRAY),
     "up to 1,000,000, each {put: ITEM}, a whole item with its itemId, or {remove: itemId}"},
    {GIVEN(publish_given, revert, FIELD_NUMBER),
     "instead: the contents of the tree in this version", 1, INT64_MAX},
    {GIVEN(publish_given, base, FIELD_TEXT), "the token of the version that was read and changed; "
                                             "\"new\": the tree has no version yet; absent: the "
                                             "current version"},
    {GIVEN(publish_given, id, FIELD_OID),
     "the id of this publication: sent again with the same base, it is published once"},
    {GIVEN(publish_given, merge, FIELD_FLAG),
     "merges with other publications since the base, item by item; without a base: with those "
     "during the call"},
    {GIVEN(publish_given, prefer, FIELD_TEXT),
     "with merge: the side that wins if both changed the same; absent: a conflict",
     .words = tree_sides},
    {GIVEN(publish_given, rules, FIELD_DOCUMENT),
     "with merge: policies by path, as in truceRevision"},
    {GIVEN(publish_given, message, FIELD_TEXT), "the message for the log"},
    {GIVEN(publish_given, author, FIELD_TEXT), "the author for the log"},
    {GIVEN(publish_given, collection, FIELD_TEXT),
     "the collection of the items; needed for the first publication"},
    {GIVEN(publish_given, parent, FIELD_TEXT),
     "the field of an item with the itemId of its parent: orphans and cycles are refused; set by "
     "the first publication"},
    {{0}}};

struct publishing {
    truce_tree *tree;
    truce_tree_edit *edit;
    truce_tree_published published;
    /* The version of the base. */
    int64_t base;
    /* A base was given. */
    bool based;
    /* The base was the empty tree, but the tree is no longer empty. */
    bool stale;
    /* Nothing was published. */
    bool conflict;
    /* The items that could not be merged. */
    struct tree_rows rows;
};

static truce_status check_publish(const struct publish_given *given, bson_error_t *error)
{
    if (!given->changes == !given->revert)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "give one of 'changes' and 'revert'");
    if (given->changes && bson_count_keys(given->changes) > TREE_CHANGES_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'changes' may have at most %d elements, and has %u", TREE_CHANGES_MAX,
                             bson_count_keys(given->changes));
    if (!given->merge && (given->prefer || given->rules))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'prefer' and 'rules' are allowed only with 'merge'");
    return tree_check_rules(given->rules, error);
}

/* Reads the version of the base by its token. The token "new" means the empty tree. Without a base,
 * the edit has the current version as its base. */
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

/* Adds a change {put: ITEM} or {remove: itemId} to the edit. */
static truce_status tree_add_change(struct operation_call *call, truce_tree_edit *edit,
                                    const bson_iter_t *at, bson_error_t *error)
{
    bson_iter_t change, more;
    bool is_put;

    if (!BSON_ITER_HOLDS_DOCUMENT(at) || !bson_iter_recurse(at, &change) ||
        !bson_iter_next(&change))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(at), error,
                                   "must be {put: ITEM} or {remove: itemId}");
    is_put = !strcmp(bson_iter_key(&change), "put");
    if (!is_put && strcmp(bson_iter_key(&change), "remove") != 0)
        return truce__refuse(40415, error, "must have 'put' or 'remove', and has '%.80s'",
                             bson_iter_key(&change));
    if (is_put && !BSON_ITER_HOLDS_DOCUMENT(&change))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "the item of 'put' must be a document, not %s",
                             truce__type_name((uint8_t)bson_iter_type(&change)));
    more = change;
    if (bson_iter_next(&more))
        return truce__refuse(40415, error,
                             "must have one field, 'put' or 'remove', and also has '%.80s'",
                             bson_iter_key(&more));
    return is_put ? truce_tree_put(edit, truce__field_view(call->arena, &change), error)
                  : truce_tree_remove(edit, bson_iter_value(&change), error);
}

/* Adds the changes of the request to the edit, or those that revert a version. An error names the
 * number of the change, from 1. */
static truce_status tree_add_changes(struct operation_call *call, struct publishing *publishing,
                                     const struct publish_given *given, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    if (given->revert)
        return truce_tree_revert(publishing->edit, given->revert, error);
    (void)bson_iter_init(&at, given->changes);
    for (int64_t number = 1; !status && bson_iter_next(&at); number++) {
        status = tree_add_change(call, publishing->edit, &at, error);
        if (status)
            (void)truce__operation_element(status, "change", number, error);
    }
    return status;
}

/* Publishes the edit, and merges each time that another edit was published first. */
static truce_status operation_tree_publish(struct operation_call *call,
                                           struct publishing *publishing,
                                           const struct publish_given *given,
                                           const truce_tree_rebase_options *how,
                                           bson_error_t *error)
{
    uint32_t conflicts = 0;
    truce_status status =
        truce_tree_publish(publishing->edit, call->commit, &publishing->published, error);

    /* The transaction's snapshot never shows the version that another client has published. */
    if (call->transaction && status == TRUCE_CONFLICT && error->domain == TRUCE_ERROR_SERVER)
        return status;
    while (status == TRUCE_CONFLICT && given->merge && !conflicts) {
        status = truce_tree_rebase(publishing->edit, how, &conflicts, error);
        if (!status)
            status =
                truce_tree_publish(publishing->edit, call->commit, &publishing->published, error);
    }
    /* In a commit, the conflict makes the commit run again, from the newest version. */
    if (call->commit)
        return status;
    publishing->conflict = status == TRUCE_CONFLICT;
    return publishing->conflict ? TRUCE_OK : status;
}

/* Begins the edit, adds the changes, and publishes them. If the base is no longer current, fails
 * with REFUSED in a commit; otherwise sets publishing->conflict unless the edit was published
 * before under its id. */
static truce_status run_edit(struct operation_call *call, struct publishing *publishing,
                             const struct publish_given *given, bson_error_t *error)
{
    const truce_tree_edit_options options = {.base = publishing->base,
                                             .message = given->message,
                                             .author = given->author,
                                             .id = given->id};
    truce_tree_rebase_options how = {.rules = given->rules,
                                     .prefer = tree_prefer(given->prefer),
                                     .conflict = operation_conflict_add,
                                     .arg = &publishing->rows};
    truce_status status = truce_tree_begin(publishing->tree, &options, &publishing->edit, error);

    if (status)
        return status;
    publishing->stale =
        publishing->based && truce_tree_edit_base(publishing->edit) != publishing->base;
    if (publishing->stale && call->commit)
        return truce__fail(
            TRUCE_REFUSED, error,
            "the current version of the tree is %lld, but the change is based on %lld: read the "
            "tree again",
            (long long)truce_tree_edit_base(publishing->edit), (long long)publishing->base);
    if (!publishing->stale)
        status = tree_add_changes(call, publishing, given, error);
    if (!status)
        status = operation_tree_publish(call, publishing, given, &how, error);
    if (publishing->stale && !status && publishing->published.nothing) {
        publishing->conflict = true;
        (void)truce__fail(
            TRUCE_CONFLICT, error,
            "version %lld of tree \"%.120s\" is current, but the edit is based on version %lld",
            (long long)truce_tree_edit_base(publishing->edit), bson_iter_utf8(&call->target, NULL),
            (long long)publishing->base);
    }
    /* A failure is ignored: the recovery pass abandons the edit later. */
    if (status || publishing->conflict)
        (void)!truce_tree_abandon(publishing->edit, NULL);
    return status;
}

/* Appends {version, token}. If the version was collected in the meantime, the token is absent. */
static void append_version(truce_tree *tree, int64_t version, bson_t *reply)
{
    truce_tree_at at = {.version = version};
    truce_tree_snapshot *snapshot;
    bson_error_t ignored;

    if (truce_tree_open(tree, &at, &snapshot, &ignored)) {
        BSON_APPEND_INT64(reply, "version", version);
        return;
    }
    BCON_APPEND(reply, "version", BCON_INT64(truce_tree_version(snapshot)), "token",
                BCON_UTF8(truce_tree_snapshot_token(snapshot)));
    truce_tree_close(snapshot);
}

static void free_edit(void *edit)
{
    truce_tree_edit_free(edit);
}

static void free_tree(void *tree)
{
    truce_tree_free(tree);
}

static truce_status operation_tree_run_publish(struct operation_call *call, const void *arg,
                                               bson_t *reply, bson_error_t *error)
{
    const struct publish_given *given = arg;
    struct publishing publishing = {.rows = {BSON_INITIALIZER, .room = TREE_ANSWER_ROWS}};
    truce_status status = check_publish(given, error);

    if (!status)
        status = truce__operation_tree(call, given->collection, true, given->parent,
                                       &publishing.tree, error);
    if (!status)
        status = read_base(&publishing, given->base, error);
    if (!status)
        status = run_edit(call, &publishing, given, error);
    if (status == TRUCE_NOT_FOUND && !publishing.edit && !given->collection && !given->base)
        (void)truce__fail(status, error, "the tree \"%.120s\" does not exist%s",
                          bson_iter_utf8(&call->target, NULL),
                          given->revert ? ""
                                        : ": the first publication must name its 'collection'");
    if (!status && publishing.conflict)
        BSON_APPEND_UTF8(reply, "reason", call->host->message(call, error->message));
    if (!status) {
        BSON_APPEND_UTF8(reply, "outcome",
                         publishing.conflict            ? "conflict"
                         : publishing.published.exists  ? "exists"
                         : publishing.published.nothing ? "nothing"
                                                        : "published");
        if (call->commit)
            BSON_APPEND_INT64(reply, "version", publishing.published.version);
        else
            append_version(publishing.tree, publishing.conflict ? 0 : publishing.published.version,
                           reply);
    }
    if (!status && publishing.conflict)
        operation_rows_append(&publishing.rows, status, "conflicts", reply);
    else
        bson_destroy(&publishing.rows.array);
    truce__operation_end(call, free_edit, publishing.edit);
    truce__operation_end(call, free_tree, publishing.tree);
    return status;
}

static const struct operation_row publish_operation = {
    OPERATION("truceTreePublish", ROLE_WRITE,
              "publishes changes of many items as the next version of a tree, all at once"),
    .target = "tree",
    .value = "the tree",
    .answer = "`outcome`: \"published\", \"exists\" (published before under this id), \"nothing\" "
              "(no item changed), or \"conflict\" (another edit was published since the base; "
              "nothing was published). `version` and `token` of the published version, or of the "
              "current one. For a conflict, a `reason`, and with merge, `conflicts`: each {itemId, "
              "base, mine, theirs, paths}, and `more`. An error 2 (invalid): the tree would have "
              "an orphan or a cycle, or an item is wrong. 125 (expired): the base was collected. "
              "125 (not found): the base belongs to another tree",
    .fields = publish_fields,
    .size = sizeof(struct publish_given),
    .run = operation_tree_run_publish,
    .ways = OPERATION_COMMITS | OPERATION_STRICT | OPERATION_TRANSACTS,
    .example =
        "{truceTreePublish: 'site', collection: 'pages', parent: 'up', changes: [{put: {itemId: "
        "'home', title: 'Home'}}, {put: {itemId: 'about', up: 'home', title: 'About'}}], id: "
        "{$oid: '0123456789abcdef01234567'}, message: 'the first pages'}",
};

/* ---- truceTreeRead --------------------------------------------------------------------------- */

struct read_given {
    const bson_value_t *id, *after;
    const bson_t *filter, *sort;
    const char *tag, *token;
    int64_t limit, skip, version, timeMS;
};

#define AT_FIELDS(given)                                                                           \
    {GIVEN(given, token, FIELD_TEXT), "the version with this token, as a reply returned it"},      \
        {GIVEN(given, version, FIELD_NUMBER), "or the version with this number", 1, INT64_MAX},    \
        {GIVEN(given, timeMS, FIELD_TIME),                                                         \
         "or the version that was current at this time, ms since 1970", TIME_LEAST_MS,             \
         DATE_LAST_MS},                                                                            \
    {                                                                                              \
        GIVEN(given, tag, FIELD_TEXT), "or the version with this tag; absent: the current version" \
    }

static const struct operation_field read_fields[] = {
    {GIVEN(read_given, id, FIELD_VALUE), "only the item with this itemId"},
    {GIVEN(read_given, filter, FIELD_DOCUMENT), "only items that match"},
    {GIVEN(read_given, sort, FIELD_DOCUMENT), "{field: 1}; absent: by itemId"},
    {GIVEN(read_given, limit, FIELD_NUMBER), "the maximum number; absent: 100", 1,
     TREE_ANSWER_ROWS},
    {GIVEN(read_given, after, FIELD_VALUE), "only items after this itemId"},
    {GIVEN(read_given, skip, FIELD_NUMBER), "with sort: the number of items to skip", 0, INT32_MAX},
    AT_FIELDS(read_given),
    {{0}}};

static bool add_item(const bson_t *item, void *arg)
{
    struct tree_rows *rows = arg;
    bson_t row;

    if (operation_rows_begin(rows, item->len, &row)) {
        bson_concat(&row, item);
        operation_rows_end(rows, &row);
    }
    return !rows->more;
}

/* Finds the items whose itemId matches `id`, and that match the filter. */
static truce_status find_of(truce_tree_snapshot *snapshot, const struct read_given *given,
                            const bson_t *id, truce_tree_find_options *options,
                            struct tree_rows *rows, bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("itemId", BCON_DOCUMENT(id), "$and", "[", BCON_DOCUMENT(given->filter), "]");
    truce_status status = truce_tree_find(snapshot, filter, options, add_item, rows, error);

    bson_destroy(filter);
    return status;
}

/* Finds the items after `after` that match the filter, in two searches, because $gt finds only
 * itemIds of one class of types. */
static truce_status find_after(truce_tree_snapshot *snapshot, const struct read_given *given,
                               truce_tree_find_options *options, struct tree_rows *rows,
                               bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, same = BSON_INITIALIZER, later = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_VALUE(&holder, "itemId", given->after);
    truce__tree_after(truce__tree_item_id(&holder), &same, &later);
    status = find_of(snapshot, given, &same, options, rows, error);
    if (!status && !rows->more && !bson_empty(&later))
        status = find_of(snapshot, given, &later, options, rows, error);
    bson_destroy(&holder);
    bson_destroy(&same);
    bson_destroy(&later);
    return status;
}

/* Orders ties by itemId, so that all pages have one order. */
static void sort_ties(const bson_t *given, bson_t *sort)
{
    if (given)
        bson_concat(sort, given);
    if (!bson_has_field(sort, "itemId"))
        BSON_APPEND_INT32(sort, "itemId", 1);
}

/* Appends the matching items to the reply: from `after` on, or the first ones in the order of the
 * sort. */
static truce_status find_items(truce_tree_snapshot *snapshot, const struct read_given *given,
                               bson_t *reply, bson_error_t *error)
{
    struct tree_rows rows = {BSON_INITIALIZER, .passed = given->skip,
                             .room = given->limit ? given->limit : 100};
    bson_t sort = BSON_INITIALIZER;
    truce_tree_find_options options = {.sort = &sort};
    truce_status status;

    sort_ties(given->sort, &sort);
    if (given->after && given->filter)
        status = find_after(snapshot, given, &options, &rows, error);
    else if (given->after)
        status = truce__tree_find_after(snapshot, given->after, add_item, &rows, error);
    else
        status =
            truce_tree_find(snapshot, given->filter, given->filter || given->sort ? &options : NULL,
                            add_item, &rows, error);
    operation_rows_append(&rows, status, "items", reply);
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

truce_status truce__operation_item_id(const bson_value_t *id, const char *field,
                                      bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    bool good;

    BSON_APPEND_VALUE(&holder, "itemId", id);
    good = truce__value_identifies(truce__tree_item_id(&holder));
    bson_destroy(&holder);
    return good ? TRUCE_OK
                : truce__refuse(
                      CODE_BAD_VALUE, error,
                      "'%s' must be an itemId (a string, number, ObjectId, date, bool, or binary "
                      "value), not %s",
                      field, truce__type_name((uint8_t)id->value_type));
}

/* Refuses combinations of fields that contradict each other. A sorted list continues by `skip`, any
 * other by `after`. */
static truce_status check_read(const struct read_given *given, bson_error_t *error)
{
    if (given->id && (given->filter || given->sort || given->limit || given->after || given->skip))
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "with 'id', the fields 'filter', 'sort', 'limit', 'after', and 'skip' are not allowed");
    if (given->sort && given->after)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'after' is an itemId; with 'sort', continue with 'skip'");
    if (given->skip && !given->sort)
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "'skip' is allowed only with 'sort': without 'sort', continue with 'after'");
    if (given->id)
        return truce__operation_item_id(given->id, "id", error);
    return given->after ? truce__operation_item_id(given->after, "after", error) : TRUCE_OK;
}

static truce_status tree_run_read(struct operation_call *call, const void *arg, bson_t *reply,
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
        status = truce__operation_tree(call, NULL, false, NULL, &tree, error);
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

static const struct operation_row read_operation = {
    OPERATION("truceTreeRead", ROLE_READ, "reads one item or many items of one version of a tree"),
    .target = "tree",
    .value = "the tree",
    .answer = "`version` and its `token`; a read with this token is of the same version, whatever "
              "is published in the meantime. `item`, or `items` and `more`: continue with `after` "
              "the last itemId (or `skip`) and the `token`. \"not found\": no such tree, version, "
              "tag, or item exists; if only the item is missing, the reply has the `token`. An "
              "error: 125 (expired) the version was collected; a tag keeps a version (truceTree)",
    .fields = read_fields,
    .size = sizeof(struct read_given),
    .run = tree_run_read,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceTreeRead: 'site', filter: {up: 'home'}, limit: 50}",
};

/* ---- truceTrees ------------------------------------------------------------------------------ */

struct trees_given {
    const char *after;
    int64_t limit;
};

static const struct operation_field trees_fields[] = {
    {GIVEN(trees_given, after, FIELD_TEXT), "only trees after this name"},
    {GIVEN(trees_given, limit, FIELD_NUMBER), "the maximum number; absent: 100", 1,
     TREE_ANSWER_ROWS},
    {{0}}};

/* Appends the status of a tree as a row, if it fits. A tree that was dropped in the meantime is
 * left out. */
static truce_status trees_add(struct operation_call *call, const char *name, struct tree_rows *rows,
                              bson_error_t *error)
{
    truce_tree *tree = truce_tree_new(
        call->store, &(truce_tree_options){.name = name, .deadline_ms = call->deadline_ms});
    bson_t facts, row;
    truce_status status = truce_tree_status(tree, &facts, error);

    if (!status && operation_rows_begin(rows, facts.len, &row)) {
        bson_concat(&row, &facts);
        operation_rows_end(rows, &row);
    }
    bson_destroy(&facts);
    truce_tree_free(tree);
    /* Another client has dropped the tree in the meantime. */
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status run_trees(struct operation_call *call, const void *arg, bson_t *reply,
                              bson_error_t *error)
{
    const struct trees_given *given = arg;
    struct tree_rows rows = {BSON_INITIALIZER, .room = given->limit ? given->limit : 100};
    bson_t *filter = BCON_NEW("_id", "{", "$gt", BCON_UTF8(given->after ? given->after : ""), "}"),
           *sort = BCON_NEW("_id", BCON_INT32(1));
    const truce_find_options options = {.sort = sort};
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    truce_status status = truce_find(call->store, TREES, filter, &options, &cursor, error);

    while (!status && !rows.more && !(status = truce_cursor_next(cursor, &found, error)) && found)
        status = trees_add(call, truce__field_text(found, "_id"), &rows, error);
    truce_cursor_close(cursor);
    operation_rows_append(&rows, status, "trees", reply);
    bson_destroy(filter);
    bson_destroy(sort);
    return status;
}

static const struct operation_row trees_operation = {
    OPERATION("truceTrees", ROLE_READ, "lists the trees and branches of the database"),
    .value = "1",
    .answer = "`trees`, by name: each with the fields of truceTree without an action; and `more`: "
              "continue with `after` the last `tree`",
    .fields = trees_fields,
    .size = sizeof(struct trees_given),
    .run = run_trees,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceTrees: 1}",
};

const struct operation_row *const tree_operations[] = {&publish_operation,
                                                       &read_operation,
                                                       &tree_log_operation,
                                                       &tree_diff_operation,
                                                       &tree_operation,
                                                       &trees_operation,
                                                       &truce__tree_export_operation,
                                                       &truce__tree_import_operation,
                                                       NULL};
