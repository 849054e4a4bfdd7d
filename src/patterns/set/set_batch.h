#ifndef TRUCE_PATTERNS_SET_SET_BATCH_H
#define TRUCE_PATTERNS_SET_SET_BATCH_H

/* What the two ways of writing a batch share: set_batch.c (look, merge, write) and set_rewrite.c. */
#include "patterns/set/set.h"

/* The operations of one document: operations[from, to), winners[first, last). */
struct set_group {
    size_t from, to, first, last;
    int rounds;
    bool done, seen; /* seen: in this window's answer */
    bool unchanged;  /* what was seen says it all */
    bool whole;      /* its document is looked at whole: it is short of room */
};

struct set_batch {
    truce_set *set;
    struct set_operation *operations;
    const struct set_operation **winners;
    enum set_verdict *verdicts; /* of the winners */
    uint32_t *passed;           /* behind each of them: how many have no room */
    struct set_group *groups;
    size_t groups_count, left; /* left: not done */
    bool divided;              /* some were, in this round */
    struct set_scratch scratch;
};

/* One update of the window, and the documents that it is made of. */
struct set_draft {
    struct set_group *group;
    bson_t filter, update;
};

struct set_window {
    struct set_batch *batch;
    struct set_group **groups; /* sorted by key hash */
    size_t count;
    bool whole; /* it is of one document, which is short of room */
    struct set_draft *drafts;
    size_t drafts_count, bytes;
};

void truce__set_group_settle(struct set_batch *batch, struct set_group *group);
void truce__set_group_hand_back(struct set_batch *batch, struct set_group *group);
void truce__set_group_fail(struct set_batch *batch, struct set_group *group, truce_status status,
                           const bson_error_t *why);
/* It was refused for what may be the fault of one of its operations: each half of them gets a try apart.
 * False: there is no other way. */
bool truce__set_group_split(struct set_batch *batch, struct set_group *group, truce_status status);
/* {_id, key}: what a document is before there are lists in it */
void truce__set_document_begin(const truce_set *set, const bson_t *key, bson_t *document);
/* Without an index of the key, or an answer, the window is left to the next round. */
void truce__set_rewrite_window(struct set_window *window);

#endif
