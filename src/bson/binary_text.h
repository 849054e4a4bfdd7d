#ifndef TRUCE_BSON_BINARY_TEXT_H
#define TRUCE_BSON_BINARY_TEXT_H

/*
 * Converts bytes to text and back: base64, base64 for URLs, hexadecimal digits, and UUIDs. Except
 * truce__hex_show, the functions write no NUL.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UUID_BYTES 16
#define UUID_TEXT  36

/* Room for `size` bytes as base64 of either form. */
#define BASE64_ROOM(size) (((size) + 2) / 3 * 4)

/* Writes base64 and returns its length. With `url`, uses the digits - and _, and no padding. */
size_t truce__base64_write(const uint8_t *bytes, size_t size, bool url, char *text);

/* Reads base64 (RFC 4648; the unused bits must be zeros) into `bytes`, which has room for `length`
 * bytes. Returns false if the text is not base64. The form for URLs may lack the padding. */
bool truce__base64_read(const char *text, size_t length, bool url, uint8_t *bytes, size_t *size);

/* Returns the value of a digit of either case, or -1 if it is not a digit. */
int truce__hex_digit(char c);

/* Writes 2 * `size` upper-case digits. */
void truce__hex_write(const uint8_t *bytes, size_t size, char *text);
/* Writes 2 * `size` lower-case digits and a NUL. */
void truce__hex_show(const uint8_t *bytes, size_t size, char *text);

/* Reads digits of either case into `length` / 2 bytes. Returns false unless the text is an even
 * number of digits. */
bool truce__hex_read(const char *text, size_t length, uint8_t *bytes);

/* The first function writes UUID_TEXT characters, such as "867dee52-c331-484e-92d1-c56479b8e67e".
 * The second reads them, in either case. */
void truce__uuid_write(const uint8_t bytes[UUID_BYTES], char text[UUID_TEXT]);
bool truce__uuid_read(const char *text, size_t length, uint8_t bytes[UUID_BYTES]);

#endif
