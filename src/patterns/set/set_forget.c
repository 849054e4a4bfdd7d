/*
 * A set that is given up: its definition goes, what consumers recorded, and its sources. The lists in the
 * documents are the user's, and stay.
 *
 * The definition goes last, so that a call that was cut off can be made again. What is recorded goes
 * first: a definition without records collects nothing, which is safe.
 */
#include "patterns/set/set_protect.h"

static bool is_list(const bson_t *document, const char *field)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, field) && BSON_ITER_HOLDS_ARRAY(&iter);
}

/* Does any document hold an element, or a tombstone? */
static truce_status forget_is_used(truce_set *set, bool *used, bson_error_t *error)
{
    bool by_element = set->layout == TRUCE_SET_BY_ELEMENT;
    bson_t *filter = by_element ? bson_new()
                                : BCON_NEW("$or", "[", "{", set->field, "{", "$exists",
                                           BCON_BOOL(true), "}", "}", "{", set->deleted, "{",
                                           "$exists", BCON_BOOL(true), "}", "}", "]");
    bson_t found;
    truce_status status = truce_find_one(set->store, by_element ? set->elements : set->collection,
                                         filter, NULL, &found, error);

    *used = !status && (by_element || is_list(&found, set->field) || is_list(&found, set->deleted));
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status forget_remove_all(truce_set *set, const char *collection, const char *field,
                                      int64_t *removed, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(field, BCON_UTF8(set->id));
    truce_write_options options = {.multi = true};
    truce_write_result result = {0};
    truce_status status = truce_remove(set->store, collection, filter, &options, &result, error);

    *removed = result.removed;
    truce_write_result_release(&result);
    bson_destroy(filter);
    return status;
}

truce_status truce_set_forget(truce_set *set, bool anyway, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    int64_t removed = 0;
    bool used = false;
    truce_status status = TRUCE_OK;

    if (set->refused) {
        if (error)
            *error = set->refusal;
        return TRUCE_INVALID;
    }
    if (!anyway)
        status = forget_is_used(set, &used, error);
    if (!status && used)
        status = truce__fail(TRUCE_CONFLICT, error, "documents of %s hold the list \"%s\"",
                             set->collection, set->field);
    if (!status && set->layout == TRUCE_SET_IN_DOCUMENT)
        status = truce__set_unprotect(set, error);
    if (!status)
        status = forget_remove_all(set, SET_PROGRESS, "_id.set", &removed, error);
    if (!status)
        status = forget_remove_all(set, SET_SOURCES, "_id.set", &removed, error);
    if (!status)
        status = forget_remove_all(set, SET_DEFINITIONS, "_id", &removed, error);
    if (!status && !removed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no set %s", set->id);
    atomic_store_explicit(&set->structure, 0, memory_order_release);
    return status;
}
