/*
 * truce manual: the man page and the bash completion, written from the table of commands.
 *
 * The build runs it, so neither can say anything else than the program does.
 */
#include <string.h>

#include "cli/commands.h"

/* ---- the man page (roff) ------------------------------------------------------------------- */

/* text with what roff would take as its own escaped; a line never starts with a control character
 */
static void roff(const char *text)
{
    bool line_start = true;

    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            printf("\\&");
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
        line_start = *text == '\n';
    }
}

static void roff_options(const struct cli_option *options)
{
    for (; options && options->name; options++) {
        printf(".TP\n.B ");
        if (options->letter)
            printf("\\-%c, ", options->letter);
        printf("\\-\\-");
        roff(options->name);
        if (options->value)
            printf(" \\fI%s\\fR", options->value);
        printf("\n");
        roff(options->help);
        printf("\n");
    }
}

static void roff_command(const struct cli_command *c)
{
    printf(".SS truce %s%s%s\n.nf\n.B truce %s%s%s", c->noun, c->verb ? " " : "",
           c->verb ? c->verb : "", c->noun, c->verb ? " " : "", c->verb ? c->verb : "");
    if (c->arguments)
        printf(" \\fI%s\\fR", c->arguments);
    printf("\n.fi\n.PP\n");
    roff(c->summary);
    printf(".\n");
    if (c->help) {
        printf(".PP\n");
        roff(c->help);
        printf("\n");
    }
    roff_options(c->options);
    if (c->example) {
        printf(".PP\n.RS\n.nf\n");
        roff(c->example);
        printf("\n.fi\n.RE\n");
    }
}

static void print_man(void)
{
    printf(
        ".TH TRUCE 1 \"\" \"truce %s\" \"User Commands\"\n"
        ".SH NAME\n"
        "truce \\- documents that stay consistent while many writers change them\n"
        ".SH SYNOPSIS\n"
        ".B truce\n.I command\n[\\fIarguments\\fR] [\\fIoptions\\fR]\n"
        ".SH DESCRIPTION\n"
        "truce keeps documents consistent while many writers change them at once, out of order,\n"
        "and crash half\\-way, on a store that promises no more than atomic updates of one\n"
        "document. Documents are MongoDB Extended JSON, in and out; lists are one document a\n"
        "line. Filters, updates and pipelines are MongoDB's.\n"
        ".SH OPTIONS\n"
        "Every command has these:\n",
        TRUCE_VERSION);
    roff_options(cli_common_options);
    printf(".SH COMMANDS\n");
    for (int i = 0; cli_commands[i]; i++) {
        if (!cli_commands[i]->hidden)
            roff_command(cli_commands[i]);
    }
    printf(".SH ENVIRONMENT\n.TP\n.B TRUCE_STORE\nthe store, where no \\-\\-store is given\n"
           ".SH EXIT STATUS\n"
           ".TP\n.B 0\ndone\n"
           ".TP\n.B 1\nanswered \"no\": not found, a conflict, findings, bad lines among good "
           "ones\n"
           ".TP\n.B 2\nthe call or its input is wrong\n"
           ".TP\n.B 3\nthe store, the disk or the network failed\n");
}

/* ---- bash completion ----------------------------------------------------------------------- */

static void bash_options(const struct cli_option *options)
{
    for (; options && options->name; options++)
        printf(" --%s", options->name);
}

/* one line of the case over "noun" or "noun verb": options, and what the arguments are */
static void bash_command(const struct cli_command *c)
{
    bool collection = c->arguments && !strncmp(c->arguments, "COLLECTION", 10);

    printf("    '%s%s%s') options='", c->noun, c->verb ? " " : "", c->verb ? c->verb : "");
    bash_options(c->options);
    bash_options(cli_common_options);
    printf("'; collection=%s ;;\n", collection ? "yes" : "no");
}

static void bash_words(const char *noun)
{
    const char *before = "";

    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];

        if (c->hidden)
            continue;
        if (noun && !strcmp(c->noun, noun) && c->verb)
            printf(" %s", c->verb);
        else if (!noun && strcmp(before, c->noun) != 0)
            printf(" %s", c->noun);
        before = c->noun;
    }
}

/* the case over nouns that have verbs */
static void bash_verbs(void)
{
    const char *before = "";

    for (int i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];

        if (!c->hidden && c->verb && strcmp(before, c->noun) != 0) {
            printf("    %s) verbs='", c->noun);
            bash_words(c->noun);
            printf("' ;;\n");
            before = c->noun;
        }
    }
}

static void print_bash(void)
{
    printf("# bash completion for truce %s, made from its table of commands\n"
           "_truce() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local verbs='' options='' collection=no first=3 name i\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        COMPREPLY=($(compgen -W '",
           TRUCE_VERSION);
    bash_words(NULL);
    printf(" --help --version' -- \"$current\"))\n"
           "        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
    bash_verbs();
    printf("    help) [ \"$COMP_CWORD\" = 2 ] && verbs='");
    bash_words(NULL);
    printf("' ;;\n"
           "    esac\n"
           "    name=${COMP_WORDS[1]}\n"
           "    if [ -n \"$verbs\" ]; then\n"
           "        if [ \"$COMP_CWORD\" = 2 ]; then\n"
           "            COMPREPLY=($(compgen -W \"$verbs\" -- \"$current\"))\n"
           "            return\n"
           "        fi\n"
           "        name=\"$name ${COMP_WORDS[2]}\"\n"
           "    else\n"
           "        first=2\n"
           "    fi\n"
           "    case $name in\n");
    for (int i = 0; cli_commands[i]; i++) {
        if (!cli_commands[i]->hidden)
            bash_command(cli_commands[i]);
    }
    printf("    esac\n"
           "    case $current in\n"
           "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")); return ;;\n"
           "    esac\n"
           "    if [ $collection = yes ] && [ \"$COMP_CWORD\" = $first ]; then\n"
           "        local store=$TRUCE_STORE\n"
           "        for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "            case ${COMP_WORDS[i]} in --store|-s) store=${COMP_WORDS[i+1]} ;; esac\n"
           "        done\n"
           "        if [ -n \"$store\" ]; then\n"
           "            COMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" collections list --store "
           "\"$store\" 2>/dev/null | cut -d' ' -f1)\" -- \"$current\"))\n"
           "            return\n"
           "        fi\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
           "}\n"
           "complete -o filenames -F _truce truce\n");
}

/* -------------------------------------------------------------------------------------------- */

static int run(struct cli *cli)
{
    if (!strcmp(cli->arguments[0], "man"))
        print_man();
    else if (!strcmp(cli->arguments[0], "bash"))
        print_bash();
    else
        return cli_usage(cli, "there is a \"man\" page and a \"bash\" completion, no \"%s\"",
                         cli->arguments[0]);
    return CLI_DONE;
}

const struct cli_command cli_manual = {
    .noun = "manual",
    .arguments = "FORM",
    .summary = "print the man page (man) or the shell completion (bash)",
    .example = "source <(truce manual bash)",
    .run = run,
};
