/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../ipc/error.h"
#include "../ipc/log.h"
#include "../ipc/record.h"
#include "../ipc/step.h"

enum {
    RECORDS_MAX = 1 << 15,  /* that memory holds while nothing can be written: 1.25 MiB */
    RECORDS_MANY = 1 << 10, /* are written out without waiting for a flush */
    CHUNK = 256,            /* records in one write */
    LOOK_BACK = 64,         /* records in which an earlier release of the same consumer is looked for */
    PATH_TEXT_MAX = 512,    /* of a path, in a message */
    HEAD = 0,               /* the kind of the first record of a new file, which is its head */
};

static_assert((int)TSP_LEDGER_LEFT == (int)TSI_RECORD_HOW_LEFT && (int)TSP_LEDGER_DIED == (int)TSI_RECORD_HOW_DIED &&
                  (int)TSP_LEDGER_EVICTED == (int)TSI_RECORD_HOW_EVICTED,
              "the file has the numbers of the calls");

struct tsp_ledger {
    int fd;
    char path[PATH_TEXT_MAX];   /* as messages show it */
    struct tsi_record *records; /* not yet in the file, or not wholly */
    size_t n;
    size_t written; /* bytes of them that are in the file */
    uint32_t check; /* of the last one that is in the file wholly, which the next one goes on from */
    uint64_t lost;  /* records that found no place, and are not confessed yet */
    bool failing;   /* the last attempt failed, and has been logged */
    bool news;      /* something besides a time was recorded since the last flush */
};

/* ---- writing ---- */

static void say_failing(struct tsp_ledger *ledger)
{
    if (!ledger->failing)
        tsi_log('W', "ledger %s cannot be written: %s; the run goes on, up to %d records are kept until it can be",
                ledger->path, strerror(errno), RECORDS_MAX);
    ledger->failing = true;
}

static void say_working(struct tsp_ledger *ledger)
{
    if (ledger->failing)
        tsi_log('W', "ledger %s can be written again; %" PRIu64 " records are lost", ledger->path, ledger->lost);
    ledger->failing = false;
}

/* Records from number `first` on, as they are in the file. Returns how many bytes that makes. */
static size_t pack_chunk(const struct tsp_ledger *ledger, size_t first, unsigned char chunk[])
{
    size_t n = ledger->n - first < CHUNK ? ledger->n - first : CHUNK;
    uint32_t check = ledger->check;

    for (size_t i = 0; i < n; i++, chunk += TSI_RECORD_BYTES) {
        if (ledger->records[first + i].kind == HEAD)
            tsi_record_head(chunk);
        else
            tsi_record_pack(&ledger->records[first + i], check, chunk);
        check = tsi_record_check(chunk);
    }
    return n * TSI_RECORD_BYTES;
}

/* What is in memory goes to the file as far as it takes it. A record may go in two parts. */
static void write_out(struct tsp_ledger *ledger)
{
    unsigned char chunk[CHUNK * TSI_RECORD_BYTES];

    while (ledger->written < ledger->n * TSI_RECORD_BYTES) {
        size_t done = ledger->written % TSI_RECORD_BYTES;
        size_t len = pack_chunk(ledger, ledger->written / TSI_RECORD_BYTES, chunk);
        ssize_t n = write(ledger->fd, chunk + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            say_failing(ledger);
            return;
        }
        ledger->written += (size_t)n;
        done += (size_t)n;
        if (done >= TSI_RECORD_BYTES)
            ledger->check = tsi_record_check(chunk + (done / TSI_RECORD_BYTES - 1) * TSI_RECORD_BYTES);
    }
    ledger->n = ledger->written = 0;
    say_working(ledger);
}

static void append(struct tsp_ledger *ledger, const struct tsi_record *record)
{
    if (ledger->n == RECORDS_MAX || ledger->lost > 0) {
        ledger->lost++;
        return;
    }
    ledger->records[ledger->n++] = *record;
    if (ledger->n >= RECORDS_MANY && !ledger->failing)
        write_out(ledger);
}

static void record(struct tsp_ledger *ledger, const struct tsi_record *what)
{
    if (ledger == NULL)
        return;
    ledger->news = true;
    append(ledger, what);
    if (what->kind != TSI_RECORD_RELEASED && !ledger->failing)
        write_out(ledger);
}

static uint64_t real_time_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Records that found no place are confessed once there is some, before the next one. */
static void confess(struct tsp_ledger *ledger)
{
    const struct tsi_record record = {.kind = TSI_RECORD_LOST, .a = ledger->lost};

    if (ledger->lost == 0 || ledger->n > 0)
        return;
    ledger->lost = 0;
    append(ledger, &record);
}

void tsp_ledger_flush(struct tsp_ledger *ledger)
{
    if (ledger == NULL)
        return;
    if (ledger->news) {
        append(ledger, &(struct tsi_record){.kind = TSI_RECORD_TIME, .a = real_time_ns()});
        ledger->news = false;
    }
    write_out(ledger);
    confess(ledger);
    write_out(ledger);
    TSI_STEP(LEDGER_WRITTEN);
}

/* ---- life ---- */

static int open_file(struct tsp_ledger *ledger, const char *path)
{
    struct stat status;

    ledger->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (ledger->fd < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "ledger %s", ledger->path);
    if (fstat(ledger->fd, &status) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "ledger %s", ledger->path);
    if (!S_ISREG(status.st_mode))
        return tsi_fail(TSOCKET_EINVAL, "ledger %s is not a regular file", ledger->path);
    if (flock(ledger->fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? tsi_fail(TSOCKET_EBUSY, "ledger %s is being written by another process; give each daemon its own",
                              ledger->path)
                   : tsi_fail_errno(TSOCKET_ESYSTEM, "ledger %s: flock", ledger->path);
    return TSOCKET_OK;
}

/* Whether the record that ends at `end` goes on from what stands before it. Notes its check. */
static bool is_good(struct tsp_ledger *ledger, off_t end)
{
    unsigned char bytes[2 * TSI_RECORD_BYTES], *last = bytes + TSI_RECORD_BYTES;
    struct tsi_record ignored;

    if (pread(ledger->fd, bytes, sizeof(bytes), end - (off_t)sizeof(bytes)) != (ssize_t)sizeof(bytes))
        return false;
    ledger->check = tsi_record_check(last);
    return tsi_record_unpack(last, tsi_record_check(bytes), &ignored) == TSOCKET_OK;
}

/* Cuts off what a crash has left behind the last good record. */
static int mend(struct tsp_ledger *ledger, const unsigned char *head, off_t size)
{
    off_t good = size / TSI_RECORD_BYTES * TSI_RECORD_BYTES;

    while (good > TSI_RECORD_BYTES && !is_good(ledger, good))
        good -= TSI_RECORD_BYTES;
    if (good == TSI_RECORD_BYTES)
        ledger->check = tsi_record_check(head);
    if (good == size)
        return TSOCKET_OK;
    if (ftruncate(ledger->fd, good) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "ledger %s: cannot cut off a torn record", ledger->path);
    tsi_log('W', "ledger %s: a crash has left %lld bytes of a torn record at its end; they are cut off", ledger->path,
            (long long)(size - good));
    return TSOCKET_OK;
}

/* A new file gets its head; one that is there must have it. A head that a crash tore is like none. */
static int check_file(struct tsp_ledger *ledger)
{
    unsigned char head[TSI_RECORD_BYTES], ours[TSI_RECORD_BYTES];
    off_t size = lseek(ledger->fd, 0, SEEK_END);
    ssize_t n = pread(ledger->fd, head, sizeof(head), 0);

    tsi_record_head(ours);
    if (size < 0 || n < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "ledger %s: cannot be read", ledger->path);
    if (n < (ssize_t)sizeof(head) && memcmp(head, ours, (size_t)n) == 0) {
        if (ftruncate(ledger->fd, 0) != 0)
            return tsi_fail_errno(TSOCKET_ESYSTEM, "ledger %s", ledger->path);
        ledger->records[ledger->n++] = (struct tsi_record){.kind = HEAD};
        return TSOCKET_OK;
    }
    switch (n < (ssize_t)sizeof(head) ? TSOCKET_EINVAL : tsi_record_check_head(head)) {
    case TSOCKET_OK:
        return mend(ledger, head, size);
    case TSOCKET_EPROTOCOL:
        return tsi_fail(TSOCKET_EINVAL, "ledger %s is of another version of tsocket; give another file", ledger->path);
    default:
        return tsi_fail(TSOCKET_EINVAL, "%s is there and is not a ledger; it is left alone, give another file",
                        ledger->path);
    }
}

static void destroy(struct tsp_ledger *ledger)
{
    if (ledger->fd >= 0)
        close(ledger->fd);
    free(ledger->records);
    free(ledger);
}

int tsp_ledger_open(const char *path, struct tsp_ledger **ledger_out)
{
    struct tsp_ledger *ledger = calloc(1, sizeof(*ledger));
    int rc;

    if (ledger == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a ledger");
    ledger->fd = -1;
    tsi_log_quote(path, ledger->path, sizeof(ledger->path));
    ledger->records = malloc(RECORDS_MAX * sizeof(*ledger->records));
    rc = ledger->records != NULL ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "no memory for a ledger");
    if (rc == TSOCKET_OK)
        rc = open_file(ledger, path);
    if (rc == TSOCKET_OK)
        rc = check_file(ledger);
    if (rc != TSOCKET_OK) {
        destroy(ledger);
        return rc;
    }
    append(ledger, &(struct tsi_record){.kind = TSI_RECORD_RUN, .a = real_time_ns(), .b = (uint64_t)getpid()});
    write_out(ledger);
    *ledger_out = ledger;
    return TSOCKET_OK;
}

void tsp_ledger_close(struct tsp_ledger *ledger)
{
    if (ledger == NULL)
        return;
    tsp_ledger_flush(ledger);
    append(ledger, &(struct tsi_record){.kind = TSI_RECORD_END});
    write_out(ledger);
    if (ledger->n > 0 || ledger->lost > 0)
        tsi_log('E', "ledger %s could not be written to its end: the last %" PRIu64 " records are missing",
                ledger->path, ledger->n - ledger->written / TSI_RECORD_BYTES + ledger->lost);
    else if (fsync(ledger->fd) != 0)
        tsi_log('E', "ledger %s: fsync: %s", ledger->path, strerror(errno));
    destroy(ledger);
}

/* ---- records ---- */

static void record_text(struct tsp_ledger *ledger, enum tsi_record_of of, const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;

    for (size_t at = 0; at < len; at += TSI_RECORD_PIECE) {
        size_t n = len - at < TSI_RECORD_PIECE ? len - at : TSI_RECORD_PIECE;
        struct tsi_record piece = {.kind = TSI_RECORD_TEXT, .detail = (uint8_t)of, .stream = (uint16_t)n};

        memcpy(piece.piece, text + at, n);
        record(ledger, &piece);
    }
}

void tsp_ledger_stream(struct tsp_ledger *ledger, uint32_t number, const struct tsp_ledger_stream *stream)
{
    record_text(ledger, TSI_RECORD_OF_NAME, stream->name);
    record_text(ledger, TSI_RECORD_OF_DATASET, stream->dataset_id);
    record_text(ledger, TSI_RECORD_OF_RECIPE, stream->recipe_id);
    record(ledger, &(struct tsi_record){.kind = TSI_RECORD_STREAM,
                                        .detail = stream->resident ? TSI_RECORD_RESIDENT : 0,
                                        .stream = (uint16_t)number,
                                        .a = stream->seed,
                                        .b = stream->epoch_samples});
}

void tsp_ledger_epoch(struct tsp_ledger *ledger, uint32_t stream, uint64_t epoch, uint64_t len)
{
    record(ledger, &(struct tsi_record){.kind = TSI_RECORD_EPOCH, .stream = (uint16_t)stream, .a = epoch, .b = len});
}

void tsp_ledger_attach(struct tsp_ledger *ledger, uint64_t consumer, const struct tsp_ledger_consumer *about)
{
    uint32_t detail = (uint32_t)about->last | (uint32_t)about->join << TSI_RECORD_JOIN_SHIFT |
                      (about->resumed ? TSI_RECORD_RESUMED : 0);

    record_text(ledger, TSI_RECORD_OF_NAME, about->name);
    record(ledger, &(struct tsi_record){.kind = TSI_RECORD_ATTACH,
                                        .detail = (uint8_t)detail,
                                        .stream = (uint16_t)about->stream,
                                        .consumer = consumer,
                                        .a = (uint32_t)about->pid | (uint64_t)about->batch << 32,
                                        .b = about->rank | (uint64_t)about->world << 32});
}

void tsp_ledger_place(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t index, uint64_t until)
{
    record(ledger,
           &(struct tsi_record){.kind = TSI_RECORD_PLACE, .consumer = consumer, .a = epoch, .b = index, .c = until});
}

/* The last thing that is still in memory about this consumer, if it is a release in the same epoch; or NULL. */
static struct tsi_record *last_release(const struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch)
{
    size_t first = (ledger->written + TSI_RECORD_BYTES - 1) / TSI_RECORD_BYTES;

    for (size_t i = ledger->n; i > first && ledger->n - i < LOOK_BACK; i--) {
        struct tsi_record *record = &ledger->records[i - 1];

        if (record->kind >= TSI_RECORD_ATTACH && record->consumer == consumer)
            return record->kind == TSI_RECORD_RELEASED && record->a == epoch ? record : NULL;
    }
    return NULL;
}

void tsp_ledger_released(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t index)
{
    struct tsi_record *before = ledger != NULL ? last_release(ledger, consumer, epoch) : NULL;

    if (before != NULL)
        before->b = index;
    else
        record(ledger, &(struct tsi_record){.kind = TSI_RECORD_RELEASED, .consumer = consumer, .a = epoch, .b = index});
}

void tsp_ledger_skipped(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t from, uint64_t to)
{
    record(ledger,
           &(struct tsi_record){.kind = TSI_RECORD_SKIPPED, .consumer = consumer, .a = epoch, .b = from, .c = to});
}

void tsp_ledger_owed(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t from, uint64_t to)
{
    record(ledger, &(struct tsi_record){.kind = TSI_RECORD_OWED, .consumer = consumer, .a = epoch, .b = from, .c = to});
}

void tsp_ledger_again(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t from, uint64_t to)
{
    record(ledger,
           &(struct tsi_record){.kind = TSI_RECORD_AGAIN, .consumer = consumer, .a = epoch, .b = from, .c = to});
}

void tsp_ledger_parked(struct tsp_ledger *ledger, uint64_t consumer, enum tsp_ledger_why why)
{
    record(ledger, &(struct tsi_record){.kind = TSI_RECORD_PARKED, .detail = (uint8_t)why, .consumer = consumer});
}

void tsp_ledger_left(struct tsp_ledger *ledger, uint64_t consumer, enum tsp_ledger_how how)
{
    record(ledger, &(struct tsi_record){.kind = TSI_RECORD_LEFT, .detail = (uint8_t)how, .consumer = consumer});
}
