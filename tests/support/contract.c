/* The fixture and the checks of the contract suite. */
#include "tests/support/contract.h"

#include <stdlib.h>

const bson_t *contract_json(struct contract *c, const char *json)
{
    c->kept = bson_realloc(c->kept, (c->kept_count + 1) * sizeof(bson_t *));
    c->kept[c->kept_count++] = test_bson(json);
    return c->kept[c->kept_count - 1];
}

bool contract_needs(struct contract *c, uint32_t capability)
{
    if ((c->store->capabilities & capability) == capability)
        return true;
    test_skip("the store cannot do this");
    return false;
}

void contract_fill(struct contract *c, const char *collection, const char *documents)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, J(documents)); bson_iter_next(&iter);) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t document;

        bson_iter_document(&iter, &size, &bytes);
        bson_init_static(&document, bytes, size);
        CHECK_DONE(truce_insert(c->store, collection, &document, NULL, &c->error));
    }
}

bool contract_finds(struct contract *c, const char *collection, const char *filter,
                    const truce_find_options *options, const char *expected, int line)
{
    bson_t found = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    char buffer[16];
    const char *key;
    uint32_t count = 0;
    truce_status status =
        truce_find(c->store, collection, filter ? J(filter) : NULL, options, &cursor, &c->error);
    bool same;

    while (!status) {
        status = truce_cursor_next(cursor, &document, &c->error);
        if (status || !document)
            break;
        bson_uint32_to_string(count++, &key, buffer, sizeof(buffer));
        BSON_APPEND_DOCUMENT(&found, key, document);
    }
    truce_cursor_close(cursor);
    same = test_check_status(TRUCE_OK, status, &c->error, "find", __FILE__, line) &&
           test_bson_equal(J(expected), &found, __FILE__, line);
    bson_destroy(&found);
    return same;
}

bool contract_refused(struct contract *c, truce_status status, truce_status expected, uint32_t code,
                      const char *call, int line)
{
    if (!test_check_status(expected, status, &c->error, call, __FILE__, line))
        return false;
    if (code && (c->error.domain != TRUCE_ERROR_SERVER || c->error.code != code))
        return test_fail(__FILE__, line, "%s: code %u, not %u (%s)", call, c->error.code, code,
                         c->error.message);
    if (!c->error.message[0] || c->error.message[strlen(c->error.message) - 1] == '.')
        return test_fail(__FILE__, line, "%s: no sentence without full stop: \"%s\"", call,
                         c->error.message);
    return true;
}

void contract_run(void (*run)(struct contract *c))
{
    struct contract c = {.store = contract_open()};

    if (!c.store)
        abort();
    run(&c);
    for (size_t i = 0; i < c.kept_count; i++)
        bson_destroy(c.kept[i]);
    bson_free(c.kept);
    truce_store_close(c.store);
}
