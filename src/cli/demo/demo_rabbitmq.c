#include "cli/demo/demo_rabbitmq.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/core/worker_pool.h"

#define RABBITMQ_SERVER "/usr/lib/rabbitmq/bin/rabbitmq-server"
/* One port each for clients, for Erlang's nodes, and for its name server. */
#define RABBITMQ_PORTS    3
#define RABBITMQ_START_MS 120000

/* The definition of the user guest with the password guest. Loaded definitions replace the default
 * user. */
#define RABBITMQ_USER                                                                              \
    "{\"users\": [{\"name\": \"guest\", \"tags\": \"administrator\", \"password_hash\": "          \
    "\"AQIDBEMMOXwY6PKx/JKP9PAqfsb4ozuD0Ta3pxxa9gEYBMmD\", \"hashing_algorithm\": "                \
    "\"rabbit_password_hashing_sha256\"}], \"vhosts\": [{\"name\": \"/\"}], \"permissions\": "     \
    "[{\"user\": \"guest\", \"vhost\": \"/\", \"configure\": \".*\", \"write\": \".*\", "          \
    "\"read\": \".*\"}], \"queues\": ["

bool demo_rabbitmq_is_installed(void)
{
    return !access(RABBITMQ_SERVER, X_OK);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static bool rabbitmq_answers(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    answers = connection >= 0 && !connect(connection, (struct sockaddr *)&address, sizeof address);
    if (connection >= 0)
        close(connection);
    return answers;
}

/* Finds ports that are free now. */
static bool rabbitmq_find_ports(int ports[RABBITMQ_PORTS])
{
    int sockets[RABBITMQ_PORTS];
    bool good = true;

    for (int i = 0; i < RABBITMQ_PORTS; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        socklen_t size = sizeof address;

        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        good = good && sockets[i] >= 0 &&
               !bind(sockets[i], (struct sockaddr *)&address, sizeof address) &&
               !getsockname(sockets[i], (struct sockaddr *)&address, &size);
        ports[i] = ntohs(address.sin_port);
    }
    for (int i = 0; i < RABBITMQ_PORTS; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    return good;
}

/* ---- files ----------------------------------------------------------------------------------- */

static FILE *rabbitmq_open(const struct demo_rabbitmq *server, const char *name)
{
    char path[120];

    snprintf(path, sizeof path, "%s/%s", server->directory, name);
    return fopen(path, "we");
}

static bool rabbitmq_write(const struct demo_rabbitmq *server, const char *name, const char *text)
{
    FILE *file = rabbitmq_open(server, name);
    bool good = file && fputs(text, file) >= 0;

    return file && !fclose(file) && good;
}

/* Writes the script that starts the server. `ports` are those of rabbitmq_find_ports. */
static bool rabbitmq_write_script(const struct demo_rabbitmq *server, const int *ports)
{
    char text[1000];

    snprintf(text, sizeof text,
             "here=$(cd \"$(dirname \"$0\")\" && pwd) && cd \"$here\" || exit\n"
             "export HOME=\"$here\" RABBITMQ_NODENAME=truce%d@localhost RABBITMQ_DIST_PORT=%d\n"
             "export ERL_EPMD_PORT=%d ERL_EPMD_ADDRESS=127.0.0.1\n"
             "export RABBITMQ_PID_FILE=\"$here/pid\" RABBITMQ_MNESIA_BASE=\"$here/data\"\n"
             "export RABBITMQ_LOG_BASE=\"$here\" RABBITMQ_CONFIG_FILE=\"$here/rabbitmq.conf\"\n"
             "export RABBITMQ_ENABLED_PLUGINS_FILE=\"$here/plugins\"\n"
             "export RABBITMQ_CONF_ENV_FILE=\"$here/environment\"\n"
             "exec " RABBITMQ_SERVER " >log 2>&1 </dev/null\n",
             ports[0], ports[1], ports[2]);
    return rabbitmq_write(server, "start", text);
}

static bool rabbitmq_write_files(const struct demo_rabbitmq *server, const char *const *queues)
{
    FILE *file = rabbitmq_open(server, "definitions.json");
    char text[400];

    if (!file)
        return false;
    fputs(RABBITMQ_USER, file);
    for (int i = 0; queues[i]; i++)
        fprintf(file,
                "%s{\"name\": \"%s\", \"vhost\": \"/\", \"durable\": true, \"auto_delete\": "
                "false, \"arguments\": {}}",
                i ? ", " : "", queues[i]);
    fputs("]}\n", file);
    snprintf(text, sizeof text,
             "listeners.tcp.1 = 127.0.0.1:%d\nload_definitions = %s/definitions.json\n"
             "disk_free_limit.absolute = 50MB\nlog.console = true\nlog.file = false\n",
             server->port, server->directory);
    return !fclose(file) && rabbitmq_write(server, "rabbitmq.conf", text) &&
           rabbitmq_write(server, "plugins", "[].\n") && rabbitmq_write(server, "environment", "");
}

/* ---- processes ------------------------------------------------------------------------------- */

static void rabbitmq_be_silent(void)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
}

truce_status demo_rabbitmq_begin(struct demo_rabbitmq *server, const char *const *queues,
                                 bson_error_t *error)
{
    const char *base = getenv("TMPDIR");
    int ports[RABBITMQ_PORTS];
    char port[16], script[120];

    *server = (struct demo_rabbitmq){0};
    snprintf(server->directory, sizeof server->directory, "%.40s/truce-rabbitmq-XXXXXX",
             base && strlen(base) < 40 ? base : "/tmp");
    if (!mkdtemp(server->directory) || !rabbitmq_find_ports(ports)) {
        server->directory[0] = 0;
        return truce__fail(TRUCE_IO, error,
                           "cannot create a directory for RabbitMQ, or no port is free");
    }
    server->port = ports[0];
    if (!rabbitmq_write_files(server, queues) || !rabbitmq_write_script(server, ports))
        return truce__fail(TRUCE_IO, error, "cannot write to %s", server->directory);
    /* Starts the name server here, because one that the server starts would outlive the server. */
    snprintf(port, sizeof port, "%d", ports[2]);
    server->names = pool_fork();
    if (!server->names) {
        rabbitmq_be_silent();
        execlp("epmd", "epmd", "-address", "127.0.0.1", "-port", port, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 50 && !rabbitmq_answers(ports[2]); i++)
        truce__clock_sleep_ms(20);
    server->starter = pool_fork();
    if (!server->starter) {
        snprintf(script, sizeof script, "%s/start", server->directory);
        execl("/bin/sh", "sh", script, (char *)NULL);
        _exit(127);
    }
    for (int waited_ms = 0; waited_ms < RABBITMQ_START_MS; waited_ms += 50) {
        if (rabbitmq_answers(server->port))
            return TRUCE_OK;
        if (waitpid(server->starter, NULL, WNOHANG) > 0)
            break;
        truce__clock_sleep_ms(50);
    }
    return truce__fail(TRUCE_IO, error, "RabbitMQ did not start within %d seconds",
                       RABBITMQ_START_MS / 1000);
}

static void rabbitmq_kill_by_file(const struct demo_rabbitmq *server)
{
    char path[120];
    long pid = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/pid", server->directory);
    file = fopen(path, "re");
    if (!file)
        return;
    if (fscanf(file, "%ld", &pid) == 1 && pid > 1) /* NOLINT(cert-err34-c) */
        kill((pid_t)pid, SIGKILL);
    fclose(file);
}

static void rabbitmq_remove(const struct demo_rabbitmq *server)
{
    pid_t child = pool_fork();

    if (!child) {
        execlp("rm", "rm", "-rf", "--", server->directory, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}

void demo_rabbitmq_end(struct demo_rabbitmq *server)
{
    if (!server->directory[0])
        return;
    rabbitmq_kill_by_file(server);
    pool_end(&server->starter);
    pool_end(&server->names);
    rabbitmq_remove(server);
    server->directory[0] = 0;
}
