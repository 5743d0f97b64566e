/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for one trainer, to compare two ways of loading: the same loop reads from a shared tsocketd, or from a loader
 * of its own that runs the same pipeline on threads of this process.
 *
 *     --shared NAME       tsocketd process: decode -> ring ---> this process: next, step, release
 *     --private FOLDER    this process:     decode -> ring ---> next, step, release
 *
 * A step sleeps --step-ms: a model on an accelerator needs no CPU. Counts what it gets between --from and --from +
 * --seconds, on a clock that all processes share, so that several of them measure the same time; prints one line of
 * JSON.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tsocket/producer.h>

#include "../src/producer/pipeline.h"
#include "bench.h"

enum {
    NEXT_TIMEOUT_MS = 10000, /* a trainer that waits longer has failed */
    CONNECT_TIMEOUT_MS = 10000,
    RING_BATCHES = 4,       /* tsocketd's default, in batches of the largest size */
    LINGER_NS = 1000000000, /* after the time that counts, for an observer who is late */
};

struct options {
    const char *shared;
    const char *folder;
    uint32_t batch;
    uint32_t workers;
    int64_t step_ns;
    int64_t from_ns; /* 0: in a second */
    int64_t len_ns;
};

static const char USAGE[] = "usage: loader --shared NAME|--private FOLDER [--batch N] [--workers N] [--step-ms X]\n"
                            "              [--from NS] [--seconds X]\n"
                            "\n"
                            "  --from is in nanoseconds of CLOCK_MONOTONIC; the default is in a second.\n"
                            "  --workers: decode threads of a private loader (default: the machine's CPUs).\n";

static struct options parse(int argc, char **argv)
{
    static const struct option flags[] = {
        {"shared", required_argument, NULL, 's'},  {"private", required_argument, NULL, 'p'},
        {"batch", required_argument, NULL, 'b'},   {"workers", required_argument, NULL, 'w'},
        {"step-ms", required_argument, NULL, 't'}, {"from", required_argument, NULL, 'f'},
        {"seconds", required_argument, NULL, 'l'}, {0},
    };
    struct options o = {.batch = 32, .workers = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), .len_ns = 5 * BENCH_NS_PER_S};
    int flag, i = 0;
    while ((flag = getopt_long(argc, argv, "", flags, &i)) != -1) {
        if (flag == 's')
            o.shared = optarg;
        else if (flag == 'p')
            o.folder = optarg;
        else if (flag == 'b')
            o.batch = (uint32_t)bench_number(flags[i].name, optarg, 1, 65536);
        else if (flag == 'w')
            o.workers = (uint32_t)bench_number(flags[i].name, optarg, 1, 1024);
        else if (flag == 't')
            o.step_ns = (int64_t)(bench_number(flags[i].name, optarg, 0, 1e5) * 1e6);
        else if (flag == 'f')
            o.from_ns = (int64_t)bench_number(flags[i].name, optarg, 0, 9e18);
        else if (flag == 'l')
            o.len_ns = (int64_t)(bench_number(flags[i].name, optarg, 0.01, 1e6) * 1e9);
        else
            exit(2);
    }
    if (optind != argc || !o.shared == !o.folder) {
        fputs(USAGE, stderr);
        exit(2);
    }
    return o;
}

/* ---- the private loader ----------------------------------------------------------------------------------------- */

struct loader {
    struct tsp_source *source;
    struct tsocket_producer *producer;
    struct tsp_pipeline *pipeline;
    char name[TSOCKET_NAME_MAX + 1];
    char error[1024];
};

static bool complain(const char *why)
{
    fprintf(stderr, "loader: %s\n", why);
    return false;
}

static int add_stream(struct tsocket_producer *producer, const struct tsp_stream_plan *plan, uint32_t batch)
{
    struct tsocket_field fields[TSOCKET_FIELDS_MAX];
    struct tsocket_stream_options so;
    tsocket_stream_options_init(&so);
    so.fields = fields;
    so.n_fields = tsp_stream_plan_fields(plan, fields);
    so.epoch_samples = plan->source->count;
    so.max_batch = batch;
    so.capacity = (uint64_t)batch * RING_BATCHES;
    return tsocket_producer_add_stream(producer, &so, NULL);
}

static void loader_close(struct loader *l)
{
    if (l->producer)
        tsocket_producer_stop(l->producer);
    tsp_pipeline_join(l->pipeline);
    tsocket_producer_close(l->producer);
    tsp_source_close(l->source);
}

/* False: not running, and said why. *l is for loader_close in any case. */
static bool loader_open(struct loader *l, const struct options *o)
{
    const struct tsp_source_limits source_limits = {.max_bytes = 256 << 20};
    const struct tsp_limits limits = {.max_pixels = 1 << 28, .max_scans = 100};
    struct tsocket_producer_options po;
    struct tsp_stream_plan plan = {0};
    *l = (struct loader){0};
    snprintf(l->name, sizeof(l->name), "private-%ld", (long)getpid());
    l->source = tsp_source_open(o->folder, &source_limits, l->error, sizeof(l->error));
    if (!l->source)
        return complain(l->error);
    plan.source = l->source;
    tsp_recipe_init(&plan.recipe);
    tsocket_producer_options_init(&po);
    po.name = l->name;
    po.join_grace_ms = 0;
    if (tsocket_producer_open(&po, &l->producer) != TSOCKET_OK ||
        add_stream(l->producer, &plan, o->batch) != TSOCKET_OK || tsocket_producer_start(l->producer) != TSOCKET_OK)
        return complain(tsocket_last_error());
    l->pipeline = tsp_pipeline_start(l->producer, &plan, 1, &limits, NULL, o->workers, l->error, sizeof(l->error));
    return l->pipeline || complain(l->error);
}

/* ---- the trainer ------------------------------------------------------------------------------------------------ */

struct result {
    uint64_t samples;
    int64_t waited_ns; /* in next */
    double cpu_s;      /* of this process */
};

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static long peak_rss_kb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static int next(struct tsocket *ts, struct tsocket_batch *batch_out)
{
    int rc;
    do
        rc = tsocket_next(ts, NEXT_TIMEOUT_MS, batch_out);
    while (rc == TSOCKET_EINTR || rc == TSOCKET_EPOCH_END);
    return rc;
}

static void step(int64_t step_ns)
{
    if (step_ns)
        bench_sleep_until_ns(bench_now_ns() + step_ns);
}

/* Steps until `until_ns`, counting the batches that come before. */
static int step_until(struct tsocket *ts, int64_t step_ns, int64_t until_ns, struct result *r)
{
    struct tsocket_batch batch;
    for (int64_t begin_ns = bench_now_ns(); begin_ns < until_ns; begin_ns = bench_now_ns()) {
        int rc = next(ts, &batch);
        if (rc != TSOCKET_OK)
            return rc;
        int64_t now_ns = bench_now_ns();
        if (now_ns < until_ns) {
            r->waited_ns += now_ns - begin_ns;
            r->samples += batch.valid;
        }
        step(step_ns);
        tsocket_release(ts, &batch);
    }
    return TSOCKET_OK;
}

/* Before and after the time that counts it steps as well: queues are then as full or empty as they stay. */
static int measure(struct tsocket *ts, const struct options *o, struct result *result_out)
{
    struct result r = {0}, ignored = {0};
    int64_t from_ns = o->from_ns ? o->from_ns : bench_now_ns() + BENCH_NS_PER_S;
    int64_t until_ns = from_ns + o->len_ns;
    int rc = step_until(ts, o->step_ns, from_ns, &ignored);
    if (rc == TSOCKET_OK && ignored.samples == 0)
        complain("the first batch came after --from");
    r.cpu_s = -cpu_s();
    if (rc == TSOCKET_OK)
        rc = step_until(ts, o->step_ns, until_ns, &r);
    r.cpu_s += cpu_s();
    if (rc == TSOCKET_OK)
        rc = step_until(ts, o->step_ns, until_ns + LINGER_NS, &ignored);
    if (rc == TSOCKET_OK)
        *result_out = r;
    return rc;
}

static void report(const struct options *o, const struct result *r)
{
    double seconds = (double)o->len_ns / 1e9;
    printf("{\"mode\":\"%s\",\"samples\":%" PRIu64 ",\"seconds\":%.3f,\"rate\":%.1f,\"waited_seconds\":%.3f,"
           "\"cpu_seconds\":%.3f,\"peak_rss_kb\":%ld}\n",
           o->shared ? "shared" : "private", r->samples, seconds, (double)r->samples / seconds,
           (double)r->waited_ns / 1e9, r->cpu_s, peak_rss_kb());
}

static bool run(const char *name, const struct options *o)
{
    struct tsocket *ts;
    struct tsocket_options to;
    struct result r;
    tsocket_options_init(&to);
    to.device = "host";
    to.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    if (tsocket_open(name, o->batch, &to, &ts) != TSOCKET_OK)
        return complain(tsocket_last_error());
    int rc = measure(ts, o, &r);
    if (rc == TSOCKET_OK)
        report(o, &r);
    else
        complain(tsocket_last_error());
    tsocket_close(ts);
    return rc == TSOCKET_OK;
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    struct loader loader = {0};
    bool ok = o.shared || loader_open(&loader, &o);
    ok = ok && run(o.shared ? o.shared : loader.name, &o);
    loader_close(&loader);
    return ok ? 0 : 1;
}
