/* Examines a deployment of MongoDB: its versions, abilities, durability, members, and clocks. Field
 * names are those of the server's replies (see store/mongodb/mongo_doctor_facts.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "maintenance/doctor.h"

/* A larger difference between the clocks of the machine and of a server is reported. */
#define SKEW_MS_MOST 1000
/* A member whose last write is older than the newest one by more is reported. */
#define LAG_MS_MOST 10000
/* A server that accepts fewer further connections is reported. */
#define CONNECTIONS_LEAST 100
/* The wire version of MongoDB 3.6. */
#define WIRE_LEAST 6
/* The server's error code for a command that the user may not run. */
#define UNAUTHORIZED 13

static const char *const host = "the server";

static bool is_deployment(const struct doctor *doctor, const char *name)
{
    return !strcmp(truce__doctor_text(doctor->facts, "deployment", ""), name);
}

static bool doctor_store_can(const struct doctor *doctor, const char *capability)
{
    bson_iter_t list, iter;

    if (!truce__doctor_fact(doctor->facts, "capabilities", &list) ||
        !bson_iter_recurse(&list, &iter))
        return false;
    while (bson_iter_next(&iter))
        if (BSON_ITER_HOLDS_UTF8(&iter) && !strcmp(bson_iter_utf8(&iter, NULL), capability))
            return true;
    return false;
}

/* ---- versions, capabilities ----------------------------------------------------------------- */

/* Examines the version of the server, and whether its featureCompatibilityVersion is older. */
static void server_check_version(struct doctor *doctor)
{
    const char *version = truce__doctor_text(doctor->facts, "build.version", "?");
    const char *feature =
        truce__doctor_text(doctor->facts, "feature.featureCompatibilityVersion.version", NULL);
    size_t length = feature ? strlen(feature) : 0;

    if (truce__doctor_number(doctor->facts, "hello.maxWireVersion", WIRE_LEAST) < WIRE_LEAST)
        truce__doctor_report(doctor, DOCTOR_ERROR, "version", host, "use MongoDB 3.6 or newer",
                             "version %s is too old", version);
    if (feature && (strncmp(feature, version, length) != 0 || version[length] != '.'))
        truce__doctor_report(doctor, DOCTOR_WARNING, "feature-version", host,
                             "run setFeatureCompatibilityVersion once every member has the new "
                             "version",
                             "version %s behaves like %s (featureCompatibilityVersion)", version,
                             feature);
}

/* Reports abilities that the server lacks and that truce then replaces by slower or weaker ones. */
static void diagnose_capabilities(struct doctor *doctor)
{
    if (!doctor_store_can(doctor, "transactions")) {
        if (is_deployment(doctor, "standalone"))
            truce__doctor_report(
                doctor, DOCTOR_NOTE, "transactions", host,
                "make it a replica set of one member: commits then take fewer round "
                "trips, and clients can watch changes",
                "a standalone server has no transactions: commits use truce's journal");
        else
            truce__doctor_report(
                doctor, DOCTOR_WARNING, "transactions", host,
                "use MongoDB 4.0 (replica set) or 4.2 (sharded) or newer, with its "
                "featureCompatibilityVersion",
                "its transactions do not work: commits use truce's journal");
    }
    if (!doctor_store_can(doctor, "updates by pipelines"))
        truce__doctor_report(
            doctor, DOCTOR_NOTE, "pipeline-updates", host, "use MongoDB 4.2 or newer",
            "it has no updates by pipelines: ordered sets take two round trips for "
            "some operations");
    if (!is_deployment(doctor, "standalone") &&
        truce__doctor_number(doctor->facts, "hello.logicalSessionTimeoutMinutes", 0) <= 0)
        truce__doctor_report(doctor, DOCTOR_WARNING, "sessions", host,
                             "upgrade every member, or remove old members",
                             "it has no sessions: writes are not retried when a primary steps "
                             "down");
}

/* ---- durability ----------------------------------------------------------------------------- */

/* Examines whether an acknowledged write can be lost: the storage engine, the journal, and majority
 * reads. */
static void diagnose_storage(struct doctor *doctor)
{
    const char *engine = truce__doctor_text(doctor->facts, "status.storageEngine.name", "");

    if (!doctor_store_can(doctor, "durable writes") &&
        !truce__doctor_flag(doctor->facts, "read_only", false))
        truce__doctor_report(doctor, DOCTOR_NOTE, "durability", host, "open it for writing",
                             "it is read-only, so the durability of writes was not tested");
    if (!truce__doctor_flag(doctor->facts, "status.storageEngine.persistent", true) ||
        !strcmp(engine, "inMemory") || !strcmp(engine, "ephemeralForTest"))
        truce__doctor_report(doctor, DOCTOR_ERROR, "durability", host,
                             "use a storage engine that writes to disk",
                             "the storage engine %s keeps all data in memory: acknowledged writes "
                             "are lost when it ends",
                             engine);
    if (!truce__doctor_flag(doctor->facts, "options.parsed.storage.journal.enabled", true))
        truce__doctor_report(doctor, DOCTOR_ERROR, "durability", host,
                             "remove storage.journal.enabled: false from its configuration",
                             "it runs without a journal: acknowledged writes can be lost");
    if (!is_deployment(doctor, "standalone") &&
        !truce__doctor_flag(doctor->facts, "status.storageEngine.supportsCommittedReads", true))
        truce__doctor_report(doctor, DOCTOR_ERROR, "read-concern", host,
                             "remove replication.enableMajorityReadConcern: false from its "
                             "configuration",
                             "it has no majority reads: a read may return data that is rolled "
                             "back");
}

/* Examines the default write concern, which applies to other programs that write to the same
 * collections. */
static void diagnose_defaults(struct doctor *doctor)
{
    bson_iter_t w;

    if (truce__doctor_fact(doctor->facts, "defaults.defaultWriteConcern.w", &w) &&
        BSON_ITER_HOLDS_NUMBER(&w) && bson_iter_as_int64(&w) < 2)
        truce__doctor_report(
            doctor, DOCTOR_NOTE, "default-write-concern", host,
            "run setDefaultRWConcern with {w: \"majority\"}",
            "truce writes with the majority. Other programs that write here use w: "
            "%" PRId64 " unless they set another value",
            bson_iter_as_int64(&w));
    if (!truce__doctor_flag(doctor->facts, "config.config.writeConcernMajorityJournalDefault",
                            true))
        truce__doctor_report(
            doctor, DOCTOR_NOTE, "default-write-concern", host,
            "set writeConcernMajorityJournalDefault: true in the replica set's "
            "configuration",
            "truce writes with the journal. Other programs' majority writes do not "
            "wait for it");
}

/* ---- members -------------------------------------------------------------------------------- */

struct members {
    /* The number of members with a vote, of arbiters, and of members with a vote and data. */
    int64_t voting, arbiters, bearing;
};

/* Counts the members of the replica set by their votes and data. Counts none if its configuration
 * is unknown. */
static void count_members(const struct doctor *doctor, struct members *members)
{
    bson_iter_t list, iter, field;

    if (!truce__doctor_fact(doctor->facts, "config.config.members", &list) ||
        !bson_iter_recurse(&list, &iter))
        return;
    while (bson_iter_next(&iter)) {
        int64_t votes = 1;
        bool arbiter = false;

        if (!bson_iter_recurse(&iter, &field))
            continue;
        while (bson_iter_next(&field)) {
            if (!strcmp(bson_iter_key(&field), "votes"))
                votes = bson_iter_as_int64(&field);
            else if (!strcmp(bson_iter_key(&field), "arbiterOnly"))
                arbiter = bson_iter_as_bool(&field);
        }
        members->voting += votes > 0;
        members->arbiters += arbiter;
        members->bearing += votes > 0 && !arbiter;
    }
}

/* Examines whether the replica set survives the failure of a member. */
static void diagnose_config(struct doctor *doctor)
{
    const char *name = truce__doctor_text(doctor->facts, "hello.setName", "the replica set");
    struct members members = {0};

    count_members(doctor, &members);
    if (!members.voting)
        return;
    if (members.bearing == 1 && members.voting == 1)
        truce__doctor_report(
            doctor, DOCTOR_NOTE, "members", name, "add two members",
            "the replica set has one member: if it fails, no other member takes over");
    else if (members.arbiters && members.bearing - 1 < members.voting / 2 + 1)
        truce__doctor_report(doctor, DOCTOR_WARNING, "members", name,
                             "replace the arbiter with a member that has data",
                             "%" PRId64 " of %" PRId64 " voting members have data: if one of them "
                             "fails, no majority can acknowledge a write, and every write waits",
                             members.bearing, members.voting);
    else if (members.voting % 2 == 0)
        truce__doctor_report(doctor, DOCTOR_NOTE, "members", name, "add or remove a voting member",
                             "%" PRId64 " members vote: one fewer would tolerate as many failures",
                             members.voting);
}

struct member {
    const char *name, *state;
    bool healthy;
    int64_t optime_ms;
};

/* Reads the state of one member from replSetGetStatus. */
static struct member doctor_check_member(const bson_iter_t *iter)
{
    struct member member = {.name = "?", .state = "", .healthy = true};
    bson_iter_t field;

    if (!bson_iter_recurse(iter, &field))
        return member;
    while (bson_iter_next(&field)) {
        const char *key = bson_iter_key(&field);

        if (!strcmp(key, "name") && BSON_ITER_HOLDS_UTF8(&field))
            member.name = bson_iter_utf8(&field, NULL);
        else if (!strcmp(key, "stateStr") && BSON_ITER_HOLDS_UTF8(&field))
            member.state = bson_iter_utf8(&field, NULL);
        else if (!strcmp(key, "health"))
            member.healthy = bson_iter_as_bool(&field);
        else if (!strcmp(key, "optimeDate") && BSON_ITER_HOLDS_DATE_TIME(&field))
            member.optime_ms = bson_iter_date_time(&field);
    }
    return member;
}

/* Reports members of the replica set that cannot be reached or lag behind the primary. */
static void diagnose_members(struct doctor *doctor)
{
    bson_iter_t list, iter;
    int64_t newest_ms = 0;

    if (!truce__doctor_fact(doctor->facts, "replica.members", &list))
        return;
    if (bson_iter_recurse(&list, &iter))
        while (bson_iter_next(&iter)) {
            struct member member = doctor_check_member(&iter);

            if (!strcmp(member.state, "PRIMARY"))
                newest_ms = member.optime_ms;
        }
    if (!bson_iter_recurse(&list, &iter))
        return;
    while (bson_iter_next(&iter)) {
        struct member member = doctor_check_member(&iter);

        if (!member.healthy)
            truce__doctor_report(doctor, DOCTOR_WARNING, "members", member.name,
                                 "start it, or remove it from the replica set",
                                 "this member is not reachable (%s)",
                                 *member.state ? member.state : "unknown");
        else if (!strcmp(member.state, "SECONDARY") && newest_ms &&
                 newest_ms - member.optime_ms > LAG_MS_MOST)
            truce__doctor_report(
                doctor, DOCTOR_WARNING, "lag", member.name,
                "find the cause: its disk, its network, an index build",
                "this member is %" PRId64
                " s behind the primary: a write that needs it for a majority waits that long",
                (newest_ms - member.optime_ms) / 1000);
    }
}

/* ---- clocks, connections, space ------------------------------------------------------------- */

/* Examines the difference between the clocks. The time of the message counts in favor of the
 * server. */
static void diagnose_clock(struct doctor *doctor)
{
    int64_t server = truce__doctor_number(doctor->facts, "clock.server", 0);
    int64_t before = truce__doctor_number(doctor->facts, "clock.before", 0);
    int64_t after = truce__doctor_number(doctor->facts, "clock.after", 0);
    int64_t ahead = server > after ? server - after : server < before ? server - before : 0;

    if (!server || (ahead <= SKEW_MS_MOST && ahead >= -SKEW_MS_MOST))
        return;
    truce__doctor_report(
        doctor, DOCTOR_WARNING, "clock", host,
        "synchronize both clocks with the same servers (NTP)",
        "its clock is %" PRId64 ".%03d s %s this machine's: leases end too early or too "
        "late, so live commits are undone, or processes wait for dead ones",
        (ahead < 0 ? -ahead : ahead) / 1000, (int)((ahead < 0 ? -ahead : ahead) % 1000),
        ahead < 0 ? "behind" : "ahead of");
}

/* Examines the free connections and the free space of the server. */
static void diagnose_resources(struct doctor *doctor)
{
    int64_t available =
        truce__doctor_number(doctor->facts, "status.connections.available", INT64_MAX);
    int64_t total = truce__doctor_number(doctor->facts, "space.fsTotalSize", 0);
    int64_t free = total - truce__doctor_number(doctor->facts, "space.fsUsedSize", 0);

    if (available > 0 && available < CONNECTIONS_LEAST)
        truce__doctor_report(doctor, DOCTOR_WARNING, "connections", host,
                             "raise net.maxIncomingConnections, or lower maxPoolSize in the URIs",
                             "it has room for %s; a store takes up to 100",
                             PLURAL(available, "more connection", "more connections"));
    if (total > 0 && free < total / 20)
        truce__doctor_report(doctor, DOCTOR_WARNING, "disk-space", host, "free space on its disk",
                             "%" PRId64 " MB of its disk are free, less than a twentieth",
                             free / 1048576);
}

/* Reports the facts that the user may not read. */
static void diagnose_refusals(struct doctor *doctor)
{
    static const char *const names[] = {"build",   "options", "status", "defaults", "space",
                                        "replica", "config",  "shards", "sharded",  "feature"};
    char path[40];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s.code", names[i]);
        if (truce__doctor_number(doctor->facts, path, 0) != UNAUTHORIZED)
            continue;
        snprintf(path, sizeof path, "%s.refused", names[i]);
        truce__doctor_report(
            doctor, DOCTOR_NOTE, "rights", names[i],
            "give the user of the URI the role clusterMonitor so that it can be examined", "%.300s",
            truce__doctor_text(doctor->facts, path, "refused"));
    }
}

void truce__doctor_server(struct doctor *doctor)
{
    if (strcmp(truce__doctor_text(doctor->facts, "store", ""), "mongodb") != 0)
        return;
    server_check_version(doctor);
    diagnose_capabilities(doctor);
    diagnose_storage(doctor);
    diagnose_defaults(doctor);
    diagnose_config(doctor);
    diagnose_members(doctor);
    diagnose_clock(doctor);
    diagnose_resources(doctor);
    diagnose_refusals(doctor);
}
