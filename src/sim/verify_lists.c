#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/verify_parts.h"

/*
 * Checks lists. Appending preserves the elements before it, so a list that was read shows the order
 * of its versions. All reads of a key must be prefixes of the longest one. The order gives the
 * dependencies:
 *
 *     ww   the writer of an element -> the writer of the next
 *     wr   the writer of the last element that was read -> the reader
 *     rw   the reader -> the writer of the element after those that it read
 *     time a transaction -> the transactions that began after its end. A chain of additional nodes
 *          represents time, so there are as many edges as transactions, and not as many as pairs.
 *
 * Values that were never read come after all values that were read.
 */

#define NO_TXN UINT32_MAX

/* A value that was appended to a list. */
struct element {
    uint32_t key, txn;
    int64_t value;
    /* The append is the last one of the transaction to this key. */
    bool last;
    /* The longest read of the key contains the value. */
    bool seen;
    /* The transaction's previous append to the key. Valid if `has_before`. */
    bool has_before;
    int64_t before;
};

/* The check of the lists of a history. */
struct lists {
    struct verify *verify;
    /* All appended values, sorted by key and value, and their number. */
    struct element *elements;
    uint32_t count;
    /* For each key, the longest list that was read, and its reader. */
    struct {
        const int64_t *list;
        uint32_t length, txn;
    } * longest;
    /* took_effect[t]: transaction t committed, or a value that it appended was read. */
    bool *took_effect;
    struct verify_graph *graph;
};

/* ---- appends -------------------------------------------------------------------------------- */

static int lists_compare_elements(const void *a, const void *b)
{
    const struct element *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static struct element *element_of(const struct lists *lists, uint32_t key, int64_t value)
{
    struct element wanted = {.key = key, .value = value};

    return lists->count ? bsearch(&wanted, lists->elements, lists->count, sizeof wanted,
                                  lists_compare_elements)
                        : NULL;
}

static bool later_append(const struct verify_txn *txn, uint32_t after, uint32_t key)
{
    for (uint32_t i = after + 1; i < txn->ops_count; i++) {
        if (txn->ops[i].kind == VERIFY_APPEND && txn->ops[i].key == key)
            return true;
    }
    return false;
}

static struct element new_element(const struct verify_txn *txn, uint32_t t, uint32_t at)
{
    const struct verify_op *op = &txn->ops[at];
    struct element element = {
        .key = op->key, .txn = t, .value = op->value, .last = !later_append(txn, at, op->key)};

    for (uint32_t i = at; i-- > 0 && !element.has_before;) {
        if (txn->ops[i].kind == VERIFY_APPEND && txn->ops[i].key == op->key) {
            element.has_before = true;
            element.before = txn->ops[i].value;
        }
    }
    return element;
}

/* Gathers the appended values of all transactions, sorted, and reports values that were appended
 * twice to a list. */
static void gather_elements(struct lists *lists)
{
    const struct verify *verify = lists->verify;
    uint32_t room = 0;

    for (uint32_t t = 0; t < verify->count; t++) {
        for (uint32_t i = 0; i < verify->txns[t].ops_count; i++)
            room += verify->txns[t].ops[i].kind == VERIFY_APPEND;
    }
    lists->elements = bson_malloc0((room + 1) * sizeof *lists->elements);
    for (uint32_t t = 0; t < verify->count; t++) {
        const struct verify_txn *txn = &verify->txns[t];

        for (uint32_t i = 0; i < txn->ops_count; i++) {
            if (txn->ops[i].kind == VERIFY_APPEND)
                lists->elements[lists->count++] = new_element(txn, t, i);
        }
    }
    qsort(lists->elements, lists->count, sizeof *lists->elements, lists_compare_elements);
    for (uint32_t i = 1; i < lists->count; i++) {
        if (!lists_compare_elements(&lists->elements[i - 1], &lists->elements[i]))
            truce__verify_report(
                lists->verify, "duplicate",
                "the value %lld is appended to \"%s\" by transactions %u and %u: the "
                "history cannot be checked",
                (long long)lists->elements[i].value, verify->keys[lists->elements[i].key],
                verify->txns[lists->elements[i - 1].txn].number,
                verify->txns[lists->elements[i].txn].number);
    }
}

/* ---- every read by itself ------------------------------------------------------------------- */

static bool lists_is_prefix(const int64_t *a, uint32_t a_length, const int64_t *b,
                            uint32_t b_length)
{
    return a_length <= b_length && (!a_length || !memcmp(a, b, a_length * sizeof *a));
}

/* Checks one value of a read: a transaction appended it, did not fail, and, if it is the last
 * value, appended nothing after it. */
static void check_element(struct lists *lists, uint32_t t, const struct verify_op *read,
                          uint32_t at)
{
    const struct element *element = element_of(lists, read->key, read->list[at]);
    const struct verify_txn *txns = lists->verify->txns;
    const char *key = lists->verify->keys[read->key];

    if (!element)
        truce__verify_report(lists->verify, "G1a",
                             "transaction %u read %lld in \"%s\", which no transaction appended",
                             txns[t].number, (long long)read->list[at], key);
    else if (lists->verify->txns[element->txn].outcome == VERIFY_FAIL)
        truce__verify_report(
            lists->verify, "G1a",
            "transaction %u read %lld in \"%s\", which transaction %u appended and "
            "then failed (aborted read)",
            txns[t].number, (long long)read->list[at], key, txns[element->txn].number);
    else if (at + 1 == read->length && !element->last && element->txn != t)
        truce__verify_report(
            lists->verify, "G1b",
            "transaction %u read \"%s\" up to %lld, in the middle of transaction %u "
            "(intermediate read)",
            txns[t].number, key, (long long)read->list[at], txns[element->txn].number);
}

static int compare_values(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void check_repeats(struct lists *lists, uint32_t t, const struct verify_op *read)
{
    int64_t *sorted = bson_malloc((read->length + 1) * sizeof *sorted);

    if (read->length)
        memcpy(sorted, read->list, read->length * sizeof *sorted);
    qsort(sorted, read->length, sizeof *sorted, compare_values);
    for (uint32_t i = 1; i < read->length; i++) {
        if (sorted[i] == sorted[i - 1])
            truce__verify_report(lists->verify, "duplicate",
                                 "transaction %u read %lld twice in \"%s\": it was applied twice",
                                 lists->verify->txns[t].number, (long long)sorted[i],
                                 lists->verify->keys[read->key]);
    }
    bson_free(sorted);
}

/* Makes the read the longest one of its key if it is. Reports two reads of which neither is a
 * prefix of the other. */
static void take_read(struct lists *lists, uint32_t t, const struct verify_op *read)
{
    bool longer = read->length > lists->longest[read->key].length;
    const int64_t *a = longer ? lists->longest[read->key].list : read->list;
    uint32_t a_length = longer ? lists->longest[read->key].length : read->length;
    const int64_t *b = longer ? read->list : lists->longest[read->key].list;
    uint32_t b_length = longer ? read->length : lists->longest[read->key].length;

    if (!lists_is_prefix(a, a_length, b, b_length)) {
        truce__verify_report(lists->verify, "incompatible-order",
                             "transactions %u and %u read \"%s\" in two orders",
                             lists->verify->txns[t].number,
                             lists->verify->txns[lists->longest[read->key].txn].number,
                             lists->verify->keys[read->key]);
        return;
    }
    if (longer) {
        lists->longest[read->key].list = read->list;
        lists->longest[read->key].length = read->length;
        lists->longest[read->key].txn = t;
    }
}

/* Checks that a read contains the transaction's previous read and its own appends since then. */
static void check_internal(struct lists *lists, uint32_t t, uint32_t at)
{
    const struct verify_txn *txn = &lists->verify->txns[t];
    const struct verify_op *read = &txn->ops[at];
    uint32_t appended = 0, i = at;
    bool good = true, known = false;

    while (good && !known && i-- > 0) {
        const struct verify_op *op = &txn->ops[i];

        if (op->key != read->key)
            continue;
        if (op->kind == VERIFY_APPEND) {
            appended++;
            good = appended <= read->length && read->list[read->length - appended] == op->value;
        } else {
            known = true;
            good = read->length == op->length + appended &&
                   lists_is_prefix(op->list, op->length, read->list, read->length);
        }
    }
    if (!good)
        truce__verify_report(
            lists->verify, "internal",
            "transaction %u read \"%s\" and did not find what it had read or appended "
            "itself",
            txn->number, lists->verify->keys[read->key]);
}

static bool is_list_read(const struct lists *lists, const struct verify_op *op)
{
    return op->kind == VERIFY_READ && lists->verify->types[op->key] == VERIFY_LIST;
}

static void lists_check_reads(struct lists *lists)
{
    for (uint32_t t = 0; t < lists->verify->count; t++) {
        const struct verify_txn *txn = &lists->verify->txns[t];

        for (uint32_t i = 0; txn->outcome == VERIFY_OK && i < txn->ops_count; i++) {
            if (!is_list_read(lists, &txn->ops[i]))
                continue;
            for (uint32_t e = 0; e < txn->ops[i].length; e++)
                check_element(lists, t, &txn->ops[i], e);
            check_repeats(lists, t, &txn->ops[i]);
            check_internal(lists, t, i);
            take_read(lists, t, &txn->ops[i]);
        }
    }
}

/* ---- edges ---------------------------------------------------------------------------------- */

static uint32_t writer_at(const struct lists *lists, uint32_t key, uint32_t at)
{
    const struct element *element = element_of(lists, key, lists->longest[key].list[at]);

    return element && lists->verify->txns[element->txn].outcome != VERIFY_FAIL ? element->txn
                                                                               : NO_TXN;
}

static void lists_add(struct lists *lists, uint32_t from, uint32_t to, enum verify_edge kind,
                      uint32_t key)
{
    if (from != NO_TXN && to != NO_TXN)
        truce__graph_add(lists->graph, from, to, kind, key);
}

/* Adds edges from `txn` to all transactions whose committed appends to the key were never read. */
static void add_unseen(struct lists *lists, uint32_t txn, uint32_t key, enum verify_edge kind)
{
    struct element least = {.key = key, .value = INT64_MIN};
    uint32_t low = 0, high = lists->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (lists_compare_elements(&lists->elements[middle], &least) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < lists->count && lists->elements[low].key == key; low++) {
        if (!lists->elements[low].seen && lists->took_effect[lists->elements[low].txn])
            lists_add(lists, txn, lists->elements[low].txn, kind, key);
    }
}

/* Marks the values of the longest reads, and the transactions that appended them. If a value is
 * there, the value that the same transaction appended before it must be there, too. */
static void mark_seen(struct lists *lists)
{
    for (uint32_t t = 0; t < lists->verify->count; t++)
        lists->took_effect[t] = lists->verify->txns[t].outcome == VERIFY_OK;
    for (uint32_t key = 0; key < lists->verify->keys_count; key++) {
        for (uint32_t i = 0; i < lists->longest[key].length; i++) {
            struct element *element = element_of(lists, key, lists->longest[key].list[i]);
            const struct element *before;

            if (!element)
                continue;
            element->seen = true;
            lists->took_effect[element->txn] = true;
            before = element->has_before ? element_of(lists, key, element->before) : NULL;
            if (before && !before->seen)
                truce__verify_report(lists->verify, "lost-append",
                                     "transaction %u appended %lld and then %lld to \"%s\", and "
                                     "a read has only the second value",
                                     lists->verify->txns[element->txn].number,
                                     (long long)before->value, (long long)element->value,
                                     lists->verify->keys[key]);
        }
    }
}

static void add_versions(struct lists *lists)
{
    for (uint32_t key = 0; key < lists->verify->keys_count; key++) {
        uint32_t length = lists->longest[key].length;

        for (uint32_t i = 1; i < length; i++)
            lists_add(lists, writer_at(lists, key, i - 1), writer_at(lists, key, i), EDGE_WW, key);
        if (length)
            add_unseen(lists, writer_at(lists, key, length - 1), key, EDGE_WW);
    }
}

/* Returns the length of the list that was read, without the transaction's own appends to the
 * key. */
static uint32_t foreign_length(const struct verify_txn *txn, uint32_t at)
{
    uint32_t length = txn->ops[at].length;

    for (uint32_t i = 0; i < at; i++) {
        if (txn->ops[i].kind == VERIFY_APPEND && txn->ops[i].key == txn->ops[at].key)
            length -= length > 0;
    }
    return length;
}

/* Adds the edges of all reads of committed transactions: from the writer of the last value, and to
 * the writer of the next one. */
static void lists_add_reads(struct lists *lists)
{
    for (uint32_t t = 0; t < lists->verify->count; t++) {
        const struct verify_txn *txn = &lists->verify->txns[t];

        for (uint32_t i = 0; txn->outcome == VERIFY_OK && i < txn->ops_count; i++) {
            uint32_t key = txn->ops[i].key, length;

            if (!is_list_read(lists, &txn->ops[i]))
                continue;
            length = foreign_length(txn, i);
            if (length > lists->longest[key].length)
                continue; /* Such a read was reported as incompatible. */
            if (length)
                lists_add(lists, writer_at(lists, key, length - 1), t, EDGE_WR, key);
            if (length < lists->longest[key].length)
                lists_add(lists, t, writer_at(lists, key, length), EDGE_RW, key);
            else
                add_unseen(lists, t, key, EDGE_RW);
        }
    }
}

static int lists_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Adds the edges of time. The end times of transactions are nodes after those of the
 * transactions. */
static void add_time(struct lists *lists, const double *ends, uint32_t ends_count)
{
    uint32_t first = lists->verify->count;

    for (uint32_t i = 0; i + 1 < ends_count; i++)
        truce__graph_add(lists->graph, first + i, first + i + 1, EDGE_TIME, 0);
    for (uint32_t t = 0; t < lists->verify->count; t++) {
        const struct verify_txn *txn = &lists->verify->txns[t];
        uint32_t low = 0, high = ends_count;

        if (txn->outcome == VERIFY_FAIL)
            continue;
        /* Finds the last end time before the beginning of the transaction. */
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;

            if (ends[middle] < txn->begin)
                low = middle + 1;
            else
                high = middle;
        }
        if (low > 0)
            truce__graph_add(lists->graph, first + low - 1, t, EDGE_TIME, 0);
        if (txn->outcome != VERIFY_OK)
            continue;
        low = (uint32_t)((const double *)bsearch(&txn->end, ends, ends_count, sizeof *ends,
                                                 lists_compare_doubles) -
                         ends);
        while (low + 1 < ends_count && ends[low + 1] <= txn->end)
            low++;
        truce__graph_add(lists->graph, t, first + low, EDGE_TIME, 0);
    }
}

/* ---- cycles --------------------------------------------------------------------------------- */

static const char *edge_name(unsigned kinds)
{
    return kinds & EDGE_WW ? "ww" : kinds & EDGE_WR ? "wr" : kinds & EDGE_RW ? "rw" : "time";
}

/* Reports a cycle as text: "3 -ww x-> 7 -time-> 3". A long cycle is truncated. */
static void report_cycle(struct lists *lists, const char *name, const struct verify_step *steps,
                         uint32_t length)
{
    struct verify *verify = lists->verify;
    char text[1500];
    size_t at = 0;
    uint32_t first = NO_TXN;

    for (uint32_t i = 0; i < length && at + 100 < sizeof text; i++) {
        uint32_t number;

        if (steps[i].node >= verify->count)
            continue; /* The node represents a time, not a transaction. */
        number = verify->txns[steps[i].node].number;
        first = first == NO_TXN ? number : first;
        if (steps[i].kinds & EDGE_TIME)
            at += (size_t)snprintf(text + at, sizeof text - at, "%u -time-> ", number);
        else
            at += (size_t)snprintf(text + at, sizeof text - at, "%u -%s %.40s-> ", number,
                                   edge_name(steps[i].kinds), verify->keys[steps[i].key]);
    }
    snprintf(text + at, sizeof text - at, "%u", first);
    truce__verify_report(verify, name, "transactions %s", text);
}

/* Searches for a cycle, with more kinds of edges at each level, and reports the first one. The name
 * of the anomaly is therefore that of the most severe class. */
static void find_cycles(struct lists *lists)
{
    static const struct level {
        unsigned kinds;
        /* The names of a cycle with one anti-dependency, and of a cycle with none or several. */
        const char *one, *more;
    } levels[] = {
        {EDGE_WW, "G0", "G0"},
        {EDGE_WW | EDGE_WR, "G1c", "G1c"},
        {EDGE_WW | EDGE_WR | EDGE_RW, "G-single", "G2-item"},
        {EDGE_WW | EDGE_TIME, "G0-realtime", "G0-realtime"},
        {EDGE_WW | EDGE_WR | EDGE_TIME, "G1c-realtime", "G1c-realtime"},
        {EDGE_WW | EDGE_WR | EDGE_RW | EDGE_TIME, "G-single-realtime", "G2-item-realtime"},
    };

    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        struct verify_step *steps;
        uint32_t length = truce__graph_cycle(lists->graph, levels[i].kinds, &steps), anti = 0;

        if (!length)
            continue;
        for (uint32_t e = 0; e < length; e++)
            anti += !strcmp(edge_name(steps[e].kinds), "rw");
        report_cycle(lists, anti == 1 ? levels[i].one : levels[i].more, steps, length);
        bson_free(steps);
        return; /* The classes that follow contain this cycle, too. */
    }
}

void truce__verify_lists(struct verify *verify)
{
    struct lists lists = {.verify = verify};
    double *ends = bson_malloc((verify->count + 1) * sizeof *ends);
    uint32_t ends_count = 0;
    int before = verify->anomalies;

    lists.longest = bson_malloc0((verify->keys_count + 1) * sizeof *lists.longest);
    gather_elements(&lists);
    lists_check_reads(&lists);
    for (uint32_t t = 0; t < verify->count; t++) {
        if (verify->txns[t].outcome == VERIFY_OK)
            ends[ends_count++] = verify->txns[t].end;
    }
    qsort(ends, ends_count, sizeof *ends, lists_compare_doubles);
    lists.graph = truce__graph_new(verify->count + ends_count + 1);
    lists.took_effect = bson_malloc0(verify->count + 1);
    mark_seen(&lists);
    add_versions(&lists);
    lists_add_reads(&lists);
    add_time(&lists, ends, ends_count);
    if (verify->anomalies == before || lists.count)
        find_cycles(&lists);
    truce__graph_free(lists.graph);
    bson_free(lists.longest);
    bson_free(lists.took_effect);
    bson_free(lists.elements);
    bson_free(ends);
}
