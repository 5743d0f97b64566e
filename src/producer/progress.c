/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"

#define LIVE_NS   TSI_NS_PER_S
#define LOGGED_NS (10 * TSI_NS_PER_S)
#define TEXT      1024

/* ---- the texts ---- */

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *name(const cJSON *stream)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(stream, "name");

    return cJSON_IsString(item) ? item->valuestring : "-";
}

/* "train: epoch 3 of 10, 1234 samples/s, ring 87 % full, 2 consumers" */
static size_t stream_line(const cJSON *stream, char *text, size_t len)
{
    char of[32] = "";
    double capacity = number(stream, "capacity");
    double fill = capacity > 0 ? 100 * (number(stream, "head") - number(stream, "floor")) / capacity : 0;
    int consumers = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(stream, "consumers"));

    if (number(stream, "epochs") > 0)
        snprintf(of, sizeof(of), " of %.0f", number(stream, "epochs"));
    return (size_t)snprintf(text, len, "%s: epoch %.0f%s, %.0f samples/s, ring %.0f %% full, %d consumer%s",
                            name(stream), number(stream, "epoch"), of, number(stream, "samples_per_s"), fill, consumers,
                            consumers == 1 ? "" : "s");
}

void tsp_progress_line(const char *status, char *text, size_t len)
{
    cJSON *document = cJSON_Parse(status);
    const cJSON *stream;
    size_t used = 0;

    text[0] = '\0';
    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(document, "streams"))
    {
        if (used > 0)
            used += (size_t)snprintf(text + used, len - used, " | ");
        if (used < len)
            used += stream_line(stream, text + used, len - used);
        if (used >= len)
            break;
    }
    cJSON_Delete(document);
}

void tsp_progress_summary(const char *status, char *text, size_t len)
{
    cJSON *document = cJSON_Parse(status);
    const cJSON *stream;
    double made = 0, delivered = 0, bad = 0;

    text[0] = '\0';
    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(document, "streams"))
    {
        made += number(stream, "made");
        delivered += number(stream, "delivered");
        bad += number(cJSON_GetObjectItemCaseSensitive(stream, "bad"), "total");
    }
    if (cJSON_IsObject(document))
        snprintf(text, len, "%.0f samples made in %.1f s, %.0f delivered, %.0f decodes saved, %.0f bad", made,
                 number(document, "uptime_s"), delivered, delivered > made ? delivered - made : 0, bad);
    cJSON_Delete(document);
}

const char *tsp_progress_bar(uint64_t done, uint64_t all, char out[TSP_PROGRESS_BAR + 1])
{
    int full = all > 0 ? (int)((double)done / (double)all * TSP_PROGRESS_BAR) : 0;

    for (int i = 0; i < TSP_PROGRESS_BAR; i++)
        out[i] = i < full ? '#' : '.';
    out[TSP_PROGRESS_BAR] = '\0';
    return out;
}

const char *tsp_progress_time(double seconds, char *out, size_t len)
{
    unsigned long long s = seconds > 0 && seconds < 1e12 ? (unsigned long long)seconds : 0;

    snprintf(out, len, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    return out;
}

/* ---- when and where ---- */

void tsp_progress_init(struct tsp_progress *progress, bool live, uint64_t now_ns)
{
    progress->live = live;
    progress->next_ns = now_ns + (live ? LIVE_NS : LOGGED_NS);
    if (live)
        tsi_log_erase(
            TSP_PROGRESS_ERASE); /* log lines take the live line away; the next tick brings it back below them */
}

static size_t terminal_columns(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/* A line that is longer than the terminal is wide could not be redrawn in place. */
static void draw(const char *text)
{
    fprintf(stderr, TSP_PROGRESS_ERASE "%.*s", (int)terminal_columns() - 1, text);
}

bool tsp_progress_due(const struct tsp_progress *progress, uint64_t now_ns)
{
    return now_ns >= progress->next_ns;
}

void tsp_progress_show(struct tsp_progress *progress, const char *text, uint64_t now_ns)
{
    if (progress->live)
        draw(text);
    else
        tsi_log('I', "%s", text);
    progress->next_ns = now_ns + (progress->live ? LIVE_NS : LOGGED_NS);
}

void tsp_progress_clear(const struct tsp_progress *progress)
{
    if (progress->live)
        draw("");
}

void tsp_progress_tick(struct tsp_progress *progress, struct tsocket_producer *producer, uint64_t now_ns)
{
    char text[TEXT];
    char *status;

    if (!tsp_progress_due(progress, now_ns) || tsocket_producer_status(producer, &status) != TSOCKET_OK)
        return;
    tsp_progress_line(status, text, sizeof(text));
    free(status);
    tsp_progress_show(progress, text, now_ns);
}

void tsp_progress_end(struct tsp_progress *progress, struct tsocket_producer *producer)
{
    char text[TEXT];
    char *status;

    tsp_progress_clear(progress);
    if (tsocket_producer_status(producer, &status) != TSOCKET_OK)
        return;
    tsp_progress_summary(status, text, sizeof(text));
    free(status);
    tsi_log('I', "%s", text);
}
