#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "bson/array.h"
#include "sim/sim_run.h"

/*
 * The patterns in the simulator. This file has items and revisions; each other pattern has its own
 * file. There is one document of each kind:
 *
 *     employees  {_id: 1, badges: [{type: "A"}, {type: "B", n: 0, m: 0}, {type: "C"}]}
 *     posts      {_id: 1, version: 1, sum: 0, tags: [], hot: 0, f0: 0 ... f7: 0}
 *
 * After every write that reaches the store, the document is checked:
 *
 *     items      B and C occur once, and B before C; A and D occur at most once; the two numbers of
 *                B are equal and never decrease
 *     revisions  the version rises by one with every change, and a version is one content
 *
 * At the end, the results of the clients are compared with the document. An acknowledged change is
 * in it once, and a refused one is not. A change whose reply was lost may be in it. No edit is in
 * it partially. The stored old versions are the versions that existed.
 */

/* The number of replaced versions that are kept, for calls with `keeps`. */
#define KEPT 3

/* ---- the documents --------------------------------------------------------------------------- */

static bson_t *patterns_json(const char *text)
{
    bson_error_t error;
    bson_t *document = bson_new_from_json((const uint8_t *)text, -1, &error);

    truce_assert(document);
    return document;
}

static void sim_patterns_insert(struct run *run, const char *collection, const char *text)
{
    bson_t *index = patterns_json("{\"key\": {\"_intent\": 1}, \"sparse\": true}");
    bson_t *document = patterns_json(text);
    bson_error_t error;

    truce_assert(!truce_index_create(run->inner, collection, index, &error));
    truce_assert(!truce_insert(run->inner, collection, document, NULL, &error));
    bson_destroy(document);
    bson_destroy(index);
}

static bool patterns_check(struct run *run, const char *collection, bson_t *document)
{
    bson_t filter = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_INT32(&filter, "_id", 1);
    status = truce_find_one(run->inner, collection, &filter, NULL, document, &error);
    bson_destroy(&filter);
    return !status;
}

/* ---- items ----------------------------------------------------------------------------------- */

static const char *const item_calls[][3] = {
    {"update", "{\"type\": \"B\"}", "{\"$inc\": {\"n\": 1, \"m\": 1}}"},
    {"update", "{\"n\": {\"$gte\": 0}, \"m\": {\"$gte\": 0}}", "{\"$inc\": {\"n\": 1, \"m\": 1}}"},
    {"remove", "{\"type\": \"A\"}", NULL},
    {"add", "{\"type\": \"A\"}", NULL},
    {"upsert", "{\"type\": \"D\", \"x\": 1}", NULL},
    {"remove", "{\"x\": 1}", NULL},
    {"replace", "{\"type\": \"C\", \"y\": 2}", NULL},
    {"to-map", NULL, NULL},
    {"to-array", NULL, NULL},
    {"update in a commit", "{\"type\": \"B\"}", "{\"$inc\": {\"n\": 1, \"m\": 1}}"},
};

struct request {
    truce_item *item;
    const bson_t *filter, *first, *second;
    truce_item_result result;
};

static truce_status patterns_update_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct request *request = arg;

    return truce_item_update(request->item, commit, request->filter, request->first,
                             request->second, &request->result, error);
}

/* Makes the call of this verb. Conversions return no result. */
static truce_status send_item(struct client *client, struct request *request, const char *verb,
                              bson_error_t *error)
{
    truce_item *item = request->item;
    truce_item_result *result = &request->result;
    truce_commit_options options = {.lease_ms = LEASE_MS, .deadline_ms = DEADLINE_MS};

    if (!strcmp(verb, "update"))
        return patterns_update_in(NULL, request, error);
    if (!strcmp(verb, "remove"))
        return truce_item_remove(item, NULL, request->filter, request->first, result, error);
    if (!strcmp(verb, "add"))
        return truce_item_add(item, NULL, request->filter, request->first, result, error);
    if (!strcmp(verb, "upsert"))
        return truce_item_upsert(item, NULL, request->filter, request->first, result, error);
    if (!strcmp(verb, "replace"))
        return truce_item_replace(item, NULL, request->filter, NULL, request->first, result, error);
    if (!strcmp(verb, "to-map"))
        return truce_item_convert(item, TRUCE_ITEM_MAP, NULL, NULL, error);
    if (!strcmp(verb, "to-array"))
        return truce_item_convert(item, TRUCE_ITEM_ARRAY, NULL, NULL, error);
    return truce_transact(&client->store, patterns_update_in, request, &options, error);
}

/* Makes one call of the table with a handle of its own. */
static truce_status call_item(struct client *client, int call, int txn, bson_error_t *error)
{
    const char *const *words = item_calls[call];
    bson_t *filter = patterns_json("{\"_id\": 1}");
    bson_t *first = words[1] ? patterns_json(words[1]) : NULL,
           *second = words[2] ? patterns_json(words[2]) : NULL;
    struct request request = {
        .item = truce_item_new(&client->store, &(truce_item_options){.collection = "employees",
                                                                     .field = "badges",
                                                                     .identity = "type",
                                                                     .form = client->script->form,
                                                                     .deadline_ms = DEADLINE_MS}),
        .filter = filter,
        .first = first,
        .second = second};
    truce_status status;

    (void)txn;
    status = send_item(client, &request, words[0], error);

    truce_item_free(request.item);
    bson_destroy(filter);
    bson_destroy(first);
    bson_destroy(second);
    return status;
}

static char letter_of(const struct fields *field)
{
    struct value type = truce__value_field(field->value, "type", 4);
    uint32_t length;

    return type.type == BSON_TYPE_UTF8 ? *truce__value_text(type, &length) : *field->key;
}

/* Checks the items after a write: each item occurs as often as the clients allow, B is before C,
 * and no count was undone or changed partially. */
static void observe_items(struct run *run, const bson_t *document)
{
    struct value items = truce__value_field(truce__value_document(document), "badges", 6);
    int times[4] = {0};
    struct value n = truce__value_missing(), m = n;
    struct fields fields;

    if (!truce__value_is_container(items)) {
        truce__sim_fail(run, "the items are missing", document);
        return;
    }
    for (fields = truce__fields(items); truce__fields_next(&fields);) {
        char letter = letter_of(&fields);

        if (letter < 'A' || letter > 'D') {
            truce__sim_fail(run, "an item was added by no client", document);
            return;
        }
        if (letter == 'C' && !times[1])
            truce__sim_fail(run, "C is before B", document);
        if (letter == 'B') {
            n = truce__value_field(fields.value, "n", 1);
            m = truce__value_field(fields.value, "m", 1);
        }
        times[letter - 'A']++;
    }
    if (times[1] != 1 || times[2] != 1)
        truce__sim_fail(run, "an item that no client removes is missing or occurs twice", document);
    else if (times[0] > 1 || times[3] > 1)
        truce__sim_fail(run, "an item occurs twice", document);
    else if (n.type != BSON_TYPE_INT32 || !truce__value_equal(n, m))
        truce__sim_fail(run, "an item is half-changed", document);
    else if (truce__value_int32(n) < run->patterns.number)
        truce__sim_fail(run, "a count was undone", document);
    else
        run->patterns.number = truce__value_int32(n);
}

static bool patterns_counts(int call)
{
    return call <= 1 || call == 9;
}

/* Checks that every acknowledged count is included once. */
static void sim_check_items(struct run *run, const bson_t *document)
{
    const struct sim_patterns *patterns = &run->patterns;
    int64_t least = 0, most = 0;

    for (int t = 0; t < run->history.txns_count; t++) {
        if (!patterns->calls[t].begun || !patterns_counts(run->history.txns[t].script->call))
            continue;
        least += patterns->calls[t].known && patterns->calls[t].in;
        most += !patterns->calls[t].known || patterns->calls[t].in;
    }
    if (patterns->number < least)
        truce__sim_fail(run, "an acknowledged change of an item is lost", document);
    if (patterns->number > most)
        truce__sim_fail(run, "a change of an item was made twice or after a refusal", document);
}

static const struct sim_pattern items = {
    .collection = "employees",
    .document =
        "{\"_id\": 1, \"badges\": [{\"type\": \"A\"}, {\"type\": \"B\", \"n\": 0, \"m\": 0}, "
        "{\"type\": \"C\"}]}",
    .calls = sizeof item_calls / sizeof *item_calls,
    .positions = 2,
    .call = call_item,
    .observe = observe_items,
    .check = sim_check_items,
};

/* ---- revisions ------------------------------------------------------------------------------- */

static void append_tag(bson_t *to, const bson_t *document, int txn)
{
    struct value tags = truce__value_field(truce__value_document(document), "tags", 4);
    struct array list;

    truce__array_begin(&list, to, "tags");
    for (struct fields fields = truce__fields(tags); truce__fields_next(&fields);)
        truce__array_add(&list, fields.value);
    truce__array_add_int32(&list, txn + 1);
    truce__array_end(&list, to);
}

/* Edits a document as a client does: it increments the sum, adds its tag, and sets its own field
 * and the contended one. */
static void edit_document(const bson_t *read, int client, int txn, bool hot, bson_t *mine)
{
    char own[8];

    snprintf(own, sizeof own, "f%d", client);
    bson_init(mine);
    for (struct fields fields = truce__fields(truce__value_document(read));
         truce__fields_next(&fields);) {
        if (!strcmp(fields.key, "sum"))
            bson_append_int32(mine, "sum", 3, truce__value_int32(fields.value) + 1);
        else if (!strcmp(fields.key, "tags"))
            append_tag(mine, read, txn);
        else if (!strcmp(fields.key, own) || (hot && !strcmp(fields.key, "hot")))
            bson_append_int32(mine, fields.key, -1, txn + 1);
        else
            truce__value_append(mine, fields.key, fields.key_length, fields.value);
    }
}

enum { MERGE_BASE, MERGE_KEPT, SAVE, MERGE_HOT, PATCH, EDITS };

static truce_status patterns_patch(truce_revision *revision, const bson_value_t *id, int client,
                                   int txn, truce_revision_result *result, bson_error_t *error)
{
    char text[200];
    truce_status status;
    bson_t *operators;

    snprintf(text, sizeof text,
             "{\"$inc\": {\"sum\": 1}, \"$push\": {\"tags\": %d}, \"$set\": {\"f%d\": %d}}",
             txn + 1, client, txn + 1);
    operators = patterns_json(text);
    status = truce_revision_patch(revision, NULL, id, 0, true, TRUCE_PATCH_OPERATORS, operators,
                                  result, error);
    bson_destroy(operators);
    return status;
}

/* Reads the document, edits it, and saves or merges it. A patch is sent without a read. `result` is
 * initialized in any case. */
static truce_status send_edit(truce_revision *revision, const bson_value_t *id,
                              struct client *client, int call, int txn,
                              truce_revision_result *result, bson_error_t *error)
{
    bson_t read, mine;
    int64_t version;
    truce_status status;

    if (call == PATCH)
        return patterns_patch(revision, id, client->number, txn, result, error);
    status = truce_revision_get(revision, NULL, id, &read, &version, error);
    if (status) {
        *result =
            (truce_revision_result){.document = BSON_INITIALIZER, .conflict = BSON_INITIALIZER};
    } else {
        edit_document(&read, client->number, txn, call == MERGE_HOT, &mine);
        /* Plain writes do not raise the version number. So if there are plain writers, the base
         * must be given. */
        status = (call == SAVE ? truce_revision_save : truce_revision_merge)(
            revision, NULL, &mine, version,
            call == MERGE_KEPT && !client->run->scenario->plains ? NULL : &read, result, error);
        bson_destroy(&mine);
    }
    bson_destroy(&read);
    return status;
}

/* Returns CONFLICT if a conflict was reported and nothing was saved. */
static truce_status call_edit(struct client *client, int call, int txn, bson_error_t *error)
{
    bson_value_t id = {.value_type = BSON_TYPE_INT32, .value = {.v_int32 = 1}};
    bson_t *rules = patterns_json("{\"sum\": \"sum\", \"tags\": \"union\"}");
    truce_revision *revision = truce_revision_new(
        &client->store, &(truce_revision_options){.collection = "posts",
                                                  .rules = rules,
                                                  .keep = client->script->keeps ? KEPT : 0,
                                                  .deadline_ms = DEADLINE_MS});
    truce_revision_result result;
    truce_status status = send_edit(revision, &id, client, call, txn, &result, error);

    if (!status && result.outcome == TRUCE_REVISION_CONFLICT)
        status = truce__fail(TRUCE_CONFLICT, error, "a conflict was reported");
    else if (!status && result.outcome == TRUCE_REVISION_UNCHANGED)
        truce__sim_fail(client->run, "an edit was treated as no change", &result.document);
    truce_revision_result_release(&result);
    truce_revision_free(revision);
    bson_destroy(rules);
    return status;
}

static uint64_t content_of(const bson_t *document)
{
    bson_t plain = BSON_INITIALIZER;
    uint64_t digest;

    bson_copy_to_excluding_noinit(document, &plain, "_rev", "_intent", "p", NULL);
    digest = truce__sim_digest(&plain);
    bson_destroy(&plain);
    return digest;
}

static int64_t patterns_number_in(struct value document, const char *name)
{
    struct value value = truce__value_field(document, name, strlen(name));

    if (value.type == BSON_TYPE_INT32)
        return truce__value_int32(value);
    return value.type == BSON_TYPE_INT64 ? truce__value_int64(value) : -1;
}

static void observe_post(struct run *run, const bson_t *document)
{
    struct sim_patterns *patterns = &run->patterns;
    int64_t version = patterns_number_in(truce__value_document(document), "version");
    uint64_t content = content_of(document);

    if (version < 1 || version >= SIM_VERSIONS || version < patterns->number ||
        (patterns->number && version > patterns->number + 1))
        truce__sim_fail(run, "the version did not rise by one", document);
    else if (version == patterns->number && content != patterns->contents[version])
        truce__sim_fail(run, "the document changed, but its version did not", document);
    else
        patterns->contents[version] = content;
    patterns->number = version;
}

static int times_tagged(struct value tags, int64_t tag)
{
    int times = 0;

    for (struct fields fields = truce__fields(tags); truce__fields_next(&fields);)
        times += fields.value.type == BSON_TYPE_INT32 && truce__value_int32(fields.value) == tag;
    return times;
}

/* Checks that an acknowledged edit is in the document completely, and a refused one is not. */
static void sim_check_edit(struct run *run, const bson_t *document, int txn)
{
    struct value post = truce__value_document(document);
    int times = times_tagged(truce__value_field(post, "tags", 4), txn + 1);
    char own[8];

    snprintf(own, sizeof own, "f%d", run->history.txns[txn].client);
    if (times > 1)
        truce__sim_fail(run, "an edit was applied twice", document);
    else if (run->patterns.calls[txn].known && run->patterns.calls[txn].in != times)
        truce__sim_fail(run, times ? "a refused edit was applied" : "an edit is lost", document);
    else if (times && patterns_number_in(post, own) < txn + 1)
        truce__sim_fail(run, "an edit is in by half", document);
    else if (!times && patterns_number_in(post, own) == txn + 1)
        truce__sim_fail(run, "an edit is in by half", document);
}

/* Checks that exactly the last KEPT replaced versions are stored, each with the content that was
 * observed. */
static void sim_check_versions(struct run *run, const bson_t *document)
{
    for (int64_t version = 1; version < run->patterns.number; version++) {
        bson_t *filter =
            BCON_NEW("_id", "{", "id", BCON_INT32(1), "version", BCON_INT64(version), "}");
        bool due = version >= run->patterns.number - KEPT, there;
        bson_t found, old;
        bson_error_t error;

        there = !truce_find_one(run->inner, "posts.revisions", filter, NULL, &found, &error);
        if (there != due)
            truce__sim_fail(
                run, due ? "a replaced version is missing" : "a version is kept for too long",
                document);
        if (there) {
            truce__value_bson(truce__value_field(truce__value_document(&found), "document", 8),
                              &old);
            if (content_of(&old) != run->patterns.contents[version])
                truce__sim_fail(run, "a stored old version never existed", &old);
        }
        bson_destroy(&found);
        bson_destroy(filter);
    }
}

static bool patterns_all_keep(const struct sim_scenario *scenario)
{
    for (int c = 0; c < scenario->clients_count; c++) {
        if (!scenario->clients[c].keeps)
            return false;
    }
    return true;
}

static void patterns_check_post(struct run *run, const bson_t *document)
{
    struct value post = truce__value_document(document);
    struct value tags = truce__value_field(post, "tags", 4);
    bson_t list;

    for (int t = 0; t < run->history.txns_count; t++) {
        if (run->patterns.calls[t].begun)
            sim_check_edit(run, document, t);
    }
    truce__value_bson(tags, &list);
    if (patterns_number_in(post, "sum") != bson_count_keys(&list))
        truce__sim_fail(run, "an edit was counted twice, or not at all", document);
    if (patterns_all_keep(run->scenario))
        sim_check_versions(run, document);
}

static const struct sim_pattern revisions = {
    .collection = "posts",
    .document = "{\"_id\": 1, \"version\": {\"$numberLong\": \"1\"}, \"sum\": 0, \"tags\": [], "
                "\"hot\": 0, \"f0\": 0, \"f1\": 0, \"f2\": 0, \"f3\": 0, \"f4\": 0, \"f5\": 0, "
                "\"f6\": 0, \"f7\": 0}",
    .calls = EDITS,
    .positions = 1,
    .call = call_edit,
    .observe = observe_post,
    .check = patterns_check_post,
};

/* ---- all ------------------------------------------------------------------------------------- */

const struct sim_pattern *truce__sim_pattern(enum sim_subject subject)
{
    static const struct sim_pattern *const patterns[SIM_SUBJECTS] = {
        [SIM_ITEMS] = &items,
        [SIM_REVISIONS] = &revisions,
        [SIM_SETS] = &truce__sim_set,
        [SIM_QUEUE] = &truce__sim_queue,
        [SIM_LEDGER] = &truce__sim_ledger,
        [SIM_TRANSFER] = &truce__sim_transfer,
        [SIM_TREE] = &truce__sim_tree,
        [SIM_SYNC] = &truce__sim_sync};

    return patterns[subject];
}

static const struct sim_pattern *patterns_pattern_of(const struct run *run)
{
    return truce__sim_pattern(run->scenario->subject);
}

void truce__patterns_begin(struct run *run)
{
    sim_patterns_insert(run, patterns_pattern_of(run)->collection,
                        patterns_pattern_of(run)->document);
    if (patterns_pattern_of(run)->other)
        sim_patterns_insert(run, patterns_pattern_of(run)->other, "{\"_id\": 1, \"n\": 0}");
    if (patterns_pattern_of(run)->begin)
        patterns_pattern_of(run)->begin(run);
    truce__patterns_observe(run, patterns_pattern_of(run)->collection);
}

truce_status truce__patterns_call(struct client *client, const struct sim_script *script, int txn,
                                  bson_error_t *error)
{
    struct sim_patterns *patterns = &client->run->patterns;
    truce_status status;

    patterns->calls[txn].begun = true;
    status = patterns_pattern_of(client->run)->call(client, script->call, txn, error);
    patterns->calls[txn].known = !client->dead && status != TRUCE_UNKNOWN;
    patterns->calls[txn].in = !status;
    return status;
}

void truce__patterns_observe(struct run *run, const char *collection)
{
    const struct sim_pattern *pattern = patterns_pattern_of(run);
    bson_t document;

    if (strcmp(collection, pattern->collection) != 0 || run->patterns.wrong)
        return;
    if (!patterns_check(run, pattern->collection, &document))
        truce__sim_fail(run, "the document is missing", &document);
    else
        pattern->observe(run, &document);
    bson_destroy(&document);
}

const char *truce__patterns_check(struct run *run, char *detail, size_t size)
{
    bson_t document;

    if (patterns_check(run, patterns_pattern_of(run)->collection, &document))
        patterns_pattern_of(run)->check(run, &document);
    bson_destroy(&document);
    snprintf(detail, size, "%s", run->patterns.detail);
    return run->patterns.wrong;
}
