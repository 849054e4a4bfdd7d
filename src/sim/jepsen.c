#include "sim/jepsen.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash_table.h"

/* A process, and the operation that it began, or NULL if it began none. */
struct process {
    int64_t number;
    int64_t begin;
    bson_t *invoked;
};

/* The conversion of a history of Jepsen. */
struct jepsen {
    struct verify *verify;
    struct process *processes;
    uint32_t count, room;
    /* Finds the index of a process by its number. */
    struct hash_table numbers;
    /* The number of operations so far, which is the time of the next one. */
    int64_t clock;
};

struct jepsen *truce__jepsen_new(struct verify *verify)
{
    struct jepsen *jepsen = bson_malloc0(sizeof *jepsen);

    jepsen->verify = verify;
    return jepsen;
}

void truce__jepsen_free(struct jepsen *jepsen)
{
    if (!jepsen)
        return;
    for (uint32_t i = 0; i < jepsen->count; i++) {
        if (jepsen->processes[i].invoked)
            bson_destroy(jepsen->processes[i].invoked);
    }
    bson_free(jepsen->processes);
    truce__hash_release(&jepsen->numbers);
    bson_free(jepsen);
}

static const char *jepsen_text_of(const bson_t *document, const char *name)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, name) && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : NULL;
}

bool truce__jepsen_is_operation(const bson_t *document)
{
    return jepsen_text_of(document, "type") && !bson_has_field(document, "ops");
}

/* Returns the process of this number, which is created if it is new. The pointer is valid until the
 * next call. */
static struct process *jepsen_process_of(struct jepsen *jepsen, int64_t number)
{
    uint64_t hash = truce__hash_bytes(&number, sizeof number);

    for (struct hash_probe probe = truce__hash_probe(&jepsen->numbers, hash);
         truce__hash_next(&probe);) {
        if (jepsen->processes[probe.number].number == number)
            return &jepsen->processes[probe.number];
    }
    if (jepsen->count == jepsen->room) {
        jepsen->room = jepsen->room ? 2 * jepsen->room : 16;
        jepsen->processes =
            bson_realloc(jepsen->processes, jepsen->room * sizeof *jepsen->processes);
    }
    truce__hash_add(&jepsen->numbers, hash, jepsen->count);
    jepsen->processes[jepsen->count] = (struct process){.number = number};
    return &jepsen->processes[jepsen->count++];
}

/* ---- one operation as a transaction --------------------------------------------------------- */

/* Appends [name, key, value] to the array `ops`. If `value` is NULL, appends null. */
static truce_status jepsen_append_op(bson_t *ops, uint32_t at, const char *name,
                                     const bson_iter_t *key, const bson_iter_t *value,
                                     bson_error_t *error)
{
    char index[16], number[24];
    const char *index_text, *key_text = number;
    bson_t op;

    if (!key)
        key_text = "register";
    else if (BSON_ITER_HOLDS_UTF8(key))
        key_text = bson_iter_utf8(key, NULL);
    else if (BSON_ITER_HOLDS_INT(key))
        snprintf(number, sizeof number, "%" PRId64, bson_iter_as_int64(key));
    else
        return truce__fail(TRUCE_INVALID, error,
                           "the key of an operation must be an integer, a string, or a keyword");
    bson_uint32_to_string(at, &index_text, index, sizeof index);
    bson_append_array_begin(ops, index_text, -1, &op);
    BSON_APPEND_UTF8(&op, "0", name);
    BSON_APPEND_UTF8(&op, "1", key_text);
    if (value)
        bson_append_iter(&op, "2", 1, value);
    else
        BSON_APPEND_NULL(&op, "2");
    bson_append_array_end(ops, &op);
    return TRUCE_OK;
}

/* Reads `value` of f txn: [[:r 1 nil] [:append 1 2]]. */
static truce_status jepsen_append_txn(bson_t *ops, const bson_iter_t *value, bson_error_t *error)
{
    bson_iter_t element, part, key;
    truce_status status = TRUCE_OK;

    if (!BSON_ITER_HOLDS_ARRAY(value) || !bson_iter_recurse(value, &element))
        return truce__fail(TRUCE_INVALID, error,
                           "the value of a transaction must be a list: [[:r 1 nil] [:append 1 2]]");
    for (uint32_t i = 0; !status && bson_iter_next(&element); i++) {
        const char *name;

        if (!BSON_ITER_HOLDS_ARRAY(&element) || !bson_iter_recurse(&element, &part) ||
            !bson_iter_next(&part) || !BSON_ITER_HOLDS_UTF8(&part))
            return truce__fail(TRUCE_INVALID, error,
                               "a part of a transaction must be [:r KEY VALUE], [:append KEY "
                               "VALUE], or [:w KEY VALUE]");
        name = bson_iter_utf8(&part, NULL);
        if (!bson_iter_next(&part))
            return truce__fail(TRUCE_INVALID, error, "[:%.20s] has no key", name);
        key = part;
        status = jepsen_append_op(ops, i, name, &key, bson_iter_next(&part) ? &part : NULL, error);
    }
    return status;
}

/* Reads `value` of f read and write: the value of the register, or [key, value]. */
static truce_status jepsen_append_register(bson_t *ops, const char *name, const bson_iter_t *value,
                                           bson_error_t *error)
{
    bson_iter_t part, key;

    if (!BSON_ITER_HOLDS_ARRAY(value))
        return jepsen_append_op(ops, 0, name, NULL, value, error);
    if (!bson_iter_recurse(value, &part) || !bson_iter_next(&part))
        return truce__fail(TRUCE_INVALID, error,
                           "the value must be that of a register, or [KEY "
                           "VALUE]");
    key = part;
    return jepsen_append_op(ops, 0, name, &key, bson_iter_next(&part) ? &part : NULL, error);
}

/* Appends the operations of the transaction as the array `ops` of verify.h. */
static truce_status jepsen_append_ops(bson_t *transaction, const bson_t *operation,
                                      bson_error_t *error)
{
    const char *f = jepsen_text_of(operation, "f");
    bson_iter_t value;
    bson_t ops;
    truce_status status;

    if (!bson_iter_init_find(&value, operation, "value"))
        return truce__fail(TRUCE_INVALID, error, "an operation needs a \"value\"");
    BSON_APPEND_ARRAY_BEGIN(transaction, "ops", &ops);
    if (!f || !strcmp(f, "txn"))
        status = jepsen_append_txn(&ops, &value, error);
    else if (!strcmp(f, "read") || !strcmp(f, "write"))
        status = jepsen_append_register(&ops, *f == 'r' ? "r" : "w", &value, error);
    else
        status = truce__fail(TRUCE_INVALID, error,
                             "f \"%.40s\" cannot be checked: txn, read, and write can", f);
    bson_append_array_end(transaction, &ops);
    return status;
}

/* Adds the transaction of a process. `end` is 0 if there is no end. `operation` has its parts. */
static truce_status jepsen_add_transaction(struct jepsen *jepsen, struct process *process,
                                           const char *outcome, int64_t end,
                                           const bson_t *operation, bson_error_t *error)
{
    bson_t transaction = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_INT64(&transaction, "process", process->number);
    BSON_APPEND_INT64(&transaction, "begin", process->begin);
    if (end)
        BSON_APPEND_INT64(&transaction, "end", end);
    BSON_APPEND_UTF8(&transaction, "status", outcome);
    status = jepsen_append_ops(&transaction, operation, error);
    if (!status)
        status = truce__verify_add(jepsen->verify, &transaction, error);
    bson_destroy(&transaction);
    return status;
}

/* ---- the sequence --------------------------------------------------------------------------- */

static truce_status jepsen_begin(struct jepsen *jepsen, struct process *process,
                                 const bson_t *operation, bson_error_t *error)
{
    if (process->invoked)
        return truce__fail(TRUCE_INVALID, error,
                           "process %" PRId64 " begins an operation before the end of its last one",
                           process->number);
    process->invoked = bson_copy(operation);
    process->begin = jepsen->clock;
    return TRUCE_OK;
}

truce_status truce__jepsen_add(struct jepsen *jepsen, const bson_t *operation, bson_error_t *error)
{
    const char *type = jepsen_text_of(operation, "type");
    struct process *process;
    bool is_ok;
    bson_iter_t iter;
    truce_status status;

    jepsen->clock++;
    if (!type || !bson_iter_init_find(&iter, operation, "process"))
        return truce__fail(TRUCE_INVALID, error,
                           "an operation needs a \"type\" (invoke, ok, fail, info) and a "
                           "\"process\"");
    if (!BSON_ITER_HOLDS_INT(&iter))
        return TRUCE_OK; /* The process is not an integer, for example :nemesis. */
    process = jepsen_process_of(jepsen, bson_iter_as_int64(&iter));
    if (!strcmp(type, "invoke"))
        return jepsen_begin(jepsen, process, operation, error);
    is_ok = !strcmp(type, "ok");
    if (!is_ok && strcmp(type, "fail") != 0 && strcmp(type, "info") != 0)
        return truce__fail(TRUCE_INVALID, error,
                           "invalid type \"%.40s\": expected invoke, ok, fail, or info", type);
    if (!process->invoked)
        return truce__fail(TRUCE_INVALID, error,
                           "process %" PRId64 " ends an operation that it did not begin: expected "
                           "one of type invoke before it",
                           process->number);
    status = jepsen_add_transaction(jepsen, process, *type == 'i' ? "unknown" : type,
                                    *type == 'i' ? 0 : jepsen->clock,
                                    is_ok ? operation : process->invoked, error);
    bson_destroy(process->invoked);
    process->invoked = NULL;
    return status;
}

truce_status truce__jepsen_end(struct jepsen *jepsen, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < jepsen->count; i++) {
        struct process *process = &jepsen->processes[i];

        if (process->invoked)
            status = jepsen_add_transaction(jepsen, process, "unknown", 0, process->invoked, error);
    }
    return status;
}
