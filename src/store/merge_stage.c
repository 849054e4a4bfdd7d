/*
 * $merge, one document at a time, by the store's own verbs:
 *
 *     whenMatched      what is done to the document that agrees in the fields of `on`
 *     whenNotMatched   what is done if there is none
 *
 * A match is looked for and changed by one update. If nothing matched, the document is inserted;
 * when that meets a duplicate key, somebody else inserted it meanwhile, and the update runs again.
 *
 * The stages of a whenMatched pipeline may name the variables of `let` (`$$new` unless others are
 * given). Update pipelines know no variables, so each expression E of the stages becomes
 * {$let: {vars: {new: {$literal: value}}, in: E}}.
 */
#include "store/merge_stage.h"

#include "base/limits.h"
#include "query/expression/expression.h"
#include "query/incoming.h"

#define ATTEMPTS 10 /* against other writers of the same key */

enum when_matched { MATCHED_REPLACE, MATCHED_KEEP, MATCHED_MERGE, MATCHED_FAIL, MATCHED_PIPELINE };
enum when_missing { MISSING_INSERT, MISSING_DISCARD, MISSING_FAIL };

struct merge {
    truce_store *store;
    const char *into;
    const char *on[TRUCE_INDEX_FIELDS_MAX];
    uint32_t on_count;
    struct value let;      /* document, or missing */
    struct value pipeline; /* with MATCHED_PIPELINE */
    enum when_matched matched;
    enum when_missing missing;
    bool unvalidated;
};

/* ---- the options ---------------------------------------------------------------------------- */

static const char *stage_text_of(struct value value)
{
    uint32_t length;

    return value.type == BSON_TYPE_UTF8 ? truce__value_text(value, &length) : "";
}

/* The number of the word in the list, or -1. */
static int word_number(struct value value, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(stage_text_of(value), words[i]))
            return i;
    return -1;
}

static truce_status parse_matched(struct value value, struct merge *merge, bson_error_t *error)
{
    static const char *const words[] = {"replace", "keepExisting", "merge", "fail", NULL};
    int number = word_number(value, words);

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
    int number = word_number(value, words);

    if (value.type != VALUE_MISSING && number < 0)
        return truce__refuse(CODE_BAD_VALUE, error, "$merge: whenNotMatched cannot be \"%s\"",
                             stage_text_of(value));
    merge->missing = value.type == VALUE_MISSING ? MISSING_INSERT : (enum when_missing)number;
    return TRUCE_OK;
}

static truce_status parse_on(struct value on, struct merge *merge, bson_error_t *error)
{
    struct fields fields;

    if (on.type == VALUE_MISSING || on.type == BSON_TYPE_UTF8) {
        merge->on[merge->on_count++] = on.type == VALUE_MISSING ? "_id" : stage_text_of(on);
        return TRUCE_OK;
    }
    if (on.type != BSON_TYPE_ARRAY)
        return truce__refuse(51186, error, "$merge: `on` is a field or an array of fields");
    for (fields = truce__fields(on); truce__fields_next(&fields);) {
        if (fields.value.type != BSON_TYPE_UTF8 || merge->on_count == TRUCE_INDEX_FIELDS_MAX)
            return truce__refuse(51134, error, "$merge: `on` is an array of at most %d fields",
                                 TRUCE_INDEX_FIELDS_MAX);
        merge->on[merge->on_count++] = stage_text_of(fields.value);
    }
    if (merge->on_count == 0)
        return truce__refuse(51187, error, "$merge: `on` is empty");
    return TRUCE_OK;
}

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

/* Is this the definition of a unique index over exactly the fields of `on`, in any order? */
static bool fits(const struct merge *merge, struct value definition)
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
            found = found || fits(merge, fields.value);
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

/* [{$replaceWith: {$mergeObjects: ["$$ROOT", {$literal: document}]}}] */
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

/* {name: {$literal: value}, ...} of `let`, or of {new: document} */
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

/* `key`: {$let: {vars: variables, in: value}} */
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

/* The fields of $set or $project: expressions are wrapped, nested fields walked, numbers and truth
 * values (inclusion and exclusion) left alone. */
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

static void stage_append_stage(bson_t *stages, uint32_t number, struct value stage,
                               const bson_t *variables)
{
    struct fields fields = truce__fields(stage);
    char buffer[16];
    const char *key;
    bson_t copy, inner;

    bson_uint32_to_string(number, &key, buffer, sizeof(buffer));
    BSON_APPEND_DOCUMENT_BEGIN(stages, key, &copy);
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
    bson_append_document_end(stages, &copy);
}

static truce_status make_stages(const struct merge *merge, const bson_t *document,
                                struct query_context *context, bson_t *stages, bson_error_t *error)
{
    bson_t variables = BSON_INITIALIZER;
    truce_status status = make_variables(merge, document, context, &variables, error);
    struct fields fields = truce__fields(merge->pipeline);
    uint32_t number = 0;

    while (!status && truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_DOCUMENT)
            status = truce__refuse(CODE_TYPE_MISMATCH, error,
                                   "$merge: a stage of whenMatched is not a document");
        else
            stage_append_stage(stages, number++, fields.value, &variables);
    }
    bson_destroy(&variables);
    return status;
}

/* ---- one document --------------------------------------------------------------------------- */

/* Does to the match what whenMatched says; `*found` says whether there was one. */
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

static truce_status stage_put(const struct merge *merge, const bson_t *filter,
                              const bson_t *document, struct query_context *context,
                              bson_error_t *error)
{
    const truce_write_options options = {.unvalidated = merge->unvalidated};
    truce_status status = TRUCE_OK;
    bool found = false;

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        status = change_match(merge, filter, document, context, &found, error);
        if (status || found || merge->missing == MISSING_DISCARD)
            return status;
        if (merge->missing == MISSING_FAIL)
            return truce__refuse(13113, error, "$merge: no document of %s matches", merge->into);
        status = truce_insert(merge->store, merge->into, document, &options, error);
        if (status != TRUCE_DUPLICATE || merge->matched == MATCHED_FAIL)
            return status;
    }
    return status;
}

/* Is `_id` one of the fields of `on`? Then a document without one gets it before it is looked for. */
static bool is_on_id(const struct merge *merge)
{
    for (uint32_t i = 0; i < merge->on_count; i++)
        if (!strcmp(merge->on[i], "_id"))
            return true;
    return false;
}

truce_status truce__merge_new(truce_store *store, const bson_t *stage, bool unvalidated,
                              struct merge **merge, bson_error_t *error)
{
    struct merge *made = bson_malloc0(sizeof(*made));
    truce_status status = stage_parse(stage, made, error);

    made->store = store;
    made->unvalidated = unvalidated;
    if (!status)
        status = stage_check_unique(made, error);
    if (status) {
        truce__merge_free(made);
        made = NULL;
    }
    *merge = made;
    return status;
}

void truce__merge_free(struct merge *merge)
{
    bson_free(merge);
}

truce_status truce__merge_put(const struct merge *merge, const bson_t *document,
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
        status = stage_put(merge, &filter, document, context, error);
    bson_destroy(&prepared);
    bson_destroy(&filter);
    return status;
}
