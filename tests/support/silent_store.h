#ifndef TRUCE_TEST_SILENT_STORE_H
#define TRUCE_TEST_SILENT_STORE_H

/* A store that does not report that another client dropped or emptied a collection, like a MongoDB
 * server. */
#include "store/decorators/decorator.h"

static truce_status silent_run(struct decorator *decorator, const struct decorated_call *call,
                               bson_error_t *error)
{
    return truce__decorated_run(decorator, call, error);
}

/* A test raises it after changes of its own, which a store knows. */
static uint64_t silent_number = 1;

static uint64_t silent_structure(truce_store *store)
{
    (void)store;
    return silent_number;
}

/* Wraps the store, and does not report what happens to the inner store. */
static truce_store *silent_store(truce_store *inner)
{
    static const struct decorator_kind plain = {.call = silent_run};
    static truce_store_ops ops;
    struct decorator *made = bson_malloc0(sizeof *made);

    truce__decorator_init(made, &plain, inner);
    ops = *made->base.ops;
    ops.structure = silent_structure;
    made->base.ops = &ops;
    made->base.capabilities &= ~(uint32_t)TRUCE_CAN_COMPARE;
    return &made->base;
}

#endif
