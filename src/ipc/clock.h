/* SPDX-License-Identifier: Apache-2.0 */
/* The one clock: monotonic nanoseconds, comparable between the processes of a machine. */
#ifndef TSI_CLOCK_H
#define TSI_CLOCK_H

#include <stdint.h>

#define TSI_NS_PER_S  UINT64_C(1000000000)
#define TSI_NS_PER_MS UINT64_C(1000000)

uint64_t tsi_clock_ns(void);

/* The moment `timeout_ms` after now; UINT64_MAX for a negative timeout: never. */
uint64_t tsi_clock_deadline(uint64_t now_ns, int timeout_ms);

/* Milliseconds from now to the deadline as poll wants them: rounded up, 0 when past, -1 for never. */
int tsi_clock_left_ms(uint64_t now_ns, uint64_t deadline_ns);

#endif
