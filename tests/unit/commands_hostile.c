/*
 * Every command of the server, with each of its fields, and each within them, changed to what nobody would send: it is answered
 * by one sound document with `ok`.
 */
#include <string.h>
#include <unistd.h>

#include "server/pattern_command.h"
#include "tests/support/changed_bson.h"
#include "tests/support/still_calls.h"

/* Commands of which all others here may be told something. */
static const char *const before[] = {
    "{insert: 'c', documents: [{_id: 1, n: 9, a: [1, 2], d: {e: 'x'}}, {_id: 2, n: 0}]}",
    "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}",
    "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}]}",
    "{create: 'v', viewOn: 'c', pipeline: [{$match: {n: 9}}]}",
    "{createUser: 'u', pwd: 'secret', roles: [{role: 'read', db: 'test'}], $db: 'admin'}",
    "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}",
};

/* Of each command of MongoDB's one or more; what the second field of a row says is the command's own failure. */
static const struct sample {
    const char *command;
    int code;
} samples[] = {
    {"{find: 'c', filter: {n: {$gt: 1}}, sort: {n: -1}, projection: {a: {$slice: 1}}, skip: 1, limit: 5, "
     "batchSize: 2, hint: 'n', min: {n: 1}, max: {n: 9}, let: {x: 1}, singleBatch: true, maxTimeMS: 5000, "
     "readConcern: {level: 'local'}, comment: 'c', showRecordId: true, allowDiskUse: true}"},
    {"{find: 'v', filter: {$expr: {$in: ['$n', [1, '$$x']]}, d: {$elemMatch: {e: 1}}}, returnKey: false, "
     "let: {x: 1}}"},
    {"{getMore: {$numberLong: '1'}, collection: 'c', batchSize: 5, maxTimeMS: 10}", 43},
    {"{killCursors: 'c', cursors: [{$numberLong: '1'}]}"},
    {"{aggregate: 'c', pipeline: [{$match: {n: 9}}, {$set: {m: {$add: ['$n', 1]}}}, {$lookup: {from: 'accounts', "
     "localField: 'n', foreignField: 'n', as: 'l', let: {x: '$n'}, pipeline: [{$match: {n: 9}}]}}, {$unwind: {path: '$l', "
     "includeArrayIndex: 'i', preserveNullAndEmptyArrays: true}}, {$group: {_id: '$n', sum: {$sum: '$m'}, all: {$push: "
     "'$$ROOT'}}}, {$sort: {_id: 1}}, {$limit: 3}, {$project: {sum: 1}}], cursor: {batchSize: 1}, allowDiskUse: true, "
     "let: {x: 1}, hint: 'n', maxTimeMS: 5000}"},
    {"{aggregate: 'c', pipeline: [{$facet: {a: [{$count: 'n'}], b: [{$sortByCount: '$n'}]}}, {$replaceRoot: {newRoot: "
     "{$mergeObjects: ['$$ROOT', {x: 1}]}}}, {$merge: {into: 'out', on: '_id', let: {y: 1}, whenMatched: [{$set: {z: "
     "'$$y'}}], whenNotMatched: 'insert'}}], cursor: {}}"},
    {"{aggregate: 'c', pipeline: [{$bucket: {groupBy: '$n', boundaries: [0, 5, 10], default: 'x', output: {c: {$sum: 1}}}}, "
     "{$unionWith: {coll: 'accounts', pipeline: [{$limit: 1}]}}, {$graphLookup: {from: 'c', startWith: '$n', "
     "connectFromField: 'n', connectToField: '_id', as: 'g', maxDepth: 2, depthField: 'k'}}, {$sample: {size: 1}}, {$out: "
     "{db: 'test', coll: 'o'}}], cursor: {}}"},
    {"{aggregate: 'c', pipeline: [{$changeStream: {fullDocument: 'updateLookup', fullDocumentBeforeChange: 'off', "
     "showExpandedEvents: true}}, {$match: {n: 9}}], cursor: {batchSize: 1}}"},
    {"{aggregate: 1, pipeline: [{$listLocalSessions: {}}, {$limit: 1}], cursor: {}}"},
    {"{aggregate: 1, pipeline: [{$documents: [{a: 1}]}, {$densify: {field: 'a', range: {step: 1, bounds: [0, 5]}}}, {$fill: "
     "{sortBy: {a: 1}, output: {b: {value: 2}}}}], cursor: {}}",
     115},
    {"{aggregate: 'c', pipeline: [{$collStats: {count: {}, storageStats: {scale: 1}}}], cursor: {}}"},
    {"{aggregate: 'c', pipeline: [{$indexStats: {}}], cursor: {}}", 115},
    {"{count: 'c', query: {n: 9}, limit: 5, skip: 0, hint: 'n'}"},
    {"{distinct: 'c', key: 'd.e', query: {n: 9}}"},
    {"{explain: {find: 'c', filter: {n: 9}}, verbosity: 'queryPlanner'}"},
    {"{insert: 'c', documents: [{_id: 'new', x: 1}], ordered: false, writeConcern: {w: 1, j: true, wtimeout: 10}, "
     "bypassDocumentValidation: true, lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}, "
     "txnNumber: {$numberLong: '1'}, stmtIds: [0]}"},
    {"{update: 'c', updates: [{q: {_id: 1, a: 1}, u: {$set: {'a.$[x]': 5}, $inc: {k: 1}, $push: {l: {$each: [1], $slice: "
     "-3, $sort: 1, $position: 0}}, $unset: {z: 1}, $currentDate: {t: {$type: 'date'}}}, arrayFilters: [{x: 1}], upsert: "
     "false, multi: false, hint: {_id: 1}}], ordered: true, let: {y: 1}}"},
    {"{update: 'c', updates: [{q: {_id: 7}, u: [{$set: {n: {$add: [{$ifNull: ['$n', 0]}, 1]}}}], upsert: true, "
     "sort: {n: 1}}]}"},
    {"{update: 'c', updates: [{q: {_id: 2}, u: {n: 3, list: [1]}}]}"},
    {"{delete: 'c', deletes: [{q: {n: 77}, limit: 1, hint: 'n'}], let: {x: 1}}"},
    {"{bulkWrite: 1, ops: [{insert: 0, document: {_id: 50}}, {update: 0, filter: {_id: 50}, updateMods: {$set: {a: 1}}, "
     "multi: false, upsert: true}, {delete: 0, filter: {_id: 50}, multi: false}], nsInfo: [{ns: 'test.c'}], ordered: true, "
     "errorsOnly: false, cursor: {batchSize: 2}, $db: 'admin'}"},
    {"{findAndModify: 'c', query: {_id: 1}, update: {$inc: {f: 1}}, new: true, upsert: true, fields: {f: 1}, sort: {n: 1}, "
     "arrayFilters: [], hint: {_id: 1}, let: {x: 1}}"},
    {"{findAndModify: 'c', query: {_id: 99}, remove: true}"},
    {"{create: 'made', validator: {$jsonSchema: {bsonType: 'object', required: ['x'], properties: {x: {bsonType: 'int', "
     "minimum: 0, enum: [1, 2]}}}}, validationLevel: 'strict', validationAction: 'error', changeStreamPreAndPostImages: "
     "{enabled: true}}"},
    {"{create: 'made2', viewOn: 'c', pipeline: [{$match: {n: 1}}]}"},
    {"{collMod: 'c', validator: {n: {$gte: 0}}, validationLevel: 'strict', validationAction: 'error'}"},
    {"{collMod: 'v', viewOn: 'accounts', pipeline: []}"},
    {"{drop: 'none'}"},
    {"{dropDatabase: 1, $db: 'other'}"},
    {"{renameCollection: 'test.accounts', to: 'test.moved', dropTarget: true, $db: 'admin'}"},
    {"{listCollections: 1, filter: {name: 'c'}, nameOnly: true, cursor: {batchSize: 1}, authorizedCollections: true}"},
    {"{listDatabases: 1, filter: {name: 'test'}, nameOnly: true, $db: 'admin'}"},
    {"{createIndexes: 'c', indexes: [{key: {d: 1, 'x.y': -1}, name: 'dx', unique: true, sparse: true}, {key: {t: 1}, name: "
     "'ttl', expireAfterSeconds: 100, hidden: true}, {key: {p: 1}, name: 'p', partialFilterExpression: {p: {$gt: 1}}}], "
     "commitQuorum: 1}"},
    {"{dropIndexes: 'c', index: ['n']}"},
    {"{listIndexes: 'c', cursor: {batchSize: 1}}"},
    {"{collStats: 'c', scale: 1024}"},
    {"{dbStats: 1, scale: 1024, freeStorage: 1}"},
    {"{validate: 'c', full: true}"},
    {"{currentOp: 1, $ownOps: true, $all: true, $db: 'admin'}"},
    {"{killOp: 1, op: 77, $db: 'admin'}"},
    {"{hello: 1, client: {application: {name: 'a'}, driver: {name: 'd', version: '1'}, os: {type: 'l'}}, compression: "
     "['zlib'], saslSupportedMechs: 'admin.u', speculativeAuthenticate: {saslStart: 1, mechanism: 'SCRAM-SHA-256', "
     "payload: {$binary: {base64: 'biwsbj11LHI9YWJj', subType: '00'}}, db: 'admin'}, topologyVersion: {processId: {$oid: "
     "'0123456789abcdef01234567'}, counter: {$numberLong: '0'}}, maxAwaitTimeMS: 10, loadBalanced: false, helloOk: true}"},
    {"{ping: 1}"},
    {"{buildInfo: 1}"},
    {"{getParameter: {allParameters: true, showDetails: true}, featureCompatibilityVersion: 1, $db: 'admin'}"},
    {"{serverStatus: 1, repl: 0, metrics: 0, $db: 'admin'}"},
    {"{top: 1, $db: 'admin'}"},
    {"{connPoolStats: 1, $db: 'admin'}"},
    {"{connectionStatus: 1, showPrivileges: true, $db: 'admin'}"},
    {"{hostInfo: 1, $db: 'admin'}"},
    {"{getLog: 'global', $db: 'admin'}"},
    {"{setParameter: 1, slowMs: 100, $db: 'admin'}", -1},
    {"{profile: 0, slowms: 100, sampleRate: 1.0}"},
    {"{fsync: 1, $db: 'admin'}"},
    {"{compact: 'c', force: true, dryRun: false, freeSpaceTargetMB: 1}"},
    {"{dataSize: 'test.c', estimate: true}"},
    {"{getCmdLineOpts: 1, $db: 'admin'}"},
    {"{whatsmyuri: 1, $db: 'admin'}"},
    {"{replSetGetStatus: 1, $db: 'admin'}"},
    {"{getLastError: 1, w: 1, wtimeout: 5}"},
    {"{usersInfo: {user: 'u', db: 'admin'}, showCredentials: true, filter: {}, $db: 'admin'}", 13},
    {"{rolesInfo: [{role: 'read', db: 'test'}], showBuiltinRoles: true, showPrivileges: true, $db: 'admin'}"},
    {"{createUser: 'u2', pwd: 'secret', roles: ['readWrite', {role: 'read', db: 'x'}], customData: {a: 1}, mechanisms: "
     "['SCRAM-SHA-256'], digestPassword: true, authenticationRestrictions: [], $db: 'admin'}"},
    {"{updateUser: 'u', pwd: 'other', roles: [], customData: {a: 2}, $db: 'admin'}"},
    {"{grantRolesToUser: 'u', roles: [{role: 'readWrite', db: 'test'}], $db: 'admin'}"},
    {"{revokeRolesFromUser: 'u', roles: [{role: 'read', db: 'test'}], $db: 'admin'}"},
    {"{dropUser: 'u', $db: 'admin'}"},
    {"{dropAllUsersFromDatabase: 1, $db: 'admin'}"},
    {"{saslStart: 1, mechanism: 'SCRAM-SHA-256', payload: {$binary: {base64: 'biwsbj11LHI9YWJj', subType: '00'}}, options: "
     "{skipEmptyExchange: true}, autoAuthorize: 1, $db: 'admin'}"},
    {"{saslContinue: 1, conversationId: 1, payload: {$binary: {base64: '', subType: '00'}}, $db: 'admin'}",
     17},
    {"{logout: 1}"},
    {"{startSession: 1}"},
    {"{endSessions: [{id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}]}"},
    {"{refreshSessions: [{id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}]}"},
    {"{killSessions: [{id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}]}"},
    {"{killAllSessions: [{user: 'u', db: 'admin'}]}"},
    {"{commitTransaction: 1, lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}, txnNumber: "
     "{$numberLong: '5'}, autocommit: false, $db: 'admin'}",
     251},
    {"{abortTransaction: 1, lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}, txnNumber: "
     "{$numberLong: '5'}, autocommit: false, $db: 'admin'}",
     251},
    {"{configureFailPoint: 'failCommand', mode: {times: 1}, data: {failCommands: ['ping'], errorCode: 5}, $db: 'admin'}"},
    {"{filemd5: {$oid: '0123456789abcdef01234567'}, root: 'fs'}"},
    {"{logRotate: 1, $db: 'admin'}", -1},
    {"{shutdown: 1, force: true, timeoutSecs: 1, $db: 'admin'}", -1},
    {"{listCommands: 1}"},
};

/* As it stands; -1: whatever comes. */
static void run_plain(const bson_t *command, int code)
{
    bson_t reply;
    bson_iter_t iter;
    int64_t got = 0;

    answer(command, &reply);
    if (bson_iter_init_find(&iter, &reply, "code"))
        got = bson_iter_as_int64(&iter);
    if (code >= 0 && got != code) {
        char *sent = bson_as_relaxed_extended_json(command, NULL),
             *answer = bson_as_relaxed_extended_json(&reply, NULL);

        test_fail(__FILE__, __LINE__, "%s is answered with %s", sent, answer);
        bson_free(sent);
        bson_free(answer);
    }
    bson_destroy(&reply);
}

static void run_changed(const bson_t *command)
{
    for (uint32_t place = 0; place < bson_places(command); place++) {
        for (uint32_t change = 0; change < bson_changes; change++) {
            bson_t *changed = bson_changed(command, place, change), reply;

            answer(changed, &reply);
            bson_destroy(&reply);
            bson_destroy(changed);
        }
    }
}

static void start(const char *path)
{
    static const struct server_feed feed = {.keep_ms = 3600000};
    truce_store *store;

    truce__world_use(NULL);
    truce_assert(!truce_store_open(path, NULL, &store, NULL));
    truce_assert(!server_start(
        store, &(struct server_options){.replica_set = "rs0", .feed = &feed, .test_commands = true},
        &server, NULL));
    server->login_delay_ms = 0;
}

/* On a store of its own: a file, but for who waits for others, which takes no time in a store in memory. */
static void try_all(const char *json, int code)
{
    bson_t *command = command_of(json);
    char path[600];
    truce_store *store;

    snprintf(path, sizeof path, "%s/store", test_directory());
    if (strstr(json, "waitMS"))
        server = still_serve(still_store());
    else
        start(path);
    store = server->store;
    connection = (struct connection){.server = server, .socket = -1};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        bson_t *first = command_of(before[i]);

        run_plain(first, 0);
        bson_destroy(first);
    }
    run_plain(command, code);
    run_changed(command);
    login_release(&connection.login);
    server_stop(server, 1000);
    truce_store_close(store);
    unlink(path);
    bson_destroy(command);
}

TEST(fields_of_patterns_changed)
{
    for (const struct pattern_group *group = pattern_groups; group->title; group++)
        for (const struct pattern *const *at = group->patterns; *at; at++)
            try_all((*at)->example, -1);
}

static bool has_sample(const char *name)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        size_t length = strlen(name);

        if (!strncmp(samples[i].command + 1, name, length) && samples[i].command[length + 1] == ':')
            return true;
    }
    return false;
}

TEST(every_command_has_a_sample)
{
    for (const struct command *command = server_commands; command->name; command++) {
        if (command->help && !has_sample(command->name)) /* the others are other names */
            test_fail(__FILE__, __LINE__, "%s has no sample here", command->name);
    }
}

TEST(fields_of_commands_changed)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        try_all(samples[i].command, samples[i].code);
}

/* ---- what is said wrongly by no type ------------------------------------------------------------ */

static void refused(bson_t *command, int code)
{
    bson_append_utf8(command, "$db", -1, "test", -1);
    run_plain(command, code);
    bson_destroy(command);
}

TEST(a_zero_within_a_text_does_not_end_it)
{
    truce_store *store;
    bson_t *command;

    server = still_serve(still_store());
    store = server->store;
    connection = (struct connection){.server = server, .socket = -1};
    command = bson_new();
    bson_append_utf8(command, "find", -1, "c\0d", 3);
    refused(command, 73);
    command = BCON_NEW("find", "c");
    bson_append_utf8(command, "hint", -1, "_id_\0", 5);
    refused(command, 2);
    command = bson_new();
    bson_append_utf8(command, "truceTreeLog", -1, "site\0x", 6);
    refused(command, 73);
    command = BCON_NEW("truceTreePublish", "site", "changes", "[", "]");
    bson_append_utf8(command, "collection", -1, "c\0d", 3);
    refused(command, 2);
    command = BCON_NEW("ping", BCON_INT32(1));
    bson_append_utf8(command, "$db", -1, "te\0st", 5);
    refused(command, 73);
    server_stop(server, 1000);
    truce_store_close(store);
}

TEST(a_field_that_is_given_twice_is_refused)
{
    truce_store *store;

    server = still_serve(still_store());
    store = server->store;
    connection = (struct connection){.server = server, .socket = -1};
    refused(BCON_NEW("find", "c", "filter", "{", "a", BCON_INT32(1), "}", "filter", "{", "}"),
            40413);
    refused(BCON_NEW("createIndexes", "c", "indexes", "[", "{", "key", "{", "a", BCON_INT32(1), "}",
                     "name", "a", "name", "b", "}", "]"),
            40413);
    server_stop(server, 1000);
    truce_store_close(store);
}
