#ifndef TRUCE_MERGE_LCS_H
#define TRUCE_MERGE_LCS_H

/*
 * Finds a common subsequence of two sequences. The sequences are numbers; equal elements have equal
 * numbers (key_numbering.h).
 *
 * If the sequences differ little, it is a longest common subsequence (E. Myers, "An O(ND)
 * Difference Algorithm and Its Variations", 1986). Otherwise the elements that occur once in each
 * sequence are matched first, as many as keep their order (B. Cohen's patience diff). The ranges
 * between them are then solved in the same way. A range without such elements is matched in pieces
 * from the left. The time therefore grows with the lengths and the number of differences, and not
 * with their square.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

#define LCS_NONE UINT32_MAX
/* With at most this many inserted and removed elements, the subsequence is a longest one. */
#define LCS_EXACT 256

/* Sets match[i] to the index in b that a[i] matches, or LCS_NONE. The indexes rise. All numbers are
 * below `bound`. */
void truce__lcs(struct arena *arena, const uint32_t *a, uint32_t a_count, const uint32_t *b,
                uint32_t b_count, uint32_t bound, uint32_t *match);

#endif
