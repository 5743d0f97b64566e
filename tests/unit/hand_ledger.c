/* SPDX-License-Identifier: Apache-2.0 */
#include "hand_ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

struct tsc_audit audit;

int ledger_begin(void **state)
{
    (void)state;
    audit = (struct tsc_audit){0};
    return 0;
}

int ledger_end(void **state)
{
    (void)state;
    tsc_audit_fini(&audit);
    return 0;
}

/* ---- what a daemon says ---- */

void say(const struct tsi_record *record)
{
    tsc_audit_record(&audit, record);
}

void say_text(enum tsi_record_of of, const char *text)
{
    struct tsi_record record = {.kind = TSI_RECORD_TEXT, .detail = (uint8_t)of, .stream = (uint16_t)strlen(text)};

    memcpy(record.piece, text, strlen(text));
    say(&record);
}

void run_of(const char *dataset)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_RUN, .a = 1, .b = 4711});
    say_text(TSI_RECORD_OF_NAME, "train");
    say_text(TSI_RECORD_OF_DATASET, dataset);
    say(&(struct tsi_record){.kind = TSI_RECORD_STREAM, .a = SEED, .b = LEN});
}

void run(void)
{
    run_of("0123456789abcdef");
}

void epoch_len(uint64_t epoch, uint64_t len)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_EPOCH, .a = epoch, .b = len});
}

void epochs(uint64_t n)
{
    for (uint64_t epoch = 0; epoch < n; epoch++)
        epoch_len(epoch, LEN);
}

void attach_rank(uint64_t id, const char *name, uint32_t batch, uint32_t rank, uint32_t world, unsigned detail)
{
    say_text(TSI_RECORD_OF_NAME, name);
    say(&(struct tsi_record){.kind = TSI_RECORD_ATTACH,
                             .detail = (uint8_t)detail,
                             .consumer = id,
                             .a = (100 + id) | (uint64_t)batch << 32,
                             .b = rank | (uint64_t)world << 32});
}

void attach(uint64_t id, const char *name)
{
    attach_rank(id, name, 7, 0, 1, 0);
}

void resume(uint64_t id, const char *name)
{
    attach_rank(id, name, 7, 0, 1, TSI_RECORD_RESUMED);
}

void place(uint64_t id, uint64_t epoch, uint64_t index, uint64_t until)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_PLACE, .consumer = id, .a = epoch, .b = index, .c = until});
}

void released(uint64_t id, uint64_t epoch, uint64_t index)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_RELEASED, .consumer = id, .a = epoch, .b = index});
}

void skipped(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_SKIPPED, .consumer = id, .a = epoch, .b = from, .c = to});
}

void owed(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_OWED, .consumer = id, .a = epoch, .b = from, .c = to});
}

void again(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_AGAIN, .consumer = id, .a = epoch, .b = from, .c = to});
}

void left(uint64_t id)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_LEFT, .detail = TSI_RECORD_HOW_LEFT, .consumer = id});
}

void died(uint64_t id)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_LEFT, .detail = TSI_RECORD_HOW_DIED, .consumer = id});
}

void end_run(void)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_END});
    tsc_audit_end(&audit, 0);
}

/* ---- what is found ---- */

void assert_proven(uint64_t n_consumers)
{
    for (size_t i = 0; i < audit.findings.n; i++) {
        char text[256];

        tsc_finding_text(&audit.findings.items[i], text, sizeof(text));
        if (tsc_finding_is_exception(&audit.findings.items[i]))
            fail_msg("%s", text);
    }
    assert_int_equal(audit.n_consumers, n_consumers);
}

const struct tsc_finding *only(enum tsc_what what)
{
    const struct tsc_finding *found = NULL;

    for (size_t i = 0; i < audit.findings.n; i++) {
        if (audit.findings.items[i].what == what) {
            assert_null(found);
            found = &audit.findings.items[i];
        } else {
            assert_false(tsc_finding_is_exception(&audit.findings.items[i]));
        }
    }
    assert_non_null(found);
    return found;
}

void assert_only(enum tsc_what what, uint64_t epoch, uint64_t from, uint64_t to)
{
    const struct tsc_finding *finding = only(what);

    assert_int_equal(audit.findings.exceptions, what < TSC_NOTES);
    assert_int_equal(finding->epoch, epoch);
    assert_int_equal(finding->from, from);
    assert_int_equal(finding->to, to);
}
