/*
 * The scoreboard: truce and its peers do the same work with the same durability, in one run.
 *
 *     scoreboard [options]          the run
 *     scoreboard compare A B        which figures of two JSON files differ beyond noise
 *     scoreboard chart FILE         an SVG of a run, on the standard output
 *     scoreboard table FILE         the same as tables in Markdown; also main, short, servers,
 *                                   serve, growth
 *     scoreboard behind FILE...     in which lines of these runs a durable peer is faster
 *
 * For each workload, each target that supports it gets a process (side.c). It first runs for a
 * while with the most callers, so that its log reaches its final size. Each fsync of a growing log
 * waits for the file system's journal; an fsync of an overwritten log does not.
 *
 * Then, at each number of callers, all sides warm up and run in turn, round by round. Another side
 * begins each round, so that other load on the machine affects all sides alike. At the end each
 * side checks its data. An error there voids its figures, and the exit code is 1.
 */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare.h"
#include "bench/mongo.h"
#include "bench/report.h"

#define TARGETS_MAX 16
#define SIDES_MAX   20
#define NOISE       0.04 /* The noise of a figure that needs no more rounds. */

/* The seconds for all workloads against servers. A workload that has not begun by then is left
 * out. */
#define SERVERS_SECONDS 420

struct board {
    struct bench_target targets[TARGETS_MAX];
    int targets_count;
    const char *names[32]; /* The workloads to run. None means all. */
    int names_count;
    int callers[8], callers_count;
    /* The seconds of a workload before all others, until logs have their final size. */
    double run_in;
    double warm_up; /* The seconds of the warm-up at each number of callers. */
    struct conditions conditions;
    struct figures figures;
    const char *json;
    /* The only form to run. "main" means the forms without a name, and NULL means all. */
    const char *form;
    /* The seconds for all workloads together. 0 means no limit. */
    double budget;
    bool serve; /* Run only workloads with aims for `truce serve`. */
    /* Delete data before the checks, so that each side must become void. */
    bool spoil;
    bool failed;
};

/* ---- one workload ---------------------------------------------------------------------------- */

struct contest {
    struct board *board;
    const struct bench_workload *workload;
    struct side_process *sides[SIDES_MAX];
    const struct bench_form *forms[SIDES_MAX];
    struct bench_target *targets[SIDES_MAX];
    char why[SIDES_MAX][300]; /* The reason of a failure. */
    bool used[SIDES_MAX];     /* The side has run. */
    int count;
    int first; /* The number of its first figure. */
};

static int callers_most(const struct board *board)
{
    int most = 0;

    for (int i = 0; i < board->callers_count; i++)
        most = board->callers[i] > most ? board->callers[i] : most;
    return most;
}

static bool is_form_wanted(const struct board *board, const struct bench_target *target,
                           const struct bench_form *form)
{
    if (mongo_under_truce(target->name)[0] && form->name && !strcmp(form->name, "operator"))
        return false; /* The form is one of truce's own. */
    if (target->server_is_slow && form->name && !strcmp(form->name, "elements"))
        /* The form has a document for each element, and creating them takes minutes. */
        return false;
    return !board->form || !strcmp(board->form, form->name ? form->name : "main");
}

static void start_side(struct contest *contest, int i)
{
    (void)side_start(contest->workload, contest->forms[i], contest->targets[i],
                     callers_most(contest->board), &contest->sides[i], contest->why[i],
                     sizeof contest->why[i]);
}

/* Starts a side for each wanted form of the workload and each target that runs. */
static void start_sides(struct contest *contest)
{
    struct board *board = contest->board;

    for (int t = 0; t < board->targets_count; t++) {
        struct bench_target *target = &board->targets[t];
        const struct bench_form *form = contest->workload->forms;

        for (; form->target && !target->reason[0]; form++) {
            int i = contest->count;

            if (strcmp(form->target, target->kind->name) != 0 ||
                !is_form_wanted(board, target, form))
                continue;
            BENCH_CHECK(i < SIDES_MAX);
            contest->forms[i] = form;
            contest->targets[i] = target;
            contest->count++;
            start_side(contest, i);
        }
    }
}

static struct figure *new_figure(struct contest *contest, int side, int callers)
{
    struct figures *figures = &contest->board->figures;
    struct figure *figure;

    if (figures->count == figures->room) {
        figures->room = figures->room ? 2 * figures->room : 64;
        figures->all = bson_realloc(figures->all, (size_t)figures->room * sizeof *figures->all);
    }
    figure = &figures->all[figures->count++];
    memset(figure, 0, sizeof *figure);
    figure->workload = contest->workload;
    figure->form = contest->forms[side];
    figure->target = contest->targets[side];
    figure->callers = callers;
    return figure;
}

static void warm_up(struct contest *contest, int side, int callers, double seconds)
{
    const struct bench_round *round;

    if (contest->why[side][0] || seconds <= 0 || contest->workload->fresh)
        return;
    if (!side_run(contest->sides[side], callers, seconds, &round))
        snprintf(contest->why[side], sizeof contest->why[side], "%.290s", round->why);
}

/* Checks the data of a side, and ends it. */
static void end_side(struct contest *contest, int i)
{
    if (contest->board->spoil && !contest->why[i][0])
        BENCH_CHECK(side_spoil(contest->sides[i]));
    if (!contest->why[i][0])
        (void)side_check(contest->sides[i], contest->why[i], sizeof contest->why[i]);
    side_end(contest->sides[i]);
    contest->sides[i] = NULL;
}

/* Runs one round of a side, in a new process if the workload needs a fresh one. A side that has
 * failed is not run again. */
static void run_side(struct contest *contest, int side, int number, struct figure *figure)
{
    const struct bench_round *round;

    if (contest->workload->fresh && contest->used[side] && !contest->why[side][0]) {
        end_side(contest, side);
        if (!contest->why[side][0])
            start_side(contest, side);
    }
    if (contest->why[side][0])
        return;
    contest->used[side] = true;
    usage_disk(bench_directory(), contest->workload->reads ? 0 : 12, &figure->disk);
    if (!side_run(contest->sides[side], figure->callers, contest->board->conditions.seconds,
                  &round))
        snprintf(contest->why[side], sizeof contest->why[side], "%.290s", round->why);
    else
        figure_add(figure, number, round);
}

/* Returns whether the figure needs no round with this number. */
static bool is_settled(const struct contest *contest, int side, int number,
                       const struct figure *figure)
{
    int most = contest->targets[side]->kind->rounds_max;

    return contest->why[side][0] || (most > 0 && number >= most) ||
           (number >= contest->board->conditions.rounds_min && figure_noise(figure) < NOISE);
}

/* Returns the sides that need another round. The first side, the reference of the others, needs one
 * as long as any side does. */
static int scoreboard_choose(const struct contest *contest, int number,
                             const struct figure *figures, bool wanted[SIDES_MAX])
{
    int count = 0;

    for (int i = 0; i < contest->count; i++) {
        wanted[i] = !is_settled(contest, i, number, &figures[i]);
        count += wanted[i];
    }
    if (count > 0)
        wanted[0] = true;
    return count;
}

/* Runs the rounds with that many callers. In each round, another side is the first one. */
static void scoreboard_run_rounds(struct contest *contest, int callers)
{
    const struct conditions *conditions = &contest->board->conditions;
    int first = contest->board->figures.count;
    bool wanted[SIDES_MAX];
    struct figure *figures;

    for (int i = 0; i < contest->count; i++)
        new_figure(contest, i, callers);
    figures = &contest->board->figures.all[first];
    for (int i = 0; i < contest->count; i++)
        warm_up(contest, i, callers, contest->board->warm_up);
    for (int number = 0; number < conditions->rounds; number++) {
        if (scoreboard_choose(contest, number, figures, wanted) == 0)
            break;
        for (int k = 0; k < contest->count; k++) {
            int i = (k + number) % contest->count;

            if (wanted[i])
                run_side(contest, i, number, &figures[i]);
        }
    }
}

/* Checks each side. If the check fails, all figures of the side are void. */
static void check_sides(struct contest *contest)
{
    struct figures *figures = &contest->board->figures;

    for (int i = 0; i < contest->count; i++) {
        bool cannot;

        end_side(contest, i);
        if (contest->board->spoil && !contest->why[i][0]) {
            printf("%s, %s: data was lost, and the check did not notice\n", contest->workload->name,
                   contest->targets[i]->name);
            contest->board->failed = true;
        }
        if (!contest->why[i][0])
            continue;
        cannot = !strncmp(contest->why[i], SIDE_CANNOT, strlen(SIDE_CANNOT));
        /* Servers made for tests have faults of their own. Their figures are void, but the run does
         * not fail. */
        contest->board->failed |=
            !cannot && !contest->board->spoil && !contest->targets[i]->server_is_slow;
        for (int k = contest->first; k < figures->count; k++) {
            if (figures->all[k].form == contest->forms[i] &&
                figures->all[k].target == contest->targets[i]) {
                memcpy(figures->all[k].why, contest->why[i], sizeof contest->why[i]);
                figures->all[k].cannot = cannot;
            }
        }
    }
}

static void run_workload(struct board *board, const struct bench_workload *workload)
{
    struct contest *contest = bson_malloc0(sizeof *contest);

    contest->board = board;
    contest->workload = workload;
    contest->first = board->figures.count;
    start_sides(contest);
    for (int i = 0; i < contest->count && !workload->reads; i++)
        warm_up(contest, i, callers_most(board), board->run_in);
    for (int i = 0; i < board->callers_count; i++)
        scoreboard_run_rounds(contest, board->callers[i]);
    check_sides(contest);
    if (board->figures.count > contest->first)
        report_workload(&board->figures, contest->first);
    bson_free(contest);
}

/* ---- options --------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: scoreboard [--quick] [--check] [--servers | --serve] [--rounds N] [--seconds S] [--callers N,N,...]\n"
    "                  [--workload NAME]... [--target NAME]... [--form NAME] [--json FILE]\n"
    "                  [--processes] [--spoil] [--list]\n"
    "       scoreboard compare A.json B.json\n"
    "       scoreboard chart FILE.json\n"
    "       scoreboard table | main | short | servers | serve | growth FILE.json\n"
    "       scoreboard behind FILE.json...\n"
    "\n"
    "  --quick      short rounds: less than two minutes for everything\n"
    "  --check      only whether everybody's data is right: little data, one short round\n"
    "  --servers    beside, and over, servers of MongoDB's protocol instead: what TRUCE_BENCH_MONGODB\n"
    "               names, or those that the tests run against\n"
    "  --serve      \"truce serve\" alone, through libmongoc, with all of its lines\n"
    "  --processes  callers are processes, each with a connection or store of its own\n"
    "  --spoil      data is lost before the checks: every one of them must notice\n"
    "  --rounds     at most; fewer where three were quiet enough\n"
    "  --seconds    how long a round is; --callers: 1,8,32 if it is not said\n"
    "  --workload   only this one; --list names them\n"
    "  --target     truce, postgresql, sqlite, redis, truce-serve, secantusdb, mongo-java-server, mongodb (what\n"
    "               TRUCE_BENCH_MONGODB names), truce+secantusdb (truce over that server) ..., or a\n"
    "               store URI (memory:)\n"
    "  --form       journal, elements, jsonb, or main: those that have no name\n";

static _Noreturn void scoreboard_refuse(const char *argument)
{
    fprintf(stderr, "scoreboard: what is \"%s\"?\n%s", argument, usage);
    exit(2);
}

static void parse_callers(struct board *board, const char *text)
{
    board->callers_count = 0;
    while (*text) {
        char *end;
        long callers = strtol(text, &end, 10);

        if (callers < 1 || callers > BENCH_CALLERS_MAX || (*end && *end != ',') ||
            board->callers_count == 8)
            scoreboard_refuse(text);
        board->callers[board->callers_count++] = (int)callers;
        text = *end ? end + 1 : end;
    }
}

static void scoreboard_add_target(struct board *board, const char *name)
{
    static const struct target_kind *const kinds[] = {&target_truce, &target_postgres,
                                                      &target_sqlite, &target_redis};
    struct bench_target *target = &board->targets[board->targets_count];

    if (board->targets_count == TARGETS_MAX)
        scoreboard_refuse(name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(name, kinds[i]->name))
            target->kind = kinds[i];
    }
    if (!target->kind && mongo_is_server(name))
        target->kind = &target_mongo;
    if (!target->kind && (strchr(name, ':') || mongo_is_server(mongo_under_truce(name))))
        target->kind = &target_truce;
    if (!target->kind)
        scoreboard_refuse(name);
    target->name = name;
    board->targets_count++;
}

static void add_targets(struct board *board, const char *const names[])
{
    for (int i = 0; names[i]; i++)
        scoreboard_add_target(board, names[i]);
}

/* Adds servers of MongoDB's protocol, and truce over them: a real server, or those of the tests. */
static void add_servers(struct board *board)
{
    static const char *const real[] = {"truce", "mongodb", "truce+mongodb", NULL};
    static const char *const others[] = {
        "truce", "secantusdb", "truce+secantusdb", "mongo-java-server", "truce+mongo-java-server",
        NULL};

    add_targets(board, getenv("TRUCE_BENCH_MONGODB") ? real : others);
}

static void add_peers(struct board *board)
{
    static const char *const names[] = {"truce", "postgresql", "sqlite", "redis", NULL};

    add_targets(board, names);
}

static void set_rounds(struct board *board, int rounds)
{
    board->conditions.rounds_min = rounds < 3 ? rounds : 3;
    board->conditions.rounds = rounds;
}

static void set_lengths(struct board *board, int rounds, double seconds, double warm_up,
                        double run_in)
{
    board->run_in = run_in;
    set_rounds(board, rounds);
    board->conditions.seconds = seconds;
    board->warm_up = warm_up;
}

static void parse_valued(struct board *board, const char *option, const char *value)
{
    if (!strcmp(option, "--rounds"))
        set_rounds(board, (int)strtol(value, NULL, 10));
    else if (!strcmp(option, "--seconds"))
        board->conditions.seconds = strtod(value, NULL);
    else if (!strcmp(option, "--callers"))
        parse_callers(board, value);
    else if (!strcmp(option, "--workload") && board->names_count < 32)
        board->names[board->names_count++] = value;
    else if (!strcmp(option, "--target"))
        scoreboard_add_target(board, value);
    else if (!strcmp(option, "--form"))
        board->form = value;
    else if (!strcmp(option, "--json"))
        board->json = value;
    else
        scoreboard_refuse(option);
}

static void scoreboard_parse(struct board *board, int argc, char **argv)
{
    set_lengths(board, 7, 0.5, 0.2, 2.0);
    parse_callers(board, "1,8,32");
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            exit(0);
        } else if (!strcmp(argv[i], "--quick")) {
            board->conditions.quick = true;
            set_lengths(board, 2, 0.1, 0.03, 0.15);
            parse_callers(board, "1,32");
        } else if (!strcmp(argv[i], "--check")) {
            board->conditions.quick = true;
            bench_small = true;
            set_lengths(board, 1, 0.03, 0.01, 0);
            parse_callers(board, "8");
        } else if (!strcmp(argv[i], "--servers")) {
            set_lengths(board, 2, 0.3, 0, 0.3);
            board->budget = SERVERS_SECONDS;
            add_servers(board);
        } else if (!strcmp(argv[i], "--serve")) {
            board->serve = true;
            scoreboard_add_target(board, "truce-serve");
        } else if (!strcmp(argv[i], "--processes")) {
            bench_processes = true;
        } else if (!strcmp(argv[i], "--spoil")) {
            board->spoil = true;
        } else if (!strcmp(argv[i], "--list")) {
            for (int k = 0; bench_workloads[k]; k++)
                printf("%-18s %s\n", bench_workloads[k]->name, bench_workloads[k]->title);
            exit(0);
        } else if (i + 1 < argc) {
            parse_valued(board, argv[i], argv[i + 1]);
            i++;
        } else {
            scoreboard_refuse(argv[i]);
        }
    }
    if (board->conditions.rounds < 1 || board->conditions.rounds > BENCH_ROUNDS_MAX)
        scoreboard_refuse("--rounds");
    if (board->targets_count == 0)
        add_peers(board);
}

/* Returns whether the workload is to run. Without names, all run, but against servers only the most
 * informative ones. */
static bool scoreboard_is_wanted(const struct board *board, const struct bench_workload *workload)
{
    if (board->names_count == 0 && board->serve)
        return workload->aim_serve > 0;
    if (board->names_count == 0 && board->budget > 0)
        return workload->on_servers;
    for (int i = 0; i < board->names_count; i++) {
        if (!strcmp(board->names[i], workload->name))
            return true;
    }
    return board->names_count == 0;
}

static void refuse_unknown_names(const struct board *board)
{
    for (int i = 0; i < board->names_count; i++) {
        int k = 0;

        while (bench_workloads[k] && strcmp(bench_workloads[k]->name, board->names[i]) != 0)
            k++;
        if (!bench_workloads[k])
            scoreboard_refuse(board->names[i]);
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

static struct board the_board;
static pid_t the_process;

/* Stops the servers, however the harness ends. */
static void scoreboard_stop_targets(void)
{
    if (getpid() != the_process)
        return;
    for (int i = 0; i < the_board.targets_count; i++) {
        if (the_board.targets[i].server && the_board.targets[i].kind->stop)
            the_board.targets[i].kind->stop(&the_board.targets[i]);
    }
}

static void scoreboard_interrupted(int signal)
{
    (void)signal;
    exit(1);
}

static void scoreboard_start_targets(struct board *board)
{
    the_process = getpid();
    /* The directory is created first, so that it is removed last. */
    (void)bench_directory();
    atexit(scoreboard_stop_targets);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, scoreboard_interrupted);
    signal(SIGTERM, scoreboard_interrupted);
    for (int i = 0; i < board->targets_count; i++) {
        struct bench_target *target = &board->targets[i];

        if (target->kind->start)
            target->kind->start(target);
        if (target->reason[0])
            printf("skipped: %s: %s\n", target->name, target->reason);
    }
}

static void run_workloads(struct board *board)
{
    double began = bench_now();

    for (int i = 0; bench_workloads[i]; i++) {
        if (!scoreboard_is_wanted(board, bench_workloads[i]))
            continue;
        if (board->budget > 0 && bench_now() - began > board->budget)
            printf("left out: %s: the time is over\n", bench_workloads[i]->name);
        else
            run_workload(board, bench_workloads[i]);
    }
}

static int scoreboard_run(int argc, char **argv)
{
    struct board *board = &the_board;
    struct conditions *conditions = &board->conditions;

    scoreboard_parse(board, argc, argv);
    refuse_unknown_names(board);
    conditions->real_time = sched_getscheduler(0) == SCHED_RR;
    scoreboard_start_targets(board);
    usage_disk(bench_directory(), 1000, &conditions->before);
    run_workloads(board);
    usage_disk(bench_directory(), 1000, &conditions->after);
    if (!bench_small && !board->spoil)
        report_summary(&board->figures);
    report_conditions(conditions, board->targets, board->targets_count);
    if (board->json)
        report_json(&board->figures, conditions, board->targets, board->targets_count, board->json);
    bson_free(board->figures.all);
    return board->failed;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "compare"))
        return compare_files(argv[2], argv[3]);
    if (argc > 2 && !strcmp(argv[1], "behind"))
        return behind_files(argv + 2, argc - 2);
    if (argc == 3 && !strcmp(argv[1], "chart"))
        return chart_file(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "table"))
        return markdown_file(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "main"))
        return markdown_main(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "short"))
        return markdown_short(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "servers"))
        return markdown_servers(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "serve"))
        return markdown_serve(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "growth"))
        return markdown_growth(argv[2]);
    return scoreboard_run(argc, argv);
}
