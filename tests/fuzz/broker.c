/*
 * A mapping, a message, and a URL from the input, which zero bytes separate. A mapping that
 * compiles is applied, and its result must be well-formed BSON. Changes that pass the check of a
 * target are added to a commit, which is dropped.
 */
#include <string.h>

#include "base/assert.h"
#include "broker/broker.h"
#include "broker/message_effect.h"
#include "broker/message_template.h"
#include "bson/json.h"
#include "bson/value.h"
#include "truce/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const targets[] = {"queue:q", "upsert:c", "merge:c", "post:b", "commit"};

static truce_store *memory_store(void)
{
    static truce_store *store;
    bson_error_t error;

    if (!store)
        truce_assert(truce_store_open("memory:", NULL, &store, &error) == TRUCE_OK);
    return store;
}

static void fuzz_url(const char *text)
{
    char *copy = bson_strdup(text);
    struct broker_address address;
    bson_error_t error = {0};
    bson_t query;
    truce_status status = truce__broker_address_read(copy, &query, &address, &error);

    truce_assert(!status == !error.message[0]);
    bson_destroy(&query);
    bson_free(copy);
}

static void fuzz_effect(struct effect_target *target, const bson_t *message)
{
    struct arena arena = {0};
    struct effect effect;
    bson_error_t error = {0};
    truce_commit *commit = NULL;
    truce_status status = truce__effect_make(target, message, &arena, &effect, &error);

    truce_assert(!status == !error.message[0]);
    if (!status) {
        truce_assert(truce__document_valid(bson_get_data(&effect.changes), effect.changes.len));
        if (!truce_commit_begin(memory_store(), NULL, &commit, NULL))
            status = truce__effect_add(target, &effect, commit, &error);
        truce_commit_free(commit);
        truce__effect_release(&effect);
    }
    truce__arena_release(&arena);
}

static void fuzz_mapping(const char *into, const char *mapping, const char *message_text)
{
    struct json_reader mapping_reader = {.typed = true}, message_reader = {.exact = true};
    struct effect_target *target = NULL;
    bson_t map, message;
    bson_error_t error;
    bool is_array = false;

    if (!truce__json_read(&mapping_reader, mapping, strlen(mapping), &map, &is_array, &error) &&
        !truce__json_read(&message_reader, message_text, strlen(message_text), &message, NULL,
                          &error) &&
        !truce__effect_target_new(memory_store(), into, &map, is_array, NULL, &target, &error))
        fuzz_effect(target, &message);
    truce__effect_target_free(target);
    truce__json_reader_release(&mapping_reader);
    truce__json_reader_release(&message_reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = bson_malloc0(size + 3);
    const char *mapping, *message;

    if (size)
        memcpy(copy, data, size);
    mapping = copy + (size > 0);
    message = mapping + strlen(mapping);
    message += message < copy + size;
    fuzz_url(copy);
    fuzz_mapping(targets[size ? data[0] % 5 : 0], mapping, message);
    bson_free(copy);
    return 0;
}
