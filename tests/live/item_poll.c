/*
 * Readers in other processes poll a document all the time. In the meantime, writers change, add,
 * and remove its items, and a process that is killed with -9 converts the collection into maps and
 * back. No answer shows the item absent, twice or half-changed, nor the other items in another
 * order. All acknowledged changes are there at the end.
 *
 * With TEST_ON_SERVER, on a server of MongoDB's protocol.
 *
 * TRUCE_ITEM_POLLS: how many reads each reader does.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "patterns/item/item.h"
#include "tests/support/item_rig.h"
#include "tests/support/server.h"
#include "tests/support/tutorial.h"

#ifdef TEST_ON_SERVER
#define POLLS 600
#else
#define POLLS 15000
#endif
#define READERS   3
#define DOCUMENTS 40 /* converted documents, in addition to the polled one */

static struct shared {
    atomic_long reads, wrong, changed, conversions;
    atomic_long counted[DOCUMENTS + 2]; /* acknowledged increments */
    atomic_bool stop;
    char what[400];
} * shared;

static char uri[400];

static truce_store *open_store(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open(uri, &(truce_store_options){.relaxed = true}, &store, &error)) {
        fprintf(stderr, "%s\n", error.message);
        _exit(1);
    }
    return store;
}

/* ---- the reader ---- */

static bool letter(struct value item, char expected)
{
    struct value type = truce__value_field(item, "type", 4);
    uint32_t length;

    return type.type == BSON_TYPE_UTF8 && *truce__value_text(type, &length) == expected;
}

/* A may be there or not, then B, C; X at the end may be there or not; n and m of B are equal. */
static const char *fault_in(const bson_t *document)
{
    struct value items = truce__item_at(document, "badges");
    struct fields fields;
    struct value n, m;
    bool more;

    if (!truce__value_is_container(items))
        return "no items";
    fields = truce__fields(items);
    more = truce__fields_next(&fields);
    if (more && letter(fields.value, 'A'))
        more = truce__fields_next(&fields);
    if (!more || !letter(fields.value, 'B'))
        return "B is absent";
    n = truce__value_field(fields.value, "n", 1);
    m = truce__value_field(fields.value, "m", 1);
    if (!truce__value_equal(n, m))
        return "B is half-changed";
    if (!truce__fields_next(&fields) || !letter(fields.value, 'C'))
        return "C is not behind B";
    for (more = truce__fields_next(&fields); more; more = truce__fields_next(&fields)) {
        if (letter(fields.value, 'B'))
            return "B is there twice";
    }
    return NULL;
}

static _Noreturn void poll_items(long reads)
{
    truce_store *store = open_store();
    bson_t *filter = test_bson("{'_id': 1}");
    bson_error_t error;

    for (long i = 0; i < reads; i++) {
        const char *fault;
        bson_t found;

        if (truce_find_one(store, "employees", filter, NULL, &found, &error)) {
            fprintf(stderr, "reader: %s\n", error.message);
            _exit(1);
        }
        fault = fault_in(&found);
        atomic_fetch_add(&shared->reads, 1);
        if (fault && atomic_fetch_add(&shared->wrong, 1) == 0) {
            char *text = bson_as_relaxed_extended_json(&found, NULL);

            snprintf(shared->what, sizeof shared->what, "%s: %.300s", fault, text);
        }
        bson_destroy(&found);
    }
    _exit(0);
}

/* ---- the writers ---- */

static bool change(truce_store *store, truce_item *item, const char *call)
{
    truce_item_result result;
    bson_error_t error;
    truce_status status = item_rig_call(item, NULL, store, call, &result, &error);

    if (status)
        fprintf(stderr, "writer: %s: %s\n", call, error.message);
    return !status;
}

static _Noreturn void write_items(truce_item_form form)
{
    static const char *const calls[] = {
        "update {'type': 'B'} {'$inc': {'n': 1, 'm': 1}}",
        "remove {'type': 'X'}",
        "update {'n': {'$gte': 0}, 'm': {'$gte': 0}} {'$inc': {'n': 1, 'm': 1}}",
        "add {'type': 'X'}",
        "remove {'type': 'A'}",
        "upsert {'type': 'X', 'n': 1}"};
    truce_store *store = open_store();
    truce_item *item = tutorial_item(store, &(truce_item_options){.form = form});

    for (int i = 0; !atomic_load(&shared->stop); i++) {
        if (!change(store, item, calls[i % 6]))
            _exit(1);
        atomic_fetch_add(&shared->changed, 1);
    }
    truce_item_free(item);
    truce_store_close(store);
    _exit(0);
}

static pid_t start_reader(long reads)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child)
        poll_items(reads);
    return child;
}

static pid_t start_writer(truce_item_form form)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child)
        write_items(form);
    return child;
}

static bool ended_well(pid_t child)
{
    int state;

    return waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static void fill(int from, int count)
{
    truce_store *store = open_store();
    bson_error_t error;

    for (int i = from; i < from + count; i++) {
        bson_t *document = test_bson("{'_id': 0, 'badges': [{'type': 'A', 'n': 0}, {'type': 'B',"
                                     "'n': 0, 'm': 0}, {'type': 'C', 'n': 0}]}");
        bson_t numbered = BSON_INITIALIZER;

        BSON_APPEND_INT32(&numbered, "_id", i);
        bson_copy_to_excluding_noinit(document, &numbered, "_id", NULL);
        CHECK_OK(truce_insert(store, "employees", &numbered, NULL, &error), error);
        bson_destroy(&numbered);
        bson_destroy(document);
    }
    truce_store_close(store);
}

static bool begin(const char *name)
{
#ifdef TEST_ON_SERVER
    (void)name;
    truce_store_close(server_store()); /* emptied */
    server_release();                  /* no connection is open at a fork */
    server_uri(uri, sizeof uri, "");
#else
    snprintf(uri, sizeof uri, "file:%s/%s.truce", test_directory(), name);
#endif
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return CHECK(shared != MAP_FAILED);
}

static bool has_form(truce_item_form form)
{
    truce_store *store = open_store();
    uint32_t needed = form == TRUCE_ITEM_FORM_OPERATOR  ? TRUCE_CAN_ITEM_UPDATE
                      : form == TRUCE_ITEM_FORM_FILTERS ? TRUCE_CAN_ARRAY_FILTERS
                                                        : 0;
    bool has = (store->capabilities & needed) == needed;

    truce_store_close(store);
    return has;
}

static void poll_through(truce_item_form form, const char *name)
{
    long reads = test_scale("TRUCE_ITEM_POLLS", POLLS);
    pid_t readers[READERS], writers[2];

    REQUIRE(begin(name));
    if (!has_form(form)) {
        test_skip("this store has no such form");
        return;
    }
    fill(1, 1);
    for (int i = 0; i < 2; i++)
        writers[i] = start_writer(form);
    for (int i = 0; i < READERS; i++)
        readers[i] = start_reader(reads);
    for (int i = 0; i < READERS; i++)
        CHECK(ended_well(readers[i]));
    for (int i = 0; i < 60000 && atomic_load(&shared->changed) <= 2; i++)
        truce__clock_sleep_ms(1); /* a slow machine */
    atomic_store(&shared->stop, true);
    for (int i = 0; i < 2; i++)
        CHECK(ended_well(writers[i]));
    CHECK_INT(atomic_load(&shared->reads), ==, READERS * reads);
    if (atomic_load(&shared->wrong))
        test_fail(__FILE__, __LINE__, "%ld answers are wrong; %s", atomic_load(&shared->wrong),
                  shared->what);
    CHECK_INT(atomic_load(&shared->changed), >, 2);
    munmap(shared, sizeof *shared);
}

TEST(shows_an_item_during_an_operator_update_to_every_reader)
{
    poll_through(TRUCE_ITEM_FORM_OPERATOR, "operator");
}

TEST(shows_an_item_during_an_array_filter_update_to_every_reader)
{
    poll_through(TRUCE_ITEM_FORM_FILTERS, "filters");
}

TEST(shows_an_item_during_a_positional_update_to_every_reader)
{
    poll_through(TRUCE_ITEM_FORM_POSITIONAL, "positional");
}

/* ---- converting under load ---- */

static _Noreturn void convert_for_ever(void)
{
    truce_store *store = open_store();
    truce_item *item = tutorial_item(store, NULL);
    bson_error_t error;

    for (int i = 0;; i++) {
        if (truce_item_convert(item, i % 2 ? TRUCE_ITEM_ARRAY : TRUCE_ITEM_MAP, NULL, NULL,
                               &error)) {
            fprintf(stderr, "converter: %s\n", error.message);
            _exit(1);
        }
        atomic_fetch_add(&shared->conversions, 1);
    }
}

static _Noreturn void count_items(truce_item_layout layout)
{
    truce_store *store = open_store();
    truce_item *item = tutorial_item(store, &(truce_item_options){.layout = layout});
    bson_t *query = test_bson("{'type': 'B'}"), *update = test_bson("{'$inc': {'n': 1, 'm': 1}}");

    for (int i = 0; !atomic_load(&shared->stop); i++) {
        int id = 1 + i % (DOCUMENTS + 1);
        bson_t *filter = BCON_NEW("_id", BCON_INT32(id));
        truce_item_result result;
        bson_error_t error;
        truce_status status = truce_item_update(item, NULL, filter, query, update, &result, &error);

        bson_destroy(filter);
        if (status || result.matched != 1) {
            fprintf(stderr, "counter: %d, %s\n", (int)result.matched, status ? error.message : "");
            _exit(1);
        }
        atomic_fetch_add(&shared->counted[id], 1);
    }
    _exit(0);
}

static void check_counts(void)
{
    truce_store *store = open_store();
    truce_item *item = tutorial_item(store, NULL);
    bson_error_t error;

    CHECK_OK(truce_item_convert(item, TRUCE_ITEM_MAP, NULL, NULL, &error), error);
    for (int id = 1; id <= DOCUMENTS + 1; id++) {
        bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), found;
        struct value n;

        CHECK_OK(truce_find_one(store, "employees", filter, NULL, &found, &error), error);
        CHECK(!fault_in(&found));
        n = truce__item_at(&found, "badges.B.n");
        if (CHECK(n.type == BSON_TYPE_INT32))
            CHECK_INT(truce__value_int32(n), ==, atomic_load(&shared->counted[id]));
        bson_destroy(&found);
        bson_destroy(filter);
    }
    truce_item_free(item);
    truce_store_close(store);
}

TEST(a_conversion_under_load_that_is_killed_loses_nothing)
{
    long deaths = test_scale("TRUCE_ITEM_DEATHS", 12);
    pid_t reader, writers[2], converter = 0;

    REQUIRE(begin("convert"));
    fill(1, DOCUMENTS + 1);
    for (int i = 0; i < 2; i++) {
        fflush(NULL);
        writers[i] = fork();
        if (!writers[i])
            count_items(i ? TRUCE_ITEM_MAP : TRUCE_ITEM_ARRAY);
    }
    reader = start_reader(test_scale("TRUCE_ITEM_POLLS", POLLS) / 3);
    for (long i = 0; i < deaths; i++) {
        int state;

        fflush(NULL);
        converter = fork();
        if (!converter)
            convert_for_ever();
        truce__clock_sleep_ms(20 + i * 7 % 40);
        kill(converter, SIGKILL);
        CHECK(waitpid(converter, &state, 0) == converter && WIFSIGNALED(state));
    }
    CHECK(ended_well(reader));
    atomic_store(&shared->stop, true);
    for (int i = 0; i < 2; i++)
        CHECK(ended_well(writers[i]));
    CHECK_INT(atomic_load(&shared->wrong), ==, 0);
    check_counts();
    munmap(shared, sizeof *shared);
}
