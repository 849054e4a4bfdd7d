#include "store/decorators/database.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/status.h"
#include "store/decorators/decorator.h"
#include "store/reserved.h"

struct database {
    struct decorator base;                 /* first */
    char prefix[TRUCE_PLACE_NAME_MAX + 1]; /* "@school." */
};

static struct database *database_of(truce_store *store)
{
    return (struct database *)store;
}

static char *place(const struct database *database, const char *collection)
{
    return bson_strdup_printf("%s%s", database->prefix, collection);
}

static truce_status run_bulk(struct decorator *decorator, const struct decorated_call *call,
                             bson_error_t *error)
{
    struct database *database = (struct database *)decorator;
    truce_write *writes = bson_malloc0(call->number * sizeof *writes);
    struct decorated_call changed = *call;
    truce_status status;

    for (size_t i = 0; i < call->number; i++) {
        writes[i] = call->writes[i];
        writes[i].collection = place(database, call->writes[i].collection);
    }
    changed.writes = writes;
    status = truce__decorated_run(decorator, &changed, error);
    for (size_t i = 0; i < call->number; i++)
        bson_free((char *)writes[i].collection);
    bson_free(writes);
    return status;
}

static truce_status run_on(struct decorator *decorator, const struct decorated_call *call,
                           bson_error_t *error)
{
    char *name = place((struct database *)decorator, call->collection);
    struct decorated_call changed = *call;
    truce_status status;

    changed.collection = name;
    status = truce__decorated_run(decorator, &changed, error);
    bson_free(name);
    return status;
}

static truce_status on_call(struct decorator *decorator, const struct decorated_call *call,
                            bson_error_t *error)
{
    switch (call->verb) {
    case VERB_NEXT:
        return truce__decorated_run(decorator, call, error);
    case VERB_BULK:
        return run_bulk(decorator, call, error);
    case VERB_FIND:
    case VERB_COUNT:
    case VERB_DISTINCT:
    case VERB_EXPLAIN:
    case VERB_FIND_AND_MODIFY:
    case VERB_INDEX_CREATE:
    case VERB_INDEX_DROP:
    case VERB_INDEX_MODIFY:
    case VERB_INDEX_LIST:
    case VERB_COLLECTION_CREATE:
    case VERB_COLLECTION_DROP:
    case VERB_COLLECTION_VALIDATE:
    case VERB_WAIT:
        return run_on(decorator, call, error);
    default:
        return truce__fail(TRUCE_INVALID, error, "%s: not of one database alone",
                           truce__decorated_name(call));
    }
}

static truce_status validator(truce_store *store, const char *collection, bson_t *validator,
                              bson_error_t *error)
{
    struct database *database = database_of(store);
    truce_store *inner = database->base.inner;
    char *name = place(database, collection);
    truce_status status = inner->ops->validator(inner, name, validator, error);

    bson_free(name);
    return status;
}

/* The inner store stays. */
static void close_database(truce_store *store)
{
    bson_free(database_of(store));
}

truce_store *truce__database_holder(truce_store *store)
{
    return store->ops->close == close_database ? database_of(store)->base.inner : store;
}

truce_store *truce__database_open(truce_store *store, const char *collection)
{
    static const struct decorator_kind kind = {.call = on_call};
    struct database *made = bson_malloc0(sizeof *made);
    const char *within = truce__place_within(collection);

    truce_assert(within);
    truce__decorator_init(&made->base, &kind, store);
    made->base.ops.close = close_database;
    if (made->base.ops.validator)
        made->base.ops.validator = validator;
    made->base.ops.snapshot = NULL;
    snprintf(made->prefix, sizeof made->prefix, "%.*s", (int)(within - collection), collection);
    return &made->base.base;
}
