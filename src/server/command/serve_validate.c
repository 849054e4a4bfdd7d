/* validate: checks a collection of a file as truce check does. */
#include "server/command/handlers.h"

#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "truce/sys/store.h"

struct validation {
    bool full, background; /* Options that are accepted and have no effect. */
    const char *stored_name;
    bson_t errors;
    uint32_t count;
};

/* Takes a finding {rule, ns, text}. A finding without a collection concerns all collections. */
static void validate_take_finding(const bson_t *finding, void *arg)
{
    struct validation *validation = arg;
    const char *name;
    char key[16];
    bson_iter_t ns, text;

    if (!bson_iter_init_find(&text, finding, "text") || !BSON_ITER_HOLDS_UTF8(&text) ||
        validation->count == TRUCE_SERVER_FINDINGS_MAX)
        return;
    if (bson_iter_init_find(&ns, finding, "ns") && BSON_ITER_HOLDS_UTF8(&ns) &&
        bson_iter_utf8(&ns, NULL)[0] &&
        strcmp(bson_iter_utf8(&ns, NULL), validation->stored_name) != 0)
        return;
    bson_uint32_to_string(validation->count++, &name, key, sizeof key);
    BSON_APPEND_UTF8(&validation->errors, name, bson_iter_utf8(&text, NULL));
}

static const struct field validate_fields[] = {
    {"full", FIELD_FLAG, offsetof(struct validation, full)},
    {"background", FIELD_FLAG, offsetof(struct validation, background)},
    {"checkBSONConformance", FIELD_IGNORED, 0},
    {"metadata", FIELD_IGNORED, 0},
    {"scandata", FIELD_IGNORED, 0},
    {"repair", FIELD_PLAIN, 0},
    {"enforceFastCount", FIELD_IGNORED, 0},
    {NULL, FIELD_IGNORED, 0}};

static void validate_append(struct call *call, const struct validation *validation,
                            const bson_t *facts, bson_t *reply)
{
    BSON_APPEND_UTF8(reply, "ns", call_namespace(call, bson_iter_utf8(&call->value, NULL)));
    BCON_APPEND(reply, "nrecords", BCON_INT64(truce__field_number(facts, "documents")), "nIndexes",
                BCON_INT32((int32_t)truce__field_number(facts, "indexes")), "valid",
                BCON_BOOL(!validation->count), "repaired", BCON_BOOL(false), "warnings", "[", "]",
                "errors", BCON_ARRAY(&validation->errors));
}

truce_status serve_validate(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct validation validation = {.errors = BSON_INITIALIZER};
    truce_store *store = call->server->store;
    bson_t facts = BSON_INITIALIZER;
    char stored_name[STORED_NAME_MAX];
    bool there = false;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = call_own_fields(call, validate_fields, &validation, error);
    if (!status && validation.full && validation.background)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "Running the validate command with both { background: true } and { "
                               "full: true } is not supported.");
    if (!status) {
        bson_destroy(&facts);
        status = serve_is_there(call, stored_name, &there, &facts, error);
    }
    if (!status && !there)
        status = serve_no_such_namespace(call, error);
    validation.stored_name = stored_name;
    if (!status && store->ops->examine)
        status = store->ops->examine(store, false, validate_take_finding, &validation, error);
    if (!status)
        validate_append(call, &validation, &facts, reply);
    bson_destroy(&validation.errors);
    bson_destroy(&facts);
    return status;
}
