/*
 * Refuses to write a file that the call itself needs: a file of its store, or a file that it reads.
 * A slip in a command line or a configuration file must not damage data.
 *
 * Two names mean the same file if they lead to one inode, through any names and links. If one of
 * the files does not exist yet, they are the same if they have the same name in the same folder.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/core/cli.h"

#define LINKS_MAX 40

/* Writes the full name of a file, which need not exist, into `whole`. Resolves its folder and
 * links. */
static bool resolve_name(const char *path, char whole[PATH_MAX])
{
    char named[PATH_MAX], folder[PATH_MAX], target[PATH_MAX];
    ssize_t length = 0;

    if (snprintf(named, sizeof named, "%s", path) >= PATH_MAX)
        return false;
    for (int links = 0; links < LINKS_MAX && length >= 0; links++) {
        char *slash = strrchr(named, '/'), *name = slash ? slash + 1 : named;

        if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash + 1 - named) : 1,
                     slash ? named : ".") >= PATH_MAX ||
            !realpath(folder, target) ||
            snprintf(whole, PATH_MAX, "%s/%s", target, name) >= PATH_MAX)
            return false;
        length = readlink(whole, target, sizeof target - 1);
        if (length < 0)
            break; /* The name is not a link. */
        target[length] = 0;
        if (target[0] == '/')
            snprintf(named, sizeof named, "%s", target);
        else if (snprintf(named, sizeof named, "%.*s/%s", (int)(strrchr(whole, '/') - whole), whole,
                          target) >= PATH_MAX)
            return false;
    }
    return length < 0;
}

static bool check_is_same_file(const char *one, const char *other)
{
    struct stat a, b;
    char a_name[PATH_MAX], b_name[PATH_MAX];

    if (!stat(one, &a) && !stat(other, &b))
        return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return resolve_name(one, a_name) && resolve_name(other, b_name) && !strcmp(a_name, b_name);
}

/* Returns true for the store itself and for the files that SQLite and truce keep next to it. */
static bool is_of_store(const char *path, const char *store)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock", "-journal"};
    char *resolved = realpath(store, NULL);
    bool same = false;

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && !same; i++) {
        char *named = bson_strdup_printf("%s%s", store, suffixes[i]),
             *real = bson_strdup_printf("%s%s", resolved ? resolved : store, suffixes[i]);

        same = check_is_same_file(path, named) || check_is_same_file(path, real);
        bson_free(named);
        bson_free(real);
    }
    free(resolved);
    return same;
}

/* Returns true if the command declares its i-th argument as the name of a file: "COLLECTION
 * [FILE]". */
static bool names_file(const struct cli_command *command, int number)
{
    const char *word = command->arguments;

    while (word && number--) {
        word = strchr(word, ' ');
        word = word ? word + 1 : NULL;
    }
    word = word ? word + strspn(word, "[") : NULL;
    return word && (!strncmp(word, "FILE", 4) || !strncmp(word, "PATH", 4));
}

static truce_status refuse_output(const char *path, const char *what, const char *needed,
                                  bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "cannot write %s: it is %s %s; name another file",
                       path, what, needed);
}

truce_status cli_output_check(const struct cli *cli, const char *path, const char *store,
                              bson_error_t *error)
{
    const char *file = store ? cli_store_path(store) : NULL;

    if (!path || !strcmp(path, "-"))
        return TRUCE_OK;
    if (file && is_of_store(path, file))
        return refuse_output(path, "a file of the store", file, error);
    for (int i = 0; i < cli->count; i++)
        if (cli->arguments[i] != path && names_file(cli->command, i) &&
            check_is_same_file(path, cli->arguments[i]))
            return refuse_output(path, "the file", cli->arguments[i], error);
    for (int i = 0; i < cli->given_count; i++) {
        const struct cli_given *given = &cli->given[i];

        if (given->value && given->value != path && given->option->value &&
            !strcmp(given->option->value, "FILE") && check_is_same_file(path, given->value))
            return refuse_output(path, "also the file of the option", given->option->name, error);
    }
    return cli->config_path && check_is_same_file(path, cli->config_path)
               ? refuse_output(path, "the file of options", cli->config_path, error)
               : TRUCE_OK;
}
