/*
 * truce manual: the man page from the table of commands, and the completion for shells.
 *
 * The build runs it, so the man page always describes the program.
 */
#include <string.h>

#include "cli/core/cli.h"
#include "cli/core/operation_row.h"

/* The date of the man page. Change it with each release. */
#define MANUAL_DATE "November 22, 2026"

/* ---- the man page (roff) ------------------------------------------------------------------- */

/* Prints a string and escapes what roff would interpret. No line starts with a control
 * character. */
static void manual_print_escaped(const char *text)
{
    bool line_start = true;
    int width = 0;

    for (; *text; text++) {
        /* Breaks long lines at a space. Lines that begin with a space stay unchanged. */
        width = line_start ? 0 : width + 1;
        if (*text == ' ' && width && width + (int)strcspn(text + 1, " \n") > 70) {
            putchar('\n');
            line_start = true;
            continue;
        }
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

/* Prints the options in the language of man pages. */
static void roff_options(const struct cli_option *options)
{
    for (; options && options->name; options++) {
        printf(".TP\n.B ");
        if (options->letter)
            printf("\\-%c, ", options->letter);
        printf("\\-\\-");
        manual_print_escaped(options->name);
        if (options->value)
            printf(" \\fI%s\\fR", options->value);
        printf("\n");
        manual_print_escaped(options->help);
        printf("\n");
    }
}

/* Prints the section of a command: usage, summary, help, options, and example. */
static void roff_command(const struct cli_command *c)
{
    printf(".SS truce %s%s%s\n.nf\n.B truce %s%s%s", c->noun, c->verb ? " " : "",
           c->verb ? c->verb : "", c->noun, c->verb ? " " : "", c->verb ? c->verb : "");
    if (c->arguments)
        printf(" \\fI%s\\fR", c->arguments);
    printf("\n.fi\n.PP\n");
    manual_print_escaped(c->summary);
    printf(".\n");
    if (c->help) {
        printf(".PP\n");
        manual_print_escaped(c->help);
        printf("\n");
    }
    roff_options(cli_command_options(c));
    if (c->example) {
        printf(".PP\n.RS\n.nf\n");
        manual_print_escaped(c->example);
        printf("\n.fi\n.RE\n");
    }
}

static const char man_end[] =
    ".SH ENVIRONMENT\n"
    ".TP\n.B TRUCE_STORE\nthe store, if \\-\\-store is not given\n"
    ".TP\n.B TRUCE_SLOW\na duration, if \\-\\-slow is not given: calls to the store that take as\n"
    "long, or longer, are printed to standard error\n"
    ".TP\n.B TRUCE_CACHE_MB\nmemory of an open file for documents and pages, in megabytes; by "
    "default a 64th\n"
    "of the machine's memory, from 64 to 256\n"
    ".TP\n.B TRUCE_HELPERS\nthreads that read ahead for one report over a whole collection of a "
    "file, from\n"
    "0 to 3; by default, only processors that have no other work are used\n"
    ".TP\n.B NO_COLOR\nif it is set to any value, the output has no colors; TERM=dumb has the\n"
    "same effect\n"
    ".TP\n.B VISUAL, EDITOR\nthe editor of truce doc resolve \\-\\-edit\n"
    ".TP\n.B TMPDIR\nwhere large sorts and demonstrations put their files (/tmp)\n"
    ".SH FILES\n"
    ".TP\n.I STORE\nan embedded store: one file with any name\n"
    ".TP\n.I STORE\\-wal, STORE\\-shm, STORE\\-lock\n"
    "the latest writes, an index of them, and the lock; these files belong to the\n"
    "store while a process has it open, and are copied and removed with it\n"
    ".TP\n.I FILE.rejects\nlines of FILE that could not be imported or applied, with the reasons\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\nsuccess\n"
    ".TP\n.B 1\na negative result: not found, a conflict, findings, some invalid lines\n"
    ".TP\n.B 2\nthe arguments or the input are wrong\n"
    ".TP\n.B 3\nthe store, the disk, or the network failed\n"
    ".SH EXAMPLES\n"
    "The first document creates the store:\n"
    ".PP\n.RS\n.nf\n"
    "export TRUCE_STORE=school.truce\n"
    "truce insert students \\(aq{_id: 1, name: \"Ada\", year: 2}\\(aq\n"
    "truce find students \\(aq{year: {$gte: 2}}\\(aq \\-\\-table\n"
    ".fi\n.RE\n.PP\n"
    "Several documents change together, or none of them:\n"
    ".PP\n.RS\n.nf\n"
    "truce commit apply \\(aq[{update: \"a\", id: 1, with: {$inc: {n: \\-5}}},\n"
    "                     {update: \"a\", id: 2, with: {$inc: {n: 5}}}]\\(aq\n"
    ".fi\n.RE\n.PP\n"
    "Messages of a queue, in any order and any number of times, by five processes:\n"
    ".PP\n.RS\n.nf\n"
    "truce set define students \\-\\-list classes \\-\\-key student_id \\-\\-name name\n"
    "truce set apply messages.ndjson students \\-\\-message\\-element class \\-\\-workers 5\n"
    ".fi\n.RE\n.PP\n"
    "A store is copied to a server, and the copy is verified:\n"
    ".PP\n.RS\n.nf\n"
    "truce copy school.truce mongodb://127.0.0.1:27017/school\n"
    ".fi\n.RE\n"
    ".SH SEE ALSO\n"
    ".BR truce_store (3),\n"
    ".BR jq (1),\n"
    ".BR mongosh (1)\n";

static void print_man(void)
{
    printf(".TH TRUCE 1 \"%s\" \"truce %s\" \"User Commands\"\n"
           ".SH NAME\n"
           "truce \\- keeps documents consistent while many writers change them\n"
           ".SH SYNOPSIS\n"
           ".B truce\n.I command\n[\\fIarguments\\fR] [\\fIoptions\\fR]\n"
           ".SH DESCRIPTION\n"
           "truce keeps documents consistent while many writers change them concurrently,\n"
           "out of order, and crash halfway, on a store that guarantees no more than\n"
           "atomic updates of one document. Documents are MongoDB Extended JSON, in and\n"
           "out; lists have one document per line. Filters, updates, and pipelines are\n"
           "MongoDB\\(aqs. Input may have the form of mongosh: {a: 1, \\(aqb.c\\(aq: 2}.\n"
           ".SH OPTIONS\n"
           "Options are accepted anywhere, and letters may be written together.\n"
           "Every command has these:\n",
           MANUAL_DATE, TRUCE_VERSION);
    roff_options(cli_common_options);
    printf(".SH COMMANDS\n");
    for (int i = 0; cli_commands[i]; i++) {
        if (!cli_commands[i]->hidden)
            roff_command(cli_commands[i]);
    }
    fputs(man_end, stdout);
}

/* ---- completion ---------------------------------------------------------------------------- */

/* All three scripts ask the program (shell_complete.c), so they offer only what it accepts. */

static const char bash_text[] =
    "_truce() {\n"
    "    local line current=${COMP_WORDS[COMP_CWORD]}\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        if [ \"$line\" = :files ]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -f -- "
    "\"$current\")\n"
    "        else\n"
    "            COMPREPLY+=(\"${line%%$'\\t'*}\")\n"
    "        fi\n"
    "    done < <(\"${COMP_WORDS[0]}\" complete -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
    "2>/dev/null)\n"
    "}\n"
    "complete -F _truce truce\n";

static const char zsh_text[] =
    "#compdef truce\n"
    "_truce() {\n"
    "    local line\n"
    "    local -a found\n"
    "    for line in ${(f)\"$(${words[1]} complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"}; "
    "do\n"
    "        if [[ $line == :files ]]; then\n"
    "            _files\n"
    "        else\n"
    "            line=${line//:/\\\\:}\n"
    "            found+=(\"${line/$'\\t'/:}\")\n"
    "        fi\n"
    "    done\n"
    "    (( $#found )) && _describe truce found\n"
    "}\n"
    "if [[ $funcstack[1] == _truce ]]; then _truce \"$@\"; else compdef _truce truce; fi\n";

static const char fish_text[] =
    "function __truce_complete\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)\n"
    "        if test \"$line\" = :files\n"
    "            __fish_complete_path (commandline -ct)\n"
    "        else\n"
    "            echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c truce -f -a '(__truce_complete)'\n";

/* -------------------------------------------------------------------------------------------- */

static int manual_page_run(struct cli *cli)
{
    const char *form = cli->arguments[0];

    if (!strcmp(form, "man"))
        print_man();
    else if (!strcmp(form, "bash"))
        fputs(bash_text, stdout);
    else if (!strcmp(form, "zsh"))
        fputs(zsh_text, stdout);
    else if (!strcmp(form, "fish"))
        fputs(fish_text, stdout);
    else
        return cli_usage(cli, "invalid FORM \"%s\": expected man, bash, zsh, or fish", form);
    return CLI_DONE;
}

static const struct cli_command cli_manual = {
    .noun = "manual",
    .arguments = "FORM",
    .help = "FORM is man, bash, zsh, or fish.",
    .summary = "print the man page or the completion of a shell",
    .example = "source <(truce manual bash)",
    .run = manual_page_run,
};

cli_command_list cli_manual_commands = {&cli_manual, NULL};
