/* SPDX-License-Identifier: Apache-2.0 */
#include "usage.h"

#include <string.h>

#include "option.h"

#define MARGIN 27 /* where the explanations begin */
#define WIDTH  80

static const char introduction[] = "usage: tsocketd [OPTIONS] DATASET\n"
                                   "       tsocketd [OPTIONS] --stream NAME=FOLDER[,KEY=VALUE...] ...\n"
                                   "\n"
                                   "Reads, decodes and augments a dataset once and places the samples in a ring in\n"
                                   "shared memory, from which any number of trainers on this machine read them with\n"
                                   "libtsocket: each with its own batch size and at its own speed, every sample\n"
                                   "exactly once per epoch, without a copy.\n"
                                   "\n"
                                   "    tsocketd /data/train                 the usual ImageNet training recipe\n"
                                   "    tsocketctl status main               who reads, how fast, what holds it up\n"
                                   "    tsocketctl tap main --batch 32       what a trainer would get\n"
                                   "\n"
                                   "Every sample has the fields image, label (int64: the rank of its class folder's\n"
                                   "name) and index (int64: its place in --list).\n";

static const char conclusion[] =
    "\n"
    "Environment and file\n"
    "  Every option but those that print and exit may come from a variable\n"
    "  (TSOCKETD_MAX_BATCH=64, TSOCKETD_SHUFFLE=off) or from a file of JSON:\n"
    "\n"
    "      {\"dataset\": \"/data/train\", \"scale\": [0.3, 1], \"ring\": \"2GiB\",\n"
    "       \"streams\": [{\"name\": \"val\", \"source\": \"/data/val\", \"augment\": \"eval\"}]}\n"
    "\n"
    "  A flag wins over a variable, a variable over the file, the file over the\n"
    "  default. The keys of a stream (marked * above) win over all of these.\n"
    "\n"
    "  SIGHUP has the file of --config read again, for verbose, quiet, max-hold,\n"
    "  join-grace, side-share and max-crashes; the rest keeps its value. Without a\n"
    "  --config it ends the run.\n"
    "\n"
    "Examples\n"
    "  Training and validation from the same decode threads; trainers open\n"
    "  \"main/train\" and \"main/val\":\n"
    "      tsocketd /data/train --stream val=/data/val,augment=eval,shuffle=off\n"
    "  Three trainers that shall all see the first epoch, ten epochs, then exit:\n"
    "      tsocketd --wait-for 3 --epochs 10 --exit-when-idle /data/train\n"
    "  Normalised float32 images with the channels first:\n"
    "      tsocketd --dtype float32 --layout nchw --mean 0.485,0.456,0.406 \\\n"
    "               --std 0.229,0.224,0.225 /data/train\n"
    "  Larger batches, and a ring of 4 GiB:\n"
    "      tsocketd --max-batch 1024 --ring 4GiB /data/train\n"
    "\n"
    "Exit status (of sysexits.h; the message says what is wrong and what would help)\n"
    "   0  ended, or stopped by SIGTERM, SIGINT or tsocketctl stop\n"
    "   1  --check found bad images, or was stopped\n"
    "  64  the flags or variables are wrong\n"
    "  65  too many samples cannot be decoded\n"
    "  66  a dataset is not there, or has nothing to serve\n"
    "  71  the system refused something: memory, descriptors, a socket\n"
    "  73  the runtime folder, the ledger or a list cannot be made\n"
    "  74  reading the dataset or writing a result failed\n"
    "  75  the name or the ledger is in use by another process: later it may be free\n"
    "  78  the file of --config, or that of --state, is wrong\n";

static const char *const titles[] = {
    [TSP_SECTION_DATA] = "Data",
    [TSP_SECTION_IMAGES] = "Images",
    [TSP_SECTION_EPOCHS] = "Order and epochs",
    [TSP_SECTION_RING] = "Ring and threads",
    [TSP_SECTION_BAD] = "Bad samples",
    [TSP_SECTION_DAEMON] = "Who may read",
    [TSP_SECTION_GENERAL] = "General",
};

/* Prints `text` in words, broken at WIDTH, from column MARGIN on; the cursor is at `column`. */
static void print_wrapped(const char *text, size_t column, FILE *out)
{
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > MARGIN && column + 1 + word > WIDTH) {
            putc('\n', out);
            column = 0;
        }
        if (column < MARGIN)
            fprintf(out, "%*s", (int)(MARGIN - column), "");
        else
            putc(' ', out);
        column = (column < MARGIN ? MARGIN : column + 1) + word;
        fprintf(out, "%.*s", (int)word, text);
        text += word;
        text += strspn(text, " ");
    }
    putc('\n', out);
}

/* "  -v, --verbose", "* --size PIXELS": returns the column behind it. */
static size_t print_name(const struct tsp_option *option, FILE *out)
{
    bool off_form = option->type == TSP_OPTION_SWITCH && option->initial != NULL && strcmp(option->initial, "on") == 0;
    int column = fprintf(out, "%c%c", option->per_stream ? '*' : ' ', option->per_view ? '+' : ' ');

    if (option->letter != 0)
        column += fprintf(out, "-%c, ", option->letter);
    if (option->positional)
        column += fprintf(out, "%s", option->argument);
    else
        column += fprintf(out, "--%s", option->name);
    if (off_form)
        column += fprintf(out, ", --no-%s", option->name);
    if (option->argument != NULL && !option->positional)
        column += fprintf(out, " %s", option->argument);
    return (size_t)column;
}

static void print_option(const struct tsp_option *option, FILE *out)
{
    char text[512];
    bool plain = option->initial == NULL || option->type == TSP_OPTION_SWITCH; /* --no- and the help say it */
    size_t column = print_name(option, out);

    if (column >= MARGIN) {
        putc('\n', out);
        column = 0;
    }
    if (plain)
        snprintf(text, sizeof(text), "%s", option->help);
    else
        snprintf(text, sizeof(text), "%s [%s]", option->help, option->initial);
    print_wrapped(text, column, out);
}

void tsp_usage_print(FILE *out)
{
    fputs(introduction, out);
    for (size_t section = 0; section < sizeof(titles) / sizeof(titles[0]); section++) {
        fprintf(out, "\n%s\n", titles[section]);
        for (size_t i = 0; i < tsp_option_count; i++) {
            if (tsp_option_table[i].section == section)
                print_option(&tsp_option_table[i], out);
        }
    }
    fputs(conclusion, out);
}
