/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the appendix of a paper needs to say of the data that a daemon serves: versions, and for each stream the
 * fingerprints of dataset and recipe, the recipe itself, the seed, and what was left out. Taken from its status, in
 * which nothing is believed to be there, to have a certain type or to be fit for a terminal.
 */
#ifndef TSC_PROVENANCE_H
#define TSC_PROVENANCE_H

#include <cjson/cJSON.h>
#include <stdio.h>

/*
 * {"daemon":"main","version":"0.1.0","libraries":"...","streams":[{"name":"train","source":"/data/train",
 *  "dataset":"...","recipe_id":"...","recipe":"size=224 ...","seed":0,"epoch_samples":1281167,"epoch":12,
 *  "bad":{"total":0,"kinds":{}}}]}, for cJSON_Delete; NULL: no memory.
 */
cJSON *tsc_provenance_of(const cJSON *status);

/* The same for people. */
void tsc_provenance_print(const cJSON *provenance, FILE *out);

#endif
