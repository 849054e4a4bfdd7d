/*
 * The time of a replica set of one: seconds since 1970 in the upper half, a number within the
 * second below.
 *
 *     server_time    the time that every reply has: it never decreases while the server runs
 *     server_tick    the time of a snapshot; no other snapshot ever has the same time
 *
 * A snapshot's time must not repeat after a restart either: a session would read two snapshots as
 * if they were one. Clocks do not ensure that, as the next server may start within the same
 * second, or with a clock that was set back. So a server reserves times in the store before it
 * gives them to snapshots:
 *
 *     @config.cluster_time    {_id: "reserved", until: Timestamp}
 *
 *     until          ...........U                        times up to U were reserved by some server
 *     reserve        ...........U[======== R seconds ====]U'      this server's from now on
 *
 * Invariants:
 *  1. A tick is greater than every earlier tick of this server.
 *  2. A tick is within a range that this server had reserved on the disk before it gave out the
 *     tick.
 *  3. `until` only grows: a server raises it with a compare-and-set, which fails if another server
 *     was faster. Ranges therefore do not overlap, and no two servers of a store give out the same
 *     tick. A server that starts after another has ended gives out greater ticks.
 *  4. A server's time is not before `until` as it was when the server started.
 *
 * One write serves R seconds of snapshots. A store in memory ends with its server, so its times are
 * never used again. A read-only store reserves nothing: it does not change, so all its snapshots
 * are the same.
 */
#include "base/clock.h"
#include "base/status.h"
#include "engine/documents/open_documents.h"
#include "server/call/shared_state.h"
#include "server/session/change_stream.h"
#include "store/file/file.h"
#include "store/reserved_names.h"

/* The seconds of times that one write reserves. */
#define RESERVED_S 10
/* The seconds by which the time of a reply is behind the clock, unless the feed is later. */
#define BEHIND_S 10

/* ---- now ------------------------------------------------------------------------------------- */

/* These two functions convert between a position in the feed and the time that clients know. */
static uint64_t time_of_position(int64_t at)
{
    int64_t number = at & ((INT64_C(1) << FEED_SECOND_SHIFT) - 1);

    return (uint64_t)(at >> FEED_SECOND_SHIFT) << 32 | (uint64_t)number;
}

static int64_t position_of_time(uint64_t time)
{
    return truce__feed_position((int64_t)(time >> 32), (int64_t)(uint32_t)time);
}

/* Raises the time to at least `least`, and returns it. */
static uint64_t time_pass(struct server *server, uint64_t least)
{
    struct engine *engine = truce__file_engine_or_null(server->store);
    unsigned long long last = atomic_load(&server->time);

    /* Change streams can start at this time, so later entries of the feed must have later times. */
    if (engine)
        return time_of_position(truce__feed_pass(&engine->writer, position_of_time(least)));
    while (least > last && !atomic_compare_exchange_weak(&server->time, &last, least))
        ;
    return least > last ? least : last;
}

uint64_t server_time(struct server *server)
{
    struct engine *engine = truce__file_engine_or_null(server->store);
    int64_t ms = truce__clock_wall_ms();

    if (engine)
        return time_of_position(
            truce__feed_pass(&engine->writer, truce__feed_position(ms / 1000 - BEHIND_S, 0)));
    return time_pass(server, (uint64_t)(ms / 1000) << 32 | (uint64_t)(ms % 1000 + 1));
}

/* ---- reserving ------------------------------------------------------------------------------- */

/* Reads the end of the reserved times. `*until` is 0 if no server has reserved any. */
static truce_status read_reserved(struct server *server, uint64_t *until, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8("reserved")), found;
    uint32_t seconds = 0, number = 0;
    bson_iter_t at;
    truce_status status = truce_find_one(server->store, CLUSTER_TIME, filter, NULL, &found, error);

    if (!status && bson_iter_init_find(&at, &found, "until") && BSON_ITER_HOLDS_TIMESTAMP(&at))
        bson_iter_timestamp(&at, &seconds, &number);
    *until = (uint64_t)seconds << 32 | number;
    bson_destroy(filter);
    bson_destroy(&found);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Advances `until` from `was`. Sets *moved to false if another server has advanced it. */
static truce_status move_reserved(struct server *server, uint64_t was, uint64_t until, bool *moved,
                                  bson_error_t *error)
{
    truce_write_result result = {0};
    truce_status status;
    bson_t *filter, *document;

    if (!was) {
        document = BCON_NEW("_id", BCON_UTF8("reserved"), "until",
                            BCON_TIMESTAMP((uint32_t)(until >> 32), (uint32_t)until));
        status = truce_insert(server->store, CLUSTER_TIME, document, NULL, error);
        bson_destroy(document);
        *moved = !status;
        return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
    }
    filter = BCON_NEW("_id", BCON_UTF8("reserved"), "until",
                      BCON_TIMESTAMP((uint32_t)(was >> 32), (uint32_t)was));
    document = BCON_NEW("$set", "{", "until",
                        BCON_TIMESTAMP((uint32_t)(until >> 32), (uint32_t)until), "}");
    status = truce_update(server->store, CLUSTER_TIME, filter, document, NULL, &result, error);
    *moved = !status && result.matched;
    bson_destroy(filter);
    bson_destroy(document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Reserves a range of times that begins at `*time` or after all reserved times, and sets `*time` to
 * its first time. */
static truce_status cluster_time_reserve(struct server *server, uint64_t *time, bson_error_t *error)
{
    struct engine *engine = truce__file_engine_or_null(server->store);
    bool moved = engine && engine->read_only;
    truce_status status = TRUCE_OK;

    if (moved)
        server->ticks_until = UINT64_MAX;
    while (!status && !moved) {
        uint64_t was;

        status = read_reserved(server, &was, error);
        if (status)
            return status;
        if (*time <= was)
            *time = was + 1;
        server->ticks_until = *time + ((uint64_t)RESERVED_S << 32);
        status = move_reserved(server, was, server->ticks_until, &moved, error);
    }
    if (status)
        server->ticks_until = 0;
    else
        (void)time_pass(server, *time);
    return status;
}

truce_status server_tick(struct server *server, uint64_t *time, bson_error_t *error)
{
    *time = time_pass(server, server_time(server) + 1);
    return *time <= server->ticks_until ? TRUCE_OK : cluster_time_reserve(server, time, error);
}

truce_status server_start_time(struct server *server, bson_error_t *error)
{
    uint64_t until;
    truce_status status = read_reserved(server, &until, error);

    if (!status && until)
        (void)time_pass(server, until);
    return status;
}
