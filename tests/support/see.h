#ifndef TRUCE_TESTS_SUPPORT_SEE_H
#define TRUCE_TESTS_SUPPORT_SEE_H

/* Sends commands to a server and checks the replies by paths. The data are people and groups with
 * views. */
#include "tests/support/talk.h"
#include "tests/support/test.h"

/* Parses JSON with ' for ". */
bson_t *parsed(const char *json);
/* Sends the command on `end`, or on a new connection if `end` is negative, and checks the value at
 * the path of the reply. If `wanted` is "", the path must be missing. */
void see_on(int end, const char *command, const char *path, const char *wanted, int line);

#define SEE(command, path, wanted) see_on(-1, command, path, wanted, __LINE__)
#define OK(command)                see_on(-1, command, "ok", "1.0", __LINE__)
#define REFUSED(command, code)     see_on(-1, command, "code", #code, __LINE__)
#define BATCH(command, wanted)     see_on(-1, command, "cursor.firstBatch", wanted, __LINE__)

#define SCHOOL                     "'$db': 'school'}"
#define PEOPLE                                                                                     \
    "{'insert': 'people', 'documents': [{'_id': 1, 'n': 'ada', 'age': 36, 'of': 'a'}, "            \
    "{'_id': 2, 'n': 'bob', 'age': 12, 'of': 'b'}, {'_id': 3, 'n': 'eve', 'age': 40, 'of': 'b'}],"
#define ADULTS                                                                                     \
    "{'create': 'adults', 'viewOn': 'people', 'pipeline': [{'$match': {'age': {'$gte': 18}}}], "

/* Starts a server like a replica set at that store: people and groups, the view adults on
 * people, names on adults. */
void begin_at(const char *uri);
/* Starts such a server with a store in memory. */
void begin(void);
void end(void);
/* Returns the path of a file of that name for begin_at, valid until the next call. */
const char *file(const char *name);

#endif
