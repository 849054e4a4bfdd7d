/*
 * truce demo broker: payments arrive through RabbitMQ, and their consumers are killed with SIGKILL.
 *
 * Each message adds 1 to the balance of the shop. In the naive code, a consumer takes messages,
 * and then acknowledges them before it applies them, or after it. A consumer that is killed in
 * between loses these payments in the first case, and repeats them in the second one. With truce,
 * the changes and the record of their messages are one commit, and the acknowledgement follows.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "cli/core/worker_pool.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_rabbitmq.h"
#include "cli/demo/demo_stage.h"
#include "truce/broker.h"

#define PAYMENTS      2000
#define CONSUMERS     3
#define TAKEN         20 /* The number of messages that the naive code takes at a time. */
#define KILLS         12
#define KILL_EVERY_MS 60
#define WAIT_MS       250
#define ROUNDS_EMPTY  4

enum broker_way { ACKNOWLEDGE_FIRST, APPLY_FIRST, TRUCE_WAY, BROKER_WAYS };
static const char *const broker_way_names[] = {"acknowledge, apply", "apply, acknowledge", "truce"};
static const char *const broker_queues[] = {"first", "last", "truce", NULL};

struct payments {
    struct cli *cli;
    struct demo_stage stage;
    struct demo_rabbitmq server;
    const struct broker_ops *ops;
    pid_t children[CONSUMERS];
};

struct payments_result {
    int64_t balance, kills;
    double seconds;
};

/* ---- the broker ------------------------------------------------------------------------------ */

/* Opens a connection to a queue. */
static truce_status payments_connect(const struct payments *demo, const char *queue, bool publishes,
                                     void **broker, bson_error_t *error)
{
    bson_t query = BSON_INITIALIZER;
    const struct broker_address address = {.scheme = "amqp",
                                           .host = "127.0.0.1",
                                           .port = demo->server.port,
                                           .path = {publishes ? "" : queue},
                                           .path_count = 1,
                                           .query = &query};
    const struct broker_open_options open_options = {
        .publishes = publishes, .consumer = queue, .prefetch = 2 * TAKEN};
    truce_status status = demo->ops->open(&address, &open_options, broker, error);

    bson_destroy(&query);
    return status;
}

/* Publishes the same payments to the queue of each way. */
static truce_status payments_publish(const struct payments *demo, bson_error_t *error)
{
    void *broker = NULL;
    truce_status status = payments_connect(demo, "", true, &broker, error);
    char body[60], id[20];

    for (int i = 0; !status && i < PAYMENTS * BROKER_WAYS; i++) {
        struct broker_post post = {.key = broker_queues[i % BROKER_WAYS],
                                   .body = (const uint8_t *)body,
                                   .id = id,
                                   .content_type = "application/json"};

        snprintf(id, sizeof id, "payment %d", i / BROKER_WAYS);
        post.size = (size_t)snprintf(body, sizeof body, "{\"amount\": 1}");
        status = demo->ops->publish(broker, &post, error);
    }
    if (!status)
        status = demo->ops->confirm(broker, 30000, error);
    demo->ops->close(broker);
    return status;
}

/* ---- the naive code -------------------------------------------------------------------------- */

static truce_status payments_apply(truce_store *store, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", "shop"),
           *update = BCON_NEW("$inc", "{", "balance", BCON_INT64(1), "}");
    truce_status status = truce_update(store, "accounts", filter, update, NULL, NULL, error);

    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

/* Receives up to TAKEN messages, or fewer if no more come. */
static truce_status payments_take(const struct payments *demo, void *broker,
                                  struct broker_message *messages[TAKEN], size_t *count,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool came = true;

    for (*count = 0; *count < TAKEN && came && !status; *count += came) {
        struct broker_message *message = NULL;

        status = demo->ops->receive(broker, *count ? 5 : WAIT_MS, &message, error);
        came = message != NULL;
        messages[*count] = message;
    }
    return status;
}

/* Applies a batch, and acknowledges it before or after. A process that is killed in between loses
 * or repeats the payments. */
static truce_status payments_apply_batch(const struct payments *demo, truce_store *store,
                                         void *broker, enum broker_way way, size_t *count,
                                         bson_error_t *error)
{
    struct broker_message *messages[TAKEN + 1];
    truce_status status = payments_take(demo, broker, messages, count, error);

    if (!status && *count && way == ACKNOWLEDGE_FIRST)
        status = demo->ops->acknowledge(broker, messages, *count, error);
    for (size_t i = 0; i < *count && !status; i++)
        status = payments_apply(store, error);
    if (!status && *count && way == APPLY_FIRST)
        status = demo->ops->acknowledge(broker, messages, *count, error);
    for (size_t i = 0; i < *count; i++)
        truce__broker_message_free(messages[i]);
    return status;
}

/* Applies batches until no message has come for a while. */
static truce_status payments_consume(const struct payments *demo, truce_store *store,
                                     enum broker_way way, bson_error_t *error)
{
    void *broker = NULL;
    truce_status status = payments_connect(demo, broker_queues[way], false, &broker, error);

    for (int empty = 0; !status && empty < ROUNDS_EMPTY;) {
        size_t count = 0;

        status = payments_apply_batch(demo, store, broker, way, &count, error);
        empty = count ? 0 : empty + 1;
    }
    demo->ops->close(broker);
    return status;
}

/* ---- truce ----------------------------------------------------------------------------------- */

/* Applies the messages by truce_consume, with their records in the same commits. */
static truce_status payments_consume_truce(const struct payments *demo, truce_store *store,
                                           bson_error_t *error)
{
    char url[60];
    bson_t *map = BCON_NEW("0", "{", "update", "accounts", "id", "shop", "with", "{", "$inc", "{",
                           "balance", "$body.amount", "}", "}", "}");
    truce_consume_options options = {.url = url,
                                     .into = "commit",
                                     .map = map,
                                     .map_is_array = true,
                                     .batch = TAKEN,
                                     .until_empty = true};
    truce_status status;

    snprintf(url, sizeof url, "amqp://127.0.0.1:%d/%s", demo->server.port,
             broker_queues[TRUCE_WAY]);
    status = truce_consume(store, &options, NULL, error);
    bson_destroy(map);
    return status;
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* Starts a process that consumes the queue of this way. */
static void payments_start(struct payments *demo, int child, enum broker_way way)
{
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status;

    demo->children[child] = pool_fork();
    if (demo->children[child])
        return;
    status = truce_store_open(demo->stage.uri, NULL, &store, &error);
    if (!status)
        status = way == TRUCE_WAY ? payments_consume_truce(demo, store, &error)
                                  : payments_consume(demo, store, way, &error);
    if (status)
        fprintf(stderr, "truce: %s: %s\n", broker_way_names[way], error.message);
    truce_store_close(store);
    _exit(status ? CLI_FAILED : CLI_DONE);
}

/* Inserts the account if `balance` is NULL, and reads its balance otherwise. */
static truce_status payments_with_store(const struct payments *demo, int64_t *balance,
                                        bson_error_t *error)
{
    bson_t *shop = BCON_NEW("_id", "shop"), found;
    truce_store *store = NULL;
    truce_status status = truce_store_open(demo->stage.uri, NULL, &store, error);
    bson_iter_t at;

    if (!status && !balance) {
        status = truce_insert(store, "accounts", shop, NULL, error);
    } else if (!status) {
        status = truce_find_one(store, "accounts", shop, NULL, &found, error);
        *balance =
            !status && bson_iter_init_find(&at, &found, "balance") ? bson_iter_as_int64(&at) : 0;
        bson_destroy(&found);
    }
    truce_store_close(store);
    bson_destroy(shop);
    return status;
}

/* Waits for the consumers, which end when the queue is empty. */
static truce_status payments_wait(struct payments *demo, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; i < CONSUMERS; i++) {
        int code = 0;

        if (demo->children[i] > 0 && waitpid(demo->children[i], &code, 0) > 0 && code)
            status = truce__fail(TRUCE_IO, error, "a consumer process of the demo failed");
        demo->children[i] = 0;
    }
    return status;
}

/* Runs one way: kills and replaces its processes, and waits until the queue is empty. */
static truce_status payments_play(struct payments *demo, enum broker_way way,
                                  struct payments_result *result, bson_error_t *error)
{
    int64_t began_ns;
    truce_status status = demo_stage_clear(&demo->stage, error);

    if (!status)
        status = payments_with_store(demo, NULL, error);
    if (status)
        return status;
    began_ns = truce__clock_monotonic_ns();
    for (int i = 0; i < CONSUMERS; i++)
        payments_start(demo, i, way);
    for (; result->kills < KILLS; result->kills++) {
        int child = (int)(result->kills % CONSUMERS);

        truce__clock_sleep_ms(KILL_EVERY_MS);
        pool_end(&demo->children[child]);
        payments_start(demo, child, way);
    }
    status = payments_wait(demo, error);
    result->seconds = (double)(truce__clock_monotonic_ns() - began_ns) / 1e9;
    return status ? status : payments_with_store(demo, &result->balance, error);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void payments_print_json(const struct payments_result *results)
{
    bson_t answer = BSON_INITIALIZER, part;

    BSON_APPEND_UTF8(&answer, "story", "broker");
    BSON_APPEND_INT32(&answer, "payments", PAYMENTS);
    for (enum broker_way way = ACKNOWLEDGE_FIRST; way < BROKER_WAYS; way++) {
        bson_append_document_begin(&answer, broker_way_names[way], -1, &part);
        BSON_APPEND_INT64(&part, "balance", results[way].balance);
        BSON_APPEND_INT64(&part, "kills", results[way].kills);
        BSON_APPEND_BOOL(&part, "right", results[way].balance == PAYMENTS);
        bson_append_document_end(&answer, &part);
    }
    cli_print(&answer, JSON_RELAXED);
    bson_destroy(&answer);
}

static void payments_print(const struct payments_result *results)
{
    printf(
        "broker       %d payments of 1 arrive through RabbitMQ at %d consumers that are killed\n",
        PAYMENTS, CONSUMERS);
    for (enum broker_way way = ACKNOWLEDGE_FIRST; way < BROKER_WAYS; way++) {
        int64_t wrong = results[way].balance - PAYMENTS;

        printf("             %-18s balance %" PRId64 ", %" PRId64 " killed: ",
               broker_way_names[way], results[way].balance, results[way].kills);
        if (wrong)
            printf("%" PRId64 " %s\n", wrong < 0 ? -wrong : wrong, wrong < 0 ? "lost" : "twice");
        else
            printf("right\n");
    }
}

static int payments_skip(struct cli *cli, const char *reason)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&answer, "story", "broker");
    BSON_APPEND_UTF8(&answer, "skipped", reason);
    if (cli->json)
        cli_print(&answer, JSON_RELAXED);
    else
        printf("broker       skipped: %s\n", reason);
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

static int payments_report(struct payments *demo)
{
    struct payments_result results[BROKER_WAYS] = {{0}};
    bson_error_t error;
    truce_status status = demo_rabbitmq_begin(&demo->server, broker_queues, &error);

    if (!status)
        status = payments_publish(demo, &error);
    for (enum broker_way way = ACKNOWLEDGE_FIRST; way < BROKER_WAYS && !status; way++)
        status = payments_play(demo, way, &results[way], &error);
    demo_rabbitmq_end(&demo->server);
    if (status)
        return cli_error(demo->cli, "broker", status, &error);
    if (demo->cli->json)
        payments_print_json(results);
    else
        payments_print(results);
    return cli_output_end(results[TRUCE_WAY].balance == PAYMENTS ? CLI_DONE : CLI_NO);
}

int demo_broker(struct cli *cli)
{
    struct payments demo = {.cli = cli};
    bson_error_t error;
    int code;

    if (!demo_rabbitmq_is_installed())
        return payments_skip(cli, "rabbitmq-server is not installed (apt install rabbitmq-server)");
    if (truce__broker_find("amqp", &demo.ops, &error))
        return payments_skip(cli, error.message);
    code = demo_stage_begin(&demo.stage, cli, "broker", NULL);
    if (!code) {
        code = payments_report(&demo);
        demo_stage_end(&demo.stage);
    }
    return code;
}
