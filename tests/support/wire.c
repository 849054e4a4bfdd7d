/*
 * Corrupts the messages of an operation. Each run of the operation corrupts one message, which is
 * counted from 1 in one direction.
 *
 * Most calls end soon after their message was corrupted. Before anything is checked, proxy_settle
 * waits for delayed messages, so that their effects are complete.
 */
#include "tests/support/wire.h"

#include <stdlib.h>
#include <string.h>

#include <mongoc/mongoc.h>

#include "tests/support/server.h"

#define OPENINGS 20

static const struct wire_way network[] = {
    {.name = "no request", .fault = PROXY_CUT, .direction = TO_SERVER},
    {.name = "half a request", .fault = PROXY_HALF, .direction = TO_SERVER},
    {.name = "no answer", .fault = PROXY_CUT, .direction = TO_CLIENT},
    {.name = "half an answer", .fault = PROXY_HALF, .direction = TO_CLIENT},
    {.name = "a late request", .fault = PROXY_DELAY, .direction = TO_SERVER},
    {.name = "a late answer", .fault = PROXY_DELAY, .direction = TO_CLIENT},
    {.name = "an end after the request", .fault = PROXY_AFTER, .direction = TO_SERVER},
};

/* Returns the port of mongodb://USER:PASSWORD@HOST:PORT/?OPTIONS, or 0 if the URI has no port. */
static int port_of_server(void)
{
    const char *where = getenv("TRUCE_TEST_MONGODB"), *colon;
    char host[300];

    if (!where || strncmp(where, "mongodb://", 10) != 0)
        return 0;
    snprintf(host, sizeof host, "%.*s", (int)strcspn(where + 10, "/?"), where + 10);
    colon = strrchr(host, ':');
    return colon ? atoi(colon + 1) : 0;
}

/* Removes an option from the URI. */
static void drop_option(char *uri, const char *option)
{
    char *at = strstr(uri, option);

    if (at && (at[-1] == '?' || at[-1] == '&')) {
        char *end = at + strcspn(at, "&");

        memmove(at, *end ? end + 1 : end, strlen(*end ? end + 1 : end) + 1);
    }
}

/* Changes the URI so that the client does not look for the members of a replica set, whose
 * addresses bypass the proxy. */
static void stay_at_proxy(char *uri, size_t size)
{
    size_t length;

    drop_option(uri, "replicaSet=");
    drop_option(uri, "directConnection=");
    length = strlen(uri);
    snprintf(uri + length, size - length, "%sdirectConnection=true",
             uri[length - 1] == '?' || uri[length - 1] == '&' ? "" : "&");
}

/* Opens a store through the proxy, with a timeout that is only as long as corrupted messages need.
 * On a slow machine the server may need longer, so the call is repeated. */
static bool open_through(struct wire *wire, const char *uri)
{
    bson_error_t error = {0};
    truce_status status = TRUCE_IO;

    for (int i = 0; i < OPENINGS && status == TRUCE_IO; i++)
        status = truce_store_open(uri, NULL, &wire->through, &error);
    return CHECK_OK(status, error);
}

bool wire_open(struct wire *wire)
{
    char uri[600], through[700];
    const char *path;

    *wire = (struct wire){.direct = server_store()};
    if (strchr(getenv("TRUCE_TEST_MONGODB") ? getenv("TRUCE_TEST_MONGODB") : "", ',')) {
        test_skip("the proxy serves one server, and the URI names several");
        return false;
    }
    if (!CHECK(wire->direct != NULL) || !CHECK(port_of_server() > 0))
        return false;
    wire->proxy = proxy_start(port_of_server());
    if (!CHECK(wire->proxy != NULL))
        return false;
    server_uri(uri, sizeof(uri), "socketTimeoutMS=350&heartbeatFrequencyMS=500");
    path = strchr(uri + strlen("mongodb://"), '/');
    snprintf(through, sizeof(through), "mongodb://127.0.0.1:%d%s", proxy_port(wire->proxy), path);
    stay_at_proxy(through, sizeof(through));
    return open_through(wire, through);
}

void wire_close(struct wire *wire)
{
    truce_store_close(wire->through);
    truce_store_close(wire->direct);
    if (wire->proxy)
        proxy_stop(wire->proxy);
}

void wire_clear(truce_store *store, const char *collection)
{
    truce_write_options all = {.multi = true};
    bson_t *filter = test_bson("{'_id': {'$ne': 'horizon'}}");
    bson_error_t error = {0};

    CHECK_OK(truce_remove(store, collection, filter, &all, NULL, &error), error);
    bson_destroy(filter);
}

/* Ends the transactions of all sessions, as the server does after a minute. The first statement of
 * a transaction may arrive after the driver has ended it, and would block the checks. */
static void end_transactions(void)
{
    mongoc_client_t *client = mongoc_client_new(getenv("TRUCE_TEST_MONGODB"));
    bson_t *command = BCON_NEW("killAllSessions", "[", "]"), reply;

    /* A failure is ignored: some servers do not have the command. */
    (void)!mongoc_client_command_simple(client, "admin", command, NULL, &reply, NULL);
    bson_destroy(&reply);
    bson_destroy(command);
    mongoc_client_destroy(client);
}

/* Runs the operation with a corrupted message n, and checks the result. Returns false if the
 * operation sends fewer messages. */
static bool spoil(struct wire *wire, const struct wire_operation *operation,
                  const struct wire_way *way, uint64_t n)
{
    bson_t *say = way->say ? test_bson(way->say) : NULL;
    bson_t *then = way->then ? test_bson(way->then) : NULL;
    bson_error_t error = {0};
    int before = test_failures();
    truce_status reported;
    bool hit;

    operation->prepare(wire->direct);
    proxy_script(wire->proxy, say, then, way->only);
    proxy_arm(wire->proxy, way->fault, way->direction, n);
    reported = operation->run(wire->through, &error);
    hit = proxy_hit(wire->proxy);
    wire->messages = proxy_count(wire->proxy, TO_SERVER);
    proxy_arm(wire->proxy, PROXY_NOTHING, TO_SERVER, 0);
    proxy_settle(wire->proxy);
    proxy_script(wire->proxy, NULL, NULL, NULL);
    if (say || then || (way->fault == PROXY_DELAY && way->direction == TO_SERVER))
        end_transactions();
    operation->check(wire->direct, reported);
    if (test_failures() > before)
        fprintf(stderr, "    (%s: %s, message %d; reported \"%s\": %s)\n", operation->name,
                way->name, (int)n, truce_status_name(reported), reported ? error.message : "");
    bson_destroy(say);
    bson_destroy(then);
    return hit;
}

/* The combinations of message and way that are run: every `step`-th, beginning with `first`, which
 * depends on the name of the operation. */
struct selection {
    uint64_t step, first, messages;
};

static struct selection select_some(const char *name, uint64_t step, uint64_t messages, size_t ways)
{
    struct selection some = {.step = step, .messages = messages};
    uint64_t all = messages * ways, hash = 5381;

    for (; *name; name++)
        hash = hash * 33 + (uint8_t)*name;
    some.first = hash % (some.step < all ? some.step : all);
    return some;
}

static int spoil_in_way(struct wire *wire, const struct wire_operation *operation,
                        const struct wire_way *way, size_t number, const struct selection *some)
{
    int runs = 0;

    for (uint64_t n = 1; n <= some->messages || some->step == 1; n++) {
        if (!way->only && (number * some->messages + n - 1) % some->step != some->first)
            /* A way with `only` is not sampled: requests of one kind are few. */
            continue;
        if (!spoil(wire, operation, way, n))
            break;
        runs++;
    }
    return runs;
}

void wire_spoil_in(const struct wire_operation *operation, const struct wire_way *ways,
                   size_t count, const char *scale, long step)
{
    static const struct wire_way none = {.name = "nothing"};
    struct wire wire;
    int runs = 0;

    if (!wire_open(&wire)) {
        wire_close(&wire);
        return;
    }
    if ((wire.through->capabilities & operation->needs) == operation->needs) {
        struct selection some;

        /* The handle then has cached what it reads only once. */
        for (int i = 0; i < 2; i++)
            spoil(&wire, operation, &none, 0);
        /* Without messages, the operation does not use the proxy. */
        if (CHECK_INT(wire.messages, >, 0)) {
            some = select_some(operation->name, (uint64_t)test_scale(scale, step), wire.messages,
                               count);
            for (size_t i = 0; i < count && !test_failures(); i++)
                runs += spoil_in_way(&wire, operation, &ways[i], i, &some);
            CHECK_INT(runs, >, 0);
        }
        printf("%s: %d messages corrupted\n", operation->name, runs);
    } else {
        test_skip("the server cannot do this");
    }
    wire_close(&wire);
}

void wire_spoil_all(const struct wire_operation *operation)
{
    wire_spoil_in(operation, network, sizeof network / sizeof *network, "TRUCE_NETWORK_STEP", 5);
}
