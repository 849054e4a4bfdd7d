"use strict";
/*
 * A logger is an object with warn and error, and optionally info and debug: console, or a logger of
 * pino or winston. Each message is one string, because loggers treat further arguments differently.
 */

/* The default logger. It writes to standard error, because standard output belongs to the
 * program. */
const consoleLogger = {
    warn: (text) => console.warn(text),
    error: (text) => console.error(text),
};

module.exports = { consoleLogger };
