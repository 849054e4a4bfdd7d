#ifndef TRUCE_SALVAGE_H
#define TRUCE_SALVAGE_H

/*
 * Salvage: recovery of the readable documents of a damaged file.
 *
 * The file and its log are read page by page, without SQLite, whatever their damage. Nothing is
 * written to either. The recovered documents are of four kinds:
 *
 *     NAME             every checksum on the path to the document is valid, and so is its structure
 *     NAME.doubtful    the document is valid BSON, but a page that contains it has a wrong
 *                      checksum, or a later version of it was lost: examine it before you use it
 *     salvaged_cN      as NAME, if only the number N of the collection is known, and not its name
 *     salvaged_N       the document is valid, but its collection is unknown; N is a page of the
 *                      file, and documents that were found together have the same N
 *
 * An incomplete document is counted and skipped. Indexes and validators are created again from the
 * catalog, if it is readable. Checksums cannot reveal everything: a removed document, or an old
 * version of a document, never appears in NAME, but may appear in salvaged_N.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* Receives a collection: {collection, documents, doubtful, lost, lost_pages, indexes,
 * refused_indexes: [{name, text}], refused_validator?: text}. `lost` documents existed and could
 * not be read. `lost_pages` may have contained any number of documents. */
typedef void truce_salvage_collection_function(const bson_t *collection, void *arg);

/* Receives the progress: `done` of `total` pages were examined. */
typedef void truce_salvage_progress_function(int64_t done, int64_t total, void *arg);

typedef struct truce_salvage_options {
    /* The functions may be NULL. */
    truce_salvage_collection_function *collection;
    truce_salvage_progress_function *progress;
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_salvage_options;

typedef struct truce_salvage_report {
    /* Collections found, including those whose name is unknown (salvaged_cN), without the
     * collections salvaged_N. */
    int64_t collections;
    /* Documents in collections NAME. */
    int64_t documents;
    /* Documents in collections NAME.doubtful. */
    int64_t doubtful;
    /* Documents in collections salvaged_N. */
    int64_t strays;
    /* Documents that were found but could not be read, or that `to` refused. */
    int64_t lost;
    /* Pages of documents of which nothing could be read. */
    int64_t lost_pages;
    /* Damaged pages of the log. */
    int64_t lost_log;
    /* Indexes created. */
    int64_t indexes;
    int64_t indexes_refused;
    /* Validators set again. */
    int64_t validators;
    int64_t validators_refused;
    /* Everything that existed was recovered, as far as the file reveals. */
    bool complete;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_salvage_report;

/*
 * Salvages the file `from` into `to`. `from` is a path, optionally after "file:", of a file that no
 * process has open. `to` is an empty store of any kind. TRUCE_OK means that every readable
 * document is in `to`; report->complete says whether these are all.
 *
 *     TRUCE_NOT_FOUND   the file does not exist
 *     TRUCE_LOCKED      a process has the file open
 *     TRUCE_CONFLICT    `to` is not empty
 *     any other         `to` failed
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_salvage(const char *from, truce_store *to,
                                                       const truce_salvage_options *options,
                                                       truce_salvage_report *report,
                                                       bson_error_t *error);

TRUCE_END_DECLS

#endif
