/* The contract: bulks, ordered, unordered and atomic. */
#include "tests/support/contract.h"

#include "base/limits.h"
#include "base/status.h"

const int contract_bulk_cases = 1;

#define INSERT(json)                                                                               \
    {                                                                                              \
        .kind = TRUCE_WRITE_INSERT, .collection = "things", .document = J(json)                    \
    }
#define UPDATE(query, json)                                                                        \
    {                                                                                              \
        .kind = TRUCE_WRITE_UPDATE, .collection = "things", .filter = J(query),                    \
        .document = J(json)                                                                        \
    }
#define REMOVE(query)                                                                              \
    {                                                                                              \
        .kind = TRUCE_WRITE_REMOVE, .collection = "things", .filter = J(query)                     \
    }
#define REQUIRE_ONE(query)                                                                         \
    {                                                                                              \
        .kind = TRUCE_WRITE_REQUIRE, .collection = "things", .filter = J(query)                    \
    }
#define LOOK_AT(query)                                                                             \
    {                                                                                              \
        .kind = TRUCE_WRITE_REQUIRE_IN_SNAPSHOT, .collection = "things", .filter = J(query)        \
    }
#define REQUIRE_NONE(query)                                                                        \
    {                                                                                              \
        .kind = TRUCE_WRITE_REQUIRE_MISSING, .collection = "things", .filter = J(query)            \
    }
#define COUNT(writes) (sizeof(writes) / sizeof((writes)[0]))

static void release(truce_write_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        truce_write_result_release(&outcomes[i].result);
}

CONTRACT(a_bulk_does_its_writes_in_order)
{
    truce_write writes[] = {
        INSERT("{'_id': 1, 'a': 1}"),
        UPDATE("{'_id': 1}", "{'$inc': {'a': 1}}"),
        INSERT("{'_id': 2, 'a': 5}"),
        REMOVE("{'a': 5}"),
        UPDATE("{'_id': 9}", "{'$set': {'a': 1}}"),
    };
    truce_write_outcome outcomes[COUNT(writes)];

    CHECK_DONE(truce_bulk(c->store, writes, COUNT(writes), NULL, outcomes, &c->error));
    for (size_t i = 0; i < COUNT(writes); i++)
        CHECK_INT(outcomes[i].status, ==, TRUCE_OK);
    CHECK_INT(outcomes[0].result.inserted, ==, 1);
    CHECK_INT(outcomes[1].result.modified, ==, 1);
    CHECK_INT(outcomes[3].result.removed, ==, 1);
    CHECK_INT(outcomes[4].result.matched, ==, 0);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}]");
    release(outcomes, COUNT(writes));
}

/* A server reports how many writes of such a message changed a document; other stores report it
 * for each. */
CONTRACT(a_joined_bulk_reports_matches_for_all_writes_or_for_no_write)
{
    truce_write all[] = {
        UPDATE("{'_id': 1}", "{'$inc': {'a': 1}}"),
        UPDATE("{'_id': 2, 'a': 5}", "{'$inc': {'a': 1}}"),
        REMOVE("{'_id': 3}"),
        REMOVE("{'_id': 4}"),
        INSERT("{'_id': 5}"),
        INSERT("{'_id': 6}"),
    };
    truce_write some[] = {
        UPDATE("{'_id': 1}", "{'$inc': {'a': 1}}"),
        UPDATE("{'_id': 2}", "{'$inc': {'a': 1}}"),
        UPDATE("{'_id': 9}", "{'$inc': {'a': 1}}"),
        REMOVE("{'_id': 5}"),
        REMOVE("{'_id': 9}"),
    };
    truce_bulk_options joined = {.joined = true};
    truce_write_outcome outcomes[COUNT(all)];
    int64_t changed = 0;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 5}, {'_id': 3}, {'_id': 4}]");
    CHECK_DONE(truce_bulk(c->store, all, COUNT(all), &joined, outcomes, &c->error));
    for (size_t i = 0; i < COUNT(all); i++) {
        CHECK_INT(outcomes[i].status, ==, TRUCE_OK);
        changed += outcomes[i].result.matched + outcomes[i].result.inserted;
    }
    CHECK_INT(changed, ==, COUNT(all));
    CHECK_INT(outcomes[3].result.removed, ==, 1);
    CHECK_DONE(truce_bulk(c->store, some, COUNT(some), &joined, outcomes, &c->error));
    changed = 0;
    for (size_t i = 0; i < COUNT(some); i++)
        changed += outcomes[i].result.matched;
    CHECK_INT(changed, <, COUNT(some));
    CHECK_INT(outcomes[2].result.matched + outcomes[4].result.matched, ==, 0);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 3}, {'_id': 2, 'a': 7}, {'_id': 6}]");
}

CONTRACT(a_joined_bulk_ends_at_the_first_failure)
{
    truce_write writes[] = {
        UPDATE("{'_id': 1}", "{'$inc': {'a': 1}}"),
        UPDATE("{'_id': 2}", "{'$inc': {'t': 1}}"),
        UPDATE("{'_id': 1}", "{'$inc': {'a': 10}}"),
        INSERT("{'_id': 3}"),
    };
    truce_bulk_options joined = {.joined = true};
    truce_write_outcome outcomes[COUNT(writes)];

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 't': 'text'}]");
    CHECK_INT(truce_bulk(c->store, writes, COUNT(writes), &joined, outcomes, &c->error), ==,
              TRUCE_INVALID);
    CHECK_INT(outcomes[1].status, ==, TRUCE_INVALID);
    CHECK_INT(outcomes[3].status, ==, TRUCE_NOT_FOUND);
    release(outcomes, COUNT(writes));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}, {'_id': 2, 't': 'text'}]");
}

CONTRACT(a_bulk_goes_over_several_collections)
{
    truce_write writes[] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "one", .document = J("{'_id': 1}")},
        {.kind = TRUCE_WRITE_INSERT, .collection = "two", .document = J("{'_id': 1}")},
    };
    truce_write_outcome outcomes[2];

    CHECK_DONE(truce_bulk(c->store, writes, 2, NULL, outcomes, &c->error));
    CHECK_HOLDS("one", "[{'_id': 1}]");
    CHECK_HOLDS("two", "[{'_id': 1}]");
}

CONTRACT(an_empty_bulk_is_done)
{
    CHECK_DONE(truce_bulk(c->store, NULL, 0, NULL, NULL, &c->error));
}

CONTRACT(an_ordered_bulk_stops_at_the_first_failure)
{
    truce_write writes[] = {INSERT("{'_id': 1}"), INSERT("{'_id': 1}"), INSERT("{'_id': 2}")};
    truce_write_outcome outcomes[3];

    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_bulk(c->store, writes, 3, NULL, outcomes, &c->error));
    CHECK_INT(outcomes[0].status, ==, TRUCE_OK);
    CHECK_INT(outcomes[1].status, ==, TRUCE_DUPLICATE);
    CHECK(outcomes[1].error.message[0]);
    CHECK_INT(outcomes[2].status, ==, TRUCE_NOT_FOUND);
    CHECK(!outcomes[2].error.message[0]);
    CHECK_HOLDS("things", "[{'_id': 1}]");
}

CONTRACT(an_unordered_bulk_goes_on_after_failures)
{
    truce_write writes[] = {
        INSERT("{'_id': 1}"),   INSERT("{'_id': 1}"),
        INSERT("{'_id': [1]}"), UPDATE("{'_id': 1}", "{'$nope': {'a': 1}}"),
        INSERT("{'_id': 2}"),
    };
    truce_write_outcome outcomes[5];

    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_bulk(c->store, writes, 5, &(truce_bulk_options){.unordered = true},
                             outcomes, &c->error));
    CHECK_INT(outcomes[0].status, ==, TRUCE_OK);
    CHECK_INT(outcomes[1].status, ==, TRUCE_DUPLICATE);
    CHECK_INT(outcomes[2].status, ==, TRUCE_INVALID);
    CHECK_INT(outcomes[2].error.code, ==, CODE_INVALID_ID_FIELD);
    CHECK_INT(outcomes[3].status, ==, TRUCE_INVALID);
    CHECK_INT(outcomes[4].status, ==, TRUCE_OK);
    CHECK_HOLDS("things", "[{'_id': 1}, {'_id': 2}]");
}

CONTRACT(an_ordered_bulk_executes_the_writes_before_a_wrong_one)
{
    truce_write writes[] = {INSERT("{'_id': 1}"), INSERT("{'_id': [1]}"), INSERT("{'_id': 2}")};
    truce_write_outcome outcomes[3];

    CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_ID_FIELD,
                  truce_bulk(c->store, writes, 3, NULL, outcomes, &c->error));
    CHECK_INT(outcomes[0].status, ==, TRUCE_OK);
    CHECK_INT(outcomes[2].status, ==, TRUCE_NOT_FOUND);
    CHECK_HOLDS("things", "[{'_id': 1}]");
}

CONTRACT(a_wrong_write_behind_one_that_fails_was_not_reached)
{
    truce_write writes[] = {INSERT("{'_id': 1}"), INSERT("{'_id': 1}"), INSERT("{'_id': [1]}")};
    truce_write_outcome outcomes[3];

    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_bulk(c->store, writes, 3, NULL, outcomes, &c->error));
    CHECK_INT(outcomes[1].status, ==, TRUCE_DUPLICATE);
    CHECK_INT(outcomes[2].status, ==, TRUCE_NOT_FOUND);
    CHECK(!outcomes[2].error.message[0]);
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_bulk(c->store, writes, 3, &(truce_bulk_options){.unordered = true},
                             outcomes, &c->error));
    CHECK_INT(outcomes[2].status, ==, TRUCE_INVALID);
}

CONTRACT(a_bulk_reports_the_documents_of_its_upserts)
{
    truce_write writes[] = {UPDATE("{'_id': 'x'}", "{'$set': {'a': 1}}"),
                            UPDATE("{'_id': 'x'}", "{'$set': {'a': 2}}")};
    truce_write_outcome outcomes[2];

    writes[0].options.upsert = writes[1].options.upsert = true;
    CHECK_DONE(truce_bulk(c->store, writes, 2, NULL, outcomes, &c->error));
    CHECK(outcomes[0].result.upserted && !outcomes[1].result.upserted);
    CHECK_INT(outcomes[1].result.modified, ==, 1);
    CHECK_HOLDS("things", "[{'_id': 'x', 'a': 2}]");
    release(outcomes, 2);
}

/* ---- atomic --------------------------------------------------------------------------------- */

static const truce_bulk_options atomic = {.atomic = true};

CONTRACT(an_atomic_bulk_does_all)
{
    truce_write writes[] = {
        REQUIRE_ONE("{'_id': 1, 'a': 1}"),
        LOOK_AT("{'_id': 3, 'a': {'$exists': false}}"),
        REQUIRE_NONE("{'_id': 2}"),
        UPDATE("{'_id': 1}", "{'$set': {'a': 2}}"),
        INSERT("{'_id': 2}"),
        {.kind = TRUCE_WRITE_INSERT, .collection = "fresh", .document = J("{'_id': 1}")},
        REMOVE("{'_id': 3}"),
    };
    truce_write_outcome outcomes[COUNT(writes)];

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 3}]");
    CHECK_DONE(truce_bulk(c->store, writes, COUNT(writes), &atomic, outcomes, &c->error));
    CHECK_INT(outcomes[6].result.removed, ==, 1);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}, {'_id': 2}]");
    CHECK_HOLDS("fresh", "[{'_id': 1}]");
}

/* Runs the writes atomically and checks that number `failing` is refused and nothing is changed. */
static void check_all_undone(struct contract *c, const truce_write *writes, size_t count,
                             size_t failing, truce_status expected)
{
    truce_write_outcome outcomes[16];

    CHECK_STATUS(expected, truce_bulk(c->store, writes, count, &atomic, outcomes, &c->error),
                 c->error);
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(outcomes[i].status, ==, i == failing ? expected : TRUCE_CONFLICT);
        CHECK(!outcomes[i].error.message[0] == (i != failing));
        CHECK(!outcomes[i].result.upserted && outcomes[i].result.inserted == 0);
    }
    release(outcomes, count);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}, {'_id': 3}]");
    CHECK_HOLDS("fresh", "[]");
}

CONTRACT(an_atomic_bulk_that_fails_does_nothing)
{
    truce_write insert = INSERT("{'_id': 7}"), upsert = UPDATE("{'_id': 8}", "{'$set': {'a': 1}}");
    truce_write update = UPDATE("{'_id': 1}", "{'$set': {'a': 2}}"), remove = REMOVE("{'_id': 3}");
    truce_write fresh = {
        .kind = TRUCE_WRITE_INSERT, .collection = "fresh", .document = J("{'_id': 1}")};
    truce_write failing[] = {
        REQUIRE_ONE("{'_id': 1, 'a': 5}"),
        LOOK_AT("{'_id': 1, 'a': 5}"),
        LOOK_AT("{'_id': 9}"),
        REQUIRE_NONE("{'_id': 1}"),
        UPDATE("{'_id': 5}", "{'$set': {'a': 1}}"),
        REMOVE("{'_id': 5}"),
    };
    truce_write duplicate = INSERT("{'_id': 1}");
    truce_write invalid = UPDATE("{'_id': 1}", "{'$set': {'_id': 2}}");

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 3}]");
    upsert.options.upsert = true;
    for (size_t i = 0; i < COUNT(failing); i++) {
        truce_write writes[] = {insert, upsert, update, fresh, remove, failing[i], insert};

        check_all_undone(c, writes, 7, 5, TRUCE_CONFLICT);
    }
    check_all_undone(c, (truce_write[]){insert, remove, duplicate}, 3, 2, TRUCE_DUPLICATE);
    check_all_undone(c, (truce_write[]){remove, fresh, invalid}, 3, 2, TRUCE_INVALID);
    check_all_undone(c, (truce_write[]){insert, insert}, 2, 1, TRUCE_DUPLICATE);
}

/* A store may execute neighboring writes in one step. It must still report which of them matched
 * nothing. */
CONTRACT(neighbours_in_an_atomic_bulk_are_distinguished)
{
    truce_write writes[] = {UPDATE("{'_id': 1}", "{'$inc': {'a': 1}}"),
                            UPDATE("{'_id': 1, 'a': 2}", "{'$inc': {'a': 1}}"),
                            REQUIRE_ONE("{'_id': 1, 'a': 3}"),
                            UPDATE("{'_id': 3}", "{'$unset': {'b': ''}}"),
                            REMOVE("{'_id': 1}"),
                            REMOVE("{'_id': 3}")};
    truce_write_outcome outcomes[COUNT(writes)];

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 3}]");
    for (size_t i = 0; i < 4; i++) {
        truce_write kept = writes[i];

        writes[i].filter = J("{'_id': 1, 'a': 7}");
        check_all_undone(c, writes, COUNT(writes), i, TRUCE_CONFLICT);
        writes[i] = kept;
    }
    writes[5].filter = J("{'_id': 4}");
    check_all_undone(c, writes, COUNT(writes), 5, TRUCE_CONFLICT);
    writes[5].filter = J("{'_id': 3}");
    CHECK_DONE(truce_bulk(c->store, writes, COUNT(writes), &atomic, outcomes, &c->error));
    CHECK_INT(outcomes[1].result.modified, ==, 1);
    CHECK_INT(outcomes[3].result.matched, ==, 1);
    CHECK_INT(outcomes[3].result.modified, ==, 0);
    CHECK_INT(outcomes[5].result.removed, ==, 1);
    release(outcomes, COUNT(writes));
    CHECK_HOLDS("things", "[]");
}

CONTRACT(an_atomic_bulk_with_a_wrong_write_does_nothing)
{
    truce_write writes[] = {INSERT("{'_id': 7}"), INSERT("{'_id': [1]}"), INSERT("{'_id': 8}")};

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 3}]");
    check_all_undone(c, writes, 3, 1, TRUCE_INVALID);
}

CONTRACT(guards_of_an_atomic_bulk_see_the_writes_before_them)
{
    truce_write writes[] = {REQUIRE_NONE("{'_id': 1}"), INSERT("{'_id': 1, 'a': 1}"),
                            REQUIRE_ONE("{'_id': 1}"), REMOVE("{'_id': 1}"),
                            REQUIRE_NONE("{'_id': 1}")};
    truce_write_outcome outcomes[5];

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    CHECK_DONE(truce_bulk(c->store, writes, 5, &atomic, outcomes, &c->error));
    CHECK_FINDS("things", "{}", NULL, "[]");
}

CONTRACT(a_failed_atomic_bulk_leaves_indexes_as_they_were)
{
    truce_write writes[] = {UPDATE("{'_id': 1}", "{'$set': {'a': 7}}"),
                            INSERT("{'_id': 9, 'a': 8}"), REMOVE("{'_id': 3}"),
                            REQUIRE_ONE("{'_id': 5}")};
    truce_write_outcome outcomes[4];

    if (!contract_needs(c, TRUCE_CAN_ATOMIC_BULK))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 3, 'a': 3}]");
    CHECK_DONE(
        truce_index_create(c->store, "things", J("{'key': {'a': 1}, 'unique': true}"), &c->error));
    CHECK_REFUSED(TRUCE_CONFLICT, 0, truce_bulk(c->store, writes, 4, &atomic, outcomes, &c->error));
    CHECK_FINDS("things", "{'a': {'$gte': 0}}", OPTIONS(.hint = J("{'a': 1}")),
                "[{'_id': 1, 'a': 1}, {'_id': 3, 'a': 3}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, 0,
                  truce_insert(c->store, "things", J("{'a': 3}"), NULL, &c->error));
    CHECK_DONE(truce_insert(c->store, "things", J("{'_id': 9, 'a': 8}"), NULL, &c->error));
    CHECK_DONE(truce_insert(c->store, "things", J("{'_id': 10, 'a': 7}"), NULL, &c->error));
}

CONTRACT(refuses_an_invalid_bulk)
{
    truce_write guard = REQUIRE_ONE("{'_id': 1}"),
                nothing = {.kind = TRUCE_WRITE_INSERT, .collection = "things"};
    truce_write nowhere = {.kind = TRUCE_WRITE_INSERT, .document = J("{}")};
    truce_write unknown = {.kind = (truce_write_kind)77, .collection = "things"};
    truce_bulk_options both = {.atomic = true, .unordered = true};
    truce_write *many = bson_malloc0((TRUCE_BULK_MAX + 1) * sizeof(truce_write));
    truce_write_outcome *outcomes = bson_malloc0((TRUCE_BULK_MAX + 1) * sizeof(*outcomes));

    CHECK_REFUSED(TRUCE_INVALID, 0, truce_bulk(c->store, &guard, 1, NULL, outcomes, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0, truce_bulk(c->store, &nothing, 1, NULL, outcomes, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0, truce_bulk(c->store, &nowhere, 1, NULL, outcomes, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0, truce_bulk(c->store, &unknown, 1, NULL, outcomes, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0, truce_bulk(c->store, &guard, 1, &both, outcomes, &c->error));
    CHECK_REFUSED(TRUCE_LIMIT, 0,
                  truce_bulk(c->store, many, TRUCE_BULK_MAX + 1, NULL, outcomes, &c->error));
    CHECK_INT(outcomes[TRUCE_BULK_MAX].status, ==, TRUCE_NOT_FOUND);
    CHECK_FINDS("things", "{}", NULL, "[]");
    bson_free(many);
    bson_free(outcomes);
}
