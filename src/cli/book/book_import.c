/* Reads books: records of NDJSON, and ids for records without one. */
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "bson/binary_text.h"
#include "bson/json.h"
#include "cli/book/book.h"

/* Reads the record of the JSON text. */
static truce_status book_read_json(struct book_source *source, int64_t line, const char *text,
                                   size_t size, bson_error_t *error)
{
    struct json_reader reader = {0};
    bson_t record;
    truce_status status = truce__json_read(&reader, text, size, &record, NULL, error);

    source->line = line;
    if (!status)
        status = source->function(source->arg, line, &record, error);
    truce__json_reader_release(&reader);
    return status;
}

/* Reads NDJSON: each line that is not blank is a record. */
static truce_status book_import_read_lines(struct book_source *source, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int64_t line = 0;

    for (const char *at = source->text; !status && *at;) {
        size_t size = strcspn(at, "\n");

        line++;
        if (strspn(at, " \t\r") < size)
            status = book_read_json(source, line, at, size, error);
        at += size + (at[size] == '\n');
    }
    return status;
}

truce_status cli_book_read(struct book_source *source, bson_error_t *error)
{
    size_t size, good;

    if (!strncmp(source->text, "\xef\xbb\xbf", 3))
        source->text += 3; /* The text begins with a byte order mark. */
    size = strlen(source->text);
    good = truce__utf8_check(source->text, size);
    source->line = 1;
    for (size_t i = 0; good < size && i < good; i++)
        source->line += source->text[i] == '\n';
    if (good < size)
        return truce__fail(
            TRUCE_INVALID, error,
            "the file is not UTF-8, first at byte %zu: convert it, for example with iconv -t UTF-8",
            good);
    switch (source->form) {
    case BOOK_NDJSON:
        return book_import_read_lines(source, error);
    case BOOK_CSV:
        return book_read_csv(source, error);
    case BOOK_HLEDGER:
    case BOOK_BEANCOUNT:
        break;
    }
    return book_read_journal(source, error);
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* The number of records with each content: a hash table with open addressing. The first bytes of
 * the content's hash are the key. */
struct book_ids {
    struct {
        /* 0 if the slot is free. */
        uint64_t key;
        uint32_t count;
    } * slots;
    /* The numbers of used and of all slots. The latter is a power of two. */
    uint32_t used, room;
};

struct book_ids *book_ids_new(void)
{
    struct book_ids *ids = bson_malloc0(sizeof *ids);

    ids->room = 1024;
    ids->slots = bson_malloc0(ids->room * sizeof *ids->slots);
    return ids;
}

void book_ids_free(struct book_ids *ids)
{
    if (ids)
        bson_free(ids->slots);
    bson_free(ids);
}

static uint32_t book_import_slot(const struct book_ids *ids, uint64_t key)
{
    uint32_t at = (uint32_t)key & (ids->room - 1);

    while (ids->slots[at].key && ids->slots[at].key != key)
        at = (at + 1) & (ids->room - 1);
    return at;
}

/* Counts a content by its key, and returns how often it has occurred. The table grows before it is
 * more than half full. */
static uint32_t book_import_count_up(struct book_ids *ids, uint64_t key)
{
    uint32_t at;

    if (2 * (ids->used + 1) > ids->room) {
        struct book_ids larger = {.room = 2 * ids->room, .used = ids->used};

        larger.slots = bson_malloc0(larger.room * sizeof *larger.slots);
        for (uint32_t i = 0; i < ids->room; i++) {
            if (ids->slots[i].key)
                larger.slots[book_import_slot(&larger, ids->slots[i].key)] = ids->slots[i];
        }
        bson_free(ids->slots);
        *ids = larger;
    }
    at = book_import_slot(ids, key);
    ids->used += !ids->slots[at].key;
    ids->slots[at].key = key;
    return ++ids->slots[at].count;
}

void book_make_id(struct book_ids *ids, const char *prefix, const char *content, size_t size,
                  bson_t *record)
{
    uint8_t digest[SHA256_BYTES];
    uint64_t key;
    char hex[2 * 12 + 1], text[80];
    uint32_t count;
    int length;

    truce__sha256(content, size, digest);
    memcpy(&key, digest, sizeof key);
    count = book_import_count_up(ids, key ? key : 1);
    truce__hex_show(digest, 12, hex);
    length = snprintf(text, sizeof text, "%.20s %s", prefix, hex);
    if (count > 1)
        snprintf(text + length, sizeof text - (size_t)length, " %u", count);
    BSON_APPEND_UTF8(record, "id", text);
}
