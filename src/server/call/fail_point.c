#include "server/call/fail_point.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/value.h"
#include "operations/operation.h"
#include "server/command/handlers.h"

#define TWO_EDITS 8 /* The maximum rank of a word with two edits (base/nearest_word.c). */
#define SLICE_MS  5 /* The interval at which a wait checks whether it must end. */

/* The options of failCommand. */
struct fail_data {
    const bson_t *commands, *labels, *concern;
    const char *app, *namespace;
    int64_t code, block_ms;
    bool closes, blocks;
};

/* A fail point as configureFailPoint has set it. */
struct order {
    enum { FAIL_OFF, FAIL_ALWAYS, FAIL_TIMES, FAIL_SKIP } mode;
    /* `left`: how many calls still fail (FAIL_TIMES), or pass first (FAIL_SKIP). `entered`: the
     * number of calls that failed. */
    int64_t left, entered;
    /* The field `data` of the command, or NULL while the fail point is off. Owned. */
    bson_t *data;
};

struct fail_point {
    pthread_mutex_t mutex; /* Guards the fields below. */
    struct order commands, writes, more;
};

/* The failure of a statement of a write, or of a getMore. */
struct fail_write {
    int64_t code;
    bool closes;
};

#define DATA(name, kind, member)                                                                   \
    {                                                                                              \
        name, kind, offsetof(struct fail_data, member)                                             \
    }

static const struct field data_fields[] = {DATA("failCommands", FIELD_ARRAY, commands),
                                           DATA("errorLabels", FIELD_ARRAY, labels),
                                           DATA("writeConcernError", FIELD_DOCUMENT, concern),
                                           DATA("appName", FIELD_TEXT, app),
                                           DATA("namespace", FIELD_TEXT, namespace),
                                           DATA("errorCode", FIELD_NUMBER, code),
                                           DATA("closeConnection", FIELD_FLAG, closes),
                                           DATA("blockConnection", FIELD_FLAG, blocks),
                                           DATA("blockTimeMS", FIELD_NUMBER, block_ms),
                                           {"failInternalCommands", FIELD_IGNORED, 0},
                                           {"failLocalClients", FIELD_IGNORED, 0},
                                           {0}};

static const struct field write_fields[] = {
    {"closeConnection", FIELD_FLAG, offsetof(struct fail_write, closes)},
    {"failBeforeCommitExceptionCode", FIELD_NUMBER, offsetof(struct fail_write, code)},
    {0}};

static const struct field more_fields[] = {
    {"closeConnection", FIELD_FLAG, offsetof(struct fail_write, closes)},
    {"errorCode", FIELD_NUMBER, offsetof(struct fail_write, code)},
    {0}};

struct fail_point *fail_point_new(void)
{
    struct fail_point *point = bson_malloc0(sizeof *point);

    pthread_mutex_init(&point->mutex, NULL);
    return point;
}

void fail_point_free(struct fail_point *point)
{
    if (!point)
        return;
    bson_destroy(point->commands.data);
    bson_destroy(point->writes.data);
    bson_destroy(point->more.data);
    pthread_mutex_destroy(&point->mutex);
    bson_free(point);
}

/* ---- commands -------------------------------------------------------------------------------- */

static bool point_names(const bson_t *array, const char *name)
{
    bson_iter_t at;

    for (bool more = array && bson_iter_init(&at, array) && bson_iter_next(&at); more;
         more = bson_iter_next(&at))
        if (BSON_ITER_HOLDS_UTF8(&at) && !strcmp(bson_iter_utf8(&at, NULL), name))
            return true;
    return false;
}

static bool fail_point_matches_call(const struct fail_data *data, struct call *call)
{
    const char *collection =
        BSON_ITER_HOLDS_UTF8(&call->value) ? bson_iter_utf8(&call->value, NULL) : "$cmd";

    return point_names(data->commands, call->command->name) &&
           (!data->app || !strcmp(data->app, call->connection->app)) &&
           (!data->namespace || !strcmp(data->namespace, call_namespace(call, collection)));
}

/* Counts a chosen command, and returns whether it fails. */
static bool point_fails(struct order *order)
{
    bool does = true;

    if (order->mode == FAIL_SKIP && order->left) {
        order->left--;
        does = false;
    }
    if (order->mode == FAIL_TIMES && !--order->left)
        order->mode = FAIL_OFF;
    order->entered += does;
    return does;
}

/* Returns the data of the order as a view that lives as long as the call. */
static const bson_t *data_of(struct call *call, const struct order *order)
{
    uint32_t size = order->data->len;

    return call_view(call, truce__arena_copy(&call->arena, bson_get_data(order->data), size), size);
}

/* Counts the call if the data choose it, and returns its failure as views that live as long as the
 * call. */
static bool point_take(struct fail_point *point, struct call *call, struct fail_data *data)
{
    struct order *order = &point->commands;
    bool does;

    pthread_mutex_lock(&point->mutex);
    does = order->mode != FAIL_OFF &&
           !call_fields(call, data_of(call, order), data_fields, false, data, NULL) &&
           fail_point_matches_call(data, call) && point_fails(order);
    pthread_mutex_unlock(&point->mutex);
    return does;
}

/* Waits for `block_ms`. Fails earlier if the server stops, the call is killed, or its deadline has
 * passed. */
static truce_status point_wait_for(struct call *call, int64_t block_ms, bson_error_t *error)
{
    int64_t from_ns = truce__clock_monotonic_ns(), gone_ms = 0;

    while (gone_ms < block_ms) {
        if (server_is_stopping(call->server))
            return truce__refuse(CODE_INTERRUPTED_AT_SHUTDOWN, error,
                                 "the server is shutting down");
        if (__atomic_load_n(&call->connection->operation.killed, __ATOMIC_RELAXED))
            return truce__refuse(CODE_INTERRUPTED, error, "operation was interrupted");
        if (call->deadline_ms && gone_ms >= call->deadline_ms)
            return truce__refuse(CODE_MAX_TIME_MS_EXPIRED, error, "operation exceeded time limit");
        truce__clock_sleep_ms(SLICE_MS);
        gone_ms = (truce__clock_monotonic_ns() - from_ns) / 1000000;
    }
    return TRUCE_OK;
}

/* Returns the status that the command has with this code. The codes 20 and 125 have a class only in
 * replies of operations. */
static truce_status point_status(const struct call *call, uint32_t code)
{
    if (call->command->append_error && code == CODE_ILLEGAL_OPERATION)
        return TRUCE_REFUSED;
    if (call->command->append_error && code == CODE_COMMAND_FAILED)
        return TRUCE_EXPIRED;
    return truce__class_of_code(code);
}

truce_status fail_point_enter(struct call *call, bson_error_t *error)
{
    struct fail_point *point = call->server->fail_point;
    struct fail_data data = {0};
    truce_status status;

    if (!point)
        return TRUCE_OK;
    if (!point_take(point, call, &data))
        return TRUCE_OK;
    call->labels = data.labels;
    if (data.concern)
        call->concern = data.concern;
    status = data.blocks ? point_wait_for(call, data.block_ms, error) : TRUCE_OK;
    call->connection->ends = !status && data.closes;
    if (!status && (data.closes || data.code)) {
        uint32_t code = data.code ? (uint32_t)data.code : CODE_COMMAND_FAILED;

        (void)truce__refuse(code, error, "Failing command via 'failCommand' failpoint");
        status = point_status(call, code);
    }
    return status;
}

void fail_point_leave(struct call *call, bson_t *reply)
{
    bson_iter_t at;
    int64_t code;

    if (!call->concern)
        return;
    code = bson_iter_init_find(&at, call->concern, "code") ? bson_iter_as_int64(&at) : 0;
    BSON_APPEND_DOCUMENT(reply, "writeConcernError", call->concern);
    call_append_labels(call, reply, (uint32_t)code, true);
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* Counts the statement and returns its failure. A failure with a code is counted before the
 * statement runs, any other failure after it. */
static bool take_write(struct call *call, bool before, struct fail_write *write)
{
    struct fail_point *point = call->server->fail_point;
    struct order *order;
    bool does;

    if (!point)
        return false;
    order = &point->writes;
    *write = (struct fail_write){.closes = true};
    pthread_mutex_lock(&point->mutex);
    does = order->mode != FAIL_OFF &&
           !call_fields(call, data_of(call, order), write_fields, false, write, NULL) &&
           before == (write->code != 0) && point_fails(order);
    pthread_mutex_unlock(&point->mutex);
    if (does && write->closes)
        call->connection->ends = true;
    return does;
}

truce_status fail_point_write(struct call *call, bson_error_t *error)
{
    struct fail_write write;

    return take_write(call, true, &write)
               ? truce__refuse((uint32_t)write.code, error,
                               "Failing write due to 'onPrimaryTransactionalWrite' failpoint: it "
                               "is not done")
               : TRUCE_OK;
}

void fail_point_written(struct call *call)
{
    struct fail_write write;

    (void)take_write(call, false, &write);
}

truce_status fail_point_more(struct call *call, bson_error_t *error)
{
    struct fail_point *point = call->server->fail_point;
    struct fail_write more = {0};
    bool does;

    if (!point)
        return TRUCE_OK;
    pthread_mutex_lock(&point->mutex);
    does = point->more.mode != FAIL_OFF &&
           !call_fields(call, data_of(call, &point->more), more_fields, false, &more, NULL) &&
           point_fails(&point->more);
    pthread_mutex_unlock(&point->mutex);
    if (!does)
        return TRUCE_OK;
    call->connection->ends = more.closes;
    return truce__refuse((uint32_t)more.code, error,
                         "Hit the 'failGetMoreAfterCursorCheckout' failpoint");
}

/* ---- configureFailPoint ---------------------------------------------------------------------- */

/* Reads the mode of a fail point. */
static truce_status read_mode(const bson_value_t *given, struct order *made, bson_error_t *error)
{
    bson_iter_t at;
    bson_t mode;

    if (given && given->value_type == BSON_TYPE_UTF8) {
        made->mode = strcmp(given->value.v_utf8.str, "off") ? FAIL_ALWAYS : FAIL_OFF;
        if (!made->mode || !strcmp(given->value.v_utf8.str, "alwaysOn"))
            return TRUCE_OK;
    } else if (given && given->value_type == BSON_TYPE_DOCUMENT &&
               bson_init_static(&mode, given->value.v_doc.data, given->value.v_doc.data_len) &&
               bson_iter_init(&at, &mode) && bson_iter_next(&at) &&
               truce__field_to_number(&at, &made->left) && bson_count_keys(&mode) == 1) {
        made->mode = !strcmp(bson_iter_key(&at), "times") ? FAIL_TIMES : FAIL_SKIP;
        if (made->left >= 0 && (made->mode == FAIL_TIMES || !strcmp(bson_iter_key(&at), "skip"))) {
            if (made->mode == FAIL_TIMES && !made->left)
                made->mode = FAIL_OFF;
            return TRUCE_OK;
        }
    }
    return truce__refuse(CODE_BAD_VALUE, error,
                         "mode must be 'alwaysOn', 'off', {times: N}, or {skip: N}, not %.40s",
                         !given ? "missing"
                         : given->value_type == BSON_TYPE_UTF8
                             ? given->value.v_utf8.str
                             : truce__type_name((uint8_t)given->value_type));
}

/* Refuses a name that is nearly that of a command, because the fail point would never fire. Other
 * unknown names are commands of MongoDB that this server lacks, which tests for both may have. */
static truce_status point_check_command(struct call *call, const char *name, bson_error_t *error)
{
    const struct command_table *table = call->server->commands;
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];

    if (table->find(name))
        return TRUCE_OK;
    for (const struct command *at = table->commands; at->name; at++)
        truce__nearest_word_offer(&nearest, at->name);
    truce__operation_nearest(&nearest);
    if ((!nearest.best || nearest.distance > TWO_EDITS) && strncmp(name, "truce", 5) != 0)
        return TRUCE_OK;
    return truce__refuse(CODE_BAD_VALUE, error,
                         "data.failCommands has \"%.80s\": no such command%s", name,
                         truce__nearest_word_hint(&nearest, hint));
}

/* Checks which commands fail, and that the data have a failure. */
static truce_status point_check_failure(struct call *call, const struct fail_data *data,
                                        bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    for (bool more = bson_iter_init(&at, data->commands) && bson_iter_next(&at); more && !status;
         more = bson_iter_next(&at))
        status = BSON_ITER_HOLDS_UTF8(&at)
                     ? point_check_command(call, bson_iter_utf8(&at, NULL), error)
                     : truce__element_wrong_type("failCommands", &at, "a string", error);
    if (!status && !data->code && !data->closes && !data->blocks && !data->concern && !data->labels)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "the data have no failure: give errorCode, closeConnection, "
                               "blockConnection with blockTimeMS, writeConcernError, or "
                               "errorLabels");
    return status;
}

/* Checks the data of a fail point. */
static truce_status check_data(struct call *call, const struct order *made, bson_error_t *error)
{
    struct fail_data data = {0};
    truce_status status = call_fields(call, made->data, data_fields, false, &data, error);

    if (status)
        return status;
    if (made->mode && (!data.commands || bson_empty(data.commands)))
        return truce__refuse(
            CODE_BAD_VALUE, error,
            "data.failCommands is missing or empty: expected an array of command names, "
            "for example [\"insert\"]");
    if (data.code < 0 || data.code > INT32_MAX)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "errorCode must be a number from 0 to %d, not %lld", INT32_MAX,
                             (long long)data.code);
    if (data.block_ms < 0 || data.block_ms > TRUCE_SERVER_BLOCK_MS_MAX ||
        (data.blocks && !data.block_ms))
        return truce__refuse(
            CODE_BAD_VALUE, error,
            "with blockConnection, blockTimeMS must be a number from 1 to %d, not %lld",
            TRUCE_SERVER_BLOCK_MS_MAX, (long long)data.block_ms);
    return made->mode ? point_check_failure(call, &data, error) : TRUCE_OK;
}

static truce_status point_check_code(struct call *call, const struct order *made,
                                     const struct field *fields, int64_t least, bson_error_t *error)
{
    struct fail_write write = {0};
    truce_status status = call_fields(call, made->data, fields, false, &write, error);

    if (!status && !made->mode)
        return TRUCE_OK;
    if (!status && (write.code < least || write.code > INT32_MAX))
        status = truce__refuse(CODE_BAD_VALUE, error, "%s must be a number from %d to %d, not %lld",
                               fields[1].name, (int)least, INT32_MAX, (long long)write.code);
    return status;
}

/* Replaces the order by `made`. `made` gets the old data, which the caller frees. */
static int64_t point_put(struct fail_point *point, struct order *order, struct order *made)
{
    int64_t entered;
    bson_t *data;

    pthread_mutex_lock(&point->mutex);
    data = order->data;
    order->mode = made->mode;
    order->left = made->left;
    order->data = made->data;
    entered = order->entered;
    pthread_mutex_unlock(&point->mutex);
    made->data = data;
    return entered;
}

truce_status serve_fail_point(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct wanted {
        const bson_value_t *mode;
        const bson_t *data;
    } wanted = {0};
    static const struct field fields[] = {{"mode", FIELD_VALUE, offsetof(struct wanted, mode)},
                                          {"data", FIELD_DOCUMENT, offsetof(struct wanted, data)},
                                          {0}};
    const char *name = BSON_ITER_HOLDS_UTF8(&call->value) ? bson_iter_utf8(&call->value, NULL) : "";
    struct fail_point *point = call->server->fail_point;
    bool writes = !strcmp(name, "onPrimaryTransactionalWrite"),
         more = !strcmp(name, "failGetMoreAfterCursorCheckout");
    struct order *order = writes ? &point->writes : more ? &point->more : &point->commands;
    struct order made = {0};
    truce_status status;

    if (strcmp(call->database, "admin") != 0)
        return truce__refuse(CODE_UNAUTHORIZED, error,
                             "configureFailPoint may only be run against the admin database.");
    if (strcmp(name, "failCommand") != 0 && !writes && !more)
        return truce__refuse(CODE_FAIL_POINT_SET_FAILED, error, "%.80s not found", name);
    status = call_own_fields(call, fields, &wanted, error);
    if (!status)
        status = read_mode(wanted.mode, &made, error);
    if (status)
        return status;
    made.data = wanted.data ? bson_copy(wanted.data) : bson_new();
    status = writes ? point_check_code(call, &made, write_fields, 0, error)
             : more ? point_check_code(call, &made, more_fields, 1, error)
                    : check_data(call, &made, error);
    if (!status)
        BSON_APPEND_INT64(reply, "count", point_put(point, order, &made));
    bson_destroy(made.data);
    return status;
}
