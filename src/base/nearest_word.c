#include "base/nearest_word.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WORD_MAX 40

static bool nearest_word_letters_equal(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Returns the number of edits between two words. A swap of neighbors counts as one edit (optimal
 * string alignment). */
static int nearest_word_distance(const char *a, const char *b)
{
    int rows[WORD_MAX + 1][WORD_MAX + 1];
    int m = (int)strlen(a), n = (int)strlen(b);

    for (int i = 0; i <= m; i++)
        rows[i][0] = i;
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        for (int j = 1; j <= n; j++) {
            int best = rows[i - 1][j - 1] + !nearest_word_letters_equal(a[i - 1], b[j - 1]);

            if (rows[i - 1][j] + 1 < best)
                best = rows[i - 1][j] + 1;
            if (rows[i][j - 1] + 1 < best)
                best = rows[i][j - 1] + 1;
            if (i > 1 && j > 1 && nearest_word_letters_equal(a[i - 1], b[j - 2]) &&
                nearest_word_letters_equal(a[i - 2], b[j - 1]) && rows[i - 2][j - 2] + 1 < best)
                best = rows[i - 2][j - 2] + 1;
            rows[i][j] = best;
        }
    }
    return rows[m][n];
}

/* Returns whether the candidate has all letters of the word in their order: letters were omitted. */
static bool nearest_word_is_shortened(const char *word, const char *candidate)
{
    for (; *word && *candidate; candidate++)
        word += nearest_word_letters_equal(*word, *candidate);
    return !*word;
}

/* Ranks the candidates by their edits. Among equal ones, the beginning of a candidate is nearer than
 * a word with omitted letters, and that is nearer than one with other letters. */
void truce__nearest_word_offer(struct nearest_word *nearest, const char *candidate)
{
    size_t mark = *nearest->word == '$' && *candidate == '$';
    const char *word = nearest->word + mark, *other = candidate + mark;
    size_t length = strlen(word);
    int edits, rank;

    if (length > WORD_MAX || strlen(other) > WORD_MAX)
        return;
    edits = nearest_word_distance(word, other);
    rank = 3 * edits + !nearest_word_is_shortened(word, other) + 1;
    if (length > 1 && edits && !strncasecmp(other, word, length)) {
        edits = 1;
        rank = 3; /* The beginning of a word. */
    }
    if (edits > (int)(length + 2) / 3)
        return;
    if (nearest->best && rank >= nearest->distance)
        return;
    nearest->best = candidate;
    nearest->distance = rank;
}

const char *truce__nearest_word_hint(const struct nearest_word *nearest,
                                     char hint[NEAREST_WORD_HINT_MAX])
{
    hint[0] = '\0';
    if (nearest->best)
        snprintf(hint, NEAREST_WORD_HINT_MAX, ": did you mean \"%s\"?", nearest->best);
    return hint;
}
