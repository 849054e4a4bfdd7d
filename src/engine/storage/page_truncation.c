/*
 * Commits that divide a full page of a tree do not search SQLite's page cache.
 *
 * SQLite divides the content of a full page among its neighbors and a new page, and then sorts the
 * numbers of these pages. It exchanges two numbers by means of a third one: that of the page at one
 * gigabyte, which contains bytes that SQLite locks and is therefore never used. At the end of each
 * transaction, SQLite drops the pages after the end of the file from the cache. The cache knows
 * only the largest number that any page has had. After an exchange, this is the third number, so
 * the cache examines all its pages if the file is smaller than a gigabyte. With 100 MB of pages,
 * this takes milliseconds, and other writers wait for the lock. Among a million documents, inserts
 * by 32 threads cost a quarter less processor time without this search.
 *
 *     SQLite --calls--> functions of this file --calls--> SQLite's page cache
 *                       (largest, exchange)
 *
 * Invariants:
 *  1. No page of the cache has a number larger than `largest`, except `exchange`. A call that drops
 *     pages is omitted only if it would not find any.
 *
 * SQLite has one set of these functions in a process, so the connections of the host program use
 * them, too. They behave the same. If the host program has initialized SQLite already, its
 * functions stay, and commits are slower.
 */
#include "engine/storage/page_truncation.h"

#include <bson/bson.h>
#include <sqlite3.h>

/* The page cache of one connection. */
struct truncation {
    sqlite3_pcache *pages;
    /* `largest`: see invariant 1. `exchange`: the number of the page at one gigabyte, or 0 if the
     * cache does not have this page. */
    unsigned largest, exchange;
};

static sqlite3_pcache_methods2 wrapped;

static struct truncation *truncation_of(sqlite3_pcache *cache)
{
    return (struct truncation *)cache;
}

static sqlite3_pcache *truncation_create(int page, int extra, int purgeable)
{
    sqlite3_pcache *pages = wrapped.xCreate(page, extra, purgeable);
    struct truncation *made;

    if (!pages)
        return NULL;
    made = bson_malloc0(sizeof *made);
    made->pages = pages;
    return (sqlite3_pcache *)made;
}

static void truncation_size(sqlite3_pcache *cache, int pages)
{
    wrapped.xCachesize(truncation_of(cache)->pages, pages);
}

static int truncation_count(sqlite3_pcache *cache)
{
    return wrapped.xPagecount(truncation_of(cache)->pages);
}

static sqlite3_pcache_page *truncation_fetch(sqlite3_pcache *cache, unsigned number, int create)
{
    struct truncation *truncation = truncation_of(cache);

    /* Invariant 1. */
    if (create && number > truncation->largest)
        truncation->largest = number;
    return wrapped.xFetch(truncation->pages, number, create);
}

static void truncation_unpin(sqlite3_pcache *cache, sqlite3_pcache_page *page, int discard)
{
    wrapped.xUnpin(truncation_of(cache)->pages, page, discard);
}

static void truncation_rekey(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned from,
                             unsigned to)
{
    struct truncation *truncation = truncation_of(cache);

    /* Invariant 1. */
    if (to > truncation->largest && truncation->exchange)
        truncation->largest = to;
    else if (to > truncation->largest)
        truncation->exchange = to;
    if (from == truncation->exchange)
        truncation->exchange = 0;
    wrapped.xRekey(truncation->pages, page, from, to);
}

static void truncation_truncate(sqlite3_pcache *cache, unsigned first)
{
    struct truncation *truncation = truncation_of(cache);

    /* Invariant 1. */
    if (first > truncation->largest && !truncation->exchange)
        return;
    wrapped.xTruncate(truncation->pages, first);
    truncation->largest = first - 1;
    truncation->exchange = 0;
}

static void truncation_destroy(sqlite3_pcache *cache)
{
    wrapped.xDestroy(truncation_of(cache)->pages);
    bson_free(cache);
}

static void truncation_shrink(sqlite3_pcache *cache)
{
    wrapped.xShrink(truncation_of(cache)->pages);
}

void truce__page_truncation_configure(void)
{
    sqlite3_pcache_methods2 methods;

    if (sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &wrapped) || wrapped.iVersion != 1)
        return;
    methods = wrapped;
    methods.xCreate = truncation_create;
    methods.xCachesize = truncation_size;
    methods.xPagecount = truncation_count;
    methods.xFetch = truncation_fetch;
    methods.xUnpin = truncation_unpin;
    methods.xRekey = truncation_rekey;
    methods.xTruncate = truncation_truncate;
    methods.xDestroy = truncation_destroy;
    methods.xShrink = truncation_shrink;
    (void)sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods);
}
