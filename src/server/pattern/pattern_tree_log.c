/* Trees of versions: the log, what differs, and what is done to a tree: tags, branches, what is kept. */
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "server/pattern/pattern_tree.h"

/* ---- truceTreeLog ------------------------------------------------------------------------------ */

struct log_given {
    int64_t limit, before;
};

static const struct pattern_field log_fields[] = {
    {GIVEN(log_given, limit, FIELD_NUMBER), "at most so many; absent: 100", 1, TREE_ANSWER_ROWS},
    {GIVEN(log_given, before, FIELD_NUMBER), "goes on below this version", 1, INT64_MAX},
    {{0}}};

struct logging {
    struct tree_rows rows;
    int64_t before;
};

static bool add_version(const bson_t *entry, void *arg)
{
    struct logging *logging = arg;
    bson_t row;

    if (logging->before && truce__field_number(entry, "version") >= logging->before)
        return true;
    if (pattern_rows_begin(&logging->rows, entry->len, &row)) {
        bson_concat(&row, entry);
        pattern_rows_end(&logging->rows, &row);
    }
    return !logging->rows.more;
}

static truce_status pattern_tree_log_run_log(struct call *call, const void *arg, bson_t *reply,
                                             bson_error_t *error)
{
    const struct log_given *given = arg;
    struct logging logging = {.rows = {BSON_INITIALIZER, .room = given->limit ? given->limit : 100},
                              .before = given->before};
    truce_tree *tree;
    truce_status status = pattern_tree_take(call, NULL, false, NULL, &tree, error);

    if (!status)
        status = truce_tree_log(tree, 0, add_version, &logging, error);
    pattern_rows_append(&logging.rows, status, "versions", reply);
    truce_tree_free(tree);
    return status;
}

const struct pattern tree_log_pattern = {
    PATTERN("truceTreeLog", READS, "the versions of a tree that are kept, the newest first"),
    .value = "the tree",
    .answer =
        "`versions`: each {version, at, message, author, token}, where `token` is of the edit; "
        "and `more`: go on with `before` the last. \"not found\": no such tree",
    .fields = log_fields,
    .size = sizeof(struct log_given),
    .run = pattern_tree_log_run_log,
    .ways = PATTERN_AGAIN | PATTERN_TRANSACTS,
    .example = "{truceTreeLog: 'site', limit: 20}",
};

/* ---- truceTreeDiff ----------------------------------------------------------------------------- */

struct diff_given {
    int64_t from, to, limit;
    const bson_value_t *after;
    bool contents;
};

static const struct pattern_field diff_fields[] = {
    {GIVEN(diff_given, from, FIELD_NUMBER), "a version; 0: the empty one", 0, INT64_MAX,
     .needed = true},
    {GIVEN(diff_given, to, FIELD_NUMBER), "another one", 0, INT64_MAX, .needed = true},
    {GIVEN(diff_given, contents, FIELD_FLAG), "tells `before` and `after`, too"},
    {GIVEN(diff_given, limit, FIELD_NUMBER), "at most so many; absent: 100", 1, TREE_ANSWER_ROWS},
    {GIVEN(diff_given, after, FIELD_VALUE), "goes on behind this itemId"},
    {{0}}};

struct diffing {
    struct tree_rows rows;
    bson_t after; /* {v: itemId}, or empty */
    bool contents;
};

static bool pattern_tree_log_is_behind(const struct diffing *diffing, const bson_value_t *id)
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

static bool add_difference(const truce_tree_change *change, void *arg)
{
    struct diffing *diffing = arg;
    size_t size =
        (change->before ? change->before->len : 0) + (change->after ? change->after->len : 0);
    bson_t row;

    if (!pattern_tree_log_is_behind(diffing, change->item))
        return true;
    if (pattern_rows_begin(&diffing->rows, diffing->contents ? size : 100, &row)) {
        BSON_APPEND_VALUE(&row, "itemId", change->item);
        BSON_APPEND_UTF8(&row, "change",
                         !change->before  ? "added"
                         : !change->after ? "removed"
                                          : "changed");
        if (diffing->contents && change->before)
            BSON_APPEND_DOCUMENT(&row, "before", change->before);
        if (diffing->contents && change->after)
            BSON_APPEND_DOCUMENT(&row, "after", change->after);
        pattern_rows_end(&diffing->rows, &row);
    }
    return !diffing->rows.more;
}

static truce_status pattern_tree_log_run_diff(struct call *call, const void *arg, bson_t *reply,
                                              bson_error_t *error)
{
    const struct diff_given *given = arg;
    struct diffing diffing = {.rows = {BSON_INITIALIZER, .room = given->limit ? given->limit : 100},
                              .after = BSON_INITIALIZER,
                              .contents = given->contents};
    truce_tree *tree;
    truce_status status = pattern_tree_take(call, NULL, false, NULL, &tree, error);

    if (given->after)
        BSON_APPEND_VALUE(&diffing.after, "v", given->after);
    if (!status)
        status = truce_tree_diff(tree, given->from, given->to, add_difference, &diffing, error);
    pattern_rows_append(&diffing.rows, status, "changes", reply);
    bson_destroy(&diffing.after);
    truce_tree_free(tree);
    return status;
}

const struct pattern tree_diff_pattern = {
    PATTERN("truceTreeDiff", READS, "what differs between two versions of a tree"),
    .value = "the tree",
    .answer =
        "`changes`, by itemId: each {itemId, change, before, after}, where `change` is "
        "\"added\", \"removed\" or \"changed\"; and `more`: go on with `after` the last. \"not "
        "found\": no such tree or version. An error: 125 (expired) one of them is collected",
    .fields = diff_fields,
    .size = sizeof(struct diff_given),
    .run = pattern_tree_log_run_diff,
    .ways = PATTERN_AGAIN | PATTERN_TRANSACTS,
    .example = "{truceTreeDiff: 'site', from: 0, to: 1}",
};

/* ---- truceTree --------------------------------------------------------------------------------- */

struct tree_given {
    const char *tag, *untag, *branch, *merge, *prefer, *message, *author;
    const bson_value_t *erase;
    const bson_t *keep, *rules;
    int64_t version;
    bool collect, drop;
};

static const struct pattern_field tree_fields[] = {
    {GIVEN(tree_given, tag, FIELD_TEXT), "gives the `version` this name, which pins it"},
    {GIVEN(tree_given, untag, FIELD_TEXT), "takes the name back"},
    {GIVEN(tree_given, keep, FIELD_DOCUMENT),
     "{versions: 20, ageMS: 86400000}: what is kept at least; {}: all"},
    {GIVEN(tree_given, branch, FIELD_TEXT),
     "makes a tree of that name, which begins as the `version`"},
    {GIVEN(tree_given, merge, FIELD_TEXT),
     "publishes here what that branch (or that origin) has changed"},
    {GIVEN(tree_given, erase, FIELD_VALUE),
     "takes the contents of this itemId out of all versions, for ever"},
    {GIVEN(tree_given, collect, FIELD_FLAG), "removes now what nobody can read any more"},
    {GIVEN(tree_given, drop, FIELD_FLAG), "the tree goes, with all its versions"},
    {GIVEN(tree_given, version, FIELD_NUMBER), "of tag and branch; absent: the current one", 1,
     INT64_MAX},
    {GIVEN(tree_given, prefer, FIELD_TEXT),
     "of merge: \"mine\" or \"theirs\", where both changed the same"},
    {GIVEN(tree_given, rules, FIELD_DOCUMENT), "of merge: policies by path"},
    {GIVEN(tree_given, message, FIELD_TEXT), "of merge, for the log"},
    {GIVEN(tree_given, author, FIELD_TEXT), "of merge, for the log"},
    {{0}}};

static truce_status pattern_tree_log_check_tree(const struct tree_given *given, int actions,
                                                bson_error_t *error)
{
    bool merges = given->prefer || given->rules || given->message || given->author;

    if (actions > 1)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "one of 'tag', 'untag', 'keep', 'branch', 'merge', 'erase', 'collect' "
                             "and 'drop' at a time");
    if (given->version && !given->tag && !given->branch)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'version' belongs to 'tag' and 'branch'");
    if (merges && !given->merge)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'prefer', 'rules', 'message' and 'author' belong to 'merge'");
    return TRUCE_OK;
}

static truce_status pattern_tree_log_keep(struct call *call, truce_tree *tree, const bson_t *given,
                                          bson_error_t *error)
{
    struct {
        int64_t versions, ageMS;
    } read = {0};
    static const struct field fields[] = {
        {"versions", FIELD_WHOLE, 0}, {"ageMS", FIELD_WHOLE, sizeof(int64_t)}, {0}};
    truce_status status = call_fields(call, given, fields, false, &read, error);

    return status ? status
                  : truce_tree_retain(
                        tree, &(truce_tree_keep){.versions = read.versions, .age_ms = read.ageMS},
                        error);
}

static truce_status pattern_tree_log_merge(truce_tree *tree, const struct tree_given *given,
                                           bson_t *reply, bson_error_t *error)
{
    struct tree_rows rows = {BSON_INITIALIZER, .room = TREE_ANSWER_ROWS};
    truce_tree_merge_options options = {
        .how = {.rules = given->rules, .conflict = pattern_conflict_add, .arg = &rows},
        .message = given->message,
        .author = given->author};
    truce_tree_published published = {0};
    uint32_t conflicts = 0;
    truce_status status = pattern_prefer(given->prefer, &options.how.prefer, error);

    if (!status)
        status = truce_tree_merge(tree, given->merge, &options, &published, &conflicts, error);
    if (status == TRUCE_CONFLICT && conflicts) {
        status = TRUCE_OK;
        BSON_APPEND_UTF8(reply, "outcome", "conflict");
        pattern_rows_append(&rows, status, "conflicts", reply);
        return TRUCE_OK;
    }
    bson_destroy(&rows.array);
    if (!status)
        BCON_APPEND(reply, "outcome", BCON_UTF8(published.nothing ? "nothing" : "published"),
                    "version", BCON_INT64(published.version));
    return status;
}

/* What can be read no more, all of it. */
static truce_status pattern_tree_log_collect(truce_tree *tree, bson_t *reply, bson_error_t *error)
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

static truce_status pattern_tree_log_tell(truce_tree *tree, bson_t *reply, bson_error_t *error)
{
    bson_t told;
    truce_status status = truce_tree_status(tree, &told, error);

    if (!status)
        bson_concat(reply, &told);
    bson_destroy(&told);
    return status;
}

static truce_status erase(truce_tree *tree, const bson_value_t *id, bson_t *reply,
                          bson_error_t *error)
{
    int64_t versions = 0;
    truce_status status = truce_tree_erase(tree, id, &versions, error);

    if (!status)
        BSON_APPEND_INT64(reply, "versions", versions);
    return status;
}

static truce_status pattern_tree_log_act(struct call *call, truce_tree *tree,
                                         const struct tree_given *given, bson_t *reply,
                                         bson_error_t *error)
{
    const truce_tree_at at = {.version = given->version};

    if (given->tag)
        return truce_tree_tag(tree, given->tag, given->version, error);
    if (given->untag)
        return truce_tree_untag(tree, given->untag, error);
    if (given->keep)
        return pattern_tree_log_keep(call, tree, given->keep, error);
    if (given->merge)
        return pattern_tree_log_merge(tree, given, reply, error);
    if (given->erase)
        return erase(tree, given->erase, reply, error);
    if (given->collect)
        return pattern_tree_log_collect(tree, reply, error);
    if (given->drop)
        return truce_tree_drop(tree, error);
    if (!given->branch)
        return pattern_tree_log_tell(tree, reply, error);
    return truce_tree_branch(tree, &at, given->branch, error);
}

static truce_status run_tree(struct call *call, const void *arg, bson_t *reply, bson_error_t *error)
{
    const struct tree_given *given = arg;
    int actions = !!given->tag + !!given->untag + !!given->keep + !!given->branch + !!given->merge +
                  !!given->erase + given->collect + given->drop;
    truce_tree *tree = NULL;
    truce_status status = pattern_tree_log_check_tree(given, actions, error);

    if (!status && actions)
        status = access_need(call, call->database, WRITES, error);
    if (!status)
        status = pattern_tree_take(call, NULL, actions > 0, NULL, &tree, error);
    if (!status)
        status = pattern_tree_log_act(call, tree, given, reply, error);
    truce_tree_free(tree);
    return status;
}

const struct pattern tree_pattern = {
    PATTERN("truceTree", READS,
            "tells of a tree; tags a version, says what is kept, branches, merges, erases, drops"),
    .value = "the tree",
    .answer =
        "without an action {tree, collection, parent, current, settled, kept, at, keep, tags, from, "
        "branches, readers, edits}; of merge `outcome`: \"published\", \"nothing\" or \"conflict\", "
        "`version`, and of a conflict `conflicts`; of erase `versions`; of collect `settled`, "
        "`removed`, `edits`. \"not found\": no such tree, version or tag. An error: 11000 "
        "(duplicate) there is a tree of the branch's name; 125 (expired) the version is collected; 2 "
        "(invalid) it has branches, or is none",
    .fields = tree_fields,
    .size = sizeof(struct tree_given),
    .run = run_tree,
    .example = "{truceTree: 'site', tag: 'launch'}",
};
