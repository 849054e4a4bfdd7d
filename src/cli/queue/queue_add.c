/* truce queue add, and the options that jobs have wherever they come from. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/queue/queue_options.h"

static bool read_conflict_policy(const struct cli *cli, truce_conflict_policy *on_conflict)
{
    static const char *const names[] = {"ignore", "replace", "reschedule", "refuse"};
    const char *text = cli_text(cli, "on-conflict");

    *on_conflict = TRUCE_ON_CONFLICT_IGNORE;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++) {
        if (!strcmp(text, names[i])) {
            *on_conflict = (truce_conflict_policy)i;
            return true;
        }
    }
    if (text)
        cli_usage(cli, "--on-conflict is ignore, replace, reschedule or refuse, and not \"%s\"",
                  text);
    return !text;
}

bool cli_job_failure(const struct cli *cli, const char *text, truce_job_failure *failure)
{
    static const char *const names[] = {"cancel", "go-on", "wait"};

    *failure = TRUCE_FAILURE_CANCEL;
    for (size_t i = 0; text && *text && i < sizeof names / sizeof *names; i++) {
        *failure = (truce_job_failure)i;
        if (!strcmp(text, names[i]))
            return true;
    }
    if (text && *text)
        cli_usage(cli, "a failure means cancel, go-on or wait, and not \"%s\"", text);
    return !text || !*text;
}

/* What the options borrow: the ids of others. */
struct others {
    bson_oid_t after[CLI_OPTIONS_MAX], batch;
};

static bool read_others(const struct cli *cli, truce_job_options *options, struct others *others)
{
    bool good = cli_job_failure(cli, cli_text(cli, "failure"), &options->failure);

    if (good && cli_text(cli, "failure") && !cli_texts(cli, "after", 0) && !cli_flag(cli, "open")) {
        cli_usage(
            cli, "--failure speaks of the jobs that --after names, or of those of an --open batch");
        good = false;
    }
    for (const char *text; good && (text = cli_texts(cli, "after", (int)options->after_count));)
        good = cli_job_id(cli, text, &others->after[options->after_count++]);
    if (good && cli_text(cli, "batch"))
        good = cli_job_id(cli, cli_text(cli, "batch"), &others->batch);
    options->after = others->after;
    options->batch = cli_text(cli, "batch") ? &others->batch : NULL;
    options->open = cli_flag(cli, "open");
    options->name = cli_text(cli, "name");
    return good;
}

bool cli_job_options(const struct cli *cli, truce_job_options *options, bson_t *metadata,
                     bson_t *tags)
{
    int64_t priority, attempts, timeout;
    bool given, good = cli_number(cli, "priority", -1000, 1000, 0, &priority);
    int count = 0;

    good &= cli_number(cli, "attempts", 1, INT32_MAX, 0, &attempts);
    good &= cli_number(cli, "timeout", 1, INT32_MAX, 0, &timeout);
    good &= cli_number(cli, "keep", -1, INT64_C(1) << 48, 0, &options->keep_ms);
    good &= cli_number(cli, "keep-cancelled", -1, INT64_C(1) << 48, 0, &options->keep_cancelled_ms);
    good &= cli_number(cli, "keep-discarded", -1, INT64_C(1) << 48, 0, &options->keep_discarded_ms);
    good &= cli_number(cli, "keep-dead", -1, INT64_C(1) << 48, 0, &options->keep_dead_ms);
    good &= cli_option_document(cli, "metadata", metadata, &given);
    for (const char *tag; (tag = cli_texts(cli, "tag", count)); count++) {
        char key[12];

        bson_snprintf(key, sizeof key, "%d", count);
        BSON_APPEND_UTF8(tags, key, tag);
    }
    options->priority = (int32_t)priority;
    options->attempts_max = (uint32_t)attempts;
    options->timeout_ms = (uint32_t)timeout;
    options->metadata = given ? metadata : NULL;
    options->tags = count ? tags : NULL;
    return good;
}

bool cli_rate(const struct cli *cli, const char *text, uint32_t *jobs, uint32_t *per_ms)
{
    static const struct {
        const char *unit;
        uint32_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    unsigned long long rate, period = 1;
    char unit[4] = "";

    *jobs = *per_ms = 0;
    if (!text)
        return true;
    if (sscanf(text, "%9llu/%9llu%3s", &rate, &period, unit) < 3 &&
        sscanf(text, "%9llu/%3s", &rate, unit) < 2)
        rate = 0;
    for (size_t i = 0; rate && i < sizeof units / sizeof *units; i++) {
        if (!strcmp(unit, units[i].unit) && period && period <= UINT32_MAX / units[i].ms) {
            *jobs = (uint32_t)rate;
            *per_ms = (uint32_t)period * units[i].ms;
            return true;
        }
    }
    cli_usage(cli,
              "a rate is so many jobs in so long, for example 100/1m (ms, s, m, h), and not \"%s\"",
              text);
    return false;
}

/* Those of a job that is added now. */
static bool queue_add_read_options(const struct cli *cli, truce_job_options *options,
                                   bson_t *metadata, bson_t *tags)
{
    bool good = cli_job_options(cli, options, metadata, tags);
    int64_t width = 0;

    good &= cli_number(cli, "delay", 0, INT64_C(1) << 48, 0, &options->delay_ms);
    good = good && cli_date(cli, "at", &options->run_at_ms);
    good &= cli_number(cli, "period", 1, INT64_C(1) << 48, 0, &options->unique_period_ms);
    good = good && read_conflict_policy(cli, &options->on_conflict);
    good = good && cli_number(cli, "width", 1, INT32_MAX, 0, &width);
    good = good && cli_rate(cli, cli_text(cli, "rate"), &options->lane_rate, &options->lane_per_ms);
    options->lane = cli_text(cli, "lane");
    options->lane_width = good ? (uint32_t)width : 0;
    options->unique = cli_text(cli, "unique");
    options->unique_payload = cli_flag(cli, "unique-payload");
    options->unique_scope = cli_flag(cli, "once")        ? TRUCE_UNIQUE_KEPT
                            : cli_flag(cli, "unclaimed") ? TRUCE_UNIQUE_UNCLAIMED
                                                         : TRUCE_UNIQUE_LIVE;
    if (good && cli_flag(cli, "once") && cli_flag(cli, "unclaimed")) {
        cli_usage(cli, "--once and --unclaimed do not go together");
        return false;
    }
    return good;
}

static int queue_add_add_one(struct cli *cli, truce_queue *queue, const bson_t *payload,
                             const truce_job_options *options)
{
    bson_t answer = BSON_INITIALIZER;
    truce_job_added added;
    bson_error_t error;
    char id[25];
    truce_status status = truce_queue_add(queue, NULL, payload, options, &added, &error);

    bson_oid_to_string(&added.id, id);
    BSON_APPEND_OID(&answer, "job", &added.id);
    BSON_APPEND_UTF8(&answer, "added", truce_added_name(added.added));
    if (!status)
        cli_answer(cli, &answer, "%s %s", truce_added_name(added.added), id);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int queue_add_run_add(struct cli *cli)
{
    truce_queue *queue = cli_queue_open(cli, cli->arguments[0]);
    truce_job_options options = {0};
    bson_t metadata, tags = BSON_INITIALIZER;
    struct others others;
    int code = queue_add_read_options(cli, &options, &metadata, &tags) ? CLI_DONE : CLI_USAGE;

    if (!code && !read_others(cli, &options, &others))
        code = CLI_USAGE;

    for (int i = 1; i < cli->count && !code; i++) {
        bson_t payload;

        code = cli_document(cli, cli->arguments[i], "PAYLOAD", &payload)
                   ? queue_add_add_one(cli, queue, &payload, &options)
                   : CLI_USAGE;
        bson_destroy(&payload);
    }
    bson_destroy(&metadata);
    bson_destroy(&tags);
    truce_queue_free(queue);
    return code;
}

const struct cli_command cli_queue_add = {
    .noun = "queue",
    .verb = "add",
    .arguments = "QUEUE PAYLOAD...",
    .summary = "add jobs to a queue",
    .help =
        "PAYLOAD is a document. With --unique a job that meets a live one of its key adds\n"
        "nothing, or does what --on-conflict says: ignore, replace, reschedule, refuse. With --once\n"
        "a key counts as long as its job is kept, done or not: such an add may be repeated. With\n"
        "--unclaimed one that runs has no key any more: what is said meanwhile is done once more.\n"
        "Prints the job's id.",
    .example = "truce queue add people '{command: \"ADD_FRIEND\", users: [1, 2]}'\n"
               "truce queue add mail '{to: \"ada@x.org\"}' --unique ada --delay 60000",
    .options =
        (const struct cli_option[]){
            {"delay", 0, "MS", "not before so long", false},
            {"at", 0, "TIME", "or not before that time (2026-12-24T18:00:00Z)", false},
            {"priority", 0, "NUMBER", "-1000 to 1000, the highest first (0)", false},
            {"attempts", 0, "NUMBER", "dead after so many failures (10)", false},
            {"timeout", 0, "MS", "of one attempt (none)", false},
            {"keep", 0, "MS", "after it is done; -1: for ever (7 days)", false},
            {"keep-cancelled", 0, "MS", "after it was cancelled (--keep)", false},
            {"keep-discarded", 0, "MS", "after it was discarded (--keep)", false},
            {"keep-dead", 0, "MS", "as a dead letter (for ever)", false},
            {"metadata", 0, "DOCUMENT", "kept in the job", false},
            {"tag", 0, "TEXT", "kept in the job (many)", true},
            {"name", 0, "NAME", "for people: of a step of a workflow", false},
            {"after", 0, "ID", "not before that job has ended (many)", true},
            {"failure", 0, "WHAT", "if one of these fails: cancel, go-on, wait (cancel)", false},
            {"open", 0, NULL, "it closes a batch, until truce queue close", false},
            {"batch", 0, "ID", "the job that closes its batch", false},
            {"lane", 0, "NAME", "its jobs run one after the other", false},
            {"width", 0, "N", "so many of the lane at a time (1)", false},
            {"rate", 0, "N/TIME", "so many of the lane begin in a time: 10/1m", false},
            {"unique", 0, "KEY", "the key of a unique job", false},
            {"unique-payload", 0, NULL, "the payload is the key", false},
            {"period", 0, "MS", "one job of the key in each period", false},
            {"once", 0, NULL, "the key counts while its job is kept", false},
            {"unclaimed", 0, NULL, "the key counts until a worker has its job", false},
            {"on-conflict", 0, "POLICY", "ignore, replace, reschedule, refuse (ignore)", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = queue_add_run_add,
};
