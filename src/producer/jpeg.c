/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "buffer.h"
#include "exif.h"

enum {
    /*
     * libjpeg begins and ends a cut-out row as if the picture ended there: where colour has half the columns, two of
     * them at the edges are made without their neighbours' colour. Cut out a little more, and they are not looked at.
     */
    CROP_MARGIN = 2,
    EXIF_BYTES = 4096, /* of a segment that are kept: the orientation stands in front */
};

struct tsp_jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape; /* set while libjpeg runs */
    struct tsp_limits limits;
    char *why;
    const uint8_t *data;
    size_t len;
    bool open;  /* cinfo is in use */
    bool ended; /* libjpeg has asked for more than the file has */
    enum tsp_bad bad;
    uint32_t width;       /* of the whole picture, as it is decoded */
    struct tsp_rect part; /* being decoded */
    struct tsp_buffer pixels;
};

static struct tsp_jpeg *jpeg_of(void *cinfo)
{
    return ((struct jpeg_common_struct *)cinfo)->client_data;
}

/* What the current message of libjpeg makes of the sample, and out of libjpeg with it. */
static _Noreturn void give_up(j_common_ptr cinfo, enum tsp_bad bad)
{
    struct tsp_jpeg *jpeg = jpeg_of(cinfo);
    char text[JMSG_LENGTH_MAX];
    cinfo->err->format_message(cinfo, text);
    jpeg->bad = bad;
    if (bad == TSP_TRUNCATED)
        snprintf(jpeg->why, TSP_WHY_MAX, "the file ends too early, after %zu bytes", jpeg->len);
    else
        snprintf(jpeg->why, TSP_WHY_MAX, "%s", text);
    longjmp(jpeg->escape, 1);
}

static void on_error(j_common_ptr cinfo)
{
    switch (cinfo->err->msg_code) {
    case JERR_OUT_OF_MEMORY:
        give_up(cinfo, TSP_STOP);
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        give_up(cinfo, TSP_TOO_LARGE);
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_EMPTY_IMAGE: /* the height comes after the first scan (DNL) */
        give_up(cinfo, TSP_UNSUPPORTED);
    default:
        give_up(cinfo, jpeg_of(cinfo)->ended ? TSP_TRUNCATED : TSP_CORRUPT);
    }
}

/* Level -1 is a warning. Those listed say that pixels were lost; the others are about bytes between the segments. */
static void on_message(j_common_ptr cinfo, int level)
{
    if (level >= 0)
        return;
    switch (cinfo->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        give_up(cinfo, jpeg_of(cinfo)->ended ? TSP_TRUNCATED : TSP_CORRUPT);
    default:
        cinfo->err->num_warnings++;
    }
}

static void on_output(j_common_ptr cinfo)
{
    (void)cinfo; /* libjpeg prints nothing: what matters is in `why` */
}

/* Called for each row of blocks: where a file with more scans than anybody needs is stopped. */
static void on_progress(j_common_ptr cinfo)
{
    struct tsp_jpeg *jpeg = jpeg_of(cinfo);
    if ((uint32_t)jpeg->cinfo.input_scan_number <= jpeg->limits.max_scans)
        return;
    snprintf(jpeg->why, TSP_WHY_MAX, "more than %" PRIu32 " scans", jpeg->limits.max_scans);
    jpeg->bad = TSP_TOO_MANY_SCANS;
    longjmp(jpeg->escape, 1);
}

static void source_nothing(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* The file is over: libjpeg gets an end marker, so that it comes to an end, and we remember. */
static boolean source_refill(j_decompress_ptr cinfo)
{
    static const JOCTET end[2] = {0xff, JPEG_EOI};
    jpeg_of(cinfo)->ended = true;
    cinfo->src->next_input_byte = end;
    cinfo->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long bytes)
{
    struct jpeg_source_mgr *source = cinfo->src;
    if (bytes <= 0)
        return;
    if ((size_t)bytes > source->bytes_in_buffer) {
        source_refill(cinfo);
        return;
    }
    source->next_input_byte += bytes;
    source->bytes_in_buffer -= (size_t)bytes;
}

struct tsp_jpeg *tsp_jpeg_create(const struct tsp_limits *limits, char *why)
{
    struct tsp_jpeg *jpeg = calloc(1, sizeof *jpeg);
    if (!jpeg)
        return NULL;
    jpeg->limits = *limits;
    jpeg->why = why;
    return jpeg;
}

static void close_image(struct tsp_jpeg *jpeg)
{
    if (jpeg->open)
        jpeg_destroy_decompress(&jpeg->cinfo);
    jpeg->open = false;
}

void tsp_jpeg_destroy(struct tsp_jpeg *jpeg)
{
    if (!jpeg)
        return;
    close_image(jpeg);
    free(jpeg->pixels.data);
    free(jpeg);
}

/* A new libjpeg object for each image: tables that one defines must not help out in the next one, which lacks them. */
static void open_image(struct tsp_jpeg *jpeg, const uint8_t *data, size_t len)
{
    j_decompress_ptr cinfo = &jpeg->cinfo;
    cinfo->err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = on_output;
    cinfo->client_data = jpeg; /* which create keeps */
    jpeg_create_decompress(cinfo);
    jpeg->open = true;
    jpeg->progress.progress_monitor = on_progress;
    cinfo->progress = &jpeg->progress;
    jpeg->source = (struct jpeg_source_mgr){
        .next_input_byte = data,
        .bytes_in_buffer = len,
        .init_source = source_nothing,
        .fill_input_buffer = source_refill,
        .skip_input_data = source_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = source_nothing,
    };
    cinfo->src = &jpeg->source;
    jpeg->data = data;
    jpeg->len = len;
    jpeg->ended = false;
}

/* Chooses the colours to decode to, and checks what must be known before memory is taken. */
static enum tsp_bad check_header(struct tsp_jpeg *jpeg)
{
    j_decompress_ptr cinfo = &jpeg->cinfo;
    uint64_t pixels = (uint64_t)cinfo->image_width * cinfo->image_height;
    if (pixels > jpeg->limits.max_pixels) {
        snprintf(jpeg->why, TSP_WHY_MAX, "%u x %u pixels, more than the limit of %" PRIu64, cinfo->image_width,
                 cinfo->image_height, jpeg->limits.max_pixels);
        return TSP_TOO_LARGE;
    }
    switch (cinfo->jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_YCbCr:
    case JCS_RGB:
        cinfo->out_color_space = JCS_RGB;
        return TSP_GOOD;
    case JCS_CMYK:
    case JCS_YCCK:
        cinfo->out_color_space = JCS_CMYK;
        return TSP_GOOD;
    default:
        snprintf(jpeg->why, TSP_WHY_MAX, "a JPEG of %d components", cinfo->num_components);
        return TSP_UNSUPPORTED;
    }
}

enum tsp_bad tsp_jpeg_header(struct tsp_jpeg *jpeg, const uint8_t *data, size_t len, uint32_t *width_out,
                             uint32_t *height_out)
{
    close_image(jpeg);
    if (setjmp(jpeg->escape))
        return jpeg->bad;
    open_image(jpeg, data, len);
    jpeg_save_markers(&jpeg->cinfo, JPEG_APP0 + 1, EXIF_BYTES);
    jpeg_read_header(&jpeg->cinfo, TRUE);
    enum tsp_bad bad = check_header(jpeg);
    if (bad != TSP_GOOD)
        return bad;
    *width_out = jpeg->cinfo.image_width;
    *height_out = jpeg->cinfo.image_height;
    return TSP_GOOD;
}

uint32_t tsp_jpeg_orientation(const struct tsp_jpeg *jpeg)
{
    static const char intro[6] = "Exif\0";
    for (jpeg_saved_marker_ptr marker = jpeg->cinfo.marker_list; marker; marker = marker->next)
        if (marker->data_length > sizeof intro && memcmp(marker->data, intro, sizeof intro) == 0)
            return tsp_exif_orientation(marker->data + sizeof intro, marker->data_length - sizeof intro);
    return 1;
}

const char *tsp_jpeg_format(const struct tsp_jpeg *jpeg)
{
    static const char *const words[2][2] = {
        {"JPEG", "arithmetic JPEG"},
        {"progressive JPEG", "progressive arithmetic JPEG"},
    };
    return words[jpeg->cinfo.progressive_mode != 0][jpeg->cinfo.arith_code != 0];
}

/* By how many columns and rows of brightness share one of colour. */
static const char *subsampling_of(const jpeg_component_info comps[3])
{
    static const struct {
        int across, down;
        const char *word;
    } known[] = {{1, 1, "4:4:4"}, {2, 1, "4:2:2"}, {2, 2, "4:2:0"}, {1, 2, "4:4:0"}, {4, 1, "4:1:1"}, {4, 2, "4:1:0"}};
    bool even = comps[1].h_samp_factor == comps[2].h_samp_factor && comps[1].v_samp_factor == comps[2].v_samp_factor;
    for (size_t i = 0; even && i < sizeof known / sizeof known[0]; i++)
        if (comps[0].h_samp_factor == known[i].across * comps[1].h_samp_factor &&
            comps[0].v_samp_factor == known[i].down * comps[1].v_samp_factor)
            return known[i].word;
    return "another subsampling";
}

const char *tsp_jpeg_colours(const struct tsp_jpeg *jpeg)
{
    switch (jpeg->cinfo.jpeg_color_space) {
    case JCS_GRAYSCALE:
        return "grey";
    case JCS_RGB:
        return "RGB";
    case JCS_CMYK:
        return "CMYK";
    case JCS_YCCK:
        return "YCCK";
    default:
        return subsampling_of(jpeg->cinfo.comp_info);
    }
}

/* Whether all scans that refine a progressive picture have come: else libjpeg smooths it, and looks far around. */
static bool is_fully_refined(const struct jpeg_decompress_struct *cinfo)
{
    for (int i = 0; cinfo->progressive_mode && i < cinfo->num_components; i++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (cinfo->coef_bits[i][k] != 0)
                return false;
    return true;
}

/* Parts are only taken of the layouts that are everywhere (4:4:4, 4:2:2, 4:4:0, 4:2:0, grey), which the tests compare.
 */
static bool can_take_part(const struct jpeg_decompress_struct *cinfo)
{
    const jpeg_component_info *comps = cinfo->comp_info;
    if (!is_fully_refined(cinfo))
        return false;
    if (cinfo->num_components == 1)
        return comps[0].h_samp_factor == 1 && comps[0].v_samp_factor == 1;
    return cinfo->num_components == 3 && comps[0].h_samp_factor <= 2 && comps[0].v_samp_factor <= 2 &&
           comps[1].h_samp_factor == 1 && comps[1].v_samp_factor == 1 && comps[2].h_samp_factor == 1 &&
           comps[2].v_samp_factor == 1;
}

/* Without an end marker behind it, the picture must be decoded to its last row to know that it is whole. */
static bool has_end_marker(const struct tsp_jpeg *jpeg)
{
    return jpeg->len >= 2 && jpeg->data[jpeg->len - 2] == 0xff && jpeg->data[jpeg->len - 1] == JPEG_EOI;
}

/* Sets jpeg->part to the pixels to decode and cuts libjpeg's rows down to it. */
static void choose_part(struct tsp_jpeg *jpeg, const struct tsp_rect *wanted)
{
    j_decompress_ptr cinfo = &jpeg->cinfo;
    jpeg->part = (struct tsp_rect){0, 0, cinfo->output_width, cinfo->output_height};
    if (!can_take_part(cinfo))
        return;
    JDIMENSION margin = cinfo->max_h_samp_factor > 1 ? CROP_MARGIN : 0;
    JDIMENSION left = wanted->x > margin ? wanted->x - margin : 0;
    JDIMENSION right = wanted->x + wanted->width;
    right = cinfo->output_width - right > margin ? right + margin : cinfo->output_width;
    JDIMENSION width = right - left;
    if (width < cinfo->output_width)
        jpeg_crop_scanline(cinfo, &left, &width); /* moves `left` to the border of a block */
    else
        left = 0;
    uint32_t bottom = has_end_marker(jpeg) ? wanted->y + wanted->height : cinfo->output_height;
    jpeg->part = (struct tsp_rect){left, wanted->y, width, bottom - wanted->y};
}

/* Inks as Adobe stores them, inverted: a byte is the light that its ink lets through. */
static void rgb_from_cmyk(uint8_t *rgb, const uint8_t *cmyk, size_t width)
{
    for (size_t x = 0; x < width; x++)
        for (size_t c = 0; c < 3; c++)
            rgb[x * 3 + c] = (uint8_t)((cmyk[x * 4 + c] * cmyk[x * 4 + 3] + 127) / 255);
}

/* Room for the part and behind it, for CMYK, for one row as libjpeg gives it. */
static void read_rows(struct tsp_jpeg *jpeg)
{
    j_decompress_ptr cinfo = &jpeg->cinfo;
    size_t stride = (size_t)jpeg->part.width * 3;
    uint8_t *pixels = jpeg->pixels.data;
    uint8_t *inks = pixels + stride * jpeg->part.height;
    bool cmyk = cinfo->out_color_space == JCS_CMYK;
    if (jpeg->part.y > 0)
        jpeg_skip_scanlines(cinfo, jpeg->part.y);
    for (uint32_t y = 0; y < jpeg->part.height; y++) {
        uint8_t *row = pixels + y * stride;
        JSAMPROW to = cmyk ? inks : row;
        jpeg_read_scanlines(cinfo, &to, 1);
        if (cmyk)
            rgb_from_cmyk(row, inks, jpeg->part.width);
    }
}

/*
 * A Huffman-coded scan that breaks off says so itself. Not so arithmetic coding, which goes on with zeros, nor a file
 * in several scans, of which some may be missing altogether: those count as whole only with their end marker.
 */
static enum tsp_bad check_end(struct tsp_jpeg *jpeg)
{
    if (!jpeg->ended || !(jpeg_has_multiple_scans(&jpeg->cinfo) || jpeg->cinfo.arith_code))
        return TSP_GOOD;
    snprintf(jpeg->why, TSP_WHY_MAX, "the file ends too early, after %zu bytes", jpeg->len);
    return TSP_TRUNCATED;
}

enum tsp_bad tsp_jpeg_decode(struct tsp_jpeg *jpeg, const struct tsp_rect *wanted, uint32_t reduce,
                             struct tsp_pixels *pixels_out)
{
    j_decompress_ptr cinfo = &jpeg->cinfo;
    if (setjmp(jpeg->escape))
        return jpeg->bad;
    cinfo->scale_num = 1;
    cinfo->scale_denom = reduce;
    jpeg_start_decompress(cinfo);
    jpeg->width = cinfo->output_width; /* which becomes that of the part */
    choose_part(jpeg, wanted);
    const struct tsp_rect *part = &jpeg->part;
    if (!tsp_buffer_reserve(&jpeg->pixels, (size_t)part->width * part->height * 3 + (size_t)part->width * 4)) {
        snprintf(jpeg->why, TSP_WHY_MAX, "no memory for %u x %u pixels", part->width, part->height);
        return TSP_STOP;
    }
    read_rows(jpeg);
    enum tsp_bad bad = check_end(jpeg);
    if (bad != TSP_GOOD)
        return bad;
    *pixels_out = (struct tsp_pixels){
        .width = jpeg->width,
        .height = cinfo->output_height,
        .part = *part,
        .data = jpeg->pixels.data,
        .stride = (size_t)part->width * 3,
    };
    return TSP_GOOD;
}

#define TEXT_OF(macro)  TEXT_OF_(macro)
#define TEXT_OF_(token) #token

const char *tsp_jpeg_library(void)
{
#ifdef LIBJPEG_TURBO_VERSION
    return "libjpeg-turbo " TEXT_OF(LIBJPEG_TURBO_VERSION);
#else
    return "libjpeg " TEXT_OF(JPEG_LIB_VERSION);
#endif
}
