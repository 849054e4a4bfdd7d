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
    const char *before;                              /* NULL: an upsert */
    const bson_t *update_document, *before_document; /* instead of the text, if not NULL */
    const char *query;   /* NULL: none; of an upsert, or to find the positional element */
    const char *filters; /* NULL: no array filters; "[...]" */
    bool pipeline, multi;
    struct update_result result; /* filled in, as is what follows */
    uint32_t code;               /* 0: no error */
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
