/* SPDX-License-Identifier: Apache-2.0 */
/* Ledgers in which something is wrong, one of each kind, and those that only look so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hand_ledger.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
