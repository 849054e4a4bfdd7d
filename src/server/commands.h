#ifndef TRUCE_SERVER_COMMANDS_H
#define TRUCE_SERVER_COMMANDS_H

/* The table of all commands of truce serve. */
#include "server/call/call.h"

extern const struct command_table server_commands;

#endif
