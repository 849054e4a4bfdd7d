#ifndef TRUCE_CLI_CORE_MESSAGE_FORMAT_H
#define TRUCE_CLI_CORE_MESSAGE_FORMAT_H

/*
 * Messages of a message queue, as operations on a set:
 *
 *     {"operation": "insert", "student_id": 1, "element": "CS 101", "sequence_number": 1000}
 *
 * The operation is insert or add, delete or remove. The element is its name, or a document with the
 * name and payload. Other fields are ignored.
 */
#include "cli/core/cli.h"

#define MESSAGE_KEYS_MAX  4
#define MESSAGE_BYTES_MAX (1024 * 1024)

struct message_format {
    /* The names of the message's fields; `source` may be NULL. */
    const char *operation, *element, *seq, *source;
    /* The set's key fields. */
    char *keys[MESSAGE_KEYS_MAX];
    /* The message's fields for the same keys, in the same order. */
    char *from[MESSAGE_KEYS_MAX];
    int keys_count;
    /* The field that names the element. */
    const char *name;
};

#define CLI_MESSAGE_OPTIONS                                                                        \
    {"message-operation", 0, "FIELD", "the message's operation (operation)", false},               \
        {"message-key", 0, "FIELDS", "the message's key (as --key)", false},                       \
        {"message-element", 0, "FIELD", "the message's element (element)", false},                 \
        {"message-seq", 0, "FIELD", "the message's number (sequence_number)", false},              \
    {                                                                                              \
        "message-source", 0, "FIELD", "the message's source (none)", false                         \
    }

/* Reads the options; their strings are borrowed. `keys` are the set's key fields, separated by
 * commas. If an option is wrong, prints the error and returns false; the caller returns
 * CLI_USAGE. */
bool message_format_init(struct message_format *format, const struct cli *cli, const char *keys,
                         const char *name);
void message_format_release(struct message_format *format);

struct message {
    truce_set_operation operation; /* Points into the other fields. */
    bson_t key, element;
    char source[128];
    int64_t line;
};

/* Reads a message. Returns false and fills `reason` (of `size` bytes) if the message is wrong. On
 * success, the caller releases `message`. */
bool message_read(const struct message_format *format, const bson_t *document,
                  struct message *message, char *reason, size_t size);
void message_release(struct message *message);

#endif
