/*
 * Reports slow calls of a store to the `slow` function of its hooks, with the time and the status.
 * The program decides what to do with a report: the command line prints it (--slow,
 * cli/core/slow_option.c). The log of slow commands of a server is another file
 * (server/admin/slow_command_log.c), because a command may make many calls.
 */
#include "store/decorators/slow_calls.h"

#include "base/assert.h"
#include "base/clock.h"
#include "store/decorators/decorator.h"

/* The default of the hooks, in milliseconds. */
#define SLOW_MS 100

struct slow_store {
    /* Must be the first field. */
    struct decorator base;
    truce_store_hooks hooks;
};

/* Returns the name of the call that the caller has made: inserts, updates, and removes arrive as
 * bulks of one. */
static const char *slow_name_of(const struct decorated_call *call)
{
    if (call->verb == VERB_BULK && call->number == 1 && call->writes->kind <= TRUCE_WRITE_REMOVE)
        return truce__write_name(call->writes->kind);
    return truce__decorated_name(call);
}

/* Runs the call, and reports it if it took at least slow_ms. A wait is never reported. */
static truce_status slow_on_call(struct decorator *decorator, const struct decorated_call *call,
                                 bson_error_t *error)
{
    const truce_store_hooks *hooks = &((const struct slow_store *)decorator)->hooks;
    int64_t begin_ns = truce__clock_monotonic_ns();
    truce_status status = truce__decorated_run(decorator, call, error);
    truce_slow_call slow = {
        .collection = call->collection,
        .duration_us = (truce__clock_monotonic_ns() - begin_ns) / 1000,
        .status = status,
        .message = status ? error->message : NULL,
    };

    if (call->verb == VERB_WAIT || slow.duration_us < hooks->slow_ms * INT64_C(1000))
        return status;
    slow.verb = slow_name_of(call);
    hooks->slow(&slow, hooks->arg);
    return status;
}

static truce_store *wrap_view(struct decorator *decorator, truce_store *view)
{
    return truce__slow_wrap(view, &((const struct slow_store *)decorator)->hooks);
}

static const struct decorator_kind slow_kind = {.call = slow_on_call, .wrap_view = wrap_view};

truce_store *truce__slow_wrap(truce_store *inner, const truce_store_hooks *hooks)
{
    struct slow_store *slow = bson_malloc0(sizeof *slow);

    truce_assert(hooks->slow != NULL);
    truce__decorator_init(&slow->base, &slow_kind, inner);
    slow->hooks = *hooks;
    if (!slow->hooks.slow_ms)
        slow->hooks.slow_ms = SLOW_MS;
    return &slow->base.base;
}
