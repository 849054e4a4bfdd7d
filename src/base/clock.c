#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/environment.h"

static int64_t clock_now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t truce__clock_wall_ms(void)
{
    const struct environment *environment = truce__environment();

    return environment ? environment->wall_ms(environment->arg)
                       : clock_now_ns(CLOCK_REALTIME) / 1000000;
}

int64_t truce__clock_monotonic_ns(void)
{
    const struct environment *environment = truce__environment();

    return environment ? environment->monotonic_ns(environment->arg)
                       : clock_now_ns(CLOCK_MONOTONIC);
}

#define BOOT_ID_LENGTH 36

/* The kernel's id of the boot, or "" if it is unknown. */
static char clock_boot[BOOT_ID_LENGTH + 1];

/* Reads the kernel's id of the boot. A process in a time namespace of its own has another monotonic
 * clock, so its clock gets no name. */
static void clock_read_boot(void)
{
    static const char initial[] = "time:[4026531834]";
    char namespace[sizeof initial] = "";
    ssize_t length = readlink("/proc/self/ns/time", namespace, sizeof namespace - 1);
    FILE *file;

    if (length >= 0 && strcmp(namespace, initial) != 0)
        return;
    file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file)
        return;
    if (fread(clock_boot, 1, BOOT_ID_LENGTH, file) != BOOT_ID_LENGTH ||
        strspn(clock_boot, "0123456789abcdef-") != BOOT_ID_LENGTH)
        clock_boot[0] = '\0';
    fclose(file);
}

const char *truce__clock_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct environment *environment = truce__environment();

    if (environment)
        return environment->clock_name ? environment->clock_name(environment->arg) : NULL;
    pthread_once(&once, clock_read_boot);
    return clock_boot[0] ? clock_boot : NULL;
}

void truce__clock_sleep_ms(int64_t duration_ms)
{
    const struct environment *environment = truce__environment();
    struct timespec rest = {duration_ms / 1000, (duration_ms % 1000) * 1000000};

    if (environment) {
        environment->sleep_ms(environment->arg, duration_ms);
        return;
    }
    while (nanosleep(&rest, &rest) && errno == EINTR)
        continue;
}
