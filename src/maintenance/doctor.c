/*
 * The doctor: what a store stands on, judged.
 *
 *     the store's facts   answers of a server, or a file and its disk     doctor_server.c, doctor_file.c
 *       of a mongos       which collections are sharded, by what          doctor_shards.c
 *     each collection     its indexes                                     doctor_indexes.c
 *                         documents held by a commit that no index finds  here
 *     truce_commits       commits that nobody brought to their end        here
 *     truce_queue ...     jobs and cron lines that nobody cares for       doctor_queues.c
 *     truce_sync, truce_transfers   what their patterns rest on           doctor_patterns.c
 *
 * Everything that is judged is a document of facts, and the judgements are functions of it, so that
 * they are tested on recorded answers of deployments that are not at hand.
 *
 * Levels: an error is a promise of truce's that does not hold here (a write that can be lost, a key that
 * can be used twice); a warning is trouble to come; a note is worth knowing. Whoever may not be told
 * (rights) gets a note, since what is not known is not judged.
 *
 * Not done: mending. The findings say what to do; what truce itself left behind is `truce sweep`'s.
 */
#include "maintenance/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "commit/journal.h"
#include "store/decorators/database.h"
#include "store/maintenance.h"
#include "store/reserved.h"
#include "store/store.h"

#define SCAN_MS 5000
#define LATE_MS INT64_C(60000)
#define OLD_MS  (INT64_C(8) * 86400000) /* a day more than truce sweep keeps */

void truce__doctor_tell(struct doctor *doctor, enum doctor_level level, const char *rule,
                        const char *subject, const char *change, const char *format, ...)
{
    static const char *const names[] = {"note", "warning", "error"};
    int64_t *const counts[] = {&doctor->report->notes, &doctor->report->warnings,
                               &doctor->report->errors};
    bson_t finding = BSON_INITIALIZER;
    char text[700];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    BSON_APPEND_UTF8(&finding, "level", names[level]);
    BSON_APPEND_UTF8(&finding, "rule", rule);
    BSON_APPEND_UTF8(&finding, "subject", subject);
    BSON_APPEND_UTF8(&finding, "text", text);
    BSON_APPEND_UTF8(&finding, "change", change);
    ++*counts[level];
    if (doctor->function)
        doctor->function(&finding, doctor->arg);
    bson_destroy(&finding);
}

/* ---- facts ---------------------------------------------------------------------------------- */

bool truce__doctor_fact(const bson_t *facts, const char *path, bson_iter_t *found)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, facts) && bson_iter_find_descendant(&iter, path, found);
}

const char *truce__doctor_text(const bson_t *facts, const char *path, const char *otherwise)
{
    bson_iter_t found;

    return truce__doctor_fact(facts, path, &found) && BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : otherwise;
}

int64_t truce__doctor_number(const bson_t *facts, const char *path, int64_t otherwise)
{
    bson_iter_t found;

    if (!truce__doctor_fact(facts, path, &found))
        return otherwise;
    if (BSON_ITER_HOLDS_DOUBLE(&found)) {
        double number = bson_iter_double(&found);

        return number > -9e15 && number < 9e15 ? (int64_t)number : otherwise;
    }
    if (BSON_ITER_HOLDS_DATE_TIME(&found))
        return truce__iter_date(&found);
    return BSON_ITER_HOLDS_INT(&found) ? bson_iter_as_int64(&found) : otherwise;
}

bool truce__doctor_flag(const bson_t *facts, const char *path, bool otherwise)
{
    bson_iter_t found;

    return truce__doctor_fact(facts, path, &found) ? bson_iter_as_bool(&found) : otherwise;
}

/* ---- collections ---------------------------------------------------------------------------- */

bool truce__doctor_has_index(const bson_t *indexes, const char *field)
{
    bson_iter_t iter, index, key;

    if (!bson_iter_init(&iter, indexes))
        return false;
    while (bson_iter_next(&iter)) {
        if (bson_iter_recurse(&iter, &index) && bson_iter_find(&index, "key") &&
            bson_iter_recurse(&index, &key) && bson_iter_next(&key) &&
            !strcmp(bson_iter_key(&key), field))
            return true;
    }
    return false;
}

/* Sweeps find intents by their index. */
static truce_status doctor_look_for_held(struct doctor *doctor, truce_store *store,
                                         const char *name, bson_error_t *error)
{
    truce_find_options options = {.deadline_ms = SCAN_MS};
    bson_t *held = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}");
    bson_t document;
    bson_error_t caught = {0};
    truce_status status = truce_find_one(store, name, held, &options, &document, &caught);

    if (!status)
        truce__doctor_tell(doctor, DOCTOR_ERROR, "intent-index", name,
                           "make the index {_intent: 1} with sparse: true, then run truce sweep",
                           "documents are held by commits, and no index on _intent lets a sweep "
                           "find them");
    else if (status == TRUCE_TIMEOUT)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "intent-index", name,
                           "make the index {_intent: 1} with sparse: true if commits by the "
                           "journal change this collection",
                           "it has no index on _intent, and is too large to look whether it needs "
                           "one");
    bson_destroy(&document);
    bson_destroy(held);
    if (status && status != TRUCE_NOT_FOUND && status != TRUCE_TIMEOUT) {
        if (error)
            *error = caught;
        return status;
    }
    return TRUCE_OK;
}

static truce_status look_at_collection(struct doctor *doctor, truce_store *store, const char *name,
                                       bson_error_t *error)
{
    truce_status status;
    bson_t indexes;

    status = truce_index_list(store, name, &indexes, error);
    if (status == TRUCE_NOT_FOUND || status == TRUCE_INVALID) { /* dropped, or a view */
        bson_destroy(&indexes);
        return TRUCE_OK;
    }
    if (!status)
        truce__doctor_indexes(doctor, name, &indexes);
    if (!status && strncmp(name, "system.", 7) != 0 &&
        !truce__doctor_has_index(&indexes, "_intent"))
        status = doctor_look_for_held(doctor, store, name, error);
    bson_destroy(&indexes);
    return status;
}

static truce_status look_at_collections(struct doctor *doctor, truce_store *store,
                                        bson_error_t *error)
{
    bson_t collections;
    bson_iter_t iter, field;
    truce_status status = truce_collection_list(store, &(truce_list_options){.unmeasured = true},
                                                &collections, error);

    if (!status && bson_iter_init(&iter, &collections))
        while (!status && bson_iter_next(&iter))
            if (bson_iter_recurse(&iter, &field) && bson_iter_find(&field, "name") &&
                BSON_ITER_HOLDS_UTF8(&field))
                status = look_at_collection(doctor, store, bson_iter_utf8(&field, NULL), error);
    bson_destroy(&collections);
    return status;
}

/* ---- commits -------------------------------------------------------------------------------- */

static truce_status count_commits(truce_store *store, const bson_t *filter, int64_t *count,
                                  bson_error_t *error)
{
    *count = 0;
    return truce_count(store, COMMITS, filter, NULL, count, error);
}

static truce_status look_at_commits(struct doctor *doctor, truce_store *store, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), late, owed, old;
    bson_t *pending = BCON_NEW("state", BCON_UTF8("pending"), "lease.until", "{", "$lt",
                               BCON_INT64(now_ms - LATE_MS), "}");
    bson_t *committed = BCON_NEW("state", BCON_UTF8("committed"), "created", "{", "$lt",
                                 BCON_DATE_TIME(now_ms - LATE_MS), "}");
    bson_t *ended = BCON_NEW("state", "{", "$in", "[", BCON_UTF8("done"), BCON_UTF8("aborted"), "]",
                             "}", "created", "{", "$lt", BCON_DATE_TIME(now_ms - OLD_MS), "}");
    truce_status status = count_commits(store, pending, &late, error);

    if (!status)
        status = count_commits(store, committed, &owed, error);
    if (!status)
        status = count_commits(store, ended, &old, error);
    if (!status && late)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "expired-commits", COMMITS, "run truce sweep",
                           "%lld commits are pending though their lease is over: whoever meets "
                           "their documents has to undo them first",
                           (long long)late);
    if (!status && owed)
        truce__doctor_tell(doctor, DOCTOR_WARNING, "unfinished-commits", COMMITS, "run truce sweep",
                           "%lld commits were decided, and not brought into all of their documents",
                           (long long)owed);
    if (!status && old)
        truce__doctor_tell(doctor, DOCTOR_NOTE, "old-commits", COMMITS,
                           "run truce sweep regularly (truce sweep --loop)",
                           "%lld ended commits are older than a week: nobody sweeps here",
                           (long long)old);
    bson_destroy(pending);
    bson_destroy(committed);
    bson_destroy(ended);
    return status;
}

/* ---- sets, for their shard keys ---- */

/* facts.sets: the definitions, where collections are sharded. */
static truce_status gather_sets(truce_store *store, bson_t *facts, bson_error_t *error)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *definition;
    uint32_t count = 0;
    bson_t list;
    truce_status status;

    if (!bson_has_field(facts, "sharded"))
        return TRUCE_OK;
    status = truce_find(store, SET_DEFINITIONS, &everything, NULL, &cursor, error);
    BSON_APPEND_ARRAY_BEGIN(facts, "sets", &list);
    while (!status) {
        char text[16];
        const char *key;

        status = truce_cursor_next(cursor, &definition, error);
        if (status || !definition)
            break;
        bson_uint32_to_string(count++, &key, text, sizeof text);
        bson_append_document(&list, key, -1, definition);
    }
    bson_append_array_end(facts, &list);
    if (cursor)
        truce_cursor_close(cursor);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* What is about one database: its collections, and what its patterns keep in them. */
static truce_status look_at_database(void *arg, truce_store *view, const char *name,
                                     bson_error_t *error)
{
    const struct doctor *whole = arg;
    struct care_teller teller = {whole->function, whole->arg, name, "subject"};
    struct doctor doctor = *whole;
    truce_status status;

    doctor.function = truce__care_tell;
    doctor.arg = &teller;
    status = look_at_collections(&doctor, view, error);
    if (!status)
        status = look_at_commits(&doctor, view, error);
    if (!status)
        status = truce__doctor_queues(&doctor, view, error);
    return status ? status : truce__doctor_patterns(&doctor, view, error);
}

truce_status truce_doctor(truce_store *store, truce_doctor_function *function, void *arg,
                          truce_doctor_report *report, bson_error_t *error)
{
    struct doctor doctor = {.function = function, .arg = arg, .report = report};
    truce_status status;

    memset(report, 0, sizeof *report);
    status = truce__store_facts(store, &report->facts, error);
    doctor.facts = &report->facts;
    if (!status)
        status = gather_sets(store, &report->facts, error);
    if (status)
        return status;
    truce__doctor_server(&doctor);
    truce__doctor_shards(&doctor);
    truce__doctor_file(&doctor);
    return truce__each_database(store, look_at_database, &doctor, error);
}
