/*
 * A history of Jepsen in EDN: any text is read, or refused with its line. A history that was read
 * is checked, and the smallest part with its anomaly is drawn.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/edn.h"
#include "sim/jepsen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note_name(const struct verify_anomaly *anomaly, void *arg)
{
    snprintf(arg, 40, "%s", anomaly->name);
}

static void check_history(struct verify *verify)
{
    struct buffer drawing = {0};
    char name[40] = "";
    int anomalies = truce__verify_run(verify, note_name, name);

    truce_assert((anomalies > 0) == (*name != 0));
    if (anomalies && strcmp(name, "undecided") != 0) {
        uint32_t drawn = truce__verify_draw(verify, name, &drawing);

        truce_assert(drawn > 0 && drawn <= truce__verify_count(verify) && drawing.size > 0);
    }
    truce__buffer_release(&drawing);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct edn_reader reader = {.text = (const char *)data, .size = size, .line = 1};
    struct verify *verify = truce__verify_new();
    struct jepsen *jepsen = truce__jepsen_new(verify);
    bson_error_t error = {0};
    truce_status status;

    for (;;) {
        bson_t operation;

        status = truce__edn_next(&reader, &operation, &error);
        truce_assert(!status || error.message[0]);
        if (status || !reader.found)
            break;
        truce_assert(bson_validate(&operation, BSON_VALIDATE_UTF8, NULL));
        truce_assert(!truce__jepsen_add(jepsen, &operation, &error) || error.message[0]);
        bson_destroy(&operation);
    }
    if (!truce__jepsen_end(jepsen, &error) && truce__verify_count(verify) <= 100)
        check_history(verify);
    truce__jepsen_free(jepsen);
    truce__verify_free(verify);
    return 0;
}
