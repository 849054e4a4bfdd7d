#ifndef TRUCE_BASE_PROCESS_NAME_H
#define TRUCE_BASE_PROCESS_NAME_H

/* Returns "HOST:PID" of this process, by which an operator can find it. The caller frees it with
 * bson_free. In a simulated environment, all processes have the same name. */
char *truce__process_name(void);

#endif
