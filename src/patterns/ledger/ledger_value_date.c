/*
 * Sums by value date. The balance of an account at a value date is the sum of all entries whose
 * value date is not later. Entries are booked in any order of their value dates. Runs give this sum
 * without reading the entries.
 *
 * A run is the sorted copy of a fixed range of an account's numbers. It has a record for each value
 * date in the range, with the sum of all values of the range up to that date. Level 0 covers 128
 * numbers, each further level 16 times as many:
 *
 *     level 1   [1 .................. 2048] [2049 ...
 *     level 0   [1 .. 128] ... [1921..2048] [2049..2176] [2177 ...
 *
 *     balance at number 2,200:  run 1 to 2,048, run 2,049 to 2,176, entries 2,177 to 2,200
 *
 * A balance reads at most 15 runs of each level (of the last level all runs) and 127 entries. Each
 * run is a tree whose pages have 128 records, and a balance reads one page of each height:
 *
 *     {_id: {hash, level, height: -1, page: 0}, ledger, account, number, records, height: 1,
 *      pages: 16}                                                                         the root
 *     {_id: {hash, level, height: 0, page: 5}, ledger, account, number, records}          a leaf
 *
 * `hash` is the hash of the last entry of the run, and `number` its number. `records` is binary, 24
 * bytes for each record: the date (64 bits) and the sum (128 bits, because partial sums may exceed
 * 64 bits), little-endian. A record of an inner page is the first record of the page below.
 *
 * Invariants:
 *
 *  LS1.  A run is a function of committed entries, which never change (LG2 of ledger.c). Its name
 *        is the hash of the last entry, which covers all entries of the account up to it. Two
 *        writers of a run therefore write the same pages, and a book that was dropped or rewritten
 *        has runs with other names. Runs need no commit and no lock.
 *  LS2.  The root is inserted last, when all other pages are stored: a run with a root is complete.
 *  LS3.  A run of level n + 1 is merged from its 16 runs of level n, which stay. The verification
 *        can therefore compare each run with its sources.
 *  LS4.  If the book is empty, the sweep and the first post remove its runs. A post that builds a
 *        run at the same time may lose pages of it; a reader builds them again.
 *
 * A post that takes the last number of a run builds the run, usually from values in memory (tails).
 * Runs may be missing after a crash, or after posts in commits of short processes. The next balance
 * at a value date then builds them. A view cannot write, so it adds up the smaller runs or the
 * entries. A crash leaves pages without a root; the next writer skips the stored pages.
 *
 * Deliberately not done: runs beyond the last level. A merge of half a million numbers takes some
 * tenths of a second, and each further level would take 16 times as long in one post.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "commit/metadata_cache.h"
#include "patterns/ledger/ledger.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* The number of runs of one level that a run of the next level contains. */
#define SUMS_FAN    16
#define SUMS_LEVELS 4
/* The maximum number of records in a page. */
#define SUMS_PAGE 128
/* The maximum height of the tree of a run, which has fewer than 128^4 records. */
#define SUMS_HEIGHTS      4
#define SUMS_RECORD_BYTES 24
/* The height that the _id of a root contains, whatever the height of its tree. */
#define SUMS_ROOT (-1)
/* The number of pages that one message inserts. */
#define SUMS_BULK 64

/* The sum of all values up to a value date. */
struct value_date_record {
    int64_t date;
    __int128 sum;
};

/* A node of the tree of a run. */
struct value_date_page {
    struct value_date_record records[SUMS_PAGE];
    uint32_t count;
};

/* A run: the numbers from `to` - size + 1 to `to` of the account. `hash` is the hash of the account
 * after `to`. */
struct value_date_run {
    const char *account;
    int level;
    int64_t to;
    uint8_t hash[SHA256_BYTES];
};

static int64_t value_date_size(int level)
{
    int64_t size = LEDGER_SUMS_RUN;

    while (level-- > 0)
        size *= SUMS_FAN;
    return size;
}

int64_t truce__ledger_value_date(const bson_t *document)
{
    int64_t date = truce__ledger_date(document, "effective");

    return date ? date : truce__ledger_date(document, "ts");
}

/* ---- pages as documents ---------------------------------------------------------------------- */

static void value_date_append_id(const struct value_date_run *run, int height, int64_t page,
                                 const char *key, bson_t *holder)
{
    bson_t id;

    bson_append_document_begin(holder, key, -1, &id);
    BSON_APPEND_BINARY(&id, "hash", BSON_SUBTYPE_BINARY, run->hash, SHA256_BYTES);
    BSON_APPEND_INT32(&id, "level", run->level);
    BSON_APPEND_INT32(&id, "height", height);
    BSON_APPEND_INT64(&id, "page", page);
    bson_append_document_end(holder, &id);
}

static void value_date_encode(const struct value_date_page *page, uint8_t *bytes)
{
    for (uint32_t i = 0; i < page->count; i++) {
        uint64_t parts[] = {(uint64_t)page->records[i].date, (uint64_t)page->records[i].sum,
                            (uint64_t)((unsigned __int128)page->records[i].sum >> 64)};

        for (int part = 0; part < 3; part++) {
            for (int shift = 0; shift < 64; shift += 8)
                *bytes++ = (uint8_t)(parts[part] >> shift);
        }
    }
}

/* Returns false if the document is not a page. */
static bool value_date_decode(const bson_t *document, struct value_date_page *page)
{
    const uint8_t *bytes = NULL;
    bson_subtype_t subtype;
    uint32_t length = 1;
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, document, "records") && BSON_ITER_HOLDS_BINARY(&iter))
        bson_iter_binary(&iter, &subtype, &length, &bytes);
    page->count = length / SUMS_RECORD_BYTES;
    if (length % SUMS_RECORD_BYTES || page->count > SUMS_PAGE)
        return false;
    for (uint32_t i = 0; i < page->count; i++) {
        uint64_t parts[3] = {0};

        for (int part = 0; part < 3; part++) {
            for (int shift = 0; shift < 64; shift += 8)
                parts[part] |= (uint64_t)*bytes++ << shift;
        }
        page->records[i].date = (int64_t)parts[0];
        page->records[i].sum = (__int128)((unsigned __int128)parts[2] << 64 | parts[1]);
    }
    return true;
}

/* Reads a page. Returns NOT_FOUND if it is not stored, or the document is not a page. */
static truce_status value_date_load(struct ledger_reader *reader, const struct value_date_run *run,
                                    int height, int64_t number, struct value_date_page *page,
                                    bson_t *document, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    value_date_append_id(run, height, number, "_id", &filter);
    status = truce_find_one(reader->ledger->store, LEDGER_SUMS, &filter, NULL, document, error);
    if (!status && !value_date_decode(document, page))
        status = TRUCE_NOT_FOUND;
    bson_destroy(&filter);
    return status;
}

/* ---- writing a run --------------------------------------------------------------------------- */

struct value_date_writer;
/* Receives a page of the run; the root is the last one. */
typedef truce_status sums_sink(struct value_date_writer *writer, const bson_t *document, bool root,
                               bson_error_t *error);

struct value_date_writer {
    struct ledger_reader *reader;
    const struct value_date_run *run;
    sums_sink *sink;
    struct {
        /* The page that is being filled at each height, and its number. */
        struct value_date_page page;
        int64_t number;
    } heights[SUMS_HEIGHTS];
    /* The pages that the next message inserts. Owned. */
    bson_t *waiting[SUMS_BULK];
    uint32_t waiting_count;
    /* Receives the pages if the sink is value_date_collect. */
    struct ledger_documents *collected;
    /* Set by value_date_compare: the root of the run is not stored. */
    bool absent;
    /* Set by value_date_compare: a stored page is missing or has other content. */
    bool differs;
};

/* Passes the page of that height to the sink of the writer. */
static truce_status value_date_flush(struct value_date_writer *writer, int height, bool root,
                                     bson_error_t *error)
{
    const struct value_date_page *page = &writer->heights[height].page;
    uint8_t bytes[SUMS_PAGE * SUMS_RECORD_BYTES];
    bson_t document = BSON_INITIALIZER;
    truce_status status;

    value_date_encode(page, bytes);
    value_date_append_id(writer->run, root ? SUMS_ROOT : height,
                         root ? 0 : writer->heights[height].number, "_id", &document);
    BSON_APPEND_UTF8(&document, "ledger", writer->reader->ledger->collection);
    BSON_APPEND_UTF8(&document, "account", writer->run->account);
    BSON_APPEND_INT64(&document, "number", writer->run->to);
    BSON_APPEND_BINARY(&document, "records", BSON_SUBTYPE_BINARY, bytes,
                       page->count * SUMS_RECORD_BYTES);
    if (root) {
        BSON_APPEND_INT32(&document, "height", height);
        BSON_APPEND_INT64(&document, "pages", writer->heights[0].number + 1);
    }
    status = writer->sink(writer, &document, root, error);
    bson_destroy(&document);
    return status;
}

/* Adds a record. The first record of each page except the root is also in the page above. The
 * height above a single page is not used. */
static truce_status value_date_add(struct value_date_writer *writer, int height,
                                   struct value_date_record record, bson_error_t *error)
{
    struct value_date_page *page = &writer->heights[height].page;
    truce_status status = TRUCE_OK;

    if (page->count == SUMS_PAGE) {
        status = value_date_flush(writer, height, false, error);
        page->count = 0;
        writer->heights[height].number++;
    }
    if (!status && !page->count && height + 1 < SUMS_HEIGHTS)
        status = value_date_add(writer, height + 1, record, error);
    page->records[page->count++] = record;
    return status;
}

/* Writes the last pages, and the root at the end (LS2). */
static truce_status value_date_finish(struct value_date_writer *writer, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    int height = 0;

    for (; !status && writer->heights[height].number; height++)
        status = value_date_flush(writer, height, false, error);
    return status ? status : value_date_flush(writer, height, true, error);
}

/* Ensures the index by which the runs of an empty book are found. */
static truce_status value_date_ready(truce_store *store, bson_error_t *error)
{
    uint64_t structure;
    bson_t *index;
    truce_status status;

    if (truce__metadata_known(store, "sums", LEDGER_SUMS, &structure))
        return TRUCE_OK;
    index = BCON_NEW("key", "{", "ledger", BCON_INT32(1), "}", "name", BCON_UTF8("ledger"));
    status = truce__index_ensure(store, LEDGER_SUMS, index, error);
    bson_destroy(index);
    if (!status)
        truce__metadata_learn(store, "sums", LEDGER_SUMS, structure);
    return status;
}

/* Removes the runs of an empty book (LS4). */
truce_status truce__ledger_sums_clean(const truce_ledger *ledger, bson_error_t *error)
{
    const truce_write_options all = {.multi = true};
    bson_t *filter, found;
    truce_status status =
        truce_find_one(ledger->store, ledger->collection, NULL, NULL, &found, error);

    bson_destroy(&found);
    if (status != TRUCE_NOT_FOUND)
        return status;
    filter = BCON_NEW("ledger", BCON_UTF8(ledger->collection));
    status = truce_find_one(ledger->store, LEDGER_SUMS, filter, NULL, &found, error);
    bson_destroy(&found);
    if (!status)
        status = value_date_ready(ledger->store, error);
    if (!status)
        status = truce_remove(ledger->store, LEDGER_SUMS, filter, &all, NULL, error);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Inserts the waiting pages. A page that is stored already is the same (LS1). */
static truce_status value_date_insert_waiting(struct value_date_writer *writer, bson_error_t *error)
{
    truce_write writes[SUMS_BULK] = {0};
    truce_write_outcome outcomes[SUMS_BULK];
    truce_bulk_options options = {.unordered = true, .relaxed = true};
    truce_status status;

    if (!writer->waiting_count)
        return TRUCE_OK;
    status = value_date_ready(writer->reader->ledger->store, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < writer->waiting_count; i++)
        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_INSERT, .collection = LEDGER_SUMS, .document = writer->waiting[i]};
    status = truce_bulk(writer->reader->ledger->store, writes, writer->waiting_count, &options,
                        outcomes, error);
    if (status == TRUCE_DUPLICATE)
        status = TRUCE_OK;
    for (uint32_t i = 0; i < writer->waiting_count; i++) {
        if (!status && outcomes[i].status && outcomes[i].status != TRUCE_DUPLICATE)
            status = outcomes[i].status;
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(writer->waiting[i]);
    }
    writer->waiting_count = 0;
    return status;
}

static truce_status value_date_store(struct value_date_writer *writer, const bson_t *document,
                                     bool root, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (root || writer->waiting_count == SUMS_BULK)
        status = value_date_insert_waiting(writer, error);
    writer->waiting[writer->waiting_count++] = bson_copy(document);
    return root && !status ? value_date_insert_waiting(writer, error) : status;
}

static bool value_date_same_field(const bson_t *a, const bson_t *b, const char *field)
{
    struct value x = truce__value_field(truce__value_document(a), field, strlen(field)),
                 y = truce__value_field(truce__value_document(b), field, strlen(field));

    return x.type == y.type && x.size == y.size && (!x.size || !memcmp(x.data, y.data, x.size));
}

/* Compares a page with the stored one, as the sink of a writer that verifies. Sets writer->differs
 * or writer->absent. */
static truce_status value_date_compare(struct value_date_writer *writer, const bson_t *document,
                                       bool root, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, found;
    bson_iter_t iter;
    truce_status status;

    (void)!bson_iter_init_find(&iter, document, "_id");
    BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&iter));
    status =
        truce_find_one(writer->reader->ledger->store, LEDGER_SUMS, &filter, NULL, &found, error);
    writer->absent = root && status == TRUCE_NOT_FOUND;
    writer->differs = writer->differs || status == TRUCE_NOT_FOUND ||
                      (!status && (!value_date_same_field(document, &found, "records") ||
                                   !value_date_same_field(document, &found, "height") ||
                                   !value_date_same_field(document, &found, "pages")));
    bson_destroy(&found);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- level 0: entries ------------------------------------------------------------------------ */

static int value_date_compare_dates(const void *a, const void *b)
{
    const struct ledger_dated *x = a, *y = b;

    return x->date < y->date ? -1 : x->date > y->date;
}

/* Writes the pages of a run from its dated values, which are sorted here. */
static truce_status value_date_write_dated(struct value_date_writer *writer,
                                           struct ledger_dated *dated, uint32_t count,
                                           bson_error_t *error)
{
    struct value_date_record record = {0};
    truce_status status = TRUCE_OK;

    if (count)
        qsort(dated, count, sizeof *dated, value_date_compare_dates);
    for (uint32_t i = 0; !status && i < count; i++) {
        record.date = dated[i].date;
        record.sum += dated[i].value;
        if (i + 1 == count || dated[i + 1].date != record.date)
            status = value_date_add(writer, 0, record, error);
    }
    return status ? status : value_date_finish(writer, error);
}

/* Finds the account's entry of that number among these documents. */
static truce_status value_date_entry(struct ledger_documents *found, const char *account,
                                     int64_t number, const bson_t **document,
                                     struct ledger_change *change, bson_error_t *error)
{
    *document = truce__ledger_numbered(found, account, number);
    if (*document && truce__ledger_change_of(*document, account, number, change) &&
        truce__ledger_is_anchor(*document, change))
        return TRUCE_OK;
    return truce__fail(TRUCE_CORRUPT, error,
                       "number %" PRId64 " of account \"%s\" is missing: run truce ledger verify",
                       number, account);
}

/* Gathers the dated values of a range; `dated` has room for all its numbers. */
static truce_status value_date_gather(struct ledger_documents *found, const char *account,
                                      int64_t from, int64_t to, struct ledger_dated *dated,
                                      uint32_t *count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *count = 0;
    for (int64_t number = from; !status && number <= to; number++) {
        const bson_t *document;
        struct ledger_change change;

        status = value_date_entry(found, account, number, &document, &change, error);
        if (!status && truce__ledger_is(document, "state", "VALID"))
            dated[(*count)++] =
                (struct ledger_dated){truce__ledger_value_date(document), change.value};
    }
    return status;
}

/* Reads the entries of a run of level 0, and gathers their dated values. */
static truce_status value_date_gather_run(struct ledger_reader *reader,
                                          const struct value_date_run *run,
                                          struct ledger_dated dated[LEDGER_SUMS_RUN],
                                          uint32_t *count, bson_error_t *error)
{
    struct ledger_documents found = {0};
    truce_status status = truce__ledger_fetch_range(
        reader, run->account, run->to - LEDGER_SUMS_RUN + 1, run->to, &found, error);

    if (!status)
        status = value_date_gather(&found, run->account, run->to - LEDGER_SUMS_RUN + 1, run->to,
                                   dated, count, error);
    truce__ledger_documents_release(&found);
    return status;
}

/* ---- further levels: runs -------------------------------------------------------------------- */

/* Fills in the hash of the last entry of each run. */
static truce_status value_date_name(struct ledger_documents *found, struct value_date_run *runs,
                                    uint32_t count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < count; i++) {
        const bson_t *document;
        struct ledger_change change;

        status = value_date_entry(found, runs[i].account, runs[i].to, &document, &change, error);
        if (!status)
            memcpy(runs[i].hash, change.hash, SHA256_BYTES);
    }
    return status;
}

/* Names the runs from which a run of a level above 0 is merged. */
static truce_status value_date_parts(struct ledger_reader *reader, const struct value_date_run *run,
                                     struct value_date_run parts[SUMS_FAN], bson_error_t *error)
{
    int64_t size = value_date_size(run->level - 1), numbers[SUMS_FAN];
    struct ledger_documents found = {0};
    truce_status status;

    for (int i = 0; i < SUMS_FAN; i++) {
        numbers[i] = run->to - (SUMS_FAN - 1 - i) * size;
        parts[i] = (struct value_date_run){
            .account = run->account, .level = run->level - 1, .to = numbers[i]};
    }
    status = truce__ledger_fetch_numbers(reader, run->account, numbers, SUMS_FAN, &found, error);
    if (!status)
        status = value_date_name(&found, parts, SUMS_FAN, error);
    truce__ledger_documents_release(&found);
    return status;
}

/* A cursor over the records of a stored run, leaf after leaf. */
struct value_date_stream {
    struct value_date_run run;
    struct value_date_page page;
    /* The index of the next record in the page. */
    uint32_t at;
    /* The number of the next leaf, and the count of leaves. If they are equal, the page is the last
     * leaf. */
    int64_t next, pages;
    /* The sum of the previous record. The difference is the value of one date. */
    __int128 before;
};

/* Opens a stream over the records of a stored run. */
static truce_status value_date_stream_open(struct ledger_reader *reader,
                                           struct value_date_stream *stream, bson_error_t *error)
{
    bson_t root;
    truce_status status =
        value_date_load(reader, &stream->run, SUMS_ROOT, 0, &stream->page, &root, error);

    stream->next = stream->at = 0;
    stream->before = 0;
    stream->pages = 0;
    if (!status && truce__field_number(&root, "height")) {
        stream->pages = truce__field_number(&root, "pages");
        stream->page.count = 0;
    }
    bson_destroy(&root);
    return status;
}

/* Reads the next page that has records, if the current one has no more. */
static truce_status value_date_stream_fill(struct ledger_reader *reader,
                                           struct value_date_stream *stream, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    while (!status && stream->at == stream->page.count && stream->next < stream->pages) {
        bson_t leaf;

        status =
            value_date_load(reader, &stream->run, 0, stream->next, &stream->page, &leaf, error);
        stream->at = 0;
        stream->next++;
        bson_destroy(&leaf);
    }
    return status;
}

static struct value_date_stream *value_date_first(struct value_date_stream *streams)
{
    struct value_date_stream *first = NULL;

    for (int i = 0; i < SUMS_FAN; i++) {
        struct value_date_stream *stream = &streams[i];

        if (stream->at < stream->page.count &&
            (!first || stream->page.records[stream->at].date < first->page.records[first->at].date))
            first = stream;
    }
    return first;
}

/* Merges the runs. Returns NOT_FOUND if a run, or a page of one, is missing. */
static truce_status value_date_merge(struct value_date_writer *writer,
                                     struct value_date_stream *streams, bson_error_t *error)
{
    struct value_date_record record = {0};
    struct value_date_stream *first;
    truce_status status = TRUCE_OK;
    bool any = false;

    for (int i = 0; !status && i < SUMS_FAN; i++) {
        status = value_date_stream_open(writer->reader, &streams[i], error);
        if (!status)
            status = value_date_stream_fill(writer->reader, &streams[i], error);
    }
    while (!status && (first = value_date_first(streams))) {
        const struct value_date_record *next = &first->page.records[first->at++];

        if (any && next->date != record.date)
            status = value_date_add(writer, 0, record, error);
        any = true;
        record.date = next->date;
        record.sum += next->sum - first->before;
        first->before = next->sum;
        if (!status)
            status = value_date_stream_fill(writer->reader, first, error);
    }
    if (!status && any)
        status = value_date_add(writer, 0, record, error);
    return status ? status : value_date_finish(writer, error);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Writes a run from its entries or its smaller runs (LS3). Returns NOT_FOUND if a part of the run
 * is not stored. */
static truce_status value_date_write_run(struct value_date_writer *writer, bson_error_t *error)
{
    const struct value_date_run *run = writer->run;
    truce_status status;

    if (!run->level) {
        struct ledger_dated dated[LEDGER_SUMS_RUN];
        uint32_t count;

        status = value_date_gather_run(writer->reader, run, dated, &count, error);
        if (!status)
            status = value_date_write_dated(writer, dated, count, error);
    } else {
        struct value_date_stream *streams = bson_malloc0(SUMS_FAN * sizeof *streams);
        struct value_date_run parts[SUMS_FAN];

        status = value_date_parts(writer->reader, run, parts, error);
        for (int i = 0; i < SUMS_FAN; i++)
            streams[i].run = parts[i];
        if (!status)
            status = value_date_merge(writer, streams, error);
        bson_free(streams);
    }
    return status;
}

static void value_date_writer_release(struct value_date_writer *writer)
{
    for (uint32_t i = 0; i < writer->waiting_count; i++)
        bson_destroy(writer->waiting[i]);
    bson_free(writer);
}

static struct value_date_writer *value_date_writer_new(struct ledger_reader *reader,
                                                       const struct value_date_run *run,
                                                       sums_sink *sink)
{
    struct value_date_writer *writer = bson_malloc0(sizeof *writer);

    writer->reader = reader;
    writer->run = run;
    writer->sink = sink;
    return writer;
}

/* Builds the run and all its missing parts. `repairs` is true if a page of the run was missing, so
 * its root proves nothing. */
static truce_status value_date_build(struct ledger_reader *reader, const struct value_date_run *run,
                                     bool repairs, bson_error_t *error)
{
    struct value_date_writer *writer;
    struct value_date_page *page = bson_malloc(sizeof *page);
    struct value_date_run parts[SUMS_FAN];
    bson_t root;
    truce_status status = value_date_load(reader, run, SUMS_ROOT, 0, page, &root, error);

    bson_destroy(&root);
    bson_free(page);
    if (status != TRUCE_NOT_FOUND && (status || !repairs))
        return status;
    status = run->level ? value_date_parts(reader, run, parts, error) : TRUCE_OK;
    for (int i = 0; !status && run->level && i < SUMS_FAN; i++)
        status = value_date_build(reader, &parts[i], repairs, error);
    if (status)
        return status;
    writer = value_date_writer_new(reader, run, value_date_store);
    status = value_date_write_run(writer, error);
    value_date_writer_release(writer);
    return status;
}

/* Builds the largest run that ends with that number. */
static truce_status value_date_build_at(struct ledger_reader *reader, const char *account,
                                        int64_t to, bson_error_t *error)
{
    struct value_date_run run = {.account = account, .to = to};
    struct ledger_documents found = {0};
    truce_status status = truce__ledger_fetch_numbers(reader, account, &to, 1, &found, error);

    while (run.level + 1 < SUMS_LEVELS && to % value_date_size(run.level + 1) == 0)
        run.level++;
    if (!status)
        status = value_date_name(&found, &run, 1, error);
    truce__ledger_documents_release(&found);
    return status ? status : value_date_build(reader, &run, false, error);
}

void truce__ledger_sums_complete(struct ledger_reader *reader, const char *account, int64_t before,
                                 int64_t number)
{
    truce_status status = TRUCE_OK;
    bson_error_t ignored; /* A failure is ignored, because a balance builds missing runs. */

    if (truce__is_only_read(reader->ledger->store))
        return;
    if (before < 0)
        before = number - 1;
    for (int64_t to = (before / LEDGER_SUMS_RUN + 1) * LEDGER_SUMS_RUN; !status && to <= number;
         to += LEDGER_SUMS_RUN)
        status = value_date_build_at(reader, account, to, &ignored);
}

/* ---- tails ----------------------------------------------------------------------------------- */

/*
 * The handle remembers the values since the last complete run of an account that it posts to:
 *
 *     remembered   | 129 ... 250 |
 *     a batch                    | 251 ... 260 |      completes the run 129 to 256,
 *     remembered                   | 257 ... 260 |    and these remain
 *
 * If another process has posted in between, the numbers do not follow each other. The tail then
 * begins again at the next end of a run, and that run is read.
 */

void truce__ledger_tail_add(struct ledger_tail *tail, int64_t number,
                            const struct ledger_tail_value *value, const uint8_t hash[SHA256_BYTES])
{
    if (!tail->count || number != tail->after + tail->count + 1) {
        tail->after = number - 1;
        tail->count = tail->hashes_count = 0;
    }
    if (tail->count == tail->room) {
        tail->room = tail->room ? 2 * tail->room : 8;
        tail->values = bson_realloc(tail->values, tail->room * sizeof *tail->values);
    }
    tail->values[tail->count++] = *value;
    if (number % LEDGER_SUMS_RUN || !hash)
        return;
    tail->hashes = bson_realloc(tail->hashes, (tail->hashes_count + 1) * sizeof *tail->hashes);
    memcpy(tail->hashes[tail->hashes_count++], hash, SHA256_BYTES);
}

void truce__ledger_tail_release(struct ledger_tail *tail)
{
    bson_free(tail->hashes);
    bson_free(tail->values);
    *tail = (struct ledger_tail){0};
}

static truce_status value_date_collect(struct value_date_writer *writer, const bson_t *document,
                                       bool root, bson_error_t *error)
{
    truce__ledger_keep(writer->collected, document);
    return TRUCE_OK;
}

/* Makes the run of the numbers in a tail. */
static void value_date_make(const struct ledger_tail *tail, const char *account,
                            const uint8_t hash[SHA256_BYTES], struct ledger_runs *runs)
{
    struct value_date_run run = {.account = account, .to = tail->after + tail->count};
    struct value_date_writer *writer =
        value_date_writer_new(runs->reader, &run, value_date_collect);
    struct ledger_dated dated[LEDGER_SUMS_RUN];
    bson_error_t ignored; /* The sink collects the pages in memory, so it cannot fail. */
    uint32_t count = 0;

    truce_assert(tail->count == LEDGER_SUMS_RUN);
    memcpy(run.hash, hash, SHA256_BYTES);
    writer->collected = &runs->documents;
    for (uint32_t i = 0; i < tail->count; i++) {
        if (tail->values[i].counts)
            dated[count++] = (struct ledger_dated){tail->values[i].date, tail->values[i].value};
    }
    (void)!value_date_write_dated(writer, dated, count, &ignored);
    value_date_writer_release(writer);
}

/* Returns whether the numbers of a batch follow those of the tail, in the same chain (LS1). */
static bool value_date_follows(const struct ledger_tail *tail, const struct ledger_tail *posted)
{
    /* Invariant LS1: the chain of the batch continues the chain of the tail. */
    return tail->count && tail->after + tail->count == posted->after &&
           !memcmp(tail->hash, posted->hash, SHA256_BYTES);
}

int64_t truce__ledger_tail_join(struct ledger_tail *tail, const struct ledger_known *posted,
                                struct ledger_runs *runs)
{
    const struct ledger_tail *more = &posted->tail;
    uint32_t at = 0, hash = 0;
    int64_t begun;

    if (!value_date_follows(tail, more)) {
        while (at < more->count && (more->after + at) % LEDGER_SUMS_RUN)
            at++;
        tail->count = 0;
        tail->after = more->after + at;
        /* If the new tail does not begin with the batch, the first hash belongs to the number
         * before the new tail. */
        hash = at > 0;
    }
    begun = tail->after;
    for (; at < more->count; at++) {
        int64_t number = more->after + at + 1;

        truce__ledger_tail_add(tail, number, &more->values[at], NULL);
        if (number % LEDGER_SUMS_RUN)
            continue;
        value_date_make(tail, posted->account, more->hashes[hash++], runs);
        tail->count = 0;
    }
    memcpy(tail->hash, posted->state.hash, SHA256_BYTES);
    return begun;
}

static truce_status value_date_store_documents(const struct ledger_runs *runs, bson_error_t *error)
{
    struct value_date_run none = {0};
    struct value_date_writer *writer = value_date_writer_new(runs->reader, &none, value_date_store);
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < runs->documents.count; i++)
        status = value_date_store(writer, runs->documents.items[i], false, error);
    if (!status)
        status = value_date_insert_waiting(writer, error);
    value_date_writer_release(writer);
    return status;
}

/* Builds the runs above the smallest ones that end with a number of the tail. */
static truce_status value_date_build_above(struct ledger_reader *reader, const char *account,
                                           const struct ledger_tail *tail, bson_error_t *error)
{
    int64_t size = value_date_size(1);
    truce_status status = TRUCE_OK;

    for (int64_t to = (tail->after / size + 1) * size; !status && to <= tail->after + tail->count;
         to += size)
        status = value_date_build_at(reader, account, to, error);
    return status;
}

void truce__ledger_runs_store(struct ledger_runs *runs, const struct ledger_table *accounts)
{
    bson_error_t ignored; /* A failure is ignored, because a balance builds missing runs. */
    truce_status status = value_date_store_documents(runs, &ignored);

    for (uint32_t i = 0; !status && i < accounts->room; i++) {
        const struct ledger_known *known = accounts->slots[i];

        if (known && known->loaded)
            status = value_date_build_above(runs->reader, known->account, &known->tail, &ignored);
    }
    truce__ledger_documents_release(&runs->documents);
}

/* ---- a balance ------------------------------------------------------------------------------- */

enum value_date_found { SUMS_SEARCHING, SUMS_FOUND, SUMS_MISSING };

/* The path from the root of a run to the record of a date. */
struct value_date_seek {
    struct value_date_run run;
    enum value_date_found found;
    int height;
    int64_t page;
    __int128 sum;
};

/* Searches one page of a run for the value date, and moves to the page below it, or to the sum. */
static void value_date_descend(struct value_date_seek *seek, const bson_t *document,
                               int64_t until_ms)
{
    struct value_date_page *page = bson_malloc(sizeof *page);
    bool whole = value_date_decode(document, page);
    uint32_t low = 0, high = whole ? page->count : 0;
    int height =
        seek->height == SUMS_ROOT ? (int)truce__field_number(document, "height") : seek->height;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (page->records[middle].date <= until_ms)
            low = middle + 1;
        else
            high = middle;
    }
    if (!whole || height < 0 || height >= SUMS_HEIGHTS || (!low && seek->height != SUMS_ROOT)) {
        seek->found = SUMS_MISSING;
    } else if (!low || !height) {
        seek->sum = low ? page->records[low - 1].sum : 0;
        seek->found = SUMS_FOUND;
    } else {
        seek->page = seek->page * SUMS_PAGE + low - 1;
        seek->height = height - 1;
    }
    bson_free(page);
}

/* Moves each unfinished search one page on. */
static truce_status value_date_step(struct ledger_reader *reader, struct value_date_seek *seeks,
                                    uint32_t count, int64_t until_ms, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, condition, list;
    bool *stepped = bson_malloc0((count + 1) * sizeof *stepped);
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status;

    bson_append_document_begin(&filter, "_id", 3, &condition);
    bson_append_array_begin(&condition, "$in", 3, &list);
    for (uint32_t i = 0; i < count; i++) {
        if (seeks[i].found == SUMS_SEARCHING)
            value_date_append_id(&seeks[i].run, seeks[i].height, seeks[i].page, "0", &list);
    }
    bson_append_array_end(&condition, &list);
    bson_append_document_end(&filter, &condition);
    status = truce_find(reader->ledger->store, LEDGER_SUMS, &filter, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &found, error)) && found) {
        for (uint32_t i = 0; i < count; i++) {
            bson_t id = BSON_INITIALIZER;

            if (seeks[i].found == SUMS_SEARCHING && !stepped[i]) {
                value_date_append_id(&seeks[i].run, seeks[i].height, seeks[i].page, "_id", &id);
                if (value_date_same_field(&id, found, "_id")) {
                    value_date_descend(&seeks[i], found, until_ms);
                    stepped[i] = true;
                }
            }
            bson_destroy(&id);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (seeks[i].found == SUMS_SEARCHING && !stepped[i])
            seeks[i].found = SUMS_MISSING;
    }
    truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_free(stepped);
    return status;
}

static truce_status value_date_seek(struct ledger_reader *reader, struct value_date_seek *seeks,
                                    uint32_t count, int64_t until_ms, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool more = count > 0;

    while (!status && more) {
        status = value_date_step(reader, seeks, count, until_ms, error);
        more = false;
        for (uint32_t i = 0; i < count; i++)
            more = more || seeks[i].found == SUMS_SEARCHING;
    }
    return status;
}

static __int128 value_date_of(const struct ledger_dated *dated, uint32_t count, int64_t until_ms)
{
    __int128 sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += dated[i].date <= until_ms ? dated[i].value : 0;
    return sum;
}

static truce_status value_date_total(struct ledger_reader *reader,
                                     const struct value_date_run *runs, uint32_t count,
                                     int64_t until_ms, __int128 *total, bson_error_t *error);

/* Sums a run that is missing and cannot be built. */
static truce_status value_date_without(struct ledger_reader *reader,
                                       const struct value_date_run *run, int64_t until_ms,
                                       __int128 *total, bson_error_t *error)
{
    truce_status status;

    if (run->level) {
        struct value_date_run parts[SUMS_FAN];

        status = value_date_parts(reader, run, parts, error);
        if (!status)
            status = value_date_total(reader, parts, SUMS_FAN, until_ms, total, error);
    } else {
        struct ledger_dated dated[LEDGER_SUMS_RUN];
        uint32_t count;

        status = value_date_gather_run(reader, run, dated, &count, error);
        if (!status)
            *total += value_date_of(dated, count, until_ms);
    }
    return status;
}

/* Adds the sum of a run that is not stored, or that misses a page. Builds the run first if the
 * store can be written. */
static truce_status value_date_missing(struct ledger_reader *reader,
                                       const struct value_date_run *run, int64_t until_ms,
                                       __int128 *total, bson_error_t *error)
{
    struct value_date_seek again = {.run = *run, .height = SUMS_ROOT};
    bson_error_t ignored;
    truce_status status = TRUCE_OK;

    if (!truce__is_only_read(reader->ledger->store) &&
        !value_date_build(reader, run, true, &ignored))
        status = value_date_seek(reader, &again, 1, until_ms, error);
    if (status || again.found != SUMS_FOUND)
        return status ? status : value_date_without(reader, run, until_ms, total, error);
    *total += again.sum;
    return TRUCE_OK;
}

/* Adds the sums of all runs up to the value date. A run that is not stored is built if the store
 * can be written, and otherwise computed from smaller runs or entries. */
static truce_status value_date_total(struct ledger_reader *reader,
                                     const struct value_date_run *runs, uint32_t count,
                                     int64_t until_ms, __int128 *total, bson_error_t *error)
{
    struct value_date_seek *seeks = bson_malloc0((count + 1) * sizeof *seeks);
    truce_status status;

    for (uint32_t i = 0; i < count; i++)
        seeks[i] = (struct value_date_seek){.run = runs[i], .height = SUMS_ROOT};
    status = value_date_seek(reader, seeks, count, until_ms, error);
    for (uint32_t i = 0; !status && i < count; i++) {
        if (seeks[i].found == SUMS_FOUND)
            *total += seeks[i].sum;
        else
            status = value_date_missing(reader, &seeks[i].run, until_ms, total, error);
    }
    bson_free(seeks);
    return status;
}

/* Returns the fewest runs that cover the numbers up to `to`, a multiple of LEDGER_SUMS_RUN; free it
 * with bson_free. */
static struct value_date_run *value_date_cover(const char *account, int64_t to, uint32_t *count)
{
    size_t room = (size_t)(to / value_date_size(SUMS_LEVELS - 1)) + SUMS_LEVELS * SUMS_FAN;
    struct value_date_run *runs = bson_malloc0(room * sizeof *runs);
    int64_t at = 0;

    *count = 0;
    for (int level = SUMS_LEVELS; level-- > 0;) {
        for (; at + value_date_size(level) <= to; at += value_date_size(level))
            runs[(*count)++] = (struct value_date_run){
                .account = account, .level = level, .to = at + value_date_size(level)};
    }
    return runs;
}

/* Reads the last entries of the runs, and all entries after the runs. */
static truce_status value_date_fetch(struct ledger_reader *reader, const char *account,
                                     const struct value_date_run *runs, uint32_t count,
                                     int64_t last, struct ledger_documents *found,
                                     bson_error_t *error)
{
    int64_t numbers[LEDGER_WINDOW], covered = count ? runs[count - 1].to : 0;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < count;) {
        uint32_t some = 0;

        while (some < LEDGER_WINDOW && i < count)
            numbers[some++] = runs[i++].to;
        status = truce__ledger_fetch_numbers(reader, account, numbers, some, found, error);
    }
    return status ? status
                  : truce__ledger_fetch_range(reader, account, covered + 1, last, found, error);
}

truce_status truce__ledger_sum_until(struct ledger_reader *reader, const char *account,
                                     int64_t last, int64_t until_ms, int64_t *sum,
                                     bson_error_t *error)
{
    struct ledger_dated dated[LEDGER_SUMS_RUN];
    struct ledger_documents found = {0};
    int64_t covered = last - last % LEDGER_SUMS_RUN;
    uint32_t count, rest = 0;
    struct value_date_run *runs = value_date_cover(account, covered, &count);
    __int128 total = 0;
    truce_status status = value_date_fetch(reader, account, runs, count, last, &found, error);

    if (!status)
        status = value_date_name(&found, runs, count, error);
    if (!status)
        status = value_date_gather(&found, account, covered + 1, last, dated, &rest, error);
    if (!status)
        status = value_date_total(reader, runs, count, until_ms, &total, error);
    total += value_date_of(dated, rest, until_ms);
    *sum = (int64_t)total;
    if (!status && *sum != total)
        status = truce__fail(TRUCE_LIMIT, error, "the balance of account \"%s\" exceeds 64 bits",
                             account);
    truce__ledger_documents_release(&found);
    bson_free(runs);
    return status;
}

/* ---- verification ---------------------------------------------------------------------------- */

static truce_status value_date_is_stored(struct ledger_reader *reader,
                                         const struct value_date_run *run, bool *stored,
                                         bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, root;
    truce_status status;

    value_date_append_id(run, SUMS_ROOT, 0, "_id", &filter);
    status = truce_find_one(reader->ledger->store, LEDGER_SUMS, &filter, NULL, &root, error);
    *stored = !status;
    bson_destroy(&root);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__ledger_sums_prove(struct ledger_reader *reader, const char *account, int64_t to,
                                      const uint8_t hash[SHA256_BYTES], struct ledger_dated *dated,
                                      uint32_t count, bool *wrong, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *wrong = false;
    for (int level = 0;
         !status && !*wrong && level < SUMS_LEVELS && to % value_date_size(level) == 0; level++) {
        struct value_date_run run = {.account = account, .level = level, .to = to};
        struct value_date_writer *writer;
        bool stored = true;

        memcpy(run.hash, hash, SHA256_BYTES);
        if (level)
            status = value_date_is_stored(reader, &run, &stored, error);
        if (status || !stored)
            continue;
        writer = value_date_writer_new(reader, &run, value_date_compare);
        status = level ? value_date_write_run(writer, error)
                       : value_date_write_dated(writer, dated, count, error);
        /* The only page of a run of level 0 is its root. */
        *wrong = (writer->differs && (level || !writer->absent)) || status == TRUCE_NOT_FOUND;
        status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
        value_date_writer_release(writer);
    }
    return status;
}
