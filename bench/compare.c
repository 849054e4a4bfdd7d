#include "bench/compare.h"

#include "bench/results.h"

#define APART 0.05 /* Smaller differences of medians are not reported. */

/* Returns the distance between the fastest and the slowest round of a run, in percent of the
 * median. */
static double noise(const struct result *result)
{
    return (result->most - result->least) / result->per_second * 100;
}

static bool compare_differs(const struct result *before, const struct result *after)
{
    double change = after->per_second / before->per_second - 1;

    return (before->most < after->least || after->most < before->least) &&
           (change > APART || change < -APART);
}

static void compare_show(const struct result *before, const struct result *after)
{
    printf("%-18s %-12s %-9s %7d %12.0f %12.0f %+7.0f %%   noise %2.0f %%, %2.0f %%",
           after->workload, after->target, after->form, after->callers, before->per_second,
           after->per_second, (after->per_second / before->per_second - 1) * 100, noise(before),
           noise(after));
    if (after->truce_is > 0)
        printf("   truce is %.2f x, was %.2f x", after->truce_is, before->truce_is);
    printf("\n");
}

/* Returns the number of figures that differ. Figures that are void, or in only one of the files,
 * are counted separately. */
static int compare_compare(const struct results *before, const struct results *after)
{
    int different = 0, same = 0, alone = 0;

    printf("%-18s %-12s %-9s %7s %12s %12s\n", "", "", "", "callers", "before /s", "after /s");
    for (int i = 0; i < after->count; i++) {
        const struct result *now = &after->all[i], *then = results_find(before, now);

        if (!then || !then->valid || !now->valid || then->per_second <= 0) {
            alone++;
        } else if (compare_differs(then, now)) {
            compare_show(then, now);
            different++;
        } else {
            same++;
        }
    }
    printf("%d differ beyond noise, %d do not, %d cannot be compared\n", different, same, alone);
    return different;
}

int compare_files(const char *before, const char *after)
{
    struct results a, b;
    int different;

    if (!results_read(before, &a))
        return 2;
    if (!results_read(after, &b)) {
        results_release(&a);
        return 2;
    }
    different = compare_compare(&a, &b);
    results_release(&a);
    results_release(&b);
    return different > 0;
}
