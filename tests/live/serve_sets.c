/* The operations of ordered sets other than adding and removing: records, the quarantine, and
 * maintenance. */
#include "server/commands.h"
#include "tests/support/served_story.h"

#define NAMED             "'students', field: 'classes', name: 'name'"
#define BY_KEY            NAMED ", key: 'student_id'"
#define ADD(name, seq)    "{add: {name: '" name "'}, key: {student_id: 1}, seq: " #seq "}"
#define REMOVE(name, seq) "{remove: {name: '" name "'}, key: {student_id: 1}, seq: " #seq "}"

TEST(records_operations_that_a_commit_applied)
{
    static const struct step steps[] = {
        {"{truceSetRecord: " NAMED ", apply: [" ADD("a", 1) "]}", 40414},
        {"{truceSetRecord: " NAMED ", consumer: 'one'}", 40414},
        {"{truceSetRecord: " NAMED ", consumer: 'one', apply: [{add: {name: 'a'}}]}", 72},
        {"{truceCommit: [{truceSet: " NAMED ", consumer: 'one', apply: [" ADD("a", 1) "]}]}", 72},
        {"{truceCommit: [{truceSet: " NAMED ", apply: [" ADD("a", 1) "]}]}", 0},
        {"{truceSetCollect: " BY_KEY "}", 0, "watermark", "0"},
        {"{truceSetRecord: " NAMED ", consumer: 'one', apply: [" ADD("a", 1) "]}", 0, "status",
         "\"ok\""},
        {"{truceSetRecord: " NAMED ", consumer: 'one', apply: [" ADD("a", 1) "]}", 0, "status",
         "\"ok\""},
        {"{truceSetCollect: " BY_KEY "}", 0, "watermark", "1"},
    };

    begin();
    TELL(steps);
    end();
}

TEST(replays_an_operation_of_the_quarantine_once)
{
    static const struct step steps[] = {
        {"{truceSet: " NAMED ", consumer: 'one', apply: [" ADD("a", 1) "]}", 0},
        {"{truceSetSource: " BY_KEY ", from: 2, to: 5}", 0},
        {"{truceSet: " NAMED ", consumer: 'one', apply: [" ADD("b", 6) ", " REMOVE("a", 7) "]}", 0},
        {"{truceSetCollect: " BY_KEY ", collect: true}", 0, "watermark", "7"},
        {"{truceSet: " NAMED ", key: {student_id: 1}, add: {name: 'late'}, seq: 3}", 0, "outcome",
         "\"quarantined\""},
        {"{truceSetQuarantine: " BY_KEY "}", 0, "quarantined.0._id.seq", "3"},
        {"{truceSetQuarantine: " BY_KEY ", $db: 'school'}", 0, "quarantined", "[]"},
        {"{truceSetReplay: " BY_KEY ", quarantined: {}, seq: 9}", 2},
        {"{truceSetReplay: " BY_KEY ", seq: 9}", 40414},
    };
    static const struct step after[] = {
        {"{truceSetQuarantine: " BY_KEY "}", 0, "quarantined", "[]"},
        {"{truceSet: " NAMED ", key: {student_id: 1}}", 0, "members.1.name", "\"late\""},
    };
    bson_t *reply;
    char *one, *low, *high;
    int end_;

    begin();
    TELL(steps);
    end_ = dial();
    reply = send_typed(end_, "{truceSetQuarantine: " BY_KEY "}");
    one = shown(reply, "quarantined.0");
    low = bson_strdup_printf("{truceSetReplay: " BY_KEY ", quarantined: %s, seq: 4}", one);
    high = bson_strdup_printf(
        "{truceSetReplay: " BY_KEY ", quarantined: %s, seq: 8, consumer: 'one'}", one);
    take_step(end_, &(struct step){low, 2, "status", "\"invalid\""});
    take_step(end_, &(struct step){high, 0, "outcome", "\"applied\""});
    take_step(end_, &(struct step){high, 0, "status", "\"not found\""});
    bson_free(high);
    bson_free(low);
    bson_free(one);
    bson_destroy(reply);
    close(end_);
    TELL(after);
    end();
}

TEST(converts_protects_and_forgets_a_set)
{
    static const struct step steps[] = {
        {"{insert: 'students', documents: [{student_id: 1, classes: ['CS 101', {name: 'CS 102'}]}]}",
         0},
        {"{truceSetConvert: " BY_KEY "}", 0, "elements", "2"},
        {"{find: 'students'}", 0, "cursor.firstBatch.0.classes.0.name", "\"CS 101\""},
        {"{truceSetProtect: " BY_KEY "}", 40414},
        {"{truceSetProtect: " BY_KEY ", on: true}", 0, "status", "\"ok\""},
        {"{truceSet: " NAMED ", consumer: 'one', apply: [" ADD("a", 1) ", " REMOVE("b", 2) "]}", 0},
        {"{truceSetCollect: " BY_KEY ", collect: true}", 0, "watermark", "2"},
        {"{update: 'students', updates: [{q: {student_id: 1}, u: {$push: {classes: {name: 'old', seq: 1}}}}]}",
         0, "writeErrors.0.code", "121"},
        {"{truceSetProtect: " BY_KEY ", on: false}", 0},
        {"{update: 'students', updates: [{q: {student_id: 1}, u: {$push: {classes: {name: 'old', seq: 1}}}}]}",
         0, "writeErrors", NULL},
        {"{truceSetForget: " BY_KEY "}", 112, "status", "\"conflict\""},
        {"{truceSetForget: " BY_KEY ", anyway: true}", 0, "status", "\"ok\""},
        {"{truceSetForget: " BY_KEY ", anyway: true}", 0, "status", "\"not found\""},
    };

    begin();
    TELL(steps);
    end();
}
