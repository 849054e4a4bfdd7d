/* Writes that bypass a validator: those that ask for it, and those that the journal of commits
 * has decided. */
#include "base/clock.h"
#include "base/status.h"
#include "tests/support/contract.h"
#include "truce/truce.h"

const int contract_validated_cases = 1;

#define CODE_REFUSED CODE_DOCUMENT_VALIDATION_FAILURE

static void validate(struct contract *c, const char *validator)
{
    CHECK_DONE(truce_collection_validate(c->store, "a", J(validator), &c->error));
}

CONTRACT(a_write_bypasses_a_validator_if_it_asks_for_it)
{
    truce_modify_options past = {.unvalidated = true, .upsert = true};
    truce_write_options options = {.unvalidated = true};
    bson_t found;

    contract_fill(c, "a", "[{'_id': 1, 'n': 1}]");
    validate(c, "{'n': {'$type': 'number'}}");
    CHECK_DONE(truce_insert(c->store, "a", J("{'_id': 2}"), &options, &c->error));
    CHECK_DONE(truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'n': 'x'}}"), &options,
                            NULL, &c->error));
    CHECK_DONE(truce_find_and_modify(c->store, "a", J("{'_id': 2}"), J("{'$set': {'n': 'y'}}"),
                                     &past, &found, NULL, &c->error));
    bson_destroy(&found);
    (void)!truce_find_and_modify(c->store, "a", J("{'_id': 3}"), J("{'$set': {'n': 'z'}}"), &past,
                                 &found, NULL, &c->error);
    bson_destroy(&found);
    CHECK_HOLDS("a", "[{'_id': 1, 'n': 'x'}, {'_id': 2, 'n': 'y'}, {'_id': 3, 'n': 'z'}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'n': 'w'}}"), NULL,
                               NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_insert(c->store, "a", J("{'_id': 4}"), NULL, &c->error));
}

CONTRACT(only_the_writes_of_a_bulk_that_ask_for_it_bypass_a_validator)
{
    truce_write writes[] = {
        {.kind = TRUCE_WRITE_INSERT,
         .collection = "a",
         .document = J("{'_id': 1}"),
         .options.unvalidated = true},
        {.kind = TRUCE_WRITE_INSERT, .collection = "a", .document = J("{'_id': 2}")},
        {.kind = TRUCE_WRITE_INSERT,
         .collection = "a",
         .document = J("{'_id': 3}"),
         .options.unvalidated = true},
    };
    truce_write_outcome outcomes[3];

    CHECK_DONE(truce_collection_create(c->store, "a", &c->error));
    validate(c, "{'n': {'$type': 'number'}}");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_bulk(c->store, writes, 3, &(truce_bulk_options){.unordered = true},
                             outcomes, &c->error));
    for (int i = 0; i < 3; i++) {
        CHECK_INT(outcomes[i].status, ==, i == 1 ? TRUCE_INVALID : TRUCE_OK);
        truce_write_result_release(&outcomes[i].result);
    }
    CHECK_HOLDS("a", "[{'_id': 1}, {'_id': 3}]");
}

static truce_status drain(struct contract *c, const char *pipeline, bool unvalidated)
{
    const truce_aggregate_options options = {.unvalidated = unvalidated};
    const bson_t *document;
    truce_cursor *cursor;
    truce_status status =
        truce_aggregate(c->store, "from", J(pipeline), &options, &cursor, &c->error);

    if (!status) {
        do
            status = truce_cursor_next(cursor, &document, &c->error);
        while (!status && document);
        truce_cursor_close(cursor);
    }
    return status;
}

CONTRACT(the_output_of_a_pipeline_bypasses_a_validator_if_it_asks_for_it)
{
    static const char *const pipelines[] = {
        "[{'$out': 'a'}]", "[{'$merge': 'a'}]",
        "[{'$merge': {'into': 'a', 'whenMatched': 'replace'}}]"};

    contract_fill(c, "from", "[{'_id': 1, 'm': 1}, {'_id': 2, 'm': 2}]");
    for (int i = 0; i < 3; i++) {
        contract_fill(c, "a", "[{'_id': 1, 'n': 1}]");
        validate(c, "{'n': {'$type': 'number'}}");
        CHECK_REFUSED(
            TRUCE_INVALID, CODE_REFUSED,
            drain(c, i == 1 ? "[{'$match': {'_id': 2}}, {'$merge': 'a'}]" : pipelines[i], false));
        CHECK_HOLDS("a", "[{'_id': 1, 'n': 1}]");
        CHECK_DONE(drain(c, pipelines[i], true));
        CHECK_HOLDS("a", i == 1 ? "[{'_id': 1, 'n': 1, 'm': 1}, {'_id': 2, 'm': 2}]"
                                : "[{'_id': 1, 'm': 1}, {'_id': 2, 'm': 2}]");
        CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                      truce_insert(c->store, "a", J("{'_id': 4}"), NULL, &c->error));
        CHECK_DONE(truce_collection_drop(c->store, "a", &c->error));
    }
}

/* ---- commits --------------------------------------------------------------------------------- */

/* Simulates a process that dies before or after its decision: all of its later writes fail. */
static const truce_store_ops *living;
static truce_store_ops dying;
static bool dies_before, dead;

static truce_status refuse(bson_error_t *error)
{
    return truce__refuse(CODE_ILLEGAL_OPERATION, error, "the process is dead");
}

static bool decides(const truce_write *write)
{
    bson_iter_t iter, state;

    return write->kind == TRUCE_WRITE_UPDATE && !strcmp(write->collection, "truce_commits") &&
           bson_iter_init(&iter, write->document) &&
           bson_iter_find_descendant(&iter, "$set.state", &state) &&
           !strcmp(bson_iter_utf8(&state, NULL), "committed");
}

static truce_status bulk(truce_store *store, const truce_write *writes, size_t count,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error)
{
    bool last = decides(&writes[0]);

    if (dead || (last && dies_before)) {
        dead = true;
        outcomes[0] = (truce_write_outcome){.status = refuse(error)};
        outcomes[0].error = *error;
        return outcomes[0].status;
    }
    dead = last;
    return living->bulk(store, writes, count, options, outcomes, error);
}

static truce_status modify(truce_store *store, const char *collection, const bson_t *filter,
                           const bson_t *update, const truce_modify_options *options,
                           bson_t *document, truce_write_result *result, bson_error_t *error)
{
    bson_init(document);
    *result = (truce_write_result){0};
    return dead ? refuse(error)
                : living->find_and_modify(store, collection, filter, update, options, document,
                                          result, error);
}

static bson_value_t number_id(int id)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = id};
}

static truce_commit *begin(struct contract *c)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1};
    bson_value_t ids[] = {number_id(1), number_id(2), number_id(3), number_id(4)};
    truce_commit *commit = NULL;

    CHECK_DONE(truce_commit_begin(c->store, &options, &commit, &c->error));
    CHECK_DONE(truce_commit_update(commit, "a", &ids[0], NULL, J("{'$set': {'n': 2, 'd.e': 1}}"),
                                   &c->error));
    CHECK_DONE(
        truce_commit_replace(commit, "a", &ids[1], NULL, J("{'_id': 2, 'n': 3}"), &c->error));
    CHECK_DONE(truce_commit_hold(commit, "a", &ids[2], NULL, &c->error));
    CHECK_DONE(truce_commit_remove(commit, "a", &ids[3], NULL, &c->error));
    CHECK_DONE(truce_commit_insert(commit, "a", J("{'_id': 5, 'n': 4}"), &c->error));
    return commit;
}

#define STORY                                                                                      \
    "[{'_id': 1, 'n': 1, 'd': {}}, {'_id': 2, 'n': 1, 'm': 1}, {'_id': 3, 'n': 1}, "               \
    "{'_id': 4, 'n': 1}]"

/* Applies the commit in a store that fails from its decision on, either before or after the
 * decision takes effect. */
static void commit_and_die(struct contract *c, bool before)
{
    truce_commit *commit;
    truce_status status;

    contract_fill(c, "a", STORY);
    commit = begin(c);
    living = c->store->ops;
    dying = *living;
    dying.bulk = bulk;
    dying.find_and_modify = modify;
    c->store->ops = &dying;
    dies_before = before;
    dead = false;
    status = truce_commit_apply(commit, &c->error);
    CHECK_INT(status, ==, before ? TRUCE_INVALID : TRUCE_OK);
    CHECK(dead);
    truce_commit_free(commit);
    c->store->ops = living;
}

/* Sweeps until no document has an intent. The first sweep only observes the lease; it has expired
 * at a later one. */
static void sweep(struct contract *c)
{
    int64_t held = 1;

    for (int i = 0; held && i < 100; i++) {
        truce_sweep_report report;

        truce__clock_sleep_ms(5);
        CHECK_DONE(truce_sweep(c->store, NULL, &report, &c->error));
        CHECK_DONE(truce_count(c->store, "a", J("{'_intent': {'$exists': true}}"), NULL, &held,
                               &c->error));
    }
    CHECK_FINDS("a", "{'_intent': {'$exists': true}}", NULL, "[]");
}

static const char plain_fields[] = "{'_rev': 0}";

#define CHECK_LEFT(expected)                                                                       \
    CHECK_FINDS("a", "{}", OPTIONS(.sort = J("{'_id': 1}"), .projection = J(plain_fields)),        \
                expected)

CONTRACT(a_validator_after_the_decision_keeps_no_commit_from_its_end)
{
    commit_and_die(c, false);
    validate(c, "{'n': {'$type': 'string'}}");
    sweep(c);
    CHECK_LEFT("[{'_id': 1, 'n': 2, 'd': {'e': 1}}, {'_id': 2, 'n': 3}, {'_id': 3, 'n': 1}, "
               "{'_id': 5, 'n': 4}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED,
                  truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'n': 7}}"), NULL, NULL,
                               &c->error));
}

CONTRACT(a_later_validator_and_a_plain_write_in_the_way_keep_no_commit_from_its_end)
{
    commit_and_die(c, false);
    CHECK_DONE(truce_update(c->store, "a", J("{'_id': 1}"), J("{'$set': {'d': 5}}"), NULL, NULL,
                            &c->error));
    validate(c, "{'n': {'$type': 'string'}}");
    sweep(c);
    CHECK_FINDS("a", "{'_id': 1}", OPTIONS(.projection = J(plain_fields)),
                "[{'_id': 1, 'n': 2, 'd': {'e': 1}}]");
    CHECK_FINDS("truce_displaced", "{}", OPTIONS(.projection = J("{'_id': 0, 'values': 1}")),
                "[{'values': [{'p': 'd', 'v': 5}]}]");
}

CONTRACT(a_later_validator_keeps_no_undone_commit_from_its_release)
{
    commit_and_die(c, true);
    validate(c, "{'n': {'$type': 'string'}}");
    sweep(c);
    CHECK_LEFT(STORY);
}

CONTRACT(does_not_decide_a_commit_that_a_validator_refuses)
{
    truce_commit *commit;
    bson_value_t id = number_id(3);

    contract_fill(c, "a", STORY);
    validate(c, "{'n': {'$lt': 5}}");
    for (int i = 0; i < 2; i++) {
        commit = begin(c);
        CHECK_DONE(
            i ? truce_commit_update(commit, "a", &id, NULL, J("{'$set': {'n': 6}}"), &c->error)
              : truce_commit_insert(commit, "a", J("{'_id': 6, 'n': 6}"), &c->error));
        CHECK_REFUSED(TRUCE_INVALID, CODE_REFUSED, truce_commit_apply(commit, &c->error));
        truce_commit_free(commit);
        CHECK_LEFT(STORY);
        CHECK_FINDS("a", "{'_intent': {'$exists': true}}", NULL, "[]");
    }
}

CONTRACT(an_insert_is_validated_as_the_stored_document)
{
    truce_commit *commit;

    contract_fill(c, "a", STORY);
    /* No stub has this field. */
    validate(c, "{'n': {'$exists': true}}");
    commit = begin(c);
    CHECK_DONE(truce_commit_apply(commit, &c->error));
    truce_commit_free(commit);
    CHECK_FINDS("a", "{'_id': 5}", OPTIONS(.projection = J(plain_fields)), "[{'_id': 5, 'n': 4}]");
}

/* ---- a server that refuses to bypass a validator --------------------------------------------- */

static truce_status deny(bson_error_t *error)
{
    return truce__refuse(CODE_UNAUTHORIZED, error, "not authorized to bypass validation");
}

static truce_status strict_bulk(truce_store *store, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    if (writes[0].options.unvalidated) {
        outcomes[0] = (truce_write_outcome){.status = deny(error)};
        outcomes[0].error = *error;
        return outcomes[0].status;
    }
    return living->bulk(store, writes, count, options, outcomes, error);
}

static truce_status strict_modify(truce_store *store, const char *collection, const bson_t *filter,
                                  const bson_t *update, const truce_modify_options *options,
                                  bson_t *document, truce_write_result *result, bson_error_t *error)
{
    bson_init(document);
    *result = (truce_write_result){0};
    return options->unvalidated ? deny(error)
                                : living->find_and_modify(store, collection, filter, update,
                                                          options, document, result, error);
}

static int reported;
static char sentence[600];

static void tell(const bson_t *finding, void *arg)
{
    bson_iter_t iter;

    (void)arg;
    if (!bson_iter_init_find(&iter, finding, "rule") ||
        strcmp(bson_iter_utf8(&iter, NULL), "blocked") != 0)
        return;
    reported++;
    if (bson_iter_init_find(&iter, finding, "text"))
        snprintf(sentence, sizeof sentence, "%s", bson_iter_utf8(&iter, NULL));
}

CONTRACT(reports_the_document_that_a_commit_may_not_release_past_a_validator)
{
    truce_check_options repair = {.repair = true};
    truce_check_report found;
    truce_store_ops strict;

    commit_and_die(c, false);
    validate(c, "{'n': {'$type': 'string'}}");
    strict = *living;
    strict.bulk = strict_bulk;
    strict.find_and_modify = strict_modify;
    c->store->ops = &strict;
    reported = 0;
    for (int i = 0; !reported && i < 100; i++) {
        truce__clock_sleep_ms(5);
        CHECK_DONE(truce_check(c->store, &repair, tell, NULL, &found, &c->error));
    }
    CHECK_INT(reported, ==, 1);
    CHECK(strstr(sentence, "bypassDocumentValidation") != NULL);
    c->store->ops = living;
    sweep(c);
    CHECK_FINDS("a", "{'_id': 5}", OPTIONS(.projection = J(plain_fields)), "[{'_id': 5, 'n': 4}]");
}
