/* SPDX-License-Identifier: Apache-2.0 */
/* The views of a stream, out of what --view says: NAME[:KEY=VALUE...]. For options.c alone. */
#ifndef TSP_VIEWS_H
#define TSP_VIEWS_H

#include "options.h"

/* Fills views and n_views: each view is the stream's recipe but for its keys. False: *problem_out says what is wrong.
 */
bool tsp_views_resolve(struct tsp_stream_options *stream, struct tsp_problem *problem_out);

#endif
