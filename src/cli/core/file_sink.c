#include "cli/core/file_sink.h"
#include "cli/core/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static truce_status sink_cannot(const char *path, bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "cannot write %s: %s", path, strerror(errno));
}

/* Returns the folder: "a" for "a/b", "." for "b". The caller frees it. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return bson_strdup(".");
    return bson_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Returns the file that the name leads to, through links. The caller frees it. */
static char *sink_target_of(const char *path)
{
    char *whole = realpath(path, NULL), *copy = bson_strdup(whole ? whole : path);

    free(whole);
    return copy;
}

static int open_nameless(const char *path)
{
    char *folder = folder_of(path);
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);

    bson_free(folder);
    return file;
}

/* Opens a file with a temporary name, for file systems without unnamed files. */
static int open_named(struct sink *sink)
{
    mode_t mask = umask(0);
    int file;

    umask(mask);
    sink->temporary = bson_strdup_printf("%s.XXXXXX", sink->path);
    file = mkostemp(sink->temporary, O_CLOEXEC);
    if (file >= 0)
        /* On failure the file stays private, which is acceptable. */
        (void)fchmod(file, 0666 & ~mask);
    return file;
}

truce_status cli_sink_open(struct sink *sink, const char *path, bson_error_t *error)
{
    struct stat about;
    int file;

    *sink = (struct sink){0};
    if (!path || !strcmp(path, "-")) {
        sink->file = stdout;
        return TRUCE_OK;
    }
    if (!stat(path, &about) && !S_ISREG(about.st_mode)) {
        sink->file = fopen(path, "we");
        return sink->file ? TRUCE_OK : sink_cannot(path, error);
    }
    sink->path = sink_target_of(path);
    file = open_nameless(sink->path);
    if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        file = open_named(sink);
    sink->file = file < 0 ? NULL : fdopen(file, "w");
    if (sink->file)
        return TRUCE_OK;
    bson_free(sink->path);
    bson_free(sink->temporary);
    *sink = (struct sink){0};
    return sink_cannot(path, error);
}

/* Gives an unnamed file its name and replaces an existing file of that name. */
static bool name_it(struct sink *sink)
{
    char link[40], *beside;
    bool good;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fileno(sink->file));
    if (!linkat(AT_FDCWD, link, AT_FDCWD, sink->path, AT_SYMLINK_FOLLOW))
        return true;
    if (errno != EEXIST)
        return false;
    beside = bson_strdup_printf("%s.%ld~", sink->path, (long)getpid());
    unlink(beside);
    good =
        !linkat(AT_FDCWD, link, AT_FDCWD, beside, AT_SYMLINK_FOLLOW) && !rename(beside, sink->path);
    bson_free(beside);
    return good;
}

bool cli_sink_write(struct sink *sink, const void *bytes, size_t size)
{
    bool good;

    if (sink->file == stdout)
        return cli_write(bytes, size);
    good = fwrite(bytes, 1, size, sink->file) == size;
    if (!good && !sink->why)
        sink->why = errno;
    return good;
}

truce_status cli_sink_close(struct sink *sink, bool good, bson_error_t *error)
{
    bool written = true;
    int why = sink->why;
    truce_status status = TRUCE_OK;

    if (!sink->file || sink->file == stdout)
        return TRUCE_OK;
    if (good)
        written = !ferror(sink->file) && !fflush(sink->file);
    if (good && written && sink->path)
        written = !fsync(fileno(sink->file)) &&
                  (sink->temporary ? !rename(sink->temporary, sink->path) : name_it(sink));
    why = why ? why : errno;
    if (fclose(sink->file) != 0 && written && good) {
        why = errno;
        written = false;
    }
    if (good && !written)
        status = truce__fail(TRUCE_IO, error, "cannot write %s: %s",
                             sink->path ? sink->path : "the output", strerror(why));
    if (sink->temporary && (!good || !written))
        unlink(sink->temporary);
    bson_free(sink->path);
    bson_free(sink->temporary);
    *sink = (struct sink){0};
    return status;
}
