/* SPDX-License-Identifier: Apache-2.0 */
/* The recipe of a stream: everything, besides the dataset, that its order and bytes depend on. */
#ifndef TSP_RECIPE_H
#define TSP_RECIPE_H

#include <tsocket/tsocket.h>

enum tsp_augment {
    TSP_AUGMENT_TRAIN, /* random resized crop, random horizontal flip */
    TSP_AUGMENT_EVAL,  /* short side resized to size / crop_pct, centre crop */
};

enum tsp_filter {
    TSP_BILINEAR,
    TSP_BICUBIC,
};

enum tsp_layout {
    TSP_NHWC,
    TSP_NCHW,
};

enum tsp_quality {
    TSP_EXACT, /* the pixels of a full decode and an antialiased resize */
    TSP_FAST,  /* large crops are made of a picture that was decoded smaller */
};

struct tsp_recipe {
    uint32_t size; /* output side, pixels */
    enum tsp_augment augment;
    double scale[2]; /* area of the crop as a share of the image's, smallest and largest */
    double ratio[2]; /* width / height of the crop, smallest and largest */
    double hflip;    /* probability */
    double crop_pct; /* eval: size / short side after the resize */
    enum tsp_filter filter;
    enum tsp_quality quality;
    bool exif;                /* pictures are turned as their EXIF orientation says */
    enum tsocket_dtype dtype; /* TSOCKET_UINT8, or floating point: TSOCKET_FLOAT16, TSOCKET_BFLOAT16, TSOCKET_FLOAT32 */
    enum tsp_layout layout;
    float mean[3]; /* floating point only: (v / 255 - mean) / std */
    float std[3];
    uint64_t seed;
    bool shuffle;
};

/* ImageNet's usual training recipe: 224, scale 0.08-1, ratio 3/4-4/3, flip 0.5, bilinear, uint8 NHWC, seed 0, shuffle;
 * crop_pct 224/256; mean 0 and std 1; exact, turned by EXIF. */
void tsp_recipe_init(struct tsp_recipe *recipe);

/* NULL, or what is wrong with it: the value, the limit. */
const char *tsp_recipe_check(const struct tsp_recipe *recipe, char *text, size_t len);

/* The image field's shape and dtype for pictures of width x height after the crop. */
void tsp_recipe_image_field(const struct tsp_recipe *recipe, uint32_t width, uint32_t height,
                            struct tsocket_field *field_out);

#endif
