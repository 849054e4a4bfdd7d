/*
 * filemd5: the MD5 of a GridFS file, which older drivers request after writing the file. It reads
 * the chunks
 *
 *     ROOT.chunks {files_id, n: 0, 1, 2 ..., data}, in the order of the index {files_id: 1, n: 1}
 *
 * A gap in the numbers, a repeated number, or a chunk without binary data is an error.
 */
#include <stddef.h>
#include <stdio.h>

#include <openssl/evp.h>

#include "base/assert.h"
#include "base/field.h"
#include "bson/binary_text.h"
#include "server/command/handlers.h"

#define SUM_BYTES 16

struct sum {
    /* The MD5 so far, or NULL if OpenSSL could not allocate it. */
    EVP_MD_CTX *digest;
    int32_t chunks;
};

static truce_status filemd5_sum_begin(struct sum *sum, bson_error_t *error)
{
    *sum = (struct sum){.digest = EVP_MD_CTX_new()};
    if (sum->digest && EVP_DigestInit_ex(sum->digest, EVP_md5(), NULL) == 1)
        return TRUCE_OK;
    return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                         "filemd5 is not supported: the OpenSSL of this machine does not provide "
                         "MD5");
}

/* Adds the bytes of the next chunk to the sum. Fails with 10040 if its number is not the next one,
 * and with 50847 without binary data. */
static truce_status filemd5_sum_add(struct sum *sum, const bson_t *chunk, bson_error_t *error)
{
    int64_t n = truce__field_number(chunk, "n");
    bson_subtype_t kind;
    const uint8_t *bytes;
    uint32_t size;
    bson_iter_t at;

    if (n != sum->chunks)
        return truce__refuse(10040, error, "chunks out of order: should have chunk: %d have: %lld",
                             sum->chunks, (long long)n);
    if (!bson_iter_init_find(&at, chunk, "data") || !BSON_ITER_HOLDS_BINARY(&at))
        return truce__refuse(50847, error, "chunk %d has no binary data", sum->chunks);
    bson_iter_binary(&at, &kind, &size, &bytes);
    truce_assert(EVP_DigestUpdate(sum->digest, bytes, size) == 1);
    sum->chunks++;
    return TRUCE_OK;
}

static void sum_report(struct sum *sum, bson_t *reply)
{
    uint8_t bytes[EVP_MAX_MD_SIZE];
    char hex[2 * SUM_BYTES + 1];
    unsigned size = 0;

    truce_assert(EVP_DigestFinal_ex(sum->digest, bytes, &size) == 1 && size == SUM_BYTES);
    truce__hex_show(bytes, size, hex);
    BCON_APPEND(reply, "numChunks", BCON_INT32(sum->chunks), "md5", BCON_UTF8(hex));
}

/* Adds up all chunks of the file in the order of their numbers. */
static truce_status sum_chunks(struct call *call, const char *stored_name, struct sum *sum,
                               bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    bson_t *order = BCON_NEW("files_id", BCON_INT32(1), "n", BCON_INT32(1));
    truce_find_options options = {.hint = order, .sort = order, .deadline_ms = call->deadline_ms};
    truce_cursor *cursor = NULL;
    const bson_t *chunk = NULL;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "files_id", bson_iter_value(&call->value));
    status = truce_find(call->store, stored_name, &filter, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &chunk, error)) && chunk)
        status = filemd5_sum_add(sum, chunk, error);
    truce_cursor_close(cursor);
    bson_destroy(order);
    bson_destroy(&filter);
    return status;
}

truce_status serve_filemd5(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct given {
        const char *root;
    } given = {.root = NULL};
    static const struct field fields[] = {{"root", FIELD_TEXT, offsetof(struct given, root)},
                                          {"partialOk", FIELD_PLAIN, 0},
                                          {"md5state", FIELD_PLAIN, 0},
                                          {0}};
    char stored_name[STORED_NAME_MAX];
    truce_status status = call_own_fields(call, fields, &given, error);
    char *ns = bson_strdup_printf("%s.%s.chunks", call->database, given.root ? given.root : "fs");
    struct sum sum = {0};

    if (!status)
        status = serve_stored_name_of(call, ns, ACTION_FIND, stored_name, error);
    if (!status)
        status = filemd5_sum_begin(&sum, error);
    if (!status)
        status = sum_chunks(call, stored_name, &sum, error);
    if (!status)
        sum_report(&sum, reply);
    EVP_MD_CTX_free(sum.digest);
    bson_free(ns);
    return status;
}
