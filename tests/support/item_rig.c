#include "tests/support/item_rig.h"

#include <stdlib.h>

#include "patterns/item/item.h"
#include "tests/support/masked.h"
#include "tests/support/server.h"
#include "tests/support/tutorial.h"

#define NO_OPERATOR TRUCE_CAN_ITEM_UPDATE
#define NO_FILTERS  (TRUCE_CAN_ITEM_UPDATE | TRUCE_CAN_ARRAY_FILTERS)

static const struct item_way all_ways[] = {
    {"operator", "memory", 0, false, TRUCE_ITEM_ARRAY},
    {"filters", "memory", NO_OPERATOR, false, TRUCE_ITEM_ARRAY},
    {"positional", "memory", NO_FILTERS, false, TRUCE_ITEM_ARRAY},
    {"commit", "memory", 0, true, TRUCE_ITEM_ARRAY},
    {"map", "memory", 0, false, TRUCE_ITEM_MAP},
    {"map in a commit", "memory", NO_FILTERS, true, TRUCE_ITEM_MAP},
    {"operator in a file", "file", 0, false, TRUCE_ITEM_ARRAY},
    {"filters in a file", "file", NO_OPERATOR, false, TRUCE_ITEM_ARRAY},
    {"positional in a file", "file", NO_FILTERS, false, TRUCE_ITEM_ARRAY},
    {"commit in a file", "file", 0, true, TRUCE_ITEM_ARRAY},
    {"map in a file", "file", NO_FILTERS, false, TRUCE_ITEM_MAP},
};
#define ALL_WAYS (sizeof all_ways / sizeof *all_ways)

struct item_way item_ways[ALL_WAYS];
int item_ways_count;

/* If the program runs at a server, the server's store replaces each of the stores in memory, and
 * there are no others. */
static bool is_here(const struct item_way *way)
{
    char name[60];

    if (!server_under_test())
        return true;
    snprintf(name, sizeof name, "item_way_%s", way->name);
    for (char *at = name; *at; at++)
        *at = *at == ' ' ? '_' : *at;
    return !strcmp(way->scheme, "memory") && !test_excused(name);
}

__attribute__((constructor)) static void choose_ways(void)
{
    for (size_t i = 0; i < ALL_WAYS; i++) {
        if (is_here(&all_ways[i]))
            item_ways[item_ways_count++] = all_ways[i];
    }
}

const struct item_way *item_way_named(const char *name)
{
    size_t i = 0;

    while (i < ALL_WAYS && strcmp(all_ways[i].name, name) != 0)
        i++;
    if (i == ALL_WAYS)
        abort();
    return &all_ways[i];
}

bool item_call_here(const char *text)
{
    static int excused = -1;

    if (!strstr(text, "'$or'") && !strstr(text, "'$nor'"))
        return true;
    if (excused < 0)
        excused = test_excused("item_conditions_combined");
    return !excused;
}

truce_store *item_rig_open(const struct item_way *way)
{
    static int number;
    truce_store *store = NULL;
    bson_error_t error;
    char uri[400];

    if (server_under_test())
        return way->lacks ? masked_wrap(server_store(), way->lacks) : server_store();
    if (!strcmp(way->scheme, "memory"))
        snprintf(uri, sizeof uri, "memory:");
    else
        snprintf(uri, sizeof uri, "file:%s/i%d.truce", test_directory(), number++);
    if (!CHECK_OK(truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error),
                  error))
        abort();
    return way->lacks ? masked_wrap(store, way->lacks) : store;
}

/* ---- calls as text ---- */

struct request {
    truce_item *item;
    char verb[16];
    /* The filter, and the further documents of the verb or NULL. Owned. */
    bson_t *filter, *first, *second;
    truce_item_result *result;
};

/* Returns the documents after the verb: from one brace at the outermost level to the next. */
static bson_t *next_document(const char **at)
{
    const char *from = strchr(*at, '{');
    int depth = 0;
    char *text;
    bson_t *document;

    if (!from)
        return NULL;
    for (*at = from;; ++*at) {
        depth += (**at == '{') - (**at == '}');
        if (!depth)
            break;
    }
    ++*at;
    text = bson_strndup(from, (size_t)(*at - from));
    document = test_bson(text);
    bson_free(text);
    return document;
}

static truce_status call(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct request *r = arg;

    if (!strcmp(r->verb, "update"))
        return truce_item_update(r->item, commit, r->filter, r->first, r->second, r->result, error);
    if (!strcmp(r->verb, "add"))
        return truce_item_add(r->item, commit, r->filter, r->first, r->result, error);
    if (!strcmp(r->verb, "replace"))
        return truce_item_replace(r->item, commit, r->filter, r->second, r->first, r->result,
                                  error);
    if (!strcmp(r->verb, "upsert"))
        return truce_item_upsert(r->item, commit, r->filter, r->first, r->result, error);
    if (!strcmp(r->verb, "remove"))
        return truce_item_remove(r->item, commit, r->filter, r->first, r->result, error);
    abort();
}

truce_status item_rig_call(truce_item *item, const struct item_way *way, truce_store *store,
                           const char *text, truce_item_result *result, bson_error_t *error)
{
    struct request request = {.item = item, .result = result};
    truce_status status;

    if (sscanf(text, "%15s", request.verb) != 1)
        abort();
    request.filter = test_bson("{'_id': 1}");
    request.first = next_document(&text);
    request.second = next_document(&text);
    status = way && way->in_commit ? truce_transact(store, call, &request, NULL, error)
                                   : call(NULL, &request, error);
    bson_destroy(request.filter);
    bson_destroy(request.first);
    bson_destroy(request.second);
    return status;
}

bson_t *item_rig_read(truce_store *store, const char *collection, const char *field)
{
    bson_t *filter = test_bson("{'_id': 1}"), *plain = bson_new(), found;
    truce_item *item =
        tutorial_item(store, &(truce_item_options){.collection = collection, .field = field});
    struct fields fields;
    bson_error_t error;

    CHECK_OK(truce_find_one(store, collection, filter, NULL, &found, &error), error);
    fields = truce__fields(truce__value_document(&found));
    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "_rev"))
            continue;
        if (!strcmp(fields.key, field) && fields.value.type == BSON_TYPE_DOCUMENT) {
            bson_t made;

            truce__item_to_array(item, fields.value, &made);
            truce__value_append(plain, field, strlen(field),
                                truce__value_field(truce__value_document(&made), "v", 1));
            bson_destroy(&made);
            continue;
        }
        truce__value_append(plain, fields.key, fields.key_length, fields.value);
    }
    truce_item_free(item);
    bson_destroy(&found);
    bson_destroy(filter);
    return plain;
}
