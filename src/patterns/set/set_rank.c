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

enum set_verdict truce__set_verdict(const struct set_state *state, const struct set_rank *rank)
{
    if (state->standing.seq) {
        int order = truce__set_rank_compare(&state->standing, rank);

        if (order == 0)
            return SET_DUPLICATE;
        if (order > 0)
            return SET_STALE;
    }
    return rank->seq <= state->watermark ? SET_BELOW : SET_OPEN;
}
