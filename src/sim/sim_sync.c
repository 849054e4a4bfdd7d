#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "sim/sim_run.h"

/*
 * Denormalized copies in the simulator: two users, comments that copy their user's name, and likes
 * that copy it from the comment. Callers rename users, alone and in commits, add comments, move
 * them between users, read them, and repair them. After every write of a user that reaches the
 * store:
 *
 *     a copy that differs from its source is known: the comment or its user has a flag
 *
 * At the end, flagged copies are reconciled. Then no flag is left, no copy differs, each name is
 * one that a caller gave, and each comment belongs to the user to which a caller moved it.
 */

/* The number of users, whose names are copied. */
#define USERS 2
/* The number of comments at the start, with the ids 1 to 3. A new comment has the id ADDED + the
 * number of its call. */
#define COMMENTS 3
#define ADDED    100

static const struct sync_call {
    enum { RENAME, RENAME_IN_COMMIT, MOVE, ADD, READ, RECONCILE, REPAIR } verb;
    int user, comment;
} sync_calls[] = {
    {RENAME, 1, 0},    {RENAME, 2, 0}, {RENAME_IN_COMMIT, 1, 0},
    {MOVE, 2, 1},      {MOVE, 1, 2},   {ADD, 1, 0},
    {ADD, 2, 0},       {READ, 0, 1},   {READ, 0, 2},
    {RECONCILE, 1, 0}, {REPAIR, 0, 0},
};

static bson_value_t sync_number(int n)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value = {.v_int32 = n}};
}

static truce_sync *sync_on(truce_store *store, bool journal)
{
    return truce_sync_new(store,
                          &(truce_sync_options){.batch = 2,
                                                .deadline_ms = DEADLINE_MS,
                                                .mechanism = journal ? TRUCE_MECHANISM_JOURNAL
                                                                     : TRUCE_MECHANISM_AUTO});
}

static void sim_sync_declare(truce_sync *sync, const char *name, const char *source,
                             const char *dependent, const char *reference, bson_t *copies)
{
    truce_sync_rule rule = {.name = name,
                            .source = source,
                            .dependent = dependent,
                            .reference = reference,
                            .copies = copies};
    bson_error_t error;

    truce_assert(!truce_sync_declare(sync, &rule, &error));
    bson_destroy(copies);
}

static void sim_sync_insert(struct run *run, const char *collection, bson_t *document)
{
    bson_error_t error;

    truce_assert(!truce_insert(run->inner, collection, document, NULL, &error));
    bson_destroy(document);
}

static void sync_begin_sync(struct run *run)
{
    truce_sync *sync = sync_on(run->inner, false);

    sim_sync_insert(run, "users", BCON_NEW("_id", BCON_INT32(2), "name", BCON_INT32(0)));
    for (int i = 1; i <= COMMENTS; i++)
        sim_sync_insert(
            run, "comments",
            BCON_NEW("_id", BCON_INT32(i), "user", BCON_INT32(1), "author", BCON_INT32(0)));
    sim_sync_insert(
        run, "likes",
        BCON_NEW("_id", BCON_INT32(1), "comment", BCON_INT32(1), "author", BCON_INT32(0)));
    sim_sync_declare(sync, "author", "users", "comments", "user", BCON_NEW("author", "name"));
    sim_sync_declare(sync, "liked", "comments", "likes", "comment", BCON_NEW("author", "author"));
    truce_sync_free(sync);
}

/* ---- calling --------------------------------------------------------------------------------- */

struct renaming {
    truce_sync *sync;
    bson_value_t user;
    bson_t *update;
};

static truce_status sync_rename_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct renaming *renaming = arg;
    bson_value_t one = sync_number(1);
    bson_t *count = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = truce_sync_update(renaming->sync, commit, "users", &renaming->user,
                                            renaming->update, NULL, error);

    if (!status)
        status = truce_commit_update(commit, "renames", &one, NULL, count, error);
    bson_destroy(count);
    return status;
}

/* Renames a user, alone or in a commit that also counts. After a commit, reconciles the copies; a
 * failure is left to the end of the run. */
static truce_status rename_user(struct client *client, truce_sync *sync,
                                const struct sync_call *call, int name, bson_error_t *error)
{
    const truce_commit_options options = {
        .mechanism = client->script->journal ? TRUCE_MECHANISM_JOURNAL : TRUCE_MECHANISM_AUTO,
        .lease_ms = LEASE_MS,
        .deadline_ms = DEADLINE_MS};
    struct renaming renaming = {sync, sync_number(call->user),
                                BCON_NEW("$set", "{", "name", BCON_INT32(name), "}")};
    truce_status status;

    if (call->verb == RENAME)
        status =
            truce_sync_update(sync, NULL, "users", &renaming.user, renaming.update, NULL, error);
    else
        status = truce_transact(&client->store, sync_rename_in, &renaming, &options, error);
    bson_destroy(renaming.update);
    if (!status && call->verb == RENAME_IN_COMMIT)
        (void)!truce_sync_reconcile(sync, "users", &renaming.user, NULL, NULL);
    return status;
}

static truce_status move_or_add(truce_sync *sync, const struct sync_call *call, int txn,
                                bson_error_t *error)
{
    bson_value_t id = sync_number(call->comment);
    bson_t *document =
        call->verb == MOVE
            ? BCON_NEW("$set", "{", "user", BCON_INT32(call->user), "}")
            : BCON_NEW("_id", BCON_INT32(ADDED + txn), "user", BCON_INT32(call->user));
    truce_status status =
        call->verb == MOVE ? truce_sync_update(sync, NULL, "comments", &id, document, NULL, error)
                           : truce_sync_insert(sync, NULL, "comments", document, NULL, error);

    bson_destroy(document);
    return status;
}

/* Makes one call of the table with a handle of its own. A new name is the number of the call, plus
 * 1. */
static truce_status call_sync(struct client *client, int number_of_call, int txn,
                              bson_error_t *error)
{
    const struct sync_call *call = &sync_calls[number_of_call];
    truce_sync *sync = sync_on(&client->store, client->script->journal);
    bson_value_t comment = sync_number(call->comment), user = sync_number(call->user);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    bson_t document = BSON_INITIALIZER;
    truce_status status;

    if (call->verb <= RENAME_IN_COMMIT)
        status = rename_user(client, sync, call, txn + 1, error);
    else if (call->verb == READ)
        status = truce_sync_read(sync, "comments", &comment, &document, error);
    else if (call->verb == RECONCILE)
        status = truce_sync_reconcile(sync, "users", &user, NULL, error);
    else if (call->verb == REPAIR)
        status = truce_sync_walk(sync, "author", &repair, &report, error);
    else
        status = move_or_add(sync, call, txn, error);
    bson_destroy(&document);
    truce_sync_free(sync);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_user(struct run *run, int64_t id, int64_t *name, bool *flagged)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32((int32_t)id)), user;
    bson_error_t error;
    bool there = !truce_find_one(run->inner, "users", filter, NULL, &user, &error);

    *name = there ? truce__field_number(&user, "name") : -1;
    *flagged = there && bson_has_field(&user, "syncing");
    bson_destroy(&user);
    bson_destroy(filter);
    return there;
}

/* Checks each comment after a write of a user: its copy equals the name of its user, or one of the
 * two has a flag. */
static void observe_copies(struct run *run, const bson_t *document)
{
    truce_cursor *cursor = NULL;
    const bson_t *comment = NULL;
    bson_error_t error;

    (void)document;
    truce_assert(!truce_find(run->inner, "comments", NULL, NULL, &cursor, &error));
    while (!truce_cursor_next(cursor, &comment, &error) && comment) {
        int64_t name;
        bool flagged;

        if (!read_user(run, truce__field_number(comment, "user"), &name, &flagged))
            truce__sim_fail(run, "a comment belongs to no user", comment);
        else if (!flagged && !bson_has_field(comment, "unchecked") &&
                 truce__field_number(comment, "author") != name)
            truce__sim_fail(run, "a copy differs from its source without a flag", comment);
    }
    truce_cursor_close(cursor);
}

static void sync_settle_all(struct run *run, truce_sync *sync, const char *collection)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bson_error_t error;

    truce_assert(!truce_find(run->inner, collection, NULL, NULL, &cursor, &error));
    while (!truce_cursor_next(cursor, &document, &error) && document) {
        bson_value_t id = sync_number((int)truce__field_number(document, "_id"));

        if (truce_sync_reconcile(sync, collection, &id, NULL, &error))
            truce__sim_fail(run, "a flagged copy cannot be reconciled", document);
    }
    truce_cursor_close(cursor);
}

static void sim_check_rule(struct run *run, truce_sync *sync, const char *rule)
{
    truce_sync_report report;
    bson_error_t error;
    truce_status status = truce_sync_walk(sync, rule, NULL, &report, &error);
    bson_t *about = BCON_NEW("rule", BCON_UTF8(rule), "differ", BCON_INT64(report.differ),
                             "flagged", BCON_INT64(report.under_way));

    if (status || report.differ || report.under_way || report.orphans)
        truce__sim_fail(run, "a copy differs from its source at the end", about);
    bson_destroy(about);
}

/* Checks that the last name of a user was given by a call, or is the first one if no call was
 * acknowledged. */
static void sync_check_name(struct run *run, int user)
{
    bson_t *about;
    int64_t name;
    bool flagged, given = false, acknowledged = false;

    read_user(run, user, &name, &flagged);
    for (int t = 0; t < run->history.txns_count; t++) {
        const struct sync_call *call = &sync_calls[run->history.txns[t].script->call];

        if (call->verb > RENAME_IN_COMMIT || call->user != user)
            continue;
        given = given ||
                (name == t + 1 && (!run->patterns.calls[t].known || run->patterns.calls[t].in));
        acknowledged = acknowledged || (run->patterns.calls[t].known && run->patterns.calls[t].in);
    }
    about = BCON_NEW("user", BCON_INT32(user), "name", BCON_INT64(name));
    if (name ? !given : acknowledged)
        truce__sim_fail(run, "a user has a name that no call gave", about);
    bson_destroy(about);
}

static void sim_check_sync(struct run *run, const bson_t *document)
{
    truce_sync *sync = sync_on(run->inner, false);

    (void)document;
    sync_settle_all(run, sync, "users");
    sync_settle_all(run, sync, "comments");
    sync_settle_all(run, sync, "users");
    sim_check_rule(run, sync, "author");
    sim_check_rule(run, sync, "liked");
    for (int user = 1; user <= USERS; user++)
        sync_check_name(run, user);
    truce_sync_free(sync);
}

const struct sim_pattern truce__sim_sync = {
    .collection = "users",
    .document = "{\"_id\": 1, \"name\": 0}",
    .other = "renames",
    .calls = sizeof sync_calls / sizeof *sync_calls,
    .positions = 1,
    .begin = sync_begin_sync,
    .call = call_sync,
    .observe = observe_copies,
    .check = sim_check_sync,
};
