/*
 * The cache of documents.
 *
 * Why: a lookup through SQLite begins a snapshot (file locks), and finds the page cache of its
 * connection emptied by every commit of another connection, so that it reads each page of its way
 * down again. A commit over two documents spent a third of its processor time on its two reads.
 *
 *     shard     mutex, version, hash table of entries, list from the newest to the oldest
 *     entry     (collection, key of the _id) -> row, body;  known | changing
 *
 * An entry that is `changing` was changed by the transaction that runs now: only the leader may
 * look at it, readers go to the file.
 *
 *     miss    lock; not here: remember the shard's version; unlock
 *             snapshot of the file; look up
 *     fill    lock; the same version still? then put in; unlock
 *
 *     change  lock; version + 1; entry := changing, with the new body; unlock
 *     COMMIT  (here the file changes for readers)
 *     end     lock; entry := known; unlock                      (rolled back: the entry is freed)
 *
 * Invariants:
 *  1. A known entry shows what a snapshot of the file that began now would show, as long as no
 *     other process has begun a commit that this cache does not know (`seen` == `begun`), and nobody has made
 *     one, with truce or without it (commits: `known` == `now`).
 *  2. A document changes in the file only while its entry is changing or the cache is closed: who
 *     finds a known entry finds it before the commit began to be visible, and after that only what
 *     was committed.
 *  3. What a fill puts in was read in a snapshot that began after the miss, and the document was
 *     not changing at the miss, nor has any document of its shard begun to change since. So no
 *     commit of this process lies between the snapshot and the fill. If one of others does, nobody
 *     finds what was put in before it is thrown away (1).
 *  4. Whoever compares `seen` and `begun` does so under a shard's mutex, and reads `seen` first; likewise
 *     `known` and `now`. `seen` and `known` move only after every shard was emptied (begin), or for a
 *     commit of this process, which is the next after those that were known (commit).
 *  5. Entries that are changing are never evicted.
 *  7. Transactions of this process that may change the file are counted: `started` before what they change can be
 *     seen, `ended` when it is seen. `since` of an entry is at least the number of the last that changed its
 *     document. So a snapshot that began when `ended` was n shows the document of a known entry whose `since` is n
 *     or less: what changed it last is in the snapshot, and what comes after has not begun to be visible.
 *     What others commit is counted when it is noticed, before anything is put in that shows it (begin).
 *
 *  6. Each number of the table `promises`, which all processes share, is at least that of the last commit that is
 *     promised to be on the disk (durable.h) and changed, inserted or removed a document with that hash; it is
 *     set before the commit, by whoever makes it. So who has a document out of a known entry, or out of a snapshot that is
 *     older than his look into the table, waits for that number and for no other commit, of his process or of
 *     another. (What is committed without truce is promised by nobody.)
 *
 * An insert is no change of an entry: nobody can have put in a document that is not there. One that was removed
 * before in the same transaction has an entry already, without a body.
 *
 * Other processes count `begun` before their commits (change_notify.c). A process that only reads never
 * holds the lock, cannot know whether somebody else is in the middle of a commit, and so never uses
 * its cache: `seen` begins as a number that `begun` is not. Where two processes write in turns, each
 * empties its cache when its turn comes, and has what it had before the cache.
 *
 * A commit that the disk refused frees its entries; the file shows the old documents.
 */
#include "engine/cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/limits.h"

#define SHARDS      64
#define BUCKET      512   /* bytes of entries, about; a bucket for each */
#define CHANGES_MAX 16384 /* of one transaction; with more the cache is closed */

struct entry {
    struct entry *next; /* of the same bucket */
    struct entry *newer, *older;
    uint64_t hash;
    int64_t row;
    uint8_t *body;  /* NULL: not known; only while changing */
    uint64_t since; /* 7 */
    uint32_t body_size, body_room;
    uint32_t name_size, key_size;
    bool changing;
    bool used; /* since it was the oldest */
    uint8_t name_and_key[];
};

struct shard {
    pthread_mutex_t mutex;
    uint64_t version;
    size_t count, bytes, room; /* at most so many bytes */
    uint64_t mask;             /* of the buckets, a power of two less one */
    struct entry *newest, *oldest;
    struct entry **buckets; /* NULL until there is an entry */
};

struct cache {
    const atomic_uint *begun;
    struct lock_promises *promises;
    const struct kv_commits *commits;
    atomic_uint seen;
    atomic_bool closed;
    atomic_ullong started, ended; /* 7 */
    struct entry **changes;       /* the leader's: those that are changing */
    size_t changes_count, changes_room;
    uint64_t *hashes; /* the leader's: of all documents that the transaction has changed */
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

/* Makes room for `bytes`: the oldest go, but one that was used gets another round (the CLOCK
 * algorithm), and so does one that is changing. False: there is no room. */
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

static void empty(struct cache *cache)
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
    empty(cache);
    for (int i = 0; i < SHARDS; i++) {
        bson_free(cache->shards[i].buckets);
        pthread_mutex_destroy(&cache->shards[i].mutex);
    }
    bson_free(cache->changes);
    bson_free(cache->hashes);
    bson_free(cache);
}

/* ---- readers -------------------------------------------------------------------------------- */

/* Invariant 4: under a shard's mutex. */
static bool usable(const struct cache *cache)
{
    unsigned seen = atomic_load(&cache->seen), known = atomic_load(&cache->commits->known);

    /* invariant 1 */
    return !atomic_load(&cache->closed) && seen == atomic_load(cache->begun) &&
           known == atomic_load(cache->commits->now);
}

/* Of a known entry, or after a snapshot: the commits that it shows have been noted. */
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

/* `moment`: invariant 7 */
bool truce__cache_view(struct cache *cache, uint64_t snapshot, const char *collection,
                       struct bytes key, struct buffer *body, struct cache_look *look)
{
    struct name name = cache_name_of(cache, collection, key);
    struct shard *shard = shard_of(cache, name.hash);
    struct entry *entry = NULL;
    bool found = false;

    *look = (struct cache_look){0};
    if (key.size > CACHE_KEY_MAX)
        return false;
    pthread_mutex_lock(&shard->mutex);
    look->version = shard->version;
    look->may_fill = usable(cache);
    if (look->may_fill)
        entry = cache_find(shard, &name);
    /* invariant 2, 3 */
    if (entry && entry->changing)
        look->may_fill = false;
    else if (entry && entry->since <= snapshot) {
        truce__buffer_append(body, entry->body, entry->body_size);
        look->promised = promised_of(cache, name.hash);
        entry->used = true;
        found = true;
    }
    pthread_mutex_unlock(&shard->mutex);
    return found;
}

bool truce__cache_get(struct cache *cache, const char *collection, struct bytes key,
                      struct buffer *body, struct cache_look *look)
{
    return truce__cache_view(cache, UINT64_MAX, collection, key, body, look);
}

uint64_t truce__cache_snapshot(struct cache *cache)
{
    return atomic_load(&cache->ended);
}

/* What is in it was read after the last change, and that has started. */
static void cache_put_in(struct cache *cache, struct shard *shard, const struct name *name,
                         int64_t row, struct bytes body)
{
    struct entry *entry = cache_add(shard, name);

    entry->since = atomic_load(&cache->started);
    set_body(shard, entry, row, body);
}

void truce__cache_fill(struct cache *cache, const char *collection, struct bytes key,
                       const struct cache_look *look, int64_t row, struct bytes body)
{
    struct name name = cache_name_of(cache, collection, key);
    struct shard *shard = shard_of(cache, name.hash);
    size_t needed = sizeof(struct entry) + name.size + key.size + body.size;

    if (!look->may_fill || body.size > CACHE_BODY_MAX)
        return;
    pthread_mutex_lock(&shard->mutex);
    /* invariant 3 */
    if (shard->version == look->version && !cache_find(shard, &name) &&
        cache_make_room(shard, needed))
        cache_put_in(cache, shard, &name, row, body);
    pthread_mutex_unlock(&shard->mutex);
}

/* ---- who leads the writer ------------------------------------------------------------------- */

void truce__cache_begin(struct cache *cache, bool foreign)
{
    unsigned begun = atomic_load(cache->begun);

    truce_assert(!cache->changes_count && !atomic_load(&cache->closed));
    /* invariant 4 */
    if (atomic_load(&cache->seen) == begun && !foreign)
        return;
    empty(cache);
    atomic_fetch_add(&cache->started, 1); /* 7: nothing is put in before `seen` moves */
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
    if (key.size > CACHE_KEY_MAX || atomic_load(&cache->closed)) /* no miss may fill it */
        return;
    pthread_mutex_lock(&shard->mutex);
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
        empty(cache);
        atomic_store(&cache->closed, false);
    }
    atomic_store(&cache->ended, atomic_load(&cache->started));
}

/* ---- cache size ----------------------------------------------------------------------------- */

#define MB (UINT64_C(1) << 20)

/* UINT64_MAX: there is no such limit. */
static uint64_t size_read_limit(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned long long bytes;
    bool read;

    if (!file)
        return UINT64_MAX;
    read = fscanf(file, "%llu", &bytes) == 1; /* or "max" */
    fclose(file);
    return read ? bytes : UINT64_MAX;
}

/* The machine's, or what a container may have of it. */
static uint64_t memory(void)
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
    uint64_t mb = memory() / TRUCE_CACHE_PART / MB;

    if (mb < TRUCE_CACHE_MB_LEAST)
        return TRUCE_CACHE_MB_LEAST;
    return mb < TRUCE_CACHE_MB_MOST ? mb : TRUCE_CACHE_MB_MOST;
}

static bool size_is_number(const char *text)
{
    size_t length = strspn(text, "0123456789");

    return length && length < 10 && !text[length];
}

truce_status truce__cache_size(uint32_t asked_mb, uint64_t *bytes, bson_error_t *error)
{
    const char *set = asked_mb ? NULL : getenv("TRUCE_CACHE_MB");
    uint64_t mb = asked_mb;

    *bytes = 0;
    if (set && *set && !size_is_number(set))
        return truce__fail(TRUCE_INVALID, error,
                           "TRUCE_CACHE_MB is \"%s\", which is no number of megabytes", set);
    if (set && *set)
        mb = strtoull(set, NULL, 10);
    else if (!asked_mb)
        mb = usual_mb();
    if (mb < TRUCE_CACHE_MB_MIN || mb > TRUCE_CACHE_MB_MAX)
        return truce__fail(
            TRUCE_INVALID, error,
            "a cache of %llu MB is asked for (cache_mb, TRUCE_CACHE_MB): it can have "
            "from %d to %d",
            (unsigned long long)mb, TRUCE_CACHE_MB_MIN, TRUCE_CACHE_MB_MAX);
    *bytes = mb * MB;
    return TRUCE_OK;
}
