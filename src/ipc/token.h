/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places and tokens: from where the rest of an epoch can be made.
 *
 * Which sample comes at an index of an epoch depends on the order and on how many samples were left out before it. So
 * (epoch, index, removed) says everything: a producer that can make any sample at any time goes on from there with the
 * very same samples.
 *
 * A token is a place as text that a trainer can keep with its checkpoint, with what it belongs to:
 *
 *     ts2.DATASET.RECIPE.SEED.EPOCH.INDEX.REMOVED.AHEAD.LAP.CHECK        all hexadecimal
 *
 * INDEX is where the batch ended, AHEAD how far behind it the job's next window begins (what other ranks of a shard
 * read lies between). LAP is "w" and a number, where the samples before that index are still to come behind the epoch's
 * end (a consumer that joined late), "l" and a number, where it is in that part and it ends there, or "0". CHECK is the
 * CRC-32 of all before its dot.
 */
#ifndef TSI_TOKEN_H
#define TSI_TOKEN_H

#include <stdint.h>

#include <tsocket/tsocket.h>

#define TSI_ID_HEX     16                     /* digits of a dataset's or recipe's id, and of a seed */
#define TSI_ORIGIN_MAX (3 * (TSI_ID_HEX + 1)) /* "DATASET.RECIPE.SEED" with the final 0 */

struct tsi_place {
    uint64_t epoch;
    uint64_t index;   /* the next sample's */
    uint64_t removed; /* samples that the epoch lost before it */
};

struct tsi_token {
    char origin[TSI_ORIGIN_MAX];
    struct tsi_place from;
    uint64_t ahead; /* the next window begins so many samples behind from.index */
    uint64_t wrap;  /* > 0: [0, wrap) comes behind the epoch's end */
    uint64_t until; /* > 0: the epoch is over at this index */
};

/* TSOCKET_EINVAL: a number above its limit, or no origin. */
int tsi_token_pack(const struct tsi_token *token, char text_out[TSOCKET_TOKEN_MAX + 1]);
int tsi_token_unpack(const char *text, struct tsi_token *token_out);

/* "DATASET.RECIPE.SEED"; the ids are 16 hexadecimal digits. TSOCKET_EINVAL. */
int tsi_origin_make(const char *dataset, const char *recipe, uint64_t seed, char origin_out[TSI_ORIGIN_MAX]);

/* What differs, for a message: "the dataset", "the recipe", "the seed"; NULL: nothing. */
const char *tsi_origin_difference(const char *a, const char *b);

#endif
