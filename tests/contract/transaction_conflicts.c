/* Operations in a transaction whose documents another client changed after the transaction's
 * snapshot: they end at once, without a wait, with an error after which the caller repeats the
 * transaction. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/environment.h"
#include "tests/support/json_command.h"
#include "tests/support/test.h"

/* ---- an environment that counts sleeps ------------------------------------------------------- */

/* The number of sleeps of this thread. Sleeps end at once. */
static int sleeps;
static uint64_t drawn;

static int64_t counted_now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t counted_wall(void *arg)
{
    (void)arg;
    return counted_now_ns(CLOCK_REALTIME) / 1000000;
}

static int64_t counted_monotonic(void *arg)
{
    (void)arg;
    return counted_now_ns(CLOCK_MONOTONIC);
}

static void counted_sleep(void *arg, int64_t duration_ms)
{
    (void)arg;
    (void)duration_ms;
    sleeps++;
}

static uint64_t counted_draw(void *arg)
{
    (void)arg;
    return (uint64_t)counted_now_ns(CLOCK_MONOTONIC) * UINT64_C(0x9e3779b97f4a7c15) + ++drawn;
}

static const struct environment counted = {NULL,          counted_wall, counted_monotonic,
                                           counted_sleep, counted_draw, NULL};

/* ---- commands -------------------------------------------------------------------------------- */

static truce_store *store;
/* The number of the transaction. */
static int transaction;
/* The token of the job that was claimed last, in hexadecimal digits. */
static char token[25];

/* Returns `json` with $TOKEN replaced, and with the fields of the transaction if `way` is not
 * NULL. The caller frees it. */
static char *command_text(const char *json, const char *way)
{
    const char *at = strstr(json, "$TOKEN");
    char *text =
        at ? bson_strdup_printf("%.*s{$oid: '%s'}%s", (int)(at - json), json, token, at + 6)
           : bson_strdup(json);
    char *full;

    if (!way)
        return text;
    full = bson_strdup_printf(
        "%.*s, lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, txnNumber: "
        "{$numberLong: '%d'}, autocommit: false%s}",
        (int)strlen(text) - 1, text, transaction, way);
    bson_free(text);
    return full;
}

/* Runs a command, and stores its message and labels in `said`. */
static truce_status run(const char *json, const char *way, char said[1000])
{
    char *text = command_text(json, way), *shown;
    bson_error_t error = {0};
    bson_t reply;
    bson_iter_t at;
    truce_status status = run_json_command(
        store, way && strstr(json, "Transaction") ? "admin" : "shop", text, &reply, &error);

    if (bson_iter_init(&at, &reply) && bson_iter_find_descendant(&at, "jobs.0.token", &at) &&
        BSON_ITER_HOLDS_OID(&at))
        bson_oid_to_string(bson_iter_oid(&at), token);
    shown = bson_as_relaxed_extended_json(&reply, NULL);
    snprintf(said, 1000, "%s", shown);
    bson_free(shown);
    bson_destroy(&reply);
    bson_free(text);
    return status;
}

#define START ", startTransaction: true"

/* Runs a command that must succeed. */
static void run_well(const char *json, const char *way)
{
    char said[1000];

    if (run(json, way, said))
        test_fail(__FILE__, __LINE__, "%s: %s", json, said);
}

/* ---- cases ----------------------------------------------------------------------------------- */

struct conflict_case {
    /* Commands before the transaction. */
    const char *before[4];
    /* The command of another client after the snapshot, and the operation of the transaction. */
    const char *other, *own;
};

#define JOB "{'$oid': '0123456789abcdef01234567'}"
#define SET                                                                                        \
    "truceSet: 'students', field: 'classes', name: 'name', key: {student_id: 1}, add: {name: "
#define SET_APPLY(seq)                                                                             \
    "{truceSet: 'students', field: 'classes', name: 'name', apply: [{key: {student_id: 1}, add: "  \
    "{name: 'A'}, seq: " seq "}, {key: {student_id: 2}, add: {name: 'B'}, seq: " seq "}]}"
#define ELEMENT(seq)                                                                               \
    "{truceSet: 'groups', field: 'members', name: 'name', byElement: true, key: {group: 1}, add: " \
    "{name: 'A'}, seq: " seq "}"
#define ELEMENT_APPLY(seq)                                                                         \
    "{truceSet: 'groups', field: 'members', name: 'name', byElement: true, apply: [{key: {group: " \
    "1}, add: {name: 'A'}, seq: " seq "}, {key: {group: 2}, add: {name: 'B'}, seq: " seq "}]}"
#define REQUEST "{truceRequest: 'k', name: 'mail', input: {n: 1}}"
#define CONSUMED(student, seq)                                                                     \
    "{truceSet: 'students', field: 'classes', name: 'name', consumer: 'web', key: "                \
    "{student_id: " student "}, add: {name: 'A'}, seq: " seq "}"
#define MAIL                                                                                       \
    "{truceEnqueue: 'mail', payload: {n: 1}, id: " JOB "}", "{truceClaim: 'mail', leaseMS: 600000}"
#define ITEM                                                                                       \
    "{truceItem: 'c', filter: {_id: 1}, field: 'list', identity: 'k', query: {k: 'A'}, update: "   \
    "{$inc: {n: 1}}}"
#define ACCOUNTS      "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}"
#define PAY_OTHERWISE "{update: 'accounts', updates: [{q: {_id: 'a'}, u: {$inc: {n: 5}}}]}"
#define TRANSFER(id)                                                                               \
    "{truceTransfer: 'transfers', id: " id ", source: 'a', destination: 'b', amount: 1, "          \
    "accounts: 'accounts', field: 'n'}"
#define COPIES                                                                                     \
    "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user', "     \
    "copies: {author: 'name'}, settleMS: 1}",                                                      \
        "{truceSyncInsert: 'users', document: {_id: 17, name: 'Ada'}}",                            \
        "{truceSyncInsert: 'comments', document: {_id: 1, user: 17}}"
#define PUBLISH(item, title)                                                                       \
    "{truceTreePublish: 'site', collection: 'pages', parent: 'up', changes: [{put: {itemId: "      \
    "'" item "', title: '" title "'}}]}"
#define UNIQUE(n) "{truceEnqueue: 'mail', payload: {n: " n "}, unique: 'u', onConflict: 'replace'}"
#define SIGNAL(n) "{truceSignal: 'mail', id: " JOB ", name: 'approved', event: {n: " n "}}"
#define HEARTBEAT "{truceHeartbeat: 'mail', id: " JOB ", token: $TOKEN}"

static const struct conflict_case cases[] = {
    {{"{" SET "'A'}, seq: 1}"}, "{" SET "'B'}, seq: 2}", "{" SET "'C'}, seq: 3}"},
    {{SET_APPLY("1")}, SET_APPLY("2"), SET_APPLY("3")},
    {{ELEMENT("1")}, ELEMENT("2"), ELEMENT("3")},
    {{ELEMENT_APPLY("1")}, ELEMENT_APPLY("2"), ELEMENT_APPLY("3")},
    {{"{insert: 'students', documents: [{student_id: 1, classes: ['A']}]}",
      "{truceSetDefine: 'students', key: 'student_id', field: 'classes', name: 'name'}",
      "{truceSet: 'students', key: {student_id: 2}, field: 'classes', name: 'name', add: {name: 'A'}, "
      "seq: 1}"},
     "{update: 'students', updates: [{q: {}, u: {$push: {classes: 'B'}}}]}",
     "{" SET "'C'}, seq: 1}"},
    {{CONSUMED("1", "1")}, CONSUMED("2", "2"), CONSUMED("3", "3")},
    {{"{insert: 'c', documents: [{_id: 1, list: [{k: 'A', n: 1}]}]}"}, ITEM, ITEM},
    {{"{truceRevision: 'c', save: {_id: 1, n: 1}}"},
     "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {m: 1}}}]}",
     "{truceRevision: 'c', save: {_id: 1, n: 2}, version: 1}"},
    {{"{truceRevision: 'c', save: {_id: 1, n: 1, m: 1}}"},
     "{truceRevision: 'c', save: {_id: 1, n: 1, m: 2}, version: 1}",
     "{truceRevision: 'c', merge: {_id: 1, n: 2, m: 1}, version: 1, base: {_id: 1, n: 1, m: 1}}"},
    {{"{truceRevision: 'c', save: {_id: 1, n: 1, m: 1}}"},
     "{truceRevision: 'c', save: {_id: 1, n: 1, m: 2}, version: 1}",
     "{truceRevisionPatch: 'c', id: 1, kind: 'merge', patch: {n: 2}}"},
    {{"{truceSequence: 's', take: 1}"},
     "{truceSequence: 's', take: 1}",
     "{truceSequence: 's', take: 1}"},
    {{"{truceSequence: 's', take: 1}"},
     "{truceSequence: 's', take: 1}",
     "{truceSequence: 's', raise: 100}"},
    {{ACCOUNTS},
     PAY_OTHERWISE,
     "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]}"},
    {{ACCOUNTS},
     PAY_OTHERWISE,
     "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}], key: 'k', keyTime: "
     "1767225600000}"},
    {{ACCOUNTS},
     PAY_OTHERWISE,
     "{truceTransfer: 'transfers', id: 1, source: 'a', destination: 'b', amount: 1, accounts: "
     "'accounts', field: 'n'}"},
    {{ACCOUNTS, TRANSFER("1")}, TRANSFER("2"), TRANSFER("3")},
    {{COPIES},
     "{update: 'users', updates: [{q: {_id: 17}, u: {$set: {n: 2}}}]}",
     "{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Bob'}}}"},
    {{COPIES},
     "{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Eve'}}}",
     "{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Bob'}}}"},
    {{COPIES},
     "{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Eve'}}}",
     "{truceSyncInsert: 'comments', document: {_id: 2, user: 17}}"},
    {{PUBLISH("home", "0")}, PUBLISH("home", "1"), PUBLISH("home", "2")},
    {{PUBLISH("home", "0")}, PUBLISH("about", "1"), PUBLISH("news", "2")},
    {{PUBLISH("home", "0")},
     PUBLISH("about", "1"),
     "{truceTreePublish: 'site', merge: true, changes: [{put: {itemId: 'news'}}]}"},
    {{UNIQUE("1")}, UNIQUE("2"), UNIQUE("3")},
    {{MAIL}, HEARTBEAT, "{truceDone: 'mail', id: " JOB ", token: $TOKEN}"},
    {{MAIL}, HEARTBEAT, "{truceFail: 'mail', id: " JOB ", token: $TOKEN, error: 'no answer'}"},
    {{MAIL}, HEARTBEAT, "{truceDiscard: 'mail', id: " JOB ", token: $TOKEN, error: 'none'}"},
    {{MAIL}, HEARTBEAT, "{truceSnooze: 'mail', id: " JOB ", token: $TOKEN, delayMS: 60000}"},
    {{MAIL}, SIGNAL("1"), SIGNAL("2")},
    {{NULL}, REQUEST, REQUEST},
};

/* Begins a transaction, and fixes its snapshot by a read. */
static void snapshot(void)
{
    transaction++;
    run_well("{find: 'nothing'}", START);
}

/* Runs the operation and the commit. Returns the status of the first that fails. */
static truce_status run_own(const struct conflict_case *is, char said[1000])
{
    truce_status status;

    sleeps = 0;
    status = run(is->own, "", said);
    return status ? status : run("{commitTransaction: 1}", "", said);
}

static void check_case(const struct conflict_case *is)
{
    char said[1000];
    truce_status status;

    for (int i = 0; i < 4 && is->before[i]; i++)
        run_well(is->before[i], NULL);
    snapshot();
    run_well(is->other, NULL);
    status = run_own(is, said);
    if (!(status == TRUCE_CONFLICT || status == TRUCE_LOCKED) || sleeps ||
        !strstr(said, "TransientTransactionError") || strstr(said, "\"errmsg\" : \"\""))
        test_fail(__FILE__, __LINE__, "%s: status %d after %d sleeps: %s", is->own, (int)status,
                  sleeps, said);
    snapshot();
    status = run_own(is, said);
    if (status || sleeps)
        test_fail(__FILE__, __LINE__, "%s, again: status %d after %d sleeps: %s", is->own,
                  (int)status, sleeps, said);
}

static void open_numbered(const char *name, size_t number)
{
    char *path = bson_strdup_printf("file:%s/%s%zu.truce", test_directory(), name, number);
    bson_error_t error = {0};

    truce_assert(!truce_store_open(path, NULL, &store, &error));
    bson_free(path);
    truce__environment_use(&counted);
}

static void close_counted(void)
{
    truce__environment_use(NULL);
    truce_store_close(store);
}

TEST(ends_at_once_if_another_client_changed_the_document)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_numbered("changed", i);
        check_case(&cases[i]);
        close_counted();
    }
}

/* ---- pending commits ------------------------------------------------------------------------- */

static void insert(const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

/* Makes a pending commit of another client hold the documents of a collection. */
static void hold(const char *collection)
{
    bson_t *update = test_bson("{'$set': {'_intent': {'c': " JOB "}}}"), all = BSON_INITIALIZER;
    bson_error_t error;

    CHECK_OK(truce_update(store, collection, &all, update, NULL, NULL, &error), error);
    bson_destroy(update);
}

TEST(does_not_wait_for_a_commit_that_its_snapshot_shows_as_pending)
{
    static const struct {
        const char *before, *collection, *own;
    } held[] = {
        {"{" SET "'A'}, seq: 1}", "@shop.students", "{" SET "'B'}, seq: 2}"},
        {SET_APPLY("1"), "@shop.students", SET_APPLY("2")},
        {ACCOUNTS, "@shop.accounts",
         "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: 1}}}]}"},
        {ACCOUNTS, "@shop.accounts", TRANSFER("1")},
    };

    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        char said[1000];

        open_numbered("held", i);
        run_well(held[i].before, NULL);
        insert("@shop.truce_commits",
               "{'_id': " JOB ", 'state': 'pending', 'lease': {'ms': 600000, 'until': "
               "{'$numberLong': '4000000000000'}}, 'writes': []}");
        hold(held[i].collection);
        snapshot();
        sleeps = 0;
        if (run(held[i].own, "", said) != TRUCE_CONFLICT || sleeps ||
            !strstr(said, "TransientTransactionError"))
            test_fail(__FILE__, __LINE__, "%s after %d sleeps: %s", held[i].own, sleeps, said);
        close_counted();
    }
}
