/* truce consume without a broker: mappings, and the store of a dry run. A replay reads truce_rejects,
 * and connects to no broker. */
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

static char store[300]; /* of the running test */

static void fresh_store(void)
{
    snprintf(store, sizeof store, "%s/shop.truce", test_directory());
}

#define RUN(...)                        command_run(TRUCE_CLI, store, NULL, __VA_ARGS__, NULL)
#define CONSUME(...)                    RUN("consume", "amqp://localhost/orders", __VA_ARGS__)
#define EXPECT(command, code, out, err) command_check(command, code, out, err, __FILE__, __LINE__)

TEST(a_dry_run_creates_no_store)
{
    fresh_store();
    EXPECT(CONSUME("--into", "queue:mail", "--replay", "--dry-run"), 0, "", NULL);
    CHECK_INT(access(store, F_OK), !=, 0);
    EXPECT(CONSUME("--into", "queue:mail", "--replay", "--dry-run", "--store", "memory:"), 0, "",
           NULL);
    EXPECT(CONSUME("--into", "set:students.classes", "--replay", "--dry-run"), 1, "",
           "the set \"students.classes\" is not defined");
    CHECK_INT(access(store, F_OK), !=, 0);
}

TEST(a_dry_run_only_reads_a_store)
{
    fresh_store();
    EXPECT(RUN("command",
               "{insert: 'truce_rejects', documents: [{_id: {consumer: 'orders', id: 1}, "
               "facts: {id: 'm1'}, body: {$binary: {base64: 'eyJhIjogMX0=', subType: "
               "'00'}}}]}"),
           0, "\"n\": 1", NULL);
    EXPECT(CONSUME("--into", "queue:mail", "--replay", "--dry-run"), 0,
           "\"changes\": [{\"enqueue\": \"mail\", \"with\": {\"a\": 1}}]", NULL);
    EXPECT(RUN("collections", "list"), 0, "truce_rejects", NULL);
    CHECK(!strstr(RUN("collections", "list")->out, "truce_queue"));
}

TEST(a_mapping_that_fits_no_message_is_refused)
{
    fresh_store();
    EXPECT(CONSUME("--into", "queue:mail", "--map", "{wiht: {price: 1}}"), 2, "",
           "change 1: unknown field \"wiht\": did you mean \"with\"?");
    EXPECT(CONSUME("--into", "queue:mail", "--map", "{with: {$expr: {$concat: ['$bod.x', 'a']}}}"),
           2, "", "only body, id");
    EXPECT(CONSUME("--into", "queue:mail", "--map", "{with: {a: {$expr: '$body.x', b: 1}}}"), 2, "",
           "\"$expr\" next to other fields");
    CHECK_INT(access(store, F_OK), !=, 0);
}
