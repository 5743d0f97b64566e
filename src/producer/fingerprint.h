/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fingerprints: 16 hexadecimal digits that stand for a dataset, and for what is done with it.
 *
 *     dataset   the list of samples: how many, their keys and labels, in this order; not what is in the files
 *     recipe    the options that change order or bytes, the seed apart, as the text that tsp_options_recipe makes
 *
 * Two runs with the same two and the same seed give the same samples in the same order, as far as their files have not
 * changed and their versions of tsocketd and the image libraries agree.
 */
#ifndef TSP_FINGERPRINT_H
#define TSP_FINGERPRINT_H

#include "source.h"

#define TSP_FINGERPRINT 17 /* digits and the final 0 */

void tsp_fingerprint_dataset(const struct tsp_source *source, char out[TSP_FINGERPRINT]);
void tsp_fingerprint_text(const char *text, char out[TSP_FINGERPRINT]);

#endif
