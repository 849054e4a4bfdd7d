/* Replaces target_postgres.c if libpq is not installed. */
#include "bench/harness.h"
#include "bench/sql.h"

static void postgres_start(struct bench_target *target)
{
    snprintf(target->reason, sizeof target->reason,
             "libpq was not there when the benchmarks were built");
}

const struct target_kind target_postgres = {.name = "postgresql", .start = postgres_start};
