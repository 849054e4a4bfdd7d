#include "sim/history_checker.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/*
 * The checker of a run. A commit writes its id as `_rev` into each document that it changes, so the
 * sequence of versions of a document names the writers. Together with the versions that the clients
 * read, this gives the direct serialization graph (Adya). Edges go from the writer of a version to
 * its readers and to the writer of the next version. They also go from a reader to the writer of
 * the version after the one it read, and from a transaction to those that began after its end.
 *
 * A cycle is a violation, unless a serial order that respects real time explains all reads. Such an
 * order can exist, because all missing versions of a document look the same, and the graph
 * distinguishes them.
 */

/* The writer of the versions at the start. */
#define INITIAL (-1)

static void document_name(int document, char *id)
{
    id[0] = (char)('a' + document);
    id[1] = 0;
}

/* Reads the current version of a document. A stub counts as a missing document. */
static void history_read(truce_store *store, int document, struct sim_version *version)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_error_t error;
    bson_iter_t iter;
    char id[2];

    document_name(document, id);
    BSON_APPEND_UTF8(&filter, "_id", id);
    memset(version, 0, sizeof *version);
    version->present = truce_find_one(store, "docs", &filter, NULL, &found, &error) == TRUCE_OK;
    if (version->present && bson_iter_init_find(&iter, &found, "_intent")) {
        bson_iter_t new;

        if (bson_iter_recurse(&iter, &new) && bson_iter_find(&new, "new"))
            version->present = false; /* A stub does not count as a document. */
    }
    if (version->present && bson_iter_init_find(&iter, &found, "_rev")) {
        version->has_rev = true;
        bson_oid_copy(bson_iter_oid(&iter), &version->rev);
    }
    if (version->present && bson_iter_init_find(&iter, &found, "u"))
        version->key = bson_iter_int32(&iter);
    bson_destroy(&found);
    bson_destroy(&filter);
}

static bool history_same(const struct sim_version *a, const struct sim_version *b)
{
    if (!a->present || !b->present)
        return a->present == b->present;
    return a->has_rev == b->has_rev && (!a->has_rev || bson_oid_equal(&a->rev, &b->rev));
}

/* Records which commit removed the document: the filter of a release names its commit. */
static void history_blame(struct sim_version *version, int txn, const bson_t *filter)
{
    bson_iter_t iter;

    version->txn = txn;
    if (filter && bson_iter_init_find(&iter, filter, "_intent.c") && BSON_ITER_HOLDS_OID(&iter)) {
        version->has_rev = true;
        bson_oid_copy(bson_iter_oid(&iter), &version->rev);
    }
}

void truce__history_observe(struct sim_history *history, truce_store *store, int txn,
                            const bson_t *filter)
{
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        struct sim_version now;
        int *count = &history->count[d];

        history_read(store, d, &now);
        if (*count > 0 && history_same(&history->versions[d][*count - 1], &now))
            continue;
        if (*count == SIM_VERSIONS) {
            history->overflow = true;
            return;
        }
        if (!now.present)
            history_blame(&now, txn, filter);
        now.at = history->clock;
        history->versions[d][(*count)++] = now;
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Checks the `_keys` of one document. Values other than its own are allowed only while a commit
 * holds the document. If `bare`, `_keys` may be absent, and may lack the own value while a commit
 * holds the document. Returns NULL or the fault. */
static const char *history_check_bare_keys(const bson_t *document, bool bare)
{
    bson_iter_t iter, keys, element, values;
    int key = bson_iter_init_find(&iter, document, "u") ? bson_iter_int32(&iter) : 0, others = 0;
    bool held = bson_iter_init_find(&iter, document, "_intent"), found = key == 0;

    if (!bson_iter_init_find(&iter, document, "_keys"))
        return found || bare ? NULL : "a document has lost its keys";
    if (!BSON_ITER_HOLDS_ARRAY(&iter) || !bson_iter_recurse(&iter, &keys))
        return "_keys is not an array";
    while (bson_iter_next(&keys)) {
        if (!bson_iter_recurse(&keys, &element) || !bson_iter_find(&element, "v") ||
            !bson_iter_recurse(&element, &values) || !bson_iter_next(&values))
            return "_keys has an invalid entry";
        if (key && bson_iter_int32(&values) == key)
            found = true;
        else
            others++;
    }
    if (!found && !(bare && held))
        return "the unique value of a document is not in its _keys";
    return others && !held ? "a document's _keys has a value that the document lacks" : NULL;
}

const char *truce__history_keys(truce_store *store, const bool bare[SIM_DOCUMENTS])
{
    const char *wrong = NULL;

    for (int d = 0; !wrong && d < SIM_DOCUMENTS; d++) {
        bson_t filter = BSON_INITIALIZER, found;
        bson_error_t error;
        char id[2];

        document_name(d, id);
        BSON_APPEND_UTF8(&filter, "_id", id);
        if (truce_find_one(store, "docs", &filter, NULL, &found, &error) == TRUCE_OK)
            wrong = history_check_bare_keys(&found, bare[d]);
        bson_destroy(&found);
        bson_destroy(&filter);
    }
    return wrong;
}

/* Records a decided commit. Returns false if it was recorded before. */
static bool is_new_decision(struct sim_history *history, const bson_oid_t *id)
{
    for (int i = 0; i < history->decided_count; i++) {
        if (bson_oid_equal(&history->decided[i], id))
            return false;
    }
    if (history->decided_count < SIM_TXNS)
        bson_oid_copy(id, &history->decided[history->decided_count++]);
    return true;
}

void truce__history_decision(struct sim_history *history, truce_store *store, int txn,
                             const bson_t *filter)
{
    bson_t decided = BSON_INITIALIZER;
    bson_error_t error;
    bson_iter_t iter;
    int64_t count = 0;

    if (txn < 0 || !bson_iter_init_find(&iter, filter, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return;
    BSON_APPEND_OID(&decided, "_id", bson_iter_oid(&iter));
    BSON_APPEND_UTF8(&decided, "state", "committed");
    truce_assert(!truce_count(store, "truce_commits", &decided, NULL, &count, &error));
    bson_destroy(&decided);
    if (!count || !is_new_decision(history, bson_iter_oid(&iter)))
        return;
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        if (history->txns[txn].script->ops[d] == SIM_HOLD &&
            history->txns[txn].read[d] != history->count[d] - 1)
            history->fence_broken = true;
    }
}

int truce__history_version(const struct sim_history *history, int document, const bson_t *seen)
{
    struct sim_version version = {.present = seen != NULL};
    bson_iter_t iter;

    if (seen && bson_iter_init_find(&iter, seen, "_rev")) {
        version.has_rev = true;
        bson_oid_copy(bson_iter_oid(&iter), &version.rev);
    }
    for (int v = history->count[document] - 1; v >= 0; v--) {
        if (history_same(&history->versions[document][v], &version))
            return v;
    }
    return -1;
}

/* ---- writers of values ---------------------------------------------------------------------- */

static bool history_writes(enum sim_op op)
{
    return op == SIM_READ_WRITE || op == SIM_BLIND_WRITE || op == SIM_INSERT || op == SIM_REMOVE ||
           op == SIM_BLIND_REMOVE || op == SIM_REPLACE || op == SIM_SET_ZERO || op == SIM_SET_ONE;
}

static bool history_op_removes(enum sim_op op)
{
    return op == SIM_REMOVE || op == SIM_BLIND_REMOVE;
}

static int writer_of_rev(const struct sim_history *history, const bson_oid_t *rev)
{
    for (int t = 0; t < history->txns_count; t++) {
        if (bson_oid_equal(&history->txns[t].id, rev))
            return t;
    }
    return -2;
}

/* The state of the check of a history. */
struct checker {
    const struct sim_history *history;
    /* writer[d][v]: the transaction that wrote version v of document d, or INITIAL. */
    int writer[SIM_DOCUMENTS][SIM_VERSIONS];
    /* decided[t]: transaction t is known to have taken effect. */
    bool decided[SIM_TXNS];
    /* applied[t][d]: the number of versions of document d that transaction t wrote. */
    int applied[SIM_TXNS][SIM_DOCUMENTS];
    char *detail;
    size_t size;
};

static const char *history_describe(struct checker *checker, const char *what, int txn,
                                    int document)
{
    snprintf(checker->detail, checker->size, "transaction %d of client %d, document %c", txn,
             txn >= 0 ? checker->history->txns[txn].client : -1, 'a' + document);
    return what;
}

/* Finds the writer of each version by its revision. Returns a violation if a version has none, or
 * one transaction wrote a document twice. */
static const char *assign_writers(struct checker *checker)
{
    const struct sim_history *history = checker->history;

    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        checker->writer[d][0] = INITIAL;
        for (int v = 1; v < history->count[d]; v++) {
            const struct sim_version *version = &history->versions[d][v];
            int txn = version->has_rev   ? writer_of_rev(history, &version->rev)
                      : version->present ? -2
                                         : version->txn;

            if (txn < 0)
                return history_describe(checker, "a write belongs to no transaction", -1, d);
            checker->writer[d][v] = txn;
            checker->decided[txn] = true;
            if (checker->applied[txn][d]++)
                return history_describe(checker, "a commit was applied to a document twice", txn,
                                        d);
        }
    }
    return NULL;
}

/* Returns the value that `txn` writes into a document with the value `before`. */
static int key_after(const struct sim_txn *txn, int document, int before)
{
    enum sim_op op = txn->script->ops[document];

    if (history_op_removes(op))
        return 0;
    if (op == SIM_SET_ZERO || op == SIM_SET_ONE)
        return before;
    return op == SIM_INSERT || op == SIM_REPLACE || txn->script->keys[document]
               ? txn->script->keys[document]
               : before;
}

/* Checks that each version has its writer's value, and that no two documents end with the same
 * value. */
static const char *check_values(struct checker *checker)
{
    const struct sim_history *history = checker->history;

    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        for (int v = 1; v < history->count[d]; v++) {
            const struct sim_version *version = &history->versions[d][v];
            int txn = checker->writer[d][v];

            if (version->key != key_after(&history->txns[txn], d, history->versions[d][v - 1].key))
                return history_describe(checker, "a unique value was lost", txn, d);
        }
        for (int e = 0; e < d; e++) {
            int ours = history->versions[d][history->count[d] - 1].key;

            if (ours && ours == history->versions[e][history->count[e] - 1].key)
                return history_describe(checker, "a unique value occurs twice", -1, d);
        }
    }
    return NULL;
}

/* Returns whether the document existed with this key (0 for any) at some time during the
 * transaction. */
static bool history_document_existed(const struct sim_history *history, const struct sim_txn *txn,
                                     int document, int key)
{
    for (int v = 0; v < history->count[document]; v++) {
        const struct sim_version *version = &history->versions[document][v];
        bool last = v + 1 == history->count[document];

        if (version->present && (!key || version->key == key) && version->at <= txn->ended_at &&
            (last || history->versions[document][v + 1].at >= txn->began_at))
            return true;
    }
    return false;
}

/* Returns whether the reason of a refusal existed at some time during the transaction. If `own`,
 * only in a document that an operation of the transaction names. */
static bool was_taken(const struct sim_history *history, const struct sim_txn *txn, bool own)
{
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        if (!own && txn->script->ops[d] == SIM_INSERT &&
            history_document_existed(history, txn, d, 0))
            return true;
        for (int e = 0; txn->script->keys[d] && e < SIM_DOCUMENTS; e++) {
            if (e != d && (!own || txn->script->ops[e] != SIM_NONE) &&
                history_document_existed(history, txn, e, txn->script->keys[d]))
                return true;
        }
    }
    return false;
}

/* Returns whether the transaction itself gives two documents one value. */
static bool wants_twice(const struct sim_txn *txn)
{
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        for (int e = 0; e < d; e++) {
            if (txn->script->keys[d] && txn->script->keys[d] == txn->script->keys[e])
                return true;
        }
    }
    return false;
}

static const char *check_refusal(struct checker *checker, int t)
{
    const struct sim_txn *txn = &checker->history->txns[t];

    if (!txn->ended || txn->script->key)
        return NULL;
    if (txn->status == TRUCE_INVALID && !was_taken(checker->history, txn, true))
        return history_describe(checker, "a valid change was refused", t, 0);
    if (txn->status == TRUCE_DUPLICATE && !wants_twice(txn) &&
        !was_taken(checker->history, txn, false))
        return history_describe(
            checker, "a commit failed with a duplicate value that no document had", t, 0);
    return NULL;
}

/* Compares the result of each transaction with the versions that it wrote. A transaction without a
 * key that was reported as done counts as decided from here on. */
static const char *check_answers(struct checker *checker)
{
    const struct sim_history *history = checker->history;

    for (int t = 0; t < history->txns_count; t++) {
        const struct sim_txn *txn = &history->txns[t];
        bool returned_ok = txn->ended && txn->status == TRUCE_OK;
        bool returned_failure =
            txn->ended && txn->status != TRUCE_OK && txn->status != TRUCE_UNKNOWN;
        int wrote = 0, should = 0;

        for (int d = 0; d < SIM_DOCUMENTS; d++) {
            should += history_writes(txn->script->ops[d]);
            wrote += checker->applied[t][d];
        }
        const char *wrong = check_refusal(checker, t);

        if (wrong)
            return wrong;
        if (returned_failure && wrote)
            return history_describe(checker, "a commit was reported as failed, but it was applied",
                                    t, 0);
        if (wrote && wrote != should)
            return history_describe(checker, "a commit was applied partially", t, 0);
        if (returned_ok && !txn->script->key && wrote != should)
            return history_describe(checker,
                                    "a commit was reported as done, but it was not applied", t, 0);
        if (returned_ok && !txn->script->key)
            checker->decided[t] = true;
    }
    return NULL;
}

/* Returns whether every transaction with the key writes. Otherwise a reader may have used the
 * key. */
static bool every_writes(const struct sim_history *history, int key)
{
    for (int t = 0; t < history->txns_count; t++) {
        int count = 0;

        for (int d = 0; d < SIM_DOCUMENTS; d++)
            count += history_writes(history->txns[t].script->ops[d]);
        if (history->txns[t].script->key == key && !count)
            return false;
    }
    return true;
}

/* Checks that each idempotency key took effect at most once, and at least once if a client got OK
 * for it. */
static const char *history_check_keys(struct checker *checker)
{
    const struct sim_history *history = checker->history;

    for (int t = 0; t < history->txns_count; t++) {
        const struct sim_txn *txn = &history->txns[t];
        int times = 0;

        if (!txn->script->key)
            continue;
        for (int u = 0; u < history->txns_count; u++)
            times += history->txns[u].script->key == txn->script->key && checker->decided[u];
        if (times > 1)
            return history_describe(checker, "one idempotency key took effect twice", t, 0);
        if (txn->ended && txn->status == TRUCE_OK && times == 0 &&
            every_writes(history, txn->script->key))
            return history_describe(checker,
                                    "a key was reported as done, but no commit took effect", t, 0);
    }
    return NULL;
}

/* ---- the graph ------------------------------------------------------------------------------ */

/* Returns whether a ended before b began. A commit with an unknown outcome may take effect after
 * its caller has returned. */
static bool ended_before(const struct sim_txn *a, const struct sim_txn *b)
{
    return a->ended && a->status == TRUCE_OK && a->ended_at < b->began_at;
}

/* Makes the edges of the graph: edges[t] is the set of transactions that must come after t. */
static void make_edges(const struct checker *checker, uint64_t edges[SIM_TXNS])
{
    const struct sim_history *history = checker->history;

    memset(edges, 0, SIM_TXNS * sizeof *edges);
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        for (int v = 1; v + 1 < history->count[d]; v++) {
            if (checker->writer[d][v] != checker->writer[d][v + 1])
                edges[checker->writer[d][v]] |= UINT64_C(1) << checker->writer[d][v + 1];
        }
    }
    for (int t = 0; t < history->txns_count; t++) {
        const struct sim_txn *txn = &history->txns[t];

        if (!checker->decided[t])
            continue;
        for (int u = 0; u < history->txns_count; u++) {
            if (checker->decided[u] && u != t && ended_before(&history->txns[u], txn))
                edges[u] |= UINT64_C(1) << t;
        }
        for (int d = 0; d < SIM_DOCUMENTS; d++) {
            int v = txn->read[d];

            if (v < 0)
                continue;
            if (checker->writer[d][v] >= 0 && checker->writer[d][v] != t)
                edges[checker->writer[d][v]] |= UINT64_C(1) << t;
            if (v + 1 < history->count[d] && checker->writer[d][v + 1] != t)
                edges[t] |= UINT64_C(1) << checker->writer[d][v + 1];
        }
    }
}

static bool has_cycle(uint64_t edges[SIM_TXNS], int count)
{
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < count; i++) {
            if (edges[i] >> k & 1)
                edges[i] |= edges[k];
        }
    }
    for (int i = 0; i < count; i++) {
        if (edges[i] >> i & 1)
            return true;
    }
    return false;
}

/* ---- some serial order ---------------------------------------------------------------------- */

/* The state of a serial run. state[d] is 0 if document d is missing, 1 if it is as at the start,
 * and 2 + t if transaction t wrote it last. */
struct serial {
    const struct checker *checker;
    /* The numbers of the transactions to order. */
    int ids[SIM_TXNS], count;
    int state[SIM_DOCUMENTS];
    /* used[i]: transaction ids[i] is in the order already. */
    bool used[SIM_TXNS];
};

static int history_content(const struct checker *checker, int document, int version)
{
    const struct sim_version *v = &checker->history->versions[document][version];

    if (!v->present)
        return 0;
    return checker->writer[document][version] == INITIAL ? 1
                                                         : 2 + checker->writer[document][version];
}

/* Returns whether the transaction can be next: no remaining one ended before it began, and it read
 * the current contents. */
static bool serial_may_append(const struct serial *serial, int t)
{
    const struct sim_history *history = serial->checker->history;
    const struct sim_txn *txn = &history->txns[t];

    for (int i = 0; i < serial->count; i++) {
        const struct sim_txn *other = &history->txns[serial->ids[i]];

        if (!serial->used[i] && serial->ids[i] != t && ended_before(other, txn))
            return false;
    }
    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        if (txn->read[d] >= 0 &&
            history_content(serial->checker, d, txn->read[d]) != serial->state[d])
            return false;
        if (txn->script->ops[d] == SIM_INSERT && serial->state[d] != 0)
            return false;
    }
    return true;
}

/* Searches, depth first, for a serial order of the remaining transactions that respects real time,
 * explains all reads, and ends in the last versions. */
static bool history_append(struct serial *serial, int done)
{
    const struct sim_history *history = serial->checker->history;

    if (done == serial->count) {
        for (int d = 0; d < SIM_DOCUMENTS; d++) {
            if (serial->state[d] != history_content(serial->checker, d, history->count[d] - 1))
                return false;
        }
        return true;
    }
    for (int i = 0; i < serial->count; i++) {
        int before[SIM_DOCUMENTS], t = serial->ids[i];

        if (serial->used[i] || !serial_may_append(serial, t))
            continue;
        memcpy(before, serial->state, sizeof before);
        for (int d = 0; d < SIM_DOCUMENTS; d++) {
            if (history_writes(history->txns[t].script->ops[d]))
                serial->state[d] = history_op_removes(history->txns[t].script->ops[d]) ? 0 : 2 + t;
        }
        serial->used[i] = true;
        if (history_append(serial, done + 1))
            return true;
        serial->used[i] = false;
        memcpy(serial->state, before, sizeof before);
    }
    return false;
}

static bool some_serial_order(const struct checker *checker)
{
    struct serial serial = {.checker = checker};

    for (int t = 0; t < checker->history->txns_count; t++) {
        if (checker->decided[t])
            serial.ids[serial.count++] = t;
    }
    for (int d = 0; d < SIM_DOCUMENTS; d++)
        serial.state[d] = history_content(checker, d, 0);
    return history_append(&serial, 0);
}

const char *truce__history_check(const struct sim_history *history, char *detail, size_t size)
{
    struct checker checker = {.history = history, .detail = detail, .size = size};
    uint64_t edges[SIM_TXNS];
    const char *wrong = assign_writers(&checker);

    if (!wrong)
        wrong = check_answers(&checker);
    if (!wrong)
        wrong = history_check_keys(&checker);
    if (!wrong && history->fence_broken)
        wrong = history_describe(
            &checker, "a commit took effect after a document that it held had changed", -1, 0);
    if (wrong)
        return wrong;
    if (history->wrong_keys)
        return history_describe(&checker, history->wrong_keys, -1, 0);
    if (history->keyed)
        wrong = check_values(&checker);
    if (wrong)
        return wrong;
    make_edges(&checker, edges);
    if (has_cycle(edges, history->txns_count) && !some_serial_order(&checker))
        return history_describe(
            &checker, "not strictly serializable: a cycle of committed transactions", 0, 0);
    return NULL;
}
