/* Requests that cannot have the effect that their sender expects. Examples are a name for an
 * operation that has none, an option that the action does not use, and a field of another command.
 * Each is refused by the name of its field. */
#include "tests/support/served_story.h"

/* A step that is refused with this message. */
#define REFUSED(command, code, message)                                                            \
    {                                                                                              \
        command, code, "errmsg", "\"" message "\""                                                 \
    }
#define ID "{$oid: '0123456789abcdef01234567'}"

TEST(refuses_a_name_for_an_operation_of_the_whole_database)
{
    static const struct step steps[] = {
        REFUSED("{truceQueues: 'mail'}", 2, "'truceQueues' must be 1, not \\\"mail\\\""),
        REFUSED("{truceCrons: 'nightly'}", 2, "'truceCrons' must be 1, not \\\"nightly\\\""),
        REFUSED("{truceReadMany: 'c', documents: [{collection: 'c', id: 1}]}", 2,
                "'truceReadMany' must be 1, not \\\"c\\\""),
        REFUSED("{truceSequences: 2}", 2, "'truceSequences' must be 1, not 2"),
        REFUSED("{truceTrees: false}", 2, "'truceTrees' must be 1, not false"),
        REFUSED("{truceDoctor: {}}", 2, "'truceDoctor' must be 1, not {}"),
        {"{truceQueues: true}", 0, "queues", "[]"},
        {"{truceQueues: 1.0}", 0, "queues", "[]"},
        REFUSED("{truceJobs: 7}", 2,
                "'truceJobs' must be a string or 1 (the queue; 1: all queues), not 7"),
        REFUSED(
            "{truceFlow: 0, jobs: [{name: 'a', queue: 'q'}]}", 2,
            "'truceFlow' must be a string or 1 (the queue of the jobs that name no other queue; "
            "1: every job names one), not 0"),
        {"{truceJobs: 1}", 0, "jobs", "[]"},
        {"{truceHelp: 2}", 2},
        {"{truceHelp: ['truceSet']}", 14},
    };

    begin();
    TELL(steps);
    end();
}

/* An authentication database in the place of the program's own one is a frequent mistake. */
TEST(refuses_patterns_in_the_databases_of_the_server)
{
    static const struct step steps[] = {
        REFUSED(
            "{truceEnqueue: 'q', payload: {}, $db: 'admin'}", 73,
            "truceEnqueue cannot write to \\\"admin\\\", the database of the server's own data: "
            "name a database of your program, for example in the path of the URI"),
        {"{truceEnqueue: 'q', payload: {}, $db: 'config'}", 73},
        {"{truceCommit: [{insert: 'c', with: {}}], $db: 'local'}", 73},
        {"{truceJobs: 1, $db: 'admin'}", 0, "jobs", "[]"},
        {"{truceEnqueue: 'q', payload: {}, $db: 'admins'}", 0},
    };

    begin();
    TELL(steps);
    end();
}

/* As MongoDB does. A set of one member executes such a write, and reports the concern. */
TEST(refuses_a_write_concern_of_several_members)
{
    static const struct step steps[] = {
        {"{insert: 'c', documents: [{}], writeConcern: {w: 5}}", 2, "errmsg",
         "\"cannot use 'w' > 1 when a host is not replicated: w is 5\""},
        {"{truceEnqueue: 'q', payload: {}, writeConcern: {w: 'foo'}}", 2, "errmsg",
         "\"cannot use non-majority 'w' mode \\\"foo\\\" when a host is not a member of a replica "
         "set\""},
        {"{count: 'c'}", 0, "n", "0"},
        {"{truceJobs: 1}", 0, "jobs", "[]"},
        {"{insert: 'c', documents: [{}], writeConcern: {w: 'majority'}}", 0, "n", "1"},
        {"{insert: 'c', documents: [{}], writeConcern: {w: 1, j: true}}", 0, "n", "1"},
        {"{insert: 'c', documents: [{}], writeConcern: {w: 0}}", 0},
    };

    begin();
    TELL(steps);
    end();
}

TEST(says_what_a_client_of_a_server_can_change)
{
    static const struct step steps[] = {
        REFUSED("{truceQueue: 'q', action: 'pause', id: " ID "}", 72,
                "the action \\\"pause\\\" does not allow 'id'"),
        REFUSED("{truceCommit: [{insert: 'c', with: {}}], key: 'k', keyTime: {$date: 0}}", 14,
                "the field 'keyTime' must be a number of milliseconds since 1970, not date"),
        REFUSED("{truceEnqueue: 'q', payload: {}, delayMS: '5'}", 14,
                "the field 'delayMS' must be a number of milliseconds, not string"),
        REFUSED("{truceClaim: 'q', waitMS: 2000, maxTimeMS: 271}", 72,
                "'waitMS' is 2000, and 'maxTimeMS' is 271: expected a shorter wait (some drivers "
                "set maxTimeMS from their option timeoutMS)"),
        REFUSED("{truceEnqueue: 'q', payload: {}, tags: [1]}", 2,
                "tag 1 of the job is not a string: `tags` must be an array of strings"),
        {"{truceLedgerOpen: 'book', currency: 'EUR', digits: 2}", 0},
        REFUSED("{truceLedgerOpen: 'book', account: 'x', currency: 'EUR', debitOnly: true, "
                "creditOnly: true}",
                2,
                "account \\\"x\\\" cannot be both debit only and credit only: it would accept no "
                "entries"),
        REFUSED("{truceCommit: [{insert: 'c', with: {}}], key: '', keyTime: 1767225600000}", 2,
                "the idempotency key is empty: give 1 byte or more, or no key"),
        REFUSED("{replSetGetStatus: 1, $db: 'admin'}", 76,
                "the server is not a replica set: start it with --replica-set"),
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_concerns_without_effect_in_a_transaction)
{
    static const struct step steps[] = {
        {"{insert: 'c', documents: [{_id: 1}], writeConcern: {w: 1}" FIRST(1), 72, "errmsg",
         "\"writeConcern is not allowed within a multi-statement transaction: give it to "
         "commitTransaction\""},
        {"{insert: 'c', documents: [{}], readConcern: {level: 'local'}, writeConcern: {}" FIRST(2),
         0, "n", "1"},
        {"{find: 'c', readConcern: {level: 'majority'}" NEXT(2), 72, "errmsg",
         "\"Only the first command in a transaction may specify a readConcern\""},
        {"{truceEnqueue: 'q', payload: {}, readConcern: {level: 'local'}" NEXT(2), 72},
        {"{insert: 'c', documents: [{_id: 1}], readConcern: {level: 'majority'}" FIRST(3), 0},
        {"{commitTransaction: 1, writeConcern: {w: 'majority'}, $db: 'admin'" NEXT(3), 0},
        {"{count: 'c'}", 0, "n", "1"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_fields_of_the_whole_command_in_one_of_its_changes)
{
    static const struct step steps[] = {
        REFUSED("{truceCommit: [{truceEnqueue: 'q', payload: {}, maxTimeMS: 5}]}", 2,
                "change 1: the field 'maxTimeMS' belongs to the whole command, not to one of its "
                "changes"),
        {"{truceCommit: [{truceEnqueue: 'q', payload: {}, $db: 'other'}]}", 2},
        {"{truceCommit: [{truceEnqueue: 'q', payload: {}, writeConcern: {w: 1}}]}", 2},
        {"{truceCommit: [{truceEnqueue: 'q', payload: {}, comment: 'a note'}]}", 0},
        /* also if the last one of several fields fits the verb */
        REFUSED("{truceCommit: [{enqueue: 'q', with: {}, meta: {a: 1}, lane: 'l'}]}", 2,
                "change 1: \\\"meta\\\" is only for \\\"post\\\", and \\\"lane\\\" only for "
                "\\\"enqueue\\\""),
        REFUSED(
            "{truceCommit: [{insert: 'c', update: 'd', with: {}}]}", 2,
            "change 1: has two verbs, \\\"insert\\\" and \\\"update\\\": make two changes of it"),
        REFUSED("{truceCommit: [{insert: 'c', with: {_id: 1}, with: {_id: 2}}]}", 2,
                "change 1: \\\"with\\\" is given twice"),
        {"{truceCommit: [{remove: 'c', id: 1, id: 2}]}", 2},
        REFUSED("{truceCommit: [{replace: 'c', id: 1, with: {$set: {n: 9}}}]}", 2,
                "change 1: a replacement is a whole document, without operators such as "
                "\\\"$set\\\": use update for operators"),
        {"{truceCommit: [{remove: 'c', id: 1, if: {n: 1}, if: {n: 2}}]}", 2},
        {"{truceJobs: 'q'}", 0, "jobs.1", NULL},
        {"{count: 'c'}", 0, "n", "0"},
    };

    begin();
    TELL(steps);
    end();
}

#define REVISION(more) "{truceRevision: 'posts', " more "}"

TEST(refuses_options_that_an_action_of_a_revision_does_not_use)
{
    static const struct step steps[] = {
        {REVISION("save: {_id: 1, n: 1}"), 0, "version", "1"},
        REFUSED(REVISION("save: {_id: 1, n: 2}, version: 1, rules: {n: 'sum'}"), 72,
                "'rules' is allowed only with 'merge': 'save' does not merge"),
        REFUSED(REVISION("save: {_id: 1, n: 2}, version: 1, inbox: true"), 72,
                "'inbox' is allowed only with 'merge': 'save' does not merge"),
        REFUSED(REVISION("remove: 1, version: 1, strict: true"), 72,
                "'strict' is allowed only with 'merge': 'remove' does not merge"),
        REFUSED(REVISION("get: 1, rules: {n: 'sum'}"), 72, "'rules' is not allowed with 'get'"),
        REFUSED(REVISION("get: 1, version: 1"), 72,
                "'version' is not allowed with 'get': truceRevisionLog returns a stored version"),
        REFUSED(REVISION("get: 1, keep: 0"), 72, "'keep' is not allowed with 'get'"),
        REFUSED(REVISION("save: {_id: 1, n: 2}, version: 1, keepMS: 1000"), 72,
                "'keepMS' needs 'keep': without it, no versions are kept"),
        {"{truceRevisionPatch: 'posts', id: 1, patch: {$inc: {n: 1}}, keepMS: 1000}", 72},
        REFUSED(REVISION("remove: 1"), 72, "'remove' needs 'version': the number that was read"),
        {REVISION("remove: 1, version: -1"), 72},
        REFUSED(REVISION("save: {_id: 1, n: 2}, base: {_id: 1, n: 1}"), 72,
                "'base' needs 'version': the number of the document that was read, 0 if it had "
                "none"),
        REFUSED(REVISION("save: {_id: 1, n: 2}, version: 1, base: {_id: 2, n: 1}"), 2,
                "the base is another document: its _id is 2, and not 1"),
        {REVISION("merge: {_id: 1, n: 2}, version: 1, base: {_id: 2, n: 1}"), 2},
        {REVISION("remove: 1, version: 1, base: {_id: 2, n: 1}"), 2},
        REFUSED("{truceRevisionLog: 'posts', id: 1, version: 1, limit: 5}", 72,
                "'limit' is not allowed with 'version', which returns one version"),
        {"{truceRevisionLog: 'posts', id: 1, rules: {n: 'sum'}}", 40415},
        {"{truceRevisionLog: 'posts', id: 1, keep: 5}", 40415},
        REFUSED("{truceRevisionLog: 'posts', id: [1]}", 2,
                "the field 'id' is array: an _id has any other type"),
        {"{truceConflicts: 'posts', inbox: true}", 40415},
        {"{truceResolve: 'posts', conflict: " ID ", take: 'mine', inbox: true}", 40415},
        /* nothing was changed */
        {REVISION("get: 1"), 0, "document.n", "1"},
        {REVISION("merge: {_id: 1, n: 2}, version: 1, rules: {n: 'sum'}, strict: true, inbox: true,"
                  " keep: 1, keepMS: 1000"),
         0, "version", "2"},
        {REVISION("remove: 1, version: 2, base: {n: 3}"), 0, "reason",
         "\"document 1 of \\\"posts\\\" has version 2, but the base differs: it is wrong, or another "
         "program changed the document without a new version\""},
        {REVISION("remove: 1, version: 2, base: {n: 2}"), 0, "outcome", "\"saved\""},
    };

    begin();
    TELL(steps);
    end();
}

/* An option that is an empty string is not the option that is absent. */
TEST(does_not_share_a_handle_of_other_options)
{
    static const struct step steps[] = {
        {REVISION("save: {_id: 1, n: 1}"), 0, "version", "1"},
        {REVISION("get: 1, versionField: ''"), 2},
        {"{insert: 'staff', documents: [{_id: 1, badges: [{type: 'a'}]}]}", 0},
        {"{truceItem: 'staff', field: 'badges', identity: 'type', versionField: '', filter: {},"
         " query: {}, update: {$set: {n: 1}}}",
         2},
        {"{truceItem: 'staff', field: 'badges', identity: 'type', filter: {}, query: {},"
         " update: {$set: {n: 1}}}",
         0, "modified", "1"},
        {"{truceItem: 'staff', field: 'badges', identity: 'type', versionField: '', filter: {},"
         " query: {}, update: {$set: {n: 2}}}",
         2},
        {REVISION("get: 1"), 0, "version", "1"},
    };

    begin();
    TELL(steps);
    end();
}

#define ITEM(more)  "{truceItem: 'staff', field: 'badges', identity: 'type', filter: {}, " more "}"
#define INDEX(more) "{truceItemIndex: 'staff', field: 'badges', identity: 'type'" more "}"

TEST(refuses_options_that_a_layout_of_items_does_not_use)
{
    static const struct step steps[] = {
        REFUSED(ITEM("query: {}, update: {$set: {n: 1}}, map: true"), 72,
                "'map' is allowed only with 'add' and 'upsert': other changes keep the layout of "
                "the document"),
        {ITEM("query: {}, remove: true, map: true"), 72},
        {ITEM("replace: {type: 'a'}, map: true"), 72},
        {ITEM("add: {type: 'a'}, map: true"), 0, "status", "\"not found\""},
        REFUSED(INDEX(", keys: ['a']"), 72,
                "'keys' is allowed only with 'map': an array has one index for all items"),
        REFUSED(INDEX(", map: true, keys: []"), 16,
                "'keys' is empty: name the identities that get an index, or omit it for an index "
                "over the whole map"),
        REFUSED(INDEX(", map: true, path: 'since'"), 72,
                "'path' needs 'keys' with 'map': without keys, one index has all fields of all "
                "items"),
        {INDEX(", map: true, path: 'since', keys: ['a']"), 0},
        {INDEX(", path: 'since'"), 0},
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_options_that_an_action_of_a_queue_does_not_use)
{
    static const struct step steps[] = {
        {"{truceEnqueue: 'q', payload: {}, id: " ID "}", 0},
        REFUSED("{truceQueue: 'q', action: 'pause', limit: 5}", 72,
                "'limit' is allowed only with the action \\\"redrive\\\", not with \\\"pause\\\""),
        {"{truceQueue: 'q', action: 'retry', ids: [" ID "], limit: 5}", 72},
        {"{truceQueue: 'q', action: 'redrive', limit: 5}", 0, "count", "0"},
        REFUSED("{truceJobs: 'q', id: " ID ", after: " ID "}", 72,
                "'after' is not allowed with 'id', which finds one job"),
        REFUSED("{truceEnqueue: 'q', payload: {}, onConflict: 'ignore'}", 72,
                "'onConflict' needs a key: give 'unique' or 'uniquePayload'"),
        REFUSED("{truceEnqueue: 'q', payload: {}, unique: 'k', onConflict: 'reschedule'}", 72,
                "'onConflict' \\\"reschedule\\\" needs the new time: give 'delayMS' (0: now) or "
                "'runAtMS'"),
        {"{truceEnqueue: 'q', payload: {}, unique: 'k', onConflict: 'reschedule', delayMS: 0}", 0,
         "added", "\"new\""},
        {"{truceEnqueue: 'q', payload: {}, unique: 'k', onConflict: 'reschedule', delayMS: 0}", 0,
         "added", "\"rescheduled\""},
        REFUSED("{truceEnqueue: 'q', payload: {}, uniqueScope: 'live'}", 72,
                "'uniqueScope' needs a key: give 'unique' or 'uniquePayload'"),
        {"{truceEnqueue: 'q', payload: {}, uniquePeriodMS: 1000}", 72},
        REFUSED("{truceEnqueue: 'q', payload: {}, laneWidth: 2}", 72, "'laneWidth' needs 'lane'"),
        {"{truceFlow: 'q', jobs: [{name: 'a', laneWidth: 2}]}", 72},
        REFUSED("{truceEnqueue: 'q', payload: {}, runAtMS: '2026-03-01'}", 14,
                "the field 'runAtMS' must be a number of milliseconds since 1970, not string"),
        REFUSED("{truceEnqueue: 'q', payload: {}, runAtMS: {$date: '2026-03-01T09:00:00Z'}}", 14,
                "the field 'runAtMS' must be a number of milliseconds since 1970, not date"),
        REFUSED("{truceEnqueue: 'q', payload: {}, delayMS: '5m'}", 14,
                "the field 'delayMS' must be a number of milliseconds, not string"),
        REFUSED("{truceCronSet: 'c', queue: 'q', line: '@daily', payload: {}, most: 5}", 72,
                "'most' is allowed only with 'missed' \\\"all\\\""),
        {"{truceCronSet: 'c', queue: 'q', line: '@daily', payload: {}, missed: 'all', most: 5}", 0},
    };

    begin();
    TELL(steps);
    end();
}

/* Such a list was empty without a reason if the name was misspelled. */
TEST(names_the_queues_that_have_jobs_in_an_empty_list_of_another_one)
{
    static const struct step steps[] = {
        /* no queue has jobs */
        {"{truceJobs: 'q'}", 0, "note", NULL},
        {"{truceEnqueue: 'mail', payload: {}}", 0},
        {"{truceJobs: 'mial'}", 0, "note",
         "\"the queue \\\"mial\\\" has no jobs; these queues have: \\\"mail\\\"\""},
        {"{truceJobs: 'mial', state: 'dead'}", 0, "note",
         "\"the queue \\\"mial\\\" has no jobs; these queues have: \\\"mail\\\"\""},
        {"{truceJobs: 'mail', state: 'dead'}", 0, "note", NULL},
        {"{truceJobs: 'mail', state: 'dead'}", 0, "jobs", "[]"},
        {"{truceQueueLimit: 'new', running: 2}", 0},
        {"{truceJobs: 'new'}", 0, "note", NULL},
        {"{truceJobs: 1, state: 'dead'}", 0, "note", NULL},
    };

    begin();
    TELL(steps);
    end();
}

#define STUDENTS(more) "{truceSet: 'students', key: {student_id: 1}, " more "}"
#define CLASSES        "field: 'classes', name: 'name'"

/* A read with other options than those of the definition would find nothing. */
TEST(refuses_to_read_a_set_with_other_options)
{
    static const struct step steps[] = {
        /* a set that is not defined yet */
        {STUDENTS(CLASSES), 0, "status", "\"not found\""},
        {STUDENTS(CLASSES ", add: {name: 'a'}, seq: 1"), 0, "outcome", "\"applied\""},
        {STUDENTS(CLASSES), 0, "members.0.name", "\"a\""},
        {STUDENTS("show: true"), 0, "document.classes.0.name", "\"a\""},
        REFUSED(
            STUDENTS(CLASSES ", byElement: true"), 2,
            "set \\\"students.classes\\\" was created with layout \\\"document\\\" and cannot be "
            "opened with \\\"element\\\""),
        REFUSED(STUDENTS(CLASSES ", deleted: 'gone', show: true"), 2,
                "set \\\"students.classes\\\" was created with deleted \\\"deleted_classes\\\" and "
                "cannot be opened with \\\"gone\\\""),
        {STUDENTS("field: 'classes', name: 'title'"), 2},
        {"{truceSetQuarantine: 'students', key: 'id', field: 'classes', name: 'name'}", 2},
        REFUSED(STUDENTS(CLASSES ", show: true, add: {name: 'b'}, seq: 2"), 72,
                "'show' is allowed only for a read, without 'add', 'remove', and 'apply'"),
        {"{truceSet: 'students', show: true, " CLASSES
         ", apply: [{add: {name: 'b'}, key: {student_id: 1}, seq: 2}]}",
         72},
        {STUDENTS(CLASSES), 0, "members.1", NULL},
    };

    begin();
    TELL(steps);
    end();
}

#define BOOK(more) "{truceLedgerOpen: 'book', currency: 'EUR', " more "}"

TEST(refuses_options_without_effect_of_a_ledger)
{
    static const struct step steps[] = {
        REFUSED(BOOK("digits: 2, min: 0"), 72, "'min' needs 'account': it is a rule of an account"),
        {BOOK("digits: 2, debitOnly: true"), 72},
        {BOOK("digits: 2, closed: false"), 72},
        {BOOK("digits: 2, account: 'bank'"), 0},
        {"{truceLedgerStatement: 'book', account: 'bank', last: 0}", 2},
        {"{truceLedgerSearch: 'book', account: 'bnak'}", 0, "status", "\"not found\""},
        {"{truceLedgerSearch: 'book', account: 'bnak'}", 0, "reason",
         "\"account \\\"bnak\\\" is not open in \\\"book\\\"\""},
        {"{truceLedgerPending: 'book', account: 'bnak'}", 0, "status", "\"not found\""},
        {"{truceLedgerPending: 'book', account: 'bank'}", 0, "transactions", "[]"},
        {"{truceLedgerAccounts: 'book', prefix: 'bnak'}", 0, "note",
         "\"no account of \\\"book\\\" is \\\"bnak\\\" or below it\""},
        {"{truceLedgerAccounts: 'book', prefix: 'bank'}", 0, "note", NULL},
        {"{truceLedgerAccounts: 'book', prefix: 'bank', after: 'bank'}", 0, "note", NULL},
        {"{truceLedgerReport: 'book', prefix: 'bnak'}", 0, "note",
         "\"no account of \\\"book\\\" is \\\"bnak\\\" or below it\""},
        {"{truceLedgerReport: 'book', prefix: 'bank'}", 0, "note", NULL},
        REFUSED("{truceLedgerSearch: 'book', fromMS: 1767225600000, beforeMS: 1767225600000}", 2,
                "'fromMS' (1767225600000) must be before 'beforeMS' (1767225600000)"),
    };

    begin();
    TELL(steps);
    end();
}

#define IMPORT(record) "{truceLedgerImport: 'book', records: [" record "]}"
#define MOVES(from, to, by)                                                                        \
    "{account: '" from "', amount: '-" by "'}, {account: '" to "', amount: '" by "'}"
#define RECORD(more, by) IMPORT("{" more ", entries: [" MOVES("bank", "ada", by) "]}")

/* Entries of a record that settles or reverses a whole transaction, and rules of an account that is
 * open, were ignored. */
TEST(refuses_records_of_a_book_that_would_be_ignored)
{
    static const struct step steps[] = {
        {BOOK("digits: 2, account: 'bank'"), 0},
        {BOOK("account: 'ada'"), 0},
        {"{truceLedgerOpen: 'book', currency: 'JPY', digits: 0}", 0},
        {RECORD("id: 1, kind: 'pending'", "7.50"), 0, "posted", "1"},
        {RECORD("id: 2, kind: 'settle', of: 1", "1.50"), 0, "refusals.0.reason",
         "\"the entries are not those of the transaction 1, which is settled as a whole: omit the "
         "entries, or set `part`\""},
        {RECORD("id: 2, kind: 'settle', of: 1", "7.50"), 0, "posted", "1"},
        {RECORD("id: 2, kind: 'settle', of: 1", "7.50"), 0, "existed", "1"},
        {RECORD("id: 3, kind: 'reverse', of: 2", "7.50"), 0, "refused", "1"},
        {IMPORT("{id: 3, kind: 'reverse', of: 2, entries: [" MOVES("ada", "bank", "7.50") "]}"), 0,
         "posted", "1"},
        /* also of a record of the same list */
        {IMPORT("{id: 4, kind: 'pending', entries: [" MOVES(
             "bank", "ada",
             "2.00") "]}, {id: 5, kind: 'settle', of: 4, entries: [" MOVES("bank", "ada",
                                                                           "1.00") "]}"),
         0, "refusals.0.record", "2"},
        {RECORD("id: 5, kind: 'settle', of: 4, part: true", "1.00"), 0, "posted", "1"},
        REFUSED(RECORD("id: 6, kind: 'void', of: 4", "2.00"), 2,
                "record 1: a void has no `entries`: it voids the whole transaction"),
        REFUSED(RECORD("id: 6, part: true", "2.00"), 2,
                "record 1: `part` is allowed only if the kind is settle or reverse"),
        {RECORD("id: 6, kind: 'transfer', of: 5", "2.00"), 0, "refusals.0.reason",
         "\"`of` is allowed only for settling, voiding, and reversing a transaction\""},
        REFUSED(IMPORT("{open: 'ada', rules: 'bank', currency: 'EUR'}"), 2,
                "record 1: an account has `open` or `rules`, and this record has both"),
        REFUSED(IMPORT("{rules: 'ada', currency: 'JPY', min: '0'}"), 2,
                "record 1: account \\\"ada\\\" is in EUR, not in JPY"),
        {IMPORT("{open: 'ada', currency: 'EUR', min: '0.00'}"), 0, "refusals.0.reason",
         "\"account \\\"ada\\\" was opened with other rules: a record {rules: ...} changes them\""},
        {IMPORT("{open: 'ada', currency: 'EUR'}"), 0, "refused", "0"},
        REFUSED("{truceLedgerPost: 'book', id: 7, entries: [{account: 'bank', value: -5, type: ''},"
                " {account: 'ada', value: 5}]}",
                2,
                "the 'type' of the entry of account \\\"bank\\\" is empty: omit it for the type of "
                "the amount's sign"),
        {"{truceLedgerBalance: 'book', account: 'ada'}", 0, "balance", "100"},
    };

    begin();
    TELL(steps);
    end();
}

#define PUBLISH(more) "{truceTreePublish: 'site', collection: 'pages', " more "}"

TEST(refuses_input_of_a_tree_that_cannot_work)
{
    static const struct step steps[] = {
        {PUBLISH("changes: [{put: {itemId: 'a'}}]"), 0, "version", "1"},
        REFUSED(PUBLISH("changes: [{remove: 'a', put: {itemId: 'b'}}]"), 40415,
                "change 1: must have one field, 'put' or 'remove', and also has 'put'"),
        REFUSED(PUBLISH("changes: [{put: {itemId: 'a', n: 1}}], merge: true, rules: {n: 'summ'}"),
                2,
                "invalid policy of \\\"n\\\": \\\"summ\\\"; valid ones are ask, mine, theirs, "
                "newest, max, min, sum, union, and text"),
        {"{truceTree: 'site', merge: 'draft', rules: {n: 'summ'}}", 2},
        {"{truceTreeRead: 'site', id: {a: 1}}", 2},
        {"{truceTreeDiff: 'site', from: 0, to: 1, after: [1]}", 2},
        {"{truceTree: 'site', erase: {a: 1}}", 2},
        {"{truceTree: 'site', keep: {versions: 0}}", 2},
        REFUSED("{truceTree: 'site', keep: {ageMS: 1767225600000}}", 2,
                "'ageMS' is 1767225600000 ms, more than 10,000 days: expected a duration in "
                "milliseconds, and not a point in time"),
        {"{truceTree: 'site', keep: {versions: 2, ageMS: 1000}}", 0},
        {"{truceTree: 'site', keep: {}}", 0},
        {"{truceTree: 'site'}", 0, "current", "1"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_misspelled_states_and_other_times_of_a_rule)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}", 0},
        {"{truceTransfer: 't', id: 1, source: 'a', destination: 'b', amount: 1, accounts: "
         "'accounts', field: 'n'}",
         0},
        REFUSED("{truceTransfers: 't', state: 'cancelled'}", 2,
                "the field 'state' must be \\\"initial\\\", \\\"pending\\\", \\\"committed\\\", "
                "\\\"applied\\\", \\\"done\\\", \\\"canceling\\\", or \\\"canceled\\\", not "
                "\\\"cancelled\\\""),
        {"{truceTransfers: 't', state: 'done'}", 0, "transfers.0._id", "1"},
        REFUSED("{truceTransfer: 't', id: 2, entries: [{collection: 'accounts', id: 'a'}]}", 2,
                "the effect is missing"),
        REFUSED("{truceTreePublish: 's', changes: [], merge: true, prefer: 'ours'}", 2,
                "the field 'prefer' must be \\\"mine\\\" or \\\"theirs\\\", not \\\"ours\\\""),
#define DECLARE(more)                                                                              \
    "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user',"      \
    " copies: {author: 'name'}, settleMS: 1" more "}"
        {DECLARE(", resumeMS: 5000"), 0},
        {DECLARE(", resumeMS: 5000"), 0},
        {DECLARE(""), 0},
        {DECLARE(", resumeMS: 6000"), 11000, "status", "\"duplicate\""},
    };

    begin();
    TELL(steps);
    end();
}
