/* Two-phase transfers and denormalized copies as commands: their answers and their errors. */
#include "tests/support/served_story.h"

#define ACCOUNTS                                                                                   \
    "{insert: 'accounts', documents: [{_id: 'a', balance: 10}, {_id: 'b', balance: 0}]}"
#define MOVE(id, from, to, value, more)                                                            \
    "{truceTransfer: 'moves', id: " id ", source: '" from "', destination: '" to                   \
    "', amount: " value ", accounts: 'accounts'" more "}"

TEST(a_transfer_is_made_once_or_refused_for_good)
{
    static const struct step steps[] = {
        {ACCOUNTS, 0},
        {MOVE("1", "a", "b", "4", ""), 0, "exists", "false"},
        {MOVE("1", "a", "b", "4", ""), 0, "exists", "true"},
        {MOVE("1", "a", "b", "4", ""), 0, "state", "\"done\""},
        {MOVE("1", "a", "b", "5", ""), 11000, "status", "\"duplicate\""},
        {MOVE("2", "a", "b", "7", ""), 20, "status", "\"refused\""},
        {"{update: 'accounts', updates: [{q: {_id: 'a'}, u: {$inc: {balance: 100}}}]}", 0},
        {MOVE("2", "a", "b", "7", ""), 20, "status", "\"refused\""},
        {MOVE("3", "b", "a", "7", ", overdraft: true, meta: {order: 17}"), 0},
        {MOVE("4", "a", "nobody", "1", ", steps: true"), 20},
        {"{truceTransfer: 'moves', id: 5, entries: [{collection: 'accounts', id: 'a', guard: "
         "{balance: {$gte: 5}}, effect: {$inc: {balance: -5}}}, {collection: 'stock', id: 1, when: "
         "'after', effect: {$inc: {n: 1}}}]}",
         20},
        {"{insert: 'stock', documents: [{_id: 1, n: 0}]}", 0},
        {"{truceTransfer: 'moves', id: 6, steps: true, entries: [{collection: 'accounts', id: 'a', "
         "guard: {balance: {$gte: 5}}, effect: {$inc: {balance: -5}}}, {collection: 'stock', id: 1, "
         "when: 'after', effect: {$inc: {n: 1}}}]}",
         0, "state", "\"done\""},
        {"{find: 'accounts', filter: {_id: 'a'}}", 0, "cursor.firstBatch.0.balance", "108"},
        {"{find: 'stock'}", 0, "cursor.firstBatch.0.n", "1"},
        {"{truceTransferShow: 'moves', id: 2}", 0, "transfer.state", "\"canceled\""},
        {"{truceTransferShow: 'moves', id: 6}", 0, "transfer.entries.1.ns", "\"stock\""},
        {"{truceTransferShow: 'moves', id: 3}", 0, "transfer.meta.order", "17"},
        {"{truceTransferShow: 'moves', id: 3}", 0, "transfer._rev", NULL},
        {"{truceTransferShow: 'moves', id: 9}", 0, "status", "\"not found\""},
        {"{truceTransfers: 'moves', limit: 2}", 0, "more", "true"},
        {"{truceTransfers: 'moves', limit: 2, skip: 4}", 0, "transfers.1.state", "\"done\""},
        {"{truceTransfers: 'moves', limit: 2, skip: 4}", 0, "more", "false"},
        {"{truceTransfers: 'moves', state: 'canceled'}", 0, "transfers.2._id", "2"},
        {"{truceTransfers: 'moves', state: 'canceled'}", 0, "transfers.3", NULL},
        {"{truceTransfers: 'nothing'}", 0, "status", "\"not found\""},
        {"{truceTransferCancel: 'moves', id: 1}", 20},
        {"{truceTransferCancel: 'moves', id: 2}", 0, "state", "\"canceled\""},
        {"{truceTransferCancel: 'moves', id: 9}", 125, "status", "\"not found\""},
        {"{truceTransferResume: 'moves', id: 9}", 125, "status", "\"not found\""},
        {"{truceTransferResume: 'moves', id: 1}", 0, "state", "\"done\""},
        {"{truceTransferResume: 'moves', id: 2}", 20},
        /* the recipe of the manual, half completed by another program */
        {"{insert: 'moves', documents: [{_id: 7, source: 'a', destination: 'b', value: 8, state: "
         "'pending'}, {_id: 8, source: 'a', destination: 'b', value: 50, state: 'pending'}]}",
         0},
        {"{truceTransferResume: 'moves', id: 7}", 0, "state", "\"done\""},
        {"{truceTransferCancel: 'moves', id: 8}", 0, "state", "\"canceled\""},
        {"{find: 'accounts', filter: {_id: 'a'}}", 0, "cursor.firstBatch.0.balance", "100"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_invalid_transfers_by_name)
{
    static const struct step steps[] = {
        {ACCOUNTS, 0},
        {"{truceTransfer: 'moves', source: 'a', destination: 'b', amount: 1}", 40414},
        {"{truceTransfer: 'moves', id: 1}", 72},
        {"{truceTransfer: 'moves', id: 1, source: 'a', amount: 1}", 72},
        {"{truceTransfer: 'moves', id: 1, source: 'a', destination: 'b', amount: 1}", 2, "status",
         "\"invalid\""}, /* no accounts were declared */
        {"{truceTransfer: 'moves', id: 1, source: 'a', entries: []}", 72},
        {"{truceTransfer: 'moves', id: 1, overdraft: true, entries: []}", 72},
        {"{truceTransfer: 'moves', id: 1, entries: []}", 16},
        {"{truceTransfer: 'moves', id: 1, entries: [1]}", 14},
        {"{truceTransfer: 'moves', id: 1, entries: [{id: 1}]}", 40414},
        {"{truceTransfer: 'moves', id: 1, entries: [{collection: 'accounts'}]}", 40414},
        {"{truceTransfer: 'moves', id: 1, entries: [{collection: 'accounts', id: 1, what: 1}]}",
         40415},
        {"{truceTransfer: 'moves', id: 1, entries: [{collection: 'accounts', id: 'a', when: "
         "'later', effect: {$inc: {balance: 1}}}]}",
         2},
        {"{truceTransfer: 'moves', id: 1, entries: [{collection: '@x.accounts', id: 'a', effect: "
         "{$inc: {balance: 1}}}]}",
         73},
        {"{truceTransfer: 'moves', id: 1, entries: [{collection: 'truce_commits', id: 'a', effect: "
         "{$inc: {balance: 1}}}]}",
         2},
        {"{truceTransfer: 'moves', id: 1, entries: [{collection: 'accounts', id: 'a', effect: "
         "{$set: {balance: 1}}}]}",
         2},
        {MOVE("1", "a", "b", "0", ""), 2},
        {MOVE("1", "a", "b", "'x'", ""), 2},
        {MOVE("1", "a", "a", "1", ""), 2},
        {MOVE("{x: 1}", "a", "b", "1", ""), 2},
        {MOVE("1", "a", "b", "1", ", marks: 'a.b'"), 2},
        {MOVE("1", "a", "b", "1", ", nothing: 1"), 40415},
        {"{truceTransfer: 'truce_transfers', id: 1, source: 'a', destination: 'b', amount: 1, "
         "accounts: 'accounts'}",
         2},
        {MOVE("1", "a", "b", "1", ""), 0},
        {"{truceTransfer: 'moves', id: 2, source: 'a', destination: 'b', amount: 1}", 0},
        {MOVE("3", "a", "b", "1", ", field: 'n'"), 2, "status", "\"invalid\""},
        {"{truceTransferShow: 'moves'}", 40414},
        {"{truceTransfers: 'moves', limit: 0}", 2},
        {"{truceTransfers: 'moves', skip: -1}", 2},
        {"{truceTransferCancel: 'moves'}", 40414},
        {"{truceTransferCancel: 7, id: 1}", 14},
    };

    begin();
    TELL(steps);
    end();
}

TEST(databases_have_transfers_of_their_own)
{
    static const struct step steps[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', balance: 10}, {_id: 'b', balance: 0}], $db: "
         "'school'}",
         0},
        {MOVE("1", "a", "b", "4", ""), 20},
        {MOVE("1", "a", "b", "4", ", $db: 'school'"), 0},
        {"{truceTransferShow: 'moves', id: 1, $db: 'school'}", 0, "transfer.entries.0.ns",
         "\"accounts\""},
        {MOVE("2", "a", "b", "40", ", $db: 'school'"), 20},
        {"{truceTransferShow: 'moves', id: 2, $db: 'school'}", 0, "transfer.reason",
         "\"document \\\"a\\\" of \\\"accounts\\\" does not match its guard {\\\"balance\\\": {\\\"$gte\\\": 40}}\""},
        {"{truceTransfers: 'moves', $db: 'other'}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_transfer_is_a_part_of_a_transaction)
{
    static const struct step steps[] = {
        {ACCOUNTS, 0},
        {MOVE("1", "a", "b", "1", ""), 0},
        {"{update: 'accounts', updates: [{q: {_id: 'a'}, u: {$inc: {balance: 5}}}]" FIRST(2), 0},
        {"{truceTransfer: 'moves', id: 2, source: 'a', destination: 'b', amount: 14" NEXT(2), 0,
         "state", "\"done\""},
        {"{find: 'accounts', filter: {_id: 'b'}" NEXT(2), 0, "cursor.firstBatch.0.balance", "15"},
        {"{find: 'accounts', filter: {_id: 'b'}}", 0, "cursor.firstBatch.0.balance", "1"},
        {ABORT(2), 0},
        {"{truceTransferShow: 'moves', id: 2}", 0, "status", "\"not found\""},
        {"{truceTransfer: 'moves', id: 2, source: 'a', destination: 'b', amount: 2" FIRST(3), 0},
        {COMMIT(3), 0},
        {"{find: 'accounts', filter: {_id: 'b'}}", 0, "cursor.firstBatch.0.balance", "3"},
        /* a refused transfer ends it, and nothing is stored */
        {"{truceTransfer: 'moves', id: 4, source: 'a', destination: 'b', amount: 200" FIRST(4), 20},
        {COMMIT(4), 251},
        {"{truceTransferShow: 'moves', id: 4}", 0, "status", "\"not found\""},
        {"{truceTransfer: 'moves', id: 5, source: 'a', destination: 'b', amount: 1, steps: true" FIRST(
             5),
         72},
        {"{truceTransferCancel: 'moves', id: 1" FIRST(6), 263},
    };

    begin();
    TELL(steps);
    end();
}

/* ---- copies kept in step --------------------------------------------------------------------- */

#define DECLARE(name, more)                                                                        \
    "{truceSyncDeclare: '" name "', source: 'users', dependent: 'comments', reference: 'user', "   \
    "copies: {author: 'name'}, settleMS: 1" more "}"

TEST(updates_copies_over_the_wire_if_their_source_changes)
{
    static const struct step steps[] = {
        {"{insert: 'users', documents: [{_id: 17, name: 'John'}, {_id: 18, name: 'Ada'}]}", 0},
        {"{insert: 'comments', documents: [{_id: 1, user: 17}, {_id: 9, user: 99}]}", 0},
        {"{truceSyncStatus: 1}", 0, "rules", "[]"},
        {DECLARE("author", ""), 0, "status", "\"ok\""},
        {DECLARE("author", ""), 0},
        {"{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'by', copies: {author: 'name'}, settleMS: 1}",
         11000, "status", "\"duplicate\""},
        {DECLARE("other", ""), 2, "status", "\"invalid\""},
        {"{truceSyncRepair: 'author', dryRun: true}", 0, "findings.0.divergence", "\"differs\""},
        {"{truceSyncRepair: 'author', dryRun: true}", 0, "repaired", "0"},
        {"{truceSyncRepair: 'author'}", 0, "repaired", "1"},
        {"{truceSyncRepair: 'author'}", 0, "orphans", "1"},
        {"{truceSyncRepair: 'author'}", 0, "findings.0.dependent", "9"},
        {"{truceSyncRepair: 'nobody'}", 0, "status", "\"not found\""},
        {"{truceSyncInsert: 'comments', document: {_id: 2, user: 17}}", 0, "settled", "true"},
        {"{truceSyncInsert: 'comments', document: {_id: 2, user: 17}}", 11000},
        {"{find: 'comments', filter: {_id: 2}}", 0, "cursor.firstBatch.0.author", "\"John\""},
        {"{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Johnny'}}}", 0, "copies", "2"},
        {"{truceSyncUpdate: 'users', id: 17, update: {$set: {age: 7}}}", 0, "changed", "false"},
        {"{truceSyncUpdate: 'comments', id: 2, update: {$set: {user: 18}}}", 0, "settled", "true"},
        {"{find: 'comments', filter: {_id: 2}}", 0, "cursor.firstBatch.0.author", "\"Ada\""},
        {"{truceSyncUpdate: 'comments', id: 2, update: {$set: {author: 'me'}}}", 2, "status",
         "\"invalid\""},
        {"{truceSyncUpdate: 'users', id: 44, update: {$set: {name: 'x'}}}", 0, "status",
         "\"not found\""},
        /* a plain writer, with its flag */
        {"{update: 'users', updates: [{q: {_id: 18}, u: {$set: {name: 'Ada L.', syncing: true}}}]}",
         0},
        {"{truceSyncStatus: 1}", 0, "rules.0.syncing", "1"},
        {"{truceSyncStatus: 1}", 0, "rules.0.rule", "\"author\""},
        {"{truceSyncRead: 'comments', id: 2}", 0, "document.author", "\"Ada L.\""},
        {"{truceSyncRead: 'comments', id: 44}", 0, "status", "\"not found\""},
        {"{truceSyncReconcile: 'users', id: 18}", 0, "settled", "true"},
        {"{truceSyncReconcile: 'users', id: 44}", 0, "settled", "true"},
        {"{truceSyncStatus: 1}", 0, "rules.0.syncing", "0"},
        {"{truceSyncDrop: 'author'}", 0, "status", "\"ok\""},
        {"{truceSyncDrop: 'author'}", 0, "status", "\"not found\""},
        {"{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'X'}}}", 0, "copies", "0"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(refuses_invalid_copies_by_name)
{
    static const struct step steps[] = {
        {"{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user'}",
         40414},
        {"{truceSyncDeclare: 'author', dependent: 'comments', reference: 'user', copies: {a: 'b'}}",
         40414},
        {DECLARE("a.b", ""), 2},
        {DECLARE("", ""), 2},
        {DECLARE("author", ", nothing: 1"), 40415},
        {DECLARE("author", ", resumeMS: 0"), 2},
        {"{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user', "
         "copies: {user: 'name'}, settleMS: 1}",
         2},
        {"{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user', "
         "copies: {author: 1}, settleMS: 1}",
         2},
        {"{truceSyncDeclare: 'author', source: 'truce_sync', dependent: 'comments', reference: "
         "'user', copies: {author: 'name'}, settleMS: 1}",
         2},
        {"{truceSyncDeclare: 'author', source: 'users', dependent: '@x.comments', reference: "
         "'user', copies: {author: 'name'}, settleMS: 1}",
         73},
        {"{truceSyncUpdate: 'users', id: 1}", 40414},
        {"{truceSyncUpdate: 'users', update: {$set: {a: 1}}}", 40414},
        {"{truceSyncUpdate: 'users', id: 1, update: [1]}", 14},
        {"{truceSyncInsert: 'users', document: {name: 'no id'}}", 0},
        {"{truceSyncInsert: 'truce_sync', document: {_id: 1}}", 2},
        {"{truceSyncRead: 'users'}", 40414},
        {"{truceSyncRepair: 'author', dryRun: 'yes'}", 14},
    };

    begin();
    TELL(steps);
    end();
}

TEST(databases_have_rules_of_their_own)
{
    static const struct step steps[] = {
        {"{insert: 'users', documents: [{_id: 17, name: 'John'}], $db: 'school'}", 0},
        {"{insert: 'comments', documents: [{_id: 1, user: 17}], $db: 'school'}", 0},
        {DECLARE("author", ", $db: 'school'"), 0},
        {DECLARE("author", ""), 0},
        {"{truceSyncStatus: 1, $db: 'school'}", 0, "rules.0.rule", "\"author\""},
        {"{truceSyncStatus: 1, $db: 'school'}", 0, "rules.0.source", "\"users\""},
        {"{truceSyncStatus: 1, $db: 'school'}", 0, "rules.1", NULL},
        {"{truceSyncStatus: 1}", 0, "rules.1", NULL},
        {"{truceSyncStatus: 1, $db: 'other'}", 0, "rules", "[]"},
        {"{truceSyncRepair: 'author', $db: 'school'}", 0, "repaired", "1"},
        {"{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'J'}}, $db: 'school'}", 0,
         "copies", "1"},
        {"{find: 'comments', $db: 'school'}", 0, "cursor.firstBatch.0.author", "\"J\""},
        {"{truceSyncUpdate: 'comments', id: 1, update: {$set: {author: 'x'}}, $db: 'school'}", 2,
         "errmsg",
         "\"\\\"author\\\" of comments is a copy of \\\"name\\\" of users, by rule "
         "\\\"author\\\": change it there\""},
        {"{truceSyncDrop: 'author', $db: 'other'}", 0, "status", "\"not found\""},
        {"{truceSyncDrop: 'author', $db: 'school'}", 0, "status", "\"ok\""},
        {"{truceSyncStatus: 1}", 0, "rules.0.rule", "\"author\""},
    };

    begin();
    TELL(steps);
    end();
}

TEST(copies_are_a_part_of_a_transaction)
{
    static const struct step steps[] = {
        {"{insert: 'users', documents: [{_id: 17, name: 'John'}]}", 0},
        {"{insert: 'comments', documents: [{_id: 1, user: 17}]}", 0},
        {DECLARE("author", ""), 0},
        {"{truceSyncRepair: 'author'}", 0, "repaired", "1"},
        {"{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'J'}}" FIRST(1), 0, "settled",
         "true"},
        {"{truceSyncInsert: 'comments', document: {_id: 2, user: 17}" NEXT(1), 0, "settled",
         "true"},
        {"{find: 'comments', filter: {author: 'J'}" NEXT(1), 0, "cursor.firstBatch.1._id", "2"},
        {"{find: 'comments', filter: {author: 'J'}}", 0, "cursor.firstBatch", "[]"},
        {ABORT(1), 0},
        {"{find: 'comments', filter: {author: 'John'}}", 0, "cursor.firstBatch.0._id", "1"},
        {"{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'J'}}" FIRST(2), 0},
        {COMMIT(2), 0},
        {"{find: 'comments', filter: {author: 'J'}}", 0, "cursor.firstBatch.0._id", "1"},
        {"{truceSyncStatus: 1}", 0, "rules.0.syncing", "0"},
        {"{truceSyncDrop: 'author'" FIRST(3), 263},
    };

    begin();
    TELL(steps);
    end();
}
