#ifndef TRUCE_TESTS_SUPPORT_SERVER_H
#define TRUCE_TESTS_SUPPORT_SERVER_H

/* A server of MongoDB's protocol, as tests/servers/serve started it: TRUCE_TEST_MONGODB is its
 * URI, TRUCE_TEST_SERVER its kind. */
#include "tests/support/test.h"
#include "truce/sys/store.h"

/* mongodb://HOST:PORT/DATABASE?directConnection=true..., a database of this process; `options`
 * come after a "&" ("" for none). */
const char *server_uri(char *text, size_t size, const char *options);

/* Returns a store there, emptied; one for the whole program: truce_store_close releases it, and
 * the next call returns it again. NULL and a message on standard error if the server cannot be
 * reached. */
truce_store *server_store(void);

/* True if the program runs at a server: suites of other kinds may do so, too. */
bool server_under_test(void);

/* Returns a fresh store: on the server, if the program runs at one, in memory if not. */
truce_store *server_or_memory(void);

/* Closes the kept store; called at exit, too. */
void server_release(void);

/* Kills the server with SIGKILL and starts it again on its files. False: it cannot be. */
bool server_kill(void);

#endif
