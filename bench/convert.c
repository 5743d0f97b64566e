/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tsocket_convert costs: milliseconds of CPU time for a batch, in each dtype and layout, beside the table alone
 * and a plain copy of as many bytes as the result has. Rounds, in which all take turns; medians of them.
 */
#include <getopt.h>
#include <stdbool.h>
#include <string.h>

#include <tsocket/convert.h>

#include "../src/ipc/norm.h"
#include "bench.h"

enum {
    CHANNELS = 3,
    ROUNDS_MAX = 1001,
};

static const char USAGE[] = "usage: convert [--rounds N] [--batch N] [--side PIXELS]\n";

struct bench {
    uint32_t rounds, batch;
    size_t side, pixels; /* of a picture */
    uint8_t *from;
    unsigned char *to, *copy;
    struct tsocket_conversion conversion;
};

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static size_t result_bytes(const struct bench *bench)
{
    return bench->batch * bench->pixels * CHANNELS * tsocket_dtype_bytes(bench->conversion.dtype);
}

static void convert(const struct bench *bench)
{
    tsocket_convert(&bench->conversion, bench->from, bench->batch, bench->pixels, bench->to);
}

static void flip(const struct bench *bench)
{
    static uint8_t all[UINT16_MAX + 1];
    const struct tsocket_pick pick = {.flip = memset(all, 1, sizeof all), .width = (uint32_t)bench->side};
    tsocket_convert_picked(&bench->conversion, &pick, bench->from, bench->batch, bench->pixels, bench->to);
}

static void table(const struct bench *bench)
{
    const struct tsocket_conversion *conversion = &bench->conversion;
    struct tsi_norm_steps steps = {CHANNELS, 1};
    struct tsi_norm norm;
    if (conversion->channels_first)
        steps = (struct tsi_norm_steps){1, (ptrdiff_t)bench->pixels};
    tsi_norm_init(&norm, conversion->dtype, CHANNELS, conversion->mean, conversion->std);
    for (size_t i = 0; i < bench->batch; i++)
        tsi_norm_look_up(&norm, bench->from + i * bench->pixels * CHANNELS, bench->pixels,
                         bench->to + i * (result_bytes(bench) / bench->batch), steps);
}

static void copy(const struct bench *bench)
{
    memcpy(bench->to, bench->copy, result_bytes(bench));
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static void measure(const struct bench *bench)
{
    static void (*const ways[])(const struct bench *) = {convert, flip, table, copy};
    static double times[sizeof ways / sizeof ways[0]][ROUNDS_MAX];
    for (uint32_t round = 0; round < bench->rounds; round++)
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            double begun = cpu_ms();
            ways[i](bench);
            times[i][round] = cpu_ms() - begun;
        }
    printf("%-8s %s", tsocket_dtype_name(bench->conversion.dtype), bench->conversion.channels_first ? "nchw" : "nhwc");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        qsort(times[i], bench->rounds, sizeof times[i][0], compare);
        printf(" %8.2f", times[i][bench->rounds / 2]);
    }
    puts("");
}

static void parse(int argc, char **argv, struct bench *bench_out)
{
    static const struct option flags[] = {{"rounds", required_argument, NULL, 'r'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"side", required_argument, NULL, 's'},
                                          {0}};
    *bench_out = (struct bench){.rounds = 25, .batch = 64, .side = 224};
    for (int c; (c = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
        if (c == 'r')
            bench_out->rounds = (uint32_t)bench_number("rounds", optarg, 1, ROUNDS_MAX);
        else if (c == 'b')
            bench_out->batch = (uint32_t)bench_number("batch", optarg, 1, UINT16_MAX);
        else if (c == 's')
            bench_out->side = (size_t)bench_number("side", optarg, 1, 4096);
        else {
            fputs(USAGE, stderr);
            exit(2);
        }
    }
    bench_out->pixels = bench_out->side * bench_out->side;
}

int main(int argc, char **argv)
{
    static const enum tsocket_dtype dtypes[] = {TSOCKET_FLOAT32, TSOCKET_FLOAT16, TSOCKET_BFLOAT16};
    struct bench bench;
    parse(argc, argv, &bench);
    size_t elements = bench.batch * bench.pixels * CHANNELS;
    bench.from = malloc(elements);
    bench.to = malloc(elements * sizeof(float));
    bench.copy = malloc(elements * sizeof(float));
    if (!bench.from || !bench.to || !bench.copy) {
        fprintf(stderr, "convert: no memory for %zu elements; take a smaller --batch\n", elements);
        return 1;
    }
    for (size_t i = 0; i < elements; i++)
        bench.from[i] = (uint8_t)(i * 2654435761u >> 13);
    memset(bench.to, 1, elements * sizeof(float));
    memset(bench.copy, 1, elements * sizeof(float));
    puts("ms of CPU      convert     flip    table     copy");
    for (int i = 0; i < 6; i++) {
        tsocket_conversion_init(&bench.conversion);
        bench.conversion.dtype = dtypes[i / 2];
        bench.conversion.channels_first = i % 2 == 1;
        measure(&bench);
    }
    free(bench.from);
    free(bench.to);
    free(bench.copy);
    return 0;
}
