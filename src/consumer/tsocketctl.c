/* SPDX-License-Identifier: Apache-2.0 */
/* tsocketctl: look at the daemons of this machine, stop one, read from one. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tsocket/tsocket.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"
#include "../ipc/runtime.h"
#include "../ipc/text.h"
#include "attach.h"
#include "doctor.h"
#include "flags.h"
#include "provenance.h"
#include "table.h"
#include "tap.h"
#include "verify.h"

#define ANSWER_MS  2000 /* a daemon that takes longer is stuck */
#define GONE_MS    5000 /* for the end of a daemon that was told to stop */
#define WATCH_MS   1000
#define POLL_MS    20
#define DAEMON_MAX 256

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
};

static void sleep_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Says what is known of the last call of the library that failed. */
static int failed(const char *command)
{
    char text[2048];

    snprintf(text, sizeof(text), "%s", tsocket_last_error());
    tsi_text_clean(text);
    fprintf(stderr, "tsocketctl %s: %s\n", command, text);
    return EXIT_FAILED;
}

static int usage(const char *command, const char *error)
{
    fprintf(stderr, "tsocketctl %s: %s\n", command, error);
    return EXIT_USAGE;
}

/* All that was printed must have arrived, or a script would go on with half of it. */
static int written(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "tsocketctl: standard output: %s\n", strerror(errno));
    return EXIT_FAILED;
}

/* ---- status ---- */

struct status {
    const char *name;
    bool json;
    bool watch;
};

static const struct tsi_hello ask_status = {.type = "STATUS"};
static const char *const needs_name = "a daemon's name is needed; tsocketctl list shows those that run";

/* Prints the status once. A daemon that is about to end does not count as running. */
static int status_once(const struct status *status, const char *before)
{
    char *text, state[32];
    int result = EXIT_OK;

    if (tsc_query(status->name, &ask_status, ANSWER_MS, &text) != TSOCKET_OK)
        return failed("status");
    cJSON *document = cJSON_Parse(text);
    fputs(before, stdout);
    if (document == NULL) {
        fprintf(stderr, "tsocketctl status: %s did not answer in JSON\n", status->name);
        result = EXIT_FAILED;
    } else if (status->json) {
        tsi_text_json_clean(text, stdout);
        putchar('\n');
    } else {
        tsc_table_print(document, stdout);
    }
    if (strcmp(tsc_table_text(document, "state", state, sizeof(state)), "closing") == 0)
        result = EXIT_FAILED;
    cJSON_Delete(document);
    free(text);
    return written(result);
}

#define STATUS_FLAGS 2

static void status_flags(struct status *status, struct tsc_flag flags_out[STATUS_FLAGS])
{
    flags_out[0] = (struct tsc_flag){"json", NULL, TSC_FLAG_ON, 0, 0, NULL, &status->json, "one line of JSON"};
    flags_out[1] = (struct tsc_flag){"watch", NULL, TSC_FLAG_ON, 0, 0, NULL, &status->watch, "again every second"};
}

static int status_main(int argc, char *const *argv)
{
    struct status status = {0};
    struct tsc_flag flags[STATUS_FLAGS];
    char error[512];

    status_flags(&status, flags);
    if (!tsc_flags_parse(flags, STATUS_FLAGS, argc, argv, &status.name, error, sizeof(error)))
        return usage("status", error);
    if (status.name == NULL)
        return usage("status", needs_name);
    const char *clear = status.watch && !status.json && isatty(STDOUT_FILENO) ? "\033[H\033[J" : "";
    int result = status_once(&status, clear);
    while (status.watch && result == EXIT_OK) {
        sleep_ms(WATCH_MS);
        result = status_once(&status, clear);
    }
    return result;
}

/* ---- provenance ---- */

static int provenance_print(const char *name, const cJSON *status, bool json)
{
    cJSON *provenance = status != NULL ? tsc_provenance_of(status) : NULL;
    char *text = provenance != NULL && json ? cJSON_PrintUnformatted(provenance) : NULL;
    bool good = text != NULL || (provenance != NULL && !json);

    if (text != NULL) {
        tsi_text_json_clean(text, stdout);
        putchar('\n');
    } else if (good) {
        tsc_provenance_print(provenance, stdout);
    } else {
        fprintf(stderr, "tsocketctl provenance: %s did not answer in JSON\n", name);
    }
    cJSON_free(text);
    cJSON_Delete(provenance);
    return written(good ? EXIT_OK : EXIT_FAILED);
}

static int provenance_main(int argc, char *const *argv)
{
    bool json = false;
    const struct tsc_flag flags[] = {{"json", NULL, TSC_FLAG_ON, 0, 0, NULL, &json, NULL}};
    const char *name = NULL;
    char error[512], *answer;

    if (!tsc_flags_parse(flags, 1, argc, argv, &name, error, sizeof(error)))
        return usage("provenance", error);
    if (name == NULL)
        return usage("provenance", needs_name);
    if (tsc_query(name, &ask_status, ANSWER_MS, &answer) != TSOCKET_OK)
        return failed("provenance");
    cJSON *status = cJSON_Parse(answer);
    int result = provenance_print(name, status, json);
    cJSON_Delete(status);
    free(answer);
    return result;
}

/* ---- list ---- */

static void list_row(const char *name, const cJSON *status)
{
    char state[32], streams[256] = "";
    size_t used = 0;
    const cJSON *stream;

    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(status, "streams"))
    {
        char text[TSOCKET_NAME_MAX + 1];
        used += (size_t)snprintf(streams + used, sizeof(streams) - used, "%s%s", used > 0 ? " " : "",
                                 tsc_table_text(stream, "name", text, sizeof(text)));
        if (used >= sizeof(streams))
            break;
    }
    if (status == NULL)
        printf("%-20s %8s %-10s\n", name, "-", "no answer");
    else
        printf("%-20s %8.0f %-10s %s\n", name, tsc_table_number(status, "pid"),
               tsc_table_text(status, "state", state, sizeof(state)), streams);
}

/* One daemon: its whole status as a line of JSON, or the most important of it as a row. */
static void list_one(const char *name, bool json)
{
    char *text = NULL;
    bool answered = tsc_query(name, &ask_status, ANSWER_MS, &text) == TSOCKET_OK;
    cJSON *status = answered ? cJSON_Parse(text) : NULL;

    if (!json) {
        list_row(name, status);
    } else if (status != NULL) {
        tsi_text_json_clean(text, stdout);
        putchar('\n');
    } else {
        printf("{\"daemon\":\"%s\",\"state\":\"no answer\"}\n", name);
    }
    cJSON_Delete(status);
    if (answered)
        free(text);
}

static int list_main(int argc, char *const *argv)
{
    bool json = false;
    const struct tsc_flag flags[] = {{"json", NULL, TSC_FLAG_ON, 0, 0, NULL, &json, NULL}};
    static char names[DAEMON_MAX][TSOCKET_NAME_MAX + 1];
    char error[512];

    if (!tsc_flags_parse(flags, 1, argc, argv, NULL, error, sizeof(error)))
        return usage("list", error);
    int n = tsi_runtime_list(names, DAEMON_MAX);
    if (n > 0 && !json)
        printf("%-20s %8s %-10s %s\n", "DAEMON", "PID", "STATE", "STREAMS");
    for (int i = 0; i < n; i++)
        list_one(names[i], json);
    if (n <= 0 && !json)
        fprintf(stderr, "tsocketctl list: no daemon of this user is running\n");
    return written(EXIT_OK);
}

/* ---- stop ---- */

static bool is_running(const char *name)
{
    static char names[DAEMON_MAX][TSOCKET_NAME_MAX + 1];
    int n = tsi_runtime_list(names, DAEMON_MAX);

    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Tells a daemon to end, at once or with its epochs. */
static int tell_end(const char *command, const char *type, int argc, char *const *argv, const char **name_out)
{
    struct tsi_hello question = {.type = ""};
    char error[512], *answer = NULL;

    strcpy(question.type, type);
    if (!tsc_flags_parse(NULL, 0, argc, argv, name_out, error, sizeof(error)))
        return usage(command, error);
    if (*name_out == NULL)
        return usage(command, needs_name);
    int rc = tsc_query(*name_out, &question, ANSWER_MS, &answer);
    if (rc != TSOCKET_OK && rc != TSOCKET_GONE) /* gone before its answer had left: what was asked of it */
        return failed(command);
    free(answer);
    return EXIT_OK;
}

static int stop_main(int argc, char *const *argv)
{
    const char *name = NULL;
    int status = tell_end("stop", "STOP", argc, argv, &name);

    if (status != EXIT_OK)
        return status;
    uint64_t deadline = tsi_clock_deadline(tsi_clock_ns(), GONE_MS);
    while (is_running(name)) {
        if (tsi_clock_ns() >= deadline) {
            fprintf(stderr, "tsocketctl stop: %s was told to stop, but still runs after %d ms\n", name, GONE_MS);
            return EXIT_FAILED;
        }
        sleep_ms(POLL_MS);
    }
    return EXIT_OK;
}

static int drain_main(int argc, char *const *argv)
{
    const char *name = NULL;

    return tell_end("drain", "DRAIN", argc, argv, &name);
}

/* ---- set ---- */

/* "DAEMON" or "DAEMON/STREAM", a consumer's name, KEY=VALUE */
static int set_main(int argc, char *const *argv)
{
    struct tsi_hello question = {.type = "SET"};
    char daemon[TSOCKET_NAME_MAX + 1], *answer;

    if (argc != 4)
        return usage("set", "it takes NAME[/STREAM] CONSUMER KEY=VALUE; for example tsocketctl set main trainer "
                            "max-hold=2s");
    if (strlen(argv[2]) > TSOCKET_NAME_MAX || strlen(argv[3]) >= TSI_SETTING_MAX)
        return usage("set", "a name has at most 64 characters, KEY=VALUE at most 127");
    if (!tsc_split_name(argv[1], daemon, question.stream))
        return usage("set", "a name is DAEMON or DAEMON/STREAM, each 1 to 64 bytes");
    strcpy(question.name, argv[2]);
    strcpy(question.setting, argv[3]);
    int rc = tsc_query(daemon, &question, ANSWER_MS, &answer);
    if (rc != TSOCKET_OK) {
        failed("set");
        return rc == TSOCKET_EINVAL ? EXIT_USAGE : EXIT_FAILED;
    }
    free(answer);
    return EXIT_OK;
}

/* ---- doctor ---- */

static int doctor_main(int argc, char *const *argv)
{
    (void)argv;
    if (argc != 1)
        return usage("doctor", "it takes no arguments");
    return written(tsc_doctor(stdout) ? EXIT_OK : EXIT_FAILED);
}

/* ---- commands ---- */

static int version_main(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    printf("tsocketctl %s\n", tsocket_version());
    return written(EXIT_OK);
}

static void status_help(FILE *out)
{
    struct tsc_flag flags[STATUS_FLAGS];
    struct status status;

    status_flags(&status, flags);
    tsc_flags_help(flags, STATUS_FLAGS, out);
}

static int help_main(int argc, char *const *argv);

static const struct command {
    const char *name;
    int (*main)(int argc, char *const *argv);
    const char *help;         /* or NULL: another name of a command, or the help's own */
    void (*flags)(FILE *out); /* more of it, or NULL */
} commands[] = {
    {"status", status_main,
     "  status NAME             what a daemon does: rates, ring, consumers, what holds it back;\n"
     "                          exit status 0 once it takes consumers\n",
     status_help},
    {"list", list_main, "  list [--json]           the running daemons of this user\n", NULL},
    {"stop", stop_main, "  stop NAME               end a daemon, and wait until it is gone\n", NULL},
    {"drain", drain_main,
     "  drain NAME              let a daemon end with the epochs that are being read;\n"
     "                          at once if nobody is attached; a resident stream ends with its last reader\n",
     NULL},
    {"set", set_main,
     "  set NAME[/STREAM] CONSUMER KEY=VALUE\n"
     "                          change how patient the group is with a consumer: max-hold=DURATION (30s,\n"
     "                          500ms, 2m; 0: no limit), on-lag=park|skip|detach, max-lag=SAMPLES (0: no limit)\n",
     NULL},
    {"tap", tsc_tap_main,
     "  tap NAME[/STREAM] --batch B\n"
     "                          read as a trainer does and print what comes, as JSON lines:\n"
     "                          attached, batch, epoch_end, elapsed (a batch was lost while it was held,\n"
     "                          and comes again), error; and at last, unless the stream has ended, token;\n"
     "                          exit status 3 after an error, 128 and its number after a signal\n",
     tsc_tap_help},
    {"verify", tsc_verify_main,
     "  verify FILE             show from the FILE of tsocketd --ledger that every consumer got every\n"
     "                          sample of each epoch that it completed exactly once, or name the\n"
     "                          exceptions; exit status 1 if there are any\n",
     tsc_verify_help},
    {"provenance", provenance_main,
     "  provenance NAME [--json]\n"
     "                          what a paper's appendix needs: versions, fingerprints of dataset and\n"
     "                          recipe, the recipe, the seed\n",
     NULL},
    {"doctor", doctor_main,
     "  doctor                  what of this machine can be used from here, and what to change\n", NULL},
    {"help", help_main, "  help                    this; COMMAND --help: of that command alone\n", NULL},
    {"--help", help_main, NULL, NULL},
    {"-h", help_main, NULL, NULL},
    {"--version", version_main, "  --version               the version\n", NULL},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_flags(const struct command *command)
{
    if (command->flags != NULL)
        command->flags(stdout);
}

static int help_main(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    fputs("usage: tsocketctl COMMAND ...\n\n", stdout);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (commands[i].help == NULL)
            continue;
        fputs(commands[i].help, stdout);
        print_flags(&commands[i]);
    }
    fputs("\n"
          "Daemons are looked for in $TSOCKET_DIR, else in $XDG_RUNTIME_DIR/tsocket and /tmp/tsocket-UID.\n"
          "\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage, 3 tap printed an error event.\n",
          stdout);
    return written(EXIT_OK);
}

/* Wherever it stands: whoever is in doubt need not know what has to come first. */
static bool asks_for_help(int argc, char *const *argv)
{
    for (int at = 2; at < argc; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0)
            return true;
    }
    return false;
}

static int run(const struct command *command, int argc, char *const *argv)
{
    if (command->help == NULL || !asks_for_help(argc, argv))
        return command->main(argc - 1, argv + 1);
    printf("usage: tsocketctl %s", command->help + strspn(command->help, " "));
    print_flags(command);
    return written(EXIT_OK);
}

int main(int argc, char **argv)
{
    tsi_log_program("tsocketctl");
    for (size_t i = 0; argc > 1 && i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return run(&commands[i], argc, argv);
    }
    if (argc > 1)
        fprintf(stderr, "tsocketctl: %.64s: no such command; ", argv[1]);
    fprintf(stderr, "%s\n", "commands are status, list, stop, drain, set, tap, verify, provenance, doctor and help");
    return EXIT_USAGE;
}
