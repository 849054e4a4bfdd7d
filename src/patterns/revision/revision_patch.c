/* Saves as patches, and differences of documents. */
#include "patterns/revision/revision.h"

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "merge/json_patch.h"
#include "query/input_check.h"
#include "query/update/update.h"

struct patching {
    truce_revision *revision;
    const bson_value_t *id;
    int64_t version;
    bool any;
    truce_patch_kind kind;
    const bson_t *patch;
    truce_revision_result *result;
};

/* Applies update operators to `before`. `after` is always initialized. Returns INVALID if the patch
 * is a whole document. */
static truce_status patch_apply_operators(const bson_t *before, const bson_t *operators,
                                          bson_t *after, bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_result result;
    struct update *update = NULL;
    truce_status status = truce__update_new(operators, NULL, &update, error);

    if (!status && truce__update_is_replacement(update))
        status = truce__fail(
            TRUCE_INVALID, error,
            "a patch must consist of operators ($set, $inc, ...); save a whole document "
            "to replace it");
    if (status)
        bson_init(after);
    else
        status = truce__update_apply(update, before, NULL, &context, after, &result, error);
    truce__update_free(update);
    truce__arena_release(&arena);
    return status;
}

/* Applies a JSON patch (RFC 6902) to `before`. `after` is always initialized. Returns INVALID if
 * the result is not a document. */
static truce_status apply_json(const bson_t *before, const bson_t *operations, bson_t *after,
                               bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct value value;
    truce_status status =
        truce__patch_apply(truce__value_document(before), operations, &arena, &value, error);

    bson_init(after);
    if (!status && value.type != BSON_TYPE_DOCUMENT) {
        status = truce__fail(TRUCE_INVALID, error, "the patch results in %s, not in a document",
                             truce__type_name(value.type));
    } else if (!status) {
        bson_t borrowed;

        truce__value_bson(value, &borrowed);
        bson_concat(after, &borrowed);
    }
    truce__arena_release(&arena);
    return status;
}

/* Applies the patch to the document. A change of its _id fails. */
static truce_status patch_apply(const struct patching *patching, const bson_t *before,
                                bson_t *after, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct value old, new;

    if (patching->kind == TRUCE_PATCH_OPERATORS)
        status = patch_apply_operators(before, patching->patch, after, error);
    else if (patching->kind == TRUCE_PATCH_JSON)
        status = apply_json(before, patching->patch, after, error);
    else
        truce__merge_patch_apply(truce__value_document(before),
                                 truce__value_document(patching->patch), after);
    old = truce__value_field(truce__value_document(before), "_id", 3);
    new = truce__value_field(truce__value_document(after), "_id", 3);
    if (!status && !truce__value_identical(old, new))
        status = truce__refuse(CODE_IMMUTABLE_FIELD, error, "a patch cannot change the _id");
    return status;
}

/* Fails with INVALID if the patch changes the number of the document and nothing else. Next to other
 * changes, the number is ignored, because a program may send it together with the document that it
 * read. */
static truce_status patch_check_number(const truce_revision *revision, const bson_t *before,
                                       const bson_t *after, int64_t number, bson_error_t *error)
{
    int64_t given;
    bson_t content;
    bool alone;

    if (!bson_has_field(after, revision->version) ||
        (truce__field_whole(after, revision->version, &given) && given == number))
        return TRUCE_OK;
    truce__revision_content(revision, after, &content);
    alone = bson_equal(before, &content);
    bson_destroy(&content);
    if (!alone)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the patch changes only \"%.80s\", the number of the document: each save "
                       "sets it to the next number",
                       revision->version);
}

/* Applies a patch to the stored document in a commit, and saves the result. */
static truce_status patch_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct patching *patching = arg;
    struct revision_save save = {.revision = patching->revision,
                                 .rules = patching->revision->rules,
                                 .current = patching->any,
                                 .result = patching->result};
    bson_t theirs, content, after = BSON_INITIALIZER;
    truce_status status =
        truce_commit_read(commit, patching->revision->collection, patching->id, &theirs, error);

    truce__revision_content(patching->revision, &theirs, &content);
    if (!status)
        status = truce__revision_number(patching->revision, &theirs, &save.version, error);
    if (!status) {
        bson_destroy(&after);
        status = patch_apply(patching, &content, &after, error);
    }
    if (!status)
        status = patch_check_number(patching->revision, &content, &after, save.version, error);
    /* If the caller gave a number, a document with another number is a conflict. */
    if (!status && !patching->any)
        save.version = patching->version;
    save.mine = &after;
    if (!status)
        status = truce__revision_save_in(commit, &save, error);
    bson_destroy(&after);
    bson_destroy(&content);
    bson_destroy(&theirs);
    return status;
}

static truce_status patch_check_kind(truce_patch_kind kind, bson_error_t *error)
{
    if (kind >= TRUCE_PATCH_OPERATORS && kind <= TRUCE_PATCH_MERGE)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "the kind %d of a patch is unknown: expected a truce_patch_kind", (int)kind);
}

truce_status truce_revision_patch(truce_revision *revision, truce_commit *commit,
                                  const bson_value_t *id, int64_t version, bool any,
                                  truce_patch_kind kind, const bson_t *patch,
                                  truce_revision_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(result, error);

    struct patching patching = {revision, id, version, any, kind, patch, result};
    truce_status status = truce__check_required(patch, "patch", error);

    if (!status)
        status = patch_check_kind(kind, error);
    *result = (truce_revision_result){.document = BSON_INITIALIZER, .conflict = BSON_INITIALIZER};
    return status ? status : truce__revision_write(revision, commit, patch_in, &patching, error);
}

truce_status truce_revision_diff(const bson_t *before, const bson_t *after, truce_patch_kind kind,
                                 bson_t *patch, bson_error_t *error)
{
    RETURN_IF_NULL(patch, error);

    struct value old, new;
    truce_status status = truce__check_required(before, "document before", error);

    if (!status)
        status = truce__check_required(after, "document after", error);
    if (!status)
        status = patch_check_kind(kind, error);
    if (status) {
        bson_init(patch);
        return status;
    }
    old = truce__value_document(before);
    new = truce__value_document(after);
    if (kind == TRUCE_PATCH_JSON)
        truce__patch_diff(old, new, patch);
    else if (kind == TRUCE_PATCH_OPERATORS)
        truce__operators_diff(old, new, patch);
    else if (!truce__merge_patch_diff(old, new, patch))
        return truce__fail(TRUCE_INVALID, error,
                           "a merge patch cannot set a field to null; use a JSON patch");
    return TRUCE_OK;
}
