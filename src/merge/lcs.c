#include "merge/lcs.h"

#include <string.h>

#include "base/assert.h"

/* The maximum number of times that a range is divided again. */
#define DEPTH_MAX 16
/* The maximum length of a sequence. Documents have far fewer elements. */
#define LENGTH_MAX 100000000u

/* The two sequences, and the result. */
struct problem {
    /* The two sequences. */
    const uint32_t *a, *b;
    /* match[i]: the index in `b` of the element that is matched with a[i], or LCS_NONE. */
    uint32_t *match;
    /* For each number: how often it occurs in the range of `a` and of `b`, and its last index in
     * `b`. Used while a range is divided; otherwise the counts are 0. */
    uint32_t *times_a, *times_b, *position;
    struct arena *arena, scratch;
};

/* A range of both sequences. */
struct range {
    uint32_t a, a_end, b, b_end;
};

/* ---- Myers ----------------------------------------------------------------------------------- */

/* The rows of the search. Row d has the furthest points on the d + 1 diagonals that d edits can
 * reach. */
struct trace {
    int32_t *rows[LCS_EXACT + 1];
    /* The number of the last row. */
    int32_t edits;
};

/* The x of a diagonal whose point lies outside of the sequences. */
#define OUTSIDE (-1000000000)

static int32_t lcs_reach(const int32_t *row, int32_t d, int32_t k)
{
    /* Row d - 1 has the diagonals -(d - 1), -(d - 3), ..., d - 1. */
    return row[(k + d) / 2];
}

/* Returns the start of diagonal k with d edits: one step down or right from the previous row. */
static int32_t lcs_enter(const struct trace *trace, int32_t d, int32_t k)
{
    const int32_t *row;
    int32_t down, right;

    if (!d)
        return 0;
    row = trace->rows[d - 1];
    down = k < d ? lcs_reach(row, d - 1, k + 1) : -1;
    right = k > -d ? lcs_reach(row, d - 1, k - 1) + 1 : -1;
    return down > right ? down : right;
}

/* Computes one row. Returns true if it reaches the end. */
static bool search_row(const struct problem *problem, const struct range *range, int32_t d,
                       struct trace *trace)
{
    const uint32_t *a = problem->a + range->a, *b = problem->b + range->b;
    int32_t n = (int32_t)(range->a_end - range->a), m = (int32_t)(range->b_end - range->b);

    for (int32_t k = -d; k <= d; k += 2) {
        int32_t x = lcs_enter(trace, d, k);

        while (x >= 0 && x < n && x - k >= 0 && x - k < m && a[x] == b[x - k])
            x++;
        if (x > n || x - k > m)
            x = OUTSIDE;
        trace->rows[d][(k + d) / 2] = x;
        if (x >= n && x - k >= m)
            return true;
    }
    return false;
}

static bool lcs_search(struct problem *problem, const struct range *range, struct trace *trace)
{
    for (int32_t d = 0; d <= LCS_EXACT; d++) {
        trace->rows[d] = truce__arena_take(&problem->scratch, (size_t)(d + 1) * sizeof(int32_t));
        trace->edits = d;
        if (search_row(problem, range, d, trace))
            return true;
    }
    return false;
}

/* Follows the points back from (x, y) and records the matches. */
static void trace_back(struct problem *problem, const struct range *range,
                       const struct trace *trace, int32_t x, int32_t y)
{
    for (int32_t d = trace->edits; d >= 0; d--) {
        int32_t k = x - y, begin = lcs_enter(trace, d, k);

        while (x > begin) {
            x--;
            y--;
            problem->match[range->a + (uint32_t)x] = range->b + (uint32_t)y;
        }
        if (d) {
            const int32_t *row = trace->rows[d - 1];
            int32_t down = k < d ? lcs_reach(row, d - 1, k + 1) : -1;

            if (down == begin)
                y--;
            else
                x--;
        }
    }
}

/* Returns the point of the last row that is closest to the end. */
static void lcs_furthest_point(const struct trace *trace, int32_t *x, int32_t *y)
{
    int32_t best = -1, d = trace->edits;

    for (int32_t k = -d; k <= d; k += 2) {
        int32_t at = lcs_reach(trace->rows[d], d, k);

        if (at < 0 || at - k < 0 || 2 * at - k <= best)
            continue;
        best = 2 * at - k;
        *x = at;
        *y = at - k;
    }
    truce_assert(best > 0);
}

/* ---- unique elements ------------------------------------------------------------------------- */

static void count_range(struct problem *problem, const struct range *range)
{
    for (uint32_t i = range->a; i < range->a_end; i++)
        problem->times_a[problem->a[i]]++;
    for (uint32_t i = range->b; i < range->b_end; i++) {
        problem->times_b[problem->b[i]]++;
        problem->position[problem->b[i]] = i;
    }
}

static void forget_range(struct problem *problem, const struct range *range)
{
    for (uint32_t i = range->a; i < range->a_end; i++)
        problem->times_a[problem->a[i]] = 0;
    for (uint32_t i = range->b; i < range->b_end; i++)
        problem->times_b[problem->b[i]] = 0;
}

struct pair {
    /* A match of a[a] with b[b]. `before` is the previous match in the longest chain that ends with
     * this one, or LCS_NONE. */
    uint32_t a, b, before;
};

/* Returns the first chain whose last b is not less than `b`, or `count`. The chains are ordered by
 * that b. */
static uint32_t chain_for(const struct pair *pairs, const uint32_t *ends, uint32_t count,
                          uint32_t b)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (pairs[ends[middle]].b < b)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the longest rising chain of pairs. Returns its last pair, or LCS_NONE if there is no
 * pair. */
static uint32_t longest_chain(struct problem *problem, struct pair *pairs, uint32_t count)
{
    uint32_t *ends = truce__arena_take(&problem->scratch, (count + 1) * sizeof *ends);
    uint32_t chains = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = chain_for(pairs, ends, chains, pairs[i].b);

        pairs[i].before = at ? ends[at - 1] : LCS_NONE;
        ends[at] = i;
        chains += at == chains;
    }
    return chains ? ends[chains - 1] : LCS_NONE;
}

/* Matches the elements that are unique in both sequences. Returns false if no element is unique. */
static bool match_unique(struct problem *problem, const struct range *range)
{
    struct pair *pairs =
        truce__arena_take(&problem->scratch, (range->a_end - range->a + 1) * sizeof *pairs);
    uint32_t count = 0, last;

    count_range(problem, range);
    for (uint32_t i = range->a; i < range->a_end; i++) {
        uint32_t number = problem->a[i];

        if (problem->times_a[number] == 1 && problem->times_b[number] == 1)
            pairs[count++] = (struct pair){i, problem->position[number], LCS_NONE};
    }
    forget_range(problem, range);
    last = longest_chain(problem, pairs, count);
    for (uint32_t at = last; at != LCS_NONE; at = pairs[at].before)
        problem->match[pairs[at].a] = pairs[at].b;
    return last != LCS_NONE;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void lcs_trim(struct problem *problem, struct range *range)
{
    while (range->a < range->a_end && range->b < range->b_end &&
           problem->a[range->a] == problem->b[range->b])
        problem->match[range->a++] = range->b++;
    while (range->a_end > range->a && range->b_end > range->b &&
           problem->a[range->a_end - 1] == problem->b[range->b_end - 1])
        problem->match[--range->a_end] = --range->b_end;
}

static void lcs_solve(struct problem *problem, struct range range, int depth);

/* Solves the ranges between the matches of a range. */
static void solve_between(struct problem *problem, struct range range, int depth)
{
    struct range part = range;

    for (uint32_t i = range.a; i < range.a_end; i++) {
        if (problem->match[i] == LCS_NONE)
            continue;
        part.a_end = i;
        part.b_end = problem->match[i];
        lcs_solve(problem, part, depth);
        part.a = i + 1;
        part.b = part.b_end + 1;
    }
    part.a_end = range.a_end;
    part.b_end = range.b_end;
    lcs_solve(problem, part, depth);
}

/* Finds the matches of a range. If the search is too expensive, divides the range at unique
 * elements, or takes the furthest point that was reached. */
static void lcs_solve(struct problem *problem, struct range range, int depth)
{
    for (;;) {
        struct trace trace;
        int32_t x = 0, y = 0;

        lcs_trim(problem, &range);
        if (range.a == range.a_end || range.b == range.b_end)
            return;
        truce__arena_reset(&problem->scratch);
        if (lcs_search(problem, &range, &trace)) {
            trace_back(problem, &range, &trace, (int32_t)(range.a_end - range.a),
                       (int32_t)(range.b_end - range.b));
            return;
        }
        if (depth < DEPTH_MAX && match_unique(problem, &range)) {
            solve_between(problem, range, depth + 1);
            return;
        }
        lcs_furthest_point(&trace, &x, &y);
        trace_back(problem, &range, &trace, x, y);
        range.a += (uint32_t)x;
        range.b += (uint32_t)y;
    }
}

static uint32_t *lcs_make_zeros(struct arena *arena, uint32_t count)
{
    uint32_t *made = truce__arena_take(arena, (count + 1) * sizeof *made);

    memset(made, 0, (count + 1) * sizeof *made);
    return made;
}

void truce__lcs(struct arena *arena, const uint32_t *a, uint32_t a_count, const uint32_t *b,
                uint32_t b_count, uint32_t bound, uint32_t *match)
{
    struct problem problem = {.a = a, .b = b, .match = match, .arena = arena};
    struct range all = {0, a_count, 0, b_count};

    truce_assert(a_count < LENGTH_MAX && b_count < LENGTH_MAX);
    for (uint32_t i = 0; i < a_count; i++)
        match[i] = LCS_NONE;
    problem.times_a = lcs_make_zeros(arena, bound);
    problem.times_b = lcs_make_zeros(arena, bound);
    problem.position = lcs_make_zeros(arena, bound);
    lcs_solve(&problem, all, 0);
    truce__arena_release(&problem.scratch);
}
