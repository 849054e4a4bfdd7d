#ifndef TRUCE_TESTS_SUPPORT_UPDATES_H
#define TRUCE_TESTS_SUPPORT_UPDATES_H

/*
 * One update of one document, from Extended JSON (with ' for "), for tests.
 *
 *     struct updated updated = {.update = "{'$set': {'a': 1}}", .before = "{'_id': 1}"};
 *
 *     CHECK_UPDATE("{'_id': 1, 'a': 1}", &updated);
 *     CHECK_INT(updated.result.modified, ==, true);
 */
#include "query/update/update.h"

struct updated {
    const char *update;
    /* The document before the update as JSON. If it and `before_document` are NULL, the update is
     * an upsert. */
    const char *before;
    /* If they are not NULL, they replace `update` and `before`. */
    const bson_t *update_document, *before_document;
    /* The query of an upsert, or to find the positional element. May be NULL. */
    const char *query;
    /* The array filters as a JSON array, or NULL. */
    const char *filters;
    bool pipeline, multi;
    /* The results of updated_run. */
    struct update_result result;
    /* 0 means no error. */
    uint32_t code;
    char message[512];
};

/* Returns the document afterwards, or NULL with the error's code in `code`; the caller destroys
 * it. Applies the compiled update twice and checks that both results are equal. */
bson_t *updated_run(struct updated *updated);

bool updated_check(const char *expected, struct updated *updated, const char *file, int line);
bool updated_check_code(uint32_t expected, struct updated *updated, const char *file, int line);

#define CHECK_UPDATE(expected, updated)  updated_check(expected, updated, __FILE__, __LINE__)
#define CHECK_UPDATE_CODE(code, updated) updated_check_code(code, updated, __FILE__, __LINE__)

/* Returns {key: {a: {a: ... {}}}}: `depth` containers below the outer document; the caller
 * destroys it. */
bson_t *nested_document(const char *key, int depth);

#endif
