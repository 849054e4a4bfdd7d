/*
 * A job queue: one job more; a job is claimed and done; a job is claimed, and done in one commit
 * with a change of a document. A caller that finds no job adds a batch of them, which is a part of
 * the work; one caller at a time adds, and the others find these jobs.
 *
 *     truce        truce_queue_add; truce_queue_claim with truce_job_done, or truce_job_commit
 *     postgresql   INSERT; UPDATE of the first that is ready, by SELECT FOR UPDATE SKIP LOCKED,
 *                  along a partial index, with UPDATE to done; or BEGIN, the document, done,
 *                  COMMIT, in one round trip. Claims are commits of synchronous_commit = off, since
 *                  a claim may be lost there as here
 *     mongodb      findAndModify of the first that is ready, along an index, then an update to done
 *                  (jobs_mongo.c)
 */
#include <pthread.h>

#include "bench/documents.h"
#include "bench/sql.h"
#include "bench/workloads/jobs.h"

/* If several callers find no job, one adds some, and the others look again. Otherwise the figure
 * would measure many callers that fill the queue at the same time. */
static pthread_mutex_t refill = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint refilled;

unsigned jobs_refilled(void)
{
    return atomic_load(&refilled);
}

void jobs_refill_after(unsigned seen, void (*add)(void *to), void *to)
{
    pthread_mutex_lock(&refill);
    if (atomic_load(&refilled) == seen) {
        add(to);
        atomic_fetch_add(&refilled, 1);
    }
    pthread_mutex_unlock(&refill);
}

/* ---- truce ----------------------------------------------------------------------------------- */

static void jobs_join(struct bench_side *side)
{
    const truce_queue_options options = {.queue = "jobs", .keep_ms = -1};

    side->local = truce_queue_new(side->connections[0], &options);
}

static bson_t *jobs_payload(void)
{
    return BCON_NEW("to", "ada@example.org", "text", "hello, and welcome");
}

static int64_t add_truce(struct bench_call *call)
{
    bson_t *document = jobs_payload();
    bson_error_t error;

    BENCH_MUST(truce_queue_add(call->side->local, NULL, document, NULL, NULL, &error), error);
    bson_destroy(document);
    return 1;
}

static void jobs_add_batch(void *queue)
{
    const bson_t *all[JOBS_BATCH];
    bson_t *document = jobs_payload();
    bson_error_t error;

    for (int i = 0; i < JOBS_BATCH; i++)
        all[i] = document;
    BENCH_MUST(truce_queue_add_many(queue, all, JOBS_BATCH, NULL, NULL, &error), error);
    bson_destroy(document);
}

static truce_job *jobs_claim(struct bench_call *call)
{
    truce_job *job = NULL;
    bson_error_t error;
    unsigned seen = jobs_refilled();
    truce_status status;

    while ((status = truce_queue_claim(call->side->local, &job, &error)) == TRUCE_NOT_FOUND) {
        jobs_refill_after(seen, jobs_add_batch, call->side->local);
        seen = jobs_refilled();
    }
    BENCH_MUST(status, error);
    return job;
}

static int64_t done_truce(struct bench_call *call)
{
    truce_job *job = jobs_claim(call);
    bson_error_t error;

    BENCH_MUST(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    return 1;
}

static truce_status jobs_count_up(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t id = document_id(*(const int64_t *)arg);
    bson_t *update = BCON_NEW("$inc", "{", "counter", BCON_INT64(1), "}");
    truce_status status = truce_commit_update(commit, "documents", &id, NULL, update, error);

    bson_destroy(update);
    return status;
}

static int64_t commit_truce(struct bench_call *call)
{
    const truce_commit_options options = {.tries_max = 100000};
    int64_t id = (int64_t)bench_random(DOCUMENTS);
    truce_job *job = jobs_claim(call);
    bson_error_t error;

    BENCH_MUST(truce_job_commit(job, jobs_count_up, &id, &options, &error), error);
    truce_job_free(job);
    return 1;
}

static void jobs_check_truce(struct bench_side *side)
{
    bool adds = side->form->operate == add_truce;
    bson_t *filter = adds ? bson_new() : BCON_NEW("state", "done");
    bson_error_t error;
    int64_t count;

    BENCH_MUST(truce_count(side->connections[0], "truce_queue", filter, NULL, &count, &error),
               error);
    bson_destroy(filter);
    BENCH_CHECK(count == side->operations);
}

static void check_truce_commit(struct bench_side *side)
{
    jobs_check_truce(side);
    documents_check(side);
}

/* ---- postgresql ------------------------------------------------------------------------------ */

static void jobs_setup_sql(struct bench_side *side)
{
    struct sql *sql = side->connections[0];

    sql_execute(sql,
                "CREATE TABLE jobs(id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'ready',"
                " priority int NOT NULL DEFAULT 0, attempt int NOT NULL DEFAULT 0,"
                " created timestamptz NOT NULL DEFAULT now(), lease timestamptz,"
                " payload jsonb NOT NULL)");
    sql_execute(sql, "CREATE INDEX ready ON jobs(priority, id) WHERE state = 'ready'");
}

static void setup_sql_commit(struct bench_side *side)
{
    documents_setup(side);
    jobs_setup_sql(side);
}

static int64_t add_sql(struct bench_call *call)
{
    BENCH_CHECK(
        sql_run(call->connection,
                SQL("INSERT INTO jobs(payload) VALUES ($1::jsonb)",
                    TEXT("{\"to\": \"ada@example.org\", \"text\": \"hello, and welcome\"}"))) == 1);
    return 1;
}

static int64_t jobs_claim_once(struct sql *sql)
{
    const struct sql_statement all[] = {
        SQL("BEGIN"), SQL("SET LOCAL synchronous_commit = off"),
        SQL("UPDATE jobs SET state = 'running', attempt = attempt + 1,"
            " lease = now() + interval '30 s' WHERE id = (SELECT id FROM jobs"
            " WHERE state = 'ready' ORDER BY priority, id LIMIT 1 FOR UPDATE SKIP LOCKED)"
            " RETURNING id")};
    int64_t id;

    sql_start_all(sql, all, 3);
    id = sql_next(sql) ? sql_number(sql, 0) : 0;
    sql_finish(sql);
    sql_run(sql, SQL("COMMIT"));
    return id;
}

static void add_batch_sql(void *sql)
{
    sql_run(sql, SQL("INSERT INTO jobs(payload) SELECT '{\"to\": \"ada@example.org\","
                     " \"text\": \"hello, and welcome\"}' FROM generate_series(1, 1000)"));
}

static int64_t claim_sql(struct sql *sql)
{
    unsigned seen = jobs_refilled();
    int64_t id;

    while (!(id = jobs_claim_once(sql))) {
        jobs_refill_after(seen, add_batch_sql, sql);
        seen = jobs_refilled();
    }
    return id;
}

#define DONE "UPDATE jobs SET state = 'done', lease = NULL WHERE id = $1 AND state = 'running'"

static int64_t done_sql(struct bench_call *call)
{
    int64_t id = claim_sql(call->connection);

    BENCH_CHECK(sql_run(call->connection, SQL(DONE, NUMBER(id))) == 1);
    return 1;
}

static int64_t commit_sql(struct bench_call *call)
{
    int64_t id = claim_sql(call->connection);
    const struct sql_statement all[] = {
        SQL("BEGIN"),
        SQL("UPDATE documents SET counter = counter + 1 WHERE id = $1",
            NUMBER((int64_t)bench_random(DOCUMENTS))),
        SQL(DONE, NUMBER(id)), SQL("COMMIT")};

    sql_start_all(call->connection, all, 4);
    sql_finish(call->connection);
    return 1;
}

static void jobs_check_sql(struct bench_side *side)
{
    int64_t count =
        side->form->operate == add_sql
            ? sql_get(side->connections[0], SQL("SELECT count(*) FROM jobs"))
            : sql_get(side->connections[0], SQL("SELECT count(*) FROM jobs WHERE state = 'done'"));

    BENCH_CHECK(count == side->operations);
}

static void check_sql_commit(struct bench_side *side)
{
    jobs_check_sql(side);
    documents_check(side);
}

static void setup_nothing(struct bench_side *side)
{
}

const struct bench_workload workload_job_add = {
    .name = "job_add",
    .title = "a job is added to a queue",
    .unit = "jobs",
    .aim = 1.5,
    .forms = {
        {"truce", NULL, setup_nothing, add_truce, jobs_check_truce, NULL, jobs_join},
        {"postgresql", NULL, jobs_setup_sql, add_sql, jobs_check_sql},
    }};

const struct bench_workload workload_job_done = {
    .name = "job_done",
    .title = "a job is claimed, and done",
    .unit = "jobs",
    .aim = 3,
    .aim_serve = 9000,
    .forms = {
        {"truce", NULL, setup_nothing, done_truce, jobs_check_truce, NULL, jobs_join},
        {"postgresql", NULL, jobs_setup_sql, done_sql, jobs_check_sql},
        {"mongodb", NULL, jobs_mongo_setup, jobs_mongo_done, jobs_mongo_check},
    }};

const struct bench_workload workload_job_commit = {
    .name = "job_commit",
    .title = "a job is claimed, and done in one commit with a change of a document",
    .unit = "jobs",
    .changes = 1,
    .aim = 2,
    .forms = {
        {"truce", NULL, documents_setup, commit_truce, check_truce_commit, NULL, jobs_join},
        {"postgresql", NULL, setup_sql_commit, commit_sql, check_sql_commit},
    }};
