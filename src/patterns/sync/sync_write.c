/* Values, single writes, updates, and inserts of sources and dependents (SY1, SY2, and SY4 of
 * sync.c). */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/null.h"
#include "base/object_id.h"
#include "bson/number.h"
#include "commit/commit.h"
#include "patterns/sync/sync.h"
#include "query/input_check.h"
#include "store/repeatable_call.h"
#include "store/reserved_names.h"
#include "store/store.h"
#include "truce/id.h"

/* ---- checks of documents --------------------------------------------------------------------- */

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

/* Finds the value at a path. The value is borrowed from the document. */
static bool copy_value_at(const bson_t *document, const char *path, bson_value_t *value)
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
    return copy_value_at(dependent, rule->reference, id) && id->value_type != BSON_TYPE_NULL &&
           id->value_type != BSON_TYPE_ARRAY && id->value_type != BSON_TYPE_REGEX &&
           id->value_type != BSON_TYPE_UNDEFINED;
}

/* Returns whether an array lies on the path, so that it does not lead to a field of a document.
 * If `end`, a value that is an array counts, too. */
static bool sync_path_has_array(const bson_t *document, const char *path, bool end)
{
    struct value value = truce__value_document(document);

    for (;;) {
        size_t length = strcspn(path, ".");

        value = truce__value_field(value, path, length);
        if (value.type == BSON_TYPE_ARRAY)
            return end || path[length];
        if (!path[length] || value.type != BSON_TYPE_DOCUMENT)
            return false;
        path += length + 1;
    }
}

static truce_status refuse_array(const struct sync_rule *rule, const char *path,
                                 const char *collection, const bson_t *document,
                                 bson_error_t *error)
{
    char text[200];

    truce__value_show(truce__value_field(truce__value_document(document), "_id", 3), text,
                      sizeof text);
    return truce__fail(TRUCE_INVALID, error,
                       "rule \"%s\": \"%s\" leads through an array in %s {_id: %s}; references and "
                       "copies must be fields of documents",
                       rule->name, path, collection, text);
}

truce_status truce__sync_check_arrays(const struct sync_rule *rule, const bson_t *dependent,
                                      const bson_t *source, bson_error_t *error)
{
    bson_iter_t iter;

    if (dependent && sync_path_has_array(dependent, rule->reference, true))
        return refuse_array(rule, rule->reference, rule->dependent, dependent, error);
    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        const char *to = bson_iter_key(&iter), *from = bson_iter_utf8(&iter, NULL);

        if (dependent && sync_path_has_array(dependent, to, false))
            return refuse_array(rule, to, rule->dependent, dependent, error);
        if (source && sync_path_has_array(source, from, false))
            return refuse_array(rule, from, rule->source, source, error);
    }
    return TRUCE_OK;
}

/* ---- numbers and stamps ---------------------------------------------------------------------- */

static struct value copy_origin_of(const bson_t *source)
{
    return truce__value_field(truce__value_document(source), SYNC_ORIGIN, strlen(SYNC_ORIGIN));
}

int64_t truce__sync_revision(const bson_t *source)
{
    struct value value =
        truce__value_field(truce__value_document(source), SYNC_REVISION, strlen(SYNC_REVISION));

    return copy_origin_of(source).type == BSON_TYPE_OID && truce__value_is_integer(value) &&
                   truce__value_integer(value) > 0
               ? truce__value_integer(value)
               : 0;
}

bool truce__sync_same(const struct sync_rule *rule, const bson_t *dependent, const bson_t *source)
{
    struct value stamp = truce__sync_at(dependent, rule->copied), origin;

    if (stamp.type != BSON_TYPE_DOCUMENT)
        return false;
    origin = truce__value_field(stamp, "origin", 6);
    return truce__value_equal(truce__value_field(stamp, "source", 6),
                              truce__value_field(truce__value_document(source), "_id", 3)) &&
           (truce__sync_revision(source) ? truce__value_identical(origin, copy_origin_of(source))
                                         : origin.type == VALUE_MISSING);
}

int64_t truce__sync_copied(const struct sync_rule *rule, const bson_t *dependent)
{
    struct value revision = truce__sync_at(dependent, rule->copied);

    if (revision.type == BSON_TYPE_DOCUMENT)
        revision = truce__value_field(revision, "revision", 8);
    return truce__value_is_integer(revision) ? truce__value_integer(revision) : -1;
}

bool truce__sync_is_up(const struct sync_rule *rule, const bson_t *dependent, const bson_t *source)
{
    struct value id = truce__value_field(truce__value_document(source), "_id", 3);
    int64_t revision = truce__sync_revision(source);

    if (!truce__value_equal(truce__sync_at(dependent, rule->reference), id))
        return true;
    if (!truce__sync_same(rule, dependent, source))
        return false;
    return revision ? truce__sync_copied(rule, dependent) >= revision
                    : truce__sync_equal(rule, dependent, source);
}

bool truce__sync_may_copy(const struct sync_rule *rule, const bson_t *dependent,
                          const bson_t *source)
{
    return truce__sync_revision(source) ||
           truce__sync_at(dependent, rule->copied).type == VALUE_MISSING;
}

truce_status truce__sync_next(const bson_t *source, int64_t least, int64_t *next,
                              bson_error_t *error)
{
    int64_t revision = truce__sync_revision(source);

    if (revision < least)
        revision = least;
    if (revision == INT64_MAX)
        return truce__fail(TRUCE_LIMIT, error, "%s has reached the maximum revision",
                           SYNC_REVISION);
    *next = revision + 1;
    return TRUCE_OK;
}

void truce__sync_append_number(const bson_t *source, int64_t number, bson_t *set)
{
    bson_oid_t origin;

    if (!truce__sync_revision(source)) {
        truce__id_new(&origin);
        BSON_APPEND_OID(set, SYNC_ORIGIN, &origin);
    }
    BSON_APPEND_INT64(set, SYNC_REVISION, number);
}

bool truce__sync_equal(const struct sync_rule *rule, const bson_t *dependent, const bson_t *source)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        if (!truce__value_identical(truce__sync_at(dependent, bson_iter_key(&iter)),
                                    truce__sync_at(source, bson_iter_utf8(&iter, NULL))))
            return false;
    }
    return true;
}

/* Appends the flag with a fresh token. The token is inside a document, because another program may
 * use a plain ObjectId as its flag. */
void truce__sync_append_flag(bson_t *set, const char *flag)
{
    bson_oid_t token;

    truce__id_new(&token);
    BCON_APPEND(set, flag, "{", "token", BCON_OID(&token), "}");
}

bool truce__sync_token(const bson_t *document, const char *flag)
{
    bson_iter_t iter, token;

    return bson_iter_init_find(&iter, document, flag) && BSON_ITER_HOLDS_DOCUMENT(&iter) &&
           bson_iter_recurse(&iter, &token) && bson_iter_find(&token, "token") &&
           BSON_ITER_HOLDS_OID(&token);
}

void truce__sync_token_path(const char *flag, char path[SYNC_TOKEN_PATH])
{
    snprintf(path, SYNC_TOKEN_PATH, "%s.token", flag);
}

/* Returns whether a projection needs no entry for the path: it has one for the path or for a
 * document that contains it. A path of a source may be copied twice, and be inside another one. */
static bool sync_is_projected(const struct sync_rule *rule, bool source, const char *path,
                              const bson_t *projection)
{
    bson_iter_t iter;

    if (!strcmp(path, "_id") || bson_iter_init_find(&iter, projection, path))
        return true;
    for (bson_iter_init(&iter, &rule->copies); source && bson_iter_next(&iter);) {
        const char *other = bson_iter_utf8(&iter, NULL);
        size_t size = strlen(other);

        if (!strncmp(path, other, size) && path[size] == '.')
            return true;
    }
    return false;
}

void truce__sync_make_projection(const struct sync_rule *rule, bool source, bson_t *projection)
{
    bson_iter_t iter;

    bson_init(projection);
    BSON_APPEND_INT32(projection, source ? SYNC_FLAG : SYNC_UNCHECKED, 1);
    BSON_APPEND_INT32(projection, source ? SYNC_REVISION : rule->copied, 1);
    if (source)
        BSON_APPEND_INT32(projection, SYNC_ORIGIN, 1);
    if (!source && strcmp(rule->reference, "_id"))
        BSON_APPEND_INT32(projection, rule->reference, 1);
    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        const char *path = source ? bson_iter_utf8(&iter, NULL) : bson_iter_key(&iter);

        if (!sync_is_projected(rule, source, path, projection))
            BSON_APPEND_INT32(projection, path, 1);
    }
}

/* ---- parts of filters and updates ------------------------------------------------------------ */

static void sync_append_copies(const struct sync_rule *rule, const bson_t *source, bson_t *set,
                               bson_t *unset)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        struct value value = truce__sync_at(source, bson_iter_utf8(&iter, NULL));
        const char *to = bson_iter_key(&iter);

        if (value.type == VALUE_MISSING)
            BSON_APPEND_BOOL(unset, to, true);
        else
            truce__value_append(set, to, strlen(to), value);
    }
}

/* Appends the stamp of these copies to `set`. */
static void sync_append_stamp(const struct sync_rule *rule, const bson_t *source, bson_t *set)
{
    bson_value_t id = truce__document_id(source);
    int64_t revision = truce__sync_revision(source);
    bson_t stamp;

    BSON_APPEND_DOCUMENT_BEGIN(set, rule->copied, &stamp);
    BSON_APPEND_VALUE(&stamp, "source", &id);
    if (revision)
        truce__value_append(&stamp, "origin", 6, copy_origin_of(source));
    BSON_APPEND_INT64(&stamp, "revision", revision);
    bson_append_document_end(set, &stamp);
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

/* Appends the condition that the reference is the source. An array that contains the source does
 * not match. */
void truce__sync_append_reference(const struct sync_rule *rule, const bson_value_t *source,
                                  bson_t *filter)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, rule->reference, &inner);
    BSON_APPEND_VALUE(&inner, "$eq", source);
    BCON_APPEND(&inner, "$not", "{", "$type", "array", "}");
    bson_append_document_end(filter, &inner);
}

/* Appends a condition on a stamp: {synced.RULE.FIELD: condition}. */
static void append_part(const struct sync_rule *rule, const char *field, const bson_t *condition,
                        bson_t *filter)
{
    char path[sizeof rule->copied + 16];

    snprintf(path, sizeof path, "%s.%s", rule->copied, field);
    BSON_APPEND_DOCUMENT(filter, path, condition);
}

/* Appends the condition that the stamp is of this source and incarnation; if `revision` >= 0, also
 * that it has this revision or a later one. */
static void append_same(const struct sync_rule *rule, const bson_t *source, int64_t revision,
                        bson_t *filter)
{
    bson_value_t id = truce__document_id(source);
    bson_t same_id = BSON_INITIALIZER, origin = BSON_INITIALIZER, least = BSON_INITIALIZER;

    BSON_APPEND_VALUE(&same_id, "$eq", &id);
    if (truce__sync_revision(source))
        truce__value_append(&origin, "$eq", 3, copy_origin_of(source));
    else
        BSON_APPEND_BOOL(&origin, "$exists", false);
    BSON_APPEND_INT64(&least, "$gte", revision);
    append_part(rule, "source", &same_id, filter);
    append_part(rule, "origin", &origin, filter);
    if (revision >= 0)
        append_part(rule, "revision", &least, filter);
    bson_destroy(&least);
    bson_destroy(&origin);
    bson_destroy(&same_id);
}

void truce__sync_append_outdated(const struct sync_rule *rule, const bson_t *source, bson_t *filter)
{
    bson_value_t id = truce__document_id(source);
    bson_t none, one, inner;

    /* No index serves this form, so the documents are found by _id, and not by their common
     * reference. */
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
    append_same(rule, source, truce__sync_revision(source), &one);
    bson_append_document_end(&none, &one);
    bson_append_array_end(filter, &none);
}

/* Appends the guard of every copy (SY2): the reference, the stamp, no intent. */
static void copy_append_guard(const struct sync_rule *rule, const bson_t *source,
                              const bson_t *seen, bson_t *filter)
{
    struct value stamp = seen ? truce__sync_at(seen, rule->copied) : truce__value_missing();
    bson_t any, one, inner;

    truce__sync_append_outdated(rule, source, filter);
    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, rule->copied, &inner);
    if (stamp.type == VALUE_MISSING)
        BSON_APPEND_BOOL(&inner, "$exists", false);
    else
        truce__value_append(&inner, "$eq", 3, stamp);
    bson_append_document_end(&one, &inner);
    bson_append_document_end(&any, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &one);
    append_same(rule, source, -1, &one);
    bson_append_document_end(&any, &one);
    bson_append_array_end(filter, &any);
    truce__intent_append_absent(filter);
}

/* ---- writes ---------------------------------------------------------------------------------- */

truce_status truce__sync_write(struct sync_work *work, const char *collection, const bson_t *filter,
                               const bson_t *update, bool multi, int64_t *matched,
                               bson_error_t *error)
{
    truce_write_options options = {.multi = multi};
    truce_write_result result = {0};
    bson_error_t waited;
    truce_status status;

    for (int attempt = 0;; attempt++) {
        status =
            truce_update(work->sync->store, collection, filter, update, &options, &result, error);
        *matched = result.matched;
        truce_write_result_release(&result);
        if (!truce__store_repeatable(work->sync->store, status) ||
            (attempt > 1 && truce__worker_wait(&work->worker, collection, &waited)))
            return status;
    }
}

/* Appends the new revision and flag of a document whose copy is copied further: the write is a
 * change of a source. `numbered` is true for documents that have a revision. */
static void append_feed(bool numbered, bson_t *filter, bson_t *set, bson_t *update)
{
    bson_oid_t origin;

    truce__sync_append_flag(set, SYNC_FLAG);
    if (numbered) {
        BCON_APPEND(filter, SYNC_REVISION, "{", "$gt", BCON_INT64(0), "}", SYNC_ORIGIN, "{",
                    "$type", "objectId", "}");
        BCON_APPEND(update, "$inc", "{", SYNC_REVISION, BCON_INT64(1), "}");
        return;
    }
    BCON_APPEND(filter, "$and", "[", "{", "$or", "[", "{", SYNC_REVISION, "{", "$not", "{", "$gt",
                BCON_INT64(0), "}", "}", "}", "{", SYNC_ORIGIN, "{", "$not", "{", "$type",
                "objectId", "}", "}", "}", "]", "}", "]");
    truce__id_new(&origin);
    BSON_APPEND_OID(set, SYNC_ORIGIN, &origin);
    BSON_APPEND_INT64(set, SYNC_REVISION, 1);
}

/* Builds the filter and the update of a copy. Initializes both; the caller destroys them. */
static void copy_build(const struct sync_rule *rule, const bson_t *source, const bson_t *seen,
                       const bson_t *which, bool numbered, bson_t *filter, bson_t *update)
{
    bson_t set = BSON_INITIALIZER, unset = BSON_INITIALIZER;

    bson_copy_to(which, filter);
    bson_init(update);
    copy_append_guard(rule, source, seen, filter);
    sync_append_copies(rule, source, &set, &unset);
    sync_append_stamp(rule, source, &set);
    if (rule->feeds)
        append_feed(numbered, filter, &set, update);
    truce__sync_operators(&set, &unset, update);
}

static truce_status copy_once(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *source, const bson_t *seen, const bson_t *which,
                              bool numbered, int64_t *matched, bson_error_t *error)
{
    bson_t filter, update;
    truce_status status;

    copy_build(rule, source, seen, which, numbered, &filter, &update);
    status = truce__sync_write(work, rule->dependent, &filter, &update, true, matched, error);
    work->copies += *matched;
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

/* ---- many at once ---------------------------------------------------------------------------- */

bool truce__sync_bulk_add(struct sync_bulk *bulk, const struct sync_rule *rule,
                          const bson_t *dependent, const bson_t *source)
{
    bson_value_t id = truce__document_id(dependent);
    bson_t which = BSON_INITIALIZER, *parts = bson_malloc(2 * sizeof *parts);

    truce_assert(bulk->count < SYNC_BULK && !rule->feeds);
    BSON_APPEND_VALUE(&which, "_id", &id);
    copy_build(rule, source, dependent, &which, false, &parts[0], &parts[1]);
    bulk->writes[bulk->count++] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                                .collection = rule->dependent,
                                                .filter = &parts[0],
                                                .document = &parts[1]};
    bulk->bytes += parts[0].len + parts[1].len;
    bson_destroy(&which);
    return bulk->count == SYNC_BULK || bulk->bytes >= SYNC_BULK_BYTES;
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
    bulk->bytes = 0;
}

truce_status truce__sync_copy(struct sync_work *work, const struct sync_rule *rule,
                              const bson_t *source, const bson_t *seen, const bson_t *which,
                              int64_t *matched, bson_error_t *error)
{
    int64_t more = 0;
    truce_status status = copy_once(work, rule, source, seen, which, true, matched, error);

    if (!status && rule->feeds) {
        status = copy_once(work, rule, source, seen, which, false, &more, error);
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
    if (copy_value_at(document, flag, &token))
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

/* ---- sync write ------------------------------------------------------------------------------ */

/* An update or an insert of a source or dependent. */

struct writing {
    struct sync_work *work;
    const char *collection;
    bson_value_t id;
    /* The operators, or NULL for an insert. */
    const bson_t *update;
    /* The document, or NULL for an update. */
    const bson_t *document;
    bool changed;
};

/* ---- refused writes -------------------------------------------------------------------------- */

static truce_status check_own_fields(const struct writing *writing, const bson_t *before,
                                     const bson_t *after, bson_error_t *error)
{
    static const char *const fields[] = {SYNC_FLAG, SYNC_REVISION, SYNC_ORIGIN, SYNC_COPIED,
                                         SYNC_UNCHECKED};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!truce__value_identical(truce__sync_at(before, fields[i]),
                                    truce__sync_at(after, fields[i])))
            return truce__fail(TRUCE_INVALID, error,
                               "\"%s\" of %s is maintained by truce and cannot be written",
                               fields[i], writing->collection);
    }
    return TRUCE_OK;
}

static truce_status sync_write_check_copies(const struct writing *writing,
                                            const struct sync_rule *rule, const bson_t *before,
                                            const bson_t *after, bson_error_t *error)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        const char *to = bson_iter_key(&iter);

        if (!truce__value_identical(truce__sync_at(before, to), truce__sync_at(after, to)))
            return truce__fail(TRUCE_INVALID, error,
                               "\"%s\" of %s is a copy of \"%s\" of %s, by rule \"%s\": change it "
                               "there",
                               to, writing->collection, bson_iter_utf8(&iter, NULL), rule->source,
                               rule->name);
    }
    return TRUCE_OK;
}

/* ---- added fields ---------------------------------------------------------------------------- */

struct addition {
    bson_t set, unset;
    /* `flag`: the document gets the flag of a source. `check`: it gets the flag of a dependent. */
    bool flag, check;
};

static bool source_changed(const struct sync_rule *rule, const bson_t *before, const bson_t *after)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, &rule->copies); bson_iter_next(&iter);) {
        const char *from = bson_iter_utf8(&iter, NULL);

        if (!truce__value_identical(truce__sync_at(before, from), truce__sync_at(after, from)))
            return true;
    }
    return false;
}

/* Sets the initial values. The read that decides comes after the commit, so the commit does not
 * wait for another one that may wait for it. */
static truce_status begin_copies(const struct writing *writing, const struct sync_rule *rule,
                                 const bson_t *after, struct addition *addition,
                                 bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, source;
    bson_value_t id;
    truce_status status;

    addition->check = true;
    if (!truce__sync_reference(rule, after, &id)) {
        BSON_APPEND_BOOL(&addition->unset, rule->copied, true);
        bson_destroy(&filter);
        return TRUCE_OK;
    }
    BSON_APPEND_VALUE(&filter, "_id", &id);
    /* Reads the latest state. The values go into the new dependent, and its source may have been
     * reconciled already. */
    status = truce_find_one(writing->work->sync->store, rule->source, &filter, &truce__find_latest,
                            &source, error);
    if (!status)
        sync_append_copies(rule, &source, &addition->set, &addition->unset);
    if (!status && truce__sync_revision(&source))
        sync_append_stamp(rule, &source, &addition->set);
    else if (!status || status == TRUCE_NOT_FOUND)
        BSON_APPEND_BOOL(&addition->unset, rule->copied, true);
    bson_destroy(&source);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Adds what one rule requires for the changed document. A source whose copied fields changed gets
 * its flag. A dependent that is new or refers to another source gets copies and its flag. Refuses a
 * change of a copy. */
static truce_status add_for(const struct writing *writing, const struct sync_rule *rule,
                            const bson_t *before, const bson_t *after, struct addition *addition,
                            bson_error_t *error)
{
    bool is_copy = !strcmp(rule->dependent, writing->collection),
         is_source = !strcmp(rule->source, writing->collection);
    truce_status status =
        truce__sync_check_arrays(rule, is_copy ? after : NULL, is_source ? after : NULL, error);

    if (!status && is_copy) {
        if (truce__value_identical(truce__sync_at(before, rule->reference),
                                   truce__sync_at(after, rule->reference)))
            status = writing->document
                         ? TRUCE_OK
                         : sync_write_check_copies(writing, rule, before, after, error);
        else
            status = begin_copies(writing, rule, after, addition, error);
    }
    if (is_source && (writing->document || source_changed(rule, before, after)))
        addition->flag = true;
    return status;
}

/* Returns whether a changed reference changes copies that are copied further. */
static bool copied_on(const struct writing *writing, const struct addition *addition)
{
    for (uint32_t i = 0; addition->check && i < writing->work->rules->count; i++) {
        if (writing->work->rules->rules[i].feeds &&
            !strcmp(writing->work->rules->rules[i].dependent, writing->collection))
            return true;
    }
    return false;
}

/* Writes the flags of a changed document in the commit: the flag and the next revision of a source,
 * or the flag of a dependent. */
static truce_status sync_write_put(truce_commit *commit, struct writing *writing,
                                   const bson_t *before, struct addition *addition,
                                   bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;
    int64_t next;

    addition->flag = addition->flag || copied_on(writing, addition);
    writing->changed = addition->flag || addition->check;
    if (!writing->changed)
        return TRUCE_OK;
    if (addition->flag) {
        status = truce__sync_next(before, 0, &next, error);
        if (status)
            return status;
        truce__sync_append_flag(&addition->set, SYNC_FLAG);
        truce__sync_append_number(before, next, &addition->set);
    }
    if (addition->check)
        truce__sync_append_flag(&addition->set, SYNC_UNCHECKED);
    if (!bson_empty(&addition->set))
        BSON_APPEND_DOCUMENT(&update, "$set", &addition->set);
    if (!bson_empty(&addition->unset))
        BSON_APPEND_DOCUMENT(&update, "$unset", &addition->unset);
    status = truce_commit_update(commit, writing->collection, &writing->id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

/* ---- the commit ------------------------------------------------------------------------------ */

static truce_status sync_write_add(truce_commit *commit, struct writing *writing,
                                   const bson_t *before, const bson_t *after, bson_error_t *error)
{
    struct addition addition = {.set = BSON_INITIALIZER, .unset = BSON_INITIALIZER};
    truce_status status = check_own_fields(writing, before, after, error);

    for (uint32_t i = 0; !status && i < writing->work->rules->count; i++)
        status = add_for(writing, &writing->work->rules->rules[i], before, after, &addition, error);
    if (!status)
        status = sync_write_put(commit, writing, before, &addition, error);
    bson_destroy(&addition.unset);
    bson_destroy(&addition.set);
    return status;
}

static truce_status sync_write_no_such(const struct writing *writing, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    char text[200];

    BSON_APPEND_VALUE(&holder, "_id", &writing->id);
    truce__value_show(truce__value_document(&holder), text, sizeof text);
    bson_destroy(&holder);
    return truce__fail(TRUCE_NOT_FOUND, error, "%s %s does not exist", writing->collection, text);
}

/* Updates a document and adds what the rules of copies require, for it as a source and as a
 * dependent (a truce_commit_function). */
static truce_status sync_write_update_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct writing *writing = arg;
    bson_t before, after = BSON_INITIALIZER;
    truce_status status =
        truce_commit_read(commit, writing->collection, &writing->id, &before, error);

    if (status == TRUCE_NOT_FOUND)
        status = sync_write_no_such(writing, error);
    if (!status)
        status = truce_commit_update(commit, writing->collection, &writing->id, NULL,
                                     writing->update, error);
    if (!status) {
        bson_destroy(&after);
        status = truce_commit_read(commit, writing->collection, &writing->id, &after, error);
    }
    if (!status)
        status = sync_write_add(commit, writing, &before, &after, error);
    bson_destroy(&after);
    bson_destroy(&before);
    return status;
}

/* Inserts a document and adds what the rules of copies require (a truce_commit_function). */
static truce_status insert_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct writing *writing = arg;
    bson_t nothing = BSON_INITIALIZER;
    truce_status status =
        truce_commit_insert(commit, writing->collection, writing->document, error);

    if (!status)
        status = sync_write_add(commit, writing, &nothing, writing->document, error);
    bson_destroy(&nothing);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static truce_status sync_commit_and_copy(struct writing *writing, truce_commit_function *function,
                                         truce_sync_result *result, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = writing->work->sync->options.mechanism,
                                    .deadline_ms = writing->work->sync->options.deadline_ms};
    bson_error_t later;
    truce_status status =
        truce_transact(writing->work->sync->store, function, writing, &options, error);

    if (status)
        return status;
    result->changed = writing->changed;
    result->settled =
        !writing->changed ||
        !truce__sync_reconcile(writing->work, writing->collection, &writing->id, &later);
    result->copies = writing->work->copies;
    return TRUCE_OK;
}

/* Runs a write in the caller's commit, or in a commit of its own that is followed by the copies. */
static truce_status sync_write_run(truce_sync *sync, truce_commit *commit, struct writing *writing,
                                   truce_commit_function *function, truce_sync_result *result,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(sync->options.deadline_ms);
    truce_sync_result unused;
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    result = result ? result : &unused;
    *result = (truce_sync_result){0};
    writing->work = &work;
    if (!status && truce__reserved(writing->collection))
        status = truce__fail(TRUCE_INVALID, error, "collection \"%s\" is reserved for truce",
                             writing->collection);
    if (!status && commit && commit->store != sync->store)
        status = truce__fail(TRUCE_INVALID, error,
                             "the rules and the commit belong to different stores");
    if (!status && commit) {
        status = function(commit, writing, error);
        result->changed = writing->changed;
        result->settled = !writing->changed;
    } else if (!status) {
        status = sync_commit_and_copy(writing, function, result, error);
    }
    truce__sync_end(&work);
    return status;
}

static truce_status sync_write_check_operators(const bson_t *update, bson_error_t *error)
{
    bson_iter_t iter;

    for (bson_iter_init(&iter, update); bson_iter_next(&iter);) {
        if (bson_iter_key(&iter)[0] != '$')
            return truce__fail(TRUCE_INVALID, error,
                               "the update must consist of operators ($set, $inc ...), not "
                               "\"%s\": for example {$set: {%s: ...}}",
                               bson_iter_key(&iter), bson_iter_key(&iter));
    }
    return TRUCE_OK;
}

truce_status truce_sync_update(truce_sync *sync, truce_commit *commit, const char *collection,
                               const bson_value_t *id, const bson_t *update,
                               truce_sync_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(id, error);
    RETURN_IF_NULL(update, error);

    struct writing writing = {.collection = collection, .id = *id, .update = update};
    truce_status status = truce__check_value(id, "_id", error);

    if (!status)
        status = truce__document_check(update, "update", error);
    if (!status)
        status = sync_write_check_operators(update, error);
    return status ? status
                  : sync_write_run(sync, commit, &writing, sync_write_update_in, result, error);
}

truce_status truce_sync_insert(truce_sync *sync, truce_commit *commit, const char *collection,
                               const bson_t *document, truce_sync_result *result,
                               bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(document, error);

    struct writing writing = {.collection = collection, .document = document};
    truce_status status = truce__document_check(document, "document", error);

    if (status)
        return status;
    writing.id = truce__document_id(document);
    if (writing.id.value_type == BSON_TYPE_NULL)
        return truce__fail(TRUCE_INVALID, error,
                           "the document has no _id: a document with copies needs one");
    return sync_write_run(sync, commit, &writing, insert_in, result, error);
}
