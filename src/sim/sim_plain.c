#include "sim/sim_run.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/*
 * Plain writers: programs that write the same documents without truce, and know nothing of `_rev`,
 * `_intent`, or a version. Each of their writes adds 1 to a field `p` of a document or of the item
 * B.
 *
 *     commits    a transaction that reads and writes a document writes `p` back, increased by 100
 *     items      the item B, and the document, which the calls do not use
 *     revisions  the document; the version does not change, and edits write `p` back
 *     sets       the document next to the lists
 *     others     the document of the effects, the order, the first account, or the orders
 *
 * `p % 100` is the number of plain writes that are stored. It is checked after each write that
 * reaches the store. If it decreased, a call has overwritten a write that it had not read. Only a
 * decided journal commit may do so (journal_release.c). It must first save the overwritten version,
 * or record the loss in its commit document. Crashes, lost replies, and slow clients do not change
 * that.
 */

static const char *const letters[] = {"a", "b", "c"};

static const char *plain_collection_of(const struct run *run)
{
    const struct sim_pattern *pattern = truce__sim_pattern(run->scenario->subject);

    return pattern ? pattern->collection : "docs";
}

static int positions_of(const struct run *run)
{
    const struct sim_pattern *pattern = truce__sim_pattern(run->scenario->subject);

    return pattern ? pattern->positions : SIM_DOCUMENTS;
}

int truce__sim_plains(const struct run *run)
{
    return run->result->plains < run->scenario->plains ? positions_of(run) : 0;
}

static bool plain_check(struct run *run, int position, bson_t *document)
{
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error;
    bson_iter_t iter;
    bool found;

    if (run->scenario->subject == SIM_COMMITS)
        BSON_APPEND_UTF8(&filter, "_id", letters[position]);
    else
        BSON_APPEND_INT32(&filter, "_id", 1);
    found = !truce_find_one(run->inner, plain_collection_of(run), &filter, NULL, document, &error);
    bson_destroy(&filter);
    /* A stub does not count as a document. */
    return found && !(bson_iter_init(&iter, document) &&
                      bson_iter_find_descendant(&iter, "_intent.new", &iter));
}

/* Returns the path of `p` in a document. */
static void plain_path_of(const struct run *run, int position, const bson_t *document,
                          char path[32])
{
    struct value items = truce__value_field(truce__value_document(document), "badges", 6);

    snprintf(path, 32, "p");
    if (run->scenario->subject != SIM_ITEMS || position == 0)
        return;
    for (struct fields fields = truce__fields(items); truce__fields_next(&fields);) {
        struct value type = truce__value_field(fields.value, "type", 4);
        uint32_t length;

        if (type.type == BSON_TYPE_UTF8 && *truce__value_text(type, &length) == 'B')
            snprintf(path, 32, "badges.%.8s.p", fields.key);
    }
}

static int plain_count_in(const bson_t *document, const char *path)
{
    bson_iter_t iter, at;

    if (!bson_iter_init(&iter, document) || !bson_iter_find_descendant(&iter, path, &at))
        return 0;
    return (int)bson_iter_as_int64(&at) % 100;
}

/* ---- writing --------------------------------------------------------------------------------- */

void truce__sim_plain(struct run *run, int position)
{
    bson_t document, *update;
    char path[32];
    bson_error_t error;
    bson_iter_t iter;

    run->changes++;
    if (plain_check(run, position, &document)) {
        bson_t filter = BSON_INITIALIZER;

        plain_path_of(run, position, &document, path);
        truce_assert(bson_iter_init_find(&iter, &document, "_id"));
        BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&iter));
        update = BCON_NEW("$inc", "{", path, BCON_INT32(1), "}");
        truce_assert(!truce_update(run->inner, plain_collection_of(run), &filter, update, NULL,
                                   NULL, &error));
        run->plain[position].count++;
        bson_destroy(update);
        bson_destroy(&filter);
    }
    bson_destroy(&document);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int64_t count_with(struct run *run, const char *collection, bson_t *filter)
{
    bson_error_t error;
    int64_t count = 0;

    truce_assert(!truce_count(run->inner, collection, filter, NULL, &count, &error));
    bson_destroy(filter);
    return count;
}

/* Returns whether the last write of the document was the release of a journal commit. */
static bool was_released(struct run *run, const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "_rev") && BSON_ITER_HOLDS_OID(&iter) &&
           count_with(run, "truce_commits", BCON_NEW("_id", BCON_OID(bson_iter_oid(&iter)))) == 1;
}

static bool plain_is_reported(struct run *run, const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "_rev") &&
           (count_with(run, "truce_displaced", BCON_NEW("commit", BCON_OID(bson_iter_oid(&iter)))) >
                0 ||
            count_with(run, "truce_commits",
                       BCON_NEW("_id", BCON_OID(bson_iter_oid(&iter)), "overwritten.0", "{",
                                "$exists", BCON_BOOL(true), "}")) == 1);
}

static void sim_plain_wrong(struct run *run, const char *what, const bson_t *document)
{
    char text[300];

    if (run->plain_wrong)
        return;
    run->plain_wrong = what;
    snprintf(run->result->detail, sizeof run->result->detail, "%s",
             truce__value_show(truce__value_document(document), text, sizeof text));
}

/* Compares the number of plain writes in a document with the number that were made. Fewer of them
 * are allowed only if a release overwrote some and reported it. */
static void observe_position(struct run *run, int position)
{
    struct sim_plain *plain = &run->plain[position];
    bson_t document;
    char path[32];
    int count;

    /* The document was removed, so there is nothing to compare. */
    if (!plain_check(run, position, &document)) {
        *plain = (struct sim_plain){0};
        bson_destroy(&document);
        return;
    }
    plain_path_of(run, position, &document, path);
    count = plain_count_in(&document, path);
    if (count > plain->count) {
        sim_plain_wrong(run, "a plain write appeared that was never made", &document);
    } else if (count < plain->count) {
        if (!was_released(run, &document))
            sim_plain_wrong(run, "a plain write is overwritten", &document);
        else if (!plain_is_reported(run, &document))
            sim_plain_wrong(run, "a plain write is overwritten and the loss is not reported",
                            &document);
        plain->count = count;
    }
    bson_destroy(&document);
}

void truce__sim_plain_observe(struct run *run)
{
    if (!run->scenario->plains)
        return;
    for (int position = 0; position < positions_of(run); position++)
        observe_position(run, position);
}
