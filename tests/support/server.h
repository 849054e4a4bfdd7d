#ifndef TRUCE_TESTS_SUPPORT_SERVER_H
#define TRUCE_TESTS_SUPPORT_SERVER_H

/* A server of MongoDB's protocol, as tests/servers/serve started it: TRUCE_TEST_MONGODB is its
 * URI, TRUCE_TEST_SERVER its kind. */
#include "tests/support/test.h"
#include "truce/sys/store.h"

/* Writes the URI mongodb://HOST:PORT/DATABASE?directConnection=true... of a database of this
 * process to `text`, and returns it. `options` are appended after a "&", or are "". */
const char *server_uri(char *text, size_t size, const char *options);

/* Returns a store on the server, emptied. The program has only one: truce_store_close releases it,
 * and the next call returns it again. If the server cannot be reached, returns NULL and prints a
 * message on standard error. */
truce_store *server_store(void);

/* Returns whether the program runs at a server. */
bool server_under_test(void);

/* Returns a fresh store: on the server, if the program runs at one, in memory if not. */
truce_store *server_or_memory(void);

/* Closes the kept store; called at exit, too. */
void server_release(void);

/* Kills the server with SIGKILL and starts it again on its files. Returns false if this is not
 * possible. */
bool server_kill(void);

#endif
