#ifndef TRUCE_BASE_NEAREST_WORD_H
#define TRUCE_BASE_NEAREST_WORD_H

/* The candidate that is nearest to a mistyped word, for messages: did you mean "find"?
 * Upper and lower case are equal. A "$" that begins both words does not count as a letter. */

/* `best` is NULL if no candidate is near. The words are borrowed. */
struct nearest_word {
    const char *word, *best;
    /* The rank of `best`: small for few edits (nearest_word.c). */
    int distance;
};

/* Replaces nearest->best if the candidate is nearer to nearest->word. */
void truce__nearest_word_offer(struct nearest_word *nearest, const char *candidate);

#define NEAREST_WORD_HINT_MAX 80

/* Writes `: did you mean "find"?`, or "" if no candidate is near. Returns `hint`. */
const char *truce__nearest_word_hint(const struct nearest_word *nearest,
                                     char hint[NEAREST_WORD_HINT_MAX]);

#endif
