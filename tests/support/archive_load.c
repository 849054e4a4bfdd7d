/* See archive_load.h. */
#include "tests/support/archive_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/test.h"
#include "truce/command.h"
#include "truce/json.h"

#define LAPSE_MS 10000
#define CLAIM_MS 1000

/* The words of a step. #k is its number, and #p has zeros before it. #o is an ObjectId of it, and
 * #t the time of its key. #a, #b, and #c are small numbers. */
static const char *const load_steps[] = {
    "{insert: 'plain', documents: [{_id: #k, n: #k}]}",
    "{update: 'plain', updates: [{q: {_id: 'u#a'}, u: {$set: {last: #k}}, upsert: true}]}",
    "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: -#c}}}, {update: 'accounts', "
    "id: 'b', with: {$inc: {n: #c}}}, {insert: 'moves', with: {_id: #k}}, {truceEnqueue: 'mail', "
    "payload: {n: #k}, id: #o, keepMS: -1}, {post: 'bank', id: 'commit #k', with: {cash: '-0.0#c', "
    "sales: '0.0#c'}}], key: 'commit #k', keyTime: #t}",
    "{truceSet: 'students', key: {student: #a}, field: 'classes', name: 'name', add: {name: 'c#b', "
    "room: #k}, seq: #k}",
    "{truceSet: 'students', key: {student: #a}, field: 'classes', name: 'name', remove: {name: "
    "'c#b'}, seq: #k}",
    "{truceLedgerPost: 'bank', id: 'tx #k', entries: [{account: 'cash', value: -#k}, {account: "
    "'sales', value: #k}]}",
    "{truceTransfer: 'transactions', id: #k, source: 'a', destination: 'b', amount: 1, accounts: "
    "'purses', field: 'n'}",
    "{truceTreePublish: 'site', collection: 'pages', parent: 'up', changes: [{put: {itemId: 'p#a', "
    "title: 't#k'}}], id: #o, message: 'm#k'}",
    "{truceCommit: [{truceRevision: 'posts', save: {_id: #k, views: #b}}], key: 'post #k', keyTime: "
    "#t}",
    "{truceItem: 'employees', filter: {_id: #a}, field: 'badges', identity: 'type', upsert: {type: "
    "'B#b', since: #k}}",
    "{truceSyncUpdate: 'users', id: #a, update: {$set: {name: 'n#k'}}}",
    "{truceSequence: 's#p', take: 1}",
    /* The oldest job is claimed and done. */
    "{truceClaim: 'mail', leaseMS: 1000, waitMS: 100}",
};

enum { KINDS = sizeof load_steps / sizeof *load_steps, KIND_ADD = 2, KIND_SEQUENCE = 11 };

/* Returns the kind of a step. Each group of KINDS steps has each kind once, in another order. */
static int kind_of(int step)
{
    return (step % KINDS * 5 + step / KINDS * 3) % KINDS;
}

/* Returns the step that added the oldest waiting job, which this step claims, or 0 if no job
 * waits. */
static int job_of(int step)
{
    int claimed = 0, waiting = 0, number = 0;

    for (int i = 1; i <= step; i++) {
        waiting += kind_of(i) == KIND_ADD;
        if (kind_of(i) != KINDS - 1 || !waiting)
            continue;
        waiting--;
        claimed++;
        number = i == step ? claimed : 0;
    }
    for (int i = 1; number && i < step; i++) {
        number -= kind_of(i) == KIND_ADD;
        if (!number)
            return i;
    }
    return 0;
}

/* Returns the time of all commit keys: that of the first call, in load_prepare. The processes that
 * run the steps are forks of the one that prepared the database, so a repeated step has the same
 * time. */
static int64_t load_key_time(void)
{
    static int64_t time_ms;

    if (!time_ms)
        time_ms = truce__clock_wall_ms();
    return time_ms;
}

/* Replaces each #LETTER in `words` by a value of the step. The caller frees the string with
 * bson_free. */
static char *load_words(const char *words, int step)
{
    bson_string_t *text = bson_string_new(NULL);

    for (; *words; words++) {
        if (*words != '#') {
            bson_string_append_c(text, *words);
            continue;
        }
        switch (*++words) {
        case 'k':
            bson_string_append_printf(text, "%d", step);
            break;
        case 'a':
            bson_string_append_printf(text, "%d", step % 7);
            break;
        case 'b':
            bson_string_append_printf(text, "%d", step % 5);
            break;
        case 'c':
            bson_string_append_printf(text, "%d", step % 7 + 1);
            break;
        case 'p':
            bson_string_append_printf(text, "%09d", step);
            break;
        case 't':
            bson_string_append_printf(text, "%" PRId64, load_key_time());
            break;
        default:
            bson_string_append_printf(text, "{$oid: '%024d'}", step);
        }
    }
    return bson_string_free(text, false);
}

static truce_status load_run(truce_store *store, const char *database, const char *json,
                             bson_t *reply, bson_error_t *error)
{
    bson_t command;
    truce_status status =
        truce_json_read(json, strlen(json), TRUCE_JSON_TYPED, &command, NULL, error);

    bson_init(reply);
    if (!status) {
        bson_destroy(reply);
        status = truce_command(store, database, &command, reply, error);
    }
    bson_destroy(&command);
    return status;
}

/* Runs a command and ignores its reply. */
static truce_status load_command(truce_store *store, const char *database, const char *json,
                                 bson_error_t *error)
{
    bson_t reply;
    truce_status status = load_run(store, database, json, &reply, error);

    bson_destroy(&reply);
    return status;
}

bool load_prepare(truce_store *store, const char *database)
{
    static const char *const commands[] = {
        "{insert: 'accounts', documents: [{_id: 'a', n: 0}, {_id: 'b', n: 0}]}",
        "{insert: 'purses', documents: [{_id: 'a', n: 100000000}, {_id: 'b', n: 0}]}",
        "{insert: 'employees', documents: [{_id: 0}, {_id: 1}, {_id: 2}, {_id: 3}, {_id: 4}, {_id: "
        "5}, {_id: 6}]}",
        "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user', "
        "copies: {author: 'name'}, settleMS: 1}",
        "{truceLedgerOpen: 'bank', currency: 'EUR', digits: 2, account: 'cash'}",
        "{truceLedgerOpen: 'bank', currency: 'EUR', account: 'sales'}",
        "{truceTreePublish: 'site', collection: 'pages', parent: 'up', changes: [{put: {itemId: "
        "'home'}}], id: {$oid: 'ffffffffffffffffffffffff'}}"};
    bson_error_t error;
    char text[200];

    (void)load_key_time();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (!CHECK_OK(load_command(store, database, commands[i], &error), error))
            return false;
    }
    for (int i = 0; i < 7; i++) {
        snprintf(text, sizeof text, "{truceSyncInsert: 'users', document: {_id: %d, name: 'n'}}",
                 i);
        if (!CHECK_OK(load_command(store, database, text, &error), error))
            return false;
        snprintf(text, sizeof text,
                 "{truceSyncInsert: 'comments', document: {_id: %d, user: %d, n: %d}}", i, i, i);
        if (!CHECK_OK(load_command(store, database, text, &error), error))
            return false;
    }
    return true;
}

/* ---- steps that are not idempotent by themselves -------------------------------------------- */

/* Returns whether the reply has the text, for example a state. */
static truce_status load_finds(truce_store *store, const char *database, const char *words,
                               int step, const char *text, bool *found, bson_error_t *error)
{
    char *json = load_words(words, step), *shown;
    bson_t reply;
    truce_status status = load_run(store, database, json, &reply, error);

    shown = truce_json_write(&reply, false, TRUCE_JSON_RELAXED);
    *found = !status && strstr(shown, text) != NULL;
    bson_free(shown);
    bson_free(json);
    bson_destroy(&reply);
    return status;
}

static truce_status sequence_is_taken(truce_store *store, const char *database, int step,
                                      bool *taken, bson_error_t *error)
{
    char *value = load_words("\"s#p\"", step);
    truce_status status = load_finds(
        store, database, "{truceSequences: 1, limit: 1000, after: 's'}", step, value, taken, error);

    bson_free(value);
    return status;
}

/* Returns whether the reply of a claim has this job, and its token. */
static bool load_claimed(const bson_t *reply, const char *id, char token[25])
{
    bson_iter_t at, found;
    char hex[25] = "";

    if (!bson_iter_init(&at, reply) || !bson_iter_find_descendant(&at, "jobs.0._id", &found))
        return false;
    bson_oid_to_string(bson_iter_oid(&found), hex);
    /* Another job comes while the claim of a killed process has not lapsed. */
    if (strcmp(id, hex) != 0 || !bson_iter_init(&at, reply) ||
        !bson_iter_find_descendant(&at, "jobs.0.token", &found))
        return false;
    bson_oid_to_string(bson_iter_oid(&found), token);
    return true;
}

/* Claims until the oldest job comes, whose last claim may not have lapsed yet, and ends it. */
static truce_status load_work(truce_store *store, const char *database, int job,
                              bson_error_t *error)
{
    int64_t until_ns = truce__clock_monotonic_ns() + LAPSE_MS * INT64_C(1000000);
    char done[200], token[25], id[25];
    truce_status status = TRUCE_NOT_FOUND;
    bson_t reply;

    snprintf(id, sizeof id, "%024d", job);
    while (status == TRUCE_NOT_FOUND && truce__clock_monotonic_ns() < until_ns) {
        status = load_run(store, database, load_steps[KINDS - 1], &reply, error);
        if (!status && load_claimed(&reply, id, token)) {
            snprintf(done, sizeof done,
                     "{truceDone: 'mail', id: {$oid: '%s'}, token: {$oid: '%s'}, result: {n: %d}}",
                     id, token, job);
            status = load_command(store, database, done, error);
        } else if (!status) {
            status = TRUCE_NOT_FOUND;
        }
        bson_destroy(&reply);
    }
    return status;
}

static truce_status load_claim(truce_store *store, const char *database, int step, bool again,
                               bson_error_t *error)
{
    int job = job_of(step);
    bool done = false;
    truce_status status = TRUCE_OK;

    if (!job)
        return TRUCE_OK;
    if (again)
        status = load_finds(store, database, "{truceJobs: 'mail', id: #o}", job,
                            "\"state\": \"done\"", &done, error);
    /* A claim of the process that died lapses. */
    if (!status && !done && again)
        truce__clock_sleep_ms(CLAIM_MS);
    return status || done ? status : load_work(store, database, job, error);
}

truce_status load_step(truce_store *store, const char *database, int step, bool again,
                       bson_error_t *error)
{
    int kind = kind_of(step);
    bool taken = false;
    truce_status status = TRUCE_OK;
    char *json;

    if (kind == KINDS - 1)
        return load_claim(store, database, step, again, error);
    if (kind == KIND_SEQUENCE && again)
        status = sequence_is_taken(store, database, step, &taken, error);
    if (status || taken)
        return status;
    json = load_words(load_steps[kind], step);
    status = load_command(store, database, json, error);
    bson_free(json);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static const char *const load_reads[] = {
    "{aggregate: 'plain', pipeline: [{$group: {_id: null, n: {$sum: 1}, sum: {$sum: '$n'}}}], "
    "cursor: {}}",
    "{find: 'plain', sort: {_id: -1}, limit: 10}",
    "{find: 'accounts', sort: {_id: 1}}",
    "{aggregate: 'moves', pipeline: [{$group: {_id: null, n: {$sum: 1}, last: {$max: '$_id'}}}], "
    "cursor: {}}",
    "{find: 'purses', sort: {_id: 1}, projection: {n: 1}}",
    "{find: 'students', sort: {student: 1}, projection: {_id: 0, student: 1, classes: 1}}",
    "{find: 'employees', sort: {_id: 1}}",
    "{find: 'users', sort: {_id: 1}, projection: {name: 1}}",
    "{aggregate: 'posts', pipeline: [{$group: {_id: null, n: {$sum: 1}, last: {$max: '$_id'}, sum: "
    "{$sum: '$views'}}}], cursor: {}}",
    "{truceLedgerBalance: 'bank', account: 'cash'}",
    "{truceLedgerBalance: 'bank', account: 'sales'}",
    "{truceLedgerVerify: 'bank'}",
    "{truceTreeRead: 'site'}",
    "{truceSequences: 1, limit: 1000}",
    "{truceJobs: 'mail', state: 'done', limit: 1000}",
    "{truceJobs: 'mail', limit: 1000}"};

static bool is_volatile(const bson_iter_t *at)
{
    static const char *const names[] = {"token", "bookedMS", "_rev", "origin"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(bson_iter_key(at), names[i]))
            return true;
    }
    return BSON_ITER_HOLDS_DATE_TIME(at);
}

/* Copies a document without the fields that differ from run to run, at any depth. */
static void copy_stable(const bson_t *from, bson_t *to)
{
    bson_iter_t at;

    (void)bson_iter_init(&at, from);
    while (bson_iter_next(&at)) {
        const char *name = bson_iter_key(&at);
        const uint8_t *bytes;
        uint32_t size;
        bson_t inner, copy;

        if (is_volatile(&at))
            continue;
        if (!BSON_ITER_HOLDS_DOCUMENT(&at) && !BSON_ITER_HOLDS_ARRAY(&at)) {
            bson_append_iter(to, NULL, -1, &at);
            continue;
        }
        if (BSON_ITER_HOLDS_DOCUMENT(&at))
            bson_iter_document(&at, &size, &bytes);
        else
            bson_iter_array(&at, &size, &bytes);
        (void)bson_init_static(&inner, bytes, size);
        bson_append_document_begin(to, name, -1, &copy);
        copy_stable(&inner, &copy);
        bson_append_document_end(to, &copy);
    }
}

static int compare_ids(const void *a, const void *b)
{
    return bson_oid_compare(a, b);
}

/* Appends the sorted _ids of the jobs only: a claim that was not used leaves a job running, and
 * later delayed. */
static void copy_jobs(const bson_t *reply, bson_string_t *text)
{
    bson_oid_t ids[1000];
    size_t count = 0;
    bson_iter_t at, jobs, id;

    if (!bson_iter_init_find(&at, reply, "jobs") || !bson_iter_recurse(&at, &jobs))
        return;
    while (bson_iter_next(&jobs) && count < 1000) {
        if (bson_iter_recurse(&jobs, &id) && bson_iter_find(&id, "_id"))
            bson_oid_copy(bson_iter_oid(&id), &ids[count++]);
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 0; i < count; i++) {
        char hex[25];

        bson_oid_to_string(&ids[i], hex);
        bson_string_append_printf(text, "%s\n", hex);
    }
}

/* Runs a read command and appends its stable reply as text. Jobs are sorted by copy_jobs. */
static bool load_append(truce_store *store, const char *database, const char *json,
                        bson_string_t *text)
{
    bson_t reply, stable = BSON_INITIALIZER;
    bson_error_t error;
    bool fine = CHECK_OK(load_run(store, database, json, &reply, &error), error);
    char *shown;

    if (!strncmp(json, "{truceJobs", 10)) {
        bson_string_append_printf(text, "%s\n", json);
        copy_jobs(&reply, text);
    } else {
        copy_stable(&reply, &stable);
        shown = truce_json_write(&stable, false, TRUCE_JSON_RELAXED);
        bson_string_append_printf(text, "%s\n%s\n", json, shown);
        bson_free(shown);
    }
    bson_destroy(&stable);
    bson_destroy(&reply);
    return fine;
}

char *load_read(truce_store *store, const char *database)
{
    bson_string_t *text = bson_string_new(NULL);
    bool fine = true;
    char json[100];

    for (size_t i = 0; i < sizeof load_reads / sizeof *load_reads && fine; i++)
        fine = load_append(store, database, load_reads[i], text);
    for (int i = 0; i < 7 && fine; i++) {
        snprintf(json, sizeof json, "{truceSyncRead: 'comments', id: %d}", i);
        fine = load_append(store, database, json, text);
    }
    return fine ? bson_string_free(text, false) : (bson_string_free(text, true), NULL);
}
