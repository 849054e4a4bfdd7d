#ifndef TRUCE_TESTS_SUPPORT_BANK_H
#define TRUCE_TESTS_SUPPORT_BANK_H

/* Helpers of the tests of commits: ids, documents, every store with every mechanism. */
#include "tests/support/server.h"
#include "tests/support/test.h"
#include "truce/sys/store.h"
#include "truce/truce.h"

/* A BSON value that borrows `text`. */
static inline bson_value_t text_id(const char *text)
{
    bson_value_t id = {.value_type = BSON_TYPE_UTF8};

    id.value.v_utf8.str = (char *)text;
    id.value.v_utf8.len = (uint32_t)strlen(text);
    return id;
}

struct setting {
    /* The name for messages, and the URI of the store; "file:" gets a new path. */
    const char *name, *uri;
    truce_mechanism mechanism;
    /* The capabilities that are removed from the store. */
    uint32_t lacks;
};

/* tests/servers/ compiles the same suites with TEST_ON_SERVER. */
static const struct setting settings[] = {
#ifdef TEST_ON_SERVER
    {"server, native", "server:", TRUCE_MECHANISM_NATIVE},
    {"server, journal", "server:", TRUCE_MECHANISM_JOURNAL},
#else
    {"memory, native", "memory:", TRUCE_MECHANISM_NATIVE},
    {"memory, journal", "memory:", TRUCE_MECHANISM_JOURNAL},
    {"memory, native, compared by value", "memory:", TRUCE_MECHANISM_NATIVE, TRUCE_CAN_COMPARE},
    {"file, native", "file:", TRUCE_MECHANISM_NATIVE},
    {"file, journal", "file:", TRUCE_MECHANISM_JOURNAL},
#endif
};

static inline truce_store *open_setting(const struct setting *setting)
{
    truce_store *store = NULL;
    bson_error_t error = {0};
    char uri[400];

    if (!strcmp(setting->uri, "server:"))
        return server_store();
    if (!strcmp(setting->uri, "file:"))
        snprintf(uri, sizeof uri, "file:%s/bank.truce", test_directory());
    else
        snprintf(uri, sizeof uri, "%s", setting->uri);
    CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
    if (store)
        store->capabilities &= ~setting->lacks;
    return store;
}

typedef void setting_function(truce_store *store, const struct setting *setting);

/* Runs the test on a fresh store of each setting, and names those in which it failed. */
static inline void on_every_setting(setting_function *function)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int before = test_failures();
        truce_store *store = open_setting(&settings[i]);

        if (store)
            function(store, &settings[i]);
        truce_store_close(store);
        if (test_failures() > before)
            fprintf(stderr, "    (with %s)\n", settings[i].name);
    }
}

/* Runs the test as on_every_setting does, but only on stores that support the mechanism of the
 * setting. */
static inline void rig_everywhere(setting_function *function)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int before = test_failures();
        truce_store *store = open_setting(&settings[i]);

        if (store && (settings[i].mechanism != TRUCE_MECHANISM_NATIVE ||
                      store->capabilities & TRUCE_CAN_ATOMIC_BULK))
            function(store, &settings[i]);
        truce_store_close(store);
        if (test_failures() > before)
            fprintf(stderr, "    (with %s)\n", settings[i].name);
    }
}

static inline void insert_json(truce_store *store, const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error = {0};

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

/* Counts the documents that match. If the count fails, fails the test and returns -1. */
static inline int64_t count_json(truce_store *store, const char *collection, const char *json)
{
    bson_t *filter = test_bson(json);
    bson_error_t error = {0};
    int64_t found = -1;

    CHECK_OK(truce_count(store, collection, filter, NULL, &found, &error), error);
    bson_destroy(filter);
    return found;
}

/* Checks that the document without truce's own fields equals `json`. If `json` is NULL, the
 * document must not exist. */
static inline void check_document(truce_store *store, const char *collection, const char *id,
                                  const char *json, const char *file, int line)
{
    bson_value_t value = text_id(id);
    bson_t filter = BSON_INITIALIZER, found, plain = BSON_INITIALIZER;
    bson_error_t error = {0};
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", &value);
    status = truce_find_one(store, collection, &filter, NULL, &found, &error);
    if (!json && status != TRUCE_NOT_FOUND) {
        test_fail(file, line, "%s of %s exists", id, collection);
    } else if (json) {
        bson_t *wanted = test_bson(json);

        bson_copy_to_excluding_noinit(&found, &plain, "_rev", NULL);
        test_bson_equal(wanted, &plain, file, line);
        bson_destroy(wanted);
    }
    bson_destroy(&plain);
    bson_destroy(&found);
    bson_destroy(&filter);
}

#define CHECK_DOCUMENT(store, collection, id, json)                                                \
    check_document(store, collection, id, json, __FILE__, __LINE__)

/* Adds one blind update to a commit. */
static inline truce_status add_update(truce_commit *commit, const char *collection, const char *id,
                                      const char *guard, const char *update, bson_error_t *error)
{
    bson_value_t value = text_id(id);
    bson_t *change = test_bson(update), *filter = guard ? test_bson(guard) : NULL;
    truce_status status = truce_commit_update(commit, collection, &value, filter, change, error);

    bson_destroy(change);
    bson_destroy(filter);
    return status;
}

#endif
