#include "server/net/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A log has no zero byte: a store, or another file that is no log, is not appended to. */
static bool log_file_is_text(int file)
{
    char start[512];
    ssize_t size = pread(file, start, sizeof start, 0);

    return size >= 0 && !memchr(start, 0, (size_t)size);
}

/* Nothing is written into a file by another name of it: the log is where its path says. */
truce_status log_file_open(const char *path, int *file, bson_error_t *error)
{
    int made = open(
        path, O_RDWR | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat facts;
    const char *wrong = NULL;

    *file = -1;
    if (made < 0 && errno == ELOOP)
        return truce__refuse(CODE_FILE_NOT_OPEN, error,
                             "the log %s is a symbolic link: name the file itself", path);
    if (made < 0)
        return truce__refuse(CODE_FILE_NOT_OPEN, error, "the log %s cannot be opened: %m", path);
    if (fstat(made, &facts) || !S_ISREG(facts.st_mode))
        wrong = "is not a file";
    else if (facts.st_nlink > 1)
        wrong = "has several names (hard links)";
    else if (!log_file_is_text(made))
        wrong = "is not a log: it has zero bytes";
    if (wrong) {
        close(made);
        return truce__refuse(CODE_FILE_NOT_OPEN, error, "the log %s %s", path, wrong);
    }
    *file = made;
    return TRUCE_OK;
}

truce_status log_file_move(const char *path, int64_t now_ms, bson_error_t *error)
{
    time_t now = (time_t)(now_ms / 1000);
    char moment[32], *target;
    truce_status status = TRUCE_OK;
    struct tm parts;

    gmtime_r(&now, &parts);
    strftime(moment, sizeof moment, "%Y-%m-%dT%H-%M-%S", &parts);
    target = bson_strdup_printf("%s.%s", path, moment);
    if (!access(target, F_OK))
        status = truce__refuse(CODE_FILE_RENAME_FAILED, error,
                               "the log cannot be moved: %s is there", target);
    else if (rename(path, target) && errno != ENOENT)
        status = truce__refuse(CODE_FILE_RENAME_FAILED, error, "the log cannot be moved to %s: %m",
                               target);
    bson_free(target);
    return status;
}
