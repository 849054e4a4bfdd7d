#include "tests/support/kept_log.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/test.h"

static struct log *log_;
static int file = -1;

struct log *kept_log_new(void)
{
    file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    log_ = log_new(&(struct log_options){.file = file, .json = true});
    return log_;
}

void kept_log_free(void)
{
    log_free(log_);
    close(file);
    log_ = NULL;
    file = -1;
}

char *kept_log_text(void)
{
    off_t size = lseek(file, 0, SEEK_END);
    char *text = bson_malloc0((size_t)size + 1);

    CHECK(pread(file, text, (size_t)size, 0) == size);
    return text;
}

/* Returns the number of lines with the message. If `last` is not NULL, parses the last of them. */
static int look_for(const char *message, bson_t **last)
{
    char *text = kept_log_text(), *sought = bson_strdup_printf("\"message\": \"%s\"", message);
    int count = 0;

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strstr(line, sought))
            continue;
        count++;
        if (last) {
            if (*last)
                bson_destroy(*last);
            *last = bson_new_from_json((const uint8_t *)line, -1, NULL);
            CHECK(*last);
        }
    }
    bson_free(sought);
    bson_free(text);
    return count;
}

int kept_log_count(const char *message)
{
    return look_for(message, NULL);
}

bson_t *kept_log_last(const char *message)
{
    bson_t *last = NULL;

    look_for(message, &last);
    return last;
}

void kept_log_wait(const char *message, int count)
{
    for (int i = 0; i < 3000 && kept_log_count(message) < count; i++)
        truce__clock_sleep_ms(10);
    CHECK(kept_log_count(message) >= count);
}
