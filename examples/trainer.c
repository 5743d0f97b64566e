/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer: a small classifier that learns from the photographs of a tsocketd, as a model of a training loop in C.
 *
 *     stream --next--> images, labels --reduce--> 32 x 32 x 3 floats --step--> weights
 *                            '-- release, as soon as the pixels are reduced: what is read need not be held
 *
 * The classifier is a perceptron with one hidden layer, trained by stochastic gradient descent with momentum on the
 * softmax cross-entropy. It is small so that the loader is what one looks at; --step-ms makes it as slow as a large
 * one.
 *
 *     tsocketd --size 64 photos/train &
 *     trainer main --batch 32 --epochs 10
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tsocket/tsocket.h>

#include "mlp.h"

enum {
    SIDE = 32, /* of the reduced image */
    CHANNELS = 3,
    INPUTS = SIDE * SIDE * CHANNELS,
    CONNECT_TIMEOUT_MS = 10000, /* the daemon may just be starting */
    RECONNECT_MS = 60000,       /* a daemon that is restarted meanwhile is no reason to lose the work */
    LOOK_UP_MS = 500,           /* how often a waiting trainer looks whether it was interrupted */
};

static volatile sig_atomic_t interrupted;

/* ---- options ---------------------------------------------------------------------------------------------------- */

struct options {
    const char *stream;
    const char *val; /* stream to evaluate on after each epoch, or NULL */
    uint32_t batch;
    uint32_t classes;
    uint32_t step_ms;
    uint64_t epochs; /* 0: as many as the daemon has */
    uint64_t seed;
    float lr;
    bool json;
};

static const char USAGE[] = "usage: trainer [options] STREAM\n"
                            "\n"
                            "Trains a small classifier on STREAM (DAEMON or DAEMON/NAME) of a running tsocketd.\n"
                            "\n"
                            "  --batch N      samples per step (default 32)\n"
                            "  --epochs N     epochs to train; 0: until the stream ends (default 10)\n"
                            "  --lr X         learning rate (default 0.01)\n"
                            "  --seed N       of the first weights (default 0)\n"
                            "  --classes N    labels are 0 to N - 1 (default 10)\n"
                            "  --step-ms N    time added to each step, to stand for a slower model (default 0)\n"
                            "  --val STREAM   evaluate on one epoch of STREAM after each epoch\n"
                            "  --json         one line of JSON per epoch\n";

/* The number in `text`; ends the program with status 2 where it is none within the limits. */
static double number(const char *flag, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "trainer: --%s %s: a number from %g to %g is needed\n", flag, text, low, high);
        exit(2);
    }
    return value;
}

static struct options parse(int argc, char **argv)
{
    static const struct option flags[] = {
        {"batch", required_argument, NULL, 'b'},   {"epochs", required_argument, NULL, 'e'},
        {"lr", required_argument, NULL, 'l'},      {"seed", required_argument, NULL, 's'},
        {"classes", required_argument, NULL, 'c'}, {"step-ms", required_argument, NULL, 't'},
        {"val", required_argument, NULL, 'v'},     {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {0},
    };
    struct options o = {.batch = 32, .classes = 10, .epochs = 10, .lr = 0.01f};
    int flag, i = 0;
    while ((flag = getopt_long(argc, argv, "", flags, &i)) != -1) {
        switch (flag) {
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
        case 't':
            o.step_ms = (uint32_t)number(flags[i].name, optarg, 0, 1e6);
            break;
        case 'v':
            o.val = optarg;
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

/* ---- reduce: an image of the stream becomes the model's input --------------------------------------------------- */

/* How to find a pixel in the stream's images. Strides count elements. */
struct input {
    enum tsocket_dtype dtype;
    size_t width, height;
    size_t x_stride, y_stride, channel_stride;
    size_t sample_bytes;
};

/* Reads the layout of the fields `image` and `label`; false, with a message, where this trainer cannot use them. */
static bool input_init(const struct tsocket_info *info, struct input *input_out)
{
    const struct tsocket_field *image = &info->fields[0], *label = &info->fields[1];
    bool nhwc = image->ndim == 3 && image->shape[2] == CHANNELS;
    bool nchw = image->ndim == 3 && !nhwc && image->shape[0] == CHANNELS;
    if (image->dtype != TSOCKET_UINT8 && image->dtype != TSOCKET_FLOAT32) {
        const char *name = tsocket_dtype_name(image->dtype);
        fprintf(stderr, "trainer: images of %s/%s are %s; this trainer reads uint8 and float32\n", info->daemon,
                info->stream, name ? name : "of an unknown type");
        return false;
    }
    if (!nhwc && !nchw) {
        fprintf(stderr, "trainer: images of %s/%s are neither height x width x 3 nor 3 x height x width\n",
                info->daemon, info->stream);
        return false;
    }
    if (label->dtype != TSOCKET_INT64 || label->ndim != 0) {
        fprintf(stderr, "trainer: labels of %s/%s are not one int64 per sample\n", info->daemon, info->stream);
        return false;
    }
    size_t height = image->shape[nhwc ? 0 : 1], width = image->shape[nhwc ? 1 : 2];
    *input_out = (struct input){
        .dtype = image->dtype,
        .width = width,
        .height = height,
        .x_stride = nhwc ? CHANNELS : 1,
        .y_stride = nhwc ? CHANNELS * width : width,
        .channel_stride = nhwc ? 1 : width * height,
        .sample_bytes = image->sample_bytes,
    };
    return true;
}

/* A rectangle of the image, at least one pixel wide and high. */
struct box {
    size_t x, y, x_end, y_end;
};

/* The part of `len` pixels that output pixel `i` of SIDE stands for; repeats pixels where there are fewer than SIDE. */
static void share(size_t i, size_t len, size_t *begin_out, size_t *end_out)
{
    size_t begin = i * len / SIDE, end = (i + 1) * len / SIDE;
    *begin_out = begin;
    *end_out = end > begin ? end : begin + 1;
}

/* Bytes 0 to 255 become -1 to 1. */
static float mean_of_bytes(const struct input *in, const uint8_t *image, const struct box *box)
{
    uint32_t sum = 0;
    for (size_t y = box->y; y < box->y_end; y++)
        for (size_t x = box->x; x < box->x_end; x++)
            sum += image[y * in->y_stride + x * in->x_stride];
    float count = (float)((box->x_end - box->x) * (box->y_end - box->y));
    return (float)sum / count / 127.5f - 1;
}

/* Floats are as the daemon's --mean and --std made them. */
static float mean_of_floats(const struct input *in, const float *image, const struct box *box)
{
    float sum = 0;
    for (size_t y = box->y; y < box->y_end; y++)
        for (size_t x = box->x; x < box->x_end; x++)
            sum += image[y * in->y_stride + x * in->x_stride];
    return sum / (float)((box->x_end - box->x) * (box->y_end - box->y));
}

/* The mean of each box of one image: INPUTS floats. */
static void reduce(const struct input *in, const void *image, float *out)
{
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++) {
        struct box box;
        share(i % SIDE, in->width, &box.x, &box.x_end);
        share(i / SIDE, in->height, &box.y, &box.y_end);
        for (size_t c = 0; c < CHANNELS; c++) {
            size_t at = c * in->channel_stride;
            if (in->dtype == TSOCKET_UINT8)
                *out++ = mean_of_bytes(in, (const uint8_t *)image + at, &box);
            else
                *out++ = mean_of_floats(in, (const float *)image + at, &box);
        }
    }
}

/* ---- loop ------------------------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_ms(uint32_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR && !interrupted)
        ;
}

/* Says what the library has against the call that just failed; once, where the call stands. */
static int complain(int rc)
{
    fprintf(stderr, "trainer: %s: %s\n", tsocket_errname(rc), tsocket_last_error());
    return rc;
}

static int open_stream(const struct options *o, const char *stream, uint64_t epochs, struct tsocket **ts_out,
                       struct input *input_out)
{
    struct tsocket_options to;
    struct tsocket_info info;
    struct tsocket *ts;
    tsocket_options_init(&to);
    to.device = "host";
    to.fields = "image,label";
    to.epochs = epochs;
    to.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    to.reconnect_ms = RECONNECT_MS;
    int rc = tsocket_open(stream, o->batch, &to, &ts);
    if (rc != TSOCKET_OK)
        return complain(rc);
    tsocket_describe(ts, &info);
    if (!input_init(&info, input_out)) {
        tsocket_close(ts);
        return TSOCKET_EINVAL;
    }
    *ts_out = ts;
    return TSOCKET_OK;
}

/*
 * Copies what the model needs out of the batch and gives the batch back at once, so that the daemon can reuse its
 * memory while the model computes. Only after a release that says OK is it certain that what was copied is good;
 * TSOCKET_ELAPPED: it was not, since this process had stood still for too long, and the batch will come again.
 */
static int take(struct tsocket *ts, const struct tsocket_batch *batch, const struct input *in, struct mlp *m)
{
    const char *images = batch->data[0];
    const int64_t *labels = batch->data[1];
    for (uint32_t i = 0; i < batch->valid; i++) {
        if (labels[i] < 0 || (uint64_t)labels[i] >= m->classes) {
            fprintf(stderr, "trainer: label %" PRId64 " is not below --classes %zu\n", labels[i], m->classes);
            return TSOCKET_EINVAL;
        }
        m->label[i] = (size_t)labels[i];
        reduce(in, images + i * in->sample_bytes, m->x + (size_t)i * INPUTS);
    }
    int rc = tsocket_release(ts, batch);
    return rc == TSOCKET_OK || rc == TSOCKET_ELAPPED ? rc : complain(rc);
}

/* Waits for the next thing to do. An interrupted trainer sees the end of its stream. */
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

/* One epoch of o->val. Opened for each evaluation, so that this trainer keeps nobody waiting while it trains. */
static int evaluate(const struct options *o, struct mlp *m, struct mlp_tally *tally_out)
{
    struct tsocket *ts;
    struct input input;
    struct tsocket_batch batch;
    int rc = open_stream(o, o->val, 1, &ts, &input);
    if (rc != TSOCKET_OK)
        return rc;
    while ((rc = wait_next(ts, &batch)) == TSOCKET_OK) {
        rc = take(ts, &batch, &input, m);
        if (rc == TSOCKET_OK)
            mlp_evaluate(m, batch.valid, tally_out);
        else if (rc != TSOCKET_ELAPPED)
            break;
    }
    tsocket_close(ts);
    return rc == TSOCKET_EPOCH_END || rc == TSOCKET_END ? TSOCKET_OK : rc;
}

static double mean_loss(const struct mlp_tally *t)
{
    return t->samples ? t->loss / (double)t->samples : 0;
}

static double accuracy(const struct mlp_tally *t)
{
    return t->samples ? (double)t->correct / (double)t->samples : 0;
}

struct trainer {
    struct options options;
    struct mlp model;
    uint64_t epochs_done;
    double epoch_begun_s;
    struct mlp_tally epoch;
};

static void report(const struct trainer *t, uint64_t stream_epoch, double seconds, const struct mlp_tally *val)
{
    const struct mlp_tally *e = &t->epoch;
    if (t->options.json) {
        printf("{\"event\":\"epoch\",\"epoch\":%" PRIu64 ",\"own_epoch\":%" PRIu64 ",\"samples\":%" PRIu64
               ",\"seconds\":%.3f,\"loss\":%.5f,\"accuracy\":%.4f",
               stream_epoch, t->epochs_done, e->samples, seconds, mean_loss(e), accuracy(e));
        if (val->samples)
            printf(",\"val_loss\":%.5f,\"val_accuracy\":%.4f", mean_loss(val), accuracy(val));
        printf("}\n");
    } else {
        printf("epoch %2" PRIu64 ": loss %.4f, accuracy %5.1f %%, %" PRIu64 " samples in %.1f s", t->epochs_done + 1,
               mean_loss(e), 100 * accuracy(e), e->samples, seconds);
        if (val->samples)
            printf("; validation loss %.4f, accuracy %5.1f %%", mean_loss(val), 100 * accuracy(val));
        printf("\n");
    }
    fflush(stdout);
}

static void begin_epoch(struct trainer *t)
{
    t->epoch = (struct mlp_tally){0};
    t->epoch_begun_s = now_s();
}

static int finish_epoch(struct trainer *t, struct tsocket *ts)
{
    struct tsocket_epoch ended;
    struct mlp_tally val = {0};
    double seconds = now_s() - t->epoch_begun_s;
    tsocket_ended_epoch(ts, &ended);
    if (t->options.val) {
        tsocket_pause(ts); /* the others need not wait for a validation; without side rings they do */
        int rc = evaluate(&t->options, &t->model, &val);
        if (rc != TSOCKET_OK)
            return rc;
    }
    report(t, ended.epoch, seconds, &val);
    t->epochs_done++;
    begin_epoch(t);
    return TSOCKET_OK;
}

/* Trains until the stream ends, something fails or the user interrupts. TSOCKET_END is the good end. */
static int train(struct trainer *t, struct tsocket *ts, const struct input *input)
{
    struct tsocket_batch batch;
    int rc = TSOCKET_OK;
    begin_epoch(t);
    while (rc == TSOCKET_OK) {
        rc = wait_next(ts, &batch);
        if (rc == TSOCKET_EPOCH_END) {
            rc = finish_epoch(t, ts);
        } else if (rc == TSOCKET_OK) {
            rc = take(ts, &batch, input, &t->model);
            if (rc == TSOCKET_OK) {
                mlp_train(&t->model, batch.valid, t->options.lr, &t->epoch);
                sleep_ms(t->options.step_ms);
            } else if (rc == TSOCKET_ELAPPED) {
                rc = TSOCKET_OK;
            }
        }
    }
    return rc;
}

static int open_and_train(struct trainer *t)
{
    struct tsocket *ts;
    struct input input;
    int rc = open_stream(&t->options, t->options.stream, t->options.epochs, &ts, &input);
    if (rc != TSOCKET_OK)
        return rc;
    rc = train(t, ts, &input);
    tsocket_close(ts);
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
    int rc = TSOCKET_ENOMEM;
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (mlp_init(&t.model, INPUTS, t.options.classes, t.options.batch, t.options.seed)) {
        rc = open_and_train(&t);
    } else {
        fprintf(stderr, "trainer: not enough memory for batches of %" PRIu32 "\n", t.options.batch);
    }
    mlp_fini(&t.model);
    return rc == TSOCKET_END ? 0 : 1;
}
