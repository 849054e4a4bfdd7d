/*
 * A job queue on a server of MongoDB's protocol, as one would write it without truce:
 *
 *     {_id: ObjectId, state: "ready", priority: 0, attempt: 0, created: date, payload: {...}}
 *
 *     claim   findAndModify {state: "ready"}, sort {priority: 1, _id: 1}, along an index
 *             {$set: {state: "running", lease: date}, $inc: {attempt: 1}}
 *     done    update {_id, state: "running", attempt}: {$set: {state: "done"}, $unset: {lease: ""}}
 */
#include <string.h>
#include <time.h>

#include "bench/mongo.h"
#include "bench/workloads/jobs.h"

#define LEASE_MS 30000

void jobs_mongo_setup(struct bench_side *side)
{
    bson_t reply, *command = BCON_NEW("createIndexes", "jobs", "indexes", "[", "{", "key", "{",
                                      "state", BCON_INT32(1), "priority", BCON_INT32(1), "_id",
                                      BCON_INT32(1), "}", "name", "ready", "}", "]");

    mongo_command(side->connections[0], command, &reply);
    bson_destroy(&reply);
    bson_destroy(command);
}

static int64_t mongo_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bson_t *mongo_make_job(void)
{
    bson_oid_t id;

    bson_oid_init(&id, NULL);
    return BCON_NEW("_id", BCON_OID(&id), "state", "ready", "priority", BCON_INT32(0), "attempt",
                    BCON_INT32(0), "created", BCON_DATE_TIME(mongo_now_ms()), "payload", "{", "to",
                    "ada@example.org", "text", "hello, and welcome", "}");
}

static void mongo_add_batch(void *mongo)
{
    bson_t *jobs[JOBS_BATCH];

    for (int i = 0; i < JOBS_BATCH; i++)
        jobs[i] = mongo_make_job();
    mongo_insert_many(mongo, "jobs", (const bson_t *const *)jobs, JOBS_BATCH);
    for (int i = 0; i < JOBS_BATCH; i++)
        bson_destroy(jobs[i]);
}

/* Claims a job, and returns its {_id, state: "running", attempt}. Returns false if no job is
 * ready. */
static bool mongo_claim_once(struct mongo *mongo, bson_t *running)
{
    bson_t reply,
        *command =
            BCON_NEW("findAndModify", "jobs", "query", "{", "state", "ready", "}", "sort", "{",
                     "priority", BCON_INT32(1), "_id", BCON_INT32(1), "}", "update", "{", "$set",
                     "{", "state", "running", "lease", BCON_DATE_TIME(mongo_now_ms() + LEASE_MS),
                     "}", "$inc", "{", "attempt", BCON_INT32(1), "}", "}", "new", BCON_BOOL(true),
                     "writeConcern", "{", "w", "majority", "j", BCON_BOOL(true), "}");
    bson_iter_t value, id, attempt;
    bool found;

    mongo_command(mongo, command, &reply);
    bson_destroy(command);
    found = bson_iter_init_find(&value, &reply, "value") && BSON_ITER_HOLDS_DOCUMENT(&value);
    if (found) {
        BENCH_CHECK(bson_iter_recurse(&value, &id) && bson_iter_find(&id, "_id"));
        BENCH_CHECK(bson_iter_recurse(&value, &attempt) && bson_iter_find(&attempt, "attempt"));
        bson_init(running);
        BSON_APPEND_OID(running, "_id", bson_iter_oid(&id));
        BSON_APPEND_UTF8(running, "state", "running");
        BSON_APPEND_INT32(running, "attempt", bson_iter_int32(&attempt));
    }
    bson_destroy(&reply);
    return found;
}

static void mongo_claim(struct mongo *mongo, bson_t *running)
{
    unsigned seen = jobs_refilled();

    while (!mongo_claim_once(mongo, running)) {
        jobs_refill_after(seen, mongo_add_batch, mongo);
        seen = jobs_refilled();
    }
}

int64_t jobs_mongo_done(struct bench_call *call)
{
    bson_t running,
        *update = BCON_NEW("$set", "{", "state", "done", "}", "$unset", "{", "lease", "", "}");

    mongo_claim(call->connection, &running);
    BENCH_CHECK(mongo_update(call->connection, "jobs", &running, update, NULL) == 1);
    bson_destroy(&running);
    bson_destroy(update);
    return 1;
}

void jobs_mongo_check(struct bench_side *side)
{
    bson_t *done = BCON_NEW("state", "done");
    mongoc_cursor_t *cursor = mongo_find(side->connections[0], "jobs", done);
    int64_t count = 0;

    while (mongo_next(cursor))
        count++;
    BENCH_CHECK(count == side->operations);
    mongoc_cursor_destroy(cursor);
    bson_destroy(done);
}
