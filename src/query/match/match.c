/*
 * Tests documents against filters.
 *
 * A filter is compiled (match_parse.c) into a tree (match.h has its picture). This file walks the
 * tree and the paths of its leaves through documents, and tests elements against leaves.
 *
 * Paths. A path through arrays names several elements; a leaf holds if it holds for any of them:
 *
 *     path "a.b"      {a: {b: 5}}                    5
 *                     {a: [{b: 5}, 7, {c: 1}]}       5, (7 has no fields: nothing), missing
 *                     {a: {b: [5, 6]}}               5, 6, [5, 6]
 *     path "a.1"      {a: [8, 9]}                    9
 *                     {a: [{"1": 5}, {b: 1}]}        5, missing, {b: 1}
 *                     {a: []}                        nothing at all, not even missing
 *
 *  1. The path is followed by name through documents. If a field of the path is missing, or the
 *     path continues below a scalar, the leaf sees one missing element.
 *  2. An array in the middle of the path is entered. The rest of the path is followed in each
 *     document of it. If the next part of the path is a number, the parts after it are also
 *     followed in the element with this number. An array directly inside an array is entered only
 *     by such a number.
 *  3. An array at the end is tested element by element, then as a whole; $elemMatch and $size test
 *     it only as a whole. An element that was named by a number at the end of the path is not
 *     entered.
 *  4. The positional operators use the position in the outermost array that was entered (rules 2
 *     and 3). An array in which a number of the path named the element does not count.
 *  5. Several conditions of an AND may have positions. Then the last one counts, in MongoDB's order
 *     of conditions (position_rank). If an element of the array meets all conditions on the array,
 *     the first such element counts instead. MongoDB leaves this case undefined.
 *
 * The walk recurses over views of the document and copies none of it. Its depth is bounded by the
 * depth of documents. Its time is bounded by the budget of the call and by TRUCE_MATCH_FORKS_MAX.
 * The latter is needed because each document in an array that is entered both by name and by number
 * doubles the number of paths.
 *
 * Not done here: $where, geo, and $text (the parser refuses them), and collations.
 */
#include "query/match/match.h"

#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/decimal.h"
#include "bson/number.h"
#include "query/condition/comparison.h"
#include "query/condition/type_set.h"
#include "query/expression/expression.h"
#include "query/match/match_tree.h"
#include "query/schema/schema.h"

/* ---- tables of equalities -------------------------------------------------------------------- */

/*
 * Tables for many equalities.
 *
 *     {$or: [{k: 1}, {k: 2}, {k: 3, x: 7}, {y: {$gt: 5}}, ... {k: 100000}]}
 *
 *     group "k"    1 -> child 0    2 -> child 1    3 -> child 2 ...        sorted
 *     direct       child 3
 *
 * The path of a group is walked once. Each element is looked up among the sorted operands, and sets
 * the bits of the children whose operand it equals. For an OR, these children and the direct ones
 * are then tested. For an AND, each child of a group must have its bit set; then the direct
 * children are tested.
 *
 * Invariants:
 *  1. A child whose bit is not set does not hold: no element fulfils its equality, which the child
 *     is or (an AND) contains.
 *  2. Children are tested in their order, so that errors and the last position are the same as
 *     without a table. In an AND the last child of each group is direct, because it sets positions.
 *  3. A finished table does not change; the data of a test is in its run.
 */

/* A node with fewer equalities gets no table. */
#define TABLE_LEAST 16

struct entry {
    const struct match_node *equality;
    uint32_t child;
};

/* The equalities of one path: `count` of the table's entries. */
struct group {
    /* A node of kind MATCH_GROUP, for the walk. Its path is borrowed, and `extra` points to the
     * group. */
    struct match_node node;
    const struct entry *entries;
    uint32_t count;
};

struct match_table {
    /* The equalities of all groups, ordered by path, operand, and child. */
    struct entry *entries;
    struct group *groups;
    uint32_t entries_count, groups_count;
    uint32_t words;
    /* A bit for each child that must be tested itself. */
    uint64_t *direct;
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

/* Makes the group of `count` entries from number `first` on. Its children are no longer direct,
 * except the last one of an AND (invariant 2). */
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

/* Returns the first entry whose operand is not less than the value. */
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

/* Sets the bits of the children whose operand equals the element. Always returns false, so that all
 * elements are visited. */
static bool match_group_test(const struct match_node *node, struct value value,
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

/* Returns the bits of the children whose equality some element fulfils; the caller releases
 * them. */
static uint64_t *find_hits(const struct match_table *table, struct value value,
                           match_node_test *test, struct match_run *run)
{
    uint64_t *hits = bson_malloc0(table->words * sizeof *hits), *outer = run->hits;

    run->hits = hits;
    for (uint32_t i = 0; i < table->groups_count && truce__match_spend(run, 1); i++)
        /* The test of a group always returns false. */
        (void)test(&table->groups[i].node, value, run);
    run->hits = outer;
    return hits;
}

/* Returns whether any child of an OR holds. Tests only direct children and those whose equality
 * holds. */
static bool match_table_any(const struct match_node *node, struct value value,
                            match_node_test *test, struct match_run *run)
{
    const struct match_table *table = node->extra;
    uint64_t *hits = find_hits(table, value, test, run);
    bool any = false;

    for (uint32_t i = 0; i < node->children_count && !any && run->status == TRUCE_OK; i++) {
        uint64_t word = hits[i / 64] | table->direct[i / 64];

        if (!word)
            /* No bit of this word is set, so the loop skips it. */
            i |= 63;
        else if (word >> i % 64 & 1)
            any = truce__match_spend(run, 1) && test(node->children[i], value, run);
    }
    bson_free(hits);
    return any;
}

static bool matches_all(const struct match_table *table, const uint64_t *hits)
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

static bool match_table_holds(const struct match_node *node, struct value value,
                              match_node_test *test, struct match_run *run)
{
    const struct match_table *table = node->extra;
    uint64_t *hits = find_hits(table, value, test, run);
    bool all = matches_all(table, hits) && run->status == TRUCE_OK;

    bson_free(hits);
    return all;
}

static bool match_table_is_direct(const struct match_table *table, uint32_t child)
{
    return has_bit(table->direct, child);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static bool match_leaf_test(const struct match_node *node, struct value value,
                            struct match_run *run);
static bool truce__match_node_test(const struct match_node *node, struct value document,
                                   struct match_run *run);
static bool match_element_test(const struct match_node *node, struct value element,
                               struct match_run *run);

/* Returns whether values of the type are equal only if their bytes are. */
static bool leaf_is_plain(uint8_t type)
{
    return type == BSON_TYPE_UTF8 || type == BSON_TYPE_INT32 || type == BSON_TYPE_INT64 ||
           type == BSON_TYPE_OID || type == BSON_TYPE_DATE_TIME || type == BSON_TYPE_BOOL;
}

static bool test_equal(const struct match_node *node, struct value value, struct match_run *run)
{
    if (value.type == node->operand.type && leaf_is_plain(value.type))
        return truce__value_identical(value, node->operand);
    return truce__comparison_holds(COMPARISON_EQ, value, node->operand);
}

static enum comparison comparison_of(enum match_kind kind)
{
    return (enum comparison)(kind - MATCH_EQ); /* Both enumerations have the same order. */
}

static bool test_order(const struct match_node *node, struct value value, struct match_run *run)
{
    return truce__comparison_holds(comparison_of(node->kind), value, node->operand);
}

/* Returns whether the value is among the sorted operands. */
static bool leaf_is_among(struct value value, const struct value *operands, uint32_t count)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = truce__value_compare(value, operands[middle]);

        if (!order)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

static bool test_in(const struct match_node *node, struct value value, struct match_run *run)
{
    if (value.type == VALUE_MISSING || value.type == BSON_TYPE_UNDEFINED)
        value = truce__value_null();
    if (leaf_is_among(value, node->operands, node->operands_count))
        return true;
    for (uint32_t i = 0; i < node->children_count; i++) {
        if (truce__match_spend(run, 1) && match_leaf_test(node->children[i], value, run))
            return true;
    }
    return false;
}

static bool test_exists(const struct match_node *node, struct value value, struct match_run *run)
{
    return value.type != VALUE_MISSING;
}

static bool test_type(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_types *types = node->extra;

    return value.type != VALUE_MISSING && (types->mask & truce__type_bit(value.type));
}

/* Tests a regular expression. It finds strings, and regular expressions with the same pattern and
 * options. */
static bool test_regex(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct regex *regex = node->extra;
    const char *text;
    uint32_t length;
    bool found = false;

    if (value.type == BSON_TYPE_REGEX) {
        const char *pattern = (const char *)value.data;

        return !strcmp(pattern, truce__regex_pattern(regex)) &&
               !strcmp(pattern + strlen(pattern) + 1, truce__regex_options(regex));
    }
    if ((value.type != BSON_TYPE_UTF8 && value.type != BSON_TYPE_SYMBOL) || run->status != TRUCE_OK)
        return false;
    text = truce__value_text(value, &length);
    run->status =
        truce__regex_find(regex, text, length, 0, run->budget, &found, NULL, 0, run->error);
    return found;
}

static bool test_mod(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_modulus *modulus = node->extra;
    int64_t whole;

    if (!truce__value_is_number(value) || !truce__number_truncate(value, &whole))
        return false;
    /* INT64_MIN % -1 would overflow. */
    return (modulus->divisor == -1 ? 0 : whole % modulus->divisor) == modulus->remainder;
}

static bool test_size(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_size *size = node->extra;
    struct fields fields;
    int64_t count = 0;

    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    while (count <= size->size && truce__fields_next(&fields))
        count++;
    return count == size->size;
}

static bool bit_of_bytes(struct value binary, uint32_t position)
{
    uint32_t byte = position / 8;

    return byte < binary.size - 5 && (binary.data[5 + byte] >> position % 8 & 1);
}

/* Returns the bit at a position of a number; bits beyond the 64th equal the sign. */
static bool bit_of_integer(int64_t number, uint32_t position)
{
    return (uint64_t)number >> (position < 63 ? position : 63) & 1;
}

/* Returns the integer whose bits are tested. A double must be an integer; a decimal is rounded.
 * NaN, infinities, and numbers beyond 64 bits have no bits. */
static bool integer_for_bits(struct value value, int64_t *number)
{
    _IDEC_flags flags = 0;

    if (value.type == BSON_TYPE_DECIMAL128) {
        *number =
            bid128_to_int64_rnint(truce__decimal_of_bson(truce__value_decimal(value)), &flags);
        return !(flags & BID_INVALID_EXCEPTION);
    }
    return truce__value_is_number(value) && truce__number_to_int64(value, number);
}

/* Tests $bitsAllSet and its relatives: all or any of the bits must have the value `set`. */
static bool test_bits(const struct match_node *node, struct value value, struct match_run *run)
{
    const struct match_bits *bits = node->extra;
    bool is_binary = value.type == BSON_TYPE_BINARY;
    int64_t number = 0;

    if (!is_binary && !integer_for_bits(value, &number))
        return false;
    for (uint32_t i = 0; i < bits->count; i++) {
        bool bit = is_binary ? bit_of_bytes(value, bits->positions[i])
                             : bit_of_integer(number, bits->positions[i]);

        if (bits->all != (bit == bits->set))
            return !bits->all;
    }
    return bits->all;
}

/* Tests $elemMatch. The position is that of the element, whatever is inside it. */
static bool test_elements(const struct match_node *node, struct value value, struct match_run *run)
{
    bool objects = node->kind == MATCH_ELEM_OBJECT;
    struct fields fields;

    if (value.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(value);
    for (int64_t index = 0; truce__fields_next(&fields); index++) {
        bool all = truce__match_spend(run, 1) && truce__match_sees(run, value, index) &&
                   (!objects || truce__value_is_container(fields.value));

        for (uint32_t i = 0; i < node->children_count && all; i++)
            all = objects ? truce__match_node_test(node->children[i], fields.value, run)
                          : match_element_test(node->children[i], fields.value, run);
        if (all) {
            run->position = (struct match_position){value, index};
            return true;
        }
    }
    return false;
}

typedef bool leaf_test(const struct match_node *node, struct value value, struct match_run *run);

static leaf_test *const leaf_tests[] = {
    [MATCH_EQ] = test_equal,
    [MATCH_LT] = test_order,
    [MATCH_LTE] = test_order,
    [MATCH_GT] = test_order,
    [MATCH_GTE] = test_order,
    [MATCH_IN] = test_in,
    [MATCH_EXISTS] = test_exists,
    [MATCH_TYPE] = test_type,
    [MATCH_REGEX] = test_regex,
    [MATCH_MOD] = test_mod,
    [MATCH_SIZE] = test_size,
    [MATCH_BITS] = test_bits,
    [MATCH_ELEM_OBJECT] = test_elements,
    [MATCH_ELEM_VALUE] = test_elements,
    [MATCH_GROUP] = match_group_test,
};

/* Tests one element against a leaf or $elemMatch. `value` is missing if the path leads to no
 * value. */
static bool match_leaf_test(const struct match_node *node, struct value value,
                            struct match_run *run)
{
    truce_assert(node->kind < sizeof leaf_tests / sizeof *leaf_tests && leaf_tests[node->kind]);
    return leaf_tests[node->kind](node, value, run);
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* Returns whether the path ends before part number `part`. A trailing dot also ends it. */
static bool ends_before(const struct path *path, uint32_t part)
{
    return part >= path->count ||
           (part + 1 == path->count && part > 0 && !path->parts[part].length);
}

static bool sees_whole_arrays_only(const struct match_node *node)
{
    return node->kind == MATCH_ELEM_OBJECT || node->kind == MATCH_ELEM_VALUE ||
           node->kind == MATCH_SIZE;
}

/* Returns the field that the part names. It is also missing if the time of the call has expired;
 * the test ends then. */
static struct value field_of_part(struct value document, const struct path_part *part,
                                  struct match_run *run)
{
    uint32_t steps = 0;
    struct value value;

    if (document.size < FIELD_FINDER_BYTES)
        return truce__value_field(document, part->name, part->length);
    value = truce__field_finder_find(&run->finder, document, part->name, part->length, &steps);
    /* A failure is in run->status. */
    (void)truce__match_spend(run, steps);
    return value;
}

static bool match_visit_array(const struct match_node *node, struct value array, uint32_t part,
                              struct match_run *run);

/* Tests the rest of the path from part `part` on, in the value to which the parts before it
 * lead. */
static bool match_visit(const struct match_node *node, struct value value, uint32_t part,
                        struct match_run *run)
{
    while (value.type == BSON_TYPE_DOCUMENT && part < node->path.count)
        value = field_of_part(value, node->path.parts + part++, run);
    if (value.type == BSON_TYPE_ARRAY)
        return match_visit_array(node, value, part, run);
    if (part < node->path.count)
        value = truce__value_missing();
    return match_leaf_test(node, value, run);
}

/* Counts a fork: a path of numbers through nested documents whose names are numbers has
 * exponentially many continuations. */
static bool may_fork(const struct match_node *node, struct match_run *run)
{
    if (run->status != TRUCE_OK)
        return false;
    if (++run->forks <= TRUCE_MATCH_FORKS_MAX)
        return true;
    run->status = truce__fail(TRUCE_LIMIT, run->error,
                              "path '%.80s' has more than %d ways through the document",
                              node->path.text, TRUCE_MATCH_FORKS_MAX);
    return false;
}

/* Visits an element in the middle of the path, number `index` of its array. */
static bool visit_element(const struct match_node *node, struct value array, struct value element,
                          int64_t index, uint32_t part, struct match_run *run)
{
    const struct path_part *next = node->path.parts + part;

    if (element.type == BSON_TYPE_DOCUMENT && match_visit(node, element, part, run)) {
        run->position = (struct match_position){array, index};
        return true;
    }
    if (next->index != index)
        return false;
    if (part + 1 == node->path.count)
        return match_leaf_test(node, element, run);
    if (element.type == BSON_TYPE_DOCUMENT)
        return may_fork(node, run) && match_visit(node, element, part + 1, run);
    return element.type == BSON_TYPE_ARRAY && match_visit_array(node, element, part + 1, run);
}

/* Visits the elements of an array and, at the end of the path, the array as a whole (rules 2 to
 * 4). */
static bool match_visit_array(const struct match_node *node, struct value array, uint32_t part,
                              struct match_run *run)
{
    bool at_end = ends_before(&node->path, part);
    struct fields fields = truce__fields(array);

    if (at_end && sees_whole_arrays_only(node))
        return match_leaf_test(node, array, run);
    for (int64_t index = 0; truce__fields_next(&fields); index++) {
        if (!truce__match_spend(run, 1))
            return false;
        if (!truce__match_sees(run, array, index))
            continue;
        if (!at_end) {
            if (visit_element(node, array, fields.value, index, part, run))
                return true;
        } else if (match_leaf_test(node, fields.value, run)) {
            run->position = (struct match_position){array, index};
            return true;
        }
    }
    return at_end && run->pinned.array.data != array.data && match_leaf_test(node, array, run);
}

static bool test_expression(const struct match_node *node, struct value document,
                            struct match_run *run)
{
    struct value result = truce__value_missing();

    truce_assert(run->context);
    run->status = truce__expression_evaluate(node->extra, document, run->context->variables,
                                             run->context, &result, run->error);
    return run->status == TRUCE_OK && truce__value_truth(result);
}

static bool test_schema(const struct match_node *node, struct value value, struct match_run *run)
{
    bool valid = false;

    run->status = truce__schema_test(node->extra, value, run->budget, &valid, run->error);
    return valid;
}

/* Returns whether any child holds. The positions of conditions inside $or, $nor, and $not do not
 * count outside. */
static bool any_child(const struct match_node *node, struct value value, match_node_test *test,
                      struct match_run *run)
{
    struct match_position position = run->position;
    bool any = node->extra && match_table_any(node, value, test, run);

    for (uint32_t i = 0; !node->extra && i < node->children_count && !any; i++)
        any = truce__match_spend(run, 1) && test(node->children[i], value, run);
    run->position = position;
    return any;
}

static inline bool has_path(const struct match_node *node)
{
    return node->kind >= MATCH_EQ && node->kind <= MATCH_ELEM_VALUE;
}

/* Returns the position of a kind in the order in which MongoDB tests the conditions of an AND. */
static int position_rank(enum match_kind kind)
{
    static const enum match_kind order[] = {
        MATCH_ELEM_OBJECT, MATCH_ELEM_VALUE, MATCH_SIZE, MATCH_EQ,    MATCH_LTE,
        MATCH_LT,          MATCH_GT,         MATCH_GTE,  MATCH_REGEX, MATCH_MOD,
        MATCH_EXISTS,      MATCH_IN,         MATCH_BITS, MATCH_TYPE};
    int rank = 0;

    while (rank < (int)(sizeof order / sizeof *order) && order[rank] != kind)
        rank++;
    return rank;
}

/* Returns whether the position of `child` counts, and not that of `before`, the child before it. */
static bool position_wins(const struct match_node *child, const struct match_node *before)
{
    int order = position_rank(child->kind) - position_rank(before->kind);

    return (order ? order : strcmp(child->path.text, before->path.text)) >= 0;
}

static bool has_first_part(const struct match_node *node, const struct path *path)
{
    const struct path_part *a = path->parts, *b = node->path.parts;

    return has_path(node) && path->count && node->path.count && a->length == b->length &&
           !memcmp(a->name, b->name, a->length);
}

/* Returns whether each condition whose path leads through the pinned array holds. */
static bool pinned_holds(const struct match_node *node, const struct path *path, struct value value,
                         match_node_test *test, struct match_run *run)
{
    for (uint32_t i = 0; i < node->children_count; i++) {
        const struct match_node *child = node->children[i];

        if (has_first_part(child, path) && !(truce__match_spend(run, 1) && test(child, value, run)))
            return false;
    }
    return run->status == TRUCE_OK;
}

/* Returns the position of the first element of the array of `position` that meets all conditions on
 * that array, or `position` if no element does. */
static struct match_position shared_position(const struct match_node *node, const struct path *path,
                                             struct match_position position, struct value value,
                                             match_node_test *test, struct match_run *run)
{
    struct match_position outer = run->pinned;
    struct fields fields = truce__fields(position.array);
    bool found = false;

    run->pinned = (struct match_position){position.array, -1};
    while (!found && run->status == TRUCE_OK && truce__fields_next(&fields)) {
        run->pinned.index++;
        found = pinned_holds(node, path, value, test, run);
    }
    if (found)
        position = run->pinned;
    run->pinned = outer;
    return position;
}

/* Returns whether all children hold, and sets the position for positional operators (rules 4 and
 * 5). */
static bool all_children(const struct match_node *node, struct value value, match_node_test *test,
                         struct match_run *run)
{
    struct match_position position = run->position;
    const struct match_node *winner = NULL;
    bool differ = false;

    if (node->extra && !match_table_holds(node, value, test, run))
        return false;
    for (uint32_t i = 0; i < node->children_count; i++) {
        const struct match_node *child = node->children[i];

        if (node->extra && !match_table_is_direct(node->extra, i))
            continue;
        run->position.index = -1;
        if (!truce__match_spend(run, 1) || !test(child, value, run))
            return false;
        if (run->position.index < 0)
            continue;
        differ = differ || (winner && (run->position.index != position.index ||
                                       run->position.array.data != position.array.data));
        if (winner && !position_wins(child, winner))
            continue;
        winner = child;
        position = run->position;
    }
    if (differ)
        position = shared_position(node, &winner->path, position, value, test, run);
    run->position = position;
    return run->status == TRUCE_OK;
}

/* Tests the kinds without a path. *known is set to whether the node is one of them. */
static bool test_logic(const struct match_node *node, struct value value, match_node_test *test,
                       struct match_run *run, bool *known)
{
    *known = true;
    switch (node->kind) {
    case MATCH_AND:
        return all_children(node, value, test, run);
    case MATCH_OR:
        return any_child(node, value, test, run);
    case MATCH_NOR:
    case MATCH_NOT:
        return !any_child(node, value, test, run);
    case MATCH_TRUE:
        return true;
    case MATCH_FALSE:
        return false;
    case MATCH_EXPR:
        return test_expression(node, value, run);
    case MATCH_SCHEMA:
        return test_schema(node, value, run);
    default:
        *known = false;
        return false;
    }
}

/* Tests a node of any kind on a document, or on a single element if the node has an empty path. */
static bool truce__match_node_test(const struct match_node *node, struct value document,
                                   struct match_run *run)
{
    bool known, holds;

    if (run->status != TRUCE_OK)
        return false;
    if (has_path(node) && document.type == BSON_TYPE_DOCUMENT)
        return match_visit(node, document, 0, run);
    holds = test_logic(node, document, truce__match_node_test, run, &known);
    if (known)
        return holds;
    /* $elemMatch treats an array as a document whose field names are the numbers of its
     * elements. */
    if (document.type == BSON_TYPE_ARRAY)
        return match_visit(node, field_of_part(document, node->path.parts, run), 1, run);
    return match_visit(node, document, 0, run);
}

static bool match_element_test(const struct match_node *node, struct value element,
                               struct match_run *run)
{
    bool known, holds;

    if (run->status != TRUCE_OK)
        return false;
    holds = test_logic(node, element, match_element_test, run, &known);
    return known ? holds : match_leaf_test(node, element, run);
}

/* Tests a value; the first part of each path is a name for the value. */
static bool test_field(const struct match_node *node, struct value value, struct match_run *run)
{
    bool known, holds;

    if (run->status != TRUCE_OK)
        return false;
    holds = test_logic(node, value, test_field, run, &known);
    return known ? holds : match_visit(node, value, 1, run);
}

static bool test_subject(const struct match *match, struct value value, struct match_run *run)
{
    switch (match->subject) {
    case SUBJECT_DOCUMENT:
        return value.type == BSON_TYPE_DOCUMENT && truce__match_node_test(match->root, value, run);
    case SUBJECT_FIELD:
        return test_field(match->root, value, run);
    default:
        return truce__value_equal(match->root->operand, value);
    }
}

truce_status truce__match_test(const struct match *match, struct value document,
                               struct query_context *context, struct match_result *result,
                               bson_error_t *error)
{
    struct match_run run = {.context = context,
                            .error = error,
                            .position.index = -1,
                            .budget = context ? context->budget : NULL};
    bool matched = test_subject(match, document, &run);

    truce__field_finder_release(&run.finder);
    result->matched = matched && run.status == TRUCE_OK;
    result->array_index = result->matched ? run.position.index : -1;
    return run.status;
}

const struct match_node *truce__match_root(const struct match *match)
{
    return match->root;
}

const bson_t *truce__match_filter(const struct match *match)
{
    return match->filter;
}

static bool report_equalities(const struct match_node *node, match_equality_function *function,
                              void *arg)
{
    if (node->kind == MATCH_EQ)
        return function(&node->path, node->operand, arg);
    if (node->kind != MATCH_AND)
        return true;
    for (uint32_t i = 0; i < node->children_count; i++) {
        if (!report_equalities(node->children[i], function, arg))
            return false;
    }
    return true;
}

void truce__match_equalities(const struct match *match, match_equality_function *function,
                             void *arg)
{
    report_equalities(match->root, function, arg);
}
