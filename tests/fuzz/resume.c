/*
 * The input is resume tokens of change streams, one in each line. A line that begins with "=" is
 * the text of a token, in which "*" is replaced by the id of the feed. Other lines are tokens that
 * are nearly right: bytes that say which entry of the feed, how far from it, and the point.
 * Whatever comes, the token is refused by a code of its own, or the stream returns each event after
 * it, once.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/session/change_stream.h"
#include "store/file/file.h"

#define ENTRIES 8

static struct feed {
    truce_store *store;
    struct feed_state state;
    int64_t positions[ENTRIES];
    int count;
} feed;

static char directory[] = "/tmp/truce-fuzz-XXXXXX";

static void tidy(void)
{
    char command[100];

    truce_store_close(feed.store);
    snprintf(command, sizeof command, "rm -r %s", directory);
    (void)!system(command);
}

static bool take(void *arg, const struct feed_entry *entry)
{
    (void)arg;
    truce_assert(feed.count < ENTRIES);
    feed.positions[feed.count++] = entry->position;
    return true;
}

static void begin(void)
{
    const truce_store_options relaxed = {.relaxed = true};
    struct engine *engine;
    int64_t reached;
    char path[100];
    bson_t document = BSON_INITIALIZER;

    truce_assert(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/s", directory);
    truce_assert(!truce_store_open(path, &relaxed, &feed.store, NULL));
    (void)atexit(tidy);
    engine = truce__file_engine_or_null(feed.store);
    truce_assert(!truce_collection_create(feed.store, "c", NULL)); /* no event reports this */
    truce_assert(!truce__engine_feed_keep(engine, 1000000000, 0, NULL));
    for (int i = 0; i < ENTRIES; i++) {
        if (i == ENTRIES / 2) /* positions of one second have no gaps between them */
            truce__clock_sleep_ms(1100);
        truce_assert(!truce_insert(feed.store, "c", &document, NULL, NULL));
    }
    bson_destroy(&document);
    truce_assert(!truce__engine_feed_state(engine, &feed.state, NULL));
    truce_assert(!truce__engine_feed_read(engine, &feed.state.spec.id, feed.state.horizon, 100,
                                          take, NULL, &reached, NULL));
    truce_assert(feed.count == ENTRIES);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void put_text(const uint8_t *line, size_t size, bson_t *document)
{
    char id[25], text[400] = "";
    size_t length = 0;

    bson_oid_to_string(&feed.state.spec.id, id);
    for (size_t i = 0; i < size && length + sizeof id < sizeof text; i++)
        if (line[i] == '*') {
            memcpy(text + length, id, 24);
            length += 24;
        } else {
            text[length++] = (char)line[i];
        }
    bson_append_utf8(document, "_data", 5, text, (int)length);
}

static void put_near(const uint8_t *line, size_t size, bson_t *document)
{
    struct change_stream_token token = {.feed = feed.state.spec.id};
    int64_t base = line[0] % (ENTRIES + 1) < ENTRIES ? feed.positions[line[0] % (ENTRIES + 1)]
                                                     : feed.state.horizon;

    token.position = base + (size > 1 ? (int8_t)line[1] % 3 : 0);
    token.point = size > 2 ? (enum change_stream_point)(line[2] % 4) : STREAM_EVENT;
    token.fragment = token.point == STREAM_FRAGMENT ? line[2] / 4 : 0;
    if (size > 3 && line[3] % 8 == 7)
        token.feed.bytes[line[3] % 12] ^= 1;
    change_stream_token_append(&token, document);
}

/* ---- the events after a token ---------------------------------------------------------------- */

static int64_t count_behind(const struct change_stream_token *token)
{
    int64_t count = 0;

    for (int i = 0; i < ENTRIES; i++)
        count += feed.positions[i] > token->position;
    return count;
}

/* True if the event has an entry: every event does, unless it is the last that was removed. No
 * event here is split into fragments. */
static bool is_there(const struct change_stream_token *token)
{
    bool found = token->point != STREAM_EVENT || token->position == feed.state.horizon;

    for (int i = 0; i < ENTRIES; i++)
        found = found || feed.positions[i] == token->position;
    return found && token->point != STREAM_FRAGMENT &&
           bson_oid_equal(&token->feed, &feed.state.spec.id) &&
           token->position >= feed.state.horizon && token->position <= feed.state.last;
}

static void follow(const struct change_stream_token *token)
{
    const struct change_stream_options options = {
        .reach = STREAM_ALL, .own = "test", .database = "test", .resume = token};
    bson_t batch = BSON_INITIALIZER;
    bson_error_t error = {0};
    struct change_stream *watch;
    uint32_t count = 0;
    truce_status status = change_stream_new(feed.store, &options, &watch, &error);

    if (!status)
        status = change_stream_read(watch, -1, &batch, &count, &error);
    truce_assert(status || is_there(token));
    if (status)
        truce_assert(!is_there(token) && (error.code == CODE_CHANGE_STREAM_HISTORY_LOST ||
                                          error.code == CODE_CHANGE_STREAM_FATAL));
    else
        truce_assert(count == count_behind(token));
    change_stream_free(watch);
    bson_destroy(&batch);
}

/* Checks that a token that was read is written as it was, except for the case of its digits. */
static void check_again(const bson_t *document, const struct change_stream_token *token)
{
    bson_t again = BSON_INITIALIZER;
    bson_iter_t before, after;

    change_stream_token_append(token, &again);
    truce_assert(bson_iter_init_find(&before, document, "_data") &&
                 bson_iter_init_find(&after, &again, "_data"));
    truce_assert(!strcasecmp(bson_iter_utf8(&before, NULL), bson_iter_utf8(&after, NULL)));
    bson_destroy(&again);
}

static void try_line(const uint8_t *line, size_t size)
{
    bson_t document = BSON_INITIALIZER;
    struct change_stream_token token;
    bson_error_t error = {0};
    truce_status status;

    if (line[0] == '=')
        put_text(line + 1, size - 1, &document);
    else
        put_near(line, size, &document);
    status = change_stream_token_read(&document, &token, &error);
    if (status) {
        truce_assert(error.code == CODE_FAILED_TO_PARSE || error.code == CODE_INVALID_RESUME_TOKEN);
    } else {
        truce_assert(token.position >= 0 && token.point <= STREAM_FRAGMENT);
        check_again(&document, &token);
        follow(&token);
    }
    bson_destroy(&document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;

    if (!feed.store)
        begin();
    if (size > 1024)
        return -1;
    while (at < end) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));

        stop = stop ? stop : end;
        if (stop > at)
            try_line(at, (size_t)(stop - at));
        at = stop + 1;
    }
    return 0;
}
