/*
 * A user with all permissions in the database "school", and none in other databases, sends every
 * command. Each field of it is changed to a name of another database's data. No answer contains any
 * of that data, and all of it stays unchanged.
 */
#include <stdlib.h>
#include <string.h>

#include "server/auth/users.h"
#include "tests/support/changed_bson.h"
#include "tests/support/each_operation.h"
#include "tests/support/sample_commands.h"
#include "tests/support/still_calls.h"

#define SECRET "xyzzy"

/* In the server's own database, and in another one. */
static const char *const secrets[] = {
    "{insert: 'secrets', documents: [{_id: 's', n: 9, word: '" SECRET "'}]}",
    "{insert: 'secrets', documents: [{_id: 's', n: 9, word: '" SECRET "'}], $db: 'other'}",
    "{createIndexes: 'secrets', indexes: [{key: {n: 1}, name: 'n'}], $db: 'other'}",
    "{create: 'seen', viewOn: 'secrets', pipeline: [], $db: 'other'}",
    "{truceEnqueue: 'hidden', payload: {word: '" SECRET
    "'}, id: {$oid: '0123456789abcdef0123456b'}, unique: '" SECRET "'}",
    "{truceEnqueue: 'hidden', payload: {word: '" SECRET "'}, $db: 'other'}",
    "{truceCommit: [{insert: 'secrets', with: {_id: 't', word: '" SECRET
    "'}}], key: 'hidden', keyTime: 1700000000000, leave: "
    "{word: '" SECRET "'}, $db: 'other'}",
    "{truceRequest: 'hidden', name: 'mail', input: {word: '" SECRET "'}, $db: 'other'}",
    "{truceRevision: 'secrets', save: {_id: 'r', word: '" SECRET "'}, keep: 5, $db: 'other'}",
    "{truceLedgerOpen: 'hidden', currency: 'EUR', digits: 2, account: 'cash', $db: 'other'}",
    "{truceLedgerOpen: 'hidden', currency: 'EUR', digits: 2, account: 'sales', $db: 'other'}",
    "{truceLedgerPost: 'hidden', id: 'p', entries: [{account: 'cash', value: 1}, {account: 'sales', value: -1}], meta: {word: '" SECRET
    "'}, $db: 'other'}",
    "{truceSet: 'secrets', key: {_id: 'set'}, field: 'words', name: 'name', add: {name: '" SECRET
    "'}, seq: 1, $db: 'other'}",
    "{truceTreePublish: 'hidden', collection: 'leaves', changes: [{put: {itemId: 'home', word: '" SECRET
    "'}}], $db: 'other'}",
    "{truceTransfer: 'hidden', id: 1, entries: [{collection: 'secrets', id: 's', effect: {$inc: {n: 1}}}], meta: {word: '" SECRET
    "'}, $db: 'other'}",
};

/* With the right name in one field each of these shows the secret, or changes it. */
static const char *const plain[] = {
    "{find: 'c'}",
    "{find: 'c', filter: {_id: 's'}}",
    "{aggregate: 'c', pipeline: [], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$unionWith: 'c'}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$unionWith: {coll: 'c', pipeline: [{$unionWith: 'c'}]}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$facet: {a: [{$lookup: {from: 'c', pipeline: [], as: 'x'}}]}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$graphLookup: {from: 'c', startWith: 's', connectFromField: '_id', connectToField: '_id', as: 'x'}}], cursor: {}}",
    "{distinct: 'c', key: 'word'}",
    "{explain: {find: 'c', filter: {}}, verbosity: 'executionStats'}",
    "{create: 'through', viewOn: 'c', pipeline: [{$unionWith: 'c'}]}",
    "{collMod: 'through', viewOn: 'c', pipeline: []}",
    "{find: 'through'}",
    "{listIndexes: 'c'}",
    "{truceRevision: 'c', get: 'r'}",
    "{truceJobs: 'mail'}",
    "{truceJobs: 'mail', id: {$oid: '0123456789abcdef0123456b'}}",
    "{truceClaim: 'mail', most: 5}",
    "{truceCommitShow: 'c'}",
    "{truceCommitResult: 'c'}",
    "{truceRequestState: 'c'}",
    "{truceSet: 'c', key: {_id: 'set'}, field: 'words', name: 'name', show: true}",
    "{truceTreeRead: 'site'}",
    "{truceTreeLog: 'site'}",
    "{truceTransferShow: 'transactions', id: 1}",
    "{truceTransfers: 'transactions'}",
    "{truceLedgerStatement: 'bank', account: 'cash'}",
    "{truceItem: 'c', filter: {_id: 's'}, field: 'words', identity: 'name', upsert: {name: 'z'}}",
    "{truceCommit: [{update: 'c', id: 's', with: {$set: {z: 1}}}]}",
    "{truceQueues: 1}",
    "{truceDoctor: 1}",
    "{truceCheck: 1}",
    "{findAndModify: 'c', query: {}, update: {$set: {z: 1}}}",
    "{update: 'c', updates: [{q: {}, u: {$set: {z: 1}}, multi: true}]}",
    "{bulkWrite: 1, ops: [{update: 0, filter: {}, updateMods: {$set: {z: 1}}, multi: true}], nsInfo: [{ns: 'school.c'}], $db: 'admin'}",
    "{delete: 'c', deletes: [{q: {}, limit: 0}]}",
    "{renameCollection: 'school.c', to: 'school.d', dropTarget: true, $db: 'admin'}",
    "{drop: 'c'}",
    "{dropDatabase: 1}",
};

/* The values that replace a field. */
static const char *const names[] = {
    "'test'",
    "'other'",
    "'admin'",
    "'local'",
    "'config'",
    "'secrets'",
    "'other.secrets'",
    "'test.secrets'",
    "'@other.secrets'",
    "'@test.secrets'",
    "'hidden'",
    "'@other.hidden'",
    "'truce_queue'",
    "'truce_commits'",
    "'truce_users'",
    "'truce_trees'",
    "'@other.leaves'",
    "'system.views'",
    "'system.users'",
    "'seen'",
    "'@other.system.views'",
    "'../other'",
    "'other\\u0000'",
    "'s'",
    "'r'",
    "1",
    "{}",
    "[]",
    "true",
    "{db: 'other', coll: 'secrets'}",
    "{db: 'test', coll: 'secrets'}",
    "{db: 'admin', coll: 'truce_users'}",
    "[{$match: {}}]",
    "[{$unionWith: {db: 'other', coll: 'secrets'}}]",
    "[{$lookup: {from: {db: 'other', coll: 'secrets'}, pipeline: [], as: 'x'}}]",
    "[{$unionWith: '@other.secrets'}]",
    "[{$merge: {into: {db: 'other', coll: 'secrets'}}}]",
    "[{$out: {db: 'other', coll: 'secrets'}}]",
    "{$oid: '0123456789abcdef0123456b'}",
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- data of other databases ----------------------------------------------------------------- */

/* All documents except those of "school", one after the other. */
static void elsewhere(truce_store *store, struct buffer *all)
{
    bson_t collections, none = BSON_INITIALIZER, *by_id = BCON_NEW("_id", BCON_INT32(1));
    truce_find_options options = {.sort = by_id};
    bson_error_t error = {0};
    bson_iter_t iter, inner;

    CHECK_OK(truce_collection_list(store, NULL, &collections, &error), error);
    if (bson_iter_init(&iter, &collections))
        while (bson_iter_next(&iter)) {
            truce_cursor *cursor = NULL;
            const bson_t *document = NULL;
            const char *name;

            REQUIRE(bson_iter_recurse(&iter, &inner) && bson_iter_find(&inner, "name"));
            name = bson_iter_utf8(&inner, NULL);
            if (!strncmp(name, "@school.", 8))
                continue;
            CHECK_OK(truce_find(store, name, &none, &options, &cursor, &error), error);
            while (!truce_cursor_next(cursor, &document, &error) && document)
                truce__buffer_append(all, bson_get_data(document), document->len);
            truce_cursor_close(cursor);
        }
    bson_destroy(&collections);
    bson_destroy(by_id);
}

/* Checks that each earlier document still exists, byte for byte; documents of "school" may be among
 * them. */
static void check_elsewhere(const struct buffer *was, const struct buffer *is)
{
    for (size_t at = 0; at < was->size;) {
        uint32_t length;

        memcpy(&length, was->bytes + at, sizeof length);
        if (!memmem(is->bytes, is->size, was->bytes + at, length)) {
            bson_t document;
            char *text;

            REQUIRE(bson_init_static(&document, was->bytes + at, length));
            text = bson_as_relaxed_extended_json(&document, NULL);
            test_fail(__FILE__, __LINE__, "it was changed: %s", text);
            bson_free(text);
        }
        at += length;
    }
}

/* ---- the client ------------------------------------------------------------------------------ */

static void add_owner(truce_store *store, const char *database)
{
    static const char *const roles[] = {"readWrite", "dbAdmin"};
    struct grants *grants = bson_malloc0(sizeof *grants);
    struct user_facts facts = {.name = "owner",
                               .database = "admin",
                               .password = "owner",
                               .mechanisms = USER_MECHANISMS,
                               .grants = grants};
    bson_error_t error = {0};

    grants->count = COUNT(roles);
    for (size_t i = 0; i < COUNT(roles); i++) {
        grants->all[i].role = role_of(roles[i], database);
        REQUIRE(grants->all[i].role >= 0);
        snprintf(grants->all[i].database, sizeof grants->all[i].database, "%s", database);
    }
    CHECK_OK(users_add(store, &facts, &error), error);
    bson_free(grants);
}

/* As if it had given its password. */
static void log_in(void)
{
    bson_error_t error = {0};
    bson_t document;

    if (connection.login.user)
        return;
    connection.login.user = bson_malloc0(sizeof *connection.login.user);
    CHECK_OK(users_read(server->store, "admin", "owner", &document, &error), error);
    CHECK(users_load(&document, connection.login.user));
    snprintf(connection.login.tag, sizeof connection.login.tag, "admin.owner");
    bson_destroy(&document);
}

/* ---- the commands ---------------------------------------------------------------------------- */

static const char *own;      /* the client's database */
static bool unauthenticated; /* the client has no permission here */
static int64_t seen;

static void look(const bson_t *command, const bson_t *reply)
{
    if (!memmem(bson_get_data(reply), reply->len, SECRET, strlen(SECRET)))
        return;
    seen++;
    if (unauthenticated)
        fail_answer(command, reply);
}

static void send(const bson_t *command)
{
    bson_t reply;

    log_in();
    answer(command, &reply);
    look(command, &reply);
    bson_destroy(&reply);
}

static void send_with_names(const bson_t *command)
{
    uint32_t places = bson_places(command);

    for (size_t i = 0; i < COUNT(names); i++) {
        char *json = bson_strdup_printf("{name: %s}", names[i]);
        bson_t *holder = command_of(json);
        bson_iter_t name;

        truce_assert(bson_iter_init_find(&name, holder, "name"));
        for (uint32_t at = 0; at < places; at++) {
            bson_t *changed = bson_replaced(command, at, bson_iter_value(&name));

            send(changed);
            bson_destroy(changed);
        }
        bson_destroy(holder);
        bson_free(json);
    }
}

/* Sends the command to the user's own database, and to others. */
static void try_command(const char *json)
{
    static const char *const databases[] = {"school", "test", "other", "admin"};
    bson_t *given = command_of(json);

    for (size_t i = 0; i < COUNT(databases); i++) {
        bson_t command = BSON_INITIALIZER;

        bson_copy_to_excluding_noinit(given, &command, "$db", NULL);
        BSON_APPEND_UTF8(&command, "$db", databases[i]);
        send(&command);
        if (!strcmp(databases[i], own) || !strcmp(databases[i], "admin"))
            send_with_names(&command);
        bson_destroy(&command);
    }
    bson_destroy(given);
}

/* The owner of that database sends them all. */
static void send_all(const char *database)
{
    struct buffer was = {0}, is = {0};
    truce_store *store = still_store();

    still_connect(still_serve(store, NULL));
    for (size_t i = 0; i < COUNT(secrets); i++)
        must(secrets[i]);
    server_stop(server, 1000);
    own = database;
    add_owner(store, database);
    elsewhere(store, &was);
    still_connect(still_serve(store, &(struct server_options){.auth = true}));
    for (size_t i = 0; i < COUNT(plain); i++)
        try_command(plain[i]);
    for (size_t i = 0; i < COUNT(built); i++)
        try_command(built[i]);
    for (size_t i = 0; i < COUNT(samples); i++)
        try_command(samples[i].command);
    EACH_OPERATION(pattern)
    {
        try_command(pattern->example);
    }
    elsewhere(store, &is);
    if (unauthenticated)
        check_elsewhere(&was, &is);
    still_end();
    truce__buffer_release(&was);
    truce__buffer_release(&is);
}

TEST(confines_a_user_of_one_database_to_it)
{
    unauthenticated = true;
    seen = 0;
    send_all("school");
    CHECK_INT(seen, ==, 0);
}

/* Else the others saw nothing because nothing was shown. */
TEST(shows_data_to_a_user_with_permission)
{
    unauthenticated = false;
    seen = 0;
    send_all("other");
    CHECK_INT(seen, >, 20);
}
