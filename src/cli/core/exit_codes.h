#ifndef TRUCE_CLI_CORE_EXIT_CODES_H
#define TRUCE_CLI_CORE_EXIT_CODES_H

/* The exit codes of all commands. A command returns its code, and main() exits with it. */
enum cli_exit {
    CLI_DONE = 0,
    /* A negative result: not found, a conflict, findings, or some bad lines. */
    CLI_NO = 1,
    /* The call or its input is wrong. */
    CLI_USAGE = 2,
    /* The store, the disk, or the network failed. */
    CLI_FAILED = 3,
};

#endif
