#include "cli/document/doc_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "bson/json.h"
#include "bson/value.h"
#include "cli/core/pretty.h"

#define TEXT_MAX ((size_t)8 * TRUCE_DOCUMENT_BYTES_MAX)

/* ---- types ------------------------------------------------------------------------------------ */

static void copy_typed(struct value like, struct value value, const char *key, uint32_t key_length,
                       bson_t *to);

static void copy_fields(struct value like, struct value value, bson_t *to)
{
    for (struct fields fields = truce__fields(value); truce__fields_next(&fields);) {
        struct value same = truce__value_missing();

        if (like.type == value.type)
            same = truce__value_field(like, fields.key, fields.key_length);
        copy_typed(same, fields.value, fields.key, fields.key_length, to);
    }
}

static void copy_typed(struct value like, struct value value, const char *key, uint32_t key_length,
                       bson_t *to)
{
    bson_t inner;

    if (value.type == BSON_TYPE_DOCUMENT) {
        bson_append_document_begin(to, key, (int)key_length, &inner);
        copy_fields(like, value, &inner);
        bson_append_document_end(to, &inner);
    } else if (value.type == BSON_TYPE_ARRAY) {
        bson_append_array_begin(to, key, (int)key_length, &inner);
        copy_fields(like, value, &inner);
        bson_append_array_end(to, &inner);
    } else {
        bool same = value.type == BSON_TYPE_INT32 &&
                    (like.type == BSON_TYPE_INT64 || like.type == BSON_TYPE_DOUBLE) &&
                    truce__value_equal(like, value);

        truce__value_append(to, key, key_length, same ? like : value);
    }
}

void cli_keep_types(const bson_t *like, bson_t *document)
{
    bson_t made = BSON_INITIALIZER;

    copy_fields(truce__value_document(like), truce__value_document(document), &made);
    bson_destroy(document);
    bson_steal(document, &made);
}

/* ---- the text --------------------------------------------------------------------------------- */

static void edit_put(struct buffer *out, const char *text)
{
    truce__buffer_append(out, text, strlen(text));
}

/* Lines that begin with "#" are blanked, so that columns in errors stay right. No text of JSON goes
 * over the end of a line. */
static void blank_comments(char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");

        if (*text == '#')
            memset(text, ' ', length);
        text += length;
        text += *text == '\n';
    }
}

/* ---- the editor ------------------------------------------------------------------------------- */

static bool write_file(int descriptor, const struct buffer *text)
{
    for (size_t done = 0; done < text->size;) {
        ssize_t wrote = write(descriptor, text->bytes + done, text->size - done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        done += (size_t)wrote;
    }
    return true;
}

static bool run_editor(const char *path)
{
    int state = 0;
    pid_t child = fork();

    if (!child) {
        execl("/bin/sh", "sh", "-c", "exec ${VISUAL:-$EDITOR} \"$0\"", path, (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &state, 0) == child && !state;
}

/* The whole file, with a NUL behind; NULL: it cannot be read, or is too large. */
static char *edit_read_file(const char *path)
{
    struct buffer text = {0};
    FILE *file = fopen(path, "r");
    char part[8192];
    size_t got;
    bool good = file != NULL;
    char *all = NULL;

    while (good && (got = fread(part, 1, sizeof part, file)) > 0) {
        truce__buffer_append(&text, part, got);
        good = text.size <= TEXT_MAX;
    }
    if (good && !ferror(file)) {
        all = bson_malloc(text.size + 1);
        if (text.size)
            memcpy(all, text.bytes, text.size);
        all[text.size] = '\0';
    }
    if (file)
        fclose(file);
    truce__buffer_release(&text);
    return all;
}

/* A file that the editor wrote, or put another in the place of, has another time. */
static bool set_time(const char *path, time_t seconds)
{
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    return !utimensat(AT_FDCWD, path, times, 0);
}

static bool is_unsaved(const char *path)
{
    struct stat about;

    return !stat(path, &about) && about.st_mtim.tv_sec == 0 && about.st_mtim.tv_nsec == 0;
}

static bool has_markers(const char *text)
{
    return strstr(text, "<<<<<<< mine") || strstr(text, ">>>>>>> theirs");
}

static int edit_file(struct cli *cli, const char *path, const bson_t *document, bson_t *edited)
{
    char *text;
    int code = CLI_DONE;

    if (!set_time(path, 0))
        return cli_say(cli, CLI_FAILED, "%s cannot be written", path);
    if (!run_editor(path))
        return cli_say(cli, CLI_FAILED, "the editor failed; nothing is saved");
    if (is_unsaved(path))
        return cli_say(cli, CLI_NO, "the editor saved nothing; nothing is decided");
    text = edit_read_file(path);
    if (!text)
        return cli_say(cli, CLI_FAILED, "what the editor left in %s cannot be read", path);
    blank_comments(text);
    if (!text[strspn(text, " \t\r\n")])
        code = cli_say(cli, CLI_NO, "the edited document is empty; nothing is saved");
    else if (has_markers(text))
        code = cli_say(cli, CLI_NO, "there are still markers (<<<<<<< mine); nothing is saved");
    else if (!cli_document(cli, text, "the edited document", edited))
        code = CLI_USAGE;
    else
        cli_keep_types(document, edited);
    if (code == CLI_USAGE)
        bson_destroy(edited);
    bson_free(text);
    return code;
}

int cli_edit(struct cli *cli, const bson_t *document, const char *head, bson_t *edited)
{
    const char *base = getenv("TMPDIR");
    struct buffer text = {0};
    char path[200];
    int descriptor, code;

    if (!getenv("EDITOR") && !getenv("VISUAL"))
        return cli_usage(cli, "--edit needs the environment variable EDITOR");
    snprintf(path, sizeof path, "%.100s/truce-doc-XXXXXX.json", base ? base : "/tmp");
    descriptor = mkstemps(path, 5);
    if (descriptor < 0)
        return cli_say(cli, CLI_FAILED, "no file can be made as %s", path);
    edit_put(&text, head);
    cli_pretty(&text, document, false, JSON_RELAXED);
    if (write_file(descriptor, &text) && !close(descriptor))
        code = edit_file(cli, path, document, edited);
    else
        code = cli_say(cli, CLI_FAILED, "%s cannot be written", path);
    unlink(path);
    truce__buffer_release(&text);
    return code;
}
