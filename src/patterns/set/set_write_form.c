/*
 * One operation on the lists of a document, in one of two forms with the same result.
 *
 * The text describes an add to `classes`; a remove is the same with the lists exchanged. An entry
 * of the operation's name blocks the operation if its rank is at least the operation's.
 *
 * The pipeline form is one upsert. Its filter is only the key, so it never inserts a second
 * document because a guard does not match:
 *
 *     {student_id}  ->  blocked in either list, or seq <= _wm:  the document unchanged
 *                       otherwise:  {classes: the entry in place of the old one, or appended,
 *                                    deleted_classes: without that name}
 *
 * If a document was modified or inserted, the operation is APPLIED. Otherwise a read of the
 * document distinguishes STALE from DUPLICATE; only repeats and late operations pay for it.
 *
 * The classic form exists because one update cannot $pull from and $push to the same array. It
 * tries two shapes in turn until the operation is settled:
 *
 *     in place  {student_id, classes: {$elemMatch: {name, not blocking}}, deleted_classes: not
 *                blocking, _wm not >= seq}  ->  {$set: {"classes.$": entry}}
 *     move      {student_id, classes: no entry of that name, deleted_classes: not blocking,
 *                _wm not >= seq}  ->  {$push: entry, $pull: that name}, upsert
 *
 * The upsert of `move` inserts if its guard does not match, and the unique index refuses the
 * insert: a duplicate key means that the document must be read again. Between two shapes another
 * process may move the entry from one list to the other, so a shape that did not match proves
 * nothing; only the read does.
 *
 * Neither form matches a document whose lists contain bare names (set_merge.c). The read merges the
 * operation into the state that it saw, and writes the result if that state is still stored.
 *
 * Both forms keep the rule of single writes (set.c): they leave a document that a commit holds
 * unchanged, and replace a revision. The pipeline sees both in the document that it changes. The
 * classic shapes compare whether there is a revision, as last read.
 *
 * A crash leaves the one update done or not done. A call without a reply is sent again: if the
 * first one took effect, or takes effect later, the guard finds the operation's own entry and
 * changes nothing.
 */
#include "base/object_id.h"
#include "patterns/set/set.h"

struct set_lists {
    /* The list that gets the operation's entry, and the list that loses it. */
    const char *own, *other;
};

/* ---- the pipeline form ----------------------------------------------------------------------- */

/* One operation as a pipeline update: one atomic write that handles every stored value. */

struct paths {
    /* The lists as paths of an aggregation: "$classes" and "$deleted_classes". */
    char *list, *deleted;
    /* The fields of the entry $$e: "$$e.name" and so on. */
    char *name, *seq, *source;
    char *watermark;
};

static struct value set_number_value(int64_t seq, uint8_t bytes[8]);
static bool set_wins_ties(const struct set_rank *rank, bool list_of_adds);
static struct set_lists set_lists_of(const truce_set *set, const struct set_operation *operation);

static void paths_init(struct paths *paths, const truce_set *set, struct set_lists lists)
{
    paths->list = bson_strdup_printf("$%s", lists.own);
    paths->deleted = bson_strdup_printf("$%s", lists.other);
    paths->name = bson_strdup_printf("$$e.%s", set->name);
    paths->seq = bson_strdup_printf("$$e.%s", set->seq);
    paths->source = bson_strdup_printf("$$e.%s", set->source);
    paths->watermark = bson_strdup_printf("$%s", set->watermark);
}

static void paths_release(struct paths *paths)
{
    bson_free(paths->list);
    bson_free(paths->deleted);
    bson_free(paths->name);
    bson_free(paths->seq);
    bson_free(paths->source);
    bson_free(paths->watermark);
}

/* Appends {operator: [path, {$literal: value}]}. */
static void pipeline_append_comparison(bson_t *to, const char *key, const char *operator_,
                                       const char *path, struct value value)
{
    bson_t outer, operands, literal;

    bson_append_document_begin(to, key, -1, &outer);
    bson_append_array_begin(&outer, operator_, -1, &operands);
    bson_append_utf8(&operands, "0", 1, path, -1);
    bson_append_document_begin(&operands, "1", 1, &literal);
    truce__value_append(&literal, "$literal", 8, value);
    bson_append_document_end(&operands, &literal);
    bson_append_array_end(&outer, &operands);
    bson_append_document_end(to, &outer);
}

static void append_text_comparison(bson_t *to, const char *key, const char *operator_,
                                   const char *path, const char *text)
{
    bson_t document = BSON_INITIALIZER;

    bson_append_utf8(&document, "t", 1, text, -1);
    pipeline_append_comparison(to, key, operator_, path,
                               truce__value_field(truce__value_document(&document), "t", 1));
    bson_destroy(&document);
}

/* Appends the list at `path`, or an empty one. */
static void append_list_or_empty(bson_t *to, const char *key, const char *path)
{
    bson_t outer, operands, empty;

    bson_append_document_begin(to, key, -1, &outer);
    bson_append_array_begin(&outer, "$ifNull", -1, &operands);
    bson_append_utf8(&operands, "0", 1, path, -1);
    bson_append_array_begin(&operands, "1", 1, &empty);
    bson_append_array_end(&operands, &empty);
    bson_append_array_end(&outer, &operands);
    bson_append_document_end(to, &outer);
}

/* Appends an expression on the entry $$e that is true if its rank is at least the operation's. */
static void append_blocked_expression(const struct paths *paths,
                                      const struct set_operation *operation, bool list_of_adds,
                                      const char *key, bson_t *to)
{
    const struct set_rank *rank = &operation->rank;
    bool or_equal = set_wins_ties(rank, list_of_adds);
    bson_t either, cases, both, conditions;
    uint8_t bytes[8];
    struct value seq = set_number_value(rank->seq, bytes);

    if (or_equal && !rank->source[0]) {
        pipeline_append_comparison(to, key, "$gte", paths->seq, seq);
        return;
    }
    bson_append_document_begin(to, key, -1, &either);
    bson_append_array_begin(&either, "$or", -1, &cases);
    pipeline_append_comparison(&cases, "0", "$gt", paths->seq, seq);
    bson_append_document_begin(&cases, "1", 1, &both);
    bson_append_array_begin(&both, "$and", -1, &conditions);
    pipeline_append_comparison(&conditions, "0", "$eq", paths->seq, seq);
    append_text_comparison(&conditions, "1", or_equal ? "$gte" : "$gt", paths->source,
                           rank->source);
    bson_append_array_end(&both, &conditions);
    bson_append_document_end(&cases, &both);
    bson_append_array_end(&either, &cases);
    bson_append_document_end(to, &either);
}

/* {$eq: [[], {$filter: {input: list, as: "e", cond: ...}}]}: no entry matches. The caller appends
 * the condition to `filter`. A path through the list ("$classes.name") would be shorter, but some
 * servers with MongoDB's protocol do not support it. */
struct none {
    bson_t outer, operands, empty, holder, filter;
};

static void begin_none(struct none *none, const char *path, const char *key, bson_t *to)
{
    bson_append_document_begin(to, key, -1, &none->outer);
    bson_append_array_begin(&none->outer, "$eq", -1, &none->operands);
    bson_append_array_begin(&none->operands, "0", 1, &none->empty);
    bson_append_array_end(&none->operands, &none->empty);
    bson_append_document_begin(&none->operands, "1", 1, &none->holder);
    bson_append_document_begin(&none->holder, "$filter", -1, &none->filter);
    append_list_or_empty(&none->filter, "input", path);
    bson_append_utf8(&none->filter, "as", -1, "e", 1);
}

static void end_none(struct none *none, bson_t *to)
{
    bson_append_document_end(&none->holder, &none->filter);
    bson_append_document_end(&none->operands, &none->holder);
    bson_append_array_end(&none->outer, &none->operands);
    bson_append_document_end(to, &none->outer);
}

/* Appends the condition that no entry of that name blocks. */
static void append_not_blocked(const struct paths *paths, const struct set_operation *operation,
                               const char *path, bool list_of_adds, const char *key, bson_t *to)
{
    struct none none;
    bson_t cond, both;

    begin_none(&none, path, key, to);
    bson_append_document_begin(&none.filter, "cond", -1, &cond);
    bson_append_array_begin(&cond, "$and", -1, &both);
    pipeline_append_comparison(&both, "0", "$eq", paths->name, operation->name);
    append_blocked_expression(paths, operation, list_of_adds, "1", &both);
    bson_append_array_end(&cond, &both);
    bson_append_document_end(&none.filter, &cond);
    end_none(&none, to);
}

static void append_literal_entry(const truce_set *set, const struct set_operation *operation,
                                 const char *key, bson_t *to)
{
    bson_t literal, entry;

    bson_append_document_begin(to, key, -1, &literal);
    bson_append_document_begin(&literal, "$literal", -1, &entry);
    truce__set_entry_append(set, operation, &entry);
    bson_append_document_end(&literal, &entry);
    bson_append_document_end(to, &literal);
}

/* Appends {$map: {input: list, as: "e", in: {$cond: [is that name, the entry, $$e]}}}. */
static void append_replaced(const truce_set *set, const struct paths *paths,
                            const struct set_operation *operation, const char *key, bson_t *to)
{
    bson_t outer, map, in, cases;

    bson_append_document_begin(to, key, -1, &outer);
    bson_append_document_begin(&outer, "$map", -1, &map);
    bson_append_utf8(&map, "input", -1, paths->list, -1);
    bson_append_utf8(&map, "as", -1, "e", 1);
    bson_append_document_begin(&map, "in", -1, &in);
    bson_append_array_begin(&in, "$cond", -1, &cases);
    pipeline_append_comparison(&cases, "0", "$eq", paths->name, operation->name);
    append_literal_entry(set, operation, "1", &cases);
    bson_append_utf8(&cases, "2", 1, "$$e", 3);
    bson_append_array_end(&in, &cases);
    bson_append_document_end(&map, &in);
    bson_append_document_end(&outer, &map);
    bson_append_document_end(to, &outer);
}

/* Appends {$concatArrays: [list, [the entry]]}. */
static void append_pushed(const truce_set *set, const struct paths *paths,
                          const struct set_operation *operation, const char *key, bson_t *to)
{
    bson_t outer, operands, last;

    bson_append_document_begin(to, key, -1, &outer);
    bson_append_array_begin(&outer, "$concatArrays", -1, &operands);
    append_list_or_empty(&operands, "0", paths->list);
    bson_append_array_begin(&operands, "1", 1, &last);
    append_literal_entry(set, operation, "0", &last);
    bson_append_array_end(&operands, &last);
    bson_append_array_end(&outer, &operands);
    bson_append_document_end(to, &outer);
}

/* Appends the new content of the operation's list: {$cond: [the name is not in it, pushed,
 * replaced]}. */
static void append_own_list(const truce_set *set, const struct paths *paths,
                            const struct set_operation *operation, const char *list, bson_t *to)
{
    struct none none;
    bson_t outer, cases;

    bson_append_document_begin(to, list, -1, &outer);
    bson_append_array_begin(&outer, "$cond", -1, &cases);
    begin_none(&none, paths->list, "0", &cases);
    pipeline_append_comparison(&none.filter, "cond", "$eq", paths->name, operation->name);
    end_none(&none, &cases);
    append_pushed(set, paths, operation, "1", &cases);
    append_replaced(set, paths, operation, "2", &cases);
    bson_append_array_end(&outer, &cases);
    bson_append_document_end(to, &outer);
}

/* Appends the new content of the other list: {$cond: [it is an array, without that name,
 * $$REMOVE]}. A missing list stays missing. */
static void append_other_list(const struct paths *paths, const struct set_operation *operation,
                              const char *list, bson_t *to)
{
    bson_t outer, cases, is, operand, holder, filter;

    bson_append_document_begin(to, list, -1, &outer);
    bson_append_array_begin(&outer, "$cond", -1, &cases);
    bson_append_document_begin(&cases, "0", 1, &is);
    bson_append_array_begin(&is, "$isArray", -1, &operand);
    bson_append_utf8(&operand, "0", 1, paths->deleted, -1);
    bson_append_array_end(&is, &operand);
    bson_append_document_end(&cases, &is);
    bson_append_document_begin(&cases, "1", 1, &holder);
    bson_append_document_begin(&holder, "$filter", -1, &filter);
    bson_append_utf8(&filter, "input", -1, paths->deleted, -1);
    bson_append_utf8(&filter, "as", -1, "e", 1);
    pipeline_append_comparison(&filter, "cond", "$ne", paths->name, operation->name);
    bson_append_document_end(&holder, &filter);
    bson_append_document_end(&cases, &holder);
    bson_append_utf8(&cases, "2", 1, "$$REMOVE", -1);
    bson_append_array_end(&outer, &cases);
    bson_append_document_end(to, &outer);
}

/* Appends the condition that no element is a bare name. */
static void pipeline_append_no_bare(const char *path, const char *key, bson_t *to)
{
    struct none none;
    bson_t cond, operands, type, types;

    begin_none(&none, path, key, to);
    bson_append_document_begin(&none.filter, "cond", -1, &cond);
    bson_append_array_begin(&cond, "$in", -1, &operands);
    bson_append_document_begin(&operands, "0", 1, &type);
    bson_append_utf8(&type, "$type", -1, "$$e", -1);
    bson_append_document_end(&operands, &type);
    bson_append_array_begin(&operands, "1", 1, &types);
    truce__set_bare_types_append(true, &types);
    bson_append_array_end(&operands, &types);
    bson_append_array_end(&cond, &operands);
    bson_append_document_end(&none.filter, &cond);
    end_none(&none, to);
}

/* Appends {$and: [not held by a commit, not at or below the watermark, not blocked in either list,
 * no bare names in them]}. */
static void pipeline_append_guard(const truce_set *set, const struct paths *paths,
                                  const struct set_operation *operation, const char *key,
                                  bson_t *to)
{
    bson_t outer, conditions;
    uint8_t bytes[8];

    bson_append_document_begin(to, key, -1, &outer);
    bson_append_array_begin(&outer, "$and", -1, &conditions);
    /* In the order of BSON, only a missing field is less than null. */
    pipeline_append_comparison(&conditions, "0", "$lt", "$_intent", truce__value_null());
    pipeline_append_comparison(&conditions, "1", "$lt", paths->watermark,
                               set_number_value(operation->rank.seq, bytes));
    append_not_blocked(paths, operation, paths->list, operation->rank.add, "2", &conditions);
    append_not_blocked(paths, operation, paths->deleted, !operation->rank.add, "3", &conditions);
    pipeline_append_no_bare(paths->list, "4", &conditions);
    pipeline_append_no_bare(paths->deleted, "5", &conditions);
    bson_append_array_end(&outer, &conditions);
    bson_append_document_end(to, &outer);
}

/* Appends the new revision: {$cond: [{$eq: [{$type: "$_rev"}, "objectId"]}, fresh, "$_rev"]}. A
 * missing one stays missing. */
static void append_revision(bson_t *to)
{
    bson_t outer, cases, is, operands, type;
    bson_oid_t fresh;

    truce__id_new(&fresh);
    bson_append_document_begin(to, "_rev", 4, &outer);
    bson_append_array_begin(&outer, "$cond", 5, &cases);
    bson_append_document_begin(&cases, "0", 1, &is);
    bson_append_array_begin(&is, "$eq", 3, &operands);
    bson_append_document_begin(&operands, "0", 1, &type);
    bson_append_utf8(&type, "$type", 5, "$_rev", 5);
    bson_append_document_end(&operands, &type);
    bson_append_utf8(&operands, "1", 1, "objectId", -1);
    bson_append_array_end(&is, &operands);
    bson_append_document_end(&cases, &is);
    bson_append_oid(&cases, "1", 1, &fresh);
    bson_append_utf8(&cases, "2", 1, "$_rev", 5);
    bson_append_array_end(&outer, &cases);
    bson_append_document_end(to, &outer);
}

/* Builds the update as a pipeline, which changes nothing if the guard does not hold. */
static void truce__set_pipeline(const truce_set *set, const struct set_operation *operation,
                                bson_t *pipeline)
{
    struct set_lists lists = set_lists_of(set, operation);
    bson_t stage, cond, cases, merge, parts, change;
    struct paths paths;

    paths_init(&paths, set, lists);
    bson_append_document_begin(pipeline, "0", 1, &stage);
    bson_append_document_begin(&stage, "$replaceWith", -1, &cond);
    bson_append_array_begin(&cond, "$cond", -1, &cases);
    pipeline_append_guard(set, &paths, operation, "0", &cases);
    bson_append_document_begin(&cases, "1", 1, &merge);
    bson_append_array_begin(&merge, "$mergeObjects", -1, &parts);
    bson_append_utf8(&parts, "0", 1, "$$ROOT", -1);
    bson_append_document_begin(&parts, "1", 1, &change);
    append_own_list(set, &paths, operation, lists.own, &change);
    append_other_list(&paths, operation, lists.other, &change);
    append_revision(&change);
    bson_append_document_end(&parts, &change);
    bson_append_array_end(&merge, &parts);
    bson_append_document_end(&cases, &merge);
    bson_append_utf8(&cases, "2", 1, "$$ROOT", -1);
    bson_append_array_end(&cond, &cases);
    bson_append_document_end(&stage, &cond);
    bson_append_document_end(pipeline, &stage);
    paths_release(&paths);
}

/* ---- blocked operations ---- */

static struct value set_number_value(int64_t seq, uint8_t bytes[8])
{
    uint64_t little = BSON_UINT64_TO_LE((uint64_t)seq);

    memcpy(bytes, &little, 8);
    return (struct value){bytes, 8, BSON_TYPE_INT64};
}

static void append_seq_condition(const truce_set *set, bson_t *condition, const char *operator_,
                                 int64_t seq)
{
    bson_t inner;

    bson_append_document_begin(condition, set->seq, -1, &inner);
    bson_append_int64(&inner, operator_, -1, seq);
    bson_append_document_end(condition, &inner);
}

/* Appends the condition for an entry with the same number. Such an entry blocks if its source is
 * greater, or if its source is the same and its list wins ties against the operation. */
static void append_tie_condition(const truce_set *set, const struct set_rank *rank, bool or_equal,
                                 bson_t *condition)
{
    bson_t inner;

    bson_append_int64(condition, set->seq, -1, rank->seq);
    bson_append_document_begin(condition, set->source, -1, &inner);
    bson_append_utf8(&inner, or_equal ? "$gte" : "$gt", -1, rank->source, -1);
    bson_append_document_end(condition, &inner);
}

static bool set_wins_ties(const struct set_rank *rank, bool list_of_adds)
{
    return list_of_adds || !rank->add;
}

/* Appends a filter on an entry: $or if it must block, $nor if it must not. */
static void append_blocked(const truce_set *set, const struct set_operation *operation,
                           bool list_of_adds, const char *operator_, bson_t *condition)
{
    const struct set_rank *rank = &operation->rank;
    bool or_equal = set_wins_ties(rank, list_of_adds);
    bool any_source = or_equal && !rank->source[0];
    bson_t cases, one;

    bson_append_array_begin(condition, operator_, -1, &cases);
    bson_append_document_begin(&cases, "0", -1, &one);
    append_seq_condition(set, &one, any_source ? "$gte" : "$gt", rank->seq);
    bson_append_document_end(&cases, &one);
    if (!any_source) {
        bson_append_document_begin(&cases, "1", -1, &one);
        append_tie_condition(set, rank, or_equal, &one);
        bson_append_document_end(&cases, &one);
    }
    bson_append_array_end(condition, &cases);
}

/* ---- the classic form ---- */

static void append_name(const truce_set *set, const struct set_operation *operation, bson_t *to)
{
    truce__value_append(to, set->name, strlen(set->name), operation->name);
}

/* Appends a condition on a list: {$elemMatch: {name, blocking or not}}, or {$not: ...} around
 * it. */
static void append_list_guard(const truce_set *set, const struct set_operation *operation,
                              const char *list, bool negated, const char *blocked, bson_t *filter)
{
    bool list_of_adds = list == set->field;
    bson_t outer, negation, match;
    bson_t *holder = &outer;

    bson_append_document_begin(filter, list, -1, &outer);
    if (negated) {
        bson_append_document_begin(&outer, "$not", -1, &negation);
        holder = &negation;
    }
    bson_append_document_begin(holder, "$elemMatch", -1, &match);
    append_name(set, operation, &match);
    if (blocked)
        append_blocked(set, operation, list_of_adds, blocked, &match);
    bson_append_document_end(holder, &match);
    if (negated)
        bson_append_document_end(&outer, &negation);
    bson_append_document_end(filter, &outer);
}

static void append_watermark_guard(const truce_set *set, int64_t seq, bson_t *filter)
{
    bson_t outer, negation;

    bson_append_document_begin(filter, set->watermark, -1, &outer);
    bson_append_document_begin(&outer, "$not", -1, &negation);
    bson_append_int64(&negation, "$gte", -1, seq);
    bson_append_document_end(&outer, &negation);
    bson_append_document_end(filter, &outer);
}

/* Requires that no element of either list is a bare name: {$nor: [{list: {$type: [...]}}, ...]}. */
static void form_append_no_bare(const truce_set *set, bson_t *filter)
{
    const char *const lists[] = {set->field, set->deleted};
    bson_t cases, one, condition, types;

    bson_append_array_begin(filter, "$nor", -1, &cases);
    for (int i = 0; i < 2; i++) {
        bson_append_document_begin(&cases, i ? "1" : "0", 1, &one);
        bson_append_document_begin(&one, lists[i], -1, &condition);
        bson_append_array_begin(&condition, "$type", -1, &types);
        truce__set_bare_types_append(false, &types);
        bson_append_array_end(&condition, &types);
        bson_append_document_end(&one, &condition);
        bson_append_document_end(&cases, &one);
    }
    bson_append_array_end(filter, &cases);
}

static struct set_lists set_lists_of(const truce_set *set, const struct set_operation *operation)
{
    if (operation->rank.add)
        return (struct set_lists){set->field, set->deleted};
    return (struct set_lists){set->deleted, set->field};
}

/* Builds the update that replaces the entry of a name in its own list. It does not match if the
 * list has no entry of the name. */
static void build_in_place(const truce_set *set, const struct set_operation *operation,
                           bool has_revision, bson_t *filter, bson_t *update)
{
    struct set_lists lists = set_lists_of(set, operation);
    char *path = bson_strdup_printf("%s.$", lists.own);
    bson_t change, entry;

    truce__set_key_append(set, operation->given->key, filter);
    append_list_guard(set, operation, lists.own, false, "$nor", filter);
    append_list_guard(set, operation, lists.other, true, "$or", filter);
    append_watermark_guard(set, operation->rank.seq, filter);
    form_append_no_bare(set, filter);
    truce__set_free_append(has_revision, filter);
    bson_append_document_begin(update, "$set", -1, &change);
    bson_append_document_begin(&change, path, -1, &entry);
    truce__set_entry_append(set, operation, &entry);
    bson_append_document_end(&change, &entry);
    if (has_revision)
        truce__set_revision_append(&change);
    bson_append_document_end(update, &change);
    bson_free(path);
}

/* Builds the update that moves a name from the other list into the own one. */
static void build_move(const truce_set *set, const struct set_operation *operation,
                       bool has_revision, bson_t *filter, bson_t *update)
{
    struct set_lists lists = set_lists_of(set, operation);
    bson_t change, entry;

    truce__set_key_append(set, operation->given->key, filter);
    append_list_guard(set, operation, lists.own, true, NULL, filter);
    append_list_guard(set, operation, lists.other, true, "$or", filter);
    append_watermark_guard(set, operation->rank.seq, filter);
    form_append_no_bare(set, filter);
    truce__set_free_append(has_revision, filter);
    if (has_revision) {
        bson_append_document_begin(update, "$set", -1, &change);
        truce__set_revision_append(&change);
        bson_append_document_end(update, &change);
    }
    bson_append_document_begin(update, "$push", -1, &change);
    bson_append_document_begin(&change, lists.own, -1, &entry);
    truce__set_entry_append(set, operation, &entry);
    bson_append_document_end(&change, &entry);
    bson_append_document_end(update, &change);
    bson_append_document_begin(update, "$pull", -1, &change);
    bson_append_document_begin(&change, lists.other, -1, &entry);
    append_name(set, operation, &entry);
    bson_append_document_end(&change, &entry);
    bson_append_document_end(update, &change);
}

/* ---- one operation until it is settled ---- */

/* Sends one update and reports whether it changed a document. Returns TRUCE_DUPLICATE if the caller
 * should read the document again. */
static truce_status form_send(truce_set *set, const bson_t *filter, const bson_t *update,
                              const truce_write_options *options, bool *applied,
                              bson_error_t *error)
{
    truce_write_result result = {0};
    truce_status status =
        truce_update(set->store, set->collection, filter, update, options, &result, error);

    *applied = !status && (result.modified || result.upserted);
    truce_write_result_release(&result);
    return status;
}

static truce_status send_pipeline(truce_set *set, const struct set_operation *operation,
                                  bool *applied, bson_error_t *error)
{
    static const truce_write_options options = {.upsert = true, .pipeline = true};
    bson_t filter = BSON_INITIALIZER, pipeline = BSON_INITIALIZER;
    truce_status status;

    truce__set_key_append(set, operation->given->key, &filter);
    truce__set_pipeline(set, operation, &pipeline);
    status = form_send(set, &filter, &pipeline, &options, applied, error);
    bson_destroy(&filter);
    bson_destroy(&pipeline);
    return status;
}

/* Sends the update in place and, if that matches nothing, the move. Neither may match, because
 * another process can move the entry in between. */
static truce_status send_classic(truce_set *set, const struct set_operation *operation,
                                 bool has_revision, bool *applied, bson_error_t *error)
{
    static const truce_write_options options = {.upsert = true};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    truce_status status;

    build_in_place(set, operation, has_revision, &filter, &update);
    status = form_send(set, &filter, &update, NULL, applied, error);
    if (!status && !*applied) {
        bson_reinit(&filter);
        bson_reinit(&update);
        build_move(set, operation, has_revision, &filter, &update);
        status = form_send(set, &filter, &update, &options, applied, error);
    }
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

/* The decision that a read of the document gives for an operation that changed nothing. */
struct observed {
    enum set_decision decision;
    bool has_revision;
    /* A commit holds the document, so no decision is known yet. */
    bool held;
    bool applied;
};

/* Merges the operation into the document as read, whose lists have bare names, and writes it if
 * that state is still stored. */
static truce_status write_merged(truce_set *set, const struct set_operation *operation,
                                 const bson_t *document, bool *applied, bson_error_t *error)
{
    struct set_scratch scratch = {0};
    enum set_decision decision;
    struct set_merge merge = {
        .scratch = &scratch, .winners = &operation, .count = 1, .decisions = &decision};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    truce_status status = truce__set_merge(set, document, &merge, error);

    if (!status && merge.changed) {
        truce__set_state_append(set, document, &filter);
        truce__set_change_append(document, &merge.change, &update);
        status = form_send(set, &filter, &update, NULL, applied, error);
    }
    bson_destroy(&merge.change);
    bson_destroy(&filter);
    bson_destroy(&update);
    truce__set_scratch_release(&scratch);
    return status;
}

/* Returns TRUCE_NOT_FOUND if there is no document. */
static truce_status form_settle(truce_set *set, const struct set_operation *operation,
                                struct worker *worker, struct observed *observed,
                                bson_error_t *error)
{
    struct set_state state;
    bson_t document;
    truce_status status = truce__set_read_document(set, operation->given->key, &document, error);

    *observed = (struct observed){.decision = SET_OPEN};
    if (!status) {
        observed->has_revision = truce__set_has_revision(&document);
        observed->held = !truce__intent_absent(&document);
    }
    if (!status && observed->held && worker) {
        status = truce__intent_complete_other(worker, set->collection, &document, error);
    } else if (!status && !observed->held) {
        truce__set_state_read(set, &document, operation->name, &state);
        observed->decision = truce__set_decide(&state, &operation->rank);
        if (observed->decision == SET_OPEN && truce__set_has_bare(set, &document))
            status = write_merged(set, operation, &document, &observed->applied, error);
    }
    bson_destroy(&document);
    return status;
}

truce_status truce__set_apply_one(truce_set *set, const struct set_operation *operation,
                                  struct worker *worker, truce_set_outcome *outcome,
                                  bson_error_t *error)
{
    struct observed observed = {.decision = SET_OPEN};
    bson_error_t refusal = {0};
    int missing = 0;

    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        bool applied = false;
        truce_status status;

        truce__set_pause(attempt);
        status = set->form == TRUCE_SET_FORM_PIPELINE
                     ? send_pipeline(set, operation, &applied, &refusal)
                     : send_classic(set, operation, observed.has_revision, &applied, &refusal);
        if (!applied && status && status != TRUCE_DUPLICATE &&
            !truce__store_repeatable(set->store, status)) {
            if (error)
                *error = refusal;
            return status;
        }
        if (!applied)
            status = form_settle(set, operation, worker, &observed, error);
        if (applied || observed.applied) {
            *outcome = TRUCE_SET_APPLIED;
            return TRUCE_OK;
        }
        /* A duplicate key without a document belongs to another index, so waiting would not
         * help. */
        if (status == TRUCE_NOT_FOUND && ++missing < 5)
            continue;
        if (status == TRUCE_NOT_FOUND && refusal.code) {
            if (error)
                *error = refusal;
            return refusal.code == CODE_DUPLICATE_KEY ? TRUCE_DUPLICATE : TRUCE_UNKNOWN;
        }
        if (status && !truce__store_repeatable(set->store, status))
            return status;
        if (observed.held && !worker) {
            *outcome = SET_OUTCOME_HELD;
            return TRUCE_OK;
        }
        /* The call has waited for the commit, up to the worker's deadline, so the tries begin
         * again. */
        if (observed.held)
            attempt = 0;
        if (status || observed.decision == SET_OPEN)
            continue;
        if (observed.decision == SET_BELOW)
            return truce__set_below(set, operation, outcome, error);
        *outcome = observed.decision == SET_STALE ? TRUCE_SET_STALE : TRUCE_SET_DUPLICATE;
        return TRUCE_OK;
    }
    return truce__fail(TRUCE_CONFLICT, error,
                       "an operation on a document of %s conflicted with others %d times: the "
                       "document changes constantly, or its entry has no number",
                       set->id, SET_TRIES_MAX);
}
