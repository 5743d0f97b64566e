/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer of trainer.c on a GPU. The ring is there already (tsocketd --device cuda), so a batch is two addresses,
 * and nothing is copied but what the model makes of it. Where the ring is in host memory, each batch is copied first.
 *
 *     next --> reduce, copy labels --> tsocket_release_after --> forward, backward, descend
 *              '---------- all queued on one stream; the host waits at the end of an epoch alone ----------'
 *
 *     tsocketd --device cuda --size 64 photos/train &
 *     trainer_cuda main --batch 32 --epochs 10
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tsocket/tsocket.h>

#include "mlp_cuda.h"

enum {
    CONNECT_TIMEOUT_MS = 10000, /* the daemon may just be starting */
    LOOK_UP_MS = 500,           /* how often a waiting trainer looks whether it was interrupted */
};

static volatile sig_atomic_t interrupted;

/* ---- options ---------------------------------------------------------------------------------------------------- */

struct options {
    const char *stream;
    const char *device;
    uint32_t batch;
    uint32_t classes;
    uint64_t epochs; /* 0: as many as the daemon has */
    uint64_t seed;
    float lr;
    bool json;
};

static const char USAGE[] = "usage: trainer_cuda [options] STREAM\n"
                            "\n"
                            "Trains a small classifier on a GPU, on STREAM (DAEMON or DAEMON/NAME) of a running\n"
                            "tsocketd, best one that keeps its ring there (--device cuda).\n"
                            "\n"
                            "  --device NAME  cuda, cuda:1, cuda:GPU-..., host: where the ring is read (default cuda)\n"
                            "  --batch N      samples per step (default 32)\n"
                            "  --epochs N     epochs to train; 0: until the stream ends (default 10)\n"
                            "  --lr X         learning rate (default 0.01)\n"
                            "  --seed N       of the first weights (default 0)\n"
                            "  --classes N    labels are 0 to N - 1 (default 10)\n"
                            "  --json         one line of JSON per epoch\n";

/* The number in `text`; ends the program with status 2 where it is none within the limits. */
static double number(const char *flag, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "trainer_cuda: --%s %s: a number from %g to %g is needed\n", flag, text, low, high);
        exit(2);
    }
    return value;
}

static struct options parse(int argc, char **argv)
{
    static const struct option flags[] = {
        {"device", required_argument, NULL, 'd'},
        {"batch", required_argument, NULL, 'b'},
        {"epochs", required_argument, NULL, 'e'},
        {"lr", required_argument, NULL, 'l'},
        {"seed", required_argument, NULL, 's'},
        {"classes", required_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct options o = {.device = "cuda", .batch = 32, .classes = 10, .epochs = 10, .lr = 0.01f};
    int flag, i = 0;
    while ((flag = getopt_long(argc, argv, "", flags, &i)) != -1) {
        switch (flag) {
        case 'd':
            o.device = optarg;
            break;
        case 'b':
            o.batch = (uint32_t)number(flags[i].name, optarg, 1, 65536);
            break;
        case 'e':
            o.epochs = (uint64_t)number(flags[i].name, optarg, 0, 1e9);
            break;
        case 'l':
            o.lr = (float)number(flags[i].name, optarg, 0, 1000);
            break;
        case 's':
            o.seed = (uint64_t)number(flags[i].name, optarg, 0, 1e15);
            break;
        case 'c':
            o.classes = (uint32_t)number(flags[i].name, optarg, 1, 100000);
            break;
        case 'j':
            o.json = true;
            break;
        case 'h':
            fputs(USAGE, stdout);
            exit(0);
        default:
            exit(2);
        }
    }
    if (optind != argc - 1) {
        fputs(USAGE, stderr);
        exit(2);
    }
    o.stream = argv[optind];
    return o;
}

/* ---- the stream ------------------------------------------------------------------------------------------------- */

/* Says what the library has against the call that just failed. */
static int complain(int rc)
{
    fprintf(stderr, "trainer_cuda: %s: %s\n", tsocket_errname(rc), tsocket_last_error());
    return rc;
}

/* False, with a message, where this trainer cannot use what the stream holds. */
static bool is_usable(const struct tsocket_info *info)
{
    const struct tsocket_field *image = &info->fields[0], *label = &info->fields[1];
    if (image->dtype != TSOCKET_UINT8 || image->ndim != 3 || image->shape[2] != MLP_CHANNELS ||
        label->dtype != TSOCKET_INT64 || label->ndim != 0) {
        fprintf(stderr, "trainer_cuda: %s/%s is not of uint8 images, height x width x 3, with one int64 label each\n",
                info->daemon, info->stream);
        return false;
    }
    return true;
}

static int open_stream(const struct options *o, struct tsocket **ts_out, struct tsocket_info *info_out)
{
    struct tsocket_options to;
    tsocket_options_init(&to);
    to.device = o->device;
    to.fields = "image,label";
    to.epochs = o->epochs;
    to.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    int rc = tsocket_open(o->stream, o->batch, &to, ts_out);
    if (rc != TSOCKET_OK)
        return complain(rc);
    tsocket_describe(*ts_out, info_out);
    if (is_usable(info_out))
        return TSOCKET_OK;
    tsocket_close(*ts_out);
    return TSOCKET_EINVAL;
}

/* ---- loop ------------------------------------------------------------------------------------------------------- */

struct trainer {
    struct options options;
    struct tsocket *ts;
    struct tsocket_info info;
    struct card card;
    struct mlp_cuda model;
    uint64_t own; /* on the device: images and labels of a batch; 0: the ring is there itself */
    uint64_t epochs_done;
    double epoch_begun_s;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * Waits for the next thing to do. An interrupted trainer sees the end of its stream. TSOCKET_ELAPPED: a batch was
 * written over while the GPU still read it, since this process had stood still for longer than the daemon's --max-hold.
 * The weights have taken that step, so that only a checkpoint from before could make it good: it ends.
 */
static int wait_next(struct tsocket *ts, struct tsocket_batch *batch_out)
{
    int rc;
    do
        rc = interrupted ? TSOCKET_END : tsocket_next(ts, LOOK_UP_MS, batch_out);
    while (rc == TSOCKET_EAGAIN || rc == TSOCKET_EINTR);
    if (rc != TSOCKET_OK && rc != TSOCKET_EPOCH_END && rc != TSOCKET_END)
        complain(rc);
    return rc;
}

static uint64_t image_bytes(const struct trainer *t)
{
    return t->info.fields[0].sample_bytes;
}

/* Room for a batch whose ring is in host memory: tsocketd has none where this trainer is (another MIG instance). */
static bool reserve(struct trainer *t)
{
    if (t->info.memory != TSOCKET_MEMORY_HOST)
        return true;
    fprintf(stderr, "trainer_cuda: %s/%s is in host memory: each batch is copied\n", t->info.daemon, t->info.stream);
    return CARD(&t->card, alloc(&t->own, t->options.batch * (image_bytes(t) + sizeof(int64_t))));
}

static bool take(struct trainer *t, const struct tsocket_batch *batch)
{
    uint32_t height = (uint32_t)t->info.fields[0].shape[0], width = (uint32_t)t->info.fields[0].shape[1];
    uint64_t labels = t->own, images = t->own + t->options.batch * sizeof(int64_t);
    if (t->own == 0)
        return mlp_cuda_take(&t->model, batch->valid, (uintptr_t)batch->data[0], width, height,
                             (uintptr_t)batch->data[1]);
    return CARD(&t->card, copy_in(labels, batch->data[1], batch->valid * sizeof(int64_t), t->card.stream)) &&
           CARD(&t->card, copy_in(images, batch->data[0], batch->valid * image_bytes(t), t->card.stream)) &&
           mlp_cuda_take(&t->model, batch->valid, images, width, height, labels);
}

/* Once the images are reduced and the labels copied, the batch is not needed: it goes back behind that, not behind the
 * step. */
static int step(struct trainer *t, const struct tsocket_batch *batch)
{
    if (!take(t, batch))
        return TSOCKET_EDEVICE;
    int rc = tsocket_release_after(t->ts, batch, t->card.stream);
    if (rc != TSOCKET_OK)
        return complain(rc);
    return mlp_cuda_train(&t->model, batch->valid, t->options.lr) ? TSOCKET_OK : TSOCKET_EDEVICE;
}

static void report(const struct trainer *t, uint64_t stream_epoch, const struct mlp_device_tally *tally)
{
    double n = tally->samples > 0 ? (double)tally->samples : 1, seconds = now_s() - t->epoch_begun_s;
    if (t->options.json)
        printf("{\"event\":\"epoch\",\"epoch\":%" PRIu64 ",\"own_epoch\":%" PRIu64 ",\"samples\":%" PRIu64
               ",\"seconds\":%.3f,\"loss\":%.5f,\"accuracy\":%.4f}\n",
               stream_epoch, t->epochs_done, tally->samples, seconds, tally->loss / n, (double)tally->correct / n);
    else
        printf("epoch %2" PRIu64 ": loss %.4f, accuracy %5.1f %%, %" PRIu64 " samples in %.1f s\n", t->epochs_done + 1,
               tally->loss / n, 100 * (double)tally->correct / n, tally->samples, seconds);
    fflush(stdout);
}

static int finish_epoch(struct trainer *t)
{
    struct mlp_device_tally tally;
    struct tsocket_epoch ended;
    if (!mlp_cuda_tally(&t->model, &tally))
        return TSOCKET_EDEVICE;
    if (tally.strangers > 0) {
        fprintf(stderr, "trainer_cuda: %" PRIu64 " labels are not below --classes %" PRIu32 "\n", tally.strangers,
                t->options.classes);
        return TSOCKET_EINVAL;
    }
    tsocket_ended_epoch(t->ts, &ended);
    report(t, ended.epoch, &tally);
    t->epochs_done++;
    t->epoch_begun_s = now_s();
    return TSOCKET_OK;
}

/* Trains until the stream ends, something fails or the user interrupts. TSOCKET_END is the good end. */
static int train(struct trainer *t)
{
    struct tsocket_batch batch;
    int rc = TSOCKET_OK;
    t->epoch_begun_s = now_s();
    while (rc == TSOCKET_OK) {
        rc = wait_next(t->ts, &batch);
        if (rc == TSOCKET_EPOCH_END)
            rc = finish_epoch(t);
        else if (rc == TSOCKET_OK)
            rc = step(t, &batch);
    }
    return rc;
}

/* The stream first: it says which device it is. It is closed first, too: that waits for what is queued behind it. */
static int open_and_train(struct trainer *t)
{
    int rc = open_stream(&t->options, &t->ts, &t->info);
    if (rc != TSOCKET_OK)
        return rc;
    rc = card_open(t->info.device >= 0 ? t->info.device : 0, mlp_kernels_ptx, &t->card) &&
                 mlp_cuda_init(&t->model, &t->card, t->options.classes, t->options.batch, t->options.seed) && reserve(t)
             ? train(t)
             : TSOCKET_EDEVICE;
    tsocket_close(t->ts);
    mlp_cuda_fini(&t->model);
    if (t->own != 0)
        t->card.dealloc(t->own);
    card_close(&t->card);
    return rc;
}

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

int main(int argc, char **argv)
{
    struct trainer t = {.options = parse(argc, argv)};
    struct sigaction stop = {.sa_handler = on_signal};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    return open_and_train(&t) == TSOCKET_END ? 0 : 1;
}
