/* SPDX-License-Identifier: Apache-2.0 */
/* The loop thread of a producer: sockets, lifelines, roster, rings. See engine.h. */
#ifndef TSP_LOOP_H
#define TSP_LOOP_H

#include "engine.h"

/* Lifeline, socket, epoll and eventfd. TSOCKET_OK; on an error everything that was opened is closed. */
int tsp_loop_open(struct tsocket_producer *producer);
void tsp_loop_close(struct tsocket_producer *producer);

/*
 * Before memory is given back, when the thread has ended: CUDA leaves undefined what becomes of IPC memory that is
 * freed while another process has it open. Hangs up on those who have, and waits until they have closed it, for a
 * second at most. Where there are none it does nothing.
 */
void tsp_loop_part(struct tsocket_producer *producer);

/* The thread's function; its argument is the producer. */
void *tsp_loop_run(void *producer);

/* Any thread: the loop looks at everything once more. */
void tsp_loop_wake(const struct tsocket_producer *producer);

#endif
