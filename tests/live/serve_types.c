/* The types of the fields of commands: numbers of any type are numbers, and other types are refused
 * with MongoDB's codes. */
#include "tests/support/served_story.h"

static void make_five(void)
{
    static const struct step steps[] = {
        {"{insert: 'c', documents: [{_id: 1, a: [1, 2]}, {_id: 2, a: [1, 2]}, {_id: 3, a: [1, 2]},"
         " {_id: 4, a: [1, 2]}, {_id: 5, a: [1, 2]}]}",
         0, "n", "5"}};

    TELL(steps);
}

/* `%s` is the number 2 in each of BSON's types; the answer has `path` if the type was accepted. */
static const struct numbered {
    const char *command, *path, *text;
} numbered[] = {
    {"{find: 'c', batchSize: %s}", "cursor.firstBatch.1._id", "2"},
    {"{find: 'c', batchSize: %s}", "cursor.firstBatch.2._id", NULL},
    {"{find: 'c', limit: %s}", "cursor.firstBatch.2._id", NULL},
    {"{find: 'c', skip: %s}", "cursor.firstBatch.0._id", "3"},
    {"{find: 'c', filter: {a: {$size: %s}}}", "cursor.firstBatch.4._id", "5"},
    {"{aggregate: 'c', pipeline: [], cursor: {batchSize: %s}}", "cursor.firstBatch.2._id", NULL},
    {"{aggregate: 'c', pipeline: [{$limit: %s}], cursor: {}}", "cursor.firstBatch.2._id", NULL},
    {"{aggregate: 'c', pipeline: [{$skip: %s}], cursor: {}}", "cursor.firstBatch.0._id", "3"},
    {"{aggregate: 'c', pipeline: [{$sample: {size: %s}}], cursor: {}}", "cursor.firstBatch.2._id",
     NULL},
    {"{count: 'c', limit: %s}", "n", "2"},
    {"{count: 'c', skip: %s}", "n", "3"},
    {"{find: 'c', maxTimeMS: {$numberDecimal: '60000'}, limit: %s}", "ok", "1.0"},
    {"{find: 'c', singleBatch: %s}", "cursor.id", "0"},
    {"{listCollections: 1, cursor: {batchSize: %s}}", "ok", "1.0"},
    {"{listIndexes: 'c', cursor: {batchSize: %s}}", "ok", "1.0"},
    {"{insert: 'd', documents: [{}], ordered: %s, bypassDocumentValidation: %s}", "n", "1"},
    {"{update: 'c', updates: [{q: {_id: {$gt: 3}}, u: {$set: {b: 1}}, multi: %s}]}", "n", "2"},
    {"{delete: 'none', deletes: [{q: {}, limit: {$numberDecimal: '1'}}], ordered: %s}", "n", "0"},
    {"{findAndModify: 'none', query: {}, remove: %s}", "value", "null"},
    {"{collStats: 'c', scale: %s}", "count", "5"},
    {"{dbStats: 1, scale: %s}", "scaleFactor", "2.0"},
    {"{killOp: 1, op: %s, $db: 'admin'}", "ok", "1.0"},
    {"{killCursors: 'c', cursors: [%s]}", "cursorsNotFound.0", "2"},
    {"{bulkWrite: 1, ops: [{insert: {$numberDecimal: '0'}, document: {}}], nsInfo: [{ns: 'test.e'}],"
     " ordered: %s, $db: 'admin'}",
     "nInserted", "1"},
    {"{insert: 'd', documents: [{}], writeConcern: {w: {$numberDecimal: '1'}, wtimeout: %s, j: %s}}",
     "n", "1"},
    {"{profile: {$numberDecimal: '0'}, slowms: %s}", "ok", "1.0"},
    {"{truceSequence: 'numbers', take: %s}", "ok", "1.0"},
};

static const char *const twos[] = {"2",
                                   "{$numberLong: '2'}",
                                   "2.0",
                                   "{$numberDouble: '2'}",
                                   "{$numberDecimal: '2'}",
                                   "{$numberDecimal: '2.000'}",
                                   "{$numberDecimal: '20E-1'}"};

/* `form` with the operand in place of each "%s"; bson_free it. */
static char *fill(const char *form, const char *operand)
{
    bson_string_t *all = bson_string_new(NULL);

    while (*form) {
        if (!strncmp(form, "%s", 2)) {
            bson_string_append(all, operand);
            form += 2;
        } else {
            bson_string_append_c(all, *form++);
        }
    }
    return bson_string_free(all, false);
}

static void take_filled(int end_, const char *form, const char *operand, struct step step)
{
    char *command = fill(form, operand);

    step.command = command;
    take_step(end_, &step);
    bson_free(command);
}

TEST(a_number_of_any_type_is_a_number_in_every_field)
{
    int end_;

    begin();
    make_five();
    end_ = dial();
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
        for (size_t j = 0; j < sizeof twos / sizeof *twos; j++)
            take_filled(end_, numbered[i].command, twos[j],
                        (struct step){.path = numbered[i].path, .text = numbered[i].text});
    close(end_);
    end();
}

/* As MongoDB reads them: it truncates fractions, and clamps numbers to 64 bits. */
TEST(fractions_and_huge_numbers_are_read_as_mongodb_reads_them)
{
    static const struct step steps[] = {
        {"{find: 'c', limit: 2.9}", 0, "cursor.firstBatch.2", NULL},
        {"{find: 'c', limit: {$numberDecimal: '2.9'}}", 0, "cursor.firstBatch.1._id", "2"},
        {"{find: 'c', limit: {$numberDecimal: '1E+30'}}", 0, "cursor.firstBatch.4._id", "5"},
        {"{find: 'c', limit: {$numberDouble: '1e300'}}", 0, "cursor.firstBatch.4._id", "5"},
        {"{find: 'c', limit: {$numberDouble: 'NaN'}}", 0, "cursor.firstBatch.4._id", "5"},
        {"{find: 'c', skip: {$numberDecimal: 'Infinity'}}", 0, "cursor.firstBatch.0", NULL},
        {"{find: 'c', batchSize: {$numberDecimal: '-1'}}", 51024, NULL, NULL},
        {"{find: 'c', skip: {$numberDecimal: '-Infinity'}}", 51024, NULL, NULL},
        {"{find: 'c', maxTimeMS: {$numberDecimal: '1E+20'}}", 2, NULL, NULL},
        {"{getMore: {$numberLong: '1'}, collection: 'c', batchSize: -5}", 2, NULL, NULL},
        /* an amount, and a counter of truce, is never rounded */
        {"{truceSequence: 'numbers', take: 2.5}", 2, NULL, NULL},
        {"{truceSequence: 'numbers', take: {$numberDecimal: '2.5'}}", 2, NULL, NULL},
        {"{truceLedgerPost: 'book', id: 'x', entries: [{account: 'a', value: {$numberDecimal:"
         " '0.5'}}, {account: 'b', value: -1}]}",
         2, NULL, NULL},
        {"{truceLedgerPost: 'book', id: 'x', entries: [{account: 'a', value: 1e300}]}", 2, NULL,
         NULL},
    };

    begin();
    make_five();
    TELL(steps);
    end();
}

TEST(other_types_are_refused_with_the_codes_of_mongodb)
{
    static const char *const others[] = {"'2'", "{a: 1}", "[1]", "{$date: 1}",
                                         "{$oid: '5f5f5f5f5f5f5f5f5f5f5f5f'}"};
    static const struct {
        const char *command;
        int code;
    } commands[] = {
        {"{find: 'c', batchSize: %s}", 14},
        {"{find: 'c', limit: %s}", 14},
        {"{find: 'c', skip: %s}", 14},
        {"{find: 'c', maxTimeMS: %s}", 14},
        {"{find: 'c', singleBatch: %s}", 14},
        {"{find: 'c', lsid: {id: %s}}", 14},
        {"{aggregate: 'c', pipeline: [], cursor: {batchSize: %s}}", 14},
        {"{getMore: %s, collection: 'c'}", 14},
        {"{getMore: {$numberLong: '1'}, collection: 'c', batchSize: %s}", 14},
        {"{killCursors: 'c', cursors: [%s]}", 14},
        {"{killOp: 1, op: %s, $db: 'admin'}", 14},
        {"{profile: %s}", 14},
        {"{insert: 'd', documents: [{}], ordered: %s}", 14},
        {"{insert: 'd', documents: [{}], writeConcern: {j: %s}}", 14},
        {"{insert: 'd', documents: [{}], writeConcern: {wtimeout: %s}}", 9},
        {"{insert: 'd', documents: [{}], txnNumber: %s}", 14},
        {"{insert: 'd', documents: [{}], autocommit: %s}", 14},
        {"{insert: 'd', documents: [{}], startTransaction: %s}", 14},
        {"{ping: 1, apiVersion: '1', apiStrict: %s}", 14},
        {"{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}],"
         " ignoreUnknownIndexOptions: %s}",
         14},
    };
    static const struct step steps[] = {
        {"{find: 'c', lsid: 1}", 14, NULL, NULL},
        {"{find: 'c', lsid: {}}", 40414, NULL, NULL},
        {"{find: 'c', lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}},"
         " uuid: 1}}",
         40415, NULL, NULL},
        {"{endSessions: [{id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}},"
         " uuid: 1}]}",
         40415, NULL, NULL},
        {"{find: 'c', lsid: {id: {$binary: {base64: 'AAAA', subType: '04'}}}}", 207, NULL, NULL},
        {"{find: 'c', lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '00'}}}}",
         14, NULL, NULL},
        {"{find: 'c', lsid: null, maxTimeMS: null, readConcern: null, batchSize: null}", 0, NULL,
         NULL},
        {"{find: 'c', readConcern: 1}", 14, NULL, NULL},
        {"{insert: 'd', documents: [{}], writeConcern: 1}", 14, NULL, NULL},
        {"{insert: 'd', documents: [{}], writeConcern: {w: true}}", 9, NULL, NULL},
        {"{insert: 'd', documents: [{}], writeConcern: {w: -1}}", 9, NULL, NULL},
        {"{insert: 'd', documents: [{}], writeConcern: {w: 51}}", 9, NULL, NULL},
        {"{insert: 'd', documents: [{}], txnNumber: 1}", 14, NULL, NULL},
        {"{insert: 'd', documents: [{}], txnNumber: {$numberLong: '-1'}}", 72, NULL, NULL},
        {"{ping: 1, apiVersion: 1}", 14, NULL, NULL},
        {"{ping: 1, apiVersion: '2'}", 322, NULL, NULL},
    };
    int end_;

    begin();
    end_ = dial();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        for (size_t j = 0; j < sizeof others / sizeof *others; j++)
            take_filled(end_, commands[i].command, others[j],
                        (struct step){.code = commands[i].code});
    close(end_);
    TELL(steps);
    end();
}

TEST(names_the_refused_value_of_a_field)
{
    static const struct step steps[] = {
        {"{find: 'c', lsid: {id: 7}}", 14, "errmsg", "\"lsid.id must be a UUID, not 7\""},
        {"{killCursors: 'c', cursors: [true]}", 14, "errmsg",
         "\"the cursors of killCursors must be numbers, not true\""},
        {"{delete: 'c', deletes: [{q: {}, limit: 2}]}", 9, "errmsg",
         "\"the limit of a statement of delete must be 0 (all) or 1, not 2\""},
        {"{endSessions: 1}", 14, "errmsg",
         "\"'endSessions' must be an array of sessions, [{id: UUID}], not int\""},
        {"{profile: 7}", 2, "errmsg", "\"the level of profile must be -1, 0, 1, or 2, not 7\""},
    };

    begin();
    TELL(steps);
    end();
}

#define LSID "lsid: {id: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAQ==', subType: '04'}}}"

TEST(refuses_the_end_of_an_unknown_transaction_as_mongodb_does)
{
    static const char *const ends[] = {"abortTransaction", "commitTransaction"};
    static const struct {
        const char *command;
        int code;
    } commands[] = {
        {"{%s: 1, $db: 'admin'}", 125},
        {"{%s: 1, " LSID ", $db: 'admin'}", 125},
        {"{%s: 1, " LSID ", autocommit: false, $db: 'admin'}", 72},
        {"{%s: 1, txnNumber: {$numberLong: '1'}, $db: 'admin'}", 72},
        {"{%s: 1, txnNumber: {$numberLong: '1'}, autocommit: false, $db: 'admin'}", 72},
        {"{%s: 1, " LSID ", txnNumber: {$numberLong: '1'}, $db: 'admin'}", 50768},
        {"{%s: 1, " LSID ", txnNumber: {$numberLong: '1'}, autocommit: true, $db: 'admin'}", 72},
        {"{%s: 1, " LSID ", txnNumber: {$numberLong: '1'}, startTransaction: true, $db: 'admin'}",
         72},
        {"{%s: 1, " LSID ", txnNumber: {$numberLong: '1'}, autocommit: false, $db: 'admin'}", 251},
        {"{%s: 1, " LSID ", txnNumber: {$numberLong: '1'}, autocommit: false,"
         " startTransaction: true, $db: 'admin'}",
         263},
    };
    int end_;

    begin();
    end_ = dial();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        for (size_t j = 0; j < sizeof ends / sizeof *ends; j++)
            take_filled(end_, commands[i].command, ends[j],
                        (struct step){.code = commands[i].code});
    close(end_);
    end();
}

TEST(ignores_unknown_index_options_only_on_request)
{
    static const struct step steps[] = {
        {"{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1', unique: true}],"
         " ignoreUnknownIndexOptions: true}",
         0, "numIndexesAfter", "2"},
        {"{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b_1', safe: true}]}", 197, NULL,
         NULL},
        {"{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b_1', safe: true}],"
         " ignoreUnknownIndexOptions: false}",
         197, NULL, NULL},
        {"{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b_1', safe: true, dropDups: true,"
         " sparse: true, v: 2, background: true, ns: 'test.c'}, {key: {d: -1}, name: 'd_-1',"
         " unknown: {a: 1}, expireAfterSeconds: {$numberDecimal: '60'}}],"
         " ignoreUnknownIndexOptions: true}",
         0, "numIndexesAfter", "4"},
        {"{listIndexes: 'c'}", 0, "cursor.firstBatch.1.unique", "true"},
        {"{listIndexes: 'c'}", 0, "cursor.firstBatch.2.sparse", "true"},
        {"{listIndexes: 'c'}", 0, "cursor.firstBatch.2.safe", NULL},
        {"{listIndexes: 'c'}", 0, "cursor.firstBatch.3.unknown", NULL},
        /* options that MongoDB has and truce has not are no unknown options */
        {"{createIndexes: 'c', indexes: [{key: {e: 1}, name: 'e_1', weights: {e: 1}}],"
         " ignoreUnknownIndexOptions: true}",
         115, NULL, NULL},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_wrong_index_makes_none_and_a_wrong_name_drops_none)
{
    static const struct step steps[] = {
        {"{createIndexes: 'm', indexes: [{key: {a: 1}, name: 'a'}, {key: {b: 'nothing'}, name: 'b'}]}",
         67, NULL, NULL},
        {"{createIndexes: 'm', indexes: [{key: {a: 1}, name: 'a'}, {key: {b: 1}, name: 'b', x: 1}]}",
         197, NULL, NULL},
        {"{createIndexes: 'm', indexes: [{key: {a: 1}, name: 'a'}, {key: {b: 1}, name: 'b', text: 1},"
         " 5]}",
         14, NULL, NULL},
        {"{listIndexes: 'm'}", 26, NULL, NULL},
        {"{createIndexes: 'm', indexes: [{key: {a: 1}, name: 'a'}, {key: {b: 1}, name: 'b'}]}", 0,
         "numIndexesAfter", "3"},
        {"{dropIndexes: 'm', index: ['a', 'c']}", 27, NULL, NULL},
        {"{dropIndexes: 'm', index: ['a', 1]}", 14, NULL, NULL},
        {"{dropIndexes: 'm', index: ['a', '_id_']}", 72, NULL, NULL},
        {"{dropIndexes: 'm', index: ['b', 'a']}", 0, "nIndexesWas", "3"},
        {"{listIndexes: 'm'}", 0, "cursor.firstBatch.1", NULL},
    };

    begin();
    TELL(steps);
    end();
}

TEST(an_index_that_documents_do_not_allow_leaves_no_other_index)
{
    static const struct step steps[] = {
        {"{insert: 'n', documents: [{_id: 1, v: 1}, {_id: 2, v: 1}]}", 0, "n", "2"},
        {"{createIndexes: 'n', indexes: [{key: {a: 1}, name: 'a'}]}", 0, "numIndexesAfter", "2"},
        {"{createIndexes: 'n', indexes: [{key: {a: 1}, name: 'a'}, {key: {b: 1}, name: 'b'}, "
         "{key: {v: 1}, name: 'v', unique: true}, {key: {w: 1}, name: 'w'}]}",
         11000, NULL, NULL},
        {"{listIndexes: 'n'}", 0, "cursor.firstBatch.1.name", "\"a\""},
        {"{listIndexes: 'n'}", 0, "cursor.firstBatch.2", NULL},
    };

    begin();
    TELL(steps);
    end();
}

/* mongostat, mongotop and exporters read them into integers; a double with a fraction ends them. */
static void check_whole(const bson_t *reply, const char *path)
{
    bson_iter_t iter, found;

    if (!CHECK(bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found)))
        return;
    if (BSON_ITER_HOLDS_DOUBLE(&found))
        CHECK((double)(int64_t)bson_iter_double(&found) == bson_iter_double(&found));
    else
        CHECK(BSON_ITER_HOLDS_INT(&found));
}

TEST(reports_integers_in_the_status_of_a_server)
{
    static const char *const paths[] = {
        "pid",
        "uptime",
        "uptimeMillis",
        "uptimeEstimate",
        "connections.current",
        "connections.available",
        "connections.totalCreated",
        "opcounters.insert",
        "opcounters.query",
        "opcounters.update",
        "opcounters.delete",
        "opcounters.getmore",
        "opcounters.command",
        "asserts.regular",
        "asserts.warning",
        "asserts.msg",
        "asserts.user",
        "asserts.rollovers",
        "extra_info.page_faults",
        "globalLock.totalTime",
        "globalLock.currentQueue.total",
        "globalLock.currentQueue.readers",
        "globalLock.currentQueue.writers",
        "globalLock.activeClients.total",
        "globalLock.activeClients.readers",
        "globalLock.activeClients.writers",
        "network.bytesIn",
        "network.bytesOut",
        "network.numRequests",
        "mem.bits",
        "mem.resident",
        "mem.virtual",
    };
    bson_t *reply;

    begin();
    usleep(1100 * 1000); /* so that a second is not over by chance */
    reply = ask("{'serverStatus': 1, '$db': 'admin'}");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        check_whole(reply, paths[i]);
    bson_destroy(reply);
    end();
}
