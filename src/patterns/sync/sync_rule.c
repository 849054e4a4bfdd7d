/* The rules: what one may say, the graph of all of them, and how they are kept. */
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/field_names.h"
#include "patterns/sync/sync.h"
#include "store/reserved.h"
#include "store/store.h"
#include "store/view.h"

/* ---- paths ------------------------------------------------------------------------------------ */

/* One is the other, or stands in it. */
static bool overlap(const char *a, const char *b)
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
        if (overlap(path, fields[i]))
            return true;
    }
    return false;
}

/* Parts of documents, no places of arrays. */
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

/* ---- one rule --------------------------------------------------------------------------------- */

static truce_status rule_check_place(const truce_sync_rule *rule, const char *what,
                                     const char *path, bool may_be_id, bson_error_t *error)
{
    if (!path || !plain_path(path))
        return truce__fail(TRUCE_INVALID, error,
                           "rule \"%s\": %s is a path of fields, up to %d bytes, without places of "
                           "arrays",
                           rule->name, what, SYNC_PATH_BYTES_MAX);
    if (of_truce(path) || (!may_be_id && overlap(path, "_id")))
        return truce__fail(TRUCE_INVALID, error, "rule \"%s\": %s cannot be \"%s\"", rule->name,
                           what, path);
    return TRUCE_OK;
}

static truce_status rule_check_copies(const truce_sync_rule *rule, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t count = 0;
    bson_iter_t iter;

    for (bson_iter_init(&iter, rule->copies); !status && bson_iter_next(&iter); count++) {
        const char *to = bson_iter_key(&iter);

        if (!BSON_ITER_HOLDS_UTF8(&iter))
            return truce__fail(TRUCE_INVALID, error,
                               "rule \"%s\": copies is {path in the dependent: \"path in the "
                               "master\"}",
                               rule->name);
        status = rule_check_place(rule, "a copy", to, false, error);
        if (!status)
            status =
                rule_check_place(rule, "what is copied", bson_iter_utf8(&iter, NULL), true, error);
        if (!status && overlap(to, rule->reference))
            status = truce__fail(TRUCE_INVALID, error,
                                 "rule \"%s\": \"%s\" is the reference, and cannot be a copy",
                                 rule->name, to);
    }
    if (!status && (!count || count > SYNC_COPIES_MAX))
        status = truce__fail(TRUCE_INVALID, error, "rule \"%s\": copies are 1 to %d fields",
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
        return truce__fail(TRUCE_INVALID, error, "rule \"%s\": collection %s is truce's own",
                           rule->name, collection);
    return TRUCE_OK;
}

static truce_status rule_check_rule(const truce_sync_rule *rule, bson_error_t *error)
{
    truce_status status = ROOM_CHECK(rule, "truce_sync_rule", error);

    if (status)
        return status;
    if (!rule_plain_name(rule->name))
        return truce__fail(TRUCE_INVALID, error,
                           "the name of a rule is a word of up to %d bytes, without \".\", and "
                           "without \"$\" or \"_\" in front",
                           SYNC_NAME_MAX);
    status = rule_check_collection(rule, "master", rule->master, error);
    if (!status)
        status = rule_check_collection(rule, "dependent", rule->dependent, error);
    if (!status)
        status = rule_check_place(rule, "the reference", rule->reference, true, error);
    if (!status && !rule->copies)
        status = truce__fail(TRUCE_INVALID, error, "rule \"%s\": copies are missing", rule->name);
    if (!status)
        status = truce__document_check(rule->copies, "copies", error);
    return status ? status : rule_check_copies(rule, error);
}

/* As it is kept, by the names of its user. */
static bson_t *rule_build(const truce_sync_rule *rule)
{
    bson_t *kept =
        BCON_NEW("_id", BCON_UTF8(rule->name), "master", BCON_UTF8(rule->master), "dependent",
                 BCON_UTF8(rule->dependent), "reference", BCON_UTF8(rule->reference));

    BSON_APPEND_DOCUMENT(kept, "copies", rule->copies);
    BSON_APPEND_INT64(kept, "resume_ms", rule->resume_ms ? rule->resume_ms : SYNC_RESUME_MS);
    return kept;
}

/* False: somebody else made it. Takes `kept` over. */
static bool rule_read_rule(bson_t *kept, struct sync_rule *rule)
{
    truce_sync_rule same;

    bson_steal(&rule->kept, kept);
    truce__names_restore_own(&rule->kept);
    rule->name = truce__field_text(&rule->kept, "_id");
    rule->master = truce__field_text(&rule->kept, "master");
    rule->dependent = truce__field_text(&rule->kept, "dependent");
    rule->reference = truce__field_text(&rule->kept, "reference");
    rule->resume_ms = (uint32_t)truce__field_number(&rule->kept, "resume_ms");
    rule->feeds = false;
    if (!truce__value_subdocument(&rule->kept, "copies", &rule->copies))
        return false;
    same = (truce_sync_rule){.name = rule->name,
                             .master = rule->master,
                             .dependent = rule->dependent,
                             .reference = rule->reference,
                             .copies = &rule->copies};
    if (rule_check_rule(&same, NULL))
        return false;
    snprintf(rule->copied, sizeof rule->copied, SYNC_COPIED ".%s", rule->name);
    return true;
}

/* ---- all of them ------------------------------------------------------------------------------ */

/* A field that one copies to is one that the other copies, or its reference. */
static bool leads_to(const struct sync_rule *one, const struct sync_rule *other)
{
    bson_iter_t to, from;

    if (strcmp(one->dependent, other->master))
        return false;
    for (bson_iter_init(&to, &one->copies); bson_iter_next(&to);) {
        for (bson_iter_init(&from, &other->copies); bson_iter_next(&from);) {
            if (overlap(bson_iter_key(&to), bson_iter_utf8(&from, NULL)))
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

/* Two rules that write one field, or one that writes the reference of the other. */
static truce_status check_pair(const struct sync_rule *one, const struct sync_rule *other,
                               bson_error_t *error)
{
    bson_iter_t a, b;

    if (one == other || strcmp(one->dependent, other->dependent))
        return TRUCE_OK;
    for (bson_iter_init(&a, &one->copies); bson_iter_next(&a);) {
        if (overlap(bson_iter_key(&a), other->reference))
            return truce__fail(TRUCE_INVALID, error,
                               "rule \"%s\" copies to \"%s\", which is the reference of rule "
                               "\"%s\"",
                               one->name, bson_iter_key(&a), other->name);
        for (bson_iter_init(&b, &other->copies); bson_iter_next(&b);) {
            if (overlap(bson_iter_key(&a), bson_iter_key(&b)))
                return truce__fail(TRUCE_INVALID, error,
                                   "rule \"%s\": \"%s\" of %s is a copy by rule \"%s\" already",
                                   one->name, bson_iter_key(&a), one->dependent, other->name);
        }
    }
    return TRUCE_OK;
}

/* One rule beside all the others. */
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
        status = truce__fail(TRUCE_INVALID, error, "rule \"%s\" copies onto what it copies",
                             rules->rules[at].name);
    else if (!status && leads_back(rules, at, at, seen))
        status = truce__fail(TRUCE_INVALID, error,
                             "rule \"%s\" closes a circle: what it copies comes back to it by "
                             "other rules",
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

/* Adds a rule; takes `kept` over. */
static truce_status rule_add(struct sync_rules *rules, bson_t *kept, bson_error_t *error)
{
    char shown[200] = "";

    if (rules->count == SYNC_RULES_MAX) {
        bson_destroy(kept);
        return truce__fail(TRUCE_LIMIT, error, "a store has up to %d rules of copies",
                           SYNC_RULES_MAX);
    }
    if (rule_read_rule(kept, &rules->rules[rules->count])) {
        rules->count++;
        return TRUCE_OK;
    }
    snprintf(shown, sizeof shown, "%s", rules->rules[rules->count].name);
    bson_destroy(&rules->rules[rules->count].kept);
    return truce__fail(TRUCE_INVALID, error, "%s {_id: \"%s\"} is no rule of copies", SYNC_RULES,
                       shown);
}

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

/* ---- the handle's own copy of them ------------------------------------------------------------ */

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

static truce_status rule_make_indexes(truce_store *store, const char *master, const char *dependent,
                                      const char *reference, bson_error_t *error)
{
    truce_status status = rule_make_index(store, master, SYNC_FLAG, true, error);

    if (!status)
        status = rule_make_index(store, dependent, SYNC_UNCHECKED, true, error);
    if (!status && strcmp(reference, "_id"))
        status = rule_make_index(store, dependent, reference, false, error);
    return status;
}

/* The collections of the rules may have been replaced. Without the indexes everything is right, and slower, so a store that
 * is only read does without. */
static void index_again(truce_store *store, const struct sync_rules *rules)
{
    bson_error_t ignored;

    for (uint32_t i = 0; i < rules->count; i++)
        (void)!rule_make_indexes(store, rules->rules[i].master, rules->rules[i].dependent,
                                 rules->rules[i].reference, &ignored);
}

/* Fresh ones, of a look at that time, take the place of what there was; NULL: what there is is forgotten. */
static void rule_put(truce_sync *sync, struct sync_rules *fresh, int64_t looked_ns,
                     uint64_t structure)
{
    struct sync_rules *before;

    pthread_mutex_lock(&sync->mutex);
    before = sync->rules;
    sync->rules = fresh;
    sync->read_ns = looked_ns;
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

truce_status truce__sync_rules(truce_sync *sync, struct sync_rules **rules, bson_error_t *error)
{
    int64_t begun_ns = truce__clock_monotonic_ns();
    uint64_t structure = truce__store_structure(sync->store) + 1;
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

void truce__sync_rules_leave(truce_sync *sync, struct sync_rules *rules)
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

/* ---- declare, drop ---------------------------------------------------------------------------- */

static bool same_rule(const bson_t *kept, const bson_t *wanted)
{
    struct fields fields = truce__fields(truce__value_document(wanted));

    while (truce__fields_next(&fields)) {
        struct value there =
            truce__value_field(truce__value_document(kept), fields.key, fields.key_length);

        if (strcmp(fields.key, "resume_ms") && !truce__value_identical(fields.value, there))
            return false;
    }
    return true;
}

/* ---- what is stored already ------------------------------------------------------------------- */

/* INVALID: a document of the collection has an array on the path. */
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

/* INVALID: no source has the field that is copied, and some have the one that it is copied to. */
static truce_status refuse_reversed(truce_sync *sync, const truce_sync_rule *rule, const char *to,
                                    const char *from, bson_error_t *error)
{
    bool has_from = false, has_to = false;
    truce_status status = any_has(sync, rule->master, from, &has_from, error);

    if (!status && !has_from)
        status = any_has(sync, rule->master, to, &has_to, error);
    if (status || !has_to)
        return status;
    return truce__fail(TRUCE_INVALID, error,
                       "rule \"%s\": no document of %s has \"%s\", but some have \"%s\": copies is "
                       "{path in %s: \"path in %s\"}; write {\"%s\": \"%s\"}, or give %s the field "
                       "first",
                       rule->name, rule->master, from, to, rule->dependent, rule->master, from, to,
                       rule->master);
}

static truce_status check_stored(truce_sync *sync, const truce_sync_rule *rule, bson_error_t *error)
{
    truce_status status = refuse_arrays(sync, rule, rule->dependent, rule->reference, true, error);
    bson_iter_t iter;

    for (bson_iter_init(&iter, rule->copies); !status && bson_iter_next(&iter);) {
        const char *to = bson_iter_key(&iter), *from = bson_iter_utf8(&iter, NULL);

        status = refuse_arrays(sync, rule, rule->dependent, to, false, error);
        if (!status)
            status = refuse_arrays(sync, rule, rule->master, from, false, error);
        if (!status)
            status = refuse_reversed(sync, rule, to, from, error);
    }
    return status;
}

/* *there: it is kept already. DUPLICATE: another one is. */
static truce_status check_new(truce_sync *sync, const bson_t *wanted, bool *there,
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
    if (kept && same_rule(&kept->kept, wanted)) {
        *there = true;
    } else if (kept) {
        status = truce__fail(TRUCE_DUPLICATE, error, "there is another rule \"%s\"; drop it first",
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

/* Two that are declared at once may close a circle together: whoever comes second looks again. */
static truce_status rule_keep(truce_sync *sync, const bson_t *wanted, bson_error_t *error)
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

    truce_status status = truce__sync_usable(sync, error);
    bool there = false;
    bson_t *wanted;

    if (!status)
        status = rule_check_rule(rule, error);
    if (!status)
        status = truce__view_guard(sync->store, "write", SYNC_RULES, error);
    if (status)
        return status;
    wanted = rule_build(rule);
    status = check_new(sync, wanted, &there, error);
    if (!status && !there)
        status = check_stored(sync, rule, error);
    if (!status)
        status =
            rule_make_indexes(sync->store, rule->master, rule->dependent, rule->reference, error);
    if (!status && !there)
        status = rule_keep(sync, wanted, error);
    bson_destroy(wanted);
    rule_put(sync, NULL, 0, 0);
    if (!status && !there)
        truce__clock_sleep_ms(rule->settle_ms ? rule->settle_ms : SYNC_SETTLE_MS);
    return status;
}

truce_status truce_sync_drop(truce_sync *sync, const char *name, bson_error_t *error)
{
    truce_status status = truce__sync_usable(sync, error);
    truce_write_result result = {0};
    bson_t *filter;

    if (status)
        return status;
    filter = BCON_NEW("_id", BCON_UTF8(name));
    status = truce_remove(sync->store, SYNC_RULES, filter, NULL, &result, error);
    if (!status && !result.removed)
        status = truce__fail(TRUCE_NOT_FOUND, error, "there is no rule \"%s\"", name);
    truce_write_result_release(&result);
    bson_destroy(filter);
    rule_put(sync, NULL, 0, 0);
    return status;
}
