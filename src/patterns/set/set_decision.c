/*
 * Compares an operation with the stored state: the last writer wins. The operation with the
 * greatest sequence number decides whether a name is a member, whatever the order in which the
 * operations arrive. Names of sources decide between equal numbers, and an add ranks above a
 * remove.
 *
 *     stored     arrives            decision
 *     none       add    1000        open: it must be applied
 *     add 1000   add    1000        duplicate: it was applied before
 *     rem 1001   add    1000        stale: a greater number is stored
 *     none       add     900        below, if the watermark is 900 or more: the number was recorded
 *                                   before, or the operation is late (set_quarantine.c)
 */
#include <string.h>

#include "patterns/set/set.h"

int truce__set_rank_compare(const struct set_rank *a, const struct set_rank *b)
{
    int order;

    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    order = strcmp(a->source, b->source);
    if (order)
        return order;
    return (int)a->add - (int)b->add;
}

enum set_decision truce__set_decide(const struct set_state *state, const struct set_rank *rank)
{
    if (state->stored.seq) {
        int order = truce__set_rank_compare(&state->stored, rank);

        if (order == 0)
            return SET_DUPLICATE;
        if (order > 0)
            return SET_STALE;
    }
    return rank->seq <= state->watermark ? SET_BELOW : SET_OPEN;
}
