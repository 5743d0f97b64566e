/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is its own producer: no photographs and no tsocketd, but the same ring, protocol and guarantees.
 *
 * Its samples are points of the plane and a noisy function of them, what one would fit a regression to:
 *
 *     x  float32[2]   in [-1, 1)
 *     y  float32[1]   sin(3 x0) cos(2 x1) + noise
 *
 * Two threads make them. It serves the stream NAME/points until its last consumer has left, or until SIGINT:
 *
 *     producer points & minimal points 100
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include <tsocket/producer.h>

enum {
    THREADS = 2,
    EPOCH_SAMPLES = 100000,
    EPOCHS = 10,
    CAPACITY = 8192,
    MAX_BATCH = 2048,
    LOOK_UP_MS = 500, /* how often the main thread looks whether it was interrupted */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014), as [-1, 1). */
static float random_float(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (float)((z ^ z >> 31) >> 40) / (float)(1 << 23) - 1;
}

/* A function of (epoch, ordinal) alone: whichever thread makes a sample, and when, it is the same. */
static void make_sample(uint64_t epoch, uint64_t ordinal, float *x, float *y)
{
    uint64_t state = epoch << 40 ^ ordinal;
    x[0] = random_float(&state);
    x[1] = random_float(&state);
    y[0] = sinf(3 * x[0]) * cosf(2 * x[1]) + 0.05f * random_float(&state);
}

static void *fill(void *producer)
{
    struct tsocket_claim claim;
    while (tsocket_producer_claim(producer, -1, &claim) == TSOCKET_OK) {
        make_sample(claim.epoch, claim.ordinal, claim.data[0], claim.data[1]);
        tsocket_producer_commit(producer, &claim);
    }
    return NULL;
}

/* Declares the stream and starts to serve it. */
static int start(const char *name, struct tsocket_producer **producer_out)
{
    static const struct tsocket_field fields[] = {
        {.name = "x", .dtype = TSOCKET_FLOAT32, .ndim = 1, .shape = {2}},
        {.name = "y", .dtype = TSOCKET_FLOAT32, .ndim = 1, .shape = {1}},
    };
    struct tsocket_producer_options po;
    struct tsocket_stream_options so;
    struct tsocket_producer *producer;
    tsocket_producer_options_init(&po);
    po.name = name;
    po.exit_when_idle = true;
    tsocket_stream_options_init(&so);
    so.name = "points";
    so.fields = fields;
    so.n_fields = 2;
    so.epoch_samples = EPOCH_SAMPLES;
    so.epochs = EPOCHS;
    so.capacity = CAPACITY;
    so.max_batch = MAX_BATCH;
    int rc = tsocket_producer_open(&po, &producer);
    if (rc != TSOCKET_OK)
        return rc;
    rc = tsocket_producer_add_stream(producer, &so, NULL);
    if (rc == TSOCKET_OK)
        rc = tsocket_producer_start(producer);
    if (rc != TSOCKET_OK)
        tsocket_producer_close(producer);
    else
        *producer_out = producer;
    return rc;
}

/* Serves until the end; TSOCKET_END is the good one. */
static int serve(struct tsocket_producer *producer)
{
    pthread_t threads[THREADS];
    int n = 0, rc = TSOCKET_OK;
    while (n < THREADS && pthread_create(&threads[n], NULL, fill, producer) == 0)
        n++;
    if (n == 0) {
        fprintf(stderr, "producer: cannot start a thread\n");
        return TSOCKET_ESYSTEM;
    }
    do
        rc = interrupted ? TSOCKET_END : tsocket_producer_wait(producer, LOOK_UP_MS);
    while (rc == TSOCKET_EAGAIN || rc == TSOCKET_EINTR);
    if (rc != TSOCKET_END)
        fprintf(stderr, "producer: %s\n", tsocket_last_error());
    tsocket_producer_stop(producer);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    return rc;
}

int main(int argc, char **argv)
{
    struct tsocket_producer *producer;
    struct sigaction stop = {.sa_handler = on_signal};
    if (argc != 2) {
        fprintf(stderr, "usage: producer NAME\n");
        return 2;
    }
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    int rc = start(argv[1], &producer);
    if (rc != TSOCKET_OK) {
        fprintf(stderr, "producer: %s\n", tsocket_last_error());
        return 1;
    }
    rc = serve(producer);
    tsocket_producer_close(producer);
    return rc == TSOCKET_END ? 0 : 1;
}
