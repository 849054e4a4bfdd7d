/* Processes that post to one hot account are killed with -9 all the time, while another one adds
 * up all accounts. Every acknowledged posting is there, nothing is posted twice, the account is
 * never overdrawn, and money is conserved at every instant. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/book.h"

#define POSTERS 4
#define MONEY   120 /* each transfer takes 1 */

static char uri[400];

struct answer {
    int32_t poster, number, posted; /* posted: or refused */
};

static truce_ledger *open_book(truce_store **store)
{
    bson_error_t error = {0};

    if (truce_store_open(uri, NULL, store, &error))
        return NULL;
    return book_ledger(*store);
}

static void name_transfer(int poster, int number, char id[40])
{
    snprintf(id, 40, "k%d.%d", poster, number);
}

/* Posts from `number` on, which may be posted already: its answer was lost. */
_Noreturn static void post_from(int poster, int number, int answers)
{
    truce_store *store;
    truce_ledger *ledger = open_book(&store);
    bson_error_t error = {0};

    while (ledger) {
        struct answer answer = {poster, number, 0};
        truce_status status;
        char id[40];

        name_transfer(poster, number++, id);
        status = book_transfer(ledger, id, "hot", "bank", 1, &error);
        answer.posted = status == TRUCE_OK;
        if ((status && status != TRUCE_LIMIT) ||
            write(answers, &answer, sizeof answer) != sizeof answer)
            break;
    }
    _exit(1);
}

_Noreturn static void add_up(int stop)
{
    truce_store *store;
    truce_ledger *ledger = open_book(&store);
    int64_t sum = ledger ? 0 : 1;
    bson_error_t error = {0};
    char byte;

    /* until the other end is closed */
    while (!sum && read(stop, &byte, 1) < 0)
        if (truce_ledger_balances(ledger, NULL, book_add, &sum, &error))
            sum = 1;
    _exit(sum ? 1 : 0);
}

static pid_t start_reader(const int answers[2], const int pipe_ends[2])
{
    pid_t child = fork();

    if (child)
        return child;
    close(pipe_ends[1]);
    close(answers[0]); /* so that all end with this program, however it ends */
    close(answers[1]);
    add_up(pipe_ends[0]);
}

struct killing {
    int answers[2];
    pid_t posters[POSTERS];
    int next[POSTERS]; /* the number after the last answer */
    long posted, refused, kills;
};

static void start_poster(struct killing *killing, int poster)
{
    killing->posters[poster] = fork();
    if (killing->posters[poster])
        return;
    close(killing->answers[0]);
    post_from(poster, killing->next[poster], killing->answers[1]);
}

static void kill_poster(struct killing *killing, int poster)
{
    kill(killing->posters[poster], SIGKILL);
    waitpid(killing->posters[poster], NULL, 0);
    killing->kills++;
}

/* Each is killed after every third answer, until all are refused. */
static void play(struct killing *killing, long refusals)
{
    struct answer answer;

    for (int i = 0; i < POSTERS; i++)
        start_poster(killing, i);
    while (killing->refused < refusals &&
           read(killing->answers[0], &answer, sizeof answer) == sizeof answer) {
        killing->posted += answer.posted;
        killing->refused += !answer.posted;
        if (answer.number < killing->next[answer.poster])
            continue; /* it was killed after its answer, and reported it again */
        killing->next[answer.poster] = answer.number + 1;
        if (answer.number % 3 == 2) {
            kill_poster(killing, answer.poster);
            start_poster(killing, answer.poster);
        }
    }
    for (int i = 0; i < POSTERS; i++)
        kill_poster(killing, i);
}

static void prepare(void)
{
    truce_store *store = NULL;
    bson_error_t error = {0};
    truce_ledger *ledger;

    snprintf(uri, sizeof uri, "file:%s/kill.truce", test_directory());
    ledger = open_book(&store);
    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "hot", 0, &error), error);
    CHECK_OK(book_transfer(ledger, "seed", "bank", "hot", MONEY, &error), error);
    truce_ledger_free(ledger);
    truce_store_close(store);
}

TEST(pays_once_and_never_too_much_if_posting_processes_are_killed)
{
    struct killing killing = {.kills = 0};
    int stop[2], ended = 0;
    truce_store *store = NULL;
    truce_ledger *ledger;
    pid_t reader;

    prepare();
    REQUIRE(CHECK(!pipe(killing.answers) && !pipe2(stop, O_NONBLOCK)));
    reader = start_reader(killing.answers, stop);
    play(&killing, 12);
    close(stop[1]);
    waitpid(reader, &ended, 0);
    CHECK_INT(ended, ==, 0);
    CHECK(killing.kills > POSTERS);
    ledger = open_book(&store);
    BOOK_CHECK(ledger);
    CHECK_INT(book_balance(ledger, "hot").balance, ==, 0);
    CHECK_INT(book_count(store, "{'kind': 'transfer'}"), ==, MONEY + 1);
    for (int poster = 0; poster < POSTERS; poster++) {
        for (int number = 0; number < 3 && number < killing.next[poster]; number++) {
            truce_ledger_result result = {0};
            bson_error_t error = {0};
            char id[40];

            name_transfer(poster, number, id);
            CHECK_OK(book_post(ledger, NULL, id, TRUCE_LEDGER_TRANSFER, "hot", "bank", 1, &result,
                               &error),
                     error);
            CHECK(result.exists);
        }
    }
    close(stop[0]);
    close(killing.answers[0]);
    close(killing.answers[1]);
    truce_ledger_free(ledger);
    truce_store_close(store);
}
