/* The contract: malformed input. No part of it is stored, nothing crashes. */
#include "tests/support/contract.h"

#include "base/limits.h"
#include "base/random.h"
#include "base/status.h"

const int contract_hostile_cases = 1;

/* Passes the document to every call that takes one, and checks that each of them refuses it. */
static void check_refused_everywhere(struct contract *c, const bson_t *bad)
{
    truce_cursor *cursor = NULL;
    bson_t document;
    int64_t count;

    CHECK(truce_insert(c->store, "things", bad, NULL, &c->error) != TRUCE_OK);
    CHECK(truce_find(c->store, "things", bad, NULL, &cursor, &c->error) != TRUCE_OK);
    CHECK(truce_find(c->store, "things", NULL, OPTIONS(.sort = bad), &cursor, &c->error) !=
          TRUCE_OK);
    CHECK(truce_find(c->store, "things", NULL, OPTIONS(.projection = bad), &cursor, &c->error) !=
          TRUCE_OK);
    CHECK(truce_find(c->store, "things", NULL, OPTIONS(.hint = bad), &cursor, &c->error) !=
          TRUCE_OK);
    CHECK(cursor == NULL);
    CHECK(truce_count(c->store, "things", bad, NULL, &count, &c->error) != TRUCE_OK);
    CHECK(truce_update(c->store, "things", bad, J("{'$set': {'a': 1}}"), NULL, NULL, &c->error) !=
          TRUCE_OK);
    CHECK(truce_update(c->store, "things", J("{}"), bad, NULL, NULL, &c->error) != TRUCE_OK);
    CHECK(truce_update(c->store, "things", J("{}"), bad, WRITE_OPTIONS(.pipeline = true), NULL,
                       &c->error) != TRUCE_OK);
    CHECK(truce_update(c->store, "things", J("{}"), J("{'$set': {'a.$[x]': 1}}"),
                       WRITE_OPTIONS(.array_filters = bad), NULL, &c->error) != TRUCE_OK);
    CHECK(truce_remove(c->store, "things", bad, NULL, NULL, &c->error) != TRUCE_OK);
    CHECK(truce_aggregate(c->store, "things", bad, NULL, &cursor, &c->error) != TRUCE_OK);
    CHECK(truce_index_create(c->store, "things", bad, &c->error) != TRUCE_OK);
    CHECK(truce_find_and_modify(c->store, "things", bad, NULL,
                                &(truce_modify_options){.remove = true}, &document, NULL,
                                &c->error) != TRUCE_OK);
    bson_destroy(&document);
    CHECK(truce_distinct(c->store, "things", "a", bad, &document, &c->error) != TRUCE_OK);
    bson_destroy(&document);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}]");
}

CONTRACT(malformed_bson_is_refused_by_every_call)
{
    static const struct {
        const char *bytes;
        uint32_t size;
    } bad[] = {
        {"\x05\0\0\0\1", 5},   /* The document does not end. */
        {"\x06\0\0\0\0\0", 6}, /* The document ends before its size. */
        {"\x0c\0\0\0\x10"
         "a\0\1\0\0\0",
         11}, /* The size is larger than the document. */
        {"\x08\0\0\0\x0a"
         "ab",
         8}, /* A name has no NUL. */
        {"\x0f\0\0\0\x02"
         "a\0\x40\0\0\0x\0\0",
         15}, /* A string ends after the document. */
        {"\x0e\0\0\0\x02"
         "a\0\0\0\0\0\0\0",
         14}, /* A string has no NUL. */
        {"\x0f\0\0\0\x02"
         "a\0\2\0\0\0\xff\0\0",
         15}, /* A string is not UTF-8. */
        {"\x09\0\0\0\x08"
         "a\0\2\0",
         9}, /* A boolean is neither true nor false. */
        {"\x08\0\0\0\x77"
         "a\0\0",
         8}, /* The type does not exist. */
        {"\x0d\0\0\0\x03"
         "a\0\6\0\0\0\0\0",
         13}, /* An inner document is too long. */
        {"\x10\0\0\0\x05"
         "a\0\xff\xff\xff\xff\0\0\0",
         15}, /* A string has a negative length. */
    };

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bson_t document;

        if (!bson_init_static(&document, (const uint8_t *)bad[i].bytes, bad[i].size))
            continue;
        check_refused_everywhere(c, &document);
    }
}

/* Appends {a: {a: {a: ... 1}}} with `depth` nested documents. */
static void append_nested(bson_t *parent, int depth)
{
    bson_t child;

    if (depth == 0) {
        BSON_APPEND_INT32(parent, "a", 1);
        return;
    }
    BSON_APPEND_DOCUMENT_BEGIN(parent, "a", &child);
    append_nested(&child, depth - 1);
    bson_append_document_end(parent, &child);
}

CONTRACT(documents_nest_to_the_limit_and_no_deeper)
{
    bson_t deep = BSON_INITIALIZER;
    int64_t count = 0;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    append_nested(&deep, TRUCE_DOCUMENT_DEPTH_MAX * 3);
    check_refused_everywhere(c, &deep);
    bson_reinit(&deep);
    append_nested(&deep, TRUCE_DOCUMENT_DEPTH_MAX - 10);
    CHECK_DONE(truce_insert(c->store, "deep", &deep, NULL, &c->error));
    CHECK_DONE(truce_count(c->store, "deep", &deep, NULL, &count, &c->error));
    CHECK_INT(count, ==, 1);
    bson_destroy(&deep);
}

CONTRACT(an_update_cannot_nest_a_document_beyond_the_limit)
{
    bson_t deep = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    bson_t found;
    int64_t count = 0;

    contract_fill(c, "things", "[{'_id': 1}]");
    append_nested(&deep, TRUCE_DOCUMENT_DEPTH_MAX - 20);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_DOCUMENT(&set, "b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.a.b.c", &deep);
    bson_append_document_end(&update, &set);
    CHECK(truce_update(c->store, "things", J("{}"), &update, NULL, NULL, &c->error) != TRUCE_OK);
    CHECK_HOLDS("things", "[{'_id': 1}]");
    CHECK_DONE(truce_count(c->store, "things", NULL, NULL, &count, &c->error));
    CHECK_DONE(truce_find_one(c->store, "things", NULL, NULL, &found, &c->error));
    bson_destroy(&found);
    bson_destroy(&deep);
    bson_destroy(&update);
}

CONTRACT(a_pattern_that_would_take_for_ever_ends)
{
    bson_t document = BSON_INITIALIZER, filter = BSON_INITIALIZER;
    truce_status status;
    int64_t count;
    char text[3001];

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    BSON_APPEND_UTF8(&document, "t", text);
    CHECK_DONE(truce_insert(c->store, "things", &document, NULL, &c->error));
    BSON_APPEND_REGEX(&filter, "t", "^(a+)+(a+)+(a+)+$b", "");
    status = truce_count(c->store, "things", &filter, NULL, &count, &c->error);
    CHECK(status == TRUCE_OK || c->error.message[0]);
    bson_destroy(&document);
    bson_destroy(&filter);
}

CONTRACT(bytes_turned_at_random_never_crash_a_store)
{
    const bson_t *seed = J("{'_id': 7, 'a': [1, 'two', {'b': null}], 'd': {'$date': 0},"
                           " '$and': [{'a': {'$gt': 1, '$in': [2, 'x']}}], '$set': {'q': 1.5}}");
    struct random random;
    int rounds = (int)test_scale("TRUCE_HOSTILE_ROUNDS", 3000);

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < rounds; i++) {
        uint8_t bytes[512];
        truce_cursor *cursor = NULL;
        const bson_t *found = NULL;
        truce_status status;
        bson_t bad;

        memcpy(bytes, bson_get_data(seed), seed->len);
        for (int j = 0; j <= (int)truce__random_below(&random, 3); j++)
            bytes[4 + truce__random_below(&random, seed->len - 5)] =
                (uint8_t)truce__random_next(&random);
        if (!bson_init_static(&bad, bytes, seed->len))
            continue;
        status = truce_insert(c->store, "turned", &bad, WRITE_OPTIONS(.relaxed = true), &c->error);
        CHECK(!status || c->error.message[0]);
        status = truce_update(c->store, "turned", J("{}"), &bad, WRITE_OPTIONS(.relaxed = true),
                              NULL, &c->error);
        CHECK(!status || c->error.message[0]);
        status = truce_find(c->store, "turned", &bad, OPTIONS(.limit = 3), &cursor, &c->error);
        while (!status) {
            status = truce_cursor_next(cursor, &found, &c->error);
            if (!found)
                break;
        }
        truce_cursor_close(cursor);
        if (i % 100 == 0)
            CHECK_DONE(truce_remove(c->store, "turned", J("{}"), WRITE_OPTIONS(.multi = true), NULL,
                                    &c->error));
    }
}
