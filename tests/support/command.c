#include "tests/support/command.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#define WORDS_MAX 40

static void words_of(const char *program, va_list list, char *words[WORDS_MAX + 2])
{
    int count = 0;

    words[count++] = (char *)program;
    while ((words[count] = va_arg(list, char *)) != NULL) {
        if (++count > WORDS_MAX)
            abort();
    }
}

/* Returns an unnamed file with the content `text`, open at its beginning. */
static int file_of(const char *text)
{
    int file = memfd_create("command", MFD_CLOEXEC);
    size_t size = strlen(text);

    if (file < 0 || write(file, text, size) != (ssize_t)size || lseek(file, 0, SEEK_SET) != 0)
        abort();
    return file;
}

static char *text_of(int file)
{
    off_t size = lseek(file, 0, SEEK_END);
    char *text = bson_malloc((size_t)size + 1);

    if (size < 0 || pread(file, text, (size_t)size, 0) != size)
        abort();
    text[size] = '\0';
    close(file);
    return text;
}

static _Noreturn void become(char **words, const char *store, const int files[3])
{
    if (store)
        setenv("TRUCE_STORE", store, 1);
    else
        unsetenv("TRUCE_STORE");
    /* Disables the counters of libmongoc in shared memory. A killed process leaves the file of its
     * counters, about which the next process would print a warning. */
    setenv("MONGOC_DISABLE_SHM", "1", 1);
    for (int i = 0; i < 3; i++) {
        if (dup2(files[i], i) < 0)
            _exit(126);
    }
    execv(words[0], words);
    _exit(127);
}

const struct command *command_run(const char *program, const char *store, const char *input, ...)
{
    static struct command result;
    const int files[3] = {file_of(input ? input : ""), file_of(""), file_of("")};
    char *words[WORDS_MAX + 2];
    va_list list;
    int status;
    pid_t child;

    va_start(list, input);
    words_of(program, list, words);
    va_end(list);
    fflush(NULL);
    child = fork();
    if (child == 0)
        become(words, store, files);
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    bson_free(result.out);
    bson_free(result.err);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    close(files[0]);
    result.out = text_of(files[1]);
    result.err = text_of(files[2]);
    return &result;
}

pid_t command_start(const char *program, const char *store, ...)
{
    char *words[WORDS_MAX + 2];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    va_list list;
    pid_t child;

    va_start(list, store);
    words_of(program, list, words);
    va_end(list);
    fflush(NULL);
    child = fork();
    if (child == 0)
        become(words, store, (const int[]){null, null, null});
    if (null < 0 || child < 0)
        abort();
    close(null);
    return child;
}

const struct command *command_check(const struct command *command, int code, const char *out,
                                    const char *err, const char *file, int line)
{
    test_check_int(code, command->code, command->code == code, "exit code", file, line);
    if (out && !strstr(command->out, out))
        test_fail(file, line, "standard output is \"%s\", not \"%s\"", command->out, out);
    if (err ? !strstr(command->err, err) : *command->err != '\0')
        test_fail(file, line, "standard error is \"%s\", not \"%s\"", command->err, err ? err : "");
    return command;
}
