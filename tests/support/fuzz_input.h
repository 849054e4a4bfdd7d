#ifndef TRUCE_TESTS_SUPPORT_FUZZ_INPUT_H
#define TRUCE_TESTS_SUPPORT_FUZZ_INPUT_H

/*
 * Reads a fuzzer's input as a sequence of decisions. Its mutations then change the shape of a
 * document, and not the length prefixes of its bytes. At the end of the input, all decisions are 0.
 */
#include <bson/bson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

uint8_t fuzz_byte(struct fuzz_input *input);
/* Returns a number from 0 to bound - 1. */
uint32_t fuzz_below(struct fuzz_input *input, uint32_t bound);

/* One of the elements of an array. */
#define FUZZ_COUNT(array)       (sizeof(array) / sizeof *(array))
#define FUZZ_PICK(input, array) ((array)[fuzz_below(input, FUZZ_COUNT(array))])

/* Returns a string of up to FUZZ_LARGE_BYTES_MAX bytes without a zero byte: pieces of patterns,
 * numbers, and paths, repeated up to the maximum sizes of operands. The caller frees it with
 * bson_free. */
#define FUZZ_LARGE_BYTES_MAX 70000
char *fuzz_large(struct fuzz_input *input);

/* Appends one element of any type; at most `depth` levels of containers. Names and scalars come
 * from small pools and from the edges of their types, so that equal ones occur often. A few
 * strings, names, and arrays are as large as the maximum of operands. */
void fuzz_append(struct fuzz_input *input, bson_t *document, const char *key, unsigned depth);
/* Returns a document of up to four fields; the caller destroys it. */
bson_t *fuzz_document(struct fuzz_input *input, unsigned depth);

/* Returns a filter: mostly well-formed, with operands of any type; the caller destroys it. */
bson_t *fuzz_filter(struct fuzz_input *input, unsigned depth);

#endif
