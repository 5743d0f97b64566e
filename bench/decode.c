/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decoding costs: images per second of one core, for parts and variants of the pipeline's decode, on the files of
 * a folder.
 *
 * The files are read once. Then rounds: each goes through all files, and each few files through all variants in turn,
 * so that whatever else the machine does meets all of them alike. Counted is the CPU time of this thread. Printed are
 * medians of the rounds, and each variant's rate as a share of what entropy decoding alone reaches in the same round.
 *
 * With --threads N, what N cores make of it instead: the files decoded by one thread and by N, in turns, by the clock.
 */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include "../src/producer/decode.h"
#include "../src/producer/jpeg.h"
#include "../src/producer/resize.h"
#include "bench.h"

enum {
    TURN_FILES = 8, /* files that one variant decodes before it is the next one's turn */
    ROUNDS_MAX = 101,
    KERNELS_MAX = 2, /* those that are measured besides the best */
    THREADS_MAX = 256,
};

static const char USAGE[] =
    "usage: decode [--rounds N] [--files N] [--size PIXELS] [--only NAME[,NAME...]] [--threads N] [--json] FOLDER\n";

static const struct tsp_limits decoder_limits = {.max_pixels = 1 << 28, .max_scans = 100};

struct options {
    const char *folder;
    const char *only; /* NULL: all */
    uint32_t rounds;
    uint32_t files;
    uint32_t size;
    uint32_t threads; /* 0: the variants, on one */
    bool json;
};

struct file {
    struct tsp_encoded encoded;
    struct tsp_encoded raw; /* as the pixel cache has it; made when it is first wanted */
    uint32_t width, height;
};

/* All that a variant may use. */
struct bench {
    struct options options;
    struct file *files;
    uint32_t n_files;
    uint64_t bytes;
    struct tsp_decoder *decoder;
    struct tsp_jpeg *jpeg;
    struct tsp_resize
        *resizes[KERNELS_MAX]; /* by kind of kernels, the scalar ones first; NULL: not on this processor */
    char why[TSP_WHY_MAX];
    struct tsp_recipe recipe;
    void *slots; /* TSP_VIEWS_MAX images of the widest type */
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "decode: %s: %s\n", what, why);
    exit(1);
}

/* ---- variants: each decodes one file, drawing the boxes of sample number `sample` ---- */

/* The floor: what must be done before there is a pixel, by libjpeg's own means. */
static void entropy(struct bench *bench, struct file *file, uint32_t sample)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    (void)bench;
    (void)sample;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->encoded.data, file->encoded.len);
    jpeg_read_header(&cinfo, TRUE);
    jpeg_read_coefficients(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

/* The same without a place for what is decoded: rows are skipped down to the last one, of which nothing is wanted. */
static void entropy_unkept(struct bench *bench, struct file *file, uint32_t sample)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    (void)bench;
    (void)sample;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->encoded.data, file->encoded.len);
    jpeg_read_header(&cinfo, TRUE);
    jpeg_start_decompress(&cinfo);
    jpeg_skip_scanlines(&cinfo, cinfo.output_height - 1);
    jpeg_destroy_decompress(&cinfo);
}

/* What comes before: libjpeg's object, made and unmade for each file, and the file's tables. */
static void header(struct bench *bench, struct file *file, uint32_t sample)
{
    uint32_t width, height;
    (void)sample;
    if (tsp_jpeg_header(bench->jpeg, file->encoded.data, file->encoded.len, &width, &height) != TSP_GOOD)
        die("header", bench->why);
}

/* Of one image of the widest type. */
static size_t slot_bytes(const struct bench *bench)
{
    return (size_t)bench->recipe.size * bench->recipe.size * 3 * sizeof(float);
}

static void plan(struct bench *bench, const struct file *file, uint32_t sample, uint32_t n, struct tsp_view *views)
{
    size_t bytes = slot_bytes(bench);
    for (uint32_t i = 0; i < n; i++) {
        tsp_view_plan(&bench->recipe, 0, sample, i, file->width, file->height, &views[i]);
        views[i].out.data = (uint8_t *)bench->slots + i * bytes;
    }
}

static struct tsp_pixels decode_part(struct bench *bench, const struct file *file, const struct tsp_rect *part)
{
    uint32_t width, height;
    struct tsp_pixels pixels;
    if (tsp_jpeg_header(bench->jpeg, file->encoded.data, file->encoded.len, &width, &height) != TSP_GOOD ||
        tsp_jpeg_decode(bench->jpeg, part, 1, &pixels) != TSP_GOOD)
        die("decode", bench->why);
    return pixels;
}

static void whole(struct bench *bench, struct file *file, uint32_t sample)
{
    (void)sample;
    decode_part(bench, file, &(struct tsp_rect){0, 0, file->width, file->height});
}

static void part(struct bench *bench, struct file *file, uint32_t sample)
{
    struct tsp_view view;
    plan(bench, file, sample, 1, &view);
    struct tsp_rect needs = tsp_resize_needs(&view, file->width, file->height);
    decode_part(bench, file, &needs);
}

/* With kernels of a certain kind. */
static void resize_part(struct bench *bench, const struct file *file, uint32_t sample, bool all, int kernels)
{
    struct tsp_view view;
    plan(bench, file, sample, 1, &view);
    struct tsp_rect needs = tsp_resize_needs(&view, file->width, file->height);
    if (all)
        needs = (struct tsp_rect){0, 0, file->width, file->height};
    struct tsp_pixels pixels = decode_part(bench, file, &needs);
    if (bench->resizes[kernels] && !tsp_resize_draw(bench->resizes[kernels], &pixels, &view))
        die("resize", "no memory");
}

static void plain(struct bench *bench, struct file *file, uint32_t sample)
{
    resize_part(bench, file, sample, true, 0);
}

static void scalar(struct bench *bench, struct file *file, uint32_t sample)
{
    resize_part(bench, file, sample, false, 0);
}

static void sse4(struct bench *bench, struct file *file, uint32_t sample)
{
    resize_part(bench, file, sample, false, 1);
}

static void draw_from(struct bench *bench, const struct file *file, const struct tsp_encoded *encoded, uint32_t sample,
                      uint32_t n)
{
    struct tsp_view views[TSP_VIEWS_MAX];
    uint32_t width, height;
    if (tsp_decoder_header(bench->decoder, encoded, false, &width, &height) != TSP_GOOD)
        die("header", tsp_decoder_why(bench->decoder));
    plan(bench, file, sample, n, views);
    if (tsp_decoder_draw(bench->decoder, views, n) != TSP_GOOD)
        die("draw", tsp_decoder_why(bench->decoder));
}

static void draw(struct bench *bench, const struct file *file, uint32_t sample, uint32_t n)
{
    draw_from(bench, file, &file->encoded, sample, n);
}

static void exact(struct bench *bench, struct file *file, uint32_t sample)
{
    draw(bench, file, sample, 1);
}

static void fast(struct bench *bench, struct file *file, uint32_t sample)
{
    bench->recipe.quality = TSP_FAST;
    draw(bench, file, sample, 1);
    bench->recipe.quality = TSP_EXACT;
}

static void floats(struct bench *bench, struct file *file, uint32_t sample, enum tsocket_dtype dtype)
{
    const struct tsp_recipe kept = bench->recipe;
    bench->recipe.dtype = dtype;
    bench->recipe.layout = TSP_NCHW;
    draw(bench, file, sample, 1);
    bench->recipe = kept;
}

static void float32(struct bench *bench, struct file *file, uint32_t sample)
{
    floats(bench, file, sample, TSOCKET_FLOAT32);
}

static void float16(struct bench *bench, struct file *file, uint32_t sample)
{
    floats(bench, file, sample, TSOCKET_FLOAT16);
}

static void bfloat16(struct bench *bench, struct file *file, uint32_t sample)
{
    floats(bench, file, sample, TSOCKET_BFLOAT16);
}

static void make_raw(struct bench *bench, struct file *file)
{
    struct tsp_pixels pixels = decode_part(bench, file, &(struct tsp_rect){0, 0, file->width, file->height});
    size_t bytes = pixels.stride * pixels.height;
    file->raw =
        (struct tsp_encoded){.data = malloc(bytes), .len = bytes, .raw_width = file->width, .raw_height = file->height};
    if (!file->raw.data)
        die("cached", "no memory for all pixels; take fewer --files");
    memcpy(file->raw.data, pixels.data, bytes);
}

static void cached(struct bench *bench, struct file *file, uint32_t sample)
{
    if (!file->raw.data)
        make_raw(bench, file);
    draw_from(bench, file, &file->raw, sample, 1);
}

static void views2(struct bench *bench, struct file *file, uint32_t sample)
{
    draw(bench, file, sample, 2);
}

static void views4(struct bench *bench, struct file *file, uint32_t sample)
{
    draw(bench, file, sample, 4);
}

static void views8(struct bench *bench, struct file *file, uint32_t sample)
{
    draw(bench, file, sample, 8);
}

static const struct variant {
    const char *name;
    void (*run)(struct bench *, struct file *, uint32_t sample);
    const char *what;
} variants[] = {
    {"entropy", entropy, "entropy decoding of the whole file, coefficients kept: the measure of the others"},
    {"unkept", entropy_unkept, "entropy decoding, nothing kept"},
    {"header", header, "the header alone"},
    {"whole", whole, "all pixels"},
    {"part", part, "the pixels that one crop needs"},
    {"plain", plain, "all pixels, one crop of them resized in plain C"},
    {"scalar", scalar, "one crop, resized in plain C"},
    {"sse4", sse4, "one crop, resized with SSE4.1"},
    {"exact", exact, "one crop, resized with the best there is: exact, uint8"},
    {"fast", fast, "the same, fast"},
    {"float32", float32, "exact, float32 NCHW"},
    {"float16", float16, "exact, float16 NCHW"},
    {"bfloat16", bfloat16, "exact, bfloat16 NCHW"},
    {"cached", cached, "exact, from the pixel cache"},
    {"views2", views2, "2 crops of one decode"},
    {"views4", views4, "4 crops of one decode"},
    {"views8", views8, "8 crops of one decode"},
};

enum {
    N_VARIANTS = sizeof variants / sizeof variants[0],
};

/* ---- what fast costs ---- */

struct difference {
    double psnr;  /* of all pixels, dB */
    double least; /* of one picture */
    int largest;
    uint32_t differ; /* pictures that were decoded smaller */
};

static double psnr(double squares, double n)
{
    return squares > 0 ? 10 * log10(255.0 * 255 * n / squares) : INFINITY;
}

static void add_difference(const uint8_t *exact_pixels, const uint8_t *fast_pixels, size_t bytes, double *squares,
                           struct difference *difference)
{
    double sum = 0;
    for (size_t i = 0; i < bytes; i++) {
        int d = abs(exact_pixels[i] - fast_pixels[i]);
        sum += d * d;
        difference->largest = d > difference->largest ? d : difference->largest;
    }
    *squares += sum;
    difference->differ += sum > 0;
    difference->least = fmin(difference->least, psnr(sum, (double)bytes));
}

static struct difference compare_qualities(struct bench *bench)
{
    size_t bytes = (size_t)bench->recipe.size * bench->recipe.size * 3;
    uint8_t *kept = malloc(bytes);
    struct difference difference = {.least = INFINITY};
    double squares = 0;
    for (uint32_t f = 0; kept && f < bench->n_files; f++) {
        exact(bench, &bench->files[f], f);
        memcpy(kept, bench->slots, bytes);
        fast(bench, &bench->files[f], f);
        add_difference(kept, bench->slots, bytes, &squares, &difference);
    }
    free(kept);
    difference.psnr = psnr(squares, (double)bytes * bench->n_files);
    return difference;
}

/* ---- rounds ---- */

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * BENCH_NS_PER_S + t.tv_nsec;
}

static bool is_wanted(const struct options *options, uint32_t variant)
{
    const char *name = variants[variant].name;
    size_t len = strlen(name);
    if (!options->only || variant == 0)
        return true;
    for (const char *at = options->only; (at = strstr(at, name)) != NULL; at += len)
        if ((at == options->only || at[-1] == ',') && (at[len] == '\0' || at[len] == ','))
            return true;
    return false;
}

/* One round: *ns is what each variant took for all files. */
static void run_round(struct bench *bench, uint32_t round, int64_t ns[N_VARIANTS])
{
    memset(ns, 0, N_VARIANTS * sizeof *ns);
    for (uint32_t first = 0; first < bench->n_files; first += TURN_FILES) {
        for (uint32_t i = 0; i < N_VARIANTS; i++) {
            uint32_t v = (i + round + first) % N_VARIANTS; /* nobody always comes after the same one */
            if (!is_wanted(&bench->options, v))
                continue;
            int64_t begun = cpu_ns();
            for (uint32_t f = first; f < first + TURN_FILES && f < bench->n_files; f++)
                variants[v].run(bench, &bench->files[f], round * bench->n_files + f);
            ns[v] += cpu_ns() - begun;
        }
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- several threads ---- */

struct worker {
    struct bench bench; /* with a decoder and slots of its own; the files are shared */
    pthread_t thread;
    atomic_uint *next; /* file to take */
    uint32_t round;
};

static void *decode_files(void *context)
{
    struct worker *worker = context;
    struct bench *bench = &worker->bench;
    for (uint32_t f; (f = atomic_fetch_add(worker->next, 1)) < bench->n_files;)
        exact(bench, &bench->files[f], worker->round * bench->n_files + f);
    return NULL;
}

/* Images per second of the first `n` workers together. */
static double rate_of(struct worker *workers, uint32_t n, uint32_t round)
{
    atomic_uint next = 0;
    int64_t begun_ns = bench_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        workers[i].next = &next;
        workers[i].round = round;
        if (pthread_create(&workers[i].thread, NULL, decode_files, &workers[i]) != 0)
            die("--threads", "no thread could be started");
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    return workers[0].bench.n_files * 1e9 / (double)(bench_now_ns() - begun_ns);
}

static void open_worker(struct worker *worker, const struct bench *bench)
{
    worker->bench = *bench;
    worker->bench.decoder = tsp_decoder_create(&decoder_limits);
    worker->bench.slots = malloc(slot_bytes(bench));
    if (!worker->bench.decoder || !worker->bench.slots)
        die("--threads", "no memory");
}

static void measure_threads(const struct bench *bench)
{
    static struct worker workers[THREADS_MAX];
    double one[ROUNDS_MAX], all[ROUNDS_MAX], ratio[ROUNDS_MAX];
    uint32_t n = bench->options.threads, rounds = bench->options.rounds;
    for (uint32_t i = 0; i < n; i++)
        open_worker(&workers[i], bench);
    rate_of(workers, n, 0); /* to warm up */
    for (uint32_t r = 0; r < rounds; r++) {
        one[r] = rate_of(workers, 1, r);
        all[r] = rate_of(workers, n, r);
        ratio[r] = all[r] / one[r];
    }
    printf(bench->options.json ? "{\"threads\":%u,\"one\":%.1f,\"all\":%.1f,\"ratio\":%.3f}\n"
                               : "%u threads: one makes %.0f images/s, all of them %.0f, %.2f times as many\n",
           n, median(one, rounds), median(all, rounds), median(ratio, rounds));
    for (uint32_t i = 0; i < n; i++) {
        tsp_decoder_destroy(workers[i].bench.decoder);
        free(workers[i].bench.slots);
    }
}

/* ---- files ---- */

/* Keeps the readable pictures of at most options.files files, taken evenly from the whole folder. */
static void read_files(struct bench *bench)
{
    const struct tsp_source_limits limits = {.max_bytes = 256 << 20};
    char error[512];
    struct tsp_source *source = tsp_source_open(bench->options.folder, &limits, error, sizeof error);
    if (!source)
        die("the folder", error);
    uint64_t n = source->count < bench->options.files ? source->count : bench->options.files;
    bench->files = calloc(n, sizeof *bench->files);
    for (uint64_t i = 0; bench->files && i < n; i++) {
        struct file *file = &bench->files[bench->n_files];
        if (source->ops->read(source, i * source->count / n, &file->encoded) != TSP_GOOD ||
            file->encoded.raw_width > 0 ||
            tsp_jpeg_header(bench->jpeg, file->encoded.data, file->encoded.len, &file->width, &file->height) !=
                TSP_GOOD) {
            tsp_encoded_fini(&file->encoded);
            continue;
        }
        bench->bytes += file->encoded.len;
        bench->n_files++;
    }
    tsp_source_close(source);
    if (bench->n_files == 0)
        die(bench->options.folder, "no JPEG files that can be read");
}

static void open_bench(struct bench *bench)
{
    tsp_recipe_init(&bench->recipe);
    bench->recipe.size = bench->options.size;
    bench->decoder = tsp_decoder_create(&decoder_limits);
    bench->jpeg = tsp_jpeg_create(&decoder_limits, bench->why);
    for (size_t i = 0; i < KERNELS_MAX && tsp_kernels_at(i); i++)
        bench->resizes[i] = tsp_resize_create(tsp_kernels_at(i));
    bench->slots = calloc(TSP_VIEWS_MAX, slot_bytes(bench));
    if (!bench->decoder || !bench->jpeg || !bench->slots)
        die("start", "no memory");
    read_files(bench);
}

static void close_bench(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->n_files; i++) {
        tsp_encoded_fini(&bench->files[i].encoded);
        tsp_encoded_fini(&bench->files[i].raw);
    }
    free(bench->files);
    free(bench->slots);
    for (size_t i = 0; i < KERNELS_MAX; i++)
        tsp_resize_destroy(bench->resizes[i]);
    tsp_jpeg_destroy(bench->jpeg);
    tsp_decoder_destroy(bench->decoder);
}

/* ---- the report ---- */

static void report(struct bench *bench, int64_t (*ns)[N_VARIANTS])
{
    uint32_t rounds = bench->options.rounds;
    const char *separator = "";
    if (bench->options.json)
        printf("{\"folder\":\"%s\",\"files\":%u,\"mean_bytes\":%" PRIu64 ",\"rounds\":%u,\"size\":%u,\"variants\":[",
               bench->options.folder, bench->n_files, bench->bytes / bench->n_files, rounds, bench->options.size);
    else
        printf("%s: %u files of %" PRIu64 " bytes on average, %u rounds\n\n%-12s %10s %10s %10s\n",
               bench->options.folder, bench->n_files, bench->bytes / bench->n_files, rounds, "", "images/s", "us/image",
               "x entropy");
    for (uint32_t v = 0; v < N_VARIANTS; v++) {
        double us[ROUNDS_MAX], share[ROUNDS_MAX];
        if (!is_wanted(&bench->options, v))
            continue;
        for (uint32_t r = 0; r < rounds; r++) {
            us[r] = (double)ns[r][v] / 1e3 / bench->n_files;
            share[r] = (double)ns[r][0] / (double)ns[r][v];
        }
        double middle = median(us, rounds), ratio = median(share, rounds);
        if (bench->options.json)
            printf("%s{\"name\":\"%s\",\"images_per_s\":%.1f,\"us\":%.1f,\"by_entropy\":%.3f}", separator,
                   variants[v].name, 1e6 / middle, middle, ratio);
        else
            printf("%-12s %10.0f %10.0f %10.3f  %s\n", variants[v].name, 1e6 / middle, middle, ratio, variants[v].what);
        separator = ",";
    }
    struct difference fast_to_exact = compare_qualities(bench);
    printf(bench->options.json
               ? "],\"fast\":{\"psnr\":%.1f,\"least_psnr\":%.1f,\"largest\":%d,\"share\":%.3f}}\n"
               : "\nfast by exact: %.1f dB, %.1f dB at worst, largest difference %d; decoded smaller: %.3f of "
                 "the crops\n",
           fmin(fast_to_exact.psnr, 999), fmin(fast_to_exact.least, 999), fast_to_exact.largest,
           (double)fast_to_exact.differ / bench->n_files);
}

static void measure_variants(struct bench *bench)
{
    static int64_t ns[ROUNDS_MAX][N_VARIANTS];
    run_round(bench, 0, ns[0]); /* to warm up */
    for (uint32_t r = 0; r < bench->options.rounds; r++)
        run_round(bench, r, ns[r]);
    report(bench, ns);
}

static struct options parse(int argc, char **argv)
{
    static const struct option flags[] = {
        {"rounds", required_argument, NULL, 'r'},
        {"files", required_argument, NULL, 'f'},
        {"size", required_argument, NULL, 's'},
        {"only", required_argument, NULL, 'o'},
        {"threads", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    struct options options = {.rounds = 7, .files = 400, .size = 224};
    int flag, i = 0;
    bool wrong = false;
    while ((flag = getopt_long(argc, argv, "", flags, &i)) != -1) {
        if (flag == 'r')
            options.rounds = (uint32_t)bench_number(flags[i].name, optarg, 1, ROUNDS_MAX);
        else if (flag == 'f')
            options.files = (uint32_t)bench_number(flags[i].name, optarg, 1, 1e6);
        else if (flag == 's')
            options.size = (uint32_t)bench_number(flags[i].name, optarg, 1, 4096);
        else if (flag == 'o')
            options.only = optarg;
        else if (flag == 't')
            options.threads = (uint32_t)bench_number(flags[i].name, optarg, 1, THREADS_MAX);
        else if (flag == 'j')
            options.json = true;
        else
            wrong = true; /* getopt has said why */
    }
    if (wrong || optind + 1 != argc) {
        fputs(USAGE, stderr);
        exit(2);
    }
    options.folder = argv[optind];
    return options;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    bench.options = parse(argc, argv);
    open_bench(&bench);
    if (bench.options.threads > 0)
        measure_threads(&bench);
    else
        measure_variants(&bench);
    close_bench(&bench);
    return 0;
}
