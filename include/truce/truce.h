#ifndef TRUCE_TRUCE_H
#define TRUCE_TRUCE_H

/*
 * All public headers of truce.
 *
 * Structs that the caller allocates (options, results, reports) end in reserved space, so that
 * later versions can add fields without a new layout. Initialize these structs with zeros ({0}, or
 * designated initializers) and leave the reserved space alone. If it is not zero, a call fails with
 * TRUCE_INVALID.
 */
#include "truce/broker.h"
#include "truce/changes.h"
#include "truce/command.h"
#include "truce/commit.h"
#include "truce/compact.h"
#include "truce/copy.h"
#include "truce/cron.h"
#include "truce/doctor.h"
#include "truce/hooks.h"
#include "truce/id.h"
#include "truce/item.h"
#include "truce/json.h"
#include "truce/ledger.h"
#include "truce/pool.h"
#include "truce/queue.h"
#include "truce/request.h"
#include "truce/revision.h"
#include "truce/salvage.h"
#include "truce/sequence.h"
#include "truce/set.h"
#include "truce/snapshot.h"
#include "truce/status.h"
#include "truce/store.h"
#include "truce/sweep.h"
#include "truce/sync.h"
#include "truce/transfer.h"
#include "truce/tree.h"
#include "truce/version.h"

#endif
