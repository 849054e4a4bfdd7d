/*
 * truce consume: applies the messages of a broker (src/broker).
 *
 * Each of --workers is a thread with a connection of its own. The threads share the store, so their
 * commits share syncs. SIGTERM and Ctrl-C end the command after the current batches.
 */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/plural.h"
#include "cli/broker/consume_metrics.h"
#include "cli/broker/consume_options.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/core/operation_row.h"
#include "cli/core/progress.h"

#define CONSUME_FIELDS     10
#define CONSUME_METRICS_NS INT64_C(5000000000)

struct consume {
    struct cli *cli;
    struct consume_call call;
    /* The interval between two reports. 0 means no reports. */
    int64_t report_ns;
    /* The file of --metrics, or NULL. */
    const char *metrics;
    /* Set by SIGTERM and Ctrl-C. The command ends after the current batches. */
    const atomic_int *stop;
    /* Guards the members that follow. */
    pthread_mutex_t mutex;
    /* The last counts of each worker. */
    truce_consume_counts counts[CONSUME_WORKERS_MAX];
    struct cli_progress progress;
    /* When the command started, when the last report was printed, and when the metrics were last
     * written (monotonic). */
    int64_t started_ns, reported_ns, measured_ns;
    /* The number of messages that were received, and when a worker last reported a new one
     * (monotonic). */
    int64_t received, received_ns;
    /* The metrics could not be written, and the error was reported. */
    bool unmeasured;
    /* The exit code of the first worker that failed, or 0. A failure ends the other workers. */
    int code;
};

struct consume_thread {
    struct consume *consume;
    int number;
};

/* ---- counts ---------------------------------------------------------------------------------- */

/* Adds the counts of all workers. */
static truce_consume_counts consume_sum(const struct consume *consume)
{
    truce_consume_counts sum = {.waiting = -1};

    for (int i = 0; i < consume->call.workers; i++) {
        const truce_consume_counts *one = &consume->counts[i];

        sum.received += one->received;
        sum.redelivered += one->redelivered;
        sum.applied += one->applied;
        sum.duplicate += one->duplicate;
        sum.stale += one->stale;
        sum.rejected += one->rejected;
        sum.quarantined += one->quarantined;
        sum.batches += one->batches;
        sum.reconnects += one->reconnects;
        /* The workers of Kafka have different partitions; those of RabbitMQ share one queue. */
        if (sum.waiting >= 0 && one->waiting >= 0 && consume_options_divided(&consume->call))
            sum.waiting += one->waiting;
        else if (one->waiting > sum.waiting)
            sum.waiting = one->waiting;
    }
    return sum;
}

/* Appends the counts. A count of -1 is unknown and is left out. */
static void consume_append(const truce_consume_counts *sum, bson_t *answer)
{
    const struct {
        const char *name;
        int64_t count;
    } fields[CONSUME_FIELDS] = {
        {"messages", sum->received},
        {"applied", sum->applied},
        {"stale", sum->stale},
        {"duplicate", sum->duplicate},
        {"rejected", sum->rejected},
        {"quarantined", sum->quarantined},
        {"redelivered", sum->redelivered},
        {"batches", sum->batches},
        {"reconnects", sum->reconnects},
        {"waiting", sum->waiting},
    };

    for (int i = 0; i < CONSUME_FIELDS; i++)
        if (fields[i].count >= 0)
            bson_append_int64(answer, fields[i].name, -1, fields[i].count);
}

/* Prints the sum of the counts of all workers, as the answer or as a report in between. */
static void consume_print(const struct consume *consume, bool is_answer)
{
    const truce_consume_counts sum = consume_sum(consume);
    /* The rate does not count the wait for further messages at the end. */
    int64_t until_ns =
        is_answer && sum.received ? consume->received_ns : truce__clock_monotonic_ns();
    double seconds = (double)(until_ns - consume->started_ns) / 1e9;
    bson_t answer = BSON_INITIALIZER;
    char text[400];

    consume_append(&sum, &answer);
    bson_append_double(&answer, "seconds", -1, seconds);
    snprintf(text, sizeof text,
             "%s: %" PRId64 " applied, %" PRId64 " stale, %" PRId64 " duplicate, %" PRId64
             " rejected%s; %.1f s, %.0f/s",
             PLURAL(sum.received, "message", "messages"), sum.applied, sum.stale, sum.duplicate,
             sum.rejected, sum.rejected ? " (see truce_rejects)" : "", seconds,
             seconds > 0 ? (double)sum.received / seconds : 0.0);
    if (is_answer)
        cli_answer(consume->cli, &answer, "%s", text);
    else
        cli_report(consume->cli, &answer, "%s", text);
    bson_destroy(&answer);
}

/* Writes the metrics. A failure is reported once. */
static void consume_measure(struct consume *consume)
{
    const truce_consume_counts sum = consume_sum(consume);
    bson_error_t error;
    truce_status status =
        consume_metrics_write(consume->metrics, consume->call.options.into, &sum, &error);

    if (status && !consume->unmeasured)
        cli_note(consume->cli, "%s", error.message);
    consume->unmeasured = status != TRUCE_OK;
    consume->measured_ns = truce__clock_monotonic_ns();
}

/* ---- callbacks ------------------------------------------------------------------------------- */

/* Stores the counts of a worker. The caller holds the mutex. */
static void consume_count(struct consume_thread *thread, const truce_consume_counts *counts)
{
    struct consume *consume = thread->consume;
    truce_consume_counts *own = &consume->counts[thread->number];

    if (counts->received > own->received)
        consume->received_ns = truce__clock_monotonic_ns();
    consume->received += counts->received - own->received;
    *own = *counts;
}

/* Takes a worker's counts between two batches, and prints what is due (truce_consume_options.stop).
 * Returns whether the worker must end. Called by all workers. */
static bool consume_stop(const truce_consume_counts *counts, void *arg)
{
    struct consume_thread *thread = arg;
    struct consume *consume = thread->consume;
    int64_t now_ns = truce__clock_monotonic_ns();
    bool stop;

    pthread_mutex_lock(&consume->mutex);
    consume_count(thread, counts);
    cli_progress(&consume->progress, consume->received, 0);
    if (consume->report_ns && now_ns - consume->reported_ns >= consume->report_ns) {
        consume->reported_ns = now_ns;
        consume_print(consume, false);
    }
    if (consume->metrics && now_ns - consume->measured_ns >= CONSUME_METRICS_NS)
        consume_measure(consume);
    /* The rehearsal only checks the call. It must not receive messages. */
    stop = consume->code || consume->cli->rehearsal || atomic_load(consume->stop);
    pthread_mutex_unlock(&consume->mutex);
    return stop;
}

static void consume_note(const char *text, void *arg)
{
    struct consume_thread *thread = arg;

    pthread_mutex_lock(&thread->consume->mutex);
    cli_note(thread->consume->cli, "%s", text);
    pthread_mutex_unlock(&thread->consume->mutex);
}

static void consume_show(const bson_t *effect, void *arg)
{
    struct consume_thread *thread = arg;

    pthread_mutex_lock(&thread->consume->mutex);
    cli_print(effect, JSON_RELAXED);
    pthread_mutex_unlock(&thread->consume->mutex);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Runs a worker. The first failure of any worker becomes the exit code. */
static void *consume_run_thread(void *arg)
{
    struct consume_thread *thread = arg;
    struct consume *consume = thread->consume;
    truce_consume_options options = consume->call.options;
    truce_consume_counts counts;
    bson_error_t error = {0};
    truce_status status;

    options.arg = thread;
    options.slot = (uint32_t)thread->number;
    status = truce_consume(consume->cli->store, &options, &counts, &error);
    pthread_mutex_lock(&consume->mutex);
    consume_count(thread, &counts);
    if (status && !consume->code)
        consume->code = cli_error(consume->cli, NULL, status, &error);
    pthread_mutex_unlock(&consume->mutex);
    return NULL;
}

/* Runs the workers and waits for their end. If a thread cannot be started, runs fewer and prints a
 * note. */
static void consume_run_all(struct consume *consume)
{
    struct consume_thread threads[CONSUME_WORKERS_MAX];
    pthread_t ids[CONSUME_WORKERS_MAX];
    int count = 1; /* The main thread is the first worker. */

    for (int i = 0; i < consume->call.workers; i++)
        threads[i] = (struct consume_thread){consume, i};
    while (count < consume->call.workers &&
           !pthread_create(&ids[count], NULL, consume_run_thread, &threads[count]))
        count++;
    if (count < consume->call.workers)
        cli_note(consume->cli, "only %d of %d workers could be started", count,
                 consume->call.workers);
    consume_run_thread(&threads[0]);
    for (int i = 1; i < count; i++)
        pthread_join(ids[i], NULL);
}

/* ---- the call -------------------------------------------------------------------------------- */

static int consume_run(struct cli *cli)
{
    struct consume consume = {.cli = cli, .mutex = PTHREAD_MUTEX_INITIALIZER};
    truce_consume_counts sum;
    bson_error_t error;
    truce_status status;
    int64_t report_ms;
    int code = CLI_USAGE;

    status = cli_output_check(cli, cli_text(cli, "metrics"), cli->uri, &error);
    if (status)
        return cli_error(cli, NULL, status, &error);
    if (consume_options_read(cli, &consume.call) &&
        cli_duration(cli, "report", 1000, CONSUME_DAY_MS, 0, &report_ms))
        code = cli_store_open(
            cli, consume.call.options.dry_run ? CLI_STORE_DRY_RUN : CLI_STORE_WRITE, &cli->store);
    if (!code) {
        consume.report_ns = report_ms * INT64_C(1000000);
        consume.metrics =
            consume.call.options.dry_run || cli->rehearsal ? NULL : cli_text(cli, "metrics");
        consume.call.options.on_message = consume_show;
        consume.call.options.stop = consume_stop;
        consume.call.options.note = consume_note;
        consume.stop = cli_interrupt_stop();
        if (consume.metrics)
            consume_measure(&consume);
        cli_progress_begin(cli, &consume.progress, "messages");
        consume.started_ns = consume.reported_ns = truce__clock_monotonic_ns();
        consume_run_all(&consume);
        cli_progress_end(&consume.progress);
        if (consume.metrics)
            consume_measure(&consume);
        sum = consume_sum(&consume);
        if (!consume.call.options.dry_run && (!consume.code || sum.received))
            consume_print(&consume, true);
        code = consume.code ? consume.code : sum.rejected || sum.quarantined ? CLI_NO : CLI_DONE;
        code = cli_output_end(code);
    }
    consume_options_release(&consume.call);
    return code;
}

static const struct cli_command cli_consume = {
    .noun = "consume",
    .arguments = "[URL]",
    .summary = "apply the messages of a broker, exactly once in effect",
    .help =
        "URL is amqp://USER:PASSWORD@HOST/QUEUE for RabbitMQ (amqps:// with TLS), or\n"
        "kafka://HOST:PORT/TOPIC.\n"
        "The targets:\n"
        "  set:COLLECTION.LIST   operations of an ordered set   {operation, key, element, seq}\n"
        "  queue:QUEUE           jobs                           {with, unique, lane, ...}\n"
        "  upsert:COLLECTION     whole documents                {with, version}\n"
        "  merge:COLLECTION      revisions, which are merged    {with, version}\n"
        "  post:BOOK             transactions of a ledger       {id, with, meta}\n"
        "  commit                changes as in truce commit     [{insert: ...}, ...]\n"
        "\n"
        "--map is a template of these fields. \"$body.PATH\" and \"$headers.NAME\" are values of\n"
        "the message, {$expr: ...} is an aggregation expression, and any other value stays as\n"
        "it is. Fields that --map lacks have defaults. For example:\n"
        "  truce consume amqp://localhost/enrolments --into set:students.classes \\\n"
        "      --map '{element: \"$body.class\"}'\n"
        "\n"
        "One commit contains the effects of a batch of messages and a record of the messages.\n"
        "After the commit, the messages are acknowledged. If the command crashes in between, the\n"
        "broker sends them again, and the record prevents a second effect. The id of a message is\n"
        "its property message_id, or --id; in Kafka, it is the position.\n"
        "\n"
        "Messages that cannot be applied are stored in truce_rejects with the reason. Failures\n"
        "of the store and of the broker are retried with growing delays. SIGTERM and Ctrl-C end\n"
        "the command after the current batch. Exit code 1: some messages were rejected.\n"
        "\n"
        "See docs/brokers.md for mappings and guarantees.",
    .options =
        (const struct cli_option[]){
            {"into", 0, "TARGET", "what the messages change", false},
            {"url", 0, "URL", "the broker, in the file of --config", false},
            {"config", 0, "FILE", "read these options from a file", false},
            {"map", 0, "TEMPLATE", "template that maps a message to the fields of the target",
             false},
            {"id", 0, "PATH", "the message's id, for example $body.id", false},
            {"consumer", 0, "NAME", "name of the subscription (default: the queue or topic)",
             false},
            {"workers", 0, "N", "connections, up to 64 (default: 1)", false},
            {"batch", 0, "N", "messages of a commit, up to 5000 (default: 250; of sets: 4000)",
             false},
            {"linger", 0, "DURATION",
             "time to wait for more messages of a batch (default: 5ms to 50ms)", false},
            {"until-empty", 0, NULL, "exit when the broker has no more messages", false},
            {"limit", 'n', "N", "end after this many messages", false},
            {"dry-run", 0, NULL, "print what messages would do, and change nothing", false},
            {"replay", 0, NULL, "apply the consumer's messages in truce_rejects again", false},
            {"dead-letter", 0, "NAME", "also publish rejects to this exchange or topic", false},
            {"inbox-keep", 0, "DURATION",
             "remove records of older messages, and reject such messages", false},
            {"report", 0, "DURATION", "print the counts at this interval", false},
            {"metrics", 0, "FILE", "write the counts for Prometheus (textfile collector)", false},
            {0}},
    .example = "truce set define students --list classes --key student_id --name name\n"
               "truce consume amqp://localhost/enrolments --into set:students.classes --replay",
    /* The command opens the store itself: a dry run creates none. */
    .store = CLI_STORE_NONE,
    .run = consume_run,
};

/* ---- truce consumers ------------------------------------------------------------------------- */

static uint32_t consumers_count_workers(const bson_t *consumer)
{
    bson_iter_t at, workers;
    uint32_t count = 0;

    if (bson_iter_init_find(&at, consumer, "workers") && bson_iter_recurse(&at, &workers))
        while (bson_iter_next(&workers))
            count++;
    return count;
}

/* Prints a consumer of the list. A consumer without workers is stopped. */
static bool consumers_print(struct cli *cli, const bson_t *consumer)
{
    int64_t last_ms = truce__field_date(consumer, "lastMessage");
    uint32_t workers = consumers_count_workers(consumer);
    char state[120], last[60] = "no message yet";
    bson_iter_t at;

    if (last_ms)
        snprintf(last, sizeof last, "last message %" PRId64 " s ago",
                 (truce__clock_wall_ms() - last_ms) / 1000);
    if (!workers)
        snprintf(state, sizeof state, "stopped");
    else
        snprintf(state, sizeof state, "%s, %.0f/s", PLURAL(workers, "worker", "workers"),
                 bson_iter_init_find(&at, consumer, "rate") ? bson_iter_as_double(&at) : 0.0);
    if (bson_iter_init_find(&at, consumer, "waiting"))
        snprintf(state + strlen(state), sizeof state - strlen(state), ", %" PRId64 " waiting",
                 bson_iter_as_int64(&at));
    return cli_answer(
        cli, consumer, "%s: %s into %s: %s; %s, %" PRId64 " applied, %" PRId64 " rejected; %s",
        truce__field_text(consumer, "consumer"), truce__field_text(consumer, "source"),
        truce__field_text(consumer, "into"), state,
        PLURAL(truce__field_number(consumer, "received"), "message", "messages"),
        truce__field_number(consumer, "applied"), truce__field_number(consumer, "rejected"), last);
}

static const struct cli_command cli_consumers = {
    .noun = "consumers",
    .summary = "list the consumers of message brokers, in all processes",
    .help =
        "The counts are totals since the first message of a consumer, which is removed after a\n"
        "month without a worker. Workers report every five seconds. A consumer is stopped if no\n"
        "worker has reported for half a minute.",
    .example = "truce queue add mail '{to: \"ada@x.org\"}'\n"
               "truce consumers --json",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceConsumers",
                                   .list = "consumers",
                                   .print = consumers_print},
    .run = cli_row_run,
};

cli_command_list cli_consume_commands = {&cli_consume, &cli_consumers, NULL};
