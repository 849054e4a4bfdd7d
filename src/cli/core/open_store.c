/*
 * Chooses the store, and opens it.
 *
 * The store comes from --store, from the line `store` in the file of --config, or from the
 * environment variable TRUCE_STORE, in this order. Commands that have a store as their argument
 * (copy, archive, doctor) use the argument.
 *
 * A refused call must not create a store. If the file does not exist yet, a child process first
 * runs the rest of the command on an empty store in memory and captures what it prints. An empty
 * file gives the same results as an empty store in memory. If the child is refused, or it changes
 * nothing and exits with 1, its output is the final output and no file is created. The results of a
 * refused child are not printed, because they describe documents that are not stored. Otherwise,
 * the file is created and this process runs the command.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cli/core/interrupt.h"
#include "cli/core/slow_option.h"
#include "cli/core/view_lookup.h"
#include "cli/core/worker_pool.h"
#include "store/namespace_map.h"

/* The exit code of a child whose result is CLI_NO and whose store stayed empty. */
#define NOTHING_CHANGED 101
#define REACHABLE_MS    4000

const char *cli_store_path(const char *uri)
{
    if (!strncmp(uri, "file:", 5))
        return uri + 5;
    return !strncmp(uri, "memory:", 7) || !strncmp(uri, "mongodb:", 8) ||
                   !strncmp(uri, "mongodb+srv:", 12)
               ? NULL
               : uri;
}

void cli_store_choose(struct cli *cli, const char *option)
{
    const char *variable = getenv("TRUCE_STORE");

    cli->uri_given = option != NULL;
    cli->uri = option ? option : variable && *variable ? variable : NULL;
}

bool cli_store_is_server(const char *uri)
{
    return !strncmp(uri, "mongodb://", 10) || !strncmp(uri, "mongodb+srv://", 14);
}

static int open_failed(const struct cli *cli, truce_status status, const bson_error_t *error)
{
    bson_error_t shown = *error;
    size_t length = strlen(shown.message);

    if (status == TRUCE_CORRUPT && strstr(shown.message, "damaged") &&
        !strstr(shown.message, "salvage"))
        snprintf(shown.message + length, sizeof shown.message - length,
                 "; restore a backup or an archive, or rescue what is readable with truce salvage");
    cli_error(cli, NULL, status, &shown);
    return status == TRUCE_INVALID ? CLI_USAGE : CLI_FAILED;
}

/* ---- the rehearsal ------------------------------------------------------------------------- */

static void copy_out(int from, FILE *to)
{
    char bytes[4096];
    ssize_t got;

    for (off_t at = 0; (got = pread(from, bytes, sizeof bytes, at)) > 0; at += got)
        fwrite(bytes, 1, (size_t)got, to); /* cli_output_end checks ferror. */
    fflush(to);
}

/* Opens an empty store in memory in the place of the file. Returns CLI_DONE, or an exit code after
 * printing the error. */
static int open_in_memory(const struct cli *cli, truce_store **store)
{
    bson_error_t error;
    truce_status status = truce_store_open(
        "memory:", &(truce_store_options){.database = cli->database}, store, &error);

    return status ? open_failed(cli, status, &error) : CLI_DONE;
}

/* Turns this process, the child, into the rehearsal. Returns CLI_DONE, or an exit code after
 * printing the error. */
static int become_rehearsal(struct cli *cli, int out, int err, truce_store **store)
{
    cli->rehearsal = true;
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
        return CLI_FAILED;
    return open_in_memory(cli, store);
}

/* Waits for the child. If its output is final, prints it, sets *done, and returns the exit code. The
 * results of a refused call are not printed. */
static int open_take_answer(pid_t child, int out, int err, bool *done)
{
    int state = 0;

    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        continue;
    *done = WIFEXITED(state) &&
            (WEXITSTATUS(state) == CLI_USAGE || WEXITSTATUS(state) == NOTHING_CHANGED);
    if (!*done)
        return CLI_DONE;
    if (WEXITSTATUS(state) == NOTHING_CHANGED)
        copy_out(out, stdout);
    copy_out(err, stderr);
    return WEXITSTATUS(state) == CLI_USAGE ? CLI_USAGE : CLI_NO;
}

/* Runs the rehearsal. In the child, `*store` is open on return. */
static int open_rehearse(struct cli *cli, truce_store **store, bool *done)
{
    int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
    pid_t child = -1;
    int code = CLI_DONE;

    *done = false;
    if (out >= 0 && err >= 0)
        child = pool_fork();
    if (!child)
        code = become_rehearsal(cli, out, err, store);
    if (!child && code)
        _exit(code);
    if (child > 0)
        code = open_take_answer(child, out, err, done);
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    return code;
}

int cli_rehearsal_end(struct cli *cli, int code)
{
    bson_t collections;

    if (!cli->rehearsal || code != CLI_NO)
        return code;
    if (!truce_collection_list(cli->store, &(truce_list_options){.unmeasured = true}, &collections,
                               NULL) &&
        bson_empty(&collections))
        code = NOTHING_CHANGED;
    bson_destroy(&collections);
    return code;
}

/* ---- views --------------------------------------------------------------------------------- */

/* Finds out whether the collection of the call is a view of the file, and refuses it for a command
 * that does not read views. The store does not know views: without this check, a command would find
 * nothing, or create a collection under the view. */
static int open_check_view(struct cli *cli, truce_store *store)
{
    const char *name = cli->arguments[0];

    if (strncmp(cli->command->arguments ? cli->command->arguments : "", "COLLECTION", 10) != 0 ||
        !cli_store_path(cli->uri) || cli->creates_store || !name || !cli_view_is(store, name))
        return CLI_DONE;
    cli->is_view = true;
    return cli->command->reads_views
               ? CLI_DONE
               : cli_usage(cli,
                           "\"%s\" is a view, not a collection: find, count, distinct, aggregate, "
                           "explain, and export read it, and no command writes to it",
                           name);
}

/* ---- the store ----------------------------------------------------------------------------- */

/* Checks that the server can be reached at all. Later calls may wait longer, for example during the
 * election of a primary. */
static int open_reach(const struct cli *cli)
{
    const truce_store_options options = {
        .deadline_ms =
            cli->deadline_ms && cli->deadline_ms < REACHABLE_MS ? cli->deadline_ms : REACHABLE_MS,
        .database = cli->database,
        .read_only = true};
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status = truce_store_open(cli->uri, &options, &store, &error);

    truce_store_close(store);
    return status ? open_failed(cli, status, &error) : CLI_DONE;
}

/* Refuses the name of a side file of another store (a.truce-wal), unless it is an existing store
 * and the other one does not exist. */
static int open_check_side_file(const struct cli *cli)
{
    static const char *const suffixes[] = {"-wal", "-shm", "-lock", "-journal"};
    const char *path = cli_store_path(cli->uri);
    size_t length = path ? strlen(path) : 0;

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t size = strlen(suffixes[i]);
        char *other;
        int code = CLI_DONE;

        if (length <= size || strcmp(path + length - size, suffixes[i]) != 0)
            continue;
        other = bson_strndup(path, length - size);
        if (access(other, F_OK) == 0 || access(path, F_OK) != 0)
            code =
                cli_usage(cli, "%s is the name of a side file of the store %s: choose another name",
                          path, other);
        bson_free(other);
        return code;
    }
    return CLI_DONE;
}

/* Returns whether this process may not write the store's file. */
static bool open_is_protected(const struct cli *cli)
{
    const char *path = cli_store_path(cli->uri);

    return path && access(path, W_OK) != 0;
}

/* Opens the store. For CLI_STORE_MAY_CHANGE, the store is opened read-only if it cannot be opened
 * for writing. For example, its folder is protected, or the user of a server has only the role
 * read. */
static truce_status open_for(const struct cli *cli, enum cli_store_use use,
                             truce_store_options *options, truce_store **store, bson_error_t *error)
{
    truce_status status = truce_store_open(cli->uri, options, store, error);

    if (use != CLI_STORE_MAY_CHANGE || options->read_only ||
        (status != TRUCE_IO && status != TRUCE_INVALID))
        return status;
    options->read_only = true;
    return truce_store_open(cli->uri, options, store, error);
}

int cli_store_open(struct cli *cli, enum cli_store_use wanted, truce_store **store)
{
    const enum cli_store_use use = wanted != CLI_STORE_UPSERT ? wanted
                                   : cli_flag(cli, "upsert")  ? CLI_STORE_WRITE
                                                              : CLI_STORE_CHANGE;
    const truce_store_hooks hooks = cli_slow_hooks(cli);
    truce_store_options options = {
        .hooks = &hooks,
        .read_only = use == CLI_STORE_READ || use == CLI_STORE_DRY_RUN ||
                     (use == CLI_STORE_MAY_CHANGE && cli->uri && open_is_protected(cli)),
        .must_exist = use != CLI_STORE_WRITE && use != CLI_STORE_INPUT && use != CLI_STORE_DRY_RUN,
        .deadline_ms = cli->deadline_ms,
        .database = cli->database,
    };
    struct stat about;
    bson_error_t error;
    truce_status status;
    bool done = false;
    int64_t before;
    int code = CLI_DONE;

    *store = NULL;
    if (!cli->uri)
        return cli_usage(cli, "no store is given: use --store FILE, or set TRUCE_STORE");
    if (!strcmp(cli->uri, "memory:") && options.must_exist)
        return cli_usage(cli, "a memory: store is empty at the beginning of each command: use "
                              "--store FILE");
    code = open_check_side_file(cli);
    if (!code && cli->database && truce__database_name_check(cli->database, &error))
        code = open_failed(cli, TRUCE_INVALID, &error);
    if (code)
        return code;
    cli->creates_store = !options.must_exist && cli_store_path(cli->uri) &&
                         stat(cli_store_path(cli->uri), &about) != 0 && errno == ENOENT;
    if (cli->creates_store && use == CLI_STORE_WRITE)
        code = open_rehearse(cli, store, &done);
    else if (use == CLI_STORE_DRY_RUN && (cli->creates_store || !strcmp(cli->uri, "memory:")))
        code = open_in_memory(cli, store);
    if (done || code || *store)
        return code;
    before = truce_deadline_begin(cli->deadline_ms);
    if (cli_store_is_server(cli->uri))
        code = open_reach(cli);
    status = code ? TRUCE_OK : open_for(cli, use, &options, store, &error);
    truce_deadline_end(before);
    if (code)
        return code;
    /* With CLI_STORE_INPUT, Ctrl-C kills the command and its workers, and the next run resumes. */
    if (!status && use != CLI_STORE_INPUT)
        cli_interrupt_watch(*store);
    return status ? open_failed(cli, status, &error) : open_check_view(cli, *store);
}
