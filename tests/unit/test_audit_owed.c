/* SPDX-License-Identifier: Apache-2.0 */
/* Ledgers of consumers that lost what they held: all of it must come again, once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hand_ledger.h"

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
        ledger_begin(NULL);
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
        ledger_end(NULL);
    }
    ledger_begin(NULL);
}

/* It goes on where it was, and says what it is still owed. */
static void who_outlives_its_daemon_is_owed_what_it_had_lost(void **state)
{
    (void)state;
    for (int settles = 0; settles <= 1; settles++) {
        ledger_begin(NULL);
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
        ledger_end(NULL);
    }
    ledger_begin(NULL);
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
        ledger_begin(NULL);
        run();
        epochs(1);
        attach(1, "liar");
        place(1, 0, 0, END);
        owed(1, lies[i].epoch, lies[i].from, lies[i].to);
        released(1, 1, 0);
        left(1);
        end_run();
        assert_only(TSC_STRAY, 0, 1, 0);
        ledger_end(NULL);
    }
    ledger_begin(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
