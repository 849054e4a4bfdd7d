#include "server/admin/top.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"

#define SLOTS        2048 /* The size of the hash table, a power of 2. */
#define TOP_NAME_MAX 400

enum { TOTAL, READ_LOCK, WRITE_LOCK, QUERIES, GETMORE, INSERT, UPDATE, REMOVE, COMMANDS, KINDS };

static const char *const kind_names[KINDS] = {"total",   "readLock", "writeLock",
                                              "queries", "getmore",  "insert",
                                              "update",  "remove",   "commands"};
static const int kind_of[COUNTED_KINDS] = {INSERT, QUERIES, UPDATE, REMOVE, GETMORE, COMMANDS};

struct used {
    /* "DATABASE.COLLECTION", or NULL in an empty slot. Owned. */
    char *name;
    /* The value of `uses` at the last use. */
    int64_t last;
    struct {
        int64_t ns, count;
    } kinds[KINDS];
};

struct top {
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    int count;
    /* The number of uses of all slots, which orders them by their last use. */
    int64_t uses;
    struct used slots[SLOTS];
};

struct top *top_new(void)
{
    struct top *top = bson_malloc0(sizeof *top);

    pthread_mutex_init(&top->mutex, NULL);
    return top;
}

void top_free(struct top *top)
{
    for (int i = 0; i < SLOTS; i++)
        bson_free(top->slots[i].name);
    pthread_mutex_destroy(&top->mutex);
    bson_free(top);
}

/* ---- the table ------------------------------------------------------------------------------- */

static uint32_t top_slot_of(const char *name)
{
    uint32_t hash = 2166136261u; /* The hash is FNV-1a. */

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return (hash ^ hash >> 16) % SLOTS;
}

/* Returns the slot of the name, or the empty slot for it. */
static struct used *top_find(struct top *top, const char *name)
{
    uint32_t at = top_slot_of(name);

    while (top->slots[at].name && strcmp(top->slots[at].name, name) != 0)
        at = (at + 1) % SLOTS;
    return &top->slots[at];
}

/* Removes an entry, and moves the entries that follow it to the slots where a search finds them. */
static void top_forget(struct top *top, struct used *used)
{
    uint32_t at = (uint32_t)(used - top->slots);

    bson_free(used->name);
    *used = (struct used){0};
    top->count--;
    for (at = (at + 1) % SLOTS; top->slots[at].name; at = (at + 1) % SLOTS) {
        struct used moved = top->slots[at];

        top->slots[at] = (struct used){0};
        *top_find(top, moved.name) = moved;
    }
}

static void top_make_room(struct top *top)
{
    struct used *oldest = NULL;

    if (top->count < TOP_COLLECTIONS_MAX)
        return;
    for (int i = 0; i < SLOTS; i++)
        if (top->slots[i].name && (!oldest || top->slots[i].last < oldest->last))
            oldest = &top->slots[i];
    top_forget(top, oldest);
}

/* Counts a call of the collection in three sums: the total, reads or writes, and its kind. */
static void top_count(struct top *top, const char *name, int kind, bool writes, int64_t ns)
{
    const int kinds[] = {TOTAL, writes ? WRITE_LOCK : READ_LOCK, kind};
    struct used *used = top_find(top, name);

    if (!used->name) {
        top_make_room(top);
        used = top_find(top, name);
        used->name = bson_strdup(name);
        top->count++;
    }
    used->last = ++top->uses;
    for (int i = 0; i < 3; i++) {
        used->kinds[kinds[i]].ns += ns;
        used->kinds[kinds[i]].count++;
    }
}

/* Removes a collection of a database; if `collection` is NULL, removes all of them. */
static void top_drop(struct top *top, const char *database, const char *collection)
{
    size_t length = strlen(database);

    for (int i = 0; i < SLOTS; i++) {
        const char *name = top->slots[i].name;

        while (name && !strncmp(name, database, length) && name[length] == '.' &&
               (!collection || !strcmp(name + length + 1, collection))) {
            top_forget(top, &top->slots[i]);
            name = top->slots[i].name;
        }
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Returns the collection of the call, or NULL if it has none or several. */
static const char *top_collection_of(const struct call *call)
{
    bson_iter_t at;

    if (call->command->counted == COUNTED_GETMORE)
        return bson_iter_init_find(&at, &call->request->body, "collection") &&
                       BSON_ITER_HOLDS_UTF8(&at)
                   ? bson_iter_utf8(&at, NULL)
                   : NULL;
    return call->command->need.kind == NEED_COLLECTION && BSON_ITER_HOLDS_UTF8(&call->value)
               ? bson_iter_utf8(&call->value, NULL)
               : NULL;
}

void top_ran(struct top *top, const struct call *call, int64_t ns)
{
    const uint32_t writing = ACTION_WRITE | ACTION_SHAPE | ACTION_ADMIN;
    const char *collection = top_collection_of(call);
    bool drops = call->command->traits & COMMAND_DROPS;
    char name[TOP_NAME_MAX];

    if (!collection && !drops)
        return;
    pthread_mutex_lock(&top->mutex);
    if (drops)
        top_drop(top, call->database, collection);
    else if (snprintf(name, sizeof name, "%s.%s", call->database, collection) < TOP_NAME_MAX)
        top_count(top, name, kind_of[call->command->counted],
                  (call->command->need.actions & writing) != 0, ns);
    pthread_mutex_unlock(&top->mutex);
}

static void append_used(const struct used *used, bson_t *totals)
{
    bson_t one;

    BSON_APPEND_DOCUMENT_BEGIN(totals, used->name, &one);
    for (int i = 0; i < KINDS; i++)
        BCON_APPEND(&one, kind_names[i], "{", "time", BCON_INT64(used->kinds[i].ns / 1000), "count",
                    BCON_INT64(used->kinds[i].count), "}");
    bson_append_document_end(totals, &one);
}

void top_append(struct top *top, bson_t *totals)
{
    BSON_APPEND_UTF8(totals, "note", "all times in microseconds");
    pthread_mutex_lock(&top->mutex);
    for (int i = 0; i < SLOTS; i++)
        if (top->slots[i].name)
            append_used(&top->slots[i], totals);
    pthread_mutex_unlock(&top->mutex);
}
