#include "commit/journal_owner.h"

#include "base/assert.h"
#include "commit/journal_step.h"
#include "commit/metadata_cache.h"
#include "commit/shadow.h"
#include "commit/unique.h"

/*
 * Steps of the journal that go together: the prepares of all documents, their releases, or what takes the intents off again,
 * as one bulk each. A server gets one message for each collection (one more where stubs are inserted), and a store of one
 * file makes one step of all; so a commit over any number of documents of one collection takes five messages, not three and
 * two for each document.
 *
 * models/commit_joined.cpp is its model: a message is done statement by statement beside everybody else, may be lost
 * after any of them, and may land when nobody waits for it any more.
 *
 *   K1  Only documents that were read go together, and each prepare compares what was read as a whole: nothing
 *       comes back that the changes could be applied to. What reserves unique values, or was taken before the
 *       function ran, goes one by one.
 *   K2  All, or none: the answer says how many were taken, not which. Who has not got all, or got no answer, gives the
 *       whole id up: aborts, then strips (J1). So nobody waits while he holds what he took out of its turn, and two
 *       who want the same documents do not wait for each other.
 *   K3  The next try, under a fresh id, goes one by one, in the order of all: it waits where somebody holds a document, and
 *       says which one was not as it was read.
 *   K4  A commit whose joined releases were not all answered as done releases one by one, as whoever meets it would, and
 *       is marked done behind that (J5).
 *   K5  A stub passes by the validator that is known (validated.c, V2): it would be refused, and all with it.
 */

/* ---- a bulk of steps ------------------------------------------------------------------------- */

struct steps {
    truce_write *writes;
    struct step_write *made; /* what they are made of */
    uint32_t count;
};

static void steps_init(struct steps *steps, uint32_t room)
{
    *steps = (struct steps){.writes = bson_malloc0(room * sizeof *steps->writes),
                            .made = bson_malloc0(room * sizeof *steps->made)};
}

static void steps_release(struct steps *steps)
{
    for (uint32_t i = 0; i < steps->count; i++)
        truce__step_write_free(&steps->made[i]);
    bson_free(steps->made);
    bson_free(steps->writes);
}

/* *all: each of them changed its document. */
static truce_status joined_send(const struct owner *owner, const struct steps *steps, bool *all,
                                bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(owner->worker),
                                  .joined = true};
    truce_write_outcome *outcomes = bson_malloc0(steps->count * sizeof *outcomes);
    truce_status status;
    int64_t changed = 0;

    status =
        truce_bulk(owner->commit->store, steps->writes, steps->count, &options, outcomes, error);
    for (uint32_t i = 0; i < steps->count; i++) {
        changed += outcomes[i].result.matched + outcomes[i].result.inserted;
        truce_write_result_release(&outcomes[i].result);
    }
    *all = !status && changed == steps->count;
    bson_free(outcomes);
    return status;
}

/* Writes of one kind and one collection stand side by side: the entries are in the order of their collections. */
static void joined_sort(struct steps *steps)
{
    static const truce_write_kind kinds[] = {TRUCE_WRITE_UPDATE, TRUCE_WRITE_REMOVE,
                                             TRUCE_WRITE_INSERT};
    uint32_t count = 0;

    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (uint32_t i = 0; i < steps->count; i++) {
            if (steps->made[i].write.kind == kinds[kind])
                steps->writes[count++] = steps->made[i].write;
        }
    }
    truce_assert(count == steps->count);
}

/* ---- step 2 ---------------------------------------------------------------------------------- */

/* K1 */
static bool can_join(const struct owner *owner, const struct entry *entry)
{
    return entry->known && !entry->prepared &&
           truce__entry_comparable(owner->commit->store, entry) &&
           truce__shadow_reserves(entry) < 0;
}

bool truce__owner_joins(const struct owner *owner)
{
    const truce_commit *commit = owner->commit;
    uint32_t taken = 0;

    if (commit->apart)
        return false;
    for (uint32_t i = 0; i < commit->count; i++) {
        if (!truce__commit_takes(commit->entries[i]))
            continue;
        if (!can_join(owner, commit->entries[i]))
            return false;
        taken++;
    }
    return taken > 1;
}

/* K5 */
static truce_status make_stub(const struct owner *owner, const struct entry *entry,
                              struct step_write *made, bson_error_t *error)
{
    truce_store *store = owner->commit->store;
    bson_t validator;
    truce_status status = truce__memo_validator(store, entry->collection, &validator, error);

    made->write.options.unvalidated = !bson_empty(&validator);
    bson_destroy(&validator);
    if (status)
        return status;
    bson_destroy(&made->document);
    return truce__unique_stub(store, entry, &owner->commit->id, &made->document, error);
}

static truce_status add_prepare(struct owner *owner, struct entry *entry, struct steps *steps,
                                bson_error_t *error)
{
    truce_store *store = owner->commit->store;
    struct step_write *made = &steps->made[steps->count];
    truce_status status = truce__memo_intents(store, entry->collection, error);

    if (!status)
        status = truce__owner_can_be(owner, entry, error);
    if (status)
        return status;
    steps->count++;
    entry->stub = !entry->token.found;
    truce__step_write_init(made, entry->stub ? TRUCE_WRITE_INSERT : TRUCE_WRITE_UPDATE,
                           entry->collection);
    if (entry->stub)
        return make_stub(owner, entry, made, error);
    bson_destroy(&made->filter);
    made->write.exact = truce__filter_base(store, entry, &made->filter);
    BCON_APPEND(&made->document, "$set", "{", "_intent", "{", "c", BCON_OID(&owner->commit->id),
                "}", "}");
    return TRUCE_OK;
}

static truce_status add_prepares(struct owner *owner, struct steps *steps, bson_error_t *error)
{
    const truce_commit *commit = owner->commit;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < commit->count; i++) {
        if (truce__commit_takes(commit->entries[i]))
            status = add_prepare(owner, commit->entries[i], steps, error);
    }
    return status;
}

static void joined_mark(const struct owner *owner, bool prepared)
{
    const truce_commit *commit = owner->commit;

    for (uint32_t i = 0; i < commit->count; i++) {
        struct entry *entry = commit->entries[i];

        if (!truce__commit_takes(entry))
            continue;
        entry->sent = true;
        entry->prepared = prepared;
    }
}

/* CONFLICT: it is not as it was read. OK: it is, or is ours, or held by another, or that is for K3 to say. */
static truce_status joined_look(struct owner *owner, const struct entry *entry, bson_error_t *error)
{
    bson_t document;
    truce_status status = truce__owner_peek(owner, entry, &document, error);

    if (status == TRUCE_NOT_FOUND || (!status && truce__intent_absent(&document)))
        status = truce__commit_same(entry, status ? NULL : &document, error);
    bson_destroy(&document);
    if (status == TRUCE_CONFLICT)
        truce__commit_lost(owner->commit, entry);
    return status;
}

/* K2. Where a look says that the function has to run again, the fresh id would be for nothing. */
static truce_status why_not_all(struct owner *owner, truce_status status, bson_error_t *error)
{
    truce_commit *commit = owner->commit;
    bool answered = !truce__unanswered(status);

    status = TRUCE_OK;
    for (uint32_t i = 0; answered && !status && i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        if (truce__commit_takes(entry) && !entry->stub)
            status = joined_look(owner, entry, error);
    }
    if (status)
        return status;
    commit->apart = true;
    owner->again = true;
    return truce__fail(TRUCE_CONFLICT, error,
                       "the documents of a commit could not be taken together");
}

truce_status truce__owner_prepare_joined(struct owner *owner, bson_error_t *error)
{
    struct steps steps;
    truce_status status;
    bool all = false;

    steps_init(&steps, owner->commit->count);
    status = add_prepares(owner, &steps, error);
    if (!status) {
        joined_sort(&steps);
        joined_mark(owner, false);
        status = joined_send(owner, &steps, &all, error);
        joined_mark(owner, all);
        if (!all)
            status = why_not_all(owner, status, error);
    }
    steps_release(&steps);
    return status;
}

/* ---- step 5 ---------------------------------------------------------------------------------- */

static void add_release(const struct owner *owner, const struct entry *entry,
                        const bson_iter_t *element, struct steps *steps)
{
    const uint8_t *bytes;
    uint32_t length;
    bson_t post, held;

    bson_iter_document(element, &length, &bytes);
    truce_assert(bson_init_static(&post, bytes, length));
    if (!entry->stub)
        truce__owner_held(owner->commit, entry, &held);
    truce__journal_release_write(owner->commit->store, &owner->commit->id, &post,
                                 entry->stub ? NULL : &held, &steps->made[steps->count++]);
}

/* What it reserved goes with the release of one document alone (unique.c); what cannot be compared is looked at. */
static bool can_release(const struct owner *owner, const struct entry *entry)
{
    return !entry->reserved && truce__entry_comparable(owner->commit->store, entry);
}

bool truce__owner_release_joined(struct owner *owner)
{
    const truce_commit *commit = owner->commit;
    bson_iter_t element;
    struct steps steps;
    bool all = true;

    steps_init(&steps, commit->count);
    truce_assert(bson_iter_init(&element, &owner->post));
    for (uint32_t i = 0; all && i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        if (!truce__commit_takes(entry))
            continue;
        truce_assert(bson_iter_next(&element));
        all = can_release(owner, entry);
        if (all)
            add_release(owner, entry, &element, &steps);
    }
    all = all && steps.count > 1;
    if (all) {
        joined_sort(&steps);
        (void)joined_send(owner, &steps, &all, NULL);
    }
    owner->worker->did += all ? steps.count : 0;
    steps_release(&steps);
    return all;
}

/* ---- step 7 ---------------------------------------------------------------------------------- */

static void add_strip(const truce_commit *commit, const struct entry *entry, struct steps *steps)
{
    struct step_write *made = &steps->made[steps->count++];

    if (entry->stub)
        truce__journal_strip_stub_write(entry->collection, &entry->id, &commit->id, made);
    else
        truce__journal_strip_write(entry->collection, &entry->id, &commit->id, -1, made);
}

bool truce__owner_strip_joined(struct owner *owner)
{
    const truce_commit *commit = owner->commit;
    struct steps steps;
    bool all, can = true;

    steps_init(&steps, commit->count);
    for (uint32_t i = 0; can && i < commit->count; i++) {
        const struct entry *entry = commit->entries[i];

        can = !entry->reserved;
        if (can && entry->sent)
            add_strip(commit, entry, &steps);
    }
    can = can && steps.count > 1;
    if (can) {
        joined_sort(&steps);
        can = !joined_send(owner, &steps, &all,
                           NULL); /* what was not held is none the worse for it */
    }
    steps_release(&steps);
    return can;
}
