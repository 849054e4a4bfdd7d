/* The entry point: reads the call, opens the store, and runs the command. */
#include "cli/commands.h"
#include "cli/core/command_line.h"
#include "cli/core/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static int main_run(struct cli *cli, char **words)
{
    bool done;
    int code = cli_call_read(cli, words, &done);

    if (done)
        return code;
    if (cli->command->store != CLI_STORE_NONE)
        code = cli_store_open(cli, cli->command->store, &cli->store);
    if (!code)
        code = cli_interrupt_code(cli_output_end(cli->command->run(cli)));
    cli_interrupt_forget();
    return cli_rehearsal_end(cli, code);
}

/* Opens /dev/null for each standard file that is closed, so that no file that is opened later
 * becomes standard input, output, or error. */
static void fill_standard(void)
{
    for (int i = 0; i <= STDERR_FILENO; i++)
        if (fcntl(i, F_GETFD) < 0)
            (void)open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    struct cli *cli = bson_malloc0(sizeof *cli);
    int code;

    fill_standard();
    cli_commands = cli_command_table();
    signal(SIGPIPE, SIG_IGN);
    cli->program = argc ? argv[0] : "truce";
    cli_store_choose(cli, NULL);
    code = main_run(cli, argc ? argv + 1 : argv);
    truce_store_close(cli->store);
    bson_free(cli->config_text);
    bson_free(cli);
    return code;
}
