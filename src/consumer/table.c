/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../ipc/text.h"

#define WIDTH     100 /* columns between the borders */
#define NUMBER    32  /* bytes of a formatted number */
#define TEXT      256
#define BAR_WIDTH 20

static const double largest = 9007199254740992.0; /* 2^53: what a JSON number holds exactly */

/* ---- reading ---- */

double tsc_table_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= largest))
        return 0;
    return item->valuedouble;
}

const char *tsc_table_text(const cJSON *object, const char *key, char *out, size_t len)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    snprintf(out, len, "%s", cJSON_IsString(item) && item->valuestring[0] != '\0' ? item->valuestring : "-");
    tsi_text_clean(out);
    return out;
}

static uint64_t whole(const cJSON *object, const char *key)
{
    double value = tsc_table_number(object, key);

    return value > 0 ? (uint64_t)value : 0;
}

/* ---- formatting ---- */

/* "1,234,567" */
static const char *grouped(uint64_t value, char out[NUMBER])
{
    char digits[NUMBER];
    size_t len = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value), used = 0;

    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

static const char *rate(const cJSON *object, char out[NUMBER])
{
    double value = tsc_table_number(object, "samples_per_s");

    if (value >= 100)
        return grouped((uint64_t)value, out);
    snprintf(out, NUMBER, "%.1f", value);
    return out;
}

static const char *bytes(uint64_t value, char out[NUMBER])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double amount = (double)value;
    size_t unit = 0;

    for (; amount >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        amount /= 1024;
    snprintf(out, NUMBER, unit > 0 && amount < 10 ? "%.1f %s" : "%.0f %s", amount, units[unit]);
    return out;
}

static const char *clock_time(double seconds, char out[NUMBER])
{
    uint64_t s = seconds > 0 ? (uint64_t)seconds : 0;

    snprintf(out, NUMBER, "%llu:%02u:%02u", (unsigned long long)(s / 3600), (unsigned)(s / 60 % 60),
             (unsigned)(s % 60));
    return out;
}

static const char *bar(uint64_t part, uint64_t all, char out[BAR_WIDTH + 1])
{
    uint64_t full = all > 0 ? part * BAR_WIDTH / all : 0;

    for (uint64_t i = 0; i < BAR_WIDTH; i++)
        out[i] = i < full ? '#' : '.';
    out[BAR_WIDTH] = '\0';
    return out;
}

/* ---- rows ---- */

static void rule(FILE *out, char line)
{
    putc('+', out);
    for (int i = 0; i < WIDTH + 2; i++)
        putc(line, out);
    fputs("+\n", out);
}

/* One row between the borders: cut or filled to WIDTH characters, which may have several bytes each. */
static void __attribute__((format(printf, 2, 3))) row(FILE *out, const char *format, ...)
{
    char text[2 * TEXT + 128];
    va_list arguments;
    size_t at = 0;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    tsi_text_clean(text); /* what vsnprintf has cut may end inside a character */
    fputs("| ", out);
    for (int column = 0; column < WIDTH; column++) {
        uint32_t code;
        size_t len = tsi_text_sequence(text + at, &code);
        if (text[at] == '\0')
            putc(' ', out);
        else
            fwrite(text + at, 1, len, out);
        at += text[at] == '\0' ? 0 : len;
    }
    fputs(" |\n", out);
}

/* ---- the daemon ---- */

static void stages_row(const cJSON *stages, FILE *out)
{
    char text[TEXT] = "", name[32];
    size_t used = 0;
    const cJSON *stage;

    cJSON_ArrayForEach(stage, stages)
    {
        snprintf(name, sizeof(name), "%s", stage->string != NULL ? stage->string : "-");
        used += (size_t)snprintf(text + used, sizeof(text) - used, "   %s %.3f", name,
                                 tsc_table_number(stage, "ms_per_sample"));
        if (used >= sizeof(text))
            break;
    }
    if (used > 0)
        row(out, "ms per sample%s", text);
}

static double percent(double part, double all)
{
    return all > 0 ? 100 * part / all : 0;
}

/* What tsocketd notes about its cache of pictures. */
static void cache_row(const cJSON *notes, FILE *out)
{
    char used[NUMBER], pictures[NUMBER];
    double capacity = tsc_table_number(notes, "cache_capacity_bytes"), found = tsc_table_number(notes, "cache_found");

    if (!(capacity > 0))
        return;
    row(out, "cache %.0f %% full: %s pictures, %s   %.0f %% of the samples found in it",
        percent(tsc_table_number(notes, "cache_used_bytes"), capacity),
        grouped(whole(notes, "cache_pictures"), pictures), bytes(whole(notes, "cache_used_bytes"), used),
        percent(found, found + tsc_table_number(notes, "cache_missed")));
}

/* What any other program that makes samples notes of itself. */
static void notes_row(const cJSON *notes, FILE *out)
{
    char text[TEXT] = "", name[32];
    size_t used = 0;
    const cJSON *note;

    cJSON_ArrayForEach(note, notes)
    {
        snprintf(name, sizeof(name), "%s", note->string != NULL ? note->string : "-");
        if (strncmp(name, "cache_", 6) == 0)
            continue;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "   %s %.6g", name,
                                 cJSON_IsNumber(note) ? note->valuedouble : 0);
        if (used >= sizeof(text))
            break;
    }
    if (used > 0)
        row(out, "notes%s", text);
}

static void daemon_rows(const cJSON *status, FILE *out)
{
    char name[TEXT], version[32], state[32], up[NUMBER];
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(status, "workers");
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(status, "notes");

    row(out, "%s   pid %llu   %s   up %s   tsocketd %s", tsc_table_text(status, "daemon", name, sizeof(name)),
        (unsigned long long)whole(status, "pid"), tsc_table_text(status, "state", state, sizeof(state)),
        clock_time(tsc_table_number(status, "uptime_s"), up),
        tsc_table_text(status, "version", version, sizeof(version)));
    row(out, "decode threads busy %.0f %%, waiting for room %.0f %%", 100 * tsc_table_number(workers, "busy"),
        100 * tsc_table_number(workers, "waiting_for_room"));
    stages_row(cJSON_GetObjectItemCaseSensitive(workers, "stages"), out);
    cache_row(notes, out);
    notes_row(notes, out);
}

/* ---- a stream ---- */

static void epoch_row(const cJSON *stream, FILE *out)
{
    char epochs[NUMBER] = "", made[NUMBER], length[NUMBER], speed[NUMBER], head[NUMBER];
    uint64_t n = whole(stream, "epochs");

    if (n > 0)
        snprintf(epochs, sizeof(epochs), " of %llu", (unsigned long long)n);
    row(out, "  epoch %llu%s   %s samples, %s good   %s samples/s   head at %s",
        (unsigned long long)whole(stream, "epoch"), epochs, grouped(whole(stream, "epoch_samples"), made),
        grouped(whole(stream, "epoch_length"), length), rate(stream, speed), grouped(whole(stream, "head"), head));
}

/* "   in cuda-vmm (mps), host": where the ring is; nothing where that is host memory alone. */
static const char *places(const cJSON *stream, char out[TEXT])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(stream, "places"), *place;
    bool plain = true;
    size_t used = 0;

    out[0] = '\0';
    cJSON_ArrayForEach(place, list)
    {
        char kind[16], mode[16];
        bool shared = tsc_table_text(place, "mode", mode, sizeof(mode))[0] == 'm';

        tsc_table_text(place, "kind", kind, sizeof(kind));
        plain = plain && strcmp(kind, "host") == 0;
        used += (size_t)snprintf(out + used, TEXT - used, shared ? "%s%s (%s)" : "%s%s", used > 0 ? ", " : "   in ",
                                 kind, mode);
        if (used >= TEXT)
            break; /* somebody made that up */
    }
    if (plain)
        out[0] = '\0';
    return out;
}

static void ring_row(const cJSON *stream, FILE *out)
{
    char fill[BAR_WIDTH + 1], ready[NUMBER], capacity[NUMBER], memory[NUMBER], where[TEXT];
    uint64_t head = whole(stream, "head"), low = whole(stream, "floor");
    uint64_t n = head > low ? head - low : 0;

    row(out, "  ring [%s] %s of %s   %s   largest batch %llu%s", bar(n, whole(stream, "capacity"), fill),
        grouped(n, ready), grouped(whole(stream, "capacity"), capacity), bytes(whole(stream, "ring_bytes"), memory),
        (unsigned long long)whole(stream, "max_batch"), places(stream, where));
}

static void side_row(const cJSON *stream, FILE *out)
{
    char memory[NUMBER], again[NUMBER];

    if (whole(stream, "side_rings") > 0)
        row(out, "  side rings: %llu of %llu in use, %s each   made again for them %s",
            (unsigned long long)whole(stream, "side_rings_used"), (unsigned long long)whole(stream, "side_rings"),
            bytes(whole(stream, "side_ring_bytes"), memory), grouped(whole(stream, "made_again"), again));
}

static void counts_row(const cJSON *stream, FILE *out)
{
    char made_text[NUMBER], delivered_text[NUMBER], saved_text[NUMBER], holder[TEXT];
    uint64_t made = whole(stream, "made"), delivered = whole(stream, "delivered");
    uint64_t all = made + whole(stream, "made_again");

    row(out, "  made %s   delivered %s   decodes saved %s   held back by %s", grouped(made, made_text),
        grouped(delivered, delivered_text), grouped(delivered > all ? delivered - all : 0, saved_text),
        tsc_table_text(stream, "held_back_by", holder, sizeof(holder)));
}

static void bad_row(const cJSON *stream, FILE *out)
{
    char text[TEXT] = "", total[NUMBER];
    const cJSON *bad = cJSON_GetObjectItemCaseSensitive(stream, "bad");
    const cJSON *kinds = cJSON_GetObjectItemCaseSensitive(bad, "kinds"), *kind;
    size_t used = 0;

    if (whole(bad, "total") == 0)
        return;
    cJSON_ArrayForEach(kind, kinds)
    {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "   %.32s %.0f",
                             kind->string != NULL ? kind->string : "-", cJSON_IsNumber(kind) ? kind->valuedouble : 0);
        if (used >= sizeof(text))
            break;
    }
    row(out, "  bad samples %s%s", grouped(whole(bad, "total"), total), text);
}

/* ---- its consumers ---- */

static void shard_text(const cJSON *consumer, char out[NUMBER])
{
    const cJSON *shard = cJSON_GetObjectItemCaseSensitive(consumer, "shard");
    const cJSON *rank = cJSON_GetArrayItem(shard, 0), *world = cJSON_GetArrayItem(shard, 1);

    if (cJSON_IsNumber(rank) && cJSON_IsNumber(world) && world->valueint > 1)
        snprintf(out, NUMBER, "%d/%d", rank->valueint, world->valueint);
    else
        snprintf(out, NUMBER, "-");
}

/* Who reads a ring of its own says so. */
static const char *consumer_state(const cJSON *consumer, char *text, size_t len)
{
    if (strcmp(tsc_table_text(consumer, "ring", text, len), "side") == 0)
        return "on side";
    return tsc_table_text(consumer, "state", text, len);
}

static void parked_row(const cJSON *consumer, FILE *out)
{
    char why[TEXT];

    if (strcmp(tsc_table_text(consumer, "state", why, sizeof(why)), "parked") == 0)
        row(out, "    parked: %s, for %.1f s; parked %llu times so far",
            tsc_table_text(consumer, "parked_for", why, sizeof(why)), tsc_table_number(consumer, "parked_s"),
            (unsigned long long)whole(consumer, "parked"));
}

static void consumer_row(const cJSON *consumer, FILE *out)
{
    char name[19], state[9], shard[NUMBER], lag[NUMBER], speed[NUMBER], sample[NUMBER];

    shard_text(consumer, shard);
    row(out, "  %-18s %8llu %6llu %5s %-8s %5llu %10s %7s %7s %6.1fs %6.1fs",
        tsc_table_text(consumer, "name", name, sizeof(name)), (unsigned long long)whole(consumer, "pid"),
        (unsigned long long)whole(consumer, "batch"), shard, consumer_state(consumer, state, sizeof(state)),
        (unsigned long long)whole(consumer, "epoch"), grouped(whole(consumer, "first"), sample),
        grouped(whole(consumer, "lag"), lag), rate(consumer, speed), tsc_table_number(consumer, "waited_s"),
        tsc_table_number(consumer, "slack_s"));
    parked_row(consumer, out);
}

static void consumer_heading(FILE *out)
{
    row(out, "  %-18s %8s %6s %4s %5s %-8s %6s %10s %7s %7s %7s %7s", "CONSUMER", "PID", "BATCH", "HOLD", "SHARD",
        "STATE", "EPOCH", "SAMPLE", "LAG", "PER S", "WAITED", "SLACK");
}

static void stream_rows(const cJSON *stream, FILE *out)
{
    char name[TEXT], state[32], source[TEXT];
    const cJSON *consumers = cJSON_GetObjectItemCaseSensitive(stream, "consumers"), *consumer;

    row(out, "stream %s   %s   %s", tsc_table_text(stream, "name", name, sizeof(name)),
        tsc_table_text(stream, "state", state, sizeof(state)),
        tsc_table_text(stream, "source", source, sizeof(source)));
    epoch_row(stream, out);
    ring_row(stream, out);
    side_row(stream, out);
    counts_row(stream, out);
    bad_row(stream, out);
    if (cJSON_GetArraySize(consumers) == 0)
        row(out, "  no consumer");
    else
        consumer_heading(out);
    cJSON_ArrayForEach(consumer, consumers)
    {
        consumer_row(consumer, out);
    }
}

void tsc_table_print(const cJSON *status, FILE *out)
{
    const cJSON *stream;

    rule(out, '-');
    daemon_rows(status, out);
    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(status, "streams"))
    {
        rule(out, '=');
        stream_rows(stream, out);
    }
    rule(out, '-');
}
