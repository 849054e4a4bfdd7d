/* Reads a history into arrays, replaces keys by numbers, and runs the checks of verify_lists.c and
 * verify_registers.c. */
#include "sim/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/verify_parts.h"

/* The maximum number of operations in a transaction, the maximum number of transactions in a
 * history, and the maximum length of a key in bytes. */
#define OPS_MAX  10000
#define TXNS_MAX 10000000
#define KEY_MAX  1000
/* The maximum number of steps in the search for an order of registers. */
#define STEPS_MAX 5000000

struct verify *truce__verify_new(void)
{
    struct verify *verify = bson_malloc0(sizeof *verify);

    verify->steps_max = STEPS_MAX;
    return verify;
}

void truce__verify_free(struct verify *verify)
{
    if (!verify)
        return;
    truce__arena_release(&verify->arena);
    bson_free(verify->txns);
    bson_free(verify->keys);
    bson_free(verify->types);
    truce__hash_release(&verify->key_numbers);
    bson_free(verify);
}

void truce__verify_report(struct verify *verify, const char *name, const char *format, ...)
{
    char text[2000];
    struct verify_anomaly anomaly = {name, text};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    verify->anomalies++;
    if (verify->function)
        verify->function(&anomaly, verify->arg);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void grow_keys(struct verify *verify)
{
    verify->keys_room = verify->keys_room ? 2 * verify->keys_room : 64;
    verify->keys = bson_realloc((void *)verify->keys, verify->keys_room * sizeof *verify->keys);
    verify->types = bson_realloc(verify->types, verify->keys_room * sizeof *verify->types);
}

static uint32_t key_number(struct verify *verify, const char *key)
{
    uint64_t hash = truce__hash_text(key);

    for (struct hash_probe probe = truce__hash_probe(&verify->key_numbers, hash);
         truce__hash_next(&probe);) {
        if (!strcmp(verify->keys[probe.number], key))
            return probe.number;
    }
    if (verify->keys_count == verify->keys_room)
        grow_keys(verify);
    truce__hash_add(&verify->key_numbers, hash, verify->keys_count);
    verify->keys[verify->keys_count] = truce__arena_copy(&verify->arena, key, strlen(key) + 1);
    verify->types[verify->keys_count] = VERIFY_UNTYPED;
    return verify->keys_count++;
}

/* ---- one transaction ------------------------------------------------------------------------ */

static truce_status verify_fail(const struct verify *verify, const char *what, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "transaction %u: %s", verify->count, what);
}

static bool is_integer(const bson_iter_t *iter)
{
    return BSON_ITER_HOLDS_INT32(iter) || BSON_ITER_HOLDS_INT64(iter);
}

/* Reads the values of a list into the arena. */
static truce_status verify_read_list(struct verify *verify, const bson_iter_t *iter,
                                     struct verify_op *op, bson_error_t *error)
{
    bson_iter_t element;
    int64_t *list;
    uint32_t count = 0;

    if (!bson_iter_recurse(iter, &element))
        return verify_fail(verify, "a list that was read is broken", error);
    while (bson_iter_next(&element))
        count++;
    list = truce__arena_take(&verify->arena, (count + 1) * sizeof *list);
    bson_iter_recurse(iter, &element);
    for (uint32_t i = 0; i < count && bson_iter_next(&element); i++) {
        if (!is_integer(&element))
            return verify_fail(verify, "the values of a list must be integers", error);
        list[i] = bson_iter_as_int64(&element);
    }
    op->list = list;
    op->length = count;
    return TRUCE_OK;
}

static truce_status verify_set_type(struct verify *verify, uint32_t key, enum verify_type type,
                                    bson_error_t *error)
{
    if (verify->types[key] != VERIFY_UNTYPED && verify->types[key] != type)
        return verify_fail(verify, "a key is a list or a register, not both", error);
    verify->types[key] = type;
    return TRUCE_OK;
}

/* Reads the value of an operation. The value also gives the type of the key, except a null, which
 * fits both types. */
static truce_status verify_read_value(struct verify *verify, const bson_iter_t *iter,
                                      struct verify_op *op, bson_error_t *error)
{
    if (op->kind == VERIFY_READ && BSON_ITER_HOLDS_NULL(iter)) {
        op->nothing = true;
        return TRUCE_OK;
    }
    if (op->kind == VERIFY_READ && BSON_ITER_HOLDS_ARRAY(iter)) {
        truce_status status = verify_set_type(verify, op->key, VERIFY_LIST, error);

        return status ? status : verify_read_list(verify, iter, op, error);
    }
    if (!is_integer(iter))
        return verify_fail(
            verify, "a value must be an integer (read: also an array of them, or null)", error);
    op->value = bson_iter_as_int64(iter);
    return verify_set_type(verify, op->key,
                           op->kind == VERIFY_APPEND ? VERIFY_LIST : VERIFY_REGISTER, error);
}

/* Reads one operation of a transaction, and the type of its key. */
static truce_status read_op(struct verify *verify, const bson_iter_t *iter, struct verify_op *op,
                            bson_error_t *error)
{
    bson_iter_t part;
    const char *name;

    if (!BSON_ITER_HOLDS_ARRAY(iter) || !bson_iter_recurse(iter, &part) || !bson_iter_next(&part) ||
        !BSON_ITER_HOLDS_UTF8(&part))
        return verify_fail(
            verify, "an operation is an array: [\"append\", \"w\" or \"r\", key, value]", error);
    name = bson_iter_utf8(&part, NULL);
    if (!strcmp(name, "append"))
        op->kind = VERIFY_APPEND;
    else if (!strcmp(name, "w"))
        op->kind = VERIFY_WRITE;
    else if (!strcmp(name, "r"))
        op->kind = VERIFY_READ;
    else
        return verify_fail(verify, "an operation is \"append\", \"w\" or \"r\"", error);
    if (!bson_iter_next(&part) || !BSON_ITER_HOLDS_UTF8(&part) ||
        strlen(bson_iter_utf8(&part, NULL)) > KEY_MAX)
        return verify_fail(
            verify, "the key of an operation must be a string of at most 1,000 bytes", error);
    op->key = key_number(verify, bson_iter_utf8(&part, NULL));
    if (!bson_iter_next(&part))
        return verify_fail(verify, "an operation needs a value", error);
    return verify_read_value(verify, &part, op, error);
}

/* Reads the operations of a transaction into the arena. Returns LIMIT for more than OPS_MAX. */
static truce_status read_ops(struct verify *verify, const bson_t *document, struct verify_txn *txn,
                             bson_error_t *error)
{
    bson_iter_t iter, element;
    struct verify_op *ops;
    truce_status status = TRUCE_OK;
    uint32_t count = 0;

    if (!bson_iter_init_find(&iter, document, "ops") || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &element))
        return verify_fail(verify, "needs \"ops\", an array", error);
    while (bson_iter_next(&element))
        count++;
    if (count > OPS_MAX)
        return truce__fail(TRUCE_LIMIT, error, "transaction %u has more than %d operations",
                           verify->count, OPS_MAX);
    ops = truce__arena_take(&verify->arena, (count + 1) * sizeof *ops);
    memset(ops, 0, (count + 1) * sizeof *ops);
    bson_iter_recurse(&iter, &element);
    for (uint32_t i = 0; !status && i < count && bson_iter_next(&element); i++)
        status = read_op(verify, &element, &ops[i], error);
    txn->ops = ops;
    txn->ops_count = count;
    return status;
}

static bool verify_number(const bson_t *document, const char *name, double *value)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, name) ||
        (!is_integer(&iter) && !BSON_ITER_HOLDS_DOUBLE(&iter)))
        return false;
    *value =
        BSON_ITER_HOLDS_DOUBLE(&iter) ? bson_iter_double(&iter) : (double)bson_iter_as_int64(&iter);
    return true;
}

static bool verify_read_outcome(const bson_t *document, enum verify_outcome *outcome)
{
    static const char *const names[] = {"ok", "fail", "unknown"};
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, "status") || !BSON_ITER_HOLDS_UTF8(&iter))
        return false;
    for (int i = 0; i < 3; i++) {
        if (!strcmp(bson_iter_utf8(&iter, NULL), names[i])) {
            *outcome = (enum verify_outcome)i;
            return true;
        }
    }
    return false;
}

truce_status truce__verify_add(struct verify *verify, const bson_t *document, bson_error_t *error)
{
    struct verify_txn txn = {0};
    truce_status status;
    double process;

    if (verify->count == TXNS_MAX)
        return truce__fail(TRUCE_LIMIT, error, "a history has at most %d transactions", TXNS_MAX);
    if (!verify_number(document, "process", &process) ||
        !verify_number(document, "begin", &txn.begin))
        return verify_fail(verify, "needs \"process\" and \"begin\", numbers", error);
    if (!verify_read_outcome(document, &txn.outcome))
        return verify_fail(verify, "needs a \"status\": \"ok\", \"fail\" or \"unknown\"", error);
    if (!verify_number(document, "end", &txn.end) && txn.outcome == VERIFY_OK)
        return verify_fail(verify, "needs \"end\", a number", error);
    if (txn.outcome == VERIFY_OK && txn.end < txn.begin)
        return verify_fail(verify, "ends before it begins", error);
    txn.number = verify->count;
    txn.process = (int64_t)process;
    status = read_ops(verify, document, &txn, error);
    if (status)
        return status;
    if (verify->count == verify->room) {
        verify->room = verify->room ? 2 * verify->room : 256;
        verify->txns = bson_realloc(verify->txns, verify->room * sizeof *verify->txns);
    }
    verify->txns[verify->count++] = txn;
    return TRUCE_OK;
}

uint32_t truce__verify_count(const struct verify *verify)
{
    return verify->count;
}

int truce__verify_run(struct verify *verify, verify_function *function, void *arg)
{
    verify->function = function;
    verify->arg = arg;
    verify->anomalies = 0;
    truce__verify_lists(verify);
    truce__verify_registers(verify);
    return verify->anomalies;
}
