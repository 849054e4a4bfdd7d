/* Names of pipelines (store/collection_alias.h): the filter that reaches the collection of a
 * view. */
#include "store/collection_alias.h"

#include "bson/value.h"
#include "tests/support/pipeline.h"
#include "tests/support/test.h"

/* `wanted` NULL: no filter reaches the collection. */
static void check_path(const char *stages, const char *path, const char *wanted, int line)
{
    struct aliases *aliases = truce__aliases_new();
    bson_t *array = test_array(stages);
    char *found;

    truce__aliases_add(aliases, "v", "c", array);
    found = truce__alias_path(truce__aliases_find(aliases, "v"), path);
    if (wanted ? !found || strcmp(found, wanted) != 0 : found != NULL)
        test_fail(__FILE__, line, "%s of %s is asked for by %s", path, stages,
                  found ? found : "nothing");
    bson_free(found);
    bson_destroy(array);
    truce__aliases_release(aliases);
}

#define ASKS(stages, path, wanted) check_path(stages, path, wanted, __LINE__)

TEST(queries_a_view_by_the_field_of_the_collection)
{
    ASKS("{'v': []}", "a.b", "a.b");
    ASKS("{'v': [{'$match': {'b': {'$gt': 1}}}]}", "a", "a");
    ASKS("{'v': [{'$match': {'b': {'$oid': '000000000000000000000001'}}}, {'$project': {'a': 1}}]}",
         "a", "a");
    ASKS("{'v': [{'$set': {'n': 1}}, {'$unwind': '$m'}]}", "a", "a");
    ASKS("{'v': [{'$group': {'_id': '$a'}}]}", "_id", "a");
    ASKS("{'v': [{'$group': {'_id': {'x': '$a', 'y': '$b'}}}]}", "_id.y", "b");
}

TEST(asks_the_view_for_its_computed_fields)
{
    ASKS("{'v': [{'$set': {'a': 1}}]}", "a", NULL);
    ASKS("{'v': [{'$match': {'b': 1}}, {'$set': {'a': 1}}]}", "a", NULL);
    ASKS("{'v': [{'$limit': 5}]}", "a", NULL);
    ASKS("{'v': [{'$group': {'_id': '$a', 'n': {'$sum': 1}}}]}", "n", NULL);
    ASKS("{'v': [{'$project': {'b': 1}}]}", "a", NULL);
    ASKS("{'v': [{'$unionWith': 'other'}]}", "a", NULL);
    ASKS(
        "{'v': [{'$lookup': {'from': 'other', 'localField': 'b', 'foreignField': 'b', 'as': 'c'}}]}",
        "a", NULL);
}
