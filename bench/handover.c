/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hand-over costs, without any decoding:
 *
 *     rate       a stream of positions that nobody fills; K processes call next and release as fast as they can
 *     latency    a producer that commits one sample every --pace-ms with the time in it; K processes wait in next and
 *                take the difference when it returns
 *     message    for comparison, the same with a bare ZeroMQ message, ROUTER to K DEALERs over ipc://
 *
 * With --attach NAME, the rate alone, of a running daemon's stream. Each producer and consumer is a process of its own.
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zmq.h>

#include <tsocket/producer.h>

#include "bench.h"

enum {
    CONSUMERS_MAX = 64,
    SAMPLES_MAX = 100000,
    WARM_UP_SAMPLES = 50,    /* the first ones, not counted */
    NEXT_TIMEOUT_MS = 10000, /* a consumer that waits longer has failed */
    START_NS = 1000000000,   /* from the start of the processes to the start of the measurement */
};

struct options {
    const char *attach;
    uint32_t consumers[16];
    uint32_t n_consumers;
    uint32_t batch;
    uint32_t hold;
    uint32_t ring;
    uint32_t samples;
    int64_t pace_ns;
    int64_t len_ns;
    bool json;
};

/* Written by the consumers, read by the parent when they have ended. */
struct shared {
    uint64_t batches[CONSUMERS_MAX];
    uint32_t n_delays[CONSUMERS_MAX];
    uint32_t delays_ns[CONSUMERS_MAX][SAMPLES_MAX];
};

/* One measurement with K consumers. */
struct round {
    const struct options *options;
    struct shared *shared;
    uint32_t consumers;
    int64_t from_ns;
    char name[2 * TSOCKET_NAME_MAX + 2]; /* DAEMON or DAEMON/STREAM */
    char endpoint[64];                   /* of the bare messages */
};

/* ---- options ---------------------------------------------------------------------------------------------------- */

static const char USAGE[] = "usage: handover [options]\n"
                            "\n"
                            "  --consumers LIST  how many processes, one round for each (default 1,2,4,8,16)\n"
                            "  --batch N         samples per batch, for the rate (default 32)\n"
                            "  --hold N          batches a consumer may hold (default 2)\n"
                            "  --ring N          samples in the ring, for the rate (default 8192)\n"
                            "  --seconds X       of each rate (default 2)\n"
                            "  --samples N       of each latency (default 1000)\n"
                            "  --pace-ms X       between two of them (default 2)\n"
                            "  --attach NAME     the rate of a running daemon's stream, nothing else\n"
                            "  --json            one line of JSON instead of the tables\n";

static void parse_consumers(struct options *o, char *list)
{
    o->n_consumers = 0;
    for (char *one = strtok(list, ","); one && o->n_consumers < 16; one = strtok(NULL, ","))
        o->consumers[o->n_consumers++] = (uint32_t)bench_number("consumers", one, 1, CONSUMERS_MAX);
}

static struct options parse(int argc, char **argv)
{
    static const struct option flags[] = {
        {"consumers", required_argument, NULL, 'c'},
        {"batch", required_argument, NULL, 'b'},
        {"hold", required_argument, NULL, 'h'},
        {"ring", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 'l'},
        {"samples", required_argument, NULL, 'n'},
        {"pace-ms", required_argument, NULL, 'p'},
        {"attach", required_argument, NULL, 'a'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    struct options o = {.consumers = {1, 2, 4, 8, 16},
                        .n_consumers = 5,
                        .batch = 32,
                        .hold = 2,
                        .ring = 8192, /* a round trip cannot empty it */
                        .samples = 1000,
                        .pace_ns = 2000000,
                        .len_ns = 2 * BENCH_NS_PER_S};
    int flag, i = 0;
    while ((flag = getopt_long(argc, argv, "", flags, &i)) != -1) {
        if (flag == 'c')
            parse_consumers(&o, optarg);
        else if (flag == 'b')
            o.batch = (uint32_t)bench_number(flags[i].name, optarg, 1, 65536);
        else if (flag == 'h')
            o.hold = (uint32_t)bench_number(flags[i].name, optarg, 1, 64);
        else if (flag == 'r')
            o.ring = (uint32_t)bench_number(flags[i].name, optarg, 1, 1 << 24);
        else if (flag == 'l')
            o.len_ns = (int64_t)(bench_number(flags[i].name, optarg, 0.01, 1e4) * 1e9);
        else if (flag == 'n')
            o.samples = (uint32_t)bench_number(flags[i].name, optarg, 1, SAMPLES_MAX);
        else if (flag == 'p')
            o.pace_ns = (int64_t)(bench_number(flags[i].name, optarg, 0.1, 1e4) * 1e6);
        else if (flag == 'a')
            o.attach = optarg;
        else if (flag == 'j')
            o.json = true;
        else
            exit(2);
    }
    if (optind != argc || o.n_consumers == 0) {
        fputs(USAGE, stderr);
        exit(2);
    }
    return o;
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

typedef int role(const struct round *round, uint32_t number);

static pid_t spawn(role *run, const struct round *round, uint32_t number)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == -1) {
        perror("handover: fork");
        exit(1);
    }
    if (pid == 0)
        _exit(run(round, number));
    return pid;
}

static bool ended_well(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Runs one producer (none: NULL) and the round's consumers to their end. */
static void run_round(struct round *round, role *producer, role *consumer)
{
    pid_t consumers[CONSUMERS_MAX];
    bool ok = true;
    round->from_ns = bench_now_ns() + START_NS;
    pid_t made_by = producer ? spawn(producer, round, 0) : 0;
    for (uint32_t i = 0; i < round->consumers; i++)
        consumers[i] = spawn(consumer, round, i);
    for (uint32_t i = 0; i < round->consumers; i++)
        ok &= ended_well(consumers[i]);
    if (!ok && made_by)
        kill(made_by, SIGTERM); /* it may still wait for a consumer that failed */
    if (made_by)
        ok &= ended_well(made_by);
    if (!ok) {
        fprintf(stderr, "handover: the round with %" PRIu32 " consumers failed\n", round->consumers);
        exit(1);
    }
}

static int complain(const char *who)
{
    fprintf(stderr, "handover: %s: %s\n", who, tsocket_last_error());
    return 1;
}

static int open_consumer(const struct round *round, uint32_t batch, struct tsocket **ts_out)
{
    struct tsocket_options to;
    tsocket_options_init(&to);
    to.device = "host";
    to.hold = round->options->hold;
    to.join = TSOCKET_JOIN_NOW;
    to.connect_timeout_ms = NEXT_TIMEOUT_MS;
    return tsocket_open(round->name, batch, &to, ts_out);
}

static int open_producer(const struct round *round, const struct tsocket_stream_options *stream,
                         struct tsocket_producer **producer_out)
{
    struct tsocket_producer_options po;
    tsocket_producer_options_init(&po);
    po.name = round->name;
    po.wait_for = round->consumers;
    po.join_grace_ms = 0;
    po.exit_when_idle = true;
    int rc = tsocket_producer_open(&po, producer_out);
    if (rc == TSOCKET_OK)
        rc = tsocket_producer_add_stream(*producer_out, stream, NULL);
    return rc == TSOCKET_OK ? tsocket_producer_start(*producer_out) : rc;
}

/* ---- rate ------------------------------------------------------------------------------------------------------- */

static int produce_positions(const struct round *round, uint32_t number)
{
    (void)number;
    static const struct tsocket_field field = {.name = "image", .dtype = TSOCKET_UINT8, .ndim = 1, .shape = {64}};
    struct tsocket_stream_options so;
    struct tsocket_producer *producer;
    tsocket_stream_options_init(&so);
    so.fields = &field;
    so.n_fields = 1;
    so.epoch_samples = UINT64_C(1) << 40;
    so.null = true;
    so.max_batch = round->options->batch;
    so.capacity = round->options->ring;
    if (open_producer(round, &so, &producer) != TSOCKET_OK)
        return complain("producer");
    int rc = tsocket_producer_wait(producer, -1);
    tsocket_producer_close(producer);
    return rc == TSOCKET_END ? 0 : complain("producer");
}

static int count_batches(const struct round *round, uint32_t number)
{
    struct tsocket *ts;
    struct tsocket_batch batch;
    int64_t now_ns = 0, until_ns = round->from_ns + round->options->len_ns;
    uint64_t batches = 0;
    if (open_consumer(round, round->options->batch, &ts) != TSOCKET_OK)
        return complain("consumer");
    while (now_ns < until_ns) {
        int rc = tsocket_next(ts, NEXT_TIMEOUT_MS, &batch);
        if (rc == TSOCKET_EPOCH_END)
            continue;
        if (rc != TSOCKET_OK || tsocket_release(ts, &batch) != TSOCKET_OK)
            return complain("consumer");
        now_ns = bench_now_ns();
        if (now_ns >= round->from_ns)
            batches++;
    }
    tsocket_close(ts);
    round->shared->batches[number] = batches;
    return 0;
}

/* ---- latency ---------------------------------------------------------------------------------------------------- */

static void note_delay(const struct round *round, uint32_t number, int64_t sent_ns)
{
    struct shared *s = round->shared;
    int64_t delay_ns = bench_now_ns() - sent_ns;
    if (s->n_delays[number] < SAMPLES_MAX)
        s->delays_ns[number][s->n_delays[number]++] = (uint32_t)delay_ns;
}

static int produce_at_pace(const struct round *round, uint32_t number)
{
    (void)number;
    static const struct tsocket_field field = {.name = "sent_ns", .dtype = TSOCKET_INT64};
    struct tsocket_stream_options so;
    struct tsocket_producer *producer;
    struct tsocket_claim claim;
    tsocket_stream_options_init(&so);
    so.fields = &field;
    so.n_fields = 1;
    so.epoch_samples = WARM_UP_SAMPLES + round->options->samples;
    so.epochs = 1;
    so.max_batch = 1;
    so.capacity = 64;
    if (open_producer(round, &so, &producer) != TSOCKET_OK)
        return complain("producer");
    while (tsocket_producer_claim(producer, -1, &claim) == TSOCKET_OK) {
        bench_sleep_until_ns(bench_now_ns() + round->options->pace_ns);
        *(int64_t *)claim.data[0] = bench_now_ns();
        tsocket_producer_commit(producer, &claim);
    }
    int rc = tsocket_producer_wait(producer, -1);
    tsocket_producer_close(producer);
    return rc == TSOCKET_END ? 0 : complain("producer");
}

static int wait_for_samples(const struct round *round, uint32_t number)
{
    struct tsocket *ts;
    struct tsocket_batch batch;
    int rc;
    if (open_consumer(round, 1, &ts) != TSOCKET_OK)
        return complain("consumer");
    while ((rc = tsocket_next(ts, NEXT_TIMEOUT_MS, &batch)) != TSOCKET_END) {
        if (rc == TSOCKET_EPOCH_END)
            continue;
        if (rc != TSOCKET_OK)
            return complain("consumer");
        note_delay(round, number, *(const int64_t *)batch.data[0]);
        tsocket_release(ts, &batch);
    }
    tsocket_close(ts);
    return 0;
}

/* ---- message ---------------------------------------------------------------------------------------------------- */

/* As much of an identity as libzmq gives to a peer that chose none. */
struct identity {
    char bytes[5];
};

static bool send_all(void *router, const struct identity *peers, uint32_t n_peers, int64_t sent_ns)
{
    for (uint32_t i = 0; i < n_peers; i++)
        if (zmq_send(router, peers[i].bytes, sizeof(peers[i].bytes), ZMQ_SNDMORE) == -1 ||
            zmq_send(router, &sent_ns, sizeof(sent_ns), 0) == -1)
            return false;
    return true;
}

static int send_messages(const struct round *round, uint32_t number)
{
    (void)number;
    struct identity peers[CONSUMERS_MAX];
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    bool ok = zmq_bind(router, round->endpoint) == 0;
    for (uint32_t i = 0; ok && i < round->consumers; i++)
        ok = zmq_recv(router, peers[i].bytes, sizeof(peers[i].bytes), 0) == sizeof(peers[i].bytes) &&
             zmq_recv(router, NULL, 0, 0) == 0;
    for (uint32_t i = 0; ok && i < WARM_UP_SAMPLES + round->options->samples; i++) {
        bench_sleep_until_ns(bench_now_ns() + round->options->pace_ns);
        ok = send_all(router, peers, round->consumers, bench_now_ns());
    }
    ok = ok && send_all(router, peers, round->consumers, 0); /* the end */
    if (!ok)
        fprintf(stderr, "handover: sending over %s: %s\n", round->endpoint, zmq_strerror(zmq_errno()));
    zmq_close(router);
    zmq_ctx_term(context);
    return ok ? 0 : 1;
}

static int receive_messages(const struct round *round, uint32_t number)
{
    int64_t sent_ns = 1;
    void *context = zmq_ctx_new(), *dealer = zmq_socket(context, ZMQ_DEALER);
    zmq_pollitem_t item = {.socket = dealer, .events = ZMQ_POLLIN};
    bool ok = zmq_connect(dealer, round->endpoint) == 0 && zmq_send(dealer, "", 0, 0) == 0;
    while (ok && sent_ns) {
        ok = zmq_poll(&item, 1, NEXT_TIMEOUT_MS) == 1 &&
             zmq_recv(dealer, &sent_ns, sizeof(sent_ns), ZMQ_DONTWAIT) == sizeof(sent_ns);
        if (ok && sent_ns)
            note_delay(round, number, sent_ns);
    }
    if (!ok)
        fprintf(stderr, "handover: receiving from %s: %s\n", round->endpoint, zmq_strerror(zmq_errno()));
    zmq_close(dealer);
    zmq_ctx_term(context);
    return ok ? 0 : 1;
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

struct rate {
    double least; /* batches per second of the consumer that got fewest */
    double total;
};

struct delay {
    double p50_us;
    double p99_us;
};

static struct rate measure_rate(struct round *round)
{
    struct rate rate = {.least = 1e18};
    run_round(round, round->options->attach ? NULL : produce_positions, count_batches);
    for (uint32_t i = 0; i < round->consumers; i++) {
        double one = (double)round->shared->batches[i] * 1e9 / (double)round->options->len_ns;
        rate.total += one;
        rate.least = one < rate.least ? one : rate.least;
    }
    return rate;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Percentiles of what all consumers noted, together. */
static struct delay measure_delay(struct round *round, role *producer, role *consumer)
{
    struct shared *s = round->shared;
    size_t n = 0;
    memset(s->n_delays, 0, sizeof(s->n_delays));
    run_round(round, producer, consumer);
    uint32_t *all = calloc((size_t)round->consumers * SAMPLES_MAX, sizeof(*all));
    if (!all) {
        perror("handover");
        exit(1);
    }
    for (uint32_t i = 0; i < round->consumers; i++)
        for (uint32_t k = WARM_UP_SAMPLES; k < s->n_delays[i]; k++)
            all[n++] = s->delays_ns[i][k];
    qsort(all, n, sizeof(*all), compare);
    struct delay delay = {.p50_us = all[n / 2] / 1e3, .p99_us = all[n * 99 / 100] / 1e3};
    free(all);
    return delay;
}

static void print_rates(struct round *round)
{
    const struct options *o = round->options;
    if (o->json)
        printf("\"rate\":[");
    else
        printf("consumers  batches/s each (least)  batches/s in all  ns per batch\n");
    for (uint32_t i = 0; i < o->n_consumers; i++) {
        round->consumers = o->consumers[i];
        struct rate r = measure_rate(round);
        if (o->json)
            printf("%s{\"consumers\":%" PRIu32 ",\"batch\":%" PRIu32
                   ",\"least_batches_per_s\":%.0f,\"batches_per_s\":%.0f}",
                   i ? "," : "", round->consumers, o->batch, r.least, r.total);
        else
            printf("%9" PRIu32 "  %22.0f  %16.0f  %12.0f\n", round->consumers, r.least, r.total, 1e9 / r.total);
    }
    if (o->json)
        printf("]");
}

static void print_delays(struct round *round)
{
    const struct options *o = round->options;
    if (o->json)
        printf(",\"latency\":[");
    else
        printf("\nconsumers  commit to next: p50 us    p99 us  bare message: p50 us    p99 us  p50 / p50\n");
    for (uint32_t i = 0; i < o->n_consumers; i++) {
        round->consumers = o->consumers[i];
        struct delay next = measure_delay(round, produce_at_pace, wait_for_samples);
        struct delay bare = measure_delay(round, send_messages, receive_messages);
        if (o->json)
            printf("%s{\"consumers\":%" PRIu32 ",\"next_p50_us\":%.1f,\"next_p99_us\":%.1f,\"message_p50_us\":%.1f,"
                   "\"message_p99_us\":%.1f,\"ratio\":%.2f}",
                   i ? "," : "", round->consumers, next.p50_us, next.p99_us, bare.p50_us, bare.p99_us,
                   next.p50_us / bare.p50_us);
        else
            printf("%9" PRIu32 "  %22.1f  %8.1f  %20.1f  %8.1f  %9.2f\n", round->consumers, next.p50_us, next.p99_us,
                   bare.p50_us, bare.p99_us, next.p50_us / bare.p50_us);
    }
    if (o->json)
        printf("]");
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    struct round round = {.options = &o};
    round.shared = mmap(NULL, sizeof(*round.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (round.shared == MAP_FAILED) {
        perror("handover: mmap");
        return 1;
    }
    snprintf(round.name, sizeof(round.name), "handover-%ld", (long)getpid());
    if (o.attach)
        snprintf(round.name, sizeof(round.name), "%s", o.attach);
    snprintf(round.endpoint, sizeof(round.endpoint), "ipc://@handover-%ld", (long)getpid());
    if (o.json)
        printf("{");
    print_rates(&round);
    if (!o.attach)
        print_delays(&round);
    if (o.json)
        printf("}\n");
    return 0;
}
