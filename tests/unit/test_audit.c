/* SPDX-License-Identifier: Apache-2.0 */
/* Ledgers made by hand, good ones and one of each kind that is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "consumer/audit.h"

#define END UINT64_MAX

enum {
    LEN = 100, /* of every epoch */
    SEED = 7,
};

static struct tsc_audit audit;

static int begin(void **state)
{
    (void)state;
    audit = (struct tsc_audit){0};
    return 0;
}

static int end(void **state)
{
    (void)state;
    tsc_audit_fini(&audit);
    return 0;
}

/* ---- what a daemon says ---- */

static void say(const struct tsi_record *record)
{
    tsc_audit_record(&audit, record);
}

static void say_text(enum tsi_record_of of, const char *text)
{
    struct tsi_record record = {.kind = TSI_RECORD_TEXT, .detail = (uint8_t)of, .stream = (uint16_t)strlen(text)};

    memcpy(record.piece, text, strlen(text));
    say(&record);
}

static void run_of(const char *dataset)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_RUN, .a = 1, .b = 4711});
    say_text(TSI_RECORD_OF_NAME, "train");
    say_text(TSI_RECORD_OF_DATASET, dataset);
    say(&(struct tsi_record){.kind = TSI_RECORD_STREAM, .a = SEED, .b = LEN});
}

static void run(void)
{
    run_of("0123456789abcdef");
}

static void epoch_len(uint64_t epoch, uint64_t len)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_EPOCH, .a = epoch, .b = len});
}

static void epochs(uint64_t n)
{
    for (uint64_t epoch = 0; epoch < n; epoch++)
        epoch_len(epoch, LEN);
}

static void attach_rank(uint64_t id, const char *name, uint32_t batch, uint32_t rank, uint32_t world, unsigned detail)
{
    say_text(TSI_RECORD_OF_NAME, name);
    say(&(struct tsi_record){.kind = TSI_RECORD_ATTACH,
                             .detail = (uint8_t)detail,
                             .consumer = id,
                             .a = (100 + id) | (uint64_t)batch << 32,
                             .b = rank | (uint64_t)world << 32});
}

static void attach(uint64_t id, const char *name)
{
    attach_rank(id, name, 7, 0, 1, 0);
}

static void resume(uint64_t id, const char *name)
{
    attach_rank(id, name, 7, 0, 1, TSI_RECORD_RESUMED);
}

static void place(uint64_t id, uint64_t epoch, uint64_t index, uint64_t until)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_PLACE, .consumer = id, .a = epoch, .b = index, .c = until});
}

static void released(uint64_t id, uint64_t epoch, uint64_t index)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_RELEASED, .consumer = id, .a = epoch, .b = index});
}

static void skipped(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_SKIPPED, .consumer = id, .a = epoch, .b = from, .c = to});
}

static void owed(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_OWED, .consumer = id, .a = epoch, .b = from, .c = to});
}

static void again(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_AGAIN, .consumer = id, .a = epoch, .b = from, .c = to});
}

static void left(uint64_t id)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_LEFT, .detail = TSI_RECORD_HOW_LEFT, .consumer = id});
}

static void died(uint64_t id)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_LEFT, .detail = TSI_RECORD_HOW_DIED, .consumer = id});
}

static void end_run(void)
{
    say(&(struct tsi_record){.kind = TSI_RECORD_END});
    tsc_audit_end(&audit, 0);
}

/* ---- what is found ---- */

static void assert_proven(uint64_t n_consumers)
{
    for (size_t i = 0; i < audit.findings.n; i++) {
        char text[256];

        tsc_finding_text(&audit.findings.items[i], text, sizeof(text));
        if (tsc_finding_is_exception(&audit.findings.items[i]))
            fail_msg("%s", text);
    }
    assert_int_equal(audit.n_consumers, n_consumers);
}

static const struct tsc_finding *only(enum tsc_what what)
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

static void assert_only(enum tsc_what what, uint64_t epoch, uint64_t from, uint64_t to)
{
    const struct tsc_finding *finding = only(what);

    assert_int_equal(audit.findings.exceptions, what < TSC_NOTES);
    assert_int_equal(finding->epoch, epoch);
    assert_int_equal(finding->from, from);
    assert_int_equal(finding->to, to);
}

/* ---- good ones ---- */

static void a_plain_run_is_proven(void **state)
{
    (void)state;
    run();
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 49);
    epoch_len(0, LEN);
    released(1, 0, LEN);
    released(1, 1, 50);
    epoch_len(1, LEN - 1); /* a bad sample was left out */
    released(1, 1, LEN - 1);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.consumers->samples, 2 * LEN - 1);
    assert_string_equal(audit.consumers->name, "trial");
    assert_string_equal(audit.consumers->stream, "train");
    assert_string_equal(audit.consumers->state, "left");
}

static void a_release_may_pass_several_epochs(void **state)
{
    (void)state;
    run();
    epochs(3);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 3, 10);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, 3);
    assert_int_equal(audit.consumers->samples, 3 * LEN + 10);
    assert_only(TSC_MIDDLE, 3, 10, 0);
}

static void a_late_joiner_reads_the_end_and_then_the_beginning(void **state)
{
    (void)state;
    run();
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 0, 80);
    epoch_len(0, LEN);
    place(1, 0, 0, 60); /* while windows of the first lap are held */
    released(1, 0, 95);
    released(1, 0, 20);
    released(1, 0, 60);
    released(1, 1, 3);
    epoch_len(1, LEN);
    released(1, 1, LEN);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.consumers->samples, 2 * LEN);
}

static void the_first_release_may_be_that_of_the_second_lap(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "late");
    place(1, 0, 60, END);
    place(1, 0, 0, 60);
    released(1, 0, 60); /* the begin of the first lap, or the end of the second: shows later */
    released(1, 1, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, 1);
}

static void moves_that_change_nothing_do_no_harm(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "paused");
    place(1, 0, 0, END);
    released(1, 0, 30);
    place(1, 0, 30, END); /* to a side ring */
    place(1, 0, 51, END); /* and back, with windows held */
    released(1, 0, 40);
    place(1, 1, 0, END); /* likewise, in the next epoch */
    released(1, 0, 99);
    released(1, 1, 0);
    place(1, 0, LEN, END); /* which is the same place */
    released(1, 1, 1);
    released(1, 2, 0);
    place(1, 2, 6, END); /* with two windows held at the epoch's start */
    released(1, 2, 13);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.consumers->samples, 2 * LEN + 13);
}

static void passes_over_a_resident_stream_are_epochs(void **state)
{
    (void)state;
    say(&(struct tsi_record){.kind = TSI_RECORD_RUN});
    say_text(TSI_RECORD_OF_NAME, "val");
    say(&(struct tsi_record){.kind = TSI_RECORD_STREAM, .detail = TSI_RECORD_RESIDENT, .b = LEN});
    epoch_len(0, LEN);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 50);
    released(1, 5, 1);
    assert_int_equal(audit.consumers->epochs, 5);
    assert_int_equal(audit.consumers->samples, 5 * LEN + 1);
    released(1, UINT64_C(1) << 50, 2); /* by counting: one after the other they would take years */
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, UINT64_C(1) << 50);
    assert_int_equal(audit.consumers->samples, (UINT64_C(1) << 50) * LEN + 2);
}

static void who_died_and_came_back_is_one_consumer(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 50);
    died(1);
    resume(2, "trial");
    place(2, 0, 42, END); /* its token is older than its last release */
    released(2, 0, 77);
    died(2);
    resume(3, "trial");
    place(3, 0, 84, END); /* and now newer: the release had not arrived */
    released(3, 0, LEN);
    left(3);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->attachments, 3);
    assert_int_equal(audit.consumers->epochs, 1);
    assert_int_equal(audit.consumers->again, 8);
    assert_int_equal(audit.consumers->by_token, 7);
    assert_int_equal(audit.consumers->samples, 50 + 35 + 16);
}

/* Where its last window would have ended, had the epoch been long enough. */
static void a_token_may_name_a_place_behind_the_end(void **state)
{
    (void)state;
    for (int decided = 0; decided <= 1; decided++) {
        begin(NULL);
        run();
        if (decided)
            epoch_len(0, 95);
        attach(1, "trial");
        place(1, 0, 0, END);
        released(1, 0, 91);
        died(1);
        resume(2, "trial");
        place(2, 0, 98, END);
        epoch_len(0, 95);
        epoch_len(1, LEN);
        released(2, 1, LEN);
        left(2);
        end_run();
        assert_proven(1);
        assert_int_equal(audit.findings.n, 0);
        assert_int_equal(audit.consumers->epochs, 2);
        assert_int_equal(audit.consumers->samples, 91 + LEN);
        end(NULL);
    }
    begin(NULL);
}

static void a_late_joiner_may_come_back_in_either_lap(void **state)
{
    static const uint64_t from[] = {70, 90, 10, 40}; /* the token's place; the last release is at 80, or at 30 */

    (void)state;
    for (int lap = 1; lap <= 2; lap++) {
        for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
            begin(NULL);
            run();
            epochs(1);
            attach(1, "late");
            place(1, 0, 60, END);
            released(1, 0, 80);
            if (lap == 2) {
                place(1, 0, 0, 60);
                released(1, 0, 30);
            }
            died(1);
            resume(2, "late");
            if (from[i] >= 60)
                place(2, 0, from[i], END);
            place(2, 0, from[i] >= 60 ? 0 : from[i], 60);
            released(2, 1, 1);
            left(2);
            end_run();
            assert_proven(1);
            assert_int_equal(audit.consumers->epochs, 1);
            assert_int_equal(audit.consumers->samples + audit.consumers->by_token - audit.consumers->again, LEN + 1);
            end(NULL);
        }
    }
    begin(NULL);
}

static void a_trainer_outlives_its_daemon(void **state)
{
    (void)state;
    run();
    epoch_len(0, LEN);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 1, 50); /* and nothing of the crash is written */
    run();
    resume(1, "trial");
    place(1, 2, 14, END); /* it had gone on for a while: its token says so */
    epoch_len(2, LEN);
    released(1, 2, LEN);
    left(1);
    end_run();
    assert_proven(1);
    assert_only(TSC_CRASHED, 0, 1, 0);
    assert_int_equal(audit.consumers->epochs, 3);
    assert_int_equal(audit.consumers->attachments, 2);
}

static void a_token_may_go_back_by_an_epoch(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 1, 20);
    died(1);
    resume(2, "trial");
    place(2, 0, 70, END);
    released(2, 2, 0);
    left(2);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.consumers->again, 50);
}

static void a_fork_of_a_run_goes_on_by_its_token(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "parent");
    place(1, 0, 0, END);
    resume(2, "child");
    place(2, 0, 35, END);
    released(1, 2, 0);
    released(2, 2, 0);
    left(1);
    left(2);
    end_run();
    assert_proven(2);
    assert_int_equal(audit.consumers->next->by_token, 35);
    assert_int_equal(audit.consumers->next->epochs, 2);
}

static void another_dataset_has_nothing_to_do_with_it(void **state)
{
    (void)state;
    run_of("old");
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 50);
    left(1);
    run_of("new");
    epochs(1);
    resume(1, "trial");
    place(1, 0, 50, END);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_proven(2);
}

static void ranks_share_an_epoch(void **state)
{
    (void)state;
    run();
    epochs(1);
    for (uint32_t rank = 0; rank < 3; rank++) {
        attach_rank(rank, "job", 8, rank, 3, 0); /* 100 = 4 rounds of 24, and 4 more: those are rank 0's */
        place(rank, 0, 0, END);
        released(rank, 0, LEN);
        left(rank);
    }
    end_run();
    assert_proven(3);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->samples, 36);
    assert_int_equal(audit.consumers->next->samples, 32);
    assert_int_equal(audit.consumers->next->next->samples, 32);
}

/* A killed daemon had not written how far rank 0 was; rank 1 had left, and does not come back. */
static void the_token_of_a_rank_vouches_for_the_epochs_that_it_skips(void **state)
{
    (void)state;
    run();
    epochs(3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        attach_rank(rank, "job", 8, rank, 2, 0);
        place(rank, 0, 0, END);
    }
    released(1, 2, LEN);
    left(1);
    run();
    attach_rank(2, "job", 8, 0, 2, TSI_RECORD_RESUMED);
    place(2, 2, 16, END);
    released(2, 2, LEN);
    left(2);
    end_run();
    assert_proven(2);
    assert_int_equal(audit.findings.n, 1); /* the daemon that was killed */
    assert_int_equal(audit.consumers->epochs, 3);
    assert_int_equal(audit.consumers->by_token, 2 * 52 + 8); /* 100 = 6 rounds of 16, and 4 more: those are rank 0's */
    assert_int_equal(audit.consumers->samples, 52 - 8);
}

/* Nor how long the epoch was in which it had been. */
static void a_rank_s_token_vouches_for_an_epoch_of_unknown_length(void **state)
{
    (void)state;
    run();
    for (uint32_t rank = 0; rank < 2; rank++) {
        attach_rank(rank, "job", 8, rank, 2, 0);
        place(rank, 0, 0, END);
    }
    run();
    for (uint32_t rank = 0; rank < 2; rank++) {
        attach_rank(rank, "job", 8, rank, 2, TSI_RECORD_RESUMED);
        place(rank, 1, 0, END);
    }
    epoch_len(1, LEN);
    for (uint32_t rank = 0; rank < 2; rank++) {
        released(rank, 1, LEN);
        left(rank);
    }
    end_run();
    assert_proven(2);
    assert_int_equal(audit.findings.n, 1); /* the daemon that was killed */
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.streams->n_shares, 4);
}

static void a_tail_that_was_not_wanted_is_no_gap(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach_rank(1, "trial", 32, 0, 1, TSOCKET_LAST_DROP);
    place(1, 0, 0, END);
    released(1, 0, 96);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->samples, 96);
    assert_int_equal(audit.consumers->dropped, 4);
}

static void who_joins_in_the_middle_by_choice_is_noted(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach_rank(1, "now", 7, 0, 1, TSOCKET_JOIN_NOW << TSI_RECORD_JOIN_SHIFT);
    place(1, 0, 40, END);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_only(TSC_PARTIAL, 0, 40, 0);
    assert_int_equal(audit.consumers->samples, 60);
}

static void who_dies_in_the_middle_is_noted(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 63);
    died(1);
    end_run();
    assert_proven(1);
    assert_only(TSC_MIDDLE, 0, 63, 0);
    assert_int_equal(audit.consumers->epochs, 0);
    assert_string_equal(audit.consumers->state, "died");
}

static void what_was_lost_and_given_again_counts_once(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "slow");
    place(1, 0, 0, END);
    released(1, 0, 21);
    owed(1, 0, 21, 28); /* with those between it, which were whole */
    owed(1, 0, 49, 56);
    again(1, 0, 21, 28);
    again(1, 0, 49, 56);
    place(1, 0, 56, END);
    released(1, 0, 63);
    released(1, 2, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.consumers->samples, 2 * LEN);
    assert_int_equal(audit.consumers->lost, 14);
    assert_int_equal(audit.consumers->again, 0);
}

static void what_was_lost_before_a_second_lap_may_come_again_in_it(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 0, 88);
    released(1, 0, LEN);
    place(1, 0, 0, 60);
    owed(1, 0, 88, 95); /* held since */
    owed(1, 0, 95, LEN);
    again(1, 0, 88, 95);
    released(1, 0, 35);
    again(1, 0, 95, LEN);
    released(1, 0, 60);
    released(1, 2, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->samples, 2 * LEN);
}

static void what_was_lost_in_the_epoch_before_may_come_again_in_this_one(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "slow");
    place(1, 0, 0, END);
    released(1, 1, 14);
    owed(1, 0, 98, LEN);
    owed(1, 1, 7, 14);
    again(1, 0, 98, LEN);
    again(1, 1, 7, 14);
    place(1, 1, 21, END);
    released(1, 2, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->epochs, 2);
}

static void what_was_lost_may_be_lost_once_more(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "slow");
    place(1, 0, 0, END);
    owed(1, 0, 7, 14);
    again(1, 0, 7, 14);
    released(1, 0, 21);
    owed(1, 0, 7, 14); /* it had got it again, and held it too long: so it says at last */
    again(1, 0, 7, 14);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->lost, 14);
}

static void ranks_lose_windows_of_their_own(void **state)
{
    (void)state;
    run();
    epochs(1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        attach_rank(rank, "job", 8, rank, 2, 0);
        place(rank, 0, 0, END);
    }
    owed(1, 0, 24, 32);
    again(1, 0, 24, 32);
    for (uint32_t rank = 0; rank < 2; rank++) {
        released(rank, 1, 0);
        left(rank);
    }
    end_run();
    assert_proven(2);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->samples + audit.consumers->next->samples, LEN);
}

/* What lies before the token it vouches for; what lies behind it comes anyway. */
static void a_token_settles_what_was_lost(void **state)
{
    static const uint64_t from[] = {21, 28, 63};

    (void)state;
    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        begin(NULL);
        run();
        epochs(2);
        attach(1, "slow");
        place(1, 0, 0, END);
        released(1, 1, 14);
        owed(1, 0, 21, 28);
        left(1);
        resume(2, "slow");
        place(2, 0, from[i], END);
        released(2, 2, 0);
        left(2);
        end_run();
        assert_proven(1);
        assert_int_equal(audit.findings.n, 0);
        end(NULL);
    }
    begin(NULL);
}

/* It goes on where it was, and says what it is still owed. */
static void who_outlives_its_daemon_is_owed_what_it_had_lost(void **state)
{
    (void)state;
    for (int settles = 0; settles <= 1; settles++) {
        begin(NULL);
        run();
        epochs(3);
        attach(1, "slow");
        place(1, 0, 0, END);
        released(1, 1, 14);
        owed(1, 0, 21, 28);
        run();
        resume(1, "slow");
        place(1, 1, 21, END);
        owed(1, 0, 21, 28);
        if (settles)
            again(1, 0, 21, 28);
        released(1, 3, 0);
        left(1);
        end_run();
        if (settles)
            assert_proven(1);
        else
            assert_int_equal(only(TSC_MISSING)->from, 21);
        assert_int_equal(audit.consumers->epochs, 2 + settles);
        end(NULL);
    }
    begin(NULL);
}

static void who_is_owed_some_of_its_epoch_is_in_its_middle(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "slow");
    place(1, 0, 0, END);
    released(1, 0, LEN);
    owed(1, 0, 93, LEN);
    died(1);
    end_run();
    assert_proven(1);
    assert_only(TSC_MIDDLE, 0, LEN, 0);
    assert_int_equal(audit.consumers->epochs, 0);
}

static void who_dies_before_it_gets_again_what_it_had_lost_is_noted(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "slow");
    place(1, 0, 0, END);
    released(1, 2, 0);
    owed(1, 0, 21, 28);
    owed(1, 0, 49, 56);
    again(1, 0, 21, 28);
    died(1);
    end_run();
    assert_proven(1);
    assert_only(TSC_OWED, 0, 49, 56);
    assert_int_equal(audit.consumers->epochs, 1);
}

/* ---- and others ---- */

static void what_is_lost_and_never_given_again_is_found(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "slow");
    place(1, 0, 0, END);
    owed(1, 0, 21, 28);
    owed(1, 0, 28, 35);
    again(1, 0, 21, 28);
    released(1, 2, 0);
    left(1);
    end_run();
    assert_only(TSC_MISSING, 0, 28, 35);
    assert_int_equal(audit.consumers->epochs, 1);
}

static void what_is_given_again_and_was_not_lost_is_found(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "slow");
    place(1, 0, 0, END);
    owed(1, 0, 21, 28);
    again(1, 0, 21, 28);
    again(1, 0, 21, 28);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_only(TSC_TWICE, 0, 21, 28);
}

static void what_no_epoch_has_cannot_be_lost(void **state)
{
    static const struct tsc_debt lies[] = {{0, LEN - 3, LEN + 4}, {0, 7, 7}, {0, 14, 7}, {0, LEN, UINT64_MAX}};

    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        begin(NULL);
        run();
        epochs(1);
        attach(1, "liar");
        place(1, 0, 0, END);
        owed(1, lies[i].epoch, lies[i].from, lies[i].to);
        released(1, 1, 0);
        left(1);
        end_run();
        assert_only(TSC_STRAY, 0, 1, 0);
        end(NULL);
    }
    begin(NULL);
}

static void a_second_lap_that_is_missing_is_found(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 1, 5);
    end_run();
    assert_only(TSC_MISSING, 0, 0, 60);
}

static void between_two_laps_a_consumer_is_in_the_middle(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 1, 0); /* the end of its first lap, in the order of the ring */
    died(1);
    end_run();
    assert_proven(1);
    assert_only(TSC_MIDDLE, 0, LEN, 0);
}

static void a_consumer_may_give_back_more_than_its_place(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 1, 0);
    place(1, 0, 0, 60);
    released(1, 0, 85); /* the side ring was made so far */
    place(1, 1, 0, END);
    released(1, 2, 0);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->samples, 2 * LEN);
    assert_int_equal(audit.consumers->epochs, 2);
}

static void a_ring_may_be_made_from_before_the_first_window(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "late");
    place(1, 0, 60, END);
    place(1, 0, 57, 60); /* the side ring that it is moved to before it has read anything */
    released(1, 0, 80);
    released(1, 1, 0);
    place(1, 0, 0, 60);
    released(1, 0, 60);
    left(1);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.consumers->epochs, 1);
}

static void who_comes_back_at_the_end_of_its_second_lap_goes_on_with_the_next_epoch(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 1, 0);
    place(1, 0, 0, 60);
    released(1, 0, 64); /* more than its place: what the side ring had */
    left(1);
    resume(2, "late");
    place(2, 0, 64, 60);  /* nothing is left of it, by its token, */
    place(2, 0, 60, END); /* and by what it says itself: the place where it began, or has ended */
    released(2, 0, 60);
    place(2, 1, 0, END);
    released(2, 2, 0);
    left(2);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->epochs, 2);
    assert_int_equal(audit.consumers->samples, 2 * LEN);
}

static void who_comes_back_between_its_laps_has_the_second_before_it(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 1, 0);
    left(1);
    resume(2, "late");
    place(2, 0, LEN, END);
    place(2, 0, LEN, END);
    released(2, 0, LEN);
    place(2, 0, 0, 60);
    released(2, 0, 60);
    place(2, 1, 0, END);
    released(2, 1, LEN);
    left(2);
    end_run();
    assert_proven(1);
    assert_int_equal(audit.findings.n, 0);
    assert_int_equal(audit.consumers->samples, 2 * LEN);
}

static void an_epoch_that_is_read_once_more_is_found(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 1, 0);
    place(1, 0, 0, END);
    released(1, 0, 30);
    left(1);
    end_run();
    assert_only(TSC_TWICE, 0, 0, 30);
}

static void a_second_lap_that_is_too_short_is_found(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "late");
    place(1, 0, 60, END);
    place(1, 0, 0, 55);
    released(1, 1, 5);
    end_run();
    assert_only(TSC_MISSING, 0, 55, 60);
}

static void a_second_lap_that_is_too_long_is_found(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "late");
    place(1, 0, 60, END);
    released(1, 0, 99);
    place(1, 0, 0, 64);
    released(1, 1, 5);
    end_run();
    assert_int_equal(audit.findings.items[0].what, TSC_TWICE);
    assert_int_equal(audit.findings.items[0].from, 60);
    assert_int_equal(audit.findings.items[0].to, 64);
}

static void samples_that_are_given_twice_are_found(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 50);
    place(1, 0, 43, END); /* without a token */
    released(1, 1, 0);
    left(1);
    end_run();
    assert_only(TSC_TWICE, 0, 43, 50);
}

static void an_epoch_that_is_passed_over_is_found(void **state)
{
    (void)state;
    run();
    epochs(3);
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, LEN);
    place(1, 2, 0, END);
    released(1, 3, 0);
    left(1);
    end_run();
    assert_only(TSC_MISSING, 1, 0, LEN);
}

static void skips_are_named(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "slow");
    place(1, 0, 0, END);
    released(1, 0, 14);
    skipped(1, 0, 28, 56); /* with two windows held */
    released(1, 0, 28);
    released(1, 0, 63);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_only(TSC_SKIPPED, 0, 28, 56);
    assert_int_equal(audit.consumers->samples, LEN - 28);
    assert_int_equal(audit.consumers->skipped, 28);
    assert_int_equal(audit.consumers->epochs, 1);
}

static void many_skips_in_a_row_are_followed(void **state)
{
    (void)state;
    run();
    epochs(1);
    attach(1, "slow");
    place(1, 0, 0, END);
    for (uint64_t at = 0; at < 90; at++)
        skipped(1, 0, at, at + 1);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_int_equal(audit.findings.exceptions, 90);
    assert_int_equal(audit.consumers->samples, 10);
}

/* It says its place at the end of one epoch, and leaves out the begin of the next before it releases any of it. */
static void a_skip_at_the_begin_of_an_epoch_counts_once(void **state)
{
    (void)state;
    run();
    epochs(2);
    attach(1, "slow");
    place(1, 0, 0, END);
    released(1, 1, 0);
    place(1, 0, LEN, END);
    skipped(1, 1, 0, 10);
    released(1, 2, 0);
    left(1);
    end_run();
    assert_int_equal(audit.consumers->samples, 2 * LEN - 10);
    assert_int_equal(audit.consumers->skipped, 10);
}

static void a_release_beyond_the_end_is_found(void **state)
{
    (void)state;
    run();
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 0, 101);
    epochs(1);
    released(1, 1, 0);
    left(1);
    end_run();
    assert_only(TSC_BEYOND, 0, 101, LEN);
}

static void a_length_that_is_missing_is_found(void **state)
{
    (void)state;
    run();
    attach(1, "trial");
    place(1, 0, 0, END);
    released(1, 1, 9);
    left(1);
    end_run();
    assert_only(TSC_NO_LENGTH, 0, 0, 0);
}

static void two_lengths_are_found(void **state)
{
    (void)state;
    run();
    epoch_len(0, LEN);
    epoch_len(0, LEN - 1);
    end_run();
    assert_only(TSC_TWO_LENGTHS, 0, LEN, LEN - 1);
}

static void a_rank_that_never_came_is_found(void **state)
{
    (void)state;
    run();
    epochs(1);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        attach_rank(rank, "job", 8, rank, 3, 0);
        place(rank, 0, 0, END);
        released(rank, 1, 0);
        left(rank);
    }
    end_run();
    assert_only(TSC_NO_RANK, 0, 1, 3);
}

static void a_rank_that_died_on_the_way_is_noted(void **state)
{
    (void)state;
    run();
    epochs(1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        attach_rank(rank, "job", 8, rank, 2, 0);
        place(rank, 0, 0, END);
    }
    released(0, 1, 0);
    died(1);
    left(0);
    end_run();
    assert_only(TSC_RANK_BEHIND, 0, 1, 2);
}

static void lost_records_are_an_exception(void **state)
{
    (void)state;
    run();
    say(&(struct tsi_record){.kind = TSI_RECORD_LOST, .a = 12});
    end_run();
    assert_only(TSC_LOST, 0, 12, 0);
}

static void damage_is_an_exception_and_a_torn_end_is_not(void **state)
{
    (void)state;
    run();
    tsc_audit_damage(&audit, 400);
    tsc_audit_damage(&audit, 440);
    say(&(struct tsi_record){.kind = TSI_RECORD_END});
    tsc_audit_end(&audit, 11);
    assert_only(TSC_DAMAGED, 0, 2, 400);
    assert_int_equal(audit.findings.n, 2);
}

static void records_about_nobody_are_found(void **state)
{
    (void)state;
    run();
    released(5, 0, 1);
    end_run();
    assert_only(TSC_STRAY, 0, 5, 0);
}

#define AUDIT(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUDIT(a_plain_run_is_proven),
        AUDIT(a_release_may_pass_several_epochs),
        AUDIT(a_late_joiner_reads_the_end_and_then_the_beginning),
        AUDIT(the_first_release_may_be_that_of_the_second_lap),
        AUDIT(moves_that_change_nothing_do_no_harm),
        AUDIT(passes_over_a_resident_stream_are_epochs),
        AUDIT(who_died_and_came_back_is_one_consumer),
        AUDIT(a_token_may_name_a_place_behind_the_end),
        AUDIT(a_late_joiner_may_come_back_in_either_lap),
        AUDIT(a_trainer_outlives_its_daemon),
        AUDIT(a_token_may_go_back_by_an_epoch),
        AUDIT(a_fork_of_a_run_goes_on_by_its_token),
        AUDIT(another_dataset_has_nothing_to_do_with_it),
        AUDIT(ranks_share_an_epoch),
        AUDIT(the_token_of_a_rank_vouches_for_the_epochs_that_it_skips),
        AUDIT(a_rank_s_token_vouches_for_an_epoch_of_unknown_length),
        AUDIT(a_tail_that_was_not_wanted_is_no_gap),
        AUDIT(who_joins_in_the_middle_by_choice_is_noted),
        AUDIT(who_dies_in_the_middle_is_noted),
        AUDIT(what_was_lost_and_given_again_counts_once),
        AUDIT(what_was_lost_before_a_second_lap_may_come_again_in_it),
        AUDIT(what_was_lost_in_the_epoch_before_may_come_again_in_this_one),
        AUDIT(what_was_lost_may_be_lost_once_more),
        AUDIT(ranks_lose_windows_of_their_own),
        AUDIT(a_token_settles_what_was_lost),
        AUDIT(who_outlives_its_daemon_is_owed_what_it_had_lost),
        AUDIT(who_is_owed_some_of_its_epoch_is_in_its_middle),
        AUDIT(who_dies_before_it_gets_again_what_it_had_lost_is_noted),
        AUDIT(what_is_lost_and_never_given_again_is_found),
        AUDIT(what_is_given_again_and_was_not_lost_is_found),
        AUDIT(what_no_epoch_has_cannot_be_lost),
        AUDIT(a_second_lap_that_is_missing_is_found),
        AUDIT(between_two_laps_a_consumer_is_in_the_middle),
        AUDIT(a_consumer_may_give_back_more_than_its_place),
        AUDIT(a_ring_may_be_made_from_before_the_first_window),
        AUDIT(who_comes_back_at_the_end_of_its_second_lap_goes_on_with_the_next_epoch),
        AUDIT(who_comes_back_between_its_laps_has_the_second_before_it),
        AUDIT(an_epoch_that_is_read_once_more_is_found),
        AUDIT(a_second_lap_that_is_too_short_is_found),
        AUDIT(a_second_lap_that_is_too_long_is_found),
        AUDIT(samples_that_are_given_twice_are_found),
        AUDIT(an_epoch_that_is_passed_over_is_found),
        AUDIT(skips_are_named),
        AUDIT(many_skips_in_a_row_are_followed),
        AUDIT(a_skip_at_the_begin_of_an_epoch_counts_once),
        AUDIT(a_release_beyond_the_end_is_found),
        AUDIT(a_length_that_is_missing_is_found),
        AUDIT(two_lengths_are_found),
        AUDIT(a_rank_that_never_came_is_found),
        AUDIT(a_rank_that_died_on_the_way_is_noted),
        AUDIT(lost_records_are_an_exception),
        AUDIT(damage_is_an_exception_and_a_torn_end_is_not),
        AUDIT(records_about_nobody_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
