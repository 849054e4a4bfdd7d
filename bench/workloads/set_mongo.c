/*
 * Ordered sets on a server of MongoDB's protocol, as one would write them without truce: two maps,
 * from names to numbers, like PostgreSQL's jsonb form. One guarded update does an operation:
 *
 *     {_id: 1, classes: {"CS 7": 58}, deleted: {"CS 9": 60}}
 *
 *     where {_id: 1, "classes.CS 7": {$not: {$gte: n}}, "deleted.CS 7": {$not: {$gte: n}}}
 *     {$set: {"classes.CS 7": n}, $unset: {"deleted.CS 7": ""}}
 */
#include <inttypes.h>
#include <string.h>

#include "bench/mongo.h"
#include "bench/workloads/sets.h"

static void make_student(int64_t id, bson_t *student)
{
    bson_t classes, deleted;

    bson_init(student);
    BSON_APPEND_INT64(student, "_id", id);
    BSON_APPEND_DOCUMENT_BEGIN(student, "classes", &classes);
    for (int i = 0; i < NAMES; i++) {
        char name[NAME_SIZE];

        snprintf(name, sizeof name, "CS %d", i);
        BSON_APPEND_INT64(&classes, name, id * NAMES + i + 1);
    }
    bson_append_document_end(student, &classes);
    BSON_APPEND_DOCUMENT_BEGIN(student, "deleted", &deleted);
    bson_append_document_end(student, &deleted);
}

void set_mongo_setup(struct bench_side *side)
{
    bson_t *students = bson_malloc(SETS_MAX * sizeof *students);
    const bson_t *pointers[SETS_MAX];

    for (int64_t id = 0; id < SETS; id++) {
        make_student(id, &students[id]);
        pointers[id] = &students[id];
    }
    mongo_insert_many(side->connections[0], "students", pointers, (size_t)SETS);
    for (int64_t id = 0; id < SETS; id++)
        bson_destroy(&students[id]);
    bson_free(students);
    sets_fill(side);
}

static void append_older(bson_t *filter, const char *path, int64_t seq)
{
    bson_t not_, at_least;

    BSON_APPEND_DOCUMENT_BEGIN(filter, path, &not_);
    BSON_APPEND_DOCUMENT_BEGIN(&not_, "$not", &at_least);
    BSON_APPEND_INT64(&at_least, "$gte", seq);
    bson_append_document_end(&not_, &at_least);
    bson_append_document_end(filter, &not_);
}

static void mongo_make(const struct set_operation *o, bson_t *filter, bson_t *update)
{
    char classes[8 + NAME_SIZE], deleted[8 + NAME_SIZE];
    bson_t inner;

    snprintf(classes, sizeof classes, "classes.%s", o->text);
    snprintf(deleted, sizeof deleted, "deleted.%s", o->text);
    bson_init(filter);
    BSON_APPEND_INT64(filter, "_id", o->set);
    append_older(filter, classes, o->seq);
    append_older(filter, deleted, o->seq);
    bson_init(update);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &inner);
    BSON_APPEND_INT64(&inner, o->remove ? deleted : classes, o->seq);
    bson_append_document_end(update, &inner);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &inner);
    BSON_APPEND_UTF8(&inner, o->remove ? classes : deleted, "");
    bson_append_document_end(update, &inner);
}

int64_t set_mongo_one(struct bench_call *call)
{
    struct set_operation o;
    bson_t filter, update;

    sets_draw(call->side, &o);
    mongo_make(&o, &filter, &update);
    (void)mongo_update(call->connection, "students", &filter, &update, NULL);
    bson_destroy(&filter);
    bson_destroy(&update);
    return 1;
}

int64_t set_mongo_batch(struct bench_call *call)
{
    bson_t updates = BSON_INITIALIZER;

    for (int i = 0; i < BATCH; i++) {
        struct set_operation o;
        bson_t filter, update, one;
        char key[8];

        sets_draw(call->side, &o);
        mongo_make(&o, &filter, &update);
        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&updates, key, &one);
        BSON_APPEND_DOCUMENT(&one, "q", &filter);
        BSON_APPEND_DOCUMENT(&one, "u", &update);
        bson_append_document_end(&updates, &one);
        bson_destroy(&filter);
        bson_destroy(&update);
    }
    mongo_update_many(call->connection, "students", &updates);
    bson_destroy(&updates);
    return BATCH;
}

static void mongo_collect(const bson_t *student, const char *map, bool removed,
                          struct sets_found *found)
{
    bson_iter_t at, names, id;

    BENCH_CHECK(bson_iter_init_find(&id, student, "_id"));
    BENCH_CHECK(bson_iter_init_find(&at, student, map) && bson_iter_recurse(&at, &names));
    while (bson_iter_next(&names))
        sets_found_add(found, bson_iter_as_int64(&id), bson_iter_key(&names),
                       bson_iter_as_int64(&names), removed);
}

void set_mongo_check(struct bench_side *side)
{
    struct sets_found *found = bson_malloc0(sizeof *found);
    bson_t all = BSON_INITIALIZER;
    mongoc_cursor_t *cursor = mongo_find(side->connections[0], "students", &all);
    const bson_t *student;

    while ((student = mongo_next(cursor))) {
        mongo_collect(student, "classes", false, found);
        mongo_collect(student, "deleted", true, found);
    }
    mongoc_cursor_destroy(cursor);
    sets_compare(side, found);
    bson_destroy(&all);
    bson_free(found);
}
