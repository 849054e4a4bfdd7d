/*
 * Aggregation over any store.
 *
 *     backend's documents -> input -> stages of query/ -> output -> truce_cursor
 *                                        |
 *                                        +-- callbacks: this file, on the store's public functions
 *
 * The cursor owns its whole pipeline. $out writes into a new collection, named
 * "tmp.agg_out.<ObjectId>", with the indexes of the target. After the last document, it renames
 * this collection over the target. So readers see the old collection or the new one. A crash before
 * the rename leaves the temporary collection; a cursor that fails or is closed early removes it.
 *
 * A pipeline reads one snapshot: if a stage reads other collections ($lookup, $unionWith), a view
 * of the store is opened first, and both the input and these stages read from it. $out and $merge
 * write to the store itself, and their writes are not read. A name may be an alias of a pipeline
 * over another collection (collection_alias.h).
 */
#include "store/pipeline.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/random.h"
#include "bson/array.h"
#include "query/expression/expression.h"
#include "query/input_check.h"
#include "store/collection_alias.h"

/* The steps of the budget for each document that passes through the pipeline. */
#define STEPS_OF_DOCUMENT 256

/* The maximum number of documents that $out or $merge writes at once, and the number of bytes after
 * which they are written. */
#define OUT_BATCH       1000
#define OUT_BATCH_BYTES (4 * 1024 * 1024)

struct out_state {
    /* The name of the temporary collection, or "" before $out has begun. */
    char temporary[TRUCE_COLLECTION_NAME_MAX + 1];
    /* Whether the temporary collection exists or may exist. */
    bool created;
    /* Whether a write ended at the deadline, so that no time is left for removing the temporary
     * collection. */
    bool late;
    /* The documents that are not written yet, their number, and their bytes. */
    bson_t *batch[OUT_BATCH];
    size_t count, bytes;
};

struct pipeline_cursor {
    truce_cursor base;
    /* The store to which $out and $merge write. */
    truce_store *store;
    /* The snapshot for reads of other collections. The cursor owns it unless it is `store`. */
    truce_store *reads;
    struct pipeline *pipeline;
    struct source *output;
    struct query_context context;
    struct arena arena;
    struct random random;
    struct aggregate_environment environment;
    struct budget budget;
    struct out_state out;
    /* The state of $merge, or NULL before its first document. */
    struct merge *merge;
    /* Whether writes bypass the validator. */
    bool unvalidated;
    /* The aliases, or NULL if every name is that of a collection. */
    struct aliases *aliases;
};

/* ---- $merge ---------------------------------------------------------------------------------- */

/*
 * The stage $merge writes documents into a collection, one at a time, by the options of the stage
 * ({into, on, let, whenMatched, whenNotMatched}):
 *
 *     whenMatched      what to do with a document that has equal fields `on`
 *     whenNotMatched   what to do if there is no such document
 *
 * One update finds and changes a match. If nothing matched, the document is inserted. If the insert
 * fails with a duplicate key, another writer inserted it in the meantime, and the update runs
 * again.
 *
 * The stages of a whenMatched pipeline may use the variables of `let` (`$$new` by default). Update
 * pipelines have no variables, so each expression E of the stages becomes {$let: {vars: {new:
 * {$literal: value}}, in: E}}.
 *
 * Errors have MongoDB's codes: 51183 if no unique index fits `on`, and 51132 if a field of `on` is
 * missing, null, or an array. The code is 13113 if whenNotMatched is "fail" and nothing matches.
 */

/* The maximum number of attempts. Another writer of the same key can make an attempt fail. */
#define ATTEMPTS 10

enum when_matched { MATCHED_REPLACE, MATCHED_KEEP, MATCHED_MERGE, MATCHED_FAIL, MATCHED_PIPELINE };
enum when_missing { MISSING_INSERT, MISSING_DISCARD, MISSING_FAIL };

struct merge {
    truce_store *store;
    const char *into;
    const char *on[TRUCE_INDEX_FIELDS_MAX];
    uint32_t on_count;
    /* The document of `let`, or a missing value. */
    struct value let;
    /* The stages of whenMatched, with MATCHED_PIPELINE. */
    struct value pipeline;
    enum when_matched matched;
    enum when_missing missing;
    bool unvalidated;
};

/* ---- options --------------------------------------------------------------------------------- */

static const char *stage_text_of(struct value value)
{
    uint32_t length;

    return value.type == BSON_TYPE_UTF8 ? truce__value_text(value, &length) : "";
}

/* Returns the position of the string in the list, or -1. */
static int word_index(struct value value, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(stage_text_of(value), words[i]))
            return i;
    return -1;
}

/* Reads whenMatched. A missing value means "merge"; an array is a pipeline, which is borrowed. */
static truce_status parse_matched(struct value value, struct merge *merge, bson_error_t *error)
{
    static const char *const words[] = {"replace", "keepExisting", "merge", "fail", NULL};
    int number = word_index(value, words);

    if (value.type == BSON_TYPE_ARRAY) {
        merge->matched = MATCHED_PIPELINE;
        merge->pipeline = value;
    } else if (value.type == VALUE_MISSING) {
        merge->matched = MATCHED_MERGE;
    } else if (number >= 0) {
        merge->matched = (enum when_matched)number;
    } else {
        return truce__refuse(CODE_BAD_VALUE, error, "$merge: whenMatched cannot be \"%s\"",
                             stage_text_of(value));
    }
    return TRUCE_OK;
}

static truce_status parse_missing(struct value value, struct merge *merge, bson_error_t *error)
{
    static const char *const words[] = {"insert", "discard", "fail", NULL};
    int number = word_index(value, words);

    if (value.type != VALUE_MISSING && number < 0)
        return truce__refuse(CODE_BAD_VALUE, error, "$merge: whenNotMatched cannot be \"%s\"",
                             stage_text_of(value));
    merge->missing = value.type == VALUE_MISSING ? MISSING_INSERT : (enum when_missing)number;
    return TRUCE_OK;
}

/* Reads the fields of `on`: a string, or an array of strings. A missing value means _id. */
static truce_status parse_on(struct value on, struct merge *merge, bson_error_t *error)
{
    struct fields fields;

    if (on.type == VALUE_MISSING || on.type == BSON_TYPE_UTF8) {
        merge->on[merge->on_count++] = on.type == VALUE_MISSING ? "_id" : stage_text_of(on);
        return TRUCE_OK;
    }
    if (on.type != BSON_TYPE_ARRAY)
        return truce__refuse(51186, error, "$merge: `on` must be a field or an array of fields");
    for (fields = truce__fields(on); truce__fields_next(&fields);) {
        if (fields.value.type != BSON_TYPE_UTF8 || merge->on_count == TRUCE_INDEX_FIELDS_MAX)
            return truce__refuse(51134, error, "$merge: `on` must have at most %d fields",
                                 TRUCE_INDEX_FIELDS_MAX);
        merge->on[merge->on_count++] = stage_text_of(fields.value);
    }
    if (merge->on_count == 0)
        return truce__refuse(51187, error, "$merge: `on` is empty");
    return TRUCE_OK;
}

/* Reads the options of $merge. The strings and the pipeline are borrowed from `stage`. */
static truce_status stage_parse(const bson_t *stage, struct merge *merge, bson_error_t *error)
{
    struct value whole = truce__value_document(stage);
    struct value into = truce__value_field(whole, "into", 4);
    truce_status status;

    if (into.type == BSON_TYPE_DOCUMENT)
        into = truce__value_field(into, "coll", 4);
    if (into.type != BSON_TYPE_UTF8)
        return truce__refuse(CODE_TYPE_MISMATCH, error, "$merge: into must name a collection");
    merge->into = stage_text_of(into);
    merge->let = truce__value_field(whole, "let", 3);
    status = parse_on(truce__value_field(whole, "on", 2), merge, error);
    if (!status)
        status = parse_matched(truce__value_field(whole, "whenMatched", 11), merge, error);
    if (!status)
        status = parse_missing(truce__value_field(whole, "whenNotMatched", 14), merge, error);
    return status;
}

/* ---- the fields of `on` --------------------------------------------------------------------- */

/* Returns whether this is the definition of a unique index over exactly the fields of `on`, in any
 * order. */
static bool merge_index_is_unique(const struct merge *merge, struct value definition)
{
    struct value key = truce__value_field(definition, "key", 3);
    struct fields fields = truce__fields(key);
    uint32_t count = 0;

    if (!truce__value_truth(truce__value_field(definition, "unique", 6)) ||
        truce__value_field(definition, "partialFilterExpression", 23).type != VALUE_MISSING)
        return false;
    while (truce__fields_next(&fields))
        count++;
    for (uint32_t i = 0; i < merge->on_count; i++)
        if (truce__value_field(key, merge->on[i], strlen(merge->on[i])).type == VALUE_MISSING)
            return false;
    return count == merge->on_count;
}

/* Fails with 51183 unless the target has a unique index over the fields of `on`. _id needs none. */
static truce_status stage_check_unique(const struct merge *merge, bson_error_t *error)
{
    struct fields fields;
    truce_status status;
    bool found = merge->on_count == 1 && !strcmp(merge->on[0], "_id");
    bson_t indexes;

    if (found)
        return TRUCE_OK;
    status = truce_index_list(merge->store, merge->into, &indexes, error);
    if (!status)
        for (fields = truce__fields(truce__value_document(&indexes)); truce__fields_next(&fields);)
            found = found || merge_index_is_unique(merge, fields.value);
    bson_destroy(&indexes);
    if (!found && (!status || status == TRUCE_NOT_FOUND))
        return truce__refuse(51183, error, "$merge: %s has no unique index on the fields of `on`",
                             merge->into);
    return status;
}

static struct value at_path(struct value value, const char *path)
{
    while (value.type == BSON_TYPE_DOCUMENT) {
        size_t length = strcspn(path, ".");

        value = truce__value_field(value, path, length);
        if (!path[length])
            return value;
        path += length + 1;
    }
    return truce__value_missing();
}

/* Builds the filter that finds the match of a document: each field of `on` by its value. */
static truce_status stage_make_filter(const struct merge *merge, const bson_t *document,
                                      bson_t *filter, bson_error_t *error)
{
    for (uint32_t i = 0; i < merge->on_count; i++) {
        struct value value = at_path(truce__value_document(document), merge->on[i]);
        bson_t condition;

        if (value.type == VALUE_MISSING || value.type == BSON_TYPE_NULL ||
            value.type == BSON_TYPE_UNDEFINED || value.type == BSON_TYPE_ARRAY)
            return truce__refuse(51132, error,
                                 "$merge: the field \"%s\" of `on` is missing, null or an array",
                                 merge->on[i]);
        BSON_APPEND_DOCUMENT_BEGIN(filter, merge->on[i], &condition);
        truce__value_append(&condition, "$eq", 3, value);
        bson_append_document_end(filter, &condition);
    }
    return TRUCE_OK;
}

/* ---- the update of a match ------------------------------------------------------------------ */

/* Builds [{$replaceWith: {$mergeObjects: ["$$ROOT", {$literal: document}]}}]. */
static void make_merging(const bson_t *document, bson_t *stages)
{
    bson_t stage, merge, list, literal;

    BSON_APPEND_DOCUMENT_BEGIN(stages, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$replaceWith", &merge);
    BSON_APPEND_ARRAY_BEGIN(&merge, "$mergeObjects", &list);
    BSON_APPEND_UTF8(&list, "0", "$$ROOT");
    BSON_APPEND_DOCUMENT_BEGIN(&list, "1", &literal);
    BSON_APPEND_DOCUMENT(&literal, "$literal", document);
    bson_append_document_end(&list, &literal);
    bson_append_array_end(&merge, &list);
    bson_append_document_end(&stage, &merge);
    bson_append_document_end(stages, &stage);
}

/* Builds {name: {$literal: value}, ...} from `let`, or from {new: document}. */
static truce_status make_variables(const struct merge *merge, const bson_t *document,
                                   struct query_context *context, bson_t *variables,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct fields fields;
    bson_t literal;

    if (merge->let.type != BSON_TYPE_DOCUMENT) {
        BSON_APPEND_DOCUMENT_BEGIN(variables, "new", &literal);
        BSON_APPEND_DOCUMENT(&literal, "$literal", document);
        bson_append_document_end(variables, &literal);
        return TRUCE_OK;
    }
    for (fields = truce__fields(merge->let); !status && truce__fields_next(&fields);) {
        struct expression *expression = NULL;
        struct value value;

        status = truce__expression_new(fields.value, NULL, &expression, error);
        if (!status)
            status = truce__expression_evaluate(expression, truce__value_document(document), NULL,
                                                context, &value, error);
        if (!status) {
            bson_append_document_begin(variables, fields.key, (int)fields.key_length, &literal);
            truce__value_append(&literal, "$literal", 8, value);
            bson_append_document_end(variables, &literal);
        }
        truce__expression_free(expression);
    }
    return status;
}

static bool stage_is_operator(struct value value)
{
    struct fields fields = truce__fields(value);

    return truce__fields_next(&fields) && fields.key[0] == '$';
}

/* Appends the field `key` with the value {$let: {vars: variables, in: value}}. */
static void append_let(bson_t *parent, const char *key, struct value value, const bson_t *variables)
{
    bson_t outer, inner;

    BSON_APPEND_DOCUMENT_BEGIN(parent, key, &outer);
    BSON_APPEND_DOCUMENT_BEGIN(&outer, "$let", &inner);
    BSON_APPEND_DOCUMENT(&inner, "vars", variables);
    truce__value_append(&inner, "in", 2, value);
    bson_append_document_end(&outer, &inner);
    bson_append_document_end(parent, &outer);
}

/* Appends the fields of $set or $project. Wraps expressions, descends into nested fields, and does
 * not change numbers and booleans, which mean inclusion and exclusion. */
static void append_wrapped(bson_t *parent, struct value container, const bson_t *variables)
{
    struct fields fields;
    bson_t nested;

    for (fields = truce__fields(container); truce__fields_next(&fields);) {
        struct value value = fields.value;

        if (truce__value_is_number(value) || value.type == BSON_TYPE_BOOL) {
            truce__value_append(parent, fields.key, fields.key_length, value);
        } else if (value.type == BSON_TYPE_DOCUMENT && !stage_is_operator(value)) {
            BSON_APPEND_DOCUMENT_BEGIN(parent, fields.key, &nested);
            append_wrapped(&nested, value, variables);
            bson_append_document_end(parent, &nested);
        } else {
            append_let(parent, fields.key, value, variables);
        }
    }
}

/* Appends a stage of whenMatched, with the variables of `let` around each of its expressions. */
static void stage_append_stage(struct array *stages, struct value stage, const bson_t *variables)
{
    struct fields fields = truce__fields(stage);
    bson_t copy, inner;

    truce__array_open_document(stages, &copy);
    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "$replaceWith")) {
            append_let(&copy, fields.key, fields.value, variables);
        } else if (!strcmp(fields.key, "$replaceRoot") && fields.value.type == BSON_TYPE_DOCUMENT) {
            BSON_APPEND_DOCUMENT_BEGIN(&copy, fields.key, &inner);
            append_let(&inner, "newRoot", truce__value_field(fields.value, "newRoot", 7),
                       variables);
            bson_append_document_end(&copy, &inner);
        } else if (strcmp(fields.key, "$unset") && fields.value.type == BSON_TYPE_DOCUMENT) {
            BSON_APPEND_DOCUMENT_BEGIN(&copy, fields.key, &inner);
            append_wrapped(&inner, fields.value, variables);
            bson_append_document_end(&copy, &inner);
        } else {
            truce__value_append(&copy, fields.key, fields.key_length, fields.value);
        }
    }
    truce__array_close_document(stages, &copy);
}

/* Builds the update pipeline of whenMatched for a document, with the variables of `let`
 * inserted. */
static truce_status make_stages(const struct merge *merge, const bson_t *document,
                                struct query_context *context, bson_t *stages, bson_error_t *error)
{
    bson_t variables = BSON_INITIALIZER;
    truce_status status = make_variables(merge, document, context, &variables, error);
    struct fields fields = truce__fields(merge->pipeline);
    struct array list = {.to = stages};

    while (!status && truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_DOCUMENT)
            status = truce__refuse(CODE_TYPE_MISMATCH, error,
                                   "$merge: each stage of whenMatched must be a document");
        else
            stage_append_stage(&list, fields.value, &variables);
    }
    bson_destroy(&variables);
    return status;
}

/* ---- one document --------------------------------------------------------------------------- */

/* Applies whenMatched to the document that matches. Sets `*found` if there is one. */
static truce_status change_match(const struct merge *merge, const bson_t *filter,
                                 const bson_t *document, struct query_context *context, bool *found,
                                 bson_error_t *error)
{
    truce_write_options options = {.pipeline = merge->matched != MATCHED_REPLACE,
                                   .unvalidated = merge->unvalidated};
    truce_write_result result = {0};
    bson_t stages = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;
    int64_t count = 0;

    if (merge->matched == MATCHED_FAIL) {
        *found = false;
    } else if (merge->matched == MATCHED_KEEP) {
        status = truce_count(merge->store, merge->into, filter, NULL, &count, error);
        *found = count > 0;
    } else {
        if (merge->matched == MATCHED_MERGE)
            make_merging(document, &stages);
        else if (merge->matched == MATCHED_PIPELINE)
            status = make_stages(merge, document, context, &stages, error);
        if (!status)
            status = truce_update(merge->store, merge->into, filter,
                                  options.pipeline ? &stages : document, &options, &result, error);
        *found = result.matched > 0;
    }
    truce_write_result_release(&result);
    bson_destroy(&stages);
    return status;
}

/* Changes the match of a document, or inserts the document. Tries again if another writer inserts
 * the same key between the two writes. */
static truce_status merge_write_document(const struct merge *merge, const bson_t *filter,
                                         const bson_t *document, struct query_context *context,
                                         bson_error_t *error)
{
    const truce_write_options options = {.unvalidated = merge->unvalidated};
    truce_status status = TRUCE_OK;
    bool found = false;
    char shown[200];

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        status = change_match(merge, filter, document, context, &found, error);
        if (status || found || merge->missing == MISSING_DISCARD)
            return status;
        if (merge->missing == MISSING_FAIL)
            return truce__refuse(
                13113, error, "$merge: no document of %s matches %s", merge->into,
                truce__value_show(truce__value_document(filter), shown, sizeof shown));
        status = truce_insert(merge->store, merge->into, document, &options, error);
        if (status != TRUCE_DUPLICATE || merge->matched == MATCHED_FAIL)
            return status;
    }
    return status;
}

/* Returns whether `_id` is one of the fields of `on`. If it is, a document without _id gets one
 * before the search. */
static bool is_on_id(const struct merge *merge)
{
    for (uint32_t i = 0; i < merge->on_count; i++)
        if (!strcmp(merge->on[i], "_id"))
            return true;
    return false;
}

static void merge_free(struct merge *merge)
{
    bson_free(merge);
}

/* Reads the options and finds the index. `store` and `stage` are borrowed. If `unvalidated` is set,
 * writes bypass the validator. */
static truce_status merge_new(truce_store *store, const bson_t *stage, bool unvalidated,
                              struct merge **merge, bson_error_t *error)
{
    struct merge *made = bson_malloc0(sizeof(*made));
    truce_status status = stage_parse(stage, made, error);

    made->store = store;
    made->unvalidated = unvalidated;
    if (!status)
        status = stage_check_unique(made, error);
    if (status) {
        merge_free(made);
        made = NULL;
    }
    *merge = made;
    return status;
}

/* Merges one document. */
static truce_status merge_document(const struct merge *merge, const bson_t *document,
                                   struct query_context *context, bson_error_t *error)
{
    bson_t prepared = BSON_INITIALIZER, filter = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (is_on_id(merge)) {
        bson_destroy(&prepared);
        status = truce__document_prepare(document, context, &prepared, error);
        document = &prepared;
    }
    if (!status)
        status = stage_make_filter(merge, document, &filter, error);
    if (!status)
        status = merge_write_document(merge, &filter, document, context, error);
    bson_destroy(&prepared);
    bson_destroy(&filter);
    return status;
}

/* ---- callbacks: other collections ------------------------------------------------------------ */

struct find_source {
    struct source base;
    truce_cursor *cursor;
};

static truce_status pipeline_find_next(struct source *base, const bson_t **document,
                                       bson_error_t *error)
{
    return truce_cursor_next(((struct find_source *)base)->cursor, document, error);
}

static void pipeline_find_free(struct source *base)
{
    truce_cursor_close(((struct find_source *)base)->cursor);
    bson_free(base);
}

/* Computes the remaining time of the call, or 0 if it has no deadline. */
static truce_status time_left(struct pipeline_cursor *cursor, uint32_t *left_ms,
                              bson_error_t *error)
{
    truce_status status = truce__budget_check(&cursor->budget, error);
    int64_t left_ns;

    *left_ms = 0;
    if (status || !cursor->budget.deadline_ns)
        return status;
    left_ns = cursor->budget.deadline_ns - truce__clock_monotonic_ns();
    *left_ms = left_ns > 0 ? (uint32_t)(left_ns / 1000000 + 1) : 1;
    return TRUCE_OK;
}

/* Opens the pipeline of an alias, in which the same aliases are valid. */
static truce_status open_alias(struct pipeline_cursor *cursor, const struct alias *alias,
                               const bson_t *filter, uint32_t deadline_ms, truce_cursor **opened,
                               bson_error_t *error)
{
    const truce_aggregate_options options = {.deadline_ms = deadline_ms,
                                             .allow_disk_use = cursor->environment.spill != NULL};
    struct aliases *before = truce__aliases_use(cursor->aliases);
    truce_status status;
    bson_t stages;

    truce__alias_pipeline(alias, filter, &stages);
    status = truce_aggregate(cursor->reads, alias->on, &stages, &options, opened, error);
    truce__aliases_use(before);
    bson_destroy(&stages);
    return status;
}

/* Opens another collection, or the pipeline of an alias, for a stage. The source owns the
 * cursor. */
static truce_status environment_open(void *arg, const char *collection, const bson_t *filter,
                                     struct source **source, bson_error_t *error)
{
    struct pipeline_cursor *cursor = arg;
    const struct alias *alias = truce__aliases_find(cursor->aliases, collection);
    struct find_source *made = bson_malloc0(sizeof(*made));
    truce_find_options options = {0};
    truce_status status = time_left(cursor, &options.deadline_ms, error);

    if (!status && alias)
        status = open_alias(cursor, alias, filter, options.deadline_ms, &made->cursor, error);
    else if (!status)
        status = truce_find(cursor->reads, collection, filter, &options, &made->cursor, error);

    made->base = (struct source){pipeline_find_next, pipeline_find_free};
    if (status) {
        bson_free(made);
        made = NULL;
    }
    *source = (struct source *)made;
    return status;
}

/* Returns whether the index serves every equality at the path. Sparse, partial, and hidden indexes
 * do not. */
static bool lookup_index_serves(struct value definition, const char *path)
{
    struct fields key = truce__fields(truce__value_field(definition, "key", 3));

    return truce__fields_next(&key) && !strcmp(key.key, path) &&
           !truce__value_truth(truce__value_field(definition, "sparse", 6)) &&
           !truce__value_truth(truce__value_field(definition, "hidden", 6)) &&
           truce__value_field(definition, "partialFilterExpression", 23).type == VALUE_MISSING;
}

/* Returns whether an equality at the path can use an index, so that $lookup should search for each
 * document instead of reading the collection once. */
static bool environment_indexed(void *arg, const char *collection, const char *path)
{
    struct pipeline_cursor *cursor = arg;
    const struct alias *alias = truce__aliases_find(cursor->aliases, collection);
    struct fields fields;
    bool found = false;
    char *resolved = NULL;
    bson_t indexes;

    if (alias) {
        collection = alias->on;
        path = resolved = truce__alias_path(alias, path);
    }
    if (!path)
        return false;
    if (truce_index_list(cursor->reads, collection, &indexes, NULL) == TRUCE_OK)
        for (fields = truce__fields(truce__value_document(&indexes)); truce__fields_next(&fields);)
            found = found || lookup_index_serves(fields.value, path);
    bson_destroy(&indexes);
    bson_free(resolved);
    return found;
}

/* ---- callbacks: $out ------------------------------------------------------------------------- */

/* Creates the indexes of the target on the temporary collection. A target that does not exist has
 * none. */
static truce_status copy_indexes(struct pipeline_cursor *cursor, const char *collection,
                                 bson_error_t *error)
{
    truce_status status;
    bson_iter_t iter;
    bson_t indexes;

    status = truce_index_list(cursor->store, collection, &indexes, error);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    else if (!status && bson_iter_init(&iter, &indexes))
        while (!status && bson_iter_next(&iter)) {
            struct value definition = truce__value_of_iter(&iter);
            bson_t index;

            truce__value_bson(definition, &index);
            status = truce_index_create(cursor->store, cursor->out.temporary, &index, error);
        }
    bson_destroy(&indexes);
    return status;
}

/* Copies the validator of the target, which the new documents must match, and its option to keep
 * images. */
static truce_status copy_options(struct pipeline_cursor *cursor, const char *collection,
                                 bson_error_t *error)
{
    const truce_list_options wanted = {.collection = collection, .unmeasured = true};
    bson_t list, one, validator;
    truce_status status = truce_collection_list(cursor->store, &wanted, &list, error);
    struct fields fields = truce__fields(truce__value_document(&list));

    while (!status && truce__fields_next(&fields)) {
        truce__value_bson(fields.value, &one);
        if (truce__value_subdocument(&one, "validator", &validator))
            status =
                truce_collection_validate(cursor->store, cursor->out.temporary, &validator, error);
        if (!status && bson_has_field(&one, "images"))
            status = truce__store_keep_images(cursor->store, cursor->out.temporary, true, error);
    }
    bson_destroy(&list);
    return status;
}

/* Creates the temporary collection with the indexes and options of the target, on the first call.
 * Without a reply, the collection may exist, so closing the cursor drops it. */
static truce_status out_begin(struct pipeline_cursor *cursor, const char *collection,
                              bson_error_t *error)
{
    truce_status status;
    bson_oid_t oid;
    char text[25];

    if (cursor->out.temporary[0])
        return TRUCE_OK;
    bson_oid_init(&oid, NULL);
    bson_oid_to_string(&oid, text);
    snprintf(cursor->out.temporary, sizeof(cursor->out.temporary), "tmp.agg_out.%s", text);
    status = truce_collection_create(cursor->store, cursor->out.temporary, error);
    cursor->out.created = !status || truce__unanswered(status);
    if (!status)
        status = copy_indexes(cursor, collection, error);
    return status ? status : copy_options(cursor, collection, error);
}

static void out_empty(struct out_state *out)
{
    for (size_t i = 0; i < out->count; i++)
        bson_destroy(out->batch[i]);
    out->count = out->bytes = 0;
}

/* Inserts the documents of the batch, and empties it even on failure. */
static truce_status out_flush(struct pipeline_cursor *cursor, bson_error_t *error)
{
    struct out_state *out = &cursor->out;
    truce_write *writes = bson_malloc0((out->count + 1) * sizeof(*writes));
    truce_write_outcome *outcomes = bson_malloc0((out->count + 1) * sizeof(*outcomes));
    truce_status status;

    for (size_t i = 0; i < out->count; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = out->temporary,
                                  .document = out->batch[i],
                                  .options.unvalidated = cursor->unvalidated};
    status = truce_bulk(cursor->store, writes, out->count, NULL, outcomes, error);
    for (size_t i = 0; i < out->count; i++)
        truce_write_result_release(&outcomes[i].result);
    out_empty(out);
    bson_free(writes);
    bson_free(outcomes);
    return status;
}

static truce_status out_end(struct pipeline_cursor *cursor, const char *collection,
                            bson_error_t *error)
{
    truce_status status = out_flush(cursor, error);

    if (!status)
        status =
            truce_collection_rename(cursor->store, cursor->out.temporary, collection, true, error);
    if (!status)
        cursor->out.temporary[0] = '\0';
    return status;
}

/* Limits writes to the deadline of the pipeline. Returns the previous deadline, which the caller
 * restores. */
static int64_t pipeline_begin_write(const struct pipeline_cursor *cursor)
{
    return truce__deadline_set(truce__deadline_least(cursor->budget.deadline_ns));
}

/* Adds a document to the new collection of $out. With `last`, renames the collection over the
 * target. */
static truce_status environment_out(void *arg, const char *collection, const bson_t *document,
                                    bool last, bson_error_t *error)
{
    struct pipeline_cursor *cursor = arg;
    struct out_state *out = &cursor->out;
    int64_t before_ns = pipeline_begin_write(cursor);
    truce_status status = out_begin(cursor, collection, error);

    if (!status && document) {
        out->batch[out->count++] = bson_copy(document);
        out->bytes += document->len;
        if (out->count == OUT_BATCH || out->bytes > OUT_BATCH_BYTES)
            status = out_flush(cursor, error);
    }
    if (!status && last)
        status = out_end(cursor, collection, error);
    truce__deadline_set(before_ns);
    out->late = status == TRUCE_LOCKED || status == TRUCE_TIMEOUT || status == TRUCE_UNKNOWN;
    return status;
}

static void out_abandon(struct pipeline_cursor *cursor)
{
    DEADLINE_SCOPE(cursor->out.late ? DEADLINE_LEAST_NS / 1000000 : 0);
    truce_status status = TRUCE_OK;

    out_empty(&cursor->out);
    if (cursor->out.temporary[0] && cursor->out.created)
        status = truce_collection_drop(cursor->store, cursor->out.temporary, NULL);
    /* A failure is ignored, because the cursor is being closed or has reported another failure. */
    (void)status;
}

static truce_status environment_merge(void *arg, const bson_t *stage, const bson_t *document,
                                      struct query_context *context, bson_error_t *error)
{
    struct pipeline_cursor *cursor = arg;
    int64_t before_ns = pipeline_begin_write(cursor);
    truce_status status = TRUCE_OK;

    if (!cursor->merge)
        status = merge_new(cursor->store, stage, cursor->unvalidated, &cursor->merge, error);
    if (!status && document)
        status = merge_document(cursor->merge, document, context, error);
    truce__deadline_set(before_ns);
    return status;
}

/* ---- callbacks: spilling --------------------------------------------------------------------- */

struct file_spill {
    struct spill base;
    FILE *file;
};

static truce_status spill_write(struct spill *base, const void *bytes, size_t size,
                                bson_error_t *error)
{
    struct file_spill *spill = (struct file_spill *)base;

    if (fwrite(bytes, 1, size, spill->file) != size)
        return truce__fail(TRUCE_IO, error, "cannot write to a temporary file: %m");
    return TRUCE_OK;
}

static truce_status spill_rewind(struct spill *base, bson_error_t *error)
{
    struct file_spill *spill = (struct file_spill *)base;

    if (fflush(spill->file) || fseeko(spill->file, 0, SEEK_SET))
        return truce__fail(TRUCE_IO, error, "cannot rewind a temporary file: %m");
    return TRUCE_OK;
}

static truce_status spill_read(struct spill *base, void *bytes, size_t size, size_t *got,
                               bson_error_t *error)
{
    struct file_spill *spill = (struct file_spill *)base;

    *got = fread(bytes, 1, size, spill->file);
    if (*got < size && ferror(spill->file))
        return truce__fail(TRUCE_IO, error, "cannot read from a temporary file: %m");
    return TRUCE_OK;
}

static void spill_free(struct spill *base)
{
    fclose(((struct file_spill *)base)->file);
    bson_free(base);
}

/* Opens a file below TMPDIR and removes its name, so that it disappears with its descriptor. */
static FILE *open_unnamed(void)
{
    const char *directory = getenv("TMPDIR");
    char *name =
        bson_strdup_printf("%s/truce-spill-XXXXXX", directory && *directory ? directory : "/tmp");
    int descriptor = mkstemp(name);
    FILE *file = NULL;

    if (descriptor >= 0) {
        unlink(name);
        file = fdopen(descriptor, "w+");
        if (!file)
            close(descriptor);
    }
    bson_free(name);
    return file;
}

truce_status truce__store_spill(struct spill **spill, bson_error_t *error)
{
    struct file_spill *made;
    FILE *file = open_unnamed();

    *spill = NULL;
    if (!file)
        return truce__fail(TRUCE_IO, error, "cannot create a temporary file: %m");
    made = bson_malloc0(sizeof(*made));
    made->base = (struct spill){spill_write, spill_rewind, spill_read, spill_free};
    made->file = file;
    *spill = &made->base;
    return TRUCE_OK;
}

static truce_status environment_spill(void *arg, struct spill **spill, bson_error_t *error)
{
    return truce__store_spill(spill, error);
}

/* ---- the cursor ----------------------------------------------------------------------------- */

static truce_status pipeline_cursor_next(truce_cursor *base, const bson_t **document,
                                         bson_error_t *error)
{
    struct pipeline_cursor *cursor = (struct pipeline_cursor *)base;

    truce_status status = truce__budget_spend(&cursor->budget, STEPS_OF_DOCUMENT, error);

    return status ? status : cursor->output->next(cursor->output, document, error);
}

/* Closes the stages before the snapshot that they read, and drops the collection of an unfinished
 * $out. */
static void pipeline_cursor_close(truce_cursor *base)
{
    struct pipeline_cursor *cursor = (struct pipeline_cursor *)base;

    if (cursor->output)
        cursor->output->free(cursor->output);
    if (cursor->reads != cursor->store)
        truce_store_close(cursor->reads);
    out_abandon(cursor);
    merge_free(cursor->merge);
    truce__aliases_release(cursor->aliases);
    truce__pipeline_free(cursor->pipeline);
    truce__arena_release(&cursor->arena);
    bson_free(cursor);
}

static const truce_cursor_ops cursor_ops = {pipeline_cursor_next, pipeline_cursor_close};

/* Creates the cursor of a pipeline, with the environment through which stages use the store. Takes
 * over `pipeline`. */
static struct pipeline_cursor *cursor_new(truce_store *store, struct pipeline *pipeline,
                                          const truce_aggregate_options *options)
{
    struct pipeline_cursor *cursor = bson_malloc0(sizeof(*cursor));

    cursor->base.ops = &cursor_ops;
    cursor->store = store;
    cursor->pipeline = pipeline;
    cursor->unvalidated = options->unvalidated;
    cursor->aliases = truce__aliases_hold(truce__aliases_used());
    truce__random_seed(&cursor->random, truce__random_entropy());
    cursor->context = (struct query_context){.now_ms = truce__clock_wall_ms(),
                                             .random = &cursor->random,
                                             .budget = &cursor->budget,
                                             .arena = &cursor->arena};
    cursor->environment =
        (struct aggregate_environment){.arg = cursor,
                                       .open = environment_open,
                                       .indexed = environment_indexed,
                                       .out = environment_out,
                                       .merge = environment_merge,
                                       .spill = options->allow_disk_use ? environment_spill : NULL};
    truce__store_budget(store, options->deadline_ms, &cursor->budget);
    cursor->budget.memory_max = TRUCE_PIPELINE_MEMORY_MAX;
    return cursor;
}

truce_status truce__store_pipeline_cursor(truce_store *store, truce_store *reads,
                                          struct pipeline *pipeline, uint32_t first,
                                          struct source *input,
                                          const truce_aggregate_options *options,
                                          truce_cursor **cursor, bson_error_t *error)
{
    struct pipeline_cursor *made = cursor_new(store, pipeline, options);
    truce_status status;

    made->reads = reads ? reads : store;
    status = truce__pipeline_open(pipeline, first, input, &made->environment, &made->context,
                                  &made->output, error);

    truce_assert(!status == (made->output != NULL));
    if (status) {
        pipeline_cursor_close(&made->base);
        made = NULL;
    }
    *cursor = (truce_cursor *)made;
    return status;
}
