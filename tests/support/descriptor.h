#ifndef TRUCE_TESTS_SUPPORT_DESCRIPTOR_H
#define TRUCE_TESTS_SUPPORT_DESCRIPTOR_H

/* The file of a descriptor, for programs that override calls of the C library. */
#include <stdio.h>
#include <unistd.h>

/* Writes the path of the descriptor's file, or "" if it is not known. */
static inline void descriptor_path(int file, char *path, size_t size)
{
    char link[40];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
}

#endif
