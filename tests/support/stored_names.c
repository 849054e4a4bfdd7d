#include "tests/support/stored_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "store/decorators/decorator.h"
#include "tests/support/test.h"

#define CODE_DOLLAR 52
#define CODE_DOT    57

/* ---- names ---------------------------------------------------------------------------------- */

struct place {
    /* The first words of the message, and the path of the current field. */
    const char *what;
    char path[1000];
};

static truce_status refuse_name(const struct place *place, const char *name, bson_error_t *error)
{
    if (name[0] == '$')
        return truce__refuse(CODE_DOLLAR, error,
                             "%s: The dollar ($) prefixed field '%s' in '%s' is not valid for "
                             "storage.",
                             place->what, name, place->path);
    return truce__refuse(CODE_DOT, error,
                         "%s: The dotted field '%s' in '%s' is not valid for storage.", place->what,
                         name, place->path);
}

/* Returns whether a name is refused. The names of a reference to a document are allowed. */
static bool is_refused(const char *name)
{
    static const char *const references[] = {"$ref", "$id", "$db"};

    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        if (!strcmp(name, references[i]))
            return false;
    }
    return name[0] == '$' || strchr(name, '.');
}

/* Checks the names below place->path, at any depth. Array indexes are not checked. Restores
 * place->path. */
static truce_status check_below(struct place *place, bson_iter_t *iter, bool array,
                                bson_error_t *error)
{
    size_t length = strlen(place->path);
    truce_status status = TRUCE_OK;
    bson_iter_t below;

    while (!status && bson_iter_next(iter)) {
        const char *name = bson_iter_key(iter);

        snprintf(place->path + length, sizeof place->path - length, "%s%s", length ? "." : "",
                 name);
        if (!array && is_refused(name))
            status = refuse_name(place, name, error);
        else if ((BSON_ITER_HOLDS_DOCUMENT(iter) || BSON_ITER_HOLDS_ARRAY(iter)) &&
                 bson_iter_recurse(iter, &below))
            status = check_below(place, &below, BSON_ITER_HOLDS_ARRAY(iter), error);
        place->path[length] = 0;
    }
    return status;
}

truce_status stored_names_check(const bson_t *document, const char *what, bson_error_t *error)
{
    struct place place = {.what = what};
    bson_iter_t iter;

    bson_iter_init(&iter, document);
    return check_below(&place, &iter, false, error);
}

/* ---- writes --------------------------------------------------------------------------------- */

static bool stores_operands(const char *operator)
{
    static const char *const names[] = {"$set",      "$setOnInsert", "$push",
                                        "$addToSet", "$min",         "$max"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(operator, names[i]))
            return true;
    }
    return false;
}

/* Returns what $push or $addToSet stores: the elements of {$each: [...], ...}, or the operand
 * itself. */
static bson_iter_t stored_part(const bson_iter_t *operand)
{
    bson_iter_t each;

    return BSON_ITER_HOLDS_DOCUMENT(operand) && bson_iter_recurse(operand, &each) &&
                   bson_iter_find(&each, "$each")
               ? each
               : *operand;
}

static truce_status check_operands(struct place *place, bson_iter_t *fields, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && bson_iter_next(fields)) {
        bson_iter_t operand = stored_part(fields), below;

        snprintf(place->path, sizeof place->path, "%s", bson_iter_key(fields));
        if ((BSON_ITER_HOLDS_DOCUMENT(&operand) || BSON_ITER_HOLDS_ARRAY(&operand)) &&
            bson_iter_recurse(&operand, &below))
            status = check_below(place, &below, BSON_ITER_HOLDS_ARRAY(&operand), error);
    }
    return status;
}

static truce_status check_update(const char *what, const bson_t *update, bool pipeline,
                                 bson_error_t *error)
{
    struct place place = {.what = what};
    truce_status status = TRUCE_OK;
    bson_iter_t iter, fields;

    if (!update || pipeline || !bson_iter_init(&iter, update) || !bson_iter_next(&iter))
        return TRUCE_OK;
    if (bson_iter_key(&iter)[0] != '$')
        return stored_names_check(update, what, error);
    do {
        if (stores_operands(bson_iter_key(&iter)) && bson_iter_recurse(&iter, &fields))
            status = check_operands(&place, &fields, error);
    } while (!status && bson_iter_next(&iter));
    return status;
}

static truce_status check_write(const truce_write *write, bson_error_t *error)
{
    if (write->kind == TRUCE_WRITE_INSERT)
        return stored_names_check(write->document, write->collection, error);
    return write->kind == TRUCE_WRITE_UPDATE
               ? check_update(write->collection, write->document, write->options.pipeline, error)
               : TRUCE_OK;
}

/* Checks the writes of a bulk. If one is refused, executes those before it, unless the bulk is
 * atomic. */
static truce_status run_bulk(struct decorator *decorator, const struct decorated_call *call,
                             bson_error_t *error)
{
    struct decorated_call part = *call;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < call->number; i++) {
        bson_error_t why;

        status = check_write(&call->writes[i], &why);
        if (!status)
            continue;
        part.number = i;
        if (i && !call->how.bulk->atomic)
            (void)truce__decorated_run(decorator, &part, error);
        for (size_t k = i; k < call->number; k++)
            call->outcomes[k] = (truce_write_outcome){.status = status, .error = why};
        if (error)
            *error = why;
        return status;
    }
    return truce__decorated_run(decorator, call, error);
}

static truce_status on_call(struct decorator *decorator, const struct decorated_call *call,
                            bson_error_t *error)
{
    truce_status status;

    if (call->verb == VERB_BULK)
        return run_bulk(decorator, call, error);
    if (call->verb == VERB_FIND_AND_MODIFY) {
        status = check_update(call->collection, call->document, call->how.modify->pipeline, error);
        if (status) {
            bson_init(call->answer);
            return status;
        }
    }
    return truce__decorated_run(decorator, call, error);
}

/* ---- stored documents ------------------------------------------------------------------------ */

static void check_collection(truce_store *store, const char *name)
{
    const bson_t none = BSON_INITIALIZER, *document;
    truce_cursor *cursor = NULL;
    bson_error_t error;

    if (truce_find(store, name, &none, NULL, &cursor, &error))
        return;
    while (!truce_cursor_next(cursor, &document, &error) && document) {
        if (stored_names_check(document, name, &error)) {
            test_fail(__FILE__, __LINE__, "%s", error.message);
            break;
        }
    }
    truce_cursor_close(cursor);
}

static void (*close_decorator)(truce_store *store);

static void close_store(truce_store *store)
{
    const struct decorator *decorator = (struct decorator *)store;
    bson_t collections;
    bson_iter_t iter, field;

    if (!truce_collection_list(decorator->inner, NULL, &collections, NULL)) {
        for (bson_iter_init(&iter, &collections); bson_iter_next(&iter);)
            if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name"))
                check_collection(decorator->inner, bson_iter_utf8(&field, NULL));
    }
    bson_destroy(&collections);
    close_decorator(store);
}

static const struct decorator_kind stored_names_kind = {.call = on_call};

/* A standalone server of those versions lacks these capabilities. */
#define LACKS                                                                                      \
    (TRUCE_CAN_ITEM_UPDATE | TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_SNAPSHOT_READ |                     \
     TRUCE_CAN_KEEP_ORDER | TRUCE_CAN_REWRITE | TRUCE_CAN_COMPARE | TRUCE_CAN_RECEIPT |            \
     TRUCE_CAN_SORT_UPDATE)

truce_store *stored_names_wrap(truce_store *inner)
{
    struct decorator *made = bson_malloc0(sizeof *made);

    truce__decorator_init(made, &stored_names_kind, inner);
    close_decorator = made->ops.close;
    made->ops.close = close_store;
    made->base.capabilities &= ~(uint32_t)LACKS;
    return &made->base;
}

/* ---- every store of a program --------------------------------------------------------------- */

truce_status __real_truce_store_open(const char *uri, const truce_store_options *options,
                                     truce_store **store, bson_error_t *error);

/* The linker uses this function in place of truce_store_open (tests/CMakeLists.txt). */
truce_status __wrap_truce_store_open(const char *uri, const truce_store_options *options,
                                     truce_store **store, bson_error_t *error);
truce_status __wrap_truce_store_open(const char *uri, const truce_store_options *options,
                                     truce_store **store, bson_error_t *error)
{
    truce_status status = __real_truce_store_open(uri, options, store, error);

    if (!status && getenv("TRUCE_TEST_STORED_NAMES"))
        *store = stored_names_wrap(*store);
    return status;
}
