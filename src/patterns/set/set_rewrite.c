/* Batches where the store can rewrite (truce/sys/store.h): the winners are merged into each document inside
 * the store's own write. set_batch.c has the picture. */
#include "base/id.h"
#include "patterns/set/set_batch.h"
#include "store/store.h"

/* What becomes of a group; open: another round. */
struct fate {
    enum { FATE_OPEN, FATE_SETTLED, FATE_HELD, FATE_FAILED } kind;
    truce_status status; /* failed, and why */
    bson_error_t *why;
};

struct rewriting {
    truce_rewrite base; /* first */
    const struct set_window *window;
    struct fate *fates; /* of the window's groups */
};

static struct fate *fate_of(truce_rewrite *rewrite, size_t number)
{
    return &((struct rewriting *)rewrite)->fates[number];
}

static void fail_fate(struct fate *fate, truce_status status, const bson_error_t *why)
{
    fate->kind = FATE_FAILED;
    fate->status = status;
    if (!fate->why)
        fate->why = bson_malloc(sizeof *fate->why);
    *fate->why = *why;
}

static void begin_rewriting(truce_rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->count; i++)
        fate_of(rewrite, i)->kind = FATE_OPEN;
}

void truce__set_document_begin(const truce_set *set, const bson_t *key, bson_t *document)
{
    struct value root = truce__value_document(key);
    struct value id = truce__value_field(root, "_id", 3);
    bson_oid_t fresh;

    if (id.type == VALUE_MISSING) {
        truce__id_new(&fresh);
        bson_append_oid(document, "_id", 3, &fresh);
    } else {
        truce__value_append(document, "_id", 3, id);
    }
    for (uint32_t i = 0; i < set->keys_count; i++) {
        size_t length = strlen(set->keys[i]);

        if (strcmp(set->keys[i], "_id"))
            truce__value_append(document, set->keys[i], length,
                                truce__value_field(root, set->keys[i], length));
    }
}

/* `before` with other lists, and another revision if it has one. */
static void append_changed(const bson_t *before, const bson_t *lists, bson_t *after)
{
    struct value changed = truce__value_document(lists);
    struct fields fields = truce__fields(truce__value_document(before));
    bool renew = truce__set_has_revision(before);

    while (truce__fields_next(&fields)) {
        struct value list = truce__value_field(changed, fields.key, fields.key_length);

        if (renew && !strcmp(fields.key, "_rev"))
            truce__set_revision_append(after);
        else
            truce__value_append(after, fields.key, fields.key_length,
                                list.type == VALUE_MISSING ? fields.value : list);
    }
    fields = truce__fields(changed);
    while (truce__fields_next(&fields)) {
        if (truce__value_field(truce__value_document(before), fields.key, fields.key_length).type ==
            VALUE_MISSING)
            truce__value_append(after, fields.key, fields.key_length, fields.value);
    }
}

static bool rewrite_make_document(truce_rewrite *rewrite, size_t number, const bson_t *before,
                                  bson_t *after)
{
    const struct set_window *window = ((struct rewriting *)rewrite)->window;
    struct set_batch *batch = window->batch;
    struct set_group *group = window->groups[number];
    struct fate *fate = fate_of(rewrite, number);
    struct set_merge merge = {.scratch = &batch->scratch,
                              .winners = batch->winners + group->first,
                              .count = group->last - group->first,
                              .whole = true,
                              .end = batch->operations + group->to,
                              .verdicts = batch->verdicts + group->first,
                              .passed = batch->passed + group->first};
    bson_t begun = BSON_INITIALIZER;
    bson_error_t why = {0};
    truce_status status;

    if (before && !truce__intent_absent(before)) {
        fate->kind = FATE_HELD;
        return false;
    }
    if (!before) {
        truce__set_document_begin(batch->set, rewrite->keys[number], &begun);
        before = &begun;
    }
    status = truce__set_merge(batch->set, before, &merge, &why);
    if (!status && merge.changed)
        append_changed(before, &merge.change, after);
    bson_destroy(&merge.change);
    bson_destroy(&begun);
    if (status)
        fail_fate(fate, status, &why);
    else
        fate->kind = FATE_SETTLED;
    return !status && merge.changed;
}

static void refuse_document(truce_rewrite *rewrite, size_t number, truce_status status,
                            const bson_error_t *why)
{
    if (status == TRUCE_DUPLICATE || truce__repeatable(status))
        fate_of(rewrite, number)->kind = FATE_OPEN;
    else
        fail_fate(fate_of(rewrite, number), status, why);
}

static void meet_fate(struct set_batch *batch, struct set_group *group, const struct fate *fate)
{
    switch (fate->kind) {
    case FATE_OPEN:
        return;
    case FATE_SETTLED:
        truce__set_group_settle(batch, group);
        return;
    case FATE_HELD:
        truce__set_group_hand_back(batch, group);
        return;
    case FATE_FAILED:
        if (truce__set_group_split(batch, group, fate->status))
            return;
        truce__set_group_fail(batch, group, fate->status, fate->why);
        return;
    }
}

/* Without an index of the key, or an answer, the window is left to the next round. */
void truce__set_rewrite_window(struct set_window *window)
{
    const struct set_batch *batch = window->batch;
    const bson_t **keys = bson_malloc(window->count * sizeof *keys);
    struct rewriting rewriting = {.base = {.collection = batch->set->collection,
                                           .keys = keys,
                                           .count = window->count,
                                           .begin = begin_rewriting,
                                           .make = rewrite_make_document,
                                           .refuse = refuse_document},
                                  .window = window};
    bson_error_t why = {0};
    truce_status status;

    rewriting.fates = bson_malloc0(window->count * sizeof *rewriting.fates);
    for (size_t i = 0; i < window->count; i++)
        keys[i] = batch->operations[window->groups[i]->from].given->key;
    status = truce__store_rewrite(batch->set->store, &rewriting.base, &why);
    for (size_t i = 0; i < window->count; i++) {
        if (!status)
            meet_fate(window->batch, window->groups[i], &rewriting.fates[i]);
        else if (status != TRUCE_NOT_FOUND && !truce__repeatable(status))
            truce__set_group_fail(window->batch, window->groups[i], status, &why);
        bson_free(rewriting.fates[i].why);
    }
    bson_free(rewriting.fates);
    bson_free(keys);
}
