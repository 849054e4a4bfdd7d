#include "tests/support/masked.h"

#include "tests/support/test.h"
#include "truce/sys/decorate.h"

static const struct {
    uint32_t capability;
    /* A string in the arguments of each call that needs the capability. */
    const char *word;
} words[] = {
    {TRUCE_CAN_ITEM_UPDATE, "\"$update\""},
    {TRUCE_CAN_ARRAY_FILTERS, "arrayFilters"},
    {TRUCE_CAN_PIPELINE_UPDATE, "\"pipeline\" : true"},
    {TRUCE_CAN_WILDCARD_INDEX, "$**"},
    {TRUCE_CAN_ATOMIC_BULK, "\"atomic\" : true"},
};

static void look(const bson_t *event, void *arg)
{
    uint32_t lacks = (uint32_t)(uintptr_t)arg;
    char *text = bson_as_canonical_extended_json(event, NULL);

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if ((lacks & words[i].capability) && strstr(text, words[i].word))
            test_fail(__FILE__, __LINE__, "the store cannot do %s: %.300s", words[i].word, text);
    }
    bson_free(text);
}

truce_store *masked_wrap(truce_store *inner, uint32_t lacks)
{
    truce_store *store = truce_trace_wrap(
        inner, &(truce_trace_options){.function = look, .arg = (void *)(uintptr_t)lacks});

    store->capabilities &= ~lacks;
    return store;
}
