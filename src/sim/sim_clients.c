#include "sim/sim_run.h"

#include <stdio.h>
#include <string.h>

/* Runs the scripts of the clients as commits, reads, and sweeps through the public interface, and
 * records the results for the checker. */

static void clients_id_of(int document, bson_value_t *id, char text[2])
{
    text[0] = (char)('a' + document);
    text[1] = 0;
    memset(id, 0, sizeof *id);
    id->value_type = BSON_TYPE_UTF8;
    id->value.v_utf8.str = text;
    id->value.v_utf8.len = 1;
}

static int plain_in(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "p") ? (int)bson_iter_as_int64(&iter) : 0;
}

static truce_status clients_read_document(struct client *client, truce_commit *commit,
                                          struct sim_txn *txn, int document, const bson_value_t *id,
                                          bson_error_t *error)
{
    bson_t seen;
    truce_status status = truce_commit_read(commit, "docs", id, &seen, error);

    if (!status || status == TRUCE_NOT_FOUND) {
        txn->read[document] =
            truce__history_version(&client->run->history, document, status ? NULL : &seen);
        txn->plain[document] = status ? 0 : plain_in(&seen);
        status = TRUCE_OK;
    }
    bson_destroy(&seen);
    return status;
}

/* Makes the write of `op` in the commit. There are plain writers if `plain` is at least 0. A
 * transaction that reads then writes back the field `p`, increased by 100. `key` is the value of
 * the field `u`, or 0 if none exists. */
static truce_status clients_write_document(truce_commit *commit, enum sim_op op, int key, int plain,
                                           const bson_value_t *id, bson_error_t *error)
{
    bson_t *document;
    truce_status status;

    switch (op) {
    case SIM_READ_WRITE:
    case SIM_BLIND_WRITE:
        document = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
        plain = op == SIM_READ_WRITE ? plain : -1;
        if (key || plain >= 0) {
            bson_t set;

            bson_append_document_begin(document, "$set", 4, &set);
            if (key)
                BSON_APPEND_INT32(&set, "u", key);
            if (plain >= 0)
                BSON_APPEND_INT32(&set, "p", plain + 100);
            bson_append_document_end(document, &set);
        }
        status = truce_commit_update(commit, "docs", id, NULL, document, error);
        break;
    case SIM_SET_ZERO:
    case SIM_SET_ONE:
        document = BCON_NEW("$set", "{", "n", BCON_INT32(op == SIM_SET_ONE), "}");
        status = truce_commit_update(commit, "docs", id, NULL, document, error);
        break;
    case SIM_INSERT:
        document = BCON_NEW("_id", BCON_UTF8(id->value.v_utf8.str), "n", BCON_INT32(100));
        if (key)
            BSON_APPEND_INT32(document, "u", key);
        status = truce_commit_insert(commit, "docs", document, error);
        break;
    case SIM_REPLACE:
        document = BCON_NEW("m", BCON_INT32(7));
        if (plain >= 0)
            BSON_APPEND_INT32(document, "p", plain + 100);
        if (key)
            BSON_APPEND_INT32(document, "u", key);
        status = truce_commit_replace(commit, "docs", id, NULL, document, error);
        break;
    case SIM_HOLD:
        return truce_commit_hold(commit, "docs", id, NULL, error);
    case SIM_REMOVE:
    case SIM_BLIND_REMOVE:
        return truce_commit_remove(commit, "docs", id, NULL, error);
    default:
        return TRUCE_OK;
    }
    bson_destroy(document);
    return status;
}

static bool clients_reads(enum sim_op op)
{
    return op == SIM_REQUIRE || op == SIM_READ_WRITE || op == SIM_REMOVE || op == SIM_HOLD ||
           op == SIM_REPLACE;
}

/* Makes all reads of the script in the commit, and then all writes, which may depend on them. */
static truce_status fill_commit(struct client *client, truce_commit *commit, struct sim_txn *txn,
                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int d = 0; !status && d < SIM_DOCUMENTS; d++) {
        bson_value_t id;
        char text[2];

        clients_id_of(d, &id, text);
        if (clients_reads(txn->script->ops[d]))
            status = clients_read_document(client, commit, txn, d, &id, error);
    }
    for (int d = 0; !status && d < SIM_DOCUMENTS; d++) {
        bson_value_t id;
        char text[2];

        clients_id_of(d, &id, text);
        status =
            clients_write_document(commit, txn->script->ops[d], txn->script->keys[d],
                                   client->run->scenario->plains ? txn->plain[d] : -1, &id, error);
    }
    return status;
}

truce_status truce__sim_commit(struct client *client, struct sim_txn *txn, bson_error_t *error)
{
    char key[16];
    truce_commit_options options = {.lease_ms = LEASE_MS, .deadline_ms = DEADLINE_MS};
    truce_commit *commit = NULL;
    truce_status status;

    if (txn->script->kind == SIM_JOURNAL)
        options.mechanism = TRUCE_MECHANISM_JOURNAL;
    if (txn->script->kind == SIM_NATIVE)
        options.mechanism = TRUCE_MECHANISM_NATIVE;
    if (txn->script->key) {
        snprintf(key, sizeof key, "key%d", txn->script->key);
        options.key = key;
        options.key_time_ms = txn->script->key;
    }
    status = truce_commit_begin(&client->store, &options, &commit, error);
    if (!status)
        status = fill_commit(client, commit, txn, error);
    if (!status)
        status = truce_commit_apply(commit, error);
    if (commit)
        bson_oid_copy(truce_commit_id(commit), &txn->id);
    truce_commit_free(commit);
    return status;
}

/* Reads the documents of the script by one truce_read_many, and records which versions were
 * read. */
static truce_status clients_run_snapshot(struct client *client, struct sim_txn *txn,
                                         bson_error_t *error)
{
    truce_read_request requests[SIM_DOCUMENTS];
    bson_value_t ids[SIM_DOCUMENTS];
    char texts[SIM_DOCUMENTS][2];
    int documents[SIM_DOCUMENTS], count = 0;
    truce_status status;

    for (int d = 0; d < SIM_DOCUMENTS; d++) {
        if (txn->script->ops[d] == SIM_NONE)
            continue;
        clients_id_of(d, &ids[count], texts[count]);
        requests[count].collection = "docs";
        requests[count].id = &ids[count];
        documents[count++] = d;
    }
    status = truce_read_many(&client->store, requests, (size_t)count,
                             &(truce_read_many_options){.deadline_ms = DEADLINE_MS}, error);
    for (int i = 0; i < count; i++) {
        if (!status)
            txn->read[documents[i]] =
                truce__history_version(&client->run->history, documents[i],
                                       requests[i].found ? &requests[i].document : NULL);
        bson_destroy(&requests[i].document);
    }
    return status;
}

static truce_status clients_run_sweep(struct client *client, bson_error_t *error)
{
    truce_sweep_options options = {.retention_ms = 1};
    truce_sweep_report report;

    return truce_sweep(&client->store, &options, &report, error);
}

static struct sim_txn *new_txn(struct client *client, const struct sim_script *script)
{
    struct sim_history *history = &client->run->history;
    struct sim_txn *txn;

    if (history->txns_count == SIM_TXNS) {
        history->overflow = true;
        return NULL;
    }
    txn = &history->txns[history->txns_count++];
    *txn = (struct sim_txn){.script = script, .client = client->number};
    for (int d = 0; d < SIM_DOCUMENTS; d++)
        txn->read[d] = -1;
    txn->began_at = history->clock++;
    return txn;
}

/* Runs one transaction of the client, and records its result unless the client died. */
static truce_status run_script(struct client *client, const struct sim_script *script)
{
    struct sim_txn *txn = new_txn(client, script);
    bson_error_t error = {0};

    if (!txn)
        return TRUCE_LIMIT;
    client->txn = (int)(txn - client->run->history.txns);
    if (script->kind == SIM_SWEEP)
        txn->status = clients_run_sweep(client, &error);
    else if (script->kind == SIM_SNAPSHOT)
        txn->status = clients_run_snapshot(client, txn, &error);
    else if (script->kind == SIM_PATTERN)
        txn->status = truce__patterns_call(client, script, client->txn, &error);
    else
        txn->status = truce__sim_commit(client, txn, &error);
    if (!client->dead) { /* A dead client gets no result of its last call. */
        txn->ended = true;
        txn->ended_at = client->run->history.clock++;
        if (client->run->trace)
            fprintf(client->run->trace, "P%d: transaction %d: %s%s%s\n", client->number,
                    (int)(txn - client->run->history.txns), truce_status_name(txn->status),
                    txn->status ? ": " : "", txn->status ? error.message : "");
    }
    return txn->status;
}

void truce__sim_client(void *arg)
{
    struct client *client = arg;

    for (int i = 0; !client->dead && i < client->script->count; i++) {
        const struct sim_script *script = &client->script->scripts[i];

        for (int t = 0; !client->dead && t < (script->tries ? script->tries : 1); t++) {
            if (run_script(client, script) != TRUCE_CONFLICT)
                break;
        }
    }
    client->ended = true;
}
