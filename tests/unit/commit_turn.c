/*
 * The wait queue of a document that many commits change. Reads and writes may happen before a sync,
 * but no call returns a change before it is on the disk.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "commit/commit_entry.h"
#include "commit/metadata_cache.h"
#include "commit/per_key_lock.h"
#include "tests/support/bank.h"
#include "tests/support/hooked.h"

/* ---- locks ----------------------------------------------------------------------------------- */

struct line {
    struct key_locks *locks;
    atomic_int inside, most, held, left;
};

static void *stand_in_line(void *arg)
{
    struct line *line = arg;

    for (int i = 0; i < 200; i++) {
        struct key_lock lock = {0};

        truce__key_lock_acquire(&lock, line->locks, 7, INT64_MAX);
        if (lock.held) {
            int inside = atomic_fetch_add(&line->inside, 1) + 1;

            if (inside > atomic_load(&line->most))
                atomic_store(&line->most, inside);
            atomic_fetch_add(&line->held, 1);
            atomic_fetch_sub(&line->inside, 1);
        }
        truce__key_lock_release(&lock);
        truce__key_lock_release(&lock);
    }
    return NULL;
}

TEST(passes_the_document_to_one_commit_at_a_time)
{
    struct line line = {.locks = truce__key_locks_new()};
    pthread_t threads[8];

    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, stand_in_line, &line);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(line.most, ==, 1);
    CHECK(line.held > 0);
    CHECK(!truce__key_lock_busy(line.locks, 7));
    truce__key_locks_free(line.locks);
}

static void *come_too_late(void *arg)
{
    struct line *line = arg;

    for (int i = 0; i < 3; i++) {
        struct key_lock lock = {0};

        truce__key_lock_acquire(&lock, line->locks, 7, 0);
        CHECK(!lock.held);
        truce__key_lock_acquire(&lock, line->locks, 8, 0);
        CHECK(lock.held);
        truce__key_lock_release(&lock);
    }
    return NULL;
}

static void *come_in_time(void *arg)
{
    struct line *line = arg;
    struct key_lock lock = {0};

    for (int i = 0; !lock.held && i < 1000; i++)
        truce__key_lock_acquire(&lock, line->locks, 7, INT64_MAX);
    atomic_store(&line->held, lock.held);
    truce__key_lock_release(&lock);
    return NULL;
}

TEST(leaves_the_queue_at_the_deadline_and_passes_the_document_on)
{
    struct line line = {.locks = truce__key_locks_new()};
    struct key_lock lock = {0}, second = {0};
    pthread_t late, next;

    truce__key_lock_acquire(&lock, line.locks, 7, INT64_MAX);
    CHECK(lock.held);
    CHECK(truce__key_lock_busy(line.locks, 7));
    truce__key_lock_acquire(&second, line.locks, 9, INT64_MAX);
    CHECK(!second.held); /* one for each thread */
    pthread_create(&late, NULL, come_too_late, &line);
    pthread_join(late, NULL);
    CHECK(truce__key_lock_busy(line.locks, 7));
    pthread_create(&next, NULL, come_in_time, &line);
    truce__clock_sleep_ms(2);
    truce__key_lock_release(&lock);
    pthread_join(next, NULL);
    CHECK_INT(line.held, ==, 1);
    CHECK(!truce__key_lock_busy(line.locks, 7));
    truce__key_locks_free(line.locks);
}

/* ---- marks that are left to the next holder -------------------------------------------------- */

static void *take_what_is_left(void *arg)
{
    struct line *line = arg;
    struct key_lock lock = {0};

    for (int i = 0; !lock.held && i < 1000; i++)
        truce__key_lock_acquire(&lock, line->locks, 7, INT64_MAX);
    CHECK(lock.owes);
    CHECK(!truce__key_lock_leave(&lock, &lock.left)); /* it owes one itself */
    atomic_store(&line->left, lock.left.bytes[0]);
    lock.owes = false;
    CHECK(!truce__key_lock_leave(&lock, &lock.left)); /* no commit waits */
    CHECK(lock.held);
    truce__key_lock_release(&lock);
    truce__key_lock_acquire(&lock, line->locks, 7, INT64_MAX);
    CHECK(lock.held && !lock.owes);
    truce__key_lock_release(&lock);
    return NULL;
}

TEST(leaves_an_id_only_to_a_commit_that_waits)
{
    struct line line = {.locks = truce__key_locks_new()};
    struct key_lock lock = {0};
    bson_oid_t id = {{77}};
    pthread_t next;

    CHECK(!truce__key_lock_leave(&lock, &id));
    truce__key_lock_acquire(&lock, line.locks, 7, INT64_MAX);
    CHECK(!truce__key_lock_leave(&lock, &id));
    pthread_create(&next, NULL, take_what_is_left, &line);
    while (!truce__key_lock_leave(&lock, &id))
        truce__clock_sleep_ms(1);
    CHECK(!lock.held);
    pthread_join(next, NULL);
    CHECK_INT(line.left, ==, 77);
    CHECK(!truce__key_lock_busy(line.locks, 7));
    truce__key_locks_free(line.locks);
}

/* ---- many threads, in any order, and one commit in another ----------------------------------- */

#define THREADS 6
#define ROUNDS  20

struct many {
    truce_store *store;
    const char *ids[3];
    bool nested;
};

static truce_status add_one(truce_commit *commit, const char *name, bson_error_t *error)
{
    bson_value_t id = text_id(name);
    bson_iter_t iter;
    bson_t document;
    truce_status status = truce_commit_read(commit, "accounts", &id, &document, error);
    int64_t n = 0;
    char json[60];

    if (!status && bson_iter_init_find(&iter, &document, "n"))
        n = bson_iter_as_int64(&iter);
    bson_destroy(&document);
    snprintf(json, sizeof json, "{'$set': {'n': %d}}", (int)n + 1);
    return status ? status : add_update(commit, "accounts", name, NULL, json, error);
}

static truce_status add_nested(truce_commit *commit, void *arg, bson_error_t *error)
{
    return add_one(commit, arg, error);
}

static truce_status add_to_all(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct many *many = arg;
    truce_commit_options options = {.tries_max = 100000};
    truce_status status = TRUCE_OK;

    for (int i = 0; i < 3 && !status; i++)
        if (many->ids[i])
            status = add_one(commit, many->ids[i], error);
    if (!status && many->nested) /* of another document, because a repeated run does not undo it */
        status = truce_transact(many->store, add_nested, (char *)"other", &options, error);
    return status;
}

static void *commit_often(void *arg)
{
    truce_commit_options options = {.tries_max = 100000, .deadline_ms = 600000};
    bson_error_t error = {0};

    for (int i = 0; i < ROUNDS; i++)
        CHECK_OK(truce_transact(((struct many *)arg)->store, add_to_all, arg, &options, &error),
                 error);
    return NULL;
}

static void in_any_order(truce_store *store, const struct setting *setting)
{
    static const char *const orders[THREADS][3] = {{"a"},           {"b", "a"}, {"a", "b"},
                                                   {"c", "b", "a"}, {"a", "c"}, {"b"}};
    struct many many[THREADS];
    pthread_t threads[THREADS];

    (void)setting;
    insert_json(store, "accounts", "{'_id': 'a', 'n': 0}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 0}");
    insert_json(store, "accounts", "{'_id': 'c', 'n': 0}");
    insert_json(store, "accounts", "{'_id': 'other', 'n': 0}");
    for (int i = 0; i < THREADS; i++) {
        many[i] = (struct many){.store = store, .nested = i == 1 || i == 5};
        memcpy(many[i].ids, orders[i], sizeof many[i].ids);
        pthread_create(&threads[i], NULL, commit_often, &many[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'a', 'n': 100}"), ==, 1);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'b', 'n': 80}"), ==, 1);
    CHECK_INT(count_json(store, "accounts", "{'_id': 'c', 'n': 40}"), ==, 1);
}

TEST(every_commit_counts_once_in_whatever_order_its_documents_are_read)
{
    truce_store *store = open_setting(&settings[3]);

    in_any_order(store, &settings[3]);
    truce_store_close(store);
}

/* ---- the mark of the previous commit --------------------------------------------------------- */

static void nothing_first(truce_store *store)
{
    (void)store;
}

/* The next holder of the lock of "a": a commit of a thread of its own. */
struct heir {
    truce_store *store;
    truce_status answer, status;
};

static atomic_int pairs;    /* calls with a decision and the mark of another commit */
static struct heir *second; /* begins before the first such call; NULL: none does */
static pthread_t second_thread;
static bool second_began;

static void *commit_as_heir(void *arg);

static truce_status count_pairs(truce_store *store, const truce_write *all, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    if (count == 2 && !strcmp(all[0].collection, "truce_commits") && !atomic_fetch_add(&pairs, 1) &&
        second) {
        second_began = true;
        pthread_create(&second_thread, NULL, commit_as_heir, second);
        truce__clock_sleep_ms(COMMIT_LOCK_WAIT_MS / 4); /* It waits for the lock then, usually. */
    }
    return plain_ops->bulk(store, all, count, options, outcomes, error);
}

static truce_status change_two(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct heir *heir = arg;
    truce_status status = add_one(commit, "a", error);

    if (!status)
        status = add_one(commit, "b", error);
    return status ? status : heir->answer;
}

static void *commit_as_heir(void *arg)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    struct heir *heir = arg;
    bson_error_t error;

    heir->status = truce_transact(heir->store, change_two, heir, &options, &error);
    return NULL;
}

/* Leaves the mark of a commit to one that then answers like this. With `chain`, another commit
 * begins before its decision. Returns how many decisions were sent with a mark. */
static int inherit(truce_status answer, bool chain)
{
    truce_store *store = open_setting(&settings[3]);
    struct heir heir = {.store = store, .answer = answer}, other = heir;
    bson_value_t id = text_id("a");
    struct entry *entry = truce__entry_new("accounts", &id);
    struct key_lock lock = {0};
    bson_oid_t left;
    char json[80], hex[25];
    pthread_t thread;
    bool passed = false;

    bson_oid_init(&left, NULL);
    bson_oid_to_string(&left, hex);
    snprintf(json, sizeof json, "{'_id': {'$oid': '%s'}, 'state': 'committed'}", hex);
    insert_json(store, "truce_commits", json);
    insert_json(store, "accounts", "{'_id': 'a', 'n': 0}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 0}");
    hooked_make(store, nothing_first);
    hooked_ops.bulk = count_pairs;
    store->ops = &hooked_ops;
    pairs = 0;
    second = chain ? &other : NULL;
    second_began = false;
    for (int i = 0; !passed && i < 100; i++) { /* The commit waits for a short time only (CP2). */
        truce__key_lock_acquire(&lock, truce__metadata_key_locks(store),
                                truce__key_lock_stripe(entry), INT64_MAX);
        CHECK(lock.held);
        pthread_create(&thread, NULL, commit_as_heir, &heir);
        for (int ms = 0; !passed && ms < 2 * COMMIT_LOCK_WAIT_MS; ms++) {
            passed = truce__key_lock_leave(&lock, &left);
            if (!passed)
                truce__clock_sleep_ms(1);
        }
        if (!passed)
            truce__key_lock_release(&lock);
        pthread_join(thread, NULL);
        CHECK_INT(heir.status, ==, answer);
    }
    if (second_began)
        pthread_join(second_thread, NULL);
    CHECK_INT(other.status, ==, TRUCE_OK);
    store->ops = plain_ops;
    CHECK(passed);
    CHECK_INT(count_json(store, "truce_commits", "{'state': {'$in': ['pending', 'committed']}}"),
              ==, 0);
    truce__entry_free(entry);
    truce_store_close(store);
    return pairs;
}

TEST(the_next_holder_of_the_lock_marks_the_commit_done)
{
    CHECK_INT(inherit(TRUCE_OK, false), ==, 1);
    CHECK_INT(inherit(TRUCE_REFUSED, false), ==, 0);
}

TEST(a_commit_leaves_its_mark_to_one_that_waits)
{
    int sent = 0;

    for (int i = 0; i < 50 && sent < 2; i++)
        sent = inherit(TRUCE_OK, true);
    CHECK_INT(sent, ==, 2);
}

/* ---- the disk -------------------------------------------------------------------------------- */

static const truce_store_ops *inner;
static int settled, early_writes, writes, early_looks;
static truce_status settle_answer;

static truce_status count_settle(truce_store *store, bson_error_t *error)
{
    settled++;
    if (settle_answer)
        return truce__fail(settle_answer, error, "the disk");
    return inner->settle(store, error);
}

static truce_status count_bulk(truce_store *store, const truce_write *all, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error)
{
    writes++;
    early_writes += options->early;
    return inner->bulk(store, all, count, options, outcomes, error);
}

static truce_status count_find(truce_store *store, const char *collection, const bson_t *filter,
                               const truce_find_options *options, truce_cursor **cursor,
                               bson_error_t *error)
{
    early_looks += options->early;
    return inner->find(store, collection, filter, options, cursor, error);
}

enum deed { LOOK, CHANGE, REFUSE, LOSE };

struct story {
    truce_store *store;
    enum deed deed;
    int run;
};

static truce_status act(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct story *story = arg;
    bson_value_t id = text_id("a");
    truce_status status;
    bson_t document;

    story->run++;
    if (story->deed == CHANGE || story->deed == LOSE)
        status = add_one(commit, "a", error);
    else {
        status = truce_commit_read(commit, "accounts", &id, &document, error);
        bson_destroy(&document);
    }
    if (story->deed == LOSE && story->run == 1) {
        bson_t *filter = test_bson("{'_id': 'a'}"), *update = test_bson("{'$inc': {'n': 10}}");

        CHECK_INT(inner->bulk(story->store,
                              &(truce_write){.kind = TRUCE_WRITE_UPDATE,
                                             .collection = "accounts",
                                             .filter = filter,
                                             .document = update},
                              1, &(truce_bulk_options){0}, &(truce_write_outcome){0}, error),
                  ==, TRUCE_OK);
        bson_destroy(filter);
        bson_destroy(update);
    }
    return status || story->deed != REFUSE ? status : TRUCE_REFUSED;
}

static truce_status tell(enum deed deed, bool relaxed, truce_status disk, int *runs)
{
    truce_store *store = open_setting(&settings[3]);
    truce_commit_options options = {.relaxed = relaxed};
    struct story story = {store, deed, 0};
    truce_store_ops ops = *store->ops;
    bson_error_t error = {0};
    truce_status status;

    insert_json(store, "accounts", "{'_id': 'a', 'n': 0}");
    inner = store->ops;
    ops.settle = count_settle;
    ops.bulk = count_bulk;
    ops.find = count_find;
    store->ops = &ops;
    settled = early_writes = writes = early_looks = 0;
    settle_answer = disk;
    status = truce_transact(store, act, &story, &options, &error);
    *runs = story.run;
    store->ops = inner;
    if (deed == LOSE)
        CHECK_INT(count_json(store, "accounts", "{'n': 11}"), ==, 1);
    truce_store_close(store);
    return status;
}

TEST(returns_no_change_before_it_is_durable)
{
    int runs;

    CHECK_INT(tell(LOOK, false, TRUCE_OK, &runs), ==, TRUCE_OK);
    CHECK_INT(settled, ==, 1);
    CHECK_INT(early_looks, ==, 1);
    CHECK_INT(tell(REFUSE, false, TRUCE_OK, &runs), ==, TRUCE_REFUSED);
    CHECK_INT(settled, ==, 1);
    CHECK_INT(tell(REFUSE, false, TRUCE_IO, &runs), ==, TRUCE_IO);
    CHECK_INT(tell(CHANGE, false, TRUCE_OK, &runs), ==, TRUCE_OK);
    CHECK_INT(settled, ==, 0); /* its write has waited */
    CHECK_INT(writes, ==, 1);
    CHECK_INT(early_writes, ==, 0);
}

TEST(retries_a_lost_commit_early_and_waits_for_the_disk)
{
    int runs;

    CHECK_INT(tell(LOSE, false, TRUCE_OK, &runs), ==, TRUCE_OK);
    CHECK_INT(runs, ==, 2);
    CHECK_INT(early_writes, ==, 1);
    CHECK_INT(settled, ==, 1);
    CHECK_INT(tell(LOSE, false, TRUCE_IO, &runs), ==, TRUCE_IO);
}

TEST(shows_only_durable_changes_without_a_sync)
{
    int runs;

    CHECK_INT(tell(LOOK, true, TRUCE_OK, &runs), ==, TRUCE_OK);
    CHECK_INT(early_looks, ==, 0);
    CHECK_INT(settled, ==, 0);
    CHECK_INT(tell(LOSE, true, TRUCE_OK, &runs), ==, TRUCE_OK);
    CHECK_INT(early_writes, ==, 0);
}
