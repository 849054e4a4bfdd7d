/* The queue operations other than jobs: cron, limits, workflows, batches, steps, sleeps, and
 * events. */
#include "base/field.h"
#include "server/commands.h"
#include "tests/support/served_claim.h"

#define ID(n) "{$oid: '00000000000000000000000" #n "'}"

TEST(a_cron_line_is_set_listed_paused_and_removed)
{
    static const struct step steps[] = {
        {"{truceCronSet: 'nightly', line: '0 3 * * *', payload: {}}", 40414},
        {"{truceCronSet: 'nightly', queue: 'reports', payload: {}}", 40414},
        {"{truceCronSet: 'nightly', queue: 'reports', line: '0 3 * *', payload: {}}", 2, "status",
         "\"invalid\""},
        {"{truceCronSet: 'nightly', queue: 'reports', line: '@daily', payload: {}, zone: 'Nowhere'}",
         2},
        {"{truceCronSet: 'nightly', queue: 'reports', line: '@daily', payload: {}, missed: 'some'}",
         2},
        {"{truceCronSet: 'nightly', queue: 'reports', line: '@daily', payload: {}, most: 501}", 2},
        {"{truceCronSet: 7, queue: 'reports', line: '@daily', payload: {}}", 14},
        {"{truceCrons: 1}", 0, "crons", "[]"},
        {"{truceCronSet: 'nightly', queue: 'reports', line: '0 3 1 1 *', payload: {r: 1}, missed: 'all', most: 7,"
         " priority: 5, tags: ['t']}",
         0, "status", "\"ok\""},
        {"{truceCronSet: 'yearly', queue: 'reports', line: '@yearly', payload: {r: 2}}", 0},
        {"{truceCrons: 1, limit: 1}", 0, "crons.0._id", "\"nightly\""},
        {"{truceCrons: 1, limit: 1}", 0, "more", "true"},
        {"{truceCrons: 1, after: 'nightly'}", 0, "crons.0._id", "\"yearly\""},
        {"{truceCrons: 1, after: 'nightly'}", 0, "more", "false"},
        {"{truceCrons: 1}", 0, "crons.0.job.payload", "{\"r\": 1}"},
        {"{truceCrons: 1, $db: 'school'}", 0, "crons", "[]"},
        {"{truceCron: 'nightly', action: 'stop'}", 2},
        {"{truceCron: 'nightly', action: 'pause'}", 0, "status", "\"ok\""},
        {"{truceCrons: 1}", 0, "crons.0.paused", "true"},
        {"{truceCronSet: 'nightly', queue: 'reports', line: '0 3 1 1 *', payload: {r: 1}}", 0,
         "paused", "true"},
        {"{truceCron: 'nightly', action: 'resume'}", 0, "status", "\"ok\""},
        {"{truceCron: 'nightly', action: 'remove'}", 0, "status", "\"ok\""},
        {"{truceCron: 'nightly', action: 'remove'}", 125, "status", "\"not found\""},
        {"{truceCron: 'yearly', action: 'pause', $db: 'school'}", 125, "status", "\"not found\""},
        {"{truceCronNext: '30 2 * * *', afterMS: 1767225600000, limit: 2}", 0, "times.1",
         "{\"$date\": \"2026-01-02T02:30:00Z\"}"},
        {"{truceCronNext: '30 2 * *'}", 2},
        {"{truceCommit: [{truceCronSet: 'x', queue: 'q', line: '@daily', payload: {}}]}", 2},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_due_cron_line_adds_a_job_for_a_claim)
{
    static const struct step steps[] = {
        {"{truceCronSet: 'pulse', queue: 'mail', line: '@every 1s', payload: {n: 7}}", 0},
        {"{truceClaim: 'mail', waitMS: 20000}", 0, "jobs.0.payload.n", "7"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_limit_of_a_queue_holds_jobs_back)
{
    static const struct step steps[] = {
        {"{truceQueueLimit: 'mail', rate: 5}", 72},
        {"{truceQueueLimit: 'mail', running: 0}", 2},
        {"{truceQueueLimit: 'mail', running: 1}", 0, "known", "false"},
        {"{truceEnqueue: 'mail', payloads: [{n: 1}, {n: 2}]}", 0},
        {"{truceClaim: 'mail', most: 2}", 0, "jobs.1", NULL},
        {"{truceClaim: 'mail', most: 2}", 0, "status", "\"not found\""},
        {"{truceQueueLimit: 'mail', running: 5, rate: 100, perMS: 1000, pool: 'all'}", 0},
        {"{truceQueueLimit: 'mail'}", 0, "known", "true"},
        {"{truceClaim: 'mail', waitMS: 20000}", 0, "jobs.0.payload.n", "2"},
    };

    begin();
    TELL(steps);
    end();
}

#define FLOW                                                                                        \
    "{truceFlow: 'build', jobs: [{name: 'test', payload: {n: 2}, after: ['compile'], priority: 3}," \
    " {name: 'compile', payload: {n: 1}, queue: 'tools'}]"

TEST(a_workflow_runs_its_jobs_in_their_order)
{
    static const struct step steps[] = {
        {"{truceFlow: 'build', jobs: []}", 16},
        {"{truceFlow: 'build', jobs: [7]}", 14},
        {"{truceFlow: 1, jobs: [{name: 'a', payload: {}}]}", 2},
        {"{truceFlow: 'build', jobs: [{name: 'a', payload: {}, unique: 'x'}]}", 40415},
        {"{truceFlow: 'build', jobs: [{name: 'a', payload: {}, priority: 1001}]}", 2},
        {"{truceFlow: 'build', jobs: [{name: 'a', payload: {}, after: [7]}]}", 14},
        {"{truceFlow: 'build', jobs: [{name: 'a', payload: {}, after: ['z']}]}", 2},
        {"{truceFlow: 'build', jobs: [{name: 'a', payload: {}, after: ['b']}, {name: 'b', payload: {}, after: ['a']}]}",
         2},
        {"{truceFlow: 'build', jobs: [{name: 'a', payload: {}}, {name: 'a', payload: {}}]}", 2},
        {"{truceJobs: 'build'}", 0, "jobs", "[]"},
        {FLOW "}", 0, "jobs.1.name", "\"compile\""},
        {"{truceJobs: 'build'}", 0, "jobs.0.state", "\"blocked\""},
        {"{truceClaim: 'build'}", 0, "status", "\"not found\""},
        {"{truceJobGraph: " ID(9) "}", 0, "status", "\"not found\""},
        {"{truceJobGraph: 'x'}", 14},
        {"{truceJobResults: 7}", 14},
    };
    int end_;
    bson_t *reply;
    char *id, *graph, *results;

    begin();
    TELL(steps);
    end_ = dial();
    with_token(end_, "tools", "{truceDone: '%s', id: %s, token: %s, result: {made: 3}}", 0, NULL,
               NULL);
    reply = send_typed(end_, "{truceClaim: 'build', waitMS: 20000}");
    id = shown(reply, "jobs.0._id");
    graph = bson_strdup_printf("{truceJobGraph: %s}", id);
    results = bson_strdup_printf("{truceJobResults: %s}", id);
    take_step(end_, &(struct step){graph, 0, "jobs.0.state", "\"done\""});
    take_step(end_, &(struct step){graph, 0, "jobs.1.level", "1"});
    take_step(end_, &(struct step){results, 0, "jobs.0.result", "{\"made\": 3}"});
    bson_free(results);
    bson_free(graph);
    bson_free(id);
    bson_destroy(reply);
    close(end_);
    end();
}

TEST(a_workflow_is_a_part_of_a_commit_or_of_a_transaction)
{
    static const struct step steps[] = {
        {"{truceCommit: [" FLOW "}, {require: 'c', id: 1}]}", 125},
        {"{truceJobs: 'build'}", 0, "jobs", "[]"},
        {"{truceCommit: [" FLOW "}, {insert: 'c', with: {_id: 1}}]}", 0, "results.0.jobs.0.name",
         "\"test\""},
        {"{truceJobs: 'build'}", 0, "jobs.0.name", "\"test\""},
        {FLOW FIRST(1), 0, "jobs.0.name", "\"test\""},
        {ABORT(1), 0},
        {"{truceJobs: 'build'}", 0, "jobs.1", NULL},
        {FLOW FIRST(2), 0},
        {COMMIT(2), 0},
        {"{truceJobs: 'build'}", 0, "jobs.1.name", "\"test\""},
    };

    begin();
    TELL(steps);
    end();
}

TEST(a_batch_is_open_until_it_is_closed)
{
    static const struct step steps[] = {
        {"{truceEnqueue: 'mail', payload: {n: 0}, open: true, id: " ID(1) "}", 0},
        {"{truceEnqueue: 'mail', payload: {n: 1}, batch: " ID(1) ", id: " ID(2) "}", 0},
        {"{truceEnqueue: 'mail', payload: {n: 1}, batch: " ID(2) "}", 2},
        {"{truceClaim: 'mail'}", 0, "jobs.0.payload.n", "1"},
        {"{truceQueue: 'mail', action: 'cancel', id: " ID(2) "}", 0},
        {"{truceQueue: 'mail', action: 'close'}", 72},
        {"{truceQueue: 'mail', action: 'close', id: " ID(2) "}", 2},
        {"{truceEnqueue: 'mail', payload: {n: 0}, open: true, failure: 'goOn', id: " ID(3) "}", 0},
        {"{truceEnqueue: 'mail', payload: {n: 1}, batch: " ID(3) ", id: " ID(4) "}", 0},
        {"{truceQueue: 'mail', action: 'cancel', id: " ID(4) "}", 0},
        {"{truceClaim: 'mail'}", 0, "status", "\"not found\""},
        {"{truceCommit: [{truceQueue: 'mail', action: 'close', id: " ID(
             3) "}, {require: 'c', id: 1}]}",
         125},
        {"{truceClaim: 'mail'}", 0, "status", "\"not found\""},
        {"{truceQueue: 'mail', action: 'close', id: " ID(3) "}", 0, "status", "\"ok\""},
        {"{truceQueue: 'mail', action: 'close', id: " ID(3) "}", 0, "status", "\"ok\""},
        {"{truceClaim: 'mail', waitMS: 20000}", 0, "jobs.0.payload.n", "0"},
    };

    begin();
    TELL(steps);
    end();
}

#define STEP "truceJobStep: '%s', id: %s, token: %s, name: 'book'"

TEST(a_step_is_completed_once_in_all_attempts)
{
    static const struct step before[] = {
        {"{insert: 'accounts', documents: [{_id: 'a', n: 9}]}", 0},
        {"{truceEnqueue: 'mail', payload: {n: 1}}", 0},
    };
    static const struct step after[] = {
        {"{find: 'accounts'}", 0, "cursor.firstBatch.0.n", "8"},
        {"{truceJobs: 'other'}", 0, "jobs.0.payload.n", "5"},
        {"{truceJobs: 'other'}", 0, "jobs.1", NULL},
        {"{truceJobStep: 'mail', id: " ID(1) ", token: " ID(1) ", name: 'book'}", 125, "status",
         "\"expired\""},
    };
    bson_t *reply;
    char *token, *id;
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    reply = send_typed(end_, "{truceClaim: 'mail', waitMS: 20000, leaseMS: 60000}");
    token = shown(reply, "jobs.0.token");
    id = shown(reply, "jobs.0._id");
#define TAKE(command, ...)                                                                         \
    do {                                                                                           \
        char *whole = bson_strdup_printf("{" command "}", "mail", id, token);                      \
        take_step(end_, &(struct step){whole, __VA_ARGS__});                                       \
        bson_free(whole);                                                                          \
    } while (0)
    TAKE(STEP ", changes: [{update: 'accounts', id: 'z', with: {$inc: {n: -1}}}]", 125);
    TAKE(STEP ", changes: [{truceClaim: 'mail'}]", 2);
    TAKE(STEP ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: -1}}},"
              " {truceEnqueue: 'other', payload: {n: 5}}], result: {booked: true}",
         0, "results.0.added", "\"new\"");
    TAKE(STEP
         ", changes: [{update: 'accounts', id: 'a', with: {$inc: {n: -1}}}], result: {booked: 2}",
         0, "result", "{\"booked\": true}");
    TAKE(STEP, 0, "earlier", "true");
    TAKE("truceJobStep: '%s', id: %s, token: %s, name: 'note'", 0, "earlier", "false");
    TAKE("truceJobStep: '%s', id: %s, token: %s, name: 'a.b'", 2);
    TELL(after);
    bson_free(id);
    bson_free(token);
    bson_destroy(reply);
    close(end_);
    end();
}

TEST(a_job_sleeps_and_waits_for_events_without_a_worker)
{
    static const struct step before[] = {
        {"{truceEnqueue: 'sleep', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'both', payload: {n: 1}}", 0},
        {"{truceEnqueue: 'wait', payload: {n: 2}, id: " ID(1) "}", 0},
        {"{truceSignal: 'wait', id: " ID(2) ", name: 'yes'}", 125, "status", "\"not found\""},
        {"{truceSignal: 'wait', id: " ID(1) "}", 40414},
    };
    static const struct step signal[] = {
        {"{truceJobs: 'wait'}", 0, "jobs.0.awaits", "\"yes\""},
        {"{truceCommit: [{truceSignal: 'wait', id: " ID(
             1) ", name: 'yes', event: {by: 'x'}}, {require: 'c', id: 1}]}",
         125},
        {"{truceSignal: 'wait', id: " ID(1) ", name: 'yes', event: {by: 'ada'}}", 0, "status",
         "\"ok\""},
        {"{truceSignal: 'wait', id: " ID(1) ", name: 'yes', event: {by: 'bob'}}", 0, "status",
         "\"ok\""},
    };
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    with_token(end_, "sleep", "{truceJobSleep: '%s', id: %s, token: %s, name: 'nap', delayMS: 1}",
               0, "status", "\"not found\"");
    with_token(end_, "sleep", "{truceJobSleep: '%s', id: %s, token: %s, name: 'nap', delayMS: 1}",
               0, "status", "\"ok\"");
    /* A step of the same name is not taken for completed. */
    with_token(end_, "both", "{truceJobSleep: '%s', id: %s, token: %s, name: 'nap', delayMS: 1}", 0,
               "status", "\"not found\"");
    with_token(end_, "both",
               "{truceJobStep: '%s', id: %s, token: %s, name: 'nap', result: {n: 1}, changes: "
               "[{insert: 'naps', with: {_id: 1}}]}",
               0, "earlier", "false");
    take_step(end_, &(struct step){"{count: 'naps'}", 0, "n", "1"});
    with_token(end_, "wait", "{truceJobWait: '%s', id: %s, token: %s, name: 'yes'}", 0, "status",
               "\"not found\"");
    TELL(signal);
    with_token(end_, "wait", "{truceJobWait: '%s', id: %s, token: %s, name: 'yes'}", 0, "event",
               "{\"by\": \"ada\"}");
    close(end_);
    end();
}

/* Takes a step whose %s are replaced by the job's id and the token, and which is refused with a
 * message that contains `why`. */
static void refuse_claim(int end_, const char *command, const char *id, const char *token, int code,
                         const char *why)
{
    char *whole = bson_strdup_printf(command, id, token);
    bson_t *reply = send_typed(end_, whole);

    CHECK_INT(reply_number(reply, "code"), ==, code);
    CHECK(strstr(truce__field_text(reply, "errmsg"), why) != NULL);
    bson_destroy(reply);
    bson_free(whole);
}

TEST(says_why_a_claim_no_longer_has_its_job)
{
    static const char *const beat = "{truceHeartbeat: 'mail', id: %s, token: %s}";
    static const char *const fail = "{truceFail: 'mail', id: %s, token: %s, error: 'x'}";
    bson_t *first, *second;
    char *id, *tokens[2];
    int end_;

    begin();
    end_ = dial();
    take_step(end_, &(struct step){"{truceEnqueue: 'mail', payload: {n: 1}}", 0});
    first = send_typed(end_, "{truceClaim: 'mail', waitMS: 20000, leaseMS: 60000}");
    id = shown(first, "jobs.0._id");
    tokens[0] = shown(first, "jobs.0.token");
    refuse_claim(end_, "{truceDone: 'mial', id: %s, token: %s}", id, tokens[0], 2,
                 "is in the queue \"mail\", not in \"mial\"");
    refuse_claim(end_, "{truceCommit: [{truceDone: 'mial', id: %s, token: %s}]}", id, tokens[0], 2,
                 "is in the queue \"mail\", not in \"mial\"");
    refuse_claim(end_, beat, tokens[0], id, 125, "is no longer in the queue");
    refuse_claim(end_, "{truceSnooze: 'mail', id: %s, token: %s, delayMS: 0}", id, tokens[0], -1,
                 "");
    refuse_claim(end_, fail, id, tokens[0], 125,
                 "it ended this claim, or the lease expired, and the job is ready now");
    second = send_typed(end_, "{truceClaim: 'mail', waitMS: 20000, leaseMS: 60000}");
    tokens[1] = shown(second, "jobs.0.token");
    refuse_claim(end_, beat, id, tokens[0], 125, "another claim has it, with epoch 2");
    refuse_claim(end_, "{truceDone: 'mail', id: %s, token: %s}", id, tokens[1], -1, "");
    refuse_claim(end_, fail, id, tokens[1], 125, "has ended already: the job is done now");
    refuse_claim(end_, beat, id, tokens[0], 125,
                 "it ended this claim, or the lease expired, and the job is done now");
    for (int i = 0; i < 2; i++)
        bson_free(tokens[i]);
    bson_free(id);
    bson_destroy(first);
    bson_destroy(second);
    close(end_);
    end();
}

TEST(a_discarded_job_is_not_a_dead_letter)
{
    static const struct step before[] = {{"{truceEnqueue: 'mail', payload: {n: 1}}", 0},
                                         {"{truceEnqueue: 'other', payload: {n: 1}}", 0}};
    static const struct step after[] = {
        {"{truceJobs: 'other', state: 'discarded'}", 0, "jobs.0.state", "\"discarded\""},
        {"{truceJobs: 'other', state: 'lost'}", 2},
        {"{truceDiscard: 'mail', id: " ID(1) ", token: " ID(1) ", error: 'x'}", 125},
    };
    int end_;

    begin();
    TELL(before);
    end_ = dial();
    with_token(
        end_, "mail",
        "{truceCommit: [{truceDiscard: '%s', id: %s, token: %s, error: 'x'}, {require: 'c', id: 1}]}",
        125, NULL, NULL);
    take_step(end_, &(struct step){"{truceJobs: 'mail'}", 0, "jobs.0.state", "\"running\""});
    with_token(end_, "other", "{truceDiscard: '%s', id: %s, token: %s, error: 'no address'}", 0,
               "status", "\"ok\"");
    TELL(after);
    close(end_);
    end();
}
