#ifndef TRUCE_SALVAGE_H
#define TRUCE_SALVAGE_H

/*
 * What can still be read of a damaged file.
 *
 * The file and its log are read page by page, without SQLite, whatever is wrong with them; nothing is written into
 * either. Documents come out in three kinds:
 *
 *     NAME             every checksum on the way to the document is right, and so is its structure
 *     NAME.doubtful    the document is whole as BSON, but a page that it stands on has a wrong checksum, or a
 *                      younger version of it was lost: look at it before you use it
 *     salvaged_N       it is sound, but what says to which collection it belongs is gone; N is a page of the
 *                      file, and documents that were found together are together
 *
 * A document that is not whole is counted and left. Indexes are made anew, and validators set, from the catalog,
 * where that can be read.
 * What a checksum does not tell nobody can: a document that was removed, or is older than the last write to it, is
 * never in NAME, but may be among those of salvaged_N.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* {collection, documents, doubtful, lost, lost_pages, indexes, refused_indexes: [{name, text}]}, refused_validator?: text}: `lost` documents
 * were there and could not be read, `lost_pages` may have had any number of them. */
typedef void truce_salvage_collection_function(const bson_t *collection, void *arg);

/* `done` of `total` pages were looked at. */
typedef void truce_salvage_progress_function(int64_t done, int64_t total, void *arg);

typedef struct truce_salvage_options {
    truce_salvage_collection_function *collection; /* these may be NULL */
    truce_salvage_progress_function *progress;
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_salvage_options;

typedef struct truce_salvage_report {
    int64_t collections; /* that were found, those of documents of nobody knows where included */
    int64_t documents;   /* in NAME */
    int64_t doubtful;    /* in NAME.doubtful */
    int64_t strays;      /* in salvaged_N */
    int64_t lost; /* documents that were found and could not be read, or were refused by `to` */
    int64_t lost_pages; /* of documents, of which nothing could be read */
    int64_t lost_log;   /* pages of the log that were damaged */
    int64_t indexes;    /* made */
    int64_t indexes_refused;
    int64_t validators; /* set again */
    int64_t validators_refused;
    bool complete;        /* everything that was there is there, as far as anybody can tell */
    uint64_t reserved[4]; /* zeros */
} truce_salvage_report;

/* `from` is the path of a file ("file:" may stand before it), which nobody has open; `to` an empty store of any kind.
 * OK: everything that could be read is in `to`; report->complete tells whether that is everything. NOT_FOUND: there
 * is no such file. LOCKED: somebody has it open. CONFLICT: `to` holds something. Any other: `to` failed. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_salvage(const char *from, truce_store *to,
                                                       const truce_salvage_options *options,
                                                       truce_salvage_report *report,
                                                       bson_error_t *error);

TRUCE_END_DECLS

#endif
