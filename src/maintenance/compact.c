/* truce_compact: the part that all stores share. The backend does the work. */
#include "truce/compact.h"

#include "base/null.h"
#include "base/reserved_fields.h"
#include "store/snapshot_view.h"
#include "store/store.h"

truce_status truce_compact(truce_store *store, const truce_compact_options *options,
                           truce_compact_report *report, bson_error_t *error)
{
    RETURN_IF_NULL(report, error);

    static const truce_compact_options defaults;
    truce_status status = ROOM_CHECK(options, "truce_compact_options", error);
    bson_error_t caught = {0};

    *report = (truce_compact_report){0};
    if (status)
        return status;
    if (truce__is_view(store))
        return truce__fail(TRUCE_INVALID, error,
                           "cannot release space: the store is a read-only snapshot");
    if (!store->ops->compact)
        return truce__fail(TRUCE_INVALID, error,
                           "a store of type \"%s\" has no file of its own that could become "
                           "smaller",
                           store->ops->scheme);
    status = store->ops->compact(store, options ? options : &defaults, report, &caught);
    return truce__pass_error(status, &caught, error);
}
