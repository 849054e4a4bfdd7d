#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/verify_parts.h"

/*
 * Checks registers. Reads do not show the order of the writes. The checker searches for an order of
 * all transactions that respects real time and in which every read returns the last written value.
 * If a history also has lists, the order must explain them, too. A hash of its values identifies
 * the content of a list.
 *
 * Each step tries all transactions that can be next: those that began before the first end of the
 * others. A state, which is the set of executed transactions and the current values, is tried only
 * once.
 *
 * A transaction with an unknown outcome may run at any time after its beginning, or never.
 */

/* The content of a key: the value of a register with the length 1, or a hash of a list with its
 * length. The length is 0 before the first write. */
struct content {
    uint32_t length;
    int64_t value;
};

/* The content of a key before a write. */
struct undo {
    uint32_t key;
    struct content content;
};

/* The search for an order of the transactions. */
struct search {
    struct verify *verify;
    /* The numbers of the transactions, sorted by their beginnings. */
    uint32_t *order;
    /* The number of transactions in `order`, and the number of those that committed and are not
     * executed yet. */
    uint32_t count, open;
    /* done[i]: transaction order[i] was executed. */
    bool *done;
    /* A random number for each transaction. The xor of the numbers identifies a set of
     * transactions. */
    uint64_t *names;
    /* The content of each key. */
    struct content *contents;
    /* The previous contents of keys, which are restored if the search goes back. */
    struct undo *undo;
    uint32_t undo_count, undo_room;
    /* A hash table of the states that were reached. A free slot is 0. */
    uint64_t *seen;
    uint64_t seen_room, seen_count;
    /* The xor of the names of the executed transactions, and the number of steps so far. */
    uint64_t set_name, steps;
};

static uint64_t registers_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void write_content(struct search *search, uint32_t key, struct content content)
{
    if (search->undo_count == search->undo_room) {
        search->undo_room = search->undo_room ? 2 * search->undo_room : 256;
        search->undo = bson_realloc(search->undo, search->undo_room * sizeof *search->undo);
    }
    search->undo[search->undo_count++] = (struct undo){key, search->contents[key]};
    search->contents[key] = content;
}

static void registers_roll_back(struct search *search, uint32_t to)
{
    while (search->undo_count > to) {
        const struct undo *undo = &search->undo[--search->undo_count];

        search->contents[undo->key] = undo->content;
    }
}

static int64_t hash_after(int64_t hash, int64_t value)
{
    return (int64_t)registers_mix((uint64_t)hash * 31 + registers_mix((uint64_t)value));
}

static int64_t hash_of_list(const struct verify_op *op)
{
    int64_t hash = 0;

    for (uint32_t i = 0; i < op->length; i++)
        hash = hash_after(hash, op->list[i]);
    return hash;
}

static bool reads_content(const struct verify_op *op, bool is_list, const struct content *content)
{
    if (op->nothing || (is_list && !op->length))
        return !content->length;
    if (is_list)
        return content->length == op->length && content->value == hash_of_list(op);
    return content->length && content->value == op->value;
}

/* Executes a transaction. Returns false, and rolls back its writes, if a read has another value. */
static bool registers_apply(struct search *search, const struct verify_txn *txn)
{
    uint32_t before = search->undo_count;

    for (uint32_t i = 0; i < txn->ops_count; i++) {
        const struct verify_op *op = &txn->ops[i];
        const struct content *content = &search->contents[op->key];
        bool is_list = search->verify->types[op->key] == VERIFY_LIST;

        if (op->kind == VERIFY_WRITE) {
            write_content(search, op->key, (struct content){1, op->value});
        } else if (op->kind == VERIFY_APPEND) {
            int64_t hash = hash_after(content->length ? content->value : 0, op->value);

            write_content(search, op->key, (struct content){content->length + 1, hash});
        } else if (txn->outcome == VERIFY_OK && !reads_content(op, is_list, content)) {
            /* If the outcome is unknown, what the transaction read is unknown, too. */
            registers_roll_back(search, before);
            return false;
        }
    }
    return true;
}

static uint64_t registers_state_of(const struct search *search)
{
    uint64_t state = search->set_name;

    for (uint32_t key = 0; key < search->verify->keys_count; key++) {
        const struct content *content = &search->contents[key];

        if (content->length)
            state ^=
                registers_mix(((uint64_t)content->value + content->length * 0xd1b54a32d192ed03u) *
                                  0x9e3779b97f4a7c15u +
                              key);
    }
    return state ? state : 1;
}

static bool registers_put(uint64_t *slots, uint64_t room, uint64_t state)
{
    uint64_t at = state & (room - 1);

    while (slots[at] && slots[at] != state)
        at = (at + 1) & (room - 1);
    if (slots[at])
        return false;
    slots[at] = state;
    return true;
}

/* Returns true if the state is new. */
static bool registers_remember(struct search *search)
{
    if (2 * search->seen_count >= search->seen_room) {
        uint64_t room = search->seen_room ? 2 * search->seen_room : 4096;
        uint64_t *slots = bson_malloc0(room * sizeof *slots);

        for (uint64_t i = 0; i < search->seen_room; i++) {
            if (search->seen[i])
                registers_put(slots, room, search->seen[i]);
        }
        bson_free(search->seen);
        search->seen = slots;
        search->seen_room = room;
    }
    if (!registers_put(search->seen, search->seen_room, registers_state_of(search)))
        return false;
    search->seen_count++;
    return true;
}

/* Returns the earliest end of the remaining transactions. */
static double first_end(const struct search *search, uint32_t from)
{
    double least = 1e300;

    for (uint32_t i = from; i < search->count; i++) {
        const struct verify_txn *txn = &search->verify->txns[search->order[i]];

        if (search->done[i])
            continue;
        if (txn->begin > least)
            break;
        if (txn->outcome == VERIFY_OK && txn->end < least)
            least = txn->end;
    }
    return least;
}

/* Searches, depth first, for an order of the transactions that are not done. Tries only those that
 * began before the first end of the others. Gives up after the maximum number of steps, and at a
 * state that was reached before. */
static bool registers_append(struct search *search, uint32_t from)
{
    double least;
    uint32_t undo;

    while (from < search->count && search->done[from])
        from++;
    if (!search->open)
        return true;
    if (search->steps++ >= search->verify->steps_max || !registers_remember(search))
        return false;
    least = first_end(search, from);
    undo = search->undo_count;
    for (uint32_t i = from; i < search->count; i++) {
        const struct verify_txn *txn = &search->verify->txns[search->order[i]];
        bool found;

        if (search->done[i])
            continue;
        if (txn->begin > least)
            break;
        if (!registers_apply(search, txn))
            continue;
        search->done[i] = true;
        search->open -= txn->outcome == VERIFY_OK;
        search->set_name ^= search->names[i];
        found = registers_append(search, from);
        if (found)
            return true;
        search->set_name ^= search->names[i];
        search->open += txn->outcome == VERIFY_OK;
        search->done[i] = false;
        registers_roll_back(search, undo);
    }
    return false;
}

/* The argument of the comparison, because qsort passes none. */
static const struct verify_txn *sorted_txns;

static int compare_begins(const void *a, const void *b)
{
    double x = sorted_txns[*(const uint32_t *)a].begin, y = sorted_txns[*(const uint32_t *)b].begin;

    return x < y ? -1 : x > y;
}

static bool has_register(const struct verify *verify)
{
    for (uint32_t key = 0; key < verify->keys_count; key++) {
        if (verify->types[key] == VERIFY_REGISTER)
            return true;
    }
    return false;
}

/* Sorts the transactions that may have taken effect by their beginnings, and gives each of them a
 * random number. */
static void registers_gather(struct search *search)
{
    const struct verify *verify = search->verify;

    search->order = bson_malloc((verify->count + 1) * sizeof *search->order);
    for (uint32_t t = 0; t < verify->count; t++) {
        if (verify->txns[t].outcome == VERIFY_FAIL)
            continue;
        search->order[search->count++] = t;
        search->open += verify->txns[t].outcome == VERIFY_OK;
    }
    sorted_txns = verify->txns;
    qsort(search->order, search->count, sizeof *search->order, compare_begins);
    search->done = bson_malloc0((search->count + 1) * sizeof *search->done);
    search->names = bson_malloc((search->count + 1) * sizeof *search->names);
    for (uint32_t i = 0; i < search->count; i++)
        search->names[i] = registers_mix(i + 0x7472756365u);
    search->contents = bson_malloc0((verify->keys_count + 1) * sizeof *search->contents);
}

/* The maximum number of transactions for which an order is searched. */
#define DEPTH_MAX 20000

void truce__verify_registers(struct verify *verify)
{
    struct search search = {.verify = verify};

    verify->steps = 0;
    if (!has_register(verify))
        return;
    registers_gather(&search);
    if (search.count > DEPTH_MAX)
        truce__verify_report(
            verify, "undecided",
            "there are %u transactions with registers: an order of at most %d can be "
            "searched for; use lists",
            search.count, DEPTH_MAX);
    else if (search.count && !registers_append(&search, 0)) {
        if (search.steps >= verify->steps_max)
            truce__verify_report(
                verify, "undecided",
                "the search for an order of the transactions stopped after %llu steps",
                (unsigned long long)verify->steps_max);
        else
            truce__verify_report(verify, "not-linearizable",
                                 "no order of the transactions, within real time, explains "
                                 "what was read");
    }
    verify->steps = search.steps;
    bson_free(search.order);
    bson_free(search.done);
    bson_free(search.names);
    bson_free(search.contents);
    bson_free(search.undo);
    bson_free(search.seen);
}
