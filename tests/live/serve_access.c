/*
 * Permissions in a server that asks for passwords: logins and their errors, roles, and the cursors
 * and transactions of a user. The clients are raw sockets; tests/servers/access.py tests drivers.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/auth/users.h"
#include "server/command/serve_pattern_operations.h"
#include "server/commands.h"
#include "server/net/compress.h"
#include "store/reserved_names.h"
#include "tests/support/each_operation.h"
#include "tests/support/kept_log.h"
#include "tests/support/scram_client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

#define HOUR_MS 3600000

/* "read school", or "" for none; the password is the name. */
static void add_user(const char *name, const char *role, const char *database)
{
    struct grants *grants = bson_malloc0(sizeof *grants);
    struct user_facts facts = {.name = name,
                               .database = "admin",
                               .password = name,
                               .mechanisms = USER_MECHANISMS,
                               .grants = grants};
    bson_error_t error;

    if (role) {
        grants->count = 1;
        grants->all[0].role = role_of(role, database);
        REQUIRE(grants->all[0].role >= 0);
        snprintf(grants->all[0].database, sizeof grants->all[0].database, "%s", database);
    }
    REQUIRE(!users_add(store, &facts, &error));
    bson_free(grants);
}

static void serve(bool auth, int64_t delay_ms)
{
    struct server_options options = {.auth = auth,
                                     .login_delay_ms = delay_ms,
                                     .log = kept_log_new(),
                                     .connections_max = 300,
                                     .test_commands = true};
    bson_error_t error = {0};

    REQUIRE(!server_start(store, &options, &server, &error));
}

static void begin(void)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    add_user("root", "root", "admin");
    serve(true, 1);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
    kept_log_free();
}

/* The code of the answer on that connection, 0 for ok. */
static int64_t code_on(int end_, const char *json)
{
    bson_t *reply = ask_on(end_, json, 0);
    int64_t code = reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code");

    if (reply)
        bson_destroy(reply);
    return code;
}

static void expect_on(int end_, const char *json, int64_t code)
{
    bson_t *reply = ask_on(end_, json, 0);
    int64_t got = reply_number(reply, "ok") == 1 ? 0 : reply_number(reply, "code");

    if (got != code) {
        char *text = reply ? bson_as_relaxed_extended_json(reply, NULL) : bson_strdup("nothing");

        test_fail(__FILE__, __LINE__, "%s: %lld, not %lld: %s", json, (long long)got,
                  (long long)code, text);
        bson_free(text);
    }
    if (reply)
        bson_destroy(reply);
}

/* ---- starting ------------------------------------------------------------------------------- */

TEST(refuses_to_start_without_users_or_open_on_a_network)
{
    const struct server_options auth = {.auth = true}, open = {.address = "0.0.0.0"};
    const struct server_options both = {.auth = true, .address = "0.0.0.0"};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    CHECK_INT(server_start(store, &auth, &server, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, "truce user add") != NULL);
    CHECK_INT(server_start(store, &open, &server, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, "--auth") != NULL);
    CHECK_INT(server_start(store, &both, &server, &error), ==, TRUCE_INVALID);
    add_user("root", "root", "admin");
    CHECK_INT(server_start(store, &open, &server, &error), ==, TRUCE_INVALID);
    REQUIRE(!server_start(store, &both, &server, &error));
    CHECK_INT(code_on(dial_as("root", "root"), "{'find': 'x', '$db': 'test'}"), ==, 0);
    end();
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Returns whether the command needs no login. Add every new command of this kind here. */
static bool is_for_all(const char *name)
{
    static const char *const names[] = {
        "hello",        "isMaster",         "ismaster",    "ping",         "buildInfo",
        "buildinfo",    "connectionStatus", "whatsmyuri",  "saslStart",    "saslContinue",
        "getLastError", "getlasterror",     "endSessions", "listCommands", "logout"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

TEST(declares_permissions_of_every_command_and_requires_a_login)
{
    int end_;

    begin();
    end_ = dial();
    for (const struct command *command = server_commands.commands; command->name; command++) {
        char *json = bson_strdup_printf("{'%s': 'x', '$db': 'admin'}", command->name);
        int64_t code;

        CHECK(command->need.kind != NEED_REFUSED);
        CHECK((command->need.kind == NEED_NOTHING) == is_for_all(command->name));
        code = is_for_all(command->name) ? 0 : code_on(end_, json);
        if (!is_for_all(command->name) && code != CODE_UNAUTHORIZED)
            test_fail(__FILE__, __LINE__, "%s without a login: %lld", command->name,
                      (long long)code);
        bson_free(json);
    }
    close(end_);
    end();
}

TEST(requires_a_login_for_patterns_except_their_help)
{
    int end_;

    begin();
    end_ = dial();
    EACH_OPERATION(pattern)
    {
        const struct need *need = &row_command(pattern)->need;
        char *json = bson_strdup_printf("{'%s': 1, '$db': 'school'}", pattern->name);

        if (pattern == &truce_help_operation) {
            CHECK_INT(need->kind, ==, NEED_NOTHING);
        } else if (group->rows == maintenance_operations) {
            CHECK_INT(need->kind, ==, NEED_SERVER);
            CHECK(need->actions == ACTION_SERVER || need->actions == ACTION_KILL);
            expect_on(end_, json, CODE_UNAUTHORIZED);
        } else {
            CHECK_INT(need->kind, ==, NEED_DATABASE);
            CHECK(need->actions == ACTION_FIND || need->actions == (ACTION_FIND | ACTION_WRITE));
            expect_on(end_, json, CODE_UNAUTHORIZED);
        }
        bson_free(json);
    }
    close(end_);
    end();
}

/* Otherwise the role would be one of another database. */
TEST(refuses_a_role_without_its_database)
{
    static const char *const wrong[] = {
        "{'role': 'readWrite'}",
        "{'role': 'readWrite', 'bd': 'school'}",
        "{'role': 'readWrite', 'db': 1}",
        "{'role': 'readWrite', 'db': 'school', 'x': 1}",
        "{'role': 'readWrite', 'db': 'school', 'db': 'other'}",
        "{'db': 'school'}",
        "{'role': 1, 'db': 'school'}",
        "{}",
        "1",
    };
    static const char *const forms[] = {
        "{'createUser': 'eve', 'pwd': 'eve', 'roles': [%s], '$db': 'admin'}",
        "{'updateUser': 'root', 'roles': [{'role': 'root', 'db': 'admin'}, %s], '$db': 'admin'}",
        "{'grantRolesToUser': 'root', 'roles': [%s], '$db': 'admin'}",
        "{'revokeRolesFromUser': 'root', 'roles': [%s], '$db': 'admin'}",
    };
    int root;

    begin();
    root = dial_as("root", "root");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t j = 0; j < sizeof forms / sizeof *forms; j++) {
            char text[300];

            snprintf(text, sizeof text, forms[j], wrong[i]);
            expect_on(root, text, CODE_BAD_VALUE);
        }
    expect_on(root, "{'usersInfo': {'user': 'root'}, '$db': 'admin'}", CODE_BAD_VALUE);
    expect_on(root, "{'usersInfo': {'user': 'root', 'bd': 'x'}, '$db': 'admin'}", CODE_BAD_VALUE);
    expect_on(root, "{'rolesInfo': {'role': 'read'}, '$db': 'admin'}", CODE_BAD_VALUE);
    close(root);
    end();
}

/* All commands refuse a user without roles, except those that need no role or check permissions
 * themselves. */
TEST(a_user_without_roles_may_do_nothing)
{
    int end_;

    begin();
    add_user("nobody", NULL, NULL);
    end_ = dial_as("nobody", "nobody");
    for (const struct command *command = server_commands.commands; command->name; command++) {
        char *json = bson_strdup_printf("{'%s': 'x', '$db': 'school'}", command->name);

        if (command->need.kind > NEED_LOGIN && command->need.kind != NEED_INNER)
            expect_on(end_, json, CODE_UNAUTHORIZED);
        bson_free(json);
    }
    EACH_OPERATION(pattern)
    {
        char *json = bson_strdup_printf("{'%s': 'x', '$db': 'school'}", pattern->name);

        if (pattern != &truce_help_operation)
            expect_on(end_, json, CODE_UNAUTHORIZED);
        bson_free(json);
    }
    expect_on(end_, "{'explain': {'find': 'x'}, '$db': 'school'}", 13);
    expect_on(end_, "{'explain': {'count': 'x'}, '$db': 'school'}", 13);
    expect_on(end_, "{'explain': {'explain': {'find': 'x'}}, '$db': 'school'}", 115);
    expect_on(end_, "{'renameCollection': 'school.x', 'to': 'school.y', '$db': 'admin'}", 13);
    expect_on(end_, "{'usersInfo': 1, '$db': 'admin'}", 13);
    expect_on(end_, "{'usersInfo': 'root', '$db': 'admin'}", 13);
    expect_on(end_, "{'usersInfo': 'nobody', '$db': 'admin'}", 0);
    expect_on(end_, "{'usersInfo': {'forAllDBs': true}, '$db': 'admin'}", 13);
    expect_on(end_, "{'rolesInfo': 1, '$db': 'admin'}", 13);
    expect_on(end_, "{'rolesInfo': 'root', '$db': 'admin'}", 13);
    expect_on(end_, "{'getMore': {'$numberLong': '5'}, 'collection': 'x', '$db': 'school'}", 13);
    close(end_);
    end();
}

/* ---- roles ---------------------------------------------------------------------------------- */

/* One user for each role, granted on school (those of all databases on admin). */
static const struct {
    const char *role, *database;
} people[] = {{"read", "school"},
              {"readWrite", "school"},
              {"dbAdmin", "school"},
              {"userAdmin", "school"},
              {"dbOwner", "school"},
              {"readAnyDatabase", "admin"},
              {"readWriteAnyDatabase", "admin"},
              {"dbAdminAnyDatabase", "admin"},
              {"userAdminAnyDatabase", "admin"},
              {"clusterMonitor", "admin"},
              {"root", "admin"}};

enum { PEOPLE = sizeof people / sizeof *people };

#define READ     (1 << 0)
#define WRITE    (1 << 1)
#define ADMIN    (1 << 2)
#define USERS    (1 << 3)
#define OWNER    (1 << 4)
#define ANYREAD  (1 << 5)
#define ANYWRITE (1 << 6)
#define ANYADMIN (1 << 7)
#define ANYUSERS (1 << 8)
#define MONITOR  (1 << 9)
#define ROOT     (1 << 10)

#define READERS  (READ | WRITE | OWNER | ANYREAD | ANYWRITE | ROOT)
#define WRITERS  (WRITE | OWNER | ANYWRITE | ROOT)
#define SHAPERS  (WRITERS | ADMIN | ANYADMIN)
#define KEEPERS  (ADMIN | OWNER | ANYADMIN | ROOT)
#define GRANTERS (USERS | OWNER | ANYUSERS | ROOT)
#define ALL      ((1 << PEOPLE) - 1)

static const struct {
    const char *command;
    int allowed;
} rights[] = {
    {"{'find': 'x', '$db': 'school'}", READERS},
    {"{'aggregate': 'x', 'pipeline': [], 'cursor': {}, '$db': 'school'}", READERS},
    {"{'count': 'x', '$db': 'school'}", READERS},
    {"{'distinct': 'x', 'key': 'a', '$db': 'school'}", READERS},
    {"{'explain': {'find': 'x'}, '$db': 'school'}", READERS},
    {"{'find': 'x', '$db': 'other'}", ANYREAD | ANYWRITE | ROOT},
    {"{'find': 'x', '$db': 'config'}", ROOT},
    {"{'insert': 'x', 'documents': [{}], '$db': 'school'}", WRITERS},
    {"{'insert': 'x', 'documents': [{}], 'bypassDocumentValidation': true, '$db': 'school'}",
     OWNER | ROOT},
    {"{'insert': 'x', 'documents': [{}], '$db': 'other'}", ANYWRITE | ROOT},
    {"{'update': 'x', 'updates': [{'q': {}, 'u': {'$set': {'a': 1}}}], '$db': 'school'}", WRITERS},
    {"{'delete': 'x', 'deletes': [{'q': {}, 'limit': 1}], '$db': 'school'}", WRITERS},
    {"{'findAndModify': 'x', 'query': {}, 'remove': true, '$db': 'school'}", WRITERS},
    {"{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns': 'school.x'}],"
     " '$db': 'admin'}",
     WRITERS},
    {"{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns': 'school.x'}],"
     " 'bypassDocumentValidation': true, '$db': 'admin'}",
     OWNER | ROOT},
    {"{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}, {'delete': 1, 'filter': {}}],"
     " 'nsInfo': [{'ns': 'school.x'}, {'ns': 'other.x'}], '$db': 'admin'}",
     ANYWRITE | ROOT},
    {"{'aggregate': 'x', 'pipeline': [{'$out': 'y'}], 'cursor': {}, '$db': 'school'}", WRITERS},
    {"{'aggregate': 'x', 'pipeline': [{'$merge': 'y'}], 'cursor': {}, '$db': 'school'}", WRITERS},
    {"{'aggregate': 'x', 'pipeline': [{'$merge': 'y'}], 'cursor': {}, 'bypassDocumentValidation': true,"
     " '$db': 'school'}",
     OWNER | ROOT},
    {"{'aggregate': 'x', 'pipeline': [], 'cursor': {}, 'bypassDocumentValidation': true,"
     " '$db': 'school'}",
     READERS},
    {"{'aggregate': 'x', 'pipeline': [{'$merge': {'into': {'db': 'other', 'coll': 'y'}}}],"
     " 'cursor': {}, '$db': 'school'}",
     ANYWRITE | ROOT},
    {"{'aggregate': 'x', 'pipeline': [{'$out': {'db': 'other', 'coll': 'y'}}], 'cursor': {},"
     " '$db': 'school'}",
     ANYWRITE | ROOT},
    {"{'aggregate': 'x', 'pipeline': [{'$unionWith': {'coll': 'y', 'pipeline': [{'$lookup':"
     " {'from': {'db': 'other', 'coll': 'z'}, 'pipeline': [], 'as': 'a'}}]}}], 'cursor': {},"
     " '$db': 'school'}",
     ANYREAD | ANYWRITE | ROOT},
    {"{'aggregate': 'x', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': 'school'}",
     READERS},
    {"{'aggregate': 1, 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': 'school'}",
     READERS},
    {"{'aggregate': 1, 'pipeline': [{'$changeStream': {'allChangesForCluster': true}}], 'cursor': {},"
     " '$db': 'admin'}",
     ANYREAD | ANYWRITE | ROOT},
    {"{'logRotate': 1, '$db': 'admin'}", ROOT},
    {"{'top': 1, '$db': 'admin'}", MONITOR | ROOT},
    {"{'connPoolStats': 1, '$db': 'admin'}", MONITOR | ROOT},
    {"{'createIndexes': 'x', 'indexes': [{'key': {'a': 1}, 'name': 'a'}], '$db': 'school'}",
     SHAPERS},
    {"{'listIndexes': 'x', '$db': 'school'}", READERS | KEEPERS | MONITOR},
    {"{'listCollections': 1, '$db': 'school'}", READERS | KEEPERS | MONITOR},
    {"{'collStats': 'x', '$db': 'school'}", READERS | KEEPERS | MONITOR},
    {"{'dbStats': 1, '$db': 'school'}", READERS | KEEPERS | MONITOR},
    {"{'collMod': 'x', '$db': 'school'}", KEEPERS},
    {"{'renameCollection': 'school.x', 'to': 'school.x2', '$db': 'admin'}", SHAPERS},
    {"{'renameCollection': 'school.x2', 'to': 'school.x', '$db': 'admin'}", SHAPERS},
    {"{'renameCollection': 'school.x', 'to': 'other.x', '$db': 'admin'}", ANYWRITE | ROOT},
    {"{'renameCollection': 'other.x', 'to': 'school.x', '$db': 'admin'}", ANYWRITE | ROOT},
    {"{'drop': 'gone', '$db': 'school'}", SHAPERS},
    {"{'dropDatabase': 1, '$db': 'gone'}", ANYADMIN | ROOT},
    {"{'createUser': 'new', 'pwd': 'x', 'roles': [], '$db': 'school'}", GRANTERS},
    {"{'updateUser': 'new', 'customData': {}, '$db': 'school'}", GRANTERS},
    {"{'grantRolesToUser': 'new', 'roles': ['read'], '$db': 'school'}", GRANTERS},
    {"{'grantRolesToUser': 'new', 'roles': [{'role': 'root', 'db': 'admin'}], '$db': 'school'}",
     ANYUSERS | ROOT},
    {"{'createUser': 'two', 'pwd': 'x', 'roles': [{'role': 'root', 'db': 'admin'}],"
     " '$db': 'school'}",
     ANYUSERS | ROOT},
    {"{'updateUser': 'new', 'roles': [{'role': 'read', 'db': 'other'}], '$db': 'school'}",
     ANYUSERS | ROOT},
    {"{'revokeRolesFromUser': 'new', 'roles': ['read'], '$db': 'school'}", GRANTERS},
    {"{'createToken': 'new', '$db': 'school'}", GRANTERS},
    {"{'tokensInfo': 'new', '$db': 'school'}", GRANTERS},
    {"{'revokeToken': 'new', 'id': 'none', '$db': 'school'}", GRANTERS},
    {"{'usersInfo': 1, '$db': 'school'}", GRANTERS},
    {"{'usersInfo': 1, 'showCredentials': true, '$db': 'school'}", ANYUSERS | ROOT},
    {"{'usersInfo': {'forAllDBs': true}, '$db': 'school'}", ANYUSERS | ROOT},
    {"{'rolesInfo': 1, '$db': 'school'}", GRANTERS},
    {"{'dropUser': 'new', '$db': 'school'}", GRANTERS},
    {"{'dropAllUsersFromDatabase': 1, '$db': 'school'}", GRANTERS},
    {"{'serverStatus': 1, '$db': 'admin'}", MONITOR | ROOT},
    {"{'getParameter': '*', '$db': 'admin'}", MONITOR | ROOT},
    {"{'getLog': 'global', '$db': 'admin'}", MONITOR | ROOT},
    {"{'setParameter': 1, 'transactionLifetimeLimitSeconds': 60, '$db': 'admin'}", ROOT},
    {"{'profile': -1, '$db': 'school'}", KEEPERS},
    {"{'compact': 'x', '$db': 'school'}", KEEPERS},
    {"{'dataSize': 'school.x', '$db': 'school'}", READERS},
    {"{'dataSize': 'other.x', '$db': 'school'}", ANYREAD | ANYWRITE | ROOT},
    {"{'filemd5': 1, 'root': 'none', '$db': 'school'}", READERS},
    {"{'fsync': 1, '$db': 'admin'}", ROOT},
    {"{'shutdown': 1, '$db': 'admin'}", ROOT},
    {"{'killAllSessions': [], '$db': 'admin'}", ROOT},
    {"{'configureFailPoint': 'failCommand', 'mode': 'off', '$db': 'admin'}", ROOT},
    {"{'listDatabases': 1, '$db': 'admin'}", ALL},
    {"{'connectionStatus': 1, 'showPrivileges': true, '$db': 'admin'}", ALL},
    /* the patterns */
    {"{'truceCommit': [{'missing': 'x', 'id': 'none'}], '$db': 'school'}", WRITERS},
    {"{'truceCommitResult': 'k', '$db': 'school'}", READERS},
    {"{'truceCommitShow': 'k', '$db': 'school'}", READERS},
    {"{'truceRequest': 'k', 'name': 'f', '$db': 'school'}", WRITERS},
    {"{'truceRequestState': 'k', '$db': 'school'}", READERS},
    {"{'truceSequence': 's', '$db': 'school'}", READERS},
    {"{'truceSequence': 's', 'take': 1, '$db': 'school'}", WRITERS},
    {"{'truceSequence': 's', 'take': 1, '$db': 'other'}", ANYWRITE | ROOT},
    {"{'truceSet': 'x', 'key': {'k': 1}, 'field': 'f', 'name': 'n', '$db': 'school'}", READERS},
    {"{'truceSet': 'x', 'key': {'k': 1}, 'field': 'f', 'name': 'n', 'add': {'n': 1}, 'seq': 1,"
     " '$db': 'school'}",
     WRITERS},
    {"{'truceSetSource': 'x', 'key': 'k', 'field': 'f', 'name': 'n', 'start': true,"
     " '$db': 'school'}",
     WRITERS},
    {"{'truceSetCollect': 'x', 'key': 'k', 'field': 'f', 'name': 'n', '$db': 'school'}", READERS},
    {"{'truceSetCollect': 'x', 'key': 'k', 'field': 'f', 'name': 'n', 'collect': true,"
     " '$db': 'school'}",
     WRITERS},
    {"{'truceEnqueue': 'q', 'payload': {}, '$db': 'school'}", WRITERS},
    {"{'truceJobs': 'q', '$db': 'school'}", READERS},
    {"{'truceQueues': 1, '$db': 'school'}", READERS},
    {"{'truceQueue': 'q', 'action': 'resume', '$db': 'school'}", WRITERS},
    {"{'truceClaim': 'none', '$db': 'school'}", WRITERS},
    {"{'truceClaim': 'none', '$db': 'other'}", ANYWRITE | ROOT},
    {"{'truceRevision': 'x', 'get': 1, '$db': 'school'}", READERS},
    {"{'truceRevision': 'x', 'save': {'_id': 'r'}, '$db': 'school'}", WRITERS},
    {"{'truceConflicts': 'x', '$db': 'school'}", READERS},
    {"{'truceResolve': 'x', 'conflict': {'$oid': '0123456789abcdef01234567'}, 'take': 'mine',"
     " '$db': 'school'}",
     WRITERS},
    {"{'truceItem': 'x', 'filter': {'_id': 'none'}, 'field': 'f', 'identity': 'i', 'remove': true,"
     " 'query': {}, '$db': 'school'}",
     WRITERS},
    {"{'truceLedgerOpen': 'l', 'currency': 'EUR', 'digits': 2, '$db': 'school'}", WRITERS},
    {"{'truceLedgerOpen': 'l', 'currency': 'EUR', 'digits': 2, 'account': 'a', '$db': 'school'}",
     WRITERS},
    {"{'truceLedgerPost': 'l', 'id': 1, 'entries': [{'account': 'a', 'value': 1}, {'account': 'a',"
     " 'value': -1}], '$db': 'school'}",
     WRITERS},
    {"{'truceLedgerBalance': 'l', 'account': 'a', '$db': 'school'}", READERS},
    {"{'truceLedgerStatement': 'l', 'account': 'a', '$db': 'school'}", READERS},
    {"{'truceTreePublish': 't', 'collection': 'pages', 'changes': [], '$db': 'school'}", WRITERS},
    {"{'truceTreeRead': 't', '$db': 'school'}", READERS},
    {"{'truceTreeLog': 't', '$db': 'school'}", READERS},
    {"{'truceTreeDiff': 't', 'from': 0, 'to': 0, '$db': 'school'}", READERS},
    {"{'truceTree': 't', '$db': 'school'}", READERS},
    {"{'truceTree': 't', 'untag': 'x', '$db': 'school'}", WRITERS},
    {"{'truceTree': 't', 'erase': 'x', '$db': 'other'}", ANYWRITE | ROOT},
    {"{'truceTransfer': 'm', 'id': 1, 'source': 1, 'destination': 2, 'amount': 1, 'accounts': 'x',"
     " '$db': 'school'}",
     WRITERS},
    {"{'truceTransferShow': 'm', 'id': 1, '$db': 'school'}", READERS},
    {"{'truceTransfers': 'm', '$db': 'school'}", READERS},
    {"{'truceTransferResume': 'm', 'id': 9, '$db': 'school'}", WRITERS},
    {"{'truceTransferCancel': 'm', 'id': 9, '$db': 'school'}", WRITERS},
    {"{'truceSyncDeclare': 'r', 'source': 'x', 'dependent': 'y', 'reference': 'x', 'copies':"
     " {'n': 'n'}, 'settleMS': 1, '$db': 'school'}",
     WRITERS},
    {"{'truceSyncStatus': 1, '$db': 'school'}", READERS},
    {"{'truceSyncRepair': 'r', 'dryRun': true, '$db': 'school'}", READERS},
    {"{'truceSyncRepair': 'r', '$db': 'school'}", WRITERS},
    {"{'truceSyncUpdate': 'x', 'id': 'none', 'update': {'$set': {'n': 1}}, '$db': 'school'}",
     WRITERS},
    {"{'truceSyncInsert': 'y', 'document': {'_id': 's'}, '$db': 'school'}", WRITERS},
    {"{'truceSyncRead': 'y', 'id': 's', '$db': 'school'}", WRITERS},
    {"{'truceSyncReconcile': 'y', 'id': 's', '$db': 'school'}", WRITERS},
    {"{'truceSyncDrop': 'r', '$db': 'school'}", WRITERS},
    {"{'truceAccess': 1, '$db': 'school'}", READERS},
    {"{'truceSweep': 1, '$db': 'admin'}", ROOT},
    {"{'truceCheck': 1, '$db': 'school'}", MONITOR | ROOT},
    {"{'truceCheck': 1, 'repair': true, '$db': 'school'}", ROOT},
    {"{'truceDoctor': 1, '$db': 'admin'}", MONITOR | ROOT},
    /* the users' own records: read by few, written by none */
    {"{'find': 'system.users', '$db': 'admin'}", ANYUSERS | ROOT},
    {"{'count': 'system.users', '$db': 'admin'}", ANYUSERS | ROOT},
    {"{'explain': {'find': 'system.users'}, '$db': 'admin'}", ANYUSERS | ROOT},
    {"{'aggregate': 'x', 'pipeline': [{'$lookup': {'from': {'db': 'admin', 'coll':"
     " 'system.users'}, 'pipeline': [], 'as': 'a'}}], 'cursor': {}, '$db': 'school'}",
     ROOT},
    {"{'insert': 'system.users', 'documents': [{}], '$db': 'admin'}", 0},
    {"{'update': 'system.users', 'updates': [{'q': {}, 'u': {'$set': {'a': 1}}}],"
     " '$db': 'admin'}",
     0},
    {"{'delete': 'system.users', 'deletes': [{'q': {}, 'limit': 1}], '$db': 'admin'}", 0},
    {"{'findAndModify': 'system.users', 'query': {}, 'remove': true, '$db': 'admin'}", 0},
    {"{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns':"
     " 'admin.system.users'}], '$db': 'admin'}",
     0},
    {"{'drop': 'system.users', '$db': 'admin'}", 0},
    {"{'truceCommit': [{'insert': 'system.users', 'with': {'_id': 1}}], '$db': 'admin'}", 0},
    {"{'truceCommit': [{'missing': 'x', 'id': 1}, {'update': 'system.users', 'id': 1, 'with':"
     " {'$set': {'a': 1}}}], '$db': 'admin'}",
     0},
    {"{'truceRevision': 'system.users', 'save': {'_id': 1}, '$db': 'admin'}", 0},
    {"{'truceItem': 'system.users', 'filter': {}, 'field': 'roles', 'identity': 'role', 'add':"
     " {'role': 'root'}, '$db': 'admin'}",
     0},
    {"{'truceRevision': 'system.users', 'get': 1, '$db': 'admin'}", ROOT},
    {"{'truceSet': 'system.users', 'key': {'k': 1}, 'field': 'f', 'name': 'n', 'add': {'n': 1},"
     " 'seq': 1, '$db': 'admin'}",
     0},
    {"{'truceTreePublish': 't', 'collection': 'system.users', 'changes': [], '$db': 'admin'}", 0},
    {"{'truceTransfer': 'm', 'id': 1, 'entries': [{'collection': 'system.users', 'id': 'admin.root',"
     " 'effect': {'$inc': {'a': 1}}}], '$db': 'admin'}",
     0},
    {"{'truceTransfer': 'm', 'id': 1, 'source': 1, 'destination': 2, 'amount': 1, 'accounts':"
     " 'system.users', '$db': 'admin'}",
     0},
    {"{'truceTransferShow': 'system.users', 'id': 1, '$db': 'admin'}", ROOT},
    {"{'truceTransfers': 'system.users', '$db': 'admin'}", ROOT},
    {"{'truceSyncDeclare': 'r', 'source': 'system.users', 'dependent': 'y', 'reference': 'x',"
     " 'copies': {'n': 'credentials'}, 'settleMS': 1, '$db': 'admin'}",
     0},
    {"{'truceSyncDeclare': 'r', 'source': 'x', 'dependent': 'system.users', 'reference': 'x',"
     " 'copies': {'roles': 'n'}, 'settleMS': 1, '$db': 'admin'}",
     0},
    {"{'truceSyncUpdate': 'system.users', 'id': 1, 'update': {'$set': {'n': 1}}, '$db': 'admin'}",
     0},
    {"{'truceSyncInsert': 'system.users', 'document': {'_id': 1}, '$db': 'admin'}", 0},
    {"{'truceSyncRead': 'system.users', 'id': 1, '$db': 'admin'}", 0},
    {"{'collMod': 'system.users', '$db': 'admin'}", 0},
    {"{'createIndexes': 'system.users', 'indexes': [{'key': {'a': 1}, 'name': 'a'}],"
     " '$db': 'admin'}",
     0},
    {"{'renameCollection': 'admin.system.users', 'to': 'admin.x', '$db': 'admin'}", 0},
    {"{'renameCollection': 'school.x', 'to': 'admin.system.users', 'dropTarget': true,"
     " '$db': 'admin'}",
     0},
    {"{'aggregate': 'x', 'pipeline': [{'$out': {'db': 'admin', 'coll': 'system.users'}}],"
     " 'cursor': {}, '$db': 'school'}",
     0},
};

TEST(allows_the_actions_of_mongodbs_roles)
{
    int ends[PEOPLE];

    begin();
    for (int i = 0; i < PEOPLE; i++) {
        if (strcmp(people[i].role, "root") != 0)
            add_user(people[i].role, people[i].role, people[i].database);
        ends[i] = dial_as(people[i].role, people[i].role);
    }
    expect_on(ends[PEOPLE - 1], "{'create': 'x', '$db': 'school'}", 0);
    for (size_t r = 0; r < sizeof rights / sizeof *rights; r++)
        for (int i = 0; i < PEOPLE; i++) {
            int64_t code = code_on(ends[i], rights[r].command);
            /* Patterns are refused in admin, before the rights are checked. */
            bool refused =
                code == CODE_UNAUTHORIZED || (!rights[r].allowed && code == CODE_INVALID_NAMESPACE);

            if (refused == (rights[r].allowed >> i & 1))
                test_fail(__FILE__, __LINE__, "%s %s: %s", people[i].role,
                          refused ? "may not" : "may", rights[r].command);
        }
    expect_on(ends[PEOPLE - 1], "{'dropDatabase': 1, '$db': 'admin'}", 20);
    for (int i = 0; i < PEOPLE; i++)
        close(ends[i]);
    end();
}

TEST(lists_only_databases_that_the_user_may_read)
{
    bson_t *reply;
    int root, reader;

    begin();
    add_user("reader", "read", "school");
    root = dial_as("root", "root");
    reader = dial_as("reader", "reader");
    expect_on(root, "{'create': 'x', '$db': 'school'}", 0);
    expect_on(root, "{'create': 'x', '$db': 'other'}", 0);
    reply = ask_on(reader, "{'listDatabases': 1, 'nameOnly': true, '$db': 'admin'}", 0);
    CHECK(bson_has_field(reply, "databases.0"));
    CHECK(!bson_has_field(reply, "databases.1"));
    bson_destroy(reply);
    reply = ask_on(root, "{'listDatabases': 1, 'nameOnly': true, '$db': 'admin'}", 0);
    CHECK(bson_has_field(reply, "databases.2"));
    bson_destroy(reply);
    close(root);
    close(reader);
    end();
}

/* Without logins no client has a role: all data is open, except the users' records. */
TEST(protects_only_the_users_records_without_auth)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    add_user("root", "root", "admin");
    serve(false, 1);
    expect_code("{'find': 'x', '$db': 'school'}", 0);
    expect_code("{'find': 'system.users', '$db': 'admin'}", 13);
    expect_code("{'count': 'system.users', '$db': 'admin'}", 13);
    expect_code("{'delete': 'system.users', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'admin'}",
                13);
    expect_code("{'aggregate': 'x', 'pipeline': [{'$lookup': {'from': {'db': 'admin', 'coll':"
                " 'system.users'}, 'pipeline': [], 'as': 'a'}}], 'cursor': {}, '$db': 'school'}",
                13);
    expect_code("{'usersInfo': 'root', 'showCredentials': true, '$db': 'admin'}", 13);
    expect_code("{'usersInfo': 'root', '$db': 'admin'}", 0);
    expect_code("{'find': '@admin.system.users', '$db': 'test'}", 73);
    expect_code("{'aggregate': 'x', 'pipeline': [{'$unionWith': '@admin.system.users'}],"
                " 'cursor': {}, '$db': 'test'}",
                73);
    close(dial_as("root", "root")); /* a login is possible */
    end();
}

/* ---- logins --------------------------------------------------------------------------------- */

static void check_failure(const char *user, const char *reason)
{
    bson_t *line = kept_log_last("login failed");
    char *json = line ? bson_as_relaxed_extended_json(line, NULL) : NULL;

    CHECK(json && strstr(json, reason) && strstr(json, user));
    bson_free(json);
    if (line)
        bson_destroy(line);
}

TEST(logins_succeed_with_the_password_alone)
{
    begin();
    for (int m = 0; m < SCRAM_MECHANISMS; m++)
        for (int brief = 0; brief < 2; brief++) {
            struct login_try try = {.mechanism = (enum scram_mechanism)m,
                                    .name = "root",
                                    .password = "wrong",
                                    .brief = brief};
            int end_ = dial();

            CHECK_INT(scram_login(end_, &try), ==, CODE_AUTHENTICATION_FAILED);
            expect_on(end_, "{'find': 'x', '$db': 'school'}", 13);
            check_failure("root", "wrong password");
            try.name = "Root";
            CHECK_INT(scram_login(end_, &try), ==, CODE_AUTHENTICATION_FAILED);
            check_failure("Root", "the user does not exist");
            try.name = "root";
            try.database = "school";
            try.password = "root";
            CHECK_INT(scram_login(end_, &try), ==, CODE_AUTHENTICATION_FAILED);
            try.database = NULL;
            for (int mistake = 1; mistake < LOGIN_MISTAKES; mistake++) {
                try.mistake = (enum login_mistake)mistake;
                CHECK_INT(scram_login(end_, &try), ==, CODE_AUTHENTICATION_FAILED);
                expect_on(end_, "{'find': 'x', '$db': 'school'}", 13);
            }
            try.mistake = LOGIN_RIGHT;
            CHECK_INT(scram_login(end_, &try), ==, 0);
            expect_on(end_, "{'find': 'x', '$db': 'school'}", 0);
            CHECK_INT(scram_login(end_, &try), ==, CODE_PROTOCOL_ERROR);
            expect_on(end_, "{'logout': 1, '$db': 'school'}", 0); /* of another database */
            expect_on(end_, "{'find': 'x', '$db': 'school'}", 0);
            expect_on(end_, "{'logout': 1, '$db': 'admin'}", 0);
            expect_on(end_, "{'find': 'x', '$db': 'school'}", 13);
            close(end_);
        }
    end();
}

/* As in the drivers' specification of logins: the client sends the prepared password. */
TEST(passwords_are_prepared_and_names_are_as_they_are)
{
    static const struct {
        const char *name, *password;
        int64_t code;
    } tries[] = {{"IX", "IX", 0},
                 {"\xe2\x85\xa8", "IV", 0},
                 {"IX", "IV", CODE_AUTHENTICATION_FAILED},
                 {"\xe2\x85\xa8", "IX", CODE_AUTHENTICATION_FAILED}};
    int root;

    begin();
    root = dial_as("root", "root");
    expect_on(root, "{'createUser': 'IX', 'pwd': 'I\xc2\xadX', 'roles': [], '$db': 'admin'}", 0);
    expect_on(root,
              "{'createUser': '\xe2\x85\xa8', 'pwd': '\xe2\x85\xa3', 'roles': [], '$db': 'admin'}",
              0);
    expect_on(root, "{'createUser': 'x', 'pwd': '\xf0\x9f\x98\x80', 'roles': [], '$db': 'admin'}",
              2);
    close(root);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const struct login_try try = {.name = tries[i].name, .password = tries[i].password};
        int end_ = dial();

        CHECK_INT(scram_login(end_, &try), ==, tries[i].code);
        close(end_);
    }
    end();
}

/* Sends saslStart. Returns the challenge. */
static void begin_login(int end_, const struct login_try *try, const char *first,
                        char challenge[300])
{
    bson_t *reply = sasl_ask(end_, "saslStart", try, first);
    const uint8_t *bytes;
    bson_iter_t at;
    uint32_t size;

    REQUIRE(bson_iter_init_find(&at, reply, "payload"));
    bson_iter_binary(&at, NULL, &size, &bytes);
    snprintf(challenge, 300, "%.*s", (int)size, (const char *)bytes);
    bson_destroy(reply);
}

/* The proof of one conversation is not valid in another, and a conversation ends with its first
 * failure. */
TEST(accepts_a_proof_once)
{
    const char *first = "n=root,r=abc";
    struct login_try try = {.name = "root", .password = "root", .brief = true};
    bson_t *reply;
    char challenge[300], *final;
    int end_;

    begin();
    end_ = dial();
    begin_login(end_, &try, "n,,n=root,r=abc", challenge);
    final = scram_client_final(&try, first, challenge);
    reply = sasl_ask(end_, "saslStart", &try, "n,,n=root,r=abc"); /* another one */
    bson_destroy(reply);
    reply = sasl_ask(end_, "saslContinue", &try, final);
    CHECK_INT(reply_number(reply, "code"), ==, CODE_AUTHENTICATION_FAILED);
    bson_destroy(reply);
    reply = sasl_ask(end_, "saslContinue", &try, final);
    CHECK_INT(reply_number(reply, "code"), ==, CODE_PROTOCOL_ERROR);
    bson_destroy(reply);
    expect_on(end_, "{'find': 'x', '$db': 'school'}", 13);
    bson_free(final);
    close(end_);
    end();
}

/* The password alone does not suffice if the client announced an empty message. */
TEST(a_conversation_that_is_not_ended_is_no_login)
{
    struct login_try try = {.name = "root", .password = "root"};
    const char *first = "n=root,r=abc";
    char challenge[300], *final;
    bson_t *reply;
    int end_;

    begin();
    end_ = dial();
    begin_login(end_, &try, "n,,n=root,r=abc", challenge);
    final = scram_client_final(&try, first, challenge);
    reply = sasl_ask(end_, "saslContinue", &try, final);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    expect_on(end_, "{'find': 'x', '$db': 'school'}", 13);
    reply = sasl_ask(end_, "saslContinue", &try, "more");
    CHECK_INT(reply_number(reply, "code"), ==, CODE_AUTHENTICATION_FAILED);
    bson_destroy(reply);
    bson_free(final);
    close(end_);
    end();
}

TEST(sweep_and_check_pass_over_the_collections_of_the_server)
{
    truce_sweep_report swept;
    truce_check_report checked;
    bson_error_t error = {0};

    begin();
    if (truce_sweep(store, NULL, &swept, &error))
        test_fail(__FILE__, __LINE__, "sweep: %s", error.message);
    if (truce_check(store, NULL, NULL, NULL, &checked, &error))
        test_fail(__FILE__, __LINE__, "check: %s", error.message);
    end();
}

TEST(refuses_an_invalid_login)
{
    int end_;

    begin();
    end_ = dial();
    expect_on(end_, "{'saslContinue': 1, 'conversationId': 1, 'payload': 'x', '$db': 'admin'}", 14);
    expect_on(end_, "{'saslStart': 1, 'mechanism': 'PLAIN', '$db': 'admin'}", 334);
    expect_on(end_, "{'saslStart': 1, '$db': 'admin'}", 334);
    expect_on(end_, "{'saslStart': 1, 'mechanism': 'SCRAM-SHA-256', '$db': 'admin'}", 18);
    expect_on(end_, "{'saslStart': 1, 'mechanism': 'SCRAM-SHA-256', 'payload': 'x', '$db': 'a'}",
              18);
    expect_on(end_, "{'authenticate': 1, '$db': 'admin'}", 59);
    close(end_);
    end();
}

/* The reply about an unknown user equals the reply about most users. */
TEST(does_not_reveal_users_by_a_challenge)
{
    char salts[4][100];
    int end_;

    begin();
    end_ = dial();
    for (int i = 0; i < 4; i++) {
        const struct login_try try = {.name = i < 2 ? "eve" : "root"};
        char text[300], *salt;

        begin_login(end_, &try, i < 2 ? "n,,n=eve,r=x" : "n,,n=root,r=x", text);
        salt = strstr(text, ",s=");
        REQUIRE(salt);
        snprintf(salts[i], sizeof salts[i], "%s", salt);
    }
    CHECK_TEXT(salts[0], salts[1]);
    CHECK_TEXT(salts[2], salts[3]);
    CHECK(strcmp(salts[0], salts[2]) != 0);
    CHECK_INT(strlen(salts[0]), ==, strlen(salts[2]));
    close(end_);
    end();
}

TEST(begins_a_login_by_hello_and_returns_the_mechanisms)
{
    bson_t *reply;
    int root;

    begin();
    reply = ask("{'hello': 1, 'saslSupportedMechs': 'admin.root', '$db': 'admin',"
                " 'speculativeAuthenticate': {'saslStart': 1, 'mechanism': 'SCRAM-SHA-256',"
                " 'db': 'admin', 'payload': {'$binary': {'base64': 'biwsbj1yb290LHI9eA==',"
                " 'subType': '00'}}}}");
    CHECK(bson_has_field(reply, "speculativeAuthenticate.payload"));
    CHECK(bson_has_field(reply, "saslSupportedMechs.1"));
    bson_destroy(reply);
    reply = ask("{'hello': 1, 'saslSupportedMechs': 'admin.eve', '$db': 'admin',"
                " 'speculativeAuthenticate': {'saslStart': 1, 'mechanism': 'PLAIN', 'db': 'x'}}");
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    CHECK(!bson_has_field(reply, "speculativeAuthenticate"));
    CHECK(bson_has_field(reply, "saslSupportedMechs.1"));
    bson_destroy(reply);
    /* a driver would continue that challenge with the mechanism of the hello reply */
    root = dial_as("root", "root");
    expect_on(root,
              "{'createUser': 'old', 'pwd': 'x', 'roles': [], 'mechanisms': ['SCRAM-SHA-1'],"
              " '$db': 'admin'}",
              0);
    close(root);
    reply = ask("{'hello': 1, 'saslSupportedMechs': 'admin.old', '$db': 'admin',"
                " 'speculativeAuthenticate': {'saslStart': 1, 'mechanism': 'SCRAM-SHA-256',"
                " 'db': 'admin', 'payload': {'$binary': {'base64': 'biwsbj1vbGQscj14',"
                " 'subType': '00'}}}}");
    CHECK(!bson_has_field(reply, "speculativeAuthenticate"));
    CHECK(bson_has_field(reply, "saslSupportedMechs.0"));
    CHECK(!bson_has_field(reply, "saslSupportedMechs.1"));
    bson_destroy(reply);
    end();
}

static bool is_answered_compressed(int end_, const char *json)
{
    bson_t *command = test_bson(json), *reply;
    struct buffer message = message_of(command, 0);
    bool answered;

    compress_close(&message, compress_number("zlib"));
    CHECK(message.size < 1000);
    reply = send_all(end_, message.bytes, message.size) ? receive_reply(end_) : NULL;
    answered = reply_number(reply, "ok") == 1;
    if (reply)
        bson_destroy(reply);
    truce__buffer_release(&message);
    bson_destroy(command);
    return answered;
}

TEST(ends_a_connection_at_a_long_message_before_the_login)
{
    char *text = bson_malloc0(TRUCE_LOGIN_MESSAGE_BYTES_MAX + 100), *json;
    int unauthenticated, root;

    memset(text, 'x', TRUCE_LOGIN_MESSAGE_BYTES_MAX);
    json = bson_strdup_printf("{'ping': 1, '$db': 'admin', 'comment': '%s'}", text);
    begin();
    unauthenticated = dial();
    root = dial_as("root", "root");
    CHECK_INT(code_on(unauthenticated, json), ==, -1);
    CHECK_INT(code_on(root, json), ==, 0);
    close(unauthenticated);
    unauthenticated = dial();
    CHECK(!is_answered_compressed(unauthenticated, json)); /* a short one that becomes long */
    CHECK(is_answered_compressed(root, json));
    close(unauthenticated);
    close(root);
    end();
    bson_free(json);
    bson_free(text);
}

/* ---- many logins ---------------------------------------------------------------------------- */

/* A hundred answers are delayed. One more login gets no answer, and a logged-in client
 * continues. */
TEST(failed_logins_wait_and_no_more_than_a_hundred_do)
{
    static struct pollfd ends[TRUCE_LOGIN_DELAYED_MAX + 1];
    const struct login_try try = {.name = "root", .brief = true};
    bson_error_t error = {0};
    int root, ended = 0;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    add_user("root", "root", "admin");
    serve(true, HOUR_MS);
    root = dial_as("root", "root");
    for (int i = 0; i <= TRUCE_LOGIN_DELAYED_MAX; i++) {
        bson_t *command = test_bson("{'saslContinue': 1, 'conversationId': 1, 'payload':"
                                    " {'$binary': {'base64': 'eA==', 'subType': '00'}},"
                                    " '$db': 'admin'}");
        struct buffer message = message_of(command, 0);
        bson_t *reply;

        ends[i] = (struct pollfd){.fd = dial(), .events = POLLIN};
        reply = sasl_ask(ends[i].fd, "saslStart", &try, "n,,n=root,r=x");
        CHECK_INT(reply_number(reply, "ok"), ==, 1);
        bson_destroy(reply);
        CHECK(send_all(ends[i].fd, message.bytes, message.size));
        truce__buffer_release(&message);
        bson_destroy(command);
    }
    REQUIRE(poll(ends, TRUCE_LOGIN_DELAYED_MAX + 1, -1) > 0);
    for (int i = 0; i <= TRUCE_LOGIN_DELAYED_MAX; i++)
        if (ends[i].revents) {
            CHECK(receive_reply(ends[i].fd) == NULL);
            ended++;
        }
    CHECK_INT(ended, ==, 1);
    expect_on(root, "{'insert': 'x', 'documents': [{}], '$db': 'school'}", 0);
    for (int i = 0; i <= TRUCE_LOGIN_DELAYED_MAX; i++)
        close(ends[i].fd); /* the server does not wait for closed connections */
    close(root);
    end();
}

static atomic_bool flooding;

static void *flood(void *arg)
{
    const struct login_try try = {.name = "root", .password = "guess", .brief = true};

    (void)arg;
    do {
        int end_ = dial();

        CHECK_INT(scram_login(end_, &try), ==, CODE_AUTHENTICATION_FAILED);
        close(end_);
    } while (atomic_load(&flooding));
    return NULL;
}

TEST(serves_logged_in_users_while_others_guess_passwords)
{
    pthread_t threads[4];
    bson_t *reply;
    char *reported;
    int root;

    begin();
    root = dial_as("root", "root");
    atomic_store(&flooding, true);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, flood, NULL);
    for (int i = 0; i < 50; i++)
        expect_on(root, "{'insert': 'x', 'documents': [{}], '$db': 'school'}", 0);
    atomic_store(&flooding, false);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    reply = ask_on(root, "{'serverStatus': 1, '$db': 'admin'}", 0);
    CHECK_INT(reply_number(reply, "security.authentication.failed"), ==,
              kept_log_count("login failed"));
    CHECK(kept_log_count("login failed") >= 4);
    reported = kept_log_text();
    CHECK(!strstr(reported, "guess"));
    bson_free(reported);
    bson_destroy(reply);
    close(root);
    end();
}

/* ---- cursors and transactions of a user ------------------------------------------------------ */

static int64_t open_cursor(int end_)
{
    bson_t *reply = ask_on(end_, "{'find': 'x', 'batchSize': 1, '$db': 'school'}", 0);
    int64_t id = reply_number(reply, "cursor.id");

    bson_destroy(reply);
    return id;
}

TEST(restricts_a_cursor_to_its_user)
{
    char *more, *ends;
    int ada, bob, again;
    bson_t *reply;

    begin();
    add_user("ada", "readWrite", "school");
    add_user("bob", "readWrite", "school");
    ada = dial_as("ada", "ada");
    again = dial_as("ada", "ada");
    bob = dial_as("bob", "bob");
    expect_on(ada, "{'insert': 'x', 'documents': [{}, {}, {}, {}], '$db': 'school'}", 0);
    more = bson_strdup_printf("{'getMore': {'$numberLong': '%lld'}, 'collection': 'x',"
                              " 'batchSize': 1, '$db': 'school'}",
                              (long long)open_cursor(ada));
    ends = bson_strdup_printf("{'killCursors': 'x', 'cursors': [{'$numberLong': '%lld'}],"
                              " '$db': 'school'}",
                              (long long)open_cursor(ada));
    expect_on(bob, more, 13);
    expect_on(bob, ends, 13);
    expect_on(ada, more, 0);
    expect_on(again, more, 0);
    expect_on(again, ends, 0);
    bson_free(more);
    bson_free(ends);
    reply = ask_on(ada,
                   "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns':"
                   " 'school.x'}], 'cursor': {'batchSize': 0}, '$db': 'admin'}",
                   0);
    more = bson_strdup_printf("{'getMore': {'$numberLong': '%lld'}, 'collection': '$cmd.bulkWrite',"
                              " 'batchSize': 1, '$db': 'admin'}",
                              (long long)reply_number(reply, "cursor.id"));
    bson_destroy(reply);
    expect_on(bob, more, 13);
    expect_on(ada, more, 0);
    bson_free(more);
    close(ada);
    close(again);
    close(bob);
    end();
}

/* A store in memory has no change streams: a permitted client gets 40573. */
TEST(forbids_watching_all_databases_to_a_reader_of_admin)
{
    static const char all[] = "{'aggregate': 1, 'pipeline': [{'$changeStream': "
                              "{'allChangesForCluster': true}}], 'cursor': {}, '$db': 'admin'}";
    int guard, reader;

    begin();
    add_user("guard", "read", "admin");
    add_user("reader", "readAnyDatabase", "admin");
    guard = dial_as("guard", "guard");
    reader = dial_as("reader", "reader");
    expect_on(guard, all, 13);
    expect_on(reader, all, 40573);
    close(guard);
    close(reader);
    end();
}

#define LSID "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}"

TEST(a_session_and_its_transaction_are_of_their_user)
{
    static const char begins[] = "{'insert': 'x', 'documents': [{'_id': 1}], '$db': 'school'," LSID
                                 ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false,"
                                 " 'startTransaction': true}";
    static const char begins_to_look[] = "{'find': 'x', '$db': 'school'," LSID
                                         ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false,"
                                         " 'startTransaction': true}";
    static const char looks[] = "{'find': 'x', '$db': 'school'," LSID
                                ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false}";
    static const char ends[] = "{'endSessions': [{'id': {'$binary': {'base64':"
                               " 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}], '$db': 'admin'}";
    static const char commits[] = "{'commitTransaction': 1, '$db': 'admin'," LSID
                                  ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false}";
    char *path = bson_strdup_printf("%s/sessions.truce", test_directory());
    bson_error_t error = {0};
    int ada, bob, unauthenticated;

    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    bson_free(path);
    add_user("ada", "readWrite", "school");
    add_user("bob", "readWrite", "school");
    serve(true, 1);
    ada = dial_as("ada", "ada");
    bob = dial_as("bob", "bob");
    unauthenticated = dial();
    expect_on(ada, begins, 0);
    expect_on(bob, looks, 251);
    expect_on(bob, ends, 0);
    expect_on(unauthenticated, ends, 0);
    expect_on(ada, looks, 0);
    expect_on(bob, commits, 251);
    expect_on(ada, commits, 0);
    expect_on(ada, commits, 0);
    expect_on(bob, begins_to_look, 0);
    expect_on(bob, looks, 0);
    expect_on(bob, ends, 0); /* its own */
    expect_on(bob, looks, 251);
    close(ada);
    close(bob);
    close(unauthenticated);
    end();
}

TEST(ends_the_sessions_of_the_named_users_only)
{
    static const char begins[] = "{'find': 'x', '$db': 'school'," LSID
                                 ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false,"
                                 " 'startTransaction': true}";
    static const char looks[] = "{'find': 'x', '$db': 'school'," LSID
                                ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false}";
    char *path = bson_strdup_printf("%s/ended.truce", test_directory());
    bson_error_t error = {0};
    int ada, bob, root;

    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    bson_free(path);
    add_user("ada", "readWrite", "school");
    add_user("bob", "readWrite", "school");
    add_user("root", "root", "admin");
    serve(true, 1);
    ada = dial_as("ada", "ada");
    bob = dial_as("bob", "bob");
    root = dial_as("root", "root");
    expect_on(ada, begins, 0);
    expect_on(bob, begins, 0);
    expect_on(root, "{'killAllSessions': [{'user': 'bob', 'db': 'school'}], '$db': 'admin'}", 0);
    expect_on(bob, looks, 0);
    expect_on(root,
              "{'killAllSessions': [{'user': 'bob', 'db': 'admin'}, {'user': 'bob'}],"
              " '$db': 'admin'}",
              40414);
    expect_on(bob, looks, 0);
    expect_on(root, "{'killAllSessions': [{'user': 'bob', 'db': 'admin'}], '$db': 'admin'}", 0);
    expect_on(bob, looks, 251);
    expect_on(ada, looks, 0);
    expect_on(root, "{'killAllSessions': [], '$db': 'admin'}", 0);
    expect_on(ada, looks, 251);
    close(ada);
    close(bob);
    close(root);
    end();
}

TEST(revokes_roles_and_users_on_all_connections)
{
    static const char find[] = "{'find': 'x', '$db': 'school'}";
    int root, ada, again;

    begin();
    add_user("ada", "read", "school");
    root = dial_as("root", "root");
    ada = dial_as("ada", "ada");
    again = dial_as("ada", "ada");
    expect_on(ada, find, 0);
    expect_on(root,
              "{'revokeRolesFromUser': 'ada', 'roles': [{'role': 'read', 'db': 'school'}],"
              " '$db': 'admin'}",
              0);
    expect_on(ada, find, 13);
    expect_on(again, find, 13);
    expect_on(root,
              "{'grantRolesToUser': 'ada', 'roles': [{'role': 'readWrite', 'db': 'school'}],"
              " '$db': 'admin'}",
              0);
    expect_on(ada, find, 0);
    expect_on(root, "{'dropUser': 'ada', '$db': 'admin'}", 0);
    expect_on(ada, find, 13);
    expect_on(root,
              "{'createUser': 'ada', 'pwd': 'ada', 'roles': [{'role': 'read', 'db': 'school'}],"
              " '$db': 'admin'}",
              0);
    expect_on(again, find, 13); /* it is another one */
    close(ada);
    ada = dial_as("ada", "ada");
    expect_on(ada, find, 0);
    close(root);
    close(ada);
    close(again);
    end();
}

/* By the program, or another server of the same file. */
TEST(revokes_access_of_a_user_removed_by_another_server)
{
    bson_error_t error;
    int ada;

    begin();
    add_user("ada", "read", "school");
    ada = dial_as("ada", "ada");
    expect_on(ada, "{'find': 'x', '$db': 'school'}", 0);
    REQUIRE(!users_remove(store, "admin", "ada", &error));
    while (code_on(ada, "{'find': 'x', '$db': 'school'}") == 0)
        truce__clock_sleep_ms(20);
    expect_on(ada, "{'find': 'x', '$db': 'school'}", 13);
    close(ada);
    end();
}

/* ---- users ---------------------------------------------------------------------------------- */

TEST(commands_for_users_reply_as_mongodb_does)
{
    static const struct {
        const char *command;
        int code;
    } cases[] = {
        {"{'createUser': 'ada', 'pwd': 'x', 'roles': ['read'], '$db': 'school'}", 0},
        {"{'createUser': 'ada', 'pwd': 'x', 'roles': ['read'], '$db': 'school'}", 51003},
        {"{'createUser': 'ada', 'pwd': 'x', 'roles': ['root'], '$db': 'school'}", 31},
        {"{'createUser': 'eve', 'pwd': 'x', 'roles': ['nope'], '$db': 'school'}", 31},
        {"{'createUser': 'eve', 'pwd': 'x', 'roles': [1], '$db': 'school'}", 2},
        {"{'createUser': 'eve', 'pwd': 'x', '$db': 'school'}", 2},
        {"{'createUser': 'eve', 'pwd': '', 'roles': [], '$db': 'school'}", 2},
        {"{'createUser': 'eve', 'roles': [], '$db': 'school'}", 2},
        {"{'createUser': '', 'pwd': 'x', 'roles': [], '$db': 'school'}", 2},
        {"{'createUser': 1, 'pwd': 'x', 'roles': [], '$db': 'school'}", 14},
        {"{'createUser': 'eve', 'pwd': 'x', 'roles': [], 'digestPassword': false, '$db': 'a'}", 2},
        {"{'createUser': 'eve', 'pwd': 'x', 'roles': [], 'mechanisms': [], '$db': 'school'}", 2},
        {"{'createUser': 'eve', 'pwd': 'x', 'roles': [], 'mechanisms': ['X'], '$db': 'a'}", 2},
        {"{'createUser': 'eve', 'pwd': 'x', 'roles': [], 'nope': 1, '$db': 'school'}", 40415},
        {"{'createUser': 'eve', 'pwd': 'a\\ud83d\\ude00', 'roles': [], '$db': 'school'}", 2},
        {"{'createUser': 'eve', 'pwd': 'a\\ud83d\\ude00', 'roles': [], 'mechanisms': ['SCRAM-SHA-1'],"
         " '$db': 'school'}",
         0},
        {"{'updateUser': 'ada', '$db': 'school'}", 2},
        {"{'updateUser': 'ada', 'mechanisms': ['SCRAM-SHA-1'], '$db': 'school'}", 2},
        {"{'updateUser': 'nobody', 'pwd': 'y', '$db': 'school'}", 11},
        {"{'updateUser': 'ada', 'pwd': 'y', '$db': 'school'}", 0},
        {"{'grantRolesToUser': 'ada', 'roles': [], '$db': 'school'}", 2},
        {"{'grantRolesToUser': 'nobody', 'roles': ['read'], '$db': 'school'}", 11},
        {"{'dropUser': 'nobody', '$db': 'school'}", 11},
        {"{'usersInfo': true, '$db': 'school'}", 2},
        {"{'rolesInfo': true, '$db': 'school'}", 2},
        {"{'dropUser': 'eve', '$db': 'school'}", 0},
    };
    const struct login_try old = {.database = "school", .name = "ada", .password = "x"};
    const struct login_try new = {.database = "school", .name = "ada", .password = "y"};
    bson_t *reply;
    int root, ada;

    begin();
    root = dial_as("root", "root");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_on(root, cases[i].command, cases[i].code);
    ada = dial();
    CHECK_INT(scram_login(ada, &old), ==, 18);
    CHECK_INT(scram_login(ada, &new), ==, 0);
    reply = ask_on(ada, "{'connectionStatus': 1, 'showPrivileges': true, '$db': 'admin'}", 0);
    CHECK(bson_has_field(reply, "authInfo.authenticatedUsers.0.user"));
    CHECK(bson_has_field(reply, "authInfo.authenticatedUserPrivileges.0.actions.0"));
    bson_destroy(reply);
    reply = ask_on(root, "{'usersInfo': ['ada', 'nobody'], '$db': 'school'}", 0);
    CHECK(bson_has_field(reply, "users.0.roles.0.role"));
    CHECK(!bson_has_field(reply, "users.0.credentials"));
    CHECK(!bson_has_field(reply, "users.1"));
    bson_destroy(reply);
    reply = ask_on(root, "{'usersInfo': 'ada', 'showCredentials': true, '$db': 'school'}", 0);
    CHECK_INT(reply_number(reply, "users.0.credentials.SCRAM-SHA-256.iterationCount"), ==, 15000);
    CHECK_INT(reply_number(reply, "users.0.credentials.SCRAM-SHA-1.iterationCount"), ==, 10000);
    bson_destroy(reply);
    reply = ask_on(root,
                   "{'rolesInfo': 1, 'showBuiltinRoles': true, 'showPrivileges': true,"
                   " '$db': 'school'}",
                   0);
    CHECK(bson_has_field(reply, "roles.4.privileges.0.actions"));
    CHECK(!bson_has_field(reply, "roles.5")); /* root is of admin */
    bson_destroy(reply);
    reply = ask_on(root, "{'dropAllUsersFromDatabase': 1, '$db': 'school'}", 0);
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    bson_destroy(reply);
    expect_on(root, "{'find': 'x', '$db': 'school'}", 0); /* one of admin is still there */
    close(root);
    close(ada);
    end();
}
