/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include <tsocket/tsocket.h>

#include "../ipc/runtime.h"
#include "../ipc/text.h"
#include "../ipc/wire.h"
#include "flags.h"
#include "npy.h"

#define LOOK_MS 500 /* how often a wait looks for a signal that came just before it */

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_ERROR_EVENT = 3,
    EXIT_SIGNAL = 128,
};

struct tap {
    /* what was asked for */
    const char *name;
    uint32_t batch;
    uint64_t epochs;
    int last;
    int join;
    uint32_t hold; /* 0: the library's default is announced, one batch is kept */
    uint32_t shard[2];
    uint32_t wait_ms;
    uint32_t hold_ms;
    uint64_t batches;
    uint64_t until_epoch; /* UINT64_MAX: none */
    const char *dump;
    const char *consumer; /* its name in the status */
    const char *resume;
    const char *device;
    uint32_t reconnect_ms;
    int on_lag;
    uint64_t max_lag;
    /* what became of it */
    struct tsocket *ts;
    struct tsocket_info info;
    int image, label, index;    /* fields by number; -1: the stream has none */
    struct tsocket_batch *held; /* oldest first */
    uint32_t n_held;
    void *copies[TSOCKET_FIELDS_MAX]; /* of the batch that is looked at, where that is on a GPU */
    uint32_t keep;                    /* batches to hold before the oldest is released */
};

/* A handler reaches nothing but globals. */
static atomic_int caught; /* atomic: the handler may run in ZeroMQ's thread */

static void on_signal(int number)
{
    caught = number;
}

/* ---- events ---- */

static bool end_line(void)
{
    putchar('\n');
    if (fflush(stdout) == 0)
        return true;
    fprintf(stderr, "tsocketctl tap: standard output: %s\n", strerror(errno));
    return false;
}

static int error_event(int rc)
{
    char message[1024];

    snprintf(message, sizeof(message), "%s", tsocket_last_error()); /* before another call replaces it */
    printf("{\"event\":\"error\",\"code\":\"%s\",\"message\":", tsocket_errname(rc));
    tsi_text_json_string(message[0] != '\0' ? message : tsocket_strerror(rc), stdout);
    putchar('}');
    return end_line() ? EXIT_ERROR_EVENT : EXIT_FAILED;
}

static bool attached_event(const struct tap *tap)
{
    printf("{\"event\":\"attached\",\"epoch\":%llu,\"position\":%llu,\"epoch_samples\":%llu}",
           (unsigned long long)tap->info.epoch, (unsigned long long)tap->info.position,
           (unsigned long long)tap->info.epoch_samples);
    return end_line();
}

static void put_numbers(const char *key, const int64_t *numbers, uint32_t count)
{
    printf(",\"%s\":[", key);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%lld", i > 0 ? "," : "", (long long)numbers[i]);
    putchar(']');
}

/* Of the images; where a stream has no field of that name, but views, of all fields that are not printed, in order. */
static void put_hash(const struct tap *tap, const struct tsocket_batch *batch)
{
    XXH128_canonical_t hash;
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    for (int i = 0; i < (int)tap->info.n_fields; i++) {
        if (tap->image >= 0 ? i == tap->image : i != tap->index && i != tap->label)
            XXH3_128bits_update(&state, batch->data[i], (size_t)(tap->info.fields[i].sample_bytes * batch->count));
    }
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(&state));
    printf(",\"hash\":\"");
    for (size_t i = 0; i < sizeof(hash.digest); i++)
        printf("%02x", hash.digest[i]);
    putchar('"');
}

static bool batch_event(const struct tap *tap, const struct tsocket_batch *batch)
{
    printf("{\"event\":\"batch\",\"epoch\":%llu,\"first\":%llu,\"count\":%u", (unsigned long long)batch->epoch,
           (unsigned long long)batch->first, batch->count);
    if (batch->valid != batch->count)
        printf(",\"valid\":%u", batch->valid);
    if (batch->skipped > 0)
        printf(",\"skipped\":%llu", (unsigned long long)batch->skipped);
    if (tap->index >= 0)
        put_numbers("index", batch->data[tap->index], batch->count);
    if (tap->label >= 0)
        put_numbers("label", batch->data[tap->label], batch->count);
    put_hash(tap, batch);
    putchar('}');
    return end_line();
}

static bool epoch_end_event(const struct tap *tap)
{
    struct tsocket_epoch epoch = {0};

    tsocket_ended_epoch(tap->ts, &epoch);
    printf("{\"event\":\"epoch_end\",\"epoch\":%llu,\"samples\":%llu}", (unsigned long long)epoch.epoch,
           (unsigned long long)epoch.samples);
    return end_line();
}

/* The batch was written over while it was held: what was printed of it may be wrong, and it comes again. */
static bool elapsed_event(const struct tsocket_batch *batch)
{
    printf("{\"event\":\"elapsed\",\"epoch\":%llu,\"first\":%llu}", (unsigned long long)batch->epoch,
           (unsigned long long)batch->first);
    return end_line();
}

/* Where another one can go on; nothing where the stream has no tokens. */
static bool token_event(const struct tap *tap)
{
    char token[TSOCKET_TOKEN_MAX + 1];

    if (tsocket_token(tap->ts, NULL, token) != TSOCKET_OK)
        return true;
    printf("{\"event\":\"token\",\"token\":\"%s\"}", token);
    return end_line();
}

/* ---- files ---- */

static bool dump(const struct tap *tap, const struct tsocket_batch *batch)
{
    char path[4096], error[4352];

    for (uint32_t i = 0; i < tap->info.n_fields; i++) {
        const struct tsocket_field *field = &tap->info.fields[i];
        int used = snprintf(path, sizeof(path), "%s/%llu-%llu-%s.npy", tap->dump, (unsigned long long)batch->epoch,
                            (unsigned long long)batch->first, field->name);
        if (used >= (int)sizeof(path)) {
            fprintf(stderr, "tsocketctl tap: --dump: the path is longer than %zu bytes\n", sizeof(path));
            return false;
        }
        if (tsc_npy_write(path, field, batch->count, batch->data[i], error, sizeof(error)) != TSOCKET_OK) {
            fprintf(stderr, "tsocketctl tap: %s\n", error);
            return false;
        }
    }
    return true;
}

/* Before the first batch, so that a name or type that cannot be written costs nobody an epoch. */
static bool dump_is_possible(const struct tap *tap)
{
    char header[TSC_NPY_HEADER_MAX];

    if (mkdir(tap->dump, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "tsocketctl tap: --dump %s: %s\n", tap->dump, strerror(errno));
        return false;
    }
    for (uint32_t i = 0; i < tap->info.n_fields; i++) {
        const struct tsocket_field *field = &tap->info.fields[i];
        if (!tsi_name_ok(field->name) || tsc_npy_header(field, 1, header) == 0) {
            fprintf(stderr, "tsocketctl tap: --dump: field %u has a name or type that no file can have\n", i);
            return false;
        }
        if (field->dtype == TSOCKET_BFLOAT16)
            fprintf(stderr,
                    "tsocketctl tap: --dump: field %s is bfloat16, which numpy has no type for: its bits are "
                    "written, as uint16\n",
                    field->name);
    }
    return true;
}

/* ---- batches ---- */

static void nap(uint32_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    while (!caught && nanosleep(&left, &left) != 0)
        ;
}

static int release_oldest(struct tap *tap)
{
    struct tsocket_batch oldest = tap->held[0];
    int rc = tsocket_release(tap->ts, &oldest);

    tap->n_held--;
    memmove(&tap->held[0], &tap->held[1], tap->n_held * sizeof(tap->held[0]));
    if (rc == TSOCKET_ELAPPED)
        return elapsed_event(&oldest) ? EXIT_OK : EXIT_FAILED;
    return rc == TSOCKET_OK ? EXIT_OK : error_event(rc);
}

/* The same batch with its data where it can be looked at. */
static int fetch(const struct tap *tap, const struct tsocket_batch *batch, struct tsocket_batch *host_out)
{
    int rc = TSOCKET_OK;

    *host_out = *batch;
    if (tap->info.memory == TSOCKET_MEMORY_HOST)
        return TSOCKET_OK;
    for (uint32_t i = 0; rc == TSOCKET_OK && i < tap->info.n_fields; i++) {
        rc = tsocket_copy(tap->ts, batch, i, tap->copies[i]);
        host_out->data[i] = tap->copies[i];
    }
    return rc;
}

static int take(struct tap *tap, const struct tsocket_batch *batch)
{
    struct tsocket_batch host;
    int rc = fetch(tap, batch, &host);

    if (rc != TSOCKET_OK)
        return error_event(rc);
    tap->held[tap->n_held++] = *batch;
    if (!batch_event(tap, &host) || (tap->dump != NULL && !dump(tap, &host)))
        return EXIT_FAILED;
    if (tap->hold_ms > 0)
        nap(tap->hold_ms);
    return tap->n_held < tap->keep ? EXIT_OK : release_oldest(tap);
}

/* Whether it has read what was asked for. */
static bool has_enough(const struct tap *tap, uint64_t taken)
{
    uint64_t epoch = 0;

    tsocket_position(tap->ts, &epoch, NULL);
    return caught || (tap->batches > 0 && taken >= tap->batches) || epoch >= tap->until_epoch;
}

static int read_stream(struct tap *tap)
{
    uint64_t taken = 0;
    int status = EXIT_OK, rc = TSOCKET_OK;

    while (status == EXIT_OK && rc != TSOCKET_END && !has_enough(tap, taken)) {
        struct tsocket_batch batch;

        rc = tsocket_next(tap->ts, LOOK_MS, &batch);
        if (rc == TSOCKET_OK) {
            status = take(tap, &batch);
            taken++;
        } else if (rc == TSOCKET_EPOCH_END) {
            status = epoch_end_event(tap) ? EXIT_OK : EXIT_FAILED;
        } else if (rc == TSOCKET_EHELD && tap->n_held > 0) {
            status = release_oldest(tap);
        } else if (rc != TSOCKET_END && rc != TSOCKET_EAGAIN && rc != TSOCKET_EINTR) {
            status = error_event(rc);
        }
    }
    while (status == EXIT_OK && tap->n_held > 0 && rc != TSOCKET_END)
        status = release_oldest(tap);
    if (((status == EXIT_OK && rc != TSOCKET_END) || status == EXIT_ERROR_EVENT) && !token_event(tap))
        status = EXIT_FAILED;
    return status == EXIT_OK && caught ? EXIT_SIGNAL + caught : status;
}

/* ---- the consumer ---- */

static int find_field(const struct tsocket_info *info, const char *name)
{
    for (uint32_t i = 0; i < info->n_fields; i++) {
        if (strcmp(info->fields[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

/* A field that holds one int64 per sample. */
static int find_number_field(const struct tsocket_info *info, const char *name)
{
    int field = find_field(info, name);

    return field >= 0 && info->fields[field].dtype == TSOCKET_INT64 && info->fields[field].sample_bytes == 8 ? field
                                                                                                             : -1;
}

static int open_stream(struct tap *tap)
{
    struct tsocket_options options;

    tsocket_options_init(&options);
    options.hold = tap->hold > 0 ? tap->hold : options.hold;
    options.shard_rank = tap->shard[0];
    options.shard_world = tap->shard[1];
    options.epochs = tap->epochs;
    options.last = (enum tsocket_last)tap->last;
    options.join = (enum tsocket_join)tap->join;
    options.connect_timeout_ms = (int)tap->wait_ms;
    options.consumer_name = tap->consumer;
    options.resume = tap->resume;
    options.device = tap->device;
    options.reconnect_ms = (int)tap->reconnect_ms;
    options.on_lag = (enum tsocket_on_lag)tap->on_lag;
    options.max_lag = tap->max_lag;
    int rc = tsocket_open(tap->name, tap->batch, &options, &tap->ts);
    if (rc != TSOCKET_OK)
        return rc;
    tsocket_describe(tap->ts, &tap->info);
    tap->image = find_field(&tap->info, "image");
    tap->label = find_number_field(&tap->info, "label");
    tap->index = find_number_field(&tap->info, "index");
    return TSOCKET_OK;
}

/* Room for copies, where they are needed. */
static bool make_room(struct tap *tap)
{
    bool room = true;

    for (uint32_t i = 0; room && tap->info.memory != TSOCKET_MEMORY_HOST && i < tap->info.n_fields; i++) {
        tap->copies[i] = malloc((size_t)(tap->info.fields[i].sample_bytes * tap->batch));
        room = tap->copies[i] != NULL;
    }
    if (!room)
        fprintf(stderr, "tsocketctl tap: out of memory\n");
    return room;
}

static int run(struct tap *tap)
{
    int status = EXIT_FAILED;

    tap->keep = tap->hold > 0 ? tap->hold : 1;
    tap->held = calloc(tap->keep, sizeof(tap->held[0]));
    if (tap->held == NULL) {
        fprintf(stderr, "tsocketctl tap: out of memory\n");
        return EXIT_FAILED;
    }
    int rc = open_stream(tap);
    if (rc != TSOCKET_OK)
        status = rc == TSOCKET_EINTR && caught ? EXIT_SIGNAL + caught : error_event(rc);
    else if (make_room(tap) && (tap->dump == NULL || dump_is_possible(tap)) && attached_event(tap))
        status = read_stream(tap);
    tsocket_close(tap->ts);
    for (uint32_t i = 0; i < TSOCKET_FIELDS_MAX; i++)
        free(tap->copies[i]);
    free(tap->held);
    return status;
}

/* ---- the command line ---- */

#define TAP_FLAGS 17

/* The words stand in the order of the enums of tsocket.h. */
static const char *const lasts[] = {"keep", "drop", "pad", NULL};
static const char *const joins[] = {"wait", "now", "catch-up", NULL};
static const char *const lags[] = {"park", "skip", "detach", NULL};

static void fill_flags(struct tap *tap, struct tsc_flag flags_out[TAP_FLAGS])
{
    const struct tsc_flag flags[TAP_FLAGS] = {
        {"batch", "B", TSC_FLAG_COUNT, 1, UINT32_MAX, NULL, &tap->batch, "batch size (must be given)"},
        {"epochs", "E", TSC_FLAG_LONG, 0, UINT64_MAX, NULL, &tap->epochs, "stop after so many epochs [0: never]"},
        {"batches", "N", TSC_FLAG_LONG, 0, UINT64_MAX, NULL, &tap->batches, "stop after so many batches [0: never]"},
        {"last", "keep|drop|pad", TSC_FLAG_WORD, 0, 0, lasts, &tap->last, "the end of an epoch [keep]"},
        {"until-epoch", "E", TSC_FLAG_LONG, 0, UINT64_MAX, NULL, &tap->until_epoch,
         "stop where the stream's epoch E begins"},
        {"resume", "TOKEN", TSC_FLAG_TEXT, 0, 0, NULL, &tap->resume, "go on behind the batch of that token"},
        {"join", "wait|now|catch-up", TSC_FLAG_WORD, 0, 0, joins, &tap->join,
         "where a running epoch has begun [catch-up]"},
        {"on-lag", "park|skip|detach", TSC_FLAG_WORD, 0, 0, lags, &tap->on_lag,
         "what becomes of it when it keeps the group waiting [park]"},
        {"max-lag", "SAMPLES", TSC_FLAG_LONG, 0, TSI_NUMBER_MAX, NULL, &tap->max_lag,
         "with --on-lag skip: leave samples out when so far behind"},
        {"reconnect-ms", "T", TSC_FLAG_COUNT, 0, 86400000, NULL, &tap->reconnect_ms,
         "wait so long for a daemon that has gone [0]"},
        {"name", "NAME", TSC_FLAG_TEXT, 0, 0, NULL, &tap->consumer, "its name in the status [tsocketctl]"},
        {"shard", "R/W", TSC_FLAG_SHARE, 0, TSI_WORLD_MAX, NULL, tap->shard, "read the share of rank R of W [0/1]"},
        {"hold", "N", TSC_FLAG_COUNT, 1, TSI_HOLD_MAX, NULL, &tap->hold,
         "announce N batches and hold as many at a time"},
        {"hold-ms", "T", TSC_FLAG_COUNT, 0, 86400000, NULL, &tap->hold_ms,
         "milliseconds per batch, as a trainer has [0]"},
        {"wait-ms", "T", TSC_FLAG_COUNT, 0, 86400000, NULL, &tap->wait_ms, "look for the daemon for so long [0: once]"},
        {"device", "WHERE", TSC_FLAG_TEXT, 0, 0, NULL, &tap->device,
         "read host, cuda, cuda:N or cuda:UUID [where the daemon has it]"},
        {"dump", "DIR", TSC_FLAG_TEXT, 0, 0, NULL, &tap->dump, "write EPOCH-FIRST-FIELD.npy files for numpy"},
    };

    memcpy(flags_out, flags, sizeof(flags));
}

void tsc_tap_help(FILE *out)
{
    struct tap tap;
    struct tsc_flag flags[TAP_FLAGS];

    fill_flags(&tap, flags);
    tsc_flags_help(flags, TAP_FLAGS, out);
}

int tsc_tap_main(int argc, char *const *argv)
{
    struct tap tap = {.shard = {0, 1}, .join = TSOCKET_JOIN_CATCH_UP, .until_epoch = UINT64_MAX};
    struct tsc_flag flags[TAP_FLAGS];
    struct sigaction action = {.sa_handler = on_signal};
    char error[512];

    fill_flags(&tap, flags);
    if (!tsc_flags_parse(flags, TAP_FLAGS, argc, argv, &tap.name, error, sizeof(error))) {
        fprintf(stderr, "tsocketctl tap: %s\n", error);
        return EXIT_USAGE;
    }
    if (tap.name == NULL || tap.batch == 0) {
        fprintf(stderr,
                "tsocketctl tap: a name and a batch size are needed; for example tsocketctl tap main --batch 32\n");
        return EXIT_USAGE;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return run(&tap);
}
