/* SPDX-License-Identifier: Apache-2.0 */
#include "recipe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SIZE_MAX_PIXELS = 8192,
};

/* Crops longer than this are a slip of the pen. */
#define RATIO_MAX 1000.0

#define FLOAT16_MAX 65504.0f

void tsp_recipe_init(struct tsp_recipe *recipe)
{
    *recipe = (struct tsp_recipe){
        .size = 224,
        .augment = TSP_AUGMENT_TRAIN,
        .scale = {0.08, 1.0},
        .ratio = {3.0 / 4.0, 4.0 / 3.0},
        .hflip = 0.5,
        .crop_pct = 224.0 / 256.0,
        .filter = TSP_BILINEAR,
        .quality = TSP_EXACT,
        .exif = true,
        .dtype = TSOCKET_UINT8,
        .layout = TSP_NHWC,
        .std = {1, 1, 1},
        .shuffle = true,
    };
}

static bool is_known(enum tsocket_dtype dtype)
{
    return dtype == TSOCKET_UINT8 || dtype == TSOCKET_FLOAT16 || dtype == TSOCKET_BFLOAT16 || dtype == TSOCKET_FLOAT32;
}

/* The largest magnitude of any value: that of black or of white. */
static float reach(const struct tsp_recipe *recipe)
{
    float most = 0;
    for (int c = 0; c < 3; c++)
        most = fmaxf(most, fmaxf(fabsf(recipe->mean[c]), fabsf(1 - recipe->mean[c])) / recipe->std[c]);
    return most;
}

/* All comparisons are such that a NaN fails them. */
const char *tsp_recipe_check(const struct tsp_recipe *recipe, char *text, size_t len)
{
    const double *scale = recipe->scale, *ratio = recipe->ratio;
    const float *mean = recipe->mean, *std = recipe->std;
    if (recipe->size < 1 || recipe->size > SIZE_MAX_PIXELS)
        snprintf(text, len, "size %u: must be 1 to %d pixels", recipe->size, SIZE_MAX_PIXELS);
    else if (!(scale[0] > 0 && scale[0] <= scale[1] && scale[1] <= 1))
        snprintf(text, len, "scale %g,%g: must be two shares of the image's area, 0 < smallest <= largest <= 1",
                 scale[0], scale[1]);
    else if (!(ratio[0] >= 1 / RATIO_MAX && ratio[0] <= ratio[1] && ratio[1] <= RATIO_MAX))
        snprintf(text, len, "ratio %g,%g: must be two values of width / height, %g <= smallest <= largest <= %g",
                 ratio[0], ratio[1], 1 / RATIO_MAX, RATIO_MAX);
    else if (!(recipe->hflip >= 0 && recipe->hflip <= 1))
        snprintf(text, len, "hflip %g: must be a probability, 0 to 1", recipe->hflip);
    else if (!(recipe->crop_pct >= 0.01 && recipe->crop_pct <= 1))
        snprintf(text, len, "crop-pct %g: must be 0.01 to 1, the crop's share of the resized image's short side",
                 recipe->crop_pct);
    else if (!is_known(recipe->dtype))
        snprintf(text, len, "dtype: must be uint8, float16, bfloat16 or float32");
    else if (!isfinite(mean[0]) || !isfinite(mean[1]) || !isfinite(mean[2]))
        snprintf(text, len, "mean %g,%g,%g: must be three numbers", (double)mean[0], (double)mean[1], (double)mean[2]);
    else if (!(std[0] > 0 && std[1] > 0 && std[2] > 0 && isfinite(std[0] + std[1] + std[2])))
        snprintf(text, len, "std %g,%g,%g: must be three numbers above 0", (double)std[0], (double)std[1],
                 (double)std[2]);
    else if (recipe->dtype == TSOCKET_FLOAT16 && !(reach(recipe) <= FLOAT16_MAX))
        snprintf(text, len, "mean %g,%g,%g and std %g,%g,%g: values up to %g, but float16 ends at %g; take bfloat16",
                 (double)mean[0], (double)mean[1], (double)mean[2], (double)std[0], (double)std[1], (double)std[2],
                 (double)reach(recipe), (double)FLOAT16_MAX);
    else
        return NULL;
    return text;
}

void tsp_recipe_image_field(const struct tsp_recipe *recipe, uint32_t width, uint32_t height,
                            struct tsocket_field *field_out)
{
    *field_out = (struct tsocket_field){.name = "image", .dtype = recipe->dtype, .ndim = 3};
    const uint64_t nhwc[3] = {height, width, 3}, nchw[3] = {3, height, width};
    memcpy(field_out->shape, recipe->layout == TSP_NHWC ? nhwc : nchw, sizeof nhwc);
}
