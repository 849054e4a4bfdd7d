#ifndef TRUCE_CLI_DATA_IMPORT_H
#define TRUCE_CLI_DATA_IMPORT_H

/* The parts of truce import. */
#include "base/fingerprint.h"
#include "cli/core/cli.h"
#include "cli/core/ndjson.h"
#include "cli/core/progress.h"

struct entry {
    bson_t document, filter;         /* filter: {_id} with --upsert */
    int64_t line, row, row_end, end; /* as in struct ndjson_line */
    char *text;                      /* for the reject file */
    size_t size;
};

struct import {
    struct cli *cli;
    const char *collection, *path;
    struct ndjson *input;
    struct rejects rejects;
    struct cli_progress shown;
    struct entry *entries;
    truce_write *writes;
    truce_write_outcome *outcomes;
    size_t count, batch_lines, bytes;
    enum ndjson_form form;
    bool upsert, tracked;
    bson_oid_t seed;
    struct fingerprint hash;
    bson_t id;      /* {file, collection}: of the progress document */
    int64_t offset; /* as the progress document has it */
    int64_t line, imported, rejected, resumed_at;
    int64_t read_end, read_line, read_row; /* of the last line that was read, imported or not */
};

/* ---- import_progress.c ---- all but the first give the exit code, and say what failed */

void import_make_id(struct import *import);
/* Goes on where an earlier run of the same file was, or begins anew. */
int import_find_progress(struct import *import);
/* Up to the end of this line. */
int import_save_progress(struct import *import, const struct entry *last);
int import_mark_done(struct import *import);

#endif
