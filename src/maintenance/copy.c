/*
 * Moving a store into another.
 *
 *     plan        which collections, and what may be done to each in `to`
 *     copy        from the place where the record says, in the order of _id
 *     indexes     those that expire nothing
 *     compare     both sides, all of it; what differs?
 *        |  something, and something may be done about it: copy these collections again, at most
 *        |  `rounds` times, indexes, compare
 *     expiring indexes, record "done"
 *
 * What a collection in `to` allows:
 *
 *     its record, and what it holds            NEW           MERGE     REPLACE      COMPARE
 *     nothing                                  everything    inserts   everything   nothing
 *     copying, from here                       everything    inserts   everything   nothing
 *     done, from here                          nothing       inserts   everything   nothing
 *     documents, and no record from here       refused       inserts   everything   nothing
 *
 * A finished copy is not written to without being asked: by then it may be the one that is in use.
 *
 * C1  What is called verified was compared, every document, after the last write of this copy.
 * C2  If nobody else writes to `to`, it is then what `from` was in one moment. Where `from` can take a snapshot
 *     (truce/snapshot.h), all is read of one that is taken first, and has no maximum: writers to `from` cost
 *     nothing but the log that it pins. Elsewhere it is the moment when that comparison began: each document of
 *     `to` is from before that moment, and was found in `from` after it; so it stood there in between (but for
 *     one that was changed and changed back). Writers to `from` cost rounds, and never make a mixture that is
 *     called good.
 * C3  Commits move with their documents. Of an open one, both sides have the documents that it holds
 *     and the commit document of one moment (C2): whoever meets it in `to` finishes or undoes it.
 *     Where the commit documents stay behind, none may be open.
 * C4  A crash leaves documents up to some _id, and a record that names this or an earlier one.
 *
 * Deliberately not done: following the writers (a change that comes after the comparison began is for
 * the next call), parallel reading, and anything of a server that is not documents or indexes.
 */
#include "maintenance/copy.h"

#include <string.h>

#include "base/assert.h"
#include "base/field.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/reserved_fields.h"
#include "commit/journal.h"
#include "store/view.h"
#include "truce/snapshot.h"

#define BATCH       1000
#define ROUNDS      3
#define DIFFERENCES 20

/* ---- plan: which collections ----------------------------------------------------------------- */

static struct copy_part *copy_find_part(struct copy *copy, const char *collection)
{
    for (size_t i = 0; i < copy->count; i++) {
        if (!strcmp(copy->parts[i].collection, collection))
            return &copy->parts[i];
    }
    return NULL;
}

static bool copy_is_wanted(const struct copy *copy, const char *collection)
{
    const char *const *wanted = copy->options.collections;

    if (!strcmp(collection, COPY_RECORDS))
        return false;
    for (; wanted && *wanted; wanted++) {
        if (!strcmp(*wanted, collection))
            return true;
    }
    return !copy->options.collections;
}

static void copy_add_part(struct copy *copy, const char *collection, int64_t expected)
{
    struct copy_part *part;

    copy->parts = bson_realloc(copy->parts, (copy->count + 1) * sizeof *copy->parts);
    part = &copy->parts[copy->count++];
    *part = (struct copy_part){.collection = bson_strdup(collection), .expected = expected};
    part->last = bson_new();
    copy->total += expected;
}

static truce_status list_from(struct copy *copy, bson_error_t *error)
{
    const char *const *wanted = copy->options.collections;
    bson_t collections, one, validator;
    truce_status status = truce_collection_list(copy->from, NULL, &collections, error);
    struct fields fields = truce__fields(truce__value_document(&collections));

    while (!status && truce__fields_next(&fields)) {
        truce__value_bson(fields.value, &one);
        if (!copy_is_wanted(copy, truce__field_text(&one, "name")))
            continue;
        copy_add_part(copy, truce__field_text(&one, "name"),
                      truce__field_number(&one, "documents"));
        if (truce__value_subdocument(&one, "validator", &validator))
            copy->parts[copy->count - 1].validator = bson_copy(&validator);
        copy->parts[copy->count - 1].images = bson_has_field(&one, "images");
    }
    bson_destroy(&collections);
    for (; !status && wanted && *wanted; wanted++) {
        if (!copy_find_part(copy, *wanted))
            status = truce__fail(TRUCE_NOT_FOUND, error,
                                 "there is no collection \"%s\" to be copied", *wanted);
    }
    return status;
}

/* Collections that an unfinished copy brought, and that `from` has no more, are to be emptied. */
static truce_status list_unfinished(struct copy *copy, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("state", BCON_UTF8("copying"), "from", BCON_UTF8(copy->options.name));
    truce_cursor *cursor = NULL;
    const bson_t *record;
    truce_status status = truce_find(copy->to, COPY_RECORDS, filter, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &record, error);
        if (status || !record)
            break;
        if (copy_is_wanted(copy, truce__field_text(record, "_id")) &&
            !copy_find_part(copy, truce__field_text(record, "_id")))
            copy_add_part(copy, truce__field_text(record, "_id"), 0);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

/* ---- plan: what may be done ------------------------------------------------------------------ */

static truce_status holds_anything(struct copy *copy, const char *collection, bool *holds,
                                   bson_error_t *error)
{
    bson_t any;
    truce_status status = truce_find_one(copy->to, collection, NULL, NULL, &any, error);

    *holds = !status;
    bson_destroy(&any);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status copy_refuse_part(const struct copy_part *part, const bson_t *record,
                                     bson_error_t *error)
{
    if (!strcmp(truce__field_text(record, "state"), "copying"))
        return truce__fail(TRUCE_CONFLICT, error,
                           "the collection %s there is an unfinished copy of another store (%s)",
                           part->collection, truce__field_text(record, "from"));
    return truce__fail(TRUCE_CONFLICT, error, "the collection %s there holds documents already",
                       part->collection);
}

static void copy_resume(struct copy *copy, struct copy_part *part, const bson_t *record)
{
    struct value last = truce__value_field(truce__value_document(record), "last", 4);

    truce__value_append(part->last, "last", 4, last);
    part->before = last.type ? truce__field_number(record, "documents") : 0;
    copy->done += part->before;
    copy->report->resumed_at += part->before;
}

static truce_status plan_new(struct copy *copy, struct copy_part *part, const bson_t *record,
                             bson_error_t *error)
{
    bool from_here = !strcmp(truce__field_text(record, "from"), copy->options.name);
    bool copying = !strcmp(truce__field_text(record, "state"), "copying"), holds;
    truce_status status = holds_anything(copy, part->collection, &holds, error);

    if (status)
        return status;
    if (holds && (bson_empty(record) || !from_here))
        return copy_refuse_part(part, record, error);
    part->rights = !holds || copying ? COPY_EVERYTHING : COPY_NOTHING;
    part->fresh = !holds;
    if (holds && copying)
        copy_resume(copy, part, record);
    return TRUCE_OK;
}

static truce_status plan_part(struct copy *copy, struct copy_part *part, bson_error_t *error)
{
    bson_t record;
    truce_status status = truce__copy_record_read(copy, part->collection, &record, error);

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status) {
        switch (copy->options.mode) {
        case TRUCE_COPY_NEW:
            status = plan_new(copy, part, &record, error);
            break;
        case TRUCE_COPY_MERGE:
            part->rights = COPY_INSERTS;
            break;
        case TRUCE_COPY_REPLACE:
            part->rights = COPY_EVERYTHING;
            break;
        case TRUCE_COPY_COMPARE:
            part->rights = COPY_NOTHING;
            break;
        }
    }
    bson_destroy(&record);
    return status;
}

static truce_status plan(struct copy *copy, bson_error_t *error)
{
    truce_status status = list_from(copy, error);

    if (!status && copy->options.mode == TRUCE_COPY_NEW)
        status = list_unfinished(copy, error);
    for (size_t i = 0; i < copy->count && !status; i++)
        status = plan_part(copy, &copy->parts[i], error);
    return status;
}

/* ---- open commits (C3) ------------------------------------------------------------------------ */

static truce_status check_held(struct copy *copy, const struct copy_part *part, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}"), held;
    truce_status status = truce_find_one(copy->from, part->collection, filter, NULL, &held, error);

    bson_destroy(&held);
    bson_destroy(filter);
    if (!status)
        return truce__fail(TRUCE_INVALID, error,
                           "a commit holds documents of the collection %s: it cannot be copied "
                           "without the collection %s",
                           part->collection, COMMITS);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status check_commits(struct copy *copy, bson_error_t *error)
{
    bson_t *open =
        BCON_NEW("state", "{", "$in", "[", BCON_UTF8("pending"), BCON_UTF8("committed"), "]", "}");
    truce_status status = truce_count(copy->from, COMMITS, open, NULL, &copy->report->open, error);
    bool whole = copy_find_part(copy, COMMITS) != NULL;

    bson_destroy(open);
    if (!status && copy->report->open && !copy->options.live)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "%" PRId64 " commits are open in the store to be copied",
                             copy->report->open);
    for (size_t i = 0; i < copy->count && !status && !whole && copy->report->open; i++)
        status = check_held(copy, &copy->parts[i], error);
    return status;
}

/* ---- rounds ----------------------------------------------------------------------------------- */

static truce_status copy_round(struct copy *copy, bool first, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    truce__copy_notes_clear(copy, &copy->refusals);
    truce__copy_notes_clear(copy, &copy->indexes);
    copy->comparing = false;
    for (size_t i = 0; i < copy->count && !status; i++) {
        struct copy_part *part = &copy->parts[i];

        if (part->rights == COPY_NOTHING)
            continue;
        if (!first && truce__copy_different(part)) {
            part->before = 0;
            bson_reinit(part->last);
        }
        if (first || truce__copy_different(part))
            status = truce__copy_pass(copy, part, true, error);
        if (!status)
            status = truce__copy_indexes(copy, part, false, error);
    }
    return status;
}

static truce_status compare_round(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    truce__copy_notes_clear(copy, &copy->differences);
    copy->comparing = true;
    copy->done = copy->report->documents = copy->report->kept = 0;
    for (size_t i = 0; i < copy->count && !status; i++) {
        struct copy_part *part = &copy->parts[i];

        status = truce__copy_pass(copy, part, false, error);
        if (!status && part->rights == COPY_NOTHING)
            status = truce__copy_indexes_compare(copy, part, error);
        copy->report->documents += part->documents;
        copy->report->kept += part->kept;
    }
    copy->report->differences = copy->differences.count + copy->indexes.count;
    return status;
}

static int64_t changes(const struct copy *copy)
{
    int64_t sum = 0;

    for (size_t i = 0; i < copy->count; i++)
        sum += copy->parts[i].inserted + copy->parts[i].replaced + copy->parts[i].removed;
    return sum;
}

static bool may_write(const struct copy *copy)
{
    for (size_t i = 0; i < copy->count; i++) {
        if (copy->parts[i].rights != COPY_NOTHING)
            return true;
    }
    return false;
}

static truce_status copy_run_rounds(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t round = 0; round < copy->options.rounds && !status; round++) {
        int64_t before = changes(copy);

        copy->done = round ? 0 : copy->done;
        status = copy_round(copy, round == 0, error);
        if (!status)
            status = compare_round(copy, error);
        if (!copy->report->differences || (round > 0 && changes(copy) == before))
            break;
    }
    return status;
}

static truce_status copy_begin(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < copy->count && !status; i++) {
        if (copy->parts[i].rights != COPY_NOTHING)
            status = truce__copy_record_begin(copy, &copy->parts[i], error);
    }
    return status;
}

static truce_status copy_end(struct copy *copy, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (copy->report->differences)
        return TRUCE_OK;
    for (size_t i = 0; i < copy->count && !status; i++) {
        if (copy->parts[i].rights != COPY_NOTHING)
            status = truce__copy_indexes(copy, &copy->parts[i], true, error);
        if (!status)
            status = truce__copy_options(copy, &copy->parts[i], error);
    }
    copy->report->differences = copy->indexes.count;
    return status || copy->indexes.count ? status : truce__copy_record_finish(copy, error);
}

static truce_status copy_run(struct copy *copy, bson_error_t *error)
{
    truce_status status = plan(copy, error);

    if (status)
        return status;
    if (!may_write(copy))
        return compare_round(copy, error);
    status = check_commits(copy, error);
    if (!status)
        status = copy_begin(copy, error);
    if (!status)
        status = copy_run_rounds(copy, error);
    return status ? status : copy_end(copy, error);
}

/* ---- the call --------------------------------------------------------------------------------- */

static uint32_t or_default(uint32_t given, uint32_t otherwise, uint32_t most)
{
    return !given ? otherwise : given < most ? given : most;
}

static void set_defaults(truce_copy_options *options)
{
    options->name = options->name ? options->name : "";
    options->batch = or_default(options->batch, BATCH, TRUCE_COPY_BATCH_MAX);
    options->rounds = or_default(options->rounds, ROUNDS, UINT32_MAX);
    options->differences_max =
        or_default(options->differences_max, DIFFERENCES, TRUCE_COPY_DIFFERENCES_MAX);
}

static void take_report(struct copy *copy)
{
    copy->report->collections = (int64_t)copy->count;
    for (size_t i = 0; i < copy->count; i++) {
        copy->report->inserted += copy->parts[i].inserted;
        copy->report->replaced += copy->parts[i].replaced;
        copy->report->removed += copy->parts[i].removed;
        copy->report->indexes += copy->parts[i].indexes;
    }
}

static void copy_release(struct copy *copy)
{
    struct copy_notes *const notes[] = {&copy->differences, &copy->refusals, &copy->indexes};

    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        truce__copy_notes_clear(copy, notes[i]);
        bson_free(notes[i]->items);
    }
    for (size_t i = 0; i < copy->count; i++) {
        bson_free(copy->parts[i].collection);
        bson_destroy(copy->parts[i].last);
        bson_destroy(copy->parts[i].validator);
    }
    bson_free(copy->parts);
}

/* `from` as it is now, if it can be had so; else `from` itself, and writers cost rounds. */
static truce_status begin_moment(truce_store *from, truce_store **moment, bson_error_t *error)
{
    static const truce_snapshot_options unlimited = {.unlimited = true};
    truce_status status = truce__store_snapshot(from, &unlimited, moment, error);

    return status == TRUCE_INVALID ? TRUCE_OK : status;
}

truce_status truce_copy(truce_store *from, truce_store *to, const truce_copy_options *options,
                        truce_copy_report *report, bson_error_t *error)
{
    struct copy copy = {.from = from, .to = to, .report = report};
    truce_store *moment = NULL;
    truce_status status = ROOM_CHECK(options, "truce_copy_options", error);
    size_t notes;

    *report = (truce_copy_report){0};
    if (status)
        return status;
    if (options)
        copy.options = *options;
    set_defaults(&copy.options);
    notes = copy.options.differences_max;
    copy.differences.items = bson_malloc0(notes * sizeof(bson_t *));
    copy.refusals.items = bson_malloc0(notes * sizeof(bson_t *));
    copy.indexes.items = bson_malloc0(notes * sizeof(bson_t *));
    truce__id_new(&copy.run);
    status = begin_moment(from, &moment, error);
    if (moment)
        copy.from = moment;
    if (!status)
        status = copy_run(&copy, error);
    take_report(&copy);
    if (!status)
        truce__copy_tell(&copy);
    copy_release(&copy);
    truce_store_close(moment);
    return status;
}
