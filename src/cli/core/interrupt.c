#include "cli/core/interrupt.h"

#include <signal.h>

/* The maximum number of stores of a call: `truce copy` opens two. */
#define STORES_MAX 2

static truce_store *watched[STORES_MAX];
static volatile sig_atomic_t count, interrupted;
static atomic_int stopped;

/* Interrupts the stores. The next Ctrl-C has its usual effect (SA_RESETHAND). */
static void on_interrupt(int number)
{
    interrupted = 1;
    for (int i = 0; i < count; i++)
        truce_interrupt(watched[i]);
}

void cli_interrupt_watch(truce_store *store)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND}, before;

    if (!store || count == STORES_MAX)
        return;
    watched[count] = store;
    count++;
    /* If SIGINT is ignored, as under nohup or in a background job, it stays ignored. */
    if (count == 1 && !sigaction(SIGINT, NULL, &before) && before.sa_handler == SIG_DFL) {
        sigemptyset(&action.sa_mask);
        sigaction(SIGINT, &action, NULL);
    }
}

void cli_interrupt_forget(void)
{
    struct sigaction before;

    if (!sigaction(SIGINT, NULL, &before) && before.sa_handler == on_interrupt)
        signal(SIGINT, SIG_DFL);
    count = 0;
}

static void on_stop(int number)
{
    (void)number;
    atomic_store(&stopped, 1);
}

/* Returns a flag that the first SIGTERM or SIGINT sets. The second signal ends the process
 * (SA_RESETHAND), and sleeping threads wake (no SA_RESTART). */
const atomic_int *cli_interrupt_stop(void)
{
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND};

    cli_interrupt_forget();
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    return &stopped;
}

int cli_interrupt_code(int code)
{
    return interrupted ? CLI_INTERRUPTED : code;
}
