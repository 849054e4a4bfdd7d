#include "server/admin/sweeper.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "server/call/shared_state.h"

/* The maximum number of calls of truce_sweep in a pass. The next pass continues. */
#define ROUNDS_MAX    1000
#define FAILURE_BYTES 600

struct sweeper {
    pthread_t thread;
    /* The thread exists. Used only by the threads that start and stop the sweeper. */
    bool started;
    /* The messages of the last pass: its failure, and the first item that could not be repaired,
     * or "". Used only by the thread. */
    char failure[FAILURE_BYTES], unrepaired[FAILURE_BYTES];
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when the sweeper must end, or its interval has changed. */
    pthread_cond_t wake;
    bool stops;
    /* The number of client calls of truceSweep that are running. */
    int clients;
    struct sweep_sums sums;
};

struct sweeper *sweeper_new(int64_t every_ms)
{
    struct sweeper *sweeper = bson_malloc0(sizeof *sweeper);
    pthread_condattr_t attributes;

    sweeper->sums.every_ms = every_ms;
    pthread_mutex_init(&sweeper->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sweeper->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    return sweeper;
}

void sweeper_free(struct sweeper *sweeper)
{
    pthread_cond_destroy(&sweeper->wake);
    pthread_mutex_destroy(&sweeper->mutex);
    bson_free(sweeper);
}

/* ---- one pass -------------------------------------------------------------------------------- */

static void sweeper_add_report(truce_sweep_report *sum, const truce_sweep_report *report)
{
    sum->undone += report->undone;
    sum->finished += report->finished;
    sum->cleaned += report->cleaned;
    sum->stripped += report->stripped;
    sum->purged += report->purged;
    sum->expired += report->expired;
    sum->pruned += report->pruned;
    sum->released += report->released;
    sum->failed += report->failed;
}

static bool sweeper_is_stopping(struct sweeper *sweeper)
{
    bool answer;

    pthread_mutex_lock(&sweeper->mutex);
    answer = sweeper->stops;
    pthread_mutex_unlock(&sweeper->mutex);
    return answer;
}

static void keep_first(const bson_t *finding, void *arg)
{
    char *text = arg;

    if (!*text)
        snprintf(text, FAILURE_BYTES, "%s of %s: %s", truce__field_text(finding, "status"),
                 truce__field_text(finding, "ns"), truce__field_text(finding, "text"));
}

/* Logs the failure `now` unless it is "" or equal to that of the previous pass, and stores it in
 * `last`. */
static void sweeper_log_failure(struct log *log, char last[FAILURE_BYTES], const char *now,
                                const char *message, int64_t count)
{
    bson_t *fields = BCON_NEW("count", BCON_INT64(count), "reason", BCON_UTF8(now));

    if (*now && strcmp(now, last) != 0)
        log_write(log, TRUCE_LOG_WARNING, LOG_SWEEP, 0, message, fields);
    memmove(last, now, strlen(now) + 1);
    bson_destroy(fields);
}

static void sweeper_log_result(struct log *log, const truce_sweep_report *sum, int64_t ms)
{
    bson_t *fields;

    if (!sum->undone && !sum->finished && !sum->cleaned && !sum->stripped && !sum->purged &&
        !sum->expired && !sum->pruned && !sum->released)
        return;
    fields = BCON_NEW("undone", BCON_INT64(sum->undone), "finished", BCON_INT64(sum->finished),
                      "cleaned", BCON_INT64(sum->cleaned), "stripped", BCON_INT64(sum->stripped),
                      "purged", BCON_INT64(sum->purged), "expired", BCON_INT64(sum->expired),
                      "pruned", BCON_INT64(sum->pruned), "released", BCON_INT64(sum->released),
                      "ms", BCON_INT64(ms));
    log_write(log, TRUCE_LOG_INFO, LOG_SWEEP, 0, "sweep finished", fields);
    bson_destroy(fields);
}

/* Runs one pass: calls truce_sweep until nothing is left, at most ROUNDS_MAX times. Logs the
 * result, and each new failure. */
static void sweeper_sweep(struct server *server, struct sweeper *sweeper)
{
    char unrepaired[FAILURE_BYTES] = "";
    const truce_sweep_options options = {.function = keep_first, .arg = unrepaired};
    truce_sweep_report report = {0}, sum = {0};
    int64_t begun_ns = truce__clock_monotonic_ns();
    truce_status status = TRUCE_OK;
    bson_error_t error = {0};
    bool ends = false;

    for (int round = 0; round < ROUNDS_MAX && !status && !ends && (!round || report.more);
         round++) {
        status = truce_sweep(server->store, &options, &report, &error);
        sweeper_add_report(&sum, &report);
        ends = sweeper_is_stopping(sweeper);
    }
    pthread_mutex_lock(&sweeper->mutex);
    sweeper->sums.passes++;
    sweeper->sums.broken += status && !ends;
    sweeper_add_report(&sweeper->sums.all, &sum);
    pthread_mutex_unlock(&sweeper->mutex);
    sweeper_log_result(server->log, &sum, (truce__clock_monotonic_ns() - begun_ns) / 1000000);
    /* An interrupted sweep returns an error that is not a failure. */
    if (ends)
        return;
    sweeper_log_failure(server->log, sweeper->failure, status ? error.message : "", "sweep failed",
                        1);
    sweeper_log_failure(server->log, sweeper->unrepaired, unrepaired,
                        "sweep could not repair some documents", sum.failed);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Waits until the next pass. Returns false if the loop ends. */
static bool sweeper_wait_for_pass(struct sweeper *sweeper)
{
    int64_t begun_ns = truce__clock_monotonic_ns(), at_ns;
    struct timespec at;

    while (at_ns = begun_ns + sweeper->sums.every_ms * 1000000,
           !sweeper->stops && truce__clock_monotonic_ns() < at_ns) {
        at = (struct timespec){at_ns / 1000000000, at_ns % 1000000000};
        (void)pthread_cond_timedwait(&sweeper->wake, &sweeper->mutex, &at);
    }
    return !sweeper->stops;
}

/* Runs the loop: the function of the thread. Clears server->sweeping when the loop ends. */
static void *sweeper_run(void *arg)
{
    struct server *server = arg;
    struct sweeper *sweeper = server->sweeper;

    pthread_mutex_lock(&sweeper->mutex);
    while (sweeper_wait_for_pass(sweeper)) {
        if (sweeper->clients) {
            sweeper->sums.skipped++;
            continue;
        }
        pthread_mutex_unlock(&sweeper->mutex);
        sweeper_sweep(server, sweeper);
        pthread_mutex_lock(&sweeper->mutex);
    }
    pthread_mutex_unlock(&sweeper->mutex);
    pthread_mutex_lock(&server->mutex);
    server->sweeping = false;
    pthread_cond_broadcast(&server->gone);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

bool sweeper_start(struct server *server)
{
    struct sweeper *sweeper = server->sweeper;

    if (!sweeper->sums.every_ms)
        return true;
    server->sweeping = true; /* The mutex is not needed, because no other thread exists yet. */
    sweeper->started = !pthread_create(&sweeper->thread, NULL, sweeper_run, server);
    server->sweeping = sweeper->started;
    return sweeper->started;
}

void sweeper_stop(struct sweeper *sweeper)
{
    pthread_mutex_lock(&sweeper->mutex);
    sweeper->stops = true;
    pthread_cond_broadcast(&sweeper->wake);
    pthread_mutex_unlock(&sweeper->mutex);
}

void sweeper_set_every(struct sweeper *sweeper, int64_t every_ms)
{
    pthread_mutex_lock(&sweeper->mutex);
    sweeper->sums.every_ms = every_ms;
    pthread_cond_broadcast(&sweeper->wake);
    pthread_mutex_unlock(&sweeper->mutex);
}

void sweeper_join(struct sweeper *sweeper)
{
    if (sweeper->started)
        pthread_join(sweeper->thread, NULL);
    sweeper->started = false;
}

/* ---- others ---------------------------------------------------------------------------------- */

void sweeper_enter(struct sweeper *sweeper)
{
    pthread_mutex_lock(&sweeper->mutex);
    sweeper->clients++;
    pthread_mutex_unlock(&sweeper->mutex);
}

void sweeper_leave(struct sweeper *sweeper)
{
    pthread_mutex_lock(&sweeper->mutex);
    sweeper->clients--;
    pthread_mutex_unlock(&sweeper->mutex);
}

void sweeper_count(struct sweeper *sweeper, struct sweep_sums *sums)
{
    pthread_mutex_lock(&sweeper->mutex);
    *sums = sweeper->sums;
    pthread_mutex_unlock(&sweeper->mutex);
}
