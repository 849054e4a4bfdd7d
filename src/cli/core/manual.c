/*
 * truce manual: the man page, written from the table of commands, and the completion for shells.
 *
 * The build runs it, so they cannot say anything else than the program does.
 */
#include <string.h>

#include "cli/commands.h"

#define MANUAL_DATE "November 22, 2026" /* of the text; raised with each release */

/* ---- the man page (roff) ------------------------------------------------------------------- */

/* text with what roff would take as its own escaped; a line never starts with a control character
 */
static void roff(const char *text)
{
    bool line_start = true;
    int width = 0;

    for (; *text; text++) {
        /* a long line is broken at a space; lines that begin with one are as they must be */
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

static const char man_end[] =
    ".SH ENVIRONMENT\n"
    ".TP\n.B TRUCE_STORE\nthe store, where no \\-\\-store is given\n"
    ".TP\n.B TRUCE_SLOW_MS\nmilliseconds, where no \\-\\-slow is given: calls to the store that take as\n"
    "long, or longer, are printed to standard error\n"
    ".TP\n.B TRUCE_CACHE_MB\nmemory that an open file takes for documents and pages, in megabytes; a 64th of\n"
    "the machine's where nothing is said, from 64 to 256\n"
    ".TP\n.B TRUCE_HELPERS\nthreads that read ahead for one report over a whole collection of a file, from\n"
    "0 to 3, whatever else there is to do; processors without work where nothing is\n"
    "said\n"
    ".TP\n.B NO_COLOR\nset to anything: no colours; TERM=dumb, too\n"
    ".TP\n.B VISUAL, EDITOR\nthe editor of truce doc resolve \\-\\-edit\n"
    ".TP\n.B TMPDIR\nwhere large sorts and demonstrations put their files (/tmp)\n"
    ".SH FILES\n"
    ".TP\n.I STORE\nan embedded store: one file, of any name\n"
    ".TP\n.I STORE\\-wal, STORE\\-shm, STORE\\-lock\n"
    "what was written last, an index of that, and the lock; they belong to the\n"
    "store as long as it is open anywhere, and are copied and removed with it\n"
    ".TP\n.I FILE.rejects\nlines of FILE that could not be imported or applied, with the reasons\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\ndone\n"
    ".TP\n.B 1\nanswered \"no\": not found, a conflict, findings, bad lines among good ones\n"
    ".TP\n.B 2\nthe call or its input is wrong\n"
    ".TP\n.B 3\nthe store, the disk or the network failed\n"
    ".SH EXAMPLES\n"
    "A store is made by the first document:\n"
    ".PP\n.RS\n.nf\n"
    "export TRUCE_STORE=school.truce\n"
    "truce insert students \\(aq{_id: 1, name: \"Ada\", year: 2}\\(aq\n"
    "truce find students \\(aq{year: {$gte: 2}}\\(aq \\-\\-table\n"
    ".fi\n.RE\n.PP\n"
    "Several documents change together, or none does:\n"
    ".PP\n.RS\n.nf\n"
    "truce commit apply \\(aq[{update: \"a\", id: 1, with: {$inc: {n: \\-5}}},\n"
    "                     {update: \"a\", id: 2, with: {$inc: {n: 5}}}]\\(aq\n"
    ".fi\n.RE\n.PP\n"
    "Messages of a queue, in any order and any number of times, by five processes:\n"
    ".PP\n.RS\n.nf\n"
    "truce set define students \\-\\-list classes \\-\\-key student_id \\-\\-name name\n"
    "truce set apply messages.ndjson students \\-\\-message\\-element class \\-\\-workers 5\n"
    ".fi\n.RE\n.PP\n"
    "A store is copied to a server and verified:\n"
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
           "truce \\- documents that stay consistent while many writers change them\n"
           ".SH SYNOPSIS\n"
           ".B truce\n.I command\n[\\fIarguments\\fR] [\\fIoptions\\fR]\n"
           ".SH DESCRIPTION\n"
           "truce keeps documents consistent while many writers change them at once,\n"
           "out of order, and crash half\\-way, on a store that promises no more than\n"
           "atomic updates of one document. Documents are MongoDB Extended JSON, in and\n"
           "out; lists are one document a line. Filters, updates and pipelines are\n"
           "MongoDB\\(aqs. What is typed may be as in mongosh: {a: 1, \\(aqb.c\\(aq: 2}.\n"
           ".SH OPTIONS\n"
           "Options stand anywhere, and letters may be written together. Every command has\n"
           "these:\n",
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

/* All three ask the program (complete.c), so none can say anything else than it takes. */

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
    "    for line in ${(f)\"$(${words[1]} complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"}; do\n"
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

static int manual_run(struct cli *cli)
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
        return cli_usage(
            cli, "there is a man page (man), and completion for bash, zsh and fish; no \"%s\"",
            form);
    return CLI_DONE;
}

const struct cli_command cli_manual = {
    .noun = "manual",
    .arguments = "FORM",
    .summary = "print the man page (man), or the completion of a shell (bash, zsh, fish)",
    .example = "source <(truce manual bash)",
    .run = manual_run,
};
