#include "store/collection_use.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/status.h"
#include "store/reserved_names.h"

/* The bytes of the name of a user of a collection, with the zero byte. */
#define USER_SHOWN 200

static const struct pattern_use {
    /* The collection with the records of the pattern, the field that names the collection, and a
     * noun for the message. The _id of a set also names the list. */
    const char *records, *field, *what;
} pattern_uses[] = {
    {LEDGERS, "_id", "a ledger"},
    {LEDGERS, "slots", "the numbers of ledger"},
    {SET_DEFINITIONS, "_id", "the set"},
    {TREES, "collection", "the items of tree"},
    {SYNC_RULES, "source", "the sources of rule"},
    {SYNC_RULES, "dependent", "the copies of rule"},
    {TRANSFERS, "_id", "a book of transfers"},
    {TRANSFERS, "accounts", "the accounts of transfers"},
};

/* Returns whether `id` is the name of a set of the collection: "students.classes". */
static bool use_is_set_of(const char *id, const char *collection)
{
    size_t size = strlen(collection);

    return !strncmp(id, collection, size) && id[size] == '.' && id[size + 1] &&
           !strchr(id + size + 1, '.');
}

/* Finds the name under which a pattern uses the collection. `name` is "" if the pattern does not
 * use it. */
static truce_status use_find(truce_store *store, const struct pattern_use *use,
                             const char *collection, char name[USER_SHOWN], bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *record = NULL;
    truce_status status = truce_find(store, use->records, &all, NULL, &cursor, error);

    *name = 0;
    while (!status && !*name && !(status = truce_cursor_next(cursor, &record, error)) && record) {
        const char *found = truce__field_text(record, use->field);

        if (!strcmp(use->records, SET_DEFINITIONS) ? use_is_set_of(found, collection)
                                                   : !strcmp(found, collection))
            snprintf(name, USER_SHOWN, "%s", truce__field_text(record, "_id"));
    }
    truce_cursor_close(cursor);
    bson_destroy(&all);
    return status;
}

/* The collections next to X in which patterns keep more of its documents. */
static const struct companion {
    const char *suffix, *what;
} companions[] = {
    {REVISIONS_SUFFIX, "earlier versions of its documents"},
    {GUARDS_SUFFIX, "watermarks of its elements"},
};

/* Sets `*exists` if the collection has documents. */
static truce_status use_has_documents(truce_store *store, const char *collection, bool *exists,
                                      bson_error_t *error)
{
    bson_t any = BSON_INITIALIZER, found;
    truce_status status = truce_find_one(store, collection, &any, NULL, &found, error);

    *exists = !status;
    bson_destroy(&found);
    bson_destroy(&any);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status use_refuse_companion(const char *collection, const char *companion,
                                         const struct companion *kind, bson_error_t *error)
{
    return truce__refuse(
        CODE_ILLEGAL_OPERATION, error,
        "\"%.120s\" has %s in \"%.120s\", and both belong together: export them and import them "
        "under other names, or drop \"%.120s\" first",
        collection, kind->what, companion, companion);
}

/* Refuses X if X.revisions has documents, and X.revisions if X has. */
static truce_status use_check_companion(truce_store *store, const char *collection,
                                        const struct companion *kind, bson_error_t *error)
{
    size_t length = strlen(collection), size = strlen(kind->suffix);
    bool is_companion = length > size && !strcmp(collection + length - size, kind->suffix),
         exists = false;
    char *other = is_companion ? bson_strndup(collection, length - size)
                               : bson_strdup_printf("%s%s", collection, kind->suffix);
    truce_status status = strlen(other) > TRUCE_COLLECTION_NAME_MAX
                              ? TRUCE_OK
                              : use_has_documents(store, other, &exists, error);

    if (!status && exists)
        status = is_companion ? use_refuse_companion(other, collection, kind, error)
                              : use_refuse_companion(collection, other, kind, error);
    bson_free(other);
    return status;
}

truce_status truce__collection_check_unused(truce_store *store, const char *collection,
                                            bson_error_t *error)
{
    char name[USER_SHOWN];

    if (truce__reserved_stored_name(collection))
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "%s is reserved for truce: it cannot be renamed or replaced",
                             collection);
    for (size_t i = 0; i < sizeof pattern_uses / sizeof *pattern_uses; i++) {
        const struct pattern_use *use = &pattern_uses[i];
        truce_status status = use_find(store, use, collection, name, error);

        if (status)
            return status;
        if (*name)
            return truce__refuse(
                CODE_ILLEGAL_OPERATION, error,
                "%.200s has %s \"%s\", which would not find it under another name: export and "
                "import its contents, or remove the pattern's record first",
                collection, use->what, name);
    }
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        truce_status status = use_check_companion(store, collection, &companions[i], error);

        if (status)
            return status;
    }
    return TRUCE_OK;
}
