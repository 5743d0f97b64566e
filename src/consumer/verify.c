/* SPDX-License-Identifier: Apache-2.0 */
#include "verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "../ipc/text.h"
#include "audit.h"
#include "flags.h"

enum {
    EXIT_PROVEN = 0,
    EXIT_NOT_PROVEN = 1,
    EXIT_USAGE = 2,
    LINES_MAX = 100, /* of each kind, for people */
    NAME_WIDTH = 20,
};

/* ---- reading ---- */

static int complain(const char *path, const char *why)
{
    char name[512];

    snprintf(name, sizeof(name), "%s", path);
    tsi_text_clean(name);
    fprintf(stderr, "tsocketctl verify: %s: %s\n", name, why);
    return EXIT_NOT_PROVEN;
}

static int read_head(const char *path, FILE *file, unsigned char head[TSI_RECORD_BYTES])
{
    if (fread(head, TSI_RECORD_BYTES, 1, file) != 1)
        return complain(path, ferror(file) ? strerror(errno) : "too short for a ledger");
    switch (tsi_record_check_head(head)) {
    case TSOCKET_OK:
        return EXIT_PROVEN;
    case TSOCKET_EPROTOCOL:
        return complain(path, "a ledger of another version of tsocket; verify it with the one that wrote it");
    default:
        return complain(path, "not a ledger; tsocketd --ledger FILE writes one");
    }
}

static int read_records(const char *path, FILE *file, uint32_t check, struct tsc_audit *audit)
{
    unsigned char bytes[TSI_RECORD_BYTES];
    uint64_t offset = TSI_RECORD_BYTES;
    struct tsi_record record;
    size_t n;

    while ((n = fread(bytes, 1, sizeof(bytes), file)) == sizeof(bytes)) {
        if (tsi_record_unpack(bytes, check, &record) == TSOCKET_OK)
            tsc_audit_record(audit, &record);
        else
            tsc_audit_damage(audit, offset);
        check = tsi_record_check(bytes);
        offset += TSI_RECORD_BYTES;
    }
    if (ferror(file))
        return complain(path, strerror(errno));
    tsc_audit_end(audit, n);
    return audit->findings.no_memory ? complain(path, "no memory for what is in it") : EXIT_PROVEN;
}

/* NULL: complained of. A pipe that nobody writes to would be waited for without end, and a terminal as well. */
static FILE *open_ledger(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    FILE *file = NULL;

    if (fd < 0 || fstat(fd, &about) != 0)
        complain(path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        complain(path, "not a regular file; tsocketd --ledger FILE writes one");
    else if ((file = fdopen(fd, "rb")) == NULL)
        complain(path, strerror(errno));
    if (file == NULL && fd >= 0)
        close(fd);
    return file;
}

static int read_ledger(const char *path, struct tsc_audit *audit)
{
    unsigned char head[TSI_RECORD_BYTES];
    FILE *file = open_ledger(path);
    int status;

    if (file == NULL)
        return EXIT_NOT_PROVEN;
    status = read_head(path, file, head);
    if (status == EXIT_PROVEN)
        status = read_records(path, file, tsi_record_check(head), audit);
    fclose(file);
    return status;
}

/* ---- for people ---- */

/* A name from the file, fit for a terminal. */
static const char *clean(const char *text, char out[TSC_AUDIT_TEXT_MAX])
{
    snprintf(out, TSC_AUDIT_TEXT_MAX, "%s", text[0] != '\0' ? text : "-");
    tsi_text_clean(out);
    return out;
}

static const char *moment(uint64_t real_ns, char out[32])
{
    time_t seconds = (time_t)(real_ns / 1000000000u);
    struct tm parts;

    if (gmtime_r(&seconds, &parts) == NULL || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        strcpy(out, "-");
    return out;
}

static void print_consumers(const struct tsc_audit *audit)
{
    char name[TSC_AUDIT_TEXT_MAX], stream[TSC_AUDIT_TEXT_MAX];
    uint64_t left = audit->n_consumers;

    if (left > 0)
        printf("%-*s %-*s %9s %8s %8s %12s %10s %10s %10s  %s\n", NAME_WIDTH, "CONSUMER", NAME_WIDTH, "STREAM", "RANK",
               "ATTACHED", "EPOCHS", "SAMPLES", "AGAIN", "BY TOKEN", "SKIPPED", "STATE");
    for (const struct tsc_consumer *who = audit->consumers; who != NULL && audit->n_consumers - left < LINES_MAX;
         who = who->next) {
        char rank[32];

        snprintf(rank, sizeof(rank), who->world > 1 ? "%" PRIu32 "/%" PRIu32 : "-", who->rank, who->world);
        printf("%-*s %-*s %9s %8" PRIu64 " %8" PRIu64 " %12" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "  %s\n",
               NAME_WIDTH, clean(who->name, name), NAME_WIDTH, clean(who->stream, stream), rank, who->attachments,
               who->epochs, who->samples, who->again, who->by_token, who->skipped, who->state);
        left--;
    }
    if (left > 0)
        printf("... and %" PRIu64 " more; --json has all\n", left);
}

static void print_findings(const struct tsc_audit *audit, bool exceptions)
{
    size_t printed = 0, n = 0;

    for (size_t i = 0; i < audit->findings.n; i++) {
        const struct tsc_finding *finding = &audit->findings.items[i];
        char text[256], name[TSC_AUDIT_TEXT_MAX], stream[TSC_AUDIT_TEXT_MAX];

        if (tsc_finding_is_exception(finding) != exceptions)
            continue;
        n++;
        if (printed == LINES_MAX)
            continue;
        printed++;
        tsc_finding_text(finding, text, sizeof(text));
        printf("%s: ", exceptions ? "EXCEPTION" : "note");
        if (finding->stream != NULL)
            printf("stream %s, ", clean(finding->stream, stream));
        if (finding->who != NULL)
            printf("%s, ", clean(finding->who->name, name));
        printf("%s\n", text);
    }
    if (n > printed)
        printf("... and %zu more; --json has all\n", n - printed);
}

static void print_text(const char *path, const struct tsc_audit *audit)
{
    char begun[32], ended[32], name[512], texts[3][TSC_AUDIT_TEXT_MAX];
    uint64_t epochs = 0;

    snprintf(name, sizeof(name), "%s", path);
    tsi_text_clean(name);
    printf("%s: %" PRIu64 " records of %" PRIu64 " runs, %s to %s\n", name, audit->records, audit->runs,
           moment(audit->begun_ns, begun), moment(audit->ended_ns, ended));
    for (const struct tsc_stream *stream = audit->streams; stream != NULL; stream = stream->next) {
        if (stream->same == stream)
            printf("stream %s: dataset %s, recipe %s, seed %" PRIu64 "\n", clean(stream->name, texts[0]),
                   clean(stream->dataset, texts[1]), clean(stream->recipe, texts[2]), stream->seed);
    }
    print_consumers(audit);
    print_findings(audit, false);
    print_findings(audit, true);
    for (const struct tsc_consumer *who = audit->consumers; who != NULL; who = who->next)
        epochs += who->epochs;
    if (audit->findings.exceptions == 0 && epochs == 0)
        printf("nothing to prove: no consumer has completed an epoch\n");
    else if (audit->findings.exceptions == 0)
        printf("proven: in each of the %" PRIu64 " epochs that %" PRIu64
               " consumers completed, they got every sample exactly once\n",
               epochs, audit->n_consumers);
    else
        printf("NOT proven: %zu exceptions\n", audit->findings.exceptions);
}

/* ---- for programs ---- */

static void add_number(cJSON *object, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(object, name, (double)value);
}

static cJSON *stream_json(const struct tsc_stream *stream)
{
    cJSON *object = cJSON_CreateObject();
    char seed[32];

    snprintf(seed, sizeof(seed), "%" PRIu64, stream->seed);
    cJSON_AddStringToObject(object, "name", stream->name);
    cJSON_AddStringToObject(object, "dataset", stream->dataset);
    cJSON_AddStringToObject(object, "recipe", stream->recipe);
    cJSON_AddRawToObject(object, "seed", seed); /* has more digits than a double */
    add_number(object, "epochs", stream->same->n_lengths);
    return object;
}

static cJSON *consumer_json(const struct tsc_consumer *who)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "name", who->name);
    cJSON_AddStringToObject(object, "stream", who->stream);
    add_number(object, "rank", who->rank);
    add_number(object, "world", who->world);
    add_number(object, "attachments", who->attachments);
    add_number(object, "epochs", who->epochs);
    add_number(object, "samples", who->samples);
    add_number(object, "again", who->again);
    add_number(object, "by_token", who->by_token);
    add_number(object, "dropped", who->dropped);
    add_number(object, "skipped", who->skipped);
    add_number(object, "lost", who->lost);
    add_number(object, "parked", who->parked);
    cJSON_AddStringToObject(object, "state", who->state);
    return object;
}

static cJSON *finding_json(const struct tsc_finding *finding)
{
    cJSON *object = cJSON_CreateObject();
    char text[256];

    tsc_finding_text(finding, text, sizeof(text));
    cJSON_AddStringToObject(object, "what", tsc_finding_word(finding->what));
    if (finding->who != NULL)
        cJSON_AddStringToObject(object, "consumer", finding->who->name);
    if (finding->stream != NULL)
        cJSON_AddStringToObject(object, "stream", finding->stream);
    add_number(object, "epoch", finding->epoch);
    add_number(object, "from", finding->from);
    add_number(object, "to", finding->to);
    cJSON_AddStringToObject(object, "text", text);
    return object;
}

static int print_json(const char *path, const struct tsc_audit *audit)
{
    cJSON *document = cJSON_CreateObject();
    cJSON *streams, *consumers, *exceptions, *notes;
    char *text;

    cJSON_AddStringToObject(document, "file", path);
    cJSON_AddBoolToObject(document, "proven", audit->findings.exceptions == 0);
    add_number(document, "runs", audit->runs);
    add_number(document, "records", audit->records);
    streams = cJSON_AddArrayToObject(document, "streams");
    consumers = cJSON_AddArrayToObject(document, "consumers");
    exceptions = cJSON_AddArrayToObject(document, "exceptions");
    notes = cJSON_AddArrayToObject(document, "notes");
    for (const struct tsc_stream *stream = audit->streams; stream != NULL; stream = stream->next)
        cJSON_AddItemToArray(streams, stream_json(stream));
    for (const struct tsc_consumer *who = audit->consumers; who != NULL; who = who->next)
        cJSON_AddItemToArray(consumers, consumer_json(who));
    for (size_t i = 0; i < audit->findings.n; i++)
        cJSON_AddItemToArray(tsc_finding_is_exception(&audit->findings.items[i]) ? exceptions : notes,
                             finding_json(&audit->findings.items[i]));
    text = cJSON_PrintUnformatted(document);
    cJSON_Delete(document);
    if (text == NULL)
        return complain(path, "no memory for the answer");
    tsi_text_json_clean(text, stdout);
    putchar('\n');
    cJSON_free(text);
    return EXIT_PROVEN;
}

/* ---- the command ---- */

static int verify(const char *path, bool json)
{
    struct tsc_audit audit = {0};
    int status = read_ledger(path, &audit);

    if (status == EXIT_PROVEN && json)
        status = print_json(path, &audit);
    else if (status == EXIT_PROVEN)
        print_text(path, &audit);
    if (status == EXIT_PROVEN && audit.findings.exceptions > 0)
        status = EXIT_NOT_PROVEN;
    tsc_audit_fini(&audit);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "tsocketctl verify: standard output: %s\n", strerror(errno));
    return EXIT_NOT_PROVEN;
}

static struct tsc_flag json_flag(bool *json)
{
    return (struct tsc_flag){"json", NULL, TSC_FLAG_ON, 0, 0, NULL, json, "one line of JSON"};
}

int tsc_verify_main(int argc, char *const *argv)
{
    bool json = false;
    const struct tsc_flag flags[] = {json_flag(&json)};
    const char *path = NULL;
    char error[512];

    if (!tsc_flags_parse(flags, 1, argc, argv, &path, error, sizeof(error))) {
        fprintf(stderr, "tsocketctl verify: %s\n", error);
        return EXIT_USAGE;
    }
    if (path == NULL) {
        fputs("tsocketctl verify: a file is needed, as tsocketd --ledger FILE writes it\n", stderr);
        return EXIT_USAGE;
    }
    return verify(path, json);
}

void tsc_verify_help(FILE *out)
{
    bool json;
    const struct tsc_flag flags[] = {json_flag(&json)};

    tsc_flags_help(flags, 1, out);
}
