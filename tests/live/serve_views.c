/* Views: their creation, the commands that refuse a view, permissions, and listings. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "server/auth/users.h"
#include "tests/support/scram_client.h"
#include "tests/support/see.h"

/* ---- making --------------------------------------------------------------------------------- */

TEST(lists_views_and_stores_them_in_a_collection_of_their_database)
{
    begin();
    BATCH("{'listCollections': 1, 'filter': {'type': 'view', 'name': 'names'}, " SCHOOL,
          "[{'name': 'names', 'type': 'view', 'options': {'viewOn': 'adults', 'pipeline': "
          "[{'$project': {'n': 1}}]}, 'info': {'readOnly': true}}]");
    BATCH("{'listCollections': 1, 'nameOnly': true, " SCHOOL,
          "[{'name': 'groups', 'type': 'collection'}, {'name': 'people', 'type': 'collection'}, "
          "{'name': 'system.views', 'type': 'collection'}, {'name': 'adults', 'type': 'view'}, "
          "{'name': 'names', 'type': 'view'}]");
    BATCH("{'find': 'system.views', 'filter': {'_id': 'school.names'}, " SCHOOL,
          "[{'_id': 'school.names', 'viewOn': 'adults', 'pipeline': [{'$project': {'n': 1}}]}]");
    SEE("{'dbStats': 1, " SCHOOL, "views", "2");
    end();
}

TEST(the_servers_own_database_has_views_as_any_other)
{
    begin();
    OK("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2}], '$db': 'test'}");
    OK("{'create': 'v', 'viewOn': 'c', 'pipeline': [{'$match': {'a': 1}}], '$db': 'test'}");
    BATCH("{'find': 'v', '$db': 'test'}", "[{'_id': 1, 'a': 1}]");
    BATCH("{'find': 'system.views', '$db': 'test'}",
          "[{'_id': 'test.v', 'viewOn': 'c', 'pipeline': [{'$match': {'a': 1}}]}]");
    OK("{'create': 'other', 'viewOn': 'c', '$db': 'tesu'}"); /* a name as long */
    BATCH("{'listCollections': 1, 'nameOnly': true, '$db': 'test'}",
          "[{'name': 'system.views', 'type': 'collection'}, {'name': 'c', 'type': 'collection'}, "
          "{'name': 'v', 'type': 'view'}]");
    OK("{'dropDatabase': 1, '$db': 'test'}");
    BATCH("{'listCollections': 1, '$db': 'test'}", "[]");
    BATCH("{'find': 'v', '$db': 'test'}", "[]");
    SEE("{'count': 'adults', " SCHOOL, "n", "2");
    end();
}

TEST(refuses_writes_to_the_servers_own_names)
{
    begin();
    REFUSED("{'insert': 'system.mine', 'documents': [{'_id': 1}], " SCHOOL, 73);
    REFUSED("{'update': 'system.profile', 'updates': [{'q': {}, 'u': {'$set': {'a': 1}}}], " SCHOOL,
            73);
    REFUSED("{'delete': 'system.mine', 'deletes': [{'q': {}, 'limit': 0}], " SCHOOL, 73);
    REFUSED("{'findAndModify': 'system.mine', 'query': {}, 'remove': true, " SCHOOL, 73);
    REFUSED("{'create': 'system.mine', " SCHOOL, 73);
    REFUSED("{'createIndexes': 'system.mine', 'indexes': [{'key': {'a': 1}, 'name': 'a'}], " SCHOOL,
            73);
    REFUSED("{'renameCollection': 'school.people', 'to': 'school.system.mine', '$db': 'admin'}",
            73);
    REFUSED("{'aggregate': 'people', 'pipeline': [{'$out': 'system.mine'}], 'cursor': {}, " SCHOOL,
            73);
    BATCH("{'find': 'system.mine', " SCHOOL, "[]");
    OK("{'insert': 'system.js', 'documents': [{'_id': 'add'}], " SCHOOL);
    OK("{'insert': 'systems', 'documents': [{'_id': 1}], " SCHOOL);
    end();
}

TEST(refuses_a_view_under_a_name_that_is_taken)
{
    begin();
    OK(ADULTS SCHOOL);
    REFUSED("{'create': 'adults', 'viewOn': 'people', 'pipeline': [], " SCHOOL, 48);
    REFUSED("{'create': 'adults', 'viewOn': 'groups', 'pipeline': [{'$match': {'age': {'$gte': "
            "18}}}], " SCHOOL,
            48);
    REFUSED("{'create': 'adults', " SCHOOL, 48);
    REFUSED("{'create': 'people', 'viewOn': 'groups', " SCHOOL, 48);
    end();
}

TEST(refuses_an_invalid_definition_at_the_creation_of_a_view)
{
    begin();
    REFUSED("{'create': 'v', 'viewOn': '', " SCHOOL, 2);
    REFUSED("{'create': 'v', 'pipeline': [], " SCHOOL, 72);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'validator': {}, " SCHOOL, 72);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'validationLevel': 'strict', " SCHOOL, 72);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'collation': {'locale': 'fr'}, " SCHOOL, 115);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': {}, " SCHOOL, 14);
    REFUSED("{'create': 'system.v', 'viewOn': 'people', " SCHOOL, 73);
    REFUSED("{'create': 'system.views', 'viewOn': 'people', " SCHOOL, 73);
    REFUSED("{'create': 'v', 'viewOn': 'system.views', " SCHOOL, 73);
    REFUSED("{'create': 'do$lar', 'viewOn': 'people', " SCHOOL, 73);
    REFUSED("{'create': 'v', 'viewOn': 'do$lar', " SCHOOL, 73);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$nothing': 1}], " SCHOOL, 40324);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$match': {'$x': 1}}], " SCHOOL, 2);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$out': 'o'}], " SCHOOL, 167);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$merge': 'o'}], " SCHOOL, 167);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$changeStream': {}}], " SCHOOL,
            167);
    REFUSED("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$documents': []}], " SCHOOL, 73);
    REFUSED(
        "{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$facet': {'a': [{'$out': 'o'}]}}], " SCHOOL,
        40600);
    SEE("{'create': 'v', 'viewOn': 'people', 'pipeline': [{'$lookup': {'from': 'groups', 'as': "
        "'g', 'pipeline': [{'$out': 'o'}]}}], " SCHOOL,
        "ok", "0.0");
    BATCH("{'listCollections': 1, 'filter': {'name': 'v'}, " SCHOOL, "[]");
    end();
}

TEST(changes_a_view_by_collmod_but_makes_no_collection_a_view)
{
    begin();
    OK("{'collMod': 'adults', 'viewOn': 'people', 'pipeline': [{'$match': {'age': {'$gte': 40}}}], " SCHOOL);
    BATCH("{'find': 'names', " SCHOOL, "[{'_id': 3, 'n': 'eve'}]");
    OK("{'collMod': 'adults', 'pipeline': [], " SCHOOL);
    SEE("{'count': 'adults', " SCHOOL, "n", "3");
    OK("{'collMod': 'adults', 'viewOn': 'groups', " SCHOOL);
    BATCH("{'find': 'adults', 'limit': 1, " SCHOOL, "[{'_id': 'a'}]");
    REFUSED("{'collMod': 'adults', 'validator': {'a': 1}, " SCHOOL, 72);
    REFUSED("{'collMod': 'adults', 'viewOn': 'people', 'pipeline': [{'$out': 'x'}], " SCHOOL, 167);
    REFUSED("{'collMod': 'adults', 'viewOn': 'names', " SCHOOL, 5);
    REFUSED("{'collMod': 'people', 'viewOn': 'groups', 'pipeline': [], " SCHOOL, 72);
    REFUSED("{'collMod': 'people', 'viewOn': 'groups', " SCHOOL, 72);
    end();
}

TEST(frees_the_name_of_a_dropped_view)
{
    begin();
    SEE("{'drop': 'names', " SCHOOL, "ns", "'school.names'");
    BATCH("{'find': 'names', " SCHOOL, "[]");
    REFUSED("{'drop': 'system.views', " SCHOOL, 20);
    OK("{'insert': 'names', 'documents': [{'_id': 9}], " SCHOOL);
    BATCH("{'find': 'names', " SCHOOL, "[{'_id': 9}]");
    SEE("{'count': 'adults', " SCHOOL, "n", "2");
    OK("{'drop': 'adults', " SCHOOL);
    SEE("{'count': 'people', " SCHOOL, "n", "3");
    OK("{'drop': 'system.views', " SCHOOL);
    OK(ADULTS SCHOOL);
    SEE("{'count': 'adults', " SCHOOL, "n", "2");
    end();
}

TEST(refuses_cycles_of_views_and_more_than_twenty_levels)
{
    char text[300];

    begin();
    REFUSED("{'create': 'self', 'viewOn': 'self', " SCHOOL, 5);
    REFUSED("{'create': 'self', 'viewOn': 'people', 'pipeline': [{'$facet': {'a': [{'$unionWith': "
            "'self'}]}}], " SCHOOL,
            5);
    OK("{'create': 'b', 'viewOn': 'a', 'pipeline': [{'$unionWith': 'names'}], " SCHOOL);
    REFUSED("{'create': 'a', 'viewOn': 'people', 'pipeline': [{'$lookup': {'from': 'b', 'as': 'x', "
            "'pipeline': []}}], " SCHOOL,
            5);
    OK("{'create': 'a', 'viewOn': 'people', " SCHOOL);
    for (int i = 1; i <= TRUCE_VIEW_DEPTH_MAX; i++) {
        snprintf(text, sizeof text, "{'create': 'd%d', 'viewOn': 'd%d', " SCHOOL, i, i - 1);
        OK(text);
    }
    SEE("{'count': 'd20', " SCHOOL, "n", "0");
    REFUSED("{'create': 'd21', 'viewOn': 'd20', " SCHOOL, 165);
    REFUSED("{'create': 'd21', 'viewOn': 'people', 'pipeline': [{'$unionWith': 'd20'}], " SCHOOL,
            165);
    REFUSED("{'create': 'd0', 'viewOn': 'people', " SCHOOL, 165);
    OK("{'create': 'd21', 'viewOn': 'd19', " SCHOOL);
    end();
}

TEST(a_database_has_so_many_views_and_so_many_bytes_of_them)
{
    char *text = bson_malloc(TRUCE_VIEWS_BYTES_MAX + 1000), *at;
    int connection;

    begin();
    connection = dial();
    for (int i = 2; i < TRUCE_VIEWS_MAX; i++) {
        snprintf(text, 200, "{'create': 'v%d', 'viewOn': 'people', " SCHOOL, i);
        see_on(connection, text, "ok", "1.0", __LINE__);
    }
    REFUSED("{'create': 'more', 'viewOn': 'people', " SCHOOL, 146);
    OK("{'collMod': 'v5', 'viewOn': 'groups', " SCHOOL);
    SEE("{'count': 'v999', " SCHOOL, "n", "3");
    OK("{'drop': 'v7', " SCHOOL);
    at = text +
         sprintf(text, "{'create': 'more', 'viewOn': 'people', 'pipeline': [{'$match': {'x': '");
    memset(at, 'x', TRUCE_VIEWS_BYTES_MAX);
    strcpy(at + TRUCE_VIEWS_BYTES_MAX, "'}}], " SCHOOL);
    REFUSED(text, 195);
    close(connection);
    bson_free(text);
    end();
}

/* Writes a view's definition as another program would: the definitions are a collection of the
 * store. */
static void write_view(const char *json)
{
    bson_t *document = parsed(json);
    bson_error_t error;

    REQUIRE(!truce_insert(store, "@school.system.views", document, NULL, &error));
    bson_destroy(document);
}

TEST(refuses_foreign_invalid_or_cyclic_definitions_at_a_read)
{
    begin();
    write_view("{'_id': 'school.bad', 'viewOn': 7, 'pipeline': []}");
    write_view("{'_id': 'school.flat', 'viewOn': 'people', 'pipeline': {'$out': 'x'}}");
    write_view("{'_id': 'school.out', 'viewOn': 'people', 'pipeline': [{'$out': 'x'}]}");
    write_view("{'_id': 'school.x', 'viewOn': 'y', 'pipeline': []}");
    write_view("{'_id': 'school.y', 'viewOn': 'x', 'pipeline': []}");
    write_view("{'_id': 'school.z', 'viewOn': 'people', 'pipeline': [{'$unionWith': 'z'}]}");
    write_view("{'_id': 17, 'viewOn': 'people', 'pipeline': []}");
    write_view("{'_id': 'nodot', 'viewOn': 'people', 'pipeline': []}");
    REFUSED("{'find': 'bad', " SCHOOL, 182);
    REFUSED("{'count': 'flat', " SCHOOL, 182);
    REFUSED("{'aggregate': 'out', 'pipeline': [], 'cursor': {}, " SCHOOL, 167);
    REFUSED("{'find': 'x', " SCHOOL, 165);
    REFUSED("{'distinct': 'z', 'key': 'a', " SCHOOL, 165);
    REFUSED("{'aggregate': 'people', 'pipeline': [{'$unionWith': 'z'}], 'cursor': {}, " SCHOOL,
            165);
    SEE("{'insert': 'bad', 'documents': [{}], " SCHOOL, "writeErrors.0.code", "166");
    BATCH("{'listCollections': 1, 'filter': {'name': 'bad'}, " SCHOOL,
          "[{'name': 'bad', 'type': 'view', 'options': {'viewOn': '', 'pipeline': []}, 'info': "
          "{'readOnly': true}}]");
    SEE("{'count': 'adults', " SCHOOL, "n", "2");
    OK("{'drop': 'x', " SCHOOL);
    OK("{'drop': 'z', " SCHOOL);
    OK("{'collMod': 'bad', 'viewOn': 'people', 'pipeline': [], " SCHOOL);
    SEE("{'count': 'bad', " SCHOOL, "n", "3");
    end();
}

/* ---- commands that refuse a view ------------------------------------------------------------- */

TEST(a_view_is_written_by_nothing)
{
    static const char *const commands[] = {
        "'findAndModify': 'adults', 'query': {}, 'update': {'$set': {'a': 1}}",
        "'findAndModify': 'adults', 'remove': true",
        "'createIndexes': 'adults', 'indexes': [{'key': {'a': 1}, 'name': 'a'}]",
        "'dropIndexes': 'adults', 'index': '*'",
        "'listIndexes': 'adults'",
        "'collStats': 'adults'",
        "'validate': 'adults'",
        "'compact': 'adults'",
        "'dataSize': 'school.adults'",
        "'aggregate': 'people', 'pipeline': [{'$out': 'adults'}], 'cursor': {}",
        "'aggregate': 'people', 'pipeline': [{'$merge': 'adults'}], 'cursor': {}",
        "'aggregate': 'adults', 'pipeline': [{'$collStats': {'count': {}}}], 'cursor': {}",
        "'aggregate': 'adults', 'pipeline': [{'$changeStream': {}}], 'cursor': {}",
        "'truceRevision': 'adults', 'save': {'_id': 1, 'a': 1}",
        NULL};
    char text[400];

    begin();
    for (size_t i = 0; commands[i]; i++) {
        snprintf(text, sizeof text, "{%s, " SCHOOL, commands[i]);
        REFUSED(text, 166);
    }
    REFUSED("{'renameCollection': 'school.adults', 'to': 'school.z', '$db': 'admin'}", 166);
    REFUSED("{'renameCollection': 'school.groups', 'to': 'school.adults', 'dropTarget': true, "
            "'$db': 'admin'}",
            48);
    SEE("{'count': 'people', " SCHOOL, "n", "3");
    BATCH("{'listCollections': 1, 'filter': {'name': 'adults', 'type': 'collection'}, " SCHOOL,
          "[]");
    end();
}

TEST(refuses_the_statement_that_writes_to_a_view_alone)
{
    begin();
    SEE("{'insert': 'adults', 'documents': [{'_id': 8}, {'_id': 9}], " SCHOOL, "writeErrors.0",
        "{'index': 0, 'code': 166, 'errmsg': 'Namespace school.adults is a view, not a "
        "collection'}");
    SEE("{'insert': 'adults', 'documents': [{'_id': 8}, {'_id': 9}], " SCHOOL, "writeErrors.1", "");
    SEE("{'insert': 'adults', 'documents': [{'_id': 8}, {'_id': 9}], 'ordered': false, " SCHOOL,
        "writeErrors.1.index", "1");
    SEE("{'update': 'adults', 'updates': [{'q': {}, 'u': {'$set': {'a': 1}}, 'upsert': true}], " SCHOOL,
        "writeErrors.0.code", "166");
    SEE("{'delete': 'adults', 'deletes': [{'q': {}, 'limit': 0}], " SCHOOL, "n", "0");
    SEE("{'delete': 'adults', 'deletes': [{'q': {}, 'limit': 0}], " SCHOOL, "writeErrors.0.code",
        "166");
    SEE("{'count': 'people', " SCHOOL, "n", "3");
    end();
}

#define MIXED                                                                                      \
    "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {'_id': 7}}, {'update': 1, 'filter': {}, " \
    "'updateMods': {'$set': {'a': 1}}}, {'insert': 1, 'document': {'_id': 8}}, {'delete': 0, "     \
    "'filter': {'_id': 1}}], 'nsInfo': [{'ns': 'school.people'}, {'ns': 'school.adults'}], "
#define OF_VIEW "'code': 166, 'errmsg': 'Namespace school.adults is a view, not a collection'}"
#define SESSION                                                                                    \
    "'lsid': {'id': {'$binary': {'base64': 'AAECAwQFBgcICQoLDA0ODw==', 'subType': '04'}}}, "

TEST(refuses_only_writes_to_views_of_a_bulk)
{
    begin();
    BATCH(MIXED "'ordered': false, '$db': 'admin'}",
          "[{'ok': 1.0, 'idx': 0, 'n': 1}, {'ok': 0.0, 'idx': 1, 'n': 0, 'nModified': 0, " OF_VIEW
          ", {'ok': 0.0, 'idx': 2, 'n': 0, " OF_VIEW ", {'ok': 1.0, 'idx': 3, 'n': 1}]");
    SEE("{'find': 'people', 'filter': {'_id': {'$in': [1, 7, 8]}}, " SCHOOL, "cursor.firstBatch",
        "[{'_id': 7}]");
    OK("{'delete': 'people', 'deletes': [{'q': {'_id': 7}, 'limit': 1}], " SCHOOL);
    SEE(MIXED "'$db': 'admin'}", "nErrors", "1");
    SEE("{'count': 'people', " SCHOOL, "n", "3");
    SEE(MIXED "'$db': 'admin'}", "cursor.firstBatch.0.code", "11000");
    SEE(MIXED "'$db': 'admin'}", "nErrors", "1");
    BATCH("{'listCollections': 1, 'filter': {'name': 'adults', 'type': 'collection'}, " SCHOOL,
          "[]");
    end();
}

TEST(refuses_writes_to_views_in_retried_and_transactional_bulks)
{
    begin_at(file("bulk"));
    for (int again = 0; again < 2; again++)
        SEE(MIXED "'ordered': false, " SESSION "'txnNumber': {'$numberLong': '1'}, '$db': 'admin'}",
            "cursor.firstBatch.2", "{'ok': 0.0, 'idx': 2, 'n': 0, " OF_VIEW);
    SEE("{'count': 'people', " SCHOOL, "n", "3");
    SEE("{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {'_id': 9}}, {'insert': 1, "
        "'document': {}}], 'nsInfo': [{'ns': 'school.people'}, {'ns': 'school.adults'}], " SESSION
        "'txnNumber': {'$numberLong': '2'}, 'autocommit': false, 'startTransaction': true, "
        "'$db': 'admin'}",
        "cursor.firstBatch.1.code", "166");
    REFUSED("{'commitTransaction': 1, " SESSION
            "'txnNumber': {'$numberLong': '2'}, 'autocommit': false, '$db': 'admin'}",
            251);
    SEE("{'count': 'people', " SCHOOL, "n", "3");
    end();
}

TEST(refuses_access_to_the_definitions)
{
    static const char *const commands[] = {
        "'create': 'system.views', 'validator': {'a': 1}",
        "'collMod': 'system.views', 'validator': {'a': 1}",
        "'insert': 'system.views', 'documents': [{'_id': 'school.x'}]",
        "'update': 'system.views', 'updates': [{'q': {}, 'u': {'$set': {'viewOn': 'x'}}}]",
        "'delete': 'system.views', 'deletes': [{'q': {}, 'limit': 0}]",
        "'findAndModify': 'system.views', 'remove': true",
        "'createIndexes': 'system.views', 'indexes': [{'key': {'a': 1}, 'name': 'a'}]",
        "'aggregate': 'people', 'pipeline': [{'$out': 'system.views'}], 'cursor': {}",
        "'aggregate': 'people', 'pipeline': [{'$merge': 'system.views'}], 'cursor': {}",
        "'truceRevision': 'system.views', 'save': {'_id': 1, 'a': 1}",
        NULL};
    char text[400];

    begin();
    for (size_t i = 0; commands[i]; i++) {
        snprintf(text, sizeof text, "{%s, " SCHOOL, commands[i]);
        REFUSED(text, 73);
    }
    REFUSED("{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {'_id': 7}}], 'nsInfo': [{'ns': "
            "'school.system.views'}], '$db': 'admin'}",
            73);
    REFUSED("{'renameCollection': 'school.system.views', 'to': 'school.z', '$db': 'admin'}", 73);
    REFUSED("{'renameCollection': 'school.people', 'to': 'school.system.views', '$db': 'admin'}",
            73);
    SEE("{'count': 'system.views', " SCHOOL, "n", "2");
    SEE("{'listIndexes': 'system.views', " SCHOOL, "cursor.firstBatch.0.name", "'_id_'");
    OK("{'validate': 'system.views', " SCHOOL);
    end();
}

/* ---- processes ------------------------------------------------------------------------------ */

static void see_at(int port, const char *command, const char *path, const char *wanted, int line)
{
    int connection = dial_port(port);

    see_on(connection, command, path, wanted, line);
    close(connection);
}

/* First, before this process has threads: the others are threads by then. */
TEST(sees_views_of_another_process_immediately)
{
    char path[600];
    int port = -1, other = -1;
    pid_t child, second;

    snprintf(path, sizeof path, "%s", file("shared"));
    child = serve_child(path, &port);
    second = serve_child(path, &other);
    REQUIRE(port > 0 && other > 0);
    see_at(port, PEOPLE SCHOOL, "ok", "1.0", __LINE__);
    see_at(other, "{'find': 'adults', " SCHOOL, "cursor.firstBatch", "[]", __LINE__);
    see_at(port, ADULTS SCHOOL, "ok", "1.0", __LINE__);
    see_at(other, "{'count': 'adults', " SCHOOL, "n", "2", __LINE__);
    see_at(other, "{'insert': 'adults', 'documents': [{}], " SCHOOL, "writeErrors.0.code", "166",
           __LINE__);
    see_at(other, "{'collMod': 'adults', 'viewOn': 'people', 'pipeline': [], " SCHOOL, "ok", "1.0",
           __LINE__);
    see_at(port, "{'count': 'adults', " SCHOOL, "n", "3", __LINE__);
    see_at(port, "{'drop': 'adults', " SCHOOL, "ok", "1.0", __LINE__);
    see_at(other, "{'count': 'adults', " SCHOOL, "n", "0", __LINE__);
    see_at(port, ADULTS SCHOOL, "ok", "1.0", __LINE__);
    see_at(other, "{'count': 'adults', " SCHOOL, "n", "2", __LINE__);
    see_at(port, "{'dropDatabase': 1, " SCHOOL, "ok", "1.0", __LINE__);
    see_at(other, "{'insert': 'adults', 'documents': [{}], " SCHOOL, "n", "1", __LINE__);
    kill(child, SIGKILL);
    kill(second, SIGKILL);
    waitpid(child, NULL, 0);
    waitpid(second, NULL, 0);
}

TEST(serves_views_of_more_databases_than_its_cache_keeps)
{
    char text[300];

    begin();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < TRUCE_SERVER_VIEW_LISTS + 5; i++) {
            snprintf(text, sizeof text,
                     round ? "{'count': 'v%d', '$db': 'd%d'}"
                           : "{'create': 'v%d', 'viewOn': 'c', '$db': 'd%d'}",
                     i, i);
            OK(text);
            snprintf(text, sizeof text,
                     "{'createIndexes': 'v%d', 'indexes': [{'key': {'a': 1}, "
                     "'name': 'a'}], '$db': 'd%d'}",
                     i, i);
            REFUSED(text, 166);
        }
    end();
}

/* ---- roles ---------------------------------------------------------------------------------- */

static void add_user(const char *name, const char *role, const char *database)
{
    struct grants *grants = bson_malloc0(sizeof *grants);
    struct user_facts facts = {.name = name,
                               .database = "admin",
                               .password = name,
                               .mechanisms = USER_MECHANISMS,
                               .grants = grants};
    bson_error_t error;

    grants->count = 1;
    grants->all[0].role = role_of(role, database);
    snprintf(grants->all[0].database, sizeof grants->all[0].database, "%s", database);
    REQUIRE(!users_add(store, &facts, &error));
    bson_free(grants);
}

#define BY(who, command, path, wanted) see_on(who, command, path, wanted, __LINE__)
#define SECRETS                                                                                    \
    "'pipeline': [{'$lookup': {'from': {'db': 'vault', 'coll': 'secrets'}, 'pipeline': [], 'as': " \
    "'s'}}], "

TEST(requires_access_to_the_source_only_to_create_a_view)
{
    const struct server_options options = {.auth = true, .login_delay_ms = 1};
    bson_error_t error = {0};
    int root, writer, keeper, reader;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    add_user("root", "root", "admin");
    add_user("writer", "readWrite", "school");
    add_user("keeper", "dbAdmin", "school");
    add_user("reader", "read", "school");
    REQUIRE(!server_start(store, &options, &server, &error));
    root = dial_as("root", "root");
    writer = dial_as("writer", "writer");
    keeper = dial_as("keeper", "keeper");
    reader = dial_as("reader", "reader");
    BY(root, PEOPLE SCHOOL, "ok", "1.0");
    BY(root, "{'insert': 'secrets', 'documents': [{'_id': 1}], '$db': 'vault'}", "ok", "1.0");
    BY(reader, ADULTS SCHOOL, "code", "13");
    BY(writer, ADULTS SCHOOL, "ok", "1.0");
    BY(writer, "{'create': 'v', 'viewOn': 'people', " SECRETS SCHOOL, "code", "13");
    BY(root, "{'create': 'v', 'viewOn': 'people', " SECRETS SCHOOL, "ok", "1.0");
    BY(reader, "{'find': 'v', 'filter': {'_id': 1}, 'projection': {'s': 1}, " SCHOOL,
       "cursor.firstBatch", "[{'_id': 1, 's': [{'_id': 1}]}]");
    BY(reader, "{'aggregate': 'people', " SECRETS "'cursor': {}, " SCHOOL, "code", "13");
    BY(keeper, "{'find': 'v', " SCHOOL, "code", "13");
    BY(keeper, "{'create': 'w', 'viewOn': 'people', " SECRETS SCHOOL, "ok", "1.0");
    BY(keeper, "{'find': 'w', " SCHOOL, "code", "13");
    BY(writer, "{'collMod': 'v', 'viewOn': 'people', 'pipeline': [], " SCHOOL, "code", "13");
    BY(keeper, "{'collMod': 'v', 'pipeline': [], " SCHOOL, "code", "72");
    BY(keeper, "{'collMod': 'v', 'viewOn': 'people', " SCHOOL, "code", "72");
    BY(keeper, "{'collMod': 'v', 'viewOn': 'people', 'pipeline': [], " SCHOOL, "ok", "1.0");
    BY(reader, "{'drop': 'v', " SCHOOL, "code", "13");
    close(root);
    close(writer);
    close(keeper);
    close(reader);
    end();
}

TEST(no_view_shows_the_records_of_users)
{
    const struct server_options options = {.auth = true, .login_delay_ms = 1};
    bson_error_t error = {0};
    bson_t *document;
    int root;

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    add_user("root", "root", "admin");
    REQUIRE(!server_start(store, &options, &server, &error));
    root = dial_as("root", "root");
    BY(root, "{'create': 'v', 'viewOn': 'system.users', '$db': 'admin'}", "code", "73");
    BY(root,
       "{'create': 'v', 'viewOn': 'c', 'pipeline': [{'$unionWith': 'system.users'}], '$db': "
       "'admin'}",
       "code", "13");
    document = parsed("{'_id': 'admin.v', 'viewOn': 'system.users', 'pipeline': []}");
    REQUIRE(!truce_insert(store, "@admin.system.views", document, NULL, &error));
    bson_destroy(document);
    document =
        parsed("{'_id': 'admin.w', 'viewOn': 'c', 'pipeline': [{'$unionWith': 'system.users'}]}");
    REQUIRE(!truce_insert(store, "@admin.system.views", document, NULL, &error));
    bson_destroy(document);
    BY(root, "{'find': 'v', '$db': 'admin'}", "code", "13");
    BY(root, "{'find': 'w', '$db': 'admin'}", "code", "13");
    close(root);
    end();
}
