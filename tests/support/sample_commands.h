#ifndef TRUCE_TESTS_SUPPORT_SAMPLE_COMMANDS_H
#define TRUCE_TESTS_SUPPORT_SAMPLE_COMMANDS_H

/* Commands of each kind, as typed JSON. The patterns' own have an example each
 * (operations/operation.h). */

/* Commands that prepare the data of all others here. */
__attribute__((unused)) static const char *const before[] = {
    "{insert: 'c', documents: [{_id: 1, n: 9, a: [1, 2], d: {e: 'x'}}, {_id: 2, n: 0}]}",
    "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}",
    "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}]}",
    "{create: 'v', viewOn: 'c', pipeline: [{$match: {n: 9}}]}",
    "{createUser: 'u', pwd: 'secret', roles: [{role: 'read', db: 'test'}], $db: 'admin'}",
    "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}",
};

/* One or more of each command of MongoDB; the second field of a row names the command's own
 * failure. */
__attribute__((unused)) static const struct sample {
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
    {"{aggregate: 'c', pipeline: [{$project: {s: {$switch: {branches: [{case: true, then: 1}], default: 0}}, z: {$zip: "
     "{inputs: [[1], [2]], useLongestLength: true, defaults: [1, 2]}}, r: {$let: {vars: {a: 1}, in: '$$a'}}}}], cursor: {}}"},
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
    {"{createToken: 'u', expiresMS: 4102444800000, $db: 'admin'}"},
    {"{tokensInfo: 'u', $db: 'admin'}"},
    {"{revokeToken: 'u', id: '0123456789abcdef', $db: 'admin'}", 2},
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

/* After these, each of which succeeds, every pattern has some data. */
__attribute__((unused)) static const char *const built[] = {
    "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}, {_id: 'c', n: 0}, {_id: 'd', n: 4}]}",
    "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: -5}}}, {update: 'accounts', id: 'b', with: {$inc: {n: 5}}}], "
    "key: 'payment 17', keyTime: 1700000000000, leave: {receipt: 17}}",
    "{truceRequest: 'mail 17', name: 'mail', input: {to: 'ada@example.org'}}",
    "{truceSequence: 'orders', take: 3}",
    "{truceRevision: 'posts', save: {_id: 1, title: 'On truce', views: 0}, keep: 5}",
    "{truceRevision: 'posts', save: {_id: 1, title: 'On it', views: 0}, version: 1, keep: 5}",
    "{truceRevision: 'posts', merge: {_id: 1, title: 'On that', views: 1}, version: 1, keep: 5, inbox: true}",
    "{truceItem: 'employees', filter: {_id: 1}, field: 'badges', identity: 'type', upsert: {type: 'MENTOR', since: 2026}}",
    "{truceEnqueue: 'mail', payload: {to: 'ada@example.org'}, id: {$oid: '0123456789abcdef01234567'}, unique: 'welcome ada'}",
    "{truceEnqueue: 'mail', payload: {n: 1}, id: {$oid: '0123456789abcdef01234568'}, lane: 'l', laneWidth: 2, laneRate: 5, "
    "lanePerMS: 1000, tags: ['x'], metadata: {a: 1}}",
    "{truceEnqueue: 'mail', payload: {n: 2}, lane: 'l', laneWidth: 2, priority: 5}",
    "{truceEnqueue: 'mail', payload: {n: 3}, after: [{$oid: '0123456789abcdef01234568'}], name: 'second'}",
    "{truceEnqueue: 'mail', payload: {n: 4}, delayMS: 50, uniquePayload: true, uniquePeriodMS: 60000}",
    "{truceClaim: 'mail', leaseMS: 30000}",
    "{truceClaim: 'mail', leaseMS: 1000}",
    "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}",
    "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'cash', min: -100000}",
    "{truceLedgerPost: 'bank', id: 'sale 16', entries: [{account: 'cash', value: -1250}, {account: 'sales', value: 1250}]}",
    "{truceLedgerPost: 'bank', id: 'held', kind: 'pending', entries: [{account: 'cash', value: -50}, {account: 'sales', value: 50}]}",
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', add: {name: 'CS 101', room: 4}, seq: 1001}",
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', remove: {name: 'CS 102'}, seq: 1002, source: "
    "'east', consumer: 'one'}",
    "{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name', source: 'east', start: true}",
    "{insert: 'users', documents: [{_id: 17, name: 'Bob'}]}",
    "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user', copies: {author: 'name'}, settleMS: 1}",
    "{truceSyncInsert: 'comments', document: {_id: 1, user: 17, text: 'first'}}",
    "{truceTransfer: 'transactions', id: 16, source: 'a', destination: 'b', amount: 1, accounts: 'accounts', field: 'n'}",
    "{truceTreePublish: 'site', collection: 'pages', parent: 'up', changes: [{put: {itemId: 'home', title: 'Home'}}, {put: "
    "{itemId: 'about', up: 'home', title: 'About'}}], message: 'the first pages'}",
    "{truceTreePublish: 'site', changes: [{put: {itemId: 'home', title: 'House'}}]}",
    "{truceTree: 'site', tag: 'launch'}",
    "{truceTree: 'site', branch: 'draft'}",
    "{truceTreePublish: 'draft', changes: [{put: {itemId: 'about', up: 'home', title: 'Draft'}}]}",
};

#endif
