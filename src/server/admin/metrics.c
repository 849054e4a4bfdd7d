#include "server/admin/metrics.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/documents/change_feed.h"
#include "engine/engine.h"
#include "engine/storage/log_archive.h"
#include "operations/operation.h"
#include "server/admin/metrics_consumers.h"
#include "server/admin/metrics_queues.h"
#include "server/admin/metrics_text.h"
#include "server/call/call.h"
#include "store/file/file.h"

/* The upper bounds of the histogram's buckets, in microseconds. The last bucket has none. */
static const int64_t steps_us[] = {100,     250,     500,     1000,    2500,   5000,
                                   10000,   25000,   50000,   100000,  250000, 500000,
                                   1000000, 2500000, 5000000, 10000000};
#define STEPS      (sizeof steps_us / sizeof *steps_us)
#define GROUPS_MAX 24 /* The maximum number of groups, of MongoDB's commands and of the patterns. */

/* The histogram of a group of commands: the number of calls for each bucket, and the total
 * duration. */
struct timing {
    const char *group;
    atomic_ullong steps[STEPS + 1], ns;
};

/* A command, its number of calls, and the histogram of its group. */
struct times {
    const struct command *command;
    struct timing *timing;
    atomic_ullong count;
};

struct failures {
    /* The error code + 1, or 0 if it is unused. */
    atomic_uint code;
    atomic_ullong count;
};

struct metrics {
    struct failures failures[METRICS_CODES_MAX];
    /* Errors with a code that has no element in `failures`. */
    atomic_ullong others;
    /* The bytes of all messages. */
    atomic_ullong received, sent;
    struct timing timings[GROUPS_MAX];
    /* The first row of the table of MongoDB's commands, and the number of its rows. */
    const struct command *first;
    size_t plain;
    /* The number of all commands, including those of the patterns. */
    size_t count;
    /* MongoDB's commands in the order of the table, then those of the patterns. */
    struct times times[];
};

static void metrics_add(atomic_ullong *to, uint64_t more)
{
    atomic_fetch_add_explicit(to, more, memory_order_relaxed);
}

static uint64_t metrics_load(const atomic_ullong *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* ---- the table of counters ------------------------------------------------------------------- */

/* Returns the number of MongoDB's commands. Adds them to `metrics` unless it is NULL. */
static size_t put_plain(const struct command_table *table, struct metrics *metrics)
{
    static const char *const names[COUNTED_KINDS] = {"insert", "query",   "update",
                                                     "delete", "getmore", "command"};
    size_t count = 0;

    for (int i = 0; metrics && i < COUNTED_KINDS; i++)
        metrics->timings[i].group = names[i];
    for (const struct command *at = table->commands; at->name; at++, count++)
        if (metrics) {
            metrics->times[count].command = at;
            metrics->times[count].timing = &metrics->timings[at->counted];
        }
    return count;
}

/* Counts the operations of the patterns, from `count` on, and returns the number of all commands.
 * Adds them to `metrics` unless it is NULL. */
static size_t put_operations(const struct command_table *table, struct metrics *metrics,
                             size_t count)
{
    int kind = COUNTED_KINDS;

    for (const struct operation_group *group = truce__operation_groups; group->title;
         group++, kind++) {
        truce_assert(kind < GROUPS_MAX);
        if (metrics)
            metrics->timings[kind].group = group->word;
        for (const struct operation_row *const *at = group->rows; *at; at++, count++)
            if (metrics) {
                metrics->times[count].command = table->of_operation(*at);
                metrics->times[count].timing = &metrics->timings[kind];
            }
    }
    return count;
}

struct metrics *metrics_new(const struct command_table *table)
{
    size_t count = put_operations(table, NULL, put_plain(table, NULL));
    struct metrics *metrics = bson_malloc0(sizeof *metrics + count * sizeof(struct times));

    metrics->first = table->commands;
    metrics->plain = put_plain(table, metrics);
    metrics->count = put_operations(table, metrics, metrics->plain);
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    bson_free(metrics);
}

/* ---- counting -------------------------------------------------------------------------------- */

static struct times *times_of(struct metrics *metrics, const struct command *command)
{
    size_t i = metrics->plain;

    if (command >= metrics->first && command < metrics->first + metrics->plain)
        return &metrics->times[command - metrics->first];
    while (metrics->times[i].command != command)
        i++;
    return &metrics->times[i];
}

void metrics_ran(struct metrics *metrics, const struct command *command, int64_t ns)
{
    struct times *times = times_of(metrics, command);
    size_t step = 0;

    while (step < STEPS && ns > steps_us[step] * 1000)
        step++;
    metrics_add(&times->count, 1);
    metrics_add(&times->timing->steps[step], 1);
    metrics_add(&times->timing->ns, (uint64_t)ns);
}

void metrics_failed(struct metrics *metrics, uint32_t code)
{
    for (size_t i = 0; i < METRICS_CODES_MAX; i++) {
        struct failures *at = &metrics->failures[i];
        unsigned known = 0;

        if (atomic_compare_exchange_strong(&at->code, &known, code + 1) || known == code + 1) {
            metrics_add(&at->count, 1);
            return;
        }
    }
    metrics_add(&metrics->others, 1);
}

void metrics_received(struct metrics *metrics, size_t bytes)
{
    metrics_add(&metrics->received, bytes);
}

void metrics_sent(struct metrics *metrics, size_t bytes)
{
    metrics_add(&metrics->sent, bytes);
}

void metrics_bytes(struct metrics *metrics, uint64_t *received, uint64_t *sent)
{
    *received = metrics_load(&metrics->received);
    *sent = metrics_load(&metrics->sent);
}

/* ---- text format ----------------------------------------------------------------------------- */

static void metrics_put_number(struct buffer *out, const char *name, const char *type,
                               const char *help, uint64_t value)
{
    metrics_put_head(out, name, type, help);
    metrics_put(out, "%s %" PRIu64 "\n", name, value);
}

static void metrics_put_seconds(struct buffer *out, const char *name, const char *type,
                                const char *help, double value)
{
    metrics_put_head(out, name, type, help);
    metrics_put(out, "%s %.3f\n", name, value);
}

/* Appends the histogram of a group. As Prometheus requires, each bucket also counts the shorter
 * calls. */
static void put_timing(const struct timing *timing, struct buffer *out)
{
    uint64_t ns = metrics_load(&timing->ns), count = 0;

    for (size_t i = 0; i < STEPS; i++) {
        count += metrics_load(&timing->steps[i]);
        metrics_put(out,
                    "truce_command_duration_seconds_bucket{group=\"%s\",le=\"%g\"} %" PRIu64 "\n",
                    timing->group, (double)steps_us[i] / 1e6, count);
    }
    count += metrics_load(&timing->steps[STEPS]);
    metrics_put(out,
                "truce_command_duration_seconds_bucket{group=\"%s\",le=\"+Inf\"} %" PRIu64
                "\ntruce_command_duration_seconds_sum{group=\"%s\"} %.9f\n"
                "truce_command_duration_seconds_count{group=\"%s\"} %" PRIu64 "\n",
                timing->group, count, timing->group, (double)ns / 1e9, timing->group, count);
}

/* Appends the numbers of failures by error code. Codes without a slot are counted together. */
static void put_failures(struct metrics *metrics, struct buffer *out)
{
    uint64_t others = metrics_load(&metrics->others);

    metrics_put_head(out, "truce_command_errors_total", "counter",
                     "Failed commands and writes, by error code.");
    for (size_t i = 0; i < METRICS_CODES_MAX; i++) {
        unsigned code = atomic_load(&metrics->failures[i].code);

        if (code)
            metrics_put(out, "truce_command_errors_total{code=\"%u\"} %" PRIu64 "\n", code - 1,
                        metrics_load(&metrics->failures[i].count));
    }
    if (others)
        metrics_put(out, "truce_command_errors_total{code=\"other\"} %" PRIu64 "\n", others);
}

static void put_commands(struct metrics *metrics, struct buffer *out)
{
    metrics_put_head(out, "truce_commands_total", "counter", "Commands that were begun, by name.");
    for (size_t i = 0; i < metrics->count; i++)
        if (metrics_load(&metrics->times[i].count))
            metrics_put(out, "truce_commands_total{command=\"%s\"} %" PRIu64 "\n",
                        metrics->times[i].command->name, metrics_load(&metrics->times[i].count));
    metrics_put_head(out, "truce_command_duration_seconds", "histogram",
                     "Time from reading a command to its reply, by groups.");
    for (size_t i = 0; i < GROUPS_MAX && metrics->timings[i].group; i++)
        put_timing(&metrics->timings[i], out);
    put_failures(metrics, out);
}

/* Appends the metrics of connections, cursors, transactions, and logins. */
static void put_server(struct server *server, const struct metrics_gauges *gauges,
                       struct buffer *out)
{
    uint64_t connected, created, refused;

    pthread_mutex_lock(&server->mutex);
    connected = (uint64_t)server->connected;
    created = (uint64_t)server->created;
    refused = (uint64_t)server->refused;
    pthread_mutex_unlock(&server->mutex);
    metrics_put_head(out, "truce_build_info", "gauge", "The version.");
    metrics_put(out, "truce_build_info{version=\"%s\"} 1\n", TRUCE_VERSION);
    metrics_put_seconds(out, "truce_start_time_seconds", "gauge",
                        "Start time of the server, since 1970.", (double)server->started_ms / 1000);
    metrics_put_number(out, "truce_connections", "gauge", "Clients that are connected.", connected);
    metrics_put_number(out, "truce_connections_limit", "gauge",
                       "Maximum number of connected clients.", (uint64_t)server->connections_max);
    metrics_put_number(out, "truce_connections_accepted_total", "counter", "Accepted connections.",
                       created);
    metrics_put_number(out, "truce_connections_refused_total", "counter",
                       "Connections refused because of the limit.", refused);
    metrics_put_number(out, "truce_received_bytes_total", "counter",
                       "Received bytes, before decompression.",
                       metrics_load(&server->metrics->received));
    metrics_put_number(out, "truce_sent_bytes_total", "counter", "Sent bytes, after compression.",
                       metrics_load(&server->metrics->sent));
    metrics_put_number(out, "truce_cursors", "gauge", "Open cursors.", gauges->cursors);
    metrics_put_number(out, "truce_transactions", "gauge", "Running transactions.",
                       gauges->transactions);
    metrics_put_number(out, "truce_logins_total", "counter", "Logins that were begun.",
                       (uint64_t)atomic_load(&server->logins));
    metrics_put_number(out, "truce_logins_failed_total", "counter", "Logins that failed.",
                       (uint64_t)atomic_load(&server->logins_failed));
}

/* Appends the metrics of commits (truce_commit_count). */
static void put_commits(struct buffer *out)
{
    truce_commit_counters c;

    truce_commit_count(&c);
    metrics_put_head(out, "truce_commits_total", "counter",
                     "Commits of several documents by the patterns, by outcome.");
    metrics_put(out,
                "truce_commits_total{outcome=\"committed\"} %" PRIu64
                "\ntruce_commits_total{outcome=\"conflict\"} %" PRIu64
                "\ntruce_commits_total{outcome=\"aborted\"} %" PRIu64
                "\ntruce_commits_total{outcome=\"unknown\"} %" PRIu64 "\n",
                c.committed, c.conflicts, c.aborted, c.unknown);
    metrics_put_number(out, "truce_commit_reruns_total", "counter", "Automatic reruns of commits.",
                       c.reruns);
    metrics_put_number(out, "truce_commit_completions_total", "counter",
                       "Commits of other clients that this process completed.", c.completions);
}

/* Appends the metrics of the sweep. */
static void put_sweep(struct sweeper *sweeper, struct buffer *out)
{
    struct sweep_sums s;

    sweeper_count(sweeper, &s);
    metrics_put_head(out, "truce_sweeps_total", "counter",
                     "Passes of the server's own sweep, by outcome.");
    metrics_put(out,
                "truce_sweeps_total{outcome=\"done\"} %" PRId64
                "\ntruce_sweeps_total{outcome=\"failed\"} %" PRId64
                "\ntruce_sweeps_total{outcome=\"skipped\"} %" PRId64 "\n",
                s.passes - s.broken, s.broken, s.skipped);
    metrics_put_head(out, "truce_swept_total", "counter",
                     "Results of the sweeps, as truce sweep names them.");
    metrics_put(out,
                "truce_swept_total{what=\"undone\"} %" PRId64
                "\ntruce_swept_total{what=\"finished\"} %" PRId64
                "\ntruce_swept_total{what=\"cleaned\"} %" PRId64
                "\ntruce_swept_total{what=\"stripped\"} %" PRId64 "\n",
                s.all.undone, s.all.finished, s.all.cleaned, s.all.stripped);
    metrics_put(out,
                "truce_swept_total{what=\"purged\"} %" PRId64
                "\ntruce_swept_total{what=\"expired\"} %" PRId64
                "\ntruce_swept_total{what=\"pruned\"} %" PRId64
                "\ntruce_swept_total{what=\"released\"} %" PRId64
                "\ntruce_swept_total{what=\"failed\"} %" PRId64 "\n",
                s.all.purged, s.all.expired, s.all.pruned, s.all.released, s.all.failed);
}

static void put_store(truce_store *store, struct buffer *out)
{
    truce_store_counters c;

    truce_store_count(store, &c);
    metrics_put_number(out, "truce_store_writes_total", "counter",
                       "Calls that wrote to the file, of this server.", c.writes);
    metrics_put_number(out, "truce_store_syncs_total", "counter",
                       "Waits of this server for the disk.", c.syncs);
    metrics_put_number(out, "truce_store_log_bytes", "gauge", "Size of the write-ahead log.",
                       c.log_bytes);
}

/* Appends the figures of the change feed, if the store has one. */
static void metrics_put_feed(truce_store *store, struct buffer *out)
{
    struct engine *engine = truce__file_engine_or_null(store);
    struct feed_state state;
    bson_error_t ignored; /* If the store fails, the reply omits these lines. */

    if (!engine || truce__engine_feed_state(engine, &state, &ignored) || !state.spec.table)
        return;
    metrics_put_number(out, "truce_feed_bytes", "gauge",
                       "Size of the changes that are stored for change streams.",
                       (uint64_t)state.bytes);
    if (state.oldest_ms)
        metrics_put_seconds(out, "truce_feed_oldest_timestamp_seconds", "gauge",
                            "Time of the oldest change that is stored, since 1970.",
                            (double)state.oldest_ms / 1000);
}

/* Appends the lag of the archiver of the file, which may run in another process. */
static void metrics_put_archive(truce_store *store, struct buffer *out)
{
    struct engine *engine = truce__file_engine_or_null(store);
    struct archive_facts archive;

    if (!engine || !truce__archive_facts(&engine->lock, &archive))
        return;
    metrics_put_number(out, "truce_archive_behind_bytes", "gauge",
                       "Bytes of the log that are not archived.", archive.behind_bytes);
    metrics_put_seconds(out, "truce_archive_behind_seconds", "gauge",
                        "Age of the archived state, if something is missing in it.",
                        (double)archive.behind_ms / 1000);
    metrics_put_seconds(out, "truce_archive_failing_seconds", "gauge",
                        "How long calls to the target of the archive have been failing.",
                        (double)archive.failing_ms / 1000);
}

/* Appends the metrics of the process. Their names are those of Prometheus' client libraries. */
static void put_process(struct buffer *out)
{
    struct timespec used;
    FILE *file = fopen("/proc/self/statm", "re");
    long size, resident;
    int read = file ? fscanf(file, "%ld %ld", &size, &resident) : 0;

    if (file)
        (void)fclose(file);
    if (read == 2)
        metrics_put_number(out, "process_resident_memory_bytes", "gauge", "Memory of the process.",
                           (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE));
    if (!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used))
        metrics_put_seconds(out, "process_cpu_seconds_total", "counter", "CPU time of the process.",
                            (double)used.tv_sec + (double)used.tv_nsec / 1e9);
}

void metrics_write(struct server *server, const struct metrics_gauges *gauges, struct buffer *out)
{
    put_server(server, gauges, out);
    put_commands(server->metrics, out);
    put_commits(out);
    metrics_put_queues(server->store, out);
    metrics_put_consumers(server->store, out);
    put_sweep(server->sweeper, out);
    put_store(server->store, out);
    metrics_put_feed(server->store, out);
    metrics_put_archive(server->store, out);
    put_process(out);
}
