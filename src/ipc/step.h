/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of the protocol at which a test may end, stop or disturb a process: every place between two things that
 * belong together, of which a crash can leave one.
 *
 * Only a build with TSOCKET_STEPS=ON has them: there the environment variable
 *
 *     TSOCKET_STEP=NAME:COUNT:SIGNAL
 *
 * sends the process that signal (a number) when it passes the step for the COUNT-th time. SIGKILL and SIGSTOP take
 * effect right there. In any other build a step is nothing at all.
 *
 * tests/system/test_sweep.py reads the list below: a step that is added here is swept.
 */
#ifndef TSI_STEP_H
#define TSI_STEP_H

/* name, who passes it */
#define TSI_STEPS(X)                                                                                                   \
    X(GREETED, daemon)        /* a peer has its token, and has not said HELLO */                                       \
    X(HELLO_HEARD, daemon)    /* nothing has been done about it */                                                     \
    X(ATTACHED, daemon)       /* the consumer counts, and does not know it */                                          \
    X(MEMORY_SENT, daemon)    /* the descriptors are on their way, the message that explains them is not */            \
    X(WELCOMED, daemon)       /* the answer is on its way */                                                           \
    X(CLAIMED, daemon)        /* a slot is being filled */                                                             \
    X(COMMITTED, daemon)      /* a slot has been filled, and nobody knows */                                           \
    X(PUBLISHED, daemon)      /* consumers can see it, and have not been woken */                                      \
    X(EPOCH_DECIDED, daemon)  /* the next one has not begun */                                                         \
    X(EPOCH_BEGUN, daemon)    /* those who waited for it do not count yet */                                           \
    X(WANT_ANSWERED, daemon)  /* a consumer is about to wake up */                                                     \
    X(RELEASE_HEARD, daemon)  /* its room is not given away yet */                                                     \
    X(PARKED, daemon)         /* a consumer does not count any more, and does not know it */                           \
    X(PLACE_HEARD, daemon)    /* a consumer waits to be told where to read */                                          \
    X(SIDE_BEGUN, daemon)     /* a side ring has been begun for it */                                                  \
    X(MOVE_SENT, daemon)      /* it is about to hear of it */                                                          \
    X(SIDE_GIVEN_UP, daemon)  /* the next one may get it */                                                            \
    X(PARTED, daemon)         /* a consumer's end has been noticed, and nothing been done about it */                  \
    X(LEDGER_WRITTEN, daemon) /* what happened since is in memory only */                                              \
    X(STATE_WRITTEN, daemon)  /* the new state file has not taken the old one's place */                               \
    X(GREETING_HEARD, consumer)                                                                                        \
    X(HELLO_SENT, consumer)                                                                                            \
    X(WELCOME_HEARD, consumer) /* the memory has been taken, or is on its way, and is not mapped */                    \
    X(MAPPED, consumer)                                                                                                \
    X(GIVEN, consumer)    /* a window is held */                                                                       \
    X(RELEASED, consumer) /* it is not held any more, and the daemon does not know */                                  \
    X(RELEASE_TOLD, consumer)                                                                                          \
    X(WANT_DUE, consumer)  /* it has looked in vain, and has not asked to be woken */                                  \
    X(WANT_SENT, consumer) /* it sleeps */                                                                             \
    X(PLACE_DUE, consumer) /* it knows that it must read elsewhere */                                                  \
    X(PLACE_SAID, consumer)                                                                                            \
    X(MOVE_HEARD, consumer)   /* the other ring is not mapped yet */                                                   \
    X(RING_LEFT, consumer)    /* the daemon knows, and the ring is still mapped */                                     \
    X(GONE_NOTICED, consumer) /* its daemon has gone */                                                                \
    X(CAME_BACK, consumer)    /* it is attached to the next one, and has not looked at its ring */                     \
    X(GOODBYE_SAID, consumer) /* its last words are on their way, and everything is open */

enum tsi_step {
#define TSI_STEP_ENUM(name, side) TSI_STEP_##name,
    TSI_STEPS(TSI_STEP_ENUM)
#undef TSI_STEP_ENUM
};

#ifdef TSOCKET_STEPS
void tsi_step_pass(enum tsi_step step);
#define TSI_STEP(name) tsi_step_pass(TSI_STEP_##name)
#else
#define TSI_STEP(name) ((void)TSI_STEP_##name)
#endif

#endif
