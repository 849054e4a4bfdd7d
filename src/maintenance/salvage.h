#ifndef TRUCE_MAINTENANCE_SALVAGE_H
#define TRUCE_MAINTENANCE_SALVAGE_H

/* The parts of a salvage: salvage.c finds, salvage_put.c writes. */
#include "engine/storage/page_recovery.h"
#include "truce/salvage.h"

/* Rows above one and up to the other that cannot be reached. */
struct salvage_gap {
    int64_t above, to;
};

/* A collection: what is known of it, and what became of it. */
struct salvage_table {
    int64_t id;
    uint32_t root; /* 0: not known */
    char *name;    /* NULL: not known */
    bson_t *entry; /* of the catalog; NULL: not known */
    struct salvage_gap *gaps;
    size_t gaps_count, gaps_room;
    int64_t documents, doubtful, lost, lost_pages;
    bool in_doubt; /* what leads to it, or names it, is */
    bool is_feed;  /* of changes: what it told of is over */
};

struct salvage_batch {
    char *collection;
    bson_t **documents;
    size_t count, bytes;
    struct salvage_table *table; /* NULL: nobody knows whose they are */
    bool doubtful;
};

struct salvage {
    struct wreck wreck;
    truce_store *to;
    const truce_salvage_options *options;
    truce_salvage_report *report;
    struct salvage_table schema, catalog; /* read as tables are */
    struct salvage_table *tables;
    size_t tables_count, tables_room, gaps;
    uint32_t *parents;  /* of inner pages' children; 0: none */
    uint32_t *hints;    /* for a page: the table (from 1) that a doubtful page says it belongs to */
    uint32_t end;       /* the last page in use, as far as anybody knows */
    bool free_is_known; /* which pages are not in use */
    struct salvage_batch batch;
    int64_t looked_at;
    truce_status status; /* of `to`: nothing goes on */
    bson_error_t *error;
};

void truce__salvage_put(struct salvage *salvage, struct salvage_table *table, const char *name,
                        const struct wreck_column *body, bool doubtful);
void truce__salvage_flush(struct salvage *salvage);

/* Makes the indexes of the collection, and tells about it. */
void truce__salvage_end_table(struct salvage *salvage, const struct salvage_table *table);

#endif
