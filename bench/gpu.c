/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rings in a GPU cost and give, without any decoding:
 *
 *     copies     what the card itself copies from host memory, of several kinds, in pieces of several sizes
 *     ring       what comes into the ring: a producer whose samples are there already, and one consumer
 *     latency    from the commit of a sample to the end of a kernel that has read it
 *     consumers  K processes that read every batch with a kernel: from one ring, and each from a ring of its own
 *
 * Each producer and consumer is a process of its own (gpu_roles.h).
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "gpu_roles.h"

#define START_NS (2 * BENCH_NS_PER_S) /* from the start of the processes to the start of the measurement */
#define MIB      (1 << 20)

enum {
    PINNED = 0,        /* the kind of memory, and */
    CHUNK_OF_RING = 2, /* the size of copies that the ring is compared with: 4 MiB, as the daemon's */
    SIMULATED_STATUS = 3,
};

/* ---- options ---------------------------------------------------------------------------------------------------- */

static const char USAGE[] =
    "usage: gpu [options]\n"
    "\n"
    "Measures rings in the memory of a GPU: how fast samples get there, when a kernel can read them, and what\n"
    "several consumers of one ring get, compared with a ring for each.\n"
    "\n"
    "  --device NAME       cuda, cuda:1, cuda:GPU-... (default cuda)\n"
    "  --share vmm|ipc     how consumers get at the memory (default: vmm where the device can)\n"
    "  --consumers LIST    how many processes, one round for each (default 1,2,4,8)\n"
    "  --batch N           samples per batch (default 32)\n"
    "  --hold N            batches a consumer may have in work (default 4)\n"
    "  --ring N            samples in a ring (default 512)\n"
    "  --sample-bytes N    a multiple of 4 (default 150528: 224 x 224 x 3)\n"
    "  --threads N         that fill a ring (default 4)\n"
    "  --seconds X         of each rate (default 2)\n"
    "  --samples N         of the latency (default 1000)\n"
    "  --pace-ms X         between two of them (default 2)\n"
    "  --simulated         run on the simulated driver, too: its figures say nothing about any card\n"
    "  --json              one line of JSON instead of the tables\n"
    "\n"
    "For example, on a machine with a card:  gpu --json >gpu.json\n"
    "Exit status: 0 measured, 1 something failed, 2 wrong usage, 3 the driver is the simulated one.\n";

static void parse_consumers(struct options *o, char *list)
{
    o->n_consumers = 0;
    for (char *one = strtok(list, ","); one && o->n_consumers < 16; one = strtok(NULL, ","))
        o->consumers[o->n_consumers++] = (uint32_t)bench_number("consumers", one, 1, CONSUMERS_MAX);
}

static enum tsocket_share parse_share(const char *word)
{
    if (strcmp(word, "vmm") != 0 && strcmp(word, "ipc") != 0) {
        fprintf(stderr, "--share %s: vmm or ipc is needed\n", word);
        exit(2);
    }
    return strcmp(word, "vmm") == 0 ? TSOCKET_SHARE_VMM : TSOCKET_SHARE_IPC;
}

static const struct option flags[] = {
    {"device", required_argument, NULL, 'd'},
    {"share", required_argument, NULL, 'm'},
    {"consumers", required_argument, NULL, 'c'},
    {"batch", required_argument, NULL, 'b'},
    {"hold", required_argument, NULL, 'H'},
    {"ring", required_argument, NULL, 'r'},
    {"sample-bytes", required_argument, NULL, 's'},
    {"threads", required_argument, NULL, 't'},
    {"seconds", required_argument, NULL, 'l'},
    {"samples", required_argument, NULL, 'n'},
    {"pace-ms", required_argument, NULL, 'p'},
    {"simulated", no_argument, NULL, 'S'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static void take(struct options *o, int flag, const char *name)
{
    switch (flag) {
    case 'd':
        o->device = optarg;
        break;
    case 'm':
        o->share = parse_share(optarg);
        break;
    case 'c':
        parse_consumers(o, optarg);
        break;
    case 'b':
        o->batch = (uint32_t)bench_number(name, optarg, 1, 65536);
        break;
    case 'H':
        o->hold = (uint32_t)bench_number(name, optarg, 1, 64);
        break;
    case 'r':
        o->ring = (uint32_t)bench_number(name, optarg, 1, 1 << 24);
        break;
    case 's':
        o->sample_bytes = (uint32_t)bench_number(name, optarg, 4, 1 << 28) / 4 * 4;
        break;
    case 't':
        o->threads = (uint32_t)bench_number(name, optarg, 1, 64);
        break;
    case 'l':
        o->len_ns = (int64_t)(bench_number(name, optarg, 0.01, 1e4) * 1e9);
        break;
    case 'n':
        o->samples = (uint32_t)bench_number(name, optarg, 1, SAMPLES_MAX - WARM_UP_SAMPLES);
        break;
    case 'p':
        o->pace_ns = (int64_t)(bench_number(name, optarg, 0.1, 1e4) * 1e6);
        break;
    case 'S':
        o->simulated = true;
        break;
    case 'j':
        o->json = true;
        break;
    case 'h':
        fputs(USAGE, stdout);
        exit(0);
    default:
        exit(2);
    }
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.device = "cuda",
                        .consumers = {1, 2, 4, 8},
                        .n_consumers = 4,
                        .batch = 32,
                        .hold = 4,
                        .ring = 512,
                        .sample_bytes = 224 * 224 * 3,
                        .threads = 4,
                        .samples = 1000,
                        .pace_ns = 2000000,
                        .len_ns = 2 * BENCH_NS_PER_S};
    int flag, i = 0;
    while ((flag = getopt_long(argc, argv, "", flags, &i)) != -1)
        take(&o, flag, flags[i].name);
    if (optind != argc || o.n_consumers == 0) {
        fputs(USAGE, stderr);
        exit(2);
    }
    return o;
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

static pid_t spawn(role *run, const struct round *round, uint32_t number)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == -1) {
        perror("gpu: fork");
        exit(1);
    }
    if (pid == 0)
        exit(run(round, number));
    return pid;
}

static bool ended_well(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Runs the round's producers (none: NULL) and consumers to their end. */
static void run_round(struct round *round, role *producer, role *consumer)
{
    uint32_t n_producers = !producer ? 0 : round->private ? round->consumers : 1;
    pid_t producers[CONSUMERS_MAX], consumers[CONSUMERS_MAX];
    bool ok = true;
    round->from_ns = bench_now_ns() + START_NS;
    for (uint32_t i = 0; i < n_producers; i++)
        producers[i] = spawn(producer, round, i);
    for (uint32_t i = 0; i < round->consumers; i++)
        consumers[i] = spawn(consumer, round, i);
    for (uint32_t i = 0; i < round->consumers; i++)
        ok &= ended_well(consumers[i]);
    for (uint32_t i = 0; i < n_producers; i++) {
        if (!ok)
            kill(producers[i], SIGTERM); /* it may still wait for a consumer that failed */
        ok &= ended_well(producers[i]);
    }
    if (!ok) {
        fprintf(stderr, "gpu: the round with %" PRIu32 " consumers failed\n", round->consumers);
        exit(1);
    }
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

struct rate {
    double least; /* samples per second of the consumer that got fewest */
    double total;
    double gpu_mib; /* in use on the device, above what one context takes; < 0: not known */
};

static struct rate measure_rate(struct round *round, uint32_t consumers, bool private, bool kernels)
{
    const struct options *o = round->options;
    const struct shared *s = round->shared;
    struct rate rate = {.least = 1e18};
    round->consumers = consumers;
    round->private = private;
    round->kernels = kernels;
    run_round(round, gpu_fill, gpu_read);
    for (uint32_t i = 0; i < consumers; i++) {
        double one = (double)s->batches[i] * o->batch * 1e9 / (double)o->len_ns;
        rate.total += one;
        rate.least = one < rate.least ? one : rate.least;
    }
    /* the simulated driver counts what is used for each process alone */
    rate.gpu_mib = s->card.simulated ? -1 : ((double)s->card.free_bytes - (double)s->free_bytes) / MIB;
    return rate;
}

static void print_copies(struct round *round)
{
    const struct shared *s = round->shared;
    bool json = round->options->json;
    run_round(round, NULL, gpu_copy);
    if (!json)
        printf("host to device, GB/s in copies of      256 KiB     1 MiB     4 MiB    16 MiB\n");
    for (int kind = 0; kind < KINDS; kind++) {
        printf(json ? "%s{\"memory\":\"%s\",\"bytes_per_s\":{" : "%s%-34s", json ? kind ? "," : ",\"copies\":[" : "",
               gpu_kind_names[kind]);
        for (int i = 0; i < CHUNKS; i++) {
            if (json)
                printf("%s\"%" PRIu32 "\":%.0f", i ? "," : "", gpu_chunk_bytes[i], s->copied_per_s[kind][i]);
            else
                printf("%10.2f", s->copied_per_s[kind][i] / 1e9);
        }
        printf(json ? "}}" : "\n");
    }
    printf(json ? "]" : "\n");
}

static void print_ring(struct round *round)
{
    const struct options *o = round->options;
    double pinned = round->shared->copied_per_s[PINNED][CHUNK_OF_RING];
    double bytes_per_s = measure_rate(round, 1, false, false).total * o->sample_bytes;
    if (o->json)
        printf(",\"ring\":{\"bytes_per_s\":%.0f,\"pinned_bytes_per_s\":%.0f,\"ratio\":%.3f}", bytes_per_s, pinned,
               bytes_per_s / pinned);
    else
        printf("into the ring: %.2f GB/s, %.3f of what the card copies\n", bytes_per_s / 1e9, bytes_per_s / pinned);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_latency(struct round *round)
{
    struct shared *s = round->shared;
    round->consumers = 1;
    round->private = false;
    run_round(round, gpu_commit, gpu_wait);
    if (s->n_delays == 0) {
        fprintf(stderr, "gpu: no latency was measured\n");
        exit(1);
    }
    qsort(s->delays_ns, s->n_delays, sizeof(s->delays_ns[0]), compare);
    double p50_us = s->delays_ns[s->n_delays / 2] / 1e3, p99_us = s->delays_ns[s->n_delays * 99 / 100] / 1e3;
    printf(round->options->json ? ",\"latency\":{\"p50_us\":%.1f,\"p99_us\":%.1f}"
                                : "from commit to the end of a kernel: %.1f us (99 %%: %.1f us)\n\n",
           p50_us, p99_us);
}

static void print_one(const struct options *o, uint32_t consumers, bool private, struct rate rate, double of_first)
{
    char memory[32] = "null";
    if (rate.gpu_mib >= 0 || !o->json)
        snprintf(memory, sizeof(memory), rate.gpu_mib >= 0 ? "%.0f" : "-", rate.gpu_mib);
    printf(o->json ? "%s{\"consumers\":%" PRIu32 ",\"rings\":%" PRIu32 ",\"least_samples_per_s\":%.0f,"
                     "\"samples_per_s\":%.0f,\"least_of_first\":%.3f,\"gpu_mib\":%s}"
                   : "%s%9" PRIu32 "  %5" PRIu32 "  %22.0f  %16.0f  %12.3f  %9s\n",
           o->json && (consumers != o->consumers[0] || private) ? "," : "", consumers, private ? consumers : 1,
           rate.least, rate.total, rate.least / of_first, memory);
}

static void print_consumers(struct round *round)
{
    const struct options *o = round->options;
    double of_first = 0;
    printf(o->json ? ",\"consumers\":["
                   : "consumers  rings  samples/s each (least)  samples/s in all  least / first  GPU MiB\n");
    for (uint32_t i = 0; i < o->n_consumers; i++) {
        struct rate shared = measure_rate(round, o->consumers[i], false, true);
        of_first = i == 0 ? shared.least : of_first;
        print_one(o, o->consumers[i], false, shared, of_first);
        print_one(o, o->consumers[i], true, measure_rate(round, o->consumers[i], true, true), of_first);
    }
    printf(o->json ? "]" : "");
}

/* False: the figures would be taken for some card's. */
static bool print_card(struct round *round)
{
    const struct shared *s = round->shared;
    const struct options *o = round->options;
    round->consumers = 1;
    run_round(round, NULL, gpu_look);
    if (s->card.simulated && !o->simulated) {
        fprintf(stderr, "gpu: this is the simulated driver, whose figures say nothing about any card; to see the "
                        "program work, call it with --simulated\n");
        return false;
    }
    if (o->json)
        printf("{\"card\":\"%s\",\"uuid\":\"%s\",\"cuda\":\"%d.%d\",\"simulated\":%s,\"mps\":%s,\"batch\":%" PRIu32
               ",\"sample_bytes\":%" PRIu32,
               s->card.name, s->card.uuid, s->card.cuda_version / 1000, s->card.cuda_version % 1000 / 10,
               s->card.simulated ? "true" : "false", s->card.mps ? "true" : "false", o->batch, o->sample_bytes);
    else
        printf("%s (%s), driver for CUDA %d.%d%s%s\n\n", s->card.name, s->card.uuid, s->card.cuda_version / 1000,
               s->card.cuda_version % 1000 / 10, s->card.mps ? ", under MPS" : "",
               s->card.simulated ? "; SIMULATED: the figures say nothing about any card" : "");
    return true;
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    struct round round = {.options = &o};
    round.shared = mmap(NULL, sizeof(*round.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (round.shared == MAP_FAILED) {
        perror("gpu: mmap");
        return 1;
    }
    snprintf(round.name, sizeof(round.name), "bench-gpu-%ld", (long)getpid());
    if (!print_card(&round))
        return SIMULATED_STATUS;
    print_copies(&round);
    print_ring(&round);
    print_latency(&round);
    print_consumers(&round);
    printf(o.json ? "}\n" : "");
    return 0;
}
