/* The contract, kept by the trace decorator; and its events. */
#include "tests/support/contract.h"
#include "truce/sys/decorate.h"

#include <pthread.h>

static struct events {
    pthread_mutex_t mutex;
    bson_t *last[8]; /* the newest first */
    long count;
} events = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void keep(const bson_t *event, void *arg)
{
    struct events *kept = arg;

    pthread_mutex_lock(&kept->mutex);
    bson_destroy(kept->last[7]);
    memmove(kept->last + 1, kept->last, 7 * sizeof(kept->last[0]));
    kept->last[0] = bson_copy(event);
    kept->count++;
    pthread_mutex_unlock(&kept->mutex);
}

static truce_store *open_trace(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open("memory:", NULL, &store, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return NULL;
    }
    return truce_trace_wrap(store, &(truce_trace_options){.function = keep, .arg = &events});
}

CONTRACT_SUITE(open_trace)

/* The value at a dotted path of an event, as relaxed JSON; "" if the path is missing. */
static const char *at(const bson_t *event, const char *path, char *text, size_t size)
{
    bson_t shown = BSON_INITIALIZER;
    bson_iter_t iter, child;
    char *json = NULL;

    text[0] = '\0';
    if (event && bson_iter_init(&iter, event) && bson_iter_find_descendant(&iter, path, &child)) {
        bson_append_iter(&shown, "", -1, &child);
        json = bson_as_relaxed_extended_json(&shown, NULL);
        snprintf(text, size, "%.*s", (int)strlen(json) - 9, json + 7);
        bson_free(json);
    }
    bson_destroy(&shown);
    return text;
}

CONTRACT(an_event_has_call_answer_and_times)
{
    char text[200];
    long before = events.count;

    CHECK_DONE(truce_insert(c->store, "things", J("{'_id': 1, 'a': 'x'}"), NULL, &c->error));
    CHECK_INT(events.count, ==, before + 1);
    CHECK_TEXT("\"bulk\"", at(events.last[0], "verb", text, sizeof(text)));
    CHECK_TEXT("\"things\"", at(events.last[0], "collection", text, sizeof(text)));
    CHECK_TEXT("\"insert\"", at(events.last[0], "arguments.writes.0.kind", text, sizeof(text)));
    CHECK_TEXT("\"x\"", at(events.last[0], "arguments.writes.0.document.a", text, sizeof(text)));
    CHECK_TEXT("\"ok\"", at(events.last[0], "status", text, sizeof(text)));
    CHECK_TEXT("1", at(events.last[0], "answer.outcomes.0.inserted", text, sizeof(text)));
    CHECK(strtoll(at(events.last[0], "begin", text, sizeof(text)), NULL, 10) > 0);
    CHECK_REFUSED(TRUCE_DUPLICATE, 0,
                  truce_insert(c->store, "things", J("{'_id': 1}"), NULL, &c->error));
    CHECK_TEXT("\"duplicate\"", at(events.last[0], "status", text, sizeof(text)));
    CHECK_TEXT("11000", at(events.last[0], "error.code", text, sizeof(text)));
}

CONTRACT(cursor_steps_tell_what_was_read)
{
    char text[200], number[30];

    contract_fill(c, "things", "[{'_id': 1, 'a': 'x'}]");
    CHECK_FINDS("things", "{'_id': 1}", NULL, "[{'_id': 1, 'a': 'x'}]");
    CHECK_TEXT("\"next\"", at(events.last[0], "verb", text, sizeof(text)));
    CHECK_TEXT("", at(events.last[0], "answer.document", text, sizeof(text)));
    CHECK_TEXT("\"x\"", at(events.last[1], "answer.document.a", text, sizeof(text)));
    CHECK_TEXT("\"find\"", at(events.last[2], "verb", text, sizeof(text)));
    CHECK_TEXT("1", at(events.last[2], "arguments.filter._id", text, sizeof(text)));
    CHECK_TEXT(at(events.last[2], "answer.cursor", number, sizeof(number)),
               at(events.last[1], "arguments.cursor", text, sizeof(text)));
}

TEST(a_trace_in_a_file_is_a_line_a_call_and_reads_back)
{
    char path[600], line[2000];
    truce_store *store = NULL;
    bson_t *document = test_bson("{'_id': 1}");
    bson_error_t error;
    FILE *file;
    int lines = 0;

    snprintf(path, sizeof(path), "%s/trace.ndjson", test_directory());
    file = fopen(path, "w+");
    REQUIRE(file != NULL);
    REQUIRE(truce_store_open("memory:", NULL, &store, NULL) == TRUCE_OK);
    store = truce_trace_wrap(
        store,
        &(truce_trace_options){.function = truce_trace_to_file, .arg = file, .beginnings = true});
    CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_insert(store, "things", document, NULL, &error), error);
    truce_store_close(store);
    rewind(file);
    while (fgets(line, sizeof(line), file)) {
        bson_t *event = bson_new_from_json((const uint8_t *)line, -1, NULL);

        CHECK(event && bson_has_field(event, "status") == (lines % 2 == 1));
        CHECK(event && bson_has_field(event, "arguments.writes.0.document._id"));
        bson_destroy(event);
        lines++;
    }
    CHECK_INT(lines, ==, 4);
    fclose(file);
    bson_destroy(document);
}
