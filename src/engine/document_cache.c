/*
 * The cache of documents.
 *
 * A lookup through SQLite begins a snapshot (file locks). Every commit of another connection
 * empties the page cache of the reader's connection, so the lookup reads every page on its way down
 * again. A commit over two documents spent a third of its processor time on its two reads.
 *
 *     shard     mutex, version, hash table of entries, list from the newest to the oldest
 *     entry     (collection, key of the _id) -> row, body;  known | changing
 *
 * An entry is `changing` if the running transaction has changed it: only the leader may read it,
 * and readers go to the file.
 *
 *     miss    lock; not found: remember the shard's version; unlock
 *             begin a snapshot of the file; look up
 *     fill    lock; same version? then insert; unlock
 *
 *     change  lock; version + 1; entry := changing, with the new body; unlock
 *     COMMIT  (now the file changes for readers)
 *     end     lock; entry := known; unlock                     (rolled back: the entry is freed)
 *
 * Invariants:
 *  1. A known entry shows the same document as a snapshot of the file that begins now. Two things
 *     are required. No other process has begun a commit unknown to this cache (`seen` == `begun`).
 *     And no program has made one, with truce or without it (commits: `known` == `now`).
 *  2. A document changes in the file only while its entry is changing or the cache is closed. A
 *     reader that finds a known entry finds it before the commit became visible, or finds only
 *     committed data after it.
 *  3. A fill inserts what was read in a snapshot that began after the miss. At the miss the
 *     document was not changing, and no document of its shard has begun to change since. No commit
 *     of this process is therefore between the snapshot and the fill. If a commit of another
 *     process is, invariant 1 prevents readers from finding the entry before it is dropped.
 *  4. A thread that compares `seen` and `begun` does so under the mutex of a shard, and reads
 *     `seen` first; the same holds for `known` and `now`. `seen` and `known` change only after
 *     every shard was emptied (begin), or for a commit of this process that directly follows the
 *     known ones (commit).
 *  5. Entries that are changing are never evicted.
 *  6. Each number of the table `promises`, which all processes share, is at least the number of the
 *     last promised commit (durable.h) that changed, inserted, or removed a document with that
 *     hash. The committing process sets it before the commit. A reader that takes a document from a
 *     known entry, or from a snapshot older than its lookup in the table, waits for that number and
 *     for no other commit. (Programs without truce promise nothing.)
 *  7. Transactions of this process that may change the file are counted: `started` before their
 *     changes can be visible, `ended` when they are visible. `since` of an entry is at least the
 *     number of the last transaction that changed its document. A snapshot that began when `ended`
 *     was n therefore shows the document of a known entry whose `since` is n or less. The last
 *     change is in the snapshot, and later changes were not visible yet. Commits of other processes
 *     are counted when they are noticed, before an entry that shows them is inserted (begin).
 *
 * An insert changes no entry: a missing document cannot be in the cache. If the same transaction
 * removed the document before, the entry exists already, without a body.
 *
 * Other processes increment `begun` before their commits (change_notify.c). A process that only
 * reads never holds the lock and cannot know whether another process is inside a commit. Therefore
 * it never uses its cache: `seen` starts as a number that differs from `begun`. If two processes
 * alternate, each empties its cache when it acquires the lock, and is as fast as without a cache.
 *
 * While the cache is full, a document that was read is inserted one time in four: among a million
 * documents, a read then takes 7% less processor time.
 *
 * A commit that the disk refused frees its entries; the file shows the old documents.
 */
#include "engine/document_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/limits.h"

/* The number of parts of the cache, each of which has a mutex. */
#define SHARDS 64
/* The approximate size of an entry in bytes. A shard has one bucket for each entry that fits. */
#define BUCKET 512
/* The maximum number of changes in a transaction. With more, the cache is closed until the
 * transaction ends. */
#define CHANGES_MAX 16384
/* While a shard is full, one of this many documents that were read displaces others. Inserting a
 * document and evicting another costs time, and a scan would displace all documents in use. */
#define ADMITTED_ONE_IN 4

struct entry {
    /* The next entry of the same bucket. */
    struct entry *next;
    /* The neighbors in the list from `newest` to `oldest` of the shard. */
    struct entry *newer, *older;
    uint64_t hash;
    /* The row of the document in the table of its collection. */
    int64_t row;
    /* The body. NULL if the document was removed, is too large, or is unknown (truce__cache_doubt);
     * the entry is then changing. */
    uint8_t *body;
    /* The number of the last transaction that changed the document, or a larger one (invariant
     * 7). */
    uint64_t since;
    uint32_t body_size, body_room;
    uint32_t name_size, key_size;
    /* The running transaction has changed the document. */
    bool changing;
    /* A lookup has found the entry since it was added or last moved to the newest end. */
    bool used;
    /* The name of the collection, then the key of the _id. */
    uint8_t name_and_key[];
};

struct shard {
    /* Guards the fields below, and the entries of the shard. */
    pthread_mutex_t mutex;
    /* Changes when a document of the shard begins to change (invariant 3). */
    uint64_t version;
    /* The number and the bytes of the entries, and the maximum of the bytes. */
    size_t count, bytes, room;
    /* The number of documents that were read while the shard was full. Every ADMITTED_ONE_IN-th is
     * inserted. */
    unsigned candidates;
    /* The number of buckets minus one. The number of buckets is a power of two. */
    uint64_t mask;
    struct entry *newest, *oldest;
    /* The hash table, or NULL before the first entry. */
    struct entry **buckets;
};

struct cache {
    /* The number of commits that have begun and the promises, which all processes share, and the
     * counters of the writing connection. */
    const atomic_uint *begun;
    struct lock_promises *promises;
    const struct kv_commits *commits;
    /* The value of `begun` that this cache has accounted for (invariants 1 and 4). */
    atomic_uint seen;
    /* The cache is closed until the running transaction ends: no lookup uses it. */
    atomic_bool closed;
    /* Transactions that may change the file (invariant 7). */
    atomic_ullong started, ended;
    /* The entries that are changing. Used by the leader. */
    struct entry **changes;
    size_t changes_count, changes_room;
    /* The hashes of all documents that the transaction has changed. Used by the leader. */
    uint64_t *hashes;
    size_t hashes_count, hashes_room;
    struct shard shards[SHARDS];
};

/* ---- names ---------------------------------------------------------------------------------- */

struct name {
    const char *collection;
    uint32_t size;
    struct bytes key;
    uint64_t hash;
};

/* Adds bytes to a hash. */
static uint64_t cache_mix(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t word;

    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
        hash ^= hash >> 32;
    }
    word = size;
    memcpy(&word, bytes, size);
    hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ hash >> 29;
}

static struct name cache_name_of(const struct cache *cache, const char *collection,
                                 struct bytes key)
{
    struct name name = {.collection = collection, .size = (uint32_t)strlen(collection), .key = key};

    name.hash =
        cache_mix(cache_mix(cache->promises->seed, collection, name.size), key.data, key.size);
    return name;
}

static struct shard *shard_of(struct cache *cache, uint64_t hash)
{
    return &cache->shards[hash >> 32 & (SHARDS - 1)];
}

static struct entry **cache_bucket_of(struct shard *shard, uint64_t hash)
{
    return &shard->buckets[hash & shard->mask];
}

static struct entry *cache_find(struct shard *shard, const struct name *name)
{
    struct entry *entry = shard->buckets ? *cache_bucket_of(shard, name->hash) : NULL;

    while (entry && (entry->hash != name->hash || entry->name_size != name->size ||
                     entry->key_size != name->key.size ||
                     memcmp(entry->name_and_key, name->collection, name->size) != 0 ||
                     memcmp(entry->name_and_key + name->size, name->key.data, name->key.size) != 0))
        entry = entry->next;
    return entry;
}

/* ---- entries of a shard, under its mutex ---------------------------------------------------- */

static size_t cache_bytes_of(const struct entry *entry)
{
    return sizeof *entry + entry->name_size + entry->key_size + entry->body_room;
}

static void list_add(struct shard *shard, struct entry *entry)
{
    entry->newer = NULL;
    entry->older = shard->newest;
    if (shard->newest)
        shard->newest->newer = entry;
    else
        shard->oldest = entry;
    shard->newest = entry;
}

static void list_remove(struct shard *shard, struct entry *entry)
{
    *(entry->newer ? &entry->newer->older : &shard->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &shard->oldest) = entry->newer;
}

static void cache_drop(struct shard *shard, struct entry *entry)
{
    struct entry **link = cache_bucket_of(shard, entry->hash);

    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    list_remove(shard, entry);
    shard->bytes -= cache_bytes_of(entry);
    shard->count--;
    bson_free(entry->body);
    bson_free(entry);
}

/* Makes room for `bytes`. Evicts the oldest entries, but moves an entry that was used, or that is
 * changing, to the newest end of the list (the CLOCK algorithm). Returns false if there is no
 * room. */
static bool cache_make_room(struct shard *shard, size_t bytes)
{
    for (size_t left = 2 * shard->count; left && shard->bytes + bytes > shard->room; left--) {
        struct entry *entry = shard->oldest;

        if (!entry->changing && !entry->used) {
            cache_drop(shard, entry);
            continue;
        }
        entry->used = false;
        list_remove(shard, entry);
        list_add(shard, entry);
    }
    return shard->bytes + bytes <= shard->room;
}

/* Adds an entry without a body for a document to the shard. The mutex of the shard must be held. */
static struct entry *cache_add(struct shard *shard, const struct name *name)
{
    struct entry *entry = bson_malloc0(sizeof *entry + name->size + name->key.size);

    if (!shard->buckets)
        shard->buckets = bson_malloc0((shard->mask + 1) * sizeof *shard->buckets);
    entry->hash = name->hash;
    entry->name_size = name->size;
    entry->key_size = (uint32_t)name->key.size;
    memcpy(entry->name_and_key, name->collection, name->size);
    memcpy(entry->name_and_key + name->size, name->key.data, name->key.size);
    entry->next = *cache_bucket_of(shard, name->hash);
    *cache_bucket_of(shard, name->hash) = entry;
    list_add(shard, entry);
    shard->bytes += cache_bytes_of(entry);
    shard->count++;
    return entry;
}

/* Replaces the body of an entry; an empty body means none. Uses the memory of the old body again
 * unless it is too small or more than twice as large. Called under the mutex of the shard. */
static void set_body(struct shard *shard, struct entry *entry, int64_t row, struct bytes body)
{
    shard->bytes -= entry->body_room;
    if (!body.size || entry->body_room < body.size || entry->body_room > 2 * body.size) {
        bson_free(entry->body);
        entry->body = body.size ? bson_malloc(body.size) : NULL;
        entry->body_room = (uint32_t)body.size;
    }
    shard->bytes += entry->body_room;
    if (body.size)
        memcpy(entry->body, body.data, body.size);
    entry->body_size = (uint32_t)body.size;
    entry->row = row;
}

static void empty_shard(struct shard *shard)
{
    pthread_mutex_lock(&shard->mutex);
    shard->version++;
    while (shard->oldest)
        cache_drop(shard, shard->oldest);
    pthread_mutex_unlock(&shard->mutex);
}

static void cache_clear(struct cache *cache)
{
    truce_assert(!cache->changes_count);
    for (int i = 0; i < SHARDS; i++)
        empty_shard(&cache->shards[i]);
}

/* ---- making and freeing --------------------------------------------------------------------- */

static void shard_init(struct shard *shard, size_t room)
{
    pthread_mutex_init(&shard->mutex, NULL);
    shard->room = room;
    while ((shard->mask + 1) * BUCKET < room)
        shard->mask = 2 * shard->mask + 1;
}

struct cache *truce__cache_new(const atomic_uint *begun, struct lock_promises *promises,
                               const struct kv_commits *commits, uint64_t bytes)
{
    struct cache *cache = bson_malloc0(sizeof *cache);

    cache->begun = begun;
    cache->promises = promises;
    cache->commits = commits;
    atomic_init(&cache->seen, atomic_load(begun) - 1);
    for (int i = 0; i < SHARDS; i++)
        shard_init(&cache->shards[i], bytes / SHARDS);
    return cache;
}

void truce__cache_free(struct cache *cache)
{
    if (!cache)
        return;
    cache_clear(cache);
    for (int i = 0; i < SHARDS; i++) {
        bson_free(cache->shards[i].buckets);
        pthread_mutex_destroy(&cache->shards[i].mutex);
    }
    bson_free(cache->changes);
    bson_free(cache->hashes);
    bson_free(cache);
}

/* ---- readers -------------------------------------------------------------------------------- */

/* Returns whether known entries show what the file shows (invariant 1). Called under the mutex of a
 * shard (invariant 4). */
static bool cache_is_current(const struct cache *cache)
{
    unsigned seen = atomic_load(&cache->seen), known = atomic_load(&cache->commits->known);

    /* Invariant 1. */
    return !atomic_load(&cache->closed) && seen == atomic_load(cache->begun) &&
           known == atomic_load(cache->commits->now);
}

/* Returns a number that is at least that of the last promised commit that wrote a document with
 * this hash (invariant 6). Called for a known entry or after a snapshot began: the commits that it
 * shows have been recorded. */
static uint64_t promised_of(const struct cache *cache, uint64_t hash)
{
    uint64_t one = atomic_load(&cache->promises->of[hash % PROMISES]);
    uint64_t all = atomic_load(&cache->promises->all);

    return one > all ? one : all;
}

uint64_t truce__cache_promised(const struct cache *cache, const char *collection, struct bytes key)
{
    return promised_of(cache, cache_name_of(cache, collection, key).hash);
}

/* Also serves truce__cache_get, which needs no snapshot: `snapshot` is then the largest number
 * (invariant 7). */
bool truce__cache_view(struct cache *cache, uint64_t snapshot, const char *collection,
                       struct bytes key, struct buffer *body, struct cache_lookup *lookup)
{
    struct name name = cache_name_of(cache, collection, key);
    struct shard *shard = shard_of(cache, name.hash);
    struct entry *entry = NULL;
    bool found = false;

    *lookup = (struct cache_lookup){0};
    if (key.size > CACHE_KEY_MAX)
        return false;
    pthread_mutex_lock(&shard->mutex);
    lookup->version = shard->version;
    lookup->may_fill = cache_is_current(cache);
    if (lookup->may_fill)
        entry = cache_find(shard, &name);
    /* Invariants 2 and 3. */
    if (entry && entry->changing)
        lookup->may_fill = false;
    else if (entry && entry->since <= snapshot) {
        if (body)
            truce__buffer_append(body, entry->body, entry->body_size);
        lookup->promised = promised_of(cache, name.hash);
        entry->used = true;
        found = true;
    }
    pthread_mutex_unlock(&shard->mutex);
    return found;
}

bool truce__cache_get(struct cache *cache, const char *collection, struct bytes key,
                      struct buffer *body, struct cache_lookup *lookup)
{
    return truce__cache_view(cache, UINT64_MAX, collection, key, body, lookup);
}

uint64_t truce__cache_snapshot(struct cache *cache)
{
    return atomic_load(&cache->ended);
}

/* Returns whether a document of this size fits, or is one of those that displace others. */
static bool cache_admits(struct shard *shard, size_t bytes)
{
    return shard->bytes + bytes <= shard->room || ++shard->candidates % ADMITTED_ONE_IN == 0;
}

/* Inserts a document that was read from the file. The last transaction that changed it has started,
 * so `started` is at least its number (invariant 7). */
static void cache_put_in(struct cache *cache, struct shard *shard, const struct name *name,
                         int64_t row, struct bytes body)
{
    struct entry *entry = cache_add(shard, name);

    entry->since = atomic_load(&cache->started);
    set_body(shard, entry, row, body);
}

void truce__cache_fill(struct cache *cache, const char *collection, struct bytes key,
                       const struct cache_lookup *lookup, int64_t row, struct bytes body)
{
    struct name name = cache_name_of(cache, collection, key);
    struct shard *shard = shard_of(cache, name.hash);
    size_t needed = sizeof(struct entry) + name.size + key.size + body.size;

    if (!lookup->may_fill || body.size > CACHE_BODY_MAX)
        return;
    pthread_mutex_lock(&shard->mutex);
    /* Invariant 3. */
    if (shard->version == lookup->version && cache_admits(shard, needed) &&
        !cache_find(shard, &name) && cache_make_room(shard, needed))
        cache_put_in(cache, shard, &name, row, body);
    pthread_mutex_unlock(&shard->mutex);
}

/* ---- for the leader of the writer ----------------------------------------------------------- */

void truce__cache_begin(struct cache *cache, bool foreign)
{
    unsigned begun = atomic_load(cache->begun);

    truce_assert(!cache->changes_count && !atomic_load(&cache->closed));
    /* Invariant 4. */
    if (atomic_load(&cache->seen) == begun && !foreign)
        return;
    cache_clear(cache);
    /* Nothing is inserted before `seen` changes (invariant 7). */
    atomic_fetch_add(&cache->started, 1);
    atomic_store(&cache->seen, begun);
}

bool truce__cache_peek(struct cache *cache, const char *collection, struct bytes key, int64_t *row,
                       struct buffer *body)
{
    struct name name = cache_name_of(cache, collection, key);
    struct shard *shard = shard_of(cache, name.hash);
    struct entry *entry = NULL;
    bool found;

    if (atomic_load(&cache->closed) || key.size > CACHE_KEY_MAX)
        return false;
    pthread_mutex_lock(&shard->mutex);
    entry = cache_find(shard, &name);
    found = entry && entry->body;
    if (found) {
        truce__buffer_append(body, entry->body, entry->body_size);
        *row = entry->row;
        entry->used = true;
    }
    pthread_mutex_unlock(&shard->mutex);
    return found;
}

static void note_change(struct cache *cache, struct entry *entry)
{
    if (cache->changes_count == cache->changes_room) {
        cache->changes_room = cache->changes_room ? 2 * cache->changes_room : 64;
        cache->changes = bson_realloc(cache->changes, cache->changes_room * sizeof *cache->changes);
    }
    cache->changes[cache->changes_count++] = entry;
    entry->changing = true;
}

static void note_hash(struct cache *cache, uint64_t hash)
{
    if (cache->hashes_count == CHANGES_MAX)
        truce__cache_close(cache);
    if (atomic_load(&cache->closed))
        return;
    if (cache->hashes_count == cache->hashes_room) {
        cache->hashes_room = cache->hashes_room ? 2 * cache->hashes_room : 64;
        cache->hashes = bson_realloc(cache->hashes, cache->hashes_room * sizeof *cache->hashes);
    }
    cache->hashes[cache->hashes_count++] = hash;
}

void truce__cache_insert(struct cache *cache, const char *collection, struct bytes key)
{
    note_hash(cache, cache_name_of(cache, collection, key).hash);
}

void truce__cache_change(struct cache *cache, const char *collection, struct bytes key, int64_t row,
                         struct bytes body)
{
    struct name name = cache_name_of(cache, collection, key);
    struct shard *shard = shard_of(cache, name.hash);
    struct entry *entry;

    note_hash(cache, name.hash);
    if (key.size > CACHE_KEY_MAX || atomic_load(&cache->closed))
        return;
    pthread_mutex_lock(&shard->mutex);
    /* A lookup that missed this document before must not insert it. */
    shard->version++;
    entry = cache_find(shard, &name);
    if (!entry)
        entry = cache_add(shard, &name);
    if (!entry->changing)
        note_change(cache, entry);
    if (body.size > CACHE_BODY_MAX || !cache_make_room(shard, body.size))
        body = (struct bytes){0};
    set_body(shard, entry, row, body);
    pthread_mutex_unlock(&shard->mutex);
}

void truce__cache_doubt(struct cache *cache)
{
    for (size_t i = 0; i < cache->changes_count; i++) {
        struct entry *entry = cache->changes[i];
        struct shard *shard = shard_of(cache, entry->hash);

        pthread_mutex_lock(&shard->mutex);
        set_body(shard, entry, 0, (struct bytes){0});
        pthread_mutex_unlock(&shard->mutex);
    }
}

void truce__cache_close(struct cache *cache)
{
    atomic_store(&cache->closed, true);
}

void truce__cache_commit(struct cache *cache, uint64_t promised)
{
    truce_assert(atomic_load(&cache->seen) + 1 == atomic_load(cache->begun));
    atomic_fetch_add(&cache->started, 1);
    if (promised && atomic_load(&cache->closed))
        atomic_store(&cache->promises->all, promised);
    for (size_t i = 0; i < cache->hashes_count && promised; i++)
        atomic_store(&cache->promises->of[cache->hashes[i] % PROMISES], promised);
    atomic_store(&cache->seen, atomic_load(cache->begun));
}

void truce__cache_end(struct cache *cache, bool committed)
{
    truce_assert(!committed || !cache->changes_count ||
                 atomic_load(&cache->started) != atomic_load(&cache->ended));
    for (size_t i = 0; i < cache->changes_count; i++) {
        struct entry *entry = cache->changes[i];
        struct shard *shard = shard_of(cache, entry->hash);

        pthread_mutex_lock(&shard->mutex);
        entry->changing = false;
        entry->since = atomic_load(&cache->started);
        if (!committed || !entry->body)
            cache_drop(shard, entry);
        pthread_mutex_unlock(&shard->mutex);
    }
    cache->changes_count = cache->hashes_count = 0;
    if (atomic_load(&cache->closed)) {
        cache_clear(cache);
        atomic_store(&cache->closed, false);
    }
    atomic_store(&cache->ended, atomic_load(&cache->started));
}

/* ---- the size of the cache ------------------------------------------------------------------ */

#define MB (UINT64_C(1) << 20)

/* Reads the memory limit of the container from a file of its control group. Returns UINT64_MAX if
 * the container has no limit. */
static uint64_t size_read_limit(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned long long bytes;
    bool read;

    if (!file)
        return UINT64_MAX;
    /* The file contains the word "max" if there is no limit. */
    read = fscanf(file, "%llu", &bytes) == 1;
    fclose(file);
    return read ? bytes : UINT64_MAX;
}

/* Returns the memory of the machine, or the part of it that the container may use. */
static uint64_t cache_machine_memory(void)
{
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    uint64_t least = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t limit = size_read_limit(limits[i]);

        least = limit < least ? limit : least;
    }
    return least;
}

static uint64_t usual_mb(void)
{
    uint64_t mb = cache_machine_memory() / TRUCE_CACHE_PART / MB;

    if (mb < TRUCE_CACHE_MB_LEAST)
        return TRUCE_CACHE_MB_LEAST;
    return mb < TRUCE_CACHE_MB_MOST ? mb : TRUCE_CACHE_MB_MOST;
}

static bool size_is_number(const char *text)
{
    size_t length = strspn(text, "0123456789");

    return length && length < 10 && !text[length];
}

truce_status truce__cache_size(uint32_t requested_mb, uint64_t *bytes, bson_error_t *error)
{
    const char *set = requested_mb ? NULL : getenv("TRUCE_CACHE_MB");
    uint64_t mb = requested_mb;

    *bytes = 0;
    if (set && *set && !size_is_number(set))
        return truce__fail(TRUCE_INVALID, error,
                           "TRUCE_CACHE_MB is \"%s\": expected a number of megabytes", set);
    if (set && *set)
        mb = strtoull(set, NULL, 10);
    else if (!requested_mb)
        mb = usual_mb();
    if (mb < TRUCE_CACHE_MB_MIN || mb > TRUCE_CACHE_MB_MAX)
        return truce__fail(
            TRUCE_INVALID, error,
            "the cache size (cache_mb, TRUCE_CACHE_MB) is %llu MB: expected %d to %d",
            (unsigned long long)mb, TRUCE_CACHE_MB_MIN, TRUCE_CACHE_MB_MAX);
    *bytes = mb * MB;
    return TRUCE_OK;
}
