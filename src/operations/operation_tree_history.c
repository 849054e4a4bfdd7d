/*
 * truceTreeExport and truceTreeImport: the history of a tree as lines (truce_tree_export).
 *
 * An export continues after an item of a version. Items of a version are in the order of their
 * itemId. A reply of a later call therefore begins where the one before it ended, also if items
 * were erased in between.
 */
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "operations/operation_tree.h"
#include "operations/reply_list.h"
#include "patterns/tree/tree.h"

#define HISTORY_LINES_MAX 100000

/* ---- truceTreeExport ------------------------------------------------------------------------- */

struct history_given {
    int64_t from, limit;
    const bson_t *after;
};

static const struct operation_field history_fields[] = {
    {GIVEN(history_given, from, FIELD_NUMBER),
     "the changes from this version on; absent: all that are kept", 1, INT64_MAX},
    {GIVEN(history_given, after, FIELD_DOCUMENT),
     "the field `after` of the preceding reply; absent: the beginning"},
    {GIVEN(history_given, limit, FIELD_NUMBER),
     "the number of lines after which the reply ends; absent: 1,000", 1, HISTORY_LINES_MAX},
    {{0}}};

struct history_after {
    int64_t from, to, version;
    const bson_value_t *item;
};

static const struct operation_field history_after_fields[] = {
    {GIVEN(history_after, from, FIELD_NUMBER), "the first version", 1, INT64_MAX, .needed = true},
    {GIVEN(history_after, to, FIELD_NUMBER), "the last version", 1, INT64_MAX, .needed = true},
    {GIVEN(history_after, version, FIELD_NUMBER), "the version; absent: none was begun", 1,
     INT64_MAX},
    {GIVEN(history_after, item, FIELD_VALUE), "the last itemId; absent: none"},
    {{0}}};

struct history {
    struct reply_list list;
    /* The part that follows the lines of the reply, without its item. */
    struct tree_export_part next;
    /* {item: itemId} of the last item of the part's version, or empty. */
    bson_t last;
};

/* Returns the itemId of a line: an item, or {$remove: itemId}. */
static bool history_item(const bson_t *line, bson_iter_t *at)
{
    return bson_iter_init_find(at, line, "itemId") || bson_iter_init_find(at, line, "$remove");
}

/* Adds a line to the reply. The tags and the end are only in the last reply, so changes of tags
 * between the calls do not matter. */
static bool history_add(const bson_t *line, void *arg)
{
    struct history *history = arg;
    bool is_item;
    bson_iter_t item;
    char buffer[16];
    const char *key;

    is_item = history_item(line, &item) || bson_has_field(line, "$version");
    history->list.more =
        is_item &&
        (history->list.count >= history->list.limit ||
         (history->list.count && history->list.array.len + line->len > REPLY_LIST_BYTES));
    if (history->list.more)
        return false;
    if (bson_has_field(line, "$tree")) {
        history->next.from = truce__field_number(line, "from");
        history->next.to = truce__field_number(line, "to");
    } else if (bson_has_field(line, "$version")) {
        history->next.start = truce__field_number(line, "$version");
        history->next.begun = true;
        bson_reinit(&history->last);
    } else if (is_item) {
        bson_reinit(&history->last);
        bson_append_iter(&history->last, "item", -1, &item);
    }
    bson_uint32_to_string(history->list.count++, &key, buffer, sizeof buffer);
    return BSON_APPEND_DOCUMENT(&history->list.array, key, line);
}

static void history_append_after(const struct history *history, bson_t *reply)
{
    bson_t after;

    BSON_APPEND_DOCUMENT_BEGIN(reply, "after", &after);
    BCON_APPEND(&after, "from", BCON_INT64(history->next.from), "to", BCON_INT64(history->next.to));
    if (history->next.begun)
        BSON_APPEND_INT64(&after, "version", history->next.start);
    bson_concat(&after, &history->last);
    bson_append_document_end(reply, &after);
}

/* Reads the `after` of an earlier reply, and checks that its fields fit together. */
static truce_status history_read_after(struct operation_call *call, const bson_t *document,
                                       struct tree_export_part *part, bson_error_t *error)
{
    struct history_after after = {0};
    truce_status status =
        truce__operation_nested(call, document, history_after_fields, &after, error);

    if (!status && after.version && (after.version < after.from || after.version > after.to))
        status =
            truce__refuse(CODE_BAD_VALUE, error,
                          "'after' has version %lld: expected a version from its 'from' "
                          "(%lld) to its 'to' (%lld)",
                          (long long)after.version, (long long)after.from, (long long)after.to);
    if (!status && after.item && !after.version)
        status = truce__refuse(
            CODE_BAD_VALUE, error,
            "'after' has an 'item' but no 'version': pass 'after' as the last reply returned it");
    if (!status && after.item)
        status = truce__operation_item_id(after.item, "item", error);
    *part = (struct tree_export_part){.from = after.from,
                                      .to = after.to,
                                      .start = after.version ? after.version : after.from,
                                      .begun = after.version != 0,
                                      .item = after.item};
    return status;
}

static truce_status history_run_export(struct operation_call *call, const void *arg, bson_t *reply,
                                       bson_error_t *error)
{
    const struct history_given *given = arg;
    struct history history = {.last = BSON_INITIALIZER};
    struct tree_export_part part = {.from = given->from};
    truce_tree *tree = NULL;
    truce_status status = TRUCE_OK;

    truce__reply_list_begin(&history.list, given->limit ? given->limit : 1000);
    if (given->after && given->from)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'from' is part of 'after': give one of them");
    else if (given->after)
        status = history_read_after(call, given->after, &part, error);
    history.next = part;
    if (!status && part.item)
        BSON_APPEND_VALUE(&history.last, "item", part.item);
    if (!status)
        status = truce__operation_tree(call, NULL, false, NULL, &tree, error);
    if (!status)
        status = truce__tree_export_part(tree, &part, history_add, &history, error);
    truce_tree_free(tree);
    if (!status && history.list.more)
        history_append_after(&history, reply);
    bson_destroy(&history.last);
    return truce__reply_list_end(&history.list, status, "lines", reply);
}

const struct operation_row truce__tree_export_operation = {
    OPERATION("truceTreeExport", ROLE_READ, "returns the history of a tree as lines"),
    .target = "tree",
    .value = "the tree",
    .answer =
        "`lines`: {$tree, collection, parent, from, to, whole}, and for each version {$version, "
        "at, message, author, token}, its items and {$remove: itemId}, and at the end {$tag, "
        "version} and {$end}; and `more`: continue with the reply's `after`. \"not found\": no "
        "such tree or version exists. An error: 125 (expired) a version was collected",
    .fields = history_fields,
    .size = sizeof(struct history_given),
    .run = history_run_export,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceTreeExport: 'site', limit: 100}",
};

/* ---- truceTreeImport ------------------------------------------------------------------------- */

struct tree_import_given {
    const bson_t *lines;
    const char *collection;
};

static const struct operation_field tree_import_fields[] = {
    {GIVEN(tree_import_given, lines, FIELD_ARRAY),
     "a history, as truceTreeExport returns it: from {$tree} to {$end}", .needed = true,
     .each = FIELD_DOCUMENT},
    {GIVEN(tree_import_given, collection, FIELD_TEXT),
     "the collection of the items of a new tree; absent: that of the history"},
    {{0}}};

static truce_status tree_import_line(truce_tree_import *import, struct value line,
                                     bson_error_t *error)
{
    bson_t document;

    if (line.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_TYPE_MISMATCH, error, "a line must be a document, not %s",
                             truce__type_name(line.type));
    truce__value_bson(line, &document);
    return truce_tree_import_line(import, &document, error);
}

/* Checks that the caller may write the collection that the history names. */
static truce_status tree_import_check(struct operation_call *call,
                                      const struct tree_import_given *given, bson_error_t *error)
{
    struct fields lines = truce__fields(truce__value_array(given->lines));
    const char *collection = "";
    bson_t head;

    if (given->collection || !truce__fields_next(&lines) || lines.value.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    truce__value_bson(lines.value, &head);
    collection = truce__field_text(&head, "collection");
    return *collection ? truce__operation_collection(call, collection, true, error) : TRUCE_OK;
}

static truce_status tree_run_import(struct operation_call *call, const void *arg, bson_t *reply,
                                    bson_error_t *error)
{
    const struct tree_import_given *given = arg;
    struct fields lines = truce__fields(truce__value_array(given->lines));
    truce_tree_imported imported = {0};
    truce_tree_import *import = NULL;
    truce_tree *tree = NULL;
    truce_status status = tree_import_check(call, given, error);

    if (!status)
        status = truce__operation_tree(call, given->collection, true, NULL, &tree, error);
    if (!status)
        import = truce_tree_import_new(tree);
    for (int64_t number = 1; !status && truce__fields_next(&lines); number++) {
        status = tree_import_line(import, lines.value, error);
        if (status)
            (void)truce__operation_element(status, "line", number, error);
    }
    if (!status)
        status = truce_tree_import_end(import, &imported, error);
    if (!status)
        BCON_APPEND(reply, "version", BCON_INT64(imported.version), "published",
                    BCON_INT64(imported.published), "passed", BCON_INT64(imported.passed));
    truce_tree_import_free(import);
    truce_tree_free(tree);
    return status;
}

const struct operation_row truce__tree_import_operation = {
    OPERATION("truceTreeImport", ROLE_WRITE,
              "publishes the versions of a history, with their numbers, times, and messages"),
    .target = "tree",
    .value = "the tree",
    .answer =
        "`version`: the last one; counts: `published`, and `passed`, which the tree had already. "
        "Repeat an interrupted import: it continues. Split a history of more than 48 MiB between "
        "versions, and begin and end each part like the whole. An error: 2 (invalid) a line is "
        "wrong, the history is truncated, or the tree has another content; the versions before it "
        "were imported",
    .fields = tree_import_fields,
    .size = sizeof(struct tree_import_given),
    .run = tree_run_import,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example =
        "{truceTreeImport: 'copy of site', lines: [{$tree: 'site', collection: 'page copies', "
        "from: 1, to: 1, whole: true}, {$version: 1, at: {$date: '2026-03-01T09:00:00Z'}}, "
        "{itemId: 'home', title: 'Home'}, {$end: 1}]}",
};
