/*
 * The patterns as commands: their answers, and their errors. The commands come from raw sockets;
 * tests/servers/patterns.py tests them through drivers. The patterns themselves have their own
 * tests.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/command/serve_pattern_operations.h"
#include "server/commands.h"
#include "tests/support/each_operation.h"
#include "tests/support/served_claim.h"

/* ---- the table ------------------------------------------------------------------------------- */

TEST(describes_every_command_and_runs_its_example)
{
    static const struct step before[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0, "n", "2"},
        {"{createIndexes: 'accounts', indexes: [{key: {email: 1, _id: 1}, name: 'e', unique: true}]}",
         0},
        {"{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'sales'}", 0},
        {"{insert: 'transactions', documents: [{_id: 18, source: 'a', destination: 'b', value: 1, "
         "state: 'pending'}]}",
         0},
    };
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    EACH_OPERATION(pattern)
    {
        struct step example = {pattern->example, 0, "ok", "1.0"};
        char *help = bson_strdup_printf("{truceHelp: '%s'}", pattern->name);
        struct step helped = {help, 0, "name", NULL};
        char *name = bson_strdup_printf("\"%s\"", pattern->name);

        helped.text = name;
        if (strstr(pattern->example, "token")) /* no worker has claimed that job */
            example = (struct step){pattern->example, 125, "status", "\"expired\""};
        CHECK(truce__operation_named(pattern->name) == pattern);
        CHECK(server_commands.find(pattern->name) == row_command(pattern));
        CHECK(pattern->value && pattern->answer && pattern->help);
        take_step(end_, &helped);
        take_step(end_, &example);
        bson_free(name);
        bson_free(help);
    }
    close(end_);
    end();
}

/* The packages report an unknown outcome if such a call was interrupted. */
TEST(says_of_each_operation_whether_it_may_write)
{
    static const struct step steps[] = {
        {"{truceHelp: 'truceSequence'}", 0, "writes", "true"},
        {"{truceHelp: 'truceSet'}", 0, "writes", "true"},
        {"{truceHelp: 'truceSetCollect'}", 0, "writes", "true"},
        {"{truceHelp: 'truceRevision'}", 0, "writes", "true"},
        {"{truceHelp: 'truceSyncRepair'}", 0, "writes", "true"},
        {"{truceHelp: 'truceTree'}", 0, "writes", "true"},
        {"{truceHelp: 'truceCheck'}", 0, "writes", "true"},
        {"{truceHelp: 'truceEnqueue'}", 0, "writes", "true"},
        {"{truceHelp: 'truceJobs'}", 0, "writes", "false"},
    };

    begin();
    TELL(steps);
    end();
}

/* An unknown field, a field of a wrong type, a missing field, and numbers out of range. */
TEST(refuses_unknown_fields_by_name)
{
    static const struct step steps[] = {
        {"{truceNothing: 1}", 59},
        {"{truceHelp: 'truceNothing'}", 59},
        {"{truceHelp: 1, nothing: 1}", 40415},
        {"{truceHelp: 1}", 0, "commands.0.name", "\"truceHelp\""},
        {"{truceCommit: 'x'}", 14, "status", "\"invalid\""},
        {"{truceCommit: 'x'}", 14, "errmsg",
         "\"the changes of a commit must be an array, not string\""},
        {"{truceCommit: []}", 16, "errmsg",
         "\"the commit has no changes: add at least one, such as an insert\""},
        {"{truceCommit: [], leave: {n: 1}}", 72, "errmsg",
         "\"'leave' needs 'key': a later call reads the result by its key\""},
        {"{truceSequence: 's', tkae: 3}", 40415, "errmsg",
         "\"unknown field \\\"tkae\\\" of \\\"truceSequence\\\": did you mean \\\"take\\\"?\""},
        {"{truceSequence: 's', quantity: 3}", 40415, "errmsg",
         "\"unknown field \\\"quantity\\\" of \\\"truceSequence\\\": its fields are 'take', 'raise'\""},
        {"{truceSequence: 's', take: 1, takee: 3}", 40415, "errmsg",
         "\"unknown field \\\"takee\\\" of \\\"truceSequence\\\": its fields are 'take', 'raise'\""},
        {"{truceJobResults: 1}", 14, "errmsg",
         "\"the job of truceJobResults must be an ObjectId or its 24 hexadecimal digits, not int\""},
        {"{truceJobGraph: '0123456789abcdef01234567'}", 0, "status", "\"not found\""},
        {"{truceEnqueue: 'q', after: ['0123456789abcdef01234567']}", 2, "errmsg",
         "\"the job 0123456789abcdef01234567, which this job waits for, does not exist\""},
        {"{truceQueue: 'q', action: 'cancel', ids: ['0123456789abcdef01234567']}", 0, "skipped",
         "1"},
        {"{truceSequense: 's'}", 59, "errmsg",
         "\"no such command: \\\"truceSequense\\\": did you mean \\\"truceSequence\\\"?\""},
        {"{payload: {}, truceEnqueue: 'q'}", 59, "errmsg",
         "\"no such command: \\\"payload\\\": the first field must be the name of the command, "
         "and \\\"truceEnqueue\\\" is field 2\""},
        {"{payload: {}, truceEnqueue: 'q'}", 59, "status", "\"invalid\""},
        {"{filter: {}, limit: 1, find: 'c'}", 59, "errmsg",
         "\"no such command: \\\"filter\\\": the first field must be the name of the command, "
         "and \\\"find\\\" is field 3\""},
        {"{filter: {}, find: 'c'}", 59, "status", NULL},
        {"{truceHelp: 'enque'}", 59, "errmsg",
         "\"\\\"enque\\\" is not an operation: did you mean \\\"truceEnqueue\\\"?\""},
        {"{fnid: 'c'}", 59, "errmsg",
         "\"no such command: \\\"fnid\\\": did you mean \\\"find\\\"?\""},
        {"{truceEnqueue: 'q', payload: {}, lane: 'a', laneRate: 3}", 72, "errmsg",
         "\"'laneRate' and 'lanePerMS' must be given together\""},
        {"{truceEnqueue: 'q', payload: {}, laneRate: 3, lanePerMS: 5}", 72, "errmsg",
         "\"'laneRate' needs 'lane'\""},
        {"{truceCommit: [1]}", 2, "errmsg", "\"change 1: must be a document, not int\""},
        {"{truceCommit: [{}]}", 2},
        {"{truceCommit: [{update: 'c', with: {}}]}", 2, "errmsg",
         "\"change 1: update of \\\"c\\\" needs an \\\"id\\\"\""},
        {"{truceCommit: [{insert: 7, with: {}}]}", 2, "errmsg",
         "\"change 1: \\\"insert\\\" must name a collection, not int\""},
        {"{insert: 'a\\u0000b', documents: [{}]}", 73, "errmsg",
         "\"a name must not contain a zero byte, and has one after \\\"a\\\"\""},
        {"{truceCommit: [{update: 'c', id: 1, with: {$inc: {n: 1}}, unless: {}}]}", 2},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k'}", 72, "errmsg",
         "\"'key' needs 'keyTime': the time when the request was made, in milliseconds since 1970, the "
         "same in each repetition\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], keyTime: 1767225600000}", 72, "errmsg",
         "\"'keyTime' needs 'key': it is the time of that key\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 0}", 2},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 1767225600}", 2,
         "errmsg",
         "\"'keyTime' is 1767225600, a time before 10000000000, which is probably in seconds: expected "
         "milliseconds since 1970, for example 1767225600000\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 99999999999999}", 2,
         "errmsg",
         "\"the time of the idempotency key \\\"k\\\" is 99999999999999, more than a day ahead of the "
         "clock: expected the time when the request was made, in milliseconds since 1970\""},
        {"{truceEnqueue: 'q', payload: {}, runAtMS: 1767225600}", 2},
        {"{truceCommit: [{truceEnqueue: 'q', payload: {}, runAtMS: 1767225600}]}", 2},
        {"{truceFlow: 'q', jobs: [{name: 'a', payload: {}, runAtMS: 1767225600}]}", 2},
        {"{truceCronNext: '* * * * *', afterMS: 1767225600}", 2},
        {"{truceLedgerSearch: 'bank', fromMS: 1767225600}", 2},
        {"{truceLedgerBalance: 'bank', account: 'a', bookedMS: 1767225600000000}", 2},
        {"{truceTreeRead: 'site', timeMS: 1767225600}", 2},
        {"{truceEnqueue: 'q', payload: {}, delayMS: 1767225600000}", 2, "errmsg",
         "\"'delayMS' is 1767225600000 ms, more than 10,000 days: expected a duration in milliseconds, "
         "and not a point in time\""},
        {"{truceEnqueue: 'q', payload: {}, delayMS: -1}", 2, "errmsg",
         "\"the field 'delayMS' must be from 0 to 864000000000 ms, not -1\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 7, keyTime: 5}", 14},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], leave: {a: 1}}", 72},
        {"{truceCommit: [{insert: '', with: {_id: 1}}]}", 73},
        {"{truceCommit: [{insert: '@school.c', with: {_id: 1}}]}", 73},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], nothing: 1}", 40415},
        {"{truceCommitResult: 7}", 14},
        {"{truceRequest: 'k'}", 40414},
        {"{truceRequest: 'k', name: null}", 40414},
        {"{truceSequence: 's', take: 0}", 2},
        {"{truceSequence: 's', take: 1000001}", 2},
        {"{truceSequence: 's', take: 1, raise: 1}", 72},
        {"{truceSequence: 's', take: 'x'}", 14},
        {"{truceSet: 'students', key: {student_id: 1}, name: 'name'}", 40414},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes'}", 40414},
        {"{truceSet: 'students', field: 'classes', name: 'name'}", 14},
        {"{truceSet: 'students', key: 'student_id', field: 'classes', name: 'name'}", 14},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {name: 'x'}}",
         72},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {name: 'x'}, remove: {name: 'x'}, seq: 1}",
         72},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', seq: 1}",
         72},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {}, seq: 1}",
         2},
        {"{truceSet: 'students', field: 'classes', name: 'name', apply: []}", 16},
        {"{truceSet: 'students', field: 'classes', name: 'name', apply: [1]}", 14},
        {"{truceSet: 'students', field: 'classes', name: 'name', seq: 1,"
         " apply: [{add: {name: 'x'}, key: {student_id: 1}, seq: 1}]}",
         72},
        {"{truceSet: 'students', field: 'classes', name: 'name',"
         " apply: [{add: {name: 'x'}, key: {student_id: 1}, seq: 1, nothing: 1}]}",
         40415},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name'}", 72},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " start: true, idle: 5}",
         72},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name', to: 5}",
         72},
    };

    begin();
    TELL(steps);
    end();
}

/* ---- commits --------------------------------------------------------------------------------- */

#define PAY                                                                                        \
    "{truceCommit: [{update: 'accounts', id: 'a', if: {n: {$gte: 5}}, with: {$inc: {n: -5}}},"     \
    " {update: 'accounts', id: 'b', with: {$inc: {n: 5}}}]"

#define POST_1 "{post: 'book', id: 1, with: {bank: '-12.50', ada: 1250}, meta: {order: 1}}"

TEST(a_commit_changes_all_or_nothing_and_once_under_its_key)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0, "n", "2"},
        {PAY ", key: 'k', keyTime: 1767225600000, leave: {receipt: 1}}", 0, "earlier", "false"},
        {PAY ", key: 'k', keyTime: 1767225600000, leave: {receipt: 1}}", 0, "result",
         "{\"receipt\": 1}"},
        {PAY ", key: 'k', keyTime: 1767225600000}", 0, "earlier", "true"},
        {"{find: 'accounts', filter: {n: 5}}", 0, "cursor.firstBatch.0._id", "\"b\""},
        /* the second guard does not hold, and nothing is executed */
        {PAY "}", 20, "status", "\"refused\""},
        {"{truceCommit: [{update: 'accounts', id: 'z', if: {n: 5}, with: {$inc: {n: 1}}}]}", 125,
         "status", "\"not found\""},
        {"{find: 'accounts', filter: {n: 5}}", 0, "cursor.firstBatch.0._id", "\"b\""},
        {"{truceCommit: [{insert: 'accounts', with: {_id: 'c'}}], key: 'k',"
         " keyTime: 1767225600000}",
         11000, "status", "\"duplicate\""},
        {"{truceCommit: [{insert: 'accounts', with: {_id: 'a'}}]}", 11000, "codeName",
         "\"DuplicateKey\""},
        {"{truceCommit: [{change: 'accounts', id: 'b', with: {n: [4, 6]}}]}", 112, "status",
         "\"conflict\""},
        {"{truceCommit: [{change: 'accounts', id: 'b', with: {n: [5, 6]}},"
         " {missing: 'accounts', id: 'z'}, {require: 'accounts', id: 'a'}]}",
         0, "status", "\"ok\""},
        {"{truceCommitResult: 'k'}", 0, "result", "{\"receipt\": 1}"},
        {"{truceCommitResult: 'none'}", 0, "status", "\"not found\""},
        {"{truceCommitShow: 'k'}", 0, "commit.key", "\"k\""},
        {"{truceCommitShow: 'k'}", 0, "commit.input.changes.0.id", "\"a\""},
        {"{truceCommitShow: 'none'}", 0, "status", "\"not found\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'long ago', keyTime: 1000000000000}",
         0},
        /* a generated _id, and a request that its input identifies */
        {"{truceCommit: [{insert: 'letters', with: {n: 1}}]}", 0, "earlier", "false"},
        {"{truceCommit: [{insert: 'letters', with: {n: 2}}], key: 'letter', input: {n: 7},"
         " keyTime: 1767225600000}",
         0, "earlier", "false"},
        {"{truceCommit: [{insert: 'letters', with: {n: 3}}], key: 'letter', input: {n: 7},"
         " keyTime: 1767225600000}",
         0, "earlier", "true"},
        {"{truceCommit: [{insert: 'letters', with: {n: 2}}], key: 'letter', input: {n: 8},"
         " keyTime: 1767225600000}",
         11000, "status", "\"duplicate\""},
        {"{truceCommit: [{insert: 'letters', with: {_id: 9, n: 3}}]}", 0, "inserted", NULL},
        {"{count: 'letters'}", 0, "n", "3"},
        /* jobs and money together with documents */
        {"{truceLedgerOpen: 'book', currency: 'EUR', digits: 2, account: 'bank'}", 0},
        {"{truceLedgerOpen: 'book', currency: 'EUR', account: 'ada', min: 0}", 0},
        {"{truceCommit: [" POST_1 ", {enqueue: 'mail', with: {n: 1}, lane: 'l'},"
         " {insert: 'orders', with: {_id: 1}}]}",
         0, "status", "\"ok\""},
        {"{truceLedgerBalance: 'book', account: 'ada'}", 0, "balance", "1250"},
        {"{truceCommit: [" POST_1 ", {enqueue: 'mail', with: {n: 2}}]}", 11000, "status",
         "\"duplicate\""},
        {"{truceCommit: [{enqueue: 'mail', with: {n: 2}},"
         " {post: 'book', id: 2, with: {ada: -1251, bank: '12.51'}}]}",
         146, "status", "\"limit reached\""},
        {"{truceJobs: 'mail'}", 0, "jobs.0.payload.n", "1"},
        {"{truceJobs: 'mail'}", 0, "jobs.1", NULL},
        {"{truceCommit: [{enqueue: 'mail', with: {n: 3}}], $db: 'other'}", 0},
        {"{truceJobs: 'mail', $db: 'other'}", 0, "jobs.0.payload.n", "3"},
        {"{truceJobs: 'mail'}", 0, "jobs.1", NULL},
        {"{truceCommit: [{enqueue: '@other.mail', with: {n: 3}}]}", 0},
        {"{truceJobs: 'mail', $db: 'other'}", 0, "jobs.1", NULL},
        {"{truceJobs: '@other.mail'}", 0, "jobs.0.payload.n", "3"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(lists_commits_and_reads_several_documents_at_once)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0, "n", "2"},
        {PAY ", key: 'pay 1', keyTime: 1767225600000}", 0},
        {PAY ", key: 'other', keyTime: 1767225600000}", 20},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'pay 2', keyTime: 1767225600000}", 0},
        {"{truceCommits: 1, keyPrefix: 'pay'}", 0, "commits.0.key", "\"pay 2\""},
        {"{truceCommits: 1, keyPrefix: 'pay', limit: 1}", 0, "more", "true"},
        {"{truceCommits: 1, keyPrefix: 'pay', limit: 2}", 0, "more", "false"},
        {"{truceCommits: 1, state: 'pending'}", 0, "commits", "[]"},
        {"{truceCommits: 1, state: 'lost'}", 2},
        {"{truceCommits: 1, $db: 'school'}", 0, "commits", "[]"},
        {"{truceCommitResolve: 'x'}", 14},
        {"{truceCommitResolve: {$oid: '0123456789abcdef01234569'}}", 0, "status", "\"not found\""},
        {"{truceReadMany: 1, documents: []}", 16},
        {"{truceReadMany: 1, documents: [{collection: 'accounts'}]}", 40414},
        {"{truceReadMany: 1, documents: [7]}", 14},
#define MANY                                                                                       \
    "{truceReadMany: 1, documents: [{collection: 'accounts', id: 'b'}, {collection: 'accounts',"   \
    " id: 'z'}, {collection: 'c', id: 1}]}"
        {MANY, 0, "documents.0.n", "5"},
        {MANY, 0, "documents.1", "null"},
        {MANY, 0, "documents.2._id", "1"},
    };

    begin();
    TELL(steps);
    end();
}

#define CLASS(n)                                                                                                 \
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', add: {name: 'CS 1'}, seq: " #n \
    "}"

/* Every operation that may be part of a commit: it takes effect with the other changes or not at
 * all, whichever change fails. */
TEST(takes_operations_of_all_patterns_as_parts_of_one_commit)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0},
        {"{insert: 'users', documents: [{_id: 1, name: 'Ada', items: []}]}", 0},
        {"{truceLedgerOpen: 'book', currency: 'EUR', digits: 2, account: 'bank'}", 0},
        {"{truceLedgerOpen: 'book', currency: 'EUR', account: 'ada', min: 0}", 0},
        {"{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user',"
         " copies: {author: 'name'}, settleMS: 1}",
         0},
#define ALL                                                                                                         \
    CLASS(1)                                                                                                        \
    ", {truceEnqueue: 'mail', payload: {n: 1}}, {truceEnqueue: 'mail', payloads: [{n: 2}, {n: 3}]},"                \
    " {truceLedgerOpen: 'book', currency: 'EUR', account: 'bob'},"                                                  \
    " {truceLedgerPost: 'book', id: 1, entries: [{account: 'bank', value: -5}, {account: 'ada', value: 5}]},"       \
    " {truceSyncInsert: 'comments', document: {_id: 1, user: 1}},"                                                  \
    " {truceRevision: 'pages', save: {_id: 1, text: 'x'}},"                                                         \
    " {truceItem: 'carts', filter: {_id: 1}, field: 'items', identity: 'sku', add: {sku: 'a', n: 1}},"              \
    " {truceTransfer: 'moves', accounts: 'accounts', id: 1, source: 'a', destination: 'b', amount: 4, field: 'n'}," \
    " {truceTreePublish: 'site', collection: 'texts', base: 'new', changes: [{put: {itemId: 'home', text: 'x'}}]}"
        {"{insert: 'carts', documents: [{_id: 1, items: []}]}", 0},
        /* the last change does not hold */
        {"{truceCommit: [" ALL ", {require: 'accounts', id: 'z'}]}", 125, "status",
         "\"not found\""},
        {"{truceJobs: 'mail'}", 0, "jobs.0", NULL},
        {"{truceLedgerBalance: 'book', account: 'ada'}", 0, "balance", "0"},
        {"{truceLedgerBalance: 'book', account: 'bob'}", 0, "status", "\"not found\""},
        {"{count: 'comments'}", 0, "n", "0"},
        {"{count: 'pages'}", 0, "n", "0"},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name'}", 0,
         "status", "\"not found\""},
        {"{count: 'moves'}", 0, "n", "0"},
        {"{truceTreeLog: 'site'}", 0, "versions.0", NULL},
        {"{find: 'accounts', filter: {_id: 'a'}}", 0, "cursor.firstBatch.0.n", "9"},
        /* and the whole commit */
        {"{truceCommit: [" ALL ", {insert: 'orders', with: {_id: 1}}], key: 'all',"
         " keyTime: 1767225600000}",
         0, "results.0", "{\"change\": 1, \"outcome\": \"applied\"}"},
        {"{truceJobs: 'mail'}", 0, "jobs.2.payload.n", "3"},
        {"{truceLedgerBalance: 'book', account: 'ada'}", 0, "balance", "5"},
        {"{truceLedgerBalance: 'book', account: 'bob'}", 0, "balance", "0"},
        {"{find: 'comments'}", 0, "cursor.firstBatch.0.author", "\"Ada\""},
        {"{find: 'pages'}", 0, "cursor.firstBatch.0.text", "\"x\""},
        {"{find: 'carts'}", 0, "cursor.firstBatch.0.items.0.n", "1"},
        {CLASS(1), 0, "outcome", "\"duplicate\""},
        {"{find: 'accounts', filter: {_id: 'a'}}", 0, "cursor.firstBatch.0.n", "5"},
        {"{find: 'accounts', filter: {_id: 'b'}}", 0, "cursor.firstBatch.0.n", "4"},
        {"{truceTreeLog: 'site'}", 0, "versions.0.version", "1"},
        {"{find: 'orders'}", 0, "cursor.firstBatch.0._id", "1"},
        /* again, under its key: once */
        {"{truceCommit: [" ALL ", {insert: 'orders', with: {_id: 1}}], key: 'all',"
         " keyTime: 1767225600000}",
         0, "earlier", "true"},
        {"{truceJobs: 'mail'}", 0, "jobs.3", NULL},
        /* refused commits, which execute nothing */
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}}, {truceClaim: 'mail'}]}", 2,
         "errmsg", "\"change 2: truceClaim cannot be part of a commit\""},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}}, {truceNothing: 'mail'}]}", 2},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}}, {truceCommit: []}]}", 2},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}, nothing: 1}]}", 40415},
        {"{truceCommit: [{truceEnqueue: 'mail'}]}", 72},
        {"{truceCommit: [{truceQueue: 'mail', action: 'pause'}]}", 72},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}},"
         " {truceItem: 'carts', filter: {_id: 2}, field: 'items', identity: 'sku', add: {sku: 'a'}}]}",
         125},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}}, {truceLedgerPost: 'book', id: 2,"
         " entries: [{account: 'bank', value: 6}, {account: 'ada', value: -6}]}]}",
         146},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}}, {truceTreePublish: 'site', collection: 'texts', base: 'new',"
         " changes: [{remove: 'home'}]}]}",
         20, "status", "\"refused\""},
        {"{truceCommit: [{truceEnqueue: 'mail', payload: {n: 9}}, {truceTransfer: 'moves',"
         " accounts: 'accounts', id: 2, source: 'a', destination: 'b', amount: 40, field: 'n'}]}",
         20, "status", "\"refused\""},
        {"{truceJobs: 'mail'}", 0, "jobs.3", NULL},
    };

    begin();
    TELL(steps);
    end();
}

TEST(keeps_what_patterns_store_in_the_database_that_uses_them)
{
    static const struct step steps[] = {
        {"{truceSequence: 'orders', take: 17, $db: 'school'}", 0, "last", "17"},
        {"{truceEnqueue: 'mail', payload: {n: 1}, $db: 'school'}", 0, "added", "\"new\""},
        {"{find: 'truce_sequences', $db: 'school'}", 0, "cursor.firstBatch.0._id", "\"orders\""},
        {"{find: 'truce_queue', $db: 'school'}", 0, "cursor.firstBatch.0.queue", "\"mail\""},
        {"{find: 'truce_sequences'}", 0, "cursor.firstBatch", "[]"},
        {"{listCollections: 1, filter: {name: 'truce_queue'}, $db: 'school'}", 0,
         "cursor.firstBatch.0.info.truce", "true"},
        {"{listCollections: 1}", 0, "cursor.firstBatch", "[]"},
        {"{create: 'plain', $db: 'school'}", 0},
        {"{listCollections: 1, filter: {name: 'plain'}, $db: 'school'}", 0,
         "cursor.firstBatch.0.info.truce", NULL},
    };

    begin();
    TELL(steps);
    end();
}

TEST(databases_have_keys_sequences_and_requests_of_their_own)
{
    static const struct step steps[] = {
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 1767225600000,"
         " $db: 'school'}",
         0, "earlier", "false"},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}], key: 'k', keyTime: 1767225600000}", 0,
         "earlier", "false"},
        {"{truceCommitShow: 'k', $db: 'school'}", 0, "commit.key", "\"k\""},
        {"{truceCommitShow: 'k', $db: 'other'}", 0, "status", "\"not found\""},
        {"{find: 'c', $db: 'school'}", 0, "cursor.firstBatch.0._id", "1"},
        {"{truceSequence: 's', take: 3}", 0, "last", "3"},
        {"{truceSequence: 's', take: 2}", 0, "first", "4"},
        {"{truceSequence: 's', $db: 'school'}", 0, "last", "0"},
        {"{truceSequence: 's', raise: 100}", 0, "last", "100"},
        {"{truceSequence: 's'}", 0, "last", "100"},
        {"{truceCommit: [{truceSequence: 's', take: 2}, {truceSequence: 's', take: 1}, {insert: 'c', with: {_id: 's'}}]}",
         0, "results.1.first", "103"},
        {"{truceCommit: [{truceSequence: 's', take: 2}, {insert: 'c', with: {_id: 's'}}]}", 11000},
        {"{truceCommit: [{truceSequence: 's'}]}", 72},
        {"{truceCommit: [{truceSequence: 's', take: 1}, {insert: 'c', with: {_id: 't'}}], journal: true}",
         2},
        {"{truceCommit: [{truceSequence: 'new', take: 5}]}", 0, "results.0.last", "5"},
        {"{truceSequence: 's', take: 1}", 0, "first", "104"},
        {"{truceRequest: 'r', name: 'mail', input: {to: 'ada'}, $db: 'school'}", 0},
        {"{truceRequest: 'r', name: 'mail', input: {to: 'ada'}, $db: 'school'}", 0},
        {"{truceRequest: 'r', name: 'mail', input: {to: 'bob'}, $db: 'school'}", 11000},
        {"{truceRequestState: 'r', $db: 'school'}", 0, "request._id", "\"r\""},
        {"{truceRequestState: 'r', $db: 'school'}", 0, "request.state", "\"waiting\""},
        {"{truceRequestState: 'r'}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}

/* ---- ordered sets ---------------------------------------------------------------------------- */

#define SET(more)                                                                                  \
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name'" more "}"

TEST(applies_operations_of_a_set_in_any_order)
{
    static const struct step steps[] = {
        {SET(""), 0, "status", "\"not found\""},
        {SET(", add: {name: 'CS 101', room: 4}, seq: 1002"), 0, "outcome", "\"applied\""},
        {SET(", add: {name: 'CS 101', room: 4}, seq: 1002"), 0, "outcome", "\"duplicate\""},
        {SET(", remove: {name: 'CS 101'}, seq: 1001"), 0, "outcome", "\"stale\""},
        {SET(""), 0, "members", "[{\"name\": \"CS 101\", \"seq\": 1002, \"room\": 4}]"},
        {SET(", remove: {name: 'CS 101'}, seq: 1003"), 0, "outcome", "\"applied\""},
        {SET(", show: true"), 0, "document.deleted_classes.0.seq", "1003"},
        {"{truceSet: 'students', field: 'classes', name: 'name', consumer: 'one', apply: ["
         "{add: {name: 'x'}, key: {student_id: 2}, seq: 1},"
         "{remove: {name: 'x'}, key: {student_id: 2}, seq: 2}]}",
         0, "results.1.outcome", "\"applied\""},
        {"{truceSet: 'students', field: 'classes', name: 'name', apply: ["
         "{add: {name: 'y'}, key: {student_id: 2}, seq: 7},"
         "{add: {nothing: 1}, key: {student_id: 2}, seq: 8}]}",
         0, "results.1.status", "\"invalid\""},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " idle: 3}",
         0},
        {"{truceSetCollect: 'students', key: 'student_id', field: 'classes', name: 'name'}", 0,
         "watermark", "2"},
        {"{truceSetCollect: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " collect: true}",
         0, "tombstones", "1"},
        {"{truceSetSource: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " from: 3, to: 2000}",
         0},
        {"{truceSetSource: 'students', key: 'student_id', field: 'classes', name: 'name',"
         " source: 'east', start: true}",
         0, "first", "3"},
        {"{find: 'students', filter: {student_id: 1}}", 0,
         "cursor.firstBatch.0.deleted_classes.0.seq", "1003"},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', $db: 'school'}",
         0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}

#define NOBODYS "{$oid: '0123456789abcdef01234569'}"

/* ---- documents, items, the whole store ------------------------------------------------------- */

TEST(documents_are_saved_by_their_number_or_merged_or_decided)
{
    static const struct step steps[] = {
        {"{truceRevision: 'posts'}", 72},
        {"{truceRevision: 'posts', get: 1, save: {_id: 1}}", 72},
        {"{truceRevision: 'posts', save: 1}", 14},
        {"{truceRevision: 'posts', save: {_id: 1}, version: -2}", 2},
        {"{truceRevision: 'posts', save: {_id: 1}, keep: -1}", 2},
        {"{truceRevision: 'posts', get: 1}", 0, "status", "\"not found\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 0}, keep: 5}", 0, "outcome",
         "\"saved\""},
        {"{truceRevision: 'posts', get: 1}", 0, "document.title", "\"a\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'b', n: 0}, version: 1, keep: 5}", 0,
         "version", "2"},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 5}, version: 1, keep: 5}", 0,
         "outcome", "\"conflict\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 5}, version: 1, keep: 5}", 0,
         "reason",
         "\"document 1 of \\\"posts\\\" has version 2, and this change is based on version 1\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 5}}", 0, "reason",
         "\"document 1 of \\\"posts\\\" has version 2, and this change inserts a new document: to "
         "change the stored one, give the version that you read\""},
        {"{truceRevision: 'posts', save: {_id: 2, title: 'a', n: 5}, version: 1}", 0, "reason",
         "\"document 2 of \\\"posts\\\" does not exist, and this change is based on version 1\""},
        {"{truceRevision: 'posts', save: {_id: 2, title: 'a', n: 5}, version: 0}", 0, "reason",
         "\"document 2 of \\\"posts\\\" does not exist, and version 0 is for stored documents "
         "without a number: insert the document, or save it without a version\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 5}, version: 2, base: {_id: 1}}",
         0, "reason",
         "\"document 1 of \\\"posts\\\" has version 2, but the base differs: it is wrong, or another "
         "program changed the document without a new version: both sides changed \\\"title\\\", \\\"n\\\"\""},
        {"{truceCommit: [{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 5}, version: 1}]}",
         112, "errmsg",
         "\"document 1 of \\\"posts\\\" has version 2, and this change is based on version 1\""},
        {"{truceCommit: [{insert: 'c', with: {_id: 1}}, {truceRevision: 'posts', merge: {_id: 1, title: 'd', n: 5}, version: 1, keep: 5}]}",
         112, "conflict.conflicts.0.path", "\"title\""},
        {"{truceCommit: [{truceRevision: 'posts', merge: {_id: 1, title: 'd', n: 5}, version: 1, keep: 5}]}",
         112, "version", "2"},
        {"{truceRevision: 'posts', merge: {_id: 1, title: 'a', n: 5}, version: 1, keep: 5}", 0,
         "outcome", "\"merged\""},
        {"{truceRevision: 'posts', get: 1}", 0, "document.title", "\"b\""},
        {"{truceRevision: 'posts', get: 1}", 0, "document.n", "5"},
        {"{truceRevision: 'posts', merge: {_id: 1, title: 'c', n: 0}, version: 1, keep: 5,"
         " inbox: true}",
         0, "conflict.conflicts.0.path", "\"title\""},
        {"{truceRevision: 'posts', merge: {_id: 1, title: 'c', n: 0}, version: 1, keep: 5}", 0,
         "reason",
         "\"document 1 of \\\"posts\\\" has version 3, and this change is based on version 1: both sides "
         "changed \\\"title\\\"\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 5}, version: 0}", 0, "reason",
         "\"document 1 of \\\"posts\\\" has version 3, and this change names version 0: give the "
         "version that you read\""},
        {"{truceRevision: 'unkept', save: {_id: 1, a: 1, b: 1}}", 0, "outcome", "\"saved\""},
        {"{truceRevision: 'unkept', save: {_id: 1, a: 2, b: 1}, version: 1}", 0, "outcome",
         "\"saved\""},
        {"{truceRevision: 'unkept', merge: {_id: 1, a: 1, b: 2}, version: 1}", 0, "reason",
         "\"document 1 of \\\"unkept\\\" has version 2, and this change is based on version 1, which is "
         "no longer stored: to merge, give 'base', or save with 'keep'\""},
        {"{truceRevision: 'unkept', merge: {_id: 1, a: 1, b: 2}, version: 0}", 0, "reason",
         "\"document 1 of \\\"unkept\\\" has version 2, and this change names version 0: give the "
         "version that you read\""},
        {"{truceConflicts: 'posts'}", 0, "conflicts.0.collection", "\"posts\""},
        {"{truceConflicts: 'posts', $db: 'school'}", 0, "conflicts", "[]"},
        {"{truceConflicts: 'posts', conflict: " NOBODYS "}", 0, "status", "\"not found\""},
        {"{truceConflicts: 'posts', conflict: 1}", 14},
        {"{truceResolve: 'posts', conflict: " NOBODYS ", take: 'mine'}", 0, "status",
         "\"not found\""},
        {"{truceResolve: 'posts', conflict: " NOBODYS ", take: 'yours'}", 2},
        {"{truceResolve: 'posts', conflict: " NOBODYS ", take: 'document'}", 2},
        {"{truceResolve: 'posts', take: 'mine'}", 40414},
        {"{truceRevision: 'posts', remove: 1, version: 2}", 0, "outcome", "\"conflict\""},
        {"{truceRevision: 'posts', remove: 1, version: 3}", 0, "outcome", "\"saved\""},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a'}, $db: 'school'}", 0},
    };

    begin();
    TELL(steps);
    end();
}

#define ITEM(more)                                                                                 \
    "{truceItem: 'employees', filter: {_id: 1}, field: 'badges', identity: 'type', " more "}"

TEST(a_document_is_patched_and_its_kept_versions_are_listed)
{
    static const struct step steps[] = {
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a', n: 0}, keep: 5, keepMS: 60000}", 0},
        {"{truceRevision: 'posts', keepMS: 0, get: 1}", 2},
        {"{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}, keep: 5}", 0, "document.n",
         "1"},
        {"{truceRevisionPatch: 'posts', id: 1, kind: 'merge', patch: {title: 'b'}, version: 2, keep: 5}",
         0, "document.title", "\"b\""},
        {"{truceRevisionPatch: 'posts', id: 1, kind: 'merge', patch: {title: 'c'}, version: 1, keep: 5}",
         0, "outcome", "\"conflict\""},
        {"{truceRevisionPatch: 'posts', id: 1, kind: 'json', patch: [{op: 'replace', path: '/n', value: 7}], keep: 5}",
         0, "document.n", "7"},
        {"{truceRevisionPatch: 'posts', id: 1, kind: 'json', patch: {n: 7}}", 14},
        {"{truceRevisionPatch: 'posts', id: 1, patch: [{n: 7}]}", 14},
        {"{truceRevisionPatch: 'posts', id: 1, kind: 'xml', patch: {n: 7}}", 2},
        {"{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}, inbox: true}", 40415},
        {"{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}, rules: {n: 'sum'}}", 40415},
        {"{truceRevisionPatch: 'posts', id: 9, patch: {$inc: {n: 1}}}", 0, "status",
         "\"not found\""},
        {"{truceCommit: [{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}}, {require: 'c', id: 1}]}",
         125},
        {"{truceCommit: [{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}, keep: 5}]}", 0,
         "results.0.document.n", "8"},
        {"{truceCommit: [{truceRevision: 'posts', save: {_id: 1, title: 'd'}, version: 1, keep: 5}, {insert: 'log', with: {_id: 1}}]}",
         112},
        {"{truceCommit: [{truceRevisionPatch: 'posts', id: 1, kind: 'merge', patch: {title: 'd'}, version: 1, keep: 5}]}",
         112},
        {"{count: 'log'}", 0, "n", "0"},
        {"{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}, keep: 5" FIRST(1), 0},
        {ABORT(1), 0},
        {"{truceRevision: 'posts', get: 1}", 0, "document.n", "8"},
        {"{truceRevisionLog: 'posts', id: 1}", 0, "versions.0._id.version", "4"},
        {"{truceRevisionLog: 'posts', id: 1, limit: 1}", 0, "more", "true"},
        {"{truceRevisionLog: 'posts', id: 1, version: 2}", 0, "document.title", "\"a\""},
        {"{truceRevisionLog: 'posts', id: 1, version: 9}", 0, "status", "\"not found\""},
        {"{truceRevisionLog: 'posts', id: 9}", 0, "versions", "[]"},
        {"{truceRevisionDiff: 1, before: {n: 1}, after: {n: 2}}", 0, "patch",
         "{\"$set\": {\"n\": 2}}"},
        {"{truceRevisionDiff: 1, before: {n: 1}, after: {n: 2}, kind: 'json'}", 0, "patch.0.op",
         "\"replace\""},
        {"{truceRevisionDiff: 1, before: {n: 1}, after: {n: null}, kind: 'merge'}", 2},
    };

    begin();
    TELL(steps);
    end();
}

#define BADGES "'employees', field: 'badges', identity: 'type'"

TEST(items_are_indexed_and_converted_between_arrays_and_maps)
{
    static const struct step steps[] = {
        {"{insert: 'employees', documents: [{_id: 1, badges: [{type: 'a', n: 1}]},"
         " {_id: 2, badges: [{type: 'a'}, {type: 'a'}]}]}",
         0},
        {"{truceItemIndex: " BADGES "}", 0, "status", "\"ok\""},
        {"{truceItemIndex: " BADGES ", path: 'n'}", 0},
        {"{listIndexes: 'employees'}", 0, "cursor.firstBatch.2.key", "{\"badges.n\": 1}"},
        {"{truceItemConvert: " BADGES ", map: true}", 0, "documents", "1"},
        {"{truceItemConvert: " BADGES ", map: true}", 0, "refused", "1"},
        {"{find: 'employees', filter: {_id: 1}}", 0, "cursor.firstBatch.0.badges.a.n", "1"},
        {"{truceItemConvert: " BADGES "}", 0, "documents", "1"},
        {"{find: 'employees', filter: {_id: 1}}", 0, "cursor.firstBatch.0.badges.0.n", "1"},
        {"{truceItemConvert: 'employees', field: 'badges'}", 40414},
    };

    begin();
    TELL(steps);
    end();
}

TEST(items_are_changed_in_their_place)
{
    static const struct step steps[] = {
        {ITEM("upsert: {type: 'A', n: 1}"), 0, "status", "\"not found\""},
        {"{insert: 'employees', documents: [{_id: 1}]}", 0},
        {ITEM("upsert: {type: 'A', n: 1}"), 0, "added", "true"},
        {ITEM("add: {type: 'A', n: 2}"), 0, "matched", "1"},
        {ITEM("add: {type: 'B', n: 2}"), 0, "added", "true"},
        {ITEM("query: {type: 'A'}, update: {$inc: {n: 10}}"), 0, "modified", "1"},
        {ITEM("replace: {type: 'B', n: 3}"), 0, "modified", "1"},
        {"{find: 'employees'}", 0, "cursor.firstBatch.0.badges.0.n", "11"},
        {"{find: 'employees'}", 0, "cursor.firstBatch.0.badges.1.n", "3"},
        {ITEM("query: {}, remove: true"), 0, "modified", "2"},
        {ITEM("query: {}"), 72},
        {ITEM("remove: true"), 72},
        {ITEM("add: {type: 'A'}, query: {}"), 72},
        {ITEM("add: {type: 'A'}, upsert: {type: 'A'}"), 72},
        {ITEM("add: 1"), 14},
        {ITEM("add: {n: 1}"), 2},
        {"{truceItem: 'employees', field: 'badges', identity: 'type', add: {type: 'A'}}", 40414},
    };

    begin();
    TELL(steps);
    end();
}

TEST(sweeps_checks_and_examines_the_whole_store)
{
    static const struct step steps[] = {
        {"{truceSweep: 1}", 0, "more", "false"},
        {"{truceSweep: 1, batch: 0}", 2},
        {"{truceCheck: 1}", 0, "found", "0"},
        {"{truceCheck: 1, repair: true}", 0, "repaired", "0"},
        {"{truceAccess: 1}", 0, "maintain", "true"},
        {"{truceDoctor: 1}", 0, "errors", "0"},
        {"{truceDoctor: 1, nothing: 1}", 40415},
    };

    begin();
    TELL(steps);
    end();
}

#define OPEN(more)     "{truceLedgerOpen: 'bank', currency: 'EUR', " more "}"
#define POST(id, more) "{truceLedgerPost: 'bank', id: '" id "', " more "}"
#define MOVE(from, to, cents)                                                                      \
    "entries: [{account: '" from "', value: -" cents "}, {account: '" to "', value: " cents "}]"

TEST(money_is_posted_once_and_never_overdrawn)
{
    static const struct step steps[] = {
        {"{truceLedgerOpen: 'bank', currency: 'EUR'}", 72},
        {"{truceLedgerOpen: 'bank', currency: 'EUR', digits: 19}", 2},
        {OPEN("account: 'cash'"), 2, "errmsg",
         "\"unknown currency \\\"EUR\\\": declare the currency first with its 'digits', the number "
         "of decimals of its amounts\""},
        {OPEN("digits: 2, account: 'cash', min: 0"), 0},
        {OPEN("digits: 2, account: 'cash', min: 0"), 0},
        {OPEN("digits: 3"), 11000},
        {OPEN("account: 'cash'"), 11000, "status", "\"duplicate\""},
        {OPEN("account: 'world'"), 0},
        {POST("1", MOVE("world", "cash", "1000")), 0, "exists", "false"},
        {POST("1", MOVE("world", "cash", "1000")), 0, "exists", "true"},
        {POST("1", MOVE("world", "cash", "1001")), 11000},
        {POST("2", MOVE("cash", "world", "1001")), 146, "status", "\"limit reached\""},
        {POST("2", MOVE("cash", "nobody", "1")), 125, "status", "\"not found\""},
        {POST("2", "entries: [{account: 'cash', value: -5}, {account: 'world', value: 4}]"), 2},
        {POST("2", "entries: [{account: 'cash', value: -0.5}, {account: 'world', value: 0.5}]"), 2,
         "errmsg",
         "\"'value' must be a whole number of the currency's smallest unit, such as 1250 for 12.50, "
         "not -0.5\""},
        {POST("2", "entries: [{account: 'cash', value: '5'}]"), 14, "errmsg",
         "\"'value' must be a whole number of the currency's smallest unit, such as 1250 for 12.50, "
         "not \\\"5\\\"\""},
        {POST("2", "expiresMS: 4102444800000, " MOVE("world", "cash", "1000")), 2, "errmsg",
         "\"only a pending transaction can expire\""},
        {POST("2", "entries: [{value: 5}]"), 40414},
        {POST("2", "entries: [{account: 'cash', nothing: 5}]"), 40415},
        {POST("2", "entries: [5]"), 14},
        {POST("2", "kind: 'gift'"), 2},
        {"{truceLedgerPost: 'bank', entries: []}", 40414},
        {POST("hold", "kind: 'pending', " MOVE("cash", "world", "400")), 0},
        {"{truceLedgerBalance: 'bank', account: 'cash'}", 0, "available", "600"},
        {"{truceLedgerBalance: 'bank', account: 'cash'}", 0, "balance", "1000"},
        {POST("settle", "kind: 'settle', of: 'hold'"), 0},
        {POST("again", "kind: 'settle', of: 'hold'"), 11000},
        {POST("back", "kind: 'reverse', of: '1'"), 146},
        {"{truceLedgerBalance: 'bank', account: 'cash'}", 0, "balance", "600"},
        {"{truceLedgerBalance: 'bank', account: 'nobody'}", 0, "status", "\"not found\""},
        {"{truceLedgerBalance: 'bank', account: 'cash', $db: 'school'}", 0, "status",
         "\"not found\""},
        {"{truceLedgerStatement: 'bank', account: 'cash'}", 0, "lines.1.value", "1000"},
        {"{truceLedgerStatement: 'bank', account: 'cash', limit: 1}", 0, "lines.1", NULL},
        {"{truceLedgerStatement: 'bank', account: 'cash', limit: 1}", 0, "more", "true"},
        {"{truceLedgerStatement: 'bank', account: 'cash', limit: 9}", 0, "more", "false"},
        {"{truceLedgerStatement: 'bank', account: 'cash', limit: 1, after: 8}", 0, "more", "false"},
        {"{truceLedgerStatement: 'bank', account: 'cash', limit: 1001}", 2},
        {"{truceLedgerStatement: 'bank', account: 'nobody'}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}

/* ---- queues ---------------------------------------------------------------------------------- */

#define JOB_1 "{$oid: '0123456789abcdef01234567'}"
#define JOB_2 "{$oid: '0123456789abcdef01234568'}"

TEST(adds_finds_and_manages_jobs)
{
    static const struct step steps[] = {
        {"{truceEnqueue: 'mail'}", 72},
        {"{truceEnqueue: 'mail', payload: {}, payloads: [{}]}", 72},
        {"{truceEnqueue: 'mail', payloads: []}", 16},
        {"{truceEnqueue: 'mail', payloads: [1]}", 14},
        {"{truceEnqueue: '', payload: {}}", 2},
        {"{truceEnqueue: 1, payload: {}}", 14},
        {"{truceEnqueue: 'mail', payload: {}, priority: 1001}", 2},
        {"{truceEnqueue: 'mail', payload: {}, priority: -1001}", 2},
        {"{truceEnqueue: 'mail', payload: {}, delayMS: -1}", 2},
        {"{truceEnqueue: 'mail', payload: {}, uniqueScope: 'x'}", 2},
        {"{truceEnqueue: 'mail', payload: {}, onConflict: 'x'}", 2},
        {"{truceEnqueue: 'mail', payload: {}, failure: 'x'}", 2},
        {"{truceEnqueue: 'mail', payload: {}, after: [1]}", 14},
        {"{truceEnqueue: 'mail', payload: {}, after: [" NOBODYS "]}", 2},
        {"{truceEnqueue: 'mail', payload: {}, id: 'x'}", 14},
        {"{truceEnqueue: 'mail', payload: {to: 'ada'}, id: " JOB_1 ", unique: 'u', priority: 5}", 0,
         "added", "\"new\""},
        {"{truceEnqueue: 'mail', payload: {to: 'bob'}, unique: 'u'}", 0, "added", "\"existing\""},
        {"{truceEnqueue: 'mail', payload: {to: 'bob'}, unique: 'u', onConflict: 'refuse'}", 11000},
        {"{truceEnqueue: 'mail', payload: {to: 'bob'}, unique: 'u', onConflict: 'replace'}", 0,
         "added", "\"replaced\""},
        {"{truceJobs: 'mail', id: " JOB_1 "}", 0, "jobs.0.payload.to", "\"bob\""},
        {"{truceJobs: 'mail', id: " JOB_1 "}", 0, "jobs.0.undone", NULL},
        {"{truceEnqueue: 'mail', payload: {}, id: " JOB_2 ", after: [" JOB_1 "]}", 0},
        {"{truceJobs: 'mail', id: " JOB_2 "}", 0, "jobs.0.state", "\"blocked\""},
        {"{truceEnqueue: 'mail', payloads: [{n: 1}, {n: 2}, {n: 3}], delayMS: 3600000}", 0,
         "status", "\"ok\""},
        {"{truceJobs: 'mail', state: 'delayed', limit: 2}", 0, "jobs.1.payload.n", "2"},
        {"{truceJobs: 'mail', state: 'delayed', limit: 2}", 0, "more", "true"},
        {"{truceJobs: 'mail', state: 'delayed', limit: 3}", 0, "more", "false"},
        {"{truceJobs: 'mail', state: 'blocked', limit: 1, after: " JOB_1 "}", 0, "jobs.0._id",
         "{\"$oid\": \"0123456789abcdef01234568\"}"},
        {"{truceJobs: 'mail', state: 'blocked', limit: 1, after: " JOB_2 "}", 0, "jobs", "[]"},
        {"{truceJobs: 'mail', limit: 1001}", 2},
        {"{truceQueues: 1}", 0, "queues.0.delayed", "3"},
        /* another database has queues of its own, and does not reach the jobs of this one */
        {"{truceQueues: 1, $db: 'school'}", 0, "queues", "[]"},
        {"{truceEnqueue: 'mail', payload: {}, $db: 'school'}", 0},
        {"{truceQueues: 1, $db: 'school'}", 0, "queues.0.queue", "\"mail\""},
        {"{truceQueues: 1, $db: 'school'}", 0, "queues.1", NULL},
        {"{truceJobs: 'mail', id: " JOB_1 ", $db: 'school'}", 0, "jobs", "[]"},
        {"{truceEnqueue: 'mail', payload: {}, after: [" JOB_1 "], $db: 'school'}", 2},
        {"{truceQueue: 'mail', action: 'cancel', id: " JOB_1 ", $db: 'school'}", 125, "status",
         "\"not found\""},
        {"{truceQueue: 1, action: 'cancel', id: " JOB_1 ", $db: 'school'}", 125, "errmsg",
         "\"the job 0123456789abcdef01234567 does not exist\""},
        {"{truceCommit: [{update: 'events', id: 'concert', with: {$inc: {n: 1}}}], $db: 'scholo'}",
         125, "errmsg",
         "\"document \\\"concert\\\" of \\\"events\\\" does not exist: the database "
         "\\\"scholo\\\" is empty\""},
        {"{truceCommit: [{update: 'events', id: 'concert', with: {$inc: {n: 1}}}]}", 125, "errmsg",
         "\"document \\\"concert\\\" of \\\"events\\\" does not exist\""},
        {"{truceQueue: 'mail', action: 'cancel'}", 72},
        {"{truceQueue: 'mail', action: 'pause', id: " JOB_1 "}", 72},
        {"{truceQueue: 'mail', action: 'dance'}", 2},
        {"{truceQueue: 'mail', action: 'cancel', id: " JOB_1 "}", 0, "status", "\"ok\""},
        {"{truceJobs: 'mail', id: " JOB_2 "}", 0, "jobs.0.state", "\"cancelled\""},
        {"{truceQueue: 'mail', action: 'retry', id: " JOB_1 "}", 0},
        {"{truceQueue: 'mail', action: 'discard', id: " JOB_1 "}", 0},
        {"{truceQueue: 'mail', action: 'cancel', id: " JOB_1 "}", 2, "status", "\"invalid\""},
        {"{truceQueue: 'mail', action: 'retry', ids: [" JOB_1 ", " JOB_2
         ", {$oid: 'ffffffffffffffffffffffff'}]}",
         0, "count", "1"},
        {"{truceQueue: 'mail', action: 'cancel', ids: [" JOB_1
         ", {$oid: 'ffffffffffffffffffffffff'}]}",
         0, "skipped", "1"},
        {"{truceQueue: true, action: 'cancel', id: " JOB_1 "}", 14},
        {"{truceQueue: 'mail', action: 'cancel', ids: []}", 72},
        {"{truceQueue: 'mail', action: 'cancel', ids: [1]}", 14},
        {"{truceQueue: 'mail', action: 'cancel', ids: [" JOB_1 "], id: " JOB_1 "}", 72},
        {"{truceQueue: 'mail', action: 'redrive', ids: [" JOB_1 "]}", 72},
        {"{truceQueue: 'mail', action: 'redrive'}", 0, "count", "0"},
        {"{truceQueue: 'mail', action: 'redrive'}", 0, "more", "false"},
        {"{truceQueue: 'mail', action: 'pause'}", 0, "known", "true"},
        {"{truceClaim: 'mail'}", 0, "status", "\"not found\""},
        {"{truceQueue: 'mail', action: 'resume'}", 0, "known", "true"},
        {"{truceQueue: 'mial', action: 'redrive'}", 0, "known", "false"},
        {"{truceQueue: 'mial', action: 'redrive'}", 0, "note",
         "\"the queue \\\"mial\\\" has no jobs; these queues have: \\\"mail\\\"\""},
        {"{truceClaim: 'mial', check: true}", 0, "note",
         "\"the queue \\\"mial\\\" has no jobs; these queues have: \\\"mail\\\"\""},
        {"{truceClaim: 'mial'}", 0, "note", NULL},
        {"{truceClaim: 'mail', check: true}", 0, "note", NULL},
        {"{truceClaim: 'mial', check: true, $db: 'empty'}", 0, "note", NULL},
        {"{truceQueue: 'mial', action: 'pause'}", 0, "known", "false"},
        {"{truceQueue: 'mial', action: 'resume'}", 0, "known", "true"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_claim_is_known_by_its_token_from_any_connection)
{
    static const struct step before[] = {
        {"{truceClaim: 'mail', most: 0}", 2},
        {"{truceClaim: 'mail', waitMS: 600001}", 2},
        {"{truceClaim: 'mail', leaseMS: 1}", 2},
        {"{truceClaim: 'mail', waitMS: 500, maxTimeMS: 500}", 72},
        {"{truceClaim: 'mail'}", 0, "status", "\"not found\""},
        {"{truceClaim: 'mail'}", 0, "jobs", "[]"},
        {"{truceDone: 'mail', id: " JOB_1 "}", 40414},
        {"{truceDone: 'mail', id: " JOB_1 ", token: " JOB_1 "}", 125, "status", "\"expired\""},
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}]}", 0},
        {"{truceEnqueue: 'one', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'two', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'three', payload: {n: 1}, id: " JOB_1 "}", 0},
        {"{truceEnqueue: 'four', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'five', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'six', payload: {n: 1}, $db: 'school'}", 0},
        {"{truceClaim: 'six'}", 0, "status", "\"not found\""},
        {"{truceClaim: 'six', $db: 'school'}", 0, "jobs.0.queue", "\"six\""},
    };
    static const struct step after[] = {
        {"{truceJobs: 'one'}", 0, "jobs.0.result", "{\"sent\": true}"},
        {"{truceJobs: 'two'}", 0, "jobs.0.errors.0.text", "\"no answer\""},
        {"{truceJobs: 'two'}", 0, "jobs.0.state", "\"delayed\""},
        {"{truceJobs: 'three'}", 0, "jobs.0.attempt", "0"},
        {"{truceJobs: 'four'}", 0, "jobs.0.progress.at", "1"},
        {"{truceJobs: 'five'}", 0, "jobs.0.state", "\"done\""},
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "10"},
    };
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    with_token(end_, "one", HELD("truceDone", ", result: {sent: true}"), 0, "status", "\"ok\"");
    with_token(end_, "two", HELD("truceFail", ", error: 'no answer', delayMS: 60000"), 0, NULL,
               NULL);
    with_token(end_, "three", HELD("truceSnooze", ", delayMS: 60000"), 0, NULL, NULL);
    with_token(end_, "four", HELD("truceHeartbeat", ", progress: {at: 1}"), 0, "leaseMS", "60000");
    with_token(
        end_, "five",
        HELD("truceJobCommit", ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]"),
        0, "status", "\"ok\"");
    close(end_);
    TELL(after);
    end();
}

TEST(the_effects_of_a_worker_that_lost_its_job_are_refused)
{
    static const struct step before[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}]}", 0},
        {"{truceEnqueue: 'one', payload: {n: 1}, id: " JOB_1 "}", 0},
        {"{truceEnqueue: 'two', payload: {n: 1}, id: " JOB_2 "}", 0},
    };
    static const struct step after[] = {
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "9"},
        {"{truceJobs: 'two'}", 0, "jobs.0.state", "\"running\""},
        {"{truceQueue: 'two', action: 'cancel', id: " JOB_2 "}", 0},
        {"{truceQueue: 'one', action: 'retry', id: " JOB_2 "}", 125, "status", "\"not found\""},
    };
    bson_t *reply;
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    reply = send_typed(end_, "{truceClaim: 'one'}");
    CHECK_INT(reply_number(reply, "jobs.0.epoch"), ==, 1);
    bson_destroy(reply);
    take_step(end_,
              &(struct step){"{truceJobCommit: 'one', id: " JOB_1 ", token: " JOB_2
                             ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]}",
                             125, "status", "\"expired\""});
    take_step(end_, &(struct step){"{truceJobCommit: 'one', id: " JOB_1 ", token: " JOB_2
                                   ", changes: [{nothing: 1}]}",
                                   2, "status", "\"invalid\""});
    /* a guard that does not hold: the job stays claimed */
    with_token(end_, "two",
               HELD("truceJobCommit",
                    ", changes: [{update: 'accounts', id: 'a', if: {n: 1}, with: {$inc: {n: 1}}}]"),
               20, "status", "\"refused\"");
    TELL(after);
    close(end_);
    end();
}

/* Claims a job of `queue`, and sends two commands under the claim. `path` is that of a value in the
 * second reply. */
static void send_both_at(int end_, const char *queue, const char *first, const char *second,
                         int code, const char *path, const char *text)
{
    char *claim = bson_strdup_printf("{truceClaim: '%s', leaseMS: 60000}", queue);
    bson_t *reply = send_typed(end_, claim);
    char *token = shown(reply, "jobs.0.token"), *id = shown(reply, "jobs.0._id");
    char *one = bson_strdup_printf(first, queue, id ? id : "1", token ? token : "1");
    char *two = bson_strdup_printf(second, queue, id ? id : "1", token ? token : "1");

    take_step(end_, &(struct step){one, 0, "status", "\"ok\""});
    take_step(end_, &(struct step){two, code, path, text});
    bson_free(two);
    bson_free(one);
    bson_free(id);
    bson_free(token);
    bson_destroy(reply);
    bson_free(claim);
}

static void send_both(int end_, const char *queue, const char *first, const char *second, int code,
                      const char *text)
{
    send_both_at(end_, queue, first, second, code, "status", text);
}

/* A repetition of the end of a job, as after a lost reply, has no effect, and says so. */
TEST(says_that_a_claim_has_ended_its_job_before)
{
    static const struct step before[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}]}", 0},
        {"{truceEnqueue: 'one', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'two', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'three', payload: {n: 1}}", 0},
    };
    static const struct step after[] = {
        {"{truceJobs: 'one'}", 0, "jobs.0.result.sent", "1"},
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "11"},
        {"{truceSequence: 'bills'}", 0, "last", "2"},
    };
    static const char once[] =
        HELD("truceJobCommit", ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}, "
                               "{truceSequence: 'bills', take: 1}]");
    static const char again[] =
        HELD("truceJobCommit", ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: 5}}}, "
                               "{truceSequence: 'bills', take: 1}]");
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    send_both_at(end_, "one", HELD("truceDone", ", result: {sent: 1}"),
                 HELD("truceDone", ", result: {sent: 2}"), 0, "earlier", "true");
    send_both_at(end_, "two", once, again, 0, "earlier", "true");
    send_both_at(end_, "three", once, again, 0, "results", NULL);
    TELL(after);
    close(end_);
    end();
}

TEST(a_commit_of_a_job_that_was_ended_otherwise_did_not_happen)
{
    static const struct step before[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}]}", 0},
        {"{truceEnqueue: 'ended', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'committed', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'twice', payload: {n: 1}}", 0},
    };
    static const struct step after[] = {
        {"{truceJobs: 'ended'}", 0, "jobs.0.state", "\"done\""},
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "11"},
    };
    static const char commits[] =
        HELD("truceJobCommit", ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]");
    static const char ends[] = HELD("truceDone", "");
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    send_both(end_, "ended", ends, commits, 125, "\"expired\"");
    send_both(end_, "committed", commits, ends, 0, "\"ok\"");
    send_both(end_, "twice", commits, commits, 0, "\"ok\"");
    TELL(after);
    close(end_);
    end();
}

TEST(a_conflict_of_the_inbox_is_decided_by_its_id)
{
    static const struct step before[] = {
        {"{truceRevision: 'posts', save: {_id: 1, title: 'a'}, keep: 5}", 0},
        {"{truceRevision: 'posts', save: {_id: 1, title: 'b'}, version: 1, keep: 5}", 0},
    };
    static const struct step after[] = {
        {"{truceRevision: 'posts', get: 1}", 0, "document.title", "\"c\""},
        {"{truceConflicts: 'posts'}", 0, "conflicts", "[]"},
    };
    char *id, *look, *resolve;
    bson_t *reply;
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    reply = send_typed(end_, "{truceRevision: 'posts', merge: {_id: 1, title: 'c'}, version: 1,"
                             " keep: 5, inbox: true}");
    id = shown(reply, "inbox");
    look = bson_strdup_printf("{truceConflicts: 'posts', conflict: %s}", id ? id : "1");
    resolve =
        bson_strdup_printf("{truceResolve: 'posts', conflict: %s, take: 'mine'}", id ? id : "1");
    take_step(end_, &(struct step){look, 0, "conflicts.0.mine.title", "\"c\""});
    take_step(end_, &(struct step){resolve, 0, "outcome", "\"saved\""});
    close(end_);
    TELL(after);
    bson_free(resolve);
    bson_free(look);
    bson_free(id);
    bson_destroy(reply);
    end();
}

static void *claim_and_wait(void *arg)
{
    bson_t *reply = ask("{'truceClaim': 'mail', 'waitMS': 600000, '$db': 'test'}");

    *(int64_t *)arg = reply_number(reply, "jobs.0.payload.n");
    bson_destroy(reply);
    return NULL;
}

TEST(a_claim_that_waits_for_a_job_blocks_no_other_connection)
{
    static const struct step steps[] = {{"{ping: 1}", 0},
                                        {"{truceEnqueue: 'mail', payload: {n: 7}}", 0}};
    pthread_t waiting;
    int64_t got = 0;

    begin();
    REQUIRE(!pthread_create(&waiting, NULL, claim_and_wait, &got));
    TELL(steps);
    pthread_join(waiting, NULL);
    CHECK_INT(got, ==, 7);
    end();
}

/* Returns whether the other client's claim arrived: the server counted one more command than this
 * one. */
static int64_t asked;

static bool shown_waiting(void)
{
    bson_t *reply = ask("{'serverStatus': 1, '$db': 'admin'}");
    bool is = reply_number(reply, "opcounters.command") > asked + 1;

    asked++;
    bson_destroy(reply);
    return is;
}

TEST(does_not_wait_at_the_end_for_clients_that_wait_for_jobs)
{
    pthread_t waiting;
    int64_t got = 0;

    begin();
    REQUIRE(!pthread_create(&waiting, NULL, claim_and_wait, &got));
    while (!shown_waiting())
        truce__clock_sleep_ms(5);
    server_stop(server, 300000); /* the test would not end */
    pthread_join(waiting, NULL);
    CHECK_INT(got, ==, -1);
    truce_store_close(store);
}

#define DECLARED "source: 'users', dependent: 'notes', reference: 'user', copies: {author: 'name'}"

TEST(a_wait_for_other_processes_is_no_longer_than_the_deadline)
{
    static const struct step steps[] = {
        {"{createIndexes: 'users', indexes: [{key: {mail: 1}, name: 'm', unique: true}]}", 0},
        {"{truceUnique: 'users', settleMS: 60000, maxTimeMS: 5000}", 50, "status", "\"timed out\""},
        {"{listIndexes: 'users'}", 0, "cursor.firstBatch.2", NULL},
        {"{truceSyncDeclare: 'author', " DECLARED ", settleMS: 60000, maxTimeMS: 5000}", 50,
         "status", "\"timed out\""},
        {"{count: 'truce_sync'}", 0, "n", "0"},
        {"{truceUnique: 'users', settleMS: 1, maxTimeMS: 60000}", 0, "made", "true"},
        {"{truceSyncDeclare: 'author', " DECLARED ", settleMS: 1, maxTimeMS: 60000}", 0, NULL,
         NULL},
    };

    begin();
    TELL(steps);
    end();
}

static void *declare_and_wait(void *arg)
{
    bson_t *reply = ask("{'truceSyncDeclare': 'author', 'source': 'users', 'dependent': 'notes',"
                        " 'reference': 'user', 'copies': {'author': 'name'}, 'settleMS': 60000,"
                        " '$db': 'test'}");

    *(int64_t *)arg = reply_number(reply, "code");
    bson_destroy(reply);
    return NULL;
}

static bool shown_declared(void)
{
    bson_t *reply = ask("{'count': 'truce_sync', '$db': 'test'}");
    bool is = reply_number(reply, "n") > 0;

    bson_destroy(reply);
    return is;
}

TEST(does_not_wait_at_the_end_for_a_wait_for_other_processes)
{
    pthread_t waiting;
    int64_t code = 0;

    begin();
    REQUIRE(!pthread_create(&waiting, NULL, declare_and_wait, &code));
    while (!shown_declared())
        truce__clock_sleep_ms(5);
    server_stop(server, 100);
    pthread_join(waiting, NULL);
    CHECK_INT(code, ==, 8);
    truce_store_close(store);
}

/* ---- within transactions --------------------------------------------------------------------- */

TEST(patterns_are_a_part_of_a_transaction)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0},
        /* its collections and indexes are created or undone with it */
        {"{truceEnqueue: 'mail', payload: {n: 0}" FIRST(1), 0},
        {ABORT(1), 0},
        {"{truceQueues: 1}", 0, "queues", "[]"},
        {"{truceEnqueue: 'mail', payload: {n: 0}}", 0},
        {"{truceCommit: [{missing: 'accounts', id: 'z'}], key: 'k', keyTime: 1767225600000}", 0},
        {"{truceSequence: 's', take: 1}", 0},
        {SET(", add: {name: 'CS 1'}, seq: 1"), 0},
        /* atomic, and visible only to itself before the commit */
        {PAY FIRST(2), 0, "earlier", "false"},
        {"{truceEnqueue: 'mail', payload: {n: 1}" NEXT(2), 0, "added", "\"new\""},
        {"{truceSequence: 's', take: 2" NEXT(2), 0, "last", "3"},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {name: 'CS 2'}, seq: 2" NEXT(2),
         0, "outcome", "\"applied\""},
        {"{update: 'accounts', updates: [{q: {_id: 'b'}, u: {$inc: {n: 100}}}]" NEXT(2), 0, "n",
         "1"},
        {"{find: 'accounts', filter: {_id: 'b'}" NEXT(2), 0, "cursor.firstBatch.0.n", "105"},
        {"{find: 'accounts', filter: {_id: 'b'}}", 0, "cursor.firstBatch.0.n", "0"},
        {"{truceQueues: 1}", 0, "queues.0.ready", "1"},
        {ABORT(2), 0},
        {"{truceQueues: 1}", 0, "queues.0.ready", "1"},
        {"{truceSequence: 's'}", 0, "last", "1"},
        {PAY FIRST(3), 0},
        {"{truceEnqueue: 'mail', payload: {n: 1}" NEXT(3), 0},
        {"{truceSequence: 's', take: 2" NEXT(3), 0, "first", "2"},
        {"{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name',"
         " add: {name: 'CS 2'}, seq: 2" NEXT(3),
         0},
        {COMMIT(3), 0},
        {"{truceQueues: 1}", 0, "queues.0.ready", "2"},
        {"{truceSequence: 's'}", 0, "last", "3"},
        {"{find: 'accounts', filter: {_id: 'b'}}", 0, "cursor.firstBatch.0.n", "5"},
        {SET(""), 0, "members.1.name", "\"CS 2\""},
        /* a guard that does not hold ends it, with the first change undone */
        {"{truceCommit: [{update: 'accounts', id: 'b', with: {$inc: {n: 1}}},"
         " {update: 'accounts', id: 'a', if: {n: 77}, with: {$inc: {n: 1}}}]" FIRST(4),
         20},
        {COMMIT(4), 251, "errmsg",
         "\"transaction 4 of the session was aborted by: document \\\"a\\\" of \\\"accounts\\\" does not "
         "match its guard {\\\"n\\\": 77}\""},
        {"{find: 'accounts', filter: {_id: 'b'}}", 0, "cursor.firstBatch.0.n", "5"},
        /* others were faster */
        {"{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]" FIRST(5), 0},
        {"{update: 'accounts', updates: [{q: {_id: 'a'}, u: {$inc: {n: 1}}}]}", 0},
        {COMMIT(5), 112, "errorLabels.0", "\"TransientTransactionError\""},
        {"{find: 'accounts'" FIRST(6), 0},
        {"{update: 'accounts', updates: [{q: {_id: 'a'}, u: {$inc: {n: 1}}}]}", 0},
        {"{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]" NEXT(6), 112,
         "errorLabels.0", "\"TransientTransactionError\""},
        /* a key, within */
        {"{truceCommit: [{update: 'accounts', id: 'b', with: {$inc: {n: 1}}}], key: 'k2',"
         " keyTime: 1767225600000" FIRST(7),
         0, "earlier", "false"},
        {COMMIT(7), 0},
        {"{truceCommit: [{update: 'accounts', id: 'b', with: {$inc: {n: 1}}}], key: 'k2',"
         " keyTime: 1767225600000}",
         0, "earlier", "true"},
        {"{truceLedgerPost: 'bank', id: 1, entries: []" FIRST(8), 263},
        /* documents by their number, and items */
        {"{truceRevision: 'posts', save: {_id: 1, n: 1}}", 0},
        {"{insert: 'employees', documents: [{_id: 1, badges: [{type: 'A', n: 1}]}]}", 0},
        {"{truceRevision: 'posts', save: {_id: 1, n: 2}, version: 1" FIRST(12), 0, "outcome",
         "\"saved\""},
        {"{truceItem: 'employees', filter: {_id: 1}, field: 'badges', identity: 'type',"
         " query: {type: 'A'}, update: {$inc: {n: 1}}" NEXT(12),
         0, "modified", "1"},
        {"{truceRevision: 'posts', get: 1" NEXT(12), 0, "version", "2"},
        {"{truceRevision: 'posts', get: 1}", 0, "version", "1"},
        {"{find: 'employees'}", 0, "cursor.firstBatch.0.badges.0.n", "1"},
        {COMMIT(12), 0},
        {"{truceRevision: 'posts', get: 1}", 0, "version", "2"},
        {"{find: 'employees'}", 0, "cursor.firstBatch.0.badges.0.n", "2"},
        /* by name */
        {"{truceClaim: 'mail'" FIRST(13), 263},
        {"{truceHeartbeat: 'mail', id: " JOB_1 ", token: " JOB_1 FIRST(14), 263},
        {"{truceQueue: 'mail', action: 'pause'" FIRST(15), 263},
        {"{truceDone: 'mail', id: " JOB_1 ", token: " JOB_1 FIRST(16), 125},
        {"{truceDone: 'mail', id: " JOB_1 ", token: " JOB_1 NEXT(16), 251},
        /* commands that write into a list of changes */
        {"{truceCommit: [{enqueue: 'mail', with: {n: 9}}]" FIRST(17), 0},
        {ABORT(17), 0},
        {"{truceQueues: 1}", 0, "queues.0.ready", "2"},
        {"{truceCommit: [{enqueue: 'mail', with: {n: 9}}]" FIRST(18), 0},
        {COMMIT(18), 0},
        {"{truceQueues: 1}", 0, "queues.0.ready", "3"},
        {"{truceCommit: [{post: 'bank', id: 1, with: {a: -1, b: 1}}]" FIRST(19), 2, "errmsg",
         "\"change 1: \\\"post\\\" is not allowed in a transaction of the driver: send this commit "
         "outside of the transaction\""},
        {"{truceCommit: [{truceLedgerPost: 'bank', id: 1, entries: [{account: 'a', value: -1}, "
         "{account: 'b', value: 1}]}]" FIRST(20),
         263, "errmsg",
         "\"change 1: truceLedgerPost is not allowed in a transaction of the driver: send this "
         "commit outside of the transaction\""},
        {"{truceCommit: [{truceQueue: 'mail', action: 'redrive'}]" FIRST(21), 263},
    };

    begin();
    TELL(steps);
    end();
}

/* The job is claimed before the transaction begins, because the transaction reads the snapshot of
 * its beginning. */
TEST(a_job_is_done_in_the_transaction_of_its_effects)
{
    static const struct step before[] = {
        {"{truceEnqueue: 'mail', payload: {n: 0}}", 0},
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}]}", 0}};
    static const struct step after[] = {
        {"{update: 'accounts', updates: [{q: {n: 9}, u: {$inc: {n: 1}}}]" NEXT(1), 0, "n", "1"},
        {"{truceJobs: 'mail'}", 0, "jobs.0.state", "\"running\""},
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "9"},
        {COMMIT(1), 0},
        {"{truceJobs: 'mail'}", 0, "jobs.0.state", "\"done\""},
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "10"},
    };
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    with_token(end_, "mail", "{truceDone: '%s', id: %s, token: %s" FIRST(1), 0, "status", "\"ok\"");
    close(end_);
    TELL(after);
    end();
}
