/*
 * Many equalities at once.
 *
 *     {$or: [{k: 1}, {k: 2}, {k: 3, x: 7}, {y: {$gt: 5}}, ... {k: 100000}]}
 *
 *     group "k"    1 -> child 0    2 -> child 1    3 -> child 2 ...        sorted
 *     direct       child 3
 *
 * The path of a group is walked once; each element is looked for among the sorted operands, and sets
 * the bit of the children that it meets. Of an OR those children are then tested, and the direct ones. Of
 * an AND each child of a group has to be met; then the direct ones are tested.
 *
 * Invariants:
 *  1. A child whose bit is not set does not hold: its equality, which it is or has (an AND), was met
 *     by no element.
 *  2. Children are tested in their order, so that what fails, and which position is the last, is as
 *     without a table. In an AND the last child of each group is direct: positions come of it.
 *  3. A table does not change after it was made; what a test needs stands in its run.
 */
#include <stdlib.h>
#include <string.h>

#include "query/match/match_tree.h"

#define TABLE_LEAST 16 /* equalities of one path */

struct entry {
    const struct match_node *equality;
    uint32_t child;
};

struct group {
    struct match_node node; /* MATCH_GROUP; its path is borrowed, `extra` the group itself */
    const struct entry *entries;
    uint32_t count;
};

struct match_table {
    struct entry *entries; /* by path, operand and child */
    struct group *groups;
    uint32_t entries_count, groups_count;
    uint32_t words;
    uint64_t *direct; /* a bit for each child */
};

static inline void set_bit(uint64_t *bits, uint32_t number)
{
    bits[number / 64] |= UINT64_C(1) << number % 64;
}

static inline bool has_bit(const uint64_t *bits, uint32_t number)
{
    return bits[number / 64] >> number % 64 & 1;
}

/* ---- making --------------------------------------------------------------------------------- */

static const struct match_node *equality_of(const struct match_node *parent,
                                            const struct match_node *child)
{
    if (child->kind == MATCH_EQ)
        return child;
    for (uint32_t i = 0;
         child->kind == MATCH_AND && parent->kind != MATCH_AND && i < child->children_count; i++) {
        if (child->children[i]->kind == MATCH_EQ)
            return child->children[i];
    }
    return NULL;
}

static int by_path(const struct entry *a, const struct entry *b)
{
    return strcmp(a->equality->path.text, b->equality->path.text);
}

static int by_all(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    int order = by_path(a, b);

    if (!order)
        order = truce__value_compare(a->equality->operand, b->equality->operand);
    return order ? order : (a->child > b->child) - (a->child < b->child);
}

static void table_make_group(struct match_table *table, const struct match_node *node,
                             uint32_t first, uint32_t count)
{
    struct group *group = &table->groups[table->groups_count++];
    uint32_t last = 0;

    group->entries = table->entries + first;
    group->count = count;
    group->node.kind = MATCH_GROUP;
    group->node.path = group->entries->equality->path;
    group->node.extra = group;
    for (uint32_t i = 0; i < count; i++) {
        table->direct[group->entries[i].child / 64] &=
            ~(UINT64_C(1) << group->entries[i].child % 64);
        if (group->entries[i].child > last)
            last = group->entries[i].child;
    }
    if (node->kind == MATCH_AND)
        set_bit(table->direct, last);
}

static void make_groups(struct match_table *table, const struct match_node *node)
{
    for (uint32_t first = 0, end; first < table->entries_count; first = end) {
        end = first + 1;
        while (end < table->entries_count && !by_path(&table->entries[first], &table->entries[end]))
            end++;
        if (end - first >= TABLE_LEAST)
            table_make_group(table, node, first, end - first);
    }
}

struct match_table *truce__match_table_new(const struct match_node *node)
{
    struct match_table *table;

    if (node->children_count < TABLE_LEAST)
        return NULL;
    table = bson_malloc0(sizeof *table);
    table->entries = bson_malloc(node->children_count * sizeof *table->entries);
    table->groups = bson_malloc0((node->children_count / TABLE_LEAST) * sizeof *table->groups);
    table->words = (node->children_count + 63) / 64;
    table->direct = bson_malloc0(table->words * sizeof *table->direct);
    for (uint32_t i = 0; i < node->children_count; i++) {
        const struct match_node *equality = equality_of(node, node->children[i]);

        set_bit(table->direct, i);
        if (equality)
            table->entries[table->entries_count++] = (struct entry){equality, i};
    }
    qsort(table->entries, table->entries_count, sizeof *table->entries, by_all);
    make_groups(table, node);
    if (table->groups_count)
        return table;
    truce__match_table_free(table);
    return NULL;
}

void truce__match_table_free(struct match_table *table)
{
    if (!table)
        return;
    bson_free(table->entries);
    bson_free(table->groups);
    bson_free(table->direct);
    bson_free(table);
}

/* ---- testing -------------------------------------------------------------------------------- */

/* the first entry whose operand is not less than the value */
static uint32_t table_find_entry(const struct group *group, struct value value)
{
    uint32_t low = 0, high = group->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (truce__value_compare(group->entries[middle].equality->operand, value) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Never holds, so that all elements are seen. */
bool truce__match_group_test(const struct match_node *node, struct value value,
                             struct match_run *run)
{
    const struct group *group = node->extra;

    if (value.type == VALUE_MISSING || value.type == BSON_TYPE_UNDEFINED)
        value = truce__value_null();
    for (uint32_t i = table_find_entry(group, value);
         i < group->count && truce__match_spend(run, 1) &&
         !truce__value_compare(group->entries[i].equality->operand, value);
         i++)
        set_bit(run->hits, group->entries[i].child);
    return false;
}

/* The bits of the children that some element met; released by the caller. */
static uint64_t *find_hits(const struct match_table *table, struct value value,
                           match_node_test *test, struct match_run *run)
{
    uint64_t *hits = bson_malloc0(table->words * sizeof *hits), *outer = run->hits;

    run->hits = hits;
    for (uint32_t i = 0; i < table->groups_count && truce__match_spend(run, 1); i++)
        (void)test(&table->groups[i].node, value, run); /* never holds */
    run->hits = outer;
    return hits;
}

bool truce__match_table_any(const struct match_node *node, struct value value,
                            match_node_test *test, struct match_run *run)
{
    const struct match_table *table = node->extra;
    uint64_t *hits = find_hits(table, value, test, run);
    bool any = false;

    for (uint32_t i = 0; i < node->children_count && !any && run->status == TRUCE_OK; i++) {
        uint64_t word = hits[i / 64] | table->direct[i / 64];

        if (!word)
            i |= 63; /* none of these */
        else if (word >> i % 64 & 1)
            any = truce__match_spend(run, 1) && test(node->children[i], value, run);
    }
    bson_free(hits);
    return any;
}

static bool meets_all(const struct match_table *table, const uint64_t *hits)
{
    for (uint32_t i = 0; i < table->groups_count; i++) {
        const struct group *group = &table->groups[i];

        for (uint32_t j = 0; j < group->count; j++) {
            if (!has_bit(hits, group->entries[j].child))
                return false;
        }
    }
    return true;
}

bool truce__match_table_holds(const struct match_node *node, struct value value,
                              match_node_test *test, struct match_run *run)
{
    const struct match_table *table = node->extra;
    uint64_t *hits = find_hits(table, value, test, run);
    bool all = meets_all(table, hits) && run->status == TRUCE_OK;

    bson_free(hits);
    return all;
}

bool truce__match_table_is_direct(const struct match_table *table, uint32_t child)
{
    return has_bit(table->direct, child);
}
