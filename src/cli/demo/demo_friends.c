/*
 * truce demo friends: jobs make two people friends, each in the other's list. The workers are
 * killed with SIGKILL again and again.
 *
 * In the naive code, a worker takes a job, changes one list, then the other, and marks the job as
 * done. If it is killed in between, a friendship with one side and an unfinished job remain. With
 * truce, the two lists and the end of the job are one commit. At the end, the jobs of dead workers
 * are released, the remaining jobs are done, and every friendship is checked from both sides.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "cli/core/worker_pool.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define PEOPLE        60
#define JOBS          1200 /* The number of distinct pairs, up to 29 for each person. */
#define WORKERS       4
#define KILL_EVERY_MS 10
#define LEASE_MS      200

enum way { USUAL, TRUCE, WAYS };
static const char *const way_names[] = {"usual way", "truce"};

struct friends {
    struct cli *cli;
    struct demo_stage stage;
    pid_t children[WORKERS];
    int64_t duration_ms;
};

struct findings {
    /* The number of kills; of friendships with one side, with both, and with none; and of jobs that
     * were done. */
    int64_t kills, one_sided, friendships, missing, done;
};

/* ---- one job --------------------------------------------------------------------------------- */

/* Returns the people of job n. */
static void people_of(int64_t n, int32_t *a, int32_t *b)
{
    *a = (int32_t)(n % PEOPLE);
    *b = (int32_t)((*a + 1 + n / PEOPLE) % PEOPLE);
}

static bson_t *friends_make_update(int32_t other)
{
    return BCON_NEW("$addToSet", "{", "friends", BCON_INT32(other), "}");
}

static truce_status one_side(truce_store *store, int32_t person, int32_t other, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(person)), *update = friends_make_update(other);
    truce_status status = truce_update(store, "people", filter, update, NULL, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

/* Changes the state of a job, of any job if `job` has no _id. `job` becomes the document before the
 * change. */
static truce_status friends_mark(truce_store *store, const char *from, const char *to, bson_t *job,
                                 bson_error_t *error)
{
    bson_t *filter = BCON_NEW("state", BCON_UTF8(from)),
           *update = BCON_NEW("$set", "{", "state", BCON_UTF8(to), "}");
    bson_iter_t iter;
    truce_status status;

    if (bson_iter_init_find(&iter, job, "_id"))
        BSON_APPEND_VALUE(filter, "_id", bson_iter_value(&iter));
    bson_destroy(job);
    status = truce_find_and_modify(store, "jobs", filter, update, NULL, job, NULL, error);
    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

/* Does a job by hand: takes it, writes both sides, and marks it as done. If the process dies in
 * between, the job stays unfinished. */
static truce_status do_usual(truce_store *store, bson_error_t *error)
{
    bson_t job = BSON_INITIALIZER;
    truce_status status = friends_mark(store, "TODO", "PROCESSING", &job, error);
    bson_iter_t iter;
    int32_t a, b;

    if (!status && bson_iter_init_find(&iter, &job, "_id")) {
        people_of(bson_iter_as_int64(&iter), &a, &b);
        status = one_side(store, a, b, error);
        if (!status)
            status = one_side(store, b, a, error);
        if (!status)
            status = friends_mark(store, "PROCESSING", "DONE", &job, error);
    }
    bson_destroy(&job);
    return status;
}

/* Adds both sides of a friendship to the commit that ends the job. */
static truce_status both_sides(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_iter_t iter;
    int32_t pair[2] = {0};
    truce_status status = TRUCE_OK;

    if (bson_iter_init_find(&iter, truce_job_payload(arg), "n"))
        people_of(bson_iter_as_int64(&iter), &pair[0], &pair[1]);
    for (int i = 0; i < 2 && !status; i++) {
        bson_value_t id = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = pair[i]}};
        bson_t *update = friends_make_update(pair[1 - i]);

        status = truce_commit_update(commit, "people", &id, NULL, update, error);
        bson_destroy(update);
    }
    return status;
}

static truce_queue *open_queue(truce_store *store)
{
    return truce_queue_new(store, &(truce_queue_options){.queue = "friends",
                                                         .lease_ms = LEASE_MS,
                                                         .attempts_max = 1000000,
                                                         .backoff_ms = 1,
                                                         .backoff_max_ms = 1});
}

static truce_status do_truce(truce_queue *queue, bson_error_t *error)
{
    truce_job *job;
    truce_status status = truce_queue_claim(queue, &job, error);

    if (!status)
        status = truce_job_commit(job, both_sides, job, NULL, error);
    truce_job_free(job);
    return status == TRUCE_EXPIRED ? TRUCE_OK : status;
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* Works until it is killed. */
_Noreturn static void friends_child(const struct friends *demo, enum way way)
{
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, &error);
    truce_queue *queue = status ? NULL : open_queue(store);

    while (!status || status == TRUCE_NOT_FOUND) {
        if (status)
            truce__clock_sleep_ms(5);
        status = way == USUAL ? do_usual(store, &error) : do_truce(queue, &error);
    }
    fprintf(stderr, "truce: a worker failed: %s\n", error.message);
    (void)queue;
    _exit(1);
}

static void friends_start(struct friends *demo, int slot, enum way way)
{
    demo->children[slot] = pool_fork();
    if (!demo->children[slot])
        friends_child(demo, way);
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* Adds a job for each friendship, by hand or to the queue. */
static truce_status add_jobs(truce_store *store, enum way way, bson_error_t *error)
{
    truce_queue *queue = open_queue(store);
    truce_status status = TRUCE_OK;

    for (int64_t n = 0; n < JOBS && !status; n++) {
        bson_t *job = way == USUAL
                          ? BCON_NEW("_id", BCON_INT64(n), "state", BCON_UTF8("TODO"))
                          : BCON_NEW("command", BCON_UTF8("ADD_FRIEND"), "n", BCON_INT64(n));

        status = way == USUAL ? truce_insert(store, "jobs", job, NULL, error)
                              : truce_queue_add(queue, NULL, job, NULL, NULL, error);
        bson_destroy(job);
    }
    truce_queue_free(queue);
    return status;
}

static truce_status friends_begin(const struct friends *demo, enum way way, bson_error_t *error)
{
    truce_store_options relaxed = {.relaxed = true};
    truce_store *store = NULL;
    truce_status status = truce_store_open(demo->stage.uri, &relaxed, &store, error);

    for (int32_t i = 0; i < PEOPLE && !status; i++) {
        bson_t *person = BCON_NEW("_id", BCON_INT32(i), "friends", "[", "]");

        status = truce_insert(store, "people", person, NULL, error);
        bson_destroy(person);
    }
    if (!status)
        status = add_jobs(store, way, error);
    truce_store_close(store);
    return status;
}

static bool has_friend(truce_store *store, int32_t person, int32_t other)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(person), "friends", BCON_INT32(other));
    int64_t count = 0;
    truce_status status = truce_count(store, "people", filter, NULL, &count, NULL);

    bson_destroy(filter);
    return !status && count == 1;
}

/* Counts the friendships by how many of their sides exist. */
static void friends_check(truce_store *store, struct findings *findings)
{
    findings->one_sided = findings->friendships = findings->missing = 0;
    for (int64_t n = 0; n < JOBS; n++) {
        int32_t a, b;
        bool one, other;

        people_of(n, &a, &b);
        one = has_friend(store, a, b);
        other = has_friend(store, b, a);
        findings->friendships += one && other;
        findings->one_sided += one != other;
        findings->missing += !one && !other;
    }
}

/* Does the remaining jobs. Jobs of dead workers become ready when their leases end. */
static truce_status do_the_rest(truce_store *store, struct findings *findings, bson_error_t *error)
{
    truce_queue *queue = open_queue(store);
    bson_t *done = BCON_NEW("state", BCON_UTF8("done"));
    truce_status status = TRUCE_OK;

    while (!status && findings->done < JOBS) {
        status = do_truce(queue, error);
        if (status != TRUCE_NOT_FOUND)
            continue;
        truce__clock_sleep_ms(10);
        status = truce_count(store, "truce_queue", done, NULL, &findings->done, error);
    }
    bson_destroy(done);
    truce_queue_free(queue);
    return status;
}

/* Counts the friendships. With truce, then does the remaining jobs and counts again. The greater of
 * the two numbers of friendships with one side is reported. */
static truce_status friends_finish(const struct friends *demo, enum way way,
                                   struct findings *findings, bson_error_t *error)
{
    truce_store *store = NULL;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, error);
    int64_t one_sided;

    if (status)
        return status;
    friends_check(store, findings);
    one_sided = findings->one_sided;
    if (way == TRUCE)
        status = do_the_rest(store, findings, error);
    if (way == TRUCE)
        friends_check(store, findings);
    findings->one_sided = one_sided > findings->one_sided ? one_sided : findings->one_sided;
    truce_store_close(store);
    return status;
}

/* Runs one way: kills and replaces its workers for the time of the demo. */
static truce_status friends_play(struct friends *demo, enum way way, struct findings *findings,
                                 bson_error_t *error)
{
    int64_t began_ns;
    struct random random;
    truce_status status;

    status = demo_stage_clear(&demo->stage, error);
    if (!status)
        status = friends_begin(demo, way, error);
    if (status)
        return status;
    truce__random_seed(&random, truce__random_entropy());
    for (int i = 0; i < WORKERS; i++)
        friends_start(demo, i, way);
    began_ns = truce__clock_monotonic_ns();
    while (truce__clock_monotonic_ns() - began_ns < demo->duration_ms * 1000000) {
        int slot = (int)truce__random_below(&random, WORKERS);

        truce__clock_sleep_ms(KILL_EVERY_MS);
        pool_end(&demo->children[slot]);
        friends_start(demo, slot, way);
        findings->kills++;
    }
    for (int i = 0; i < WORKERS; i++)
        pool_end(&demo->children[i]);
    return friends_finish(demo, way, findings, error);
}

static bool friends_right(const struct findings *findings)
{
    return !findings->one_sided && findings->friendships == JOBS;
}

static void friends_print(const struct cli *cli, const struct findings *findings)
{
    bson_t answer = BSON_INITIALIZER, part;

    BSON_APPEND_UTF8(&answer, "story", "friends");
    for (enum way way = USUAL; way < WAYS; way++) {
        bson_append_document_begin(&answer, way_names[way], -1, &part);
        BSON_APPEND_INT64(&part, "killed", findings[way].kills);
        BSON_APPEND_INT64(&part, "one sided", findings[way].one_sided);
        BSON_APPEND_INT64(&part, "friendships", findings[way].friendships);
        BSON_APPEND_INT64(&part, "not made", findings[way].missing);
        bson_append_document_end(&answer, &part);
    }
    cli_answer(cli, &answer,
               "friends      %d jobs each make two people friends; %d workers, %" PRId64 " kills\n"
               "             usual way      %" PRId64 " friendships with one side, %" PRId64
               " not made\n"
               "             truce          %" PRId64 " friendships with one side, %" PRId64
               " not made; all jobs are done: %s",
               JOBS, WORKERS, findings[USUAL].kills + findings[TRUCE].kills,
               findings[USUAL].one_sided, findings[USUAL].missing, findings[TRUCE].one_sided,
               findings[TRUCE].missing, friends_right(&findings[TRUCE]) ? "right" : "wrong");
    bson_destroy(&answer);
}

int demo_friends(struct cli *cli)
{
    struct friends demo = {.cli = cli};
    struct findings findings[WAYS] = {{0}};
    truce_status status = TRUCE_OK;
    bson_error_t error;
    int code;

    if (!cli_duration(cli, "duration", 100, 600000, 3000, &demo.duration_ms))
        return CLI_USAGE;
    code = demo_stage_begin(&demo.stage, cli, "friends", NULL);
    if (code)
        return code;
    for (enum way way = USUAL; way < WAYS && !status; way++)
        status = friends_play(&demo, way, &findings[way], &error);
    demo_stage_end(&demo.stage);
    if (status)
        return cli_error(cli, "friends", status, &error);
    friends_print(cli, findings);
    return cli_output_end(friends_right(&findings[TRUCE]) ? CLI_DONE : CLI_NO);
}
