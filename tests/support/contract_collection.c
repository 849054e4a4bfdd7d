/* The contract: collections, names, wake-up. */
#include "tests/support/contract.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"

const int contract_collection_cases = 1;

/* Checks that the list of collections has exactly these names, in this order. */
static bool lists(struct contract *c, const char *expected)
{
    bson_t collections, shown = BSON_INITIALIZER;
    bson_iter_t iter, child;
    uint32_t count = 0;
    bool same;

    CHECK_DONE(truce_collection_list(c->store, NULL, &collections, &c->error));
    for (bson_iter_init(&iter, &collections); bson_iter_next(&iter); count++) {
        char key[16];

        snprintf(key, sizeof(key), "%u", count);
        CHECK(bson_iter_recurse(&iter, &child) && bson_iter_find(&child, "name"));
        bson_append_iter(&shown, key, -1, &child);
    }
    same = CHECK_BSON(J(expected), &shown);
    bson_destroy(&collections);
    bson_destroy(&shown);
    return same;
}

CONTRACT(collections_come_with_their_first_document_or_index)
{
    lists(c, "[]");
    CHECK_DONE(truce_insert(c->store, "b", J("{'_id': 1}"), NULL, &c->error));
    CHECK_DONE(truce_index_create(c->store, "a", J("{'key': {'x': 1}}"), &c->error));
    CHECK_DONE(truce_collection_create(c->store, "c", &c->error));
    lists(c, "['a', 'b', 'c']");
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_NAMESPACE_EXISTS,
                  truce_collection_create(c->store, "b", &c->error));
}

CONTRACT(a_refused_write_creates_no_collection)
{
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_insert(c->store, "a", J("{'_id': [1]}"), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_index_create(c->store, "a", J("{'key': {'x': 0}}"), &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_update(c->store, "a", J("{}"), J("{'$nope': {'x': 1}}"),
                               WRITE_OPTIONS(.upsert = true), NULL, &c->error));
    CHECK_DONE(
        truce_update(c->store, "a", J("{}"), J("{'$set': {'x': 1}}"), NULL, NULL, &c->error));
    CHECK_DONE(truce_remove(c->store, "a", J("{}"), NULL, NULL, &c->error));
    lists(c, "[]");
}

CONTRACT(collection_list_counts_documents_bytes_and_indexes)
{
    bson_t collections;
    bson_iter_t iter, child;

    contract_fill(c, "things", "[{'_id': 1}, {'_id': 2}]");
    CHECK_DONE(truce_index_create(c->store, "things", J("{'key': {'x': 1}}"), &c->error));
    CHECK_DONE(truce_collection_list(c->store, NULL, &collections, &c->error));
    CHECK(bson_iter_init(&iter, &collections) &&
          bson_iter_find_descendant(&iter, "0.documents", &child) &&
          bson_iter_as_int64(&child) == 2);
    CHECK(bson_iter_init(&iter, &collections) &&
          bson_iter_find_descendant(&iter, "0.bytes", &child) && bson_iter_as_int64(&child) >= 28);
    CHECK(bson_iter_init(&iter, &collections) &&
          bson_iter_find_descendant(&iter, "0.indexes", &child) && bson_iter_as_int64(&child) == 2);
    bson_destroy(&collections);
}

static void check_list(struct contract *c, const truce_list_options *options, const char *expected)
{
    bson_t collections;

    CHECK_DONE(truce_collection_list(c->store, options, &collections, &c->error));
    CHECK_BSON(J(expected), &collections);
    bson_destroy(&collections);
}

CONTRACT(collection_list_gives_one_or_names_only)
{
    contract_fill(c, "one", "[{'_id': 1}]");
    contract_fill(c, "two", "[{'_id': 1}, {'_id': 2}]");
    check_list(c, &(truce_list_options){.unmeasured = true}, "[{'name': 'one'}, {'name': 'two'}]");
    check_list(c, &(truce_list_options){.collection = "two", .unmeasured = true},
               "[{'name': 'two'}]");
    check_list(c, &(truce_list_options){.collection = "three"}, "[]");
}

CONTRACT(a_dropped_collection_is_empty_and_has_no_indexes)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    CHECK_DONE(
        truce_index_create(c->store, "things", J("{'key': {'a': 1}, 'unique': true}"), &c->error));
    CHECK_DONE(truce_collection_drop(c->store, "things", &c->error));
    CHECK_FINDS("things", "{}", NULL, "[]");
    lists(c, "[]");
    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_NAMESPACE_NOT_FOUND,
                  truce_collection_drop(c->store, "things", &c->error));
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 1}]");
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 1}]");
}

CONTRACT(a_cursor_over_a_dropped_collection_ends_or_fails_but_harms_nothing)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    for (int i = 0; i < 500; i++)
        CHECK_DONE(truce_insert(c->store, "things", J("{'a': 1}"), WRITE_OPTIONS(.relaxed = true),
                                &c->error));
    CHECK_DONE(truce_find(c->store, "things", NULL, NULL, &cursor, &c->error));
    CHECK_DONE(truce_cursor_next(cursor, &document, &c->error));
    CHECK_DONE(truce_collection_drop(c->store, "things", &c->error));
    CHECK_DONE(truce_insert(c->store, "other", J("{'_id': 1}"), NULL, &c->error));
    do {
        status = truce_cursor_next(cursor, &document, &c->error);
    } while (!status && document);
    CHECK(status == TRUCE_OK || c->error.message[0]);
    truce_cursor_close(cursor);
    CHECK_HOLDS("other", "[{'_id': 1}]");
}

CONTRACT(a_renamed_collection_keeps_documents_and_indexes)
{
    contract_fill(c, "old", "[{'_id': 1, 'a': 1}]");
    CHECK_DONE(
        truce_index_create(c->store, "old", J("{'key': {'a': 1}, 'unique': true}"), &c->error));
    CHECK_DONE(truce_collection_rename(c->store, "old", "new", false, &c->error));
    CHECK_HOLDS("new", "[{'_id': 1, 'a': 1}]");
    CHECK_FINDS("old", "{}", NULL, "[]");
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_insert(c->store, "new", J("{'a': 1}"), NULL, &c->error));
    lists(c, "['new']");
}

CONTRACT(a_rename_replaces_another_collection_only_if_it_may)
{
    contract_fill(c, "one", "[{'_id': 1}]");
    contract_fill(c, "two", "[{'_id': 2}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_NAMESPACE_EXISTS,
                  truce_collection_rename(c->store, "one", "two", false, &c->error));
    CHECK_HOLDS("two", "[{'_id': 2}]");
    CHECK_DONE(truce_collection_rename(c->store, "one", "two", true, &c->error));
    CHECK_HOLDS("two", "[{'_id': 1}]");
    lists(c, "['two']");
    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_NAMESPACE_NOT_FOUND,
                  truce_collection_rename(c->store, "one", "three", false, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_ILLEGAL_OPERATION,
                  truce_collection_rename(c->store, "two", "two", true, &c->error));
}

CONTRACT(names_that_no_collection_may_have_are_refused_everywhere)
{
    static const char *const names[] = {"", "a$b", ".a", "a.", "system.indexes", "\xff\xfe"};
    char longest[TRUCE_COLLECTION_NAME_MAX + 2];
    truce_cursor *cursor = NULL;
    uint64_t token = 0;
    bson_t document;
    int64_t count;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *name = names[i];

        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_find(c->store, name, NULL, NULL, &cursor, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_insert(c->store, name, J("{}"), NULL, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_count(c->store, name, NULL, NULL, &count, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_collection_create(c->store, name, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_collection_drop(c->store, name, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_collection_rename(c->store, "a", name, false, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_index_create(c->store, name, J("{'key': {'a': 1}}"), &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_wait(c->store, name, &token, 0, &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                      truce_find_and_modify(c->store, name, J("{}"), J("{}"), NULL, &document, NULL,
                                            &c->error));
        bson_destroy(&document);
    }
    memset(longest, 'n', sizeof(longest));
    longest[TRUCE_COLLECTION_NAME_MAX + 1] = '\0';
    CHECK_REFUSED(TRUCE_LIMIT, CODE_INVALID_NAMESPACE,
                  truce_collection_create(c->store, longest, &c->error));
    CHECK(strstr(c->error.message, "has 254 bytes: the maximum is 253"));
    /* A namespace of a server has at most 255 bytes, with the database. */
    longest[200] = '\0';
    CHECK_DONE(truce_insert(c->store, longest, J("{'_id': 1}"), NULL, &c->error));
    CHECK_DONE(truce_insert(c->store, "a.b-c \xc3\xa4'\"", J("{'_id': 1}"), NULL, &c->error));
    CHECK_HOLDS("a.b-c \xc3\xa4'\"", "[{'_id': 1}]");
    CHECK_FINDS(longest, "{}", NULL, "[{'_id': 1}]");
}

/* ---- wake-up -------------------------------------------------------------------------------- */

CONTRACT(a_wait_with_token_0_returns_at_once)
{
    uint64_t token = 0;

    CHECK_DONE(truce_wait(c->store, "things", &token, 60000, &c->error));
    CHECK(token != 0);
}

CONTRACT(a_wait_without_a_change_times_out)
{
    uint64_t token = 0, before;
    truce_status status;
    int woken = 0;

    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_DONE(truce_wait(c->store, "things", &token, 0, &c->error));
    /* A store that is notified late may wake for a change before the token. */
    do {
        before = token;
        status = truce_wait(c->store, "things", &token, 30, &c->error);
    } while (!status && woken++ < 20);
    CHECK_REFUSED(TRUCE_TIMEOUT, 0, status);
    CHECK(token == before);
    /* If the store polls, its timeout may have passed before the first poll on a slow machine. */
    do {
        status = truce_wait(c->store, "things", &token, 0, &c->error);
    } while (!status && woken++ < 40);
    CHECK_REFUSED(TRUCE_TIMEOUT, 0, status);
}

CONTRACT(every_change_since_the_token_ends_a_wait)
{
    bson_t document;
    truce_write_outcome outcome;
    truce_write write = {
        .kind = TRUCE_WRITE_INSERT, .collection = "things", .document = J("{'_id': 2}")};
    uint64_t token = 0;

    CHECK_DONE(truce_wait(c->store, "things", &token, 0, &c->error));
    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_DONE(truce_wait(c->store, "things", &token, 5000, &c->error));
    CHECK_DONE(truce_bulk(c->store, &write, 1, NULL, &outcome, &c->error));
    CHECK_DONE(truce_wait(c->store, "things", &token, 5000, &c->error));
    CHECK_DONE(truce_find_and_modify(c->store, "things", J("{}"), J("{'$set': {'a': 1}}"), NULL,
                                     &document, NULL, &c->error));
    bson_destroy(&document);
    CHECK_DONE(truce_wait(c->store, "things", &token, 5000, &c->error));
    CHECK_DONE(truce_remove(c->store, "things", J("{}"), NULL, NULL, &c->error));
    CHECK_DONE(truce_wait(c->store, "things", &token, 5000, &c->error));
    CHECK_DONE(truce_collection_drop(c->store, "things", &c->error));
    CHECK_DONE(truce_wait(c->store, "things", &token, 5000, &c->error));
}

struct waiter {
    truce_store *store;
    uint64_t token;
    /* The results of the wait. */
    truce_status status;
    int64_t waited_ms;
};

static void *wait_in_thread(void *arg)
{
    struct waiter *waiter = arg;
    int64_t begin = truce__clock_monotonic_ns();

    waiter->status = truce_wait(waiter->store, "things", &waiter->token, 20000, NULL);
    waiter->waited_ms = (truce__clock_monotonic_ns() - begin) / 1000000;
    return NULL;
}

CONTRACT(a_write_wakes_a_waiting_thread)
{
    struct waiter waiter = {.store = c->store};
    pthread_t thread;

    if (!contract_needs(c, TRUCE_CAN_WAIT))
        return;
    CHECK_DONE(truce_wait(c->store, "things", &waiter.token, 0, &c->error));
    REQUIRE(pthread_create(&thread, NULL, wait_in_thread, &waiter) == 0);
    truce__clock_sleep_ms(50);
    CHECK_DONE(truce_insert(c->store, "things", J("{'_id': 1}"), NULL, &c->error));
    pthread_join(thread, NULL);
    CHECK_INT(waiter.status, ==, TRUCE_OK);
    CHECK_INT(waiter.waited_ms, <, 10000);
}

/* ---- validators ---- */

#define CODE_REFUSED CODE_DOCUMENT_VALIDATION_FAILURE

static void validate(struct contract *c, const char *validator)
{
    CHECK_DONE(truce_collection_validate(c->store, "a", J(validator), &c->error));
}

CONTRACT(a_validator_refuses_documents_that_it_does_not_match)
{
    truce_write_result result;
    bson_t found;

    contract_fill(c, "a", "[{'_id': 1, 'n': 1}]");
    validate(c, "{'$expr': {'$lt': ['$n', 10]}, 'n': {'$type': 'number'}}");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_insert(c->store, "a", J("{'_id': 2, 'n': 10}"), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_insert(c->store, "a", J("{'_id': 2}"), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'n': 11}}"), NULL, NULL,
                               &c->error));
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_REFUSED,
        truce_update(c->store, "a", J("{'_id': 1}"), J("{'m': 1}"), NULL, NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_update(c->store, "a", J("{'_id': 3}"), J("{'$set': {'n': 11}}"),
                               WRITE_OPTIONS(.upsert = true), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_find_and_modify(c->store, "a", J("{'_id': 1}"), J("{'$inc': {'n': 20}}"),
                                        NULL, &found, &result, &c->error));
    bson_destroy(&found);
    CHECK_HOLDS("a", "[{'_id': 1, 'n': 1}]");
    CHECK_DONE(truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'n': 9}}"), NULL, NULL,
                            &c->error));
    CHECK_DONE(truce_insert(c->store, "a", J("{'_id': 2, 'n': 2}"), NULL, &c->error));
    CHECK_DONE(truce_insert(c->store, "b", J("{'_id': 2, 'n': 20}"), NULL, &c->error));
    CHECK_HOLDS("a", "[{'_id': 1, 'n': 9}, {'_id': 2, 'n': 2}]");
}

CONTRACT(one_refusal_of_a_validator_ends_an_atomic_bulk_with_nothing_done)
{
    truce_write writes[2] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "b", .document = J("{'_id': 1}")},
        {.kind = TRUCE_WRITE_INSERT, .collection = "a", .document = J("{'_id': 1, 'n': 'x'}")}};
    truce_write_outcome outcomes[2];

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    CHECK_DONE(truce_collection_create(c->store, "a", &c->error));
    CHECK_DONE(truce_collection_create(c->store, "b", &c->error));
    validate(c, "{'n': {'$type': 'number'}}");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_bulk(c->store, writes, 2, &(truce_bulk_options){.atomic = true}, outcomes,
                             &c->error));
    for (int i = 0; i < 2; i++)
        truce_write_result_release(&outcomes[i].result);
    CHECK_HOLDS("a", "[]");
    CHECK_HOLDS("b", "[]");
}

CONTRACT(documents_older_than_a_validator_stay_until_they_are_changed)
{
    contract_fill(c, "a", "[{'_id': 1, 'n': 'x'}, {'_id': 2, 'n': 'y'}]");
    CHECK_DONE(truce_index_create(c->store, "a", J("{'key': {'m': 1}}"), &c->error));
    validate(c, "{'n': {'$type': 'number'}}");
    CHECK_DONE(truce_index_create(c->store, "a", J("{'key': {'n': 1}}"), &c->error));
    CHECK_HOLDS("a", "[{'_id': 1, 'n': 'x'}, {'_id': 2, 'n': 'y'}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'m': 1}}"), NULL, NULL,
                               &c->error));
    CHECK_DONE(truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'n': 1}}"), NULL, NULL,
                            &c->error));
    CHECK_DONE(truce_remove(c->store, "a", J("{'_id': 2}"), NULL, NULL, &c->error));
    CHECK_DONE(truce_collection_rename(c->store, "a", "z", false, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_insert(c->store, "z", J("{'_id': 3, 'n': 'x'}"), NULL, &c->error));
    CHECK_DONE(truce_collection_validate(c->store, "z", NULL, &c->error));
    CHECK_DONE(truce_insert(c->store, "z", J("{'_id': 3, 'n': 'x'}"), NULL, &c->error));
    CHECK_HOLDS("z", "[{'_id': 1, 'n': 1}, {'_id': 3, 'n': 'x'}]");
}

CONTRACT(a_validator_is_listed_and_has_to_be_a_filter)
{
    bson_t collections;
    bson_iter_t iter, found;

    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_NAMESPACE_NOT_FOUND,
                  truce_collection_validate(c->store, "a", J("{'n': 1}"), &c->error));
    CHECK_DONE(truce_collection_create(c->store, "a", &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_collection_validate(c->store, "a", J("{'$nope': 1}"), &c->error));
    validate(c, "{'n': {'$gt': 1}}");
    CHECK_DONE(truce_collection_list(c->store, NULL, &collections, &c->error));
    CHECK(bson_iter_init(&iter, &collections) &&
          bson_iter_find_descendant(&iter, "0.validator.n.$gt", &found));
    bson_destroy(&collections);
    validate(c, "{}");
    CHECK_DONE(truce_insert(c->store, "a", J("{'_id': 1}"), NULL, &c->error));
    CHECK_DONE(truce_collection_list(c->store, NULL, &collections, &c->error));
    CHECK(bson_iter_init(&iter, &collections) &&
          !bson_iter_find_descendant(&iter, "0.validator", &found));
    bson_destroy(&collections);
}

CONTRACT(out_writes_documents_that_the_validator_of_its_collection_matches)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    contract_fill(c, "b", "[{'_id': 1, 'n': 'x'}]");
    CHECK_DONE(truce_collection_create(c->store, "a", &c->error));
    validate(c, "{'n': {'$type': 'number'}}");
    for (int round = 0; round < 2; round++) {
        status = truce_aggregate(c->store, "b",
                                 round ? J("{'0': {'$set': {'n': 1}}, '1': {'$out': 'a'}}")
                                       : J("{'0': {'$out': 'a'}}"),
                                 NULL, &cursor, &c->error);
        if (!status)
            status = truce_cursor_next(cursor, &document, &c->error);
        truce_cursor_close(cursor);
        CHECK_INT(status, ==, round ? TRUCE_OK : TRUCE_INVALID);
        cursor = NULL;
    }
    CHECK_HOLDS("a", "[{'_id': 1, 'n': 1}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_insert(c->store, "a", J("{'_id': 3, 'n': 'x'}"), NULL, &c->error));
}
