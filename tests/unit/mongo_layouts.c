/* The table of docs/mongodb.md, row by row: which pattern works on which shard key, by transactions
 * and by the journal, and which shard key is refused by name. The cluster has one shard
 * (support/mongos.h), and returns the errors of a mongos. */
#include "tests/support/bank.h"
#include "tests/support/mongos.h"
#include "tests/support/tutorial.h"

/* A store on the cluster, and the mechanism of its commits. */
struct user {
    truce_store *store;
    truce_mechanism mechanism;
};

typedef truce_status use(struct user *user, bson_error_t *error);

/* ---- commits, items, revisions -------------------------------------------------------------- */

static bson_value_t number(int n)
{
    return (bson_value_t){.value_type = BSON_TYPE_INT32, .value.v_int32 = n};
}

static truce_status make_things(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 1; i <= 2 && !status; i++) {
        bson_t *thing = BCON_NEW("_id", BCON_INT32(i), "place", "{", "x", BCON_INT32(i * 7), "}",
                                 "email", BCON_INT32(i), "n", BCON_INT32(0));

        status = truce_commit_insert(commit, arg, thing, error);
        bson_destroy(thing);
    }
    return status;
}

static truce_status change_things(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    truce_status status = TRUCE_OK;

    for (int i = 1; i <= 2 && !status; i++) {
        bson_value_t id = number(i);
        bson_t found = BSON_INITIALIZER;

        if (i == 1)
            status = truce_commit_read(commit, arg, &id, &found, error);
        if (!status)
            status = truce_commit_update(commit, arg, &id, NULL, update, error);
        bson_destroy(&found);
    }
    bson_destroy(update);
    return status;
}

static truce_status commit(struct user *user, truce_commit_function *function, const char *things,
                           bson_error_t *error)
{
    truce_commit_options options = {.mechanism = user->mechanism};

    return truce_transact(user->store, function, (void *)things, &options, error);
}

static truce_status commits_make(struct user *user, bson_error_t *error)
{
    truce_status status = commit(user, make_things, "things", error);

    return status ? status : commit(user, change_things, "things", error);
}

static void put_plain(struct user *user)
{
    insert_json(user->store, "things",
                "{'_id': 1, 'place': {'x': 7}, 'n': 0, 'badges': [{'type': 'gold', 'n': 1}]}");
    insert_json(user->store, "things", "{'_id': 2, 'place': {'x': 14}, 'n': 0}");
}

static truce_status commits_change(struct user *user, bson_error_t *error)
{
    put_plain(user);
    return commit(user, change_things, "things", error);
}

static truce_status items_change(struct user *user, bson_error_t *error)
{
    truce_item *item = tutorial_item(user->store, &(truce_item_options){.collection = "things"});
    bson_t *filter = test_bson("{'n': 0, 'badges.type': 'gold'}"),
           *query = test_bson("{'type': 'gold'}"), *update = test_bson("{'$inc': {'n': 1}}"),
           *badge = test_bson("{'type': 'blue'}"), *by_id = test_bson("{'_id': 1}");
    truce_item_result result;
    truce_status status;

    put_plain(user);
    status = truce_item_update(item, NULL, filter, query, update, &result, error);
    if (!status)
        status = truce_item_add(item, NULL, filter, badge, &result, error);
    if (!status)
        status = truce_item_upsert(item, NULL, by_id, badge, &result, error);
    if (!status)
        status = truce_item_remove(item, NULL, by_id, badge, &result, error);
    bson_destroy(filter);
    bson_destroy(query);
    bson_destroy(update);
    bson_destroy(badge);
    bson_destroy(by_id);
    truce_item_free(item);
    return status;
}

static truce_status revisions_change(struct user *user, bson_error_t *error)
{
    truce_revision *revision =
        tutorial_revision(user->store, &(truce_revision_options){.keep = 2, .inbox = true});
    truce_status status = TRUCE_OK;
    int64_t version = TRUCE_REVISION_NEW;

    for (int i = 0; i < 4 && !status; i++) { /* the last one is a conflict, for the inbox */
        bson_t *post = BCON_NEW("_id", BCON_INT32(1), "n", BCON_INT32(i));
        truce_revision_result result;

        status = truce_revision_merge(revision, NULL, post, i == 3 ? version - 1 : version, NULL,
                                      &result, error);
        if (!status)
            CHECK_INT(result.outcome, ==, i == 3 ? TRUCE_REVISION_CONFLICT : TRUCE_REVISION_SAVED);
        version = result.version;
        truce_revision_result_release(&result);
        bson_destroy(post);
    }
    truce_revision_free(revision);
    return status;
}

/* ---- ordered sets --------------------------------------------------------------------------- */

static truce_status add_in_commit(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *key = BCON_NEW("school", BCON_INT32(1), "student_id", BCON_INT32(2));
    bson_t *element = BCON_NEW("name", BCON_UTF8("CS 105"));
    truce_status status = truce_set_add(arg, commit, key, element, 20, NULL, error);

    bson_destroy(key);
    bson_destroy(element);
    return status;
}

/* Operations on two documents, single and in bulk, new and old; a commit; the collection of
 * tombstones. */
static truce_status use_set(struct user *user, truce_set *set, truce_commit_function *function,
                            const char *key_json, bson_error_t *error)
{
    truce_commit_options options = {.mechanism = user->mechanism};
    bson_t *keys[2] = {test_bson(key_json), test_bson(key_json)};
    bson_t *element = BCON_NEW("name", BCON_UTF8("CS 101"), "room", BCON_INT32(4));
    truce_set_operation many[4];
    truce_set_result results[4];
    truce_set_collected collected = {0};
    truce_status status;

    BSON_APPEND_INT32(keys[0], "student_id", 1);
    BSON_APPEND_INT32(keys[1], "student_id", 2);
    for (int i = 0; i < 4; i++)
        many[i] = (truce_set_operation){i == 2 ? TRUCE_SET_REMOVE : TRUCE_SET_ADD, keys[i % 2],
                                        element, i + 3, NULL};
    status = truce_set_consume(set, "c",
                               &(truce_set_operation){TRUCE_SET_REMOVE, keys[0], element, 1, NULL},
                               1, results, error);
    if (!status)
        status = truce_set_consume(set, "c",
                                   &(truce_set_operation){TRUCE_SET_ADD, keys[0], element, 2, NULL},
                                   1, results, error);
    if (!status)
        status = truce_set_consume(set, "c", many, 4, results, error);
    if (!status && function)
        status = truce_transact(user->store, function, set, &options, error);
    if (!status)
        status = truce_set_collect(set, &collected, error);
    if (!status)
        CHECK_INT(collected.tombstones, ==, 1);
    bson_destroy(keys[0]);
    bson_destroy(keys[1]);
    bson_destroy(element);
    truce_set_free(set);
    return status;
}

static truce_status by_two_fields(struct user *user, truce_set_layout layout, bson_error_t *error)
{
    return use_set(user,
                   tutorial_set(user->store,
                                &(truce_set_options){.key = "school,student_id", .layout = layout}),
                   add_in_commit, "{'school': 1}", error);
}

static truce_status set_of_documents(struct user *user, bson_error_t *error)
{
    return by_two_fields(user, TRUCE_SET_IN_DOCUMENT, error);
}

static truce_status set_of_elements(struct user *user, bson_error_t *error)
{
    return by_two_fields(user, TRUCE_SET_BY_ELEMENT, error);
}

static truce_status set_of_one_field(struct user *user, bson_error_t *error)
{
    return use_set(user, tutorial_set(user->store, NULL), NULL, "{}", error);
}

/* ---- other unique indexes ------------------------------------------------------------------- */

static truce_status unique_values(struct user *user, bson_error_t *error)
{
    bson_t *index = test_bson("{'key': {'email': 1}, 'unique': true}");
    truce_status status = truce_index_create(user->store, "things", index, error);

    bson_destroy(index);
    if (!status)
        insert_json(user->store, "things", "{'_id': 1, 'email': 1, 'n': 0}");
    if (!status)
        insert_json(user->store, "things", "{'_id': 2, 'email': 2, 'n': 0}");
    return status ? status : commit(user, change_things, "things", error);
}

/* ---- truce's own ---------------------------------------------------------------------------- */

static truce_status count_up(struct user *user, bson_error_t *error)
{
    int64_t next;

    return truce_sequence_next(user->store, "numbers", &next, error);
}

static truce_status leave_request(struct user *user, bson_error_t *error)
{
    bson_t *input = test_bson("{'a': 1}");
    truce_status status = truce_request_add(user->store, "k", "greet", input, error);

    bson_destroy(input);
    return status;
}

static truce_status use_queue(struct user *user, bson_error_t *error)
{
    truce_queue *queue = truce_queue_new(
        user->store, &(truce_queue_options){.queue = "mail", .mechanism = user->mechanism});
    bson_t *payload = test_bson("{'to': 'a'}");
    truce_job_options lane = {.lane = "a"}, unique = {.unique = "k"};
    truce_job *job = NULL;
    truce_status status = truce_queue_add(queue, NULL, payload, &unique, NULL, error);

    if (!status)
        status = truce_queue_add(queue, NULL, payload, &lane, NULL, error);
    if (!status)
        status = truce_queue_pause(queue, error);
    if (!status)
        status = truce_queue_resume(queue, error);
    if (!status)
        status = truce_queue_claim(queue, &job, error);
    if (job)
        status = truce_job_done(job, NULL, NULL, error);
    truce_job_free(job);
    bson_destroy(payload);
    truce_queue_free(queue);
    return status;
}

static truce_status use_ledger(struct user *user, bson_error_t *error)
{
    truce_ledger *ledger =
        truce_ledger_new(user->store, &(truce_ledger_options){.collection = "book"});
    truce_status status = truce_ledger_currency(ledger, "EUR", 2, error);

    truce_ledger_free(ledger);
    return status;
}

static truce_status use_transfers(struct user *user, bson_error_t *error)
{
    truce_transfers *transfers =
        truce_transfers_new(user->store, &(truce_transfer_options){.collection = "transactions",
                                                                   .accounts = "accounts",
                                                                   .mechanism = user->mechanism});
    bson_value_t id = text_id("t"), from = text_id("a"), to = text_id("b"), value = number(5);
    truce_transfer transfer = {.id = &id, .source = &from, .destination = &to, .value = &value};
    truce_transfer_result result;
    truce_status status;

    insert_json(user->store, "accounts", "{'_id': 'a', 'balance': 9}");
    insert_json(user->store, "accounts", "{'_id': 'b', 'balance': 9}");
    status = truce_transfer_start(transfers, NULL, &transfer, &result, error);
    truce_transfers_free(transfers);
    return status;
}

static truce_status use_copies(struct user *user, bson_error_t *error)
{
    truce_sync *sync =
        truce_sync_new(user->store, &(truce_sync_options){.mechanism = user->mechanism});
    bson_t *copies = test_bson("{'author': 'name'}"),
           *rename = test_bson("{'$set': {'name': 'B'}}");
    truce_sync_rule rule = {.name = "author",
                            .source = "users",
                            .dependent = "comments",
                            .reference = "user",
                            .copies = copies,
                            .settle_ms = 1};
    bson_value_t id = text_id("u");
    truce_status status;

    insert_json(user->store, "users", "{'_id': 'u', 'name': 'A'}");
    insert_json(user->store, "comments", "{'_id': 'c', 'user': 'u', 'author': 'A'}");
    status = truce_sync_declare(sync, &rule, error);
    if (!status)
        status = truce_sync_update(sync, NULL, "users", &id, rename, NULL, error);
    if (!status)
        CHECK_INT(count_json(user->store, "comments", "{'author': 'B'}"), ==, 1);
    bson_destroy(copies);
    bson_destroy(rename);
    truce_sync_free(sync);
    return status;
}

static truce_status publish(truce_tree *tree, const char *text, bson_error_t *error)
{
    bson_t *item = BCON_NEW("itemId", "a", "text", BCON_UTF8(text));
    truce_tree_edit *edit = NULL;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    if (!status)
        status = truce_tree_put(edit, item, error);
    if (!status)
        status = truce_tree_publish(edit, NULL, NULL, error);
    truce_tree_edit_free(edit);
    bson_destroy(item);
    return status;
}

static truce_status use_tree(struct user *user, bson_error_t *error)
{
    truce_tree *tree =
        truce_tree_new(user->store, &(truce_tree_options){.collection = "pages", .name = "site"});
    truce_tree *draft = truce_tree_new(user->store, &(truce_tree_options){.name = "draft"});
    truce_status status = publish(tree, "one", error);

    if (!status)
        status = truce_tree_tag(tree, "first", 1, error);
    if (!status)
        status = truce_tree_branch(tree, NULL, "draft", error);
    if (!status)
        status = publish(draft, "two", error);
    if (!status)
        status = truce_tree_merge(tree, "draft", NULL, NULL, NULL, error);
    if (!status)
        status = truce_tree_drop(draft, error);
    if (!status)
        status = truce_tree_collect(tree, NULL, error);
    if (!status)
        CHECK_INT(count_json(user->store, "pages", "{'tree': 'site', 'pub': true}"), ==, 2);
    truce_tree_free(draft);
    truce_tree_free(tree);
    return status;
}

static truce_status use_all(struct user *user, bson_error_t *error)
{
    static use *const all[] = {count_up,   leave_request,    use_queue,
                               use_ledger, use_copies,       use_transfers,
                               use_tree,   revisions_change, set_of_one_field};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
        status = all[i](user, error);
    return status;
}

static truce_status commit_with_key(struct user *user, bson_error_t *error)
{
    truce_commit_options options = {
        .mechanism = user->mechanism, .key = "k", .key_time_ms = 1700000000000};

    return truce_transact(user->store, make_things, (void *)"things", &options, error);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define BY_ID "{'_id': 'hashed'}"
#define BY_X  "{'place.x': 1}"

struct row {
    const char *what;
    struct mongos_layout layouts[24];
    use *use;
    const char *refused; /* the collection that the refusal names; NULL: it works */
    bool by_server; /* the refusal is its own, of an index or an upsert; else truce comes first */
};

static const struct row rows[] = {
    /* documents that commits make, or revisions change */
    {"made by commits, by _id", {{"things", "{'_id': 1}"}}, commits_make, NULL},
    {"made by commits, by _id, hashed", {{"things", BY_ID}}, commits_make, NULL},
    {"made by commits, by another", {{"things", BY_X}}, commits_make, "things"},
    {"revisions, by _id", {{"posts", "{'_id': 1}"}, {"posts.revisions", BY_ID}}, revisions_change},
    {"revisions, by another", {{"posts", "{'n': 1}"}}, revisions_change, "posts"},
    {"kept versions, by another",
     {{"posts.revisions", "{'n': 1}"}},
     revisions_change,
     "posts.revisions"},
    /* documents that commits and items only change */
    {"changed by commits", {{"things", BY_X}}, commits_change, NULL},
    {"changed by commits, two fields, hashed",
     {{"things", "{'n2': 1, 'place': 'hashed'}"}},
     commits_change,
     NULL},
    {"items", {{"things", BY_X}}, items_change, NULL},
    {"items, hashed", {{"things", "{'place.x': 'hashed'}"}}, items_change, NULL},
    /* ordered sets, one document for each key */
    {"a set by the first field", {{"students", "{'school': 1}"}}, set_of_documents, NULL},
    {"a set by both fields", {{"students", "{'school': 1, 'student_id': 1}"}}, set_of_documents},
    {"a set by the one field, hashed",
     {{"students", "{'student_id': 'hashed'}"}},
     set_of_one_field,
     NULL},
    {"a set by another", {{"students", "{'town': 1}"}}, set_of_documents, "students", true},
    {"a set by _id", {{"students", BY_ID}}, set_of_documents, "students", true},
    /* ordered sets, one document for each element */
    {"elements by the key",
     {{"students.classes", "{'school': 1, 'student_id': 1}"}, {"students.classes.guards", BY_ID}},
     set_of_elements,
     NULL},
    {"elements by the key and the name",
     {{"students.classes", "{'school': 1, 'student_id': 1, 'name': 1}"}},
     set_of_elements,
     NULL},
    {"elements by another",
     {{"students.classes", "{'room': 1}"}},
     set_of_elements,
     "students.classes",
     true},
    {"guards by another",
     {{"students.classes.guards", "{'school': 1}"}},
     set_of_elements,
     "students.classes.guards"},
    /* other unique indexes */
    {"unique values, by them", {{"things", "{'email': 1}"}}, unique_values, NULL},
    {"unique values, not sharded", {{"others", BY_ID}}, unique_values, NULL},
    {"unique values, by another", {{"things", BY_ID}}, unique_values, "things", true},
    /* truce's own, by _id */
    {"truce's own, by _id",
     {{"truce_sequences", BY_ID},
      {"truce_sources", BY_ID},
      {"truce_progress", BY_ID},
      {"truce_quarantine", BY_ID},
      {"truce_displaced", BY_ID},
      {"truce_requests", BY_ID},
      {"truce_conflicts", BY_ID},
      {"truce_queue_keys", BY_ID},
      {"truce_queues", BY_ID},
      {"truce_queue_crons", BY_ID},
      {"truce_queue_limiters", BY_ID},
      {"truce_queue_lanes", BY_ID},
      {"truce_ledgers", BY_ID},
      {"truce_transfers", BY_ID},
      {"truce_sync", BY_ID},
      {"truce_trees", BY_ID},
      {"truce_tree_edits", BY_ID},
      {"truce_tree_holds", BY_ID},
      {"posts.revisions", BY_ID}},
     use_all,
     NULL},
    {"sequences by another", {{"truce_sequences", BY_X}}, count_up, "truce_sequences", true},
    {"requests by another", {{"truce_requests", BY_X}}, leave_request, "truce_requests"},
    {"keys of jobs by another", {{"truce_queue_keys", BY_X}}, use_queue, "truce_queue_keys"},
    {"lanes by another", {{"truce_queue_lanes", BY_X}}, use_queue, "truce_queue_lanes"},
    {"queues by another", {{"truce_queues", BY_X}}, use_queue, "truce_queues"},
    {"ledgers by another", {{"truce_ledgers", BY_X}}, use_ledger, "truce_ledgers"},
    {"rules of copies by another", {{"truce_sync", BY_X}}, use_copies, "truce_sync"},
    {"books of transfers by another",
     {{"truce_transfers", BY_X}},
     use_transfers,
     "truce_transfers"},
    {"trees by another", {{"truce_trees", BY_X}}, use_tree, "truce_trees"},
    {"edits of trees by another", {{"truce_tree_edits", BY_X}}, use_tree, "truce_tree_edits"},
    {"holds of trees by another", {{"truce_tree_holds", BY_X}}, use_tree, "truce_tree_holds"},
    {"items of a tree by the item", {{"pages", "{'tree': 1, 'itemId': 1}"}}, use_tree, NULL},
    {"items of a tree by _id", {{"pages", BY_ID}}, use_tree, "pages", true},
    {"conflicts by another", {{"truce_conflicts", BY_X}}, revisions_change, "truce_conflicts"},
    {"sources by another", {{"truce_sources", BY_X}}, set_of_one_field, "truce_sources"},
    {"progress by another", {{"truce_progress", BY_X}}, set_of_one_field, "truce_progress"},
    /* never sharded */
    {"commits by _id", {{"truce_commits", BY_ID}}, commit_with_key, "truce_commits", true},
    {"sets by _id", {{"truce_sets", BY_ID}}, set_of_one_field, "truce_sets", true},
    {"jobs by _id", {{"truce_queue", BY_ID}}, use_queue, "truce_queue"},
    {"a ledger by _id", {{"book", BY_ID}}, use_ledger, "book", true},
};

static void check_row(struct mongos *mongos, const struct row *row, truce_mechanism mechanism)
{
    struct user user = {.mechanism = mechanism};
    bson_error_t error = {0};
    truce_status status;

    if (CHECK_OK(truce_store_open(mongos_uri(mongos, row->layouts), NULL, &user.store, &error),
                 error)) {
        int refused = mongos_refused(mongos);

        status = row->use(&user, &error);
        if (!row->by_server)
            CHECK_INT(mongos_refused(mongos), ==, refused);
        if (!row->refused) {
            CHECK_OK(status, error);
        } else {
            CHECK_STATUS(TRUCE_INVALID, status, error);
            if (!strstr(error.message, row->refused))
                test_fail(__FILE__, __LINE__, "\"%s\" does not name %s", error.message,
                          row->refused);
        }
        truce_store_close(user.store);
    }
}

TEST(each_row_of_the_table_of_layouts_has_its_documented_guarantees)
{
    static const truce_mechanism mechanisms[] = {TRUCE_MECHANISM_NATIVE, TRUCE_MECHANISM_JOURNAL};
    struct mongos *mongos = mongos_start();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int m = 0; m < 2; m++) {
            int before = test_failures();

            check_row(mongos, &rows[i], mechanisms[m]);
            if (test_failures() > before)
                fprintf(stderr, "    (%s, %s)\n", rows[i].what, m ? "journal" : "native");
        }
    }
    mongos_stop(mongos);
}
