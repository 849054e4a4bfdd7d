/* The contract: documents that a function rewrites inside the store. */
#include "tests/support/contract.h"

#include <pthread.h>

#include "base/status.h"
#include "store/store.h"

const int contract_rewrite_cases = 1;

/* A rewrite of several keys, and the documents that it saw. */
struct rewriting {
    /* The first member, so that the rewrite can be cast. */
    truce_rewrite base;
    /* The new document for each key; NULL leaves it unchanged. */
    const bson_t *const *wanted;
    /* For each key, the stored document that the last call of `make` got, or NULL. */
    const bson_t *seen[8];
    /* For each key, the status of `refuse` since the last call of `begin`, or OK. */
    truce_status refused[8];
    /* The code of the last refusal. */
    uint32_t code;
    struct contract *c;
    /* The number of calls of `begin`. */
    int begun;
};

static void begin(truce_rewrite *base)
{
    struct rewriting *rewriting = (struct rewriting *)base;

    rewriting->begun++;
    for (size_t i = 0; i < base->count; i++)
        rewriting->refused[i] = TRUCE_OK;
}

static bool make(truce_rewrite *base, size_t number, const bson_t *before, bson_t *after)
{
    struct rewriting *rewriting = (struct rewriting *)base;

    CHECK(!before || before->len >= 5);
    rewriting->seen[number] = NULL;
    if (before) {
        char *json = bson_as_canonical_extended_json(before, NULL);

        rewriting->seen[number] = contract_json(rewriting->c, json);
        bson_free(json);
    }
    if (!rewriting->wanted[number])
        return false;
    bson_concat(after, rewriting->wanted[number]);
    return true;
}

static void refuse(truce_rewrite *base, size_t number, truce_status status,
                   const bson_error_t *error)
{
    struct rewriting *rewriting = (struct rewriting *)base;

    CHECK(error->message[0]);
    rewriting->refused[number] = status;
    rewriting->code = error->code;
}

static truce_status rewrite(struct contract *c, struct rewriting *rewriting,
                            const bson_t *const *keys, const bson_t *const *wanted, size_t count)
{
    *rewriting = (struct rewriting){.base = {.collection = "things",
                                             .keys = keys,
                                             .count = count,
                                             .begin = begin,
                                             .make = make,
                                             .refuse = refuse},
                                    .wanted = wanted,
                                    .c = c};
    return truce__store_rewrite(c->store, &rewriting->base, &c->error);
}

static bool can_rewrite(struct contract *c, const char *index)
{
    struct rewriting rewriting;
    const bson_t *key = J("{'k': 1}");

    if (!(c->store->capabilities & TRUCE_CAN_REWRITE)) {
        CHECK_REFUSED(TRUCE_INVALID, 0, rewrite(c, &rewriting, &key, &key, 1));
        return false;
    }
    CHECK_DONE(truce_index_create(c->store, "things", J(index), &c->error));
    return true;
}

#define UNIQUE "{'key': {'k': 1}, 'unique': true}"

CONTRACT(a_rewrite_sees_the_stored_documents_and_stores_its_own)
{
    struct rewriting r;

    if (!can_rewrite(c, UNIQUE))
        return;
    CHECK_DONE(truce_index_create(c->store, "things", J("{'key': {'a': 1}}"), &c->error));
    contract_fill(c, "things", "[{'_id': 1, 'k': 5, 'a': 1}, {'_id': 2, 'k': 6, 'a': 2}]");
    {
        const bson_t *keys[] = {J("{'k': 5}"), J("{'k': 7}"), J("{'k': 6}"), J("{'k': 8}"),
                                J("{'k': {'$numberDouble': '5.0'}}")};
        const bson_t *wanted[] = {J("{'_id': 1, 'k': 5, 'a': 3, 'b': [1]}"),
                                  J("{'_id': 3, 'k': 7, 'a': 4}"), NULL, NULL, NULL};

        CHECK_DONE(rewrite(c, &r, keys, wanted, 5));
        CHECK_BSON(J("{'_id': 1, 'k': 5, 'a': 1}"), r.seen[0]);
        CHECK_BSON(J("{'_id': 2, 'k': 6, 'a': 2}"), r.seen[2]);
        CHECK(!r.seen[1] && !r.seen[3]);
        /* The double 5.0 finds the key 5, and the rewrite sees its own result. */
        CHECK_BSON(wanted[0], r.seen[4]);
        CHECK_INT(r.begun, >=, 1);
    }
    CHECK_HOLDS("things", "[{'_id': 1, 'k': 5, 'a': 3, 'b': [1]}, {'_id': 2, 'k': 6, 'a': 2}, "
                          "{'_id': 3, 'k': 7, 'a': 4}]");
    CHECK_FINDS("things", "{'a': {'$gte': 3}}", OPTIONS(.hint = J("{'a': 1}")),
                "[{'_id': 1, 'k': 5, 'a': 3, 'b': [1]}, {'_id': 3, 'k': 7, 'a': 4}]");
    CHECK_FINDS("things", "{'a': 1}", OPTIONS(.hint = J("{'a': 1}")), "[]");
}

CONTRACT(a_rewrite_finds_by_id_and_by_several_fields)
{
    struct rewriting r;

    if (!can_rewrite(c, "{'key': {'a': -1, 'b': 1}, 'unique': true}"))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 1, 'b': 'x'}, {'_id': 2, 'a': 2, 'b': 'x'}]");
    {
        const bson_t *keys[] = {J("{'b': 'x', 'a': 2}"), J("{'a': 1, 'b': 'y'}")};
        const bson_t *wanted[] = {J("{'_id': 2, 'n': 1}"), NULL};

        CHECK_DONE(rewrite(c, &r, keys, wanted, 2));
        CHECK_BSON(J("{'_id': 2, 'a': 2, 'b': 'x'}"), r.seen[0]);
        CHECK(!r.seen[1]);
    }
    {
        const bson_t *keys[] = {J("{'_id': 1}"), J("{'_id': 4}")};
        const bson_t *wanted[] = {J("{'_id': 1, 'a': 9}"), J("{'_id': 4, 'a': 8}")};

        CHECK_DONE(rewrite(c, &r, keys, wanted, 2));
        CHECK_BSON(J("{'_id': 1, 'a': 1, 'b': 'x'}"), r.seen[0]);
        CHECK_DONE(rewrite(c, &r, keys, wanted, 2));
        CHECK_BSON(wanted[1], r.seen[1]);
    }
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 9}, {'_id': 2, 'n': 1}, {'_id': 4, 'a': 8}]");
}

/* An index that may have several documents of one key, or not all of them, finds nothing. */
CONTRACT(a_rewrite_without_a_unique_index_of_its_key_does_nothing)
{
    static const char *const indexes[] = {
        NULL, "{'key': {'k': 1}}", "{'key': {'k': 1, 'a': 1}, 'unique': true}",
        "{'key': {'k': 1}, 'name': 'part', 'unique': true, 'partialFilterExpression': {'a': 1}}"};
    const bson_t *keys[] = {J("{'k': 5}")}, *wanted[] = {J("{'_id': 1, 'k': 5, 'a': 2}")};
    struct rewriting r;

    if (!(c->store->capabilities & TRUCE_CAN_REWRITE))
        return;
    CHECK_STATUS(TRUCE_NOT_FOUND, rewrite(c, &r, keys, wanted, 1), c->error);
    contract_fill(c, "things", "[{'_id': 1, 'k': 5, 'a': 1}]");
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        if (indexes[i])
            CHECK_DONE(truce_index_create(c->store, "things", J(indexes[i]), &c->error));
        CHECK_STATUS(TRUCE_NOT_FOUND, rewrite(c, &r, keys, wanted, 1), c->error);
        CHECK(!r.seen[0]);
        CHECK_HOLDS("things", "[{'_id': 1, 'k': 5, 'a': 1}]");
        if (i == 1)
            CHECK_DONE(truce_index_drop(c->store, "things", "k_1", &c->error));
    }
}

CONTRACT(refuses_an_invalid_document_of_a_rewrite_alone)
{
    char *text = bson_malloc0(17 * 1024 * 1024);
    bson_t large = BSON_INITIALIZER, fresh = BSON_INITIALIZER;
    struct rewriting r;

    memset(text, 'x', 17 * 1024 * 1024 - 1);
    BSON_APPEND_INT32(&large, "_id", 3);
    BSON_APPEND_UTF8(&large, "text", text);
    BSON_APPEND_INT32(&fresh, "_id", 9);
    BSON_APPEND_UTF8(&fresh, "text", text);
    if (can_rewrite(c, UNIQUE)) {
        const bson_t *keys[] = {J("{'k': 1}"), J("{'k': 2}"), J("{'k': 3}"),
                                J("{'k': 4}"), J("{'k': 5}"), J("{'k': 6}")};
        const bson_t *wanted[] = {J("{'_id': 1, 'k': 1, 'n': 1}"), J("{'_id': 2, 'k': 3}"), &large,
                                  J("{'_id': 1, 'k': 4}"),         J("{'_id': 5, 'k': 5}"), &fresh};

        contract_fill(c, "things", "[{'_id': 1, 'k': 1}, {'_id': 2, 'k': 2}, {'_id': 3, 'k': 3}]");
        CHECK_DONE(rewrite(c, &r, keys, wanted, 6));
        CHECK_INT(r.refused[0], ==, TRUCE_OK);
        CHECK_INT(r.refused[1], ==, TRUCE_DUPLICATE);
        CHECK_INT(r.refused[2], ==, TRUCE_LIMIT);
        CHECK_INT(r.refused[3], ==, TRUCE_DUPLICATE);
        CHECK_INT(r.refused[4], ==, TRUCE_OK);
        CHECK_INT(r.refused[5], ==, TRUCE_LIMIT);
        CHECK_INT(r.code, ==, CODE_BSON_OBJECT_TOO_LARGE);
        CHECK_HOLDS("things", "[{'_id': 1, 'k': 1, 'n': 1}, {'_id': 2, 'k': 2}, "
                              "{'_id': 3, 'k': 3}, {'_id': 5, 'k': 5}]");
    }
    bson_destroy(&large);
    bson_destroy(&fresh);
    bson_free(text);
}

/* ---- many at once ---- */

struct counting {
    /* The first member, so that the rewrite can be cast. */
    truce_rewrite base;
    truce_store *store;
};

static void begin_counting(truce_rewrite *base)
{
    (void)base;
}

static bool count_one(truce_rewrite *base, size_t number, const bson_t *before, bson_t *after)
{
    bson_iter_t iter;
    int32_t n = 0;

    (void)number;
    (void)base;
    if (before && bson_iter_init_find(&iter, before, "n"))
        n = bson_iter_int32(&iter);
    BSON_APPEND_INT32(after, "_id", 1);
    BSON_APPEND_INT32(after, "n", n + 1);
    return true;
}

static void *count_often(void *arg)
{
    struct counting counting = *(struct counting *)arg;
    bson_error_t error;

    for (int i = 0; i < 50; i++)
        CHECK_OK(truce__store_rewrite(counting.store, &counting.base, &error), error);
    return NULL;
}

CONTRACT(rewrites_of_many_threads_lose_nothing)
{
    const bson_t *keys[] = {J("{'_id': 1}")};
    struct counting counting = {.base = {.collection = "things",
                                         .keys = keys,
                                         .count = 1,
                                         .begin = begin_counting,
                                         .make = count_one,
                                         .refuse = refuse},
                                .store = c->store};
    pthread_t threads[6];

    if (!can_rewrite(c, UNIQUE))
        return;
    for (int i = 0; i < 6; i++)
        CHECK(!pthread_create(&threads[i], NULL, count_often, &counting));
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    CHECK_HOLDS("things", "[{'_id': 1, 'n': 300}]");
}
