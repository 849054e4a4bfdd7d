#include "bench/redis.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ITEMS_MAX 256

struct redis {
    int socket;
    char *out, *in;
    size_t out_size, out_room;
    /* The input: the bytes that were read, the allocated size, and the bytes that replies have
     * used. */
    size_t in_size, in_room, in_taken;
    struct redis_item items[ITEMS_MAX];
    int count;
};

/* ---- sending --------------------------------------------------------------------------------- */

static void redis_put(struct redis *redis, const char *bytes, size_t size)
{
    if (redis->out_size + size > redis->out_room) {
        redis->out_room = 2 * (redis->out_size + size);
        redis->out = bson_realloc(redis->out, redis->out_room);
    }
    memcpy(redis->out + redis->out_size, bytes, size);
    redis->out_size += size;
}

static void redis_put_header(struct redis *redis, char type, size_t number)
{
    char text[32];

    redis_put(redis, text, (size_t)snprintf(text, sizeof text, "%c%zu\r\n", type, number));
}

static void queue(struct redis *redis, const char *format, va_list arguments)
{
    char line[4096], *word = line;
    size_t words = 1;
    int size = vsnprintf(line, sizeof line, format, arguments);

    BENCH_CHECK(size >= 0 && size < (int)sizeof line);
    for (const char *at = line; *at; at++)
        words += *at == '|';
    redis_put_header(redis, '*', words);
    for (size_t i = 0; i < words; i++) {
        size_t length = strcspn(word, "|");

        redis_put_header(redis, '$', length);
        redis_put(redis, word, length);
        redis_put(redis, "\r\n", 2);
        word += length + 1;
    }
}

static void redis_flush(struct redis *redis)
{
    size_t sent = 0;

    while (sent < redis->out_size) {
        /* send() is used because the kernel counts write() as bytes written to files. */
        ssize_t n = send(redis->socket, redis->out + sent, redis->out_size - sent, 0);

        if (n < 0 && errno == EINTR)
            continue;
        BENCH_CHECK(n > 0);
        sent += (size_t)n;
    }
    redis->out_size = 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void redis_fill(struct redis *redis)
{
    ssize_t n;

    if (redis->in_room - redis->in_size < 4096) {
        redis->in_room = 2 * redis->in_room + 16384;
        redis->in = bson_realloc(redis->in, redis->in_room);
    }
    do {
        n = read(redis->socket, redis->in + redis->in_size, redis->in_room - redis->in_size);
    } while (n < 0 && errno == EINTR);
    BENCH_CHECK(n > 0);
    redis->in_size += (size_t)n;
}

/* Returns the offset of the end of the line at `from`. Reads until the line is complete. */
static size_t line_end(struct redis *redis, size_t from)
{
    for (;;) {
        char *end = NULL;

        if (redis->in_size > from)
            end = memmem(redis->in + from, redis->in_size - from, "\r\n", 2);
        if (end)
            return (size_t)(end - redis->in);
        redis_fill(redis);
    }
}

/* Parses an item. Texts are offsets until the whole reply has been read, because reading moves the
 * buffer. */
static size_t redis_parse(struct redis *redis, size_t at, size_t *offset, struct redis_item *item)
{
    size_t end = line_end(redis, at), next = end + 2;

    *item = (struct redis_item){.type = redis->in[at]};
    *offset = at + 1;
    redis->in[end] = '\0';
    item->number = strtoll(redis->in + at + 1, NULL, 10);
    if (item->type == '-')
        bench_fail(__FILE__, __LINE__, "redis", redis->in + at + 1);
    if ((item->type == '$' || item->type == '*') && item->number < 0)
        item->type = '0';
    if (item->type != '$')
        return next;
    while (redis->in_size < next + (size_t)item->number + 2)
        redis_fill(redis);
    redis->in[next + (size_t)item->number] = '\0';
    *offset = next;
    return next + (size_t)item->number + 2;
}

const struct redis_item *redis_receive(struct redis *redis)
{
    size_t offsets[ITEMS_MAX], at;
    int64_t left = 1;

    if (redis->out_size > 0)
        redis_flush(redis);
    if (redis->in_taken == redis->in_size)
        redis->in_taken = redis->in_size = 0;
    at = redis->in_taken;
    for (redis->count = 0; left > 0; left--, redis->count++) {
        BENCH_CHECK(redis->count < ITEMS_MAX);
        at = redis_parse(redis, at, &offsets[redis->count], &redis->items[redis->count]);
        if (redis->items[redis->count].type == '*')
            left += redis->items[redis->count].number;
    }
    redis->in_taken = at;
    for (int i = 0; i < redis->count; i++)
        redis->items[i].text = redis->in + offsets[i];
    return redis->items;
}

void redis_queue(struct redis *redis, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    queue(redis, format, arguments);
    va_end(arguments);
}

const struct redis_item *redis_run(struct redis *redis, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    queue(redis, format, arguments);
    va_end(arguments);
    return redis_receive(redis);
}

int64_t redis_field(const struct redis_item *items, const char *name)
{
    for (int64_t i = 1; i < items[0].number; i += 2) {
        if (!strcmp(items[i].text, name))
            return strtoll(items[i + 1].text, NULL, 10);
    }
    bench_fail(__FILE__, __LINE__, name, "is not in the hash");
}

/* ---- connections ----------------------------------------------------------------------------- */

static int try_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (made >= 0 && connect(made, (struct sockaddr *)&address, sizeof address) != 0) {
        close(made);
        made = -1;
    }
    return made;
}

bool redis_try(const char *path)
{
    int made = try_socket(path);

    if (made >= 0)
        close(made);
    return made >= 0;
}

struct redis *redis_connect(const char *path)
{
    struct redis *redis = bson_malloc0(sizeof *redis);

    redis->socket = try_socket(path);
    if (redis->socket < 0)
        bench_fail(__FILE__, __LINE__, path, strerror(errno));
    return redis;
}

void redis_close(struct redis *redis)
{
    close(redis->socket);
    bson_free(redis->out);
    bson_free(redis->in);
    bson_free(redis);
}
