#ifndef TRUCE_TESTS_SUPPORT_CONTRACT_H
#define TRUCE_TESTS_SUPPORT_CONTRACT_H

/*
 * The contract of every store (truce/store.h), as one suite: tests/contract/NAME.c names the store
 * and the suite is its program:
 *
 *     CONTRACT_SUITE(open)   // truce_store *open(void)
 *
 * Each case gets an empty store of its own. Cases that need a capability are skipped if the store
 * lacks it.
 */
#include "tests/support/test.h"
#include "truce/sys/store.h"

struct contract {
    truce_store *store;
    bson_error_t error;
    /* The documents of contract_json, which are destroyed at the end of the case. */
    bson_t **kept;
    size_t kept_count;
};

/* Opens the store under test, which is empty. If it returns NULL, the program ends. */
extern truce_store *(*const contract_open)(void);

/* Parses Extended JSON, in which ' may replace ". The result is valid until the case ends. */
const bson_t *contract_json(struct contract *c, const char *json);
#define J(json) contract_json(c, json)

/* Returns whether the store has the capability. If not, skips the case. */
bool contract_needs(struct contract *c, uint32_t capability);

/* Inserts each document of the array. If an insert fails, the case fails. */
void contract_fill(struct contract *c, const char *collection, const char *documents);

#define OPTIONS(...)       (&(truce_find_options){__VA_ARGS__})
#define COUNT_OPTIONS(...) (&(truce_count_options){__VA_ARGS__})
#define WRITE_OPTIONS(...) (&(truce_write_options){__VA_ARGS__})

/* Checks that a find returns the documents of the array, in this order. */
bool contract_finds(struct contract *c, const char *collection, const char *filter,
                    const truce_find_options *options, const char *expected, int line);
#define CHECK_FINDS(collection, filter, options, expected)                                         \
    contract_finds(c, collection, filter, options, expected, __LINE__)

/* Checks the whole collection by _id. */
#define CHECK_HOLDS(collection, expected)                                                          \
    contract_finds(c, collection, "{}", OPTIONS(.sort = J("{'_id': 1}")), expected, __LINE__)

/* Checks that the call was refused with this status and MongoDB code (0: the code does not
 * matter). */
bool contract_refused(struct contract *c, truce_status status, truce_status expected, uint32_t code,
                      const char *call, int line);
#define CHECK_REFUSED(expected, code, call)                                                        \
    contract_refused(c, call, expected, code, #call, __LINE__)
#define CHECK_DONE(call) CHECK_STATUS(TRUCE_OK, call, c->error)

void contract_run(void (*run)(struct contract *c));

#define CONTRACT(name)                                                                             \
    static void contract_##name(struct contract *c);                                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        contract_run(contract_##name);                                                             \
    }                                                                                              \
    static void contract_##name(struct contract *c)

/* A variable of each file of cases: a reference to it makes the linker include the file. */
extern const int contract_read_cases, contract_write_cases, contract_bulk_cases,
    contract_index_cases, contract_collection_cases, contract_modify_cases, contract_hostile_cases,
    contract_thread_cases, contract_aggregate_cases, contract_rewrite_cases,
    contract_snapshot_cases, contract_validated_cases, contract_receipt_cases, contract_span_cases;

#define CONTRACT_SUITE(open)                                                                       \
    truce_store *(*const contract_open)(void) = open;                                              \
    const int *const contract_cases[] = {                                                          \
        &contract_read_cases,       &contract_write_cases,    &contract_bulk_cases,                \
        &contract_index_cases,      &contract_modify_cases,   &contract_hostile_cases,             \
        &contract_collection_cases, &contract_thread_cases,   &contract_aggregate_cases,           \
        &contract_rewrite_cases,    &contract_snapshot_cases, &contract_validated_cases,           \
        &contract_receipt_cases,    &contract_span_cases,                                          \
    };

#endif
