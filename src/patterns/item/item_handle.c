/* The handle of array items: names that can be, and a form that the store can write. */
#include <string.h>

#include "base/assert.h"
#include "base/reserved_fields.h"
#include "patterns/item/item.h"

static void handle_refuse(truce_item *item, const char *what, const char *name)
{
    if (item->refused)
        return;
    item->refused = true;
    (void)truce__fail(TRUCE_INVALID, &item->refusal, "%s cannot be \"%s\"", what, name);
}

/* names with dots between; $[] as a whole name in the middle, if `arrays` */
static bool path_is_good(const char *path, bool arrays)
{
    if (strlen(path) > 400)
        return false;
    for (bool first = true;; first = false) {
        size_t length = strcspn(path, ".");
        bool through = length == 3 && !strncmp(path, "$[]", 3);

        if (!length || (path[0] == '$' && !(through && arrays && !first && path[length])))
            return false;
        if (!path[length])
            return true;
        path += length + 1;
    }
}

/* "a.b" is "a" or below it */
static bool handle_is_below(const char *path, const char *name)
{
    size_t length = strlen(name);

    return !strncmp(path, name, length) && (!path[length] || path[length] == '.');
}

/* "orders.$[].lines": plain "orders.lines", owner "orders" */
static void split_field(truce_item *item)
{
    bson_string_t *plain = bson_string_new(NULL);
    const char *through = strstr(item->field, ".$[]");

    for (const char *at = item->field; *at; at++) {
        if (!strncmp(at, ".$[]", 4))
            at += 3;
        else
            bson_string_append_c(plain, *at);
    }
    item->plain = bson_string_free(plain, false);
    item->nested = through != NULL;
    item->owner = through ? bson_strndup(item->field, (size_t)(through - item->field))
                          : bson_strdup(item->field);
}

static truce_item_form handle_form_for(const truce_store *store, truce_item_form wanted)
{
    if (wanted != TRUCE_ITEM_FORM_AUTO)
        return wanted;
    if (store->capabilities & TRUCE_CAN_ITEM_UPDATE)
        return TRUCE_ITEM_FORM_OPERATOR;
    return store->capabilities & TRUCE_CAN_ARRAY_FILTERS ? TRUCE_ITEM_FORM_FILTERS
                                                         : TRUCE_ITEM_FORM_POSITIONAL;
}

/* The user's own names: no default may write into a field that nobody meant. */
static const char *handle_must(truce_item *item, const char *option, const char *given)
{
    if (given)
        return given;
    if (!item->refused)
        (void)truce__fail(TRUCE_INVALID, &item->refusal,
                          "the option \"%s\" of the items is missing (they need collection, field"
                          " and identity)",
                          option);
    item->refused = true;
    return "?";
}

truce_item *truce_item_new(truce_store *store, const truce_item_options *options)
{
    static const truce_item_options defaults;
    truce_item *item = bson_malloc0(sizeof *item);

    truce_assert(store);
    if (!options)
        options = &defaults;
    item->store = store;
    item->refused = ROOM_CHECK(options, "truce_item_options", &item->refusal) != TRUCE_OK;
    item->collection = bson_strdup(handle_must(item, "collection", options->collection));
    item->field = bson_strdup(handle_must(item, "field", options->field));
    item->identity = bson_strdup(handle_must(item, "identity", options->identity));
    item->layout = options->layout;
    item->form = handle_form_for(store, options->form);
    item->version = options->version ? bson_strdup(options->version) : NULL;
    item->deadline_ms = options->deadline_ms;
    item->relaxed = options->relaxed;
    if (!path_is_good(item->field, true))
        handle_refuse(item, "the path of the items", item->field);
    if (strchr(item->identity, '.') || !path_is_good(item->identity, false))
        handle_refuse(item, "the field that identifies an item", item->identity);
    split_field(item);
    if (!strcmp(item->owner, "_id") || !strcmp(item->owner, "_rev") ||
        !strcmp(item->owner, "_intent"))
        handle_refuse(item, "the path of the items", item->field);
    if (item->version && (!path_is_good(item->version, false) || strchr(item->version, '.') ||
                          item->version[0] == '_' || handle_is_below(item->owner, item->version)))
        handle_refuse(item, "the field of the number", item->version);
    if (item->nested && item->layout == TRUCE_ITEM_MAP)
        handle_refuse(item, "the path of items in a map", item->field);
    if ((item->form == TRUCE_ITEM_FORM_OPERATOR &&
         !(store->capabilities & TRUCE_CAN_ITEM_UPDATE)) ||
        (item->form == TRUCE_ITEM_FORM_FILTERS && !(store->capabilities & TRUCE_CAN_ARRAY_FILTERS)))
        handle_refuse(item, "the form of item updates on this store",
                      item->form == TRUCE_ITEM_FORM_OPERATOR ? "operator" : "filters");
    return item;
}

void truce_item_free(truce_item *item)
{
    if (!item)
        return;
    bson_free(item->collection);
    bson_free(item->field);
    bson_free(item->identity);
    bson_free(item->plain);
    bson_free(item->owner);
    bson_free(item->version);
    bson_free(item);
}
