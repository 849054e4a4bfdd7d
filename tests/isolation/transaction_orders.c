/*
 * Transactions (store/overlay) in every order of their steps. Whatever the order, the committed
 * ones must have the reads and the final state of some serial order; the test finds it by running
 * them serially.
 */
#include "store/overlay/transaction_overlay.h"

#include <stdlib.h>

#include "tests/support/test.h"

#define CLIENTS_MAX 3
#define STEPS_MAX   5

struct client;
typedef void step_function(struct client *client);

struct client {
    truce_store *overlay;
    int64_t last[2]; /* its last reads */
    int reads;
    char seen[200]; /* all that it read */
    bool committed, failed, undone;
};

struct scene {
    const char *const *documents;
    step_function *steps[CLIENTS_MAX][STEPS_MAX + 1]; /* NULL: commit */
    int every;                                        /* one of so many orders is run */
};

static truce_store *store;

/* ---- steps ---------------------------------------------------------------------------------- */

static void note(struct client *client, int64_t value)
{
    size_t length = strlen(client->seen);

    client->last[client->reads++ % 2] = value;
    snprintf(client->seen + length, sizeof client->seen - length, " %lld", (long long)value);
}

static void check(struct client *client, truce_status status)
{
    client->failed = client->failed || status;
}

static void read_of(struct client *client, const char *filter)
{
    bson_t *asked = test_bson(filter), document;
    bson_error_t error;
    bson_iter_t value;
    truce_status status = truce_find_one(client->overlay, "x", asked, NULL, &document, &error);

    if (status != TRUCE_NOT_FOUND)
        check(client, status);
    note(client, bson_iter_init_find(&value, &document, "v") ? bson_iter_as_int64(&value) : -1);
    bson_destroy(&document);
    bson_destroy(asked);
}

static void count_of(struct client *client, const char *filter)
{
    bson_t *asked = test_bson(filter);
    bson_error_t error;
    int64_t count;

    check(client, truce_count(client->overlay, "x", asked, NULL, &count, &error));
    note(client, count);
    bson_destroy(asked);
}

static void set_of(struct client *client, const char *filter, int64_t value)
{
    bson_t *asked = test_bson(filter), *update = BCON_NEW("$set", "{", "v", BCON_INT64(value), "}");
    truce_write_result result;
    bson_error_t error;

    check(client, truce_update(client->overlay, "x", asked, update, NULL, &result, &error));
    truce_write_result_release(&result);
    bson_destroy(update);
    bson_destroy(asked);
}

static void insert_of(struct client *client, int32_t id, int64_t value)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id), "v", BCON_INT64(value));
    bson_error_t error;

    check(client, truce_insert(client->overlay, "x", document, NULL, &error));
    bson_destroy(document);
}

static void read_1(struct client *client)
{
    read_of(client, "{'_id': 1}");
}

static void read_2(struct client *client)
{
    read_of(client, "{'_id': 2}");
}

static void raise_1(struct client *client)
{
    set_of(client, "{'_id': 1}", client->last[0] + 1);
}

static void set_1(struct client *client)
{
    set_of(client, "{'_id': 1}", 5);
}

static void set_2(struct client *client)
{
    set_of(client, "{'_id': 2}", 5);
}

static void count_on(struct client *client)
{
    count_of(client, "{'v': 1}");
}

/* At least one of the two has to stay on call. */
static void leave_1(struct client *client)
{
    if (client->last[0] > 1)
        set_of(client, "{'_id': 1}", 0);
}

static void leave_2(struct client *client)
{
    if (client->last[0] > 1)
        set_of(client, "{'_id': 2}", 0);
}

static void count_many(struct client *client)
{
    count_of(client, "{'v': {'$gte': 10}}");
}

static void insert_11(struct client *client)
{
    insert_of(client, 11, 10 + client->last[0]);
}

static void insert_12(struct client *client)
{
    insert_of(client, 12, 10 + client->last[0]);
}

static void best(struct client *client)
{
    bson_t *all = test_bson("{}"), *sort = test_bson("{'v': -1}");
    truce_find_options options = {.sort = sort, .limit = 1};
    bson_iter_t value;
    bson_error_t error;
    bson_t document;

    check(client, truce_find_one(client->overlay, "x", all, &options, &document, &error));
    note(client, bson_iter_init_find(&value, &document, "v") ? bson_iter_as_int64(&value) : -1);
    bson_destroy(&document);
    bson_destroy(sort);
    bson_destroy(all);
}

static void beat_11(struct client *client)
{
    insert_of(client, 11, client->last[0] + 1);
}

static void beat_12(struct client *client)
{
    insert_of(client, 12, client->last[0] + 1);
}

/* 1 is a cheque's account, 2 a savings account: a withdrawal of more than the balance costs a
 * fee (Fekete et al., 2004). */
static void withdraw(struct client *client)
{
    set_of(client, "{'_id': 1}", client->last[0] - 10 - (client->last[0] + client->last[1] < 10));
}

static void deposit(struct client *client)
{
    set_of(client, "{'_id': 2}", client->last[0] + 20);
}

static void fail(struct client *client)
{
    client->failed = client->undone = true;
}

/* ---- running -------------------------------------------------------------------------------- */

static void prepare(const struct scene *scene)
{
    bson_t *all = test_bson("{}");
    const truce_write_options every = {.multi = true};
    truce_write_result result;
    bson_error_t error;

    CHECK_OK(truce_remove(store, "x", all, &every, &result, &error), error);
    truce_write_result_release(&result);
    for (const char *const *at = scene->documents; *at; at++) {
        bson_t *document = test_bson(*at);

        CHECK_OK(truce_insert(store, "x", document, NULL, &error), error);
        bson_destroy(document);
    }
    bson_destroy(all);
}

static void left_in_store(char *text, size_t size)
{
    bson_t *sort = test_bson("{'_id': 1}");
    const truce_find_options options = {.sort = sort};
    const bson_t *document;
    truce_cursor *cursor;
    bson_error_t error;

    text[0] = 0;
    CHECK_OK(truce_find(store, "x", NULL, &options, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &document, &error) && document) {
        char *json = bson_as_relaxed_extended_json(document, NULL);
        size_t length = strlen(text);

        snprintf(text + length, size - length, "%s", json);
        bson_free(json);
    }
    truce_cursor_close(cursor);
    bson_destroy(sort);
}

static bool snapshot_isolation;

static void take_step(const struct scene *scene, struct client *client, int number, int step)
{
    const struct overlay_options options = {.snapshot = snapshot_isolation};
    bson_error_t error;

    if (!step)
        CHECK_OK(truce__overlay_open(store, &options, &client->overlay, &error), error);
    if (!client->overlay)
        return;
    if (scene->steps[number][step])
        scene->steps[number][step](client);
    else if (!client->failed)
        client->committed = !truce__overlay_commit(client->overlay, NULL, 0, NULL, &error);
    if (client->failed || !scene->steps[number][step]) {
        truce_store_close(client->overlay);
        client->overlay = NULL;
    }
}

static int steps_of(const struct scene *scene, int number)
{
    int count = 0;

    while (scene->steps[number][count])
        count++;
    return count ? count + 1 : 0;
}

static void run_alone(const struct scene *scene, struct client *client, int number)
{
    for (int step = 0; step < steps_of(scene, number); step++)
        take_step(scene, client, number, step);
}

/* True if the committed ones, in some serial order, make the same reads and the same final
 * state. */
static bool has_serial_order(const struct scene *scene, const struct client *clients,
                             const char *left)
{
    static const int orders[6][CLIENTS_MAX] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                               {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    bool found = false;

    for (int i = 0; i < 6 && !found; i++) {
        char text[1000];

        prepare(scene);
        found = true;
        for (int j = 0; j < CLIENTS_MAX && found; j++) {
            struct client again = {0};

            if (!clients[orders[i][j]].committed)
                continue;
            run_alone(scene, &again, orders[i][j]);
            found = again.committed && !strcmp(again.seen, clients[orders[i][j]].seen);
        }
        left_in_store(text, sizeof text);
        found = found && !strcmp(text, left);
    }
    return found;
}

struct totals {
    int orders, runs, wrong, refused;
};

/* Runs one order: digits are numbers of clients. */
static void run_order(const struct scene *scene, const char *order, struct totals *totals)
{
    struct client clients[CLIENTS_MAX] = {0};
    int at[CLIENTS_MAX] = {0}, committed = 0, meant = 0;
    char left[1000];

    prepare(scene);
    for (const char *digit = order; *digit; digit++)
        take_step(scene, &clients[*digit - '0'], *digit - '0', at[*digit - '0']++);
    left_in_store(left, sizeof left);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        meant += at[i] > 0 && !clients[i].undone;
        committed += clients[i].committed;
    }
    totals->runs++;
    totals->refused += committed < meant;
    CHECK(committed > 0 || !meant);
    if (has_serial_order(scene, clients, left))
        return;
    totals->wrong++;
    if (!snapshot_isolation)
        test_fail(__FILE__, __LINE__, "the order %s leaves %s, as no serial order does", order,
                  left);
}

static void explore(const struct scene *scene, int *left, char *order, int length,
                    struct totals *totals)
{
    bool all = true;

    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (!left[i])
            continue;
        all = false;
        left[i]--;
        order[length] = (char)('0' + i);
        explore(scene, left, order, length + 1, totals);
        left[i]++;
    }
    order[length] = 0;
    if (all && test_failures() < 3 && totals->orders++ % scene->every == 0)
        run_order(scene, order, totals);
}

static struct totals run(const struct scene *scene)
{
    int left[CLIENTS_MAX];
    char order[CLIENTS_MAX * (STEPS_MAX + 1) + 1];
    struct totals totals = {0};
    bson_error_t error;
    char path[600];

    snprintf(path, sizeof path, "%s/%d.truce", test_directory(), snapshot_isolation);
    if (truce_store_open(path, &(truce_store_options){.relaxed = true}, &store, &error))
        test_fail(__FILE__, __LINE__, "%s", error.message);
    for (int i = 0; i < CLIENTS_MAX; i++)
        left[i] = steps_of(scene, i);
    if (store)
        explore(scene, left, order, 0, &totals);
    truce_store_close(store);
    snapshot_isolation = false;
    return totals;
}

static struct totals run_snapshot(const struct scene *scene)
{
    snapshot_isolation = true;
    return run(scene);
}

/* ---- the scenes ----------------------------------------------------------------------------- */

static const char *const two[] = {"{'_id': 1, 'v': 1}", "{'_id': 2, 'v': 1}", NULL};
static const char *const empty[] = {"{'_id': 1, 'v': 0}", "{'_id': 2, 'v': 0}", NULL};

static const struct scene lost_update = {two, {{read_1, raise_1}, {read_1, raise_1}}, 1};
static const struct scene write_skew = {two, {{count_on, leave_1}, {count_on, leave_2}}, 1};
static const struct scene write_skew_by_id = {
    two, {{read_1, read_2, set_1}, {read_2, read_1, set_2}}, 1};
static const struct scene phantom = {two, {{count_many, insert_11}, {count_many, insert_12}}, 1};
static const struct scene phantom_of_order = {two, {{best, beat_11}, {best, beat_12}}, 1};
static const struct scene dirty_read = {two, {{set_1, set_2, fail}, {read_1, read_2, read_1}}, 1};
static const struct scene torn_read = {two, {{set_1, set_2}, {read_1, read_2, read_1}}, 1};
static struct scene read_only = {
    empty, {{read_1, read_2, withdraw}, {read_2, deposit}, {read_1, read_2}}, 1};
static const struct scene apart = {two, {{read_1, set_1}, {read_2, set_2}}, 1};

TEST(no_update_is_lost)
{
    struct totals totals = run(&lost_update);

    CHECK_INT(20, ==, totals.runs);
    CHECK_INT(18, ==, totals.refused);
    CHECK_INT(0, ==, run_snapshot(&lost_update).wrong);
}

TEST(write_skew_is_refused_and_snapshot_isolation_allows_it)
{
    CHECK_INT(18, ==, run(&write_skew).refused);
    CHECK_INT(70, ==, run(&write_skew_by_id).runs);
    CHECK_INT(18, ==, run_snapshot(&write_skew).wrong);
}

TEST(phantoms_are_refused)
{
    CHECK_INT(18, ==, run(&phantom).refused);
    CHECK_INT(18, ==, run(&phantom_of_order).refused);
    CHECK_INT(18, ==, run_snapshot(&phantom).wrong);
}

TEST(no_client_reads_a_part_of_a_transaction_or_an_aborted_one)
{
    CHECK_INT(0, ==, run(&dirty_read).refused);
    /* it writes nothing: its place in the order is that of its snapshot */
    CHECK_INT(0, ==, run(&torn_read).refused);
    CHECK_INT(0, ==, run_snapshot(&torn_read).wrong);
}

TEST(read_only_transactions_see_a_serial_order)
{
    struct totals totals;

    read_only.every = (int)test_scale("TRUCE_TRANSACTION_EVERY", 7);
    totals = run(&read_only);
    CHECK_INT(4200, ==, totals.orders);
    CHECK(totals.refused > 0);
}

TEST(distant_documents_do_not_conflict)
{
    CHECK_INT(0, ==, run(&apart).refused);
}
