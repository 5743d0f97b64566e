/* SPDX-License-Identifier: Apache-2.0 */
#include "summary.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Sums of one row: 65,535 pixels, the most that a JPEG has, of 255 squared fit 32 bits, and short loops of those are
 * fast; wider rows are cut. */
static void add_pixels(const uint8_t *rgb, uint32_t n, uint64_t sums[3], uint64_t squares[3])
{
    uint32_t sum[3] = {0}, square[3] = {0};
    for (uint32_t x = 0; x < n; x++, rgb += 3)
        for (int c = 0; c < 3; c++) {
            uint32_t value = rgb[c];
            sum[c] += value;
            square[c] += value * value;
        }
    for (int c = 0; c < 3; c++) {
        sums[c] += sum[c];
        squares[c] += square[c];
    }
}

void tsp_measure_pixels(struct tsp_measure *measure, const struct tsp_pixels *pixels)
{
    enum {
        AT_ONCE = 65535
    };
    uint64_t sums[3] = {0}, squares[3] = {0};
    double n = (double)pixels->width * pixels->height;
    for (uint32_t y = 0; y < pixels->height; y++)
        for (uint32_t x = 0; x < pixels->width; x += AT_ONCE)
            add_pixels(pixels->data + y * pixels->stride + (size_t)x * 3,
                       pixels->width - x < AT_ONCE ? pixels->width - x : AT_ONCE, sums, squares);
    for (int c = 0; c < 3; c++) {
        measure->mean[c] = (double)sums[c] / (n * 255);
        measure->square[c] = (double)squares[c] / (n * 255 * 255);
    }
}

/* The most frequent stays in front. */
static void count(struct tsp_tally tallies[TSP_TALLIES_MAX], const char *word)
{
    size_t i = 0;
    while (i < TSP_TALLIES_MAX && tallies[i].word && strcmp(tallies[i].word, word) != 0)
        i++;
    assert(i < TSP_TALLIES_MAX);
    struct tsp_tally more = {word, tallies[i].count + 1};
    for (; i > 0 && tallies[i - 1].count < more.count; i--)
        tallies[i] = tallies[i - 1];
    tallies[i] = more;
}

static void widen(struct tsp_span *span, uint32_t value, bool first)
{
    span->least = first || value < span->least ? value : span->least;
    span->most = value > span->most ? value : span->most;
    span->sum += value;
}

void tsp_summary_add(struct tsp_summary *summary, const struct tsp_measure *measure)
{
    bool first = summary->pictures == 0;
    summary->pictures++;
    summary->pixels += (uint64_t)measure->width * measure->height;
    summary->turned += measure->storage.turned;
    count(summary->formats, measure->storage.format);
    count(summary->colours, measure->storage.colours);
    widen(&summary->width, measure->width, first);
    widen(&summary->height, measure->height, first);
    for (int c = 0; c < 3; c++) {
        summary->mean[c] += measure->mean[c];
        summary->square[c] += measure->square[c];
    }
}

void tsp_summary_channels(const struct tsp_summary *summary, double mean_out[3], double std_out[3])
{
    double n = summary->pictures > 0 ? (double)summary->pictures : 1;
    for (int c = 0; c < 3; c++) {
        mean_out[c] = summary->mean[c] / n;
        std_out[c] = sqrt(fmax(0, summary->square[c] / n - mean_out[c] * mean_out[c]));
    }
}

static double mean_of(const struct tsp_summary *summary, const struct tsp_span *span)
{
    return summary->pictures > 0 ? (double)span->sum / (double)summary->pictures : 0;
}

/* ---- for people ---- */

static void print_tallies(const char *what, const struct tsp_tally tallies[TSP_TALLIES_MAX], FILE *out)
{
    fprintf(out, "  %-10s", what);
    for (size_t i = 0; i < TSP_TALLIES_MAX && tallies[i].word; i++)
        fprintf(out, "%s%s %" PRIu64, i > 0 ? ", " : "", tallies[i].word, tallies[i].count);
    putc('\n', out);
}

void tsp_summary_print(const struct tsp_summary *summary, FILE *out)
{
    double mean[3], std[3];
    if (summary->pictures == 0)
        return;
    tsp_summary_channels(summary, mean, std);
    print_tallies("formats", summary->formats, out);
    print_tallies("colours", summary->colours, out);
    fprintf(out, "  %-10s%" PRIu32 " to %" PRIu32 ", %.1f on average\n", "width", summary->width.least,
            summary->width.most, mean_of(summary, &summary->width));
    fprintf(out, "  %-10s%" PRIu32 " to %" PRIu32 ", %.1f on average\n", "height", summary->height.least,
            summary->height.most, mean_of(summary, &summary->height));
    fprintf(out, "  %-10s%.1f megapixels; %" PRIu64 " pictures are turned by their EXIF orientation\n", "size",
            (double)summary->pixels / 1e6, summary->turned);
    fprintf(out, "  %-10s--mean %.4f,%.4f,%.4f --std %.4f,%.4f,%.4f\n", "channels", mean[0], mean[1], mean[2], std[0],
            std[1], std[2]);
}

/* ---- for programs ---- */

static void print_json_tallies(const char *what, const struct tsp_tally tallies[TSP_TALLIES_MAX], FILE *out)
{
    fprintf(out, ",\"%s\":{", what);
    for (size_t i = 0; i < TSP_TALLIES_MAX && tallies[i].word; i++)
        fprintf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", tallies[i].word, tallies[i].count);
    putc('}', out);
}

static void print_json_span(const struct tsp_summary *summary, const char *what, const struct tsp_span *span, FILE *out)
{
    fprintf(out, ",\"%s\":{\"least\":%" PRIu32 ",\"most\":%" PRIu32 ",\"mean\":%.2f}", what, span->least, span->most,
            mean_of(summary, span));
}

void tsp_summary_print_json(const struct tsp_summary *summary, FILE *out)
{
    double mean[3], std[3];
    tsp_summary_channels(summary, mean, std);
    print_json_tallies("formats", summary->formats, out);
    print_json_tallies("colours", summary->colours, out);
    print_json_span(summary, "width", &summary->width, out);
    print_json_span(summary, "height", &summary->height, out);
    fprintf(out, ",\"pixels\":%" PRIu64 ",\"turned\":%" PRIu64, summary->pixels, summary->turned);
    fprintf(out, ",\"mean\":[%.6f,%.6f,%.6f],\"std\":[%.6f,%.6f,%.6f]", mean[0], mean[1], mean[2], std[0], std[1],
            std[2]);
}
