/* Values, and the single writes of masters and dependents. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/id.h"
#include "bson/number.h"
#include "patterns/sync/sync.h"
#include "truce/id.h"

/* ---- looking at documents --------------------------------------------------------------------- */

struct value truce__sync_at(const bson_t *document, const char *path)
{
    struct value value = truce__value_document(document);

    for (;;) {
        size_t length = strcspn(path, ".");

        value = truce__value_field(value, path, length);
        if (!path[length] || value.type != BSON_TYPE_DOCUMENT)
            return path[length] ? truce__value_missing() : value;
        path += length + 1;
    }
}

/* Borrowed from the document. */
static bool value_at(const bson_t *document, const char *path, bson_value_t *value)
{
    bson_iter_t iter, found;

    if (truce__sync_at(document, path).type == VALUE_MISSING || !bson_iter_init(&iter, document) ||
        !bson_iter_find_descendant(&iter, path, &found))
        return false;
    *value = *bson_iter_value(&found);
    return true;
}

bool truce__sync_reference(const struct sync_rule *rule, const bson_t *dependent, bson_value_t *id)
{
    return value_at(dependent, rule->reference, id) && id->value_type != BSON_TYPE_NULL &&
           id->value_type != BSON_TYPE_ARRAY && id->value_type != BSON_TYPE_REGEX &&
           id->value_type != BSON_TYPE_UNDEFINED;
}

int64_t truce__sync_revision(const bson_t *master)
{
    struct value value =
        truce__value_field(truce__value_document(master), SYNC_REVISION, strlen(SYNC_REVISION));

    return truce__value_is_integer(value) && truce__value_integer(value) > 0
               ? truce__value_integer(value)
               : 0;
}

/* Rounded down; what is no number is below all. The guard of copies sees the same. */
int64_t truce__sync_copied(const struct sync_rule *rule, const bson_t *dependent)
{
    struct value copied = truce__sync_at(dependent, rule->copied);
    double number = truce__value_is_number(copied) ? truce__number_to_double(copied) : -1;

    if (truce__value_is_integer(copied))
        return truce__value_integer(copied);
    if (!(number >= 0))
        return -1;
    return number < 0x1p63 ? (int64_t)number : INT64_MAX;
}

truce_status truce__sync_next(const bson_t *master, int64_t least, int64_t *next,
                              bson_error_t *error)
{
    int64_t revision = truce__sync_revision(master);

    /* One without a number may have had one, under the same _id: it begins above all that it can have given. */
    if (!revision)
        revision = truce__clock_wall_ms();
    if (revision < least)
        revision = least;
    if (revision == INT64_MAX)
        return truce__fail(TRUCE_LIMIT, error, "%s is at its last number", SYNC_REVISION);
    *next = revision + 1;
    return TRUCE_OK;
}

bool truce__sync_equal(const struct sync_rule *rule, const bson_t *dependent, const bson_t *master)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        if (!truce__value_identical(truce__sync_at(dependent, bson_iter_key(&iter)),
                                    truce__sync_at(master, bson_iter_utf8(&iter, NULL))))
            return false;
    }
    return true;
}

bool truce__sync_token(const bson_t *document, const char *flag)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, flag) && BSON_ITER_HOLDS_OID(&iter);
}

/* ---- parts of filters and updates ------------------------------------------------------------- */

void truce__sync_append_copies(const struct sync_rule *rule, const bson_t *master, bson_t *set,
                               bson_t *unset)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        struct value value = truce__sync_at(master, bson_iter_utf8(&iter, NULL));
        const char *to = bson_iter_key(&iter);

        if (value.type == VALUE_MISSING)
            BSON_APPEND_BOOL(unset, to, true);
        else
            truce__value_append(set, to, strlen(to), value);
    }
    BSON_APPEND_INT64(set, rule->copied, truce__sync_revision(master));
}

void truce__sync_operators(bson_t *set, bson_t *unset, bson_t *update)
{
    bson_oid_t rev;

    truce__id_new(&rev);
    BSON_APPEND_OID(set, "_rev", &rev);
    BSON_APPEND_DOCUMENT(update, "$set", set);
    if (!bson_empty(unset))
        BSON_APPEND_DOCUMENT(update, "$unset", unset);
    bson_destroy(set);
    bson_destroy(unset);
}

static void append_equal(bson_t *filter, const char *field, const bson_value_t *value)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, field, &inner);
    BSON_APPEND_VALUE(&inner, "$eq", value);
    bson_append_document_end(filter, &inner);
}

/* An array with the master in it is no reference. */
void truce__sync_append_reference(const struct sync_rule *rule, const bson_value_t *master,
                                  bson_t *filter)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, rule->reference, &inner);
    BSON_APPEND_VALUE(&inner, "$eq", master);
    BCON_APPEND(&inner, "$not", "{", "$type", "array", "}");
    bson_append_document_end(filter, &inner);
}

void truce__sync_append_guard(const struct sync_rule *rule, const bson_t *master, bson_t *filter)
{
    bson_value_t id = truce__document_id(master);
    bson_t none, one, inner;

    /* In a form that no index serves: the documents are found by _id, and not by all that have the same reference. */
    BSON_APPEND_ARRAY_BEGIN(filter, "$nor", &none);
    BSON_APPEND_DOCUMENT_BEGIN(&none, "0", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, rule->reference, &inner);
    BSON_APPEND_VALUE(&inner, "$ne", &id);
    bson_append_document_end(&one, &inner);
    bson_append_document_end(&none, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&none, "1", &one);
    BCON_APPEND(&one, rule->reference, "{", "$type", "array", "}");
    bson_append_document_end(&none, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&none, "2", &one);
    BCON_APPEND(&one, rule->copied, "{", "$gte", BCON_INT64(truce__sync_revision(master)), "$not",
                "{", "$type", "array", "}", "}");
    bson_append_document_end(&none, &one);
    bson_append_array_end(filter, &none);
    truce__intent_append_absent(filter);
}

/* ---- writes ----------------------------------------------------------------------------------- */

truce_status truce__sync_write(struct sync_work *work, const char *collection, const bson_t *filter,
                               const bson_t *update, bool multi, int64_t *matched,
                               bson_error_t *error)
{
    truce_write_options options = {.multi = multi};
    truce_write_result result = {0};
    bson_error_t waited;
    truce_status status;

    for (int round = 0;; round++) {
        status =
            truce_update(work->sync->store, collection, filter, update, &options, &result, error);
        *matched = result.matched;
        truce_write_result_release(&result);
        if (!truce__repeatable(status) ||
            (round > 1 && truce__worker_wait(&work->worker, collection, &waited)))
            return status;
    }
}

/* Of what is copied on: the write is a change of a master. `numbered`: of those that have a revision. */
static void append_feed(bool numbered, bson_t *filter, bson_t *set, bson_t *update)
{
    bson_oid_t token;

    if (numbered)
        BCON_APPEND(filter, SYNC_REVISION, "{", "$gt", BCON_INT64(0), "}");
    else
        BCON_APPEND(filter, SYNC_REVISION, "{", "$not", "{", "$gt", BCON_INT64(0), "}", "}");
    truce__id_new(&token);
    BSON_APPEND_OID(set, SYNC_FLAG, &token);
    if (numbered)
        BCON_APPEND(update, "$inc", "{", SYNC_REVISION, BCON_INT64(1), "}");
    else
        BSON_APPEND_INT64(set, SYNC_REVISION, truce__clock_wall_ms());
}

/* The filter and the update of a copy; both are initialised here. */
static void build(const struct sync_rule *rule, const bson_t *master, const bson_t *which,
                  bool numbered, bson_t *filter, bson_t *update)
{
    bson_t set = BSON_INITIALIZER, unset = BSON_INITIALIZER;

    bson_copy_to(which, filter);
    bson_init(update);
    truce__sync_append_guard(rule, master, filter);
    truce__sync_append_copies(rule, master, &set, &unset);
    if (rule->feeds)
        append_feed(numbered, filter, &set, update);
    truce__sync_operators(&set, &unset, update);
}

static truce_status copy_once(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *master, const bson_t *which, bool numbered,
                              int64_t *matched, bson_error_t *error)
{
    bson_t filter, update;
    truce_status status;

    build(rule, master, which, numbered, &filter, &update);
    status = truce__sync_write(work, rule->dependent, &filter, &update, true, matched, error);
    work->copies += *matched;
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

/* ---- many at once ----------------------------------------------------------------------------- */

void truce__sync_bulk_add(struct sync_bulk *bulk, const struct sync_rule *rule,
                          const bson_t *dependent, const bson_t *master)
{
    bson_value_t id = truce__document_id(dependent);
    bson_t which = BSON_INITIALIZER, *parts = bson_malloc(2 * sizeof *parts);

    truce_assert(bulk->count < SYNC_BULK && !rule->feeds);
    BSON_APPEND_VALUE(&which, "_id", &id);
    build(rule, master, &which, false, &parts[0], &parts[1]);
    bulk->writes[bulk->count++] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                                .collection = rule->dependent,
                                                .filter = &parts[0],
                                                .document = &parts[1]};
    bson_destroy(&which);
}

void truce__sync_bulk_write(struct sync_work *work, struct sync_bulk *bulk)
{
    truce_bulk_options options = {.unordered = true};

    if (bulk->count)
        (void)!truce_bulk(work->sync->store, bulk->writes, bulk->count, &options, bulk->outcomes,
                          NULL);
    for (uint32_t i = 0; i < bulk->count; i++) {
        bson_t *parts = (bson_t *)bulk->writes[i].filter;

        bulk->copied[i] = !bulk->outcomes[i].status && bulk->outcomes[i].result.matched;
        work->copies += bulk->copied[i];
        truce_write_result_release(&bulk->outcomes[i].result);
        bson_destroy(&parts[0]);
        bson_destroy(&parts[1]);
        bson_free(parts);
    }
    bulk->count = 0;
}

truce_status truce__sync_copy(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *master, const bson_t *which, int64_t *matched,
                              bson_error_t *error)
{
    int64_t more = 0;
    truce_status status = copy_once(work, rule, master, which, true, matched, error);

    if (!status && rule->feeds) {
        status = copy_once(work, rule, master, which, false, &more, error);
        *matched += more;
    }
    return status;
}

truce_status truce__sync_take_off(struct sync_work *work, const char *collection,
                                  const bson_t *document, const char *flag, bool *off,
                                  bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, set = BSON_INITIALIZER, unset = BSON_INITIALIZER,
           update = BSON_INITIALIZER;
    bson_value_t id = truce__document_id(document), token;
    int64_t matched;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", &id);
    if (value_at(document, flag, &token))
        append_equal(&filter, flag, &token);
    truce__intent_append_absent(&filter);
    BSON_APPEND_BOOL(&unset, flag, true);
    truce__sync_operators(&set, &unset, &update);
    status = truce__sync_write(work, collection, &filter, &update, false, &matched, error);
    *off = !status && matched;
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}
