#ifndef TRUCE_ENGINE_WRITER_GROUP_H
#define TRUCE_ENGINE_WRITER_GROUP_H

/* What who has the turn does in it: for writer.c. */
#include "engine/writer.h"

/* Does it work for other processes, and they for it? A store whose names are not only the file's keeps to itself. */
bool truce__writer_keeps_company(const struct writer *writer);

/* All operations from `first` on, in one transaction, with those of other processes behind them. */
void truce__writer_run_group(struct writer *writer, struct write_op *first);

/* What one who had the turn and died has left taken: nothing of others is carried out before it is known what was. */
truce_status truce__writer_settle_orphans(struct writer *writer, bson_error_t *error);

#endif
