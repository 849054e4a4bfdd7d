/* One operation as a pipeline update: one atomic write, whatever stands there. set_form.c has the picture. */
#include "base/id.h"
#include "patterns/set/set_form.h"

struct paths {
    char *list, *deleted;      /* "$classes", "$deleted_classes" */
    char *name, *seq, *source; /* "$$e.name" ... */
    char *watermark;
};

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

/* {operator: [path, {$literal: value}]} */
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

/* the list at `path`, or an empty one */
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

/* As an expression on the entry $$e: its rank is at least the operation's. */
static void append_blocked_expression(const struct paths *paths,
                                      const struct set_operation *operation, bool list_of_adds,
                                      const char *key, bson_t *to)
{
    const struct set_rank *rank = &operation->rank;
    bool or_equal = truce__set_wins_ties(rank, list_of_adds);
    bson_t either, cases, both, conditions;
    uint8_t bytes[8];
    struct value seq = truce__set_number_value(rank->seq, bytes);

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

/* {$eq: [[], {$filter: {input: list, as: "e", cond: ...}}]}: none of the entries; the caller appends the
 * condition to `filter`. A path through the list ("$classes.name") would say the same shorter, but not
 * every server of MongoDB's protocol knows one. */
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

/* no entry of that name is blocked */
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

/* {$map: {input: list, as: "e", in: {$cond: [is that name, the entry, $$e]}}} */
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

/* {$concatArrays: [list, [the entry]]} */
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

/* list: {$cond: [the name is not in it, pushed, replaced]} */
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

/* list: {$cond: [it is an array, without that name, $$REMOVE]}: a missing list stays missing */
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

/* no element is a bare name */
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

/* {$and: [not held by a commit, not at or below the watermark, not blocked in either list,
 * no bare names in them]} */
static void pipeline_append_guard(const truce_set *set, const struct paths *paths,
                                  const struct set_operation *operation, const char *key,
                                  bson_t *to)
{
    bson_t outer, conditions;
    uint8_t bytes[8];

    bson_append_document_begin(to, key, -1, &outer);
    bson_append_array_begin(&outer, "$and", -1, &conditions);
    pipeline_append_comparison(&conditions, "0", "$lt", "$_intent",
                               truce__value_null()); /* missing */
    pipeline_append_comparison(&conditions, "1", "$lt", paths->watermark,
                               truce__set_number_value(operation->rank.seq, bytes));
    append_not_blocked(paths, operation, paths->list, operation->rank.add, "2", &conditions);
    append_not_blocked(paths, operation, paths->deleted, !operation->rank.add, "3", &conditions);
    pipeline_append_no_bare(paths->list, "4", &conditions);
    pipeline_append_no_bare(paths->deleted, "5", &conditions);
    bson_append_array_end(&outer, &conditions);
    bson_append_document_end(to, &outer);
}

/* _rev: {$cond: [{$eq: [{$type: "$_rev"}, "objectId"]}, fresh, "$_rev"]}: a missing one stays so */
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

void truce__set_pipeline(const truce_set *set, const struct set_operation *operation,
                         bson_t *pipeline)
{
    struct set_lists lists = truce__set_lists_of(set, operation);
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
