#include "commit/schema_validators.h"

#include "base/clock.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "query/match/validator.h"

/*
 * A validator refuses writes of every client, and may be set at any time, also between the decision
 * of a commit and its release. A decided commit can be released anyway:
 *
 *  CI1  The document that the release will leave is tested with the known validator before the
 *       decision. A document that violated the validator before is not tested. A server may allow
 *       changes of such documents, and otherwise it refused the prepare. A validator with operators
 *       that truce does not know is left to the server.
 *  CI2  Other writes of the journal bypass validators: a stub, which is not a complete document
 *       yet; a strip, which restores a document; a release. A write that is sent alone is first
 *       sent without a bypass, because a server requires a privilege for one
 *       (bypassDocumentValidation). If the validator refuses the write, it is sent again with a
 *       bypass. A stub in a bulk bypasses a known validator at once (journal.c, CK5).
 *  CI3  A user without this privilege leaves the document held and gets an error; `truce check`
 *       reports it too (rule `blocked`). A user with the privilege completes the release, and so
 *       does a change of the validator.
 *
 * A prepare is validated like any write. So a commit does not change a document that a validator
 * protects from all changes.
 */

/* Tests the document after the release with the rules. A document that violated the rules before
 * passes. */
static truce_status validators_matches(const struct match *rules, const struct entry *entry,
                                       const bson_oid_t *rev, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms();
    truce_status status;
    bson_t after;

    if (entry->token.found &&
        truce__validator_test(rules, entry->collection, now_ms, &entry->base, NULL))
        return TRUCE_OK;
    truce__entry_document(entry, rev, &after);
    status = truce__validator_test(rules, entry->collection, now_ms, &after, error);
    bson_destroy(&after);
    return status;
}

truce_status truce__validator_lets(truce_store *store, const struct entry *entry,
                                   const bson_oid_t *rev, bson_error_t *error)
{
    enum net net = truce__entry_net(entry);
    struct match *rules = NULL;
    truce_status status;
    bson_t validator;

    if (net != NET_INSERT && net != NET_UPDATE)
        return TRUCE_OK;
    status = truce__metadata_validator(store, entry->collection, &validator, error);
    if (!status && !truce__validator_new(&validator, &rules, NULL) && rules)
        status = validators_matches(rules, entry, rev, error);
    truce__match_free(rules);
    bson_destroy(&validator);
    return status;
}

/* ---- bypass ---------------------------------------------------------------------------------- */

static bool is_denied(truce_status status, const bson_error_t *error)
{
    return status == TRUCE_INVALID && error->domain == TRUCE_ERROR_SERVER &&
           (error->code == CODE_UNAUTHORIZED || error->code == CODE_DOCUMENT_VALIDATION_FAILURE);
}

/* Chooses the error to return. `caught` is the error of the last write. */
static truce_status validators_answer(truce_status status, const bson_error_t *refusal,
                                      const bson_error_t *caught, bson_error_t *error)
{
    if (status && error)
        *error = is_denied(status, caught) && refusal->message[0] ? *refusal : *caught;
    return status;
}

truce_status truce__validator_pass(truce_store *store, const truce_write *write,
                                   const truce_bulk_options *options, truce_write_outcome *outcome,
                                   bson_error_t *error)
{
    bson_error_t caught = {0}, refusal = {0};
    truce_write retry = *write;
    truce_status status = truce_bulk(store, write, 1, options, outcome, &caught);

    if (truce__validator_refused(status, &caught)) {
        refusal = caught;
        retry.options.unvalidated = true;
        truce_write_result_release(&outcome->result);
        status = truce_bulk(store, &retry, 1, options, outcome, &caught);
    }
    return validators_answer(status, &refusal, &caught, error);
}

truce_status truce__validator_pass_modify(truce_store *store, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          bson_error_t *error)
{
    bson_error_t caught = {0}, refusal = {0};
    truce_modify_options retry = *options;
    truce_status status =
        truce_find_and_modify(store, collection, filter, update, options, document, NULL, &caught);

    if (truce__validator_refused(status, &caught)) {
        refusal = caught;
        retry.unvalidated = true;
        bson_destroy(document);
        status = truce_find_and_modify(store, collection, filter, update, &retry, document, NULL,
                                       &caught);
    }
    return validators_answer(status, &refusal, &caught, error);
}
