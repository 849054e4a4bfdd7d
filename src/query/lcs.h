#ifndef TRUCE_QUERY_LCS_H
#define TRUCE_QUERY_LCS_H

/*
 * Which elements of two sequences are the same ones: a longest common subsequence (E. Myers, "An
 * O(ND) Difference Algorithm and Its Variations", 1986), of sequences given as numbers, equal numbers
 * for equal elements.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

#define LCS_NONE UINT32_MAX

/* match[i]: which of b a[i] is, or LCS_NONE; rising. Linear in time where little is different; where
 * more than some thousand elements are, what lies between the first and last difference may be called
 * different as a whole. */
void truce__lcs(struct arena *arena, const uint32_t *a, uint32_t a_count, const uint32_t *b,
                uint32_t b_count, uint32_t *match);

#endif
