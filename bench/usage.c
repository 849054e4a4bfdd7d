#include "bench/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/bench.h"
#define DISK_BLOCK  4096
#define DISK_BLOCKS 256

/* ---- /proc ----------------------------------------------------------------------------------- */

/* Returns the number after `label` in a file of the process, or 0 if it cannot be read. */
static int64_t labelled(pid_t pid, const char *file, const char *label)
{
    char path[64], line[256];
    int64_t value = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    f = fopen(path, "r");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(line, label, strlen(label))) {
            value = strtoll(line + strlen(label), NULL, 10);
            break;
        }
    }
    fclose(f);
    return value;
}

/* Reads the parent of a process, and the processor time of the process and its ended children. */
static bool read_stat(pid_t pid, pid_t *parent, double *seconds)
{
    unsigned long long ticks[4];
    char path[64], line[1024], *rest = NULL;
    FILE *f;
    int ppid = 0, got = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    if (fgets(line, sizeof line, f))
        rest = strrchr(line, ')');
    if (rest)
        got = sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
                     &ppid, &ticks[0], &ticks[1], &ticks[2], &ticks[3]);
    fclose(f);
    if (got != 5)
        return false;
    *parent = ppid;
    *seconds = (double)(ticks[0] + ticks[1] + ticks[2] + ticks[3]) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

static void add_process(pid_t pid, double seconds, bool with_memory, struct usage *usage)
{
    usage->cpu_seconds += seconds;
    usage->bytes_written += labelled(pid, "io", "wchar:");
    if (with_memory)
        usage->memory += labelled(pid, "smaps_rollup", "Pss:") * 1024;
}

/* Adds the usage of a process and its children. */
static void add_family(pid_t head, bool with_memory, struct usage *usage)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;

    BENCH_CHECK(directory);
    while ((entry = readdir(directory))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10), parent;
        double seconds;

        if (pid > 0 && read_stat(pid, &parent, &seconds) && (pid == head || parent == head))
            add_process(pid, seconds, with_memory, usage);
    }
    closedir(directory);
}

void usage_take(pid_t server, bool with_children, bool with_memory, struct usage *usage)
{
    struct rusage own;

    *usage = (struct usage){0};
    if (server)
        add_family(server, with_memory, usage);
    if (with_children) {
        add_family(getpid(), with_memory, usage);
        return;
    }
    getrusage(RUSAGE_SELF, &own);
    add_process(getpid(),
                (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                    (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6,
                with_memory, usage);
}

/* ---- the disk -------------------------------------------------------------------------------- */

/* Opens the file, which stays until the directory of the run is removed. */
static int disk_file(const char *directory)
{
    static char block[DISK_BLOCK];
    static int file = -1;
    char *path;

    if (file >= 0)
        return file;
    path = bson_strdup_printf("%s/fdatasync", directory);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    BENCH_CHECK(file >= 0);
    for (int i = 0; i < DISK_BLOCKS; i++)
        BENCH_CHECK(pwrite(file, block, sizeof block, (off_t)i * DISK_BLOCK) == sizeof block);
    BENCH_CHECK(fsync(file) == 0);
    bson_free(path);
    return file;
}

void usage_disk(const char *directory, int count, struct histogram *latencies)
{
    static char block[DISK_BLOCK];
    static int next;
    int file = disk_file(directory);

    for (int i = 0; i < count; i++) {
        off_t at = (off_t)(next++ % DISK_BLOCKS) * DISK_BLOCK;
        uint64_t before = bench_now_ns();

        BENCH_CHECK(pwrite(file, block, sizeof block, at) == sizeof block);
        BENCH_CHECK(fdatasync(file) == 0);
        truce__histogram_add(latencies, bench_now_ns() - before);
    }
}
