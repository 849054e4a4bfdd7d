/*
 * Writes and answers that come from another process (engine/documents/delegated_writes.h). Whatever
 * the bytes are, a write is refused or runs, and an answer is refused or is one that a store's
 * wrappers would let pass.
 *
 * The first byte chooses between raw bytes, and a request made from decisions of which now and then
 * a byte is changed.
 */
#include "engine/documents/delegated_writes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "engine/documents/bulk_write.h"
#include "engine/documents/find_and_modify.h"
#include "engine/documents/open_documents.h"
#include "tests/support/fuzz_input.h"

static char directory[] = "/tmp/truce-fuzz-XXXXXX";
static struct engine *engine;

static void end(void)
{
    static const char *const names[] = {"s.db", "s.db-wal", "s.db-shm", "s.db-lock"};
    char path[60];

    truce__engine_close(engine);
    for (size_t i = 0; i < FUZZ_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
}

static void begin(void)
{
    const truce_store_options options = {.relaxed = true};
    char path[60];
    bson_error_t error;

    truce_assert(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/s.db", directory);
    truce_assert(!truce__engine_open(path, &options, &engine, &error));
    atexit(end);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const char *const parts[] = {"q", "v", "x", "h", "s", "y"};

static void append_update(struct fuzz_input *input, bson_t *write)
{
    static const char *const operators[] = {"$set", "$inc", "$unset", "$push", "$min", "$rename"};
    bson_t *fields = fuzz_document(input, 2);
    bson_t update;

    bson_append_document_begin(write, "v", 1, &update);
    bson_append_document(&update, FUZZ_PICK(input, operators), -1, fields);
    bson_append_document_end(write, &update);
    bson_destroy(fields);
}

static void append_insert(struct fuzz_input *input, bson_t *write)
{
    bson_t *fields = fuzz_document(input, 2), document;

    bson_append_document_begin(write, "v", 1, &document);
    bson_append_int32(&document, "_id", 3, (int32_t)fuzz_below(input, 4));
    bson_concat(&document, fields);
    bson_append_document_end(write, &document);
    bson_destroy(fields);
}

static void append_write(struct fuzz_input *input, bson_t *list, const char *key)
{
    static const char *const collections[] = {"c", "c", "d", "", "$x", "system.users", "a..b"};
    bson_t *filter = fuzz_filter(input, 2), *more = fuzz_document(input, 1), write;
    int32_t kind = (int32_t)fuzz_below(input, 8);

    bson_append_document_begin(list, key, 1, &write);
    bson_append_int32(&write, "k", 1, kind);
    bson_append_int32(&write, "f", 1, fuzz_byte(input) & (fuzz_byte(input) | 4));
    bson_append_utf8(&write, "c", 1, FUZZ_PICK(input, collections), -1);
    bson_append_document(&write, "q", 1, filter);
    if (kind == TRUCE_WRITE_UPDATE && fuzz_below(input, 4))
        append_update(input, &write);
    else if (fuzz_below(input, 4))
        append_insert(input, &write);
    if (!fuzz_below(input, 4))
        bson_append_document(&write, FUZZ_PICK(input, parts), 1, more);
    bson_append_document_end(list, &write);
    bson_destroy(filter);
    bson_destroy(more);
}

static bson_t *make_modify(struct fuzz_input *input)
{
    bson_t *request = bson_new(), *projection = fuzz_document(input, 1);

    append_write(input, request, "w");
    bson_append_bool(request, "n", 1, fuzz_below(input, 2));
    bson_append_int64(request, "d", 1, 0);
    if (!fuzz_below(input, 3))
        bson_append_document(request, "p", 1, projection);
    bson_destroy(projection);
    return request;
}

static bson_t *make_bulk(struct fuzz_input *input)
{
    bson_t *request = bson_new(), list;

    bson_append_bool(request, "a", 1, fuzz_below(input, 2));
    bson_append_int64(request, "d", 1, 0);
    bson_append_array_begin(request, "w", 1, &list);
    for (uint32_t i = fuzz_below(input, 5); i-- > 0;)
        append_write(input, &list, "0");
    bson_append_array_end(request, &list);
    return request;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void check_outcome(const truce_write *write, const truce_write_outcome *outcome)
{
    const truce_write_result *result = &outcome->result;

    truce_assert(result->modified >= 0 && result->modified <= result->matched);
    truce_assert(result->upserted == (result->upserted_id.value_type != 0));
    truce_assert(outcome->status || write->kind != TRUCE_WRITE_INSERT || result->inserted == 1);
    truce_assert(write->options.multi || result->matched <= 1);
}

static void look_at_answer(struct fuzz_input *input, struct write_op *op, struct buffer *answer)
{
    const struct bulk *bulk = (const struct bulk *)op;
    const struct modify *modify = (const struct modify *)op;

    if (fuzz_below(input, 2) && answer->size)
        answer->bytes[fuzz_byte(input) % answer->size] ^= fuzz_byte(input);
    else
        truce_assert(op->delegated_kind->unpack(op, (struct bytes){answer->bytes, answer->size}));
    if (!op->delegated_kind->unpack(op, (struct bytes){answer->bytes, answer->size}))
        return;
    if (op->delegated_kind == &truce__delegated_kind_modify)
        truce_assert(modify->result->matched + modify->result->upserted == !modify->status);
    for (size_t i = 0; op->delegated_kind == &truce__delegated_kind_bulk && i < bulk->count; i++)
        check_outcome(&bulk->writes[i], &bulk->outcomes[i]);
}

static void run(struct fuzz_input *input, struct write_op *op)
{
    struct writer *writer = &engine->writer;
    struct buffer answer = {0}, again = {0};
    bson_error_t error;
    uint32_t version;

    truce_assert(!truce__kv_write_begin(writer->kv, &version, &error));
    truce__cache_begin(writer->cache, true);
    truce__kv_accept(writer->kv);
    truce__arena_reset(&writer->arena);
    op->reset(op);
    if (!op->run(op, writer, &error) && op->delegated_kind->answer(op, &answer) == DELEGATED_DONE)
        look_at_answer(input, op, &answer);
    (void)op->delegated_kind->pack(op, &again);
    truce__kv_write_rollback(writer->kv);
    truce__cache_end(writer->cache, false);
    truce__writer_catalog_changed(writer);
    truce__buffer_release(&answer);
    truce__buffer_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bool raw = fuzz_below(&input, 8) == 0;
    const struct delegated_kind *kind = truce__delegated_kinds[fuzz_below(&input, 2)];
    bson_t *request = raw                                   ? NULL
                      : kind == &truce__delegated_kind_bulk ? make_bulk(&input)
                                                            : make_modify(&input);
    uint8_t *bytes = request ? (uint8_t *)bson_get_data(request) : NULL;
    struct bytes given = {raw ? input.at : bytes, raw ? input.left : request->len};
    struct write_op *op;

    if (!engine)
        begin();
    if (!raw && !fuzz_below(&input, 4))
        bytes[(fuzz_byte(&input) << 8 | fuzz_byte(&input)) % request->len] ^= fuzz_byte(&input);
    op = kind->open(engine, given);
    if (op) {
        run(&input, op);
        op->delegated_kind->close(op);
    }
    if (request)
        bson_destroy(request);
    return 0;
}
