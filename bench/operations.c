/*
 * The documents: 16 accounts, one document in each of five collections, 16 students with a set
 * each, a post, and an employee with ten items. Each run of an operation finds them as the previous
 * run left them. No other operation runs at the same time.
 */
#include "bench/operations.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/operations_place.h"
#include "truce/sys/store.h"

#define DOCUMENTS 16
#define ITEMS     10
#define PARTS     5
#define WARM_UP   2
#define ROUNDS    7

static bson_value_t operations_number(int n)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = n};
}

/* ---- ordered sets --------------------------------------------------------------------------- */

static truce_status set_one(truce_set *set, struct bench_place *place, bool add,
                            bson_error_t *error)
{
    bson_t *key = BCON_NEW("student_id", BCON_INT32(place->turn % DOCUMENTS));
    bson_t *element = BCON_NEW("name", BCON_UTF8("CS 101"), "room", BCON_INT32(4));
    truce_set_outcome outcome;
    truce_status status = (add ? truce_set_add : truce_set_remove)(set, NULL, key, element,
                                                                   ++place->seq, &outcome, error);

    bson_destroy(key);
    bson_destroy(element);
    return status;
}

static truce_status operations_set_add(struct bench_place *place,
                                       const struct bench_operation *operation, bson_error_t *error)
{
    return set_one(place->set, place, true, error);
}

static truce_status set_remove(struct bench_place *place, const struct bench_operation *operation,
                               bson_error_t *error)
{
    return set_one(place->set, place, false, error);
}

static truce_status classic_add(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    return set_one(place->classic, place, true, error);
}

static truce_status element_add(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    return set_one(place->elements, place, true, error);
}

/* Ten documents, one operation each. */
static truce_status set_batch(struct bench_place *place, const struct bench_operation *operation,
                              bson_error_t *error)
{
    truce_set_operation operations[10];
    truce_set_result results[10];
    truce_status status;

    for (int i = 0; i < 10; i++)
        operations[i] = (truce_set_operation){.verb = TRUCE_SET_ADD,
                                              .key = BCON_NEW("student_id", BCON_INT32(i)),
                                              .element = BCON_NEW("name", BCON_UTF8("CS 102")),
                                              .seq = ++place->seq};
    status = truce_set_apply(place->set, NULL, operations, 10, results, error);
    for (int i = 0; i < 10; i++) {
        bson_destroy((bson_t *)operations[i].key);
        bson_destroy((bson_t *)operations[i].element);
    }
    return status;
}

static truce_status set_consume(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    bson_t *key = BCON_NEW("student_id", BCON_INT32(place->turn % DOCUMENTS));
    bson_t *element = BCON_NEW("name", BCON_UTF8("CS 103"));
    truce_set_operation one = {
        .verb = TRUCE_SET_ADD, .key = key, .element = element, .seq = ++place->seq};
    truce_set_result result;
    truce_status status = truce_set_consume(place->set, "consumer", &one, 1, &result, error);

    bson_destroy(key);
    bson_destroy(element);
    return status;
}

static truce_status set_members(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    bson_t *key = BCON_NEW("student_id", BCON_INT32(1)), members;
    truce_status status = truce_set_members(place->set, key, &members, error);

    bson_destroy(&members);
    bson_destroy(key);
    return status;
}

static truce_status operations_sequence(struct bench_place *place,
                                        const struct bench_operation *operation,
                                        bson_error_t *error)
{
    int64_t next;

    return truce_sequence_next(place->store, COLLECTION "numbers", &next, error);
}

/* ---- items ---------------------------------------------------------------------------------- */

static truce_status item_do(struct bench_place *place, const char *verb, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1));
    bson_t *query = BCON_NEW("type", BCON_UTF8("badge 5"));
    bson_t *update = BCON_NEW("$set", "{", "turn", BCON_INT32(place->turn), "}");
    bson_t *item = BCON_NEW("type", BCON_UTF8("badge 5"), "turn", BCON_INT32(place->turn));
    /* Each addition adds another badge, and a removal removes the oldest one. */
    char other[40];
    truce_status status;

    if (!strcmp(verb, "add")) {
        bson_destroy(item);
        snprintf(other, sizeof other, "added %d", place->added++);
        item = BCON_NEW("type", BCON_UTF8(other));
        status = truce_item_add(place->item, NULL, filter, item, NULL, error);
    } else if (!strcmp(verb, "remove")) {
        bson_destroy(query);
        snprintf(other, sizeof other, "added %d", place->removed++);
        query = BCON_NEW("type", BCON_UTF8(other));
        status = truce_item_remove(place->item, NULL, filter, query, NULL, error);
    } else if (!strcmp(verb, "replace")) {
        status = truce_item_replace(place->item, NULL, filter, NULL, item, NULL, error);
    } else if (!strcmp(verb, "upsert")) {
        status = truce_item_upsert(place->item, NULL, filter, item, NULL, error);
    } else {
        status = truce_item_update(place->item, NULL, filter, query, update, NULL, error);
    }
    bson_destroy(item);
    bson_destroy(update);
    bson_destroy(query);
    bson_destroy(filter);
    return status;
}

static truce_status item_update(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    return item_do(place, "update", error);
}

static truce_status item_add(struct bench_place *place, const struct bench_operation *operation,
                             bson_error_t *error)
{
    return item_do(place, "add", error);
}

static truce_status item_replace(struct bench_place *place, const struct bench_operation *operation,
                                 bson_error_t *error)
{
    return item_do(place, "replace", error);
}

static truce_status item_upsert(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    return item_do(place, "upsert", error);
}

static truce_status item_remove(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    return item_do(place, "remove", error);
}

/* ---- revisions ------------------------------------------------------------------------------ */

static bson_t *next_post(const struct bench_place *place)
{
    return BCON_NEW("_id", BCON_INT32(1), "title", BCON_UTF8("round trips"), "turn",
                    BCON_INT32(place->turn));
}

static void operations_keep(struct bench_place *place, const truce_revision_result *result)
{
    bson_destroy(&place->post);
    bson_copy_to(&result->document, &place->post);
    place->version = result->version;
}

static truce_status revision_save(struct bench_place *place,
                                  const struct bench_operation *operation, bson_error_t *error)
{
    bson_t *mine = next_post(place);
    truce_revision_result result;
    truce_status status = truce_revision_save(place->revision, NULL, mine, place->version,
                                              &place->post, &result, error);

    if (!status)
        operations_keep(place, &result);
    truce_revision_result_release(&result);
    bson_destroy(mine);
    return status;
}

static truce_status revision_merge(struct bench_place *place,
                                   const struct bench_operation *operation, bson_error_t *error)
{
    bson_t *mine = next_post(place);
    truce_revision_result result;
    truce_status status = truce_revision_merge(place->revision, NULL, mine, place->version,
                                               &place->post, &result, error);

    if (!status)
        operations_keep(place, &result);
    truce_revision_result_release(&result);
    bson_destroy(mine);
    return status;
}

static truce_status revision_patch(struct bench_place *place,
                                   const struct bench_operation *operation, bson_error_t *error)
{
    bson_t *patch = BCON_NEW("$inc", "{", "views", BCON_INT32(1), "}");
    bson_value_t id = operations_number(1);
    truce_revision_result result;
    truce_status status = truce_revision_patch(place->revision, NULL, &id, place->version, false,
                                               TRUCE_PATCH_OPERATORS, patch, &result, error);

    if (!status)
        operations_keep(place, &result);
    truce_revision_result_release(&result);
    bson_destroy(patch);
    return status;
}

static truce_status revision_get(struct bench_place *place, const struct bench_operation *operation,
                                 bson_error_t *error)
{
    bson_value_t id = operations_number(1);
    bson_t document;
    int64_t version;
    truce_status status =
        truce_revision_get(place->revision, NULL, &id, &document, &version, error);

    bson_destroy(&document);
    return status;
}

/* ---- commits -------------------------------------------------------------------------------- */

/* Changes documents that it has not read (blind changes). */
static truce_status operations_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct bench_operation *operation = arg;
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = TRUCE_OK;

    for (int i = 0; i < operation->documents && !status; i++) {
        bson_value_t id = operations_number(i);

        status = truce_commit_update(commit, COLLECTION "accounts", &id, NULL, update, error);
    }
    bson_destroy(update);
    return status;
}

/* Does the same with documents in different collections. */
static truce_status change_spread(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct bench_operation *operation = arg;
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = TRUCE_OK;
    bson_value_t id = operations_number(0);
    char collection[40];

    for (int i = 0; i < operation->documents && !status; i++) {
        snprintf(collection, sizeof collection, COLLECTION "part_%d", i);
        status = truce_commit_update(commit, collection, &id, NULL, update, error);
    }
    bson_destroy(update);
    return status;
}

/* Reads each document, computes its new contents, and changes it. */
static truce_status read_and_change(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct bench_operation *operation = arg;
    truce_status status = TRUCE_OK;

    for (int i = 0; i < operation->documents && !status; i++) {
        bson_value_t id = operations_number(i);
        bson_t document, *update;
        bson_iter_t iter;

        status = truce_commit_read(commit, COLLECTION "accounts", &id, &document, error);
        if (!status && bson_iter_init_find(&iter, &document, "n")) {
            update = BCON_NEW("$set", "{", "n", BCON_INT64(bson_iter_as_int64(&iter) + 1), "}");
            status = truce_commit_update(commit, COLLECTION "accounts", &id, NULL, update, error);
            bson_destroy(update);
        }
        bson_destroy(&document);
    }
    return status;
}

static truce_status commit_with(struct bench_place *place, const struct bench_operation *operation,
                                truce_commit_function *function, const char *key,
                                bson_error_t *error)
{
    const truce_commit_options options = {.mechanism = operation->mechanism,
                                          .key = key,
                                          .key_time_ms = key ? truce__clock_wall_ms() : 0};

    return truce_transact(place->store, function, (void *)operation, &options, error);
}

static truce_status commit_blind(struct bench_place *place, const struct bench_operation *operation,
                                 bson_error_t *error)
{
    return commit_with(place, operation, operations_change, NULL, error);
}

static truce_status commit_spread(struct bench_place *place,
                                  const struct bench_operation *operation, bson_error_t *error)
{
    return commit_with(place, operation, change_spread, NULL, error);
}

static truce_status commit_read(struct bench_place *place, const struct bench_operation *operation,
                                bson_error_t *error)
{
    return commit_with(place, operation, read_and_change, NULL, error);
}

static truce_status commit_keyed(struct bench_place *place, const struct bench_operation *operation,
                                 bson_error_t *error)
{
    char key[60];

    snprintf(key, sizeof key, "%s, run %d", operation->name, place->turn);
    return commit_with(place, operation, operations_change, key, error);
}

static truce_status operations_read_many(struct bench_place *place,
                                         const struct bench_operation *operation,
                                         bson_error_t *error)
{
    bson_value_t ids[DOCUMENTS];
    truce_read_request looks[DOCUMENTS];
    truce_status status;

    for (int i = 0; i < operation->documents; i++) {
        ids[i] = operations_number(i);
        looks[i] = (truce_read_request){.collection = COLLECTION "accounts", .id = &ids[i]};
    }
    status = truce_read_many(place->store, looks, (size_t)operation->documents, NULL, error);
    for (int i = 0; i < operation->documents; i++)
        bson_destroy(&looks[i].document);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* The round trips of a commit of n documents in one collection. A transaction takes 2, or n + 1 if
 * it writes to n collections. The journal takes n + 4, 5 if it has read all documents, or 2n + 3
 * for n collections. */
#define COMMITS(n)                                                                                 \
    {"commit of " #n " documents, journal", (n) + 4, TRUCE_MECHANISM_JOURNAL, n, commit_blind},    \
    {                                                                                              \
        "commit of " #n " documents, transaction", (n) + 2, TRUCE_MECHANISM_NATIVE, n,             \
            commit_blind                                                                           \
    }

const struct bench_operation bench_operations[] = {
    {"set add", 1, 0, 0, operations_set_add},
    {"set remove", 0, 0, 0, set_remove},
    {"set add, classic operators", 0, 0, 0, classic_add},
    {"set add, a document per element", 0, 0, 0, element_add},
    {"set apply, 10 documents", 0, 0, 0, set_batch},
    {"set consume (apply and record)", 0, 0, 0, set_consume},
    {"set members", 1, 0, 0, set_members},
    {"sequence next", 1, 0, 0, operations_sequence},
    {"item update", 1, 0, 0, item_update},
    {"item add", 1, 0, 0, item_add},
    {"item remove", 1, 0, 0, item_remove},
    {"item replace", 1, 0, 0, item_replace},
    {"item upsert", 0, 0, 0, item_upsert},
    {"revision get", 1, 0, 0, revision_get},
    {"revision save", 1, 0, 0, revision_save},
    {"revision merge", 1, 0, 0, revision_merge},
    {"revision patch", 0, 0, 0, revision_patch},
    COMMITS(1),
    COMMITS(2),
    COMMITS(5),
    COMMITS(10),
    {"commit of 5 documents of 5 collections, journal", 2 * 5 + 3, TRUCE_MECHANISM_JOURNAL, 5,
     commit_spread},
    {"commit of 5 documents of 5 collections, transaction", 5 + 2, TRUCE_MECHANISM_NATIVE, 5,
     commit_spread},
    {"commit of 5 documents, with a key, journal", 0, TRUCE_MECHANISM_JOURNAL, 5, commit_keyed},
    {"commit of 5 documents, with a key, transaction", 0, TRUCE_MECHANISM_NATIVE, 5, commit_keyed},
    {"commit of 5 documents, each read before, journal", 5 + 5, TRUCE_MECHANISM_JOURNAL, 5,
     commit_read},
    {"commit of 5 documents, each read before, transaction", 0, TRUCE_MECHANISM_NATIVE, 5,
     commit_read},
    {"read many, 5 documents", 0, 0, 5, operations_read_many},
    {"queue add", 1, 0, 0, bench_queue_add},
    {"queue claim and done", 2, 0, 0, bench_queue_work},
    {"ledger post", 2, 0, 0, bench_ledger_post},
    {"ledger post in a commit with a document, journal", 8, TRUCE_MECHANISM_JOURNAL, 2,
     bench_ledger_commit},
    {"ledger balance", 1, 0, 0, bench_ledger_balance},
    {"transfer", 10, 0, 0, bench_transfer},
    {"sync, a rename with one copy", 7, 0, 0, bench_rename},
    {"tree, publish of 3 items", 5, 0, 0, bench_publish},
    {"tree, publish of 3 items, unswept", 10, 0, 0, bench_publish_unswept},
    {"tree, an item of a snapshot", 2, 0, 0, bench_tree_get},
    {NULL},
};

/* ---- the place ------------------------------------------------------------------------------ */

static truce_status operations_insert(struct bench_place *place, const char *collection,
                                      bson_t *document, bson_error_t *error)
{
    truce_status status = truce_insert(place->store, collection, document, NULL, error);

    bson_destroy(document);
    return status;
}

static bson_t *employee(void)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(1)), badges;

    BSON_APPEND_ARRAY_BEGIN(document, "badges", &badges);
    for (int i = 0; i < ITEMS; i++) {
        char index[12], type[20];
        bson_t badge;

        snprintf(index, sizeof index, "%d", i);
        snprintf(type, sizeof type, "badge %d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&badges, index, &badge);
        BSON_APPEND_UTF8(&badge, "type", type);
        bson_append_document_end(&badges, &badge);
    }
    bson_append_array_end(document, &badges);
    return document;
}

static truce_status operations_fill(struct bench_place *place, bson_error_t *error)
{
    char part[40];
    truce_status status = operations_insert(place, COLLECTION "employees", employee(), error);

    for (int i = 0; i < DOCUMENTS && !status; i++)
        status = operations_insert(place, COLLECTION "accounts",
                                   BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT64(0)), error);
    for (int i = 0; i < PARTS && !status; i++) {
        snprintf(part, sizeof part, COLLECTION "part_%d", i);
        status = operations_insert(place, part, BCON_NEW("_id", BCON_INT32(0), "n", BCON_INT64(0)),
                                   error);
    }
    place->version = TRUCE_REVISION_NEW;
    if (!status)
        status = revision_save(place, NULL, error);
    for (; place->turn < DOCUMENTS && !status; place->turn++) {
        status = set_one(place->set, place, true, error);
        if (!status)
            status = set_one(place->classic, place, true, error);
        if (!status)
            status = set_one(place->elements, place, true, error);
    }
    return status;
}

static truce_set *operations_make_set(truce_store *store, const char *collection,
                                      truce_set_layout layout, truce_set_form form)
{
    return truce_set_new(store, &(truce_set_options){.collection = collection,
                                                     .key = "student_id",
                                                     .field = "classes",
                                                     .name = "name",
                                                     .layout = layout,
                                                     .form = form});
}

struct bench_place *bench_place_new(truce_store *store, bson_error_t *error)
{
    struct bench_place *place = bson_malloc0(sizeof *place);

    place->store = store;
    place->set = operations_make_set(store, COLLECTION "students", TRUCE_SET_IN_DOCUMENT, 0);
    place->classic = operations_make_set(store, COLLECTION "pupils", TRUCE_SET_IN_DOCUMENT,
                                         TRUCE_SET_FORM_CLASSIC);
    place->elements = operations_make_set(store, COLLECTION "persons", TRUCE_SET_BY_ELEMENT, 0);
    place->item = truce_item_new(store, &(truce_item_options){.collection = COLLECTION "employees",
                                                              .field = "badges",
                                                              .identity = "type"});
    place->revision =
        truce_revision_new(store, &(truce_revision_options){.collection = COLLECTION "posts"});
    bson_init(&place->post);
    if (operations_fill(place, error) || bench_patterns_begin(place, error)) {
        bench_place_free(place);
        return NULL;
    }
    return place;
}

void bench_place_free(struct bench_place *place)
{
    truce_set_free(place->set);
    truce_set_free(place->classic);
    truce_set_free(place->elements);
    truce_item_free(place->item);
    truce_revision_free(place->revision);
    bson_destroy(&place->post);
    bench_patterns_end(place);
    bson_free(place);
}

/* ---- counting ------------------------------------------------------------------------------- */

bool bench_operation_possible(const struct bench_place *place,
                              const struct bench_operation *operation)
{
    return operation->mechanism != TRUCE_MECHANISM_NATIVE ||
           place->store->capabilities & TRUCE_CAN_ATOMIC_BULK;
}

static int operations_compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

truce_status bench_operation_trips(struct bench_place *place,
                                   const struct bench_operation *operation, int *trips,
                                   bson_error_t *error)
{
    int counts[ROUNDS];

    for (int i = -WARM_UP; i < ROUNDS; i++) {
        truce_store_counters before, after;
        truce_status status;

        place->turn++;
        truce_store_count(place->store, &before);
        status = operation->run(place, operation, error);
        if (status)
            return status;
        truce_store_count(place->store, &after);
        if (i >= 0)
            counts[i] = (int)(after.round_trips - before.round_trips);
    }
    qsort(counts, ROUNDS, sizeof *counts, operations_compare);
    *trips = counts[ROUNDS / 2];
    return TRUCE_OK;
}
