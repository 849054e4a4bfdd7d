#ifndef TRUCE_ENGINE_KV_PAGE_H
#define TRUCE_ENGINE_KV_PAGE_H

/* The database file for SQLite, with a checksum at the end of every page. */
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#define KV_PAGE_BYTES 4096
#define KV_SUM_BYTES  8 /* at the end of a page; what SQLite reserves for it */

/* So often a read is tried that fails, or brings what has a wrong checksum: it may be right the next time. */
#define KV_READ_TRIES 3

#define KV_PAGE_COMMITS_PLACE                                                                      \
    8 /* bytes in front of the count of commits, in the index of the log */

/* xOpen of a main database; `file` has room for a struct kv_page_file. */
int truce__kv_page_open(sqlite3_vfs *real, const char *name, sqlite3_file *file, int flags,
                        int *out);

/* Does the connection move pages now? A frame of the log that is damaged is told to it. */
bool truce__kv_page_verifies(sqlite3_file *file);
void truce__kv_page_frame_damaged(sqlite3_file *file, uint32_t frame);

/* What a sync of that file, or of the log beside it, answered: passes it on, and tells the watch. */
int truce__kv_page_synced(sqlite3_file *file, int result);

/* The least room (szOsFile). */
int truce__kv_page_file_size(void);

/* Questions to a connection, for sqlite3_file_control with "main". */
enum {
    KV_PAGE_DAMAGED = 0x74720001, /* uint32_t *: the page whose checksum was wrong last; 0: none */
    KV_PAGE_FRAME = 0x74720007,   /* uint32_t *: the same of a frame of the log */
    KV_PAGE_KIND = 0x74720002,    /* enum kv_kind *: what the file begins with */
    KV_PAGE_LOOK = 0x74720003,    /* struct kv_page_look * */
    KV_PAGE_WATCH = 0x74720004,   /* const struct kv_watch *: is told when a sync fails */
    KV_PAGE_VERIFY =
        0x74720006, /* const bool *: what the log gives is compared with its checksum */
    KV_PAGE_PACE =
        0x74720009, /* uint32_t *: so many written pages are synced at once; 0: when SQLite says so */
    KV_PAGE_BOUND = 0x74720008, /* struct budget **: what each page that is read takes from */
    KV_PAGE_COMMITS =
        0x74720005, /* const atomic_uint **: counts the commits of everybody; NULL: no log yet */
};

/* One page as it is in the file, whatever the log has. */
struct kv_page_look {
    uint32_t page;                /* in: 1, 2, ... */
    bool there;                   /* out: the file is as long */
    bool sound;                   /* its checksum is right, or it was never written */
    uint8_t bytes[KV_PAGE_BYTES]; /* its content */
};

/* The checksum of page `number`, of its bytes but the last KV_SUM_BYTES. */
uint64_t truce__kv_page_sum(const uint8_t *page, uint32_t number);

#endif
