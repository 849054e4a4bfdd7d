/*
 * Several updates, or several removes, of one collection as one message, of a transaction or of a bulk that is `joined`: one
 * round trip instead of one for each.
 *
 *     update documents: [set _rev of 1], [set _rev of 2], [touch 3], [untouch 3]     n: 4, nModified: 4
 *
 * The server tells how many documents a message changed, not which of its statements did. Each
 * statement changes one at most; so if the sum is right, each found its document, and if it is not, the
 * transaction is given up and made again with a message for each write (mongo_transaction.c), which
 * finds out whose guard failed. A guard without a change is two statements (a touch and its removal).
 *
 * Statements of one message are done in their order, as if each were a message.
 */
#include "store/mongodb/mongo.h"

#include <string.h>

#include "base/assert.h"

/* ---- what goes together --------------------------------------------------------------------- */

static bool is_update(const truce_write *write)
{
    if (write->kind == TRUCE_WRITE_REQUIRE)
        return truce__mongo_names_id(write->filter, NULL);
    return write->kind == TRUCE_WRITE_UPDATE && !write->options.multi && !write->options.upsert;
}

static bool is_remove(const truce_write *write)
{
    return write->kind == TRUCE_WRITE_REMOVE && !write->options.multi;
}

size_t truce__mongo_together(const truce_write *writes, size_t count)
{
    bool (*fits)(const truce_write *write) = is_update(&writes[0]) ? is_update : is_remove;
    size_t size = 0;

    while (size < count && fits(&writes[size]) &&
           writes[size].options.unvalidated == writes[0].options.unvalidated &&
           !strcmp(writes[size].collection, writes[0].collection))
        size++;
    return size;
}

/* ---- one message ---------------------------------------------------------------------------- */

/* The statements: at most two for each write. */
struct message {
    truce_write *writes;
    truce_write_outcome *outcomes;
    size_t *owners; /* of each statement: the number of its write */
    bson_t *own;    /* two documents for each touch and each removal of one */
    size_t count, own_count;
};

static void message_init(struct message *message, size_t writes)
{
    *message = (struct message){.writes = bson_malloc0(2 * writes * sizeof *message->writes),
                                .outcomes = bson_malloc0(2 * writes * sizeof *message->outcomes),
                                .owners = bson_malloc0(2 * writes * sizeof *message->owners),
                                .own = bson_malloc0(3 * writes * sizeof *message->own)};
}

static void together_message_release(struct message *message)
{
    for (size_t i = 0; i < message->own_count; i++)
        bson_destroy(&message->own[i]);
    bson_free(message->writes);
    bson_free(message->outcomes);
    bson_free(message->owners);
    bson_free(message->own);
}

static void together_add(struct message *message, size_t owner, const truce_write *write)
{
    message->owners[message->count] = owner;
    message->outcomes[message->count] = (truce_write_outcome){.status = TRUCE_CONFLICT};
    message->writes[message->count++] = *write;
}

static bson_t *together_own(struct message *message)
{
    bson_t *document = &message->own[message->own_count++];

    bson_init(document);
    return document;
}

/* What matches gets a fresh field, and the document with this _id loses it. */
static void add_touch(struct message *message, size_t owner, const truce_write *require)
{
    bson_t *set = together_own(message), *by_id = together_own(message),
           *unset = together_own(message), child;
    truce_write write = {.kind = TRUCE_WRITE_UPDATE, .collection = require->collection};
    bson_value_t id = {0};
    bson_oid_t fresh;

    truce_assert(truce__mongo_names_id(require->filter, &id));
    bson_oid_init(&fresh, NULL);
    BCON_APPEND(set, "$set", "{", MONGO_TOUCH, BCON_OID(&fresh), "}");
    BCON_APPEND(unset, "$unset", "{", MONGO_TOUCH, BCON_OID(&fresh), "}");
    BSON_APPEND_DOCUMENT_BEGIN(by_id, "_id", &child);
    BSON_APPEND_VALUE(&child, "$eq", &id);
    bson_append_document_end(by_id, &child);
    BSON_APPEND_OID(by_id, MONGO_TOUCH, &fresh);
    write.filter = require->filter;
    write.document = set;
    together_add(message, owner, &write);
    write.filter = by_id;
    write.document = unset;
    together_add(message, owner, &write);
}

/* An error of a statement is one of its write. */
static void give_outcomes(const struct message *message, const truce_write *writes,
                          truce_write_outcome *outcomes)
{
    for (size_t i = 0; i < message->count; i++) {
        truce_write_outcome *outcome = &outcomes[message->owners[i]];

        if (outcome->error.message[0])
            continue;
        *outcome = message->outcomes[i];
        if (outcome->status && writes[message->owners[i]].kind == TRUCE_WRITE_REQUIRE)
            outcome->status = truce__mongo_guard_refused(
                outcome->status, writes[message->owners[i]].collection, &outcome->error);
    }
}

truce_status truce__mongo_send_together(struct mongo_store *store, mongoc_client_t *client,
                                        const struct mongo_batch *batch, bool *all,
                                        bson_error_t *error)
{
    struct mongo_batch statements = *batch;
    struct message message;
    truce_status status;

    message_init(&message, batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->writes[i].kind == TRUCE_WRITE_REQUIRE)
            add_touch(&message, i, &batch->writes[i]);
        else
            together_add(&message, i, &batch->writes[i]);
    }
    statements.writes = message.writes;
    statements.outcomes = message.outcomes;
    statements.count = message.count;
    statements.all = all;
    status = truce__mongo_send(store, client, &statements, error);
    give_outcomes(&message, batch->writes, batch->outcomes);
    together_message_release(&message);
    return status;
}
