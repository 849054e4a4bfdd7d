#include "tests/support/school.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/documents/open_documents.h"
#include "tests/support/test.h"

/* ---- the work ------------------------------------------------------------------------------- */

static truce_status create_index(truce_store *store, const char *json, bson_error_t *error)
{
    bson_t *index = test_bson(json);
    truce_status status = truce_index_create(store, "log", index, error);

    bson_destroy(index);
    return status;
}

/* Inserts all accounts in one bulk: they are there together or not at all. */
static truce_status open_accounts(truce_store *store, bson_error_t *error)
{
    truce_write writes[SCHOOL_ACCOUNTS];
    truce_write_outcome outcomes[SCHOOL_ACCOUNTS];
    truce_bulk_options options = {.atomic = true};
    bson_t documents[SCHOOL_ACCOUNTS];
    truce_status status;
    int64_t count;

    status = truce_count(store, "accounts", NULL, NULL, &count, error);
    if (status || count)
        return status;
    for (int i = 0; i < SCHOOL_ACCOUNTS; i++) {
        bson_init(&documents[i]);
        BSON_APPEND_INT32(&documents[i], "_id", i);
        BSON_APPEND_INT64(&documents[i], "money", SCHOOL_MONEY);
        writes[i] = (truce_write){
            .kind = TRUCE_WRITE_INSERT, .collection = "accounts", .document = &documents[i]};
    }
    status = truce_bulk(store, writes, SCHOOL_ACCOUNTS, &options, outcomes, error);
    /* DUPLICATE means that another process has created the accounts. */
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

truce_status school_open(truce_store *store, bson_error_t *error)
{
    truce_status status = create_index(store, "{'key': {'stamp': 1}, 'unique': true}", error);

    if (!status)
        status = create_index(store, "{'key': {'tags': 1, 'worker': -1}}", error);
    if (!status)
        status = open_accounts(store, error);
    return status;
}

static bson_t *document(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bson_t *document(const char *format, ...)
{
    char json[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(json, sizeof json, format, arguments);
    va_end(arguments);
    return test_bson(json);
}

static truce_status count_up(truce_store *store, int worker, const truce_write_options *options,
                             bson_error_t *error)
{
    bson_t *filter = document("{'_id': %d}", worker), *update = test_bson("{'$inc': {'n': 1}}");
    truce_write_options how = *options;
    truce_status status;

    how.upsert = true;
    status = truce_update(store, "counters", filter, update, &how, NULL, error);
    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static truce_status log_round(truce_store *store, int worker, long long round,
                              const truce_write_options *options, bson_error_t *error)
{
    bson_t *entry =
        document("{'_id': '%d-%lld', 'worker': %d, 'stamp': %lld, "
                 "'tags': ['a', %lld, {'b': %lld}]}",
                 worker, round, worker, round * SCHOOL_WORKERS_MAX + worker, round % 7, round % 3);
    truce_status status = truce_insert(store, "log", entry, options, error);

    bson_destroy(entry);
    return status;
}

/* Moves 1 between two accounts, which depend on the worker and the round, by an atomic bulk. */
static truce_status move_money(truce_store *store, int worker, long long round,
                               const truce_write_options *options, bson_error_t *error)
{
    int from = (int)((worker + round) % SCHOOL_ACCOUNTS);
    int to = (int)((from + 1 + round % (SCHOOL_ACCOUNTS - 1)) % SCHOOL_ACCOUNTS);
    bson_t *filters[] = {document("{'_id': %d}", from), document("{'_id': %d}", to)};
    bson_t *updates[] = {test_bson("{'$inc': {'money': {'$numberLong': '-1'}}}"),
                         test_bson("{'$inc': {'money': {'$numberLong': '1'}}}")};
    truce_bulk_options how = {.atomic = true, .relaxed = options->relaxed};
    truce_write_outcome outcomes[2];
    truce_write writes[2];
    truce_status status;

    for (int i = 0; i < 2; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                  .collection = "accounts",
                                  .filter = filters[i],
                                  .document = updates[i]};
    status = truce_bulk(store, writes, 2, &how, outcomes, error);
    for (int i = 0; i < 2; i++) {
        bson_destroy(filters[i]);
        bson_destroy(updates[i]);
    }
    return status;
}

/* Replaces the big document of a worker. Its size changes with each round. */
static truce_status write_big(truce_store *store, int worker, long long round, uint32_t pad,
                              const truce_write_options *options, bson_error_t *error)
{
    bson_t *filter = document("{'_id': %d}", worker), update = BSON_INITIALIZER;
    uint32_t size = pad / 2 + (uint32_t)((uint64_t)round * 7919 % pad);
    truce_write_options how = *options;
    char *text = malloc(size + 1);
    truce_status status;

    memset(text, 'a' + (int)(round % 26), size);
    text[size] = '\0';
    BSON_APPEND_UTF8(&update, "pad", text);
    how.upsert = true;
    status = truce_update(store, "big", filter, &update, &how, NULL, error);
    free(text);
    bson_destroy(filter);
    bson_destroy(&update);
    return status;
}

truce_status school_round(truce_store *store, struct school_notes *notes, int worker, uint32_t pad,
                          bool relaxed, bson_error_t *error)
{
    truce_write_options options = {.relaxed = relaxed};
    long long round = atomic_load(&notes->begun[worker]);
    truce_status status;

    atomic_store(&notes->begun[worker], round + 1);
    status = count_up(store, worker, &options, error);
    if (!status) {
        atomic_fetch_add(&notes->counted[worker], 1);
        status = log_round(store, worker, round, &options, error);
    }
    if (!status) {
        atomic_fetch_add(&notes->logged[worker], 1);
        status = move_money(store, worker, round, &options, error);
    }
    if (!status && pad)
        status = write_big(store, worker, round, pad, &options, error);
    return status;
}

/* ---- the checks ------------------------------------------------------------------------------ */

struct checker {
    struct engine *engine;
    const struct school_notes *notes;
    /* The arguments of school_check. */
    bool durable, tell;
    /* The number of conditions that do not hold, so far. */
    int wrong;
};

static void blame(struct checker *checker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void blame(struct checker *checker, const char *format, ...)
{
    va_list arguments;

    checker->wrong++;
    if (!checker->tell)
        return;
    va_start(arguments, format);
    fprintf(stderr, "  judged: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}

/* Returns the number in `field` of the only document that matches, or `missing` if no document
 * matches. */
static int64_t number_of(struct checker *checker, const char *collection, const bson_t *filter,
                         const char *field, int64_t missing)
{
    static const truce_find_options all = {0};
    truce_cursor *cursor;
    const bson_t *found;
    bson_error_t error;
    bson_iter_t iter;
    int64_t number = missing;

    if (truce__engine_find(checker->engine, collection, filter, &all, &cursor, &error)) {
        blame(checker, "%s: %s", collection, error.message);
        return missing;
    }
    if (!cursor->ops->next(cursor, &found, &error) && found &&
        bson_iter_init_find(&iter, found, field))
        number = bson_iter_as_int64(&iter);
    cursor->ops->close(cursor);
    return number;
}

static int64_t count(struct checker *checker, const bson_t *filter)
{
    static const truce_find_options all = {0};
    bson_error_t error;
    int64_t number = 0;

    if (truce__engine_count(checker->engine, "log", filter, &all, &number, &error))
        blame(checker, "log: %s", error.message);
    return number;
}

static void diagnose_counter(struct checker *checker, int worker)
{
    int64_t begun = atomic_load(&checker->notes->begun[worker]);
    int64_t acknowledged = checker->durable ? atomic_load(&checker->notes->counted[worker]) : 0;
    bson_t *filter = document("{'_id': %d}", worker);
    int64_t n = number_of(checker, "counters", filter, "n", 0);

    if (n < acknowledged || n > begun)
        blame(checker, "counter %d is %lld, acknowledged %lld, begun %lld", worker, (long long)n,
              (long long)acknowledged, (long long)begun);
    bson_destroy(filter);
}

/* Rounds that failed before their log entry leave a gap only at the end of a life of the worker,
 * and a worker that continues counts its rounds from `begun`. So the check requires each
 * acknowledged round only if no round has failed: `logged` is then `begun` or `begun` - 1. */
static void diagnose_log(struct checker *checker, int worker)
{
    int64_t begun = atomic_load(&checker->notes->begun[worker]);
    int64_t acknowledged = checker->durable ? atomic_load(&checker->notes->logged[worker]) : 0;
    bson_t *filter = document("{'worker': %d}", worker);
    int64_t there = count(checker, filter);

    if (there < acknowledged || there > begun)
        blame(checker, "worker %d has %lld entries, acknowledged %lld, begun %lld", worker,
              (long long)there, (long long)acknowledged, (long long)begun);
    bson_destroy(filter);
}

/* Checks the sum of all accounts. Reads them in one snapshot, because other workers may be
 * running. */
static void diagnose_money(struct checker *checker)
{
    truce_read_request looks[SCHOOL_ACCOUNTS];
    bson_value_t ids[SCHOOL_ACCOUNTS];
    bson_error_t error;
    bson_iter_t iter;
    int64_t sum = 0;

    for (int i = 0; i < SCHOOL_ACCOUNTS; i++) {
        ids[i].value_type = BSON_TYPE_INT32;
        ids[i].value.v_int32 = i;
        looks[i] = (truce_read_request){.collection = "accounts", .id = &ids[i]};
    }
    if (truce__engine_read_many(checker->engine, looks, SCHOOL_ACCOUNTS, &error))
        blame(checker, "accounts: %s", error.message);
    for (int i = 0; i < SCHOOL_ACCOUNTS; i++) {
        if (bson_iter_init_find(&iter, &looks[i].document, "money"))
            sum += bson_iter_as_int64(&iter);
        bson_destroy(&looks[i].document);
    }
    if (sum != SCHOOL_ACCOUNTS * SCHOOL_MONEY && (sum || checker->durable))
        blame(checker, "the accounts hold %lld", (long long)sum);
}

int school_check(const char *path, const struct school_notes *notes, int workers, bool durable,
                 bool tell)
{
    struct checker checker = {.notes = notes, .durable = durable, .tell = tell};
    truce_store_options options = {0};
    bson_error_t error;

    if (truce__engine_open(path, &options, &checker.engine, &error)) {
        blame(&checker, "%s", error.message);
        return checker.wrong;
    }
    if (truce__engine_check(checker.engine, NULL, NULL, &error))
        blame(&checker, "%s", error.message);
    for (int i = 0; i < workers; i++) {
        diagnose_counter(&checker, i);
        diagnose_log(&checker, i);
    }
    diagnose_money(&checker);
    truce__engine_close(checker.engine);
    return checker.wrong;
}
