/* SPDX-License-Identifier: Apache-2.0 */
/* Ledgers of runs in which everybody got everything, and what is noted of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "hand_ledger.h"

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
        ledger_begin(NULL);
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
        ledger_end(NULL);
    }
    ledger_begin(NULL);
}

static void a_late_joiner_may_come_back_in_either_lap(void **state)
{
    static const uint64_t from[] = {70, 90, 10, 40}; /* the token's place; the last release is at 80, or at 30 */

    (void)state;
    for (int lap = 1; lap <= 2; lap++) {
        for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
            ledger_begin(NULL);
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
            ledger_end(NULL);
        }
    }
    ledger_begin(NULL);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
