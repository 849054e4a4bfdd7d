/*
 * kill -9, among processes that execute each other's writes (engine/cross_process_commit.c). Each process
 * adds to its own number and to a common number in one commit. From time to time the test kills or
 * stops a process, whether or not it is the lock holder. An acknowledged write is stored exactly
 * once. A write that was in progress at the kill is stored once or not at all.
 *
 * TRUCE_KILL_CYCLES: how many kills.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "tests/support/test.h"

#define PROCESSES 6

/* Shared by all processes. */
static struct notes {
    atomic_llong reported[PROCESSES];  /* the acknowledged value of each process's number */
    atomic_llong delegated[PROCESSES]; /* delegated writes, executed by living processes */
    atomic_llong carried_before;       /* by killed processes */
} * notes;

static char path[400];
static truce_store *store;

static _Noreturn void wrong(const char *what, const bson_error_t *error)
{
    fprintf(stderr, "%d: %s: %s\n", (int)getpid(), what, error->message);
    _exit(1);
}

static int64_t number_of(const char *id)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), found;
    bson_error_t error;
    int64_t number = 0;
    bson_iter_t iter;
    truce_status status = truce_find_one(store, "numbers", filter, NULL, &found, &error);

    if (status && status != TRUCE_NOT_FOUND)
        wrong("find", &error);
    if (!status && bson_iter_init_find(&iter, &found, "n"))
        number = bson_iter_as_int64(&iter);
    bson_destroy(&found);
    bson_destroy(filter);
    return number;
}

/* Adds `by` to both numbers in one commit; with 0 it only counts the write. */
static void add(const char *id, int by)
{
    const bson_t *filters[] = {BCON_NEW("_id", BCON_UTF8(id)), BCON_NEW("_id", "all")};
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(by), "writes", BCON_INT32(1), "}");
    truce_write writes[2];
    truce_write_outcome outcomes[2];
    const truce_bulk_options options = {.atomic = true};
    bson_error_t error;

    for (int i = 0; i < 2; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                  .collection = "numbers",
                                  .filter = filters[i],
                                  .document = update,
                                  .options = {.upsert = true}};
    if (truce_bulk(store, writes, 2, &options, outcomes, &error))
        wrong("write", &error);
    for (int i = 0; i < 2; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy((bson_t *)filters[i]);
    }
    bson_destroy(update);
}

/* Runs a child process. The last write of its killed predecessor takes effect before any write of
 * this process. */
static _Noreturn void live(int process)
{
    const struct combine *combine;
    bson_error_t error;
    char id[20];
    int64_t n;

    snprintf(id, sizeof id, "p%d", process);
    if (truce_store_open(path, NULL, &store, &error))
        wrong("open", &error);
    combine = &truce__file_engine(store)->writer.combine;
    add(id, 0);
    n = number_of(id);
    bson_set_error(&error, 1, 1, "%lld, but %lld was acknowledged", (long long)n,
                   (long long)atomic_load(&notes->reported[process]));
    if (n != atomic_load(&notes->reported[process]) &&
        n != atomic_load(&notes->reported[process]) + 1)
        wrong("its number", &error);
    for (;;) {
        atomic_store(&notes->reported[process], n);
        add(id, 1);
        n++;
        atomic_store(&notes->delegated[process], (int64_t)atomic_load(&combine->delegated));
    }
}

static pid_t start(int process)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child)
        live(process);
    return child;
}

static bool end_one(pid_t child, int process)
{
    int state;

    kill(child, SIGKILL);
    if (waitpid(child, &state, 0) != child || !WIFSIGNALED(state))
        return false;
    atomic_fetch_add(&notes->carried_before, atomic_exchange(&notes->delegated[process], 0));
    return true;
}

static void judge(void)
{
    int64_t sum = 0;
    bson_error_t error;
    char id[20];

    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return;
    for (int i = 0; i < PROCESSES; i++) {
        int64_t reported = atomic_load(&notes->reported[i]), n;

        snprintf(id, sizeof id, "p%d", i);
        n = number_of(id);
        CHECK(n == reported || n == reported + 1);
        sum += n;
    }
    CHECK_INT(number_of("all"), ==, sum);
    CHECK_OK(truce__engine_check(truce__file_engine(store), NULL, NULL, &error), error);
    truce_store_close(store);
}

TEST(executes_delegated_writes_once_despite_kills_and_stops)
{
    long cycles = test_scale("TRUCE_KILL_CYCLES", 300);
    pid_t children[PROCESSES];
    struct random random;

    truce__random_seed(&random, test_seed());
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(notes != MAP_FAILED);
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start(i);
    for (long i = 0; i < cycles && !test_failures(); i++) {
        int victim = (int)truce__random_below(&random, PROCESSES);

        truce__clock_sleep_ms((int64_t)truce__random_below(&random, 40));
        if (i % 5 == 4) { /* at a random time: the others wait, and continue */
            kill(children[victim], SIGSTOP);
            truce__clock_sleep_ms((int64_t)truce__random_below(&random, 60));
            kill(children[victim], SIGCONT);
            continue;
        }
        CHECK(end_one(children[victim], victim));
        children[victim] = start(victim);
    }
    for (int i = 0; i < PROCESSES; i++)
        CHECK(end_one(children[i], i));
    CHECK_INT(atomic_load(&notes->carried_before), >, cycles);
    judge();
    munmap(notes, sizeof *notes);
}
