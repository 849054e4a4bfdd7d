/*
 * The main function of a test program, in a file of its own: a program with another main function
 * (the recorded answers, a fuzzer) can use the rest of the harness.
 */
#include "tests/support/test.h"

int main(int argc, char **argv)
{
    return test_run_all(argc, argv);
}
