#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "sim/sim_run.h"

/*
 * Ordered sets in the simulator: operations on two names of one document, in any order and
 * repeated. They run alone, in a batch, and in commits that also change another document, in both
 * forms. After every write that reaches the store:
 *
 *     a name occurs at most once, in the list or among the removed names; the rank of its
 *     operation never decreases
 *
 * At the end, the entry of a name is the newest acknowledged operation, or one whose reply was
 * lost.
 */

struct operation {
    int name, seq;
    bool add;
};

/* The maximum number of operations in a call. */
#define OPERATIONS_MAX 3

static const struct set_call {
    bool in_commit;
    /* The operations of the call; the first one with a seq of 0 ends the list. */
    struct operation operations[OPERATIONS_MAX];
} set_calls[] = {
    {.operations = {{0, 1, true}}},
    {.operations = {{0, 2, false}}},
    {.operations = {{0, 3, true}}},
    {.operations = {{0, 3, false}}}, /* If two operations have the same seq, the add wins. */
    {.operations = {{1, 2, true}}},
    {.operations = {{1, 4, false}}},
    {.operations = {{1, 1, false}}},
    {.operations = {{0, 5, false}}},
    {.operations = {{1, 5, true}}},
    {.operations = {{0, 4, true}, {1, 3, false}, {0, 2, false}}},
    {.operations = {{1, 7, true}, {0, 7, false}}},
    {.in_commit = true, .operations = {{0, 6, true}}},
    {.in_commit = true, .operations = {{1, 6, false}, {0, 1, true}}},
};

static const char *const names[] = {"X", "Y"};

static int64_t rank_of(const struct operation *operation)
{
    return 2 * operation->seq + operation->add;
}

/* A commit also increments the field n of {_id: 1, n} in this collection. */
#define COMMITS_OF "others"

/* ---- calling --------------------------------------------------------------------------------- */

struct request {
    truce_set *set;
    const struct set_call *call;
};

/* Applies the operations of a call, in the commit if it is not NULL. A single operation takes the
 * call for one operation, so that both public calls are tested. */
static truce_status sets_apply_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct request *request = arg;
    truce_set_operation operations[OPERATIONS_MAX] = {{0}};
    truce_set_result results[OPERATIONS_MAX];
    bson_t *key = BCON_NEW("student_id", BCON_INT32(1)), *elements[OPERATIONS_MAX];
    size_t count = 0;
    truce_status status;

    for (; count < OPERATIONS_MAX && request->call->operations[count].seq; count++) {
        const struct operation *one = &request->call->operations[count];

        elements[count] = BCON_NEW("name", BCON_UTF8(names[one->name]));
        operations[count] =
            (truce_set_operation){.verb = one->add ? TRUCE_SET_ADD : TRUCE_SET_REMOVE,
                                  .key = key,
                                  .element = elements[count],
                                  .seq = one->seq};
    }
    if (count > 1)
        status = truce_set_apply(request->set, commit, operations, count, results, error);
    else
        status = (operations[0].verb == TRUCE_SET_ADD ? truce_set_add : truce_set_remove)(
            request->set, commit, key, elements[0], operations[0].seq, NULL, error);
    while (count-- > 0)
        bson_destroy(elements[count]);
    bson_destroy(key);
    return status;
}

/* Applies the operations and changes another document in one commit. */
static truce_status commit_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = sets_apply_in(commit, arg, error);

    if (!status)
        status = truce_commit_update(commit, COMMITS_OF, &id, NULL, update, error);
    bson_destroy(update);
    return status;
}

/* Makes one call of the table with a handle of its own, in the write form of the client. */
static truce_status call_set(struct client *client, int call, int txn, bson_error_t *error)
{
    const truce_commit_options options = {.lease_ms = LEASE_MS, .deadline_ms = DEADLINE_MS};
    struct request request = {
        .set = truce_set_new(&client->store,
                             &(truce_set_options){.collection = "students",
                                                  .key = "student_id",
                                                  .field = "classes",
                                                  .name = "name",
                                                  .form = client->script->form % 2
                                                              ? TRUCE_SET_FORM_CLASSIC
                                                              : TRUCE_SET_FORM_PIPELINE,
                                                  .deadline_ms = DEADLINE_MS}),
        .call = &set_calls[call]};
    truce_status status = request.call->in_commit
                              ? truce_transact(&client->store, commit_in, &request, &options, error)
                              : sets_apply_in(NULL, &request, error);

    (void)txn;
    truce_set_free(request.set);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns the rank of a name in a list, 0 if the name is missing, or a negative number if it occurs
 * twice. */
static int64_t rank_in(const bson_t *document, const char *list, const char *name, bool add)
{
    struct value found = truce__value_field(truce__value_document(document), list, strlen(list));
    int64_t rank = 0;

    if (!truce__value_is_container(found))
        return 0;
    for (struct fields fields = truce__fields(found); truce__fields_next(&fields);) {
        bson_t element;

        truce__value_bson(fields.value, &element);
        if (!strcmp(truce__field_text(&element, "name"), name))
            rank = rank ? -1 : 2 * truce__field_number(&element, "seq") + add;
    }
    return rank;
}

static void observe_set(struct run *run, const bson_t *document)
{
    for (int name = 0; name < 2; name++) {
        int64_t in = rank_in(document, "classes", names[name], true),
                out = rank_in(document, "deleted_classes", names[name], false);

        if (in < 0 || out < 0 || (in && out))
            truce__sim_fail(run, "a name occurs twice", document);
        else if (in + out < run->patterns.ranks[name])
            truce__sim_fail(run, "an older operation replaced a newer one", document);
        run->patterns.ranks[name] = in + out;
    }
}

/* Checks that the stored operation of a name was made by a client and was not refused, and that no
 * acknowledged operation has a higher rank. */
static void sets_check_name(struct run *run, const bson_t *document, int name)
{
    int64_t stored = run->patterns.ranks[name];
    bool known = !stored;

    for (int t = 0; t < run->history.txns_count; t++) {
        const struct set_call *call = &set_calls[run->history.txns[t].script->call];
        bool in = run->patterns.calls[t].known && run->patterns.calls[t].in;
        bool refused = run->patterns.calls[t].known && !in && call->in_commit;

        for (int i = 0; run->patterns.calls[t].begun && i < OPERATIONS_MAX; i++) {
            const struct operation *one = &call->operations[i];

            if (!one->seq || one->name != name)
                continue;
            if (in && rank_of(one) > stored)
                truce__sim_fail(run, "an acknowledged operation is lost", document);
            known = known || (!refused && rank_of(one) == stored);
        }
    }
    if (!known)
        truce__sim_fail(run, "an operation was made by no client", document);
}

/* Checks that a commit incremented n if and only if its operations are applied. */
static void sim_check_commits(struct run *run, const bson_t *document)
{
    int64_t least = 0, most = 0, n;
    bson_error_t error;
    bson_t other;

    for (int t = 0; t < run->history.txns_count; t++) {
        if (!run->patterns.calls[t].begun ||
            !set_calls[run->history.txns[t].script->call].in_commit)
            continue;
        least += run->patterns.calls[t].known && run->patterns.calls[t].in;
        most += !run->patterns.calls[t].known || run->patterns.calls[t].in;
    }
    truce_assert(!truce_find_one(run->inner, COMMITS_OF, NULL, NULL, &other, &error));
    n = truce__field_number(&other, "n");
    if (n < least || n > most)
        truce__sim_fail(run, "a commit of operations was applied partially or twice", document);
    bson_destroy(&other);
}

static void sim_check_set(struct run *run, const bson_t *document)
{
    sim_check_commits(run, document);
    for (int name = 0; name < 2; name++)
        sets_check_name(run, document, name);
}

const struct sim_pattern truce__sim_set = {
    .collection = "students",
    .document = "{\"_id\": 1, \"student_id\": 1, \"classes\": []}",
    .other = COMMITS_OF,
    .calls = sizeof set_calls / sizeof *set_calls,
    .positions = 1,
    .call = call_set,
    .observe = observe_set,
    .check = sim_check_set,
};
