#ifndef TRUCE_SERVER_COMMAND_WRITE_H
#define TRUCE_SERVER_COMMAND_WRITE_H

/* Statements of insert, update, delete, and bulkWrite as writes of one bulk, and their results. */
#include "server/call/call.h"

/* ---- a statement ----------------------------------------------------------------------------- */

struct write_update {
    const bson_t *filter, *array_filters, *sort, *hint;
    struct either update;
    bool multi, upsert;
};

/* 40414, with the `names` of the two fields, if it has no filter or no update. */
truce_status write_of_update(const struct write_update *update, const char *names,
                             truce_write *write, bson_error_t *error);

/* Under bypassEmptyTsReplacement, which the store cannot do. CommandNotSupported (115): an empty
 * timestamp, at the top of what is inserted or replaced, which would not stay as it is. */
truce_status write_check_timestamps(const truce_write *write, bson_error_t *error);

/* Those of insert, update or delete, whichever the call is of. `writes` is freed by the caller,
 * in any case. */
struct write_statements {
    char place[PLACE_MAX];
    truce_write *writes;
    uint32_t count;
    bool ordered;
};

truce_status write_read(struct call *call, struct write_statements *statements,
                        bson_error_t *error);

/* findAndModify */
struct write_modify {
    const bson_t *query, *sort, *fields, *array_filters, *hint, *let;
    struct either update;
    bool remove, new, upsert, unvalidated, empty_stay;
};

truce_status write_read_modify(struct call *call, struct write_modify *modify, bson_error_t *error);

/* ---- all of them ----------------------------------------------------------------------------- */

/* Does the writes in one bulk; what comes again is answered as before (retryable_writes.h). OK:
 * each has its outcome, and call->refused says that some were refused. Not OK: the command failed
 * as a whole. The outcomes are released by write_release in any case. */
truce_status write_bulk(struct call *call, const truce_write *writes, uint32_t count, bool ordered,
                        truce_write_outcome *outcomes, bson_error_t *error);
void write_release(truce_write_outcome *outcomes, uint32_t count);

/* Was this one statement refused? Anything else is said of the command as a whole. */
bool write_is_refused(const truce_write_outcome *outcome);
/* {code, errmsg, keyPattern, keyValue, errInfo} of one that was; behind a megabyte of them only
 * the code, and no words. */
void write_append_error(struct call *call, const truce_write_outcome *outcome, bson_t *element);
/* Documents that were inserted, upserted, removed or matched. */
int64_t write_count(const truce_write *write, const truce_write_result *result);

#endif
