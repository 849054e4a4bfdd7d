#include "tests/support/set_model.h"

static int compare(const struct model_operation *a, const struct model_operation *b)
{
    int order;

    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    order = strcmp(a->source ? a->source : "", b->source ? b->source : "");
    return order ? order : (int)a->add - (int)b->add;
}

const struct model_operation *model_winner(const struct model_operation *operations, size_t count,
                                           const bool *given, int key, int name)
{
    const struct model_operation *best = NULL;

    for (size_t i = 0; i < count; i++) {
        if ((!given || given[i]) && operations[i].key == key && operations[i].name == name &&
            (!best || compare(&operations[i], best) > 0))
            best = &operations[i];
    }
    return best;
}

static void name_text(int name, char *text, size_t size)
{
    snprintf(text, size, "CS %d", name);
}

static void from_text(const struct model_operation *operation, char *text, size_t size)
{
    snprintf(text, size, "%s %lld", operation->source ? operation->source : "-",
             (long long)operation->seq);
}

void model_operation_make(const struct model_operation *operation, bson_t *key, bson_t *element,
                          truce_set_operation *made)
{
    char text[64];

    bson_init(key);
    bson_init(element);
    bson_append_int32(key, "student_id", -1, operation->key);
    name_text(operation->name, text, sizeof text);
    bson_append_utf8(element, "name", -1, text, -1);
    from_text(operation, text, sizeof text);
    if (operation->add)
        bson_append_utf8(element, "from", -1, text, -1);
    *made = (truce_set_operation){.verb = operation->add ? TRUCE_SET_ADD : TRUCE_SET_REMOVE,
                                  .key = key,
                                  .element = element,
                                  .seq = operation->seq,
                                  .source = operation->source};
}

truce_status model_apply(truce_set *set, const struct model_operation *operation,
                         truce_set_outcome *outcome, bson_error_t *error)
{
    truce_set_operation made;
    truce_set_result result = {0};
    bson_t key, element;
    truce_status status;

    model_operation_make(operation, &key, &element, &made);
    status = truce_set_apply(set, NULL, &made, 1, &result, error);
    *outcome = result.outcome;
    bson_destroy(&key);
    bson_destroy(&element);
    return status;
}

truce_status model_apply_batch(truce_set *set, const struct model_operation *operations,
                               const int *chosen, int count, truce_set_result *results,
                               bson_error_t *error)
{
    truce_set_operation *made = bson_malloc((size_t)count * sizeof *made);
    bson_t *parts = bson_malloc((size_t)count * 2 * sizeof *parts);
    truce_status status;

    for (int i = 0; i < count; i++)
        model_operation_make(&operations[chosen[i]], &parts[2 * i], &parts[2 * i + 1], &made[i]);
    status = truce_set_apply(set, NULL, made, (size_t)count, results, error);
    for (int i = 0; i < 2 * count; i++)
        bson_destroy(&parts[i]);
    bson_free(made);
    bson_free(parts);
    return status;
}

bson_t *model_key(int key)
{
    bson_t *document = bson_new();

    bson_append_int32(document, "student_id", -1, key);
    return document;
}

const char *model_show(const struct model_operation *operations, size_t count, const bool *given,
                       char *text, size_t size)
{
    size_t at = 0;

    text[0] = 0;
    for (size_t i = 0; i < count && at < size; i++) {
        if (!given || given[i])
            at += (size_t)snprintf(text + at, size - at, "%s%c%lld%s/%d", at ? " " : "",
                                   operations[i].add ? 'a' : 'r', (long long)operations[i].seq,
                                   operations[i].source ? operations[i].source : "",
                                   operations[i].name);
    }
    return text;
}

/* Returns how often a list has a name, and the number and payload of its last entry. */
static int find(const bson_t *document, const char *list, const char *name, int64_t *seq,
                char *from, size_t size)
{
    bson_iter_t iter, entries;
    int count = 0;

    *seq = 0;
    from[0] = 0;
    if (!bson_iter_init_find(&iter, document, list) || !BSON_ITER_HOLDS_ARRAY(&iter))
        return 0;
    bson_iter_recurse(&iter, &entries);
    while (bson_iter_next(&entries)) {
        bson_iter_t entry, field;

        if (!bson_iter_recurse(&entries, &entry) || !bson_iter_find(&entry, "name") ||
            strcmp(bson_iter_utf8(&entry, NULL), name))
            continue;
        count++;
        bson_iter_recurse(&entries, &field);
        if (bson_iter_find(&field, "seq"))
            *seq = bson_iter_as_int64(&field);
        bson_iter_recurse(&entries, &field);
        if (bson_iter_find(&field, "from"))
            snprintf(from, size, "%s", bson_iter_utf8(&field, NULL));
    }
    return count;
}

/* Checks the entries of one name against the operation that decides it. `why` describes both. A
 * removed name may lack its tombstone unless `tombstones` is set. */
static bool check_name(const bson_t *document, const struct model_operation *winner, int name,
                       bool tombstones, char *why, size_t size)
{
    char text[64], from[64], wanted[64] = "", unused[64];
    int64_t seq, removed_seq;
    int here, gone;

    name_text(name, text, sizeof text);
    here = find(document, "classes", text, &seq, from, sizeof from);
    gone = find(document, "deleted_classes", text, &removed_seq, unused, sizeof unused);
    if (winner && winner->add) {
        from_text(winner, wanted, sizeof wanted);
        snprintf(why, size,
                 "%s: wanted add %lld (%s); %d times a member with %lld (%s), %d times removed",
                 text, (long long)winner->seq, wanted, here, (long long)seq, from, gone);
        return here == 1 && gone == 0 && seq == winner->seq && !strcmp(from, wanted);
    }
    snprintf(why, size, "%s: wanted %s; %d times a member with %lld, %d times removed with %lld",
             text, winner ? "removed" : "nothing", here, (long long)seq, gone,
             (long long)removed_seq);
    if (here)
        return false;
    if (!winner)
        return gone == 0;
    return tombstones ? gone == 1 && removed_seq == winner->seq
                      : gone == 0 || (gone == 1 && removed_seq == winner->seq);
}

bool model_check(truce_set *set, const struct model_operation *operations, size_t count,
                 const bool *given, int key, int names, bool tombstones, const char *what)
{
    bson_t *key_document = model_key(key);
    bson_t document;
    bson_error_t error;
    char why[400], shown[400];
    truce_status status = truce_set_show(set, key_document, &document, &error);
    bool good = true;

    if (status && status != TRUCE_NOT_FOUND) {
        CHECK_OK(status, error);
        good = false;
    }
    for (int name = 0; name < names && good; name++) {
        good = check_name(&document, model_winner(operations, count, given, key, name), name,
                          tombstones, why, sizeof why);
        if (!good) {
            char *text = bson_as_relaxed_extended_json(&document, NULL);

            test_fail(__FILE__, __LINE__, "%s: after %s: %s; %s", what,
                      model_show(operations, count, given, shown, sizeof shown), why, text);
            bson_free(text);
        }
    }
    bson_destroy(&document);
    bson_destroy(key_document);
    return good;
}
