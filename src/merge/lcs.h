#ifndef TRUCE_MERGE_LCS_H
#define TRUCE_MERGE_LCS_H

/*
 * Which elements of two sequences are the same ones: a common subsequence, of sequences given as
 * numbers, equal numbers for equal elements (numbering.h).
 *
 * Where little is different it is a longest one (E. Myers, "An O(ND) Difference Algorithm and Its
 * Variations", 1986). Where much is, what stands once in each sequence is matched first, as much of
 * it as keeps its order (B. Cohen's patience diff), and then what lies between; what cannot be parted
 * like that is matched piece by piece from the left. So the time grows with the lengths and the
 * number of differences, and not with their square.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

#define LCS_NONE  UINT32_MAX
#define LCS_EXACT 256 /* differences (elements that go or come) up to which it is a longest one */

/* match[i]: which of b a[i] is, or LCS_NONE; rising. All numbers are below `bound`. */
void truce__lcs(struct arena *arena, const uint32_t *a, uint32_t a_count, const uint32_t *b,
                uint32_t b_count, uint32_t bound, uint32_t *match);

#endif
