/* Builds the document of a transaction, with the chain over its changes (LG3 and LG10 of ledger.c),
 * and compares it with a stored one. */
#include <string.h>

#include "bson/date.h"
#include "bson/field_name_escape.h"
#include "patterns/ledger/ledger_draft.h"

/* ---- the document ---------------------------------------------------------------------------- */

void truce__ledger_append_state(const struct ledger_state *state, bool hash, bson_t *document)
{
    BSON_APPEND_INT64(document, "cachedBal", state->balance);
    if (state->out)
        BSON_APPEND_INT64(document, "pendingOut", state->out);
    if (state->in)
        BSON_APPEND_INT64(document, "pendingIn", state->in);
    BSON_APPEND_INT64(document, "rules", state->rules_at);
    if (hash)
        BSON_APPEND_BINARY(document, "hash", BSON_SUBTYPE_BINARY, state->hash, SHA256_BYTES);
}

const char *truce__ledger_type(const struct ledger_change *change)
{
    return change->type ? change->type : change->value < 0 ? "withdraw" : "deposit";
}

/* Appends the changes; their hashes are not known yet. */
static void build_append_changes(const struct draft *draft, bson_t *document)
{
    bson_t changes, one;

    bson_append_array_begin(document, "changes", 7, &changes);
    for (uint32_t i = 0; i < draft->count; i++) {
        const struct planned *planned = &draft->planned[i];
        const struct ledger_change *change = &planned->change;
        char buffer[16];
        const char *key;
        size_t length = bson_uint32_to_string(i, &key, buffer, sizeof buffer);

        bson_append_document_begin(&changes, key, (int)length, &one);
        BSON_APPEND_UTF8(&one, "account", change->account);
        BSON_APPEND_UTF8(&one, "type", truce__ledger_type(change));
        BSON_APPEND_INT64(&one, "value", change->value);
        BSON_APPEND_UTF8(&one, "currency", planned->after.rules.currency);
        BSON_APPEND_INT64(&one, "seqId", change->number);
        if (change->release)
            BSON_APPEND_INT64(&one, "release", change->release);
        if (change->sets)
            BSON_APPEND_DOCUMENT(&one, "set", &change->set);
        truce__ledger_append_state(&planned->after, true, &one);
        bson_append_document_end(&changes, &one);
    }
    bson_append_array_end(document, &changes);
}

void truce__ledger_request_id(const struct ledger_request *request, bson_t *holder)
{
    bson_t id;

    if (request->verb == LEDGER_POST) {
        BSON_APPEND_VALUE(holder, "_id", request->transaction->id);
        return;
    }
    bson_append_document_begin(holder, "_id", 3, &id);
    if (request->verb == LEDGER_EXPIRE)
        BSON_APPEND_VALUE(&id, "expired", request->of);
    else
        BSON_APPEND_UTF8(&id, request->verb == LEDGER_OPEN ? "opens" : "rules", request->account);
    bson_append_document_end(holder, &id);
}

static void build_append_id(const struct draft *draft, bson_t *document)
{
    bson_t id;

    if (draft->request->verb != LEDGER_RULES) {
        truce__ledger_request_id(draft->request, document);
        return;
    }
    bson_append_document_begin(document, "_id", 3, &id);
    BSON_APPEND_UTF8(&id, "rules", draft->request->account);
    BSON_APPEND_INT64(&id, "number", draft->planned[0].change.number);
    bson_append_document_end(document, &id);
}

/* Appends the fields of a transaction except its changes. */
static void build_append_fields(const struct draft *draft, bson_t *document)
{
    const truce_ledger_transaction *given = draft->request->transaction;

    build_append_id(draft, document);
    BSON_APPEND_DATE_TIME(document, "ts", draft->booked_ms);
    BSON_APPEND_UTF8(document, "kind", draft->kind);
    BSON_APPEND_UTF8(document, "proc", "COMMITTED"); /* LG3 */
    BSON_APPEND_UTF8(document, "state", draft->state);
    if (draft->request->verb == LEDGER_OPEN)
        BSON_APPEND_UTF8(document, "opens", draft->request->account);
    if (draft->of)
        BSON_APPEND_VALUE(document, "resolves", draft->of);
    if (draft->part)
        BSON_APPEND_BOOL(document, "part", true);
    if (given && given->effective_ms)
        BSON_APPEND_DATE_TIME(document, "effective", given->effective_ms);
    if (given && given->expires_ms)
        BSON_APPEND_DATE_TIME(document, "expires", given->expires_ms);
    if (draft->pending)
        BSON_APPEND_DATE_TIME(document, "open",
                              given->expires_ms ? given->expires_ms : LEDGER_NEVER_MS);
    if (given && given->meta)
        truce__names_append(document, "meta", given->meta);
}

void truce__ledger_link(struct draft *draft, const bson_t *document)
{
    uint8_t digest[SHA256_BYTES], before[SHA256_BYTES];

    truce__ledger_digest(document, digest);
    for (uint32_t i = 0; i < draft->count; i++) {
        struct planned *planned = &draft->planned[i];

        memcpy(before, planned->known->next.hash, sizeof before);
        truce__ledger_chain(digest, planned->change.account, before, &planned->after);
        memcpy(planned->known->next.hash, planned->after.hash, sizeof before);
    }
}

/* Writes the hashes into the changes. */
static void build_set_hashes(const struct draft *draft, const bson_t *document)
{
    struct fields at = truce__ledger_changes(document);

    for (uint32_t i = 0; truce__fields_next(&at); i++) {
        struct value hash = truce__value_field(at.value, "hash", 4);

        /* A binary value begins with its length and its subtype (5 bytes). */
        memcpy((uint8_t *)hash.data + 5, draft->planned[i].after.hash, SHA256_BYTES);
    }
}

truce_status truce__ledger_build(struct draft *draft, bson_t *document, bson_error_t *error)
{
    draft->booked_ms = draft->plan->now_ms;
    /* The booking time does not decrease on any account (LG10). */
    for (uint32_t i = 0; i < draft->count; i++) {
        if (draft->planned[i].known->state.booked_ms > draft->booked_ms)
            draft->booked_ms = draft->planned[i].known->state.booked_ms;
    }
    build_append_fields(draft, document);
    build_append_changes(draft, document);
    truce__ledger_link(draft, document);
    build_set_hashes(draft, document);
    return truce__document_check_size(document, "transaction", error);
}

/* ---- comparison with a stored document ------------------------------------------------------- */

/* Returns whether the entries of the request are those of the document, in the same order unless it
 * settles a pending transaction. */
static bool same_entries(const truce_ledger_transaction *given, const bson_t *document)
{
    struct ledger_change change;
    uint32_t count = 0;

    for (struct fields at = truce__ledger_changes(document); truce__fields_next(&at);) {
        const truce_ledger_entry *entry;
        struct ledger_change wanted;

        if (!truce__ledger_change(at.value, &change))
            return false;
        if (!change.value)
            continue;
        if (count == given->count)
            return false;
        entry = given->kind == TRUCE_LEDGER_SETTLE ? truce__ledger_entry(given, change.account)
                                                   : &given->entries[count];
        count++;
        if (!entry || !entry->account || strcmp(entry->account, change.account) != 0)
            return false;
        wanted = (struct ledger_change){.type = entry->type, .value = entry->value};
        if (entry->value != change.value || !change.type ||
            strcmp(truce__ledger_type(&wanted), change.type) != 0)
            return false;
    }
    return count == given->count;
}

static bool same_meta(const bson_t *document, const bson_t *given)
{
    bson_t there, stored;
    bool has = truce__value_subdocument(document, "meta", &there), same;

    if (!given)
        return !has;
    truce__names_store(given, &stored);
    same = has && bson_equal(&there, &stored);
    bson_destroy(&stored);
    return same;
}

/* Returns the name of the first field that differs from the request, or NULL. */
static const char *build_difference(const truce_ledger_transaction *given, const bson_t *document)
{
    static const char *const kinds[] = {"transfer", "pending", "settle", "void", "reverse"};
    bool part = given->of && given->count;

    if (!truce__ledger_is(document, "kind", kinds[given->kind]))
        return "kind";
    if (!truce__ledger_has(document, "resolves", given->of))
        return "of";
    if (bson_has_field(document, "part") != part ||
        ((part || !given->of) && !same_entries(given, document)))
        return "entries";
    if (truce__ledger_date(document, "effective") != given->effective_ms)
        return "effective";
    if (truce__ledger_date(document, "expires") != given->expires_ms)
        return "expires";
    return same_meta(document, given->meta) ? NULL : "meta";
}

/* Writes a time of a transaction, or "none". */
static const char *build_show_date(int64_t date_ms, char text[DATE_TEXT_MAX])
{
    return date_ms ? truce__date_show(date_ms, text) : "none";
}

truce_status truce__ledger_same(const struct ledger_request *request, const bson_t *document,
                                bson_error_t *error)
{
    const truce_ledger_transaction *given = request->transaction;
    const char *field = request->verb == LEDGER_POST ? build_difference(given, document) : NULL;
    char id[200], stored[DATE_TEXT_MAX], wanted[DATE_TEXT_MAX];
    bool expires;

    if (!field)
        return TRUCE_OK;
    expires = !strcmp(field, "expires");
    (void)truce__value_show(truce__value_field(truce__value_document(document), "_id", 3), id,
                            sizeof id);
    if (!strcmp(field, "entries"))
        return truce__fail(TRUCE_DUPLICATE, error,
                           "the id %s was used before, for a transaction with other content: the "
                           "entries differ, or have another order",
                           id);
    if (!expires && strcmp(field, "effective") != 0)
        return truce__fail(TRUCE_DUPLICATE, error,
                           "the id %s was used before, for a transaction with other content: "
                           "another \"%s\"",
                           id, field);
    return truce__fail(
        TRUCE_DUPLICATE, error,
        "the id %s was used before, for a transaction with other content: \"%s\" is %s, not %s", id,
        field, build_show_date(truce__ledger_date(document, field), stored),
        build_show_date(expires ? given->expires_ms : given->effective_ms, wanted));
}
