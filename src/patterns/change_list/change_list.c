/* Change lists: reads the changes, checks them, and adds them to a commit (change_list.h). */
#include "patterns/change_list/change_list.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/value.h"
#include "commit/commit.h"
#include "store/reserved_names.h"

/* A change of a list; its strings and documents are borrowed from the list. */
struct change_list_part {
    /* `collection` is the value of the verb: the name of a collection, a queue, or a ledger. */
    const char *verb, *collection;
    bson_value_t id;
    bson_t with, guard;
    bool has_id, has_with, has_guard;
    /* The name of the last field that only some verbs allow (extras), or NULL. */
    const char *extra;
    int64_t delay_ms, priority;
    const char *unique, *lane;
    bson_t meta;
    bool has_meta;
};

typedef truce_status change_list_add_function(int number, const struct change_list_part *part,
                                              struct change_list_handles *handles,
                                              truce_commit *commit, bson_error_t *error);

/* ---- handles --------------------------------------------------------------------------------- */

static truce_queue *change_list_queue(struct change_list_handles *handles, const char *name,
                                      truce_store *store)
{
    if (handles->queue && !strcmp(handles->queue_name, name))
        return handles->queue;
    truce_queue_free(handles->queue);
    bson_free(handles->queue_name);
    handles->queue_name = bson_strdup(name);
    handles->queue = truce_queue_new(store, &(truce_queue_options){.queue = name});
    return handles->queue;
}

static truce_ledger *change_list_book(struct change_list_handles *handles, const char *name,
                                      truce_store *store)
{
    if (handles->book && !strcmp(handles->book_name, name))
        return handles->book;
    truce_ledger_free(handles->book);
    bson_free(handles->book_name);
    handles->book_name = bson_strdup(name);
    handles->book = truce_ledger_new(store, &(truce_ledger_options){.collection = name});
    return handles->book;
}

void truce__change_list_handles_release(struct change_list_handles *handles)
{
    truce_queue_free(handles->queue);
    truce_ledger_free(handles->book);
    bson_free(handles->queue_name);
    bson_free(handles->book_name);
    *handles = (struct change_list_handles){0};
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* The maximum number of entries in a transaction of a change list. */
#define CHANGE_ENTRIES_MAX 1000

/* Names the change in an error, unless the error comes from other processes or the store. */
static truce_status change_name_in_error(int number, truce_status status, bson_error_t *error)
{
    const bson_error_t why = *error;

    if (status != TRUCE_INVALID && status != TRUCE_NOT_FOUND && status != TRUCE_DUPLICATE &&
        status != TRUCE_LIMIT)
        return status;
    return truce__fail(status, error, "change %d: %.400s", number, why.message);
}

static truce_status change_enqueue(int number, const struct change_list_part *part,
                                   struct change_list_handles *handles, truce_commit *commit,
                                   bson_error_t *error)
{
    const truce_job_options job = {.delay_ms = part->delay_ms,
                                   .priority = (int32_t)part->priority,
                                   .unique = part->unique,
                                   .lane = part->lane};
    truce_queue *queue;
    truce_status status;

    if (part->priority != job.priority)
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: the priority %lld is not between -%d and %d", number,
                           (long long)part->priority, JOB_PRIORITY_MAX, JOB_PRIORITY_MAX);
    queue = change_list_queue(handles, part->collection, commit->store);
    status = truce_queue_add(queue, commit, &part->with, &job, NULL, error);
    return status ? change_name_in_error(number, status, error) : TRUCE_OK;
}

/* ---- posts ----------------------------------------------------------------------------------- */

static truce_status change_read_text(truce_ledger *ledger, const char *account, const char *text,
                                     int64_t *value, bson_error_t *error)
{
    truce_ledger_balance balance;
    int digits;
    truce_status status = truce_ledger_balance_of(ledger, account, NULL, &balance, error);

    if (!status)
        status = truce_ledger_digits(ledger, balance.currency, &digits, error);
    return status ? status : truce_ledger_read(text, digits, value, error);
}

static truce_status change_read_amount(truce_ledger *ledger, const bson_iter_t *iter,
                                       int64_t *value, bson_error_t *error)
{
    if (BSON_ITER_HOLDS_UTF8(iter))
        return change_read_text(ledger, bson_iter_key(iter), bson_iter_utf8(iter, NULL), value,
                                error);
    if (!BSON_ITER_HOLDS_INT(iter) &&
        !(BSON_ITER_HOLDS_DOUBLE(iter) && truce__double_is_whole(bson_iter_double(iter))))
        return truce__fail(
            TRUCE_INVALID, error,
            "the amount of \"%.200s\" must be a whole number of the smallest unit, or a string "
            "such as \"12.50\"",
            bson_iter_key(iter));
    *value = bson_iter_as_int64(iter);
    return TRUCE_OK;
}

static truce_status pattern_read_entries(truce_ledger *ledger, const bson_t *with,
                                         truce_ledger_entry *entries, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t iter;
    size_t i = 0;

    (void)bson_iter_init(&iter, with);
    while (!status && bson_iter_next(&iter)) {
        entries[i].account = bson_iter_key(&iter);
        status = change_read_amount(ledger, &iter, &entries[i++].value, error);
    }
    return status;
}

/* Posts the transaction in the commit. Returns DUPLICATE if it was posted before (PL2). */
static truce_status change_post_in(truce_ledger *ledger, const struct change_list_part *part,
                                   truce_commit *commit, bson_error_t *error)
{
    uint32_t count = bson_count_keys(&part->with);
    truce_ledger_entry *entries = bson_malloc0((count + 1) * sizeof *entries);
    const truce_ledger_transaction transaction = {.id = &part->id,
                                                  .entries = entries,
                                                  .count = count,
                                                  .meta = part->has_meta ? &part->meta : NULL};
    truce_ledger_result result = {0};
    truce_status status = pattern_read_entries(ledger, &part->with, entries, error);

    if (!status)
        status = truce_ledger_post(ledger, commit, &transaction, &result, error);
    bson_free(entries);
    if (!status && result.exists) /* The transaction was posted before (PL2). */
        status = truce__fail(TRUCE_DUPLICATE, error, "the transaction was posted before");
    return status;
}

/* Adds a transaction of a ledger to the commit. Refuses it in a transaction of the driver. */
static truce_status change_post(int number, const struct change_list_part *part,
                                struct change_list_handles *handles, truce_commit *commit,
                                bson_error_t *error)
{
    truce_ledger *ledger;
    truce_status status;

    if (bson_count_keys(&part->with) > CHANGE_ENTRIES_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: a transaction may have at most %d entries", number,
                           CHANGE_ENTRIES_MAX);
    if (commit->store->capabilities & TRUCE_IS_TRANSACTION)
        return truce__fail(
            TRUCE_INVALID, error,
            "change %d: \"post\" is not allowed in a transaction of the driver: send this commit "
            "outside of the transaction",
            number);
    ledger = change_list_book(handles, part->collection, commit->store);
    status = change_post_in(ledger, part, commit, error);
    return status ? change_name_in_error(number, status, error) : TRUCE_OK;
}

/* ---- the list -------------------------------------------------------------------------------- */

static const struct verb {
    const char *name;
    bool id, with, guard, reads;
    /* The required content of `with`, for messages, or NULL if the verb has no such field. */
    const char *content;
    /* Adds the change to the commit. If it is NULL, change_list_add_change does so. */
    change_list_add_function *add;
} verbs[] = {
    {"insert", false, true, false, false, "a document", NULL},
    {"update", true, true, true, false, "update operators", NULL},
    {"replace", true, true, true, false, "a document", NULL},
    {"remove", true, false, true, false, NULL, NULL},
    {"require", true, false, true, true, NULL, NULL},
    {"hold", true, false, true, false, NULL, NULL},
    {"missing", true, false, false, true, NULL, NULL},
    {"change", true, true, false, false, "{KEY: [OLD, NEW]}", NULL},
    {"enqueue", false, true, false, false, "a payload", change_enqueue},
    {"post", true, true, false, false, "{ACCOUNT: AMOUNT}", change_post},
};

/* Fields that only one verb allows, each with its verb. */
static const struct extra {
    const char *name, *verb;
} extras[] = {{"delay_ms", "enqueue"},
              {"priority", "enqueue"},
              {"unique", "enqueue"},
              {"lane", "enqueue"},
              {"meta", "post"}};

static const struct verb *verb_named(const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    }
    return NULL;
}

static const struct extra *extra_named(const char *name)
{
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        if (!strcmp(extras[i].name, name))
            return &extras[i];
    }
    return NULL;
}

static bool change_list_take_document(const bson_iter_t *iter, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;

    if (!BSON_ITER_HOLDS_DOCUMENT(iter))
        return false;
    bson_iter_document(iter, &length, &bytes);
    return bson_init_static(document, bytes, length);
}

static truce_status bad_part(int number, const char *what, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "change %d: %s", number, what);
}

/* Refuses a change that has a verb: "change 2: update of "accounts" needs an "id"". */
static truce_status change_list_refuse(int number, const struct change_list_part *part,
                                       const char *why, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "change %d: %s of \"%.80s\" %s", number, part->verb,
                       part->collection, why);
}

static truce_status change_list_wrong_type(int number, const bson_iter_t *iter, const char *wanted,
                                           bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "change %d: \"%s\" must be %s, not %s", number,
                       bson_iter_key(iter), wanted,
                       truce__type_name((uint8_t)bson_iter_type(iter)));
}

static truce_status change_list_read_number(int number, const bson_iter_t *iter, int64_t *value,
                                            bson_error_t *error)
{
    bool whole = BSON_ITER_HOLDS_INT(iter) ||
                 (BSON_ITER_HOLDS_DOUBLE(iter) && truce__double_is_whole(bson_iter_double(iter)));

    if (!whole)
        return change_list_wrong_type(number, iter, "a whole number", error);
    *value = bson_iter_as_int64(iter);
    return TRUCE_OK;
}

static truce_status change_list_read_text(int number, const bson_iter_t *iter, const char **text,
                                          bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(iter))
        return change_list_wrong_type(number, iter, "a string", error);
    *text = bson_iter_utf8(iter, NULL);
    return TRUCE_OK;
}

static truce_status read_extra(int number, const bson_iter_t *iter, struct change_list_part *part,
                               bson_error_t *error)
{
    const char *key = bson_iter_key(iter);

    if (!part->extra || !strcmp(extra_named(key)->verb, extra_named(part->extra)->verb))
        part->extra = key;
    else
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: \"%s\" is only for \"%s\", and \"%s\" only for \"%s\"",
                           number, part->extra, extra_named(part->extra)->verb, key,
                           extra_named(key)->verb);
    if (!strcmp(key, "delay_ms"))
        return change_list_read_number(number, iter, &part->delay_ms, error);
    if (!strcmp(key, "priority"))
        return change_list_read_number(number, iter, &part->priority, error);
    if (!strcmp(key, "unique"))
        return change_list_read_text(number, iter, &part->unique, error);
    if (!strcmp(key, "lane"))
        return change_list_read_text(number, iter, &part->lane, error);
    part->has_meta = change_list_take_document(iter, &part->meta);
    return part->has_meta ? TRUCE_OK : change_list_wrong_type(number, iter, "a document", error);
}

/* Fails with INVALID, because change `number` has the unknown field `key`. The message names the
 * known field with a similar name, or else lists the fields and verbs. */
static truce_status change_list_refuse_field(int number, const char *key, bson_error_t *error)
{
    struct nearest_word nearest = {.word = key};
    char hint[NEAREST_WORD_HINT_MAX];

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        truce__nearest_word_offer(&nearest, verbs[i].name);
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        truce__nearest_word_offer(&nearest, extras[i].name);
    truce__nearest_word_offer(&nearest, "with");
    truce__nearest_word_offer(&nearest, "if");
    truce__nearest_word_offer(&nearest, "id");
    if (nearest.best)
        return truce__fail(TRUCE_INVALID, error, "change %d: unknown field \"%.80s\"%s", number,
                           key, truce__nearest_word_hint(&nearest, hint));
    return truce__fail(
        TRUCE_INVALID, error,
        "change %d: unknown field \"%.80s\": expected id, with, if, or a verb (insert, update, "
        "replace, remove, require, hold, missing, change, enqueue, post)",
        number, key);
}

/* Reads one field of a change. */
static truce_status change_list_read_field(int number, const bson_iter_t *iter,
                                           struct change_list_part *part, bson_error_t *error)
{
    const char *key = bson_iter_key(iter);

    if ((!strcmp(key, "id") && part->has_id) || (!strcmp(key, "with") && part->has_with) ||
        (!strcmp(key, "if") && part->has_guard))
        return truce__fail(TRUCE_INVALID, error, "change %d: \"%s\" is given twice", number, key);
    if (!strcmp(key, "id")) {
        part->has_id = true;
        part->id = *bson_iter_value((bson_iter_t *)iter);
    } else if (!strcmp(key, "with")) {
        part->has_with = change_list_take_document(iter, &part->with);
        return part->has_with ? TRUCE_OK
                              : change_list_wrong_type(number, iter, "a document", error);
    } else if (!strcmp(key, "if")) {
        part->has_guard = change_list_take_document(iter, &part->guard);
        return part->has_guard ? TRUCE_OK
                               : change_list_wrong_type(number, iter, "a document", error);
    } else if (extra_named(key)) {
        return read_extra(number, iter, part, error);
    } else if (verb_named(key) && !part->verb && BSON_ITER_HOLDS_UTF8(iter)) {
        part->verb = key;
        part->collection = bson_iter_utf8(iter, NULL);
    } else if (verb_named(key) && part->verb) {
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: has two verbs, \"%s\" and \"%s\": make two changes of it",
                           number, part->verb, key);
    } else if (verb_named(key)) {
        change_list_add_function *add = verb_named(key)->add;

        return truce__fail(TRUCE_INVALID, error, "change %d: \"%s\" must name a %s, not %s", number,
                           key,
                           !add                    ? "collection"
                           : add == change_enqueue ? "queue"
                                                   : "ledger",
                           truce__type_name((uint8_t)bson_iter_type(iter)));
    } else {
        return change_list_refuse_field(number, key, error);
    }
    return TRUCE_OK;
}

/* Checks that a change has the fields that its verb needs, and no others. */
static truce_status change_list_check_part(int number, const struct change_list_part *part,
                                           bson_error_t *error)
{
    const struct verb *verb = part->verb ? verb_named(part->verb) : NULL;

    if (!verb)
        return bad_part(number,
                        "has no verb: expected {\"update\": \"COLLECTION\", \"id\": ..., \"with\": "
                        "{...}}",
                        error);
    if (verb->id != part->has_id)
        return change_list_refuse(number, part,
                                  verb->id    ? "needs an \"id\""
                                  : verb->add ? "must not have an \"id\""
                                              : "must not have an \"id\": \"with\" has the _id",
                                  error);
    if (verb->with && !part->has_with) {
        char why[80];

        snprintf(why, sizeof why, "needs %s (\"with\")", verb->content);
        return change_list_refuse(number, part, why, error);
    }
    if (!verb->with && part->has_with)
        return change_list_refuse(number, part, "must not have \"with\"", error);
    if (part->has_guard && !verb->guard)
        return change_list_refuse(number, part, "must not have \"if\"", error);
    if (part->extra && strcmp(extra_named(part->extra)->verb, part->verb) != 0)
        return truce__fail(TRUCE_INVALID, error,
                           "change %d: \"%s\" is only for \"%s\", not for \"%s\"", number,
                           part->extra, extra_named(part->extra)->verb, part->verb);
    return TRUCE_OK;
}

/* Notes that the change has a field. Returns false if no change has it, or if the change has two
 * verbs. */
static bool change_list_note_field(const char *key, struct change_list_part *part)
{
    if (!strcmp(key, "id"))
        part->has_id = true;
    else if (!strcmp(key, "with"))
        part->has_with = true;
    else if (!strcmp(key, "if"))
        part->has_guard = true;
    else if (extra_named(key))
        part->extra = key;
    else if (verb_named(key) && !part->verb)
        part->verb = key;
    else
        return false;
    return true;
}

truce_status truce__change_list_check_names(int number, const bson_t *change, bson_error_t *error)
{
    struct change_list_part part = {.collection = ""};
    bson_iter_t field;

    (void)bson_iter_init(&field, change);
    while (bson_iter_next(&field)) {
        if (!change_list_note_field(bson_iter_key(&field), &part))
            return change_list_refuse_field(number, bson_iter_key(&field), error);
        if (part.verb == bson_iter_key(&field) && BSON_ITER_HOLDS_UTF8(&field))
            part.collection = bson_iter_utf8(&field, NULL);
    }
    return change_list_check_part(number, &part, error);
}

/* Adds a change of a document to the commit. The last verb, "missing", needs no comparison, because
 * the list was checked. */
static truce_status change_list_add_change(int number, truce_commit *commit,
                                           const struct change_list_part *part,
                                           const char *collection, bson_error_t *error)
{
    const bson_t *guard = part->has_guard ? &part->guard : NULL;

    if (!strcmp(part->verb, "insert"))
        return truce_commit_insert(commit, collection, &part->with, error);
    if (!strcmp(part->verb, "update"))
        return truce_commit_update(commit, collection, &part->id, guard, &part->with, error);
    if (!strcmp(part->verb, "replace")) {
        truce_status status =
            truce_commit_replace(commit, collection, &part->id, guard, &part->with, error);

        return status == TRUCE_INVALID ? change_name_in_error(number, status, error) : status;
    }
    if (!strcmp(part->verb, "remove"))
        return truce_commit_remove(commit, collection, &part->id, guard, error);
    if (!strcmp(part->verb, "require"))
        return truce_commit_require(commit, collection, &part->id, guard, error);
    if (!strcmp(part->verb, "change")) {
        truce_status status =
            truce_commit_change(commit, collection, &part->id, &part->with, error);

        return status == TRUCE_INVALID ? change_name_in_error(number, status, error) : status;
    }
    if (!strcmp(part->verb, "hold"))
        return truce_commit_hold(commit, collection, &part->id, guard, error);
    return truce_commit_require_missing(commit, collection, &part->id, error);
}

/* The arguments of the calls that add changes. If `commit` is NULL, changes are only checked. */
struct adding {
    const struct change_list_guard *guard;
    struct change_list_handles *handles;
    truce_commit *commit;
};

typedef truce_status part_function(int number, const struct change_list_part *part,
                                   const struct adding *adding, bson_error_t *error);

/* Reads each change and calls the function. A change that is an operation goes to the guard. */
static truce_status each_part(const bson_t *changes, part_function *function,
                              const struct adding *adding, bson_error_t *error)
{
    const struct change_list_guard *guard = adding->guard;
    truce_status status = TRUCE_OK;
    bson_iter_t iter, field;
    int number = 0;

    (void)bson_iter_init(&iter, changes);
    while (!status && bson_iter_next(&iter)) {
        struct change_list_part part = {0};
        bson_t change;

        number++;
        if (!BSON_ITER_HOLDS_DOCUMENT(&iter) || !bson_iter_recurse(&iter, &field))
            return truce__fail(TRUCE_INVALID, error, "change %d: must be a document, not %s",
                               number, truce__type_name((uint8_t)bson_iter_type(&iter)));
        if (guard && guard->add_operation && change_list_take_document(&iter, &change) &&
            truce__is_operation(&change)) {
            status = guard->add_operation(guard->arg, number, &change, adding->commit, error);
            continue;
        }
        while (!status && bson_iter_next(&field))
            status = change_list_read_field(number, &field, &part, error);
        if (!status)
            status = function(number, &part, adding, error);
    }
    return status;
}

static truce_status change_list_check_one(int number, const struct change_list_part *part,
                                          const struct adding *adding, bson_error_t *error)
{
    (void)adding;
    return change_list_check_part(number, part, error);
}

truce_status truce__change_list_check(const bson_t *changes, const struct change_list_guard *guard,
                                      bson_error_t *error)
{
    const struct adding checking = {.guard = guard};

    return each_part(changes, change_list_check_one, &checking, error);
}

static truce_status change_list_add_one(int number, const struct change_list_part *part,
                                        const struct adding *adding, bson_error_t *error)
{
    const struct change_list_guard *guard = adding->guard;
    const struct verb *verb = verb_named(part->verb);
    truce_status status = TRUCE_OK;

    if (guard && strcmp(verb->name, "enqueue") != 0)
        status = guard->allow(guard->arg, part->collection, verb->reads, error);
    if (status)
        return status;
    return verb->add
               ? verb->add(number, part, adding->handles, adding->commit, error)
               : change_list_add_change(number, adding->commit, part, part->collection, error);
}

truce_status truce__change_list_add(const bson_t *changes, const struct change_list_guard *guard,
                                    struct change_list_handles *handles, truce_commit *commit,
                                    bson_error_t *error)
{
    struct change_list_handles own = {0};
    const struct adding adding = {guard, handles ? handles : &own, commit};
    truce_status status = each_part(changes, change_list_add_one, &adding, error);

    truce__change_list_handles_release(&own);
    return status;
}
