/*
 * Keyed commits that two clients send at once, with each kind of part: one of the two takes effect,
 * and the other returns `earlier`. Neither fails, whatever part of it finds its id, its number, or
 * its token used.
 */
#include <pthread.h>

#include "tests/support/json_command.h"
#include "tests/support/stored_names.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define PAIRS    4
#define KEY_TIME "1767225600000"

/* %1$s is a name of the pair's own. The job is one that was claimed for the pair. */
static const struct pair_part {
    const char *name, *prepare, *second;
    const char *part;
    bool needs_job;
} parts[] = {
    {"insert", .part = "{insert: 'things', with: {_id: '%1$s'}}"},
    {"update", "{insert: 'things', documents: [{_id: '%1$s', n: 0}]}",
     .part = "{update: 'things', id: '%1$s', if: {n: 0}, with: {$inc: {n: 1}}}"},
    {"remove", "{insert: 'things', documents: [{_id: '%1$s'}]}",
     .part = "{remove: 'things', id: '%1$s', if: {}}"},
    {"post", .part = "{post: 'book', id: '%1$s', with: {bank: -1, shop: 1}}"},
    {"ledger post",
     .part = "{truceLedgerPost: 'book', id: '%1$s', entries: [{account: 'bank', value: -1}, "
             "{account: 'shop', value: 1}], meta: {'$a.b': 1}}"},
    {"ledger open", .part = "{truceLedgerOpen: 'book', currency: 'EUR', account: '%1$s'}"},
    {"ledger rules", "{truceLedgerOpen: 'book', currency: 'EUR', account: '%1$s'}",
     .part = "{truceLedgerRules: 'book', account: '%1$s', min: 0}"},
    {"enqueue",
     .part =
         "{truceEnqueue: 'mail', payload: {'$a': {'b.c': 1}}, metadata: {'$b.c': 1}, unique: '%1$s'}"},
    {"flow",
     .part =
         "{truceFlow: '%1$s', jobs: [{name: 'a', queue: 'f', payload: {'$a.b': 1}}, {name: 'b', queue: "
         "'f', payload: {}, after: ['a']}]}"},
    {"done", .part = "{truceDone: '%1$s', id: %2$s, token: %3$s, result: {'$a.b': 1}}",
     .needs_job = true},
    {"fail", .part = "{truceFail: '%1$s', id: %2$s, token: %3$s, error: 'x'}", .needs_job = true},
    {"snooze", .part = "{truceSnooze: '%1$s', id: %2$s, token: %3$s, delayMS: 60000}",
     .needs_job = true},
    {"discard", .part = "{truceDiscard: '%1$s', id: %2$s, token: %3$s, error: 'x'}",
     .needs_job = true},
    {"set", .part =
                "{truceSet: 'students', key: {student_id: '%1$s'}, field: 'classes', name: 'name', "
                "add: {name: 'math'}, seq: 5}"},
    {"item", "{insert: 'staff', documents: [{_id: '%1$s'}]}",
     .part = "{truceItem: 'staff', filter: {_id: '%1$s'}, field: 'badges', identity: 'type', add: "
             "{type: 'M'}}"},
    {"new revision", .part = "{truceRevision: 'posts', save: {_id: '%1$s', t: 1}}"},
    {"revision", "{truceRevision: 'posts', save: {_id: '%1$s', t: 1}}",
     .part = "{truceRevision: 'posts', save: {_id: '%1$s', t: 2}, version: 1}"},
    {"merged revision", "{truceRevision: 'posts', save: {_id: '%1$s', t: 1}, keep: 3}",
     .part = "{truceRevision: 'posts', merge: {_id: '%1$s', t: 2}, version: 1, keep: 3}"},
    {"transfer", "{insert: 'accounts', documents: [{_id: '%1$s', n: 5}, {_id: '%1$s b', n: 5}]}",
     .part = "{truceTransfer: 'moves', id: '%1$s', source: '%1$s', destination: '%1$s b', amount: "
             "1, accounts: 'accounts', field: 'n'}"},
    {"source", "{insert: 'users', documents: [{_id: '%1$s', name: 'a'}]}",
     "{truceSyncInsert: 'comments', document: {_id: '%1$s', user: '%1$s'}}",
     "{truceSyncUpdate: 'users', id: '%1$s', update: {$set: {name: 'b'}}}"},
    {"copy", "{insert: 'users', documents: [{_id: '%1$s', name: 'a'}]}",
     .part = "{truceSyncInsert: 'comments', document: {_id: '%1$s', user: '%1$s'}}"},
    {"tree", .part =
                 "{truceTreePublish: '%1$s', collection: 'pages', changes: [{put: {itemId: 'home', "
                 "text: 'x'}}]}"},
};

static void must_run(truce_store *store, const char *json)
{
    bson_error_t error = {0};
    bson_t reply;

    if (!CHECK_OK(run_json_command(store, NULL, json, &reply, &error), error))
        fprintf(stderr, "    (%s)\n", json);
    bson_destroy(&reply);
}

struct half {
    truce_store *store;
    const char *request;
    pthread_barrier_t *barrier;
    truce_status status;
    bson_error_t error;
    bool earlier;
};

static void *send_half(void *arg)
{
    struct half *half = arg;
    bson_t reply;
    bson_iter_t at;

    pthread_barrier_wait(half->barrier);
    half->status = run_json_command(half->store, NULL, half->request, &reply, &half->error);
    half->earlier = bson_iter_init_find(&at, &reply, "earlier") && bson_iter_as_bool(&at);
    bson_destroy(&reply);
    return NULL;
}

static void send_pair(truce_store *store, const char *name, const char *request)
{
    struct half halves[2];
    pthread_barrier_t barrier;
    pthread_t threads[2];

    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        halves[i] = (struct half){.store = store, .request = request, .barrier = &barrier};
        REQUIRE(!pthread_create(&threads[i], NULL, send_half, &halves[i]));
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < 2; i++)
        if (!CHECK_OK(halves[i].status, halves[i].error))
            fprintf(stderr, "    (%s: %s)\n", name, request);
    if (halves[0].earlier == halves[1].earlier)
        test_fail(__FILE__, __LINE__, "%s: earlier is %d for both", name, halves[0].earlier);
}

/* Claims a job of a queue of this name, and writes its id and token as JSON. */
static void claim_job(truce_store *store, const char *name, char id[64], char token[64])
{
    bson_error_t error = {0};
    bson_iter_t at, found;
    char json[200], hex[25];
    bson_t reply;

    snprintf(json, sizeof json, "{truceEnqueue: '%s', payload: {}}", name);
    must_run(store, json);
    snprintf(json, sizeof json, "{truceClaim: '%s', leaseMS: 600000}", name);
    CHECK_OK(run_json_command(store, NULL, json, &reply, &error), error);
    if (CHECK(bson_iter_init(&at, &reply) && bson_iter_find_descendant(&at, "jobs.0._id", &found)))
        bson_oid_to_string(bson_iter_oid(&found), hex);
    snprintf(id, 64, "{$oid: '%s'}", hex);
    if (CHECK(bson_iter_init(&at, &reply) &&
              bson_iter_find_descendant(&at, "jobs.0.token", &found)))
        bson_oid_to_string(bson_iter_oid(&found), hex);
    snprintf(token, 64, "{$oid: '%s'}", hex);
    bson_destroy(&reply);
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static void check_part(truce_store *store, const struct pair_part *part)
{
    char name[60], id[64] = "", token[64] = "", json[500], request[700];

    for (int i = 0; i < PAIRS; i++) {
        snprintf(name, sizeof name, "%s %d", part->name, i);
        for (int k = 0; k < 2; k++) {
            const char *prepare = k ? part->second : part->prepare;

            if (!prepare)
                continue;
            snprintf(json, sizeof json, prepare, name);
            must_run(store, json);
        }
        if (part->needs_job)
            claim_job(store, name, id, token);
        snprintf(json, sizeof json, part->part, name, id, token);
        snprintf(request, sizeof request,
                 "{truceCommit: [%s], key: '%s', keyTime: " KEY_TIME ", leave: {'$a.b': 1}}", json,
                 name);
        send_pair(store, name, request);
    }
}

/* `strict`: a server without transactions that refuses names with "$" and ".". */
static void check_store(const char *uri, bool strict)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
    store = strict ? stored_names_wrap(store) : store;
    must_run(store, "{truceLedgerOpen: 'book', currency: 'EUR', digits: 2, account: 'bank'}");
    must_run(store, "{truceLedgerOpen: 'book', currency: 'EUR', account: 'shop'}");
    must_run(store, "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', "
                    "reference: 'user', copies: {author: 'name'}, settleMS: 1}");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        check_part(store, &parts[i]);
    truce_store_close(store);
}

TEST(applies_one_of_two_equal_concurrent_commits)
{
    char uri[400];

    check_store("memory:", false);
    snprintf(uri, sizeof uri, "file:%s/pairs.truce", test_directory());
    check_store(uri, false);
}

TEST(in_the_journal_one_of_two_equal_commits_takes_effect_too)
{
    check_store("memory:", true);
}
