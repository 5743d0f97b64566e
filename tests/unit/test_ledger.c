/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "consumer/audit.h"
#include "ipc/record.h"
#include "producer/ledger.h"

enum {
    RECORDS_MAX = 70000,
};

static char folder[256];
static char path[512];
static struct tsi_record records[RECORDS_MAX];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/tsocket-ledger-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/ledger", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* How many records the file has; all of them must be whole, and go on from each other. */
static size_t read_records(void)
{
    unsigned char bytes[TSI_RECORD_BYTES];
    FILE *file = fopen(path, "rb");
    uint32_t check;
    size_t n = 0;

    assert_non_null(file);
    assert_int_equal(fread(bytes, sizeof(bytes), 1, file), 1);
    assert_int_equal(tsi_record_check_head(bytes), TSOCKET_OK);
    check = tsi_record_check(bytes);
    while (fread(bytes, 1, sizeof(bytes), file) == sizeof(bytes)) {
        assert_true(n < RECORDS_MAX);
        assert_int_equal(tsi_record_unpack(bytes, check, &records[n++]), TSOCKET_OK);
        check = tsi_record_check(bytes);
    }
    fclose(file);
    return n;
}

static size_t count(size_t n, enum tsi_record_kind kind)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        found += records[i].kind == kind;
    return found;
}

static struct tsp_ledger *open_ledger(void)
{
    struct tsp_ledger *ledger = NULL;

    assert_int_equal(tsp_ledger_open(path, &ledger), TSOCKET_OK);
    return ledger;
}

static void append_bytes(const void *bytes, size_t n)
{
    FILE *file = fopen(path, "ab");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void what_is_recorded_is_in_the_file(void **state)
{
    const char *name = "a name that is longer than one record can hold it";
    const struct tsp_ledger_stream stream = {.name = "train", .dataset_id = "0123456789abcdef", .seed = 7};
    const struct tsp_ledger_consumer consumer = {
        .name = name, .pid = 4711, .batch = 32, .rank = 1, .world = 4, .last = TSOCKET_LAST_DROP, .resumed = true};
    struct tsp_ledger *ledger = open_ledger();
    size_t n;

    (void)state;
    tsp_ledger_stream(ledger, 3, &stream);
    tsp_ledger_attach(ledger, 99, &consumer);
    tsp_ledger_place(ledger, 99, 2, 64, UINT64_MAX);
    tsp_ledger_left(ledger, 99, TSP_LEDGER_DIED);
    tsp_ledger_close(ledger);
    n = read_records();
    assert_int_equal(n, 11);
    assert_int_equal(records[0].kind, TSI_RECORD_RUN);
    assert_int_equal(records[0].b, getpid());
    assert_true(records[1].kind == TSI_RECORD_TEXT && records[1].stream == 5 &&
                memcmp(records[1].piece, "train", 5) == 0);
    assert_true(records[2].kind == TSI_RECORD_TEXT && records[2].detail == TSI_RECORD_OF_DATASET);
    assert_true(records[3].kind == TSI_RECORD_STREAM && records[3].stream == 3 && records[3].a == 7);
    assert_memory_equal(records[4].piece, name, TSI_RECORD_PIECE);
    assert_int_equal(records[5].stream, strlen(name) - TSI_RECORD_PIECE);
    assert_int_equal(records[6].kind, TSI_RECORD_ATTACH);
    assert_int_equal(records[6].detail, TSOCKET_LAST_DROP | TSI_RECORD_RESUMED);
    assert_true(records[6].a == (4711 | UINT64_C(32) << 32) && records[6].b == (1 | UINT64_C(4) << 32));
    assert_true(records[7].kind == TSI_RECORD_PLACE && records[7].c == UINT64_MAX);
    assert_true(records[8].kind == TSI_RECORD_LEFT && records[8].detail == TSI_RECORD_HOW_DIED);
    assert_int_equal(records[9].kind, TSI_RECORD_TIME);
    assert_int_equal(records[10].kind, TSI_RECORD_END);
}

static void releases_between_two_flushes_become_one_record(void **state)
{
    struct tsp_ledger *ledger = open_ledger();
    size_t n;

    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        tsp_ledger_released(ledger, 1, 0, i);
        tsp_ledger_released(ledger, 2, 0, i);
    }
    tsp_ledger_released(ledger, 1, 1, 5); /* another epoch is another record */
    tsp_ledger_flush(ledger);
    tsp_ledger_released(ledger, 2, 0, 101);
    tsp_ledger_close(ledger);
    n = read_records();
    assert_int_equal(count(n, TSI_RECORD_RELEASED), 4);
    assert_true(records[1].consumer == 1 && records[1].b == 100);
    assert_true(records[2].consumer == 2 && records[2].b == 100);
}

static void nothing_is_recorded_without_a_ledger(void **state)
{
    (void)state;
    tsp_ledger_stream(NULL, 0, &(struct tsp_ledger_stream){.name = "x"});
    tsp_ledger_attach(NULL, 0, &(struct tsp_ledger_consumer){.name = "x"});
    tsp_ledger_epoch(NULL, 0, 0, 0);
    tsp_ledger_place(NULL, 0, 0, 0, 0);
    tsp_ledger_released(NULL, 0, 0, 0);
    tsp_ledger_skipped(NULL, 0, 0, 0, 0);
    tsp_ledger_owed(NULL, 0, 0, 0, 0);
    tsp_ledger_again(NULL, 0, 0, 0, 0);
    tsp_ledger_parked(NULL, 0, TSP_LEDGER_HELD);
    tsp_ledger_left(NULL, 0, TSP_LEDGER_LEFT);
    tsp_ledger_flush(NULL);
    tsp_ledger_close(NULL);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_second_run_is_appended(void **state)
{
    (void)state;
    tsp_ledger_close(open_ledger());
    tsp_ledger_close(open_ledger());
    assert_int_equal(count(read_records(), TSI_RECORD_RUN), 2);
}

static unsigned warnings;

static void count_warnings(void *context, char level, const char *message)
{
    (void)context, (void)message;
    warnings += level == 'W' || level == 'E';
}

static void a_torn_record_is_cut_off(void **state)
{
    static const unsigned char torn[2 * TSI_RECORD_BYTES + 7] = {TSI_RECORD_LEFT}; /* one block of zeros and a bit */
    size_t n;

    (void)state;
    warnings = 0;
    tsocket_set_log_sink(count_warnings, NULL);
    tsp_ledger_close(open_ledger());
    for (size_t cut = 1; cut <= sizeof(torn); cut++) {
        append_bytes(torn, cut);
        tsp_ledger_close(open_ledger());
    }
    n = read_records();
    assert_int_equal(count(n, TSI_RECORD_RUN), 1 + sizeof(torn));
    assert_int_equal(count(n, TSI_RECORD_END), 1 + sizeof(torn));
    assert_int_equal(warnings, sizeof(torn));
    tsocket_set_log_sink(NULL, NULL);
}

static void a_torn_head_is_like_none(void **state)
{
    unsigned char head[TSI_RECORD_BYTES];

    (void)state;
    tsi_record_head(head);
    append_bytes(head, 11);
    tsp_ledger_close(open_ledger());
    assert_int_equal(count(read_records(), TSI_RECORD_RUN), 1);
}

static void refuse(int error, const char *says)
{
    struct tsp_ledger *ledger = NULL;

    assert_int_equal(tsp_ledger_open(path, &ledger), error);
    assert_null(ledger);
    assert_non_null(strstr(tsocket_last_error(), says));
}

static void a_file_of_another_kind_is_left_alone(void **state)
{
    static const char text[] = "the only copy of somebody's thesis, which has more than forty bytes";
    unsigned char head[TSI_RECORD_BYTES];
    struct stat status;

    (void)state;
    append_bytes(text, sizeof(text));
    refuse(TSOCKET_EINVAL, "is not a ledger");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, sizeof(text));
    assert_int_equal(truncate(path, 9), 0); /* shorter than a head, and not the begin of one */
    refuse(TSOCKET_EINVAL, "is not a ledger");
    assert_int_equal(truncate(path, 0), 0);
    tsi_record_head(head);
    head[8]++;
    append_bytes(head, sizeof(head));
    refuse(TSOCKET_EINVAL, "another version");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse(TSOCKET_ESYSTEM, "directory");
    assert_int_equal(rmdir(path), 0);
}

static void two_processes_do_not_write_one_file(void **state)
{
    struct tsp_ledger *ledger = open_ledger();

    (void)state;
    refuse(TSOCKET_EBUSY, "another process");
    tsp_ledger_close(ledger);
}

/* ---- a full disk ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The disk takes no more than `bytes` while `n` records are made, one flush for every ten; then it takes all. */
static size_t record_on_a_full_disk(rlim_t bytes, uint64_t n)
{
    struct tsp_ledger *ledger = open_ledger();

    warnings = 0;
    tsocket_set_log_sink(count_warnings, NULL);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(bytes);
    for (uint64_t i = 0; i < n; i++) {
        tsp_ledger_epoch(ledger, 0, i, 13);
        if (i % 10 == 9)
            tsp_ledger_flush(ledger);
    }
    limit_files(RLIM_INFINITY);
    tsp_ledger_flush(ledger);
    tsp_ledger_epoch(ledger, 0, n, 13);
    tsp_ledger_close(ledger);
    tsocket_set_log_sink(NULL, NULL);
    return read_records();
}

static void a_full_disk_loses_nothing_that_memory_can_keep(void **state)
{
    size_t n;

    (void)state;
    n = record_on_a_full_disk(1000, 5000); /* in the middle of a record */
    assert_int_equal(count(n, TSI_RECORD_EPOCH), 5001);
    assert_int_equal(count(n, TSI_RECORD_LOST), 0);
    assert_int_equal(warnings, 2); /* that it fails, and that it works again */
}

static void what_a_full_disk_loses_is_counted(void **state)
{
    uint64_t lost = 0, epoch = 0;
    size_t n;

    (void)state;
    n = record_on_a_full_disk(1000, 50000);
    assert_int_equal(count(n, TSI_RECORD_LOST), 1);
    for (size_t i = 0; i < n; i++) {
        if (records[i].kind == TSI_RECORD_LOST)
            lost = records[i].a;
        if (records[i].kind == TSI_RECORD_EPOCH && lost == 0)
            assert_int_equal(records[i].a, epoch++); /* none is missing before the gap */
    }
    assert_int_equal(count(n, TSI_RECORD_EPOCH) + count(n, TSI_RECORD_TIME) + lost, 50001 + 5001);
    assert_int_equal(warnings, 2);
}

static void the_whole_disk_may_be_full_from_the_start(void **state)
{
    struct tsp_ledger *ledger = NULL;

    (void)state;
    tsocket_set_log_sink(count_warnings, NULL);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(0);
    assert_int_equal(tsp_ledger_open(path, &ledger), TSOCKET_OK);
    tsp_ledger_epoch(ledger, 0, 0, 13);
    tsp_ledger_flush(ledger);
    limit_files(RLIM_INFINITY);
    tsp_ledger_close(ledger);
    tsocket_set_log_sink(NULL, NULL);
    assert_int_equal(count(read_records(), TSI_RECORD_EPOCH), 1);
}

static void a_changed_bit_is_noticed(void **state)
{
    const struct tsi_record record = {.kind = TSI_RECORD_PLACE, .consumer = 5, .a = 1, .b = 2, .c = 3};
    unsigned char bytes[TSI_RECORD_BYTES];
    struct tsi_record ignored;

    (void)state;
    tsi_record_pack(&record, 7, bytes);
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(tsi_record_unpack(bytes, 7, &ignored), TSOCKET_EPROTOCOL);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_equal(tsi_record_unpack(bytes, 7, &ignored), TSOCKET_OK);
    assert_int_equal(tsi_record_unpack(bytes, 8, &ignored), TSOCKET_EPROTOCOL);
}

/* ---- both sides ---- */

static void what_the_daemon_writes_is_what_verify_reads(void **state)
{
    const struct tsp_ledger_consumer consumer = {.name = "trial", .pid = 7, .batch = 4, .world = 1};
    struct tsp_ledger *ledger = open_ledger();
    struct tsc_audit audit = {0};
    size_t n;

    (void)state;
    tsp_ledger_stream(ledger, 0, &(struct tsp_ledger_stream){.name = "train", .seed = UINT64_MAX});
    tsp_ledger_attach(ledger, 5, &consumer);
    tsp_ledger_place(ledger, 5, 0, 6, UINT64_MAX);
    tsp_ledger_released(ledger, 5, 0, 10);
    tsp_ledger_epoch(ledger, 0, 0, 13);
    tsp_ledger_parked(ledger, 5, TSP_LEDGER_HELD);
    tsp_ledger_place(ledger, 5, 0, 0, 6);
    tsp_ledger_owed(ledger, 5, 0, 10, 13);
    tsp_ledger_again(ledger, 5, 0, 10, 13);
    tsp_ledger_skipped(ledger, 5, 0, 2, 4);
    tsp_ledger_released(ledger, 5, 0, 6);
    tsp_ledger_released(ledger, 5, 1, 0);
    tsp_ledger_left(ledger, 5, TSP_LEDGER_EVICTED);
    tsp_ledger_close(ledger);
    n = read_records();
    for (size_t i = 0; i < n; i++)
        tsc_audit_record(&audit, &records[i]);
    tsc_audit_end(&audit, 0);
    assert_int_equal(audit.findings.exceptions, 1);
    assert_int_equal(audit.findings.items[0].what, TSC_SKIPPED);
    assert_int_equal(audit.consumers->samples, 11);
    assert_int_equal(audit.consumers->parked, 1);
    assert_int_equal(audit.consumers->lost, 3);
    assert_string_equal(audit.consumers->state, "evicted");
    assert_true(audit.streams->seed == UINT64_MAX);
    tsc_audit_fini(&audit);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_recorded_is_in_the_file),
        IN_FOLDER(releases_between_two_flushes_become_one_record),
        cmocka_unit_test(nothing_is_recorded_without_a_ledger),
        IN_FOLDER(a_second_run_is_appended),
        IN_FOLDER(a_torn_record_is_cut_off),
        IN_FOLDER(a_torn_head_is_like_none),
        IN_FOLDER(a_file_of_another_kind_is_left_alone),
        IN_FOLDER(two_processes_do_not_write_one_file),
        IN_FOLDER(a_full_disk_loses_nothing_that_memory_can_keep),
        IN_FOLDER(what_a_full_disk_loses_is_counted),
        IN_FOLDER(the_whole_disk_may_be_full_from_the_start),
        IN_FOLDER(what_the_daemon_writes_is_what_verify_reads),
        cmocka_unit_test(a_changed_bit_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
