#include "query/lcs.h"

#include <string.h>

#define EDITS_MAX 1500 /* beyond it the search is given up: its memory grows with the square */

/* The furthest points reached with d edits, for each d: rows of d + 1 diagonals. */
struct trace {
    int32_t **rows;
    int32_t edits;
};

static int32_t reach(const int32_t *row, int32_t d, int32_t k)
{
    /* row d - 1 holds diagonals -(d - 1), -(d - 3) ... d - 1 */
    return row[(k + d) / 2];
}

/* Where diagonal k begins with d edits: one step down or right from the row before. */
static int32_t enter(const struct trace *trace, int32_t d, int32_t k)
{
    const int32_t *row;
    int32_t down, right;

    if (!d)
        return 0;
    row = trace->rows[d - 1];
    down = k < d ? reach(row, d - 1, k + 1) : -1;
    right = k > -d ? reach(row, d - 1, k - 1) + 1 : -1;
    return down > right ? down : right;
}

static bool search(struct arena *arena, const uint32_t *a, int32_t n, const uint32_t *b, int32_t m,
                   struct trace *trace)
{
    int32_t most = n + m < EDITS_MAX ? n + m : EDITS_MAX;

    trace->rows = truce__arena_take(arena, (size_t)(most + 1) * sizeof *trace->rows);
    for (int32_t d = 0; d <= most; d++) {
        trace->rows[d] = truce__arena_take(arena, (size_t)(d + 1) * sizeof(int32_t));
        trace->edits = d;
        for (int32_t k = -d; k <= d; k += 2) {
            int32_t x = enter(trace, d, k);

            while (x >= 0 && x < n && x - k >= 0 && x - k < m && a[x] == b[x - k])
                x++;
            if (x > n || x - k > m) /* outside of the square */
                x = -1000000000;
            trace->rows[d][(k + d) / 2] = x;
            if (x >= n && x - k >= m)
                return true;
        }
    }
    return false;
}

/* Back from the end, along the points that were reached. */
static void trace_back(const struct trace *trace, int32_t n, int32_t m, uint32_t offset,
                       uint32_t *match)
{
    int32_t x = n, y = m;

    for (int32_t d = trace->edits; d >= 0; d--) {
        int32_t k = x - y, begin = enter(trace, d, k);

        while (x > begin) {
            x--;
            y--;
            match[x] = (uint32_t)y + offset;
        }
        if (d) {
            const int32_t *row = trace->rows[d - 1];
            int32_t down = k < d ? reach(row, d - 1, k + 1) : -1;

            if (down == begin)
                y--;
            else
                x--;
        }
    }
}

void truce__lcs(struct arena *arena, const uint32_t *a, uint32_t a_count, const uint32_t *b,
                uint32_t b_count, uint32_t *match)
{
    struct trace trace = {0};
    uint32_t head = 0;

    for (uint32_t i = 0; i < a_count; i++)
        match[i] = LCS_NONE;
    while (head < a_count && head < b_count && a[head] == b[head]) {
        match[head] = head;
        head++;
    }
    while (a_count > head && b_count > head && a[a_count - 1] == b[b_count - 1])
        match[--a_count] = --b_count;
    if (a_count == head || b_count == head || a_count > 100000000 || b_count > 100000000)
        return;
    if (search(arena, a + head, (int32_t)(a_count - head), b + head, (int32_t)(b_count - head),
               &trace))
        trace_back(&trace, (int32_t)(a_count - head), (int32_t)(b_count - head), head,
                   match + head);
}
