/*
 * Collections that are dropped, renamed, or emptied, and databases that are dropped or restored,
 * between any two operations of every pattern.
 *
 *     story     one or more operations of each pattern, by a server that keeps its handles
 *     blow      replaces collections: a command to that server, or calls on another handle of the
 *               same file
 *
 * For each number n the first n operations of the story run, then the blow, then the whole story.
 * After a blow that leaves nothing, the second run gets the answers of the first run on a fresh
 * store, and leaves as many documents. After every blow each collection has the indexes that it has
 * on a fresh store.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "tests/support/silent_store.h"
#include "tests/support/still_calls.h"

static const char *const story[] = {
    "{truceSequence: 'orders', take: 17}",
    "{insert: 'accounts', documents: [{_id: 'a', n: 9}, {_id: 'b', n: 0}]}",
    "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: -1}}}], key: 'k', keyTime: 1767225600000, leave: {r: 1}}",
    "{truceCommit: [{update: 'accounts', id: 'a', with: {$inc: {n: -1}}}], key: 'k', keyTime: 1767225600000, leave: {r: 1}}",
    "{truceCommitResult: 'k'}",
    "{truceRequest: 'r', name: 'mail', input: {to: 'ada'}}",
    "{truceRequestState: 'r'}",
    "{truceLedgerOpen: 'book', currency: 'EUR', digits: 2, account: 'ada', min: -100000}",
    "{truceLedgerOpen: 'book', currency: 'EUR', digits: 2, account: 'bank', min: -100000}",
    "{truceLedgerPost: 'book', id: 't1', entries: [{account: 'bank', value: -500}, {account: 'ada', value: 500}]}",
    "{truceLedgerPost: 'book', id: 't1', entries: [{account: 'bank', value: -500}, {account: 'ada', value: 500}]}",
    "{truceLedgerBalance: 'book', account: 'ada'}",
    "{truceCommit: [{enqueue: 'mail', with: {n: 2}}, {post: 'book', id: 't2', with: {ada: -1, bank: 1}}]}",
    "{truceEnqueue: 'mail', payload: {n: 1}, unique: 'u', lane: 'x', id: {$oid: '0123456789abcdef01234567'}}",
    "{truceEnqueue: 'mail', payload: {n: 1}, unique: 'u', lane: 'x'}",
    "{truceQueues: 1}",
    "{truceQueue: 'mail', action: 'pause'}",
    "{truceClaim: 'mail'}",
    "{truceQueue: 'mail', action: 'resume'}",
    "{truceQueue: 'mail', action: 'cancel', id: {$oid: '0123456789abcdef01234567'}}",
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', add: {name: 'math'}, seq: 5}",
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', add: {name: 'math'}, seq: 5}",
    "{truceSet: 'students', key: {student_id: 1}, field: 'classes', name: 'name', remove: {name: 'math'}, seq: 4}",
    "{insert: 'students', documents: [{student_id: 1}]}",
    "{truceRevision: 'posts', save: {_id: 1, title: 'a'}, keep: 3}",
    "{truceRevision: 'posts', save: {_id: 1, title: 'b'}, version: 1, keep: 3}",
    "{insert: 'employees', documents: [{_id: 1}]}",
    "{truceItem: 'employees', filter: {_id: 1}, field: 'badges', identity: 'type', upsert: {type: 'M', since: 2026}}",
    "{truceTransfer: 'moves', id: 17, source: 'a', destination: 'b', amount: 1, accounts: 'accounts', field: 'n'}",
    "{truceTransferShow: 'moves', id: 17}",
    "{insert: 'users', documents: [{_id: 17, name: 'John'}]}",
    "{truceSyncDeclare: 'author', source: 'users', dependent: 'comments', reference: 'user', copies: {author: 'name'}, settleMS: 1}",
    "{truceSyncInsert: 'comments', document: {_id: 1, user: 17}}",
    "{truceSyncUpdate: 'users', id: 17, update: {$set: {name: 'Ada'}}}",
    "{find: 'comments', projection: {author: 1}}",
    "{truceTreePublish: 'site', collection: 'pages', changes: [{put: {itemId: 'home', text: 'x'}}]}",
    "{truceTreePublish: 'site', collection: 'pages', changes: [{put: {itemId: 'news', text: 'y'}}], merge: true}",
    "{truceTreeRead: 'site'}",
};

#define STEPS    (sizeof story / sizeof *story)

#define DATABASE "shop"
#define PREFIX   "@shop."

/* ---- stores ---------------------------------------------------------------------------------- */

/* SILENT: a store that does not report the blow (silent_store.h). */
enum kind { MEMORY, JOURNAL, ONE_FILE, KINDS, SILENT = KINDS };

static char *path;
static truce_store *silent_inner;

static truce_store *open_store(enum kind kind)
{
    static int number;
    truce_store *store;
    bson_error_t error = {0};

    bson_free(path);
    path = bson_strdup_printf("%s/%d.truce", test_directory(), number++);
    truce_assert(!truce_store_open(kind == ONE_FILE ? path : "memory:",
                                   &(truce_store_options){.relaxed = true}, &store, &error));
    if (kind == JOURNAL)
        store->capabilities &=
            ~(uint32_t)(TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_CHECK | TRUCE_CAN_REWRITE);
    if (kind == SILENT) {
        silent_inner = store;
        store = silent_store(store);
    }
    return store;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void append_plain(bson_t *to, bson_iter_t *from);

/* Fields that differ from run to run, or depend on the clock, become null. */
static void append_field(bson_t *to, const bson_iter_t *at)
{
    const char *key = bson_iter_key(at);
    bson_iter_t inner;
    bson_t document;

    if (BSON_ITER_HOLDS_OID(at) || BSON_ITER_HOLDS_DATE_TIME(at) ||
        (BSON_ITER_HOLDS_INT64(at) && bson_iter_int64(at) > INT64_C(1000000000)) ||
        !strcmp(key, "oldest_ms") || !strcmp(key, "token") || !strcmp(key, "name"))
        BSON_APPEND_NULL(to, key);
    else if (BSON_ITER_HOLDS_DOCUMENT(at) && bson_iter_recurse(at, &inner)) {
        BSON_APPEND_DOCUMENT_BEGIN(to, key, &document);
        append_plain(&document, &inner);
        bson_append_document_end(to, &document);
    } else if (BSON_ITER_HOLDS_ARRAY(at) && bson_iter_recurse(at, &inner)) {
        BSON_APPEND_ARRAY_BEGIN(to, key, &document);
        append_plain(&document, &inner);
        bson_append_array_end(to, &document);
    } else {
        bson_append_iter(to, key, -1, at);
    }
}

static void append_plain(bson_t *to, bson_iter_t *from)
{
    while (bson_iter_next(from))
        append_field(to, from);
}

static char *reply_text(const char *json)
{
    bson_t *typed = command_of(json), *command = bson_new(), reply, plain = BSON_INITIALIZER;
    bson_iter_t at;
    char *text;

    bson_copy_to_excluding_noinit(typed, command, "$db", NULL);
    BSON_APPEND_UTF8(command, "$db", DATABASE);
    answer(command, &reply);
    truce_assert(bson_iter_init(&at, &reply));
    append_plain(&plain, &at);
    text = bson_as_relaxed_extended_json(&plain, NULL);
    bson_destroy(&plain);
    bson_destroy(&reply);
    bson_destroy(command);
    bson_destroy(typed);
    return text;
}

/* ---- the result ------------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the names of a collection's indexes in order, with ! if they are unique. It omits the
 * index of intents, which only a commit of the journal makes. */
static char *indexes_of(truce_store *store, const char *place)
{
    char *names[TRUCE_INDEXES_MAX], *all = bson_strdup(""), *more;
    size_t count = 0;
    bson_iter_t at, name, unique;
    bson_t indexes;

    if (!truce_index_list(store, place, &indexes, NULL) && bson_iter_init(&at, &indexes))
        while (bson_iter_next(&at)) {
            truce_assert(bson_iter_recurse(&at, &name) && bson_iter_find(&name, "name"));
            truce_assert(bson_iter_recurse(&at, &unique));
            if (strcmp(bson_iter_utf8(&name, NULL), "_intent_1") != 0)
                names[count++] = bson_strdup_printf(
                    "%s%s", bson_iter_utf8(&name, NULL),
                    bson_iter_find(&unique, "unique") && bson_iter_as_bool(&unique) ? "!" : "");
        }
    bson_destroy(&indexes);
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++) {
        more = bson_strdup_printf("%s %s", all, names[i]);
        bson_free(names[i]);
        bson_free(all);
        all = more;
    }
    return all;
}

/* {place: {indexes, documents}} of the database */
static bson_t *left_in(truce_store *store)
{
    bson_t collections, *left = bson_new();
    bson_error_t error = {0};
    bson_iter_t at, name;

    truce_assert(!truce_collection_list(store, NULL, &collections, &error));
    truce_assert(bson_iter_init(&at, &collections));
    while (bson_iter_next(&at)) {
        const char *place;
        char *indexes;
        int64_t count;

        truce_assert(bson_iter_recurse(&at, &name) && bson_iter_find(&name, "name"));
        place = bson_iter_utf8(&name, NULL);
        if (strncmp(place, PREFIX, strlen(PREFIX)) != 0)
            continue;
        truce_assert(!truce_count(store, place, NULL, NULL, &count, &error));
        indexes = indexes_of(store, place);
        BCON_APPEND(left, place + strlen(PREFIX), "{", "indexes", BCON_UTF8(indexes), "documents",
                    BCON_INT64(count), "}");
        bson_free(indexes);
    }
    bson_destroy(&collections);
    return left;
}

/* ---- a fresh store --------------------------------------------------------------------------- */

static char *fresh[STEPS];
static bson_t *fresh_left;

static void begin(enum kind kind)
{
    still_connect(still_serve(open_store(kind), NULL));
    for (size_t i = 0; i < STEPS; i++)
        fresh[i] = reply_text(story[i]);
    fresh_left = left_in(server->store);
}

static void end(void)
{
    still_end();
    for (size_t i = 0; i < STEPS; i++)
        bson_free(fresh[i]);
    bson_destroy(fresh_left);
}

/* ---- blows ----------------------------------------------------------------------------------- */

/* Replaces collections; runs on another handle if the store is a file. */
typedef void blow_function(truce_store *store, const char *place);

static void each_place(truce_store *store, const char *only, blow_function *blow)
{
    bson_t *left = left_in(store);
    bson_iter_t at;

    REQUIRE(bson_iter_init(&at, left));
    while (bson_iter_next(&at)) {
        char *place = bson_strdup_printf(PREFIX "%s", bson_iter_key(&at));

        if (!only || !strcmp(only, bson_iter_key(&at)))
            blow(store, place);
        bson_free(place);
    }
    bson_destroy(left);
}

static void drop(truce_store *store, const char *place)
{
    bson_error_t error = {0};

    CHECK_OK(truce_collection_drop(store, place, &error), error);
}

static void rename_away(truce_store *store, const char *place)
{
    char *away = bson_strdup_printf("@away.%s", place + strlen(PREFIX));
    bson_error_t error = {0};

    CHECK_OK(truce_collection_rename(store, place, away, true, &error), error);
    bson_free(away);
}

static void empty(truce_store *store, const char *place)
{
    bson_error_t error = {0};
    bson_t all = BSON_INITIALIZER;

    CHECK_OK(truce_remove(store, place, &all, &(truce_write_options){.multi = true}, NULL, &error),
             error);
}

/* Drops the collections and makes them by plain inserts, as a restore does. The inserted
 * document is one that the story never uses. */
static void restore(truce_store *store, const char *place)
{
    bson_error_t error = {0};
    bson_t *document = test_bson("{'_id': 'restored'}");

    drop(store, place);
    CHECK_OK(truce_insert(store, place, document, NULL, &error), error);
    bson_destroy(document);
}

static void run_blow(enum kind kind, const char *only, blow_function *blow)
{
    truce_store *other = server->store;
    bson_error_t error = {0};

    if (kind == ONE_FILE)
        CHECK_OK(truce_store_open(path, NULL, &other, &error), error);
    else if (kind == SILENT)
        other = silent_inner;
    each_place(other, only, blow);
    if (kind == ONE_FILE)
        truce_store_close(other);
}

static void check_indexes(const bson_t *left, size_t steps, const char *blow)
{
    bson_iter_t at, has, should;

    REQUIRE(bson_iter_init(&at, left));
    while (bson_iter_next(&at)) {
        bson_iter_t of;

        if (!bson_iter_init_find(&of, fresh_left, bson_iter_key(&at)))
            continue;
        REQUIRE(bson_iter_recurse(&at, &has) && bson_iter_find(&has, "indexes"));
        REQUIRE(bson_iter_recurse(&of, &should) && bson_iter_find(&should, "indexes"));
        if (strcmp(bson_iter_utf8(&has, NULL), bson_iter_utf8(&should, NULL)) != 0)
            test_fail(__FILE__, __LINE__, "%s after %zu steps: %s has the indexes%s, not%s", blow,
                      steps, bson_iter_key(&at), bson_iter_utf8(&has, NULL),
                      bson_iter_utf8(&should, NULL));
    }
}

static void check_left(const bson_t *left, size_t steps, const char *blow)
{
    bson_iter_t at;

    REQUIRE(bson_iter_init(&at, fresh_left));
    while (bson_iter_next(&at)) {
        bson_iter_t of, has, should;

        if (!bson_iter_init_find(&of, left, bson_iter_key(&at))) {
            test_fail(__FILE__, __LINE__, "%s after %zu steps: no %s", blow, steps,
                      bson_iter_key(&at));
            continue;
        }
        REQUIRE(bson_iter_recurse(&of, &has) && bson_iter_find(&has, "documents"));
        REQUIRE(bson_iter_recurse(&at, &should) && bson_iter_find(&should, "documents"));
        if (bson_iter_int64(&has) != bson_iter_int64(&should))
            test_fail(__FILE__, __LINE__, "%s after %zu steps: %s has %lld documents, not %lld",
                      blow, steps, bson_iter_key(&at), (long long)bson_iter_int64(&has),
                      (long long)bson_iter_int64(&should));
    }
}

/* `total`: nothing is left, so all later operations run as on a fresh store. `blow` NULL:
 * dropDatabase. */
static void try_after(enum kind kind, size_t steps, const char *name, const char *only,
                      blow_function *blow, bool total)
{
    bson_t *left;

    each_place(server->store, NULL, drop);
    silent_number++;
    for (size_t i = 0; i < steps; i++)
        bson_free(reply_text(story[i]));
    if (blow)
        run_blow(kind, only, blow);
    else
        bson_free(reply_text("{dropDatabase: 1}"));
    for (size_t i = 0; i < STEPS; i++) {
        char *text = reply_text(story[i]);

        if (total && strcmp(text, fresh[i]) != 0)
            test_fail(__FILE__, __LINE__, "%s after %zu steps: %s is answered with %s, not %s",
                      name, steps, story[i], text, fresh[i]);
        bson_free(text);
    }
    left = left_in(server->store);
    check_indexes(left, steps, name);
    if (total && kind != SILENT)
        check_left(left, steps, name);
    bson_destroy(left);
}

static void try_between(enum kind kind, const char *name, blow_function *blow, bool total)
{
    begin(kind);
    for (size_t steps = 0; steps <= STEPS; steps += kind == MEMORY ? 1 : 3)
        try_after(kind, steps, name, NULL, blow, total);
    end();
}

static void try_everywhere(const char *name, blow_function *blow, bool total)
{
    for (int kind = 0; kind < KINDS; kind++)
        try_between((enum kind)kind, name, blow, total);
}

TEST(is_a_fresh_database_after_drop_database)
{
    try_everywhere("dropDatabase", NULL, true);
}

TEST(is_a_fresh_database_after_all_collections_were_dropped)
{
    try_everywhere("drop", drop, true);
}

TEST(is_a_fresh_database_after_all_collections_were_renamed)
{
    try_everywhere("rename", rename_away, true);
}

TEST(is_a_fresh_database_after_all_documents_were_removed)
{
    try_everywhere("deleteMany", empty, true);
}

/* ---- a store that does not report the blow --------------------------------------------------- */

#define NOTICED_MS 20000 /* It takes a second. */

TEST(is_a_fresh_database_after_a_silent_removal_of_all_documents)
{
    try_between(SILENT, "silent deleteMany", empty, true);
}

static int64_t count_in(const char *collection)
{
    char *place = bson_strdup_printf(PREFIX "%s", collection);
    bson_error_t error = {0};
    int64_t count = 0;

    CHECK_OK(truce_count(silent_inner, place, NULL, NULL, &count, &error), error);
    bson_free(place);
    return count;
}

/* Runs a step, which defines something, until its definition is stored again. */
static void define_again(const char *collection, const char *step)
{
    int64_t begun_ns = truce__clock_monotonic_ns();

    do {
        bson_free(reply_text(step));
        truce__clock_sleep_ms(50);
    } while (!count_in(collection) &&
             truce__clock_monotonic_ns() - begun_ns < NOTICED_MS * INT64_C(1000000));
    CHECK_INT(count_in(collection), ==, 1);
}

TEST(defines_again_what_was_removed_without_a_report)
{
    begin(SILENT);
    each_place(silent_inner, NULL, empty);
    define_again("truce_sets", "{truceSet: 'students', key: {student_id: 1}, field: 'classes', "
                               "name: 'name', add: {name: 'math'}, seq: 5}");
    define_again("truce_transfers",
                 "{truceTransfer: 'moves', id: 17, source: 'a', destination: 'b', amount: 1, "
                 "accounts: 'accounts', field: 'n'}");
    define_again("truce_ledgers", "{truceLedgerOpen: 'book', currency: 'EUR', digits: 2, account: "
                                  "'ada', min: -100000}");
    bson_free(reply_text("{truceCommit: [{insert: 'accounts', with: {_id: 'c'}}], key: 'l', "
                         "keyTime: 1767225600000}"));
    CHECK_INT(count_in("truce_commits"), ==, 2); /* and the horizon */
    end();
}

/* Replaces each collection alone, after all of the story: none has lost an index. */
static void try_each(const char *name, blow_function *blow)
{
    for (int kind = 0; kind < KINDS; kind++) {
        bson_iter_t at;

        begin((enum kind)kind);
        REQUIRE(bson_iter_init(&at, fresh_left));
        while (bson_iter_next(&at)) {
            char *what = bson_strdup_printf("%s of %s", name, bson_iter_key(&at));

            try_after((enum kind)kind, STEPS, what, bson_iter_key(&at), blow, false);
            bson_free(what);
        }
        end();
    }
}

TEST(has_every_index_after_one_collection_was_dropped)
{
    try_each("drop", drop);
}

TEST(has_every_index_after_one_collection_was_restored)
{
    try_each("restore", restore);
}
