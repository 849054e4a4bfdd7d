/*
 * Denormalized copies: the rules, the handle, and the rules of all files.
 *
 * A rule relates source documents to dependents, which contain copies of source fields.
 *
 *     1. The source, in one write:  new values, syncRevision + 1, syncing: a fresh token
 *     2. Each dependent:            {reference: the source, the stamp: SY2 or SY8}
 *                                   -> values, synced.RULE = the stamp of the source
 *     3. The source:                {syncing: the token} -> without syncing
 *     4. A dependent that is inserted or moved to another source gets `unchecked`: a fresh token,
 *        in the same write. THEN its source is read, step 2 runs for it, and
 *        {unchecked: the token} -> without unchecked.
 *
 * The stamp {source: _id, origin: token, revision: number} says which values a copy has. `origin`
 * is the `syncOrigin` of the source, a token that truce gives to a source together with its first
 * revision. A source that is removed and created again under the same _id is another incarnation:
 * it has another origin, or none. Revisions of different sources or incarnations are not
 * comparable.
 *
 * Invariants (models/sync.cpp is the model; its mutants omit these rules one by one):
 *
 * SY1. The write that changes a copied field raises the revision and sets the flag. A flag is
 *     removed when every dependent that existed has the values that were read with it, and only if
 *     it is still the same token. A time cannot serve as a token, because two writers can have the
 *     same time.
 * SY2. The write of a copy compares the reference and the stamp. If the stamp is of the same source
 *     and incarnation, its revision must be lower. So a copy never returns to an older value,
 *     however long its writer was paused, and a dependent that moved away is not changed. Values
 *     and stamp come from one read of the source.
 * SY3. A flag that another program set (a date, true) is replaced by a token, together with the
 *     next revision, before anything is copied; the values are read after it. A fresh token and the
 *     next revision are harmless at any time: everything is copied again.
 * SY4. The write that inserts or moves a dependent sets its flag. The flag stays until the source
 *     has been read after that write. So a process that copies reads the existing dependents once
 *     and need not read again.
 * SY5. That flag is removed only if it is still the same token, so a slow check does not remove the
 *     flag of a later move.
 * SY6. In a chain, the write of a copy that is copied further is a change of a source: SY1 holds
 *     for that write, too.
 * SY7. Every write requires that the document has no intent of a commit, and writes a new _rev.
 * SY8. A copy replaces a stamp of another source or incarnation only if that stamp was read BEFORE
 *     the source was read. So if a writer was paused after its read, and the source was replaced
 *     and copied in the meantime, the writer finds another stamp and does nothing. A batch reads
 *     its source first and skips such dependents. They get copies with one guard each, in bulks or
 *     alone, whose source is read after them. A source without a revision is
 *     copied only to dependents without a stamp. Otherwise it is numbered first, because two
 *     incarnations without numbers are indistinguishable.
 *
 * The path of a rule leads through documents. If an array lies on it, declare refuses the rule, a
 * write through truce fails, and the walk reports such documents of other writers.
 *
 * A process reads the rules again when they are SYNC_FRESH_MS old, and declare returns after all
 * processes have seen a new rule. A process that was paused inside a call may still change a field
 * without a flag; the walk finds that.
 *
 *     sync.c              rules and their graph; status
 *     sync_write.c        values, single writes, update and insert
 *     sync_reconcile.c    completes the work that flags ask for
 *     sync_divergence.c   compares all dependents with their sources
 *     sync_maintenance.c  the sweep and the check
 */
#include "patterns/sync/sync.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "commit/metadata_cache.h"
#include "query/input_check.h"
#include "store/reserved_names.h"
#include "store/settle_wait.h"
#include "store/snapshot_view.h"
#include "store/store.h"

static truce_status truce__sync_rules(truce_sync *sync, struct sync_rules **rules,
                                      bson_error_t *error);
static void sync_rules_leave(truce_sync *sync, struct sync_rules *rules);

truce_sync *truce_sync_new(truce_store *store, const truce_sync_options *options)
{
    truce_sync *sync = bson_malloc0(sizeof *sync);

    truce_assert(store);
    sync->store = store;
    if (options)
        sync->options = *options;
    pthread_mutex_init(&sync->mutex, NULL);
    sync->refused = ROOM_CHECK(options, "truce_sync_options", &sync->refusal) != TRUCE_OK;
    if (!sync->refused && sync->options.batch > SYNC_BATCH_MAX) {
        (void)truce__fail(TRUCE_INVALID, &sync->refusal,
                          "`batch` is %u copies: expected at most %d",
                          (unsigned)sync->options.batch, SYNC_BATCH_MAX);
        sync->refused = true;
    }
    if (!sync->options.batch)
        sync->options.batch = SYNC_BATCH;
    if (!sync->options.deadline_ms)
        sync->options.deadline_ms = COMMIT_DEADLINE_MS;
    return sync;
}

void truce_sync_free(truce_sync *sync)
{
    if (!sync)
        return;
    sync_rules_leave(sync, sync->rules);
    pthread_mutex_destroy(&sync->mutex);
    bson_free(sync);
}

static truce_status sync_usable(const truce_sync *sync, bson_error_t *error)
{
    return truce__handle_usable(sync->store, sync->refused, &sync->refusal, error);
}

truce_status truce__sync_begin(truce_sync *sync, struct sync_work *work, bson_error_t *error)
{
    truce_status status = sync_usable(sync, error);

    *work = (struct sync_work){.sync = sync, .begun_ns = truce__clock_monotonic_ns()};
    if (status)
        return status;
    truce__worker_init(&work->worker, sync->store, sync->options.deadline_ms);
    return truce__sync_rules(sync, &work->rules, error);
}

void truce__sync_end(struct sync_work *work)
{
    sync_rules_leave(work->sync, work->rules);
}

/* ---- calls ----------------------------------------------------------------------------------- */

truce_status truce_sync_reconcile(truce_sync *sync, const char *collection, const bson_value_t *id,
                                  truce_sync_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);

    DEADLINE_SCOPE(sync->options.deadline_ms);
    truce_sync_result unused;
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    result = result ? result : &unused;
    *result = (truce_sync_result){0};
    if (!status)
        status = truce__check_value(id, "_id", error);
    if (!status)
        status = truce__sync_reconcile(&work, collection, id, error);
    result->settled = !status;
    result->copies = work.copies;
    truce__sync_end(&work);
    return status;
}

truce_status truce_sync_read(truce_sync *sync, const char *collection, const bson_value_t *id,
                             bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);
    RETURN_EMPTY_IF_NULL(collection, document, error);

    DEADLINE_SCOPE(sync->options.deadline_ms);
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    bson_init(document);
    if (!status)
        status = truce__check_value(id, "_id", error);
    if (!status) {
        bson_destroy(document);
        status = truce__journal_read_unguarded(&work.worker, collection, id, document, error);
    }
    if (!status)
        status = truce__sync_bring_up_by_all(&work, collection, document, error);
    if (!status && work.copies) {
        bson_destroy(document);
        status = truce__journal_read_unguarded(&work.worker, collection, id, document, error);
    }
    if (status)
        bson_reinit(document);
    truce__sync_end(&work);
    return status;
}

/* ---- status ---------------------------------------------------------------------------------- */

/* Counts the documents with a flag. `since` gets the seconds of the oldest token, or INT64_MAX if
 * there is no token. */
static truce_status count_flags(truce_sync *sync, const char *collection, const char *flag,
                                int64_t *count, int64_t *since, bson_error_t *error)
{
    char path[SYNC_TOKEN_PATH];
    bson_t *filter = BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}"), *oldest, *sort, found;
    truce_find_options options = {0};
    truce_status status = truce_count(sync->store, collection, filter, NULL, count, error);
    bson_iter_t iter, token;

    truce__sync_token_path(flag, path);
    oldest =
        BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}", path, "{", "$type", "objectId", "}");
    options.sort = sort = BCON_NEW(path, BCON_INT32(1));
    if (!status && *count) {
        status = truce_find_one(sync->store, collection, oldest, &options, &found, error);
        if (!status && bson_iter_init(&iter, &found) &&
            bson_iter_find_descendant(&iter, path, &token) && BSON_ITER_HOLDS_OID(&token)) {
            int64_t made = (int64_t)bson_oid_get_time_t(bson_iter_oid(&token));

            *since = made < *since ? made : *since;
        }
        bson_destroy(&found);
    }
    bson_destroy(sort);
    bson_destroy(oldest);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Appends the status of a rule: its definition, the numbers of flags, and the time of the oldest
 * one. */
static truce_status append_rule(truce_sync *sync, const struct sync_rule *rule, bson_t *one,
                                bson_error_t *error)
{
    int64_t syncing = 0, unchecked = 0, since = INT64_MAX;
    truce_status status = count_flags(sync, rule->source, SYNC_FLAG, &syncing, &since, error);

    if (!status)
        status = count_flags(sync, rule->dependent, SYNC_UNCHECKED, &unchecked, &since, error);
    BSON_APPEND_UTF8(one, "rule", rule->name);
    BSON_APPEND_UTF8(one, "source", rule->source);
    BSON_APPEND_UTF8(one, "dependent", rule->dependent);
    BSON_APPEND_UTF8(one, "reference", rule->reference);
    BSON_APPEND_DOCUMENT(one, "copies", &rule->copies);
    BSON_APPEND_INT64(one, "syncing", syncing);
    BSON_APPEND_INT64(one, "unchecked", unchecked);
    if (since != INT64_MAX)
        BSON_APPEND_DATE_TIME(one, "since", since * 1000);
    return status;
}

truce_status truce_sync_status(truce_sync *sync, bson_t *status, bson_error_t *error)
{
    RETURN_IF_NULL(status, error);

    DEADLINE_SCOPE(sync->options.deadline_ms);
    struct sync_work work;
    bson_t rules;
    truce_status result = truce__sync_begin(sync, &work, error);

    bson_init(status);
    BSON_APPEND_ARRAY_BEGIN(status, "rules", &rules);
    for (uint32_t i = 0; !result && i < work.rules->count; i++) {
        char key[12];
        bson_t one;

        snprintf(key, sizeof key, "%u", i);
        BSON_APPEND_DOCUMENT_BEGIN(&rules, key, &one);
        result = append_rule(sync, &work.rules->rules[i], &one, error);
        bson_append_document_end(&rules, &one);
    }
    bson_append_array_end(status, &rules);
    truce__sync_end(&work);
    return result;
}

/* ---- rules: the paths ------------------------------------------------------------------------ */

/* Returns whether the paths are equal or one is a prefix of the other. */
static bool sync_paths_overlap(const char *a, const char *b)
{
    size_t least = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    const char *longer = strlen(a) < strlen(b) ? b : a;

    return !strncmp(a, b, least) && (!longer[least] || longer[least] == '.');
}

static bool of_truce(const char *path)
{
    static const char *const fields[] = {"_rev",        "_intent",   "_keys",     SYNC_FLAG,
                                         SYNC_REVISION, SYNC_ORIGIN, SYNC_COPIED, SYNC_UNCHECKED};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (sync_paths_overlap(path, fields[i]))
            return true;
    }
    return false;
}

/* Returns whether the path has only names, without array indexes. */
static bool plain_path(const char *path)
{
    const char *at = path;

    if (!path[0] || strlen(path) > SYNC_PATH_BYTES_MAX)
        return false;
    for (;;) {
        size_t length = strcspn(at, ".");

        if (!length || at[0] == '$' || strspn(at, "0123456789") == length)
            return false;
        if (!at[length])
            return true;
        at += length + 1;
    }
}

static bool rule_plain_name(const char *name)
{
    return name && name[0] && name[0] != '$' && name[0] != '_' && !strchr(name, '.') &&
           strlen(name) <= SYNC_NAME_MAX;
}

/* ---- one rule -------------------------------------------------------------------------------- */

static truce_status rule_check_field(const truce_sync_rule *rule, const char *what,
                                     const char *path, bool may_be_id, bson_error_t *error)
{
    if (!path || !plain_path(path))
        return truce__fail(
            TRUCE_INVALID, error,
            "rule \"%s\": %s must be a path of field names of up to %d bytes, without array "
            "indexes",
            rule->name, what, SYNC_PATH_BYTES_MAX);
    if (of_truce(path) || (!may_be_id && sync_paths_overlap(path, "_id")))
        return truce__fail(TRUCE_INVALID, error, "rule \"%s\": %s must not be \"%s\"", rule->name,
                           what, path);
    return TRUCE_OK;
}

/* Refuses a copy that is the same field as a later one, or contains it: one write cannot set
 * both. */
static truce_status rule_check_apart(const truce_sync_rule *rule, const bson_iter_t *copy,
                                     bson_error_t *error)
{
    bson_iter_t other = *copy;

    while (bson_iter_next(&other)) {
        if (sync_paths_overlap(bson_iter_key(copy), bson_iter_key(&other)))
            return truce__fail(TRUCE_INVALID, error,
                               "rule \"%s\": the copies \"%s\" and \"%s\" overlap", rule->name,
                               bson_iter_key(copy), bson_iter_key(&other));
    }
    return TRUCE_OK;
}

/* Checks the paths of the copies: 1 to SYNC_COPIES_MAX, without overlaps. */
static truce_status rule_check_copies(const truce_sync_rule *rule, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t count = 0;
    bson_iter_t iter;

    for (bson_iter_init(&iter, rule->copies); !status && bson_iter_next(&iter); count++) {
        const char *to = bson_iter_key(&iter);

        if (!BSON_ITER_HOLDS_UTF8(&iter))
            return truce__fail(
                TRUCE_INVALID, error,
                "rule \"%s\": the value of \"%s\" in `copies` must be a path in the source, as a "
                "string",
                rule->name, to);
        status = rule_check_field(rule, "a copy", to, false, error);
        if (!status)
            status = rule_check_field(rule, "the copied field", bson_iter_utf8(&iter, NULL), true,
                                      error);
        if (!status)
            status = rule_check_apart(rule, &iter, error);
        if (!status && sync_paths_overlap(to, rule->reference))
            status = truce__fail(TRUCE_INVALID, error,
                                 "rule \"%s\": \"%s\" is the reference and cannot be a copy",
                                 rule->name, to);
    }
    if (!status && (!count || count > SYNC_COPIES_MAX))
        status = truce__fail(TRUCE_INVALID, error, "rule \"%s\": `copies` must have 1 to %d fields",
                             rule->name, SYNC_COPIES_MAX);
    return status;
}

static truce_status rule_check_collection(const truce_sync_rule *rule, const char *what,
                                          const char *collection, bson_error_t *error)
{
    if (!collection || !collection[0])
        return truce__fail(TRUCE_INVALID, error, "rule \"%s\": the %s collection is missing",
                           rule->name, what);
    if (truce__reserved(collection))
        return truce__fail(TRUCE_INVALID, error,
                           "rule \"%s\": collection \"%s\" is reserved for truce", rule->name,
                           collection);
    return TRUCE_OK;
}

/* Checks a rule by itself. check_among compares it with the other rules, and check_stored with the
 * documents. */
static truce_status rule_check_rule(const truce_sync_rule *rule, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(rule, "truce_sync_rule", error);

    if (status)
        return status;
    if (!rule_plain_name(rule->name))
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid name of a rule \"%.60s\": expected a word of 1 to %d bytes without \".\", "
            "and without \"$\" or \"_\" in front",
            rule->name ? rule->name : "", SYNC_NAME_MAX);
    status = rule_check_collection(rule, "source", rule->source, error);
    if (!status)
        status = rule_check_collection(rule, "dependent", rule->dependent, error);
    if (!status)
        status = rule_check_field(rule, "the reference", rule->reference, true, error);
    if (!status && !rule->copies)
        status = truce__fail(TRUCE_INVALID, error, "rule \"%s\": `copies` is missing", rule->name);
    if (!status)
        status = truce__document_check(rule->copies, "copies", error);
    return status ? status : rule_check_copies(rule, error);
}

/* Builds the stored form. */
static bson_t *rule_build(const truce_sync_rule *rule)
{
    bson_t *kept =
        BCON_NEW("_id", BCON_UTF8(rule->name), "source", BCON_UTF8(rule->source), "dependent",
                 BCON_UTF8(rule->dependent), "reference", BCON_UTF8(rule->reference));

    BSON_APPEND_DOCUMENT(kept, "copies", rule->copies);
    BSON_APPEND_INT64(kept, "resume_ms", rule->resume_ms ? rule->resume_ms : SYNC_RESUME_MS);
    return kept;
}

/* Reads a stored rule and takes over `kept`. Returns false if the document is not a valid rule. */
static bool rule_read_rule(bson_t *kept, struct sync_rule *rule)
{
    truce_sync_rule same;

    bson_steal(&rule->kept, kept);
    truce__names_restore_own(&rule->kept);
    rule->name = truce__field_text(&rule->kept, "_id");
    rule->source = truce__field_text(&rule->kept, "source");
    rule->dependent = truce__field_text(&rule->kept, "dependent");
    rule->reference = truce__field_text(&rule->kept, "reference");
    rule->resume_ms = (uint32_t)truce__field_number(&rule->kept, "resume_ms");
    rule->feeds = false;
    if (!truce__value_subdocument(&rule->kept, "copies", &rule->copies))
        return false;
    same = (truce_sync_rule){.name = rule->name,
                             .source = rule->source,
                             .dependent = rule->dependent,
                             .reference = rule->reference,
                             .copies = &rule->copies};
    if (rule_check_rule(&same, NULL))
        return false;
    snprintf(rule->copied, sizeof rule->copied, SYNC_COPIED ".%s", rule->name);
    return true;
}

/* ---- the graph of all rules ------------------------------------------------------------------ */

/* Returns whether the rule `one` writes a field that the rule `other` copies or uses as its
 * reference. */
static bool leads_to(const struct sync_rule *one, const struct sync_rule *other)
{
    bson_iter_t to, from;

    if (strcmp(one->dependent, other->source))
        return false;
    for (bson_iter_init(&to, &one->copies); bson_iter_next(&to);) {
        for (bson_iter_init(&from, &other->copies); bson_iter_next(&from);) {
            if (sync_paths_overlap(bson_iter_key(&to), bson_iter_utf8(&from, NULL)))
                return true;
        }
    }
    return false;
}

static bool leads_back(const struct sync_rules *rules, uint32_t at, uint32_t start, bool *seen)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        if (!leads_to(&rules->rules[at], &rules->rules[i]))
            continue;
        if (i == start)
            return true;
        if (!seen[i]) {
            seen[i] = true;
            if (leads_back(rules, i, start, seen))
                return true;
        }
    }
    return false;
}

/* Refuses two rules that write the same field, and a rule that writes the reference of the
 * other. */
static truce_status check_pair(const struct sync_rule *one, const struct sync_rule *other,
                               bson_error_t *error)
{
    bson_iter_t a, b;

    if (one == other || strcmp(one->dependent, other->dependent))
        return TRUCE_OK;
    for (bson_iter_init(&a, &one->copies); bson_iter_next(&a);) {
        if (sync_paths_overlap(bson_iter_key(&a), other->reference))
            return truce__fail(TRUCE_INVALID, error,
                               "rule \"%s\" copies to \"%s\", which is the reference of rule "
                               "\"%s\"",
                               one->name, bson_iter_key(&a), other->name);
        for (bson_iter_init(&b, &other->copies); bson_iter_next(&b);) {
            if (sync_paths_overlap(bson_iter_key(&a), bson_iter_key(&b)))
                return truce__fail(TRUCE_INVALID, error,
                                   "rule \"%s\": rule \"%s\" copies to \"%s\" of %s already",
                                   one->name, other->name, bson_iter_key(&a), one->dependent);
        }
    }
    return TRUCE_OK;
}

/* Checks a rule against all others. */
static truce_status check_among(const struct sync_rules *rules, uint32_t at, bson_error_t *error)
{
    bool seen[SYNC_RULES_MAX] = {false};
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; !status && i < rules->count; i++) {
        status = check_pair(&rules->rules[at], &rules->rules[i], error);
        if (!status)
            status = check_pair(&rules->rules[i], &rules->rules[at], error);
    }
    if (!status && leads_to(&rules->rules[at], &rules->rules[at]))
        status = truce__fail(TRUCE_INVALID, error, "rule \"%s\" copies a field onto itself",
                             rules->rules[at].name);
    else if (!status && leads_back(rules, at, at, seen))
        status = truce__fail(TRUCE_INVALID, error,
                             "rule \"%s\" closes a cycle: other rules copy its fields back to "
                             "its source",
                             rules->rules[at].name);
    return status;
}

const struct sync_rule *truce__sync_rule(const struct sync_rules *rules, const char *name)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        if (!strcmp(rules->rules[i].name, name))
            return &rules->rules[i];
    }
    return NULL;
}

static void rule_release(struct sync_rules *rules)
{
    for (uint32_t i = 0; i < rules->count; i++)
        bson_destroy(&rules->rules[i].kept);
    bson_free(rules);
}

static void mark_feeding(struct sync_rules *rules)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        for (uint32_t j = 0; j < rules->count; j++)
            rules->rules[i].feeds |= leads_to(&rules->rules[i], &rules->rules[j]);
    }
}

/* Adds a rule, and takes over `kept`. */
static truce_status rule_add(struct sync_rules *rules, bson_t *kept, bson_error_t *error)
{
    char shown[200] = "";

    if (rules->count == SYNC_RULES_MAX) {
        bson_destroy(kept);
        return truce__fail(TRUCE_LIMIT, error, "a store can have at most %d rules of copies",
                           SYNC_RULES_MAX);
    }
    if (rule_read_rule(kept, &rules->rules[rules->count])) {
        rules->count++;
        return TRUCE_OK;
    }
    snprintf(shown, sizeof shown, "%s", rules->rules[rules->count].name);
    bson_destroy(&rules->rules[rules->count].kept);
    return truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is not a valid rule of copies",
                       SYNC_RULES, shown);
}

/* Reads all stored rules. The caller releases them. */
static truce_status rule_read_all(truce_sync *sync, struct sync_rules **rules, bson_error_t *error)
{
    bson_t sort = BSON_INITIALIZER;
    truce_find_options options = {.sort = &sort};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status;

    BSON_APPEND_INT32(&sort, "_id", 1);
    *rules = bson_malloc0(sizeof **rules);
    (*rules)->holders = 1;
    status = truce_find(sync->store, SYNC_RULES, NULL, &options, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        bson_t kept;

        bson_copy_to(document, &kept);
        status = rule_add(*rules, &kept, error);
    }
    truce_cursor_close(cursor);
    bson_destroy(&sort);
    if (status) {
        rule_release(*rules);
        *rules = NULL;
        return status;
    }
    mark_feeding(*rules);
    return TRUCE_OK;
}

/* ---- the handle's copy of the rules ---------------------------------------------------------- */

static truce_status rule_make_index(truce_store *store, const char *collection, const char *field,
                                    bool sparse, bson_error_t *error)
{
    bson_t *index = BCON_NEW("key", "{", field, BCON_INT32(1), "}");
    truce_status status;

    if (sparse)
        BSON_APPEND_BOOL(index, "sparse", true);
    status = truce__index_ensure(store, collection, index, error);
    bson_destroy(index);
    return status;
}

static truce_status rule_make_indexes(truce_store *store, const char *source, const char *dependent,
                                      const char *reference, bson_error_t *error)
{
    truce_status status = rule_make_index(store, source, SYNC_FLAG, true, error);

    if (!status)
        status = rule_make_index(store, dependent, SYNC_UNCHECKED, true, error);
    if (!status && strcmp(reference, "_id"))
        status = rule_make_index(store, dependent, reference, false, error);
    return status;
}

/* Creates the indexes again, because the collections may have been replaced. Copies are correct
 * without indexes, only slower, so a read-only store continues. */
static void index_again(truce_store *store, const struct sync_rules *rules)
{
    bson_error_t ignored;

    for (uint32_t i = 0; i < rules->count; i++)
        (void)!rule_make_indexes(store, rules->rules[i].source, rules->rules[i].dependent,
                                 rules->rules[i].reference, &ignored);
}

/* Replaces the rules by those that were read at that time, or forgets them if they are NULL. */
static void rule_put(truce_sync *sync, struct sync_rules *fresh, int64_t checked_ns,
                     uint64_t structure)
{
    struct sync_rules *before;

    pthread_mutex_lock(&sync->mutex);
    before = sync->rules;
    sync->rules = fresh;
    sync->read_ns = checked_ns;
    sync->structure = structure;
    if (before && --before->holders)
        before = NULL;
    pthread_mutex_unlock(&sync->mutex);
    if (before)
        rule_release(before);
}

static struct sync_rules *rule_hold(truce_sync *sync, uint64_t structure, bool *moved)
{
    struct sync_rules *rules = NULL;

    pthread_mutex_lock(&sync->mutex);
    *moved = sync->structure && sync->structure != structure;
    if (sync->rules && !*moved &&
        truce__clock_monotonic_ns() - sync->read_ns < SYNC_FRESH_MS * INT64_C(1000000)) {
        rules = sync->rules;
        rules->holders++;
    }
    pthread_mutex_unlock(&sync->mutex);
    return rules;
}

/* Returns the rules, which are read again when they are SYNC_FRESH_MS old. The caller releases
 * them. */
static truce_status truce__sync_rules(truce_sync *sync, struct sync_rules **rules,
                                      bson_error_t *error)
{
    int64_t begun_ns = truce__clock_monotonic_ns();
    uint64_t structure = truce__metadata_structure(sync->store) + 1;
    bool moved;
    truce_status status;

    *rules = rule_hold(sync, structure, &moved);
    if (*rules)
        return TRUCE_OK;
    status = rule_read_all(sync, rules, error);
    if (status)
        return status;
    if (moved)
        index_again(sync->store, *rules);
    (*rules)->holders = 2;
    rule_put(sync, *rules, begun_ns, structure);
    return TRUCE_OK;
}

static void sync_rules_leave(truce_sync *sync, struct sync_rules *rules)
{
    bool last;

    if (!rules)
        return;
    pthread_mutex_lock(&sync->mutex);
    last = !--rules->holders;
    pthread_mutex_unlock(&sync->mutex);
    if (last)
        rule_release(rules);
}

/* ---- declare, drop --------------------------------------------------------------------------- */

/* Returns whether the rules are the same. If `timed` is false, the caller has not chosen the time
 * after which an update is completed, so it is not compared. */
static bool same_rule(const bson_t *kept, const bson_t *wanted, bool timed)
{
    struct fields fields = truce__fields(truce__value_document(wanted));

    while (truce__fields_next(&fields)) {
        struct value there =
            truce__value_field(truce__value_document(kept), fields.key, fields.key_length);

        if ((timed || strcmp(fields.key, "resume_ms") != 0) &&
            !truce__value_identical(fields.value, there))
            return false;
    }
    return true;
}

/* ---- stored rules ---------------------------------------------------------------------------- */

/* Returns TRUCE_INVALID if a document of the collection has an array on the path. */
static truce_status refuse_arrays(truce_sync *sync, const truce_sync_rule *rule,
                                  const char *collection, const char *path, bool end,
                                  bson_error_t *error)
{
    char prefix[SYNC_PATH_BYTES_MAX + 1], text[200];
    truce_status status = TRUCE_NOT_FOUND;
    const char *at = path;
    bson_t *filter, found;

    while (status == TRUCE_NOT_FOUND && (at[0] || end)) {
        size_t length = (size_t)(at - path) + strcspn(at, ".");

        if (!path[length] && !end)
            break;
        snprintf(prefix, sizeof prefix, "%.*s", (int)length, path);
        filter = BCON_NEW(prefix, "{", "$type", "array", "}");
        status = truce_find_one(sync->store, collection, filter, NULL, &found, error);
        bson_destroy(filter);
        if (!status)
            truce__value_show(truce__value_field(truce__value_document(&found), "_id", 3), text,
                              sizeof text);
        bson_destroy(&found);
        if (!path[length])
            break;
        at = path + length + 1;
    }
    if (status)
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    return truce__fail(TRUCE_INVALID, error,
                       "rule \"%s\": \"%s\" of %s is an array in {_id: %s}; a reference and a copy "
                       "are fields of documents, not of array elements",
                       rule->name, prefix, collection, text);
}

static truce_status any_has(truce_sync *sync, const char *collection, const char *path, bool *has,
                            bson_error_t *error)
{
    bson_t *filter = BCON_NEW(path, "{", "$exists", BCON_BOOL(true), "}"), found;
    truce_status status = truce_find_one(sync->store, collection, filter, NULL, &found, error);

    *has = !status;
    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Returns TRUCE_INVALID if no source has the copied field, but some have the field that it is
 * copied to. */
static truce_status refuse_reversed(truce_sync *sync, const truce_sync_rule *rule, const char *to,
                                    const char *from, bson_error_t *error)
{
    bool has_from = false, has_to = false;
    truce_status status = any_has(sync, rule->source, from, &has_from, error);

    if (!status && !has_from)
        status = any_has(sync, rule->source, to, &has_to, error);
    if (status || !has_to)
        return status;
    return truce__fail(TRUCE_INVALID, error,
                       "rule \"%s\": no document of %s has \"%s\", but some have \"%s\": copies is "
                       "{path in %s: \"path in %s\"}; write {\"%s\": \"%s\"}, or give %s the field "
                       "first",
                       rule->name, rule->source, from, to, rule->dependent, rule->source, from, to,
                       rule->source);
}

static truce_status check_stored(truce_sync *sync, const truce_sync_rule *rule, bson_error_t *error)
{
    truce_status status = refuse_arrays(sync, rule, rule->dependent, rule->reference, true, error);
    bson_iter_t iter;

    for (bson_iter_init(&iter, rule->copies); !status && bson_iter_next(&iter);) {
        const char *to = bson_iter_key(&iter), *from = bson_iter_utf8(&iter, NULL);

        status = refuse_arrays(sync, rule, rule->dependent, to, false, error);
        if (!status)
            status = refuse_arrays(sync, rule, rule->source, from, false, error);
        if (!status)
            status = refuse_reversed(sync, rule, to, from, error);
    }
    return status;
}

/* Checks a new rule against the stored ones. Sets *there if the same rule is stored. Returns
 * TRUCE_DUPLICATE if another rule of this name is stored. `timed` is that of same_rule. */
static truce_status check_new(truce_sync *sync, const bson_t *wanted, bool timed, bool *there,
                              bson_error_t *error)
{
    struct sync_rules *rules;
    const struct sync_rule *kept;
    bson_t copy;
    truce_status status = rule_read_all(sync, &rules, error);

    *there = false;
    if (status)
        return status;
    kept = truce__sync_rule(rules, truce__field_text(wanted, "_id"));
    if (kept && same_rule(&kept->kept, wanted, timed)) {
        *there = true;
    } else if (kept) {
        status = truce__fail(
            TRUCE_DUPLICATE, error,
            "a rule \"%s\" with other content exists: drop it first, and repair the copies after the "
            "new declaration; or choose another name",
            kept->name);
    } else {
        bson_copy_to(wanted, &copy);
        status = rule_add(rules, &copy, error);
        if (!status)
            status = check_among(rules, rules->count - 1, error);
    }
    rule_release(rules);
    return status;
}

/* Stores the rule, THEN checks again, because two concurrent declarations may close a cycle
 * together. */
static truce_status rule_store(truce_sync *sync, const bson_t *wanted, bson_error_t *error)
{
    struct sync_rules *rules;
    truce_status status;
    bson_t *filter, stored;

    truce__names_store(wanted, &stored);
    status = truce_insert(sync->store, SYNC_RULES, &stored, NULL, error);
    bson_destroy(&stored);

    if (status)
        return status;
    status = rule_read_all(sync, &rules, error);
    if (status)
        return status;
    for (uint32_t i = 0; !status && i < rules->count; i++) {
        if (!strcmp(rules->rules[i].name, truce__field_text(wanted, "_id")))
            status = check_among(rules, i, error);
    }
    rule_release(rules);
    if (status) {
        filter = BCON_NEW("_id", BCON_UTF8(truce__field_text(wanted, "_id")));
        (void)!truce_remove(sync->store, SYNC_RULES, filter, NULL, NULL, NULL);
        bson_destroy(filter);
    }
    return status;
}

truce_status truce_sync_declare(truce_sync *sync, const truce_sync_rule *rule, bson_error_t *error)
{
    RETURN_IF_NULL(rule, error);

    uint32_t settle_ms = rule->settle_ms ? rule->settle_ms : SYNC_SETTLE_MS;
    truce_status status = sync_usable(sync, error);
    bool there = false;
    bson_t *wanted;

    if (!status)
        status = rule_check_rule(rule, error);
    if (!status)
        status = truce__view_guard(sync->store, "write", SYNC_RULES, error);
    if (status)
        return status;
    wanted = rule_build(rule);
    status = check_new(sync, wanted, rule->resume_ms != 0, &there, error);
    if (!status && !there)
        status = check_stored(sync, rule, error);
    if (!status && !there)
        status = truce__settle_check(settle_ms, error);
    if (!status)
        status =
            rule_make_indexes(sync->store, rule->source, rule->dependent, rule->reference, error);
    if (!status && !there)
        status = rule_store(sync, wanted, error);
    bson_destroy(wanted);
    rule_put(sync, NULL, 0, 0);
    if (!status && !there)
        status = truce__settle_wait(sync->store, settle_ms, error);
    return status;
}

truce_status truce_sync_drop(truce_sync *sync, const char *name, bson_error_t *error)
{
    truce_status status = sync_usable(sync, error);
    truce_write_result result = {0};
    bson_t *filter;

    if (status)
        return status;
    filter = BCON_NEW("_id", BCON_UTF8(name));
    status = truce_remove(sync->store, SYNC_RULES, filter, NULL, &result, error);
    if (!status && !result.removed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the rule \"%s\" does not exist", name);
    truce_write_result_release(&result);
    bson_destroy(filter);
    rule_put(sync, NULL, 0, 0);
    return status;
}
