#ifndef TRUCE_ENGINE_STORAGE_PAGE_TRUNCATION_H
#define TRUCE_ENGINE_STORAGE_PAGE_TRUNCATION_H

/* Prevents SQLite from searching its page cache at commits that divide a page. Called once, before
 * the first connection is opened. Has no effect if the host program has initialized SQLite. */
void truce__page_truncation_configure(void);

#endif
