/*
 * Walks the tree of an update over one document.
 *
 * The walk follows the tree, not the document. At each object node it looks up all branches in one
 * pass over the fields. It then enters them in the tree's order, so that errors are reported and
 * new fields are appended in MongoDB's order. Changes are recorded as edits (below). The walk never
 * changes the document itself, so an error needs no undo.
 *
 *     visit   an existing target: an element of the old document
 *     build   a missing target: returns the value to append there, or none
 *
 * Each visit returns the number of bytes by which its element grew (`delta`); a container that grew
 * gets an edit of its length. A target may be visited with several nodes at once (update_parse.h).
 *
 * Rules
 *   1. Through a document a path goes by name, through an array by number. Other values end it:
 *      code 28, if an operator has to create a field there.
 *   2. Numbers beyond the end of an array fill it with nulls. A missing parent of a number becomes
 *      a document, never an array.
 *   3. `_id` of a stored document does not change: any edit below it is code 66.
 *   4. A stored document nests at most TRUCE_DOCUMENT_DEPTH_MAX levels. Names that begin with "$"
 *      are not made at its top level (code 52).
 *   5. $update's paths go through arrays by themselves, to each document in them.
 */
#include "base/assert.h"
#include "base/limits.h"
#include "query/update/update_parse.h"

/* ---- new values ------------------------------------------------------------------------------ */

static truce_status truce__update_build(struct update_run *run, const struct update_target *target,
                                        const struct update_node *const *nodes, uint32_t count,
                                        bool viable, struct value *built, bson_error_t *error);
static truce_status update_visit(struct update_run *run, const struct update_target *target,
                                 const struct update_node *const *nodes, uint32_t count,
                                 int64_t *delta, bson_error_t *error);

static truce_status not_viable(const struct update_target *target, bson_error_t *error)
{
    const struct update_target *holder = target->up;
    char path[256], value[128];

    while (holder->value.type == VALUE_MISSING)
        holder = holder->up;
    return truce__refuse(CODE_PATH_NOT_VIABLE, error,
                         "cannot create '%s': the value above it is %s, which has no fields",
                         truce__update_target_show(target, path, sizeof path),
                         truce__value_show(holder->value, value, sizeof value));
}

/* Checks that a stored value is not nested too deeply (rule 4), and that the update does not make
 * the document too large. */
static truce_status update_check_stored(const struct update_run *run,
                                        const struct update_leaf *leaf,
                                        const struct update_target *target, struct value new,
                                        bson_error_t *error)
{
    uint32_t depth = leaf->depth;
    char path[256];

    if (leaf->operator->apply == truce__update_rename)
        depth = truce__update_depth(new);
    if (target->level + depth > TRUCE_DOCUMENT_DEPTH_MAX)
        return truce__refuse(CODE_OVERFLOW, error, "'%s' would nest deeper than %d",
                             truce__update_target_show(target, path, sizeof path),
                             TRUCE_DOCUMENT_DEPTH_MAX);
    if (run->inserted > 2 * (uint64_t)TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the update makes the document larger than %d bytes",
                             TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}

static truce_status update_check_name(const struct update_run *run,
                                      const struct update_target *target, bson_error_t *error)
{
    if (run->insert || target->level != 1 || target->length == 0 || target->name[0] != '$')
        return TRUCE_OK;
    return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                         "the field '%.*s' begins with '$', which an update cannot store at the "
                         "top level",
                         (int)target->length, target->name);
}

static bool update_is_idle(const struct update_run *run, const struct update_leaf *leaf)
{
    return (leaf->operator->flags & UPDATE_INSERT_ONLY) && !run->insert;
}

/* Builds the value of a leaf whose target does not exist. Fails if the operator must create it and
 * the path is not viable. */
static truce_status build_leaf(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_target *target, bool viable, struct value *built,
                               bson_error_t *error)
{
    unsigned flags = leaf->operator->flags;
    truce_status status;

    if (update_is_idle(run, leaf))
        return TRUCE_OK;
    if (!(flags & UPDATE_CREATES))
        return viable || (flags & UPDATE_LENIENT) ? TRUCE_OK : not_viable(target, error);
    status = leaf->operator->apply(run, leaf, target, target->value, built, error);
    if (status || built->type == VALUE_MISSING)
        return status;
    return viable ? update_check_stored(run, leaf, target, *built, error)
                  : not_viable(target, error);
}

/* Writes one element as BSON stores it. */
static uint8_t *update_put_element(uint8_t *to, uint8_t type, const char *name, uint32_t length,
                                   struct value value)
{
    *to++ = type;
    memcpy(to, name, length);
    to += length;
    *to++ = 0;
    if (value.size)
        memcpy(to, value.data, value.size);
    return to + value.size;
}

static uint64_t update_element_size(uint32_t name_length, struct value value)
{
    return 2 + (uint64_t)name_length + value.size;
}

/* Builds a document of the values that are not missing. Builds nothing if there is no value. */
static truce_status put_document(struct update_run *run, const struct update_choice *choices,
                                 const struct value *values, uint32_t count, struct value *built,
                                 bson_error_t *error)
{
    uint64_t size = 5;
    uint8_t *bytes, *to;
    int32_t length;

    for (uint32_t i = 0; i < count; i++) {
        if (values[i].type != VALUE_MISSING)
            size += update_element_size(choices[i].length, values[i]);
    }
    if (size == 5)
        return TRUCE_OK;
    if (size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the update makes a document larger than %d bytes",
                             TRUCE_DOCUMENT_BYTES_MAX);
    bytes = truce__arena_take(run->context->arena, size);
    length = (int32_t)size;
    memcpy(bytes, &length, 4);
    to = bytes + 4;
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].type != VALUE_MISSING)
            to = update_put_element(to, values[i].type, choices[i].name, choices[i].length,
                                    values[i]);
    }
    *to = 0;
    *built = (struct value){bytes, (uint32_t)size, BSON_TYPE_DOCUMENT};
    return TRUCE_OK;
}

static struct update_target update_target_below(const struct update_target *up, const char *name,
                                                uint32_t length)
{
    return (struct update_target){.up = up, .name = name, .length = length, .level = up->level + 1};
}

/* Builds a document for nodes whose target does not exist. It stays missing if it would be
 * empty. */
static truce_status build_object(struct update_run *run, const struct update_target *target,
                                 const struct update_node *const *nodes, uint32_t count,
                                 bool viable, struct value *built, bson_error_t *error)
{
    struct update_choice *choices;
    struct value *values;
    uint32_t choices_count;
    truce_status status =
        truce__update_choices(run, target, nodes, count, &choices, &choices_count, error);

    if (status)
        return status;
    values = truce__arena_take(run->context->arena, (choices_count + 1) * sizeof *values);
    for (uint32_t i = 0; i < choices_count; i++) {
        struct update_target inner =
            update_target_below(target, choices[i].name, choices[i].length);

        values[i] = truce__value_missing();
        status = truce__update_build(run, &inner, choices[i].nodes, choices[i].count, viable,
                                     &values[i], error);
        if (status)
            return status;
    }
    return put_document(run, choices, values, choices_count, built, error);
}

/* Builds the value for a target that does not exist yet. `*built` stays MISSING if the update puts
 * no value there. */
static truce_status truce__update_build(struct update_run *run, const struct update_target *target,
                                        const struct update_node *const *nodes, uint32_t count,
                                        bool viable, struct value *built, bson_error_t *error)
{
    char path[256];

    switch (nodes[0]->kind) {
    case UPDATE_LEAF:
        truce_assert(count == 1);
        return build_leaf(run, &nodes[0]->leaf, target, viable, built, error);
    case UPDATE_OBJECT:
        return build_object(run, target, nodes, count, viable, built, error);
    case UPDATE_ARRAY:
        break;
    }
    return truce__refuse(CODE_BAD_VALUE, error,
                         "'%s' does not exist: there is no array to update the elements of",
                         truce__update_target_show(target, path, sizeof path));
}

/* ---- edits of bytes -------------------------------------------------------------------------- */

/*
 * The new document, written in one pass over the old one.
 *
 * Applying an update does not build a document in memory. It records a list of edits of the old
 * document's bytes; bytes without an edit are copied with memcpy. $set of a number in a document of
 * 300 bytes is one edit of 4 bytes.
 *
 *     before   24 00 00 00 | 10 'n' 00 07 00 00 00 | 02 's' 00 ... | 00
 *     edits    ^ length: +9               ^ 4 bytes instead of 4    ^ 9 bytes instead of none
 *     after    2d 00 00 00 | 10 'n' 00 08 00 00 00 | 02 's' 00 ... | 10 'x' 00 01 00 00 00 | 00
 *
 * Invariants
 *   1. Edits never overlap. The tree has no two operators on one path or on nested paths, and the
 *      edits of a container's length and end are outside its elements. Each edit that does not
 *      append replaces at least one byte.
 *   2. Several edits at one position are appended fields of one container. They are in the order in
 *      which they were made, that of the tree.
 *   3. Each edit changes the document: a run without edits leaves it as it was.
 */

/* Records an edit: `removed` bytes at `at` are replaced by `size` bytes. */
static void truce__update_edit(struct update_run *run, const uint8_t *at, uint32_t removed,
                               const uint8_t *bytes, uint32_t size)
{
    if (!run->edits) {
        run->edits = run->edits_inline;
        run->edits_room = UPDATE_EDITS_INLINE;
    }
    if (run->edits_count == run->edits_room) {
        uint32_t room = run->edits_room * 2;
        struct update_edit *edits = truce__arena_take(run->context->arena, room * sizeof *edits);

        memcpy(edits, run->edits, run->edits_count * sizeof *edits);
        run->edits = edits;
        run->edits_room = room;
    }
    run->edits[run->edits_count++] = (struct update_edit){at, removed, size, bytes};
    run->inserted += size;
    run->changes++;
}

/* Edits the length prefix of a container that grew by `delta` bytes. */
static void update_edit_length(struct update_run *run, struct value container, int64_t delta)
{
    int64_t length = (int64_t)container.size + delta;
    /* The splice refuses a document of this length. */
    int32_t stored = length > INT32_MAX ? INT32_MAX : (int32_t)length;

    if (delta)
        truce__update_edit(run, container.data, 4,
                           truce__arena_copy(run->context->arena, &stored, 4), 4);
}

static void insertion_sort(struct update_edit *edits, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct update_edit edit = edits[i];
        uint32_t j = i;

        for (; j > 0 && edits[j - 1].at > edit.at; j--)
            edits[j] = edits[j - 1];
        edits[j] = edit;
    }
}

/* Sorts by position, stably; `spare` has room for half of the edits. */
static void merge_sort(struct update_edit *edits, uint32_t count, struct update_edit *spare)
{
    uint32_t half = count / 2;
    uint32_t left = 0, right = half, to = 0;

    if (count <= 16) {
        insertion_sort(edits, count);
        return;
    }
    merge_sort(edits, half, spare);
    merge_sort(edits + half, count - half, spare);
    memcpy(spare, edits, half * sizeof *edits);
    while (left < half && right < count)
        edits[to++] = edits[right].at < spare[left].at ? edits[right++] : spare[left++];
    while (left < half)
        edits[to++] = spare[left++];
}

static void sort_edits(struct update_run *run)
{
    struct update_edit *spare = NULL;

    if (run->edits_count > 16)
        spare = truce__arena_take(run->context->arena, run->edits_count / 2 * sizeof *spare);
    merge_sort(run->edits, run->edits_count, spare);
}

static int64_t size_after(const struct update_run *run, uint32_t size_before)
{
    int64_t size = size_before;

    for (uint32_t i = 0; i < run->edits_count; i++)
        size += (int64_t)run->edits[i].size - run->edits[i].removed;
    return size;
}

truce_status truce__update_splice(struct update_run *run, struct value before, bson_t *after,
                                  bson_error_t *error)
{
    const uint8_t *from = before.data, *end = before.data + before.size;
    int64_t size = size_after(run, before.size);
    uint8_t *to;

    if (size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the document after the update would have %lld bytes, more than %d",
                             (long long)size, TRUCE_DOCUMENT_BYTES_MAX);
    sort_edits(run);
    truce_assert(size >= 5);
    to = bson_reserve_buffer(after, (uint32_t)size);
    truce_assert(to);
    for (uint32_t i = 0; i < run->edits_count; i++) {
        const struct update_edit *edit = &run->edits[i];
        size_t kept = (size_t)(edit->at - from);

        truce_assert(edit->at >= from && edit->at + edit->removed <= end);
        memcpy(to, from, kept);
        to += kept;
        if (edit->size)
            memcpy(to, edit->bytes, edit->size);
        to += edit->size;
        from = edit->at + edit->removed;
    }
    truce_assert(to + (end - from) == bson_get_data(after) + size);
    memcpy(to, from, (size_t)(end - from));
    return TRUCE_OK;
}

/* ---- $update of items ------------------------------------------------------------------------ */

/*
 * $update: changes the items of an array that a query finds, in place.
 *
 *     {$update: {badges: {$query: {type: "X"}, $set: {date: null}, $inc: {times: 1}}}}
 *
 *     badges: [ {type: "A"}, {type: "X", date: 7}, {type: "X"} ]
 *                            ^ changes these two; no reader sees the array without them
 *
 * The operator combines $set with the selection of $pull, so that no item is pulled and pushed
 * back. $query is a condition as in $pull: on the fields of documents, or ({$gte: 5}) on the items
 * themselves. Any update operators may follow, also $update; their paths start at the item. A path
 * may lead through arrays of documents ("orders.lines": the lines of each order).
 *
 * For the rest of the update, the path of $update is a leaf like any other. An operator on the same
 * path, or on one that contains it or is contained in it, is a conflict (40). A missing
 * array has no items; a value that is not an array is an error (2), as with $pull.
 */

truce_status truce__update_parse_items(struct update_parser *parser, struct update_leaf *leaf,
                                       bson_error_t *error)
{
    struct value query;
    truce_status status;

    memset(&leaf->as, 0, sizeof leaf->as);
    if (leaf->operand.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "$update of '%s' takes a document with $query and operators, not %s",
                             leaf->path, truce__type_name(leaf->operand.type));
    query = truce__value_field(leaf->operand, "$query", 6);
    if (query.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "$update of '%s' takes a document as $query ({} for every document)",
                             leaf->path);
    status = truce__update_condition(parser, query, &leaf->as.items.match,
                                     &leaf->as.items.documents_only, error);
    if (status)
        return status;
    leaf->as.items.root = truce__update_node_new(parser->update, UPDATE_OBJECT);
    parser->depth++;
    status = truce__update_parse(parser, leaf->as.items.root, leaf->operand, error);
    parser->depth--;
    if (status)
        return status;
    truce__update_tree_seal(leaf->as.items.root);
    return TRUCE_OK;
}

/* Changes one item that matched. */
static truce_status items_change_item(struct update_run *run, const struct update_leaf *leaf,
                                      const struct update_target *item, int64_t *delta,
                                      bson_error_t *error)
{
    const struct update_node *root = leaf->as.items.root;
    uint64_t changes = run->changes;
    struct value outer = run->root;
    truce_status status;

    run->root = item->value;
    status = update_visit(run, item, &root, 1, delta, error);
    run->root = outer;
    run->items_matched++;
    run->items_modified += run->changes > changes;
    return status;
}

/* Applies $update to the items of an array that match its condition. */
static truce_status truce__update_items(struct update_run *run, const struct update_leaf *leaf,
                                        const struct update_target *target, int64_t *delta,
                                        bson_error_t *error)
{
    const uint8_t *element;
    struct fields fields;
    int64_t grown = 0;
    char path[256];

    if (target->value.type != BSON_TYPE_ARRAY)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "$update of '%s': the field is %s, not an array",
                             truce__update_target_show(target, path, sizeof path),
                             truce__type_name(target->value.type));
    fields = truce__fields(target->value);
    for (element = fields.at; truce__fields_next(&fields); element = fields.at) {
        struct update_target item = {.up = target,
                                     .root = true,
                                     .name = fields.key,
                                     .length = fields.key_length,
                                     .level = target->level + 1,
                                     .element = element,
                                     .value = fields.value};
        truce_status status;
        bool matches;

        status =
            truce__update_item_matches(run, leaf->as.items.match, leaf->as.items.documents_only,
                                       fields.value, &matches, error);
        if (!status && matches)
            status = items_change_item(run, leaf, &item, &grown, error);
        if (status)
            return status;
    }
    update_edit_length(run, target->value, grown);
    *delta += grown;
    return TRUCE_OK;
}

/* ---- the walk -------------------------------------------------------------------------------- */

const char *truce__update_target_show(const struct update_target *target, char *text, size_t size)
{
    size_t end = size - 1, total = 0;

    text[end] = '\0';
    for (const struct update_target *at = target; at && at->up; at = at->up) {
        total = at->length + (end < size - 1 ? 1 : 0);
        if (total > end)
            break;
        if (end < size - 1)
            text[--end] = '.';
        end -= at->length;
        memcpy(text + end, at->name, at->length);
    }
    memmove(text, text + end, size - end);
    return text;
}

/* Appends an element to the end of a container. */
static void apply_append_element(struct update_run *run, struct value container, const char *name,
                                 uint32_t length, struct value value, int64_t *delta)
{
    uint64_t size = update_element_size(length, value);
    uint8_t *bytes = truce__arena_take(run->context->arena, size);

    truce_assert(size <= UINT32_MAX);
    update_put_element(bytes, value.type, name, length, value);
    truce__update_edit(run, container.data + container.size - 1, 0, bytes, (uint32_t)size);
    *delta += (int64_t)size;
}

struct slot {
    const uint8_t *element;
    struct value value;
};

#define LINEAR_MAX 8

/* Returns the index of the choice of that name, or -1. The choices are sorted by name. */
static int64_t find_choice(const struct update_choice *choices, uint32_t count, const char *name,
                           uint32_t length)
{
    uint32_t low = 0, high = count;

    if (count <= LINEAR_MAX) {
        for (uint32_t i = 0; i < count; i++) {
            if (choices[i].length == length && !memcmp(choices[i].name, name, length))
                return i;
        }
        return -1;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order =
            truce__update_name_compare(name, length, choices[middle].name, choices[middle].length);

        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* Finds the field of each choice in one pass. If fields have one name, the first counts. */
static struct slot *find_fields(struct update_run *run, struct value document,
                                const struct update_choice *choices, uint32_t count)
{
    struct slot *slots = truce__arena_take(run->context->arena, (count + 1) * sizeof *slots);
    struct fields fields = truce__fields(document);
    const uint8_t *element = fields.at;
    uint32_t missing = count;

    memset(slots, 0, count * sizeof *slots);
    for (; missing && truce__fields_next(&fields); element = fields.at) {
        int64_t found = find_choice(choices, count, fields.key, fields.key_length);

        if (found < 0 || slots[found].element)
            continue;
        slots[found] = (struct slot){element, fields.value};
        missing--;
    }
    return slots;
}

/* Checks that the edits since `changes_before` do not change a stored `_id` (rule 3). */
static truce_status apply_check_id(const struct update_run *run, const struct update_target *target,
                                   uint64_t changes_before, bson_error_t *error)
{
    char value[128];

    if (run->changes == changes_before || target->level != 1 || target->length != 3 ||
        memcmp(target->name, "_id", 3) != 0)
        return TRUCE_OK;
    return truce__refuse(CODE_IMMUTABLE_FIELD, error,
                         "the update would change '_id' (%s), which never changes",
                         truce__value_show(target->value, value, sizeof value));
}

/* Visits the fields of a document that the update names, and appends those that do not exist. */
static truce_status visit_document(struct update_run *run, const struct update_target *target,
                                   const struct update_choice *choices, uint32_t count,
                                   int64_t *delta, bson_error_t *error)
{
    struct slot *slots = find_fields(run, target->value, choices, count);
    truce_status status;

    for (uint32_t i = 0; i < count; i++) {
        const struct update_choice *choice = &choices[i];
        struct update_target inner = update_target_below(target, choice->name, choice->length);
        struct value built = truce__value_missing();
        uint64_t changes = run->changes;

        if (slots[i].element) {
            inner.element = slots[i].element;
            inner.value = slots[i].value;
            status = update_visit(run, &inner, choice->nodes, choice->count, delta, error);
            if (!status)
                status = apply_check_id(run, &inner, changes, error);
        } else {
            status =
                truce__update_build(run, &inner, choice->nodes, choice->count, true, &built, error);
            if (!status && built.type != VALUE_MISSING)
                status = update_check_name(run, &inner, error);
        }
        if (status)
            return status;
        if (built.type != VALUE_MISSING)
            apply_append_element(run, target->value, choice->name, choice->length, built, delta);
    }
    return TRUCE_OK;
}

/* Returns whether a name that is not a number leads through an array, as only for $update (rule
 * 5). */
static bool leads_through(const struct update_choice *choice)
{
    if (choice->index >= 0)
        return false;
    for (uint32_t i = 0; i < choice->count; i++) {
        if (!choice->nodes[i]->items_only)
            return false;
    }
    return true;
}

/* Returns the nodes that rule 5 applies to each document of an array. */
static uint32_t nodes_through(struct update_run *run, const struct update_choice *choices,
                              uint32_t count, const struct update_node **nodes)
{
    uint32_t filled = 0;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; leads_through(&choices[i]) && j < choices[i].count; j++) {
            struct update_node *node = truce__arena_take(run->context->arena, sizeof *node);
            struct update_branch *branch = truce__arena_take(run->context->arena, sizeof *branch);

            *branch = (struct update_branch){.name = choices[i].name,
                                             .length = choices[i].length,
                                             .index = -1,
                                             .node = (struct update_node *)choices[i].nodes[j]};
            *node = (struct update_node){.kind = UPDATE_OBJECT,
                                         .items_only = true,
                                         .branches = branch,
                                         .count = 1,
                                         .room = 1};
            nodes[filled++] = node;
        }
    }
    return filled;
}

static uint32_t count_nodes(const struct update_choice *choices, uint32_t count)
{
    uint32_t nodes = 0;

    for (uint32_t i = 0; i < count; i++)
        nodes += choices[i].count;
    return nodes;
}

/* Adds the nodes of the choices whose number is `index`, from *next on (choices are sorted). */
static uint32_t take_index(const struct update_choice *choices, uint32_t count, uint32_t *next,
                           int64_t index, const struct update_node **nodes, uint32_t filled)
{
    for (; *next < count && choices[*next].index == index; ++*next) {
        for (uint32_t i = 0; i < choices[*next].count; i++)
            nodes[filled++] = choices[*next].nodes[i];
    }
    return filled;
}

static uint32_t apply_first_number(const struct update_choice *choices, uint32_t count)
{
    uint32_t first = 0;

    while (first < count && choices[first].index < 0)
        first++;
    return first;
}

/* Appends an element that the array does not have yet: nulls up to it, then the value. */
static truce_status append_to_array(struct update_run *run, const struct update_target *target,
                                    int64_t index, int64_t *length, struct value built,
                                    int64_t *delta, bson_error_t *error)
{
    uint64_t size = built.size;
    uint8_t *bytes, *to;
    char path[256];

    if (index - *length > TRUCE_ARRAY_FILL_MAX)
        return truce__refuse(CODE_CANNOT_BACKFILL_ARRAY, error,
                             "element %lld of '%s' is more than %d elements after the end of the "
                             "array",
                             (long long)index, truce__update_target_show(target, path, sizeof path),
                             TRUCE_ARRAY_FILL_MAX);
    for (int64_t i = *length; i <= index; i++)
        size += 2 + truce__update_digits((uint32_t)i);
    bytes = to = truce__arena_take(run->context->arena, size);
    for (int64_t i = *length; i <= index; i++) {
        *to++ = i < index ? BSON_TYPE_NULL : built.type;
        to = truce__update_put_number(to, (uint32_t)i);
        *to++ = 0;
    }
    if (built.size)
        memcpy(to, built.data, built.size);
    truce__update_edit(run, target->value.data + target->value.size - 1, 0, bytes, (uint32_t)size);
    *delta += (int64_t)size;
    *length = index + 1;
    return TRUCE_OK;
}

/* Appends the elements that are named by a number beyond the end of the array. */
static truce_status append_numbers(struct update_run *run, const struct update_target *target,
                                   const struct update_choice *choices, uint32_t count,
                                   uint32_t next, int64_t length, int64_t *delta,
                                   bson_error_t *error)
{
    const struct update_node **nodes = truce__arena_take(
        run->context->arena, (count_nodes(choices, count) + 1) * sizeof(struct update_node *));
    truce_status status = TRUCE_OK;

    while (!status && next < count && choices[next].index >= 0) {
        const struct update_choice *choice = &choices[next];
        struct update_target inner = update_target_below(target, choice->name, choice->length);
        struct value built = truce__value_missing();
        uint32_t filled = take_index(choices, count, &next, choice->index, nodes, 0);

        status = truce__update_conflict(run, &inner, nodes, filled, error);
        if (!status)
            status = truce__update_build(run, &inner, nodes, filled, true, &built, error);
        if (!status && built.type != VALUE_MISSING)
            status = append_to_array(run, target, choice->index, &length, built, delta, error);
    }
    return status;
}

/* Refuses (code 28) the choices from `first` to `end` that are not numbers and do not lead through
 * the array, unless their operators are lenient. */
static truce_status refuse_names(struct update_run *run, const struct update_target *target,
                                 const struct update_choice *choices, uint32_t first, uint32_t end,
                                 bson_error_t *error)
{
    struct value none = truce__value_missing();
    truce_status status = TRUCE_OK;

    for (uint32_t i = first; !status && i < end; i++) {
        struct update_target inner =
            update_target_below(target, choices[i].name, choices[i].length);

        if (choices[i].index < 0 && !leads_through(&choices[i]))
            status = truce__update_build(run, &inner, choices[i].nodes, choices[i].count, false,
                                         &none, error);
    }
    return status;
}

/* Visits the elements that are named by number and, by rule 5, all documents of the array. Then
 * appends the elements that do not exist. */
static truce_status apply_visit_array(struct update_run *run, const struct update_target *target,
                                      const struct update_choice *choices, uint32_t count,
                                      int64_t *delta, bson_error_t *error)
{
    const struct update_node **nodes = truce__arena_take(
        run->context->arena, (count_nodes(choices, count) + 1) * sizeof(struct update_node *));
    uint32_t through = nodes_through(run, choices, count, nodes);
    uint32_t next = apply_first_number(choices, count);
    struct fields fields = truce__fields(target->value);
    const uint8_t *element = fields.at;
    truce_status status;
    int64_t length = 0;

    status = refuse_names(run, target, choices, 0, next, error);
    for (; !status && (through || (next < count && choices[next].index >= 0));
         element = fields.at) {
        struct update_target inner;
        uint32_t first, filled;

        if (!truce__fields_next(&fields))
            break;
        first = fields.value.type == BSON_TYPE_DOCUMENT ? 0 : through;
        filled = take_index(choices, count, &next, length++, nodes, through);
        if (filled == first)
            continue;
        inner = update_target_below(target, fields.key, fields.key_length);
        inner.element = element;
        inner.value = fields.value;
        status = truce__update_conflict(run, &inner, nodes + first, filled - first, error);
        if (!status)
            status = update_visit(run, &inner, nodes + first, filled - first, delta, error);
    }
    if (!status)
        status = append_numbers(run, target, choices, count, next, length, delta, error);
    return status ? status : refuse_names(run, target, choices, next, count, error);
}

/* Visits the parts of a document or array. Below any other value, nothing can be created. */
static truce_status visit_object(struct update_run *run, const struct update_target *target,
                                 const struct update_node *const *nodes, uint32_t count,
                                 int64_t *delta, bson_error_t *error)
{
    struct update_choice *choices;
    struct value none = truce__value_missing();
    uint32_t choices_count;
    int64_t grown = 0;
    truce_status status =
        truce__update_choices(run, target, nodes, count, &choices, &choices_count, error);

    if (status)
        return status;
    if (target->value.type == BSON_TYPE_DOCUMENT) {
        status = visit_document(run, target, choices, choices_count, &grown, error);
    } else if (target->value.type == BSON_TYPE_ARRAY) {
        status = apply_visit_array(run, target, choices, choices_count, &grown, error);
    } else {
        for (uint32_t i = 0; !status && i < choices_count; i++) {
            struct update_target inner =
                update_target_below(target, choices[i].name, choices[i].length);

            status = truce__update_build(run, &inner, choices[i].nodes, choices[i].count, false,
                                         &none, error);
        }
    }
    if (status)
        return status;
    update_edit_length(run, target->value, grown);
    *delta += grown;
    return TRUCE_OK;
}

/* Returns the nodes whose filter matches this element. */
static truce_status filtered_nodes(struct update_run *run, const struct update_node *const *nodes,
                                   uint32_t count, struct value element,
                                   const struct update_node **taken, uint32_t *taken_count,
                                   bson_error_t *error)
{
    *taken_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < nodes[i]->count; j++) {
            const struct update_branch *branch = &nodes[i]->branches[j];
            struct match_result result = {.matched = true};

            if (branch->filter) {
                truce_status status =
                    truce__match_test(branch->filter->match, element, run->context, &result, error);
                if (status)
                    return status;
            }
            if (result.matched)
                taken[(*taken_count)++] = branch->node;
        }
    }
    return TRUCE_OK;
}

/* Visits the elements of "a.$[]" and "a.$[x]". */
static truce_status visit_elements(struct update_run *run, const struct update_target *target,
                                   const struct update_node *const *nodes, uint32_t count,
                                   int64_t *delta, bson_error_t *error)
{
    const struct update_node **taken;
    struct fields fields;
    const uint8_t *element;
    uint32_t branches = 0, taken_count;
    truce_status status = TRUCE_OK;
    int64_t grown = 0;
    char path[256];

    if (target->value.type != BSON_TYPE_ARRAY)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "'%s' is %s, not an array whose elements can be updated",
                             truce__update_target_show(target, path, sizeof path),
                             truce__type_name(target->value.type));
    for (uint32_t i = 0; i < count; i++)
        branches += nodes[i]->count;
    taken = truce__arena_take(run->context->arena, branches * sizeof(struct update_node *));
    fields = truce__fields(target->value);
    for (element = fields.at; !status && truce__fields_next(&fields); element = fields.at) {
        struct update_target inner = update_target_below(target, fields.key, fields.key_length);

        inner.element = element;
        inner.value = fields.value;
        status = filtered_nodes(run, nodes, count, fields.value, taken, &taken_count, error);
        if (!status && taken_count)
            status = truce__update_conflict(run, &inner, taken, taken_count, error);
        if (!status && taken_count)
            status = update_visit(run, &inner, taken, taken_count, &grown, error);
    }
    if (status)
        return status;
    update_edit_length(run, target->value, grown);
    *delta += grown;
    return TRUCE_OK;
}

/* Edits a value without bytes (null). Its position is the end of its element, where other edits may
 * be. The zero byte before it is therefore replaced, too, which keeps the edits apart. */
static void edit_nothing(struct update_run *run, struct value old, struct value new)
{
    uint8_t *bytes = truce__arena_take(run->context->arena, (size_t) new.size + 1);

    bytes[0] = 0;
    if (new.size)
        memcpy(bytes + 1, new.data, new.size);
    truce__update_edit(run, old.data - 1, 1, bytes, new.size + 1);
}

static void edit_value(struct update_run *run, const struct update_target *target, struct value new,
                       int64_t *delta)
{
    struct value old = target->value;

    if (new.type != old.type)
        truce__update_edit(run, target->element, 1,
                           truce__arena_copy(run->context->arena, &new.type, 1), 1);
    if (old.size == 0)
        edit_nothing(run, old, new);
    else
        truce__update_edit(run, old.data, old.size, new.data, new.size);
    *delta += (int64_t) new.size - old.size;
}

static void edit_away(struct update_run *run, const struct update_target *target, int64_t *delta)
{
    uint32_t size = (uint32_t)(target->value.data + target->value.size - target->element);

    truce__update_edit(run, target->element, size, NULL, 0);
    *delta -= size;
}

/* Applies the operator of a leaf to an existing value, and records the edit. A removed element of
 * an array becomes null. */
static truce_status visit_leaf(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_target *target, int64_t *delta,
                               bson_error_t *error)
{
    struct value new = target->value;
    truce_status status;

    if (update_is_idle(run, leaf))
        return TRUCE_OK;
    if (leaf->operator->flags & UPDATE_ITEMS)
        return truce__update_items(run, leaf, target, delta, error);
    status = leaf->operator->apply(run, leaf, target, target->value, &new, error);
    if (status)
        return status;
    if (new.type == VALUE_MISSING && target->up->value.type == BSON_TYPE_ARRAY) {
        new = truce__value_null();
        run->changes++;
    }
    if (truce__value_identical(target->value, new))
        return TRUCE_OK;
    if (new.type == VALUE_MISSING) {
        edit_away(run, target, delta);
        return TRUCE_OK;
    }
    edit_value(run, target, new, delta);
    status = update_check_stored(run, leaf, target, new, error);
    if (!status && !(leaf->operator->flags & UPDATE_DOLLAR_NAMES))
        status = update_check_name(run, target, error);
    return status;
}

/* Visits one existing target with all the nodes for it; adds to *delta the bytes by which it
 * grew. */
static truce_status update_visit(struct update_run *run, const struct update_target *target,
                                 const struct update_node *const *nodes, uint32_t count,
                                 int64_t *delta, bson_error_t *error)
{
    truce_assert(count > 0);
    switch (nodes[0]->kind) {
    case UPDATE_LEAF:
        truce_assert(count == 1);
        return visit_leaf(run, &nodes[0]->leaf, target, delta, error);
    case UPDATE_OBJECT:
        return visit_object(run, target, nodes, count, delta, error);
    case UPDATE_ARRAY:
        break;
    }
    return visit_elements(run, target, nodes, count, delta, error);
}

truce_status truce__update_walk(struct update_run *run, const struct update_node *root,
                                struct value document, bson_error_t *error)
{
    struct update_target target = {.root = true, .value = document};
    int64_t delta = 0;

    run->root = document;
    return update_visit(run, &target, &root, 1, &delta, error);
}
