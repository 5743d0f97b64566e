/* SPDX-License-Identifier: Apache-2.0 */
/* The boxes of views. Their rules, to the rounding, are torchvision's: RandomResizedCrop; Resize, then CenterCrop. */
#include "decode.h"

#include <math.h>

#include "random.h"

enum {
    CROP_TRIES = 10,
};

static void set_box(struct tsp_view *view, double x, double y, double width, double height)
{
    view->x = x;
    view->y = y;
    view->width = width;
    view->height = height;
}

/* Draws a box of random area, shape and place. False: it does not fit, draw again. */
static bool try_crop(const struct tsp_recipe *recipe, struct tsp_random *random, uint32_t width, uint32_t height,
                     struct tsp_view *view)
{
    double area = (double)width * height * tsp_random_uniform(random, recipe->scale[0], recipe->scale[1]);
    double ratio = exp(tsp_random_uniform(random, log(recipe->ratio[0]), log(recipe->ratio[1])));
    double crop_width = rint(sqrt(area * ratio)); /* halves to even, as in Python */
    double crop_height = rint(sqrt(area / ratio));
    if (crop_width < 1 || crop_width > width || crop_height < 1 || crop_height > height)
        return false;
    double y = (double)tsp_random_below(random, height - (uint64_t)crop_height + 1);
    double x = (double)tsp_random_below(random, width - (uint64_t)crop_width + 1);
    set_box(view, x, y, crop_width, crop_height);
    return true;
}

/* The largest centred box of allowed shape, for pictures in which no drawn box fits. */
static void crop_centre(const struct tsp_recipe *recipe, uint32_t width, uint32_t height, struct tsp_view *view)
{
    double ratio = (double)width / height;
    double crop_width = width, crop_height = height;
    if (ratio < recipe->ratio[0])
        crop_height = fmax(rint(width / recipe->ratio[0]), 1);
    else if (ratio > recipe->ratio[1])
        crop_width = fmax(rint(height * recipe->ratio[1]), 1);
    set_box(view, floor((width - crop_width) / 2), floor((height - crop_height) / 2), crop_width, crop_height);
}

static void plan_train(const struct tsp_recipe *recipe, uint64_t epoch, uint64_t sample, uint32_t number,
                       uint32_t width, uint32_t height, struct tsp_view *view)
{
    struct tsp_random random;
    view->clip = true; /* torchvision crops before it resizes */
    tsp_random_init(&random, recipe->seed, epoch, sample, number, TSP_RANDOM_FLIP);
    view->flip = tsp_random_uniform(&random, 0, 1) < recipe->hflip;

    tsp_random_init(&random, recipe->seed, epoch, sample, number, TSP_RANDOM_CROP);
    for (int i = 0; i < CROP_TRIES; i++)
        if (try_crop(recipe, &random, width, height, view))
            return;
    crop_centre(recipe, width, height, view);
}

/* The centre crop of the resized picture, as the box of the picture itself that becomes it. */
static void plan_eval(const struct tsp_recipe *recipe, uint32_t width, uint32_t height, struct tsp_view *view)
{
    double size = recipe->size;
    double short_side = rint(size / recipe->crop_pct);
    double resized_width = width <= height ? short_side : floor(short_side * width / height);
    double resized_height = width <= height ? floor(short_side * height / width) : short_side;
    double across = width / resized_width, down = height / resized_height;
    double left = rint((resized_width - size) / 2), top = rint((resized_height - size) / 2);
    set_box(view, left * across, top * down, size * across, size * down);
    view->clip = false; /* torchvision resizes before it crops */
    view->flip = false;
}

static void set_output(const struct tsp_recipe *recipe, uint32_t width, uint32_t height, struct tsp_view *view)
{
    view->filter = recipe->filter;
    view->fast = recipe->quality == TSP_FAST;
    view->flop = false;
    view->turn = false;
    view->out = (struct tsp_output){
        .width = width,
        .height = height,
        .dtype = recipe->dtype,
        .layout = recipe->layout,
        .mean = {recipe->mean[0], recipe->mean[1], recipe->mean[2]},
        .std = {recipe->std[0], recipe->std[1], recipe->std[2]},
    };
}

void tsp_view_plan(const struct tsp_recipe *recipe, uint64_t epoch, uint64_t sample, uint32_t view, uint32_t width,
                   uint32_t height, struct tsp_view *view_out)
{
    set_output(recipe, recipe->size, recipe->size, view_out);
    if (recipe->augment == TSP_AUGMENT_TRAIN)
        plan_train(recipe, epoch, sample, view, width, height, view_out);
    else
        plan_eval(recipe, width, height, view_out);
}

void tsp_view_whole(const struct tsp_recipe *recipe, uint32_t width, uint32_t height, struct tsp_view *view_out)
{
    set_output(recipe, width, height, view_out);
    set_box(view_out, 0, 0, width, height);
    view_out->clip = true;
    view_out->flip = false;
}
